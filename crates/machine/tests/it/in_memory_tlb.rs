//! In-memory TLB as a component of a machine.

use crate::common::{metric, one, run_spec, spec, sum};
use pagewalk_machine::{DesignResult, Status};

const MACHINE: &str = "revelator-table1";
const N: u64 = 300_000;

fn own(d: &DesignResult, name: &str) -> u64 {
    sum(d, name, |p| p.ends_with(".mmu.in_memory_tlb"))
}

fn mmu(d: &DesignResult, name: &str) -> u64 {
    sum(d, name, |p| p.ends_with(".mmu"))
}

fn whole(d: &DesignResult, name: &str) -> u64 {
    sum(d, name, |p| p == "in_memory_tlb")
}

/// In builds with checks, the MMU compares each hit with the page table. No hit is stale after kernel
/// changes, for any number of processes, cores and dimensions.
#[test]
fn whatever_changes_no_hit_is_out_of_date_and_all_parts_count_the_same() {
    let reservations = ["placement.reservation.promotion_threshold=0.02"];
    let settled = ["placement.thp.khugepaged.settled=true"];
    let two = ["cores=2"];
    let guests = [
        "virtual.placement.buddy={}",
        "virtual.page_table.radix.levels=4",
    ];
    for (workload, set) in [
        ("gups 256MB populate=no", &[][..]),
        ("gups 256MB threads=2", &two),
        ("churn 64MB", &[]),
        ("gups 512MB populate=no", &settled),
        ("gups 1GiB populate=no", &reservations),
        ("churn 64MB", &reservations),
        ("gups 64MB populate=no", &guests),
        ("churn 16MB", &guests),
    ] {
        // Small core TLBs, so that pages of the churn program miss in them as well.
        let small = ["mmu.l2.main.entries=64", "mmu.l1d.main.entries=8"];
        let set = [set, &small].concat();
        // With large pages, the churn program misses rarely.
        let large = workload.starts_with("churn") && set.iter().any(|s| s.contains("placement"));
        let n = if large { 16 * N } else { N };
        let d = one(MACHINE, "pom-tlb", workload, n, &set);
        let what = format!("{workload} {set:?}");
        // The churn program mostly has first touches.
        let happens = match workload.starts_with("churn") {
            true => own(&d, "lookups"),
            false => own(&d, "hits"),
        };
        // A promotion invalidates the entries of the small pages.
        let promoted = workload.starts_with("gups") && set.contains(&reservations[0]);
        assert_eq!(promoted, whole(&d, "invalidated") > 100, "{what}");
        assert!(happens > 100, "{what}: {happens}");
        assert_eq!(own(&d, "lookups"), own(&d, "hits") + own(&d, "misses"));
        assert_eq!(mmu(&d, "walks"), own(&d, "misses"), "{what}");
        let missed = mmu(&d, "l1d_misses") + mmu(&d, "l1i_misses");
        let served = mmu(&d, "l2_hits") + mmu(&d, "l2_waits") + own(&d, "hits");
        assert_eq!(missed, served + mmu(&d, "walks"), "{what}");
        let lines = own(&d, "lookups") + own(&d, "fills");
        let l2 = sum(&d, "walks", |p| p.ends_with(".l2"));
        assert_eq!(l2, mmu(&d, "walk_reads") + lines, "{what}");
        // Nothing is warmed or fast-forwarded here, so all fills come from walks.
        let used = whole(&d, "entries_4kb") + whole(&d, "entries_2mb");
        let gone = whole(&d, "evictions") + whole(&d, "invalidated");
        assert!(used > 0 && used + gone <= own(&d, "fills"), "{what}");
        let misses = (mmu(&d, "walks") + own(&d, "hits")) as f64;
        let mpki = metric(&d, "l2_tlb_mpki");
        assert!((mpki * metric(&d, "instructions") / 1000.0 - misses).abs() < 0.5);
    }
}

#[test]
fn pages_that_it_holds_are_walked_for_once() {
    let workload = "gups 128MB";
    // 32,768 pages and half as many entries. All pages are accessed during 2.5 million instructions of
    // warm-up or fast-forwarding.
    let rate = |warmup: u64, skip: u64, entries: &str| {
        let set = [entries];
        let mut s = spec(MACHINE, &["pom-tlb"], workload, N, &set);
        (s.options.limits.warmup, s.options.limits.skip) = (warmup, skip);
        let d = run_spec(&s).expect("a run").designs.remove(0);
        assert_eq!(d.status, Status::Complete, "{:?}", d.message);
        own(&d, "hits") as f64 / own(&d, "lookups") as f64
    };
    let shipped = "translation.pom_tlb.entries_4kb=65536";
    let (cold, warm, skipped) = (
        rate(0, 0, shipped),
        rate(2_500_000, 0, shipped),
        rate(0, 2_500_000, shipped),
    );
    assert!(warm > 0.95 && skipped > 0.95, "{warm} {skipped}");
    assert!(cold < 0.7, "{cold}");
    let few = rate(0, 2_500_000, "translation.pom_tlb.entries_4kb=4096");
    assert!(few < 0.25, "{few}");
}

#[test]
fn a_core_finds_translations_that_another_core_walked_for() {
    let set = ["cores=2"];
    let d = one(MACHINE, "pom-tlb", "gups 64MB threads=2", N, &set);
    // 16,384 pages of one process. Each is walked about once, by either core.
    let walks = mmu(&d, "walks");
    assert!((10_000..18_000).contains(&walks), "{walks}");
    let remote = own(&d, "reads_remote");
    assert!(remote > 100, "{remote} entries came from the other's cache");
}

#[test]
fn in_a_virtual_machine_it_holds_what_both_tables_say() {
    let guests = [
        "virtual.placement.buddy={}",
        "virtual.page_table.radix.levels=4",
    ];
    let at = |design: &str| {
        let mut s = spec(MACHINE, &[design], "gups 64MB", N, &guests);
        s.options.limits.warmup = 1_500_000;
        run_spec(&s).expect("a run").designs.remove(0)
    };
    let (plain, with) = (at("radix"), at("pom-tlb"));
    assert!(mmu(&with, "walks") * 10 < mmu(&plain, "walks"));
    let hits = own(&with, "hits") as f64 / own(&with, "lookups") as f64;
    assert!(hits > 0.9, "{hits}");
}

#[test]
fn its_memory_is_set_aside_at_boot_or_the_key_is_named() {
    let aside = |design: &str| {
        let d = one(MACHINE, design, "gups 1MB", 10_000, &[]);
        sum(&d, "set_aside_bytes", |p| p == "os")
    };
    assert_eq!(aside("pom-tlb"), aside("radix") + (2 << 20));
    let d = one(MACHINE, "pom-tlb", "gups 1MB", 10_000, &[]);
    assert_eq!(whole(&d, "bytes"), 2 << 20);
    for (set, key) in [
        (
            &[
                "os.memory_gb=1",
                "translation.pom_tlb.entries_2mb=16777216",
                "os.occupied=0.5",
            ][..],
            "translation.pom_tlb.entries_2mb",
        ),
        (
            &["translation.pom_tlb.entries_4kb=65535"],
            "translation.pom_tlb.entries_4kb",
        ),
    ] {
        let s = spec(MACHINE, &["pom-tlb"], "gups 1MB", 1000, set);
        let message = run_spec(&s).expect_err("refused").to_string();
        assert!(message.contains(key), "{message}");
    }
}

#[test]
fn an_engine_beside_it_guesses_for_what_it_does_not_have() {
    let set = ["engine.perfect.what=both"];
    let d = one(MACHINE, "pom-tlb", "gups 128MB", N, &set);
    let data = |name: &str| sum(&d, name, |p| p.ends_with(".mmu.engine.data"));
    assert!(own(&d, "hits") > 100);
    let walked = mmu(&d, "walks") + mmu(&d, "walks_merged");
    // The engine makes no guess for a walk that ends in a fault.
    let guesses = data("guesses");
    assert_eq!(guesses, data("right"));
    assert!((walked - mmu(&d, "faults")..=walked).contains(&guesses));
}
