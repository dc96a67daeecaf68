//! Auxiliary buffers and background walks. An auxiliary buffer is looked up when all TLBs of the
//! core miss, and a hit fills the TLBs. No lookup waits for a background walk.

use std::ops::Add;

use pagewalk_memory::Below;
use pagewalk_tables::Invalidation;
use pagewalk_units::{Access, Asid, Cycle, VirtAddr};

use super::miss::Missed;
use super::{Lookup, Mmu, Translated, TranslationSource, WalkContext, side};
use crate::level::Arrival;
use crate::mapping::Mapping;
use crate::tlb::key;
use crate::walk::{LEVELS, Missing, Physical, Walked, Warming, translate_untimed};

/// A buffer that may have a translation that no TLB of the core has. A hit avoids the walk. Each
/// counts its `hits`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuxiliaryBuffer {
    /// The in-memory TLB.
    InMemoryTlb,
    /// The STLT's translation buffer.
    Stb,
    /// The TLB prefetcher's buffer.
    PrefetchBuffer,
}

impl AuxiliaryBuffer {
    /// Every auxiliary buffer.
    pub const ALL: [AuxiliaryBuffer; 3] = [
        AuxiliaryBuffer::InMemoryTlb,
        AuxiliaryBuffer::Stb,
        AuxiliaryBuffer::PrefetchBuffer,
    ];

    /// Name in the statistics, below the MMU.
    pub fn name(self) -> &'static str {
        match self {
            AuxiliaryBuffer::InMemoryTlb => "in_memory_tlb",
            AuxiliaryBuffer::Stb => "stb",
            AuxiliaryBuffer::PrefetchBuffer => "prefetch_buffer",
        }
    }
}

/// Translations that no TLB of a core had: its walks, and the `hits` of its auxiliary buffers.
pub fn l2_tlb_misses<N: Add<Output = N>>(walks: N, hits: impl Fn(AuxiliaryBuffer) -> N) -> N {
    AuxiliaryBuffer::ALL
        .into_iter()
        .map(hits)
        .fold(walks, N::add)
}

/// A translation in an auxiliary buffer.
#[derive(Clone, Copy)]
pub(super) struct BufferEntry {
    asid: Asid,
    /// Address of the page's first byte.
    page: u64,
    mapping: Mapping,
    ready: Cycle,
}

impl BufferEntry {
    /// The translation of the page that contains `va`, ready from `ready` on.
    pub fn new(asid: Asid, va: VirtAddr, mapping: Mapping, ready: Cycle) -> Self {
        BufferEntry {
            asid,
            page: va.0 & !(mapping.size.bytes() - 1),
            mapping,
            ready,
        }
    }
    /// True if it translates `va`.
    pub fn covers(&self, asid: Asid, va: u64) -> bool {
        self.asid == asid && va & !(self.mapping.size.bytes() - 1) == self.page
    }
    /// True if the invalidation `what` covers any byte of its page.
    pub fn overlaps(&self, what: &Invalidation) -> bool {
        let (asid, first, last) = what.span();
        let end = self.page + (self.mapping.size.bytes() - 1);
        self.asid == asid && self.page <= last.0 && first.0 <= end
    }
    /// The key of its page in TLBs.
    pub fn key(&self) -> u64 {
        key(self.asid, self.mapping.size, self.page)
    }

    /// The translation for `lookup`, if it is ready at `now`. A store to a read-only page misses:
    /// the kernel may have permitted stores since, and such a change needs no shootdown.
    pub fn look_up(
        &self,
        lookup: &Lookup,
        now: Cycle,
        context: &WalkContext<'_, impl Sized>,
    ) -> Option<Mapping> {
        let &Lookup {
            asid, va, access, ..
        } = lookup;
        let found = self.mapping;
        let may = found.writable || access != Access::Write;
        if !(self.covers(asid, va.0) && self.ready <= now && may) {
            return None;
        }
        debug_assert!(
            translate_untimed(context.view, va).is_ok_and(|walked| {
                walked.pa(va) == found.pa(va) && (walked.writable() || !found.writable)
            }),
            "a translation in an auxiliary buffer is out of date: {va} of {asid:?}"
        );
        Some(found)
    }
}

/// A finished background walk.
pub(super) struct BackgroundWalk {
    /// When a walker was free.
    pub start: Cycle,
    /// When the walk ended.
    pub end: Cycle,
    /// `None` if the page is not mapped.
    pub found: Option<Walked>,
    /// Its reads, by the level that served them.
    pub served: [u64; LEVELS],
}

impl Mmu {
    /// Walks in the background with the core's walkers and walk caches. The walk raises no fault,
    /// fills no TLB and is not counted among the MMU's walks.
    pub(super) fn walk_in_background<B: Below>(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        now: Cycle,
        context: &mut WalkContext<'_, B>,
    ) -> BackgroundWalk {
        let walker = self.walkers.admit(now);
        let start = walker.start;
        let mut served = [0; LEVELS];
        let mut port = Physical {
            private: context.private,
            below: context.below,
            core: self.core,
            served: &mut served,
            record: None,
            nested_steps: None,
        };
        let (end, found) = self.caches.walk(context.view, va, asid, &mut port, start);
        self.walkers.hold(walker, end);
        BackgroundWalk {
            start,
            end,
            found: found.ok(),
            served,
        }
    }

    /// Functional warming: walks without time and without counting. Updates walk caches and memory
    /// system.
    pub(super) fn walk_untimed<B: Below>(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        now: Cycle,
        context: &mut WalkContext<'_, B>,
    ) -> Result<Walked, Missing> {
        let mut port = Warming {
            private: context.private,
            below: context.below,
            core: self.core,
        };
        self.caches.count(false);
        let (_, found) = self.caches.walk(context.view, va, asid, &mut port, now);
        self.caches.count(true);
        found
    }

    /// Fills the TLBs with `mapping` after a hit of an auxiliary buffer. The buffer is looked up in
    /// parallel with the last TLB, so a hit adds no cycle.
    pub(super) fn hit_auxiliary(
        &mut self,
        lookup: &Lookup,
        missed: &Missed,
        mapping: Mapping,
        from: TranslationSource,
    ) -> Translated {
        let at = missed.requested;
        let arrival = Arrival {
            asid: lookup.asid,
            va: lookup.va,
            mapping,
            ready: at,
            counted: true,
            fetched: true,
        };
        self.fill(side(lookup.access), &arrival, missed.presence);
        Translated {
            pa: mapping.pa(lookup.va),
            ready: at,
            walk_start: at,
            from,
        }
    }
}
