//! Samples until the numbers are sure enough.

use pagewalk_units::nearest;

use crate::estimate::Interval;
use crate::limits::{SAMPLE_LEAD_IN, Sample, Warming};
use crate::options::Precision;
use crate::results::{DesignResult, RunResult};
use crate::run::RunError;
use crate::session::{RunSpec, SourceSpec};
use crate::summary::{self, MetricDefinition};

/// Instructions of a sample where nobody says how many.
const LENGTH: u64 = 20_000;
/// Instructions before a sample that warm all there is. What lies between two samples is followed
/// by lines.
const WARMED: u64 = 50_000;
/// Samples of the first pass over the program.
const FIRST: u64 = 200;
/// Passes at most: each has as many samples as the one before says that there have to be.
const PASSES: u32 = 4;
/// Of what is not sure enough, samples are taken that make it surer than asked for: their spread
/// is an estimate, too.
const MORE: f64 = 1.2;
/// Misses for 1000 instructions below which they cost next to nothing, however many percent they
/// may be wrong.
const FEW_MISSES: f64 = 0.1;
/// The numbers that have to be sure where nobody names any.
const METRICS: [&str; 2] = ["ipc", "l2_tlb_mpki"];

fn user(message: String) -> RunError {
    RunError::User(message)
}

/// Runs `spec` by `once` with samples all over its measured part, and again with more of them,
/// until all numbers that are wanted are within what is wanted.
pub(crate) fn run(
    spec: &RunSpec,
    wanted: &Precision,
    once: &mut dyn FnMut(&RunSpec) -> Result<RunResult, RunError>,
) -> Result<RunResult, RunError> {
    let limits = spec.options.limits;
    if !(wanted.within > 0.0 && wanted.within < 1.0) {
        return Err(user(format!(
            "--precision {}: expected a share above 0 and below 100 %, such as 2%",
            wanted.within
        )));
    }
    for name in &wanted.metrics {
        let is = |m: &MetricDefinition| m.name == name;
        if !summary::measured_metrics().any(|m| is(&m)) {
            let names = summary::measured_metrics().map(|m| m.name);
            let like =
                nearest(name, names).map_or(String::new(), |n| format!("; did you mean {n}?"));
            return Err(user(format!(
                "--precision: there is no number {name} that is measured{like} Expected one such as ipc or l2_tlb_mpki"
            )));
        }
    }
    let Some(total) = limits.instructions else {
        return Err(user(
            "--precision: samples lie all over the measured part; expected --instructions, which says how long that is".to_owned(),
        ));
    };
    if let Some(SourceSpec::Mix { .. }) = &spec.source {
        return Err(user(
            "--precision: the programs of a mix are measured side by side, without gaps; expected no --precision with --mix".to_owned(),
        ));
    }
    let length = limits.sample.map_or(LENGTH, |s| s.length);
    let warming = limits.sample.and_then(|s| s.warming).unwrap_or(Warming {
        followed: None,
        warmed: WARMED,
    });
    // What a sample costs at the speed of simulation, about.
    let price = length + SAMPLE_LEAD_IN + warming.warmed / 2;
    let mut samples = FIRST;
    let mut spec = spec.clone();
    // A live program would do again what it has done.
    let passes = match spec.source {
        Some(SourceSpec::Program { .. }) => 1,
        _ => PASSES,
    };
    for pass in 1.. {
        let all = samples.saturating_mul(price) >= total / 2;
        spec.options.limits.sample = (!all).then(|| Sample {
            length,
            period: total / samples,
            warming: Some(warming),
        });
        let mut result = once(&spec)?;
        if all || result.partial {
            return Ok(result);
        }
        match worst(&result.designs, wanted) {
            Some((ratio, _)) if ratio <= 1.0 => return Ok(result),
            Some((ratio, _)) if pass < passes => {
                samples = (samples as f64 * ratio * ratio * MORE).ceil() as u64;
            }
            Some((ratio, what)) => {
                result.warnings.push(format!(
                    "{what} is within {:.1} %, not within the {:.1} % asked for: take more instructions, or simulate all (no --precision)",
                    100.0 * ratio * wanted.within,
                    100.0 * wanted.within
                ));
                return Ok(result);
            }
            None => {
                result.warnings.push(
                    "--precision: there were fewer than two samples, so nothing says how sure the numbers are: take more instructions".to_owned(),
                );
                return Ok(result);
            }
        }
    }
    unreachable!("the last pass returns")
}

/// The number that is least sure: how many times wider its interval is than wanted, and what it is.
/// Nothing where there are not enough samples.
fn worst(designs: &[DesignResult], wanted: &Precision) -> Option<(f64, String)> {
    let mut worst: Option<(f64, String)> = None;
    for d in designs {
        let sampling = d.sampling.as_ref()?;
        let mut consider = |interval: &Interval, least: f64, what: String| {
            let ratio = interval.half() / (wanted.within * interval.value.abs().max(least));
            if ratio.is_finite() && worst.as_ref().is_none_or(|w| ratio > w.0) {
                worst = Some((ratio, what));
            }
        };
        let named = wanted.metrics.iter().map(String::as_str);
        let defaults = METRICS
            .iter()
            .copied()
            .filter(|_| wanted.metrics.is_empty());
        for name in named.chain(defaults) {
            // A mean over nothing has no meaning, and so no interval.
            let Some(interval) = sampling.metrics.get(name) else {
                continue;
            };
            let least = if name.ends_with("mpki") {
                FEW_MISSES
            } else {
                0.0
            };
            consider(interval, least, format!("{name} of {}", d.name));
        }
        if let Some(speedup) = &sampling.speedup {
            consider(speedup, 0.0, format!("the speedup of {}", d.name));
        }
    }
    Some(worst.unwrap_or((0.0, String::new())))
}
