//! Gain of guessed lines, and the outcome of every guess.

use std::sync::{Arc, Mutex};

use crate::common::{FLIP, Flat, L2, L2_TLB, Memory, caches, counted, load, mmu, walk_context};
use pagewalk_memory::Private;
use pagewalk_mmu::{
    Engine, EngineSpec, Fault, Guess, GuessedLines, Guesses, Lookup, Miss, Mmu, PerfectSpec, Seen,
    Translated, Walked, What,
};
use pagewalk_stats::Tree;
use pagewalk_tables::{Flags, Invalidation, View};
use pagewalk_units::{Access, Asid, Cycle, GuestPhysAddr, PhysAddr, VirtAddr, rng};
use rand::RngExt;

const A: Asid = Asid(1);
const DRAM: Cycle = 200;
/// Latency of the walk caches.
const PWC: Cycle = 2;

/// An MMU with an engine over its caches, flat tables and a memory.
struct Bench {
    mmu: Mmu,
    private: Private,
    memory: Memory,
    guest: Flat,
    /// The host's table, if the program runs in a virtual machine.
    host: Option<Flat>,
}

impl Bench {
    fn with(engine: Option<Box<dyn Engine>>, mshrs: u32) -> Self {
        let mut unit = Mmu::new(&mmu(), 0).expect("a possible MMU");
        if let Some(engine) = engine {
            unit = unit.with_engine(engine);
        }
        Bench {
            mmu: unit,
            private: caches(mshrs).with_speculation(),
            memory: Memory::new(DRAM),
            guest: Flat::new(1 << 39),
            host: None,
        }
    }
    fn plain() -> Self {
        Self::with(None, 64)
    }
    fn perfect(what: GuessedLines) -> Self {
        Self::late(what, 0)
    }
    /// A bench with an oracle engine of this latency.
    fn late(what: GuessedLines, latency: Cycle) -> Self {
        let spec = EngineSpec::Perfect(PerfectSpec {
            what,
            latency,
            nested: false,
        });
        Self::with(Some(spec.build(2.0)), 64)
    }
    fn nested(mut self) -> Self {
        self.host = Some(Flat::new(1 << 46));
        self
    }
    fn try_translate(&mut self, va: u64, access: Access, now: Cycle) -> Result<Translated, Fault> {
        let va = VirtAddr(va);
        let (asid, pc) = (A, 0);
        self.look_up(Lookup {
            asid,
            va,
            access,
            pc,
            now,
        })
    }
    fn look_up(&mut self, lookup: Lookup) -> Result<Translated, Fault> {
        let view = match &self.host {
            None => View::Native(&self.guest),
            Some(host) => View::Nested {
                guest: &self.guest,
                host,
            },
        };
        let context = walk_context(&view, &mut self.private, &mut self.memory);
        self.mmu.translate(lookup, context)
    }
    fn translate(&mut self, va: u64, now: Cycle) -> Translated {
        self.try_translate(va, Access::Read, now).expect("mapped")
    }
    /// Cycle at which the data of a load is ready.
    fn load(&mut self, va: u64, now: Cycle) -> Cycle {
        let answer = self.translate(va, now);
        load(&answer, &mut self.private, &mut self.memory)
    }
    fn tree(&self) -> Tree {
        counted(&self.mmu, &self.private)
    }
    fn get(&self, path: &str, name: &str) -> u64 {
        self.tree()
            .get(path, name)
            .unwrap_or_else(|| panic!("{path} {name}"))
    }
    fn data(&self, name: &str) -> u64 {
        self.get("mmu.engine.data", name)
    }
    fn entries(&self, name: &str) -> u64 {
        self.get("mmu.engine.entries", name)
    }
}

/// An address whose entries and data are cached nowhere.
const COLD: u64 = 0x1234_5678;

#[test]
fn a_walk_longer_than_the_fetch_leaves_an_l2_hit() {
    for nested in [false, true] {
        let of = |b: Bench| if nested { b.nested() } else { b };
        let walk = of(Bench::plain()).translate(COLD, 1000).ready;
        assert!(walk > 1000 + L2_TLB + DRAM);
        assert_eq!(of(Bench::plain()).load(COLD, 1000), walk + DRAM);
        let mut b = of(Bench::perfect(GuessedLines::Data));
        assert_eq!(b.load(COLD, 1000), walk + L2);
        assert_eq!((b.data("right"), b.data("late")), (1, 0));
        assert_eq!(b.get("l2", "speculative_useful"), 1);
    }
}

#[test]
fn a_fetch_longer_than_the_walk_leaves_what_is_left_of_the_l2_hit() {
    for nested in [false, true] {
        for (latency, engine) in [(DRAM, 0), (DRAM, 5), (L2 + 6, 0), (L2 + 6, 10)] {
            let warm = |b: Bench| {
                let mut b = if nested { b.nested() } else { b };
                let now = 2 * b.load(COLD, 0);
                b.memory.latency = latency;
                (b, now)
            };
            let (mut plain, now) = warm(Bench::plain());
            let known = plain.translate(COLD + 4096, now).ready;
            let (mut b, same) = warm(Bench::late(GuessedLines::Data, engine));
            // The neighbour's entries are in the L2, its data in memory.
            let fetched = same + L2_TLB + engine + latency;
            let known = same + (known - now);
            assert_eq!(b.load(COLD + 4096, same), fetched.max(known + L2));
            assert_eq!(b.data("late"), u64::from(fetched > known));
        }
    }
}

#[test]
fn a_guessed_entry_shortens_the_walk_by_its_read() {
    let walk = |b: &mut Bench, va: u64, now: Cycle| b.translate(va, now).ready - now - L2_TLB;
    // Cold: the entry arrives long before the walk reaches it.
    let mut b = Bench::perfect(GuessedLines::Entries);
    assert_eq!(walk(&mut Bench::plain(), COLD, 0), PWC + 4 * DRAM);
    assert_eq!(walk(&mut b, COLD, 0), PWC + 3 * DRAM + L2);
    // A walk of one read: the gain is only the lookup of the walk caches.
    let now = 100_000;
    let mut plain = Bench::plain();
    plain.translate(COLD, 0);
    let line = 8 * 4096;
    assert_eq!(walk(&mut plain, COLD + line, now), PWC + DRAM);
    assert_eq!(walk(&mut b, COLD + line, now), DRAM);
    // An entry that is in the L2.
    assert_eq!(walk(&mut b, COLD + line + 4096, 2 * now), PWC + L2);
    let count = |name| b.entries(name);
    assert_eq!((count("guesses"), count("right")), (3, 3));
    assert_eq!((count("fetched"), count("useless")), (2, 1));
    assert!(b.tree().get("mmu.engine.data", "guesses").is_none());
}

#[test]
fn in_a_virtual_machine_the_guests_entry_and_the_hosts_are_guessed() {
    let plain = Bench::plain().nested().translate(COLD, 0).ready;
    let mut b = Bench::perfect(GuessedLines::Entries).nested();
    assert_eq!(b.translate(COLD, 0).ready, plain - 2 * (DRAM - L2));
    assert_eq!((b.entries("right"), b.entries("fetched")), (2, 2));
    let mut both = Bench::perfect(GuessedLines::Both).nested();
    assert_eq!(both.load(COLD, 0), plain - 2 * (DRAM - L2) + L2);
}

#[test]
fn an_access_that_waits_for_anothers_walk_gets_a_line_of_its_own() {
    // With recorded walks, requests that merge take another code path.
    for recorded in [false, true] {
        let mut b = Bench::perfect(GuessedLines::Both);
        b.mmu.record_walks(recorded);
        let first = b.translate(0x5000, 100).ready;
        let before = b.memory.requests;
        for (n, va) in [0x5800, 0x5880, 0x5900].into_iter().enumerate() {
            assert_eq!(b.load(va, 120 + n as u64), first + L2);
            assert_eq!(b.memory.requests, before + 1 + n as u64);
        }
        // A line that is on its way is fetched once.
        b.translate(0x5840, 130);
        b.translate(0x5848, 131);
        assert_eq!(b.memory.requests, before + 4);
        assert_eq!(b.get("mmu", "walks_merged"), 5);
        let count = |name| b.data(name);
        assert_eq!((count("guesses"), count("right")), (6, 6));
        assert_eq!((count("fetched"), count("merged")), (5, 1));
        assert_eq!(b.entries("guesses"), 1, "the walk's own");
    }
}

/// A mock engine: makes given guesses and records its calls.
#[derive(Default)]
struct ScriptedEngine {
    guesses: Vec<Guess>,
    learned: Arc<Mutex<Vec<(Miss, Walked)>>>,
    invalidations: Arc<Mutex<Vec<Invalidation>>>,
}

impl Engine for ScriptedEngine {
    fn latency(&self) -> Cycle {
        0
    }
    fn makes(&self, _: What) -> bool {
        true
    }
    fn guess(&mut self, _: &Miss, _: &Seen<'_>) -> Guesses {
        self.guesses.iter().copied().collect()
    }
    fn learn(&mut self, miss: &Miss, walked: &Walked, _end: Cycle) {
        self.learned.lock().unwrap().push((*miss, *walked));
    }
    fn invalidate(&mut self, what: &Invalidation) {
        self.invalidations.lock().unwrap().push(*what);
    }
}

fn data(at: u64) -> Guess {
    Guess {
        at: PhysAddr(at),
        what: What::Data,
        after: 0,
    }
}

fn entry(at: u64) -> Guess {
    Guess {
        what: What::Entry,
        ..data(at)
    }
}

#[test]
fn guesses_are_judged_by_their_line_and_dropped_without_a_miss_register() {
    let engine = ScriptedEngine {
        guesses: vec![
            data(1 << 20),
            data((COLD ^ FLIP) + 4),
            data(COLD ^ FLIP),
            entry(Flat::entry(1, COLD)),
            entry(Flat::entry(2, COLD)),
        ],
        ..ScriptedEngine::default()
    };
    let mut b = Bench::with(Some(Box::new(engine)), 2);
    let now = 50_000;
    // The walk's own reads wait until the guesses free the miss registers.
    assert_eq!(b.translate(COLD, now).ready, now + L2_TLB + DRAM + 4 * DRAM);
    let d = |name| b.data(name);
    assert_eq!((d("guesses"), d("right"), d("wrong")), (3, 2, 1));
    assert_eq!((d("fetched"), d("merged"), d("dropped")), (2, 1, 0));
    let e = |name| b.entries(name);
    assert_eq!((e("guesses"), e("right"), e("wrong")), (2, 1, 1));
    assert_eq!((e("fetched"), e("dropped")), (0, 2));
    assert_eq!(b.get("l2", "speculative_issued"), 2);
    // The page is not mapped: all guesses were wrong.
    b.try_translate(1 << 40, Access::Read, 2 * now)
        .expect_err("unmapped");
    assert_eq!((b.data("guesses"), b.data("wrong")), (6, 4));
    assert_eq!((b.entries("guesses"), b.entries("wrong")), (4, 3));
}

#[test]
fn an_engine_learns_of_both_tables_entries_and_flags() {
    let engine = ScriptedEngine::default();
    let (learned, forgotten) = (engine.learned.clone(), engine.invalidations.clone());
    let mut b = Bench::with(Some(Box::new(engine)), 16).nested();
    b.host.as_mut().expect("nested").writable = false;
    let end = b.translate(COLD, 0).ready;
    // For another address space: the nested TLB has the host's translations.
    let (again, va) = (2 * end, VirtAddr(COLD));
    b.look_up(Lookup {
        asid: Asid(2),
        va,
        access: Access::Read,
        pc: 0,
        now: again,
    })
    .expect("mapped");
    b.translate(COLD + 4096, 2 * again);
    b.translate(COLD + 4096 + 64, 2 * again);
    b.mmu.invalidate(&Invalidation::Space { asid: A });
    let learned = learned.lock().unwrap();
    assert_eq!(learned.len(), 3, "one a walk");
    for (miss, walked) in learned.iter() {
        let guest = walked.guest.expect("nested");
        assert_eq!(walked.pa(miss.va), PhysAddr(miss.va.0));
        assert_eq!(guest.at, GuestPhysAddr(Flat::entry(1, miss.va.0)));
        assert_eq!(guest.flags, Flags::WRITABLE);
        let leaf = Flat::entry(1, miss.va.0 ^ FLIP);
        assert_eq!(walked.leaf.at, PhysAddr(leaf));
        assert_eq!(walked.leaf.flags, Flags::default());
    }
    assert_eq!(forgotten.lock().unwrap().len(), 1);
}

/// A random walk over pages with much reuse, as in the tests of translation.
fn program(seed: u64, n: usize) -> Vec<(u64, Access, Cycle)> {
    let mut r = rng(seed, "test.speculation");
    let (mut va, mut now) = (0, 0);
    (0..n)
        .map(|_| {
            if r.random_range(0..3) == 0 {
                va = r.random_range(0..4000u64) << 12;
            }
            now += r.random_range(0..40);
            let access = [Access::Read, Access::Write, Access::Fetch][r.random_range(0..3)];
            (va + r.random_range(0..4096), access, now)
        })
        .collect()
}

#[test]
fn guesses_add_up_and_a_perfect_engine_is_never_wrong() {
    for (nested, mshrs) in [(false, 64), (false, 1), (true, 2)] {
        let spec = EngineSpec::Perfect(PerfectSpec {
            what: GuessedLines::Both,
            latency: 1,
            nested: false,
        });
        let mut b = Bench::with(Some(spec.build(2.0)), mshrs);
        if nested {
            b = b.nested();
        }
        let mut faults = 0;
        for (i, (va, access, at)) in program(1, 20_000).into_iter().enumerate() {
            b.guest.writable = i % 100 != 0;
            faults += u64::from(b.try_translate(va, access, at).is_err());
            if i % 5000 == 0 {
                b.mmu.invalidate(&Invalidation::Space { asid: A });
            }
        }
        assert!(faults > 0 && faults == b.get("mmu", "faults"));
        let mut fetched = 0;
        for path in ["mmu.engine.data", "mmu.engine.entries"] {
            let n = |name| b.get(path, name);
            assert_eq!((n("right"), n("wrong")), (n("guesses"), 0));
            let became = n("fetched") + n("merged") + n("useless") + n("dropped");
            assert_eq!(n("guesses"), became);
            assert_eq!(n("dropped") > 0, mshrs < 64, "{path}");
            fetched += n("fetched");
        }
        assert!(b.data("late") <= b.data("right"));
        assert_eq!(fetched, b.get("l2", "speculative_issued"));
        let misses = b.get("mmu", "walks") + b.get("mmu", "walks_merged");
        assert_eq!(
            b.data("guesses"),
            misses,
            "one for each that no TLB answered"
        );
        let entries = b.get("mmu", "walks") * if nested { 2 } else { 1 };
        assert_eq!(b.entries("guesses"), entries);
    }
}

#[test]
fn an_engine_that_guesses_nothing_changes_nothing() {
    let mut with = Bench::with(Some(Box::new(ScriptedEngine::default())), 8);
    let mut without = Bench::with(None, 8);
    for (va, access, at) in program(2, 20_000) {
        assert_eq!(
            with.try_translate(va, access, at),
            without.try_translate(va, access, at)
        );
    }
    let rows = |b: &Bench| {
        let mut rows = b.tree().rows;
        rows.retain(|r| !r.path.starts_with("mmu.engine"));
        rows
    };
    assert_eq!(rows(&with), rows(&without));
}

#[test]
fn warming_counts_no_guesses() {
    let mut b = Bench::perfect(GuessedLines::Both);
    for (va, access, _) in program(3, 5000) {
        let view = View::Native(&b.guest);
        let context = walk_context(&view, &mut b.private, &mut b.memory);
        b.mmu
            .warm(A, VirtAddr(va), access, 0, context)
            .expect("mapped");
    }
    for row in b.tree().rows {
        assert_eq!(row.value, 0, "{} {}", row.path, row.definition.name);
    }
}

#[test]
fn an_impossible_engine_is_refused_by_key() {
    let spec = EngineSpec::Perfect(PerfectSpec {
        what: GuessedLines::Data,
        latency: 1 << 40,
        nested: false,
    });
    let message = spec.check().expect_err("too slow");
    assert!(
        message.to_string().contains("engine.perfect.latency"),
        "{message}"
    );
}
