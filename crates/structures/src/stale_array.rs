//! A set-associative array that counts lookups whose outcome is uncertain after an unobserved
//! interval.

use crate::{Epoch, SetAssoc, StaleOutcomes};

/// A value, and the epoch of its last use.
#[derive(Clone, Copy, Default, Debug)]
struct Dated<V> {
    value: V,
    used: Epoch,
}

/// A [`SetAssoc`] whose entries may become stale. Callers keep the [`StaleOutcomes`], since several
/// may share an array.
#[derive(Clone, Debug)]
pub struct StaleArray<V> {
    array: SetAssoc<Dated<V>>,
    epoch: Epoch,
}

impl<V: Copy + Default> StaleArray<V> {
    /// An empty array of `sets` x `ways`; both at least 1.
    pub fn new(sets: usize, ways: usize) -> Self {
        StaleArray {
            array: SetAssoc::new(sets, ways),
            epoch: Epoch::default(),
        }
    }

    /// Marks all entries as stale: they may have been replaced in an interval that was not observed.
    pub fn mark_stale(&mut self) {
        let array = &mut self.array;
        (self.epoch).advance(|| array.each_way(|way| way.used = Epoch::default()));
    }

    /// Looks up `key` in the set of `index`, and makes it the most recently used. It is a hit if
    /// `is_hit` of the value, which may return a result of the hit.
    pub fn lookup<T>(
        &mut self,
        index: u64,
        key: u64,
        is_hit: impl FnOnce(&V) -> Option<T>,
        outcomes: &mut StaleOutcomes,
    ) -> Option<T> {
        let found = self.array.lookup(index, key)?;
        let hit = is_hit(&found.value)?;
        self.epoch.count_use(&mut found.used, outcomes);
        Some(hit)
    }

    /// As [`SetAssoc::peek`].
    pub fn peek(&self, index: u64, key: u64) -> Option<&V> {
        self.array.peek(index, key).map(|found| &found.value)
    }

    /// As [`SetAssoc::insert`], after a miss.
    pub fn insert(
        &mut self,
        index: u64,
        key: u64,
        value: V,
        outcomes: &mut StaleOutcomes,
    ) -> Option<(u64, V)> {
        let (way, empty) = self.array.replaced(index, key);
        let others_are_stale = || (self.array.set_ways(index)).any(|way| way.used != self.epoch);
        (self.epoch).count_fill((way.used, empty), others_are_stale, outcomes);
        let used = self.epoch;
        let old = self.array.insert(index, key, Dated { value, used });
        old.map(|(key, old)| (key, old.value))
    }

    /// As [`SetAssoc::remove`].
    pub fn remove(&mut self, index: u64, key: u64) {
        self.array.remove(index, key);
    }

    /// As [`SetAssoc::retain`].
    pub fn retain(&mut self, mut keep: impl FnMut(u64, &V) -> bool) {
        self.array.retain(|key, found| keep(key, &found.value));
    }

    /// Number of entries, in use or not.
    pub fn entries(&self) -> usize {
        self.array.entries()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A set of two ways, over two unobserved intervals.
    #[test]
    fn outcomes_that_old_entries_decide_are_counted() {
        let mut array = StaleArray::<u32>::new(1, 2);
        let mut seen = StaleOutcomes::default();
        let look = |a: &mut StaleArray<u32>, key, seen: &mut StaleOutcomes| {
            a.lookup(0, key, |&v| Some(v), seen)
        };
        array.insert(0, 1, 10, &mut seen);
        array.insert(0, 2, 20, &mut seen);
        assert_eq!(look(&mut array, 1, &mut seen), Some(10));
        assert_eq!(seen, StaleOutcomes::default(), "nothing is stale yet");
        array.mark_stale();
        // A value that is no hit is no use.
        assert_eq!(array.lookup(0, 1, |_| None::<u32>, &mut seen), None);
        assert_eq!((seen.hits, seen.misses), (0, 0));
        assert_eq!(look(&mut array, 1, &mut seen), Some(10));
        assert_eq!(look(&mut array, 1, &mut seen), Some(10));
        assert_eq!((seen.hits, seen.misses), (1, 0), "the first use alone");
        // It replaces the stale entry. A later one replaces a current entry.
        array.insert(0, 3, 30, &mut seen);
        assert_eq!((seen.hits, seen.misses), (1, 1));
        array.insert(0, 4, 40, &mut seen);
        assert_eq!((seen.hits, seen.misses), (1, 1));
        // A way that was emptied since is known to be empty, and the other way is current.
        array.remove(0, 4);
        array.insert(0, 5, 50, &mut seen);
        assert_eq!((seen.hits, seen.misses), (1, 1));
        // The same, with a stale entry in the other way.
        array.mark_stale();
        look(&mut array, 5, &mut seen);
        array.remove(0, 5);
        array.insert(0, 6, 60, &mut seen);
        assert_eq!((seen.hits, seen.misses), (2, 2));
    }

    #[test]
    fn epochs_start_again_without_a_current_entry() {
        let mut array = StaleArray::<u32>::new(4, 2);
        let mut seen = StaleOutcomes::default();
        array.insert(0, 4, 1, &mut seen);
        for n in 0..3 * crate::EPOCHS {
            array.mark_stale();
            let before = seen.hits;
            let hit = array.lookup(0, 4, |&v| Some(v), &mut seen);
            assert_eq!((hit, seen.hits), (Some(1), before + 1), "interval {n}");
        }
    }
}
