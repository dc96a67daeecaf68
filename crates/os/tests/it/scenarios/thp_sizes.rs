//! Transparent huge pages below 2 MB.

use super::{HEAP, MB, World, spec};
use pagewalk_os::{
    FragmentationSpec, KhugepagedSpec, PlacementSpec, SizeMode, ThpMode, ThpSizes, ThpSpec,
};
use pagewalk_stats::Tree;
use pagewalk_units::{Access, Advice, Backing};

const KB: u64 = 1 << 10;

fn world(mode: ThpMode, sizes: ThpSizes) -> World {
    let placement = PlacementSpec::Thp(ThpSpec {
        mode,
        giant: false,
        sizes,
        khugepaged: KhugepagedSpec::default(),
    });
    World::new(&spec(FragmentationSpec::None), &placement)
}

/// 64 KB always, 1 MB with advice.
fn two() -> ThpSizes {
    ThpSizes {
        kb64: SizeMode::Always,
        kb1024: SizeMode::Inherit,
        ..ThpSizes::default()
    }
}

impl World {
    /// Writes each page of the first `bytes` bytes that is not mapped.
    fn fill(&mut self, bytes: u64) {
        for at in (0..bytes).step_by(4096).map(|at| HEAP.offset(at)) {
            if self.at(at).is_none() {
                self.write(at);
            }
        }
    }
    /// The value of a counter of sizes.
    fn sized(&self, name: &str) -> u64 {
        let mut tree = Tree::default();
        self.os.report("os", &mut tree);
        tree.get("os.thp_sizes", name).expect("a counter")
    }
}

#[test]
fn a_fault_maps_the_largest_block_that_fits() {
    let mut w = world(ThpMode::Madvise, two());
    // 1 MB without advice, and 3 MB and 40 KB with it.
    w.heap(4 * MB + 40 * KB);
    let (pid, mut fx) = (w.pid, std::mem::take(&mut w.fx));
    let advised = (HEAP.offset(MB), 3 * MB + 40 * KB);
    w.os.advise(pid, advised.0, advised.1, Advice::HugePage, &mut fx)
        .expect("madvise");
    w.fill(4 * MB + 40 * KB);
    // The region that the advice covers as a whole has a huge page. The 40 KB have 4 KB pages.
    assert_eq!(w.sized("faults_64kb"), 16);
    assert_eq!(w.sized("faults_1mb"), 1);
    let s = w.stats();
    assert_eq!((s.faults_2mb, s.faults_4kb), (1, 16 + 1 + 10));
    assert_eq!(s.zeroed_bytes, 4 * MB + 40 * KB);
    assert_eq!(s.mapped_4kb_bytes, 2 * MB + 40 * KB);
}

#[test]
fn a_block_is_contiguous_and_zeroed_once() {
    let mut w = world(ThpMode::Never, two());
    w.heap(MB);
    w.write(HEAP.offset(100 * KB));
    let first = w.pa(w.pid, HEAP.offset(64 * KB));
    assert_eq!(first % (64 * KB), 0);
    for i in 0..16 {
        assert_eq!(
            w.pa(w.pid, HEAP.offset(64 * KB + i * 4096)),
            first + i * 4096
        );
    }
    assert!(w.at(HEAP).is_none() && w.at(HEAP.offset(128 * KB)).is_none());
    assert_eq!(w.stats().zeroed_bytes, 64 * KB);
    // The frames are those of 4 KB pages: each is freed by itself.
    let free = w.stats().free_bytes;
    let (pid, mut fx) = (w.pid, std::mem::take(&mut w.fx));
    w.os.unmap(pid, HEAP.offset(64 * KB), 32 * KB, &mut fx)
        .expect("munmap");
    assert_eq!(w.stats().free_bytes, free + 32 * KB);
}

#[test]
fn a_block_with_a_page_is_not_taken_again() {
    let sizes = ThpSizes {
        kb16: SizeMode::Always,
        ..two()
    };
    let mut w = world(ThpMode::Never, sizes);
    w.map(HEAP, 64 * KB, true, Backing::Anonymous);
    w.write(HEAP);
    let (pid, mut fx) = (w.pid, std::mem::take(&mut w.fx));
    w.os.advise(pid, HEAP, 40 * KB, Advice::DontNeed, &mut fx)
        .expect("madvise");
    // The block of 64 KB has pages, two of 16 KB have none, and one has two.
    w.fill(64 * KB);
    assert_eq!((w.sized("faults_64kb"), w.sized("faults_16kb")), (1, 2));
    assert_eq!(w.stats().faults_4kb, 1 + 2 + 2);
}

#[test]
fn without_a_free_block_smaller_ones_are_tried() {
    let mut little = spec(FragmentationSpec::UnusableFreeIndex(1.0));
    little.occupied = 0.5;
    let sizes = ThpSizes {
        kb16: SizeMode::Always,
        kb1024: SizeMode::Always,
        ..ThpSizes::default()
    };
    let placement = PlacementSpec::Thp(ThpSpec {
        mode: ThpMode::Never,
        giant: false,
        sizes,
        khugepaged: KhugepagedSpec::default(),
    });
    let mut w = World::new(&little, &placement);
    w.heap(2 * MB);
    w.fill(2 * MB);
    // Half of all frames, drawn at random, are in use: no block of 1 MB is free.
    let (mb, kb16) = (w.sized("faults_1mb"), w.sized("faults_16kb"));
    assert_eq!((mb, kb16), (0, 128));
    // Later faults of the same megabyte find its first pages there, and ask for no block of it.
    assert_eq!(w.sized("fallbacks_1mb"), 2);
    assert_eq!(w.stats().faults_4kb, 128);
}

#[test]
fn each_mode_needs_the_advice_that_it_names() {
    for (mode, size, advice, expected) in [
        (ThpMode::Never, SizeMode::Always, None, 1),
        (
            ThpMode::Never,
            SizeMode::Always,
            Some(Advice::NoHugePage),
            16,
        ),
        (
            ThpMode::Never,
            SizeMode::Inherit,
            Some(Advice::HugePage),
            16,
        ),
        (ThpMode::Madvise, SizeMode::Inherit, None, 16),
        (
            ThpMode::Madvise,
            SizeMode::Inherit,
            Some(Advice::HugePage),
            1,
        ),
        (ThpMode::Never, SizeMode::Madvise, None, 16),
        (ThpMode::Never, SizeMode::Madvise, Some(Advice::HugePage), 1),
        (ThpMode::Always, SizeMode::Never, None, 16),
    ] {
        let sizes = ThpSizes {
            kb64: size,
            ..ThpSizes::default()
        };
        let mut w = world(mode, sizes);
        w.heap(64 * KB);
        if let Some(advice) = advice {
            let (pid, mut fx) = (w.pid, std::mem::take(&mut w.fx));
            w.os.advise(pid, HEAP, 64 * KB, advice, &mut fx)
                .expect("madvise");
        }
        w.fill(64 * KB);
        assert_eq!(
            w.stats().faults_4kb,
            expected,
            "{mode:?} {size:?} {advice:?}"
        );
    }
}

#[test]
fn a_child_copies_pages_not_blocks() {
    let mut w = world(ThpMode::Never, two());
    w.heap(64 * KB);
    w.write(HEAP);
    let child = w.os.fork(w.pid, &mut w.fx).expect("fork");
    w.os.fault(child, HEAP, Access::Write, &mut w.fx)
        .expect("a write");
    assert_eq!((w.stats().cow_faults, w.stats().copied_bytes), (1, 4096));
    assert_ne!(w.pa(child, HEAP), w.pa(w.pid, HEAP));
    let next = HEAP.offset(4096);
    assert_eq!(w.pa(child, next), w.pa(w.pid, next));
}

#[test]
fn without_sizes_nothing_is_reported() {
    let w = world(ThpMode::Always, ThpSizes::default());
    let mut tree = Tree::default();
    w.os.report("os", &mut tree);
    assert!(tree.get("os.thp_sizes", "faults_64kb").is_none());
}
