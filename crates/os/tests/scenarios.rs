//! Scenarios: given a machine, when a program does this, then the kernel has done that.

use pagewalk_os::{
    Effects, FragmentationSpec, Os, OsError, OsSpec, OsStats, PageTableSpec, Pid, PlacementSpec,
    PriceSpec, ThpMode,
};
use pagewalk_tables::{Invalidation, Translation, View};
use pagewalk_units::{Access, Advice, Backing, PageSize, PhysAddr, VirtAddr};

const MB: u64 = 1 << 20;
const GB: u64 = 1 << 30;
const HEAP: VirtAddr = VirtAddr(0x10_0000_0000);

fn spec(fragmentation: FragmentationSpec) -> OsSpec {
    OsSpec {
        memory_gb: 1,
        kernel_reserved: 0.0,
        fragmentation,
        prices: PriceSpec::default(),
    }
}

fn thp() -> PlacementSpec {
    PlacementSpec::Thp {
        mode: ThpMode::Always,
        giant: false,
    }
}

struct World {
    os: Os,
    pid: Pid,
    fx: Effects,
}

impl World {
    fn new(spec: &OsSpec, placement: &PlacementSpec) -> Self {
        let table = PageTableSpec::Radix { levels: 4 };
        let mut os = Os::new(spec, placement, &table, 2.0, 1).expect("a valid system");
        let pid = os.spawn(false).expect("the first process");
        World {
            os,
            pid,
            fx: Effects::default(),
        }
    }
    fn map(&mut self, at: VirtAddr, bytes: u64, writable: bool, backing: Backing) {
        self.os
            .map(self.pid, at, bytes, writable, backing, &mut self.fx)
            .expect("mmap");
    }
    fn heap(&mut self, bytes: u64) {
        self.map(HEAP, bytes, true, Backing::Anonymous);
    }
    fn fault(&mut self, at: VirtAddr, access: Access) -> Result<(), OsError> {
        self.os.fault(self.pid, at, access, &mut self.fx)
    }
    fn write(&mut self, at: VirtAddr) {
        self.fault(at, Access::Write)
            .expect("a write that is allowed");
    }
    fn find(&self, pid: Pid, at: VirtAddr) -> Option<Translation<PhysAddr>> {
        match self.os.view(pid) {
            View::Native(table) => table.translate(at),
            View::Nested { .. } => None,
        }
    }
    fn at(&self, at: VirtAddr) -> Option<Translation<PhysAddr>> {
        self.find(self.pid, at)
    }
    fn stats(&self) -> OsStats {
        self.os.stats()
    }
    /// Where a byte lies.
    fn pa(&self, pid: Pid, at: VirtAddr) -> u64 {
        let t = self.find(pid, at).expect("mapped");
        t.frame.base.0 + (at.0 & (t.size.bytes() - 1))
    }
}

#[test]
fn without_huge_pages_every_page_is_4_kb() {
    let mut w = World::new(&spec(FragmentationSpec::None), &PlacementSpec::Buddy {});
    w.heap(8 * MB);
    w.os.populate(w.pid, HEAP, 8 * MB, &mut w.fx)
        .expect("memory is plenty");
    let s = w.stats();
    assert_eq!((s.faults_4kb, s.faults_2mb), (2048, 0));
    assert_eq!(s.mapped_4kb_bytes, 8 * MB);
    // 4 leaf nodes, and one each of the levels 2, 3 and 4.
    assert_eq!(s.page_table_bytes, 7 * 4096);
    assert_eq!(s.largest_contiguous_bytes, 4096);
    assert_eq!(s.free_bytes, GB - 8 * MB - 7 * 4096);
}

#[test]
fn with_huge_pages_every_aligned_2_mb_is_one_page() {
    let mut w = World::new(&spec(FragmentationSpec::None), &thp());
    // From 1 MB on: the first and last MB are not covered.
    let at = HEAP.offset(MB);
    w.map(at, 8 * MB, true, Backing::Anonymous);
    w.os.populate(w.pid, at, 8 * MB, &mut w.fx)
        .expect("memory is plenty");
    let s = w.stats();
    assert_eq!((s.faults_4kb, s.faults_2mb), (512, 3));
    assert_eq!(s.huge_fallbacks, 0);
    assert_eq!(
        w.at(HEAP.offset(3 * MB)).expect("mapped").size,
        PageSize::M2
    );
}

#[test]
fn files_stacks_and_shared_memory_are_never_huge() {
    for backing in [Backing::File, Backing::Stack, Backing::Shared] {
        let mut w = World::new(&spec(FragmentationSpec::None), &thp());
        w.map(HEAP, 4 * MB, true, backing);
        w.os.populate(w.pid, HEAP, 4 * MB, &mut w.fx)
            .expect("memory is plenty");
        assert_eq!(w.stats().faults_2mb, 0, "{backing:?}");
        assert_eq!(w.stats().faults_4kb, 1024);
    }
}
