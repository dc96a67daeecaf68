//! State without time.

use super::*;

impl Mmu {
    /// State only: what [`Mmu::translate`] would leave behind, without time and
    /// without counting.
    #[inline]
    pub fn warm<B: Below>(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        access: Access,
        view: &View<'_>,
        private: &mut Private,
        below: &mut B,
    ) -> Result<PhysAddr, Fault> {
        let f = &self.filter[side(access)];
        if f.page == key(asid, PageSize::K4, va.0) && (access != Access::Write || f.writable) {
            return Ok(PhysAddr(f.frame | va.0 & 0xfff));
        }
        self.warm_look_up(asid, va, access, view, private, below)
    }

    pub(super) fn warm_look_up<B: Below>(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        access: Access,
        view: &View<'_>,
        private: &mut Private,
        below: &mut B,
    ) -> Result<PhysAddr, Fault> {
        let s = side(access);
        self.settle(s);
        let now = self.latest;
        if self.perfect {
            return self.know(asid, va, access, now, view).map(|k| k.0);
        }
        let level = &mut self.l1[s];
        if let Some((a, slot)) = level.find(asid, va.0) {
            let array = &mut level.arrays[a];
            array.touch(slot);
            let e = array.entry(slot);
            if access == Access::Write && !e.writable() {
                return Err(self.refuse(asid, va, access, now));
            }
            let pa = level.address(a, slot, va);
            self.watch(s, key(asid, PageSize::K4, va.0), pa, e, a);
            return Ok(pa);
        }
        let own = s & usize::from(self.l2[1].is_some());
        if let Some(level) = &mut self.l2[own]
            && let Some((a, slot)) = level.find(asid, va.0)
        {
            level.arrays[a].touch(slot);
            let found = level.arrays[a].found(slot);
            if access == Access::Write && !found.writable {
                return Err(self.refuse(asid, va, access, now));
            }
            self.fill_l1(s, asid, va, found, 0, false, Presence::ABSENT);
            return Ok(found.pa(va));
        }
        self.pwc.counting = false;
        let mut port = Warming {
            private,
            below,
            core: self.core,
        };
        let (_, found) = match *view {
            View::Native(table) => walk(table, va, asid, &mut self.pwc, &mut port, now, Found::of),
            View::Nested { guest, host } => {
                let nesting = self.nesting.get_or_insert_with(|| {
                    Box::new(Nesting::new(&self.nested_tlb, self.nested_pwc.clone()))
                });
                nesting.pwc.counting = false;
                let (end, found) = walk_nested(
                    guest,
                    host,
                    va,
                    asid,
                    &mut self.pwc,
                    nesting,
                    &mut port,
                    now,
                );
                nesting.pwc.counting = true;
                (end, found.map(|t| Found::of(&t)))
            }
        };
        self.pwc.counting = true;
        let found = match found {
            Ok(found) => found,
            Err(missing) => {
                let mut fault = self.refuse(asid, va, access, now);
                if let Missing::Host(gpa) = missing {
                    fault.host = Some(gpa);
                }
                return Err(fault);
            }
        };
        if access == Access::Write && !found.writable {
            return Err(self.refuse(asid, va, access, now));
        }
        self.fill(s, asid, va, found, 0, false, [Presence::ABSENT; 2]);
        Ok(found.pa(va))
    }
}
