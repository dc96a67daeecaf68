//! Maps against the standard library's, with every index.
#![cfg(not(loom))]

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::RwLock;

use lookaside::{Entry, Index, Map};
use proptest::prelude::*;

const CASES: u32 = if cfg!(miri) { 3 } else { 64 };

#[derive(Clone, Debug)]
enum Step {
    Insert(u8, u32),
    Remove(u8),
    Get(u8),
    Add(u8, u32),
    Batch(Vec<u8>),
    Resize(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => any::<(u8, u32)>().prop_map(|(key, value)| Step::Insert(key, value)),
        3 => any::<u8>().prop_map(Step::Remove),
        8 => any::<u8>().prop_map(Step::Get),
        2 => any::<(u8, u32)>().prop_map(|(key, value)| Step::Add(key, value)),
        2 => prop::collection::vec(any::<u8>(), 0..80).prop_map(Step::Batch),
        1 => (1..100_usize).prop_map(Step::Resize),
    ];
    prop::collection::vec(step, 0..300)
}

fn same_as_a_map<M: Index<String, u32>, H: BuildHasher>(
    mut map: Map<String, u32, M, H>,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let mut model = BTreeMap::new();
    for step in steps {
        match step {
            Step::Insert(key, value) => {
                prop_assert_eq!(
                    map.insert(key.to_string(), *value),
                    model.insert(key.to_string(), *value)
                );
            }
            Step::Remove(key) => prop_assert_eq!(
                map.remove(&*key.to_string()),
                model.remove(&key.to_string())
            ),
            Step::Get(key) => {
                prop_assert_eq!(map.get(&*key.to_string()), model.get(&key.to_string()))
            }
            Step::Add(key, more) => {
                let (ours, theirs) = (
                    map.get_mut(&*key.to_string()),
                    model.get_mut(&key.to_string()),
                );
                prop_assert_eq!(ours.is_some(), theirs.is_some());
                for value in [ours, theirs].into_iter().flatten() {
                    *value = value.wrapping_add(*more);
                }
            }
            Step::Batch(keys) => {
                let keys: Vec<String> = keys.iter().map(u8::to_string).collect();
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                let mut values = vec![None; keys.len()];
                map.get_batch(&keys, |position, value| values[position] = value);
                let expected: Vec<Option<&u32>> = keys.iter().map(|&key| model.get(key)).collect();
                prop_assert_eq!(values, expected);
            }
            Step::Resize(rows) => map.resize(*rows).expect("memory"),
        }
        prop_assert_eq!(map.len(), model.len());
    }
    let mut all: Vec<(&String, &u32)> = map.iter().collect();
    all.sort();
    prop_assert!(all.into_iter().eq(&model));
    Ok(())
}

/// Gives every key the same hash: a flood.
#[derive(Default)]
struct Constant;

impl Hasher for Constant {
    fn finish(&self) -> u64 {
        0
    }
    fn write(&mut self, _: &[u8]) {}
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn maps_answer_as_the_standard_one(steps in steps()) {
        same_as_a_map(Map::new(BTreeSet::new(), 64).expect("memory"), &steps)?;
        same_as_a_map(Map::new(HashSet::<Entry<_, _>, RandomState>::default(), 64).expect("memory"), &steps)?;
        #[cfg(feature = "hashbrown")]
        same_as_a_map(Map::new(hashbrown::HashSet::<Entry<_, _>, RandomState>::default(), 64).expect("memory"), &steps)?;
        let flood = BuildHasherDefault::<Constant>::default();
        same_as_a_map(Map::with_hasher(BTreeSet::new(), 64, flood).expect("memory"), &steps)?;
    }
}

/// A hash function that changes its mind must not lead to freed records.
#[test]
fn an_inconsistent_hash_function_is_harmless() {
    struct Restless(std::sync::atomic::AtomicU64);
    struct Number(u64);
    impl Hasher for Number {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, _: &[u8]) {}
    }
    impl BuildHasher for Restless {
        type Hasher = Number;
        fn build_hasher(&self) -> Number {
            Number(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 3)
        }
    }
    let mut map =
        Map::with_hasher(BTreeSet::new(), 8, Restless(Default::default())).expect("memory");
    for round in 0..200_u32 {
        map.insert(round % 5, Box::new(round));
        for key in 0..5 {
            map.get(&key);
        }
        if round % 3 == 0 {
            map.remove(&(round % 5));
        }
        for key in 0..5 {
            assert!(map.get(&key).is_none_or(|value| **value % 5 == key));
        }
    }
}

#[test]
fn an_index_that_unwinds_leaves_no_row_of_a_freed_record() {
    thread_local!(static LEFT: Cell<u32> = const { Cell::new(u32::MAX) });
    struct Fails(DefaultHasher);
    impl Hasher for Fails {
        fn finish(&self) -> u64 {
            let left = LEFT.get().checked_sub(1);
            LEFT.set(left.unwrap_or(u32::MAX));
            assert!(left.is_some(), "as wanted");
            self.0.finish()
        }
        fn write(&mut self, bytes: &[u8]) {
            self.0.write(bytes);
        }
    }
    impl Default for Fails {
        fn default() -> Self {
            Self(DefaultHasher::new())
        }
    }
    let value = |key: u64| format!("the value of {key}, in memory of its own");
    let index = HashSet::with_hasher(BuildHasherDefault::<Fails>::default());
    let mut map = Map::new(index, 4096).expect("memory");
    map.set_automatic(false);
    for key in 0..56 {
        map.insert(key, value(key));
    }
    for key in 0..40 {
        map.remove(&key);
    }
    // An insert among removed entries makes the set hash all entries anew, in place.
    let mut next = 1000;
    let failed = (0..2000).any(|_| {
        LEFT.set(3);
        let result = catch_unwind(AssertUnwindSafe(|| map.insert(next, value(next))));
        LEFT.set(u32::MAX);
        next += 1;
        if map.len() > 20 {
            map.remove(&(next - 4));
        }
        result.is_err()
    });
    assert!(failed, "no insert hashed all entries");
    let keys = (0..56).chain(1000..next);
    let found = keys.filter(|key| {
        map.get(key)
            .inspect(|v| assert_eq!(**v, value(*key)))
            .is_some()
    });
    assert_eq!(found.count(), map.len());
}

#[test]
fn lookups_run_in_many_threads() {
    let mut map = Map::new(BTreeSet::new(), 64).expect("memory");
    for key in 0..200_u64 {
        map.insert(key, key * 3);
    }
    let map = RwLock::new(map);
    let rounds = if cfg!(miri) { 2 } else { 200 };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for key in (0..rounds).flat_map(|_| 0..200) {
                    assert!(
                        map.read()
                            .expect("no panics")
                            .get(&key)
                            .is_none_or(|&value| value % 3 == 0)
                    );
                }
            });
        }
        for key in (0..rounds).flat_map(|_| 0..200) {
            let mut map = map.write().expect("no panics");
            if map.remove(&key).is_none() {
                map.insert(key, key * 6);
            }
        }
    });
}
