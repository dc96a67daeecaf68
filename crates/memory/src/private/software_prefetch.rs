//! Software prefetches.
//!
//! A prefetch takes an MSHR of each cache that it misses, or does nothing. It never waits for one,
//! and trains no hardware prefetcher.

use pagewalk_units::{Cycle, LINE_SHIFT, PrefetchHint};

use super::{Private, access_below, hit, request_ownership};
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
        let first = !matches!(hint, PrefetchHint::T1 | PrefetchHint::T2);
        let mut outcome = SoftwarePrefetched::Present;
        if let Some(at) = self.l1d.find(line) {
            if first {
                hit::<TIMED>(&mut self.l1d, at, request.kind, now);
                self.l1d.missed = false;
            }
        } else if first {
            let fills = hint != PrefetchHint::Nta;
            let from = |p: &mut Self| {
                let done = p.serve_at_l2::<TIMED, B>(line, request, fills, now, below)?;
                Some(p.through_fill_port::<TIMED>(done))
            };
            let Some(done) = at_once::<TIMED>(self, |p| &mut p.l1d, request.kind, now, from) else {
                return SoftwarePrefetched::Dropped;
            };
            let flags = self.owned_below(line, below);
            self.fill_data::<TIMED, B>(line, flags, done, now, below);
            outcome = SoftwarePrefetched::Requested;
        } else {
            let second = self.l2.find(line).is_some();
            let fills = hint == PrefetchHint::T1;
            if second && !fills {
                return outcome;
            }
            if self
                .serve_at_l2::<TIMED, B>(line, request, fills, now, below)
                .is_none()
            {
                return SoftwarePrefetched::Dropped;
            }
            if !second {
                outcome = SoftwarePrefetched::Requested;
            }
            if !second && !fills && below.coherent() && self.l1i.find(line).is_none() {
                below.dropped(request.at, self.core);
            }
        }
        if hint == PrefetchHint::Write
            && below.coherent()
            && let Some(at) = self.l1d.find(line)
        {
            let store = Request {
                kind: RequestKind::Store,
                ..*request
            };
            let ready = self.l1d.ready(at).max(now);
            request_ownership::<TIMED, B>(&mut self.l1d, at, &store, ready, below);
            self.l1d.set_flags(at, OWNED);
        }
        outcome
    }

    /// Serves the prefetch at the L2. `fills`: the line is kept there. `None`: no MSHR is free.
    fn serve_at_l2<const TIMED: bool, B: Below>(
        &mut self,
        line: u64,
        request: &Request,
        fills: bool,
        now: Cycle,
        below: &mut B,
    ) -> Option<Done> {
        if let Some(at) = self.l2.find(line) {
            let done = hit::<TIMED>(&mut self.l2, at, request.kind, now);
            self.l2.missed = false;
            return Some(done);
        }
        let fetch = |_: &mut Self| Some(access_below::<TIMED, B>(below, request, now));
        let done = at_once::<TIMED>(self, |p| &mut p.l2, request.kind, now, fetch)?;
        if fills {
            self.fill_l2::<TIMED, B>(line, 0, done, now, below);
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
