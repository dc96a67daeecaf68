//! Export of a cache array to an LRU stack and back, for filtered functional warming.

use pagewalk_structures::position;

use super::{CacheArray, EPOCH, GUESSED, LINE_MASK, Place, Victim, is_of, print};
use crate::lru_stack::LruStack;
use crate::{Level, Replacement};

impl CacheArray {
    /// True if [`CacheArray::export_lru`] is exact: under LRU.
    pub fn can_export_lru(&self) -> bool {
        self.replacement == Replacement::Lru
    }

    /// Copies the tags to `lru_stack`, which replaces the array until [`CacheArray::import_lru`].
    pub fn export_lru(&self, lru_stack: &mut LruStack) {
        let ways = self.state.ways();
        lru_stack.prepare(self.state.count(), ways);
        for set in 0..self.state.count() {
            let base = self.state.base(set);
            let words = lru_stack.set_mut(set);
            for way in 0..ways {
                let way = self.state.way(way);
                words[usize::from(self.state.rank(base, way))] = self.state.tag(base, way);
            }
        }
    }

    /// Replaces the contents by those of `lru_stack`. All lines are ready.
    pub fn import_lru(&mut self, lru_stack: &LruStack) {
        for set in 0..self.state.count() {
            let base = self.state.base(set);
            for (rank, &word) in lru_stack.set(set).iter().enumerate() {
                let way = self.state.way(rank);
                *self.state.order(base, way) = rank as u8;
                self.state.set_print(base, way, print(word & LINE_MASK));
                let at = Place { base, way };
                *self.tag_mut(at) = word;
                *self.ready_word(at) = 0;
            }
        }
    }

    /// As [`CacheArray::host_prefetch_ways`], on the LRU stack.
    #[inline(always)]
    pub fn host_prefetch_lru(&self, lru_stack: &LruStack, line: u64) {
        lru_stack.host_prefetch(self.set(line));
    }

    /// True if `lru_stack` holds `line`.
    #[inline(always)]
    pub fn lru_holds(&self, lru_stack: &LruStack, line: u64) -> bool {
        let words = lru_stack.set(self.set(line));
        position(words, |word| is_of(word, line)).is_some()
    }

    /// As [`CacheArray::find`] and [`CacheArray::warm_hit`], on the LRU stack. Returns true on a
    /// hit.
    #[inline(always)]
    pub fn lru_hit(&mut self, lru_stack: &mut LruStack, line: u64) -> bool {
        let set = self.set(line);
        let Some(word) = lru_stack.touch(set, |word| is_of(word, line)) else {
            return false;
        };
        if (*word ^ self.epoch) & (GUESSED | EPOCH) != 0 {
            *word = self.used_word(*word, false);
        }
        true
    }

    /// As [`CacheArray::set_flags`], on the LRU stack, if it holds the line.
    #[inline(always)]
    pub fn lru_set_flags(&self, lru_stack: &mut LruStack, line: u64, flags: u64) {
        let words = lru_stack.set_mut(self.set(line));
        if let Some(way) = position(words, |word| is_of(word, line)) {
            words[way] |= flags;
        }
    }

    /// As [`CacheArray::fill`] in functional warming, on the LRU stack.
    #[inline(always)]
    pub fn lru_fill(&mut self, lru_stack: &mut LruStack, line: u64, flags: u64) -> Victim {
        let word = self.warmed_word(line, flags, Level::Memory);
        let old = lru_stack.push(self.set(line), word);
        if old & GUESSED != 0 {
            self.count_evicted(old);
        }
        Victim(old)
    }
}
