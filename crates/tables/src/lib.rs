//! Everything that lies in simulated memory and knows no time.
//!
//! A page table has two faces: the kernel's, [`PageTable`], mutable; and the
//! hardware's, [`Walk`], shared and resumable.

mod cluster;
mod clustered;
mod contract;
#[allow(dead_code, reason = "the page tables that are made of it follow")]
mod cuckoo;
mod hash_dont_cache;
mod level_hashing;
mod murmur;
mod pte;
mod radix;
mod registry;
mod walk_cache;

pub use contract::*;
pub use cuckoo::{Choice, ElasticCuckooSpec, MemoryEfficientSpec, WaitFor};
pub use hash_dont_cache::HashDontCacheSpec;
pub use level_hashing::LevelHashingSpec;
pub use radix::Radix;
pub use registry::PageTableSpec;
pub use walk_cache::{WalkCacheSet, WalkCacheSpec, WalkCaches};

/// The worked example of the documentation: it compiles, and runs, as it stands.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/add-a-design.md")]
mod add_a_design {}
