//! First touches in bulk, like an initialisation loop.

use std::ops::Range;

use pagewalk_tables::Invalidation;
use pagewalk_units::{Access, Cycle, VirtAddr};

use crate::spec::InferredPages;
use crate::touch::ForGuest;
use crate::vma::Vma;
use crate::{Effects, Os, OsError, OsStats, Pid};

const REGION: u64 = 1 << 21;

impl Os {
    /// Touches every page of the range in ascending order, without charging time. `fx.cycles` is unchanged;
    /// the cost is only counted. Errors as for [`Os::fault`]; pages touched before the error stay mapped.
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
        self.count_populated(&before, local.cycles);
        // One invalidation for each address space instead of one for each promotion. Reclaim may have broken
        // up reservations of any process.
        let mut spaces = Vec::new();
        for what in local.invalidate {
            let asid = what.asid();
            if !spaces.contains(&asid) {
                spaces.push(asid);
                fx.invalidate.push(Invalidation::Space { asid });
            }
        }
        done
    }

    /// Kernel time that populating would have taken since boot, cycles.
    pub fn populate_cycles(&self) -> Cycle {
        self.kernel.stats.populate_cycles
    }

    /// Cycles that the first walk for a page mapped by [`Os::map_before`] takes longer.
    pub fn inferred_touch_cycles(&self) -> Cycle {
        self.inferred_touch_cycles
    }

    /// Maps the page at `at` if it is unmapped and counts as mapped before the measured program starts
    /// ([`InferredPages::MappedBefore`]). `fx.cycles` is unchanged; the cost is only counted. Returns true if
    /// it has mapped the page. Error: no memory.
    pub fn map_before(
        &mut self,
        pid: Pid,
        at: VirtAddr,
        access: Access,
        fx: &mut Effects,
    ) -> Result<bool, OsError> {
        let space = self.space(pid)?;
        if !space.infer || self.inferred_pages == InferredPages::FirstTouch || space.has(at.0) {
            return Ok(false);
        }
        if space.swapped.contains(&(at.0 >> 12)) {
            return Ok(false);
        }
        match self.area(pid, at, access) {
            Ok(vma) if vma.inferred => {}
            Ok(_) | Err(OsError::SegmentationFault { .. } | OsError::BeyondWidth { .. }) => {
                return Ok(false);
            }
            Err(e) => return Err(e),
        }
        let mut local = Effects::default();
        let before = self.kernel.stats;
        self.resolve(pid, at, access, &mut local)?;
        self.kernel.stats.populated_pages += 1;
        self.count_populated(&before, local.cycles);
        fx.invalidate.append(&mut local.invalidate);
        Ok(true)
    }

    /// Counts the pages populated since `before`. `cycles` is their cost without the traps.
    fn count_populated(&mut self, before: &OsStats, cycles: Cycle) {
        let (trap, s) = (self.kernel.prices.trap, &mut self.kernel.stats);
        s.populate_cycles += cycles + trap * (s.populated_pages - before.populated_pages);
        s.populate_table_cycles += s.table_allocation_cycles - before.table_allocation_cycles
            + s.table_move_cycles
            - before.table_move_cycles;
    }

    /// Touches every page of the range in ascending order. In a host, `guest` describes the guest's use.
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
            // Finds or infers the area with a read access, because read-only areas are only read.
            let vma = self.area(pid, VirtAddr(at), Access::Read)?;
            let end = vma.end.min(to);
            while at < end {
                at = self.touch_region(pid, at..end, &vma, guest, fx)?;
            }
        }
        Ok(())
    }

    /// Touches the pages from the start of `range` to the end of its 2 MB region or of the range. Returns the
    /// address to continue at.
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
            if space.has(at) {
                if vma.writable && space.protects(at) {
                    // The write ends the sharing with parent or child.
                    if !self.makes_dirty(pid, VirtAddr(at), Access::Write, fx)? {
                        self.resolve(pid, VirtAddr(at), Access::Write, fx)?;
                        self.kernel.stats.populated_pages += 1;
                    }
                }
                at += 4096;
                continue;
            }
            if vma.pool.is_some() {
                self.resolve(pid, VirtAddr(at), Access::Write, fx)?;
                self.kernel.stats.populated_pages += 1;
                continue;
            }
            let before = fx.cycles;
            let size = self.with_reclaim(pid, fx, |os, fx| {
                os.first_touch(pid, VirtAddr(at), Access::Write, vma, guest, fx)
            })?;
            // In a host, each first touch of a guest is one fault.
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
