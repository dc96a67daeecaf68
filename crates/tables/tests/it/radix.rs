//! Properties of the radix table: levels, walk caches, canonical addresses.

use crate::common::{Caches, TestFrames, caches, walk};
use pagewalk_tables::{
    Flags, Next, PageTable, Radix, Walk, WalkCacheSet, WalkCacheSpec, WalkCaches, WalkState,
};
use pagewalk_units::{Asid, Frame, PageSize, PhysAddr, VirtAddr};

type Table = Radix<VirtAddr, PhysAddr>;

fn map(table: &mut Table, source: &mut TestFrames, va: u64, size: PageSize) {
    let frame = Frame {
        base: PhysAddr(va & !(size.bytes() - 1)),
    };
    table
        .map(VirtAddr(va).page(size), frame, Flags::WRITABLE, source)
        .expect("memory is plenty");
}

fn reads(table: &Table, va: u64, set: &mut Caches) -> usize {
    let (reads, found) = walk(table, VirtAddr(va), set);
    assert!(found.is_some());
    assert!(reads.iter().all(|group| group.len() == 1));
    reads.len()
}

#[test]
fn a_cold_walk_reads_one_entry_a_level() {
    for levels in [4, 5] {
        let (mut table, mut source) = (Table::new(levels, Asid(7)), TestFrames::new());
        for (size, fewer) in [(PageSize::K4, 0), (PageSize::M2, 1), (PageSize::G1, 2)] {
            let va = 0x40_0000_0000 + ((fewer as u64) << 32);
            map(&mut table, &mut source, va, size);
            assert_eq!(
                reads(&table, va, &mut caches(0)),
                usize::from(levels) - fewer
            );
        }
    }
}

#[test]
fn the_deepest_walk_cache_that_hits_wins() {
    let (mut table, mut source) = (Table::new(4, Asid(7)), TestFrames::new());
    let va = 0x7000_1234_5000;
    let others = [va + 4096, va + (2 << 20), va + (1 << 30), va + (512 << 30)];
    for va in others.into_iter().chain([va]) {
        map(&mut table, &mut source, va, PageSize::K4);
    }
    let mut set = caches(32);
    assert_eq!(reads(&table, va, &mut set), 4);
    // Shares the leaf node, the level 2 node, the level 3 node, only the root.
    for (other, expected) in others.into_iter().zip(1..) {
        assert_eq!(reads(&table, other, &mut set), expected);
    }
    assert_eq!(
        set.set.counts[0],
        [5, 1, 4],
        "lookups, hits and fills of the deepest array"
    );
    set.set.invalidate(Asid(7));
    assert_eq!(reads(&table, va, &mut set), 4);
}

#[test]
fn walk_caches_answer_once_their_entry_is_ready_and_for_their_own_space() {
    let (mut table, mut source) = (Table::new(4, Asid(7)), TestFrames::new());
    map(&mut table, &mut source, 0x1000, PageSize::K4);
    let spec = WalkCacheSpec {
        entries: 4,
        ways: 4,
        latency: 2,
        serial: false,
    };
    let mut set = WalkCacheSet::new(&spec, 3);
    let count = |set: &mut WalkCacheSet, asid, now| {
        let mut state = WalkState::default();
        let mut n = 0;
        while let Next::One { level, .. } = table.next(
            VirtAddr(0x1000),
            &mut state,
            &mut WalkCaches::new(set, asid, now),
        ) {
            n += 1;
            assert_eq!(level, if n == 1 { level } else { 5 - n });
        }
        n
    };
    assert_eq!(count(&mut set, Asid(7), 100), 4);
    assert_eq!(count(&mut set, Asid(7), 99), 4, "not ready yet");
    assert_eq!(count(&mut set, Asid(7), 101), 1);
    assert_eq!(count(&mut set, Asid(8), 101), 4, "another space's");
}

#[test]
fn addresses_that_are_not_canonical_are_not_mapped() {
    let (mut table, mut source) = (Table::new(4, Asid(7)), TestFrames::new());
    map(&mut table, &mut source, 0x1000, PageSize::K4);
    map(&mut table, &mut source, 0xffff_8000_0000_0000, PageSize::K4);
    for va in [1u64 << 48 | 0x1000, 0x8000_0000_0000] {
        assert_eq!(table.translate(VirtAddr(va)), None);
        assert_eq!(walk(&table, VirtAddr(va), &mut caches(4)), (vec![], None));
    }
    let mut seen = Vec::new();
    table.for_each(&mut |p, _, _| seen.push(p.base.0));
    assert_eq!(seen, [0x1000, 0xffff_8000_0000_0000]);
}

#[test]
fn empty_nodes_go_back_up_to_the_root() {
    let (mut table, mut source) = (Table::new(4, Asid(7)), TestFrames::new());
    map(&mut table, &mut source, 0x1000, PageSize::K4);
    map(&mut table, &mut source, 0x2000, PageSize::K4);
    map(&mut table, &mut source, 2 << 20, PageSize::M2);
    assert_eq!(table.bytes(), 4 * 4096);
    for (va, size, nodes) in [
        (0x1000, PageSize::K4, 4),
        (0x2000, PageSize::K4, 3),
        (2 << 20, PageSize::M2, 0),
    ] {
        table.unmap(VirtAddr(va).page(size), &mut source);
        assert_eq!(table.bytes(), nodes * 4096);
    }
    assert_eq!(source.bytes(), 0);
}
