//! 4 KB frames from the buddy allocator.

use pagewalk_tables::Refusal;
use pagewalk_units::{Error, PageSize};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::registry::PolicySpec;
use super::{Placement, small};
use crate::Effects;
use crate::kernel::Kernel;
use crate::space::Space;
use crate::touch::Touch;

/// 4 KB frames from the buddy allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BuddySpec {}

impl PolicySpec for BuddySpec {
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
    fn build(&self, _frames: u64) -> Result<Box<dyn Placement>, Error> {
        Ok(Box::new(FourKb))
    }
}

/// Every page is a 4 KB page.
struct FourKb;

impl Placement for FourKb {
    fn place(
        &mut self,
        touch: &Touch<'_>,
        space: &mut Space,
        k: &mut Kernel,
        fx: &mut Effects,
    ) -> Result<PageSize, Refusal> {
        small(touch, space, k, fx)
    }
}
