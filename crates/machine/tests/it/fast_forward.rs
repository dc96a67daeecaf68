//! Fast-forwarding without operations: every result equals that of a program that generates all its
//! operations.

use crate::small::small;
use pagewalk_machine::{RunResult, RunSpec, Status};
use pagewalk_programs::{build, workloads};
use pagewalk_stream::{Backing, Batch, End, Error, Event, Facts, Op, OpClass, Program, ThreadId};
use pagewalk_trace::{Header, Mark, OpenOptions, Recording, TraceWriter, open_trace, record};
use pagewalk_units::VirtAddr;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Forwards fast-forward grants or drops them, and counts skipped instructions.
struct Watched {
    program: Box<dyn Program>,
    forwards: bool,
    skipped: Arc<AtomicU64>,
}

impl Program for Watched {
    fn facts(&self) -> Facts {
        self.program.facts()
    }
    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, Error> {
        let end = self.program.fill(thread, batch)?;
        self.skipped.fetch_add(batch.skipped.instructions, Relaxed);
        Ok(end)
    }
    fn grant_fast_forward(&mut self, instructions: u64, requests: u64) {
        if self.forwards {
            self.program.grant_fast_forward(instructions, requests);
        }
    }
    fn grant_filtered_warming(&mut self, instructions: u64, requests: u64) {
        if self.forwards {
            self.program.grant_filtered_warming(instructions, requests);
        }
    }
    fn shortcut_result(&mut self, thread: ThreadId, reply: Option<u64>) {
        self.program.shortcut_result(thread, reply);
    }
    fn gone(&mut self, thread: ThreadId) {
        self.program.gone(thread);
    }
}

/// Runs the program on `designs`; returns the skipped instructions too.
fn run(
    name: &str,
    threads: u32,
    params: &[(&str, &str)],
    spec: &RunSpec,
    forwards: bool,
) -> (RunResult, u64) {
    let program = build(name, &small(name, threads, params)).unwrap();
    run_of(program, name, spec, forwards)
}

/// Runs `program` on designs; returns the skipped instructions too.
fn run_of(
    program: Box<dyn Program>,
    name: &str,
    spec: &RunSpec,
    forwards: bool,
) -> (RunResult, u64) {
    let skipped = Arc::new(AtomicU64::new(0));
    let program = Watched {
        program,
        forwards,
        skipped: Arc::clone(&skipped),
    };
    let result = crate::common::installation()
        .run_program(spec, Box::new(program), &mut |_| true)
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    (result, skipped.load(Relaxed))
}

/// The result without the host's data.
fn text(mut result: RunResult) -> String {
    for d in &mut result.designs {
        assert_eq!(d.status, Status::Complete, "{:?}", d.message);
    }
    let mut value = serde_json::to_value(&result).unwrap();
    value.as_object_mut().unwrap().remove("host");
    value.to_string()
}

/// A store that changes its address space.
const STORE: [(&str, &str); 5] = [
    ("keys", "3000"),
    ("sets", "40"),
    ("deletes", "20"),
    ("resize", "yes"),
    ("populate", "timed"),
];

fn spec(designs: &[&str], limits: serde_json::Value, set: &[&str]) -> RunSpec {
    serde_json::from_value(json!({
        "machine": "epyc-milan", "designs": designs, "limits": limits, "set": set,
    }))
    .unwrap()
}

#[test]
fn results_are_those_of_a_program_that_gives_all_its_ops() {
    for info in workloads() {
        let limits = json!({"skip": 300_001, "warmup": 1000, "instructions": 20_000});
        let spec = spec(&["radix", "thp", "mehpt"], limits, &[]);
        let (full, none) = run(info.name, 1, &[], &spec, false);
        let (result, skipped) = run(info.name, 1, &[], &spec, true);
        assert_eq!(none, 0);
        // The last operation may have several instructions.
        assert!(
            (300_001..300_100).contains(&skipped),
            "{}: {skipped}",
            info.name
        );
        assert_eq!(text(result), text(full), "{}", info.name);
    }
}

#[test]
fn requests_regions_and_changes_of_the_address_space_too() {
    let skip = json!({"skip_requests": 777, "instructions": 20_000});
    let roi = json!({"roi": true, "skip": 50_000, "instructions": 20_000});
    let table = [("keys", "3000"), ("shortcut", "stlt")];
    let churn = [("rounds", "3"), ("arena", "4KiB")];
    for (name, params, limits, designs) in [
        ("kv-hash", &STORE[..], &skip, &["radix", "thp"][..]),
        ("kv-dense", &STORE, &skip, &["mehpt", "revelator"]),
        ("kv-hash", &table, &skip, &["stlt"]),
        ("gups", &[], &skip, &["radix"]),
        ("gups", &[], &roi, &["thp"]),
        ("bfs", &[("scale", "12")], &roi, &["radix", "revelator-thp"]),
        (
            "churn",
            &churn,
            &json!({"skip": 800_000, "instructions": 9000}),
            &["radix", "thp"],
        ),
    ] {
        let spec = spec(designs, limits.clone(), &[]);
        let (full, _) = run(name, 1, params, &spec, false);
        let (result, skipped) = run(name, 1, params, &spec, true);
        assert!(skipped > 10_000, "{name} {params:?}: {skipped}");
        assert_eq!(text(result), text(full), "{name} {params:?}");
    }
}

/// With several threads, the machine determines where each one is when fast-forwarding ends. An in-memory
/// TLB and a core with wrong paths need more of the fast-forwarded part than its pages.
#[test]
fn programs_skip_nothing_if_a_machine_needs_all_ops() {
    let limits = json!({"skip": 300_000, "instructions": 20_000});
    for (threads, design, set) in [
        (2, "radix", &["cores=2"][..]),
        (1, "pom-tlb", &[]),
        (1, "radix", &["core.wrong_path.enabled=true"]),
        (
            1,
            "radix",
            &["os.swap={interval_us=10.0,pages=4,latency_us=5.0}"],
        ),
    ] {
        let spec = spec(&[design], limits.clone(), set);
        let params = [("scale", "12")];
        let (full, _) = run("bfs", threads, &params, &spec, false);
        let (result, skipped) = run("bfs", threads, &params, &spec, true);
        // A thread that starts others does so first.
        assert!(skipped < 100 * u64::from(threads), "{design}: {skipped}");
        assert_eq!(text(result), text(full), "{design}");
    }
}

/// A recording of the first `limit` instructions of `program`.
fn recorded(program: Box<dyn Program>, limit: u64) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let header = Header::of(&program.facts(), 0, "a test");
    let writer = TraceWriter::create(file.path(), &header).unwrap();
    record(Recording::new(program, writer), Some(limit), |_| true).unwrap();
    file
}

fn opened(path: &Path) -> Box<dyn Program> {
    open_trace(path, &OpenOptions::default()).unwrap()
}

#[test]
fn so_it_is_with_recordings() {
    let skip = json!({"skip": 1_234_567, "warmup": 1000, "instructions": 20_000});
    let requests = json!({"skip_requests": 20_777, "instructions": 20_000});
    let roi = json!({"roi": true, "skip": 900_000, "instructions": 20_000});
    let churn = [("rounds", "30"), ("arena", "4KiB")];
    for (name, threads, params, limits, designs, set, least) in [
        (
            "gups",
            1,
            &[][..],
            &skip,
            &["radix", "thp"][..],
            &[][..],
            1_234_567,
        ),
        (
            "gups",
            1,
            &[("populate", "no")],
            &skip,
            &["mehpt"],
            &[],
            1_234_567,
        ),
        ("gups", 1, &[], &requests, &["radix"], &[], 300_000),
        (
            "bfs",
            1,
            &[("scale", "15")],
            &roi,
            &["radix", "revelator-thp"],
            &[],
            900_000,
        ),
        (
            "kv-hash",
            1,
            &STORE,
            &skip,
            &["thp", "mehpt"],
            &[],
            1_234_567,
        ),
        ("churn", 1, &churn, &skip, &["radix", "thp"], &[], 1_234_567),
        (
            "bfs",
            2,
            &[("scale", "14")],
            &roi,
            &["radix"],
            &["cores=2"],
            0,
        ),
    ] {
        let program = build(name, &small(name, threads, params)).unwrap();
        let file = recorded(program, 2_500_000);
        let spec = spec(designs, limits.clone(), set);
        let (full, none) = run_of(opened(file.path()), name, &spec, false);
        let (result, skipped) = run_of(opened(file.path()), name, &spec, true);
        assert_eq!(none, 0);
        assert!(skipped >= least, "{name} {params:?}: {skipped}");
        assert_eq!(text(result), text(full), "{name} {params:?}");
    }
}

/// Also for live programs, whose region of interest begins within the recording.
#[test]
fn so_it_is_with_recordings_of_live_programs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data/steps4.pwt");
    for limits in [
        json!({"skip": 30_001, "instructions": 20_000}),
        json!({"roi": true, "skip": 20_000, "instructions": 5000}),
    ] {
        let spec = spec(&["radix", "thp"], limits, &[]);
        let (full, _) = run_of(opened(&path), "steps", &spec, false);
        let (result, skipped) = run_of(opened(&path), "steps", &spec, true);
        assert!(skipped > 20_000, "{skipped}");
        assert_eq!(text(result), text(full));
    }
}

/// Memory that is unmapped and mapped again has to be touched again. After a fork there are several
/// threads.
#[test]
fn programs_fast_forward_across_unmaps_and_up_to_a_fork() {
    let at = VirtAddr(0x1000_0000);
    let bytes = 4 << 20;
    let map = Event::Map {
        at,
        bytes,
        writable: true,
        backing: Backing::Anonymous,
    };
    let half = Event::Unmap {
        at,
        bytes: bytes / 2,
    };
    let fork = Event::Fork {
        process: 1,
        thread: 1,
    };
    let code = Event::Map {
        at: VirtAddr(0x40_0000),
        bytes: 4096,
        writable: false,
        backing: Backing::File,
    };
    let ops = |n: u64| -> Vec<Op> {
        let op = |i: u64| Op {
            pc: 0x40_0000 + 4 * (i % 100),
            va: at.0 + i * 7919 * 8 % (bytes - 8),
            insns: 2,
            kind: if i.is_multiple_of(3) {
                OpClass::Store
            } else {
                OpClass::Load
            },
            size: 8,
            ..Op::default()
        };
        (0..n).map(op).collect()
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = TraceWriter::create(file.path(), &Header::default()).unwrap();
    let mark = |writer: &mut TraceWriter, thread, event| {
        let end = End::Event { event, ticket: 0 };
        writer.mark(thread, &Mark::End(end)).unwrap();
    };
    mark(&mut writer, 0, code);
    mark(&mut writer, 0, map.clone());
    writer.ops(0, &ops(100_000)).unwrap();
    mark(&mut writer, 0, half.clone());
    mark(&mut writer, 0, map.clone());
    writer.ops(0, &ops(200_000)).unwrap();
    // Existing memory is unmapped first.
    mark(&mut writer, 0, map);
    writer.ops(0, &ops(300_000)).unwrap();
    mark(&mut writer, 0, fork);
    for thread in [0, 1] {
        writer.ops(thread, &ops(100_000)).unwrap();
        mark(&mut writer, thread, Event::ProcessExit { status: 0 });
        writer.mark(thread, &Mark::End(End::Exit)).unwrap();
    }
    writer.finish().unwrap();
    for (skip, least) in [
        (150_001, 150_001),
        (500_000, 500_000),
        (1_190_000, 1_190_000),
        (1_250_000, 1_200_000),
    ] {
        let limits = json!({"skip": skip, "instructions": 20_000});
        let spec = spec(&["radix", "thp", "mehpt"], limits, &["cores=2"]);
        let (full, _) = run_of(opened(file.path()), "forks", &spec, false);
        let (result, skipped) = run_of(opened(file.path()), "forks", &spec, true);
        assert!(skipped >= least, "{skip}: {skipped}");
        assert_eq!(text(result), text(full), "{skip}");
    }
}

/// Also between samples: pages in fast-forwarded gaps, lines in filtered warming.
#[test]
fn samples_are_those_of_a_program_that_gives_all_its_ops() {
    for info in workloads() {
        let warming = json!({"filtered": 30_000, "warmed": 2000});
        let sample = json!({"length": 1000, "period": 60_000, "warming": warming});
        let limits = json!({"skip": 50_001, "instructions": 400_000, "sample": sample});
        let spec = spec(&["radix", "thp", "mehpt"], limits, &[]);
        let (full, none) = run(info.name, 1, &[], &spec, false);
        let (result, skipped) = run(info.name, 1, &[], &spec, true);
        assert_eq!(none, 0);
        assert!(skipped > 200_000, "{}: {skipped}", info.name);
        assert!(text(result) == text(full), "{}", info.name);
    }
}

#[test]
fn samples_of_changes_of_the_address_space_and_by_requests_too() {
    let sample = json!({"length": 1000, "period": 30_000, "warming": {"warmed": 2000}});
    let all = json!({"instructions": 400_000, "sample": sample});
    let by_requests = json!({"requests": 2000, "instructions": 400_000, "sample": sample});
    let store = [
        ("keys", "3000"),
        ("sets", "40"),
        ("deletes", "20"),
        ("resize", "yes"),
    ];
    let table = [("keys", "3000"), ("shortcut", "stlt")];
    for (name, params, limits, design) in [
        ("kv-hash", &store[..], &all, "radix"),
        ("kv-dense", &store, &by_requests, "mehpt"),
        ("kv-hash", &table, &all, "stlt"),
        ("churn", &[("rounds", "3"), ("arena", "4KiB")], &all, "thp"),
    ] {
        let spec = spec(&[design], limits.clone(), &[]);
        let (full, _) = run(name, 1, params, &spec, false);
        let (result, skipped) = run(name, 1, params, &spec, true);
        assert!(skipped > 10_000, "{name} {params:?}: {skipped}");
        assert!(text(result) == text(full), "{name} {params:?}");
    }
}
