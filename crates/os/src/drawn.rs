//! A pseudo-random subset of numbered things.

use pagewalk_structures::mix;

/// Each number belongs to the subset with the same probability: if a hash of it is below
/// a bound. Nothing has to be stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drawn {
    /// Expected share of the numbers, 0 to 1.
    pub share: f64,
    /// Selects the subset.
    pub seed: u64,
}

impl Drawn {
    /// True if `number` belongs to the subset.
    #[inline]
    pub fn has(&self, number: u64) -> bool {
        // 53 bits give an exact fraction in 0..1.
        self.share > 0.0
            && ((mix(number ^ self.seed) >> 11) as f64) < self.share * (1u64 << 53) as f64
    }
}
