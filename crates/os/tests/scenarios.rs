//! Scenarios: given a machine, when a program does this, then the kernel has done that.

use pagewalk_os::{
    Effects, FragmentationSpec, Os, OsError, OsSpec, OsStats, PageTableSpec, Pid, PlacementSpec,
    PriceSpec, ThpMode,
};
use pagewalk_tables::{Flags, Invalidation, Translation, View};
use pagewalk_units::{Access, Advice, Backing, PageSize, PhysAddr, VirtAddr};

const MB: u64 = 1 << 20;
const GB: u64 = 1 << 30;
const HEAP: VirtAddr = VirtAddr(0x10_0000_0000);

fn spec(fragmentation: FragmentationSpec) -> OsSpec {
    OsSpec {
        memory_gb: 1,
        kernel_reserved: 0.0,
        fragmentation,
        prices: PriceSpec::default(),
    }
}

fn thp() -> PlacementSpec {
    PlacementSpec::Thp {
        mode: ThpMode::Always,
        giant: false,
    }
}

struct World {
    os: Os,
    pid: Pid,
    fx: Effects,
}

impl World {
    fn new(spec: &OsSpec, placement: &PlacementSpec) -> Self {
        let table = PageTableSpec::Radix { levels: 4 };
        let mut os = Os::new(spec, placement, &table, 2.0, 1).expect("a valid system");
        let pid = os.spawn(false).expect("the first process");
        World {
            os,
            pid,
            fx: Effects::default(),
        }
    }
    fn map(&mut self, at: VirtAddr, bytes: u64, writable: bool, backing: Backing) {
        self.os
            .map(self.pid, at, bytes, writable, backing, &mut self.fx)
            .expect("mmap");
    }
    fn heap(&mut self, bytes: u64) {
        self.map(HEAP, bytes, true, Backing::Anonymous);
    }
    fn fault(&mut self, at: VirtAddr, access: Access) -> Result<(), OsError> {
        self.os.fault(self.pid, at, access, &mut self.fx)
    }
    fn write(&mut self, at: VirtAddr) {
        self.fault(at, Access::Write)
            .expect("a write that is allowed");
    }
    fn find(&self, pid: Pid, at: VirtAddr) -> Option<Translation<PhysAddr>> {
        match self.os.view(pid) {
            View::Native(table) => table.translate(at),
            View::Nested { .. } => None,
        }
    }
    fn at(&self, at: VirtAddr) -> Option<Translation<PhysAddr>> {
        self.find(self.pid, at)
    }
    fn stats(&self) -> OsStats {
        self.os.stats()
    }
    /// Where a byte lies.
    fn pa(&self, pid: Pid, at: VirtAddr) -> u64 {
        let t = self.find(pid, at).expect("mapped");
        t.frame.base.0 + (at.0 & (t.size.bytes() - 1))
    }
}

#[test]
fn without_huge_pages_every_page_is_4_kb() {
    let mut w = World::new(&spec(FragmentationSpec::None), &PlacementSpec::Buddy {});
    w.heap(8 * MB);
    w.os.populate(w.pid, HEAP, 8 * MB, &mut w.fx)
        .expect("memory is plenty");
    let s = w.stats();
    assert_eq!((s.faults_4kb, s.faults_2mb), (2048, 0));
    assert_eq!(s.mapped_4kb_bytes, 8 * MB);
    // 4 leaf nodes, and one each of the levels 2, 3 and 4.
    assert_eq!(s.page_table_bytes, 7 * 4096);
    assert_eq!(s.largest_contiguous_bytes, 4096);
    assert_eq!(s.free_bytes, GB - 8 * MB - 7 * 4096);
}

#[test]
fn with_huge_pages_every_aligned_2_mb_is_one_page() {
    let mut w = World::new(&spec(FragmentationSpec::None), &thp());
    // From 1 MB on: the first and last MB are not covered.
    let at = HEAP.offset(MB);
    w.map(at, 8 * MB, true, Backing::Anonymous);
    w.os.populate(w.pid, at, 8 * MB, &mut w.fx)
        .expect("memory is plenty");
    let s = w.stats();
    assert_eq!((s.faults_4kb, s.faults_2mb), (512, 3));
    assert_eq!(s.huge_fallbacks, 0);
    assert_eq!(
        w.at(HEAP.offset(3 * MB)).expect("mapped").size,
        PageSize::M2
    );
}

#[test]
fn files_stacks_and_shared_memory_are_never_huge() {
    for backing in [Backing::File, Backing::Stack, Backing::Shared] {
        let mut w = World::new(&spec(FragmentationSpec::None), &thp());
        w.map(HEAP, 4 * MB, true, backing);
        w.os.populate(w.pid, HEAP, 4 * MB, &mut w.fx)
            .expect("memory is plenty");
        assert_eq!(w.stats().faults_2mb, 0, "{backing:?}");
        assert_eq!(w.stats().faults_4kb, 1024);
    }
}

#[test]
fn madvise_decides_where_huge_pages_go() {
    let madvise = PlacementSpec::Thp {
        mode: ThpMode::Madvise,
        giant: false,
    };
    for (placement, advice, huge) in [
        (thp(), None, 2),
        (thp(), Some(Advice::NoHugePage), 0),
        (madvise.clone(), None, 0),
        (madvise.clone(), Some(Advice::NoHugePage), 0),
        (madvise, Some(Advice::HugePage), 2),
        (PlacementSpec::Buddy {}, Some(Advice::HugePage), 0),
    ] {
        let mut w = World::new(&spec(FragmentationSpec::None), &placement);
        w.heap(4 * MB);
        if let Some(advice) = advice {
            w.os.advise(w.pid, HEAP, 4 * MB, advice, &mut w.fx)
                .expect("madvise");
        }
        w.write(HEAP);
        w.write(HEAP.offset(2 * MB));
        assert_eq!(w.stats().faults_2mb, huge, "{placement:?} {advice:?}");
    }
}

#[test]
fn a_region_with_a_small_page_stays_small() {
    let mut w = World::new(&spec(FragmentationSpec::None), &thp());
    w.heap(4096);
    w.write(HEAP);
    w.map(HEAP.offset(4096), 4 * MB - 4096, true, Backing::Anonymous);
    w.write(HEAP.offset(4096));
    w.write(HEAP.offset(2 * MB));
    assert_eq!((w.stats().faults_4kb, w.stats().faults_2mb), (2, 1));
}

/// All 512 blocks of 1 GB are touched; exactly those that are free become huge.
#[test]
fn fragmentation_leaves_exactly_its_share_of_huge_pages() {
    for (share, huge) in [(1.0, 512), (0.75, 384), (0.5, 256), (0.0, 0)] {
        let mut w = World::new(&spec(FragmentationSpec::Available2mb(share)), &thp());
        assert_eq!(w.stats().free_2mb_blocks, huge);
        w.heap(GB);
        let mut touched = 0;
        for region in 0..512 {
            touched += u64::from(w.fault(HEAP.offset(region * 2 * MB), Access::Write).is_ok());
        }
        let s = w.stats();
        // Without a pinned block page-table nodes break a free one.
        let nodes = u64::from(share == 1.0);
        assert_eq!(s.faults_2mb, huge - nodes, "share {share}");
        assert_eq!(s.faults_2mb + s.faults_4kb, touched);
        assert_eq!(s.huge_fallbacks, 512 - s.faults_2mb);
    }
}

#[test]
fn the_unusable_free_index_is_what_was_asked_for() {
    for index in [0.1, 0.5, 0.7, 0.9] {
        let w = World::new(&spec(FragmentationSpec::UnusableFreeIndex(index)), &thp());
        let found = w.stats().unusable_free_permille as f64 / 1000.0;
        assert!((found - index).abs() < 0.002, "{found} for {index}");
    }
}

/// Revelator's meaning: the share holds for a program much smaller than memory.
#[test]
fn a_share_of_requests_is_served_however_small_the_program() {
    let mut big = spec(FragmentationSpec::Served2mb(0.15));
    big.memory_gb = 64;
    let mut w = World::new(&big, &thp());
    w.heap(8 * GB);
    w.os.populate(w.pid, HEAP, 8 * GB, &mut w.fx)
        .expect("memory is plenty");
    let s = w.stats();
    let share = s.faults_2mb as f64 / 4096.0;
    // Three standard deviations of 4096 draws.
    assert!(
        (share - 0.15).abs() < 3.0 * (0.15f64 * 0.85 / 4096.0).sqrt(),
        "{share}"
    );
    assert_eq!(s.faults_2mb + s.huge_fallbacks, 4096);
}

#[test]
fn the_same_seed_places_the_same() {
    let run = |seed| {
        let table = PageTableSpec::Radix { levels: 4 };
        let spec = spec(FragmentationSpec::Available2mb(0.5));
        let mut os = Os::new(&spec, &thp(), &table, 2.0, seed).expect("a valid system");
        let pid = os.spawn(true).expect("a process");
        let mut fx = Effects::default();
        let mut placed = Vec::new();
        for i in 0..400 {
            let at = VirtAddr(i * 0x12_3000);
            os.fault(pid, at, Access::Write, &mut fx)
                .expect("memory is plenty");
            if let View::Native(table) = os.view(pid) {
                placed.push(table.translate(at));
            }
        }
        (placed, fx.cycles)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn giant_pages_serve_what_they_cover() {
    let mut big = spec(FragmentationSpec::None);
    big.memory_gb = 4;
    let placement = PlacementSpec::Thp {
        mode: ThpMode::Always,
        giant: true,
    };
    let mut w = World::new(&big, &placement);
    // Half a GB, two whole ones, 6 MB.
    let at = HEAP.offset(GB / 2);
    w.map(at, GB / 2 + 2 * GB + 6 * MB, true, Backing::Anonymous);
    w.os.populate(w.pid, at, GB / 2 + 2 * GB + 6 * MB, &mut w.fx)
        .expect("memory is plenty");
    let s = w.stats();
    assert_eq!((s.faults_1gb, s.faults_2mb, s.faults_4kb), (2, 256 + 3, 0));
    assert_eq!(s.mapped_1gb_bytes, 2 * GB);
    assert_eq!(
        w.at(HEAP.offset(GB + 12345)).expect("mapped").size,
        PageSize::G1
    );

    // A hole of one page in the first 1 GB page.
    let before = w.pa(w.pid, HEAP.offset(GB + 5 * MB));
    w.os.unmap(w.pid, HEAP.offset(GB + 3 * MB), 4096, &mut w.fx)
        .expect("munmap");
    let s = w.stats();
    assert_eq!(s.splits, 2);
    assert_eq!(s.mapped_1gb_bytes, GB);
    assert_eq!(s.mapped_2mb_bytes, (259 + 511) * 2 * MB);
    assert_eq!(s.mapped_4kb_bytes, 511 * 4096);
    assert_eq!(w.pa(w.pid, HEAP.offset(GB + 5 * MB)), before, "frames stay");
    assert_eq!(w.at(HEAP.offset(GB + 3 * MB)), None);
}

fn reservation(promotion_threshold: f64) -> PlacementSpec {
    PlacementSpec::Reservation {
        promotion_threshold,
    }
}

/// 30 % of 512 pages are 153.6: 153 are not above it, 154 are.
#[test]
fn a_reservation_is_promoted_exactly_above_its_threshold() {
    let mut w = World::new(&spec(FragmentationSpec::None), &reservation(0.3));
    w.heap(2 * MB);
    for i in 0..153 {
        // Every third page, so that order does not matter.
        w.write(HEAP.offset(i * 3 * 4096));
    }
    let t = w.at(HEAP).expect("mapped");
    assert_eq!(
        (t.size, w.stats().promotions, w.stats().reservations),
        (PageSize::K4, 0, 1)
    );
    assert!(t.flags.contains(Flags::RESERVED));
    assert_eq!(
        w.pa(w.pid, HEAP.offset(3 * 4096)),
        t.frame.base.0 + 3 * 4096,
        "in its place"
    );
    w.fx = Effects::default();
    let table_before = w.stats().page_table_bytes;

    w.write(HEAP.offset(4096));
    let big = w.at(HEAP).expect("mapped");
    assert_eq!(
        (big.size, big.frame),
        (PageSize::M2, t.frame),
        "the same frames"
    );
    assert!(!big.flags.contains(Flags::RESERVED));
    let s = w.stats();
    assert_eq!((s.promotions, s.reservations, s.faults_4kb), (1, 0, 154));
    assert_eq!(s.zeroed_bytes, 2 * MB, "each byte once");
    assert_eq!(
        s.page_table_bytes,
        table_before - 4096,
        "the leaf node goes back"
    );
    let at = HEAP;
    let bytes = 2 * MB;
    let asid = w.os.asid(w.pid);
    assert!(
        w.fx.invalidate
            .contains(&Invalidation::Range { asid, at, bytes })
    );
}

#[test]
fn thresholds_of_zero_and_one_promote_at_once_and_never() {
    for (threshold, promotions) in [(0.0, 1), (1.0, 0)] {
        let mut w = World::new(&spec(FragmentationSpec::None), &reservation(threshold));
        w.heap(2 * MB);
        w.write(HEAP);
        assert_eq!(w.stats().promotions, promotions);
        w.os.populate(w.pid, HEAP, 2 * MB, &mut w.fx)
            .expect("memory is plenty");
        assert_eq!(w.stats().promotions, promotions);
    }
}

/// Memory for 4 MB: two reservations take it all, the third region's page
/// breaks up the one that is used least.
#[test]
fn pressure_breaks_up_the_least_used_reservation() {
    let mut small = spec(FragmentationSpec::None);
    // 8 MB: three blocks and one for page-table nodes.
    small.kernel_reserved = 1.0 - 8.0 / 1024.0;
    let mut w = World::new(&small, &reservation(0.3));
    w.heap(16 * MB);
    for (region, pages) in [(0, 9), (1, 3), (2, 5)] {
        for i in 0..pages {
            w.write(HEAP.offset(region * 2 * MB + i * 4096));
        }
    }
    assert_eq!(w.stats().reservations, 3);
    // No block for this region, but frames beside the nodes.
    let mut i = 0;
    while w.stats().demotions == 0 {
        w.write(HEAP.offset(6 * MB + i * 4096));
        i += 1;
    }
    assert_eq!(w.stats().reservations, 2);
    let reserved = |r: u64| {
        let t = w.at(HEAP.offset(r * 2 * MB)).expect("mapped");
        t.flags.contains(Flags::RESERVED)
    };
    assert_eq!([reserved(0), reserved(1), reserved(2)], [true, false, true]);
}

#[test]
fn a_fork_copies_pages_only_when_they_are_written() {
    for (placement, size) in [
        (PlacementSpec::Buddy {}, PageSize::K4),
        (thp(), PageSize::M2),
    ] {
        let mut w = World::new(&spec(FragmentationSpec::None), &placement);
        w.heap(2 * MB);
        w.write(HEAP);
        let at = w.pa(w.pid, HEAP);
        let child = w.os.fork(w.pid, &mut w.fx).expect("fork");
        let asid = w.os.asid(w.pid);
        assert!(w.fx.invalidate.contains(&Invalidation::Space { asid }));
        assert_eq!((w.pa(w.pid, HEAP), w.pa(child, HEAP)), (at, at));
        assert_eq!(w.at(HEAP).expect("mapped").size, size);
        assert!(!w.at(HEAP).expect("mapped").flags.contains(Flags::WRITABLE));

        w.os.fault(child, HEAP, Access::Write, &mut w.fx)
            .expect("copy");
        assert_eq!(w.pa(w.pid, HEAP), at);
        assert_ne!(w.pa(child, HEAP), at);
        assert_eq!((w.stats().cow_faults, w.stats().copied_bytes), (1, 4096));

        // The parent is alone with the page now.
        w.write(HEAP);
        assert_eq!(w.pa(w.pid, HEAP), at);
        assert_eq!((w.stats().cow_faults, w.stats().copied_bytes), (2, 4096));
        let free = w.stats().free_bytes;
        w.os.exit(child, &mut w.fx);
        assert!(w.stats().free_bytes > free);
        assert_eq!(w.pa(w.pid, HEAP), at, "what the child shared stays");
    }
}

#[test]
fn shared_memory_lies_at_one_place_whoever_touches_it_first() {
    let mut w = World::new(&spec(FragmentationSpec::None), &thp());
    w.map(HEAP, 8192, true, Backing::Shared);
    w.write(HEAP);
    let child = w.os.fork(w.pid, &mut w.fx).expect("fork");
    w.os.fault(child, HEAP.offset(4096), Access::Write, &mut w.fx)
        .expect("touch");
    w.write(HEAP.offset(4096));
    for at in [HEAP, HEAP.offset(4096)] {
        assert_eq!(w.pa(w.pid, at), w.pa(child, at));
        assert!(
            w.find(child, at)
                .expect("mapped")
                .flags
                .contains(Flags::WRITABLE)
        );
    }
    assert_eq!(w.stats().cow_faults, 0);
    w.os.exit(w.pid, &mut w.fx);
    w.os.exit(child, &mut w.fx);
    assert_eq!(w.stats().free_bytes, GB);
}

#[test]
fn a_hole_in_a_huge_page_splits_it() {
    let mut w = World::new(&spec(FragmentationSpec::None), &thp());
    w.heap(2 * MB);
    w.write(HEAP);
    let base = w.pa(w.pid, HEAP);
    let free = w.stats().free_bytes;
    w.fx = Effects::default();
    w.os.unmap(w.pid, HEAP.offset(8192), 4096, &mut w.fx)
        .expect("munmap");
    let s = w.stats();
    assert_eq!(
        (s.splits, s.mapped_2mb_bytes, s.mapped_4kb_bytes),
        (1, 0, 511 * 4096)
    );
    assert_eq!(s.free_bytes, free, "one frame for the node, one frame back");
    assert_eq!(w.at(HEAP.offset(8192)), None);
    assert_eq!(w.pa(w.pid, HEAP.offset(12288)), base + 12288);
    let (asid, page) = (w.os.asid(w.pid), HEAP.page(PageSize::M2));
    assert!(w.fx.invalidate.contains(&Invalidation::Page { asid, page }));
}

#[test]
fn mremap_keeps_frames_and_large_pages_where_they_fit() {
    let mut w = World::new(&spec(FragmentationSpec::None), &thp());
    w.heap(2 * MB);
    w.write(HEAP);
    let base = w.pa(w.pid, HEAP);
    let to = HEAP.offset(64 * MB);
    w.os.remap(w.pid, HEAP, 2 * MB, to, 4 * MB, &mut w.fx)
        .expect("mremap");
    assert_eq!((w.at(HEAP), w.pa(w.pid, to)), (None, base));
    assert_eq!(w.at(to).expect("mapped").size, PageSize::M2);
    w.write(to.offset(2 * MB));
    let to4 = HEAP.offset(128 * MB + 4096);
    w.os.remap(w.pid, to, 2 * MB, to4, 2 * MB, &mut w.fx)
        .expect("mremap");
    assert_eq!(w.pa(w.pid, to4.offset(8192)), base + 8192);
    assert_eq!(w.at(to4).expect("mapped").size, PageSize::K4);
}

#[test]
fn dontneed_gives_frames_back_and_keeps_the_mapping() {
    let mut w = World::new(&spec(FragmentationSpec::None), &PlacementSpec::Buddy {});
    w.heap(2 * MB);
    w.os.populate(w.pid, HEAP, 2 * MB, &mut w.fx)
        .expect("memory is plenty");
    w.os.advise(w.pid, HEAP, 2 * MB, Advice::DontNeed, &mut w.fx)
        .expect("madvise");
    assert_eq!(w.stats().free_bytes, GB);
    w.write(HEAP);
}

#[test]
fn what_is_not_allowed_is_a_segmentation_fault() {
    let mut w = World::new(&spec(FragmentationSpec::None), &thp());
    w.heap(4096);
    w.map(HEAP.offset(8192), 4096, false, Backing::Anonymous);
    let refused = |at, access| Err(OsError::SegmentationFault { at, access });
    for at in [
        HEAP.offset(4096),
        VirtAddr(0),
        VirtAddr(1 << 50),
        VirtAddr(u64::MAX),
    ] {
        for access in [Access::Read, Access::Write, Access::Fetch] {
            assert_eq!(w.fault(at, access), refused(at, access));
        }
    }
    let at = HEAP.offset(8192);
    assert_eq!(w.fault(at, Access::Write), refused(at, Access::Write));
    assert_eq!(w.fault(at, Access::Read), Ok(()));
    assert_eq!(w.fault(at, Access::Write), refused(at, Access::Write));
    w.os.protect(w.pid, HEAP, 4096, false, &mut w.fx)
        .expect("mprotect");
    assert_eq!(w.fault(HEAP, Access::Write), refused(HEAP, Access::Write));
}

#[test]
fn ranges_that_make_no_sense_are_refused_in_words() {
    let mut w = World::new(&spec(FragmentationSpec::None), &thp());
    for (at, bytes) in [
        (1, 4096),
        (0x1000, 0),
        (1 << 47, 4096),
        (0x7fff_ffff_f000, 8192),
        (0x1000, u64::MAX),
    ] {
        let done = w.os.map(
            w.pid,
            VirtAddr(at),
            bytes,
            true,
            Backing::Anonymous,
            &mut w.fx,
        );
        assert!(
            matches!(done, Err(OsError::Bad(_))),
            "{at:#x} {bytes:#x}: {done:?}"
        );
    }
    let top = VirtAddr(0xffff_ffff_ffe0_0000);
    let infer = w.os.spawn(true).expect("a process");
    w.os.fault(infer, top, Access::Read, &mut w.fx)
        .expect("inferred");
    assert!(
        w.os.fault(infer, VirtAddr(u64::MAX), Access::Read, &mut w.fx)
            .is_err()
    );
    assert!(w.os.fault(99, HEAP, Access::Read, &mut w.fx).is_err());
}

#[test]
fn stacks_grow_down_to_8_mb() {
    let mut w = World::new(&spec(FragmentationSpec::None), &thp());
    let top = VirtAddr(0x7fff_0000_0000);
    w.map(VirtAddr(top.0 - 0x21000), 0x21000, true, Backing::Stack);
    w.write(VirtAddr(top.0 - 8 * MB));
    w.write(VirtAddr(top.0 - 4 * MB));
    assert!(
        w.fault(VirtAddr(top.0 - 8 * MB - 1), Access::Write)
            .is_err()
    );
    // Not over another mapping.
    let mut w = World::new(&spec(FragmentationSpec::None), &thp());
    w.map(VirtAddr(top.0 - 4096), 4096, true, Backing::Stack);
    w.map(VirtAddr(top.0 - 12288), 4096, false, Backing::File);
    w.write(VirtAddr(top.0 - 8192));
    assert!(w.fault(VirtAddr(top.0 - 12288), Access::Write).is_err());
    assert!(w.fault(VirtAddr(top.0 - 16384), Access::Write).is_err());
}

#[test]
fn unknown_addresses_become_mappings_when_asked_for() {
    let mut w = World::new(&spec(FragmentationSpec::None), &thp());
    w.pid = w.os.spawn(true).expect("a process");
    w.write(HEAP.offset(12345));
    w.write(HEAP.offset(2 * MB + 5));
    assert_eq!(w.stats().inferred_mappings, 2);
    assert_eq!(w.at(HEAP).expect("mapped").size, PageSize::M2);
    w.map(HEAP.offset(5 * MB), 4096, false, Backing::File);
    w.write(HEAP.offset(4 * MB));
    w.write(HEAP.offset(6 * MB - 1));
    w.write(HEAP.offset(5 * MB));
    assert_eq!(
        w.stats().faults_4kb,
        3,
        "the region has a mapping of a file in it"
    );
}

#[test]
fn out_of_memory_is_a_clear_result() {
    let mut small = spec(FragmentationSpec::None);
    small.kernel_reserved = 1.0 - 4.0 / 1024.0;
    for placement in [PlacementSpec::Buddy {}, thp(), reservation(0.3)] {
        let mut w = World::new(&small, &placement);
        assert_eq!(w.stats().free_bytes, 4 * MB);
        w.heap(16 * MB);
        let done = w.os.populate(w.pid, HEAP, 16 * MB, &mut w.fx);
        let wanted = 4096;
        assert_eq!(
            done,
            Err(OsError::OutOfMemory { wanted, free: 0 }),
            "{placement:?}"
        );
        let s = w.stats();
        let mapped = s.mapped_4kb_bytes + s.mapped_2mb_bytes;
        assert_eq!(mapped + s.page_table_bytes, 4 * MB, "all of it was used");
        assert!(w.fault(HEAP.offset(16 * MB - 1), Access::Write).is_err());
        w.os.unmap(w.pid, HEAP, 2 * MB, &mut w.fx).expect("munmap");
        w.write(HEAP.offset(16 * MB - 1));
        w.os.exit(w.pid, &mut w.fx);
        assert_eq!(w.stats().free_bytes, 4 * MB);
    }
}

/// timing: fault cost + zeroing; at 2 GHz the default trap is 1,000 cycles and
/// a byte a quarter cycle.
#[test]
fn a_fault_costs_the_trap_the_zeroing_and_the_nodes() {
    let mut w = World::new(&spec(FragmentationSpec::None), &thp());
    w.heap(4 * MB);
    w.map(HEAP.offset(8 * MB), 8192, true, Backing::Anonymous);
    w.fx = Effects::default();
    let cost = |w: &mut World, at: u64| {
        w.fx.cycles = 0;
        w.write(HEAP.offset(at));
        w.fx.cycles
    };
    // An unfragmented machine: a node costs its zeroing, 1,024 cycles.
    assert_eq!(
        cost(&mut w, 0),
        1000 + 2 * MB / 4 + 3 * 1024,
        "levels 4, 3 and 2"
    );
    assert_eq!(cost(&mut w, 2 * MB), 1000 + 2 * MB / 4);
    assert_eq!(cost(&mut w, 8 * MB), 1000 + 1024 + 1024, "level 1");
    assert_eq!(cost(&mut w, 8 * MB + 4096), 1000 + 1024);
    assert_eq!(cost(&mut w, 8 * MB + 4096), 1000, "mapped already");
    let s = w.stats();
    assert_eq!(s.spurious_faults, 1);
    assert_eq!(s.fault_cycles, 5 * 1000 + 4 * MB / 4 + 2 * 1024 + 4 * 1024);
    // At an index of 0.7 a node costs what was measured.
    let mut w = World::new(&spec(FragmentationSpec::UnusableFreeIndex(0.7)), &thp());
    w.heap(2 * MB);
    w.fx.cycles = 0;
    w.write(HEAP);
    assert_eq!(w.fx.cycles, 1000 + 2 * MB / 4 + 3 * 4000);
}

#[test]
fn peaks_outlive_the_process() {
    let mut w = World::new(&spec(FragmentationSpec::None), &PlacementSpec::Buddy {});
    w.heap(64 * MB);
    w.os.populate(w.pid, HEAP, 64 * MB, &mut w.fx)
        .expect("memory is plenty");
    w.os.exit(w.pid, &mut w.fx);
    let s = w.stats();
    assert_eq!(
        (s.page_table_bytes, s.page_table_peak_bytes),
        (0, 35 * 4096)
    );
    assert_eq!((s.largest_contiguous_bytes, s.mapped_4kb_bytes), (4096, 0));
}

#[test]
fn exec_empties_and_keeps_the_identifier() {
    let mut w = World::new(&spec(FragmentationSpec::None), &reservation(0.3));
    w.heap(2 * MB);
    w.write(HEAP);
    let asid = w.os.asid(w.pid);
    w.os.exec(w.pid, &mut w.fx);
    assert_eq!((w.os.asid(w.pid), w.stats().free_bytes), (asid, GB));
    assert!(w.fault(HEAP, Access::Read).is_err());
    w.os.exit(w.pid, &mut w.fx);
    let next = w.os.spawn(false).expect("a process");
    assert_ne!(next, w.pid, "numbers are never used again");
    assert_eq!(w.os.asid(next), asid, "identifiers are");
}

#[test]
fn five_levels_reach_57_bits() {
    let table = PageTableSpec::Radix { levels: 5 };
    let spec = spec(FragmentationSpec::None);
    let mut os = Os::new(&spec, &thp(), &table, 2.0, 1).expect("a valid system");
    let pid = os.spawn(true).expect("a process");
    let mut fx = Effects::default();
    os.fault(pid, VirtAddr(0x00ff_ffff_ffff_0000), Access::Write, &mut fx)
        .expect("in reach");
    assert!(
        os.fault(pid, VirtAddr(1 << 57), Access::Write, &mut fx)
            .is_err()
    );
}

#[test]
fn wrong_values_are_named() {
    let table = PageTableSpec::Radix { levels: 4 };
    let refused =
        |spec: &OsSpec, placement: &PlacementSpec, table: &PageTableSpec, ghz, key: &str| {
            let e = Os::new(spec, placement, table, ghz, 1).err().expect(key);
            assert!(e.contains(key), "{e}");
        };
    let good = spec(FragmentationSpec::None);
    let mut s = good.clone();
    s.memory_gb = 0;
    refused(&s, &thp(), &table, 2.0, "memory_gb");
    let mut s = good.clone();
    s.kernel_reserved = 1.0;
    refused(&s, &thp(), &table, 2.0, "kernel_reserved");
    let s = spec(FragmentationSpec::Available2mb(1.5));
    refused(&s, &thp(), &table, 2.0, "available_2mb");
    let mut s = good.clone();
    s.prices.trap_ns = -1.0;
    refused(&s, &thp(), &table, 2.0, "trap_ns");
    let mut s = good.clone();
    s.prices.allocation_ns = vec![[8192.0, 1.0], [4096.0, 1.0]];
    refused(&s, &thp(), &table, 2.0, "allocation_ns");
    refused(
        &good,
        &reservation(f64::NAN),
        &table,
        2.0,
        "promotion_threshold",
    );
    refused(
        &good,
        &thp(),
        &PageTableSpec::Radix { levels: 3 },
        2.0,
        "levels",
    );
    refused(&good, &thp(), &table, 0.0, "frequency");
}

/// Frames that are not the reservation's own must not end up in its region.
#[test]
fn shared_memory_and_moved_pages_break_up_the_reservation_around_them() {
    for shared in [true, false] {
        let mut w = World::new(&spec(FragmentationSpec::None), &reservation(0.3));
        w.heap(4 * MB);
        w.write(HEAP);
        w.write(HEAP.offset(2 * MB));
        let hole = HEAP.offset(64 * 1024);
        if shared {
            w.map(hole, 8192, true, Backing::Shared);
            w.write(hole);
        } else {
            w.os.remap(w.pid, HEAP.offset(2 * MB), 8192, hole, 8192, &mut w.fx)
                .expect("mremap");
        }
        assert!(w.at(hole).is_some());
        for at in [HEAP, hole] {
            let flags = w.at(at).expect("mapped").flags;
            assert!(!flags.contains(Flags::RESERVED), "shared: {shared}");
        }
        // Only the page that moved had a second reservation.
        let demotions = if shared { 1 } else { 2 };
        let s = w.stats();
        assert_eq!(
            (s.demotions, s.reservations),
            (demotions, u64::from(shared))
        );
        w.os.exit(w.pid, &mut w.fx);
        assert_eq!(w.stats().free_bytes, GB);
    }
}

#[test]
fn configurations_read_as_documented() {
    let read = |text: &str| toml::from_str::<OsSpec>(text);
    let least = read("memory_gb = 1").expect("the rest has defaults");
    assert_eq!(least, spec(FragmentationSpec::None));
    for (text, expected) in [
        ("fragmentation = \"none\"", FragmentationSpec::None),
        (
            "fragmentation.available_2mb = 0.75",
            FragmentationSpec::Available2mb(0.75),
        ),
        (
            "fragmentation.unusable_free_index = 0.7",
            FragmentationSpec::UnusableFreeIndex(0.7),
        ),
        (
            "fragmentation.served_2mb = 0.15",
            FragmentationSpec::Served2mb(0.15),
        ),
    ] {
        let found = read(&format!("memory_gb = 1\n{text}")).expect(text);
        assert_eq!(found.fragmentation, expected);
    }
    let prices = read("memory_gb = 1\nprices.trap_ns = 7")
        .expect("one price")
        .prices;
    assert_eq!(
        (prices.trap_ns, prices.syscall_ns),
        (7.0, PriceSpec::default().syscall_ns)
    );
    for wrong in [
        "memory = 1",
        "memory_gb = 1\nprices.trap = 1",
        "memory_gb = 1\nfragmentation.x = 1",
    ] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
    #[derive(serde::Deserialize)]
    struct Design {
        placement: PlacementSpec,
        page_table: PageTableSpec,
    }
    let text = "[placement.thp]\ngiant = true\n[page_table.radix]\nlevels = 5";
    let design: Design = toml::from_str(text).expect(text);
    let giant = PlacementSpec::Thp {
        mode: ThpMode::Always,
        giant: true,
    };
    assert_eq!(design.placement, giant);
    assert_eq!(design.page_table, PageTableSpec::Radix { levels: 5 });
    for wrong in [
        "[placement.thp]\nmode = \"never\"",
        "[placement.thp]\ngaint = true",
        "[placement.reservation]",
    ] {
        let text = format!("{wrong}\n[page_table.radix]\nlevels = 4");
        assert!(toml::from_str::<Design>(&text).is_err(), "{wrong}");
    }
}
