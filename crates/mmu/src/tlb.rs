//! One TLB array: any number of sets, any replacement policy.

mod lru_stack;

use pagewalk_structures::{Epoch, StaleOutcomes, equal_bytes, prefetch};
use pagewalk_units::{Asid, Cycle, PageSize, PhysAddr, Rng, VirtAddr};

use crate::mapping::Mapping;
use crate::replacement::lru::{RANKED, Ranks};
use crate::replacement::{HitVisibility, Policy, Replacement};
use crate::source::Extent;
use crate::{TlbReplacement, TlbSpec};

pub(crate) use self::lru_stack::TlbLruStack;

pagewalk_stats::counters! {
    /// Counters of one TLB array.
    pub struct TlbStats {
        lookups: "lookups", "Lookups in the array";
        hits: "lookups", "Lookups that found an entry that was ready";
        waits: "lookups", "Lookups that waited for an entry in flight into the array: into a first level from the second level or a walk, into a second level from a walk that the first level had not requested";
        misses: "lookups", "Lookups that neither hit nor waited; another array of the level may have held the entry";
        fills: "entries", "Entries filled";
        evictions: "entries", "Entries replaced while still valid";
    }
}

/// A TLB entry.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct TlbEntry {
    /// Base of the frame; bit 0: stores are permitted.
    frame: u64,
    /// Cycle from which the entry is ready.
    pub ready: Cycle,
}

impl TlbEntry {
    /// An entry for the frame at `frame`, ready from `ready` on.
    #[inline]
    pub fn new(frame: u64, writable: bool, ready: Cycle) -> Self {
        TlbEntry {
            frame: frame | u64::from(writable),
            ready,
        }
    }
    /// Base of the frame.
    #[inline]
    pub fn frame(self) -> u64 {
        self.frame & !1
    }
    /// True if stores are permitted.
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

/// Ways whose prints the host compares at once.
const CHUNK: usize = RANKED;

/// A one-byte fingerprint of a key. A search compares the prints of sixteen ways at once, and then
/// the keys of the ways whose print matches. It is the high byte of a Fibonacci hash, which depends
/// on all bits of the key.
#[inline]
pub(crate) fn print(key: u64) -> u8 {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// Sixteen ways of a set: the print of each, and for LRU with at most sixteen ways their order of
/// use. They lie together to save cache misses of the host.
#[derive(Clone, Copy, Debug)]
struct Head {
    prints: [u8; CHUNK],
    ranks: Ranks,
}

/// One way of a set.
#[derive(Clone, Copy, Debug)]
struct TlbSlot {
    key: u64,
    entry: TlbEntry,
    set: u32,
    way: u16,
    /// Epoch of the entry's last use ([`Tlb`]'s `epoch` at that time), also after its invalidation.
    epoch: Epoch,
}

/// A TLB array.
///
/// Under LRU, free ways are last in the order of use, so the next way to fill is known without a
/// search. It has the last rank, or ends the list in sets of many ways. Under any other policy the
/// array searches for a free way. If there is none, the policy chooses a victim.
#[derive(Clone, Debug)]
pub(crate) struct Tlb {
    /// Name in the statistics.
    pub name: String,
    /// Cycles of a lookup.
    pub latency: Cycle,
    /// Page sizes that it holds.
    pub sizes: Vec<PageSize>,
    /// Valid entries of each page size. A size without any is not probed.
    held: [u32; 3],
    sets: u64,
    mask: Option<u64>,
    ways: usize,
    /// The heads of all sets, each set padded to whole chunks.
    heads: Vec<Head>,
    /// Number of chunks of a set.
    chunks: usize,
    slots: Vec<TlbSlot>,
    /// True for LRU with sets of one chunk: [`Head::ranks`] holds the order of use.
    ranked: bool,
    /// True for LRU. A refill of an entry is then always a use.
    lru: bool,
    policy: Replacement,
    hit_visibility: HitVisibility,
    /// Number of free ways of each set; empty under LRU.
    free: Vec<u16>,
    /// Lookups that hit.
    pub hits: u64,
    /// Lookups that waited for an entry on its way into the array.
    pub waits: u64,
    /// Entries filled, and valid entries replaced.
    pub fills: u64,
    /// See `fills`.
    pub evictions: u64,
    /// The current epoch. Each [`Tlb::mark_stale`] begins a new one, and an entry of an older epoch
    /// is stale.
    epoch: Epoch,
    /// Lookups whose outcome is uncertain because the contents are stale.
    pub stale: StaleOutcomes,
    /// Key and entry of the lines that were evicted, if they are noted.
    evicted: Option<Vec<(u64, TlbEntry)>>,
}

impl Tlb {
    /// Creates an empty array. `name`: name in the statistics. `draws`: random stream of the
    /// replacement policy.
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
                .map(|slot| TlbSlot {
                    key: EMPTY,
                    entry: TlbEntry::default(),
                    set: (slot / ways) as u32,
                    way: (slot % ways) as u16,
                    epoch: Epoch::default(),
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
            epoch: Epoch::default(),
            stale: StaleOutcomes::default(),
            evicted: None,
        }
    }

    /// Notes the evicted entries from now on, until [`Tlb::take_evicted`] returns them.
    pub fn note_evictions(&mut self) {
        self.evicted = Some(Vec::new());
    }

    /// Address space and page of an entry that was evicted, once for each.
    pub fn take_evicted(&mut self) -> Option<(Asid, Extent)> {
        let (key, entry) = self.evicted.as_mut()?.pop()?;
        let size = PageSize::ALL[size_of_key(key)];
        let va = VirtAddr((key & ((1 << NUMBER_BITS) - 1)) << size.shift());
        let page = Extent::page(va, size, PhysAddr(entry.frame()), entry.writable());
        Some((Asid((key >> 48) as u16), page))
    }

    /// Marks all entries as stale after a fast-forward: they may have been evicted meanwhile.
    pub fn mark_stale(&mut self) {
        let slots = self.slots.iter_mut();
        (self.epoch).advance(|| slots.for_each(|slot| slot.epoch = Epoch::default()));
    }

    #[inline]
    fn set(&self, key: u64) -> usize {
        let number = key & ((1 << NUMBER_BITS) - 1);
        match self.mask {
            Some(m) => (number & m) as usize,
            None => (number % self.sets) as usize,
        }
    }

    /// Slot of `key`.
    #[inline]
    pub fn find(&self, key: u64) -> Option<usize> {
        let set = self.set(key);
        if self.chunks == 1 {
            return self.find_in(set, 0, key);
        }
        (0..self.chunks).find_map(|n| self.find_in(set, n, key))
    }

    /// Slot of `key` among the ways of chunk `n`.
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

    /// Slot of the entry that covers `va`, of any page size.
    #[inline]
    pub fn cover(&self, asid: Asid, va: u64) -> Option<usize> {
        // By index: a loop over the sizes themselves costs the host more than the search itself.
        for (n, &held) in self.held.iter().enumerate() {
            if held != 0
                && let Some(slot) = self.find(key(asid, PageSize::ALL[n], va))
            {
                return Some(slot);
            }
        }
        None
    }

    /// Key in `slot`; [`EMPTY`] if the slot is free.
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

    /// Associativity.
    pub fn ways(&self) -> usize {
        self.ways
    }

    /// The repeated hits on one page that the replacement policy must see.
    pub fn hit_visibility(&self) -> HitVisibility {
        self.hit_visibility
    }

    /// Records a use of `slot`.
    #[inline(always)]
    pub fn touch(&mut self, slot: usize) {
        let TlbSlot {
            set, way, epoch, ..
        } = self.slots[slot];
        let (set, way) = (set as usize, usize::from(way));
        if epoch != self.epoch {
            (self.epoch).count_use(&mut self.slots[slot].epoch, &mut self.stale);
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

    /// Chooses the way of a set to fill, and makes it the most recently used.
    #[inline(always)]
    fn replace(&mut self, set: usize) -> usize {
        if !self.ranked {
            return self.replace_by_policy(set);
        }
        self.heads[set].ranks.replace(self.ways)
    }

    /// As [`Tlb::replace`], for arrays without ranks.
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

    /// Prefetches into the host's caches the slot into which `key`, which is absent, will be put.
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

    /// Fills a key that is already in `slot`. The entry is ready at the earlier of both times.
    /// `counted`: count the fill. `used`: the refill is a use, as it always is under LRU. Returns
    /// the resulting entry.
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

    /// Inserts `key`, which is absent, and returns its slot. `counted`: count the fill.
    #[inline(always)]
    pub fn fill(&mut self, key: u64, entry: TlbEntry, counted: bool) -> usize {
        debug_assert_eq!(self.find(key), None);
        self.fills += u64::from(counted);
        let set = self.set(key);
        let way = self.replace(set);
        let slot = set * self.ways + way;
        let s = &mut self.slots[slot];
        let old = std::mem::replace(&mut s.key, key);
        let replaced = std::mem::replace(&mut s.entry, entry);
        let used = std::mem::replace(&mut s.epoch, self.epoch);
        let others_are_stale = || {
            let mut slots = self.slots[set * self.ways..][..self.ways].iter();
            slots.any(|s| s.epoch != self.epoch)
        };
        (self.epoch).count_fill((used, old == EMPTY), others_are_stale, &mut self.stale);
        if old != EMPTY {
            self.evictions += u64::from(counted);
            self.held[size_of_key(old)] -= 1;
            if let Some(evicted) = &mut self.evicted {
                evicted.push((old, replaced));
            }
        }
        self.held[size_of_key(key)] += 1;
        self.heads[set * self.chunks + way / CHUNK].prints[way % CHUNK] = print(key);
        slot
    }

    /// Invalidates the entry in `slot`.
    fn clear(&mut self, slot: usize) {
        self.held[size_of_key(self.slots[slot].key)] -= 1;
        self.slots[slot].key = EMPTY;
        let TlbSlot { set, way, .. } = self.slots[slot];
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

    /// Drops all entries of `asid`.
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
