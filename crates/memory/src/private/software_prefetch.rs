//! Software prefetches.
//!
//! A prefetch takes an MSHR of each cache that it misses, or does nothing. It never waits for one,
//! and trains no hardware prefetcher.

use pagewalk_units::{Cycle, LINE_SHIFT, PrefetchHint};

use super::{DATA, Private, access_below, has, hit, request_ownership};
use crate::cache_array::{CacheArray, OWNED};
use crate::{Below, Done, Request, RequestKind};

/// Outcome of a software prefetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoftwarePrefetched {
    /// A cache that its hint names has the line, or has requested it.
    Present,
    /// The line is requested.
    Requested,
    /// A cache that it misses has no free MSHR.
    Dropped,
}

impl Private {
    /// Serves a software prefetch at `now`.
    #[inline(never)]
    pub fn software_prefetch<B: Below>(
        &mut self,
        request: Request,
        hint: PrefetchHint,
        now: Cycle,
        below: &mut B,
    ) -> SoftwarePrefetched {
        self.serve_prefetch::<true, B>(&request, hint, now, below)
    }

    /// Functional warming by [`Private::software_prefetch`].
    #[inline(never)]
    pub fn warm_software_prefetch<B: Below>(
        &mut self,
        request: Request,
        hint: PrefetchHint,
        below: &mut B,
    ) {
        self.serve_prefetch::<false, B>(&request, hint, 0, below);
    }

    fn serve_prefetch<const TIMED: bool, B: Below>(
        &mut self,
        request: &Request,
        hint: PrefetchHint,
        now: Cycle,
        below: &mut B,
    ) -> SoftwarePrefetched {
        let line = request.at.0 >> LINE_SHIFT;
        let (l2, levels) = (self.l2, self.further.len());
        // The levels behind the first keep the line from this one on.
        let (first, keeps) = match hint {
            PrefetchHint::T0 | PrefetchHint::Write => (true, 0),
            PrefetchHint::Nta => (true, levels),
            PrefetchHint::T1 => (false, l2),
            PrefetchHint::T2 => (false, l2 + 1),
        };
        let mut outcome = SoftwarePrefetched::Present;
        if let Some(at) = self.first[DATA].find(line) {
            if first {
                hit::<TIMED>(&mut self.first[DATA], at, request.kind, now);
                self.first[DATA].missed = false;
            }
        } else if first {
            let from = |p: &mut Self| p.prefetch_behind::<TIMED, B>(0, request, keeps, now, below);
            let Some(done) =
                at_once::<TIMED>(self, |p| &mut p.first[DATA], request.kind, now, from)
            else {
                return SoftwarePrefetched::Dropped;
            };
            let flags = self.owned_first::<DATA, B>(line, below);
            self.fill_first::<DATA, TIMED, B>(line, flags, done, now, below);
            outcome = SoftwarePrefetched::Requested;
        } else {
            let has = |cache: &CacheArray| has(cache, line);
            if self.further.iter().take(keeps).any(has) {
                return outcome;
            }
            let present = self.further.iter().nth(keeps).is_some_and(has);
            if self
                .prefetch_from::<TIMED, B>(l2, request, keeps, now, below)
                .is_none()
            {
                return SoftwarePrefetched::Dropped;
            }
            if !present {
                outcome = SoftwarePrefetched::Requested;
            }
            if keeps == levels && below.coherent() && !self.holds(line) {
                below.dropped(request.at, self.core);
            }
        }
        if hint == PrefetchHint::Write
            && below.coherent()
            && let Some(at) = self.first[DATA].find(line)
        {
            let store = Request {
                kind: RequestKind::Store,
                ..*request
            };
            let cache = &mut self.first[DATA];
            let ready = cache.ready(at).max(now);
            request_ownership::<TIMED, B>(cache, at, &store, ready, below);
            cache.set_flags(at, OWNED);
        }
        outcome
    }

    /// Serves the prefetch at the further level `n`, or below if there is none. The levels from
    /// `keeps` on keep the line. `None`: no MSHR is free.
    fn prefetch_from<const TIMED: bool, B: Below>(
        &mut self,
        n: usize,
        request: &Request,
        keeps: usize,
        now: Cycle,
        below: &mut B,
    ) -> Option<Done> {
        let line = request.at.0 >> LINE_SHIFT;
        if n == self.further.len() {
            return Some(access_below::<TIMED, B>(below, request, now));
        }
        let cache = &mut self.further[n];
        let done = if let Some(at) = cache.find(line) {
            let done = hit::<TIMED>(cache, at, request.kind, now);
            cache.missed = false;
            done
        } else {
            let fetch =
                |p: &mut Self| p.prefetch_behind::<TIMED, B>(n + 1, request, keeps, now, below);
            let done = at_once::<TIMED>(self, |p| &mut p.further[n], request.kind, now, fetch)?;
            if n >= keeps {
                let flags = self.owned_behind(n, line, below);
                self.fill_further::<false, TIMED, B>(n, line, flags, done, now, below);
            }
            done
        };
        Some(done)
    }

    /// As [`Private::prefetch_from`], for the level above, which holds data.
    fn prefetch_behind<const TIMED: bool, B: Below>(
        &mut self,
        n: usize,
        request: &Request,
        keeps: usize,
        now: Cycle,
        below: &mut B,
    ) -> Option<Done> {
        let done = self.prefetch_from::<TIMED, B>(n, request, keeps, now, below)?;
        if n == self.l2 {
            return Some(self.through_fill_port::<TIMED>(done));
        }
        Some(done)
    }
}

/// Sends a miss of `cache` to the next level, if an MSHR is free at `now`.
fn at_once<const TIMED: bool>(
    private: &mut Private,
    cache: impl Fn(&mut Private) -> &mut CacheArray,
    kind: RequestKind,
    now: Cycle,
    fetch: impl FnOnce(&mut Private) -> Option<Done>,
) -> Option<Done> {
    if !TIMED {
        return fetch(private);
    }
    let lines = cache(private);
    lines.count_miss(kind);
    let slot = lines.mshrs.admit_at_once(now)?;
    let mut done = fetch(private)?;
    done.at = cache(private).mshrs.hold(slot, done.at);
    Some(done)
}
