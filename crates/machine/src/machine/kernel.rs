//! Cost of kernel work on the cores, and the invalidations that it causes.

use pagewalk_os::{Effects, OsError, VirtualSpec};
use pagewalk_stream::ProcessId;
use pagewalk_units::{Access, GuestPhysAddr, VirtAddr};

use super::{Machine, Outcome};

impl Machine {
    /// Handles a page fault; the access then walks again.
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
        self.spread(core, process, self.part_of(process), &mut fx);
        self.effects = fx;
        result.map_err(|e| self.os_error(&e))
    }

    /// Handles a fault of the host: no frame backs `at`.
    pub(super) fn host_fault(
        &mut self,
        core: usize,
        process: ProcessId,
        at: GuestPhysAddr,
    ) -> Result<(), Outcome> {
        let mut fx = std::mem::take(&mut self.effects);
        let result = self.os.host_fault(at, &mut fx);
        self.spread(core, process, self.part_of(process), &mut fx);
        self.effects = fx;
        result.map_err(|e| self.os_error(&e))
    }

    /// Applies the effects of a kernel call: `core` pays for it, and all cores invalidate. `part` is the
    /// program of `process`, which the call may have ended.
    pub(super) fn spread(
        &mut self,
        core: usize,
        process: ProcessId,
        part: Option<usize>,
        fx: &mut Effects,
    ) {
        let parts = self.has_parts();
        if parts {
            self.charge(core);
            self.charge_kernel(part);
        }
        if !fx.invalidate.is_empty() {
            self.touched.clear();
            if let Some(ahead) = &mut self.mapped_ahead {
                ahead.clear();
            }
            for what in &fx.invalidate {
                fx.cycles += self.forget(what);
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
                if parts {
                    self.charge_as(core, part);
                }
            } else if self.plan.phase.skips() {
                self.background.owe(fx.cycles);
            }
            fx.cycles = 0;
        }
    }

    /// Outcome of the run for an error of the OS.
    pub(super) fn os_error(&self, e: &OsError) -> Outcome {
        self.said(e, None)
    }

    /// As [`Machine::os_error`], for the kernel of the virtual machine's `host` if there is one.
    fn said(&self, e: &OsError, host: Option<&VirtualSpec>) -> Outcome {
        let guest = self.config.virtual_machine.as_ref();
        match e {
            OsError::Host(inner) => match self.said(inner, guest) {
                Outcome::OutOfMemory(why) => Outcome::OutOfMemory(format!("the host: {why}")),
                Outcome::CannotFinish(why) => Outcome::CannotFinish(format!("the host: {why}")),
                other => other,
            },
            OsError::OutOfMemory { .. } => {
                let (key, gb) = match guest.and_then(|v| v.memory_gb) {
                    Some(gb) if host.is_none() => ("virtual.memory_gb", gb),
                    _ => ("os.memory_gb", self.config.os.memory_gb),
                };
                Outcome::OutOfMemory(format!(
                    "{e}; enlarge the machine's memory ({key} = {gb}) or shrink the program"
                ))
            }
            OsError::NoContiguous { .. } => Outcome::CannotFinish(format!(
                "cannot finish: {e}. That was after {} instructions; lower the fragmentation (os.fragmentation) or choose a page table of smaller pieces",
                self.executed.instructions
            )),
            OsError::TableLimit { limit, .. } => {
                let (above, table) = match host {
                    Some(host) => ("virtual.", &host.page_table),
                    None => ("", &self.config.page_table),
                };
                let table = format!("{above}page_table.{}", table.name());
                Outcome::CannotFinish(format!(
                    "cannot finish: {e}. That was after {} instructions; {}",
                    self.executed.instructions,
                    limit.advice(&table)
                ))
            }
            other => Outcome::Fault(other.to_string()),
        }
    }
}
