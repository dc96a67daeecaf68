//! Priority of blocks that hold no line of memory ([`BLOCK`]) over lines.
//!
//! With priority, a block that is filled or used is predicted to be used again at once. If the
//! replacement policy chooses a block as the victim, it makes one more attempt: the next victim goes
//! instead, unless that is a block, too. Under LRU each fill and use is the most recent one already,
//! so only the second attempt differs.

use super::{BLOCK, CacheArray, EMPTY, LINE_MASK, Place};
use crate::Replacement;
use crate::sets::{Base, Way};

impl CacheArray {
    /// Gives blocks priority from now on, or takes it from them.
    pub fn prefer_blocks(&mut self, prefers: bool) {
        self.prefers_blocks = prefers;
    }

    /// A fill or use of the block at `at`.
    pub fn promote_block(&mut self, at: Place) {
        if self.prefers_blocks && self.replacement != Replacement::Lru {
            *self.state.order(at.base, at.way) = 0;
        }
    }

    fn has_block(&self, base: Base, way: Way) -> bool {
        let line = self.state.tag(base, way) & LINE_MASK;
        line & BLOCK != 0 && line != EMPTY
    }

    /// LRU: the rank of the victim. `last` is that of the least recently used line.
    #[cold]
    pub(super) fn rank_of_victim(&self, base: Base, last: u8) -> u8 {
        let is_block = |rank| {
            let way = self.state.first_with_order(base, rank, 0);
            way.is_some_and(|way| self.has_block(base, way))
        };
        match last.checked_sub(1) {
            Some(next) if is_block(last) && !is_block(next) => next,
            _ => last,
        }
    }

    /// SRRIP: the victim, where `way` is the first way with the highest prediction, `most`.
    #[cold]
    pub(super) fn instead_of_block(&self, base: Base, way: Way, most: u8) -> Way {
        if !self.has_block(base, way) {
            return way;
        }
        let from = (way.index() + 1) % self.state.ways();
        let next = self.state.first_with_order(base, most, from);
        next.filter(|&next| !self.has_block(base, next))
            .unwrap_or(way)
    }
}

#[cfg(test)]
mod tests {
    use super::BLOCK;
    use crate::cache_array::CacheArray;
    use crate::{CacheSpec, Level, Replacement};

    /// One set of four ways.
    fn set(replacement: Replacement) -> CacheArray {
        let spec = CacheSpec {
            size_kb: 1,
            ways: 16,
            latency: 10,
            mshrs: 4,
            replacement,
            prefetcher: None,
        };
        CacheArray::new(&spec, "l2", Level::L2).expect("a valid cache")
    }

    fn fill(cache: &mut CacheArray, line: u64) {
        cache.fill::<true>(line, 0, Level::Memory, 0, 0);
        if line & BLOCK != 0
            && let Some(at) = cache.find(line)
        {
            cache.promote_block(at);
        }
    }

    /// Fills a block and `lines` new lines. Returns how many of them the block survived.
    fn survived(replacement: Replacement, prefers: bool, lines: u64) -> u64 {
        let mut cache = set(replacement);
        cache.prefer_blocks(prefers);
        fill(&mut cache, BLOCK | 1);
        (1..=lines)
            .take_while(|&line| {
                fill(&mut cache, line);
                cache.find(BLOCK | 1).is_some()
            })
            .count() as u64
    }

    #[test]
    fn a_block_outlives_lines_that_come_after_it() {
        use Replacement::{Lru, Srrip, SrripFp};
        for replacement in [Lru, Srrip, SrripFp] {
            assert_eq!(survived(replacement, false, 100), 15, "{replacement:?}");
            assert!(survived(replacement, true, 100) > 30, "{replacement:?}");
        }
        // One more attempt always finds a line.
        assert_eq!(survived(Lru, true, 100), 100);
    }

    #[test]
    fn a_use_brings_a_block_to_the_front_at_once() {
        let mut cache = set(Replacement::SrripFp);
        cache.prefer_blocks(true);
        fill(&mut cache, BLOCK | 1);
        let at = cache.find(BLOCK | 1).expect("present");
        *cache.state.order(at.base, at.way) = 3;
        cache.warm_hit(at);
        assert_eq!(*cache.state.order(at.base, at.way), 2, "as any line");
        cache.promote_block(at);
        assert_eq!(*cache.state.order(at.base, at.way), 0);
    }

    #[test]
    fn a_set_of_blocks_gives_up_a_block() {
        for replacement in [Replacement::Lru, Replacement::Srrip] {
            let mut cache = set(replacement);
            cache.prefer_blocks(true);
            for n in 0..40 {
                fill(&mut cache, BLOCK | n);
                assert!(cache.find(BLOCK | n).is_some());
            }
            fill(&mut cache, 1);
            assert!(cache.find(1).is_some());
            assert_eq!(cache.present().count(), 16);
        }
    }
}
