//! Pools of huge pages, as Linux's hugetlbfs has them.

use super::{HEAP, MB, World, spec};
use pagewalk_os::{
    BuddySpec, FragmentationSpec, HugetlbSpec, Os, OsError, OsSpec, PageTableSpec, Pid,
    PlacementSpec,
};
use pagewalk_units::{Access, Advice, MappingSource, MemoryObject, PageSize, PopulateAs, VirtAddr};

const HUGE: u64 = 2 * MB;

fn world(pages_2mb: u64) -> World {
    let mut spec = spec(FragmentationSpec::None);
    spec.hugetlb.pages_2mb = pages_2mb;
    World::new(&spec, &PlacementSpec::Buddy(BuddySpec {}))
}

fn pool(reserves: bool) -> MappingSource {
    MappingSource::Pool {
        size: PageSize::M2,
        reserves,
        object: None,
        private: true,
    }
}

fn shared(key: Option<u64>) -> MappingSource {
    let object = MemoryObject {
        key,
        file: false,
        page: 0,
        pages: u64::MAX,
    };
    MappingSource::Pool {
        size: PageSize::M2,
        reserves: true,
        object: Some(object),
        private: false,
    }
}

impl World {
    fn pooled(&mut self, at: VirtAddr, bytes: u64, source: MappingSource) -> Result<(), OsError> {
        let done = self
            .os
            .mmap(self.pid, at, bytes, true, source, &mut self.fx);
        self.balanced();
        done
    }
    fn accessed(&mut self, pid: Pid, at: VirtAddr, access: Access) -> Result<(), OsError> {
        self.os.fault(pid, at, access, &mut self.fx)
    }
    /// Free pages and reserved ones.
    fn pool(&self) -> (u64, u64) {
        let s = self.os.hugetlb_stats();
        (s.free_2mb, s.reserved_2mb)
    }
    fn balanced(&self) {
        let (free, reserved) = self.pool();
        assert!(reserved <= free, "{reserved} of {free}");
    }
    fn unmap(&mut self, at: VirtAddr, bytes: u64) -> Result<(), OsError> {
        self.os.unmap(self.pid, at, bytes, &mut self.fx)
    }
    fn child(&mut self) -> Pid {
        self.os.fork(self.pid, &mut self.fx).expect("a child")
    }
}

fn is_empty(done: &Result<(), OsError>) -> bool {
    matches!(done, Err(OsError::PoolEmpty { .. }))
}

#[test]
fn a_mapping_reserves_its_pages_uses_them_at_faults_and_gives_them_back() {
    let mut w = world(4);
    // The length is rounded up to whole pages.
    w.pooled(HEAP, 2 * HUGE + 4096, pool(true)).expect("mapped");
    assert_eq!(w.pool(), (4, 3));
    w.accessed(w.pid, HEAP.offset(2 * HUGE + MB), Access::Write)
        .expect("reserved");
    let mapped = w.at(HEAP.offset(2 * HUGE)).expect("mapped");
    assert_eq!(mapped.size, PageSize::M2);
    assert_eq!(w.pool(), (3, 2));
    assert_eq!((w.stats().faults_2mb, w.stats().zeroed_bytes), (1, HUGE));
    w.unmap(HEAP.offset(HUGE), 2 * HUGE).expect("whole pages");
    assert_eq!(w.pool(), (4, 1));
    w.os.exit(w.pid, &mut w.fx);
    assert_eq!(w.pool(), (4, 0));
}

#[test]
fn a_mapping_that_the_pool_cannot_hold_gets_ordinary_pages_and_is_counted() {
    let mut w = world(2);
    w.pooled(HEAP, 3 * HUGE, pool(true)).expect("mapped");
    w.write(HEAP);
    assert_eq!(w.at(HEAP).map(|t| t.size), Some(PageSize::K4));
    assert_eq!((w.os.hugetlb_stats().refused, w.pool()), (1, (2, 0)));
    w.pooled(HEAP, 2 * HUGE, pool(true)).expect("mapped");
    assert_eq!((w.os.hugetlb_stats().refused, w.pool()), (1, (2, 2)));
}

#[test]
fn a_fault_without_a_reservation_takes_only_what_nobody_has_reserved() {
    let mut w = world(3);
    w.pooled(HEAP, 2 * HUGE, pool(true)).expect("mapped");
    let free = HEAP.offset(8 * HUGE);
    w.pooled(free, 2 * HUGE, pool(false)).expect("mapped");
    w.accessed(w.pid, free, Access::Read).expect("a free page");
    let empty = w.accessed(w.pid, free.offset(HUGE), Access::Read);
    assert!(is_empty(&empty), "{empty:?}");
    let text = empty.expect_err("it is").to_string();
    assert!(
        text.contains("SIGBUS") && text.contains("os.hugetlb.pages_2mb"),
        "{text}"
    );
    for page in 0..2 {
        w.write(HEAP.offset(page * HUGE));
    }
    assert_eq!(w.pool(), (0, 0));
}

#[test]
fn after_a_fork_copies_take_free_pages_and_a_child_has_no_reservation() {
    let mut w = world(3);
    w.pooled(HEAP, 2 * HUGE, pool(true)).expect("mapped");
    w.write(HEAP);
    let child = w.child();
    w.accessed(child, HEAP, Access::Write).expect("a free page");
    assert_eq!(w.stats().copied_bytes, HUGE);
    assert_ne!(w.pa(w.pid, HEAP), w.pa(child, HEAP));
    let second = HEAP.offset(HUGE);
    let empty = w.accessed(child, second, Access::Write);
    assert!(is_empty(&empty), "{empty:?}");
    // The parent's reservation is still there.
    w.write(second);
    // The parent is the only owner of its page now.
    w.write(HEAP);
    assert_eq!(w.stats().copied_bytes, HUGE);
    w.os.exit(child, &mut w.fx);
    w.os.exit(w.pid, &mut w.fx);
    assert_eq!(w.pool(), (3, 0));
}

#[test]
fn a_parent_that_finds_the_pool_empty_takes_the_page_from_its_child() {
    let mut w = world(1);
    w.pooled(HEAP, HUGE, pool(true)).expect("mapped");
    w.write(HEAP);
    let child = w.child();
    let empty = w.accessed(child, HEAP, Access::Write);
    assert!(is_empty(&empty), "{empty:?}");
    w.write(HEAP);
    assert_eq!(w.find(child, HEAP), None);
    assert_eq!(w.os.hugetlb_stats().stolen, 1);
    let empty = w.accessed(child, HEAP, Access::Read);
    assert!(is_empty(&empty), "{empty:?}");
}

#[test]
fn processes_share_the_pages_of_an_object_which_reserves_each_once() {
    let mut w = world(4);
    let other = HEAP.offset(8 * HUGE);
    w.pooled(HEAP, 2 * HUGE, shared(Some(7))).expect("mapped");
    w.pooled(other, 3 * HUGE, shared(Some(7))).expect("mapped");
    assert_eq!(w.pool(), (4, 3));
    w.write(HEAP);
    w.write(other);
    assert_eq!(w.pa(w.pid, HEAP), w.pa(w.pid, other));
    let child = w.child();
    w.accessed(child, HEAP, Access::Write).expect("shared");
    assert_eq!(w.pa(w.pid, HEAP), w.pa(child, HEAP));
    assert_eq!((w.stats().zeroed_bytes, w.pool()), (HUGE, (3, 2)));
    w.os.exit(child, &mut w.fx);
    // An object with a key keeps its pages until somebody else needs them.
    w.os.exit(w.pid, &mut w.fx);
    w.pid = w.os.spawn(false).expect("a process");
    w.pooled(HEAP, 4 * HUGE, pool(true)).expect("mapped");
    assert_eq!((w.os.hugetlb_stats().refused, w.pool()), (0, (4, 4)));
}

#[test]
fn an_object_without_reservations_keeps_and_frees_its_pages() {
    let mut w = world(2);
    let MappingSource::Pool { object, .. } = shared(None) else {
        unreachable!()
    };
    let unreserved = MappingSource::Pool {
        size: PageSize::M2,
        reserves: false,
        object,
        private: false,
    };
    w.pooled(HEAP, HUGE, unreserved).expect("mapped");
    w.write(HEAP);
    let child = w.child();
    w.accessed(child, HEAP, Access::Write).expect("shared");
    assert_eq!(w.pa(w.pid, HEAP), w.pa(child, HEAP));
    w.os.exit(child, &mut w.fx);
    w.os.exit(w.pid, &mut w.fx);
    assert_eq!(w.pool(), (2, 0));
}

#[test]
fn a_private_mapping_of_an_object_copies_on_a_write() {
    let mut w = world(4);
    w.pooled(HEAP, HUGE, shared(Some(7))).expect("mapped");
    w.write(HEAP);
    let MappingSource::Pool { object, .. } = shared(Some(7)) else {
        unreachable!()
    };
    let private = MappingSource::Pool {
        size: PageSize::M2,
        reserves: true,
        object,
        private: true,
    };
    let at = HEAP.offset(8 * HUGE);
    w.pooled(at, HUGE, private).expect("mapped");
    assert_eq!(w.pool(), (3, 1));
    w.accessed(w.pid, at, Access::Read).expect("shared");
    assert_eq!(w.pa(w.pid, HEAP), w.pa(w.pid, at));
    w.write(at);
    assert_ne!(w.pa(w.pid, HEAP), w.pa(w.pid, at));
    assert_eq!((w.stats().copied_bytes, w.pool()), (HUGE, (2, 0)));
}

#[test]
fn no_call_splits_a_page_of_a_pool() {
    let mut w = world(4);
    w.pooled(HEAP, 2 * HUGE, pool(true)).expect("mapped");
    w.write(HEAP);
    w.write(HEAP.offset(HUGE));
    let (pid, inside) = (w.pid, HEAP.offset(MB));
    assert!(matches!(w.unmap(inside, MB), Err(OsError::Bad(_))));
    assert!(matches!(w.unmap(HEAP, HUGE + MB), Err(OsError::Bad(_))));
    let fx = &mut w.fx;
    assert!(w.os.protect(pid, HEAP, MB, false, fx).is_err());
    let advised =
        |os: &mut Os, at, advice| os.advise(pid, at, HUGE + MB, advice, &mut Default::default());
    assert!(advised(&mut w.os, inside, Advice::DontNeed).is_err());
    assert!(advised(&mut w.os, HEAP, Advice::Free).is_err());
    // The end is rounded down to whole pages.
    advised(&mut w.os, HEAP, Advice::DontNeed).expect("one page");
    assert!(w.at(HEAP).is_none() && w.at(HEAP.offset(HUGE)).is_some());
    // The page is free again, but not reserved.
    assert_eq!(w.pool(), (3, 0));
    let to = HEAP.offset(8 * HUGE);
    let grows = w.os.remap(pid, HEAP, HUGE, to, 2 * HUGE, &mut w.fx);
    assert!(matches!(grows, Err(OsError::Bad(_))), "{grows:?}");
    let frame = w.pa(pid, HEAP.offset(HUGE));
    let moved =
        w.os.remap(pid, HEAP.offset(HUGE), HUGE, to, HUGE, &mut w.fx);
    moved.expect("whole pages");
    assert_eq!(w.pa(pid, to), frame);
    assert_eq!(w.stats().splits, 0);
}

#[test]
fn a_moved_mapping_takes_its_reservations_along() {
    let mut w = world(2);
    w.pooled(HEAP, 2 * HUGE, pool(true)).expect("mapped");
    let to = HEAP.offset(8 * HUGE);
    let moved = w.os.remap(w.pid, HEAP, 2 * HUGE, to, 2 * HUGE, &mut w.fx);
    moved.expect("whole pages");
    w.write(to.offset(HUGE));
    assert_eq!(w.pool(), (1, 1));
    w.unmap(to, 2 * HUGE).expect("whole pages");
    assert_eq!(w.pool(), (2, 0));
}

#[test]
fn a_populated_mapping_has_all_its_pages() {
    let mut w = world(2);
    w.pooled(HEAP, 2 * HUGE, pool(true)).expect("mapped");
    w.os.kernel_populate(w.pid, HEAP, 2 * HUGE, PopulateAs::Area, &mut w.fx)
        .expect("reserved");
    assert_eq!((w.stats().faults_2mb, w.pool()), (2, (0, 0)));
}

#[test]
fn every_page_table_maps_the_pages_of_both_pools() {
    for design in [
        include_str!("../../../../../designs/radix.toml"),
        include_str!("../../../../../designs/ecpt.toml"),
        include_str!("../../../../../designs/mehpt.toml"),
        include_str!("../../../../../designs/hash-dont-cache.toml"),
        include_str!("../../../../../designs/level-hashing.toml"),
    ] {
        let design: toml::Table = toml::from_str(design).expect("a design");
        let table: PageTableSpec = design["page_table"].clone().try_into().expect("a table");
        let mut spec = spec(FragmentationSpec::None);
        spec.memory_gb = 4;
        spec.hugetlb = HugetlbSpec {
            pages_2mb: 3,
            pages_1gb: 1,
        };
        let mut w = World::with(&spec, &PlacementSpec::Buddy(BuddySpec {}), &table);
        for (at, size) in [(HEAP, PageSize::M2), (VirtAddr(1 << 40), PageSize::G1)] {
            let source = MappingSource::Pool {
                size,
                reserves: true,
                object: None,
                private: true,
            };
            w.pooled(at, size.bytes(), source).expect("mapped");
            w.write(at.offset(MB));
            let found = w.at(at).map(|t| t.size);
            assert_eq!(found, Some(size), "{table:?}");
            w.unmap(at, size.bytes()).expect("whole pages");
        }
        let s = w.os.hugetlb_stats();
        assert_eq!((s.free_2mb, s.free_1gb, s.reserved_1gb), (3, 1, 0));
    }
}

#[test]
fn a_pool_that_does_not_fit_is_refused() {
    let mut spec = spec(FragmentationSpec::Available2mb(0.25));
    spec.hugetlb.pages_1gb = 1;
    let os = |spec: &OsSpec| {
        let buddy = PlacementSpec::Buddy(BuddySpec {});
        let radix = PageTableSpec::Radix(pagewalk_tables::RadixSpec { levels: 4 });
        Os::new(spec, &buddy, &radix, 2.0, 1)
            .err()
            .map(|e| e.to_string())
    };
    assert!(os(&spec).is_some_and(|e| e.contains("os.hugetlb")));
    spec.hugetlb = HugetlbSpec::default();
    assert_eq!(os(&spec), None);
}
