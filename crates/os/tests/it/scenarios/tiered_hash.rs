//! Tiered hash-based placement: the share of each tier, and the resulting frames.

use super::{GB, HEAP, MB, World, spec};
use pagewalk_os::{
    FragmentationSpec, HashedTables, Os, OsError, OsSpec, PageTableSpec, Pid, PlacementSpec,
    TieredHashSpec,
};
use pagewalk_stats::Tree;
use pagewalk_tables::{ElasticCuckooSpec, Flags, MemoryEfficientSpec, View};
use pagewalk_units::{Access, Asid, Backing, PageSize, VirtAddr};

fn tiered(tiers: u8, denied: f64) -> TieredHashSpec {
    TieredHashSpec {
        tiers,
        denied,
        ..TieredHashSpec::default()
    }
}

fn world(os: &OsSpec, hash: TieredHashSpec) -> World {
    World::new(os, &PlacementSpec::TieredHash(hash))
}

/// Touches `pages` pages from [`HEAP`] on in each of `processes` processes.
fn touch(w: &mut World, pages: u64, processes: u64) -> Vec<Pid> {
    let mut pids = vec![w.pid];
    while (pids.len() as u64) < processes {
        pids.push(w.os.spawn(false).expect("a process"));
    }
    for &pid in &pids {
        let all = Backing::Anonymous;
        let done = w.os.map(pid, HEAP, pages << 12, true, all, &mut w.fx);
        done.expect("mmap");
        let done = w.os.populate(pid, HEAP, pages << 12, &mut w.fx);
        done.expect("memory is plenty");
    }
    pids
}

/// The model of Revelator, section 5.1.1, integrated over the allocations of a run, because
/// each changes the frames in use.
struct Model {
    tiers: usize,
    frames: f64,
    /// Frames in use, by hash or not.
    used: f64,
    /// Frames taken by the hash, none of which is denied.
    hashed: f64,
    denied: f64,
}

impl Model {
    /// Adds the expected placements of each tier for one request. The last cell counts
    /// requests that no tier serves.
    fn place(&mut self, cells: &mut [f64]) {
        let others = self.used - self.hashed;
        let free = ((1.0 - self.denied) * (self.frames - others) - self.hashed) / self.frames;
        let mut left = 1.0;
        for cell in &mut cells[..self.tiers] {
            *cell += left * free;
            left *= 1.0 - free;
        }
        cells[self.tiers] += left;
        self.hashed += 1.0 - left;
        self.used += 1.0;
    }

    /// Expected placements of [`touch`]: frames of pages, and nodes of the last level.
    fn touch(&mut self, pages: u64, processes: u64) -> [Vec<f64>; 2] {
        let mut cells = [vec![0.0; self.tiers + 1], vec![0.0; self.tiers + 1]];
        for _ in 0..processes {
            for page in 0..pages {
                self.place(&mut cells[0]);
                if page == 0 {
                    // The root and two levels below it come from the buddy allocator.
                    self.used += 3.0;
                }
                if page % 512 == 0 {
                    self.place(&mut cells[1]);
                }
            }
        }
        cells
    }
}

/// Pearson's chi-square statistic. Cells with fewer than five expected counts are combined.
fn chi_square(expected: &[f64], got: &[u64]) -> f64 {
    let (mut x, mut rest) = (0.0, (0.0, 0.0));
    for (&e, &g) in expected.iter().zip(got) {
        if e >= 5.0 {
            x += (g as f64 - e).powi(2) / e;
        } else {
            rest = (rest.0 + e, rest.1 + g as f64);
        }
    }
    if rest.0 > 0.0 {
        x += (rest.1 - rest.0).powi(2) / rest.0.max(1.0);
    }
    x
}

/// With six degrees of freedom, exceeded with a probability of 1 in 100,000.
const MOST: f64 = 33.0;

#[test]
fn tiers_place_what_the_model_says_for_every_number_and_pressure() {
    let (pages, processes) = (15_000, 2);
    for tiers in 1..=6u8 {
        for (occupied, denied) in [
            (0.0, 0.0),
            (0.4, 0.0),
            (0.8, 0.0),
            (0.0, 0.3),
            (0.0, 0.8),
            (0.3, 0.5),
            (0.0, 1.0),
        ] {
            let os = OsSpec {
                occupied,
                kernel_reserved: 0.125,
                ..spec(FragmentationSpec::None)
            };
            let mut w = world(&os, tiered(tiers, denied));
            let frames = (GB - GB / 8) >> 12;
            let free = w.stats().free_bytes >> 12;
            touch(&mut w, pages, processes);
            let placed = w.os.tiers().expect("it places by hash");
            let mut model = Model {
                tiers: usize::from(tiers),
                frames: frames as f64,
                used: (frames - free) as f64,
                hashed: 0.0,
                denied,
            };
            let expected = model.touch(pages, processes);
            let what = format!("{tiers} tiers, {occupied} occupied, {denied} denied");
            for (expected, got) in expected.iter().zip([&placed.data, &placed.tables]) {
                let mut cells = got.hits[..usize::from(tiers)].to_vec();
                cells.push(got.fallbacks);
                let x = chi_square(expected, &cells);
                assert!(x < MOST, "{what}: {x}, {cells:?} for {expected:?}");
                if denied == 0.0 {
                    for (own, e) in got.expected.iter().zip(&expected[..usize::from(tiers)]) {
                        assert!((own - e).abs() < 1e-6 * e, "{what}: {own} and {e}");
                    }
                }
            }
            let used = frames - (w.stats().free_bytes >> 12);
            assert_eq!(
                model.used, used as f64,
                "{what}: the model knows every frame"
            );
        }
    }
}

/// The paper's numbers against its own formula (Revelator, section 6.2): "65 % ... 32 %" at 40
/// % pressure differ from (1 - p) p^(i - 1).
#[test]
fn at_forty_percent_the_first_two_tiers_place_sixty_and_twenty_four() {
    let os = OsSpec {
        occupied: 0.4,
        ..spec(FragmentationSpec::None)
    };
    let mut w = world(&os, tiered(3, 0.0));
    touch(&mut w, 2000, 1);
    let data = w.os.tiers().expect("it places by hash").data;
    let share = |tier: usize| data.hits[tier] as f64 / 2000.0;
    assert!((share(0) - 0.6).abs() < 0.04 && (share(1) - 0.24).abs() < 0.04);
}

/// Tiers of the actual frames, whose counts must equal the tiers' success counts.
fn lies(os: &Os, pid: Pid, pages: u64) -> ([u64; 7], [u64; 7]) {
    let tiers = os.tiers().expect("it places by hash");
    let (hash, asid) = (&tiers.hash, os.asid(pid));
    let View::Native(table) = os.view(pid) else {
        unreachable!("no virtual machine");
    };
    let tier_of = |frame: u64, number: u64, tiers: usize| {
        (0..tiers)
            .find(|&tier| hash.frame(tier, asid, number) == frame)
            .unwrap_or(6)
    };
    let (mut data, mut nodes) = ([0; 7], [0; 7]);
    for page in 0..pages {
        let at = HEAP.offset(page << 12);
        let found = table.translate(at).expect("mapped");
        data[tier_of(found.frame.base.0 >> 12, at.0 >> 12, hash.tiers())] += 1;
        if page % 512 == 0 {
            nodes[tier_of(found.leaf.0 >> 12, at.0 >> 21, tiers.table_tiers)] += 1;
            assert_eq!(found.leaf.0 & 0xfff, 8 * (at.0 >> 12 & 511));
        }
    }
    (data, nodes)
}

#[test]
fn hits_are_pages_and_nodes_in_the_frames_that_the_tiers_name() {
    for page_tables in [HashedTables::All, HashedTables::First, HashedTables::None] {
        let os = OsSpec {
            occupied: 0.5,
            ..spec(FragmentationSpec::None)
        };
        let hash = TieredHashSpec {
            page_tables,
            ..tiered(3, 0.0)
        };
        let mut w = world(&os, hash);
        let pages = 20_000;
        let pids = touch(&mut w, pages, 3);
        let mut seen = ([0; 7], [0; 7]);
        for pid in pids {
            let (data, nodes) = lies(&w.os, pid, pages);
            for cell in 0..7 {
                seen.0[cell] += data[cell];
                seen.1[cell] += nodes[cell];
            }
        }
        let t = w.os.tiers().expect("it places by hash");
        assert_eq!(
            (&t.data.hits[..], t.data.fallbacks),
            (&seen.0[..6], seen.0[6])
        );
        let nodes = 3 * pages.div_ceil(512);
        assert_eq!(&t.tables.hits[..], &seen.1[..6]);
        let tried = if page_tables == HashedTables::None {
            0
        } else {
            nodes
        };
        assert_eq!(t.tables.tries(0), tried);
        assert_eq!(t.data.tries(0), w.stats().faults_4kb);
        // The results contain the same counts.
        let mut tree = Tree::default();
        w.os.report("os", &mut tree);
        let row = |path: &str, name| tree.get(&format!("os.tiered_hash{path}"), name);
        assert_eq!(row(".2", "data_tries"), Some(t.data.tries(1)));
        assert_eq!(row(".3", "data_hits"), Some(t.data.hits[2]));
        assert_eq!(row("", "data_fallbacks"), Some(t.data.fallbacks));
        let tables = (page_tables != HashedTables::None).then_some(t.tables.hits[0]);
        assert_eq!(row(".1", "table_hits"), tables);
    }
}

/// If the address space were not hashed, the first tier would serve only the first process.
#[test]
fn processes_that_use_the_same_addresses_do_not_take_each_others_frames() {
    let mut w = world(&spec(FragmentationSpec::None), tiered(1, 0.0));
    let pages = 4096;
    for pid in touch(&mut w, pages, 4) {
        let (data, _) = lies(&w.os, pid, pages);
        assert!(data[0] as f64 > 0.92 * pages as f64, "{pid}: {data:?}");
    }
}

#[test]
fn a_copy_is_hashed_by_the_process_that_writes_and_a_shared_page_by_the_first() {
    let mut w = world(&spec(FragmentationSpec::None), tiered(6, 0.0));
    w.heap(MB);
    w.write(HEAP);
    let at = VirtAddr(HEAP.0 + (64 << 20));
    w.map(at, MB, true, Backing::Shared);
    w.write(at);
    let child = w.os.fork(w.pid, &mut w.fx).expect("memory is plenty");
    let named = |w: &World, tier, asid: Asid, at: VirtAddr| {
        let tiers = w.os.tiers().expect("it places by hash");
        tiers.hash.frame(tier, asid, at.0 >> 12) << 12
    };
    let own = [w.pid, child].map(|pid| w.os.asid(pid));
    // Both share the parent's frames until one of them writes.
    for pid in [w.pid, child] {
        assert_eq!(w.pa(pid, HEAP), named(&w, 0, own[0], HEAP));
        assert_eq!(w.pa(pid, at), named(&w, 0, own[0], at));
    }
    let done = w.os.fault(child, HEAP, Access::Write, &mut w.fx);
    done.expect("a write that is allowed");
    assert_eq!(w.pa(child, HEAP), named(&w, 0, own[1], HEAP));
    assert_eq!(w.pa(w.pid, HEAP), named(&w, 0, own[0], HEAP));
    // The parent's copy finds its first frame in use, by the page itself.
    let again = HEAP.offset(4096);
    w.write(again);
    let other = w.os.fork(w.pid, &mut w.fx).expect("memory is plenty");
    w.write(again);
    assert_eq!(w.pa(w.pid, again), named(&w, 1, own[0], again));
    assert_eq!(w.pa(other, again), named(&w, 0, own[0], again));
}

#[test]
fn all_frames_are_handed_out_and_come_back() {
    let mut small = spec(FragmentationSpec::None);
    small.kernel_reserved = 1.0 - 8.0 / 1024.0;
    for denied in [0.0, 0.5, 1.0] {
        let mut w = world(&small, tiered(6, denied));
        w.heap(16 * MB);
        let done = w.os.populate(w.pid, HEAP, 16 * MB, &mut w.fx);
        let wanted = 4096;
        assert_eq!(done, Err(OsError::OutOfMemory { wanted, free: 0 }));
        let s = w.stats();
        assert_eq!(s.mapped_4kb_bytes + s.page_table_bytes, 8 * MB);
        w.os.exit(w.pid, &mut w.fx);
        assert_eq!(w.stats().free_bytes, 8 * MB);
    }
}

#[test]
fn ways_of_hashed_tables_are_blocks_of_the_buddy_allocator() {
    let table = PageTableSpec::MemoryEfficient(MemoryEfficientSpec::default());
    let hash = PlacementSpec::TieredHash(tiered(6, 0.0));
    let mut w = World::with(&spec(FragmentationSpec::None), &hash, &table);
    touch(&mut w, 10_000, 1);
    let tiers = w.os.tiers().expect("it places by hash");
    assert_eq!(tiers.data.tries(0), 10_000);
    assert_eq!(tiers.tables.tries(0), 0);
    assert!(w.stats().page_table_bytes > 0);
}

/// A heap of 1 GB in 4 GB, where the hash leaves no entire block of 1 MB. Ways of that size
/// fit only into memory that the hash does not use.
#[test]
fn ways_lie_in_memory_that_no_hash_names() {
    let os = OsSpec {
        memory_gb: 4,
        ..spec(FragmentationSpec::None)
    };
    let table = PageTableSpec::ElasticCuckoo(ElasticCuckooSpec::default());
    let populated = |contiguous_mb| {
        let hash = TieredHashSpec {
            contiguous_mb,
            ..tiered(6, 0.5)
        };
        let mut w = World::with(&os, &PlacementSpec::TieredHash(hash), &table);
        w.heap(GB);
        let done = w.os.populate(w.pid, HEAP, GB, &mut w.fx);
        (w, done)
    };
    let (_, done) = populated(0);
    let refused = matches!(done, Err(OsError::NoContiguous { .. }));
    assert!(refused, "{done:?}");
    let (w, done) = populated(128);
    done.expect("the ways have their memory");
    let tiers = w.os.tiers().expect("it places by hash");
    let (pages, first) = (GB >> 12, (4 * GB - 128 * MB) >> 12);
    assert_eq!(tiers.hash.range().end, first);
    let hits: u64 = tiers.data.hits.iter().sum();
    assert_eq!(hits + tiers.data.fallbacks, pages);
    assert!(tiers.data.fallbacks > 0, "some lie anywhere");
    // Fallback pages come from blocks that the hash has broken up, not from entire ones.
    let place = |page: u64| w.pa(w.pid, HEAP.offset(page << 12)) >> 12;
    assert!((0..pages).all(|page| place(page) < first));
    // The model assumes a hash over all frames.
    let mut tree = Tree::default();
    w.os.report("os", &mut tree);
    let row = |name| tree.get("os.tiered_hash.1", name);
    assert_eq!(row("data_hits"), Some(tiers.data.hits[0]));
    assert_eq!(row("data_expected"), None);
}

/// More regions than blocks that the hash can select: reservations must not use the other
/// blocks.
#[test]
fn reservations_leave_what_no_hash_names_to_the_ways() {
    let os = OsSpec {
        memory_gb: 4,
        ..spec(FragmentationSpec::None)
    };
    let table = PageTableSpec::ElasticCuckoo(ElasticCuckooSpec::default());
    let (blocks, named, regions) = (2048, 1536, 1600);
    for contiguous_mb in [0, (blocks - named) * 2] {
        let hash = TieredHashSpec {
            contiguous_mb,
            denied: 1.0,
            ..huge(1.0)
        };
        let mut w = World::with(&os, &PlacementSpec::TieredHash(hash), &table);
        w.heap(regions * 2 * MB);
        let (mut reserved, mut single) = (0, 0);
        for region in 0..regions {
            let at = HEAP.offset(region * 2 * MB);
            w.write(at);
            let found = w.at(at).expect("mapped");
            let inside = found.frame.base.0 / (2 * MB) >= named;
            if !found.flags.contains(Flags::RESERVED) {
                single += 1;
            } else if inside {
                reserved += 1;
            }
        }
        // The page table has some of the lowest blocks, too.
        if contiguous_mb == 0 {
            assert!(
                reserved >= regions - named && single == 0,
                "{single} single"
            );
        } else {
            assert!(
                reserved == 0 && single >= regions - named,
                "{single} single"
            );
        }
    }
}

#[test]
fn a_hash_has_half_of_the_memory_at_least() {
    let of = |contiguous_mb, reserved| {
        let os = OsSpec {
            kernel_reserved: reserved,
            ..spec(FragmentationSpec::None)
        };
        let hash = PlacementSpec::TieredHash(TieredHashSpec {
            contiguous_mb,
            ..tiered(6, 0.0)
        });
        let table = PageTableSpec::Radix(pagewalk_tables::RadixSpec { levels: 4 });
        Os::new(&os, &hash, &table, 2.0, 1).err()
    };
    assert_eq!(of(512, 0.0), None);
    let why = of(513, 0.0).expect("it is refused");
    assert!(
        why.to_string()
            .starts_with("placement.tiered_hash.contiguous_mb is 513"),
        "{why}"
    );
    assert!(
        of(300, 0.5).is_some(),
        "the kernel's is not there to be hashed"
    );
}

#[test]
fn the_same_seed_places_the_same_and_a_seed_of_the_designs_own_does_not_change() {
    let table = PageTableSpec::Radix(pagewalk_tables::RadixSpec { levels: 4 });
    let run = |seed, own| {
        let hash = TieredHashSpec {
            seed: own,
            ..tiered(6, 0.25)
        };
        let hash = PlacementSpec::TieredHash(hash);
        let os = Os::new(&spec(FragmentationSpec::None), &hash, &table, 2.0, seed);
        let mut w = World {
            os: os.expect("a valid system"),
            pid: 0,
            fx: Default::default(),
        };
        w.pid = w.os.spawn(false).expect("a process");
        touch(&mut w, 1000, 1);
        let hash = w.os.tiers().expect("it places by hash").hash.clone();
        let at = |page: u64| w.pa(w.pid, HEAP.offset(page << 12));
        (hash, (0..1000).map(at).collect::<Vec<_>>())
    };
    assert_eq!(run(1, None), run(1, None));
    assert_ne!(run(1, None).1, run(2, None).1);
    // The hash is fixed by the design; the denied frames still depend on the run's seed.
    assert_eq!(run(1, Some(7)).0, run(2, Some(7)).0);
    assert_ne!(run(1, Some(7)).1, run(2, Some(7)).1);
}

fn huge(promotion_threshold: f64) -> TieredHashSpec {
    TieredHashSpec {
        promotion_threshold: Some(promotion_threshold),
        ..tiered(6, 0.0)
    }
}

/// Address of the block that `tier` selects for region `n` of the heap.
fn block(w: &World, tier: usize, n: u64) -> u64 {
    let tiers = w.os.tiers().expect("it places by hash");
    let large = tiers.large.as_ref().expect("blocks are hashed");
    large.hash.frame(tier, w.os.asid(w.pid), (HEAP.0 >> 21) + n) << 21
}

#[test]
fn a_regions_pages_lie_in_the_block_that_a_hash_names_and_become_a_large_one() {
    let mut w = world(&spec(FragmentationSpec::None), huge(0.1));
    w.heap(4 * MB);
    for page in 0..51 {
        let at = HEAP.offset(page * 8 * 4096);
        w.write(at);
        assert_eq!(w.pa(w.pid, at), block(&w, 0, 0) + (at.0 - HEAP.0));
    }
    assert_eq!((w.stats().promotions, w.stats().reservations), (0, 1));
    w.write(HEAP.offset(4096));
    assert_eq!((w.stats().promotions, w.stats().reservations), (1, 0));
    let found = w.at(HEAP).expect("mapped");
    assert_eq!(
        (found.size, found.frame.base.0),
        (PageSize::M2, block(&w, 0, 0))
    );
    // Its page table lies elsewhere, in a frame selected by hash.
    let tiers = w.os.tiers().expect("it places by hash");
    assert_eq!((tiers.tables.hits[0], tiers.data.tries(0)), (1, 0));
}

/// The order is: blocks by hash, any block, frames by hash, any frame.
#[test]
fn what_no_hashed_block_has_room_for_goes_on_to_the_next_tier_and_kind() {
    // Two of three blocks are broken.
    let broken = spec(FragmentationSpec::Available2mb(1.0 / 3.0));
    let mut w = world(&broken, huge(1.0));
    let regions = 300;
    w.heap(regions * 2 * MB);
    for n in 0..regions {
        w.write(HEAP.offset(n * 2 * MB));
    }
    let mut seen = [0; 7];
    let mut reserved = 0;
    for n in 0..regions {
        let at = HEAP.offset(n * 2 * MB);
        let found = w.at(at).expect("mapped");
        if !found.flags.contains(Flags::RESERVED) {
            continue;
        }
        reserved += 1;
        let tier = (0..6).find(|&tier| block(&w, tier, n) == w.pa(w.pid, at));
        seen[tier.unwrap_or(6)] += 1;
    }
    let tiers = w.os.tiers().expect("it places by hash");
    let large = &tiers.large.as_ref().expect("blocks are hashed").placed;
    assert_eq!(large.hits[..], seen[..6]);
    assert!(
        large.hits[0] > 10 && large.hits[1] > 5 && seen[6] > 0,
        "{seen:?}"
    );
    // Nodes of the last level and pages without a block also break up free blocks.
    let s = w.stats();
    assert_eq!(s.reservations_made, reserved);
    assert_eq!(large.hits.iter().sum::<u64>() + large.fallbacks, regions);
    assert_eq!(s.huge_fallbacks, regions - reserved);
    assert!(s.huge_fallbacks > 100);
    let data = &tiers.data;
    assert_eq!(
        data.tries(0),
        regions - reserved,
        "the others have 4 KB pages by hash"
    );
    assert!(data.hits[0] as f64 > 0.4 * data.tries(0) as f64);
}

/// Only a share of the requests for blocks succeeds, by hash or not.
#[test]
fn a_share_of_the_regions_is_served() {
    let mut w = world(&spec(FragmentationSpec::Served2mb(0.3)), huge(1.0));
    let regions = 400;
    w.map(HEAP, regions * 2 * MB, true, Backing::Anonymous);
    for n in 0..regions {
        w.write(HEAP.offset(n * 2 * MB));
    }
    let made = w.stats().reservations_made;
    assert!((80..160).contains(&made), "{made} of 400");
}

/// Pages of regions without a block must not break the blocks that other regions are to get,
/// whatever their number. Small pages and blocks use different parts of memory.
#[test]
fn small_pages_by_hash_leave_the_served_share_of_the_blocks_alone() {
    for share in [0.3, 0.5, 0.7] {
        let mut w = world(&spec(FragmentationSpec::Served2mb(share)), huge(1.0));
        // 1 GB: enough small pages for several in each block.
        let regions = 200;
        w.heap(regions * 2 * MB);
        for page in 0..regions * 512 {
            w.write(HEAP.offset(page << 12));
        }
        let s = w.stats();
        assert_eq!(s.reservations_made + s.huge_fallbacks, regions);
        let mean = share * regions as f64;
        let deviation = (mean * (1.0 - share)).sqrt();
        let made = s.reservations_made;
        assert!(
            (made as f64 - mean).abs() <= 4.0 * deviation,
            "{share}: {made} of {regions}"
        );
        let tiers = w.os.tiers().expect("it places by hash");
        let large = tiers.large.as_ref().expect("blocks are hashed");
        let by_hash = large.placed.hits.iter().sum::<u64>();
        assert_eq!(by_hash + large.anywhere, made);
        // A tier finds a block among the free ones of the share, and a page in the others.
        let tries = tiers.data.tries(0);
        assert_eq!(tries, (regions - made) * 512, "the others have small pages");
        // 512 blocks are drawn, and page tables break some of the share.
        let drawn = (share * (1.0 - share) / 512.0).sqrt();
        let first = tiers.data.hits[0] as f64 / tries as f64;
        let free = 1.0 - share;
        assert!(
            first < free + 3.0 * drawn && first > 0.6 * free,
            "{share}: {first} of the small pages by the first hash"
        );
        let first = large.placed.hits[0] as f64 / made as f64;
        let most = share + 3.0 * drawn + 3.0 * deviation / regions as f64;
        assert!(first < most && first > 0.4 * share, "{share}: {first}");
        let mut tree = Tree::default();
        w.os.report("os", &mut tree);
        let named = |name: &str| tree.get("os.tiered_hash.1", name);
        assert_eq!(named("data_expected"), None, "the model knows no blocks");
        assert!(named("data_hits").is_some() && named("table_expected").is_some());
    }
}

#[test]
fn what_makes_no_sense_is_refused_by_key() {
    let refused = |hash: TieredHashSpec, key: &str| {
        let what = PlacementSpec::TieredHash(hash).check().expect_err(key);
        assert!(
            what.to_string()
                .starts_with(&format!("placement.tiered_hash.{key} is ")),
            "{what}"
        );
    };
    refused(tiered(0, 0.0), "tiers");
    refused(tiered(7, 0.0), "tiers");
    refused(tiered(6, 1.5), "denied");
    refused(tiered(6, f64::NAN), "denied");
    refused(huge(1.1), "promotion_threshold");
    for order in [vec![1, 2], vec![1, 2, 2], vec![0, 1, 2]] {
        let wrong = TieredHashSpec {
            order,
            ..tiered(3, 0.0)
        };
        refused(wrong, "order");
    }
    let right = TieredHashSpec {
        order: vec![3, 1, 2],
        ..tiered(3, 0.0)
    };
    assert_eq!(PlacementSpec::TieredHash(right).check(), Ok(()));
}
