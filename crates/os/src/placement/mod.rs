//! Placement policies: which frame and which page size a first touch gets.

mod buddy;
pub mod registry;
mod reservation;
mod thp;
mod tiered_hash;

pub use self::registry::*;
pub use self::thp::ThpMode;
pub use self::tiered_hash::{HashOf, HashedTables};

use pagewalk_tables::{PageTableSpec, Refusal};
use pagewalk_units::{PageSize, VirtAddr};

use crate::Effects;
use crate::choice::{AsItComes, FrameChoice};
use crate::kernel::Kernel;
use crate::memory::Memory;
use crate::space::Space;
use crate::table::Role;
use crate::touch::Touch;

/// What a policy sees of the machine when it has booted.
pub struct Booted<'a> {
    /// Whose kernel it is: where random streams are named after.
    pub role: Role,
    /// Its page tables.
    pub page_table: &'a PageTableSpec,
    /// Its physical memory.
    pub memory: &'a Memory,
    /// What random choices come from.
    pub seed: u64,
}

/// A policy. It says of what size the pages are; the frames are those of its
/// [`Placement::choice`], asked by [`Kernel::frame`] for whatever is handed out.
pub trait Placement: Send + Sync {
    /// Backs the unmapped page at `touch.at`: finds a frame, maps it, and says
    /// what size the page became. Nothing has changed when it fails.
    fn place(
        &mut self,
        touch: &Touch<'_>,
        space: &mut Space,
        k: &mut Kernel,
        fx: &mut Effects,
    ) -> Result<PageSize, Refusal>;

    /// Which frames pages, page tables and all else get.
    fn choice(&self, _booted: &Booted<'_>) -> Box<dyn FrameChoice> {
        Box::new(AsItComes)
    }

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

/// Maps the 4 KB page of `touch` to the next free frame.
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
