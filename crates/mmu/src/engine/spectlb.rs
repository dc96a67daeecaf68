//! SpecTLB (Barr, Cox and Rixner, ISCA 2011): a table of the 2 MB blocks that the kernel has
//! reserved for regions whose pages are still small. A page of such a region lies at its own offset
//! in the block, so one entry predicts all 512 pages.

use pagewalk_stats::Tree;
use pagewalk_structures::SetAssoc;
use pagewalk_tables::{Flags, Invalidation};
use pagewalk_units::{Asid, Cycle, Error, PageSize, Part, PhysAddr, VirtAddr, text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Engine, EngineArray, EngineKind, Guess, Guesses, Miss, Seen, What};
use crate::Walked;
use crate::spec::MAX_LATENCY;

/// A SpecTLB of each core, looked up when the second-level TLB misses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpecTlbSpec {
    /// Entries, one for each 2 MB region of virtual memory; a multiple of `ways`.
    pub entries: u32,
    /// Ways, least recently used replaced. Default 4 (Revelator, table 1).
    #[serde(default = "ways")]
    pub ways: u32,
    /// Cycles from a miss of all TLBs to its guess. Default 4 (Revelator, table 1).
    #[serde(default = "latency")]
    pub latency: Cycle,
    /// Test for a page in a reservation.
    #[serde(default)]
    pub detect: Detect,
}

fn ways() -> u32 {
    4
}

fn latency() -> Cycle {
    4
}

/// Test by which a SpecTLB finds that a page lies in a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Detect {
    /// The kernel sets a bit in the page-table entry; in a virtual machine guest and host both do.
    /// The default.
    #[default]
    Flag,
    /// Bits 20 to 12 of the virtual and the physical address are equal, which is also true by
    /// chance of one page in 512.
    Offset,
}

pagewalk_stats::counters! {
    /// Counters of one SpecTLB. lookups = hits + misses; lookups are the walks, and hits and
    /// merged_hits are the engine's guesses.
    pub struct SpecTlbStats {
        lookups: "lookups", "Lookups for misses of all TLBs that walked; misses / lookups is the miss rate";
        hits: "lookups", "Lookups that found the frames of the region's reservation, and guessed";
        misses: "lookups", "Lookups that found no entry, or an entry whose walk had not ended";
        merged_lookups: "lookups", "Lookups for misses that merged with a walk of the same 4 KB page";
        merged_hits: "lookups", "Merged lookups that found the frames of the region's reservation, and guessed";
        mispredictions: "lookups", "Hits for which the walk found the page in another frame: the entry was stale, or made by chance";
        fills: "entries", "Entries filled, or corrected after a misprediction";
        evictions: "entries", "Entries replaced while still valid";
        invalidated: "entries", "Entries dropped because the kernel promoted, demoted, unmapped or protected the region";
    }
}

/// log2 of the bytes of a region.
const REGION_SHIFT: u32 = PageSize::M2.shift();
/// Bits of a region's number in a key: 64-bit addresses.
const REGION_BITS: u32 = 64 - REGION_SHIFT;
/// Bits of an address that select the 4 KB page within its region.
const PAGE_IN_REGION: u64 = PageSize::M2.bytes() - PageSize::K4.bytes();

/// Number of the region of an address.
fn region(va: u64) -> u64 {
    va >> REGION_SHIFT
}

fn key(asid: Asid, region: u64) -> u64 {
    u64::from(asid.0) << 48 | region
}

const _: () = assert!(REGION_BITS < 48);

/// A table entry: one reservation.
#[derive(Clone, Copy, Default, Debug)]
struct Reservation {
    /// Its first byte.
    base: u64,
    /// Cycle from which the entry is ready.
    ready: Cycle,
}

impl EngineKind for SpecTlbSpec {
    fn check(&self) -> Result<(), Error> {
        let SpecTlbSpec {
            entries,
            ways,
            latency,
            ..
        } = *self;
        const MOST: u32 = 1 << 20;
        if entries == 0 || entries > MOST {
            return Err(Error::key(
                "entries",
                format!("is {entries}; expected 1 to {MOST}"),
            ));
        }
        if ways == 0 || ways > 1 << 16 || !entries.is_multiple_of(ways) {
            return Err(Error::key(
                "ways",
                text![
                    format!("is {ways}; expected a divisor of "),
                    Part::key("entries"),
                    format!(" ({entries}), at most 65536")
                ],
            ));
        }
        if latency > MAX_LATENCY {
            return Err(Error::key(
                "latency",
                format!("is {latency}; expected at most {MAX_LATENCY} cycles"),
            ));
        }
        Ok(())
    }

    fn build(&self, _frequency_ghz: f64) -> Box<dyn Engine> {
        let (entries, ways) = (self.entries as usize, self.ways as usize);
        Box::new(SpecTlb {
            latency: self.latency,
            detect: self.detect,
            reservations: SetAssoc::new(entries / ways, ways),
            guessed: None,
            stats: SpecTlbStats::default(),
        })
    }

    fn array(&self) -> Option<EngineArray> {
        Some(EngineArray {
            name: NAME,
            entries: self.entries,
            ways: self.ways,
            lookups: &["lookups", "merged_lookups"],
            fills: &["fills"],
        })
    }
}

const NAME: &str = "spectlb";

/// The table, and the last guess.
struct SpecTlb {
    latency: Cycle,
    detect: Detect,
    reservations: SetAssoc<Reservation>,
    /// Guess for the miss whose walk is under way.
    guessed: Option<PhysAddr>,
    stats: SpecTlbStats,
}

impl SpecTlb {
    /// First byte of the reservation in which the page of `va` lies, as far as the walk shows.
    fn reservation(&self, va: VirtAddr, walked: &Walked) -> Option<u64> {
        let frame = walked.frame.base.0;
        let in_place = (va.0 ^ frame) & PAGE_IN_REGION == 0;
        let reserved = |flags: Flags| flags.contains(Flags::RESERVED);
        let marked = match self.detect {
            Detect::Offset => true,
            Detect::Flag => {
                reserved(walked.leaf.flags)
                    && walked.guest.is_none_or(|guest| reserved(guest.flags))
            }
        };
        (walked.size == PageSize::K4 && in_place && marked)
            .then_some(frame & !(PageSize::M2.bytes() - 1))
    }

    fn fill(&mut self, region: u64, key: u64, new: Reservation) {
        self.stats.fills += 1;
        let old = self.reservations.insert(region, key, new);
        self.stats.evictions += u64::from(old.is_some_and(|(k, _)| k != key));
    }
}

impl Engine for SpecTlb {
    fn latency(&self) -> Cycle {
        self.latency
    }

    fn makes(&self, what: What) -> bool {
        what == What::Data
    }

    fn guess(&mut self, miss: &Miss, _: &Seen<'_>) -> Guesses {
        let region = region(miss.va.0);
        let found = self.reservations.lookup(region, key(miss.asid, region));
        let offset = miss.va.0 & (PageSize::M2.bytes() - 1);
        let guess = found
            .filter(|r| r.ready <= miss.at)
            .map(|r| PhysAddr(r.base | offset));
        let hit = u64::from(guess.is_some());
        let s = &mut self.stats;
        if miss.merges {
            s.merged_lookups += 1;
            s.merged_hits += hit;
        } else {
            s.lookups += 1;
            s.hits += hit;
            self.guessed = guess;
        }
        let what = What::Data;
        guess
            .into_iter()
            .map(|at| Guess { at, what, after: 0 })
            .collect()
    }

    fn learn(&mut self, miss: &Miss, walked: &Walked, end: Cycle) {
        let guessed = self.guessed.take();
        if guessed == Some(walked.pa(miss.va)) {
            return;
        }
        self.stats.mispredictions += u64::from(guessed.is_some());
        let region = region(miss.va.0);
        let key = key(miss.asid, region);
        let Some(base) = self.reservation(miss.va, walked) else {
            if guessed.is_some() {
                self.reservations.remove(region, key);
            }
            return;
        };
        match self.reservations.lookup(region, key) {
            // Already on its way from an earlier walk: the first of both to end makes it ready.
            Some(r) if r.base == base => r.ready = r.ready.min(end),
            _ => self.fill(region, key, Reservation { base, ready: end }),
        }
    }

    fn invalidate(&mut self, what: &Invalidation) {
        let (asid, first, last) = what.span();
        let (first, last) = (region(first.0), region(last.0));
        let mut dropped = 0;
        if first == last {
            let gone = self.reservations.remove(first, key(asid, first));
            dropped = u64::from(gone.is_some());
        } else {
            let (first, last) = (key(asid, first), key(asid, last));
            self.reservations.retain(|key, _| {
                let covered = (first..=last).contains(&key);
                dropped += u64::from(covered);
                !covered
            });
        }
        self.stats.invalidated += dropped;
    }

    fn report(&self, path: &str, tree: &mut Tree) {
        let misses = self.stats.lookups - self.stats.hits;
        let stats = SpecTlbStats {
            misses,
            ..self.stats
        };
        tree.add(&format!("{path}.{NAME}"), &stats);
    }
}
