//! What all prefetchers of translations promise.

use std::collections::BTreeSet;

use pagewalk_stats::Tree;
use pagewalk_units::{Asid, PageSize, VirtAddr};
use proptest::prelude::*;

use super::registry::{DistanceSpec, NextPageSpec, StrideSpec, TlbPrefetcherSpec};
use super::{ADDRESSABLE, Prefetcher, TlbMiss};

/// One of each kind.
fn cases() -> Vec<TlbPrefetcherSpec> {
    vec![
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

fn miss(asid: u16, page: u64, size: PageSize) -> TlbMiss {
    TlbMiss {
        asid: Asid(asid),
        va: VirtAddr((page << 12) + 123),
        size,
    }
}

/// Misses that go by a few distances, of two address spaces, up to the last page there is.
fn misses() -> impl Strategy<Value = Vec<TlbMiss>> {
    let distance = prop_oneof![Just(1i64), Just(-3), Just(70), -5000i64..5000];
    let one = (0u8..20, distance, 0usize..3);
    let starts = prop_oneof![Just(1000), Just(0), Just(ADDRESSABLE - 1)];
    (starts, prop::collection::vec(one, 1..300)).prop_map(|(start, steps)| {
        let (mut asid, mut page) = (1, start);
        let step = |(switch, distance, size): (u8, i64, usize)| {
            asid = if switch == 0 { 3 - asid } else { asid };
            page = page.saturating_add_signed(distance).min(ADDRESSABLE - 1);
            miss(asid, page, PageSize::ALL[if size == 2 { 1 } else { 0 }])
        };
        steps.into_iter().map(step).collect()
    })
}

fn trained(spec: &TlbPrefetcherSpec, misses: &[TlbMiss], counted: bool) -> Vec<Vec<u64>> {
    let mut prefetcher = spec.build();
    let named = misses.iter().map(|m| prefetcher.train(m, counted).to_vec());
    named.collect()
}

proptest! {
    #[test]
    fn other_pages_are_named_each_once_and_all_can_be_addressed(misses in misses()) {
        for spec in cases() {
            for (miss, named) in misses.iter().zip(trained(&spec, &misses, true)) {
                let pages: BTreeSet<u64> = named.iter().copied().collect();
                prop_assert_eq!(pages.len(), named.len(), "{}", spec.name());
                prop_assert!(!pages.contains(&miss.page()), "{}", spec.name());
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

    /// Nobody learns from another's addresses where they have put theirs: the first miss after a
    /// switch names what it would have named of a new prefetcher.
    #[test]
    fn the_first_miss_of_an_address_space_goes_by_itself(misses in misses(), page in 0u64..100_000) {
        for spec in cases() {
            let mut prefetcher = spec.build();
            for m in &misses {
                prefetcher.train(m, true);
            }
            let first = miss(7, page, PageSize::K4);
            let named = prefetcher.train(&first, true);
            prop_assert_eq!(named, spec.build().train(&first, true), "{}", spec.name());
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
            prefetcher.train(&miss(1, page, PageSize::K4), false);
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
