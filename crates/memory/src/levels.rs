//! A list of caches, nearest to the core first.

use std::ops::{Index, IndexMut};

use crate::cache_array::CacheArray;

/// One cache or more, nearest first. Most machines have only one, which therefore lies in place:
/// an access to it with a constant index costs the host no more than an access to a field.
#[derive(Clone, Debug)]
pub(crate) struct Levels {
    nearest: CacheArray,
    rest: Vec<CacheArray>,
}

impl Levels {
    /// The list of `caches`; `None` if there are none.
    pub fn new(mut caches: Vec<CacheArray>) -> Option<Self> {
        if caches.is_empty() {
            return None;
        }
        let rest = caches.split_off(1);
        let nearest = caches.pop()?;
        Some(Levels { nearest, rest })
    }

    /// Number of caches.
    #[inline(always)]
    pub fn len(&self) -> usize {
        1 + self.rest.len()
    }

    /// The last cache.
    pub fn last(&self) -> &CacheArray {
        self.rest.last().unwrap_or(&self.nearest)
    }

    /// The caches behind number `n`.
    #[inline(always)]
    pub fn behind(&self, n: usize) -> &[CacheArray] {
        &self.rest[n..]
    }

    /// The nearest cache, and those behind it.
    #[inline(always)]
    pub fn split_mut(&mut self) -> (&mut CacheArray, &mut [CacheArray]) {
        (&mut self.nearest, &mut self.rest)
    }

    /// All caches.
    #[inline(always)]
    pub fn iter(&self) -> impl Iterator<Item = &CacheArray> {
        [&self.nearest].into_iter().chain(&self.rest)
    }

    /// All caches.
    #[inline(always)]
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut CacheArray> {
        [&mut self.nearest].into_iter().chain(&mut self.rest)
    }
}

impl Index<usize> for Levels {
    type Output = CacheArray;

    #[inline(always)]
    fn index(&self, n: usize) -> &CacheArray {
        match n {
            0 => &self.nearest,
            n => &self.rest[n - 1],
        }
    }
}

impl IndexMut<usize> for Levels {
    #[inline(always)]
    fn index_mut(&mut self, n: usize) -> &mut CacheArray {
        match n {
            0 => &mut self.nearest,
            n => &mut self.rest[n - 1],
        }
    }
}
