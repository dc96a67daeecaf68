//! Shards: samples of one recording simulated in parallel, on all cores of this host and on remote hosts.
//!
//! A shard is a group of consecutive samples with its own machines, which fast-forward to its first
//! sample. The division into shards does not depend on the host, and the shards' counts are combined in
//! order. So the result is the same wherever each shard runs.
//!
//! [`run`] starts worker threads that take shards of this host ([`ShardedRun::work`]), and polls the
//! remote hosts for events. A shard that fails remotely is simulated here. [`Report`] carries the counts
//! of a remote shard as text.

mod remote;
mod report;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use pagewalk_stream::Facts;
use pagewalk_units::{Error, RunOption, Text, text};

pub use self::remote::{RemoteEvent, RemoteHosts};
use self::report::{Left, Report};
use crate::limits::{FilteredLength, Sample, Warming};
use crate::machine::Outcome;
use crate::options::{Design, Options};
use crate::plan::{PhasePlan, Shard};
use crate::results::RunResult;
use crate::run::{Pass, PassShare, Progress, Stream, conclude, host_cores, on_threads, pass};
use crate::session::RunSpec;
use crate::wake_signal::{WakeSignal, lock};

/// Maximum number of shards. Each one boots machines and maps the touched memory again.
const MOST: u64 = 16;
/// Minimum number of samples in a shard.
const LEAST: u64 = 8;

/// Divides the samples of a recording with `facts` into shards.
///
/// # Errors
/// The reason why one machine has to simulate all samples.
pub(crate) fn shards(
    designs: &[Design],
    options: &Options,
    facts: &Facts,
) -> Result<Vec<Shard>, Text> {
    let limits = &options.limits;
    // The index of such a recording holds its length and the state at each possible start.
    let Some(length) = facts.instructions.filter(|_| facts.begins_anywhere) else {
        return Err(Text::from(
            "only a recording of one thread in Pagewalk's own format can be begun anywhere",
        ));
    };
    let Some(Sample {
        period,
        warming:
            Some(Warming {
                filtered: FilteredLength::Last(_),
                ..
            }),
        ..
    }) = limits.sample
    else {
        return Err(text![
            "what comes before each sample has to be bounded (",
            RunOption::Sample,
            " LENGTH/PERIOD:FILTERED+FUNCTIONAL with a number)"
        ]);
    };
    if limits.requests.is_some()
        || limits.skip_requests > 0
        || limits.warmup_requests > 0
        || limits.roi
    {
        return Err(text![
            "limits have to be in instructions, without ",
            RunOption::Roi
        ]);
    }
    if options.interval.is_some() || options.perfetto.is_some() {
        return Err(text![
            RunOption::Interval,
            " and ",
            RunOption::Perfetto,
            " are of one machine from start to end"
        ]);
    }
    // Wrong paths remember code from one sample to the next, whatever their memory.
    let by_pages =
        |d: &Design| d.skips_by_pages(facts) && !d.may_go_wrong(facts) && !d.has_shortcut();
    if !designs.iter().all(by_pages) {
        return Err(Text::from(
            "a design has a TLB in memory, wrong paths, swap or replies, and all before a sample matters to it",
        ));
    }
    let before = limits.skip.saturating_add(limits.warmup);
    let rest = length.saturating_sub(before);
    let samples = limits.instructions.map_or(rest, |n| n.min(rest)) / period;
    let count = (samples / LEAST).min(MOST);
    if count < 2 {
        return Err(Text::from("there are fewer than 16 samples"));
    }
    let border = |n: u64| n * samples / count;
    let shard = |n| Shard {
        first: border(n),
        end: (n + 1 < count).then(|| border(n + 1)),
    };
    Ok((0..count).map(shard).collect())
}

/// Finished shards.
#[derive(Default)]
struct FinishedShards {
    /// Counts of each finished shard, by design.
    left: BTreeMap<usize, Vec<Left>>,
    /// The latest finished shard of this host, with its machines. Their state is that at the end of the
    /// run.
    latest: Option<(usize, Pass)>,
    /// The error of the first shard that could not run.
    error: Option<(usize, Error)>,
    /// Number of shards that remote hosts have simulated.
    remote: u64,
    /// Shards that no remote host could simulate, by reason.
    failed: BTreeMap<String, Vec<usize>>,
}

/// Unfinished shards.
struct Open {
    /// Shards for this host that no thread has taken.
    here: VecDeque<usize>,
    /// Number of shards on remote hosts.
    away: usize,
}

/// Remote hosts, and the run that they take part in.
#[derive(Clone, Copy)]
pub(crate) struct RemoteRun<'a> {
    pub(crate) hosts: &'a dyn RemoteHosts,
    pub(crate) spec: &'a RunSpec,
}

/// A run divided into shards.
struct ShardedRun<'a> {
    designs: &'a [Design],
    open: &'a (dyn Fn() -> Result<Vec<Stream>, Error> + Sync),
    options: &'a Options,
    facts: &'a Facts,
    shards: &'a [Shard],
    threads: usize,
    side_by_side: usize,
    todo: Mutex<Open>,
    stop: AtomicBool,
    wake: WakeSignal,
    seen: Vec<Mutex<Option<Progress>>>,
    ended: Mutex<FinishedShards>,
}

/// Simulates one shard of a recording with `facts` and its streams. Returns the text of its
/// [`RemoteEvent::Ended`].
///
/// # Errors
/// As for [`crate::run()`].
pub(crate) fn one(
    designs: &[Design],
    (facts, streams): (&Facts, Vec<Stream>),
    options: &Options,
    shard: Shard,
    progress: &mut dyn FnMut(&Progress) -> bool,
) -> Result<String, Error> {
    let threads = options.host_threads.unwrap_or_else(host_cores);
    let share = PassShare {
        shard,
        host_threads: threads.clamp(1, designs.len()),
        machines: designs.len(),
    };
    let mut pass = pass(designs, streams, options, (share, None), progress)?;
    for machine in &pass.machines {
        // A shard that ended because of its host has no place in a result that is independent of the
        // host.
        match &machine.outcome {
            Some(Outcome::Stopped) | None => {
                return Err(Error::failed("it was stopped before its end"));
            }
            Some(Outcome::HostMemory(why)) => return Err(Error::failed(why.clone())),
            Some(_) => {}
        }
    }
    let left = pass.machines.iter_mut().map(Left::of).collect();
    serde_json::to_string(&Report::new(facts, left)).map_err(|e| Error::failed(e.to_string()))
}

/// Runs `designs` shard by shard on the streams that `open` makes, on as many host threads as allowed.
/// With `away`, remote hosts simulate all shards but the last one. Otherwise like [`crate::run()`].
pub(crate) fn run(
    designs: &[Design],
    (facts, open): (&Facts, &(dyn Fn() -> Result<Vec<Stream>, Error> + Sync)),
    options: &Options,
    shards: &[Shard],
    away: Option<RemoteRun<'_>>,
    progress: &mut dyn FnMut(&Progress) -> bool,
) -> Result<RunResult, Error> {
    let start = Instant::now();
    let threads = options.host_threads.unwrap_or_else(host_cores).max(1);
    // The result needs the machines of the last shard, so this host simulates it.
    let others: Vec<usize> = match away {
        Some(_) => (0..shards.len() - 1).collect(),
        None => Vec::new(),
    };
    if let Some(RemoteRun { hosts, spec }) = away {
        hosts.begin(spec, &others, shards.len())?;
    }
    let run = ShardedRun {
        designs,
        open,
        options,
        facts,
        shards,
        threads,
        side_by_side: (threads / designs.len()).clamp(1, shards.len()),
        todo: Mutex::new(Open {
            here: (others.len()..shards.len()).collect(),
            away: others.len(),
        }),
        stop: AtomicBool::new(false),
        wake: WakeSignal::default(),
        seen: shards.iter().map(|_| Mutex::new(None)).collect(),
        ended: Mutex::default(),
    };
    on_threads(run.side_by_side, &run.stop, &|| run.work(), &mut || {
        if let Some(RemoteRun { hosts, .. }) = away {
            run.handle_events(hosts);
        }
        if !progress(&together(&run.seen, shards, options, start)) {
            run.stop();
        }
    })?;
    run.conclude(start)
}

impl ShardedRun<'_> {
    /// Worker thread of this host: takes shards until none is left.
    fn work(&self) {
        // A run that is stopped before its first shard still begins one: its result needs a machine.
        let mut has_begun = false;
        loop {
            let version = self.wake.generation();
            let stopped = self.stop.load(Ordering::Relaxed);
            if stopped && has_begun {
                return;
            }
            let mut todo = lock(&self.todo);
            let Some(number) = todo.here.pop_front() else {
                if todo.away == 0 || stopped {
                    return;
                }
                drop(todo);
                // A remote shard may still fail and return to this host.
                self.wake.wait(version);
                continue;
            };
            drop(todo);
            has_begun = true;
            let mut on_progress = |p: &Progress| {
                *lock(&self.seen[number]) = Some(p.clone());
                !self.stop.load(Ordering::Relaxed)
            };
            let share = PassShare {
                shard: self.shards[number],
                host_threads: self.threads.min(self.designs.len()),
                machines: self.side_by_side * self.designs.len(),
            };
            let run = (self.open)().and_then(|streams| {
                pass(
                    self.designs,
                    streams,
                    self.options,
                    (share, None),
                    &mut on_progress,
                )
            });
            match run {
                Ok(mut pass) => {
                    let left = pass.machines.iter_mut().map(Left::of).collect();
                    let mut ended = lock(&self.ended);
                    ended.left.insert(number, left);
                    if ended.latest.as_ref().is_none_or(|(n, _)| *n < number) {
                        ended.latest = Some((number, pass));
                    }
                }
                Err(e) => self.fail(number, e),
            }
        }
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake.notify();
    }

    fn fail(&self, number: usize, error: Error) {
        let mut ended = lock(&self.ended);
        if ended.error.as_ref().is_none_or(|(n, _)| *n > number) {
            ended.error = Some((number, error));
        }
        drop(ended);
        self.stop();
    }

    /// Handles the events of the remote hosts.
    fn handle_events(&self, hosts: &dyn RemoteHosts) {
        let events = match hosts.events() {
            Ok(events) => events,
            // An error that concerns all shards.
            Err(e) => return self.fail(self.shards.len(), e),
        };
        for event in events {
            match event {
                RemoteEvent::Share(number, share) => self.advance(number, share),
                RemoteEvent::Ended(number, text) => {
                    match Report::read(&text, self.facts, self.designs.len()) {
                        Ok(left) => {
                            self.advance(number, 1.0);
                            let mut ended = lock(&self.ended);
                            ended.left.insert(number, left);
                            ended.remote += 1;
                            drop(ended);
                            self.back(None);
                        }
                        Err(why) => {
                            let (n, of) = (number + 1, self.shards.len());
                            let why = format!("shard {n} of {of}: {why}");
                            self.fail(number, Error::option(RunOption::Cluster, why));
                        }
                    }
                }
                RemoteEvent::Failed(number, why) => {
                    let failed = &mut lock(&self.ended).failed;
                    failed.entry(why).or_default().push(number);
                    self.back(Some(number));
                }
            }
        }
    }

    /// Removes a shard from the remote ones; `here`: this host has to simulate it.
    fn back(&self, here: Option<usize>) {
        let mut todo = lock(&self.todo);
        todo.away -= 1;
        todo.here.extend(here);
        drop(todo);
        self.wake.notify();
    }

    /// Records the progress of a remote shard.
    fn advance(&self, number: usize, share: f64) {
        let end = end(self.shards[number], self.options).unwrap_or(0);
        // The share is one of the whole run; the shard is done when its own end is reached.
        let total = PhasePlan::total(&self.options.limits).unwrap_or(end);
        *lock(&self.seen[number]) = Some(Progress {
            design_instructions: Vec::new(),
            done: end.min((total as f64 * share) as u64),
            total: None,
            phase: "on other hosts",
            seconds: 0.0,
        });
    }

    /// Combines all shards into the result.
    fn conclude(self, start: Instant) -> Result<RunResult, Error> {
        let FinishedShards {
            mut left,
            latest,
            error,
            remote,
            failed,
        } = self
            .ended
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((_, error)) = error {
            return Err(error);
        }
        let Some((_, mut last)) = latest else {
            return Err(Error::failed(
                "a simulation thread failed; this is a defect of Pagewalk",
            ));
        };
        let all = left.len() == self.shards.len();
        for (design, machine) in last.machines.iter_mut().enumerate().rev() {
            let of_it = left.values_mut().filter_map(Vec::pop).collect();
            Left::all_into(of_it, machine).ok_or_else(|| {
                Error::failed(format!("design {}: another host counts other things than this one: install the same Pagewalk on both", self.designs[design].name))
            })?;
            if !all && machine.outcome == Some(Outcome::Complete) {
                machine.outcome = Some(Outcome::Stopped);
            }
        }
        let host_threads = self.threads.min(self.designs.len()) * self.side_by_side;
        let mut result = conclude(last, self.designs, self.options, start, host_threads)?;
        result.host.remote_shards = remote;
        let warnings = failed.into_iter().map(|(why, mut numbers)| {
            numbers.sort_unstable();
            let numbers: Vec<String> = numbers.iter().map(|n| (n + 1).to_string()).collect();
            let (which, of) = (numbers.join(", "), self.shards.len());
            format!(
                "--cluster: of {of} shards this host simulated {which}, which another host did not return: {why}"
            )
        });
        result.warnings.extend(warnings);
        Ok(result)
    }
}

/// Instructions up to the end of a shard, if known.
fn end(shard: Shard, options: &Options) -> Option<u64> {
    let limits = &options.limits;
    let period = limits.sample.map_or(0, |s| s.period);
    let measured = shard.end.map(|end| end * period).or(limits.instructions)?;
    Some(limits.skip + limits.warmup + measured)
}

/// Progress of all shards together.
fn together(
    seen: &[Mutex<Option<Progress>>],
    shards: &[Shard],
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
    let ends = shards.iter().map(|p| end(*p, options));
    Progress {
        design_instructions: designs,
        done: seen.iter().map(|p| p.done).sum(),
        total: ends.sum(),
        phase: seen.last().map_or("start", |p| p.phase),
        seconds: start.elapsed().as_secs_f64(),
    }
}
