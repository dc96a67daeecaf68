//! Values at and beyond the limits of useful ones: refused with the name of the key, or a machine that
//! runs. Never a panic.

use crate::common::{run_spec, spec};
use pagewalk_machine::{Limits, RunSpec, Sample, Status};
use pagewalk_units::ErrorKind;

const MOST: &str = "9223372036854775807";

fn machine(set: &[&str]) -> RunSpec {
    let mut s = spec("revelator-table1", &["radix"], "gups 1MB", 3000, set);
    s.options.limits.warmup = 500;
    s
}

/// Adds to `wrong` a run that is not refused with a sentence that contains `word`.
fn refused(spec: &RunSpec, what: &str, word: &str, wrong: &mut Vec<String>) {
    match run_spec(spec) {
        Err(e) if e.kind() == ErrorKind::Failed => wrong.push(format!("{what} fails: {e}")),
        Err(e) if e.to_string().contains(word) => {}
        Err(e) => wrong.push(format!("{what} does not name {word}: {e}")),
        Ok(r) => wrong.push(format!("{what} is accepted: {:?}", r.designs[0].status)),
    }
}

#[test]
fn impossible_values_are_refused_by_the_name_of_their_key() {
    let values: &[(&str, &[&str])] = &[
        ("cores", &["0", "65", "256", "-1", "1.5", "true"]),
        ("frequency_ghz", &["0", "-1", "nan", "inf", "1e300", "1e-9"]),
        ("core.width", &["0", "33", "-1", "4294967296", "wide"]),
        ("core.rob", &["0", "1", "4294967295"]),
        ("core.load_queue", &["0", "4294967295"]),
        ("core.store_queue", &["0", "4294967295"]),
        ("core.mispredict_penalty", &["1001", MOST]),
        ("core.return_stack", &["0", "4294967295"]),
        ("core.indirect_entries", &["0", "3", "4294967295"]),
        (
            "core.predictor.bimodal.log_entries",
            &["0", "25", "4294967295"],
        ),
        (
            "core.predictor",
            &[
                "{tage={log_entries=0,tables=4,min_history=8,max_history=256}}",
                "{tage={log_entries=11,tables=9,min_history=8,max_history=256}}",
                "{tage={log_entries=11,tables=4,min_history=8,max_history=8}}",
                "{tage={log_entries=11,tables=4,min_history=0,max_history=4294967295}}",
                "{tage={log_entries=11}}",
                "oracle",
            ],
        ),
        ("mmu.l1d.main.entries", &["0", "4294967295"]),
        ("mmu.l1d.main.ways", &["0", "65", "4294967295"]),
        ("mmu.l2.main.latency", &["-1", MOST]),
        ("mmu.l1d", &["{main={wags=4}}", "{mine={entries=4}}", "4"]),
        (
            "mmu.l1d.main.page_sizes",
            &["[]", "[\"8KB\"]", "4KB", "[\"4KB\",\"4KB\"]"],
        ),
        ("mmu.l1d", &["{large={page_sizes=[\"4KB\"]}}"]),
        ("mmu.l2i.main.entries", &["4"]),
        ("mmu.walkers", &["0", "257"]),
        ("mmu.walk_caches.entries", &["33", "4294967292"]),
        ("mmu.walk_caches.ways", &["0", "3", "4294967295"]),
        ("mmu.walk_caches.latency", &[MOST]),
        ("caches.l1d.size_kb", &["0", "4294967295"]),
        ("caches.l1i.ways", &["0", "65", "7"]),
        ("caches.l2.mshrs", &["0", "4097"]),
        ("caches.l1d.latency", &["0", "13", MOST]),
        ("caches.l1i.latency", &["0", "13"]),
        ("caches.l2.latency", &["1", MOST]),
        ("caches.l2.replacement", &["fifo", "1"]),
        ("caches.l2.index", &["sum", "1"]),
        ("caches.l2.prefetcher.streamer.degree", &["0", "4294967295"]),
        ("caches.l2.prefetcher.streamer.pages", &["0", "4294967295"]),
        ("caches.l1d.prefetcher.ip_stride.lookahead", &["0", "64"]),
        ("caches.l1d.prefetcher.ip_stride.entries", &["0", "1e3"]),
        ("caches.l1d.prefetcher", &["nan"]),
        ("memory.l3.prefetcher.vldp.tables", &["0", "5", "1.5"]),
        ("memory.l3.prefetcher.simple.degree", &["0", "17"]),
        ("memory.l3.prefetcher.simple.within_page", &["1"]),
        (
            "mmu.prefetcher.asp",
            &[
                "{rows=0,ways=1,buffer=0}",
                "{rows=8,ways=3,buffer=0}",
                "{rows=8,ways=8,buffer=65537}",
                "{rows=8}",
            ],
        ),
        (
            "mmu.prefetcher.distance",
            &[
                "{rows=0,ways=1,slots=1,buffer=0}",
                "{rows=8,ways=3,slots=1,buffer=0}",
                "{rows=8,ways=8,slots=9,buffer=0}",
                "{rows=8,ways=8,slots=1,buffer=65537}",
                "{rows=8}",
            ],
        ),
        (
            "mmu.prefetcher.next_page",
            &["{degree=0}", "{degree=9}", "{buffer=65537}", "{pages=1}"],
        ),
        (
            "mmu.l2.main.replacement",
            &["fifo", "1", "{srrip={bits=3}}"],
        ),
        ("caches.walks_enter", &["l4"]),
        ("caches.write_combining_buffers", &["0", "4097"]),
        ("caches.l1d_fill_bytes", &["0", "48", "128"]),
        ("memory.remote_latency", &[MOST]),
        ("memory.l3.latency", &["0", MOST]),
        ("memory.l3.size_kb", &["0", "4294967295", "2147483648"]),
        (
            "memory.dram.fixed.latency_ns",
            &["0", "-1", "nan", "inf", "1e300"],
        ),
        ("memory.dram.ddr.data_rate_mts", &["0", "99", "4294967295"]),
        ("memory.dram.ddr.channels", &["0", "257"]),
        ("memory.dram.ddr.row_bytes", &["0", "100", "4294967295"]),
        ("memory.dram.ddr.address_hash", &["none", "1"]),
        ("memory.dram.ddr.row_hit_cap", &["-1", "4097"]),
        ("memory.dram.ddr.tcl_ns", &["0", "-1", "1e300"]),
        ("memory.dram.ddr.tras_ns", &["1", "nan"]),
        ("os.memory_gb", &["0", "16385", MOST]),
        ("os.kernel_reserved", &["1", "-0.1", "nan"]),
        ("os.fragmentation", &["some"]),
        ("os.fragmentation.available_2mb", &["-0.1", "1.1", "nan"]),
        ("os.fragmentation.unusable_free_index", &["-0.1", "1.1"]),
        ("os.fragmentation.served_2mb", &["2", "none"]),
        ("os.prices.trap_ns", &["-1", "1e300", "inf"]),
        ("os.prices.zero_ns_per_byte", &["-1", "1e9"]),
        (
            "os.prices.allocation_ns",
            &["[]", "[[0,1]]", "[[2,1],[1,1]]", "[[1,1e300]]", "[[1]]"],
        ),
        ("page_table.radix.levels", &["0", "3", "6", "256"]),
        ("placement", &["slab", "{slab={}}"]),
        (
            "placement.reservation.promotion_threshold",
            &["-0.1", "1.1", "nan"],
        ),
        ("placement.thp.mode", &["sometimes"]),
        ("schedule.step_cycles", &["0", MOST]),
        ("schedule.time_slice_cycles", &["0", MOST]),
    ];
    let mut wrong = vec![];
    for (key, values) in values {
        for value in *values {
            let setting = format!("{key}={value}");
            refused(&machine(&[&setting]), &setting, key, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn values_that_contradict_one_another_are_refused() {
    let mut wrong = vec![];
    for (set, word) in [
        (
            &["cores=2", "memory.remote_latency=1"][..],
            "memory.remote_latency",
        ),
        (
            &[
                "memory.dram.ddr.channels=256",
                "memory.dram.ddr.ranks=64",
                "memory.dram.ddr.bank_groups=64",
                "memory.dram.ddr.banks=64",
            ],
            "memory.dram.ddr.banks",
        ),
        (
            &["caches.l1d.latency=30", "caches.l2.latency=20"],
            "caches.l2.latency",
        ),
        (
            &["caches.l2.ways=3", "caches.l2.size_kb=1"],
            "caches.l2.size_kb",
        ),
    ] {
        refused(&machine(set), &format!("{set:?}"), word, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn machines_at_the_ends_of_what_is_possible_run() {
    let smallest = [
        "core.width=1",
        "core.rob=2",
        "core.load_queue=1",
        "core.store_queue=1",
        "core.mispredict_penalty=0",
        "core.return_stack=1",
        "core.indirect_entries=1",
        "core.predictor.bimodal.log_entries=4",
        "mmu.l1i.main.entries=1",
        "mmu.l1i.main.ways=1",
        "mmu.l1i.main.latency=0",
        "mmu.l1d.main.entries=1",
        "mmu.l1d.main.ways=1",
        "mmu.l1d.main.latency=0",
        "mmu.l2.main.entries=1",
        "mmu.l2.main.ways=1",
        "mmu.l2.main.latency=0",
        "mmu.walk_caches.entries=0",
        "mmu.walkers=1",
        "caches.l1d.size_kb=1",
        "caches.l1d.ways=1",
        "caches.l1d.mshrs=1",
        "caches.write_combining_buffers=1",
        "caches.l1d_fill_bytes=1",
        "caches.l1i.size_kb=1",
        "caches.l1i.ways=1",
        "caches.l1i.mshrs=1",
        "caches.l2.size_kb=1",
        "caches.l2.ways=1",
        "caches.l2.mshrs=1",
        "memory.l3.size_kb=1",
        "memory.l3.ways=1",
        "memory.l3.mshrs=1",
        "os.memory_gb=1",
    ];
    let largest = [
        "core.width=32",
        "core.rob=16384",
        "core.load_queue=16384",
        "core.store_queue=16384",
        "core.mispredict_penalty=1000",
        "mmu.walkers=256",
        "mmu.l2.main.entries=65535",
        "mmu.l2.main.ways=65535",
        "mmu.l2.main.latency=1048576",
        "mmu.walk_caches.latency=1048576",
        "caches.l1d.mshrs=4096",
        "memory.l3.latency=1048576",
        "memory.remote_latency=1048576",
        "memory.dram.fixed.latency_ns=100000",
        "os.memory_gb=16384",
        "os.prices.trap_ns=1e9",
        "os.prices.zero_ns_per_byte=100",
        "os.prices.allocation_ns=[[1,1e12]]",
        "schedule.step_cycles=1099511627776",
        "schedule.time_slice_cycles=1099511627776",
        "frequency_ghz=100",
    ];
    let others: &[&[&str]] = &[
        &["cores=64"],
        &["core.predictor.perfect={}"],
        &["mmu.perfect=true", "mmu.l2={}"],
        &["mmu.l1d.main.entries=7", "mmu.l1d.main.ways=3"],
        &["mmu.l1d.main.page_sizes=[\"4KB\",\"1GB\"]"],
        &["frequency_ghz=0.01"],
        &["schedule.step_cycles=1", "cores=3"],
        &["os.fragmentation.unusable_free_index=1"],
        &[
            "os.fragmentation.available_2mb=0",
            "placement.thp.giant=true",
        ],
        &[
            "os.fragmentation.served_2mb=0.5",
            "placement.thp.mode=always",
        ],
        &["placement.reservation.promotion_threshold=0"],
        &["placement.reservation.promotion_threshold=1"],
        &["page_table.radix.levels=5"],
        &[
            "memory.dram.ddr.data_rate_mts=20000",
            "memory.dram.ddr.row_bytes=64",
            "memory.dram.ddr.keep_open_ns=10000",
        ],
        &["memory.dram.fixed.latency_ns=1e-9"],
        &[
            "os.prices.trap_ns=0",
            "os.prices.zero_ns_per_byte=0",
            "os.prices.shootdown_ns=0",
        ],
    ];
    for set in [&smallest[..], &largest[..]].iter().chain(others) {
        let r = run_spec(&machine(set)).unwrap_or_else(|e| panic!("{set:?}: {e}"));
        let d = &r.designs[0];
        assert_eq!(d.status, Status::Complete, "{set:?}: {:?}", d.message);
        assert!(crate::common::metric(d, "cycles") > 0.0, "{set:?}");
    }
}

#[test]
fn memory_that_the_kernel_keeps_for_itself_is_missed() {
    let with = |share: &str| {
        let set = ["os.memory_gb=1", &format!("os.kernel_reserved={share}")];
        spec("revelator-table1", &["radix"], "gups 16MB", 1000, &set)
    };
    let mut wrong = vec![];
    refused(
        &with("0.999999"),
        "0.999999",
        "os.kernel_reserved",
        &mut wrong,
    );
    assert!(wrong.is_empty(), "{wrong:?}");
    for (share, status) in [("0.99", Status::OutOfMemory), ("0.9", Status::Complete)] {
        assert_eq!(run_spec(&with(share)).unwrap().designs[0].status, status);
    }
}

#[test]
fn impossible_programs_and_limits_are_refused() {
    let mut wrong = vec![];
    let with = |workload: &str| spec("revelator-table1", &["radix"], workload, 1000, &[]);
    for (workload, word) in [
        ("gups 0", "size"),
        ("gups 99999999999999999999TiB", "size"),
        ("gups many", "size"),
        ("gups 1MB threads=0", "threads"),
        ("gups 1MB threads=100000", "threads"),
        ("gups 1MB colour=red", "colour"),
        ("bfs 1KB", "bfs"),
        ("bfs scale=99", "scale"),
        ("bfs degree=0", "degree"),
        ("gups1 1MB", "gups"),
    ] {
        refused(&with(workload), workload, word, &mut wrong);
    }
    let limits = |limits: Limits| {
        let mut s = with("gups 1MB");
        s.options.limits = limits;
        s
    };
    let of = |instructions: Option<u64>, sample: Option<(u64, u64)>| Limits {
        instructions,
        sample: sample.map(|(length, period)| Sample {
            length,
            period,
            warming: None,
        }),
        ..Limits::default()
    };
    for (l, word) in [
        (of(Some(0), None), "--instructions"),
        (of(Some(9), Some((0, 5000))), "--sample"),
        (of(Some(9), Some((u64::MAX, u64::MAX))), "--sample"),
        (of(Some(9), Some((5000, 100))), "--sample"),
    ] {
        refused(&limits(l), &format!("{l:?}"), word, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn limits_beyond_the_program_end_with_what_there_is() {
    // The largest counts do not overflow. Ctrl-C ends such a run.
    let mut s = machine(&[]);
    s.options.limits = Limits {
        skip: 1000,
        warmup: 1000,
        instructions: Some(u64::MAX - 1),
        ..Limits::default()
    };
    let r = crate::common::installation()
        .run(&s, &mut |p| {
            assert!(p.total.is_some_and(|t| t >= u64::MAX - 1));
            false
        })
        .unwrap();
    assert!(r.partial);
    assert_eq!(r.designs[0].status, Status::Partial);
}

#[test]
fn results_outlive_a_perfetto_file_that_cannot_be_written() {
    let mut s = machine(&[]);
    for place in ["/nowhere/at/all.json", "/dev/full"] {
        s.options.perfetto = Some(place.into());
        let r = run_spec(&s).unwrap();
        assert_eq!(r.designs[0].status, Status::Complete);
        assert!(
            r.failed_files.iter().any(|w| w.contains("Perfetto file")),
            "{place}: {:?}",
            r.failed_files
        );
    }
    assert!(!std::path::Path::new("/dev/full").is_file());
}
