//! Phase plan of a run: which work is fast-forwarded, warmed and measured.
//!
//! A run passes through fast-forwarding ([`Phase::Skip`]), timed warm-up and the measured part. With
//! sampling, the measured part is a sequence of samples. [`stretches`] divides the gap before each
//! sample, counted back from the sample: detailed warm-up, functional warming, filtered functional
//! warming, fast-forwarding. [`PhasePlan`] moves from phase to phase as the machine reports its work.
//! [`Phase::detail`] is how much of the instruction stream the phase needs from the fan-out.

use pagewalk_units::{Error, Rng, RunOption, rng, text};
use rand::RngExt;

use crate::limits::{Limits, SAMPLE_DETAILED_WARMUP, Sample, Warming};
use crate::regions::{Places, Regions};
use crate::work::Work;

/// Treatment of the instructions that the machine executes now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Fast-forwarding until the region of interest begins.
    UntilRoi,
    /// Fast-forwarding over a given amount of work.
    Skip,
    /// Timed, not measured.
    Warmup,
    /// Timed and measured.
    Measure,
    /// Between samples: fast-forwarding.
    SampleSkip,
    /// Between samples: filtered functional warming.
    FilteredWarm,
    /// Between samples: functional warming by every access and branch.
    FunctionalWarm,
    /// Detailed warm-up before a sample: timed, not measured.
    DetailedWarm,
    /// CPI probe: timed but not measured, to learn the CPI by which the clock advances in gaps.
    CpiProbe,
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
            Phase::Measure | Phase::SampleMeasure | Phase::DetailedWarm => "measure",
            Phase::SampleSkip | Phase::FilteredWarm | Phase::FunctionalWarm | Phase::CpiProbe => {
                "between samples"
            }
            Phase::Done => "done",
        }
    }

    /// True if only pages are mapped.
    pub(crate) fn skips(self) -> bool {
        matches!(self, Phase::UntilRoi | Phase::Skip)
    }

    /// True if the cores' timing models advance the clock.
    pub(crate) fn takes_time(self) -> bool {
        !self.skips() && !self.is_gap() && self != Phase::FunctionalWarm
    }

    /// Between samples, while the clock advances at the CPI of the last sample and most operations are
    /// not generated.
    pub(crate) fn is_gap(self) -> bool {
        matches!(self, Phase::SampleSkip | Phase::FilteredWarm)
    }

    /// Detail of the instruction stream that the phase needs.
    pub(crate) fn detail(self) -> Detail {
        match self {
            Phase::UntilRoi | Phase::Skip | Phase::SampleSkip => Detail::FastForward,
            Phase::FilteredWarm => Detail::FilteredWarm,
            _ => Detail::Full,
        }
    }

    /// True after fast-forwarding and warm-up.
    pub(crate) fn is_measured_part(self) -> bool {
        matches!(
            self,
            Phase::Measure
                | Phase::SampleSkip
                | Phase::FilteredWarm
                | Phase::FunctionalWarm
                | Phase::DetailedWarm
                | Phase::CpiProbe
                | Phase::SampleMeasure
        )
    }

    /// True if statistics count.
    pub(crate) fn measures(self) -> bool {
        matches!(self, Phase::Measure | Phase::SampleMeasure)
    }
}

/// Detail of the instruction stream that a machine needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Detail {
    /// First touches of pages.
    FastForward,
    /// Accesses that the [recent-line filter](pagewalk_stream::RecentLineFilter) lets through.
    FilteredWarm,
    /// All operations.
    Full,
}

/// A sample of `length` instructions and the phases of the `gap` instructions before it, in reverse
/// order. Without `warming`, functional warming takes the whole gap but the detailed warm-up.
pub(crate) fn stretches(gap: u64, length: u64, warming: Option<Warming>) -> [(Phase, u64); 5] {
    let mut gap = gap;
    let mut take = |most: u64| {
        let taken = most.min(gap);
        gap -= taken;
        taken
    };
    let detailed = take(warming.map_or(SAMPLE_DETAILED_WARMUP, |_| Warming::DETAILED_WARMUP));
    let warmed = take(warming.map_or(u64::MAX, |w| w.warmed));
    let filtered = take(warming.map_or(0, |w| w.filtered.most()));
    [
        (Phase::SampleMeasure, length),
        (Phase::DetailedWarm, detailed),
        (Phase::FunctionalWarm, warmed),
        (Phase::FilteredWarm, filtered),
        (Phase::SampleSkip, gap),
    ]
}

/// Places of the samples in their periods, and the phases before each sample.
#[derive(Clone, Debug)]
struct Samples {
    sample: Sample,
    draws: Rng,
    /// Start of the next sample's period, in instructions of the measured part.
    period: u64,
    /// Instructions of the measured part in all phases returned so far.
    done: u64,
    /// Samples placed so far.
    placed: u64,
    /// Number of samples at which a shard ends.
    end: Option<u64>,
    /// Phases up to the end of the last placed sample, in reverse order.
    next: Vec<(Phase, u64)>,
}

/// Consecutive samples that one machine simulates; samples are numbered from 0. The machine of a later
/// shard fast-forwards to its first sample. Its clock advances at the CPI of sample 0, which it times as
/// a CPI probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Shard {
    /// The first sample.
    pub(crate) first: u64,
    /// One past the last sample; `None` means all samples to the end of the measured part.
    pub(crate) end: Option<u64>,
}

impl Samples {
    fn new(sample: Sample, seed: u64, shard: Shard) -> Self {
        let mut samples = Samples {
            sample,
            draws: rng(seed, "samples"),
            period: 0,
            done: 0,
            placed: 0,
            end: shard.end,
            next: Vec::new(),
        };
        if shard.first > 0 {
            samples.schedule_next();
            samples.next[0].0 = Phase::CpiProbe;
            // Draws the places of the skipped samples, so that later ones lie where they do in an
            // unsharded run.
            while samples.placed < shard.first {
                samples.place();
            }
        }
        samples
    }

    /// The next phase and its length; nothing after the last sample.
    fn next(&mut self) -> Option<(Phase, u64)> {
        loop {
            if self.next.is_empty() {
                if self.end.is_some_and(|end| self.placed >= end) {
                    return None;
                }
                self.schedule_next();
            }
            if let Some((phase, length)) = self.next.pop()
                && length > 0
            {
                self.done += length;
                return Some((phase, length));
            }
        }
    }

    /// Schedules the next sample and the phases before it.
    fn schedule_next(&mut self) {
        let gap = self.place() - self.done;
        self.next = stretches(gap, self.sample.length, self.sample.warming).to_vec();
    }

    /// Draws the place of the next sample, in instructions from the start of the measured part.
    fn place(&mut self) -> u64 {
        let Sample {
            length,
            period,
            warming,
        } = self.sample;
        let at = match warming {
            None => period - length,
            // A uniformly random place avoids aliasing with periodic behaviour of the program. The first
            // sample leaves room for its detailed warm-up.
            Some(_) => {
                let last = period - length;
                let first = if self.period == 0 {
                    Warming::DETAILED_WARMUP
                } else {
                    0
                };
                self.draws.random_range(first.min(last)..=last)
            }
        };
        let place = self.period + at;
        self.period += period;
        self.placed += 1;
        place
    }
}

/// Layout of a measured part that is not measured completely.
#[derive(Clone, Debug)]
enum Layout {
    /// One sample in each period.
    Periodic(Samples),
    /// Regions at given places.
    Places(Places),
}

impl Layout {
    /// The next phase and its length; nothing after the last sample or region.
    fn next(&mut self) -> Option<(Phase, u64)> {
        match self {
            Layout::Periodic(samples) => samples.next(),
            Layout::Places(places) => places.next(),
        }
    }
}

/// Moves through the phases as work is done.
#[derive(Clone, Debug)]
pub(crate) struct PhasePlan {
    limits: Limits,
    /// The end of a region of interest counts as a request.
    regions: bool,
    pub(crate) phase: Phase,
    /// Work until the phase ends, by instructions or requests, whichever limit comes first.
    pub(crate) left: Work,
    /// Work of the measured part that has no phase yet.
    part_left: Work,
    samples: Option<Layout>,
    /// Between two regions of interest: the phase and its remaining work, resumed in the next region.
    outside: Option<(Phase, Work)>,
}

impl PhasePlan {
    /// `regions`: the end of a region of interest counts as a request. `seed` determines the places of
    /// samples.
    pub(crate) fn new(limits: Limits, regions: bool, seed: u64) -> Self {
        PhasePlan::of_shard(limits, regions, seed, Shard::default())
    }

    /// As [`PhasePlan::new`], restricted to the samples of one shard.
    pub(crate) fn of_shard(mut limits: Limits, regions: bool, seed: u64, shard: Shard) -> Self {
        if shard.first > 0 {
            // The warm-up before sample 0 does not matter to a later shard, so it is fast-forwarded too.
            limits.skip += std::mem::take(&mut limits.warmup);
        }
        let samples = limits.sample.map(|s| Samples::new(s, seed, shard));
        PhasePlan::with_layout(limits, regions, samples.map(Layout::Periodic))
    }

    /// Measures the regions of `places` and ends after the last one. `regions`: as for
    /// [`PhasePlan::new`].
    pub(crate) fn of_regions(places: &Regions, regions: bool) -> Self {
        let places = Layout::Places(Places::new(places));
        PhasePlan::with_layout(Limits::default(), regions, Some(places))
    }

    fn with_layout(limits: Limits, regions: bool, samples: Option<Layout>) -> Self {
        let mut plan = PhasePlan {
            limits,
            regions,
            phase: Phase::UntilRoi,
            left: Work::FOREVER,
            part_left: Work::FOREVER,
            samples,
            outside: None,
        };
        if !limits.roi {
            plan.after_roi();
        }
        plan
    }

    /// Plan of a mix. Its programs end after their own instructions, so the plan has no limit and ends by
    /// [`PhasePlan::finish`]. An error names the option that a mix does not support.
    pub(crate) fn of_mix(limits: Limits) -> Result<Self, Error> {
        if limits.sample.is_some() {
            return Err(Error::option(
                RunOption::Sample,
                text![
                    "the programs of a mix are measured side by side, without gaps; expected no ",
                    RunOption::Sample,
                    " with ",
                    RunOption::Mix
                ],
            ));
        }
        let endless = Limits {
            instructions: None,
            requests: None,
            roi: true,
            ..limits
        };
        Ok(PhasePlan::new(endless, false, 0))
    }

    /// Ends the measured part.
    pub(crate) fn finish(&mut self) {
        (self.phase, self.left) = (Phase::Done, Work::FOREVER);
    }

    fn after_roi(&mut self) {
        (self.phase, self.left) = (Phase::Skip, self.skipped());
        self.settle();
    }

    fn skipped(&self) -> Work {
        Self::amount(self.limits.skip, self.limits.skip_requests)
    }

    /// An amount in requests if there are any, else in instructions.
    fn amount(instructions: u64, requests: u64) -> Work {
        match requests {
            0 => Work::instructions(instructions),
            _ => Work::first_of(None, Some(requests)),
        }
    }

    /// Enters the next phase while the present one has no work left.
    fn settle(&mut self) {
        let limits = self.limits;
        while self.left.is_over() && self.phase != Phase::Done {
            (self.phase, self.left) = match self.phase {
                Phase::UntilRoi => (Phase::Skip, self.skipped()),
                Phase::Skip => (
                    Phase::Warmup,
                    Self::amount(limits.warmup, limits.warmup_requests),
                ),
                Phase::Warmup => {
                    self.part_left = Work::first_of(limits.instructions, limits.requests);
                    match self.samples {
                        None => (Phase::Measure, self.part_left),
                        Some(_) => self.sample_part(),
                    }
                }
                Phase::SampleSkip
                | Phase::FilteredWarm
                | Phase::FunctionalWarm
                | Phase::DetailedWarm
                | Phase::CpiProbe
                | Phase::SampleMeasure => self.sample_part(),
                Phase::Measure | Phase::Done => (Phase::Done, Work::FOREVER),
            };
        }
    }

    fn sample_part(&mut self) -> (Phase, Work) {
        let over = self.part_left.is_over();
        let samples = self.samples.as_mut().filter(|_| !over);
        let Some((phase, length)) = samples.and_then(Layout::next) else {
            return (Phase::Done, Work::FOREVER);
        };
        let left = Work {
            instructions: length.min(self.part_left.instructions),
            ..self.part_left
        };
        self.part_left = self.part_left.less(Work {
            requests: 0,
            ..left
        });
        (phase, left)
    }

    /// Records work; true if the phase has changed.
    pub(crate) fn advance(&mut self, done: Work) -> bool {
        let before = self.phase;
        self.left = self.left.less(done);
        if let Some(Layout::Places(places)) = &mut self.samples {
            places.advance(done.instructions);
        }
        if self.phase.is_measured_part() {
            self.part_left = self.part_left.less(Work {
                instructions: 0,
                ..done
            });
        }
        if self.left.is_over() {
            self.settle();
            // A phase may be succeeded by one of its kind, such as samples without a gap. That counts as
            // a change.
            return true;
        }
        before != self.phase
    }

    /// True if `done` ends the phase.
    pub(crate) fn ends_with(&self, done: Work) -> bool {
        self.left.less(done).is_over()
    }

    /// Enters the region of interest; true if the phase has changed.
    pub(crate) fn roi_begin(&mut self) -> bool {
        let waiting = self.phase == Phase::UntilRoi;
        if waiting {
            match self.outside.take() {
                Some(before) => (self.phase, self.left) = before,
                None => self.after_roi(),
            }
        }
        waiting
    }

    /// True if the end of a region of interest counts as a request.
    pub(crate) fn counts_regions(&self) -> bool {
        self.regions
    }

    /// Leaves the region of interest; true if the phase has changed.
    pub(crate) fn roi_end(&mut self) -> bool {
        let over = self.limits.roi && self.phase != Phase::UntilRoi && self.phase != Phase::Done;
        if over && self.regions && self.limits.requests.is_some() {
            self.outside = Some((self.phase, self.left));
            (self.phase, self.left) = (Phase::UntilRoi, Work::FOREVER);
        } else if over {
            (self.phase, self.left) = (Phase::Done, Work::FOREVER);
        }
        over
    }

    /// Number, from 1, of the region whose measurement is incomplete, and the number of all regions.
    pub(crate) fn unfinished_region(&self) -> Option<(usize, usize)> {
        match &self.samples {
            Some(Layout::Places(places)) if self.phase != Phase::Done => Some(places.number()),
            _ => None,
        }
    }

    /// Advice if the program ends before the measured part: the options that were given, and its `requests`.
    pub(crate) fn advice_to_begin(&self, requests: u64) -> String {
        let limits = &self.limits;
        let given = [
            ("--skip", limits.skip > 0),
            ("--skip-requests", limits.skip_requests > 0),
            ("--warmup", limits.warmup > 0),
            ("--warmup-requests", limits.warmup_requests > 0),
        ];
        let names: Vec<&str> = (given.iter().filter(|g| g.1)).map(|g| g.0).collect();
        let by_requests = limits.skip_requests > 0 || limits.warmup_requests > 0;
        let lower = format!("lower {}", names.join(" and "));
        match requests {
            _ if !by_requests => lower,
            0 => {
                format!("{lower}; it marked no request, as the end of a region of pagewalk.h is")
            }
            n => format!("{lower}; it made {n} requests"),
        }
    }

    /// True before the first region of interest, not between two.
    pub(crate) fn is_before_roi(&self) -> bool {
        self.phase == Phase::UntilRoi && self.outside.is_none()
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
    use super::{Limits, Phase, PhasePlan, Sample, Shard, Warming, Work};
    use crate::limits::FilteredLength;

    fn phases(limits: Limits, step: u64, n: u64) -> Vec<(Phase, u64)> {
        let mut plan = PhasePlan::new(limits, false, 1);
        let mut out: Vec<(Phase, u64)> = vec![];
        let mut done = 0;
        while done < n && plan.phase != Phase::Done {
            let take = step.min(plan.left.instructions);
            match out.last_mut() {
                Some(last) if last.0 == plan.phase => last.1 += take,
                _ => out.push((plan.phase, take)),
            }
            plan.advance(instructions(take));
            done += take;
        }
        out
    }

    fn instructions(instructions: u64) -> Work {
        Work {
            instructions,
            requests: 0,
        }
    }

    /// One request of ten instructions.
    const REQUEST: Work = Work {
        instructions: 10,
        requests: 1,
    };

    #[test]
    fn requests_are_skipped_warmed_and_measured_like_instructions() {
        let mut p = PhasePlan::new(
            Limits {
                skip_requests: 2,
                warmup_requests: 1,
                requests: Some(3),
                ..Limits::default()
            },
            false,
            1,
        );
        let mut seen = vec![];
        while p.phase != Phase::Done {
            seen.push(p.phase);
            p.advance(REQUEST);
        }
        let (skip, warm, measure) = (Phase::Skip, Phase::Warmup, Phase::Measure);
        assert_eq!(seen, [skip, skip, warm, measure, measure, measure]);
    }

    #[test]
    fn the_measured_part_ends_with_instructions_or_requests_whichever_comes_first() {
        for (most, requests) in [(25, 3), (1000, 4)] {
            let mut p = PhasePlan::new(
                Limits {
                    instructions: Some(most),
                    requests: Some(4),
                    ..Limits::default()
                },
                false,
                1,
            );
            let mut done = 0;
            while p.phase != Phase::Done {
                p.advance(REQUEST);
                done += 1;
            }
            assert_eq!(done, requests);
        }
    }

    #[test]
    fn samples_end_with_the_requests_asked_for() {
        let mut p = PhasePlan::new(
            Limits {
                requests: Some(1000),
                sample: Some(Sample {
                    length: 1000,
                    period: 5000,
                    warming: None,
                }),
                ..Limits::default()
            },
            false,
            1,
        );
        let mut requests = 0;
        while p.phase != Phase::Done {
            p.advance(REQUEST);
            requests += 1;
        }
        assert_eq!(requests, 1000);
    }

    #[test]
    fn regions_of_interest_are_measured_until_there_are_enough() {
        let limits = Limits {
            roi: true,
            requests: Some(2),
            ..Limits::default()
        };
        let mut p = PhasePlan::new(limits, true, 1);
        let region = Work {
            instructions: 0,
            requests: 1,
        };
        assert!(p.roi_begin() && !p.advance(instructions(50)));
        assert!(!p.advance(region) && p.roi_end());
        assert!(p.phase.skips() && !p.is_before_roi());
        assert!(!p.advance(instructions(500)), "between two regions");
        assert!(p.roi_begin() && p.phase == Phase::Measure);
        assert!(p.advance(region));
        assert_eq!(p.phase, Phase::Done);
    }

    #[test]
    fn fast_forward_warm_up_and_measured_part_come_in_this_order() {
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
    fn a_period_is_functional_warming_detailed_warm_up_and_sample() {
        let l = Limits {
            sample: Some(Sample {
                length: 1000,
                period: 10_000,
                warming: None,
            }),
            instructions: Some(20_000),
            ..Limits::default()
        };
        let one = [
            (Phase::FunctionalWarm, 6000),
            (Phase::DetailedWarm, 3000),
            (Phase::SampleMeasure, 1000),
        ];
        assert_eq!(phases(l, 500, 1_000_000), [one, one].concat());
    }

    #[test]
    fn samples_lie_in_the_same_places_whichever_machine_takes_them() {
        let limits = Limits {
            skip: 500,
            warmup: 200,
            sample: Some(Sample {
                length: 1000,
                period: 200_000,
                warming: Some(Warming {
                    filtered: FilteredLength::Last(3000),
                    warmed: 2000,
                }),
            }),
            instructions: Some(2_050_000),
            ..Limits::default()
        };
        // Place of each sample, end of the plan and number of CPI probes of a shard.
        let places = |shard| {
            let mut plan = PhasePlan::of_shard(limits, false, 7, shard);
            let (mut at, mut found, mut rates) = (0, vec![], 0);
            while plan.phase != Phase::Done {
                if plan.phase == Phase::SampleMeasure {
                    found.push((at, plan.left.instructions));
                }
                rates += u32::from(plan.phase == Phase::CpiProbe);
                let step = plan.left.instructions;
                plan.advance(instructions(step));
                at += step;
            }
            (found, at, rates)
        };
        let shard = |first, end| Shard { first, end };
        let (all, end, rates) = places(Shard::default());
        assert_eq!((end, rates, all.len() >= 10), (2_050_700, 0, true));
        let (mut found, first_end, _) = places(shard(0, Some(4)));
        assert_eq!(first_end, found[3].0 + 1000);
        for (first, last) in [(4, Some(5)), (5, Some(9)), (9, None)] {
            let (others, end, rates) = places(shard(first, last));
            assert_eq!(
                rates, 1,
                "a CPI probe gives the clock's rate before the first sample"
            );
            assert_eq!(end == 2_050_700, last.is_none());
            found.extend(others);
        }
        assert_eq!(found, all);
    }

    #[test]
    fn the_region_of_interest_bounds_everything() {
        let limits = Limits {
            roi: true,
            skip: 5,
            ..Limits::default()
        };
        let mut p = PhasePlan::new(limits, true, 1);
        assert!(p.phase.skips());
        assert!(!p.advance(instructions(1_000_000)));
        assert!(p.roi_begin());
        assert_eq!((p.phase, p.left.instructions), (Phase::Skip, 5));
        assert!(p.advance(instructions(5)));
        assert_eq!(p.phase, Phase::Measure);
        assert!(p.roi_end());
        assert_eq!(p.phase, Phase::Done);
    }
}
