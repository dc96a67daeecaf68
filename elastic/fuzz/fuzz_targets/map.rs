//! Random changes of a map, checked against a `BTreeMap`. The first byte selects how many different hashes
//! there are. Each step takes three bytes. Few keys make the map grow and shrink often.
#![no_main]

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};

use elastic::{Entry, HashMap};
use libfuzzer_sys::fuzz_target;

#[derive(Clone, Copy)]
struct Masked(u64, u64);

impl BuildHasher for Masked {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for Masked {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.1 = (self.1 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.1 & self.0
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&bits, rest)) = input.split_first() else {
        return;
    };
    let mut map = HashMap::with_hasher(Masked(u64::MAX >> (bits % 64), 0));
    let mut model = BTreeMap::new();
    for &[kind, low, high] in rest.as_chunks().0 {
        let key = u16::from_le_bytes([low, high % 4]);
        match kind % 8 {
            0..=2 => {
                for key in key..=key + u16::from(high / 4) {
                    assert_eq!(map.insert(key, Box::new(kind)), model.insert(key, Box::new(kind)));
                }
            }
            3 | 4 => {
                for key in key..=key + u16::from(high / 4) {
                    assert_eq!(map.remove(&key), model.remove(&key));
                }
            }
            5 => match map.entry(key) {
                Entry::Occupied(entry) => assert_eq!(Some(entry.remove()), model.remove(&key)),
                Entry::Vacant(entry) => {
                    entry.insert(Box::new(high));
                    assert_eq!(model.insert(key, Box::new(high)), None);
                }
            },
            6 => {
                map.retain(|key, _| key % 8 != u16::from(low % 8));
                model.retain(|key, _| key % 8 != u16::from(low % 8));
            }
            _ => match low % 4 {
                0 => map.shrink_to_fit(),
                1 => map.reserve(usize::from(high)),
                2 => map = map.clone(),
                _ => {
                    let pairs: BTreeMap<_, _> = map.drain().take(usize::from(high)).collect();
                    assert!(pairs.iter().all(|(key, value)| model.get(key) == Some(value)));
                    model.clear();
                }
            },
        }
        assert_eq!(map.len(), model.len());
    }
    let pairs: BTreeMap<_, _> = map.into_iter().collect();
    assert_eq!(pairs, model);
});
