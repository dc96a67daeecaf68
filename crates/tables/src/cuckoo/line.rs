//! The contents of a slot: a 64-byte line that includes its own key.

use crate::cluster::{Line, PteCluster};

/// Line formats that store the key in spare bits. A probe is a single access,
/// and the tag costs no memory (ME-HPT, section II-B).
pub(crate) trait Format {
    /// The key; `None` in a free slot.
    fn key(line: &Line) -> Option<u64>;
    /// True if the slot is in use and has this key.
    #[inline]
    fn is(line: &Line, key: u64) -> bool {
        Self::key(line) == Some(key)
    }
}

impl Format for PteCluster {
    #[inline]
    fn key(line: &Line) -> Option<u64> {
        PteCluster::key(line)
    }
    #[inline]
    fn is(line: &Line, key: u64) -> bool {
        PteCluster::holds(line, key)
    }
}

/// Sections that a line of a cuckoo walk table describes, one byte each.
pub(crate) const SECTIONS: usize = 64;
/// Header bits of a section's byte. The spare bits of nine sections hold the
/// key, those of three others the number of sections in use.
const HEADER: u8 = (1 << HEADER_BITS) - 1;
const HEADER_BITS: u32 = 5;
const SPARE_BITS: u32 = 8 - HEADER_BITS;
/// Sections that hold three key bits each. With 57-bit addresses, the table of
/// 2 MB pages needs 27 of the 27 bits, and that of 1 GB pages 18.
const KEYED: usize = 9;
/// Sections that hold three bits of the count of sections in use.
const COUNTED: usize = 3;

/// A line of a cuckoo walk table: 64 section headers of five bits. A header
/// records the page sizes present and the way of the large page's cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CwtLine;

impl CwtLine {
    /// A line of `key` with all headers zero. It counts as free until a header
    /// is set.
    pub(crate) fn empty(key: u64) -> Line {
        debug_assert!(key >> (SPARE_BITS * KEYED as u32) == 0);
        let mut bytes = [0u8; SECTIONS];
        for (i, b) in bytes.iter_mut().take(KEYED).enumerate() {
            *b = ((key >> (SPARE_BITS * i as u32)) as u8) << HEADER_BITS;
        }
        Self::line(bytes)
    }
    /// The header of `section`.
    #[inline]
    pub(crate) fn header(line: &Line, section: usize) -> u8 {
        (line[section / 8] >> (section % 8 * 8)) as u8 & HEADER
    }
    /// Sets the header of `section`. The line is free if all headers are zero.
    pub(crate) fn set(line: &mut Line, section: usize, header: u8) {
        debug_assert!(header & !HEADER == 0);
        let before = Self::header(line, section) != 0;
        let shift = section % 8 * 8;
        let word = &mut line[section / 8];
        *word = *word & !(u64::from(HEADER) << shift) | u64::from(header) << shift;
        let used = Self::used(line) + u32::from(header != 0) - u32::from(before);
        for i in 0..COUNTED {
            let section = SECTIONS - COUNTED + i;
            let shift = section % 8 * 8 + HEADER_BITS as usize;
            let bits =
                u64::from(used >> (SPARE_BITS * i as u32)) & u64::from(u8::MAX >> HEADER_BITS);
            let word = &mut line[section / 8];
            *word = *word & !(u64::from(u8::MAX >> HEADER_BITS) << shift) | bits << shift;
        }
    }
    /// Sections in use, with a nonzero header.
    #[inline]
    pub(crate) fn used(line: &Line) -> u32 {
        (0..COUNTED).fold(0, |n, i| {
            n | u32::from(Self::spare(line, SECTIONS - COUNTED + i)) << (SPARE_BITS * i as u32)
        })
    }
    #[inline]
    fn spare(line: &Line, section: usize) -> u8 {
        (line[section / 8] >> (section % 8 * 8)) as u8 >> HEADER_BITS
    }
    fn line(bytes: [u8; SECTIONS]) -> Line {
        std::array::from_fn(|i| u64::from_le_bytes(std::array::from_fn(|j| bytes[8 * i + j])))
    }
}

impl Format for CwtLine {
    #[inline]
    fn key(line: &Line) -> Option<u64> {
        (CwtLine::used(line) != 0).then(|| {
            (0..KEYED).fold(0, |key, i| {
                key | u64::from(CwtLine::spare(line, i)) << (SPARE_BITS * i as u32)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{CwtLine, Format, HEADER, SECTIONS};

    #[test]
    fn a_walk_table_line_keeps_key_and_headers_apart() {
        for key in [0, 1, 0x2_aaaa, 0x1_5555, (1 << 18) - 1] {
            let mut line = CwtLine::empty(key);
            assert_eq!(CwtLine::key(&line), None);
            for section in 0..SECTIONS {
                let header = (section * 7 % 31) as u8 | 1;
                CwtLine::set(&mut line, section, HEADER);
                CwtLine::set(&mut line, section, header);
                assert_eq!(CwtLine::used(&line), 1 + section as u32);
                assert_eq!(CwtLine::key(&line), Some(key));
                assert!(CwtLine::is(&line, key) && !CwtLine::is(&line, key ^ 1));
            }
            for section in 0..SECTIONS {
                let header = (section * 7 % 31) as u8 | 1;
                assert_eq!(CwtLine::header(&line, section), header);
                CwtLine::set(&mut line, section, 0);
            }
            assert_eq!(CwtLine::key(&line), None);
        }
    }
}
