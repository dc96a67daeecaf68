//! Programs that query a machine's shortcut and branch on the result. The shortcut belongs to the tests:
//! a map, with rows at made-up addresses.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use pagewalk_machine::{
    Design, DesignResult, Limits, NewShortcut, Options, RunResult, RunSpec, Status, Stream,
    WorkUnit,
};
use pagewalk_programs::{Code, NONE, Touch};
use pagewalk_stream::{
    Backing, Batch, End, Error, Event, Facts, Op, OpClass, Program, ShortcutQuery, ThreadId, flags,
};
use pagewalk_units::VirtAddr;

use crate::common::rows::{all_rows, few_rows};
use crate::common::{installation, metric, sum};

const CODE: u64 = 0x40_0000;
const INDEX: u64 = 0x1000_0000;
const RECORDS: u64 = 0x2000_0000;
const KEYS: u64 = 500;
const REQUESTS: u64 = 3000;

/// Outcomes of the requests of all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Served {
    by_shortcut: u64,
    by_index: u64,
    without_query: u64,
}

/// Stage of a thread's request.
enum Stage {
    Begin,
    Queried(u64),
    Replied(u64, u64),
    Inserted,
}

struct Caller {
    stage: Stage,
    left: u64,
    state: u64,
}

/// Looks up records by key: queries first, and walks an index of ten nodes if the result is 0. Never
/// queries again without a shortcut.
struct Store {
    threads: Vec<Caller>,
    started: usize,
    mapped: bool,
    queries: bool,
    served: Arc<Mutex<Served>>,
}

impl Store {
    fn new(threads: usize, served: &Arc<Mutex<Served>>) -> Self {
        let caller = |t| Caller {
            stage: Stage::Begin,
            left: REQUESTS,
            state: 1 + t as u64,
        };
        Store {
            threads: (0..threads).map(caller).collect(),
            started: 1,
            mapped: false,
            queries: true,
            served: Arc::clone(served),
        }
    }

    /// Each thread has its own keys, so that their order does not matter.
    fn key(thread: ThreadId, state: &mut u64) -> u64 {
        *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        u64::from(thread) * KEYS + (*state >> 33) % KEYS
    }

    /// Number of index lookups if only new keys use the index.
    fn distinct(threads: usize) -> u64 {
        let mut sum = 0;
        for t in 0..threads {
            let mut state = 1 + t as u64;
            let keys = (0..REQUESTS).map(|_| Self::key(t as ThreadId, &mut state));
            sum += keys.collect::<HashSet<u64>>().len() as u64;
        }
        sum
    }
}

fn record(key: u64) -> u64 {
    RECORDS + 4096 * key
}

fn op(kind: OpClass, va: u64, dep: u16) -> Op {
    Op {
        pc: CODE,
        va,
        insns: 2,
        dep: [dep, 0],
        kind,
        size: 8,
        latency: 1,
        ..Op::default()
    }
}

impl Program for Store {
    fn facts(&self) -> Facts {
        Facts {
            name: "store".to_owned(),
            deterministic: true,
            has_roi: true,
            request: Some("lookup".to_owned()),
            ..Facts::default()
        }
    }

    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, Error> {
        batch.ops.clear();
        let event = |event| Ok(End::Event { event, ticket: 0 });
        if !std::mem::replace(&mut self.mapped, true) {
            return event(Event::Map {
                at: VirtAddr(CODE),
                bytes: RECORDS + (4096 * KEYS * 8) - CODE,
                writable: true,
                backing: Backing::Anonymous,
            });
        }
        if thread == 0 && self.started < self.threads.len() {
            self.started += 1;
            return event(Event::Spawn {
                thread: self.started as ThreadId - 1,
            });
        }
        let mut served = self.served.lock().unwrap();
        let me = &mut self.threads[thread as usize];
        loop {
            match me.stage {
                Stage::Begin if me.left == 0 => return Ok(End::Exit),
                Stage::Begin => {
                    let key = Self::key(thread, &mut me.state);
                    if self.queries {
                        me.stage = Stage::Queried(key);
                        batch.ops.push(op(OpClass::Query, 0, 0));
                        return Ok(End::Query(ShortcutQuery::LoadVa { integer: key }));
                    }
                    me.stage = Stage::Replied(key, 0);
                }
                Stage::Queried(_) => {
                    panic!("the batch after a query was requested before its result")
                }
                Stage::Replied(key, 0) => {
                    for node in 0..10 {
                        let va = INDEX + 4096 * ((key * 7 + node * 131) % 1000);
                        batch.ops.push(op(OpClass::Load, va, 1));
                    }
                    batch.ops.push(op(OpClass::Load, record(key), 1));
                    me.stage = Stage::Inserted;
                    if self.queries {
                        served.by_index += 1;
                        batch.ops.push(op(OpClass::Query, 0, 1));
                        let va = VirtAddr(record(key));
                        return Ok(End::Query(ShortcutQuery::InsertVa { integer: key, va }));
                    }
                    served.without_query += 1;
                }
                Stage::Replied(key, va) => {
                    assert_eq!(va, record(key), "somebody else's record");
                    served.by_shortcut += 1;
                    batch.ops.push(op(OpClass::Load, va, 1));
                    me.stage = Stage::Inserted;
                }
                Stage::Inserted => {
                    batch.ops.push(Op {
                        flags: flags::REQUEST,
                        ..op(OpClass::Compute, 0, 1)
                    });
                    me.stage = Stage::Begin;
                    me.left -= 1;
                    return Ok(End::More);
                }
            }
        }
    }

    fn shortcut_result(&mut self, thread: ThreadId, reply: Option<u64>) {
        let me = &mut self.threads[thread as usize];
        self.queries &= reply.is_some();
        match me.stage {
            Stage::Queried(key) => me.stage = Stage::Replied(key, reply.unwrap_or(0)),
            Stage::Inserted => assert_eq!(reply, Some(1)),
            _ => panic!("a result without a query"),
        }
    }
}

/// Radix page tables on two cores, with a shortcut.
fn design(name: &str, shortcut: Option<NewShortcut>) -> Design {
    let spec: RunSpec = serde_json::from_value(serde_json::json!({
        "machine": "revelator-table1", "designs": ["radix"], "set": ["cores=2"],
    }))
    .unwrap();
    Design {
        name: name.to_owned(),
        shortcut,
        beside: false,
        ..installation().resolve(&spec).unwrap().remove(0)
    }
}

/// Designs: a shortcut that keeps all rows, one that keeps few, none.
fn run(which: &[&str], threads: usize, limits: Limits) -> (RunResult, Vec<Served>) {
    let designs: Vec<Design> = which
        .iter()
        .map(|&name| match name {
            "all" => design(name, Some(all_rows)),
            "few" => design(name, Some(few_rows)),
            _ => design(name, None),
        })
        .collect();
    let served: Vec<_> = designs.iter().map(|_| Arc::default()).collect();
    let streams = (0..designs.len()).map(|d| Stream {
        program: Box::new(Store::new(threads, &served[d])),
        designs: vec![d],
    });
    let options = Options {
        limits,
        ..Options::default()
    };
    let result = pagewalk_machine::run(&designs, streams.collect(), &options, &mut |_| true)
        .unwrap_or_else(|e| panic!("{e}"));
    for d in &result.designs {
        assert_eq!(d.status, Status::Complete, "{}: {:?}", d.name, d.message);
    }
    let served = served.iter().map(|s| *s.lock().unwrap()).collect();
    (result, served)
}

fn requests(d: &DesignResult) -> u64 {
    metric(d, "requests") as u64
}

#[test]
fn the_program_branches_on_the_answers_of_its_own_design() {
    for threads in [1, 3] {
        let (result, served) = run(&["all", "few", "none"], threads, Limits::default());
        let all = threads as u64 * REQUESTS;
        let distinct = Store::distinct(threads);
        let want = Served {
            by_shortcut: all - distinct,
            by_index: distinct,
            without_query: 0,
        };
        assert_eq!(served[0], want);
        assert_eq!(served[1].by_shortcut + served[1].by_index, all);
        assert!(served[1].by_index > 2 * distinct, "{:?}", served[1]);
        assert_eq!((served[2].without_query, served[2].by_index), (all, 0));
        for d in &result.designs {
            assert_eq!(requests(d), all, "{}", d.name);
            assert_eq!(sum(d, "requests", |p| p.starts_with("core.")), all);
            assert_eq!(d.speedup_by, WorkUnit::Request);
        }
        let cycles: Vec<f64> = result
            .designs
            .iter()
            .map(|d| metric(d, "cycles_per_request"))
            .collect();
        assert!(cycles[0] < cycles[1], "{cycles:?}");
        let speedup = result.designs[1].speedup.unwrap();
        assert!((speedup - cycles[0] / cycles[1]).abs() < 1e-12);
    }
}

#[test]
fn answers_are_the_same_skipped_warmed_sampled_and_measured() {
    let (_, whole) = run(&["all"], 1, Limits::default());
    let ways = [
        serde_json::json!({"skip_requests": 2000}),
        serde_json::json!({"warmup_requests": 2000}),
        serde_json::json!({"skip": 5000, "warmup": 3001}),
        serde_json::json!({"sample": {"length": 500, "period": 4000}}),
        serde_json::json!({"skip_requests": 100, "warmup_requests": 100,
            "sample": {"length": 1000, "period": 5000}}),
    ];
    for limits in ways {
        let (result, served) = run(&["all"], 1, serde_json::from_value(limits.clone()).unwrap());
        assert_eq!(served, whole, "{limits}");
        assert!(requests(&result.designs[0]) < REQUESTS, "{limits}");
    }
}

#[test]
fn as_many_requests_are_skipped_warmed_and_measured_as_were_asked_for() {
    let limits = serde_json::json!({
        "skip_requests": 700, "warmup_requests": 300, "requests": 1000,
    });
    let (result, served) = run(
        &["all", "few", "none"],
        1,
        serde_json::from_value(limits).unwrap(),
    );
    for (d, s) in result.designs.iter().zip(served) {
        assert_eq!(requests(d), 1000, "{}", d.name);
        // The program is at most one request ahead of the simulation.
        let made = s.by_shortcut + s.by_index + s.without_query;
        assert!((2000..=2002).contains(&made), "{}: {made}", d.name);
    }
    // Most keys have been inserted by then, which is the purpose of skipped requests.
    let insns = metric(&result.designs[0], "instructions_per_request");
    let few = metric(&result.designs[1], "instructions_per_request");
    assert!(insns < 10.0 && few > 15.0, "{insns} {few}");
}

/// A built-in program with the same keys again and again. A thread queries, and reads the record. On a
/// miss it walks the index first and inserts the address.
fn built_in(served: &Arc<Mutex<Served>>) -> Box<dyn Program> {
    let facts = Facts {
        name: "built in".to_owned(),
        deterministic: true,
        has_roi: true,
        request: Some("lookup".to_owned()),
        ..Facts::default()
    };
    let served = Arc::clone(served);
    let mut code = Code::new(facts, Touch::Never);
    code.thread(0x7fff_0000, move |mut t| async move {
        let event = Event::Map {
            at: VirtAddr(CODE),
            bytes: RECORDS + (4096 * KEYS) - CODE,
            writable: true,
            backing: Backing::Anonymous,
        };
        t.event(event).await;
        t.begin(1).await;
        for n in 0..REQUESTS {
            let key = n * n % KEYS;
            let (mut value, result) =
                t.shortcut_query(0x40, 3, ShortcutQuery::LoadVa { integer: key }, [NONE; 2]);
            let reply = result.await;
            t.branch(0x48, 0x80, 2, reply == Some(0), [value, NONE]);
            if reply == Some(0) {
                for node in 0..10 {
                    value = t.load(0x50, 2, INDEX + 4096 * (key + node), 8, [value, NONE]);
                }
                let va = VirtAddr(record(key));
                let (_, result) = t.shortcut_query(
                    0x60,
                    2,
                    ShortcutQuery::InsertVa { integer: key, va },
                    [value, NONE],
                );
                assert_eq!(result.await, Some(1));
            }
            {
                let mut served = served.lock().unwrap();
                match reply {
                    None => served.without_query += 1,
                    Some(0) => served.by_index += 1,
                    Some(va) => {
                        assert_eq!(va, record(key));
                        served.by_shortcut += 1;
                    }
                }
            }
            t.load(0x70, 1, record(key), 8, [value, NONE]);
            t.request();
            if t.full() {
                t.pause().await;
            }
        }
        t.finish(1).await;
    });
    Box::new(code)
}

#[test]
fn a_built_in_program_is_answered_in_every_phase() {
    let distinct = (0..REQUESTS).map(|n| n * n % KEYS).collect::<HashSet<_>>();
    let distinct = distinct.len() as u64;
    let ways = [
        serde_json::json!({}),
        serde_json::json!({"skip_requests": 1000, "warmup_requests": 1000}),
        serde_json::json!({"sample": {"length": 500, "period": 4000}}),
    ];
    for limits in ways {
        let mut limits: Limits = serde_json::from_value(limits).unwrap();
        limits.roi = true;
        let served = Arc::default();
        let stream = Stream {
            program: built_in(&served),
            designs: vec![0],
        };
        let options = Options {
            limits,
            ..Options::default()
        };
        let designs = [design("all", Some(all_rows))];
        let result =
            pagewalk_machine::run(&designs, vec![stream], &options, &mut |_| true).unwrap();
        assert_eq!(result.designs[0].status, Status::Complete, "{limits:?}");
        let want = Served {
            by_shortcut: REQUESTS - distinct,
            by_index: distinct,
            without_query: 0,
        };
        assert_eq!(*served.lock().unwrap(), want, "{limits:?}");
    }
    // Without a shortcut it continues and stops querying.
    let served = Arc::default();
    let stream = Stream {
        program: built_in(&served),
        designs: vec![0],
    };
    let designs = [design("none", None)];
    let options = Options::default();
    let result = pagewalk_machine::run(&designs, vec![stream], &options, &mut |_| true).unwrap();
    assert_eq!(requests(&result.designs[0]), REQUESTS);
    assert_eq!(served.lock().unwrap().without_query, REQUESTS);
}

#[test]
fn a_design_that_replies_shares_its_program_with_no_other() {
    let spec: RunSpec = serde_json::from_value(serde_json::json!({
        "machine": "revelator-table1", "designs": ["radix", "thp"],
    }))
    .unwrap();
    let mut designs = installation().resolve(&spec).unwrap();
    designs[1].shortcut = Some(all_rows);
    let stream = Stream {
        program: Box::new(Store::new(1, &Arc::default())),
        designs: vec![0, 1],
    };
    let refused = pagewalk_machine::run(&designs, vec![stream], &Options::default(), &mut |_| true);
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("thp gives replies")
    );
}
