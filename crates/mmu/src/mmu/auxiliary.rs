//! What lies beside the TLBs: translations in buffers, which are asked where no TLB has one
//! and fill the TLBs, and walks that no lookup waits for.

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

/// What may have a translation that no TLB of the core has, so that nothing walks for it. Each
/// counts its `hits`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuxiliaryBuffer {
    /// The TLB that is a part of memory.
    InMemoryTlb,
    /// The STLT's buffer of translations.
    Stb,
    /// The prefetcher's buffer.
    PrefetchBuffer,
}

impl AuxiliaryBuffer {
    /// All of them.
    pub const ALL: [AuxiliaryBuffer; 3] = [
        AuxiliaryBuffer::InMemoryTlb,
        AuxiliaryBuffer::Stb,
        AuxiliaryBuffer::PrefetchBuffer,
    ];

    /// Where it is in the statistics, below the MMU.
    pub fn name(self) -> &'static str {
        match self {
            AuxiliaryBuffer::InMemoryTlb => "in_memory_tlb",
            AuxiliaryBuffer::Stb => "stb",
            AuxiliaryBuffer::PrefetchBuffer => "prefetch_buffer",
        }
    }
}

/// Translations that no TLB of a core had: its walks, and the `hits` of what lies beside its TLBs.
pub fn l2_tlb_misses<N: Add<Output = N>>(walks: N, hits: impl Fn(AuxiliaryBuffer) -> N) -> N {
    AuxiliaryBuffer::ALL
        .into_iter()
        .map(hits)
        .fold(walks, N::add)
}

/// A translation in a buffer.
#[derive(Clone, Copy)]
pub(super) struct BufferEntry {
    asid: Asid,
    /// First byte of the page.
    page: u64,
    mapping: Mapping,
    ready: Cycle,
}

impl BufferEntry {
    /// Of the page around `va`, from `ready` on.
    pub fn new(asid: Asid, va: VirtAddr, mapping: Mapping, ready: Cycle) -> Self {
        BufferEntry {
            asid,
            page: va.0 & !(mapping.size.bytes() - 1),
            mapping,
            ready,
        }
    }
    /// Whether it is of the page around `va`.
    pub fn covers(&self, asid: Asid, va: u64) -> bool {
        self.asid == asid && va & !(self.mapping.size.bytes() - 1) == self.page
    }
    /// Whether `what` is to forget any of it.
    pub fn overlaps(&self, what: &Invalidation) -> bool {
        let (asid, first, last) = what.span();
        let end = self.page + (self.mapping.size.bytes() - 1);
        self.asid == asid && self.page <= last.0 && first.0 <= end
    }
    /// As the TLBs know it.
    pub fn key(&self) -> u64 {
        key(self.asid, self.mapping.size, self.page)
    }

    /// What it says for `lookup` at `now`. A store where it says that there may be none walks:
    /// the kernel may have allowed it since, for which nothing is shot down.
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
            "a translation beside the TLBs is out of date: {va} of {asid:?}"
        );
        Some(found)
    }
}

/// A walk that no lookup waits for.
pub(super) struct BackgroundWalk {
    /// When it got a walker, and when it was over.
    pub start: Cycle,
    pub end: Cycle,
    /// None: there is no page.
    pub found: Option<Walked>,
    /// Its reads, by what served them.
    pub served: [u64; LEVELS],
}

impl Mmu {
    /// A walk as any other, by the same walkers and walk caches, that raises no fault, fills no
    /// TLB and is not among the MMU's.
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

    /// State only: what a walk at `now` leaves in walk caches and in the memory system.
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

    /// A buffer has `mapping` for a lookup that no TLB has answered, which fills the TLBs. It
    /// compares beside the last TLB, and takes no cycle of its own.
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
