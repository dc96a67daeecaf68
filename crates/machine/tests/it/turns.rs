//! Turns of threads and cores: programs written operation by operation, on several cores.

use std::collections::VecDeque;

use pagewalk_machine::{DesignResult, Limits, RunSpec, Status};
use pagewalk_stream::{Backing, Batch, End, Error, Event, Facts, Op, OpClass, Program, ThreadId};
use pagewalk_units::VirtAddr;

use crate::common::{installation, sum};

const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x1000_0000;

/// Batches of each thread in order. A thread ends after its last batch.
struct Script(Vec<VecDeque<(Vec<Op>, End)>>);

impl Program for Script {
    fn facts(&self) -> Facts {
        Facts {
            name: "script".to_owned(),
            deterministic: true,
            has_roi: true,
            ..Facts::default()
        }
    }
    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, Error> {
        batch.ops.clear();
        let Some((ops, end)) = self.0[thread as usize].pop_front() else {
            return Ok(End::Exit);
        };
        batch.ops = ops;
        Ok(end)
    }
}

fn event(event: Event) -> (Vec<Op>, End) {
    (vec![], End::Event { event, ticket: 0 })
}

fn map(at: u64, bytes: u64) -> (Vec<Op>, End) {
    event(Event::Map {
        at: VirtAddr(at),
        bytes,
        writable: true,
        backing: Backing::Anonymous,
    })
}

/// `batches` batches of a thousand plain instructions.
fn plain(batches: usize) -> impl Iterator<Item = (Vec<Op>, End)> {
    let op = Op {
        pc: CODE,
        insns: 1,
        latency: 1,
        ..Op::default()
    };
    std::iter::repeat_n((vec![op; 1000], End::More), batches)
}

fn run(threads: Vec<VecDeque<(Vec<Op>, End)>>, set: &[&str], limits: Limits) -> DesignResult {
    let d = outcome(threads, set, limits);
    assert_eq!(d.status, Status::Complete, "{:?}", d.message);
    d
}

fn outcome(threads: Vec<VecDeque<(Vec<Op>, End)>>, set: &[&str], limits: Limits) -> DesignResult {
    let spec: RunSpec = serde_json::from_value(serde_json::json!({
        "machine": "revelator-table1", "designs": ["radix"], "set": set, "limits": limits,
    }))
    .expect("the specification is well formed");
    let mut result = installation()
        .run_program(&spec, Box::new(Script(threads)), &mut |_| true)
        .unwrap_or_else(|e| panic!("{e}"));
    result.designs.remove(0)
}

fn instructions(d: &DesignResult, core: usize) -> u64 {
    sum(d, "instructions", |p| p == format!("core.{core}"))
}

#[test]
fn threads_that_start_late_in_a_skipped_part_are_in_step_when_it_is_over() {
    // The first thread fast-forwards ten times the measured work before the other starts.
    let mut first = VecDeque::from([map(CODE, 4096)]);
    first.extend(plain(400));
    first.push_back(event(Event::Spawn { thread: 1 }));
    first.extend(plain(20));
    first.push_back(event(Event::RoiBegin));
    first.extend(plain(100));
    let second = plain(200).collect();
    let d = run(
        vec![first, second],
        &["cores=2"],
        Limits {
            roi: true,
            instructions: Some(40_000),
            ..Limits::default()
        },
    );
    let each = [0, 1].map(|core| instructions(&d, core));
    assert!(each.iter().all(|&n| n > 15_000), "{each:?}");
}

#[test]
fn threads_without_a_core_get_one_in_a_skipped_part() {
    // More threads than cores, and none of them ever waits.
    let mut first = VecDeque::from([map(CODE, 4096), map(DATA, 4096)]);
    first.push_back(event(Event::Spawn { thread: 1 }));
    first.extend(plain(60));
    let load = Op {
        pc: CODE,
        va: DATA,
        insns: 1,
        kind: OpClass::Load,
        size: 8,
        ..Op::default()
    };
    let mut second: VecDeque<_> = plain(20).collect();
    second.extend(std::iter::repeat_n((vec![load; 1000], End::More), 40));
    let limits = Limits {
        skip: 40_000,
        instructions: Some(40_000),
        ..Limits::default()
    };
    let set = ["cores=1", "schedule.time_slice_cycles=2000"];
    let d = run(vec![first, second], &set, limits);
    // Half of the fast-forwarded work belonged to the second thread: all that it does before it loads.
    let loads = sum(&d, "loads", |p| p == "core.0");
    assert!((10_000..30_000).contains(&loads), "{loads}");
}

#[test]
fn an_op_that_faults_is_counted_once_however_threads_take_turns() {
    const PAGES: u64 = 300;
    let touches = |at: u64| {
        (0..PAGES).map(move |i| Op {
            pc: CODE,
            va: at + (i << 12),
            insns: 50,
            kind: OpClass::Load,
            size: 8,
            ..Op::default()
        })
    };
    let mut first = VecDeque::from([map(CODE, 4096), map(DATA, (2 * PAGES) << 12)]);
    first.push_back(event(Event::Spawn { thread: 1 }));
    first.push_back((touches(DATA).collect(), End::More));
    let second = (touches(DATA + (PAGES << 12)).collect(), End::More);
    let d = run(
        vec![first, VecDeque::from([second])],
        &["cores=1", "schedule.time_slice_cycles=100"],
        Limits::default(),
    );
    assert!(sum(&d, "faults_4kb", |p| p == "os") >= 2 * PAGES);
    assert_eq!(instructions(&d, 0), 2 * PAGES * 50);
}

#[test]
fn both_pages_of_a_skipped_access_are_there_when_it_is_over() {
    let load = Op {
        pc: CODE,
        va: DATA + 4092,
        insns: 1,
        kind: OpClass::Load,
        size: 8,
        ..Op::default()
    };
    let mut first = VecDeque::from([map(CODE, 4096), map(DATA, 8192)]);
    first.push_back((vec![load; 200], End::More));
    let limits = Limits {
        skip: 100,
        ..Limits::default()
    };
    let d = run(vec![first], &[], limits);
    assert_eq!(instructions(&d, 0), 100);
    assert_eq!(sum(&d, "faults_4kb", |p| p == "os"), 0);
}

#[test]
fn a_thread_that_cannot_be_is_refused() {
    for (thread, why) in [(0, "twice"), (1 << 20, "below"), (u32::MAX, "below")] {
        let mut first = VecDeque::from([map(CODE, 4096)]);
        first.extend(plain(1));
        first.push_back(event(Event::Spawn { thread }));
        first.extend(plain(1));
        let d = outcome(vec![first], &["cores=2"], Limits::default());
        let message = d.message.unwrap_or_default();
        assert_eq!(d.status, Status::ProgramError, "{thread}: {message}");
        assert!(message.contains(why), "{thread}: {message}");
    }
}
