//! Results: every statistic, the resolved configuration, and the few numbers
//! that answer the question.

use pagewalk_os::MappedPage;
use pagewalk_stats::Tree;
use pagewalk_stream::Facts;
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

/// The result of a run: all that `--json` writes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunResult {
    /// Version of Pagewalk.
    pub version: &'static str,
    /// True if a design did not reach the end of its measured part.
    pub partial: bool,
    /// Seed of the run.
    pub seed: u64,
    /// The program.
    pub source: Source,
    /// Name of the machine, or names of several, as they were given.
    pub machine: Machines,
    /// The part of the program that was measured.
    pub limits: Limits,
    /// The regions that stand for the whole trace, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regions: Option<Regions>,
    /// Sentences to read before the numbers are used.
    pub warnings: Vec<String>,
    /// Files asked for that could not be written, and why.
    pub failed_files: Vec<String>,
    /// The simulating host; differs from run to run.
    pub host: Host,
    /// The design that `translation_cost` compares with, if that was asked for and could be
    /// measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub translation_reference: Option<Reference>,
    /// That design on each machine, where several were compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub translation_references: Vec<Reference>,
    /// One entry a design, in the order asked for. Of several machines, all designs of the first
    /// come first.
    pub designs: Vec<DesignResult>,
}

/// How a design ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It reached its limits.
    Complete,
    /// It was stopped before.
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

/// A design that others are compared with. It need not be among those of the result.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Reference {
    /// Name.
    pub name: String,
    /// Its machine, where several were compared.
    #[serde(flatten)]
    pub on: Option<OnMachine>,
    /// Cycles of the measured part.
    pub cycles: f64,
    /// Cycles an instruction.
    pub cycles_per_instruction: f64,
}

/// The shipped design whose TLBs never miss.
pub(crate) const PERFECT: &str = "perfect-tlb";

/// The program of a run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Source {
    /// Workload with its parameters, file, or command line.
    pub name: String,
    /// True if mappings were inferred from the addresses used.
    pub infer_mappings: bool,
    /// True if dependences between instructions are unknown.
    pub no_dependences: bool,
    /// True if the same seed gives the same instructions.
    pub deterministic: bool,
    /// Exit status of a live program.
    pub exit_status: Option<i32>,
    /// Programs that its processes executed and that could not be simulated, with the
    /// number of processes and why.
    pub unseen: Vec<String>,
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
    /// Portions of a recording's samples that other hosts simulated.
    #[serde(rename = "portions_elsewhere", skip_serializing_if = "limits::is_zero")]
    pub remote_shards: u64,
    /// Largest resident set of the process so far, bytes.
    pub peak_rss_bytes: u64,
}

impl Host {
    /// Adds what it did `before` for the same result.
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
/// Where several machines were compared, the first design is the first one on the same machine.
/// Where `regions` of a trace stand for the whole, counts are those of as many instructions as
/// the regions have, to which each region contributes by its weight.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DesignResult {
    /// Name; of several machines with the machine's.
    pub name: String,
    /// Its machine, where several were compared, and its name without that.
    #[serde(flatten)]
    pub on: Option<OnMachine>,
    /// The design in one sentence.
    pub description: String,
    /// How it ended.
    pub status: Status,
    /// Why it did not complete.
    pub message: Option<String>,
    /// The resolved configuration.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub config: Config,
    /// The summary: its main numbers.
    pub summary: Vec<Metric>,
    /// Speed relative to the first design, by `speedup_by`. Of a mix it compares the
    /// weighted speedups, because designs do not execute the same share of each program.
    pub speedup: Option<f64>,
    /// Speed in seconds relative to the first design on the first machine, by `speedup_by`.
    /// None for one machine, and for a mix, whose programs have theirs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup_in_time: Option<f64>,
    /// The work whose cycles speedups compare: an instruction where the designs execute the
    /// same instructions, else a request.
    #[serde(skip_serializing_if = "WorkUnit::is_instruction")]
    #[schemars(extend("default" = "instruction"))]
    pub speedup_by: WorkUnit,
    /// Share of the cycles that a machine whose TLBs never miss saves for the same
    /// instructions; below zero where it needs more. None where it was not asked for, and for
    /// designs whose program is not the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub translation_cost: Option<f64>,
    /// The programs of a mix.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ProgramResult>,
    /// Weighted speedup of a mix: sum over its programs of instructions a cycle here, divided
    /// by those of the program alone on the first design (Snavely and Tullsen, ASPLOS 2000).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weighted_speedup: Option<f64>,
    /// Harmonic speedup of a mix: harmonic mean of the same ratios (Luo, Gummaraju and
    /// Franklin, ISPASS 2001).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub harmonic_speedup: Option<f64>,
    /// Average normalized turnaround time of a mix: mean over its programs of how many times
    /// longer an instruction takes here than alone on the first design (Eyerman and Eeckhout,
    /// IEEE Micro 2008).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub antt: Option<f64>,
    /// Counts of a mix that belong to none of its programs. With `own` and `later` of each
    /// program they add up to the counters of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Account")]
    pub outside_programs: Option<Account>,
    /// Energy relative to the first design, by `speedup_by`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_ratio: Option<f64>,
    /// Cycles by cause.
    pub cycle_stack: Vec<Share>,
    /// Energy of the measured part; None where nothing was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<EnergyResult>,
    /// Counters of the measured part.
    pub stats: Vec<Stat>,
    /// Counters of the operating system and of the page tables since the machine booted. Tables
    /// grow most while a program fills its memory, before the measured part.
    pub since_boot: Vec<Stat>,
    /// Latencies of walks, walker waits, loads and page faults.
    pub histograms: Vec<HistogramResult>,
    /// Where every page lies at the end, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mappings: Option<Vec<MappedPage>>,
    /// Interval statistics, if they were asked for.
    pub intervals: Option<IntervalsResult>,
    /// The estimate from samples, if there were any.
    pub sampling: Option<Sampling>,
    /// The regions that stand for the whole trace, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regions: Option<RegionsResult>,
    /// The samples behind the estimate.
    #[serde(skip)]
    samples: Vec<SampleCounts>,
    /// Number of its stream.
    #[serde(skip)]
    pub(crate) stream: usize,
    /// A sentence about a result that cannot be.
    #[serde(skip)]
    pub(crate) impossible: Option<String>,
    /// Instructions simulated, measured or not, for the host's speed.
    #[serde(skip)]
    pub(crate) simulated: u64,
    /// Why some of the program's system calls were left out, for the warnings.
    #[serde(skip)]
    pub(crate) refused: Option<String>,
    /// That threads went on without what they waited for, for the warnings.
    #[serde(skip)]
    pub(crate) broken_waits: Option<String>,
    /// Most threads that wanted a core at a time while others waited for one, for the
    /// warnings; 0 if none ever waited.
    #[serde(skip)]
    pub(crate) threads_in_turns: usize,
}

/// One program of a mix, up to the instructions or requests asked for.
///
/// `pagewalk explain programs.NAME` defines each number.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ProgramResult {
    /// Name.
    pub name: String,
    /// Instructions.
    pub instructions: u64,
    /// Requests that ended.
    pub requests: u64,
    /// Cycles from the start of the measured part until the program had done so much; None if
    /// it never had.
    pub cycles: Option<u64>,
    /// Instructions a cycle until then.
    pub ipc: Option<f64>,
    /// Instructions a cycle of the program alone on the first design.
    pub ipc_alone: Option<f64>,
    /// Speed relative to the first design in the same mix.
    pub speedup: Option<f64>,
    /// Speed in seconds relative to the first design on the first machine in the same mix,
    /// where several machines were compared.
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
    /// Counts until the program had done what was asked for.
    pub own: Account,
    /// Counts from then on, while other programs had not.
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

/// The designs of each machine, in order.
fn by_machine(designs: &mut [DesignResult]) -> impl Iterator<Item = &mut [DesignResult]> {
    designs
        .chunk_by_mut(|a, b| a.on.as_ref().map(|o| &o.machine) == b.on.as_ref().map(|o| &o.machine))
}

/// Gives each design of a mix its speeds relative to the first of its machine, and to those
/// of the programs alone there, machine by machine.
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
        // Speeds alone are of each machine's own: their sums do not compare.
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
    // When the slowest program is done, the others have come differently far on each
    // design: cycles an instruction of all together would compare unlike things.
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

const CYCLES: &str = "cycles";
const ENERGY: &str = "energy";

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
    };
    // A configuration that ran has passed this.
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
        intervals: m.intervals.result(prices.as_ref()),
        sampling: match options.regions {
            None => estimate::estimate(&m.samples, tree),
            // They are chosen, not drawn: no interval follows from how they differ.
            Some(_) => None,
        },
        samples: m.samples.clone(),
        regions: weighed.as_ref().map(|w| w.result.clone()),
        stream,
        // Of what was counted: weighted, events that belong together are rounded one by one.
        impossible: summary::impossible(m.tree.as_ref().unwrap_or(&empty)),
        simulated: machine.simulated,
        refused: match &machine.refused {
            (0, _) | (_, None) => None,
            (n, Some(first)) => Some(format!(
                "{n} changes of an address space were left out; the first: {first}"
            )),
        },
        threads_in_turns: machine.threads_in_turns,
        broken_waits: match machine.broken_waits {
            0 => None,
            n => Some(format!(
                "{n} times a thread waited for another that came no further, and went on without: the program was killed or its recording cut there"
            )),
        },
    }
}

/// The result of `machines`, each with its design and the number of its stream.
pub(crate) fn run_result<'a>(
    facts: &Facts,
    (exit_status, unseen): (Option<i32>, Vec<String>),
    options: &Options,
    machines: impl Iterator<Item = ((&'a Design, &'a Machine), usize)>,
    seconds: f64,
    threads: usize,
) -> RunResult {
    let (mut designs, mut beside) = (Vec::new(), Vec::new());
    for ((design, machine), stream) in machines {
        let into = if design.beside {
            &mut beside
        } else {
            &mut designs
        };
        into.push(design_result(design, machine, stream, options));
    }
    compare(&mut designs);
    let mut warnings = warnings(facts, &designs);
    warnings.extend(
        unseen
            .iter()
            .map(|u| format!("{u}; nothing of that is in the numbers")),
    );
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
        source: Source {
            name: facts.name.clone(),
            infer_mappings: facts.infer_mappings,
            no_dependences: facts.no_dependences,
            deterministic: facts.deterministic,
            exit_status,
            unseen,
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
        designs,
    }
}

/// A number of the summary for each instruction, or each request.
fn cost(d: &DesignResult, what: &str, by: WorkUnit) -> Option<f64> {
    let get = |n: &str| d.summary.iter().find(|m| m.name == n).and_then(|m| m.value);
    // What a design did until it could not go on is not the same work.
    let compared = matches!(d.status, Status::Complete | Status::Partial);
    let work = get(match by {
        WorkUnit::Instruction => "instructions",
        WorkUnit::Request => "requests",
    });
    let cost = get(what)? / work.filter(|&n| n > 0.0)?;
    (compared && cost > 0.0).then_some(cost)
}

/// Gives each design what translation costs it, against that of perfect TLBs among
/// it and those that ran beside; or why that cannot be said.
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
    };
    let stream = reference.stream;
    for d in designs.iter_mut().filter(|d| d.stream == stream) {
        d.translation_cost = cost(d, CYCLES, WorkUnit::Instruction).map(|c| 1.0 - own / c);
    }
    Ok(made)
}

/// Gives each design its speed and its energy relative to the first of its machine, and
/// where there are several machines its speed in time relative to the first of all.
fn compare(designs: &mut [DesignResult]) {
    // Each stream is one program, but not what it does.
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

/// Gives each design that was sampled the interval of its speed relative to the first.
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

/// Largest resident set of this process so far, from the kernel.
fn peak_rss() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|s| {
            let line = s.lines().find(|l| l.starts_with("VmHWM:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .map_or(0, |kb| kb * 1024)
}
