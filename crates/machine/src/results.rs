//! Results: every statistic, the resolved configuration, and a summary of the main metrics.

use pagewalk_os::{HashedFrames, MappedPage};
use pagewalk_stats::Tree;
use pagewalk_stream::{APPROXIMATIONS, Facts, InstructionClass, InstructionCounts};
use schemars::JsonSchema;
use serde::Serialize;

use crate::config::Config;
use crate::energy::{EnergyResult, Prices};
use crate::estimate::{self, SampleCounts, Sampling};
use crate::intervals::{HistogramResult, IntervalsResult, histograms};
use crate::limits::{self, Limits};
use crate::machine::{Account, Machine, Outcome};
use crate::options::{Design, Machines, OnMachine, Options};
use crate::regions::{self, Regions, RegionsResult};
use crate::summary::{self, Metric, Share};
use crate::warnings::warnings;

/// Result of a run, as `--json` writes it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunResult {
    /// Version of Pagewalk.
    pub version: &'static str,
    /// True if a design did not reach the end of its measured part, or a process of the program died.
    pub partial: bool,
    /// Seed of the run.
    pub seed: u64,
    /// The program.
    pub source: SourceInfo,
    /// Name of the machine, or names of several, as given.
    pub machine: Machines,
    /// The part of the program that was measured.
    pub limits: Limits,
    /// The regions that represent the whole trace, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regions: Option<Regions>,
    /// Warnings: sentences to read before using the numbers.
    pub warnings: Vec<String>,
    /// Requested files that could not be written, with the reason.
    pub failed_files: Vec<String>,
    /// The simulating host; differs from run to run.
    pub host: Host,
    /// Reference design of `translation_cost`, if it was requested and could be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub translation_reference: Option<Reference>,
    /// Reference design on each machine, if several machines were compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub translation_references: Vec<Reference>,
    /// Designs without a huge page because khugepaged had no time, with all of its collapses done. Simulated
    /// beside the others if `translation_cost` was requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<Settled>,
    /// One entry a design, in the requested order. With several machines, all designs of the first
    /// machine come first.
    pub designs: Vec<DesignResult>,
}

/// Completion status of a design.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It reached its limits.
    Complete,
    /// It was stopped before its limits.
    Partial,
    /// The simulated machine ran out of memory.
    OutOfMemory,
    /// The host ran out of memory.
    OutOfHostMemory,
    /// The page table needs a contiguous block that memory does not have.
    CannotFinish,
    /// The program or its recording has an error.
    ProgramError,
    /// The program accessed memory that is not mapped.
    Fault,
    /// A process of the program died of a signal, or with the emulator.
    Died,
}

/// The unit of work whose cycles speedups compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkUnit {
    /// An instruction.
    Instruction,
    /// A request of the program.
    Request,
}

impl WorkUnit {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    fn is_instruction(&self) -> bool {
        *self == WorkUnit::Instruction
    }
}

/// A reference design for comparisons. It need not be in the result.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Reference {
    /// Name.
    pub name: String,
    /// Its machine, if several machines were compared.
    #[serde(flatten)]
    pub on: Option<OnMachine>,
    /// Cycles of the measured part.
    pub cycles: f64,
    /// Cycles an instruction.
    pub cycles_per_instruction: f64,
    /// Cycles an instruction without those of the kernel.
    pub user_cycles_per_instruction: f64,
}

/// A design with all huge pages that khugepaged would ever make. It is not in the result.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Settled {
    /// Name, by which a run of its own has it.
    pub name: String,
    /// Its machine and design, if several machines were compared.
    #[serde(flatten)]
    pub on: Option<OnMachine>,
    /// Speedup over the first design of its machine. None if it was not simulated: the program is live or was
    /// given from Python, the run is long, or `precision` or `cluster` was requested.
    pub speedup: Option<f64>,
}

/// The shipped design whose TLBs never miss.
pub(crate) const PERFECT: &str = "perfect-tlb";

/// The program of a run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SourceInfo {
    /// Workload with its parameters, file, or command line.
    pub name: String,
    /// True if mappings were inferred from the addresses used.
    pub infer_mappings: bool,
    /// True if dependences between instructions are unknown.
    pub no_dependences: bool,
    /// True if the same seed gives the same instructions.
    pub deterministic: bool,
    /// CPU model that QEMU gives a live program, or gave it when it was recorded: it decides which code
    /// the program chooses.
    pub cpu: Option<String>,
    /// Exit status of a live program.
    pub exit_status: Option<i32>,
    /// Programs that its processes executed and that could not be simulated, with the number of processes
    /// and the reason.
    pub unseen: Vec<String>,
    /// Instructions that the timing model does not simulate as hardware does, by class. They are counted
    /// in all batches that the first design has finished, measured or not.
    pub approximated: Vec<Approximated>,
}

/// Instructions of one class that the timing model does not simulate as hardware does.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Approximated {
    /// Name of the class.
    pub name: String,
    /// Number of its instructions.
    pub count: u64,
    /// Their share of all instructions.
    pub share: f64,
    /// The simulation of such an instruction.
    pub simulated: String,
    /// The effect on the results.
    pub effect: String,
}

/// Share of instructions from which a class is in the warnings.
const NOTABLE: f64 = 0.01;

impl Approximated {
    /// The classes with instructions, and the warnings of those that matter.
    fn of(counts: &InstructionCounts, facts: &Facts) -> (Vec<Self>, Vec<String>) {
        let (mut all, mut warnings) = (Vec::new(), Vec::new());
        for class in &APPROXIMATIONS {
            let count = counts.classes[class.class as usize];
            if count == 0 {
                continue;
            }
            let share = count as f64 / counts.instructions as f64;
            if class.class == InstructionClass::Clock {
                warnings.extend(foreign_time(counts, facts));
            } else if share > NOTABLE {
                let instructions = class.instructions.replace('`', "");
                warnings.push(format!(
                    "{count} of {} instructions are {instructions}, each simulated as {}: {}",
                    counts.instructions, class.simulated, class.effect
                ));
            }
            if class.class == InstructionClass::Clock && facts.simulated_clock {
                continue;
            }
            all.push(Approximated {
                name: class.name.to_owned(),
                count,
                share,
                simulated: class.simulated.to_owned(),
                effect: class.effect.to_owned(),
            });
        }
        (all, warnings)
    }
}

/// Instructions `rdtsc` that the dynamic linker of glibc executes at the start of a program, with up to 33 libraries
/// (glibc 2.36).
const LINKER_READS: u64 = 8;

/// The warning about a program that asks for the emulator's time.
fn foreign_time(counts: &InstructionCounts, facts: &Facts) -> Option<String> {
    let reads = counts.classes[InstructionClass::Clock as usize];
    let reads = match counts.program_starts {
        // A recording has no system calls, and does not tell how many programs it holds.
        0 if reads as f64 > NOTABLE * counts.instructions as f64 => reads,
        0 => 0,
        starts => reads.saturating_sub(starts * LINKER_READS),
    };
    let asked = counts.clock_calls + reads;
    (asked > 0 && !facts.simulated_clock).then(|| {
        format!("the program asked for the time {asked} times and got the emulator's: times that it prints are not those of the machine (--clock simulated)")
    })
}

/// The simulating host.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Host {
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Instructions that all designs together simulated in a second, measured or not.
    pub simulated_instructions_per_second: f64,
    /// Host threads used.
    pub threads: usize,
    /// Shards of a recording's samples that remote hosts simulated.
    #[serde(skip_serializing_if = "limits::is_zero")]
    pub remote_shards: u64,
    /// Largest resident set of the process so far, bytes.
    pub peak_rss_bytes: u64,
}

impl Host {
    /// Adds the resources of an earlier pass for the same result.
    pub(crate) fn add(&mut self, before: &Host) {
        let done = |host: &Host| host.seconds * host.simulated_instructions_per_second;
        let seconds = self.seconds + before.seconds;
        if seconds > 0.0 {
            self.simulated_instructions_per_second = (done(self) + done(before)) / seconds;
        }
        self.seconds = seconds;
        self.remote_shards += before.remote_shards;
    }
}

/// The result of one design.
///
/// With several machines, the first design means the first one on the same machine. With `regions` of a
/// trace, counts are weighted sums, scaled to the number of instructions in the regions.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DesignResult {
    /// Name; with several machines it includes the machine's name.
    pub name: String,
    /// Its machine and its name without the machine's, if several machines were compared.
    #[serde(flatten)]
    pub on: Option<OnMachine>,
    /// Description in one sentence.
    pub description: String,
    /// Completion status.
    pub status: Status,
    /// Reason why it did not complete.
    pub message: Option<String>,
    /// The resolved configuration.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub config: Config,
    /// Summary: the main metrics.
    pub summary: Vec<Metric>,
    /// Speedup over the first design, by `speedup_by`. In a mix, the ratio of weighted speedups, because
    /// designs do not execute the same share of each program.
    pub speedup: Option<f64>,
    /// Speedup in seconds over the first design on the first machine, by `speedup_by`. None for one
    /// machine, and for a mix, whose programs have their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup_in_time: Option<f64>,
    /// Unit of work of speedups: an instruction if the designs execute the same instructions, else a
    /// request.
    #[serde(skip_serializing_if = "WorkUnit::is_instruction")]
    #[schemars(extend("default" = "instruction"))]
    pub speedup_by: WorkUnit,
    /// Share of the cycles that perfect TLBs save for the same instructions, without the kernel's time:
    /// page faults of the two designs may differ. Negative if perfect TLBs need more cycles. None if not
    /// requested, and for designs whose program is not the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub translation_cost: Option<f64>,
    /// The programs of a mix.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ProgramResult>,
    /// Weighted speedup of a mix: sum over its programs of their IPC, divided by that of the program
    /// alone on the first design (Snavely and Tullsen, ASPLOS 2000).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weighted_speedup: Option<f64>,
    /// Harmonic speedup of a mix: harmonic mean of the same ratios (Luo, Gummaraju and Franklin, ISPASS
    /// 2001).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub harmonic_speedup: Option<f64>,
    /// Average normalized turnaround time of a mix: mean over its programs of the time for an
    /// instruction, relative to the program alone on the first design (Eyerman and Eeckhout, IEEE Micro
    /// 2008).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub antt: Option<f64>,
    /// Counts of a mix that belong to none of its programs. Together with `own` and `later` of each
    /// program they add up to the machine's counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Account")]
    pub outside_programs: Option<Account>,
    /// Energy relative to the first design, by `speedup_by`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_ratio: Option<f64>,
    /// Cycles by cause.
    pub cycle_stack: Vec<Share>,
    /// Energy of the measured part; None if nothing was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<EnergyResult>,
    /// Counters of the measured part.
    pub stats: Vec<Stat>,
    /// Counters of the operating system and the page tables since boot. Tables grow most while a program
    /// fills its memory, before the measured part.
    pub since_boot: Vec<Stat>,
    /// Latencies of walks, walker waits, loads and page faults.
    pub histograms: Vec<HistogramResult>,
    /// Mapping of every page at the end, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mappings: Option<Vec<MappedPage>>,
    /// Placement of a kernel that places pages by hash, if the mappings are requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hashed_frames: Option<HashedFrames>,
    /// Interval statistics, if requested.
    pub intervals: Option<IntervalsResult>,
    /// The estimate from samples, if there were any.
    pub sampling: Option<Sampling>,
    /// The regions that represent the whole trace, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regions: Option<RegionsResult>,
    /// The samples behind the estimate.
    #[serde(skip)]
    samples: Vec<SampleCounts>,
    /// Index of its stream.
    #[serde(skip)]
    pub(crate) stream: usize,
    /// Sentence about a contradiction in the counts.
    #[serde(skip)]
    pub(crate) impossible: Option<String>,
    /// Instructions simulated, measured or not, for the speed of the host.
    #[serde(skip)]
    pub(crate) simulated: u64,
    /// Reason why some of the program's system calls were left out, for the warnings.
    #[serde(skip)]
    pub(crate) refused: Option<String>,
    /// Note on broken waits, for the warnings.
    #[serde(skip)]
    pub(crate) broken_waits: Option<String>,
    /// Maximum number of threads that wanted a core at one time, for the warnings; 0 if none ever waited.
    #[serde(skip)]
    pub(crate) threads_in_turns: usize,
    /// Cycles an instruction in the first and in the second half of the measured part, if a limit ended
    /// it, for the warnings.
    #[serde(skip)]
    pub(crate) halves: Option<(f64, f64)>,
}

/// One program of a mix, over the requested instructions or requests.
///
/// `pagewalk explain programs.NAME` defines each number.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ProgramResult {
    /// Name.
    pub name: String,
    /// Instructions.
    pub instructions: u64,
    /// Requests that completed.
    pub requests: u64,
    /// Cycles from the start of the measured part until the program had completed its work; None if it
    /// did not.
    pub cycles: Option<u64>,
    /// IPC over these cycles.
    pub ipc: Option<f64>,
    /// IPC of the program alone on the first design.
    pub ipc_alone: Option<f64>,
    /// Speedup over the first design in the same mix.
    pub speedup: Option<f64>,
    /// Speedup in seconds over the first design on the first machine in the same mix, if several machines
    /// were compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup_in_time: Option<f64>,
    /// Misses of the first-level data TLB for 1000 instructions.
    pub l1d_tlb_mpki: Option<f64>,
    /// Misses of the first-level instruction TLB for 1000 instructions.
    pub l1i_tlb_mpki: Option<f64>,
    /// Misses of all TLBs of a core for 1000 instructions.
    pub l2_tlb_mpki: Option<f64>,
    /// Mean latency of a page walk, in cycles.
    pub walk_cycles_mean: Option<f64>,
    /// Bytes mapped by 4 KB pages at the end.
    pub mapped_4kb: u64,
    /// Bytes mapped by 2 MB pages at the end.
    pub mapped_2mb: u64,
    /// Bytes mapped by 1 GB pages at the end.
    pub mapped_1gb: u64,
    /// Bytes of its page tables at the end.
    pub page_table_bytes: u64,
    /// Counts until the program had completed its work.
    pub own: Account,
    /// Counts after that, while other programs had not.
    pub later: Account,
}

fn programs(machine: &Machine) -> Vec<ProgramResult> {
    let parts = machine.parts.list.iter();
    let ratio = |a: u64, b: u64| (b > 0).then(|| a as f64 / b as f64);
    parts
        .map(|p| ProgramResult {
            name: p.name.clone(),
            l1d_tlb_mpki: ratio(1000 * p.own.l1d_tlb_misses, p.own.instructions),
            l1i_tlb_mpki: ratio(1000 * p.own.l1i_tlb_misses, p.own.instructions),
            l2_tlb_mpki: ratio(1000 * p.own.l2_tlb_misses, p.own.instructions),
            walk_cycles_mean: ratio(p.own.walk_cycles, p.own.walks),
            mapped_4kb: p.held.mapped_4kb,
            mapped_2mb: p.held.mapped_2mb,
            mapped_1gb: p.held.mapped_1gb,
            page_table_bytes: p.held.page_table_bytes,
            own: p.own,
            later: p.later,
            instructions: p.work.instructions,
            requests: p.work.requests,
            cycles: p.cycles,
            ipc: p
                .cycles
                .filter(|&c| c > 0)
                .map(|c| p.work.instructions as f64 / c as f64),
            ipc_alone: None,
            speedup: None,
            speedup_in_time: None,
        })
        .collect()
}

/// Designs grouped by machine, in order.
fn by_machine(designs: &mut [DesignResult]) -> impl Iterator<Item = &mut [DesignResult]> {
    designs
        .chunk_by_mut(|a, b| a.on.as_ref().map(|o| &o.machine) == b.on.as_ref().map(|o| &o.machine))
}

/// Sets the speedups of each design of a mix, relative to the first design of its machine and to the
/// programs alone. Proceeds machine by machine.
pub(crate) fn compare_programs(designs: &mut [DesignResult], alone: &[Vec<Option<f64>>]) {
    let a_second = |d: &DesignResult| -> Vec<Option<f64>> {
        let ghz = d.config.frequency_ghz;
        d.programs.iter().map(|p| Some(p.ipc? * ghz)).collect()
    };
    let first = designs.first().filter(|d| d.on.is_some()).map(a_second);
    for (designs, alone) in by_machine(designs).zip(alone) {
        compare_on_one(designs, alone);
    }
    let Some(first) = first else { return };
    for d in designs {
        let own = a_second(d);
        for ((p, own), base) in d.programs.iter_mut().zip(own).zip(&first) {
            p.speedup_in_time = own.zip(*base).map(|(own, base)| own / base);
        }
        // Weighted speedups are relative to IPCs alone on the same machine, so they do not compare
        // machines.
        d.speedup_in_time = None;
    }
}

fn compare_on_one(designs: &mut [DesignResult], alone: &[Option<f64>]) {
    let Some(first) = designs.first() else { return };
    let base: Vec<Option<f64>> = first.programs.iter().map(|p| p.ipc).collect();
    for d in &mut *designs {
        for ((p, base), alone) in d.programs.iter_mut().zip(&base).zip(alone) {
            p.ipc_alone = *alone;
            p.speedup = p.ipc.zip(*base).map(|(own, base)| own / base);
        }
        let of_one = |p: &ProgramResult| Some(p.ipc? / p.ipc_alone?);
        let longer = |p: &ProgramResult| of_one(p).map(|speed| 1.0 / speed);
        d.weighted_speedup = d.programs.iter().map(of_one).sum();
        let slowdowns: Option<f64> = d.programs.iter().map(longer).sum();
        d.antt = slowdowns.map(|sum| sum / d.programs.len() as f64);
        d.harmonic_speedup = d.antt.map(|antt| 1.0 / antt);
    }
    // When the slowest program has finished, the others have progressed differently on each design. A
    // common CPI would compare different work.
    let base = designs[0].weighted_speedup;
    for d in designs {
        d.speedup = d.weighted_speedup.zip(base).map(|(own, base)| own / base);
    }
}

/// One counter of the simulated machine.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Statistic")]
pub struct Stat {
    /// Component.
    pub path: String,
    /// Name of the counter.
    pub name: &'static str,
    /// Unit of the value.
    pub unit: &'static str,
    /// Definition.
    pub meaning: &'static str,
    /// True for a state at the end of the measured part, false for a count.
    pub gauge: bool,
    /// Value.
    pub value: u64,
}

fn statistics(tree: &Tree) -> Vec<Stat> {
    let rows = tree.rows.iter().map(|r| Stat {
        path: r.path.clone(),
        name: r.definition.name,
        unit: r.definition.unit,
        meaning: r.definition.meaning,
        gauge: r.definition.gauge,
        value: r.value,
    });
    rows.collect()
}

pub(crate) const CYCLES: &str = "cycles";
const ENERGY: &str = "energy";
/// Cause of the cycle stack for page faults, system calls and context switches.
pub(crate) const KERNEL: &str = "kernel";

fn design_result(
    design: &Design,
    machine: &Machine,
    stream: usize,
    options: &Options,
) -> DesignResult {
    let m = &machine.measured;
    let empty = Tree::default();
    let weigh = |of: &Regions| regions::weigh(of, m);
    let weighed = options.regions.as_ref().and_then(weigh);
    let (tree, work, cycles) = match &weighed {
        Some(w) => (&w.tree, w.work, w.cycles),
        None => (m.tree.as_ref().unwrap_or(&empty), m.work, m.cycles),
    };
    let since_boot = machine.kernel_tree();
    let (status, message) = match &machine.outcome {
        Some(Outcome::Complete) => (Status::Complete, None),
        Some(Outcome::Stopped) | None => {
            (Status::Partial, Some("stopped before the end".to_owned()))
        }
        Some(Outcome::OutOfMemory(e)) => (Status::OutOfMemory, Some(e.clone())),
        Some(Outcome::HostMemory(e)) => (Status::OutOfHostMemory, Some(e.to_string())),
        Some(Outcome::CannotFinish(e)) => (Status::CannotFinish, Some(e.clone())),
        Some(Outcome::Program(e)) => (Status::ProgramError, Some(e.clone())),
        Some(Outcome::Fault(e)) => (Status::Fault, Some(e.clone())),
        Some(Outcome::Died(e)) => (Status::Died, Some(e.clone())),
    };
    // Cannot fail: the configuration has been checked before the run.
    let prices = Prices::new(&design.config).ok();
    let energy = prices.as_ref().filter(|_| m.tree.is_some()).map(|p| {
        let account = p.account(tree);
        let totals = account.totals(tree, cycles);
        (totals, account.result(totals, tree, cycles))
    });
    let (totals, energy) = energy.unzip();
    DesignResult {
        name: design.name.clone(),
        on: design.on.clone(),
        description: design.description.clone(),
        status,
        message,
        config: design.config.clone(),
        summary: if m.tree.is_some() {
            let clock = design.on.as_ref().map(|_| design.config.frequency_ghz);
            summary::summarise(tree, Some(&since_boot), work, cycles, totals, clock)
        } else {
            vec![]
        },
        speedup: None,
        speedup_in_time: None,
        speedup_by: WorkUnit::Instruction,
        translation_cost: None,
        programs: programs(machine),
        weighted_speedup: None,
        harmonic_speedup: None,
        antt: None,
        outside_programs: (!machine.parts.list.is_empty()).then(|| machine.parts.outside()),
        energy_ratio: None,
        cycle_stack: summary::cycle_stack(tree),
        energy,
        stats: statistics(tree),
        since_boot: statistics(&since_boot),
        histograms: histograms(tree),
        mappings: options.mappings.then(|| machine.os.mappings()),
        hashed_frames: options
            .mappings
            .then(|| machine.os.hashed_frames())
            .flatten(),
        intervals: m.intervals.result(prices.as_ref()),
        sampling: match options.regions {
            None => estimate::estimate(&m.samples, tree),
            // Regions are chosen, not drawn at random, so their spread gives no interval.
            Some(_) => None,
        },
        samples: m.samples.clone(),
        regions: weighed.as_ref().map(|w| w.result.clone()),
        stream,
        // Checked on the unweighted counts, because weighted counts are rounded one by one.
        impossible: summary::impossible(m.tree.as_ref().unwrap_or(&empty)),
        simulated: machine.simulated,
        refused: match &machine.refused {
            (0, _) | (_, None) => None,
            (n, Some(first)) => Some(format!(
                "{n} changes of an address space were left out; the first: {first}"
            )),
        },
        threads_in_turns: machine.threads_in_turns,
        halves: m.halves().filter(|_| !machine.program_ended),
        broken_waits: match machine.broken_waits {
            0 => None,
            n => Some(format!(
                "{n} times a thread waited for another that came no further, and went on without: the program was killed or its recording cut there"
            )),
        },
    }
}

/// Result of `machines`, each with its design and the index of its stream.
pub(crate) fn run_result<'a>(
    facts: &Facts,
    (exit_status, unseen): (Option<i32>, Vec<String>),
    options: &Options,
    machines: impl Iterator<Item = ((&'a Design, &'a Machine), usize)>,
    seconds: f64,
    threads: usize,
) -> RunResult {
    let (mut designs, mut beside) = (Vec::new(), Vec::new());
    let mut counts = None;
    for ((design, machine), stream) in machines {
        counts.get_or_insert(machine.counts);
        let into = if design.beside {
            &mut beside
        } else {
            &mut designs
        };
        into.push(design_result(design, machine, stream, options));
    }
    compare(&mut designs);
    let mut warnings = warnings(facts, &options.limits, &designs);
    warnings.extend(
        unseen
            .iter()
            .map(|u| format!("{u}; nothing of that is in the numbers")),
    );
    let (approximated, of_classes) = Approximated::of(&counts.unwrap_or_default(), facts);
    warnings.extend(of_classes);
    let mut references = Vec::new();
    if options.translation_cost {
        for designs in by_machine(&mut designs) {
            match cost_translation(designs, &beside) {
                Ok(reference) => references.push(reference),
                Err(why) => {
                    let on = designs[0].on.as_ref();
                    let on = on.map_or(String::new(), |o| format!(" on {}", o.machine));
                    warnings.push(format!("what translation costs{on} is not known: {why}"));
                }
            }
        }
    }
    let several = designs.iter().any(|d| d.on.is_some());
    let (translation_reference, translation_references) = if several {
        (None, references)
    } else {
        (references.pop(), references)
    };
    let simulated: u64 = designs.iter().chain(&beside).map(|d| d.simulated).sum();
    RunResult {
        version: env!("CARGO_PKG_VERSION"),
        partial: designs.iter().any(|d| d.status != Status::Complete),
        seed: options.seed,
        source: SourceInfo {
            name: facts.name.clone(),
            infer_mappings: facts.infer_mappings,
            no_dependences: facts.no_dependences,
            deterministic: facts.deterministic,
            cpu: facts.cpu.clone(),
            exit_status,
            unseen,
            approximated,
        },
        machine: options.machine.clone(),
        limits: options.limits,
        regions: options.regions.clone(),
        warnings,
        failed_files: Vec::new(),
        host: Host {
            seconds,
            simulated_instructions_per_second: if seconds > 0.0 {
                simulated as f64 / seconds
            } else {
                0.0
            },
            threads,
            remote_shards: 0,
            peak_rss_bytes: peak_rss(),
        },
        translation_reference,
        translation_references,
        settled: Vec::new(),
        designs,
    }
}

/// A metric of the summary for each instruction or request.
pub(crate) fn cost(d: &DesignResult, what: &str, by: WorkUnit) -> Option<f64> {
    let get = |n: &str| d.summary.iter().find(|m| m.name == n).and_then(|m| m.value);
    // A design that failed has done other work.
    let compared = matches!(d.status, Status::Complete | Status::Partial | Status::Died);
    let work = get(match by {
        WorkUnit::Instruction => "instructions",
        WorkUnit::Request => "requests",
    });
    let cost = get(what)? / work.filter(|&n| n > 0.0)?;
    (compared && cost > 0.0).then_some(cost)
}

/// Sets the translation cost of each design, against the perfect-TLB design among `designs` and those
/// `beside` them. An error is the reason why there is none.
fn cost_translation(
    designs: &mut [DesignResult],
    beside: &[DesignResult],
) -> Result<Reference, String> {
    let machine = |d: &DesignResult| d.on.as_ref().map(|o| o.machine.clone());
    let here = machine(&designs[0]);
    let perfect = |d: &&DesignResult| {
        let name = d.on.as_ref().map_or(&d.name, |o| &o.design);
        name == PERFECT && d.config.mmu.perfect && machine(d) == here
    };
    let reference = designs.iter().chain(beside).find(perfect);
    let reference = reference.ok_or_else(|| {
        format!("{PERFECT} shares no program with these designs, or was set not to be perfect")
    })?;
    let own = cost(reference, CYCLES, WorkUnit::Instruction).ok_or_else(|| {
        let why = reference.message.as_deref().unwrap_or("it did nothing");
        format!("{PERFECT}: {why}")
    })?;
    let cycles = reference.summary.iter().find(|m| m.name == "cycles");
    let made = Reference {
        name: reference.name.clone(),
        on: reference.on.clone(),
        cycles: cycles.and_then(|m| m.value).unwrap_or(0.0),
        cycles_per_instruction: own,
        user_cycles_per_instruction: own * user_share(reference),
    };
    let stream = reference.stream;
    for d in designs.iter_mut().filter(|d| d.stream == stream) {
        let cycles = cost(d, CYCLES, WorkUnit::Instruction);
        d.translation_cost = cycles.map(|c| user_share(d) - made.user_cycles_per_instruction / c);
    }
    Ok(made)
}

/// Share of the cycles outside the kernel.
fn user_share(d: &DesignResult) -> f64 {
    let kernel = d.cycle_stack.iter().find(|s| s.cause == KERNEL);
    1.0 - kernel.map_or(0.0, |s| s.share)
}

/// Sets the speedup and energy ratio of each design over the first one of its machine. With several
/// machines, also the speedup in seconds over the first design of all.
fn compare(designs: &mut [DesignResult]) {
    // Streams run the same program, but with a shortcut its instructions may differ.
    let by = if designs.iter().any(|d| d.stream != designs[0].stream) {
        WorkUnit::Request
    } else {
        WorkUnit::Instruction
    };
    let time = |d: &DesignResult| Some(cost(d, CYCLES, by)? / d.config.frequency_ghz);
    let first = designs.first().filter(|d| d.on.is_some()).and_then(time);
    for designs in by_machine(designs) {
        let [cycles, energy] =
            [CYCLES, ENERGY].map(|what| designs.first().and_then(|d| cost(d, what, by)));
        compare_samples(designs, by);
        for d in designs {
            d.speedup_by = by;
            d.speedup = cycles
                .zip(cost(d, CYCLES, by))
                .map(|(base, own)| base / own);
            d.speedup_in_time = first.zip(time(d)).map(|(base, own)| base / own);
            d.energy_ratio = energy
                .zip(cost(d, ENERGY, by))
                .map(|(base, own)| own / base);
        }
    }
}

/// Sets the confidence interval of the speedup of each sampled design.
fn compare_samples(designs: &mut [DesignResult], by: WorkUnit) {
    let Some((first, others)) = designs.split_first_mut() else {
        return;
    };
    for d in others {
        let paired = d.stream == first.stream;
        let by_request = by == WorkUnit::Request;
        if let Some(s) = &mut d.sampling {
            s.speedup = estimate::speedup(&first.samples, &d.samples, by_request, paired);
        }
    }
}

/// Peak resident set of this process so far, from the kernel.
fn peak_rss() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|s| {
            let line = s.lines().find(|l| l.starts_with("VmHWM:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .map_or(0, |kb| kb * 1024)
}
