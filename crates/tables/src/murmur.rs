//! Hash function for the tables whose papers name none.

/// The 64-bit finalizer of MurmurHash3 (Austin Appleby, public domain) over
/// `key`. Different salts give different functions.
#[inline]
pub(crate) fn murmur(key: u64, salt: u64) -> u64 {
    let mut h = key ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    h ^= h >> 33;
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^= h >> 33;
    h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ h >> 33
}
