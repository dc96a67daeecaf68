//! A TLB prefetcher with its own buffer beside the last TLB, as a component of a machine.

use crate::common::{one, run_spec, spec, sum};
use pagewalk_machine::{DesignResult, Status};

const MACHINE: &str = "revelator-table1";
const N: u64 = 300_000;
/// Memory is freed and mapped again all the time, often at the same addresses.
const CHURN: &str = "churn 512KiB arena=64KiB keep=0 reads=50 rounds=1000";
const BUFFER: &str = "mmu.prefetcher.distance.buffer=64";

fn of(d: &DesignResult, part: &str, name: &str) -> u64 {
    sum(d, name, |p| p.ends_with(part))
}

fn mmu(d: &DesignResult, name: &str) -> u64 {
    of(d, ".mmu", name)
}

fn buffer(d: &DesignResult, name: &str) -> u64 {
    of(d, ".mmu.prefetch_buffer", name)
}

fn prefetcher(d: &DesignResult, name: &str) -> u64 {
    of(d, ".mmu.prefetcher", name)
}

/// A first-level miss hits the second level, merges with a walk, hits the buffer, or walks. The buffer is
/// looked up for misses of all TLBs that merge with no walk.
fn the_last_tlbs_misses_are_accounted_for(d: &DesignResult, what: &str) {
    let missed = mmu(d, "l1d_misses") + mmu(d, "l1i_misses");
    let hits = sum(d, "hits", |p| p.contains(".mmu.l2."));
    let lookups = sum(d, "lookups", |p| p.ends_with(".mmu.l2.main"));
    assert_eq!(missed, lookups, "{what}");
    let served = mmu(d, "walks") + mmu(d, "l2_waits") + buffer(d, "hits");
    assert_eq!(lookups - hits, served, "{what}");
    let lookups = buffer(d, "hits") + mmu(d, "walks");
    assert_eq!(buffer(d, "lookups"), lookups, "{what}");
}

/// Each prefetched entry went into the buffer once and had one outcome.
fn prefetched_entries_are_accounted_for(d: &DesignResult, what: &str) {
    let fetched = prefetcher(d, "fetched");
    assert_eq!(buffer(d, "fills"), fetched, "{what}");
    let ends = ["useful", "useless", "pending"].map(|name| prefetcher(d, name));
    assert_eq!(fetched, ends.iter().sum::<u64>(), "{what}: {ends:?}");
    // A use is a hit of the buffer, or of a TLB that the merged fetch has filled.
    assert!(buffer(d, "hits") <= prefetcher(d, "useful"), "{what}");
    let reads = mmu(d, "walk_reads") + prefetcher(d, "walk_reads");
    assert_eq!(of(d, ".l2", "walks"), reads, "{what}");
}

#[test]
fn walks_hits_of_the_buffer_and_waits_account_for_the_last_tlbs_misses() {
    let two = ["cores=2"];
    let guests = [
        "virtual.placement.buddy={}",
        "virtual.page_table.radix.levels=4",
    ];
    for (workload, set) in [
        ("dlrm 64MB", &[][..]),
        ("dlrm 64MB threads=2", &two),
        ("bfs 64MB layout=graphbig", &[]),
        ("bfs 64MB layout=graphbig", &guests),
        (CHURN, &[]),
    ] {
        let small = ["mmu.l2.main.entries=64", "mmu.l1d.main.entries=8", BUFFER];
        let set = [set, &small].concat();
        let what = format!("{workload} {set:?}");
        let d = one(MACHINE, "tlb-distance", workload, N, &set);
        the_last_tlbs_misses_are_accounted_for(&d, &what);
        prefetched_entries_are_accounted_for(&d, &what);
        assert!(buffer(&d, "hits") > 100, "{what}");
        assert!(mmu(&d, "walks") > 100, "{what}");
    }
}

/// The same for the other prefetcher, whose buffer has its own key.
#[test]
fn the_next_pages_account_for_the_last_tlbs_misses_too() {
    let small = ["mmu.l2.main.entries=64", "mmu.l1d.main.entries=8"];
    for (buffer, workload) in [
        (
            "mmu.prefetcher.next_page.buffer=64",
            "bfs 64MB layout=graphbig",
        ),
        ("mmu.prefetcher.next_page.buffer=64", CHURN),
        ("mmu.prefetcher.next_page.degree=4", "dlrm 64MB"),
    ] {
        let set = [&small[..], &[buffer]].concat();
        let what = format!("{workload} {set:?}");
        let d = one(MACHINE, "tlb-next-page", workload, N, &set);
        let fetched = prefetcher(&d, "fetched");
        let ends = ["useful", "useless", "pending"].map(|name| prefetcher(&d, name));
        assert_eq!(fetched, ends.iter().sum::<u64>(), "{what}: {ends:?}");
        assert!(prefetcher(&d, "useful") > 100, "{what}");
        let reads = mmu(&d, "walk_reads") + prefetcher(&d, "walk_reads");
        assert_eq!(of(&d, ".l2", "walks"), reads, "{what}");
        if buffer.contains("buffer") {
            the_last_tlbs_misses_are_accounted_for(&d, &what);
            prefetched_entries_are_accounted_for(&d, &what);
        }
    }
}

/// Random pages: the program's own walks stay, and those of prefetches are additional.
#[test]
fn useless_prefetches_read_the_caches() {
    let at = |design| one(MACHINE, design, "gups 1GiB", N, &[]);
    let (plain, with) = (at("radix"), at("tlb-next-page"));
    let share = mmu(&with, "walks") as f64 / mmu(&plain, "walks") as f64;
    assert!((0.99..1.01).contains(&share), "{share}");
    assert!(prefetcher(&with, "useful") * 50 < prefetcher(&with, "fetched"));
    assert!(prefetcher(&with, "walk_reads") > mmu(&plain, "walks") / 2);
    let reads = |d: &DesignResult| of(d, ".l2", "walks");
    assert_eq!(
        reads(&with),
        mmu(&with, "walk_reads") + prefetcher(&with, "walk_reads")
    );
    assert!(reads(&with) > reads(&plain) * 4 / 3);
}

#[test]
fn without_a_buffer_there_is_no_account_of_one() {
    let d = one(MACHINE, "tlb-distance", "dlrm 64MB", N, &[]);
    assert!(prefetcher(&d, "fetched") > 100);
    let mut paths = d.stats.iter().map(|s| &s.path);
    assert!(!paths.any(|p| p.ends_with(".mmu.prefetch_buffer")));
}

/// The program frees memory and maps it again. A translation that outlives its page would serve the first
/// touch of the new one, and a fault would be missing. The reference is the number of page faults without
/// a prefetcher. In builds with checks, the MMU also compares each hit of the buffer with the page table.
#[test]
fn an_unmap_leaves_no_translation_in_the_buffer() {
    let set = [
        "mmu.l2.main.entries=64",
        "mmu.l1d.main.entries=8",
        "mmu.prefetcher.distance.buffer=4096",
    ];
    let n = 1_000_000;
    let plain = one(MACHINE, "radix", CHURN, n, &set[..2]);
    let with = one(MACHINE, "tlb-distance", CHURN, n, &set);
    assert!(buffer(&with, "hits") > 100);
    assert!(mmu(&with, "invalidations") > 10);
    assert!(mmu(&plain, "faults") > 100);
    assert_eq!(mmu(&with, "faults"), mmu(&plain, "faults"));
    the_last_tlbs_misses_are_accounted_for(&with, "churn");
    prefetched_entries_are_accounted_for(&with, "churn");
}

/// Pages move to other frames all the time. In builds with checks, a hit with a former frame ends the
/// run.
#[test]
fn a_moved_page_leaves_no_translation_in_the_buffer() {
    let at = |moves: &[&str]| {
        let set = [
            moves,
            &[
                "mmu.l2.main.entries=64",
                "mmu.prefetcher.distance.buffer=4096",
            ],
        ]
        .concat();
        let s = spec(MACHINE, &["tlb-distance"], "dlrm 16MB", 1_000_000, &set);
        let d = run_spec(&s).expect("a run").designs.remove(0);
        assert_eq!(d.status, Status::Complete, "{:?}", d.message);
        the_last_tlbs_misses_are_accounted_for(&d, "moves");
        d
    };
    let still = at(&[]);
    let moved = at(&["os.migration.interval_us=40", "os.migration.pages=8"]);
    assert_eq!(mmu(&still, "invalidations"), 0);
    assert!(mmu(&moved, "invalidations") > 50);
    assert!(buffer(&moved, "hits") > 100);
}
