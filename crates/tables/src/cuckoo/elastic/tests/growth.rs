//! Growing and shrinking of ways, and the lines that a resize moves.

use pagewalk_units::PageSize;
use proptest::prelude::*;
use rand::RngExt;

use super::{Bench, finishing, key, waiting};
use crate::cuckoo::spec::{
    ElasticCuckooSpec, ElasticSpec, HashFunction, MemoryEfficientSpec, WhenDue,
};

fn ecpt() -> ElasticSpec {
    ElasticSpec::from(&ElasticCuckooSpec::default())
}
fn mehpt() -> ElasticSpec {
    ElasticSpec::from(&MemoryEfficientSpec::default())
}

fn slots(b: &Bench) -> Vec<u64> {
    (0..3).map(|way| b.table.slots_of(way)).collect()
}

/// Parameters under which every upsize starts at its threshold and completes before the next is
/// due.
fn prompt(spec: ElasticSpec) -> ElasticSpec {
    ElasticSpec {
        migrated_per_insertion: 2.0,
        when_due: WhenDue::Finish,
        ..spec
    }
}

/// Remaining migration work of a resize of the whole table, computed from its definition.
struct Left {
    slots: f64,
    owed: f64,
    migrated: f64,
}

impl Left {
    fn go_on(&mut self) {
        if self.slots > 0.0 {
            self.owed += self.migrated;
            self.slots = (self.slots - self.owed.floor()).max(0.0);
            self.owed = self.owed.fract();
        }
    }
}

#[test]
fn the_whole_table_has_the_size_that_its_lines_and_the_thresholds_say() {
    for spec in [ecpt(), prompt(ecpt())] {
        let mut b = Bench::new(&spec, 1);
        let (mut expected, mut late) = (3 * 128, 0);
        let mut left = Left {
            slots: 0.0,
            owed: 0.0,
            migrated: spec.migrated_per_insertion,
        };
        for n in 0..100_000u64 {
            b.insert(key(n, 1 << 24)).unwrap();
            // The integer form of a load factor above 0.6.
            let due = 5 * (n + 1) > 3 * expected;
            if due && left.slots == 0.0 {
                left.slots = expected as f64;
                expected *= 2;
            } else if due {
                // Under `finish`, every resize completes before the next upsize is due.
                assert_eq!(spec.when_due, WhenDue::Wait, "{n}");
                late += 1;
            }
            left.go_on();
            assert_eq!(slots(&b), [expected / 3; 3], "{n}");
            assert_eq!(b.table.resizing(), left.slots > 0.0, "{n}");
        }
        assert_eq!(late > 0, spec.when_due == WhenDue::Wait);
        let s = b.table.stats();
        assert_eq!((s.forced_upsizes, s.drained), (0, 0));
        for n in (0..100_000u64).rev() {
            let resizing = b.table.resizing();
            b.remove(key(n, 1 << 24));
            // A downsize that is due completes the resize in progress and starts with the next
            // removal.
            if !resizing && 5 * n < expected && expected > 3 * 128 {
                expected /= 2;
            }
            assert_eq!(slots(&b), [expected / 3; 3], "{n}");
        }
        assert_eq!(expected, 3 * 128, "all the way, whatever upsizes do");
        for n in 0..400 {
            b.insert(key(n, 1 << 24)).unwrap();
            if n > 200 && !b.table.resizing() {
                break;
            }
        }
        assert!(b.table.bytes() <= 4 * 3 * 128 * 64);
    }
}

#[test]
fn a_way_grows_exactly_when_it_is_full_and_no_larger_than_another() {
    for spec in [mehpt(), prompt(mehpt())] {
        let (mut b, mut late) = (Bench::new(&spec, 1), 0);
        b.insert(0).unwrap();
        for n in 1..100_000u64 {
            let (before, lines): (Vec<_>, Vec<_>) = (0..3)
                .map(|way| (b.table.slots_of(way), b.table.lines_of(way)))
                .unzip();
            let resizing: Vec<_> = b.table.ways.iter().map(|w| w.resize.is_some()).collect();
            b.insert(key(n, 1 << 24)).unwrap();
            let least = *before.iter().min().unwrap();
            for way in 0..3 {
                let due = 5 * (lines[way] + 1) > 3 * before[way] && before[way] == least;
                let grown = if due && !resizing[way] { 2 } else { 1 };
                late += u64::from(due && resizing[way]);
                assert_eq!(
                    b.table.slots_of(way),
                    grown * before[way],
                    "way {way}, line {n}"
                );
            }
        }
        assert_eq!(b.table.stats().forced_upsizes, 0);
        let total: u64 = slots(&b).iter().sum();
        if spec.when_due == WhenDue::Wait {
            assert!(late > 0);
            continue;
        }
        // No single way can hold the load that the thresholds allow to all of them.
        assert!(
            100_000 * 5 <= 3 * total && total <= 3 * 2 * 100_000 * 5 / 3,
            "{total}"
        );
    }
}

#[test]
fn about_half_of_the_lines_stay_when_a_way_doubles_in_place() {
    // Dense keys, keys one page-table node apart, and scattered keys.
    for stride in [1, 64, 0x9_2f31] {
        let mut b = Bench::new(&mehpt(), 1);
        for n in 0..150_000 {
            b.insert((n * stride) & ((1 << 33) - 1)).unwrap();
        }
        let s = b.table.stats();
        let moved = s.moved as f64 / (s.moved + s.stayed) as f64;
        assert!((moved - 0.5).abs() < 0.02, "{stride}: {moved}");
        assert!(
            s.moved + s.stayed > 50_000 && s.moved_out_of_place > 5_000,
            "{s:?}"
        );
    }
}

#[test]
fn upsizes_never_displace_a_line() {
    // Only insertions cause re-insertions: each rehash finds its slot free.
    let mut b = Bench::new(&mehpt(), 1);
    for n in 0..50_000 {
        b.insert(key(n, 1 << 24)).unwrap();
    }
    let s = b.table.stats();
    let rehashes = s.moved + s.stayed + s.moved_out_of_place;
    assert_eq!(s.insertions_and_rehashes(), s.inserted + rehashes);
    assert!(s.by_reinsertions[0] >= rehashes);
    let sum: u64 = (s.by_reinsertions.iter().zip(0..))
        .map(|(n, kicks)| n * kicks)
        .sum();
    assert_eq!(sum, s.reinsertions);
    assert_eq!(u64::from(b.work.kicks), s.reinsertions);
    assert_eq!(b.work.lookups, b.work.kicks);
    assert_eq!(u64::from(b.work.moved), s.moved + s.moved_out_of_place);
}

/// Ways below the downsize threshold, and their slots.
fn to_halve(b: &Bench) -> Vec<(usize, u64)> {
    let spec = &b.table.spec;
    let (sizes, ways) = (slots(b), 0..3);
    let sparse = |lines: u64, slots: u64| (lines as f64) < spec.downsize_at * slots as f64;
    let total = sizes.iter().sum::<u64>();
    let largest = *sizes.iter().max().unwrap();
    let due = |&way: &usize| {
        sizes[way] > spec.initial_slots
            && match spec.per_way {
                true => sizes[way] == largest && sparse(b.table.lines_of(way), sizes[way]),
                false => sparse(b.table.lines(), total),
            }
    };
    ways.filter(due).map(|way| (way, sizes[way])).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// A downsize that is due completes the resize in progress, and the next removal starts it.
    #[test]
    fn a_downsize_that_is_due_is_begun_by_the_next_removal_under_either_rule(
        per_way: bool,
        wait: bool,
        rate in 0.3f64..4.0,
        seed: u64,
        runs in prop::collection::vec((300usize..4000, 0usize..200), 1..4),
    ) {
        let mut spec = if per_way { mehpt() } else { ecpt() };
        let rule = if wait { waiting } else { finishing };
        rule(&mut spec, rate);
        let (mut b, mut rng) = (Bench::new(&spec, seed), pagewalk_units::rng(seed, "test"));
        for (most, least) in runs {
            while b.oracle.len() < most {
                let key = key(rng.random(), 1 << 24);
                if !b.oracle.contains_key(&key) {
                    b.insert(key).unwrap();
                }
            }
            // The downsizes that remain due after a removal, and the number of insertions that
            // found no slot so far. Such a failure reverses the downsize, and the next removal
            // completes the reversal.
            let mut due = (vec![], b.table.stats().exhausted);
            let (mut turned, mut drained) = (0, b.table.stats().drained);
            while b.oracle.len() > least {
                let any = b.oracle.range(key(rng.random(), 1 << 24)..).next();
                let key = *any.or(b.oracle.iter().next()).unwrap().0;
                b.remove(key);
                let now = (to_halve(&b), b.table.stats().exhausted);
                turned = if now.1 == due.1 { turned / 2 } else { 2 };
                // A migration within a removal may make a downsize due. The next removal then
                // completes the resize in progress.
                let finished = b.table.stats().drained > drained;
                drained = b.table.stats().drained;
                if turned == 0 && !finished && b.table.downsize_from == u64::MAX {
                    prop_assert!(now.0.iter().all(|way| !due.0.contains(way)), "{:?} {:?}", now, due);
                }
                due = now;
            }
            b.check_all();
            if b.table.stats().exhausted == 0 && least < 64 {
                let sum: u64 = slots(&b).iter().sum();
                prop_assert!(sum <= 2 * 3 * spec.initial_slots, "{} lines in {} slots", least, sum);
            }
        }
    }
}

/// Fraction of insertions during which two tables coexist, averaged over the sizes at which a
/// program may stop growing.
fn coexistence(spec: &ElasticSpec) -> (f64, u64) {
    let mut b = Bench::new(spec, 1);
    let (mut sum, mut samples) = (0.0, 0);
    // Ten sizes for each doubling between two thresholds of equal phase.
    let mut next = 2.0 * 0.6 * 3.0 * 1024.0;
    for n in 0..4 * 3686u64 {
        b.insert(key(n, 1 << 24)).unwrap();
        if n as f64 > next {
            let s = b.table.stats();
            sum += s.coexisting_insertions as f64 / s.inserted as f64;
            samples += 1;
            next *= 2f64.powf(0.1);
        }
    }
    assert!(samples >= 9);
    (sum / f64::from(samples), b.table.stats().drained)
}

#[test]
fn finished_at_once_two_slots_come_nearest_to_the_coexistence_that_the_paper_measures() {
    let of = |migrated: f64| {
        coexistence(&ElasticSpec {
            migrated_per_insertion: migrated,
            ..prompt(ecpt())
        })
    };
    let (one, drained) = of(1.0);
    assert!(
        one > 0.95 && drained > 0,
        "never over before the next: {one}"
    );
    let (two, drained) = of(2.0);
    assert!((two - 0.873).abs() < 0.03 && drained == 0, "{two}");
    let (three, _) = of(3.0);
    assert!(three < 0.70, "{three}");
}

#[test]
fn by_default_two_tables_live_side_by_side_from_the_first_upsize_on() {
    for spec in [ecpt(), mehpt()] {
        assert_eq!(spec.migrated_per_insertion, 1.45);
        assert_eq!(spec.when_due, WhenDue::Wait);
    }
    let mut b = Bench::new(&ecpt(), 1);
    for n in 0..20_000 {
        b.insert(key(n, 1 << 24)).unwrap();
    }
    // 230 lines fit into three ways of 128 slots. Each later upsize is due before the last one
    // completes, at a load of 1 / 1.45 instead of 0.6.
    assert_eq!(b.table.stats().coexisting_insertions, 20_000 - 230);
}

/// The load factors at which a growing table starts its upsizes, largest last.
fn loads(spec: &ElasticSpec, doublings: usize) -> (Vec<f64>, Bench) {
    let mut b = Bench::new(spec, 1);
    let (mut n, mut found) = (0u64, vec![]);
    while found.len() < doublings {
        let before: u64 = slots(&b).iter().sum();
        b.insert(key(n, 1 << 24)).unwrap();
        if before > 0 && slots(&b).iter().sum::<u64>() > before {
            found.push(n as f64 / before as f64);
        }
        n += 1;
    }
    (found, b)
}

#[test]
fn a_table_that_waits_settles_at_the_load_that_its_migration_leaves() {
    let at = |migrated: f64, when_due: WhenDue| {
        let spec = ElasticSpec {
            migrated_per_insertion: migrated,
            when_due,
            ..ecpt()
        };
        let (found, b) = loads(&spec, 9);
        assert_eq!(b.table.stats().forced_upsizes, 0, "{migrated}");
        (found[8], b.table.stats().drained)
    };
    for migrated in [1.25, 1.4, 1.45, 1.5, 1.6] {
        let (load, drained) = at(migrated, WhenDue::Wait);
        assert!((load * migrated - 1.0).abs() < 0.005, "{migrated}: {load}");
        assert_eq!(drained, 0);
    }
    // A resize that completes before the next is due causes no wait.
    for migrated in [1.75, 2.0, 4.0] {
        let (load, _) = at(migrated, WhenDue::Wait);
        assert!((load - 0.6).abs() < 0.001, "{migrated}: {load}");
        assert_eq!(load, at(migrated, WhenDue::Finish).0);
    }
    // With `finish`, an upsize starts on time at any migration rate.
    let (load, drained) = at(1.25, WhenDue::Finish);
    assert!(
        (load - 0.6).abs() < 0.001 && drained > 5,
        "{load}, {drained}"
    );
}

#[test]
fn parts_of_a_slot_add_up() {
    // A resize of 384 slots completes after 384 / 1.6 insertions, counting the one that started
    // it.
    for (migrated, insertions) in [(1.6, 240), (1.25, 308), (3.0, 128)] {
        let spec = ElasticSpec {
            migrated_per_insertion: migrated,
            when_due: WhenDue::Wait,
            ..ecpt()
        };
        let mut b = Bench::new(&spec, 1);
        let mut n = 0;
        while b.table.stats().coexisting_insertions == 0 || b.table.resizing() {
            b.insert(key(n, 1 << 24)).unwrap();
            n += 1;
        }
        assert_eq!(b.table.stats().coexisting_insertions, insertions);
    }
}

#[test]
fn insertions_go_on_where_a_resize_can_never_keep_up() {
    // With half a slot for each insertion, a resize would complete only at twice the capacity.
    for spec in [ecpt(), mehpt()] {
        let spec = ElasticSpec {
            migrated_per_insertion: 0.5,
            when_due: WhenDue::Wait,
            hash: HashFunction::Murmur,
            ..spec
        };
        let (found, b) = loads(&spec, 9);
        let s = b.table.stats();
        assert!(s.exhausted > 0 && s.drained > 0, "{s:?}");
        // Three ways of a cuckoo table hold 0.91 (Fotakis et al., 2005).
        assert!(found.iter().all(|&load| load < 0.93), "{found:?}");
        b.check_all();
    }
}

#[test]
fn without_room_for_a_line_the_table_grows_before_its_threshold() {
    // Two ways hold half as many lines as slots, so the threshold is never reached.
    let mut spec = ecpt();
    spec.ways = 2;
    spec.upsize_at = 0.9;
    let mut b = Bench::new(&spec, 1);
    for n in 0..5000 {
        b.insert(key(n, 1 << 24)).unwrap();
    }
    b.check_all();
    let s = b.table.stats();
    assert!(
        s.forced_upsizes > 3 && s.exhausted >= s.forced_upsizes,
        "{s:?}"
    );
}

#[test]
fn chunks_change_as_a_way_outgrows_its_table() {
    // At this migration rate, a chunk-size change completes before the way grows again.
    let mut b = Bench::new(&prompt(mehpt()), 1);
    let (mut n, mut sizes) = (0, vec![]);
    let chunk = |b: &Bench, way: usize| {
        let w = &b.table.ways[way];
        w.next.as_ref().unwrap_or(&w.table).chunk().unwrap()
    };
    // 64 chunks of 8 KB, then one of 1 MB (figure 3).
    while chunk(&b.clone_started(), 0) == 8 << 10 {
        b.insert(key(n, 1 << 24)).unwrap();
        n += 1;
        sizes.push(b.table.slots_of(0) * 64);
    }
    sizes.dedup();
    assert_eq!(sizes, (13..=20).map(|s| 1 << s).collect::<Vec<_>>());
    assert_eq!(
        b.l2p.used_by(0, PageSize::K4),
        65,
        "the old chunks and the first new one"
    );
    while b.table.resizing() {
        b.insert(key(n, 1 << 24)).unwrap();
        n += 1;
    }
    assert_eq!(b.l2p.used(), 3);
    assert_eq!(b.l2p.peak(), 3 * 65, "the most of figure 14: MUMmer's 195");
    assert_eq!(b.table.largest(), 1 << 20);
    for way in 0..3 {
        assert_eq!(b.table.stats().ways[way].chunk_changes, 1);
    }
    // Shrinking returns to at most 64 chunks of 8 KB.
    for n in 0..n {
        b.remove(key(n, 1 << 24));
    }
    for n in 0..60 {
        b.insert(key(n, 1 << 24)).unwrap();
    }
    assert!((0..3).all(|way| chunk(&b, way) == 8 << 10));
    assert!(b.l2p.used() <= 3 * 16, "{}", b.l2p.used());
    b.check_all();
}

impl Bench {
    /// A clone, with one line inserted if it has no memory yet.
    fn clone_started(&self) -> Bench {
        let mut b = self.clone();
        if b.table.ways.is_empty() {
            b.insert(1).unwrap();
        }
        b
    }
}
