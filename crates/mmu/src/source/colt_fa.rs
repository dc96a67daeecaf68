//! CoLT-FA (Pham, Vaidyanathan, Jaleel and Bhattacharjee, MICRO 2012): a small fully associative TLB
//! beside the first level, whose entries cover runs of pages in consecutive frames.
//!
//! A walk reads a line of eight page-table entries. The run around the walk's page in that line
//! becomes one entry, joined with an entry that it continues. Pages without a neighbour stay in the
//! ordinary TLBs.

use pagewalk_stats::Tree;
use pagewalk_structures::StaleOutcomes;
use pagewalk_tables::Invalidation;
use pagewalk_units::{Cycle, Error, PageSize};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extents::Extents;
use super::registry::{Built, Context, Reserved, SourceArray, SourceKind};
use super::{Found, Place, Ports, Probed, TranslationSource};
use crate::Lookup;
use crate::spec::MAX_LATENCY;

/// A CoLT-FA array.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ColtFaSpec {
    /// Entries, fully associative. Default 8 (CoLT, section 5: half of the TLB for superpages, since
    /// each entry has more bits).
    pub entries: u32,
    /// Cycles of a lookup; those beyond the L1 data cache's load-to-use latency delay an access.
    /// Default 1 (ours: the first-level TLBs of most machines).
    pub latency: Cycle,
    /// Most pages of an entry. Default 1024 (ours: no entry of the paper's runs is longer).
    pub most_pages: u32,
}

impl Default for ColtFaSpec {
    fn default() -> Self {
        ColtFaSpec {
            entries: 8,
            latency: 1,
            most_pages: 1024,
        }
    }
}

/// Most entries: all are compared at once.
const MOST_ENTRIES: u32 = 4096;
/// Most pages of an entry.
const MOST_PAGES: u32 = 1 << 20;

pagewalk_stats::counters! {
    /// Counters of one core's CoLT-FA array.
    pub struct ColtFaStats {
        lookups: "lookups", "Lookups of the array, for translations that missed the arrays of the first level";
        hits: "lookups", "Lookups that found the translation";
        fills: "entries", "Entries filled after walks: runs of at least two pages";
        joined: "entries", "Fills that an entry present before has become part of";
        pages: "pages", "Sum of the pages of the entries filled";
        evictions: "entries", "Entries replaced while still valid";
    }
}

impl SourceKind for ColtFaSpec {
    fn check(&self) -> Result<(), Error> {
        for (key, value, most) in [
            ("entries", self.entries, MOST_ENTRIES),
            ("most_pages", self.most_pages, MOST_PAGES),
        ] {
            if value == 0 || value > most {
                return Err(Error::key(key, format!("is {value}; expected 1 to {most}")));
            }
        }
        if self.latency > MAX_LATENCY {
            return Err(Error::key(
                "latency",
                format!("is {}; expected at most {MAX_LATENCY} cycles", self.latency),
            ));
        }
        Ok(())
    }

    fn place(&self) -> Place {
        Place::BesideL1
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
        Built::separate(context, || ColtFa {
            extents: Extents::new(self.entries as usize),
            latency: self.latency,
            most: u64::from(self.most_pages) * PageSize::K4.bytes(),
            stats: ColtFaStats::default(),
        })
    }
}

const NAME: &str = "colt_fa";

/// A core's array.
struct ColtFa {
    extents: Extents,
    latency: Cycle,
    /// Most bytes of an entry.
    most: u64,
    stats: ColtFaStats,
}

impl TranslationSource for ColtFa {
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
        let run = found.run();
        if found.walked.size != PageSize::K4 || run.bytes == PageSize::K4.bytes() {
            return;
        }
        let asid = found.lookup.asid;
        let mut extent = run;
        // The new run can join an entry on each side.
        for _ in 0..2 {
            if let Some(union) = self.extents.take_joined(asid, extent, self.most) {
                extent = union;
                self.stats.joined += ports.count();
            }
        }
        self.stats.fills += ports.count();
        self.stats.pages += extent.bytes / PageSize::K4.bytes() * ports.count();
        let evicted = self.extents.insert(asid, extent, found.at);
        self.stats.evictions += u64::from(evicted) * ports.count();
    }

    fn invalidate(&mut self, what: &Invalidation) {
        self.extents.invalidate(what);
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
