//! Clusters of page-table entries: eight neighbouring entries fill a 64-byte line. The
//! line's key lies in spare bits of the entries, so the tag costs no memory. Source:
//! page table entry clustering and compaction (Yaniv and Tsafrir, SIGMETRICS 2016),
//! adopted by ECPT and ME-HPT (section II-B).
//!
//! The entries have the x86-64 layout (see `pte`), with these exceptions:
//!
//! - Bits 52..58 of entries 0..7 hold six bits of the key each. With 57-bit addresses,
//!   the three page sizes need 42, 33 and 24 of the 42 key bits.
//! - Bits 52..58 of entry 7 hold the number of valid entries. A line without valid
//!   entries is free and has no key.
//! - Program flags that hardware has no bit for move to bits that it ignores: 9..12 and
//!   58..62.

use pagewalk_units::{Error, PageSize};

use crate::{Flags, pte};

/// One line of the table's memory.
pub(crate) type Line = [u64; 8];

/// Entries of a cluster.
pub(crate) const PTES: usize = 8;
/// log2 of [`PTES`]. The key is the page number above these bits.
pub const PTES_SHIFT: u32 = 3;
/// Default of `address_bits`: x86-64's four-level canonical addresses.
pub(crate) const ADDRESS_BITS: u32 = 48;
/// Address bits of five-level paging (Intel, 335252), the most that a key distinguishes.
const MOST_ADDRESS_BITS: u32 = 57;

const SPARE_SHIFT: u32 = 52;
const SPARE_BITS: u32 = 6;
const SPARE: u64 = ((1 << SPARE_BITS) - 1) << SPARE_SHIFT;
/// Entries that hold bits of the key.
const KEYED: usize = PTES - 1;
/// Size of the key field in bits.
pub(crate) const KEY_BITS: u32 = KEYED as u32 * SPARE_BITS;
/// Flags 1..4 lie in bits 9..12, flags 4..8 in bits 58..62.
const LOW_FLAGS: (u32, u8) = (9, 0x7);
const HIGH_FLAGS: (u32, u8) = (58, 0xf);

/// The format of a line of entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PteCluster;

impl PteCluster {
    /// The key of the line. `None` if the line is free.
    #[inline]
    pub(crate) fn key(line: &Line) -> Option<u64> {
        (Self::valid(line) > 0).then(|| {
            (0..KEYED).fold(0, |key, i| {
                key | (line[i] & SPARE) >> SPARE_SHIFT << (SPARE_BITS * i as u32)
            })
        })
    }

    /// True if the line has this key. Faster than comparing [`PteCluster::key`].
    #[inline]
    pub(crate) fn holds(line: &Line, key: u64) -> bool {
        let differs = |i: usize| (line[i] >> SPARE_SHIFT ^ key >> (SPARE_BITS * i as u32)) as u8;
        let few = 1 << SPARE_BITS;
        // Most lines with another key differ in the lowest bits.
        differs(0) % few == 0
            && (1..KEYED).fold(0, |all, i| all | differs(i)) % few == 0
            && Self::valid(line) > 0
    }

    /// Valid entries; 0 in a free line.
    #[inline]
    pub(crate) fn valid(line: &Line) -> u32 {
        ((line[PTES - 1] & SPARE) >> SPARE_SHIFT) as u32
    }

    /// A line of `key` with one valid entry.
    #[inline]
    pub(crate) fn with(key: u64, index: usize, entry: u64) -> Line {
        debug_assert!(key >> KEY_BITS == 0);
        let mut line = [0; PTES];
        for (i, e) in line.iter_mut().take(KEYED).enumerate() {
            *e = (key >> (SPARE_BITS * i as u32)) << SPARE_SHIFT & SPARE;
        }
        Self::put(&mut line, index, entry);
        line
    }

    /// The entry at `index`, if it is valid. See [`frame`] and [`flags`].
    #[inline]
    pub(crate) fn get(line: &Line, index: usize) -> Option<u64> {
        let e = line[index];
        (e & pte::PRESENT != 0).then_some(e)
    }

    /// Writes `entry` (made by [`entry`]) at `index`. Replaces an existing entry.
    #[inline]
    pub(crate) fn put(line: &mut Line, index: usize, entry: u64) {
        debug_assert!(entry & SPARE == 0 && entry & pte::PRESENT != 0);
        let fresh = line[index] & pte::PRESENT == 0;
        line[index] = line[index] & SPARE | entry;
        line[PTES - 1] += u64::from(fresh) << SPARE_SHIFT;
    }

    /// Removes the valid entry at `index`. The line becomes free if it was the last
    /// one.
    #[inline]
    pub(crate) fn take(line: &mut Line, index: usize) {
        debug_assert!(line[index] & pte::PRESENT != 0);
        line[index] &= SPARE;
        line[PTES - 1] -= 1 << SPARE_SHIFT;
    }
}

/// The width of the addresses that a table translates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Width(u32);

impl Width {
    /// Addresses of `bits`, which [`check_address_bits`] accepts.
    pub(crate) fn new(bits: u32) -> Self {
        Width(bits)
    }

    /// The translated bits of `va`.
    #[inline]
    pub(crate) fn low(self, va: u64) -> u64 {
        va & ((1 << self.0) - 1)
    }

    /// True if the table can translate `va`: the bits above the translated ones equal
    /// the highest of them.
    #[inline]
    pub(crate) fn canonical(self, va: u64) -> bool {
        self.extend(va) == va
    }

    /// Sign-extends a translated address to a canonical one.
    #[inline]
    pub(crate) fn extend(self, va: u64) -> u64 {
        let above = 64 - self.0;
        ((va << above) as i64 >> above) as u64
    }

    /// The key of the line that holds the entry of `va`, and the entry's index in the
    /// line.
    #[inline]
    pub(crate) fn place(self, va: u64, size: PageSize) -> (u64, usize) {
        let number = self.low(va) >> size.shift();
        (number >> PTES_SHIFT, number as usize & (PTES - 1))
    }

    /// The canonical address of entry `index` of the line of `key`.
    #[inline]
    pub(crate) fn address(self, key: u64, index: usize, size: PageSize) -> u64 {
        self.extend((key << PTES_SHIFT | index as u64) << size.shift())
    }
}

/// Checks that `bits` is a width of x86-64's addresses.
pub(crate) fn check_address_bits(bits: u32) -> Result<(), Error> {
    if bits == ADDRESS_BITS || bits == MOST_ADDRESS_BITS {
        return Ok(());
    }
    Err(Error::key(
        "address_bits",
        format!("is {bits}; expected {ADDRESS_BITS} or {MOST_ADDRESS_BITS}"),
    ))
}

/// The entry of a cluster for a page of `size`.
#[inline]
pub(crate) fn entry(frame: u64, flags: Flags, size: PageSize) -> u64 {
    let software = flags.0 >> 1;
    let low = u64::from(software & LOW_FLAGS.1) << LOW_FLAGS.0;
    let high = u64::from(software >> 3 & HIGH_FLAGS.1) << HIGH_FLAGS.0;
    let writable = Flags(flags.0 & Flags::WRITABLE.0);
    pte::leaf(frame, writable, size != PageSize::K4) | low | high
}
/// The frame of `entry`.
#[inline]
pub(crate) fn frame(entry: u64) -> u64 {
    pte::frame(entry)
}
/// The flags of `entry`.
#[inline]
pub(crate) fn flags(entry: u64) -> Flags {
    let low = (entry >> LOW_FLAGS.0) as u8 & LOW_FLAGS.1;
    let high = (entry >> HIGH_FLAGS.0) as u8 & HIGH_FLAGS.1;
    let writable = u8::from(entry & pte::WRITABLE != 0);
    Flags(writable | low << 1 | high << 4)
}

#[cfg(test)]
mod tests {
    use pagewalk_units::PageSize;

    use super::{KEY_BITS, PteCluster, SPARE, Width, entry, flags, frame};
    use crate::{Flags, pte};

    #[test]
    fn an_entry_gives_back_frame_and_flags_and_leaves_the_spare_bits_alone() {
        for size in PageSize::ALL {
            for bits in 0..=u8::MAX {
                let at = ((1 << 52) - 1) & !(size.bytes() - 1);
                let e = entry(at, Flags(bits), size);
                assert_eq!((frame(e), flags(e), e & SPARE), (at, Flags(bits), 0));
                assert_eq!(e & pte::HUGE != 0, size != PageSize::K4);
            }
        }
    }

    #[test]
    fn a_line_keeps_its_key_as_long_as_an_entry_is_valid() {
        let keys = [0, 1, (1 << KEY_BITS) - 1, 0x2a5_5a5a_1234, 0x3ff_ffff_0000];
        for key in keys {
            let mut line = PteCluster::with(key, 7, entry(7 << 12, Flags(0xff), PageSize::K4));
            for index in 0..7 {
                assert_eq!(PteCluster::get(&line, index), None);
                let e = entry((index as u64) << 12, Flags(index as u8), PageSize::K4);
                PteCluster::put(&mut line, index, e);
                PteCluster::put(&mut line, index, e);
                assert_eq!(PteCluster::valid(&line), 2 + index as u32);
            }
            for index in 0..8 {
                assert_eq!(PteCluster::key(&line), Some(key));
                assert!(
                    keys.iter()
                        .all(|&k| PteCluster::holds(&line, k) == (k == key))
                );
                let e = PteCluster::get(&line, index).expect("valid");
                assert_eq!(frame(e), (index as u64) << 12);
                PteCluster::take(&mut line, index);
                assert_eq!(PteCluster::get(&line, index), None);
            }
            assert_eq!(PteCluster::key(&line), None);
            assert!(!PteCluster::holds(&line, key));
        }
    }

    #[test]
    fn the_key_of_each_size_fits_and_leads_back() {
        let four = [0, 0x7fff_ffff_f000, 0xffff_8000_0000_0000, u64::MAX];
        let five = [1 << 47, (1 << 56) - 1, 0xff00_0000_0000_0000, u64::MAX];
        for (width, addresses) in [(Width(48), four), (Width(57), five)] {
            for size in PageSize::ALL {
                for va in addresses.map(|va| va & !(size.bytes() - 1)) {
                    assert!(width.canonical(va));
                    let (key, index) = width.place(va, size);
                    assert!(key >> KEY_BITS == 0);
                    assert_eq!(width.address(key, index, size), va);
                }
            }
        }
        assert!(!Width(48).canonical(1 << 47) && !Width(57).canonical(1 << 56));
    }
}
