//! Sources of page-table entries and data for loads that walk, and their waiting times.

use crate::common::{metric, one, run_spec, spec, sum};
use pagewalk_machine::{DesignResult, Status};

const MACHINE: &str = "revelator-table1";
const N: u64 = 200_000;

fn gups(size: &str, design: &str, set: &[&str]) -> DesignResult {
    let mut s = spec(MACHINE, &[design], &format!("gups {size}"), N, set);
    s.options.limits.warmup = N;
    let d = run_spec(&s).unwrap().designs.remove(0);
    assert_eq!(d.status, Status::Complete, "{:?}", d.message);
    d
}

/// Loads that walked, by the sources of entries and data: caches and caches, caches and DRAM, DRAM and
/// caches, DRAM and DRAM.
fn kinds(d: &DesignResult) -> [u64; 4] {
    [
        "entries_cached_data_cached",
        "entries_cached_data_memory",
        "entries_memory_data_cached",
        "entries_memory_data_memory",
    ]
    .map(|name| sum(d, name, |p| p == "core.0.walked_loads"))
}

#[test]
fn an_update_of_a_large_table_is_a_load_that_walks() {
    let d = gups("8GiB", "radix", &[]);
    let kinds = kinds(&d);
    let all: u64 = kinds.iter().sum();
    let mmu = |name| sum(&d, name, |p| p == "core.0.mmu");
    // Its store accesses the same page; hardly any other load walks.
    assert!(all.abs_diff(mmu("walks")) < mmu("walks") / 50, "{kinds:?}");
    assert!(all <= mmu("walks") + mmu("walks_merged"));
    assert!(all <= sum(&d, "loads", |p| p == "core.0"));
    // 16 MB of last-level entries in caches of 3 MB, which data share.
    assert!(kinds[3] > all * 3 / 4, "{kinds:?}");
}

#[test]
fn entries_of_a_small_table_lie_in_the_caches() {
    // Entries of 64 KB, and data of 32 MB in caches of 3 MB.
    let [none, data, entries, both] = kinds(&gups("32MiB", "radix", &[]));
    assert!(data > 20 * (entries + both), "{data} {entries} {both}");
    assert!(data > 5 * none, "{data} {none}");
    // A table of 256 KB fits the TLB and the caches.
    let d = gups("256KiB", "radix", &[]);
    assert_eq!(kinds(&d), [0; 4]);
}

#[test]
fn translation_is_a_part_of_the_time_of_a_load() {
    let part = |d: &DesignResult| {
        let all = d.histograms.iter().find(|h| h.name == "load_to_use");
        let cycles = sum(d, "load_translation_cycles", |p| p == "core.0");
        (cycles, all.expect("of loads").sum)
    };
    for design in ["radix", "thp", "ecpt", "radix-virtual"] {
        let d = gups("1GiB", design, &[]);
        let (translation, all) = part(&d);
        let loads = sum(&d, "loads", |p| p == "core.0");
        assert!(translation + 4 * loads <= all, "{design}");
        // A load waits for its walk; stores hardly walk here.
        let walks = sum(&d, "walk_cycles", |p| p == "core.0.mmu");
        assert!(translation >= walks - walks / 20, "{design}");
    }
    let d = one(MACHINE, "perfect-tlb", "gups 1GiB", N, &[]);
    assert_eq!(part(&d).0, 0);
    assert_eq!(kinds(&d), [0; 4]);
    assert!(metric(&d, "cycles") > 0.0);
}
