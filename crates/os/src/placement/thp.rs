//! Transparent huge pages as in Linux, with `defrag` off at page faults. Regions
//! that get no huge page at their first touch are left to khugepaged.

use pagewalk_tables::Refusal;
use pagewalk_units::{Error, PageSize};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::registry::PolicySpec;
use super::thp_sizes::ThpSizes;
use super::{Placement, large, small};
use crate::Effects;
use crate::kernel::Kernel;
use crate::khugepaged::KhugepagedSpec;
use crate::space::Space;
use crate::touch::Touch;

/// Linux-style transparent huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThpSpec {
    /// Mappings that may have huge pages. Default `always` (our choice).
    #[serde(default)]
    pub mode: ThpMode,
    /// Try 1 GB pages first, where the mapping covers an aligned 1 GB (as with
    /// hugetlbfs). Default false.
    #[serde(default)]
    pub giant: bool,
    /// Blocks below 2 MB that one page fault maps, by 4 KB pages. A fault takes the largest enabled
    /// size that fits in its mapping and has no page yet. Default: none.
    #[serde(default, skip_serializing_if = "ThpSizes::are_off")]
    pub sizes: ThpSizes,
    /// The kernel thread that collapses small pages into 2 MB pages. Like
    /// Linux's, it makes no 1 GB pages.
    #[serde(default)]
    pub khugepaged: KhugepagedSpec,
}

/// `/sys/kernel/mm/transparent_hugepage/enabled`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThpMode {
    /// All mappings except those with `madvise(MADV_NOHUGEPAGE)`.
    #[default]
    Always,
    /// Only mappings with `madvise(MADV_HUGEPAGE)`.
    Madvise,
    /// None.
    Never,
}

impl PolicySpec for ThpSpec {
    fn check(&self) -> Result<(), Error> {
        self.khugepaged.check()
    }
    fn build(&self, _frames: u64) -> Result<Box<dyn Placement>, Error> {
        Ok(Box::new(Thp(*self)))
    }
    fn thp(&self) -> Option<(ThpMode, ThpSizes)> {
        Some((self.mode, self.sizes))
    }
    fn khugepaged(&self) -> Option<(KhugepagedSpec, ThpMode)> {
        let spec = self.khugepaged;
        spec.enabled.then_some((spec, self.mode))
    }
}

impl ThpMode {
    /// True if an area with this `madvise` advice may have huge pages.
    pub(crate) fn allows(self, advice: Option<bool>) -> bool {
        match self {
            ThpMode::Always => advice != Some(false),
            ThpMode::Madvise => advice == Some(true),
            ThpMode::Never => false,
        }
    }
}

/// Maps a huge page at the first touch of a region, if memory has a block for it.
struct Thp(ThpSpec);

impl Thp {
    /// True if the region of `touch` may have a large page. A region with a mapped 4 KB page keeps 4 KB pages.
    fn may_have(&self, touch: &Touch<'_>, space: &Space) -> bool {
        self.0.mode.allows(touch.huge)
            && touch.may_be_large()
            && space.regions.get(touch.at >> 21).is_none()
    }
}

impl Placement for Thp {
    /// In each mode, except for MADV_NOHUGEPAGE (madvise(2)).
    fn may_collapse(&self, advice: Option<bool>) -> bool {
        advice != Some(false)
    }

    /// The huge zero page, where a write would map a huge page (Linux's `use_zero_page`, on by default).
    fn zero_page(&self, touch: &Touch<'_>, space: &Space) -> Option<PageSize> {
        if self.may_have(touch, space) && touch.covers(PageSize::M2) {
            Some(PageSize::M2)
        } else {
            Some(PageSize::K4)
        }
    }

    fn place(
        &mut self,
        touch: &Touch<'_>,
        space: &mut Space,
        k: &mut Kernel,
        fx: &mut Effects,
    ) -> Result<PageSize, Refusal> {
        let key = touch.at >> 21;
        let mut refused = false;
        if self.may_have(touch, space) {
            if self.0.giant && touch.covers(PageSize::G1) && !space.regions.any_in_giant(key) {
                if large(touch, PageSize::G1, space, k, fx) {
                    return Ok(PageSize::G1);
                }
                k.stats.giant_fallbacks += 1;
            }
            if touch.covers(PageSize::M2) {
                if large(touch, PageSize::M2, space, k, fx) {
                    return Ok(PageSize::M2);
                }
                k.stats.huge_fallbacks += 1;
                refused = true;
            }
        }
        let sized = self.0.sizes.map(self.0.mode, touch, space, k, fx);
        let size = if sized {
            PageSize::K4
        } else {
            small(touch, space, k, fx)?
        };
        if refused && let Some(region) = space.regions.get_mut(key) {
            region.refused = true;
        }
        Ok(size)
    }
}
