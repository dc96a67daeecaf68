//! A share of numbered things, drawn at random.

use pagewalk_structures::mix;

/// Each number is among them with the same probability: a hash of it is below a bound, so
/// that nothing has to be remembered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drawn {
    /// 0 to 1.
    pub share: f64,
    /// Another one draws others.
    pub seed: u64,
}

impl Drawn {
    /// Whether `number` is among them.
    #[inline]
    pub fn has(&self, number: u64) -> bool {
        // 53 bits are a fraction from 0 to below 1 that is exact.
        self.share > 0.0
            && ((mix(number ^ self.seed) >> 11) as f64) < self.share * (1u64 << 53) as f64
    }
}
