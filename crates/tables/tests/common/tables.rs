//! Every page table that the contract suite runs over.

use pagewalk_tables::{
    ElasticCuckooSpec, HashDontCacheSpec, LevelHashingSpec, MemoryEfficientSpec, PageTableSpec,
};
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
    /// A refused change may have finished a resize that was under way.
    pub settles: bool,
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
        slack,
        groups,
        reads,
        settles: matches!(
            spec,
            PageTableSpec::ElasticCuckoo(_) | PageTableSpec::MemoryEfficient(_)
        ),
        spec,
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
    // Small: as few slots as there can be, few re-insertions, chunks that change soon.
    let elastic_small = ElasticCuckooSpec {
        initial_slots: 64,
        max_kicks: 4,
        ..ElasticCuckooSpec::default()
    };
    let efficient_small = MemoryEfficientSpec {
        initial_slots: 64,
        max_kicks: 4,
        chunks: vec![4 << 10, 16 << 10, 1 << 20],
        l2p_entries: 4,
        ..MemoryEfficientSpec::default()
    };
    let (elastic, efficient) = Default::default();
    let open = HashDontCacheSpec::default();
    let level = LevelHashingSpec::default();
    vec![
        case("radix", PageTableSpec::Radix { levels: 4 }, 1.02, 4, 1),
        case("radix5", PageTableSpec::Radix { levels: 5 }, 1.02, 5, 1),
        // The 16,384 lines are a third to 0.6 of the slots, and the old table is
        // still there; or chunks of 1 MB, and old ones of 8 KB. A walk that the
        // walk caches sent to the wrong place begins anew, once.
        case("elastic", PageTableSpec::ElasticCuckoo(elastic), 4.6, 2, 9),
        case(
            "elastic, small",
            PageTableSpec::ElasticCuckoo(elastic_small),
            4.6,
            2,
            9,
        ),
        case(
            "efficient",
            PageTableSpec::MemoryEfficient(efficient),
            4.6,
            2,
            9,
        ),
        case(
            "efficient, small",
            PageTableSpec::MemoryEfficient(efficient_small),
            4.6,
            2,
            9,
        ),
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
