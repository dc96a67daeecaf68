//! Laws of tiered placement and of the engine that guesses by it, in whole machines.

use crate::common::{PLAIN, metric, one, run_spec, spec, sum};
use pagewalk_machine::{DesignResult, Status};

const MACHINE: &str = "revelator-table1";
const N: u64 = 400_000;
const WORKLOADS: [&str; 3] = ["gups 256MB", "bfs 64MB", "kv-hash 64MB"];

fn at(design: &str, workload: &str, set: &[&str]) -> DesignResult {
    one(MACHINE, design, workload, N, &[&PLAIN[..], set].concat())
}

fn cycles(d: &DesignResult) -> f64 {
    metric(d, "cycles")
}

fn guesses(d: &DesignResult, kind: &str, name: &str) -> u64 {
    sum(d, name, |p| p.ends_with(&format!("mmu.engine.{kind}")))
}

/// Share of misses with a correct guess of the data. Share of program pages that the kernel at `placed`
/// has placed by its hash.
fn guessed_and_hashed(d: &DesignResult, placed: &str) -> (f64, f64) {
    let at_mmu = |p: &str| p.ends_with(".mmu");
    let misses = sum(d, "walks", at_mmu) + sum(d, "walks_merged", at_mmu);
    let of = |name: &str| {
        let rows = d.since_boot.iter().filter(|s| s.path.starts_with(placed));
        let values = rows.filter(|s| s.name == name).map(|s| s.value);
        values.sum::<u64>() as f64
    };
    let hashed = of("data_hits") / (of("data_hits") + of("data_fallbacks"));
    (guesses(d, "data", "right") as f64 / misses as f64, hashed)
}

/// Revelator's placement without an engine.
fn placed(workload: &str, set: &[&str]) -> DesignResult {
    let hashed = ["placement.tiered_hash.tiers=6"];
    at("radix", workload, &[&hashed[..], set].concat())
}

/// The engine's counts of a kind are sums over its tiers. Each line that a tier names is guessed or
/// withheld, and each guess is right or wrong.
fn adds_up(whole: &dyn Fn(&str) -> u64, parts: &dyn Fn(&str) -> u64, what: &str) {
    for name in [
        "guesses", "right", "wrong", "fetched", "merged", "useless", "dropped",
    ] {
        assert_eq!(whole(name), parts(name), "{name} {what}");
    }
    let kept = [
        "withheld_by_share",
        "withheld_by_delay",
        "withheld_by_oracle",
        "repeated",
    ];
    let kept: u64 = kept.into_iter().map(parts).sum();
    assert_eq!(parts("candidates"), parts("guesses") + kept, "{what}");
    assert_eq!(whole("guesses"), whole("right") + whole("wrong"), "{what}");
}

#[test]
fn a_perfect_engine_is_never_slower_than_revelator() {
    for workload in WORKLOADS {
        for what in ["data", "entries", "both"] {
            for denied in ["0", "0.7"] {
                let pressure = format!("placement.tiered_hash.denied={denied}");
                let kinds = format!("engine.revelator.what={what}");
                let guessed = at("revelator", workload, &[&pressure, &kinds]);
                let known = format!("engine.perfect={{what=\"{what}\",latency=2}}");
                let known = at("revelator", workload, &[&pressure, &known]);
                assert!(
                    cycles(&guessed) >= cycles(&known) * 0.995,
                    "{workload}, {what}, {denied} denied: {} cycles guessed, {} known",
                    cycles(&guessed),
                    cycles(&known)
                );
            }
        }
    }
}

/// Each wrong guess takes bandwidth, and so does the refill of the line that it evicts. Guesses cost no
/// more than that.
#[test]
fn guesses_cost_at_most_the_bandwidth_that_they_waste() {
    for workload in WORKLOADS {
        for (denied, rate) in [("0.9", "2400"), ("0.5", "400")] {
            let pressure = format!("placement.tiered_hash.denied={denied}");
            let memory = format!("memory.dram.ddr.data_rate_mts={rate}");
            let without = placed(workload, &[&pressure, &memory]);
            let set = [&*pressure, &memory, "engine.revelator.filter=off"];
            let with = at("revelator", workload, &set);
            // The wasted lines include those still unused in the cache at the end.
            let lines = |name: &str| sum(&with, name, |p| p.ends_with(".l2"));
            let wasted = lines("speculative_issued") - lines("speculative_useful");
            assert!(wasted > 0);
            // 64 bytes over 8, at 2.9 GHz.
            let line = 8000.0 / rate.parse::<f64>().unwrap() * 2.9;
            let most = cycles(&without) * 1.005 + 2.0 * wasted as f64 * line;
            assert!(
                cycles(&with) <= most,
                "{workload}, {denied} denied, {rate} MT/s: {} cycles, {} without, {wasted} lines wasted",
                cycles(&with),
                cycles(&without)
            );
        }
    }
}

#[test]
fn guesses_are_right_as_often_as_pages_lie_where_the_hash_says() {
    // Kernel and engine exclude the same frames, for any page table.
    let hashed_to_less = "placement.tiered_hash.contiguous_mb=1024";
    let tables: [&[&str]; 3] = [
        &[],
        &[hashed_to_less, "page_table.elastic_cuckoo={}"],
        &[hashed_to_less, "page_table.memory_efficient={}"],
    ];
    for (denied, table) in [0.0, 0.5, 0.9]
        .into_iter()
        .flat_map(|d| tables.map(|t| (d, t)))
    {
        let pressure = format!("placement.tiered_hash.denied={denied}");
        let data = "engine.revelator={what=\"data\",filter=\"off\"}";
        let set = [&[&*pressure, data][..], table].concat();
        let d = at("revelator", "gups 256MB", &set);
        // GUPS accesses all pages equally; with six tries, at most 1 - p^6 of them are hashed.
        let (right, hashed) = guessed_and_hashed(&d, "os.tiered_hash");
        assert!(
            (right - hashed).abs() < 0.02,
            "{denied} denied, {table:?}: {right} of the misses guessed, {hashed} of the pages hashed"
        );
    }
}

#[test]
fn an_engine_without_anything_to_guess_changes_nothing() {
    let set = [
        "placement.tiered_hash.page_tables=none",
        "engine.revelator.what=entries",
    ];
    for workload in WORKLOADS {
        let (with, without) = (at("revelator", workload, &set), placed(workload, &set[..1]));
        let rows = |d: &DesignResult| -> Vec<(String, &str, u64)> {
            let own = |s: &&pagewalk_machine::Stat| {
                !s.path.contains("engine") && !s.name.starts_with("speculative")
            };
            let row = |s: &pagewalk_machine::Stat| (s.path.clone(), s.name, s.value);
            d.stats.iter().filter(own).map(row).collect()
        };
        assert_eq!(rows(&with), rows(&without), "{workload}");
        assert_eq!(guesses(&with, "entries", "guesses"), 0);
    }
}

#[test]
fn every_guess_of_every_tier_is_judged_and_every_fetch_is_the_caches() {
    for set in [
        &["engine.revelator.filter=off"][..],
        &["placement.tiered_hash.denied=0.5"],
        &[
            "engine.revelator.filter=perfect",
            "placement.tiered_hash.denied=0.5",
        ],
        &["cores=2"],
    ] {
        let mut s = spec(MACHINE, &["revelator"], "bfs 64MB", N, set);
        s.options.limits.warmup = 100_000;
        let d = run_spec(&s).unwrap().designs.remove(0);
        assert_eq!(d.status, Status::Complete, "{:?}", d.message);
        let mut fetched = 0;
        for kind in ["data", "entries"] {
            let whole = |name: &str| guesses(&d, kind, name);
            let tier = format!("mmu.engine.{kind}.");
            let parts = |name: &str| -> u64 {
                let rows = d.stats.iter();
                let of_tiers = rows.filter(|s| s.name == name && s.path.contains(&tier));
                of_tiers.map(|s| s.value).sum()
            };
            adds_up(&whole, &parts, &format!("{kind} {set:?}"));
            fetched += whole("fetched");
            assert!(whole("right") > 0, "{kind} {set:?}");
        }
        assert_eq!(
            fetched,
            sum(&d, "speculative_issued", |p| p.ends_with(".l2"))
        );
    }
}

#[test]
fn an_engine_that_cannot_guess_is_refused_with_a_sentence() {
    for (design, set, key) in [
        ("radix", "engine.revelator={}", "placement.tiered_hash"),
        (
            "revelator",
            "engine.revelator.large=true",
            "placement.tiered_hash.promotion_threshold",
        ),
        ("revelator", "caches.walks_enter=l3", "caches.walks_enter"),
        (
            "revelator",
            "virtual={placement={buddy={}},page_table={radix={levels=4}}}",
            "virtual.placement",
        ),
        (
            "revelator",
            "engine.revelator.nested=both",
            "engine.revelator.nested",
        ),
        (
            "revelator",
            "page_table.elastic_cuckoo={}",
            "a walker reads all ways",
        ),
        (
            "revelator",
            "page_table.memory_efficient={},engine.revelator.what=entries",
            "expected what = \"data\"",
        ),
        (
            "revelator",
            "placement.tiered_hash.contiguous_mb=70000",
            "placement.tiered_hash.contiguous_mb is 70000; expected at most half",
        ),
        (
            "revelator-virtual",
            "virtual.placement.tiered_hash.contiguous_mb=70000",
            "virtual.placement.tiered_hash.contiguous_mb",
        ),
        (
            "revelator",
            "placement.tiered_hash.hash_of=both",
            "placement.tiered_hash.hash_of",
        ),
        ("revelator-virtual", "virtual.shadow=true", "virtual.shadow"),
        (
            "revelator-virtual",
            "engine.revelator.what=both",
            "engine.revelator.what",
        ),
        (
            "revelator-virtual",
            "virtual.placement.tiered_hash.hash_of=guest_physical",
            "hash_of is guest_physical",
        ),
        (
            "revelator-virtual-nested",
            "virtual.placement.tiered_hash.hash_of=guest_physical",
            "since guesses at the miss hash virtual pages",
        ),
        (
            "revelator-virtual-nested",
            "page_table.elastic_cuckoo={}",
            "expected page_table.radix",
        ),
        (
            "revelator-virtual-nested",
            "engine.revelator.nested=horizontal",
            "expected nested = \"both\"",
        ),
        (
            "revelator-virtual",
            "engine.revelator={nested=\"horizontal\",what=\"entries\"},virtual.page_table.elastic_cuckoo={}",
            "expected virtual.page_table.radix",
        ),
    ] {
        let refused = run_spec(&spec(MACHINE, &[design], "gups 64MB", 1000, &[set]));
        let what = refused.expect_err(set).to_string();
        assert!(what.contains(key), "{design} {set}: {what}");
    }
}

/// Designs, and what can be guessed in their nested walks.
const NESTED: [(&str, &[&str]); 6] = [
    ("revelator-virtual", &[]),
    (
        "revelator-virtual",
        &[
            "engine.revelator.nested=diagonal",
            "engine.revelator.what=both",
        ],
    ),
    (
        "revelator-virtual",
        &[
            "engine.revelator.nested=horizontal",
            "engine.revelator.what=both",
            "virtual.placement.tiered_hash.hash_of=guest_physical",
        ],
    ),
    ("revelator-virtual-nested", &[]),
    // The guest's ways and the host's, by guest-physical page.
    (
        "revelator-virtual-nested",
        &[
            "engine.revelator.nested=horizontal",
            "page_table.elastic_cuckoo={}",
        ],
    ),
    // For a radix guest only the upper levels, which hardly miss in the caches.
    (
        "revelator-virtual-nested",
        &[
            "virtual.page_table.elastic_cuckoo={}",
            "mmu.walk_caches.entries=0",
            "mmu.nested_tlb.entries=4",
        ],
    ),
];

/// As [`at`], with `set` and `more` together.
fn nested(design: &str, set: &[&str], workload: &str, more: &[&str]) -> DesignResult {
    at(design, workload, &[set, more].concat())
}

#[test]
fn a_perfect_engine_in_nested_walks_is_never_slower_than_revelator() {
    for (design, set) in NESTED {
        for workload in ["gups 256MB", "bfs 64MB"] {
            for denied in ["0", "0.7"] {
                let pressure = format!("virtual.placement.tiered_hash.denied={denied}");
                let guessed = nested(design, set, workload, &[&pressure]);
                let what = if set.is_empty() && design == "revelator-virtual" {
                    "data"
                } else {
                    "both"
                };
                let engine = format!("engine.perfect={{what=\"{what}\",latency=2,nested=true}}");
                let others: Vec<&str> = set
                    .iter()
                    .copied()
                    .filter(|s| !s.starts_with("engine"))
                    .collect();
                let known = nested(design, &others, workload, &[&pressure, &engine]);
                let name = format!("{design} {set:?}, {workload}, {denied} denied");
                assert!(
                    cycles(&guessed) >= cycles(&known) * 0.995,
                    "{name}: {} guessed, {} known",
                    cycles(&guessed),
                    cycles(&known)
                );
                // It costs no more than it wastes.
                let hashed = [&pressure, "virtual.placement.tiered_hash.tiers=6"];
                let without = cycles(&nested("radix-virtual", &others, workload, &hashed));
                let lines = |name: &str| sum(&guessed, name, |p| p.ends_with(".l2"));
                let wasted = lines("speculative_issued") - lines("speculative_useful");
                // 64 bytes over 8 at 2400 MT/s and 2.9 GHz.
                let most = without * 1.005 + 2.0 * wasted as f64 * 8.0 / 2.4 * 2.9;
                let cycles = cycles(&guessed);
                // A walk waits longest for the guest's last entry.
                let gains = denied == "0" && design == "revelator-virtual-nested" && set.is_empty();
                let most = if gains && workload == "gups 256MB" {
                    without / 1.1
                } else {
                    most
                };
                assert!(
                    cycles <= most,
                    "{name}: {without} without, {cycles} guessed, {wasted} lines wasted"
                );
            }
        }
    }
}

#[test]
fn guesses_of_hosts_are_right_as_often_as_the_host_has_hashed_pages() {
    for denied in [0.0, 0.5, 0.9] {
        let pressure = format!("virtual.placement.tiered_hash.denied={denied}");
        let set = [&*pressure, "engine.revelator.filter=off"];
        let d = at("revelator-virtual", "gups 256MB", &set);
        let (right, hashed) = guessed_and_hashed(&d, "host.tiered_hash");
        assert!(
            (right - hashed).abs() < 0.02,
            "{denied} denied: {right} of the misses guessed, {hashed} of the pages hashed"
        );
        assert!(
            !d.stats.iter().any(|s| s.path.ends_with("engine.entries")),
            "data only"
        );
    }
}

#[test]
fn every_guess_within_nested_walks_is_judged_and_every_fetch_is_the_caches() {
    for (design, set) in NESTED {
        let mut s = spec(
            MACHINE,
            &[design],
            "bfs 64MB",
            N,
            &[&PLAIN[..], set, &["cores=2"]].concat(),
        );
        s.options.limits.warmup = 100_000;
        let d = run_spec(&s).unwrap().designs.remove(0);
        assert_eq!(d.status, Status::Complete, "{:?}", d.message);
        let mut fetched = 0;
        for kind in ["data", "entries", "steps"] {
            let of = |name: &str, is: &dyn Fn(&str) -> bool| -> u64 {
                let rows = d.stats.iter().filter(|s| s.name == name && is(&s.path));
                rows.map(|s| s.value).sum()
            };
            let at = format!("mmu.engine.{kind}");
            let whole = |name: &str| of(name, &|p| p.ends_with(&at));
            let parts = |name: &str| of(name, &|p| p.contains(&format!("{at}.")));
            adds_up(&whole, &parts, &format!("{kind} {design} {set:?}"));
            fetched += whole("fetched");
            let made = d
                .stats
                .iter()
                .any(|s| s.path.ends_with(&format!("mmu.engine.{kind}")));
            assert_eq!(whole("right") > 0, made, "{kind} {design} {set:?}");
        }
        assert_eq!(
            fetched,
            sum(&d, "speculative_issued", |p| p.ends_with(".l2"))
        );
    }
}
