//! What the kernel's work costs the cores, and what it makes them forget.

use pagewalk_os::{Effects, OsError};
use pagewalk_stream::ProcessId;
use pagewalk_units::{Access, VirtAddr};

use super::{Machine, Outcome};

impl Machine {
    /// Serves a page fault; the access then walks again.
    pub(super) fn fault(
        &mut self,
        core: usize,
        process: ProcessId,
        va: VirtAddr,
        access: Access,
    ) -> Result<(), Outcome> {
        let pid = self.processes[&process].pid;
        let mut fx = std::mem::take(&mut self.effects);
        let result = self.os.fault(pid, va, access, &mut fx);
        self.spread(core, process, &mut fx);
        self.effects = fx;
        result.map_err(|e| self.os_error(&e))
    }

    /// Hands the effects of a kernel call to the cores: the caller pays, all forget.
    pub(super) fn spread(&mut self, core: usize, process: ProcessId, fx: &mut Effects) {
        if !fx.invalidate.is_empty() {
            self.touched.clear();
            for what in &fx.invalidate {
                for c in &mut self.cores {
                    c.mmu.invalidate(what);
                }
            }
            // A shootdown interrupts every other core that runs the process.
            let mut others = 0;
            for c in 0..self.cores.len() {
                let runs = self.on_core[c].map(|id| self.threads[&id].process);
                if c != core && runs == Some(process) {
                    others += 1;
                    if self.plan.phase.takes_time() {
                        self.cores[c].kernel(self.os.prices().shootdown_remote);
                    }
                }
            }
            if others > 0 {
                fx.cycles += self.os.prices().shootdown(others);
            }
            fx.invalidate.clear();
        }
        if fx.cycles > 0 {
            if self.plan.phase.takes_time() {
                self.cores[core].kernel(fx.cycles);
            }
            fx.cycles = 0;
        }
    }

    /// What a refusal of the kernel means for the run.
    pub(super) fn os_error(&self, e: &OsError) -> Outcome {
        match e {
            OsError::OutOfMemory { .. } => Outcome::OutOfMemory(format!(
                "{e}; enlarge the machine's memory (os.memory_gb = {}) or shrink the program",
                self.config.os.memory_gb
            )),
            OsError::NoContiguous { .. } => Outcome::CannotFinish(format!(
                "cannot finish: {e}. That was after {} instructions; lower the fragmentation (os.fragmentation) or choose a page table of smaller pieces",
                self.executed
            )),
            other => Outcome::Fault(other.to_string()),
        }
    }
}
