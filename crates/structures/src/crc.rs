//! CRC-64, as a hash function in hardware computes it: one level of parities.

/// CRC-64 of ECMA-182, most significant bit first.
pub const CRC64_POLYNOMIAL: u64 = 0x42f0_e1eb_a9ea_3693;

/// `TABLES[i][b]`: the CRC of byte `b` followed by `i` zero bytes.
static TABLES: [[u64; 256]; 8] = tables();

const fn tables() -> [[u64; 256]; 8] {
    let mut t = [[0; 256]; 8];
    let mut b = 0;
    while b < 256 {
        let mut crc = (b as u64) << 56;
        let mut i = 0;
        while i < 8 {
            crc = crc << 1 ^ (if crc >> 63 == 1 { CRC64_POLYNOMIAL } else { 0 });
            i += 1;
        }
        t[0][b] = crc;
        b += 1;
    }
    let mut i = 1;
    while i < 8 {
        let mut b = 0;
        while b < 256 {
            let crc = t[i - 1][b];
            t[i][b] = crc << 8 ^ t[0][(crc >> 56) as usize];
            b += 1;
        }
        i += 1;
    }
    t
}

/// The CRC of eight bytes, of which the most significant one comes first. It is linear: the CRC of
/// `a ^ b` is that of `a` combined with that of `b`. It is a permutation.
#[inline]
pub fn crc64(value: u64) -> u64 {
    let t = |i: usize| TABLES[i][(value >> (8 * i)) as usize & 0xff];
    t(0) ^ t(1) ^ t(2) ^ t(3) ^ t(4) ^ t(5) ^ t(6) ^ t(7)
}

#[cfg(test)]
mod tests {
    use super::{CRC64_POLYNOMIAL, TABLES, crc64};

    fn bit_by_bit(value: u64) -> u64 {
        let step = |r: u64| r << 1 ^ if r >> 63 == 1 { CRC64_POLYNOMIAL } else { 0 };
        (0..64).fold(value, |r, _| step(r))
    }

    #[test]
    fn it_is_crc_64_of_ecma_182() {
        // The check value in the catalogue of parametrised CRC algorithms,
        // "123456789": eight bytes, then the ninth.
        let crc = crc64(u64::from_be_bytes(*b"12345678"));
        let check = crc << 8 ^ TABLES[0][(crc >> 56) as usize ^ usize::from(b'9')];
        assert_eq!(check, 0x6c40_df5f_0b49_7347);
        for value in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
            assert_eq!(crc64(value), bit_by_bit(value));
        }
    }
}
