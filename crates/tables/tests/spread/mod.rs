//! Single pages that share no line, mapped one by one.

use pagewalk_tables::{Flags, MapWork};
use pagewalk_units::{Frame, PageSize, PhysAddr, VirtAddr};

use crate::common::{Table, TestFrames};

/// The page in line `i` of lines that lie far apart.
pub fn lone(i: u64) -> VirtAddr {
    VirtAddr(i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17 & !0x7fff)
}

/// Maps the page of `size` around `va` to the frame with its own number.
pub fn map(table: &mut Table, source: &mut TestFrames, va: VirtAddr, size: PageSize) -> MapWork {
    let page = va.page(size);
    let frame = Frame {
        base: PhysAddr(page.base.0),
    };
    table
        .map(page, frame, Flags::WRITABLE, source)
        .expect("memory is plenty")
}
