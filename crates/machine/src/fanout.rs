//! One program, many machines: each batch is made once and lent to every
//! design, which goes through the streams at its own speed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use pagewalk_stream::{Batch, End, Error, Event, Program, ThreadId, Unseen};

use crate::plan::Detail;
use crate::wake_signal::{WakeSignal, lock};
use crate::work::Work;

/// A batch and why it ended.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Ops; may be empty.
    pub(crate) batch: Arc<Batch>,
    /// Instructions of the batch, counted when it was made: by the time that a core has gone
    /// through it, the host's caches hold it no more.
    pub(crate) instructions: u64,
    /// Never [`End::Empty`].
    pub(crate) end: End,
}

/// What a machine gets when it asks for more.
#[derive(Clone, Debug)]
pub(crate) enum Supply {
    /// Here it is.
    Item(Item),
    /// The live program has nothing for this thread yet.
    Empty,
    /// This machine is as far ahead of the slowest as it may be, or what comes next is being made; let
    /// others run.
    Ahead,
}

/// Threads that a program may make. A recording that names more is damaged.
const MOST_THREADS: ThreadId = 1 << 20;

/// Batches that a machine may be ahead of the slowest one, for each thread.
const WINDOW: u64 = 64;
/// Batches that are made before a machine asks for them, where they can be.
const LOOKAHEAD: u64 = 8;
/// The same of what is passed over, of which a machine has next to nothing to do: as many at a time, so
/// that those that wait for them are not woken for each.
const SKIPPED_LOOKAHEAD: u64 = 32;

#[derive(Default)]
struct Queue {
    /// Number of the first item kept.
    base: u64,
    items: VecDeque<Item>,
    /// Next item of each machine.
    next: Vec<u64>,
    /// The last item said that the thread waits for something outside.
    blocked: bool,
    /// The last item is the thread's end.
    ended: bool,
    /// Number of the item after the last one that something happened behind but more of it.
    goes_on_from: u64,
    /// Its process has ended on a machine.
    gone: bool,
    /// Why there is nothing after the last item. Other threads go on, so that
    /// every machine comes as far as it would alone.
    error: Option<Error>,
}

impl Queue {
    /// Number of the item after the last one kept.
    fn end(&self) -> u64 {
        self.base + self.items.len() as u64
    }

    /// Drops what every machine has taken or will never take. The batch itself
    /// lives on in the machine that runs it; it comes back through [`Fanout::recycle`].
    fn trim(&mut self) {
        let end = self.end();
        let slowest = self.next.iter().copied().min().unwrap_or(end).min(end);
        self.items.drain(..(slowest - self.base) as usize);
        self.base = slowest;
    }

    /// `consumer` takes nothing more from it; whether none does.
    fn unsubscribe(&mut self, consumer: usize) -> bool {
        self.next[consumer] = u64::MAX;
        self.trim();
        self.is_over()
    }

    /// Whether no machine takes anything from it any more.
    fn is_over(&self) -> bool {
        self.ended && self.items.is_empty() || self.next.iter().all(|n| *n == u64::MAX)
    }
}

struct FanoutState {
    /// Of threads of which a machine may still take something.
    threads: BTreeMap<ThreadId, Queue>,
    /// Threads below this one were started.
    made: ThreadId,
    /// Instructions handed to each machine; `u64::MAX` once it has finished.
    progress: Vec<u64>,
    pool: Vec<Batch>,
    /// Instructions and requests of all batches that were made.
    work: Work,
    /// Programs of the program's processes that are not followed.
    unseen: Vec<Unseen>,
}

impl FanoutState {
    /// Makes a queue for each thread up to `thread`. Machines that have finished
    /// never take anything from a new one either.
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

    /// What there is for `consumer` without the program, if anything.
    fn buffered(&mut self, consumer: usize, thread: ThreadId) -> Option<Result<Supply, Error>> {
        let slowest = self.progress.iter().copied().min().unwrap_or(0);
        let may_exceed = self.progress[consumer] <= slowest;
        self.make_room(thread);
        let Some(queue) = self.threads.get_mut(&thread) else {
            // Every machine has taken its end.
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
        queue.error.clone().map(Err)
    }

    /// Whether the program has no more than its first thread.
    fn is_alone(&self) -> bool {
        self.made == 1
    }

    /// Whether `consumer` will have taken all that there is of `thread`, the only one, with `soon` more, and
    /// goes on from where it is: what it needs then says nothing of what comes after an event.
    fn queue_runs_dry(&self, consumer: usize, thread: ThreadId, soon: u64) -> bool {
        let Some(queue) = self.threads.get(&thread) else {
            return false;
        };
        let few = queue.next[consumer].saturating_add(soon) > queue.end();
        let room = (queue.items.len() as u64) < WINDOW;
        self.is_alone()
            && few
            && queue.next[consumer] > queue.goes_on_from
            && room
            && queue.error.is_none()
    }

    /// Takes over what the program gave for `thread`; whether that was anything.
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
        // A blocked thread is asked again and again; what it says first counts.
        let still_blocked = end == End::Blocked && queue.blocked;
        if batch.ops.is_empty() && (end == End::Empty || still_blocked) {
            self.pool.push(batch);
            return false;
        }
        let end = if end == End::Empty { End::More } else { end };
        queue.blocked = end == End::Blocked;
        queue.ended = end == End::Exit;
        let goes_on = end == End::More;
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
            queue.goes_on_from = queue.end();
        }
        if let Some(thread) = starts {
            self.make_room(thread);
        }
        true
    }
}

/// Refuses a thread whose number only damage can explain.
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

/// Whether batches of which a machine needs no more are made [`SKIPPED_LOOKAHEAD`] at a time.
fn makes_groups(detail: Detail) -> bool {
    detail == Detail::FastForward
}

/// Whether a program may pass over what all its machines skip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FastForwarding {
    /// They need every access of it.
    Never,
    /// What is skipped is told in instructions.
    ByInstructions,
    /// It is told in requests.
    ByRequests,
}

impl FastForwarding {
    /// Requests that end in `batch`, counted only where they matter.
    fn requests(self, batch: &Batch) -> u64 {
        match self {
            FastForwarding::ByRequests => batch.requests(),
            FastForwarding::Never | FastForwarding::ByInstructions => 0,
        }
    }
}

/// The shared end of a program.
pub(crate) struct Fanout {
    state: Mutex<FanoutState>,
    /// Held while it makes a batch or is waited for, and taken before `state`
    /// where both are: what is buffered is there for the others meanwhile.
    program: Mutex<Box<dyn Program>>,
    wake: Arc<WakeSignal>,
    /// The only machine answers what the program asks.
    has_shortcut: bool,
    /// Whether the program may pass over what no machine looks at.
    fast_forwarding: FastForwarding,
    /// Batches may be made before a machine asks for them: there are several machines, and each
    /// batch is there at once.
    prefetches: bool,
}

impl Fanout {
    /// A fan-out that feeds `consumers` machines; `answers`: what the program asks is
    /// answered by its only machine, through [`Fanout::shortcut_result`]. All machines skip the same.
    pub(crate) fn new(
        program: Box<dyn Program>,
        consumers: usize,
        (answers, fast_forwarding): (bool, FastForwarding),
        wake: Arc<WakeSignal>,
    ) -> Self {
        debug_assert!(!answers || consumers == 1);
        let ahead = consumers > 1 && program.facts().deterministic;
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
            }),
            wake,
            has_shortcut: answers,
            fast_forwarding,
            prefetches: ahead,
        }
    }

    /// The program's exit status, when it has one.
    pub(crate) fn exit_status(&self) -> Option<i32> {
        lock(&self.program).exit_status()
    }

    /// What of the program was not followed.
    pub(crate) fn unseen(&self) -> Vec<Unseen> {
        lock(&self.state).unseen.clone()
    }

    /// The next item of `thread` for `consumer`, which needs no more of it than is said until so
    /// much work is done since the program began.
    ///
    /// # Errors
    /// The program cannot go on; every machine that reaches this place is told.
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
            // Whoever makes a batch tells when it is there.
            return Ok(Supply::Ahead);
        };
        let mut state = lock(&self.state);
        // Whoever had the program may have made what is asked for.
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

    /// The program; where batches are made ahead of its `alone` thread, nothing while one is being made.
    /// Of several threads another would go on meanwhile, and results depend on who is first.
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

    /// Makes some batches after those that are there, if nobody else has the program: so no machine
    /// waits for what another could have made while it ran. What comes after `until` may be passed
    /// over.
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

    /// An empty batch, and how much of it may be passed over.
    fn begin(&self, state: &mut FanoutState, (detail, until): (Detail, Work)) -> (Batch, Work) {
        let mut skipped = Work::default();
        // With several threads it depends on the machine which of them comes to the end of
        // what is skipped, and where.
        if self.fast_forwarding != FastForwarding::Never
            && state.is_alone()
            && detail != Detail::Full
        {
            skipped = until.less(state.work);
        }
        (state.pool.pop().unwrap_or_default(), skipped)
    }

    /// Has `program` fill `batch`, of which no more than is said is needed up to so much work;
    /// whether there is anything.
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
            Detail::FastForward | Detail::Full => {
                program.grant_fast_forward(skipped.instructions, skipped.requests)
            }
        }
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

    /// The reply to what `thread` asked. Nothing where no machine answers: the
    /// program has been told so.
    pub(crate) fn shortcut_result(&self, thread: ThreadId, reply: Option<u64>) {
        if self.has_shortcut {
            lock(&self.program).shortcut_result(thread, reply);
        }
    }

    /// A machine gives back an item that it has finished with.
    pub(crate) fn recycle(&self, item: Item) {
        if let Ok(batch) = Arc::try_unwrap(item.batch) {
            let mut state = lock(&self.state);
            if state.pool.len() < 256 {
                state.pool.push(batch);
            }
        }
    }

    /// `consumer` wants nothing more of `thread`, whose process has ended. When none does,
    /// the program is told.
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

    /// `consumer` wants nothing more: the others need not wait for it. It may have been the last one
    /// that had not heard of a process's end: the program is told.
    pub(crate) fn finish(&self, consumer: usize) {
        let mut state = lock(&self.state);
        state.progress[consumer] = u64::MAX;
        let mut gone = Vec::new();
        state.threads.retain(|&thread, queue| {
            let over = queue.unsubscribe(consumer);
            if over && queue.gone {
                gone.push(thread);
            }
            !over
        });
        drop(state);
        if !gone.is_empty() {
            let mut program = lock(&self.program);
            gone.into_iter().for_each(|thread| program.gone(thread));
        }
        self.wake.notify();
    }

    /// Instructions handed to each machine; `None` for those that have finished.
    pub(crate) fn progress(&self) -> Vec<Option<u64>> {
        let state = lock(&self.state);
        let unfinished = |&p: &u64| (p != u64::MAX).then_some(p);
        state.progress.iter().map(unfinished).collect()
    }

    /// Waits until the live program has something new.
    pub(crate) fn wait_for_program(&self) {
        lock(&self.program).wait();
    }
}

#[cfg(test)]
mod tests;
