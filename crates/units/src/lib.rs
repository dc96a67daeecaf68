//! Addresses, pages, frames and time, with types that make a mixed-up address a compile error; and the
//! errors that users see.

mod error;
pub mod external;
mod kernel_file;
mod nearest;
mod rng;

pub use error::{Error, ErrorKind, Part, RunOption, Text};
pub use kernel_file::KernelFile;
pub use nearest::{distance, nearest};
pub use rng::{Rng, rng};

use std::fmt;
use std::fmt::Debug;

use serde::{Deserialize, Serialize};

/// One of the three address types. Page tables are generic over them.
pub trait Addr: Copy + Eq + Ord + Debug + std::hash::Hash + Send + Sync + 'static {
    /// The address with this numeric value.
    fn new(raw: u64) -> Self;
    /// The numeric value.
    fn raw(self) -> u64;
}

macro_rules! address {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub u64);

        impl Addr for $name {
            #[inline(always)]
            fn new(raw: u64) -> Self { $name(raw) }
            #[inline(always)]
            fn raw(self) -> u64 { self.0 }
        }

        impl Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, "{:#x}", self.0) }
        }

        impl $name {
            /// The page of `size` that holds this address.
            #[inline(always)]
            pub const fn page(self, size: PageSize) -> Page<$name> {
                Page { base: $name(self.0 & !(size.bytes() - 1)), size }
            }
            /// The address `bytes` further on.
            #[inline(always)]
            pub const fn offset(self, bytes: u64) -> Self { $name(self.0.wrapping_add(bytes)) }
        }
    )*}
}

address! {
    /// Address of a program.
    VirtAddr
    /// Address that a guest operating system treats as physical.
    GuestPhysAddr
    /// Address in caches and memory.
    PhysAddr
}

/// Time in cycles of the simulated core.
pub type Cycle = u64;

/// log2 of the bytes of a cache line.
pub const LINE_SHIFT: u32 = 6;
/// Bytes of a cache line.
pub const LINE_BYTES: u64 = 1 << LINE_SHIFT;

/// Address-space identifier: the tag of entries in TLBs and walk caches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Asid(pub u16);

/// The page sizes of x86-64.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
pub enum PageSize {
    /// 4 KB
    #[serde(rename = "4KB")]
    K4,
    /// 2 MB
    #[serde(rename = "2MB")]
    M2,
    /// 1 GB
    #[serde(rename = "1GB")]
    G1,
}

impl PageSize {
    /// All sizes, smallest first.
    pub const ALL: [PageSize; 3] = [PageSize::K4, PageSize::M2, PageSize::G1];

    /// log2 of the size in bytes.
    #[inline(always)]
    pub const fn shift(self) -> u32 {
        12 + 9 * self as u32
    }
    /// Size in bytes.
    #[inline(always)]
    pub const fn bytes(self) -> u64 {
        1 << self.shift()
    }
    /// 4 KB frames in a page of this size.
    #[inline(always)]
    pub const fn frames(self) -> u64 {
        1 << (self.shift() - 12)
    }
    /// 0, 1, 2 for 4 KB, 2 MB, 1 GB.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PageSize::K4 => "4KB",
            PageSize::M2 => "2MB",
            PageSize::G1 => "1GB",
        })
    }
}

/// A page: aligned base and size.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Page<A> {
    /// Lowest address, aligned to the size.
    pub base: A,
    /// 4 KB, 2 MB or 1 GB.
    pub size: PageSize,
}

impl<A: Addr> Page<A> {
    /// Number of the page in units of its own size.
    #[inline(always)]
    pub fn number(self) -> u64 {
        self.base.raw() >> self.size.shift()
    }
}

/// A frame: the aligned base of physical memory that backs a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Frame<A> {
    /// Lowest address.
    pub base: A,
}

/// Kind of a memory access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Data read.
    Read,
    /// Data write.
    Write,
    /// Instruction fetch.
    Fetch,
}

/// Caches that a software prefetch fills (Intel SDM volume 2, `PREFETCHh` and `PREFETCHW`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PrefetchHint {
    /// `prefetcht0`: all levels.
    T0 = 1,
    /// `prefetcht1`: the second level and those behind it.
    T1 = 2,
    /// `prefetcht2`: the third level.
    T2 = 3,
    /// `prefetchnta`: the first level, not the second.
    Nta = 4,
    /// `prefetchw`: all levels, with ownership of the line.
    Write = 5,
}

impl PrefetchHint {
    /// All hints.
    pub const ALL: [PrefetchHint; 5] = [
        PrefetchHint::T0,
        PrefetchHint::T1,
        PrefetchHint::T2,
        PrefetchHint::Nta,
        PrefetchHint::Write,
    ];

    /// The hint in an op's `size`.
    #[inline]
    pub fn of(size: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|hint| *hint as u8 == size)
    }
}

/// A flush of a cache line (Intel SDM volume 2, `CLFLUSH`, `CLFLUSHOPT` and `CLWB`). Each writes a dirty line to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FlushKind {
    /// `clflush`: removes the line from all caches, in order with stores and other flushes.
    Ordered = 1,
    /// `clflushopt`: removes the line from all caches, in no order with other lines.
    Unordered = 2,
    /// `clwb`: the line stays, clean. Ordered as `clflushopt`.
    WriteBack = 3,
}

impl FlushKind {
    /// The kind in an op's `size`.
    #[inline]
    pub fn of(size: u8) -> Option<Self> {
        let all = [
            FlushKind::Ordered,
            FlushKind::Unordered,
            FlushKind::WriteBack,
        ];
        all.into_iter().find(|kind| *kind as u8 == size)
    }
}

/// Backing of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Anonymous private memory: heap, mmap. May use huge pages.
    Anonymous,
    /// Thread or process stack.
    Stack,
    /// A file, mapped page by page and never with huge pages.
    File,
    /// Memory shared between processes across fork.
    Shared,
}

/// Memory behind a mapping whose page faults are served as Linux serves them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MappingSource {
    /// Private zeros. Reads of untouched pages map the shared zero page.
    Zeros {
        /// The stack of a thread or process, which never has huge pages.
        stack: bool,
        /// The kernel reserves memory for it. Linux joins no area that reserves with one that does not
        /// (MAP_NORESERVE).
        reserves: bool,
    },
    /// Pages of an object, which processes may share.
    Object {
        /// The object.
        object: MemoryObject,
        /// A write copies the page.
        private: bool,
    },
    /// Pages of a pool of huge pages (hugetlbfs).
    Pool {
        /// Size of the pages.
        size: PageSize,
        /// The mapping reserves its pages; otherwise each fault takes one that is free (MAP_NORESERVE).
        reserves: bool,
        /// The object whose pages they are; `None` for private zeros.
        object: Option<MemoryObject>,
        /// A write copies the page.
        private: bool,
    },
}

/// Part of an object that a mapping shows: a file in the page cache, or shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryObject {
    /// Number of the object, the same in each process. `None`: it belongs to this mapping and to those that are made of
    /// it (`MAP_SHARED | MAP_ANONYMOUS`).
    pub key: Option<u64>,
    /// True for a file, whose pages are in the page cache. Otherwise the first touch by any process zeroes a page.
    pub file: bool,
    /// Page of the object at the start of the mapping.
    pub page: u64,
    /// Number of pages of the object.
    pub pages: u64,
}

/// Accesses by which a call populates memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PopulateAs {
    /// Reads (MADV_POPULATE_READ).
    Read,
    /// Writes (MADV_POPULATE_WRITE).
    Write,
    /// Writes in private writable areas, and reads in others (MAP_POPULATE, `mlock`).
    Area,
}

/// Advice of `madvise`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// MADV_HUGEPAGE
    HugePage,
    /// MADV_NOHUGEPAGE
    NoHugePage,
    /// MADV_DONTNEED: the frames are freed. In recordings before 0.2 also MADV_FREE.
    DontNeed,
    /// MADV_FREE: the frames are freed when memory is short.
    Free,
    /// MADV_COLLAPSE: small pages become huge pages at once.
    Collapse,
    /// MADV_REMOVE: the pages of the object behind the mapping are freed.
    Remove,
    /// MADV_PAGEOUT: pages are reclaimed at once.
    PageOut,
    /// MADV_DONTFORK: a child does not get the mapping.
    DontFork,
    /// MADV_WIPEONFORK: a child gets the mapping without its pages.
    WipeOnFork,
    /// MADV_DOFORK, MADV_KEEPONFORK: a child gets the mapping with its pages.
    KeepOnFork,
}
