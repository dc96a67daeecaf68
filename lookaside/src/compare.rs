//! Which rows of a set have a tag: one vector comparison of a cache line.
//!
//! The vector load is a hint: each row that it names is loaded again as one atomic integer and its tag
//! compared. A load that mixes two stores therefore costs a miss at worst. The loads are inline assembly,
//! since the language has no vector loads that may race with atomic stores.

use crate::rows::Set;

/// Bits of the rows of `set` whose tag is `tag`, bit 0 for the first row.
pub(crate) trait Compare {
    /// # Safety
    ///
    /// The processor has the instructions of this implementation.
    unsafe fn matching(set: &Set, tag: u16) -> u32;
}

/// One row after the other.
#[cfg(any(
    test,
    miri,
    loom,
    not(any(target_arch = "x86_64", target_arch = "aarch64"))
))]
pub(crate) struct Scalar;

#[cfg(any(
    test,
    miri,
    loom,
    not(any(target_arch = "x86_64", target_arch = "aarch64"))
))]
impl Compare for Scalar {
    #[inline]
    unsafe fn matching(set: &Set, tag: u16) -> u32 {
        let rows = set.0.iter().enumerate();
        rows.fold(0, |bits, (way, row)| {
            let equal =
                row.load(crate::sync::Relaxed) >> crate::rows::ADDRESS_BITS == u64::from(tag);
            bits | u32::from(equal) << way
        })
    }
}

#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
pub(crate) use x86::{Avx2, Sse2};

#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_castsi128_pd, _mm_cmpeq_epi16, _mm_movemask_pd, _mm_set1_epi16,
        _mm256_castsi256_pd, _mm256_cmpeq_epi16, _mm256_movemask_pd, _mm256_set1_epi16,
    };

    use super::Compare;
    use crate::rows::Set;

    /// Four loads of 16 bytes: every x86-64 processor.
    pub(crate) struct Sse2;

    impl Compare for Sse2 {
        #[inline]
        unsafe fn matching(set: &Set, tag: u16) -> u32 {
            let (a, b, c, d): (__m128i, __m128i, __m128i, __m128i);
            // SAFETY: the four aligned loads lie in `set`. x86-64 has SSE2.
            unsafe {
                asm!(
                    "movdqa {a}, [{set}]", "movdqa {b}, [{set} + 16]",
                    "movdqa {c}, [{set} + 32]", "movdqa {d}, [{set} + 48]",
                    a = out(xmm_reg) a, b = out(xmm_reg) b, c = out(xmm_reg) c, d = out(xmm_reg) d,
                    set = in(reg) set, options(nostack, preserves_flags, readonly)
                );
                let tags = _mm_set1_epi16(tag as i16);
                // The sign of a 64-bit lane is that of its highest 16 bits: the tag's comparison.
                let equal =
                    |rows| _mm_movemask_pd(_mm_castsi128_pd(_mm_cmpeq_epi16(rows, tags))) as u32;
                equal(a) | equal(b) << 2 | equal(c) << 4 | equal(d) << 6
            }
        }
    }

    /// Two loads of 32 bytes.
    pub(crate) struct Avx2;

    impl Compare for Avx2 {
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn matching(set: &Set, tag: u16) -> u32 {
            let (low, high): (__m256i, __m256i);
            // SAFETY: both aligned loads lie in `set`. The caller checked that the processor has AVX2.
            unsafe {
                asm!(
                    "vmovdqa {low}, [{set}]", "vmovdqa {high}, [{set} + 32]",
                    low = out(ymm_reg) low, high = out(ymm_reg) high,
                    set = in(reg) set, options(nostack, preserves_flags, readonly)
                );
            }
            let tags = _mm256_set1_epi16(tag as i16);
            // The sign of a 64-bit lane is that of its highest 16 bits: the tag's comparison.
            let equal = |rows| {
                _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi16(rows, tags))) as u32
            };
            equal(low) | equal(high) << 4
        }
    }
}

#[cfg(all(target_arch = "aarch64", not(miri), not(loom)))]
pub(crate) use arm::Neon;

#[cfg(all(target_arch = "aarch64", not(miri), not(loom)))]
mod arm {
    use std::arch::aarch64::{
        uint16x8_t, vceqq_u16, vdupq_n_u16, vget_lane_u64, vreinterpret_u64_u8, vshrn_n_u16,
    };
    use std::arch::asm;

    use super::Compare;
    use crate::rows::Set;

    /// One load that separates the four quarters of the eight rows: every 64-bit Arm processor.
    pub(crate) struct Neon;

    impl Compare for Neon {
        #[inline]
        unsafe fn matching(set: &Set, tag: u16) -> u32 {
            let tags: uint16x8_t;
            // SAFETY: the load of 64 bytes lies in `set`. NEON is part of the architecture.
            unsafe {
                asm!(
                    "ld4 {{v0.8h, v1.8h, v2.8h, v3.8h}}, [{set}]", set = in(reg) set,
                    out("v0") _, out("v1") _, out("v2") _, out("v3") tags,
                    options(nostack, preserves_flags, readonly)
                );
                let equal = vshrn_n_u16::<8>(vceqq_u16(tags, vdupq_n_u16(tag)));
                // Of each byte of the comparison, one bit, gathered in the highest byte of the product.
                let bytes = vget_lane_u64::<0>(vreinterpret_u64_u8(equal)) & 0x0101_0101_0101_0101;
                (bytes.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
            }
        }
    }
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;
    use crate::sync::AtomicU64;

    #[test]
    fn all_instructions_find_the_same_rows() {
        let mut bits = 1;
        for _ in 0..10_000 {
            // Tags of few values, so that several rows match. Addresses may look like tags.
            let set = Set(std::array::from_fn(|_| {
                bits = crate::mix(bits);
                AtomicU64::new(((bits >> 61) * 0x2491) << 48 | (bits & 0x2491_2491_2491))
            }));
            for tag in [0, 1, 0x2491, 2 * 0x2491, 7 * 0x2491, 0xFFFF] {
                // SAFETY: scalar instructions are everywhere.
                let expected = unsafe { Scalar::matching(&set, tag) };
                #[cfg(target_arch = "x86_64")]
                // SAFETY: each is used only where the processor has it.
                unsafe {
                    assert_eq!(Sse2::matching(&set, tag), expected);
                    if std::arch::is_x86_feature_detected!("avx2") {
                        assert_eq!(Avx2::matching(&set, tag), expected);
                    }
                }
                #[cfg(target_arch = "aarch64")]
                // SAFETY: every 64-bit Arm has NEON.
                assert_eq!(unsafe { Neon::matching(&set, tag) }, expected);
            }
        }
    }
}
