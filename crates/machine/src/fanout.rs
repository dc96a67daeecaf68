//! Batch fan-out: one program feeds several machines.
//!
//! **Problem.** Designs are compared on one instruction stream, and generating that stream costs host
//! time. Machines also need less than the full stream while they fast-forward.
//!
//! **Idea.** The program generates each batch once. The fan-out queues the batch for its thread until
//! every machine has taken it. Each machine takes batches at its own speed, but the lead over the slowest
//! machine is limited. With each request for a batch, a machine states the [`Detail`] that it needs, and
//! for how much work. A program with one thread is then granted a fast-forward budget of that work. It
//! generates no operations for the granted part. Instead it reports in [`Batch::skipped`] the first
//! touches of pages or, for filtered functional warming, the accesses that pass a recent-line filter.
//!
//! **Calls.** A worker of `run.rs` picks the machine that has progressed least and calls
//! `Machine::advance`. The machine calls [`Fanout::next`] for a thread. A queued batch is returned at
//! once. Otherwise the caller locks the program, fills the next batch itself and notifies the waiting
//! workers. When the machine is about to drain the queue of the only thread, the same call also
//! prefetches batches ([`Fanout::prefetch`]). The machine returns a used batch by [`Fanout::recycle`]. It
//! reports threads of an ended process by [`Fanout::gone`] and its own end by [`Fanout::finish`].
//!
//! **Locks.** `program` is taken before `state`. A machine can take queued batches while another one
//! fills the next.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use pagewalk_stream::{
    Batch, ClockQuery, End, Error, Event, InstructionCounts, Program, ThreadId, Unseen,
};

use crate::plan::Detail;
use crate::wake_signal::{WakeSignal, lock};
use crate::work::Work;

/// A batch and why it ended.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Operations; may be empty.
    pub(crate) batch: Arc<Batch>,
    /// Instructions of the batch. They are counted when the batch is made, because the host's caches no
    /// longer hold it after a core has run through it.
    pub(crate) instructions: u64,
    /// Never [`End::Empty`].
    pub(crate) end: End,
}

/// Result of [`Fanout::next`].
#[derive(Clone, Debug)]
pub(crate) enum Supply {
    /// The next item of the thread.
    Item(Item),
    /// The live program has nothing for this thread yet.
    Empty,
    /// Nothing now: the machine is as far ahead of the slowest one as it may be, or another worker is
    /// making the next batch. The worker runs other machines meanwhile.
    Ahead,
}

/// Limit on the number of threads of a program. A recording that names more is damaged.
const MOST_THREADS: ThreadId = 1 << 20;

/// Largest lead of a machine over the slowest one, in batches for each thread.
const WINDOW: u64 = 64;
/// Batches that are prefetched.
const LOOKAHEAD: u64 = 8;
/// Batches that are prefetched during fast-forwarding. A machine does almost no work on them, so they are
/// made in larger groups. Waiting workers then wake once a group.
const SKIPPED_LOOKAHEAD: u64 = 32;

/// Contents of a file of the simulated kernel; `None`: it has no such file.
type Contents = Option<Vec<u8>>;

#[derive(Default)]
struct Queue {
    /// Number of the first item in the queue.
    base: u64,
    items: VecDeque<Item>,
    /// Next item of each machine; `u64::MAX` for a machine that takes no more.
    next: Vec<u64>,
    /// The last item ends with [`End::Blocked`].
    blocked: bool,
    /// The last item is the end of the thread.
    ended: bool,
    /// Number of the item after the last one that does not end with [`End::More`].
    after_event: u64,
    /// A machine has seen the end of the thread's process.
    gone: bool,
    /// Files of the kernel that the thread has read so far.
    files: u64,
    /// While the thread waits for the last of them: its contents on each machine that has come there.
    contents: Option<BTreeMap<usize, Contents>>,
    /// The last item is a question to the clock, without a result yet: the answers of the machines that have come to it.
    asked: Option<(ClockQuery, Vec<Option<u64>>)>,
    /// Error of the program after the last item. Other threads continue, so that every machine gets as
    /// far as it would alone.
    error: Option<Error>,
}

impl Queue {
    /// Number of the item after the last one in the queue.
    fn end(&self) -> u64 {
        self.base + self.items.len() as u64
    }

    /// Drops the items that no machine will take any more. A machine that still executes such an item has
    /// its own reference to the batch, and returns it by [`Fanout::recycle`].
    fn trim(&mut self) {
        let end = self.end();
        let slowest = self.next.iter().copied().min().unwrap_or(end).min(end);
        self.items.drain(..(slowest - self.base) as usize);
        self.base = slowest;
    }

    /// Removes `consumer` from the queue. True if no machine is left.
    fn unsubscribe(&mut self, consumer: usize) -> bool {
        self.next[consumer] = u64::MAX;
        self.trim();
        self.is_over()
    }

    /// Contents of the file for which the thread waits, once the first machine that takes items has come there.
    fn take_contents(&mut self) -> Option<Contents> {
        let first = self.next.iter().position(|n| *n != u64::MAX)?;
        let found = self.contents.as_mut()?.remove(&first)?;
        self.contents = None;
        Some(found)
    }

    /// True if no machine takes another item.
    fn is_over(&self) -> bool {
        self.ended && self.items.is_empty() || self.next.iter().all(|n| *n == u64::MAX)
    }
}

struct FanoutState {
    /// Queues of the threads from which a machine may still take an item.
    threads: BTreeMap<ThreadId, Queue>,
    /// Threads with a smaller number have been started.
    made: ThreadId,
    /// Instructions that each machine has taken; `u64::MAX` once it has finished.
    progress: Vec<u64>,
    pool: Vec<Batch>,
    /// Work of all batches made so far.
    work: Work,
    /// Programs of processes that ran natively: the stream does not contain them.
    unseen: Vec<Unseen>,
    /// Largest time that the program's clocks have shown, in nanoseconds and in cycles.
    shown: [u64; 2],
}

impl FanoutState {
    /// Adds a queue for each new thread up to `thread`. Finished machines take nothing from a new queue.
    fn make_room(&mut self, thread: ThreadId) {
        for new in self.made..=thread {
            let finished = |&p: &u64| if p == u64::MAX { u64::MAX } else { 0 };
            let queue = Queue {
                next: self.progress.iter().map(finished).collect(),
                ..Queue::default()
            };
            self.threads.insert(new, queue);
        }
        self.made = self.made.max(thread + 1);
    }

    /// Supply for `consumer` without calling the program, if there is one.
    fn buffered(&mut self, consumer: usize, thread: ThreadId) -> Option<Result<Supply, Error>> {
        let slowest = self.progress.iter().copied().min().unwrap_or(0);
        let may_exceed = self.progress[consumer] <= slowest;
        self.make_room(thread);
        let Some(queue) = self.threads.get_mut(&thread) else {
            // Every machine has taken the end of this thread.
            return Some(Ok(Supply::Empty));
        };
        let at = queue.next[consumer];
        if at < queue.end() {
            let item = queue.items[(at - queue.base) as usize].clone();
            queue.next[consumer] = at + 1;
            self.progress[consumer] += item.instructions.max(1);
            queue.trim();
            if queue.is_over() {
                self.threads.remove(&thread);
            }
            return Some(Ok(Supply::Item(item)));
        }
        if queue.items.len() as u64 >= WINDOW && !may_exceed {
            return Some(Ok(Supply::Ahead));
        }
        if queue.asked.is_some() {
            // The next batch depends on the result. With several threads, this machine may go on with another one.
            let alone = self.is_alone();
            return Some(Ok(if alone { Supply::Ahead } else { Supply::Empty }));
        }
        queue.error.clone().map(Err)
    }

    /// Result of the question to the clock of `thread`, once the machine that answers has come to it: the first one that
    /// has not finished. None also if there is no such question.
    fn clock_result(&mut self, thread: ThreadId) -> Option<u64> {
        let answers = self.progress.iter().position(|&p| p != u64::MAX)?;
        let queue = self.threads.get_mut(&thread)?;
        let (query, given) = queue.asked.as_ref()?;
        let result = given[answers]?;
        let shown = match query {
            ClockQuery::Time => &mut self.shown[0],
            ClockQuery::Cycles { .. } => &mut self.shown[1],
            _ => &mut 0,
        };
        // Cores differ a little, and after the end of a machine another one answers.
        *shown = result.max(*shown);
        let result = *shown;
        queue.asked = None;
        Some(result)
    }

    /// True if the program has started no second thread.
    fn is_alone(&self) -> bool {
        self.made == 1
    }

    /// True if fewer than `soon` items of the only thread are left for `consumer`. False while an event is
    /// ahead of the machine or was the end of its last item: after the event it may need another detail.
    fn queue_runs_dry(&self, consumer: usize, thread: ThreadId, soon: u64) -> bool {
        let Some(queue) = self.threads.get(&thread) else {
            return false;
        };
        let few = queue.next[consumer].saturating_add(soon) > queue.end();
        let room = (queue.items.len() as u64) < WINDOW;
        self.is_alone()
            && few
            && queue.next[consumer] > queue.after_event
            && room
            && queue.error.is_none()
    }

    /// Queues a batch of the program. False if the program had nothing.
    fn add(
        &mut self,
        thread: ThreadId,
        batch: Batch,
        end: End,
        fast_forwarding: FastForwarding,
    ) -> bool {
        let Some(queue) = self.threads.get_mut(&thread) else {
            return false;
        };
        // A blocked thread is polled repeatedly. Only its first empty batch is queued.
        let still_blocked = end == End::Blocked && queue.blocked;
        if batch.ops.is_empty() && (end == End::Empty || still_blocked) {
            self.pool.push(batch);
            return false;
        }
        let end = if end == End::Empty { End::More } else { end };
        queue.blocked = end == End::Blocked;
        queue.ended = end == End::Exit;
        if let End::ReadKernel(_) = end {
            queue.files += 1;
            queue.contents = Some(BTreeMap::new());
        }
        let goes_on = end == End::More;
        queue.asked = match end {
            End::Clock(query) => Some((query, vec![None; queue.next.len()])),
            _ => None,
        };
        let starts = match &end {
            End::Event {
                event: Event::Spawn { thread } | Event::Fork { thread, .. },
                ..
            } => Some(*thread),
            End::Event {
                event: Event::Unseen(unseen),
                ..
            } => {
                self.unseen.push((**unseen).clone());
                None
            }
            _ => None,
        };
        let instructions = batch.instructions();
        self.work += Work {
            instructions,
            requests: fast_forwarding.requests(&batch),
        };
        queue.items.push_back(Item {
            instructions,
            batch: Arc::new(batch),
            end,
        });
        if !goes_on {
            queue.after_event = queue.end();
        }
        if let Some(thread) = starts {
            self.make_room(thread);
        }
        true
    }
}

/// Returns `end`, and refuses a thread number that only a damaged recording can have.
fn plausible(end: End) -> Result<End, Error> {
    match &end {
        End::Event {
            event: Event::Spawn { thread } | Event::Fork { thread, .. },
            ..
        } if *thread >= MOST_THREADS => Err(Error::refused(format!(
            "the program starts a thread of number {thread}; expected a number below {MOST_THREADS}: the recording is damaged"
        ))),
        _ => Ok(end),
    }
}

/// True if batches are prefetched in groups of [`SKIPPED_LOOKAHEAD`].
fn makes_groups(detail: Detail) -> bool {
    detail == Detail::FastForward
}

/// Unit in which a program may fast-forward, if it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FastForwarding {
    /// A machine needs every access of the program.
    Never,
    /// Fast-forward budgets are in instructions.
    ByInstructions,
    /// Fast-forward budgets are in requests.
    ByRequests,
}

impl FastForwarding {
    /// Requests that end in `batch`. They are counted only if budgets need them.
    fn requests(self, batch: &Batch) -> u64 {
        match self {
            FastForwarding::ByRequests => batch.requests(),
            FastForwarding::Never | FastForwarding::ByInstructions => 0,
        }
    }
}

/// One program and the queues from which its machines take batches.
pub(crate) struct Fanout {
    state: Mutex<FanoutState>,
    /// Held while a batch is made and while a live program is waited for. Taken before `state` where both
    /// are held.
    program: Mutex<Box<dyn Program>>,
    wake: Arc<WakeSignal>,
    /// The only machine returns results of shortcut queries.
    has_shortcut: bool,
    /// Budget unit of the program.
    fast_forwarding: FastForwarding,
    /// True if batches are prefetched, that is, made before a machine requests them. It takes several
    /// machines and a deterministic program: a live program may not have its next batch ready.
    prefetches: bool,
}

impl Fanout {
    /// Fan-out to `consumers` machines, which all have the same phases. `has_shortcut`: the only
    /// machine returns results of shortcut queries through [`Fanout::shortcut_result`].
    pub(crate) fn new(
        program: Box<dyn Program>,
        consumers: usize,
        (has_shortcut, fast_forwarding): (bool, FastForwarding),
        wake: Arc<WakeSignal>,
    ) -> Self {
        debug_assert!(!has_shortcut || consumers == 1);
        let prefetches = consumers > 1 && program.facts().deterministic;
        let queue = Queue {
            next: vec![0; consumers],
            ..Queue::default()
        };
        Fanout {
            program: Mutex::new(program),
            state: Mutex::new(FanoutState {
                threads: BTreeMap::from([(0, queue)]),
                made: 1,
                progress: vec![0; consumers],
                pool: Vec::new(),
                work: Work::default(),
                unseen: Vec::new(),
                shown: [0; 2],
            }),
            wake,
            has_shortcut,
            fast_forwarding,
            prefetches,
        }
    }

    /// The program's exit status, when it has one.
    pub(crate) fn exit_status(&self) -> Option<i32> {
        lock(&self.program).exit_status()
    }

    /// Programs of processes that ran natively: the stream does not contain them.
    pub(crate) fn unseen(&self) -> Vec<Unseen> {
        lock(&self.state).unseen.clone()
    }

    /// The next item of `thread` for `consumer`. The machine needs the stream at the given detail, until
    /// the work since the start of the program has reached `until`.
    ///
    /// # Errors
    /// The program failed. Every machine gets this error when it reaches the same place.
    pub(crate) fn next(
        &self,
        consumer: usize,
        thread: ThreadId,
        (detail, until): (Detail, Work),
    ) -> Result<Supply, Error> {
        let mut state = lock(&self.state);
        if let Some(supply) = state.buffered(consumer, thread) {
            let least = if makes_groups(detail) { 1 } else { LOOKAHEAD };
            let short = self.prefetches && state.queue_runs_dry(consumer, thread, least);
            drop(state);
            if short {
                self.prefetch(consumer, thread, (detail, until));
            }
            return supply;
        }
        let alone = state.is_alone();
        drop(state);
        let Some(mut program) = self.free_program(alone) else {
            // The worker that fills the next batch notifies the others.
            return Ok(Supply::Ahead);
        };
        let mut state = lock(&self.state);
        // Another worker may have made this batch meanwhile.
        if let Some(supply) = state.buffered(consumer, thread) {
            return supply;
        }
        let (batch, skipped) = self.begin(&mut state, (detail, until));
        drop(state);
        if !self.make(&mut **program, thread, batch, (detail, skipped)) {
            return Ok(Supply::Empty);
        }
        drop(program);
        let supply = lock(&self.state).buffered(consumer, thread);
        self.wake.notify();
        supply.unwrap_or(Ok(Supply::Empty))
    }

    /// Locks the program. With prefetching and one thread, it returns None instead of waiting while another
    /// worker makes a batch. With several threads it always waits: otherwise the machine would run another
    /// of its threads first, and the order of threads would change its results.
    fn free_program(&self, alone: bool) -> Option<MutexGuard<'_, Box<dyn Program>>> {
        if !self.prefetches || !alone {
            return Some(lock(&self.program));
        }
        match self.program.try_lock() {
            Ok(program) => Some(program),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Makes batches before they are requested, unless another worker holds the program. Stops at the end
    /// of the work for which the machine has stated its detail.
    fn prefetch(&self, consumer: usize, thread: ThreadId, (detail, until): (Detail, Work)) {
        let Some(mut program) = self.free_program(true) else {
            return;
        };
        let together = makes_groups(detail);
        let soon = if together {
            SKIPPED_LOOKAHEAD
        } else {
            LOOKAHEAD
        };
        loop {
            let mut state = lock(&self.state);
            let needed = Work::default().is_within(until.less(state.work));
            if !needed || !state.queue_runs_dry(consumer, thread, soon) {
                break;
            }
            let (batch, skipped) = self.begin(&mut state, (detail, until));
            drop(state);
            let made = self.make(&mut **program, thread, batch, (detail, skipped));
            if !together {
                self.wake.notify();
            }
            if !made {
                break;
            }
        }
        drop(program);
        if together {
            self.wake.notify();
        }
    }

    /// An empty batch, and the budget that may be granted for it.
    fn begin(&self, state: &mut FanoutState, (detail, until): (Detail, Work)) -> (Batch, Work) {
        let mut skipped = Work::default();
        // With several threads, their interleaving depends on the machine. The fast-forwarded part would
        // then end at another place in each machine.
        if self.fast_forwarding != FastForwarding::Never
            && state.is_alone()
            && detail != Detail::Full
        {
            skipped = until.less(state.work);
        }
        (state.pool.pop().unwrap_or_default(), skipped)
    }

    /// Fills `batch` after granting the program the budget `skipped` at this detail. True if there was
    /// anything to queue.
    fn make(
        &self,
        program: &mut dyn Program,
        thread: ThreadId,
        mut batch: Batch,
        (detail, skipped): (Detail, Work),
    ) -> bool {
        match detail {
            _ if self.fast_forwarding == FastForwarding::Never => {}
            Detail::FilteredWarm => {
                program.grant_filtered_warming(skipped.instructions, skipped.requests)
            }
            // The budget is 0 where a machine needs all ops.
            Detail::FastForward | Detail::Full => {
                program.grant_fast_forward(skipped.instructions, skipped.requests)
            }
        }
        batch.counts = InstructionCounts::default();
        let made = program.fill(thread, &mut batch).and_then(plausible);
        if matches!(made, Ok(End::Query(_))) && !self.has_shortcut {
            program.shortcut_result(thread, None);
        }
        let mut state = lock(&self.state);
        match made {
            Ok(end) => state.add(thread, batch, end, self.fast_forwarding),
            Err(e) => {
                if let Some(queue) = state.threads.get_mut(&thread) {
                    queue.error = Some(e);
                }
                true
            }
        }
    }

    /// Returns the result of the shortcut query of `thread` to the program. Without a shortcut,
    /// [`Fanout::make`] has already returned `None` to it.
    pub(crate) fn shortcut_result(&self, thread: ThreadId, reply: Option<u64>) {
        if self.has_shortcut {
            lock(&self.program).shortcut_result(thread, reply);
        }
    }

    /// `consumer` has come to the file number `number` that `thread` reads. The first machine that still runs answers
    /// the program.
    pub(crate) fn kernel_file(
        &self,
        consumer: usize,
        thread: ThreadId,
        number: u64,
        contents: Contents,
    ) {
        let mut state = lock(&self.state);
        let queue = state.threads.get_mut(&thread);
        let Some(queue) = queue.filter(|q| q.files == number) else {
            return;
        };
        if let Some(all) = &mut queue.contents {
            all.insert(consumer, contents);
        }
        let found = queue.take_contents();
        drop(state);
        if let Some(found) = found {
            lock(&self.program).kernel_file(thread, found);
        }
    }

    /// Answer of `consumer` to the question of `thread` to the clock. The program gets that of one machine.
    pub(crate) fn clock_result(&self, consumer: usize, thread: ThreadId, answer: u64) {
        let mut program = lock(&self.program);
        let mut state = lock(&self.state);
        let asked = state
            .threads
            .get_mut(&thread)
            .and_then(|q| q.asked.as_mut());
        if let Some((_, given)) = asked {
            given[consumer] = Some(answer);
        }
        let result = state.clock_result(thread);
        drop(state);
        if result.is_some() {
            program.shortcut_result(thread, result);
            drop(program);
            self.wake.notify();
        }
    }

    /// Takes back a used item and keeps its batch for reuse.
    pub(crate) fn recycle(&self, item: Item) {
        if let Ok(mut batch) = Arc::try_unwrap(item.batch) {
            // The process may have ended: nothing keeps its memory open.
            batch.memory = None;
            let mut state = lock(&self.state);
            if state.pool.len() < 256 {
                state.pool.push(batch);
            }
        }
    }

    /// `consumer` takes nothing more of `thread`, whose process has ended. The last machine to do so
    /// reports the thread to the program.
    pub(crate) fn gone(&self, consumer: usize, thread: ThreadId) {
        let mut state = lock(&self.state);
        let Some(queue) = state.threads.get_mut(&thread) else {
            return;
        };
        queue.gone = true;
        if !queue.unsubscribe(consumer) {
            return;
        }
        state.threads.remove(&thread);
        drop(state);
        lock(&self.program).gone(thread);
    }

    /// `consumer` takes nothing more at all, and the others no longer wait for it. Threads of ended
    /// processes that only this machine still held are reported to the program.
    pub(crate) fn finish(&self, consumer: usize) {
        let mut state = lock(&self.state);
        state.progress[consumer] = u64::MAX;
        let (mut gone, mut files) = (Vec::new(), Vec::new());
        state.threads.retain(|&thread, queue| {
            let over = queue.unsubscribe(consumer);
            files.extend(queue.take_contents().map(|found| (thread, found)));
            if over && queue.gone {
                gone.push(thread);
            }
            !over
        });
        let asking: Vec<ThreadId> = state.threads.keys().copied().collect();
        let results = asking
            .into_iter()
            .filter_map(|thread| Some((thread, state.clock_result(thread)?)));
        let results: Vec<(ThreadId, u64)> = results.collect();
        drop(state);
        if !gone.is_empty() || !files.is_empty() || !results.is_empty() {
            let mut program = lock(&self.program);
            for (thread, contents) in files {
                program.kernel_file(thread, contents);
            }
            gone.into_iter().for_each(|thread| program.gone(thread));
            for (thread, result) in results {
                program.shortcut_result(thread, Some(result));
            }
        }
        self.wake.notify();
    }

    /// Instructions that each machine has taken; `None` for those that have finished.
    pub(crate) fn progress(&self) -> Vec<Option<u64>> {
        let state = lock(&self.state);
        let unfinished = |&p: &u64| (p != u64::MAX).then_some(p);
        state.progress.iter().map(unfinished).collect()
    }

    /// Blocks until the live program has new batches.
    pub(crate) fn wait_for_program(&self) {
        lock(&self.program).wait();
    }
}

#[cfg(test)]
mod tests;
