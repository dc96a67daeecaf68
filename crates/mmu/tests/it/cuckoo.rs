//! Latencies of walks of elastic cuckoo page tables, in closed form.

use crate::common::{L2, L2_TLB, Memory, array, caches, mmu, walk_context};
use pagewalk_memory::Private;
use pagewalk_mmu::{Lookup, Mmu, MmuSpec, Translated};
use pagewalk_stats::Tree;
use pagewalk_tables::{
    CuckooWalkSpec, ElasticCuckooSpec, Flags, FrameSource, Invalidation, MemoryEfficientSpec,
    NoFrames, Owner, PageTable, PageTableSpec, View, WaitFor, WalkCacheKind, Want,
};
use pagewalk_units::{Access, Asid, Cycle, Frame, PageSize, PhysAddr, VirtAddr};

const A: Asid = Asid(1);
const DRAM: Cycle = 200;
/// Latencies of the caches of walk tables and of the hash functions.
const CWC: Cycle = 4;
const HASH: Cycle = 2;
const GB: u64 = 1 << 30;

/// A frame allocator for tables, bottom up.
struct Frames(u64);

impl FrameSource<PhysAddr> for Frames {
    fn alloc(&mut self, want: Want) -> Result<Frame<PhysAddr>, NoFrames> {
        let base = self.0.next_multiple_of(want.bytes);
        self.0 = base + want.bytes;
        Ok(Frame {
            base: PhysAddr(base),
        })
    }
    fn free(&mut self, _: Frame<PhysAddr>, _: u64) {}
}

/// An MMU over its caches, a page table and a memory.
struct Bench {
    mmu: Mmu,
    private: Private,
    memory: Memory,
    table: Box<dyn PageTable<VirtAddr, PhysAddr>>,
    frames: Frames,
}

/// TLBs so small that a chain over some hundred pages misses them each time.
fn spec(cuckoo: CuckooWalkSpec) -> MmuSpec {
    let one = |n, latency| [("main".to_owned(), array(&PageSize::ALL, n, n, latency))].into();
    MmuSpec {
        l1d: one(4, 1),
        l2: one(8, L2_TLB),
        cuckoo,
        ..mmu()
    }
}

impl Bench {
    fn new(table: &PageTableSpec, cuckoo: CuckooWalkSpec) -> Self {
        let mmu = Mmu::new(&spec(cuckoo), 0).expect("a possible MMU");
        Bench {
            mmu: mmu.serving(WalkCacheKind::Cuckoo),
            private: caches(16),
            memory: Memory::new(DRAM),
            table: table.build(Owner::new(A, 1)).expect("a valid table"),
            frames: Frames(1 << 40),
        }
    }
    fn elastic() -> Self {
        let table = PageTableSpec::ElasticCuckoo(ElasticCuckooSpec::default());
        Self::new(&table, CuckooWalkSpec::default())
    }
    fn map(&mut self, va: u64, size: PageSize) {
        let frame = Frame {
            base: PhysAddr(va & ((1 << 38) - 1)),
        };
        self.table
            .map(
                VirtAddr(va).page(size),
                frame,
                Flags::WRITABLE,
                &mut self.frames,
            )
            .expect("memory is plenty");
    }
    fn translate(&mut self, va: u64, now: Cycle) -> Translated {
        let view = View::Native(self.table.hardware());
        let lookup = Lookup {
            asid: A,
            va: VirtAddr(va),
            access: Access::Read,
            pc: 0,
            now,
        };
        let context = walk_context(&view, &mut self.private, &mut self.memory);
        self.mmu.translate(lookup, context).expect("mapped")
    }
    /// Cycles of a walk for `va` that begins long after the last one.
    fn cycles(&mut self, va: u64, now: &mut Cycle) -> Cycle {
        *now += 10_000;
        self.translate(va, *now).ready - *now - L2_TLB
    }
    fn get(&self, path: &str, name: &str) -> u64 {
        let mut t = Tree::default();
        self.mmu.report("mmu", &mut t);
        t.get(path, name).unwrap_or_else(|| panic!("{path} {name}"))
    }
    fn count(&self, name: &str) -> u64 {
        self.get("mmu.cuckoo", name)
    }
}

const PAGES: u64 = 512;

#[test]
fn a_chain_of_one_load_a_page_costs_the_lookups_and_one_probe_from_the_second_level() {
    let efficient = PageTableSpec::MemoryEfficient(MemoryEfficientSpec::default());
    let elastic = PageTableSpec::ElasticCuckoo(ElasticCuckooSpec::default());
    let slow = |l2p_latency| CuckooWalkSpec {
        l2p_latency,
        ..CuckooWalkSpec::default()
    };
    let none = CuckooWalkSpec {
        pmd_cwc_entries: 0,
        pud_cwc_entries: 0,
        ..CuckooWalkSpec::default()
    };
    // The L2P table is looked up in parallel with the walk caches, which hides its latency.
    for (table, cuckoo, before, complete) in [
        (&elastic, slow(4), HASH + CWC, false),
        (&elastic, slow(40), HASH + CWC, false),
        (&efficient, slow(4), HASH + CWC, false),
        (&efficient, slow(40), HASH + 40, false),
        (&elastic, none.clone(), HASH, true),
        (&efficient, none.clone(), HASH + 4, true),
    ] {
        let mut b = Bench::new(table, cuckoo);
        for i in 0..PAGES {
            b.map(i << 12, PageSize::K4);
        }
        let mut now = 0;
        for round in 0..3 {
            for i in 0..PAGES {
                let cycles = b.cycles(i << 12, &mut now);
                if round > 0 {
                    assert_eq!(cycles, before + L2, "page {i}");
                }
            }
        }
        // Only the first walk found nothing in the caches.
        let walks = 3 * PAGES;
        let (complete, size) = if complete { (walks, 0) } else { (1, walks - 1) };
        assert_eq!((b.count("complete"), b.count("size")), (complete, size));
        assert_eq!(b.count("probes"), 3 * walks);
        assert_eq!(b.get("mmu", "walks"), walks);
    }
}

#[test]
fn a_walk_waits_for_the_probe_that_matches_or_for_all() {
    let positions = |wait_for| {
        let table = ElasticCuckooSpec {
            wait_for,
            ..ElasticCuckooSpec::default()
        };
        let table = PageTableSpec::ElasticCuckoo(table);
        let mut b = Bench::new(&table, CuckooWalkSpec::default());
        // The memory serves a line every ten cycles: three probes return one after the other.
        b.memory.gap = 10;
        for i in 0..64 {
            b.map(i << 15, PageSize::K4);
        }
        let mut now = 0;
        b.cycles(0, &mut now);
        let mut counts = [0; 3];
        for i in 1..64 {
            // Some lines lie in the second level already.
            let waited = b.cycles(i << 15, &mut now) - (HASH + CWC);
            if waited >= DRAM {
                counts[((waited - DRAM) / 10) as usize] += 1;
            }
        }
        counts
    };
    let (matching, all) = (positions(WaitFor::Matching), positions(WaitFor::All));
    assert!(matching.iter().all(|&n| n > 5), "{matching:?}");
    assert!(all[2] > 30 && all[2] > all[0] + all[1], "{all:?}");
}

#[test]
fn walks_of_each_kind_probe_as_many_ways_as_promised() {
    let mut b = Bench::elastic();
    // Regions of 8 GB: 4 KB pages only, 2 MB pages only, both, and a 1 GB page.
    let (small, huge, both, giant) = (0, 8 * GB, 16 * GB, 24 * GB);
    b.map(small, PageSize::K4);
    b.map(huge, PageSize::M2);
    b.map(both, PageSize::K4);
    b.map(both + (2 << 20), PageSize::M2);
    b.map(giant, PageSize::G1);
    let mut now = 0;
    let mut probes = |b: &mut Bench, va| {
        let before = b.count("probes");
        b.cycles(va, &mut now);
        b.mmu.invalidate(&Invalidation::Page {
            asid: Asid(9),
            page: VirtAddr(0).page(PageSize::K4),
        });
        b.count("probes") - before
    };
    // The caches are empty: three tables of three ways.
    assert_eq!(probes(&mut b, both), 9);
    for va in [small, huge, both + (2 << 20)] {
        probes(&mut b, va);
    }
    // Evict the pages from the TLBs, not from the caches of walk tables.
    for i in 0..16 {
        b.map(32 * GB + (i << 12), PageSize::K4);
        probes(&mut b, 32 * GB + (i << 12));
    }
    let before = b.count("retried");
    assert_eq!(probes(&mut b, small), 3, "all ways of one size");
    assert_eq!(probes(&mut b, huge), 1, "one way");
    assert_eq!(
        probes(&mut b, both),
        4,
        "all ways of one size and one of another"
    );
    assert_eq!(probes(&mut b, both + (2 << 20)), 4);
    assert_eq!(probes(&mut b, giant), 1);
    assert_eq!(b.count("retried"), before);
}

#[test]
fn a_cached_line_that_is_out_of_date_costs_another_round_once() {
    let mut b = Bench::elastic();
    b.map(0, PageSize::K4);
    let mut now = 0;
    b.cycles(0, &mut now);
    b.map(2 << 20, PageSize::M2);
    let walked = |b: &Bench| ["size", "retried", "probes"].map(|n| b.count(n));
    // Three probes of 4 KB pages, then six of both sizes, all from memory except lines that were
    // just read.
    let before = walked(&b);
    let cycles = b.cycles(2 << 20, &mut now);
    assert_eq!(cycles, HASH + CWC + 2 * DRAM);
    let [size, retried, probes] = walked(&b);
    assert_eq!((size, retried, probes), (before[0] + 1, 1, before[2] + 9));
    // That line is fetched again. It sends the next walk to the line of the other walk table, which
    // is as old. After that both are cached.
    for i in 1..64 {
        b.map(i << 12, PageSize::K4);
    }
    for (retried, cycles) in [(2, 2 * L2), (2, L2), (2, L2)] {
        for i in 1..64 {
            b.cycles(i << 12, &mut now);
        }
        assert_eq!(b.cycles(2 << 20, &mut now), HASH + CWC + cycles);
        assert_eq!(b.count("retried"), retried);
    }
}

#[test]
fn walk_table_lines_are_fetched_in_parallel_with_the_walk_and_used_once_they_arrive() {
    let mut b = Bench::elastic();
    for i in 0..3 {
        b.map(i << 15, PageSize::K4);
    }
    // The walk ends with its probe; the lines of the walk tables also come from memory.
    let first = b.translate(0, 0).ready;
    assert_eq!(first, L2_TLB + HASH + CWC + DRAM);
    assert_eq!(b.count("cwt_fetches"), 4, "two ways of two walk tables");
    // Before the lines are back nothing is known, and nothing is fetched twice.
    b.translate(1 << 15, 1);
    assert_eq!((b.count("complete"), b.count("cwt_fetches")), (2, 4));
    b.translate(2 << 15, first + DRAM);
    assert_eq!((b.count("complete"), b.count("size")), (2, 1));
    assert_eq!(b.get("mmu.cwc.pud", "lookups"), 3);
    assert_eq!(b.get("mmu.cwc.pud", "hits"), 1);
}
