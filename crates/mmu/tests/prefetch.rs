//! Translations fetched unasked, on paper: when they are there, what becomes of them, and that
//! the account adds up.

#[path = "common/bench.rs"]
mod bench;
mod common;
#[path = "common/pages.rs"]
mod pages;

use bench::{A, Bench, DRAM, frame, small};
use common::L2_TLB;
use pagewalk_mmu::{Answer, DistanceSpec, Fault, Mmu, Source, TlbPrefetcherSpec};
use pagewalk_tables::{Flags, Invalidation};
use pagewalk_units::{Access, Cycle, Page, PageSize, VirtAddr, rng};
use rand::RngExt;

impl Bench {
    /// A walker, and TLBs of so many entries behind a first level of one; pages 0 to 4095.
    fn new(buffer: u32, second: u32) -> Self {
        let mut unit = small(second);
        unit.walkers = 1;
        unit.prefetcher = Some(TlbPrefetcherSpec::Distance(DistanceSpec {
            rows: 64,
            ways: 4,
            slots: 2,
            buffer,
        }));
        let mmu = Mmu::new(&unit, 0).expect("a possible MMU");
        Bench::over(mmu, (0..4096).map(|n| n << 12))
    }
    fn page(&mut self, page: u64, access: Access, now: Cycle) -> Result<Answer, Fault> {
        self.translate(page << 12, access, now)
    }
    fn read(&mut self, page: u64, now: Cycle) -> Answer {
        let answer = self.page(page, Access::Read, now).expect("mapped");
        assert_eq!(answer.pa.0, frame(page << 12), "page {page}");
        answer
    }
    fn of(&self, name: &str) -> u64 {
        self.get("prefetcher", name)
    }
    fn adds_up(&self) {
        let sum = self.of("present") + self.of("unmapped") + self.of("fetched");
        assert_eq!(self.of("predicted"), sum);
        let sum = self.of("useful") + self.of("useless") + self.of("pending");
        assert_eq!(self.of("fetched"), sum);
        assert!(self.of("late") <= self.of("useful"));
    }
}

/// Pages whose entries lie in lines of their own.
const APART: u64 = 64;

#[test]
fn a_stride_of_pages_is_walked_for_ahead_and_its_translation_waits_in_the_buffer() {
    let mut b = Bench::new(16, 16);
    for n in 0..3 {
        assert_eq!(b.read(n * APART, n * 1000).from, Source::Walk);
    }
    assert_eq!(
        b.of("fetched"),
        0,
        "two distances, and nothing that followed one"
    );
    // The third distance: when the walk for its page is over, one begins for the next.
    let walked = b.read(3 * APART, 3000);
    assert_eq!(
        (walked.from, walked.at),
        (Source::Walk, 3000 + L2_TLB + DRAM)
    );
    assert_eq!((b.of("fetched"), b.of("walk_cycles")), (1, DRAM));
    let found = b.read(4 * APART, 4000);
    assert_eq!((found.from, found.at), (Source::Prefetched, 4000 + L2_TLB));
    assert_eq!(b.read(4 * APART, 4100).from, Source::L1);
    // The first use of it was as a miss: the next is on its way already.
    let early = b.read(5 * APART, 4000 + L2_TLB + 1);
    assert_eq!(early.at, 4000 + L2_TLB + DRAM, "waited for");
    assert_eq!((b.of("useful"), b.of("late")), (2, 1));
    assert_eq!(b.get("", "walks"), 4, "demand walked for none of them");
    assert_eq!(b.of("walk_reads"), b.of("fetched"));
    b.adds_up();
}

#[test]
fn without_a_buffer_it_goes_into_the_last_tlb() {
    let mut b = Bench::new(0, 16);
    for n in 0..4 {
        b.read(n * APART, n * 1000);
    }
    let found = b.read(4 * APART, 4000);
    assert_eq!((found.from, found.at), (Source::L2, 4000 + L2_TLB));
    assert_eq!((b.of("fetched"), b.of("useful")), (2, 1));
    assert_eq!(b.get("l2.main", "fills"), 4 + 2);
    b.adds_up();
}

#[test]
fn what_is_wrong_costs_walks_and_is_called_useless() {
    for buffer in [2, 0] {
        let mut b = Bench::new(buffer, 2);
        // 1 1 2 1 1 3 …: what follows two ones is never what followed them before.
        let mut page = 0;
        for n in 0..400u64 {
            b.read(page, n * 10_000);
            page += [1, 1, 2 + n / 3][n as usize % 3];
            page %= 4096;
        }
        b.adds_up();
        assert!(
            b.of("useless") > 10,
            "{} of {}",
            b.of("useless"),
            b.of("fetched")
        );
        let walks = b.get("", "walks") + b.of("fetched") + b.of("unmapped");
        assert_eq!(
            b.get("", "walk_reads") + b.of("walk_reads"),
            walks,
            "a read each"
        );
    }
}

#[test]
fn a_page_that_is_not_mapped_is_not_fetched_and_nothing_faults() {
    let mut b = Bench::new(16, 16);
    for (n, page) in (4092..4096).enumerate() {
        b.read(page, n as u64 * 1000);
    }
    assert_eq!((b.of("predicted"), b.of("unmapped")), (1, 1));
    assert_eq!(b.get("", "faults"), 0);
    b.adds_up();
}

#[test]
fn what_the_kernel_changes_is_gone_from_the_buffer() {
    let mut b = Bench::new(16, 16);
    for n in 0..4 {
        b.read(n * APART, n * 1000);
    }
    let base = VirtAddr((4 * APART) << 12);
    b.table.map(base.0, PageSize::K4, 77 << 12, Flags::WRITABLE);
    let page = Page {
        base,
        size: PageSize::K4,
    };
    b.mmu.invalidate(&Invalidation::Page { asid: A, page });
    let answer = b.page(4 * APART, Access::Read, 9000).expect("mapped");
    assert_eq!((answer.from, answer.pa.0), (Source::Walk, 77 << 12));
    assert_eq!((b.of("useful"), b.of("useless")), (0, 1));
    b.adds_up();
}

#[test]
fn a_store_to_what_was_fetched_read_only_walks() {
    let mut b = Bench::new(16, 16);
    b.table
        .map((4 * APART) << 12, PageSize::K4, 77 << 12, Flags::default());
    for n in 0..4 {
        b.read(n * APART, n * 1000);
    }
    let fault = b
        .page(4 * APART, Access::Write, 4000)
        .expect_err("read-only");
    assert_eq!(
        fault.at,
        4000 + L2_TLB + 14,
        "the walk's end: its entry is in the L2"
    );
    b.adds_up();
}

#[test]
fn warming_leaves_what_a_timed_run_leaves_and_counts_nothing() {
    for buffer in [16, 0] {
        let (mut timed, mut warmed) = (Bench::new(buffer, 64), Bench::new(buffer, 64));
        let mut draws = rng(1, "pages");
        let pages: Vec<u64> = (0..3000)
            .scan(0u64, |page, _| {
                *page = (*page + [1, 1, 5, 9][draws.random_range(0..4)]) % 4096;
                Some(*page)
            })
            .collect();
        for (n, &page) in pages.iter().enumerate() {
            timed.read(page, n as u64 * 10_000);
            warmed.lent(|mmu, lent| {
                let found = mmu.warm(A, VirtAddr(page << 12), Access::Read, lent);
                assert_eq!(found.expect("mapped").0, frame(page << 12));
            });
        }
        assert_eq!(warmed.of("predicted") + warmed.of("fetched"), 0);
        assert!(timed.of("useful") > 100);
        timed.adds_up();
        let later = 100_000_000;
        for (n, page) in (0..4096).enumerate() {
            let at = later + n as u64 * 10_000;
            let from = [&mut timed, &mut warmed].map(|b| b.read(page, at).from);
            assert_eq!(from[0], from[1], "page {page}");
        }
    }
}
