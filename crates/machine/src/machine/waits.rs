//! End of waits: in the kernel, at a barrier, or for an address-space change.

use std::collections::BTreeMap;

use pagewalk_stream::{Counted, Error, ProcessId, ThreadId};

use super::{Machine, Outcome, Pause};
use crate::fanout::{Fanout, Supply};
use crate::thread::{SoftwareThread, ThreadState};

/// Polls of threads in the kernel before a sleeping thread continues without them. Each takes some milliseconds of the
/// host, which is longer than a call that does not wait.
const MOST_POLLS: u32 = 32;

pub(super) fn program(e: Error) -> Outcome {
    Outcome::Program(e.to_string())
}

impl Machine {
    /// Handles the case that no core has a thread that can run.
    pub(super) fn nothing_runs(
        &mut self,
        fanout: &Fanout,
        me: usize,
    ) -> Result<Option<Pause>, Outcome> {
        let starved = self.threads.values().any(|t| t.starved);
        self.report_gone(fanout, me);
        if self.poll_blocked(fanout, me)? || self.settle(fanout, me, false)? {
            return Ok(None);
        }
        if self.ahead {
            return Ok(Some(Pause::Ahead));
        }
        if starved {
            return Ok(Some(Pause::Starved));
        }
        if self.threads.is_empty() {
            self.finish_program();
            return Ok(None);
        }
        if self.sleeping > 0 {
            self.polls += 1;
            if self.polls > MOST_POLLS {
                self.wake_sleepers(fanout, me, true);
                return Ok(None);
            }
        }
        // A thread in the kernel may be the one to make the awaited change.
        if self
            .threads
            .values()
            .any(|t| t.state == ThreadState::Blocked)
        {
            return Ok(Some(Pause::Starved));
        }
        // In a truncated recording, no remaining thread can complete the meeting or the wait. The first
        // change then takes effect, or all waiting threads continue.
        let changes = |t: &SoftwareThread| matches!(t.state, ThreadState::Changing(_, ticket) if ticket != u64::MAX);
        let unmet = self.threads.values().any(changes);
        if self.settle(fanout, me, true)? {
            // The end of a process is no change that other threads have to meet.
            self.broken_waits += u64::from(unmet);
        } else {
            let now = self.latest();
            let waiting = |t: &SoftwareThread| {
                matches!(
                    t.state,
                    ThreadState::Meeting(_) | ThreadState::AtBarrier(_) | ThreadState::Waiting(..)
                )
            };
            let stuck: Vec<ThreadId> = self
                .threads
                .iter()
                .filter(|(_, t)| waiting(t))
                .map(|(id, _)| *id)
                .collect();
            if stuck.is_empty() {
                return Ok(Some(Pause::Starved));
            }
            self.broken_waits += stuck.len() as u64;
            for id in stuck {
                self.make_ready(id, now);
            }
        }
        Ok(None)
    }

    /// Reports ended threads to the fan-out.
    pub(super) fn report_gone(&mut self, fanout: &Fanout, me: usize) {
        for id in self.gone.drain(..) {
            fanout.gone(me, id);
        }
    }

    /// Polls blocked threads; true if one is ready again.
    pub(super) fn poll_blocked(&mut self, fanout: &Fanout, me: usize) -> Result<bool, Outcome> {
        let blocked: Vec<ThreadId> = self
            .threads
            .iter()
            .filter(|(_, t)| t.state == ThreadState::Blocked)
            .map(|(id, _)| *id)
            .collect();
        let mut woken = false;
        self.ahead = false;
        for id in blocked {
            let supply = fanout.next(me, id, self.detail_until()).map_err(program)?;
            self.ahead |= matches!(supply, Supply::Ahead);
            if let Supply::Item(item) = supply {
                let now = self.latest();
                let thread = self.threads.get_mut(&id).expect("just listed");
                thread.begin(item);
                thread.state = ThreadState::Ready;
                thread.ready_at = now;
                self.ready.push_back(id);
                woken = true;
            }
        }
        Ok(woken)
    }

    /// Readies the threads whose barrier or wait is complete.
    pub(super) fn wake_waiting(&mut self) {
        let over: Vec<ThreadId> = self
            .threads
            .iter()
            .filter(|(id, t)| match &t.state {
                ThreadState::AtBarrier(number) => self.threads.iter().all(|(other, o)| {
                    other == *id || o.process != t.process || o.barrier >= *number
                }),
                ThreadState::Waiting(until, counted) => self.is_over(until, *counted),
                _ => false,
            })
            .map(|(id, _)| *id)
            .collect();
        if over.is_empty() {
            return;
        }
        // The thread that completed it is on its core, or has just left it.
        let now = self.latest();
        for id in over {
            self.make_ready(id, now);
        }
    }

    /// True if each thread has reached the count of a wait.
    fn is_over(&self, until: &[(ThreadId, u64)], counted: Counted) -> bool {
        until.iter().all(|(other, units)| {
            let there = |o: &SoftwareThread| o.units.counted(counted) >= *units;
            self.ended.contains(*other) || self.threads.get(other).is_some_and(there)
        })
    }

    /// Applies changes that all threads concerned have reached, in the order of their tickets. True if
    /// there was one. `force`: the first change takes effect even if a thread has not reached it.
    pub(super) fn settle(
        &mut self,
        fanout: &Fanout,
        me: usize,
        force: bool,
    ) -> Result<bool, Outcome> {
        let mut any = false;
        loop {
            let mut candidates: Vec<(u64, ThreadId)> = self
                .threads
                .iter()
                .filter_map(|(id, t)| match &t.state {
                    ThreadState::Changing(_, ticket) => Some((*ticket, *id)),
                    _ => None,
                })
                .collect();
            if candidates.is_empty() {
                return Ok(any);
            }
            // A thread may have left its wait long ago. Its work since then precedes the change, unless
            // the change says otherwise.
            self.poll_blocked(fanout, me)?;
            if self.ahead {
                return Ok(any);
            }
            candidates.sort_unstable();
            // Grouped by process, because many processes may be live whose only thread is about to end.
            let mut of_process: BTreeMap<ProcessId, Vec<ThreadId>> = BTreeMap::new();
            for (id, t) in &self.threads {
                of_process.entry(t.process).or_default().push(*id);
            }
            let ready = candidates.iter().copied().find(|&(ticket, id)| {
                let process = self.threads[&id].process;
                (force && !any)
                    || of_process[&process]
                        .iter()
                        .filter(|other| **other != id)
                        .all(|other| match &self.threads[other].state {
                            ThreadState::Meeting(at) => *at >= ticket,
                            ThreadState::Changing(_, at) => *at > ticket,
                            // A thread that is about to continue may use what the change affects.
                            ThreadState::Waiting(until, counted) => !self.is_over(until, *counted),
                            ThreadState::Blocked
                            | ThreadState::Sleeping(_)
                            | ThreadState::AtBarrier(_)
                            | ThreadState::Gathering => true,
                            ThreadState::Running(_) | ThreadState::Ready => false,
                        })
            });
            let Some((ticket, id)) = ready else {
                return Ok(any);
            };
            any = true;
            let thread = self.threads.get_mut(&id).expect("just listed");
            let ThreadState::Changing(event, _) =
                std::mem::replace(&mut thread.state, ThreadState::Ready)
            else {
                unreachable!("only changing threads are candidates")
            };
            let (process, core) = (thread.process, thread.last_core);
            self.ready.push_back(id);
            self.act_on(id, core, event)?;
            let now = self.cores[core].now();
            if let Some(p) = self.processes.get_mut(&process) {
                p.applied = p.applied.max(ticket);
            }
            let applied = self.processes.get(&process).map_or(u64::MAX, |p| p.applied);
            for (id, t) in &mut self.threads {
                if t.process == process
                    && matches!(t.state, ThreadState::Meeting(at) if at <= applied)
                {
                    t.state = ThreadState::Ready;
                    t.ready_at = t.ready_at.max(now);
                    self.ready.push_back(*id);
                }
            }
        }
    }
}
