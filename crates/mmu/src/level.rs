//! The arrays of one level, looked up in parallel.

use std::collections::BTreeMap;

use pagewalk_stats::Tree;
use pagewalk_tables::Invalidation;
use pagewalk_units::{Asid, Cycle, PageSize, PhysAddr, VirtAddr, rng};

use crate::TlbSpec;
use crate::mapping::Mapping;
use crate::replacement::HitVisibility;
use crate::tlb::{Tlb, TlbEntry, TlbLruStack, TlbStats, key};

/// A translation that comes into TLBs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Whose.
    pub asid: Asid,
    /// The address that was asked for.
    pub va: VirtAddr,
    /// The page around it.
    pub mapping: Mapping,
    /// From when on it answers.
    pub ready: Cycle,
    /// Whether it is in the statistics: warming is not.
    pub counted: bool,
    /// Whether it was fetched for this address; else one that is on its way already
    /// was waited for.
    pub fetched: bool,
}

/// What stands for a level while it is followed: for each of its arrays.
#[derive(Default)]
pub(crate) struct LevelLruStack(Vec<TlbLruStack>);

impl LevelLruStack {
    /// What the kernel has changed.
    pub fn forget(&mut self, what: &Invalidation) {
        for array in &mut self.0 {
            array.forget(what);
        }
    }
}

/// The entry that covers an address in a level, found first: array and slot in
/// one word, since it goes through several calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Presence(u64);

impl Presence {
    /// No entry covers it.
    pub const ABSENT: Presence = Presence(u64::MAX);

    #[inline(always)]
    pub fn of(place: Option<(usize, usize)>) -> Self {
        place.map_or(Presence::ABSENT, |(array, slot)| {
            Presence((array as u64) << 32 | slot as u64)
        })
    }

    /// Array and slot, unless it is absent.
    #[inline(always)]
    pub fn place(self) -> Option<(usize, usize)> {
        (self != Presence::ABSENT).then_some(((self.0 >> 32) as usize, self.0 as u32 as usize))
    }
}

/// Slots of the hint table at least; a power of two.
const HINTS: usize = 64;
/// Slots for each way of a set: pages that fill a fully associative array mostly have
/// one of their own, and are not searched for among all ways.
const HINTS_A_WAY: usize = 4;
/// Slots at most.
const MOST_HINTS: usize = 1024;

/// Where an address was found last: spares the search, never decides.
#[derive(Clone, Copy, Debug)]
struct Hint {
    /// Key of the 4 KB page of the address.
    page: u64,
    /// Key of the entry that covers it.
    entry: u64,
    array: u32,
    slot: u32,
}

/// A level. Every lookup looks into all arrays, so that lookups are counted once
/// for all of them. An array misses what it neither had nor was waited for in.
#[derive(Clone, Debug)]
pub(crate) struct TlbLevel {
    pub arrays: Vec<Tlb>,
    /// Where a page of each size goes, and as what size.
    place: [Option<(usize, PageSize)>; 3],
    /// Cycles until it is known that no array has it.
    pub latency: Cycle,
    pub lookups: u64,
    /// Lookups of a first level that no array had, or had on its way, counted where
    /// the way past the level begins. A second level's are the MMU's walks.
    pub misses: u64,
    /// A power of two of them, [`TlbLevel::hint_of`] tells which.
    hints: Box<[Hint]>,
}

impl TlbLevel {
    /// An empty level of these arrays, by name, which draw what they draw at random from the
    /// streams of `seed` named after them below `path`.
    pub fn new(specs: &BTreeMap<String, TlbSpec>, seed: u64, path: &str) -> Self {
        let draws = |name: &str| rng(seed, &format!("{path}.{name}.replacement"));
        let arrays: Vec<Tlb> = (specs.iter())
            .map(|(n, s)| Tlb::new(n, s, draws(n)))
            .collect();
        let place = PageSize::ALL.map(|size| {
            PageSize::ALL[..=size.index()].iter().rev().find_map(|&s| {
                let array = arrays.iter().position(|a| a.sizes.contains(&s))?;
                Some((array, s))
            })
        });
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

    /// Array and slot of the entry that covers `va`.
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

    /// The translation of `va` by the entry that covers it, leaving all as it is; of a first
    /// level only where that was found last.
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

    /// The physical address of `va`, which the entry covers.
    #[inline]
    pub fn address(&self, array: usize, slot: usize, va: VirtAddr) -> PhysAddr {
        self.arrays[array].mapping(slot).pa(va)
    }

    /// From when on an entry answers.
    #[inline(always)]
    pub fn ready(&self, array: usize, slot: usize) -> Cycle {
        self.arrays[array].entry(slot).ready
    }

    fn hint(&mut self, page: u64, array: usize, slot: usize) {
        let hint = self.hint_of(page);
        self.hints[hint] = Hint {
            page,
            entry: self.arrays[array].key(slot),
            array: array as u32,
            slot: slot as u32,
        };
    }

    /// Where the hint of a page is.
    #[inline(always)]
    fn hint_of(&self, page: u64) -> usize {
        page as usize & (self.hints.len() - 1)
    }

    /// Whether `place` is an entry of the 4 KB page `page` in the array where
    /// such pages go.
    #[inline(always)]
    pub fn holds_small(&self, place: (usize, usize), page: u64) -> bool {
        self.place[0] == Some((place.0, PageSize::K4)) && self.arrays[place.0].key(place.1) == page
    }

    /// Number of the array where 4 KB pages go, if there is one.
    #[inline(always)]
    pub fn small_array(&self) -> usize {
        self.place[0].map_or(0, |p| p.0)
    }

    /// That array.
    #[inline(always)]
    pub fn small(&mut self) -> &mut Tlb {
        let array = self.small_array();
        &mut self.arrays[array]
    }

    /// Tells the host that the page of `va`, probably a small one, will be put in.
    #[inline(always)]
    pub fn host_prefetch_fill(&self, asid: Asid, va: u64) {
        if let Some((array, _)) = self.place[0] {
            self.arrays[array].host_prefetch_fill(key(asid, PageSize::K4, va));
        }
    }

    /// Whether [`TlbLevel::export_lru`] tells all that there is.
    pub fn can_export_lru(&self) -> bool {
        self.arrays.iter().all(Tlb::can_export_lru)
    }

    /// Hands its entries over to `lru`, which stands for it until [`TlbLevel::import_lru`].
    pub fn export_lru(&self, lru: &mut LevelLruStack) {
        (lru.0).resize_with(self.arrays.len(), TlbLruStack::default);
        for (array, lru) in self.arrays.iter().zip(&mut lru.0) {
            array.export_lru(lru);
        }
    }

    /// Holds what `lru` does, all of it ready.
    pub fn import_lru(&mut self, lru: &LevelLruStack) {
        for (array, lru) in self.arrays.iter_mut().zip(&lru.0) {
            array.import_lru(lru);
        }
    }

    /// The translation of `va` by the entry that covers it in `lru`, which stands for the level; the
    /// entry is used.
    #[inline]
    pub fn look_up_lru(&self, lru: &mut LevelLruStack, asid: Asid, va: u64) -> Option<Mapping> {
        let mut arrays = self.arrays.iter().zip(&mut lru.0);
        arrays.find_map(|(array, lru)| array.look_up_lru(lru, asid, va))
    }

    /// Puts the page of `va`, which is not there, into `lru`, or the piece of it that the level
    /// can hold.
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

    /// Which of several hits in a row on one page change what an array replaces next.
    pub fn hit_visibility(&self) -> HitVisibility {
        let all = self.arrays.iter().map(Tlb::hit_visibility);
        all.max().unwrap_or(HitVisibility::NoRepeat)
    }

    /// In which array, under which key and as what the page around `va` goes in, or the piece of it that
    /// this level can hold.
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

    /// Puts in the page that arrives, or the piece of it that this level can
    /// hold; `presence` of the address here. Gives the array and the entry as it is
    /// there. `used`: when it is there already, that is a use of it.
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
            // An entry of another size may cover it, too.
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

    /// Puts in a page that is not there and that nobody asked for: the level did not miss it.
    pub fn fill_unasked(&mut self, arrival: &Arrival) {
        let Some((array, _)) = self.place[arrival.mapping.size.index()] else {
            return;
        };
        let unknown = self.arrays[array].stale;
        self.fill(arrival, Presence::ABSENT, true);
        self.arrays[array].stale = unknown;
    }

    /// Puts a key into an array that does not have it; `page`: whose address was asked for.
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

    #[cfg(test)]
    pub fn forget_hints(&mut self) {
        self.hints.iter_mut().for_each(|h| h.page = u64::MAX);
    }

    /// Adds the counters of each array below `path`; `extra_hits` go to the array of that number.
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
