//! The MMU of one core: translates a virtual address and returns the cycle at which the result is
//! known.
//!
//! [`Mmu::translate`] tries these parts in order. The first that has the translation ends the
//! request.
//!
//! 1. The filter (this file): the page of the last access on this side, data or instructions.
//! 2. The first-level TLB (`look_up` in `miss.rs`).
//! 3. An outstanding walk whose 4 KB page both levels already hold in an entry that is not ready:
//!    the request merges with that walk (`merge` in `merge.rs`).
//! 4. The second-level TLB (`second_level` in `miss.rs`).
//! 5. A walk MSHR of the same 4 KB page: the request merges with that walk (`merge` in `merge.rs`).
//! 6. The translation sources behind the TLBs (`sources.rs` and `crate::source`), in their order:
//!    the prefetch buffer, the STB, and those of the design. Sources beside a TLB are asked with it.
//! 7. A page walk (`walk_from` in `miss.rs`): a speculation engine, if there is one, guesses first
//!    (`guess.rs`). The walk then waits for a free walker and reads the page table (`crate::walk`).
//!
//! If the walk finds the page, `finish` fills both levels and allocates a walk MSHR, with which
//! later misses merge. Otherwise the request ends in a [`Fault`], which the kernel serves before
//! the access is tried again.
//!
//! Functional warming takes the same path without time (`warm.rs`), unless it is filtered
//! (`filtered_warming.rs`). `forget.rs` applies invalidations. A perfect MMU (`perfect.rs`)
//! translates at once.

mod background;
mod filtered_warming;
mod forget;
mod guess;
mod merge;
mod miss;
mod perfect;
mod prefetch;
mod sources;
mod stlt;
mod warm;

use std::collections::{BTreeMap, HashSet};

use pagewalk_memory::{Below, Level, Private};
use pagewalk_stats::{Definition, Histogram, Tree, histogram};
use pagewalk_structures::{Occupancy, StaleOutcomes, Tiers};
use pagewalk_tables::{View, WalkCacheKind, WalkCacheSet};
use pagewalk_units::{Access, Asid, Cycle, Error, GuestPhysAddr, PageSize, PhysAddr, VirtAddr};

use self::filtered_warming::FilteredWarming;
use self::prefetch::Prefetching;
use self::sources::Slot;
use self::stlt::StltUnit;
pub use self::stlt::{INSERTIONS, StltQuery};
pub use self::warm::Ahead;
use crate::engine::{Engine, Speculation};
use crate::level::TlbLevel;
use crate::mapping::Mapping;
use crate::replacement::HitVisibility;
use crate::source::prefetch_buffer::PrefetchBuffer;
use crate::tlb::{TlbEntry, key};
use crate::walk::{LEVELS, MmuCaches};
use crate::{MmuSpec, WalkRecord};

/// Program counter of an access whose instruction is not known: filtered functional warming keeps
/// the addresses of accesses alone.
pub const NO_PC: u64 = u64::MAX;

/// A translation request.
#[derive(Clone, Copy, Debug)]
pub struct Lookup {
    /// Address space of the address.
    pub asid: Asid,
    /// The address.
    pub va: VirtAddr,
    /// Kind of access.
    pub access: Access,
    /// Program counter of the instruction that accesses the address, or [`NO_PC`].
    pub pc: u64,
    /// Cycle of the request.
    pub now: Cycle,
}

/// The parts of the machine that a translation uses, borrowed for the length of a call.
pub struct WalkContext<'a, B> {
    /// The page tables that a walk reads.
    pub view: &'a View<'a>,
    /// The hashes by which the kernel places frames, if it does. Speculation engines use them.
    pub tiers: Option<&'a Tiers>,
    /// The core's private caches, where the walker's reads enter.
    pub private: &'a mut Private,
    /// The memory system below the private caches.
    pub below: &'a mut B,
}

/// A translated address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translated {
    /// Physical address of the byte.
    pub pa: PhysAddr,
    /// Cycle at which the translation is known. A hit in the L1 TLB costs only the cycles by which
    /// the TLB's latency exceeds that of the L1 cache.
    pub ready: Cycle,
    /// Cycle at which the walk began, or the request if that is later. The walk may be another
    /// request's with which this one merged. Before this cycle the request looked into TLBs
    /// ([`Mmu::tlb_lookup_done`]) and waited for a walker. Equals `ready` if a TLB had the
    /// translation, or a source did.
    pub walk_start: Cycle,
    /// The part of the MMU that had the translation.
    pub from: ServedBy,
}

/// The part of the MMU that had a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedBy {
    /// First-level TLB.
    L1,
    /// Second-level TLB.
    L2,
    /// The translation source of this index: the request's own lookup, or one that it merged with.
    Source(u8),
    /// A page walk: the request's own, or one that it merged with.
    Walk,
}

/// A page fault: the kernel has to act before the access can be translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The address.
    pub va: VirtAddr,
    /// Kind of access.
    pub access: Access,
    /// Cycle at which the hardware detected the fault.
    pub at: Cycle,
    /// The guest-physical address that the host does not back: a fault for the hypervisor, not for
    /// the guest's kernel.
    pub host: Option<GuestPhysAddr>,
}

pagewalk_stats::counters! {
    /// Counters of one core's MMU.
    pub struct MmuStats {
        translations: "translations", "Addresses translated, data and instructions";
        l1d_misses: "translations", "Misses of the first-level data TLB: data translations for which no entry was present or in flight, so that one was fetched. Hardware counters count the same: AMD's L1 DTLB misses (PMCx045, all unit masks: reloads), Intel's DTLB_LOAD_MISSES and DTLB_STORE_MISSES (STLB_HIT and the walks)";
        l1i_misses: "translations", "Misses of the first-level instruction TLB: instruction translations for which no entry was present or in flight, so that one was fetched";
        l1d_waits: "translations", "Data translations that waited for an entry in flight to the first level; not counted as misses";
        l1i_waits: "translations", "Instruction translations that waited for an entry in flight to the first level; not counted as misses";
        l2_hits: "translations", "Misses of the first level that hit in the second level";
        l2_waits: "translations", "Misses of the first level that merged with a walk of the same 4 KB page or with a lookup of the in-memory TLB; not counted as misses of the second level";
        walks: "walks", "Page walks, including those that end in a page fault";
        walks_merged: "translations", "Translations that merged with a walk of the same 4 KB page: those of l2_waits, and those that waited for an entry in flight to the first level from a walk";
        walks_merged_fetches: "translations", "Instruction translations among walks_merged";
        walk_cycles: "cycles", "Sum of the walk latencies, from the start in a walker to the outcome";
        walker_wait_cycles: "cycles", "Sum of the times that walks waited for a free walker";
        walk_reads: "reads", "Page-table reads of walks";
        walk_reads_l0d: "reads", "Walk reads served by the data cache in front of the first level";
        walk_reads_l1d: "reads", "Walk reads served by the first-level data cache";
        walk_reads_l2: "reads", "Walk reads served by the second-level cache";
        walk_reads_l3: "reads", "Walk reads served by the third-level cache";
        walk_reads_l4: "reads", "Walk reads served by the fourth-level cache";
        walk_reads_remote: "reads", "Walk reads served by another core's cache";
        walk_reads_memory: "reads", "Walk reads served by DRAM";
        faults: "faults", "Translations that ended in a page fault";
        invalidations: "invalidations", "Invalidations of pages, ranges or address spaces received";
    }
}

pagewalk_stats::counters! {
    /// Counters of one page-walk cache.
    pub struct PwcStats {
        lookups: "lookups", "Lookups in the page-walk cache of this level";
        hits: "lookups", "Lookups that found an entry that was ready";
        fills: "entries", "Entries filled";
    }
}

/// Distribution of the lengths of walks.
const WALK_LATENCY: Definition = histogram!(
    "walk_latency",
    "cycles",
    "Latency of a walk, from its start in a walker to the outcome"
);
/// Distribution of the times that walks wait for a walker.
const WALKER_WAIT: Definition = histogram!(
    "walker_wait",
    "cycles",
    "Time that a walk waited for a free walker, occupied by walks that were requested earlier"
);

/// Number of page-walk caches. Array `k` holds entries of level `k + 2` of a radix table, and
/// tables have at most five levels.
const PWC_ARRAYS: usize = 4;
/// Number of walk MSHRs. If more walks are outstanding, the oldest loses its MSHR, and its page may
/// be walked a second time.
const WALK_MSHRS: usize = 64;
/// Translations that a perfect MMU remembers. This is for the host's speed only.
const REMEMBERED: usize = 1024;
/// An invalidation of more pages than this scans the arrays instead of probing for each page.
const PROBED_PAGES: u64 = 32;

/// The page of the last access, which most accesses hit again. A hit skips the first-level TLB and
/// is only counted: under most replacement policies, another use of the most recently used entry
/// changes nothing. Policies that must see such uses ([`HitVisibility`]) keep the filter empty,
/// always or after a fill.
#[derive(Clone, Copy, Debug)]
struct Filter {
    /// Key of the 4 KB page; `u64::MAX` if the filter is empty.
    page: u64,
    /// Frame of that 4 KB page.
    frame: u64,
    ready: Cycle,
    writable: bool,
    /// Index of the first-level array that holds the page.
    array: u32,
    /// Hits that are not yet added to the array's counter.
    hits: u64,
}

const NO_PAGE: Filter = Filter {
    page: u64::MAX,
    frame: 0,
    ready: 0,
    writable: false,
    array: 0,
    hits: 0,
};

/// A walk MSHR: a walk that may still be under way, with which later misses to its page merge.
#[derive(Clone, Copy, Debug)]
struct WalkMshr {
    requested: Cycle,
    /// When the last TLB missed, and the sources that are asked before a walk.
    tlb_lookup_done: Cycle,
    /// When a walker was free.
    walk_start: Cycle,
    end: Cycle,
    mapping: Mapping,
    /// True if the walk read an entry from DRAM.
    memory: bool,
    /// The part that had the translation: the walk, or a source's lookup in place of one.
    from: ServedBy,
}

/// Pages whose next walk takes longer.
#[derive(Default)]
struct FirstTouches {
    cycles: Cycle,
    /// Keys of the pages.
    pages: HashSet<u64>,
}

/// The MMU of one core.
pub struct Mmu {
    /// Data, instructions.
    filter: [Filter; 2],
    /// All ones on a side whose first-level TLB must see every use, else 0. The mask is set in the
    /// filter's key, which then matches no page.
    unfiltered: [u64; 2],
    /// As `unfiltered`, for a side whose first-level TLB must see the first use after a fill. Used
    /// only after fills.
    unfiltered_fills: [u64; 2],
    /// Cycles by which the latency of the first-level TLB exceeds that of the L1 cache.
    exceeds: [Cycle; 2],
    perfect: bool,
    /// First level: data, instructions.
    l1: [TlbLevel; 2],
    /// Second level. The second element is a separate TLB for instructions, if there is one.
    l2: [Option<Box<TlbLevel>>; 2],
    caches: MmuCaches,
    /// Kind of walk caches that the page tables use.
    uses: WalkCacheKind,
    /// The same for the host's page tables, if the core runs guests.
    host_uses: Option<WalkCacheKind>,
    /// The walkers. The end of a walk is unknown when it starts, so a walk first takes a walker,
    /// and sets the release time once its end is known.
    walkers: Occupancy,
    /// Keys of the pages of walk MSHRs. `mshr_prints`: a one-byte hash of each, for the search.
    mshr_keys: Box<[u64; WALK_MSHRS]>,
    mshr_prints: [[u8; 16]; WALK_MSHRS / 16],
    walk_mshrs: Box<[WalkMshr; WALK_MSHRS]>,
    /// Index of the oldest walk MSHR, which is replaced next.
    next_mshr: usize,
    /// End of the latest walk. Functional warming uses it as the current time.
    latest: Cycle,
    /// Translations that a perfect MMU remembers: key of the page, and frame with bit 0 = writable.
    remembered: Box<[(u64, u64)]>,
    /// The speculation engine, if there is one.
    speculation: Option<Box<Speculation>>,
    /// Pages whose first walk takes longer, if there can be any.
    first_touches: Option<Box<FirstTouches>>,
    /// State of filtered functional warming; `warms_filtered` is true while it is on.
    filtered: Option<Box<FilteredWarming>>,
    warms_filtered: bool,
    /// Translation sources, in the order in which they are asked.
    sources: Vec<Slot>,
    /// True if one of them is asked beside a TLB.
    asks_beside: bool,
    /// True if one of them sees evictions of the second level.
    sees_evictions: bool,
    /// Set if the machine has an STLT.
    stlt: Option<Box<StltUnit>>,
    /// Set if the machine has a TLB prefetcher.
    prefetching: Option<Box<Prefetching>>,
    /// Cycles for which the latest request that walked or merged was delayed by sources that are
    /// asked before a walk: data, instructions.
    source_cycles: [Cycle; 2],
    core: u8,
    perfect_translations: u64,
    /// Reads of walks, by the level of the memory system that served them.
    walk_reads: [u64; LEVELS],
    /// True if the last translation's walk read an entry from DRAM. The walk may be one that it
    /// merged with.
    walk_read_memory: bool,
    stats: MmuStats,
    walk_latency: Histogram,
    /// Walker waits that are not zero.
    walker_wait: Histogram,
    records: Option<Vec<WalkRecord>>,
}

#[inline]
fn side(access: Access) -> usize {
    usize::from(access == Access::Fetch)
}

impl Mmu {
    /// Creates an empty MMU.
    ///
    /// # Errors
    /// An impossible configuration. The message names the key.
    pub fn new(spec: &MmuSpec, core: u8) -> Result<Self, Error> {
        Mmu::seeded(spec, core, 0)
    }

    /// Creates an empty MMU for a run with `seed`.
    ///
    /// # Errors
    /// As [`Mmu::new`].
    pub fn seeded(spec: &MmuSpec, core: u8, seed: u64) -> Result<Self, Error> {
        spec.check()?;
        let level = |arrays: &BTreeMap<_, _>, name: &str| {
            TlbLevel::new(arrays, seed, &format!("core.{core}.mmu.{name}"))
        };
        let second = |arrays: &BTreeMap<_, _>, name: &str| {
            (!arrays.is_empty()).then(|| Box::new(level(arrays, name)))
        };
        let none = WalkMshr {
            requested: 0,
            tlb_lookup_done: 0,
            walk_start: 0,
            end: 0,
            mapping: Mapping {
                frame: 0,
                size: PageSize::K4,
                writable: false,
            },
            memory: false,
            from: ServedBy::Walk,
        };
        let remembered = if spec.perfect { REMEMBERED } else { 0 };
        let l1 = [level(&spec.l1d, "l1d"), level(&spec.l1i, "l1i")];
        // All ones on the sides whose policy needs this visibility of hits.
        let sides = |much: HitVisibility| {
            [0, 1].map(|s| u64::from(spec.perfect || l1[s].hit_visibility() < much).wrapping_sub(1))
        };
        let mut mmu = Mmu {
            filter: [NO_PAGE; 2],
            unfiltered: sides(HitVisibility::EveryUse),
            unfiltered_fills: sides(HitVisibility::FirstUse),
            exceeds: [0; 2],
            perfect: spec.perfect,
            l1,
            l2: [second(&spec.l2, "l2"), second(&spec.l2i, "l2i")],
            caches: MmuCaches::new(spec, PWC_ARRAYS),
            uses: WalkCacheKind::default(),
            host_uses: None,
            walkers: Occupancy::new(spec.walkers as usize),
            mshr_keys: Box::new([u64::MAX; WALK_MSHRS]),
            mshr_prints: [[0; 16]; WALK_MSHRS / 16],
            walk_mshrs: Box::new([none; WALK_MSHRS]),
            next_mshr: 0,
            latest: 0,
            remembered: vec![(u64::MAX, 0); remembered].into(),
            speculation: None,
            first_touches: None,
            filtered: None,
            warms_filtered: false,
            sources: Vec::new(),
            asks_beside: false,
            sees_evictions: false,
            stlt: None,
            prefetching: None,
            source_cycles: [0; 2],
            core,
            perfect_translations: 0,
            walk_reads: [0; LEVELS],
            walk_read_memory: false,
            stats: MmuStats::default(),
            walk_latency: Histogram::default(),
            walker_wait: Histogram::default(),
            records: None,
        };
        if let Some(prefetcher) = spec.prefetcher.as_ref().filter(|_| !spec.perfect) {
            let capacity = prefetcher.buffer() as usize;
            let buffer =
                (capacity > 0).then(|| mmu.add_buffer(Box::new(PrefetchBuffer::new(capacity))));
            mmu.prefetching = Some(Box::new(Prefetching::new(prefetcher, buffer)));
        }
        Ok(mmu)
    }

    /// Sets the kind of walk caches that the page tables use. Only these are reported.
    #[must_use]
    pub fn serving(mut self, caches: WalkCacheKind) -> Self {
        self.uses = caches;
        self
    }

    /// Prepares for guests, on a host whose page tables use walk caches of kind `caches`. The
    /// nested TLB and the host's walk caches are then reported, too.
    #[must_use]
    pub fn nested(mut self, caches: WalkCacheKind) -> Self {
        self.host_uses = Some(caches);
        self.caches.prepare_nesting();
        self
    }

    /// Lets the next walk for the page of `va` take so many cycles longer.
    pub fn delay_next_walk(&mut self, asid: Asid, va: VirtAddr, cycles: Cycle) {
        let first = self.first_touches.get_or_insert_default();
        first.cycles = cycles;
        first.pages.insert(key(asid, PageSize::K4, va.0));
    }

    /// Adds a speculation engine, whose guesses are fetched into the core's caches.
    #[must_use]
    pub fn with_engine(mut self, engine: Box<dyn Engine>) -> Self {
        self.speculation = Some(Box::new(Speculation::new(engine)));
        self
    }

    /// Overlaps the lookup of the first-level TLBs with that of an L1 cache of this load-to-use
    /// latency. Only the TLB's cycles beyond it delay an access. A perfect MMU has no lookup.
    pub fn overlap_with_l1(&mut self, load_to_use: Cycle) {
        if self.perfect {
            return;
        }
        for side in 0..2 {
            self.exceeds[side] = self.l1[side].latency.saturating_sub(load_to_use);
        }
    }

    /// Marks the contents of the TLBs and sources as stale after a fast-forward. After filtered
    /// functional warming (`filtered`) only the first level, with the sources beside it, is stale.
    pub fn mark_stale(&mut self, filtered: bool) {
        for s in 0..2 {
            self.settle(s);
            self.filter[s] = NO_PAGE;
        }
        let first = self.l1.iter_mut();
        let second = self.l2.iter_mut().flatten().map(Box::as_mut);
        let levels = first.chain(second.filter(|_| !filtered));
        for array in levels.flat_map(|level| &mut level.arrays) {
            array.mark_stale();
        }
        self.mark_sources_stale(filtered);
    }

    /// Lookups whose outcome is uncertain because of stale contents: first and second level, with
    /// the sources beside them.
    pub fn stale(&self) -> [StaleOutcomes; 2] {
        let sum = |levels: &mut dyn Iterator<Item = &TlbLevel>| {
            let mut sum = StaleOutcomes::default();
            for array in levels.flat_map(|level| &level.arrays) {
                sum += array.stale;
            }
            sum
        };
        let [mut first, mut second, _] = self.stale_sources();
        first += sum(&mut self.l1.iter());
        second += sum(&mut self.l2.iter().flatten().map(Box::as_ref));
        [first, second]
    }

    /// The same, of the sources behind the last level.
    pub fn stale_behind(&self) -> StaleOutcomes {
        self.stale_sources()[2]
    }

    /// True if the walk of the last translation, its own or the one it merged with, read an entry
    /// from DRAM. Meaningless if the last translation took no walk.
    #[inline]
    pub fn walk_read_memory(&self) -> bool {
        self.walk_read_memory
    }

    /// Translates an address. The part up to the filter is inlined into the caller.
    #[inline(always)]
    pub fn translate<B: Below>(
        &mut self,
        lookup: Lookup,
        mut context: WalkContext<'_, B>,
    ) -> Result<Translated, Fault> {
        let s = side(lookup.access);
        let f = &mut self.filter[s];
        if f.page == key(lookup.asid, PageSize::K4, lookup.va.0)
            && f.ready <= lookup.now
            && (lookup.access != Access::Write || f.writable)
        {
            f.hits += 1;
            let at = lookup.now + self.exceeds[s];
            return Ok(Translated {
                pa: PhysAddr(f.frame | lookup.va.0 & 0xfff),
                ready: at,
                walk_start: at,
                from: ServedBy::L1,
            });
        }
        self.look_up::<true, B>(&lookup, &mut context)
    }

    /// Cycles from a request until the last TLB has missed and a walker is requested. With sources
    /// that are asked before a walk, this is the value of the latest request of this side that
    /// walked or merged.
    #[inline]
    pub fn tlb_lookup_done(&self, access: Access) -> Cycle {
        let s = side(access);
        let second = self.l2[self.second(s)].as_ref();
        second.map_or(0, |level| level.latency) + self.source_cycles[s]
    }

    /// [`MmuStats::l1d_misses`] so far.
    pub fn data_misses(&self) -> u64 {
        self.l1[0].misses
    }

    /// [`MmuStats::walks`] so far.
    pub fn walks(&self) -> u64 {
        self.stats.walks
    }

    /// Adds the filter's hits to the counters of their array.
    #[inline]
    fn settle(&mut self, s: usize) {
        let f = &mut self.filter[s];
        let hits = std::mem::take(&mut f.hits);
        if self.perfect {
            self.perfect_translations += hits;
        } else {
            self.l1[s].lookups += hits;
            self.l1[s].arrays[f.array as usize].hits += hits;
        }
    }

    /// Sets the filter of side `s` to the 4 KB page with key `page`.
    #[inline]
    fn set_filter(&mut self, s: usize, page: u64, pa: PhysAddr, e: TlbEntry, array: usize) {
        self.filter[s] = Filter {
            page: page | self.unfiltered[s],
            frame: pa.0 & !0xfff,
            ready: e.ready,
            writable: e.writable(),
            array: array as u32,
            hits: 0,
        };
    }

    /// Starts recording every walk, or stops and drops the records.
    pub fn record_walks(&mut self, on: bool) {
        self.records = on.then(Vec::new);
    }

    /// Returns the walks recorded since the last call, in program order.
    pub fn take_walk_records(&mut self) -> Vec<WalkRecord> {
        self.records
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Counters of the MMU itself.
    pub fn stats(&self) -> MmuStats {
        let [l1d_misses, l1i_misses] = [0, 1].map(|s| self.l1[s].misses);
        let [l1d_waits, l1i_waits] = [0, 1].map(|s| self.l1[s].waits());
        let l1: u64 = self.l1.iter().map(|l| l.lookups).sum();
        let s = &self.stats;
        let reads = |level: Level| self.walk_reads[level as usize];
        MmuStats {
            translations: l1
                + self.perfect_translations
                + self.filter.iter().map(|f| f.hits).sum::<u64>(),
            l1d_misses,
            l1i_misses,
            l1d_waits,
            l1i_waits,
            walk_reads: self.walk_reads.iter().sum(),
            walk_reads_l0d: reads(Level::L0),
            walk_reads_l1d: reads(Level::L1),
            walk_reads_l2: reads(Level::L2),
            walk_reads_l3: reads(Level::L3),
            walk_reads_l4: reads(Level::L4),
            walk_reads_remote: reads(Level::Remote),
            walk_reads_memory: reads(Level::Memory),
            ..*s
        }
    }

    /// Translations that no TLB of the core had: walks, and hits of the sources behind the TLBs.
    pub fn misses(&self) -> u64 {
        self.stats.walks + self.walks_avoided()
    }

    /// Restarts the maxima that [`Mmu::report`] reports.
    pub fn mark(&mut self) {
        self.walk_latency.mark();
        self.walker_wait.mark();
    }

    /// Adds the MMU's counters at `path`, and those of its arrays below.
    pub fn report(&self, path: &str, tree: &mut Tree) {
        tree.add(path, &self.stats());
        tree.add_values(path, &WALK_LATENCY, self.walk_latency.distribution());
        let mut waits = self.walker_wait.distribution();
        waits.add(0, self.stats.walks - waits.count());
        tree.add_values(path, &WALKER_WAIT, waits);
        for (s, name) in ["l1d", "l1i"].into_iter().enumerate() {
            let f = &self.filter[s];
            let extra = (!self.perfect).then_some((f.array as usize, f.hits));
            self.l1[s].report(&format!("{path}.{name}"), extra, tree);
        }
        for (s, name) in ["l2", "l2i"].into_iter().enumerate() {
            if let Some(level) = &self.l2[s] {
                level.report(&format!("{path}.{name}"), None, tree);
            }
        }
        report_caches(self.uses, &self.caches.pwc, path, tree);
        if let (Some(nesting), Some(uses)) = (&self.caches.nesting, self.host_uses) {
            let path = format!("{path}.nested");
            tree.add(&path, &nesting.stats);
            report_caches(uses, &nesting.pwc, &path, tree);
        }
        self.report_sources(path, tree);
        self.report_stlt(path, tree);
        self.report_prefetching(path, tree);
        if let Some(speculation) = &self.speculation {
            speculation.report(&format!("{path}.engine"), tree);
        }
    }
}

/// Adds the counters of the walk caches of kind `uses`.
fn report_caches(uses: WalkCacheKind, pwc: &WalkCacheSet, path: &str, tree: &mut Tree) {
    match uses {
        WalkCacheKind::Levels => {
            for (i, &[lookups, hits, fills]) in pwc.counts.iter().enumerate() {
                let stats = PwcStats {
                    lookups,
                    hits,
                    fills,
                };
                tree.add(&format!("{path}.pwc.{}", i + 2), &stats);
            }
        }
        WalkCacheKind::Cuckoo => {
            tree.add(&format!("{path}.cuckoo"), pwc.cuckoo_stats());
            for (name, counts) in pwc.cwc_stats() {
                tree.add(&format!("{path}.cwc.{name}"), counts);
            }
        }
        WalkCacheKind::Nothing => {}
    }
}

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
#[cfg(test)]
mod filter_test;
#[cfg(test)]
mod filtered_warming_test;
