//! Changes of an address space: mmap, munmap, mremap, mprotect, madvise.

use std::ops::Range;

use pagewalk_tables::{Flags, Refusal};
use pagewalk_units::{Advice, Backing, MappingSource, MemoryObject, Page, PageSize, VirtAddr};

use crate::hugetlb::PoolArea;
use crate::kernel::Kernel;
use crate::memory::order;
use crate::region::RegionKind;
use crate::space::Space;
use crate::vma::{Faults, ObjectPage, OnFork, Vma};
use crate::{Effects, Os, OsError, Pid};

impl Os {
    /// mmap: creates a mapping and unmaps the previous contents of the range
    /// first. The length is rounded up to whole pages. Errors: the address is
    /// unaligned or not canonical; no memory to split a large page in the
    /// range.
    pub fn map(
        &mut self,
        pid: Pid,
        at: VirtAddr,
        bytes: u64,
        writable: bool,
        backing: Backing,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        let (from, to) = self.range(at, bytes)?;
        self.vacate(pid, from, to, fx)?;
        let object = (backing == Backing::Shared).then(|| self.objects.create());
        self.space_mut(pid)?.vmas.insert(Vma {
            object,
            ..Vma::new(from, to, writable, backing)
        });
        self.allocate(pid, from, to, fx)
    }

    /// As [`Os::map`], for a mapping with Linux's page faults.
    pub fn mmap(
        &mut self,
        pid: Pid,
        at: VirtAddr,
        bytes: u64,
        writable: bool,
        source: MappingSource,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        let (from, to) = self.range(at, bytes)?;
        let to = match source {
            MappingSource::Pool { size, .. } => self.pool_end(size, from, to)?,
            _ => to,
        };
        self.vacate(pid, from, to, fx)?;
        let mut with_reserve = true;
        let (backing, object) = match source {
            MappingSource::Zeros { stack, reserves } => {
                with_reserve = reserves;
                let backing = if stack {
                    Backing::Stack
                } else {
                    Backing::Anonymous
                };
                (backing, None)
            }
            MappingSource::Pool {
                size,
                reserves,
                object,
                private,
            } => {
                return self.mmap_pool(pid, from, to, writable, (size, reserves), object, private);
            }
            MappingSource::Object { object, private } => {
                let backing = if private {
                    Backing::File
                } else {
                    Backing::Shared
                };
                (backing, Some(self.objects.open(&object)))
            }
        };
        self.space_mut(pid)?.vmas.insert(Vma {
            object,
            faults: Faults::Linux { copies: false },
            reserves: with_reserve,
            ..Vma::new(from, to, writable, backing)
        });
        self.allocate(pid, from, to, fx)
    }

    /// Maps pages of a pool in `from..to`, where nothing is mapped. If the pool has too few pages, ordinary ones.
    #[allow(clippy::too_many_arguments, reason = "the fields of a source")]
    fn mmap_pool(
        &mut self,
        pid: Pid,
        from: u64,
        to: u64,
        writable: bool,
        (size, reserves): (PageSize, bool),
        object: Option<MemoryObject>,
        private: bool,
    ) -> Result<(), OsError> {
        let object = object.map(|object| self.objects.open(&object));
        let backing = match object {
            Some(_) if private => Backing::File,
            Some(_) => Backing::Shared,
            None => Backing::Anonymous,
        };
        let mut area = Vma {
            object,
            faults: Faults::Linux { copies: false },
            pool: Some(PoolArea { size, owner: true }),
            ..Vma::new(from, to, writable, backing)
        };
        self.objects.pool_pages(&area.object, size);
        if reserves && !self.reserve_pool(pid, &area, size)? {
            area.pool = None;
        }
        self.space_mut(pid)?.vmas.insert(area);
        Ok(())
    }

    /// munmap: removes mappings and frees their frames. Large pages are split
    /// at the borders. If memory for that is missing, nothing changes.
    pub fn unmap(
        &mut self,
        pid: Pid,
        at: VirtAddr,
        bytes: u64,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        let (from, to) = self.range(at, bytes)?;
        self.vacate(pid, from, to, fx)
    }

    fn vacate(&mut self, pid: Pid, from: u64, to: u64, fx: &mut Effects) -> Result<(), OsError> {
        self.keeps_pool_pages_whole(pid, from, to, "munmap or mmap")?;
        fx.cycles += self.kernel.prices.syscall;
        self.zap(pid, from, to, fx)?;
        self.clear_range(pid, from, to)?;
        self.objects.sweep(&mut self.kernel);
        Ok(())
    }

    /// Removes the areas of a range, and the reservations of pages in pools. Its pages are unmapped already.
    fn clear_range(&mut self, pid: Pid, from: u64, to: u64) -> Result<(), OsError> {
        self.alive(pid)?;
        if let Some(space) = &mut self.spaces[pid as usize] {
            space.vmas.carve(from, to);
            space.unreserve(&mut self.kernel, from, to);
        }
        Ok(())
    }

    fn zap(&mut self, pid: Pid, from: u64, to: u64, fx: &mut Effects) -> Result<(), OsError> {
        self.with_reclaim(pid, fx, |os, fx| match &mut os.spaces[pid as usize] {
            Some(space) => space.zap(&mut os.kernel, from, to, fx),
            None => Ok(()),
        })
    }

    /// mremap: moves the pages of `from..from + old` with their frames to `to`
    /// and resizes the mapping to `new` bytes. Errors: ranges that overlap
    /// without the same start; a start outside any mapping; no memory for page
    /// tables, in which case the pages stay in place.
    pub fn remap(
        &mut self,
        pid: Pid,
        from: VirtAddr,
        old: u64,
        to: VirtAddr,
        new: u64,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        let (source, source_end) = self.range(from, old)?;
        let (target, target_end) = self.range(to, new)?;
        if source != target && source < target_end && target < source_end {
            return Err(OsError::Bad(format!(
                "mremap from {from} ({old} bytes) to {to} ({new} bytes): the ranges overlap"
            )));
        }
        let (old, new) = (source_end - source, target_end - target);
        self.keeps_pool_pages_whole(pid, source, source_end, "mremap")?;
        self.keeps_pool_pages_whole(pid, target, target_end, "mremap")?;
        let pool = self.space(pid)?.vmas.find(source).and_then(|v| v.pool);
        if let Some(pool) = pool
            && (new > old || target & (pool.size.bytes() - 1) != 0)
        {
            return Err(OsError::Bad(format!(
                "mremap from {from} ({old} bytes) to {to} ({new} bytes): huge pages of a pool only shrink, or move by whole pages"
            )));
        }
        if self.space(pid)?.vmas.find(source).is_none() {
            return Err(OsError::Bad(format!(
                "mremap from {from}: nothing is mapped there"
            )));
        }
        if new < old {
            self.vacate(pid, source + new, source_end, fx)?;
        } else {
            fx.cycles += self.kernel.prices.syscall;
        }
        let kept = old.min(new);
        if source != target {
            self.zap(pid, target, target_end, fx)?;
            self.with_reclaim(pid, fx, |os, fx| match &mut os.spaces[pid as usize] {
                Some(space) => relocate(space, &mut os.kernel, source, target, kept, fx),
                None => Ok(()),
            })?;
        } else if new > old {
            self.zap(pid, source_end, target_end, fx)?;
        }
        if source != target {
            self.clear_range(pid, target, target_end)?;
        }
        let space = self.space_mut(pid)?;
        if source != target {
            let reserved = &mut space.pool_reserved;
            let moved: Vec<_> = (reserved.range(source..source + kept))
                .map(|(&at, &size)| (at, size))
                .collect();
            for (at, _) in &moved {
                reserved.remove(at);
            }
            let shifted = |(at, size): (u64, PageSize)| (at - source + target, size);
            reserved.extend(moved.into_iter().map(shifted));
            for v in space.vmas.carve(source, source + kept) {
                space.vmas.insert(v.moved(v.start - source + target));
            }
        }
        if source == target && new > old {
            space.vmas.carve(source_end, target_end);
        }
        if new > old
            && let Some(last) = space.vmas.find(target + old - 1).cloned()
        {
            space.vmas.insert(last.grown(target_end));
        }
        self.objects.sweep(&mut self.kernel);
        if new > old {
            self.allocate(pid, target + old, target_end, fx)?;
        }
        Ok(())
    }

    /// Charges a system call on a range. An empty range succeeds without effect
    /// (Linux, mprotect(2) and madvise(2)).
    fn called_on(
        &self,
        at: VirtAddr,
        bytes: u64,
        fx: &mut Effects,
    ) -> Result<Option<(u64, u64)>, OsError> {
        fx.cycles += self.kernel.prices.syscall;
        if bytes == 0 {
            return Ok(None);
        }
        self.range(at, bytes).map(Some)
    }

    /// mprotect. If memory to split a large page is missing, nothing changes.
    pub fn protect(
        &mut self,
        pid: Pid,
        at: VirtAddr,
        bytes: u64,
        writable: bool,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        let Some((from, to)) = self.called_on(at, bytes, fx)? else {
            return Ok(());
        };
        self.keeps_pool_pages_whole(pid, from, to, "mprotect")?;
        self.split_at_ends(pid, from, to, fx)?;
        let Some(space) = &mut self.spaces[pid as usize] else {
            return Ok(());
        };
        // Their pages may become write-protected without being clean.
        space
            .lazily_free
            .retain(|&(start, end)| end <= from || to <= start);
        space.vmas.update(from, to, |v| v.writable = writable);
        let k = &mut self.kernel;
        let mut changed = false;
        let mut pages = Vec::new();
        for key in space.regions.overlapping(from, to) {
            pages.clear();
            space.pages_of(key, from, to, &mut pages);
            for &p in &pages {
                let Some(t) = space.table.translate(p.base) else {
                    continue;
                };
                let shared = space.vmas.find(p.base.0).is_some_and(|v| v.is_shared());
                let frame = t.frame;
                let flags = if !writable {
                    t.flags.without(Flags::WRITABLE)
                } else if shared || !k.is_shared(frame, order(p.size)) {
                    t.flags.with(Flags::WRITABLE)
                } else {
                    // Copy-on-write is still pending for this page.
                    t.flags
                };
                if flags != t.flags {
                    space.table.set_flags(p, flags);
                    changed = true;
                }
            }
        }
        if changed {
            space.invalidate_range(k, from, to, fx);
        }
        if writable {
            self.allocate(pid, from, to, fx)?;
        }
        self.shadow()
    }

    /// madvise. `DontNeed` frees the frames and keeps the mapping. Other advice
    /// is stored for later first touches.
    pub fn advise(
        &mut self,
        pid: Pid,
        at: VirtAddr,
        bytes: u64,
        advice: Advice,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        let Some((from, to)) = self.called_on(at, bytes, fx)? else {
            return Ok(());
        };
        let to = self.whole_for_advice(pid, from, to, advice)?;
        if from == to {
            return Ok(());
        }
        let change: &dyn Fn(&mut Vma) = match advice {
            Advice::DontNeed => return self.zap(pid, from, to, fx),
            Advice::Free => return self.lazily_free(pid, from, to, fx),
            Advice::Collapse => return self.collapse_range(pid, from, to, fx),
            Advice::Remove => return self.remove_behind(pid, from, to, fx),
            Advice::PageOut => return self.page_out(pid, from, to, fx),
            Advice::HugePage => &|v| v.huge = Some(true),
            Advice::NoHugePage => &|v| v.huge = Some(false),
            Advice::DontFork => &|v| v.on_fork = OnFork::Drop,
            Advice::WipeOnFork => &|v| v.on_fork = OnFork::Wipe,
            Advice::KeepOnFork => &|v| v.on_fork = OnFork::Keep,
        };
        self.space_mut(pid)?.vmas.update(from, to, change);
        Ok(())
    }

    /// `prctl(PR_SET_THP_DISABLE)`: from now on, the process and its children get no huge page, or may get them again.
    /// Pages that exist stay.
    pub fn disable_huge_pages(
        &mut self,
        pid: Pid,
        disabled: bool,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        fx.cycles += self.kernel.prices.syscall;
        self.space_mut(pid)?.no_huge = disabled;
        Ok(())
    }

    /// Splits the huge pages that `from..to` covers in part.
    pub(crate) fn split_at_ends(
        &mut self,
        pid: Pid,
        from: u64,
        to: u64,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        self.with_reclaim(pid, fx, |os, fx| match &mut os.spaces[pid as usize] {
            Some(space) => {
                space.split_at(&mut os.kernel, from, fx)?;
                space.split_at(&mut os.kernel, to, fx)
            }
            None => Ok(()),
        })
    }

    /// MADV_REMOVE: frees the pages of the objects behind the range, for all processes.
    fn remove_behind(
        &mut self,
        pid: Pid,
        from: u64,
        to: u64,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        let areas = self.space(pid)?.vmas.iter();
        let inside: Vec<(ObjectPage, u64)> = areas
            .filter(|v| v.is_shared() && v.start < to && from < v.end)
            .filter_map(|v| {
                let first = v.start.max(from);
                Some((v.object_page(first)?, (v.end.min(to) - first) >> 12))
            })
            .collect();
        for (first, pages) in inside {
            let range = first.index..first.index + pages;
            self.remove_pages(first.object, range, false, fx)?;
        }
        Ok(())
    }

    /// `fallocate(FALLOC_FL_PUNCH_HOLE)`: frees pages of the object with this key, for all processes.
    pub fn punch_hole(
        &mut self,
        key: u64,
        pages: Range<u64>,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        fx.cycles += self.kernel.prices.syscall;
        match self.objects.named(key) {
            Some(object) => self.remove_pages(object, pages, false, fx),
            None => Ok(()),
        }
    }

    /// `ftruncate`: the object with this key has `pages` pages from now on. Those after them are freed, and private
    /// copies of them, too (`unmap_mapping_range` of Linux mm/memory.c with `even_cows`).
    pub fn truncate(&mut self, key: u64, pages: u64, fx: &mut Effects) -> Result<(), OsError> {
        fx.cycles += self.kernel.prices.syscall;
        let Some(object) = self.objects.named(key) else {
            return Ok(());
        };
        self.objects.resize(object, pages);
        self.remove_pages(object, pages..u64::MAX, true, fx)
    }

    fn remove_pages(
        &mut self,
        object: u64,
        pages: Range<u64>,
        copies: bool,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        for index in 0..self.spaces.len() {
            let Some(space) = &self.spaces[index] else {
                continue;
            };
            let mut gone = Vec::new();
            for area in space.vmas.iter() {
                let Some(first) = area.object_page(area.start).filter(|p| p.object == object)
                else {
                    continue;
                };
                let length = (area.end - area.start) >> 12;
                let at =
                    |page: u64| area.start + (page.saturating_sub(first.index).min(length) << 12);
                // Only whole pages of a pool are removed.
                let whole = area.pool.map_or(4096, |pool| pool.size.bytes());
                let (from, to) = (
                    at(pages.start).next_multiple_of(whole),
                    at(pages.end) & !(whole - 1),
                );
                if from >= to {
                    continue;
                }
                if copies || area.faults != (Faults::Linux { copies: true }) {
                    gone.push((from, to));
                    continue;
                }
                let own = |at: &u64| {
                    let mapped = space.table.translate(VirtAddr(*at)).map(|t| t.frame);
                    let page = area.object_page(*at).and_then(|p| self.objects.frame(p));
                    mapped.is_some() && mapped == page
                };
                gone.extend(
                    (from..to)
                        .step_by(4096)
                        .filter(own)
                        .map(|at| (at, at + 4096)),
                );
            }
            for (from, to) in gone {
                if let Some(space) = &mut self.spaces[index] {
                    let zapped = space.zap(&mut self.kernel, from, to, fx);
                    zapped.map_err(|refusal| self.stuck(refusal))?;
                }
            }
        }
        self.objects.remove(object, pages, &mut self.kernel);
        self.back(fx)?;
        self.shadow()
    }
}

/// Moves the pages of `from..from + bytes` to `to`, where nothing is mapped. On
/// failure only page splits remain.
fn relocate(
    space: &mut Space,
    k: &mut Kernel,
    from: u64,
    to: u64,
    bytes: u64,
    fx: &mut Effects,
) -> Result<(), Refusal> {
    // The frames of a reservation are tied to its address.
    space.demote_range(k, from, from + bytes, fx);
    space.demote_range(k, to, to + bytes, fx);
    space.split_at(k, from, fx)?;
    space.split_at(k, from + bytes, fx)?;
    // A large page stays whole if the distance is a multiple of its size.
    let distance = to.abs_diff(from);
    for (size, kind) in [
        (PageSize::G1, RegionKind::Giant),
        (PageSize::M2, RegionKind::Huge),
    ] {
        if distance.is_multiple_of(size.bytes()) {
            continue;
        }
        for key in space.regions.overlapping(from, from + bytes) {
            if space.regions.get(key).is_some_and(|r| r.kind == kind) {
                space.split(k, VirtAddr(key << 21).page(size), fx)?;
            }
        }
    }
    let mut pages = Vec::new();
    for key in space.regions.overlapping(from, from + bytes) {
        space.pages_of(key, from, from + bytes, &mut pages);
    }
    let moved = |p: Page<VirtAddr>| VirtAddr(p.base.0 - from + to).page(p.size);
    // Pages are mapped at both places for a moment, so that a failure can be
    // undone.
    for (i, &p) in pages.iter().enumerate() {
        let Some(t) = space.table.translate(p.base) else {
            continue;
        };
        let frame = t.frame;
        if let Err(refusal) = space.map_page(k, moved(p), frame, t.flags, fx) {
            for &q in &pages[..i] {
                space.unmap_page(k, moved(q), fx);
            }
            return Err(refusal);
        }
    }
    for &p in &pages {
        space.unmap_page(k, p, fx);
    }
    for vpn in space.forget_swapped(from, from + bytes) {
        space.swapped.insert(vpn - (from >> 12) + (to >> 12));
    }
    if !pages.is_empty() {
        space.invalidate_range(k, from, from + bytes, fx);
    }
    Ok(())
}
