//! khugepaged: the kernel thread that collapses regions of small pages into 2 MB pages
//! (Linux mm/khugepaged.c).
//!
//! The machine reports elapsed simulated time ([`Os::elapse`]). khugepaged then does
//! the work of that time, one region after the other: `scan` selects the next region,
//! `collapse` checks and replaces its pages.

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
    /// Counters of khugepaged.
    pub struct KhugepagedStats {
        passes: "passes", "Times that khugepaged woke up to scan pages_to_scan pages";
        full_scans: "scans", "Completed scans of all address spaces";
        pages_scanned: "pages", "4 KB pages of address space, mapped or not, scanned in passes; scans of `settled` are not counted";
        collapses: "regions", "2 MB regions collapsed to a 2 MB page, including those of `settled`";
        settled_collapses: "regions", "2 MB regions that `settled` collapsed before the warm-up and the measured part";
        exceeded_none: "regions", "Regions not collapsed because more than max_ptes_none pages were unmapped; counted at each scan";
        exceeded_shared: "regions", "Regions not collapsed because more than max_ptes_shared pages belong to several processes; counted at each scan";
        allocation_failures: "regions", "Regions not collapsed because no 2 MB block or no memory for the page-table entry was available; counted at each attempt";
        copied_bytes: "bytes", "Memory copied from small pages to 2 MB pages";
        zeroed_bytes: "bytes", "Memory zeroed in 2 MB pages where no small page was mapped; not included in os.zeroed_bytes";
        cycles: "cycles", "Time of khugepaged's work: waking up, scanning, compaction, copying, zeroing, page tables, shootdowns. Programs lose this time only with `core = \"stolen\"`";
        shootdowns: "interrupts", "Interrupts of cores whose program could use a page that was collapsed";
    }
}

/// khugepaged; see the module documentation.
pub struct Khugepaged {
    spec: KhugepagedSpec,
    /// Areas that may have huge pages.
    mode: ThpMode,
    /// Both sleep intervals, in cycles.
    scan_sleep: Cycle,
    alloc_sleep: Cycle,
    /// Simulated time since boot, and the time of the next step.
    now: Cycle,
    next: Cycle,
    scan: Scan,
    /// Counters.
    pub stats: KhugepagedStats,
}

impl Khugepaged {
    /// khugepaged of a machine of `ghz` that has just booted.
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

    /// Accounts for the time of a step or shootdown. Returns the cycles that the
    /// program loses, if it shares its core with khugepaged.
    fn takes(&mut self, cycles: Cycle) -> Cycle {
        self.stats.cycles += cycles;
        self.next = self.next.saturating_add(cycles);
        match self.spec.core {
            KhugepagedCore::Own => 0,
            KhugepagedCore::Stolen => cycles,
        }
    }

    /// Scans the next region or goes to sleep. An error ends the run.
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
                    // The first failed allocation of a pass causes a sleep, the second
                    // one ends the pass.
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
        // Time advances even if all prices are zero.
        fx.cycles += self.takes(own.cycles.max(1));
        self.next = self.next.saturating_add(sleep);
        done
    }
}

impl Os {
    /// Advances simulated time by `cycles`, in which khugepaged works. `fx.cycles` is
    /// the time taken from the current core. Each invalidation is a separate
    /// shootdown, whose cost [`Os::shot_down`] returns. Error: memory for page tables
    /// ran out in between, and the run cannot continue.
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

    /// With the option `settled`, collapses all regions that khugepaged would ever
    /// collapse in the current state. It takes no time, but adds to `fx.invalidate`.
    /// Error as for [`Os::elapse`].
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

    /// Runs an action of the host that may change its table.
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

    /// Simulated cycles until khugepaged of the guest or the host runs again. `None`
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

    /// The khugepaged that requested an invalidation. A guest's kernel names the
    /// region; its host cannot.
    fn daemon(&mut self, what: &Invalidation) -> Option<&mut Khugepaged> {
        match (what, &mut self.host) {
            (Invalidation::Space { .. }, Some(host)) => host.os.khugepaged.as_mut(),
            _ => self.khugepaged.as_mut(),
        }
    }

    /// True if the current core runs the khugepaged that requested this invalidation
    /// of [`Os::elapse`]. That core is then not interrupted.
    pub fn is_stolen(&mut self, what: &Invalidation) -> bool {
        let daemon = self.daemon(what);
        daemon.is_some_and(|d| d.spec.core == KhugepagedCore::Stolen)
    }

    /// Records that an invalidation of [`Os::elapse`] has interrupted `cores`. Returns
    /// the cycles taken from the current core, without the interrupts.
    pub fn shot_down(&mut self, what: &Invalidation, cores: u32) -> Cycle {
        let cycles = self.kernel.prices.shootdown(cores);
        self.daemon(what).map_or(0, |daemon| {
            daemon.stats.shootdowns += u64::from(cores);
            daemon.takes(cycles)
        })
    }

    /// Counters of khugepaged, if it runs.
    pub fn khugepaged_stats(&self) -> Option<KhugepagedStats> {
        self.khugepaged.as_ref().map(|d| d.stats)
    }
}
