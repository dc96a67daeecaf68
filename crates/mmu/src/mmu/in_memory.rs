//! The in-memory TLB, which is looked up between the second-level TLB and the walk.
//!
//! A set is one line. A lookup reads the line through the core's caches, at the level where walks
//! enter. The page's size is not known yet: a predictor names it, and the lookup reads only the set
//! for that size. On a miss the walk begins when the line has arrived. Its result is inserted,
//! which writes the line.

use pagewalk_memory::{Below, Level};
use pagewalk_stats::Tree;
use pagewalk_tables::{InMemoryTlbSpec, PomEntry, PomTlb, View};
use pagewalk_units::{Access, Asid, Cycle, PageSize, PhysAddr, VirtAddr};

use super::auxiliary::AuxiliaryBuffer;
use super::miss::Missed;
use super::{Fault, Lookup, Mmu, Translated, TranslationSource, WalkContext, WalkMshr, side};
use crate::level::Arrival;
use crate::mapping::Mapping;
use crate::tlb::key;
use crate::walk::{LEVELS, Walked, request, translate_untimed};

pagewalk_stats::counters! {
    /// Counters of one core's lookups in the in-memory TLB. lookups = hits + misses = hits + walks;
    /// hits = hits_4kb + hits_2mb. The reads by level add up to lookups.
    pub struct InMemoryStats {
        lookups: "lookups", "Lookups of the in-memory TLB, for translations that missed all TLBs of the core";
        hits: "lookups", "Lookups that found the translation, so that no walk is made";
        misses: "lookups", "Lookups followed by a walk: no entry, an entry of the size that was not predicted, or a store to a page that the entry marks read-only";
        hits_4kb: "lookups", "Hits of 4 KB pages";
        hits_2mb: "lookups", "Hits of 2 MB pages, or of 2 MB pieces of 1 GB pages";
        merged: "translations", "Translations that merged with a lookup in progress for the same 4 KB page, which hit";
        predicted_right: "lookups", "Lookups whose page size was predicted correctly";
        predicted_wrong: "lookups", "Lookups whose page size was mispredicted, as the walk found";
        cycles: "cycles", "Sum of the lookup latencies, from the miss of the core's last TLB to the line";
        fills: "entries", "Entries filled after walks, each of which writes its line";
        reads_l0d: "reads", "Lookups (one line each) served by the data cache in front of the first level";
        reads_l1d: "reads", "Lookups served by the first-level data cache";
        reads_l2: "reads", "Lookups served by the second-level cache";
        reads_l3: "reads", "Lookups served by the third-level cache";
        reads_l4: "reads", "Lookups served by the fourth-level cache";
        reads_remote: "reads", "Lookups served by another core's cache";
        reads_memory: "reads", "Lookups served by DRAM";
    }
}

/// A core's part of the in-memory TLB: the page-size predictor and the counters.
pub(super) struct InMemory {
    /// Page-size predictor: for each 2 MB region, by its number's low bits, true if its page is
    /// large.
    large: Vec<bool>,
    stats: InMemoryStats,
    /// Lines read, by the level that served them.
    reads: [u64; LEVELS],
}

impl InMemory {
    /// The core's part of the TLB `spec`.
    pub fn new(spec: &InMemoryTlbSpec) -> Self {
        let InMemoryTlbSpec::Pom(spec) = spec;
        InMemory {
            large: vec![false; spec.size_predictor as usize],
            stats: InMemoryStats::default(),
            reads: [0; LEVELS],
        }
    }

    /// The predictor's entry for `va`.
    fn bit(&mut self, va: VirtAddr) -> &mut bool {
        let region = (va.0 >> PageSize::M2.shift()) as usize;
        let bits = self.large.len();
        &mut self.large[region & (bits - 1)]
    }

    /// Predicts the size of the page of `va`.
    fn predict(&mut self, va: VirtAddr) -> PageSize {
        if *self.bit(va) {
            PageSize::M2
        } else {
            PageSize::K4
        }
    }

    /// Trains the predictor: the page of `va` is held as one of `size`.
    fn correct(&mut self, va: VirtAddr, size: PageSize) {
        *self.bit(va) = size == PageSize::M2;
    }

    /// Counts a translation that merged, if it did so with a hit in the in-memory TLB and not with
    /// a walk.
    pub fn count_merge(&mut self, walked: bool) {
        self.stats.merged += u64::from(!walked);
    }

    /// All counters, with the sums.
    pub fn stats(&self) -> InMemoryStats {
        let s = &self.stats;
        let reads = |level: Level| self.reads[level as usize];
        InMemoryStats {
            hits: s.hits_4kb + s.hits_2mb,
            misses: s.lookups - s.hits_4kb - s.hits_2mb,
            reads_l0d: reads(Level::L0),
            reads_l1d: reads(Level::L1),
            reads_l2: reads(Level::L2),
            reads_l3: reads(Level::L3),
            reads_l4: reads(Level::L4),
            reads_remote: reads(Level::Remote),
            reads_memory: reads(Level::Memory),
            ..*s
        }
    }
}

/// Entry size and entry for the page of `va`. A 1 GB page is held as 2 MB pieces.
fn entry_of(walked: &Walked, va: VirtAddr) -> (PageSize, PomEntry) {
    let held = PomTlb::held(walked.size);
    let frame = PhysAddr(walked.pa(va).0 & !(held.bytes() - 1));
    let writable = walked.writable();
    (held, PomEntry { frame, writable })
}

/// The mapping of an entry.
fn mapping(entry: PomEntry, size: PageSize) -> Mapping {
    Mapping {
        frame: entry.frame.0,
        size,
        writable: entry.writable,
    }
}

/// The mapping for the lookup, if the TLB has it, it is ready at `now`, and it permits the access.
fn find(
    tlb: &mut PomTlb,
    lookup: &Lookup,
    size: PageSize,
    now: Cycle,
    view: &View<'_>,
) -> Option<Mapping> {
    let &Lookup {
        asid, va, access, ..
    } = lookup;
    // A store to a page whose entry is read-only needs a walk: the kernel may have permitted stores
    // since, and such a change needs no shootdown.
    let allowed = |e: &PomEntry| e.writable || access != Access::Write;
    let found = tlb.lookup(asid, va.0, size, now).filter(allowed)?;
    let found = mapping(found, size);
    debug_assert!(
        translate_untimed(view, va).is_ok_and(|walked| {
            walked.pa(va) == found.pa(va) && (walked.writable() || !found.writable)
        }),
        "a translation of the in-memory TLB is out of date: {va} of {asid:?}"
    );
    Some(found)
}

impl Mmu {
    /// Looks up the in-memory TLB after all TLBs of the core have missed. Walks on a miss.
    #[inline(never)]
    pub(super) fn look_up_in_memory<B: Below>(
        &mut self,
        lookup: &Lookup,
        missed: &Missed,
        context: &mut WalkContext<'_, B>,
    ) -> Result<Translated, Fault> {
        let &Lookup {
            asid, va, access, ..
        } = lookup;
        let (Some(unit), Some(tlb)) = (&mut self.in_memory, &mut context.in_memory_tlb) else {
            let ended = self.walk_from(lookup, missed.requested, context);
            return self.finish(lookup, missed, ended);
        };
        let predicted = unit.predict(va);
        let at = request(tlb.line(va.0, predicted), self.core);
        let done = context.private.access(at, missed.requested, context.below);
        unit.reads[done.level as usize] += 1;
        unit.stats.lookups += 1;
        unit.stats.cycles += done.at - missed.requested;
        if let Some(mapping) = find(tlb, lookup, predicted, done.at, context.view) {
            unit.stats.predicted_right += 1;
            if predicted == PageSize::K4 {
                unit.stats.hits_4kb += 1;
            } else {
                unit.stats.hits_2mb += 1;
            }
            let arrival = Arrival {
                asid,
                va,
                mapping,
                ready: done.at,
                counted: true,
                fetched: true,
            };
            self.latest = self.latest.max(done.at);
            self.fill(side(access), &arrival, missed.presence);
            let mshr = WalkMshr {
                requested: missed.requested,
                tlb_lookup_done: done.at,
                walk_start: done.at,
                end: done.at,
                mapping,
                memory: done.level == Level::Memory,
                walked: false,
            };
            self.allocate_mshr(key(asid, PageSize::K4, va.0), mshr);
            return Ok(Translated {
                pa: mapping.pa(va),
                ready: done.at,
                walk_start: done.at,
                from: TranslationSource::InMemory,
            });
        }
        self.memory_lookup[side(access)] = done.at - missed.requested;
        let ended = self.walk_from(lookup, done.at, context);
        let (found, end) = (ended.found.ok(), ended.end);
        let answer = self.finish(lookup, missed, ended);
        if let Some(walked) = found {
            self.keep_in_memory(lookup, &walked, end, predicted, context);
        }
        answer
    }

    /// Inserts the result of the walk for `lookup`, known at `end`, into the in-memory TLB. No
    /// request waits for this write.
    fn keep_in_memory<B: Below>(
        &mut self,
        lookup: &Lookup,
        walked: &Walked,
        end: Cycle,
        predicted: PageSize,
        context: &mut WalkContext<'_, B>,
    ) {
        let (Some(unit), Some(tlb)) = (&mut self.in_memory, &mut context.in_memory_tlb) else {
            return;
        };
        let &Lookup { asid, va, .. } = lookup;
        let (size, entry) = entry_of(walked, va);
        unit.stats.predicted_right += u64::from(size == predicted);
        unit.stats.predicted_wrong += u64::from(size != predicted);
        unit.stats.fills += 1;
        unit.correct(va, size);
        let line = request(tlb.line(va.0, size), self.core);
        let written = context.private.update(line, end, context.below);
        tlb.insert(asid, va.0, size, entry, written.at);
    }

    /// Functional warming: the translation that [`Mmu::look_up_in_memory`] would find; `None` if a
    /// walk is needed.
    pub(super) fn warm_memory<B: Below>(
        &mut self,
        lookup: &Lookup,
        context: &mut WalkContext<'_, B>,
    ) -> Option<Mapping> {
        let (Some(unit), Some(tlb)) = (&mut self.in_memory, &mut context.in_memory_tlb) else {
            return None;
        };
        let predicted = unit.predict(lookup.va);
        let line = request(tlb.line(lookup.va.0, predicted), self.core);
        context.private.warm(line, context.below);
        find(tlb, lookup, predicted, Cycle::MAX, context.view)
    }

    /// Functional warming: as [`Mmu::keep_in_memory`], without time and without counting.
    pub(super) fn warm_keep_in_memory<B: Below>(
        &mut self,
        lookup: &Lookup,
        walked: &Walked,
        context: &mut WalkContext<'_, B>,
    ) {
        let (Some(unit), Some(tlb)) = (&mut self.in_memory, &mut context.in_memory_tlb) else {
            return;
        };
        let (size, entry) = entry_of(walked, lookup.va);
        unit.correct(lookup.va, size);
        let line = request(tlb.line(lookup.va.0, size), self.core);
        context.private.warm_update(line, context.below);
        tlb.insert(lookup.asid, lookup.va.0, size, entry, 0);
    }

    /// Inserts the translation of a page that is used during fast-forward into `tlb`. No cache is
    /// touched.
    pub fn skip(&mut self, asid: Asid, va: VirtAddr, view: &View<'_>, tlb: &mut PomTlb) {
        let (Some(unit), Ok(walked)) = (&mut self.in_memory, translate_untimed(view, va)) else {
            return;
        };
        let (size, entry) = entry_of(&walked, va);
        unit.correct(va, size);
        tlb.insert(asid, va.0, size, entry, 0);
    }

    /// Hits of the in-memory TLB.
    pub(super) fn in_memory_hits(&self) -> u64 {
        self.in_memory.as_ref().map_or(0, |unit| unit.stats().hits)
    }

    /// Adds this core's counters of the in-memory TLB below `path`.
    pub(super) fn report_in_memory(&self, path: &str, tree: &mut Tree) {
        if let Some(unit) = &self.in_memory {
            let name = AuxiliaryBuffer::InMemoryTlb.name();
            tree.add(&format!("{path}.{name}"), &unit.stats());
        }
    }
}
