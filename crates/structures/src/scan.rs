//! Finding a key among the ways of one set without a branch for each way.
//!
//! On x86-64, sixteen bytes are compared at a time with SSE2, which every such
//! processor supports. Other targets use plain loops.

/// Calls `is_it` in order with the index of each byte of `bytes` (length a
/// multiple of 16) that equals `byte`, until it returns true. Returns that
/// index.
#[inline(always)]
pub fn first_byte_equal(
    bytes: &[u8],
    byte: u8,
    mut is_it: impl FnMut(usize) -> bool,
) -> Option<usize> {
    debug_assert_eq!(bytes.len() % 16, 0);
    for (n, chunk) in bytes.chunks_exact(16).enumerate() {
        let mut found = equal_bytes(chunk.try_into().expect("chunks of sixteen"), byte);
        while found != 0 {
            let at = n * 16 + found.trailing_zeros() as usize;
            if is_it(at) {
                return Some(at);
            }
            found &= found - 1;
        }
    }
    None
}

/// A bit mask of the bytes that equal `byte`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn equal_bytes(bytes: &[u8; 16], byte: u8) -> u32 {
    use std::arch::x86_64::*;
    // SAFETY: SSE2 is part of every x86-64 target; one unaligned load of the
    // 16 bytes of `bytes`.
    unsafe {
        let b = _mm_loadu_si128(bytes.as_ptr().cast());
        _mm_movemask_epi8(_mm_cmpeq_epi8(b, _mm_set1_epi8(byte as i8))) as u32
    }
}

/// A bit mask of the bytes that equal `byte`.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn equal_bytes(bytes: &[u8; 16], byte: u8) -> u32 {
    let mut found = 0;
    for (i, &b) in bytes.iter().enumerate() {
        found |= u32::from(b == byte) << i;
    }
    found
}

/// LRU ranks, 0 for the most recently used. The entry with rank `rank` moves to
/// 0, and entries with lower ranks move back by one. `rank` is at most 127.
#[inline(always)]
pub fn renew_rank(ranks: &mut [u8; 16], rank: u8) {
    debug_assert!(rank < 128 && ranks.iter().all(|&r| r < 128));
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        // SAFETY: SSE2 is part of every x86-64 target; an unaligned load and
        // an unaligned store of the 16 bytes of `ranks`.
        unsafe {
            let r = _mm_loadu_si128(ranks.as_ptr().cast());
            let limit = _mm_set1_epi8(rank as i8);
            // A true comparison yields -1.
            let moved = _mm_sub_epi8(r, _mm_cmpgt_epi8(limit, r));
            let new = _mm_andnot_si128(_mm_cmpeq_epi8(limit, r), moved);
            _mm_storeu_si128(ranks.as_mut_ptr().cast(), new);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    for r in ranks {
        *r = if *r == rank {
            0
        } else {
            *r + u8::from(*r < rank)
        };
    }
}

/// The maximum of the first `n` bytes, `n` at most 16.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn most_of_first(bytes: &[u8; 16], n: usize) -> u8 {
    use std::arch::x86_64::*;
    // SAFETY: SSE2 is part of every x86-64 target; one unaligned load of the 16
    // bytes of `bytes`.
    unsafe {
        let b = _mm_loadu_si128(bytes.as_ptr().cast());
        let place = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let b = _mm_and_si128(b, _mm_cmpgt_epi8(_mm_set1_epi8(n as i8), place));
        let b = _mm_max_epu8(b, _mm_srli_si128::<8>(b));
        let b = _mm_max_epu8(b, _mm_srli_si128::<4>(b));
        let b = _mm_max_epu8(b, _mm_srli_si128::<2>(b));
        let b = _mm_max_epu8(b, _mm_srli_si128::<1>(b));
        _mm_cvtsi128_si32(b) as u8
    }
}

/// The maximum of the first `n` bytes, `n` at most 16.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn most_of_first(bytes: &[u8; 16], n: usize) -> u8 {
    bytes.iter().take(n).copied().fold(0, u8::max)
}

/// Prefetches `what` into the host's caches, so that the miss overlaps with
/// other work. Has no other effect.
#[inline(always)]
pub fn prefetch<T>(what: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of every x86-64 target, and a prefetch neither
        // reads nor writes anything that the program can see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(what).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = what;
}

#[cfg(test)]
mod tests {
    use super::{first_byte_equal, most_of_first, renew_rank};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranks_move_as_in_a_list(ranks in prop::collection::vec(0u8..128, 16), rank in 0u8..128) {
            let mut got: [u8; 16] = ranks.clone().try_into().expect("sixteen");
            renew_rank(&mut got, rank);
            for (new, old) in got.into_iter().zip(ranks) {
                let want = if old == rank { 0 } else if old < rank { old + 1 } else { old };
                prop_assert_eq!(new, want);
            }
        }

        #[test]
        fn the_most_is_that_of_the_first(bytes in prop::collection::vec(any::<u8>(), 16), n in 1usize..17) {
            let most = bytes[..n].iter().copied().max();
            let bytes: [u8; 16] = bytes.try_into().expect("sixteen");
            prop_assert_eq!(Some(most_of_first(&bytes, n)), most);
        }

        #[test]
        fn bytes_are_offered_in_order(bytes in prop::collection::vec(0u8..4, 32), skip in 0usize..6) {
            let mut seen = 0;
            let got = first_byte_equal(&bytes, 2, |_| { seen += 1; seen > skip });
            let want = bytes.iter().enumerate().filter(|b| *b.1 == 2).nth(skip).map(|b| b.0);
            prop_assert_eq!(got, want);
        }
    }
}
