//! TLB prefetching: trains the prefetcher on misses of the last TLB, walks in the background for
//! the pages that it names, and keeps the translations until they are used.

use std::collections::{BTreeMap, VecDeque};

use pagewalk_memory::{Below, Level};
use pagewalk_stats::Tree;
use pagewalk_tables::Invalidation;
use pagewalk_units::{Access, Asid, Cycle, PageSize, VirtAddr};

use super::auxiliary::{AuxiliaryBuffer, BufferEntry};
use super::miss::Missed;
use super::{Fault, Lookup, Mmu, NO_PC, Translated, TranslationSource, WalkContext, WalkMshr};
use crate::TlbPrefetcherSpec;
use crate::level::Arrival;
use crate::mapping::Mapping;
use crate::prefetcher::{Pages, Prefetcher, TlbMiss};
use crate::tlb::key;
use crate::walk::translate_untimed;

pagewalk_stats::counters! {
    /// Counters of one core's TLB prefetcher. predicted = present + unmapped + fetched; fetched =
    /// useful + useless + pending.
    pub struct TlbPrefetchStats {
        misses: "translations", "Data translations that train the prefetcher: misses of all TLBs, and first uses of prefetched translations";
        predicted: "pages", "Pages predicted by the prefetcher";
        present: "pages", "Predicted pages whose translation was present or in flight";
        unmapped: "walks", "Predicted pages whose walk found no mapping; a prefetch may not fault";
        fetched: "walks", "Predicted pages whose translation a walk fetched. The walks of unmapped and fetched are not among the MMU's walks";
        useful: "pages", "Prefetched translations that were used before their eviction";
        late: "pages", "Useful prefetched translations that were still in flight at their first use";
        useless: "pages", "Prefetched translations that were evicted unused. Each is counted when the buffer evicts it, or when its page is next accessed or predicted";
        gauge pending: "pages", "Prefetched translations that are neither useful nor useless so far";
        walk_cycles: "cycles", "Sum of the latencies of the prefetcher's walks, from the start in a walker to the outcome";
        walker_wait_cycles: "cycles", "Sum of the times that the prefetcher's walks waited for a free walker";
        walk_reads: "reads", "Page-table reads of the prefetcher's walks; not among the MMU's walk_reads";
    }
}

pagewalk_stats::counters! {
    /// Counters of one core's prefetch buffer.
    pub struct PrefetchBufferStats {
        lookups: "lookups", "Lookups of the prefetch buffer, for translations that missed all TLBs";
        hits: "lookups", "Lookups that found the translation. It moves into the TLBs, and no walk is made";
        fills: "entries", "Translations filled";
    }
}

/// A core's TLB prefetcher.
pub(super) struct Prefetching {
    prefetcher: Box<dyn Prefetcher>,
    /// The prefetch buffer, replaced first-in first-out. With a `capacity` of 0, prefetched
    /// translations go into the last TLB.
    buffer: VecDeque<BufferEntry>,
    capacity: usize,
    /// Prefetched pages that are neither used nor known to be evicted, by key; true if the prefetch
    /// was counted. Hardware keeps a bit for it with the translation.
    unused: BTreeMap<u64, bool>,
    stats: TlbPrefetchStats,
    buffer_stats: PrefetchBufferStats,
}

impl Prefetching {
    /// Builds the prefetcher of `spec` with an empty buffer.
    pub fn new(spec: &TlbPrefetcherSpec) -> Self {
        let capacity = spec.buffer() as usize;
        Prefetching {
            prefetcher: spec.build(),
            buffer: VecDeque::with_capacity(capacity),
            capacity,
            unused: BTreeMap::new(),
            stats: TlbPrefetchStats::default(),
            buffer_stats: PrefetchBufferStats::default(),
        }
    }

    /// Trains the prefetcher on a translation that is now known. Returns the pages that it names.
    fn train(
        &mut self,
        lookup: &Lookup,
        context: &WalkContext<'_, impl Sized>,
        counted: bool,
    ) -> Pages {
        let &Lookup { asid, va, pc, .. } = lookup;
        let pc = (pc != NO_PC).then_some(pc);
        // The hardware knows the size here, because the translation is known.
        let size =
            &|| translate_untimed(context.view, va).map_or(PageSize::K4, |walked| walked.size);
        self.prefetcher
            .train(&TlbMiss { asid, va, pc, size }, counted)
    }

    /// Settles the prefetch of the page of `va`, which is now accessed or named again. Returns
    /// whether the prefetch was counted, or `None` if there was no unused one.
    fn settle(&mut self, asid: Asid, va: u64) -> Option<bool> {
        // Each page size has its own keys; an address is in one page.
        let unused = &mut self.unused;
        PageSize::ALL
            .into_iter()
            .find_map(|size| unused.remove(&key(asid, size, va)))
    }

    /// Settles it as useless: the translation was evicted before its first use.
    fn settle_as_gone(&mut self, asid: Asid, va: u64) {
        let counted = self.settle(asid, va).unwrap_or(false);
        self.stats.useless += u64::from(counted);
    }

    /// Settles it as useful if this is its first use. Returns true if it is.
    fn settle_as_used(&mut self, asid: Asid, va: u64, late: bool) -> bool {
        let Some(counted) = self.settle(asid, va) else {
            return false;
        };
        self.stats.useful += u64::from(counted);
        self.stats.late += u64::from(counted && late);
        true
    }

    /// Notes the prefetched translation `arrival` as unused.
    fn note(&mut self, arrival: &Arrival) {
        let page = key(arrival.asid, arrival.mapping.size, arrival.va.0);
        let before = self.unused.insert(page, arrival.counted).unwrap_or(false);
        self.stats.useless += u64::from(before);
    }

    /// Removes the translation for `lookup` from the buffer and returns it, if it is ready at
    /// `now`.
    fn take(
        &mut self,
        lookup: &Lookup,
        now: Cycle,
        context: &WalkContext<'_, impl Sized>,
    ) -> Option<Mapping> {
        let mut held = self.buffer.iter().enumerate();
        let (at, found) = held.find_map(|(at, h)| Some((at, h.look_up(lookup, now, context)?)))?;
        self.buffer.remove(at);
        Some(found)
    }

    /// Puts a prefetched translation into the buffer.
    fn keep(&mut self, arrival: &Arrival) {
        if self.buffer.len() == self.capacity
            && let Some(old) = self.buffer.pop_front()
        {
            let counted = self.unused.remove(&old.key()).unwrap_or(false);
            self.stats.useless += u64::from(counted);
        }
        self.buffer_stats.fills += u64::from(arrival.counted);
        let held = BufferEntry::new(arrival.asid, arrival.va, arrival.mapping, arrival.ready);
        self.buffer.push_back(held);
    }

    /// Drops the buffer's translations that `what` covers.
    pub fn invalidate(&mut self, what: &Invalidation) {
        self.buffer.retain(|k| !k.overlaps(what));
    }

    /// Drops the translation of a page that faulted: the kernel will change it.
    pub fn drop_page(&mut self, asid: Asid, va: u64) {
        self.buffer.retain(|k| !k.covers(asid, va));
    }
}

impl Mmu {
    /// Translates an address that missed all TLBs, with no walk to its page under way: by the
    /// buffer, else as without a prefetcher. Then prefetches the pages that the prefetcher names.
    #[inline(never)]
    pub(super) fn miss_and_prefetch<B: Below>(
        &mut self,
        lookup: &Lookup,
        missed: &Missed,
        context: &mut WalkContext<'_, B>,
    ) -> Result<Translated, Fault> {
        let answer = match self.look_up_buffer(lookup, missed, context) {
            Some(answer) => Ok(answer),
            None => {
                if let Some(p) = &mut self.prefetching {
                    p.settle_as_gone(lookup.asid, lookup.va.0);
                }
                self.beyond_tlbs(lookup, missed, context)
            }
        };
        if let Ok(answer) = &answer {
            self.learn_and_prefetch(lookup, answer.ready, context);
        }
        answer
    }

    /// Called when a TLB or a walk under way had the translation. The first use of a prefetched
    /// translation trains the prefetcher as a miss does.
    #[inline(never)]
    pub(super) fn first_use<B: Below>(
        &mut self,
        lookup: &Lookup,
        answer: &Result<Translated, Fault>,
        context: &mut WalkContext<'_, B>,
    ) {
        let (Some(p), Ok(answer)) = (&mut self.prefetching, answer) else {
            return;
        };
        if p.settle_as_used(
            lookup.asid,
            lookup.va.0,
            answer.from != TranslationSource::L2,
        ) {
            p.drop_page(lookup.asid, lookup.va.0);
            self.learn_and_prefetch(lookup, answer.ready, context);
        }
    }

    /// Looks up the prefetch buffer.
    fn look_up_buffer<B: Below>(
        &mut self,
        lookup: &Lookup,
        missed: &Missed,
        context: &WalkContext<'_, B>,
    ) -> Option<Translated> {
        let p = self.prefetching.as_mut().filter(|p| p.capacity > 0)?;
        p.buffer_stats.lookups += 1;
        let mapping = p.take(lookup, missed.requested, context)?;
        p.buffer_stats.hits += 1;
        p.settle_as_used(lookup.asid, lookup.va.0, false);
        Some(self.hit_auxiliary(lookup, missed, mapping, TranslationSource::Prefetched))
    }

    /// Trains the prefetcher on a data translation that is known at `now`. Walks for the named
    /// pages from then on, one after the other, as walkers are free.
    fn learn_and_prefetch<B: Below>(
        &mut self,
        lookup: &Lookup,
        now: Cycle,
        context: &mut WalkContext<'_, B>,
    ) {
        let Some(p) = &mut self.prefetching else {
            return;
        };
        if lookup.access == Access::Fetch {
            return;
        }
        p.stats.misses += 1;
        let pages = p.train(lookup, context, true);
        p.stats.predicted += pages.len() as u64;
        for page in pages {
            self.prefetch(lookup.asid, VirtAddr(page << 12), now, context);
        }
    }

    /// True if a TLB, the buffer or a walk under way at `now` has the translation of `va`.
    fn has(&mut self, asid: Asid, va: VirtAddr, now: Cycle) -> bool {
        let lookup = Lookup {
            asid,
            va,
            access: Access::Read,
            pc: NO_PC,
            now,
        };
        let second = self.second(0);
        let levels = [Some(&mut self.l1[0]), self.l2[second].as_deref_mut()];
        let known = (levels.into_iter().flatten()).any(|l| l.find(asid, va.0).is_some());
        let buffered = |p: &Prefetching| p.buffer.iter().any(|k| k.covers(asid, va.0));
        known
            || self.prefetching.as_deref().is_some_and(buffered)
            || self.find_mshr(&lookup).is_some()
    }

    fn prefetch<B: Below>(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        now: Cycle,
        context: &mut WalkContext<'_, B>,
    ) {
        if self.has(asid, va, now) {
            if let Some(p) = &mut self.prefetching {
                p.stats.present += 1;
            }
            return;
        }
        let walk = self.walk_in_background(asid, va, now, context);
        let (start, end) = (walk.start, walk.end);
        self.latest = self.latest.max(end);
        let Some(p) = &mut self.prefetching else {
            return;
        };
        p.stats.walk_cycles += end - start;
        p.stats.walker_wait_cycles += start - now;
        p.stats.walk_reads += walk.served.iter().sum::<u64>();
        let Some(walked) = walk.found else {
            p.stats.unmapped += 1;
            return;
        };
        p.stats.fetched += 1;
        let mapping = Mapping::of(&walked);
        let arrival = Arrival {
            asid,
            va,
            mapping,
            ready: end,
            counted: true,
            fetched: true,
        };
        self.keep_prefetched(&arrival);
        // Later misses may merge with this walk.
        let mshr = WalkMshr {
            requested: now,
            tlb_lookup_done: now,
            walk_start: start,
            end,
            mapping,
            memory: walk.served[Level::Memory as usize] > 0,
            walked: true,
        };
        self.allocate_mshr(key(asid, PageSize::K4, va.0), mshr);
    }

    /// Puts a prefetched translation into the buffer, or into the last TLB if there is no buffer.
    fn keep_prefetched(&mut self, arrival: &Arrival) {
        if let Some(p) = &mut self.prefetching {
            p.note(arrival);
            if p.capacity > 0 {
                p.keep(arrival);
                return;
            }
        }
        let second = self.second(0);
        // Without a buffer there is a second level (`MmuSpec::check`).
        if let Some(level) = &mut self.l2[second] {
            level.fill_prefetched(arrival);
        }
    }

    /// Functional warming: the translation that [`Mmu::miss_and_prefetch`] would find in the
    /// buffer.
    pub(super) fn warm_buffer<B: Below>(
        &mut self,
        lookup: &Lookup,
        context: &WalkContext<'_, B>,
    ) -> Option<Mapping> {
        let p = self.prefetching.as_mut()?;
        let found = p.take(lookup, Cycle::MAX, context);
        if found.is_some() {
            p.settle_as_used(lookup.asid, lookup.va.0, false);
        } else {
            p.settle_as_gone(lookup.asid, lookup.va.0);
        }
        found
    }

    /// Functional warming of a TLB hit. Returns true if it is the first use of a prefetched
    /// translation. Prefetches that were counted are still judged.
    pub(super) fn warm_first_use(&mut self, lookup: &Lookup) -> bool {
        let Some(p) = &mut self.prefetching else {
            return false;
        };
        p.settle_as_used(lookup.asid, lookup.va.0, false)
    }

    /// Functional warming: as [`Mmu::learn_and_prefetch`], without time.
    pub(super) fn warm_prefetch<B: Below>(
        &mut self,
        lookup: &Lookup,
        context: &mut WalkContext<'_, B>,
    ) {
        let Some(p) = &mut self.prefetching else {
            return;
        };
        if lookup.access == Access::Fetch {
            return;
        }
        let asid = lookup.asid;
        for page in p.train(lookup, context, false) {
            let va = VirtAddr(page << 12);
            if self.has(asid, va, self.latest) {
                continue;
            }
            let at = self.latest;
            if let Ok(walked) = self.walk_untimed(asid, va, at, context) {
                self.keep_prefetched(&Arrival {
                    asid,
                    va,
                    mapping: Mapping::of(&walked),
                    ready: 0,
                    counted: false,
                    fetched: true,
                });
            }
        }
    }

    /// Hits of the prefetch buffer.
    pub(super) fn prefetch_buffer_hits(&self) -> u64 {
        let prefetching = self.prefetching.as_ref();
        prefetching.map_or(0, |p| p.buffer_stats.hits)
    }

    /// Adds the counters of this core's prefetcher below `path`.
    pub(super) fn report_prefetching(&self, path: &str, tree: &mut Tree) {
        let Some(p) = &self.prefetching else { return };
        let stats = TlbPrefetchStats {
            pending: p.unused.values().filter(|&&counted| counted).count() as u64,
            ..p.stats
        };
        tree.add(&format!("{path}.prefetcher"), &stats);
        p.prefetcher.report(path, tree);
        if p.capacity > 0 {
            let name = AuxiliaryBuffer::PrefetchBuffer.name();
            tree.add(&format!("{path}.{name}"), &p.buffer_stats);
        }
    }
}
