//! What TLBs keep of a translation.

use pagewalk_units::{PageSize, PhysAddr, VirtAddr};

use crate::walk::Walked;

/// A page and its frame, as a TLB takes it in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    /// Base of the whole page's frame.
    pub frame: u64,
    pub size: PageSize,
    pub writable: bool,
}

impl Mapping {
    /// That part of what a walk found.
    #[inline]
    pub fn of(walked: &Walked) -> Self {
        Mapping {
            frame: walked.frame.base.0,
            size: walked.size,
            writable: walked.writable(),
        }
    }

    /// Where `va`, an address of the page, lies.
    #[inline]
    pub fn pa(&self, va: VirtAddr) -> PhysAddr {
        PhysAddr(self.frame + (va.0 & (self.size.bytes() - 1)))
    }
}
