//! What a structure cannot know after a stretch of the program that it has not seen.

use std::ops::{AddAssign, Sub};

/// Stretches that are told apart before everything is marked as of none.
pub const EPOCHS: u64 = 255;

/// Lookups whose outcome is not known. An entry that is older than the gap may have been replaced
/// in it; where a set holds one, or an empty way, what is missed may have come in the gap. Under
/// LRU that is all: what was used since the gap is there, and the oldest ways are replaced first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StaleOutcomes {
    /// Hits that might have been misses.
    pub hits: u64,
    /// Misses that might have been hits.
    pub misses: u64,
}

impl AddAssign for StaleOutcomes {
    fn add_assign(&mut self, more: StaleOutcomes) {
        self.hits += more.hits;
        self.misses += more.misses;
    }
}

impl Sub for StaleOutcomes {
    type Output = StaleOutcomes;
    fn sub(self, before: StaleOutcomes) -> StaleOutcomes {
        StaleOutcomes {
            hits: self.hits - before.hits,
            misses: self.misses - before.misses,
        }
    }
}
