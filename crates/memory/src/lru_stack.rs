//! The tags of an LRU cache in order of use, for filtered functional warming.
//!
//! Without time and counters, all that matters of a set are its lines and their order of use. The
//! position of a tag word is its rank, so eight ways take one line of the host's caches.

use pagewalk_structures::{position, prefetch, push_mru, touch_mru};

/// The tag words of all sets, most recently used first.
#[derive(Clone, Debug, Default)]
pub(crate) struct LruStack {
    words: Vec<u64>,
    /// Words before the first set, which align it to a line of the host's caches.
    from: usize,
    ways: usize,
}

impl LruStack {
    /// Resizes to `sets` of `ways`; the contents are undefined.
    pub fn prepare(&mut self, sets: usize, ways: usize) {
        const LINE: usize = 8;
        if self.words.len() != sets * ways + LINE {
            self.words = vec![0; sets * ways + LINE];
            self.from = self.words.as_ptr().align_offset(8 * LINE).min(LINE);
        }
        self.ways = ways;
    }

    /// The words of `set`, most recently used first.
    #[inline(always)]
    pub fn set(&self, set: usize) -> &[u64] {
        &self.words[self.from + set * self.ways..][..self.ways]
    }

    /// As [`LruStack::set`], mutable.
    #[inline(always)]
    pub fn set_mut(&mut self, set: usize) -> &mut [u64] {
        &mut self.words[self.from + set * self.ways..][..self.ways]
    }

    /// Moves the word of `set` for which `is_it` holds to the front, if there is one, and returns
    /// it.
    #[inline(always)]
    pub fn touch(&mut self, set: usize, is_it: impl Fn(u64) -> bool) -> Option<&mut u64> {
        let words = self.set_mut(set);
        let way = position(words, is_it)?;
        touch_mru(words, way);
        Some(&mut words[0])
    }

    /// Pushes `word` to the front of `set`. Returns the word that drops out at the end.
    #[inline(always)]
    pub fn push(&mut self, set: usize, word: u64) -> u64 {
        push_mru(self.set_mut(set), word)
    }

    /// Prefetches `set` into the host's caches.
    #[inline(always)]
    pub fn host_prefetch(&self, set: usize) {
        for first in self.set(set).chunks(8) {
            prefetch(&first[0]);
        }
    }
}
