//! Each key and value is dropped once, also when functions of the caller panic.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use elastic::HashMap;

use crate::Quality;

thread_local! {
    static ALIVE: Cell<isize> = const { Cell::new(0) };
    /// Calls of `Hash` and `Eq` until one panics.
    static CALLS_LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// A value that counts those alive.
#[derive(Debug)]
struct Counted(u64);

impl Counted {
    fn new(number: u64) -> Self {
        ALIVE.set(ALIVE.get() + 1);
        Self(number)
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::new(self.0)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        ALIVE.set(ALIVE.get() - 1);
    }
}

fn call() {
    let left = CALLS_LEFT.get();
    CALLS_LEFT.set(left.wrapping_sub(1));
    assert!(left != 0, "planned panic");
}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        call();
        self.0.hash(state);
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        call();
        self.0 == other.0
    }
}

impl Eq for Counted {}

type Map = HashMap<Counted, Counted, Quality>;

fn filled(count: u64, quality: Quality) -> Map {
    let mut map = Map::with_hasher(quality);
    map.extend((0..count).map(|number| (Counted::new(number), Counted::new(number))));
    map
}

#[test]
fn every_way_to_end_a_map_drops_each_entry_once() {
    for quality in [Quality::Good, Quality::Constant] {
        for count in [0, 1, 5, 100] {
            drop(filled(count, quality));
            assert_eq!(ALIVE.get(), 0);
            filled(count, quality).into_iter().take(7).for_each(drop);
            assert_eq!(ALIVE.get(), 0);
            let mut map = filled(count, quality);
            map.drain().take(3).for_each(drop);
            assert_eq!((ALIVE.get(), map.len()), (0, 0));
            map.extend(filled(count, quality));
            map.retain(|key, _| key.0 % 3 == 0);
            assert_eq!(ALIVE.get(), 2 * map.len() as isize);
            let copy = map.clone();
            assert_eq!(ALIVE.get(), 4 * copy.len() as isize);
            drop((map, copy));
            assert_eq!(ALIVE.get(), 0);
        }
    }
}

#[test]
fn a_drain_that_is_forgotten_leaves_an_empty_map() {
    let mut map: HashMap<u64, u64> = (0..100).map(|key| (key, key)).collect();
    std::mem::forget(map.drain());
    assert_eq!(map.len(), 0);
    map.insert(1, 1);
    assert_eq!(map.get(&1), Some(&1));
}

/// Checks a map after a panic: it has all of these keys, and at most one more or one less.
fn check(map: &Map, count: u64) {
    assert_eq!(map.iter().count(), map.len());
    assert_eq!(ALIVE.get(), 2 * map.len() as isize);
    let found = (0..count).filter(|&number| {
        let key = Counted::new(number);
        map.contains_key(&key)
    });
    assert_eq!(found.count(), map.len());
    assert!(map.len() as u64 + 1 >= count);
}

#[test]
fn panics_of_hash_and_eq_lose_no_other_entry() {
    let most = if cfg!(miri) { 8 } else { 60 };
    for quality in [Quality::Good, Quality::Four, Quality::Constant] {
        for count in 1..most {
            for after in 0..12 {
                let mut map = filled(count, quality);
                CALLS_LEFT.set(after);
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    map.insert(Counted::new(count), Counted::new(0))
                }));
                CALLS_LEFT.set(usize::MAX);
                check(&map, count + 1);
                drop(map);

                let mut map = filled(count, quality);
                CALLS_LEFT.set(after);
                let _ = catch_unwind(AssertUnwindSafe(|| map.remove(&Counted::new(count / 2))));
                CALLS_LEFT.set(usize::MAX);
                check(&map, count);
                drop(map);

                let mut map = filled(count, quality);
                map.reserve(100);
                CALLS_LEFT.set(after);
                let _ = catch_unwind(AssertUnwindSafe(|| map.shrink_to_fit()));
                CALLS_LEFT.set(usize::MAX);
                check(&map, count);
                drop(map);
                assert_eq!(ALIVE.get(), 0);
            }
        }
    }
}

#[test]
fn a_panic_in_retain_keeps_the_other_entries() {
    for quality in [Quality::Four, Quality::Constant] {
        let mut map = filled(100, quality);
        let mut seen = 0;
        let _ = catch_unwind(AssertUnwindSafe(|| {
            map.retain(|_, _| {
                seen += 1;
                assert!(seen <= 50, "planned panic");
                seen % 2 == 0
            });
        }));
        assert_eq!(map.len(), 75);
        assert_eq!(map.iter().count(), 75);
        drop(map);
        assert_eq!(ALIVE.get(), 0);
    }
}

/// A key whose hash is another one at each call.
#[derive(PartialEq, Eq)]
struct Inconsistent(u64, Box<u64>);

impl Hash for Inconsistent {
    fn hash<H: Hasher>(&self, state: &mut H) {
        thread_local!(static CALLS: Cell<u64> = const { Cell::new(0) });
        CALLS.set(CALLS.get() + 1);
        (CALLS.get() * 0x9e37_79b9).hash(state);
    }
}

#[test]
fn inconsistent_hashes_break_no_memory() {
    let mut map = HashMap::with_hasher(Quality::Good);
    let count = if cfg!(miri) { 100 } else { 5000 };
    for number in 0..count {
        map.insert(Inconsistent(number, Box::new(number)), Box::new(number));
    }
    assert_eq!(
        map.iter()
            .filter(|&(key, value)| key.0 == **value && *key.1 == **value)
            .count(),
        map.len()
    );
    for number in 0..count {
        map.remove(&Inconsistent(number, Box::new(number)));
    }
    map.shrink_to_fit();
    assert_eq!(map.iter().count(), map.len());
}
