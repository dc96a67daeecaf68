//! Pools of huge pages (Linux mm/hugetlb.c): their size, reservations, and page faults.
//!
//! A mapping reserves its pages when it is made. A private mapping's reservations belong to the process that made it,
//! a shared one's to its object. A fault uses up a reservation, or takes a page that nobody has reserved.

use pagewalk_stats::Tree;
use pagewalk_tables::{Flags, Purpose, Want};
use pagewalk_units::{Access, Advice, Asid, Error, Page, PageSize, VirtAddr};
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel::Kernel;
use crate::memory::order;
use crate::space::Space;
use crate::table::Mapped;
use crate::vma::{Faults, Vma};
use crate::{Effects, Os, OsError, Pid};

/// Pools of huge pages, as `vm.nr_hugepages` of Linux. Their memory is taken at boot and serves only mappings with
/// MAP_HUGETLB, SHM_HUGETLB or MFD_HUGETLB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HugetlbSpec {
    /// Pages of 2 MB. Default 0, as Linux.
    pub pages_2mb: u64,
    /// Pages of 1 GB. Default 0, as Linux.
    pub pages_1gb: u64,
}

impl HugetlbSpec {
    /// True if no pool has pages.
    pub fn is_empty(&self) -> bool {
        *self == HugetlbSpec::default()
    }

    /// Bytes of all pools.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = |pages: u64, size: PageSize| pages.saturating_mul(size.bytes());
        bytes(self.pages_2mb, PageSize::M2).saturating_add(bytes(self.pages_1gb, PageSize::G1))
    }
}

pagewalk_stats::counters! {
    /// Pools of huge pages.
    pub struct HugetlbStats {
        refused: "mappings", "Mappings of huge pages from a pool that had too few. They got ordinary pages, because the program has the memory by the pools of the first design";
        stolen: "pages", "Pages taken from a child, because its parent wrote to them and the pool was empty (MAP_PRIVATE)";
        gauge pages_2mb: "pages", "2 MB pages of the pool";
        gauge free_2mb: "pages", "2 MB pages of the pool that are not mapped at the end";
        gauge reserved_2mb: "pages", "Free 2 MB pages of the pool that mappings have reserved at the end";
        gauge pages_1gb: "pages", "1 GB pages of the pool";
        gauge free_1gb: "pages", "1 GB pages of the pool that are not mapped at the end";
        gauge reserved_1gb: "pages", "Free 1 GB pages of the pool that mappings have reserved at the end";
    }
}

/// Pages of one size.
#[derive(Debug, Default)]
struct Pool {
    pages: u64,
    /// First frames of the pages without an owner. The last one is given first.
    free: Vec<u64>,
    /// Free pages that are reserved.
    reserved: u64,
}

/// The pools of all sizes.
#[derive(Debug, Default)]
pub struct Pools {
    small: Pool,
    large: Pool,
    /// Size and number of owners of each page, by its first frame.
    owners: FxHashMap<u64, (PageSize, u32)>,
    stats: HugetlbStats,
}

impl Pools {
    fn of(&mut self, size: PageSize) -> &mut Pool {
        match size {
            PageSize::G1 => &mut self.large,
            PageSize::M2 | PageSize::K4 => &mut self.small,
        }
    }

    /// Reserves `pages` pages. Returns false, and changes nothing, if fewer are free.
    pub fn reserve(&mut self, size: PageSize, pages: u64) -> bool {
        let pool = self.of(size);
        let fits = pool.free.len() as u64 - pool.reserved >= pages;
        pool.reserved += if fits { pages } else { 0 };
        fits
    }

    /// Gives reservations back.
    pub fn unreserve(&mut self, size: PageSize, pages: u64) {
        self.of(size).reserved -= pages;
    }

    /// Takes a page, either a reserved one or one that nobody has reserved.
    pub fn take(&mut self, size: PageSize, reserved: bool) -> Option<u64> {
        let pool = self.of(size);
        if reserved {
            pool.reserved -= 1;
        } else if pool.free.len() as u64 <= pool.reserved {
            return None;
        }
        let frame = pool.free.pop()?;
        self.owners.insert(frame, (size, 1));
        Some(frame)
    }

    /// Drops one owner of the page at `frame`. Returns false if no pool has it.
    pub fn put(&mut self, frame: u64) -> bool {
        let Some((size, owners)) = self.owners.get_mut(&frame) else {
            return false;
        };
        *owners -= 1;
        if *owners == 0 {
            let size = *size;
            self.owners.remove(&frame);
            self.of(size).free.push(frame);
        }
        true
    }

    /// Adds an owner of the page at `frame`. Returns false if no pool has it.
    pub fn share(&mut self, frame: u64) -> bool {
        let found = self.owners.get_mut(&frame);
        found.map(|(_, owners)| *owners += 1).is_some()
    }

    /// Number of owners of the page at `frame`; `None` if no pool has it.
    pub fn owners(&self, frame: u64) -> Option<u32> {
        self.owners.get(&frame).map(|(_, owners)| *owners)
    }
}

/// A mapping of pages of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolArea {
    /// Size of its pages.
    pub size: PageSize,
    /// The process has made the mapping itself. A child has not.
    pub owner: bool,
}

impl PoolArea {
    /// True if an address is at the border of two pages.
    fn is_border(self, at: u64) -> bool {
        at & (self.size.bytes() - 1) == 0
    }
}

/// The range of a mapping of `size`, whose length is rounded up to whole pages (`ksys_mmap_pgoff`).
fn rounded(size: PageSize, from: u64, to: u64) -> u64 {
    from + (to - from).next_multiple_of(size.bytes())
}

impl Os {
    /// Fills the pools at boot.
    pub(crate) fn fill_pools(&mut self, spec: &HugetlbSpec) -> Result<(), Error> {
        for (size, pages, key) in [
            (PageSize::G1, spec.pages_1gb, "os.hugetlb.pages_1gb"),
            (PageSize::M2, spec.pages_2mb, "os.hugetlb.pages_2mb"),
        ] {
            let want = Want {
                bytes: size.bytes(),
                asid: Asid(0),
                purpose: Purpose::Rows,
            };
            for n in 0..pages {
                let Ok(frame) = self.kernel.frame(want) else {
                    return Err(Error::key(
                        key,
                        format!(
                            "is {pages}; memory has contiguous blocks for {n} pages: lower it, enlarge os.memory_gb, or lower os.fragmentation"
                        ),
                    ));
                };
                self.kernel.pools.of(size).free.push(frame);
            }
            let pool = self.kernel.pools.of(size);
            pool.pages = pages;
            pool.free.reverse();
        }
        Ok(())
    }

    /// Adds the pools' counters, if there are pools or mappings of them.
    pub(crate) fn report_pools(&self, path: &str, tree: &mut Tree) {
        let p = &self.kernel.pools;
        if p.small.pages + p.large.pages + p.stats.refused > 0 {
            tree.add(&format!("{path}.hugetlb"), &self.hugetlb_stats());
        }
    }

    /// State of the pools of huge pages.
    pub fn hugetlb_stats(&self) -> HugetlbStats {
        let p = &self.kernel.pools;
        HugetlbStats {
            pages_2mb: p.small.pages,
            free_2mb: p.small.free.len() as u64,
            reserved_2mb: p.small.reserved,
            pages_1gb: p.large.pages,
            free_1gb: p.large.free.len() as u64,
            reserved_1gb: p.large.reserved,
            ..p.stats
        }
    }

    /// Reserves the pages of a new mapping. Returns false if the pool has too few; the mapping then gets ordinary pages.
    /// `area` is unmapped, and of whole pages.
    pub(crate) fn reserve_pool(
        &mut self,
        pid: Pid,
        area: &Vma,
        size: PageSize,
    ) -> Result<bool, OsError> {
        let pages: Vec<u64> = (area.start..area.end)
            .step_by(size.bytes() as usize)
            .collect();
        for attempt in 0..2 {
            let done = match area.object_page(area.start) {
                Some(first) if area.is_shared() => {
                    let first = first.index >> order(size);
                    let range = first..first + pages.len() as u64;
                    let k = &mut self.kernel;
                    self.objects.reserve_pool(&area.object, range, size, k)
                }
                _ => self.kernel.pools.reserve(size, pages.len() as u64),
            };
            if done {
                if !area.is_shared() {
                    let reserved = &mut self.space_mut(pid)?.pool_reserved;
                    reserved.extend(pages.iter().map(|&at| (at, size)));
                }
                return Ok(true);
            }
            if attempt == 0 {
                self.objects.free_pools(&mut self.kernel);
            }
        }
        self.kernel.pools.stats.refused += 1;
        Ok(false)
    }

    /// End of a mapping of pages of `size` that begins at `from`. Error: it is not aligned.
    pub(crate) fn pool_end(&self, size: PageSize, from: u64, to: u64) -> Result<u64, OsError> {
        if from & (size.bytes() - 1) != 0 {
            let at = VirtAddr(from);
            return Err(OsError::Bad(format!(
                "mmap with MAP_HUGETLB at {at}: expected an address that is a multiple of the page size"
            )));
        }
        Ok(rounded(size, from, to))
    }

    /// Checks that a range neither begins nor ends within a page of a pool (`hugetlb_vm_op_split`). `call` is named in
    /// the error.
    pub(crate) fn keeps_pool_pages_whole(
        &self,
        pid: Pid,
        from: u64,
        to: u64,
        call: &str,
    ) -> Result<(), OsError> {
        let space = self.space(pid)?;
        for border in [from, to] {
            let area = space.vmas.find(border).filter(|v| v.start < border);
            if let Some(pool) = area.and_then(|v| v.pool)
                && !pool.is_border(border)
            {
                let at = VirtAddr(border);
                return Err(OsError::Bad(format!(
                    "{call} up to or from {at}, within a huge page of a pool: expected a multiple of the page size"
                )));
            }
        }
        Ok(())
    }

    /// End of the range that advice acts on. In a pool, MADV_DONTNEED and MADV_REMOVE act on whole pages
    /// (`madvise_dontneed_free_valid_vma`). Error: the advice is not for pools, or splits a page.
    pub(crate) fn whole_for_advice(
        &self,
        pid: Pid,
        from: u64,
        to: u64,
        advice: Advice,
    ) -> Result<u64, OsError> {
        let area = |at| self.space(pid).map(|space| space.vmas.find(at));
        let end = match (advice, area(to - 1)?.and_then(|v| v.pool.map(|p| (v, p)))) {
            (Advice::DontNeed | Advice::Remove, Some((v, pool))) if to < v.end => {
                (to & !(pool.size.bytes() - 1)).max(from)
            }
            _ => to,
        };
        let wrong = !matches!(
            advice,
            Advice::DontNeed
                | Advice::Remove
                | Advice::DontFork
                | Advice::WipeOnFork
                | Advice::KeepOnFork
        );
        if wrong && area(from)?.is_some_and(|v| v.pool.is_some()) {
            return Err(OsError::Bad(format!(
                "madvise with {advice:?} at {}: not for huge pages of a pool",
                VirtAddr(from)
            )));
        }
        self.keeps_pool_pages_whole(pid, from, end, "madvise")?;
        Ok(end)
    }

    /// Serves a fault on a mapping of pages of a pool.
    pub(crate) fn pool_fault(
        &mut self,
        pid: Pid,
        at: VirtAddr,
        access: Access,
        vma: &Vma,
        pool: PoolArea,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        let page = at.page(pool.size);
        match self.space(pid)?.table.translate(at) {
            Some(t) if access == Access::Write && !t.flags.contains(Flags::WRITABLE) => {
                self.write_pool_page(pid, page, t, vma, pool, fx)
            }
            Some(_) => {
                self.kernel.stats.spurious_faults += 1;
                Ok(())
            }
            None => self.touch_pool_page(pid, page, access, vma, fx),
        }
    }

    /// A page of the pool. `reserved`: it uses up a reservation.
    fn pool_page(&mut self, page: Page<VirtAddr>, reserved: bool) -> Result<u64, OsError> {
        let size = page.size;
        if let Some(frame) = self.kernel.pools.take(size, reserved) {
            return Ok(frame);
        }
        self.objects.free_pools(&mut self.kernel);
        let found = self.kernel.pools.take(size, false);
        found.ok_or(OsError::PoolEmpty {
            at: page.base,
            size,
        })
    }

    /// Backs an unmapped page (`hugetlb_no_page`).
    fn touch_pool_page(
        &mut self,
        pid: Pid,
        page: Page<VirtAddr>,
        access: Access,
        vma: &Vma,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        let size = page.size;
        let shared = vma.is_shared();
        let cached = (vma.object_page(page.base.0)).map(|p| (p.object, p.index >> order(size)));
        let known = cached.and_then(|(object, index)| self.objects.pool_frame(object, index));
        let write = access == Access::Write;
        let copies = known.is_some() && !shared && write;
        let fresh = known.is_none() || copies;
        let frame = match (known, cached) {
            (Some(frame), _) if !copies => {
                self.kernel.share(frame, order(size));
                frame
            }
            (None, Some((object, index))) if shared => {
                let reserved = self.objects.use_reserved(object, index);
                let frame = self.pool_page(page, reserved)?;
                self.objects.set_pool_frame(object, index, frame);
                self.kernel.share(frame, order(size));
                frame
            }
            _ => {
                let reserved = self.space_mut(pid)?.pool_reserved.remove(&page.base.0);
                self.pool_page(page, reserved.is_some())?
            }
        };
        let flags = if vma.writable && (shared || write) {
            Flags::WRITABLE
        } else {
            Flags::default()
        };
        let mapped = self.with_reclaim(pid, fx, |os, fx| match &mut os.spaces[pid as usize] {
            Some(space) => space.map_page(&mut os.kernel, page, frame, flags, fx),
            None => Ok(()),
        });
        let k = &mut self.kernel;
        if let Err(error) = mapped {
            k.put(frame, order(size));
            return Err(error);
        }
        match size {
            PageSize::G1 => k.stats.faults_1gb += 1,
            PageSize::M2 | PageSize::K4 => k.stats.faults_2mb += 1,
        }
        if copies {
            count_copy(k, size, fx);
        } else if fresh {
            k.stats.zeroed_bytes += size.bytes();
            fx.cycles += k.prices.zero(size.bytes());
        }
        if let Some(space) = self.spaces[pid as usize].as_mut() {
            space.forked |= vma.writable && flags == Flags::default();
            if cached.is_some() && !shared && fresh {
                note_copies(space, page);
            }
        }
        Ok(())
    }

    /// Serves a write to a write-protected page (`hugetlb_wp`).
    fn write_pool_page(
        &mut self,
        pid: Pid,
        page: Page<VirtAddr>,
        old: Mapped,
        vma: &Vma,
        pool: PoolArea,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        let size = page.size;
        let cached = (vma.object_page(page.base.0))
            .and_then(|p| self.objects.pool_frame(p.object, p.index >> order(size)));
        if !vma.is_shared() && self.kernel.is_shared(old.frame, order(size)) {
            // A copy of the object's page uses up the mapping's reservation; others have none.
            let reserved = cached == Some(old.frame)
                && (self.space_mut(pid)?.pool_reserved.remove(&page.base.0)).is_some();
            match self.pool_page(page, reserved) {
                Ok(copy) => return self.replace_pool_page(pid, page, copy, vma, fx),
                Err(_) if pool.owner && cached != Some(old.frame) => {
                    self.take_from_children(pid, page, old.frame, fx);
                }
                Err(empty) => return Err(empty),
            }
        }
        if let Some(space) = self.spaces[pid as usize].as_mut() {
            let k = &mut self.kernel;
            space.table.set_flags(page, old.flags.with(Flags::WRITABLE));
            k.stats.cow_faults += 1;
            space.invalidate_page(k, page, fx);
        }
        self.shadow()
    }

    /// Maps `copy` instead of the page that is mapped.
    fn replace_pool_page(
        &mut self,
        pid: Pid,
        page: Page<VirtAddr>,
        copy: u64,
        vma: &Vma,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        let size = page.size;
        let done = self.with_reclaim(pid, fx, |os, fx| {
            let (Some(space), k) = (&mut os.spaces[pid as usize], &mut os.kernel) else {
                return Ok(());
            };
            let (old, flags) = space.unmap_page(k, page, fx);
            if let Err(refusal) = space.map_page(k, page, copy, flags.with(Flags::WRITABLE), fx) {
                // The nodes that it needs have just been freed.
                space.map_page(k, page, old, flags, fx)?;
                return Err(refusal);
            }
            k.put(old, order(size));
            if vma.object.is_some() {
                note_copies(space, page);
            }
            space.invalidate_page(k, page, fx);
            Ok(())
        });
        let k = &mut self.kernel;
        if let Err(error) = done {
            k.put(copy, order(size));
            return Err(error);
        }
        k.stats.cow_faults += 1;
        count_copy(k, size, fx);
        Ok(())
    }

    /// Unmaps a page from the processes that share it after a fork, because the one that made the mapping writes and the
    /// pool is empty (`unmap_ref_private`).
    fn take_from_children(&mut self, pid: Pid, page: Page<VirtAddr>, frame: u64, fx: &mut Effects) {
        for (other, space) in (0..).zip(&mut self.spaces) {
            let Some(space) = space.as_mut().filter(|_| other != pid) else {
                continue;
            };
            let area = space.vmas.find(page.base.0);
            let shares = area.is_some_and(|v| v.pool.is_some_and(|p| !p.owner))
                && (space.table.translate(page.base)).is_some_and(|t| t.frame == frame);
            if shares {
                let k = &mut self.kernel;
                space.unmap_page(k, page, fx);
                k.put(frame, order(page.size));
                k.pools.stats.stolen += 1;
                space.invalidate_page(k, page, fx);
            }
        }
    }
}

fn count_copy(k: &mut Kernel, size: PageSize, fx: &mut Effects) {
    k.stats.cow_copies += size.frames();
    k.stats.copied_bytes += size.bytes();
    fx.cycles += k.prices.copy(size.bytes());
}

/// Notes that the area of `page` has private copies, which a fork has to copy.
fn note_copies(space: &mut Space, page: Page<VirtAddr>) {
    if let Some(area) = space.vmas.find_mut(page.base.0) {
        area.faults = Faults::Linux { copies: true };
    }
}

impl Space {
    /// Gives the reservations of `from..to` back.
    pub(crate) fn unreserve(&mut self, k: &mut Kernel, from: u64, to: u64) {
        let reserved = self.pool_reserved.range(from..to);
        let reserved: Vec<_> = reserved.map(|(&at, &size)| (at, size)).collect();
        for (at, size) in reserved {
            self.pool_reserved.remove(&at);
            k.pools.unreserve(size, 1);
        }
    }
}
