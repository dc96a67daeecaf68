//! Functional warming of the MMU: updates state without time and without counting.

use pagewalk_memory::Below;
use pagewalk_tables::View;
use pagewalk_units::{Access, Asid, PageSize, PhysAddr, VirtAddr};

use super::{Fault, Lookup, Mmu, REMEMBERED, WalkContext, side};
use crate::level::{Arrival, Presence};
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
        self.warm_look_up(&lookup, &mut context)
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

    #[inline(never)]
    fn warm_look_up<B: Below>(
        &mut self,
        lookup: &Lookup,
        context: &mut WalkContext<'_, B>,
    ) -> Result<PhysAddr, Fault> {
        let &Lookup {
            asid,
            va,
            access,
            now,
            ..
        } = lookup;
        let s = side(access);
        self.settle(s);
        if self.perfect {
            return self.translate_at_once(lookup, context.view);
        }
        let level = &mut self.l1[s];
        if let Some((a, slot)) = level.find(asid, va.0) {
            let array = &mut level.arrays[a];
            array.touch(slot);
            let e = array.entry(slot);
            if access == Access::Write && !e.writable() {
                return Err(self.raise_fault(lookup, now));
            }
            let pa = level.address(a, slot, va);
            self.set_filter(s, key(asid, PageSize::K4, va.0), pa, e, a);
            return Ok(pa);
        }
        let arrival = |mapping| Arrival {
            asid,
            va,
            mapping,
            ready: 0,
            counted: false,
            fetched: true,
        };
        let second = self.second(s);
        if let Some(level) = &mut self.l2[second]
            && let Some((a, slot)) = level.find(asid, va.0)
        {
            level.arrays[a].touch(slot);
            let mapping = level.arrays[a].mapping(slot);
            if access == Access::Write && !mapping.writable {
                return Err(self.raise_fault(lookup, now));
            }
            self.fill_l1(s, &arrival(mapping), Presence::ABSENT);
            if self.warm_first_use(lookup) {
                self.warm_prefetch(lookup, context);
            }
            return Ok(mapping.pa(va));
        }
        let buffered = self.warm_buffer(lookup, context);
        let buffered = buffered.or_else(|| self.warm_stb(lookup, context));
        let mapping = match buffered.or_else(|| self.warm_memory(lookup, context)) {
            Some(mapping) => mapping,
            None => {
                let mapping = self.warm_walk(lookup, context)?;
                if access == Access::Write && !mapping.writable {
                    return Err(self.raise_fault(lookup, now));
                }
                mapping
            }
        };
        self.fill(s, &arrival(mapping), [Presence::ABSENT; 2]);
        self.warm_prefetch(lookup, context);
        Ok(mapping.pa(va))
    }

    /// Walks without time. Updates walk caches, memory system and the in-memory TLB.
    fn warm_walk<B: Below>(
        &mut self,
        lookup: &Lookup,
        context: &mut WalkContext<'_, B>,
    ) -> Result<Mapping, Fault> {
        let &Lookup { asid, va, now, .. } = lookup;
        let found = self.walk_untimed(asid, va, now, context);
        if let Ok(walked) = &found {
            self.warm_keep_in_memory(lookup, walked, context);
        }
        found
            .map(|walked| Mapping::of(&walked))
            .map_err(|missing| Fault {
                host: missing.behind(),
                ..self.raise_fault(lookup, now)
            })
    }
}
