//! Behaviour that a user relies on, one by one.

use std::alloc::Layout;
use std::time::{Duration, Instant};

use elastic::HashMap;
use elastic::raw::{Geometry, Table};

use crate::Quality;

const MANY: u64 = if cfg!(miri) { 300 } else { 300_000 };

#[test]
fn memory_follows_the_number_of_entries_up_and_down() {
    let mut map = HashMap::with_hasher(Quality::Good);
    let bound = |len: u64| 2 * 2 * (2 << 20) + len * 48;
    for key in 0..MANY {
        map.insert(key, key);
        assert!((map.allocated_bytes() as u64) < bound(key));
    }
    for key in 0..MANY {
        map.remove(&key);
        assert!((map.allocated_bytes() as u64) < bound(MANY - key));
    }
    assert!(map.allocated_bytes() < 4096, "{}", map.allocated_bytes());
}

#[test]
fn good_hashes_leave_the_stash_empty() {
    let mut map = HashMap::with_hasher(Quality::Good);
    for key in 0..MANY {
        map.insert(key, ());
        assert!(map.stashed() <= 1);
    }
    assert_eq!(map.stashed(), 0);
}

#[test]
fn equal_hashes_end_in_the_stash_and_are_found() {
    let mut map = HashMap::with_hasher(Quality::Constant);
    let keys = if cfg!(miri) { 50 } else { 200 };
    for key in 0..keys {
        assert_eq!(map.insert(key, key), None);
    }
    // Two buckets of at most seven entries each.
    assert!(map.stashed() >= keys - 14);
    for key in 0..keys {
        assert_eq!(map.get(&key), Some(&key));
    }
    for key in 0..keys {
        assert_eq!(map.remove(&key), Some(key));
    }
    assert_eq!((map.len(), map.stashed()), (0, 0));
}

#[test]
fn retain_takes_time_in_proportion_to_the_stash() {
    let mut table = Table::new(Geometry::new(Layout::new::<u64>()).unwrap());
    let count = if cfg!(miri) { 50 } else { 100_000 };
    for number in 0..count {
        let slot = table.insert(7, |_| 7).unwrap();
        // SAFETY: The entry is new, and has the layout of the number.
        unsafe { slot.entry().cast::<u64>().write(number) };
    }
    assert!(table.stashed() as u64 >= count - 14);
    let start = Instant::now();
    // SAFETY: All entries have been written.
    table.retain(|entry| unsafe { *entry.cast::<u64>() } % 10 == 0);
    // Moving all later entries at each removal would take more than ten times as long.
    assert!(cfg!(miri) || start.elapsed() < Duration::from_secs(1));
    assert_eq!(table.len() as u64, count / 10);
    table.retain(|_| false);
    assert_eq!((table.len(), table.stashed()), (0, 0));
}

#[test]
fn a_reservation_lasts_until_it_is_given_up() {
    let mut map = HashMap::with_hasher(Quality::Good);
    map.reserve(1000);
    let bytes = map.allocated_bytes();
    for key in 0..1000 {
        map.insert(key, key);
    }
    map.retain(|_, _| false);
    assert_eq!(map.allocated_bytes(), bytes);
    map.shrink_to_fit();
    assert_eq!(map.allocated_bytes(), 0);
}

#[test]
fn room_beyond_the_address_space_is_an_error() {
    let mut map = HashMap::with_hasher(Quality::Good);
    map.insert(1_u64, 1_u64);
    for additional in [usize::MAX, usize::MAX / 16, usize::MAX / 32] {
        assert_eq!(
            map.try_reserve(additional),
            Err(elastic::TryReserveError::CapacityOverflow)
        );
    }
    assert_eq!(map.get(&1), Some(&1));
}

#[test]
fn an_empty_map_has_no_memory() {
    let mut map: HashMap<String, u64> = HashMap::new();
    assert_eq!(map.allocated_bytes(), 0);
    assert_eq!(map.get("a"), None);
    assert_eq!(map.remove("a"), None);
    assert_eq!(map.iter().count() + map.drain().count(), 0);
    map.shrink_to_fit();
    map.reserve(0);
    assert_eq!(map.allocated_bytes(), 0);
}

#[test]
fn common_traits_work_as_in_the_standard_library() {
    let mut map = HashMap::from([("a", 1), ("b", 2)]);
    map.extend([("c", 3)]);
    map.extend(&HashMap::from([("d", 4)]));
    assert_eq!(map["c"] + map["d"], 7);
    assert_eq!(map.get_key_value("a"), Some((&"a", &1)));
    assert_ne!(map, HashMap::new());
    assert_eq!(map, map.iter().map(|(&key, &value)| (key, value)).collect());
    assert_eq!(format!("{:?}", HashMap::from([(1, 'x')])), "{1: 'x'}");
    map.values_mut().for_each(|value| *value *= 2);
    let (mut keys, mut values): (Vec<_>, Vec<_>) =
        (map.keys().copied().collect(), map.into_values().collect());
    keys.sort_unstable();
    values.sort_unstable();
    assert_eq!((keys, values), (vec!["a", "b", "c", "d"], vec![2, 4, 6, 8]));
}

#[test]
#[should_panic(expected = "no entry for the key")]
fn an_index_without_entry_panics() {
    let _ = HashMap::from([(1, 2)])[&3];
}

#[test]
fn maps_and_iterators_cross_threads() {
    fn send_sync<T: Send + Sync>(_: &T) {}
    let mut map = HashMap::from([(1, 2)]);
    send_sync(&map);
    send_sync(&map.iter());
    send_sync(&map.iter_mut());
    send_sync(&map.drain());
    send_sync(&map.into_iter());
}

#[cfg(feature = "serde")]
#[test]
fn serde_keeps_all_pairs() {
    let map: HashMap<u32, String> = (0..100).map(|key| (key, key.to_string())).collect();
    let text = serde_json::to_string(&map).unwrap();
    assert_eq!(
        serde_json::from_str::<HashMap<u32, String>>(&text).unwrap(),
        map
    );
}
