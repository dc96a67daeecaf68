//! Scheduler: assignment of threads to cores, and the choice of the next core to simulate.

use pagewalk_cpu::Core;
use pagewalk_stream::{ProcessId, ThreadId};
use pagewalk_units::Cycle;

use super::Machine;
use crate::thread::{SoftwareThread, ThreadState};

impl Machine {
    /// Gives idle cores to ready threads: the thread's last core if it is free, else the first free one.
    pub(super) fn fill_cores(&mut self) {
        while let Some(&id) = self.ready.front() {
            let thread = &self.threads[&id];
            let last = thread.last_core.min(self.on_core.len() - 1);
            let free = if self.on_core[last].is_none() {
                Some(last)
            } else {
                self.on_core.iter().position(Option::is_none)
            };
            let Some(core) = free else { return };
            self.ready.pop_front();
            let thread = self.threads.get_mut(&id).expect("a ready thread exists");
            thread.state = ThreadState::Running(core);
            thread.last_core = core;
            self.on_core[core] = Some(id);
            self.runnable[core] = !thread.starved;
            let (ready_at, process) = (thread.ready_at, thread.process);
            self.cores[core].idle(ready_at);
            self.catch_up(core);
            let to = self.processes[&self.threads[&id].process].pid;
            let last = self.ran[core].replace((id, to));
            if let Some((_, from)) = last.filter(|(last, _)| *last != id) {
                let mut cost = self.os.context_switch(from, to);
                if from != to {
                    let (cycles, pages) = self.os.stlt_restore(to);
                    self.cores[core].mmu.fill_ipb(pages);
                    cost += cycles;
                }
                if self.plan.phase.takes_time() {
                    self.cores[core].kernel(cost);
                }
            }
            if self.has_parts() {
                self.charge_from_now(core, Some(process));
            }
            let since = self.clock(core);
            self.threads.get_mut(&id).expect("as above").on_core_since = since;
            self.slice_end[core] = self.local_time(core) + self.config.schedule.time_slice_cycles;
        }
    }

    /// While time stands still, moves an idle core up to the others: its new thread could not have run
    /// earlier.
    fn catch_up(&mut self, core: usize) {
        if !self.plan.phase.skips() {
            return;
        }
        let others = (0..self.on_core.len()).filter(|&c| c != core && self.on_core[c].is_some());
        let Some(there) = others.map(|c| self.local_time(c)).min() else {
            return;
        };
        let behind = there.saturating_sub(self.local_time(core));
        self.skipped[core] += behind;
    }

    /// Ends fast-forwarding: from now on the clocks alone order the cores.
    pub(super) fn forget_skipped(&mut self) {
        self.still += self.skipped.iter().max().copied().unwrap_or(0);
        for (end, skipped) in self.slice_end.iter_mut().zip(&mut self.skipped) {
            *end = end.saturating_sub(std::mem::take(skipped));
        }
        self.background.restart(self.latest());
    }

    pub(super) fn local_time(&self, core: usize) -> u64 {
        self.cores[core].now() + self.skipped[core]
    }

    /// The core with the smallest local time among those that can run.
    pub(super) fn next_core(&self) -> Option<usize> {
        if self.on_core.len() == 1 {
            return self.runnable[0].then_some(0);
        }
        (0..self.on_core.len())
            .filter(|&c| self.runnable[c])
            .min_by_key(|&c| (self.local_time(c), c))
    }

    /// Time up to which `core` may run before another core's turn.
    pub(super) fn until(&self, core: usize) -> Cycle {
        let alone = self.cores[core].now() + self.config.schedule.time_slice_cycles;
        (0..self.on_core.len())
            .filter(|&c| c != core && self.runnable[c])
            .map(|c| self.cores[c].now() + self.config.schedule.step_cycles)
            .min()
            .unwrap_or(alone)
            .min(self.until_background(core))
            .max(self.cores[core].now() + 1)
    }

    /// Moves a thread to the end of the queue when its time slice is over.
    pub(super) fn preempt(&mut self, core: usize) {
        if self.ready.is_empty() {
            return;
        }
        if self.plan.phase.takes_time() {
            let wanted = self.ready.len() + self.on_core.iter().flatten().count();
            self.threads_in_turns = self.threads_in_turns.max(wanted);
        }
        if self.local_time(core) < self.slice_end[core] {
            return;
        }
        if let Some(id) = self.on_core[core] {
            self.release(id, core, ThreadState::Ready);
            self.ready.push_back(id);
        }
    }

    /// Takes the thread off its core.
    pub(super) fn release(&mut self, id: ThreadId, core: usize, state: ThreadState) {
        debug_assert_eq!(self.on_core[core], Some(id));
        self.on_core[core] = None;
        self.runnable[core] = false;
        if self.has_parts() {
            self.charge_from_now(core, None);
        }
        self.cores[core].switch();
        let now = self.cores[core].now();
        let on_core = self.time_on_core(id, core);
        let thread = self
            .threads
            .get_mut(&id)
            .expect("a thread on a core exists");
        thread.state = state;
        thread.ready_at = now;
        thread.core_time += on_core;
        if let Some(process) = self.processes.get_mut(&thread.process) {
            process.core_time += on_core;
        }
    }

    pub(super) fn make_ready(&mut self, id: ThreadId, now: Cycle) {
        let thread = self
            .threads
            .get_mut(&id)
            .expect("only threads that exist wait");
        thread.state = ThreadState::Ready;
        thread.ready_at = thread.ready_at.max(now);
        self.ready.push_back(id);
    }

    /// Clock of the core that is furthest ahead.
    pub(super) fn latest(&self) -> Cycle {
        self.cores.iter().map(Core::now).max().unwrap_or(0)
    }

    pub(super) fn start(&mut self, id: ThreadId, process: ProcessId, core: usize) {
        let now = self.cores[core].now();
        let home = id as usize % self.cores.len();
        self.threads
            .insert(id, SoftwareThread::new(process, now, home));
        self.ready.push_back(id);
    }
}
