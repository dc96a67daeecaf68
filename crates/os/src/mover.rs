//! Kernel-initiated page migration (NUMA balancing, compaction) and swapping (reclaim).
//!
//! The causes, memory of different speed or memory pressure, are not simulated: the kernel selects
//! random 4 KB pages, several at a time, at a fixed rate. For each page it does what Linux does
//! (`migrate_pages`, `try_to_unmap`): copy or write out, change or remove the entry, and shoot down
//! TLBs. The machine reports elapsed time ([`Os::move_pages`]).

mod spec;

pub use self::spec::{MigrationSpec, SwapSpec};

use pagewalk_tables::{Purpose, Refusal};
use pagewalk_units::{Backing, Cycle, Page, PageSize, Rng, VirtAddr, rng};
use rand::RngExt;

use crate::kernel::Kernel;
use crate::khugepaged::KhugepagedCore;
use crate::region::RegionKind;
use crate::space::Space;
use crate::{Effects, Os, OsError};

pagewalk_stats::counters! {
    /// Counters of page migration. taken = moved + skipped + no_memory.
    pub struct MigrationStats {
        passes: "passes", "Times that migration took pages";
        taken: "pages", "4 KB pages taken at random from the mapped pages";
        moved: "pages", "Taken pages that were moved to another frame";
        skipped: "pages", "Taken pages that stayed: shared with another process, in shared memory, or in a reserved block";
        no_memory: "pages", "Taken pages that stayed because no other frame, or no memory for the page table, was free";
        copied_bytes: "bytes", "Memory copied by migration";
        cycles: "cycles", "Time of the migration's work, shootdowns included. Programs lose this time only with `core = \"stolen\"`";
        shootdowns: "interrupts", "Interrupts of cores whose program could use a page that was moved";
    }
}

pagewalk_stats::counters! {
    /// Counters of swapping. taken = swapped_out + skipped.
    pub struct SwapStats {
        passes: "passes", "Times that swapping took pages";
        taken: "pages", "4 KB pages taken at random from the mapped pages, or by MADV_PAGEOUT";
        swapped_out: "pages", "Taken pages that were swapped out, which freed their frame";
        skipped: "pages", "Taken pages that stayed: of files or of shared memory, shared with another process, or in a reserved block";
        swapped_in: "pages", "Pages swapped in by a fault, each with the device's latency";
        swap_in_cycles: "cycles", "Time that faults waited for the device, included in fault_cycles";
        cycles: "cycles", "Time of the swapping's work, shootdowns included. Programs lose this time only with `core = \"stolen\"`";
        shootdowns: "interrupts", "Interrupts of cores whose program could use a page that was swapped out";
    }
}

/// The kinds of page movers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageMover {
    /// Pages are migrated to another frame.
    Migration,
    /// Pages are swapped out.
    Swap,
}

impl PageMover {
    /// All kinds.
    pub const ALL: [PageMover; 2] = [PageMover::Migration, PageMover::Swap];
}

/// Schedule of a page mover, and its random choices.
struct Pace {
    interval: Cycle,
    pages: u32,
    core: KhugepagedCore,
    now: Cycle,
    next: Cycle,
    draws: Rng,
}

impl Pace {
    fn new(interval_us: f64, pages: u32, core: KhugepagedCore, ghz: f64, draws: Rng) -> Self {
        let interval = ((interval_us * 1e3 * ghz).round() as Cycle).max(1);
        Pace {
            interval,
            pages,
            core,
            now: 0,
            next: interval,
            draws,
        }
    }

    fn is_due(&self) -> bool {
        self.next <= self.now
    }

    /// Accounts for work of `cycles` and postpones the next pass. As with kernel threads (kcompactd,
    /// kswapd, khugepaged, kdamond), the interval starts at the end of a pass, so a long pass cannot
    /// trigger the next one.
    fn works(&mut self, cycles: Cycle) {
        self.next = self.next.saturating_add(cycles);
    }

    /// Cycles that work of `cycles` takes from the program.
    fn takes(&self, cycles: Cycle) -> Cycle {
        match self.core {
            KhugepagedCore::Own => 0,
            KhugepagedCore::Stolen => cycles,
        }
    }
}

struct Migration {
    pace: Pace,
    stats: MigrationStats,
}

struct Swap {
    pace: Pace,
    /// Latency from the fault to the page, cycles.
    latency: Cycle,
    stats: SwapStats,
}

/// The configured page movers.
#[derive(Default)]
pub struct Movers {
    migration: Option<Box<Migration>>,
    swap: Option<Box<Swap>>,
}

impl Movers {
    /// Page movers of a machine of `ghz` that has just booted.
    pub fn new(
        migration: Option<&MigrationSpec>,
        swap: Option<&SwapSpec>,
        ghz: f64,
        seed: u64,
    ) -> Self {
        Movers {
            migration: migration.map(|s| {
                let draws = rng(seed, "os.migration");
                Box::new(Migration {
                    pace: Pace::new(s.interval_us, s.pages, s.core, ghz, draws),
                    stats: MigrationStats::default(),
                })
            }),
            swap: swap.map(|s| {
                let draws = rng(seed, "os.swap");
                Box::new(Swap {
                    pace: Pace::new(s.interval_us, s.pages, s.core, ghz, draws),
                    latency: (s.latency_us * 1e3 * ghz).round() as Cycle,
                    stats: SwapStats::default(),
                })
            }),
        }
    }

    fn pace(&mut self, which: PageMover) -> Option<&mut Pace> {
        match which {
            PageMover::Migration => self.migration.as_mut().map(|m| &mut m.pace),
            PageMover::Swap => self.swap.as_mut().map(|s| &mut s.pace),
        }
    }

    /// Cycles until the next pass of any mover.
    #[inline]
    pub fn until(&self) -> Option<Cycle> {
        let migration = self.migration.as_ref().map(|m| &m.pace);
        let swap = self.swap.as_ref().map(|s| &s.pace);
        let paces = migration.into_iter().chain(swap);
        paces.map(|p| p.next.saturating_sub(p.now)).min()
    }

    /// True if pages can be swapped out.
    pub fn swaps(&self) -> bool {
        self.swap.is_some()
    }

    /// Counts a page that was to be swapped out.
    pub fn count_swapped(&mut self, fate: &Fate) {
        if let Some(swap) = &mut self.swap {
            swap.stats.taken += 1;
            match fate {
                Fate::Done => swap.stats.swapped_out += 1,
                Fate::Left | Fate::NoMemory => swap.stats.skipped += 1,
            }
        }
    }

    /// Reads `pages` pages from the device on a fault. Returns the latency.
    pub fn swap_in(&mut self, pages: u64) -> Cycle {
        let Some(swap) = &mut self.swap else { return 0 };
        let cycles = pages * swap.latency;
        swap.stats.swapped_in += pages;
        swap.stats.swap_in_cycles += cycles;
        cycles
    }
}

/// A uniformly random 4 KB page of an address space, if it has any.
fn any_page(space: &Space, draws: &mut Rng) -> Option<Page<VirtAddr>> {
    let pages = space.mapped[PageSize::K4.index()];
    if pages == 0 {
        return None;
    }
    let mut left = draws.random_range(0..pages);
    let small = space
        .regions
        .iter()
        .filter(|(_, r)| r.kind == RegionKind::Small);
    for (key, region) in small {
        let count = u64::from(region.count);
        if left >= count {
            left -= count;
            continue;
        }
        let i = (0..512).filter(|&i| region.has(i)).nth(left as usize)?;
        return Some(VirtAddr(key << 21 | i << 12).page(PageSize::K4));
    }
    None
}

/// True if a page belongs to a single process and can lie in any frame.
fn is_free_to_go(space: &Space, k: &Kernel, page: Page<VirtAddr>, frame: u64) -> bool {
    let reserved = |key| space.regions.get(key).is_some_and(|r| r.reserved.is_some());
    let area = space.vmas.find(page.base.0);
    area.is_some_and(|v| !v.is_shared()) && !k.is_shared(frame, 0) && !reserved(page.base.0 >> 21)
}

/// Outcome for a selected page.
pub(crate) enum Fate {
    Done,
    Left,
    NoMemory,
}

/// Migrates a page to another frame.
fn migrate(
    space: &mut Space,
    k: &mut Kernel,
    page: Page<VirtAddr>,
    fx: &mut Effects,
) -> Result<Fate, Refusal> {
    let Some(mapped) = space.table.translate(page.base) else {
        return Ok(Fate::Left);
    };
    if !is_free_to_go(space, k, page, mapped.frame) {
        return Ok(Fate::Left);
    }
    let vpn = page.base.0 >> 12;
    let backing = space.vmas.find(page.base.0).map(|v| v.backing);
    let purpose = match backing {
        Some(Backing::File) => Purpose::File { vpn },
        _ => Purpose::Anonymous { vpn },
    };
    let Ok(frame) = k.frame(space.want(PageSize::K4, purpose)) else {
        return Ok(Fate::NoMemory);
    };
    let (old, flags) = space.unmap_page(k, page, fx);
    if space.map_page(k, page, frame, flags, fx).is_err() {
        // The nodes that it needs have just been freed.
        space.map_page(k, page, old, flags, fx)?;
        k.put(frame, 0);
        return Ok(Fate::NoMemory);
    }
    k.put(old, 0);
    fx.cycles += k.prices.copy(4096);
    space.invalidate_page(k, page, fx);
    Ok(Fate::Done)
}

/// Swaps a page out.
pub(crate) fn swap_out(
    space: &mut Space,
    k: &mut Kernel,
    page: Page<VirtAddr>,
    fx: &mut Effects,
) -> Fate {
    let anonymous = |b| matches!(b, Backing::Anonymous | Backing::Stack);
    let area = space.vmas.find(page.base.0);
    let mapped = space.table.translate(page.base);
    let Some(mapped) = mapped.filter(|_| area.is_some_and(|v| anonymous(v.backing))) else {
        return Fate::Left;
    };
    if !is_free_to_go(space, k, page, mapped.frame) {
        return Fate::Left;
    }
    let (frame, _) = space.unmap_page(k, page, fx);
    k.put(frame, 0);
    space.swapped.insert(page.base.0 >> 12);
    space.invalidate_page(k, page, fx);
    Fate::Done
}

impl Os {
    /// Advances simulated time by `cycles`. If a pass of `which` is due, it runs once. `fx.cycles` is
    /// the time taken from the current core. Each invalidation is a shootdown, which must be reported
    /// to [`Os::interrupted_by`], because it is part of the work. Another pass may then be due
    /// ([`Os::mover_is_due`]). In a virtual machine the host's kernel moves pages. Error: memory for
    /// page tables ran out in between, and the run cannot continue.
    pub fn move_pages(
        &mut self,
        which: PageMover,
        cycles: Cycle,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        if self.movers().pace(which).is_none() {
            return Ok(());
        }
        self.of_host(fx, |host, own| host.move_pages(which, cycles, own))?;
        let mut movers = std::mem::take(&mut self.movers);
        let mut done = Ok(());
        if let Some(pace) = movers.pace(which) {
            pace.now = pace.now.saturating_add(cycles);
        }
        if movers.pace(which).is_some_and(|p| p.is_due()) {
            done = self.pass(&mut movers, which, fx);
        }
        self.movers = movers;
        done?;
        self.back(fx)?;
        self.shadow()
    }

    /// One pass of a page mover.
    fn pass(
        &mut self,
        movers: &mut Movers,
        which: PageMover,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        let mut own = Effects::default();
        own.cycles += self.kernel.prices.context_switch;
        let pages = movers.pace(which).map_or(0, |p| p.pages);
        for _ in 0..pages {
            self.take_a_page(movers, which, &mut own)?;
        }
        fx.invalidate.append(&mut own.invalidate);
        match which {
            PageMover::Migration => {
                let Some(m) = &mut movers.migration else {
                    return Ok(());
                };
                m.stats.passes += 1;
                m.stats.cycles += own.cycles;
            }
            PageMover::Swap => {
                let Some(s) = &mut movers.swap else {
                    return Ok(());
                };
                s.stats.passes += 1;
                s.stats.cycles += own.cycles;
            }
        }
        if let Some(pace) = movers.pace(which) {
            fx.cycles += pace.takes(own.cycles);
            pace.works(own.cycles);
            pace.next = pace.next.saturating_add(pace.interval);
        }
        Ok(())
    }

    fn take_a_page(
        &mut self,
        movers: &mut Movers,
        which: PageMover,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        let Some(pace) = movers.pace(which) else {
            return Ok(());
        };
        let alive: Vec<usize> = (self.spaces.iter().enumerate())
            .filter_map(|(i, s)| s.is_some().then_some(i))
            .collect();
        if alive.is_empty() {
            return Ok(());
        }
        let chosen = alive[pace.draws.random_range(0..alive.len())];
        let Some(space) = &mut self.spaces[chosen] else {
            return Ok(());
        };
        let Some(page) = any_page(space, &mut pace.draws) else {
            return Ok(());
        };
        let k = &mut self.kernel;
        fx.cycles += k.prices.scan(1);
        match which {
            PageMover::Migration => {
                let fate = migrate(space, k, page, fx).map_err(|refusal| self.stuck(refusal))?;
                if let Some(m) = &mut movers.migration {
                    m.stats.taken += 1;
                    match fate {
                        Fate::Done => {
                            m.stats.moved += 1;
                            m.stats.copied_bytes += 4096;
                        }
                        Fate::Left => m.stats.skipped += 1,
                        Fate::NoMemory => m.stats.no_memory += 1,
                    }
                }
            }
            PageMover::Swap => {
                let fate = swap_out(space, k, page, fx);
                movers.count_swapped(&fate);
            }
        }
        Ok(())
    }

    /// The page movers of the machine's memory: the host's in a virtual machine.
    fn movers(&mut self) -> &mut Movers {
        match &mut self.host {
            Some(host) => &mut host.os.movers,
            None => &mut self.movers,
        }
    }

    /// True if a pass of `which` is due.
    pub fn mover_is_due(&mut self, which: PageMover) -> bool {
        self.movers().pace(which).is_some_and(|p| p.is_due())
    }

    /// True if the current core runs `which`. That core is then not interrupted.
    pub fn mover_is_stolen(&mut self, which: PageMover) -> bool {
        let pace = self.movers().pace(which);
        pace.is_some_and(|p| p.core == KhugepagedCore::Stolen)
    }

    /// Records that an invalidation of [`Os::move_pages`] has interrupted `cores`. Returns the cycles
    /// taken from the current core, without the interrupts and the kernel's `other` work for it.
    pub fn interrupted_by(&mut self, which: PageMover, cores: u32, other: Cycle) -> Cycle {
        let cycles = self.kernel.prices.shootdown(cores);
        let answer = self.kernel.prices.shootdown_remote;
        let movers = self.movers();
        match which {
            PageMover::Migration => {
                if let Some(m) = &mut movers.migration {
                    m.stats.shootdowns += u64::from(cores);
                    m.stats.cycles += cycles;
                }
            }
            PageMover::Swap => {
                if let Some(s) = &mut movers.swap {
                    s.stats.shootdowns += u64::from(cores);
                    s.stats.cycles += cycles;
                }
            }
        }
        let Some(pace) = movers.pace(which) else {
            return 0;
        };
        // The initiator waits until all cores have acknowledged.
        let waits = if cores > 0 { cycles.max(answer) } else { 0 };
        pace.works(waits + other);
        pace.takes(cycles)
    }

    /// Simulated cycles until the next kernel thread runs: khugepaged, migration or swapping, of the
    /// guest or the host. `None` without one.
    #[inline]
    pub fn until_kernel_thread(&self) -> Option<Cycle> {
        let host = self.host.as_ref().and_then(|h| h.os.movers.until());
        let threads = [self.until_khugepaged(), self.movers.until(), host];
        threads.into_iter().flatten().min()
    }

    /// Counters of the configured page movers.
    pub fn mover_stats(&self) -> (Option<MigrationStats>, Option<SwapStats>) {
        let m = &self.movers;
        (
            m.migration.as_ref().map(|m| m.stats),
            m.swap.as_ref().map(|s| s.stats),
        )
    }
}
