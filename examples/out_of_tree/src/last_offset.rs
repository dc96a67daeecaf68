//! A speculation engine: a table of the last distances between virtual pages and their frames, one
//! for each 2 MB region.
//!
//! Kernels often place consecutive pages in consecutive frames. So a page that misses is guessed to
//! lie at the distance of the page of its region that walked last.

use pagewalk_mmu::Walked;
use pagewalk_mmu::engine::{
    Engine, EngineArray, EngineKind, Guess, Guesses, Miss, Seen, What, register,
};
use pagewalk_stats::Tree;
use pagewalk_tables::Invalidation;
use pagewalk_units::{Asid, Cycle, Error, PageSize, PhysAddr, VirtAddr};
use serde::Deserialize;

/// A table of distances: `[engine.external.last_offset]`.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct LastOffset {
    /// Entries, one for each 2 MB region of virtual memory; direct-mapped.
    entries: u32,
    /// Cycles from a miss of all TLBs to its guess.
    latency: Cycle,
}

const NAME: &str = "last_offset";
const MOST_ENTRIES: u32 = 1 << 20;
const MOST_LATENCY: Cycle = 1 << 20;

/// Registers the kind.
pub fn add() {
    register::<LastOffset>(NAME);
}

impl EngineKind for LastOffset {
    fn check(&self) -> Result<(), Error> {
        if self.entries == 0 || self.entries > MOST_ENTRIES {
            let text = format!("is {}; expected 1 to {MOST_ENTRIES}", self.entries);
            return Err(Error::key("entries", text));
        }
        if self.latency > MOST_LATENCY {
            let text = format!(
                "is {}; expected at most {MOST_LATENCY} cycles",
                self.latency
            );
            return Err(Error::key("latency", text));
        }
        Ok(())
    }

    fn build(&self, _: f64) -> Box<dyn Engine> {
        Box::new(Offsets {
            latency: self.latency,
            table: vec![None; self.entries as usize],
            stats: OffsetStats::default(),
        })
    }

    fn array(&self) -> Option<EngineArray> {
        Some(EngineArray {
            name: NAME,
            entries: self.entries,
            ways: 1,
            lookups: &["lookups"],
            fills: &["fills"],
        })
    }
}

pagewalk_stats::counters! {
    /// Counters of one core's table of distances.
    pub struct OffsetStats {
        lookups: "lookups", "Lookups for misses of all TLBs";
        hits: "lookups", "Lookups that found the region, and guessed";
        fills: "entries", "Distances stored after walks";
    }
}

/// The distance of a region's last page.
#[derive(Clone, Copy)]
struct Distance {
    asid: Asid,
    /// Number of the region.
    region: u64,
    /// Physical minus virtual address, modulo 2^64.
    bytes: u64,
    /// Cycle from which hardware knows it.
    ready: Cycle,
}

/// A core's table.
struct Offsets {
    latency: Cycle,
    table: Vec<Option<Distance>>,
    stats: OffsetStats,
}

fn region(va: VirtAddr) -> u64 {
    va.0 >> PageSize::M2.shift()
}

impl Offsets {
    fn entry(&mut self, region: u64) -> &mut Option<Distance> {
        let n = self.table.len() as u64;
        &mut self.table[(region % n) as usize]
    }
}

impl Engine for Offsets {
    fn latency(&self) -> Cycle {
        self.latency
    }

    fn makes(&self, what: What) -> bool {
        what == What::Data
    }

    fn guess(&mut self, miss: &Miss, _: &Seen<'_>) -> Guesses {
        self.stats.lookups += 1;
        let region = region(miss.va);
        let found = self
            .entry(region)
            .filter(|d| (d.asid, d.region) == (miss.asid, region) && d.ready <= miss.at);
        self.stats.hits += u64::from(found.is_some());
        let guess = found.map(|d| Guess {
            at: PhysAddr(miss.va.0.wrapping_add(d.bytes)),
            what: What::Data,
            after: 0,
        });
        guess.into_iter().collect()
    }

    fn learn(&mut self, miss: &Miss, walked: &Walked, end: Cycle) {
        let region = region(miss.va);
        self.stats.fills += 1;
        *self.entry(region) = Some(Distance {
            asid: miss.asid,
            region,
            bytes: walked.pa(miss.va).0.wrapping_sub(miss.va.0),
            ready: end,
        });
    }

    fn invalidate(&mut self, what: &Invalidation) {
        let (asid, first, last) = what.span();
        let regions = region(first)..=region(last);
        for entry in &mut self.table {
            if entry.is_some_and(|d| d.asid == asid && regions.contains(&d.region)) {
                *entry = None;
            }
        }
    }

    fn report(&self, path: &str, tree: &mut Tree) {
        tree.add(&format!("{path}.{NAME}"), &self.stats);
    }
}
