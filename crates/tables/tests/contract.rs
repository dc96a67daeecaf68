//! The contract suite over every page table there is.

mod common;

use common::{Step, Table, dense, random_steps};
use pagewalk_tables::{HashDontCacheSpec, LevelHashingSpec, PageTableSpec};
use pagewalk_units::Asid;
use proptest::prelude::*;

/// One line a table; the number is how much more than a 512th of a dense range it may take.
fn tables() -> Vec<(PageTableSpec, f64)> {
    let small = HashDontCacheSpec {
        initial_slots: 64,
        initial_huge_slots: 64,
        downsize_at: 0.2,
        ..HashDontCacheSpec::default()
    };
    let smallest = LevelHashingSpec {
        initial_slots: 128,
        downsize_at: 0.1,
        ..LevelHashingSpec::default()
    };
    vec![
        (PageTableSpec::Radix { levels: 4 }, 1.02),
        (PageTableSpec::Radix { levels: 5 }, 1.02),
        // 16,384 lines in 65,536, where it starts.
        (
            PageTableSpec::HashDontCache(HashDontCacheSpec::default()),
            4.1,
        ),
        (PageTableSpec::HashDontCache(small), 2.1),
        (
            PageTableSpec::LevelHashing(LevelHashingSpec::default()),
            4.0,
        ),
    ]
}

fn make(spec: &PageTableSpec) -> impl Fn(Asid) -> Table + '_ {
    |asid| spec.build(asid).expect("a valid table")
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<u16>(), any::<u8>(), any::<u8>(), any::<u8>())
            .prop_map(|(slot, size, flags, starve)| Step::Map { slot: slot & 0xfff, size, flags, starve }),
        3 => (any::<u16>(), any::<u8>()).prop_map(|(slot, size)| Step::Unmap { slot: slot & 0xfff, size }),
        1 => (any::<u16>(), any::<u8>(), any::<u8>())
            .prop_map(|(slot, size, flags)| Step::Flags { slot: slot & 0xfff, size, flags }),
        2 => (any::<u16>(), any::<u32>()).prop_map(|(slot, offset)| Step::Probe { slot, offset }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_table_agrees_with_a_plain_map(steps in prop::collection::vec(step(), 1..400)) {
        for (spec, _) in tables() {
            let first = random_steps(&make(&spec), &steps);
            let second = random_steps(&make(&spec), &steps);
            prop_assert_eq!(first, second, "the same steps take the same frames");
        }
    }
}

#[test]
fn neighbours_share_a_line_and_the_table_is_a_512th() {
    for (spec, slack) in tables() {
        dense(&make(&spec), 1 << 17, slack);
    }
}
