//! The host of a virtual machine: what backs the guest's physical memory.
//!
//! The host's kernel is an [`Os`] like the guest's, whose one process is the
//! virtual machine and whose virtual addresses are the guest's physical ones.
//! The guest's kernel zeroes what it puts to use, pages of programs and of page
//! tables, so the host has to back it at that moment, page by page of its own,
//! each with an exit from the guest. What the guest gives back stays backed.

use pagewalk_tables::{Invalidation, PageTableSpec};
use pagewalk_units::{Asid, Cycle, GuestPhysAddr, VirtAddr};

use crate::spec::{OsSpec, PlacementSpec, VirtualSpec};
use crate::table::Role;
use crate::{Effects, Os, OsError, Pid};

/// See the module.
pub struct Host {
    pub os: Os,
    pub machine: Pid,
    /// Leaving the guest and going back, cycles.
    exit: Cycle,
}

impl Os {
    /// The system of a guest on a host, both just booted: `spec` is the host's
    /// memory and both kernels' prices; `placement` and `table` are the guest's.
    /// An error names the key that makes no sense and what was expected.
    pub fn virtualised(
        spec: &OsSpec,
        placement: &PlacementSpec,
        table: &PageTableSpec,
        machine: &VirtualSpec,
        frequency_ghz: f64,
        seed: u64,
    ) -> Result<Self, String> {
        machine.check()?;
        let own = OsSpec {
            memory_gb: machine.memory_gb.unwrap_or(spec.memory_gb),
            kernel_reserved: 0.0,
            occupied: 0.0,
            fragmentation: machine.fragmentation,
            ..spec.clone()
        };
        let mut guest = Os::of(Role::Guest, &own, placement, table, frequency_ghz, seed)?;
        let frames = guest.kernel.virtualise();
        let mut host = Os::of(
            Role::Host,
            spec,
            &machine.placement,
            &machine.page_table,
            frequency_ghz,
            seed,
        )?;
        let said = |e: OsError| format!("virtual: {e}");
        let vm = host.spawn(false).map_err(said)?;
        let mut fx = Effects::default();
        let all = pagewalk_units::Backing::Anonymous;
        host.map(vm, VirtAddr(0), frames << 12, true, all, &mut fx)
            .map_err(said)?;
        let exit = (machine.exit_ns * frequency_ghz).round() as Cycle;
        guest.host = Some(Box::new(Host {
            os: host,
            machine: vm,
            exit,
        }));
        Ok(guest)
    }

    /// Has the host back what the guest's kernel has put to use.
    pub(crate) fn back(&mut self, fx: &mut Effects) -> Result<(), OsError> {
        let Some(host) = &mut self.host else {
            return Ok(());
        };
        let used = self.kernel.take_used();
        let mut forget = false;
        for (frame, frames) in used {
            forget |= host.back(frame << 12, frames << 12, fx)?;
        }
        if forget {
            self.forget_guest(fx);
        }
        Ok(())
    }

    /// A walk found nothing behind the guest-physical address `at`: a fault of the
    /// host. Errors as [`Os::fault`].
    pub fn host_fault(&mut self, at: GuestPhysAddr, fx: &mut Effects) -> Result<(), OsError> {
        let Some(host) = &mut self.host else {
            return Err(OsError::Bad(format!("there is no host to back {at}")));
        };
        if host.back(at.0 & !0xfff, 4096, fx)? {
            self.forget_guest(fx);
        }
        Ok(())
    }

    /// The host has changed its table: what walks of any process of the guest have
    /// left behind may be wrong (INVEPT: Intel SDM vol. 3, 28.4.3.1).
    fn forget_guest(&mut self, fx: &mut Effects) {
        let asids: Vec<Asid> = self.alive_spaces().map(|s| s.asid).collect();
        let spaces = asids.into_iter().map(|asid| Invalidation::Space { asid });
        fx.invalidate.extend(spaces);
    }
}

impl Host {
    /// Backs the guest-physical range; whether the table changed for what was
    /// backed before.
    fn back(&mut self, at: u64, bytes: u64, fx: &mut Effects) -> Result<bool, OsError> {
        let mut own = Effects::default();
        let (populated, faults) = self.os.untimed_faults();
        let done = self.os.touch_all(self.machine, at, at + bytes, &mut own);
        let s = &mut self.os.kernel.stats;
        // The guest's touches, not the laboratory's.
        let pages = s.populated_pages - populated;
        s.populated_pages = populated;
        let cycles = own.cycles + pages * (self.exit + self.os.kernel.prices.trap);
        s.fault_cycles = faults + cycles;
        fx.cycles += cycles;
        done.map_err(|e| OsError::Host(Box::new(e)))?;
        Ok(!own.invalidate.is_empty())
    }
}

/// Of the host, for tests and results.
impl Os {
    fn untimed_faults(&self) -> (u64, u64) {
        let s = &self.kernel.stats;
        (s.populated_pages, s.fault_cycles)
    }

    /// What the host counted, if there is one.
    pub fn host_stats(&self) -> Option<crate::OsStats> {
        self.host.as_ref().map(|h| h.os.stats())
    }

    /// Whether the guest-physical address `at` is backed, without a fault.
    pub fn is_backed(&self, at: GuestPhysAddr) -> bool {
        self.host
            .as_ref()
            .and_then(|h| h.os.space(h.machine).ok())
            .is_some_and(|s| s.table.translate(VirtAddr(at.0)).is_some())
    }
}
