//! Hash of a number by XOR of its groups of bits.

/// Folds a number to a few bits: the XOR of all its groups of so many bits. Each bit of the result
/// is the parity of some bits of the number, as in the slice hashes of caches and the bank hashes of
/// memory controllers.
#[derive(Clone, Copy, Debug)]
pub struct XorFold {
    bits: u32,
    /// The largest `bits << n` below 64; 0 for a fold to no bits.
    widest: u32,
}

impl XorFold {
    /// A fold to `bits` bits, below 64.
    pub fn new(bits: u32) -> Self {
        assert!(bits < 64, "a fold is shorter than its number");
        let doublings = 63u32.checked_div(bits).map_or(0, u32::ilog2);
        XorFold {
            bits,
            widest: bits << doublings,
        }
    }

    /// The fold of `number`.
    #[inline(always)]
    pub fn of(self, mut number: u64) -> u64 {
        // Each step folds the upper half of what is left onto the lower one.
        let mut shift = self.widest;
        while shift >= self.bits.max(1) {
            number ^= number >> shift;
            shift /= 2;
        }
        number & ((1 << self.bits) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::XorFold;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_fold_is_the_xor_of_all_groups(number: u64, bits in 0u32..64) {
            let groups = (0..64).step_by(bits.max(1) as usize);
            let mask = (1 << bits) - 1;
            let want = groups.fold(0, |all, shift| all ^ (number >> shift) & mask);
            prop_assert_eq!(XorFold::new(bits).of(number), want);
        }
    }
}
