//! Page tables and the other structures that lie in simulated memory. Nothing
//! here knows simulated time.
//!
//! A page table has two interfaces: [`PageTable`], mutable, for the kernel; and
//! [`Walk`], shared and resumable, for the hardware walker.

mod cluster;
mod clustered;
mod contract;
mod cuckoo;
mod cwc;
mod global_hashed;
mod hash_dont_cache;
mod kernel_tables;
mod level_hashing;
mod metric;
mod murmur;
mod owner;
mod pom_tlb;
mod pte;
mod radix;
mod ranges;
mod registry;
mod shortcut;
mod stlt;
mod walk_cache;

pub use contract::*;
pub use cuckoo::hardware as cuckoo_hardware;
pub use cuckoo::{Choice, Cuckoo, HashFunction, WaitFor, WhenDue};
pub use cwc::{CuckooWalkSpec, CuckooWalkStats, CwcStats, KeptProbes};
pub use kernel_tables::{BootingKernel, KernelTables, NoBlock};
pub use metric::TableMetric;
pub use owner::Owner;
pub use pom_tlb::{PomEntry, PomTlb, PomTlbSpec, PomTlbStats};
pub use radix::Radix;
pub use registry::*;
pub use shortcut::{MOST_LINES, QueryResult, Shortcut, Unit};
pub use stlt::{
    STLT_COUNTER_BITS, STLT_FEWEST_ROWS, STLT_MOST_ROWS, STLT_ROW_BYTES, STLT_SIZE_BIT,
    STLT_SUB_BITS, STLT_VA_BITS, ShortcutSpec, Stlt, StltCounter, StltGuardSpec, StltInserted,
    StltPage, StltRow, StltSpec,
};
pub use walk_cache::{WalkCacheKind, WalkCacheSet, WalkCacheSpec, WalkCaches};

/// The worked example of the documentation, compiled and run as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/add-a-design.md")]
mod add_a_design {}
