//! Every page table that the contract suite runs over.

use pagewalk_tables::{HashDontCacheSpec, LevelHashingSpec, PageTableSpec};
use pagewalk_units::Asid;

use super::Table;

/// A table and what it promises.
pub struct Case {
    pub name: &'static str,
    pub spec: PageTableSpec,
    /// How much more than a 512th of a dense range of 512 MB it may take.
    pub slack: f64,
    /// Most groups of reads of a walk, one after the other.
    pub groups: usize,
    /// Most reads of a group.
    pub reads: usize,
}

impl Case {
    pub fn make(&self, asid: Asid) -> Table {
        self.spec.build(asid).expect("a valid table")
    }
}

/// One line a table; those that resize also as small ones, which do so often
/// and in both directions.
pub fn cases() -> Vec<Case> {
    let case = |name, spec, slack, groups, reads| Case {
        name,
        spec,
        slack,
        groups,
        reads,
    };
    let open_small = HashDontCacheSpec {
        initial_slots: 64,
        initial_huge_slots: 64,
        downsize_at: 0.2,
        ..HashDontCacheSpec::default()
    };
    let open_steep = HashDontCacheSpec {
        upsize_at: 0.9,
        downsize_at: 0.1,
        growth: 8,
        ..open_small
    };
    let level_small = LevelHashingSpec {
        initial_slots: 128,
        downsize_at: 0.1,
        ..LevelHashingSpec::default()
    };
    let open = HashDontCacheSpec::default();
    let level = LevelHashingSpec::default();
    vec![
        case("radix", PageTableSpec::Radix { levels: 4 }, 1.02, 4, 1),
        case("radix5", PageTableSpec::Radix { levels: 5 }, 1.02, 5, 1),
        // A run of used lines has no bound but the table's size. 16,384 lines lie in 65,536.
        case("open", PageTableSpec::HashDontCache(open), 4.1, 4096, 3),
        case(
            "open, small",
            PageTableSpec::HashDontCache(open_small),
            2.1,
            4096,
            3,
        ),
        case(
            "open, steep",
            PageTableSpec::HashDontCache(open_steep),
            2.1,
            4096,
            3,
        ),
        case("level", PageTableSpec::LevelHashing(level), 4.0, 1, 12),
        case(
            "level, small",
            PageTableSpec::LevelHashing(level_small),
            4.0,
            1,
            12,
        ),
    ]
}
