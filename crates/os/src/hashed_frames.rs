//! The placement by hash since boot, for a file of recorded placements.

use pagewalk_structures::{HashKey, TierFunction};
use pagewalk_tables::{Purpose, Want};
use pagewalk_units::Asid;
use rustc_hash::FxHashSet;
use schemars::JsonSchema;
use serde::Serialize;

use crate::Os;
use crate::memory::HUGE_ORDER;

/// Placement by hash since boot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct HashedFrames {
    /// First frame of the range that the hash selects from.
    pub first_frame: u64,
    /// Number of frames in this range.
    pub frames: u64,
    /// Number of tiers.
    pub tiers: usize,
    /// The value from which the seeds are generated. None if the tiers do not use them in order, or another
    /// function than `murmur`.
    pub seed: Option<u64>,
    /// Address spaces, in the order of their first processes.
    pub asids: Vec<u16>,
    /// Pages and last-level page tables at their first placement, in order of time.
    pub placed: Vec<PlacedFrame>,
}

/// Content of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FrameContent {
    /// A 4 KB page of a program.
    Page,
    /// A last-level page table.
    Table,
    /// A 2 MB page, or a block that is reserved for one.
    Huge,
}

/// A frame and its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct PlacedFrame {
    /// Content of the frame.
    pub content: FrameContent,
    /// The address space.
    pub asid: u16,
    /// Virtual page number; of a page table or a 2 MB page, that of its first 4 KB.
    pub vpn: u64,
    /// The frame; of a 2 MB page, the first one.
    pub frame: u64,
    /// The first tier that selects it, from 1 on; 0 if none does.
    pub tier: u8,
}

impl FrameContent {
    /// The content for which `want` asks, with its virtual page number. `None` for other parts of page tables and
    /// other blocks.
    pub(crate) fn of(want: &Want) -> Option<(Self, u64)> {
        match want.purpose {
            Purpose::Anonymous { vpn }
            | Purpose::File { vpn }
            | Purpose::Shared { vpn }
            | Purpose::Copy { vpn }
                if want.order() == 0 =>
            {
                Some((FrameContent::Page, vpn))
            }
            Purpose::Anonymous { vpn } | Purpose::Reservation { vpn }
                if want.order() == HUGE_ORDER =>
            {
                Some((FrameContent::Huge, vpn))
            }
            Purpose::Node { level: 1, vpn } => Some((FrameContent::Table, vpn)),
            _ => None,
        }
    }

    /// The hash key of this content at page `vpn`. That of a 2 MB page selects blocks.
    pub(crate) fn key(self, asid: Asid, vpn: u64) -> HashKey {
        match self {
            FrameContent::Page => HashKey::page(asid, vpn),
            FrameContent::Table | FrameContent::Huge => HashKey::table(asid, vpn),
        }
    }
}

impl Os {
    /// Logs the placement of pages from now on, if the kernel places them by hash ([`Os::hashed_frames`]). In a guest
    /// nothing is logged.
    pub fn log_hashed_frames(&mut self) {
        if self.kernel.tiers().is_some() {
            self.kernel.log = Some(Vec::new());
        }
    }

    /// The logged placement by hash; `None` if nothing is logged.
    pub fn hashed_frames(&self) -> Option<HashedFrames> {
        let (tiers, log) = (self.kernel.tiers()?, self.kernel.log.as_ref()?);
        let hash = &tiers.hash;
        let blocks = tiers.large.as_ref().map(|large| &large.hash);
        let range = hash.range();
        let (mut placed, mut seen) = (Vec::new(), FxHashSet::default());
        for &(want, frame) in log {
            let Some((content, vpn)) = FrameContent::of(&want) else {
                continue;
            };
            let region = (FrameContent::Huge, want.asid, vpn >> HUGE_ORDER);
            let is_new = match content {
                FrameContent::Page => {
                    let in_huge = seen.contains(&region);
                    // A 2 MB page at the same place comes too late.
                    if blocks.is_some() {
                        seen.insert(region);
                    }
                    seen.insert((content, want.asid, vpn)) && !in_huge
                }
                FrameContent::Table => seen.insert((content, want.asid, vpn >> HUGE_ORDER)),
                FrameContent::Huge => seen.insert(region),
            };
            if is_new {
                let key = content.key(want.asid, vpn);
                let tier = match content {
                    FrameContent::Page | FrameContent::Table => hash.tier_of(frame, key),
                    FrameContent::Huge => blocks.map_or(0, |b| b.tier_of(frame >> HUGE_ORDER, key)),
                };
                placed.push(PlacedFrame {
                    content,
                    asid: want.asid.0,
                    vpn,
                    frame,
                    tier,
                });
            }
        }
        Some(HashedFrames {
            first_frame: range.start,
            frames: range.end - range.start,
            tiers: hash.tiers(),
            seed: (hash.function() == TierFunction::Murmur)
                .then(|| hash.seed_in_order())
                .flatten(),
            asids: self.asids.clone(),
            placed,
        })
    }
}
