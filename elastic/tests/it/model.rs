//! Random operations, compared with a `BTreeMap`.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;

use elastic::{Entry, HashMap};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::Quality;

#[derive(Clone, Debug)]
enum Step {
    Insert(u16, u32),
    Remove(u16),
    Get(u16),
    Change(u16),
    RemoveEntry(u16),
    Retain(u16),
    Reserve(u16),
    ShrinkToFit,
    Clear,
    Drain(u8),
    Clone,
    IterMut,
    /// This many inserts or removals of successive keys.
    Many(bool, u16, u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..600_u16;
    let step = prop_oneof![
        20 => (key.clone(), any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
        15 => key.clone().prop_map(Step::Remove),
        5 => key.clone().prop_map(Step::Get),
        5 => key.clone().prop_map(Step::Change),
        5 => key.clone().prop_map(Step::RemoveEntry),
        1 => (1..7_u16).prop_map(Step::Retain),
        1 => (0..if cfg!(miri) { 30 } else { 300_u16 }).prop_map(Step::Reserve),
        1 => Just(Step::ShrinkToFit),
        1 => Just(Step::Clear),
        1 => any::<u8>().prop_map(Step::Drain),
        1 => Just(Step::Clone),
        1 => Just(Step::IterMut),
        10 => (any::<bool>(), key, 1..if cfg!(miri) { 20 } else { 200_u16 }).prop_map(|(insert, from, count)| Step::Many(insert, from, count)),
    ];
    vec(step, 1..if cfg!(miri) { 20 } else { 60 })
}

fn same<K: Copy + Ord + Hash + Debug>(map: &HashMap<K, u32, Quality>, model: &BTreeMap<K, u32>) {
    assert_eq!(map.len(), model.len());
    let pairs: BTreeMap<K, u32> = map.iter().map(|(&key, &value)| (key, value)).collect();
    assert_eq!(pairs, *model);
    for (key, value) in model {
        assert_eq!(map.get(key), Some(value));
    }
}

fn run<K: Copy + Ord + Hash + Debug>(steps: &[Step], quality: Quality, key: impl Fn(u16) -> K) {
    let mut map = HashMap::with_hasher(quality);
    let mut model = BTreeMap::new();
    for step in steps {
        match *step {
            Step::Insert(number, value) => {
                assert_eq!(
                    map.insert(key(number), value),
                    model.insert(key(number), value)
                );
            }
            Step::Remove(number) => {
                assert_eq!(map.remove(&key(number)), model.remove(&key(number)))
            }
            Step::Get(number) => assert_eq!(map.get(&key(number)), model.get(&key(number))),
            Step::Change(number) => {
                *map.entry(key(number))
                    .and_modify(|value| *value ^= 1)
                    .or_insert(5) |= 8;
                *model
                    .entry(key(number))
                    .and_modify(|value| *value ^= 1)
                    .or_insert(5) |= 8;
            }
            Step::RemoveEntry(number) => match map.entry(key(number)) {
                Entry::Occupied(entry) => {
                    assert_eq!(Some(entry.remove_entry().1), model.remove(&key(number)));
                }
                Entry::Vacant(entry) => assert!(!model.contains_key(entry.key())),
            },
            Step::Retain(modulus) => {
                map.retain(|_, value| *value % u32::from(modulus) != 0);
                model.retain(|_, value| *value % u32::from(modulus) != 0);
            }
            Step::Reserve(additional) => {
                map.reserve(usize::from(additional));
                assert!(map.capacity() >= map.len() + usize::from(additional) - map.stashed());
            }
            Step::ShrinkToFit => map.shrink_to_fit(),
            Step::Clear => {
                map.clear();
                model.clear();
            }
            Step::Drain(taken) => {
                for (key, value) in map.drain().take(usize::from(taken)) {
                    assert_eq!(model.get(&key), Some(&value));
                }
                model.clear();
            }
            Step::Clone => {
                let copy = map.clone();
                assert_eq!(copy, map);
                map = copy;
            }
            Step::IterMut => {
                map.iter_mut()
                    .for_each(|(_, value)| *value = value.wrapping_mul(3));
                model
                    .iter_mut()
                    .for_each(|(_, value)| *value = value.wrapping_mul(3));
            }
            Step::Many(insert, from, count) => {
                for number in from..from + count {
                    if insert {
                        assert_eq!(map.insert(key(number), 1), model.insert(key(number), 1));
                    } else {
                        assert_eq!(map.remove(&key(number)), model.remove(&key(number)));
                    }
                }
            }
        }
        assert_eq!(map.len(), model.len());
    }
    same(&map, &model);
    let mut pairs: Vec<_> = map.into_iter().collect();
    pairs.sort_unstable();
    assert_eq!(pairs, model.into_iter().collect::<Vec<_>>());
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(align(128))]
struct Aligned(u16);

fn qualities() -> impl Strategy<Value = Quality> {
    prop_oneof![4 => Just(Quality::Good), 1 => Just(Quality::Four), 1 => Just(Quality::Constant)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 150 }) })]

    #[test]
    fn maps_of_all_entry_sizes_agree_with_the_model(steps in steps(), quality in qualities()) {
        run(&steps, quality, |number| number as u8);
        run(&steps, quality, u64::from);
        run(&steps, quality, |number| [number; 23]);
        run(&steps, quality, Aligned);
        run(&steps, quality, |_| ());
    }
}

#[test]
fn every_size_up_and_down_holds_its_entries() {
    for quality in [Quality::Good, Quality::Four] {
        let most = if cfg!(miri) { 20 } else { 400 };
        let mut map = HashMap::with_hasher(quality);
        let mut model = BTreeMap::new();
        for key in 0..most {
            map.insert(key, key * 2);
            model.insert(key, key * 2);
            same(&map, &model);
        }
        for key in 0..most {
            assert_eq!(map.remove(&key), Some(key * 2));
            model.remove(&key);
            same(&map, &model);
        }
    }
}
