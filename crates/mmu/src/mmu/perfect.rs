//! The perfect MMU: translation without hardware and without time.

use pagewalk_tables::View;
use pagewalk_units::{Access, PageSize, PhysAddr};

use super::{Fault, Lookup, Mmu, REMEMBERED, side};
use crate::tlb::{TlbEntry, key};
use crate::walk::translate_untimed;

impl Mmu {
    /// Translates `lookup` by the page tables, at once.
    pub(super) fn translate_at_once(
        &mut self,
        lookup: &Lookup,
        view: &View<'_>,
    ) -> Result<PhysAddr, Fault> {
        let &Lookup {
            asid,
            va,
            access,
            now,
            ..
        } = lookup;
        let page = key(asid, PageSize::K4, va.0);
        let slot = page as usize % REMEMBERED;
        let (known, frame) = self.remembered[slot];
        let (pa, writable) = if known == page {
            (PhysAddr(frame & !0xfff | va.0 & 0xfff), frame & 1 != 0)
        } else {
            let found = translate_untimed(view, va).map_err(|missing| {
                self.stats.faults += 1;
                Fault {
                    va,
                    access,
                    at: now,
                    host: missing.behind(),
                }
            })?;
            let (pa, writable) = (found.pa(va), found.writable());
            self.remembered[slot] = (page, pa.0 & !0xfff | u64::from(writable));
            (pa, writable)
        };
        if access == Access::Write && !writable {
            self.remembered[slot] = (u64::MAX, 0);
            return Err(self.raise_fault(lookup, now));
        }
        let e = TlbEntry::new(0, writable, 0);
        self.set_filter(side(access), page, pa, e, 0);
        Ok(pa)
    }
}
