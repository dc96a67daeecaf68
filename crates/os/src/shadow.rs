//! Ideal shadow paging (Revelator, section 7.3). For each table of a guest the host maintains a
//! shadow table from guest-virtual to physical addresses, which the hardware walks.
//!
//! At the end of every call the shadow equals the composition of the guest's and the host's
//! tables. A page has the smaller of its two sizes. Maintenance takes no time. Guest changes
//! are recorded as the table changes, host changes through their invalidations.

use std::collections::BTreeSet;

use pagewalk_stats::Tree;
use pagewalk_tables::{
    Flags, FrameSource, Invalidation, MapError, MapWork, Next, PageTable, PageTableSpec, Radix,
    Refusal, Translation, Walk, WalkCaches, WalkState,
};
use pagewalk_units::{Asid, Frame, GuestPhysAddr, Page, PageSize, PhysAddr, VirtAddr};

use crate::host::Host;
use crate::kernel::{Kernel, TableFrames};
use crate::table::{Mapped, Table};
use crate::{Effects, Os, OsError, Pid};

const REGION_SHIFT: u32 = 21;

/// Levels of the shadow of a guest's table, enough for its addresses.
pub fn levels(guest: &PageTableSpec) -> u8 {
    if guest.address_bits() > 48 { 5 } else { 4 }
}

/// The host's state of all shadows.
#[derive(Default)]
pub struct Shadows {
    /// Reverse map: a 2 MB region of guest-physical addresses, with a process and a region of
    /// its virtual addresses that has, or had, pages there.
    behind: BTreeSet<(u64, Pid, u64)>,
    /// The last entry added to `behind`.
    last: Option<(u64, Pid, u64)>,
    /// Guest-physical ranges whose host mapping has changed.
    moved: Vec<(u64, u64)>,
}

impl Shadows {
    /// Records the host's invalidations.
    pub fn note(&mut self, what: &[Invalidation]) {
        self.moved.extend(what.iter().map(|what| match *what {
            Invalidation::Page { page, .. } => (page.base.0, page.base.0 + page.size.bytes()),
            Invalidation::Range { at, bytes, .. } => (at.0, at.0 + bytes),
            Invalidation::Space { .. } => (0, u64::MAX),
        }));
    }

    /// Records that the page of `pid` at `va` lies at `gpa`.
    #[inline]
    fn record(&mut self, gpa: u64, pid: Pid, va: u64) {
        let entry = (gpa >> REGION_SHIFT, pid, va >> REGION_SHIFT);
        if self.last != Some(entry) {
            self.last = Some(entry);
            self.behind.insert(entry);
        }
    }

    /// Takes the virtual regions that have pages where the host's mapping has changed. Their
    /// update records them again.
    fn take_moved(&mut self) -> BTreeSet<(Pid, u64)> {
        let mut found = BTreeSet::new();
        if self.moved.is_empty() {
            return found;
        }
        self.last = None;
        for (from, to) in std::mem::take(&mut self.moved) {
            let first = (from >> REGION_SHIFT, 0, 0);
            let last = ((to - 1) >> REGION_SHIFT, Pid::MAX, u64::MAX);
            let known: Vec<_> = self.behind.range(first..=last).copied().collect();
            for entry in known {
                self.behind.remove(&entry);
                found.insert((entry.1, entry.2));
            }
        }
        found
    }

    /// Removes a process that has no pages left.
    fn forget(&mut self, pid: Pid) {
        self.last = None;
        self.behind.retain(|entry| entry.1 != pid);
    }
}

/// A guest's table and its shadow. As a page table it behaves like the guest's.
pub struct Shadowed {
    guest: Box<dyn PageTable<VirtAddr, GuestPhysAddr>>,
    shadow: Radix<VirtAddr, PhysAddr>,
    /// Pages of the guest's table that have changed since the last update of the shadow.
    changed: Vec<Page<VirtAddr>>,
}

/// The composed translation of guest and host.
#[derive(PartialEq)]
struct Composed {
    page: Page<VirtAddr>,
    frame: u64,
    flags: Flags,
}

impl Shadowed {
    /// An empty shadow with `levels` levels for an empty table of `asid`.
    pub fn new(guest: Box<dyn PageTable<VirtAddr, GuestPhysAddr>>, levels: u8, asid: Asid) -> Self {
        Shadowed {
            guest,
            shadow: Radix::new(levels, asid),
            changed: Vec::new(),
        }
    }

    /// The table that the hardware walks.
    pub fn shadow(&self) -> &Radix<VirtAddr, PhysAddr> {
        debug_assert!(
            self.changed.is_empty(),
            "every call ends with the shadow up to date"
        );
        &self.shadow
    }

    /// The composed translation of `va`, and its guest-physical address.
    fn composed(&self, va: VirtAddr, host: &Table) -> Option<(Composed, u64)> {
        let guest = self.guest.translate(va)?;
        let gpa = guest.frame.base.0 + (va.0 & (guest.size.bytes() - 1));
        let Mapped { frame, size, .. } = host.translate(VirtAddr(gpa))?;
        let least = guest.size.min(size);
        let base = gpa & !(least.bytes() - 1);
        let composed = Composed {
            page: va.page(least),
            frame: frame + ((base & (size.bytes() - 1)) >> 12),
            flags: guest.flags,
        };
        Some((composed, gpa))
    }

    fn present(&self, va: VirtAddr) -> Option<Composed> {
        self.shadow.translate(va).map(|t| Composed {
            page: va.page(t.size),
            frame: t.frame.base.0 >> 12,
            flags: t.flags,
        })
    }

    fn drop_page(&mut self, page: Page<VirtAddr>, frames: &mut TableFrames<'_>) {
        let dropped = self.shadow.unmap(page, frames);
        debug_assert!(dropped.is_some(), "{page:?} was found there");
    }

    /// Updates the shadow for `from..to`, and for all of any page that extends beyond. On
    /// failure, completed updates remain.
    fn update(
        &mut self,
        (mut from, mut to): (u64, u64),
        host: &Table,
        k: &mut Kernel,
        mut record: impl FnMut(u64, u64),
    ) -> Result<(), Refusal> {
        let mut frames = TableFrames::new(k);
        while from < to {
            let va = VirtAddr(from);
            let found = self.composed(va, host);
            if let Some((_, gpa)) = &found {
                record(*gpa, from);
            }
            let wanted = found.map(|(composed, _)| composed);
            if let Some(old) = self.present(va) {
                let same = |new: &Composed| (new.page, new.frame) == (old.page, old.frame);
                if let Some(new) = wanted.filter(same) {
                    if new.flags != old.flags {
                        self.shadow.set_flags(new.page, new.flags);
                    }
                    from = old.page.base.0 + old.page.size.bytes();
                    continue;
                }
                self.drop_page(old.page, &mut frames);
                from = from.min(old.page.base.0);
                to = to.max(old.page.base.0 + old.page.size.bytes());
                continue;
            }
            let Some(new) = wanted else {
                from += 4096;
                continue;
            };
            let end = new.page.base.0 + new.page.size.bytes();
            let base = PhysAddr(new.frame << 12);
            match (self.shadow).map(new.page, Frame { base }, new.flags, &mut frames) {
                Ok(_) => from = end,
                Err(MapError::Refused(refusal)) => return Err(refusal),
                // Smaller pages are present, which have become this page.
                Err(MapError::Occupied) => {
                    let mut at = new.page.base.0;
                    while at < end {
                        if let Some(old) = self.present(VirtAddr(at)) {
                            self.drop_page(old.page, &mut frames);
                        }
                        at += PageSize::K4.bytes();
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs [`Shadowed::update`] with the memory of `host`. Error: the memory is exhausted.
    fn update_with_host(
        &mut self,
        pid: Pid,
        range: (u64, u64),
        host: &mut Host,
    ) -> Result<(), OsError> {
        loop {
            let Host {
                os,
                machine,
                shadows: Some(shadows),
                ..
            } = host
            else {
                return Ok(());
            };
            let Some(Some(vm)) = os.spaces.get(*machine as usize) else {
                return Ok(());
            };
            let record = |gpa, va| shadows.record(gpa, pid, va);
            match self.update(range, &vm.table, &mut os.kernel, record) {
                Ok(()) => return Ok(()),
                Err(Refusal::NoFrames(refusal)) => {
                    let (spaces, k) = (&mut os.spaces, &mut os.kernel);
                    // No walk reads the host's table, so reclaim needs no invalidation.
                    if !os.placement.reclaim(spaces, k, &mut Effects::default()) {
                        return Err(OsError::Host(Box::new(os.refusal(refusal.bytes))));
                    }
                }
                Err(Refusal::Limit(limit)) => {
                    let at = VirtAddr(range.0);
                    return Err(OsError::TableLimit { at, limit });
                }
            }
        }
    }
}

impl Os {
    /// Updates all shadows. Error: the host has no memory for them.
    #[inline]
    pub(crate) fn shadow(&mut self) -> Result<(), OsError> {
        match &mut self.host {
            Some(host) if host.shadows.is_some() => self.update_shadows(),
            _ => Ok(()),
        }
    }

    fn update_shadows(&mut self) -> Result<(), OsError> {
        let Some(host) = &mut self.host else {
            return Ok(());
        };
        for (pid, space) in (0..).zip(&mut self.spaces) {
            let Some(Table::Shadowed(table)) = space.as_mut().map(|s| &mut s.table) else {
                continue;
            };
            while let Some(page) = table.changed.pop() {
                let range = (page.base.0, page.base.0 + page.size.bytes());
                if let Err(e) = table.update_with_host(pid, range, host) {
                    table.changed.push(page);
                    return Err(e);
                }
            }
        }
        let moved = host.shadows.as_mut().map(Shadows::take_moved);
        for (pid, key) in moved.unwrap_or_default() {
            if let Some(Some(space)) = self.spaces.get_mut(pid as usize)
                && let Table::Shadowed(table) = &mut space.table
            {
                let range = (key << REGION_SHIFT, (key + 1) << REGION_SHIFT);
                table.update_with_host(pid, range, host)?;
            }
        }
        Ok(())
    }
}

impl Table {
    /// Frees the shadow of process `pid`, which has no pages left.
    pub fn drop_shadow(&mut self, host: &mut Host, pid: Pid) {
        let Table::Shadowed(table) = self else {
            return;
        };
        let mut frames = TableFrames::new(&mut host.os.kernel);
        table.shadow.release(&mut frames);
        if let Some(shadows) = &mut host.shadows {
            shadows.forget(pid);
        }
    }
}

impl Walk<VirtAddr, GuestPhysAddr> for Shadowed {
    fn next(
        &self,
        va: VirtAddr,
        state: &mut WalkState,
        caches: &mut WalkCaches<'_>,
    ) -> Next<GuestPhysAddr> {
        self.guest.next(va, state, caches)
    }
    fn translate(&self, va: VirtAddr) -> Option<Translation<GuestPhysAddr>> {
        self.guest.translate(va)
    }
}

impl PageTable<VirtAddr, GuestPhysAddr> for Shadowed {
    fn map(
        &mut self,
        page: Page<VirtAddr>,
        frame: Frame<GuestPhysAddr>,
        flags: Flags,
        frames: &mut dyn FrameSource<GuestPhysAddr>,
    ) -> Result<MapWork, MapError> {
        let done = self.guest.map(page, frame, flags, frames);
        if done.is_ok() {
            self.changed.push(page);
        }
        done
    }
    fn unmap(
        &mut self,
        page: Page<VirtAddr>,
        frames: &mut dyn FrameSource<GuestPhysAddr>,
    ) -> Option<(Frame<GuestPhysAddr>, Flags, MapWork)> {
        let done = self.guest.unmap(page, frames)?;
        self.changed.push(page);
        Some(done)
    }
    fn set_flags(&mut self, page: Page<VirtAddr>, flags: Flags) -> bool {
        let done = self.guest.set_flags(page, flags);
        if done {
            self.changed.push(page);
        }
        done
    }
    fn registers(&self) -> u32 {
        self.guest.registers()
    }
    fn bytes(&self) -> u64 {
        self.guest.bytes()
    }
    fn largest_contiguous(&self) -> u64 {
        self.guest.largest_contiguous()
    }
    fn for_each(&self, f: &mut dyn FnMut(Page<VirtAddr>, Frame<GuestPhysAddr>, Flags)) {
        self.guest.for_each(f);
    }
    /// [`Table::drop_shadow`] empties the shadow, because it has access to the host's memory.
    fn release(&mut self, frames: &mut dyn FrameSource<GuestPhysAddr>) {
        self.guest.release(frames);
        self.changed.clear();
    }
    fn report(&self, path: &str, tree: &mut Tree) {
        self.guest.report(path, tree);
    }
    fn hardware(&self) -> &dyn Walk<VirtAddr, GuestPhysAddr> {
        self.guest.hardware()
    }
}
