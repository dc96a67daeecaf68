//! Laws that hold for every shipped design, and that some other simulators violate.

use std::sync::OnceLock;

use crate::common::{PLAIN, metric, one, run, run_spec, shipped, spec, sum};
use pagewalk_machine::{DesignResult, Status};

const MACHINE: &str = "revelator-table1";
const WORKLOADS: [&str; 2] = ["gups 256MB", "bfs 64MB"];
const N: u64 = 400_000;

fn cycles(d: &DesignResult) -> f64 {
    metric(d, "cycles")
}

/// `less` may be faster than `more` by at most half a percent.
fn never_faster(less: f64, more: f64, what: &str) {
    assert!(
        less >= more * 0.995,
        "{what}: {less} cycles with less hardware, {more} with more"
    );
}

fn designs() -> Vec<String> {
    shipped("designs")
}

/// Every shipped design on `workload`, simulated in one pass for all laws that read it.
/// `designs_in_one_pass_do_as_they_do_alone` shows that designs in a pass do not affect each other.
fn every_design_on(workload: &str) -> &'static [DesignResult] {
    static PASSES: [OnceLock<Vec<DesignResult>>; 2] = [OnceLock::new(), OnceLock::new()];
    let pass = WORKLOADS.iter().position(|w| *w == workload);
    PASSES[pass.expect("one of WORKLOADS")].get_or_init(|| {
        let names = designs();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let result = run(MACHINE, &names, workload, N, &[]);
        for d in &result.designs {
            assert_eq!(
                d.status,
                Status::Complete,
                "{} on {workload}: {:?}",
                d.name,
                d.message
            );
        }
        result.designs
    })
}

/// The result of a shipped design in the pass of [`every_design_on`].
fn shipped_on(design: &str, workload: &str) -> &'static DesignResult {
    let mut pass = every_design_on(workload).iter();
    pass.find(|d| d.name == design).expect("a shipped design")
}

#[test]
fn every_design_runs_on_every_machine_and_uses_its_page_table() {
    for machine in shipped("machines") {
        let names = designs();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let result = run(&machine, &names, "gups 64MB", 100_000, &[]);
        for d in &result.designs {
            assert_eq!(
                d.status,
                Status::Complete,
                "{} on {machine}: {:?}",
                d.name,
                d.message
            );
            assert_eq!(
                metric(d, "instructions"),
                100_000.0,
                "{} on {machine}",
                d.name
            );
            assert!(metric(d, "page_table_bytes") > 0.0);
            if d.name == "perfect-tlb" {
                assert_eq!(metric(d, "walks"), 0.0);
            } else {
                assert!(
                    metric(d, "walks") > 0.0,
                    "{} on {machine} never walked",
                    d.name
                );
            }
        }
    }
}

#[test]
fn hits_and_misses_add_up_to_accesses_everywhere() {
    for workload in WORKLOADS {
        for d in every_design_on(workload) {
            let design = &d.name;
            let mut checked = 0;
            for s in &d.stats {
                let get = |n: &str| {
                    d.stats
                        .iter()
                        .find(|o| o.path == s.path && o.name == n)
                        .map(|o| o.value)
                };
                if (s.name == "lookups" || s.name == "accesses")
                    && let (Some(h), Some(m)) = (get("hits"), get("misses"))
                {
                    let w = get("waits").unwrap_or(0);
                    assert_eq!(h + w + m, s.value, "{} {design} {workload}", s.path);
                    checked += 1;
                }
            }
            assert!(checked >= 4, "only {checked} arrays were checked");
            each_part_counts_what_the_others_ask_of_it(d, &format!("{design} {workload}"));
        }
    }
}

/// Different components count the two sides of a conservation law.
fn each_part_counts_what_the_others_ask_of_it(d: &DesignResult, what: &str) {
    let of = |path: &str, name: &str| {
        let row = d.stats.iter().find(|s| s.path == path && s.name == name);
        row.unwrap_or_else(|| panic!("no {path}.{name} in {what}"))
            .value
    };
    let core = |name| of("core.0", name);
    let mmu = |name| of("core.0.mmu", name);
    // A counter that only some designs have.
    let part = |part: &str, name: &str| {
        let path = format!("core.0.mmu.{part}");
        let rows = d.stats.iter();
        let own = rows.filter(|s| s.path == path && s.name == name);
        own.map(|s| s.value).sum::<u64>()
    };
    let in_memory = |name: &str| part("in_memory_tlb", name);
    // Saved by all translation sources.
    let asked = |name: &str| {
        let rows = d.stats.iter();
        let own = rows.filter(|s| s.path.ends_with(".asked") && s.name == name);
        own.map(|s| s.value).sum::<u64>()
    };
    let beside_l1 = part("colt_fa", "hits");
    let ranges = |name: &str| part("range_tlb", name);
    let beside_l2 = part("coalesced", "hits") + ranges("served");
    let array = |level: &str, name: &str| of(&format!("core.0.mmu.{level}.main"), name);
    let hits = |level: &str| {
        let of_level = format!("core.0.mmu.{level}");
        sum(d, "hits", |p| p.starts_with(&of_level))
    };
    if mmu("l1d_misses") > 0 {
        let mut unknown = 0;
        for level in ["l1d", "l1i"] {
            let [misses, waits] =
                ["misses", "waits"].map(|n| of("core.0.mmu", &format!("{level}_{n}")));
            let known = hits(&format!("{level}.")) + misses + waits;
            unknown += array(level, "lookups") - known;
            // Each miss has one fill, except walks that end in a fault.
            let fills = sum(d, "fills", |p| {
                p.starts_with(&format!("core.0.mmu.{level}."))
            });
            assert!(
                (misses - mmu("faults").min(misses)..=misses).contains(&fills),
                "{what} {level}: {fills} entries for {misses} misses"
            );
        }
        assert_eq!(unknown, beside_l1, "{what}");
        let missed = mmu("l1d_misses") + mmu("l1i_misses");
        let buffered = part("prefetch_buffer", "hits");
        let walked = mmu("walks") + mmu("l2_waits") + asked("walks_avoided") + buffered;
        assert_eq!(missed, mmu("l2_hits") + beside_l2 + walked, "{what}");
        let waited = mmu("l1d_waits") + mmu("l1i_waits") + mmu("l2_waits");
        let merged = mmu("l2_waits")..=waited;
        let both = mmu("walks_merged") + asked("merged");
        assert!(merged.contains(&both), "{what}");
        // A source may be in the place of this array.
        if d.stats.iter().any(|s| s.path == "core.0.mmu.l2.main") {
            assert_eq!(mmu("l2_hits"), hits("l2."), "{what}");
            assert_eq!(missed, array("l2", "lookups"), "{what}");
            assert_eq!(
                walked,
                array("l2", "lookups") - hits("l2.") - ranges("served"),
                "{what}"
            );
        }
    }
    // A load that an older store forwards to accesses no cache. A load of two lines accesses both.
    let (loads, stores) = (of("core.0.l1d", "loads"), of("core.0.l1d", "stores"));
    let operands = core("loads") + core("stores");
    let accesses = loads + stores + core("forwarded_loads");
    assert!(
        (operands..=operands + core("split_accesses")).contains(&accesses),
        "{what}: {accesses} for {operands}"
    );
    assert_eq!(core("fetched_lines"), of("core.0.l1i", "fetches"), "{what}");
    let own_misses = |path| of(path, "misses") - of(path, "merged");
    // Lines of an in-memory TLB are read, and written by fills.
    let lines = in_memory("lookups") + in_memory("fills");
    assert_eq!(
        of("core.0.l2", "walks"),
        mmu("walk_reads")
            + part("prefetcher", "walk_reads")
            + lines
            + asked("ended_reads")
            + asked("own_reads")
            + ranges("table_reads"),
        "{what}"
    );
    assert_eq!(
        of("core.0.l2", "accesses") - of("core.0.l2", "walks"),
        own_misses("core.0.l1i") + own_misses("core.0.l1d"),
        "{what}"
    );
    assert_eq!(of("l3", "accesses"), own_misses("core.0.l2"), "{what}");
    let prefetches = of("core.0.l1d", "prefetches_issued") + of("core.0.l1i", "prefetches_issued");
    assert_eq!(of("core.0.l2", "prefetch_accesses"), prefetches, "{what}");
}

#[test]
fn the_cycle_stack_adds_up() {
    for workload in WORKLOADS {
        for d in every_design_on(workload) {
            let design = &d.name;
            let stack: f64 = d.cycle_stack.iter().map(|s| s.cycles).sum();
            let whole = cycles(d);
            assert!(
                (stack - whole).abs() <= 2.0 + whole * 1e-6,
                "{design} {workload}: {stack} of {whole}"
            );
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_on_any_number_of_host_threads() {
    let text = |threads: usize| {
        let names = designs();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut s = spec(MACHINE, &names, "bfs 16MB threads=2", 200_000, &["cores=2"]);
        s.options.host_threads = Some(threads);
        serde_json::to_string(&run_spec(&s).unwrap().designs).unwrap()
    };
    let alone = text(1);
    assert_eq!(alone, text(1));
    assert_eq!(alone, text(2));
    assert_eq!(alone, text(4));
}

#[test]
fn designs_in_one_pass_do_as_they_do_alone() {
    let names = designs();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let together = run(MACHINE, &names, "gups 64MB", 200_000, &[]);
    for d in &together.designs {
        let alone = one(MACHINE, &d.name, "gups 64MB", 200_000, &[]);
        let stats = |d: &DesignResult| serde_json::to_string(&d.stats).unwrap();
        assert_eq!(stats(&alone), stats(d), "{}", d.name);
    }
}

/// Statistics except those of the placement policy.
fn machine_stats(d: &DesignResult) -> Vec<(String, &'static str, u64)> {
    d.stats
        .iter()
        .filter(|s| !s.path.starts_with("os"))
        .map(|s| (s.path.clone(), s.name, s.value))
        .collect()
}

#[test]
fn a_design_configured_as_its_baseline_is_its_baseline() {
    for workload in WORKLOADS {
        let base = shipped_on("radix", workload);
        for (design, set) in [
            (
                "l2tlb-128k",
                vec!["mmu.l2.main.entries=2048", "mmu.l2.main.ways=16"],
            ),
            ("perfect-tlb", vec!["mmu.perfect=false"]),
            ("radix5", vec!["page_table.radix.levels=4"]),
            ("thp", vec!["placement.thp.mode=madvise"]),
        ] {
            let as_base = one(MACHINE, design, workload, N, &set);
            assert_eq!(
                machine_stats(base),
                machine_stats(&as_base),
                "{design} on {workload}"
            );
        }
    }
}

#[test]
fn without_its_four_techniques_me_hpt_is_ecpt_and_each_alone_is_a_shipped_design() {
    let off = |keys: &[&str]| -> Vec<String> {
        let all = [
            "chunks=[]",
            "change_chunks=false",
            "in_place=false",
            "per_way=false",
        ];
        let rest = all
            .iter()
            .filter(|k| !keys.iter().any(|on| k.starts_with(on)));
        rest.map(|k| format!("page_table.memory_efficient.{k}"))
            .collect()
    };
    let run = |design: &str, workload: &str, set: &[String]| {
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        machine_stats(&one(MACHINE, design, workload, N, &set))
    };
    for workload in WORKLOADS {
        for (design, as_one, on) in [
            ("ecpt", "mehpt", &[][..]),
            ("ecpt-thp", "mehpt-thp", &[]),
            ("mehpt-inplace", "mehpt", &["in_place"]),
            ("mehpt-perway", "mehpt", &["per_way"]),
            ("mehpt-l2p", "mehpt", &["chunks", "change_chunks"]),
        ] {
            let (own, same) = (run(design, workload, &[]), run(as_one, workload, &off(on)));
            assert!(own == same, "{design} and {as_one} on {workload}");
        }
    }
}

#[test]
fn walks_of_cuckoo_tables_are_of_one_kind_and_probe_what_it_says() {
    for design in designs()
        .iter()
        .filter(|d| d.contains("ecpt") || d.contains("mehpt"))
    {
        for workload in WORKLOADS {
            let d = shipped_on(design, workload);
            let n = |name: &str| sum(d, name, |p| p == "core.0.mmu.cuckoo");
            let walks = n("direct") + n("size") + n("partial") + n("complete");
            assert_eq!(walks as f64, metric(d, "walks"), "{design} {workload}");
            let probes = n("probes");
            assert!(probes >= n("direct") + 3 * (n("size") + n("complete")));
            assert!(
                probes
                    <= n("direct")
                        + 3 * n("size")
                        + 6 * n("partial")
                        + 9 * (n("complete") + n("retried"))
            );
            let (reads, own) = (
                sum(d, "walk_reads", |p| p == "core.0.mmu"),
                probes + n("cwt_fetches"),
            );
            // In a virtual machine, walks read the host's table too.
            let all = reads == own || design.ends_with("-virtual") && reads > own;
            assert!(
                all,
                "{design} {workload}: {reads} reads, {own} by the tables"
            );
        }
    }
}

#[test]
fn counters_of_page_tables_since_boot_hold_what_filling_memory_did() {
    let d = shipped_on("mehpt", "gups 256MB");
    let of = |rows: &[pagewalk_machine::Stat], path: &str, name: &str| {
        let row = rows.iter().find(|s| s.path == path && s.name == name);
        row.unwrap_or_else(|| panic!("{path}.{name}")).value
    };
    let ever = |path: &str, name: &str| of(&d.since_boot, path, name);
    let table = "page_table.4kb";
    // 65,536 pages in clusters of eight, and a few pages of code and stack.
    let (lines, inserted) = (ever(table, "lines"), ever(table, "inserted"));
    assert!((8192..8300).contains(&lines) && inserted == lines);
    assert!(ever(table, "merged") >= 7 * 8192);
    assert!(of(&d.stats, table, "inserted") < 100, "the measured part");
    let ways = [0, 1, 2].map(|w| format!("{table}.way.{w}"));
    let all = |name: &str| ways.iter().map(|w| ever(w, name)).sum::<u64>();
    assert_eq!(all("lines"), lines);
    assert_eq!(all("bytes"), ever(table, "bytes"));
    assert_eq!(all("upsizes"), ever(table, "upsizes"));
    assert_eq!(all("l2p_entries"), ever("page_table.l2p", "entries"));
    let histogram = d
        .since_boot
        .iter()
        .filter(|s| s.path == "page_table.4kb.reinsertions");
    let total: u64 = histogram.map(|s| s.value).sum();
    assert_eq!(total, ever(table, "insertions_and_rehashes"));
    assert_eq!(metric(d, "table_resizes"), all("upsizes") as f64);
    // All memory that the kernel has for tables belongs to one of them.
    let held: u64 = ["4kb", "2mb", "1gb", "pmd_cwt", "pud_cwt"]
        .map(|t| ever(&format!("page_table.{t}"), "bytes"))
        .iter()
        .sum();
    assert_eq!(held, ever("os", "page_table_bytes"));
}

#[test]
fn fewer_walkers_are_never_faster_and_on_gups_one_is_slower_than_four() {
    for design in designs() {
        for workload in WORKLOADS {
            let at = |n: u32| {
                let walkers = format!("mmu.walkers={n}");
                cycles(&one(
                    MACHINE,
                    &design,
                    workload,
                    N,
                    &[&PLAIN[..], &[&walkers]].concat(),
                ))
            };
            let (one_walker, two, four) = (at(1), at(2), at(4));
            never_faster(
                one_walker,
                two,
                &format!("{design} {workload}, walkers 1 and 2"),
            );
            never_faster(two, four, &format!("{design} {workload}, walkers 2 and 4"));
        }
    }
    let gups = |n: &str| cycles(&one(MACHINE, "radix", "gups 4GiB", N, &[n]));
    assert!(gups("mmu.walkers=1") > 1.05 * gups("mmu.walkers=4"));
}

#[test]
fn taking_hardware_away_never_helps() {
    for design in [
        "radix",
        "thp",
        "l2tlb-128k",
        "perfect-tlb",
        "ecpt",
        "mehpt-thp",
    ] {
        for workload in WORKLOADS {
            let at = |set: &[&str]| {
                cycles(&one(
                    MACHINE,
                    design,
                    workload,
                    N,
                    &[&PLAIN[..], set].concat(),
                ))
            };
            let full = at(&[]);
            for less in [
                &["mmu.walk_caches.entries=0"][..],
                &["mmu.cuckoo.pmd_cwc_entries=1"],
                &["mmu.cuckoo.pud_cwc_entries=1"],
                &["mmu.cuckoo.hash_latency=20"],
                &["caches.l1d.mshrs=2"],
                &["caches.l2.mshrs=2"],
                &["memory.dram.ddr.data_rate_mts=400"],
                &["mmu.l2.main.entries=1024"],
                &["mmu.l1d.main.entries=32"],
                &["caches.l2.size_kb=512"],
                &["memory.l3.size_kb=1024"],
                &["core.rob=64"],
                &["core.load_queue=8"],
                &["core.store_queue=4"],
            ] {
                never_faster(at(less), full, &format!("{design} {workload} {less:?}"));
            }
        }
    }
}

#[test]
fn walks_without_walk_caches_read_every_level() {
    let with = one(MACHINE, "radix", "gups 4GiB", N, &[]);
    let without = one(
        MACHINE,
        "radix",
        "gups 4GiB",
        N,
        &["mmu.walk_caches.entries=0"],
    );
    // Walks that end in a page fault, at the first touch of code, may be shorter.
    let reads = |d: &DesignResult| metric(d, "walk_reads_per_walk");
    assert!((3.99..=4.0).contains(&reads(&without)));
    assert!(reads(&with) < 2.5);
    assert!(cycles(&without) >= cycles(&with));
    let five = one(
        MACHINE,
        "radix5",
        "gups 4GiB",
        N,
        &["mmu.walk_caches.entries=0"],
    );
    assert!((4.99..=5.0).contains(&reads(&five)));
}

#[test]
fn gups_misses_the_tlb_once_an_update_far_beyond_its_reach() {
    let d = one(MACHINE, "radix", "gups 64GiB", N, &[]);
    // Each update stores a random number to the buffer, and loads and stores its element.
    let updates = sum(&d, "stores", |p| p == "core.0") as f64 / 2.0;
    let misses = metric(&d, "l2_tlb_mpki") * N as f64 / 1000.0;
    assert!(
        (misses / updates - 1.0).abs() < 0.03,
        "{misses} misses, {updates} updates"
    );
}

#[test]
fn a_footprint_that_fits_the_second_level_tlb_misses_only_at_first_touch() {
    // 4 MB are 1024 pages, and the TLB has 2048 entries. After the warm-up nothing walks.
    let mut s = spec(MACHINE, &["radix"], "gups 4MB", N, &[]);
    s.options.limits.warmup = 400_000;
    let d = run_spec(&s).unwrap().designs.remove(0);
    assert_eq!(metric(&d, "walks"), 0.0);
    assert!(metric(&d, "l1d_tlb_mpki") > 1.0);
}

#[test]
fn perfect_tlbs_are_never_slower_than_any_design() {
    for workload in WORKLOADS {
        // With an engine it depends on the caches: see the law of perfect speculation.
        let names = designs();
        let guesses = ["perfect-speculation", "revelator", "revelator-thp"];
        // Prefetchers are excluded as well, but compared over perfect TLBs.
        let prefetches = ["l3-simple", "l3-vldp"];
        let others = [guesses.as_slice(), &prefetches].concat();
        let names = names.iter().filter(|d| !others.contains(&d.as_str()));
        let names: Vec<&str> = names.map(String::as_str).collect();
        for name in prefetches {
            let perfect = format!("{name}[mmu.perfect=true]");
            let r = run(MACHINE, &[name, &perfect], workload, N, &PLAIN);
            let [with, perfect] = [0, 1].map(|i| cycles(&r.designs[i]));
            never_faster(with, perfect, &format!("{name}, perfect, on {workload}"));
        }
        let r = run(MACHINE, &names, workload, N, &PLAIN);
        let perfect = cycles(r.designs.iter().find(|d| d.name == "perfect-tlb").unwrap());
        for d in &r.designs {
            never_faster(
                cycles(d),
                perfect,
                &format!("{} against perfect on {workload}", d.name),
            );
        }
    }
}

/// Programs with several kinds of reuse.
const SPECULATED: [&str; 5] = [
    "gups 256MB",
    "bfs 64MB",
    "kv-hash 64MB",
    "xsbench 64MB",
    "pr 64MB",
];

/// Cycles of `workload` with engines that know data, entries and both.
fn speculated(workload: &str, set: &[&str]) -> [f64; 3] {
    ["data", "entries", "both"].map(|what| {
        let what = format!("engine.perfect.what={what}");
        let set = [set, &[&what]].concat();
        cycles(&one(MACHINE, "perfect-speculation", workload, N, &set))
    })
}

#[test]
fn perfect_speculation_is_never_slower_than_none() {
    for workload in SPECULATED {
        let radix = cycles(&one(MACHINE, "radix", workload, N, &PLAIN));
        for guessing in speculated(workload, &PLAIN) {
            never_faster(radix, guessing, workload);
        }
    }
    let gups = |design: &str| cycles(&one(MACHINE, design, "gups 4GiB", N, &[]));
    assert!(gups("radix") > 1.05 * gups("perfect-speculation"));
}

#[test]
fn with_miss_registers_enough_more_guesses_are_never_slower_and_no_misses_fastest() {
    // A guess takes an MSHR of the L2 and none of the L1D. With few L1D MSHRs, guesses fetch more lines
    // than loads that need no translation. With few L2 MSHRs, guesses of data delay walks.
    let plenty = ["caches.l1d.mshrs=256", "caches.l2.mshrs=256"];
    let set = [&PLAIN[..], &plenty].concat();
    for workload in SPECULATED {
        let radix = cycles(&one(MACHINE, "radix", workload, N, &set));
        let none = cycles(&one(MACHINE, "perfect-tlb", workload, N, &set));
        let [data, entries, both] = speculated(workload, &set);
        for (less, more, what) in [
            (radix, data, "data"),
            (radix, entries, "entries"),
            (data, both, "both after data"),
            (entries, both, "both after entries"),
            (both, none, "no misses"),
        ] {
            never_faster(less, more, &format!("{workload}, {what}"));
        }
    }
}

#[test]
fn every_guess_is_judged_and_a_perfect_engine_is_never_wrong() {
    let virtual_machine = [
        "virtual.placement.buddy={}",
        "virtual.page_table.radix.levels=4",
    ];
    for (set, warmup) in [(&[][..], 0), (&["cores=2"], 100_000), (&virtual_machine, 0)] {
        let mut s = spec(MACHINE, &["perfect-speculation"], "bfs 64MB", N, set);
        s.options.limits.warmup = warmup;
        let d = run_spec(&s).unwrap().designs.remove(0);
        assert_eq!(d.status, Status::Complete, "{:?}", d.message);
        let mut fetched = 0;
        for kind in ["data", "entries"] {
            let n = |name: &str| sum(&d, name, |p| p.ends_with(&format!("mmu.engine.{kind}")));
            assert!(n("guesses") > 0);
            assert_eq!((n("right"), n("wrong")), (n("guesses"), 0), "{set:?}");
            let became = n("fetched") + n("merged") + n("useless") + n("dropped");
            assert_eq!(n("guesses"), became, "{set:?}");
            fetched += n("fetched");
        }
        let l2 = |name: &str| sum(&d, name, |p| p.ends_with(".l2"));
        assert_eq!(fetched, l2("speculative_issued"));
    }
    for without in ["radix", "perfect-tlb"] {
        let d = one(MACHINE, without, "gups 64MB", 50_000, &[]);
        let engines = |s: &pagewalk_machine::Stat| {
            s.path.contains("engine") || s.name.starts_with("speculative")
        };
        assert!(!d.stats.iter().any(engines), "{without}");
    }
}

#[test]
fn an_engine_needs_walks_through_the_cache_that_it_fills() {
    let s = spec(
        MACHINE,
        &["perfect-speculation"],
        "gups 64MB",
        1000,
        &["caches.walks_enter=l3"],
    );
    let message = run_spec(&s).expect_err("refused").to_string();
    for word in ["caches.walks_enter", "engine", "l1d"] {
        assert!(message.contains(word), "{message}");
    }
}

#[test]
fn page_faults_cost_every_design_the_same() {
    // With THP in madvise mode, the same 4 KB faults have the same price.
    let at = |design: &str, set: &[&str]| {
        let d = one(MACHINE, design, "bfs 16MB", N, set);
        (metric(&d, "page_faults"), metric(&d, "fault_cycles"))
    };
    let base = at("radix", &[]);
    assert_eq!(base, at("l2tlb-128k", &[]));
    assert_eq!(base, at("perfect-tlb", &[]));
    assert_eq!(base, at("thp", &["placement.thp.mode=madvise"]));
}

#[test]
fn memory_that_runs_out_ends_the_run_with_a_clear_result() {
    let r = run(
        MACHINE,
        &["radix", "perfect-tlb"],
        "gups 1GiB",
        N,
        &["os.memory_gb=1"],
    );
    assert!(r.partial);
    for d in &r.designs {
        assert_eq!(d.status, Status::OutOfMemory);
        assert!(
            d.message.as_ref().unwrap().contains("os.memory_gb"),
            "{:?}",
            d.message
        );
    }
}

#[test]
fn huge_pages_make_walks_fewer_and_fragmentation_takes_them_away() {
    let at = |f: &str| one(MACHINE, "thp", "gups 1GiB", N, &[f]);
    let (whole, none) = (
        at("os.fragmentation.available_2mb=1.0"),
        at("os.fragmentation.available_2mb=0.0"),
    );
    assert!(metric(&whole, "mapped_2mb") > 1e9);
    assert_eq!(metric(&none, "mapped_2mb"), 0.0);
    assert!(metric(&whole, "walks") < metric(&none, "walks"));
}

#[test]
fn two_designs_that_never_differ_get_a_warning() {
    let r = run(
        MACHINE,
        &["radix", "l2tlb-128k"],
        "gups 1MB",
        50_000,
        &["mmu.l2.main.entries=2048"],
    );
    assert!(
        r.warnings.iter().any(|w| w.contains("never differed")),
        "{:?}",
        r.warnings
    );
    let r = run(MACHINE, &["radix", "l2tlb-128k"], "gups 256MB", 50_000, &[]);
    assert!(
        !r.warnings.iter().any(|w| w.contains("never differed")),
        "{:?}",
        r.warnings
    );
}

#[test]
fn samples_estimate_the_whole_within_their_interval() {
    let whole = one(MACHINE, "radix", "gups 256MB", 4_000_000, &[]);
    let mut s = spec(MACHINE, &["radix"], "gups 256MB", 4_000_000, &[]);
    s.options.limits.sample = Some(pagewalk_machine::Sample {
        length: 5_000,
        period: 50_000,
        warming: None,
    });
    let sampled = run_spec(&s).unwrap().designs.remove(0);
    let estimate = sampled.sampling.expect("an estimate");
    assert_eq!(estimate.samples, 80);
    let ipc = metric(&whole, "ipc");
    // The interval covers 95 %; allow twice its half-width.
    let slack = estimate.ipc_high - estimate.ipc_low;
    assert!(
        (estimate.ipc - ipc).abs() <= slack.max(0.03 * ipc),
        "{estimate:?} against {ipc}"
    );
}

#[test]
fn a_warm_up_leaves_state_and_no_statistics() {
    let cold = one(MACHINE, "radix", "gups 4MB", 100_000, &[]);
    let mut s = spec(MACHINE, &["radix"], "gups 4MB", 100_000, &[]);
    s.options.limits.warmup = 300_000;
    let warm = run_spec(&s).unwrap().designs.remove(0);
    assert!((100_000.0..100_100.0).contains(&metric(&warm, "instructions")));
    assert!(metric(&warm, "walks") < metric(&cold, "walks"));
    assert!(cycles(&warm) < cycles(&cold));
}

#[test]
fn intervals_add_up_to_the_whole() {
    let mut s = spec(MACHINE, &["radix"], "bfs 16MB", 100_000, &[]);
    s.options.interval = Some(10_000);
    let d = run_spec(&s).unwrap().designs.remove(0);
    let i = d.intervals.as_ref().expect("requested");
    assert_eq!(i.complete, [true; 10]);
    let cycles: u64 = i.cycles.iter().sum();
    assert_eq!(cycles as f64, metric(&d, "cycles"));
    let walks: f64 = i.values["walks"].iter().flatten().sum();
    assert_eq!(walks, metric(&d, "walks"));
}

#[test]
fn threads_share_cores_and_every_one_of_them_runs() {
    // Four threads on two cores, with time slices of a few thousand cycles.
    let set = ["cores=2", "schedule.time_slice_cycles=20000"];
    let d = one(MACHINE, "radix", "gups 64MB threads=4", 400_000, &set);
    // A limit is exact up to the instructions of one operation.
    assert!((400_000.0..400_100.0).contains(&metric(&d, "instructions")));
    for core in ["core.0", "core.1"] {
        assert!(
            sum(&d, "instructions", |p| p == core) > 100_000,
            "{core} was idle"
        );
    }
}

#[test]
fn a_core_that_takes_up_another_thread_pays_for_the_switch() {
    let kernel = |price: &str| {
        let set = [
            "schedule.time_slice_cycles=5000",
            "os.prices.shootdown_ns=0",
            price,
        ];
        let d = one(MACHINE, "radix", "gups 64MB threads=2", 200_000, &set);
        let of = |c: &str| {
            let of_cause = d.cycle_stack.iter().filter(|s| s.cause == c);
            of_cause.map(|s| s.cycles).sum::<f64>()
        };
        of("kernel")
    };
    let (free, dear) = (
        kernel("os.prices.context_switch_ns=0"),
        kernel("os.prices.context_switch_ns=1000"),
    );
    // Several tens of switches at 2900 cycles each.
    assert!(dear - free > 10.0 * 2900.0, "{free} and {dear}");
    let alone = |price: &str| cycles(&one(MACHINE, "radix", "gups 64MB", 50_000, &[price]));
    assert_eq!(
        alone("os.prices.context_switch_ns=0"),
        alone("os.prices.context_switch_ns=1000")
    );
}

#[test]
fn a_built_in_programs_set_up_is_not_measured() {
    let d = one(MACHINE, "radix", "gups 64MB", 100_000, &[]);
    // Code, stack and buffer; the 16384 pages of the table were touched before.
    assert!(
        metric(&d, "page_faults") < 20.0,
        "{} faults",
        metric(&d, "page_faults")
    );
    assert!(metric(&d, "mapped_4kb") >= 64e6);
}

#[test]
fn a_page_fault_costs_the_trap_and_the_zeroing() {
    // 500 ns and 0.125 ns a byte at 2.9 GHz, and nothing else except new table nodes.
    let price = |bytes: f64| (500.0 + 0.125 * bytes) * 2.9;
    for (design, bytes) in [("radix", 4096.0), ("thp", 2097152.0)] {
        let d = one(MACHINE, design, "gups 1GiB populate=no", 100_000, &[]);
        let faults = |n: &str| sum(&d, n, |p| p == "os") as f64;
        let (small, large) = (faults("faults_4kb"), faults("faults_2mb"));
        assert_eq!(large > 0.0, design == "thp", "{design}");
        let expected = small * price(4096.0) + large * price(bytes);
        let charged = metric(&d, "fault_cycles");
        assert!(
            charged >= expected * 0.999 && charged <= expected * 1.4,
            "{design}: {charged} cycles for {small} small and {large} large faults, {expected} expected"
        );
        let kernel: f64 = d
            .cycle_stack
            .iter()
            .filter(|s| s.cause == "kernel")
            .map(|s| s.cycles)
            .sum();
        assert!(
            (kernel / charged - 1.0).abs() < 0.02,
            "{design}: {kernel} lost, {charged} charged"
        );
    }
}

#[test]
fn the_hosts_speed_counts_what_was_simulated_and_not_measured() {
    let mut s = spec(MACHINE, &["radix", "thp"], "gups 16MB", 50_000, &[]);
    s.options.limits.warmup = 150_000;
    let host = run_spec(&s).expect("a run").host;
    let done = host.simulated_instructions_per_second * host.seconds;
    assert!((done - 400_000.0).abs() < 1000.0, "{done}");
}
