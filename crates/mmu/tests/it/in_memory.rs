//! The in-memory TLB: latencies of lookups, their effects, and that a hit is always up to date.

use crate::common::{FLIP, Flat, L2, L2_TLB, Memory, caches, mmu};
use crate::pages::Pages;
use pagewalk_memory::{
    CacheSpec, DramSpec, Enter, Private, PrivateSpec, Replacement, Report, Shared, SharedSpec,
};
use pagewalk_mmu::{Fault, Lookup, Mmu, Translated, TranslationSource, WalkContext};
use pagewalk_stats::Tree;
use pagewalk_tables::{Flags, InMemoryTlbSpec, Invalidation, PomTlb, PomTlbSpec, View, Walk};
use pagewalk_units::{Access, Asid, Cycle, PageSize, PhysAddr, VirtAddr, rng};
use rand::RngExt;

const DRAM: Cycle = 200;
const MB2: u64 = 2 << 20;
const BASES: [PhysAddr; 2] = [PhysAddr(7 << 40), PhysAddr(8 << 40)];
const A: Asid = Asid(1);

/// A core whose own TLBs hold one page.
struct Core {
    mmu: Mmu,
    private: Private,
}

/// Cores over one in-memory TLB and one memory; address space `n` has table `n - 1`.
struct Bench {
    cores: Vec<Core>,
    memory: Memory,
    tlb: PomTlb,
    tables: Vec<Pages>,
    host: Option<Flat>,
}

impl Bench {
    fn with(cores: usize, spec: PomTlbSpec) -> Self {
        let mut unit = mmu();
        for level in [&mut unit.l1d, &mut unit.l2] {
            let array = level.get_mut("main").expect("main");
            array.page_sizes = PageSize::ALL.to_vec();
            (array.entries, array.ways) = (1, 1);
        }
        let core = |n: usize| Core {
            mmu: Mmu::new(&unit, n as u8)
                .expect("a possible MMU")
                .with_in_memory_tlb(&InMemoryTlbSpec::Pom(spec)),
            private: caches(64),
        };
        Bench {
            cores: (0..cores).map(core).collect(),
            memory: Memory::new(DRAM),
            tlb: PomTlb::new(&spec, BASES),
            tables: vec![Pages::default(); 2],
            host: None,
        }
    }
    fn new() -> Self {
        let mut b = Self::with(2, PomTlbSpec::default());
        for page in 0..64 {
            b.small(page, page + 100);
        }
        b
    }
    /// Maps a 4 KB page of the first address space, by number.
    fn small(&mut self, page: u64, frame: u64) {
        self.tables[0].map(page << 12, PageSize::K4, frame << 12, Flags::WRITABLE);
    }
    fn large(&mut self, region: u64, block: u64) {
        self.tables[0].map(region * MB2, PageSize::M2, block * MB2, Flags::WRITABLE);
    }
    fn shoot_down(&mut self, what: &Invalidation) {
        for c in &mut self.cores {
            c.mmu.invalidate(what);
        }
        self.tlb.invalidate(what);
    }
    fn try_translate(
        &mut self,
        core: usize,
        asid: u16,
        va: u64,
        access: Access,
        now: Option<Cycle>,
    ) -> Result<Translated, Fault> {
        let table = &self.tables[usize::from(asid) - 1];
        let view = match &self.host {
            None => View::Native(table),
            Some(host) => View::Nested { guest: table, host },
        };
        let c = &mut self.cores[core];
        let context = WalkContext {
            tiers: None,
            view: &view,
            private: &mut c.private,
            below: &mut self.memory,
            in_memory_tlb: Some(&mut self.tlb),
        };
        let (asid, va) = (Asid(asid), VirtAddr(va));
        let Some(now) = now else {
            let from = TranslationSource::Walk;
            let answer = |pa| Translated {
                pa,
                ready: 0,
                walk_start: 0,
                from,
            };
            return c.mmu.warm(asid, va, access, 0, context).map(answer);
        };
        let lookup = Lookup {
            asid,
            va,
            access,
            pc: 0,
            now,
        };
        c.mmu.translate(lookup, context)
    }
    fn translate(&mut self, core: usize, va: u64, now: Cycle) -> Translated {
        self.try_translate(core, 1, va, Access::Read, Some(now))
            .expect("mapped")
    }
    fn get(&self, core: usize, path: &str, name: &str) -> u64 {
        let mut tree = Tree::default();
        self.cores[core].mmu.report("mmu", &mut tree);
        self.cores[core].private.report("", &mut tree);
        tree.get(path, name)
            .unwrap_or_else(|| panic!("{path} {name}"))
    }
    fn own(&self, core: usize, name: &str) -> u64 {
        self.get(core, "mmu.in_memory_tlb", name)
    }
    fn walks(&self, core: usize) -> u64 {
        self.get(core, "mmu", "walks")
    }
}

#[test]
fn a_hit_costs_the_lookups_and_one_line_and_a_miss_the_walk_after_it() {
    let mut b = Bench::new();
    // No cache has the page: the set's line and then the entry come from memory.
    let first = b.translate(0, 0x5000, 0);
    assert_eq!(
        (first.ready, first.from),
        (L2_TLB + 2 * DRAM, TranslationSource::Walk)
    );
    assert_eq!(first.walk_start, L2_TLB + DRAM, "a walk begins after it");
    // Another page replaces it in the core's own TLBs.
    b.translate(0, 0x9000, 10_000);
    let again = b.translate(0, 0x5123, 20_000);
    assert_eq!(again.pa, PhysAddr((105 << 12) + 0x123));
    assert_eq!(
        (again.ready, again.walk_start, again.from),
        (
            20_000 + L2_TLB + L2,
            again.ready,
            TranslationSource::InMemory
        )
    );
    assert_eq!(b.walks(0), 2);
    // The other core finds it in the in-memory TLB and needs no walk either.
    let other = b.translate(1, 0x5000, 30_000);
    assert_eq!(
        (other.ready, other.from),
        (30_000 + L2_TLB + DRAM, TranslationSource::InMemory)
    );
    assert_eq!(b.walks(1), 0);
    // The translation now hits in that core's own TLBs.
    assert_eq!(b.translate(1, 0x5fff, 40_000).from, TranslationSource::L1);
    let of = |name| (b.own(0, name), b.own(1, name));
    assert_eq!((of("lookups"), of("hits")), ((3, 1), (1, 1)));
    assert_eq!((of("misses"), of("fills")), ((2, 0), (2, 0)));
    assert_eq!((of("reads_l2"), of("reads_memory")), ((1, 0), (2, 1)));
    assert_eq!(of("cycles"), (2 * DRAM + L2, DRAM));
    assert_eq!(b.get(0, "mmu", "walk_cycles"), 2 * DRAM);
    assert_eq!(b.get(0, "mmu", "walker_wait_cycles"), 0);
}

#[test]
fn only_the_predicted_size_is_tried_and_the_walk_corrects_the_prediction() {
    let mut b = Bench::new();
    b.large(3, 9);
    let at = |piece: u64| 3 * MB2 + (piece << 12);
    // Predicted as a small page: one useless read, then the walk. The entry's line is fetched to be
    // written.
    let before = b.memory.requests;
    assert_eq!(b.translate(0, at(0), 0).ready, L2_TLB + 2 * DRAM);
    assert_eq!(b.memory.requests - before, 3);
    b.translate(0, 0x9000, 10_000);
    let hit = b.translate(0, at(77), 20_000);
    assert_eq!(
        (hit.ready, hit.from),
        (20_000 + L2_TLB + L2, TranslationSource::InMemory)
    );
    assert_eq!(hit.pa, PhysAddr(9 * MB2 + (77 << 12)));
    // It is cached as a large page.
    assert_eq!(b.translate(0, at(511), 30_000).from, TranslationSource::L1);
    assert_eq!((b.own(0, "hits_2mb"), b.own(0, "hits_4kb")), (1, 0));
    assert_eq!(
        (b.own(0, "predicted_right"), b.own(0, "predicted_wrong")),
        (2, 1)
    );
    // After a split, its pieces are mispredicted once.
    let page = VirtAddr(at(0)).page(PageSize::M2);
    for i in 0..512 {
        let frame = 9 * MB2 + (i << 12);
        b.tables[0].map(at(i), PageSize::K4, frame, Flags::WRITABLE);
    }
    b.shoot_down(&Invalidation::Page { asid: A, page });
    for i in [4, 5, 4] {
        b.translate(0, at(i), 100_000 * (i + 1) + b.own(0, "lookups") * 1000);
    }
    assert_eq!(b.own(0, "predicted_wrong"), 2);
    assert_eq!(b.own(0, "hits_4kb"), 1);
    // Each core has its own predictor bits; a region 512 further on shares the bit.
    b.large(3 + 512, 10);
    b.translate(1, 515 * MB2, 1_000_000);
    b.translate(1, at(4), 1_010_000);
    assert_eq!((b.own(1, "predicted_wrong"), b.own(1, "hits")), (2, 0));
}

#[test]
fn a_page_of_1_gb_is_held_in_pieces_of_2_mb() {
    let mut b = Bench::new();
    b.tables[0].map(5 << 30, PageSize::G1, 6 << 30, Flags::WRITABLE);
    let at = (5 << 30) + 3 * MB2 + 4096;
    b.translate(0, at, 0);
    b.translate(0, 0x9000, 10_000);
    let hit = b.translate(0, at + 8192, 20_000);
    assert_eq!(hit.from, TranslationSource::InMemory);
    assert_eq!(hit.pa, PhysAddr((6 << 30) + 3 * MB2 + 3 * 4096));
    b.translate(0, 0x9000, 30_000);
    b.translate(0, at + MB2, 40_000);
    assert_eq!((b.walks(0), b.own(0, "hits_2mb")), (3, 1));
}

#[test]
fn what_waits_for_a_hit_waits_for_no_walk() {
    for recorded in [false, true] {
        let mut b = Bench::new();
        b.translate(1, 0x5000, 0);
        b.cores[0].mmu.record_walks(recorded);
        let now = 10_000;
        let first = b.translate(0, 0x5000, now).ready;
        assert_eq!(first, now + L2_TLB + DRAM);
        let second = b.translate(0, 0x5008, now + 20);
        assert_eq!(
            (second.ready, second.from),
            (first, TranslationSource::InMemory)
        );
        assert_eq!(second.walk_start, second.ready);
        // Earlier in time, later in the simulation: this request would have come first.
        let older = b.translate(0, 0x5010, now - 30);
        assert_eq!(older.ready, first - 30);
        assert_eq!((b.own(0, "lookups"), b.own(0, "merged")), (1, 2));
        assert_eq!(b.get(0, "mmu", "walks_merged"), 0);
        assert_eq!(b.walks(0), 0);
        assert!(b.cores[0].mmu.take_walk_records().is_empty());
    }
    // Without a hit the merged request waits for lookup and walk.
    let mut b = Bench::new();
    let first = b.translate(0, 0x5000, 0);
    let second = b.translate(0, 0x5008, 20);
    assert_eq!(
        (second.ready, second.from),
        (first.ready, TranslationSource::Walk)
    );
    assert_eq!(second.walk_start, first.walk_start);
    assert_eq!(
        (b.own(0, "merged"), b.get(0, "mmu", "walks_merged")),
        (0, 1)
    );
    assert_eq!(
        b.cores[0].mmu.tlb_lookup_done(Access::Read),
        L2_TLB + DRAM - 20
    );
}

#[test]
fn a_store_that_an_entry_does_not_allow_walks_and_finds_what_the_kernel_has_done() {
    let mut b = Bench::new();
    let read_only = |b: &mut Bench, flags| b.tables[0].map(0x5000, PageSize::K4, 0x77000, flags);
    read_only(&mut b, Flags::default());
    b.translate(1, 0x5000, 0);
    let write = |b: &mut Bench, now| b.try_translate(0, 1, 0x5000, Access::Write, Some(now));
    // The page is read-only: a walk, and a fault at its end.
    let fault = write(&mut b, 10_000).expect_err("read-only");
    assert_eq!(fault.at, 10_000 + L2_TLB + 2 * DRAM);
    // The kernel permits stores in place, which needs no shootdown.
    read_only(&mut b, Flags::WRITABLE);
    assert_eq!(
        write(&mut b, 20_000).expect("allowed").from,
        TranslationSource::Walk
    );
    b.translate(0, 0x9000, 30_000);
    assert_eq!(
        write(&mut b, 40_000).expect("known").from,
        TranslationSource::InMemory
    );
    assert_eq!((b.own(0, "lookups"), b.own(0, "hits")), (4, 1));
}

#[test]
fn walks_after_lookups_wait_for_walkers_and_lookups_do_not() {
    let mut b = Bench::new();
    for (n, page) in [1u64, 20, 40].into_iter().enumerate() {
        b.translate(1, page << 12, 10_000 * n as u64);
    }
    let mut spec = mmu();
    spec.walkers = 1;
    b.cores[0].mmu = Mmu::new(&spec, 0)
        .expect("possible")
        .with_in_memory_tlb(&InMemoryTlbSpec::Pom(PomTlbSpec::default()));
    let now = 100_000;
    for page in [1, 20, 40] {
        assert_eq!(b.translate(0, page << 12, now).ready, now + L2_TLB + DRAM);
    }
    let walk = |n: u64| now + L2_TLB + DRAM + n * DRAM;
    for (n, page) in [10, 30, 50].into_iter().enumerate() {
        let answer = b.translate(0, page << 12, now);
        let n = n as u64;
        assert_eq!((answer.walk_start, answer.ready), (walk(n), walk(n + 1)));
    }
    assert_eq!(b.get(0, "mmu", "walker_wait_cycles"), 3 * DRAM);
}

#[test]
fn warming_leaves_what_a_run_leaves_and_counts_nothing() {
    let pages: Vec<u64> = {
        let mut r = rng(4, "test.in_memory.warm");
        (0..3000).map(|_| r.random_range(0..64)).collect()
    };
    let state = |timed: bool| {
        let mut b = Bench::with(
            1,
            PomTlbSpec {
                entries_4kb: 32,
                ..PomTlbSpec::default()
            },
        );
        for page in 0..56 {
            b.small(page, 200 - page);
        }
        b.large(1, 9);
        let va = |page: u64| {
            if page < 56 {
                page << 12
            } else {
                MB2 + (page << 12)
            }
        };
        for (n, &page) in pages.iter().enumerate() {
            let now = timed.then_some(1000 * n as u64);
            b.try_translate(0, 1, va(page), Access::Read, now)
                .expect("mapped");
        }
        if !timed {
            let mut tree = Tree::default();
            b.cores[0].mmu.report("mmu", &mut tree);
            for row in tree.rows {
                assert_eq!(row.value, 0, "{} {}", row.path, row.definition.name);
            }
        }
        let from = |page| b.translate(0, va(page), 10_000_000 + 1000 * page).from;
        (0..64).map(from).collect::<Vec<_>>()
    };
    let warmed = state(false);
    assert_eq!(warmed, state(true));
    assert!(
        warmed.contains(&TranslationSource::InMemory) && warmed.contains(&TranslationSource::Walk)
    );
}

#[test]
fn what_was_skipped_is_there() {
    let mut b = Bench::new();
    b.large(3, 9);
    for va in [0x5000, 3 * MB2] {
        let view = View::Native(&b.tables[0]);
        b.cores[0].mmu.skip(A, VirtAddr(va), &view, &mut b.tlb);
    }
    assert_eq!(b.translate(0, 0x5000, 0).ready, L2_TLB + DRAM);
    assert_eq!(
        b.translate(0, 3 * MB2 + 4096, 10_000).from,
        TranslationSource::InMemory
    );
    assert_eq!((b.walks(0), b.own(0, "predicted_wrong")), (0, 0));
}

/// Random accesses of two cores to two address spaces, whose pages are mapped, unmapped, moved and
/// changed in size and rights: every translation equals the page table's.
fn accesses_and_changes(nested: bool, steps: usize) -> Bench {
    let spec = PomTlbSpec {
        entries_4kb: 64,
        entries_2mb: 8,
        size_predictor: 4,
    };
    let mut b = Bench::with(2, spec);
    if nested {
        b.host = Some(Flat::new(1 << 47));
        for c in &mut b.cores {
            c.private = caches(64);
        }
    }
    let mut r = rng(11, "test.in_memory");
    let mut now = [0; 2];
    let mut latest = [(1, 0); 2];
    let mut faults = 0;
    for _ in 0..steps {
        let mut asid = r.random_range(1..=2u16);
        let page = r.random_range(0..8u64) * 512 + r.random_range(0..24);
        let mut va = page << 12 | r.random_range(0..512) << 3;
        if r.random_range(0..12) == 0 {
            let table = &mut b.tables[usize::from(asid) - 1];
            let size = [PageSize::K4, PageSize::K4, PageSize::M2][r.random_range(0..3)];
            let frame = r.random_range(0..1u64 << 10) * MB2;
            let flags = [Flags::WRITABLE, Flags::default()][r.random_range(0..2)];
            let what = match r.random_range(0..8) {
                0 => {
                    let bytes = r.random_range(1..64u64) << 12;
                    table.unmap(va, bytes);
                    // 2 MB pages at the edges are unmapped as a whole.
                    let at = VirtAddr(va & !(MB2 - 1));
                    let (asid, bytes) = (Asid(asid), 2 * MB2);
                    Invalidation::Range { asid, at, bytes }
                }
                1 if r.random_range(0..20) == 0 => {
                    table.unmap(0, 1 << 40);
                    Invalidation::Space { asid: Asid(asid) }
                }
                2 => {
                    // One more right, which needs no shootdown.
                    if let Some((pa, size, _)) = table.find(va) {
                        let frame = pa & !(size.bytes() - 1);
                        table.map(va, size, frame, Flags::WRITABLE);
                    }
                    continue;
                }
                _ => {
                    // The old page may be larger: in a virtual machine its parts are cached
                    // separately.
                    let old = table.find(va).map_or(size, |(_, old, _)| old);
                    table.map(va, size, frame, flags);
                    let page = VirtAddr(va).page(size.max(old));
                    Invalidation::Page {
                        asid: Asid(asid),
                        page,
                    }
                }
            };
            b.shoot_down(&what);
        }
        let core = r.random_range(0..2usize);
        if r.random_range(0..3) == 0 {
            // The same page again, during its lookup.
            (asid, va) = latest[core];
            va ^= 8;
        } else {
            now[core] += r.random_range(0..400);
        }
        latest[core] = (asid, va);
        let at = (r.random_range(0..10) != 0).then_some(now[core]);
        let access = [Access::Read, Access::Read, Access::Write][r.random_range(0..3)];
        let got = b.try_translate(core, asid, va, access, at);
        let expected = b.tables[usize::from(asid) - 1]
            .find(va)
            .filter(|(_, _, flags)| access != Access::Write || flags.contains(Flags::WRITABLE))
            .map(|(pa, ..)| if nested { pa ^ FLIP } else { pa });
        match (&got, expected) {
            (Ok(answer), Some(pa)) => assert_eq!(answer.pa.0, pa, "{va:#x} of {asid}"),
            // The rights are newer than the entry in the core's own TLBs: the kernel has nothing to
            // do, and the access is tried again.
            (Err(_), Some(_)) => {
                assert_eq!(access, Access::Write);
                let again = b
                    .try_translate(core, asid, va, access, at)
                    .expect("allowed");
                assert_eq!(Some(again.pa.0), expected);
                faults += 1;
            }
            (Err(_), None) => faults += 1,
            (Ok(answer), None) => panic!("{va:#x} of {asid} is not there: {answer:?}"),
        }
    }
    assert!(faults > 100);
    b
}

#[test]
fn no_translation_is_ever_out_of_date_and_each_part_counts_the_same() {
    for nested in [false, true] {
        let b = accesses_and_changes(nested, 240_000);
        for core in 0..2 {
            let own = |name| b.own(core, name);
            let of = |name| b.get(core, "mmu", name);
            for (name, some) in [
                ("hits_4kb", 100),
                ("hits_2mb", 100),
                ("predicted_wrong", 100),
                ("merged", 10),
            ] {
                // The host's pages are small, so a virtual machine has one page size.
                let happens = !nested || matches!(name, "hits_4kb" | "merged");
                assert_eq!(happens, own(name) > some, "{name} {}", own(name));
            }
            assert_eq!(own("hits"), own("hits_4kb") + own("hits_2mb"));
            assert_eq!(own("lookups"), own("hits") + own("misses"));
            assert_eq!(of("walks"), own("misses"));
            let levels = [
                "reads_l1d",
                "reads_l2",
                "reads_l3",
                "reads_remote",
                "reads_memory",
            ];
            let reads: u64 = levels.into_iter().map(own).sum();
            assert_eq!(own("lookups"), reads);
            // If the walk finds a page, the prediction can be judged.
            let known = own("predicted_right") + own("predicted_wrong");
            assert_eq!(known, own("hits") + own("fills"));
            assert!(own("fills") <= of("walks") && of("walks") - own("fills") <= of("faults"));
            let missed = of("l1d_misses");
            assert_eq!(
                missed,
                of("l2_hits") + of("l2_waits") + of("walks") + own("hits")
            );
            // Every read and write of the table goes through the caches.
            let accesses = of("walk_reads") + own("lookups") + own("fills");
            assert_eq!(b.get(core, "l2", "walks"), accesses);
        }
        let s = b.tlb.stats();
        assert!(s.evictions > 1000 && s.invalidated > 500, "{s:?}");
    }
}

#[test]
fn the_same_steps_give_the_same_counts() {
    let rows = || {
        let b = accesses_and_changes(false, 5000);
        let mut tree = Tree::default();
        for (n, c) in b.cores.iter().enumerate() {
            c.mmu.report(&format!("core.{n}.mmu"), &mut tree);
        }
        b.tlb.report("in_memory_tlb", &mut tree);
        tree.rows
    };
    assert_eq!(rows(), rows());
}

fn real_caches(enter: Enter) -> (PrivateSpec, SharedSpec) {
    let cache = |size_kb, ways, latency| CacheSpec {
        size_kb,
        ways,
        latency,
        mshrs: 16,
        replacement: Replacement::Lru,
        prefetcher: None,
    };
    (
        PrivateSpec {
            l1i: cache(32, 8, 4),
            l0d: None,
            l1d: cache(32, 8, 4),
            l2: cache(64, 8, 14),
            l3: None,
            walks_enter: enter,
            l1d_fill_bytes: None,
            write_combining_buffers: 4,
        },
        SharedSpec {
            l3: Some(cache(128, 8, 40)),
            l4: None,
            remote_latency: 60,
            dram: DramSpec::Fixed { latency_ns: 100.0 },
        },
    )
}

#[test]
fn an_entry_that_another_core_has_just_written_comes_from_its_cache() {
    for (enter, level) in [
        (Enter::L1d, "remote"),
        (Enter::L2, "remote"),
        (Enter::L3, "l3"),
    ] {
        let mut b = Bench::new();
        let (private, shared) = real_caches(enter);
        let mut below = Shared::new(&shared, 2, 1.0).expect("possible");
        for (n, c) in b.cores.iter_mut().enumerate() {
            c.private = Private::new(&private, n as u8).expect("possible");
        }
        let mut mail = Vec::new();
        for (core, now) in [(0, 0), (1, 10_000)] {
            let c = &mut b.cores[core];
            let view = View::Native(&b.tables[0]);
            let lookup = Lookup {
                asid: A,
                va: VirtAddr(0x5000),
                access: Access::Read,
                pc: 0,
                now,
            };
            let context = WalkContext {
                tiers: None,
                view: &view,
                private: &mut c.private,
                below: &mut below,
                in_memory_tlb: Some(&mut b.tlb),
            };
            c.mmu.translate(lookup, context).expect("mapped");
            for core in 0..2u8 {
                below.take_snoops(core, &mut mail);
                for (at, exclusive) in mail.drain(..) {
                    b.cores[usize::from(core)].private.snoop(at, exclusive);
                }
            }
        }
        assert_eq!(b.own(1, "hits"), 1, "{enter:?}");
        assert_eq!(b.own(1, &format!("reads_{level}")), 1, "{enter:?}");
    }
}

#[test]
fn the_mock_table_agrees_with_itself() {
    let b = Bench::new();
    let walk: &dyn Walk<VirtAddr, PhysAddr> = &b.tables[0];
    let found = walk.translate(VirtAddr(0x5123)).expect("mapped");
    assert_eq!(found.frame.base, PhysAddr(105 << 12));
}
