//! The translation part of the cycle stack, compared with a run without translation.

use crate::common::{metric, run_spec, spec, sum};
use pagewalk_machine::{DesignResult, RunResult};
use pagewalk_programs::workloads;

const MACHINE: &str = "epyc-milan";

/// Runs `workload` with `designs` and measures their translation cost.
fn costed(designs: &[&str], workload: &str, instructions: u64) -> RunResult {
    let mut s = spec(MACHINE, designs, workload, instructions, &[]);
    s.options.translation_cost = true;
    s.options.limits.warmup = instructions.min(200_000);
    run_spec(&s).unwrap_or_else(|e| panic!("{workload}: {e}"))
}

/// Share of translation in the cycle stack.
fn share(d: &DesignResult) -> f64 {
    let translation = ["tlb", "walker", "walk"];
    let parts = d.cycle_stack.iter();
    let parts = parts.filter(|s| translation.contains(&s.cause));
    parts.map(|s| s.share).sum()
}

/// Asserts that the share of translation is near the saved share of the cycles: within a tenth of it,
/// or within 0.8 % of the cycles. docs/cycle-stack.md names the programs that need the second bound.
#[track_caller]
fn assert_near(share: f64, saved: f64, of: &str) {
    assert!(
        (share - saved).abs() < (0.1 * saved).max(0.008),
        "{of}: {share} of the cycles are said to be translation, which costs {saved}"
    );
}

/// Rank of each value.
fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |v: &f64| values.iter().filter(|o| *o < v).count() as f64;
    values.iter().map(rank).collect()
}

#[test]
fn the_share_of_translation_orders_programs_as_what_perfect_tlbs_save() {
    let (mut shares, mut savings) = (Vec::new(), Vec::new());
    for w in workloads() {
        let r = costed(&["radix"], &format!("{} 64MB", w.name), 200_000);
        let d = &r.designs[0];
        let (share, saved) = (share(d), d.translation_cost.expect("measured"));
        // Printed with --nocapture: the table of docs/cycle-stack.md.
        println!(
            "| `{}` | {:.1} | {:.1} |",
            w.name,
            share * 100.0,
            saved * 100.0
        );
        assert_near(share, saved, w.name);
        shares.push(share);
        savings.push(saved);
    }
    let (shares, savings) = (ranks(&shares), ranks(&savings));
    let n = shares.len() as f64;
    let apart = shares.iter().zip(&savings).map(|(a, b)| (a - b).powi(2));
    let spearman = 1.0 - 6.0 * apart.sum::<f64>() / (n * (n * n - 1.0));
    assert!(spearman > 0.98, "rank correlation {spearman}");
}

#[test]
fn the_share_of_translation_is_what_perfect_tlbs_save_whether_walks_or_mshrs_bind() {
    // Without walks, MSHRs bind at each size. With them, walkers bind at the largest.
    let saved = ["64MiB", "1GiB", "64GiB"].map(|size| {
        let r = costed(&["radix"], &format!("gups {size}"), 1_000_000);
        let d = &r.designs[0];
        let (share, saved) = (share(d), d.translation_cost.expect("measured"));
        let walker = d.cycle_stack.iter().find(|s| s.cause == "walker");
        // Printed with --nocapture: the second table of docs/cycle-stack.md.
        println!(
            "| {size} | {:.1} | {:.1} | {:.1} |",
            share * 100.0,
            walker.map_or(0.0, |s| s.share) * 100.0,
            saved * 100.0
        );
        assert_near(share, saved, size);
        saved
    });
    assert!(
        saved[0] < 0.01 && saved[1] > 0.3 && saved[2] > 0.6,
        "{saved:?}"
    );
}

#[test]
fn the_perfect_tlb_reference_may_be_one_of_the_designs() {
    let beside = costed(&["radix", "thp"], "gups 64MB", 100_000);
    let among = costed(&["radix", "thp", "perfect-tlb"], "gups 64MB", 100_000);
    assert_eq!(beside.designs.len(), 2);
    let (one, other) = (
        beside.translation_reference.expect("measured"),
        among.translation_reference.expect("measured"),
    );
    assert_eq!((&one.name, one.cycles), (&other.name, other.cycles));
    assert_eq!(one.cycles, metric(&among.designs[2], "cycles"));
    for (d, e) in beside.designs.iter().zip(&among.designs) {
        let cost = 1.0 - one.cycles / metric(d, "cycles");
        let reported = d.translation_cost.expect("reported");
        assert!((reported - cost).abs() < 1e-12, "{reported} {cost}");
        assert_eq!(Some(reported), e.translation_cost);
    }
    assert_eq!(among.designs[2].translation_cost, Some(0.0));
    // The translation cost was not requested.
    let r = run_spec(&spec(MACHINE, &["radix"], "gups 64MB", 100_000, &[])).unwrap();
    assert!(r.translation_reference.is_none() && r.designs[0].translation_cost.is_none());
}

#[test]
fn without_perfect_tlbs_to_compare_with_it_is_said_that_the_cost_is_not_known() {
    let mut s = spec(
        MACHINE,
        &["radix"],
        "gups 64MB",
        50_000,
        &["mmu.perfect=false"],
    );
    s.options.translation_cost = true;
    let r = run_spec(&s).unwrap();
    assert!(r.designs[0].translation_cost.is_none());
    assert!(
        r.warnings.iter().any(|w| w.contains("not known")),
        "{:?}",
        r.warnings
    );
    let mut mix = serde_json::to_value(&s).unwrap();
    let one = mix["source"].clone();
    mix["source"] = serde_json::json!({"mix": {"programs": [one.clone(), one]}});
    let refused = run_spec(&serde_json::from_value(mix).unwrap()).expect_err("refused");
    assert!(refused.to_string().contains("mix"), "{refused}");
}

#[test]
fn each_entry_fetched_into_a_first_level_is_one_miss() {
    // The store of an update comes while the entry for its load is being fetched.
    let r = run_spec(&spec(MACHINE, &["thp"], "gups 1GiB", 300_000, &[])).unwrap();
    let d = &r.designs[0];
    let fills = sum(d, "fills", |p| p.starts_with("core.0.mmu.l1d."));
    let misses = sum(d, "l1d_misses", |p| p == "core.0.mmu");
    assert_eq!(fills, misses);
    assert!(sum(d, "l1d_waits", |p| p == "core.0.mmu") > 0);
    let updates = metric(d, "requests");
    assert!(misses as f64 <= updates * 1.05, "{misses} for {updates}");
}
