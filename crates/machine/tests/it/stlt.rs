//! A machine with an STLT: a program queries it while its memory is mapped, unmapped and moved.

use std::sync::{Arc, Mutex};

use pagewalk_machine::{DesignResult, Limits, Options, RunSpec, Status, Stream};
use pagewalk_programs::{Code, NONE, Touch};
use pagewalk_stream::{Backing, Event, Facts, Mix, Program, ShortcutQuery};
use pagewalk_units::VirtAddr;

use crate::common::store::{
    BASE, CODE, QueryCounts, RecordChanges, Store, design, run, store, table, unit,
};
use crate::common::{installation, metric, sum};

const SMALL: &str = "shortcut.stlt.rows=16384";

/// Checks the counts of program, kernel, core unit, MMU and caches against each other.
fn check(d: &DesignResult, queries: &QueryCounts, what: &str) {
    assert_eq!(table(d, "loads"), queries.loads, "{what}");
    assert_eq!(table(d, "hits"), queries.loads - queries.nothing, "{what}");
    assert_eq!(table(d, "inserts"), queries.inserts, "{what}");
    assert_eq!(table(d, "given_up"), queries.refused, "{what}");
    assert_eq!(unit(d, ".stlt", "loads"), queries.loads, "{what}");
    assert_eq!(unit(d, ".stlt", "inserts"), queries.inserts, "{what}");
    assert_eq!(unit(d, ".insertion_buffer", "lookups"), queries.loads);
    assert_eq!(unit(d, ".insertion_buffer", "fills"), queries.inserts);
    let of_l1 = unit(d, "", "l1d_misses") + unit(d, "", "l1i_misses");
    let served = unit(d, "", "l2_hits") + unit(d, "", "l2_waits") + unit(d, ".stb", "hits");
    assert_eq!(of_l1, served + unit(d, "", "walks"), "{what}");
    let reads = unit(d, "", "walk_reads") + unit(d, ".stlt", "walk_reads");
    assert_eq!(sum(d, "walks", |p| p.ends_with(".l1d")), reads, "{what}");
    let misses = (unit(d, "", "walks") + unit(d, ".stb", "hits")) as f64;
    let mpki = metric(d, "l2_tlb_mpki");
    assert!((mpki * metric(d, "instructions") / 1000.0 - misses).abs() < 0.5);
}

/// In builds with checks, the MMU compares each hit of the STB with the page table.
#[test]
fn whatever_changes_nothing_is_out_of_date_and_all_parts_count_the_same() {
    let wide = Store {
        keys: 20_000,
        requests: 12_000,
        changes: RecordChanges::Everything,
        ..Store::default()
    };
    for (set, program) in [
        (&[SMALL][..], wide),
        (
            &["shortcut.stlt.rows=1048576", "shortcut.stlt.ways=8"],
            wide,
        ),
        (
            &[SMALL, "placement.reservation.promotion_threshold=0.02"],
            wide,
        ),
        (
            &[SMALL, "placement.thp.mode=madvise"],
            Store { huge: true, ..wide },
        ),
    ] {
        let mut d = design("stlt", set);
        // Small TLBs, so that the STB is looked up.
        d.config.mmu.l2.get_mut("main").unwrap().entries = 64;
        d.config.mmu.l1d.get_mut("main").unwrap().entries = 16;
        let (d, queries) = run(&d, program, &serde_json::json!({}));
        let what = format!("{} {queries:?}", d.name);
        check(&d, &queries, &what);
        assert_eq!(unit(&d, ".ipb", "hits"), table(&d, "invalid"), "{what}");
        let rows_found = table(&d, "hits") + table(&d, "invalid");
        assert_eq!(unit(&d, ".ipb", "lookups"), rows_found, "{what}");
        assert_eq!(
            unit(&d, ".ipb", "fills"),
            table(&d, "invalid_pages"),
            "{what}"
        );
        assert_eq!(unit(&d, ".stb", "fills"), table(&d, "hits"), "{what}");
        assert_eq!(unit(&d, ".stlt", "walks"), queries.inserts, "{what}");
        assert!(table(&d, "hits") > 300, "{what}");
        assert!(
            table(&d, "invalid") > 0 && table(&d, "refreshes") > 5,
            "{what}"
        );
        assert!(unit(&d, ".stb", "hits") > 100, "{what}");
        assert!(sum(&d, "kernel", |p| p.ends_with("core.0.cycles")) > table(&d, "refresh_cycles"));
    }
}

#[test]
fn records_are_found_by_a_line_and_without_a_walk() {
    let program = Store {
        keys: 12_000,
        requests: 40_000,
        changes: RecordChanges::Nothing,
        ..Store::default()
    };
    let limits = serde_json::json!({"warmup_requests": 30_000});
    let rows = "shortcut.stlt.rows=65536";
    let (plain, _) = run(&design("radix", &[]), program, &limits);
    let (va, _) = run(&design("stlt-va", &[rows]), program, &limits);
    let (full, queries) = run(&design("stlt", &[rows]), program, &limits);
    assert!(
        queries.nothing < 13_000 && queries.false_matches < 60,
        "{queries:?}"
    );
    let walks = |d: &DesignResult| unit(d, "", "walks");
    // 12 MB of records are 3,000 pages, twice the entries of the second-level TLB.
    assert!(
        walks(&full) * 4 < walks(&plain),
        "{} {}",
        walks(&full),
        walks(&plain)
    );
    assert!(walks(&va) * 10 > walks(&plain) * 8, "{}", walks(&va));
    assert_eq!(unit(&va, ".stlt", "walks"), 0);
    let has = |d: &DesignResult, part| d.stats.iter().any(|s| s.path.ends_with(part));
    for part in [".mmu.stb", ".mmu.ipb"] {
        assert!(has(&full, part) && !has(&va, part), "{part}");
    }
    let cycles = |d: &DesignResult| metric(d, "cycles_per_request");
    assert!(
        cycles(&full) < cycles(&va),
        "{} {}",
        cycles(&full),
        cycles(&va)
    );
    assert!(
        cycles(&va) < cycles(&plain),
        "{} {}",
        cycles(&va),
        cycles(&plain)
    );
}

#[test]
fn replies_are_the_same_skipped_warmed_sampled_and_measured() {
    let program = Store {
        keys: 3_000,
        requests: 6_000,
        changes: RecordChanges::Everything,
        ..Store::default()
    };
    let d = design("stlt", &[SMALL]);
    let (whole, queries) = run(&d, program, &serde_json::json!({}));
    for limits in [
        serde_json::json!({"skip_requests": 2000}),
        serde_json::json!({"warmup_requests": 2000}),
        serde_json::json!({"sample": {"length": 500, "period": 4000}}),
    ] {
        let (part, again) = run(&d, program, &limits);
        assert_eq!(again, queries, "{limits}");
        assert!(table(&part, "loads") < table(&whole, "loads"), "{limits}");
    }
    let (again, _) = run(&d, program, &serde_json::json!({}));
    let cycles = |d: &DesignResult| sum(d, "cycles", |p| p == "core.0");
    assert_eq!(
        cycles(&again),
        cycles(&whole),
        "the same seed, the same cycles"
    );
}

#[test]
fn designs_with_and_without_it_run_side_by_side() {
    let spec: RunSpec = serde_json::from_value(serde_json::json!({
        "machine": "stlt-table3", "designs": ["radix", "stlt[shortcut.stlt.rows=256]", "stlt-va"],
        "source": {"workload": {"name": "gups", "size": "1MB", "threads": 1, "params": {}}},
        "limits": {"instructions": 20_000},
    }))
    .unwrap();
    let result = crate::common::run_spec(&spec).expect("a run");
    // The program makes no query, so all designs behave alike.
    let cycles: Vec<u64> = (result.designs.iter())
        .map(|d| sum(d, "cycles", |p| p == "core.0"))
        .collect();
    assert!(cycles.iter().all(|&c| c == cycles[0]), "{cycles:?}");
    let no_query = |w: &&String| w.contains("the program made no shortcut query");
    let found: Vec<_> = result.warnings.iter().filter(no_query).collect();
    let both = "stlt[shortcut.stlt.rows=256] and stlt-va: ";
    assert!(found.len() == 1 && found[0].starts_with(both), "{found:?}");
    for (key, want) in [
        ("shortcut.stlt.rows=1000", "shortcut.stlt.rows is 1000"),
        ("shortcut.stlt.ways=3", "shortcut.stlt.ways is 3"),
        ("shortcut.stlt.row=3", "rows"),
        (
            "shortcut.stlt.guard.trial=30000",
            "shortcut.stlt.guard.trial is 30000; expected 1 to period (20000)",
        ),
        (
            "shortcut.stlt.guard.most_rows=7",
            "shortcut.stlt.guard.most_rows is 7",
        ),
    ] {
        let spec: RunSpec = serde_json::from_value(serde_json::json!({
            "machine": "stlt-table3", "designs": [format!("stlt[{key}]")],
        }))
        .unwrap();
        let why = installation().resolve(&spec).unwrap_err().to_string();
        assert!(why.contains(want), "{why}");
    }
}

/// Two processes on one core have separate tables. The IPB is cleared and refilled at each switch between
/// them.
#[test]
fn processes_that_take_turns_have_tables_of_their_own() {
    let mut d = design("stlt", &[SMALL]);
    d.config.schedule.time_slice_cycles = 50_000;
    let queries: [Arc<Mutex<QueryCounts>>; 2] = Default::default();
    let programs = [3_000, 2_000].into_iter().zip(queries.clone());
    let opens = programs.map(|(keys, queries)| -> pagewalk_stream::Opens {
        let program = Store {
            keys,
            requests: 100_000,
            changes: RecordChanges::Everything,
            ..Store::default()
        };
        Box::new(move || Ok(store(program, &queries)))
    });
    let stream = Stream {
        program: Box::new(Mix::new(opens.collect()).unwrap()),
        designs: vec![0],
    };
    let options = Options {
        limits: serde_json::from_value(serde_json::json!({"instructions": 200_000})).unwrap(),
        ..Options::default()
    };
    let result = pagewalk_machine::run(&[d], vec![stream], &options, &mut |_| true);
    let d = result.unwrap_or_else(|e| panic!("{e}")).designs.remove(0);
    assert_eq!(d.status, Status::Complete, "{:?}", d.message);
    // Each address that a process got was mapped there, so none belonged to the other process.
    for queries in &queries {
        let queries = queries.lock().unwrap();
        assert!(queries.loads - queries.nothing > 1000, "{queries:?}");
        assert!(queries.false_matches * 100 < queries.loads, "{queries:?}");
    }
    assert_eq!(table(&d, "bytes"), 2 * 16 * 16384);
    let restored = table(&d, "restored_pages");
    assert!(restored > 20, "{restored}");
    let put = table(&d, "invalid_pages") + restored;
    assert_eq!(unit(&d, ".ipb", "fills"), put);
}

/// A program that sets the size of its table, and the results that it gets.
fn sized(results: &Arc<Mutex<Vec<Option<u64>>>>) -> Box<dyn Program> {
    let mut code = Code::new(Facts::default(), Touch::Never);
    let results = Arc::clone(results);
    code.thread(0x7fff_0000, move |mut t| async move {
        for (at, bytes) in [(CODE, 8 << 20), (BASE, 4096)] {
            t.event(Event::Map {
                at: VirtAddr(at),
                bytes,
                writable: true,
                backing: Backing::Anonymous,
            })
            .await;
        }
        let va = VirtAddr(BASE + 64);
        let load = ShortcutQuery::LoadVa { integer: 7 };
        t.store(0x40, 1, va.0, 8, NONE, NONE);
        for query in [
            ShortcutQuery::Alloc { rows: 4096 },
            ShortcutQuery::InsertVa { integer: 7, va },
            load,
            ShortcutQuery::Resize { rows: 0 },
            load,
            ShortcutQuery::Resize { rows: 8192 },
            ShortcutQuery::Alloc { rows: 8192 },
            ShortcutQuery::Free,
            load,
            ShortcutQuery::Free,
            ShortcutQuery::Alloc { rows: 100 },
            ShortcutQuery::Alloc { rows: 0 },
        ] {
            let (_, result) = t.shortcut_query(0x44, 1, query, [NONE; 2]);
            let reply = result.await;
            results.lock().unwrap().push(reply);
        }
    });
    Box::new(code)
}

#[test]
fn a_built_in_program_makes_resizes_and_frees_its_table() {
    let run = |name: &str, set: &[&str], limits: serde_json::Value| {
        let results = Arc::default();
        let stream = Stream {
            program: sized(&results),
            designs: vec![0],
        };
        let options = Options {
            limits: serde_json::from_value::<Limits>(limits).unwrap(),
            ..Options::default()
        };
        let designs = [design(name, set)];
        let result = pagewalk_machine::run(&designs, vec![stream], &options, &mut |_| true);
        let d = result.unwrap().designs.remove(0);
        assert_eq!(d.status, Status::Complete, "{name}: {:?}", d.message);
        let results = results.lock().unwrap().clone();
        (d, results)
    };
    let kernel = |d: &DesignResult| sum(d, "kernel", |p| p.ends_with("core.0.cycles"));
    let (plain, nothing) = run("radix", &[], serde_json::json!({}));
    assert_eq!(nothing, [None; 12]);
    let replies = [1, 1, BASE + 64, 1, 0, 1, 0, 1, 0, 0, 0, 1].map(Some);
    for limits in [
        serde_json::json!({}),
        serde_json::json!({"skip": 4}),
        serde_json::json!({"warmup": 4}),
    ] {
        let (d, results) = run("stlt", &[SMALL], limits.clone());
        assert_eq!(results, replies, "{limits}");
        if limits == serde_json::json!({}) {
            assert_eq!((table(&d, "calls"), table(&d, "refused_calls")), (8, 3));
            assert_eq!((table(&d, "tables"), table(&d, "bytes")), (4, 16 * 16384));
            assert_eq!((table(&d, "no_table"), unit(&d, ".stlt", "loads")), (1, 3));
            // Failed calls are counted as calls. The program pays at least for zeroing three tables at 8
            // GB/s; the last one is that of boot.
            let zeroed = 16 * (4096 + 4096 + 8192);
            let more = kernel(&d) - kernel(&plain);
            assert!(more > zeroed / 8, "{more}");
        }
    }
}

/// A program that frees a record, unmaps its memory and queries it. `erases`: it deletes the row before.
/// `reads`: it trusts the result and reads the record's key; otherwise it only notes the result.
fn free_and_query(erases: bool, reads: bool, result_of_load: &Arc<Mutex<u64>>) -> Box<dyn Program> {
    let mut code = Code::new(Facts::default(), Touch::Never);
    let result_of_load = Arc::clone(result_of_load);
    code.thread(0x7fff_0000, move |mut t| async move {
        let (at, bytes) = (VirtAddr(BASE), 4096);
        let map = |at, bytes| Event::Map {
            at: VirtAddr(at),
            bytes,
            writable: true,
            backing: Backing::Anonymous,
        };
        t.event(map(CODE, 8 << 20)).await;
        t.event(map(BASE, 4096)).await;
        let va = VirtAddr(BASE + 64);
        t.store(0x40, 1, va.0, 8, NONE, NONE);
        let (_, result) = t.shortcut_query(
            0x44,
            1,
            ShortcutQuery::InsertVa { integer: 77, va },
            [NONE; 2],
        );
        assert_eq!(result.await, Some(1));
        if erases {
            let va = VirtAddr(0);
            let (_, result) = t.shortcut_query(
                0x48,
                1,
                ShortcutQuery::InsertVa { integer: 77, va },
                [NONE; 2],
            );
            assert_eq!(result.await, Some(0));
        }
        t.event(Event::Unmap { at, bytes }).await;
        let (value, result) =
            t.shortcut_query(0x4c, 1, ShortcutQuery::LoadVa { integer: 77 }, [NONE; 2]);
        let reply = result.await.unwrap();
        *result_of_load.lock().unwrap() = reply;
        if reply != 0 && reads {
            t.load(0x50, 1, reply, 8, [value, NONE]);
        }
    });
    Box::new(code)
}

/// A program that frees a record and leaves its row may still get its address. The next comparison of
/// keys then reads unmapped memory. Rows with translations prevent that, because the kernel knows that
/// the page is unmapped.
#[test]
fn a_row_that_is_left_behind_answers_with_unmapped_memory() {
    let query = |name: &str, erases, reads| {
        let result = Arc::default();
        let stream = Stream {
            program: free_and_query(erases, reads, &result),
            designs: vec![0],
        };
        let designs = [design(name, &[SMALL])];
        let run = pagewalk_machine::run(&designs, vec![stream], &Options::default(), &mut |_| true);
        let d = run.unwrap().designs.remove(0);
        let why = d.message.clone().unwrap_or_default();
        let reply = *result.lock().unwrap();
        (reply, d.status, why)
    };
    for reads in [false, true] {
        for name in ["stlt", "stlt-va"] {
            let (reply, status, why) = query(name, true, reads);
            assert_eq!((reply, status), (0, Status::Complete), "{name}: {why}");
        }
        let (reply, status, _) = query("stlt", false, reads);
        assert_eq!((reply, status), (0, Status::Complete));
    }
    let (reply, status, _) = query("stlt-va", false, false);
    assert_eq!((reply, status), (BASE + 64, Status::Complete));
    let (_, status, why) = query("stlt-va", false, true);
    assert_ne!(status, Status::Complete);
    assert!(
        why.contains("0x20000040") || why.contains("mapped"),
        "{why}"
    );
}

/// Key-value programs whose keys come and go and whose records move. Two structures share one small
/// table, over pages that the kernel makes huge. In builds with checks, the MMU compares each hit of the
/// STB with the page table, and an unmapped address ends the run.
#[test]
fn programs_that_erase_and_move_records_end() {
    for (name, set) in [
        ("kv-hash", "placement.thp.mode=always"),
        ("kv-btree", "placement.thp.mode=always"),
        ("kv-flat", "placement.reservation.promotion_threshold=0.05"),
        ("kv-redis", "shortcut.stlt.ways=8"),
    ] {
        let spec: RunSpec = serde_json::from_value(serde_json::json!({
            "machine": "stlt-table3",
            "designs": [format!("stlt[shortcut.stlt.rows=4096,{set}]"), "radix"],
            "source": {"workload": {"name": name, "threads": 1, "params": {
                "keys": "3000", "operations": "12000", "distribution": "latest", "sets": "15",
                "deletes": "15", "resize": "yes", "indexes": "2", "populate": "no",
                "shortcut": "stlt", "shortcut_id": "6",
            }}},
        }))
        .unwrap();
        let result = crate::common::run_spec(&spec).expect("a run");
        let requests = |d: &DesignResult| sum(d, "requests", |p| p == "core.0");
        for d in &result.designs {
            assert_eq!(d.status, Status::Complete, "{name}: {:?}", d.message);
            assert_eq!(requests(d), 12_000, "{name} {}", d.name);
        }
        let d = &result.designs[0];
        let inserts = [
            "new_rows",
            "matching_rows",
            "replaced_rows",
            "emptied_rows",
            "given_up",
        ];
        let all: u64 = inserts.iter().map(|n| table(d, n)).sum();
        assert_eq!(all, table(d, "inserts"), "{name}");
        assert!(
            table(d, "emptied_rows") > 100,
            "{name}: {}",
            table(d, "emptied_rows")
        );
        assert!(table(d, "hits") > 1000, "{name}: {}", table(d, "hits"));
        let walks = unit(d, ".stlt", "walks");
        assert!(
            walks < unit(d, ".stlt", "inserts"),
            "{name}: no walk for address 0"
        );
    }
}
