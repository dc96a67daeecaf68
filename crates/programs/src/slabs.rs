//! Model of jemalloc: size classes and the free objects of each. It computes addresses, and holds no data.
//!
//! Each doubling has four classes, at least 16 bytes apart. Small objects of a class share slabs: the fewest
//! pages that its size divides, filled from the lowest address. A thread reuses the object that it freed
//! last. The parts of a record therefore lie on as many pages as they have sizes. Source: jemalloc 5.3,
//! `sc.c`, `bin_info.c`, `cache_bin.h`. Not modelled: larger objects begin at a random line of their first
//! page, and a long list of freed objects returns to its slabs.

use std::collections::BTreeMap;

/// Smallest class whose objects have pages of their own (`SC_LARGE_MINCLASS`).
const LARGE: u64 = 16 << 10;
const PAGE: u64 = 4096;

/// Bytes of the class for a request of `bytes`.
pub const fn class(bytes: u64) -> u64 {
    if bytes <= 8 {
        return 8;
    }
    let doubling = (bytes - 1).ilog2();
    let spacing = if doubling < 6 {
        16
    } else {
        1 << (doubling - 2)
    };
    bytes.next_multiple_of(spacing)
}

#[derive(Default)]
struct Class {
    /// Freed objects, a stack.
    free: Vec<u64>,
    /// Unused rest of the slab.
    at: u64,
    end: u64,
}

/// jemalloc's allocator state.
#[derive(Default)]
pub struct Slabs {
    classes: BTreeMap<u64, Class>,
    /// Freed pages, by size and address.
    pages: BTreeMap<(u64, u64), ()>,
}

impl Slabs {
    /// Address of an object of `bytes`. `fresh` maps a number of bytes of new pages.
    pub fn malloc(&mut self, bytes: u64, mut fresh: impl FnMut(u64) -> u64) -> u64 {
        let size = class(bytes);
        if size >= LARGE {
            return self.take(size.next_multiple_of(PAGE), fresh);
        }
        let of_size = self.classes.entry(size).or_default();
        if let Some(at) = of_size.free.pop() {
            return at;
        }
        if of_size.at == of_size.end {
            let slab = (1..)
                .map(|pages| pages * PAGE)
                .find(|slab| slab.is_multiple_of(size))
                .unwrap_or(PAGE);
            let at = self.take(slab, &mut fresh);
            let of_size = self.classes.entry(size).or_default();
            (of_size.at, of_size.end) = (at + size, at + slab);
            return at;
        }
        let at = of_size.at;
        of_size.at += size;
        at
    }

    /// Frees the object of `bytes` at `at`.
    pub fn free(&mut self, at: u64, bytes: u64) {
        let size = class(bytes);
        if size >= LARGE {
            self.pages.insert((size.next_multiple_of(PAGE), at), ());
        } else {
            self.classes.entry(size).or_default().free.push(at);
        }
    }

    /// True if a freed object of this class can be reused.
    pub fn is_listed(&self, bytes: u64) -> bool {
        let of_size = self.classes.get(&class(bytes));
        of_size.is_some_and(|c| !c.free.is_empty())
    }

    /// Pages of `bytes`: freed ones if possible.
    fn take(&mut self, bytes: u64, mut fresh: impl FnMut(u64) -> u64) -> u64 {
        let Some((&(size, at), ())) = self.pages.range((bytes, 0)..).next() else {
            return fresh(bytes);
        };
        self.pages.remove(&(size, at));
        if size > bytes {
            self.pages.insert((size - bytes, at + bytes), ());
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::{Slabs, class};

    /// Classes as `mallctl("arenas.bin.N.size")` and its neighbours report them.
    #[test]
    fn classes_are_those_of_jemalloc() {
        let classes = [
            8, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384,
        ];
        for pair in classes.windows(2) {
            assert_eq!(class(pair[0]), pair[0]);
            assert_eq!(class(pair[0] + 1), pair[1]);
        }
        assert_eq!(class(1 << 20), 1 << 20);
        assert_eq!(class((1 << 20) + 1), 5 << 18);
    }

    #[test]
    fn objects_of_a_class_fill_slabs_and_are_taken_again() {
        let (mut slabs, mut top) = (Slabs::default(), 0);
        let mut taken = Vec::new();
        for bytes in [80, 16].repeat(1000) {
            let at = slabs.malloc(bytes, |bytes| {
                top += bytes;
                top - bytes
            });
            taken.push((at, at + bytes));
        }
        // 256 objects of 80 bytes in five pages, of 16 bytes in one.
        assert_eq!(top, 4096 * (4 * 5 + 4));
        assert_eq!(taken[2].0, taken[0].0 + 80);
        let mut sorted = taken.clone();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|w| w[0].1 <= w[1].0));
        slabs.free(taken[6].0, 80);
        assert!(slabs.is_listed(70) && !slabs.is_listed(16));
        assert_eq!(slabs.malloc(66, |_| unreachable!()), taken[6].0);
    }

    #[test]
    fn freed_pages_become_slabs() {
        let mut slabs = Slabs::default();
        let large = slabs.malloc(1 << 20, |_| 1 << 30);
        slabs.free(large, 1 << 20);
        assert_eq!(slabs.malloc(24, |_| unreachable!()), large);
        assert_eq!(slabs.malloc(512 << 10, |_| unreachable!()), large + 4096);
    }
}
