//! A core's hardware for an STLT, in closed form: the translation buffer, the walk of an insertion
//! and the insertion buffer.

use crate::bench::{A, Bench, DRAM, frame, small};
use crate::common::L2_TLB;
use pagewalk_mmu::{INSERTIONS, Mmu, STB_ENTRIES, ServedBy, StltQuery, Translated};
use pagewalk_tables::{Flags, Invalidation, StltPage, Unit};
use pagewalk_units::{Access, Asid, Cycle, PageSize, PhysAddr, VirtAddr};

/// Distance in bytes at which page-table entries lie in different lines.
const APART: u64 = 64 << 12;

impl Bench {
    fn new() -> Self {
        let mmu = Mmu::new(&small(1), 0)
            .expect("a possible MMU")
            .with_stlt(true);
        Bench::over(mmu, (0..64).map(|n| n * APART))
    }
    fn read(&mut self, va: u64, now: Cycle) -> Translated {
        self.translate(va, Access::Read, now).expect("mapped")
    }
    fn begin(&mut self, unit: &Unit, now: Cycle) -> StltQuery {
        self.with_context(|mmu, mut context| mmu.begin_query(unit, A, now, &mut context))
    }
    /// A `loadVA` that finds the row of `va`, with its result at `at`.
    fn load(&mut self, va: u64, size: PageSize, writable: bool, at: Cycle) {
        let unit = found(va, size, writable);
        let query = self.begin(&unit, at);
        self.mmu.end_query(&unit, A, query, (at, at));
    }
}

fn found(va: u64, size: PageSize, writable: bool) -> Unit {
    let frame = PhysAddr(frame(va) & !(size.bytes() - 1));
    let page = StltPage {
        frame,
        size,
        writable,
    };
    Unit::Load {
        row: Some(PhysAddr(1 << 44)),
        translation: Some((VirtAddr(va), page)),
        invalid: Some(false),
    }
}

fn insertion(row: u64, walk: Option<u64>) -> Unit {
    Unit::Insert {
        row: Some(PhysAddr((1 << 44) + 16 * row)),
        walk: walk.map(VirtAddr),
    }
}

#[test]
fn a_translation_in_the_stb_saves_the_walk_and_fills_the_tlbs() {
    let mut b = Bench::new();
    b.load(APART + 64, PageSize::K4, true, 1000);
    let answer = b.read(APART + 128, 1000);
    assert_eq!(
        (answer.from, answer.ready),
        (ServedBy::Source(0), 1000 + L2_TLB)
    );
    assert_eq!(answer.pa.0, frame(APART) + 128);
    assert_eq!(b.read(APART, 1100).from, ServedBy::L1);
    // A miss of the STB walks. A TLB hit does not look up the STB.
    assert_eq!(b.read(2 * APART, 2000).from, ServedBy::Walk);
    assert_eq!((b.get("", "walks"), b.get("stb", "lookups")), (1, 2));
    assert_eq!((b.get("stb", "hits"), b.get("stb", "fills")), (1, 1));
    assert_eq!(b.get("", "l1d_misses"), 2);
    // The result comes too late for this access.
    b.load(3 * APART, PageSize::K4, true, 5000);
    assert_eq!(b.read(3 * APART, 4999 - L2_TLB).from, ServedBy::Walk);
}

#[test]
fn the_first_of_33_is_gone_though_it_was_used() {
    let mut b = Bench::new();
    for n in 0..STB_ENTRIES as u64 {
        b.load(n * APART, PageSize::K4, true, n);
    }
    assert_eq!(b.read(0, 1000).from, ServedBy::Source(0));
    b.load(40 * APART, PageSize::K4, true, 1000);
    // The TLBs hold one page: each of these accesses looks up the STB.
    assert_eq!(
        b.read(APART, 2000).from,
        ServedBy::Source(0),
        "the second is there"
    );
    assert_eq!(b.read(0, 3000).from, ServedBy::Walk);
    assert_eq!(b.read(40 * APART, 4000).from, ServedBy::Source(0));
}

#[test]
fn the_stb_checks_rights_sizes_address_spaces_and_shootdowns() {
    let mut b = Bench::new();
    // The row says read-only: a store walks, and finds a writable page.
    b.load(0, PageSize::K4, false, 0);
    let stored = b.translate(0, Access::Write, 100).expect("writable");
    assert_eq!(stored.from, ServedBy::Walk);
    // A large page translates all of its addresses.
    let large = 1 << 30;
    b.table
        .map(large, PageSize::M2, frame(large), Flags::WRITABLE);
    b.load(large + 64, PageSize::M2, true, 0);
    let answer = b.read(large + 0x12_3456, 1000);
    assert_eq!(
        (answer.from, answer.pa.0),
        (ServedBy::Source(0), frame(large) + 0x12_3456)
    );
    // Address spaces have separate pages and separate shootdowns.
    b.load(APART, PageSize::K4, true, 0);
    b.load(2 * APART, PageSize::K4, true, 0);
    b.mmu.invalidate(&Invalidation::Space { asid: Asid(2) });
    b.mmu.invalidate(&Invalidation::Page {
        asid: A,
        page: VirtAddr(APART).page(PageSize::K4),
    });
    assert_eq!(b.read(APART, 2000).from, ServedBy::Walk);
    assert_eq!(b.read(2 * APART, 3000).from, ServedBy::Source(0));
    for what in [
        Invalidation::Space { asid: A },
        Invalidation::Range {
            asid: A,
            at: VirtAddr(3 * APART),
            bytes: 1,
        },
    ] {
        b.load(3 * APART, PageSize::K4, true, 0);
        b.mmu.invalidate(&what);
        assert_eq!(b.read(3 * APART, 5000).from, ServedBy::Walk, "{what:?}");
    }
}

#[test]
fn an_insertion_walks_as_others_do_and_leaves_nothing_in_tlbs() {
    let mut plain = Bench::new();
    let walk = plain.read(APART, 0);
    let length = walk.ready - walk.walk_start;
    assert!(length >= DRAM);
    let mut b = Bench::new();
    let unit = insertion(0, Some(APART));
    let query = b.begin(&unit, 1000);
    assert_eq!((query.start, query.walk), (1000, (1000, 1000 + length)));
    b.mmu.end_query(&unit, A, query, (1300, 1300));
    assert_eq!(b.get("stlt", "walk_reads"), plain.get("", "walk_reads"));
    assert_eq!((b.get("", "walks"), b.get("", "walk_reads")), (0, 0));
    // The page still needs a walk, whose entry is now cached.
    let answer = b.read(APART, 2000);
    assert_eq!(answer.from, ServedBy::Walk);
    assert!(answer.ready < 2000 + length);
    // Unmapped: no fault, and the walk takes as long.
    let unit = insertion(1, Some(99 * APART));
    let query = b.begin(&unit, 5000);
    assert_eq!(query.walk.1 - query.walk.0, length);
    assert_eq!((b.get("stlt", "walk_faults"), b.get("", "faults")), (1, 0));
    assert_eq!(b.get("stlt", "walk_cycles"), 2 * length);
    // Without translations there is no walk.
    let query = b.begin(&insertion(2, None), 6000);
    assert_eq!((query.walk, b.get("stlt", "walks")), ((6000, 6000), 2));
}

#[test]
fn the_ninth_insertion_waits_and_so_does_who_wants_the_row() {
    let mut b = Bench::new();
    let mut begun = Vec::new();
    for n in 0..INSERTIONS as u64 {
        let unit = insertion(n, None);
        let query = b.begin(&unit, n);
        assert_eq!(query.start, n, "eight at a time");
        b.mmu.end_query(&unit, A, query, (n, 500 + n));
        begun.push(unit);
    }
    assert_eq!(b.begin(&insertion(9, None), 100).start, 500);
    assert_eq!(b.get("stlt", "insert_wait_cycles"), 400);
    let row = |n: u64| Unit::Load {
        row: Some(PhysAddr((1 << 44) + 16 * n)),
        translation: None,
        invalid: Some(true),
    };
    assert_eq!(b.begin(&row(3), 100).start, 503);
    assert_eq!(b.begin(&row(77), 100).start, 100, "another row");
    assert_eq!(b.begin(&row(3), 600).start, 600, "it is written");
    assert_eq!(b.get("stlt", "load_wait_cycles"), 403);
    assert_eq!((b.get("ipb", "lookups"), b.get("ipb", "hits")), (3, 3));
    b.mmu.fill_ipb(5);
    assert_eq!(b.get("ipb", "fills"), 5);
    assert_eq!(b.get("insertion_buffer", "lookups"), 3);
    assert_eq!(b.get("insertion_buffer", "fills"), 9);
}

#[test]
fn between_samples_the_same_is_left_and_nothing_counted() {
    let mut b = Bench::new();
    let unit = found(APART, PageSize::K4, true);
    b.with_context(|mmu, mut context| mmu.warm_query(&unit, A, &mut context));
    let walk = insertion(0, Some(2 * APART));
    b.with_context(|mmu, mut context| mmu.warm_query(&walk, A, &mut context));
    let warmed = b
        .with_context(|mmu, context| mmu.warm(A, VirtAddr(APART + 8), Access::Read, 0, context))
        .expect("mapped");
    assert_eq!(warmed.0, frame(APART) + 8);
    for (part, name) in [
        ("stb", "fills"),
        ("stb", "lookups"),
        ("stlt", "walks"),
        ("stlt", "loads"),
        ("stlt", "walk_reads"),
        ("insertion_buffer", "fills"),
    ] {
        assert_eq!(b.get(part, name), 0, "{part} {name}");
    }
    // The insertion's walk has cached the entry's line: this walk is shorter.
    let mut cold = Bench::new();
    let length = |a: Translated| a.ready - a.walk_start;
    assert!(length(b.read(2 * APART, 1000)) < length(cold.read(2 * APART, 1000)));
}
