//! Files of the kernel that a program reads.

use super::{HEAP, MB, World, reservation, spec, thp};
use pagewalk_os::{
    BuddySpec, FragmentationSpec, KhugepagedSpec, Pid, PlacementSpec, SizeMode, ThpMode, ThpSizes,
    ThpSpec,
};
use pagewalk_units::{Access, Advice, KernelFile, MappingSource, MemoryObject, PageSize, VirtAddr};

const PAGE: u64 = 4096;
const OTHER: VirtAddr = VirtAddr(HEAP.0 + (64 << 20));

fn of(placement: &PlacementSpec) -> World {
    World::new(&spec(FragmentationSpec::None), placement)
}

fn buddy() -> PlacementSpec {
    PlacementSpec::Buddy(BuddySpec {})
}

impl World {
    fn bytes_of(&self, pid: Pid, path: &str, offset: u64, bytes: u64) -> Option<Vec<u8>> {
        let path = path.to_owned();
        let file = KernelFile {
            path,
            offset,
            bytes,
        };
        self.os.kernel_file(pid, &file)
    }
    fn read(&self, path: &str) -> String {
        let bytes = self.bytes_of(self.pid, path, 0, 0);
        String::from_utf8(bytes.expect("a file of the kernel")).expect("text")
    }
    fn thp_file(&self, name: &str) -> String {
        self.read(&format!("/sys/kernel/mm/transparent_hugepage/{name}"))
    }
    fn zero_area(&mut self, pid: Pid, at: VirtAddr, bytes: u64) {
        let source = MappingSource::Zeros {
            stack: false,
            reserves: true,
        };
        let done = self.os.mmap(pid, at, bytes, true, source, &mut self.fx);
        done.expect("mmap");
    }
    fn touch(&mut self, pid: Pid, at: VirtAddr, pages: u64, access: Access) {
        for i in 0..pages {
            let at = at.offset(i * PAGE);
            let done = self.os.fault(pid, at, access, &mut self.fx);
            done.expect("an access that is allowed");
        }
    }
    /// The value of a line of the area at `at` in a process's `smaps`, in kB.
    fn smaps(&self, pid: Pid, at: VirtAddr, name: &str) -> u64 {
        let bytes = self.bytes_of(pid, "/proc/self/smaps", 0, 0).expect("smaps");
        let text = String::from_utf8(bytes).expect("text");
        let start = format!("{:08x}-", at.0);
        let area = text.split_once(&start).expect("the area").1;
        number(area, name)
    }
    fn pagemap(&self, pid: Pid, at: VirtAddr, pages: u64) -> Vec<u64> {
        let (offset, bytes) = (at.0 >> 12 << 3, pages * 8);
        let all = self.bytes_of(pid, "/proc/self/pagemap", offset, bytes);
        let words = all.expect("pagemap");
        let words = words.chunks(8).map(|w| w.try_into().expect("8 bytes"));
        words.map(u64::from_le_bytes).collect()
    }
}

fn number(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|l| l.starts_with(&format!("{name}:")));
    let value = line.and_then(|l| l.split_ascii_whitespace().nth(1));
    value
        .expect("a line with a number")
        .parse()
        .expect("a number")
}

#[test]
fn thp_files_show_the_configuration() {
    let shown = |placement: &PlacementSpec| of(placement).thp_file("enabled");
    assert_eq!(shown(&buddy()), "always madvise [never]\n");
    assert_eq!(shown(&thp()), "[always] madvise never\n");
    assert_eq!(shown(&reservation(0.5)), "[always] madvise never\n");
    let w = of(&PlacementSpec::Thp(ThpSpec {
        mode: ThpMode::Madvise,
        giant: false,
        sizes: ThpSizes {
            kb64: SizeMode::Inherit,
            ..ThpSizes::default()
        },
        khugepaged: KhugepagedSpec {
            pages_to_scan: 77,
            max_ptes_none: 0,
            ..KhugepagedSpec::default()
        },
    }));
    assert_eq!(w.thp_file("enabled"), "always [madvise] never\n");
    assert_eq!(w.thp_file("hpage_pmd_size"), "2097152\n");
    assert_eq!(w.thp_file("khugepaged/pages_to_scan"), "77\n");
    assert_eq!(w.thp_file("khugepaged/max_ptes_none"), "0\n");
    for (kb, expected) in [
        (16, "always inherit madvise [never]\n"),
        (64, "always [inherit] madvise never\n"),
        (2048, "always [inherit] madvise never\n"),
    ] {
        assert_eq!(w.thp_file(&format!("hugepages-{kb}kB/enabled")), expected);
    }
    let none = w.bytes_of(w.pid, "/sys/kernel/mm/transparent_hugepage/other", 0, 0);
    assert_eq!(none, None);
    for size in ["2048kB", "1048576kB"] {
        let pool = format!("/sys/kernel/mm/hugepages/hugepages-{size}");
        assert_eq!(w.read(&format!("{pool}/nr_hugepages")), "0\n");
        assert_eq!(w.read(&format!("{pool}/free_hugepages")), "0\n");
    }
}

#[test]
fn smaps_counts_small_huge_and_zero_pages() {
    let mut w = of(&thp());
    let pid = w.pid;
    w.zero_area(pid, HEAP, 8 * MB);
    w.zero_area(pid, OTHER, 4 * MB);
    let mut fx = std::mem::take(&mut w.fx);
    w.os.advise(pid, OTHER, 4 * MB, Advice::NoHugePage, &mut fx)
        .expect("madvise");
    for i in 0..3 {
        w.touch(pid, HEAP.offset(i * 2 * MB), 1, Access::Write);
    }
    w.touch(pid, OTHER, 100, Access::Write);
    // The zero page is in no process's memory.
    w.touch(pid, OTHER.offset(200 * PAGE), 50, Access::Read);
    for (at, name, kb) in [
        (HEAP, "Size", 8192),
        (HEAP, "Rss", 6144),
        (HEAP, "Pss", 6144),
        (HEAP, "AnonHugePages", 6144),
        (HEAP, "THPeligible", 1),
        (OTHER, "Size", 4096),
        (OTHER, "Rss", 400),
        (OTHER, "Private_Dirty", 400),
        (OTHER, "Anonymous", 400),
        (OTHER, "AnonHugePages", 0),
        (OTHER, "THPeligible", 0),
    ] {
        assert_eq!(w.smaps(pid, at, name), kb, "{name} of {at}");
    }
    let rollup = w.read("/proc/self/smaps_rollup");
    assert_eq!(number(&rollup, "Rss"), 6544);
    assert_eq!(number(&rollup, "Pss_Anon"), 6544);
    let statm = w.read("/proc/self/statm");
    assert_eq!(statm, "3072 1636 0 0 0 3072 0\n");
    let status = w.read("/proc/self/status");
    assert_eq!(number(&status, "VmSize"), 12288);
    assert_eq!(number(&status, "VmRSS"), 6544);
    assert_eq!(number(&status, "RssAnon"), 6544);
    assert_eq!(number(&status, "THP_enabled"), 1);
    let meminfo = w.read("/proc/meminfo");
    assert_eq!(number(&meminfo, "MemTotal"), 1 << 20);
    assert_eq!(number(&meminfo, "MemFree"), w.stats().free_bytes >> 10);
    assert_eq!(number(&meminfo, "AnonPages"), 6544);
    assert_eq!(number(&meminfo, "AnonHugePages"), 6144);
    assert_eq!(number(&meminfo, "Hugepagesize"), 2048);
    let vmstat = w.read("/proc/vmstat");
    assert!(vmstat.contains("\nthp_fault_alloc 3\n"), "{vmstat}");
}

#[test]
fn pages_that_are_freed_lazily_stay_until_memory_is_short() {
    let mut w = of(&buddy());
    let pid = w.pid;
    w.zero_area(pid, HEAP, MB);
    w.touch(pid, HEAP, 100, Access::Write);
    for page in [40, 10, 15] {
        let mut fx = std::mem::take(&mut w.fx);
        let at = HEAP.offset(page * PAGE);
        w.os.advise(pid, at, 10 * PAGE, Advice::Free, &mut fx)
            .expect("madvise");
    }
    assert_eq!(w.smaps(pid, HEAP, "Rss"), 400);
    assert_eq!(w.smaps(pid, HEAP, "LazyFree"), 4 * (10 + 15));
}

#[test]
fn a_fork_divides_the_proportional_size() {
    let mut w = of(&buddy());
    let pid = w.pid;
    w.zero_area(pid, HEAP, MB);
    w.touch(pid, HEAP, 100, Access::Write);
    let child = w.os.fork(pid, &mut w.fx).expect("fork");
    w.touch(child, HEAP, 40, Access::Write);
    for of in [pid, child] {
        assert_eq!(w.smaps(of, HEAP, "Rss"), 400);
        assert_eq!(w.smaps(of, HEAP, "Pss"), 160 + 120);
        assert_eq!(w.smaps(of, HEAP, "Private_Dirty"), 160);
        assert_eq!(w.smaps(of, HEAP, "Shared_Dirty"), 240);
    }
    let exclusive = |pid| {
        let all = w.pagemap(pid, HEAP, 256);
        all.iter().filter(|e| *e >> 56 & 1 != 0).count()
    };
    assert_eq!((exclusive(pid), exclusive(child)), (40, 40));
}

#[test]
fn pages_of_files_are_clean_until_they_are_written() {
    let mut w = of(&buddy());
    let pid = w.pid;
    let object = MemoryObject {
        key: Some(7),
        file: true,
        page: 0,
        pages: 16,
    };
    for (at, private) in [(HEAP, true), (OTHER, false)] {
        let source = MappingSource::Object { object, private };
        let done = w.os.mmap(pid, at, 16 * PAGE, true, source, &mut w.fx);
        done.expect("mmap");
        // A read maps the 16 pages around it.
        w.touch(pid, at, 1, Access::Read);
        w.touch(pid, at, 4, Access::Write);
    }
    for (at, clean, dirty, anonymous) in [(HEAP, 48, 16, 16), (OTHER, 48, 16, 0)] {
        let kb = |name| w.smaps(pid, at, name);
        assert_eq!(kb("Rss"), 64);
        assert_eq!(kb("Private_Clean") + kb("Shared_Clean"), clean, "{at}");
        assert_eq!(kb("Private_Dirty") + kb("Shared_Dirty"), dirty, "{at}");
        assert_eq!(kb("Anonymous"), anonymous, "{at}");
    }
    assert_eq!(number(&w.read("/proc/meminfo"), "Cached"), 64);
    let file = |at| {
        let all = w.pagemap(pid, at, 16);
        all.iter().filter(|e| *e >> 61 & 1 != 0).count()
    };
    assert_eq!((file(HEAP), file(OTHER)), (12, 16));
}

#[test]
fn pagemap_has_the_frames() {
    let mut w = of(&thp());
    let pid = w.pid;
    w.zero_area(pid, HEAP, 4 * MB);
    w.touch(pid, HEAP, 1, Access::Write);
    let all = w.pagemap(pid, HEAP, 1024);
    let frame = w.pa(pid, HEAP) >> 12;
    for (i, entry) in (0..).zip(&all) {
        let expected = if i < 512 { frame + i } else { 0 };
        assert_eq!(entry & ((1 << 55) - 1), expected);
        assert_eq!(entry >> 63 != 0, i < 512);
    }
    // Outside all areas; and from the middle of an entry on.
    assert_eq!(w.pagemap(pid, VirtAddr(PAGE), 2), [0, 0]);
    let part = w.bytes_of(pid, "/proc/self/pagemap", (HEAP.0 >> 12 << 3) + 7, 9);
    let part = part.expect("pagemap");
    assert_eq!((part.len(), part[0] >> 7, part[8] >> 7), (9, 1, 1));
}

#[test]
fn pages_of_a_pool_are_counted_apart() {
    let mut spec = spec(FragmentationSpec::None);
    spec.hugetlb.pages_2mb = 4;
    let mut w = World::new(&spec, &thp());
    let pool = |object: Option<MemoryObject>| MappingSource::Pool {
        size: PageSize::M2,
        reserves: true,
        private: object.is_none(),
        object,
    };
    let object = MemoryObject {
        key: Some(7),
        file: false,
        page: 0,
        pages: u64::MAX,
    };
    for (at, source) in [(HEAP, pool(None)), (OTHER, pool(Some(object)))] {
        w.mmap(w.pid, at, 4 * MB, source);
    }
    w.touch(w.pid, HEAP, 1, Access::Write);
    w.touch(w.pid, OTHER, 1, Access::Write);
    let child = w.forked();
    w.touch(child, OTHER, 1, Access::Read);
    let meminfo = w.read("/proc/meminfo");
    let huge = |name: &str| number(&meminfo, &format!("HugePages_{name}"));
    assert_eq!((huge("Total"), huge("Free"), huge("Rsvd")), (4, 2, 2));
    assert_eq!(number(&meminfo, "Hugetlb"), 8192);
    let of_pool = |name: &str| w.read(&format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}"));
    assert_eq!(
        (of_pool("nr_hugepages"), of_pool("free_hugepages")),
        ("4\n".into(), "2\n".into())
    );
    for (at, private, shared) in [(HEAP, 0, 2048), (OTHER, 0, 2048)] {
        let line = |name| w.smaps(w.pid, at, name);
        assert_eq!(
            (line("Private_Hugetlb"), line("Shared_Hugetlb")),
            (private, shared)
        );
        assert_eq!((line("Rss"), line("AnonHugePages")), (0, 0));
        assert_eq!((line("KernelPageSize"), line("MMUPageSize")), (2048, 2048));
    }
    w.os.exit(child, &mut w.fx);
    let line = |at, name| w.smaps(w.pid, at, name);
    assert_eq!(line(HEAP, "Private_Hugetlb"), 2048);
    assert_eq!(line(OTHER, "Private_Hugetlb"), 2048);
    assert_eq!(number(&w.read("/proc/self/status"), "HugetlbPages"), 4096);
}
