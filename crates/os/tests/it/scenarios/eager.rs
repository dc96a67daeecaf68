//! Eager paging (RMM, ISCA 2015).

use super::{GB, HEAP, MB, World, spec};
use pagewalk_os::{EagerSpec, FragmentationSpec, OsSpec, PlacementSpec};
use pagewalk_stats::Tree;
use pagewalk_units::{Backing, MappingSource};

const KB: u64 = 1 << 10;

fn world(memory: &OsSpec, spec: EagerSpec) -> World {
    let table = toml::from_str("ranges = {}").expect("a page table with ranges");
    World::with(memory, &PlacementSpec::Eager(spec), &table)
}

fn whole() -> OsSpec {
    spec(FragmentationSpec::None)
}

impl World {
    fn eager(&self, name: &str) -> u64 {
        self.counter("os.eager", name)
    }
    fn counter(&self, path: &str, name: &str) -> u64 {
        let mut tree = Tree::default();
        self.os.report("os", &mut tree);
        tree.get(path, name).expect("a counter")
    }
    /// The mapped pages of the heap's first `bytes`.
    fn backed(&self, bytes: u64) -> u64 {
        let pages = (0..bytes).step_by(4096);
        pages
            .filter(|&at| self.at(HEAP.offset(at)).is_some())
            .count() as u64
    }
    fn anonymous(&mut self, bytes: u64, writable: bool, reserves: bool) {
        let source = MappingSource::Zeros {
            stack: false,
            reserves,
        };
        self.os
            .mmap(self.pid, HEAP, bytes, writable, source, &mut self.fx)
            .expect("mmap");
    }
    fn protect(&mut self, at: u64, bytes: u64, writable: bool) {
        self.os
            .protect(self.pid, HEAP.offset(at), bytes, writable, &mut self.fx)
            .expect("mprotect");
    }
}

#[test]
fn memory_is_backed_by_its_binary_decomposition_in_one_range() {
    for bytes in [4 * KB, 64 * KB, 3 * MB, 5 * MB + 513 * KB + 7, 300 * MB] {
        let mut w = world(&whole(), EagerSpec::default());
        let pages = bytes.div_ceil(4096);
        w.heap(bytes);
        assert_eq!(w.eager("blocks"), u64::from(pages.count_ones()));
        assert_eq!(w.eager("pages"), pages);
        // The allocator gives the blocks one after the other. A page alone is no range.
        assert_eq!(w.counter("page_table", "ranges"), u64::from(pages > 1));
        // 2 GHz: 250 ns a page, 1/8 ns a byte, and 56 ns for the call.
        let price = pages * 500 + pages * 4096 / 4;
        assert_eq!(w.eager("cycles"), price);
        let s = w.stats();
        assert_eq!(s.zeroed_bytes, pages * 4096);
        assert_eq!(w.fx.cycles, 112 + price + s.table_allocation_cycles);
        for page in 0..pages {
            w.write(HEAP.offset(page << 12));
        }
        let after = w.stats();
        assert_eq!((after.faults_4kb, after.spurious_faults), (0, pages));
        assert_eq!(after.zeroed_bytes, s.zeroed_bytes);
    }
}

#[test]
fn blocks_are_the_largest_that_fragmented_memory_has() {
    // Half of the 2 MB blocks hold a page, so 300 MB lie in blocks of at most some MB.
    let mut w = world(
        &spec(FragmentationSpec::Available2mb(0.5)),
        EagerSpec::default(),
    );
    w.heap(300 * MB);
    assert_eq!(w.backed(300 * MB), 300 << 8);
    let ranges = w.counter("page_table", "ranges");
    assert!((20..150).contains(&ranges), "{ranges} ranges");
    let mut runs = vec![1u64];
    for page in 1..300 << 8 {
        let frame = |page: u64| w.at(HEAP.offset(page << 12)).expect("backed").frame.base.0;
        if frame(page) == frame(page - 1) + 4096 {
            *runs.last_mut().expect("one") += 1;
        } else {
            runs.push(1);
        }
    }
    let alone = runs.iter().filter(|&&run| run == 1).count() as u64;
    assert_eq!(runs.len() as u64, ranges + alone);
    assert!(w.eager("blocks") < 150, "fewer than blocks of 2 MB");
}

#[test]
fn memory_is_left_to_page_faults_when_it_is_short_or_fragmented() {
    let short = EagerSpec {
        keep_free: 0.5,
        ..EagerSpec::default()
    };
    let mut w = world(&whole(), short);
    w.heap(GB / 2 + 4096);
    assert_eq!((w.eager("deferred"), w.eager("pages")), (1, 0));
    w.write(HEAP);
    assert_eq!((w.stats().faults_4kb, w.backed(MB)), (1, 1));

    let mut w = world(&whole(), short);
    w.heap(GB / 2);
    assert_eq!((w.eager("deferred"), w.eager("pages")), (0, GB / 2 / 4096));

    let broken = spec(FragmentationSpec::UnusableFreeIndex(0.75));
    for (most_fragmented, backed) in [(0.7, 0), (0.8, 1)] {
        let spec = EagerSpec {
            most_fragmented,
            ..EagerSpec::default()
        };
        let mut w = world(&broken, spec);
        w.heap(8 * MB);
        assert_eq!(
            (w.eager("backed"), w.eager("deferred")),
            (backed, 1 - backed)
        );
        assert_eq!(w.backed(8 * MB), backed * 2048);
    }
}

#[test]
fn a_success_share_is_that_of_the_2_mb_blocks() {
    let mut w = world(
        &spec(FragmentationSpec::Served2mb(0.25)),
        EagerSpec {
            most_fragmented: 1.0,
            ..EagerSpec::default()
        },
    );
    w.heap(400 * MB);
    // 200 requests: those that succeed take one block, the others two of 1 MB.
    let whole = 400 - w.eager("blocks");
    assert!((30..70).contains(&whole), "{whole} of 200 blocks of 2 MB");
}

#[test]
fn only_allocated_memory_is_backed() {
    let new = || world(&whole(), EagerSpec::default());
    for backing in [Backing::File, Backing::Shared, Backing::Stack] {
        let mut w = new();
        w.map(HEAP, MB, true, backing);
        assert_eq!(w.backed(MB), 0, "{backing:?}");
    }
    // MAP_NORESERVE.
    let mut w = new();
    w.anonymous(MB, true, false);
    assert_eq!(w.backed(MB), 0);
    // PROT_NONE is allocated when it becomes writable.
    let mut w = new();
    w.anonymous(MB, false, true);
    assert_eq!(w.backed(MB), 0);
    w.protect(256 * KB, 512 * KB, true);
    assert_eq!(w.backed(MB), 128);
    assert_eq!(w.counter("page_table", "ranges"), 1);
    // A change of rights splits the range.
    w.protect(256 * KB, 256 * KB, false);
    w.protect(256 * KB, 4096, true);
    assert_eq!(w.counter("page_table", "ranges"), 2);
    assert_eq!((w.eager("backed"), w.eager("pages")), (1, 128));
}

#[test]
fn mremap_backs_what_it_adds() {
    let mut w = world(&whole(), EagerSpec::default());
    w.heap(MB);
    let to = HEAP.offset(GB);
    w.os.remap(w.pid, HEAP, MB, to, 3 * MB, &mut w.fx)
        .expect("mremap");
    assert_eq!(w.eager("pages"), 3 * 256);
    assert!(w.at(to.offset(3 * MB - 1)).is_some() && w.at(to).is_some());
    assert_eq!(w.backed(MB), 0);
}

#[test]
fn a_hole_splits_the_range_and_its_frames_return() {
    let mut w = world(&whole(), EagerSpec::default());
    w.heap(4 * MB);
    let free = w.stats().free_bytes;
    w.os.unmap(w.pid, HEAP.offset(MB), MB, &mut w.fx)
        .expect("munmap");
    assert_eq!(w.counter("page_table", "ranges"), 2);
    assert_eq!(w.stats().free_bytes, free + MB);
    // The hole is filled from the freed frames, in the largest blocks.
    w.map(HEAP.offset(MB), MB, true, Backing::Anonymous);
    assert_eq!((w.backed(4 * MB), w.stats().faults_4kb), (1024, 0));
    assert_eq!(w.eager("pages"), 1024 + 256);
}

#[test]
fn a_touch_of_an_inferred_area_backs_its_2_mb() {
    let mut w = world(&whole(), EagerSpec::default());
    w.pid = w.os.spawn(true).expect("a process");
    w.write(HEAP.offset(5 * 4096));
    assert_eq!((w.backed(2 * MB), w.eager("blocks")), (512, 1));
    let s = w.stats();
    assert_eq!((s.faults_4kb, s.zeroed_bytes), (1, 2 * MB));
}
