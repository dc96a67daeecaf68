//! An LRU cache's tags in the order of use, while lines are followed.
//!
//! Where time does not pass and nothing is counted, all that a set is asked is which lines it holds
//! and which of them goes next. Kept in the order of use, that is one line of the host's for eight
//! ways, and no ranks.

use pagewalk_structures::{position, prefetch, push_mru, touch_mru};

/// The tag words of all sets, the last used way of each first.
#[derive(Clone, Debug, Default)]
pub(crate) struct LruStack {
    words: Vec<u64>,
    /// Words before the first: sets begin where the host's lines do.
    from: usize,
    ways: usize,
}

impl LruStack {
    /// Room for `sets` of `ways`, whatever was there before.
    pub fn prepare(&mut self, sets: usize, ways: usize) {
        const LINE: usize = 8;
        if self.words.len() != sets * ways + LINE {
            self.words = vec![0; sets * ways + LINE];
            self.from = self.words.as_ptr().align_offset(8 * LINE).min(LINE);
        }
        self.ways = ways;
    }

    /// The words of `set`, the last used one first.
    #[inline(always)]
    pub fn set(&self, set: usize) -> &[u64] {
        &self.words[self.from + set * self.ways..][..self.ways]
    }

    #[inline(always)]
    pub fn set_mut(&mut self, set: usize) -> &mut [u64] {
        &mut self.words[self.from + set * self.ways..][..self.ways]
    }

    /// Makes the word of `set` that `is_it` the first one, if there is one, and gives it.
    #[inline(always)]
    pub fn touch(&mut self, set: usize, is_it: impl Fn(u64) -> bool) -> Option<&mut u64> {
        let words = self.set_mut(set);
        let way = position(words, is_it)?;
        touch_mru(words, way);
        Some(&mut words[0])
    }

    /// Puts `word` first in `set`; gives the one that was last.
    #[inline(always)]
    pub fn push(&mut self, set: usize, word: u64) -> u64 {
        push_mru(self.set_mut(set), word)
    }

    /// Tells the host that `set` is going to be searched.
    #[inline(always)]
    pub fn host_prefetch(&self, set: usize) {
        for first in self.set(set).chunks(8) {
            prefetch(&first[0]);
        }
    }
}
