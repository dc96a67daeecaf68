//! State shared by all address spaces, and the single point of frame allocation.

use pagewalk_stats::{Histogram, Tree};
use pagewalk_structures::Tiers;
use pagewalk_tables::{FrameSource, GuestUse, MapWork, NoFrames, Purpose, Want};
use pagewalk_units::{Addr, Cycle, Frame, VirtAddr};

use crate::Effects;
use crate::choice::FrameChoice;
use crate::hugetlb::Pools;
use crate::memory::{HUGE_ORDER, Memory, PutToUse};
use crate::placement::ThpSizeStats;
use crate::price::Prices;
use crate::stats::OsStats;

/// Size classes of blocks with separate counters.
pub const CLASSES: usize = 6;

/// The size class of a block: up to 4 KB, 8 KB, 1 MB, 8 MB, 64 MB (the sizes with
/// measured prices), and larger.
fn class(bytes: u64) -> usize {
    const UP_TO: [u64; CLASSES - 1] = [4 << 10, 8 << 10, 1 << 20, 8 << 20, 64 << 20];
    UP_TO.partition_point(|&most| most < bytes)
}

/// Memory use of page tables.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableMemory {
    /// Current bytes.
    pub bytes: u64,
    /// Peak bytes.
    pub peak: u64,
    /// Largest block allocated.
    pub largest: u64,
    /// Number of allocated blocks, by [`class`].
    pub blocks: [u64; CLASSES],
}

/// State shared by all address spaces.
///
/// Memory is private: all frames are allocated by [`Kernel::frame`].
pub struct Kernel {
    memory: Memory,
    choice: Box<dyn FrameChoice>,
    /// Prices of kernel work.
    pub prices: Prices,
    /// Event counters.
    pub stats: OsStats,
    /// Page faults with blocks below 2 MB.
    pub thp_sizes: ThpSizeStats,
    /// Cost of each page fault.
    pub fault_cost: Histogram,
    /// Memory use of page tables.
    pub tables: TableMemory,
    /// Bytes reserved for translation tables that the hardware maintains.
    pub rows_bytes: u64,
    /// The last page whose mapping failed because its page table got no memory.
    pub refused: VirtAddr,
    /// True if a frame allocation has failed since the flag was cleared.
    pub denied: bool,
    /// First frames of the shared zero page and of the huge one, once they are in use.
    zeros: [Option<u64>; 2],
    /// Pools of huge pages.
    pub pools: Pools,
    /// Allocated blocks in order of time, with their requests; `None` unless they are logged.
    pub log: Option<Vec<(Want, u64)>>,
}

impl Kernel {
    /// The kernel of a machine with `memory`. `choice` selects the frames.
    pub fn new(memory: Memory, choice: Box<dyn FrameChoice>, prices: Prices) -> Self {
        Kernel {
            memory,
            choice,
            prices,
            stats: OsStats::default(),
            thp_sizes: ThpSizeStats::default(),
            fault_cost: Histogram::default(),
            tables: TableMemory::default(),
            rows_bytes: 0,
            refused: VirtAddr(0),
            denied: false,
            zeros: [None; 2],
            pools: Pools::default(),
            log: None,
        }
    }

    /// Replaces the frame choice.
    #[cfg(test)]
    pub fn choose_with(&mut self, choice: Box<dyn FrameChoice>) {
        self.choice = choice;
    }

    /// Allocates a block for `want` and returns its first frame. Every frame is
    /// allocated here. The caller owns it until [`Kernel::put`].
    #[inline]
    pub fn frame(&mut self, want: Want) -> Result<u64, NoFrames> {
        let bytes = want.bytes;
        let frame = self.choice.take(&want, &mut self.memory);
        self.denied |= frame.is_none();
        if let (Some(log), Some(frame)) = (&mut self.log, frame) {
            log.push((want, frame));
        }
        frame.ok_or(NoFrames { bytes })
    }

    /// First frame of the shared zero page of `want`'s size, 4 KB or 2 MB, allocated at its first use and kept.
    pub fn zero_page(&mut self, want: Want) -> Result<u64, NoFrames> {
        let which = usize::from(want.bytes > 4096);
        if let Some(frame) = self.zeros[which] {
            return Ok(frame);
        }
        let frame = self.frame(want)?;
        self.zeros[which] = Some(frame);
        Ok(frame)
    }

    /// True if `frame` belongs to a shared zero page.
    #[inline]
    pub fn is_zero(&self, frame: u64) -> bool {
        let [small, huge] = self.zeros;
        small == Some(frame)
            || huge.is_some_and(|from| (from..from + (1 << HUGE_ORDER)).contains(&frame))
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

    /// Drops one owner of the block of `order` at `frame`. Frames without an owner
    /// become free.
    #[inline]
    pub fn put(&mut self, frame: u64, order: u8) {
        if order < HUGE_ORDER || !self.pools.put(frame) {
            self.memory.put(frame, order);
        }
    }
    /// Frees the frames `from..to`, which have a single owner.
    pub fn put_range(&mut self, from: u64, to: u64) {
        self.memory.put_range(from, to);
    }
    /// Adds an owner to the block of `order` at `frame`.
    pub fn share(&mut self, frame: u64, order: u8) {
        if order < HUGE_ORDER || !self.pools.share(frame) {
            self.memory.share(frame, order);
        }
    }
    /// True if any frame of the block has several owners.
    pub fn is_shared(&self, frame: u64, order: u8) -> bool {
        match self.pools.owners(frame) {
            Some(owners) if order >= HUGE_ORDER => owners > 1,
            _ => self.memory.is_shared(frame, order),
        }
    }
    /// Records that frames came into use, so that a host backs them.
    #[inline]
    pub fn used(&mut self, frame: u64, frames: u64, of: GuestUse) {
        self.memory.used(frame, frames, of);
    }
    /// See [`Memory::take_used`].
    pub fn take_used(&mut self) -> Vec<PutToUse> {
        self.memory.take_used()
    }
    /// See [`Memory::virtualise`].
    pub fn virtualise(&mut self) {
        self.memory.virtualise();
    }
    /// Physical memory, read only.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Charges the cost of a page-table change: `cycles` for its allocations, and
    /// the moves of `work` if the change succeeded.
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

/// The frame source of page tables. Adds up the cost of their allocations.
pub struct TableFrames<'a> {
    kernel: &'a mut Kernel,
    /// Cost so far.
    pub cycles: Cycle,
}

impl<'a> TableFrames<'a> {
    /// A source on the memory of `kernel`, with no cost yet.
    #[inline]
    pub fn new(kernel: &'a mut Kernel) -> Self {
        TableFrames { kernel, cycles: 0 }
    }
}

/// Size of the block that a request for `bytes` gets.
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
