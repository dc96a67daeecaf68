//! Adaptive sampling: repeats a run with more samples until its intervals are narrow enough.
//!
//! [`run`] simulates a pass over the measured part with a default number of samples. From the width of
//! the confidence intervals it computes how many samples are needed, and simulates another pass with that
//! number. An early check stops a pass whose first samples already show that it has far too few.

use std::ops::Range;

use pagewalk_units::{Error, RunOption, nearest, text};

use crate::estimate::{Interval, Sampling, estimate};
use crate::limits::{FilteredLength, Sample, Warming};
use crate::options::Precision;
use crate::results::{DesignResult, Host, RunResult};
use crate::run::{EarlyCheck, FirstSamples};
use crate::session::{RunSpec, SourceSpec};
use crate::summary::{self, MetricDefinition};

/// Default length of a sample in instructions. A sample costs about as much host time as the warming
/// before it. Short runs have shorter samples.
const LENGTH: std::ops::RangeInclusive<u64> = 20_000..=100_000;
/// Instructions of functional warming before a sample. The rest of the gap is filtered functional
/// warming.
pub(crate) const WARMED: u64 = 50_000;
/// Minimum number of samples in the first pass. A long run takes up to twice as many while they are a
/// small share of it: a second pass would repeat the filtered warming of the whole run.
const FIRST: u64 = 128;
/// Beyond the minimum, the samples of the first pass cost at most 1/n of the run.
const FIRST_SHARE: u64 = 10;
/// Maximum number of passes. Each takes the number of samples that the pass before found necessary.
const PASSES: u32 = 4;
/// Safety factor on the number of further samples: the variance that it is computed from is itself an
/// estimate.
const OVERSAMPLING: f64 = 1.2;
/// Fraction (1/n) of a pass after which its intervals are checked. A pass that needs many more samples
/// stops there.
const EARLY_CHECK: u64 = 4;
/// Factor by which the needed samples have to exceed those of the pass before an early check stops it.
/// The first samples cover only part of the run.
const CLEARLY: f64 = 1.5;
/// Misses for 1000 instructions below which precision is relative to this value, not to the number of
/// misses. A relative error of a very small miss rate hardly affects the CPI.
const FEW_MISSES: f64 = 1.0;
/// Metrics whose precision is checked by default.
const METRICS: [&str; 2] = ["ipc", "l2_tlb_mpki"];

/// Simulates one pass, with an optional early check.
type Once<'a> = dyn FnMut(&RunSpec, Option<EarlyCheck<'_>>) -> Result<RunResult, Error> + 'a;

/// Runs `spec` by `once` with samples spread over its measured part. Repeats with more samples until all
/// wanted metrics have the wanted precision.
pub(crate) fn run(
    spec: &RunSpec,
    wanted: &Precision,
    once: &mut Once<'_>,
) -> Result<RunResult, Error> {
    let limits = spec.options.limits;
    if !(wanted.within > 0.0 && wanted.within < 1.0) {
        return Err(Error::value(
            RunOption::Precision,
            wanted.within,
            "expected a share above 0 and below 100 %, such as 2%",
        ));
    }
    for name in &wanted.metrics {
        refuse_unless_rate(name)?;
    }
    let Some(total) = limits.instructions else {
        return Err(Error::option(
            RunOption::Precision,
            text![
                "samples lie all over the measured part; expected ",
                RunOption::Instructions,
                ", which says how long that is"
            ],
        ));
    };
    if let Some(SourceSpec::Mix { .. }) = &spec.source {
        return Err(Error::option(
            RunOption::Precision,
            text![
                "the programs of a mix are measured side by side, without gaps; expected no ",
                RunOption::Precision,
                " with ",
                RunOption::Mix
            ],
        ));
    }
    let length = (total / (4 * FIRST)).clamp(*LENGTH.start(), *LENGTH.end());
    let length = limits.sample.map_or(length, |s| s.length);
    let warming = limits.sample.and_then(|s| s.warming).unwrap_or(Warming {
        filtered: FilteredLength::All,
        warmed: WARMED,
    });
    // Approximate cost of a sample, in instructions of detailed simulation.
    let price = length + Warming::DETAILED_WARMUP + warming.warmed / 2;
    let mut samples = (total / (FIRST_SHARE * price)).clamp(FIRST, 2 * FIRST);
    let mut spec = spec.clone();
    // Another pass would repeat the side effects of a live program.
    let mut passes_left = match spec.source {
        Some(SourceSpec::Program { .. }) => 1,
        _ => PASSES,
    };
    let mut spent: Option<Host> = None;
    loop {
        let all = samples.saturating_mul(price) >= total / 2;
        spec.options.limits.sample = (!all).then(|| Sample {
            length,
            period: total / samples,
            warming: Some(warming),
        });
        passes_left -= 1;
        let mut needed = None;
        let mut ends = |first: Vec<FirstSamples>| {
            needed = clearly_needed(&first, samples, wanted);
            needed.is_some()
        };
        let early = (!all && passes_left > 0).then_some(EarlyCheck {
            after: (samples / EARLY_CHECK) as usize,
            ends: &mut ends,
        });
        let mut result = once(&spec, early)?;
        if let Some(before) = &spent {
            result.host.add(before);
        }
        spent = Some(result.host.clone());
        if let Some(needed) = needed {
            samples = needed;
            continue;
        }
        if all || result.partial {
            return Ok(result);
        }
        let of = |d: &DesignResult| Some((d.name.clone(), d.sampling.clone()?));
        let estimates: Option<Vec<_>> = result.designs.iter().map(of).collect();
        let found = estimates.map(|estimates| shortfalls(&estimates, wanted));
        let Some(found) = found else {
            result.warnings.push(
                "--precision: there were fewer than two samples, so nothing says how sure the numbers are: take more instructions".to_owned(),
            );
            return Ok(result);
        };
        let worst = found.worst.filter(|shortfall| shortfall.ratio > 1.0);
        if let Some(Shortfall {
            more: Some(times), ..
        }) = worst
            && passes_left > 0
        {
            samples = samples_needed(samples, times);
            continue;
        }
        let message = worst.map(|shortfall| shortfall.message(wanted.within));
        result.warnings.extend(message);
        result.warnings.extend(found.unmeasured);
        return Ok(result);
    }
}

/// Refuses the name of a metric that samples do not estimate.
fn refuse_unless_rate(name: &str) -> Result<(), Error> {
    let expected = "expected one that does not grow with the run, such as ipc or l2_tlb_mpki";
    let is = |m: &MetricDefinition| m.name == name;
    if summary::rates().any(|m| is(&m)) {
        return Ok(());
    }
    if summary::metrics().any(|m| is(&m)) {
        return Err(Error::option(
            RunOption::Precision,
            format!("samples say nothing of {name}, which is of the whole run; {expected}"),
        ));
    }
    let like = nearest(name, summary::rates().map(|m| m.name));
    let like = like.map_or(String::new(), |n| format!(" (did you mean {n}?)"));
    Err(Error::option(
        RunOption::Precision,
        format!("there is no number {name}{like}; {expected}"),
    ))
}

/// A metric whose interval may be too wide.
struct Shortfall {
    what: String,
    /// Width of its interval relative to the wanted one.
    ratio: f64,
    /// Factor on the number of samples that makes the interval narrow enough. Nothing if no number does,
    /// because of cold-start uncertainty.
    more: Option<f64>,
}

impl Shortfall {
    fn message(&self, within: f64) -> String {
        let way = match self.more {
            Some(_) => "take more instructions",
            None => {
                "the fast-forwarded part before each sample is the cause, and more samples do not help: warm all of it (--sample LENGTH/PERIOD:all+50K)"
            }
        };
        format!(
            "{} is within {:.1} %, not within the {:.1} % required: {way}, or simulate all (no --precision)",
            self.what,
            100.0 * self.ratio * within,
            100.0 * within
        )
    }
}

/// Wanted metrics that are not precise enough.
#[derive(Default)]
struct Shortfalls {
    /// The metric with the relatively widest interval.
    worst: Option<Shortfall>,
    /// Sentences on metrics without a value.
    unmeasured: Vec<String>,
}

impl Shortfalls {
    fn consider(&mut self, what: String, interval: &Interval, least: f64, within: f64) {
        let wanted = within * interval.value.abs().max(least);
        // A number that is zero in all samples has no interval to narrow.
        let ratio = |half: f64| if half > 0.0 { half / wanted } else { 0.0 };
        let whole = ratio(interval.half());
        if self.worst.as_ref().is_none_or(|w| whole > w.ratio) {
            let spread = ratio(interval.spread);
            let room = 1.0 - (whole - spread);
            self.worst = Some(Shortfall {
                what,
                ratio: whole,
                more: (room > 0.0).then(|| (spread / room).powi(2)),
            });
        }
    }
}

/// Number of samples for a later pass, with a safety factor.
fn samples_needed(samples: u64, times: f64) -> u64 {
    (samples as f64 * times * OVERSAMPLING).ceil() as u64
}

/// Number of samples that the `first` ones of each design show to be needed, if that is clearly more than
/// the pass takes. Both halves have to show it: a phase change of the program lies in one half and says
/// nothing about the rest.
fn clearly_needed(first: &[FirstSamples], samples: u64, wanted: &Precision) -> Option<u64> {
    let n = first.first()?.samples.len();
    let needed = |part: Range<usize>| {
        let of = |d: &FirstSamples| {
            let sampling = estimate(d.samples.get(part.clone())?, &d.tree)?;
            Some((d.name.clone(), sampling))
        };
        let estimates: Vec<_> = first.iter().map(of).collect::<Option<_>>()?;
        let times = shortfalls(&estimates, wanted).worst?.more?;
        let needed = samples_needed(part.len() as u64, times);
        (needed as f64 > CLEARLY * samples as f64).then_some(needed)
    };
    needed(0..n / 2).and(needed(n / 2..n)).and(needed(0..n))
}

/// Shortfalls of all designs, from the estimates of their samples.
fn shortfalls(estimates: &[(String, Sampling)], wanted: &Precision) -> Shortfalls {
    let mut found = Shortfalls::default();
    let named = wanted.metrics.iter().map(String::as_str);
    let defaults = METRICS.into_iter().filter(|_| wanted.metrics.is_empty());
    let names: Vec<&str> = named.chain(defaults).collect();
    for (design, sampling) in estimates {
        for name in &names {
            let what = format!("{name} of {design}");
            let Some(interval) = sampling.metrics.get(name) else {
                found.unmeasured.push(format!(
                    "{what} has no value in the samples, so nothing says how sure it is"
                ));
                continue;
            };
            let least = if name.ends_with("_mpki") {
                FEW_MISSES
            } else {
                0.0
            };
            found.consider(what, interval, least, wanted.within);
        }
        if let Some(speedup) = &sampling.speedup {
            let what = format!("the speedup of {design}");
            found.consider(what, speedup, 0.0, wanted.within);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pagewalk_stats::Tree;
    use serde_json::json;

    use super::{Shortfalls, clearly_needed, refuse_unless_rate};
    use crate::estimate::{Interval, SampleCounts, StaleLookups, estimate};
    use crate::options::Precision;
    use crate::results::Host;
    use crate::run::{EarlyCheck, FirstSamples};
    use crate::session::RunSpec;
    use crate::work::Work;
    use crate::{Installation, RunResult};

    fn shortfall(half: f64, spread: f64) -> super::Shortfall {
        let mut found = Shortfalls::default();
        let interval = Interval {
            value: 10.0,
            low: 10.0 - half,
            high: 10.0 + half,
            spread,
        };
        found.consider("ipc of radix".to_owned(), &interval, 0.0, 0.02);
        found.worst.unwrap()
    }

    #[test]
    fn twice_as_wide_takes_four_times_the_samples() {
        let d = shortfall(0.4, 0.4);
        assert!((d.ratio - 2.0).abs() < 1e-12);
        assert!((d.more.unwrap() - 4.0).abs() < 1e-12);
        // Half of the wanted width is cold-start uncertainty, which leaves half for sampling variation.
        let d = shortfall(0.3, 0.2);
        assert!((d.ratio - 1.5).abs() < 1e-12);
        assert!((d.more.unwrap() - 4.0).abs() < 1e-9);
    }

    #[test]
    fn cold_start_uncertainty_needs_no_more_samples() {
        let d = shortfall(0.5, 0.2);
        assert!(d.more.is_none());
        let message = d.message(0.02);
        assert!(
            message.contains("within 5.0 %") && message.contains("warm all of it"),
            "{message}"
        );
    }

    #[test]
    fn precision_is_only_of_numbers_that_samples_estimate() {
        assert!(refuse_unless_rate("walk_cycles_mean").is_ok());
        let sum = refuse_unless_rate("cycles").unwrap_err();
        assert!(sum.to_string().contains("of the whole run"), "{sum}");
        assert!(refuse_unless_rate("energy_per_instruction").is_err());
        let typo = refuse_unless_rate("ipcs").unwrap_err();
        assert!(typo.to_string().contains("did you mean ipc"), "{typo}");
    }

    /// First samples of two designs. The second design alternates by `apart` cycles.
    fn first(n: usize, apart: u64) -> Vec<FirstSamples> {
        let one = |cycles: u64| SampleCounts {
            work: Work {
                instructions: 1000,
                requests: 0,
            },
            cycles,
            values: vec![],
            stale: StaleLookups::default(),
        };
        let of = |apart: u64| FirstSamples {
            name: format!("by {apart}"),
            samples: (0..n as u64)
                .map(|i| one(10_000 + apart * (i % 2)))
                .collect(),
            tree: Tree::default(),
        };
        vec![of(0), of(apart)]
    }

    #[test]
    fn a_pass_ends_early_only_if_it_clearly_needs_half_as_many_samples_again() {
        let wanted = |within| Precision {
            within,
            metrics: vec!["ipc".to_owned()],
        };
        assert_eq!(clearly_needed(&first(32, 0), 128, &wanted(0.02)), None);
        // Neighbours differ by 1000 cycles: s is 707 and t(20) is 2.086, which gives 2.5 %. Four times as
        // many samples halve that.
        assert_eq!(clearly_needed(&first(32, 1000), 128, &wanted(0.02)), None);
        let needed = clearly_needed(&first(32, 1000), 128, &wanted(0.01)).unwrap();
        let (s, t) = (1000.0 / 2f64.sqrt(), 2.086);
        let samples = 1.2 * (t * s / (0.01 * 10_500.0)).powi(2);
        assert!(
            (needed as f64 / samples - 1.0).abs() < 0.05,
            "{needed} {samples}"
        );
        assert!(needed > 192, "1.5 times 128");
        assert_eq!(
            clearly_needed(&first(32, 1000), needed, &wanted(0.01)),
            None
        );
        // A single step between two phases widens the interval as much, and calls for no more samples.
        let mut step = first(32, 0);
        for later in &mut step[1].samples[20..] {
            later.cycles += 10_000;
        }
        let of_all = estimate(&step[1].samples, &step[1].tree).unwrap();
        assert!(of_all.metrics["ipc"].half() > 0.02 * of_all.ipc);
        assert_eq!(clearly_needed(&step, 128, &wanted(0.01)), None);
    }

    #[test]
    fn the_result_includes_the_time_of_earlier_passes() {
        let host = |seconds, simulated_instructions_per_second| Host {
            seconds,
            simulated_instructions_per_second,
            threads: 2,
            remote_shards: 1,
            peak_rss_bytes: 7,
        };
        let mut last = host(3.0, 2.0);
        last.add(&host(1.0, 10.0));
        let rate = last.simulated_instructions_per_second;
        assert_eq!((last.seconds, rate, last.remote_shards), (4.0, 4.0, 2));
    }

    /// Holds for any time of the check and either result of it.
    #[test]
    fn an_early_check_runs_once_and_sees_the_first_samples() {
        let mut spec: RunSpec = serde_json::from_value(json!({
            "machine": "epyc-milan",
            "designs": ["radix", "thp"],
            "source": {"workload": {"name": "gups", "size": "64MiB"}},
            "seed": 3,
            "limits": {
                "instructions": 400_000,
                "sample": {"length": 2000, "period": 20_000, "warming": {"filtered": null, "warmed": 2000}},
            },
        }))
        .unwrap();
        let installation = Installation::at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
        let look = |spec: &RunSpec, after, answer, goes_on| -> (Vec<Vec<_>>, RunResult) {
            let mut seen = Vec::new();
            let mut ends = |first: Vec<FirstSamples>| {
                let names: Vec<_> = first.iter().map(|d| d.name.as_str()).collect();
                assert_eq!(names, ["radix", "thp"]);
                for d in first {
                    assert_eq!(d.samples.len(), after);
                    let counted = d.samples.into_iter().map(|s| (s.cycles, s.values));
                    seen.push(counted.collect());
                }
                answer
            };
            let ends = &mut ends;
            let early = Some(EarlyCheck { after, ends });
            let result = installation.run_once(spec, None, early, &mut |_| goes_on);
            (seen, result.unwrap())
        };
        let (seen, result) = look(&spec, 5, false, true);
        assert_eq!(seen.len(), 2, "once");
        assert!(!result.partial);
        assert_eq!(result.designs[1].sampling.as_ref().unwrap().samples, 20);
        assert_eq!(look(&spec, 5, true, true).0, seen);
        let (all, _) = look(&spec, 20, false, true);
        assert_eq!(all[0][..5], seen[0]);
        assert!(
            look(&spec, 21, false, true).0.is_empty(),
            "there are no more"
        );
        // A run that was stopped is reported as it is. This one is too long to end before.
        spec.options.limits.instructions = Some(4_000_000_000);
        let (seen, result) = look(&spec, 1, true, false);
        assert!(seen.is_empty() && result.partial);
    }
}
