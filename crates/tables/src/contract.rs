//! The two interfaces of a page table, and the types that table and kernel exchange.

use std::fmt::Debug;

use arrayvec::ArrayVec;
use pagewalk_stats::Tree;
use pagewalk_units::{Addr, Asid, Frame, GuestPhysAddr, Page, PageSize, PhysAddr, VirtAddr};

use crate::WalkCaches;

/// Flag bits of a page-table entry, without the frame number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// Stores are allowed.
    pub const WRITABLE: Flags = Flags(1);
    /// The page lies in a live 2 MB reservation (set by the OS, read by engines that guess frames).
    pub const RESERVED: Flags = Flags(2);

    /// True if all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
    /// Union of both flag sets.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
    /// These flags without the bits of `other`.
    #[must_use]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

/// The result of a successful walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translation<Out> {
    /// The frame of the page that holds the address.
    pub frame: Frame<Out>,
    /// Page size.
    pub size: PageSize,
    /// Flags of the entry.
    pub flags: Flags,
    /// Address of the leaf entry. Guesses of leaf entries are checked against it.
    pub leaf: Out,
}

/// The guest's use of a page of its physical memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuestUse {
    /// A page of a guest program.
    Page {
        /// The guest's address space.
        asid: Asid,
        /// Guest-virtual page number, 4 KB units.
        vpn: u64,
    },
    /// A node of a radix tree, as [`Purpose::Node`].
    Node {
        /// The guest's address space.
        asid: Asid,
        /// 1 = the node that holds 4 KB entries.
        level: u8,
        /// Guest-virtual page number of the region's start, 4 KB units.
        vpn: u64,
    },
    /// Any other part of a guest page table.
    Table {
        /// The guest's address space.
        asid: Asid,
    },
    /// Unknown use: a walk reached a guest-physical page that the host had not backed.
    Unknown,
}

impl GuestUse {
    /// The use of the page that lies `pages` pages after this one in the same block.
    #[must_use]
    pub fn after(self, pages: u64) -> Self {
        match self {
            GuestUse::Page { asid, vpn } => GuestUse::Page {
                asid,
                vpn: vpn + pages,
            },
            other => other,
        }
    }
}

/// The purpose of a frame. Placement policies may hash it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// An anonymous page of the program, or one of its stack.
    Anonymous {
        /// Virtual page number, 4 KB units.
        vpn: u64,
    },
    /// A page of a file that the program has mapped.
    File {
        /// Virtual page number, 4 KB units.
        vpn: u64,
    },
    /// A page of memory that several processes share.
    Shared {
        /// Virtual page number in the process that touched it first, 4 KB units.
        vpn: u64,
    },
    /// A private copy of a page, made on a write (copy-on-write).
    Copy {
        /// Virtual page number, 4 KB units.
        vpn: u64,
    },
    /// A block reserved for pages that may be mapped later.
    Reservation {
        /// Virtual page number of its first page, 4 KB units.
        vpn: u64,
    },
    /// A 2 MB page that replaces small pages (khugepaged).
    Collapse {
        /// Virtual page number of its first page, 4 KB units.
        vpn: u64,
        /// True if movable frames may be migrated to free a block for it.
        defrag: bool,
    },
    /// A page of a virtual machine, allocated by its host.
    Guest {
        /// Guest-physical page number, 4 KB units.
        vpn: u64,
        /// The guest's use of the page. If the host page is larger, the use of the part touched
        /// first.
        of: GuestUse,
    },
    /// A node of a radix tree that maps the region of `vpn`.
    Node {
        /// 1 = the node that holds 4 KB entries.
        level: u8,
        /// Virtual page number of the region's start, 4 KB units.
        vpn: u64,
    },
    /// A way (or a chunk of one) of a hashed table, or a node of a range table.
    Way,
    /// Rows of an STLT.
    Rows,
}

/// A request for contiguous physical memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    /// Size in bytes: a power of two of at least 4096. The block is aligned to its size.
    pub bytes: u64,
    /// The address space that it is for.
    pub asid: Asid,
    /// The purpose of the block.
    pub purpose: Purpose,
}

impl Want {
    /// log2 of the 4 KB frames in the block.
    #[inline]
    pub const fn order(&self) -> u8 {
        (self.bytes.trailing_zeros() - 12) as u8
    }
}

/// No free contiguous block of the requested size exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no contiguous block of {bytes} bytes is free")]
pub struct NoFrames {
    /// Requested size in bytes.
    pub bytes: u64,
}

/// A limit of the table itself, which additional memory does not lift.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}")]
pub struct Limit {
    /// The exhausted resource, in words.
    pub what: String,
    /// The configuration change that helps. `{table}` stands for the path of the table's
    /// configuration.
    pub advice: &'static str,
}

impl Limit {
    /// The advice for the table configured at `table`, such as `page_table.NAME`.
    pub fn advice(&self, table: &str) -> String {
        self.advice.replace("{table}", table)
    }
}

/// The reason why a table could not grow.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The frame allocation failed. It may succeed after reclaim.
    #[error(transparent)]
    NoFrames(#[from] NoFrames),
    /// The table reached a limit of its own.
    #[error(transparent)]
    Limit(Box<Limit>),
}

/// Source of physical memory for page tables. It never reclaims memory and never changes a table.
pub trait FrameSource<A> {
    /// Allocates a block, or fails without side effects.
    fn alloc(&mut self, want: Want) -> Result<Frame<A>, NoFrames>;
    /// Frees a block of `bytes`.
    fn free(&mut self, frame: Frame<A>, bytes: u64);
}

/// Work done by a change of a table. The kernel charges cycles for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MapWork {
    /// Entries moved by a resize.
    pub moved: u32,
    /// Entries displaced and re-inserted (cuckoo kicks).
    pub kicks: u32,
    /// Re-insertions that needed an L2P lookup, which costs extra time, to find the new slot.
    pub lookups: u32,
    /// Bytes of table memory allocated.
    pub allocated: u64,
    /// Bytes of table memory freed.
    pub freed: u64,
    /// Largest contiguous block requested, in bytes.
    pub largest: u64,
    /// True if registers that a context switch saves have changed.
    pub registers_changed: bool,
}

/// The reason why nothing was mapped. The table is unchanged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MapError {
    /// The table had to grow and could not.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A page of the same or another size already maps part of the range.
    #[error("the range is mapped already")]
    Occupied,
}

impl From<NoFrames> for MapError {
    fn from(refusal: NoFrames) -> Self {
        MapError::Refused(refusal.into())
    }
}

/// A page table as the kernel sees it.
pub trait PageTable<In: Addr, Out: Addr>: Walk<In, Out> + Send + Sync {
    /// Maps `page` to `frame`. Changes nothing on failure.
    fn map(
        &mut self,
        page: Page<In>,
        frame: Frame<Out>,
        flags: Flags,
        frames: &mut dyn FrameSource<Out>,
    ) -> Result<MapWork, MapError>;
    /// Unmaps `page` (of exactly that size). `None` if it is not mapped.
    fn unmap(
        &mut self,
        page: Page<In>,
        frames: &mut dyn FrameSource<Out>,
    ) -> Option<(Frame<Out>, Flags, MapWork)>;
    /// Replaces the flags of `page`; false if it is not mapped.
    fn set_flags(&mut self, page: Page<In>, flags: Flags) -> bool;
    /// 64-bit registers that a context switch saves in addition to the root pointer.
    fn registers(&self) -> u32;
    /// Bytes of simulated physical memory that the table holds for this address space alone.
    fn bytes(&self) -> u64;
    /// Largest contiguous block that the table has ever held, in bytes.
    fn largest_contiguous(&self) -> u64;
    /// Calls `f` for every mapped page, in ascending order of address.
    fn for_each(&self, f: &mut dyn FnMut(Page<In>, Frame<Out>, Flags));
    /// Removes all pages of the address space. Frees the table's own memory, not the frames that it
    /// maps.
    fn release(&mut self, frames: &mut dyn FrameSource<Out>);
    /// Adds the table's counters at and below `path`. The set of rows depends only on the kind of
    /// table, so the rows of several processes can be added up. A table without counters adds none.
    fn report(&self, _path: &str, _tree: &mut Tree) {}
    /// The same table as the hardware walker sees it.
    fn hardware(&self) -> &dyn Walk<In, Out>;
}

/// State of a walk in progress; all zero at the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct WalkState {
    /// Groups read so far.
    pub step: u8,
    /// Private to the table.
    pub regs: [u64; 4],
}

/// Pages of equal rights in consecutive frames, as a table of ranges beside a page table holds them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MappedRange<In, Out> {
    /// First address.
    pub first: In,
    /// Last address.
    pub last: In,
    /// Physical address of the first.
    pub at: Out,
    /// True if stores are permitted.
    pub writable: bool,
}

/// Maximum reads of one group: four lines for each of the three page sizes.
pub const MOST_PARALLEL: usize = 12;

/// Reads that the walker issues in parallel.
#[derive(Clone, Debug)]
pub struct Group<Out> {
    /// Addresses of 8-byte entries (or of 64-byte lines).
    pub at: ArrayVec<Out, MOST_PARALLEL>,
    /// Index of the read that holds the result. The walk may continue as soon as it returns.
    pub matching: Option<u8>,
    /// The reads cost bandwidth but not latency (fetches of walk tables). They are issued together
    /// with the group before, and the walk does not wait for them. [`WalkCaches::back`] holds their
    /// completion time.
    pub off_path: bool,
    /// Level of the table that is read, for the statistics. In a radix tree the leaves are level 1.
    pub level: u8,
}

/// The walker's next action.
#[derive(Clone, Debug)]
pub enum Next<Out> {
    /// Read one entry, then call [`Walk::next`] again. Equivalent to a [`Group`] of one read, but
    /// small enough to be returned in registers.
    One {
        /// Address of the entry.
        at: Out,
        /// Level of the table that is read, for the statistics.
        level: u8,
    },
    /// Read the group, then call [`Walk::next`] again.
    Read(Group<Out>),
    /// The walk ends with this translation.
    Done(Translation<Out>),
    /// The address is not mapped.
    Fault,
}

impl<Out: Copy> Next<Out> {
    /// Reads the entries `at` of a hashed table in parallel. Without entries the address is not
    /// mapped. `matching`: as of a [`Group`].
    #[inline]
    pub(crate) fn in_parallel(at: ArrayVec<Out, MOST_PARALLEL>, matching: Option<u8>) -> Self {
        match at[..] {
            [] => Next::Fault,
            [at] => Next::One { at, level: 1 },
            _ => Next::Read(Group {
                at,
                matching,
                off_path: false,
                level: 1,
            }),
        }
    }
}

/// Maximum levels of a radix tree (5-level paging, LA57).
pub const MOST_LEVELS: usize = 5;

/// The entries of a radix tree from the root to the leaf entry.
#[derive(Clone, Debug, Default)]
pub struct Path<Out> {
    at: ArrayVec<Out, MOST_LEVELS>,
    root: usize,
}

impl<Out: Copy> Path<Out> {
    /// An empty path.
    pub fn new() -> Self {
        Path {
            at: ArrayVec::new(),
            root: 0,
        }
    }
    /// Starts a new path at the root of a tree with `levels` levels.
    #[inline(always)]
    pub fn begin(&mut self, levels: u8) {
        self.at.clear();
        self.root = usize::from(levels);
    }
    /// Appends the entry of the next lower level.
    #[inline(always)]
    pub fn go_on(&mut self, at: Out) {
        self.at.push(at);
    }
    /// Level of the root. At level 1 the entries map 4 KB pages.
    #[inline(always)]
    pub fn root_level(&self) -> usize {
        self.root
    }
    /// Level of the leaf entry.
    #[inline(always)]
    pub fn leaf_level(&self) -> usize {
        self.root + 1 - self.at.len()
    }
    /// Address of the entry at `level`.
    #[inline(always)]
    pub fn at(&self, level: usize) -> Out {
        self.at[self.root - level]
    }
}

/// A page table as the hardware walker sees it: shared, resumable, and without a clock.
pub trait Walk<In: Addr, Out: Addr> {
    /// The next reads for `va`, given the reads made so far. Walk caches hit only on entries whose
    /// fill has completed.
    fn next(&self, va: In, state: &mut WalkState, caches: &mut WalkCaches<'_>) -> Next<Out>;
    /// The translation without a timed walk, for oracles, idealized components and tests.
    fn translate(&self, va: In) -> Option<Translation<Out>>;
    /// True if the table is a radix tree, for which [`Walk::path`] lists the reads of a walk.
    fn is_tree(&self) -> bool {
        false
    }
    /// The translation in a radix tree. Stores in `path` the entries that a walk without walk caches
    /// reads.
    fn path(&self, _va: In, _path: &mut Path<Out>) -> Option<Translation<Out>> {
        None
    }
    /// The range around `va`, of a table that holds ranges of pages beside the pages. Appends to
    /// `reads` the lines that a walk of the ranges reads, one after the other.
    fn range(&self, _va: In, _reads: &mut Vec<Out>) -> Option<MappedRange<In, Out>> {
        None
    }
    /// Prefetches into the host's caches the data that a translation of `va` will read. Simulated
    /// state does not change. Returns true if a later [`Walk::translate`] is then cheap.
    fn host_prefetch(&self, _va: In) -> bool {
        false
    }
}

/// The page tables of one thread, as its walker sees them.
#[derive(Clone, Copy)]
pub enum View<'a> {
    /// Native translation, one dimension.
    Native(&'a dyn Walk<VirtAddr, PhysAddr>),
    /// Nested translation: a guest table over a host table.
    Nested {
        /// Guest virtual to guest physical.
        guest: &'a dyn Walk<VirtAddr, GuestPhysAddr>,
        /// Guest physical to physical.
        host: &'a dyn Walk<GuestPhysAddr, PhysAddr>,
    },
}

impl View<'_> {
    /// True if filtered functional warming can read its walks: by [`Walk::path`].
    pub fn can_filtered_warm(&self) -> bool {
        matches!(self, View::Native(table) if table.is_tree())
    }

    /// Prefetches for a translation of `va` through the outer table: [`Walk::host_prefetch`].
    pub fn host_prefetch(&self, va: VirtAddr) -> bool {
        match *self {
            View::Native(table) => table.host_prefetch(va),
            View::Nested { guest, .. } => guest.host_prefetch(va),
        }
    }
}

/// Translations that every core must invalidate before its next access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invalidation {
    /// One page: its TLB entries, and the walk-cache entries of the address space.
    Page {
        /// The address space.
        asid: Asid,
        /// The page. Overlapping entries of other page sizes are invalidated too.
        page: Page<VirtAddr>,
    },
    /// All pages of a range.
    Range {
        /// The address space.
        asid: Asid,
        /// First address of the range.
        at: VirtAddr,
        /// Length in bytes.
        bytes: u64,
    },
    /// All pages of an address space.
    Space {
        /// The address space.
        asid: Asid,
    },
}

impl Invalidation {
    /// The affected address space.
    pub fn asid(&self) -> Asid {
        match *self {
            Invalidation::Page { asid, .. }
            | Invalidation::Range { asid, .. }
            | Invalidation::Space { asid } => asid,
        }
    }

    /// The address space with the first and last affected byte. For an empty range both are its
    /// start.
    pub fn span(&self) -> (Asid, VirtAddr, VirtAddr) {
        let (first, last) = match *self {
            Invalidation::Page { page, .. } => {
                (page.base, VirtAddr(page.base.0 + (page.size.bytes() - 1)))
            }
            Invalidation::Range { at, bytes, .. } => {
                let beyond_first = bytes.saturating_sub(1);
                (at, VirtAddr(at.0.saturating_add(beyond_first)))
            }
            Invalidation::Space { .. } => (VirtAddr(0), VirtAddr(u64::MAX)),
        };
        (self.asid(), first, last)
    }
}
