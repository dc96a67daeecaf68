//! Tests the table against a reference map, with resizes in progress.

mod growth;
mod sharing;

use std::collections::BTreeMap;

use pagewalk_units::{Asid, Frame, PageSize, PhysAddr};
use proptest::prelude::*;
use rand::RngExt;

use super::{CuckooSlot, Elastic, Env, Way};
use crate::cluster::{Line, PteCluster};
use crate::cuckoo::l2p::{L2p, L2pFull};
use crate::cuckoo::spec::{
    Choice, ElasticCuckooSpec, ElasticSpec, HashFunction, MemoryEfficientSpec, WhenDue,
};
use crate::owner::Owner;
use crate::{FrameSource, MapWork, NoFrames, Refusal, Want};

/// Memory that refuses allocations after `left` successful ones.
#[derive(Clone)]
struct TestFrames {
    next: u64,
    owned: BTreeMap<u64, u64>,
    left: u64,
    granted: u64,
}

impl TestFrames {
    fn new() -> Self {
        TestFrames {
            next: 1 << 40,
            owned: BTreeMap::new(),
            left: u64::MAX,
            granted: 0,
        }
    }
    fn bytes(&self) -> u64 {
        self.owned.values().sum()
    }
}

impl FrameSource<PhysAddr> for TestFrames {
    fn alloc(&mut self, want: Want) -> Result<Frame<PhysAddr>, NoFrames> {
        assert!(want.bytes >= 4096 && want.bytes.is_power_of_two());
        if self.left == 0 {
            return Err(NoFrames { bytes: want.bytes });
        }
        self.left -= 1;
        self.granted += 1;
        let base = self.next.next_multiple_of(want.bytes);
        self.next = base + want.bytes;
        self.owned.insert(base, want.bytes);
        Ok(Frame {
            base: PhysAddr(base),
        })
    }
    fn free(&mut self, frame: Frame<PhysAddr>, bytes: u64) {
        assert_eq!(self.owned.remove(&frame.base.0), Some(bytes));
    }
}

type Table = Elastic<PteCluster, PhysAddr>;

/// A table with its environment, and the reference map.
#[derive(Clone)]
struct Bench {
    table: Table,
    source: TestFrames,
    l2p: L2p,
    work: MapWork,
    oracle: BTreeMap<u64, Line>,
}

fn line_of(key: u64) -> Line {
    PteCluster::with(key, (key % 8) as usize, 1 | (key & 0xff_ffff) << 12)
}

/// State that a failed insertion must not change: location of every line, and
/// memory in use.
type TableSnapshot = (
    Vec<(u64, CuckooSlot)>,
    u64,
    u64,
    Vec<(u64, u64, u64)>,
    u32,
    u64,
);

impl Bench {
    fn new(spec: &ElasticSpec, seed: u64) -> Self {
        assert_eq!(spec.check(), Ok(()));
        Bench {
            table: Table::new(spec, Some(PageSize::K4), seed, Owner::new(Asid(1), seed)),
            source: TestFrames::new(),
            l2p: L2p::new(usize::from(spec.ways), spec.l2p_entries as usize),
            work: MapWork::default(),
            oracle: BTreeMap::new(),
        }
    }

    fn insert(&mut self, key: u64) -> Result<(), Refusal> {
        let mut env = Env {
            frames: &mut self.source,
            l2p: &mut self.l2p,
            work: &mut self.work,
        };
        let line = line_of(key);
        let mut ways = BTreeMap::new();
        let mut landed = |key, way| {
            ways.insert(key, way);
        };
        let place = self.table.insert(key, line, &mut env, &mut landed)?;
        assert_eq!(*self.table.line(place), line);
        assert_eq!(ways.get(&key), Some(&place.way));
        for (key, way) in ways {
            assert_eq!(self.table.find(key).map(|p| p.way), Some(way));
        }
        self.oracle.insert(key, line);
        Ok(())
    }

    fn remove(&mut self, key: u64) {
        let place = self.table.find(key).expect("it is there");
        let mut env = Env {
            frames: &mut self.source,
            l2p: &mut self.l2p,
            work: &mut self.work,
        };
        let mut ways = BTreeMap::new();
        let mut landed = |key, way| {
            ways.insert(key, way);
        };
        self.table.remove(place, &mut env, &mut landed);
        for (key, way) in ways {
            assert_eq!(self.table.find(key).map(|p| p.way), Some(way));
        }
        assert_eq!(self.table.find(key), None);
        self.oracle.remove(&key);
    }

    /// Exactly one way's probe hits, and `find` agrees with it.
    fn check_key(&self, key: u64) {
        let hits: Vec<_> = (0..self.table.ways())
            .filter_map(|way| self.table.probe(key, way))
            .filter(|p| p.hit)
            .collect();
        let [hit] = hits[..] else {
            panic!("{key:#x} is found {} times", hits.len());
        };
        assert_eq!(Some(hit.place), self.table.find(key));
        assert_eq!(hit.at, self.table.address(hit.place));
        assert_eq!(*self.table.line(hit.place), self.oracle[&key]);
        let owned = self.source.owned.range(..=hit.at).next_back();
        assert!(owned.is_some_and(|(base, bytes)| hit.at + 64 <= base + bytes));
    }

    /// Invariants that hold in every state.
    fn check_shape(&self) {
        let t = &self.table;
        assert_eq!(t.lines(), self.oracle.len() as u64);
        assert_eq!(t.bytes(), self.source.bytes());
        let lines: u64 = (0..t.ways.len()).map(|way| t.lines_of(way)).sum();
        assert_eq!(lines, t.lines());
        assert!(self.l2p.used() <= 9 * t.spec.l2p_entries);
        if t.spec.per_way && !t.ways.is_empty() {
            let slots = t.ways.iter().map(Way::slots);
            assert!(slots.clone().max() <= slots.min().map(|s| 2 * s));
        }
        for (i, w) in t.ways.iter().enumerate() {
            let (old, new) = ((w.old_mask + 1) * 64, (w.new_mask + 1) * 64);
            let round = |bytes: u64| bytes.next_multiple_of(w.table.chunk().unwrap_or(64));
            match &w.next {
                // An in-place resize never holds more than the larger of the
                // two tables.
                None => assert_eq!(w.bytes(), round(old.max(new))),
                Some(next) => assert!(!t.spec.in_place || w.table.chunk() != next.chunk()),
            }
            if t.size.is_some() {
                let entries = self.l2p.used_by(i, PageSize::K4);
                assert_eq!(entries as usize, w.blocks());
                assert!(entries <= 2 * t.spec.l2p_entries + 1);
            }
        }
    }

    fn check_all(&self) {
        self.check_shape();
        for &key in self.oracle.keys() {
            self.check_key(key);
        }
        let mut n = 0;
        self.table.for_each(&mut |_| n += 1);
        assert_eq!(n, self.oracle.len());
    }

    fn state(&self) -> TableSnapshot {
        let t = &self.table;
        let place = |&key: &u64| (key, t.find(key).expect("it is there"));
        (
            self.oracle.keys().map(place).collect(),
            t.lines(),
            t.bytes(),
            (t.ways.iter())
                .map(|w| (w.pointer, w.old_mask, w.new_mask))
                .collect(),
            self.l2p.used(),
            self.source.bytes(),
        )
    }
}

/// Each technique alone, all and none of them, and the other parameter choices.
fn specs() -> Vec<(&'static str, ElasticSpec)> {
    let ecpt = ElasticSpec::from(&ElasticCuckooSpec::default());
    let mehpt = ElasticSpec::from(&MemoryEfficientSpec::default());
    let chunks = mehpt.chunks.clone();
    let with = |change: &dyn Fn(&mut ElasticSpec), spec: &ElasticSpec| {
        let mut spec = spec.clone();
        change(&mut spec);
        spec
    };
    vec![
        ("ecpt", ecpt.clone()),
        ("mehpt", mehpt.clone()),
        (
            "one chunk size",
            with(
                &|s| {
                    s.chunks = vec![64 << 10];
                },
                &ecpt,
            ),
        ),
        (
            "chunks alone",
            with(
                &|s| {
                    s.chunks = chunks.clone();
                    s.change_chunks = true;
                },
                &ecpt,
            ),
        ),
        (
            "another hash function",
            with(&|s| s.hash = HashFunction::Murmur, &mehpt),
        ),
        (
            "ever larger chunks",
            with(
                &|s| {
                    s.chunks = vec![4 << 10, 64 << 10, 1 << 20];
                    s.l2p_entries = 4;
                    s.initial_slots = 64;
                },
                &mehpt,
            ),
        ),
        (
            "large chunks alone",
            with(
                &|s| {
                    s.chunks = vec![1 << 20];
                    s.change_chunks = false;
                },
                &mehpt,
            ),
        ),
        ("in place alone", with(&|s| s.in_place = true, &ecpt)),
        ("per way alone", with(&|s| s.per_way = true, &ecpt)),
        ("without in place", with(&|s| s.in_place = false, &mehpt)),
        ("without per way", with(&|s| s.per_way = false, &mehpt)),
        (
            "two ways, few kicks",
            with(
                &|s| {
                    s.ways = 2;
                    s.max_kicks = 6;
                },
                &mehpt,
            ),
        ),
        ("two ways of a walk table", with(&|s| s.ways = 2, &ecpt)),
        (
            "fourfold, slow",
            with(
                &|s| {
                    s.growth = 4;
                    s.downsize_at = 0.1;
                    finishing(s, 1.0);
                },
                &ecpt,
            ),
        ),
        (
            "slow in place, free slots first, half a chunk",
            with(
                &|s| {
                    finishing(s, 1.0);
                    s.choice = Choice::PreferEmpty;
                    s.initial_slots = 64;
                },
                &mehpt,
            ),
        ),
        ("finished at once", with(&|s| finishing(s, 2.0), &ecpt)),
        (
            "finished at once, a way at a time",
            with(&|s| finishing(s, 2.0), &mehpt),
        ),
        (
            "finished at once, two ways, few kicks",
            with(
                &|s| {
                    finishing(s, 2.0);
                    s.ways = 2;
                    s.max_kicks = 6;
                },
                &mehpt,
            ),
        ),
        ("waiting longer", with(&|s| waiting(s, 1.2), &ecpt)),
        ("waiting too long", with(&|s| waiting(s, 0.5), &ecpt)),
        (
            "waiting by chance",
            with(
                &|s| {
                    waiting(s, 1.25);
                    s.hash = HashFunction::Murmur;
                },
                &mehpt,
            ),
        ),
        (
            "waiting too long by chance, a way at a time",
            with(
                &|s| {
                    waiting(s, 0.3);
                    s.hash = HashFunction::Murmur;
                    s.max_kicks = 8;
                },
                &mehpt,
            ),
        ),
    ]
}

fn finishing(s: &mut ElasticSpec, migrated: f64) {
    s.when_due = WhenDue::Finish;
    s.migrated_per_insertion = migrated;
}
fn waiting(s: &mut ElasticSpec, migrated: f64) {
    s.when_due = WhenDue::Wait;
    s.migrated_per_insertion = migrated;
}

/// A scattered key from a space of `keys` keys.
fn key(n: u64, keys: u64) -> u64 {
    ((n % keys) * 0x9_2f31) & ((1 << 33) - 1)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Runs of insertions and removals, with occasional memory shortage.
    #[test]
    fn every_line_is_found_after_every_step(
        which in 0..specs().len(),
        seed: u64,
        runs in prop::collection::vec((any::<bool>(), 1u64..260, 0u64..12), 1..7),
    ) {
        let (_, mut spec) = specs().swap_remove(which);
        spec.initial_slots = 64;
        let mut b = Bench::new(&spec, seed);
        let mut rng = pagewalk_units::rng(seed, "test");
        for (grow, steps, left) in runs {
            b.source.left = if left < 4 { left } else { u64::MAX };
            for _ in 0..steps {
                if grow {
                    let key = key(rng.random(), 2000);
                    if !b.oracle.contains_key(&key) && b.insert(key).is_err() {
                        b.source.left = u64::MAX;
                    }
                } else if !b.oracle.is_empty() {
                    let at = key(rng.random(), 2000);
                    let any = b.oracle.range(at..).next().or(b.oracle.iter().next());
                    b.remove(*any.unwrap().0);
                }
                b.check_all();
            }
        }
    }
}

#[test]
fn many_steps_agree_with_a_map() {
    for (name, spec) in specs() {
        let mut b = Bench::new(&spec, 42);
        let mut rng = pagewalk_units::rng(42, name);
        let mut keys: Vec<u64> = Vec::new();
        // Growing and shrinking with reversals, so that insertions and removals
        // meet resizes of both directions in many states.
        let targets = [
            3000, 500, 2500, 60, 20_000, 9000, 14_000, 100, 12_000, 8000, 0,
        ];
        let mut step = 0u64;
        for target in targets {
            while keys.len() != target {
                step += 1;
                let towards = rng.random_range(0..8) != 0;
                if keys.is_empty() || (keys.len() < target) == towards {
                    let key = key(rng.random(), 1 << 24);
                    if !b.oracle.contains_key(&key) {
                        b.insert(key).expect("there is memory");
                        keys.push(key);
                    }
                } else {
                    let at = rng.random_range(0..keys.len());
                    b.remove(keys.swap_remove(at));
                }
                b.check_shape();
                if !keys.is_empty() {
                    b.check_key(keys[rng.random_range(0..keys.len())]);
                }
                if step.is_multiple_of(20_000) {
                    b.check_all();
                }
            }
            b.check_all();
        }
        let stats = b.table.stats();
        assert!(
            (stats.ways.iter()).all(|w| w.upsizes > 5 && w.downsizes > 5),
            "{name}: {stats:?}"
        );
        assert!(stats.turned_round > 0, "{name}: {stats:?}");
        let mut env = Env {
            frames: &mut b.source,
            l2p: &mut b.l2p,
            work: &mut b.work,
        };
        b.table.release(&mut env);
        assert_eq!((b.source.bytes(), b.l2p.used()), (0, 0));
        assert!(b.work.allocated == b.work.freed && b.work.allocated > 0);
    }
}

#[test]
fn a_refused_request_changes_nothing() {
    let mut all = 0;
    for (name, spec) in specs() {
        let keys: Vec<u64> = (0..3000).map(|n| key(n * 7919, 1 << 24)).collect();
        let mut free = Bench::new(&spec, 3);
        for &key in &keys {
            free.insert(key).unwrap();
        }
        // Every allocation fails once.
        let mut b = Bench::new(&spec, 3);
        let mut refusals = 0;
        b.source.left = 0;
        for &key in &keys {
            let before = (b.state(), b.work, b.table.stats().drained);
            let mut granted = 0;
            while b.insert(key).is_err() {
                // A resize that was completed to find a slot stays completed.
                let now = (b.state(), b.work, b.table.stats().drained);
                assert!(now == before || now.2 > before.2, "{name}");
                assert!(now.0.0.iter().map(|(key, _)| key).eq(b.oracle.keys()));
                b.check_shape();
                refusals += 1;
                granted += 1;
                b.source.left = granted;
            }
            b.source.left = 0;
        }
        b.check_all();
        // At least the initial memory of each way.
        assert!(refusals >= u32::from(spec.ways), "{name}: {refusals}");
        all += refusals;
        if b.table.stats().forced_upsizes == 0 {
            assert_eq!(b.state().0, free.state().0, "{name}");
            assert_eq!(b.table.rng, free.table.rng);
        }
    }
    assert!(all > 100, "{all}");
}

/// With ample memory, the L2P table is the limit: a way with one chunk size
/// ends at twice a sub-table's entries (ME-HPT, section V-A).
#[test]
fn a_way_that_has_used_up_its_l2p_entries_says_so() {
    // With `finish`, every upsize starts at the threshold.
    let mut spec = ElasticSpec::from(&MemoryEfficientSpec {
        chunks: vec![4096],
        change_chunks: false,
        l2p_entries: 4,
        ..MemoryEfficientSpec::default()
    });
    finishing(&mut spec, 2.0);
    let mut b = Bench::new(&spec, 3);
    let mut n = 0;
    let refused = loop {
        let before = (b.state(), b.work, b.source.granted);
        if let Err(refusal) = b.insert(key(n, 1 << 20)) {
            assert!(before == (b.state(), b.work, b.source.granted), "as it was");
            break refusal;
        }
        n += 1;
    };
    let full = |way| L2pFull {
        way,
        size: PageSize::K4,
        used: 8,
        most: 8,
        wanted: 8,
        chunk: 4096,
    };
    let Some(way) = (0..3).find(|&way| refused == Refusal::from(full(way))) else {
        panic!("{refused}");
    };
    // Eight chunks of 64 lines at a load of 0.6.
    let lines = b.table.lines_of(usize::from(way));
    assert_eq!(lines, 8 * 64 * 6 / 10);
    assert_eq!(
        refused.to_string(),
        format!(
            "the L2P table is full: way {way} of the 4KB pages uses 8 of at most 8 entries and needs 8 more, for chunks of 4 KB"
        )
    );
    b.check_all();
    // With a larger chunk size the table continues to grow.
    let mut b = Bench::new(
        &ElasticSpec {
            chunks: vec![4096, 16384],
            change_chunks: true,
            ..spec
        },
        3,
    );
    for n in 0..=n {
        b.insert(key(n, 1 << 20)).unwrap();
    }
}

#[test]
fn a_downsize_without_memory_does_not_happen() {
    let (_, spec) = specs().swap_remove(0);
    let mut b = Bench::new(&spec, 5);
    for n in 0..3000 {
        b.insert(key(n, 1 << 20)).unwrap();
    }
    b.source.left = 0;
    let bytes = b.table.bytes();
    while let Some((&key, _)) = b.oracle.iter().next() {
        b.remove(key);
    }
    assert!(b.table.bytes() <= bytes && b.table.stats().ways[0].downsizes == 0);
    b.source.left = u64::MAX;
    for n in 0..200 {
        b.insert(key(n, 1 << 20)).unwrap();
    }
    b.remove(key(0, 1 << 20));
    assert_eq!(b.table.stats().ways[0].downsizes, 1);
    b.check_all();
}

#[test]
fn without_its_techniques_it_is_ecpt_byte_for_byte() {
    let off = MemoryEfficientSpec {
        chunks: Vec::new(),
        change_chunks: false,
        in_place: false,
        per_way: false,
        ..MemoryEfficientSpec::default()
    };
    let specs = [
        ElasticSpec::from(&off),
        ElasticSpec::from(&ElasticCuckooSpec::default()),
    ];
    let [a, b] = specs.map(|spec| {
        let mut b = Bench::new(&spec, 11);
        for n in 0..20_000 {
            b.insert(key(n, 1 << 24)).unwrap();
            if n % 3 == 0 {
                b.remove(key(n / 2, 1 << 24));
            }
        }
        b
    });
    let address = |b: &Bench| {
        let at = |key: &u64| b.table.address(b.table.find(*key).unwrap());
        b.oracle.keys().map(at).collect::<Vec<_>>()
    };
    assert_eq!((a.state(), address(&a)), (b.state(), address(&b)));
    assert_eq!((a.work, a.table.stats()), (b.work, b.table.stats()));
}
