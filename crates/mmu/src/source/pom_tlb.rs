//! POM-TLB (Ryoo, Gulur, Song and John, ISCA 2017): a TLB in memory, which all cores share.
//!
//! A set is one line. A lookup reads the line through the core's caches, at the level where walks
//! enter. The page's size is not known yet: a predictor names it, and the lookup reads only the set
//! for that size. On a miss the walk begins when the line has arrived. Its result is inserted,
//! which writes the line. [`PomTlb`] holds the contents.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagewalk_memory::Level;
use pagewalk_stats::Tree;
use pagewalk_tables::{Invalidation, PomEntry, PomTlb, PomTlbSpec};
use pagewalk_units::{Access, Cycle, Error, PageSize, PhysAddr, VirtAddr};

use super::registry::{Built, Context, Reserved, SourceKind};
use super::{Extent, Found, Hit, Place, Ports, Probed, SharedPart, TranslationSource};
use crate::Lookup;
use crate::walk::{LEVELS, Walked};

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

/// The contents, which the sources of all cores share. One host thread at a time simulates a
/// machine, so no call waits for the lock.
#[derive(Clone)]
struct Contents(Arc<Mutex<PomTlb>>);

impl Contents {
    fn tlb(&self) -> MutexGuard<'_, PomTlb> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedPart for Contents {
    fn invalidate(&mut self, what: &Invalidation) {
        self.tlb().invalidate(what);
    }

    fn report(&self, tree: &mut Tree) {
        self.tlb().report("in_memory_tlb", tree);
    }
}

impl SourceKind for PomTlbSpec {
    fn check(&self) -> Result<(), Error> {
        self.check()
    }

    fn place(&self) -> Place {
        Place::BeforeWalk
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let [small, large] = self.bytes();
        vec![("entries_4kb", small), ("entries_2mb", large)]
    }

    fn needs_each_access(&self) -> bool {
        true
    }

    fn build(&self, context: &Context<'_>, at: &Reserved) -> Built {
        let contents = Contents(Arc::new(Mutex::new(PomTlb::new(self, [at[0], at[1]]))));
        let core = |_| -> Box<dyn TranslationSource> {
            Box::new(PomSource {
                contents: contents.clone(),
                large: vec![false; self.size_predictor as usize],
                stats: InMemoryStats::default(),
                reads: [0; LEVELS],
            })
        };
        Built {
            cores: (0..context.cores).map(core).collect(),
            shared: Some(Box::new(contents.clone())),
        }
    }
}

/// A core's part: the page-size predictor and the counters.
struct PomSource {
    contents: Contents,
    /// Page-size predictor: for each 2 MB region, by its number's low bits, true if its page is
    /// large.
    large: Vec<bool>,
    stats: InMemoryStats,
    /// Lines read, by the level that served them.
    reads: [u64; LEVELS],
}

impl PomSource {
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

    /// All counters, with the sums.
    fn stats(&self) -> InMemoryStats {
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

impl TranslationSource for PomSource {
    fn name(&self) -> &'static str {
        "in_memory_tlb"
    }

    fn probe(&mut self, lookup: &Lookup, ports: &mut Ports<'_>) -> Probed {
        let &Lookup {
            asid,
            va,
            access,
            now,
            ..
        } = lookup;
        let size = self.predict(va);
        let line = self.contents.tlb().line(va.0, size);
        let done = ports.read(line, now);
        let counted = ports.count();
        let stats = &mut self.stats;
        self.reads[done.level as usize] += counted;
        stats.lookups += counted;
        stats.cycles += (done.at - now) * counted;
        let mut tlb = self.contents.tlb();
        let now = if ports.timed() { done.at } else { Cycle::MAX };
        let may = |e: &PomEntry| e.writable || access != Access::Write;
        let Some(entry) = tlb.lookup(asid, va.0, size, now).filter(may) else {
            return Probed::Miss { at: done.at };
        };
        stats.predicted_right += counted;
        if size == PageSize::K4 {
            stats.hits_4kb += counted;
        } else {
            stats.hits_2mb += counted;
        }
        Probed::Hit(Hit {
            extent: Extent::page(va, size, entry.frame, entry.writable),
            largest: size,
            at: done.at,
            memory: done.level == Level::Memory,
        })
    }

    fn fill(&mut self, found: &Found<'_>, ports: &mut Ports<'_>) {
        let &Lookup { asid, va, .. } = found.lookup;
        let (size, entry) = entry_of(found.walked, va);
        let right = self.predict(va) == size;
        let counted = ports.count();
        self.stats.predicted_right += u64::from(right) * counted;
        self.stats.predicted_wrong += u64::from(!right) * counted;
        self.stats.fills += counted;
        *self.bit(va) = size == PageSize::M2;
        let line = self.contents.tlb().line(va.0, size);
        let written = ports.update(line, found.at);
        self.contents.tlb().insert(asid, va.0, size, entry, written);
    }

    fn invalidate(&mut self, _what: &Invalidation) {
        // The entries are in the shared part.
    }

    fn merged(&mut self) {
        self.stats.merged += 1;
    }

    fn fast_forward(&mut self, found: &Found<'_>) {
        let &Lookup { asid, va, .. } = found.lookup;
        let (size, entry) = entry_of(found.walked, va);
        *self.bit(va) = size == PageSize::M2;
        self.contents.tlb().insert(asid, va.0, size, entry, 0);
    }

    fn report(&self, path: &str, tree: &mut Tree) {
        tree.add(path, &self.stats());
    }
}
