//! Virtual machines as a whole: two-dimensional walks and their cost.

use std::collections::BTreeSet;

use crate::common::{metric, one, run, run_spec, spec, sum};
use pagewalk_machine::Status;

const MACHINE: &str = "mehpt-table3";
const N: u64 = 200_000;

/// Without walk caches and nested TLB, every walk of radix over radix makes the 24 references of the
/// textbook. These are four host reads for each of the guest's four entries and for the page itself, and
/// the four entries.
#[test]
fn a_cold_walk_of_radix_over_radix_makes_24_references() {
    let warm = |set: &[&str]| {
        // The first page of code is not populated.
        let mut s = spec(MACHINE, &["radix-virtual"], "gups 64MB", N, set);
        s.options.limits.warmup = 1000;
        run_spec(&s).expect("it runs").designs.remove(0)
    };
    let set = ["mmu.walk_caches.entries=0", "mmu.nested_tlb.entries=0"];
    let d = warm(&set);
    let mmu = |path: &str| path.ends_with(".mmu");
    assert!(sum(&d, "walks", mmu) > 1000);
    let faults = sum(&d, "faults", mmu);
    assert_eq!(faults, 0, "all was populated, in guest and host");
    assert_eq!(sum(&d, "walk_reads", mmu), 24 * sum(&d, "walks", mmu));
    assert_eq!(metric(&d, "walk_reads_per_walk"), 24.0);
    // With 2 MB pages, the host has one level less: 5 * 3 + 4.
    let huge = [set[0], set[1], "virtual.placement.thp.mode=always"];
    let d = warm(&huge);
    assert_eq!(metric(&d, "walk_reads_per_walk"), 19.0);
}

/// A TLB entry covers the smaller of both page sizes. A guest's huge page over 4 KB pages of the host
/// takes as many entries as 4 KB pages in both. Only its walk is shorter, by a level and its host walks.
/// Over huge pages of the host it is one entry.
#[test]
fn a_huge_page_of_the_guest_is_no_larger_in_a_tlb_than_the_pages_behind_it() {
    let set = ["mmu.walk_caches.entries=0", "mmu.nested_tlb.entries=0"];
    let warm = |design: &str, more: &[&str]| {
        let set: Vec<&str> = set.iter().chain(more).copied().collect();
        let mut s = spec(MACHINE, &[design], "gups 64MB", N, &set);
        s.options.limits.warmup = 50_000;
        run_spec(&s).expect("it runs").designs.remove(0)
    };
    let walks = |d| sum(d, "walks", |path| path.ends_with(".mmu"));
    let small = warm("radix-virtual", &[]);
    let splintered = warm("thp-virtual", &[]);
    let apart = walks(&splintered) as f64 / walks(&small) as f64;
    assert!((0.99..1.01).contains(&apart), "{apart}");
    // The few walks for code and stack, which have 4 KB pages, make 24.
    let reads = metric(&splintered, "walk_reads_per_walk");
    assert!((19.0..19.05).contains(&reads), "{reads}");
    let whole = warm("thp-virtual", &["virtual.placement.thp.mode=always"]);
    assert!(walks(&whole) * 100 < walks(&small), "{}", walks(&whole));
}

/// Any pair of tables: the program, the guest's mappings and its kernel's use of memory do not depend on
/// the host's table, and walks end at it.
#[test]
fn every_table_serves_as_guest_and_host_of_every_other() {
    // A guest's ways need no chunks.
    let tables = [
        ("radix.levels=4", "radix.levels=4"),
        ("elastic_cuckoo={}", "elastic_cuckoo={}"),
        ("memory_efficient.chunks=[]", "memory_efficient={}"),
        ("hash_dont_cache={}", "hash_dont_cache={}"),
        ("level_hashing={}", "level_hashing={}"),
        ("global_hashed={}", "global_hashed={}"),
    ];
    let mut guests = Vec::new();
    for (guest, _) in tables {
        let mut same: Option<[u64; 5]> = None;
        let mut hosts = BTreeSet::new();
        for (_, host) in tables {
            let set = [
                format!("page_table.{guest}"),
                format!("virtual.page_table.{host}"),
            ];
            let set = set.each_ref().map(String::as_str);
            let d = one(
                MACHINE,
                "radix-virtual",
                "gups 64MB populate=no",
                N / 2,
                &set,
            );
            let pair = format!("{guest} over {host}");
            let mmu = |path: &str| path.ends_with(".mmu");
            assert!(sum(&d, "walks", mmu) > 1000, "{pair}");
            let nested = |name: &str| sum(&d, name, |path| path.ends_with(".mmu.nested"));
            assert!(nested("lookups") > nested("hits"), "{pair}");
            assert!(nested("host_walks") > 0, "{pair}");
            // The guest's mappings and tables lie in pages of the host.
            let host = |name: &str| sum(&d, name, |path| path == "host");
            let guest = |name: &str| sum(&d, name, |path| path == "os");
            let backed = host("mapped_4kb_bytes");
            let mapped = guest("mapped_4kb_bytes");
            assert!(backed >= mapped + guest("page_table_bytes"), "{pair}");
            // Memory of the guest's old tables stays backed.
            let peak = guest("page_table_peak_bytes");
            assert!(
                backed <= mapped + 2 * peak,
                "{pair}: {backed} {mapped} {peak}"
            );
            assert!(host("fault_cycles") > 0, "{pair}");
            assert!(host("page_table_bytes") > 0, "{pair}");
            let seen = [
                metric(&d, "instructions") as u64,
                guest("faults_4kb"),
                mapped,
                peak,
                backed,
            ];
            assert_eq!(*same.get_or_insert(seen), seen, "{pair}");
            hosts.insert(host("page_table_peak_bytes"));
        }
        // Five tables with the same pages.
        assert_eq!(hosts.len(), tables.len(), "{guest}: {hosts:?}");
        guests.extend(same);
    }
    // The guests differ only in their tables.
    let backed: BTreeSet<_> = guests.iter().map(|g| g[4]).collect();
    assert_eq!(backed.len(), tables.len(), "{backed:?}");
    assert!(
        guests.windows(2).all(|g| g[0][..3] == g[1][..3]),
        "{guests:?}"
    );
}

#[test]
fn a_virtual_machine_is_slower_than_none_and_a_perfect_mmu_tells_no_difference() {
    let r = run(
        MACHINE,
        &[
            "radix",
            "radix-virtual",
            "ecpt",
            "ecpt-virtual",
            "mehpt",
            "mehpt-virtual",
        ],
        "gups 256MB",
        N,
        &[],
    );
    for pair in r.designs.chunks(2) {
        let [native, nested] = pair else {
            unreachable!("an even number")
        };
        assert_eq!(
            (native.status, nested.status),
            (Status::Complete, Status::Complete),
            "{:?}",
            nested.message
        );
        assert!(
            metric(nested, "cycles") > metric(native, "cycles"),
            "{}",
            nested.name
        );
        let walk = |d| metric(d, "walk_cycles_mean");
        assert!(walk(nested) > walk(native), "{}", nested.name);
    }
    let perfect = |d: &str| {
        metric(
            &one(MACHINE, d, "gups 64MB", N, &["mmu.perfect=true"]),
            "l2_tlb_mpki",
        )
    };
    assert_eq!(perfect("radix-virtual"), 0.0);
}

/// Its keys determine the nested TLB.
#[test]
fn a_larger_nested_tlb_has_fewer_host_walks() {
    let walks = |entries: u32| {
        let set = format!("mmu.nested_tlb.entries={entries}");
        let d = one(MACHINE, "radix-virtual", "gups 64MB", N, &[&set]);
        sum(&d, "host_walks", |p| p.ends_with(".mmu.nested"))
    };
    let (none, some, many) = (walks(0), walks(64), walks(65_536));
    assert!(none > some && some > many, "{none} {some} {many}");
}

/// The walk of one radix table, for any guest and host.
#[test]
fn a_walk_of_the_shadow_is_that_of_one_table() {
    let set = ["mmu.walk_caches.entries=0", "mmu.nested_tlb.entries=0"];
    for (of, reads) in [
        (&[][..], 4.0),
        (
            &[
                "page_table.elastic_cuckoo={}",
                "virtual.page_table.level_hashing={}",
            ],
            4.0,
        ),
        (&["placement.thp={}"], 4.0),
        // Code and stack have small pages.
        (&["placement.thp={}", "virtual.placement.thp={}"], 3.0),
    ] {
        let set: Vec<&str> = set.iter().chain(of).copied().collect();
        let mut s = spec(MACHINE, &["shadow-paging"], "gups 4GiB", N, &set);
        s.options.limits.warmup = 50_000;
        let d = run_spec(&s).expect("it runs").designs.remove(0);
        assert_eq!(d.status, Status::Complete, "{:?}", d.message);
        let found = metric(&d, "walk_reads_per_walk");
        assert!((reads..reads + 0.05).contains(&found), "{of:?}: {found}");
        let nested = d.stats.iter().any(|s| s.path.contains("nested"));
        assert!(!nested, "nobody walks the host's table");
    }
}

/// The same pages and TLBs with fewer reads: never slower than nested walks, and much faster where walks
/// matter. The time of the kernels is the same.
#[test]
fn ideal_shadow_paging_is_never_slower_than_nested_paging() {
    let placements = ["buddy={}", "thp={}"];
    for workload in ["gups 256MB", "bfs 64MB populate=no", "kv-hash 64MB"] {
        for guest in placements {
            for host in placements {
                let set = [
                    format!("placement.{guest}"),
                    format!("virtual.placement.{host}"),
                ];
                let set: Vec<&str> = [
                    &[&*set[0], &*set[1]][..],
                    &["caches.l2.replacement=lru", "os.memory_gb=16"],
                ]
                .concat();
                let at = |design| one("revelator-table1", design, workload, N, &set);
                let (shadow, nested) = (at("shadow-paging"), at("radix-virtual"));
                let cycles = |d| metric(d, "cycles");
                let (fast, slow) = (cycles(&shadow), cycles(&nested));
                let what = format!("{workload}, {guest} over {host}: {fast} and {slow} cycles");
                assert!(fast <= slow * 1.005, "{what}");
                let walks = |d| sum(d, "walks", |p| p.ends_with(".mmu"));
                assert!(
                    walks(&shadow).abs_diff(walks(&nested)) * 100 <= walks(&nested),
                    "{what}"
                );
                let small = guest == placements[0] && host == placements[0];
                assert!(
                    !small || workload != "gups 256MB" || fast * 1.2 < slow,
                    "{what}"
                );
                for path in ["os", "host"] {
                    let took = |d| sum(d, "fault_cycles", |p| p == path);
                    assert_eq!(took(&shadow), took(&nested), "{what}");
                }
            }
        }
    }
}
