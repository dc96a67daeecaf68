//! Page faults and memory calls as Linux serves them, for live programs.

use super::{HEAP, MB, World, reservation, spec, thp};
use pagewalk_os::{BuddySpec, Effects, FragmentationSpec, OsStats, Pid, PlacementSpec};
use pagewalk_units::{Access, Advice, MappingSource, MemoryObject, PopulateAs, VirtAddr};

const PAGE: u64 = 4096;

fn buddy() -> World {
    of(&PlacementSpec::Buddy(BuddySpec {}))
}

fn of(placement: &PlacementSpec) -> World {
    World::new(&spec(FragmentationSpec::None), placement)
}

/// A machine with 8 MB.
fn little() -> World {
    let mut little = spec(FragmentationSpec::None);
    little.kernel_reserved = 1.0 - 8.0 / 1024.0;
    World::new(&little, &PlacementSpec::Buddy(BuddySpec {}))
}

fn object(key: Option<u64>, file: bool, pages: u64, private: bool) -> MappingSource {
    let page = 0;
    let object = MemoryObject {
        key,
        file,
        page,
        pages,
    };
    MappingSource::Object { object, private }
}

impl World {
    pub(super) fn mmap(&mut self, pid: Pid, at: VirtAddr, bytes: u64, source: MappingSource) {
        let done = self.os.mmap(pid, at, bytes, true, source, &mut self.fx);
        done.expect("a valid range");
    }
    fn zeros(&mut self, bytes: u64) {
        self.mmap(
            self.pid,
            HEAP,
            bytes,
            MappingSource::Zeros {
                stack: false,
                reserves: true,
            },
        );
    }
    /// Accesses the first `pages` pages from `at` on, as a processor does. Returns what the faults have added to the
    /// counters: faults, zeroed pages.
    fn access(&mut self, pid: Pid, at: VirtAddr, pages: u64, access: Access) -> (u64, u64) {
        let count = |s: &OsStats| {
            let faults = s.faults_4kb + s.faults_2mb + s.cow_faults;
            (faults, s.zeroed_bytes / PAGE)
        };
        let before = count(&self.os.stats());
        for i in 0..pages {
            let at = at.offset(i * PAGE);
            if self.misses(pid, at, access) {
                self.os
                    .fault(pid, at, access, &mut self.fx)
                    .expect("memory is plenty");
                assert!(!self.misses(pid, at, access), "{at}");
            }
        }
        let after = count(&self.os.stats());
        (after.0 - before.0, after.1 - before.1)
    }
    fn misses(&self, pid: Pid, at: VirtAddr, access: Access) -> bool {
        let pagewalk_tables::View::Native(table) = self.os.view(pid) else {
            panic!("no virtual machine");
        };
        let found = table.translate(at);
        found.is_none_or(|t| {
            access == Access::Write && !t.flags.contains(pagewalk_tables::Flags::WRITABLE)
        })
    }
    fn advised(&mut self, bytes: u64, advice: Advice) {
        let done = self.os.advise(self.pid, HEAP, bytes, advice, &mut self.fx);
        done.expect("a valid range");
    }
    /// Populates more than the machine of `little` has.
    fn exhaust_memory(&mut self) {
        let other = HEAP.offset(MB);
        let zeros = MappingSource::Zeros {
            stack: false,
            reserves: true,
        };
        self.mmap(self.pid, other, 16 * MB, zeros);
        let populate = PopulateAs::Area;
        let done = self
            .os
            .kernel_populate(self.pid, other, 16 * MB, populate, &mut self.fx);
        assert!(done.is_err(), "more than the machine has");
    }
    pub(super) fn forked(&mut self) -> Pid {
        self.os.fork(self.pid, &mut self.fx).expect("a child")
    }
}

#[test]
fn reads_of_untouched_memory_map_one_zero_page() {
    let mut w = buddy();
    w.zeros(MB);
    let free = w.stats().free_bytes;
    assert_eq!(w.access(w.pid, HEAP, 256, Access::Read), (256, 0));
    // One page, and four nodes of the page table.
    assert_eq!(free - w.stats().free_bytes, 5 * PAGE);
    assert_eq!(w.access(w.pid, HEAP, 256, Access::Write), (256, 256));
    assert_eq!(w.stats().copied_bytes, 0);
    w.os.unmap(w.pid, HEAP, MB, &mut w.fx).expect("munmap");
    let left = free - w.stats().free_bytes - w.stats().page_table_bytes;
    assert_eq!(left, PAGE, "the zero page stays");
}

#[test]
fn a_read_of_a_huge_region_maps_the_huge_zero_page_and_a_write_a_huge_page() {
    let mut w = of(&thp());
    w.zeros(4 * MB);
    assert_eq!(w.access(w.pid, HEAP, 1024, Access::Read), (2, 0));
    assert_eq!(w.access(w.pid, HEAP, 1024, Access::Write), (2, 1024));
    assert_eq!(w.stats().mapped_2mb_bytes, 4 * MB);
    // Without a block, the region gets small pages, one at each write.
    let none = spec(FragmentationSpec::Available2mb(0.0));
    let mut w = World::new(&none, &thp());
    w.zeros(2 * MB);
    assert_eq!(w.access(w.pid, HEAP, 512, Access::Read), (512, 0));
    assert_eq!(w.access(w.pid, HEAP, 512, Access::Write), (512, 512));
}

#[test]
fn reservations_give_reads_pages_of_their_own() {
    let mut w = of(&reservation(0.5));
    w.zeros(2 * MB);
    assert_eq!(w.access(w.pid, HEAP, 10, Access::Read), (10, 10));
    assert_eq!(w.stats().reservations, 1);
    assert_eq!(w.access(w.pid, HEAP, 10, Access::Write), (0, 0));
}

#[test]
fn a_file_is_read_in_groups_of_sixteen_pages_and_zeroed_never() {
    let mut w = buddy();
    // The mapping begins in a group, and the file ends in the mapping.
    let at = HEAP.offset(5 * PAGE);
    w.mmap(w.pid, at, 95 * PAGE, object(Some(7), true, 80, true));
    assert_eq!(
        w.access(w.pid, at.offset(2 * PAGE), 1, Access::Read),
        (1, 0)
    );
    let mapped: Vec<u64> =
        w.os.mappings()
            .iter()
            .map(|m| (m.address - HEAP.0) / PAGE)
            .collect();
    assert_eq!(mapped, (5..21).collect::<Vec<u64>>());
    // 16 to 31 has 11 pages left, then three groups, and one that ends with the file.
    assert_eq!(w.access(w.pid, at, 80, Access::Read).0, 5);
    // A write copies, and a page that is not mapped yet is copied with one fault.
    let copied = w.stats().copied_bytes;
    assert_eq!(w.access(w.pid, at, 90, Access::Write), (90, 0));
    assert_eq!(w.stats().copied_bytes - copied, 90 * PAGE);
}

#[test]
fn shared_memory_is_zeroed_once_for_all_its_mappings() {
    let mut w = little();
    w.mmap(
        w.pid,
        HEAP,
        100 * PAGE,
        object(None, false, u64::MAX, false),
    );
    let child = w.forked();
    assert_eq!(w.access(child, HEAP, 100, Access::Write), (100, 100));
    assert_eq!(w.access(w.pid, HEAP, 100, Access::Write), (100, 0));
    // An object with a key stays without a mapping, until memory is short.
    let other = HEAP.offset(MB);
    for zeroed in [100, 0] {
        w.mmap(w.pid, other, 100 * PAGE, object(Some(7), false, 100, false));
        assert_eq!(w.access(w.pid, other, 100, Access::Write), (100, zeroed));
        w.os.unmap(w.pid, other, 100 * PAGE, &mut w.fx)
            .expect("munmap");
    }
    w.mmap(
        w.pid,
        other,
        16 * MB,
        MappingSource::Zeros {
            stack: false,
            reserves: true,
        },
    );
    let populate = PopulateAs::Area;
    let done =
        w.os.kernel_populate(w.pid, other, 16 * MB, populate, &mut w.fx);
    assert!(done.is_err(), "more than the machine has");
    let held = w.os.held(w.pid);
    assert_eq!(
        w.stats().free_bytes + held.mapped_4kb + w.os.held(child).mapped_4kb - 100 * PAGE
            + w.stats().page_table_bytes,
        8 * MB
    );
}

#[test]
fn a_fork_copies_no_entries_of_shared_memory_and_of_files() {
    let mut w = buddy();
    w.mmap(w.pid, HEAP, 100 * PAGE, object(Some(7), true, 100, true));
    w.access(w.pid, HEAP, 100, Access::Read);
    let child = w.forked();
    assert_eq!(w.os.held(child).mapped_4kb, 0);
    assert_eq!(w.access(child, HEAP, 100, Access::Read), (7, 0));
    // A private copy of any page makes the fork copy all.
    w.access(w.pid, HEAP, 1, Access::Write);
    let child = w.forked();
    assert_eq!(w.os.held(child).mapped_4kb, 100 * PAGE);
}

#[test]
fn pages_of_an_object_are_taken_from_all_its_mappings() {
    let mut w = buddy();
    let (shared, private) = (HEAP.offset(MB), HEAP.offset(2 * MB));
    w.mmap(w.pid, HEAP, 64 * PAGE, object(Some(7), false, 64, false));
    w.mmap(w.pid, shared, 64 * PAGE, object(Some(7), false, 64, false));
    w.mmap(w.pid, private, 64 * PAGE, object(Some(7), false, 64, true));
    w.access(w.pid, HEAP, 64, Access::Write);
    w.access(w.pid, shared, 64, Access::Read);
    w.access(w.pid, private, 64, Access::Read);
    w.access(w.pid, private, 20, Access::Write);
    w.os.punch_hole(7, 10..30, &mut w.fx)
        .expect("no memory is needed");
    let count = |w: &World, at: VirtAddr| {
        let inside = |m: &&pagewalk_os::MappedPage| m.address >= at.0 && m.address < at.0 + MB;
        w.os.mappings().iter().filter(inside).count()
    };
    // Private copies stay.
    assert_eq!(
        [HEAP, shared, private].map(|at| count(&w, at)),
        [44, 44, 54]
    );
    assert_eq!(w.access(w.pid, HEAP, 64, Access::Write), (20, 20));
    w.os.truncate(7, 5, &mut w.fx).expect("no memory is needed");
    assert_eq!([HEAP, shared, private].map(|at| count(&w, at)), [5, 5, 5]);
    w.access(w.pid, shared, 64, Access::Write);
    w.advised(64 * PAGE, Advice::Remove);
    assert_eq!([HEAP, shared].map(|at| count(&w, at)), [0, 0]);
}

#[test]
fn advice_says_what_a_child_gets() {
    for (advice, areas, pages) in [
        (Advice::DontFork, 0, 0),
        (Advice::WipeOnFork, 1, 0),
        (Advice::KeepOnFork, 1, 64),
    ] {
        let mut w = buddy();
        w.zeros(64 * PAGE);
        w.access(w.pid, HEAP, 64, Access::Write);
        w.advised(64 * PAGE, advice);
        let child = w.forked();
        assert_eq!(w.os.held(child).mapped_4kb, pages * PAGE, "{advice:?}");
        let reads =
            w.os.fault(child, HEAP, Access::Read, &mut Effects::default());
        assert_eq!(reads.is_ok(), areas == 1, "{advice:?}");
    }
}

#[test]
fn lazily_freed_pages_go_when_memory_is_short_unless_they_have_been_written() {
    let mut w = little();
    w.zeros(64 * PAGE);
    w.access(w.pid, HEAP, 64, Access::Write);
    w.advised(64 * PAGE, Advice::Free);
    // The processor marks a page as dirty by itself.
    let before = w.fx.cycles;
    assert_eq!(w.access(w.pid, HEAP, 32, Access::Write), (0, 0));
    assert_eq!((w.fx.cycles, w.stats().fault_cycles > 0), (before, true));
    let written = w.pa(w.pid, HEAP);
    w.exhaust_memory();
    assert_eq!(w.pa(w.pid, HEAP), written);
    for page in 0..64 {
        let gone = w.misses(w.pid, HEAP.offset(page * PAGE), Access::Read);
        assert_eq!(gone, page >= 32, "{page}");
    }
}

#[test]
fn neither_fork_nor_mprotect_makes_a_written_page_clean() {
    for forks in [true, false] {
        let mut w = little();
        w.zeros(64 * PAGE);
        w.access(w.pid, HEAP, 64, Access::Write);
        w.advised(64 * PAGE, Advice::Free);
        w.access(w.pid, HEAP, 64, Access::Write);
        if forks {
            let child = w.forked();
            w.os.exit(child, &mut w.fx);
        } else {
            for writable in [false, true] {
                w.os.protect(w.pid, HEAP, 64 * PAGE, writable, &mut w.fx)
                    .expect("a valid range");
            }
        }
        w.exhaust_memory();
        assert!(!w.misses(w.pid, HEAP, Access::Read), "{forks}");
    }
}

#[test]
fn a_page_out_takes_clean_pages_of_files_that_no_other_process_maps() {
    let mut w = buddy();
    let file = object(Some(7), true, 64, true);
    w.mmap(w.pid, HEAP, 64 * PAGE, file);
    w.access(w.pid, HEAP, 64, Access::Read);
    w.access(w.pid, HEAP, 16, Access::Write);
    let free = w.stats().free_bytes;
    w.advised(64 * PAGE, Advice::PageOut);
    // Copies are anonymous, and there is no swap.
    assert_eq!(w.os.held(w.pid).mapped_4kb, 16 * PAGE);
    assert_eq!(w.stats().free_bytes - free, 48 * PAGE);
    w.access(w.pid, HEAP, 64, Access::Read);
    // Another process maps the same pages of the file.
    let other = w.os.spawn(false).expect("a process");
    w.mmap(other, HEAP, 64 * PAGE, file);
    w.access(other, HEAP, 64, Access::Read);
    w.advised(64 * PAGE, Advice::PageOut);
    assert_eq!(w.os.held(w.pid).mapped_4kb, 64 * PAGE);
}

#[test]
fn a_collapse_takes_its_pages_at_once_and_a_process_without_huge_pages_gets_none() {
    let mut w = of(&thp());
    w.zeros(4 * MB);
    w.os.disable_huge_pages(w.pid, true, &mut w.fx)
        .expect("it lives");
    assert_eq!(w.access(w.pid, HEAP, 513, Access::Write), (513, 513));
    w.advised(4 * MB, Advice::Collapse);
    assert_eq!(w.stats().mapped_2mb_bytes, 0);
    w.os.disable_huge_pages(w.pid, false, &mut w.fx)
        .expect("it lives");
    w.advised(4 * MB, Advice::Collapse);
    assert_eq!(w.stats().mapped_2mb_bytes, 4 * MB);
    assert_eq!(w.stats().copied_bytes, 513 * PAGE);
    // Other policies have no huge pages, and the advice fails in Linux.
    let mut w = buddy();
    w.zeros(2 * MB);
    w.access(w.pid, HEAP, 512, Access::Write);
    w.advised(2 * MB, Advice::Collapse);
    assert_eq!(w.stats().mapped_2mb_bytes, 0);
}

#[test]
fn a_call_that_populates_costs_no_traps() {
    let mut cycles = [PopulateAs::Read, PopulateAs::Write, PopulateAs::Area].map(|populate| {
        let mut w = buddy();
        w.zeros(64 * PAGE);
        w.fx = Effects::default();
        let done =
            w.os.kernel_populate(w.pid, HEAP, 64 * PAGE, populate, &mut w.fx);
        done.expect("memory is plenty");
        assert_eq!(w.stats().kernel_faults, 64);
        let zeroed = if populate == PopulateAs::Read { 0 } else { 64 };
        assert_eq!(w.stats().zeroed_bytes, zeroed * PAGE);
        // 250 ns a page at 2 GHz.
        assert_eq!(w.stats().fault_cycles, w.fx.cycles);
        w.fx.cycles - w.stats().table_allocation_cycles
    });
    cycles.sort_unstable();
    assert_eq!(cycles, [64 * 500, 64 * 1524, 64 * 1524]);
}

#[test]
fn a_call_populates_its_part_of_an_area() {
    let mut w = buddy();
    w.zeros(64 * PAGE);
    let part = VirtAddr(HEAP.0 + 8 * PAGE);
    let done = (w.os).kernel_populate(w.pid, part, 16 * PAGE, PopulateAs::Write, &mut w.fx);
    done.expect("memory is plenty");
    assert_eq!(w.stats().kernel_faults, 16);
}

#[test]
fn no_huge_page_covers_areas_with_and_without_a_reserve() {
    for reserves in [true, false] {
        let mut w = World::new(&spec(FragmentationSpec::None), &thp());
        for (at, reserves) in [(HEAP, true), (HEAP.offset(MB), reserves)] {
            let stack = false;
            w.mmap(w.pid, at, MB, MappingSource::Zeros { stack, reserves });
        }
        w.access(w.pid, HEAP, 512, Access::Write);
        let s = w.stats();
        let alike = if reserves { (0, 1) } else { (512, 0) };
        assert_eq!((s.faults_4kb, s.faults_2mb), alike);
    }
}
