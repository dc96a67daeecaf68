//! Samples of a recording side by side: some for each machine, on all cores of the host.
//!
//! Into how many portions they are cut does not depend on the host. Each has machines of its own,
//! which pass over what comes before its first sample, so it counts the same whatever runs beside
//! it, and what all have counted is put together in their order.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use pagewalk_stream::Facts;

use crate::changes::lock;
use crate::limits::{Followed, Sample, Warming};
use crate::machine::{Machine, Outcome};
use crate::measure::Measured;
use crate::options::{Design, Options};
use crate::plan::Portion;
use crate::results::RunResult;
use crate::run::{Pass, Progress, RunError, Share, Stream, conclude, host_cores, on_threads, pass};

/// Portions at most. Each boots machines, and maps again what was touched before.
const MOST: u64 = 16;
/// Samples of a portion at least.
const LEAST: u64 = 8;

/// How the samples of a recording with `facts` are shared out; nothing where one machine has to
/// take them all, or where they are few.
pub(crate) fn portions(
    designs: &[Design],
    options: &Options,
    facts: &Facts,
) -> Option<Vec<Portion>> {
    let limits = &options.limits;
    // Its index says how long a recording is, and what a start anywhere needs.
    let length = facts.instructions.filter(|_| !facts.live)?;
    let Some(Sample {
        period,
        warming: Some(Warming {
            followed: Followed::Last(_),
            ..
        }),
        ..
    }) = limits.sample
    else {
        return None;
    };
    let bounded = limits.requests.is_none() && limits.skip_requests == 0 && !limits.roi;
    let alone = options.interval.is_none() && options.perfetto.is_none();
    let by_pages = |d: &Design| d.skips_by_pages() && !d.replies();
    if !(bounded && alone && limits.warmup_requests == 0 && designs.iter().all(by_pages)) {
        return None;
    }
    let before = limits.skip.saturating_add(limits.warmup);
    let rest = length.saturating_sub(before);
    let samples = limits.instructions.map_or(rest, |n| n.min(rest)) / period;
    let count = (samples / LEAST).min(MOST);
    let border = |n: u64| n * samples / count;
    (count > 1).then(|| {
        (0..count)
            .map(|n| Portion {
                first: border(n),
                end: (n + 1 < count).then(|| border(n + 1)),
            })
            .collect()
    })
}

/// What the machine of a design leaves of a portion.
struct Left {
    measured: Measured,
    simulated: u64,
    outcome: Option<Outcome>,
    let_go: u64,
    threads_in_turns: usize,
}

impl Left {
    fn of(machine: &mut Machine) -> Self {
        let cores = machine.cores.len();
        Left {
            measured: std::mem::replace(&mut machine.measured, Measured::new(None, None, cores)),
            simulated: machine.simulated,
            outcome: machine.outcome.clone(),
            let_go: machine.let_go,
            threads_in_turns: machine.threads_in_turns,
        }
    }

    /// Goes on with what was left of the next portion.
    fn go_on(&mut self, next: Left) {
        self.measured.go_on(next.measured);
        self.simulated += next.simulated;
        if self.outcome == Some(Outcome::Complete) {
            self.outcome = next.outcome;
        }
        self.let_go += next.let_go;
        self.threads_in_turns = self.threads_in_turns.max(next.threads_in_turns);
    }
}

/// What has ended.
#[derive(Default)]
struct Ended {
    /// Of each portion the designs in order.
    left: BTreeMap<usize, Vec<Left>>,
    /// The latest portion and its machines, which are as they are at the end of the run.
    latest: Option<(usize, Pass)>,
    /// Of the first portion that could not run.
    error: Option<(usize, RunError)>,
}

/// Runs `designs` on what `open` gives, portion by portion, on as many host threads as there may
/// be; otherwise like [`crate::run()`].
pub(crate) fn run(
    designs: &[Design],
    open: &(dyn Fn() -> Result<Vec<Stream>, RunError> + Sync),
    options: &Options,
    portions: &[Portion],
    progress: &mut dyn FnMut(&Progress) -> bool,
) -> Result<RunResult, RunError> {
    let start = Instant::now();
    let threads = options.host_threads.unwrap_or_else(host_cores).max(1);
    let side_by_side = (threads / designs.len()).clamp(1, portions.len());
    let share = |portion| Share {
        portion,
        host_threads: threads.min(designs.len()),
        machines: side_by_side * designs.len(),
    };
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let seen: Vec<Mutex<Option<Progress>>> = portions.iter().map(|_| Mutex::new(None)).collect();
    let ended = Mutex::new(Ended::default());
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(&portion) = portions.get(number) else {
                return;
            };
            let mut tell = |p: &Progress| {
                *lock(&seen[number]) = Some(p.clone());
                !stop.load(Ordering::Relaxed)
            };
            let run = open()
                .and_then(|streams| pass(designs, streams, options, share(portion), &mut tell));
            let mut ended = lock(&ended);
            match run {
                Ok(mut pass) => {
                    let left = pass.machines.iter_mut().map(Left::of).collect();
                    ended.left.insert(number, left);
                    if ended.latest.as_ref().is_none_or(|(n, _)| *n < number) {
                        ended.latest = Some((number, pass));
                    }
                }
                Err(e) => {
                    stop.store(true, Ordering::Relaxed);
                    if ended.error.as_ref().is_none_or(|(n, _)| *n > number) {
                        ended.error = Some((number, e));
                    }
                }
            }
        }
    };
    on_threads(side_by_side, &stop, &work, &mut || {
        if !progress(&together(&seen, portions, options, start)) {
            stop.store(true, Ordering::Relaxed);
        }
    })?;
    let Ended {
        left,
        latest,
        error,
    } = ended
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some((_, error)) = error {
        return Err(error);
    }
    let Some((_, mut last)) = latest else {
        return Err(RunError::Failure(
            "a simulation thread failed; this is a defect of Pagewalk".to_owned(),
        ));
    };
    let all = left.len() == portions.len();
    let sum = left.into_values().reduce(|mut sum, next| {
        sum.iter_mut().zip(next).for_each(|(s, n)| s.go_on(n));
        sum
    });
    for (machine, sum) in last.machines.iter_mut().zip(sum.into_iter().flatten()) {
        machine.measured = sum.measured;
        machine.simulated = sum.simulated;
        machine.let_go = sum.let_go;
        machine.threads_in_turns = sum.threads_in_turns;
        machine.outcome = match sum.outcome {
            Some(Outcome::Complete) if !all => Some(Outcome::Stopped),
            outcome => outcome,
        };
    }
    let host_threads = threads.min(designs.len()) * side_by_side;
    conclude(last, designs, options, start, host_threads)
}

/// How far all portions together are.
fn together(
    seen: &[Mutex<Option<Progress>>],
    portions: &[Portion],
    options: &Options,
    start: Instant,
) -> Progress {
    let seen: Vec<Progress> = seen.iter().filter_map(|p| lock(p).clone()).collect();
    let mut designs: Vec<(String, u64)> = Vec::new();
    for one in &seen {
        for (name, done) in &one.design_instructions {
            match designs.iter_mut().find(|(n, _)| n == name) {
                Some((_, sum)) => *sum += done,
                None => designs.push((name.clone(), *done)),
            }
        }
    }
    let limits = &options.limits;
    let period = limits.sample.map_or(0, |s| s.period);
    let ends = portions.iter().map(|p| {
        let measured = p.end.map(|end| end * period).or(limits.instructions)?;
        Some(limits.skip + limits.warmup + measured)
    });
    Progress {
        design_instructions: designs,
        done: seen.iter().map(|p| p.done).sum(),
        total: ends.sum(),
        phase: seen.last().map_or("start", |p| p.phase),
        seconds: start.elapsed().as_secs_f64(),
    }
}
