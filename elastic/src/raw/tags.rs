//! Comparison of tags.
//!
//! A bucket begins with eight bytes. Each slot has one; it is zero if the slot is empty, and the entry's tag
//! otherwise. Bytes without a slot are zero for ever.

/// Slots of a bucket whose tag equals `tag`: bit `i` for slot `i`, and bit `8 + i` for the second bucket.
///
/// # Safety
///
/// Eight bytes must be readable at both pointers.
#[inline]
pub(super) unsafe fn matches(first: *const u8, second: *const u8, tag: u8) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 belongs to x86-64. `_mm_loadl_epi64` reads eight bytes of any alignment.
    unsafe {
        use core::arch::x86_64::{
            _mm_cmpeq_epi8, _mm_loadl_epi64, _mm_movemask_epi8, _mm_set1_epi8, _mm_unpacklo_epi64,
        };
        let both = _mm_unpacklo_epi64(
            _mm_loadl_epi64(first.cast()),
            _mm_loadl_epi64(second.cast()),
        );
        _mm_movemask_epi8(_mm_cmpeq_epi8(both, _mm_set1_epi8(tag.cast_signed()))).cast_unsigned()
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: The caller guarantees it.
    unsafe {
        equal(read(first), tag) | equal(read(second), tag) << 8
    }
}

/// Empty slots of a bucket: the top bit of each one's byte.
#[derive(Clone, Copy)]
pub(super) struct Vacant(u64);

impl Vacant {
    /// The empty slots of a bucket of so many.
    ///
    /// # Safety
    ///
    /// Eight bytes must be readable at the pointer.
    #[inline]
    pub(super) unsafe fn of(bucket: *const u8, slots: usize) -> Self {
        // SAFETY: The caller guarantees it.
        Self(zeros(unsafe { read(bucket) }) & (u64::MAX >> (64 - 8 * slots)))
    }

    #[inline]
    pub(super) const fn count(self) -> u64 {
        (self.0 >> 7).wrapping_mul(0x0101_0101_0101_0101) >> 56
    }

    /// The empty slot of the lowest number.
    #[inline]
    pub(super) const fn first(self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        Some((self.0.trailing_zeros() / 8) as usize)
    }
}

/// Full slots of a bucket: bit `i` for slot `i`.
///
/// # Safety
///
/// Eight bytes must be readable at the pointer.
#[inline]
pub(super) unsafe fn full(bucket: *const u8) -> u32 {
    // SAFETY: The caller guarantees it.
    0xff & !equal(unsafe { read(bucket) }, 0)
}

/// The eight tags of a bucket, that of slot 0 in the lowest byte.
///
/// # Safety
///
/// Eight bytes must be readable at the pointer.
#[inline]
unsafe fn read(bucket: *const u8) -> u64 {
    // SAFETY: The caller guarantees it.
    u64::from_le(unsafe { bucket.cast::<u64>().read_unaligned() })
}

/// Bytes of `tags` that equal `tag`: bit `i` for byte `i`.
#[inline]
const fn equal(tags: u64, tag: u8) -> u32 {
    let equal = zeros(tags ^ (0x0101_0101_0101_0101 * tag as u64));
    // The product collects the eight bits in its top byte.
    ((equal >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
}

/// The top bit of each byte that is zero.
#[inline]
const fn zeros(bytes: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    // No carry leaves a byte.
    !(((bytes & LOW) + LOW) | bytes | LOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_have_the_bits_of_equal_bytes_alone() {
        let mut state = 1_u64;
        for _ in 0..if cfg!(miri) { 50 } else { 2000 } {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Few values, so that equal and neighbouring bytes are frequent.
            let bytes: [u8; 16] = core::array::from_fn(|i| {
                [0, 1, 2, 0x7f, 0x80, 0x81, 0xfe, 0xff][(state >> (3 * i)) as usize & 7]
            });
            for tag in [0, 1, 0x7f, 0x80, 0x81, 0xff] {
                let expected = (0..16).fold(0, |mask, i| mask | u32::from(bytes[i] == tag) << i);
                let (low, high) = bytes.split_at(8);
                // SAFETY: Both halves have eight bytes.
                let (pair, first) = unsafe {
                    (
                        matches(low.as_ptr(), high.as_ptr(), tag),
                        read(low.as_ptr()),
                    )
                };
                assert_eq!(pair, expected);
                assert_eq!(equal(first, tag), expected & 0xff);
            }
        }
    }
}
