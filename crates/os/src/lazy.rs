//! MADV_FREE: pages that are freed when memory is short, unless they are written before.
//!
//! Page tables here have no dirty bits. The pages are write-protected instead, and the first write to one counts as the
//! processor's own update of its dirty bit.

use pagewalk_tables::Flags;
use pagewalk_units::{Access, Page, VirtAddr};

use crate::kernel::Kernel;
use crate::memory::order;
use crate::space::Space;
use crate::{Effects, Os, OsError, Pid};

/// The pages of `from..to` that the process alone owns and that belong to no object.
fn own_pages(space: &Space, k: &Kernel, from: u64, to: u64) -> Vec<Page<VirtAddr>> {
    let mut pages = Vec::new();
    for key in space.regions.overlapping(from, to) {
        space.pages_of(key, from, to, &mut pages);
    }
    pages.retain(|page| {
        let area = space.vmas.find(page.base.0);
        let inside = page.base.0 >= from && page.base.0 + page.size.bytes() <= to;
        let frame = space.table.translate(page.base).map(|t| t.frame);
        inside
            && area.is_some_and(|v| v.object.is_none() && v.writable && v.pool.is_none())
            && frame.is_some_and(|frame| !k.is_shared(frame, order(page.size)))
    });
    pages
}

impl Os {
    /// Notes the pages of the range, which are clean from now on. Huge pages that the range covers in part are split, as
    /// Linux does (`madvise_free_huge_pmd`).
    pub(crate) fn lazily_free(
        &mut self,
        pid: Pid,
        from: u64,
        to: u64,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        self.split_at_ends(pid, from, to, fx)?;
        let Some(space) = &mut self.spaces[pid as usize] else {
            return Ok(());
        };
        let k = &mut self.kernel;
        let pages = own_pages(space, k, from, to);
        for &page in &pages {
            if let Some(t) = space.table.translate(page.base) {
                space
                    .table
                    .set_flags(page, t.flags.without(Flags::WRITABLE));
            }
        }
        if !pages.is_empty() {
            space.forked = true;
            space.invalidate_range(k, from, to, fx);
        }
        if space.lazily_free.last() != Some(&(from, to)) {
            space.lazily_free.push((from, to));
        }
        self.shadow()
    }

    /// Makes the page at `at` dirty, if the access writes to a clean page of MADV_FREE. This is the processor's work and
    /// takes no kernel time.
    pub(crate) fn makes_dirty(
        &mut self,
        pid: Pid,
        at: VirtAddr,
        access: Access,
        fx: &mut Effects,
    ) -> Result<bool, OsError> {
        let noted = |space: &Space| {
            let mut ranges = space.lazily_free.iter();
            ranges.any(|&(from, to)| (from..to).contains(&at.0))
        };
        if access != Access::Write || !self.space(pid).is_ok_and(noted) {
            return Ok(false);
        }
        let Some(space) = &mut self.spaces[pid as usize] else {
            return Ok(false);
        };
        let k = &mut self.kernel;
        let clean = space.table.translate(at);
        let Some(clean) = clean.filter(|t| !t.flags.contains(Flags::WRITABLE)) else {
            return Ok(false);
        };
        let page = at.page(clean.size);
        let end = page.base.0 + page.size.bytes();
        if own_pages(space, k, page.base.0, end).is_empty() {
            return Ok(false);
        }
        space
            .table
            .set_flags(page, clean.flags.with(Flags::WRITABLE));
        space.invalidate_page(k, page, fx);
        self.shadow()?;
        Ok(true)
    }

    /// Frees the clean pages of all ranges of MADV_FREE. Returns true if there were any.
    pub(crate) fn free_lazily(&mut self, fx: &mut Effects) -> bool {
        let free = self.kernel.memory().free_frames();
        let k = &mut self.kernel;
        for space in self.spaces.iter_mut().flatten() {
            for (from, to) in std::mem::take(&mut space.lazily_free) {
                for page in own_pages(space, k, from, to) {
                    let t = space.table.translate(page.base);
                    if t.is_some_and(|t| !t.flags.contains(Flags::WRITABLE)) {
                        // A whole page is not split, which alone could fail.
                        let end = page.base.0 + page.size.bytes();
                        let _ = space.zap(k, page.base.0, end, fx);
                    }
                }
            }
        }
        self.kernel.memory().free_frames() > free
    }
}
