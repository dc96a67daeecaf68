//! What all address spaces share, and the one way to get a frame.

use pagewalk_stats::{Histogram, Tree};
use pagewalk_structures::Tiers;
use pagewalk_tables::{FrameSource, GuestUse, MapWork, NoFrames, Purpose, Want};
use pagewalk_units::{Addr, Cycle, Frame, VirtAddr};

use crate::Effects;
use crate::choice::FrameChoice;
use crate::memory::{Memory, PutToUse};
use crate::price::Prices;
use crate::stats::OsStats;

/// Classes of blocks that are counted apart.
pub const CLASSES: usize = 6;

/// The class of a block: up to 4 KB, 8 KB, 1 MB, 8 MB, 64 MB (the sizes whose
/// price was measured), and larger.
fn class(bytes: u64) -> usize {
    const UP_TO: [u64; CLASSES - 1] = [4 << 10, 8 << 10, 1 << 20, 8 << 20, 64 << 20];
    UP_TO.partition_point(|&most| most < bytes)
}

/// What page tables hold of memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableMemory {
    /// Bytes now.
    pub bytes: u64,
    /// Bytes at most.
    pub peak: u64,
    /// The largest block that one asked for and got.
    pub largest: u64,
    /// Blocks that they got, by [`class`].
    pub blocks: [u64; CLASSES],
}

/// What all address spaces share.
///
/// Memory is private: a frame leaves it through [`Kernel::frame`] only.
pub struct Kernel {
    memory: Memory,
    choice: Box<dyn FrameChoice>,
    /// What work costs.
    pub prices: Prices,
    /// What happened.
    pub stats: OsStats,
    /// What each page fault took.
    pub fault_cost: Histogram,
    /// What page tables hold.
    pub tables: TableMemory,
    /// Bytes set aside for tables of translations that the hardware keeps.
    pub rows_bytes: u64,
    /// The last page that a page table had no memory for.
    pub refused: VirtAddr,
    /// Somebody was refused a frame since this was cleared.
    pub denied: bool,
}

impl Kernel {
    /// The kernel of a machine with `memory`, from which `choice` takes frames.
    pub fn new(memory: Memory, choice: Box<dyn FrameChoice>, prices: Prices) -> Self {
        Kernel {
            memory,
            choice,
            prices,
            stats: OsStats::default(),
            fault_cost: Histogram::default(),
            tables: TableMemory::default(),
            rows_bytes: 0,
            refused: VirtAddr(0),
            denied: false,
        }
    }

    /// The same with another choice of frames.
    #[cfg(test)]
    pub fn choose_with(&mut self, choice: Box<dyn FrameChoice>) {
        self.choice = choice;
    }

    /// A block for `want`: its first frame. Every frame that is handed out comes
    /// from here; the caller owns it until it is [`Kernel::put`].
    #[inline]
    pub fn frame(&mut self, want: Want) -> Result<u64, NoFrames> {
        let bytes = want.bytes;
        let frame = self.choice.take(&want, &mut self.memory);
        self.denied |= frame.is_none();
        frame.ok_or(NoFrames { bytes })
    }

    /// See [`FrameChoice::tiers`].
    #[inline]
    pub fn tiers(&self) -> Option<&Tiers> {
        self.choice.tiers()
    }
    /// See [`FrameChoice::report`].
    pub fn report_choice(&self, path: &str, tree: &mut Tree) {
        self.choice.report(path, tree);
    }

    /// One owner less for the block of `order` at `frame`; frames without an
    /// owner are free again.
    #[inline]
    pub fn put(&mut self, frame: u64, order: u8) {
        self.memory.put(frame, order);
    }
    /// Gives back the frames `from..to`, which have one owner.
    pub fn put_range(&mut self, from: u64, to: u64) {
        self.memory.put_range(from, to);
    }
    /// One owner more for the block of `order` at `frame`.
    pub fn share(&mut self, frame: u64, order: u8) {
        self.memory.share(frame, order);
    }
    /// Whether any frame of the block has several owners.
    pub fn is_shared(&self, frame: u64, order: u8) -> bool {
        self.memory.is_shared(frame, order)
    }
    /// Frames are put to use, and a host has to back them.
    #[inline]
    pub fn used(&mut self, frame: u64, frames: u64, of: GuestUse) {
        self.memory.used(frame, frames, of);
    }
    /// See [`Memory::take_used`].
    pub fn take_used(&mut self) -> Vec<PutToUse> {
        self.memory.take_used()
    }
    /// See [`Memory::virtualise`].
    pub fn virtualise(&mut self) -> u64 {
        self.memory.virtualise()
    }
    /// Physical memory, to look at.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Charges what a change of a page table cost: `cycles` for the blocks that it
    /// was given, and what it moved, if it came about.
    #[inline]
    pub fn charge(&mut self, cycles: Cycle, work: Option<&MapWork>, fx: &mut Effects) {
        if cycles > 0 {
            fx.cycles += cycles;
            self.stats.table_allocation_cycles += cycles;
        }
        if let Some(work) = work
            && work.moved | work.kicks | work.lookups != 0
        {
            let moves = self.prices.moves(work);
            fx.cycles += moves;
            self.stats.table_move_cycles += moves;
            self.stats.table_entries_moved += u64::from(work.moved) + u64::from(work.kicks);
        }
    }
}

/// Physical memory as page tables see it; adds up what their requests cost.
pub struct TableFrames<'a> {
    kernel: &'a mut Kernel,
    /// What they have cost so far.
    pub cycles: Cycle,
}

impl<'a> TableFrames<'a> {
    /// The memory of `kernel`; nothing has been asked for yet.
    #[inline]
    pub fn new(kernel: &'a mut Kernel) -> Self {
        TableFrames { kernel, cycles: 0 }
    }
}

/// Bytes of the block that a request for `bytes` gets.
fn rounded(bytes: u64) -> u64 {
    bytes.next_power_of_two().max(4096)
}

impl<A: Addr> FrameSource<A> for TableFrames<'_> {
    fn alloc(&mut self, want: Want) -> Result<Frame<A>, NoFrames> {
        let want = Want {
            bytes: rounded(want.bytes),
            ..want
        };
        let k = &mut *self.kernel;
        let frame = k.frame(want)?;
        let asid = want.asid;
        let of = match want.purpose {
            Purpose::Node { level, vpn } => GuestUse::Node { asid, level, vpn },
            _ => GuestUse::Table { asid },
        };
        k.used(frame, 1 << want.order(), of);
        let t = &mut k.tables;
        t.bytes += want.bytes;
        t.peak = t.peak.max(t.bytes);
        t.largest = t.largest.max(want.bytes);
        t.blocks[class(want.bytes)] += 1;
        let index = k.memory.index_at(frame);
        self.cycles += k.prices.allocation(want.bytes, index);
        Ok(Frame {
            base: A::new(frame << 12),
        })
    }

    fn free(&mut self, frame: Frame<A>, bytes: u64) {
        let bytes = rounded(bytes);
        let k = &mut *self.kernel;
        k.tables.bytes -= bytes;
        let order = (bytes >> 12).ilog2() as u8;
        k.memory.free_block(frame.base.raw() >> 12, order);
    }
}
