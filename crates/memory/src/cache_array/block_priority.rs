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
    /// True if blocks have priority.
    #[inline(always)]
    pub fn prefers_blocks(&self) -> bool {
        self.prefers_blocks
    }

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

    /// Called before a fill of `line`: if the victim would be a block, the next victim takes its
    /// place, unless that is a block, too.
    #[cold]
    pub fn spare_block(&mut self, line: u64) {
        let base = self.base(line);
        let Some((victim, next)) = self.victims(base) else {
            return;
        };
        if !self.has_block(base, victim) || self.has_block(base, next) {
            return;
        }
        if self.replacement == Replacement::Lru {
            let rank = *self.state.order(base, next);
            let last = std::mem::replace(self.state.order(base, victim), rank);
            *self.state.order(base, next) = last;
        } else {
            self.state.set_byte(base, next.index() as u8);
        }
    }

    /// The next victim of a set, and the one after it. None if there is no second.
    fn victims(&self, base: Base) -> Option<(Way, Way)> {
        if self.replacement == Replacement::Lru {
            let last = (self.state.ways() - 1) as u8;
            let victim = self.state.first_with_order(base, last, 0)?;
            let next = self.state.first_with_order(base, last.checked_sub(1)?, 0)?;
            return Some((victim, next));
        }
        let (most, victim) = self.state.oldest(base, self.state.byte(base));
        let victim = victim?;
        let from = (victim.index() + 1) % self.state.ways();
        let next = self.state.first_with_order(base, most, from)?;
        Some((victim, next))
    }
}

#[cfg(test)]
mod tests {
    use super::BLOCK;
    use crate::cache_array::CacheArray;
    use crate::{CacheSpec, Level, Replacement, SetIndex};

    /// One set.
    fn set(replacement: Replacement) -> CacheArray {
        let spec = CacheSpec {
            size_kb: 1,
            ways: 16,
            latency: 10,
            mshrs: 4,
            replacement,
            prefetcher: None,
            index: SetIndex::Modulo,
        };
        CacheArray::new(&spec, "l2", Level::L2).expect("a valid cache")
    }

    fn fill(cache: &mut CacheArray, line: u64) {
        if cache.prefers_blocks() {
            cache.spare_block(line);
        }
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
