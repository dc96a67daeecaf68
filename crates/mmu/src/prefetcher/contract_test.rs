//! Contract of all TLB prefetchers.

use std::cell::Cell;
use std::collections::BTreeSet;

use pagewalk_stats::Tree;
use pagewalk_units::{Asid, PageSize, VirtAddr};
use proptest::prelude::*;

use super::registry::{AspSpec, DistanceSpec, NextPageSpec, StrideSpec, TlbPrefetcherSpec};
use super::{ADDRESSABLE, Prefetcher, TlbMiss};

/// One of each kind.
fn cases() -> Vec<TlbPrefetcherSpec> {
    vec![
        TlbPrefetcherSpec::Asp(AspSpec {
            rows: 16,
            ways: 4,
            buffer: 0,
        }),
        TlbPrefetcherSpec::Distance(DistanceSpec {
            rows: 16,
            ways: 4,
            slots: 3,
            buffer: 0,
        }),
        TlbPrefetcherSpec::NextPage(NextPageSpec {
            degree: 3,
            buffer: 0,
        }),
        TlbPrefetcherSpec::Stride(StrideSpec {
            degree: 3,
            buffer: 0,
        }),
    ]
}

/// A miss, and the page size that the MMU reports for it.
#[derive(Clone, Copy, Debug)]
struct Missed {
    asid: u16,
    page: u64,
    pc: Option<u64>,
    size: PageSize,
}

impl Missed {
    fn train(&self, prefetcher: &mut dyn Prefetcher, counted: bool) -> Vec<u64> {
        let miss = TlbMiss {
            asid: Asid(self.asid),
            va: VirtAddr((self.page << 12) + 123),
            pc: self.pc,
            size: &|| self.size,
        };
        prefetcher.train(&miss, counted).to_vec()
    }
}

fn miss(asid: u16, page: u64, pc: Option<u64>, size: PageSize) -> Missed {
    Missed {
        asid,
        page,
        pc,
        size,
    }
}

/// Misses at a few distances, of two address spaces and two instructions, up to the last page.
fn misses() -> impl Strategy<Value = Vec<Missed>> {
    let distance = prop_oneof![Just(1i64), Just(-3), Just(70), -5000i64..5000];
    let pc = prop_oneof![Just(None), Just(Some(0x40_1000)), Just(Some(0x40_1004))];
    let one = (0u8..20, distance, pc, 0usize..3);
    let starts = prop_oneof![Just(1000), Just(0), Just(ADDRESSABLE - 1)];
    (starts, prop::collection::vec(one, 1..300)).prop_map(|(start, steps)| {
        let (mut asid, mut page) = (1, start);
        let step = |(switch, distance, pc, size): (u8, i64, Option<u64>, usize)| {
            asid = if switch == 0 { 3 - asid } else { asid };
            page = page.saturating_add_signed(distance).min(ADDRESSABLE - 1);
            miss(asid, page, pc, PageSize::ALL[if size == 2 { 1 } else { 0 }])
        };
        steps.into_iter().map(step).collect()
    })
}

fn trained(spec: &TlbPrefetcherSpec, misses: &[Missed], counted: bool) -> Vec<Vec<u64>> {
    let mut prefetcher = spec.build();
    let named = misses.iter().map(|m| m.train(&mut *prefetcher, counted));
    named.collect()
}

proptest! {
    #[test]
    fn other_pages_are_named_each_once_and_all_can_be_addressed(misses in misses()) {
        for spec in cases() {
            for (miss, named) in misses.iter().zip(trained(&spec, &misses, true)) {
                let pages: BTreeSet<u64> = named.iter().copied().collect();
                prop_assert_eq!(pages.len(), named.len(), "{}", spec.name());
                prop_assert!(!pages.contains(&miss.page), "{}", spec.name());
                prop_assert!(pages.iter().all(|&p| p < ADDRESSABLE), "{}", spec.name());
            }
        }
    }

    #[test]
    fn the_same_misses_name_the_same_pages_counted_or_not(misses in misses()) {
        for spec in cases() {
            let counted = trained(&spec, &misses, true);
            prop_assert_eq!(&counted, &trained(&spec, &misses, true), "{}", spec.name());
            prop_assert_eq!(&counted, &trained(&spec, &misses, false), "{}", spec.name());
        }
    }

    /// An address space learns no addresses of another one. The first miss after a switch names the
    /// pages that a new prefetcher would name.
    #[test]
    fn the_first_miss_of_an_address_space_goes_by_itself(misses in misses(), page in 0u64..100_000) {
        for spec in cases() {
            let mut prefetcher = spec.build();
            for m in &misses {
                m.train(&mut *prefetcher, true);
            }
            let first = miss(7, page, Some(0x40_1000), PageSize::K4);
            let named = first.train(&mut *prefetcher, true);
            prop_assert_eq!(named, first.train(&mut *spec.build(), true), "{}", spec.name());
        }
    }
}

#[test]
fn every_kind_has_a_case_and_what_it_counts_is_of_its_table() {
    let cases = cases();
    let names: Vec<_> = cases.iter().map(TlbPrefetcherSpec::name).collect();
    assert_eq!(names, TlbPrefetcherSpec::names());
    for spec in cases {
        assert_eq!(spec.check(), Ok(()), "{}", spec.name());
        let mut prefetcher: Box<dyn Prefetcher> = spec.build();
        for page in 0..10 {
            miss(1, page, Some(0x40_1000), PageSize::K4).train(&mut *prefetcher, false);
        }
        let mut tree = Tree::default();
        prefetcher.report("mmu", &mut tree);
        assert!(tree.rows.iter().all(|r| r.value == 0), "not to be counted");
        let table = spec.table().map(|t| format!("mmu.{}", t.name));
        for row in &tree.rows {
            assert_eq!(Some(&row.path), table.as_ref(), "{}", spec.name());
        }
        assert_eq!(table.is_some(), !tree.rows.is_empty(), "{}", spec.name());
    }
}

#[test]
fn the_size_of_a_page_is_looked_for_where_it_is_needed() {
    let lookups = |spec: &TlbPrefetcherSpec| {
        let (mut prefetcher, lookups) = (spec.build(), Cell::new(0));
        for page in 0..10 {
            let miss = TlbMiss {
                asid: Asid(1),
                va: VirtAddr(page << 12),
                pc: None,
                size: &|| {
                    lookups.set(lookups.get() + 1);
                    PageSize::K4
                },
            };
            prefetcher.train(&miss, true);
        }
        lookups.get()
    };
    let all = cases();
    let all: Vec<_> = all
        .iter()
        .map(|spec| (spec.name(), lookups(spec)))
        .collect();
    assert_eq!(
        all,
        [
            ("asp", 0),
            ("distance", 0),
            ("next_page", 10),
            ("stride", 0)
        ]
    );
}
