//! Cold-start (stale-state) uncertainty of a structure after an unobserved interval.

use std::ops::{AddAssign, Sub};

/// Number of intervals that are distinguished before all contents are marked as of no known
/// interval.
pub const EPOCHS: u64 = 255;

/// Number of the current interval. An entry whose last use has another number is stale. Number 0 is
/// older than all others: that of an entry that was never used.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Epoch(u16);

impl Epoch {
    /// Begins a new interval. Calls `reset` if numbers are used up: every entry then moves to the
    /// default epoch, and numbers start again.
    pub fn advance(&mut self, reset: impl FnOnce()) {
        if u64::from(self.0) == EPOCHS {
            reset();
            self.0 = 0;
        }
        self.0 += 1;
    }

    /// As a number of at most 8 bits.
    pub fn number(self) -> u64 {
        u64::from(self.0)
    }

    /// The epoch of this [`Epoch::number`].
    pub fn of(number: u64) -> Self {
        Epoch(number as u16)
    }

    /// Counts a use of an entry whose last use was in `last`.
    #[inline(always)]
    pub fn count_use(self, last: &mut Epoch, outcomes: &mut StaleOutcomes) {
        if *last != self {
            outcomes.hits += 1;
            *last = self;
        }
    }

    /// Counts a fill of a way that was last used in `last`. `empty`: it held no entry.
    /// `others_are_stale`: another way of its set is stale.
    ///
    /// LRU evicts stale entries before current ones. So only the fill of a way that was invalidated
    /// in this interval can leave stale entries in the set.
    #[inline(always)]
    pub fn count_fill(
        self,
        (last, empty): (Epoch, bool),
        others_are_stale: impl FnOnce() -> bool,
        outcomes: &mut StaleOutcomes,
    ) {
        if last != self {
            outcomes.misses += 1;
        } else if empty && last != Epoch::default() {
            outcomes.misses += seldom(others_are_stale);
        }
    }
}

/// 1 if `is_true`. Kept out of the caller, whose fast path it would slow down.
#[cold]
#[inline(never)]
fn seldom(is_true: impl FnOnce() -> bool) -> u64 {
    u64::from(is_true())
}

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
