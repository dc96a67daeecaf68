//! Regions that represent a whole trace: their places, and the weighted result.

use std::sync::Arc;

use pagewalk_stats::{Distribution, Spread, Tree};
use pagewalk_stream::Facts;
use pagewalk_structures::StaleOutcomes;
use pagewalk_units::{Error, RunOption, text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::estimate::{self, SampleCounts, WarmingError};
use crate::limits::{FilteredLength, Limits, Warming};
use crate::measure::Measured;
use crate::options::Options;
use crate::plan::{Phase, stretches};
use crate::precise::WARMED;
use crate::work::Work;

/// Tolerance of the sum of weights around 1.
const NEAR: f64 = 1e-6;

/// A stretch of a trace, with the share of the trace that it represents.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Region {
    /// Instructions of the trace before it.
    pub at: u64,
    /// Instructions in it.
    pub instructions: u64,
    /// Weight: its share of the trace. The weights of all regions add up to 1.
    pub weight: f64,
}

/// Regions of a trace in the order of their instructions. Only they are simulated in detail.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RequestedRegions")]
pub struct Regions {
    /// The regions.
    pub regions: Vec<Region>,
    /// Warming before each region.
    #[serde(default = "default_warming")]
    pub warming: Warming,
    /// Instructions of the trace that the regions belong to, if known. Other traces are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_instructions: Option<u64>,
}

/// Default warming, as before samples with a required precision.
fn default_warming() -> Warming {
    Warming {
        filtered: FilteredLength::All,
        warmed: WARMED,
    }
}

impl Regions {
    /// Refuses invalid regions, and `options` that contradict them.
    ///
    /// # Errors
    /// One sentence that names the option.
    pub(crate) fn validate(&self, options: &Options) -> Result<(), Error> {
        let Limits {
            skip,
            warmup,
            instructions,
            skip_requests,
            warmup_requests,
            requests,
            roi,
            sample,
        } = options.limits;
        if let FilteredLength::Auto(_) = self.warming.filtered {
            return Err(Error::option(
                RunOption::Regions,
                text![
                    "auto is found for ",
                    RunOption::Sample,
                    "; expected a length such as 16M, or all"
                ],
            ));
        }
        let others = [
            (RunOption::Sample, sample.is_some()),
            (RunOption::Precision, options.precision.is_some()),
            (RunOption::Skip, skip > 0),
            (RunOption::Warmup, warmup > 0),
            (RunOption::Instructions, instructions.is_some()),
            (RunOption::SkipRequests, skip_requests > 0),
            (RunOption::WarmupRequests, warmup_requests > 0),
            (RunOption::Requests, requests.is_some()),
            (RunOption::Roi, roi),
        ];
        if let Some(&(other, _)) = others.iter().find(|(_, given)| *given) {
            return Err(Error::about(
                RunOption::Regions,
                text![RunOption::Regions, " and ", other, ": "],
                "the regions are all that is measured; expected one of the two",
            ));
        }
        if self.regions.is_empty() {
            return Err(Error::option(
                RunOption::Regions,
                "there is no region; expected one or more",
            ));
        }
        let mut end = 0;
        for (number, region) in self.regions.iter().enumerate() {
            let number = number + 1;
            if region.at < end {
                return Err(Error::option(
                    RunOption::Regions,
                    format!(
                        "region {number} begins at {}, before the end of the region before it, {end}; expected regions in the order of the trace that do not overlap",
                        region.at
                    ),
                ));
            }
            if region.instructions == 0 || !(region.weight > 0.0 && region.weight <= 1.0) {
                return Err(Error::option(
                    RunOption::Regions,
                    format!(
                        "region {number} has {} instructions and the weight {}; expected 1 or more, and a weight above 0, up to 1",
                        region.instructions, region.weight
                    ),
                ));
            }
            end = region.at.saturating_add(region.instructions);
        }
        let weights: f64 = self.regions.iter().map(|r| r.weight).sum();
        if (weights - 1.0).abs() > NEAR {
            return Err(Error::option(
                RunOption::Regions,
                format!("the weights add up to {weights}; expected 1"),
            ));
        }
        Ok(())
    }

    /// Refuses a trace with `facts` that the regions do not belong to, as far as its length is known.
    ///
    /// # Errors
    /// One sentence that names the option.
    pub(crate) fn are_of(&self, facts: &Facts) -> Result<(), Error> {
        let name = &facts.name;
        if !facts.parts.is_empty() {
            return Err(Error::option(
                RunOption::Regions,
                format!("{name} is a mix, and regions are places of one trace; expected no mix"),
            ));
        }
        let Some(has) = facts.instructions else {
            return Ok(());
        };
        if let Some(of) = self.trace_instructions.filter(|of| *of != has) {
            return Err(Error::option(
                RunOption::Regions,
                format!(
                    "they are of a trace of {of} instructions, and {name} has {has}; expected those of this trace, which 'pagewalk trace regions' finds"
                ),
            ));
        }
        if self.end() > has {
            return Err(Error::option(
                RunOption::Regions,
                format!(
                    "the last region ends at {}, behind the {has} instructions of {name}; expected regions that lie in the trace",
                    self.end()
                ),
            ));
        }
        Ok(())
    }

    /// Instructions of the trace up to the end of the last region.
    pub(crate) fn end(&self) -> u64 {
        let last = self.regions.last();
        last.map_or(0, |r| r.at.saturating_add(r.instructions))
    }
}

/// Progress through the regions.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    regions: Arc<Regions>,
    /// Regions that have been scheduled, including their warming.
    number: usize,
    /// Instructions since the start of the trace.
    done: u64,
    /// Scheduled phases with the instruction at which each ends, in reverse order. A phase ends at an
    /// operation, which may have several instructions. Absolute ends keep that from shifting later
    /// regions.
    next: Vec<(Phase, u64)>,
}

impl Places {
    pub(crate) fn new(regions: &Regions) -> Self {
        Places {
            regions: Arc::new(regions.clone()),
            number: 0,
            done: 0,
            next: Vec::new(),
        }
    }

    /// Adds completed instructions.
    pub(crate) fn advance(&mut self, instructions: u64) {
        self.done += instructions;
    }

    /// Number, from 1, of the last scheduled region, and the number of all regions.
    pub(crate) fn number(&self) -> (usize, usize) {
        (self.number, self.regions.regions.len())
    }

    /// The next phase and its length; nothing after the last region.
    pub(crate) fn next(&mut self) -> Option<(Phase, u64)> {
        loop {
            if self.next.is_empty() {
                self.schedule_next()?;
            }
            let Some((phase, end)) = self.next.pop() else {
                continue;
            };
            // Each region is measured, even one that lies within a single operation.
            let least = u64::from(phase == Phase::SampleMeasure);
            let length = end.saturating_sub(self.done).max(least);
            if length > 0 {
                return Some((phase, length));
            }
        }
    }

    /// Schedules the next region and the phases before it.
    fn schedule_next(&mut self) -> Option<()> {
        let region = self.regions.regions.get(self.number)?;
        self.number += 1;
        let gap = region.at.saturating_sub(self.done);
        let mut end = region.at.saturating_add(region.instructions);
        let parts = stretches(gap, region.instructions, Some(self.regions.warming));
        self.next = parts
            .map(|(phase, length)| {
                let ends = end;
                end = end.saturating_sub(length);
                (phase, ends)
            })
            .to_vec();
        Some(())
    }
}

/// The measurement of one region.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, JsonSchema)]
pub struct MeasuredRegion {
    /// Instructions of the trace before it, as requested.
    pub at: u64,
    /// Weight, as requested.
    pub weight: f64,
    /// Instructions measured.
    pub instructions: u64,
    /// Requests that ended in it.
    pub requests: u64,
    /// Cycles of the slowest core.
    pub cycles: u64,
}

/// Measured regions that represent a whole trace.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Regions")]
pub struct RegionsResult {
    /// Always None: the error of representing the trace by its regions is unknown.
    pub error_bound: Option<f64>,
    /// The regions.
    pub regions: Vec<MeasuredRegion>,
    /// Cold-start uncertainty at the beginning of the regions; None if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warming: Option<WarmingError>,
}

/// Weighted counts of all regions, scaled to the number of measured instructions.
pub(crate) struct Weighed {
    pub(crate) tree: Tree,
    pub(crate) work: Work,
    pub(crate) cycles: u64,
    pub(crate) result: RegionsResult,
}

/// Weighted counts of the `regions` that were `measured`; nothing if there is none.
pub(crate) fn weigh(regions: &Regions, measured: &Measured) -> Option<Weighed> {
    let mut tree = measured.tree.clone()?;
    let (samples, spreads) = (&measured.samples, measured.spreads.as_ref()?);
    let all: u64 = samples.iter().map(|s| s.work.instructions).sum();
    let of = || samples.iter().zip(&regions.regions);
    let weights: f64 = of().map(|(_, r)| r.weight).sum();
    // Factor on the counts of each region.
    let factors: Vec<f64> = of()
        .map(|(s, r)| r.weight * all as f64 / s.work.instructions as f64 / weights)
        .collect();
    if factors.is_empty() {
        return None;
    }
    let sum = |value: &dyn Fn(&SampleCounts) -> u64| {
        let each = samples
            .iter()
            .zip(&factors)
            .map(|(s, f)| f * value(s) as f64);
        each.sum::<f64>().round() as u64
    };
    for (at, row) in tree.rows.iter_mut().enumerate() {
        if !row.definition.gauge {
            row.value = sum(&|s| s.values[at]);
        }
    }
    for (at, spread) in tree.spreads.iter_mut().enumerate() {
        let each = spreads.iter().zip(&factors);
        spread.values =
            Distribution::weighted(each.map(|(of, f): (&Vec<Spread>, &f64)| (*f, &of[at].values)));
    }
    let work = Work {
        instructions: all,
        requests: sum(&|s| s.work.requests),
    };
    let cycles = sum(&|s| s.cycles);
    let together = SampleCounts {
        work,
        cycles,
        values: Vec::new(),
        stale: std::array::from_fn(|i| StaleOutcomes {
            hits: sum(&|s| s.stale[i].hits),
            misses: sum(&|s| s.stale[i].misses),
        }),
    };
    let result = RegionsResult {
        error_bound: None,
        regions: of()
            .map(|(s, r)| MeasuredRegion {
                at: r.at,
                weight: r.weight,
                instructions: s.work.instructions,
                requests: s.work.requests,
                cycles: s.cycles,
            })
            .collect(),
        warming: estimate::warming(&[together], &tree).map(|(error, _)| error),
    };
    Some(Weighed {
        tree,
        work,
        cycles,
        result,
    })
}

#[cfg(test)]
mod tests {
    use pagewalk_stats::{Tree, counters, histogram};
    use pagewalk_stream::Facts;

    use super::{Region, Regions, Weighed, weigh};
    use crate::estimate::StaleLookups;
    use crate::limits::{FilteredLength, Limits, Sample, Warming};
    use crate::measure::{Measured, Snapshot};
    use crate::options::{Options, Precision};
    use crate::plan::{Phase, PhasePlan};
    use crate::work::Work;

    fn regions(places: &[(u64, u64, f64)], warming: Warming) -> Regions {
        let region = |&(at, instructions, weight): &(u64, u64, f64)| Region {
            at,
            instructions,
            weight,
        };
        Regions {
            regions: places.iter().map(region).collect(),
            warming,
            trace_instructions: None,
        }
    }

    const ALL: Warming = Warming {
        filtered: FilteredLength::All,
        warmed: 5000,
    };
    const SHORT: Warming = Warming {
        filtered: FilteredLength::Last(2000),
        warmed: 5000,
    };

    /// Phases of a run whose operations have `step` instructions each, with the instructions before each
    /// phase.
    fn phases(regions: &Regions, step: u64) -> Vec<(Phase, u64)> {
        let mut plan = PhasePlan::of_regions(regions, false);
        let (mut done, mut seen) = (0, vec![(plan.phase, 0)]);
        while plan.phase != Phase::Done {
            done += step;
            let changed = plan.advance(Work {
                instructions: step,
                requests: 0,
            });
            if changed {
                seen.push((plan.phase, done));
            }
        }
        seen
    }

    #[test]
    fn phases_before_a_region_are_fast_forward_filtered_and_functional_warming() {
        use Phase::{DetailedWarm, Done, FilteredWarm, FunctionalWarm, SampleMeasure, SampleSkip};
        let places = [(0, 100, 0.25), (40_000, 300, 0.5), (40_300, 200, 0.25)];
        let first = [(SampleMeasure, 0)];
        // The last two regions are adjacent.
        let last = [
            (FunctionalWarm, 15_000),
            (DetailedWarm, 20_000),
            (SampleMeasure, 40_000),
            (SampleMeasure, 40_300),
            (Done, 40_500),
        ];
        let between = [(FilteredWarm, 100)];
        let want = [&first[..], &between, &last].concat();
        assert_eq!(phases(&regions(&places, ALL), 1), want);
        let between = [(SampleSkip, 100), (FilteredWarm, 13_000)];
        let want = [&first[..], &between, &last].concat();
        assert_eq!(phases(&regions(&places, SHORT), 1), want);
    }

    #[test]
    fn operations_of_several_instructions_shift_no_region() {
        let places: Vec<(u64, u64, f64)> = (0..100).map(|i| (9000 * i, 500, 0.01)).collect();
        let seen = phases(&regions(&places, SHORT), 7);
        let begun = seen.iter().filter(|s| s.0 == Phase::SampleMeasure);
        let late: Vec<u64> = begun.zip(&places).map(|(s, p)| s.1 - p.0).collect();
        assert_eq!(late.len(), 100);
        assert!(late.iter().all(|&late| late < 7), "{late:?}");
        let end = seen.last().unwrap().1;
        assert!(end - (99 * 9000 + 500) < 7, "{end}");
        // A region shorter than an operation is still measured.
        let short = regions(&[(10, 2, 0.5), (12, 1, 0.5)], ALL);
        let seen = phases(&short, 7);
        let measured = seen.iter().filter(|s| s.0 == Phase::SampleMeasure);
        assert_eq!(measured.count(), 2);
    }

    #[test]
    fn regions_that_the_program_has_not_reached_are_counted() {
        let mut plan = PhasePlan::of_regions(&regions(&[(0, 10, 0.5), (50, 10, 0.5)], ALL), false);
        let mut unfinished = vec![];
        for _ in 0..6 {
            unfinished.push(plan.unfinished_region());
            plan.advance(Work {
                instructions: 10,
                requests: 0,
            });
        }
        assert_eq!(unfinished, [1, 2, 2, 2, 2, 2].map(|n| Some((n, 2))));
        assert_eq!(plan.unfinished_region(), None);
    }

    counters! {
        /// Counts of the test component.
        pub struct Counts {
            events: "times", "Something happened";
            gauge state: "bytes", "How much there is";
        }
    }

    const TIMES: pagewalk_stats::Definition = histogram!("times", "cycles", "How long");
    static TIMES_OF_IT: pagewalk_stats::Definition = TIMES;

    /// Counts of a machine after given work and cycles. Each ten instructions have one event, and each
    /// event a wait of the given cycles.
    struct Done {
        measured: Measured,
        time: u64,
        work: Work,
        counts: Counts,
        times: pagewalk_stats::Histogram,
    }

    impl Done {
        fn new() -> Self {
            Done {
                measured: Measured::of_regions(None, 1),
                time: 0,
                work: Work::default(),
                counts: Counts::default(),
                times: pagewalk_stats::Histogram::default(),
            }
        }

        fn now(&self) -> Snapshot {
            let mut tree = Tree::default();
            tree.add("it", &self.counts);
            tree.add_values("it", &TIMES_OF_IT, self.times.distribution());
            Snapshot {
                tree,
                times: vec![self.time],
                executed: self.work,
                stale: StaleLookups::default(),
            }
        }

        fn region(mut self, instructions: u64, cycles: u64, events: u64, wait: u64) -> Self {
            self.measured.begin(self.now());
            self.time += cycles;
            self.work += Work {
                instructions,
                requests: instructions / 100,
            };
            self.counts.events += events;
            self.counts.state = instructions;
            for _ in 0..events {
                self.times.record(wait);
            }
            let now = self.now();
            self.measured.end(&now);
            self
        }
    }

    fn value(w: &Weighed, name: &str) -> u64 {
        w.tree.get("it", name).unwrap()
    }

    #[test]
    fn one_region_says_what_it_counted() {
        let done = Done::new().region(1003, 7001, 41, 6);
        let all = regions(&[(0, 1000, 1.0)], ALL);
        let w = weigh(&all, &done.measured).unwrap();
        assert_eq!((w.work, w.cycles), (done.work, 7001));
        assert_eq!((value(&w, "events"), value(&w, "state")), (41, 1003));
        assert_eq!(w.tree.spreads, done.measured.tree.unwrap().spreads);
    }

    #[test]
    fn each_region_counts_by_its_weight_whatever_its_length() {
        let done = Done::new();
        let done = done.region(1000, 2000, 100, 4).region(3000, 30_000, 60, 9);
        let of = |weights: [f64; 2]| {
            let places = [(0, 1000, weights[0]), (5000, 3000, weights[1])];
            weigh(&regions(&places, ALL), &done.measured).unwrap()
        };
        let w = of([0.75, 0.25]);
        // CPI 2 and 10, events 0.1 and 0.02 an instruction, in 4000 instructions.
        assert_eq!((w.work.instructions, w.cycles), (4000, 16_000));
        assert_eq!((value(&w, "events"), value(&w, "state")), (320, 3000));
        let times = w.tree.values("it", "times").unwrap();
        let each: Vec<(u64, u64)> = times.buckets().map(|b| (b.low, b.count)).collect();
        assert_eq!(each, [(4, 300), (9, 20)]);
        assert_eq!((times.sum(), times.largest()), (1380, 9));
        assert_eq!(w.work.requests, 40);
        // Weights in proportion to length give the plain sums.
        let (w, m) = (of([0.25, 0.75]), &done.measured);
        assert_eq!(
            (w.work, w.cycles, value(&w, "events")),
            (m.work, m.cycles, 160)
        );
        assert_eq!(w.result.error_bound, None);
        let cycles: Vec<u64> = w.result.regions.iter().map(|r| r.cycles).collect();
        assert_eq!(cycles, [2000, 30_000]);
    }

    #[test]
    fn of_a_run_that_was_stopped_those_that_were_measured_stand_for_all() {
        let done = Done::new().region(1000, 2000, 100, 4);
        let places = [(0, 1000, 0.2), (5000, 3000, 0.8)];
        let w = weigh(&regions(&places, ALL), &done.measured).unwrap();
        assert_eq!((w.work.instructions, w.cycles), (1000, 2000));
        assert_eq!(w.result.regions.len(), 1);
        assert!(weigh(&regions(&places, ALL), &Done::new().measured).is_none());
    }

    #[test]
    fn invalid_regions_are_refused() {
        let good = regions(&[(0, 10, 0.5), (10, 10, 0.5)], ALL);
        let alone = Options::default();
        assert_eq!(good.validate(&alone), Ok(()));
        let says = |places: &[(u64, u64, f64)], what: &str| {
            let refused = regions(places, ALL).validate(&alone).unwrap_err();
            assert!(
                refused.to_string().starts_with("--regions") && refused.to_string().contains(what),
                "{refused}"
            );
        };
        says(&[], "no region");
        says(&[(0, 10, 0.5), (9, 10, 0.5)], "region 2 begins at 9");
        says(&[(0, 0, 1.0)], "region 1 has 0 instructions");
        says(&[(0, 10, f64::NAN)], "weight NaN");
        says(&[(0, 10, 0.5)], "add up to 0.5");
        let sample = Some(Sample {
            length: 10,
            period: 10_000,
            warming: None,
        });
        let precision = Some(Precision {
            within: 0.1,
            metrics: vec![],
        });
        let limits = |limits| Options {
            limits,
            ..Options::default()
        };
        let none = Limits::default();
        for (options, other) in [
            (limits(Limits { sample, ..none }), "--sample:"),
            (limits(Limits { skip: 1, ..none }), "--skip:"),
            (limits(Limits { roi: true, ..none }), "--roi:"),
            (
                Options {
                    precision,
                    ..Options::default()
                },
                "--precision:",
            ),
        ] {
            let refused = good.validate(&options).unwrap_err();
            assert!(refused.to_string().contains(other), "{refused}");
        }
        let known = Regions {
            trace_instructions: Some(40),
            ..good.clone()
        };
        for (of, has, what) in [
            (&good, Some(20), None),
            (&good, None, None),
            (&known, Some(40), None),
            (&known, None, None),
            (
                &good,
                Some(19),
                Some("ends at 20, behind the 19 instructions of t"),
            ),
            (
                &known,
                Some(41),
                Some("of a trace of 40 instructions, and t has 41"),
            ),
        ] {
            let facts = Facts {
                name: "t".to_owned(),
                instructions: has,
                ..Facts::default()
            };
            let refused = of.are_of(&facts).err();
            assert_eq!(refused.is_some(), what.is_some());
            assert!(
                refused
                    .map(|e| e.to_string())
                    .unwrap_or_default()
                    .contains(what.unwrap_or_default())
            );
        }
    }
}
