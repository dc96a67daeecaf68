//! A store of records that queries a shortcut, and machines to run it on.
#![allow(
    dead_code,
    reason = "benches, fuzz targets and test binaries use their own parts"
)]

use std::sync::{Arc, Mutex};

use pagewalk_machine::{Design, DesignResult, Limits, Options, RunSpec, Status, Stream};
use pagewalk_programs::{Code, NONE, Thread, Touch};
use pagewalk_stream::{Backing, Event, Facts, Program, ShortcutQuery};
use pagewalk_units::{Advice, VirtAddr};

use super::{installation, sum};

/// Address of the records.
pub const BASE: u64 = 0x2000_0000;
/// Address of the code; the index lies behind it.
pub const CODE: u64 = 0x40_0000;
const ARENA: u64 = 64 << 10;

/// Numbers of queries by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryCounts {
    pub loads: u64,
    pub nothing: u64,
    pub false_matches: u64,
    pub inserts: u64,
    pub refused: u64,
}

/// RecordChanges of the records' memory between requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RecordChanges {
    Nothing,
    Everything,
}

/// The store and its requests.
#[derive(Clone, Copy)]
pub struct Store {
    pub keys: u64,
    /// Requests of each thread.
    pub requests: u64,
    pub changes: RecordChanges,
    pub huge: bool,
    /// Threads, all with the same records; with several, no memory changes.
    pub threads: u32,
    /// No key is queried twice; each query has a new key of an existing record.
    pub fresh: bool,
    /// Each request depends on the one before.
    pub serial: bool,
}

impl Default for Store {
    fn default() -> Self {
        Store {
            keys: 12_000,
            requests: 12_000,
            changes: RecordChanges::Nothing,
            huge: false,
            threads: 1,
            fresh: false,
            serial: false,
        }
    }
}

/// Hash of a key.
pub fn integer(key: u64) -> u64 {
    let x = (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 8
}

/// A store of 1 KB records in arenas. A request queries a random key's record, or finds it in an index
/// and inserts its address, and then reads and writes it. Arenas are freed and allocated again, moved,
/// emptied and protected. A result with an unmapped address would end the run.
pub fn store(store: Store, queries: &Arc<Mutex<QueryCounts>>) -> Box<dyn Program> {
    let facts = Facts {
        name: "store".to_owned(),
        deterministic: true,
        request: Some("lookup".to_owned()),
        ..Facts::default()
    };
    let mut code = Code::new(facts, Touch::Never);
    for thread in 0..store.threads {
        let queries = Arc::clone(queries);
        let stack = 0x7fff_0000 - (u64::from(thread) << 24);
        code.thread(stack, move |t| serve(t, thread, store, queries));
    }
    Box::new(code)
}

fn map(at: u64, bytes: u64) -> Event {
    Event::Map {
        at: VirtAddr(at),
        bytes,
        writable: true,
        backing: Backing::Anonymous,
    }
}

async fn serve(mut t: Thread, thread: u32, store: Store, queries: Arc<Mutex<QueryCounts>>) {
    let records = ARENA / 1024;
    let arenas = store.keys.div_ceil(records);
    let mut at: Vec<u64> = (0..arenas).map(|a| BASE + a * ARENA).collect();
    if thread == 0 {
        t.event(map(CODE, 8 << 20)).await;
        t.event(map(BASE, arenas * ARENA)).await;
        if store.huge {
            let bytes = arenas * ARENA;
            let advice = Advice::HugePage;
            t.event(Event::Advise {
                at: VirtAddr(BASE),
                bytes,
                advice,
            })
            .await;
        }
        for thread in 1..store.threads {
            t.event(Event::Spawn { thread }).await;
        }
    }
    let mut free = BASE + (arenas + 1) * ARENA * 2;
    let mut state = 5u64 + u64::from(thread);
    let mut random = move |below: u64| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        integer(state) % below
    };
    let mut before = NONE;
    for n in 0..store.requests {
        let key = random(store.keys);
        let place = |at: &[u64]| at[(key / records) as usize] + 1024 * (key % records);
        let integer = integer(if store.fresh {
            key + (n + 1) * store.keys
        } else {
            key
        });
        let (value, result) =
            t.shortcut_query(0x40, 3, ShortcutQuery::LoadVa { integer }, [before, NONE]);
        let reply = result.await;
        let va = reply.filter(|&va| va != 0);
        let mut now = QueryCounts {
            loads: 1,
            nothing: u64::from(va.is_none()),
            ..QueryCounts::default()
        };
        // Compares the key, because the address may hold another record now.
        let mut found = value;
        if let Some(va) = va {
            found = t.load(0x48, 2, va, 8, [value, NONE]);
        }
        if va != Some(place(&at)) {
            now.false_matches = u64::from(va.is_some());
            for node in 0..4 {
                found = t.load(0x50, 4, CODE + 4096 + 64 * (key + node), 8, [found, NONE]);
            }
            t.store(0x58, 1, place(&at), 8, found, found);
            let va = VirtAddr(place(&at));
            let (held, result) = t.shortcut_query(
                0x60,
                2,
                ShortcutQuery::InsertVa { integer, va },
                [found, NONE],
            );
            if store.serial {
                found = held;
            }
            let held = result.await;
            now.inserts = u64::from(held.is_some());
            now.refused = u64::from(held == Some(0));
        }
        found = t.load(0x68, 1, place(&at) + 512, 8, [found, NONE]);
        t.store(0x70, 1, place(&at) + 576, 8, found, found);
        if store.serial {
            before = found;
        }
        t.request();
        {
            let mut queries = queries.lock().unwrap();
            queries.loads += now.loads;
            queries.nothing += now.nothing;
            queries.false_matches += now.false_matches;
            queries.inserts += now.inserts;
            queries.refused += now.refused;
        }
        if t.full() {
            t.pause().await;
        }
        if store.changes == RecordChanges::Nothing || n % 23 != 0 {
            continue;
        }
        let a = random(at.len() as u64) as usize;
        let (here, bytes) = (VirtAddr(at[a]), ARENA);
        let page = VirtAddr(at[a] + 4096 * random(ARENA / 4096));
        match random(5) {
            0 => {
                t.event(Event::Unmap { at: here, bytes }).await;
                at[a] = free;
                free += ARENA;
                t.event(map(at[a], bytes)).await;
            }
            1 => {
                let to = VirtAddr(free);
                let (old_bytes, new_bytes) = (bytes, bytes);
                free += ARENA;
                t.event(Event::Remap {
                    from: here,
                    old_bytes,
                    to,
                    new_bytes,
                })
                .await;
                at[a] = to.0;
            }
            2 => {
                // The same addresses with other memory.
                t.event(Event::Unmap { at: here, bytes }).await;
                t.event(map(at[a], bytes)).await;
            }
            3 => {
                let advice = Advice::DontNeed;
                t.event(Event::Advise {
                    at: page,
                    bytes: 4096,
                    advice,
                })
                .await;
            }
            _ => {
                for writable in [false, true] {
                    t.event(Event::Protect {
                        at: page,
                        bytes: 4096,
                        writable,
                    })
                    .await;
                }
            }
        }
    }
    if thread == 0 && store.threads > 1 {
        t.join().await;
    }
}

/// A shipped design with changed keys, on the machine of the paper.
pub fn design(name: &str, set: &[&str]) -> Design {
    let name = match set {
        [] => name.to_owned(),
        _ => format!("{name}[{}]", set.join(",")),
    };
    let spec: RunSpec = serde_json::from_value(serde_json::json!({
        "machine": "stlt-table3", "designs": [name],
    }))
    .unwrap();
    installation()
        .resolve(&spec)
        .unwrap_or_else(|e| panic!("{name}: {e}"))
        .remove(0)
}

/// Runs the program on `design` to its end; returns the results of its queries too.
pub fn run(
    design: &Design,
    program: Store,
    limits: &serde_json::Value,
) -> (DesignResult, QueryCounts) {
    let queries = Arc::default();
    let stream = Stream {
        program: store(program, &queries),
        designs: vec![0],
    };
    let options = Options {
        limits: serde_json::from_value::<Limits>(limits.clone()).unwrap(),
        ..Options::default()
    };
    let designs = [design.clone()];
    let result = pagewalk_machine::run(&designs, vec![stream], &options, &mut |_| true);
    let mut result = result.unwrap_or_else(|e| panic!("{e}"));
    let d = result.designs.remove(0);
    assert_eq!(d.status, Status::Complete, "{:?}", d.message);
    let queries = *queries.lock().unwrap();
    (d, queries)
}

/// A counter of the kernel's tables.
pub fn table(d: &DesignResult, name: &str) -> u64 {
    sum(d, name, |p| p == "stlt")
}

/// A counter of `part` of the MMUs, such as `.stb`, summed over all cores.
pub fn unit(d: &DesignResult, part: &str, name: &str) -> u64 {
    sum(d, name, |p| p.ends_with(&format!(".mmu{part}")))
}
