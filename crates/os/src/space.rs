//! An address space: its areas, its page table, and its mappings.

use std::collections::{BTreeMap, BTreeSet};

use pagewalk_tables::{Flags, GuestUse, Invalidation, MapError, Purpose, Refusal, Want};
use pagewalk_units::{Asid, Page, PageSize, VirtAddr};

use crate::Effects;
use crate::kernel::{Kernel, TableFrames};
use crate::memory::{GIANT_ORDER, HUGE_ORDER, order};
use crate::region::{Region, RegionKind, Regions};
use crate::table::Table;
use crate::vma::Vmas;

/// The address space of a process.
pub struct Space {
    /// Tag of its TLB entries.
    pub asid: Asid,
    /// Infers mappings for unknown addresses.
    pub infer: bool,
    /// Areas that the program may access.
    pub vmas: Vmas,
    /// The mapped regions.
    pub regions: Regions,
    /// Number of mapped pages, by size.
    pub mapped: [u64; 3],
    /// True after a fork, in parent and child: pages may be pending copy-on-write.
    pub forked: bool,
    /// The process has disabled huge pages (`PR_SET_THP_DISABLE`).
    pub no_huge: bool,
    /// Ranges whose pages are freed when memory is short (MADV_FREE).
    pub lazily_free: Vec<(u64, u64)>,
    /// Pages of pools that mappings of the process have reserved and not touched yet.
    pub pool_reserved: BTreeMap<u64, PageSize>,
    /// Page numbers of swapped-out pages.
    pub swapped: BTreeSet<u64>,
    /// Its page table.
    pub table: Table,
}

/// Pages that a larger page has replaced, with their former frames.
pub type Merged = Vec<(Page<VirtAddr>, u64)>;

fn page(key: u64, i: u64, size: PageSize) -> Page<VirtAddr> {
    VirtAddr(key << 21 | i << 12).page(size)
}

impl Space {
    /// An empty address space.
    pub fn new(asid: Asid, infer: bool, table: Table) -> Self {
        Space {
            asid,
            infer,
            vmas: Vmas::default(),
            regions: Regions::default(),
            mapped: [0; 3],
            forked: false,
            no_huge: false,
            lazily_free: Vec::new(),
            pool_reserved: BTreeMap::new(),
            swapped: BTreeSet::new(),
            table,
        }
    }

    /// True if a page is mapped at `at`.
    #[inline]
    pub fn has(&self, at: u64) -> bool {
        // Common case first: a region of small pages, or an empty one.
        match self.regions.get(at >> 21) {
            Some(r) if r.kind == RegionKind::Small => r.has(at >> 12 & 511),
            Some(_) => true,
            None => self.regions.covering(at >> 21).is_some(),
        }
    }

    /// True if the page at `at`, in a writable area, is pending copy-on-write.
    #[inline]
    pub fn protects(&self, at: u64) -> bool {
        let mapped = || self.table.translate(VirtAddr(at));
        self.forked && mapped().is_some_and(|t| !t.flags.contains(Flags::WRITABLE))
    }

    /// A frame request of this address space.
    #[inline]
    pub fn want(&self, size: PageSize, purpose: Purpose) -> Want {
        Want {
            bytes: size.bytes(),
            asid: self.asid,
            purpose,
        }
    }

    /// Maps `page` to `frame` and updates all records. Changes nothing on failure.
    #[inline]
    pub fn map_page(
        &mut self,
        k: &mut Kernel,
        page: Page<VirtAddr>,
        frame: u64,
        flags: Flags,
        fx: &mut Effects,
    ) -> Result<(), Refusal> {
        let mut source = TableFrames::new(k);
        let done = self.table.map(page, frame, flags, &mut source);
        let cycles = source.cycles;
        k.charge(cycles, done.as_ref().ok(), fx);
        match done {
            Ok(_) => {
                let (asid, vpn) = (self.asid, page.base.0 >> 12);
                k.used(frame, page.size.frames(), GuestUse::Page { asid, vpn });
            }
            Err(MapError::Refused(refusal)) => {
                k.refused = page.base;
                return Err(refusal);
            }
            Err(MapError::Occupied) => unreachable!("the books say that {page:?} is free"),
        }
        let key = page.base.0 >> 21;
        match page.size {
            PageSize::K4 => {
                let i = page.base.0 >> 12 & 511;
                match self.regions.get_mut(key) {
                    Some(region) => region.set(i),
                    None => self.regions.insert(key, Region::small(None)).set(i),
                }
            }
            PageSize::M2 => {
                self.regions.insert(key, Region::large(RegionKind::Huge));
            }
            PageSize::G1 => {
                self.regions.insert(key, Region::large(RegionKind::Giant));
            }
        }
        self.mapped[page.size.index()] += 1;
        Ok(())
    }

    /// Unmaps `page` and updates all records. Returns its flags and its frame, which
    /// the caller now owns unless it belongs to a reservation.
    pub fn unmap_page(
        &mut self,
        k: &mut Kernel,
        page: Page<VirtAddr>,
        fx: &mut Effects,
    ) -> (u64, Flags) {
        let mut source = TableFrames::new(k);
        let (frame, flags, work) = self
            .table
            .unmap(page, &mut source)
            .unwrap_or_else(|| unreachable!("the books say that {page:?} is mapped"));
        let cycles = source.cycles;
        k.charge(cycles, Some(&work), fx);
        let key = page.base.0 >> 21;
        if page.size == PageSize::K4 {
            if let Some(region) = self.regions.get_mut(key) {
                region.clear(page.base.0 >> 12 & 511);
                if region.count == 0 && region.reserved.is_none() {
                    self.regions.remove(key);
                }
            }
        } else {
            self.regions.remove(key);
        }
        self.mapped[page.size.index()] -= 1;
        (frame, flags)
    }

    /// The pages of region `key` in `from..to`.
    pub fn pages_of(&self, key: u64, from: u64, to: u64, out: &mut Vec<Page<VirtAddr>>) {
        let Some(region) = self.regions.get(key) else {
            return;
        };
        match region.kind {
            RegionKind::Giant => out.push(page(key, 0, PageSize::G1)),
            RegionKind::Huge => out.push(page(key, 0, PageSize::M2)),
            RegionKind::Small => {
                let base = key << 21;
                let first = (from.max(base) - base) >> 12;
                let last = (to - base).min(1 << 21) >> 12;
                let pages = (first..last).filter(|&i| region.has(i));
                out.extend(pages.map(|i| page(key, i, PageSize::K4)));
            }
        }
    }

    /// Splits large pages that straddle `at`, so that a range may end there.
    pub fn split_at(&mut self, k: &mut Kernel, at: u64, fx: &mut Effects) -> Result<(), Refusal> {
        let key = at >> 21;
        if at & ((1 << 30) - 1) != 0
            && let Some((giant, region)) = self.regions.covering(key)
            && region.kind == RegionKind::Giant
        {
            self.split(k, page(giant, 0, PageSize::G1), fx)?;
        }
        if at & ((1 << 21) - 1) != 0
            && let Some(region) = self.regions.get(key)
            && region.kind == RegionKind::Huge
        {
            self.split(k, page(key, 0, PageSize::M2), fx)?;
        }
        Ok(())
    }

    /// Splits a large page into pages of the next smaller size on the same frames.
    /// Changes nothing on failure.
    pub fn split(
        &mut self,
        k: &mut Kernel,
        large: Page<VirtAddr>,
        fx: &mut Effects,
    ) -> Result<(), Refusal> {
        let size = match large.size {
            PageSize::G1 => PageSize::M2,
            PageSize::M2 | PageSize::K4 => PageSize::K4,
        };
        let (frame, flags) = self.unmap_page(k, large, fx);
        let part = |i: u64| large.base.offset(i * size.bytes()).page(size);
        for i in 0..512 {
            let at = frame + i * size.frames();
            if let Err(refusal) = self.map_page(k, part(i), at, flags, fx) {
                for j in 0..i {
                    self.unmap_page(k, part(j), fx);
                }
                // The nodes that the large page needs have just been freed.
                self.map_page(k, large, frame, flags, fx)?;
                return Err(refusal);
            }
        }
        k.stats.splits += 1;
        self.invalidate_page(k, large, fx);
        Ok(())
    }

    /// Replaces the small pages of region `key` by one 2 MB page at `frame`. Returns
    /// the pages and their frames, which the caller now owns. `None` if the table has
    /// no memory for it; the pages are then mapped as before.
    pub fn merge(
        &mut self,
        k: &mut Kernel,
        key: u64,
        frame: u64,
        flags: Flags,
        fx: &mut Effects,
    ) -> Result<Option<Merged>, Refusal> {
        let mut pages = Vec::with_capacity(512);
        self.pages_of(key, key << 21, (key + 1) << 21, &mut pages);
        let reserved = self.regions.get(key).and_then(|r| r.reserved);
        let mut small = Vec::with_capacity(pages.len());
        for p in pages {
            let (frame, flags) = self.unmap_page(k, p, fx);
            small.push((p, frame, flags));
        }
        self.regions.remove(key);
        let whole = page(key, 0, PageSize::M2);
        let merged = self.map_page(k, whole, frame, flags, fx).is_ok();
        if !merged {
            // The nodes that the small pages need have just been freed.
            self.regions.insert(key, Region::small(reserved));
            for &(p, frame, flags) in &small {
                self.map_page(k, p, frame, flags, fx)?;
            }
        }
        self.invalidate_range(k, key << 21, (key + 1) << 21, fx);
        let pages = || small.into_iter().map(|(p, frame, _)| (p, frame)).collect();
        Ok(merged.then(pages))
    }

    /// Unmaps `from..to` and frees the frames. Large pages are split at the borders
    /// first; only that can fail.
    pub fn zap(
        &mut self,
        k: &mut Kernel,
        from: u64,
        to: u64,
        fx: &mut Effects,
    ) -> Result<(), Refusal> {
        self.split_at(k, from, fx)?;
        self.split_at(k, to, fx)?;
        self.forget_swapped(from, to);
        let mut any = false;
        let mut pages = Vec::new();
        for key in self.regions.overlapping(from, to) {
            pages.clear();
            self.pages_of(key, from, to, &mut pages);
            let reserved = self.regions.get(key).and_then(|r| r.reserved);
            for &p in &pages {
                any = true;
                let (frame, _) = self.unmap_page(k, p, fx);
                if reserved.is_none() {
                    k.put(frame, order(p.size));
                }
            }
            if let Some(base) = reserved
                && self.regions.get(key).is_some_and(|r| r.count == 0)
            {
                self.regions.remove(key);
                k.put(base, HUGE_ORDER);
                k.stats.reservations -= 1;
            }
        }
        if any {
            self.invalidate_range(k, from, to, fx);
        }
        Ok(())
    }

    /// Removes and returns the swapped-out page numbers in `from..to`.
    pub fn forget_swapped(&mut self, from: u64, to: u64) -> Vec<u64> {
        if self.swapped.is_empty() {
            return Vec::new();
        }
        let found: Vec<u64> = self
            .swapped
            .range(from >> 12..to.div_ceil(4096))
            .copied()
            .collect();
        for vpn in &found {
            self.swapped.remove(vpn);
        }
        found
    }

    /// Breaks up the reservation of region `key`. Mapped pages stay in place, the
    /// other frames are freed.
    pub fn demote(&mut self, k: &mut Kernel, key: u64, fx: &mut Effects) {
        let Some(region) = self.regions.get_mut(key) else {
            return;
        };
        let Some(base) = region.reserved.take() else {
            return;
        };
        let region = region.clone();
        if region.count == 0 {
            self.regions.remove(key);
        }
        let mut i = 0;
        while i < 512 {
            let from = i;
            let used = region.has(i);
            while i < 512 && region.has(i) == used {
                if used {
                    let p = page(key, i, PageSize::K4);
                    if let Some(t) = self.table.translate(p.base) {
                        self.table.set_flags(p, t.flags.without(Flags::RESERVED));
                    }
                }
                i += 1;
            }
            if !used {
                k.put_range(base + from, base + i);
            }
        }
        k.stats.demotions += 1;
        k.stats.reservations -= 1;
        if region.count > 0 {
            self.invalidate_range(k, key << 21, (key + 1) << 21, fx);
        }
    }

    /// Breaks up the reservations that overlap `from..to`.
    pub fn demote_range(&mut self, k: &mut Kernel, from: u64, to: u64, fx: &mut Effects) {
        for key in self.regions.overlapping(from, to) {
            self.demote(k, key, fx);
        }
    }

    /// Requests the invalidation of `page` on all cores.
    pub fn invalidate_page(&self, k: &mut Kernel, page: Page<VirtAddr>, fx: &mut Effects) {
        let asid = self.asid;
        self.invalidate(k, Invalidation::Page { asid, page }, fx);
    }

    /// Requests the invalidation of `from..to` on all cores.
    pub fn invalidate_range(&self, k: &mut Kernel, from: u64, to: u64, fx: &mut Effects) {
        let (asid, at, bytes) = (self.asid, VirtAddr(from), to - from);
        self.invalidate(k, Invalidation::Range { asid, at, bytes }, fx);
    }

    fn invalidate(&self, k: &mut Kernel, what: Invalidation, fx: &mut Effects) {
        k.stats.invalidations += 1;
        fx.invalidate.push(what);
    }

    /// Requests the invalidation of the whole address space on all cores.
    pub fn invalidate_all(&self, k: &mut Kernel, fx: &mut Effects) {
        let asid = self.asid;
        self.invalidate(k, Invalidation::Space { asid }, fx);
    }

    /// Empties the address space. Frees all frames and the page table's memory.
    pub fn clear(&mut self, k: &mut Kernel, fx: &mut Effects) {
        self.invalidate_all(k, fx);
        let regions = &self.regions;
        // A reserved block is freed as a whole, below. Pages come in order.
        let mut last = (u64::MAX, false);
        self.table.for_each(&mut |p, frame| {
            let key = p.base.0 >> 21;
            if last.0 != key {
                last = (key, regions.get(key).is_some_and(|r| r.reserved.is_some()));
            }
            if !last.1 {
                k.put(frame, order(p.size));
            }
        });
        for (_, region) in self.regions.iter() {
            if let Some(base) = region.reserved {
                k.put(base, HUGE_ORDER);
                k.stats.reservations -= 1;
            }
        }
        let mut source = TableFrames::new(k);
        self.table.release(&mut source);
        self.regions = Regions::default();
        self.mapped = [0; 3];
        self.swapped.clear();
        self.unreserve(k, 0, u64::MAX);
        self.lazily_free.clear();
        self.vmas.clear();
    }
}

const _: () = assert!(HUGE_ORDER + 9 == GIANT_ORDER);
