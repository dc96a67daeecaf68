//! Properties of the open-addressed table: it reads lines one after the other,
//! as many as theory predicts.

use crate::common::{Table, TestFrames, caches, walk};
use crate::spread::{lone, map};
use pagewalk_tables::{
    HashDontCacheSpec, Next, Owner, PageTableSpec, WalkCacheSet, WalkCacheSpec, WalkCaches,
    WalkState,
};
use pagewalk_units::{Asid, PageSize, VirtAddr};

fn table(spec: HashDontCacheSpec) -> Table {
    PageTableSpec::HashDontCache(spec)
        .build(Owner::new(Asid(7), 1))
        .expect("a valid table")
}

/// Knuth, The Art of Computer Programming, vol. 3, 6.4: at a load of a, a
/// successful search takes (1 + 1 / (1 - a)) / 2 probes and an unsuccessful one
/// (1 + 1 / (1 - a)^2) / 2.
#[test]
fn walks_read_as_many_lines_as_linear_probing_takes() {
    let slots = 1 << 18;
    let spec = HashDontCacheSpec {
        initial_slots: slots,
        upsize_at: 0.9,
        ..HashDontCacheSpec::default()
    };
    let (mut table, mut source) = (table(spec), TestFrames::new());
    let mut lines = 0u32;
    for load in [0.1, 0.3, 0.5, 0.6, 0.75] {
        while f64::from(lines) < load * f64::from(slots) {
            map(
                &mut table,
                &mut source,
                lone(u64::from(lines)),
                PageSize::K4,
            );
            lines += 1;
        }
        let mut set = caches(0);
        let mut mean = |from: u64, hit: bool| {
            let mut reads = 0;
            for i in from..from + 50_000 {
                // Lines that were inserted throughout the table's life.
                let i = if hit { i * 7_919 % u64::from(lines) } else { i };
                let (groups, found) = walk(&*table, lone(i), &mut set);
                assert_eq!(found.is_some(), hit);
                for pair in groups.windows(2) {
                    let step = pair[1][0].0.wrapping_sub(pair[0][0].0);
                    let wrap = 64u64.wrapping_sub(u64::from(slots) * 64);
                    assert!(step == 64 || step == wrap, "the next line is read next");
                }
                reads += groups.len();
            }
            reads as f64 / 50_000.0
        };
        let (hit, miss) = (mean(0, true), mean(1 << 30, false));
        let expected_hit = (1.0 + 1.0 / (1.0 - load)) / 2.0;
        let expected_miss = (1.0 + 1.0 / ((1.0 - load) * (1.0 - load))) / 2.0;
        println!("{load}: {hit:.3} of {expected_hit:.3}, {miss:.3} of {expected_miss:.3}");
        assert!((hit / expected_hit - 1.0).abs() < 0.03);
        assert!((miss / expected_miss - 1.0).abs() < 0.06);
    }
    assert_eq!(table.bytes(), u64::from(slots) * 64, "no resize so far");
}

#[test]
fn tables_double_above_the_threshold_and_move_everything() {
    let (mut table, mut source) = (table(HashDontCacheSpec::default()), TestFrames::new());
    let mut lines = 0u64;
    let mut slots = 0;
    for i in 0..200_000 {
        let work = map(&mut table, &mut source, lone(i), PageSize::K4);
        if work.allocated > 0 {
            let expected = if slots == 0 { 65_536 } else { 2 * slots };
            assert_eq!(work.allocated, expected * 64);
            assert_eq!((work.freed, u64::from(work.moved)), (slots * 64, lines));
            assert!(work.registers_changed);
            slots = expected;
        }
        lines += 1;
        assert!(lines as f64 <= 0.6 * slots as f64);
        assert!(slots == 65_536 || (lines + 1) as f64 > 0.6 * (slots / 2) as f64);
    }
    assert_eq!(slots, 524_288);
}

/// A walk probes only page sizes that have held a page, in parallel. It waits
/// only for the table that has the page.
#[test]
fn tables_of_all_sizes_are_read_in_parallel() {
    let (mut table, mut source) = (table(HashDontCacheSpec::default()), TestFrames::new());
    let small = VirtAddr(0x5000_0000_0000);
    let huge = VirtAddr(0x6000_0000_0000);
    map(&mut table, &mut source, small, PageSize::K4);
    let mut set = caches(0);
    assert_eq!(walk(&*table, small, &mut set).0.concat().len(), 1);
    assert_eq!(table.registers(), 0);
    map(&mut table, &mut source, huge, PageSize::M2);
    assert_eq!(table.registers(), 1);
    for (va, size) in [(small, PageSize::K4), (huge, PageSize::M2)] {
        let none = WalkCacheSpec {
            entries: 0,
            ways: 1,
            latency: 0,
            serial: false,
        };
        let mut set = WalkCacheSet::new(&none, 0);
        let mut caches = WalkCaches::new(&mut set, Asid(7), 0);
        let mut state = WalkState::default();
        let Next::Read(group) = table.hardware().next(va, &mut state, &mut caches) else {
            panic!("two tables are read")
        };
        assert_eq!(caches.spent, 2, "the hash function");
        let matching = usize::from(group.matching.expect("one of them has it"));
        assert_eq!(group.at.len(), 2);
        let found = table.translate(va).expect("mapped");
        assert_eq!(group.at[matching].0, found.leaf.0 & !63);
        caches.spent = 0;
        let Next::Done(found) = table.hardware().next(va, &mut state, &mut caches) else {
            panic!("the key was there")
        };
        assert_eq!((found.size, caches.spent), (size, 0));
    }
}

#[test]
fn wrong_values_are_refused_by_name() {
    let with = |f: fn(&mut HashDontCacheSpec)| {
        let mut spec = HashDontCacheSpec::default();
        f(&mut spec);
        PageTableSpec::HashDontCache(spec)
            .check()
            .expect_err("a wrong value")
    };
    assert!(
        with(|s| s.initial_slots = 0)
            .to_string()
            .contains("initial_slots is 0")
    );
    assert!(
        with(|s| s.initial_huge_slots = 32)
            .to_string()
            .contains("initial_huge_slots is 32")
    );
    assert!(
        with(|s| s.upsize_at = 1.0)
            .to_string()
            .contains("upsize_at is 1")
    );
    assert!(
        with(|s| s.upsize_at = f64::NAN)
            .to_string()
            .contains("upsize_at")
    );
    assert!(
        with(|s| s.downsize_at = 0.4)
            .to_string()
            .contains("downsize_at is 0.4")
    );
    assert!(with(|s| s.growth = 3).to_string().contains("growth is 3"));
    assert!(
        with(|s| s.hash_latency = 1 << 40)
            .to_string()
            .contains("hash_latency")
    );
}
