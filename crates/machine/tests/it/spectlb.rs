//! A SpecTLB over the kernel's reservations.

use crate::common::{PLAIN, metric, one, root, sum};
use pagewalk_machine::DesignResult;
use pagewalk_machine::config::DataDir;
use pagewalk_memory::{Private, Shared};
use pagewalk_mmu::{Lookup, Mmu, WalkContext};
use pagewalk_os::{Effects, Os};
use pagewalk_stats::Tree;
use pagewalk_tables::View;
use pagewalk_units::{Access, Backing, VirtAddr};

const MACHINE: &str = "revelator-table1";
const N: u64 = 400_000;
/// Every page stays in its reservation and none is promoted, because the threshold cannot be exceeded.
const KEPT: &str = "placement.reservation.promotion_threshold=1.0";

fn own(d: &DesignResult, name: &str) -> u64 {
    sum(d, name, |p| p.ends_with(".mmu.engine.spectlb"))
}

fn of(d: &DesignResult, part: &str, name: &str) -> u64 {
    sum(d, name, |p| p == part)
}

/// Counters of the kernel.
fn kernel(d: &DesignResult) -> Vec<(&str, &str, u64)> {
    let rows = d.stats.iter().filter(|s| s.path.starts_with("os"));
    rows.map(|s| (s.path.as_str(), s.name, s.value)).collect()
}

/// Random pages of four times as many regions as memory has blocks, some of them often. Reservations are
/// made, promoted and broken, and pages move to other frames.
#[test]
fn reservations_that_come_and_go_never_mislead_it() {
    let set = ["os.memory_gb=1".to_owned()];
    let resolved = DataDir(root()).resolve(MACHINE, "spectlb-large", &set);
    let c = resolved.expect("shipped").config;
    let (ghz, seed) = (c.frequency_ghz, 1);
    let mut os = Os::new(&c.os, &c.placement, &c.page_table, ghz, seed).expect("possible");
    let engine = c.engine.expect("it has one").build(c.frequency_ghz);
    let mut mmu = Mmu::new(&c.mmu, 0).expect("possible").with_engine(engine);
    let mut private = Private::new(&c.caches, 0)
        .expect("possible")
        .with_speculation();
    let mut below = Shared::new(&c.memory, 1, ghz).expect("possible");
    let mut fx = Effects::default();
    let pid = os.spawn(false).expect("memory is plenty");
    let area = VirtAddr(1 << 40);
    os.map(pid, area, 4 << 30, true, Backing::Anonymous, &mut fx)
        .expect("a range of whole pages");
    let asid = os.asid(pid);
    // Knuth's MMIX generator: its upper bits are random enough here.
    let mut state = 1u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005);
        state = state.wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) % below
    };
    let (mut now, mut faults) = (0, 0);
    for _ in 0..60_000 {
        let regions = if random(3) == 0 { 2048 } else { 40 };
        let offset = random(regions) << 21 | random(1 << 21);
        let va = VirtAddr(area.0 + offset);
        now += random(600);
        loop {
            let lookup = Lookup {
                asid,
                va,
                access: Access::Write,
                pc: 0,
                now,
            };
            let view = os.view(pid);
            let context = WalkContext {
                tiers: None,
                view: &view,
                private: &mut private,
                below: &mut below,
            };
            let View::Native(table) = view else {
                unreachable!("there is no host")
            };
            let expected = table.translate(va);
            if let Ok(answer) = mmu.translate(lookup, context) {
                let found = expected.expect("what is found is mapped");
                let inside = found.size.bytes() - 1;
                assert_eq!(answer.pa.0, found.frame.base.0 + (va.0 & inside));
                break;
            }
            faults += 1;
            os.fault(pid, va, Access::Write, &mut fx)
                .expect("broken up reservations make room");
            for what in fx.invalidate.drain(..) {
                mmu.invalidate(&what);
            }
        }
    }
    let stats = os.stats();
    assert!(stats.promotions >= 20, "{} promotions", stats.promotions);
    assert!(stats.demotions >= 20, "{} demotions", stats.demotions);
    let mut tree = Tree::default();
    mmu.report("mmu", &mut tree);
    let own = |name: &str| tree.get("mmu.engine.spectlb", name).expect("reported");
    let data = |name: &str| tree.get("mmu.engine.data", name).expect("reported");
    assert!(own("invalidated") >= 50, "{}", own("invalidated"));
    assert_eq!(own("mispredictions"), 0);
    // Guesses that no walk confirmed were first touches.
    assert!(data("right") >= 1000 && data("wrong") <= faults);
}

#[test]
fn spectlb_is_looked_up_at_each_walk_and_misses_less_if_larger() {
    let at = |design: &str, share: &str| {
        let set = [share, KEPT, "os.memory_gb=16"];
        let d = one(MACHINE, design, "gups 1GiB", N, &set);
        assert_eq!(own(&d, "lookups"), of(&d, "core.0.mmu", "walks"));
        assert_eq!(own(&d, "lookups"), own(&d, "hits") + own(&d, "misses"));
        let merged = of(&d, "core.0.mmu", "walks_merged");
        assert_eq!(own(&d, "merged_lookups"), merged);
        let guesses = of(&d, "core.0.mmu.engine.data", "guesses");
        assert_eq!(own(&d, "hits") + own(&d, "merged_hits"), guesses);
        own(&d, "misses") as f64 / own(&d, "lookups") as f64
    };
    let [low, high] = ["0.75", "0.15"].map(|s| format!("os.fragmentation.served_2mb={s}"));
    // 512 random regions, of which 64 or all have an entry.
    let near = |share: f64, expected: f64| {
        assert!((share - expected).abs() < 0.08, "{share} for {expected}");
    };
    near(at("spectlb", &low), 1.0 - 64.0 / 512.0);
    near(at("spectlb-large", &low), 0.25);
    near(at("spectlb-large", &high), 0.85);
}

#[test]
fn spectlb_changes_only_time_and_a_perfect_engine_is_never_slower() {
    let set = [&PLAIN[..], &[KEPT]].concat();
    let run = |design: &str, more: &[&str]| {
        let set = [&set[..], more].concat();
        one(MACHINE, design, "gups 1GiB", N, &set)
    };
    let none = run("thp-reservation", &[]);
    let large = run("spectlb-large", &[]);
    assert_eq!(kernel(&none), kernel(&large));
    assert_eq!(own(&large, "mispredictions"), 0);
    let perfect = run("thp-reservation", &["engine.perfect.what=data"]);
    let [none, large, perfect] = [none, large, perfect].map(|d| metric(&d, "cycles"));
    assert!(perfect <= 1.005 * large, "{perfect} {large}");
    assert!(large <= 0.95 * none, "{large} {none}");
}
