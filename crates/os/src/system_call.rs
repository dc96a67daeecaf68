//! System calls that read or write the program's memory.

use pagewalk_units::{Access, PopulateAs, VirtAddr};

use crate::{Effects, Os, OsError, Pid};

impl Os {
    /// The kernel populates `bytes` at `at` for the process in one call: MAP_POPULATE, `mlock`, MADV_POPULATE_READ,
    /// MADV_POPULATE_WRITE. Each page that is missing is a page fault of the kernel without a trap
    /// (`populate_vma_page_range` of Linux mm/gup.c). Addresses outside all areas are skipped. Areas without access are
    /// not populated; they are taken to be those that are neither writable nor of an object. Error: no memory; pages
    /// mapped before stay mapped.
    pub fn kernel_populate(
        &mut self,
        pid: Pid,
        at: VirtAddr,
        bytes: u64,
        populate: PopulateAs,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        let end = at.0.saturating_add(bytes);
        let mut page = at.0 & !0xfff;
        while page < end
            && let Some(vma) = self.space(pid)?.vmas.from(page).cloned()
        {
            page = page.max(vma.start);
            let access = match populate {
                PopulateAs::Write if vma.writable => Access::Write,
                PopulateAs::Area if vma.writable && !vma.is_shared() => Access::Write,
                _ => Access::Read,
            };
            if !vma.writable && vma.object.is_none() {
                page = vma.end;
                continue;
            }
            while page < end.min(vma.end) {
                let space = self.space(pid)?;
                let misses = !space.has(page) || access == Access::Write && space.protects(page);
                if misses && !self.makes_dirty(pid, VirtAddr(page), access, fx)? {
                    self.fault_without_trap(pid, VirtAddr(page), access, fx)?;
                    self.kernel.stats.kernel_faults += 1;
                }
                page += 4096;
            }
        }
        Ok(())
    }

    /// The kernel reads or writes `bytes` at `at` for the process during a system call.
    /// Each page that is unmapped, or write-protected for copy-on-write, costs the page
    /// fault that the kernel takes when it copies (Linux, `copy_to_user` and
    /// `copy_from_user`). The cost is added to `fx.cycles`. The copying itself costs
    /// nothing. Addresses outside all areas are skipped, and a read-only area is only
    /// read. Error: no memory; pages mapped before stay mapped.
    pub fn kernel_touch(
        &mut self,
        pid: Pid,
        at: VirtAddr,
        bytes: u64,
        writes: bool,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        self.alive(pid)?;
        let end = at.0.saturating_add(bytes);
        let mut page = at.0 & !0xfff;
        while page < end {
            let vma = match self.area(pid, VirtAddr(page), Access::Read) {
                Ok(vma) => vma,
                Err(OsError::SegmentationFault { .. } | OsError::BeyondWidth { .. }) => {
                    page = page.saturating_add(4096);
                    continue;
                }
                Err(e) => return Err(e),
            };
            let access = if writes && vma.writable {
                Access::Write
            } else {
                Access::Read
            };
            while page < end.min(vma.end) {
                let space = self.space(pid)?;
                if !space.has(page) || access == Access::Write && space.protects(page) {
                    let at = VirtAddr(page);
                    if !self.map_before(pid, at, access, fx)?
                        && !self.makes_dirty(pid, at, access, fx)?
                    {
                        self.fault(pid, at, access, fx)?;
                        self.kernel.stats.kernel_faults += 1;
                    }
                }
                page += 4096;
            }
        }
        Ok(())
    }
}
