//! Properties that hold for any program.

use crate::bench::*;
use pagewalk_cpu::{Core, CoreContext, CoreSpec, PredictorSpec, Stop};
use pagewalk_memory::{AddressHash, CacheSpec, DramSpec, Shared, SharedSpec};
use pagewalk_mmu::{Mmu, MmuSpec};
use pagewalk_stream::{Op, OpClass, flags};
use pagewalk_tables::View;
use pagewalk_units::{Asid, Cycle, rng};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rand::RngExt;

/// One op of a random program, before its distances are fixed.
#[derive(Clone, Debug)]
struct Draft {
    kind: u8,
    gap: u16,
    chain: u8,
    va: u64,
    size: u8,
    dep: [u16; 2],
    dep_latency: [u8; 2],
    fence: bool,
    jump: u8,
}

fn draft() -> impl Strategy<Value = Draft> {
    (
        (0u8..10, prop_oneof![4 => 0u16..6, 1 => 0u16..400], 0u8..5),
        (
            prop_oneof![3 => 0u64..4096, 1 => 0u64..1 << 24],
            prop_oneof![4 => Just(8u8), 1 => 1u8..65],
        ),
        (0u16..12, 0u16..30),
        (0u8..4, 0u8..4),
        prop::bool::weighted(0.03),
        0u8..20,
    )
        .prop_map(
            |((kind, gap, chain), (va, size), dep, lat, fence, jump)| Draft {
                kind,
                gap,
                chain,
                va,
                size,
                dep: [dep.0, dep.1],
                dep_latency: [lat.0, lat.1],
                fence,
                jump,
            },
        )
}

/// The program in two forms: simple instructions folded into the ops, and one op for every
/// instruction.
fn both_forms(drafts: &[Draft]) -> (Vec<Op>, Vec<Op>) {
    let (mut grouped, mut single) = (vec![], vec![]);
    // Position in `single` of each grouped op's result.
    let mut place: Vec<usize> = vec![];
    let mut pc = PC;
    for d in drafts {
        let serial = if d.fence { flags::SERIALISING } else { 0 };
        let mut own = match d.kind {
            0..=3 => load(d.va),
            4..=5 => store(d.va),
            6 => branch(0, true),
            7 => branch(0, d.jump % 3 == 0),
            _ => compute(1, 1),
        };
        own.size = d.size;
        own.pc = pc;
        if d.kind == 7 {
            own.va = pc;
        }
        if d.kind == 6 {
            // A jump to another line, where the next op begins.
            pc = PC + u64::from(d.jump) * 64;
            own.va = pc;
        }
        let at = grouped.len();
        let link = |own: &mut Op, here: usize, place: &[usize]| {
            let mut g = [0; 2];
            for (k, g) in g.iter_mut().enumerate() {
                let far = usize::from(d.dep[k]);
                if far > 0 && far <= at {
                    *g = far as u16;
                    own.dep[k] = (here - place[at - far]).min(60_000) as u16;
                    own.dep_latency[k] = d.dep_latency[k];
                }
            }
            g
        };
        if own.kind == OpClass::Compute && !d.fence && d.chain > 0 {
            // A chain of `gap + 1` instructions of `chain` cycles each.
            let n = d.gap % 40 + 1;
            let n = n.min(255 / u16::from(d.chain));
            let latency = d.chain;
            for i in 0..n {
                let mut o = Op { latency, ..own };
                let here = single.len();
                if i == 0 {
                    let g = link(&mut o, here, &place);
                    grouped.push(Op {
                        insns: n,
                        latency: n as u8 * latency,
                        dep: g,
                        ..o
                    });
                } else {
                    o.dep = [1, 0];
                }
                single.push(o);
            }
        } else {
            own.flags |= serial;
            own.latency = d.chain;
            let gap = if own.kind == OpClass::Compute {
                0
            } else {
                d.gap
            };
            for _ in 0..gap {
                single.push(Op {
                    pc: own.pc,
                    ..compute(1, 1)
                });
            }
            let here = single.len();
            let g = link(&mut own, here, &place);
            single.push(own);
            grouped.push(Op {
                insns: gap + 1,
                dep: g,
                ..own
            });
        }
        place.push(single.len() - 1);
    }
    (grouped, single)
}

fn small() -> impl Strategy<Value = CoreSpec> {
    (
        prop::sample::select(vec![1u32, 2, 3, 4, 6, 8]),
        prop_oneof![2u32..20, Just(224)],
        1u32..20,
        1u32..20,
    )
        .prop_map(|(width, rob, load_queue, store_queue)| CoreSpec {
            width,
            rob,
            load_queue,
            store_queue,
            ..spec()
        })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn folded_instructions_cost_what_single_ones_do(
        drafts in prop::collection::vec(draft(), 1..120), spec in small(),
    ) {
        let (grouped, single) = both_forms(&drafts);
        let mut g = Bench::with(&spec, &mmu(), 16);
        let mut s = Bench::with(&spec, &mmu(), 16);
        let (cg, cs) = (g.run(&grouped), s.run(&single));
        prop_assert_eq!(cg, cs);
        prop_assert_eq!(g.core.slots(), s.core.slots());
        let (a, b) = (g.stats(), s.stats());
        prop_assert_eq!(a.instructions, b.instructions);
        prop_assert_eq!(a.mispredictions, b.mispredictions);
    }

    #[test]
    fn batches_and_quanta_change_nothing(
        drafts in prop::collection::vec(draft(), 1..120), spec in small(),
        cuts in prop::collection::vec(1usize..20, 1..20), quantum in 1u64..500,
    ) {
        let (ops, _) = both_forms(&drafts);
        let mut whole = Bench::with(&spec, &mmu(), 16);
        whole.run(&ops);
        let mut cut = Bench::with(&spec, &mmu(), 16);
        let mut from = 0;
        for n in cuts.iter().cycle() {
            let batch = &ops[from..(from + n).min(ops.len())];
            let mut at = 0;
            loop {
                let until = cut.core.now() + quantum;
                let ran = cut.run_until(batch, at, until, u64::MAX);
                at = ran.at;
                match ran.stop {
                    Stop::NeedBatch => break,
                    stop => prop_assert_eq!(stop, Stop::Quantum),
                }
            }
            from += batch.len();
            if from == ops.len() {
                break;
            }
        }
        prop_assert_eq!(whole.tree().rows, cut.tree().rows);
        prop_assert_eq!(whole.core.finish(), cut.core.finish());
    }

    #[test]
    fn every_slot_has_one_cause(
        drafts in prop::collection::vec(draft(), 1..100), spec in small(), pauses in any::<u64>(),
    ) {
        let (ops, _) = both_forms(&drafts);
        let mut b = Bench::with(&spec, &mmu(), 16);
        let mut before = b.tree();
        for (i, op) in ops.iter().enumerate() {
            b.run_until(&[*op], 0, u64::MAX, u64::MAX);
            match pauses >> (i % 64) & 31 {
                0 => b.core.kernel(100),
                1 => b.core.idle(b.core.now() + 300),
                2 => b.core.switch(),
                _ => {}
            }
            let now = b.tree();
            for (a, b) in before.rows.iter().zip(&now.rows) {
                prop_assert!(a.value <= b.value, "{} {} shrank", a.path, a.definition.name);
            }
            before = now;
            let slots = b.core.slots();
            prop_assert_eq!(slots.total().div_ceil(u64::from(spec.width)), b.core.finish());
        }
        let t = b.tree();
        let sum = |path: &str| t.rows.iter().filter(|r| r.path == path).map(|r| r.value).sum::<u64>();
        let cycles = b.core.finish();
        prop_assert_eq!(sum("core.0.slots").div_ceil(u64::from(spec.width)), cycles);
        prop_assert_eq!(t.get("core.0", "cycles"), Some(cycles));
        prop_assert!((cycles.saturating_sub(14)..=cycles).contains(&sum("core.0.cycles")));
        prop_assert_eq!(t.get("core.0.slots", "base"), t.get("core.0", "instructions"));
    }

    #[test]
    fn without_waits_for_translations_none_is_charged(
        drafts in prop::collection::vec(draft(), 1..120), spec in small(), mshrs in 1u32..20,
    ) {
        let (ops, _) = both_forms(&drafts);
        let mut b = Bench::with(&spec, &perfect(), mshrs);
        b.run(&ops);
        prop_assert_eq!(charged(&b), 0);
    }

    #[test]
    fn a_perfect_tlb_is_never_slower(drafts in prop::collection::vec(draft(), 1..200)) {
        let (ops, _) = both_forms(&drafts);
        let real = Bench::with(&spec(), &mmu(), 64).run(&ops);
        let best = Bench::with(&spec(), &perfect(), 64).run(&ops);
        prop_assert!(best <= real, "{} > {}", best, real);
    }
}

/// Slots that a run of `ops` charges to translation.
fn charged(b: &Bench) -> u64 {
    let slots = b.core.slots();
    slots.tlb + slots.walker + slots.walk
}

/// `n` updates of random words: load, add, store.
fn gups(n: u64, bytes: u64) -> Vec<Op> {
    let mut r = rng(1, "test.gups");
    (0..n)
        .flat_map(|_| {
            let va = r.random_range(0..bytes / 8) * 8;
            let write = Op {
                insns: 2,
                dep: [0, 1],
                dep_latency: [0, 1],
                ..store(va)
            };
            [
                Op {
                    insns: 5,
                    ..load(va)
                },
                write,
            ]
        })
        .collect()
}

fn cycles_of(m: &MmuSpec, ops: &[Op]) -> Cycle {
    let mut b = Bench::with(&spec(), m, 64);
    b.memory.remembers = Some(45);
    b.run(ops)
}

#[test]
fn fewer_walkers_are_never_faster_and_one_is_slower_than_four() {
    let ops = gups(20_000, 1 << 30);
    let cycles: Vec<Cycle> = [1, 2, 4, 8]
        .into_iter()
        .map(|walkers| cycles_of(&MmuSpec { walkers, ..mmu() }, &ops))
        .collect();
    assert!(cycles.is_sorted_by(|a, b| a >= b), "{cycles:?}");
    assert!(cycles[0] * 10 > cycles[2] * 11, "{cycles:?}");
}

#[test]
fn walk_caches_never_make_walks_dearer() {
    let ops = gups(20_000, 1 << 30);
    let mut off = mmu();
    off.walk_caches.entries = 0;
    let (mut with, mut without) = (
        Bench::with(&spec(), &mmu(), 64),
        Bench::with(&spec(), &off, 64),
    );
    let (fast, slow) = (with.run(&ops), without.run(&ops));
    assert!(fast < slow);
    let cycles = |b: &Bench| b.core.mmu.stats().walk_cycles;
    assert!(cycles(&with) < cycles(&without));
    assert_eq!(
        without.core.mmu.stats().walk_reads,
        4 * without.core.mmu.stats().walks
    );
}

#[test]
fn random_updates_miss_the_tlb_once_each() {
    let n = 20_000;
    let mut b = Bench::with(&spec(), &mmu(), 64);
    b.run(&gups(n, 1 << 38));
    let s = b.core.mmu.stats();
    // The store comes after its load and merges with the same walk, or hits after it.
    assert!((n..n + n / 100).contains(&s.walks), "{s:?}");
}

#[test]
fn a_dependent_chase_is_slower_than_independent_loads() {
    let mut r = rng(2, "test.chase");
    let loads: Vec<Op> = (0..5000)
        .map(|_| load(r.random_range(0u64..1 << 27) * 8))
        .collect();
    let chase: Vec<Op> = loads.iter().map(|&l| after(l, 1)).collect();
    let free = cycles_of(&mmu(), &loads);
    let bound = cycles_of(&mmu(), &chase);
    assert!(bound > 3 * free, "{bound} {free}");
}

#[test]
fn the_charge_to_translation_is_what_a_perfect_tlb_saves() {
    let mut r = rng(3, "test.charge");
    let loads: Vec<Op> = (0..5000)
        .map(|_| load(r.random_range(0u64..1 << 27) * 8))
        .collect();
    let programs = [
        gups(10_000, 1 << 30),
        loads.iter().map(|&l| after(l, 1)).collect(),
        // A walk delays the load of a chain; lines without a walk overlap with it.
        loads
            .iter()
            .flat_map(|&l| [after(l, 4), load(64), load(128), load(192)])
            .collect(),
        loads,
    ];
    for (n, ops) in programs.iter().enumerate() {
        for mshrs in [8, 64] {
            let (mut real, mut best) = (
                Bench::with(&spec(), &mmu(), mshrs),
                Bench::with(&spec(), &perfect(), mshrs),
            );
            let saved = 4 * (real.run(ops) - best.run(ops));
            let charged = charged(&real);
            assert!(
                charged.abs_diff(saved) * 20 <= saved,
                "program {n}, {mshrs} MSHRs: {charged} charged, {saved} saved"
            );
        }
    }
}

#[test]
fn two_cores_share_the_bus() {
    let l3 = CacheSpec {
        mshrs: 128,
        ..cache(2048, 16, 40, 128)
    };
    let run = |cores: u8| {
        let shared = SharedSpec {
            l3: Some(l3.clone()),
            l4: None,
            remote_latency: 80,
            background: None,
            dram: DramSpec::Ddr {
                data_rate_mts: 400,
                bus_bytes: 8,
                channels: 1,
                ranks: 1,
                bank_groups: 4,
                banks: 4,
                row_bytes: 8192,
                tcl_ns: 14.17,
                trcd_ns: 14.17,
                trp_ns: 14.17,
                tras_ns: 32.0,
                controller_ns: 20.0,
                keep_open_ns: 0.0,
                address_hash: AddressHash::LowRowBits,
                row_hit_cap: 0,
            },
        };
        let mut below = Shared::new(&shared, cores, 3.0).expect("possible");
        let table = Flat::new(1 << 40);
        let view = View::Native(&table);
        let mut all: Vec<(Core, Vec<Op>)> = (0..cores)
            .map(|c| {
                let m = Mmu::new(&perfect(), c).expect("possible");
                let core = Core::new(&spec(), m, caches(32), c).expect("possible");
                let base = u64::from(c) << 32;
                (core, (0..20_000).map(|i| load(base + i * 64)).collect())
            })
            .collect();
        let mut at = vec![0; usize::from(cores)];
        // The core with the smallest local time runs next, in small steps.
        while let Some(c) = (0..all.len())
            .filter(|&c| at[c] < all[c].1.len())
            .min_by_key(|&c| all[c].0.now())
        {
            let (core, ops) = &mut all[c];
            let until = core.now() + 100;
            let context = CoreContext {
                asid: Asid(1),
                tiers: None,
                view: &view,
                below: &mut below,
            };
            at[c] = core.run(ops, at[c], until, u64::MAX, context).at;
        }
        all.iter().map(|(c, _)| c.finish()).collect::<Vec<_>>()
    };
    let alone = run(1)[0] as f64;
    // 64 bytes at 400 MT/s of 8 bytes: 20 ns, 60 cycles.
    assert!((alone / 20_000.0 - 60.0).abs() < 2.0, "{alone}");
    for cycles in run(2) {
        assert!(
            (cycles as f64 / alone - 2.0).abs() < 0.05,
            "{cycles} {alone}"
        );
    }
}

#[test]
fn limits_are_exact_and_a_limit_is_no_end() {
    let ops = vec![compute(3, 1); 10];
    let mut b = Bench::new(&spec());
    let ran = b.run_until(&ops, 0, u64::MAX, 7);
    assert_eq!(
        (ran.at, ran.stop, b.core.instructions()),
        (3, Stop::Limit, 9)
    );
    let ran = b.run_until(&ops, 3, u64::MAX, 30);
    assert_eq!((ran.at, ran.stop), (10, Stop::Limit));
}

#[test]
fn warming_leaves_the_state_that_timed_execution_leaves() {
    let ops = gups(5000, 1 << 23);
    let mut warmed = Bench::with(&spec(), &mmu(), 64);
    let ran = warmed.warm(&ops);
    assert_eq!((ran.at, ran.stop), (ops.len(), Stop::NeedBatch));
    assert_eq!(warmed.core.instructions(), 35_000);
    assert_eq!(warmed.core.finish(), 35_000, "one cycle an instruction");
    let (s, m) = (warmed.stats(), warmed.core.mmu.stats());
    assert_eq!((s.instructions, s.cycles, s.loads), (0, 0, 0));
    assert_eq!((m.translations, m.walks), (0, 0));
    let mut timed = Bench::with(&spec(), &mmu(), 64);
    timed.run(&ops);
    let before = timed.tree();
    let more = gups(5000, 1 << 23);
    timed.run(&more);
    warmed.run(&more);
    let since = timed.tree().since(&before);
    let close = |path: &str, name: &str| {
        let (w, t) = (
            warmed.get(path, name),
            since.get(path, name).expect("there"),
        );
        assert!(
            w.abs_diff(t) * 50 <= t,
            "{path} {name}: {w} warmed, {t} timed"
        );
    };
    close("core.0.mmu.l2.main", "misses");
    close("core.0.mmu.l1d.main", "misses");
    close("core.0.l1d", "misses");
    close("core.0", "cycles");
}

#[test]
fn another_thread_inherits_nothing() {
    let mut b = Bench::new(&spec());
    b.run(&[compute(1, 1), load(1 << 20)]);
    b.core.switch();
    let begin = b.core.now();
    b.run_until(&[after(compute(1, 1), 1)], 0, u64::MAX, u64::MAX);
    assert!(
        b.core.now() < begin + DRAM,
        "no producer in the other thread"
    );
    let s = CoreSpec {
        predictor: PredictorSpec::Perfect {},
        ..spec()
    };
    let mut b = Bench::new(&s);
    b.run(&[store(64)]);
    b.core.switch();
    b.run_until(&[load(64)], 0, u64::MAX, u64::MAX);
    assert_eq!(b.stats().forwarded_loads, 0);
}

#[test]
fn impossible_cores_are_refused_by_key() {
    let refuse = |change: fn(&mut CoreSpec), key: &str| {
        let mut s = spec();
        change(&mut s);
        let m = Mmu::new(&mmu(), 0).expect("possible");
        let message = Core::new(&s, m, caches(4), 0).err().expect("refused");
        assert!(message.to_string().contains(key), "{message}");
    };
    refuse(|s| s.width = 0, "core.width");
    refuse(|s| s.rob = 1, "core.rob");
    refuse(|s| s.load_queue = 0, "core.load_queue");
    refuse(|s| s.store_queue = 0, "core.store_queue");
    refuse(|s| s.indirect_entries = 1000, "core.indirect_entries");
    refuse(
        |s| s.predictor = PredictorSpec::Bimodal { log_entries: 60 },
        "core.predictor.bimodal.log_entries",
    );
}

/// Loads, stores and branches: far apart, sequential, and across lines and pages.
fn wandering(n: usize) -> Vec<Op> {
    let mut r = rng(1, "test.wandering");
    let mut va = 0;
    (0..n)
        .map(|_| {
            va = match r.random_range(0..8) {
                0 => r.random_range(0..1u64 << 26),
                1 => r.random_range(0..1u64 << 14),
                2 => va + 4096,
                _ => va + 40,
            };
            let pc = PC + 64 * r.random_range(0..900u64);
            match r.random_range(0..6) {
                0 => branch(pc, r.random()),
                1 => compute(3, 1),
                2 => Op { pc, ..store(va) },
                _ => Op { pc, ..load(va) },
            }
        })
        .collect()
}

#[test]
fn looking_ahead_of_warming_changes_nothing() {
    let ops = wandering(40_000);
    for mmu in [mmu(), perfect()] {
        let (mut at_once, mut one_by_one) = (
            Bench::with(&spec(), &mmu, 64),
            Bench::with(&spec(), &mmu, 64),
        );
        for batch in ops.chunks(4096) {
            at_once.warm(batch);
            // A core that is given one op cannot look ahead.
            for op in batch {
                one_by_one.warm(std::slice::from_ref(op));
            }
        }
        let more = wandering(20_000);
        assert_eq!(at_once.run(&more), one_by_one.run(&more));
        assert_eq!(at_once.tree().rows, one_by_one.tree().rows);
    }
}
