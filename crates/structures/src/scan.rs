//! Finding a key among the ways of one set without a branch for each way.
//!
//! On x86-64 two 64-bit keys, or sixteen bytes, are compared at a time with
//! SSE2, which every such processor has; elsewhere the loops are plain.

/// Index of the first word of `words` that equals `key` in the bits of `mask`.
#[inline(always)]
pub fn first_masked_equal(words: &[u64], key: u64, mask: u64) -> Option<usize> {
    let mut chunks = words.chunks_exact(8);
    let mut base = 0;
    for chunk in &mut chunks {
        let chunk: &[u64; 8] = chunk.try_into().expect("chunks of eight");
        let found = equal8(chunk, key, mask);
        if found != 0 {
            return Some(base + found.trailing_zeros() as usize);
        }
        base += 8;
    }
    let mut rest = chunks.remainder();
    if let Some((four, more)) = rest.split_first_chunk::<4>() {
        let found = equal4(four, key, mask);
        if found != 0 {
            return Some(base + found.trailing_zeros() as usize);
        }
        base += 4;
        rest = more;
    }
    rest.iter()
        .position(|&w| (w ^ key) & mask == 0)
        .map(|i| base + i)
}

/// A bit for each word that equals `key`; without a branch for each.
#[inline(always)]
fn equal4(words: &[u64; 4], key: u64, mask: u64) -> u32 {
    let mut found = 0;
    for (i, &w) in words.iter().enumerate() {
        found |= u32::from((w ^ key) & mask == 0) << i;
    }
    found
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn equal8(words: &[u64; 8], key: u64, mask: u64) -> u32 {
    use std::arch::x86_64::*;
    // SAFETY: SSE2 is part of every x86-64 target; the loads are unaligned
    // ones of 16 bytes each inside the 64 bytes of `words`.
    unsafe {
        let key = _mm_set1_epi64x(key as i64);
        let mask = _mm_set1_epi64x(mask as i64);
        let zero = _mm_setzero_si128();
        let from = words.as_ptr().cast::<__m128i>();
        let mut found = 0;
        for i in 0..4 {
            let w = _mm_loadu_si128(from.add(i));
            let halves = _mm_cmpeq_epi32(_mm_and_si128(_mm_xor_si128(w, key), mask), zero);
            let both = _mm_and_si128(halves, _mm_shuffle_epi32::<0b10_11_00_01>(halves));
            found |= (_mm_movemask_pd(_mm_castsi128_pd(both)) as u32) << (2 * i);
        }
        found
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn equal8(words: &[u64; 8], key: u64, mask: u64) -> u32 {
    let mut found = 0;
    for (i, &w) in words.iter().enumerate() {
        found |= u32::from((w ^ key) & mask == 0) << i;
    }
    found
}

/// Calls `is_it` with the index of each byte of `bytes` (a multiple of 16 long)
/// that equals `byte`, in order, until it says yes; gives that index.
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

/// A bit for each of `bytes` that equals `byte`.
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

/// A bit for each of `bytes` that equals `byte`.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn equal_bytes(bytes: &[u8; 16], byte: u8) -> u32 {
    let mut found = 0;
    for (i, &b) in bytes.iter().enumerate() {
        found |= u32::from(b == byte) << i;
    }
    found
}

/// Ranks of use, 0 the last used: the one of rank `rank` becomes the first and
/// those before it move back by one. `rank` is at most 127.
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
            // A comparison that holds is -1.
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

/// Tells the host that `what` is going to be used, so that its own cache miss
/// overlaps with the work until then. Changes nothing else.
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
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_are_found_where_a_plain_search_finds_them(
            words in prop::collection::vec(0u64..6, 0..40), key in 0u64..6, high in any::<u64>(),
        ) {
            let mask = 0xffff_ffff_ffff;
            let noisy: Vec<u64> = words.iter().map(|w| w | (high ^ w) << 48).collect();
            prop_assert_eq!(
                first_masked_equal(&noisy, key, mask),
                words.iter().position(|&w| w == key)
            );
        }

        #[test]
        fn the_upper_half_of_a_word_counts(low in any::<u32>(), a in any::<u32>(), b in any::<u32>()) {
            let word = |h: u32| u64::from(h) << 32 | u64::from(low);
            let words = [word(a); 8];
            prop_assert_eq!(first_masked_equal(&words, word(b), u64::MAX).is_some(), a == b);
        }

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
        fn bytes_are_offered_in_order(bytes in prop::collection::vec(0u8..4, 32), skip in 0usize..6) {
            let mut seen = 0;
            let got = first_byte_equal(&bytes, 2, |_| { seen += 1; seen > skip });
            let want = bytes.iter().enumerate().filter(|b| *b.1 == 2).nth(skip).map(|b| b.0);
            prop_assert_eq!(got, want);
        }
    }
}
