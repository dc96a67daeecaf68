//! The prefetch buffer: translations that the TLB prefetcher had fetched, until their first use.

use std::collections::VecDeque;

use pagewalk_stats::Tree;
use pagewalk_tables::Invalidation;
use pagewalk_units::{Asid, VirtAddr};

use super::{Entry, Ports, Probed, TranslationSource};
use crate::Lookup;

pagewalk_stats::counters! {
    /// Counters of one core's prefetch buffer.
    pub struct PrefetchBufferStats {
        lookups: "lookups", "Lookups of the prefetch buffer, for translations that missed all TLBs";
        hits: "lookups", "Lookups that found the translation. It moves into the TLBs, and no walk is made";
        fills: "entries", "Translations filled";
    }
}

/// A core's prefetch buffer, replaced first-in first-out.
pub(crate) struct PrefetchBuffer {
    entries: VecDeque<Entry>,
    capacity: usize,
    stats: PrefetchBufferStats,
}

impl PrefetchBuffer {
    /// An empty buffer of `capacity` entries.
    pub fn new(capacity: usize) -> Self {
        PrefetchBuffer {
            entries: VecDeque::with_capacity(capacity),
            capacity,
            stats: PrefetchBufferStats::default(),
        }
    }
}

impl TranslationSource for PrefetchBuffer {
    fn name(&self) -> &'static str {
        "prefetch_buffer"
    }

    fn probe(&mut self, lookup: &Lookup, ports: &mut Ports<'_>) -> Probed {
        self.stats.lookups += ports.count();
        let mut held = self.entries.iter().enumerate();
        let found = held.find_map(|(at, e)| Some((at, e.answer(lookup, ports)?)));
        let Some((at, hit)) = found else {
            return Probed::Miss { at: lookup.now };
        };
        self.stats.hits += ports.count();
        self.entries.remove(at);
        Probed::Hit(hit)
    }

    fn insert(&mut self, entry: Entry, counted: bool) -> Option<Entry> {
        let full = self.entries.len() == self.capacity;
        let evicted = full.then(|| self.entries.pop_front()).flatten();
        self.stats.fills += u64::from(counted);
        self.entries.push_back(entry);
        evicted
    }

    fn holds(&self, asid: Asid, va: VirtAddr) -> bool {
        self.entries.iter().any(|e| e.covers(asid, va))
    }

    fn invalidate(&mut self, what: &Invalidation) {
        self.entries.retain(|e| !e.overlaps(what));
    }

    fn drop_page(&mut self, asid: Asid, va: VirtAddr) {
        self.entries.retain(|e| !e.covers(asid, va));
    }

    fn report(&self, path: &str, tree: &mut Tree) {
        tree.add(path, &self.stats);
    }
}
