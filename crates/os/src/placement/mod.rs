//! Placement policies: which frame and which page size a first touch gets.

mod buddy;
mod reservation;
mod thp;

use pagewalk_tables::{Flags, NoFrames, Refusal};
use pagewalk_units::{Backing, PageSize, VirtAddr};

use crate::Effects;
use crate::space::{Kernel, Space};
use crate::spec::PlacementSpec;

/// A first touch.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    /// Where.
    pub at: u64,
    /// First address of the area.
    pub start: u64,
    /// Address after the area's last.
    pub end: u64,
    /// Flags of the page to be.
    pub flags: Flags,
    /// What lies behind the area.
    pub backing: Backing,
    /// What `madvise` said of huge pages.
    pub huge: Option<bool>,
}

impl Touch {
    /// Whether the area covers the aligned block of a page of `size` around the address.
    fn covers(&self, size: PageSize) -> bool {
        let base = self.at & !(size.bytes() - 1);
        self.start <= base && self.end - base >= size.bytes()
    }
    /// Whether a large page may serve it at all: anonymous, and not forbidden.
    fn may_be_large(&self) -> bool {
        self.backing == Backing::Anonymous && self.huge != Some(false)
    }
}

/// A policy.
pub trait Placement: Send + Sync {
    /// Backs the unmapped page at `touch.at`: finds a frame, maps it, and says
    /// what size the page became. Nothing has changed when it fails.
    fn place(
        &mut self,
        touch: &Touch,
        space: &mut Space,
        k: &mut Kernel,
        fx: &mut Effects,
    ) -> Result<PageSize, Refusal>;

    /// Gives frames back that it keeps for later; false if there are none.
    fn reclaim(
        &mut self,
        _spaces: &mut [Option<Box<Space>>],
        _k: &mut Kernel,
        _fx: &mut Effects,
    ) -> bool {
        false
    }
}

/// The policy of `spec`.
pub fn build(spec: &PlacementSpec) -> Box<dyn Placement> {
    match *spec {
        PlacementSpec::Buddy {} => Box::new(buddy::FourKb),
        PlacementSpec::Thp { mode, giant } => Box::new(thp::Thp { mode, giant }),
        PlacementSpec::Reservation {
            promotion_threshold,
        } => Box::new(reservation::Reservation::new(promotion_threshold)),
    }
}

/// Maps the 4 KB page of `touch` to the next free frame.
fn small(
    touch: &Touch,
    space: &mut Space,
    k: &mut Kernel,
    fx: &mut Effects,
) -> Result<PageSize, Refusal> {
    let frame = k.memory.alloc_page().ok_or(NoFrames { bytes: 4096 })?;
    let page = VirtAddr(touch.at).page(PageSize::K4);
    match space.map_page(k, page, frame, touch.flags, fx) {
        Ok(()) => Ok(PageSize::K4),
        Err(refusal) => {
            k.memory.put(frame, 0);
            Err(refusal)
        }
    }
}
