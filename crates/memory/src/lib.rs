//! Caches, coherence, prefetchers and DRAM. Time is a return value.
//!
//! A core owns its [`Private`] caches; all cores are lent the [`Shared`] level
//! for the length of a call. Every answer is load-to-use: the cycle at which
//! the data is at the core, whatever level it comes from.

#[cfg(test)]
extern crate self as pagewalk_memory;

mod cache_array;
mod check;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
mod contract;
mod directory;
mod dram;
#[cfg(test)]
mod invariants;
mod lru_stack;
mod prefetch;
mod private;
mod sets;
mod shared;
mod stats;

pub use contract::*;
pub use private::{Private, Speculated};
pub use shared::Shared;
pub use stats::{CacheStats, DirectoryStats, DramStats};
