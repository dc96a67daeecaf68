//! The contract suite over every registered page table.

use crate::common::dense;
use crate::common::long::{every_refusal, tides};
use crate::common::steps::{TableOp, random_steps};
use crate::common::tables::{Case, cases};
use crate::flattened::FlattenedSpec;
use pagewalk_tables::{ExternalTable, PAGE_TABLES, PageTableSpec, register};
use pagewalk_units::external::{Parameter, Parameters};
use proptest::prelude::*;

/// The cases of all kinds, and of one that is registered from outside.
pub fn all() -> Vec<Case> {
    register::<FlattenedSpec>("flattened");
    let flattened = |name, flatten_root, groups, slack| {
        let root = ("flatten_root".to_owned(), Parameter::Flag(flatten_root));
        Case {
            name,
            spec: PageTableSpec::External(ExternalTable::new(
                "flattened",
                Parameters::from([root]),
            )),
            slack,
            groups,
            reads: 1,
            gradual: false,
            resizes: false,
            small: false,
        }
    };
    let mut all = cases();
    all.push(flattened("flattened", true, 2, 4.1));
    all.push(flattened("flattened, but the root", false, 3, 2.1));
    all
}

fn step() -> impl Strategy<Value = TableOp> {
    prop_oneof![
        6 => (any::<u16>(), any::<u8>(), any::<u8>(), any::<u8>())
            .prop_map(|(slot, size, flags, starve)| TableOp::Map { slot: slot & 0xfff, size, flags, starve }),
        3 => (any::<u16>(), any::<u8>()).prop_map(|(slot, size)| TableOp::Unmap { slot: slot & 0xfff, size }),
        1 => (any::<u16>(), any::<u8>(), any::<u8>())
            .prop_map(|(slot, size, flags)| TableOp::Flags { slot: slot & 0xfff, size, flags }),
        2 => (any::<u16>(), any::<u32>()).prop_map(|(slot, offset)| TableOp::Probe { slot, offset }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_table_agrees_with_a_plain_map(steps in prop::collection::vec(step(), 1..400)) {
        for case in all() {
            let first = random_steps(&case, &steps);
            let second = random_steps(&case, &steps);
            prop_assert_eq!(first, second, "the same steps take the same frames");
        }
    }
}

#[test]
fn every_kind_of_table_has_a_case() {
    let cases: Vec<String> = cases().iter().map(|case| case.spec.name()).collect();
    for name in PAGE_TABLES {
        assert!(
            cases.iter().any(|case| case == name),
            "{name}: add it to tests/common/tables.rs"
        );
    }
}

#[test]
fn many_changes_in_tides() {
    for case in all() {
        let (_, seen) = tides(&case, 1, 100_000, 6);
        let [refused, moved, grown, begun, shrunk] = seen;
        let counts = format!("{}: {seen:?}", case.name);
        println!("{counts}");
        assert_eq!(moved > 0, case.resizes, "{counts}");
        // Resizes do not oscillate, and none is retried again and again.
        assert!(moved < 2 * 100_000, "{counts}");
        if case.small {
            assert!(refused > 0 && grown >= 20 && shrunk >= 6, "{counts}");
        }
        // Excludes the initial memory of each page size and of the walk tables.
        assert!(!case.gradual || begun >= 15, "{counts}");
    }
}

#[test]
fn the_same_changes_take_the_same_memory() {
    for case in all() {
        let first = tides(&case, 2, 20_000, 4);
        assert_eq!(first, tides(&case, 2, 20_000, 4), "{}", case.name);
        assert_ne!(first, tides(&case, 3, 20_000, 4), "{}", case.name);
    }
}

#[test]
fn every_refusal_of_memory_leaves_a_table_as_it_was() {
    for case in all() {
        // In a radix table nearly every change allocates memory and is
        // compared.
        let steps = if case.resizes { 4_000 } else { 600 };
        let refused = every_refusal(&case, 4, steps);
        println!("{}: {refused}", case.name);
        assert!(refused >= 5, "{}: {refused}", case.name);
    }
}

#[test]
fn neighbours_share_a_line_and_the_table_is_a_512th() {
    for case in all() {
        dense(&case, 1 << 17);
    }
}
