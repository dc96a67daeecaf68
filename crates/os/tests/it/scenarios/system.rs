//! Prices, limits, configuration.

use super::{GB, HEAP, MB, World, reservation, spec, thp};
use pagewalk_os::{
    BuddySpec, Effects, FragmentationSpec, KhugepagedSpec, Os, OsError, OsSpec, OsStats,
    PageTableSpec, PlacementSpec, PriceSpec, ThpMode, ThpSizes, ThpSpec,
};
use pagewalk_tables::{MemoryEfficientSpec, RadixSpec, View};
use pagewalk_units::{Access, Backing, VirtAddr};

#[test]
fn the_same_seed_places_the_same() {
    let run = |seed| {
        let table = PageTableSpec::Radix(RadixSpec { levels: 4 });
        let spec = spec(FragmentationSpec::Available2mb(0.5));
        let mut os = Os::new(&spec, &thp(), &table, 2.0, seed).expect("a valid system");
        let pid = os.spawn(true).expect("a process");
        let mut fx = Effects::default();
        let mut placed = Vec::new();
        for i in 0..400 {
            let at = VirtAddr(i * 0x12_3000);
            os.fault(pid, at, Access::Write, &mut fx)
                .expect("memory is plenty");
            if let View::Native(table) = os.view(pid) {
                placed.push(table.translate(at));
            }
        }
        (placed, fx.cycles)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn out_of_memory_is_a_clear_result() {
    let mut small = spec(FragmentationSpec::None);
    small.kernel_reserved = 1.0 - 4.0 / 1024.0;
    for placement in [PlacementSpec::Buddy(BuddySpec {}), thp(), reservation(0.3)] {
        let mut w = World::new(&small, &placement);
        assert_eq!(w.stats().free_bytes, 4 * MB);
        w.heap(16 * MB);
        let done = w.os.populate(w.pid, HEAP, 16 * MB, &mut w.fx);
        let wanted = 4096;
        assert_eq!(
            done,
            Err(OsError::OutOfMemory { wanted, free: 0 }),
            "{placement:?}"
        );
        let s = w.stats();
        let mapped = s.mapped_4kb_bytes + s.mapped_2mb_bytes;
        assert_eq!(mapped + s.page_table_bytes, 4 * MB, "all of it was used");
        assert!(w.fault(HEAP.offset(16 * MB - 1), Access::Write).is_err());
        w.os.unmap(w.pid, HEAP, 2 * MB, &mut w.fx).expect("munmap");
        w.write(HEAP.offset(16 * MB - 1));
        w.os.exit(w.pid, &mut w.fx);
        assert_eq!(w.stats().free_bytes, 4 * MB);
    }
}

/// The page that the table was to map takes the last frame, and is freed when the table gets
/// none. The error is still out of memory, whatever the fragmentation.
#[test]
fn the_last_frame_without_another_for_the_table_is_out_of_memory() {
    let mut small = spec(FragmentationSpec::None);
    small.kernel_reserved = 1.0 - 4.0 / 1024.0;
    let mut left = Vec::new();
    for dense in [1, 2] {
        let mut w = World::new(&small, &PlacementSpec::Buddy(BuddySpec {}));
        w.heap(4 * GB);
        for page in 0..dense {
            w.write(HEAP.offset(page * 4096));
        }
        // Each access needs a page and a page-table node.
        let failed = (1..2048)
            .find_map(|region| w.fault(HEAP.offset(region * 2 * MB), Access::Write).err())
            .expect("4 MB do not hold them");
        let OsError::OutOfMemory { wanted: 4096, free } = failed else {
            panic!("{failed}");
        };
        left.push(free);
    }
    left.sort_unstable();
    assert_eq!(left, [0, 4096]);
}

/// L2P entries are not memory: nothing is reclaimed for them, the error names them, and the
/// state is unchanged.
#[test]
fn a_full_l2p_table_is_not_a_lack_of_memory() {
    let full = PageTableSpec::MemoryEfficient(MemoryEfficientSpec {
        chunks: vec![4096],
        change_chunks: false,
        l2p_entries: 1,
        ..MemoryEfficientSpec::default()
    });
    let good = spec(FragmentationSpec::None);
    for placement in [PlacementSpec::Buddy(BuddySpec {}), reservation(1.0)] {
        let mut w = World::with(&good, &placement, &full);
        w.heap(GB);
        // A page in each 2 MB: with reservations, memory could be reclaimed.
        let mut touched = 0;
        let done = loop {
            let before = w.stats();
            let at = HEAP.offset(touched * 2 * MB + touched % 512 * 4096);
            match w.fault(at, Access::Write) {
                Ok(()) => touched += 1,
                Err(e) => {
                    let state = |s: OsStats| {
                        let bytes = [s.free_bytes, s.page_table_bytes, s.mapped_4kb_bytes];
                        (bytes, s.reservations)
                    };
                    assert_eq!(state(before), state(w.stats()), "{placement:?}");
                    break (e, at);
                }
            }
        };
        let (OsError::TableLimit { at, limit }, wanted) = done else {
            panic!("{done:?}")
        };
        assert_eq!(at, wanted);
        let said = limit.to_string();
        assert!(
            said.contains("of the 4KB pages uses 2 of at most 2 entries"),
            "{said}"
        );
        assert!(w.stats().free_bytes > GB / 4);
        // Existing mappings stay, and unmapping makes room.
        assert!(w.at(HEAP).is_some());
        w.os.unmap(w.pid, HEAP, 100 * MB, &mut w.fx)
            .expect("munmap");
        w.write(at);
    }
}

/// Timing: fault cost plus zeroing. At 2 GHz the default trap is 1,000 cycles, and zeroing a
/// byte takes a quarter cycle.
#[test]
fn a_fault_costs_the_trap_the_zeroing_and_the_nodes() {
    let mut w = World::new(&spec(FragmentationSpec::None), &thp());
    w.heap(4 * MB);
    w.map(HEAP.offset(8 * MB), 8192, true, Backing::Anonymous);
    w.fx = Effects::default();
    let cost = |w: &mut World, at: u64| {
        w.fx.cycles = 0;
        w.write(HEAP.offset(at));
        w.fx.cycles
    };
    // On an unfragmented machine a node costs only its zeroing, 1,024 cycles.
    assert_eq!(
        cost(&mut w, 0),
        1000 + 2 * MB / 4 + 3 * 1024,
        "levels 4, 3 and 2"
    );
    assert_eq!(cost(&mut w, 2 * MB), 1000 + 2 * MB / 4);
    assert_eq!(cost(&mut w, 8 * MB), 1000 + 1024 + 1024, "level 1");
    assert_eq!(cost(&mut w, 8 * MB + 4096), 1000 + 1024);
    assert_eq!(cost(&mut w, 8 * MB + 4096), 1000, "mapped already");
    let s = w.stats();
    assert_eq!(s.spurious_faults, 1);
    assert_eq!(s.fault_cycles, 5 * 1000 + 4 * MB / 4 + 2 * 1024 + 4 * 1024);
    // At an index of 0.7 a node costs the measured price.
    let mut w = World::new(&spec(FragmentationSpec::UnusableFreeIndex(0.7)), &thp());
    w.heap(2 * MB);
    w.fx.cycles = 0;
    w.write(HEAP);
    assert_eq!(w.fx.cycles, 1000 + 2 * MB / 4 + 3 * 4000);
}

/// The counted cost of populating equals the cost of faults on the same pages.
#[test]
fn populating_counts_what_it_does_not_charge() {
    let fragmented = spec(FragmentationSpec::UnusableFreeIndex(0.7));
    for placement in [PlacementSpec::Buddy(BuddySpec {}), thp(), reservation(0.3)] {
        let mut touched = World::new(&fragmented, &placement);
        touched.heap(8 * MB);
        touched.fx.cycles = 0;
        for page in 0..8 * MB / 4096 {
            let at = HEAP.offset(page * 4096);
            if touched.at(at).is_none() {
                touched.write(at);
            }
        }
        let mut populated = World::new(&fragmented, &placement);
        populated.heap(8 * MB);
        populated.fx.cycles = 0;
        populated
            .os
            .populate(populated.pid, HEAP, 8 * MB, &mut populated.fx)
            .expect("memory is plenty");
        let (t, p) = (touched.stats(), populated.stats());
        assert_eq!(populated.fx.cycles, 0);
        assert_eq!(p.populate_cycles, touched.fx.cycles, "{placement:?}");
        assert_eq!(t.populate_cycles, 0);
        assert_eq!(p.populate_table_cycles, t.table_allocation_cycles);
        // Nodes of levels 4, 3, 2 and those of level 1, at 4,000 cycles each.
        assert_eq!(t.table_allocation_cycles, 4000 * t.table_blocks_4kb);
        assert_eq!(t.table_blocks_4kb, p.table_blocks_4kb);
        assert!(t.table_blocks_4kb >= 3 && t.table_blocks_8kb == 0);
    }
}

#[test]
fn a_context_switch_between_processes_has_no_registers_of_a_radix_table() {
    let mut w = World::new(&spec(FragmentationSpec::None), &thp());
    let other = w.os.spawn(false).expect("a process");
    // 700 ns at 2 GHz.
    assert_eq!(w.os.context_switch(w.pid, w.pid), 1400);
    assert_eq!(w.os.context_switch(w.pid, other), 1400);
    w.os.exit(other, &mut w.fx);
    assert_eq!(w.os.context_switch(other, w.pid), 1400);
    let s = w.stats();
    assert_eq!((s.context_switches, s.process_switches), (3, 2));
    assert_eq!((s.registers_saved, s.registers_restored), (0, 0));
}

#[test]
fn peaks_outlive_the_process() {
    let mut w = World::new(
        &spec(FragmentationSpec::None),
        &PlacementSpec::Buddy(BuddySpec {}),
    );
    w.heap(64 * MB);
    w.os.populate(w.pid, HEAP, 64 * MB, &mut w.fx)
        .expect("memory is plenty");
    w.os.exit(w.pid, &mut w.fx);
    let s = w.stats();
    assert_eq!(
        (s.page_table_bytes, s.page_table_peak_bytes),
        (0, 35 * 4096)
    );
    assert_eq!((s.largest_contiguous_bytes, s.mapped_4kb_bytes), (4096, 0));
}

#[test]
fn wrong_values_are_named() {
    let table = PageTableSpec::Radix(RadixSpec { levels: 4 });
    let refused =
        |spec: &OsSpec, placement: &PlacementSpec, table: &PageTableSpec, ghz, key: &str| {
            let e = Os::new(spec, placement, table, ghz, 1).err().expect(key);
            assert!(e.to_string().contains(key), "{e}");
        };
    let good = spec(FragmentationSpec::None);
    let mut s = good.clone();
    s.memory_gb = 0;
    refused(&s, &thp(), &table, 2.0, "memory_gb");
    let mut s = good.clone();
    s.kernel_reserved = 1.0;
    refused(&s, &thp(), &table, 2.0, "kernel_reserved");
    for share in [1.0, -0.1, f64::NAN, 0.999_999] {
        let mut s = spec(FragmentationSpec::None);
        s.occupied = share;
        refused(&s, &thp(), &table, 2.0, "os.occupied");
    }
    let s = spec(FragmentationSpec::Available2mb(1.5));
    refused(&s, &thp(), &table, 2.0, "available_2mb");
    let mut s = good.clone();
    s.prices.trap_ns = -1.0;
    refused(&s, &thp(), &table, 2.0, "trap_ns");
    let mut s = good.clone();
    s.prices.allocation_ns = vec![[8192.0, 1.0], [4096.0, 1.0]];
    refused(&s, &thp(), &table, 2.0, "allocation_ns");
    refused(
        &good,
        &reservation(f64::NAN),
        &table,
        2.0,
        "promotion_threshold",
    );
    refused(
        &good,
        &thp(),
        &PageTableSpec::Radix(RadixSpec { levels: 3 }),
        2.0,
        "levels",
    );
    refused(&good, &thp(), &table, 0.0, "frequency");
}

#[test]
fn configurations_read_as_documented() {
    let read = |text: &str| toml::from_str::<OsSpec>(text);
    let least = read("memory_gb = 1").expect("the rest has defaults");
    assert_eq!(least, spec(FragmentationSpec::None));
    for (text, expected) in [
        ("fragmentation = \"none\"", FragmentationSpec::None),
        (
            "fragmentation.available_2mb = 0.75",
            FragmentationSpec::Available2mb(0.75),
        ),
        (
            "fragmentation.unusable_free_index = 0.7",
            FragmentationSpec::UnusableFreeIndex(0.7),
        ),
        (
            "fragmentation.served_2mb = 0.15",
            FragmentationSpec::Served2mb(0.15),
        ),
    ] {
        let found = read(&format!("memory_gb = 1\n{text}")).expect(text);
        assert_eq!(found.fragmentation, expected);
    }
    let prices = read("memory_gb = 1\nprices.trap_ns = 7")
        .expect("one price")
        .prices;
    assert_eq!(
        (prices.trap_ns, prices.syscall_ns),
        (7.0, PriceSpec::default().syscall_ns)
    );
    for wrong in [
        "memory = 1",
        "memory_gb = 1\nprices.trap = 1",
        "memory_gb = 1\nfragmentation.x = 1",
    ] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
    #[derive(serde::Deserialize)]
    struct Design {
        placement: PlacementSpec,
        page_table: PageTableSpec,
    }
    let text = "[placement.thp]\ngiant = true\n[page_table.radix]\nlevels = 5";
    let design: Design = toml::from_str(text).expect(text);
    let giant = PlacementSpec::Thp(ThpSpec {
        mode: ThpMode::Always,
        giant: true,
        sizes: ThpSizes::default(),
        khugepaged: KhugepagedSpec::default(),
    });
    assert_eq!(design.placement, giant);
    assert_eq!(
        design.page_table,
        PageTableSpec::Radix(RadixSpec { levels: 5 })
    );
    for wrong in [
        "[placement.thp]\nmode = \"sometimes\"",
        "[placement.thp.sizes]\n48kb = \"always\"",
        "[placement.thp]\ngaint = true",
        "[placement.reservation]",
    ] {
        let text = format!("{wrong}\n[page_table.radix]\nlevels = 4");
        assert!(toml::from_str::<Design>(&text).is_err(), "{wrong}");
    }
}

#[test]
fn each_address_space_has_random_choices_of_its_own() {
    let table = PageTableSpec::MemoryEfficient(MemoryEfficientSpec::default());
    let moved = |seed, processes| {
        let good = spec(FragmentationSpec::None);
        let mut os = Os::new(
            &good,
            &PlacementSpec::Buddy(BuddySpec {}),
            &table,
            2.0,
            seed,
        )
        .expect("valid");
        let mut fx = Effects::default();
        let pids = (0..processes).map(|_| os.spawn(false).expect("a process"));
        let pid = pids.last().expect("at least one");
        os.map(pid, HEAP, 128 * MB, true, Backing::Anonymous, &mut fx)
            .expect("mmap");
        os.populate(pid, HEAP, 128 * MB, &mut fx)
            .expect("memory is plenty");
        let mut tree = pagewalk_stats::Tree::default();
        os.report("os", &mut tree);
        let row = (tree.rows.iter())
            .find(|r| r.path == "page_table.4kb" && r.definition.name == "reinsertions");
        row.expect("a cuckoo table counts them").value
    };
    assert_eq!(moved(1, 1), moved(1, 1));
    assert_ne!(moved(1, 1), moved(2, 1), "another seed");
    assert_ne!(moved(1, 1), moved(1, 2), "another address space");
}
