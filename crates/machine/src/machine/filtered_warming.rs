//! Filtered functional warming: a cheaper form of functional warming for the gaps between samples.
//!
//! **Problem.** Functional warming processes every access of a gap, and gaps are most of a sampled run.
//!
//! **Idea.** An access to a line that was used a moment ago hits the first-level cache and TLB. It hardly
//! changes the levels below. A [`RecentLineFilter`] drops such accesses, and only the others warm caches
//! and TLBs.
//!
//! **Price.** Recency within the first levels and the history of the branch predictors are lost. When the
//! phase ends, these structures are marked stale, and the estimate reports the lookups that this makes
//! uncertain.
//!
//! **Calls.** `enter_phase` calls [`Machine::begin_filtered_warming`]. In [`Phase::FilteredWarm`] each
//! turn of a core calls [`Machine::warm_filtered`]. With a single thread the program has often applied
//! its own filter already, under the budget that the fan-out granted; its accesses arrive in
//! [`Batch::skipped`]. Accesses go to [`Core::warm_lines`](pagewalk_cpu::Core::warm_lines) in groups of
//! [`TOGETHER`]. `leave_phase` calls [`Machine::end_filtered_warming`].
//!
//! [`Batch::skipped`]: pagewalk_stream::Batch::skipped
//! [`Phase::FilteredWarm`]: crate::plan::Phase::FilteredWarm

use pagewalk_cpu::{CoreContext, TOGETHER};
use pagewalk_mmu::Fault;
use pagewalk_stream::{End, OpClass, ProcessId, RecentLineFilter, ThreadId};
use pagewalk_units::Access;

use super::{Machine, Outcome};
use crate::work::Work;

impl Machine {
    /// Warms by the batch of the thread on `core`, up to the end of the phase.
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
        // With one thread, accesses warm in complete groups, wherever batches end: an incomplete group
        // waits for the next batch. Anything else that happens first flushes it.
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

    /// Warms the TLBs and caches of `core` by accesses of `process`, and serves the faults on the way.
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

    /// Switches the cores to filtered warming.
    pub(super) fn begin_filtered_warming(&mut self) {
        self.recent_lines
            .iter_mut()
            .for_each(RecentLineFilter::forget);
        // Shortcut queries use ordinary functional warming, so such a machine does not keep LRU stacks.
        let alone = self.cores.len() == 1 && !self.os.has_shortcut();
        let Some(process) = self.processes.values().next() else {
            return;
        };
        let view = self.os.view(process.pid);
        for core in &mut self.cores {
            core.begin_filtered_warming(&view, alone);
        }
    }

    /// Switches the cores back.
    pub(super) fn end_filtered_warming(&mut self) {
        for core in &mut self.cores {
            core.end_filtered_warming();
        }
    }

    /// Advances the clock of `core` at the CPI of the last sample.
    pub(super) fn advance_clock(&mut self, core: usize, done: Work) {
        self.cores[core].advance_clock(done.instructions, self.gap_cpi_milli);
    }
}
