//! One TLB array: any number of sets, replaced by any policy.

mod lru_stack;

use pagewalk_structures::{EPOCHS, StaleOutcomes, equal_bytes, prefetch};
use pagewalk_units::{Asid, Cycle, PageSize, Rng};

use crate::mapping::Mapping;
use crate::replacement::lru::{RANKED, Ranks};
use crate::replacement::{HitVisibility, Policy, Replacement};
use crate::{TlbReplacement, TlbSpec};

pub(crate) use self::lru_stack::TlbLruStack;

pagewalk_stats::counters! {
    /// What one TLB array counted.
    pub struct TlbStats {
        lookups: "lookups", "Translations looked up in the array";
        hits: "lookups", "Lookups that found an entry that was ready";
        waits: "lookups", "Lookups that waited for an entry on its way into the array: of a first level from the second or a walk, of a second from a walk that the first had not asked for";
        misses: "lookups", "Lookups that found neither: another array of the level may have had it";
        fills: "entries", "Entries put in";
        evictions: "entries", "Entries replaced while still valid";
    }
}

/// A translation as an array holds it.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct TlbEntry {
    /// Base of the frame; bit 0: stores are allowed.
    frame: u64,
    /// From when on it answers.
    pub ready: Cycle,
}

impl TlbEntry {
    #[inline]
    pub fn new(frame: u64, writable: bool, ready: Cycle) -> Self {
        TlbEntry {
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
const CHUNK: usize = RANKED;

/// A byte of a key, by which a search looks at all ways at once and at the keys
/// of those only that may be the right one: the high byte of Fibonacci hashing
/// depends on all bits.
#[inline]
pub(crate) fn print(key: u64) -> u8 {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// Sixteen ways of a set: the print of each, and under LRU where there are no more of them
/// their order of use. Together, since the host's cache misses are what costs.
#[derive(Clone, Copy, Debug)]
struct Head {
    prints: [u8; CHUNK],
    ranks: Ranks,
}

/// What the array keeps of a way.
#[derive(Clone, Copy, Debug)]
struct Slot {
    key: u64,
    entry: TlbEntry,
    set: u32,
    way: u16,
    /// When it was last used, as the array's; of one that was emptied, what was in it.
    epoch: u16,
}

/// The array. Under LRU unused ways are last in the order of use, so that the way to be
/// filled next is known without a search: it has the last rank of its set, or, in sets
/// of many ways, it ends a list. Under any other policy a free way is searched for, and the
/// policy asked where there is none.
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
    /// Each set padded to whole chunks.
    heads: Vec<Head>,
    /// Chunks of a set.
    chunks: usize,
    slots: Vec<Slot>,
    /// LRU, in sets of one chunk: [`Head::ranks`] is the order of use.
    ranked: bool,
    /// LRU, whose order is renewed by whatever brings an entry again.
    lru: bool,
    policy: Replacement,
    hit_visibility: HitVisibility,
    /// Ways of each set that are not in use; empty under LRU.
    free: Vec<u16>,
    pub hits: u64,
    /// Lookups that waited for an entry on its way into it.
    pub waits: u64,
    pub fills: u64,
    pub evictions: u64,
    /// The stretch of the run since something was last passed over; 0: before all that are told
    /// apart.
    epoch: u16,
    /// What is not known because something was passed over.
    pub stale: StaleOutcomes,
}

impl Tlb {
    /// An empty array; `name` is its own in the statistics. What its policy draws at random
    /// comes from `draws`.
    pub fn new(name: &str, spec: &TlbSpec, draws: Rng) -> Self {
        let ways = spec.ways as usize;
        let sets = (spec.entries / spec.ways) as usize;
        let n = sets * ways;
        let chunks = ways.div_ceil(CHUNK);
        let lru = spec.replacement == TlbReplacement::Lru;
        Tlb {
            name: name.to_owned(),
            latency: spec.latency,
            sizes: spec.page_sizes.clone(),
            held: [0; 3],
            sets: sets as u64,
            mask: sets.is_power_of_two().then(|| sets as u64 - 1),
            ways,
            heads: vec![
                Head {
                    prints: [0; CHUNK],
                    ranks: Ranks::new(ways),
                };
                sets * chunks
            ],
            chunks,
            slots: (0..n)
                .map(|slot| Slot {
                    key: EMPTY,
                    entry: TlbEntry::default(),
                    set: (slot / ways) as u32,
                    way: (slot % ways) as u16,
                    epoch: 0,
                })
                .collect(),
            ranked: lru && ways <= RANKED,
            lru,
            policy: spec.replacement.build(sets, ways, draws),
            hit_visibility: spec.replacement.hit_visibility(),
            free: vec![ways as u16; if lru { 0 } else { sets }],
            hits: 0,
            waits: 0,
            fills: 0,
            evictions: 0,
            epoch: 0,
            stale: StaleOutcomes::default(),
        }
    }

    /// Something was passed over: of what is here, nobody knows whether it still would be.
    pub fn mark_stale(&mut self) {
        if u64::from(self.epoch) == EPOCHS {
            // All marks are in use: what has any is of before all that come.
            self.slots.iter_mut().for_each(|s| s.epoch = 0);
            self.epoch = 0;
        }
        self.epoch += 1;
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
        if self.chunks == 1 {
            return self.find_in(set, 0, key);
        }
        (0..self.chunks).find_map(|n| self.find_in(set, n, key))
    }

    /// The same among the ways of one chunk.
    #[inline(always)]
    fn find_in(&self, set: usize, n: usize, key: u64) -> Option<usize> {
        let base = set * self.ways;
        let mut same = equal_bytes(&self.heads[set * self.chunks + n].prints, print(key));
        while same != 0 {
            let way = n * CHUNK + same.trailing_zeros() as usize;
            if way < self.ways && self.slots[base + way].key == key {
                return Some(base + way);
            }
            same &= same - 1;
        }
        None
    }

    /// The slot of the entry that covers `va`, of whatever size.
    #[inline]
    pub fn cover(&self, asid: Asid, va: u64) -> Option<usize> {
        // By number: a loop over the sizes themselves costs the host more than a search.
        for (n, &held) in self.held.iter().enumerate() {
            if held != 0
                && let Some(slot) = self.find(key(asid, PageSize::ALL[n], va))
            {
                return Some(slot);
            }
        }
        None
    }

    /// The key in `slot`, [`EMPTY`] in one not used.
    #[inline(always)]
    pub fn key(&self, slot: usize) -> u64 {
        self.slots[slot].key
    }

    /// The entry in `slot`.
    #[inline(always)]
    pub fn entry(&self, slot: usize) -> TlbEntry {
        self.slots[slot].entry
    }

    /// The translation in `slot`.
    #[inline(always)]
    pub fn mapping(&self, slot: usize) -> Mapping {
        let s = &self.slots[slot];
        Mapping {
            frame: s.entry.frame(),
            size: PageSize::ALL[size_of_key(s.key)],
            writable: s.entry.writable(),
        }
    }

    /// Entries among which a search of a set looks.
    pub fn ways(&self) -> usize {
        self.ways
    }

    /// Which of several hits in a row on one page change what is replaced next.
    pub fn hit_visibility(&self) -> HitVisibility {
        self.hit_visibility
    }

    /// Notes a use of `slot`.
    #[inline(always)]
    pub fn touch(&mut self, slot: usize) {
        let Slot {
            set, way, epoch, ..
        } = self.slots[slot];
        let (set, way) = (set as usize, usize::from(way));
        if epoch != self.epoch {
            self.stale.hits += 1;
            self.slots[slot].epoch = self.epoch;
        }
        if self.ranked {
            self.heads[set].ranks.used(way);
            return;
        }
        match &mut self.policy {
            Replacement::Lru(lru) => lru.used(set, way),
            _ => self.touch_by_policy(set, way),
        }
    }

    #[inline(never)]
    fn touch_by_policy(&mut self, set: usize, way: usize) {
        self.policy.used(set, way);
    }

    /// The way of a set to be filled, which counts as used from now on.
    #[inline(always)]
    fn replace(&mut self, set: usize) -> usize {
        if !self.ranked {
            return self.replace_by_policy(set);
        }
        self.heads[set].ranks.replace(self.ways)
    }

    /// The same where there are no ranks.
    #[inline(never)]
    fn replace_by_policy(&mut self, set: usize) -> usize {
        let way = match &mut self.policy {
            Replacement::Lru(lru) => lru.last(set),
            policy if self.free[set] == 0 => {
                let way = policy.victim(set);
                assert!(way < self.ways, "a way of another set");
                way
            }
            _ => {
                self.free[set] -= 1;
                let mut slots = self.slots[set * self.ways..][..self.ways].iter();
                let free = slots.position(|s| s.key == EMPTY);
                free.expect("a way that is not in use")
            }
        };
        self.policy.filled(set, way);
        way
    }

    /// Tells the host that `key`, which is not there, will be put in.
    #[inline(always)]
    pub fn host_prefetch_fill(&self, key: u64) {
        if self.ranked {
            let set = self.set(key);
            let way = self.heads[set].ranks.last(self.ways);
            if let Some(slot) = self.slots.get(set * self.ways + way) {
                prefetch(slot);
            }
        }
    }

    /// Puts the entry of the key in `slot` in again; it stays ready as early as it was.
    /// `counted`: in the statistics; `used`: a use to policies other than LRU, to which it
    /// always is one. Gives the entry as it is now.
    #[inline(always)]
    pub fn refill(
        &mut self,
        slot: usize,
        mut entry: TlbEntry,
        counted: bool,
        used: bool,
    ) -> TlbEntry {
        self.fills += u64::from(counted);
        let s = &mut self.slots[slot];
        entry.ready = entry.ready.min(s.entry.ready);
        s.entry = entry;
        if used || self.lru {
            self.touch(slot);
        }
        entry
    }

    /// Puts `key`, which is not there, in; gives its slot.
    /// `counted`: in the statistics.
    #[inline(always)]
    pub fn fill(&mut self, key: u64, entry: TlbEntry, counted: bool) -> usize {
        debug_assert_eq!(self.find(key), None);
        self.fills += u64::from(counted);
        let set = self.set(key);
        let way = self.replace(set);
        let slot = set * self.ways + way;
        let s = &mut self.slots[slot];
        let old = std::mem::replace(&mut s.key, key);
        s.entry = entry;
        let used = std::mem::replace(&mut s.epoch, self.epoch);
        if used != self.epoch {
            self.stale.misses += 1;
        } else if old == EMPTY && used != 0 {
            self.fill_known_empty(set);
        }
        if old != EMPTY {
            self.evictions += u64::from(counted);
            self.held[size_of_key(old)] -= 1;
        }
        self.held[size_of_key(key)] += 1;
        self.heads[set * self.chunks + way / CHUNK].prints[way % CHUNK] = print(key);
        slot
    }

    /// A way of `set` was filled that had been emptied since something was passed over. Under LRU
    /// what is of before goes first, so that only here there may be more of it.
    #[cold]
    fn fill_known_empty(&mut self, set: usize) {
        let slots = &self.slots[set * self.ways..][..self.ways];
        let unknown = slots.iter().any(|s| s.epoch != self.epoch);
        self.stale.misses += u64::from(unknown);
    }

    fn clear(&mut self, slot: usize) {
        self.held[size_of_key(self.slots[slot].key)] -= 1;
        self.slots[slot].key = EMPTY;
        let Slot { set, way, .. } = self.slots[slot];
        let (set, way) = (set as usize, usize::from(way));
        if self.ranked {
            return self.heads[set].ranks.freed(self.ways, way);
        }
        self.policy.freed(set, way);
        if let Some(free) = self.free.get_mut(set) {
            *free += 1;
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
}

#[inline]
fn size_of_key(key: u64) -> usize {
    (key >> 46 & 3) as usize
}

#[cfg(test)]
pub(crate) mod oracle_test;
