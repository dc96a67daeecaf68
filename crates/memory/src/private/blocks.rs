//! Blocks of the L2 that hold something else than a line of memory, such as translations. The L2
//! replaces them as lines, unless they are given priority. They are never written back, and no other core sees them.

use pagewalk_units::Cycle;

use super::Private;
use crate::cache_array::BLOCK;
use crate::{Below, Done, Level};

impl Private {
    /// Looks up block `number` in the L2, and makes it the most recently used. Returns the cycle
    /// from which it is ready. Counts nothing.
    pub fn probe_block(&mut self, number: u64) -> Option<Cycle> {
        let cache = &mut self.further[self.l2];
        let at = cache.find(BLOCK | number)?;
        let ready = cache.ready(at);
        cache.warm_hit(at);
        cache.promote_block(at);
        Some(ready)
    }

    /// Gives blocks of the L2 priority over lines from now on, or takes it from them.
    pub fn prefer_blocks(&mut self, prefers: bool) {
        self.further[self.l2].prefer_blocks(prefers);
    }

    /// Puts block `number`, below 2^47 - 1, into the L2, if it is absent. It is ready from `now` on.
    pub fn insert_block<const TIMED: bool, B: Below>(
        &mut self,
        number: u64,
        now: Cycle,
        below: &mut B,
    ) {
        let line = BLOCK | number;
        if self.further[self.l2].find(line).is_none() {
            let done = Done::new(now, Level::L2);
            self.fill_further::<false, TIMED, B>(self.l2, line, 0, done, now, below);
            let cache = &mut self.further[self.l2];
            if let Some(at) = cache.find(line) {
                cache.promote_block(at);
            }
        }
    }
}
