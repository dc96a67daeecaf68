//! The hash of Redis's dictionary: SipHash-1-2, which Redis chose for speed. The crate `siphasher` has only
//! 1-3 and 2-4. Tests compare this implementation with it.

use super::ycsb;

/// SipHash with `C` rounds per block and `D` at the end (Aumasson and Bernstein, INDOCRYPT 2012).
fn siphash<const C: usize, const D: usize>(text: &[u8], key: [u64; 2]) -> u64 {
    let mut v = [
        0x736f_6d65_7073_6575 ^ key[0],
        0x646f_7261_6e64_6f6d ^ key[1],
        0x6c79_6765_6e65_7261 ^ key[0],
        0x7465_6462_7974_6573 ^ key[1],
    ];
    let round = |v: &mut [u64; 4]| {
        v[0] = v[0].wrapping_add(v[1]);
        v[2] = v[2].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].rotate_left(32).wrapping_add(v[3]);
        v[2] = v[2].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].rotate_left(32);
    };
    let (words, rest) = text.as_chunks::<8>();
    let mut last = (text.len() as u64) << 56;
    for (i, byte) in rest.iter().enumerate() {
        last |= u64::from(*byte) << (8 * i);
    }
    for word in words.iter().map(|w| u64::from_le_bytes(*w)).chain([last]) {
        v[3] ^= word;
        for _ in 0..C {
            round(&mut v);
        }
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for _ in 0..D {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

/// Hash of the key with this number. A server draws its hash key at the start; this one is fixed.
pub fn hash_of(number: u64) -> u64 {
    siphash::<1, 2>(
        &ycsb::text(number),
        [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908],
    )
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher as _;

    use siphasher::sip::{SipHasher13, SipHasher24};

    use super::siphash;

    /// Test vectors of the authors' implementation: key 00..0f, text 00, 01, ….
    #[test]
    fn siphash_is_that_of_its_authors() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let text: Vec<u8> = (0..15).collect();
        assert_eq!(siphash::<2, 4>(&text, key), 0xa129_ca61_49be_45e5);
        assert_eq!(siphash::<2, 4>(&[], key), 0x726f_db47_dd0e_0e31);
        assert_ne!(siphash::<1, 2>(&text, key), siphash::<2, 4>(&text, key));
    }

    proptest::proptest! {
        #[test]
        fn other_numbers_of_rounds_give_what_others_compute(text: Vec<u8>, a: u64, b: u64) {
            let mut short = SipHasher13::new_with_keys(a, b);
            short.write(&text);
            proptest::prop_assert_eq!(siphash::<1, 3>(&text, [a, b]), short.finish());
            let mut long = SipHasher24::new_with_keys(a, b);
            long.write(&text);
            proptest::prop_assert_eq!(siphash::<2, 4>(&text, [a, b]), long.finish());
        }
    }
}
