//! Runs designs on programs, side by side on the cores of the host.
//!
//! A run has one or more streams. A [`Stream`] is a program and the designs that run on it; a [`Fanout`]
//! makes its batches once for all of them. Each design has one machine and one [`DesignRun`]. Host
//! threads are the workers: each repeatedly takes the free machine that has progressed least, runs it for
//! a turn and puts it back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use pagewalk_programs::available_memory;
use pagewalk_stats::Tree;
use pagewalk_stream::{Facts, Program, Unseen};
use pagewalk_units::{Error, RunOption, text};

use crate::estimate::SampleCounts;
use crate::fanout::{Fanout, FastForwarding};
use crate::machine::{Machine, Outcome, Pause, Room};
use crate::options::{Design, Options};
use crate::perfetto;
use crate::plan::{PhasePlan, Shard};
use crate::regions::Regions;
use crate::results::{self, RunResult};
use crate::wake_signal::{WakeSignal, lock};

/// Progress of a run.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Progress {
    /// Instructions of each design, in order.
    pub design_instructions: Vec<(String, u64)>,
    /// Instructions of the slowest design.
    pub done: u64,
    /// Instructions of a complete design, if known.
    pub total: Option<u64>,
    /// Phase of the slowest design.
    pub phase: &'static str,
    /// Seconds since the start.
    pub seconds: f64,
}

/// Limits reports to five a second.
#[derive(Default)]
pub(crate) struct Pace {
    next: Option<Instant>,
}

impl Pace {
    /// True if a report is due.
    pub(crate) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let due = self.next.is_none_or(|next| next <= now);
        if due {
            self.next = Some(now + Duration::from_millis(200));
        }
        due
    }
}

/// The first samples of a design.
pub(crate) struct FirstSamples {
    pub(crate) name: String,
    pub(crate) samples: Vec<SampleCounts>,
    /// Counters of the measured part up to the last of these samples.
    pub(crate) tree: Tree,
}

/// Check of the first samples, which may end the pass early.
pub(crate) struct EarlyCheck<'a> {
    /// Samples of each design that are checked.
    pub(crate) after: usize,
    /// Called once, when all designs have these samples, at the latest at the end of the pass. True ends
    /// the pass.
    pub(crate) ends: &'a mut dyn FnMut(Vec<FirstSamples>) -> bool,
}

/// Batches that a design may take in a turn of its worker.
const TURN: u32 = 32;

/// A program and the designs that run on it.
pub struct Stream {
    /// The program; it makes each batch once.
    pub program: Box<dyn Program>,
    /// Indices into the list of all designs. A design with a shortcut has a stream of its own, because
    /// its query results steer the program.
    pub designs: Vec<usize>,
}

/// Runs each of `designs` on the stream of `streams` that names it. Calls `progress` about five times a
/// second; it returns false to stop. The result then covers what was measured until that moment. Its
/// designs are in the given order.
///
/// # Errors
/// A component refuses its configuration, designs and streams do not match, or a host thread cannot be
/// started.
pub fn run(
    designs: &[Design],
    streams: Vec<Stream>,
    options: &Options,
    progress: &mut dyn FnMut(&Progress) -> bool,
) -> Result<RunResult, Error> {
    run_unless(designs, streams, options, None, progress)
}

/// As [`run`], with an optional early check of the first samples.
pub(crate) fn run_unless(
    designs: &[Design],
    streams: Vec<Stream>,
    options: &Options,
    early: Option<EarlyCheck<'_>>,
    progress: &mut dyn FnMut(&Progress) -> bool,
) -> Result<RunResult, Error> {
    let start = Instant::now();
    let host_threads = options
        .host_threads
        .unwrap_or_else(host_cores)
        .clamp(1, designs.len());
    let share = PassShare {
        shard: Shard::default(),
        host_threads,
        machines: designs.len(),
    };
    let pass = pass(designs, streams, options, (share, early), progress)?;
    conclude(pass, designs, options, start, host_threads)
}

/// Machines and facts of a program after a pass.
pub(crate) struct Pass {
    pub(crate) machines: Vec<Machine>,
    /// Index of each machine's stream.
    streams: Vec<usize>,
    facts: Facts,
    exit_status: Option<i32>,
    unseen: Vec<String>,
}

/// Part of a run that one pass simulates.
#[derive(Clone, Copy)]
pub(crate) struct PassShare {
    /// Samples of the pass.
    pub(crate) shard: Shard,
    /// Host threads that run the designs of the pass.
    pub(crate) host_threads: usize,
    /// Machines on the host at the same time, over all passes.
    pub(crate) machines: usize,
}

/// Simulates one share of a run.
pub(crate) fn pass(
    designs: &[Design],
    streams: Vec<Stream>,
    options: &Options,
    (share, mut early): (PassShare, Option<EarlyCheck<'_>>),
    progress: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Pass, Error> {
    options.limits.validate()?;
    check(designs, &streams)?;
    let facts: Vec<Facts> = streams.iter().map(|s| s.program.facts()).collect();
    if let Some(regions) = &options.regions {
        regions.validate(options)?;
        for f in &facts {
            regions.are_of(f)?;
        }
    }
    let room = (!options.ignore_memory).then(available_memory).flatten();
    let mut design_runs: Vec<Option<DesignRun>> = designs.iter().map(|_| None).collect();
    for (stream, s) in streams.iter().enumerate() {
        for (number, &design) in s.designs.iter().enumerate() {
            design_runs[design] = Some(DesignRun {
                stream,
                number,
                machine: Mutex::new({
                    let mut machine =
                        build(&designs[design], &facts[stream], options, share.shard)?;
                    let (config, name) = (&designs[design].config, &facts[stream].name);
                    machine.room = room.and_then(|r| Room::of(config, name, r, share.machines));
                    machine
                }),
                seen: Mutex::new((0, "start")),
                first: Mutex::new(None),
            });
        }
    }
    let changes = Arc::new(WakeSignal::default());
    let fanouts = streams.into_iter().zip(&facts).map(|(s, facts)| {
        let answers = s.designs.iter().any(|&d| designs[d].has_shortcut());
        let by_pages = s.designs.iter().all(|&d| designs[d].skips_by_pages(facts));
        let passes = match options.limits.skip_requests {
            _ if !by_pages => FastForwarding::Never,
            0 if options.limits.sample.is_none() || options.limits.requests.is_none() => {
                FastForwarding::ByInstructions
            }
            _ => FastForwarding::ByRequests,
        };
        let changes = Arc::clone(&changes);
        Fanout::new(s.program, s.designs.len(), (answers, passes), changes)
    });
    let start = Instant::now();
    let workers = Workers {
        fanouts: fanouts.collect(),
        design_runs: design_runs.into_iter().flatten().collect(),
        wake: &changes,
        busy: Mutex::new(vec![false; designs.len()]),
        first: early.as_ref().map_or(0, |early| early.after),
        stop: AtomicBool::new(false),
        panicked: AtomicBool::new(false),
    };
    let regions_end = options.regions.as_ref().map(Regions::end);
    let total = regions_end
        .or(PhasePlan::total(&options.limits))
        .or(facts[0].instructions);
    let mut stopped = false;
    workers.run(share.host_threads, &mut |w| {
        stopped |= !progress(&w.progress(designs, total, start));
        !stopped && !w.ends(designs, &mut early)
    })?;
    if !stopped {
        // The check always happens, even if all designs ended before it was due.
        workers.ends(designs, &mut early);
    }
    let unseen = Unseen::sentences(&workers.fanouts[0].unseen());
    let streams: Vec<usize> = workers.design_runs.iter().map(|l| l.stream).collect();
    let machines: Vec<Machine> = workers
        .design_runs
        .into_iter()
        .map(|l| {
            l.machine
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner)
        })
        .collect();
    // The emulator runs ahead. A death that no machine has reached is not part of the run. Statuses from 128 on are
    // those of signals.
    let reached = machines.iter().any(|m| m.program_ended);
    let exit_status = workers.fanouts[0].exit_status();
    let exit_status = exit_status.filter(|status| reached || *status < 128);
    Ok(Pass {
        machines,
        streams,
        facts: facts.into_iter().next().expect("a stream, as checked"),
        exit_status,
        unseen,
    })
}

/// The result of a pass that began at `start`.
pub(crate) fn conclude(
    pass: Pass,
    designs: &[Design],
    options: &Options,
    start: Instant,
    host_threads: usize,
) -> Result<RunResult, Error> {
    let Pass {
        mut machines,
        streams,
        facts,
        exit_status,
        unseen,
    } = pass;
    let lacking = |m: &Machine| match &m.outcome {
        Some(Outcome::HostMemory(why)) => Some(why.clone()),
        _ => None,
    };
    let measured = machines.iter().any(|m| m.measured.tree.is_some());
    if let Some(why) = machines.iter().map(lacking).collect::<Option<Vec<_>>>()
        && !measured
    {
        // Nothing was measured, so the lack of host memory is the only result.
        return Err(Error::refused(why[0].clone()));
    }
    let mut result = results::run_result(
        &facts,
        (exit_status, unseen),
        options,
        designs.iter().zip(&machines).zip(streams),
        start.elapsed().as_secs_f64(),
        host_threads,
    );
    if let Some(path) = &options.perfetto {
        let recordings: Vec<_> = designs
            .iter()
            .zip(&mut machines)
            .filter(|(d, _)| !d.beside)
            .map(|(d, m)| perfetto::take(&d.name, d.config.frequency_ghz, m))
            .collect();
        if let Err(e) = perfetto::write(path, &recordings) {
            // The results survive a failed Perfetto file.
            result.failed_files.push(format!(
                "{}: the Perfetto file could not be written: {e}",
                path.display()
            ));
        }
    }
    Ok(result)
}

/// Refuses two designs of one name, and streams that do not name each design exactly once.
fn check(designs: &[Design], streams: &[Stream]) -> Result<(), Error> {
    if designs.is_empty() {
        return Err(Error::refused(
            "no design is given: expected at least one, such as radix",
        ));
    }
    for (i, d) in designs.iter().enumerate() {
        if designs[..i].iter().any(|other| other.name == d.name) {
            return Err(Error::refused(format!(
                "two designs are called {}: expected a name of its own for each (that of its file, or a copy's label)",
                d.name
            )));
        }
    }
    let mut given: Vec<usize> = streams.iter().flat_map(|s| s.designs.clone()).collect();
    given.sort_unstable();
    if given != (0..designs.len()).collect::<Vec<_>>() {
        return Err(Error::failed(format!(
            "the streams name designs {given:?} of {}; expected each once",
            designs.len()
        )));
    }
    for s in streams {
        let answers = |&&d: &&usize| designs[d].has_shortcut();
        if let (Some(&d), 2..) = (s.designs.iter().find(answers), s.designs.len()) {
            return Err(Error::failed(format!(
                "{} gives replies to its program and shares it with other designs; expected a stream of its own",
                designs[d].name
            )));
        }
    }
    Ok(())
}

/// Builds the machine of a design for a program with `facts`.
fn build(
    design: &Design,
    facts: &Facts,
    options: &Options,
    shard: Shard,
) -> Result<Machine, Error> {
    let mut machine = Machine::new(design, options, facts, shard)
        .map_err(|e| e.at(format!("design {}", design.name)))?;
    if options.perfetto.is_some() {
        machine.record_walks(options.perfetto_walks.max(1));
    }
    Ok(machine)
}

/// Host cores that this process may use.
pub fn host_cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// First samples, and the counters of the measured part up to the last of them.
type First = (Vec<SampleCounts>, Tree);

/// A design's machine and its stream.
struct DesignRun {
    /// Index of its stream.
    stream: usize,
    /// Index among the designs of that stream.
    number: usize,
    machine: Mutex<Machine>,
    /// Instructions and phase for the progress report.
    seen: Mutex<(u64, &'static str)>,
    /// The first samples, once the design has all that are checked early.
    first: Mutex<Option<First>>,
}

impl DesignRun {
    /// Keeps the `first` samples as soon as there are that many.
    fn keep_first(&self, first: usize, machine: &Machine) {
        let measured = &machine.measured;
        if first == 0 || measured.samples.len() < first {
            return;
        }
        let mut kept = lock(&self.first);
        if kept.is_none() {
            let samples = measured.samples[..first].to_vec();
            *kept = measured.tree.clone().map(|tree| (samples, tree));
        }
    }
}

struct Workers<'a> {
    fanouts: Vec<Fanout>,
    design_runs: Vec<DesignRun>,
    wake: &'a WakeSignal,
    busy: Mutex<Vec<bool>>,
    /// Samples of each design that are checked early; 0 without such a check.
    first: usize,
    stop: AtomicBool,
    panicked: AtomicBool,
}

/// Runs `work` on `threads` host threads, and calls `on_progress` about five times a second. Sets `stop` if a
/// thread cannot be started.
pub(crate) fn on_threads(
    threads: usize,
    stop: &AtomicBool,
    work: &(dyn Fn() + Sync),
    on_progress: &mut dyn FnMut(),
) -> Result<(), Error> {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|i| {
                std::thread::Builder::new()
                    .name(format!("design-{i}"))
                    .spawn_scoped(scope, work)
                    .map_err(|e| {
                        stop.store(true, Ordering::Relaxed);
                        Error::failed(text![format!("a host thread could not be started: {e}; raise the limit of memory or of processes (ulimit -v, ulimit -u), or take fewer threads ("), RunOption::Jobs, ")"])
                    })
            })
            .collect::<Result<_, _>>()?;
        let mut pace = Pace::default();
        while !workers.iter().all(ScopedJoinHandle::is_finished) {
            std::thread::sleep(Duration::from_millis(5));
            if pace.is_due() {
                on_progress();
            }
        }
        let ended: Result<Vec<()>, _> = workers.into_iter().map(ScopedJoinHandle::join).collect();
        ended.map_err(|_| {
            Error::failed("a simulation thread failed; this is a defect of Pagewalk")
        })?;
        Ok(())
    })
}

/// Records the panic of a worker, so that the others do not wait for its design.
struct OnPanic<'a>(&'a AtomicBool);

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Next action of a worker.
enum Turn {
    /// Run this design.
    Take(usize),
    /// All unfinished designs are being run by other workers.
    Wait,
    /// All designs have finished.
    Over,
}

impl Workers<'_> {
    /// Runs all designs to their ends on `threads` host threads.
    fn run(&self, threads: usize, go_on: &mut dyn FnMut(&Self) -> bool) -> Result<(), Error> {
        on_threads(threads, &self.stop, &|| self.work(), &mut || {
            if !go_on(self) {
                self.stop.store(true, Ordering::Relaxed);
                self.wake.notify();
            }
        })
    }

    /// Worker loop: takes the design that has progressed least and runs it for a turn. No design starves,
    /// however slow it is on the host.
    fn work(&self) {
        let _on_panic = OnPanic(&self.panicked);
        // The design that could not continue in the last turn. Designs of other streams go first once.
        let mut waits = None;
        loop {
            if self.panicked.load(Ordering::Relaxed) {
                return;
            }
            let version = self.wake.generation();
            let me = match self.next(waits) {
                Turn::Take(me) => me,
                Turn::Wait => {
                    self.wake.wait(version);
                    continue;
                }
                Turn::Over => return,
            };
            let again = waits.take() == Some(me);
            let design_run = &self.design_runs[me];
            let fanout = &self.fanouts[design_run.stream];
            let mut machine = lock(&design_run.machine);
            if self.stop.load(Ordering::Relaxed) {
                machine.stop(Outcome::Stopped);
            }
            let pause = machine.advance(fanout, design_run.number, TURN);
            *lock(&design_run.seen) = (machine.executed.instructions, machine.phase_word());
            design_run.keep_first(self.first, &machine);
            drop(machine);
            if pause == Pause::Over {
                fanout.finish(design_run.number);
            }
            lock(&self.busy)[me] = false;
            if matches!(pause, Pause::Ahead | Pause::Starved) {
                waits = Some(me);
            }
            match pause {
                // Only another worker can help: it runs a slower design or makes the next batch.
                Pause::Ahead if again => self.wake.wait(version),
                Pause::Starved if again => {
                    self.wake.notify();
                    fanout.wait_for_program();
                }
                _ => self.wake.notify(),
            }
        }
    }

    /// The free design that has progressed least. Designs of the stream of `waits` come last.
    fn next(&self, waits: Option<usize>) -> Turn {
        let mut busy = lock(&self.busy);
        let progress: Vec<Vec<Option<u64>>> = self.fanouts.iter().map(Fanout::progress).collect();
        let done = |l: &DesignRun| progress[l.stream][l.number];
        if self.design_runs.iter().all(|l| done(l).is_none()) {
            return Turn::Over;
        }
        let stream = waits.map(|w| self.design_runs[w].stream);
        let of_another_stream = |m: usize| Some(self.design_runs[m].stream) != stream;
        let best = (0..self.design_runs.len())
            .filter(|&m| !busy[m])
            .filter_map(|m| Some((m, done(&self.design_runs[m])?)))
            .min_by_key(|&(m, done)| (stream.is_some() && !of_another_stream(m), done));
        match best {
            Some((me, _)) => {
                busy[me] = true;
                Turn::Take(me)
            }
            None => Turn::Wait,
        }
    }

    /// True if the early check of `designs` ends the pass. The check runs once all designs have their
    /// first samples.
    fn ends(&self, designs: &[Design], early: &mut Option<EarlyCheck<'_>>) -> bool {
        let all = self
            .design_runs
            .iter()
            .all(|design_run| lock(&design_run.first).is_some());
        let Some(early) = early.take_if(|_| all) else {
            return false;
        };
        let first = self
            .design_runs
            .iter()
            .zip(designs)
            .filter(|(_, d)| !d.beside);
        let first = first.filter_map(|(design_run, d)| {
            let (samples, tree) = lock(&design_run.first).take()?;
            let name = d.name.clone();
            Some(FirstSamples {
                name,
                samples,
                tree,
            })
        });
        (early.ends)(first.collect())
    }

    fn progress(&self, designs: &[Design], total: Option<u64>, start: Instant) -> Progress {
        let seen: Vec<(u64, &'static str)> =
            self.design_runs.iter().map(|l| *lock(&l.seen)).collect();
        let slowest = seen
            .iter()
            .min_by_key(|s| s.0)
            .copied()
            .unwrap_or((0, "start"));
        Progress {
            design_instructions: designs
                .iter()
                .zip(&seen)
                .filter(|(d, _)| !d.beside)
                .map(|(d, s)| (d.name.clone(), s.0))
                .collect(),
            done: slowest.0,
            total,
            phase: slowest.1,
            seconds: start.elapsed().as_secs_f64(),
        }
    }
}
