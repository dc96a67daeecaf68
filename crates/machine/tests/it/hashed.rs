//! Hashed page tables on whole machines: their requests to the kernel, and the effect of fragmented
//! memory.

use crate::common::{metric, one, run, run_spec, spec, sum};
use pagewalk_machine::{DesignResult, Status};

const MACHINE: &str = "mehpt-table3";

fn os(d: &DesignResult, name: &str) -> u64 {
    sum(d, name, |p| p == "os")
}

fn since_boot(d: &DesignResult, path: &str, name: &str) -> u64 {
    let row = d
        .since_boot
        .iter()
        .find(|s| s.path == path && s.name == name);
    row.unwrap_or_else(|| panic!("no {path}.{name}")).value
}

/// ME-HPT, sections III and VII-B, with a limit of 2 MB for 64 MB. Above that fragmentation index the
/// design with contiguous ways cannot finish; the others can.
#[test]
fn memory_in_pieces_ends_a_run_that_asks_for_one_whole() {
    // Every 2 MB has a page in use, so no block above 1 MB exists without compaction.
    let set = [
        "os.fragmentation.unusable_free_index=1.0",
        "os.compaction.fails_from_mb=2",
    ];
    let designs = ["radix", "ecpt", "mehpt", "thp"];
    let r = run(MACHINE, &designs, "gups 2GiB", 100_000, &set);
    assert!(r.partial);
    for (i, d) in r.designs.iter().enumerate() {
        if i != 1 {
            assert_eq!(
                (d.status, &d.message),
                (Status::Complete, &None),
                "{}",
                d.name
            );
            assert!(d.speedup.is_some());
        }
    }
    let ecpt = &r.designs[1];
    assert_eq!((ecpt.status, ecpt.speedup), (Status::CannotFinish, None));
    let why = ecpt.message.as_ref().expect("a reason");
    for word in [
        "contiguous 2 MB",
        "0.7 ",
        "index is 1;",
        "os.compaction",
        "0x1000",
    ] {
        assert!(why.contains(word), "{word}: {why}");
    }
    assert!(r.warnings.iter().any(|w| w.contains(why)));
    // Counts up to the end are kept: three ways of 16384 lines of 8 pages. A resize continues by 1.45
    // slots a line, and the next one waits for it (`migrated_per_insertion`).
    let pages = since_boot(ecpt, "os", "populated_pages");
    assert!(pages.abs_diff(3 * 16384 * 8 * 100 / 145) < 1000, "{pages}");
    assert_eq!(since_boot(ecpt, "os", "largest_contiguous_bytes"), 1 << 20);
}

/// A way that has used all its registers does not depend on memory. The message names the full table, and
/// its advice helps.
#[test]
fn a_full_l2p_table_ends_a_run_by_its_name() {
    for (design, before, key) in [
        ("mehpt-1mb", "cannot finish: ", ""),
        ("radix-virtual", "the host: cannot finish: ", "virtual."),
    ] {
        let run_with = |entries: u32| {
            let set = [
                format!("{key}page_table.memory_efficient.chunks=[4096]"),
                format!("{key}page_table.memory_efficient.change_chunks=false"),
                format!("{key}page_table.memory_efficient.l2p_entries={entries}"),
                "os.fragmentation.unusable_free_index=0.0".to_owned(),
            ];
            let mut r = run(
                MACHINE,
                &[design],
                "gups 64MB",
                10_000,
                &set.each_ref().map(String::as_str),
            );
            r.designs.remove(0)
        };
        let d = run_with(4);
        assert_eq!((d.status, d.speedup), (Status::CannotFinish, None));
        let why = d.message.as_ref().expect("a reason");
        assert!(why.starts_with(before), "{why}");
        for word in [
            "the L2P table is full: way ",
            "of the 4KB pages uses 8 of at most 8 entries and needs 8 more, for chunks of 4 KB",
            &format!("({key}page_table.memory_efficient.chunks;"),
            &format!("({key}page_table.memory_efficient.l2p_entries)"),
        ] {
            assert!(why.contains(word), "{word}: {why}");
        }
        assert!(!why.contains("fragmentation"), "{why}");
        let d = run_with(64);
        assert_eq!((d.status, &d.message), (Status::Complete, &None));
    }
}

/// At the paper's fragmentation index, compaction makes room at the published price.
#[test]
fn table_allocations_are_counted_by_size_and_priced() {
    let d = one(MACHINE, "ecpt", "gups 512MB", 100_000, &[]);
    let blocks = |class: &str| since_boot(&d, "os", &format!("table_blocks_{class}"));
    // Ways of 8 KB (and walk tables), then 16 KB to 512 KB. They are two thirds full of 16384 lines; the
    // next resize would be due at 1 / 1.45.
    assert!(blocks("8kb") >= 3 && blocks("1mb") >= 3 * 6);
    assert_eq!(
        blocks("4kb") + blocks("8mb") + blocks("64mb") + blocks("larger"),
        0
    );
    let cycles = since_boot(&d, "os", "table_allocation_cycles");
    // The three largest alone take more than twice 5,000 * 64^1.03 each.
    assert!(cycles > 3 * 300_000, "{cycles}");
    let moves = since_boot(&d, "os", "table_move_cycles");
    assert_eq!(moves, 200 * since_boot(&d, "os", "table_entries_moved"));
    // All of it happens while populating.
    let tables = since_boot(&d, "os", "populate_table_cycles");
    assert!(tables <= cycles + moves && tables > (cycles + moves) * 9 / 10);
    let all = since_boot(&d, "os", "populate_cycles");
    let pages = since_boot(&d, "os", "populated_pages");
    assert_eq!(all, tables + pages * (1000 + 1024));
    // Contiguous requests are more expensive than those for chunks, as in the paper.
    let chunks = one(MACHINE, "mehpt", "gups 512MB", 100_000, &[]);
    assert!(since_boot(&chunks, "os", "table_allocation_cycles") < cycles);
}

/// Tables grow when arenas fill and shrink when they are freed. The walk checks every access against the
/// tables, and page faults are first touches only.
#[test]
fn tables_shrink_with_the_memory_of_a_program() {
    let churn = |design: &str, release: &str, set: &[&str]| {
        let workload = format!("churn 32MB rounds=2 keep=5 reads=5 release={release}");
        let mut s = spec(MACHINE, &[design], &workload, 1, set);
        s.options.limits.instructions = None;
        let d = run_spec(&s).expect("it runs").designs.remove(0);
        assert_eq!(d.status, Status::Complete, "{design}: {:?}", d.message);
        // Twice 16 arenas, of which one in twenty stays, which rounds to none.
        let bytes = os(&d, "faults_4kb") * 4096 + os(&d, "faults_2mb") * (2 << 20);
        assert!((64 << 20..65 << 20).contains(&bytes), "{design} {bytes}");
        assert!(os(&d, "mapped_4kb_bytes") + os(&d, "mapped_2mb_bytes") < 1 << 20);
        d
    };
    // Nodes of the arenas' 4 KB pages have been freed. Sixteen pages of 2 MB take two lines of a hashed
    // table, which need not grow for them.
    let radix = churn("radix", "unmap", &[]);
    let (now, peak) = (
        os(&radix, "page_table_bytes"),
        os(&radix, "page_table_peak_bytes"),
    );
    assert!(now + 16 * 4096 <= peak, "{now} of {peak}");
    churn("mehpt-thp", "unmap", &[]);
    // Hashed tables are compared with the same table that never shrinks.
    for (design, kind, release, slots) in [
        ("ecpt", "elastic_cuckoo", "unmap", 128),
        ("mehpt", "memory_efficient", "unmap", 128),
        ("mehpt", "memory_efficient", "advise", 128),
        ("hash-dont-cache", "hash_dont_cache", "unmap", 64),
        ("level-hashing", "level_hashing", "unmap", 128),
    ] {
        let slots = format!("page_table.{kind}.initial_slots={slots}");
        let [shrunk, kept] = ["0.2", "0"].map(|at| {
            let at = format!("page_table.{kind}.downsize_at={at}");
            churn(design, release, &[&slots, &at])
        });
        let bytes = |d| os(d, "page_table_bytes");
        assert!(
            bytes(&shrunk) * 2 < bytes(&kept),
            "{design}: {} of {}",
            bytes(&shrunk),
            bytes(&kept)
        );
        if ["ecpt", "mehpt"].contains(&design) {
            let table = |d, name: &str| sum(d, name, |p| p == "page_table.4kb");
            assert!(table(&shrunk, "upsizes") > 3 && table(&shrunk, "downsizes") > 3);
            assert_eq!(table(&kept, "downsizes"), 0, "{design}");
        }
    }
}

/// Threads on eight cores share a table during its resizes.
#[test]
fn eight_cores_share_a_growing_table() {
    for design in ["ecpt", "mehpt", "mehpt-virtual"] {
        let workload = "churn 32MB threads=8 rounds=2 reads=20";
        let mut s = spec(MACHINE, &["radix", design], workload, 1, &["cores=8"]);
        s.options.limits.instructions = None;
        let r = run_spec(&s).expect("it runs");
        for d in &r.designs {
            assert_eq!(d.status, Status::Complete, "{}: {:?}", d.name, d.message);
        }
        let [radix, other] = &r.designs[..] else {
            unreachable!()
        };
        for name in ["faults_4kb", "mapped_4kb_bytes"] {
            assert_eq!(os(radix, name), os(other, name), "{design} {name}");
        }
        assert_eq!(metric(radix, "instructions"), metric(other, "instructions"));
    }
}

/// The program makes no random choices, so differences come from those of the tables.
#[test]
fn the_seed_reaches_page_tables() {
    let run = |seed| {
        let mut spec = spec(MACHINE, &["mehpt"], "sysbench 256MiB", 20_000, &[]);
        spec.options.seed = seed;
        let mut r = run_spec(&spec).expect("it runs");
        r.designs.remove(0)
    };
    let (one, two, again) = (run(1), run(2), run(1));
    let text = |d: &DesignResult| serde_json::to_string(d).expect("a result is plain data");
    assert_eq!(text(&one), text(&again));
    let moved = |d: &DesignResult| since_boot(d, "page_table.4kb", "reinsertions");
    assert_ne!(moved(&one), moved(&two));
    let lines = |d: &DesignResult| since_boot(d, "page_table.4kb", "lines");
    assert_eq!(lines(&one), lines(&two));
}
