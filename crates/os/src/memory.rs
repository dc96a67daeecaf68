//! Physical memory: who has which frame, and the state it was in at boot.

use std::collections::BTreeSet;

use pagewalk_tables::{FrameSource, NoFrames, Want};
use pagewalk_units::{Cycle, Frame, PageSize, PhysAddr, Rng, rng};
use rand::RngExt;

use crate::buddy::{Buddy, MAX_ORDER};
use crate::price::Prices;
use crate::share::Shares;
use crate::spec::{FragmentationSpec, OsSpec};

/// log2 of the 4 KB frames in a 2 MB block.
pub const HUGE_ORDER: u8 = 9;
/// log2 of the 4 KB frames in a 1 GB block.
pub const GIANT_ORDER: u8 = 18;

/// log2 of the frames in a page of `size`.
pub fn order(size: PageSize) -> u8 {
    size.shift() as u8 - 12
}

/// Requests of this size fail when fragmentation exceeds [`COMPACTION_INDEX`]
/// (ME-HPT, section III: 64 MB).
const COMPACTION_BYTES: u64 = 64 << 20;
const COMPACTION_INDEX: f64 = 0.7;

/// Physical memory.
#[derive(Clone, Debug)]
pub struct Memory {
    buddy: Buddy,
    shares: Shares,
    /// Movable frames that fragment memory.
    pins: BTreeSet<u64>,
    /// Unusable-free index at boot: what block allocations are priced by.
    index: f64,
    /// Share of 2 MB requests that are served, when it is set.
    served: Option<(f64, Rng)>,
    kernel_frames: u64,
    /// Bytes that page tables hold, now and at most, and the largest block that they asked for.
    pub table_bytes: u64,
    /// See `table_bytes`.
    pub table_peak: u64,
    /// See `table_bytes`.
    pub table_largest: u64,
    /// Contiguous requests for which frames had to move, and frames moved.
    pub compactions: u64,
    /// See `compactions`.
    pub compacted_frames: u64,
}

impl Memory {
    /// Memory as it is when the machine of `spec` has booted.
    pub fn new(spec: &OsSpec, seed: u64) -> Result<Self, String> {
        let frames = spec.memory_gb << 18;
        // Whole 2 MB blocks, so that the kernel's share fragments nothing.
        let kernel_blocks = ((frames >> 9) as f64 * spec.kernel_reserved).round() as u64;
        let first = kernel_blocks << 9;
        if first >= frames {
            return Err("os.kernel_reserved leaves no memory to programs".to_owned());
        }
        let mut buddy = Buddy::new(frames);
        buddy.free_range(first, frames);
        let blocks = (frames - first) >> 9;
        let (pinned, index, served) = match spec.fragmentation {
            FragmentationSpec::None => (0, 0.0, None),
            FragmentationSpec::Available2mb(a) => {
                let pinned = ((1.0 - a) * blocks as f64).round() as u64;
                let free = (blocks * 512 - pinned) as f64;
                (pinned, pinned as f64 * 511.0 / free, None)
            }
            FragmentationSpec::UnusableFreeIndex(f) => {
                // f = 511 p / (512 blocks - p)
                let pinned = (f * 512.0 * blocks as f64 / (511.0 + f)).round() as u64;
                (pinned.min(blocks), f, None)
            }
            FragmentationSpec::Served2mb(a) => {
                (0, 1.0 - a, Some((a, rng(seed, "os.fragmentation.served"))))
            }
        };
        let mut memory = Memory {
            buddy,
            shares: Shares::default(),
            pins: BTreeSet::new(),
            index,
            served,
            kernel_frames: first,
            table_bytes: 0,
            table_peak: 0,
            table_largest: 0,
            compactions: 0,
            compacted_frames: 0,
        };
        memory.pin(first, blocks, pinned, &mut rng(seed, "os.fragmentation"));
        Ok(memory)
    }

    /// Takes one frame in exactly `pinned` of the `blocks` 2 MB blocks from
    /// `first` on (selection sampling: Knuth, vol. 2, 3.4.2, algorithm S).
    fn pin(&mut self, first: u64, blocks: u64, pinned: u64, rng: &mut Rng) {
        let mut left = pinned;
        for block in 0..blocks {
            if left == 0 {
                break;
            }
            if rng.random_range(0..blocks - block) < left {
                left -= 1;
                let frame = first + block * 512 + rng.random_range(0..512);
                let taken = self.buddy.alloc_at(frame, 0);
                debug_assert!(taken);
                self.pins.insert(frame);
            }
        }
    }

    /// A frame for a 4 KB page.
    #[inline]
    pub fn alloc_page(&mut self) -> Option<u64> {
        self.buddy.alloc(0)
    }

    /// A block for a page of 2 MB or 1 GB or for a reservation, if there is one
    /// without moving anything.
    pub fn alloc_block(&mut self, order: u8) -> Option<u64> {
        if let Some((share, rng)) = &mut self.served
            && rng.random::<f64>() >= *share
        {
            return None;
        }
        self.buddy.alloc(order)
    }

    /// One owner less for the block of `order` at `frame`; frames without an
    /// owner are free again.
    #[inline]
    pub fn put(&mut self, frame: u64, order: u8) {
        if !self.shares.any(frame, order) {
            self.buddy.free(frame, order);
            return;
        }
        for f in frame..frame + (1 << order) {
            if self.shares.remove(f) {
                self.buddy.free(f, 0);
            }
        }
    }

    /// Gives back the frames `from..to`, which have one owner.
    pub fn put_range(&mut self, from: u64, to: u64) {
        self.buddy.free_range(from, to);
    }

    /// One owner more for the block of `order` at `frame`.
    pub fn share(&mut self, frame: u64, order: u8) {
        self.shares.add(frame, order);
    }

    /// Whether any frame of the block has several owners.
    pub fn is_shared(&self, frame: u64, order: u8) -> bool {
        self.shares.any(frame, order)
    }

    /// Free frames.
    pub fn free_frames(&self) -> u64 {
        self.buddy.free_frames()
    }
    /// The free lists.
    pub fn buddy(&self) -> &Buddy {
        &self.buddy
    }
    /// Frames that the kernel keeps and movable frames that fragment memory.
    pub fn set_aside_frames(&self) -> u64 {
        self.kernel_frames + self.pins.len() as u64
    }

    /// A contiguous block for a page table; movable frames make room for it.
    fn alloc_contiguous(&mut self, order: u8) -> Option<u64> {
        if let Some(frame) = self.buddy.alloc(order) {
            return Some(frame);
        }
        if order == 0 || order > MAX_ORDER {
            return None;
        }
        if self.index > COMPACTION_INDEX && 4096 << order >= COMPACTION_BYTES {
            return None;
        }
        self.compact(order)
    }

    /// Empties the lowest block of `order` that holds nothing but free and
    /// movable frames, and takes it.
    fn compact(&mut self, order: u8) -> Option<u64> {
        let size = 1u64 << order;
        for block in 0..self.buddy.frames() >> order {
            let (from, to) = (block << order, (block + 1) << order);
            let pins = self.pins.range(from..to).count() as u64;
            let free = self.buddy.free_in(from, order);
            if free + pins < size || self.buddy.free_frames() - free < pins {
                continue;
            }
            self.take_free(from, order);
            let inside: Vec<u64> = self.pins.range(from..to).copied().collect();
            for old in inside {
                let new = self.buddy.alloc(0)?;
                self.pins.remove(&old);
                self.pins.insert(new);
            }
            self.compactions += 1;
            self.compacted_frames += pins;
            return Some(from);
        }
        None
    }

    /// Takes every free frame of the block of `order` at `frame`.
    fn take_free(&mut self, frame: u64, order: u8) {
        if !self.buddy.alloc_at(frame, order) && order > 0 {
            self.take_free(frame, order - 1);
            self.take_free(frame + (1 << (order - 1)), order - 1);
        }
    }
}

/// Physical memory as page tables see it; adds up what their requests cost.
pub struct TableFrames<'a> {
    /// Where frames come from.
    pub memory: &'a mut Memory,
    /// What they cost.
    pub prices: &'a Prices,
    /// What they have cost so far.
    pub cycles: Cycle,
}

impl FrameSource<PhysAddr> for TableFrames<'_> {
    fn alloc(&mut self, want: Want) -> Result<Frame<PhysAddr>, NoFrames> {
        let bytes = want.bytes.next_power_of_two().max(4096);
        let order = (bytes >> 12).ilog2() as u8;
        let m = &mut *self.memory;
        let frame = m.alloc_contiguous(order).ok_or(NoFrames { bytes })?;
        m.table_bytes += bytes;
        m.table_peak = m.table_peak.max(m.table_bytes);
        m.table_largest = m.table_largest.max(bytes);
        self.cycles += self.prices.allocation(bytes, m.index);
        Ok(Frame {
            base: PhysAddr(frame << 12),
        })
    }

    fn free(&mut self, frame: Frame<PhysAddr>, bytes: u64) {
        let bytes = bytes.next_power_of_two().max(4096);
        self.memory.table_bytes -= bytes;
        let order = (bytes >> 12).ilog2() as u8;
        self.memory.buddy.free(frame.base.0 >> 12, order);
    }
}
