//! One program, many machines: each batch is made once and lent to every
//! design, which goes through the streams at its own speed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use pagewalk_stream::{Batch, End, Event, Program, ProgramError, ThreadId, Unseen};

use crate::plan::Needs;
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

/// What wakes the workers of a run: one for all its programs.
#[derive(Default)]
pub(crate) struct Changes {
    /// How many there were, and how many workers sleep: to wake nobody is a system call,
    /// too, and a program that asks makes a batch for each question.
    state: Mutex<(u64, u32)>,
    changed: Condvar,
}

impl Changes {
    /// Number of changes so far, for [`Changes::wait`].
    pub(crate) fn version(&self) -> u64 {
        lock(&self.state).0
    }

    /// Tells sleeping workers that something has changed.
    pub(crate) fn tell(&self) {
        let mut state = lock(&self.state);
        state.0 += 1;
        let sleep = state.1 > 0;
        drop(state);
        if sleep {
            self.changed.notify_all();
        }
    }

    /// Sleeps until the version is not `seen`, at most a tenth of a second.
    pub(crate) fn wait(&self, seen: u64) {
        let mut state = lock(&self.state);
        if state.0 == seen {
            state.1 += 1;
            let tenth = Duration::from_millis(100);
            let woken = self.changed.wait_timeout(state, tenth);
            woken.unwrap_or_else(PoisonError::into_inner).0.1 -= 1;
        }
    }
}

pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Threads that a program may make. A recording that names more is damaged.
const MOST_THREADS: ThreadId = 1 << 20;

/// Batches that a machine may be ahead of the slowest one, for each thread.
const WINDOW: u64 = 64;
/// Batches that are made before a machine asks for them, where they can be.
const SOON: u64 = 8;

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
    error: Option<ProgramError>,
}

impl Queue {
    /// Number of the item after the last one kept.
    fn end(&self) -> u64 {
        self.base + self.items.len() as u64
    }

    /// Drops what every machine has taken or will never take. The batch itself
    /// lives on in the machine that runs it; it comes back through [`Hub::recycle`].
    fn trim(&mut self) {
        let end = self.end();
        let slowest = self.next.iter().copied().min().unwrap_or(end).min(end);
        self.items.drain(..(slowest - self.base) as usize);
        self.base = slowest;
    }

    /// `machine` takes nothing more from it; whether none does.
    fn leave(&mut self, machine: usize) -> bool {
        self.next[machine] = u64::MAX;
        self.trim();
        self.is_over()
    }

    /// Whether no machine takes anything from it any more.
    fn is_over(&self) -> bool {
        self.ended && self.items.is_empty() || self.next.iter().all(|n| *n == u64::MAX)
    }
}

struct State {
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

impl State {
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

    /// What there is for `machine` without the program, if anything.
    fn buffered(
        &mut self,
        machine: usize,
        thread: ThreadId,
    ) -> Option<Result<Supply, ProgramError>> {
        let slowest = self.progress.iter().copied().min().unwrap_or(0);
        let may_exceed = self.progress[machine] <= slowest;
        self.make_room(thread);
        let Some(queue) = self.threads.get_mut(&thread) else {
            // Every machine has taken its end.
            return Some(Ok(Supply::Empty));
        };
        let at = queue.next[machine];
        if at < queue.end() {
            let item = queue.items[(at - queue.base) as usize].clone();
            queue.next[machine] = at + 1;
            self.progress[machine] += item.instructions.max(1);
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

    /// Whether `machine` will soon have taken all that there is of `thread`, the only one, which goes on
    /// from where it is: what it needs then says nothing of what comes after an event.
    fn is_short(&self, machine: usize, thread: ThreadId) -> bool {
        let Some(queue) = self.threads.get(&thread) else {
            return false;
        };
        let few = queue.next[machine].saturating_add(SOON) > queue.end();
        let room = (queue.items.len() as u64) < WINDOW;
        self.made == 1
            && few
            && queue.next[machine] > queue.goes_on_from
            && room
            && queue.error.is_none()
    }

    /// Takes over what the program gave for `thread`; whether that was anything.
    fn add(&mut self, thread: ThreadId, batch: Batch, end: End, passes: Passes) -> bool {
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
            requests: passes.requests(&batch),
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

/// Whether a program may pass over what all its machines skip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Passes {
    /// They need every access of it.
    Never,
    /// What is skipped is told in instructions.
    ByInstructions,
    /// It is told in requests.
    ByRequests,
}

impl Passes {
    /// Requests that end in `batch`, counted only where they matter.
    fn requests(self, batch: &Batch) -> u64 {
        match self {
            Passes::ByRequests => batch.requests(),
            Passes::Never | Passes::ByInstructions => 0,
        }
    }
}

/// The shared end of a program.
pub(crate) struct Hub {
    state: Mutex<State>,
    /// Held while it makes a batch or is waited for, and taken before `state`
    /// where both are: what is buffered is there for the others meanwhile.
    program: Mutex<Box<dyn Program>>,
    changes: Arc<Changes>,
    /// The only machine answers what the program asks.
    answers: bool,
    /// Whether the program may pass over what no machine looks at.
    passes: Passes,
    /// Batches may be made before a machine asks for them: there are several machines, and each
    /// batch is there at once.
    ahead: bool,
}

impl Hub {
    /// A hub that feeds `machines` machines; `answers`: what the program asks is
    /// answered by its only machine, through [`Hub::answer`]. All machines skip the same.
    pub(crate) fn new(
        program: Box<dyn Program>,
        machines: usize,
        (answers, passes): (bool, Passes),
        changes: Arc<Changes>,
    ) -> Self {
        debug_assert!(!answers || machines == 1);
        let ahead = machines > 1 && program.facts().deterministic;
        let queue = Queue {
            next: vec![0; machines],
            ..Queue::default()
        };
        Hub {
            program: Mutex::new(program),
            state: Mutex::new(State {
                threads: BTreeMap::from([(0, queue)]),
                made: 1,
                progress: vec![0; machines],
                pool: Vec::new(),
                work: Work::default(),
                unseen: Vec::new(),
            }),
            changes,
            answers,
            passes,
            ahead,
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

    /// The next item of `thread` for `machine`, which needs no more of it than is said until so
    /// much work is done since the program began.
    ///
    /// # Errors
    /// The program cannot go on; every machine that reaches this place is told.
    pub(crate) fn next(
        &self,
        machine: usize,
        thread: ThreadId,
        (needs, until): (Needs, Work),
    ) -> Result<Supply, ProgramError> {
        let mut state = lock(&self.state);
        if let Some(supply) = state.buffered(machine, thread) {
            let short = self.ahead && state.is_short(machine, thread);
            drop(state);
            if short {
                self.make_ahead(machine, thread, (needs, until));
            }
            return supply;
        }
        let alone = state.made == 1;
        drop(state);
        let Some(mut program) = self.free_program(alone) else {
            // Whoever makes a batch tells when it is there.
            return Ok(Supply::Ahead);
        };
        let mut state = lock(&self.state);
        // Whoever had the program may have made what is asked for.
        if let Some(supply) = state.buffered(machine, thread) {
            return supply;
        }
        let (batch, passed) = self.begin(&mut state, (needs, until));
        drop(state);
        if !self.make(&mut **program, thread, batch, (needs, passed)) {
            return Ok(Supply::Empty);
        }
        drop(program);
        let supply = lock(&self.state).buffered(machine, thread);
        self.changes.tell();
        supply.unwrap_or(Ok(Supply::Empty))
    }

    /// The program; where batches are made ahead of its `alone` thread, nothing while one is being made.
    /// Of several threads another would go on meanwhile, and results depend on who is first.
    fn free_program(&self, alone: bool) -> Option<MutexGuard<'_, Box<dyn Program>>> {
        if !self.ahead || !alone {
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
    fn make_ahead(&self, machine: usize, thread: ThreadId, (needs, until): (Needs, Work)) {
        let Ok(mut program) = self.program.try_lock() else {
            return;
        };
        loop {
            let mut state = lock(&self.state);
            let needed = Work::default().is_within(until.less(state.work));
            if !needed || !state.is_short(machine, thread) {
                return;
            }
            let (batch, passed) = self.begin(&mut state, (needs, until));
            drop(state);
            if !self.make(&mut **program, thread, batch, (needs, passed)) {
                return;
            }
            self.changes.tell();
        }
    }

    /// An empty batch, and how much of it may be passed over.
    fn begin(&self, state: &mut State, (needs, until): (Needs, Work)) -> (Batch, Work) {
        let mut passed = Work::default();
        // With several threads it depends on the machine which of them comes to the end of
        // what is skipped, and where.
        if self.passes != Passes::Never && state.made == 1 && needs != Needs::Ops {
            passed = until.less(state.work);
        }
        (state.pool.pop().unwrap_or_default(), passed)
    }

    /// Has `program` fill `batch`, of which no more than is said is needed up to so much work;
    /// whether there is anything.
    fn make(
        &self,
        program: &mut dyn Program,
        thread: ThreadId,
        mut batch: Batch,
        (needs, passed): (Needs, Work),
    ) -> bool {
        match needs {
            _ if self.passes == Passes::Never => {}
            Needs::Lines => program.follow(passed.instructions, passed.requests),
            Needs::Pages | Needs::Ops => program.pass(passed.instructions, passed.requests),
        }
        let made = program.fill(thread, &mut batch).and_then(plausible);
        if matches!(made, Ok(End::Ask(_))) && !self.answers {
            program.answer(thread, None);
        }
        let mut state = lock(&self.state);
        match made {
            Ok(end) => state.add(thread, batch, end, self.passes),
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
    pub(crate) fn answer(&self, thread: ThreadId, reply: Option<u64>) {
        if self.answers {
            lock(&self.program).answer(thread, reply);
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

    /// `machine` wants nothing more of `thread`, whose process has ended. When none does,
    /// the program is told.
    pub(crate) fn gone(&self, machine: usize, thread: ThreadId) {
        let mut state = lock(&self.state);
        let Some(queue) = state.threads.get_mut(&thread) else {
            return;
        };
        queue.gone = true;
        if !queue.leave(machine) {
            return;
        }
        state.threads.remove(&thread);
        drop(state);
        lock(&self.program).gone(thread);
    }

    /// `machine` wants nothing more: the others need not wait for it. It may have been the last one
    /// that had not heard of a process's end: the program is told.
    pub(crate) fn finish(&self, machine: usize) {
        let mut state = lock(&self.state);
        state.progress[machine] = u64::MAX;
        let mut gone = Vec::new();
        state.threads.retain(|&thread, queue| {
            let over = queue.leave(machine);
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
        self.changes.tell();
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
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use pagewalk_stream::{
        Ask, Batch, End, Event, Facts, Kind, Op, Program, ProgramError, ThreadId,
    };

    use super::{Changes, Hub, Needs, Passes, SOON, Supply, WINDOW, Work, lock};

    /// A machine that needs all of its program.
    const ALL: (Needs, Work) = (
        Needs::Ops,
        Work {
            instructions: u64::MAX,
            requests: u64::MAX,
        },
    );

    fn hub(program: impl Program + 'static, machines: usize) -> Hub {
        Hub::new(
            Box::new(program),
            machines,
            (false, Passes::Never),
            Arc::default(),
        )
    }

    /// The unfinished machine that has come least far.
    fn slowest(hub: &Hub) -> usize {
        let progress = hub.progress();
        let unfinished = (0..progress.len()).filter(|&m| progress[m].is_some());
        unfinished.min_by_key(|&m| progress[m]).unwrap()
    }

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
            match hub.next(machine, thread, ALL).unwrap() {
                Supply::Item(item) => {
                    assert_eq!(item.instructions, item.batch.instructions());
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
        let hub = hub(
            Counting {
                left: vec![10, 10],
                made: vec![0, 0],
            },
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
        let hub = hub(
            Counting {
                left: vec![1000],
                made: vec![0],
            },
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

    /// What a machine still skips before an event says nothing of what comes after it.
    #[test]
    fn who_is_before_an_event_has_nothing_made_ahead() {
        /// Counts its batches, of which the third ends with an event, and what it might pass over.
        struct Told(Counting, Arc<Mutex<(u64, u64)>>);
        impl Program for Told {
            fn facts(&self) -> Facts {
                self.0.facts()
            }
            fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, ProgramError> {
                let mut told = lock(&self.1);
                told.0 += 1;
                let end = self.0.fill(thread, batch)?;
                let event = Event::RoiBegin;
                Ok(match told.0 {
                    3 => End::Event { event, ticket: 0 },
                    _ => end,
                })
            }
            fn pass(&mut self, instructions: u64, _: u64) {
                lock(&self.1).1 += instructions;
            }
        }
        let told = Arc::new(Mutex::new((0, 0)));
        let counting = Counting {
            left: vec![1000],
            made: vec![0],
        };
        let program = Told(counting, Arc::clone(&told));
        let hub = Hub::new(
            Box::new(program),
            2,
            (false, Passes::ByInstructions),
            Arc::default(),
        );
        let skips = (Needs::Pages, Work::instructions(1_000_000));
        let take = |machine, needs| {
            let supply = hub.next(machine, 0, needs);
            assert!(matches!(supply, Ok(Supply::Item(_))));
            *lock(&told)
        };
        assert_eq!(take(0, ALL), (1, 0), "nothing was there");
        for made in 2..=5 {
            assert_eq!(take(0, ALL), (made, 0));
        }
        for _ in 0..3 {
            assert_eq!(take(1, skips), (5, 0));
        }
        // Behind the event it has more made, which it skips.
        let (made, passed) = take(1, skips);
        assert_eq!((made, passed > 0), (4 + SOON, true));
    }

    #[test]
    fn machines_ahead_on_different_threads_do_not_starve_each_other() {
        let hub = hub(
            Counting {
                left: vec![1000, 1000],
                made: vec![0, 0],
            },
            2,
        );
        drain(&hub, 0, 0, 1000);
        drain(&hub, 1, 1, 1000);
        // Each is ahead on one thread. Taking turns by least progress, both finish the other.
        let mut done = [0, 0];
        for _ in 0..100_000 {
            let m = slowest(&hub);
            let other = 1 - m as u32;
            match hub.next(m, other, ALL).unwrap() {
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
        let hub = hub(program, 2);
        let item = |supply| matches!(supply, Ok(Supply::Item(_)));
        assert!(item(hub.next(0, 0, ALL)));
        assert!(matches!(hub.next(0, 0, ALL), Ok(Supply::Empty)));
        std::thread::scope(|s| {
            s.spawn(|| hub.wait_for_program());
            waiting.recv().unwrap();
            // Buffered: at once, though the other one waits.
            assert!(item(hub.next(1, 0, ALL)));
            // Not made yet: once the other one has stopped waiting.
            let asks = s.spawn(|| item(hub.next(1, 0, ALL)));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!asks.is_finished());
            go.send(()).unwrap();
            assert!(asks.join().unwrap());
        });
    }

    #[test]
    fn who_makes_a_batch_holds_up_nobody_for_whom_one_is_there() {
        use std::sync::mpsc::{Receiver, Sender, channel};

        /// Two batches at once, the third when it is told to.
        struct Slow {
            given: u32,
            makes: Sender<()>,
            go_on: Receiver<()>,
        }
        impl Program for Slow {
            fn facts(&self) -> Facts {
                Facts::default()
            }
            fn fill(&mut self, _: ThreadId, batch: &mut Batch) -> Result<End, ProgramError> {
                batch.ops.clear();
                self.given += 1;
                if self.given == 3 {
                    self.makes.send(()).unwrap();
                    self.go_on.recv().unwrap();
                }
                batch.ops.push(Op::default());
                Ok(End::More)
            }
        }
        let ((makes, making), (go, go_on)) = (channel(), channel());
        let program = Slow {
            given: 0,
            makes,
            go_on,
        };
        let hub = hub(program, 2);
        let item = |supply| matches!(supply, Ok(Supply::Item(_)));
        assert!(item(hub.next(0, 0, ALL)) && item(hub.next(0, 0, ALL)));
        std::thread::scope(|s| {
            let first = s.spawn(|| item(hub.next(0, 0, ALL)));
            making.recv().unwrap();
            let second = s.spawn(|| item(hub.next(1, 0, ALL)) && item(hub.next(1, 0, ALL)));
            for _ in 0..6000 {
                if second.is_finished() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let waited = !second.is_finished();
            go.send(()).unwrap();
            assert!(first.join().unwrap() && second.join().unwrap());
            assert!(!waited, "waited for the batch of another");
        });
    }

    #[test]
    fn a_finished_machine_holds_nobody_up() {
        let hub = hub(
            Counting {
                left: vec![1000],
                made: vec![0],
            },
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
        let hub = hub(
            Counting {
                left: vec![1, 1000],
                made: vec![0, 0],
            },
            3,
        );
        hub.finish(2);
        let (seen, _) = drain(&hub, 0, 1, 40);
        assert_eq!(seen.len(), 160);
        let (seen, _) = drain(&hub, 1, 1, 40);
        assert_eq!(seen.len(), 160);
        assert!(
            lock(&hub.state).threads[&1].items.is_empty(),
            "items are kept"
        );
    }

    /// Every thread starts the next one and ends.
    #[derive(Clone, Default)]
    struct Chain {
        started: Arc<Mutex<Vec<ThreadId>>>,
        gone: Arc<Mutex<Vec<ThreadId>>>,
    }

    impl Program for Chain {
        fn facts(&self) -> Facts {
            Facts::default()
        }
        fn fill(&mut self, me: ThreadId, batch: &mut Batch) -> Result<End, ProgramError> {
            batch.ops.clear();
            let mut started = self.started.lock().unwrap();
            if started.contains(&me) {
                return Ok(End::Exit);
            }
            started.push(me);
            let event = Event::Spawn { thread: me + 1 };
            Ok(End::Event { event, ticket: 0 })
        }
        fn gone(&mut self, thread: ThreadId) {
            self.gone.lock().unwrap().push(thread);
        }
    }

    #[test]
    fn a_thread_that_has_ended_or_is_gone_leaves_no_queue() {
        let program = Chain::default();
        let hub = hub(program.clone(), 2);
        let item = |supply| matches!(supply, Ok(Supply::Item(_)));
        for thread in 0..100 {
            for machine in [0, 1] {
                assert!(item(hub.next(machine, thread, ALL)));
                // Its process ends every third one.
                if thread % 3 == 0 {
                    hub.gone(machine, thread);
                } else {
                    assert!(item(hub.next(machine, thread, ALL)));
                }
            }
            let kept: Vec<ThreadId> = lock(&hub.state).threads.keys().copied().collect();
            assert_eq!(kept, [thread + 1]);
        }
        assert!(
            program
                .gone
                .lock()
                .unwrap()
                .iter()
                .copied()
                .eq((0..100).step_by(3))
        );
    }

    #[test]
    fn a_machine_that_ends_first_leaves_no_queue_of_threads_that_the_others_are_done_with() {
        let program = Chain::default();
        let hub = hub(program.clone(), 2);
        let item = |supply| matches!(supply, Ok(Supply::Item(_)));
        for thread in 0..30 {
            assert!(item(hub.next(1, thread, ALL)));
            if thread % 3 == 0 {
                hub.gone(1, thread);
            } else {
                assert!(item(hub.next(1, thread, ALL)));
            }
            // The other comes less far.
            assert!(thread > 10 || item(hub.next(0, thread, ALL)));
        }
        let kept = || lock(&hub.state).threads.keys().copied().collect::<Vec<_>>();
        assert_eq!(kept(), (0..=30).collect::<Vec<_>>());
        hub.finish(0);
        assert_eq!(kept(), [30], "the thread that goes on");
        let told = || lock(&program.gone).clone();
        let ended: Vec<ThreadId> = (0..30).step_by(3).collect();
        assert_eq!(told(), ended, "their processes have ended");
        // The end of the run is no process's.
        hub.finish(1);
        assert_eq!((kept(), told()), (vec![], ended));
    }

    /// Asks in each batch, and tells what it was answered in the pc of the next op.
    #[derive(Clone, Default)]
    struct Asking {
        answered: Arc<Mutex<Vec<Option<u64>>>>,
    }

    impl Program for Asking {
        fn facts(&self) -> Facts {
            Facts::default()
        }
        fn fill(&mut self, _: ThreadId, batch: &mut Batch) -> Result<End, ProgramError> {
            batch.ops.clear();
            let asked = lock(&self.answered).len() as u64;
            batch.ops.push(Op {
                insns: 1,
                kind: Kind::Ask,
                ..Op::default()
            });
            Ok(End::Ask(Ask::LoadVa { integer: asked }))
        }
        fn answer(&mut self, _: ThreadId, reply: Option<u64>) {
            lock(&self.answered).push(reply);
        }
    }

    #[test]
    fn who_asks_where_no_machine_answers_is_told_so_once_a_question() {
        let program = Asking::default();
        let hub = hub(program.clone(), 2);
        for machine in [0, 1] {
            for integer in 0..3 {
                let Ok(Supply::Item(item)) = hub.next(machine, 0, ALL) else {
                    panic!("no item")
                };
                assert_eq!(item.end, End::Ask(Ask::LoadVa { integer }));
                hub.answer(0, Some(7));
            }
        }
        assert_eq!(*lock(&program.answered), [None, None, None]);
    }

    #[test]
    fn the_only_machine_answers() {
        let program = Asking::default();
        let hub = Hub::new(
            Box::new(program.clone()),
            1,
            (true, Passes::Never),
            Arc::new(Changes::default()),
        );
        for reply in [Some(5), Some(0)] {
            assert!(matches!(hub.next(0, 0, ALL), Ok(Supply::Item(_))));
            hub.answer(0, reply);
        }
        assert_eq!(*lock(&program.answered), [Some(5), Some(0)]);
    }
}
