//! A program whose processes end, for tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use pagewalk_stream::{Backing, Batch, End, Error, Event, Facts, Op, OpClass, Program, ThreadId};
use pagewalk_units::VirtAddr;

const DATA: u64 = 0x1000_0000;

/// Observations of the run.
#[derive(Default)]
pub struct Seen {
    /// Threads reported to the program as gone.
    pub gone: Vec<ThreadId>,
}

/// A process that forks one child after another. The second thread of each process waits until the first
/// one ends the process.
pub struct Forks {
    steps: BTreeMap<ThreadId, u32>,
    most: u32,
    children: u32,
    /// True if the parent forks the next child only after the one before has ended.
    waits: bool,
    alive: u32,
    seen: Arc<Mutex<Seen>>,
    at_fork: Box<dyn FnMut(u32) + Send>,
}

impl Forks {
    /// Forks `most` children. `at_fork` is called before each fork and before the end, with the number of
    /// earlier forks.
    pub fn new(
        most: u32,
        waits: bool,
        at_fork: impl FnMut(u32) + Send + 'static,
    ) -> (Self, Arc<Mutex<Seen>>) {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let program = Forks {
            steps: BTreeMap::new(),
            most,
            children: 0,
            waits,
            alive: 0,
            seen: Arc::clone(&seen),
            at_fork: Box::new(at_fork),
        };
        (program, seen)
    }
}

fn op(kind: OpClass, page: u64) -> Op {
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
    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, Error> {
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
            (0, _) if self.waits && self.alive > 0 => End::Blocked,
            (0, _) => {
                (self.at_fork)(self.children);
                batch
                    .ops
                    .extend((0..4).map(|page| op(OpClass::Store, page)));
                if self.children == self.most {
                    return Ok(End::Exit);
                }
                self.children += 1;
                self.alive += 1;
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
                batch
                    .ops
                    .extend((0..4).map(|page| op(OpClass::Store, page)));
                self.alive -= 1;
                event(Event::ProcessExit { status: 0 })
            }
        })
    }
    fn gone(&mut self, thread: ThreadId) {
        self.steps.remove(&thread);
        self.seen.lock().unwrap().gone.push(thread);
    }
}
