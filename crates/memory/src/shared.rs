//! The shared levels: caches, directory and memory.

use pagewalk_stats::Tree;
use pagewalk_structures::StaleOutcomes;
use pagewalk_units::{Cycle, Error, LINE_SHIFT, PhysAddr};

use crate::cache_array::{CacheArray, DIRTY, PREFETCHED, Victim};
use crate::directory::{Directory, DirectoryResponse};
use crate::dram::Dram;
use crate::levels::Levels;
use crate::prefetch::Wanted;
use crate::private::join;
use crate::{Below, Done, Flush, Level, Report, Request, RequestKind, SharedSpec};

mod flush;
mod later;
mod tenants;

use later::DeferredWarming;
use tenants::Tenants;

/// Shared caches, directory and DRAM.
///
/// A shared cache is filled by lines from behind it and by dirty lines that leave the level above.
/// It is not inclusive: a line that it evicts stays in the levels above. With one core there is no
/// directory. With several cores, the first shared level asks it about each request. A dirty line
/// comes from the core that has written it, and a write invalidates the line in all other cores. A
/// line that is clean in other cores comes from the shared caches or from memory.
#[derive(Clone, Debug)]
pub struct Shared {
    levels: Levels,
    dram: Dram,
    directory: Option<Directory>,
    remote_latency: Cycle,
    /// True if the cores have speculation engines.
    speculates: bool,
    reports_software_prefetches: bool,
    /// True if warming requests are deferred.
    defers_warming: bool,
    /// The deferred requests.
    later: DeferredWarming,
    frequency_ghz: f64,
    /// Other tenants that fill the third level, if there are any.
    tenants: Option<Box<Tenants>>,
}

impl Shared {
    /// Creates the empty shared levels.
    ///
    /// # Errors
    /// An impossible geometry or memory. The message names the key.
    pub fn new(spec: &SharedSpec, cores: u8, frequency_ghz: f64) -> Result<Self, Error> {
        spec.check(cores)?;
        let levels = spec.levels().map(|(level, cache)| {
            let name = format!("memory.{}", level.name());
            CacheArray::new(cache, &name, level)
        });
        let levels = levels.collect::<Result<Vec<_>, Error>>()?;
        Ok(Shared {
            // The requests of one core come in order. Without a prefetcher, each changes only its
            // own set of each level.
            defers_warming: cores == 1 && levels.iter().all(|c| c.prefetcher.is_none()),
            levels: Levels::new(levels).expect("it was checked"),
            dram: Dram::new(&spec.dram, frequency_ghz)?,
            directory: (cores > 1).then(|| Directory::new(cores)),
            remote_latency: spec.remote_latency,
            speculates: false,
            reports_software_prefetches: false,
            later: DeferredWarming::default(),
            frequency_ghz,
            tenants: None,
        })
    }

    /// Adds the requests of other tenants of the host, if the configuration has any.
    #[must_use]
    pub fn with_background(mut self, spec: &SharedSpec, seed: u64) -> Self {
        if let Some(background) = spec.background {
            self.dram.set_background(background.bandwidth_gbs, seed);
        }
        self.tenants = self.tenants(spec, seed);
        // Their fills of a set come between the requests of different times.
        self.defers_warming &= self.tenants.is_none();
        self
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

    /// Marks the contents of the caches as stale after a fast-forward.
    pub fn mark_stale(&mut self) {
        self.drain_deferred();
        self.levels.iter_mut().for_each(CacheArray::mark_stale);
    }

    /// Lookups whose outcome is uncertain because of stale contents, by the name of the cache.
    pub fn stale(&self) -> impl Iterator<Item = (&'static str, StaleOutcomes)> {
        let caches = self.levels.iter();
        caches.map(|cache| (cache.level().name(), cache.stale))
    }

    /// Load-to-use of a hit in the last level.
    fn last_latency(&self) -> Cycle {
        self.levels.last().latency()
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

    /// The caches, nearest first.
    #[cfg(test)]
    pub(crate) fn levels(&self) -> impl Iterator<Item = &CacheArray> {
        self.levels.iter()
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

    /// Serves the request at level `n`; `NEAR`: 0.
    #[inline]
    fn lookup<const NEAR: bool>(
        &mut self,
        n: usize,
        line: u64,
        request: &Request,
        now: Cycle,
    ) -> Done {
        let n = if NEAR { 0 } else { n };
        let cache = &mut self.levels[n];
        let done = match cache.find(line) {
            Some(at) => {
                let hit = cache.hit(at, request.kind, now);
                Done::new(hit.at, hit.level)
            }
            None => self.miss::<NEAR>(n, line, request, now),
        };
        let cache = &mut self.levels[n];
        if let Some(p) = &mut cache.prefetcher {
            let missed = std::mem::take(&mut cache.missed);
            let mut wanted = Wanted::new();
            if p.train(request.kind, line, request.pc, missed, &mut wanted) {
                self.prefetch::<NEAR>(n, &wanted, request, now);
            }
        }
        done
    }

    #[inline(never)]
    fn prefetch<const NEAR: bool>(
        &mut self,
        n: usize,
        wanted: &[u64],
        cause: &Request,
        now: Cycle,
    ) {
        let n = if NEAR { 0 } else { n };
        for &line in wanted {
            if n == 0 {
                self.serve_tenants(line, now);
            }
            if self.levels[n].find(line).is_none() {
                let request = Request {
                    at: PhysAddr(line << LINE_SHIFT),
                    kind: RequestKind::Prefetch,
                    ..*cause
                };
                let done = self.read_behind(n, line, &request, now);
                self.put::<NEAR>(n, line, PREFETCHED, done.level, now, done.at);
            }
        }
    }

    #[inline(always)]
    fn miss<const NEAR: bool>(
        &mut self,
        n: usize,
        line: u64,
        request: &Request,
        now: Cycle,
    ) -> Done {
        let n = if NEAR { 0 } else { n };
        let cache = &mut self.levels[n];
        cache.count_miss(request.kind);
        cache.missed = true;
        cache.host_prefetch_fill(line);
        let mut done;
        if request.kind == RequestKind::Prefetch {
            done = self.read_behind(n, line, request, now);
        } else {
            let slot = cache.mshrs.admit(now);
            let waited = slot.start - now;
            cache.counts.mshr_wait_cycles += waited;
            done = self.read_behind(n, line, request, slot.start);
            let at = self.levels[n].mshrs.hold(slot, done.at);
            let held = waited + (at - done.at) + u64::from(done.held);
            done.held = u16::try_from(held).unwrap_or(u16::MAX);
            done.at = at;
        }
        self.put::<NEAR>(n, line, 0, done.level, now, done.at);
        done
    }

    /// Serves a miss of level `n` by the next level, or by memory.
    #[inline(always)]
    fn read_behind(&mut self, n: usize, line: u64, request: &Request, now: Cycle) -> Done {
        if n + 1 < self.levels.len() {
            return self.lookup_further(n + 1, line, request, now);
        }
        let (at, queued) = self.dram.read(line, now + self.levels[n].latency());
        Done {
            at,
            level: Level::Memory,
            missed: false,
            held: 0,
            queued: u32::try_from(queued).unwrap_or(u32::MAX),
        }
    }

    #[inline(never)]
    fn lookup_further(&mut self, n: usize, line: u64, request: &Request, now: Cycle) -> Done {
        self.lookup::<false>(n, line, request, now)
    }

    /// Fills level `n`. A dirty victim is written to the next level, or to memory.
    fn put<const NEAR: bool>(
        &mut self,
        n: usize,
        line: u64,
        flags: u64,
        from: Level,
        requested: Cycle,
        ready: Cycle,
    ) {
        let n = if NEAR { 0 } else { n };
        let victim = self.levels[n].fill::<true>(line, flags, from, requested, ready);
        self.write_victim::<NEAR>(n, victim, ready);
    }

    /// Writes a dirty victim of level `n` to the next level, or to memory.
    #[inline(always)]
    fn write_victim<const NEAR: bool>(&mut self, n: usize, victim: Victim, now: Cycle) {
        let n = if NEAR { 0 } else { n };
        if let Some(line) = victim.line()
            && victim.dirty()
        {
            self.levels[n].counts.writebacks += 1;
            if n + 1 < self.levels.len() {
                self.put_dirty::<false>(n + 1, line, now);
            } else {
                self.dram.write(line, now);
            }
        }
    }

    /// Writes dirty data to level `n` at `now`.
    fn put_dirty<const NEAR: bool>(&mut self, n: usize, line: u64, now: Cycle) {
        let n = if NEAR { 0 } else { n };
        let cache = &mut self.levels[n];
        match cache.find(line) {
            Some(at) => {
                cache.counts.updates += 1;
                cache.set_flags(at, DIRTY);
            }
            None => self.put::<NEAR>(n, line, DIRTY, Level::Memory, now, now),
        }
    }
}

/// Warms `cache` and the levels behind it by a request. Calls `open` with each line that is read
/// from or written to memory, which opens its DRAM row.
#[inline(always)]
fn warm_levels<F: FnMut(u64)>(
    (cache, behind): (&mut CacheArray, &mut [CacheArray]),
    line: u64,
    request: &Request,
    open: &mut F,
) {
    match cache.find(line) {
        Some(at) => cache.warm_hit(at),
        None => {
            cache.missed = true;
            warm_miss((cache, behind), line, 0, request, open);
        }
    }
    if let Some(p) = &mut cache.prefetcher {
        let missed = std::mem::take(&mut cache.missed);
        let mut wanted = Wanted::new();
        p.train(request.kind, line, request.pc, missed, &mut wanted);
        for &line in &wanted {
            if cache.find(line).is_none() {
                let request = Request {
                    at: PhysAddr(line << LINE_SHIFT),
                    kind: RequestKind::Prefetch,
                    ..*request
                };
                warm_miss((cache, behind), line, PREFETCHED, &request, open);
            }
        }
    }
}

/// As [`warm_levels`], for a line that misses `cache`.
#[inline(always)]
fn warm_miss<F: FnMut(u64)>(
    (cache, behind): (&mut CacheArray, &mut [CacheArray]),
    line: u64,
    flags: u64,
    request: &Request,
    open: &mut F,
) {
    if behind.is_empty() {
        open(line);
    } else {
        warm_behind(behind, line, request, open);
    }
    warm_fill((cache, behind), line, flags, open);
}

#[inline(never)]
fn warm_behind<F: FnMut(u64)>(
    levels: &mut [CacheArray],
    line: u64,
    request: &Request,
    open: &mut F,
) {
    if let Some(levels) = levels.split_first_mut() {
        warm_levels(levels, line, request, open);
    }
}

/// Fills `cache` without time. A dirty victim is written to the levels behind.
#[inline(always)]
fn warm_fill<F: FnMut(u64)>(
    (cache, behind): (&mut CacheArray, &mut [CacheArray]),
    line: u64,
    flags: u64,
    open: &mut F,
) {
    let victim = cache.fill::<false>(line, flags, Level::Memory, 0, 0);
    if let Some(line) = victim.line()
        && victim.dirty()
    {
        if behind.is_empty() {
            open(line);
        } else {
            warm_written_behind(behind, line, open);
        }
    }
}

/// Warms `cache` and the levels behind it by a write-back.
#[inline(always)]
fn warm_written<F: FnMut(u64)>(
    (cache, behind): (&mut CacheArray, &mut [CacheArray]),
    line: u64,
    open: &mut F,
) {
    match cache.find(line) {
        Some(at) => cache.set_flags(at, DIRTY),
        None => warm_fill((cache, behind), line, DIRTY, open),
    }
}

#[inline(never)]
fn warm_written_behind<F: FnMut(u64)>(levels: &mut [CacheArray], line: u64, open: &mut F) {
    if let Some(levels) = levels.split_first_mut() {
        warm_written(levels, line, open);
    }
}

impl Below for Shared {
    fn access(&mut self, request: Request, now: Cycle) -> Done {
        self.drain_deferred();
        let line = request.at.0 >> LINE_SHIFT;
        self.serve_tenants(line, now);
        let store = request.kind == RequestKind::Store;
        let done = match self.access_directory(line, request, true) {
            DirectoryResponse::Free => self.lookup::<true>(0, line, &request, now),
            DirectoryResponse::Invalidated => {
                let done = self.lookup::<true>(0, line, &request, now);
                // The last acknowledgement of an invalidation may arrive after the data.
                Done {
                    at: done.at.max(now + self.remote_latency),
                    ..done
                }
            }
            DirectoryResponse::Dirty(ready) => {
                let at = now.max(ready) + self.remote_latency;
                if !store {
                    // The writer keeps a clean copy, and the first shared level gets the data.
                    self.put_dirty::<true>(0, line, at);
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
        self.serve_tenants(line, now);
        if let Some(d) = &mut self.directory {
            d.cleaned(line, core);
        }
        self.put_dirty::<true>(0, line, now);
    }

    fn dropped(&mut self, at: PhysAddr, core: u8) {
        if let Some(d) = &mut self.directory {
            d.dropped(at.0 >> LINE_SHIFT, core);
        }
    }

    fn delay(&self, at: PhysAddr, now: Cycle) -> Cycle {
        self.dram
            .delay(at.0 >> LINE_SHIFT, now + self.last_latency())
    }

    fn warm(&mut self, request: Request) {
        let line = request.at.0 >> LINE_SHIFT;
        if self.defers_warming {
            self.defer(line, false);
            return;
        }
        self.warm_tenants(line);
        match self.access_directory(line, request, false) {
            DirectoryResponse::Upgrade { .. } => return,
            DirectoryResponse::Dirty(_) => {
                if request.kind != RequestKind::Store {
                    warm_written(self.levels.split_mut(), line, &mut |line| {
                        self.dram.warm(line)
                    });
                }
                return;
            }
            DirectoryResponse::Free | DirectoryResponse::Invalidated => {}
        }
        let open = &mut |line| self.dram.warm(line);
        warm_levels(self.levels.split_mut(), line, &request, open);
    }

    fn warm_write_back(&mut self, at: PhysAddr, core: u8) {
        let line = at.0 >> LINE_SHIFT;
        if self.defers_warming {
            self.defer(line, true);
            return;
        }
        self.warm_tenants(line);
        if let Some(d) = &mut self.directory {
            d.cleaned(line, core);
        }
        warm_written(self.levels.split_mut(), line, &mut |line| {
            self.dram.warm(line)
        });
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
        self.levels[0].host_prefetch(line);
        if let Some(d) = &self.directory {
            d.host_prefetch(line);
        }
    }

    #[inline]
    fn host_prefetch_place(&self, at: PhysAddr) {
        self.levels[0].host_prefetch_place(at.0 >> LINE_SHIFT);
    }

    #[inline]
    fn host_prefetch_drop(&self, at: PhysAddr, dirty: bool) {
        let line = at.0 >> LINE_SHIFT;
        if dirty {
            self.levels[0].host_prefetch(line);
        }
        if let Some(d) = &self.directory {
            d.host_prefetch(line);
        }
    }

    #[inline]
    fn coherent(&self) -> bool {
        self.directory.is_some()
    }

    #[inline]
    fn warms_later(&self) -> bool {
        self.defers_warming
    }
}

impl Report for Shared {
    /// Adds each level, with several cores `directory` below the first, with other tenants
    /// `tenants` below the third, and `dram.<channel>`.
    fn report(&self, path: &str, tree: &mut Tree) {
        for (n, cache) in self.levels.iter().enumerate() {
            let path = join(path, cache.level().name());
            // Guesses of engines pass through; their lines are fetched into the L2.
            tree.add_some(&path, &cache.stats(), |n| {
                let requests = ["speculative_accesses", "speculative_misses"];
                let prefetches = self.reports_software_prefetches;
                (!n.starts_with("speculative") || self.speculates && requests.contains(&n))
                    && (prefetches || !n.starts_with("software_prefetch"))
            });
            if let Some(d) = self.directory.as_ref().filter(|_| n == 0) {
                tree.add(&join(&path, "directory"), &d.stats());
            }
            if let Some(tenants) = self.tenants.as_ref().filter(|_| n == 0) {
                tree.add(&join(&path, "tenants"), &tenants.stats);
            }
        }
        self.dram.report(&join(path, "dram"), tree);
    }
}
