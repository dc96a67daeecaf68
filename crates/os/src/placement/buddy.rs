//! 4 KB frames from the buddy allocator.

use pagewalk_tables::Refusal;
use pagewalk_units::PageSize;

use super::{Placement, small};
use crate::Effects;
use crate::kernel::Kernel;
use crate::space::Space;
use crate::touch::Touch;

/// Every page is a 4 KB page.
pub struct FourKb;

impl Placement for FourKb {
    fn place(
        &mut self,
        touch: &Touch,
        space: &mut Space,
        k: &mut Kernel,
        fx: &mut Effects,
    ) -> Result<PageSize, Refusal> {
        small(touch, space, k, fx)
    }
}
