//! What has ended is forgotten, and the program is told.

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use pagewalk_machine::RunSpec;
use pagewalk_stream::{
    Backing, Batch, End, Event, Facts, Kind, Op, Program, ProgramError, ThreadId,
};
use pagewalk_units::VirtAddr;

use common::installation;

const DATA: u64 = 0x1000_0000;

/// What was seen of the run.
#[derive(Default)]
struct Seen {
    /// Threads that nobody asks for again.
    gone: Vec<ThreadId>,
}

/// A process that forks one child after another. Each has a second thread, which waits
/// until the first one ends the process.
struct Forks {
    steps: BTreeMap<ThreadId, u32>,
    most: u32,
    children: u32,
    seen: Arc<Mutex<Seen>>,
}

fn op(kind: Kind, page: u64) -> Op {
    Op {
        pc: DATA,
        va: DATA + 4096 * page,
        insns: 1,
        kind,
        size: 8,
        ..Op::default()
    }
}

impl Program for Forks {
    fn facts(&self) -> Facts {
        Facts::default()
    }
    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, ProgramError> {
        batch.ops.clear();
        let step = self.steps.entry(thread).or_default();
        *step += 1;
        let event = |event| End::Event { event, ticket: 0 };
        Ok(match (thread, *step) {
            (0, 1) => event(Event::Map {
                at: VirtAddr(DATA),
                bytes: 1 << 20,
                writable: true,
                backing: Backing::Anonymous,
            }),
            (0, _) => {
                batch.ops.extend((0..4).map(|page| op(Kind::Store, page)));
                if self.children == self.most {
                    return Ok(End::Exit);
                }
                self.children += 1;
                event(Event::Fork {
                    process: self.children,
                    thread: 2 * self.children - 1,
                })
            }
            // The second thread of a child.
            (_, 1) if thread.is_multiple_of(2) => End::Blocked,
            _ if thread.is_multiple_of(2) => End::Blocked,
            (_, 1) => event(Event::Spawn { thread: thread + 1 }),
            _ => {
                batch.ops.extend((0..4).map(|page| op(Kind::Store, page)));
                event(Event::ProcessExit { status: 0 })
            }
        })
    }
    fn gone(&mut self, thread: ThreadId) {
        self.steps.remove(&thread);
        self.seen.lock().unwrap().gone.push(thread);
    }
}

/// Runs `children` of them on `designs`, and checks that nobody asks for the threads of any of
/// them again.
fn run(designs: &[&str], children: u32) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let program = Forks {
        steps: BTreeMap::new(),
        most: children,
        children: 0,
        seen: Arc::clone(&seen),
    };
    let spec: RunSpec = serde_json::from_value(serde_json::json!({
        "machine": "revelator-table1", "designs": designs,
    }))
    .unwrap();
    let result = installation()
        .run_program(&spec, Box::new(program), &mut |_| true)
        .unwrap_or_else(|e| panic!("{e}"));
    for d in &result.designs {
        assert_eq!(d.status, "complete", "{:?}", d.message);
    }
    let Seen { mut gone } = std::mem::take(&mut *seen.lock().unwrap());
    // Both threads of each child, once.
    gone.sort_unstable();
    assert!(gone.into_iter().eq(1..=2 * children), "{designs:?}");
}

#[test]
fn nobody_asks_for_threads_that_have_ended() {
    run(&["radix"], 600);
    run(&["radix", "thp"], 300);
}
