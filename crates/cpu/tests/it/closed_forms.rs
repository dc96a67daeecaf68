//! Programs whose cycles are known in closed form.

use crate::bench::*;
use pagewalk_cpu::{PredictorSpec, Stop};
use pagewalk_stream::{Op, flags};
use pagewalk_tables::PomTlbSpec;
use pagewalk_units::Cycle;

/// Cycles per op of `program` over `n` ops, without start-up.
fn cycles_each(b: &mut Bench, n: usize, program: impl Fn(u64) -> Op) -> f64 {
    let ops: Vec<Op> = (0..2 * n as u64).map(program).collect();
    b.run(&ops[..n]);
    b.run(&ops[n..]) as f64 / n as f64
}

#[track_caller]
fn near(measured: f64, expected: f64, tolerance: f64) {
    assert!(
        (measured - expected).abs() <= tolerance * expected,
        "measured {measured}, expected {expected}"
    );
}

#[test]
fn a_chain_of_loads_costs_the_load_to_use_of_its_level() {
    // One page of lines: L1. 16 times the L1: L2. Lines never seen: memory.
    for (lines, latency) in [(64, L1), (8192, L2), (u64::MAX, DRAM)] {
        let mut b = Bench::new(&spec());
        b.run(&[compute(1, 1)]);
        let chain = |i: u64| after(load(i % lines * 64), 1);
        if lines <= 8192 {
            let ops: Vec<Op> = (0..lines).map(chain).collect();
            b.run(&ops);
        }
        let n = 8192;
        let ops: Vec<Op> = (0..n).map(chain).collect();
        // Plus the cycle in which the last one retires.
        assert_eq!(b.run(&ops), n * latency + 1, "{lines} lines");
    }
}

#[test]
fn a_chain_that_misses_the_tlb_costs_lookups_reads_and_data() {
    let mut m = mmu();
    m.walk_caches.entries = 0;
    let mut b = Bench::with(&spec(), &m, 256);
    // More pages than the TLB reaches. Their entries of 8 bytes are all in the L2. Data lines are
    // spread over the sets, and lie in the L2 and not in the L1.
    let pages = 4096u64;
    let chain = |i: u64| after(load(i % pages * 4096 + i % pages / 32 % 64 * 64), 1);
    for _ in 0..3 {
        b.run(&(0..pages).map(chain).collect::<Vec<_>>());
    }
    let n = 2 * pages;
    let ops: Vec<Op> = (0..n).map(chain).collect();
    let each = L2_TLB + 4 * L2 + L2;
    let before = b.core.stats().load_translation_cycles;
    assert_eq!(b.run(&ops), n * each + 1);
    let translation = b.core.stats().load_translation_cycles - before;
    assert_eq!(translation, n * (L2_TLB + 4 * L2));
}

#[test]
fn a_chain_that_an_in_memory_tlb_serves_costs_lookups_a_line_and_data() {
    // More pages than the TLB reaches. The lines of their entries (64 bytes each) and the data
    // lines are in the L2, and the cycle stack shows the waits.
    let pages = 4096u64;
    let chain = |i: u64| after(load(i % pages * 4096 + i % pages / 32 % 64 * 64), 1);
    for (entries, walks) in [(4 * 4096, false), (4, true)] {
        let mut m = mmu();
        m.walk_caches.entries = 0;
        let tlb = PomTlbSpec {
            entries_4kb: entries,
            ..PomTlbSpec::default()
        };
        let mut b = Bench::with_in_memory_tlb(&spec(), &m, tlb);
        for _ in 0..3 {
            b.run(&(0..pages).map(chain).collect::<Vec<_>>());
        }
        let n = 2 * pages;
        let before = b.core.slots();
        let cycles = b.run(&(0..n).map(chain).collect::<Vec<_>>());
        let walk = if walks { 4 * L2 } else { 0 };
        assert_eq!(cycles, n * (L2_TLB + L2 + walk + L2) + 1);
        let slots = b.core.slots();
        let each = |now: u64, before: u64| (now - before) as f64 / (4 * n) as f64;
        near(each(slots.tlb, before.tlb), (L2_TLB + L2) as f64, 0.01);
        assert_eq!(slots.walk > before.walk, walks);
        near(each(slots.walk, before.walk) + 1.0, (walk + 1) as f64, 0.01);
        assert_eq!(slots.walker, before.walker);
        near(each(slots.l2, before.l2), L2 as f64, 0.02);
    }
}

#[test]
fn independent_misses_are_bound_by_the_mshrs() {
    for mshrs in [4, 16] {
        let mut b = Bench::with(&spec(), &perfect(), mshrs);
        let each = cycles_each(&mut b, 4000, |i| load(i * 64));
        near(each, DRAM as f64 / f64::from(mshrs), 0.01);
    }
}

#[test]
fn independent_misses_are_bound_by_the_bus() {
    let mut b = Bench::with(&spec(), &perfect(), 64);
    b.memory.gap = 12;
    let each = cycles_each(&mut b, 4000, |i| load(i * 64));
    near(each, 12.0, 0.01);
}

#[test]
fn independent_misses_are_bound_by_the_window() {
    for (rob, loads) in [(8, 72), (32, 72), (224, 10)] {
        let s = pagewalk_cpu::CoreSpec {
            rob,
            load_queue: loads,
            ..spec()
        };
        let mut b = Bench::new(&s);
        let each = cycles_each(&mut b, 4000, |i| load(i * 64));
        near(each, DRAM as f64 / f64::from(rob.min(loads)), 0.04);
    }
    // Simple instructions occupy the buffer too: 3 of 4 in a buffer of 64.
    let s = pagewalk_cpu::CoreSpec { rob: 64, ..spec() };
    let mut b = Bench::new(&s);
    let each = cycles_each(&mut b, 4000, |i| Op {
        insns: 4,
        ..load(i * 64)
    });
    near(each, DRAM as f64 / 16.0, 0.04);
}

/// Loads to a page each; with walk caches off and entries a line apart, each
/// walk reads three entries in the L2 and one from memory.
fn walks(i: u64) -> Op {
    load(i * 8 * 4096 + i % 8 * 512)
}

#[test]
fn independent_walks_are_bound_by_the_walkers() {
    for walkers in [1, 2, 4] {
        let mut m = mmu();
        m.walk_caches.entries = 0;
        m.walkers = walkers;
        let mut b = Bench::with(&spec(), &m, 256);
        let each = cycles_each(&mut b, 4000, walks);
        let walk = (3 * L2 + DRAM) as f64;
        near(each, walk / f64::from(walkers), 0.02);
    }
}

#[test]
fn arithmetic_costs_its_chain_or_the_width() {
    for latency in [1, 3, 20] {
        let mut b = Bench::new(&spec());
        b.run(&[compute(1, 1)]);
        let n = 1000;
        let ops = vec![after(compute(1, latency), 1); n];
        let cycles = b.run(&ops);
        assert_eq!(cycles, n as Cycle * Cycle::from(latency) + 1);
    }
    for width in [1, 3, 4, 6] {
        let s = pagewalk_cpu::CoreSpec { width, ..spec() };
        let mut b = Bench::new(&s);
        b.run(&[compute(1, 1)]);
        let before = b.core.slots().total();
        b.run(&[compute(6000, 1), compute(6000, 1)]);
        // Plus the cycle in which the first executes.
        let slots = b.core.slots().total() - before - 12000;
        assert!((1..=2 * u64::from(width)).contains(&slots), "width {width}");
    }
}

/// A branch without pattern: its outcome is a bit of a hash.
fn coin(i: u64) -> bool {
    let h = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (h ^ h >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 60 & 1 == 1
}

#[test]
fn a_misprediction_costs_resolution_and_refill() {
    // Returns without calls are always mispredicted.
    let wrong = Op {
        flags: flags::TAKEN | flags::RETURN,
        ..branch(PC, true)
    };
    for k in [8u16, 40] {
        let mut b = Bench::new(&spec());
        let each = cycles_each(&mut b, 1000, |_| Op { insns: k, ..wrong });
        // k slots, a cycle to execute, the refill.
        near(each, f64::from(k) / 4.0 - 0.25 + 1.0 + 15.0, 0.02);
    }
    // The condition comes from the L1, or from memory.
    for (lines, latency) in [(1, L1), (u64::MAX, DRAM)] {
        let mut b = Bench::new(&spec());
        let each = cycles_each(&mut b, 4000, |i| {
            if i % 2 == 0 {
                load(i % lines * 64)
            } else {
                after(wrong, 1)
            }
        });
        near(2.0 * each, (latency + 1 + 15) as f64, 0.02);
    }
    let b = &mut Bench::new(&spec());
    b.run(&vec![wrong; 100]);
    assert_eq!(b.stats().mispredictions, 100);
}

#[test]
fn stores_that_always_miss_cost_the_drain_rate_and_not_the_latency() {
    for mshrs in [4u32, 16] {
        let mut b = Bench::with(&spec(), &perfect(), mshrs);
        let each = cycles_each(&mut b, 4000, |i| store(i * 64));
        near(each, DRAM as f64 / f64::from(mshrs), 0.01);
    }
    // A queue of 8 holds 8 of them, from retirement to the write.
    let s = pagewalk_cpu::CoreSpec {
        store_queue: 8,
        ..spec()
    };
    let mut b = Bench::new(&s);
    let each = cycles_each(&mut b, 4000, |i| store(i * 64));
    near(each, DRAM as f64 / 8.0, 0.02);
    let stack = b.core.slots();
    assert!(stack.store_queue * 10 > stack.total() * 9, "{stack:?}");
}

#[test]
fn stores_that_hit_cost_a_slot() {
    let mut b = Bench::new(&spec());
    let each = cycles_each(&mut b, 4000, |i| {
        if i % 4 == 0 {
            store(i % 64 * 8)
        } else {
            compute(1, 1)
        }
    });
    near(each, 0.25, 0.03);
}

#[test]
fn a_page_fault_costs_the_kernel_on_top() {
    let price = 5000;
    let cost = |faults: bool| {
        let mut b = Bench::with(&spec(), &mmu(), 256);
        b.run(&[compute(1, 1)]);
        let ops: Vec<Op> = (0..100).map(|i| after(load(i << 12), 1)).collect();
        let begin = b.core.finish();
        for i in 0..ops.len() {
            if faults {
                b.table.limit = 0;
                let ran = b.run_until(&ops, i, u64::MAX, u64::MAX);
                let Stop::Fault(fault) = ran.stop else {
                    panic!("{ran:?}")
                };
                assert_eq!((ran.at, fault.va.0), (i, ops[i].va));
                b.core.kernel(price);
                b.table.limit = 1 << 40;
            }
            let ran = b.run_until(&ops[..=i], i, u64::MAX, u64::MAX);
            assert_eq!(ran.stop, Stop::NeedBatch);
        }
        (b.core.finish() - begin, b.core.slots())
    };
    let (without, _) = cost(false);
    let (with, stack) = cost(true);
    assert_eq!(stack.kernel, 100 * price * 4);
    // The faulting access walks twice; the second walk finds the entry in the L2.
    let extra = with - without - 100 * price;
    assert!(extra <= 100 * (L2_TLB + 2 + 2 * L2 + 2), "{extra}");
}

#[test]
fn a_forwarded_load_takes_the_stores_data() {
    let mut b = Bench::new(&spec());
    b.run(&[store(64), load(64)]);
    // The store waits for its data from memory; the load gets it from the store.
    let ops = [
        load(1 << 20),
        Op {
            dep: [0, 1],
            ..store(64)
        },
        load(64),
        after(compute(1, 1), 1),
    ];
    let cycles = b.run(&ops);
    assert!((DRAM + L1 + 1..DRAM + L1 + 4).contains(&cycles), "{cycles}");
    assert_eq!(b.stats().forwarded_loads, 2);
    // Bytes that the store does not write are not forwarded.
    b.run(&[store(64), load(72), load(56)]);
    assert_eq!(b.stats().forwarded_loads, 2);
    b.run(&[
        store(64),
        Op {
            size: 4,
            ..load(68)
        },
    ]);
    assert_eq!(b.stats().forwarded_loads, 3);
    // Much later, the data is in the cache.
    b.core.idle(b.core.finish() + 1000);
    b.run(&[load(64)]);
    assert_eq!(b.stats().forwarded_loads, 3);
}

#[test]
fn what_a_store_does_not_have_of_a_load_over_two_lines_comes_from_the_caches() {
    let mut b = Bench::new(&spec());
    b.run(&[load(0)]);
    // The first four bytes come from the store, the others from a line in memory.
    let at = 1 << 20;
    let ops = [store(at + 56), load(at + 60), after(compute(1, 1), 1)];
    let cycles = b.run(&ops);
    assert!(cycles >= DRAM, "{cycles}");
    let s = b.stats();
    assert_eq!((s.forwarded_loads, s.split_accesses), (1, 1));
    assert_eq!(b.get("core.0.l1d", "loads"), 2);
}

#[test]
fn a_fence_waits_for_all_that_is_older() {
    let mut b = Bench::new(&spec());
    b.run(&[load(0)]);
    let fence = Op {
        flags: flags::SERIALISING,
        ..compute(1, 1)
    };
    // Both loads miss, the fence keeps them apart.
    let ops = [load(1 << 20), fence, load(1 << 21)];
    let cycles = b.run(&ops);
    assert!((2 * DRAM + 1..2 * DRAM + 5).contains(&cycles), "{cycles}");
    // An atomic: its store is written before anything younger runs.
    let atomic = [
        Op {
            flags: flags::SERIALISING,
            ..load(0)
        },
        Op {
            flags: flags::SERIALISING,
            insns: 0,
            dep: [0, 1],
            ..store(0)
        },
    ];
    let n = 100;
    let ops: Vec<Op> = std::iter::repeat_n(atomic, n).flatten().collect();
    let each = b.run(&ops) as f64 / n as f64;
    near(each, 2.0 * L1 as f64, 0.02);
}

fn atomic(at: u64) -> [Op; 2] {
    let flags = flags::SERIALISING;
    let dep = [0, 1];
    [
        Op { flags, ..load(at) },
        Op {
            flags,
            insns: 0,
            dep,
            ..store(at)
        },
    ]
}

/// Groups of a miss to a new line and an atomic on a cached line.
fn misses_and_atomics(s: &pagewalk_cpu::CoreSpec, groups: u64) -> f64 {
    let mut b = Bench::new(s);
    b.run(&[load(0)]);
    let [read, write] = atomic(0);
    let ops: Vec<Op> = (1..=groups)
        .flat_map(|n| [load(n << 20), compute(30, 1), read, write])
        .collect();
    b.run(&ops) as f64 / groups as f64
}

#[test]
fn an_atomic_that_fences_holds_back_younger_accesses_alone() {
    let fences = pagewalk_cpu::CoreSpec {
        atomics: pagewalk_cpu::Atomics::Fence,
        ..spec()
    };
    let cycles = |s: &pagewalk_cpu::CoreSpec, ops: &[Op]| {
        let mut b = Bench::new(s);
        b.run(&[load(0)]);
        b.run(ops)
    };
    let [read, write] = atomic(0);
    // An older miss delays neither the atomic nor younger instructions.
    let older = [load(1 << 20), read, write, load(1 << 21)];
    let (drained, overlapped) = (cycles(&spec(), &older), cycles(&fences, &older));
    assert!(drained >= 2 * DRAM, "{drained}");
    assert!(overlapped < DRAM + 4 * L1 + 10, "{overlapped}");
    // A miss of the atomic delays younger loads, but not arithmetic. The address is not in the line
    // of the code.
    let [read, write] = atomic(3 << 20);
    let younger = [read, write, load(1 << 21)];
    assert!(cycles(&fences, &younger) >= 2 * DRAM);
    let arithmetic = [read, write, compute(1, 100)];
    assert!(cycles(&fences, &arithmetic) < DRAM + 20);
    assert!(cycles(&spec(), &arithmetic) >= DRAM + 100);
}

#[test]
fn the_window_matters_where_atomics_fence() {
    let with = |rob: u32, atomics: pagewalk_cpu::Atomics| {
        let s = pagewalk_cpu::CoreSpec {
            rob,
            atomics,
            ..spec()
        };
        misses_and_atomics(&s, 200)
    };
    use pagewalk_cpu::Atomics::{Drain, Fence};
    near(with(32, Drain), with(256, Drain), 0.02);
    assert!(with(256, Fence) < 0.8 * with(32, Fence));
    assert!(with(32, Fence) <= with(32, Drain));
}

#[test]
fn an_access_over_two_lines_or_pages_makes_two() {
    let mut b = Bench::with(&spec(), &mmu(), 256);
    b.run(&[load(60)]);
    assert_eq!(b.get("core.0.l1d", "loads"), 2);
    let before = b.get("core.0.mmu", "walks");
    b.run(&[store((1 << 21) - 4)]);
    assert_eq!(b.get("core.0.l1d", "stores"), 2);
    assert_eq!(b.get("core.0.mmu", "walks") - before, 2);
    assert_eq!(b.stats().split_accesses, 2);
}

#[test]
fn fetch_goes_through_the_tlb_and_the_cache_a_line_at_a_time() {
    let mut b = Bench::with(&spec(), &mmu(), 256);
    // Straight code of 4-byte instructions: 16 to a line.
    let line = |i: u64| Op {
        pc: PC + i * 64 + 60,
        ..compute(16, 1)
    };
    let n = 256;
    let ops: Vec<Op> = (0..n).map(line).collect();
    let cold = b.run(&ops);
    assert_eq!(b.stats().fetched_lines, n);
    assert_eq!(b.get("core.0.l1i", "fetches"), n);
    assert_eq!(b.get("core.0.mmu.l1i.main", "misses"), 4);
    assert!(cold > n * (DRAM - 4));
    let stack = b.core.slots();
    // A line's fetch overlaps the last cycle of the line before.
    assert!(stack.fetch > (n - 1) * (DRAM - 6) * 4, "{stack:?}");
    // Again from the start: all lines hit, so the width limits.
    let jump = Op {
        va: PC,
        flags: flags::TAKEN,
        ..branch(PC + n * 64 - 1, true)
    };
    b.run(&[jump]);
    let warm = b.run(&ops);
    assert!(warm <= n * 4 + 1, "{warm}");
    assert_eq!(b.stats().fetched_lines, 2 * n);
}

#[test]
fn patterns_are_predicted_and_coins_are_not() {
    let rate = |predictor: PredictorSpec, taken: &dyn Fn(u64) -> bool| {
        let s = pagewalk_cpu::CoreSpec {
            predictor,
            ..spec()
        };
        let mut b = Bench::new(&s);
        let ops: Vec<Op> = (0..40_000)
            .map(|i| branch(PC + i % 5 * 8, taken(i)))
            .collect();
        b.run(&ops[..20_000]);
        let before = b.stats().mispredictions;
        b.run(&ops[20_000..]);
        (b.stats().mispredictions - before) as f64 / 20_000.0
    };
    let tage = spec().predictor;
    let bimodal = PredictorSpec::Bimodal { log_entries: 12 };
    // Period 7 by five branches; always taken; loop of 50 iterations.
    assert!(rate(tage.clone(), &|i| i % 7 == 0) < 0.01);
    assert!(rate(bimodal.clone(), &|i| i % 7 == 0) > 0.1);
    assert_eq!(rate(tage.clone(), &|_| true), 0.0);
    assert!(rate(tage.clone(), &|i| i % 50 != 0) < 0.01);
    assert!((0.4..0.6).contains(&rate(tage, &coin)));
    assert_eq!(rate(PredictorSpec::Perfect {}, &coin), 0.0);
}

#[test]
fn calls_pair_with_returns_and_targets_depend_on_history() {
    let mut b = Bench::new(&spec());
    let call = |pc: u64| Op {
        va: PC,
        flags: flags::TAKEN | flags::CALL,
        ..branch(pc, true)
    };
    let ret = |to: u64| Op {
        va: to,
        flags: flags::TAKEN | flags::RETURN,
        ..branch(PC + 4, true)
    };
    for depth in [1u64, 10, 32] {
        let mut ops: Vec<Op> = (0..depth).map(|i| call(PC + i * 8)).collect();
        ops.extend((0..depth).rev().map(|i| ret(PC + i * 8 + 5)));
        let before = b.stats().mispredictions;
        b.run(&ops);
        assert_eq!(b.stats().mispredictions, before, "depth {depth}");
    }
    // One more than the stack holds: the oldest is lost.
    let mut ops: Vec<Op> = (0..33).map(|i| call(PC + i * 8)).collect();
    ops.extend((0..33).rev().map(|i| ret(PC + i * 8 + 5)));
    b.run(&ops);
    assert_eq!(b.stats().mispredictions, 1);
    // An interpreter's jump whose target depends on the branch before it.
    let mut b = Bench::new(&spec());
    let ops: Vec<Op> = (0..20_000u64)
        .flat_map(|i| {
            let way = i % 3 == 0;
            let jump = Op {
                va: PC + if way { 16 } else { 32 },
                flags: flags::TAKEN | flags::INDIRECT,
                ..branch(PC + 8, true)
            };
            [branch(PC, way), jump]
        })
        .collect();
    b.run(&ops[..20_000]);
    let before = b.stats().mispredictions;
    b.run(&ops[20_000..]);
    assert!(b.stats().mispredictions - before < 100);
}

#[test]
fn a_microcoded_copy_takes_its_start_and_two_cycles_a_line() {
    // The ops of `rep movsb` of lines that the L1 holds: 35 cycles, then 2 a line.
    let lines = 64;
    let copy = || {
        let step = |latency, insns| Op {
            flags: flags::MICROCODE,
            ..compute(insns, latency)
        };
        let part = |op: Op, dep| Op {
            insns: 0,
            dep,
            size: 64,
            ..op
        };
        let mut ops = vec![step(35, 1)];
        for line in 0..lines {
            let distance = if line == 0 { 0 } else { 3 };
            if line > 0 {
                ops.push(after(step(2, 0), distance));
            }
            ops.push(part(load(64 * line), [1, 0]));
            ops.push(part(store(8192 + 64 * line), [2, 1]));
        }
        ops.push(after(step(2, 0), 3));
        ops
    };
    let mut b = Bench::new(&spec());
    for _ in 0..3 {
        b.run(&copy());
    }
    let alone = b.run(&copy());
    // The store of the last line waits for its load.
    assert_eq!(alone, 35 + 2 * (lines - 1) + L1 + 1);
    // Copies do not overlap: the front end waits for the microcode.
    let ten: Vec<Op> = (0..10).flat_map(|_| copy()).collect();
    let cycles = b.run(&ten);
    near(cycles as f64, 10.0 * (35 + 2 * lines) as f64, 0.02);
    assert_eq!(b.stats().instructions, 4 + 10);
}
