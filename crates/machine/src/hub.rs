//! One program, many machines: each batch is made once and lent to every
//! design, which goes through the streams at its own speed.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use pagewalk_stream::{Batch, End, Event, Program, ProgramError, ThreadId};

/// A batch and why it ended.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Ops; may be empty.
    pub(crate) batch: Arc<Batch>,
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
    /// This machine is as far ahead of the slowest as it may be; let that one run.
    Ahead,
}

/// Threads that a program may make. A recording that names more is damaged.
const MOST_THREADS: ThreadId = 1 << 20;

/// Batches that a machine may be ahead of the slowest one, for each thread.
const WINDOW: u64 = 64;

#[derive(Default)]
struct Queue {
    /// Number of the first item kept.
    base: u64,
    items: VecDeque<Item>,
    /// Next item of each machine.
    next: Vec<u64>,
    /// The last item said that the thread waits for something outside.
    blocked: bool,
    /// Why there is nothing after the last item. Other threads go on, so that
    /// every machine comes as far as it would alone.
    error: Option<ProgramError>,
}

struct State {
    threads: Vec<Queue>,
    /// Instructions handed to each machine; `u64::MAX` once it has finished.
    progress: Vec<u64>,
    pool: Vec<Batch>,
    /// Machines that have fallen asleep wait for a change of this.
    version: u64,
}

impl State {
    /// Makes a queue for each thread up to `thread`. Machines that have finished
    /// never take anything from a new one either.
    fn make_room(&mut self, thread: ThreadId) {
        while self.threads.len() <= thread as usize {
            let finished = |&p: &u64| if p == u64::MAX { u64::MAX } else { 0 };
            self.threads.push(Queue {
                next: self.progress.iter().map(finished).collect(),
                ..Queue::default()
            });
        }
    }
}

/// Refuses a thread whose number only damage can explain.
fn plausible(end: End) -> Result<End, ProgramError> {
    match &end {
        End::Event {
            event: Event::Spawn { thread } | Event::Fork { thread, .. },
            ..
        } if *thread >= MOST_THREADS => Err(ProgramError {
            message: format!(
                "the program starts a thread of number {thread}; expected a number below {MOST_THREADS}: the recording is damaged"
            ),
        }),
        _ => Ok(end),
    }
}

/// The shared end of a program.
pub(crate) struct Hub {
    state: Mutex<State>,
    /// Locked for long only by who waits for it, and then without `state`: what is
    /// buffered is there for the others. Who holds `state` only tries.
    program: Mutex<Box<dyn Program>>,
    changed: Condvar,
    machines: usize,
}

impl Hub {
    /// A hub that feeds `machines` machines.
    pub(crate) fn new(program: Box<dyn Program>, machines: usize) -> Self {
        let queue = Queue {
            next: vec![0; machines],
            ..Queue::default()
        };
        Hub {
            program: Mutex::new(program),
            state: Mutex::new(State {
                threads: vec![queue],
                progress: vec![0; machines],
                pool: Vec::new(),
                version: 0,
            }),
            changed: Condvar::new(),
            machines,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn program(&self) -> MutexGuard<'_, Box<dyn Program>> {
        self.program
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The program's exit status, when it has one.
    pub(crate) fn exit_status(&self) -> Option<i32> {
        self.program().exit_status()
    }

    /// The next item of `thread` for `machine`.
    ///
    /// # Errors
    /// The program cannot go on; every machine that reaches this place is told.
    pub(crate) fn next(&self, machine: usize, thread: ThreadId) -> Result<Supply, ProgramError> {
        loop {
            if let Some(supply) = self.try_next(machine, thread) {
                return supply;
            }
            // Somebody waits for the program, and may find what is asked for.
            drop(self.program());
        }
    }

    /// [`Hub::next`], or `None` if the program is in use.
    fn try_next(&self, machine: usize, thread: ThreadId) -> Option<Result<Supply, ProgramError>> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let slowest = state.progress.iter().copied().min().unwrap_or(0);
        let may_exceed = state.progress[machine] <= slowest;
        state.make_room(thread);
        let queue = &mut state.threads[thread as usize];
        let at = queue.next[machine];
        let end = queue.base + queue.items.len() as u64;
        if at == end {
            if queue.items.len() as u64 >= WINDOW && !may_exceed {
                return Some(Ok(Supply::Ahead));
            }
            if let Some(e) = &queue.error {
                return Some(Err(e.clone()));
            }
            let mut program = match self.program.try_lock() {
                Ok(program) => program,
                Err(TryLockError::Poisoned(program)) => program.into_inner(),
                Err(TryLockError::WouldBlock) => return None,
            };
            let mut batch = state.pool.pop().unwrap_or_default();
            let end = match program.fill(thread, &mut batch).and_then(plausible) {
                Ok(end) => end,
                Err(e) => {
                    state.threads[thread as usize].error = Some(e.clone());
                    return Some(Err(e));
                }
            };
            drop(program);
            // A blocked thread is asked again and again; what it says first counts.
            let still_blocked = end == End::Blocked && state.threads[thread as usize].blocked;
            if batch.ops.is_empty() && (end == End::Empty || still_blocked) {
                state.pool.push(batch);
                return Some(Ok(Supply::Empty));
            }
            let end = if end == End::Empty { End::More } else { end };
            if let End::Event {
                event: Event::Spawn { thread } | Event::Fork { thread, .. },
                ..
            } = &end
            {
                state.make_room(*thread);
            }
            let queue = &mut state.threads[thread as usize];
            queue.blocked = end == End::Blocked;
            queue.items.push_back(Item {
                batch: Arc::new(batch),
                end,
            });
            state.version += 1;
            self.changed.notify_all();
        }
        let queue = &mut state.threads[thread as usize];
        let item = queue.items[(at - queue.base) as usize].clone();
        queue.next[machine] = at + 1;
        state.progress[machine] += item.batch.instructions().max(1);
        Self::trim(state, thread as usize);
        Some(Ok(Supply::Item(item)))
    }

    /// Drops what every machine has taken. The batch itself lives on in the
    /// machine that runs it; it comes back through [`Hub::recycle`].
    fn trim(state: &mut State, thread: usize) {
        let queue = &mut state.threads[thread];
        let slowest = queue.next.iter().copied().min().unwrap_or(0);
        while queue.base < slowest {
            queue.items.pop_front();
            queue.base += 1;
        }
    }

    /// A machine gives back an item that it has finished with.
    pub(crate) fn recycle(&self, item: Item) {
        if let Ok(batch) = Arc::try_unwrap(item.batch) {
            let mut state = self.lock();
            if state.pool.len() < 256 {
                state.pool.push(batch);
            }
        }
    }

    /// `machine` wants nothing more: the others need not wait for it.
    pub(crate) fn finish(&self, machine: usize) {
        let mut state = self.lock();
        state.progress[machine] = u64::MAX;
        for thread in 0..state.threads.len() {
            state.threads[thread].next[machine] = u64::MAX;
            Self::trim_finished(&mut state, thread);
        }
        state.version += 1;
        self.changed.notify_all();
    }

    fn trim_finished(state: &mut State, thread: usize) {
        let queue = &mut state.threads[thread];
        let end = queue.base + queue.items.len() as u64;
        let slowest = queue.next.iter().copied().min().unwrap_or(end).min(end);
        while queue.base < slowest {
            queue.items.pop_front();
            queue.base += 1;
        }
    }

    /// The unfinished machine that has come least far, among those for which
    /// `free` holds.
    pub(crate) fn slowest(&self, free: impl Fn(usize) -> bool) -> Option<usize> {
        let state = self.lock();
        (0..self.machines)
            .filter(|&m| state.progress[m] != u64::MAX && free(m))
            .min_by_key(|&m| state.progress[m])
    }

    /// Number of changes so far, for [`Hub::wait_for_change`].
    pub(crate) fn version(&self) -> u64 {
        self.lock().version
    }

    /// Tells sleeping workers that something has changed.
    pub(crate) fn touch(&self) {
        self.lock().version += 1;
        self.changed.notify_all();
    }

    /// Sleeps until the version is not `seen`, at most a tenth of a second.
    pub(crate) fn wait_for_change(&self, seen: u64) {
        let state = self.lock();
        if state.version == seen {
            drop(self.changed.wait_timeout(state, Duration::from_millis(100)));
        }
    }

    /// Waits until the live program has something new.
    pub(crate) fn wait_for_program(&self) {
        self.program().wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewalk_stream::{Facts, Op};

    /// Threads that count: op i of thread t has pc = t << 32 | i.
    struct Counting {
        left: Vec<u64>,
        made: Vec<u64>,
    }

    impl Program for Counting {
        fn facts(&self) -> Facts {
            Facts {
                deterministic: true,
                ..Facts::default()
            }
        }
        fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, ProgramError> {
            batch.ops.clear();
            let t = thread as usize;
            if self.left[t] == 0 {
                return Ok(End::Exit);
            }
            self.left[t] -= 1;
            for _ in 0..4 {
                batch.ops.push(Op {
                    pc: u64::from(thread) << 32 | self.made[t],
                    insns: 1,
                    ..Op::default()
                });
                self.made[t] += 1;
            }
            Ok(End::More)
        }
    }

    fn drain(hub: &Hub, machine: usize, thread: ThreadId, n: usize) -> (Vec<u64>, Option<Supply>) {
        let mut seen = vec![];
        for _ in 0..n {
            match hub.next(machine, thread).unwrap() {
                Supply::Item(item) => {
                    seen.extend(item.batch.ops.iter().map(|o| o.pc));
                    hub.recycle(item);
                }
                other => return (seen, Some(other)),
            }
        }
        (seen, None)
    }

    #[test]
    fn every_machine_sees_every_op_of_every_thread_in_order() {
        let hub = Hub::new(
            Box::new(Counting {
                left: vec![10, 10],
                made: vec![0, 0],
            }),
            3,
        );
        for machine in [2, 0, 1] {
            for thread in [1, 0] {
                let (seen, _) = drain(&hub, machine, thread, 10);
                assert_eq!(
                    seen,
                    (0..40)
                        .map(|i| u64::from(thread) << 32 | i)
                        .collect::<Vec<_>>()
                );
            }
        }
    }

    #[test]
    fn a_machine_may_run_ahead_by_the_window_and_no_more() {
        let hub = Hub::new(
            Box::new(Counting {
                left: vec![1000],
                made: vec![0],
            }),
            2,
        );
        let (_, stop) = drain(&hub, 0, 0, 1000);
        assert!(matches!(stop, Some(Supply::Ahead)));
        let (seen, _) = drain(&hub, 1, 0, 10);
        assert_eq!(seen.len(), 40);
        let (more, stop) = drain(&hub, 0, 0, 1000);
        assert_eq!(more.len(), 40);
        assert!(matches!(stop, Some(Supply::Ahead)));
    }

    #[test]
    fn machines_ahead_on_different_threads_do_not_starve_each_other() {
        let hub = Hub::new(
            Box::new(Counting {
                left: vec![1000, 1000],
                made: vec![0, 0],
            }),
            2,
        );
        drain(&hub, 0, 0, 1000);
        drain(&hub, 1, 1, 1000);
        // Each is ahead on one thread. Taking turns by least progress, both finish the other.
        let mut done = [0, 0];
        for _ in 0..100_000 {
            let m = hub.slowest(|_| true).unwrap();
            let other = 1 - m as u32;
            match hub.next(m, other).unwrap() {
                Supply::Item(item) => done[m] += item.batch.ops.len(),
                Supply::Ahead => panic!("the slowest is never told that it is ahead"),
                Supply::Empty => unreachable!(),
            }
            if done[0] >= 4000 && done[1] >= 4000 {
                return;
            }
        }
        panic!("no end: {done:?}");
    }

    #[test]
    fn who_waits_for_the_program_holds_nobody_up() {
        use std::sync::mpsc::{Receiver, Sender, channel};

        /// A batch, then nothing until it is told to go on.
        struct Live {
            given: u32,
            waits: Sender<()>,
            go_on: Receiver<()>,
        }
        impl Program for Live {
            fn facts(&self) -> Facts {
                Facts::default()
            }
            fn fill(&mut self, _: ThreadId, batch: &mut Batch) -> Result<End, ProgramError> {
                batch.ops.clear();
                self.given += 1;
                match self.given {
                    1 | 3 => batch.ops.push(Op {
                        insns: 1,
                        ..Op::default()
                    }),
                    2 => return Ok(End::Empty),
                    _ => return Ok(End::Exit),
                }
                Ok(End::More)
            }
            fn wait(&mut self) {
                self.waits.send(()).unwrap();
                self.go_on.recv().unwrap();
            }
        }
        let ((waits, waiting), (go, go_on)) = (channel(), channel());
        let program = Live {
            given: 0,
            waits,
            go_on,
        };
        let hub = Hub::new(Box::new(program), 2);
        let item = |supply| matches!(supply, Ok(Supply::Item(_)));
        assert!(item(hub.next(0, 0)));
        assert!(matches!(hub.next(0, 0), Ok(Supply::Empty)));
        std::thread::scope(|s| {
            s.spawn(|| hub.wait_for_program());
            waiting.recv().unwrap();
            // Buffered: at once, though the other one waits.
            assert!(item(hub.next(1, 0)));
            // Not made yet: once the other one has stopped waiting.
            let asks = s.spawn(|| item(hub.next(1, 0)));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!asks.is_finished());
            go.send(()).unwrap();
            assert!(asks.join().unwrap());
        });
    }

    #[test]
    fn a_finished_machine_holds_nobody_up() {
        let hub = Hub::new(
            Box::new(Counting {
                left: vec![1000],
                made: vec![0],
            }),
            2,
        );
        drain(&hub, 0, 0, 1000);
        hub.finish(1);
        let (seen, stop) = drain(&hub, 0, 0, 2000);
        assert!(
            stop.is_none() || !matches!(stop, Some(Supply::Ahead)),
            "{stop:?}"
        );
        assert!(seen.len() as u64 >= 4 * (1000 - WINDOW) - 8);
    }

    #[test]
    fn a_finished_machine_holds_up_no_thread_that_starts_later() {
        let hub = Hub::new(
            Box::new(Counting {
                left: vec![1, 1000],
                made: vec![0, 0],
            }),
            3,
        );
        hub.finish(2);
        let (seen, _) = drain(&hub, 0, 1, 40);
        assert_eq!(seen.len(), 160);
        let (seen, _) = drain(&hub, 1, 1, 40);
        assert_eq!(seen.len(), 160);
        assert!(hub.lock().threads[1].items.is_empty(), "items are kept");
    }
}
