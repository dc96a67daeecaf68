//! One simulated machine: its components, their wiring and its counters. The submodules have its
//! behaviour:
//!
//! - `scheduler`, `turn` and `waits`: choice of the next core, its turn, and threads that wait
//! - `events`, `kernel` and `background`: program events, kernel calls and kernel threads
//! - `phases`, `skip` and `filtered_warming`: phase boundaries, fast-forwarding and filtered warming
//! - `parts` and `accounts`: the programs of a mix and their shares of the counters

mod accounts;
mod background;
mod before;
mod clock;
mod events;
mod filtered_warming;
mod kernel;
mod parts;
mod phases;
mod room;
mod scheduler;
mod shortcut_query;
mod skip;
mod turn;
mod waits;

use std::collections::{BTreeMap, VecDeque};

use pagewalk_cpu::Core;
use pagewalk_memory::{Level, Private, Report, Shared};
use pagewalk_mmu::source::SharedPart;
use pagewalk_mmu::{Mmu, WalkRecord};
use pagewalk_os::{Effects, InferredPages, Os, Pid};
use pagewalk_stats::Tree;
use pagewalk_stream::{
    Death, Ended, Facts, InstructionCounts, ProcessId, RecentLineFilter, ThreadId,
};
use pagewalk_tables::{Invalidation, ShortcutSpec};
use pagewalk_units::{Access, Cycle, Error, Part, PhysAddr, Text, text};
use serde::{Deserialize, Serialize};

pub use self::accounts::Account;
use self::background::Background;
use self::parts::Parts;
pub(crate) use self::room::Room;
use self::skip::TouchFilter;
use crate::config::Config;
use crate::estimate::{STALE_STRUCTURES, StaleLookups};
use crate::measure::{Measured, Snapshot};
use crate::options::{Design, Options};
use crate::plan::{PhasePlan, Shard};
use crate::thread::{Process, SoftwareThread};
use crate::work::Work;

/// Reason why the run of a design ended or cannot continue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The measured part is complete.
    Complete,
    /// The run was stopped from outside.
    Stopped,
    /// Simulated memory ran out.
    OutOfMemory(String),
    /// Host memory would run out.
    HostMemory(Text),
    /// The page table needs a contiguous block that memory does not have.
    CannotFinish(String),
    /// The program failed.
    Program(String),
    /// A process of the program died of a signal.
    Died(String),
    /// The program accessed unmapped memory.
    Fault(String),
}

/// Reason why [`Machine::advance`] returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// The machine has used up its turn.
    Turn,
    /// Other machines have to catch up, or another worker is making the next batch.
    Ahead,
    /// The live program has nothing for any thread.
    Starved,
    /// The machine has finished.
    Over,
}

/// Sets `bytes` of contiguous memory aside at boot, for the part of the machine whose size `key`
/// determines.
fn set_aside(os: &mut Os, key: String, bytes: u64) -> Result<PhysAddr, Error> {
    os.set_aside(bytes).map_err(|why| {
        Error::keyed(
            key,
            text![
                format!("{bytes} bytes of contiguous memory cannot be set aside at boot: {why}; lower it or "),
                Part::key("os.fragmentation"),
                ", or enlarge ",
                Part::key("os.memory_gb"),
            ],
        )
    })
}

/// Names of the cache levels that not every machine has and this one lacks.
fn absent_levels(config: &Config) -> Vec<&'static str> {
    let given = || config.caches.data_levels().chain(config.memory.levels());
    let lacks = |level: &Level| !given().any(|(l, _)| l == *level);
    let absent = [Level::L0, Level::L4].into_iter().filter(lacks);
    absent.map(Level::name).collect()
}

/// True if the counter of this name counts what `level` served, such as `walk_reads_l4`.
fn counts_level(name: &str, level: &str) -> bool {
    let before = name.strip_suffix(level);
    before.is_some_and(|before| before.is_empty() || before.ends_with('_'))
}

/// A machine with one design, on which a program runs.
pub(crate) struct Machine {
    config: Config,
    pub(crate) os: Os,
    pub(crate) cores: Vec<Core>,
    shared: Shared,
    /// The parts of translation sources that all cores share.
    source_parts: Vec<Box<dyn SharedPart>>,
    /// True if a translation source follows the pages that fast-forwarding touches.
    sources_follow: bool,
    /// The memory of the program can be read.
    memory: bool,
    /// Live threads.
    threads: BTreeMap<ThreadId, SoftwareThread>,
    processes: BTreeMap<ProcessId, Process>,
    ended: Ended,
    /// Threads ended by the end of their process and not yet reported to the fan-out.
    gone: Vec<ThreadId>,
    ready: VecDeque<ThreadId>,
    on_core: Vec<Option<ThreadId>>,
    /// True for each core with a thread that is not starved. Cached, because each turn reads it.
    runnable: Vec<bool>,
    /// Last thread on each core and its process; both may have ended.
    ran: Vec<Option<(ThreadId, Pid)>>,
    slice_end: Vec<Cycle>,
    /// Instructions fast-forwarded on each core. They keep cores in step while the clocks stand still.
    skipped: Vec<u64>,
    /// Time that has passed while the cores' clocks stood still, for the program's clocks.
    still: Cycle,
    /// Number of threads that sleep.
    sleeping: usize,
    /// Polls of threads in the kernel since a sleeping thread last had to wait for them.
    polls: u32,
    touched: TouchFilter,
    /// Recent-line filter of each core, for filtered warming.
    recent_lines: Vec<RecentLineFilter>,
    /// Accesses for filtered warming; between batches, those of an incomplete group.
    to_warm: Vec<(u64, Access)>,
    /// Host memory that the machine may use, if it is checked.
    pub(crate) room: Option<Room>,
    background: Background,
    /// Pages known to be mapped ahead of the operations that touch them, if mappings are inferred.
    mapped_ahead: Option<TouchFilter>,
    snoops: Vec<(PhysAddr, bool)>,
    effects: Effects,
    plan: PhasePlan,
    /// Programs of a mix.
    pub(crate) parts: Parts,
    pub(crate) measured: Measured,
    /// Work of all threads since the start.
    pub(crate) executed: Work,
    /// Instructions that were not fast-forwarded.
    pub(crate) simulated: u64,
    /// CPI of the last sample, in thousandths: the clock advances by it in gaps.
    gap_cpi_milli: u64,
    /// Start time of each core in the current CPI probe, and the instructions at its start.
    cpi_probe: Option<(Vec<Cycle>, u64)>,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) roi_seen: bool,
    /// Batches to take before [`Pause::Turn`].
    turn: u32,
    /// The next batch of a blocked thread is not available until other machines have caught up.
    ahead: bool,
    /// Walks still to be recorded on each core.
    walks_wanted: usize,
    /// Walks recorded on each core.
    pub(crate) walks: Vec<Vec<WalkRecord>>,
    /// Number of address-space changes that the OS refused, and the reason for the first.
    pub(crate) refused: (u64, Option<String>),
    /// Waits that were broken because no thread could end them any more.
    pub(crate) broken_waits: u64,
    /// Processes that ended without exiting.
    deaths: Vec<Death>,
    /// The program has ended before the run.
    pub(crate) program_ended: bool,
    /// Instructions that were decoded for the batches taken.
    pub(crate) counts: InstructionCounts,
    /// Maximum number of threads that wanted a core at one time, while one waited and time passed.
    pub(crate) threads_in_turns: usize,
}

impl Machine {
    /// Builds the machine of `design` for a program with `facts`. It simulates the samples of `shard`.
    ///
    /// # Errors
    /// A component refuses its configuration. The sentence names the key.
    pub(crate) fn new(
        design: &Design,
        options: &Options,
        facts: &Facts,
        shard: Shard,
    ) -> Result<Self, Error> {
        let (config, limits, seed) = (&design.config, options.limits, options.seed);
        config.validate()?;
        limits.validate()?;
        let n = config.cores as usize;
        let mut cores = Vec::with_capacity(n);
        let (walked, host) = config.walked();
        for core in 0..config.cores {
            let mut mmu = Mmu::seeded(&config.mmu, core, seed)?.serving(walked.walk_caches());
            if let Some(host) = &host {
                mmu = mmu.nested(host.walk_caches());
            }
            if let Some(ShortcutSpec::Stlt(spec)) = &config.shortcut {
                mmu = mmu.with_stlt(spec.translations);
            }
            let mut private = Private::new(&config.caches, core)?;
            if let Some(engine) = &config.engine {
                mmu = mmu.with_engine(engine.build(config.frequency_ghz));
                private = private.with_speculation();
            }
            let mut core = Core::new(&config.core, mmu, private, core)?;
            if facts.prefetches {
                core = core.with_software_prefetches();
            }
            if facts.flushes {
                core = core.with_flushes();
            }
            if facts.memory {
                core = core.with_wrong_paths_by_need(&config.core.wrong_path);
            }
            cores.push(core);
        }
        let (placement, table) = (&config.placement, &config.page_table);
        let ghz = config.frequency_ghz;
        let mut os = match &config.virtual_machine {
            None => Os::new(&config.os, placement, table, ghz, seed)?,
            Some(v) => Os::virtualised(&config.os, placement, table, v, ghz, seed)?,
        };
        if options.mappings {
            os.log_hashed_frames();
        }
        let sources = (config.translation).build(config.cores, &config.mmu, |key, bytes| {
            set_aside(&mut os, key, bytes)
        })?;
        for (core, list) in cores.iter_mut().zip(sources.cores) {
            for (place, source) in list {
                core.mmu.add_source(place, source);
            }
        }
        if let Some(ShortcutSpec::Stlt(spec)) = &config.shortcut {
            os.keep_stlt(spec)?;
        }
        if let Some(shortcut) = &design.shortcut {
            os.set_shortcut(shortcut(seed));
        }
        // A live program may own memory whose mapping has no event.
        let infer = facts.infer_mappings || facts.live;
        let pid = os.spawn(infer).map_err(|e| Error::refused(e.to_string()))?;
        let parts = Parts::new(facts, &limits, n);
        // In a mix each program has its own limits, and no region counts as a request.
        let undivided = match &parts.list[..] {
            [] => limits.undivided(),
            // Programs of a mix end their work one after the other.
            _ => Work::FOREVER,
        };
        let plan = match &options.regions {
            _ if !parts.list.is_empty() => PhasePlan::of_mix(limits)?,
            Some(regions) => PhasePlan::of_regions(regions, facts.request.is_none()),
            None => PhasePlan::of_shard(limits, facts.request.is_none(), seed, shard),
        };
        let mut shared = Shared::new(&config.memory, config.cores, config.frequency_ghz)?
            .with_background(&config.memory, seed);
        if config.engine.is_some() {
            shared = shared.with_speculation();
        }
        if facts.prefetches {
            shared = shared.with_software_prefetches();
        }
        let mut machine = Machine {
            os,
            cores,
            shared,
            source_parts: sources.shared,
            memory: facts.memory,
            sources_follow: config.translation.needs_each_access(),
            threads: BTreeMap::from([(0, SoftwareThread::new(0, 0, 0))]),
            processes: BTreeMap::from([(
                0,
                Process {
                    pid,
                    applied: 0,
                    part: 0,
                    core_time: 0,
                },
            )]),
            ended: Ended::default(),
            gone: Vec::new(),
            ready: VecDeque::from([0]),
            on_core: vec![None; n],
            runnable: vec![false; n],
            ran: vec![None; n],
            slice_end: vec![0; n],
            skipped: vec![0; n],
            still: 0,
            sleeping: 0,
            polls: 0,
            touched: TouchFilter::new(),
            recent_lines: vec![RecentLineFilter::default(); n],
            to_warm: Vec::new(),
            room: None,
            background: Background::default(),
            mapped_ahead: (facts.infer_mappings
                && config.os.inferred_pages == InferredPages::MappedBefore)
                .then(TouchFilter::new),
            snoops: Vec::new(),
            effects: Effects::default(),
            measured: if options.regions.is_some() {
                Measured::of_regions(options.interval, n)
            } else {
                let sample = limits.sample.map(|s| s.length);
                Measured::new(options.interval, sample, n).with_halves(undivided)
            },
            plan,
            parts,
            executed: Work::default(),
            simulated: 0,
            gap_cpi_milli: 1000,
            cpi_probe: None,
            outcome: None,
            roi_seen: false,
            turn: 0,
            ahead: false,
            walks_wanted: 0,
            walks: vec![Vec::new(); n],
            refused: (0, None),
            broken_waits: 0,
            deaths: Vec::new(),
            program_ended: false,
            counts: InstructionCounts::default(),
            threads_in_turns: 0,
            config: config.clone(),
        };
        machine.enter_phase();
        Ok(machine)
    }

    /// Invalidates translations in all TLBs, in translation sources, and in whatever else the cores
    /// learned from them. Returns kernel time beyond the shootdown, which is for STLT rows.
    #[must_use]
    fn forget(&mut self, what: &Invalidation) -> Cycle {
        for c in &mut self.cores {
            c.mmu.invalidate(what);
        }
        for part in &mut self.source_parts {
            part.invalidate(what);
        }
        let (cycles, pages) = self.os.stlt_invalidate(what);
        if pages > 0 {
            for (core, id) in self.cores.iter_mut().zip(&self.on_core) {
                let runs = id.map(|id| self.processes[&self.threads[&id].process].pid);
                if runs.is_some_and(|pid| self.os.asid(pid) == what.asid()) {
                    core.mmu.fill_ipb(pages);
                }
            }
        }
        cycles
    }

    /// Word for the progress bar.
    pub(crate) fn phase_word(&self) -> &'static str {
        self.plan.phase.word()
    }

    /// All current counters.
    pub(crate) fn tree(&self) -> Tree {
        let mut tree = Tree::default();
        for (i, core) in self.cores.iter().enumerate() {
            core.report(&format!("core.{i}"), &mut tree);
        }
        self.shared.report("", &mut tree);
        for part in &self.source_parts {
            part.report(&mut tree);
        }
        tree.append(self.kernel_tree());
        let absent = absent_levels(&self.config);
        tree.rows.retain(|row| {
            !absent
                .iter()
                .any(|level| counts_level(row.definition.name, level))
        });
        tree
    }

    /// Snapshot of all counters and retirement times. It ends one stretch of the run and begins the next.
    pub(crate) fn snapshot(&mut self) -> Snapshot {
        let snapshot = Snapshot {
            tree: self.tree(),
            times: self.times(),
            executed: self.executed,
            stale: self.stale(),
        };
        for core in &mut self.cores {
            core.mark();
        }
        self.os.mark();
        snapshot
    }

    /// Lookups of uncertain outcome after fast-forwarding, summed over all cores.
    fn stale(&self) -> StaleLookups {
        let mut sum = StaleLookups::default();
        let cores = self.cores.iter().flat_map(Core::stale);
        for (name, one) in cores.chain(self.shared.stale()) {
            let at = STALE_STRUCTURES.iter().position(|&of| of == name);
            sum[at.expect("each structure has its place")] += one;
        }
        sum
    }

    /// The counters of the operating system and of the page tables.
    pub(crate) fn kernel_tree(&self) -> Tree {
        let mut tree = Tree::default();
        self.os.report("os", &mut tree);
        tree
    }

    /// Time at which each core has retired its last instruction.
    fn times(&self) -> Vec<Cycle> {
        self.cores.iter().map(Core::finish).collect()
    }
}
