//! Warnings name the cause that applies.

use crate::common::{run, run_spec, spec};

const MACHINE: &str = "epyc-milan";
const N: u64 = 50_000;

/// The warning about two designs that never differed.
fn cause(designs: &[&str], program: &str, set: &[&str]) -> String {
    let r = run(MACHINE, designs, program, N, set);
    let found = r.warnings.iter().find(|w| w.contains("never differed"));
    found
        .unwrap_or_else(|| panic!("{designs:?} differed: {:?}", r.warnings))
        .clone()
}

#[test]
fn the_warning_on_equal_designs_names_the_cause() {
    for (designs, program, set, said) in [
        (
            &["radix", "thp"][..],
            "gups 64MB",
            &["os.fragmentation.available_2mb=0.0"][..],
            "no page of 2 MB was possible: 3",
        ),
        (
            &["thp", "thp-1g"],
            "gups 64MB",
            &[],
            "no page of 1 GB was possible: no first touch lay in an aligned 1 GB",
        ),
        (
            &["radix", "thp[placement.thp.mode=madvise]"],
            "gups 64MB",
            &[],
            "the program asked for none with madvise",
        ),
        (
            &["radix", "radix[page_table.radix.levels=4]"],
            "gups 1MB",
            &[],
            "their configurations are the same",
        ),
        (
            &["radix", "l2tlb-128k"],
            "gups 1MB",
            &[],
            "no entry of mmu.l2.main had to make room: the program fits it (",
        ),
        (
            &["perfect-tlb", "perfect-tlb[mmu.walk_caches.entries=64]"],
            "gups 64MB",
            &[],
            "their TLBs never miss (mmu.perfect)",
        ),
        (
            &["radix", "radix[mmu.walkers=9]"],
            "sysbench 1MB",
            &["mmu.walkers=8"],
            "no walk ever waited for a walker",
        ),
        (
            &["mehpt", "mehpt[page_table.memory_efficient.upsize_at=0.55]"],
            "gups 1MB",
            &[],
            "no page table was resized since the machine booted",
        ),
        (
            &[
                "stlt[shortcut.stlt.rows=256]",
                "stlt[shortcut.stlt.rows=256,shortcut.stlt.load_latency=9]",
            ],
            "gups 1MB",
            &[],
            "the program made no shortcut query (shortcut)",
        ),
        (
            &["radix", "radix[os.prices.copy_ns_per_byte=9]"],
            "gups 1MB",
            &[],
            "why is not known; their configurations differ in os.",
        ),
    ] {
        let what = cause(designs, program, set);
        assert!(what.contains(said), "{what}");
        assert!(what.contains(designs[1]), "{what}");
    }
}

#[test]
fn a_window_that_does_not_fill_a_tlb_is_not_taken_for_a_small_program() {
    let r = run(MACHINE, &["radix", "l2tlb-128k"], "gups 1GiB", 300, &[]);
    let found = r.warnings.iter().find(|w| w.contains("never differed"));
    let what = found.expect("300 instructions do not fill 2048 entries");
    assert!(what.contains("it is too short to fill it"), "{what}");
}

#[test]
fn the_warning_on_threads_that_take_turns_names_the_key() {
    let with = |set: &[&str]| {
        let program = "gups 64MB threads=4";
        run(MACHINE, &["radix", "thp"], program, N, set).warnings
    };
    let found = with(&["cores=1"]);
    let about: Vec<_> = found.iter().filter(|w| w.contains("took turns")).collect();
    assert_eq!(about.len(), 1, "{found:?}");
    assert!(about[0].contains("up to 4 threads wanted 1 core at a time"));
    assert!(about[0].contains("--set cores=4"));
    // By default each thread has a core.
    assert!(!with(&[]).iter().any(|w| w.contains("took turns")));
}

#[test]
fn warnings_of_several_designs_are_merged() {
    let small = [
        "radix",
        "radix[mmu.walkers=9]",
        "l2tlb-128k",
        "radix[mmu.walkers=10]",
    ];
    let r = run(MACHINE, &small, "sysbench 1MB", N, &["mmu.walkers=8"]);
    let about: Vec<_> = (r.warnings.iter())
        .filter(|w| w.contains("never differed"))
        .collect();
    assert_eq!(about.len(), 1, "six pairs, one sentence: {:?}", r.warnings);
    let said = about[0];
    let head = "radix, radix[mmu.walkers=9], l2tlb-128k and radix[mmu.walkers=10] never differed in any statistic: beside radix, ";
    assert!(said.starts_with(head), "{said}");
    // Each cause with its designs.
    let both = "radix[mmu.walkers=9] and radix[mmu.walkers=10]: no walk ever waited for a walker";
    assert!(said.contains(both), "{said}");
    let one = "l2tlb-128k: no entry of mmu.l2.main had to make room";
    assert!(said.contains(one), "{said}");

    // Two pairs that differ from each other give two sentences.
    let same = "page_table.radix.levels=4";
    let [radix, thp] = ["radix", "thp"].map(|d| format!("{d}[{same}]"));
    let two = ["radix", &radix, "thp", &thp];
    let r = run(MACHINE, &two, "gups 64MB", N, &[]);
    let about = r.warnings.iter().filter(|w| w.contains("never differed"));
    assert_eq!(about.count(), 2, "{:?}", r.warnings);

    let [stlt, va] = ["stlt", "stlt-va"].map(|d| format!("{d}[shortcut.stlt.rows=256]"));
    let r = run(MACHINE, &[&stlt, "radix", &va], "gups 1MB", N, &[]);
    let about: Vec<_> = (r.warnings.iter())
        .filter(|w| w.contains("made no shortcut query, so"))
        .collect();
    assert_eq!(about.len(), 1, "{:?}", r.warnings);
    assert!(
        about[0].starts_with(&format!("{stlt} and {va}: ")),
        "{about:?}"
    );
}

/// The first touches of a heap are named with the remedy; a heap that is mapped before is not.
#[test]
fn a_measured_part_of_first_touches_is_named() {
    for (program, set, said) in [
        (
            "gups 64MB populate=no",
            &[][..],
            Some("mostly the first use of memory"),
        ),
        // Without the kernel's prices only the growth of the page tables is left to name.
        (
            "gups 64MB populate=no",
            &["os.prices.trap_ns=0", "os.prices.zero_ns_per_byte=0"],
            Some("page faults lie in the measured part"),
        ),
        ("gups 64MB", &[], None),
    ] {
        let r = run(MACHINE, &["radix"], program, N, set);
        let found = (r.warnings.iter()).find(|w| w.contains("--skip N or --warmup N"));
        match said {
            Some(said) => assert!(found.is_some_and(|w| w.contains(said)), "{:?}", r.warnings),
            None => assert_eq!(found, None),
        }
    }
}

/// While GUPS brings the lines of its page table into the L3, walks take ever fewer cycles.
#[test]
fn a_measured_part_that_ends_before_the_caches_are_warm_is_named() {
    let warns = |size: &str, warmup, instructions| {
        let mut s = spec(
            MACHINE,
            &["radix"],
            &format!("gups {size}"),
            instructions,
            &[],
        );
        s.options.limits.warmup = warmup;
        let r = run_spec(&s).expect("it runs");
        r.warnings.iter().any(|w| w.contains("not steady"))
    };
    assert!(warns("1GiB", 0, 200_000));
    assert!(!warns("1GiB", 5_000_000, 200_000));
    assert!(!warns("1MiB", 200_000, 200_000), "all lines are in the L2");
}

/// A heap that grows by less than 2 MB at a time gets its huge pages from khugepaged only.
#[test]
fn huge_pages_that_khugepaged_would_make_are_named() {
    let said = cause(&["radix", "thp"], "kv-map 64MB", &[]);
    assert!(
        said.contains("thp[placement.thp.khugepaged.settled=true]"),
        "{said}"
    );
}
