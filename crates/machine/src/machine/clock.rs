//! The simulated time, as the program's clocks show it.

use pagewalk_stream::{ClockQuery, ThreadId};
use pagewalk_units::Cycle;

use super::Machine;
use crate::fanout::Fanout;
use crate::thread::ThreadState;

impl Machine {
    /// Time of `core`. While the machine fast-forwards, an instruction takes a cycle.
    pub(super) fn clock(&self, core: usize) -> Cycle {
        self.still + self.skipped[core] + self.cores[core].finish().max(self.cores[core].now())
    }

    /// Time for which the running thread `id` has been on `core`.
    pub(super) fn time_on_core(&self, id: ThreadId, core: usize) -> Cycle {
        let since = self.threads[&id].on_core_since;
        self.clock(core).saturating_sub(since)
    }

    fn nanoseconds(&self, cycles: Cycle) -> u64 {
        (cycles as f64 / self.config.frequency_ghz) as u64
    }

    /// Answers a question of thread `id`, which runs on `core`.
    pub(super) fn ask_clock(
        &mut self,
        fanout: &Fanout,
        me: usize,
        id: ThreadId,
        core: usize,
        query: ClockQuery,
    ) {
        let thread = &self.threads[&id];
        let answer = match query {
            ClockQuery::Time => self.nanoseconds(self.clock(core)),
            ClockQuery::Cycles { retired: true } => self.clock(core),
            ClockQuery::Cycles { retired: false } => {
                self.still + self.skipped[core] + self.cores[core].now()
            }
            ClockQuery::ThreadTime => {
                self.nanoseconds(thread.core_time + self.time_on_core(id, core))
            }
            ClockQuery::ProcessTime => {
                let process = thread.process;
                let running = self.on_core.iter().enumerate().filter_map(|(c, id)| {
                    let id = (*id)?;
                    (self.threads[&id].process == process).then(|| self.time_on_core(id, c))
                });
                self.nanoseconds(self.processes[&process].core_time + running.sum::<Cycle>())
            }
            ClockQuery::Sleep { until } => {
                let now = self.clock(core);
                let until = (until as f64 * self.config.frequency_ghz).ceil() as Cycle;
                let cycles = until.saturating_sub(now);
                if cycles > 0 && self.plan.phase.takes_time() {
                    let wakes = self.cores[core].now().max(self.cores[core].finish()) + cycles;
                    self.release(id, core, ThreadState::Sleeping(wakes));
                    self.sleeping += 1;
                    return;
                }
                self.still += cycles;
                self.nanoseconds(now + cycles)
            }
        };
        fanout.clock_result(me, id, answer);
    }

    /// Wakes the threads whose time has come: no core with a thread is behind it. If no core has one, the first sleeper
    /// wakes, unless a thread in the kernel may continue before (`force`: it does not). True if there was one.
    pub(super) fn wake_sleepers(&mut self, fanout: &Fanout, me: usize, force: bool) -> bool {
        let asleep = |t: &ThreadState| match t {
            ThreadState::Sleeping(until) => Some(*until),
            _ => None,
        };
        let cores = (0..self.cores.len()).filter(|&c| self.on_core[c].is_some());
        let sleepers = self.threads.values().filter_map(|t| asleep(&t.state));
        let blocked = self
            .threads
            .values()
            .any(|t| t.state == ThreadState::Blocked);
        let now = match cores.map(|c| self.cores[c].now()).min() {
            None if force || !blocked => sleepers.min(),
            now => now,
        };
        let Some(now) = now else {
            return false;
        };
        self.polls = 0;
        let over: Vec<(Cycle, ThreadId)> = (self.threads.iter())
            .filter_map(|(id, t)| Some((asleep(&t.state)?, *id)))
            .filter(|(until, _)| *until <= now)
            .collect();
        for &(until, id) in &over {
            self.sleeping -= 1;
            self.make_ready(id, until);
            let answer = self.nanoseconds(self.still + until);
            fanout.clock_result(me, id, answer);
        }
        !over.is_empty()
    }
}
