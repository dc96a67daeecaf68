//! Timing of TLB prefetches, the outcome of each, and the sums of the counters.

use crate::bench::{A, Bench, DRAM, frame, small};
use crate::common::L2_TLB;
use pagewalk_mmu::{
    AspSpec, DistanceSpec, Fault, Lookup, Mmu, NextPageSpec, ServedBy, TlbPrefetcherSpec,
    Translated,
};
use pagewalk_tables::{Flags, Invalidation};
use pagewalk_units::{Access, Asid, Cycle, Page, PageSize, VirtAddr, rng};
use rand::RngExt;

fn distance(buffer: u32) -> TlbPrefetcherSpec {
    TlbPrefetcherSpec::Distance(DistanceSpec {
        rows: 64,
        ways: 4,
        slots: 2,
        buffer,
    })
}

fn next_page(degree: u32, buffer: u32) -> TlbPrefetcherSpec {
    TlbPrefetcherSpec::NextPage(NextPageSpec { degree, buffer })
}

fn asp(buffer: u32) -> TlbPrefetcherSpec {
    TlbPrefetcherSpec::Asp(AspSpec {
        rows: 64,
        ways: 4,
        buffer,
    })
}

impl Bench {
    /// Distance prefetching with one walker, a first level of one entry and a second level of
    /// `second`; pages 0 to 4095.
    fn prefetching(buffer: u32, second: u32) -> Self {
        Bench::with(Some(distance(buffer)), second)
    }
    /// As [`Bench::prefetching`], with another prefetcher or none.
    fn with(prefetcher: Option<TlbPrefetcherSpec>, second: u32) -> Self {
        let mut unit = small(second);
        unit.walkers = 1;
        unit.prefetcher = prefetcher;
        let mmu = Mmu::new(&unit, 0).expect("a possible MMU");
        Bench::over(mmu, (0..4096).map(|n| n << 12))
    }
    fn page(&mut self, page: u64, access: Access, now: Cycle) -> Result<Translated, Fault> {
        self.translate(page << 12, access, now)
    }
    fn read_page(&mut self, page: u64, now: Cycle) -> Translated {
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

/// Distance in pages at which entries lie in different lines.
const APART: u64 = 64;

#[test]
fn a_stride_of_pages_is_walked_for_ahead_and_its_translation_waits_in_the_buffer() {
    let mut b = Bench::prefetching(16, 16);
    for n in 0..3 {
        assert_eq!(b.read_page(n * APART, n * 1000).from, ServedBy::Walk);
    }
    assert_eq!(b.of("fetched"), 0, "two distances, and none after another");
    // The third distance: when the walk for its page ends, one begins for the next page.
    let walked = b.read_page(3 * APART, 3000);
    assert_eq!(
        (walked.from, walked.ready),
        (ServedBy::Walk, 3000 + L2_TLB + DRAM)
    );
    assert_eq!((b.of("fetched"), b.of("walk_cycles")), (1, DRAM));
    let found = b.read_page(4 * APART, 4000);
    assert_eq!(
        (found.from, found.ready),
        (ServedBy::Source(0), 4000 + L2_TLB)
    );
    assert_eq!(b.read_page(4 * APART, 4100).from, ServedBy::L1);
    // Its first use trained as a miss does: the next page is already on its way.
    let early = b.read_page(5 * APART, 4000 + L2_TLB + 1);
    assert_eq!(early.ready, 4000 + L2_TLB + DRAM, "waited for");
    assert_eq!((b.of("useful"), b.of("late")), (2, 1));
    assert_eq!(b.get("", "walks"), 4, "demand walked for none of them");
    assert_eq!(b.of("walk_reads"), b.of("fetched"));
    b.adds_up();
}

#[test]
fn without_a_buffer_it_goes_into_the_last_tlb() {
    let mut b = Bench::prefetching(0, 16);
    for n in 0..4 {
        b.read_page(n * APART, n * 1000);
    }
    let found = b.read_page(4 * APART, 4000);
    assert_eq!((found.from, found.ready), (ServedBy::L2, 4000 + L2_TLB));
    assert_eq!((b.of("fetched"), b.of("useful")), (2, 1));
    assert_eq!(b.get("l2.main", "fills"), 4 + 2);
    b.adds_up();
}

#[test]
fn what_is_fetched_into_the_last_tlb_is_no_miss_that_might_have_been_a_hit() {
    let mut b = Bench::prefetching(0, 16);
    b.mmu.mark_stale(false);
    for n in 0..4 {
        b.read_page(n * APART, n * 1000);
    }
    assert_eq!(b.get("l2.main", "fills"), 4 + 1, "one ahead of them");
    let [_, second] = b.mmu.stale();
    assert_eq!((second.hits, second.misses), (0, 4));
    // It was filled since the fast-forward, so its hit is certain.
    assert_eq!(b.read_page(4 * APART, 4000).from, ServedBy::L2);
    assert_eq!(b.mmu.stale()[1].hits, 0);
}

#[test]
fn what_is_wrong_costs_walks_and_is_called_useless() {
    for buffer in [2, 0] {
        let mut b = Bench::prefetching(buffer, 2);
        // 1 1 2 1 1 3 …: the distance after two ones never repeats.
        let mut page = 0;
        for n in 0..400u64 {
            b.read_page(page, n * 10_000);
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
    let mut b = Bench::prefetching(16, 16);
    for (n, page) in (4092..4096).enumerate() {
        b.read_page(page, n as u64 * 1000);
    }
    assert_eq!((b.of("predicted"), b.of("unmapped")), (1, 1));
    assert_eq!(b.get("", "faults"), 0);
    b.adds_up();
}

#[test]
fn what_the_kernel_changes_is_gone_from_the_buffer() {
    let mut b = Bench::prefetching(16, 16);
    for n in 0..4 {
        b.read_page(n * APART, n * 1000);
    }
    let base = VirtAddr((4 * APART) << 12);
    b.table.map(base.0, PageSize::K4, 77 << 12, Flags::WRITABLE);
    let page = Page {
        base,
        size: PageSize::K4,
    };
    b.mmu.invalidate(&Invalidation::Page { asid: A, page });
    let answer = b.page(4 * APART, Access::Read, 9000).expect("mapped");
    assert_eq!((answer.from, answer.pa.0), (ServedBy::Walk, 77 << 12));
    assert_eq!((b.of("useful"), b.of("useless")), (0, 1));
    b.adds_up();
}

#[test]
fn a_store_to_what_was_fetched_read_only_walks() {
    let mut b = Bench::prefetching(16, 16);
    b.table
        .map((4 * APART) << 12, PageSize::K4, 77 << 12, Flags::default());
    for n in 0..4 {
        b.read_page(n * APART, n * 1000);
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
        let (mut timed, mut warmed) = (
            Bench::prefetching(buffer, 64),
            Bench::prefetching(buffer, 64),
        );
        let mut draws = rng(1, "pages");
        let pages: Vec<u64> = (0..3000)
            .scan(0u64, |page, _| {
                *page = (*page + [1, 1, 5, 9][draws.random_range(0..4)]) % 4096;
                Some(*page)
            })
            .collect();
        for (n, &page) in pages.iter().enumerate() {
            timed.read_page(page, n as u64 * 10_000);
            warmed.with_context(|mmu, context| {
                let found = mmu.warm(A, VirtAddr(page << 12), Access::Read, 0, context);
                assert_eq!(found.expect("mapped").0, frame(page << 12));
            });
        }
        assert_eq!(warmed.of("predicted") + warmed.of("fetched"), 0);
        assert!(timed.of("useful") > 100);
        timed.adds_up();
        let later = 100_000_000;
        for (n, page) in (0..4096).enumerate() {
            let at = later + n as u64 * 10_000;
            let from = [&mut timed, &mut warmed].map(|b| b.read_page(page, at).from);
            assert_eq!(from[0], from[1], "page {page}");
        }
    }
}

/// Two instructions sweep with strides of their own, in turns: only their program counters tell
/// the sweeps apart. The first steps are warmed, the others timed.
#[test]
fn timed_accesses_and_warming_pass_the_instruction_to_the_prefetcher() {
    let steps = 8;
    for (buffer, found) in [(0, ServedBy::L2), (16, ServedBy::Source(0))] {
        for warmed in 0..steps {
            let mut b = Bench::with(Some(asp(buffer)), 64);
            for n in 0..steps {
                for (pc, page) in [(0x40_1000, n * 3), (0x40_1004, 4000 - n * 5)] {
                    let (va, access, now) = (VirtAddr(page << 12), Access::Read, n * 10_000);
                    if n < warmed {
                        let pa = b.with_context(|mmu, c| mmu.warm(A, va, access, pc, c));
                        assert_eq!(pa.expect("mapped").0, frame(va.0));
                        continue;
                    }
                    let lookup = Lookup {
                        asid: A,
                        va,
                        access,
                        pc,
                        now,
                    };
                    let answer = b.with_context(|mmu, c| mmu.translate(lookup, c));
                    // The third miss of an instruction is the first that prefetches.
                    let expected = if n < 3 { ServedBy::Walk } else { found };
                    let from = answer.expect("mapped").from;
                    assert_eq!(from, expected, "{warmed} warmed, step {n}, {pc:x}");
                }
            }
            b.adds_up();
        }
    }
}

#[test]
fn a_sweep_misses_once_with_the_next_page_and_on_every_page_without() {
    let n = 1000;
    for (prefetcher, walks, from) in [
        (None, n, ServedBy::Walk),
        (Some(next_page(1, 0)), 1, ServedBy::L2),
        (Some(next_page(3, 0)), 1, ServedBy::L2),
        (Some(next_page(2, 16)), 1, ServedBy::Source(0)),
    ] {
        let mut b = Bench::with(prefetcher, 64);
        for page in 0..n {
            let answer = b.read_page(page, page * 1000);
            let expected = if page == 0 { ServedBy::Walk } else { from };
            assert_eq!(answer.from, expected, "{prefetcher:?}, page {page}");
        }
        assert_eq!(b.get("", "walks"), walks);
        let tree = crate::common::counted(&b.mmu, &b.private);
        let Some(spec) = prefetcher else {
            assert!(!tree.rows.iter().any(|r| r.path.contains("prefetch")));
            continue;
        };
        b.adds_up();
        // Each page except the first, and those that the last one has named.
        let TlbPrefetcherSpec::NextPage(NextPageSpec { degree, .. }) = spec else {
            panic!("another prefetcher")
        };
        let ends = ["useful", "late", "useless", "pending"].map(|name| b.of(name));
        assert_eq!(ends, [n - 1, 0, 0, u64::from(degree)], "{spec:?}");
    }
}

#[test]
fn the_next_page_is_of_the_size_of_the_one_before() {
    let mut b = Bench::with(Some(next_page(1, 0)), 64);
    let large = |n: u64| n << 21;
    for n in 0..20 {
        b.table
            .map(large(n), PageSize::M2, 1 << 40 | large(n), Flags::WRITABLE);
    }
    for n in 0..20 {
        let answer = b
            .translate(large(n) + 77, Access::Read, n * 1000)
            .expect("mapped");
        let expected = if n == 0 { ServedBy::Walk } else { ServedBy::L2 };
        assert_eq!(
            (answer.from, answer.pa.0),
            (expected, 1 << 40 | (large(n) + 77))
        );
    }
    assert_eq!(
        (b.of("fetched"), b.of("useful"), b.of("unmapped")),
        (19, 19, 1)
    );
}

#[test]
fn pages_at_random_gain_nothing_by_the_next_one_and_cost_twice_the_walks() {
    let n = 20_000;
    let run = |prefetcher| {
        let mut b = Bench::with(prefetcher, 64);
        let mut draws = rng(3, "pages");
        for i in 0..n {
            b.read_page(draws.random_range(0..4096), i * 1000);
        }
        b
    };
    let (plain, with) = (run(None), run(Some(next_page(1, 0))));
    let share = with.get("", "walks") as f64 / plain.get("", "walks") as f64;
    assert!((0.98..1.02).contains(&share), "{share}");
    let reads = with.get("", "walk_reads") + with.of("walk_reads");
    let times = reads as f64 / plain.get("", "walk_reads") as f64;
    assert!((1.95..2.02).contains(&times), "{times}");
    // By chance, 64 of 4096 pages are present.
    assert!(with.of("useful") * 30 < with.of("fetched"));
    with.adds_up();
}

#[test]
fn what_was_fetched_into_the_tlb_goes_with_what_the_kernel_changes() {
    let base = VirtAddr(4 << 12);
    let page = Page {
        base,
        size: PageSize::K4,
    };
    let (at, bytes) = (VirtAddr(0), 1 << 20);
    for what in [
        Invalidation::Page { asid: A, page },
        Invalidation::Range { asid: A, at, bytes },
        Invalidation::Space { asid: A },
    ] {
        for buffer in [0, 16] {
            let mut b = Bench::with(Some(next_page(1, buffer)), 16);
            b.read_page(3, 0);
            b.table.map(base.0, PageSize::K4, 77 << 12, Flags::WRITABLE);
            b.mmu.invalidate(&what);
            let answer = b.page(4, Access::Read, 9000).expect("mapped");
            assert_eq!((answer.from, answer.pa.0), (ServedBy::Walk, 77 << 12));
            assert_eq!((b.of("useful"), b.of("useless")), (0, 1), "{what:?}");
            b.adds_up();
        }
    }
}

#[test]
fn what_was_fetched_for_one_address_space_serves_no_other() {
    for buffer in [0, 16] {
        let mut b = Bench::with(Some(next_page(1, buffer)), 16);
        b.read_page(3, 0);
        let lookup = Lookup {
            asid: Asid(A.0 + 1),
            va: VirtAddr(4 << 12),
            access: Access::Read,
            pc: 0,
            now: 9000,
        };
        let other = b.with_context(|mmu, context| mmu.translate(lookup, context));
        assert_eq!(other.expect("mapped").from, ServedBy::Walk);
        assert_eq!(b.of("useful"), 0);
        // Its own address space still has it.
        assert_ne!(b.read_page(4, 18_000).from, ServedBy::Walk);
        assert_eq!(b.of("useful"), 1);
        b.adds_up();
    }
}

#[test]
fn the_account_adds_up_whatever_happens() {
    for (seed, prefetcher) in [
        distance(0),
        distance(8),
        asp(0),
        asp(8),
        next_page(1, 0),
        next_page(4, 0),
        next_page(2, 8),
    ]
    .into_iter()
    .enumerate()
    {
        let mut b = Bench::with(Some(prefetcher), 32);
        let mut draws = rng(seed as u64, "steps");
        let (mut page, mut now) = (0u64, 0);
        for _ in 0..20_000 {
            page = match draws.random_range(0..4) {
                0 => draws.random_range(0..4200),
                _ => (page + 1) % 4200,
            };
            now += draws.random_range(0..600);
            match draws.random_range(0..200) {
                0 => b.mmu.invalidate(&Invalidation::Space { asid: A }),
                1 => b.mmu.invalidate(&Invalidation::Page {
                    asid: A,
                    page: Page {
                        base: VirtAddr(page << 12),
                        size: PageSize::K4,
                    },
                }),
                _ => {
                    let answer = b.page(page, Access::Read, now);
                    assert_eq!(answer.is_ok(), page < 4096, "page {page}");
                }
            }
        }
        b.adds_up();
        let parts = ["useful", "late", "useless", "unmapped"].map(|name| b.of(name));
        assert!(parts.iter().all(|&n| n > 0), "{prefetcher:?}: {parts:?}");
    }
}
