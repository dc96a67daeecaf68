//! The two faces of a page table, and what passes between table and kernel.

use std::fmt::Debug;

use arrayvec::ArrayVec;
use pagewalk_stats::Tree;
use pagewalk_units::{Addr, Asid, Frame, GuestPhysAddr, Page, PageSize, PhysAddr, VirtAddr};

use crate::WalkCaches;

/// Bits of a page-table entry beside the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// Stores are allowed.
    pub const WRITABLE: Flags = Flags(1);
    /// The page lies in a live 2 MB reservation (set by the OS, read by engines that guess frames).
    pub const RESERVED: Flags = Flags(2);

    /// Whether all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
    /// Both.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
    /// Without the bits of `other`.
    #[must_use]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

/// What a walk finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translation<Out> {
    /// The frame of the page that holds the address.
    pub frame: Frame<Out>,
    /// Its size.
    pub size: PageSize,
    /// Its flags.
    pub flags: Flags,
    /// Where the entry itself lies: guesses of entries are judged by it.
    pub leaf: Out,
}

/// What a guest uses a page of its physical memory for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuestUse {
    /// A page of a program.
    Page {
        /// The guest's address space.
        asid: Asid,
        /// Guest-virtual page number, 4 KB units.
        vpn: u64,
    },
    /// A node of a tree, as [`Purpose::Node`].
    Node {
        /// The guest's address space.
        asid: Asid,
        /// 1 = the node that holds 4 KB entries.
        level: u8,
        /// Guest-virtual page number of the region's start, 4 KB units.
        vpn: u64,
    },
    /// Other parts of a page table.
    Table {
        /// The guest's address space.
        asid: Asid,
    },
    /// Not known: a walk came upon a page that nothing lay behind.
    Unknown,
}

impl GuestUse {
    /// What the page is for that lies `pages` further on in the same block.
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

/// What a frame is for, so that a placement policy can hash it.
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
    /// A page of memory that processes share.
    Shared {
        /// Virtual page number in the process that touched it first, 4 KB units.
        vpn: u64,
    },
    /// A copy of a page, made since it was written.
    Copy {
        /// Virtual page number, 4 KB units.
        vpn: u64,
    },
    /// A block set aside for pages that may come to be.
    Reservation {
        /// Virtual page number of its first page, 4 KB units.
        vpn: u64,
    },
    /// A 2 MB page that takes the place of small pages (khugepaged).
    Collapse {
        /// Virtual page number of its first page, 4 KB units.
        vpn: u64,
        /// Whether movable frames may have to leave for it.
        defrag: bool,
    },
    /// A page of a virtual machine, in its host.
    Guest {
        /// Guest-physical page number, 4 KB units.
        vpn: u64,
        /// What the guest uses it for; of a page of the host's that is larger, where
        /// it is touched first.
        of: GuestUse,
    },
    /// A node of a tree that maps the region of `vpn`.
    Node {
        /// 1 = the node that holds 4 KB entries.
        level: u8,
        /// Virtual page number of the region's start, 4 KB units.
        vpn: u64,
    },
    /// A way (or a chunk of one) of a hashed table.
    Way,
    /// Rows of a table of translations beside the page table.
    Rows,
}

/// A wish for contiguous physical memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    /// How much, a power of two of at least 4096; aligned to itself.
    pub bytes: u64,
    /// For which address space.
    pub asid: Asid,
    /// What for.
    pub purpose: Purpose,
}

impl Want {
    /// log2 of the 4 KB frames in the block.
    #[inline]
    pub const fn order(&self) -> u8 {
        (self.bytes.trailing_zeros() - 12) as u8
    }
}

/// There was no contiguous block of that size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no contiguous block of {bytes} bytes is free")]
pub struct NoFrames {
    /// What was wanted.
    pub bytes: u64,
}

/// A limit of the table's own is reached, which no memory lifts.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}")]
pub struct Limit {
    /// What is used up, in words.
    pub what: String,
    /// What to change in the configuration; `{table}` stands for where the table
    /// is configured.
    pub advice: &'static str,
}

impl Limit {
    /// What to change in the configuration of the table, which is at `table`, such as
    /// `page_table.NAME`.
    pub fn advice(&self, table: &str) -> String {
        self.advice.replace("{table}", table)
    }
}

/// Why a table did not grow.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// It got no memory; more may come.
    #[error(transparent)]
    NoFrames(#[from] NoFrames),
    /// It cannot, whatever memory there is.
    #[error(transparent)]
    Limit(Box<Limit>),
}

/// Where tables get physical memory. Never reclaims and never reaches a table.
pub trait FrameSource<A> {
    /// A block, or a refusal.
    fn alloc(&mut self, want: Want) -> Result<Frame<A>, NoFrames>;
    /// Gives back a block of `bytes`.
    fn free(&mut self, frame: Frame<A>, bytes: u64);
}

/// What a change of a table did; the kernel prices it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MapWork {
    /// Entries moved between places (resizing).
    pub moved: u32,
    /// Entries moved to make room for others (re-insertions).
    pub kicks: u32,
    /// Those for which it had to be looked up where the new place lies, which
    /// took time of its own.
    pub lookups: u32,
    /// Bytes of table memory allocated.
    pub allocated: u64,
    /// Bytes of table memory given back.
    pub freed: u64,
    /// Largest contiguous block that was asked for, in bytes.
    pub largest: u64,
    /// Registers that a context switch saves have changed.
    pub registers_changed: bool,
}

/// Why nothing was mapped. The table is as it was before the call.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MapError {
    /// The table needed to grow and could not.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A page of this or another size is mapped there.
    #[error("the range is mapped already")]
    Occupied,
}

impl From<NoFrames> for MapError {
    fn from(refusal: NoFrames) -> Self {
        MapError::Refused(refusal.into())
    }
}

/// The kernel's face.
pub trait PageTable<In: Addr, Out: Addr>: Walk<In, Out> + Send + Sync {
    /// Maps `page` to `frame`. Atomic when it fails.
    fn map(
        &mut self,
        page: Page<In>,
        frame: Frame<Out>,
        flags: Flags,
        frames: &mut dyn FrameSource<Out>,
    ) -> Result<MapWork, MapError>;
    /// Takes away `page` (of exactly that size); `None` if it is not mapped.
    fn unmap(
        &mut self,
        page: Page<In>,
        frames: &mut dyn FrameSource<Out>,
    ) -> Option<(Frame<Out>, Flags, MapWork)>;
    /// Replaces the flags of `page`; false if it is not mapped.
    fn set_flags(&mut self, page: Page<In>, flags: Flags) -> bool;
    /// 64-bit registers that a context switch saves beyond the root pointer.
    fn registers(&self) -> u32;
    /// Bytes of simulated physical memory that the table holds now.
    fn bytes(&self) -> u64;
    /// Largest contiguous block that it ever held, in bytes.
    fn largest_contiguous(&self) -> u64;
    /// Calls `f` for every mapped page, in ascending order of address.
    fn for_each(&self, f: &mut dyn FnMut(Page<In>, Frame<Out>, Flags));
    /// Gives all of the table's own memory back (not the program's pages).
    fn release(&mut self, frames: &mut dyn FrameSource<Out>);
    /// Adds the table's own counters at and below `path`. Which rows there are
    /// depends on the kind of table only, so that those of several processes
    /// can be added up; a table without counters adds none.
    fn report(&self, _path: &str, _tree: &mut Tree) {}
    /// The hardware's face of the same table.
    fn hardware(&self) -> &dyn Walk<In, Out>;
}

/// Registers of a walk in progress; zero at the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct WalkState {
    /// Groups read so far.
    pub step: u8,
    /// For the table's own use.
    pub regs: [u64; 4],
}

/// Most reads of one group: four lines for each of three page sizes.
pub const MOST_PARALLEL: usize = 12;

/// Reads that go in parallel.
#[derive(Clone, Debug)]
pub struct Group<Out> {
    /// Addresses of 8-byte entries (or of 64-byte lines).
    pub at: ArrayVec<Out, MOST_PARALLEL>,
    /// The read that gives the answer: the walk may go on when it is back.
    pub matching: Option<u8>,
    /// Costs bandwidth, not latency (fetches of walk tables): asked for together
    /// with the group before it, and the walk does not wait. When it is back is
    /// then in [`WalkCaches::back`].
    pub off_path: bool,
    /// Level of the table that is read, for the records: down to 1 in a tree.
    pub level: u8,
}

/// What the walker does next.
#[derive(Clone, Debug)]
pub enum Next<Out> {
    /// Read this one entry, then ask again: what a [`Group`] of one says, small
    /// enough to be handed over in registers.
    One {
        /// Address of the entry.
        at: Out,
        /// Level of the table that is read, for the records.
        level: u8,
    },
    /// Read these, then ask again.
    Read(Group<Out>),
    /// Found.
    Done(Translation<Out>),
    /// Not mapped.
    Fault,
}

/// Most levels of a table that is a tree (5-level paging, LA57).
pub const MOST_LEVELS: usize = 5;

/// The entries of a tree from the root to the one that names the frame.
#[derive(Clone, Debug, Default)]
pub struct Path<Out> {
    at: ArrayVec<Out, MOST_LEVELS>,
    root: usize,
}

impl<Out: Copy> Path<Out> {
    /// Of nothing.
    pub fn new() -> Self {
        Path {
            at: ArrayVec::new(),
            root: 0,
        }
    }
    /// Begins at the root of a tree of so many levels.
    #[inline(always)]
    pub fn begin(&mut self, levels: u8) {
        self.at.clear();
        self.root = usize::from(levels);
    }
    /// The entry of the next level.
    #[inline(always)]
    pub fn go_on(&mut self, at: Out) {
        self.at.push(at);
    }
    /// Level of the root; 1: its entries are of 4 KB pages.
    #[inline(always)]
    pub fn root_level(&self) -> usize {
        self.root
    }
    /// Level of the entry that names the frame.
    #[inline(always)]
    pub fn leaf_level(&self) -> usize {
        self.root + 1 - self.at.len()
    }
    /// The entry of `level`.
    #[inline(always)]
    pub fn at(&self, level: usize) -> Out {
        self.at[self.root - level]
    }
}

/// The hardware's face: shared, resumable, without a clock.
pub trait Walk<In: Addr, Out: Addr> {
    /// What to read next for `va`, given what has been read. A walk cache
    /// answers only with entries that are ready.
    fn next(&self, va: In, state: &mut WalkState, caches: &mut WalkCaches<'_>) -> Next<Out>;
    /// The answer at once, for oracles, perfect parts and tests.
    fn translate(&self, va: In) -> Option<Translation<Out>>;
    /// Whether it is a tree, of which [`Walk::path`] tells what a walk reads.
    fn is_tree(&self) -> bool {
        false
    }
    /// The answer at once, of a tree, and what a walk without walk caches reads for it, into `path`.
    fn path(&self, _va: In, _path: &mut Path<Out>) -> Option<Translation<Out>> {
        None
    }
    /// Tells the host, not the simulated machine, that `va` will be translated soon: what
    /// that reads can be fetched meanwhile. Whether [`Walk::translate`] is then little work.
    fn host_prefetch(&self, _va: In) -> bool {
        false
    }
}

/// What the walker of one thread sees.
#[derive(Clone, Copy)]
pub enum View<'a> {
    /// One dimension.
    Native(&'a dyn Walk<VirtAddr, PhysAddr>),
    /// A guest table over a host table.
    Nested {
        /// Guest virtual to guest physical.
        guest: &'a dyn Walk<VirtAddr, GuestPhysAddr>,
        /// Guest physical to physical.
        host: &'a dyn Walk<GuestPhysAddr, PhysAddr>,
    },
}

impl View<'_> {
    /// Tells the host that `va` will be translated soon, as far as the outer table goes:
    /// [`Walk::host_prefetch`].
    pub fn host_prefetch(&self, va: VirtAddr) -> bool {
        match *self {
            View::Native(table) => table.host_prefetch(va),
            View::Nested { guest, .. } => guest.host_prefetch(va),
        }
    }
}

/// What every core has to forget before its next access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invalidation {
    /// One page: its TLB entries, and the walk caches of the address space.
    Page {
        /// Whose.
        asid: Asid,
        /// Which; entries of other sizes that overlap it go too.
        page: Page<VirtAddr>,
    },
    /// Everything between two addresses.
    Range {
        /// Whose.
        asid: Asid,
        /// First address.
        at: VirtAddr,
        /// Length.
        bytes: u64,
    },
    /// Everything of an address space.
    Space {
        /// Whose.
        asid: Asid,
    },
}

impl Invalidation {
    /// The address space that it is about.
    pub fn asid(&self) -> Asid {
        match *self {
            Invalidation::Page { asid, .. }
            | Invalidation::Range { asid, .. }
            | Invalidation::Space { asid } => asid,
        }
    }

    /// The same, and its first and its last byte; of an empty range both are where it begins.
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
