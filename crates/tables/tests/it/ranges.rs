//! Properties of the range table: it holds the longest runs, whatever the kernel did.

use pagewalk_stats::Tree;
use pagewalk_tables::{Flags, MappedRange, Owner, PageTableSpec, RangesSpec};
use pagewalk_units::{Asid, Frame, PageSize, PhysAddr, VirtAddr, rng};
use rand::RngExt;

use crate::common::{Table, TestFrames};

type Run = MappedRange<VirtAddr, PhysAddr>;

fn table() -> Table {
    let spec = PageTableSpec::Ranges(RangesSpec::default());
    spec.build(Owner::new(Asid(7), 1)).expect("a valid table")
}

fn map(table: &mut Table, source: &mut TestFrames, va: u64, size: PageSize, frame: u64, w: bool) {
    let base = PhysAddr(frame);
    let flags = if w { Flags::WRITABLE } else { Flags::default() };
    table
        .map(VirtAddr(va).page(size), Frame { base }, flags, source)
        .expect("memory is plenty");
}

fn stat(table: &Table, name: &str) -> u64 {
    let mut tree = Tree::default();
    table.report("t", &mut tree);
    tree.get("t", name).expect("a counter of the table")
}

/// The longest runs of the page table's pages that exceed 4 KB.
fn runs(table: &Table) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    table.for_each(&mut |page, frame, flags| {
        let first = page.base;
        let last = VirtAddr(first.0 + (page.size.bytes() - 1));
        let writable = flags.contains(Flags::WRITABLE);
        if let Some(run) = runs.last_mut()
            && run.last.0 + 1 == first.0
            && run.at.0 + (first.0 - run.first.0) == frame.base.0
            && run.writable == writable
        {
            run.last = last;
            return;
        }
        let at = frame.base;
        runs.push(MappedRange {
            first,
            last,
            at,
            writable,
        });
    });
    runs.retain(|run| run.last.0 - run.first.0 >= 4096);
    runs
}

/// The range around `va`, and the lines that its walk reads.
fn walk(table: &Table, va: u64) -> (Option<Run>, Vec<PhysAddr>) {
    let mut reads = Vec::new();
    let range = table.range(VirtAddr(va), &mut reads);
    (range, reads)
}

/// Compares the range table with the page table, and each read with the table's frames.
fn agree(table: &Table, source: &TestFrames) {
    let runs = runs(table);
    assert_eq!(stat(table, "ranges"), runs.len() as u64);
    for run in &runs {
        for va in [run.first.0, run.last.0, (run.first.0 + run.last.0) / 2] {
            let (range, reads) = walk(table, va);
            assert_eq!(range, Some(*run), "{va:#x}");
            assert!(reads.iter().all(|at| source.owns(at.0)), "{reads:?}");
            assert!(reads.iter().all(|at| at.0 % 64 == 0), "{reads:?}");
        }
    }
}

#[test]
fn the_range_table_holds_the_longest_runs_after_any_change() {
    let (mut table, mut source) = (table(), TestFrames::new());
    let mut r = rng(3, "test.ranges");
    let mut refused = 0;
    for step in 0..60_000u64 {
        // 64 regions of 2 MB, of which the first 128 pages are used. Most frames continue.
        let region = r.random_range(0..64u64) << 21;
        let va = region + (r.random_range(0..128u64) << 12);
        let offset = [1 << 32, 1 << 33][usize::from(r.random_range(0..16) == 0)];
        let flags = [Flags::WRITABLE, Flags::default(), Flags::RESERVED][r.random_range(0..3)];
        let size = match r.random_range(0..64) {
            0 => PageSize::M2,
            _ => PageSize::K4,
        };
        let page = VirtAddr(va).page(size);
        match r.random_range(0..8) {
            0..4 => {
                let base = PhysAddr(page.base.0 + offset);
                let done = table.map(page, Frame { base }, flags, &mut source);
                refused += u64::from(done.is_err());
            }
            4..6 => drop(table.unmap(page, &mut source)),
            _ => drop(table.set_flags(page, flags)),
        }
        if step % 200 == 0 {
            agree(&table, &source);
        }
        assert_eq!(table.bytes(), source.bytes());
    }
    agree(&table, &source);
    assert!(stat(&table, "ranges") > 400, "{}", stat(&table, "ranges"));
    assert_eq!(stat(&table, "left_out"), 0);
    assert!(refused > 1000);
    table.release(&mut source);
    assert_eq!((table.bytes(), source.bytes()), (0, 0));
}

#[test]
fn neighbours_join_in_any_order_and_split_at_any_page() {
    let (mut table, mut source) = (table(), TestFrames::new());
    let at = 0x5555_0000_0000;
    for page in [3u64, 1, 0, 4, 2] {
        let va = at + (page << 12);
        map(&mut table, &mut source, va, PageSize::K4, va >> 4, true);
    }
    // The frames do not continue.
    assert_eq!(stat(&table, "ranges"), 0);
    assert_eq!(stat(&table, "range_bytes"), 0);
    for page in 0..5u64 {
        table.unmap(VirtAddr(at + (page << 12)).page(PageSize::K4), &mut source);
    }
    for page in [3u64, 1, 0, 4, 2] {
        let frame = (1 << 30) + (page << 12);
        map(
            &mut table,
            &mut source,
            at + (page << 12),
            PageSize::K4,
            frame,
            true,
        );
    }
    let all = MappedRange {
        first: VirtAddr(at),
        last: VirtAddr(at + 5 * 4096 - 1),
        at: PhysAddr(1 << 30),
        writable: true,
    };
    assert_eq!(walk(&table, at).0, Some(all));
    // One page of other rights: two ranges of two pages, and a page without a range.
    let middle = VirtAddr(at + 2 * 4096).page(PageSize::K4);
    assert!(table.set_flags(middle, Flags::default()));
    assert_eq!(stat(&table, "ranges"), 2);
    assert_eq!(walk(&table, middle.base.0).0, None);
    assert!(table.set_flags(middle, Flags::WRITABLE));
    assert_eq!(walk(&table, at).0, Some(all));
}

/// A range for each of `n` regions of 1 MB.
fn many(n: u64) -> (Table, TestFrames) {
    let (mut table, mut source) = (table(), TestFrames::new());
    for range in 0..n {
        for page in 0..2u64 {
            let va = (range << 20) + (page << 12);
            map(&mut table, &mut source, va, PageSize::K4, va, true);
        }
    }
    (table, source)
}

#[test]
fn a_node_holds_127_ranges_and_nodes_follow_the_ranges() {
    // One node, and a spare one.
    for (ranges, nodes) in [(1u64, 1u64), (127, 1), (128, 3)] {
        let (table, _) = many(ranges);
        assert_eq!(stat(&table, "range_bytes"), (nodes + 1) * 4096, "{ranges}");
    }
    let (mut table, mut source) = many(20_000);
    let full = stat(&table, "range_bytes");
    // Split nodes are half full: 20,000 / 64 leaves, and five nodes above them.
    assert!((20_000 / 64..330).contains(&(full / 4096)), "{full}");
    agree(&table, &source);
    for range in 0..20_000u64 {
        let page = VirtAddr(range << 20).page(PageSize::K4);
        table.unmap(page, &mut source).expect("mapped");
    }
    // The pages that are left are in no range.
    assert_eq!(stat(&table, "ranges"), 0);
    assert_eq!(stat(&table, "range_bytes"), 0);
}

#[test]
fn a_walk_of_ranges_reads_a_few_lines_of_each_node() {
    // The header's line holds the only range.
    assert_eq!(walk(&many(1).0, 0).1.len(), 1);
    // A binary search among 127 entries compares seven.
    let (table, _) = many(127);
    let most = |table: &Table, ranges: u64| {
        let lines = (0..ranges).map(|range| walk(table, range << 20).1.len());
        lines.max().expect("ranges")
    };
    assert!((6..=8).contains(&most(&table, 127)));
    let (table, _) = many(20_000);
    assert!((12..=24).contains(&most(&table, 20_000)));
}

#[test]
fn a_range_without_a_frame_for_its_node_stays_out() {
    let (mut table, mut source) = (table(), TestFrames::new());
    let at = 0x5555_0000_0000u64;
    map(&mut table, &mut source, at, PageSize::K4, at, true);
    source.left = 0;
    map(
        &mut table,
        &mut source,
        at + 4096,
        PageSize::K4,
        at + 4096,
        true,
    );
    assert_eq!((stat(&table, "ranges"), stat(&table, "left_out")), (0, 1));
    assert!(table.translate(VirtAddr(at + 4096)).is_some());
    source.left = u64::MAX;
    // The next neighbour joins the pages that it finds.
    map(
        &mut table,
        &mut source,
        at + 8192,
        PageSize::K4,
        at + 8192,
        true,
    );
    let first = walk(&table, at + 8192).0.map(|range| range.first);
    assert_eq!(first, Some(VirtAddr(at + 4096)));
}
