//! Keys whose fast hash maps to few sets of a table: a hash-flooding attack.
//!
//! STLT's set is the hash from bit 12 up. Keys with zeros in `bits` of these bits share 1/2^`bits` of the
//! sets, or one set if the table has no more.
//!
//! djb2 is a sum over the characters: each code times a power of 33. Such keys can therefore be constructed.
//! Each choice of the front digits fixes the sum that the last six digits must add, which is looked up among
//! their million sums. The other hashes lack this structure. They have no secret seed, so keys are tried
//! until enough match: 2^bits for each.

use super::shortcut::FastHash;
use super::ycsb;

/// Lowest bit of the hash that selects a set. Lower bits are the row's tag.
const SET_SHIFT: u32 = 12;
/// Maximum bits: those of the sets of a table of 1 GiB in sets of one line.
pub const MOST_BITS: u64 = 24;
/// Maximum tried keys, or front digits: some ten seconds.
const MOST_TRIES: u64 = 1 << 28;
/// Number of last digits whose sums are listed, and number of texts they form.
const LISTED: u32 = 6;
const TEXTS: u64 = 10u64.pow(LISTED);

/// Front digits, or keys, tried per matching key.
fn tries(hash: FastHash, bits: u64) -> u64 {
    match hash {
        FastHash::Djb2 => (1 << bits) / TEXTS + 1,
        _ => 1 << bits,
    }
}

/// True if `count` keys can be found in reasonable time.
pub fn is_feasible(hash: FastHash, bits: u64, count: u64) -> bool {
    hash != FastHash::SipHash && count.saturating_mul(tries(hash, bits)) <= MOST_TRIES
}

/// The numbers of the first `count` keys whose hash has zeros in `bits` bits from bit 12 up, at most
/// [`MOST_BITS`]. All differ.
pub fn keys(hash: FastHash, bits: u64, count: u64) -> Vec<u64> {
    debug_assert!(is_feasible(hash, bits, count));
    let mut keys = Vec::with_capacity(count as usize);
    if hash == FastHash::Djb2 {
        constructed(bits, count, &mut keys);
        return keys;
    }
    let mask = ((1 << bits) - 1) << SET_SHIFT;
    let tried = (0..).map(ycsb::fnv64);
    keys.extend(
        tried
            .filter(|n| hash.of(*n) & mask == 0)
            .take(count as usize),
    );
    keys
}

fn constructed(bits: u64, count: u64, keys: &mut Vec<u64>) {
    // The hash modulo this must be below 2^12.
    let modulus = 1u64 << (u64::from(SET_SHIFT) + bits);
    let within = 1u64 << SET_SHIFT;
    // Sums that the last digits add to a text that ends with zeros.
    let zeros = FastHash::Djb2.of(0);
    let mut sums: Vec<(u64, u32)> = (0..TEXTS)
        .map(|n| {
            let sum = FastHash::Djb2.of(n).wrapping_sub(zeros);
            (sum & (modulus - 1), n as u32)
        })
        .collect();
    sums.sort_unstable();
    for front in 0.. {
        let base = FastHash::Djb2.of(front * TEXTS) & (modulus - 1);
        // Sums that bring the hash into 0..2^12, with or without overflow of the modulus.
        let from = (modulus - base) & (modulus - 1);
        let to = from + within;
        for (low, high) in [(from, to.min(modulus)), (0, to.saturating_sub(modulus))] {
            let first = sums.partition_point(|s| s.0 < low);
            for (sum, last) in &sums[first..] {
                if *sum >= high {
                    break;
                }
                keys.push(front * TEXTS + u64::from(*last));
                if keys.len() as u64 == count {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{is_feasible, keys};
    use crate::kv::shortcut::FastHash;

    #[test]
    fn all_keys_are_in_one_set_of_so_many() {
        for (hash, bits, count) in [
            (FastHash::Djb2, 6, 5000),
            (FastHash::Djb2, 23, 3000),
            (FastHash::Djb2, 24, 1000),
            (FastHash::Xxh3, 6, 5000),
            (FastHash::Xxh3, 12, 200),
            (FastHash::Xxh64, 8, 500),
            (FastHash::Murmur, 8, 500),
        ] {
            assert!(is_feasible(hash, bits, count));
            let keys = keys(hash, bits, count);
            assert_eq!(keys.len() as u64, count);
            let distinct: HashSet<u64> = keys.iter().copied().collect();
            assert_eq!(distinct.len() as u64, count, "{hash:?}");
            let sets: HashSet<u64> = keys
                .iter()
                .map(|n| hash.of(*n) >> 12 & ((1 << bits) - 1))
                .collect();
            assert_eq!(sets, HashSet::from([0]), "{hash:?} {bits}");
            // The rest of the hash resembles that of other keys: tags, and except for djb2 the higher bits,
            // differ.
            let tags: HashSet<u64> = keys.iter().map(|n| hash.of(*n) & 0xfff).collect();
            let want = 4096.0 * (1.0 - (1.0 - 1.0 / 4096.0f64).powi(count as i32));
            // djb2 spreads its last digits over few tags.
            let least = if hash == FastHash::Djb2 { 0.2 } else { 0.9 };
            let share = tags.len() as f64 / want;
            assert!((least..1.1).contains(&share), "{hash:?} {share}");
            if hash != FastHash::Djb2 {
                let rest: HashSet<u64> = keys.iter().map(|n| hash.of(*n) >> 36).collect();
                assert!(rest.len() as u64 > count / 2, "{hash:?} {}", rest.len());
            }
        }
    }

    #[test]
    fn infeasible_floods_are_not_tried() {
        assert!(!is_feasible(FastHash::SipHash, 1, 1));
        assert!(!is_feasible(FastHash::Xxh3, 23, 1000));
        assert!(is_feasible(FastHash::Djb2, 23, 10_000_000));
    }
}
