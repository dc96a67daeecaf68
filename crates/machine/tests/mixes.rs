//! Several programs side by side, as processes of one machine.

mod common;

use pagewalk_machine::{DesignResult, RunError, RunResult};
use serde_json::{Value, json};

use common::{ONE_CHANNEL, metric, run_spec};

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
) -> Result<RunResult, RunError> {
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
        assert_eq!(d.status, "complete", "{}: {:?}", d.name, d.message);
    }
    result
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
            // The last op may stand for more than one.
            assert!((N..N + 64).contains(&p.instructions), "{p:?}");
            slowest = slowest.max(p.cycles.unwrap());
        }
        let cycles = metric(d, "cycles") as u64;
        // The slowest ends it, within a turn of the other core.
        assert!(
            slowest <= cycles && cycles < slowest + 5_000,
            "{slowest} {cycles}"
        );
        // Who is done goes on: for the others' sake, not for its own numbers.
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
    // Company takes something, and not much of it here.
    let sum = radix.weighted_speedup.unwrap();
    assert!((1.2..=2.02).contains(&sum), "{sum}");
}

#[test]
fn alone_on_a_machine_a_program_is_as_fast_as_in_a_mix_that_leaves_it_alone() {
    // Two of a kind, each on a core: DRAM is shared and little else.
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
    let switches = |d: &DesignResult| common::sum(d, "process_switches", |p| p == "os");
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
fn what_makes_no_sense_in_a_mix_is_refused() {
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
