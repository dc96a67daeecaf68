//! One page table for all processes of a kernel.

use pagewalk_os::{
    BuddySpec, Effects, FragmentationSpec, Os, PageTableSpec, PlacementSpec, VirtualSpec,
};
use pagewalk_stats::Tree;
use pagewalk_tables::{GlobalHashedSpec, RadixSpec, View};
use pagewalk_units::{Access, Asid, Backing, GuestPhysAddr, VirtAddr};

use super::{GB, HEAP, MB, World, spec};

/// So many entries that two processes of 16 MB have collisions.
fn table() -> PageTableSpec {
    PageTableSpec::GlobalHashed(GlobalHashedSpec {
        entries_per_frame: 0.01,
        ..GlobalHashedSpec::default()
    })
}

/// Bytes of the table of 1 GB: 4096 entries for 4 KB pages, 256 for each other size.
const TABLE: u64 = 16 * (4096 + 256 + 256);

fn buddy() -> PlacementSpec {
    PlacementSpec::Buddy(BuddySpec {})
}

/// A host with the shared table, and a guest of 1 GB.
fn host(page_table: PageTableSpec) -> VirtualSpec {
    VirtualSpec {
        page_table,
        placement: buddy(),
        memory_gb: Some(1),
        fragmentation: FragmentationSpec::None,
        exit_ns: 500.0,
        shadow: false,
    }
}

fn counter(os: &Os, path: &str, name: &str) -> u64 {
    let mut tree = Tree::default();
    os.report("os", &mut tree);
    tree.get(path, name).expect("reported")
}

#[test]
fn processes_share_the_memory_of_the_table_and_nothing_else() {
    let mut w = World::with(&spec(FragmentationSpec::None), &buddy(), &table());
    // The blocks of the smaller tables are frames of 4 KB.
    assert_eq!(w.stats().page_table_bytes, TABLE);
    assert_eq!(w.stats().largest_contiguous_bytes, 65_536);
    w.heap(16 * MB);
    let pages = || (0..4096).map(|i| VirtAddr(HEAP.0 + i * 4096));
    for at in pages() {
        w.write(at);
    }
    let parent = w.pid;
    let child = w.os.fork(parent, &mut w.fx).expect("memory is plenty");
    let other = w.os.spawn(false).expect("a process");
    let [a, b, c] = [parent, child, other].map(|pid| w.os.asid(pid));
    assert!(a != b && b != c && a != c && a != Asid(0));
    assert_eq!(counter(&w.os, "page_table.global.4kb", "entries"), 8192);
    for at in pages() {
        assert_eq!(w.pa(parent, at), w.pa(child, at), "copy-on-write");
        assert_eq!(w.find(other, at), None);
    }
    // Each writes its own copy.
    for at in pages().step_by(2) {
        w.os.fault(child, at, Access::Write, &mut w.fx)
            .expect("its own");
        assert_ne!(w.pa(parent, at), w.pa(child, at));
    }
    let held = |w: &World, pid| w.os.held(pid).page_table_bytes;
    assert_eq!([parent, child, other].map(|pid| held(&w, pid)), [0, 0, 0]);
    let bytes = w.stats().page_table_bytes;
    assert!(bytes > TABLE, "there are collisions");
    let sizes = ["4kb", "2mb", "1gb"].map(|size| format!("page_table.global.{size}"));
    let own: u64 = sizes.iter().map(|path| counter(&w.os, path, "bytes")).sum();
    assert_eq!(bytes, own, "counted once");
    // A switch costs no more than between threads of a process.
    let same = w.os.context_switch(parent, parent);
    assert_eq!(w.os.context_switch(parent, child), same);
    assert_eq!(w.stats().registers_saved + w.stats().registers_restored, 0);
    // An exit removes the pages of that process only.
    let before: Vec<u64> = pages().map(|at| w.pa(child, at)).collect();
    w.os.exit(parent, &mut w.fx);
    assert_eq!(counter(&w.os, "page_table.global.4kb", "entries"), 4096);
    let after: Vec<u64> = pages().map(|at| w.pa(child, at)).collect();
    assert_eq!(before, after);
    // A process with the number of the exited one sees nothing of it.
    let next = w.os.spawn(false).expect("a process");
    assert_eq!(w.os.asid(next), a);
    assert!(pages().all(|at| w.find(next, at).is_none()));
    w.os.exec(child, &mut w.fx);
    assert!(pages().all(|at| w.find(child, at).is_none()));
    assert_eq!(
        w.stats().page_table_bytes,
        TABLE,
        "the overflow area is empty"
    );
    assert_eq!(counter(&w.os, "page_table.global.4kb", "entries"), 0);
    assert_eq!(
        counter(&w.os, "page_table.global.4kb", "inserted"),
        8192 + 2048
    );
}

#[test]
fn guest_and_host_have_a_table_each() {
    let os = spec(FragmentationSpec::None);
    let mut os = Os::virtualised(&os, &buddy(), &table(), &host(table()), 2.0, 1).expect("valid");
    let pids = [(); 2].map(|()| os.spawn(false).expect("a process"));
    let mut fx = Effects::default();
    for pid in pids {
        os.map(pid, HEAP, MB, true, Backing::Anonymous, &mut fx)
            .expect("mmap");
        os.fault(pid, HEAP, Access::Write, &mut fx)
            .expect("memory is plenty");
    }
    assert_eq!(os.stats().page_table_bytes, TABLE);
    let host = os.host_stats().expect("there is one");
    assert!(host.page_table_bytes >= TABLE, "with 2 GB to map");
    let entries = |path: &str| counter(&os, path, "entries");
    assert_eq!(entries("page_table.global.4kb"), 2);
    // The pages of both processes, and the guest's table, which was zeroed at boot.
    assert_eq!(entries("host.page_table.global.4kb"), 2 + TABLE / 4096);
    let gpa = pids.map(|pid| {
        let View::Nested { guest, host } = os.view(pid) else {
            panic!("a guest");
        };
        let found = guest.translate(HEAP).expect("mapped");
        assert!(found.leaf.0 >= GB, "in the window of the guest's tables");
        assert!(os.is_backed(GuestPhysAddr(found.leaf.0)));
        assert!(host.translate(found.leaf).is_some());
        found.frame.base
    });
    assert_ne!(gpa[0], gpa[1]);
}

#[test]
fn a_table_that_has_no_block_says_so_at_boot() {
    let large = PageTableSpec::GlobalHashed(GlobalHashedSpec {
        entries_per_frame: 16.0,
        ..GlobalHashedSpec::default()
    });
    let spec = spec(FragmentationSpec::UnusableFreeIndex(0.75));
    let refused = |in_host: bool| {
        let radix = PageTableSpec::Radix(RadixSpec { levels: 4 });
        let made = if in_host {
            Os::virtualised(&spec, &buddy(), &radix, &host(large.clone()), 2.0, 1)
        } else {
            Os::new(&spec, &buddy(), &large, 2.0, 1)
        };
        made.err()
            .expect("64 MB, and no block has them")
            .to_string()
    };
    let native = refused(false);
    assert!(
        native.starts_with(
            "page_table.global_hashed.entries_per_frame: 67108864 bytes of contiguous memory cannot be set aside at boot"
        ),
        "{native}"
    );
    assert!(
        native.ends_with("; lower it or os.fragmentation"),
        "{native}"
    );
    let host = refused(true);
    assert!(
        host.starts_with("virtual.page_table.global_hashed.entries_per_frame: "),
        "{host}"
    );
}
