//! Revelator's prediction within nested walks, with guest and host frames chosen by a hash.

use std::collections::BTreeMap;

use crate::common::{L2, L2_TLB, Memory, caches, counted, load, mmu};
use pagewalk_memory::Private;
use pagewalk_mmu::{
    DegreeFilter, EngineSpec, GuessedLines, Lookup, Mmu, Nested, PerfectSpec, RevelatorSpec,
    WalkContext, What,
};
use pagewalk_stats::Tree;
use pagewalk_structures::{HashKey, Hashes, TieredHash, Tiers, mix};
use pagewalk_tables::{
    Flags, Next, Translation, View, Walk, WalkCacheKind, WalkCacheSpec, WalkCaches, WalkState,
};
use pagewalk_units::{Access, Addr, Asid, Cycle, Frame, PageSize, VirtAddr, rng};
use rand::RngExt;

const A: Asid = Asid(1);
const DRAM: Cycle = 200;
/// Latency of the nested TLB.
const NTLB: Cycle = 2;
/// Latency of the engine.
const HASH: Cycle = 2;

/// A radix tree of four levels whose nodes and pages lie where the test puts them.
#[derive(Default)]
struct Tree4 {
    /// Nodes by level and the address bits above the node's reach.
    nodes: BTreeMap<(u8, u64), u64>,
    pages: BTreeMap<u64, u64>,
}

fn shift(level: u8) -> u32 {
    3 + 9 * u32::from(level)
}

fn above(level: u8, raw: u64) -> (u8, u64) {
    (level, raw >> shift(level + 1))
}

impl Tree4 {
    fn entry(&self, level: u8, raw: u64) -> u64 {
        let node = self.nodes[&above(level, raw)];
        (node << 12) + 8 * (raw >> shift(level) & 511)
    }
}

impl<In: Addr, Out: Addr> Walk<In, Out> for Tree4 {
    fn next(&self, va: In, state: &mut WalkState, caches: &mut WalkCaches<'_>) -> Next<Out> {
        let raw = va.raw();
        let key = |level: u64| raw >> (3 + 9 * level);
        if state.step == 0 {
            let known = (1..4).find(|&l| caches.lookup(l as usize - 1, key(l + 1)).is_some());
            state.regs[0] = known.unwrap_or(4);
        } else {
            let read = state.regs[0];
            if read == 1 {
                return Walk::<In, Out>::translate(self, va).map_or(Next::Fault, Next::Done);
            }
            caches.fill(read as usize - 2, key(read), 1);
            state.regs[0] -= 1;
        }
        state.step += 1;
        let level = state.regs[0] as u8;
        if !self.nodes.contains_key(&above(level, raw)) {
            return Next::Fault;
        }
        let at = Out::new(self.entry(level, raw));
        Next::One { at, level }
    }

    fn translate(&self, va: In) -> Option<Translation<Out>> {
        let frame = self.pages.get(&(va.raw() >> 12))?;
        Some(Translation {
            frame: Frame {
                base: Out::new(frame << 12),
            },
            size: PageSize::K4,
            flags: Flags::WRITABLE,
            leaf: Out::new(self.entry(1, va.raw())),
        })
    }
}

/// A core that runs a guest, and a host that places by hash.
struct Bench {
    mmu: Mmu,
    private: Private,
    memory: Memory,
    guest: Tree4,
    host: Tree4,
    tiers: Tiers,
    /// Chance that a frame is in use.
    pressure: f64,
    next_guest: u64,
    next_host: u64,
}

fn tiers(of: Hashes) -> Tiers {
    let hash = TieredHash::new(11, &[1, 2, 3, 4, 5, 6], 0..1 << 32);
    Tiers {
        of,
        host_tables: true,
        ..Tiers::new(hash, 6)
    }
}

impl Bench {
    fn new(engine: Option<EngineSpec>, of: Hashes, cached: bool) -> Self {
        let mut spec = mmu();
        if !cached {
            spec.walk_caches = WalkCacheSpec {
                entries: 0,
                ..spec.walk_caches
            };
        }
        let unit = Mmu::new(&spec, 0).expect("a possible MMU");
        let mut unit = unit.nested(WalkCacheKind::Levels);
        if let Some(spec) = engine {
            assert_eq!(spec.check(), Ok(()));
            unit = unit.with_engine(spec.build(2.0));
        }
        Bench {
            mmu: unit,
            private: caches(256).with_speculation(),
            memory: Memory::new(DRAM),
            guest: Tree4::default(),
            host: Tree4::default(),
            tiers: tiers(of),
            pressure: 0.0,
            next_guest: 1 << 20,
            next_host: 1 << 34,
        }
    }

    fn unhashed(&mut self) -> u64 {
        self.next_host += 1;
        self.next_host
    }

    fn hashed(&mut self, key: HashKey, table: bool) -> u64 {
        let pressure = self.pressure;
        let Tiers {
            hash, data, tables, ..
        } = &mut self.tiers;
        let placed = if table { tables } else { data };
        let found = placed.place(6, 1.0, |tier| {
            let frame = hash.of(tier, key);
            let busy = (mix(frame) >> 11) as f64 / (1u64 << 53) as f64;
            (busy >= pressure).then_some(frame)
        });
        found.unwrap_or_else(|| self.unhashed())
    }

    /// Backs the guest-physical `page` by the host. `by`: key of the page in the guest's virtual
    /// addresses. `table`: it is a page table's.
    fn back(&mut self, page: u64, by: Option<HashKey>, table: bool) {
        let frame = match (self.tiers.of, by) {
            (Hashes::GuestPhysical, _) => self.hashed(HashKey::guest_page(page), false),
            (Hashes::Virtual | Hashes::Both, Some(key)) => self.hashed(key, table),
            (Hashes::Both, None) => self.hashed(HashKey::guest_page(page), true),
            (Hashes::Virtual, None) => self.unhashed(),
        };
        self.host.pages.insert(page, frame);
        for level in 1..=4 {
            let node = above(level, page << 12);
            if !self.host.nodes.contains_key(&node) {
                let frame = match level {
                    1 => self.hashed(HashKey::host_table(page), true),
                    _ => self.unhashed(),
                };
                self.host.nodes.insert(node, frame);
            }
        }
    }

    /// Maps the page of `va`. The guest's pages are so far apart that their host entries lie in
    /// different lines.
    fn place(&mut self, va: u64) {
        for level in (1..=4).rev() {
            let node = above(level, va);
            if !self.guest.nodes.contains_key(&node) {
                let page = self.new_page();
                self.guest.nodes.insert(node, page);
                let by = (level == 1).then(|| HashKey::table(A, va >> 12));
                self.back(page, by, true);
            }
        }
        if !self.guest.pages.contains_key(&(va >> 12)) {
            let page = self.new_page();
            self.guest.pages.insert(va >> 12, page);
            self.back(page, Some(HashKey::page(A, va >> 12)), false);
        }
    }

    fn new_page(&mut self) -> u64 {
        self.next_guest += 64;
        self.next_guest
    }

    fn try_load(&mut self, va: u64, now: Cycle) -> Option<Cycle> {
        let lookup = Lookup {
            asid: A,
            va: VirtAddr(va),
            access: Access::Read,
            pc: 0,
            now,
        };
        let view = View::Nested {
            guest: &self.guest,
            host: &self.host,
        };
        let context = WalkContext {
            view: &view,
            tiers: Some(&self.tiers),
            private: &mut self.private,
            below: &mut self.memory,
        };
        let answer = self.mmu.translate(lookup, context).ok()?;
        let gpa = self.guest.pages[&(va >> 12)];
        assert_eq!(answer.pa.0, self.host.pages[&gpa] << 12 | va & 0xfff);
        Some(load(&answer, &mut self.private, &mut self.memory))
    }

    /// Cycle at which the data of a load is ready.
    fn load(&mut self, va: u64, now: Cycle) -> Cycle {
        self.try_load(va, now).expect("mapped")
    }

    fn tree(&self) -> Tree {
        counted(&self.mmu, &self.private)
    }

    /// A counter; 0 if it is not reported.
    fn get(&self, path: &str, name: &str) -> u64 {
        self.tree().get(path, name).unwrap_or(0)
    }

    fn saved(&self) -> u64 {
        let of = |kind| self.get(&format!("mmu.engine.{kind}"), "saved_cycles");
        of("data") + of("entries") + of("steps")
    }
}

fn engine(what: GuessedLines, nested: Option<Nested>) -> RevelatorSpec {
    RevelatorSpec {
        what,
        filter: DegreeFilter::Off,
        nested,
        ..RevelatorSpec::default()
    }
}

fn one_tier(what: GuessedLines, nested: Option<Nested>) -> Option<EngineSpec> {
    Some(EngineSpec::Revelator(RevelatorSpec {
        degree: 1,
        ..engine(what, nested)
    }))
}

const BOTH: GuessedLines = GuessedLines::Both;

/// An address whose entries and data all lie in different lines.
const VA: u64 = 0x1234_56a8;

/// Nothing is cached. The host's walk makes four reads for the guest's first entry. Its upper three
/// entries are the same for all five addresses of the nested walk; the fourth is in another line.
#[test]
fn a_cold_nested_walk_cycle_by_cycle() {
    let run = |spec, of| {
        let mut b = Bench::new(spec, of, false);
        b.place(VA);
        b.mmu.record_walks(true);
        let done = b.load(VA, 1000) - 1000;
        let walk = b.mmu.take_walk_records().remove(0);
        (done - L2_TLB, walk.end - walk.start, walk, b)
    };
    // Host entries that an earlier step has fetched into the L2.
    let known = 3 * L2;
    let first = NTLB + 4 * DRAM + DRAM;
    let later = NTLB + known + DRAM + DRAM;
    let last = NTLB + known + DRAM;
    let (done, walked, ..) = run(None, Hashes::Virtual);
    let plain = first + 3 * later + last;
    assert_eq!((walked, done), (plain, plain + DRAM));

    // Only the data's line, which arrives long before it is requested.
    let spec = one_tier(GuessedLines::Data, None);
    let (done, walked, walk, _) = run(spec, Hashes::Virtual);
    assert_eq!((walked, done), (plain, plain + L2));
    assert_eq!(walk.guesses.len(), 1);

    // Diagonal: the guest's last entry as well.
    let spec = one_tier(BOTH, Some(Nested::Diagonal));
    let (done, walked, walk, b) = run(spec, Hashes::Virtual);
    assert_eq!((walked, done), (plain - DRAM + L2, plain - DRAM + 2 * L2));
    let seen: Vec<_> = walk
        .guesses
        .iter()
        .map(|g| (g.what, g.requested, g.right))
        .collect();
    let requested = walk.start + HASH;
    assert_eq!(
        seen,
        [
            (What::Entry, requested, true),
            (What::Data, requested, true)
        ]
    );
    assert_eq!(b.saved(), 2 * (DRAM - L2));

    // Horizontal: while the host's table is walked for an address, its last entry and the content
    // of the address are being fetched.
    let spec = one_tier(BOTH, Some(Nested::Horizontal));
    let (done, walked, walk, b) = run(spec, Hashes::GuestPhysical);
    // Three reads of upper levels take longer than the fetches; then both lines are ready.
    let first = NTLB + 3 * DRAM + 2 * L2;
    const { assert!(HASH + DRAM < 3 * DRAM) };
    // Later steps wait for the host's last entry, and the guest's arrives with it.
    const { assert!(3 * L2 < HASH + DRAM) };
    let later = NTLB + HASH + DRAM + L2;
    let last = NTLB + HASH + DRAM;
    let ahead = first + 3 * later + last;
    assert_eq!((walked, done), (ahead, ahead + L2));
    assert_eq!(b.saved(), plain + DRAM - done);
    // Two lines for each address, for the last one the data's. Each is requested when the nested
    // TLB has missed and the hash is computed.
    let mut at = walk.start;
    let mut expected = Vec::new();
    for takes in [first, later, later, later, last] {
        let requested = at + NTLB + HASH;
        let data = takes == last && expected.len() == 8;
        let there = if data { What::Data } else { What::Step };
        expected.extend([(What::Step, requested, true), (there, requested, true)]);
        at += takes;
    }
    let seen: Vec<_> = walk
        .guesses
        .iter()
        .map(|g| (g.what, g.requested, g.right))
        .collect();
    assert_eq!(seen, expected);
    assert_eq!(at, walk.end);

    // Both: the guest's last entry and the data are known at the miss, the rest as before.
    let spec = one_tier(BOTH, Some(Nested::Both));
    let (done, walked, _, b) = run(spec, Hashes::Both);
    assert_eq!((walked, done), (ahead, ahead + L2));
    assert_eq!(b.saved(), plain + DRAM - done);
    let count = |kind: &str| b.get(&format!("mmu.engine.{kind}"), "right");
    // Host entries for five addresses, guest entries of the upper three levels.
    assert_eq!([count("data"), count("entries"), count("steps")], [1, 1, 8]);
}

const WAYS: [(Hashes, Option<Nested>); 5] = [
    (Hashes::Virtual, None),
    (Hashes::Virtual, Some(Nested::Diagonal)),
    (Hashes::Virtual, Some(Nested::Both)),
    (Hashes::GuestPhysical, Some(Nested::Horizontal)),
    (Hashes::Both, Some(Nested::Both)),
];

/// Loads with reuse of regions, one after the other.
fn program(b: &mut Bench, n: Cycle) -> Cycle {
    let mut r = rng(3, "test.nested_prediction");
    let mut total = 0;
    for t in 1..=n {
        let va = r.random_range(0..1u64 << 26) & !63;
        b.place(va);
        total += b.load(va, 20_000 * t) - 20_000 * t;
    }
    total
}

/// The saved cycles are exactly the cycles that the same run without guesses takes longer. An
/// oracle engine is never slower.
#[test]
fn what_guesses_in_nested_walks_save_is_what_their_absence_costs() {
    for (of, nested) in WAYS {
        for what in [GuessedLines::Data, GuessedLines::Entries, BOTH] {
            let horizontal = nested.is_some_and(Nested::is_horizontal);
            if nested.is_none() && what != GuessedLines::Data {
                continue;
            }
            for pressure in [0.0, 0.5, 0.9] {
                let run = |spec: Option<EngineSpec>| {
                    let mut b = Bench::new(spec, of, true);
                    b.pressure = pressure;
                    (program(&mut b, 150), b)
                };
                let (plain, _) = run(None);
                let spec = RevelatorSpec {
                    degree: 3,
                    ..engine(what, nested)
                };
                let (done, b) = run(Some(EngineSpec::Revelator(spec)));
                let name = format!("{of:?}, {nested:?}, {what:?}, pressure {pressure}");
                assert!(b.saved() > 0, "{name}");
                assert_eq!(plain - done, b.saved(), "{name}");
                assert_eq!(
                    b.get("mmu.engine.steps", "guesses") > 0,
                    horizontal && what != GuessedLines::Data,
                    "{name}"
                );
                let spec = EngineSpec::Perfect(PerfectSpec {
                    what,
                    latency: HASH,
                    nested: true,
                });
                let (known, _) = run(Some(spec));
                assert!(
                    known <= done,
                    "{name}: {known} cycles known, {done} guessed"
                );
            }
        }
    }
}

/// Guesses change only times, and each is right or wrong, whatever a walk finds.
#[test]
fn every_line_named_within_a_walk_is_accounted_for() {
    for (of, nested) in WAYS {
        for filter in [
            DegreeFilter::Off,
            DegreeFilter::Adaptive,
            DegreeFilter::Perfect,
        ] {
            let what = if nested.is_some() {
                BOTH
            } else {
                GuessedLines::Data
            };
            let spec = RevelatorSpec {
                filter,
                ..engine(what, nested)
            };
            let mut b = Bench::new(Some(EngineSpec::Revelator(spec)), of, true);
            b.pressure = 0.6;
            b.memory.delay = 30;
            let mut faults = 0;
            let mut now = 0;
            let mut r = rng(4, "test.nested_prediction");
            for n in 0..2000 {
                let va = r.random_range(0..1u64 << 26) & !63;
                now += if n % 4 == 0 { 5000 } else { 3 };
                if n % 7 == 0 && !b.guest.pages.contains_key(&(va >> 12)) {
                    faults += u64::from(b.try_load(va, now).is_none());
                    continue;
                }
                b.place(va);
                b.load(va, now);
                if n % 3 == 0 {
                    b.load(va ^ 256, now + 1);
                }
            }
            assert!(faults > 100);
            assert_eq!(b.get("mmu", "faults"), faults);
            let name = format!("{of:?}, {nested:?}, {filter:?}");
            let mut fetched = 0;
            for kind in ["data", "entries", "steps"] {
                let whole = format!("mmu.engine.{kind}");
                let mut candidates = 0;
                for tier in 1..=6 {
                    let n = |name| b.get(&format!("{whole}.{tier}"), name);
                    let kept = n("withheld_by_share")
                        + n("withheld_by_delay")
                        + n("withheld_by_oracle")
                        + n("repeated");
                    assert_eq!(
                        n("candidates"),
                        n("guesses") + kept,
                        "{kind} {tier}, {name}"
                    );
                    assert_eq!(
                        n("guesses"),
                        n("right") + n("wrong"),
                        "{kind} {tier}, {name}"
                    );
                    let became = n("fetched") + n("merged") + n("useless") + n("dropped");
                    assert_eq!(n("guesses"), became, "{kind} {tier}, {name}");
                    candidates += n("candidates");
                    fetched += n("fetched");
                }
                for what in ["guesses", "right", "fetched", "saved_cycles"] {
                    let parts: u64 = (1..=6).map(|t| b.get(&format!("{whole}.{t}"), what)).sum();
                    assert_eq!(parts, b.get(&whole, what), "{kind} {what}, {name}");
                }
                if filter == DegreeFilter::Perfect {
                    assert_eq!(b.get(&whole, "wrong"), 0, "{kind}, {name}");
                }
                let made = match kind {
                    "data" => true,
                    "entries" => nested.is_some_and(Nested::is_diagonal),
                    _ => nested.is_some_and(Nested::is_horizontal),
                };
                assert_eq!(b.get(&whole, "right") > 0, made, "{kind}, {name}");
                // One for each address on which the nested TLB missed, and one if the guest's entry
                // or the data is named by it.
                if kind == "steps" && of == Hashes::Virtual && made {
                    assert_eq!(candidates, 6 * b.get("mmu.nested", "host_walks"), "{name}");
                }
            }
            assert_eq!(fetched, b.get("l2", "speculative_issued"), "{name}");
        }
    }
}

/// If the host's table has no last level to hash, or hashes none, no host entry is named.
#[test]
fn nothing_is_guessed_that_nobody_hashes() {
    for (host_tables, tables) in [(false, 6), (true, 0)] {
        let spec = EngineSpec::Revelator(engine(BOTH, Some(Nested::Both)));
        let mut b = Bench::new(Some(spec), Hashes::Virtual, true);
        b.tiers.host_tables = host_tables;
        b.tiers.table_tiers = tables;
        program(&mut b, 50);
        assert_eq!(b.get("mmu.engine.steps", "guesses"), 0);
        assert_eq!(b.get("mmu.engine.entries", "guesses") > 0, tables > 0);
        assert!(b.get("mmu.engine.data", "right") > 0);
    }
    // If guest-physical pages are hashed, nothing can be named at the miss, nor for a miss that
    // merges.
    let spec = EngineSpec::Revelator(engine(BOTH, Some(Nested::Horizontal)));
    let mut b = Bench::new(Some(spec), Hashes::GuestPhysical, true);
    b.place(VA);
    let page = VA & !0xfff;
    b.load(page, 1000);
    let guessed = b.get("mmu.engine.data", "guesses");
    assert_eq!((guessed, b.get("mmu.engine.data", "right")), (6, 1));
    b.load(page + 256, 1001);
    assert_eq!(b.get("mmu.engine.data", "guesses"), guessed);
}
