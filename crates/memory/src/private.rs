//! The caches of one core: L1I, L1D and the L2 behind both.

mod fill_port;
mod filtered_warming;
mod flush;
mod software_prefetch;

use self::fill_port::FillPort;
use self::flush::WriteCombining;
pub use self::flush::{Flushed, WriteCombiningStats};
pub use self::software_prefetch::SoftwarePrefetched;

use pagewalk_stats::Tree;
use pagewalk_structures::StaleOutcomes;
use pagewalk_units::{Cycle, Error, LINE_SHIFT, PhysAddr};

use crate::cache_array::{CacheArray, DIRTY, OWNED, PREFETCHED, Place, SPECULATIVE};
use crate::lru_stack::LruStack;
use crate::prefetch::Wanted;
use crate::{Below, Done, Enter, Level, PrivateSpec, Report, Request, RequestKind};

/// The private caches of one core: L1I, L1D, L2.
///
/// Write-back and write-allocate. The L2 is neither inclusive nor exclusive of the first level. A
/// miss enters the line into the tags at once, with the cycle from which it is ready. A later
/// request for the line merges: it waits for that cycle. A miss holds an MSHR from its request to
/// its fill. Prefetches and write-backs take no MSHR, but use bandwidth below.
#[derive(Clone, Debug)]
pub struct Private {
    l1i: CacheArray,
    l1d: CacheArray,
    l2: CacheArray,
    walks_enter: Enter,
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
    /// The line of the last access in filtered warming, unless a walk has accessed the L2 since.
    last_filtered: u64,
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
        Ok(Private {
            l1i: CacheArray::new(&spec.l1i, "caches.l1i", Level::L1)?,
            l1d: CacheArray::new(&spec.l1d, "caches.l1d", Level::L1)?,
            l2: CacheArray::new(&spec.l2, "caches.l2", Level::L2)?,
            walks_enter: spec.walks_enter,
            core,
            speculates: false,
            reports_software_prefetches: false,
            combining: WriteCombining::new(spec.write_combining_buffers),
            fill_port: spec.l1d_fill_bytes.map(FillPort::new),
            lru_stack: LruStack::default(),
            warms_filtered: false,
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
        self.l1i.mark_stale();
        self.l1d.mark_stale();
        if !filtered {
            self.l2.mark_stale();
        }
    }

    /// Lookups whose outcome is uncertain because of stale contents: L1I, L1D, L2.
    pub fn stale(&self) -> [StaleOutcomes; 3] {
        [&self.l1i, &self.l1d, &self.l2].map(|cache| cache.stale)
    }

    /// Load-to-use of an L1D hit.
    #[inline]
    pub fn l1d_latency(&self) -> Cycle {
        self.l1d.latency()
    }

    /// Load-to-use of an L2 hit.
    #[inline]
    pub fn l2_latency(&self) -> Cycle {
        self.l2.latency()
    }

    /// Load-to-use of an L1I hit.
    #[inline]
    pub fn l1i_latency(&self) -> Cycle {
        self.l1i.latency()
    }

    /// Serves a request. It enters by `request.kind`: Fetch at the L1I; Load, Store and Prefetch at
    /// the L1D; Walk where configured; Speculative at the L2. The result is load-to-use from `now`.
    ///
    /// Inlined up to a hit in the line of the set's last hit, where most requests end. Callers pass
    /// a constant kind.
    #[inline(always)]
    pub fn access<B: Below>(&mut self, request: Request, now: Cycle, below: &mut B) -> Done {
        match request.kind {
            RequestKind::Load | RequestKind::Store | RequestKind::Prefetch => {
                self.data::<true, B>(&request, now, below)
            }
            RequestKind::Fetch => self.fetch::<true, B>(&request, now, below),
            RequestKind::Walk if self.walks_enter == Enter::L1d => {
                self.data::<true, B>(&request, now, below)
            }
            RequestKind::Walk if self.walks_enter == Enter::L3 => {
                self.bypass_private::<true, B>(&request, now, below)
            }
            RequestKind::Walk | RequestKind::Speculative => {
                self.access_l2::<true, B>(&request, now, below)
            }
            RequestKind::SoftwarePrefetch => {
                unreachable!("Private::software_prefetch serves these")
            }
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
        self.l2.count_miss(request.kind);
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
        let mut done = match self.walks_enter {
            Enter::L1d => self.data::<TIMED, B>(request, now, below),
            Enter::L2 => self.access_l2::<TIMED, B>(request, now, below),
            Enter::L3 => self.bypass_private::<TIMED, B>(request, now, below),
        };
        let store = Request {
            kind: RequestKind::Store,
            ..*request
        };
        match self.walks_enter {
            Enter::L1d => {
                if let Some(at) = self.l1d.find(line) {
                    let granted = self.request_write::<TIMED, B>(at, &store, done.at, below);
                    done.at = done.at.max(granted);
                    return done;
                }
            }
            Enter::L2 => {
                if let Some(at) = self.l2.find(line) {
                    let granted =
                        request_ownership::<TIMED, B>(&mut self.l2, at, &store, done.at, below);
                    self.l2.set_flags(at, DIRTY | OWNED);
                    done.at = done.at.max(granted);
                    return done;
                }
            }
            Enter::L3 => {}
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
            Enter::L1d => self.l1d.find(line).is_some() || self.l2.find(line).is_some(),
            Enter::L2 => self.l2.find(line).is_some(),
            Enter::L3 => true,
        }
    }

    /// Fetches the line of `at` into the L2 for an engine's guess at `now`. Does nothing if one of
    /// the core's caches has the line or has requested it, or if no miss register of the L2 is
    /// free.
    #[inline(never)]
    pub fn speculate<B: Below>(&mut self, at: PhysAddr, now: Cycle, below: &mut B) -> Speculated {
        let line = at.0 >> LINE_SHIFT;
        let kind = RequestKind::Speculative;
        for cache in [&self.l1d, &self.l1i] {
            match cache.find(line).map(|at| cache.ready(at)) {
                Some(ready) if ready > now => return Speculated::UnderWay(ready),
                Some(_) => return Speculated::Present,
                None => {}
            }
        }
        if let Some(at) = self.l2.find(line) {
            return match self.l2.probe_by_guess(at, kind, now) {
                Some(ready) => Speculated::UnderWay(ready),
                None => Speculated::Present,
            };
        }
        self.l2.count_miss(kind);
        let Some(slot) = self.l2.mshrs.admit_at_once(now) else {
            return Speculated::Dropped;
        };
        let (core, pc) = (self.core, 0);
        let request = Request { at, kind, core, pc };
        self.host_prefetch_l2_victim(line, below);
        self.l2.missed = true;
        let mut done = below.access(request, now);
        done.at = self.l2.mshrs.hold(slot, done.at);
        self.fill_l2::<true, B>(line, SPECULATIVE, done, now, below);
        self.train_l2::<true, B>(line, &request, now, below);
        Speculated::Fetched(done.at)
    }

    /// Prefetches into the host's caches the sets of the line of `at`, which will probably be
    /// requested, in the L2 and below.
    #[inline]
    pub fn host_prefetch<B: Below>(&self, at: PhysAddr, below: &B) {
        self.l2.host_prefetch(at.0 >> LINE_SHIFT);
        below.host_prefetch(at);
    }

    /// First step of the lookahead of [`Private::warm`]: prefetches the L2's set of the line of
    /// `at` into the host's caches.
    #[inline]
    pub fn look_ahead(&self, at: PhysAddr) {
        let line = at.0 >> LINE_SHIFT;
        if self.warms_filtered {
            self.l2.host_prefetch_lru(&self.lru_stack, line);
        } else {
            self.l2.host_prefetch_ways(line);
        }
    }

    /// Second step of the lookahead, when the host's prefetch has arrived. Returns true if the line
    /// will probably be requested below the L2, and the dirty line that it will evict, if any.
    /// Prefetches the host's data for both in the levels below.
    #[inline]
    pub fn look_below<B: Below>(&self, at: PhysAddr, below: &B) -> (bool, Option<PhysAddr>) {
        let line = at.0 >> LINE_SHIFT;
        if self.l2.find(line).is_some() {
            return (false, None);
        }
        below.host_prefetch(at);
        let victim = self.l2.next_victim(line);
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
        match request.kind {
            RequestKind::Load | RequestKind::Store | RequestKind::Prefetch => {
                self.data::<false, B>(&request, 0, below)
            }
            RequestKind::Fetch => self.fetch::<false, B>(&request, 0, below),
            RequestKind::Walk if self.walks_enter == Enter::L1d => {
                self.data::<false, B>(&request, 0, below)
            }
            RequestKind::Walk if self.walks_enter == Enter::L3 => {
                self.bypass_private::<false, B>(&request, 0, below)
            }
            RequestKind::Walk | RequestKind::Speculative => {
                self.access_l2::<false, B>(&request, 0, below)
            }
            RequestKind::SoftwarePrefetch => {
                unreachable!("Private::warm_software_prefetch serves these")
            }
        };
    }

    /// Functional warming by a request that misses the first level and does not fill it: updates
    /// the L2 and the levels below.
    #[inline]
    pub fn warm_below_first<B: Below>(&mut self, request: Request, below: &mut B) {
        self.access_l2::<false, B>(&request, 0, below);
        let line = request.at.0 >> LINE_SHIFT;
        if request.kind == RequestKind::Store
            && let Some(at) = self.l2.find(line)
        {
            request_ownership::<false, B>(&mut self.l2, at, &request, 0, below);
            self.l2.set_flags(at, DIRTY | OWNED);
        }
    }

    /// L1I, L1D, L2.
    #[cfg(test)]
    pub(crate) fn caches(&self) -> [&CacheArray; 3] {
        [&self.l1i, &self.l1d, &self.l2]
    }

    /// Serves the request at the L1D.
    #[inline(always)]
    fn data<const TIMED: bool, B: Below>(
        &mut self,
        request: &Request,
        now: Cycle,
        below: &mut B,
    ) -> Done {
        let line = request.at.0 >> LINE_SHIFT;
        let done = match self.l1d.find_likely(line) {
            Some(at) => {
                let mut done = hit::<TIMED>(&mut self.l1d, at, request.kind, now);
                if request.kind == RequestKind::Store
                    && self.l1d.flags(at) & (DIRTY | OWNED) != DIRTY | OWNED
                {
                    done.at = done
                        .at
                        .max(self.request_write::<TIMED, B>(at, request, now, below));
                }
                done
            }
            None => self.data_miss::<TIMED, B>(line, request, now, below),
        };
        if let Some(p) = &mut self.l1d.prefetcher {
            let missed = std::mem::take(&mut self.l1d.missed);
            let mut wanted = Wanted::new();
            if p.train(request.kind, line, request.pc, missed, &mut wanted) {
                self.prefetch_data::<TIMED, B>(&wanted, request, now, below);
            }
        }
        done
    }

    /// Serves a store's hit in a line that is not owned or not dirty. Returns when it may be
    /// written.
    #[inline(never)]
    fn request_write<const TIMED: bool, B: Below>(
        &mut self,
        at: Place,
        request: &Request,
        now: Cycle,
        below: &mut B,
    ) -> Cycle {
        let granted = request_ownership::<TIMED, B>(&mut self.l1d, at, request, now, below);
        self.l1d.set_flags(at, DIRTY | OWNED);
        granted
    }

    #[inline(never)]
    fn data_miss<const TIMED: bool, B: Below>(
        &mut self,
        line: u64,
        request: &Request,
        now: Cycle,
        below: &mut B,
    ) -> Done {
        // In functional warming, the lookahead has prefetched these sets.
        if TIMED {
            self.l2.host_prefetch_ways(line);
            below.host_prefetch(request.at);
        }
        if below.coherent()
            && let Some(victim) = self.l1d.next_victim(line).line()
        {
            // If the L2 lacks the victim, the directory will be notified of its eviction.
            self.l2.host_prefetch_ways(victim);
        }
        self.l1d.missed = true;
        let mut now = now;
        if TIMED && self.combines(line) {
            now = self.write_before_access(line, now, below);
        }
        let done = through_mshrs::<TIMED>(
            self,
            |p| &mut p.l1d,
            request.kind,
            now,
            |p, start| {
                let done = p.access_l2::<TIMED, B>(request, start, below);
                p.through_fill_port::<TIMED>(done)
            },
        );
        let flags = match request.kind {
            RequestKind::Store => DIRTY | OWNED,
            RequestKind::Prefetch => PREFETCHED,
            _ => self.owned_below(line, below),
        };
        self.fill_data::<TIMED, B>(line, flags, done, now, below);
        done
    }

    /// [`OWNED`] if the L2's copy of the line is owned, because the L1D's copy then is, too.
    #[inline(always)]
    fn owned_below<B: Below>(&self, line: u64, below: &B) -> u64 {
        if !below.coherent() {
            return 0;
        }
        self.l2.find(line).map_or(0, |at| self.l2.flags(at) & OWNED)
    }

    #[inline(never)]
    fn prefetch_data<const TIMED: bool, B: Below>(
        &mut self,
        wanted: &[u64],
        cause: &Request,
        now: Cycle,
        below: &mut B,
    ) {
        for &line in wanted {
            if self.l1d.find(line).is_some() {
                continue;
            }
            let request = Request {
                at: address(line),
                kind: RequestKind::Prefetch,
                ..*cause
            };
            let done = self.access_l2::<TIMED, B>(&request, now, below);
            let done = self.through_fill_port::<TIMED>(done);
            let flags = PREFETCHED | self.owned_below(line, below);
            self.fill_data::<TIMED, B>(line, flags, done, now, below);
        }
    }

    fn fill_data<const TIMED: bool, B: Below>(
        &mut self,
        line: u64,
        flags: u64,
        done: Done,
        now: Cycle,
        below: &mut B,
    ) {
        let victim = self
            .l1d
            .fill::<TIMED>(line, flags, done.level, now, done.at);
        let Some(line) = victim.line() else {
            return;
        };
        if victim.dirty() {
            self.l1d.counts.writebacks += u64::from(TIMED);
            match self.l2.find(line) {
                Some(at) => {
                    self.l2.counts.updates += u64::from(TIMED);
                    self.l2.set_flags(at, DIRTY | OWNED);
                }
                None => self.fill_l2::<TIMED, B>(
                    line,
                    DIRTY | OWNED,
                    Done::new(done.at, Level::L1),
                    done.at,
                    below,
                ),
            }
        } else if below.coherent() {
            let kept = self.l2.find(line).is_some() || self.l1i.find(line).is_some();
            if !kept {
                below.dropped(address(line), self.core);
            }
        }
    }

    /// Serves the request at the L1I.
    #[inline(always)]
    fn fetch<const TIMED: bool, B: Below>(
        &mut self,
        request: &Request,
        now: Cycle,
        below: &mut B,
    ) -> Done {
        let line = request.at.0 >> LINE_SHIFT;
        let done = match self.l1i.find_likely(line) {
            Some(at) => hit::<TIMED>(&mut self.l1i, at, request.kind, now),
            None => self.fetch_miss::<TIMED, B>(line, request, now, below),
        };
        if let Some(p) = &mut self.l1i.prefetcher {
            let missed = std::mem::take(&mut self.l1i.missed);
            let mut wanted = Wanted::new();
            if p.train(request.kind, line, request.pc, missed, &mut wanted) {
                self.prefetch_fetched::<TIMED, B>(&wanted, request, now, below);
            }
        }
        done
    }

    #[inline(never)]
    fn prefetch_fetched<const TIMED: bool, B: Below>(
        &mut self,
        wanted: &[u64],
        cause: &Request,
        now: Cycle,
        below: &mut B,
    ) {
        for &line in wanted {
            if self.l1i.find(line).is_none() {
                let request = Request {
                    at: address(line),
                    kind: RequestKind::Prefetch,
                    ..*cause
                };
                let done = self.access_l2::<TIMED, B>(&request, now, below);
                self.fill_l1i::<TIMED, B>(line, PREFETCHED, done, now, below);
            }
        }
    }

    #[inline(never)]
    fn fetch_miss<const TIMED: bool, B: Below>(
        &mut self,
        line: u64,
        request: &Request,
        now: Cycle,
        below: &mut B,
    ) -> Done {
        self.l1i.missed = true;
        let done = through_mshrs::<TIMED>(
            self,
            |p| &mut p.l1i,
            request.kind,
            now,
            |p, start| p.access_l2::<TIMED, B>(request, start, below),
        );
        self.fill_l1i::<TIMED, B>(line, 0, done, now, below);
        done
    }

    fn fill_l1i<const TIMED: bool, B: Below>(
        &mut self,
        line: u64,
        flags: u64,
        done: Done,
        now: Cycle,
        below: &mut B,
    ) {
        let victim = self
            .l1i
            .fill::<TIMED>(line, flags, done.level, now, done.at);
        if let Some(line) = victim.line()
            && below.coherent()
            && self.l2.find(line).is_none()
            && self.l1d.find(line).is_none()
        {
            below.dropped(address(line), self.core);
        }
    }

    /// Serves the request at the L3, without a private copy.
    #[inline(never)]
    fn bypass_private<const TIMED: bool, B: Below>(
        &mut self,
        request: &Request,
        now: Cycle,
        below: &mut B,
    ) -> Done {
        let line = request.at.0 >> LINE_SHIFT;
        let done = access_below::<TIMED, B>(below, request, now);
        if below.coherent()
            && self.l2.find(line).is_none()
            && self.l1d.find(line).is_none()
            && self.l1i.find(line).is_none()
        {
            below.dropped(request.at, self.core);
        }
        done
    }

    /// Serves the request at the L2.
    #[inline(never)]
    fn access_l2<const TIMED: bool, B: Below>(
        &mut self,
        request: &Request,
        now: Cycle,
        below: &mut B,
    ) -> Done {
        let line = request.at.0 >> LINE_SHIFT;
        if request.kind == RequestKind::Walk {
            self.l2.host_prefetch_ways(line);
            if TIMED || !below.warms_later() {
                below.host_prefetch(request.at);
            }
        }
        let done = match self.l2.find(line) {
            Some(at) => {
                let mut done = hit::<TIMED>(&mut self.l2, at, request.kind, now);
                if request.kind == RequestKind::Store {
                    let granted =
                        request_ownership::<TIMED, B>(&mut self.l2, at, request, now, below);
                    done.at = done.at.max(granted);
                }
                done
            }
            None => {
                self.host_prefetch_l2_victim(line, below);
                self.l2.missed = true;
                let done = through_mshrs::<TIMED>(
                    self,
                    |p| &mut p.l2,
                    request.kind,
                    now,
                    |_, start| access_below::<TIMED, B>(below, request, start),
                );
                let flags = if request.kind == RequestKind::Speculative {
                    SPECULATIVE
                } else {
                    0
                };
                self.fill_l2::<TIMED, B>(line, flags, done, now, below);
                done
            }
        };
        self.train_l2::<TIMED, B>(line, request, now, below);
        done
    }

    /// Prefetches into the host's caches the directory entry of the line that `line` will evict
    /// from the L2, if the victim is known.
    #[inline(always)]
    fn host_prefetch_l2_victim<B: Below>(&mut self, line: u64, below: &B) {
        if !below.coherent() {
            return;
        }
        let victim = self.l2.next_victim(line);
        if let Some(line) = victim.line() {
            below.host_prefetch_drop(address(line), victim.dirty());
        }
    }

    /// Trains the L2's prefetcher by `request`.
    #[inline(always)]
    fn train_l2<const TIMED: bool, B: Below>(
        &mut self,
        line: u64,
        request: &Request,
        now: Cycle,
        below: &mut B,
    ) {
        if let Some(p) = &mut self.l2.prefetcher {
            let missed = std::mem::take(&mut self.l2.missed);
            let mut wanted = Wanted::new();
            if p.train(request.kind, line, request.pc, missed, &mut wanted) {
                self.prefetch_l2::<TIMED, B>(&wanted, request, now, below);
            }
        }
    }

    #[inline(never)]
    fn prefetch_l2<const TIMED: bool, B: Below>(
        &mut self,
        wanted: &[u64],
        cause: &Request,
        now: Cycle,
        below: &mut B,
    ) {
        for &line in wanted {
            if self.l2.find(line).is_none() {
                let request = Request {
                    at: address(line),
                    kind: RequestKind::Prefetch,
                    ..*cause
                };
                let done = access_below::<TIMED, B>(below, &request, now);
                self.fill_l2::<TIMED, B>(line, PREFETCHED, done, now, below);
            }
        }
    }

    fn fill_l2<const TIMED: bool, B: Below>(
        &mut self,
        line: u64,
        flags: u64,
        done: Done,
        now: Cycle,
        below: &mut B,
    ) {
        let victim = self.l2.fill::<TIMED>(line, flags, done.level, now, done.at);
        let Some(line) = victim.line() else {
            return;
        };
        let dirty = victim.dirty();
        let mut kept = false;
        if below.coherent() {
            if let Some(at) = self.l1d.find(line) {
                // The copy in the L1D is as new or newer. It becomes the dirty copy, so the core
                // remains the line's writer in the directory.
                if dirty {
                    self.l1d.set_flags(at, DIRTY | OWNED);
                }
                return;
            }
            kept = self.l1i.find(line).is_some();
        }
        if dirty {
            self.l2.counts.writebacks += u64::from(TIMED);
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
        for cache in [&mut self.l1i, &mut self.l1d, &mut self.l2] {
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

/// Sends a miss of `cache` at `now` to the next level. A miss first waits for a free MSHR, unless
/// it is a prefetch.
#[inline(always)]
fn through_mshrs<const TIMED: bool>(
    private: &mut Private,
    cache: impl Fn(&mut Private) -> &mut CacheArray,
    kind: RequestKind,
    now: Cycle,
    fetch: impl FnOnce(&mut Private, Cycle) -> Done,
) -> Done {
    if !TIMED {
        return fetch(private, now);
    }
    let lines = cache(private);
    lines.count_miss(kind);
    if kind == RequestKind::Prefetch {
        return fetch(private, now);
    }
    let slot = lines.mshrs.admit(now);
    lines.counts.mshr_wait_cycles += slot.start - now;
    let waited = slot.start - now;
    let mut done = fetch(private, slot.start);
    let at = cache(private).mshrs.hold(slot, done.at);
    let held = waited + (at - done.at);
    if held != 0 {
        done.held = u16::try_from(held + u64::from(done.held)).unwrap_or(u16::MAX);
    }
    done.at = at;
    done
}

impl Report for Private {
    /// Adds `l1i`, `l1d` and `l2` below `path`.
    fn report(&self, path: &str, tree: &mut Tree) {
        let starts = |name: &str, with: &[&str]| with.iter().any(|w| name.starts_with(w));
        // The L1I only sees fetches; guesses of engines go into the L2.
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
        tree.add_some(&join(path, "l1i"), &self.l1i.stats(), |n| {
            !starts(n, &not_of_l1i)
        });
        let walks = self.walks_enter == Enter::L1d;
        let not_of_l1d = ["fetch", "prefetch_", "speculative", "updates"];
        let prefetches = self.reports_software_prefetches;
        let reported = |n: &str| prefetches || !n.starts_with("software_prefetch");
        tree.add_some(&join(path, "l1d"), &self.l1d.stats(), |n| {
            !starts(n, &not_of_l1d) && (walks || !n.starts_with("walk")) && reported(n)
        });
        tree.add_some(&join(path, "l2"), &self.l2.stats(), |n| {
            (self.speculates || !n.starts_with("speculative")) && reported(n)
        });
    }
}
