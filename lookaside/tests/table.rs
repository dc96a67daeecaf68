//! The table against a model, and with many threads.
#![cfg(not(loom))]

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

use lookaside::{Error, Table, mix};
use proptest::prelude::*;

const CASES: u32 = if cfg!(miri) { 4 } else { 128 };

fn address(number: u64) -> NonNull<u8> {
    NonNull::new(std::ptr::without_provenance_mut(number as usize)).expect("not null")
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, u64),
    Invalidate(u64),
    Flush,
    Resize(usize),
    Find(u64),
    Batch(Vec<u64>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few keys in few sets: collisions of sets are frequent.
    let key = 0..60_u64;
    let step = prop_oneof![
        8 => (key.clone(), 1..1_u64 << 48).prop_map(|(key, at)| Step::Insert(key, at)),
        4 => key.clone().prop_map(Step::Invalidate),
        1 => Just(Step::Flush),
        1 => (1..200_usize).prop_map(Step::Resize),
        8 => key.clone().prop_map(Step::Find),
        2 => prop::collection::vec(key, 0..70).prop_map(Step::Batch),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    /// A row is a hit only for what was last inserted, and never after an invalidation.
    #[test]
    fn hits_are_the_last_insertions(steps in steps()) {
        let mut table = Table::new(32).expect("memory");
        let mut model = HashMap::new();
        // Among the addresses that the tag matches, the owner of a record accepts only its own.
        let accept = |model: &HashMap<u64, u64>, key: u64, at: NonNull<u8>| model.get(&key) == Some(&(at.addr().get() as u64));
        for step in steps {
            match step {
                Step::Insert(key, at) => {
                    table.invalidate(mix(key));
                    model.insert(key, at);
                    prop_assert!(table.insert(mix(key), address(at)));
                    prop_assert_eq!(table.find(mix(key), |at| accept(&model, key, at)), Some(address(at)));
                }
                Step::Invalidate(key) => {
                    table.invalidate(mix(key));
                    model.remove(&key);
                    let mut seen = false;
                    table.find(mix(key), |_| { seen = true; false });
                    prop_assert!(!seen);
                }
                Step::Flush => { table.flush(); model.clear(); }
                Step::Resize(rows) => {
                    table.resize(rows).expect("memory");
                    prop_assert!(table.rows() >= rows && table.rows().is_power_of_two());
                    model.clear();
                }
                Step::Find(key) => {
                    let found = table.find(mix(key), |at| accept(&model, key, at));
                    prop_assert!(found.is_none() || found.map(|at| at.addr().get() as u64) == model.get(&key).copied());
                }
                Step::Batch(keys) => {
                    let hashes: Vec<u64> = keys.iter().map(|&key| mix(key)).collect();
                    let mut found = vec![None; keys.len()];
                    let hits = table.find_batch(&hashes, &mut found, |position, at| accept(&model, keys[position], at));
                    prop_assert_eq!(hits, found.iter().flatten().count());
                    for (position, &key) in keys.iter().enumerate() {
                        prop_assert_eq!(found[position], table.find(mix(key), |at| accept(&model, key, at)));
                    }
                }
            }
        }
    }

    /// The vector comparisons find each row, whatever the other rows are.
    #[test]
    fn every_way_is_found(tags in prop::collection::vec(any::<u16>(), 1..9)) {
        let table = Table::new(1).expect("memory");
        let mut model = HashMap::new();
        for (way, &tag) in tags.iter().enumerate() {
            let at = address(way as u64 + 1);
            prop_assert!(table.insert(u64::from(tag) << 48, at));
            model.insert(tag.max(1), at);
        }
        for tag in tags.into_iter().chain([0, 1, 0x8000, 0xFFFF]) {
            prop_assert_eq!(table.find(u64::from(tag) << 48, |_| true), model.get(&tag.max(1)).copied());
        }
    }
}

#[test]
fn bad_sizes_and_addresses_are_refused() {
    assert_eq!(Table::new(0).err(), Some(Error::NoRows));
    assert_eq!(
        Table::new(usize::MAX).err(),
        Some(Error::NoMemory(usize::MAX))
    );
    if !cfg!(miri) {
        assert_eq!(Table::new(1 << 57).err(), Some(Error::NoMemory(1 << 57)));
    }
    let mut table = Table::new(100).expect("memory");
    assert_eq!(table.rows(), 128);
    assert!(table.insert(7, address(0x7000)));
    assert_eq!(table.resize(0), Err(Error::NoRows));
    assert_eq!(table.find(7, |_| true), Some(address(0x7000)));
    assert!(!table.insert(8, address(1 << 48)));
    assert_eq!(table.find(8, |_| true), None);
}

/// Hashes of one set and one tag cost a miss with at most eight comparisons each.
#[test]
fn floods_of_equal_hashes_are_bounded() {
    let table = Table::new(1024).expect("memory");
    for key in 1..10_000 {
        let mut comparisons = 0;
        assert_eq!(
            table.find(5, |at| {
                comparisons += 1;
                at == address(key)
            }),
            None
        );
        assert!(comparisons <= 1);
        assert!(table.insert(5, address(key)));
    }
    // Equal sets with other tags.
    for key in 1..10_000 {
        let mut comparisons = 0;
        table.find(key << 48, |_| {
            comparisons += 1;
            false
        });
        assert!(comparisons <= 8);
        table.insert(key << 48, address(key));
    }
}

#[test]
fn all_rows_are_victims() {
    let table = Table::new(8).expect("memory");
    let mut survived = [0; 8];
    for round in 0..2000_u64 {
        table.flush();
        for key in 1..10 {
            table.insert(
                mix(round * 16 + key) << 48 | key << 48,
                address(round * 160 + key * 16),
            );
        }
        for key in 1..9 {
            let hash = mix(round * 16 + key) << 48 | key << 48;
            let found = table.find(hash, |at| at == address(round * 160 + key * 16));
            survived[key as usize - 1] += u32::from(found.is_some());
        }
    }
    // Seven of eight on average.
    assert!(
        survived.iter().all(|&times| (1500..1999).contains(&times)),
        "{survived:?}"
    );
}

/// Readers, writers and removals under a lock: nobody gets the address of a freed record.
#[test]
fn readers_under_a_lock_never_see_a_freed_record() {
    const KEYS: u64 = 64;
    let rounds = if cfg!(miri) { 40 } else { 20_000 };
    // Few rows: insertions replace one another's.
    let table = Table::new(16).expect("memory");
    let index: RwLock<HashMap<u64, Box<(u64, u64)>>> =
        RwLock::new((0..KEYS).map(|key| (key, Box::new((key, 0)))).collect());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (table, index, done) = (&table, &index, &done);
            scope.spawn(move || {
                let mut key = seed;
                while !done.load(Ordering::Relaxed) {
                    key = mix(key + 1) % KEYS;
                    let index = index.read().expect("no panics");
                    let found = table.lookup(
                        || mix(key),
                        // SAFETY: removals hold the lock exclusively and empty the rows before.
                        |at| unsafe { at.cast::<(u64, u64)>().as_ref() }.0 == key,
                        || {
                            index
                                .get(&key)
                                .map(|record| NonNull::from(&**record).cast())
                        },
                    );
                    let expected = index
                        .get(&key)
                        .map(|record| NonNull::from(&**record).cast());
                    assert_eq!(found, expected);
                }
            });
        }
        for round in 0..rounds {
            let key = mix(round) % KEYS;
            let mut index = index.write().expect("no panics");
            table.invalidate(mix(key));
            if index.remove(&key).is_none() {
                index.insert(key, Box::new((key, round)));
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let statistics = table.statistics();
    assert!(statistics.misses <= statistics.admitted);
}
