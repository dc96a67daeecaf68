//! The in-memory TLB: latencies of lookups, their effects, and that a hit is always up to date.

use crate::common::{Flat, L2, L2_TLB, mmu};
use crate::cores::{Cores, DRAM, MB2, tiny};
use pagewalk_memory::{
    CacheSpec, DramSpec, Enter, Private, PrivateSpec, Replacement, SetIndex, Shared, SharedSpec,
};
use pagewalk_mmu::{Lookup, Mmu, ServedBy, TranslationSpec, WalkContext};
use pagewalk_stats::Tree;
use pagewalk_tables::{Flags, Invalidation, PomTlbSpec, View, Walk};
use pagewalk_units::{Access, Asid, PageSize, PhysAddr, VirtAddr, rng};
use rand::RngExt;

const A: Asid = Asid(1);

/// Cores whose own TLBs hold one page, over one POM-TLB.
fn with(cores: usize, spec: PomTlbSpec) -> Cores {
    let spec = TranslationSpec {
        pom_tlb: Some(spec),
        ..TranslationSpec::default()
    };
    Cores::with(cores, &tiny(), &spec)
}

/// Two cores, and 64 pages of the first address space.
fn new() -> Cores {
    let mut b = with(2, PomTlbSpec::default());
    for page in 0..64 {
        b.small(page, page + 100);
    }
    b
}

fn own(b: &Cores, core: usize, name: &str) -> u64 {
    b.get(core, "mmu.in_memory_tlb", name)
}

fn walks(b: &Cores, core: usize) -> u64 {
    b.get(core, "mmu", "walks")
}

#[test]
fn a_hit_costs_the_lookups_and_one_line_and_a_miss_the_walk_after_it() {
    let mut b = new();
    // No cache has the page: the set's line and then the entry come from memory.
    let first = b.translate(0, 0x5000, 0);
    assert_eq!(
        (first.ready, first.from),
        (L2_TLB + 2 * DRAM, ServedBy::Walk)
    );
    assert_eq!(first.walk_start, L2_TLB + DRAM, "a walk begins after it");
    // Another page replaces it in the core's own TLBs.
    b.translate(0, 0x9000, 10_000);
    let again = b.translate(0, 0x5123, 20_000);
    assert_eq!(again.pa, PhysAddr((105 << 12) + 0x123));
    assert_eq!(
        (again.ready, again.walk_start, again.from),
        (20_000 + L2_TLB + L2, again.ready, ServedBy::Source(0))
    );
    assert_eq!(walks(&b, 0), 2);
    // The other core finds it in the in-memory TLB and needs no walk either.
    let other = b.translate(1, 0x5000, 30_000);
    assert_eq!(
        (other.ready, other.from),
        (30_000 + L2_TLB + DRAM, ServedBy::Source(0))
    );
    assert_eq!(walks(&b, 1), 0);
    // The translation now hits in that core's own TLBs.
    assert_eq!(b.translate(1, 0x5fff, 40_000).from, ServedBy::L1);
    let of = |name| (own(&b, 0, name), own(&b, 1, name));
    assert_eq!((of("lookups"), of("hits")), ((3, 1), (1, 1)));
    assert_eq!((of("misses"), of("fills")), ((2, 0), (2, 0)));
    assert_eq!((of("reads_l2"), of("reads_memory")), ((1, 0), (2, 1)));
    assert_eq!(of("cycles"), (2 * DRAM + L2, DRAM));
    assert_eq!(b.get(0, "mmu", "walk_cycles"), 2 * DRAM);
    assert_eq!(b.get(0, "mmu", "walker_wait_cycles"), 0);
}

#[test]
fn only_the_predicted_size_is_tried_and_the_walk_corrects_the_prediction() {
    let mut b = new();
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
        (20_000 + L2_TLB + L2, ServedBy::Source(0))
    );
    assert_eq!(hit.pa, PhysAddr(9 * MB2 + (77 << 12)));
    // It is cached as a large page.
    assert_eq!(b.translate(0, at(511), 30_000).from, ServedBy::L1);
    assert_eq!((own(&b, 0, "hits_2mb"), own(&b, 0, "hits_4kb")), (1, 0));
    assert_eq!(
        (own(&b, 0, "predicted_right"), own(&b, 0, "predicted_wrong")),
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
        b.translate(0, at(i), 100_000 * (i + 1) + own(&b, 0, "lookups") * 1000);
    }
    assert_eq!(own(&b, 0, "predicted_wrong"), 2);
    assert_eq!(own(&b, 0, "hits_4kb"), 1);
    // Each core has its own predictor bits; a region 512 further on shares the bit.
    b.large(3 + 512, 10);
    b.translate(1, 515 * MB2, 1_000_000);
    b.translate(1, at(4), 1_010_000);
    assert_eq!((own(&b, 1, "predicted_wrong"), own(&b, 1, "hits")), (2, 0));
}

#[test]
fn a_page_of_1_gb_is_held_in_pieces_of_2_mb() {
    let mut b = new();
    b.tables[0].map(5 << 30, PageSize::G1, 6 << 30, Flags::WRITABLE);
    let at = (5 << 30) + 3 * MB2 + 4096;
    b.translate(0, at, 0);
    b.translate(0, 0x9000, 10_000);
    let hit = b.translate(0, at + 8192, 20_000);
    assert_eq!(hit.from, ServedBy::Source(0));
    assert_eq!(hit.pa, PhysAddr((6 << 30) + 3 * MB2 + 3 * 4096));
    b.translate(0, 0x9000, 30_000);
    b.translate(0, at + MB2, 40_000);
    assert_eq!((walks(&b, 0), own(&b, 0, "hits_2mb")), (3, 1));
}

#[test]
fn what_waits_for_a_hit_waits_for_no_walk() {
    for recorded in [false, true] {
        let mut b = new();
        b.translate(1, 0x5000, 0);
        b.cores[0].mmu.record_walks(recorded);
        let now = 10_000;
        let first = b.translate(0, 0x5000, now).ready;
        assert_eq!(first, now + L2_TLB + DRAM);
        let second = b.translate(0, 0x5008, now + 20);
        assert_eq!((second.ready, second.from), (first, ServedBy::Source(0)));
        assert_eq!(second.walk_start, second.ready);
        // Earlier in time, later in the simulation: this request would have come first.
        let older = b.translate(0, 0x5010, now - 30);
        assert_eq!(older.ready, first - 30);
        assert_eq!((own(&b, 0, "lookups"), own(&b, 0, "merged")), (1, 2));
        assert_eq!(b.get(0, "mmu", "walks_merged"), 0);
        assert_eq!(walks(&b, 0), 0);
        assert!(b.cores[0].mmu.take_walk_records().is_empty());
    }
    // Without a hit the merged request waits for lookup and walk.
    let mut b = new();
    let first = b.translate(0, 0x5000, 0);
    let second = b.translate(0, 0x5008, 20);
    assert_eq!((second.ready, second.from), (first.ready, ServedBy::Walk));
    assert_eq!(second.walk_start, first.walk_start);
    assert_eq!(
        (own(&b, 0, "merged"), b.get(0, "mmu", "walks_merged")),
        (0, 1)
    );
    assert_eq!(
        b.cores[0].mmu.tlb_lookup_done(Access::Read),
        L2_TLB + DRAM - 20
    );
}

#[test]
fn a_store_that_an_entry_does_not_allow_walks_and_finds_what_the_kernel_has_done() {
    let mut b = new();
    let read_only = |b: &mut Cores, flags| b.tables[0].map(0x5000, PageSize::K4, 0x77000, flags);
    read_only(&mut b, Flags::default());
    b.translate(1, 0x5000, 0);
    let write = |b: &mut Cores, now| b.try_translate(0, 1, 0x5000, Access::Write, Some(now));
    // The page is read-only: a walk, and a fault at its end.
    let fault = write(&mut b, 10_000).expect_err("read-only");
    assert_eq!(fault.at, 10_000 + L2_TLB + 2 * DRAM);
    // The kernel permits stores in place, which needs no shootdown.
    read_only(&mut b, Flags::WRITABLE);
    assert_eq!(write(&mut b, 20_000).expect("allowed").from, ServedBy::Walk);
    b.translate(0, 0x9000, 30_000);
    assert_eq!(
        write(&mut b, 40_000).expect("known").from,
        ServedBy::Source(0)
    );
    assert_eq!((own(&b, 0, "lookups"), own(&b, 0, "hits")), (4, 1));
}

#[test]
fn walks_after_lookups_wait_for_walkers_and_lookups_do_not() {
    let mut b = new();
    for (n, page) in [1u64, 20, 40].into_iter().enumerate() {
        b.translate(1, page << 12, 10_000 * n as u64);
    }
    let mut spec = mmu();
    spec.walkers = 1;
    b.cores[0].mmu = Mmu::new(&spec, 0).expect("possible");
    let (place, source) = b.spare.pop().expect("a third source");
    b.cores[0].mmu.add_source(place, source);
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
        let mut b = with(
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
    assert!(warmed.contains(&ServedBy::Source(0)) && warmed.contains(&ServedBy::Walk));
}

#[test]
fn what_was_skipped_is_there() {
    let mut b = new();
    b.large(3, 9);
    for va in [0x5000, 3 * MB2] {
        let view = View::Native(&b.tables[0]);
        b.cores[0].mmu.fast_forward(A, VirtAddr(va), &view);
    }
    assert_eq!(b.translate(0, 0x5000, 0).ready, L2_TLB + DRAM);
    assert_eq!(
        b.translate(0, 3 * MB2 + 4096, 10_000).from,
        ServedBy::Source(0)
    );
    assert_eq!((walks(&b, 0), own(&b, 0, "predicted_wrong")), (0, 0));
}

/// As [`Cores::access_and_change`], with a small POM-TLB.
fn accesses_and_changes(nested: bool, steps: usize) -> Cores {
    let mut b = with(
        2,
        PomTlbSpec {
            entries_4kb: 64,
            entries_2mb: 8,
            size_predictor: 4,
        },
    );
    if nested {
        b.host = Some(Flat::new(1 << 47));
    }
    b.access_and_change("test.in_memory", steps, |r, _, _| {
        r.random_range(0..1u64 << 10) * MB2
    });
    b
}

#[test]
fn no_translation_is_ever_out_of_date_and_each_part_counts_the_same() {
    for nested in [false, true] {
        let b = accesses_and_changes(nested, 240_000);
        for core in 0..2 {
            let own = |name| own(&b, core, name);
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
        let of = |name: &str| {
            let mut tree = Tree::default();
            b.shared[0].report(&mut tree);
            tree.sum(name, |_| true)
        };
        assert!(of("evictions") > 1000 && of("invalidated") > 500);
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
        b.shared[0].report(&mut tree);
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
        index: SetIndex::Modulo,
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
            background: None,
            dram: DramSpec::fixed(100.0),
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
        let mut b = new();
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
            };
            c.mmu.translate(lookup, context).expect("mapped");
            for core in 0..2u8 {
                below.take_snoops(core, &mut mail);
                for (at, exclusive) in mail.drain(..) {
                    b.cores[usize::from(core)].private.snoop(at, exclusive);
                }
            }
        }
        assert_eq!(own(&b, 1, "hits"), 1, "{enter:?}");
        assert_eq!(own(&b, 1, &format!("reads_{level}")), 1, "{enter:?}");
    }
}

#[test]
fn the_mock_table_agrees_with_itself() {
    let b = new();
    let walk: &dyn Walk<VirtAddr, PhysAddr> = &b.tables[0];
    let found = walk.translate(VirtAddr(0x5123)).expect("mapped");
    assert_eq!(found.frame.base, PhysAddr(105 << 12));
}
