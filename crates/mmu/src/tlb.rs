//! One TLB array: any number of sets, least recently used replaced.

use pagewalk_structures::equal_bytes;
use pagewalk_units::{Asid, Cycle, PageSize};

use crate::TlbSpec;
use crate::level::Found;

pagewalk_stats::counters! {
    /// What one TLB array counted.
    pub struct TlbStats {
        lookups: "lookups", "Translations looked up in the array";
        hits: "lookups", "Lookups that found an entry that was ready";
        misses: "lookups", "Lookups that did not: another array of the level may have had it";
        fills: "entries", "Entries put in";
        evictions: "entries", "Entries replaced while still valid";
    }
}

/// A translation as an array holds it.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Entry {
    /// Base of the frame; bit 0: stores are allowed.
    frame: u64,
    /// From when on it answers.
    pub ready: Cycle,
}

impl Entry {
    #[inline]
    pub fn new(frame: u64, writable: bool, ready: Cycle) -> Self {
        Entry {
            frame: frame | u64::from(writable),
            ready,
        }
    }
    #[inline]
    pub fn frame(self) -> u64 {
        self.frame & !1
    }
    #[inline]
    pub fn writable(self) -> bool {
        self.frame & 1 != 0
    }
}

/// Bits of a page number in a key: 57-bit addresses in 4 KB pages.
const NUMBER_BITS: u32 = 45;
const EMPTY: u64 = u64::MAX;

/// The key of a page: address space, size and number; never [`EMPTY`].
#[inline]
pub(crate) fn key(asid: Asid, size: PageSize, va: u64) -> u64 {
    let number = (va >> size.shift()) & ((1 << NUMBER_BITS) - 1);
    u64::from(asid.0) << 48 | (size as u64) << 46 | number
}

/// Ways whose prints are compared at once.
const CHUNK: usize = 16;

/// A byte of a key, by which a search looks at all ways at once and at the keys
/// of those only that may be the right one: the high byte of Fibonacci hashing
/// depends on all bits.
#[inline]
pub(crate) fn print(key: u64) -> u8 {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// Where a slot stands in its set's order of use; all by way within the set.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// Its own way: a slot less its way is the set's first slot.
    way: u16,
    /// Neighbours towards more and less recent use.
    newer: u16,
    older: u16,
    /// Most and least recently used way of the set; kept in its first slot.
    first: u16,
    last: u16,
}

/// What the array keeps of a way.
#[derive(Clone, Copy, Debug)]
struct Slot {
    key: u64,
    entry: Entry,
    link: Link,
}

/// The array. A set's ways form a list in the order of use, unused ways last,
/// so that the victim is known without a search.
#[derive(Clone, Debug)]
pub(crate) struct Tlb {
    pub name: String,
    pub latency: Cycle,
    pub sizes: Vec<PageSize>,
    /// Valid entries of each size: a size without any needs no probe.
    held: [u32; 3],
    sets: u64,
    mask: Option<u64>,
    ways: usize,
    /// A print of each way; each set padded to whole chunks.
    prints: Vec<[u8; CHUNK]>,
    /// Chunks of a set.
    chunks: usize,
    slots: Vec<Slot>,
    pub hits: u64,
    pub fills: u64,
    pub evictions: u64,
}

impl Tlb {
    pub fn new(name: &str, spec: &TlbSpec) -> Self {
        let ways = spec.ways as usize;
        let sets = (spec.entries / spec.ways) as usize;
        let n = sets * ways;
        Tlb {
            name: name.to_owned(),
            latency: spec.latency,
            sizes: spec.page_sizes.clone(),
            held: [0; 3],
            sets: sets as u64,
            mask: sets.is_power_of_two().then(|| sets as u64 - 1),
            ways,
            prints: vec![[0; CHUNK]; sets * ways.div_ceil(CHUNK)],
            chunks: ways.div_ceil(CHUNK),
            slots: (0..n)
                .map(|slot| (slot % ways) as u16)
                .map(|way| Slot {
                    key: EMPTY,
                    entry: Entry::default(),
                    link: Link {
                        way,
                        newer: way.wrapping_sub(1),
                        older: way + 1,
                        first: 0,
                        last: ways as u16 - 1,
                    },
                })
                .collect(),
            hits: 0,
            fills: 0,
            evictions: 0,
        }
    }

    #[inline]
    fn set(&self, key: u64) -> usize {
        let number = key & ((1 << NUMBER_BITS) - 1);
        match self.mask {
            Some(m) => (number & m) as usize,
            None => (number % self.sets) as usize,
        }
    }

    /// The slot of `key`.
    #[inline]
    pub fn find(&self, key: u64) -> Option<usize> {
        let set = self.set(key);
        let (first, base) = (set * self.chunks, set * self.ways);
        let slots = &self.slots[base..base + self.ways];
        for (n, chunk) in self.prints[first..first + self.chunks].iter().enumerate() {
            let mut same = equal_bytes(chunk, print(key));
            while same != 0 {
                let way = n * CHUNK + same.trailing_zeros() as usize;
                if slots.get(way).is_some_and(|s| s.key == key) {
                    return Some(base + way);
                }
                same &= same - 1;
            }
        }
        None
    }

    /// The slot of the entry that covers `va`, of whatever size.
    #[inline]
    pub fn cover(&self, asid: Asid, va: u64) -> Option<usize> {
        PageSize::ALL
            .into_iter()
            .filter(|s| self.held[s.index()] != 0)
            .find_map(|s| self.find(key(asid, s, va)))
    }

    /// The key in `slot`, [`EMPTY`] in one not used.
    #[inline(always)]
    pub fn key(&self, slot: usize) -> u64 {
        self.slots[slot].key
    }

    /// The entry in `slot`.
    #[inline(always)]
    pub fn entry(&self, slot: usize) -> Entry {
        self.slots[slot].entry
    }

    /// The translation in `slot`.
    #[inline(always)]
    pub fn found(&self, slot: usize) -> Found {
        let s = &self.slots[slot];
        Found {
            frame: s.entry.frame(),
            size: PageSize::ALL[size_of_key(s.key)],
            writable: s.entry.writable(),
        }
    }

    #[inline(always)]
    fn unlink(set: &mut [Slot], way: u16) {
        let Link { newer, older, .. } = set[usize::from(way)].link;
        if set[0].link.first == way {
            set[0].link.first = older;
        } else {
            set[usize::from(newer)].link.older = older;
        }
        if set[0].link.last == way {
            set[0].link.last = newer;
        } else {
            set[usize::from(older)].link.newer = newer;
        }
    }

    /// Makes `slot` the most recently used of its set.
    #[inline(always)]
    pub fn touch(&mut self, slot: usize) {
        let way = self.slots[slot].link.way;
        let base = slot - usize::from(way);
        if self.slots[base].link.first != way {
            self.make_first(base, way);
        }
    }

    #[inline]
    fn make_first(&mut self, base: usize, way: u16) {
        let set = &mut self.slots[base..base + self.ways];
        Self::unlink(set, way);
        let first = set[0].link.first;
        set[usize::from(way)].link.older = first;
        set[usize::from(first)].link.newer = way;
        set[0].link.first = way;
    }

    /// Puts the entry of the key in `slot` in again, as most recently used; it
    /// stays ready as early as it was. `counted`: in the statistics. Gives the
    /// entry as it is now.
    #[inline(always)]
    pub fn refill(&mut self, slot: usize, mut entry: Entry, counted: bool) -> Entry {
        self.fills += u64::from(counted);
        let s = &mut self.slots[slot];
        entry.ready = entry.ready.min(s.entry.ready);
        s.entry = entry;
        self.touch(slot);
        entry
    }

    /// Puts `key`, which is not there, in as most recently used; gives its slot.
    /// `counted`: in the statistics.
    #[inline(always)]
    pub fn fill(&mut self, key: u64, entry: Entry, counted: bool) -> usize {
        debug_assert_eq!(self.find(key), None);
        self.fills += u64::from(counted);
        let set = self.set(key);
        let base = set * self.ways;
        let way = self.slots[base].link.last;
        let slot = base + usize::from(way);
        let s = &mut self.slots[slot];
        let old = std::mem::replace(&mut s.key, key);
        s.entry = entry;
        if old != EMPTY {
            self.evictions += u64::from(counted);
            self.held[size_of_key(old)] -= 1;
        }
        self.held[size_of_key(key)] += 1;
        let way_at = usize::from(way);
        self.prints[set * self.chunks + way_at / CHUNK][way_at % CHUNK] = print(key);
        if self.slots[base].link.first != way {
            self.make_first(base, way);
        }
        slot
    }

    fn clear(&mut self, slot: usize) {
        self.held[size_of_key(self.slots[slot].key)] -= 1;
        self.slots[slot].key = EMPTY;
        let way = self.slots[slot].link.way;
        let base = slot - usize::from(way);
        let set = &mut self.slots[base..base + self.ways];
        if set[0].link.last != way {
            Self::unlink(set, way);
            let last = set[0].link.last;
            set[usize::from(way)].link.newer = last;
            set[usize::from(last)].link.older = way;
            set[0].link.last = way;
        }
    }

    /// Drops the entries that cover `va`.
    pub fn drop_page(&mut self, asid: Asid, va: u64) {
        while let Some(slot) = self.cover(asid, va) {
            self.clear(slot);
        }
    }

    /// Drops all entries of `asid` that overlap `at..at + bytes`.
    pub fn drop_range(&mut self, asid: Asid, at: u64, bytes: u64) {
        let end = at.saturating_add(bytes);
        for slot in 0..self.slots.len() {
            let k = self.slots[slot].key;
            if k == EMPTY || k >> 48 != u64::from(asid.0) {
                continue;
            }
            let shift = PageSize::ALL[size_of_key(k)].shift();
            let base = (k & ((1 << NUMBER_BITS) - 1)) << shift;
            if base < end && at < base + (1 << shift) {
                self.clear(slot);
            }
        }
    }

    /// Drops everything of `asid`.
    pub fn drop_space(&mut self, asid: Asid) {
        for slot in 0..self.slots.len() {
            let k = self.slots[slot].key;
            if k != EMPTY && k >> 48 == u64::from(asid.0) {
                self.clear(slot);
            }
        }
    }

    #[cfg(test)]
    pub fn in_order_of_use(&self) -> Vec<u64> {
        let mut all = vec![];
        for set in self.slots.chunks(self.ways) {
            let mut way = set[0].link.first;
            for _ in 0..self.ways {
                all.push(set[usize::from(way)].key);
                way = set[usize::from(way)].link.older;
            }
        }
        all
    }
}

#[inline]
fn size_of_key(key: u64) -> usize {
    (key >> 46 & 3) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same array as lists of keys, most recently used first.
    struct Oracle {
        sets: Vec<Vec<u64>>,
        ways: usize,
    }

    impl Oracle {
        fn set(&mut self, number: u64) -> &mut Vec<u64> {
            let n = self.sets.len() as u64;
            &mut self.sets[(number % n) as usize]
        }
    }

    proptest! {
        #[test]
        fn an_array_replaces_the_least_recently_used(
            sets in 1u32..6, ways in 1u32..20, steps in prop::collection::vec((0u8..8, 0u64..60), 1..400),
        ) {
            let spec = TlbSpec {
                page_sizes: vec![PageSize::K4],
                entries: sets * ways,
                ways,
                latency: 1,
            };
            let mut tlb = Tlb::new("main", &spec);
            let mut oracle = Oracle { sets: vec![vec![]; sets as usize], ways: ways as usize };
            let asid = Asid(3);
            for (what, number) in steps {
                let va = number << 12;
                let k = key(asid, PageSize::K4, va);
                let most = oracle.ways;
                let set = oracle.set(number);
                let place = set.iter().position(|&x| x == k);
                prop_assert_eq!(tlb.cover(asid, va).is_some(), place.is_some());
                match what {
                    0 => {
                        tlb.drop_page(asid, va);
                        set.retain(|&x| x != k);
                    }
                    1..=3 => {
                        let entry = Entry::new(number << 12, true, 0);
                        match tlb.find(k) {
                            Some(slot) => {
                                tlb.refill(slot, entry, true);
                            }
                            None => {
                                tlb.fill(k, entry, true);
                            }
                        }
                        set.retain(|&x| x != k);
                        set.insert(0, k);
                        set.truncate(most);
                    }
                    _ => {
                        if let Some(slot) = tlb.cover(asid, va) {
                            tlb.touch(slot);
                            prop_assert_eq!(tlb.found(slot).frame, va);
                            set.retain(|&x| x != k);
                            set.insert(0, k);
                        }
                    }
                }
                let held: Vec<u64> = tlb.in_order_of_use().into_iter().filter(|&x| x != EMPTY).collect();
                prop_assert_eq!(held, oracle.sets.concat());
            }
        }
    }
}
