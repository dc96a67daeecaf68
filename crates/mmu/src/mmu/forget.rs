//! Invalidations and faults: both drop translations, which the kernel has changed or will change.

use pagewalk_tables::Invalidation;
use pagewalk_units::{Asid, Cycle, PageSize, VirtAddr};

use super::{Fault, Lookup, Mmu, NO_PAGE, PROBED_PAGES};

impl Mmu {
    /// Counts a page fault and drops the page's entries from the TLBs (Intel SDM vol. 3, 4.10.4.1),
    /// so that the next access sees the kernel's change.
    #[cold]
    pub(super) fn raise_fault(&mut self, lookup: &Lookup, at: Cycle) -> Fault {
        self.stats.faults += 1;
        self.drop_page(lookup.asid, lookup.va.0);
        self.forget_walk_mshrs(lookup.asid);
        for source in self.each_source() {
            source.drop_page(lookup.asid, lookup.va);
        }
        Fault {
            va: lookup.va,
            access: lookup.access,
            at,
            host: None,
        }
    }

    /// Drops the entries of the 4 KB page of `va` from the filter and both levels.
    pub(super) fn drop_page(&mut self, asid: Asid, va: u64) {
        self.settle(0);
        self.settle(1);
        self.filter = [NO_PAGE; 2];
        let page = VirtAddr(va).page(PageSize::K4);
        self.forget_filtered(&Invalidation::Page { asid, page });
        for level in self
            .l1
            .iter_mut()
            .chain(self.l2.iter_mut().flatten().map(|l| &mut **l))
        {
            for array in &mut level.arrays {
                array.drop_page(asid, va);
            }
        }
    }

    /// Frees the walk MSHRs of an address space.
    pub(super) fn forget_walk_mshrs(&mut self, asid: Asid) {
        for k in self.mshr_keys.iter_mut() {
            if *k >> 48 == u64::from(asid.0) {
                *k = u64::MAX;
            }
        }
    }

    /// Drops the translations that `what` covers.
    pub fn invalidate(&mut self, what: &Invalidation) {
        self.stats.invalidations += 1;
        self.settle(0);
        self.settle(1);
        self.filter = [NO_PAGE; 2];
        self.remembered.fill((u64::MAX, 0));
        self.forget_filtered(what);
        if let Some(speculation) = &mut self.speculation {
            speculation.invalidate(what);
        }
        for source in self.each_source() {
            source.invalidate(what);
        }
        let (asid, range) = match *what {
            Invalidation::Page { asid, page } => (asid, Some((page.base.0, page.size.bytes()))),
            Invalidation::Range { asid, at, bytes } => (asid, Some((at.0, bytes))),
            Invalidation::Space { asid } => (asid, None),
        };
        self.forget_walk_mshrs(asid);
        self.caches.pwc.invalidate(asid);
        if let Some(n) = &mut self.caches.nesting {
            n.clear();
        }
        for level in self
            .l1
            .iter_mut()
            .chain(self.l2.iter_mut().flatten().map(|l| &mut **l))
        {
            for array in &mut level.arrays {
                match range {
                    None => array.drop_space(asid),
                    Some((at, bytes)) => {
                        let first = at >> 12;
                        let pages = (at.saturating_add(bytes).div_ceil(4096)).saturating_sub(first);
                        if pages <= PROBED_PAGES {
                            for p in first..first + pages {
                                array.drop_page(asid, p << 12);
                            }
                        } else {
                            array.drop_range(asid, at, bytes);
                        }
                    }
                }
            }
        }
    }
}
