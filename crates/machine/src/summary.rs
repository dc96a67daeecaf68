//! The numbers that answer the question, each with unit and definition,
//! computed from the counters.

use pagewalk_stats::Tree;
use serde::Serialize;

use crate::results::{DesignResult, Share};

/// One number of the summary.
#[derive(Clone, Debug, Serialize)]
pub struct Metric {
    /// Name.
    pub name: &'static str,
    /// `None` where it has no meaning (a mean over nothing).
    pub value: Option<f64>,
    /// Unit.
    pub unit: &'static str,
    /// Definition.
    pub meaning: &'static str,
}

/// Name, unit and definition of a metric.
pub struct MetricDefinition {
    /// Name.
    pub name: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// One sentence.
    pub meaning: &'static str,
    value: fn(&Counted<'_>) -> Option<f64>,
}

struct Counted<'a> {
    tree: &'a Tree,
    /// The kernel's and the page tables' counters since the machine booted.
    since_boot: Option<&'a Tree>,
    instructions: f64,
    cycles: f64,
}

/// `core.3`, and nothing below it.
pub(crate) fn is_core(path: &str) -> bool {
    path.strip_prefix("core.")
        .is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
}

fn is_mmu(path: &str) -> bool {
    path.strip_suffix(".mmu").is_some_and(is_core)
}

/// `core.3.PART…`
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
    fn os(&self, name: &str) -> f64 {
        self.tree.sum(name, |p| p == "os") as f64
    }
    /// Sum of a counter over the hashed page tables of the three page sizes since
    /// the machine booted; `None` where there are no such tables.
    fn tables(&self, name: &str) -> Option<f64> {
        let of_a_size = |path: &str| {
            let size = path.strip_prefix("page_table.");
            size.is_some_and(|size| ["4kb", "2mb", "1gb"].contains(&size))
        };
        let rows = &self.since_boot?.rows;
        let mut values = rows
            .iter()
            .filter(|r| r.definition.name == name && of_a_size(&r.path))
            .map(|r| r.value)
            .peekable();
        values.peek()?;
        Some(values.sum::<u64>() as f64)
    }
    fn per_kilo(&self, n: f64) -> Option<f64> {
        ratio(n * 1000.0, self.instructions)
    }
}

/// Every metric of the summary, in order.
pub const METRICS: &[MetricDefinition] = &[
    MetricDefinition {
        name: "instructions",
        unit: "instructions",
        meaning: "Instructions of all threads in the measured part",
        value: |c| Some(c.instructions),
    },
    MetricDefinition {
        name: "cycles",
        unit: "cycles",
        meaning: "Cycles of the core that took longest in the measured part",
        value: |c| Some(c.cycles),
    },
    MetricDefinition {
        name: "ipc",
        unit: "instructions/cycle",
        meaning: "Instructions of all threads a cycle",
        value: |c| ratio(c.instructions, c.cycles),
    },
    MetricDefinition {
        name: "memory_operands",
        unit: "operands",
        meaning: "Loads and stores of the program",
        value: |c| Some(c.core("loads") + c.core("stores")),
    },
    MetricDefinition {
        name: "l1d_tlb_mpki",
        unit: "misses/1000 instructions",
        meaning: "Data translations that no first-level TLB had, for 1000 instructions; one that waits for a walk under way to the same page is not counted again",
        value: |c| {
            let merged = c.mmu("walks_merged") - c.mmu("walks_merged_fetches");
            c.per_kilo(c.mmu("l1d_misses") - merged)
        },
    },
    MetricDefinition {
        name: "l1i_tlb_mpki",
        unit: "misses/1000 instructions",
        meaning: "Instruction translations that no first-level TLB had, for 1000 instructions; one that waits for a walk under way to the same page is not counted again",
        value: |c| c.per_kilo(c.mmu("l1i_misses") - c.mmu("walks_merged_fetches")),
    },
    MetricDefinition {
        name: "l2_tlb_mpki",
        unit: "misses/1000 instructions",
        meaning: "Translations that no TLB had, for 1000 instructions; one that waits for a walk under way to the same page is not counted again",
        value: |c| c.per_kilo(c.mmu("walks")),
    },
    MetricDefinition {
        name: "walks",
        unit: "walks",
        meaning: "Page walks, those that end in a page fault included",
        value: |c| Some(c.mmu("walks")),
    },
    MetricDefinition {
        name: "walk_cycles_mean",
        unit: "cycles",
        meaning: "Mean time of a walk, from its start in a walker to its end",
        value: |c| ratio(c.mmu("walk_cycles"), c.mmu("walks")),
    },
    MetricDefinition {
        name: "walk_reads_per_walk",
        unit: "reads",
        meaning: "Mean number of page-table reads of a walk",
        value: |c| ratio(c.mmu("walk_reads"), c.mmu("walks")),
    },
    MetricDefinition {
        name: "l1d_mpki",
        unit: "misses/1000 instructions",
        meaning: "Demand misses of the first-level data cache, for 1000 instructions",
        value: |c| c.per_kilo(c.sum("l1d", "load_misses") + c.sum("l1d", "store_misses")),
    },
    MetricDefinition {
        name: "dram_reads",
        unit: "lines",
        meaning: "Lines read from DRAM, prefetches and walks included",
        value: |c| Some(c.tree.sum("reads", |p| p.starts_with("dram")) as f64),
    },
    MetricDefinition {
        name: "branch_mpki",
        unit: "mispredictions/1000 instructions",
        meaning: "Mispredicted branches, for 1000 instructions",
        value: |c| c.per_kilo(c.core("mispredictions")),
    },
    MetricDefinition {
        name: "page_faults",
        unit: "faults",
        meaning: "Page faults in the measured part: first touches, copy-on-write, and those that another thread had answered meanwhile",
        value: |c| {
            let first = c.os("faults_4kb") + c.os("faults_2mb") + c.os("faults_1gb");
            let others = c.os("cow_faults") + c.os("spurious_faults");
            Some(first + others - c.os("populated_pages"))
        },
    },
    MetricDefinition {
        name: "fault_cycles",
        unit: "cycles",
        meaning: "Kernel time of the page faults in the measured part",
        value: |c| Some(c.os("fault_cycles")),
    },
    MetricDefinition {
        name: "page_table_bytes",
        unit: "bytes",
        meaning: "Largest size of all page tables together, up to the end of the measured part",
        value: |c| Some(c.os("page_table_peak_bytes")),
    },
    MetricDefinition {
        name: "largest_contiguous_bytes",
        unit: "bytes",
        meaning: "Largest contiguous block that a page table asked for",
        value: |c| Some(c.os("largest_contiguous_bytes")),
    },
    MetricDefinition {
        name: "table_resizes",
        unit: "resizes",
        meaning: "Upsizes and downsizes of ways of cuckoo page tables since the machine booted",
        value: |c| Some(c.tables("upsizes")? + c.tables("downsizes")?),
    },
    MetricDefinition {
        name: "table_reinsertions_mean",
        unit: "re-insertions",
        meaning: "Mean number of re-insertions of an insertion or rehash in cuckoo page tables since the machine booted",
        value: |c| {
            ratio(
                c.tables("reinsertions")?,
                c.tables("insertions_and_rehashes")?,
            )
        },
    },
    MetricDefinition {
        name: "l2p_entries",
        unit: "entries",
        meaning: "Most entries of the L2P table that one process had in use since the machine booted",
        value: |c| Some(c.since_boot?.get("page_table.l2p", "entries_peak")? as f64),
    },
    MetricDefinition {
        name: "mapped_4kb",
        unit: "bytes",
        meaning: "Memory mapped by 4 KB pages at the end, of the processes that then live",
        value: |c| Some(c.os("mapped_4kb_bytes")),
    },
    MetricDefinition {
        name: "mapped_2mb",
        unit: "bytes",
        meaning: "Memory mapped by 2 MB pages at the end, of the processes that then live",
        value: |c| Some(c.os("mapped_2mb_bytes")),
    },
    MetricDefinition {
        name: "mapped_1gb",
        unit: "bytes",
        meaning: "Memory mapped by 1 GB pages at the end, of the processes that then live",
        value: |c| Some(c.os("mapped_1gb_bytes")),
    },
];

pub(crate) fn summarise(
    tree: &Tree,
    since_boot: Option<&Tree>,
    instructions: u64,
    cycles: u64,
) -> Vec<Metric> {
    let c = Counted {
        tree,
        since_boot,
        instructions: instructions as f64,
        cycles: cycles as f64,
    };
    METRICS
        .iter()
        .map(|m| Metric {
            name: m.name,
            value: (m.value)(&c),
            unit: m.unit,
            meaning: m.meaning,
        })
        .collect()
}

/// Where the cycles went: the parts of the cycle stack of all cores, adding up to the whole.
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

/// A result that no machine could give.
pub(crate) fn impossible(d: &DesignResult) -> Option<String> {
    let mmu = |name: &str| {
        d.stats
            .iter()
            .filter(|s| is_mmu(&s.path) && s.name == name)
            .map(|s| s.value)
            .sum::<u64>()
    };
    let l1 = mmu("l1d_misses") + mmu("l1i_misses");
    (l1 > mmu("l2_hits") && mmu("walks") == 0 && mmu("walks_merged") == 0).then(|| {
        format!(
            "{}: the TLBs missed {l1} times and nothing walked: this result is not to be used",
            d.name
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewalk_mmu::{MmuStats, TlbStats};
    use pagewalk_os::OsStats;

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
        let summary = summarise(&tree, None, 12_000, 1);
        let misses = summary.iter().find(|m| m.name == "l1d_tlb_mpki");
        assert_eq!(misses.and_then(|m| m.value), Some(10.0));
    }

    #[test]
    fn a_miss_that_waits_for_a_walk_is_not_counted_again_on_either_side() {
        let mut tree = Tree::default();
        let stats = MmuStats {
            l1d_misses: 50,
            l1i_misses: 20,
            walks_merged: 12,
            walks_merged_fetches: 5,
            ..MmuStats::default()
        };
        tree.add("core.0.mmu", &stats);
        let summary = summarise(&tree, None, 1000, 1);
        let value = |name| summary.iter().find(|m| m.name == name)?.value;
        assert_eq!(value("l1d_tlb_mpki"), Some(43.0));
        assert_eq!(value("l1i_tlb_mpki"), Some(15.0));
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
        let summary = summarise(&tree, None, 0, 0);
        let faults = summary.iter().find(|m| m.name == "page_faults");
        assert_eq!(faults.and_then(|m| m.value), Some(40.0));
    }
}
