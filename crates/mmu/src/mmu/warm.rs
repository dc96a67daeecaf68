//! Functional warming of the MMU: updates state without time and without counting.

use pagewalk_memory::Below;
use pagewalk_tables::View;
use pagewalk_units::{Access, Asid, PageSize, PhysAddr, VirtAddr};

use super::miss::Missed;
use super::{Fault, Lookup, Mmu, REMEMBERED, ServedBy, Translated, WalkContext, side};
use crate::level::Arrival;
use crate::mapping::Mapping;
use crate::tlb::key;
use crate::walk::translate_untimed;

/// Result of [`Mmu::look_ahead`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// The physical address.
    Known(PhysAddr),
    /// No TLB has the translation. [`Mmu::look_through`] can read it from the page table.
    Walked,
    /// No TLB has the translation, and reading it from the page table would cost the host as much
    /// as the walk.
    Unknown,
}

impl Mmu {
    /// Looks ahead of [`Mmu::warm`]: returns the physical address of `va` if a TLB has it.
    /// Otherwise prefetches the page-table entries of its walk into the host's caches. Changes no
    /// simulated state.
    #[inline]
    pub fn look_ahead(&self, asid: Asid, va: VirtAddr, view: &View<'_>) -> Ahead {
        let page = key(asid, PageSize::K4, va.0);
        if self.perfect {
            let (known, frame) = self.remembered[page as usize % REMEMBERED];
            if known == page {
                return Ahead::Known(PhysAddr(frame & !0xfff | va.0 & 0xfff));
            }
        } else {
            let found = self.l1[0].peek(asid, va.0, true);
            let second = || self.l2[0].as_ref()?.peek(asid, va.0, false);
            if let Some(mapping) = found.or_else(second) {
                return Ahead::Known(mapping.pa(va));
            }
        }
        if let Some(level) = &self.l2[0] {
            level.host_prefetch_fill(asid, va.0);
        }
        if view.host_prefetch(va) {
            Ahead::Walked
        } else {
            Ahead::Unknown
        }
    }

    /// Prefetches into the host's caches the second-level TLB slot and the page-table entries that
    /// [`Mmu::warm`] will need at `va`.
    #[inline]
    pub fn host_prefetch(&self, asid: Asid, va: VirtAddr, view: &View<'_>) {
        if let Some(level) = &self.l2[0] {
            level.host_prefetch_fill(asid, va.0);
        }
        view.host_prefetch(va);
    }

    /// The step after [`Mmu::look_ahead`], when the host's prefetch has arrived. Returns the
    /// physical addresses of the data at `va` and of the last page-table entry of its walk.
    #[inline]
    pub fn look_through(&self, va: VirtAddr, view: &View<'_>) -> Option<[PhysAddr; 2]> {
        let walked = translate_untimed(view, va).ok()?;
        Some([walked.pa(va), walked.leaf.at])
    }

    /// Translates `va` for functional warming: leaves the state that [`Mmu::translate`] would
    /// leave, without time and without counting. `pc` is the instruction's, or
    /// [`NO_PC`](crate::NO_PC).
    #[inline]
    pub fn warm<B: Below>(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        access: Access,
        pc: u64,
        mut context: WalkContext<'_, B>,
    ) -> Result<PhysAddr, Fault> {
        let f = &self.filter[side(access)];
        if f.page == key(asid, PageSize::K4, va.0) && (access != Access::Write || f.writable) {
            return Ok(PhysAddr(f.frame | va.0 & 0xfff));
        }
        let lookup = self.untimed(asid, va, access, pc);
        let answer = self.look_up::<false, B>(&lookup, &mut context)?;
        Ok(answer.pa)
    }

    /// The lookup of an access in functional warming: no time passes.
    #[inline(always)]
    pub(super) fn untimed(&self, asid: Asid, va: VirtAddr, access: Access, pc: u64) -> Lookup {
        Lookup {
            asid,
            va,
            access,
            pc,
            now: self.latest,
        }
    }

    /// Walks without time for a lookup that missed all TLBs and sources, and fills both.
    pub(super) fn warm_walk<B: Below>(
        &mut self,
        lookup: &Lookup,
        missed: &Missed,
        context: &mut WalkContext<'_, B>,
    ) -> Result<Translated, Fault> {
        let &Lookup {
            asid,
            va,
            access,
            now,
            ..
        } = lookup;
        let walked = match self.walk_untimed(asid, va, now, context) {
            Ok(walked) => walked,
            Err(missing) => {
                return Err(Fault {
                    host: missing.behind(),
                    ..self.raise_fault(lookup, now)
                });
            }
        };
        if !self.sources.is_empty() {
            self.fill_sources::<false, B>(lookup, &walked, now, context);
        }
        let mapping = Mapping::of(&walked);
        if access == Access::Write && !mapping.writable {
            return Err(self.raise_fault(lookup, now));
        }
        let arrival = Arrival {
            asid,
            va,
            mapping,
            ready: 0,
            counted: false,
            fetched: true,
        };
        self.fill(side(access), &arrival, missed.presence);
        Ok(Translated {
            pa: mapping.pa(va),
            ready: now,
            walk_start: now,
            from: ServedBy::Walk,
        })
    }
}
