//! The hash functions of the ways: fields of one 64-bit hash of the key.
//!
//! ECPT and ME-HPT hash with CRC units (ME-HPT, table III). A CRC is linear: a
//! different initial value only adds a constant to every hash. Two keys that
//! collide in one way would then collide in all ways. Each way therefore uses
//! its own field of one CRC, 21 bits from the next way's field. The CRC of a
//! 64-bit key is a permutation, so two keys never agree in all bits.
//!
//! Because of linearity, the distribution of a regular key set over a way
//! depends on the rank of a few bits. A dense range either spreads over all
//! slots more evenly than random keys, or reaches only half of them. With the
//! chosen rotation, one of 64, it reaches all slots in each of three ways. This
//! holds for all way sizes up to 2^22 slots and ranges of twice as many keys. A
//! test computes the ranks.
//!
//! Regular sets with gaps fare worse. Clusters that are 8 or 64 apart exceed the
//! re-insertion limit and are resized before the load factor requires it. The
//! other hash function spreads all keys like random ones. The public Linux port
//! of ECPT has both kinds, with a CRC polynomial for each way.

use pagewalk_structures::crc64;

use crate::murmur::murmur;

use super::spec::HashFunction;

/// Offset of the first way's field in the CRC.
pub const FIRST_FIELD: u32 = 52;
/// Distance in bits between the fields of adjacent ways, for up to [`FIELD_WAYS`] ways.
pub const FIELD: u32 = 21;
/// Maximum ways whose fields are [`FIELD`] apart. The fields of more ways are evenly apart.
pub const FIELD_WAYS: usize = 3;

/// The hash of a key, for all ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hash(u64);

impl Hash {
    /// The hash of `key`. Different salts give different hash functions.
    #[inline]
    pub(crate) fn new(function: HashFunction, key: u64, salt: u64) -> Self {
        match function {
            HashFunction::Crc => Self::crc(key, salt),
            HashFunction::Murmur => Hash(murmur(key, salt)),
        }
    }
    /// The CRC with `salt` as its initial value.
    #[inline]
    fn crc(key: u64, salt: u64) -> Self {
        Hash(crc64(key ^ salt))
    }
    /// The hash for `way`. Its low bits are the slot.
    #[inline]
    pub(crate) fn of(self, way: usize, ways: usize) -> u64 {
        let apart = if ways <= FIELD_WAYS {
            FIELD
        } else {
            64 / ways as u32
        };
        self.0.rotate_right(FIRST_FIELD + apart * way as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::Hash;

    fn rank(columns: impl Iterator<Item = u64>) -> u32 {
        let mut basis = [0u64; 64];
        let mut rank = 0;
        for mut v in columns {
            while v != 0 {
                let top = 63 - v.leading_zeros() as usize;
                if basis[top] == 0 {
                    basis[top] = v;
                    rank += 1;
                    break;
                }
                v ^= basis[top];
            }
        }
        rank
    }

    #[test]
    fn a_dense_range_of_keys_reaches_every_slot_of_every_way() {
        for way in 0..3 {
            for bits in 1..=22 {
                let mask = (1u64 << bits) - 1;
                let columns = (0..=bits).map(|i| {
                    let zero = Hash::crc(0, 0).of(way, 3);
                    (Hash::crc(1 << i, 0).of(way, 3) ^ zero) & mask
                });
                assert_eq!(rank(columns), bits, "way {way}, 2^{bits} slots");
            }
        }
    }

    #[test]
    fn ways_disagree_about_which_keys_collide() {
        let mask = (1 << 12) - 1;
        let slots = |key, way| Hash::crc(key, 0).of(way, 3) & mask;
        let (a, mut both) = (0x1_2345u64, 0);
        let mut one = 0;
        for b in 0..1u64 << 18 {
            let same = |way| b != a && slots(a, way) == slots(b, way);
            one += u32::from(same(0));
            both += u32::from(same(0) && same(1));
        }
        assert!(one >= 32 && both <= 2, "{one} {both}");
    }
}
