//! Properties of the cuckoo tables: correct walk tables, and limits on the
//! probes of a walk.

use crate::common::{Oracle, Table, TestFrames, caches, overlaps, walk};
use pagewalk_tables::{ElasticCuckooSpec, Flags, MemoryEfficientSpec, Owner, PageTableSpec};
use pagewalk_units::{Asid, Frame, PageSize, PhysAddr, VirtAddr, rng};
use rand::RngExt;

fn specs() -> [PageTableSpec; 4] {
    let small = ElasticCuckooSpec {
        initial_slots: 64,
        max_kicks: 8,
        ..ElasticCuckooSpec::default()
    };
    let efficient = MemoryEfficientSpec {
        initial_slots: 64,
        ..MemoryEfficientSpec::default()
    };
    [
        PageTableSpec::ElasticCuckoo(ElasticCuckooSpec::default()),
        PageTableSpec::ElasticCuckoo(small),
        PageTableSpec::MemoryEfficient(MemoryEfficientSpec::default()),
        PageTableSpec::MemoryEfficient(efficient),
    ]
}

/// Page sizes present in the naturally aligned 2^`shift` bytes at `va`.
fn sizes_in(oracle: &Oracle, va: u64, shift: u32) -> [bool; 3] {
    let base = va >> shift << shift;
    let mut sizes = [false; 3];
    for (size, ..) in oracle.range(base..base + (1 << shift)).map(|e| e.1) {
        sizes[size.index()] = true;
    }
    sizes
}

/// Number of probes of a walk with up-to-date walk-cache lines.
fn promised(oracle: &Oracle, va: u64) -> usize {
    let ways = |there: bool| if there { 3 } else { 0 };
    match sizes_in(oracle, va, 33) {
        [true, false, false] => 3,
        [false, false, true] => 1,
        [small, huge, giant] => match sizes_in(oracle, va, 30) {
            // The PMD-CWT has no line for a 1 GB page.
            [_, _, true] => ways(small) + ways(huge) + usize::from(giant),
            _ => {
                let [small, huge, _] = sizes_in(oracle, va, 24);
                ways(small) + usize::from(huge)
            }
        },
    }
}

fn truthful(table: &Table, oracle: &Oracle) -> [usize; 10] {
    let mut seen = [0; 10];
    for &va in oracle.keys() {
        let mut caches = caches(16);
        walk(&**table, VirtAddr(va), &mut caches);
        let (reads, found) = walk(&**table, VirtAddr(va), &mut caches);
        assert!(found.is_some());
        assert_eq!(reads.len(), 1, "the walk tables send it to the right way");
        assert_eq!(reads[0].len(), promised(oracle, va), "at {va:x}");
        seen[reads[0].len()] += 1;
    }
    seen
}

#[test]
fn walk_tables_stay_correct_while_lines_come_move_and_go() {
    for spec in specs() {
        let mut table: Table = spec.build(Owner::new(Asid(7), 1)).expect("a valid table");
        let (mut source, mut oracle) = (TestFrames::new(), Oracle::new());
        let mut r = rng(5, "tests.cuckoo");
        let mut seen = [0; 10];
        for round in 0..8 {
            // The table fills in the first half of the rounds, then empties.
            for _ in 0..3000 {
                let size = PageSize::ALL[[0, 0, 0, 1, 1, 1, 1, 2][r.random_range(0..8)]];
                let page = VirtAddr(r.random_range(0..1u64 << 30) << 12).page(size);
                if !overlaps(&oracle, page) {
                    let base = PhysAddr((oracle.len() as u64) << 30);
                    let done = table.map(page, Frame { base }, Flags::WRITABLE, &mut source);
                    assert!(done.is_ok());
                    oracle.insert(page.base.0, (size, base.0, Flags::WRITABLE));
                }
            }
            if round >= 4 {
                let gone: Vec<_> = oracle.iter().map(|(&va, e)| (va, e.0)).collect();
                for (va, size) in gone {
                    if r.random_range(0..4) != 0 {
                        let gone = table.unmap(VirtAddr(va).page(size), &mut source);
                        assert!(gone.is_some());
                        oracle.remove(&va);
                    }
                }
            }
            for (all, n) in seen.iter_mut().zip(truthful(&table, &oracle)) {
                *all += n;
            }
        }
        assert!(seen[1] > 0 && seen[4] > 0, "{seen:?}");
        table.release(&mut source);
        assert_eq!(source.bytes(), 0);
    }
}

#[test]
fn with_no_techniques_the_memory_efficient_tables_are_the_elastic_ones() {
    let plain = MemoryEfficientSpec {
        chunks: vec![],
        change_chunks: false,
        in_place: false,
        per_way: false,
        ..MemoryEfficientSpec::default()
    };
    let specs = [
        PageTableSpec::ElasticCuckoo(ElasticCuckooSpec::default()),
        PageTableSpec::MemoryEfficient(plain),
    ];
    let [first, second] = specs.map(|spec| {
        let mut table: Table = spec.build(Owner::new(Asid(7), 1)).expect("a valid table");
        let mut source = TestFrames::new();
        for i in 0..20_000u64 {
            let base = PhysAddr(i << 12);
            let page = VirtAddr(i * 0x9000).page(PageSize::K4);
            let done = table.map(page, Frame { base }, Flags(1), &mut source);
            done.expect("memory is plenty");
        }
        let mut counted = pagewalk_stats::Tree::default();
        table.report("table", &mut counted);
        (source.trace, counted.rows)
    });
    assert!(first == second);
    assert!(first.1.iter().any(|r| r.value > 10_000));
}

#[test]
fn what_makes_no_sense_is_refused_by_key() {
    let refused = |spec: PageTableSpec, key: &str, expected: &str| {
        let error = spec.check().expect_err(key);
        assert!(
            error.to_string().contains(key) && error.to_string().contains(expected),
            "{error}"
        );
        assert!(
            spec.build::<VirtAddr, PhysAddr>(Owner::new(Asid(1), 1))
                .is_err()
        );
    };
    let elastic = |change: fn(&mut ElasticCuckooSpec)| {
        let mut spec = ElasticCuckooSpec::default();
        change(&mut spec);
        PageTableSpec::ElasticCuckoo(spec)
    };
    let efficient = |change: fn(&mut MemoryEfficientSpec)| {
        let mut spec = MemoryEfficientSpec::default();
        change(&mut spec);
        PageTableSpec::MemoryEfficient(spec)
    };
    refused(
        elastic(|s| s.ways = 5),
        "page_table.elastic_cuckoo.ways",
        "2 to 4",
    );
    refused(
        elastic(|s| s.ways = 1),
        "page_table.elastic_cuckoo.ways",
        "2 to",
    );
    refused(
        efficient(|s| s.chunks = vec![8192, 4096]),
        "page_table.memory_efficient.chunks",
        "ascending",
    );
    refused(
        efficient(|s| s.upsize_at = 1.5),
        "page_table.memory_efficient.upsize_at",
        "0.95",
    );
}
