//! A coalescing second-level TLB: an entry covers an aligned group of pages that lie in consecutive
//! frames.
//!
//! With `groups = "line"` this is CoLT-SA (Pham, Vaidyanathan, Jaleel and Bhattacharjee, MICRO 2012).
//! The index is shifted, so that the pages of a group share a set. After a walk the hardware sees
//! the line of eight page-table entries, and the run around the walk's page becomes the entry.
//!
//! With `groups = "hint"` these are the contiguous hints of Arm (Architecture Reference Manual, the
//! Contiguous bit). The kernel marks an aligned group of which all pages lie in consecutive and
//! aligned frames with equal rights. One entry then covers the group, and any other page has an
//! entry of its own.

use pagewalk_stats::Tree;
use pagewalk_structures::{StaleArray, StaleOutcomes};
use pagewalk_tables::Invalidation;
use pagewalk_units::{Access, Asid, Cycle, Error, PageSize, PhysAddr, VirtAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::registry::{Built, Context, Reserved, SourceArray, SourceKind};
use super::{Extent, Found, Hit, Place, Ports, Probed, TranslationSource};
use crate::Lookup;

/// Pages that an entry may cover.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Groups {
    /// The run around the walk's page among the page-table entries in its line (CoLT).
    Line,
    /// A group that the kernel has marked as a whole (Arm's contiguous hint).
    Hint,
}

/// A coalescing TLB in place of the second-level array that holds 4 KB pages. It has that array's
/// entries, ways, latency and page sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CoalescedSpec {
    /// Pages of a group: 2, 4, 8 or 16. Default 4 (CoLT, section 4: the index is shifted by two).
    pub pages: u32,
    /// Pages that an entry may cover. Default "line".
    pub groups: Groups,
}

impl Default for CoalescedSpec {
    fn default() -> Self {
        CoalescedSpec {
            pages: 4,
            groups: Groups::Line,
        }
    }
}

/// Bits of a group number in a key: 57-bit addresses in 4 KB pages.
const NUMBER_BITS: u32 = 45;

pagewalk_stats::counters! {
    /// Counters of one core's coalescing TLB.
    pub struct CoalescedStats {
        lookups: "lookups", "Lookups of the array, for translations that missed the first level";
        hits: "lookups", "Lookups that found the translation";
        fills: "entries", "Entries filled or extended after walks";
        pages: "pages", "Sum of the pages that these fills added; the walks alone would have added one each";
        evictions: "entries", "Entries replaced while still valid";
    }
}

impl SourceKind for CoalescedSpec {
    fn check(&self) -> Result<(), Error> {
        if ![2, 4, 8, 16].contains(&self.pages) {
            return Err(Error::key(
                "pages",
                format!("is {}; expected 2, 4, 8 or 16", self.pages),
            ));
        }
        Ok(())
    }

    fn place(&self) -> Place {
        Place::InsteadOfL2
    }

    fn array(&self, context: &Context<'_>) -> Option<SourceArray> {
        let replaced = context.small_l2()?;
        Some(SourceArray {
            name: NAME,
            entries: replaced.entries,
            ways: replaced.ways,
            shared: false,
        })
    }

    fn build(&self, context: &Context<'_>, _: &Reserved) -> Built {
        let Some(array) = context.small_l2() else {
            return Built::default();
        };
        let sets = (array.entries / array.ways) as usize;
        Built::separate(context, || Coalesced {
            groups: self.groups,
            pages: u64::from(self.pages),
            sizes: array.page_sizes.clone(),
            latency: array.latency,
            array: StaleArray::new(sets, array.ways as usize),
            stats: CoalescedStats::default(),
            stale: StaleOutcomes::default(),
        })
    }
}

const NAME: &str = "coalesced";

/// An entry: the pages of an aligned group that it covers.
#[derive(Clone, Copy, Default, Debug)]
struct Group {
    /// Frame of the group's first page, present or not, if the run is extended to it.
    base: u64,
    /// Bit `n`: page `n` is present.
    present: u32,
    /// The same before the last fill, which is ready at `ready`.
    settled: u32,
    ready: Cycle,
    writable: bool,
}

/// A core's array.
struct Coalesced {
    groups: Groups,
    /// Pages of a group.
    pages: u64,
    /// Page sizes that it holds.
    sizes: Vec<PageSize>,
    latency: Cycle,
    array: StaleArray<Group>,
    stats: CoalescedStats,
    stale: StaleOutcomes,
}

impl Coalesced {
    /// Number of the group of `va`, and of the page in it.
    fn split(&self, size: PageSize, va: VirtAddr) -> (u64, u64) {
        let number = (va.0 >> size.shift()) & ((1 << NUMBER_BITS) - 1);
        (number / self.pages, number % self.pages)
    }

    fn key(asid: Asid, size: PageSize, number: u64) -> u64 {
        u64::from(asid.0) << 48 | (size as u64) << 46 | number
    }

    /// The pages that a fill covers: the run of the line, or the group that has the hint.
    fn run(&self, found: &Found<'_>) -> Extent {
        match self.groups {
            Groups::Line => found.run(),
            Groups::Hint => found.hinted(self.pages),
        }
    }
}

impl TranslationSource for Coalesced {
    fn name(&self) -> &'static str {
        NAME
    }

    fn probe(&mut self, lookup: &Lookup, ports: &mut Ports<'_>) -> Probed {
        self.stats.lookups += ports.count();
        let at = ports.after(lookup.now, self.latency);
        for &size in &self.sizes {
            let (number, page) = self.split(size, lookup.va);
            let key = Self::key(lookup.asid, size, number);
            let piece = |group: &Group| {
                let ready = ports.is_ready(group.ready, lookup.now);
                let visible = if ready { group.present } else { group.settled };
                let may = group.writable || lookup.access != Access::Write;
                let base = VirtAddr(lookup.va.0 & !(size.bytes() - 1));
                let frame = PhysAddr(group.base.wrapping_add(page << size.shift()));
                let extent = Extent::page(base, size, frame, group.writable);
                (visible & 1 << page != 0 && may).then_some(extent)
            };
            let hit = (self.array).lookup(number, key, piece, &mut self.stale);
            let Some(extent) = hit else {
                continue;
            };
            self.stats.hits += ports.count();
            return Probed::Hit(Hit {
                extent,
                largest: size,
                at,
                memory: false,
            });
        }
        Probed::Miss { at }
    }

    fn fill(&mut self, found: &Found<'_>, ports: &mut Ports<'_>) {
        let &Lookup { asid, va, .. } = found.lookup;
        let run = self.run(found);
        // A page of a size that is not held is held in pieces of the next smaller one.
        let sizes = self.sizes.iter().copied();
        let Some(size) = sizes.filter(|&s| s <= found.walked.size).max() else {
            return;
        };
        let (number, page) = self.split(size, va);
        let first = va.0 & !(self.pages * size.bytes() - 1);
        let held = |n: &u64| run.covers(VirtAddr(first + n * size.bytes()));
        let present = (0..self.pages)
            .filter(held)
            .fold(0, |bits, n| bits | 1 << n);
        let frame = run.pa(VirtAddr(va.0 & !(size.bytes() - 1))).0;
        let mut group = Group {
            base: frame.wrapping_sub(page << size.shift()),
            present,
            settled: 0,
            ready: found.at,
            writable: run.writable,
        };
        let key = Self::key(asid, size, number);
        let mut added = present.count_ones();
        if let Some(old) = self.array.peek(number, key)
            && (old.base, old.writable) == (group.base, group.writable)
        {
            group.settled = old.present;
            group.present |= old.present;
            added = (group.present & !old.present).count_ones();
        }
        self.stats.fills += ports.count();
        self.stats.pages += u64::from(added) * ports.count();
        let old = (self.array).insert(number, key, group, &mut self.stale);
        let evicted = old.is_some_and(|(old, _)| old != key);
        self.stats.evictions += u64::from(evicted) * ports.count();
    }

    fn invalidate(&mut self, what: &Invalidation) {
        let (asid, first, last) = what.span();
        for &size in &self.sizes {
            let (from, to) = (self.split(size, first).0, self.split(size, last).0);
            let keys = Self::key(asid, size, from)..=Self::key(asid, size, to);
            if to - from < self.array.entries() as u64 / 16 {
                for number in from..=to {
                    self.array.remove(number, Self::key(asid, size, number));
                }
            } else {
                self.array.retain(|key, _| !keys.contains(&key));
            }
        }
    }

    fn mark_stale(&mut self) {
        self.array.mark_stale();
    }

    fn stale(&self) -> StaleOutcomes {
        self.stale
    }

    fn report(&self, path: &str, tree: &mut Tree) {
        tree.add(path, &self.stats);
    }
}
