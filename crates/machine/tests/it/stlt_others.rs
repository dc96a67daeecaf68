//! An STLT while the kernel moves pages, with other page tables, placements and engines, and in virtual
//! machines. In builds with checks, the MMU compares each hit of the STB with the page table.

use pagewalk_machine::{Design, DesignResult};
use serde_json::{Value, json};

use crate::common::store::{QueryCounts, RecordChanges, Store, design, run, table, unit};
use crate::common::sum;

const ROWS: &str = "shortcut.stlt.rows=16384";
/// Designs whose first touches find huge pages.
const THP: [&str; 3] = ["thp", "ecpt-thp", "mehpt-thp"];

/// Small TLBs, so that the STB is looked up.
fn small_tlbs(mut d: Design) -> Design {
    for (level, entries) in [(&mut d.config.mmu.l2, 64), (&mut d.config.mmu.l1d, 16)] {
        level.get_mut("main").expect("main").entries = entries;
    }
    d
}

fn check(d: &DesignResult, queries: &QueryCounts, what: &str) {
    assert_eq!(table(d, "loads"), queries.loads, "{what}");
    assert_eq!(table(d, "hits"), queries.loads - queries.nothing, "{what}");
    assert_eq!(table(d, "inserts"), queries.inserts, "{what}");
    assert_eq!(table(d, "given_up"), queries.refused, "{what}");
    assert_eq!(unit(d, ".stlt", "walks"), queries.inserts, "{what}");
    let faults = unit(d, ".stlt", "walk_faults");
    assert_eq!(faults, queries.refused, "{what}: walker and kernel agree");
    assert_eq!(unit(d, ".stb", "fills"), table(d, "hits"), "{what}");
    assert_eq!(unit(d, ".ipb", "hits"), table(d, "invalid"), "{what}");
    let rows_found = table(d, "hits") + table(d, "invalid");
    assert_eq!(unit(d, ".ipb", "lookups"), rows_found, "{what}");
    let hits = (table(d, "hits"), unit(d, ".stb", "hits"));
    // A host that moves pages makes all cores invalidate the whole guest each time.
    let least = if what.contains("moves=true") {
        (100, 0)
    } else {
        (300, 30)
    };
    assert!(hits.0 > least.0 && hits.1 > least.1, "{what}: {hits:?}");
}

fn kernel(d: &DesignResult, path: &str, name: &str) -> u64 {
    sum(d, name, |p| p == path)
}

/// Two threads on two cores query the same records, whose pages move and are swapped out.
#[test]
fn pages_that_move_and_pages_that_go_are_never_answered_from() {
    let program = Store {
        requests: 10_000,
        threads: 2,
        ..Store::default()
    };
    let own = json!({"interval_us": 10.0, "pages": 4});
    let stolen = json!({"interval_us": 10.0, "pages": 4, "core": "stolen"});
    let swap = json!({"interval_us": 10.0, "pages": 4, "latency_us": 5.0});
    for (mover, set) in [
        ("os.migration", own),
        ("os.migration", stolen),
        ("os.swap", swap),
    ] {
        let mut d = small_tlbs(design("stlt", &[ROWS]));
        d.config.cores = 2;
        if mover == "os.swap" {
            d.config.os.swap = Some(read(&set));
        } else {
            d.config.os.migration = Some(read(&set));
        }
        let set = &format!("{mover} {set}");
        let (d, queries) = run(&d, program, &json!({}));
        check(&d, &queries, set);
        let of = |name| kernel(&d, mover, name);
        let done = if mover == "os.swap" {
            of("swapped_out")
        } else {
            of("moved")
        };
        assert!(done > 300, "{set}: {done}");
        // Two cores run the program; the one that does the work is not interrupted.
        let stolen = set.contains("stolen");
        assert_eq!(of("shootdowns") <= done, stolen, "{set}");
        assert!(
            table(&d, "invalid") > 10 && table(&d, "refreshes") > 5,
            "{set}"
        );
        // Into the buffers of both cores while both threads run.
        let (fills, put) = (unit(&d, ".ipb", "fills"), table(&d, "invalid_pages"));
        assert!(fills > put && fills <= 2 * put, "{set}: {fills} of {put}");
        if mover == "os.swap" {
            let back = of("swapped_in");
            assert!(back > 200 && back <= done, "{back} of {done}");
            let each = (5.0f64 * 1e3 * 2.66).round() as u64;
            assert_eq!(of("swap_in_cycles"), back * each);
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(spec: &Value) -> T {
    serde_json::from_value(spec.clone()).expect("it fits")
}

/// Also with other components of a design, while memory is mapped, unmapped and moved.
#[test]
fn stlt_works_with_other_tables_placements_and_engines() {
    let program = Store {
        keys: 6_000,
        requests: 6_000,
        changes: RecordChanges::Everything,
        huge: true,
        ..Store::default()
    };
    for base in [
        "thp",
        "ecpt",
        "ecpt-thp",
        "mehpt",
        "mehpt-thp",
        "hash-dont-cache",
        "level-hashing",
        "revelator",
        "revelator-thp",
        "pom-tlb",
        "spectlb",
        "tlb-distance",
    ] {
        let d = small_tlbs(design(base, &[ROWS]));
        let (d, queries) = run(&d, program, &json!({}));
        check(&d, &queries, base);
        let huge = kernel(&d, "os", "faults_2mb");
        assert_eq!(huge > 0, THP.contains(&base), "{base}: {huge} huge pages");
        let (walks, reads) = (unit(&d, ".stlt", "walks"), unit(&d, ".stlt", "walk_reads"));
        assert!(reads > walks / 2, "{base}: {reads} reads of {walks}");
        if base.starts_with("revelator") {
            let fetched = sum(&d, "fetched", |p| p.starts_with("core.0.mmu.engine"));
            assert!(fetched > 100, "{base}: {fetched}");
        }
    }
}

/// Rows combine the translations of guest and host. The guest's kernel changes its pages, and the host's
/// kernel moves the frames behind them.
#[test]
fn in_a_virtual_machine_rows_lead_from_guest_virtual_to_physical() {
    let program = Store {
        keys: 6_000,
        requests: 6_000,
        changes: RecordChanges::Everything,
        ..Store::default()
    };
    for (base, moves) in [
        ("radix-virtual", false),
        ("thp-virtual", false),
        ("radix-virtual", true),
        ("shadow-paging", true),
        ("mehpt-virtual", false),
        ("revelator-virtual", false),
    ] {
        let mut d = small_tlbs(design(base, &[ROWS]));
        if moves {
            d.config.os.migration = Some(read(&json!({"interval_us": 50.0, "pages": 1})));
        }
        let (d, queries) = run(&d, program, &json!({}));
        let what = format!("{base} moves={moves}");
        check(&d, &queries, &what);
        let moved = || kernel(&d, "host.migration", "moved");
        assert!(!moves || moved() > 20, "{what}");
        // With a two-dimensional walk, an insertion reads more than the four entries.
        if base == "radix-virtual" {
            let reads = unit(&d, ".stlt", "walk_reads");
            assert!(reads > unit(&d, ".stlt", "walks"), "{what}: {reads}");
        }
    }
}
