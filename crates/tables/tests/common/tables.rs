//! The page tables that the contract suite covers.

use pagewalk_tables::{
    BootingKernel, Choice, ElasticCuckooSpec, GlobalHashedSpec, HashDontCacheSpec, KernelTables,
    LevelHashingSpec, MemoryEfficientSpec, PageTableSpec, RadixSpec, RangesSpec, WaitFor, WhenDue,
};
use pagewalk_units::{Asid, PhysAddr, VirtAddr};

use super::{Alone, Table, TestFrames};

/// A table and its guarantees.
pub struct Case {
    pub name: &'static str,
    pub spec: PageTableSpec,
    /// Maximum memory relative to a 512th of a dense range of 512 MB.
    pub slack: f64,
    /// Maximum sequential groups of reads of a walk.
    pub groups: usize,
    /// Maximum reads of a group.
    pub reads: usize,
    /// True if it resizes gradually, with each change.
    pub gradual: bool,
    /// True if it moves entries as it grows.
    pub resizes: bool,
    /// True if it starts at minimum size and shrinks as well as grows.
    pub small: bool,
}

impl Case {
    /// The page tables of a kernel with 4 MB of memory, from `source`.
    pub fn boot(&self, source: &mut TestFrames) -> Box<dyn KernelTables<VirtAddr, PhysAddr>> {
        let kernel = BootingKernel {
            name: "page_table",
            seed: 1,
            memory: 4 << 20,
        };
        let made = self.spec.boot(kernel, source).expect("a valid table");
        source.booted();
        made.expect("memory is plenty")
    }

    /// The table of a kernel's only address space.
    pub fn make(&self, asid: Asid, source: &mut TestFrames) -> Table {
        let kernel = self.boot(source);
        let table = kernel.of_space(asid);
        let at_boot = kernel.shared_bytes();
        Box::new(Alone {
            kernel,
            table,
            at_boot,
        })
    }
}

/// One line for each table. Resizable tables also appear at minimum size, where they resize
/// often and in both directions.
pub fn cases() -> Vec<Case> {
    let case = |name, spec, slack, groups, reads| Case {
        name,
        small: false,
        resizes: !matches!(spec, PageTableSpec::Radix(_)),
        gradual: matches!(
            spec,
            PageTableSpec::ElasticCuckoo(_) | PageTableSpec::MemoryEfficient(_)
        ),
        slack,
        groups,
        reads,
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
    // Shrinks so early that lines find no bucket, so the shrink fails.
    let level_eager = LevelHashingSpec {
        downsize_at: 0.4,
        ..level_small
    };
    // Small: minimum slots, few re-insertions, and early chunk-size changes.
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
    let elastic_wide = ElasticCuckooSpec {
        address_bits: 57,
        ..ElasticCuckooSpec::default()
    };
    let efficient_wide = MemoryEfficientSpec {
        address_bits: 57,
        ..MemoryEfficientSpec::default()
    };
    // Each technique alone, and the other parameter choices.
    let chunked = ElasticCuckooSpec {
        chunks: vec![8 << 10, 1 << 20],
        l2p_entries: 8,
        change_chunks: true,
        ..elastic_small.clone()
    };
    let in_place = ElasticCuckooSpec {
        in_place: true,
        ..elastic_small.clone()
    };
    let per_way = ElasticCuckooSpec {
        per_way: true,
        ..elastic_small.clone()
    };
    let otherwise = ElasticCuckooSpec {
        ways: 4,
        growth: 4,
        downsize_at: 0.1,
        max_kicks: 32,
        choice: Choice::PreferEmpty,
        wait_for: WaitFor::All,
        merge_counts: true,
        ..elastic_small.clone()
    };
    let finished = ElasticCuckooSpec {
        when_due: WhenDue::Finish,
        migrated_per_insertion: 1.0,
        ..elastic_small.clone()
    };
    let efficient_finished = MemoryEfficientSpec {
        when_due: WhenDue::Finish,
        migrated_per_insertion: 2.0,
        ..efficient_small.clone()
    };
    let (elastic, efficient) = Default::default();
    let open = HashDontCacheSpec::default();
    let global = GlobalHashedSpec::default();
    let global_wide = GlobalHashedSpec {
        entries_per_frame: 0.1,
        address_bits: 57,
        ..global
    };
    let level = LevelHashingSpec::default();
    let small = |c| Case { small: true, ..c };
    // With four re-insertions, an insertion sometimes finds no slot at a load of one third.
    let cramped = |c| Case {
        slack: 6.2,
        ..small(c)
    };
    let ecpt = |name, spec| case(name, PageTableSpec::ElasticCuckoo(spec), 4.6, 2, 9);
    let mehpt = |name, spec| case(name, PageTableSpec::MemoryEfficient(spec), 4.6, 2, 9);
    let hdc = |name, spec, slack| case(name, PageTableSpec::HashDontCache(spec), slack, 4096, 3);
    // Entries have 16 bytes, and chains have no bound.
    let gh = |name, spec| case(name, PageTableSpec::GlobalHashed(spec), 2.1, 4096, 3);
    let lh = |name, spec| case(name, PageTableSpec::LevelHashing(spec), 4.0, 1, 12);
    vec![
        case(
            "radix",
            PageTableSpec::Radix(RadixSpec { levels: 4 }),
            1.02,
            4,
            1,
        ),
        case(
            "radix5",
            PageTableSpec::Radix(RadixSpec { levels: 5 }),
            1.02,
            5,
            1,
        ),
        case(
            "ranges",
            PageTableSpec::Ranges(RangesSpec::default()),
            1.02,
            4,
            1,
        ),
        case(
            "ranges, 57 bits",
            PageTableSpec::Ranges(RangesSpec { address_bits: 57 }),
            1.03,
            5,
            1,
        ),
        // The 16,384 lines fill a third to two thirds of the slots, and the old table still
        // exists. Or there are chunks of 1 MB and old ones of 8 KB. A walk that the walk
        // caches misdirected restarts once.
        ecpt("elastic", elastic),
        cramped(ecpt("elastic, small", elastic_small)),
        cramped(ecpt("elastic, chunks", chunked)),
        cramped(ecpt("elastic, in place", in_place)),
        cramped(ecpt("elastic, per way", per_way)),
        cramped(ecpt("elastic, finished at once", finished)),
        Case {
            reads: 12,
            slack: 8.0,
            ..small(ecpt("elastic, otherwise", otherwise))
        },
        mehpt("efficient", efficient),
        ecpt("elastic, 57 bits", elastic_wide),
        mehpt("efficient, 57 bits", efficient_wide),
        cramped(mehpt("efficient, small", efficient_small)),
        cramped(mehpt("efficient, finished at once", efficient_finished)),
        // A probe sequence is bounded only by the table's size. 16,384 lines lie in 65,536
        // slots.
        hdc("open", open, 4.1),
        small(hdc("open, small", open_small, 2.1)),
        small(hdc("open, steep", open_steep, 2.1)),
        gh("global", global),
        gh("global, 57 bits", global_wide),
        lh("level", level),
        small(lh("level, small", level_small)),
        small(lh("level, eager", level_eager)),
    ]
}
