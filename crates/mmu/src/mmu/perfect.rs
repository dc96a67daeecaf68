//! Translation without hardware.

use super::*;

impl Mmu {
    /// The translation itself, without hardware.
    pub(super) fn know(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        access: Access,
        now: Cycle,
        view: &View<'_>,
    ) -> Result<(PhysAddr, bool), Fault> {
        let page = key(asid, PageSize::K4, va.0);
        let slot = page as usize % REMEMBERED;
        let (known, frame) = self.remembered[slot];
        let (pa, writable) = if known == page {
            (PhysAddr(frame & !0xfff | va.0 & 0xfff), frame & 1 != 0)
        } else {
            let fault = Fault {
                va,
                access,
                at: now,
                host: None,
            };
            let found = match *view {
                View::Native(table) => table.translate(va).ok_or(fault),
                View::Nested { guest, host } => guest.translate(va).ok_or(fault).and_then(|g| {
                    let gpa = GuestPhysAddr(g.frame.base.0 + (va.0 & (g.size.bytes() - 1)));
                    let h = host.translate(gpa).ok_or(Fault {
                        host: Some(gpa),
                        ..fault
                    })?;
                    let pa = PhysAddr(h.frame.base.0 + (gpa.0 & (h.size.bytes() - 1)));
                    Ok(combine(&g, va, pa, h.size))
                }),
            };
            let found = match found {
                Ok(t) => Found::of(&t),
                Err(fault) => {
                    self.stats.faults += 1;
                    return Err(fault);
                }
            };
            let pa = found.pa(va);
            self.remembered[slot] = (page, pa.0 & !0xfff | u64::from(found.writable));
            (pa, found.writable)
        };
        if access == Access::Write && !writable {
            self.remembered[slot] = (u64::MAX, 0);
            return Err(self.refuse(asid, va, access, now));
        }
        let e = Entry::new(0, writable, 0);
        self.watch(side(access), page, pa, e, 0);
        Ok((pa, writable))
    }
}
