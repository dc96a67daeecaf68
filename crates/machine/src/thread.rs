//! Threads and processes as the scheduler sees them.

use pagewalk_os::Pid;
use pagewalk_stream::{Counted, Event, ProcessId, ThreadId, Units};
use pagewalk_units::Cycle;

use crate::fanout::Item;

/// What a thread is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ThreadState {
    /// On this core.
    Running(usize),
    /// Wants a core.
    Ready,
    /// Waits in the kernel for another thread.
    Blocked,
    /// Waits until the others of its process have come to this barrier.
    AtBarrier(u64),
    /// Waits until each of these threads has come so far.
    Waiting(Vec<(ThreadId, u64)>, Counted),
    /// Waits until the change with this ticket has taken effect.
    Meeting(u64),
    /// Has made a change that waits for the other threads.
    Changing(Event, u64),
    /// Waits until all programs of the mix have come to their regions of interest.
    Gathering,
}

/// A thread of the program that has not ended.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) process: ProcessId,
    pub(crate) state: ThreadState,
    /// The batch it is in.
    pub(crate) item: Option<Item>,
    /// What the batch passes over is still to be skipped.
    pub(crate) skip_pending: bool,
    /// Next op of the batch.
    pub(crate) at: usize,
    /// Instructions of the op that it faulted in and goes on with, counted with the last one.
    pub(crate) kept_back: u64,
    /// What the batch touches of memory that counts as mapped before is mapped.
    pub(crate) mapped_ahead: bool,
    /// Not before this time does it go on.
    pub(crate) ready_at: Cycle,
    /// The live program has nothing for it yet.
    pub(crate) starved: bool,
    /// What lies behind it.
    pub(crate) units: Units,
    /// The reply to what its present batch ends with asking.
    pub(crate) query_result: Option<u64>,
    /// Number of the last barrier that it came to.
    pub(crate) barrier: u64,
    /// Core it ran on last.
    pub(crate) last_core: usize,
}

impl Thread {
    pub(crate) fn new(process: ProcessId, ready_at: Cycle, last_core: usize) -> Self {
        Thread {
            process,
            state: ThreadState::Ready,
            item: None,
            skip_pending: false,
            at: 0,
            kept_back: 0,
            mapped_ahead: false,
            ready_at,
            starved: false,
            units: Units::default(),
            query_result: None,
            barrier: 0,
            last_core,
        }
    }

    /// Takes up a batch.
    pub(crate) fn begin(&mut self, item: Item) {
        self.skip_pending = item.batch.skipped.ops > 0;
        self.item = Some(item);
        self.at = 0;
        self.mapped_ahead = false;
    }
}

/// A process of the program that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    /// Tickets up to this one have taken effect.
    pub(crate) applied: u64,
    /// Of a mix: number of the program that it belongs to.
    pub(crate) part: usize,
}
