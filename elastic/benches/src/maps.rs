//! The maps that are compared.

use std::ffi::c_void;
use std::hash::RandomState;

use foldhash::fast::RandomState as FoldHash;
use serde_json::Value;

use crate::measure;

/// A map from 64-bit keys to 64-bit values.
pub trait Map {
    const NAME: &str;
    fn new() -> Self;
    fn insert(&mut self, key: u64, value: u64);
    fn get(&self, key: u64) -> Option<u64>;
    fn remove(&mut self, key: u64) -> bool;
    fn sum(&self) -> u64;
}

macro_rules! map {
    ($name:literal, $type:ty) => {
        impl Map for $type {
            const NAME: &str = $name;
            fn new() -> Self {
                Self::with_hasher(Default::default())
            }
            fn insert(&mut self, key: u64, value: u64) {
                self.insert(key, value);
            }
            fn get(&self, key: u64) -> Option<u64> {
                self.get(&key).copied()
            }
            fn remove(&mut self, key: u64) -> bool {
                self.remove(&key).is_some()
            }
            fn sum(&self) -> u64 {
                self.values().fold(0, |sum, value| sum.wrapping_add(*value))
            }
        }
    };
}

#[cfg(not(feature = "huge-pages"))]
map!("elastic", elastic::HashMap<u64, u64, FoldHash>);
#[cfg(feature = "huge-pages")]
map!(
    "elastic, huge pages",
    elastic::HashMap<u64, u64, FoldHash>
);
map!("elastic, SipHash", elastic::HashMap<u64, u64, RandomState>);
map!("hashbrown", hashbrown::HashMap<u64, u64, FoldHash>);
map!("std HashMap, SipHash", std::collections::HashMap<u64, u64, RandomState>);
map!("griddle", griddle::HashMap<u64, u64, FoldHash>);

unsafe extern "C" {
    fn umap_new() -> *mut c_void;
    fn umap_free(map: *mut c_void);
    fn umap_insert(map: *mut c_void, key: u64, value: u64);
    fn umap_get(map: *const c_void, key: u64, value: *mut u64) -> bool;
    fn umap_remove(map: *mut c_void, key: u64) -> bool;
    fn umap_sum(map: *const c_void) -> u64;
}

/// The map of C++, with the identity as its hash function.
struct UnorderedMap(*mut c_void);

// SAFETY (all calls below): The pointer comes from `umap_new`, and is freed once.
impl Map for UnorderedMap {
    const NAME: &str = "std::unordered_map";
    fn new() -> Self {
        Self(unsafe { umap_new() })
    }
    fn insert(&mut self, key: u64, value: u64) {
        unsafe { umap_insert(self.0, key, value) }
    }
    fn get(&self, key: u64) -> Option<u64> {
        let mut value = 0;
        unsafe { umap_get(self.0, key, &raw mut value) }.then_some(value)
    }
    fn remove(&mut self, key: u64) -> bool {
        unsafe { umap_remove(self.0, key) }
    }
    fn sum(&self) -> u64 {
        unsafe { umap_sum(self.0) }
    }
}

impl Drop for UnorderedMap {
    fn drop(&mut self) {
        unsafe { umap_free(self.0) }
    }
}

/// No map, but work of a similar time in the registers alone. Its latencies are those that the machine adds.
struct Nothing(u64);

impl Nothing {
    fn work(&mut self, key: u64) {
        for _ in 0..300 {
            self.0 = std::hint::black_box(self.0.wrapping_mul(key | 1));
        }
    }
}

impl Map for Nothing {
    const NAME: &str = "no map";
    fn new() -> Self {
        Self(0)
    }
    fn insert(&mut self, key: u64, value: u64) {
        self.work(key ^ value);
    }
    fn get(&self, key: u64) -> Option<u64> {
        (key % 2 == self.0 % 2).then_some(key)
    }
    fn remove(&mut self, key: u64) -> bool {
        self.work(key);
        true
    }
    fn sum(&self) -> u64 {
        self.0
    }
}

type Run = fn(usize) -> Value;

/// Name and measurement of each map.
pub fn all() -> Vec<(&'static str, Run)> {
    fn of<M: Map>() -> (&'static str, Run) {
        (M::NAME, measure::<M>)
    }
    vec![
        of::<elastic::HashMap<u64, u64, FoldHash>>(),
        of::<hashbrown::HashMap<u64, u64, FoldHash>>(),
        of::<griddle::HashMap<u64, u64, FoldHash>>(),
        of::<elastic::HashMap<u64, u64, RandomState>>(),
        of::<std::collections::HashMap<u64, u64, RandomState>>(),
        of::<UnorderedMap>(),
        of::<Nothing>(),
    ]
}
