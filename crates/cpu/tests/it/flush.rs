//! Flushes, non-temporal stores and store fences, in closed form.

use crate::bench::*;
use pagewalk_stream::{FlushKind, Op, OpClass, UNKNOWN_ADDRESS, flags};

fn flush(va: u64, kind: FlushKind) -> Op {
    Op {
        kind: OpClass::Flush,
        size: kind as u8,
        ..load(va)
    }
}

/// A non-temporal store of 16 bytes.
fn past(va: u64) -> Op {
    Op {
        size: 16,
        flags: flags::NON_TEMPORAL,
        ..store(va)
    }
}

fn fence(flags: u8) -> Op {
    Op {
        flags,
        ..compute(1, 1)
    }
}

fn bench() -> Bench {
    let mut b = Bench::with(&spec(), &perfect(), 256);
    b.core = b.core.with_flushes();
    b.run(&[compute(1, 1)]);
    b
}

fn line(n: u64) -> u64 {
    (1 << 20) + 64 * n
}

#[test]
fn ordered_flushes_follow_one_another_and_others_overlap() {
    for (kind, least, most) in [
        (FlushKind::Ordered, 20 * DRAM, 20 * (DRAM + 1) + 10),
        (FlushKind::Unordered, DRAM, DRAM + 30),
        (FlushKind::WriteBack, DRAM, DRAM + 30),
    ] {
        let mut b = bench();
        let mut ops: Vec<Op> = (0..20).map(|n| flush(line(n), kind)).collect();
        let retired = b.run(&ops);
        assert!(retired < 20, "flushes retire without waiting: {retired}");
        // A fence waits for them.
        let mut b = bench();
        ops.push(fence(flags::SERIALISING));
        let took = b.run(&ops);
        assert!((least..most).contains(&took), "{kind:?}: {took}");
        assert_eq!(b.get("core.0.flush", "instructions"), 20);
        assert_eq!(b.stats().stores, 0);
    }
}

#[test]
fn a_store_waits_for_an_ordered_flush_only() {
    for (kind, waits) in [(FlushKind::Ordered, true), (FlushKind::Unordered, false)] {
        let mut b = bench();
        b.run(&[load(line(9))]);
        // The store queue drains in order, so a later store that finds no room shows the wait.
        let stores = (0..57).map(|_| store(line(9)));
        let ops: Vec<Op> = [flush(line(0), kind)].into_iter().chain(stores).collect();
        let took = b.run(&ops);
        assert_eq!(took > DRAM, waits, "{kind:?}: {took}");
    }
}

#[test]
fn a_flushed_line_is_missed_again() {
    let mut b = bench();
    b.run(&[load(line(0))]);
    assert_eq!(b.run(&[load(line(0))]), L1 + 1);
    b.run(&[flush(line(0), FlushKind::Ordered)]);
    assert_eq!(b.get("core.0.flush", "present"), 1);
    b.run(&[compute(1, 250), after(compute(1, 250), 1)]);
    assert_eq!(b.run(&[load(line(0))]), DRAM + 1);
    // In functional warming, too.
    b.warm(&[flush(line(0), FlushKind::Unordered)]);
    b.run(&[compute(1, 1)]);
    assert_eq!(b.run(&[load(line(0))]), DRAM + 1);
    assert_eq!(b.get("core.0.flush", "instructions"), 1);
}

#[test]
fn a_flush_translates_and_drops_what_is_not_mapped() {
    let mut b = Bench::with(&spec(), &mmu(), 256);
    b.core = b.core.with_flushes();
    b.run(&[compute(1, 1)]);
    let before = b.get("core.0.mmu", "walks");
    b.run(&[flush(line(0), FlushKind::Ordered)]);
    assert_eq!(b.get("core.0.mmu", "walks") - before, 1);
    b.run(&[flush(b.table.limit + 64, FlushKind::Ordered)]);
    assert_eq!(b.get("core.0.flush", "dropped_faults"), 1);
    let before = b.get("core.0.mmu", "walk_reads");
    b.run(&[flush(UNKNOWN_ADDRESS, FlushKind::Ordered)]);
    assert_eq!(b.get("core.0.flush", "dropped_unknown"), 1);
    assert_eq!(b.get("core.0.mmu", "walk_reads"), before);
}

#[test]
fn fences_write_the_buffers_that_are_not_full() {
    let partial = |b: &Bench| b.get("core.0.write_combining", "partial_writes");
    for (fences, written) in [
        (None, 0),
        (Some(flags::STORE_FENCE), 2),
        (Some(flags::SERIALISING), 2),
    ] {
        let mut b = bench();
        let ops: Vec<Op> = [past(line(0))]
            .into_iter()
            .chain(fences.map(fence))
            .collect();
        let took = b.run(&ops);
        assert_eq!(partial(&b), written);
        // Only a fence that serialises makes younger instructions wait.
        assert_eq!(took > DRAM, fences == Some(flags::SERIALISING), "{took}");
    }
    // Younger stores wait for a store fence.
    let mut b = bench();
    b.run(&[load(line(9))]);
    let stores = (0..57).map(|_| store(line(9)));
    let ops: Vec<Op> = [past(line(0)), fence(flags::STORE_FENCE)]
        .into_iter()
        .chain(stores)
        .collect();
    assert!(b.run(&ops) > DRAM);
}

#[test]
fn non_temporal_stores_request_no_line() {
    let mut b = bench();
    let before = b.memory.requests;
    let ops: Vec<Op> = (0..400).map(|n| past(line(0) + 16 * n)).collect();
    b.run(&ops);
    assert_eq!(b.memory.requests, before);
    assert_eq!(b.get("core.0.write_combining", "full"), 100);
    assert_eq!(b.get("core.0.l1d", "stores"), 0);
    // One that spans two lines collects in two buffers.
    b.run(&[past(line(200) + 56)]);
    assert_eq!(b.get("core.0.write_combining", "stores"), 402);
}
