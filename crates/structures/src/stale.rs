//! Cold-start (stale-state) uncertainty of a structure after an unobserved interval.

use std::ops::{AddAssign, Sub};

/// Number of intervals that are distinguished before all contents are marked as of no known
/// interval.
pub const EPOCHS: u64 = 255;

/// Lookups with an uncertain outcome. An entry older than the gap may have been replaced during
/// the gap. A miss may hit an entry brought in during the gap, if the set holds an older entry or
/// an empty way. Under LRU these are the only cases: entries used since the gap are still
/// present, and the oldest ways are replaced first.
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
