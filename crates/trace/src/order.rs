//! Order in which threads of a recording continued after waits.

use std::collections::{BTreeMap, BTreeSet};

use pagewalk_stream::{Counted, End, Event, ProcessId, ThreadId};

use crate::pwt::Mark;

/// Progress of the threads of a recording.
///
/// When replayed, a thread that waited continues once every other thread has come as far as it had when this one
/// continued in the recording. A thread does not wait twice for the same progress, and a thread comes after everything
/// that its creator comes after. A wait therefore names only threads that have moved since.
pub struct Order {
    counted: Counted,
    threads: BTreeMap<ThreadId, OrderedThread>,
    /// Threads by the time of their last move.
    moved: BTreeMap<u64, ThreadId>,
    /// Time of the last move.
    now: u64,
    /// Ended threads in `threads`; other threads may still wait for their ends.
    ended: usize,
    /// Number of ended threads above which those that no thread waits for are removed.
    most_ended: usize,
}

/// A thread of a recording.
#[derive(Default)]
struct OrderedThread {
    process: ProcessId,
    /// Progress: counted units, plus marks.
    units: u64,
    /// Time of the last progress.
    moved: u64,
    waits: bool,
    ended: bool,
    /// Last change of its address space that it has met.
    seen: u64,
    /// Its own changes that others of its process may not have met: the ticket, and the units before it.
    changes: Vec<(u64, u64)>,
    /// Time up to which it comes after all progress of the other threads,
    knows: u64,
    /// except for the last progress of these.
    owes: BTreeSet<ThreadId>,
}

/// Changes of a thread above which those met by all are removed.
const CHANGES: usize = 64;
/// Ended threads above which those that are not needed are removed.
const ENDED: usize = 64;

impl Order {
    /// The order before the first op of the first thread.
    pub fn new(counted: Counted) -> Self {
        Order {
            counted,
            threads: BTreeMap::from([(0, OrderedThread::default())]),
            moved: BTreeMap::new(),
            now: 0,
            ended: 0,
            most_ended: ENDED,
        }
    }

    /// Number of threads kept.
    pub fn kept(&self) -> usize {
        self.threads.len()
    }

    /// True if the thread has not continued since it was blocked.
    pub fn waits(&self, thread: ThreadId) -> bool {
        self.threads.get(&thread).is_some_and(|t| t.waits)
    }

    /// Continues `thread`, if it waited. Returns the mark that precedes its next steps. `end` is its next end, if no
    /// step comes first.
    pub fn goes_on(&mut self, thread: ThreadId, end: Option<&End>) -> Option<Mark> {
        let me = self.threads.get_mut(&thread)?;
        if !std::mem::take(&mut me.waits) {
            return None;
        }
        let ticket = match end {
            Some(End::Meet { ticket }) => *ticket,
            _ => me.seen,
        };
        Some(Mark::Wait(self.others(thread, ticket), self.counted))
    }

    /// Progress of the others at the time when `thread`, which had met the changes up to `ticket`, continued. They may
    /// have been read further than that: a change that it had not met came later.
    fn others(&mut self, thread: ThreadId, ticket: u64) -> Vec<(ThreadId, u64)> {
        let Some(me) = self.threads.get_mut(&thread) else {
            return Vec::new();
        };
        let (process, knows) = (me.process, std::mem::replace(&mut me.knows, self.now));
        let mut names = std::mem::take(&mut me.owes);
        names.extend(self.moved.range(knows + 1..).map(|(_, t)| *t));
        names.remove(&thread);
        let mut owes = BTreeSet::new();
        let far = names.into_iter().filter_map(|other| {
            let t = self.threads.get(&other)?;
            let first = t.changes.partition_point(|(number, _)| *number <= ticket);
            let later = t.changes.get(first).filter(|_| t.process == process);
            let far = later.map_or(t.units, |(_, before)| t.units.min(*before));
            if far < t.units {
                owes.insert(other);
            }
            Some((other, far))
        });
        let far = far.collect();
        if let Some(me) = self.threads.get_mut(&thread) {
            me.owes = owes;
        }
        far
    }

    /// Adds `units` to the thread's progress.
    pub fn advance(&mut self, thread: ThreadId, units: u64) {
        if units == 0 {
            return;
        }
        self.now += 1;
        let t = self.threads.entry(thread).or_default();
        t.units += units;
        if t.moved != 0 {
            self.moved.remove(&t.moved);
        }
        t.moved = self.now;
        self.moved.insert(self.now, thread);
    }

    /// The thread meets the change with this ticket.
    pub fn meets(&mut self, thread: ThreadId, ticket: u64) {
        self.threads.entry(thread).or_default().seen = ticket;
    }

    /// Ends a batch of the thread. Returns the mark to write for it.
    pub fn ends(&mut self, thread: ThreadId, end: &End) -> Option<Mark> {
        self.note(thread, end);
        match end {
            End::More | End::Empty | End::ReadKernel(_) => None,
            End::Blocked => {
                if !std::mem::replace(&mut self.threads.entry(thread).or_default().waits, true) {
                    self.advance(thread, 1);
                }
                None
            }
            End::Wait { until, counted } => {
                self.advance(thread, 1);
                Some(Mark::Wait(until.clone(), *counted))
            }
            End::Event { .. }
            | End::Meet { .. }
            | End::Barrier { .. }
            | End::Query(_)
            | End::Clock(_)
            | End::Exit => {
                self.advance(thread, 1);
                if *end == End::Exit {
                    self.end(thread);
                }
                Some(Mark::End(end.clone()))
            }
        }
    }

    /// Notes the effect of `end` on the order of changes.
    fn note(&mut self, thread: ThreadId, end: &End) {
        match end {
            End::Meet { ticket } => self.meets(thread, *ticket),
            End::Event { event, ticket } => {
                let me = self.threads.entry(thread).or_default();
                let (parent, seen) = (me.process, me.seen);
                // A new thread comes after everything that its creator comes after.
                let made = |process, seen| OrderedThread {
                    process,
                    seen,
                    knows: me.knows,
                    owes: me.owes.clone(),
                    ..OrderedThread::default()
                };
                match event {
                    Event::Spawn { thread: id } => {
                        let made = made(parent, seen);
                        self.threads.insert(*id, made);
                    }
                    Event::Fork {
                        process,
                        thread: id,
                    } => {
                        let made = made(*process, 0);
                        self.threads.insert(*id, made);
                    }
                    _ => {}
                }
                if *ticket > 0 {
                    let me = self.threads.entry(thread).or_default();
                    me.seen = *ticket;
                    me.changes.push((*ticket, me.units));
                    if me.changes.len().is_power_of_two() && me.changes.len() >= CHANGES {
                        self.forget_changes(thread);
                    }
                }
            }
            _ => {}
        }
    }

    /// Removes changes of a thread that all threads of its process have met.
    fn forget_changes(&mut self, thread: ThreadId) {
        let process = self.threads.get(&thread).map(|t| t.process);
        let shares = |t: &&OrderedThread| !t.ended && Some(t.process) == process;
        let seen = self.threads.values().filter(shares).map(|t| t.seen).min();
        if let (Some(seen), Some(me)) = (seen, self.threads.get_mut(&thread)) {
            me.changes.retain(|(ticket, _)| *ticket > seen);
        }
    }

    fn end(&mut self, thread: ThreadId) {
        if let Some(t) = self.threads.get_mut(&thread) {
            t.ended = true;
            t.owes = BTreeSet::new();
            self.ended += 1;
        }
        if self.ended < self.most_ended {
            return;
        }
        // Threads that every living thread comes after.
        let living = || self.threads.values().filter(|t| !t.ended);
        let known = living().map(|t| t.knows).min().unwrap_or(self.now);
        let owed: BTreeSet<ThreadId> = living().flat_map(|t| &t.owes).copied().collect();
        let moved = &mut self.moved;
        self.threads.retain(|id, t| {
            let goes = t.ended && t.moved <= known && !owed.contains(id);
            if goes {
                moved.remove(&t.moved);
            }
            !goes
        });
        self.ended = self.threads.values().filter(|t| t.ended).count();
        self.most_ended = ENDED.max(2 * self.ended);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pagewalk_stream::{Counted, End, Event, ThreadId};
    use pagewalk_units::rng;
    use rand::RngExt;

    use super::Order;
    use crate::pwt::Mark;

    fn spawn(thread: ThreadId) -> End {
        let event = Event::Spawn { thread };
        End::Event { event, ticket: 0 }
    }

    fn wait(order: &mut Order, thread: ThreadId) -> Vec<(ThreadId, u64)> {
        match order.goes_on(thread, None) {
            Some(Mark::Wait(until, Counted::Instructions)) => until,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn threads_one_after_another_cost_what_lives() {
        let mut order = Order::new(Counted::Instructions);
        let mut named = 0;
        for thread in 1..=3000 {
            order.ends(0, &spawn(thread));
            order.ends(0, &End::Blocked);
            order.advance(thread, 10);
            order.ends(thread, &End::Exit);
            named += wait(&mut order, 0).len();
            assert!(order.kept() < 200, "{}", order.kept());
        }
        assert_eq!(named, 3000);
    }

    #[test]
    fn changes_that_all_have_seen_are_forgotten() {
        let mut order = Order::new(Counted::Ops);
        order.ends(0, &spawn(1));
        for ticket in 1..=10_000 {
            let event = Event::NOTHING;
            order.ends(0, &End::Event { event, ticket });
            order.ends(1, &End::Meet { ticket });
        }
        assert!(order.threads[&0].changes.len() < 200);
    }

    /// Tracks the progress that each thread comes after by all waits so far, its own and those of the threads that
    /// created it.
    #[test]
    fn a_wait_and_those_before_it_say_how_far_all_others_were() {
        let mut rng = rng(7, "order");
        for _ in 0..30 {
            let mut order = Order::new(Counted::Instructions);
            let mut units = BTreeMap::from([(0, 0u64)]);
            let mut after: BTreeMap<ThreadId, BTreeMap<ThreadId, u64>> = BTreeMap::new();
            let mut living = vec![0];
            let mut made = 0;
            for _ in 0..600 {
                let thread = living[rng.random_range(0..living.len())];
                if order.waits(thread) {
                    let until = wait(&mut order, thread);
                    let known = after.entry(thread).or_default();
                    for (other, far) in until {
                        assert!(far <= units[&other]);
                        known.insert(other, far);
                    }
                    for (other, far) in units.iter().filter(|(t, _)| **t != thread) {
                        assert_eq!(known.get(other).copied().unwrap_or(0), *far);
                    }
                }
                match rng.random_range(0..6) {
                    0 if made < 100 => {
                        made += 1;
                        order.ends(thread, &spawn(made));
                        *units.entry(thread).or_default() += 1;
                        let known = after.get(&thread).cloned().unwrap_or_default();
                        after.insert(made, known);
                        units.insert(made, 0);
                        living.push(made);
                    }
                    1 => {
                        order.ends(thread, &End::Blocked);
                        *units.entry(thread).or_default() += 1;
                    }
                    2 if living.len() > 1 => {
                        order.ends(thread, &End::Exit);
                        *units.entry(thread).or_default() += 1;
                        living.retain(|t| *t != thread);
                    }
                    n => {
                        order.advance(thread, n);
                        *units.entry(thread).or_default() += n;
                    }
                }
            }
        }
    }

    #[test]
    fn a_thread_that_missed_a_change_waits_for_the_work_before_it_first() {
        let mut order = Order::new(Counted::Instructions);
        order.ends(0, &spawn(1));
        order.ends(1, &End::Blocked);
        order.advance(0, 10);
        let event = Event::NOTHING;
        order.ends(0, &End::Event { event, ticket: 1 });
        order.advance(0, 100);
        assert_eq!(wait(&mut order, 1), [(0, 11)]);
        order.ends(1, &End::Meet { ticket: 1 });
        order.ends(1, &End::Blocked);
        // The thread has not moved since, but the first wait named only part of its progress.
        assert_eq!(wait(&mut order, 1), [(0, 112)]);
        order.ends(1, &End::Blocked);
        assert!(wait(&mut order, 1).is_empty());
    }
}
