//! From phase to phase: what is measured, and how a run ends.

use super::{Machine, Outcome};
use crate::measure::slowest;
use crate::plan::{Detail, Phase};
use crate::work::Work;

impl Machine {
    pub(super) fn enter_phase(&mut self) {
        if !self.plan.phase.skips() {
            self.forget_skipped();
        }
        if let Err(outcome) = self.settle_memory() {
            self.stop(outcome);
            return;
        }
        match self.plan.phase {
            Phase::SampleSkip => self.mark_stale(false),
            Phase::CpiProbe => self.cpi_probe = Some((self.times(), self.executed.instructions)),
            Phase::FilteredWarm => self.begin_filtered_warming(),
            _ => {}
        }
        if self.plan.phase.measures() {
            self.begin_parts();
            let now = self.snapshot();
            self.measured.begin(now);
        }
        self.harvest_walks();
        if self.plan.phase == Phase::Done && self.outcome.is_none() {
            self.outcome = Some(Outcome::Complete);
        }
    }

    /// What was passed over leaves it unknown what is in TLBs and caches: in all of them, or where
    /// lines were `followed`, in those that would have held back what was not.
    fn mark_stale(&mut self, followed: bool) {
        for core in &mut self.cores {
            core.mark_stale(followed);
        }
        if !followed {
            self.shared.mark_stale();
        }
    }

    pub(super) fn leave_phase(&mut self) {
        if self.plan.phase == Phase::FilteredWarm {
            self.end_filtered_warming();
            self.mark_stale(true);
        }
        let mut cpi = None;
        if let Some((times, before)) = self.cpi_probe.take() {
            let instructions = self.executed.instructions - before;
            let cycles = slowest(&self.times(), &times);
            cpi = (instructions > 0).then(|| cycles as f64 / instructions as f64);
        }
        if self.measured.is_open() {
            self.settle_accounts();
            let now = self.snapshot();
            cpi = self.measured.end(&now);
        }
        if let Some(cpi) = cpi {
            self.gap_cpi_milli = (cpi * 1000.0).round().max(1.0) as u64;
        }
    }

    /// Work was done: intervals and phases end where they were asked to.
    pub(super) fn count(&mut self, done: Work) {
        self.executed += done;
        if self.plan.phase.detail() == Detail::Full {
            self.simulated += done.instructions;
        }
        if self.measured.until_interval(self.executed.instructions) == 0 {
            let now = self.snapshot();
            self.measured.interval(now);
        }
        if self.plan.ends_with(done) {
            self.leave_phase();
        }
        if self.plan.advance(done) {
            self.enter_phase();
        }
    }

    /// Ends the run: what has been measured so far stays.
    pub(crate) fn stop(&mut self, outcome: Outcome) {
        if self.outcome.is_none() {
            self.leave_phase();
            self.outcome = Some(outcome);
        }
    }

    /// The program is over, which is an error if it is before the measured part.
    pub(super) fn finish_program(&mut self) {
        self.leave_phase();
        self.outcome = Some(if let Some((number, of)) = self.plan.unfinished_region() {
            Outcome::Program(format!(
                "the program ended after {} instructions, before the end of region {number} of {of}: expected the regions of this trace (--regions)",
                self.executed.instructions
            ))
        } else if self.plan.is_before_roi() {
            Outcome::Program(
                "the program ended and its region of interest never began: leave out --roi, or mark the region with pagewalk.h".to_owned(),
            )
        } else if matches!(self.plan.phase, Phase::Skip | Phase::Warmup) {
            Outcome::Program(format!(
                "the program ended after {} instructions, before the measured part began: lower --skip and --warmup",
                self.executed.instructions
            ))
        } else {
            Outcome::Complete
        });
        self.plan.phase = Phase::Done;
    }

    /// Keeps the first `walks` walks of each core in the measured part.
    pub(crate) fn record_walks(&mut self, walks: usize) {
        self.walks_wanted = walks;
        if self.plan.phase.measures() {
            self.harvest_walks();
        }
    }

    /// Takes over what the MMUs have recorded, and switches them on and off.
    pub(super) fn harvest_walks(&mut self) {
        if self.walks_wanted == 0 {
            return;
        }
        for (core, kept) in self.cores.iter_mut().zip(&mut self.walks) {
            kept.extend(core.mmu.take_walk_records());
            kept.truncate(self.walks_wanted);
            core.mmu
                .record_walks(self.plan.phase.measures() && kept.len() < self.walks_wanted);
        }
        if self.walks.iter().all(|w| w.len() >= self.walks_wanted) {
            self.walks_wanted = 0;
        }
    }

    pub(super) fn begin_roi(&mut self) {
        self.roi_seen = true;
        if self.plan.roi_begin() {
            self.enter_phase();
        }
    }

    pub(super) fn end_roi(&mut self) {
        if self.plan.counts_regions() {
            self.count(Work {
                instructions: 0,
                requests: 1,
            });
        }
        let mut plan = self.plan.clone();
        if plan.roi_end() {
            // The phase that ends is measured before the plan forgets it.
            self.leave_phase();
            self.plan = plan;
            self.enter_phase();
        }
    }
}
