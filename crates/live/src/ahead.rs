//! Reads ahead of the engine: a host thread turns rings into batches while the engine simulates earlier ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pagewalk_stream::{Batch, End, Error, Event, Facts, Program, ThreadId};

use crate::living::Living;
use crate::program::{LOOK, Live};
use crate::thread::QueryingThread;

/// Most batches of one thread that wait for the engine: 2 MB.
const AHEAD: usize = 16;

/// Most empty batches kept for reuse.
const POOL: usize = 256;

/// Longest time that a batch with room waits for more of its thread. A wrong path sees no op after its batch, so its
/// loads must not depend on the host time at which a batch is read.
const PATIENCE: Duration = Duration::from_millis(200);

/// Queue of one thread's batches, from the reader to the engine.
#[derive(Default)]
struct ThreadQueue {
    items: VecDeque<(Batch, End)>,
    /// The thread waits in the kernel since the last item.
    blocked: bool,
    ended: bool,
    /// The last item is a query, or reads a file of the kernel: the next batch comes after the result.
    querying: Option<QueryingThread>,
    /// The last such item reads a file of the kernel.
    reads_kernel: bool,
    /// The engine takes nothing more: later batches are dropped.
    gone: bool,
}

impl ThreadQueue {
    fn is_full(&self) -> bool {
        self.items.len() >= AHEAD
    }
    /// True if the reader should read on: more may come, and there is room.
    fn is_wanted(&self) -> bool {
        !self.ended && self.querying.is_none() && !self.is_full()
    }
    /// True if the engine has taken everything.
    fn is_over(&self) -> bool {
        self.ended && self.items.is_empty()
    }
}

#[derive(Default)]
struct HandoverState {
    queues: Living<ThreadQueue>,
    pool: Vec<Batch>,
    failed: Option<Error>,
    /// The engine waits and has nothing to do: the program must continue, even if more batches are held for another
    /// thread.
    starved: bool,
    /// The engine requests the exit status; `status` is the result.
    status_requested: bool,
    status: Option<Option<i32>>,
    /// `closing` tells the reader to end; `gone` says that it has ended.
    closing: bool,
    gone: bool,
}

#[derive(Default)]
struct Handover {
    state: Mutex<HandoverState>,
    /// Wakes the engine: something is new.
    filled: Condvar,
    /// Wakes the reader: there is room, a result or a request.
    room: Condvar,
}

impl Handover {
    fn state(&self) -> MutexGuard<'_, HandoverState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// A live program with a reader thread.
pub(crate) struct Ahead {
    facts: Facts,
    shared: Arc<Handover>,
    reader: Option<JoinHandle<()>>,
}

impl Ahead {
    /// Starts the thread that reads `live`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(live: Live) -> Result<Ahead, Error> {
        let facts = live.facts();
        let shared = Arc::new(Handover::default());
        shared.state().queues.push(ThreadQueue::default());
        let theirs = shared.clone();
        let reader = std::thread::Builder::new()
            .name("live-reader".into())
            .spawn(move || {
                let leaves = Leaves(theirs);
                read(live, &leaves.0);
            })
            .map_err(|e| Error::refused(format!("cannot start a thread: {e}")))?;
        Ok(Ahead {
            facts,
            shared,
            reader: Some(reader),
        })
    }
}

impl Ahead {
    /// Resumes a thread that waits for a result.
    fn take_waiting(&self, thread: ThreadId, deliver: impl FnOnce(&QueryingThread)) {
        let mut state = self.shared.state();
        let queue = state.queues.get_mut(thread as usize);
        let waiting = queue.and_then(|l| l.querying.take());
        drop(state);
        if let Some(waiting) = waiting {
            deliver(&waiting);
            self.shared.room.notify_one();
        }
    }
}

/// Reports to the engine that the reader has ended, for whatever reason.
struct Leaves(Arc<Handover>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.state().gone = true;
        self.0.filled.notify_all();
    }
}

/// Batches that were read and are not visible to the engine yet.
type Unseen = Vec<(usize, Batch, End)>;

/// The reader's own state.
#[derive(Default)]
struct Reader {
    /// Threads that count as blocked.
    blocked: BTreeSet<usize>,
    /// Batches that are not full, and when the first op of each was read.
    begun: BTreeMap<usize, (Batch, Instant)>,
    /// Empty batches.
    pool: Vec<Batch>,
}

impl Reader {
    /// Reads `thread` once. Returns true if an address space changed.
    fn read_one(
        &mut self,
        live: &mut Live,
        thread: usize,
        unseen: &mut Unseen,
    ) -> Result<bool, Error> {
        let (mut batch, since) = self.begun.remove(&thread).unwrap_or_else(|| {
            let mut batch = self.pool.pop().unwrap_or_default();
            batch.clear();
            (batch, Instant::now())
        });
        let was_blocked = self.blocked.contains(&thread);
        let end = live.fill_on(thread as ThreadId, &mut batch)?;
        let nothing = end == End::Empty || end == End::Blocked && was_blocked;
        if nothing && batch.ops.is_empty() {
            self.pool.push(batch);
            return Ok(false);
        }
        if end == End::Blocked {
            self.blocked.insert(thread);
        } else {
            self.blocked.remove(&thread);
        }
        if end == End::Empty && !was_blocked && since.elapsed() < PATIENCE {
            self.begun.insert(thread, (batch, since));
            return Ok(false);
        }
        let change = matches!(end, End::Event { ticket: 1.., .. });
        unseen.push((thread, batch, end));
        Ok(change)
    }

    /// Reads once from every thread that has room.
    ///
    /// A thread that counts as blocked lets changes by others take effect. A change is therefore published only
    /// together with what blocked threads did before it: those threads are read again after the change.
    fn sweep(&mut self, live: &mut Live, wanted: &[usize]) -> Result<Unseen, (Unseen, Error)> {
        let mut unseen = Unseen::new();
        let mut changes = false;
        for &thread in wanted {
            match self.read_one(live, thread, &mut unseen) {
                Ok(change) => changes |= change,
                Err(e) => return Err((unseen, e)),
            }
        }
        while std::mem::take(&mut changes) {
            for thread in self.blocked.clone() {
                match self.read_one(live, thread, &mut unseen) {
                    Ok(change) => changes |= change,
                    Err(e) => return Err((unseen, e)),
                }
            }
        }
        Ok(unseen)
    }
}

/// Publishes batches to the engine.
fn show(live: &Live, state: &mut HandoverState, unseen: Unseen) {
    for (thread, batch, end) in unseen {
        if let End::Event {
            event: Event::Spawn { thread } | Event::Fork { thread, .. },
            ..
        } = &end
        {
            while state.queues.made() <= *thread as usize {
                state.queues.push(ThreadQueue::default());
            }
        }
        let queue = &mut state.queues[thread];
        queue.blocked = end == End::Blocked;
        queue.ended = end == End::Exit;
        if let End::Query(_) | End::ReadKernel(_) | End::Clock(_) = end {
            queue.querying = live.querying_thread(thread as ThreadId);
            queue.reads_kernel = matches!(end, End::ReadKernel(_));
        }
        if queue.gone
            && let Some(waiting) = queue.querying.take()
        {
            waiting.deliver_result(None);
        }
        // The end needs no item of its own.
        if queue.gone || queue.ended && batch.ops.is_empty() {
            state.pool.push(batch);
        } else {
            queue.items.push_back((batch, end));
        }
        if queue.is_over() {
            state.queues.remove(thread);
        }
    }
}

fn read(mut live: Live, shared: &Handover) {
    let (mut reader, mut wanted) = (Reader::default(), Vec::new());
    loop {
        let mut state = shared.state();
        if state.closing {
            return;
        }
        if std::mem::take(&mut state.status_requested) {
            drop(state);
            let status = live.exit_status();
            state = shared.state();
            state.status = Some(status);
            shared.filled.notify_all();
        }
        wanted.clear();
        let queues = state.queues.iter();
        wanted.extend(queues.filter(|(_, l)| l.is_wanted()).map(|(i, _)| *i));
        reader.pool.append(&mut state.pool);
        reader.pool.truncate(POOL);
        drop(state);
        let read = reader.sweep(&mut live, &wanted);
        let mut state = shared.state();
        let moved = match read {
            Ok(unseen) => {
                let moved = !unseen.is_empty();
                show(&live, &mut state, unseen);
                moved
            }
            Err((unseen, e)) => {
                show(&live, &mut state, unseen);
                state.failed = Some(e);
                return;
            }
        };
        if moved {
            shared.filled.notify_all();
        }
        if moved || state.status_requested || state.closing {
            continue;
        }
        let full = |l: &ThreadQueue| !l.ended && l.is_full();
        if !state.queues.values().any(ThreadQueue::is_wanted) {
            drop(shared.room.wait(state));
        } else if state.queues.values().any(full) && !state.starved {
            // The program must not run further ahead for threads that wait: the reader waits for the engine.
            drop(shared.room.wait_timeout(state, LOOK));
        } else {
            drop(state);
            live.wait_at_most(LOOK * 5);
        }
    }
}

impl Program for Ahead {
    fn facts(&self) -> Facts {
        self.facts.clone()
    }

    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, Error> {
        // Also its hold on the memory of a process, which may have ended.
        batch.clear();
        let mut guard = self.shared.state();
        let state = &mut *guard;
        let number = thread as usize;
        let Some(queue) = state.queues.get_mut(number) else {
            if number < state.queues.made() {
                return Ok(End::Exit);
            }
            return Err(Error::refused(format!("there is no thread {thread}")));
        };
        if let Some((next, end)) = queue.items.pop_front() {
            // Wakes at half the room, so that the reader does not wake for each batch.
            let wake = queue.items.len() == AHEAD / 2;
            if queue.is_over() {
                state.queues.remove(number);
            }
            state.starved = false;
            state.pool.push(std::mem::replace(batch, next));
            drop(guard);
            if wake {
                self.shared.room.notify_one();
            }
            return Ok(end);
        }
        // Another design may still have to reach the place where the program reads a file of the kernel.
        if queue.querying.is_some() && queue.reads_kernel {
            return Ok(End::Empty);
        }
        if queue.querying.is_some() {
            return Err(Error::refused(format!(
                "thread {thread} has a query without a result, and its next batch was requested (a defect of Pagewalk)"
            )));
        }
        if let Some(e) = &state.failed {
            return Err(e.clone());
        }
        if state.gone {
            return Err(Error::refused(
                "the reader of the program stopped unexpectedly (a defect of Pagewalk)",
            ));
        }
        Ok(if queue.blocked {
            End::Blocked
        } else {
            End::Empty
        })
    }

    fn shortcut_result(&mut self, thread: ThreadId, reply: Option<u64>) {
        // The engine's own thread delivers it, because the reader may sleep.
        self.take_waiting(thread, |waiting| waiting.deliver_result(reply));
    }

    fn kernel_file(&mut self, thread: ThreadId, contents: Option<Vec<u8>>) {
        self.take_waiting(thread, |waiting| waiting.deliver_file(contents));
    }

    fn gone(&mut self, thread: ThreadId) {
        let mut guard = self.shared.state();
        let state = &mut *guard;
        let Some(queue) = state.queues.get_mut(thread as usize) else {
            return;
        };
        queue.gone = true;
        let items = std::mem::take(&mut queue.items);
        let waiting = queue.querying.take();
        if queue.is_over() {
            state.queues.remove(thread as usize);
        }
        state.pool.extend(items.into_iter().map(|(batch, _)| batch));
        drop(guard);
        if let Some(waiting) = waiting {
            waiting.deliver_result(None);
        }
        self.shared.room.notify_one();
    }

    fn wait(&mut self) {
        let mut state = self.shared.state();
        state.starved = true;
        self.shared.room.notify_one();
        // A short wait: another design may read a batch that has come for another thread.
        drop(self.shared.filled.wait_timeout(state, LOOK));
    }

    fn exit_status(&self) -> Option<i32> {
        let mut state = self.shared.state();
        state.status_requested = true;
        state.status = None;
        self.shared.room.notify_one();
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            if let Some(status) = state.status {
                return status;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if state.gone || left.is_zero() {
                return None;
            }
            state = self
                .shared
                .filled
                .wait_timeout(state, left)
                .unwrap_or_else(|e| e.into_inner())
                .0;
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.shared.state().closing = true;
        self.shared.room.notify_all();
        if let Some(reader) = self.reader.take() {
            // The thread has printed its panic; nothing is left to report.
            drop(reader.join());
        }
    }
}
