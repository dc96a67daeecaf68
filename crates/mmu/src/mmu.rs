//! The MMU of one core: from a virtual address to a physical one, in time.

mod auxiliary;
mod filtered_warming;
mod forget;
mod guess;
mod in_memory;
mod merge;
mod miss;
mod perfect;
mod prefetch;
mod stlt;
mod warm;

use std::collections::BTreeMap;

use pagewalk_memory::{Below, Level, Private};
use pagewalk_stats::{Definition, Histogram, Tree, histogram};
use pagewalk_structures::{Occupancy, StaleOutcomes, Tiers};
use pagewalk_tables::{InMemoryTlbSpec, PomTlb, View, WalkCacheKind, WalkCacheSet};
use pagewalk_units::{Access, Asid, Cycle, Error, GuestPhysAddr, PageSize, PhysAddr, VirtAddr};

pub use self::auxiliary::{AuxiliaryBuffer, l2_tlb_misses};
use self::filtered_warming::FilteredWarming;
use self::in_memory::InMemory;
pub use self::in_memory::InMemoryStats;
use self::prefetch::Prefetching;
use self::stlt::StltUnit;
pub use self::stlt::{INSERTIONS, STB_ENTRIES, StltQuery};
pub use self::warm::Ahead;
use crate::engine::{Engine, Speculation};
use crate::level::TlbLevel;
use crate::mapping::Mapping;
use crate::replacement::HitVisibility;
use crate::tlb::{TlbEntry, key};
use crate::walk::{LEVELS, MmuCaches};
use crate::{MmuSpec, WalkRecord};

/// What is to be translated, for whom and when.
#[derive(Clone, Copy, Debug)]
pub struct Lookup {
    /// Whose address it is.
    pub asid: Asid,
    /// The address.
    pub va: VirtAddr,
    /// What for.
    pub access: Access,
    /// The instruction that asks.
    pub pc: u64,
    /// When it asks.
    pub now: Cycle,
}

/// What a walk needs of the machine, lent for the length of a call.
pub struct WalkContext<'a, B> {
    /// The tables that it reads.
    pub view: &'a View<'a>,
    /// By which hashes the kernel places frames, if it does: for speculation engines.
    pub tiers: Option<&'a Tiers>,
    /// The core's caches, where its reads enter.
    pub private: &'a mut Private,
    /// The memory below them.
    pub below: &'a mut B,
    /// The TLB that is a part of memory, of machines that have one.
    pub in_memory_tlb: Option<&'a mut PomTlb>,
}

/// A translated address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translated {
    /// Where the byte lies.
    pub pa: PhysAddr,
    /// When the translation is known. For an L1 TLB hit the time of asking, as far
    /// as the lookup is hidden by that of the L1 cache, and what it exceeds that by.
    pub ready: Cycle,
    /// When the walk began, its own or the one of another that it waited for, or
    /// the request where that is later. Until then it looked into TLBs
    /// ([`Mmu::tlb_lookup_done`]) and waited for a walker. Of a TLB's answer, one in memory
    /// included, `at`.
    pub walk_start: Cycle,
    /// Which part of the MMU had it.
    pub from: TranslationSource,
}

/// Where a translation came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TranslationSource {
    /// First-level TLB.
    L1,
    /// Second-level TLB.
    L2,
    /// The buffer of translations that a program's questions fill.
    Stb,
    /// The buffer of translations that were fetched unasked.
    Prefetched,
    /// The in-memory TLB, its own lookup or one that it waited for.
    InMemory,
    /// A walk, its own or one that it waited for.
    Walk,
}

/// A translation that only the kernel can make possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The address.
    pub va: VirtAddr,
    /// What was wanted.
    pub access: Access,
    /// When the hardware found out.
    pub at: Cycle,
    /// The host has nothing behind this guest-physical address: a fault of the
    /// hypervisor, not of the guest's kernel.
    pub host: Option<GuestPhysAddr>,
}

pagewalk_stats::counters! {
    /// What the MMU of one core counted.
    pub struct MmuStats {
        translations: "translations", "Addresses translated, data and instructions";
        l1d_misses: "translations", "Data translations for which an entry was fetched into the first level: none was there, or on its way. Counters of hardware count these: AMD's L1 DTLB misses (PMCx045, all unit masks: reloads), Intel's DTLB_LOAD_MISSES and DTLB_STORE_MISSES (STLB_HIT and the walks)";
        l1i_misses: "translations", "Instruction translations for which an entry was fetched into the first level: none was there, or on its way";
        l1d_waits: "translations", "Data translations that waited for an entry which was on its way to the first level: no misses of their own";
        l1i_waits: "translations", "Instruction translations that waited for an entry which was on its way to the first level: no misses of their own";
        l2_hits: "translations", "Misses of the first level that the second had";
        l2_waits: "translations", "Misses of the first level that waited for a walk under way to the same 4 KB page, or for a lookup of the in-memory TLB: no misses of the second level of their own";
        walks: "walks", "Page walks, those that ended in a fault among them";
        walks_merged: "translations", "Translations that waited for a walk to the same 4 KB page instead of walking: those of l2_waits, and those that waited for an entry on its way to the first level from a walk";
        walks_merged_fetches: "translations", "Those of them that were of instructions";
        walk_cycles: "cycles", "Sum of the walks' lengths, from a walker's start to the outcome";
        walker_wait_cycles: "cycles", "Sum of the times that walks waited for a walker";
        walk_reads: "reads", "Reads that walks made";
        walk_reads_l1d: "reads", "Walk reads served by the first-level data cache";
        walk_reads_l2: "reads", "Walk reads served by the second-level cache";
        walk_reads_l3: "reads", "Walk reads served by the shared cache";
        walk_reads_remote: "reads", "Walk reads served by another core's cache";
        walk_reads_memory: "reads", "Walk reads served by DRAM";
        faults: "faults", "Translations that ended in a page fault";
        invalidations: "invalidations", "Invalidations of pages, ranges or address spaces taken";
    }
}

pagewalk_stats::counters! {
    /// What one page-walk cache counted.
    pub struct PwcStats {
        lookups: "lookups", "Lookups in the page-walk cache of this level";
        hits: "lookups", "Lookups that found an entry that was ready";
        fills: "entries", "Entries put in";
    }
}

/// How long walks take.
const WALK_LATENCY: Definition = histogram!(
    "walk_latency",
    "cycles",
    "Length of a walk, from a walker's start to the outcome"
);
/// How long they wait.
const WALKER_WAIT: Definition = histogram!(
    "walker_wait",
    "cycles",
    "Time that a walk waited for a walker: for those asked for before it and still under way"
);

/// Arrays of walk caches that are kept: array `k` holds entries of level `k + 2`
/// of a radix table, and five levels are the most there are.
const PWC_ARRAYS: usize = 4;
/// Walks remembered for merging. Where a window has more outstanding, a page of the
/// oldest is walked to again.
const WALK_MSHRS: usize = 64;
/// Translations that a perfect MMU remembers, only to be fast on the host.
const REMEMBERED: usize = 1024;
/// Pages of a range beyond which arrays are scanned instead of probed.
const PROBED_PAGES: u64 = 32;

/// The page of the last access: most accesses hit it again. Under most replacement policies
/// one more use of the entry used last changes nothing, so a hit here is a count and no more.
/// Where it does ([`HitVisibility`]) it stays empty, after a fill or always.
#[derive(Clone, Copy, Debug)]
struct Filter {
    /// Key of the 4 KB page; `u64::MAX`: none.
    page: u64,
    /// Frame of that 4 KB page.
    frame: u64,
    ready: Cycle,
    writable: bool,
    /// Array of the first level that holds it.
    array: u32,
    /// Hits not yet handed to the array's count.
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

/// A walk that may not have ended yet.
#[derive(Clone, Copy, Debug)]
struct WalkMshr {
    requested: Cycle,
    /// When all TLBs had said that they do not have it, one in memory included.
    tlb_lookup_done: Cycle,
    /// When it got a walker.
    walk_start: Cycle,
    end: Cycle,
    mapping: Mapping,
    /// Whether it read something from DRAM.
    memory: bool,
    /// False: the in-memory TLB has the answer, and nothing is walked.
    walked: bool,
}

/// The MMU of one core.
pub struct Mmu {
    /// Data, instructions.
    filter: [Filter; 2],
    /// All ones on a side whose first level has to see each use: no page's key then matches.
    unfiltered: [u64; 2],
    /// The same of sides that have to see the first use after a fill.
    unfiltered_fills: [u64; 2],
    /// Cycles by which a first-level lookup outlasts the cache's.
    exceeds: [Cycle; 2],
    perfect: bool,
    /// Data, instructions.
    l1: [TlbLevel; 2],
    /// Second level; the second entry is the instructions' own, if they have one.
    l2: [Option<Box<TlbLevel>>; 2],
    caches: MmuCaches,
    /// Which of the walk caches the tables use.
    uses: WalkCacheKind,
    host_uses: Option<WalkCacheKind>,
    /// A walk's length is unknown when it starts: admitted first, held when its end is known.
    walkers: Occupancy,
    mshr_keys: Box<[u64; WALK_MSHRS]>,
    mshr_prints: [[u8; 16]; WALK_MSHRS / 16],
    walk_mshrs: Box<[WalkMshr; WALK_MSHRS]>,
    next_mshr: usize,
    /// End of the latest walk: where warming's clock stands.
    latest: Cycle,
    /// Page key, frame with bit 0 = writable: what a perfect MMU was told.
    remembered: Box<[(u64, u64)]>,
    /// Guesses what a walk will find, if there is something that does.
    speculation: Option<Box<Speculation>>,
    /// What stands for it while it is followed, and whether it is.
    filtered: Option<Box<FilteredWarming>>,
    warms_filtered: bool,
    /// Of machines with an in-memory TLB.
    in_memory: Option<Box<InMemory>>,
    /// Of machines whose programs ask an STLT.
    stlt: Option<Box<StltUnit>>,
    /// Of machines that fetch translations unasked.
    prefetching: Option<Box<Prefetching>>,
    /// Data, instructions: for how long the latest request that walked, or waited for a
    /// walk, had the in-memory TLB looked into. 0 without one.
    memory_lookup: [Cycle; 2],
    core: u8,
    perfect_translations: u64,
    /// Reads of walks by the level of the memory system that served them.
    walk_reads: [u64; LEVELS],
    /// Whether the walk that the last translation took or waited for read DRAM.
    walk_read_memory: bool,
    stats: MmuStats,
    walk_latency: Histogram,
    /// Of the walks that had to wait.
    walker_wait: Histogram,
    records: Option<Vec<WalkRecord>>,
}

#[inline]
fn side(access: Access) -> usize {
    usize::from(access == Access::Fetch)
}

impl Mmu {
    /// An empty MMU; refuses what is impossible with a sentence that names the key.
    pub fn new(spec: &MmuSpec, core: u8) -> Result<Self, Error> {
        Mmu::seeded(spec, core, 0)
    }

    /// The same of a run with `seed`.
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
            walked: true,
        };
        let remembered = if spec.perfect { REMEMBERED } else { 0 };
        let l1 = [level(&spec.l1d, "l1d"), level(&spec.l1i, "l1i")];
        // All ones on the sides that have to see so much.
        let sides = |much: HitVisibility| {
            [0, 1].map(|s| u64::from(spec.perfect || l1[s].hit_visibility() < much).wrapping_sub(1))
        };
        Ok(Mmu {
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
            filtered: None,
            warms_filtered: false,
            in_memory: None,
            stlt: None,
            prefetching: (spec.prefetcher.as_ref().filter(|_| !spec.perfect))
                .map(|p| Box::new(Prefetching::new(p))),
            memory_lookup: [0; 2],
            core,
            perfect_translations: 0,
            walk_reads: [0; LEVELS],
            walk_read_memory: false,
            stats: MmuStats::default(),
            walk_latency: Histogram::default(),
            walker_wait: Histogram::default(),
            records: None,
        })
    }

    /// The same for tables whose walks look into `caches`: only these are reported.
    #[must_use]
    pub fn serving(mut self, caches: WalkCacheKind) -> Self {
        self.uses = caches;
        self
    }

    /// The same for a core that runs guests, on a host whose tables' walks look
    /// into `caches`: what it keeps of the host is reported too.
    #[must_use]
    pub fn nested(mut self, caches: WalkCacheKind) -> Self {
        self.host_uses = Some(caches);
        self.caches.prepare_nesting();
        self
    }

    /// The same with a speculation engine, whose guesses go into the core's caches.
    #[must_use]
    pub fn with_engine(mut self, engine: Box<dyn Engine>) -> Self {
        self.speculation = Some(Box::new(Speculation::new(engine)));
        self
    }

    /// The same for a machine with this in-memory TLB, which every call is then lent.
    #[must_use]
    pub fn with_in_memory_tlb(mut self, spec: &InMemoryTlbSpec) -> Self {
        self.in_memory = Some(Box::new(InMemory::new(spec)));
        self
    }

    /// The first-level lookup runs beside that of a cache with this load-to-use:
    /// only what exceeds it delays an access. A perfect MMU looks nothing up.
    pub fn run_beside(&mut self, load_to_use: Cycle) {
        if self.perfect {
            return;
        }
        for side in 0..2 {
            self.exceeds[side] = self.l1[side].latency.saturating_sub(load_to_use);
        }
    }

    /// A stretch of the program was passed over, of which the last level of TLBs has seen the pages
    /// that the first did not have, if it was `followed`.
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
    }

    /// Of lookups whose outcome is not known because of that: first and second level.
    pub fn stale(&self) -> [StaleOutcomes; 2] {
        let sum = |levels: &mut dyn Iterator<Item = &TlbLevel>| {
            let mut sum = StaleOutcomes::default();
            for array in levels.flat_map(|level| &level.arrays) {
                sum += array.stale;
            }
            sum
        };
        [
            sum(&mut self.l1.iter()),
            sum(&mut self.l2.iter().flatten().map(Box::as_ref)),
        ]
    }

    /// Whether the walk behind the last answer, its own or the one that it waited for,
    /// read an entry from DRAM. Means nothing after an answer that took no walk.
    #[inline]
    pub fn walk_read_memory(&self) -> bool {
        self.walk_read_memory
    }

    /// Translates an address. Inlined where it is called as far as the page of the
    /// last access goes.
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
                from: TranslationSource::L1,
            });
        }
        self.look_up(&lookup, &mut context)
    }

    /// Cycles until no TLB has answered, and a walker is asked for: of the latest access
    /// of its side that walked or waited for a walk, where a TLB is in memory.
    #[inline]
    pub fn tlb_lookup_done(&self, access: Access) -> Cycle {
        let s = side(access);
        let second = self.l2[self.second(s)].as_ref();
        second.map_or(0, |level| level.latency) + self.memory_lookup[s]
    }

    /// [`MmuStats::l1d_misses`] so far.
    pub fn data_misses(&self) -> u64 {
        self.l1[0].misses
    }

    /// [`MmuStats::walks`] so far.
    pub fn walks(&self) -> u64 {
        self.stats.walks
    }

    /// Hands the filter's hits to their array.
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

    #[inline]
    fn watch(&mut self, s: usize, page: u64, pa: PhysAddr, e: TlbEntry, array: usize) {
        self.filter[s] = Filter {
            page: page | self.unfiltered[s],
            frame: pa.0 & !0xfff,
            ready: e.ready,
            writable: e.writable(),
            array: array as u32,
            hits: 0,
        };
    }

    /// Keeps a record of every walk from now on, or stops and forgets them.
    pub fn record_walks(&mut self, on: bool) {
        self.records = on.then(Vec::new);
    }

    /// The walks recorded since the last call, in the order of the program.
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
            walk_reads_l1d: reads(Level::L1),
            walk_reads_l2: reads(Level::L2),
            walk_reads_l3: reads(Level::L3),
            walk_reads_remote: reads(Level::Remote),
            walk_reads_memory: reads(Level::Memory),
            ..*s
        }
    }

    /// Translations that none of its TLBs had: walks, and hits of what is looked into
    /// beside or before them.
    pub fn misses(&self) -> u64 {
        l2_tlb_misses(self.stats.walks, |beside| match beside {
            AuxiliaryBuffer::InMemoryTlb => self.in_memory_hits(),
            AuxiliaryBuffer::Stb => self.stb_hits(),
            AuxiliaryBuffer::PrefetchBuffer => self.prefetch_buffer_hits(),
        })
    }

    /// The largest values that [`Mmu::report`] tells are those from now on.
    pub fn mark(&mut self) {
        self.walk_latency.mark();
        self.walker_wait.mark();
    }

    /// Adds the MMU's counters at `path`, its arrays' below.
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
        self.report_in_memory(path, tree);
        self.report_stlt(path, tree);
        self.report_prefetching(path, tree);
        if let Some(speculation) = &self.speculation {
            speculation.report(&format!("{path}.engine"), tree);
        }
    }
}

/// What the walk caches counted that tables which use them look into.
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
