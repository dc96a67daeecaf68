//! khugepaged: the kernel thread that makes 2 MB pages of regions that got small
//! ones at their first touch (Linux mm/khugepaged.c).
//!
//! The machine says how much simulated time has gone by ([`Os::elapse`]), and
//! khugepaged does what it does in it, one region after the other: `scan` says
//! which comes next, `collapse` looks at it and exchanges its pages.

mod collapse;
mod scan;
mod spec;

pub use self::spec::{KhugepagedCore, KhugepagedSpec};

use pagewalk_tables::Invalidation;
use pagewalk_units::Cycle;

use self::collapse::CollapseOutcome;
use self::scan::Scan;
use crate::placement::ThpMode;
use crate::{Effects, Os, OsError};

pagewalk_stats::counters! {
    /// What khugepaged counts.
    pub struct KhugepagedStats {
        passes: "passes", "Times that khugepaged woke up to scan pages_to_scan pages";
        full_scans: "scans", "Times that it had been through all address spaces";
        pages_scanned: "pages", "4 KB pages of address space, mapped or not, that its passes went through; those of `settled` are not among them";
        collapses: "regions", "2 MB regions that became a 2 MB page, those of `settled` included";
        settled_collapses: "regions", "Those that `settled` collapsed before the warm-up and the measured part";
        exceeded_none: "regions", "Regions that stayed small because more pages than max_ptes_none were not mapped; counted at each look";
        exceeded_shared: "regions", "Regions that stayed small because more pages than max_ptes_shared belong to several processes; counted at each look";
        allocation_failures: "regions", "Regions that stayed small because no 2 MB block was to be had, or no memory for its page-table entry; counted at each attempt";
        copied_bytes: "bytes", "Memory copied from small pages to 2 MB pages";
        zeroed_bytes: "bytes", "Memory zeroed in 2 MB pages where no small page was mapped; not among os.zeroed_bytes";
        cycles: "cycles", "Time that it worked: waking up, scanning, moving frames, copying, zeroing, page tables, shootdowns. Only with `core = \"stolen\"` it is taken from programs";
        shootdowns: "interrupts", "Times that a core was interrupted because a page that its program could use was collapsed";
    }
}

/// See the module.
pub struct Khugepaged {
    spec: KhugepagedSpec,
    /// Which areas may have huge pages.
    mode: ThpMode,
    /// The two sleeps, in cycles.
    scan_sleep: Cycle,
    alloc_sleep: Cycle,
    /// Simulated time since boot, and when it goes on.
    now: Cycle,
    next: Cycle,
    scan: Scan,
    pub stats: KhugepagedStats,
}

impl Khugepaged {
    /// Of a machine of `ghz` that has just booted.
    pub fn new(spec: KhugepagedSpec, mode: ThpMode, ghz: f64) -> Self {
        let cycles = |ms: u32| (f64::from(ms) * 1e6 * ghz).round() as Cycle;
        Khugepaged {
            spec,
            mode,
            scan_sleep: cycles(spec.scan_sleep_millisecs),
            alloc_sleep: cycles(spec.alloc_sleep_millisecs),
            now: 0,
            next: cycles(spec.scan_sleep_millisecs),
            scan: Scan::default(),
            stats: KhugepagedStats::default(),
        }
    }

    /// Time that a step or a shootdown took: khugepaged is busy for as long, and
    /// the program as well if it shares a core with it.
    fn takes(&mut self, cycles: Cycle) -> Cycle {
        self.stats.cycles += cycles;
        self.next = self.next.saturating_add(cycles);
        match self.spec.core {
            KhugepagedCore::Own => 0,
            KhugepagedCore::Stolen => cycles,
        }
    }

    /// Looks at the next region, or goes to sleep. With an error the run is over.
    fn step(&mut self, os: &mut Os, fx: &mut Effects) -> Result<(), OsError> {
        let mut own = Effects::default();
        if self.scan.begins() {
            self.stats.passes += 1;
            own.cycles += os.kernel.prices.context_switch;
        }
        let mut sleep = 0;
        let mut done = Ok(());
        match self.next_region(os) {
            None => {
                self.scan.end_pass();
                sleep = self.scan_sleep;
            }
            Some((space, key)) => {
                match self.look_at(os, space, key, &mut own) {
                    Ok(CollapseOutcome::Collapsed) => self.scan.leave_space(),
                    // The first failure of a pass waits, the second one ends it.
                    Ok(CollapseOutcome::NoBlock) => {
                        let second = self.scan.failed_twice();
                        if second {
                            self.scan.end_pass();
                        }
                        sleep = if second {
                            self.scan_sleep
                        } else {
                            self.alloc_sleep
                        };
                    }
                    Ok(CollapseOutcome::Nothing) => {}
                    Err(e) => done = Err(e),
                }
            }
        }
        fx.invalidate.append(&mut own.invalidate);
        // Without prices, too, time goes on.
        fx.cycles += self.takes(own.cycles.max(1));
        self.next = self.next.saturating_add(sleep);
        done
    }
}

impl Os {
    /// Simulated time goes on by `cycles`, in which khugepaged does its work.
    /// `fx.cycles` is what it takes from the core whose turn it is; each request to
    /// forget is a shootdown of its own, and what that costs is asked of
    /// [`Os::shot_down`]. Error: memory for page tables ran out in between, and
    /// the run cannot go on.
    pub fn elapse(&mut self, cycles: Cycle, fx: &mut Effects) -> Result<(), OsError> {
        self.of_host(fx, |host, own| host.elapse(cycles, own))?;
        let Some(mut daemon) = self.khugepaged.take() else {
            return self.shadow();
        };
        daemon.now = daemon.now.saturating_add(cycles);
        let mut done = Ok(());
        while daemon.next <= daemon.now && done.is_ok() {
            done = daemon.step(self, fx);
        }
        self.khugepaged = Some(daemon);
        done.and_then(|()| self.shadow())
    }

    /// Collapses all that khugepaged would ever collapse as things are, where it is
    /// to be `settled`. Takes no time; `fx.invalidate` grows. Error as [`Os::elapse`].
    pub fn settle(&mut self, fx: &mut Effects) -> Result<(), OsError> {
        self.of_host(fx, |host, own| host.settle(own))?;
        let Some(mut daemon) = self.khugepaged.take() else {
            return self.shadow();
        };
        let done = if daemon.spec.settled {
            daemon.settle(self, fx)
        } else {
            Ok(())
        };
        self.khugepaged = Some(daemon);
        done.and_then(|()| self.shadow())
    }

    /// Has the host do something that may change its table.
    pub(crate) fn of_host(
        &mut self,
        fx: &mut Effects,
        action: impl FnOnce(&mut Os, &mut Effects) -> Result<(), OsError>,
    ) -> Result<(), OsError> {
        let Some(host) = &mut self.host else {
            return Ok(());
        };
        let mut own = Effects::default();
        let done = action(&mut host.os, &mut own);
        fx.cycles += own.cycles;
        host.changed(&own);
        if !own.invalidate.is_empty() {
            self.forget_guest(fx);
        }
        done.map_err(|e| OsError::Host(Box::new(e)))
    }

    /// Cycles of simulated time until khugepaged, of guest or host, goes on; `None`
    /// without one.
    #[inline]
    pub fn until_khugepaged(&self) -> Option<Cycle> {
        let own = self
            .khugepaged
            .as_ref()
            .map(|d| d.next.saturating_sub(d.now));
        let host = self.host.as_ref().and_then(|h| h.os.until_khugepaged());
        match (own, host) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Whose request it is to forget `what`: a guest's kernel names the region, and
    /// its host cannot.
    fn daemon(&mut self, what: &Invalidation) -> Option<&mut Khugepaged> {
        match (what, &mut self.host) {
            (Invalidation::Space { .. }, Some(host)) => host.os.khugepaged.as_mut(),
            _ => self.khugepaged.as_mut(),
        }
    }

    /// Whether the core whose turn it is does the work of which the request of
    /// [`Os::elapse`] to forget `what` is a part: then it is not interrupted.
    pub fn is_stolen(&mut self, what: &Invalidation) -> bool {
        let daemon = self.daemon(what);
        daemon.is_some_and(|d| d.spec.core == KhugepagedCore::Stolen)
    }

    /// The request of [`Os::elapse`] to forget `what` has interrupted `cores`: what
    /// it takes from the core whose turn it is, beside the interrupts.
    pub fn shot_down(&mut self, what: &Invalidation, cores: u32) -> Cycle {
        let cycles = self.kernel.prices.shootdown(cores);
        self.daemon(what).map_or(0, |daemon| {
            daemon.stats.shootdowns += u64::from(cores);
            daemon.takes(cycles)
        })
    }

    /// What khugepaged has counted, if there is one.
    pub fn khugepaged_stats(&self) -> Option<KhugepagedStats> {
        self.khugepaged.as_ref().map(|d| d.stats)
    }
}
