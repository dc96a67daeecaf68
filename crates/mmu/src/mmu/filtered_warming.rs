//! Filtered functional warming of the MMU: of the TLBs, it warms the last level alone. Walks read
//! through the caches, and so warm the L2 and the L3.
//!
//! The last level is an LRU stack ([`LevelLruStack`]). [`Mmu::begin_filtered_warming`] exports it
//! from the TLB arrays, and [`Mmu::end_filtered_warming`] imports it again.
//!
//! The first level and the walk caches are not warmed: the detailed warm-up before the next sample
//! replaces their contents. Small tables take their place: recently used pages for the first level,
//! and recently walked regions of the address space for the walk caches.

use pagewalk_memory::Below;
use pagewalk_structures::{position, push_mru, touch_mru};
use pagewalk_tables::{Invalidation, MOST_LEVELS, Path, View};
use pagewalk_units::{Access, Asid, PageSize, PhysAddr, VirtAddr};

use super::{Fault, Mmu, NO_PC, WalkContext, side};
use crate::level::LevelLruStack;
use crate::mapping::Mapping;
use crate::tlb::key;
use crate::walk::Walked;

/// Number of recently used pages in place of the first level of each side, direct-mapped; a power
/// of two.
const FIRST: usize = 64;
/// A key that no page has.
const NONE: u64 = u64::MAX;

/// A 4 KB page and its frame.
#[derive(Clone, Copy)]
struct RecentPage {
    page: u64,
    /// Bit 0: stores are permitted.
    frame: u64,
}

const NO_RECENT_PAGE: RecentPage = RecentPage {
    page: NONE,
    frame: 0,
};

/// Most ways of a set of [`RecentRegions`].
const WAYS: usize = 8;

/// Regions of the address space that were walked recently, each as large as one node of a
/// page-table level maps. A set-associative LRU table in place of one walk cache.
struct RecentRegions {
    regions: Vec<u64>,
    ways: usize,
    /// Number of sets, a power of two, minus one.
    mask: usize,
}

impl RecentRegions {
    /// A table of at most `entries` entries, as in a walk cache.
    fn new(entries: usize) -> Self {
        let ways = WAYS.min(entries.max(1));
        let sets = (entries / ways).checked_ilog2().map_or(0, |log| 1 << log);
        RecentRegions {
            regions: vec![NONE; sets * ways],
            ways,
            mask: sets.max(1) - 1,
        }
    }

    /// True if the table holds `region`, which becomes the most recently used. Inserts it
    /// otherwise.
    #[inline(always)]
    fn probe(&mut self, region: u64, asid: Asid) -> bool {
        if self.regions.is_empty() {
            return false;
        }
        let hash = region.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        let set = (hash as usize & self.mask) * self.ways;
        let regions = &mut self.regions[set..set + self.ways];
        let region = region << 16 | u64::from(asid.0);
        match position(regions, |known| known == region) {
            Some(way) => {
                touch_mru(regions, way);
                true
            }
            None => {
                push_mru(regions, region);
                false
            }
        }
    }
}

/// State of the MMU during filtered functional warming.
pub(super) struct FilteredWarming {
    /// Recently used pages: data, instructions.
    first: [[RecentPage; FIRST]; 2],
    /// The second level, as in [`Mmu`].
    second: [LevelLruStack; 2],
    /// One table for each page-table level, the lowest first.
    walked: [RecentRegions; MOST_LEVELS],
    /// Scratch buffer for the path of a walk.
    path: Path<PhysAddr>,
}

impl FilteredWarming {
    /// Empties the tables of recent pages and regions.
    pub(super) fn clear(&mut self) {
        self.first = [[NO_RECENT_PAGE; FIRST]; 2];
        for level in &mut self.walked {
            level.regions.fill(NONE);
        }
    }
}

impl Mmu {
    /// Begins filtered functional warming. Until [`Mmu::end_filtered_warming`], all translations go
    /// through [`Mmu::warm_filtered`]. Returns true if they touch the core's caches only through
    /// [`Private::warm_filtered_walk`]. If false, translations are warmed in full.
    ///
    /// [`Private::warm_filtered_walk`]: pagewalk_memory::Private::warm_filtered_walk
    pub fn begin_filtered_warming(&mut self, view: &View<'_>) -> bool {
        for s in 0..2 {
            self.settle(s);
            self.filter[s] = super::NO_PAGE;
        }
        let plain = (self.speculation.iter()).all(|engine| engine.can_filtered_warm())
            && self.sources_can_filtered_warm()
            && self.stlt.iter().all(|unit| unit.can_filtered_warm())
            && (self.prefetching.iter()).all(|prefetching| prefetching.can_filtered_warm())
            && self.uses.can_filtered_warm()
            && view.can_filtered_warm();
        let mut second = self.l2.iter().flatten();
        self.warms_filtered = plain
            && !self.perfect
            && self.l2[0].is_some()
            && second.all(|level| level.can_filtered_warm());
        if self.warms_filtered {
            let entries = self.caches.pwc.entries();
            let state = self.filtered.get_or_insert_with(|| {
                Box::new(FilteredWarming {
                    first: [[NO_RECENT_PAGE; FIRST]; 2],
                    second: Default::default(),
                    walked: std::array::from_fn(|_| RecentRegions::new(entries)),
                    path: Path::new(),
                })
            });
            state.clear();
            for (lru, level) in state.second.iter_mut().zip(&self.l2) {
                if let Some(level) = level {
                    level.export_lru(lru);
                }
            }
        }
        self.warms_filtered || plain && self.perfect
    }

    /// Ends filtered functional warming: copies the LRU stacks back to the second level.
    pub fn end_filtered_warming(&mut self) {
        if !std::mem::take(&mut self.warms_filtered) {
            return;
        }
        let state = self.filtered.as_mut().expect("begun");
        for (lru, level) in state.second.iter().zip(&mut self.l2) {
            if let Some(level) = level {
                level.import_lru(lru);
            }
        }
    }

    /// Applies an invalidation to the state of filtered functional warming.
    pub(super) fn forget_filtered(&mut self, what: &Invalidation) {
        if let Some(state) = self.filtered.as_mut().filter(|_| self.warms_filtered) {
            state.clear();
            for lru in &mut state.second {
                lru.forget(what);
            }
        }
    }

    /// Prefetches into the host's caches the page-table entries that [`Mmu::warm_filtered`] will
    /// need at `va`.
    #[inline]
    pub fn host_prefetch_filtered(&self, asid: Asid, (va, access): (u64, Access), view: &View<'_>) {
        if !self.warms_filtered {
            self.host_prefetch(asid, VirtAddr(va), view);
            return;
        }
        let state = self.filtered.as_ref().expect("begun");
        let page = key(asid, PageSize::K4, va);
        if state.first[side(access)][page as usize % FIRST].page != page {
            view.host_prefetch(VirtAddr(va));
        }
    }

    /// Translates `va` as [`Mmu::warm`] does, and updates only the state of filtered warming.
    #[inline]
    pub fn warm_filtered<B: Below>(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        access: Access,
        context: WalkContext<'_, B>,
    ) -> Result<PhysAddr, Fault> {
        if !self.warms_filtered {
            return self.warm(asid, va, access, NO_PC, context);
        }
        let s = side(access);
        let page = key(asid, PageSize::K4, va.0);
        let state = self.filtered.as_mut().expect("begun");
        let recent = &mut state.first[s][page as usize % FIRST];
        let write = access == Access::Write;
        if recent.page == page && (!write || recent.frame & 1 != 0) {
            return Ok(PhysAddr(recent.frame & !1 | va.0 & 0xfff));
        }
        self.warm_filtered_page(asid, va, access, context)
    }

    #[inline(never)]
    fn warm_filtered_page<B: Below>(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        access: Access,
        mut context: WalkContext<'_, B>,
    ) -> Result<PhysAddr, Fault> {
        let lookup = self.untimed(asid, va, access, NO_PC);
        let s = side(access);
        let second = self.second(s);
        let level = self.l2[second].as_deref().expect("as begun");
        let state = self.filtered.as_mut().expect("begun");
        let lru = &mut state.second[second];
        let held = level.look_up_lru(lru, asid, va.0);
        let mapping = match held {
            Some(mapping) => mapping,
            None => {
                let View::Native(table) = context.view else {
                    unreachable!("no host's tables are used, as begun")
                };
                let Some(found) = table.path(va, &mut state.path) else {
                    return Err(self.raise_fault(&lookup, lookup.now));
                };
                warm_walk_reads(&mut state.walked, &state.path, asid, va, &mut context);
                Mapping::of(&Walked::native(&found))
            }
        };
        if access == Access::Write && !mapping.writable {
            return Err(self.raise_fault(&lookup, lookup.now));
        }
        if held.is_none() {
            level.fill_lru(lru, asid, va.0, mapping);
        }
        let pa = mapping.pa(va);
        let page = key(asid, PageSize::K4, va.0);
        state.first[s][page as usize % FIRST] = RecentPage {
            page,
            frame: pa.0 & !0xfff | u64::from(mapping.writable),
        };
        Ok(pa)
    }
}

/// Warms caches by the reads of a walk of `path`. The walk caches would let the walk skip the upper
/// levels: it starts at the lowest node whose region was walked recently, else at the root.
#[inline]
fn warm_walk_reads<B: Below>(
    walked: &mut [RecentRegions; MOST_LEVELS],
    path: &Path<PhysAddr>,
    asid: Asid,
    va: VirtAddr,
    context: &mut WalkContext<'_, B>,
) {
    // A walk cache holds the entry that points to a recently walked node, so the walk reads no
    // entry above that node.
    let leaf = path.leaf_level();
    let root = path.root_level();
    let known = |&top: &usize| walked[top - 1].probe(va.0 >> (12 + 9 * top), asid);
    let top = (leaf..root).find(known).unwrap_or(root);
    for level in (leaf..=top).rev() {
        context
            .private
            .warm_filtered_walk(path.at(level), context.below);
    }
}
