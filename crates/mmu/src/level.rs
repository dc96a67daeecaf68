//! One TLB level: its arrays, which are looked up in parallel.

use std::collections::BTreeMap;

use pagewalk_stats::Tree;
use pagewalk_tables::Invalidation;
use pagewalk_units::{Asid, Cycle, PageSize, PhysAddr, VirtAddr, rng};

use crate::TlbSpec;
use crate::mapping::Mapping;
use crate::replacement::HitVisibility;
use crate::source::Extent;
use crate::tlb::{Tlb, TlbEntry, TlbLruStack, TlbStats, key};

/// A translation to be put into TLBs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Address space.
    pub asid: Asid,
    /// The translated address.
    pub va: VirtAddr,
    /// The page that contains it.
    pub mapping: Mapping,
    /// Cycle from which the translation is ready.
    pub ready: Cycle,
    /// True if it is counted; functional warming is not.
    pub counted: bool,
    /// True if it was fetched for this address. False if the request waited for an entry already on
    /// its way.
    pub fetched: bool,
}

/// LRU stacks of a level's arrays, which replace the level during filtered functional warming.
#[derive(Default)]
pub(crate) struct LevelLruStack(Vec<TlbLruStack>);

impl LevelLruStack {
    /// Invalidates the entries that `what` covers.
    pub fn forget(&mut self, what: &Invalidation) {
        for array in &mut self.0 {
            array.forget(what);
        }
    }
}

/// The first entry found in a level that covers an address. Array and slot are packed into one
/// word, so that calls pass it in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Presence(u64);

impl Presence {
    /// No entry covers the address.
    pub const ABSENT: Presence = Presence(u64::MAX);

    /// The entry at `place` (array and slot), if any.
    #[inline(always)]
    pub fn of(place: Option<(usize, usize)>) -> Self {
        place.map_or(Presence::ABSENT, |(array, slot)| {
            Presence((array as u64) << 32 | slot as u64)
        })
    }

    /// Array and slot, unless absent.
    #[inline(always)]
    pub fn place(self) -> Option<(usize, usize)> {
        (self != Presence::ABSENT).then_some(((self.0 >> 32) as usize, self.0 as u32 as usize))
    }
}

/// Minimum size of the hint table; a power of two.
const HINTS: usize = 64;
/// Hints per way of a set. With so many, nearly every page of a fully associative array has a hint
/// of its own, and is found without a search of all ways.
const HINTS_A_WAY: usize = 4;
/// Maximum size of the hint table.
const MOST_HINTS: usize = 1024;

/// Place where an address was found last. A hint saves the search and never changes the result.
#[derive(Clone, Copy, Debug)]
struct Hint {
    /// Key of the 4 KB page of the address.
    page: u64,
    /// Key of the entry that covers it.
    entry: u64,
    array: u32,
    slot: u32,
}

/// For each page size: the array that caches it, and the size of the cached piece.
fn places(arrays: &[Tlb]) -> [Option<(usize, PageSize)>; 3] {
    PageSize::ALL.map(|size| {
        PageSize::ALL[..=size.index()].iter().rev().find_map(|&s| {
            let array = arrays.iter().position(|a| a.sizes.contains(&s))?;
            Some((array, s))
        })
    })
}

/// A TLB level. Every lookup searches all arrays, so one counter counts the lookups of each. An
/// array's misses are the lookups that neither hit in it nor waited for one of its entries.
#[derive(Clone, Debug)]
pub(crate) struct TlbLevel {
    /// Its arrays, which are looked up in parallel.
    pub arrays: Vec<Tlb>,
    /// For each page size: the array that caches it, and the size of the cached piece.
    place: [Option<(usize, PageSize)>; 3],
    /// Cycles until a miss of all arrays is known.
    pub latency: Cycle,
    /// Lookups of the level.
    pub lookups: u64,
    /// Lookups of a first level for which no array has an entry, ready or on its way. Not used for
    /// a second level, whose misses are the MMU's walks.
    pub misses: u64,
    /// Hints, a power of two of them, indexed by [`TlbLevel::hint_of`].
    hints: Box<[Hint]>,
}

impl TlbLevel {
    /// Creates an empty level of these arrays, by name. Their replacement policies draw from random
    /// streams of `seed`, named after the arrays below `path`.
    pub fn new(specs: &BTreeMap<String, TlbSpec>, seed: u64, path: &str) -> Self {
        let draws = |name: &str| rng(seed, &format!("{path}.{name}.replacement"));
        let arrays: Vec<Tlb> = (specs.iter())
            .map(|(n, s)| Tlb::new(n, s, draws(n)))
            .collect();
        let place = places(&arrays);
        let widest = arrays.iter().map(Tlb::ways).max().unwrap_or(0);
        let hints = (HINTS_A_WAY * widest).next_power_of_two();
        TlbLevel {
            latency: arrays.iter().map(|a| a.latency).max().unwrap_or(0),
            arrays,
            place,
            lookups: 0,
            misses: 0,
            hints: vec![
                Hint {
                    page: u64::MAX,
                    entry: 0,
                    array: 0,
                    slot: 0,
                };
                hints.clamp(HINTS, MOST_HINTS)
            ]
            .into(),
        }
    }

    /// Removes the array for 4 KB pages, whose place a source takes. Returns true if none is left.
    /// All arrays are empty.
    pub fn remove_small(&mut self) -> bool {
        if let Some((array, _)) = self.place[0] {
            self.arrays.remove(array);
            self.place = places(&self.arrays);
        }
        self.arrays.is_empty()
    }

    /// Has the arrays note the entries that they evict.
    pub fn note_evictions(&mut self) {
        self.arrays.iter_mut().for_each(Tlb::note_evictions);
    }

    /// Address space and page of an entry that an array has evicted, once for each.
    pub fn take_evicted(&mut self) -> Option<(Asid, Extent)> {
        self.arrays.iter_mut().find_map(Tlb::take_evicted)
    }

    /// Array and slot of the entry that covers `va`, ready or not.
    #[inline(always)]
    pub fn find(&mut self, asid: Asid, va: u64) -> Option<(usize, usize)> {
        let page = key(asid, PageSize::K4, va);
        let h = self.hints[self.hint_of(page)];
        if h.page == page {
            let (a, s) = (h.array as usize, h.slot as usize);
            if self.arrays[a].key(s) == h.entry {
                return Some((a, s));
            }
        }
        self.search(asid, va, page)
    }

    /// The translation of `va`, without any change of state. In a first level (`first`) it is found
    /// only by its hint.
    #[inline]
    pub fn peek(&self, asid: Asid, va: u64, first: bool) -> Option<Mapping> {
        let page = key(asid, PageSize::K4, va);
        let h = self.hints[self.hint_of(page)];
        if h.page == page {
            let (a, s) = (h.array as usize, h.slot as usize);
            if self.arrays[a].key(s) == h.entry {
                return Some(self.arrays[a].mapping(s));
            }
        }
        if first {
            return None;
        }
        (self.arrays.iter()).find_map(|t| Some(t.mapping(t.cover(asid, va)?)))
    }

    /// As [`TlbLevel::find`], without a hint. Sets the hint.
    #[inline(never)]
    fn search(&mut self, asid: Asid, va: u64, page: u64) -> Option<(usize, usize)> {
        let (a, s) = self
            .arrays
            .iter()
            .enumerate()
            .find_map(|(a, t)| Some((a, t.cover(asid, va)?)))?;
        self.hint(page, a, s);
        Some((a, s))
    }

    /// Physical address of `va`, which the entry covers.
    #[inline]
    pub fn address(&self, array: usize, slot: usize, va: VirtAddr) -> PhysAddr {
        self.arrays[array].mapping(slot).pa(va)
    }

    /// Cycle from which an entry is ready.
    #[inline(always)]
    pub fn ready(&self, array: usize, slot: usize) -> Cycle {
        self.arrays[array].entry(slot).ready
    }

    /// Sets the hint of a page.
    fn hint(&mut self, page: u64, array: usize, slot: usize) {
        let hint = self.hint_of(page);
        self.hints[hint] = Hint {
            page,
            entry: self.arrays[array].key(slot),
            array: array as u32,
            slot: slot as u32,
        };
    }

    /// Index of the hint of a page.
    #[inline(always)]
    fn hint_of(&self, page: u64) -> usize {
        page as usize & (self.hints.len() - 1)
    }

    /// True if `place` holds the 4 KB page `page` in the array for such pages.
    #[inline(always)]
    pub fn holds_small(&self, place: (usize, usize), page: u64) -> bool {
        self.place[0] == Some((place.0, PageSize::K4)) && self.arrays[place.0].key(place.1) == page
    }

    /// Index of the array for 4 KB pages; 0 if there is none.
    #[inline(always)]
    pub fn small_array(&self) -> usize {
        self.place[0].map_or(0, |p| p.0)
    }

    /// The array for 4 KB pages.
    #[inline(always)]
    pub fn small(&mut self) -> &mut Tlb {
        let array = self.small_array();
        &mut self.arrays[array]
    }

    /// Prefetches into the host's caches the slot that a fill of the page of `va` will take, if
    /// that is a 4 KB page.
    #[inline(always)]
    pub fn host_prefetch_fill(&self, asid: Asid, va: u64) {
        if let Some((array, _)) = self.place[0] {
            self.arrays[array].host_prefetch_fill(key(asid, PageSize::K4, va));
        }
    }

    /// True if it can be warmed in filtered form: [`TlbLevel::export_lru`] is exact.
    pub fn can_filtered_warm(&self) -> bool {
        self.arrays.iter().all(Tlb::can_export_lru)
    }

    /// Copies the entries to `lru`, which replaces the level until [`TlbLevel::import_lru`].
    pub fn export_lru(&self, lru: &mut LevelLruStack) {
        (lru.0).resize_with(self.arrays.len(), TlbLruStack::default);
        for (array, lru) in self.arrays.iter().zip(&mut lru.0) {
            array.export_lru(lru);
        }
    }

    /// Replaces the contents by those of `lru`. All entries are ready.
    pub fn import_lru(&mut self, lru: &LevelLruStack) {
        for (array, lru) in self.arrays.iter_mut().zip(&lru.0) {
            array.import_lru(lru);
        }
    }

    /// Looks up `va` in `lru`, which replaces the level. A hit makes the entry the most recently
    /// used.
    #[inline]
    pub fn look_up_lru(&self, lru: &mut LevelLruStack, asid: Asid, va: u64) -> Option<Mapping> {
        let mut arrays = self.arrays.iter().zip(&mut lru.0);
        arrays.find_map(|(array, lru)| array.look_up_lru(lru, asid, va))
    }

    /// Inserts the page of `va`, which is absent, into `lru`, or the piece of it that the level can
    /// hold.
    #[inline]
    pub fn fill_lru(&self, lru: &mut LevelLruStack, asid: Asid, va: u64, mapping: Mapping) {
        if let Some((array, key, entry)) = self.piece(asid, va, mapping, 0) {
            self.arrays[array].fill_lru(&mut lru.0[array], key, entry);
        }
    }

    /// Lookups that waited for an entry on its way.
    pub fn waits(&self) -> u64 {
        self.arrays.iter().map(|a| a.waits).sum()
    }

    /// The repeated hits on one page that the replacement policies of all arrays must see.
    pub fn hit_visibility(&self) -> HitVisibility {
        let all = self.arrays.iter().map(Tlb::hit_visibility);
        all.max().unwrap_or(HitVisibility::NoRepeat)
    }

    /// The array, key and entry for the page of `va`, or for the piece of it that this level can
    /// hold.
    #[inline(always)]
    fn piece(
        &self,
        asid: Asid,
        va: u64,
        mapping: Mapping,
        ready: Cycle,
    ) -> Option<(usize, u64, TlbEntry)> {
        let (array, held) = self.place[mapping.size.index()]?;
        let base = mapping.frame + (va & (mapping.size.bytes() - 1) & !(held.bytes() - 1));
        let entry = TlbEntry::new(base, mapping.writable, ready);
        Some((array, key(asid, held, va), entry))
    }

    /// Inserts the arriving page, or the piece of it that this level can hold. `presence`: the
    /// entry that already covers the address here. `used`: a refill of a present page counts as a
    /// use. Returns the array and the resulting entry.
    #[inline(always)]
    pub fn fill(
        &mut self,
        arrival: &Arrival,
        presence: Presence,
        used: bool,
    ) -> Option<(usize, TlbEntry)> {
        let &Arrival {
            asid,
            va: VirtAddr(va),
            mapping,
            ready,
            counted,
            fetched,
        } = arrival;
        let (array, key_held, entry) = self.piece(asid, va, mapping, ready)?;
        let tlb = &mut self.arrays[array];
        if let Some((a, slot)) = presence.place() {
            // The covering entry may be of another size.
            let place = if a == array && tlb.key(slot) == key_held {
                Some(slot)
            } else {
                tlb.find(key_held)
            };
            if let Some(slot) = place {
                return Some((array, tlb.refill(slot, entry, counted && fetched, used)));
            }
        }
        self.put(key_held, entry, counted, array, key(asid, PageSize::K4, va));
        Some((array, entry))
    }

    /// Inserts a prefetched page, which is absent. The fill is not a miss of the level.
    pub fn fill_prefetched(&mut self, arrival: &Arrival) {
        let Some((array, _)) = self.place[arrival.mapping.size.index()] else {
            return;
        };
        let stale = self.arrays[array].stale;
        self.fill(arrival, Presence::ABSENT, true);
        self.arrays[array].stale = stale;
    }

    /// Inserts a key that is absent from the array. `page`: key of the 4 KB page that was accessed.
    #[inline(never)]
    fn put(&mut self, held: u64, entry: TlbEntry, counted: bool, array: usize, page: u64) {
        let slot = self.arrays[array].fill(held, entry, counted);
        let hint = self.hint_of(page);
        self.hints[hint] = Hint {
            page,
            entry: held,
            array: array as u32,
            slot: slot as u32,
        };
    }

    /// Clears all hints.
    #[cfg(test)]
    pub fn forget_hints(&mut self) {
        self.hints.iter_mut().for_each(|h| h.page = u64::MAX);
    }

    /// Adds the counters of each array below `path`. `extra_hits`: index of an array, and hits to
    /// add to it.
    pub fn report(&self, path: &str, extra_hits: Option<(usize, u64)>, tree: &mut Tree) {
        let extra = extra_hits.map_or(0, |e| e.1);
        let hits: Vec<u64> = (self.arrays.iter().enumerate())
            .map(|(i, a)| a.hits + extra_hits.map_or(0, |e| if e.0 == i { e.1 } else { 0 }))
            .collect();
        for (a, hits) in self.arrays.iter().zip(hits) {
            let lookups = self.lookups + extra;
            let stats = TlbStats {
                lookups,
                hits,
                waits: a.waits,
                misses: lookups - hits - a.waits,
                fills: a.fills,
                evictions: a.evictions,
            };
            tree.add(&format!("{path}.{}", a.name), &stats);
        }
    }
}
