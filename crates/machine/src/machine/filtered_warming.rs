//! Between samples: of what the program does, the lines that it did not use a moment before warm
//! caches and TLBs.

use pagewalk_cpu::{CoreContext, TOGETHER};
use pagewalk_mmu::Fault;
use pagewalk_stream::{End, OpClass, ProcessId, RecentLineFilter, ThreadId};
use pagewalk_units::Access;

use super::{Machine, Outcome};
use crate::work::Work;

impl Machine {
    /// Follows the batch of one core's thread up to the end of the phase.
    pub(super) fn warm_filtered(&mut self, id: ThreadId, core: usize) -> Result<(), Outcome> {
        let thread = self
            .threads
            .get_mut(&id)
            .expect("a thread on a core exists");
        let (process, from) = (thread.process, thread.at);
        let item = thread.item.clone().expect("checked by step");
        let ops = &item.batch.ops;
        let left = self.plan.left;
        let mut done = Work::default();
        let mut accesses = std::mem::take(&mut self.to_warm);
        let lines = &mut self.recent_lines[core];
        if std::mem::take(&mut thread.skip_pending) {
            let skipped = &item.batch.skipped;
            accesses
                .extend((skipped.touched.iter()).filter(|&&(at, access)| lines.is_new(at, access)));
            done = Work::of_skipped(skipped);
        }
        let mut at = from;
        let mut asks = false;
        while at < ops.len() && !asks && done.is_within(left) {
            let op = &ops[at];
            lines.filter(op, |at, access| accesses.push((at, access)));
            done += Work::of(op);
            asks = op.kind == OpClass::Query;
            at += 1;
        }
        thread.at = at;
        // What one thread does is warmed in whole steps, wherever its batches were cut: the rest of
        // the last step comes with the next batch. Up to here if anything else happens.
        let goes_on = item.end == End::More && !asks && done.is_within(left);
        let whole = if goes_on && self.threads.len() == 1 {
            accesses.len() / TOGETHER * TOGETHER
        } else {
            accesses.len()
        };
        let warmed = self.warm_lines(core, process, &accesses[..whole]);
        accesses.drain(..whole);
        self.to_warm = accesses;
        warmed?;
        if asks {
            self.run_query(id, core, &item, at - 1)?;
        }
        let space = self.os.asid(self.processes[&process].pid);
        self.cores[core].learn(space, &ops[from..at]);
        self.advance_clock(core, done);
        self.count(done);
        Ok(())
    }

    /// Warms TLBs and caches of `core` by what its process uses.
    fn warm_lines(
        &mut self,
        core: usize,
        process: ProcessId,
        accesses: &[(u64, Access)],
    ) -> Result<(), Outcome> {
        self.take_snoops(core);
        let mut at = 0;
        while at < accesses.len() {
            let pid = self.processes[&process].pid;
            let view = self.os.view(pid);
            let context = CoreContext {
                asid: self.os.asid(pid),
                view: &view,
                tiers: self.os.tiers(),
                below: &mut self.shared,
                in_memory_tlb: self.in_memory_tlb.as_deref_mut(),
            };
            let (warmed, fault) = self.cores[core].warm_lines(accesses, at, context);
            at = warmed;
            match fault {
                None => {}
                Some(Fault {
                    host: Some(host), ..
                }) => self.host_fault(core, process, host)?,
                Some(Fault { va, access, .. }) => self.fault(core, process, va, access)?,
            }
        }
        Ok(())
    }

    /// Lines are followed from here on.
    pub(super) fn begin_filtered_warming(&mut self) {
        self.recent_lines
            .iter_mut()
            .for_each(RecentLineFilter::forget);
        // An answer to what the program asks is warmed as ever.
        let alone = self.cores.len() == 1 && !self.os.has_shortcut();
        let Some(process) = self.processes.values().next() else {
            return;
        };
        let view = self.os.view(process.pid);
        for core in &mut self.cores {
            core.begin_filtered_warming(&view, alone);
        }
    }

    /// Up to here.
    pub(super) fn end_filtered_warming(&mut self) {
        for core in &mut self.cores {
            core.end_filtered_warming();
        }
    }

    /// The clock of `core` runs on at the rate of the last sample.
    pub(super) fn advance_clock(&mut self, core: usize, done: Work) {
        self.cores[core].advance_clock(done.instructions, self.gap_cpi_milli);
    }
}
