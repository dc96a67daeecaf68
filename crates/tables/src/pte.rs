//! The layout of an x86-64 page-table entry (Intel SDM vol. 3, 4.5): present,
//! writable and page-size bits, and the frame in bits 12..52. The remaining
//! [`Flags`] lie in bits 52..59, which hardware ignores.

use crate::Flags;

/// The entry is present.
pub(crate) const PRESENT: u64 = 1;
/// Stores are allowed.
pub(crate) const WRITABLE: u64 = 1 << 1;
/// The entry maps a 2 MB or 1 GB page; clear in an entry that points to a node.
pub(crate) const HUGE: u64 = 1 << 7;
const FRAME: u64 = ((1 << 52) - 1) & !0xfff;
const SOFTWARE_SHIFT: u32 = 52;

/// A leaf entry. `huge` is set above level 1.
#[inline]
pub(crate) fn leaf(frame: u64, flags: Flags, huge: bool) -> u64 {
    let software = u64::from(flags.0 >> 1) << SOFTWARE_SHIFT;
    let huge = if huge { HUGE } else { 0 };
    frame | software | u64::from(flags.0 & 1) << 1 | huge | PRESENT
}
/// An entry that points to a node.
#[inline]
pub(crate) fn node(frame: u64) -> u64 {
    frame | WRITABLE | PRESENT
}
/// The frame of the page or node.
#[inline]
pub(crate) fn frame(e: u64) -> u64 {
    e & FRAME
}
/// The flags of a leaf entry.
#[inline]
pub(crate) fn flags(e: u64) -> Flags {
    Flags((e >> 1 & 1) as u8 | ((e >> SOFTWARE_SHIFT) as u8 & 0x7f) << 1)
}
