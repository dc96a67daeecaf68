//! Translations that miss the filter: the TLB levels, and the walk.
//!
//! One body serves timed simulation and functional warming (`TIMED` is false). While warming, no
//! time passes and nothing is counted: each entry is ready, no request merges, and engines rest.

use std::ops::ControlFlow;

use pagewalk_memory::{Below, Level};
use pagewalk_units::{Access, Cycle, PageSize};

use super::merge::Waiting;
use super::sources::Beside;
use super::{Fault, Lookup, Mmu, NO_PAGE, ServedBy, Translated, WalkContext, WalkMshr, side};
use crate::ReadRecord;
use crate::level::{Arrival, Presence};
use crate::mapping::Mapping;
use crate::source::Place;
use crate::tlb::key;
use crate::walk::{Missing, Physical, Walked};

/// A lookup that missed both levels of TLBs.
pub(super) struct Missed {
    /// When the second level missed, and the source in its place.
    pub requested: Cycle,
    /// Cycles by which that source was slower than the arrays of the second level.
    pub beside: Cycle,
    /// For the first and the second level: the entry that covers the address but is not ready, if
    /// any.
    pub presence: [Presence; 2],
}

/// A finished walk whose result is not yet in the TLBs.
pub(super) struct EndedWalk {
    /// When a walker was requested. `start`: when one was free.
    requested: Cycle,
    start: Cycle,
    /// When the walk ended.
    pub end: Cycle,
    /// Result of the walk.
    pub found: Result<Walked, Missing>,
    /// The walk's reads; empty unless they were recorded.
    pub reads: Vec<ReadRecord>,
}

impl Mmu {
    /// Translates an address that missed the filter.
    #[inline(never)]
    pub(super) fn look_up<const TIMED: bool, B: Below>(
        &mut self,
        lookup: &Lookup,
        context: &mut WalkContext<'_, B>,
    ) -> Result<Translated, Fault> {
        let &Lookup {
            asid,
            va,
            access,
            now,
            ..
        } = lookup;
        let s = side(access);
        self.settle(s);
        if self.perfect {
            self.perfect_translations += u64::from(TIMED);
            return Ok(Translated {
                pa: self.translate_at_once(lookup, context.view)?,
                ready: now,
                walk_start: now,
                from: ServedBy::L1,
            });
        }
        let level = &mut self.l1[s];
        level.lookups += u64::from(TIMED);
        let place = level.find(asid, va.0);
        let ready = |&(a, slot): &(usize, usize)| !TIMED || level.ready(a, slot) <= now;
        let Some((a, slot)) = place.filter(ready) else {
            return self.not_ready::<TIMED, B>(lookup, place, context);
        };
        let array = &mut level.arrays[a];
        array.hits += u64::from(TIMED);
        array.touch(slot);
        let e = array.entry(slot);
        let at = if TIMED { now + self.exceeds[s] } else { now };
        if access == Access::Write && !e.writable() {
            return Err(self.raise_fault(lookup, at));
        }
        let pa = level.address(a, slot, va);
        self.set_filter(s, key(asid, PageSize::K4, va.0), pa, e, a);
        Ok(Translated {
            pa,
            ready: at,
            walk_start: at,
            from: ServedBy::L1,
        })
    }

    /// Translates an address that the first level lacks, or holds at `place` in an entry that is
    /// not ready.
    // Not inlined: a hit would otherwise save and restore the registers that this function needs.
    #[inline(never)]
    fn not_ready<const TIMED: bool, B: Below>(
        &mut self,
        lookup: &Lookup,
        place: Option<(usize, usize)>,
        context: &mut WalkContext<'_, B>,
    ) -> Result<Translated, Fault> {
        if TIMED
            && let Some((a, slot)) = place
            && let Some((mshr, second)) = self.find_mshr_of_entry(lookup, (a, slot))
        {
            self.l1[side(lookup.access)].arrays[a].waits += 1;
            let waiting = Waiting::Entry {
                slots: [slot, second],
            };
            return self.merge(mshr, waiting, lookup, context);
        }
        self.miss::<TIMED, B>(lookup, Presence::of(place), context)
    }

    /// Translates an address after the first level, whose entry `first` is absent or not ready and
    /// names no walk to merge with. A request that waits for an entry on its way is not a miss,
    /// unless it has to walk itself.
    #[inline(always)]
    fn miss<const TIMED: bool, B: Below>(
        &mut self,
        lookup: &Lookup,
        first: Presence,
        context: &mut WalkContext<'_, B>,
    ) -> Result<Translated, Fault> {
        let s = side(lookup.access);
        let mut beside = None;
        if self.asks_beside {
            let nearest = self.ask_beside::<TIMED, B>(lookup, (&[Place::BesideL1], TIMED), context);
            if let Some(hit) = nearest.hit {
                return Ok(self.answer_beside_l1(lookup, hit));
            }
            let places = [Place::BesideL2, Place::InsteadOfL2];
            let counted = TIMED && first == Presence::ABSENT;
            beside = Some(self.ask_beside::<TIMED, B>(lookup, (&places, counted), context));
        }
        let missed = match self.second_level::<TIMED>(lookup, first, beside) {
            ControlFlow::Continue(missed) => missed,
            ControlFlow::Break(answer) => {
                if TIMED {
                    self.count_miss(s, first);
                }
                if self.prefetching.is_some() {
                    self.first_use::<TIMED, B>(lookup, &answer, context);
                }
                return answer;
            }
        };
        if TIMED {
            if let Some(i) = self.find_mshr(lookup) {
                self.count_miss(s, first);
                if first == Presence::ABSENT {
                    self.stats.l2_waits += 1;
                    let second = self.second(s);
                    if let (Some(level), Some((a, _))) =
                        (&mut self.l2[second], missed.presence[1].place())
                    {
                        level.arrays[a].waits += 1;
                    }
                }
                let answer = self.merge(i, Waiting::Miss(&missed), lookup, context);
                if self.prefetching.is_some() {
                    self.first_use::<TIMED, B>(lookup, &answer, context);
                }
                return answer;
            }
            self.count_miss(s, Presence::ABSENT);
        }
        if self.prefetching.is_some() {
            return self.miss_and_prefetch::<TIMED, B>(lookup, &missed, context);
        }
        self.beyond_tlbs::<TIMED, B>(lookup, &missed, context)
    }

    /// Translates an address that missed all TLBs of the core and has no walk MSHR.
    #[inline(always)]
    pub(super) fn beyond_tlbs<const TIMED: bool, B: Below>(
        &mut self,
        lookup: &Lookup,
        missed: &Missed,
        context: &mut WalkContext<'_, B>,
    ) -> Result<Translated, Fault> {
        let mut requested = missed.requested;
        if !self.sources.is_empty() {
            match self.ask_behind::<TIMED, B>(lookup, missed, context) {
                Ok(answer) => {
                    self.follow_evictions::<TIMED, B>(answer.ready, context);
                    return Ok(answer);
                }
                Err(at) => requested = at,
            }
        }
        if !TIMED {
            return self.warm_walk(lookup, missed, context);
        }
        let ended = self.walk_from(lookup, requested, context);
        if self.sources.is_empty() {
            return self.finish(lookup, missed, ended);
        }
        let (found, end) = (ended.found.ok(), ended.end);
        let answer = self.finish(lookup, missed, ended);
        if let Some(walked) = found {
            self.fill_sources::<TIMED, B>(lookup, &walked, end, context);
        }
        answer
    }

    /// If the first level of side `s` lacks the address (`first`), counts a miss there and a lookup
    /// of the second level. If it has an entry that is not ready, counts a wait for that entry.
    #[inline(always)]
    fn count_miss(&mut self, s: usize, first: Presence) {
        if let Some((a, _)) = first.place() {
            self.l1[s].arrays[a].waits += 1;
            return;
        }
        self.l1[s].misses += 1;
        let second = self.second(s);
        if let Some(level) = &mut self.l2[second] {
            level.lookups += 1;
        }
    }

    /// Looks up the second level. Breaks with the result on a hit, else with `beside`, the hit of
    /// a source beside it.
    #[inline(always)]
    fn second_level<const TIMED: bool>(
        &mut self,
        lookup: &Lookup,
        first: Presence,
        beside: Option<Beside>,
    ) -> ControlFlow<Result<Translated, Fault>, Missed> {
        let &Lookup {
            asid,
            va,
            access,
            now,
            ..
        } = lookup;
        let mut missed = Missed {
            requested: now,
            beside: 0,
            presence: [first, Presence::ABSENT],
        };
        let second = self.second(side(access));
        let place = match &mut self.l2[second] {
            None => None,
            Some(level) => {
                if TIMED {
                    missed.requested += level.latency;
                }
                let place = level.find(asid, va.0);
                missed.presence[1] = Presence::of(place);
                place.filter(|&(a, slot)| !TIMED || level.ready(a, slot) <= now)
            }
        };
        if let Some((a, slot)) = place
            && let Some(level) = &mut self.l2[second]
        {
            let array = &mut level.arrays[a];
            let missed = u64::from(TIMED && first == Presence::ABSENT);
            array.hits += missed;
            array.touch(slot);
            let at = if TIMED { now + array.latency } else { now };
            let mapping = array.mapping(slot);
            self.stats.l2_hits += missed;
            if access == Access::Write && !mapping.writable {
                return ControlFlow::Break(Err(self.raise_fault(lookup, at)));
            }
            let arrival = Arrival {
                asid,
                va,
                mapping,
                ready: if TIMED { at } else { 0 },
                counted: TIMED,
                fetched: first == Presence::ABSENT,
            };
            self.fill_l1(side(access), &arrival, first);
            return ControlFlow::Break(Ok(Translated {
                pa: mapping.pa(va),
                ready: at,
                walk_start: at,
                from: ServedBy::L2,
            }));
        }
        let Some(beside) = beside else {
            return ControlFlow::Continue(missed);
        };
        if let Some(hit) = beside.hit {
            let answer = self.answer_beside_l2::<TIMED>(lookup, first, hit);
            return ControlFlow::Break(Ok(answer));
        }
        missed.beside = beside.known.saturating_sub(missed.requested);
        missed.requested += missed.beside;
        ControlFlow::Continue(missed)
    }

    /// Index of the second level that serves side `s`.
    #[inline(always)]
    pub(super) fn second(&self, s: usize) -> usize {
        s & usize::from(self.l2[1].is_some())
    }

    /// Requests a walker at `requested`, and walks as soon as one is free. Appends the reads to
    /// `notes`, if given.
    #[inline(always)]
    pub(super) fn walk<B: Below>(
        &mut self,
        lookup: &Lookup,
        requested: Cycle,
        mut notes: Option<Vec<ReadRecord>>,
        context: &mut WalkContext<'_, B>,
    ) -> EndedWalk {
        let &Lookup { asid, va, .. } = lookup;
        if let Some(level) = &self.l2[self.second(side(lookup.access))] {
            level.host_prefetch_fill(asid, va.0);
        }
        let walker = self.walkers.admit(requested);
        let start = walker.start;
        let before = self.walk_reads[Level::Memory as usize];
        let speculation = self.speculation.as_deref_mut();
        let nested_steps = speculation
            .filter(|s| s.guesses_nested_steps)
            .map(|s| s.nested_steps(lookup, context));
        let mut port = Physical {
            private: context.private,
            below: context.below,
            core: self.core,
            served: &mut self.walk_reads,
            record: notes.as_mut(),
            nested_steps,
        };
        let (mut end, found) = self.caches.walk(context.view, va, asid, &mut port, start);
        if let Some(first) = &mut self.first_touches
            && first.pages.remove(&key(asid, PageSize::K4, va.0))
        {
            end += first.cycles;
        }
        self.walk_read_memory = self.walk_reads[Level::Memory as usize] > before;
        self.walkers.hold(walker, end);
        self.latest = self.latest.max(end);
        let st = &mut self.stats;
        st.walks += 1;
        st.walk_cycles += end - start;
        st.walker_wait_cycles += start - requested;
        self.walk_latency.record(end - start);
        if start > requested {
            self.walker_wait.record(start - requested);
        }
        EndedWalk {
            requested,
            start,
            end,
            found,
            reads: notes.unwrap_or_default(),
        }
    }

    /// Requests a walker at `requested` and walks. An engine, if there is one, guesses before the
    /// walk.
    #[inline(always)]
    pub(super) fn walk_from<B: Below>(
        &mut self,
        lookup: &Lookup,
        requested: Cycle,
        context: &mut WalkContext<'_, B>,
    ) -> EndedWalk {
        if self.speculation.is_some() {
            return self.walk_and_guess(lookup, requested, context);
        }
        let notes = self.records.as_ref().map(|_| Vec::new());
        self.walk(lookup, requested, notes, context)
    }

    /// Puts the result of a walk into the TLBs and allocates a walk MSHR for it.
    #[inline(always)]
    pub(super) fn finish(
        &mut self,
        lookup: &Lookup,
        missed: &Missed,
        ended: EndedWalk,
    ) -> Result<Translated, Fault> {
        let &Lookup {
            asid, va, access, ..
        } = lookup;
        let (began, end) = (ended.start, ended.end);
        let outcome = match &ended.found {
            Ok(walked) => {
                let mapping = Mapping::of(walked);
                let arrival = Arrival {
                    asid,
                    va,
                    mapping,
                    ready: end,
                    counted: true,
                    fetched: true,
                };
                self.fill(side(access), &arrival, missed.presence);
                let mshr = WalkMshr {
                    requested: missed.requested,
                    tlb_lookup_done: ended.requested,
                    walk_start: began,
                    end,
                    mapping,
                    memory: self.walk_read_memory,
                    from: ServedBy::Walk,
                };
                self.allocate_mshr(key(asid, PageSize::K4, va.0), mshr);
                if access == Access::Write && !mapping.writable {
                    Err(self.raise_fault(lookup, end))
                } else {
                    Ok(Translated {
                        pa: mapping.pa(va),
                        ready: end,
                        walk_start: began,
                        from: ServedBy::Walk,
                    })
                }
            }
            Err(missing) => Err(Fault {
                host: missing.behind(),
                ..self.raise_fault(lookup, end)
            }),
        };
        if self.records.is_some() {
            self.record(
                lookup,
                (ended.start, end),
                false,
                outcome.is_err(),
                ended.reads,
            );
        }
        outcome
    }

    /// Puts a translation into the first level of side `s`. `presence`: the entry that already
    /// covers its address there.
    #[inline]
    pub(super) fn fill_l1(&mut self, s: usize, arrival: &Arrival, presence: Presence) {
        if let Some((a, e)) = self.l1[s].fill(arrival, presence, true) {
            let page = key(arrival.asid, PageSize::K4, arrival.va.0);
            let page = page | self.unfiltered_fills[s];
            self.set_filter(s, page, arrival.mapping.pa(arrival.va), e, a);
        } else {
            self.filter[s] = NO_PAGE;
        }
    }

    /// Puts a translation into both levels. `presence`: the entries that already cover its address
    /// in the first and the second.
    #[inline]
    pub(super) fn fill(&mut self, s: usize, arrival: &Arrival, presence: [Presence; 2]) {
        let second = self.second(s);
        if let Some(level) = &mut self.l2[second] {
            let used = presence[0] == Presence::ABSENT;
            level.fill(arrival, presence[1], used);
        }
        self.fill_l1(s, arrival, presence[0]);
    }
}
