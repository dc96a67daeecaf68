//! The range TLB: the time of a hit, and one walk of the range table for any number of pages.

use pagewalk_mmu::source::RangeTlbSpec;
use pagewalk_mmu::{ServedBy, TranslationSpec};
use pagewalk_tables::{Flags, Invalidation};
use pagewalk_units::{Access, Asid, PageSize, VirtAddr};

use crate::common::{L2_TLB, mmu};
use crate::cores::{Cores, DRAM, tiny};

const RANGE: ServedBy = ServedBy::Source(0);

fn spec(entries: u32) -> TranslationSpec {
    TranslationSpec {
        range_tlb: Some(RangeTlbSpec {
            entries,
            ..RangeTlbSpec::default()
        }),
        ..TranslationSpec::default()
    }
}

/// A core whose levels hold one page each, with `pages` pages in one range.
fn core(pages: u64) -> Cores {
    let mut b = Cores::with(1, &tiny(), &spec(32));
    for page in 0..pages {
        b.small(page, page + (1 << 20));
    }
    b
}

fn own(b: &Cores, name: &str) -> u64 {
    b.get(0, "mmu.range_tlb", name)
}

#[test]
fn a_range_of_any_length_takes_one_page_walk_and_one_walk_of_ranges() {
    let mut b = core(16_384);
    let first = b.translate(0, 0, 0);
    // The request waits for its page walk alone: one entry from memory.
    assert_eq!((first.ready, first.from), (L2_TLB + DRAM, ServedBy::Walk));
    for page in 1..16_384u64 {
        let now = page * 10_000;
        let answer = b.translate(0, page << 12, now);
        // A hit takes the time of the second level.
        assert_eq!((answer.ready, answer.from), (now + L2_TLB, RANGE), "{page}");
        assert_eq!(answer.pa.0, (page + (1 << 20)) << 12);
    }
    assert_eq!(b.get(0, "mmu", "walks"), 1);
    assert_eq!(own(&b, "served"), 16_383);
    let fills = ["fills", "pages", "table_reads"].map(|name| own(&b, name));
    assert_eq!(fills, [1, 16_384, 2]);
    // Reads of the range table are no reads of the page walker.
    assert_eq!(b.get(0, "mmu", "walk_reads"), 1);
    assert_eq!(b.get(0, "l2", "walks"), 3);
}

#[test]
fn a_range_serves_from_the_end_of_its_walk_on() {
    // The page walk ends, then two lines of the range table are read, one after the other.
    let ready = L2_TLB + DRAM + 2 * DRAM;
    for (now, served) in [(ready - 1, false), (ready, true)] {
        let mut b = core(64);
        b.translate(0, 0, 0);
        let answer = b.translate(0, 40 << 12, now);
        assert_eq!(answer.from == RANGE, served, "{now}");
        // Another page walk in the range does not read the table again.
        assert_eq!(own(&b, "fills"), 1);
        assert_eq!(own(&b, "on_its_way"), u64::from(!served));
    }
}

#[test]
fn pages_in_no_range_cost_no_walk_of_ranges() {
    let mut b = Cores::with(1, &tiny(), &spec(32));
    for page in 0..64 {
        b.small(page, 1 << 20 | page << 1);
    }
    for page in 0..64 {
        b.translate(0, page << 12, page * 10_000);
    }
    assert_eq!((own(&b, "fills"), own(&b, "table_reads")), (0, 0));
    assert_eq!(b.get(0, "mmu", "walks"), 64);
}

#[test]
fn the_second_level_answers_first() {
    // This level holds all pages.
    let mut b = Cores::with(1, &mmu(), &spec(32));
    for page in 0..256 {
        b.small(page, page + (1 << 20));
    }
    b.translate(0, 0, 0);
    // 64 and more other pages replace page 0 in the first level.
    for page in 1..256u64 {
        b.translate(0, page << 12, page * 10_000);
    }
    let again = b.translate(0, 0, 10_000_000);
    assert_eq!(
        (again.ready, again.from),
        (10_000_000 + L2_TLB, ServedBy::L2)
    );
    assert_eq!((own(&b, "hits"), own(&b, "served")), (256, 255));
}

#[test]
fn the_least_recently_used_range_is_replaced() {
    let mut b = Cores::with(1, &tiny(), &spec(2));
    // Three ranges of two pages.
    for page in [0, 1, 10, 11, 20, 21u64] {
        b.small(page, page + (1 << 20));
    }
    for (n, page) in [0, 10, 1, 20].into_iter().enumerate() {
        b.translate(0, page << 12, n as u64 * 10_000);
    }
    assert_eq!(own(&b, "evictions"), 1);
    let from = |b: &mut Cores, page: u64, now| b.translate(0, page << 12, now).from;
    assert_eq!(from(&mut b, 0, 100_000), RANGE);
    assert_eq!(from(&mut b, 21, 110_000), RANGE);
    assert_eq!(from(&mut b, 11, 120_000), ServedBy::Walk);
}

#[test]
fn a_change_of_one_page_drops_its_range() {
    let mut b = core(64);
    b.translate(0, 0, 0);
    assert_eq!(b.translate(0, 1 << 12, 10_000).from, RANGE);
    // Page 32 becomes read-only: the range falls into two.
    let frame = (32 + (1 << 20)) << 12;
    b.tables[0].map(32 << 12, PageSize::K4, frame, Flags::default());
    b.shoot_down(&Invalidation::Page {
        asid: Asid(1),
        page: VirtAddr(32 << 12).page(PageSize::K4),
    });
    assert_eq!(b.translate(0, 2 << 12, 20_000).from, ServedBy::Walk);
    assert_eq!(b.translate(0, 31 << 12, 30_000).from, RANGE);
    assert_eq!(b.translate(0, 33 << 12, 40_000).from, ServedBy::Walk);
    assert_eq!(b.translate(0, 63 << 12, 50_000).from, RANGE);
    let store = b.try_translate(0, 1, 32 << 12, Access::Write, Some(60_000));
    assert!(store.is_err(), "{store:?}");
}
