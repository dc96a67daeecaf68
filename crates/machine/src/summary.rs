//! Summary metrics, computed from the counters, each with unit and definition.

use pagewalk_os::page_faults;
use pagewalk_stats::Tree;
use pagewalk_tables::table_metrics;
use schemars::JsonSchema;
use serde::Serialize;

use crate::energy::Totals;
use crate::estimate::STALE_STRUCTURES;
use crate::work::Work;

/// One number of the summary.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Quantity")]
pub struct Metric {
    /// Name.
    pub name: &'static str,
    /// Value; None if it is undefined, such as a mean of nothing.
    pub value: Option<f64>,
    /// Unit.
    pub unit: &'static str,
    /// Definition.
    pub meaning: &'static str,
}

/// Share of a cause in the cycle stack.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Share {
    /// Cause.
    pub cause: &'static str,
    /// Cycles, of all cores together.
    pub cycles: f64,
    /// Share of all cycles.
    pub share: f64,
    /// Definition of the cause.
    pub meaning: &'static str,
}

/// Name, unit and definition of a metric.
#[derive(Clone, Copy)]
pub struct MetricDefinition {
    /// Name.
    pub name: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// One sentence.
    pub meaning: &'static str,
    value: Value,
}

impl MetricDefinition {
    /// True for a number of events for 1000 instructions.
    pub(crate) fn is_mpki(&self) -> bool {
        self.name.ends_with("_mpki")
    }
}

/// Source of a metric's value.
#[derive(Clone, Copy)]
enum Value {
    /// Counters of the measured part, for an amount or a final state.
    Measured(fn(&Counted<'_>) -> Option<f64>),
    /// Counters of the measured part, for a rate: each part of the run gives an estimate of it.
    Rate(fn(&Counted<'_>) -> Option<f64>),
    /// Counters of the page tables since boot.
    Tables(fn(&Tree) -> Option<f64>),
    /// Counters of the measured part and the clock in GHz, to compare machines.
    Across(fn(&Counted<'_>, f64) -> Option<f64>),
}

struct Counted<'a> {
    tree: &'a Tree,
    instructions: f64,
    requests: f64,
    cycles: f64,
    /// Total, dynamic and static energy, nJ.
    energy: Option<[f64; 3]>,
}

impl<'a> Counted<'a> {
    fn new(tree: &'a Tree, work: Work, cycles: u64, energy: Option<Totals>) -> Self {
        Counted {
            tree,
            instructions: work.instructions as f64,
            requests: work.requests as f64,
            cycles: cycles as f64,
            energy: energy.map(Totals::nanojoules),
        }
    }
}

/// True for the path of a core, such as `core.3`, but of nothing below it.
pub(crate) fn is_core(path: &str) -> bool {
    path.strip_prefix("core.")
        .is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
}

fn is_mmu(path: &str) -> bool {
    path.strip_suffix(".mmu").is_some_and(is_core)
}

/// True for the path of `part` of a core, such as `core.3.PART`, and below it.
fn below_core(path: &str, part: &str) -> bool {
    let Some(rest) = path.strip_prefix("core.") else {
        return false;
    };
    let Some((_, rest)) = rest.split_once('.') else {
        return false;
    };
    rest == part || rest.strip_prefix(part).is_some_and(|r| r.starts_with('.'))
}

fn ratio(a: f64, b: f64) -> Option<f64> {
    (b > 0.0).then(|| a / b)
}

impl Counted<'_> {
    fn sum(&self, part: &str, name: &str) -> f64 {
        self.tree.sum(name, |p| below_core(p, part)) as f64
    }
    fn mmu(&self, name: &str) -> f64 {
        self.tree.sum(name, is_mmu) as f64
    }
    fn core(&self, name: &str) -> f64 {
        self.tree.sum(name, is_core) as f64
    }
    /// Misses of all TLBs of a core.
    fn l2_tlb_misses(&self) -> f64 {
        let buffers = ["mmu.stb", "mmu.prefetch_buffer"];
        let hits: f64 = buffers.iter().map(|part| self.sum(part, "hits")).sum();
        self.mmu("walks") + hits + self.tree.sum("walks_avoided", |_| true) as f64
    }
    fn os(&self, name: &str) -> f64 {
        self.tree.sum(name, |p| p == "os") as f64
    }
    fn per_kilo(&self, n: f64) -> Option<f64> {
        ratio(n * 1000.0, self.instructions)
    }
}

/// The metrics before those of the page tables.
const GENERAL: &[MetricDefinition] = &[
    MetricDefinition {
        name: "instructions",
        unit: "instructions",
        meaning: "Instructions of all threads in the measured part",
        value: Value::Measured(|c| Some(c.instructions)),
    },
    MetricDefinition {
        name: "cycles",
        unit: "cycles",
        meaning: "Cycles of the slowest core in the measured part",
        value: Value::Measured(|c| Some(c.cycles)),
    },
    MetricDefinition {
        name: "ipc",
        unit: "instructions/cycle",
        meaning: "Instructions of all threads per cycle",
        value: Value::Rate(|c| ratio(c.instructions, c.cycles)),
    },
    MetricDefinition {
        name: "requests",
        unit: "requests",
        meaning: "Requests that ended in the measured part. The program defines a request: an operation of a key-value store, an update, a lookup. Otherwise a request is a region of interest",
        value: Value::Measured(|c| (c.requests > 0.0).then_some(c.requests)),
    },
    MetricDefinition {
        name: "cycles_per_request",
        unit: "cycles/request",
        meaning: "Cycles of the measured part per request that ended in it",
        value: Value::Rate(|c| ratio(c.cycles, c.requests)),
    },
    MetricDefinition {
        name: "instructions_per_request",
        unit: "instructions/request",
        meaning: "Instructions of all threads per request that ended in the measured part",
        value: Value::Rate(|c| ratio(c.instructions, c.requests)),
    },
    MetricDefinition {
        name: "memory_operands",
        unit: "operands",
        meaning: "Loads and stores of the program",
        value: Value::Measured(|c| Some(c.core("loads") + c.core("stores"))),
    },
    MetricDefinition {
        name: "l1d_tlb_mpki",
        unit: "misses/1000 instructions",
        meaning: "Misses of the first-level data TLB per 1000 instructions: entries fetched from the second level or by a walk. Hardware counters count the same (AMD: L1 DTLB misses, 0xff45; Intel: dtlb_load_misses and dtlb_store_misses, stlb_hit and walk_completed). An access that waits for an entry in flight counts in l1d_waits instead",
        value: Value::Rate(|c| c.per_kilo(c.mmu("l1d_misses"))),
    },
    MetricDefinition {
        name: "l1i_tlb_mpki",
        unit: "misses/1000 instructions",
        meaning: "Misses of the first-level instruction TLB per 1000 instructions: entries fetched from the second level or by a walk. An access that waits for an entry in flight counts in l1i_waits instead",
        value: Value::Rate(|c| c.per_kilo(c.mmu("l1i_misses"))),
    },
    MetricDefinition {
        name: "l2_tlb_mpki",
        unit: "misses/1000 instructions",
        meaning: "Translations that missed all TLBs of the core, per 1000 instructions: page walks, and hits of an in-memory TLB, of an STB or of a prefetch buffer. Hardware counters count the walks (AMD: L2 DTLB misses, 0xf045, and L2 ITLB misses; Intel: walk_completed). A translation that merges with a walk or a lookup for the same page counts in l2_waits instead",
        value: Value::Rate(|c| c.per_kilo(c.l2_tlb_misses())),
    },
    MetricDefinition {
        name: "walks",
        unit: "walks",
        meaning: "Page walks, including those that end in a page fault",
        value: Value::Measured(|c| Some(c.mmu("walks"))),
    },
    MetricDefinition {
        name: "walk_cycles_mean",
        unit: "cycles",
        meaning: "Mean latency of a page walk, from its start in a walker to its end",
        value: Value::Rate(|c| ratio(c.mmu("walk_cycles"), c.mmu("walks"))),
    },
    MetricDefinition {
        name: "walk_reads_per_walk",
        unit: "reads",
        meaning: "Mean number of page-table reads per walk",
        value: Value::Rate(|c| ratio(c.mmu("walk_reads"), c.mmu("walks"))),
    },
    MetricDefinition {
        name: "l1d_mpki",
        unit: "misses/1000 instructions",
        meaning: "Demand misses of the first-level data cache per 1000 instructions",
        value: Value::Rate(|c| {
            c.per_kilo(c.sum("l1d", "load_misses") + c.sum("l1d", "store_misses"))
        }),
    },
    MetricDefinition {
        name: "dram_reads",
        unit: "lines",
        meaning: "Lines read from DRAM, including those of prefetches and walks",
        value: Value::Measured(|c| Some(c.tree.sum("reads", |p| p.starts_with("dram")) as f64)),
    },
    MetricDefinition {
        name: "branch_mpki",
        unit: "mispredictions/1000 instructions",
        meaning: "Mispredicted branches per 1000 instructions",
        value: Value::Rate(|c| c.per_kilo(c.core("mispredictions"))),
    },
    MetricDefinition {
        name: "page_faults",
        unit: "faults",
        meaning: "Page faults in the measured part: first touches, copy-on-write, and faults on pages that another thread had mapped meanwhile",
        value: Value::Measured(|c| Some(page_faults(|name, _| c.os(name)))),
    },
    MetricDefinition {
        name: "fault_cycles",
        unit: "cycles",
        meaning: "Kernel time of the page faults in the measured part",
        value: Value::Measured(|c| Some(c.os("fault_cycles"))),
    },
    MetricDefinition {
        name: "page_table_bytes",
        unit: "bytes",
        meaning: "Peak size of all page tables together, up to the end of the measured part",
        value: Value::Measured(|c| Some(c.os("page_table_peak_bytes"))),
    },
    MetricDefinition {
        name: "largest_contiguous_bytes",
        unit: "bytes",
        meaning: "Largest contiguous block allocated for a page table",
        value: Value::Measured(|c| Some(c.os("largest_contiguous_bytes"))),
    },
    MetricDefinition {
        name: "energy",
        unit: "nJ",
        meaning: "Energy of cores, caches, TLBs, walk caches, speculation engines and DRAM in the measured part",
        value: Value::Measured(|c| Some(c.energy?[0])),
    },
    MetricDefinition {
        name: "dynamic_energy",
        unit: "nJ",
        meaning: "Part of the energy that accesses and instructions consume",
        value: Value::Measured(|c| Some(c.energy?[1])),
    },
    MetricDefinition {
        name: "static_energy",
        unit: "nJ",
        meaning: "Part of the energy that leakage and clocks consume during the cycles of the slowest core",
        value: Value::Measured(|c| Some(c.energy?[2])),
    },
    MetricDefinition {
        name: "energy_per_instruction",
        unit: "nJ/instruction",
        meaning: "Energy per instruction of the measured part",
        value: Value::Measured(|c| ratio(c.energy?[0], c.instructions)),
    },
];

/// The metrics after those of the page tables.
const MAPPED: &[MetricDefinition] = &[
    MetricDefinition {
        name: "mapped_4kb",
        unit: "bytes",
        meaning: "Memory of live processes mapped by 4 KB pages at the end",
        value: Value::Measured(|c| Some(c.os("mapped_4kb_bytes"))),
    },
    MetricDefinition {
        name: "mapped_2mb",
        unit: "bytes",
        meaning: "Memory of live processes mapped by 2 MB pages at the end",
        value: Value::Measured(|c| Some(c.os("mapped_2mb_bytes"))),
    },
    MetricDefinition {
        name: "mapped_1gb",
        unit: "bytes",
        meaning: "Memory of live processes mapped by 1 GB pages at the end",
        value: Value::Measured(|c| Some(c.os("mapped_1gb_bytes"))),
    },
];

/// Metrics that compare machines; only reported for several machines.
const ACROSS: &[MetricDefinition] = &[
    MetricDefinition {
        name: "seconds",
        unit: "s",
        meaning: "Simulated time of the measured part: its cycles at the machine's clock. Reported only if several machines are compared, because their clocks may differ",
        value: Value::Across(|c, ghz| ratio(c.cycles, ghz * 1e9)),
    },
    MetricDefinition {
        name: "walk_cycles_per_instruction",
        unit: "cycles/instruction",
        meaning: "Sum of the latencies of all page walks per instruction. Walks that overlap each other or other work count in full, so this is not a share of the time. Reported only if several machines are compared",
        value: Value::Across(|c, _| ratio(c.mmu("walk_cycles"), c.instructions)),
    },
];

/// Name, unit and definition of a number.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Definition {
    /// Name; begins with `programs.` for a metric of each program of a mix.
    pub name: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// Definition in one sentence.
    pub meaning: &'static str,
}

impl From<MetricDefinition> for Definition {
    fn from(of: MetricDefinition) -> Self {
        Definition {
            name: of.name,
            unit: of.unit,
            meaning: of.meaning,
        }
    }
}

macro_rules! definitions {
    ($($name:literal, $unit:literal, $meaning:literal;)*) => {
        &[$(Definition { name: $name, unit: $unit, meaning: $meaning }),*]
    };
}

/// Metrics of the programs of a mix, and of a mix as a whole.
pub fn program_metrics() -> &'static [Definition] {
    definitions! {
        "weighted_speedup", "", "Weighted speedup of a mix: sum over its programs of the ratio of IPC in the mix to IPC alone on the first design (of the same machine). It equals the number of programs if sharing costs nothing. Also called system throughput, STP (Snavely and Tullsen, ASPLOS 2000; Eyerman and Eeckhout, IEEE Micro 2008)";
        "harmonic_speedup", "", "Harmonic speedup of a mix: harmonic mean over its programs of the ratios of weighted_speedup. It is small if one program is starved (Luo, Gummaraju and Franklin, ISPASS 2001)";
        "antt", "", "Average normalized turnaround time of a mix: mean over its programs of the ratio of CPI in the mix to CPI alone on the first design (of the same machine) (Eyerman and Eeckhout, IEEE Micro 2008)";
        "programs.ipc", "instructions/cycle", "IPC of a program of a mix, from the start of the measured part until the program has completed its share of the work. Cycles in which other programs run on its core are included";
        "programs.ipc_alone", "instructions/cycle", "IPC of a program of a mix alone on the first design (of the same machine), over the same work";
        "programs.speedup", "", "Speedup of a program of a mix: its IPC over its IPC on the first design (of the same machine) in the same mix";
        "programs.core_cycles", "cycles", "Cycles of cores that ran threads of a program of a mix, or the kernel on its behalf";
        "programs.l1d_tlb_mpki", "misses/1000 instructions", "l1d_tlb_mpki of a program of a mix";
        "programs.l1i_tlb_mpki", "misses/1000 instructions", "l1i_tlb_mpki of a program of a mix";
        "programs.l2_tlb_mpki", "misses/1000 instructions", "l2_tlb_mpki of a program of a mix";
        "programs.walks", "walks", "Page walks of a program of a mix, including those that end in a page fault";
        "programs.walk_cycles", "cycles", "Sum of the walk latencies of a program of a mix";
        "programs.walk_cycles_mean", "cycles", "Mean latency of a page walk of a program of a mix, from its start in a walker to its end";
        "programs.page_faults", "faults", "Page faults of a program of a mix, counted as in page_faults";
        "programs.fault_cycles", "cycles", "Kernel time of the page faults of a program of a mix";
        "programs.mapped_4kb", "bytes", "Memory of all processes of a program of a mix mapped by 4 KB pages at the end";
        "programs.mapped_2mb", "bytes", "Memory of all processes of a program of a mix mapped by 2 MB pages at the end";
        "programs.mapped_1gb", "bytes", "Memory of all processes of a program of a mix mapped by 1 GB pages at the end";
        "programs.page_table_bytes", "bytes", "Memory of the page tables of all processes of a program of a mix at the end";
        "programs.later", "", "Counts of a program of a mix after it has completed its share of the work, while other programs still run. No other number of the program includes them. The machine's counters are the sum of a program's numbers, these counts and outside_programs";
        "outside_programs", "", "Counts of a mix that belong to none of its programs: idle cores, context switches and the kernel's own threads";
        "speedup_in_time", "", "Speedup over the first design on the first machine in seconds, not cycles, for the same instructions (or requests, if the result says so). Reported only if several machines are compared";
    }
}

/// Every metric of the summary, in order.
pub fn metrics() -> impl Iterator<Item = MetricDefinition> {
    let tables = table_metrics().map(|m| MetricDefinition {
        name: m.name,
        unit: m.unit,
        meaning: m.meaning,
        value: Value::Tables(m.value),
    });
    GENERAL
        .iter()
        .copied()
        .chain(tables)
        .chain(MAPPED.iter().copied())
        .chain(ACROSS.iter().copied())
}

pub(crate) fn summarise(
    tree: &Tree,
    since_boot: Option<&Tree>,
    work: Work,
    cycles: u64,
    energy: Option<Totals>,
    clock: Option<f64>,
) -> Vec<Metric> {
    let c = Counted::new(tree, work, cycles, energy);
    metrics()
        .filter_map(|m| {
            let value = match m.value {
                Value::Measured(value) | Value::Rate(value) => value(&c),
                Value::Tables(value) => since_boot.and_then(value),
                Value::Across(value) => value(&c, clock?),
            };
            Some(Metric {
                name: m.name,
                value,
                unit: m.unit,
                meaning: m.meaning,
            })
        })
        .collect()
}

/// The metrics that do not grow with the measured part.
pub(crate) fn rates() -> impl Iterator<Item = MetricDefinition> {
    metrics().filter(|m| matches!(m.value, Value::Rate(_)))
}

/// Values of the rates.
pub(crate) fn values_of_rates(tree: &Tree, work: Work, cycles: u64) -> Vec<Option<f64>> {
    let c = Counted::new(tree, work, cycles, None);
    let value = |m: MetricDefinition| match m.value {
        Value::Rate(value) => Some(value(&c)),
        Value::Measured(_) | Value::Tables(_) | Value::Across(_) => None,
    };
    metrics().filter_map(value).collect()
}

/// Average cost in cycles of a miss in each of `estimate::STALE_STRUCTURES`, from the cycle stack. A miss
/// whose latency is hidden costs little.
pub(crate) fn prices(tree: &Tree) -> [f64; STALE_STRUCTURES.len()] {
    let c = Counted::new(tree, Work::default(), 0, None);
    let lost = |causes: &[&str]| causes.iter().map(|cause| c.sum("cycles", cause)).sum();
    let price = |causes: &[&str], events: f64| ratio(lost(causes), events).unwrap_or(0.0);
    let first = price(
        &["l2", "fetch"],
        c.sum("l1i", "misses") + c.sum("l1d", "misses"),
    );
    let wrong: f64 = ["conditional_wrong", "indirect_wrong", "returns_wrong"]
        .map(|name| c.sum("predictor", name))
        .iter()
        .sum();
    let reads = c.tree.sum("reads", |p| p.starts_with("dram")) as f64;
    let memory = price(&["dram", "dram_queue"], reads);
    let level = |name: &str| c.sum(name, "misses") + c.tree.sum("misses", |p| p == name) as f64;
    STALE_STRUCTURES.map(|name| match name {
        "l1i" | "l1d" => first,
        "l2" => price(&["l3"], c.sum("l2", "misses")),
        "tlb_l1" => price(&["tlb"], c.mmu("l1d_misses") + c.mmu("l1i_misses")),
        "tlb_l2" | "translation" => price(&["walk", "walker"], c.mmu("walks")),
        "branches" => price(&["branch"], wrong),
        "l3" if has(tree, "l4") => price(&["l4"], level("l3")),
        "l0d" => price(&["l1d"], level("l0d")),
        // The last level.
        _ => memory,
    })
}

/// True unless `name` is that of a structure which the machine lacks.
pub(crate) fn has(tree: &Tree, name: &str) -> bool {
    let is_it = |path: &str| path == name || below_core(path, name);
    !matches!(name, "l0d" | "l4" | "translation") || tree.rows.iter().any(|row| is_it(&row.path))
}

/// Cycle stack of all cores together; the parts add up to all cycles.
pub(crate) fn cycle_stack(tree: &Tree) -> Vec<Share> {
    let rows = tree
        .rows
        .iter()
        .filter(|r| r.path.strip_suffix(".slots").is_some_and(is_core));
    let mut parts: Vec<(&'static pagewalk_stats::Definition, u64)> = Vec::new();
    for row in rows {
        match parts.iter_mut().find(|p| p.0.name == row.definition.name) {
            Some(p) => p.1 += row.value,
            None => parts.push((row.definition, row.value)),
        }
    }
    let slots: u64 = parts.iter().map(|p| p.1).sum();
    let cycles = tree.sum("cycles", is_core) as f64;
    parts
        .into_iter()
        .map(|(d, n)| {
            let share = if slots > 0 {
                n as f64 / slots as f64
            } else {
                0.0
            };
            Share {
                cause: d.name,
                cycles: share * cycles,
                share,
                meaning: d.meaning,
            }
        })
        .collect()
}

/// A sentence if TLBs missed and nothing walked, which no machine can do.
pub(crate) fn impossible(tree: &Tree) -> Option<String> {
    let c = Counted::new(tree, Work::default(), 0, None);
    let l1 = c.mmu("l1d_misses") + c.mmu("l1i_misses");
    // Sources in parallel with the second level, and in its place.
    let beside = c.sum("mmu.range_tlb", "served") + c.sum("mmu.coalesced", "hits");
    let walked = c.l2_tlb_misses() > 0.0 || c.mmu("walks_merged") > 0.0;
    (l1 > c.mmu("l2_hits") + beside && !walked).then(|| {
        format!("the TLBs missed {l1} times and nothing walked: this result is not to be used")
    })
}

#[cfg(test)]
mod tests {
    use pagewalk_cpu::CoreStats;
    use pagewalk_memory::{CacheStats, DramStats};
    use pagewalk_mmu::source::RangeTlbStats;
    use pagewalk_mmu::{MmuStats, TlbStats};
    use pagewalk_os::OsStats;
    use pagewalk_stats::{Counters, Tree};

    use super::{Metric, Work, impossible, summarise, values_of_rates};

    #[test]
    fn misses_that_a_range_tlb_serves_need_no_walk() {
        for (served, said) in [(7, true), (8, false)] {
            let mut tree = Tree::default();
            let mmu = MmuStats {
                l1d_misses: 10,
                l2_hits: 2,
                ..MmuStats::default()
            };
            let ranges = RangeTlbStats {
                served,
                ..RangeTlbStats::default()
            };
            tree.add("core.0.mmu", &mmu);
            tree.add("core.0.mmu.range_tlb", &ranges);
            assert_eq!(impossible(&tree).is_some(), said);
        }
    }

    fn value(summary: &[Metric], name: &str) -> Option<f64> {
        summary.iter().find(|m| m.name == name)?.value
    }

    #[test]
    fn misses_of_a_level_are_those_of_all_its_arrays_whatever_they_are_called() {
        let mut tree = Tree::default();
        for core in 0..12 {
            for (array, hits) in [("huge", 20), ("small", 70)] {
                let stats = TlbStats {
                    lookups: 100,
                    hits,
                    misses: 100 - hits,
                    ..TlbStats::default()
                };
                tree.add(&format!("core.{core}.mmu.l1d.{array}"), &stats);
            }
            let stats = MmuStats {
                l1d_misses: 10,
                ..MmuStats::default()
            };
            tree.add(&format!("core.{core}.mmu"), &stats);
        }
        let work = Work {
            instructions: 12_000,
            requests: 0,
        };
        let summary = summarise(&tree, None, work, 1, None, None);
        assert_eq!(value(&summary, "l1d_tlb_mpki"), Some(10.0));
    }

    #[test]
    fn lookups_that_merge_with_a_pending_fill_are_no_misses() {
        let mut tree = Tree::default();
        let stats = MmuStats {
            l1d_misses: 50,
            l1i_misses: 20,
            l1d_waits: 7,
            l1i_waits: 5,
            l2_waits: 3,
            walks: 30,
            walks_merged: 12,
            walks_merged_fetches: 5,
            ..MmuStats::default()
        };
        tree.add("core.0.mmu", &stats);
        let work = Work {
            instructions: 1000,
            requests: 0,
        };
        let summary = summarise(&tree, None, work, 1, None, None);
        assert_eq!(value(&summary, "l1d_tlb_mpki"), Some(50.0));
        assert_eq!(value(&summary, "l1i_tlb_mpki"), Some(20.0));
        assert_eq!(value(&summary, "l2_tlb_mpki"), Some(30.0));
    }

    #[test]
    fn rates_do_not_grow_with_the_run() {
        let mut tree = Tree::default();
        tree.add("os", &OsStats::default());
        for (path, counters) in [
            ("core.0", &CoreStats::default() as &dyn Counters),
            ("core.0.mmu", &MmuStats::default()),
            ("core.0.l1d", &CacheStats::default()),
            ("dram.0", &DramStats::default()),
        ] {
            tree.add(path, counters);
        }
        let values = |scale: u64| {
            let mut tree = tree.clone();
            for (at, row) in tree.rows.iter_mut().enumerate() {
                row.value = (at as u64 + 100) * scale;
            }
            let work = Work {
                instructions: 1000 * scale,
                requests: 10 * scale,
            };
            let of_rates = values_of_rates(&tree, work, 2000 * scale);
            let summary = summarise(&tree, None, work, 2000 * scale, None, None);
            (of_rates, summary)
        };
        let (once, twice) = (values(1), values(2));
        assert_eq!(once.0, twice.0);
        assert!(once.0.iter().all(|v| v.is_some_and(|v| v > 0.0)));
        let is_rate = |name| super::rates().any(|m| m.name == name);
        for (one, two) in once.1.iter().zip(&twice.1) {
            if let Some(value) = one.value
                && !is_rate(one.name)
            {
                assert_eq!(two.value, Some(2.0 * value), "{}", one.name);
            }
        }
    }

    #[test]
    fn every_fault_counts_once_and_what_the_laboratory_touched_is_none() {
        let mut tree = Tree::default();
        let os = OsStats {
            faults_4kb: 100,
            faults_2mb: 20,
            cow_faults: 7,
            spurious_faults: 3,
            populated_pages: 90,
            ..OsStats::default()
        };
        tree.add("os", &os);
        let summary = summarise(&tree, None, Work::default(), 0, None, None);
        assert_eq!(value(&summary, "page_faults"), Some(40.0));
    }

    #[test]
    fn costs_per_request_need_an_ended_request() {
        let per_request = |requests| {
            let work = Work {
                instructions: 600,
                requests,
            };
            let summary = summarise(&Tree::default(), None, work, 300, None, None);
            ["requests", "cycles_per_request", "instructions_per_request"]
                .map(|name| value(&summary, name))
        };
        assert_eq!(per_request(0), [None; 3]);
        assert_eq!(per_request(4), [Some(4.0), Some(75.0), Some(150.0)]);
    }
}
