//! A set-associative array with least-recently-used replacement: TLBs, walk caches.

use crate::scan::first_byte_equal;

/// `sets` x `ways` entries of a 64-bit key and a value. Any number of sets:
/// the set is `index mod sets`. Keys must be complete (two different entries
/// never share one) and never `u64::MAX`.
#[derive(Clone, Debug)]
pub struct SetAssoc<V> {
    sets: u64,
    mask: Option<u64>,
    ways: usize,
    slots: Vec<Slot<V>>,
    clock: u64,
    /// Where the last key was found: tried first, never decides.
    last: usize,
    /// For wide sets only: a byte of hash an entry, each set padded to a
    /// multiple of 16, so that a search compares 16 ways at once.
    prints: Vec<u8>,
    print_stride: usize,
}

/// A way: its key, when it was last used, its value.
#[derive(Clone, Copy, Debug)]
struct Slot<V> {
    key: u64,
    /// 0 in an empty way.
    stamp: u64,
    value: V,
}

const EMPTY: u64 = u64::MAX;
/// Bits of a way's number beside a stamp.
const WAY_BITS: u32 = 16;
/// From this many ways on, a search goes by fingerprints.
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
        assert!(ways <= 1 << WAY_BITS, "an array has at most 65536 ways");
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
                Slot {
                    key: EMPTY,
                    stamp: 0,
                    value: V::default(),
                };
                sets * ways
            ],
            clock: 0,
            last: 0,
            prints: vec![NO_PRINT; sets * print_stride],
            print_stride,
        }
    }

    #[inline(always)]
    fn set(&self, index: u64) -> usize {
        match self.mask {
            Some(m) => (index & m) as usize,
            None => (index % self.sets) as usize,
        }
    }

    /// Position of `key` in `set`, among all entries.
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

    /// The entry of `set` to replace: the first empty one, whose stamp is 0, or
    /// the least recently used one.
    #[inline]
    fn oldest(&self, set: usize) -> usize {
        let base = set * self.ways;
        // Stamp and way in one word, whose minimum takes no branch.
        let mut least = u64::MAX;
        for (way, s) in self.slots[base..base + self.ways].iter().enumerate() {
            least = least.min(s.stamp << WAY_BITS | way as u64);
            if least < 1 << WAY_BITS {
                break;
            }
        }
        base + (least & ((1 << WAY_BITS) - 1)) as usize
    }

    #[inline]
    fn put_key(&mut self, at: usize, key: u64, print: u8) {
        self.slots[at].key = key;
        if self.print_stride != 0 {
            self.put_print(at, print);
        }
    }

    #[inline(never)]
    fn put_print(&mut self, at: usize, print: u8) {
        self.prints[at / self.ways * self.print_stride + at % self.ways] = print;
    }

    /// The value of `key` in the set of `index`, made most recently used.
    #[inline]
    pub fn lookup(&mut self, index: u64, key: u64) -> Option<&mut V> {
        if self.slots[self.last].key != key {
            self.last = self.find(self.set(index), key)?;
        }
        self.clock += 1;
        let slot = &mut self.slots[self.last];
        slot.stamp = self.clock;
        Some(&mut slot.value)
    }

    /// The value of `key`, leaving the order of use as it is.
    #[inline]
    pub fn peek(&self, index: u64, key: u64) -> Option<&V> {
        self.find(self.set(index), key)
            .map(|at| &self.slots[at].value)
    }

    /// Puts `key` in as most recently used; gives what it replaced: an older
    /// value of the same key, or the least recently used entry of a full set.
    pub fn insert(&mut self, index: u64, key: u64, value: V) -> Option<(u64, V)> {
        debug_assert_ne!(key, EMPTY);
        let set = self.set(index);
        self.clock += 1;
        let at = self.find(set, key).unwrap_or_else(|| self.oldest(set));
        let slot = &mut self.slots[at];
        let old = (slot.key != EMPTY).then_some((slot.key, slot.value));
        *slot = Slot {
            key,
            stamp: self.clock,
            value,
        };
        if self.print_stride != 0 {
            self.put_print(at, print_of(key));
        }
        old
    }

    /// Takes `key` out.
    pub fn remove(&mut self, index: u64, key: u64) -> Option<V> {
        let at = self.find(self.set(index), key)?;
        self.put_key(at, EMPTY, NO_PRINT);
        self.slots[at].stamp = 0;
        Some(self.slots[at].value)
    }

    /// Keeps the entries for which `keep(key, value)` holds.
    pub fn retain(&mut self, mut keep: impl FnMut(u64, &V) -> bool) {
        for at in 0..self.slots.len() {
            let slot = &self.slots[at];
            if slot.key != EMPTY && !keep(slot.key, &slot.value) {
                self.put_key(at, EMPTY, NO_PRINT);
                self.slots[at].stamp = 0;
            }
        }
    }

    /// Entries in use.
    pub fn len(&self) -> usize {
        self.slots.iter().filter(|s| s.key != EMPTY).count()
    }

    /// Whether no entry is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries there is room for.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::SetAssoc;
    use proptest::prelude::*;

    /// The same array as one list a set, most recently used last.
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
    enum Step {
        Lookup(u64),
        Peek(u64),
        Insert(u64, u32),
        Remove(u64),
        RetainNotMod(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let key = 0u64..400;
        prop_oneof![
            8 => key.clone().prop_map(Step::Lookup),
            2 => key.clone().prop_map(Step::Peek),
            8 => (key.clone(), any::<u32>()).prop_map(|(k, v)| Step::Insert(k, v)),
            2 => key.prop_map(Step::Remove),
            1 => (2u64..9).prop_map(Step::RetainNotMod),
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
                    Step::Lookup(k) => prop_assert_eq!(array.lookup(k, k).copied(), model.lookup(k, k)),
                    Step::Peek(k) => {
                        let want = model.set(k).iter().find(|e| e.0 == k).map(|e| e.1);
                        prop_assert_eq!(array.peek(k, k).copied(), want);
                    }
                    Step::Insert(k, v) => prop_assert_eq!(array.insert(k, k, v), model.insert(k, k, v)),
                    Step::Remove(k) => prop_assert_eq!(array.remove(k, k), model.remove(k, k)),
                    Step::RetainNotMod(m) => {
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
