//! The part of a translation that TLBs hold.

use pagewalk_units::{PageSize, PhysAddr, VirtAddr};

use crate::walk::Walked;

/// A page's frame, size and write permission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    /// Base of the frame of the whole page.
    pub frame: u64,
    /// Size of the page.
    pub size: PageSize,
    /// True if stores are permitted.
    pub writable: bool,
}

impl Mapping {
    /// The mapping that a walk found.
    #[inline]
    pub fn of(walked: &Walked) -> Self {
        Mapping {
            frame: walked.frame.base.0,
            size: walked.size,
            writable: walked.writable(),
        }
    }

    /// Physical address of `va`, an address in the page.
    #[inline]
    pub fn pa(&self, va: VirtAddr) -> PhysAddr {
        PhysAddr(self.frame + (va.0 & (self.size.bytes() - 1)))
    }
}
