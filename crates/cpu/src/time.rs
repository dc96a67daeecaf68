//! Time of the window, in two clocks.

use std::ops::{Add, Mul};

/// A slot or a cycle in two clocks, which obey the same laws of the window.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Time {
    /// Simulated time.
    pub real: u64,
    /// Time if no access waited for its translation, and all other latencies were as they are. Never
    /// later than `real`.
    pub ideal: u64,
}

impl Time {
    /// The same time in both clocks.
    #[inline(always)]
    pub const fn both(at: u64) -> Self {
        Time {
            real: at,
            ideal: at,
        }
    }

    /// The later time in each clock.
    #[inline(always)]
    pub fn max(self, other: Self) -> Self {
        Time {
            real: self.real.max(other.real),
            ideal: self.ideal.max(other.ideal),
        }
    }

    /// True if it is later than `other` in at least one clock.
    #[inline(always)]
    pub fn exceeds(self, other: Self) -> bool {
        self.real > other.real || self.ideal > other.ideal
    }

    /// Moved to `real`, and by as much in the ideal clock.
    #[inline(always)]
    pub fn moved_to(self, real: u64) -> Self {
        Time {
            real,
            ideal: real.saturating_sub(self.lag()),
        }
    }

    /// Moved to `real`, which is not earlier, and by as much in the ideal clock.
    #[inline(always)]
    pub fn delayed_to(self, real: u64) -> Self {
        self + (real - self.real)
    }

    /// `n` earlier in each clock.
    #[inline(always)]
    pub fn wrapping_sub(self, n: u64) -> Self {
        Time {
            real: self.real.wrapping_sub(n),
            ideal: self.ideal.wrapping_sub(n),
        }
    }

    /// Time that translations have cost so far.
    #[inline(always)]
    pub fn lag(self) -> u64 {
        self.real - self.ideal
    }
}

impl Add<u64> for Time {
    type Output = Time;

    #[inline(always)]
    fn add(self, n: u64) -> Time {
        Time {
            real: self.real + n,
            ideal: self.ideal + n,
        }
    }
}

impl Mul<u64> for Time {
    type Output = Time;

    #[inline(always)]
    fn mul(self, n: u64) -> Time {
        Time {
            real: self.real * n,
            ideal: self.ideal * n,
        }
    }
}
