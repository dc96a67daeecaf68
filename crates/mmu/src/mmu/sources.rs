//! The MMU's translation sources: the order in which they are asked, and the effect of a hit.

use pagewalk_memory::{Below, Done, L2Use, Level, Private};
use pagewalk_stats::Tree;
use pagewalk_structures::StaleOutcomes;
use pagewalk_tables::View;
use pagewalk_units::{Access, Asid, Cycle, PageSize, PhysAddr, VirtAddr};

use super::miss::Missed;
use super::{Lookup, Mmu, NO_PC, ServedBy, Translated, WalkContext, WalkMshr, side};
use crate::level::{Arrival, Presence};
use crate::source::{Found, Hit, Lines, Place, Ports, Probed, TranslationSource};
use crate::tlb::key;
use crate::walk::{LEVELS, Physical, Until, Walked, request, translate_untimed};

pagewalk_stats::counters! {
    /// Counters of the walks that one source saved, and of those that it asked for.
    pub struct SourceStats {
        walks_avoided: "translations", "Translations that missed all TLBs of the core and that the source had, so that no walk was made, or it was ended. They are misses of the last TLB";
        merged: "translations", "Translations that merged with a lookup of this source in progress, which hit";
        walks_ended: "walks", "Walks in progress that a hit ended; not among the MMU's walks";
        ended_reads: "reads", "Page-table reads of the ended walks; not among the MMU's walk_reads";
        own_walks: "walks", "Walks in the background that the source asked for; not among the MMU's walks";
        own_reads: "reads", "Page-table reads of these walks; not among the MMU's walk_reads";
    }
}

/// A source of a core.
pub(super) struct Slot {
    place: Place,
    pub(super) source: Box<dyn TranslationSource>,
    /// Not reported for the buffers of other parts of the MMU.
    configured: bool,
    pub(super) stats: SourceStats,
}

/// Outcome of the lookups in the sources beside a level.
pub(super) struct Beside {
    /// The first hit in the order of the sources.
    pub hit: Option<(usize, Hit)>,
    /// Cycle at which a miss of the source in place of the level is known.
    pub known: Cycle,
}

/// The lines of one core.
struct CoreLines<'a, B, const TIMED: bool> {
    private: &'a mut Private,
    below: &'a mut B,
    core: u8,
}

impl<B: Below, const TIMED: bool> Lines for CoreLines<'_, B, TIMED> {
    fn read(&mut self, at: PhysAddr, now: Cycle) -> Done {
        let request = request(at, self.core);
        if TIMED {
            return self.private.access(request, now, self.below);
        }
        self.private.warm(request, self.below);
        Done::new(now, Level::L1)
    }

    fn update(&mut self, at: PhysAddr, now: Cycle) -> Done {
        let request = request(at, self.core);
        if TIMED {
            return self.private.update(request, now, self.below);
        }
        self.private.warm_update(request, self.below);
        Done::new(now, Level::L1)
    }

    fn probe_block(&mut self, number: u64, now: Cycle) -> Option<Cycle> {
        let at = self.private.probe_block(number)?;
        if TIMED {
            return (at <= now).then(|| now + self.private.l2_latency());
        }
        Some(now)
    }

    fn has_block(&mut self, number: u64) -> bool {
        self.private.probe_block(number).is_some()
    }

    fn insert_block(&mut self, number: u64, now: Cycle) {
        self.private
            .insert_block::<TIMED, B>(number, now, self.below);
    }

    fn prefer_blocks(&mut self, prefers: bool) {
        self.private.prefer_blocks(prefers);
    }

    fn l2_use(&self) -> L2Use {
        self.private.l2_use()
    }
}

/// Calls `work` with the ports of core `core`. `counted`: count what happens.
fn with_ports<const TIMED: bool, B: Below, T>(
    core: u8,
    counted: bool,
    context: &mut WalkContext<'_, B>,
    work: impl FnOnce(&mut Ports<'_>) -> T,
) -> T {
    let mut lines = CoreLines::<B, TIMED> {
        private: context.private,
        below: context.below,
        core,
    };
    work(&mut Ports {
        lines: &mut lines,
        timed: TIMED,
        counted,
    })
}

impl Mmu {
    /// Adds a source, which is asked at `place`, after those of this place that were added before.
    pub fn add_source(&mut self, place: Place, source: Box<dyn TranslationSource>) {
        self.add(place, source, true);
    }

    /// Adds a buffer of another part of the MMU, which is asked before a walk. Returns its index.
    pub(super) fn add_buffer(&mut self, source: Box<dyn TranslationSource>) -> usize {
        self.add(Place::BeforeWalk, source, false)
    }

    fn add(&mut self, place: Place, source: Box<dyn TranslationSource>, configured: bool) -> usize {
        if source.wants_evictions()
            && let Some(level) = &mut self.l2[0]
        {
            level.note_evictions();
            self.sees_evictions = true;
        }
        self.asks_beside |= !matches!(place, Place::BeforeWalk | Place::WithWalk);
        if place == Place::InsteadOfL2
            && let Some(level) = &mut self.l2[0]
            && level.remove_small()
        {
            self.l2[0] = None;
        }
        self.sources.push(Slot {
            place,
            source,
            configured,
            stats: SourceStats::default(),
        });
        self.sources.len() - 1
    }

    /// The source of this index.
    pub(super) fn source(&mut self, i: usize) -> &mut dyn TranslationSource {
        &mut *self.sources[i].source
    }

    /// All sources.
    pub(super) fn each_source(&mut self) -> impl Iterator<Item = &mut dyn TranslationSource> {
        self.sources.iter_mut().map(|slot| &mut *slot.source as _)
    }

    /// Marks the entries of the sources as stale. After filtered functional warming (`filtered`)
    /// only those beside the first level are.
    pub(super) fn mark_sources_stale(&mut self, filtered: bool) {
        for slot in &mut self.sources {
            if !filtered || slot.place == Place::BesideL1 {
                slot.source.mark_stale();
            }
        }
    }

    /// Lookups of the sources whose outcome is uncertain because of stale entries: of those beside
    /// the first level, beside or in place of the second, and behind both.
    pub(super) fn stale_sources(&self) -> [StaleOutcomes; 3] {
        let mut all = [StaleOutcomes::default(); 3];
        for slot in &self.sources {
            let level = match slot.place {
                Place::BesideL1 => 0,
                Place::BesideL2 | Place::InsteadOfL2 => 1,
                Place::BeforeWalk | Place::WithWalk => 2,
            };
            all[level] += slot.source.stale();
        }
        all
    }

    /// True if filtered functional warming leaves every source as full functional warming does.
    pub(super) fn sources_can_filtered_warm(&self) -> bool {
        (self.sources.iter()).all(|slot| slot.source.can_filtered_warm())
    }

    /// Asks source `i` from cycle `at` on. `counted`: count it.
    fn ask<const TIMED: bool, B: Below>(
        &mut self,
        i: usize,
        lookup: &Lookup,
        (at, counted): (Cycle, bool),
        context: &mut WalkContext<'_, B>,
    ) -> Probed {
        let lookup = Lookup { now: at, ..*lookup };
        let source = &mut self.sources[i].source;
        let probed = with_ports::<TIMED, B, _>(self.core, counted, context, |ports| {
            source.probe(&lookup, ports)
        });
        if let Probed::Hit(hit) = &probed {
            debug_assert!(
                is_up_to_date(&lookup, hit, context.view),
                "a translation of {} is out of date: {} of {:?}",
                self.sources[i].source.name(),
                lookup.va,
                lookup.asid
            );
        }
        probed
    }

    /// Asks the sources at `places` beside a level, which are looked up in parallel.
    #[inline(never)]
    pub(super) fn ask_beside<const TIMED: bool, B: Below>(
        &mut self,
        lookup: &Lookup,
        (places, counted): (&[Place], bool),
        context: &mut WalkContext<'_, B>,
    ) -> Beside {
        let mut beside = Beside {
            hit: None,
            known: lookup.now,
        };
        for i in 0..self.sources.len() {
            let place = self.sources[i].place;
            if !places.contains(&place) {
                continue;
            }
            match self.ask::<TIMED, B>(i, lookup, (lookup.now, counted), context) {
                Probed::Hit(hit) => {
                    beside.hit.get_or_insert((i, hit));
                }
                Probed::Miss { at } if place == Place::InsteadOfL2 => beside.known = at,
                Probed::Miss { .. } => {}
            }
        }
        beside
    }

    /// The answer of a source beside the first level: a hit of that level.
    pub(super) fn answer_beside_l1(&self, lookup: &Lookup, (i, hit): (usize, Hit)) -> Translated {
        let at = hit.at.max(lookup.now + self.exceeds[side(lookup.access)]);
        Translated {
            pa: hit.extent.pa(lookup.va),
            ready: at,
            walk_start: at,
            from: ServedBy::Source(i as u8),
        }
    }

    /// Fills the first level after the hit of a source beside the second. `first`: the entry that
    /// already covers the address in the first level.
    pub(super) fn answer_beside_l2<const TIMED: bool>(
        &mut self,
        lookup: &Lookup,
        first: Presence,
        (i, hit): (usize, Hit),
    ) -> Translated {
        let &Lookup {
            asid, va, access, ..
        } = lookup;
        let mapping = hit.extent.mapping(va, hit.largest);
        let arrival = Arrival {
            asid,
            va,
            mapping,
            ready: if TIMED { hit.at } else { 0 },
            counted: TIMED,
            fetched: first == Presence::ABSENT,
        };
        self.fill_l1(side(access), &arrival, first);
        if TIMED && first == Presence::ABSENT {
            self.sources[i].source.served();
        }
        Translated {
            pa: mapping.pa(va),
            ready: hit.at,
            walk_start: hit.at,
            from: ServedBy::Source(i as u8),
        }
    }

    /// Asks the sources behind the TLBs. Returns the translation, or the cycle at which a walker is
    /// requested.
    #[inline(never)]
    pub(super) fn ask_behind<const TIMED: bool, B: Below>(
        &mut self,
        lookup: &Lookup,
        missed: &Missed,
        context: &mut WalkContext<'_, B>,
    ) -> Result<Translated, Cycle> {
        let mut at = missed.requested;
        for i in 0..self.sources.len() {
            if self.sources[i].place != Place::BeforeWalk {
                continue;
            }
            match self.ask::<TIMED, B>(i, lookup, (at, TIMED), context) {
                Probed::Hit(hit) => {
                    return Ok(self.answer_behind::<TIMED>(lookup, missed, (i, hit)));
                }
                Probed::Miss { at: known } => at = known,
            }
        }
        let mut first: Option<(usize, Hit)> = None;
        for i in 0..self.sources.len() {
            if self.sources[i].place == Place::WithWalk
                && let Probed::Hit(hit) = self.ask::<TIMED, B>(i, lookup, (at, TIMED), context)
                && first.is_none_or(|(_, earlier)| hit.at < earlier.at)
            {
                first = Some((i, hit));
            }
        }
        if let Some((i, hit)) = first {
            if TIMED {
                self.walk_until(i, lookup, (at, hit.at), context);
            }
            return Ok(self.answer_behind::<TIMED>(lookup, missed, (i, hit)));
        }
        if TIMED {
            self.source_cycles[side(lookup.access)] = at - missed.requested + missed.beside;
        }
        Err(at)
    }

    /// Fills both levels after the hit of a source behind the TLBs. Later misses merge with a
    /// lookup that takes time.
    fn answer_behind<const TIMED: bool>(
        &mut self,
        lookup: &Lookup,
        missed: &Missed,
        (i, hit): (usize, Hit),
    ) -> Translated {
        let &Lookup {
            asid, va, access, ..
        } = lookup;
        let (at, from) = (hit.at, ServedBy::Source(i as u8));
        let mapping = hit.extent.mapping(va, hit.largest);
        self.sources[i].stats.walks_avoided += u64::from(TIMED);
        let arrival = Arrival {
            asid,
            va,
            mapping,
            ready: if TIMED { at } else { 0 },
            counted: TIMED,
            fetched: true,
        };
        self.fill(side(access), &arrival, missed.presence);
        if TIMED && at > missed.requested {
            self.latest = self.latest.max(at);
            let mshr = WalkMshr {
                requested: missed.requested,
                tlb_lookup_done: at,
                walk_start: at,
                end: at,
                mapping,
                memory: hit.memory,
                from,
            };
            self.allocate_mshr(key(asid, PageSize::K4, va.0), mshr);
        }
        Translated {
            pa: mapping.pa(va),
            ready: at,
            walk_start: at,
            from,
        }
    }

    /// The walk that is requested at `requested` and that a hit of source `i` ends at `until`.
    fn walk_until<B: Below>(
        &mut self,
        i: usize,
        lookup: &Lookup,
        (requested, until): (Cycle, Cycle),
        context: &mut WalkContext<'_, B>,
    ) {
        let walker = self.walkers.admit(requested);
        let start = walker.start;
        if start < until {
            let mut served = [0; LEVELS];
            let port = Physical {
                private: context.private,
                below: context.below,
                core: self.core,
                served: &mut served,
                record: None,
                nested_steps: None,
            };
            let mut port = Until { port, until };
            let &Lookup { asid, va, .. } = lookup;
            let _ = self.caches.walk(context.view, va, asid, &mut port, start);
            let stats = &mut self.sources[i].stats;
            stats.walks_ended += 1;
            stats.ended_reads += served.iter().sum::<u64>();
        }
        self.walkers.hold(walker, until.max(start));
    }

    /// Fills the sources with the result of the walk for `lookup`, which ended at `at`.
    #[inline(never)]
    pub(super) fn fill_sources<const TIMED: bool, B: Below>(
        &mut self,
        lookup: &Lookup,
        walked: &Walked,
        at: Cycle,
        context: &mut WalkContext<'_, B>,
    ) {
        let found = Found {
            lookup,
            walked,
            at: if TIMED { at } else { 0 },
            read_memory: !TIMED || self.walk_read_memory,
            after_eviction: false,
            view: context.view,
        };
        with_ports::<TIMED, B, _>(self.core, TIMED, context, |ports| {
            for slot in &mut self.sources {
                slot.source.fill(&found, ports);
            }
        });
        self.follow_evictions::<TIMED, B>(at, context);
    }

    /// Tells the sources which entries the second level has evicted, and makes the walks that they
    /// ask for from cycle `now` on.
    pub(super) fn follow_evictions<const TIMED: bool, B: Below>(
        &mut self,
        now: Cycle,
        context: &mut WalkContext<'_, B>,
    ) {
        if !self.sees_evictions {
            return;
        }
        while let Some((asid, page)) = self.l2[0].as_mut().and_then(|level| level.take_evicted()) {
            for i in 0..self.sources.len() {
                let source = &mut self.sources[i].source;
                let wants_walk = with_ports::<TIMED, B, _>(self.core, TIMED, context, |ports| {
                    source.evicted(asid, &page, ports)
                });
                if wants_walk {
                    self.walk_for_source::<TIMED, B>(i, (asid, page.va), now, context);
                }
            }
        }
    }

    /// Walks for source `i` in the background, and fills it.
    fn walk_for_source<const TIMED: bool, B: Below>(
        &mut self,
        i: usize,
        (asid, va): (Asid, VirtAddr),
        now: Cycle,
        context: &mut WalkContext<'_, B>,
    ) {
        let (walked, at, read_memory) = if TIMED {
            let walk = self.walk_in_background(asid, va, now, context);
            let stats = &mut self.sources[i].stats;
            stats.own_walks += 1;
            stats.own_reads += walk.served.iter().sum::<u64>();
            (
                walk.found,
                walk.end,
                walk.served[Level::Memory as usize] > 0,
            )
        } else {
            (self.walk_untimed(asid, va, now, context).ok(), 0, true)
        };
        let Some(walked) = walked else { return };
        let lookup = Lookup {
            asid,
            va,
            access: Access::Read,
            pc: NO_PC,
            now,
        };
        let found = Found {
            lookup: &lookup,
            walked: &walked,
            at,
            read_memory,
            after_eviction: true,
            view: context.view,
        };
        let source = &mut self.sources[i].source;
        with_ports::<TIMED, B, _>(self.core, TIMED, context, |ports| {
            source.fill(&found, ports)
        });
    }

    /// Tells the sources of a page that is used during fast-forward. No cache is touched.
    pub fn fast_forward(&mut self, asid: Asid, va: VirtAddr, view: &View<'_>) {
        let Ok(walked) = translate_untimed(view, va) else {
            return;
        };
        let lookup = self.untimed(asid, va, Access::Read, NO_PC);
        let found = Found {
            lookup: &lookup,
            walked: &walked,
            at: 0,
            read_memory: false,
            after_eviction: false,
            view,
        };
        for slot in &mut self.sources {
            slot.source.fast_forward(&found);
        }
    }

    /// Translations that sources behind the TLBs had.
    pub(super) fn walks_avoided(&self) -> u64 {
        (self.sources.iter()).map(|s| s.stats.walks_avoided).sum()
    }

    /// Adds the counters of the configured sources below `path`.
    pub(super) fn report_sources(&self, path: &str, tree: &mut Tree) {
        for (i, slot) in self.sources.iter().enumerate() {
            if slot.configured {
                self.report_source(i, path, tree);
                let path = format!("{path}.{}.asked", slot.source.name());
                tree.add(&path, &slot.stats);
            }
        }
    }

    /// Adds the counters of source `i` below `path`.
    pub(super) fn report_source(&self, i: usize, path: &str, tree: &mut Tree) {
        let source = &self.sources[i].source;
        source.report(&format!("{path}.{}", source.name()), tree);
    }
}

/// True if the page tables agree with a hit, which permits the access.
fn is_up_to_date(lookup: &Lookup, hit: &Hit, view: &View<'_>) -> bool {
    let (va, held) = (lookup.va, &hit.extent);
    let may = held.writable || lookup.access != Access::Write;
    may && translate_untimed(view, va)
        .is_ok_and(|walked| walked.pa(va) == held.pa(va) && (walked.writable() || !held.writable))
}
