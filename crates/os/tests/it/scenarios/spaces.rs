//! Processes and changes of their address spaces.

use std::collections::BTreeSet;

use super::{GB, HEAP, MB, World, reservation, spec, thp};
use pagewalk_os::{
    BuddySpec, Effects, FragmentationSpec, InferredPages, Os, OsError, PageTableSpec, PlacementSpec,
};
use pagewalk_tables::{
    ElasticCuckooSpec, Flags, HashDontCacheSpec, Invalidation, LevelHashingSpec,
    MemoryEfficientSpec, RadixSpec, View,
};
use pagewalk_units::{Access, Advice, Backing, PageSize, VirtAddr};

#[test]
fn a_fork_copies_pages_only_when_they_are_written() {
    for (placement, size) in [
        (PlacementSpec::Buddy(BuddySpec {}), PageSize::K4),
        (thp(), PageSize::M2),
    ] {
        let mut w = World::new(&spec(FragmentationSpec::None), &placement);
        w.heap(2 * MB);
        w.write(HEAP);
        let at = w.pa(w.pid, HEAP);
        let child = w.os.fork(w.pid, &mut w.fx).expect("fork");
        let asid = w.os.asid(w.pid);
        assert!(w.fx.invalidate.contains(&Invalidation::Space { asid }));
        assert_eq!((w.pa(w.pid, HEAP), w.pa(child, HEAP)), (at, at));
        assert_eq!(w.at(HEAP).expect("mapped").size, size);
        assert!(!w.at(HEAP).expect("mapped").flags.contains(Flags::WRITABLE));

        w.os.fault(child, HEAP, Access::Write, &mut w.fx)
            .expect("copy");
        assert_eq!(w.pa(w.pid, HEAP), at);
        assert_ne!(w.pa(child, HEAP), at);
        assert_eq!((w.stats().cow_faults, w.stats().copied_bytes), (1, 4096));

        // The parent is now the only owner of the page.
        w.write(HEAP);
        assert_eq!(w.pa(w.pid, HEAP), at);
        assert_eq!((w.stats().cow_faults, w.stats().copied_bytes), (2, 4096));
        let copied = |w: &World| (w.stats().cow_faults, w.stats().spurious_faults);
        let before = copied(&w);
        w.os.populate(w.pid, HEAP, 4096, &mut w.fx)
            .expect("it is there");
        assert_eq!(
            copied(&w),
            before,
            "touching a page of one's own is no fault"
        );
        let free = w.stats().free_bytes;
        w.os.exit(child, &mut w.fx);
        assert!(w.stats().free_bytes > free);
        assert_eq!(w.pa(w.pid, HEAP), at, "what the child shared stays");
    }
}

#[test]
fn a_system_call_takes_the_faults_of_what_it_reads_and_writes_once() {
    let mut w = World::new(
        &spec(FragmentationSpec::None),
        &PlacementSpec::Buddy(BuddySpec {}),
    );
    w.heap(4 * MB);
    let touch = |w: &mut World, at, bytes, writes| {
        w.fx = Effects::default();
        let before = w.stats();
        w.os.kernel_touch(w.pid, at, bytes, writes, &mut w.fx)
            .expect("memory is plenty");
        let s = w.stats();
        let faults = s.faults_4kb + s.cow_faults - before.faults_4kb - before.cow_faults;
        assert_eq!(s.kernel_faults - before.kernel_faults, faults);
        assert_eq!(s.fault_cycles - before.fault_cycles, w.fx.cycles);
        (faults, w.fx.cycles)
    };
    // Two bytes on two pages, which are then mapped for the kernel and the program.
    let (faults, cycles) = touch(&mut w, HEAP.offset(4095), 2, true);
    assert_eq!(faults, 2);
    let mut program = Effects::default();
    w.os.fault(w.pid, HEAP.offset(MB), Access::Write, &mut program)
        .expect("a heap");
    assert!(cycles > program.cycles && cycles <= 2 * program.cycles + 10_000);
    assert_eq!(touch(&mut w, HEAP, 8192, true), (0, 0));
    // Reading also maps pages; an empty range does not.
    assert_eq!(touch(&mut w, HEAP.offset(2 * MB), 8 * 4096, false).0, 8);
    assert_eq!(touch(&mut w, HEAP.offset(3 * MB), 0, false), (0, 0));
    // Addresses outside the program's memory are skipped, on both sides.
    let end = HEAP.offset(4 * MB);
    assert_eq!(
        touch(&mut w, end.offset(0u64.wrapping_sub(4096)), 8192, true).0,
        1
    );
    assert_eq!(w.at(end), None);
    // A child's page is copied when the kernel writes it, but not when it reads it.
    let child = w.os.fork(w.pid, &mut w.fx).expect("fork");
    let parent = w.pid;
    w.pid = child;
    assert_eq!(touch(&mut w, HEAP, 4096, false), (0, 0));
    assert_eq!(touch(&mut w, HEAP, 4096, true).0, 1);
    assert_ne!(w.pa(parent, HEAP), w.pa(child, HEAP));
}

#[test]
fn shared_memory_lies_at_one_place_whoever_touches_it_first() {
    let mut w = World::new(&spec(FragmentationSpec::None), &thp());
    w.map(HEAP, 8192, true, Backing::Shared);
    w.write(HEAP);
    let child = w.os.fork(w.pid, &mut w.fx).expect("fork");
    w.os.fault(child, HEAP.offset(4096), Access::Write, &mut w.fx)
        .expect("touch");
    w.write(HEAP.offset(4096));
    for at in [HEAP, HEAP.offset(4096)] {
        assert_eq!(w.pa(w.pid, at), w.pa(child, at));
        assert!(
            w.find(child, at)
                .expect("mapped")
                .flags
                .contains(Flags::WRITABLE)
        );
    }
    assert_eq!(w.stats().cow_faults, 0);
    w.os.exit(w.pid, &mut w.fx);
    w.os.exit(child, &mut w.fx);
    assert_eq!(w.stats().free_bytes, GB);
}

#[test]
fn a_hole_in_a_huge_page_splits_it() {
    let mut w = World::new(&spec(FragmentationSpec::None), &thp());
    w.heap(2 * MB);
    w.write(HEAP);
    let base = w.pa(w.pid, HEAP);
    let free = w.stats().free_bytes;
    w.fx = Effects::default();
    w.os.unmap(w.pid, HEAP.offset(8192), 4096, &mut w.fx)
        .expect("munmap");
    let s = w.stats();
    assert_eq!(
        (s.splits, s.mapped_2mb_bytes, s.mapped_4kb_bytes),
        (1, 0, 511 * 4096)
    );
    assert_eq!(s.free_bytes, free, "one frame for the node, one frame back");
    assert_eq!(w.at(HEAP.offset(8192)), None);
    assert_eq!(w.pa(w.pid, HEAP.offset(12288)), base + 12288);
    let (asid, page) = (w.os.asid(w.pid), HEAP.page(PageSize::M2));
    assert!(w.fx.invalidate.contains(&Invalidation::Page { asid, page }));
}

#[test]
fn mremap_keeps_frames_and_large_pages_where_they_fit() {
    let mut w = World::new(&spec(FragmentationSpec::None), &thp());
    w.heap(2 * MB);
    w.write(HEAP);
    let base = w.pa(w.pid, HEAP);
    let to = HEAP.offset(64 * MB);
    w.os.remap(w.pid, HEAP, 2 * MB, to, 4 * MB, &mut w.fx)
        .expect("mremap");
    assert_eq!((w.at(HEAP), w.pa(w.pid, to)), (None, base));
    assert_eq!(w.at(to).expect("mapped").size, PageSize::M2);
    w.write(to.offset(2 * MB));
    let to4 = HEAP.offset(128 * MB + 4096);
    w.os.remap(w.pid, to, 2 * MB, to4, 2 * MB, &mut w.fx)
        .expect("mremap");
    assert_eq!(w.pa(w.pid, to4.offset(8192)), base + 8192);
    assert_eq!(w.at(to4).expect("mapped").size, PageSize::K4);
}

#[test]
fn dontneed_gives_frames_back_and_keeps_the_mapping() {
    let mut w = World::new(
        &spec(FragmentationSpec::None),
        &PlacementSpec::Buddy(BuddySpec {}),
    );
    w.heap(2 * MB);
    w.os.populate(w.pid, HEAP, 2 * MB, &mut w.fx)
        .expect("memory is plenty");
    w.os.advise(w.pid, HEAP, 2 * MB, Advice::DontNeed, &mut w.fx)
        .expect("madvise");
    assert_eq!(w.stats().free_bytes, GB);
    w.write(HEAP);
}

#[test]
fn inferred_pages_were_mapped_before_unless_they_are_to_fault() {
    for rule in [InferredPages::MappedBefore, InferredPages::FirstTouch] {
        let mut s = spec(FragmentationSpec::None);
        s.inferred_pages = rule;
        let mut w = World::new(&s, &PlacementSpec::Buddy(BuddySpec {}));
        w.pid = w.os.spawn(true).expect("a process");
        let other = VirtAddr(HEAP.0 + GB);
        w.map(other, 4096, true, Backing::Anonymous);
        w.fx = Effects::default();
        w.write(HEAP);
        let (cycles, s) = (w.fx.cycles, w.stats());
        assert_eq!(s.faults_4kb, 1);
        let free = rule == InferredPages::MappedBefore;
        assert_eq!((cycles == 0, s.fault_cycles == 0), (free, free));
        assert_eq!(
            (s.populated_pages, s.populate_cycles > 0),
            (u64::from(free), free)
        );
        // The next page of the area that was inferred at the first touch.
        let fx = &mut w.fx;
        let ahead = w.os.map_before(w.pid, HEAP.offset(4096), Access::Read, fx);
        assert_eq!(ahead, Ok(free));
        assert_eq!(w.at(HEAP.offset(4096)).is_some(), free);
        // Explicitly mapped pages always fault.
        let fx = &mut w.fx;
        assert_eq!(w.os.map_before(w.pid, other, Access::Write, fx), Ok(false));
        w.write(other);
        assert!(w.fx.cycles > cycles);
        // So does a write to a page that a fork shares.
        let before = w.fx.cycles;
        w.os.fork(w.pid, &mut w.fx).expect("fork");
        let forked = w.fx.cycles;
        w.write(HEAP);
        assert!(w.fx.cycles > forked && forked > before);
        assert_eq!(w.stats().cow_faults, 1);
    }
}

#[test]
fn what_is_not_allowed_is_a_segmentation_fault() {
    let mut w = World::new(&spec(FragmentationSpec::None), &thp());
    w.heap(4096);
    w.map(HEAP.offset(8192), 4096, false, Backing::Anonymous);
    let refused = |at, access| Err(OsError::SegmentationFault { at, access });
    for at in [
        HEAP.offset(4096),
        VirtAddr(0),
        VirtAddr(1 << 57),
        VirtAddr(u64::MAX),
    ] {
        for access in [Access::Read, Access::Write, Access::Fetch] {
            assert_eq!(w.fault(at, access), refused(at, access));
        }
    }
    let at = HEAP.offset(8192);
    assert_eq!(w.fault(at, Access::Write), refused(at, Access::Write));
    assert_eq!(w.fault(at, Access::Read), Ok(()));
    assert_eq!(w.fault(at, Access::Write), refused(at, Access::Write));
    w.os.protect(w.pid, HEAP, 4096, false, &mut w.fx)
        .expect("mprotect");
    assert_eq!(w.fault(HEAP, Access::Write), refused(HEAP, Access::Write));
}

#[test]
fn ranges_that_make_no_sense_are_refused_in_words() {
    let mut w = World::new(&spec(FragmentationSpec::None), &thp());
    for (at, bytes) in [
        (1, 4096),
        (0x1000, 0),
        (1 << 47, 4096),
        (0x7fff_ffff_f000, 8192),
        (0x1000, u64::MAX),
    ] {
        let done = w.os.map(
            w.pid,
            VirtAddr(at),
            bytes,
            true,
            Backing::Anonymous,
            &mut w.fx,
        );
        assert!(
            matches!(done, Err(OsError::Bad(_))),
            "{at:#x} {bytes:#x}: {done:?}"
        );
    }
    let top = VirtAddr(0xffff_ffff_ffe0_0000);
    let infer = w.os.spawn(true).expect("a process");
    w.os.fault(infer, top, Access::Read, &mut w.fx)
        .expect("inferred");
    assert!(
        w.os.fault(infer, VirtAddr(u64::MAX), Access::Read, &mut w.fx)
            .is_err()
    );
    assert!(w.os.fault(99, HEAP, Access::Read, &mut w.fx).is_err());
}

#[test]
fn stacks_grow_down_to_8_mb() {
    let mut w = World::new(&spec(FragmentationSpec::None), &thp());
    let top = VirtAddr(0x7fff_0000_0000);
    w.map(VirtAddr(top.0 - 0x21000), 0x21000, true, Backing::Stack);
    w.write(VirtAddr(top.0 - 8 * MB));
    w.write(VirtAddr(top.0 - 4 * MB));
    assert!(
        w.fault(VirtAddr(top.0 - 8 * MB - 1), Access::Write)
            .is_err()
    );
    // The stack does not grow over another mapping.
    let mut w = World::new(&spec(FragmentationSpec::None), &thp());
    w.map(VirtAddr(top.0 - 4096), 4096, true, Backing::Stack);
    w.map(VirtAddr(top.0 - 12288), 4096, false, Backing::File);
    w.write(VirtAddr(top.0 - 8192));
    assert!(w.fault(VirtAddr(top.0 - 12288), Access::Write).is_err());
    assert!(w.fault(VirtAddr(top.0 - 16384), Access::Write).is_err());
}

#[test]
fn unknown_addresses_become_mappings_if_enabled() {
    let mut w = World::new(&spec(FragmentationSpec::None), &thp());
    w.pid = w.os.spawn(true).expect("a process");
    w.write(HEAP.offset(12345));
    w.write(HEAP.offset(2 * MB + 5));
    assert_eq!(w.stats().inferred_mappings, 2);
    assert_eq!(w.at(HEAP).expect("mapped").size, PageSize::M2);
    w.map(HEAP.offset(5 * MB), 4096, false, Backing::File);
    w.write(HEAP.offset(4 * MB));
    w.write(HEAP.offset(6 * MB - 1));
    w.write(HEAP.offset(5 * MB));
    assert_eq!(
        w.stats().faults_4kb,
        3,
        "the region has a mapping of a file in it"
    );
}

#[test]
fn exec_empties_and_keeps_the_identifier() {
    let mut w = World::new(&spec(FragmentationSpec::None), &reservation(0.3));
    w.heap(2 * MB);
    w.write(HEAP);
    let asid = w.os.asid(w.pid);
    w.os.exec(w.pid, &mut w.fx);
    assert_eq!((w.os.asid(w.pid), w.stats().free_bytes), (asid, GB));
    assert!(w.fault(HEAP, Access::Read).is_err());
    w.os.exit(w.pid, &mut w.fx);
    let next = w.os.spawn(false).expect("a process");
    assert_ne!(next, w.pid, "numbers are never used again");
    assert_eq!(w.os.asid(next), asid, "identifiers are");
}

#[test]
fn five_levels_reach_57_bits() {
    let table = PageTableSpec::Radix(RadixSpec { levels: 5 });
    let spec = spec(FragmentationSpec::None);
    let mut os = Os::new(&spec, &thp(), &table, 2.0, 1).expect("a valid system");
    let pid = os.spawn(true).expect("a process");
    let mut fx = Effects::default();
    os.fault(pid, VirtAddr(0x00ff_ffff_ffff_0000), Access::Write, &mut fx)
        .expect("in reach");
    assert!(
        os.fault(pid, VirtAddr(1 << 57), Access::Write, &mut fx)
            .is_err()
    );
}

/// Addresses above 2^47 are 512 pages apart, so each takes another line. Two of them have bit 55.
#[test]
fn wide_hashed_tables_reach_57_bits_and_narrow_tables_say_how() {
    let wide = [
        PageTableSpec::Radix(RadixSpec { levels: 5 }),
        PageTableSpec::ElasticCuckoo(ElasticCuckooSpec {
            address_bits: 57,
            ..ElasticCuckooSpec::default()
        }),
        PageTableSpec::MemoryEfficient(MemoryEfficientSpec {
            address_bits: 57,
            ..MemoryEfficientSpec::default()
        }),
        PageTableSpec::HashDontCache(HashDontCacheSpec {
            address_bits: 57,
            ..HashDontCacheSpec::default()
        }),
        PageTableSpec::LevelHashing(LevelHashingSpec {
            address_bits: 57,
            ..LevelHashingSpec::default()
        }),
    ];
    let addresses = (0..300).map(|n| (1 << 47) + (n << 21)).chain([
        (1 << 55) + (1 << 47),
        (1 << 56) - 4096,
        u64::MAX - 8191,
    ]);
    for table in wide {
        let spec = spec(FragmentationSpec::None);
        let mut os = Os::new(&spec, &thp(), &table, 2.0, 1).expect("a valid system");
        let pid = os.spawn(true).expect("a process");
        let mut fx = Effects::default();
        for va in addresses.clone() {
            let at = VirtAddr(va & !0xfff);
            os.fault(pid, at, Access::Write, &mut fx).expect("in reach");
        }
        let frames: BTreeSet<u64> = addresses
            .clone()
            .map(|va| {
                let View::Native(table) = os.view(pid) else {
                    panic!("no guest");
                };
                let at = va & !0xfff;
                let found = table.translate(VirtAddr(at)).expect("mapped");
                found.frame.base.0 + (at & (found.size.bytes() - 1))
            })
            .collect();
        assert_eq!(frames.len(), 303, "{}", table.name());
        let beyond = os.fault(pid, VirtAddr(1 << 57), Access::Write, &mut fx);
        assert!(matches!(beyond, Err(OsError::SegmentationFault { .. })));
    }
    for (table, set) in [
        (
            PageTableSpec::Radix(RadixSpec { levels: 4 }),
            "page_table.radix.levels=5",
        ),
        (
            PageTableSpec::MemoryEfficient(MemoryEfficientSpec::default()),
            "page_table.memory_efficient.address_bits=57",
        ),
    ] {
        let spec = spec(FragmentationSpec::None);
        let mut os = Os::new(&spec, &thp(), &table, 2.0, 1).expect("a valid system");
        let pid = os.spawn(true).expect("a process");
        let mut fx = Effects::default();
        let at = VirtAddr(1 << 47);
        let map = os.map(pid, at, 4096, true, Backing::Anonymous, &mut fx);
        let fault = os.fault(pid, at, Access::Write, &mut fx);
        for said in [map.expect_err("too wide"), fault.expect_err("too wide")] {
            let said = said.to_string();
            assert!(said.contains("radix5") && said.contains(set), "{said}");
        }
    }
}
