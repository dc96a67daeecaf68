//! Which part of a program is measured.

use serde::{Deserialize, Serialize};

/// Periodic sampling: of every `period` instructions the last `length` are
/// measured, the others only warm caches, TLBs and predictors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Instructions measured in each period.
    pub length: u64,
    /// Instructions from the start of one period to the next.
    pub period: u64,
}

/// What is skipped, what warms and what is measured, in instructions of all
/// threads together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Passed over: pages are mapped, nothing else happens.
    pub skip: u64,
    /// Simulated with time, but left out of every statistic.
    pub warmup: u64,
    /// Measured; `None`: to the program's end.
    pub instructions: Option<u64>,
    /// Skip up to the region of interest, and stop where it ends.
    pub roi: bool,
    /// Sampling of the measured part.
    pub sample: Option<Sample>,
}

/// Instructions simulated with time, unmeasured, right before each sample, so
/// that window and queues are full when it starts: several reorder buffers.
pub(crate) const SAMPLE_LEAD_IN: u64 = 3000;

impl Limits {
    /// Refuses what makes no sense together.
    ///
    /// # Errors
    /// One sentence that names the option.
    pub fn validate(&self) -> Result<(), String> {
        if self.instructions == Some(0) {
            return Err(
                "--instructions 0: nothing would be measured; expected at least 1".to_owned(),
            );
        }
        if let Some(s) = self.sample {
            if s.length == 0 {
                return Err(
                    "--sample: LENGTH is 0; expected LENGTH/PERIOD such as 10k/1M".to_owned(),
                );
            }
            if s.period.saturating_sub(s.length) < SAMPLE_LEAD_IN {
                return Err(format!(
                    "--sample {}/{}: PERIOD has to be at least LENGTH + {SAMPLE_LEAD_IN} (the lead-in that fills the window)",
                    s.length, s.period
                ));
            }
        }
        Ok(())
    }
}

/// What the machine does with the instructions that come now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Skipping until the region of interest begins.
    UntilRoi,
    /// Skipping a number of instructions.
    Skip,
    /// Timed, not measured.
    Warmup,
    /// Timed and measured.
    Measure,
    /// Between samples: state only.
    SampleWarm,
    /// Before a sample: timed, not measured.
    SampleLeadIn,
    /// A sample: timed and measured.
    SampleMeasure,
    /// Over.
    Done,
}

impl Phase {
    /// Word for the progress bar.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Phase::UntilRoi | Phase::Skip => "skip",
            Phase::Warmup => "warm-up",
            Phase::Measure | Phase::SampleMeasure | Phase::SampleLeadIn => "measure",
            Phase::SampleWarm => "between samples",
            Phase::Done => "done",
        }
    }

    /// Whether nothing but pages is touched.
    pub(crate) fn skips(self) -> bool {
        matches!(self, Phase::UntilRoi | Phase::Skip)
    }

    /// Whether the clock runs by what the program does.
    pub(crate) fn takes_time(self) -> bool {
        !self.skips() && self != Phase::SampleWarm
    }

    /// Whether statistics count.
    pub(crate) fn measures(self) -> bool {
        matches!(self, Phase::Measure | Phase::SampleMeasure)
    }
}

/// Walks through the phases by counting instructions.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    limits: Limits,
    pub(crate) phase: Phase,
    /// Instructions until the phase ends.
    pub(crate) left: u64,
    /// Instructions of the measured part, samples and what lies between them, still to come.
    part_left: u64,
}

const FOREVER: u64 = u64::MAX;

impl Plan {
    pub(crate) fn new(limits: Limits) -> Self {
        let mut plan = Plan {
            limits,
            phase: Phase::UntilRoi,
            left: FOREVER,
            part_left: FOREVER,
        };
        if !limits.roi {
            plan.after_roi();
        }
        plan
    }

    fn after_roi(&mut self) {
        (self.phase, self.left) = (Phase::Skip, self.limits.skip);
        self.settle();
    }

    /// Enters the next phase while the present one has nothing left.
    fn settle(&mut self) {
        while self.left == 0 && self.phase != Phase::Done {
            (self.phase, self.left) = match (self.phase, self.limits.sample) {
                (Phase::UntilRoi, _) => (Phase::Skip, self.limits.skip),
                (Phase::Skip, _) => (Phase::Warmup, self.limits.warmup),
                (Phase::Warmup, None) => {
                    (Phase::Measure, self.limits.instructions.unwrap_or(FOREVER))
                }
                (Phase::Warmup, Some(s)) => {
                    self.part_left = self.limits.instructions.unwrap_or(FOREVER);
                    self.sample_part(Phase::SampleWarm, s.period - s.length - SAMPLE_LEAD_IN)
                }
                (Phase::SampleMeasure, Some(s)) => {
                    self.sample_part(Phase::SampleWarm, s.period - s.length - SAMPLE_LEAD_IN)
                }
                (Phase::SampleWarm, Some(_)) => {
                    self.sample_part(Phase::SampleLeadIn, SAMPLE_LEAD_IN)
                }
                (Phase::SampleLeadIn, Some(s)) => self.sample_part(Phase::SampleMeasure, s.length),
                (Phase::Measure | Phase::Done, _)
                | (Phase::SampleWarm | Phase::SampleLeadIn | Phase::SampleMeasure, None) => {
                    (Phase::Done, 0)
                }
            };
        }
    }

    fn sample_part(&mut self, phase: Phase, length: u64) -> (Phase, u64) {
        if self.part_left == 0 {
            return (Phase::Done, 0);
        }
        let length = length.min(self.part_left);
        if self.part_left != FOREVER {
            self.part_left -= length;
        }
        (phase, length)
    }

    /// `n` instructions are done; whether the phase has changed.
    pub(crate) fn advance(&mut self, n: u64) -> bool {
        let before = self.phase;
        if self.left != FOREVER {
            self.left = self.left.saturating_sub(n);
        }
        if self.left == 0 {
            self.settle();
            // A phase may follow itself (samples without a gap): that is a change too.
            return true;
        }
        before != self.phase
    }

    /// The region of interest begins; whether the phase has changed.
    pub(crate) fn roi_begin(&mut self) -> bool {
        let waiting = self.phase == Phase::UntilRoi;
        if waiting {
            self.after_roi();
        }
        waiting
    }

    /// The region of interest ends; whether the phase has changed.
    pub(crate) fn roi_end(&mut self) -> bool {
        let over = self.limits.roi && self.phase != Phase::UntilRoi && self.phase != Phase::Done;
        if over {
            (self.phase, self.left) = (Phase::Done, 0);
        }
        over
    }

    /// Instructions of all phases together, if they are bounded.
    pub(crate) fn total(limits: &Limits) -> Option<u64> {
        limits
            .instructions
            .map(|n| n.saturating_add(limits.skip).saturating_add(limits.warmup))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phases(limits: Limits, step: u64, n: u64) -> Vec<(Phase, u64)> {
        let mut plan = Plan::new(limits);
        let mut out: Vec<(Phase, u64)> = vec![];
        let mut done = 0;
        while done < n && plan.phase != Phase::Done {
            let take = step.min(plan.left);
            match out.last_mut() {
                Some(last) if last.0 == plan.phase => last.1 += take,
                _ => out.push((plan.phase, take)),
            }
            plan.advance(take);
            done += take;
        }
        out
    }

    #[test]
    fn skip_warm_up_and_measured_part_follow_each_other() {
        let l = Limits {
            skip: 10,
            warmup: 20,
            instructions: Some(30),
            ..Limits::default()
        };
        let want = vec![(Phase::Skip, 10), (Phase::Warmup, 20), (Phase::Measure, 30)];
        assert_eq!(phases(l, 7, 1000), want);
        assert_eq!(phases(l, 1000, 1000), want);
    }

    #[test]
    fn phases_of_no_length_are_left_out() {
        let l = Limits {
            instructions: Some(5),
            ..Limits::default()
        };
        assert_eq!(phases(l, 1, 100), vec![(Phase::Measure, 5)]);
    }

    #[test]
    fn a_period_is_warming_lead_in_and_sample() {
        let l = Limits {
            sample: Some(Sample {
                length: 1000,
                period: 10_000,
            }),
            instructions: Some(20_000),
            ..Limits::default()
        };
        let one = [
            (Phase::SampleWarm, 6000),
            (Phase::SampleLeadIn, 3000),
            (Phase::SampleMeasure, 1000),
        ];
        assert_eq!(phases(l, 500, 1_000_000), [one, one].concat());
    }

    #[test]
    fn the_region_of_interest_bounds_everything() {
        let mut p = Plan::new(Limits {
            roi: true,
            skip: 5,
            ..Limits::default()
        });
        assert!(p.phase.skips());
        assert!(!p.advance(1_000_000));
        assert!(p.roi_begin());
        assert_eq!((p.phase, p.left), (Phase::Skip, 5));
        assert!(p.advance(5));
        assert_eq!(p.phase, Phase::Measure);
        assert!(p.roi_end());
        assert_eq!(p.phase, Phase::Done);
    }

    #[test]
    fn contradictory_limits_are_refused() {
        let bad = Limits {
            sample: Some(Sample {
                length: 10,
                period: 20,
            }),
            ..Limits::default()
        };
        assert!(bad.validate().unwrap_err().contains("PERIOD"));
        assert!(
            Limits {
                instructions: Some(0),
                ..Limits::default()
            }
            .validate()
            .is_err()
        );
    }
}
