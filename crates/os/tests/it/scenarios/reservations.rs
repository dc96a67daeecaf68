//! Reservations: promotion, demotion, pressure.

use super::{GB, HEAP, MB, World, reservation, spec};
use pagewalk_os::{Effects, FragmentationSpec};
use pagewalk_tables::{Flags, Invalidation};
use pagewalk_units::{Access, Backing, PageSize};

/// 30 % of 512 pages is 153.6: 153 pages do not exceed it, 154 do.
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

/// With memory for three blocks, the reservations take it all. A page of a
/// further region breaks up the least used one.
#[test]
fn pressure_breaks_up_the_least_used_reservation() {
    let mut small = spec(FragmentationSpec::None);
    // 8 MB: three blocks, and one for page-table nodes.
    small.kernel_reserved = 1.0 - 8.0 / 1024.0;
    let mut w = World::new(&small, &reservation(0.3));
    w.heap(16 * MB);
    for (region, pages) in [(0, 9), (1, 3), (2, 5)] {
        for i in 0..pages {
            w.write(HEAP.offset(region * 2 * MB + i * 4096));
        }
    }
    assert_eq!(w.stats().reservations, 3);
    // No block remains for this region, only frames next to the nodes.
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

/// Frames from outside the reservation must not be mapped in its region.
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
        // Only the moved page had a second reservation.
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

/// A fork that gets memory for its last nodes only after a reclaim.
#[test]
fn a_fork_that_takes_two_attempts_protects_the_parents_pages_in_its_tlbs() {
    let mut w = World::new(&spec(FragmentationSpec::None), &reservation(0.5));
    // One page to be written, then read-only pages with a node for each.
    w.map(HEAP, 4096, true, Backing::Stack);
    w.write(HEAP);
    let only_read = HEAP.offset(GB);
    w.map(only_read, 100 * 2 * MB, false, Backing::File);
    for i in 0..100 {
        w.fault(only_read.offset(i * 2 * MB), Access::Read)
            .expect("a page of a file");
    }
    // Another process has reserved the remaining memory except a few frames.
    let other = w.os.spawn(false).expect("a process");
    let parent = std::mem::replace(&mut w.pid, other);
    w.heap(GB);
    let mut i = 0;
    while w.stats().free_2mb_blocks > 0 {
        w.write(HEAP.offset(i * 2 * MB));
        i += 1;
    }
    let stack = HEAP.offset(2 * GB);
    w.map(stack, 2 * MB, true, Backing::Stack);
    let mut i = 0;
    while w.stats().free_bytes > 40 * 4096 {
        w.write(stack.offset(i * 4096));
        i += 1;
    }
    w.fx = Effects::default();

    let before = w.stats().demotions;
    w.os.fork(parent, &mut w.fx).expect("a child");
    assert!(w.stats().demotions > before, "there was memory enough");
    w.pid = parent;
    assert!(!w.at(HEAP).expect("mapped").flags.contains(Flags::WRITABLE));
    let asid = w.os.asid(parent);
    assert!(w.fx.invalidate.contains(&Invalidation::Space { asid }));
}
