//! A third level of TLBs, of each core or one for all cores (a shared last level: Bhattacharjee,
//! Lustig and Martonosi, HPCA 2011).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagewalk_stats::Tree;
use pagewalk_structures::{StaleArray, StaleOutcomes};
use pagewalk_tables::Invalidation;
use pagewalk_units::{Access, Asid, Cycle, Error, PageSize, PhysAddr, VirtAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::registry::{Built, Context, Reserved, SourceArray, SourceKind};
use super::{Extent, Found, Hit, Place, Ports, Probed, TranslationSource};
use crate::Lookup;
use crate::spec::{MAX_ENTRIES, MAX_LATENCY, MAX_WAYS};
use crate::tlb::key;

/// A third TLB level under LRU, looked up when the second has missed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct L3TlbSpec {
    /// Page sizes that it holds. A page of another size is held in pieces of the next smaller size.
    pub page_sizes: Vec<PageSize>,
    /// Entries; a multiple of `ways`.
    pub entries: u32,
    /// Ways; = entries: fully associative.
    pub ways: u32,
    /// Cycles of a lookup, from the miss of the second level.
    pub latency: Cycle,
    /// True: one TLB for all cores. False, the default: one for each core.
    #[serde(default)]
    pub shared: bool,
}

pagewalk_stats::counters! {
    /// Counters of one core's lookups in the third TLB level.
    pub struct L3TlbStats {
        lookups: "lookups", "Lookups of the third level, for translations that missed the first two";
        hits: "lookups", "Lookups that found the translation";
        fills: "entries", "Entries filled after walks";
        evictions: "entries", "Entries that these fills replaced while still valid";
    }
}

impl SourceKind for L3TlbSpec {
    fn check(&self) -> Result<(), Error> {
        let bad = |key: &str, text: String| Err(Error::key(key, text));
        let (entries, ways) = (self.entries, self.ways);
        if self.page_sizes.is_empty() {
            return bad("page_sizes", "is empty; name at least one size".to_owned());
        }
        if entries == 0 || entries > MAX_ENTRIES {
            let text = format!("is {entries}; expected 1 to {MAX_ENTRIES}");
            return bad("entries", text);
        }
        if ways == 0 || ways > MAX_WAYS || !entries.is_multiple_of(ways) {
            let text =
                format!("is {ways}; expected a divisor of {entries} entries, at most {MAX_WAYS}");
            return bad("ways", text);
        }
        if self.latency > MAX_LATENCY {
            let text = format!("is {}; expected at most {MAX_LATENCY} cycles", self.latency);
            return bad("latency", text);
        }
        Ok(())
    }

    fn place(&self) -> Place {
        Place::BeforeWalk
    }

    fn array(&self, _: &Context<'_>) -> Option<SourceArray> {
        Some(SourceArray {
            name: NAME,
            entries: self.entries,
            ways: self.ways,
            shared: self.shared,
        })
    }

    fn build(&self, context: &Context<'_>, _: &Reserved) -> Built {
        let sets = (self.entries / self.ways) as usize;
        let empty = || {
            Entries(Arc::new(Mutex::new(StaleArray::new(
                sets,
                self.ways as usize,
            ))))
        };
        let one = empty();
        Built::separate(context, || L3Tlb {
            spec: self.clone(),
            entries: if self.shared { one.clone() } else { empty() },
            stats: L3TlbStats::default(),
            stale: StaleOutcomes::default(),
        })
    }
}

const NAME: &str = "l3_tlb";

/// An entry: the frame, with bit 0 = writable, and the cycle from which it is ready.
#[derive(Clone, Copy, Default, Debug)]
struct Stored {
    frame: u64,
    ready: Cycle,
}

/// The entries, which cores may share. One host thread at a time simulates a machine, so no call
/// waits for the lock.
#[derive(Clone)]
struct Entries(Arc<Mutex<StaleArray<Stored>>>);

impl Entries {
    fn array(&self) -> MutexGuard<'_, StaleArray<Stored>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A core's third level, or its part of the shared one.
struct L3Tlb {
    spec: L3TlbSpec,
    entries: Entries,
    stats: L3TlbStats,
    /// Lookups of this core.
    stale: StaleOutcomes,
}

/// Number of the page of `va`, which selects the set, and the key of its entry.
fn place(asid: Asid, size: PageSize, va: VirtAddr) -> (u64, u64) {
    (va.0 >> size.shift(), key(asid, size, va.0))
}

impl TranslationSource for L3Tlb {
    fn name(&self) -> &'static str {
        NAME
    }

    fn probe(&mut self, lookup: &Lookup, ports: &mut Ports<'_>) -> Probed {
        let &Lookup { asid, va, now, .. } = lookup;
        self.stats.lookups += ports.count();
        let at = ports.after(now, self.spec.latency);
        let mut array = self.entries.array();
        for &size in &self.spec.page_sizes {
            let (number, key) = place(asid, size, va);
            let page = |&Stored { frame, ready }: &Stored| {
                let writable = frame & 1 != 0;
                let may = writable || lookup.access != Access::Write;
                let extent = Extent::page(va, size, PhysAddr(frame & !1), writable);
                (ports.is_ready(ready, now) && may).then_some(extent)
            };
            if let Some(extent) = array.lookup(number, key, page, &mut self.stale) {
                self.stats.hits += ports.count();
                return Probed::Hit(Hit {
                    extent,
                    largest: size,
                    at,
                    memory: false,
                });
            }
        }
        Probed::Miss { at }
    }

    fn fill(&mut self, found: &Found<'_>, ports: &mut Ports<'_>) {
        let &Lookup { asid, va, .. } = found.lookup;
        let sizes = self.spec.page_sizes.iter().copied();
        let Some(size) = sizes.filter(|&s| s <= found.walked.size).max() else {
            return;
        };
        let base = VirtAddr(va.0 & !(size.bytes() - 1));
        let page = found.extent();
        let entry = Stored {
            frame: page.pa(base).0 | u64::from(page.writable),
            ready: found.at,
        };
        let (number, key) = place(asid, size, va);
        let mut array = self.entries.array();
        let old = array.insert(number, key, entry, &mut self.stale);
        let evicted = old.is_some_and(|(old, _)| old != key);
        self.stats.fills += ports.count();
        self.stats.evictions += u64::from(evicted) * ports.count();
    }

    fn invalidate(&mut self, what: &Invalidation) {
        let (asid, first, last) = what.span();
        let mut array = self.entries.array();
        for &size in &self.spec.page_sizes {
            let (from, to) = (first.0 >> size.shift(), last.0 >> size.shift());
            if to - from < array.entries() as u64 {
                for number in from..=to {
                    let (number, key) = place(asid, size, VirtAddr(number << size.shift()));
                    array.remove(number, key);
                }
            } else {
                let keys = place(asid, size, first).1..=place(asid, size, last).1;
                array.retain(|key, _| !keys.contains(&key));
            }
        }
    }

    fn mark_stale(&mut self) {
        self.entries.array().mark_stale();
    }

    fn stale(&self) -> StaleOutcomes {
        self.stale
    }

    fn report(&self, path: &str, tree: &mut Tree) {
        tree.add(path, &self.stats);
    }
}
