//! A set-associative array with LRU replacement: TLBs, walk caches.

use crate::recency::{MOST_WAYS, Recency};
use crate::scan::first_byte_equal;

/// `sets` x `ways` entries with a 64-bit key and a value. Any number of sets is
/// allowed: the set is `index mod sets`. Keys must be complete (no two entries
/// share one) and never `u64::MAX`.
#[derive(Clone, Debug)]
pub struct SetAssoc<V> {
    sets: u64,
    mask: Option<u64>,
    ways: usize,
    slots: Vec<WayEntry<V>>,
    /// Empty ways count as least recently used.
    recency: Recency,
    /// Position of the last key found. A hint that is tried first.
    last: usize,
    /// Position of the most recently used entry of the whole array.
    newest: usize,
    /// A key that is known to be absent: the last lookup miss, which is usually the
    /// next key to be inserted.
    missed: u64,
    /// For wide sets only: one hash byte for each entry, with each set padded to a
    /// multiple of 16, so that a search compares 16 ways at once.
    prints: Vec<u8>,
    print_stride: usize,
}

/// A way: its key and its value.
#[derive(Clone, Copy, Debug)]
struct WayEntry<V> {
    key: u64,
    value: V,
}

const EMPTY: u64 = u64::MAX;
/// From this many ways on, a search uses fingerprints.
const WIDE: usize = 9;
/// The fingerprint of an empty way; no key has it.
const NO_PRINT: u8 = 0;

#[inline(always)]
fn print_of(key: u64) -> u8 {
    // Fibonacci hashing: the high byte depends on all bits of the key.
    ((key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).max(1)
}

impl<V: Copy + Default> SetAssoc<V> {
    /// An empty array of `sets` x `ways`; both at least 1.
    pub fn new(sets: usize, ways: usize) -> Self {
        assert!(
            sets > 0 && ways > 0,
            "an array has at least one set and one way"
        );
        assert!(ways <= MOST_WAYS, "an array has at most 65536 ways");
        let print_stride = if ways < WIDE {
            0
        } else {
            ways.next_multiple_of(16)
        };
        SetAssoc {
            sets: sets as u64,
            mask: sets.is_power_of_two().then(|| sets as u64 - 1),
            ways,
            slots: vec![
                WayEntry {
                    key: EMPTY,
                    value: V::default(),
                };
                sets * ways
            ],
            recency: Recency::new(sets, ways),
            last: 0,
            newest: sets * ways,
            missed: EMPTY,
            prints: vec![NO_PRINT; sets * print_stride],
            print_stride,
        }
    }

    /// Number of entries, in use or not.
    pub fn entries(&self) -> usize {
        self.slots.len()
    }

    #[inline(always)]
    fn set(&self, index: u64) -> usize {
        match self.mask {
            Some(m) => (index & m) as usize,
            None => (index % self.sets) as usize,
        }
    }

    /// Position of `key` in `set`, counted over the whole array.
    #[inline(always)]
    fn find(&self, set: usize, key: u64) -> Option<usize> {
        if self.print_stride != 0 {
            return self.find_among_many(set, key);
        }
        let base = set * self.ways;
        let slots = &self.slots[base..base + self.ways];
        let way = slots.iter().position(|s| s.key == key)?;
        Some(base + way)
    }

    #[inline(never)]
    fn find_among_many(&self, set: usize, key: u64) -> Option<usize> {
        let base = set * self.ways;
        let slots = &self.slots[base..base + self.ways];
        let from = set * self.print_stride;
        let prints = &self.prints[from..from + self.print_stride];
        let way = first_byte_equal(prints, print_of(key), |way| {
            slots.get(way).is_some_and(|s| s.key == key)
        });
        way.map(|w| base + w)
    }

    /// Empties the way at position `at`.
    fn clear(&mut self, at: usize) {
        self.slots[at].key = EMPTY;
        self.recency.trail(at / self.ways, at % self.ways);
        self.newest = self.slots.len();
        if self.print_stride != 0 {
            self.put_print(at, NO_PRINT);
        }
    }

    #[inline(never)]
    fn put_print(&mut self, at: usize, print: u8) {
        self.prints[at / self.ways * self.print_stride + at % self.ways] = print;
    }

    /// Looks up `key` in the set of `index` and makes it most recently used.
    #[inline]
    pub fn lookup(&mut self, index: u64, key: u64) -> Option<&mut V> {
        if self.slots[self.last].key != key {
            let Some(at) = self.find(self.set(index), key) else {
                self.missed = key;
                return None;
            };
            self.last = at;
        }
        if self.last != self.newest {
            self.newest = self.last;
            let set = self.set(index);
            self.recency.touch_mru(set, self.last - set * self.ways);
        }
        Some(&mut self.slots[self.last].value)
    }

    /// Looks up `key` without a change of the LRU order.
    #[inline]
    pub fn peek(&self, index: u64, key: u64) -> Option<&V> {
        self.find(self.set(index), key)
            .map(|at| &self.slots[at].value)
    }

    /// Inserts `key` as most recently used. Returns the entry that it replaces: an
    /// older value of the same key, or the least recently used entry of a full set.
    pub fn insert(&mut self, index: u64, key: u64, value: V) -> Option<(u64, V)> {
        debug_assert_ne!(key, EMPTY);
        let set = self.set(index);
        let base = set * self.ways;
        let found = if self.missed == key {
            self.missed = EMPTY;
            None
        } else {
            self.find(set, key)
        };
        debug_assert_eq!(found, self.find(set, key));
        let at = found.unwrap_or_else(|| base + self.recency.last(set));
        self.recency.touch_mru(set, at - base);
        self.newest = at;
        let slot = &mut self.slots[at];
        let old = (slot.key != EMPTY).then_some((slot.key, slot.value));
        *slot = WayEntry { key, value };
        if self.print_stride != 0 {
            self.put_print(at, print_of(key));
        }
        old
    }

    /// The way that an insertion of `key` will take, and true if it is empty. An empty way has the
    /// value of its last entry.
    pub(crate) fn replaced(&self, index: u64, key: u64) -> (&V, bool) {
        let set = self.set(index);
        let last = || set * self.ways + self.recency.last(set);
        let slot = &self.slots[self.find(set, key).unwrap_or_else(last)];
        (&slot.value, slot.key == EMPTY)
    }

    /// The values of all ways of the set of `index`, in use or not.
    pub(crate) fn set_ways(&self, index: u64) -> impl Iterator<Item = &V> {
        let slots = &self.slots[self.set(index) * self.ways..][..self.ways];
        slots.iter().map(|slot| &slot.value)
    }

    /// Changes the values of all ways, in use or not.
    pub(crate) fn each_way(&mut self, change: impl FnMut(&mut V)) {
        self.slots
            .iter_mut()
            .map(|slot| &mut slot.value)
            .for_each(change);
    }

    /// Removes `key`.
    pub fn remove(&mut self, index: u64, key: u64) -> Option<V> {
        let at = self.find(self.set(index), key)?;
        self.clear(at);
        Some(self.slots[at].value)
    }

    /// Keeps only the entries for which `keep(key, value)` is true.
    pub fn retain(&mut self, mut keep: impl FnMut(u64, &V) -> bool) {
        for at in 0..self.slots.len() {
            let slot = &self.slots[at];
            if slot.key != EMPTY && !keep(slot.key, &slot.value) {
                self.clear(at);
            }
        }
    }

    /// Number of entries in use.
    pub fn len(&self) -> usize {
        self.slots.iter().filter(|s| s.key != EMPTY).count()
    }

    /// True if no entry is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of entries, in use or not.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::SetAssoc;
    use proptest::prelude::*;

    /// Reference model: one list for each set, most recently used last.
    struct Model {
        sets: Vec<Vec<(u64, u32)>>,
        ways: usize,
    }

    impl Model {
        fn set(&mut self, index: u64) -> &mut Vec<(u64, u32)> {
            let n = self.sets.len() as u64;
            &mut self.sets[(index % n) as usize]
        }
        fn lookup(&mut self, index: u64, key: u64) -> Option<u32> {
            let set = self.set(index);
            let at = set.iter().position(|e| e.0 == key)?;
            let e = set.remove(at);
            set.push(e);
            Some(e.1)
        }
        fn insert(&mut self, index: u64, key: u64, value: u32) -> Option<(u64, u32)> {
            let ways = self.ways;
            let set = self.set(index);
            let old = match set.iter().position(|e| e.0 == key) {
                Some(at) => Some(set.remove(at)),
                None if set.len() == ways => Some(set.remove(0)),
                None => None,
            };
            set.push((key, value));
            old
        }
        fn remove(&mut self, index: u64, key: u64) -> Option<u32> {
            let set = self.set(index);
            let at = set.iter().position(|e| e.0 == key)?;
            Some(set.remove(at).1)
        }
    }

    #[derive(Clone, Debug)]
    enum ArrayOp {
        Lookup(u64),
        Peek(u64),
        Insert(u64, u32),
        Remove(u64),
        RetainNotMod(u64),
    }

    fn step() -> impl Strategy<Value = ArrayOp> {
        let key = 0u64..400;
        prop_oneof![
            8 => key.clone().prop_map(ArrayOp::Lookup),
            2 => key.clone().prop_map(ArrayOp::Peek),
            8 => (key.clone(), any::<u32>()).prop_map(|(k, v)| ArrayOp::Insert(k, v)),
            2 => key.prop_map(ArrayOp::Remove),
            1 => (2u64..9).prop_map(ArrayOp::RetainNotMod),
        ]
    }

    proptest! {
        #[test]
        fn behaves_as_lists_in_order_of_use(
            sets in 1usize..9, ways in 1usize..70, steps in prop::collection::vec(step(), 1..600),
        ) {
            let mut array = SetAssoc::<u32>::new(sets, ways);
            let mut model = Model { sets: vec![vec![]; sets], ways };
            for s in steps {
                match s {
                    ArrayOp::Lookup(k) => prop_assert_eq!(array.lookup(k, k).copied(), model.lookup(k, k)),
                    ArrayOp::Peek(k) => {
                        let want = model.set(k).iter().find(|e| e.0 == k).map(|e| e.1);
                        prop_assert_eq!(array.peek(k, k).copied(), want);
                    }
                    ArrayOp::Insert(k, v) => prop_assert_eq!(array.insert(k, k, v), model.insert(k, k, v)),
                    ArrayOp::Remove(k) => prop_assert_eq!(array.remove(k, k), model.remove(k, k)),
                    ArrayOp::RetainNotMod(m) => {
                        array.retain(|k, _| k % m != 0);
                        for set in &mut model.sets { set.retain(|e| e.0 % m != 0); }
                    }
                }
                prop_assert_eq!(array.len(), model.sets.iter().map(Vec::len).sum::<usize>());
            }
        }
    }

    #[test]
    fn a_cycle_one_longer_than_a_set_never_hits_and_one_that_fits_always_does() {
        for ways in [4, 12, 16, 64] {
            let mut a = SetAssoc::<()>::new(1, ways);
            for (len, hit) in [(ways as u64, true), (ways as u64 + 1, false)] {
                for round in 0..3 {
                    for k in 0..len {
                        let got = a.lookup(k, k).is_some();
                        assert!(round == 0 || got == hit, "{ways} ways, cycle of {len}");
                        if !got {
                            a.insert(k, k, ());
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn any_number_of_sets_is_used_whole() {
        let mut a = SetAssoc::<u64>::new(85, 12);
        for k in 0..85 * 12 {
            assert_eq!(a.insert(k, k, k), None);
        }
        assert_eq!(a.len(), a.capacity());
        assert_eq!(a.insert(85 * 12, 85 * 12, 0), Some((0, 0)));
    }
}
