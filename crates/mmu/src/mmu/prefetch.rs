//! TLB prefetching: trains the prefetcher on misses of the last TLB, walks in the background for
//! the pages that it names, and keeps the translations until they are used.

use std::collections::BTreeMap;

use pagewalk_memory::{Below, Level};
use pagewalk_stats::Tree;
use pagewalk_units::{Access, Asid, Cycle, PageSize, VirtAddr};

use super::miss::Missed;
use super::{Fault, Lookup, Mmu, NO_PC, ServedBy, Translated, WalkContext, WalkMshr};
use crate::TlbPrefetcherSpec;
use crate::level::Arrival;
use crate::mapping::Mapping;
use crate::prefetcher::{Pages, Prefetcher, TlbMiss};
use crate::source::Entry;
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

/// A core's TLB prefetcher.
pub(super) struct Prefetching {
    prefetcher: Box<dyn Prefetcher>,
    /// The prefetch buffer among the MMU's sources. Without one, prefetched translations go into
    /// the last TLB.
    buffer: Option<usize>,
    /// Prefetched pages that are neither used nor known to be evicted, by key; true if the prefetch
    /// was counted. Hardware keeps a bit for it with the translation.
    unused: BTreeMap<u64, bool>,
    stats: TlbPrefetchStats,
}

impl Prefetching {
    /// Builds the prefetcher of `spec`, whose buffer is source `buffer`.
    pub fn new(spec: &TlbPrefetcherSpec, buffer: Option<usize>) -> Self {
        Prefetching {
            prefetcher: spec.build(),
            buffer,
            unused: BTreeMap::new(),
            stats: TlbPrefetchStats::default(),
        }
    }

    /// False: filtered functional warming neither trains the prefetcher nor prefetches, as full
    /// functional warming does.
    pub fn can_filtered_warm(&self) -> bool {
        false
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

    /// Settles the prefetch of an entry that the buffer has evicted unused.
    fn settle_evicted(&mut self, entry: &Entry) {
        let counted = self.unused.remove(&entry.key()).unwrap_or(false);
        self.stats.useless += u64::from(counted);
    }
}

impl Mmu {
    /// Translates an address that missed all TLBs, with no walk to its page under way, as without a
    /// prefetcher. Then prefetches the pages that the prefetcher names.
    #[inline(never)]
    pub(super) fn miss_and_prefetch<const TIMED: bool, B: Below>(
        &mut self,
        lookup: &Lookup,
        missed: &Missed,
        context: &mut WalkContext<'_, B>,
    ) -> Result<Translated, Fault> {
        let answer = self.beyond_tlbs::<TIMED, B>(lookup, missed, context);
        if let Some(p) = &mut self.prefetching {
            let buffer = p.buffer.map(|i| ServedBy::Source(i as u8));
            if answer.is_ok_and(|a| Some(a.from) == buffer) {
                p.settle_as_used(lookup.asid, lookup.va.0, false);
            } else {
                p.settle_as_gone(lookup.asid, lookup.va.0);
            }
        }
        if let Ok(answer) = &answer {
            self.learn_and_prefetch::<TIMED, B>(lookup, answer.ready, context);
        }
        answer
    }

    /// Called when a TLB or a walk under way had the translation. The first use of a prefetched
    /// translation trains the prefetcher as a miss does.
    #[inline(never)]
    pub(super) fn first_use<const TIMED: bool, B: Below>(
        &mut self,
        lookup: &Lookup,
        answer: &Result<Translated, Fault>,
        context: &mut WalkContext<'_, B>,
    ) {
        let (Some(p), Ok(answer)) = (&mut self.prefetching, answer) else {
            return;
        };
        let &Lookup { asid, va, .. } = lookup;
        if p.settle_as_used(asid, va.0, answer.from != ServedBy::L2) {
            if let Some(buffer) = p.buffer {
                self.source(buffer).drop_page(asid, va);
            }
            self.learn_and_prefetch::<TIMED, B>(lookup, answer.ready, context);
        }
    }

    /// Trains the prefetcher on a data translation that is known at `now`. Walks for the named
    /// pages from then on, one after the other, as walkers are free.
    fn learn_and_prefetch<const TIMED: bool, B: Below>(
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
        let pages = p.train(lookup, context, TIMED);
        if TIMED {
            p.stats.misses += 1;
            p.stats.predicted += pages.len() as u64;
        }
        for page in pages {
            let va = VirtAddr(page << 12);
            if TIMED {
                self.prefetch(lookup.asid, va, now, context);
            } else {
                self.warm_prefetch(lookup.asid, va, context);
            }
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
        known
            || self.each_source().any(|source| source.holds(asid, va))
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
            from: ServedBy::Walk,
        };
        self.allocate_mshr(key(asid, PageSize::K4, va.0), mshr);
    }

    /// Puts a prefetched translation into the buffer, or into the last TLB if there is no buffer.
    fn keep_prefetched(&mut self, arrival: &Arrival) {
        let Some(p) = &mut self.prefetching else {
            return;
        };
        p.note(arrival);
        if let Some(buffer) = p.buffer {
            let &Arrival {
                asid,
                va,
                mapping,
                ready,
                counted,
                ..
            } = arrival;
            let entry = Entry::new(asid, va, mapping, ready);
            let source = &mut self.sources[buffer].source;
            if let Some(evicted) = source.insert(entry, counted) {
                p.settle_evicted(&evicted);
            }
            return;
        }
        let second = self.second(0);
        // Without a buffer there is a second level (`MmuSpec::check`).
        if let Some(level) = &mut self.l2[second] {
            level.fill_prefetched(arrival);
        }
    }

    /// Functional warming: as [`Mmu::prefetch`], without time.
    fn warm_prefetch<B: Below>(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        context: &mut WalkContext<'_, B>,
    ) {
        if self.has(asid, va, self.latest) {
            return;
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

    /// Adds the counters of this core's prefetcher below `path`.
    pub(super) fn report_prefetching(&self, path: &str, tree: &mut Tree) {
        let Some(p) = &self.prefetching else { return };
        let stats = TlbPrefetchStats {
            pending: p.unused.values().filter(|&&counted| counted).count() as u64,
            ..p.stats
        };
        tree.add(&format!("{path}.prefetcher"), &stats);
        p.prefetcher.report(path, tree);
        if let Some(buffer) = p.buffer {
            self.report_source(buffer, path, tree);
        }
    }
}
