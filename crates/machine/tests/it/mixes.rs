//! Several programs as concurrent processes of one machine.

use pagewalk_machine::{Account, DesignResult, RunResult, Status};
use pagewalk_stream::{Mix, Opens};
use pagewalk_units::Error;
use serde_json::{Value, json};

use crate::common::forks::Forks;
use crate::common::{ONE_CHANNEL, metric, run_spec};

const N: u64 = 60_000;

fn workload(name: &str, size: Option<&str>, threads: u32) -> Value {
    json!({"workload": {"name": name, "size": size, "threads": threads, "params": {}}})
}

fn gups() -> Value {
    workload("gups", Some("64MB"), 1)
}

fn sysbench() -> Value {
    workload("sysbench", Some("64MB"), 1)
}

fn mix_of(
    programs: &[Value],
    designs: &[&str],
    set: &[&str],
    limits: Value,
) -> Result<RunResult, Error> {
    let spec = json!({
        "machine": "revelator-table1", "designs": designs, "set": set,
        "source": {"mix": {"programs": programs}}, "limits": limits,
    });
    run_spec(&serde_json::from_value(spec).unwrap())
}

fn mix(programs: &[Value], designs: &[&str], set: &[&str]) -> RunResult {
    let limits = json!({"instructions": N, "warmup": 20_000});
    let result = mix_of(programs, designs, set, limits).unwrap();
    for d in &result.designs {
        assert_eq!(d.status, Status::Complete, "{}: {:?}", d.name, d.message);
        assert_eq!(metric(d, "instructions") as u64, retired(d), "{}", d.name);
    }
    result
}

/// Instructions that the cores counted, the last turn included.
fn retired(d: &DesignResult) -> u64 {
    let of_core = |p: &str| p.strip_prefix("core.").is_some_and(|n| !n.contains('.'));
    crate::common::sum(d, "instructions", of_core)
}

fn ipcs(d: &DesignResult) -> Vec<f64> {
    d.programs.iter().map(|p| p.ipc.unwrap()).collect()
}

#[test]
fn each_program_is_measured_over_its_own_instructions_until_the_slowest_has_them() {
    let set = [&["cores=2"][..], &ONE_CHANNEL].concat();
    let result = mix(&[gups(), sysbench()], &["radix", "thp"], &set);
    for d in &result.designs {
        let names: Vec<&str> = d.programs.iter().map(|p| &p.name[..]).collect();
        assert!(names[0].starts_with("gups") && names[1].starts_with("sysbench"));
        let mut slowest = 0;
        for p in &d.programs {
            // The last operation may have several instructions.
            assert!((N..N + 64).contains(&p.instructions), "{p:?}");
            slowest = slowest.max(p.cycles.unwrap());
        }
        let cycles = metric(d, "cycles") as u64;
        // The slowest program ends the run, within a turn of the other core.
        assert!(
            slowest <= cycles && cycles < slowest + 5_000,
            "{slowest} {cycles}"
        );
        // A program that is done continues for the others, but not in its own counts.
        assert!(metric(d, "instructions") as u64 > 2 * N);
        let weighted: f64 = d
            .programs
            .iter()
            .map(|p| p.ipc.unwrap() / p.ipc_alone.unwrap())
            .sum();
        assert!((d.weighted_speedup.unwrap() - weighted).abs() < 1e-12);
    }
    let (radix, thp) = (&result.designs[0], &result.designs[1]);
    for (a, b) in radix.programs.iter().zip(&thp.programs) {
        assert_eq!(a.speedup, Some(1.0));
        assert_eq!(b.speedup, Some(b.ipc.unwrap() / a.ipc.unwrap()));
        assert_eq!(a.ipc_alone, b.ipc_alone, "alone is on the first design");
    }
    assert!(
        thp.programs[0].speedup.unwrap() > 1.05,
        "huge pages help gups"
    );
    let ratio = thp.weighted_speedup.unwrap() / radix.weighted_speedup.unwrap();
    assert_eq!((radix.speedup, thp.speedup), (Some(1.0), Some(ratio)));
    // Sharing costs something, though little here.
    let sum = radix.weighted_speedup.unwrap();
    assert!((1.2..=2.02).contains(&sum), "{sum}");
}

#[test]
fn alone_on_a_machine_a_program_is_as_fast_as_in_a_mix_that_leaves_it_alone() {
    // Two equal programs, each on its own core: they share little except DRAM.
    let set = ["cores=2", "mmu.perfect=true"];
    let result = mix(&[gups(), gups()], &["radix"], &set);
    let own = ipcs(&result.designs[0]);
    assert!((own[0] / own[1] - 1.0).abs() < 0.05, "{own:?}");
}

#[test]
fn more_programs_than_cores_take_turns() {
    let set = ["cores=1", "schedule.time_slice_cycles=5000"];
    let one = mix(&[gups(), gups(), gups()], &["radix"], &set);
    let three = mix(&[gups(), gups(), gups()], &["radix"], &["cores=3"]);
    for (shared, own) in ipcs(&one.designs[0])
        .into_iter()
        .zip(ipcs(&three.designs[0]))
    {
        assert!(shared < 0.6 * own, "{shared} {own}");
    }
    let switches = |d: &DesignResult| crate::common::sum(d, "process_switches", |p| p == "os");
    assert!(switches(&one.designs[0]) > 3);
    assert_eq!(switches(&three.designs[0]), 0);
}

#[test]
fn a_program_that_ends_early_starts_again() {
    let short = json!({"workload": {"name": "gups", "size": "1MB", "threads": 1,
        "params": {"updates": "1000"}}});
    let alone = json!({
        "machine": "revelator-table1", "designs": ["radix"], "source": short,
    });
    let alone = run_spec(&serde_json::from_value(alone).unwrap()).unwrap();
    let whole = metric(&alone.designs[0], "instructions") as u64;
    assert!(whole < N / 2, "{whole} instructions are no short program");
    let result = mix(&[short, sysbench()], &["radix"], &["cores=2"]);
    let p = &result.designs[0].programs[0];
    assert!(p.instructions >= N, "{p:?}");
}

#[test]
fn threads_of_a_program_count_together() {
    let two = workload("gups", Some("64MB"), 2);
    let result = mix(&[two, sysbench()], &["radix"], &["cores=3"]);
    let one = mix(&[gups(), sysbench()], &["radix"], &["cores=2"]);
    let (both, single) = (ipcs(&result.designs[0])[0], ipcs(&one.designs[0])[0]);
    assert!(both > 1.4 * single, "{both} {single}");
}

#[test]
fn the_same_mix_gives_the_same_bytes_on_any_number_of_host_threads() {
    let run = |threads: usize| {
        let spec = json!({
            "machine": "revelator-table1", "designs": ["radix", "thp"], "set": ["cores=2"],
            "source": {"mix": {"programs": [gups(), sysbench()]}},
            "limits": {"instructions": 20_000, "warmup": 10_000}, "host_threads": threads,
        });
        let result = run_spec(&serde_json::from_value(spec).unwrap()).unwrap();
        serde_json::to_string(&result.designs).unwrap()
    };
    assert_eq!(run(1), run(2));
}

#[test]
fn invalid_mixes_are_refused() {
    let refuse = |programs: &[Value], limits: Value, what: &str| {
        let error = mix_of(programs, &["radix"], &[], limits).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    };
    let limits = json!({"instructions": N});
    refuse(&[gups()], limits.clone(), "two programs or more");
    let live = json!({"program": {"argv": ["/bin/true"]}});
    refuse(&[gups(), live], limits, "record a live program first");
    let sampled = json!({"instructions": N, "sample": {"length": 1000, "period": 10_000}});
    refuse(&[gups(), sysbench()], sampled, "--sample");
}

/// Counts of the whole machine.
fn counted(d: &DesignResult) -> Account {
    let core = |p: &str| p.strip_prefix("core.").is_some_and(|n| !n.contains('.'));
    let mmu = |p: &str| p.strip_suffix(".mmu").is_some_and(core);
    let instructions = crate::common::sum(d, "instructions", core);
    let per_kilo = metric(d, "l2_tlb_mpki");
    Account {
        instructions,
        core_cycles: crate::common::sum(d, "cycles", core),
        l1d_tlb_misses: crate::common::sum(d, "l1d_misses", mmu),
        l1i_tlb_misses: crate::common::sum(d, "l1i_misses", mmu),
        l2_tlb_misses: (per_kilo * instructions as f64 / 1000.0).round() as u64,
        walks: crate::common::sum(d, "walks", mmu),
        walk_cycles: crate::common::sum(d, "walk_cycles", mmu),
        page_faults: metric(d, "page_faults") as u64,
        fault_cycles: crate::common::sum(d, "fault_cycles", |p| p == "os"),
    }
}

/// Sum of the counts of all programs and of those of none.
fn shared_out(d: &DesignResult) -> Account {
    let mut all = d.outside_programs.unwrap();
    for p in &d.programs {
        all += p.own;
        all += p.later;
    }
    all
}

#[test]
fn accounts_of_programs_and_of_none_add_up_to_the_machine() {
    let bfs = json!({"workload": {"name": "bfs", "threads": 2, "params": {"scale": "12"}}});
    let churn = json!({"workload": {"name": "churn", "params": {}}});
    let kv = workload("kv-map", Some("16MB"), 1);
    let turns = "schedule.time_slice_cycles=7000";
    for (programs, designs, set) in [
        (
            vec![gups(), sysbench()],
            vec!["radix", "thp", "ecpt"],
            vec![turns],
        ),
        (
            vec![bfs.clone(), gups()],
            vec!["radix", "pom-tlb"],
            vec!["cores=2", turns],
        ),
        (
            vec![churn, bfs, gups()],
            vec!["thp", "radix-virtual"],
            vec!["cores=3"],
        ),
        (vec![kv, gups()], vec!["stlt", "tlb-distance"], vec![turns]),
    ] {
        let result = mix(&programs, &designs, &set);
        for d in &result.designs {
            assert_eq!(shared_out(d), counted(d), "{} {set:?}", d.name);
            for p in &d.programs {
                assert_eq!(p.own.instructions, p.instructions, "{}: {}", d.name, p.name);
                assert!(
                    p.own.core_cycles > 0 && p.own.walk_cycles >= p.own.walks,
                    "{p:?}"
                );
                let per_kilo = 1000.0 * p.own.l2_tlb_misses as f64 / p.instructions as f64;
                assert!((p.l2_tlb_mpki.unwrap() - per_kilo).abs() < 1e-9);
            }
            // A program that is done continues, but not in its own counts.
            assert!(d.programs.iter().any(|p| p.later.instructions > 0));
            assert!(d.programs.iter().any(|p| p.later == Account::default()));
            let held = |f: fn(&pagewalk_machine::ProgramResult) -> u64| -> u64 {
                d.programs.iter().map(f).sum()
            };
            let os = |name| crate::common::sum(d, name, |p| p == "os");
            assert_eq!(held(|p| p.mapped_4kb), os("mapped_4kb_bytes"), "{}", d.name);
            assert_eq!(held(|p| p.mapped_2mb), os("mapped_2mb_bytes"), "{}", d.name);
            assert_eq!(
                held(|p| p.page_table_bytes),
                os("page_table_bytes"),
                "{}",
                d.name
            );
        }
    }
}

#[test]
fn a_program_s_own_numbers_are_those_that_it_has_alone_where_nothing_is_shared() {
    // Each program has its own core, and so its own TLBs and private caches.
    let result = mix(&[gups(), sysbench()], &["radix"], &["cores=2"]);
    let d = &result.designs[0];
    for (p, source) in d.programs.iter().zip([gups(), sysbench()]) {
        let alone = json!({
            "machine": "revelator-table1", "designs": ["radix"], "set": ["cores=2"],
            "source": source, "limits": {"instructions": N, "warmup": 10_000},
        });
        let alone = run_spec(&serde_json::from_value(alone).unwrap()).unwrap();
        let (alone, name) = (&alone.designs[0], &p.name);
        let (own, expected) = (p.l2_tlb_mpki.unwrap(), metric(alone, "l2_tlb_mpki"));
        assert!(
            (own - expected).abs() < 0.1 * expected + 0.2,
            "{name}: {own} {expected}"
        );
        assert_eq!(p.mapped_4kb, metric(alone, "mapped_4kb") as u64, "{name}");
    }
    let [gups, sysbench] = &d.programs[..] else {
        panic!("two programs")
    };
    assert!(gups.l2_tlb_mpki.unwrap() > 5.0 * sysbench.l2_tlb_mpki.unwrap());
    // On one core in turns, a program has only part of the time.
    let one = mix(
        &[gups_twice(), gups_twice()],
        &["radix"],
        &["schedule.time_slice_cycles=5000"],
    );
    for p in &one.designs[0].programs {
        let share = p.own.core_cycles as f64 / p.cycles.unwrap() as f64;
        assert!((0.2..0.6).contains(&share), "{share}");
    }
}

fn gups_twice() -> Value {
    workload("gups", Some("8MB"), 1)
}

#[test]
fn mixes_have_weighted_speedup_harmonic_speedup_and_antt() {
    let result = mix(&[gups(), sysbench()], &["radix", "thp"], &["cores=2"]);
    for d in &result.designs {
        let speeds: Vec<f64> = (d.programs.iter())
            .map(|p| p.ipc.unwrap() / p.ipc_alone.unwrap())
            .collect();
        let n = speeds.len() as f64;
        let slowdowns: f64 = speeds.iter().map(|s| 1.0 / s).sum();
        assert!((d.weighted_speedup.unwrap() - speeds.iter().sum::<f64>()).abs() < 1e-12);
        assert!((d.antt.unwrap() - slowdowns / n).abs() < 1e-12);
        assert!((d.harmonic_speedup.unwrap() - n / slowdowns).abs() < 1e-12);
    }
    // Without the runs alone there is nothing to compare with.
    let spec = json!({
        "machine": "revelator-table1", "designs": ["radix"], "set": ["cores=2"], "alone": false,
        "source": {"mix": {"programs": [gups(), sysbench()]}}, "limits": {"instructions": 20_000},
    });
    let result = run_spec(&serde_json::from_value(spec).unwrap()).unwrap();
    let d = &result.designs[0];
    assert_eq!(
        (d.weighted_speedup, d.antt, d.harmonic_speedup),
        (None, None, None)
    );
    assert_eq!(d.programs[0].speedup, Some(1.0), "against the first design");
}

#[test]
fn one_program_has_no_accounts() {
    let d = crate::common::one("revelator-table1", "radix", "gups 8MB", 5000, &[]);
    let text = serde_json::to_value(&d).unwrap();
    for of_mixes in ["programs", "outside_programs", "antt", "harmonic_speedup"] {
        assert!(text.get(of_mixes).is_none(), "{of_mixes}");
    }
}

#[test]
fn processes_of_a_program_end_without_the_others() {
    let forks: Opens = Box::new(|| Ok(Box::new(Forks::new(20, false, |_| ()).0)));
    let gups: Opens = Box::new(|| {
        let options = pagewalk_programs::Options {
            size_bytes: Some(1 << 20),
            ..Default::default()
        };
        pagewalk_programs::build("gups", &options)
    });
    let program = Mix::new(vec![forks, gups]).unwrap();
    let spec = serde_json::from_value(json!({
        "machine": "revelator-table1", "designs": ["radix", "thp"], "set": ["cores=2"],
        "limits": {"instructions": 5000},
    }))
    .unwrap();
    let result = crate::common::installation()
        .run_program(&spec, Box::new(program), &mut |_| true)
        .unwrap_or_else(|e| panic!("{e}"));
    for d in &result.designs {
        assert_eq!(d.status, Status::Complete, "{:?}", d.message);
        assert_eq!(shared_out(d), counted(d), "{}", d.name);
        // Pages that a child stored to belonged to the parent.
        assert!(d.programs[0].own.page_faults > 100, "{:?}", d.programs[0]);
    }
}
