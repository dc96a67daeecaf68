//! Filtered functional warming: a cheaper form of functional warming for the gaps between samples.
//!
//! **Problem.** Functional warming processes every access of a gap, and gaps are most of a sampled run.
//!
//! **Idea.** An access to one of the most recently used lines hits the first-level cache and TLB, and the
//! levels below hardly change. A [`RecentLineFilter`] drops these accesses. Only the others warm the L2
//! TLB, the walk caches, the L2 and the L3.
//!
//! **Price.** The first levels and the branch predictors miss all changes of the phase. When it ends,
//! they are marked stale, and the estimate reports the lookups whose outcome this makes uncertain.
//!
//! **Calls.** `enter_phase` calls [`Machine::begin_filtered_warming`]. In [`Phase::FilteredWarm`] each
//! turn of a core calls [`Machine::warm_filtered`]. A program with one thread may have applied such a
//! filter itself, within the fast-forward budget; its accesses then arrive in [`Batch::skipped`].
//! Accesses go to [`Core::warm_lines`](pagewalk_cpu::Core::warm_lines) in groups of
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
        let mut ends_in_query = false;
        while at < ops.len() && !ends_in_query && done.is_within(left) {
            let op = &ops[at];
            lines.filter(op, |at, access| accesses.push((at, access)));
            done += Work::of(op);
            ends_in_query = op.kind == OpClass::Query;
            at += 1;
        }
        thread.at = at;
        // With one thread, accesses warm in complete groups, wherever batches end: an incomplete group
        // waits for the next batch. Anything else that happens first flushes it.
        let goes_on = item.end == End::More && !ends_in_query && done.is_within(left);
        let whole = if goes_on && self.threads.len() == 1 {
            accesses.len() / TOGETHER * TOGETHER
        } else {
            accesses.len()
        };
        let warmed = self.warm_lines(core, process, &accesses[..whole]);
        accesses.drain(..whole);
        self.to_warm = accesses;
        warmed?;
        if ends_in_query {
            self.run_query(id, core, &item, at - 1)?;
        }
        let space = self.os.asid(self.processes[&process].pid);
        self.train_wrong_paths(core, space, &item.batch, from..at);
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
        self.shared.set_warming_clock(self.cores[core].now());
        let mut at = 0;
        while at < accesses.len() {
            let pid = self.processes[&process].pid;
            let view = self.os.view(pid);
            let context = CoreContext {
                asid: self.os.asid(pid),
                view: &view,
                tiers: self.os.tiers(),
                below: &mut self.shared,
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
        // LRU stacks replace TLBs and the L2 only if nothing else accesses these. Other cores do, and so
        // do shortcut queries, which always use ordinary functional warming.
        let lru_stacks = self.cores.len() == 1 && !self.os.has_shortcut();
        let Some(process) = self.processes.values().next() else {
            return;
        };
        let view = self.os.view(process.pid);
        for core in &mut self.cores {
            core.begin_filtered_warming(&view, lru_stacks);
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
