//! Kernel threads in whole runs: khugepaged on growing heaps, and page migration.

use crate::common::{metric, one, run_spec, spec};
use pagewalk_machine::{DesignResult, Stat, Status};

const MACHINE: &str = "revelator-table1";
const N: u64 = 400_000;
const OFF: &str = "placement.thp.khugepaged.enabled=false";
const SETTLED: &str = "placement.thp.khugepaged.settled=true";
const BUSY: &str = "placement.thp.khugepaged.scan_sleep_millisecs=0";
const STOLEN: &str = "placement.thp.khugepaged.core=stolen";

fn of(rows: &[Stat], name: &str) -> u64 {
    let row = rows
        .iter()
        .find(|s| s.path == "os.khugepaged" && s.name == name);
    row.unwrap_or_else(|| panic!("no os.khugepaged.{name}"))
        .value
}

/// Share of the mapped memory that lies in 2 MB pages.
fn huge(d: &DesignResult) -> f64 {
    let (small, huge) = (metric(d, "mapped_4kb"), metric(d, "mapped_2mb"));
    huge / (small + huge)
}

#[test]
fn settled_memory_gives_growing_heaps_their_huge_pages() {
    // One key-value store and one graph kernel. Their heaps grow by 132 KB at a time.
    for workload in ["kv-map 32MB", "bfs 64MB layout=graphbig"] {
        let run = |design: &str, set: &[&str]| one(MACHINE, design, workload, N, set);
        let radix = run("radix", &[]);
        let (off, settled) = (run("thp", &[OFF]), run("thp", &[SETTLED]));
        assert!(huge(&settled) > 0.9, "{workload}: {}", huge(&settled));
        assert!(huge(&off) < 0.7, "{workload}: {}", huge(&off));
        let (r, o, s) = (
            metric(&radix, "cycles"),
            metric(&off, "cycles"),
            metric(&settled, "cycles"),
        );
        assert!(
            s < o && s < r,
            "{workload}: {r} radix, {o} off, {s} settled"
        );
        let walks = |d| metric(d, "walks");
        assert!(walks(&settled) < walks(&off) / 2.0, "{workload}");
        // It happens before the measured part, and costs nothing in it.
        assert_eq!(of(&settled.stats, "collapses"), 0);
        assert!(of(&settled.since_boot, "settled_collapses") > 10);
        assert_eq!(of(&settled.since_boot, "cycles"), 0);
    }
}

/// 32 MB are initialised within milliseconds, far less than the sleep of 10 s.
#[test]
fn initialisation_gives_khugepaged_the_time_that_it_would_have_taken() {
    let run = |set: &[&str]| one(MACHINE, "thp", "kv-map 32MB", N, set);
    let (linux, off) = (run(&[]), run(&[OFF]));
    assert_eq!(of(&linux.since_boot, "passes"), 0);
    assert_eq!(metric(&linux, "cycles"), metric(&off, "cycles"));
    // 8,000 pages of 1 us each take 8 ms. A collapse takes half a millisecond.
    let busy = run(&[BUSY]);
    let in_time = of(&busy.since_boot, "collapses") - of(&busy.stats, "collapses");
    assert!((5..25).contains(&in_time), "{in_time}");
    let every_4_ms = run(&["placement.thp.khugepaged.scan_sleep_millisecs=4"]);
    let passes = of(&every_4_ms.since_boot, "passes");
    assert!((1..4).contains(&passes), "{passes}");
}

#[test]
fn stolen_time_slows_the_program_and_own_time_only_interrupts_it() {
    // Nothing is collapsed before the measured part, which begins at boot.
    let run = |set: &[&str]| {
        let mut all = vec![BUSY, "placement.thp.khugepaged.pages_to_scan=512"];
        all.extend(set);
        one(MACHINE, "thp", "kv-map 64MB", N, &all)
    };
    let (own, stolen, off) = (run(&[]), run(&[STOLEN]), run(&[OFF]));
    let cycles = |d| metric(d, "cycles");
    assert!(of(&own.stats, "collapses") > 0 && of(&stolen.stats, "collapses") > 0);
    // Each collapse interrupts the one core that runs the program.
    assert_eq!(of(&own.stats, "shootdowns"), of(&own.stats, "collapses"));
    assert_eq!(of(&stolen.stats, "shootdowns"), 0);
    let taken = of(&stolen.stats, "cycles") as f64;
    assert!(
        cycles(&stolen) > taken && cycles(&stolen) > cycles(&own) + taken / 2.0,
        "{} with {taken} stolen, {} without, {} without khugepaged",
        cycles(&stolen),
        cycles(&own),
        cycles(&off)
    );
}

#[test]
fn a_run_with_khugepaged_is_the_same_each_time() {
    let text = |threads: usize| {
        let names = ["thp", "mehpt-thp", "ecpt-thp"];
        let set = [BUSY, "cores=2"];
        let mut s = spec(
            MACHINE,
            &names,
            "bfs 32MB threads=2 layout=graphbig",
            200_000,
            &set,
        );
        s.options.host_threads = Some(threads);
        let designs = run_spec(&s).unwrap().designs;
        for d in &designs {
            assert_eq!(d.status, Status::Complete, "{}: {:?}", d.name, d.message);
            assert!(of(&d.since_boot, "collapses") > 0, "{}", d.name);
        }
        serde_json::to_string(&designs).unwrap()
    };
    assert_eq!(text(1), text(2));
}

#[test]
fn every_kind_of_page_table_gains_when_memory_is_settled() {
    for design in ["ecpt-thp", "mehpt-thp", "hash-dont-cache-thp"] {
        let run = |set| one(MACHINE, design, "kv-map 32MB", N, &[set]);
        let (off, settled) = (run(OFF), run(SETTLED));
        assert!(huge(&settled) > 0.9, "{design}");
        assert!(
            metric(&settled, "walks") < metric(&off, "walks") / 2.0,
            "{design}"
        );
        assert!(
            metric(&settled, "cycles") < metric(&off, "cycles"),
            "{design}"
        );
    }
}

/// A pass takes several times its interval, on either kind of core.
#[test]
fn a_program_goes_on_however_often_its_pages_move() {
    for core in ["own", "stolen"] {
        let set = format!("os.migration={{interval_us=0.5,pages=2,core=\"{core}\"}}");
        let d = one(MACHINE, "radix", "gups 16MB", 400_000, &[&set]);
        let row = (d.stats.iter()).find(|s| s.path == "os.migration" && s.name == "passes");
        let passes = row.expect("it migrates").value;
        let intervals = metric(&d, "cycles") / (0.5 * 2900.0);
        assert!(
            passes > 10 && passes as f64 <= intervals,
            "{core}: {passes}"
        );
    }
}
