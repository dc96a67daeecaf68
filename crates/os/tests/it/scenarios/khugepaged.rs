//! khugepaged: the regions that it collapses, and when.

use super::{GB, HEAP, MB, World, reservation, spec};
use pagewalk_os::{
    FragmentationSpec, KhugepagedCore, KhugepagedSpec, KhugepagedStats, OsSpec, PlacementSpec,
    ThpMode, ThpSizes, ThpSpec,
};
use pagewalk_units::{Access, Advice, Backing, PageSize, VirtAddr};

/// Cycles of a millisecond at the 2 GHz of [`World`].
const MS: u64 = 2_000_000;
/// Step by which glibc extends the heap with `brk`.
const STEP: u64 = 132 << 10;

fn with(khugepaged: KhugepagedSpec) -> PlacementSpec {
    PlacementSpec::Thp(ThpSpec {
        mode: ThpMode::Always,
        giant: false,
        sizes: ThpSizes::default(),
        khugepaged,
    })
}

fn linux() -> KhugepagedSpec {
    KhugepagedSpec::default()
}

fn none(max_ptes_none: u16) -> KhugepagedSpec {
    KhugepagedSpec {
        max_ptes_none,
        ..linux()
    }
}

/// A heap of at least `bytes` that has grown in steps, with each page touched.
fn grown(os: &OsSpec, placement: &PlacementSpec, bytes: u64) -> World {
    let mut w = World::new(os, placement);
    for step in 0..bytes.div_ceil(STEP) {
        let at = HEAP.offset(step * STEP);
        w.map(at, STEP, true, Backing::Anonymous);
        w.os.populate(w.pid, at, STEP, &mut w.fx)
            .expect("memory is plenty");
    }
    w
}

impl World {
    fn elapse(&mut self, cycles: u64) {
        self.fx.invalidate.clear();
        self.fx.cycles = 0;
        self.os
            .elapse(cycles, &mut self.fx)
            .expect("memory is plenty");
    }
    fn settle(&mut self) {
        self.fx.invalidate.clear();
        self.fx.cycles = 0;
        self.os.settle(&mut self.fx).expect("memory is plenty");
    }
    fn khugepaged(&self) -> KhugepagedStats {
        self.os.khugepaged_stats().expect("it runs")
    }
    fn collapses(&self) -> u64 {
        self.khugepaged().collapses
    }
}

#[test]
fn a_heap_that_grows_by_132_kb_is_collapsed_when_khugepaged_wakes() {
    let mut w = grown(&spec(FragmentationSpec::None), &with(linux()), 8 * MB);
    let steps = (8 * MB).div_ceil(STEP);
    let before = w.stats();
    assert_eq!(before.faults_2mb, 0);
    assert_eq!(before.mapped_4kb_bytes, steps * STEP);

    w.elapse(10_000 * MS - 1);
    assert_eq!((w.khugepaged().passes, w.collapses()), (0, 0));
    w.elapse(1);
    // One region at the moment of waking, the others as the scan reaches them.
    assert_eq!((w.khugepaged().passes, w.collapses()), (1, 1));
    w.elapse(10 * MS);
    let (s, daemon) = (w.stats(), w.khugepaged());
    assert_eq!(
        (daemon.passes, daemon.full_scans, daemon.collapses),
        (1, 1, 4)
    );
    assert_eq!(s.mapped_2mb_bytes, 8 * MB);
    assert_eq!(s.mapped_4kb_bytes, steps * STEP - 8 * MB);
    assert_eq!(
        s.huge_mapped_permille,
        8 * MB * 1000 / (steps * STEP),
        "what is huge of what is mapped"
    );
    // 512 frames each are freed and one block each is allocated; four leaf nodes
    // are freed.
    assert_eq!(s.page_table_bytes, before.page_table_bytes - 4 * 4096);
    assert_eq!(s.free_bytes, before.free_bytes + 4 * 4096);
    assert_eq!((daemon.copied_bytes, daemon.zeroed_bytes), (8 * MB, 0));
    // Waking up, four regions of 512 entries that are read and copied, and the
    // final step that finds nothing.
    let region = 512 * 10 * 2 + 2 * MB / 4 * 2;
    assert_eq!(daemon.cycles, 1400 + 4 * region + 1);
    assert_eq!(
        w.at(HEAP.offset(5 * MB)).expect("mapped").size,
        PageSize::M2
    );
    assert_eq!(
        w.at(HEAP.offset(8 * MB)).expect("mapped").size,
        PageSize::K4
    );
}

#[test]
fn a_pass_comes_eight_regions_far_and_the_next_one_goes_on_from_there() {
    let mut w = grown(&spec(FragmentationSpec::None), &with(linux()), 40 * MB);
    let seen: Vec<u64> = (0..4)
        .map(|_| {
            w.elapse(10_010 * MS);
            w.collapses()
        })
        .collect();
    // The third pass reaches the end and starts over.
    assert_eq!(seen, [8, 16, 20, 20]);
    assert_eq!(w.at(HEAP).expect("mapped").size, PageSize::M2);
}

#[test]
fn as_many_pages_as_max_ptes_none_says_may_be_missing() {
    for (most, collapses) in [(412, 1), (411, 0)] {
        let mut w = World::new(&spec(FragmentationSpec::None), &with(none(most)));
        w.heap(4096);
        w.write(HEAP);
        w.map(HEAP.offset(4096), 2 * MB - 4096, true, Backing::Anonymous);
        for i in 1..100 {
            w.write(HEAP.offset(i * 5 * 4096));
        }
        w.elapse(10_010 * MS);
        let s = w.khugepaged();
        assert_eq!((s.collapses, s.exceeded_none), (collapses, 1 - collapses));
        assert_eq!(s.zeroed_bytes, collapses * 412 * 4096);
        let mapped = [100 * 4096, 2 * MB][collapses as usize];
        let all = w.stats().mapped_4kb_bytes + w.stats().mapped_2mb_bytes;
        assert_eq!(all, mapped);
    }
}

#[test]
fn where_no_block_is_free_defrag_makes_one_or_it_waits_a_minute() {
    let broken = spec(FragmentationSpec::Available2mb(0.0));
    let defrag = |defrag| with(KhugepagedSpec { defrag, ..linux() });
    let mut w = grown(&broken, &defrag(true), 8 * MB);
    w.elapse(10_010 * MS);
    assert_eq!((w.collapses(), w.stats().compactions), (4, 4));
    let moved = w.stats().compacted_frames;
    assert!(moved >= 4, "{moved}: a frame at least in each block");
    // Migrated frames are copied, which takes time.
    let region = 512 * 10 * 2 + 2 * MB / 4 * 2;
    assert_eq!(w.khugepaged().cycles, 1400 + 4 * region + moved * 2048 + 1);

    let mut w = grown(&broken, &defrag(false), 8 * MB);
    for (after, failures) in [(10_000, 1), (59_990, 1), (20, 2), (10_000, 3), (60_000, 4)] {
        w.elapse(after * MS);
        assert_eq!(
            w.khugepaged().allocation_failures,
            failures,
            "after {after} ms"
        );
    }
    assert_eq!((w.collapses(), w.stats().compactions), (0, 0));
    assert_eq!(w.stats().mapped_2mb_bytes, 0);
}

/// The share refers to memory: repeated requests do not increase it.
#[test]
fn a_share_of_requests_that_is_served_stays_that_share() {
    let mut big = spec(FragmentationSpec::Served2mb(0.3));
    big.memory_gb = 8;
    let settled = with(KhugepagedSpec {
        settled: true,
        ..linux()
    });
    let bytes = 2 * GB;
    let mut w = grown(&big, &settled, bytes);
    w.settle();
    let first = w.collapses();
    let share = first as f64 / (bytes >> 21) as f64;
    // Three standard deviations of 1024 draws.
    assert!(
        (share - 0.3).abs() < 3.0 * (0.3f64 * 0.7 / 1024.0).sqrt(),
        "{share}"
    );
    w.settle();
    w.elapse(100_000 * MS);
    assert_eq!(w.collapses(), first);
}

#[test]
fn the_settled_state_is_the_final_one_and_takes_no_time() {
    let settled = KhugepagedSpec {
        settled: true,
        ..linux()
    };
    for (khugepaged, collapses) in [(settled, 20), (linux(), 0)] {
        let mut w = grown(&spec(FragmentationSpec::None), &with(khugepaged), 40 * MB);
        w.settle();
        let s = w.khugepaged();
        assert_eq!((s.collapses, s.settled_collapses), (collapses, collapses));
        assert_eq!((s.cycles, s.passes, w.fx.cycles), (0, 0, 0));
        assert_eq!(w.fx.invalidate.len() as u64, collapses);
        // Given enough time, the other one reaches the same state.
        w.elapse(40_000 * MS);
        assert_eq!(w.collapses(), 20);
    }
}

#[test]
fn madvise_decides_where_it_looks() {
    for (mode, advice, collapses) in [
        (ThpMode::Always, None, 1),
        (ThpMode::Always, Some(Advice::NoHugePage), 0),
        (ThpMode::Madvise, None, 0),
        (ThpMode::Madvise, Some(Advice::HugePage), 1),
    ] {
        let khugepaged = linux();
        let placement = PlacementSpec::Thp(ThpSpec {
            mode,
            giant: false,
            sizes: ThpSizes::default(),
            khugepaged,
        });
        let mut w = grown(&spec(FragmentationSpec::None), &placement, 2 * MB);
        if let Some(advice) = advice {
            w.os.advise(w.pid, HEAP, 2 * MB, advice, &mut w.fx)
                .expect("madvise");
        }
        w.elapse(10_010 * MS);
        assert_eq!(w.collapses(), collapses, "{mode:?} {advice:?}");
    }
}

#[test]
fn only_whole_regions_of_private_memory_are_collapsed() {
    for backing in [Backing::File, Backing::Stack, Backing::Shared] {
        let mut w = World::new(&spec(FragmentationSpec::None), &with(linux()));
        w.map(HEAP, 4 * MB, true, backing);
        w.os.populate(w.pid, HEAP, 4 * MB, &mut w.fx)
            .expect("memory is plenty");
        w.elapse(10_010 * MS);
        assert_eq!(w.collapses(), 0, "{backing:?}");
    }
    // A read-only page in the middle gives two areas, and neither covers the
    // region.
    let mut w = grown(&spec(FragmentationSpec::None), &with(linux()), 2 * MB);
    w.os.protect(w.pid, HEAP.offset(MB), 4096, false, &mut w.fx)
        .expect("mprotect");
    w.elapse(10_010 * MS);
    assert_eq!(w.collapses(), 0);
}

#[test]
fn shared_pages_are_copied_up_to_max_ptes_shared() {
    let mut w = grown(&spec(FragmentationSpec::None), &with(linux()), 2 * MB);
    let child = w.os.fork(w.pid, &mut w.fx).expect("memory is plenty");
    w.elapse(10_010 * MS);
    assert_eq!((w.collapses(), w.khugepaged().exceeded_shared), (0, 2));
    // The child writes half of the pages: 256 remain shared.
    for i in 0..256 {
        w.os.fault(child, HEAP.offset(i * 4096), Access::Write, &mut w.fx)
            .expect("a write that is allowed");
    }
    let other = w.pa(w.pid, HEAP.offset(MB + 5));
    w.elapse(10_010 * MS);
    // The parent's region first; the pages that it copies then belong to the child
    // alone.
    assert_eq!(w.collapses(), 2);
    assert_ne!(w.pa(w.pid, HEAP.offset(MB + 5)), other);
    for pid in [w.pid, child] {
        let t = w.find(pid, HEAP).expect("mapped");
        assert_eq!(t.size, PageSize::M2);
        assert!(t.flags.contains(pagewalk_tables::Flags::WRITABLE));
    }
    assert_ne!(w.pa(child, HEAP), w.pa(w.pid, HEAP));
    let empty = World::new(&spec(FragmentationSpec::None), &with(linux()));
    w.os.exit(child, &mut w.fx);
    w.os.unmap(w.pid, HEAP, 4 * MB, &mut w.fx).expect("munmap");
    let (s, fresh) = (w.stats(), empty.stats());
    assert_eq!(
        s.free_bytes + s.page_table_bytes,
        fresh.free_bytes + fresh.page_table_bytes
    );
}

#[test]
fn stolen_time_is_the_programs_and_own_time_is_not() {
    for (core, stolen) in [(KhugepagedCore::Own, false), (KhugepagedCore::Stolen, true)] {
        let khugepaged = KhugepagedSpec { core, ..linux() };
        let mut w = grown(&spec(FragmentationSpec::None), &with(khugepaged), 8 * MB);
        w.elapse(10_010 * MS);
        let (took, what) = (w.fx.cycles, w.fx.invalidate.clone());
        assert_eq!(took, if stolen { w.khugepaged().cycles } else { 0 });
        assert_eq!(what.len(), 4, "a shootdown each");
        // One core is interrupted: 1,000 ns plus 200 ns for the initiator.
        assert_eq!(w.os.is_stolen(&what[0]), stolen);
        assert_eq!(w.os.shot_down(&what[0], 1), if stolen { 2400 } else { 0 });
        assert_eq!(w.khugepaged().shootdowns, 1);
    }
}

#[test]
fn a_busy_khugepaged_collapses_everything_within_the_time_that_it_takes() {
    let busy = KhugepagedSpec {
        scan_sleep_millisecs: 0,
        ..linux()
    };
    let mut w = grown(&spec(FragmentationSpec::None), &with(busy), 40 * MB);
    // 20 regions of 524 us.
    w.elapse(10 * MS);
    assert!((18..20).contains(&w.collapses()), "{}", w.collapses());
    w.elapse(2 * MS);
    assert_eq!(w.collapses(), 20);
}

#[test]
fn a_process_that_is_gone_is_passed_over() {
    let mut w = grown(&spec(FragmentationSpec::None), &with(linux()), 30 * MB);
    w.elapse(10_010 * MS);
    assert_eq!(w.collapses(), 8, "in the middle of the first process");
    w.os.exit(w.pid, &mut w.fx);
    w.pid = w.os.spawn(false).expect("a process");
    w.heap(4096);
    w.write(HEAP);
    w.map(HEAP.offset(4096), 2 * MB - 4096, true, Backing::Anonymous);
    w.elapse(10_010 * MS);
    assert_eq!(w.collapses(), 9);
}

#[test]
fn reservations_of_a_heap_that_grows_reach_beyond_its_end() {
    let w = grown(&spec(FragmentationSpec::None), &reservation(0.3), 8 * MB);
    let s = w.stats();
    // The heap was too small when its first region was first touched.
    assert_eq!((s.promotions, s.reservations_made), (3, 4));
    let mapped = w.at(HEAP.offset(3 * MB)).expect("mapped");
    assert_eq!(mapped.size, PageSize::M2);
    // Only regions that the heap covers are promoted.
    let end = (8 * MB).div_ceil(STEP) * STEP;
    let last = VirtAddr(HEAP.0 + end - 1);
    assert_eq!(w.at(last).expect("mapped").size, PageSize::K4);
    assert_eq!(s.mapped_2mb_bytes, 6 * MB);
    // Another mapping in the region prevents a reservation.
    let mut w = World::new(&spec(FragmentationSpec::None), &reservation(0.3));
    w.map(HEAP, 2 * MB + 4096, true, Backing::Anonymous);
    w.map(HEAP.offset(3 * MB), 4096, true, Backing::File);
    w.write(HEAP.offset(2 * MB));
    assert_eq!(w.stats().reservations_made, 0);
}
