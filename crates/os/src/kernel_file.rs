//! Files of `/proc` and `/sys` about memory, with the contents that the simulated kernel has.
//!
//! Names, order and meaning of the fields are those of Linux 6.18: Documentation/filesystems/proc.rst,
//! Documentation/admin-guide/mm/{transhuge,hugetlbpage,pagemap}.rst. Fields of what is not simulated are 0.

use std::fmt::Write as _;

use pagewalk_tables::Flags;
use pagewalk_units::{Backing, KernelFile, PageSize, VirtAddr};

use crate::khugepaged::KhugepagedSpec;
use crate::memory::order;
use crate::placement::{PlacementSpec, ThpMode, ThpSizes};
use crate::space::Space;
use crate::spec::OsSpec;
use crate::vma::{OnFork, Vma};
use crate::{Os, Pid};

/// Settings that the files show and that nothing else in the kernel keeps.
pub(crate) struct Shown {
    thp: Option<(ThpMode, ThpSizes)>,
    khugepaged: KhugepagedSpec,
    memory_kb: u64,
    swaps: bool,
}

impl Shown {
    /// The settings of a kernel with this configuration.
    pub fn new(spec: &OsSpec, placement: &PlacementSpec) -> Self {
        Shown {
            thp: placement.thp(),
            khugepaged: placement.khugepaged().map(|(s, _)| s).unwrap_or_default(),
            memory_kb: spec.program_mb() << 10,
            swaps: spec.swap.is_some(),
        }
    }

    /// True if a size of transparent huge pages below 2 MB is enabled.
    pub fn has_sizes(&self) -> bool {
        self.thp.is_some_and(|(_, sizes)| !sizes.are_off())
    }
}

/// Memory of an area or a process, in bytes, as `smaps` divides it.
#[derive(Clone, Copy, Default)]
struct Usage {
    size: u64,
    rss: u64,
    /// Each page divided by the number of processes that map it.
    pss: f64,
    pss_dirty: f64,
    pss_anonymous: f64,
    pss_file: f64,
    pss_shared: f64,
    shared_clean: u64,
    shared_dirty: u64,
    private_clean: u64,
    private_dirty: u64,
    anonymous: u64,
    /// Pages of files and of shared memory.
    file: u64,
    shared: u64,
    lazily_free: u64,
    huge: u64,
    /// Pages of pools that several processes map, and those that one maps. They are in no other sum.
    shared_hugetlb: u64,
    private_hugetlb: u64,
    swap: u64,
}

impl Usage {
    fn add(&mut self, other: &Usage) {
        self.size += other.size;
        self.rss += other.rss;
        self.pss += other.pss;
        self.pss_dirty += other.pss_dirty;
        self.pss_anonymous += other.pss_anonymous;
        self.pss_file += other.pss_file;
        self.pss_shared += other.pss_shared;
        self.shared_clean += other.shared_clean;
        self.shared_dirty += other.shared_dirty;
        self.private_clean += other.private_clean;
        self.private_dirty += other.private_dirty;
        self.anonymous += other.anonymous;
        self.file += other.file;
        self.shared += other.shared;
        self.lazily_free += other.lazily_free;
        self.huge += other.huge;
        self.shared_hugetlb += other.shared_hugetlb;
        self.private_hugetlb += other.private_hugetlb;
        self.swap += other.swap;
    }

    /// The lines that `smaps` and `smaps_rollup` have in common, up to `Locked`.
    fn write(&self, rollup: bool, out: &mut String) {
        line(out, "Rss", self.rss);
        line(out, "Pss", self.pss as u64);
        line(out, "Pss_Dirty", self.pss_dirty as u64);
        if rollup {
            line(out, "Pss_Anon", self.pss_anonymous as u64);
            line(out, "Pss_File", self.pss_file as u64);
            line(out, "Pss_Shmem", self.pss_shared as u64);
        }
        line(out, "Shared_Clean", self.shared_clean);
        line(out, "Shared_Dirty", self.shared_dirty);
        line(out, "Private_Clean", self.private_clean);
        line(out, "Private_Dirty", self.private_dirty);
        line(out, "Referenced", self.rss);
        line(out, "Anonymous", self.anonymous);
        line(out, "KSM", 0);
        line(out, "LazyFree", self.lazily_free);
        line(out, "AnonHugePages", self.huge);
        line(out, "ShmemPmdMapped", 0);
        line(out, "FilePmdMapped", 0);
        line(out, "Shared_Hugetlb", self.shared_hugetlb);
        line(out, "Private_Hugetlb", self.private_hugetlb);
        line(out, "Swap", self.swap);
        line(out, "SwapPss", self.swap);
        line(out, "Locked", 0);
    }
}

/// A line of `smaps` or `meminfo`.
fn line(out: &mut String, name: &str, bytes: u64) {
    let _ = writeln!(out, "{:<16}{:>8} kB", format!("{name}:"), bytes >> 10);
}

/// A file with one choice of several in brackets.
fn choice(all: &[&str], chosen: &str) -> String {
    let shown = |one: &&str| {
        if *one == chosen {
            format!("[{one}]")
        } else {
            (*one).to_owned()
        }
    };
    let all: Vec<String> = all.iter().map(shown).collect();
    all.join(" ") + "\n"
}

/// The page table's entries of a process that `pagemap` and `smaps` show.
struct Entry {
    frame: u64,
    size: PageSize,
    writable: bool,
    /// Part of the shared zero page: it counts in no process's memory.
    zero: bool,
    /// A page of the area's object.
    of_object: bool,
    /// Processes that map it.
    users: u64,
}

impl Os {
    /// Contents of a file for a process; `None` if the simulated kernel has no such file.
    pub fn kernel_file(&self, pid: Pid, file: &KernelFile) -> Option<Vec<u8>> {
        let space = self.space(pid).ok()?;
        let text = match &*file.path {
            "/proc/self/pagemap" => return Some(self.pagemap(space, file)),
            "/proc/self/smaps" => self.smaps(space),
            "/proc/self/smaps_rollup" => self.rollup(space),
            "/proc/self/statm" => self.statm(space),
            "/proc/self/status" => self.status(space),
            "/proc/meminfo" => self.meminfo(),
            "/proc/vmstat" => self.vmstat(),
            "/proc/sys/vm/nr_hugepages" => format!("{}\n", self.hugetlb_stats().pages_2mb),
            path => {
                if let Some(name) = path.strip_prefix("/sys/kernel/mm/transparent_hugepage/") {
                    self.thp_file(name)?
                } else {
                    self.pool_file(path.strip_prefix("/sys/kernel/mm/hugepages/hugepages-")?)?
                }
            }
        };
        Some(text.into_bytes())
    }

    /// A file of the pool of one size.
    fn pool_file(&self, name: &str) -> Option<String> {
        let (size, name) = name.split_once('/')?;
        let pools = self.hugetlb_stats();
        let (all, free, reserved) = match size {
            "2048kB" => (pools.pages_2mb, pools.free_2mb, pools.reserved_2mb),
            "1048576kB" => (pools.pages_1gb, pools.free_1gb, pools.reserved_1gb),
            _ => return None,
        };
        let pages = match name {
            "nr_hugepages" | "nr_hugepages_mempolicy" => all,
            "free_hugepages" => free,
            "resv_hugepages" => reserved,
            // A pool has a fixed size.
            "surplus_hugepages" | "nr_overcommit_hugepages" => 0,
            _ => return None,
        };
        Some(format!("{pages}\n"))
    }

    fn thp_file(&self, name: &str) -> Option<String> {
        const NEVER: &str = "never";
        let (spec, stats) = (&self.shown.khugepaged, self.khugepaged_stats());
        let number = |n: u64| Some(format!("{n}\n"));
        match name {
            "enabled" => {
                let mode = match self.shown.thp {
                    Some((ThpMode::Always, _)) => "always",
                    Some((ThpMode::Madvise, _)) => "madvise",
                    Some((ThpMode::Never, _)) | None => NEVER,
                };
                Some(choice(&["always", "madvise", NEVER], mode))
            }
            // Page faults wait for no free block.
            "defrag" => {
                let all = ["always", "defer", "defer+madvise", "madvise", NEVER];
                Some(choice(&all, NEVER))
            }
            // Shared memory and files have 4 KB pages only.
            "shmem_enabled" => {
                let all = ["always", "within_size", "advise", NEVER, "deny", "force"];
                Some(choice(&all, NEVER))
            }
            "use_zero_page" => number(1),
            "hpage_pmd_size" => number(PageSize::M2.bytes()),
            "khugepaged/defrag" => number(spec.defrag.into()),
            "khugepaged/pages_to_scan" => number(spec.pages_to_scan.into()),
            "khugepaged/scan_sleep_millisecs" => number(spec.scan_sleep_millisecs.into()),
            "khugepaged/alloc_sleep_millisecs" => number(spec.alloc_sleep_millisecs.into()),
            "khugepaged/max_ptes_none" => number(spec.max_ptes_none.into()),
            "khugepaged/max_ptes_shared" => number(spec.max_ptes_shared.into()),
            // A region with a swapped-out page is not collapsed.
            "khugepaged/max_ptes_swap" => number(0),
            "khugepaged/full_scans" => number(stats.map_or(0, |s| s.full_scans)),
            "khugepaged/pages_collapsed" => number(stats.map_or(0, |s| s.collapses)),
            _ => self.size_file(name.strip_prefix("hugepages-")?),
        }
    }

    /// Files of one size of transparent huge pages.
    fn size_file(&self, name: &str) -> Option<String> {
        let (size, name) = name.split_once("kB/")?;
        let kb: u64 = size.parse().ok()?;
        let huge = kb == PageSize::M2.bytes() >> 10;
        let sizes = self.shown.thp.map(|(_, sizes)| sizes).unwrap_or_default();
        let small = sizes.find(kb);
        // Only shared memory may have blocks of 8 KB.
        if !huge && small.is_none() && kb != 8 {
            return None;
        }
        let s = self.stats();
        let (faults, fallbacks) = match small {
            Some((at, _)) => {
                let [faults, fallbacks] = { self.kernel.thp_sizes }.of(at).map(|n| *n);
                (faults, fallbacks)
            }
            None if huge => (s.faults_2mb, s.huge_fallbacks),
            None => (0, 0),
        };
        let counted = |n: u64| Some(format!("{n}\n"));
        match name {
            "enabled" => {
                // Linux's default for 2 MB.
                let mode = if huge { "inherit" } else { small?.1.name() };
                Some(choice(&["always", "inherit", "madvise", "never"], mode))
            }
            "shmem_enabled" => {
                let all = ["always", "inherit", "within_size", "advise", "never"];
                Some(choice(&all, if huge { "inherit" } else { "never" }))
            }
            "stats/anon_fault_alloc" => counted(faults),
            "stats/anon_fault_fallback" => counted(fallbacks),
            "stats/nr_anon" if huge => counted(s.mapped_2mb_bytes >> 21),
            // The kernel does not note which 4 KB pages were one block.
            "stats/nr_anon" => None,
            _ if name.starts_with("stats/") => counted(0),
            _ => None,
        }
    }

    fn entry(&self, space: &Space, vma: &Vma, at: u64) -> Option<Entry> {
        let mapped = space.table.translate(VirtAddr(at))?;
        let frame = mapped.frame + ((at >> 12) & (mapped.size.frames() - 1));
        let page = vma.object_page(at);
        let (object, owners) = if vma.pool.is_some() {
            let order = order(mapped.size);
            let first = page.and_then(|p| self.objects.pool_frame(p.object, p.index >> order));
            let own = frame - mapped.frame;
            let owners = self.kernel.pools.owners(mapped.frame).unwrap_or(1);
            (first.map(|first| first + own), owners)
        } else {
            let owners = self.kernel.memory().owners(frame);
            (page.and_then(|page| self.objects.frame(page)), owners)
        };
        let owners = u64::from(owners);
        // The object itself owns its pages, too.
        let of_object = object == Some(frame);
        Some(Entry {
            frame,
            size: mapped.size,
            writable: mapped.flags.contains(Flags::WRITABLE),
            zero: self.kernel.is_zero(frame),
            of_object,
            users: owners - u64::from(of_object && owners > 1),
        })
    }

    fn usage(&self, space: &Space, vma: &Vma) -> Usage {
        let mut sum = Usage {
            size: vma.end - vma.start,
            swap: (space.swapped.range(vma.start >> 12..vma.end >> 12).count() as u64) << 12,
            ..Usage::default()
        };
        let lazy = lazily_free(space, vma);
        let mut pages = Vec::new();
        for key in space.regions.overlapping(vma.start, vma.end) {
            pages.clear();
            space.pages_of(key, vma.start, vma.end, &mut pages);
            for page in &pages {
                let from = page.base.0.max(vma.start);
                let to = (page.base.0 + page.size.bytes()).min(vma.end);
                let Some(entry) = self.entry(space, vma, from).filter(|e| !e.zero) else {
                    continue;
                };
                self.count(vma, &entry, from..to, &lazy, &mut sum);
            }
        }
        sum
    }

    /// Adds the mapped pages of `range`, which have the same entry, to `sum`.
    fn count(
        &self,
        vma: &Vma,
        entry: &Entry,
        range: std::ops::Range<u64>,
        lazy: &[(u64, u64)],
        sum: &mut Usage,
    ) {
        let bytes = range.end - range.start;
        if vma.pool.is_some() {
            *if entry.users > 1 {
                &mut sum.shared_hugetlb
            } else {
                &mut sum.private_hugetlb
            } += bytes;
            return;
        }
        let share = bytes as f64 / entry.users as f64;
        // The kernel notes the first write to a page of a file. Other memory was written by whoever made it.
        let is_file = entry.of_object
            && (vma.object.as_ref()).is_some_and(|object| self.objects.is_file(*object.id));
        let dirty = !is_file || vma.is_shared() && entry.writable;
        sum.rss += bytes;
        sum.pss += share;
        *match (entry.users > 1, dirty) {
            (true, true) => &mut sum.shared_dirty,
            (true, false) => &mut sum.shared_clean,
            (false, true) => &mut sum.private_dirty,
            (false, false) => &mut sum.private_clean,
        } += bytes;
        if dirty {
            sum.pss_dirty += share;
        }
        let (kind, part) = match (entry.of_object, is_file) {
            (false, _) => (&mut sum.anonymous, &mut sum.pss_anonymous),
            (true, true) => (&mut sum.file, &mut sum.pss_file),
            (true, false) => (&mut sum.shared, &mut sum.pss_shared),
        };
        *kind += bytes;
        *part += share;
        if entry.of_object {
            return;
        }
        if entry.size != PageSize::K4 {
            sum.huge += bytes;
        }
        let before = lazy.partition_point(|&(from, _)| from <= range.start);
        if before > 0 && range.end <= lazy[before - 1].1 {
            sum.lazily_free += bytes;
        }
    }

    fn smaps(&self, space: &Space) -> String {
        let mut out = String::new();
        for vma in space.vmas.iter() {
            let usage = self.usage(space, vma);
            heading(vma, &mut out);
            line(&mut out, "Size", usage.size);
            let page = vma.pool.map_or(PageSize::K4, |pool| pool.size).bytes();
            line(&mut out, "KernelPageSize", page);
            line(&mut out, "MMUPageSize", page);
            usage.write(false, &mut out);
            let eligible = self.may_have_huge_page(space, vma);
            let _ = writeln!(out, "THPeligible:    {:>8}", u8::from(eligible));
            flags(vma, &mut out);
        }
        out
    }

    /// True if an aligned part of the area may get a huge page of any size at a page fault.
    fn may_have_huge_page(&self, space: &Space, vma: &Vma) -> bool {
        let Some((mode, sizes)) = self.shown.thp else {
            return false;
        };
        let huge = mode.allows(vma.huge).then_some(PageSize::M2.bytes());
        let mut allowed = huge.into_iter().chain(sizes.allowed(mode, vma.huge));
        !space.no_huge
            && vma.backing == Backing::Anonymous
            && vma.pool.is_none()
            && allowed.any(|size| vma.start.next_multiple_of(size) + size <= vma.end)
    }

    /// Usage of all areas of a process.
    fn usage_of_all(&self, space: &Space) -> Usage {
        let mut sum = Usage::default();
        for vma in space.vmas.iter() {
            sum.add(&self.usage(space, vma));
        }
        sum
    }

    fn rollup(&self, space: &Space) -> String {
        let mut out = String::new();
        let first = space.vmas.iter().next().map_or(0, |v| v.start);
        let last = space.vmas.iter().last().map_or(0, |v| v.end);
        let range = format!("{first:08x}-{last:08x} ---p 00000000 00:00 0 ");
        let _ = writeln!(out, "{range:<73}[rollup]");
        self.usage_of_all(space).write(true, &mut out);
        out
    }

    /// The lines of `status` about memory. Peaks are not known.
    fn status(&self, space: &Space) -> String {
        let all = self.usage_of_all(space);
        let stack = space.vmas.iter().filter(|v| v.backing == Backing::Stack);
        let mut out = String::new();
        for (name, bytes) in [
            ("VmSize", all.size),
            ("VmLck", 0),
            ("VmPin", 0),
            ("VmRSS", all.rss),
            ("RssAnon", all.anonymous),
            ("RssFile", all.file),
            ("RssShmem", all.shared),
            ("VmData", private_bytes(space)),
            ("VmStk", stack.map(|v| v.end - v.start).sum()),
            ("VmPTE", space.table.bytes()),
            ("VmSwap", all.swap),
            ("HugetlbPages", all.shared_hugetlb + all.private_hugetlb),
        ] {
            let _ = writeln!(out, "{name}:\t{:>8} kB", bytes >> 10);
        }
        let _ = writeln!(out, "THP_enabled:\t{}", u8::from(!space.no_huge));
        out
    }

    fn statm(&self, space: &Space) -> String {
        let all = self.usage_of_all(space);
        let data = private_bytes(space);
        let (size, rss, shared) = (all.size >> 12, all.rss >> 12, (all.file + all.shared) >> 12);
        // The kernel does not know which areas are the program's code.
        format!("{size} {rss} {shared} 0 0 {} 0\n", data >> 12)
    }

    fn pagemap(&self, space: &Space, file: &KernelFile) -> Vec<u8> {
        let pages = file.offset / 8..(file.offset + file.bytes).div_ceil(8);
        let mut out: Vec<u8> = pages
            .flat_map(|vpn| self.pagemap_entry(space, vpn << 12).to_le_bytes())
            .collect();
        out.drain(..(file.offset % 8) as usize);
        out.truncate(file.bytes as usize);
        out
    }

    fn pagemap_entry(&self, space: &Space, at: u64) -> u64 {
        const SOFT_DIRTY: u64 = 1 << 55;
        const EXCLUSIVE: u64 = 1 << 56;
        const FILE: u64 = 1 << 61;
        const SWAP: u64 = 1 << 62;
        const PRESENT: u64 = 1 << 63;
        let Some(vma) = space.vmas.find(at) else {
            return 0;
        };
        // An area counts as changed until the program clears that.
        match self.entry(space, vma, at) {
            Some(entry) => {
                let own = entry.users == 1 && !entry.zero;
                let bits = (u64::from(own) * EXCLUSIVE) | (u64::from(entry.of_object) * FILE);
                PRESENT | SOFT_DIRTY | bits | entry.frame
            }
            None if space.swapped.contains(&(at >> 12)) => SWAP | SOFT_DIRTY,
            None => SOFT_DIRTY,
        }
    }

    fn meminfo(&self) -> String {
        let s = self.stats();
        let mut sum = Usage::default();
        for space in self.alive_spaces() {
            sum.add(&self.usage_of_all(space));
        }
        let [cached, shared] = self.objects.bytes();
        let pools = self.hugetlb_stats();
        let total = self.shown.memory_kb << 10;
        let all_swap = if self.shown.swaps { total } else { 0 };
        let mut out = String::new();
        for (name, bytes) in [
            ("MemTotal", total),
            ("MemFree", s.free_bytes),
            ("MemAvailable", s.free_bytes + cached),
            ("Buffers", 0),
            ("Cached", cached + shared),
            ("SwapCached", 0),
            ("Active", sum.anonymous),
            ("Inactive", cached + shared),
            ("Active(anon)", sum.anonymous),
            ("Inactive(anon)", shared),
            ("Active(file)", 0),
            ("Inactive(file)", cached),
            ("Unevictable", 0),
            ("Mlocked", 0),
            // Swapping has no limit.
            ("SwapTotal", all_swap),
            ("SwapFree", all_swap.saturating_sub(sum.swap)),
            ("Dirty", 0),
            ("Writeback", 0),
            ("AnonPages", sum.anonymous),
            ("Mapped", sum.file + sum.shared),
            ("Shmem", shared),
            ("KReclaimable", 0),
            ("Slab", 0),
            ("SReclaimable", 0),
            ("SUnreclaim", 0),
            ("KernelStack", 0),
            ("PageTables", s.page_table_bytes),
            ("SecPageTables", 0),
            ("NFS_Unstable", 0),
            ("Bounce", 0),
            ("WritebackTmp", 0),
            ("CommitLimit", total / 2),
            ("Committed_AS", sum.anonymous + shared),
            ("VmallocTotal", (1 << 45) - 1024),
            ("VmallocUsed", 0),
            ("VmallocChunk", 0),
            ("Percpu", 0),
            ("AnonHugePages", sum.huge),
            ("ShmemHugePages", 0),
            ("ShmemPmdMapped", 0),
            ("FileHugePages", 0),
            ("FilePmdMapped", 0),
        ] {
            line(&mut out, name, bytes);
        }
        for (name, pages) in [
            ("HugePages_Total", pools.pages_2mb),
            ("HugePages_Free", pools.free_2mb),
            ("HugePages_Rsvd", pools.reserved_2mb),
            ("HugePages_Surp", 0),
        ] {
            let _ = writeln!(out, "{:<16}{pages:>8}", format!("{name}:"));
        }
        line(&mut out, "Hugepagesize", PageSize::M2.bytes());
        let of_pools = (pools.pages_2mb << 21) + (pools.pages_1gb << 30);
        line(&mut out, "Hugetlb", of_pools);
        out
    }

    fn vmstat(&self) -> String {
        let s = self.stats();
        let collapsed = self.khugepaged_stats().map_or(0, |s| s.collapses);
        let (migration, swap) = self.mover_stats();
        let swapped = swap.map_or((0, 0), |s| (s.swapped_in, s.swapped_out));
        let faults = crate::page_faults(|_, of| of(&s));
        let mut out = String::new();
        for (name, value) in [
            ("nr_free_pages", s.free_bytes >> 12),
            ("nr_anon_transparent_hugepages", s.mapped_2mb_bytes >> 21),
            ("nr_page_table_pages", s.page_table_bytes >> 12),
            ("pswpin", swapped.0),
            ("pswpout", swapped.1),
            ("pgfault", faults),
            ("pgmigrate_success", migration.map_or(0, |s| s.moved)),
            ("compact_success", s.compactions),
            ("thp_fault_alloc", s.faults_2mb),
            ("thp_fault_fallback", s.huge_fallbacks),
            ("thp_collapse_alloc", collapsed),
            ("thp_split_pmd", s.splits),
        ] {
            let _ = writeln!(out, "{name} {value}");
        }
        out
    }
}

/// Bytes of private writable areas.
fn private_bytes(space: &Space) -> u64 {
    let private = space.vmas.iter().filter(|v| v.writable && !v.is_shared());
    private.map(|v| v.end - v.start).sum()
}

/// Ranges of MADV_FREE in an area, ascending and disjoint.
fn lazily_free(space: &Space, vma: &Vma) -> Vec<(u64, u64)> {
    let all = space.lazily_free.iter().copied();
    let mut inside: Vec<(u64, u64)> = all
        .filter(|&(from, to)| from < vma.end && vma.start < to)
        .collect();
    inside.sort_unstable();
    inside.dedup_by(|next, last| {
        let joins = next.0 <= last.1;
        if joins {
            last.1 = last.1.max(next.1);
        }
        joins
    });
    inside
}

/// First line of an area in `smaps`. The kernel knows neither its file's name nor whether it is executable.
fn heading(vma: &Vma, out: &mut String) {
    let writable = if vma.writable { 'w' } else { '-' };
    let shared = if vma.is_shared() { 's' } else { 'p' };
    let offset = vma.object.as_ref().map_or(0, |o| o.page << 12);
    let (start, end) = (vma.start, vma.end);
    let range = format!("{start:08x}-{end:08x} r{writable}-{shared} {offset:08x} 00:00 0 ");
    let name = match vma.backing {
        Backing::Stack => "[stack]",
        _ => "",
    };
    let _ = writeln!(out, "{}", format!("{range:<73}{name}").trim_end());
}

/// `VmFlags` of an area.
fn flags(vma: &Vma, out: &mut String) {
    let all = [
        ("rd", true),
        ("wr", vma.writable),
        ("sh", vma.is_shared()),
        ("mr", true),
        ("mw", true),
        ("me", true),
        ("gd", vma.backing == Backing::Stack),
        ("dc", vma.on_fork == OnFork::Drop),
        ("ac", true),
        ("nr", !vma.reserves),
        ("ht", vma.pool.is_some()),
        ("wf", vma.on_fork == OnFork::Wipe),
        ("sd", true),
        ("hg", vma.huge == Some(true)),
        ("nh", vma.huge == Some(false)),
    ];
    out.push_str("VmFlags:");
    for (name, _) in all.iter().filter(|(_, has)| *has) {
        let _ = write!(out, " {name}");
    }
    out.push_str(" \n");
}
