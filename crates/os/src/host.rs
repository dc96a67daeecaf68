//! The host of a virtual machine, which backs the guest's physical memory.
//!
//! The host's kernel is an [`Os`] like the guest's. Its one process is the virtual
//! machine, whose virtual addresses are the guest's physical addresses. The guest's
//! kernel zeroes each frame that it allocates for programs and page tables. The host
//! backs the frame at that moment, in pages of its own size, each with a VM exit.
//! Frames that the guest frees stay backed.

use pagewalk_tables::{GuestUse, Invalidation, PageTableSpec};
use pagewalk_units::{Asid, Cycle, Error, GuestPhysAddr, VirtAddr};

use crate::memory::PutToUse;
use crate::placement::PlacementSpec;
use crate::shadow::Shadows;
use crate::spec::OsSpec;
use crate::table::Role;
use crate::touch::ForGuest;
use crate::virtual_spec::VirtualSpec;
use crate::{Effects, Os, OsError, Pid};

/// The host of a virtual machine; see the module documentation.
pub struct Host {
    /// The host's operating system.
    pub os: Os,
    /// The host's process that holds the guest's memory.
    pub machine: Pid,
    /// Cost of a VM exit and re-entry, cycles.
    pub exit: Cycle,
    /// State of ideal shadow paging, if it is used.
    pub shadows: Option<Shadows>,
}

impl Os {
    /// The system of a guest on a host, both just booted. `spec` gives the host's
    /// memory and the prices of both kernels, `placement` and `table` the guest's
    /// policies. An error names the wrong key and the expected values.
    pub fn virtualised(
        spec: &OsSpec,
        placement: &PlacementSpec,
        table: &PageTableSpec,
        machine: &VirtualSpec,
        frequency_ghz: f64,
        seed: u64,
    ) -> Result<Self, Error> {
        machine.check()?;
        let own = OsSpec {
            memory_gb: machine.memory_gb.unwrap_or(spec.memory_gb),
            kernel_reserved: 0.0,
            occupied: 0.0,
            fragmentation: machine.fragmentation,
            migration: None,
            swap: None,
            ..spec.clone()
        };
        let mut guest = Os::of(Role::Guest, &own, placement, table, frequency_ghz, seed)?;
        let mut host = Os::of(
            Role::Host,
            spec,
            &machine.placement,
            &machine.page_table,
            frequency_ghz,
            seed,
        )?;
        let said = |e: OsError| Error::keyed("virtual", e.to_string());
        let vm = host.spawn(false).map_err(said)?;
        let mut fx = Effects::default();
        let all = pagewalk_units::Backing::Anonymous;
        // Page tables of a guest lie above its memory, in a window of the same size.
        let bytes = 2 * (guest.kernel.memory().frames().end << 12);
        host.map(vm, VirtAddr(0), bytes, true, all, &mut fx)
            .map_err(said)?;
        let exit = (machine.exit_ns * frequency_ghz).round() as Cycle;
        guest.host = Some(Box::new(Host {
            os: host,
            machine: vm,
            exit,
            shadows: machine.shadow.then(Shadows::default),
        }));
        guest.back(&mut fx).map_err(said)?;
        Ok(guest)
    }

    /// The host backs the frames that the guest's kernel has started to use.
    pub(crate) fn back(&mut self, fx: &mut Effects) -> Result<(), OsError> {
        let Some(host) = &mut self.host else {
            return Ok(());
        };
        let used = self.kernel.take_used();
        let mut forget = false;
        for PutToUse { frame, frames, of } in used {
            forget |= host.back(frame << 12, frames << 12, of, fx)?;
        }
        if forget {
            self.forget_guest(fx);
        }
        Ok(())
    }

    /// Handles a host page fault: a walk found the guest-physical address `at`
    /// unmapped. Errors as for [`Os::fault`].
    pub fn host_fault(&mut self, at: GuestPhysAddr, fx: &mut Effects) -> Result<(), OsError> {
        let Some(host) = &mut self.host else {
            return Err(OsError::Bad(format!("there is no host to back {at}")));
        };
        if host.back(at.0 & !0xfff, 4096, GuestUse::Unknown, fx)? {
            self.forget_guest(fx);
        }
        self.shadow()
    }

    /// The host's table has changed, so the translations of all guest processes must be
    /// invalidated (INVEPT: Intel SDM vol. 3, 28.4.3.1).
    pub(crate) fn forget_guest(&mut self, fx: &mut Effects) {
        let asids: Vec<Asid> = self.alive_spaces().map(|s| s.asid).collect();
        let spaces = asids.into_iter().map(|asid| Invalidation::Space { asid });
        fx.invalidate.extend(spaces);
    }
}

impl Host {
    /// Backs the guest-physical range, whose first page the guest uses for `of`.
    /// Returns true if existing host mappings changed.
    fn back(
        &mut self,
        at: u64,
        bytes: u64,
        of: GuestUse,
        fx: &mut Effects,
    ) -> Result<bool, OsError> {
        let mut own = Effects::default();
        let (populated, faults) = self.os.untimed_faults();
        let entry = self.exit + self.os.kernel.prices.trap;
        let range = ForGuest {
            from: at,
            of,
            entry,
        };
        let done = self
            .os
            .touch_all(self.machine, at, at + bytes, Some(&range), &mut own);
        let s = &mut self.os.kernel.stats;
        // These are the guest's touches, not those of the simulator's set-up.
        let pages = s.populated_pages - populated;
        s.populated_pages = populated;
        let cycles = own.cycles + pages * entry;
        s.fault_cycles = faults + cycles;
        fx.cycles += cycles;
        self.changed(&own);
        done.map_err(|e| OsError::Host(Box::new(e)))?;
        Ok(!own.invalidate.is_empty())
    }

    /// The host's table has changed where `own` invalidates it.
    pub(crate) fn changed(&mut self, own: &Effects) {
        if let Some(shadows) = &mut self.shadows {
            shadows.note(&own.invalidate);
        }
    }
}

/// Accessors for tests and results.
impl Os {
    fn untimed_faults(&self) -> (u64, u64) {
        let s = &self.kernel.stats;
        (s.populated_pages, s.fault_cycles)
    }

    /// The host's counters. `None` without a host.
    pub fn host_stats(&self) -> Option<crate::OsStats> {
        self.host.as_ref().map(|h| h.os.stats())
    }

    /// True if the guest-physical address `at` is already backed.
    pub fn is_backed(&self, at: GuestPhysAddr) -> bool {
        self.host
            .as_ref()
            .and_then(|h| h.os.space(h.machine).ok())
            .is_some_and(|s| s.table.translate(VirtAddr(at.0)).is_some())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};

    use pagewalk_tables::{ElasticCuckooSpec, GuestUse, PageTableSpec, Purpose, RadixSpec, Want};
    use pagewalk_units::{Access, Asid, Backing, GuestPhysAddr, VirtAddr};

    use crate::choice::FrameChoice;
    use crate::khugepaged::KhugepagedSpec;
    use crate::memory::Memory;
    use crate::placement::{BuddySpec, PlacementSpec, ThpMode, ThpSizes, ThpSpec};
    use crate::spec::{FragmentationSpec, OsSpec};
    use crate::virtual_spec::VirtualSpec;
    use crate::{Effects, Os, Pid};

    /// Records all requests, and takes what the buddy allocator returns.
    struct Recorder(Arc<Mutex<Vec<Want>>>);

    impl FrameChoice for Recorder {
        fn take(&mut self, want: &Want, memory: &mut Memory) -> Option<u64> {
            self.0.lock().expect("nobody panics").push(*want);
            memory.take(want)
        }
    }

    const HEAP: u64 = 0x10_0000_0000;

    struct Guest {
        os: Os,
        wishes: Arc<Mutex<Vec<Want>>>,
        fx: Effects,
    }

    impl Guest {
        fn new(placement: &PlacementSpec, table: &PageTableSpec) -> Self {
            let spec = OsSpec::free(1);
            let machine = VirtualSpec {
                page_table: PageTableSpec::Radix(RadixSpec { levels: 4 }),
                placement: PlacementSpec::Buddy(BuddySpec {}),
                memory_gb: None,
                fragmentation: FragmentationSpec::None,
                exit_ns: 500.0,
                shadow: false,
            };
            let mut os = Os::virtualised(&spec, placement, table, &machine, 2.0, 1).expect("valid");
            let wishes = Arc::default();
            let host = os.host.as_mut().expect("there is one");
            let recorder = Recorder(Arc::clone(&wishes));
            host.os.kernel.choose_with(Box::new(recorder));
            Guest {
                os,
                wishes,
                fx: Effects::default(),
            }
        }
        fn spawn(&mut self) -> Pid {
            let pid = self.os.spawn(false).expect("a process");
            let (at, all) = (VirtAddr(HEAP), Backing::Anonymous);
            let done = self.os.map(pid, at, 4 << 20, true, all, &mut self.fx);
            done.expect("mmap");
            pid
        }
        fn write(&mut self, pid: Pid, page: u64) -> (Asid, u64) {
            let at = VirtAddr(HEAP + page * 4096);
            let done = self.os.fault(pid, at, Access::Write, &mut self.fx);
            done.expect("a write that is allowed");
            (self.os.asid(pid), at.0 >> 12)
        }
        fn wishes(&self) -> Vec<Want> {
            std::mem::take(&mut *self.wishes.lock().expect("nobody panics"))
        }
        /// Address space and number of each requested guest page. Each must lie where
        /// the guest's table maps it.
        fn pages(&self, wishes: &[Want]) -> BTreeSet<(Asid, u64)> {
            let mut pages = BTreeSet::new();
            for want in wishes {
                if let Purpose::Guest {
                    vpn,
                    of: GuestUse::Page { asid, vpn: of },
                } = want.purpose
                {
                    let space = self.os.alive_spaces().find(|s| s.asid == asid);
                    let at = VirtAddr(of << 12);
                    let t = space.and_then(|s| s.table.translate(at)).expect("mapped");
                    assert_eq!(vpn, t.frame + (of & (t.size.frames() - 1)));
                    assert!(pages.insert((asid, of)), "requested once");
                }
            }
            pages
        }
    }

    const RADIX: PageTableSpec = PageTableSpec::Radix(RadixSpec { levels: 4 });

    #[test]
    fn a_request_to_the_host_names_the_page_of_the_guest() {
        let mut w = Guest::new(&PlacementSpec::Buddy(BuddySpec {}), &RADIX);
        let (a, b) = (w.spawn(), w.spawn());
        let mut touched = BTreeSet::new();
        for i in 0..200 {
            let pid = if i % 3 == 0 { b } else { a };
            touched.insert(w.write(pid, i * 37 % 1024));
        }
        let wishes = w.wishes();
        assert_eq!(w.pages(&wishes), touched);
        // The guest's nodes by level: two roots, and two leaves each.
        let levels = |of: u8| {
            let node = |want: &&Want| matches!(want.purpose, Purpose::Guest { of: GuestUse::Node { level, .. }, .. } if level == of);
            wishes.iter().filter(node).count()
        };
        assert_eq!([levels(4), levels(3), levels(2), levels(1)], [2, 2, 2, 4]);
        // The host's own table is identified by the host's purposes.
        let own = |want: &&Want| matches!(want.purpose, Purpose::Node { .. });
        assert_eq!(
            wishes.iter().filter(own).count() + touched.len() + 10,
            wishes.len()
        );
        // A copy belongs to the written page of the writing process.
        let child = w.os.fork(a, &mut w.fx).expect("memory is plenty");
        w.wishes();
        let copied = w.write(child, 37);
        assert_eq!(w.pages(&w.wishes()), BTreeSet::from([copied]));
        // A page that only a walk has touched has an unknown use.
        let at = GuestPhysAddr(123_456 << 12);
        w.os.host_fault(at, &mut w.fx).expect("memory is plenty");
        let unknown = Purpose::Guest {
            vpn: 123_456,
            of: GuestUse::Unknown,
        };
        assert!(w.wishes().iter().any(|want| want.purpose == unknown));
    }

    #[test]
    fn each_small_page_of_a_large_one_is_named_and_ways_belong_to_a_table() {
        let thp = PlacementSpec::Thp(ThpSpec {
            mode: ThpMode::Always,
            giant: false,
            sizes: ThpSizes::default(),
            khugepaged: KhugepagedSpec::default(),
        });
        let ecpt = PageTableSpec::ElasticCuckoo(ElasticCuckooSpec::default());
        let mut w = Guest::new(&thp, &ecpt);
        let pid = w.spawn();
        let (asid, first) = w.write(pid, 0);
        let wishes = w.wishes();
        let expected = (first..first + 512).map(|vpn| (asid, vpn)).collect();
        assert_eq!(w.pages(&wishes), expected);
        let way = |want: &&Want| matches!(want.purpose, Purpose::Guest { of: GuestUse::Table { asid: whose }, .. } if whose == asid);
        let bytes = w.os.stats().page_table_bytes;
        assert_eq!(wishes.iter().filter(way).count() as u64, bytes / 4096);
    }
}
