//! Placement policies: the frame and page size of a first touch.

mod buddy;
mod eager;
mod frames_file;
mod recorded;
pub mod registry;
mod reservation;
mod thp;
mod thp_sizes;
mod tiered_hash;

pub use self::eager::EagerStats;
pub use self::recorded::RecordedStats;
pub use self::registry::*;
pub use self::thp::ThpMode;
pub use self::thp_sizes::{SizeMode, ThpSizeStats, ThpSizes};
pub use self::tiered_hash::{HashOf, HashedTables};

use pagewalk_stats::Tree;
use pagewalk_tables::{PageTableSpec, Refusal};
use pagewalk_units::{PageSize, VirtAddr};

use crate::Effects;
use crate::choice::{AsItComes, FrameChoice};
use crate::kernel::Kernel;
use crate::memory::{Memory, order};
use crate::space::Space;
use crate::table::Role;
use crate::touch::Touch;

/// The machine's state at boot, as placement policies see it.
pub struct Booted<'a> {
    /// The kernel, which names the random streams.
    pub role: Role,
    /// The kind of its page tables.
    pub page_table: &'a PageTableSpec,
    /// Its physical memory.
    pub memory: &'a Memory,
    /// Seed of random choices.
    pub seed: u64,
}

/// A placement policy. It decides the page size. [`Placement::choice`] decides
/// the frames of all allocations, which go through [`Kernel::frame`].
pub trait Placement: Send + Sync {
    /// Backs the unmapped page at `touch.at`: allocates a frame, maps it, and
    /// returns the page size. Changes nothing on failure.
    fn place(
        &mut self,
        touch: &Touch<'_>,
        space: &mut Space,
        k: &mut Kernel,
        fx: &mut Effects,
    ) -> Result<PageSize, Refusal>;

    /// Size of the shared zero page that a read of the untouched page at `touch.at` maps. `None`: the policy gives reads
    /// pages of their own.
    fn zero_page(&self, _touch: &Touch<'_>, _space: &Space) -> Option<PageSize> {
        Some(PageSize::K4)
    }

    /// True if `madvise(MADV_COLLAPSE)` makes huge pages in an area with this advice.
    fn may_collapse(&self, _advice: Option<bool>) -> bool {
        false
    }

    /// The frame choice for pages, page tables and all other allocations.
    fn choice(&self, _booted: &Booted<'_>) -> Box<dyn FrameChoice> {
        Box::new(AsItComes)
    }

    /// Backs the area of `area`, whose memory a call has allocated. The default leaves it to page faults.
    fn allocate(
        &mut self,
        _area: &Touch<'_>,
        _space: &mut Space,
        _k: &mut Kernel,
        _fx: &mut Effects,
    ) {
    }

    /// Address-space identifiers of the first processes, in the order of their creation. Later processes get others.
    fn asids(&self) -> &[u16] {
        &[]
    }

    /// Adds the policy's own counters below `path`.
    fn report(&self, _path: &str, _tree: &mut Tree) {}

    /// Frees frames that the policy has reserved. Returns false if there are
    /// none.
    fn reclaim(
        &mut self,
        _spaces: &mut [Option<Box<Space>>],
        _k: &mut Kernel,
        _fx: &mut Effects,
    ) -> bool {
        false
    }
}

/// Maps the 4 KB page of `touch` to a newly allocated frame.
fn small(
    touch: &Touch<'_>,
    space: &mut Space,
    k: &mut Kernel,
    fx: &mut Effects,
) -> Result<PageSize, Refusal> {
    let frame = k.frame(space.want(PageSize::K4, touch.purpose(PageSize::K4)))?;
    let page = VirtAddr(touch.at).page(PageSize::K4);
    match space.map_page(k, page, frame, touch.flags, fx) {
        Ok(()) => Ok(PageSize::K4),
        Err(refusal) => {
            k.put(frame, 0);
            Err(refusal)
        }
    }
}

/// Maps the page of `size` around `touch` to a newly allocated block. Returns false, and changes nothing, if there is
/// none.
fn large(
    touch: &Touch<'_>,
    size: PageSize,
    space: &mut Space,
    k: &mut Kernel,
    fx: &mut Effects,
) -> bool {
    let page = VirtAddr(touch.at).page(size);
    let Ok(frame) = k.frame(space.want(size, touch.purpose(size))) else {
        return false;
    };
    let mapped = space.map_page(k, page, frame, touch.flags, fx).is_ok();
    if !mapped {
        k.put(frame, order(size));
    }
    mapped
}
