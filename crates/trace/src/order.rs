//! In which order threads that waited went on.

use std::collections::{BTreeMap, BTreeSet};

use pagewalk_stream::{Counted, End, Event, ProcessId, ThreadId};

use crate::pwt::Mark;

/// How far the threads of a recording have come.
///
/// A thread that waited goes on, when replayed, once every other thread has come
/// as far as it had when this one went on while recording.
pub struct Order {
    counted: Counted,
    /// What is counted, and marks, of each thread so far.
    units: BTreeMap<ThreadId, u64>,
    waiting: BTreeSet<ThreadId>,
    /// Process of each thread.
    processes: BTreeMap<ThreadId, ProcessId>,
    /// The last change of its address space that each thread has seen.
    seen: BTreeMap<ThreadId, u64>,
    /// Changes that each thread has made: the ticket, and the units before it.
    changes: BTreeMap<ThreadId, Vec<(u64, u64)>>,
}

impl Order {
    /// Before the first op of the first thread.
    pub fn new(counted: Counted) -> Self {
        Order {
            counted,
            units: BTreeMap::new(),
            waiting: BTreeSet::new(),
            processes: BTreeMap::from([(0, 0)]),
            seen: BTreeMap::new(),
            changes: BTreeMap::new(),
        }
    }

    /// Whether the thread has not gone on since it was blocked.
    pub fn waits(&self, thread: ThreadId) -> bool {
        self.waiting.contains(&thread)
    }

    /// `thread` goes on, if it waited, with this end when there is nothing before it:
    /// the mark that stands before what it does.
    pub fn goes_on(&mut self, thread: ThreadId, end: Option<&End>) -> Option<Mark> {
        if !self.waiting.remove(&thread) {
            return None;
        }
        let ticket = match end {
            Some(End::Meet { ticket }) => *ticket,
            _ => self.seen.get(&thread).copied().unwrap_or(0),
        };
        Some(Mark::Wait(self.others(thread, ticket), self.counted))
    }

    /// How far the others were when `thread`, which had seen the changes up to
    /// `ticket`, went on. They may have been read further than that: a change that
    /// it had not seen was made later.
    fn others(&self, thread: ThreadId, ticket: u64) -> Vec<(ThreadId, u64)> {
        let process = self.processes.get(&thread);
        let others = self.units.iter().filter(|(t, _)| **t != thread);
        let far = |(t, n): (&ThreadId, &u64)| {
            let shares = self.processes.get(t) == process;
            let later = self.changes.get(t).filter(|_| shares).and_then(|made| {
                let first = made.partition_point(|(number, _)| *number <= ticket);
                made.get(first).map(|(_, before)| *before)
            });
            (*t, later.map_or(*n, |before| before.min(*n)))
        };
        others.map(far).collect()
    }

    /// The thread has come so many units further.
    pub fn advance(&mut self, thread: ThreadId, units: u64) {
        *self.units.entry(thread).or_default() += units;
    }

    /// The thread has met the change with this ticket.
    pub fn meets(&mut self, thread: ThreadId, ticket: u64) {
        self.seen.insert(thread, ticket);
    }

    /// What the thread did has ended so: the mark to write of that.
    pub fn ends(&mut self, thread: ThreadId, end: &End) -> Option<Mark> {
        self.note(thread, end);
        let units = self.units.entry(thread).or_default();
        match end {
            End::More | End::Empty => None,
            End::Blocked => {
                if self.waiting.insert(thread) {
                    *units += 1;
                }
                None
            }
            End::Wait { until, counted } => {
                *units += 1;
                Some(Mark::Wait(until.clone(), *counted))
            }
            End::Event { .. }
            | End::Meet { .. }
            | End::Barrier { .. }
            | End::Ask(_)
            | End::Exit => {
                *units += 1;
                Some(Mark::End(end.clone()))
            }
        }
    }

    /// Remembers what `end` says of the order of changes.
    fn note(&mut self, thread: ThreadId, end: &End) {
        match end {
            End::Meet { ticket } => self.meets(thread, *ticket),
            End::Event { event, ticket } => {
                let process = self.processes.get(&thread).copied().unwrap_or(0);
                let seen = self.seen.get(&thread).copied().unwrap_or(0);
                match event {
                    Event::Spawn { thread: made } => {
                        self.processes.insert(*made, process);
                        self.seen.insert(*made, seen);
                    }
                    Event::Fork { process, thread } => {
                        self.processes.insert(*thread, *process);
                    }
                    _ => {}
                }
                if *ticket > 0 {
                    self.seen.insert(thread, *ticket);
                    let before = self.units.get(&thread).copied().unwrap_or(0);
                    self.changes
                        .entry(thread)
                        .or_default()
                        .push((*ticket, before));
                }
            }
            _ => {}
        }
    }
}
