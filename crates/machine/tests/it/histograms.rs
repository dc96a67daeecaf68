//! Intervals and histograms merge to the whole, and agree with the counters.

use crate::common::{metric, run_spec, spec, sum};
use pagewalk_machine::{DesignResult, HistogramResult};
use pagewalk_stats::Distribution;

const MACHINE: &str = "revelator-table1";

#[test]
fn every_statistic_of_every_core_is_in_the_intervals_and_adds_up() {
    // A turn has about 130 instructions, so the last interval is cut.
    let set = ["cores=2", "schedule.time_slice_cycles=20000"];
    let program = "gups 64MB threads=4 populate=no";
    let mut s = spec(MACHINE, &["radix"], program, 103_000, &set);
    s.options.interval = Some(20_000);
    let d = run_spec(&s).unwrap().designs.remove(0);
    let i = d.intervals.as_ref().expect("requested");
    assert_eq!(i.complete, [true, true, true, true, true, false]);
    let mut before = 0;
    for (first, n) in i.first_instruction.iter().zip(&i.instructions) {
        assert_eq!(*first, before);
        before += n;
    }
    assert_eq!(before as f64, metric(&d, "instructions"));
    for whole in &d.stats {
        let is = |c: &&pagewalk_machine::Column| c.path == whole.path && c.name == whole.name;
        let column = i.stats.iter().find(is).expect("every statistic");
        let over_intervals = if whole.gauge {
            column.values[5]
        } else {
            column.values.iter().sum()
        };
        assert_eq!(over_intervals, whole.value, "{} {}", whole.path, whole.name);
    }
    let of = |path: &str| {
        let is = |c: &&pagewalk_machine::Column| c.path == path && c.name == "walks";
        &i.stats.iter().find(is).expect("a column").values
    };
    for at in 0..6 {
        assert_eq!(
            of("cores.mmu")[at],
            of("core.0.mmu")[at] + of("core.1.mmu")[at]
        );
    }
    // Histograms of all intervals and of all cores merge to those of the whole.
    assert_eq!(i.histograms.len(), d.histograms.len());
    for (parts, whole) in i.histograms.iter().zip(&d.histograms) {
        assert_eq!((&parts.path, parts.name), (&whole.path, whole.name));
        let mut sum = Distribution::default();
        for part in &parts.buckets {
            sum.merge(&part.0);
        }
        assert_eq!(sum, whole.buckets.0, "{} {}", whole.path, whole.name);
    }
    for name in ["walk_latency", "walker_wait"] {
        let mut sum = histogram(&d, "core.0.mmu", name).buckets.0.clone();
        sum.merge(&histogram(&d, "core.1.mmu", name).buckets.0);
        assert_eq!(sum, histogram(&d, "cores.mmu", name).buckets.0);
    }
}

fn histogram<'a>(d: &'a DesignResult, path: &str, name: &str) -> &'a HistogramResult {
    let is = |h: &&HistogramResult| h.path == path && h.name == name;
    d.histograms.iter().find(is).expect("a histogram")
}

#[test]
fn histograms_count_what_counters_count() {
    for (design, set) in [
        ("radix", vec![]),
        ("thp", vec![]),
        ("radix", vec!["mmu.walkers=1"]),
        ("radix-virtual", vec![]),
        ("perfect-tlb", vec![]),
    ] {
        let mut s = spec(MACHINE, &[design], "gups 1GiB populate=no", 100_000, &set);
        s.options.limits.warmup = 1_000;
        let d = run_spec(&s).unwrap().designs.remove(0);
        let at = |path: &'static str, name: &str| sum(&d, name, |p| p == path);
        let mmu = |name: &str| at("core.0.mmu", name);
        let count_and_sum = |path: &str, name: &str| {
            let h = histogram(&d, path, name);
            (h.count, h.sum)
        };
        assert_eq!(
            count_and_sum("core.0.mmu", "walk_latency"),
            (mmu("walks"), mmu("walk_cycles"))
        );
        assert_eq!(
            count_and_sum("core.0.mmu", "walker_wait"),
            (mmu("walks"), mmu("walker_wait_cycles"))
        );
        assert_eq!(
            count_and_sum("core.0", "load_to_use").0,
            at("core.0", "loads")
        );
        let faults = metric(&d, "page_faults") as u64;
        assert!(faults > 100, "{design}: {faults}");
        assert_eq!(
            count_and_sum("os", "fault_cost"),
            (faults, at("os", "fault_cycles")),
            "{design}"
        );
        if design == "radix-virtual" {
            let kinds = ["faults_4kb", "faults_2mb", "faults_1gb"];
            let faults: u64 = kinds.iter().map(|k| at("host", k)).sum();
            let untimed = at("host", "populated_pages");
            let cost = at("host", "fault_cycles");
            assert_eq!(
                count_and_sum("host", "fault_cost"),
                (faults - untimed, cost)
            );
        }
        let waits = histogram(&d, "core.0.mmu", "walker_wait");
        if set == ["mmu.walkers=1"] {
            assert!(waits.largest > Some(0), "{waits:?}");
        }
        for h in &d.histograms {
            let quantiles = [h.p50, h.p90, h.p99, h.largest];
            assert!(quantiles.is_sorted(), "{h:?}");
            assert!(h.count == 0 || quantiles[0].is_some(), "{h:?}");
        }
    }
}
