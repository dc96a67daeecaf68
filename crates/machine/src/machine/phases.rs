//! Actions at phase boundaries, and the end of a run.
//!
//! [`Machine::count`] reports work to the phase plan. When a phase ends, [`Machine::leave_phase`] closes
//! its measurement and [`Machine::enter_phase`] prepares the next one. Entering a fast-forwarded gap
//! marks all caches, TLBs and predictors as stale. Leaving filtered warming marks only those that it does
//! not keep up to date.

use pagewalk_stream::Death;

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
            self.outcome = Some(self.completed());
        }
    }

    /// The outcome of a run that has reached its end: complete, unless a process died.
    fn completed(&self) -> Outcome {
        if self.deaths.is_empty() {
            Outcome::Complete
        } else {
            Outcome::Died(Death::sentences(&self.deaths).join("; "))
        }
    }

    /// Marks contents as stale. After filtered functional warming (`filtered`) only the first levels and
    /// the predictors are marked; otherwise all TLBs, caches and predictors.
    fn mark_stale(&mut self, filtered: bool) {
        for core in &mut self.cores {
            core.mark_stale(filtered);
        }
        if !filtered {
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

    /// Counts work. Ends intervals and phases at their limits.
    pub(super) fn count(&mut self, done: Work) {
        self.executed += done;
        if self.plan.phase.detail() == Detail::Full {
            self.simulated += done.instructions;
        }
        if self.measured.until_interval(self.executed.instructions) == 0 {
            let now = self.snapshot();
            self.measured.interval(now);
        }
        if self.measured.half_ends(self.executed) {
            let times = self.times();
            self.measured.end_half(self.executed, &times);
        }
        if self.plan.ends_with(done) {
            self.leave_phase();
        }
        if self.plan.advance(done) {
            self.enter_phase();
        }
    }

    /// Ends the run, and keeps what has been measured.
    pub(crate) fn stop(&mut self, outcome: Outcome) {
        if self.outcome.is_none() {
            self.leave_phase();
            self.outcome = Some(outcome);
        }
    }

    /// Ends the run because the program has ended. That is an error before the measured part. If the program has died,
    /// its death is the cause of that.
    pub(super) fn finish_program(&mut self) {
        self.program_ended = true;
        self.leave_phase();
        let early = if let Some((number, of)) = self.plan.unfinished_region() {
            Some(format!(
                "the program ended after {} instructions, before the end of region {number} of {of}: expected the regions of this trace (--regions)",
                self.executed.instructions
            ))
        } else if self.plan.is_before_roi() {
            Some(
                "the program ended and its region of interest never began: leave out --roi, or mark the region with pagewalk.h".to_owned(),
            )
        } else if matches!(self.plan.phase, Phase::Skip | Phase::Warmup) {
            Some(format!(
                "the program ended after {} instructions, before the measured part began: {}",
                self.executed.instructions,
                self.plan.advice_to_begin(self.executed.requests)
            ))
        } else {
            None
        };
        self.outcome = Some(match (self.completed(), early) {
            (Outcome::Died(how), Some(early)) => Outcome::Died(format!("{how}; {early}")),
            (Outcome::Complete, Some(early)) => Outcome::Program(early),
            (outcome, _) => outcome,
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

    /// Takes the walks that the MMUs have recorded, and switches their recording on or off.
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
            // Measures the phase that ends before the plan leaves it.
            self.leave_phase();
            self.plan = plan;
            self.enter_phase();
        }
    }
}
