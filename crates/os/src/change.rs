//! Changes of an address space: mmap, munmap, mremap, mprotect, madvise.

use pagewalk_tables::{Flags, Refusal};
use pagewalk_units::{Advice, Backing, Page, PageSize, VirtAddr};

use crate::kernel::Kernel;
use crate::memory::order;
use crate::region::RegionKind;
use crate::space::Space;
use crate::vma::Vma;
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
            start: from,
            end: to,
            writable,
            backing,
            huge: None,
            object,
            inferred: false,
        });
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
        fx.cycles += self.kernel.prices.syscall;
        self.zap(pid, from, to, fx)?;
        self.space_mut(pid)?.vmas.carve(from, to);
        self.objects.sweep(&mut self.kernel);
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
        let space = self.space_mut(pid)?;
        if source != target {
            space.vmas.carve(target, target_end);
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
        self.with_reclaim(pid, fx, |os, fx| match &mut os.spaces[pid as usize] {
            Some(space) => {
                space.split_at(&mut os.kernel, from, fx)?;
                space.split_at(&mut os.kernel, to, fx)
            }
            None => Ok(()),
        })?;
        let Some(space) = &mut self.spaces[pid as usize] else {
            return Ok(());
        };
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
                let shared = space
                    .vmas
                    .find(p.base.0)
                    .is_some_and(|v| v.object.is_some());
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
        let huge = match advice {
            Advice::DontNeed => return self.zap(pid, from, to, fx),
            Advice::HugePage => true,
            Advice::NoHugePage => false,
        };
        let space = self.space_mut(pid)?;
        space.vmas.update(from, to, |v| v.huge = Some(huge));
        Ok(())
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
