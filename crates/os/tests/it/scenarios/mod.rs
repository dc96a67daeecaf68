//! Scenarios: a machine, the actions of a program, and the expected state of the
//! kernel.

mod eager;
mod huge;
mod hugetlb;
mod kernel_files;
mod khugepaged;
mod linux;
mod recorded;
mod reservations;
mod shared_tables;
mod spaces;
mod system;
mod thp_sizes;
mod tiered_hash;
mod virtual_machines;

use pagewalk_os::{
    Effects, FragmentationSpec, KhugepagedSpec, Os, OsError, OsSpec, OsStats, PageTableSpec, Pid,
    PlacementSpec, ReservationSpec, ThpMode, ThpSizes, ThpSpec,
};
use pagewalk_tables::{RadixSpec, Translation, View};
use pagewalk_units::{Access, Backing, PhysAddr, VirtAddr};

const MB: u64 = 1 << 20;
const GB: u64 = 1 << 30;
const HEAP: VirtAddr = VirtAddr(0x10_0000_0000);

fn spec(fragmentation: FragmentationSpec) -> OsSpec {
    OsSpec {
        fragmentation,
        ..OsSpec::free(1)
    }
}

fn thp() -> PlacementSpec {
    PlacementSpec::Thp(ThpSpec {
        mode: ThpMode::Always,
        giant: false,
        sizes: ThpSizes::default(),
        khugepaged: KhugepagedSpec::default(),
    })
}

struct World {
    os: Os,
    pid: Pid,
    fx: Effects,
}

impl World {
    fn new(spec: &OsSpec, placement: &PlacementSpec) -> Self {
        Self::with(
            spec,
            placement,
            &PageTableSpec::Radix(RadixSpec { levels: 4 }),
        )
    }
    fn with(spec: &OsSpec, placement: &PlacementSpec, table: &PageTableSpec) -> Self {
        let mut os = Os::new(spec, placement, table, 2.0, 1).expect("a valid system");
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
    /// Physical address of a byte.
    fn pa(&self, pid: Pid, at: VirtAddr) -> u64 {
        let t = self.find(pid, at).expect("mapped");
        t.frame.base.0 + (at.0 & (t.size.bytes() - 1))
    }
}

fn reservation(promotion_threshold: f64) -> PlacementSpec {
    PlacementSpec::Reservation(ReservationSpec {
        promotion_threshold,
    })
}
