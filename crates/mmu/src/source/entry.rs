//! An entry of a small buffer of translations.

use pagewalk_tables::Invalidation;
use pagewalk_units::{Access, Asid, Cycle, VirtAddr};

use super::{Extent, Hit, Ports};
use crate::Lookup;
use crate::mapping::Mapping;
use crate::tlb::key;

/// A page's translation, and when it is ready.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Address space.
    asid: Asid,
    /// Address of the page's first byte.
    page: VirtAddr,
    mapping: Mapping,
    ready: Cycle,
}

impl Entry {
    /// The translation of the page that contains `va`, ready from `ready` on.
    pub(crate) fn new(asid: Asid, va: VirtAddr, mapping: Mapping, ready: Cycle) -> Self {
        Entry {
            asid,
            page: VirtAddr(va.0 & !(mapping.size.bytes() - 1)),
            mapping,
            ready,
        }
    }

    /// True if it translates `va`.
    pub fn covers(&self, asid: Asid, va: VirtAddr) -> bool {
        self.asid == asid && va.0 & !(self.mapping.size.bytes() - 1) == self.page.0
    }

    /// True if the invalidation `what` covers any byte of its page.
    pub fn overlaps(&self, what: &Invalidation) -> bool {
        let (asid, first, last) = what.span();
        self.asid == asid && self.extent().overlaps(first, last)
    }

    /// The key of its page in TLBs.
    pub(crate) fn key(&self) -> u64 {
        key(self.asid, self.mapping.size, self.page.0)
    }

    fn extent(&self) -> Extent {
        let Mapping {
            frame,
            size,
            writable,
        } = self.mapping;
        Extent::page(self.page, size, pagewalk_units::PhysAddr(frame), writable)
    }

    /// The answer to `lookup`, if the entry has it.
    pub fn answer(&self, lookup: &Lookup, ports: &Ports<'_>) -> Option<Hit> {
        let may = self.mapping.writable || lookup.access != Access::Write;
        let ready = ports.is_ready(self.ready, lookup.now);
        (self.covers(lookup.asid, lookup.va) && ready && may).then(|| Hit {
            extent: self.extent(),
            largest: self.mapping.size,
            at: lookup.now,
            memory: false,
        })
    }
}
