//! Running designs on one program, side by side on the host's cores.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pagewalk_stream::Program;

use crate::config::Config;
use crate::hub::Hub;
use crate::limits::{Limits, Plan};
use crate::machine::{Machine, Outcome, Pause};
use crate::perfetto;
use crate::results::{self, RunResult};

/// A design to run: its name, what it says of itself, and the whole configuration.
#[derive(Clone, Debug)]
pub struct Design {
    /// For tables.
    pub name: String,
    /// One sentence.
    pub description: String,
    /// Machine and design, resolved.
    pub config: Config,
}

/// Everything about a run but program and designs.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Name of the machine, for the result.
    pub machine: String,
    /// What is measured.
    pub limits: Limits,
    /// Seed of all random choices of the machine.
    pub seed: u64,
    /// Host threads; `None`: one for each host core, at most one a design.
    pub host_threads: Option<usize>,
    /// Instructions of an interval of the interval statistics.
    pub interval: Option<u64>,
    /// Where a Perfetto (Chrome JSON) file of single walks goes.
    pub perfetto: Option<PathBuf>,
    /// Walks to keep for each design in that file.
    pub perfetto_walks: usize,
}

/// How far a run is.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Progress {
    /// Instructions of each design, in order.
    pub design_instructions: Vec<(String, u64)>,
    /// Instructions that the slowest design has done.
    pub done: u64,
    /// Instructions of a whole design, when that is known.
    pub total: Option<u64>,
    /// What the slowest design is at.
    pub phase: &'static str,
    /// Seconds since the start.
    pub seconds: f64,
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The user can mend it.
    #[error("{0}")]
    User(String),
    /// The user cannot.
    #[error("{0}")]
    Failure(String),
}

/// Batches that a worker lets a design take before it looks for a slower one.
const TURN: u32 = 32;

/// Runs `designs` on `program`; calls `progress` about five times a second,
/// which returns false to stop. Whatever was measured until then is in the result.
///
/// # Errors
/// A configuration that a component refuses, or a file that cannot be written.
pub fn run(
    program: Box<dyn Program>,
    designs: &[Design],
    options: &Options,
    progress: &mut dyn FnMut(&Progress) -> bool,
) -> Result<RunResult, RunError> {
    options.limits.validate().map_err(RunError::User)?;
    if designs.is_empty() {
        return Err(RunError::User(
            "no design is given: expected at least one, such as radix".to_owned(),
        ));
    }
    for (i, d) in designs.iter().enumerate() {
        if designs[..i].iter().any(|other| other.name == d.name) {
            return Err(RunError::User(format!(
                "two designs are called {}: expected a name of its own for each (that of its file, or a copy's label)",
                d.name
            )));
        }
    }
    let facts = program.facts();
    let mut machines = Vec::with_capacity(designs.len());
    for d in designs {
        let mut m = Machine::new(
            &d.config,
            options.limits,
            &facts,
            options.seed,
            options.interval,
        )
        .map_err(|e| RunError::User(format!("design {}: {e}", d.name)))?;
        if options.perfetto.is_some() {
            m.record_walks(options.perfetto_walks.max(1));
        }
        machines.push(m);
    }
    let host_threads = options
        .host_threads
        .unwrap_or_else(host_cores)
        .clamp(1, designs.len());
    let hub = Hub::new(program, machines.len());
    let start = Instant::now();
    let slots: Vec<Mutex<Option<Machine>>> =
        machines.into_iter().map(|m| Mutex::new(Some(m))).collect();
    let shared = Workers {
        hub: &hub,
        slots: &slots,
        busy: Mutex::new(vec![false; slots.len()]),
        stop: AtomicBool::new(false),
        seen: (0..slots.len()).map(|_| Mutex::new((0, "start"))).collect(),
        panicked: AtomicBool::new(false),
    };
    let total = Plan::total(&options.limits).or(facts.instructions);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..host_threads)
            .map(|i| {
                let shared = &shared;
                std::thread::Builder::new()
                    .name(format!("design-{i}"))
                    .spawn_scoped(scope, move || shared.work())
                    .map_err(|e| {
                        RunError::Failure(format!("a host thread could not be started: {e}"))
                    })
            })
            .collect::<Result<_, _>>()?;
        let mut next_report = Instant::now();
        while !workers
            .iter()
            .all(std::thread::ScopedJoinHandle::is_finished)
        {
            std::thread::sleep(Duration::from_millis(5));
            if next_report <= Instant::now() {
                next_report += Duration::from_millis(200);
                if !progress(&shared.progress(designs, total, start)) {
                    shared.stop.store(true, Ordering::Relaxed);
                    hub.touch();
                }
            }
        }
        for w in workers {
            if w.join().is_err() {
                return Err(RunError::Failure(
                    "a simulation thread failed; this is a defect of Pagewalk".to_owned(),
                ));
            }
        }
        Ok(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let exit_status = hub.exit_status();
    let mut results = Vec::with_capacity(designs.len());
    let mut recordings = Vec::new();
    for (slot, design) in slots.into_iter().zip(designs) {
        let machine = slot
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(mut machine) = machine else {
            return Err(RunError::Failure(
                "a design was lost; this is a defect of Pagewalk".to_owned(),
            ));
        };
        if options.perfetto.is_some() {
            recordings.push(perfetto::take(
                &design.name,
                design.config.frequency_ghz,
                &mut machine,
            ));
        }
        results.push(results::design_result(design, &machine));
    }
    let mut result =
        results::run_result(&facts, exit_status, options, results, seconds, host_threads);
    if let Some(path) = &options.perfetto
        && let Err(e) = perfetto::write(path, &recordings)
    {
        // The results are not lost with it.
        result.failed_files.push(format!(
            "{}: the Perfetto file could not be written: {e}",
            path.display()
        ));
    }
    Ok(result)
}

/// Cores of the host that this process may use.
pub fn host_cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

struct Workers<'a> {
    hub: &'a Hub,
    slots: &'a [Mutex<Option<Machine>>],
    busy: Mutex<Vec<bool>>,
    stop: AtomicBool,
    /// Instructions and phase of each design, for the progress report.
    seen: Vec<Mutex<(u64, &'static str)>>,
    panicked: AtomicBool,
}

fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Marks a panic of one worker, so that the others do not wait for its design.
struct OnPanic<'a>(&'a AtomicBool);

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

impl Workers<'_> {
    /// Takes the design that has come least far, runs it for a while, and
    /// starts again: no design is starved, whatever it costs the host.
    fn work(&self) {
        let _on_panic = OnPanic(&self.panicked);
        loop {
            if self.panicked.load(Ordering::Relaxed) {
                return;
            }
            let version = self.hub.version();
            let me = {
                let mut busy = lock(&self.busy);
                let me = self.hub.slowest(|m| !busy[m]);
                if let Some(me) = me {
                    busy[me] = true;
                }
                me
            };
            let Some(me) = me else {
                if self.hub.slowest(|_| true).is_none() {
                    return;
                }
                self.hub.wait_for_change(version);
                continue;
            };
            let mut slot = lock(&self.slots[me]);
            let machine = slot.as_mut().expect("machines stay in their slots");
            if self.stop.load(Ordering::Relaxed) {
                machine.stop(Outcome::Stopped);
            }
            let pause = machine.advance(self.hub, me, TURN);
            *lock(&self.seen[me]) = (machine.executed, machine.phase_word());
            drop(slot);
            if pause == Pause::Over {
                self.hub.finish(me);
            }
            lock(&self.busy)[me] = false;
            match pause {
                Pause::Turn | Pause::Over => self.hub.touch(),
                // Only a slower design, in the hands of another worker, can help.
                Pause::Ahead => self.hub.wait_for_change(version),
                Pause::Starved => {
                    self.hub.touch();
                    self.hub.wait_for_program();
                }
            }
        }
    }

    fn progress(&self, designs: &[Design], total: Option<u64>, start: Instant) -> Progress {
        let seen: Vec<(u64, &'static str)> = self.seen.iter().map(|s| *lock(s)).collect();
        let slowest = seen
            .iter()
            .min_by_key(|s| s.0)
            .copied()
            .unwrap_or((0, "start"));
        Progress {
            design_instructions: designs
                .iter()
                .zip(&seen)
                .map(|(d, s)| (d.name.clone(), s.0))
                .collect(),
            done: slowest.0,
            total,
            phase: slowest.1,
            seconds: start.elapsed().as_secs_f64(),
        }
    }
}
