//! Use of huge pages, under transparent huge pages and fragmentation.

use super::{GB, HEAP, MB, World, spec, thp};
use pagewalk_os::{
    BuddySpec, FragmentationSpec, KhugepagedSpec, PlacementSpec, ThpMode, ThpSizes, ThpSpec,
};
use pagewalk_units::{Access, Advice, Backing, PageSize};

#[test]
fn without_huge_pages_every_page_is_4_kb() {
    let mut w = World::new(
        &spec(FragmentationSpec::None),
        &PlacementSpec::Buddy(BuddySpec {}),
    );
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
    let madvise = PlacementSpec::Thp(ThpSpec {
        mode: ThpMode::Madvise,
        giant: false,
        sizes: ThpSizes::default(),
        khugepaged: KhugepagedSpec::default(),
    });
    for (placement, advice, huge) in [
        (thp(), None, 2),
        (thp(), Some(Advice::NoHugePage), 0),
        (madvise.clone(), None, 0),
        (madvise.clone(), Some(Advice::NoHugePage), 0),
        (madvise, Some(Advice::HugePage), 2),
        (
            PlacementSpec::Buddy(BuddySpec {}),
            Some(Advice::HugePage),
            0,
        ),
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

/// All 512 blocks of 1 GB are touched; exactly the free ones become huge.
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
        // Without a pinned block, page-table nodes break up a free one.
        let nodes = u64::from(share == 1.0);
        assert_eq!(s.faults_2mb, huge - nodes, "share {share}");
        assert_eq!(s.faults_2mb + s.faults_4kb, touched);
        assert_eq!(s.huge_fallbacks, 512 - s.faults_2mb);
    }
}

#[test]
fn the_unusable_free_index_is_the_configured_one() {
    for index in [0.1, 0.5, 0.7, 0.9] {
        let w = World::new(&spec(FragmentationSpec::UnusableFreeIndex(index)), &thp());
        let found = w.stats().unusable_free_permille as f64 / 1000.0;
        assert!((found - index).abs() < 0.002, "{found} for {index}");
    }
}

/// Revelator's definition: the share holds even for a program much smaller than
/// memory.
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
fn giant_pages_serve_what_they_cover() {
    let mut big = spec(FragmentationSpec::None);
    big.memory_gb = 4;
    let placement = PlacementSpec::Thp(ThpSpec {
        mode: ThpMode::Always,
        giant: true,
        sizes: ThpSizes::default(),
        khugepaged: KhugepagedSpec::default(),
    });
    let mut w = World::new(&big, &placement);
    // Half a GB, two entire ones, 6 MB.
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
