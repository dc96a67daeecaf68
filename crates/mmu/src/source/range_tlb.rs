//! The range TLB of redundant memory mappings (Karakostas et al., ISCA 2015).
//!
//! An entry is a range: any number of pages of equal rights in consecutive frames. The array is
//! looked up in parallel with the second-level TLB, and a hit fills the first level with a 4 KB page.
//! After a miss of both, the page walk serves the request. If a bit of the page-table entry says that
//! the page is in a range, the range table is then read in the background.

use pagewalk_stats::Tree;
use pagewalk_structures::StaleOutcomes;
use pagewalk_tables::Invalidation;
use pagewalk_units::{Cycle, Error, PageSize, PhysAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extents::Extents;
use super::registry::{Built, Context, Reserved, SourceArray, SourceKind};
use super::{Found, Place, Ports, Probed, TranslationSource};
use crate::Lookup;
use crate::spec::MAX_LATENCY;

/// A range TLB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RangeTlbSpec {
    /// Entries, fully associative. Default 32 (RMM).
    pub entries: u32,
    /// Cycles of a lookup. Default: those of the second-level array that holds 4 KB pages, with which
    /// it is looked up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Cycle>,
}

impl Default for RangeTlbSpec {
    fn default() -> Self {
        RangeTlbSpec {
            entries: 32,
            latency: None,
        }
    }
}

/// Most entries: all are compared at once.
const MOST_ENTRIES: u32 = 4096;

pagewalk_stats::counters! {
    /// Counters of one core's range TLB.
    pub struct RangeTlbStats {
        lookups: "lookups", "Lookups of the array, for translations that missed the first level";
        hits: "lookups", "Lookups that found the translation";
        served: "translations", "Misses of the first level that the hits served; the second-level TLB had the translations of the other hits";
        fills: "entries", "Entries filled: walks of the range table";
        pages: "pages", "Sum of the pages of the entries filled";
        evictions: "entries", "Entries replaced while still valid";
        table_reads: "reads", "Lines of the range table that its walks read; not among the MMU's walk_reads";
        on_its_way: "walks", "Page walks in a range for which the range table was being read";
    }
}

impl SourceKind for RangeTlbSpec {
    fn check(&self) -> Result<(), Error> {
        if self.entries == 0 || self.entries > MOST_ENTRIES {
            return Err(Error::key(
                "entries",
                format!("is {}; expected 1 to {MOST_ENTRIES}", self.entries),
            ));
        }
        if let Some(latency) = self.latency
            && latency > MAX_LATENCY
        {
            return Err(Error::key(
                "latency",
                format!("is {latency}; expected at most {MAX_LATENCY} cycles"),
            ));
        }
        Ok(())
    }

    fn place(&self) -> Place {
        Place::BesideL2
    }

    fn needs_ranges(&self) -> bool {
        true
    }

    fn array(&self, _: &Context<'_>) -> Option<SourceArray> {
        Some(SourceArray {
            name: NAME,
            entries: self.entries,
            ways: self.entries,
            shared: false,
        })
    }

    fn build(&self, context: &Context<'_>, _: &Reserved) -> Built {
        let beside = context.small_l2().map_or(0, |array| array.latency);
        Built::separate(context, || RangeTlb {
            extents: Extents::new(self.entries as usize),
            latency: self.latency.unwrap_or(beside),
            reads: Vec::new(),
            stats: RangeTlbStats::default(),
        })
    }
}

const NAME: &str = "range_tlb";

/// A core's range TLB.
struct RangeTlb {
    extents: Extents,
    latency: Cycle,
    /// The lines that a walk of the range table reads.
    reads: Vec<PhysAddr>,
    stats: RangeTlbStats,
}

impl TranslationSource for RangeTlb {
    fn name(&self) -> &'static str {
        NAME
    }

    fn probe(&mut self, lookup: &Lookup, ports: &mut Ports<'_>) -> Probed {
        let probed = self.extents.probe(lookup, self.latency, ports);
        self.stats.lookups += ports.count();
        if matches!(probed, Probed::Hit(_)) {
            self.stats.hits += ports.count();
        }
        probed
    }

    fn fill(&mut self, found: &Found<'_>, ports: &mut Ports<'_>) {
        self.reads.clear();
        let Some(extent) = found.range(&mut self.reads) else {
            return;
        };
        let asid = found.lookup.asid;
        if self.extents.holds(asid, &extent) {
            self.stats.on_its_way += ports.count();
            return;
        }
        let mut at = found.at;
        for &line in &self.reads {
            let read = ports.read(line, at);
            at = if ports.timed() { read.at } else { 0 };
        }
        self.stats.table_reads += self.reads.len() as u64 * ports.count();
        self.stats.fills += ports.count();
        self.stats.pages += extent.bytes / PageSize::K4.bytes() * ports.count();
        let evicted = self.extents.insert(asid, extent, at);
        self.stats.evictions += u64::from(evicted) * ports.count();
    }

    fn invalidate(&mut self, what: &Invalidation) {
        self.extents.invalidate(what);
    }

    fn served(&mut self) {
        self.stats.served += 1;
    }

    fn mark_stale(&mut self) {
        self.extents.mark_stale();
    }

    fn stale(&self) -> StaleOutcomes {
        self.extents.stale()
    }

    fn report(&self, path: &str, tree: &mut Tree) {
        tree.add(path, &self.stats);
    }
}
