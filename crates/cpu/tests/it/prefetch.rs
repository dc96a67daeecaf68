//! Software prefetches, in closed form.

use crate::bench::*;
use pagewalk_stream::{Op, OpClass, PrefetchHint, UNKNOWN_ADDRESS};
use pagewalk_units::Cycle;

fn prefetch(va: u64, hint: PrefetchHint) -> Op {
    Op {
        kind: OpClass::Prefetch,
        size: hint as u8,
        ..load(va)
    }
}

fn bench(mshrs: u32) -> Bench {
    let mut b = Bench::with(&spec(), &perfect(), mshrs);
    b.core = b.core.with_software_prefetches();
    b.run(&[compute(1, 1)]);
    b
}

fn count(b: &Bench, name: &str) -> u64 {
    b.get("core.0.software_prefetch", name)
}

/// Line `n` of many in different sets.
fn line(n: u64) -> u64 {
    (1 << 20) + 64 * n
}

#[test]
fn prefetches_retire_without_their_lines() {
    let mut b = bench(256);
    let ops: Vec<Op> = (0..200)
        .map(|n| prefetch(line(n), PrefetchHint::T0))
        .collect();
    assert_eq!(b.run(&ops), 200 / 4 + 1);
    assert_eq!(count(&b, "instructions"), 200);
    assert_eq!(count(&b, "requested"), 200);
    assert_eq!(b.stats().loads, 0);
    // One that waits for its address retires a cycle after it.
    let ops = [
        compute(1, 50),
        after(prefetch(line(300), PrefetchHint::T0), 1),
    ];
    assert_eq!(b.run(&ops), 50 + 1 + 1);
}

#[test]
fn a_load_finds_the_line_in_the_cache_that_the_hint_names() {
    const L3: Cycle = 40;
    for (hint, latency, second) in [
        (PrefetchHint::T0, L1, 1),
        (PrefetchHint::Nta, L1, 0),
        (PrefetchHint::Write, L1, 1),
        (PrefetchHint::T1, L2, 1),
        (PrefetchHint::T2, L3, 0),
    ] {
        let mut b = bench(256);
        b.memory.remembers = Some(L3);
        let fills = b.get("core.0.l2", "fills");
        b.run(&[prefetch(line(0), hint)]);
        assert_eq!(b.get("core.0.l2", "fills") - fills, second, "{hint:?}");
        b.run(&[compute(1, 250)]);
        assert_eq!(b.run(&[load(line(0))]), latency + 1, "{hint:?}");
    }
}

#[test]
fn a_load_waits_for_the_rest_of_a_line_on_its_way() {
    let mut b = bench(256);
    let ops = [
        prefetch(line(0), PrefetchHint::T0),
        compute(1, 150),
        after(load(line(0)), 1),
    ];
    assert_eq!(b.run(&ops), DRAM + 1);
    assert_eq!(b.get("core.0.l1d", "merged"), 1);
    b.run(&[prefetch(line(0), PrefetchHint::T0)]);
    assert_eq!(count(&b, "present"), 1);
}

#[test]
fn prefetches_far_enough_ahead_hide_a_chain_of_misses() {
    let (n, ahead) = (4000, 16);
    let ops = |prefetches: bool| {
        (0..n).flat_map(move |i| {
            let fetch = prefetches.then(|| prefetch(line(i + ahead), PrefetchHint::T0));
            // Each load waits for the one before, as it does when it uses its value.
            let chained = after(load(line(i)), 1 + u16::from(prefetches));
            fetch.into_iter().chain([chained])
        })
    };
    let [without, with] = [false, true].map(|p| bench(256).run(&ops(p).collect::<Vec<_>>()));
    assert_eq!(without, n * DRAM + 1);
    // The distance is `ahead` loads of the latency of a hit, up to the memory's latency.
    let late = DRAM.saturating_sub(ahead * L1) * n / ahead;
    assert!(with < n * L1 + late + ahead * DRAM, "{with}");
}

#[test]
fn a_prefetch_translates_its_address() {
    let mut b = Bench::with(&spec(), &mmu(), 256);
    b.core = b.core.with_software_prefetches();
    b.run(&[compute(1, 1)]);
    let before = b.get("core.0.mmu", "walks");
    b.run(&[prefetch(line(0), PrefetchHint::T0)]);
    assert_eq!(b.get("core.0.mmu", "walks") - before, 1);
    b.run(&[
        compute(1, 255),
        after(compute(1, 255), 1),
        after(compute(1, 255), 1),
    ]);
    b.run(&[
        compute(1, 255),
        after(compute(1, 255), 1),
        after(compute(1, 255), 1),
    ]);
    assert_eq!(b.run(&[load(line(0))]), L1 + 1);
    assert_eq!(b.get("core.0.mmu", "walks") - before, 1);
}

#[test]
fn a_prefetch_of_an_unmapped_page_walks_and_is_dropped() {
    let mut b = Bench::with(&spec(), &mmu(), 256);
    b.core = b.core.with_software_prefetches();
    b.run(&[compute(1, 1)]);
    let before = b.get("core.0.mmu", "walk_reads");
    b.run(&[prefetch(b.table.limit + 64, PrefetchHint::T0)]);
    assert_eq!(count(&b, "dropped_faults"), 1);
    assert!(b.get("core.0.mmu", "walk_reads") > before);
    // An address that the emulator did not reveal does nothing.
    let before = b.get("core.0.mmu", "walk_reads");
    b.run(&[prefetch(UNKNOWN_ADDRESS, PrefetchHint::T0)]);
    assert_eq!(count(&b, "dropped_unknown"), 1);
    assert_eq!(b.get("core.0.mmu", "walk_reads"), before);
    assert_eq!(b.get("core.0.l1d", "software_prefetch_accesses"), 0);
}

#[test]
fn a_prefetch_without_a_free_miss_register_is_dropped() {
    let mut b = bench(4);
    let ops: Vec<Op> = (0..100)
        .map(|n| prefetch(line(n), PrefetchHint::T0))
        .collect();
    b.run(&ops);
    assert_eq!(count(&b, "requested"), 4);
    assert_eq!(count(&b, "dropped_mshrs"), 96);
}

#[test]
fn functional_warming_brings_the_line_and_never_faults() {
    let mut b = bench(256);
    let far = prefetch(b.table.limit + 64, PrefetchHint::T0);
    let ran = b.warm(&[prefetch(line(0), PrefetchHint::T0), far]);
    assert_eq!(ran.at, 2);
    assert_eq!(count(&b, "instructions"), 0, "warming is not counted");
    b.run(&[compute(1, 1)]);
    assert_eq!(b.run(&[load(line(0))]), L1 + 1);
}
