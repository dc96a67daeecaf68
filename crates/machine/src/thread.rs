//! Threads and processes as the scheduler sees them.

use pagewalk_os::Pid;
use pagewalk_stream::{Counted, Event, ProcessId, ThreadId, Units};
use pagewalk_units::Cycle;

use crate::fanout::Item;

/// State of a thread in the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ThreadState {
    /// On this core.
    Running(usize),
    /// Ready to run.
    Ready,
    /// Blocked in the kernel.
    Blocked,
    /// Sleeps until this time on its core's clock.
    Sleeping(Cycle),
    /// Waits at a barrier for the other threads of its process.
    AtBarrier(u64),
    /// Waits until each of these threads has reached a count.
    Waiting(Vec<(ThreadId, u64)>, Counted),
    /// Waits until the address-space change with this ticket takes effect.
    Meeting(u64),
    /// Requested a change that waits for the other threads.
    Changing(Event, u64),
    /// Waits until all programs of the mix have reached their regions of interest.
    Gathering,
}

/// A running program's thread.
#[derive(Debug)]
pub(crate) struct SoftwareThread {
    pub(crate) process: ProcessId,
    pub(crate) state: ThreadState,
    /// Current batch.
    pub(crate) item: Option<Item>,
    /// The skipped part of the batch is still to be processed.
    pub(crate) skip_pending: bool,
    /// Next operation of the batch.
    pub(crate) at: usize,
    /// Instructions of the operation that faulted last and is to be resumed. They are counted when it
    /// completes.
    pub(crate) kept_back: u64,
    /// Pages of the batch that count as mapped before the program starts have been mapped.
    pub(crate) mapped_ahead: bool,
    /// Earliest time at which it continues.
    pub(crate) ready_at: Cycle,
    /// The live program has no batch for it yet.
    pub(crate) starved: bool,
    /// Work that it has completed.
    pub(crate) units: Units,
    /// Result of the shortcut query at the end of its batch.
    pub(crate) query_result: Option<u64>,
    /// Files of the kernel that it has read.
    pub(crate) files: u64,
    /// Number of the last barrier that it reached.
    pub(crate) barrier: u64,
    /// Core it ran on last.
    pub(crate) last_core: usize,
    /// Cycles that it has spent on cores, up to the last time that it left one.
    pub(crate) core_time: Cycle,
    /// Time at which it came onto its core.
    pub(crate) on_core_since: Cycle,
}

impl SoftwareThread {
    pub(crate) fn new(process: ProcessId, ready_at: Cycle, last_core: usize) -> Self {
        SoftwareThread {
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
            files: 0,
            barrier: 0,
            last_core,
            core_time: 0,
            on_core_since: 0,
        }
    }

    /// Starts a batch.
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
    /// Number of its program in a mix.
    pub(crate) part: usize,
    /// Cycles that its threads have spent on cores, up to the last time that each left one.
    pub(crate) core_time: Cycle,
}
