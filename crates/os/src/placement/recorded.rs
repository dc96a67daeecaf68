//! Placement as a kernel has recorded it, so that hardware is simulated on the frames that a real kernel gave.

use std::sync::Arc;

use pagewalk_stats::Tree;
use pagewalk_structures::{Large, Placed, Tiers};
use pagewalk_tables::{PageTableSpec, Refusal, Want};
use pagewalk_units::{Error, PageSize};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::frames_file::{RecordedFrame, RecordedFrames, read};
use super::registry::PolicySpec;
use super::tiered_hash::{FallbackStats, TierStats};
use super::{Booted, Placement, large, small};
use crate::Effects;
use crate::choice::FrameChoice;
use crate::hashed_frames::FrameContent;
use crate::kernel::Kernel;
use crate::memory::{HUGE_ORDER, Memory};
use crate::space::Space;
use crate::touch::Touch;

/// Frames from a file of recorded placements. Each page, 2 MB page and last-level page table takes exactly the frame
/// that the file names for it. If the file names none, or the frame is in use, the buddy allocator places it. The first
/// process has the first address space of the file, the second process the second one, and so on. Engines guess by
/// the hash of the file's first line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordedSpec {
    /// Path of the file, absolute or relative to the working directory. `linux/README.md` defines the format.
    pub file: String,
}

impl PolicySpec for RecordedSpec {
    fn check(&self) -> Result<(), Error> {
        if self.file.is_empty() {
            return Err(Error::key("file", "is empty; expected the path of a file"));
        }
        Ok(())
    }
    fn build(&self, frames: u64) -> Result<Box<dyn Placement>, Error> {
        Ok(Box::new(Recorded(Arc::new(read(&self.file, frames)?))))
    }
}

/// Maps a 2 MB page where the file names one, and 4 KB pages elsewhere.
struct Recorded(Arc<RecordedFrames>);

impl Recorded {
    /// True if the file names a 2 MB page around `touch`, and it may be mapped.
    fn has_huge(&self, touch: &Touch<'_>, space: &Space) -> bool {
        let first = touch.at >> 21 << HUGE_ORDER;
        !self.0.huge.is_empty()
            && touch.may_be_large()
            && touch.covers(PageSize::M2)
            && space.regions.get(touch.at >> 21).is_none()
            && self.0.huge.contains_key(&(space.asid.0, first))
    }
}

impl Placement for Recorded {
    fn place(
        &mut self,
        touch: &Touch<'_>,
        space: &mut Space,
        k: &mut Kernel,
        fx: &mut Effects,
    ) -> Result<PageSize, Refusal> {
        if self.has_huge(touch, space) {
            if large(touch, PageSize::M2, space, k, fx) {
                return Ok(PageSize::M2);
            }
            k.stats.huge_fallbacks += 1;
        }
        small(touch, space, k, fx)
    }

    /// A read of a recorded 2 MB page maps it.
    fn zero_page(&self, touch: &Touch<'_>, space: &Space) -> Option<PageSize> {
        (!self.has_huge(touch, space)).then_some(PageSize::K4)
    }

    fn choice(&self, booted: &Booted<'_>) -> Box<dyn FrameChoice> {
        let frames = Arc::clone(&self.0);
        let has_leaves = matches!(booted.page_table, PageTableSpec::Radix(_));
        let hashes_tables = has_leaves && !frames.tables.is_empty();
        let hash = frames.hash.clone();
        let tiers = hash.tiers();
        let blocks = frames.blocks.clone().filter(|_| !frames.huge.is_empty());
        Box::new(AsRecorded {
            tiers: Tiers {
                large: blocks.map(|hash| Large {
                    hash,
                    placed: Placed::default(),
                    anywhere: 0,
                }),
                ..Tiers::new(hash, if hashes_tables { tiers } else { 0 })
            },
            frames,
            stats: RecordedStats::default(),
        })
    }

    fn asids(&self) -> &[u16] {
        &self.0.asids
    }
}

pagewalk_stats::counters! {
    /// Counters of placement by a file.
    pub struct RecordedStats {
        pages_as_recorded: "pages", "Pages of programs placed in the frame that the file of placements names";
        pages_missing: "pages", "Pages of programs that the file of placements does not name; the buddy allocator places them";
        pages_taken: "pages", "Pages of programs whose recorded frame is in use; the buddy allocator places them";
        tables_as_recorded: "frames", "Last-level frames of page tables placed in the frame that the file of placements names";
        tables_missing: "frames", "Last-level frames of page tables that the file of placements does not name; the buddy allocator places them";
        tables_taken: "frames", "Last-level frames of page tables whose recorded frame is in use; the buddy allocator places them";
        huge_as_recorded: "pages", "2 MB pages placed in the block that the file of placements names";
        huge_taken: "pages", "2 MB pages whose recorded block is in use; 4 KB pages take their place";
    }
}

/// Takes the frame that the file names, or one from the buddy allocator.
struct AsRecorded {
    frames: Arc<RecordedFrames>,
    /// The hash of the file, and counts of the placements by tier.
    tiers: Tiers,
    stats: RecordedStats,
}

/// Adds an outcome: the frame of tier `tier` from 1 on, or a fallback.
fn count(placed: &mut Placed, tier: u8) {
    match tier {
        0 => placed.fallbacks += 1,
        _ => placed.hits[usize::from(tier) - 1] += 1,
    }
}

impl FrameChoice for AsRecorded {
    fn take(&mut self, want: &Want, memory: &mut Memory) -> Option<u64> {
        let s = &mut self.stats;
        let asid = want.asid.0;
        let Some((content, vpn)) = FrameContent::of(want) else {
            return memory.take(want);
        };
        let (found, placed, as_recorded, missing, taken) = match content {
            FrameContent::Page => (
                self.frames.pages.get(&(asid, vpn)),
                &mut self.tiers.data,
                &mut s.pages_as_recorded,
                &mut s.pages_missing,
                &mut s.pages_taken,
            ),
            FrameContent::Table => (
                self.frames.tables.get(&(asid, vpn)),
                &mut self.tiers.tables,
                &mut s.tables_as_recorded,
                &mut s.tables_missing,
                &mut s.tables_taken,
            ),
            FrameContent::Huge => {
                let Some(&RecordedFrame { frame, tier }) = self.frames.huge.get(&(asid, vpn))
                else {
                    return memory.take(want);
                };
                let fits = memory.alloc_at(frame, HUGE_ORDER);
                s.huge_as_recorded += u64::from(fits);
                s.huge_taken += u64::from(!fits);
                if let Some(Large {
                    placed, anywhere, ..
                }) = &mut self.tiers.large
                {
                    count(placed, if fits { tier } else { 0 });
                    *anywhere += u64::from(fits && tier == 0);
                }
                return fits.then_some(frame);
            }
        };
        let Some(&RecordedFrame { frame, tier }) = found else {
            *missing += 1;
            count(placed, 0);
            return memory.take(want);
        };
        if !memory.alloc_at(frame, 0) {
            *taken += 1;
            count(placed, 0);
            return memory.take(want);
        }
        *as_recorded += 1;
        count(placed, tier);
        Some(frame)
    }

    fn tiers(&self) -> Option<&Tiers> {
        Some(&self.tiers)
    }

    /// Counters by tier have the path of `placement.tiered_hash`, whose hash it is. The model of expected counts does
    /// not apply, because the recording kernel had other frames in use.
    fn report(&self, path: &str, tree: &mut Tree) {
        tree.add(&format!("{path}.recorded"), &self.stats);
        let Tiers {
            hash,
            table_tiers,
            data,
            tables,
            large,
            ..
        } = &self.tiers;
        let none = Placed::default();
        let blocks = large.as_ref().map_or(&none, |large| &large.placed);
        let path = format!("{path}.tiered_hash");
        let kept = |name: &str| {
            !name.ends_with("_expected")
                && (large.is_some() || !name.starts_with("large_"))
                && (*table_tiers > 0 || !name.starts_with("table_"))
        };
        let counts = [data, tables, blocks];
        tree.add_some(&path, &FallbackStats::of(counts), kept);
        for tier in 0..hash.tiers() {
            let path = format!("{path}.{}", tier + 1);
            tree.add_some(&path, &TierStats::of(tier, counts), kept);
        }
    }
}
