//! Guests and their host.

use super::{GB, HEAP, MB, spec, thp};
use pagewalk_os::{
    BuddySpec, Effects, FragmentationSpec, HashOf, KhugepagedSpec, Os, OsError, OsSpec,
    PageTableSpec, Pid, PlacementSpec, ThpMode, ThpSizes, ThpSpec, TieredHashSpec, VirtualSpec,
};
use pagewalk_structures::{HashKey, Placed};
use pagewalk_tables::{
    Next, RadixSpec, Translation, View, WalkCacheSet, WalkCacheSpec, WalkCaches, WalkState,
};
use pagewalk_units::{Access, Backing, GuestPhysAddr, PageSize, PhysAddr, VirtAddr};

const RADIX: PageTableSpec = PageTableSpec::Radix(RadixSpec { levels: 4 });

fn on(placement: PlacementSpec) -> VirtualSpec {
    VirtualSpec {
        page_table: RADIX,
        placement,
        memory_gb: None,
        fragmentation: FragmentationSpec::None,
        exit_ns: 500.0,
        shadow: false,
    }
}

struct Guest {
    os: Os,
    pid: Pid,
    fx: Effects,
}

fn boot(host: &OsSpec, placement: &PlacementSpec, machine: &VirtualSpec) -> Guest {
    let mut os = Os::virtualised(host, placement, &RADIX, machine, 2.0, 1).expect("valid");
    let pid = os.spawn(false).expect("the first process");
    Guest {
        os,
        pid,
        fx: Effects::default(),
    }
}

impl Guest {
    fn heap(&mut self, bytes: u64) {
        self.heap_at(HEAP, bytes);
    }
    fn heap_at(&mut self, at: VirtAddr, bytes: u64) {
        self.os
            .map(self.pid, at, bytes, true, Backing::Anonymous, &mut self.fx)
            .expect("mmap");
    }
    fn write(&mut self, at: VirtAddr) {
        self.os
            .fault(self.pid, at, Access::Write, &mut self.fx)
            .expect("a write that is allowed");
    }
    /// Translations of an address by the guest and by the host.
    fn at(&self, at: VirtAddr) -> (Translation<GuestPhysAddr>, Translation<PhysAddr>) {
        let View::Nested { guest, host } = self.os.view(self.pid) else {
            panic!("a guest's view is nested");
        };
        let g = guest.translate(at).expect("the guest maps it");
        let gpa = GuestPhysAddr(g.frame.base.0 + (at.0 & (g.size.bytes() - 1)));
        (g, host.translate(gpa).expect("the host backs it"))
    }
}

#[test]
fn what_the_guest_uses_the_host_backs_page_by_page() {
    for (guest, host, sizes) in [
        (
            PlacementSpec::Buddy(BuddySpec {}),
            PlacementSpec::Buddy(BuddySpec {}),
            [PageSize::K4; 2],
        ),
        (thp(), thp(), [PageSize::M2; 2]),
        (
            thp(),
            PlacementSpec::Buddy(BuddySpec {}),
            [PageSize::M2, PageSize::K4],
        ),
        (
            PlacementSpec::Buddy(BuddySpec {}),
            thp(),
            [PageSize::K4, PageSize::M2],
        ),
    ] {
        let mut w = boot(&spec(FragmentationSpec::None), &guest, &on(host));
        w.heap(2 * MB);
        w.write(HEAP);
        let (g, h) = w.at(HEAP);
        assert_eq!([g.size, h.size], sizes);
        let own = w.os.stats();
        let host = w.os.host_stats().expect("there is a host");
        // The pages and the page-table nodes, in units of the host's pages.
        let used = own.mapped_4kb_bytes + own.mapped_2mb_bytes + own.page_table_bytes;
        let backed = host.mapped_4kb_bytes + host.mapped_2mb_bytes;
        match sizes[1] {
            PageSize::K4 => assert_eq!(backed, used),
            _ => assert!(backed >= used && backed.is_multiple_of(2 * MB)),
        }
        let faults = host.faults_4kb + host.faults_2mb;
        assert_eq!(faults, backed / sizes[1].bytes());
        assert_eq!(
            host.populated_pages, 0,
            "faults of the host, not the laboratory's"
        );
        // Each fault costs the VM exit, the host's trap, its zeroing and its page tables.
        let tables = host.page_table_bytes / 4096 * 1024;
        assert_eq!(
            host.fault_cycles,
            faults * (1000 + 1000) + backed / 4 + tables
        );
        assert_eq!(w.os.host_stats().map(|s| s.processes), Some(1));
    }
}

#[test]
fn a_fault_of_the_guest_pays_for_those_of_the_host() {
    let mut w = boot(
        &spec(FragmentationSpec::None),
        &PlacementSpec::Buddy(BuddySpec {}),
        &on(PlacementSpec::Buddy(BuddySpec {})),
    );
    w.heap(2 * MB);
    w.write(HEAP);
    w.fx.cycles = 0;
    // One guest frame and one host frame: trap and zeroing twice, one VM exit.
    w.write(HEAP.offset(4096));
    assert_eq!(w.fx.cycles, 2 * (1000 + 1024) + 1000);
    w.fx.cycles = 0;
    // Memory that the guest has freed stays backed, without another host fault.
    let before = w.os.host_stats();
    w.os.unmap(w.pid, HEAP, 4096, &mut w.fx).expect("munmap");
    w.heap(4096);
    w.fx.cycles = 0;
    w.write(HEAP);
    assert_eq!(w.fx.cycles, 1000 + 1024);
    assert_eq!(w.os.host_stats(), before);
}

#[test]
fn populating_a_guest_backs_it_too_and_takes_no_time() {
    let mut w = boot(
        &spec(FragmentationSpec::None),
        &thp(),
        &on(PlacementSpec::Buddy(BuddySpec {})),
    );
    w.heap(16 * MB);
    w.fx.cycles = 0;
    w.os.populate(w.pid, HEAP, 16 * MB, &mut w.fx)
        .expect("memory is plenty");
    assert_eq!(w.fx.cycles, 0);
    for i in 0..16 * MB / 4096 {
        w.at(HEAP.offset(i * 4096));
    }
    let host = w.os.host_stats().expect("there is a host");
    assert_eq!(
        host.faults_4kb * 4096,
        16 * MB + w.os.stats().page_table_bytes
    );
    // The counted cost is that of the guest and of the host.
    let own = 8 * (1000 + 2 * MB / 4) + 3 * 1024;
    assert_eq!(w.os.stats().populate_cycles, own + host.fault_cycles);
}

#[test]
fn an_error_says_if_host_or_guest_has_no_memory() {
    let mut machine = on(PlacementSpec::Buddy(BuddySpec {}));
    machine.memory_gb = Some(2);
    let mut w = boot(
        &spec(FragmentationSpec::None),
        &PlacementSpec::Buddy(BuddySpec {}),
        &machine,
    );
    w.heap(2 * GB);
    let done = w.os.populate(w.pid, HEAP, 2 * GB, &mut w.fx);
    assert!(matches!(done, Err(OsError::Host(_))), "{done:?}");
    let e = done.expect_err("just seen").to_string();
    assert!(e.starts_with("the host: out of memory"), "{e}");
    machine.memory_gb = Some(1);
    let mut w = boot(
        &OsSpec {
            memory_gb: 4,
            ..spec(FragmentationSpec::None)
        },
        &PlacementSpec::Buddy(BuddySpec {}),
        &machine,
    );
    w.heap(2 * GB);
    let done = w.os.populate(w.pid, HEAP, 2 * GB, &mut w.fx);
    assert!(matches!(done, Err(OsError::OutOfMemory { .. })), "{done:?}");
}

#[test]
fn an_address_without_backing_is_a_fault_of_the_host() {
    let mut w = boot(
        &spec(FragmentationSpec::None),
        &thp(),
        &on(PlacementSpec::Buddy(BuddySpec {})),
    );
    let at = GuestPhysAddr(123 << 12 | 8);
    assert!(!w.os.is_backed(at));
    w.os.host_fault(at, &mut w.fx).expect("memory is plenty");
    assert!(w.os.is_backed(at));
    assert_eq!(w.fx.cycles, 1000 + 1000 + 1024 + 4 * 1024);
    let mut native = super::World::new(&spec(FragmentationSpec::None), &thp());
    assert!(native.os.host_fault(at, &mut native.fx).is_err());
}

#[test]
fn a_hosts_reservation_that_becomes_a_page_makes_the_guest_forget() {
    let machine = on(super::reservation(0.0));
    let mut w = boot(
        &spec(FragmentationSpec::None),
        &PlacementSpec::Buddy(BuddySpec {}),
        &machine,
    );
    w.heap(2 * MB);
    w.fx.invalidate.clear();
    w.write(HEAP);
    let asid = w.os.asid(w.pid);
    assert!(
        w.fx.invalidate
            .contains(&pagewalk_tables::Invalidation::Space { asid })
    );
    assert_eq!(w.at(HEAP).1.size, PageSize::M2);
}

#[test]
fn wrong_virtual_machines_are_named() {
    let refused = |machine: &VirtualSpec, key: &str| {
        let e = Os::virtualised(
            &spec(FragmentationSpec::None),
            &thp(),
            &RADIX,
            machine,
            2.0,
            1,
        )
        .err()
        .expect(key);
        assert!(e.to_string().contains(key), "{e}");
    };
    let good = on(thp());
    refused(
        &VirtualSpec {
            memory_gb: Some(0),
            ..good.clone()
        },
        "virtual.memory_gb",
    );
    refused(
        &VirtualSpec {
            exit_ns: -1.0,
            ..good.clone()
        },
        "virtual.exit_ns",
    );
    refused(
        &VirtualSpec {
            page_table: PageTableSpec::Radix(RadixSpec { levels: 3 }),
            ..good.clone()
        },
        "virtual.page_table.radix.levels",
    );
    refused(
        &VirtualSpec {
            placement: super::reservation(2.0),
            ..good.clone()
        },
        "virtual.placement.reservation",
    );
    refused(
        &VirtualSpec {
            fragmentation: FragmentationSpec::Available2mb(2.0),
            ..good
        },
        "virtual.fragmentation.available_2mb",
    );
}

/// ME-HPT, section V-C: a guest's ways have no chunks, so a switch between its processes saves
/// no L2P entries of the guest or the host.
#[test]
fn a_guest_has_no_l2p_table_to_save() {
    let table = |text: &str| {
        #[derive(serde::Deserialize)]
        struct File {
            page_table: PageTableSpec,
        }
        toml::from_str::<File>(text).expect(text).page_table
    };
    let chunked = table("[page_table.memory_efficient]");
    let whole = table("[page_table.memory_efficient]\nchunks = []");
    let machine = VirtualSpec {
        page_table: chunked.clone(),
        ..on(PlacementSpec::Buddy(BuddySpec {}))
    };
    let fragmented = spec(FragmentationSpec::UnusableFreeIndex(0.7));
    let placement = PlacementSpec::Buddy(BuddySpec {});
    let native = Os::new(&fragmented, &placement, &chunked, 2.0, 1).expect("valid");
    let guest = Os::virtualised(&fragmented, &placement, &whole, &machine, 2.0, 1).expect("valid");
    let switch = |mut os: Os| {
        let (a, b) = (os.spawn(false).expect("one"), os.spawn(false).expect("two"));
        let mut fx = Effects::default();
        for pid in [a, b] {
            os.map(pid, HEAP, 64 * MB, true, Backing::Anonymous, &mut fx)
                .expect("mmap");
            os.populate(pid, HEAP, 64 * MB, &mut fx)
                .expect("memory is plenty");
        }
        let cost = os.context_switch(a, b);
        let s = os.stats();
        // 2 cycles for each register, in addition to 1,400.
        assert_eq!(cost, 1400 + 2 * (s.registers_saved + s.registers_restored));
        // And back: each register is saved once and restored once.
        assert_eq!(os.context_switch(b, a), cost);
        let both = os.stats();
        assert_eq!(both.registers_saved, both.registers_restored);
        assert_eq!(
            both.registers_saved,
            s.registers_saved + s.registers_restored
        );
        (
            s.registers_saved,
            s.largest_contiguous_bytes,
            os.host_stats(),
        )
    };
    let (native, chunk, _) = switch(native);
    let (guest, way, host) = switch(guest);
    // 64 MB are 2048 lines in 3 ways: with 8 KB chunks of 128 lines, each way has at least 8
    // L2P entries. A way that grew in place has one base for each doubling.
    assert!(native >= 3 * 8, "{native}");
    assert!(guest < native, "{native} {guest}");
    assert!(chunk <= 1 << 20 && way > 8 << 10, "{chunk} {way}");
    // The host's own table uses chunks: memory that is contiguous for the guest is not
    // contiguous in the host.
    let host = host.expect("there is a host");
    assert!(host.largest_contiguous_bytes <= 1 << 20);
    assert_eq!(host.registers_saved, 0);
}

fn settled(mode: ThpMode) -> PlacementSpec {
    PlacementSpec::Thp(ThpSpec {
        mode,
        giant: false,
        sizes: ThpSizes::default(),
        khugepaged: KhugepagedSpec {
            settled: true,
            ..KhugepagedSpec::default()
        },
    })
}

#[test]
fn guests_and_hosts_each_have_a_khugepaged() {
    // The host's pages are small at first, because it has only broken blocks.
    let host = spec(FragmentationSpec::Available2mb(0.0));
    let small = PlacementSpec::Buddy(BuddySpec {});
    for (of_guest, of_host) in [(true, false), (false, true), (true, true)] {
        let thp = || settled(ThpMode::Always);
        let pick = |huge: bool| if huge { thp() } else { small.clone() };
        let mut w = boot(&host, &pick(of_guest), &on(pick(of_host)));
        w.heap(132 << 10);
        let at = HEAP;
        w.os.populate(w.pid, at, 132 << 10, &mut w.fx)
            .expect("memory is plenty");
        w.heap_at(HEAP.offset(132 << 10), 2 * MB - (132 << 10));
        assert_eq!(w.at(HEAP).0.size, PageSize::K4);
        assert_eq!(w.at(HEAP).1.size, PageSize::K4);
        w.fx = Effects::default();
        w.os.settle(&mut w.fx).expect("memory is plenty");
        let (g, h) = w.at(HEAP);
        let size = |huge| if huge { PageSize::M2 } else { PageSize::K4 };
        // The host backs the block of the guest's new 2 MB page with small pages.
        assert_eq!(g.size, size(of_guest));
        assert!(!w.fx.invalidate.is_empty());
        w.os.settle(&mut w.fx).expect("memory is plenty");
        let (_, again) = w.at(HEAP);
        assert_eq!(again.size, size(of_host), "{h:?}");
        // All of the guest's 2 MB are backed, wherever they lie.
        for i in 0..if of_guest { 512 } else { 33 } {
            w.at(HEAP.offset(i * 4096));
        }
    }
}

fn shadowed(placement: PlacementSpec) -> VirtualSpec {
    VirtualSpec {
        shadow: true,
        ..on(placement)
    }
}

impl Guest {
    /// Translation in the shadow, which the hardware walks.
    fn shadow(&self, at: VirtAddr) -> Translation<PhysAddr> {
        let View::Native(shadow) = self.os.view(self.pid) else {
            panic!("the hardware walks one table");
        };
        shadow.translate(at).expect("it is mapped")
    }
}

/// A shadow page has the smaller of its sizes in both layers. The host's counters show that the
/// shadow causes no VM exits.
#[test]
fn a_page_of_the_shadow_is_as_large_as_it_is_in_both() {
    let small = || PlacementSpec::Buddy(BuddySpec {});
    for (guest, host, size) in [
        (small(), small(), PageSize::K4),
        (thp(), small(), PageSize::K4),
        (small(), thp(), PageSize::K4),
        (thp(), thp(), PageSize::M2),
    ] {
        let boot = |machine: &VirtualSpec| {
            let mut w = boot(&spec(FragmentationSpec::None), &guest, machine);
            w.heap(8 * MB);
            for page in [0, 1, 700, 2047] {
                w.write(VirtAddr(HEAP.0 + page * 4096));
            }
            w
        };
        let (nested, w) = (boot(&on(host.clone())), boot(&shadowed(host.clone())));
        for page in [0, 1, 700, 2047] {
            let at = VirtAddr(HEAP.0 + page * 4096);
            let found = w.shadow(at);
            assert_eq!(found.size, size);
            let View::Nested { guest, host } = w.os.layers(w.pid) else {
                panic!("a guest has two layers");
            };
            let g = guest.translate(at).expect("the guest maps it");
            let gpa = g.frame.base.0 + (at.0 & (g.size.bytes() - 1));
            let h = host
                .translate(GuestPhysAddr(gpa))
                .expect("the host backs it");
            let behind = h.frame.base.0 + (gpa & (h.size.bytes() - 1));
            assert_eq!(found.frame.base.0 + (at.0 & (size.bytes() - 1)), behind);
        }
        assert_eq!(w.fx.cycles, nested.fx.cycles, "keeping it takes no time");
        let cost = |w: &Guest| {
            let host = w.os.host_stats().expect("there is a host");
            (host.fault_cycles, host.faults_4kb, host.faults_2mb)
        };
        assert_eq!(cost(&w), cost(&nested));
        // The host owns the shadow's nodes: a root and three levels below.
        let tables = |w: &Guest| w.os.host_stats().map_or(0, |s| s.page_table_bytes);
        let nodes = if size == PageSize::K4 { 3 + 4 - 1 } else { 3 };
        assert_eq!(tables(&w) - tables(&nested), nodes * 4096);
    }
}

/// Collapses by the host enlarge shadow pages, and unmapped pages leave the shadow.
#[test]
fn the_shadow_reflects_the_hosts_collapses_and_ends_with_its_process() {
    let collapsing = |settled| {
        let khugepaged = KhugepagedSpec {
            settled,
            ..KhugepagedSpec::default()
        };
        PlacementSpec::Thp(ThpSpec {
            mode: ThpMode::Always,
            giant: false,
            sizes: ThpSizes::default(),
            khugepaged,
        })
    };
    // Every block of the host is broken, and compaction can repair it.
    let host = OsSpec {
        memory_gb: 2,
        ..spec(FragmentationSpec::Available2mb(0.0))
    };
    for settled in [true, false] {
        let mut w = boot(&host, &thp(), &shadowed(collapsing(settled)));
        w.heap(64 * MB);
        for region in 0..32 {
            w.write(VirtAddr(HEAP.0 + region * 2 * MB));
        }
        let huge = |w: &Guest| {
            let of = |r: u64| w.shadow(VirtAddr(HEAP.0 + r * 2 * MB)).size == PageSize::M2;
            (0..32).filter(|&r| of(r)).count()
        };
        let before = huge(&w);
        assert_eq!(before, 0);
        w.os.settle(&mut w.fx).expect("memory is plenty");
        assert_eq!(huge(&w), if settled { 32 } else { 0 });
        let tables = |w: &Guest| w.os.host_stats().map_or(0, |s| s.page_table_bytes);
        let full = tables(&w);
        let child = w.os.fork(w.pid, &mut w.fx).expect("memory is plenty");
        let forked = tables(&w);
        assert!(forked > full);
        w.os.exec(child, &mut w.fx);
        assert!(tables(&w) < forked, "its shadow goes at once");
        w.os.exit(child, &mut w.fx);
        w.os.exit(w.pid, &mut w.fx);
        assert!(tables(&w) < full);
        let again = w.os.spawn(false).expect("a process");
        assert!(matches!(w.os.view(again), View::Native(_)));
    }
}

/// The hardware sees the hashes that the host has used. They cover program pages, last-level
/// frames and upper levels of guest page tables, and the host's own last level.
#[test]
fn a_host_places_by_the_hash_of_the_named_page() {
    for of in [HashOf::GuestVirtual, HashOf::GuestPhysical, HashOf::Both] {
        let hashed = PlacementSpec::TieredHash(TieredHashSpec {
            hash_of: Some(of),
            ..TieredHashSpec::default()
        });
        let small = PlacementSpec::Buddy(BuddySpec {});
        let mut w = boot(&spec(FragmentationSpec::None), &small, &on(hashed));
        let first = w.pid;
        let second = w.os.spawn(false).expect("a process");
        for pid in [first, second] {
            w.pid = pid;
            w.heap(64 * MB);
            for page in (0..16_000).step_by(97) {
                w.write(VirtAddr(HEAP.0 + page * 4096));
            }
        }
        let tiers = w.os.tiers().expect("the host hashes");
        let (mut pages, mut levels) = (0, [0; 4]);
        for pid in [first, second] {
            let View::Nested { guest, host } = w.os.view(pid) else {
                panic!("a guest's view is nested");
            };
            let asid = w.os.asid(pid);
            let lies_at = |gpa: u64, key: HashKey| {
                let h = host.translate(GuestPhysAddr(gpa)).expect("it is backed");
                let names = |key| {
                    let frame = h.frame.base.0 >> 12;
                    (0..6).any(|tier| tiers.hash.of(tier, key) == frame)
                };
                let table = HashKey::host_table(gpa >> 12);
                let leaf = h.leaf.0 >> 12;
                assert!((0..6).any(|tier| tiers.hash.of(tier, table) == leaf));
                match of {
                    HashOf::GuestPhysical => names(HashKey::guest_page(gpa >> 12)),
                    _ => names(key),
                }
            };
            for page in (0..16_000).step_by(97) {
                let va = VirtAddr(HEAP.0 + page * 4096);
                let vpn = va.0 >> 12;
                let g = guest.translate(va).expect("the guest maps it");
                assert!(lies_at(g.frame.base.0, HashKey::page(asid, vpn)));
                assert!(lies_at(g.leaf.0, HashKey::table(asid, vpn)));
                pages += 1;
                // The levels above, in the order of a walk.
                let mut state = WalkState::default();
                let none = WalkCacheSpec {
                    entries: 0,
                    ways: 1,
                    latency: 0,
                    serial: false,
                };
                let mut set = WalkCacheSet::new(&none, 4);
                let mut caches = WalkCaches::new(&mut set, asid, 0);
                while let Next::One { at, level } = guest.next(va, &mut state, &mut caches) {
                    if level > 1 {
                        let key = HashKey::guest_page(at.0 >> 12);
                        levels[usize::from(level) - 1] += u64::from(lies_at(at.0, key));
                    }
                }
            }
        }
        let hashed = if of == HashOf::GuestVirtual { 0 } else { pages };
        assert_eq!(levels, [0, hashed, hashed, hashed], "{of:?}");
        let (data, tables) = (&tiers.data, &tiers.tables);
        assert_eq!((data.fallbacks, tables.fallbacks), (0, 0));
        let placed = |p: &Placed| p.hits.iter().sum::<u64>();
        let s = w.os.stats();
        let nodes = s.page_table_bytes / 4096;
        // Each process has 32 last-level nodes. The host has as many as there are regions in
        // its used memory.
        let own = placed(tables)
            - match of {
                HashOf::GuestVirtual => 2 * 32,
                HashOf::GuestPhysical => 0,
                HashOf::Both => nodes,
            };
        let used = (s.mapped_4kb_bytes + s.page_table_bytes).div_ceil(2 * MB);
        assert!(
            (used..used + 2).contains(&own),
            "{of:?}: {own} for {used} regions"
        );
        let all = s.mapped_4kb_bytes / 4096
            + if of == HashOf::GuestPhysical {
                nodes
            } else {
                0
            };
        assert_eq!(placed(data), all);
    }
}

/// A page that the guest frees and reuses stays in its host frame, although the hash of its new
/// use selects another frame.
#[test]
fn what_a_guest_uses_again_lies_where_it_was_first_used() {
    let hashed = PlacementSpec::TieredHash(TieredHashSpec::default());
    let small = PlacementSpec::Buddy(BuddySpec {});
    let mut w = boot(&spec(FragmentationSpec::None), &small, &on(hashed));
    w.heap(2 * MB);
    w.write(HEAP);
    let (g, h) = w.at(HEAP);
    w.os.unmap(w.pid, HEAP, 4096, &mut w.fx).expect("unmap");
    let other = VirtAddr(HEAP.0 + 4096);
    w.write(other);
    let (again, behind) = w.at(other);
    assert_eq!((again.frame, behind.frame), (g.frame, h.frame));
    let tiers = w.os.tiers().expect("the host hashes");
    assert_eq!(
        tiers.data.hits.iter().sum::<u64>(),
        1,
        "the host had one request"
    );
}
