//! First touches in bulk, as an initialisation loop would make them.

use std::ops::Range;

use pagewalk_tables::{Flags, Invalidation};
use pagewalk_units::{Access, VirtAddr};

use crate::region::Kind;
use crate::touch::ForGuest;
use crate::vma::Vma;
use crate::{Effects, Os, OsError, Pid};

const REGION: u64 = 1 << 21;

impl Os {
    /// Touches every page of the range in ascending order, functionally and
    /// fast: `fx.cycles` stays as it is; what it would have cost is counted. Errors as [`Os::fault`]; what was
    /// touched before the error stays mapped.
    pub fn populate(
        &mut self,
        pid: Pid,
        at: VirtAddr,
        bytes: u64,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        let (from, to) = self.range(at, bytes)?;
        self.alive(pid)?;
        let mut local = Effects::default();
        let before = self.kernel.stats;
        let done = self.touch_all(pid, from, to, None, &mut local);
        let (trap, s) = (self.kernel.prices.trap, &mut self.kernel.stats);
        s.populate_cycles += local.cycles + trap * (s.populated_pages - before.populated_pages);
        s.populate_table_cycles += s.table_allocation_cycles - before.table_allocation_cycles
            + s.table_move_cycles
            - before.table_move_cycles;
        // One request an address space instead of one a promotion; reclaim may
        // have broken up reservations of anybody.
        let mut spaces = Vec::new();
        for what in local.invalidate {
            let (Invalidation::Page { asid, .. }
            | Invalidation::Range { asid, .. }
            | Invalidation::Space { asid }) = what;
            if !spaces.contains(&asid) {
                spaces.push(asid);
                fx.invalidate.push(Invalidation::Space { asid });
            }
        }
        done
    }

    /// Touches every page of the range in ascending order; a host says what its guest
    /// uses it for.
    pub(crate) fn touch_all(
        &mut self,
        pid: Pid,
        from: u64,
        to: u64,
        guest: Option<&ForGuest>,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        let mut at = from;
        while at < to {
            // Finds or infers the area; a read, since read-only areas are read.
            let vma = self.area(pid, VirtAddr(at), Access::Read)?;
            let end = vma.end.min(to);
            while at < end {
                at = self.touch_region(pid, at..end, &vma, guest, fx)?;
            }
        }
        Ok(())
    }

    /// Touches the pages from the start of `range` to the end of its 2 MB region or
    /// of the range; says where to go on.
    fn touch_region(
        &mut self,
        pid: Pid,
        range: Range<u64>,
        vma: &Vma,
        guest: Option<&ForGuest>,
        fx: &mut Effects,
    ) -> Result<u64, OsError> {
        let Range { start: mut at, end } = range;
        let key = at >> 21;
        let last = end.min((key + 1) * REGION);
        while at < last {
            let space = self.space(pid)?;
            // The usual case first: a region of small pages or an empty one.
            let present = match space.regions.get(key) {
                Some(r) if r.kind == Kind::Small => r.has(at >> 12 & 511),
                Some(_) => true,
                None => space.regions.covering(key).is_some(),
            };
            if present {
                let protected = || {
                    let t = space.table.translate(VirtAddr(at));
                    t.is_some_and(|t| !t.flags.contains(Flags::WRITABLE))
                };
                if space.forked && vma.writable && protected() {
                    // The write ends the sharing with parent or child.
                    self.resolve(pid, VirtAddr(at), Access::Write, fx)?;
                    self.kernel.stats.populated_pages += 1;
                }
                at += 4096;
                continue;
            }
            let before = fx.cycles;
            let size = self.with_reclaim(pid, fx, |os, fx| {
                os.first_touch(pid, VirtAddr(at), vma, guest, fx)
            })?;
            // Of a guest's touches each is a fault of the host.
            if let Some(guest) = guest {
                let cost = guest.entry + fx.cycles - before;
                self.kernel.fault_cost.record(cost);
            }
            self.kernel.stats.populated_pages += 1;
            let next = (at & !(size.bytes() - 1)) + size.bytes();
            if next >= last {
                return Ok(next.min(end));
            }
            at = next;
        }
        Ok(at)
    }
}
