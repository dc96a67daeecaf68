//! Worst-case cost of an STLT, and the guard that turns it off if it costs more than it saves.

use pagewalk_machine::{Design, DesignResult};

use crate::common::store::{Store, design, run, table, unit};
use crate::common::{metric, sum};

const PERIOD: u64 = 2000;
const TRIAL: u64 = 100;

fn guarded(rows: u64, most_rows: u64) -> Design {
    design(
        "stlt",
        &[
            &format!("shortcut.stlt.rows={rows}"),
            &format!("shortcut.stlt.guard.period={PERIOD}"),
            &format!("shortcut.stlt.guard.trial={TRIAL}"),
            &format!("shortcut.stlt.guard.most_rows={most_rows}"),
        ],
    )
}

fn plain(rows: u64) -> Design {
    design("stlt", &[&format!("shortcut.stlt.rows={rows}")])
}

fn guard(d: &DesignResult, name: &str) -> u64 {
    sum(d, name, |p| p == "stlt.guard")
}

fn cost(d: &DesignResult) -> f64 {
    metric(d, "cycles_per_request")
}

/// The unit and the kernel account for all loads and inserts.
fn check(d: &DesignResult) {
    let of = |names: &[&str]| -> u64 { names.iter().map(|n| table(d, n)).sum() };
    let loads = of(&["hits", "no_row", "invalid", "no_table"]) + guard(d, "off_loads");
    assert_eq!(table(d, "loads"), loads);
    let inserts = ["new_rows", "matching_rows", "replaced_rows", "given_up"];
    assert_eq!(table(d, "inserts"), of(&inserts) + guard(d, "off_inserts"));
    assert_eq!(unit(d, ".stlt", "loads"), table(d, "loads"));
    let trials = guard(d, "kept_on") + guard(d, "kept_off");
    assert_eq!(guard(d, "trials"), trials);
    // An insertion that enters nothing does not walk.
    let walked = table(d, "inserts") - guard(d, "off_inserts");
    assert_eq!(unit(d, ".stlt", "walks"), walked);
}

const SHARE: f64 = TRIAL as f64 / (PERIOD + TRIAL) as f64;

/// No key is queried twice, so a table can only cost. With the guard it costs as much only during trials.
/// Otherwise it costs the latencies of its two instructions and a line that nothing waits for.
#[test]
fn a_program_without_locality_has_it_off_and_pays_for_trials_alone() {
    let program = Store {
        requests: 60_000,
        fresh: true,
        serial: true,
        ..Store::default()
    };
    let limits = serde_json::json!({"warmup_requests": 20_000});
    let rows = 1 << 20;
    let (without, _) = run(&design("radix", &[]), program, &limits);
    let (on, queries) = run(&plain(rows), program, &limits);
    let (guarded, _) = run(&guarded(rows, rows), program, &limits);
    assert!(
        queries.loads - queries.nothing < queries.loads / 1000,
        "{queries:?}"
    );
    let [without, on, with] = [&without, &on, &guarded].map(cost);
    assert!(on > without + 50.0, "{on} {without}");
    let bare = 6.0 + 4.0;
    // The line of an insertion occupies one of ten MSHRs while it is fetched, for 40 cycles, 45 ns and
    // its transfer at 7.6 GB/s. Another line may wait for that transfer.
    let transfer = 64.0 / 7.6 * 2.66;
    let line = (40.0 + 45.0 * 2.66 + transfer) / 10.0 + transfer;
    let most = without + bare + line + 1.5 * SHARE * (on - without);
    assert!(
        with <= most,
        "{with} for {without} and {on}: at most {most}"
    );
    check(&guarded);
    assert!(guard(&guarded, "trials") >= 18);
    assert_eq!(guard(&guarded, "kept_on"), 0);
    let off = guard(&guarded, "off_loads") as f64 / table(&guarded, "loads") as f64;
    assert!((off - (1.0 - SHARE)).abs() < 0.01, "{off}");
    let time =
        guard(&guarded, "off_cycles") as f64 / sum(&guarded, "cycles", |p| p == "core.0") as f64;
    assert!(time > 0.9 && time <= 1.0, "{time}");
}

#[test]
fn a_program_that_profits_keeps_it_on() {
    let program = Store {
        requests: 70_000,
        ..Store::default()
    };
    let limits = serde_json::json!({"warmup_requests": 40_000});
    let rows = 1 << 16;
    let (without, _) = run(&design("radix", &[]), program, &limits);
    let (on, _) = run(&plain(rows), program, &limits);
    let (guarded, _) = run(&guarded(rows, rows), program, &limits);
    let [without, on, with] = [&without, &on, &guarded].map(cost);
    assert!(on < without, "{on} {without}");
    let most = on + 2.0 * SHARE * (without - on) + 1.0;
    assert!(
        with <= most,
        "{with} for {without} and {on}: at most {most}"
    );
    check(&guarded);
    let (kept, trials) = (guard(&guarded, "kept_on"), guard(&guarded, "trials"));
    assert!(
        trials >= 13 && kept * 10 >= trials * 9,
        "{kept} of {trials}"
    );
}

#[test]
fn a_table_that_is_too_small_is_doubled_until_it_helps() {
    let program = Store {
        requests: 60_000,
        ..Store::default()
    };
    let (d, _) = run(&guarded(1024, 1 << 16), program, &serde_json::json!({}));
    check(&d);
    let rows = table(&d, "bytes") / 16;
    assert_eq!(rows, 1024 << guard(&d, "resizes"));
    // 12,000 keys, half of which have to be found.
    assert!((8192..=1 << 16).contains(&rows), "{rows}");
    assert_eq!(table(&d, "tables"), 1 + guard(&d, "resizes"));
    let (small, _) = run(&plain(1024), program, &serde_json::json!({}));
    assert!(table(&d, "hits") > 3 * table(&small, "hits"));
}

/// docs/stlt.md, "What it can cost": each request misses.
#[test]
fn a_request_that_misses_costs_no_more_than_the_closed_form() {
    let program = Store {
        requests: 30_000,
        fresh: true,
        serial: true,
        ..Store::default()
    };
    let limits = serde_json::json!({"warmup_requests": 20_000});
    // The line of a set is only in memory.
    let rows = 1 << 22;
    let levels = 4.0;
    for ns in [45.0, 90.0] {
        let [without, with] = ["radix", "stlt"].map(|name| {
            let mut d = design(name, &[]);
            if name == "stlt" {
                d = plain(rows);
            }
            d.config.memory.dram = pagewalk_memory::DramSpec::fixed(ns);
            run(&d, program, &limits)
        });
        assert!(with.1.nothing * 1000 >= with.1.loads * 999, "{:?}", with.1);
        let memory = 40.0 + (ns * 2.66f64).round();
        let (load, insert, walk) = (6.0, 4.0, 1.0 + levels * memory);
        let more = cost(&with.0) - cost(&without.0);
        let at_most = memory + load + walk + insert + (1.0 + levels) * memory;
        // The program waits for the query and for the result of the insertion.
        let at_least = memory + load + insert;
        assert!(
            (at_least..=at_most).contains(&more),
            "{ns} ns: {at_least} <= {more} <= {at_most}"
        );
    }
}
