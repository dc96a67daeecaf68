//! A [`Program`] from the code of its threads.
//!
//! Threads share the algorithm's state, so the work of one depends on the progress of the others. Each
//! thread's ops must not depend on the order in which a machine requests them. The code therefore runs in a
//! fixed order: threads take turns of a full batch, or up to a barrier. Batches of a thread that no machine
//! has requested yet are queued here. A thread that queries the machine's shortcut ([`Thread::shortcut_query`]) leaves
//! that order until the result arrives: its further work depends on the machine anyway.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use pagewalk_stream::{
    BATCH_OPS, Batch, End, Error, Event, Facts, FastForwardBudget, Program, ThreadId,
};

use crate::heap::Heap;
use crate::thread::{Link, SharedLink, Start, Thread, Touch};

/// Emptied batches kept for reuse.
const SPARE: usize = 8;

/// One of several threads over memory that the first of them initialises.
pub trait Member: Send + 'static {
    /// Initialises memory outside the heap. The first thread calls it, after the heap's own initialisation.
    fn initialise(&self, _t: &mut Thread) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The region of interest.
    fn run(self, t: &mut Thread) -> impl Future<Output = ()> + Send;
}

/// A program that runs the code of its threads (see the module).
pub struct Code {
    facts: Facts,
    start: Start,
    /// Bytes that remain to be initialised in bulk, shared by all [`Thread`]s.
    bulk: Arc<AtomicU64>,
    threads: Vec<ThreadSlot>,
    /// The thread that runs next.
    turn: usize,
    spare: Vec<Batch>,
    /// Fast-forward budget.
    budget: Arc<FastForwardBudget>,
}

struct ThreadSlot {
    /// `None` after the thread has ended.
    code: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    link: SharedLink,
    /// Batches not yet requested.
    ready: VecDeque<Segment>,
    /// True after the event `Spawn` of this thread.
    started: bool,
    /// Highest barrier it has reached. With `waits`, it waits there.
    barrier: u64,
    waits: bool,
    /// True while a shortcut query is unanswered.
    has_query: bool,
}

struct Segment {
    batch: Batch,
    /// Ops already delivered, after those skipped.
    given: usize,
    end: End,
}

impl Code {
    /// A program without threads so far. `start` says how its memory is initialised.
    pub fn new(facts: Facts, start: impl Into<Start>) -> Self {
        let start = start.into();
        let bulk = match start.touch {
            Touch::Part(bytes) => bytes,
            _ => 0,
        };
        Code {
            facts,
            start,
            bulk: Arc::new(AtomicU64::new(bulk)),
            threads: Vec::new(),
            turn: 0,
            spare: Vec::new(),
            budget: Arc::default(),
        }
    }

    /// Adds a thread whose stack begins at `stack`. The first thread runs from the start and has to
    /// [`Spawn`](pagewalk_stream::Event::Spawn) the others.
    pub fn thread<F, R>(&mut self, stack: u64, code: F)
    where
        F: FnOnce(Thread) -> R,
        R: Future<Output = ()> + Send + 'static,
    {
        let link = Arc::new(Mutex::new(Link::default()));
        let first = self.threads.is_empty();
        let (bulk, budget) = (self.bulk.clone(), self.budget.clone());
        let thread = Thread::new(link.clone(), stack, self.start, bulk, budget, first);
        self.threads.push(ThreadSlot {
            code: Some(Box::pin(code(thread))),
            link,
            ready: VecDeque::new(),
            started: first,
            barrier: 0,
            waits: false,
            has_query: false,
        });
    }

    /// A program with one thread per member, each with its stack. The first thread maps and initialises
    /// `heap`.
    pub fn team<M: Member>(
        facts: Facts,
        start: impl Into<Start>,
        heap: Heap,
        members: Vec<(u64, M)>,
    ) -> Self {
        let mut code = Code::new(facts, start);
        let threads = members.len() as u32;
        let mut heap = Some(heap);
        for (stack, member) in members {
            let heap = heap.take();
            code.thread(stack, move |mut t| async move {
                let first = heap.is_some();
                if let Some(mut heap) = heap {
                    t.enter().await;
                    heap.emit_pending(&mut t).await;
                    member.initialise(&mut t).await;
                    t.begin(threads).await;
                }
                member.run(&mut t).await;
                if first {
                    t.finish(threads).await;
                }
            });
        }
        code
    }

    /// True if the code of `thread` may continue.
    fn runnable(&self, thread: usize) -> bool {
        let slot = &self.threads[thread];
        let mut others = self.threads.iter().enumerate().filter(|o| o.0 != thread);
        let past = |o: &ThreadSlot| !o.started || o.code.is_none() || o.barrier >= slot.barrier;
        let runs = slot.started && slot.code.is_some() && !slot.has_query;
        runs && (!slot.waits || others.all(|(_, o)| past(o)))
    }

    /// Runs the threads in their fixed order until `thread` has a batch to deliver.
    fn run_for(&mut self, thread: usize) -> Result<(), Error> {
        while self.threads[thread].ready.is_empty() {
            if self.threads[thread].has_query {
                return Err(Error::refused(format!(
                    "{}: thread {thread} has a query without a result, and its next batch was requested",
                    self.facts.name
                )));
            }
            let count = self.threads.len();
            let mut order = (self.turn..count).chain(0..self.turn);
            let Some(next) = order.find(|t| self.runnable(*t)) else {
                return Err(Error::refused(format!(
                    "{}: all threads wait for one another",
                    self.facts.name
                )));
            };
            self.turn = (next + 1) % count;
            self.run(next);
        }
        Ok(())
    }

    fn run(&mut self, thread: usize) {
        let slot = &mut self.threads[thread];
        slot.waits = false;
        let Some(code) = &mut slot.code else { return };
        if let Poll::Ready(()) = code.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            slot.code = None;
        }
        let mut link = slot.link.lock().unwrap_or_else(PoisonError::into_inner);
        let batch = std::mem::replace(&mut link.batch, self.spare.pop().unwrap_or_default());
        let end = link.end.take().unwrap_or(End::More);
        let noted = std::mem::take(&mut link.noted);
        drop(link);
        for (batch, end) in noted {
            slot.ready.push_back(Segment {
                batch,
                given: 0,
                end,
            });
        }
        if let End::Barrier { number } = end {
            slot.barrier = number;
            slot.waits = true;
        }
        slot.has_query = matches!(end, End::Query(_));
        let begins = match &end {
            End::Event {
                event: Event::Spawn { thread },
                ..
            } => Some(*thread as usize),
            _ => None,
        };
        slot.ready.push_back(Segment {
            batch,
            given: 0,
            end,
        });
        if let Some(new) = begins.and_then(|t| self.threads.get_mut(t)) {
            new.started = true;
        }
    }
}

impl Program for Code {
    fn facts(&self) -> Facts {
        Facts {
            threads: u32::try_from(self.threads.len()).ok(),
            ..self.facts.clone()
        }
    }

    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, Error> {
        batch.clear();
        let at = thread as usize;
        if at >= self.threads.len() {
            return Err(Error::refused(format!(
                "{} has {} threads, not a thread {thread}",
                self.facts.name,
                self.threads.len()
            )));
        }
        self.run_for(at)?;
        let slot = &mut self.threads[at];
        let segment = &mut slot.ready[0];
        let before = segment.batch.skipped.ops as usize;
        let left = before + segment.batch.ops.len() - segment.given;
        if left > BATCH_OPS {
            std::mem::swap(&mut batch.skipped, &mut segment.batch.skipped);
            let to = segment.given + BATCH_OPS - before;
            batch
                .ops
                .extend_from_slice(&segment.batch.ops[segment.given..to]);
            segment.given = to;
            return Ok(End::More);
        }
        if segment.given == 0 {
            std::mem::swap(batch, &mut segment.batch);
        } else {
            batch
                .ops
                .extend_from_slice(&segment.batch.ops[segment.given..]);
        }
        let Segment {
            batch: mut used,
            end,
            ..
        } = slot.ready.remove(0).unwrap_or(Segment {
            batch: Batch::default(),
            given: 0,
            end: End::Exit,
        });
        if self.spare.len() < SPARE {
            used.clear();
            self.spare.push(used);
        }
        if end == End::Exit {
            // A machine does not request it again. If one does, no code must run.
            slot.ready.push_back(Segment {
                batch: Batch::default(),
                given: 0,
                end: End::Exit,
            });
        }
        Ok(end)
    }

    fn grant_fast_forward(&mut self, instructions: u64, requests: u64) {
        self.budget.grant_fast_forward(instructions, requests);
    }

    fn grant_filtered_warming(&mut self, instructions: u64, requests: u64) {
        self.budget.grant_filtered_warming(instructions, requests);
    }

    fn shortcut_result(&mut self, thread: ThreadId, reply: Option<u64>) {
        if let Some(slot) = self.threads.get_mut(thread as usize) {
            slot.has_query = false;
            let mut link = slot.link.lock().unwrap_or_else(PoisonError::into_inner);
            link.reply = reply;
        }
    }
}
