//! One TLB array: any number of sets, least recently used replaced.

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

/// 32 bits of a key: 64 ways are compared in a few vector instructions.
#[inline]
fn tag(key: u64) -> u32 {
    key as u32 ^ ((key >> 32) as u32).wrapping_mul(0x9E37_79B1)
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
    tags: Vec<u32>,
    pub keys: Vec<u64>,
    pub entries: Vec<Entry>,
    /// Neighbours towards more and less recent use, by way within the set.
    newer: Vec<u16>,
    older: Vec<u16>,
    first: Vec<u16>,
    last: Vec<u16>,
    pub hits: u64,
    pub fills: u64,
    pub evictions: u64,
}

impl Tlb {
    pub fn new(name: &str, spec: &TlbSpec) -> Self {
        let ways = spec.ways as usize;
        let sets = (spec.entries / spec.ways) as usize;
        let n = sets * ways;
        let way = |s: usize| (s % ways) as u16;
        Tlb {
            name: name.to_owned(),
            latency: spec.latency,
            sizes: spec.page_sizes.clone(),
            held: [0; 3],
            sets: sets as u64,
            mask: sets.is_power_of_two().then(|| sets as u64 - 1),
            ways,
            tags: vec![tag(EMPTY); n],
            keys: vec![EMPTY; n],
            entries: vec![Entry::default(); n],
            newer: (0..n).map(|s| way(s).wrapping_sub(1)).collect(),
            older: (0..n).map(|s| way(s) + 1).collect(),
            first: vec![0; sets],
            last: vec![ways as u16 - 1; sets],
            hits: 0,
            fills: 0,
            evictions: 0,
        }
    }

    #[inline]
    fn set(&self, key: u64) -> usize {
        let number = key & ((1 << NUMBER_BITS) - 1);
        (match self.mask {
            Some(m) => number & m,
            None => number % self.sets,
        }) as usize
    }

    /// The slot of `key`.
    #[inline]
    pub fn find(&self, key: u64) -> Option<usize> {
        let base = self.set(key) * self.ways;
        let tag = tag(key);
        let tags = &self.tags[base..base + self.ways];
        let (chunks, rest) = tags.as_chunks::<8>();
        for (c, chunk) in chunks.iter().enumerate() {
            let mut same = 0u32;
            for (i, t) in chunk.iter().enumerate() {
                same |= u32::from(*t == tag) << i;
            }
            while same != 0 {
                let at = base + c * 8 + same.trailing_zeros() as usize;
                if self.keys[at] == key {
                    return Some(at);
                }
                same &= same - 1;
            }
        }
        let start = base + chunks.len() * 8;
        (0..rest.len())
            .find(|&i| rest[i] == tag && self.keys[start + i] == key)
            .map(|i| start + i)
    }

    /// The slot of the entry that covers `va`, of whatever size.
    #[inline]
    pub fn cover(&self, asid: Asid, va: u64) -> Option<usize> {
        PageSize::ALL
            .into_iter()
            .filter(|s| self.held[s.index()] != 0)
            .find_map(|s| self.find(key(asid, s, va)))
    }

    /// The translation in `slot`.
    #[inline]
    pub fn found(&self, slot: usize) -> Found {
        let e = self.entries[slot];
        Found {
            frame: e.frame(),
            size: PageSize::ALL[size_of_key(self.keys[slot])],
            writable: e.writable(),
        }
    }

    fn unlink(&mut self, set: usize, way: u16) {
        let base = set * self.ways;
        let (n, o) = (
            self.newer[base + way as usize],
            self.older[base + way as usize],
        );
        if self.first[set] == way {
            self.first[set] = o;
        } else {
            self.older[base + n as usize] = o;
        }
        if self.last[set] == way {
            self.last[set] = n;
        } else {
            self.newer[base + o as usize] = n;
        }
    }

    /// Makes `slot` the most recently used of its set.
    #[inline]
    pub fn touch(&mut self, slot: usize) {
        let set = slot / self.ways;
        let way = (slot - set * self.ways) as u16;
        if self.first[set] != way {
            self.move_to_front(set, way);
        }
    }

    fn move_to_front(&mut self, set: usize, way: u16) {
        self.unlink(set, way);
        let base = set * self.ways;
        let f = self.first[set];
        self.older[base + way as usize] = f;
        self.newer[base + f as usize] = way;
        self.first[set] = way;
    }

    /// Puts `key` in as most recently used; gives its slot. An entry that is
    /// there already stays ready as early as it was. `counted`: in the statistics.
    pub fn fill(&mut self, key: u64, mut entry: Entry, counted: bool) -> usize {
        self.fills += u64::from(counted);
        let set = self.set(key);
        let slot = match self.find(key) {
            Some(slot) => {
                entry.ready = entry.ready.min(self.entries[slot].ready);
                slot
            }
            None => {
                let slot = set * self.ways + self.last[set] as usize;
                if self.keys[slot] != EMPTY {
                    self.evictions += u64::from(counted);
                    self.held[size_of_key(self.keys[slot])] -= 1;
                }
                self.held[size_of_key(key)] += 1;
                self.keys[slot] = key;
                self.tags[slot] = tag(key);
                slot
            }
        };
        self.entries[slot] = entry;
        self.touch(slot);
        slot
    }

    fn clear(&mut self, slot: usize) {
        self.held[size_of_key(self.keys[slot])] -= 1;
        self.keys[slot] = EMPTY;
        self.tags[slot] = tag(EMPTY);
        let set = slot / self.ways;
        let way = (slot - set * self.ways) as u16;
        if self.last[set] != way {
            self.unlink(set, way);
            let base = set * self.ways;
            let l = self.last[set];
            self.newer[base + way as usize] = l;
            self.older[base + l as usize] = way;
            self.last[set] = way;
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
        for slot in 0..self.keys.len() {
            let k = self.keys[slot];
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
        for slot in 0..self.keys.len() {
            if self.keys[slot] != EMPTY && self.keys[slot] >> 48 == u64::from(asid.0) {
                self.clear(slot);
            }
        }
    }

    #[cfg(test)]
    pub fn in_order_of_use(&self) -> Vec<u64> {
        let mut all = vec![];
        for set in 0..self.sets as usize {
            let mut way = self.first[set];
            for _ in 0..self.ways {
                all.push(self.keys[set * self.ways + way as usize]);
                way = self.older[set * self.ways + way as usize];
            }
        }
        all
    }
}

#[inline]
fn size_of_key(key: u64) -> usize {
    (key >> 46 & 3) as usize
}
