//! The STB: the translation buffer that an STLT's `loadVA` fills (STLT, section III-D1).

use pagewalk_stats::Tree;
use pagewalk_tables::Invalidation;

use super::{Entry, Ports, Probed, TranslationSource};
use crate::Lookup;

/// Entries of the STB (STLT, section III-D1).
pub const STB_ENTRIES: usize = 32;

pagewalk_stats::counters! {
    /// Counters of one core's STB. Misses of the last TLB = walks + waits for walks + hits.
    pub struct StbStats {
        lookups: "lookups", "Lookups of the STB, for translations that missed all TLBs";
        hits: "lookups", "Lookups that found the translation, so that no walk is made";
        fills: "entries", "Translations filled by loadVA";
    }
}

/// A core's STB, replaced first-in first-out.
pub(crate) struct Stb {
    entries: [Option<Entry>; STB_ENTRIES],
    /// The entry that is replaced next.
    next: usize,
    stats: StbStats,
}

impl Stb {
    /// An empty STB.
    pub fn new() -> Self {
        Stb {
            entries: [None; STB_ENTRIES],
            next: 0,
            stats: StbStats::default(),
        }
    }
}

impl TranslationSource for Stb {
    fn name(&self) -> &'static str {
        "stb"
    }

    fn probe(&mut self, lookup: &Lookup, ports: &mut Ports<'_>) -> Probed {
        self.stats.lookups += ports.count();
        let mut held = self.entries.iter().flatten();
        match held.find_map(|e| e.answer(lookup, ports)) {
            Some(hit) => {
                self.stats.hits += ports.count();
                Probed::Hit(hit)
            }
            None => Probed::Miss { at: lookup.now },
        }
    }

    fn insert(&mut self, entry: Entry, counted: bool) -> Option<Entry> {
        self.stats.fills += u64::from(counted);
        let evicted = self.entries[self.next].replace(entry);
        self.next = (self.next + 1) % STB_ENTRIES;
        evicted
    }

    fn invalidate(&mut self, what: &Invalidation) {
        for entry in &mut self.entries {
            if entry.is_some_and(|e| e.overlaps(what)) {
                *entry = None;
            }
        }
    }

    fn report(&self, path: &str, tree: &mut Tree) {
        tree.add(path, &self.stats);
    }
}
