//! The caches of one core: a first level for instructions and one for data, and a list of levels
//! behind them.

mod blocks;
mod fill_port;
mod filtered_warming;
mod flush;
mod software_prefetch;

use self::fill_port::FillPort;
use self::flush::WriteCombining;
pub use self::flush::{Flushed, WriteCombiningStats};
pub use self::software_prefetch::SoftwarePrefetched;

use pagewalk_stats::Tree;
use pagewalk_structures::{OccupancySlot, StaleOutcomes};
use pagewalk_units::{Cycle, Error, LINE_SHIFT, PhysAddr};

use crate::cache_array::{CacheArray, DIRTY, OWNED, PREFETCHED, Place, SPECULATIVE};
use crate::levels::Levels;
use crate::lru_stack::LruStack;
use crate::prefetch::Wanted;
use crate::{Below, Done, Level, PrivateSpec, Report, Request, RequestKind};

/// Index of the first level for instructions in [`Private::first`].
const INSTRUCTIONS: usize = 0;
/// Index of the first level for data.
const DATA: usize = 1;

/// The private caches of one core.
///
/// Write-back and write-allocate. A level is neither inclusive nor exclusive of those above it. A
/// miss enters the line into the tags at once, with the cycle from which it is ready. A later
/// request for the line merges: it waits for that cycle. A miss holds an MSHR from its request to
/// its fill. Prefetches and write-backs take no MSHR, but use bandwidth below.
#[derive(Clone, Debug)]
pub struct Private {
    /// The caches that fetches, loads and stores access first.
    first: [CacheArray; 2],
    /// The levels behind, nearest first: those of data alone, then those of data and instructions.
    further: Levels,
    /// Index in `further` of the first level of data and instructions: the L2.
    l2: usize,
    walks_enter: Entry,
    core: u8,
    /// True if the core has a speculation engine.
    speculates: bool,
    /// True if the program may prefetch.
    reports_software_prefetches: bool,
    combining: WriteCombining,
    fill_port: Option<Box<FillPort>>,
    /// LRU stack that replaces the L2 during filtered functional warming.
    lru_stack: LruStack,
    warms_filtered: bool,
    l2_use: L2Use,
    /// The line of the last access in filtered warming, unless a walk has accessed the L2 since.
    last_filtered: u64,
}

/// The program's misses of the L2, timed or in functional warming.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct L2Use {
    /// Instructions that the core had executed when its current run of operations began.
    pub instructions: u64,
    /// Misses of loads, stores and fetches. Walks and prefetches are left out.
    pub misses: u64,
}

/// True for loads, stores and fetches.
#[inline(always)]
fn is_of_program(kind: RequestKind) -> bool {
    (kind as usize) < RequestKind::Walk as usize
}

/// The level at which the walker's reads enter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    /// The first level for data.
    First,
    /// This one of the further levels.
    Further(usize),
    /// The level below the private caches.
    Below,
}

/// A number that no line has.
const NO_LINE: u64 = u64::MAX;

/// Outcome of a speculation engine's guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speculated {
    /// The line is fetched into the L2 and ready at this cycle.
    Fetched(Cycle),
    /// It was already on its way and is ready at this cycle.
    UnderWay(Cycle),
    /// One of the core's caches had it.
    Present,
    /// No miss register of the L2 was free.
    Dropped,
}

/// `path.name`, or `name` at the root.
pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

#[inline(always)]
fn address(line: u64) -> PhysAddr {
    PhysAddr(line << LINE_SHIFT)
}

impl Private {
    /// Creates empty caches.
    ///
    /// # Errors
    /// An impossible geometry. The message names the key.
    pub fn new(spec: &PrivateSpec, core: u8) -> Result<Self, Error> {
        spec.check()?;
        let levels: Vec<_> = spec.data_levels().collect();
        let (level, first) = levels[0];
        let further = levels[1..].iter().map(|&(level, cache)| {
            CacheArray::new(cache, &format!("caches.{}", level.name()), level)
        });
        let further = further.collect::<Result<Vec<_>, Error>>()?;
        let entered = spec.walks_enter.level();
        Ok(Private {
            first: [
                CacheArray::first(&spec.l1i, "caches.l1i", Level::L1)?,
                CacheArray::first(first, &format!("caches.{}", level.name()), level)?,
            ],
            walks_enter: match levels.iter().position(|&(level, _)| level == entered) {
                Some(0) => Entry::First,
                Some(n) => Entry::Further(n - 1),
                None => Entry::Below,
            },
            l2: further.iter().filter(|c| c.level() < Level::L2).count(),
            further: Levels::new(further).expect("an L2 at least"),
            core,
            speculates: false,
            reports_software_prefetches: false,
            combining: WriteCombining::new(spec.write_combining_buffers),
            fill_port: spec.l1d_fill_bytes.map(FillPort::new),
            lru_stack: LruStack::default(),
            warms_filtered: false,
            l2_use: L2Use::default(),
            last_filtered: NO_LINE,
        })
    }

    /// Marks the core as having a speculation engine, which calls [`Private::speculate`]. The
    /// counters of guesses are then reported, too.
    #[must_use]
    pub fn with_speculation(mut self) -> Self {
        self.speculates = true;
        self
    }

    /// Reports the accesses of [`Private::software_prefetch`], too.
    #[must_use]
    pub fn with_software_prefetches(mut self) -> Self {
        self.reports_software_prefetches = true;
        self
    }

    /// Marks the contents as stale after a fast-forward. After filtered functional warming
    /// (`filtered`) only the first level is stale.
    pub fn mark_stale(&mut self, filtered: bool) {
        self.first.iter_mut().for_each(CacheArray::mark_stale);
        if !filtered {
            self.further.iter_mut().for_each(CacheArray::mark_stale);
        }
    }

    /// Lookups whose outcome is uncertain because of stale contents, by the name of the cache.
    pub fn stale(&self) -> impl Iterator<Item = (&'static str, StaleOutcomes)> {
        let caches = self.first.iter().chain(self.further.iter());
        caches.enumerate().map(|(n, cache)| match n {
            INSTRUCTIONS => ("l1i", cache.stale),
            _ => (cache.level().name(), cache.stale),
        })
    }

    /// Load-to-use of a hit in the first level for data.
    #[inline]
    pub fn load_latency(&self) -> Cycle {
        self.first[DATA].latency()
    }

    /// MSHRs of the first level for data.
    pub fn load_mshrs(&self) -> usize {
        self.first[DATA].mshrs.places()
    }

    /// The program's misses of the L2 so far.
    pub fn l2_use(&self) -> L2Use {
        self.l2_use
    }

    /// Called when the core begins to run operations, after `instructions` in all.
    pub fn set_instructions(&mut self, instructions: u64) {
        self.l2_use.instructions = instructions;
    }

    /// Load-to-use of an L2 hit.
    #[inline]
    pub fn l2_latency(&self) -> Cycle {
        self.further[self.l2].latency()
    }

    /// Load-to-use of a hit in the first level for instructions.
    #[inline]
    pub fn fetch_latency(&self) -> Cycle {
        self.first[INSTRUCTIONS].latency()
    }

    /// Serves a request. It enters by `request.kind`: Fetch, Load, Store and Prefetch at the first
    /// level; Walk where configured; Speculative at the L2. The result is load-to-use from `now`.
    ///
    /// Inlined up to a hit in the line of the set's last hit, where most requests end. Callers pass
    /// a constant kind.
    #[inline(always)]
    pub fn access<B: Below>(&mut self, request: Request, now: Cycle, below: &mut B) -> Done {
        self.serve::<true, B>(&request, now, below)
    }

    /// As [`Private::access`], or without time.
    #[inline(always)]
    fn serve<const TIMED: bool, B: Below>(
        &mut self,
        request: &Request,
        now: Cycle,
        below: &mut B,
    ) -> Done {
        match request.kind {
            RequestKind::Load | RequestKind::Store | RequestKind::Prefetch => {
                self.access_first::<DATA, TIMED, B>(request, now, below)
            }
            RequestKind::Fetch => self.access_first::<INSTRUCTIONS, TIMED, B>(request, now, below),
            RequestKind::Walk => self.serve_walk::<TIMED, B>(request, now, below),
            RequestKind::Speculative => self.access_from::<TIMED, B>(self.l2, request, now, below),
            RequestKind::SoftwarePrefetch => {
                unreachable!("Private::software_prefetch serves these")
            }
        }
    }

    /// Serves the request at the level where walks enter.
    #[inline(always)]
    fn serve_walk<const TIMED: bool, B: Below>(
        &mut self,
        request: &Request,
        now: Cycle,
        below: &mut B,
    ) -> Done {
        match self.walks_enter {
            Entry::First => self.access_first::<DATA, TIMED, B>(request, now, below),
            Entry::Further(n) => self.access_from::<TIMED, B>(n, request, now, below),
            Entry::Below => self.bypass_private::<TIMED, B>(request, now, below),
        }
    }

    /// A walker's read that allocates no line in this core's caches.
    #[inline(never)]
    pub fn read_no_allocate<B: Below>(
        &mut self,
        request: Request,
        now: Cycle,
        below: &mut B,
    ) -> Done {
        if self.allocates_nothing(&request) {
            return self.access(request, now, below);
        }
        let from = match self.walks_enter {
            Entry::Further(n) => n.max(self.l2),
            Entry::First | Entry::Below => self.l2,
        };
        for cache in self.further.iter_mut().skip(from) {
            cache.count_miss(request.kind);
        }
        self.bypass_private::<true, B>(&request, now, below)
    }

    /// Functional warming by [`Private::read_no_allocate`].
    #[inline(never)]
    pub fn warm_no_allocate<B: Below>(&mut self, request: Request, below: &mut B) {
        if self.allocates_nothing(&request) {
            self.warm(request, below);
        } else {
            self.bypass_private::<false, B>(&request, 0, below);
        }
    }

    /// A walker's write to a part of the line of `request`: fetches the line into the level where
    /// walks enter, obtains ownership and marks it dirty. Returns when the write is done.
    #[inline(never)]
    pub fn update<B: Below>(&mut self, request: Request, now: Cycle, below: &mut B) -> Done {
        self.change::<true, B>(&request, now, below)
    }

    /// Functional warming by [`Private::update`].
    #[inline(never)]
    pub fn warm_update<B: Below>(&mut self, request: Request, below: &mut B) {
        self.change::<false, B>(&request, 0, below);
    }

    fn change<const TIMED: bool, B: Below>(
        &mut self,
        request: &Request,
        now: Cycle,
        below: &mut B,
    ) -> Done {
        let line = request.at.0 >> LINE_SHIFT;
        let mut done = self.serve_walk::<TIMED, B>(request, now, below);
        let store = Request {
            kind: RequestKind::Store,
            ..*request
        };
        let cache = match self.walks_enter {
            Entry::First => Some(&mut self.first[DATA]),
            Entry::Further(n) => Some(&mut self.further[n]),
            Entry::Below => None,
        };
        if let Some(cache) = cache
            && let Some(at) = cache.find(line)
        {
            let granted = request_write::<TIMED, B>(cache, at, &store, done.at, below);
            done.at = done.at.max(granted);
            return done;
        }
        // This core keeps no copy, so the write goes to the level below.
        if TIMED {
            below.write_back(request.at, self.core, done.at);
        } else {
            below.warm_write_back(request.at, self.core);
        }
        done
    }

    /// True if a walker's read as a normal access allocates no private line: it hits in a private
    /// cache, or walks enter below them.
    fn allocates_nothing(&self, request: &Request) -> bool {
        let line = request.at.0 >> LINE_SHIFT;
        match self.walks_enter {
            Entry::First => has(&self.first[DATA], line) || self.further_hold(line),
            Entry::Further(n) => self.further.iter().skip(n).any(|cache| has(cache, line)),
            Entry::Below => true,
        }
    }

    /// Fetches the line of `at` into the L2 for an engine's guess at `now`. Does nothing if one of
    /// the core's caches has the line or has requested it, or if no miss register of the L2 is
    /// free.
    #[inline(never)]
    pub fn speculate<B: Below>(&mut self, at: PhysAddr, now: Cycle, below: &mut B) -> Speculated {
        let line = at.0 >> LINE_SHIFT;
        let (kind, n) = (RequestKind::Speculative, self.l2);
        let [l1i, l1d] = &self.first;
        for cache in [l1d, l1i].into_iter().chain(self.further.iter().take(n)) {
            match cache.find(line).map(|at| cache.ready(at)) {
                Some(ready) if ready > now => return Speculated::UnderWay(ready),
                Some(_) => return Speculated::Present,
                None => {}
            }
        }
        let l2 = &mut self.further[n];
        if let Some(at) = l2.find(line) {
            return match l2.probe_by_guess(at, kind, now) {
                Some(ready) => Speculated::UnderWay(ready),
                None => Speculated::Present,
            };
        }
        l2.count_miss(kind);
        let Some(slot) = l2.mshrs.admit_at_once(now) else {
            return Speculated::Dropped;
        };
        let (core, pc) = (self.core, 0);
        let request = Request { at, kind, core, pc };
        self.host_prefetch_victim(n, line, below);
        self.further[n].missed = true;
        let mut done = self.access_behind::<true, B>(n, &request, now, below);
        done.at = self.further[n].mshrs.hold(slot, done.at);
        let flags = SPECULATIVE | self.owned_behind(n, line, below);
        self.fill_further::<false, true, B>(n, line, flags, done, now, below);
        self.train_further::<false, true, B>(n, line, &request, now, below);
        Speculated::Fetched(done.at)
    }

    /// Prefetches into the host's caches the sets of the line of `at`, which will probably be
    /// requested, in the levels behind the first and below.
    #[inline]
    pub fn host_prefetch<B: Below>(&self, at: PhysAddr, below: &B) {
        for cache in self.further.iter() {
            cache.host_prefetch(at.0 >> LINE_SHIFT);
        }
        below.host_prefetch(at);
    }

    /// First step of the lookahead of [`Private::warm`]: prefetches the further levels' sets of the
    /// line of `at` into the host's caches.
    #[inline]
    pub fn look_ahead(&self, at: PhysAddr) {
        let line = at.0 >> LINE_SHIFT;
        if self.warms_filtered {
            self.further[0].host_prefetch_lru(&self.lru_stack, line);
            return;
        }
        for cache in self.further.iter() {
            cache.host_prefetch_ways(line);
        }
    }

    /// Second step of the lookahead, when the host's prefetch has arrived. Returns true if the line
    /// will probably be requested below the private caches, and the dirty line that it will evict
    /// from the last of them, if any. Prefetches the host's data for both in the levels below.
    #[inline]
    pub fn look_below<B: Below>(&self, at: PhysAddr, below: &B) -> (bool, Option<PhysAddr>) {
        let line = at.0 >> LINE_SHIFT;
        if self.further_hold(line) {
            return (false, None);
        }
        below.host_prefetch(at);
        let victim = self.further.last().next_victim(line);
        let Some(line) = victim.line() else {
            return (true, None);
        };
        let dirty = victim.dirty();
        if dirty || below.coherent() {
            below.host_prefetch_drop(address(line), dirty);
        }
        (true, dirty.then_some(address(line)))
    }

    /// Functional warming: updates tags, replacement and prefetchers, without time and without
    /// statistics. Only the usefulness of guesses that were counted before is still counted.
    /// Inlined as [`Private::access`] is.
    #[inline(always)]
    pub fn warm<B: Below>(&mut self, request: Request, below: &mut B) {
        self.serve::<false, B>(&request, 0, below);
    }

    /// Functional warming by a request that misses the first level and does not fill it: updates
    /// the levels behind and below.
    #[inline]
    pub fn warm_below_first<B: Below>(&mut self, request: Request, below: &mut B) {
        let n = if request.kind == RequestKind::Fetch {
            self.l2
        } else {
            0
        };
        self.access_from::<false, B>(n, &request, 0, below);
        let line = request.at.0 >> LINE_SHIFT;
        let cache = &mut self.further[n];
        if request.kind == RequestKind::Store
            && let Some(at) = cache.find(line)
        {
            request_write::<false, B>(cache, at, &request, 0, below);
        }
    }

    /// All caches, nearest first.
    fn caches_mut(&mut self) -> impl Iterator<Item = &mut CacheArray> {
        self.first.iter_mut().chain(self.further.iter_mut())
    }

    /// All caches, nearest first.
    #[cfg(test)]
    pub(crate) fn caches(&self) -> impl Iterator<Item = &CacheArray> {
        self.first.iter().chain(self.further.iter())
    }

    /// True if one of the caches has `line`.
    #[inline(always)]
    fn holds(&self, line: u64) -> bool {
        self.further_hold(line) || self.first.iter().any(|cache| has(cache, line))
    }

    /// True if one of the further levels has `line`.
    #[inline(always)]
    fn further_hold(&self, line: u64) -> bool {
        let behind = self.further.behind(0);
        has(&self.further[0], line) || behind.iter().any(|cache| has(cache, line))
    }

    /// Serves the request at the first level.
    #[inline(always)]
    fn access_first<const SIDE: usize, const TIMED: bool, B: Below>(
        &mut self,
        request: &Request,
        now: Cycle,
        below: &mut B,
    ) -> Done {
        let line = request.at.0 >> LINE_SHIFT;
        let cache = &mut self.first[SIDE];
        let done = match cache.find_likely(line) {
            Some(at) => {
                let mut done = hit::<TIMED>(cache, at, request.kind, now);
                if SIDE == DATA
                    && request.kind == RequestKind::Store
                    && cache.flags(at) & (DIRTY | OWNED) != DIRTY | OWNED
                {
                    let granted = request_write::<TIMED, B>(cache, at, request, now, below);
                    done.at = done.at.max(granted);
                }
                done
            }
            None => self.miss_first::<SIDE, TIMED, B>(line, request, now, below),
        };
        let cache = &mut self.first[SIDE];
        if let Some(p) = &mut cache.prefetcher {
            let missed = std::mem::take(&mut cache.missed);
            let mut wanted = Wanted::new();
            if p.train(request.kind, line, request.pc, missed, &mut wanted) {
                self.prefetch_first::<SIDE, TIMED, B>(&wanted, request, now, below);
            }
        }
        done
    }

    #[inline(never)]
    fn miss_first<const SIDE: usize, const TIMED: bool, B: Below>(
        &mut self,
        line: u64,
        request: &Request,
        now: Cycle,
        below: &mut B,
    ) -> Done {
        let mut now = now;
        if SIDE == DATA {
            // In functional warming, the lookahead has prefetched these sets.
            if TIMED {
                self.further[0].host_prefetch_ways(line);
                below.host_prefetch(request.at);
            }
            if below.coherent()
                && let Some(victim) = self.first[DATA].next_victim(line).line()
            {
                // If the levels behind lack the victim, the directory will be notified of its
                // eviction.
                self.further[0].host_prefetch_ways(victim);
            }
            if TIMED && self.combines(line) {
                now = self.write_before_access(line, now, below);
            }
        }
        self.first[SIDE].missed = true;
        let admitted = admit::<TIMED>(&mut self.first[SIDE], request.kind, now);
        let done = self.fetch_first::<SIDE, TIMED, B>(request, admitted.start, below);
        let done = hold::<TIMED>(&mut self.first[SIDE], admitted, done);
        let flags = match request.kind {
            RequestKind::Store if SIDE == DATA => DIRTY | OWNED,
            RequestKind::Prefetch if SIDE == DATA => PREFETCHED,
            _ => self.owned_first::<SIDE, B>(line, below),
        };
        self.fill_first::<SIDE, TIMED, B>(line, flags, done, now, below);
        done
    }

    /// Fetches the line of `request` for the first level.
    #[inline(always)]
    fn fetch_first<const SIDE: usize, const TIMED: bool, B: Below>(
        &mut self,
        request: &Request,
        now: Cycle,
        below: &mut B,
    ) -> Done {
        if SIDE == DATA {
            let done = self.access_further::<true, TIMED, B>(0, request, now, below);
            self.ported::<TIMED>(0, done)
        } else {
            self.access_from::<TIMED, B>(self.l2, request, now, below)
        }
    }

    /// The line of `done` on its way from the further level `n` to the one above, which holds data.
    /// From the L2 it takes the fill port.
    #[inline(always)]
    fn ported<const TIMED: bool>(&mut self, n: usize, done: Done) -> Done {
        if n == self.l2 {
            return self.through_fill_port::<TIMED>(done);
        }
        done
    }

    /// [`OWNED`] if the first level's copy of the line is owned, because one behind it is.
    #[inline(always)]
    fn owned_first<const SIDE: usize, B: Below>(&self, line: u64, below: &B) -> u64 {
        if SIDE != DATA || !below.coherent() {
            return 0;
        }
        owned(&self.further[0], line) | self.owned_behind(0, line, below)
    }

    /// [`OWNED`] if a copy of the line behind the further level `n` is owned, because the copy
    /// there then is, too.
    #[inline(always)]
    fn owned_behind<B: Below>(&self, n: usize, line: u64, below: &B) -> u64 {
        let behind = self.further.behind(n);
        if behind.is_empty() || !below.coherent() {
            return 0;
        }
        behind.iter().fold(0, |all, cache| all | owned(cache, line))
    }

    #[inline(never)]
    fn prefetch_first<const SIDE: usize, const TIMED: bool, B: Below>(
        &mut self,
        wanted: &[u64],
        cause: &Request,
        now: Cycle,
        below: &mut B,
    ) {
        for &line in wanted {
            if self.first[SIDE].find(line).is_some() {
                continue;
            }
            let request = Request {
                at: address(line),
                kind: RequestKind::Prefetch,
                ..*cause
            };
            let done = self.fetch_first::<SIDE, TIMED, B>(&request, now, below);
            let flags = PREFETCHED | self.owned_first::<SIDE, B>(line, below);
            self.fill_first::<SIDE, TIMED, B>(line, flags, done, now, below);
        }
    }

    fn fill_first<const SIDE: usize, const TIMED: bool, B: Below>(
        &mut self,
        line: u64,
        flags: u64,
        done: Done,
        now: Cycle,
        below: &mut B,
    ) {
        let cache = &mut self.first[SIDE];
        let victim = cache.fill::<TIMED>(line, flags, done.level, now, done.at);
        let Some(line) = victim.line() else {
            return;
        };
        if SIDE == DATA && victim.dirty() {
            cache.counts.writebacks += u64::from(TIMED);
            let done = Done::new(done.at, cache.level());
            self.write_further::<true, TIMED, B>(0, line, done, below);
        } else if below.coherent() && !self.further_hold(line) && !has(&self.first[1 - SIDE], line)
        {
            below.dropped(address(line), self.core);
        }
    }

    /// Writes a dirty line of the level above to the further level `n`.
    #[inline(always)]
    fn write_further<const NEAR: bool, const TIMED: bool, B: Below>(
        &mut self,
        n: usize,
        line: u64,
        done: Done,
        below: &mut B,
    ) {
        let cache = &mut self.further[if NEAR { 0 } else { n }];
        match cache.find(line) {
            Some(at) => {
                cache.counts.updates += u64::from(TIMED);
                cache.set_flags(at, DIRTY | OWNED);
            }
            None => {
                self.fill_further::<NEAR, TIMED, B>(n, line, DIRTY | OWNED, done, done.at, below);
            }
        }
    }

    /// Serves the request below the private caches, without a private copy.
    #[inline(never)]
    fn bypass_private<const TIMED: bool, B: Below>(
        &mut self,
        request: &Request,
        now: Cycle,
        below: &mut B,
    ) -> Done {
        let line = request.at.0 >> LINE_SHIFT;
        let done = access_below::<TIMED, B>(below, request, now);
        if below.coherent() && !self.holds(line) {
            below.dropped(request.at, self.core);
        }
        done
    }

    /// Serves the request at the level behind the further level `n`, or below if there is none.
    #[inline(always)]
    fn access_behind<const TIMED: bool, B: Below>(
        &mut self,
        n: usize,
        request: &Request,
        now: Cycle,
        below: &mut B,
    ) -> Done {
        if n + 1 < self.further.len() {
            let done = self.access_further::<false, TIMED, B>(n + 1, request, now, below);
            self.ported::<TIMED>(n + 1, done)
        } else {
            access_below::<TIMED, B>(below, request, now)
        }
    }

    /// Serves the request at the further level `n`, where it enters.
    #[inline(always)]
    fn access_from<const TIMED: bool, B: Below>(
        &mut self,
        n: usize,
        request: &Request,
        now: Cycle,
        below: &mut B,
    ) -> Done {
        if n == 0 {
            self.access_further::<true, TIMED, B>(n, request, now, below)
        } else {
            self.access_further::<false, TIMED, B>(n, request, now, below)
        }
    }

    /// Serves the request at the further level `n`; `NEAR`: 0.
    #[inline(never)]
    fn access_further<const NEAR: bool, const TIMED: bool, B: Below>(
        &mut self,
        n: usize,
        request: &Request,
        now: Cycle,
        below: &mut B,
    ) -> Done {
        let n = if NEAR { 0 } else { n };
        let line = request.at.0 >> LINE_SHIFT;
        let cache = &mut self.further[n];
        if request.kind == RequestKind::Walk {
            cache.host_prefetch_ways(line);
            if TIMED || !below.warms_later() {
                below.host_prefetch(request.at);
            }
        }
        let done = match cache.find(line) {
            Some(at) => {
                let mut done = hit::<TIMED>(cache, at, request.kind, now);
                if request.kind == RequestKind::Store {
                    let granted = request_ownership::<TIMED, B>(cache, at, request, now, below);
                    done.at = done.at.max(granted);
                }
                done
            }
            None => {
                cache.missed = true;
                self.l2_use.misses += u64::from(n == self.l2 && is_of_program(request.kind));
                self.host_prefetch_victim(n, line, below);
                let admitted = admit::<TIMED>(&mut self.further[n], request.kind, now);
                let done = self.access_behind::<TIMED, B>(n, request, admitted.start, below);
                let done = hold::<TIMED>(&mut self.further[n], admitted, done);
                let mut flags = self.owned_behind(n, line, below);
                if request.kind == RequestKind::Speculative && n == self.l2 {
                    flags |= SPECULATIVE;
                }
                self.fill_further::<NEAR, TIMED, B>(n, line, flags, done, now, below);
                done
            }
        };
        self.train_further::<NEAR, TIMED, B>(n, line, request, now, below);
        done
    }

    /// Prefetches into the host's caches the directory entry of the line that `line` will evict
    /// from the further level `n`, if that is the last and the victim is known.
    #[inline(always)]
    fn host_prefetch_victim<B: Below>(&self, n: usize, line: u64, below: &B) {
        if !below.coherent() || n + 1 < self.further.len() {
            return;
        }
        let victim = self.further[n].next_victim(line);
        if let Some(line) = victim.line() {
            below.host_prefetch_drop(address(line), victim.dirty());
        }
    }

    /// Trains the prefetcher of the further level `n` by `request`.
    #[inline(always)]
    fn train_further<const NEAR: bool, const TIMED: bool, B: Below>(
        &mut self,
        n: usize,
        line: u64,
        request: &Request,
        now: Cycle,
        below: &mut B,
    ) {
        let cache = &mut self.further[if NEAR { 0 } else { n }];
        if let Some(p) = &mut cache.prefetcher {
            let missed = std::mem::take(&mut cache.missed);
            let mut wanted = Wanted::new();
            if p.train(request.kind, line, request.pc, missed, &mut wanted) {
                self.prefetch_further::<NEAR, TIMED, B>(n, &wanted, request, now, below);
            }
        }
    }

    #[inline(never)]
    fn prefetch_further<const NEAR: bool, const TIMED: bool, B: Below>(
        &mut self,
        n: usize,
        wanted: &[u64],
        cause: &Request,
        now: Cycle,
        below: &mut B,
    ) {
        let n = if NEAR { 0 } else { n };
        for &line in wanted {
            if self.further[n].find(line).is_none() {
                let request = Request {
                    at: address(line),
                    kind: RequestKind::Prefetch,
                    ..*cause
                };
                let done = self.access_behind::<TIMED, B>(n, &request, now, below);
                let flags = PREFETCHED | self.owned_behind(n, line, below);
                self.fill_further::<NEAR, TIMED, B>(n, line, flags, done, now, below);
            }
        }
    }

    fn fill_further<const NEAR: bool, const TIMED: bool, B: Below>(
        &mut self,
        n: usize,
        line: u64,
        flags: u64,
        done: Done,
        now: Cycle,
        below: &mut B,
    ) {
        let n = if NEAR { 0 } else { n };
        let cache = &mut self.further[n];
        if cache.prefers_blocks() {
            cache.spare_block(line);
        }
        let victim = cache.fill::<TIMED>(line, flags, done.level, now, done.at);
        let Some(line) = victim.line() else {
            return;
        };
        let dirty = victim.dirty();
        if n + 1 < self.further.len() {
            if dirty {
                self.further[n].counts.writebacks += u64::from(TIMED);
                let done = Done::new(done.at, self.further[n].level());
                self.write_further::<false, TIMED, B>(n + 1, line, done, below);
            } else if below.coherent() && !self.holds(line) {
                below.dropped(address(line), self.core);
            }
            return;
        }
        let mut kept = false;
        if below.coherent() {
            // A copy above is as new or newer. It becomes the dirty copy, so the core remains the
            // line's writer in the directory.
            let above = if dirty { DIRTY | OWNED } else { 0 };
            if set_flags(&mut self.first[DATA], line, above) {
                return;
            }
            if !NEAR {
                let mut further = self.further.iter_mut().take(n);
                if further.any(|cache| set_flags(cache, line, above)) {
                    return;
                }
            }
            kept = has(&self.first[INSTRUCTIONS], line);
        }
        if dirty {
            self.further[n].counts.writebacks += u64::from(TIMED);
            if TIMED {
                below.write_back(address(line), self.core, done.at);
            } else {
                below.warm_write_back(address(line), self.core);
            }
        }
        if below.coherent() && !kept {
            below.dropped(address(line), self.core);
        }
    }

    /// Snoop: another core writes (`exclusive`) or reads this line. Drops or cleans it. Returns
    /// true if it was dirty.
    pub fn snoop(&mut self, at: PhysAddr, exclusive: bool) -> bool {
        let line = at.0 >> LINE_SHIFT;
        let mut dirty = false;
        for cache in self.caches_mut() {
            if let Some(at) = cache.find(line) {
                dirty |= cache.flags(at) & DIRTY != 0;
                if exclusive {
                    cache.remove(at);
                    cache.counts.invalidated += 1;
                } else {
                    cache.clear_flags(at, DIRTY | OWNED);
                }
            }
        }
        dirty
    }
}

/// True if `cache` has the line.
#[inline(always)]
fn has(cache: &CacheArray, line: u64) -> bool {
    cache.find(line).is_some()
}

/// Sets flags of the line, if `cache` has it. Returns true then.
#[inline(always)]
fn set_flags(cache: &mut CacheArray, line: u64, flags: u64) -> bool {
    let at = cache.find(line);
    at.inspect(|&at| cache.set_flags(at, flags)).is_some()
}

/// [`OWNED`] if `cache` has the line and it is owned.
#[inline(always)]
fn owned(cache: &CacheArray, line: u64) -> u64 {
    let flags = cache.find(line).map_or(0, |at| cache.flags(at));
    flags & OWNED
}

/// Serves a request for a present line.
#[inline(always)]
fn hit<const TIMED: bool>(
    cache: &mut CacheArray,
    at: Place,
    kind: RequestKind,
    now: Cycle,
) -> Done {
    if TIMED {
        let hit = cache.hit(at, kind, now);
        Done::new(hit.at, hit.level)
    } else {
        cache.warm_hit(at);
        Done::new(0, Level::L1)
    }
}

#[inline(always)]
fn access_below<const TIMED: bool, B: Below>(below: &mut B, request: &Request, now: Cycle) -> Done {
    if TIMED {
        below.access(*request, now)
    } else {
        below.warm(*request);
        Done::new(0, Level::Memory)
    }
}

/// Requests ownership for a store to the line at `at` of `cache` at `now`. Copies in other cores
/// are invalidated. Returns when it may be written.
#[inline(always)]
fn request_ownership<const TIMED: bool, B: Below>(
    cache: &mut CacheArray,
    at: Place,
    store: &Request,
    now: Cycle,
    below: &mut B,
) -> Cycle {
    if cache.flags(at) & OWNED != 0 || !below.coherent() {
        return now;
    }
    if TIMED {
        cache.counts.upgrades += 1;
        return below.access(*store, now).at;
    }
    below.warm(*store);
    now
}

/// Serves a store to the line at `at` of `cache`, which is not owned or not dirty. Returns when it
/// may be written.
#[inline(never)]
fn request_write<const TIMED: bool, B: Below>(
    cache: &mut CacheArray,
    at: Place,
    store: &Request,
    now: Cycle,
    below: &mut B,
) -> Cycle {
    let granted = request_ownership::<TIMED, B>(cache, at, store, now, below);
    cache.set_flags(at, DIRTY | OWNED);
    granted
}

/// A miss on its way to the next level.
struct Admitted {
    /// Cycle at which it leaves the cache.
    start: Cycle,
    waited: Cycle,
    slot: Option<OccupancySlot>,
}

/// Takes an MSHR for a miss of `cache` at `now`, unless it is a prefetch. Waits for a free one.
#[inline(always)]
fn admit<const TIMED: bool>(cache: &mut CacheArray, kind: RequestKind, now: Cycle) -> Admitted {
    let mut admitted = Admitted {
        start: now,
        waited: 0,
        slot: None,
    };
    if TIMED {
        cache.count_miss(kind);
        if kind != RequestKind::Prefetch {
            let slot = cache.mshrs.admit(now);
            admitted.start = slot.start;
            admitted.waited = slot.start - now;
            cache.counts.mshr_wait_cycles += admitted.waited;
            admitted.slot = Some(slot);
        }
    }
    admitted
}

/// Holds the MSHR of a miss of `cache` until its line is there. Returns `done` with the waits.
#[inline(always)]
fn hold<const TIMED: bool>(cache: &mut CacheArray, admitted: Admitted, mut done: Done) -> Done {
    let Some(slot) = admitted.slot.filter(|_| TIMED) else {
        return done;
    };
    let at = cache.mshrs.hold(slot, done.at);
    let held = admitted.waited + (at - done.at);
    if held != 0 {
        done.held = u16::try_from(held + u64::from(done.held)).unwrap_or(u16::MAX);
    }
    done.at = at;
    done.missed = true;
    done
}

impl Report for Private {
    /// Adds `l1i` and each level of data below `path`.
    fn report(&self, path: &str, tree: &mut Tree) {
        let starts = |name: &str, with: &[&str]| with.iter().any(|w| name.starts_with(w));
        // The L1I only sees fetches.
        let not_of_l1i = [
            "load",
            "store",
            "walk",
            "upgrades",
            "updates",
            "writebacks",
            "prefetch_",
            "speculative",
            "software_prefetch",
        ];
        let [l1i, first] = &self.first;
        tree.add_some(&join(path, "l1i"), &l1i.stats(), |n| {
            !starts(n, &not_of_l1i)
        });
        let entered = match self.walks_enter {
            Entry::First => first.level(),
            Entry::Further(n) => self.further[n].level(),
            Entry::Below => Level::Memory,
        };
        let prefetches = self.reports_software_prefetches;
        for (n, cache) in [first].into_iter().chain(self.further.iter()).enumerate() {
            let level = cache.level();
            let reported = |name: &str| {
                let (of, requests) = (
                    "speculative",
                    ["speculative_accesses", "speculative_misses"],
                );
                // Guesses of engines go into the L2, through the levels behind it.
                let guess = match level {
                    Level::L2 => self.speculates,
                    level if level > Level::L2 => self.speculates && requests.contains(&name),
                    _ => false,
                };
                (guess || !name.starts_with(of))
                    && (level >= Level::L2 || !name.starts_with("fetch"))
                    && (level >= Level::L2 || level >= entered || !name.starts_with("walk"))
                    && (n > 0 || !starts(name, &["prefetch_", "updates"]))
                    && (prefetches || !name.starts_with("software_prefetch"))
            };
            tree.add_some(&join(path, level.name()), &cache.stats(), reported);
        }
    }
}
