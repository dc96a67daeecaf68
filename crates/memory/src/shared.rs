//! The shared level: last-level cache, directory and memory.

use pagewalk_stats::Tree;
use pagewalk_structures::StaleOutcomes;
use pagewalk_units::{Cycle, Error, LINE_SHIFT, PhysAddr};

use crate::cache_array::{CacheArray, DIRTY, PREFETCHED};
use crate::directory::{Directory, DirectoryResponse};
use crate::dram::Dram;
use crate::prefetch::Wanted;
use crate::private::join;
use crate::{Below, Done, Flush, Level, Report, Request, RequestKind, SharedSpec};

mod flush;
mod later;

use later::DeferredWarming;

/// L3, directory and DRAM.
///
/// The L3 is filled by lines from memory and by dirty lines that leave private caches. It is not
/// inclusive: a line that it evicts stays in the private caches. With one core there is no
/// directory. With several cores, a dirty line comes from the core that has written it, and a write
/// invalidates the line in all other cores. A line that is clean in other cores comes from the L3
/// or from memory.
#[derive(Clone, Debug)]
pub struct Shared {
    l3: CacheArray,
    dram: Dram,
    directory: Option<Directory>,
    remote_latency: Cycle,
    /// True if the cores have speculation engines.
    speculates: bool,
    reports_software_prefetches: bool,
    /// True if warming requests to the L3 are deferred.
    defers_warming: bool,
    /// The deferred requests.
    later: DeferredWarming,
}

impl Shared {
    /// Creates the empty shared level.
    ///
    /// # Errors
    /// An impossible geometry or memory. The message names the key.
    pub fn new(spec: &SharedSpec, cores: u8, frequency_ghz: f64) -> Result<Self, Error> {
        spec.check(cores)?;
        Ok(Shared {
            l3: CacheArray::new(&spec.l3, "memory.l3", Level::L3)?,
            dram: Dram::new(&spec.dram, frequency_ghz)?,
            directory: (cores > 1).then(|| Directory::new(cores)),
            remote_latency: spec.remote_latency,
            speculates: false,
            reports_software_prefetches: false,
            // The requests of one core come in order. Without a prefetcher, each changes only its
            // own set.
            defers_warming: cores == 1 && spec.l3.prefetcher.is_none(),
            later: DeferredWarming::default(),
        })
    }

    /// Marks the cores as having speculation engines. The counters of their requests are then
    /// reported, too.
    #[must_use]
    pub fn with_speculation(mut self) -> Self {
        self.speculates = true;
        self
    }

    /// Reports the accesses of software prefetches, too.
    #[must_use]
    pub fn with_software_prefetches(mut self) -> Self {
        self.reports_software_prefetches = true;
        self
    }

    /// Marks the L3's contents as stale after a fast-forward.
    pub fn mark_stale(&mut self) {
        self.drain_deferred();
        self.l3.mark_stale();
    }

    /// Lookups in the L3 whose outcome is uncertain because of stale contents.
    pub fn stale(&self) -> StaleOutcomes {
        self.l3.stale
    }

    /// Load-to-use of an L3 hit.
    pub fn l3_latency(&self) -> Cycle {
        self.l3.latency()
    }

    /// Moves the snoops that `core` must serve before its next access to `into`: (line, exclusive).
    pub fn take_snoops(&mut self, core: u8, into: &mut Vec<(PhysAddr, bool)>) {
        if let Some(d) = &mut self.directory {
            d.take_snoops(core, into);
        }
    }

    /// True if there are snoops for `core`. Cheap: one load and one comparison.
    #[inline]
    pub fn has_snoops(&self, core: u8) -> bool {
        self.directory.as_ref().is_some_and(|d| d.has_snoops(core))
    }

    /// The L3.
    #[cfg(test)]
    pub(crate) fn l3(&self) -> &CacheArray {
        &self.l3
    }

    /// The directory, with several cores.
    #[cfg(test)]
    pub(crate) fn directory(&self) -> Option<&Directory> {
        self.directory.as_ref()
    }

    /// The directory's response to a request: the state of the line in other cores. `counted`:
    /// false in functional warming.
    #[inline]
    fn access_directory(
        &mut self,
        line: u64,
        request: Request,
        counted: bool,
    ) -> DirectoryResponse {
        match &mut self.directory {
            None => DirectoryResponse::Free,
            Some(d) if request.kind == RequestKind::Store => d.write(line, request.core, counted),
            Some(d) => d.read(line, request.core, counted),
        }
    }

    /// Serves the request at the L3 itself.
    #[inline]
    fn lookup(&mut self, line: u64, request: Request, now: Cycle) -> Done {
        let done = match self.l3.find(line) {
            Some(at) => {
                let hit = self.l3.hit(at, request.kind, now);
                Done::new(hit.at, hit.level)
            }
            None => self.miss(line, request.kind, now),
        };
        if let Some(p) = &mut self.l3.prefetcher {
            let missed = std::mem::take(&mut self.l3.missed);
            let mut wanted = Wanted::new();
            if p.train(request.kind, line, request.pc, missed, &mut wanted) {
                self.prefetch(&wanted, now);
            }
        }
        done
    }

    #[inline(never)]
    fn prefetch(&mut self, wanted: &[u64], now: Cycle) {
        for &line in wanted {
            if self.l3.find(line).is_none() {
                let (ready, _) = self.dram.read(line, now + self.l3.latency());
                self.put(line, PREFETCHED, now, ready);
            }
        }
    }

    fn miss(&mut self, line: u64, kind: RequestKind, now: Cycle) -> Done {
        self.l3.count_miss(kind);
        self.l3.missed = true;
        self.l3.host_prefetch_fill(line);
        let (ready, queued, held);
        if kind == RequestKind::Prefetch {
            (ready, queued) = self.dram.read(line, now + self.l3.latency());
            held = 0;
        } else {
            let slot = self.l3.mshrs.admit(now);
            let waited = slot.start - now;
            self.l3.counts.mshr_wait_cycles += waited;
            let read;
            (read, queued) = self.dram.read(line, slot.start + self.l3.latency());
            ready = self.l3.mshrs.hold(slot, read);
            held = waited + (ready - read);
        }
        self.put(line, 0, now, ready);
        Done {
            at: ready,
            level: Level::Memory,
            held: u16::try_from(held).unwrap_or(u16::MAX),
            queued: u32::try_from(queued).unwrap_or(u32::MAX),
        }
    }

    /// Fills the L3. A dirty victim is written to memory.
    fn put(&mut self, line: u64, flags: u64, requested: Cycle, ready: Cycle) {
        let victim = self
            .l3
            .fill::<true>(line, flags, Level::Memory, requested, ready);
        if let Some(line) = victim.line()
            && victim.dirty()
        {
            self.l3.counts.writebacks += 1;
            self.dram.write(line, ready);
        }
    }

    /// Writes dirty data to the L3 at `now`.
    fn put_dirty(&mut self, line: u64, now: Cycle) {
        match self.l3.find(line) {
            Some(at) => {
                self.l3.counts.updates += 1;
                self.l3.set_flags(at, DIRTY);
            }
            None => self.put(line, DIRTY, now, now),
        }
    }
}

/// Warms the L3 by a request, or by a write-back if `written`. Calls `open` with each line that is
/// read from or written to memory, which opens its DRAM row.
#[inline(always)]
fn warm_l3(l3: &mut CacheArray, line: u64, written: bool, open: impl FnMut(u64)) {
    match l3.find(line) {
        Some(at) if written => l3.set_flags(at, DIRTY),
        Some(at) => l3.warm_hit(at),
        None => {
            l3.missed |= !written;
            warm_l3_miss(l3, line, if written { DIRTY } else { 0 }, open);
        }
    }
}

/// As [`warm_l3`], for a line that misses. It is read from memory, unless it is dirty.
#[inline(always)]
fn warm_l3_miss(l3: &mut CacheArray, line: u64, flags: u64, mut open: impl FnMut(u64)) {
    if flags & DIRTY == 0 {
        open(line);
    }
    let victim = l3.fill::<false>(line, flags, Level::Memory, 0, 0);
    if let Some(line) = victim.line()
        && victim.dirty()
    {
        open(line);
    }
}

impl Below for Shared {
    fn access(&mut self, request: Request, now: Cycle) -> Done {
        self.drain_deferred();
        let line = request.at.0 >> LINE_SHIFT;
        let store = request.kind == RequestKind::Store;
        let done = match self.access_directory(line, request, true) {
            DirectoryResponse::Free => self.lookup(line, request, now),
            DirectoryResponse::Invalidated => {
                let done = self.lookup(line, request, now);
                // The last acknowledgement of an invalidation may arrive after the data.
                Done {
                    at: done.at.max(now + self.remote_latency),
                    ..done
                }
            }
            DirectoryResponse::Dirty(ready) => {
                let at = now.max(ready) + self.remote_latency;
                if !store {
                    // The writer keeps a clean copy, and the L3 gets the data.
                    self.put_dirty(line, at);
                }
                Done::new(at, Level::Remote)
            }
            DirectoryResponse::Upgrade { others: true } => {
                Done::new(now + self.remote_latency, Level::Remote)
            }
            DirectoryResponse::Upgrade { others: false } => Done::new(now, Level::L1),
        };
        if store && let Some(d) = &mut self.directory {
            d.written(line, done.at);
        }
        done
    }

    fn write_back(&mut self, at: PhysAddr, core: u8, now: Cycle) {
        self.drain_deferred();
        let line = at.0 >> LINE_SHIFT;
        if let Some(d) = &mut self.directory {
            d.cleaned(line, core);
        }
        self.put_dirty(line, now);
    }

    fn dropped(&mut self, at: PhysAddr, core: u8) {
        if let Some(d) = &mut self.directory {
            d.dropped(at.0 >> LINE_SHIFT, core);
        }
    }

    fn delay(&self, at: PhysAddr, now: Cycle) -> Cycle {
        self.dram.delay(at.0 >> LINE_SHIFT, now + self.l3.latency())
    }

    fn warm(&mut self, request: Request) {
        let line = request.at.0 >> LINE_SHIFT;
        if self.defers_warming {
            self.defer(line, false);
            return;
        }
        match self.access_directory(line, request, false) {
            DirectoryResponse::Upgrade { .. } => return,
            DirectoryResponse::Dirty(_) => {
                if request.kind != RequestKind::Store {
                    warm_l3(&mut self.l3, line, true, |line| self.dram.warm(line));
                }
                return;
            }
            DirectoryResponse::Free | DirectoryResponse::Invalidated => {}
        }
        warm_l3(&mut self.l3, line, false, |line| self.dram.warm(line));
        if let Some(p) = &mut self.l3.prefetcher {
            let missed = std::mem::take(&mut self.l3.missed);
            let mut wanted = Wanted::new();
            p.train(request.kind, line, request.pc, missed, &mut wanted);
            for &line in &wanted {
                if self.l3.find(line).is_none() {
                    warm_l3_miss(&mut self.l3, line, PREFETCHED, |line| self.dram.warm(line));
                }
            }
        }
    }

    fn warm_write_back(&mut self, at: PhysAddr, core: u8) {
        let line = at.0 >> LINE_SHIFT;
        if self.defers_warming {
            self.defer(line, true);
            return;
        }
        if let Some(d) = &mut self.directory {
            d.cleaned(line, core);
        }
        warm_l3(&mut self.l3, line, true, |line| self.dram.warm(line));
    }

    fn flush(&mut self, at: PhysAddr, flush: Flush, now: Cycle) -> Cycle {
        self.flush_line::<true>(at.0 >> LINE_SHIFT, flush, now)
    }

    fn write_memory(&mut self, at: PhysAddr, core: u8, parts: u32, now: Cycle) -> Cycle {
        self.write_line::<true>(at.0 >> LINE_SHIFT, core, parts, now)
    }

    fn warm_flush(&mut self, at: PhysAddr, flush: Flush) {
        self.flush_line::<false>(at.0 >> LINE_SHIFT, flush, 0);
    }

    fn warm_write_memory(&mut self, at: PhysAddr, core: u8) {
        self.write_line::<false>(at.0 >> LINE_SHIFT, core, 1, 0);
    }

    #[inline]
    fn host_prefetch(&self, at: PhysAddr) {
        let line = at.0 >> LINE_SHIFT;
        self.l3.host_prefetch(line);
        if let Some(d) = &self.directory {
            d.host_prefetch(line);
        }
    }

    #[inline]
    fn host_prefetch_place(&self, at: PhysAddr) {
        self.l3.host_prefetch_place(at.0 >> LINE_SHIFT);
    }

    #[inline]
    fn host_prefetch_drop(&self, at: PhysAddr, dirty: bool) {
        let line = at.0 >> LINE_SHIFT;
        if dirty {
            self.l3.host_prefetch(line);
        }
        if let Some(d) = &self.directory {
            d.host_prefetch(line);
        }
    }

    fn coherent(&self) -> bool {
        self.directory.is_some()
    }

    fn warms_later(&self) -> bool {
        self.defers_warming
    }
}

impl Report for Shared {
    /// Adds `l3`, with several cores `l3.directory`, and `dram.<channel>`.
    fn report(&self, path: &str, tree: &mut Tree) {
        // Guesses of engines pass through the L3; their lines are fetched into the L2.
        tree.add_some(&join(path, "l3"), &self.l3.stats(), |n| {
            let requests = ["speculative_accesses", "speculative_misses"];
            let prefetches = self.reports_software_prefetches;
            (!n.starts_with("speculative") || self.speculates && requests.contains(&n))
                && (prefetches || !n.starts_with("software_prefetch"))
        });
        if let Some(d) = &self.directory {
            tree.add(&join(path, "l3.directory"), &d.stats());
        }
        self.dram.report(&join(path, "dram"), tree);
    }
}
