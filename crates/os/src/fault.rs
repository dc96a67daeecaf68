//! Page faults: one path for all designs.

use pagewalk_tables::{Flags, Purpose, Refusal};
use pagewalk_units::{Access, Backing, Cycle, Page, PageSize, VirtAddr};

use crate::kernel::Kernel;
use crate::memory::order;
use crate::space::Space;
use crate::table::Mapped;
use crate::touch::{ForGuest, Touch};
use crate::vma::{Faults, Vma};
use crate::{Effects, Os, OsError, Pid};

/// Maximum stack size: the default of `ulimit -s`, 8 MB.
const STACK_LIMIT: u64 = 8 << 20;

impl Os {
    /// Handles a page fault of the program and adds its cost to `fx.cycles`, unless the
    /// page counts as mapped before ([`Os::map_before`]). Errors: a segmentation fault;
    /// or no memory, in which case nothing has changed.
    pub fn fault(
        &mut self,
        pid: Pid,
        at: VirtAddr,
        access: Access,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        if self.map_before(pid, at, access, fx)? || self.makes_dirty(pid, at, access, fx)? {
            return Ok(());
        }
        self.serve(pid, at, access, self.kernel.prices.trap, fx)
    }

    /// As [`Os::fault`], for a page that the kernel populates.
    pub(crate) fn fault_without_trap(
        &mut self,
        pid: Pid,
        at: VirtAddr,
        access: Access,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        self.serve(pid, at, access, self.kernel.prices.populate, fx)
    }

    /// Serves a fault that costs `entry` beside its work.
    fn serve(
        &mut self,
        pid: Pid,
        at: VirtAddr,
        access: Access,
        entry: Cycle,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        let before = fx.cycles;
        fx.cycles += entry;
        let done = self.resolve(pid, at, access, fx);
        let cost = fx.cycles - before;
        self.kernel.stats.fault_cycles += cost;
        self.kernel.fault_cost.record(cost);
        done
    }

    /// Retries `action` until it succeeds, or until the policy cannot reclaim frames or
    /// reclaim would not help.
    pub(crate) fn with_reclaim<T>(
        &mut self,
        pid: Pid,
        fx: &mut Effects,
        action: impl FnMut(&mut Os, &mut Effects) -> Result<T, Refusal>,
    ) -> Result<T, OsError> {
        let done = self.attempt(pid, fx, action);
        // Also after a failure: large pages may have been split.
        self.shadow()?;
        done
    }

    fn attempt<T>(
        &mut self,
        pid: Pid,
        fx: &mut Effects,
        mut action: impl FnMut(&mut Os, &mut Effects) -> Result<T, Refusal>,
    ) -> Result<T, OsError> {
        self.alive(pid)?;
        loop {
            self.kernel.denied = false;
            match action(self, fx) {
                Ok(value) => {
                    self.back(fx)?;
                    return Ok(value);
                }
                Err(Refusal::NoFrames(refusal)) => {
                    let reclaimed = self.free_lazily(fx)
                        || self.objects.reclaim(&mut self.kernel)
                        || self
                            .placement
                            .reclaim(&mut self.spaces, &mut self.kernel, fx);
                    if !reclaimed {
                        return Err(self.refusal(refusal.bytes));
                    }
                }
                Err(Refusal::Limit(limit)) => {
                    let at = self.kernel.refused;
                    return Err(OsError::TableLimit { at, limit });
                }
            }
        }
    }

    /// The error for a failed allocation of `wanted` bytes: memory is exhausted or
    /// fragmented.
    pub(crate) fn refusal(&self, wanted: u64) -> OsError {
        let k = &self.kernel;
        let free = k.memory().free_frames() << 12;
        // The refused frame may be free again: the page that the table was to map.
        if free >= wanted && (wanted > 4096 || !k.denied) {
            return OsError::NoContiguous {
                wanted,
                free,
                at: k.refused,
                why: k.memory().no_block(wanted, k.denied),
            };
        }
        OsError::OutOfMemory { wanted, free }
    }

    /// Serves the fault of an `access` to `at`.
    pub(crate) fn resolve(
        &mut self,
        pid: Pid,
        at: VirtAddr,
        access: Access,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        let vma = self.area(pid, at, access)?;
        if let Some(pool) = vma.pool {
            return self.pool_fault(pid, at, access, &vma, pool, fx);
        }
        self.with_reclaim(pid, fx, |os, fx| {
            let Some(space) = os.spaces[pid as usize].as_mut() else {
                return Ok(());
            };
            match space.table.translate(at) {
                Some(t) if access == Access::Write && !t.flags.contains(Flags::WRITABLE) => {
                    write_protected(space, &mut os.kernel, at, t, fx)
                }
                Some(_) => {
                    os.kernel.stats.spurious_faults += 1;
                    Ok(())
                }
                None => os.first_touch(pid, at, access, &vma, None, fx).map(|_| ()),
            }
        })
    }

    /// The area of `at`, if it allows `access`. Grows stacks and infers missing
    /// mappings.
    pub(crate) fn area(&mut self, pid: Pid, at: VirtAddr, access: Access) -> Result<Vma, OsError> {
        let refused = OsError::SegmentationFault { at, access };
        if !self.canonical(at.0, 1) {
            return Err(self.beyond_width(at.0).unwrap_or(refused));
        }
        let space = self.space_mut(pid)?;
        if space.vmas.find(at.0).is_none() && !grow_stack(space, at.0) {
            if !space.infer {
                return Err(refused);
            }
            let start = (at.0 & !((1 << 21) - 1)).max(space.vmas.end_below(at.0));
            let above = space.vmas.above(at.0).map_or(u64::MAX, |v| v.start);
            let end = (at.0 | ((1 << 21) - 1)).saturating_add(1) & !0xfff;
            let end = end.min(above);
            space.vmas.insert(Vma {
                inferred: true,
                ..Vma::new(start, end, true, Backing::Anonymous)
            });
            self.kernel.stats.inferred_mappings += 1;
        }
        let space = self.space_mut(pid)?;
        let Some(vma) = space.vmas.find(at.0) else {
            return Err(refused);
        };
        let mut vma = vma.clone();
        if access == Access::Write && !vma.writable {
            if !space.infer {
                return Err(refused);
            }
            let base = at.0 & !((1 << 21) - 1);
            let (from, to) = (
                base.max(vma.start),
                (at.0 | ((1 << 21) - 1)).min(vma.end - 1) + 1,
            );
            space.vmas.update(from, to, |v| v.writable = true);
            if let Some(changed) = space.vmas.find(at.0) {
                vma = changed.clone();
            }
        }
        Ok(vma)
    }

    /// Backs the unmapped page at `at` and charges the cost. In a host, `guest`
    /// describes the range of guest memory.
    pub(crate) fn first_touch(
        &mut self,
        pid: Pid,
        at: VirtAddr,
        access: Access,
        vma: &Vma,
        guest: Option<&ForGuest>,
        fx: &mut Effects,
    ) -> Result<PageSize, Refusal> {
        let Some(space) = self.spaces[pid as usize].as_mut() else {
            return Ok(PageSize::K4);
        };
        let touch = Touch {
            guest,
            huge: if space.no_huge { Some(false) } else { vma.huge },
            ..Touch::new(at, vma)
        };
        // True if the page is zeroed.
        let mut fresh = vma.backing != Backing::File;
        let size = match vma.object_page(at.0) {
            _ if vma.is_linux() => match self.linux_touch(&touch, access, vma, pid, fx)? {
                Some((size, zeroed)) => {
                    fresh = zeroed;
                    size
                }
                None => {
                    let Some(space) = self.spaces[pid as usize].as_mut() else {
                        return Ok(PageSize::K4);
                    };
                    self.placement.place(&touch, space, &mut self.kernel, fx)?
                }
            },
            Some(page) => {
                let objects = &mut self.objects;
                objects.map(page, &touch, space, &mut self.kernel, fx)?;
                PageSize::K4
            }
            None => self.placement.place(&touch, space, &mut self.kernel, fx)?,
        };
        let Some(space) = self.spaces[pid as usize].as_mut() else {
            return Ok(size);
        };
        let base = at.0 & !(size.bytes() - 1);
        let swapped = space.forget_swapped(base, base + size.bytes()).len() as u64;
        let k = &mut self.kernel;
        match size {
            PageSize::K4 => k.stats.faults_4kb += 1,
            PageSize::M2 => k.stats.faults_2mb += 1,
            PageSize::G1 => k.stats.faults_1gb += 1,
        }
        fx.cycles += self.movers.swap_in(swapped);
        // A page of a file is in the page cache. A swapped-out page is overwritten by
        // the read.
        if fresh {
            let zeroed = size.bytes() - (swapped << 12);
            k.stats.zeroed_bytes += zeroed;
            fx.cycles += k.prices.zero(zeroed);
        }
        Ok(size)
    }
}

fn grow_stack(space: &mut Space, at: u64) -> bool {
    let Some(stack) = space.vmas.above(at) else {
        return false;
    };
    if stack.backing != Backing::Stack || stack.end - (at & !0xfff) > STACK_LIMIT {
        return false;
    }
    let below = Vma {
        start: at & !0xfff,
        end: stack.start,
        ..stack.clone()
    };
    space.vmas.insert(below);
    true
}

/// Handles a write to a write-protected page of a writable area. A page of shared memory becomes writable: Linux notes
/// the first write to a page of a file. Others are copied.
fn write_protected(
    space: &mut Space,
    k: &mut Kernel,
    at: VirtAddr,
    mapped: Mapped,
    fx: &mut Effects,
) -> Result<(), Refusal> {
    let area = space.vmas.find_mut(at.0).filter(|area| area.is_linux());
    if let Some(area) = area {
        if area.is_shared() {
            let page = at.page(mapped.size);
            let flags = mapped.flags.with(Flags::WRITABLE);
            space.table.set_flags(page, flags);
            k.stats.cow_faults += 1;
            space.invalidate_page(k, page, fx);
            return Ok(());
        }
        if area.object.is_some() {
            area.faults = Faults::Linux { copies: true };
        }
        if mapped.size == PageSize::M2
            && k.is_zero(mapped.frame)
            && fill_huge_zero_page(space, k, at, mapped, fx)?
        {
            return Ok(());
        }
    }
    copy_on_write(space, k, at, mapped, fx)
}

/// Replaces the huge zero page by a zeroed huge page of its own (Linux since 6.13, `do_huge_zero_wp_pmd`). Returns
/// false if there is no block for it; the region then gets small pages.
fn fill_huge_zero_page(
    space: &mut Space,
    k: &mut Kernel,
    at: VirtAddr,
    mapped: Mapped,
    fx: &mut Effects,
) -> Result<bool, Refusal> {
    let page = at.page(PageSize::M2);
    let vpn = page.base.0 >> 12;
    let Ok(frame) = k.frame(space.want(PageSize::M2, Purpose::Anonymous { vpn })) else {
        k.stats.huge_fallbacks += 1;
        return Ok(false);
    };
    if !replace(
        space,
        k,
        page,
        frame,
        mapped.flags.with(Flags::WRITABLE),
        fx,
    )? {
        return Ok(false);
    }
    k.stats.cow_faults += 1;
    k.stats.zeroed_bytes += page.size.bytes();
    fx.cycles += k.prices.zero(page.size.bytes());
    space.invalidate_page(k, page, fx);
    Ok(true)
}

/// Maps `page` to `frame` instead of the frame that it has. Returns false, with the page as before and `frame` free, if
/// the table has no memory.
fn replace(
    space: &mut Space,
    k: &mut Kernel,
    page: Page<VirtAddr>,
    frame: u64,
    flags: Flags,
    fx: &mut Effects,
) -> Result<bool, Refusal> {
    let (old, before) = space.unmap_page(k, page, fx);
    if space.map_page(k, page, frame, flags, fx).is_err() {
        k.put(frame, order(page.size));
        space.map_page(k, page, old, before, fx)?;
        return Ok(false);
    }
    k.put(old, order(page.size));
    Ok(true)
}

/// Handles a write to a write-protected page of a writable area. With a single owner the
/// page becomes writable. Otherwise the 4 KB page is copied, after a large page was
/// split (Linux since 5.8, commit 3917c80280c9).
fn copy_on_write(
    space: &mut Space,
    k: &mut Kernel,
    at: VirtAddr,
    mapped: Mapped,
    fx: &mut Effects,
) -> Result<(), Refusal> {
    let Mapped { frame, size, flags } = mapped;
    let page = at.page(size);
    if !k.is_shared(frame, order(size)) {
        space.table.set_flags(page, flags.with(Flags::WRITABLE));
        k.stats.cow_faults += 1;
        space.invalidate_page(k, page, fx);
        return Ok(());
    }
    let mut page = page;
    let mut frame = frame;
    while page.size != PageSize::K4 {
        space.split(k, page, fx)?;
        let next = if page.size == PageSize::G1 {
            PageSize::M2
        } else {
            PageSize::K4
        };
        let part = at.page(next);
        frame += (part.base.0 - page.base.0) >> 12;
        page = part;
    }
    if !k.is_shared(frame, 0) {
        space.table.set_flags(page, flags.with(Flags::WRITABLE));
    } else {
        let vpn = page.base.0 >> 12;
        let zero = k.is_zero(frame);
        let purpose = if zero {
            Purpose::Anonymous { vpn }
        } else {
            Purpose::Copy { vpn }
        };
        let copy = k.frame(space.want(PageSize::K4, purpose))?;
        let (old, flags) = space.unmap_page(k, page, fx);
        if let Err(refusal) = space.map_page(k, page, copy, flags.with(Flags::WRITABLE), fx) {
            k.put(copy, 0);
            space.map_page(k, page, old, flags, fx)?;
            return Err(refusal);
        }
        k.put(old, 0);
        if zero {
            k.stats.zeroed_bytes += 4096;
            fx.cycles += k.prices.zero(4096);
        } else {
            k.stats.cow_copies += 1;
            k.stats.copied_bytes += 4096;
            fx.cycles += k.prices.copy(4096);
        }
    }
    k.stats.cow_faults += 1;
    space.invalidate_page(k, page, fx);
    Ok(())
}
