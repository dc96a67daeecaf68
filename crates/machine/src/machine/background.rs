//! Time of kernel threads: khugepaged, page migration and swapping.
//!
//! While time passes, kernel threads run by the clocks of the cores. While the machine fast-forwards,
//! their time is an estimate: one cycle an instruction plus the program's kernel time, with all threads
//! in sequence. Populated memory counts with the kernel time for it.

use pagewalk_os::{Effects, PageMover};
use pagewalk_units::Cycle;

use super::{Machine, Outcome};
use crate::plan::Phase;

/// Progress of the kernel threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Background {
    /// Local time up to which they have run.
    at: u64,
    /// Time that they still have to run for, and that no core's clock contains.
    untimed: Cycle,
    /// The sampled measured part has begun.
    in_samples: bool,
}

impl Background {
    /// Adds time that the program would have taken if time were passing.
    pub(super) fn owe(&mut self, cycles: Cycle) {
        self.untimed += cycles;
    }

    /// Continues at local time `at`, when the clocks run again.
    pub(super) fn restart(&mut self, at: u64) {
        self.at = at;
    }
}

impl Machine {
    /// Runs the kernel threads up to the local time of `core`, whose turn it is.
    pub(super) fn run_background(&mut self, core: usize) -> Result<(), Outcome> {
        if self.os.until_kernel_thread().is_none() {
            return Ok(());
        }
        let at = self.local_time(core);
        let clock = &mut self.background;
        let passed = at.saturating_sub(clock.at) + std::mem::take(&mut clock.untimed);
        clock.at = clock.at.max(at);
        if passed == 0 {
            return Ok(());
        }
        let mut fx = std::mem::take(&mut self.effects);
        let mut done = self.os.elapse(passed, &mut fx);
        self.shoot_down(core, None, &mut fx);
        for mover in PageMover::ALL {
            let mut passed = passed;
            loop {
                done = done.and_then(|()| self.os.move_pages(mover, passed, &mut fx));
                self.shoot_down(core, Some(mover), &mut fx);
                if done.is_err() || !self.os.mover_is_due(mover) {
                    break;
                }
                passed = 0;
            }
        }
        self.effects = fx;
        done.map_err(|e| self.os_error(&e))
    }

    /// Time of `core` at which the next kernel thread runs.
    pub(super) fn until_background(&self, core: usize) -> Cycle {
        let left = self.os.until_kernel_thread();
        left.map_or(Cycle::MAX, |c| self.cores[core].now().saturating_add(c))
    }

    /// Invalidates what khugepaged has collapsed or `by` has moved. Cores that may use it are interrupted
    /// once for each collapse or page.
    fn shoot_down(&mut self, core: usize, by: Option<PageMover>, fx: &mut Effects) {
        let timed = self.plan.phase.takes_time();
        let remote = self.os.prices().shootdown_remote;
        if !fx.invalidate.is_empty() {
            self.touched.clear();
        }
        let mut cycles = 0;
        for what in fx.invalidate.drain(..) {
            let stolen = match by {
                None => self.os.is_stolen(&what),
                Some(mover) => self.os.mover_is_stolen(mover),
            };
            let here = stolen.then_some(core);
            let mut interrupted = 0;
            let forgetting = self.forget(&what);
            cycles += forgetting;
            for c in 0..self.cores.len() {
                let runs = self.on_core[c].map(|id| {
                    let process = self.threads[&id].process;
                    self.os.asid(self.processes[&process].pid)
                });
                if runs == Some(what.asid()) && here != Some(c) {
                    interrupted += 1;
                    if timed {
                        self.cores[c].kernel(remote);
                    }
                }
            }
            cycles += match by {
                None => self.os.shot_down(&what, interrupted),
                Some(mover) => self.os.interrupted_by(mover, interrupted, forgetting),
            };
        }
        fx.cycles += cycles;
        if timed && fx.cycles > 0 {
            if self.has_parts() {
                self.charge(core);
            }
            self.cores[core].kernel(fx.cycles);
            if self.has_parts() {
                self.charge_as(core, None);
            }
        }
        fx.cycles = 0;
    }

    /// Collapses all that khugepaged would ever collapse before warm-up and before the measured part, if
    /// it is to be settled.
    pub(super) fn settle_memory(&mut self) -> Result<(), Outcome> {
        let phase = self.plan.phase;
        let begins = match phase {
            Phase::Warmup | Phase::Measure => true,
            _ => {
                phase.is_measured_part()
                    && !std::mem::replace(&mut self.background.in_samples, true)
            }
        };
        if !begins {
            return Ok(());
        }
        let mut fx = Effects::default();
        let done = self.os.settle(&mut fx);
        if !fx.invalidate.is_empty() {
            self.touched.clear();
        }
        for what in &fx.invalidate {
            // No time passes, so the kernel time is dropped.
            let _ = self.forget(what);
        }
        done.map_err(|e| self.os_error(&e))
    }
}
