//! Caches, coherence, prefetchers and DRAM. Time is a return value.
//!
//! Each core owns its [`Private`] caches. All cores access the [`Shared`] levels, which are passed
//! to each call. Times are load-to-use: the cycle at which the data is at the core, whatever level it
//! comes from.

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
mod exponential;
#[cfg(test)]
mod invariants;
mod levels;
mod lru_stack;
mod prefetch;
mod private;
mod sets;
mod shared;
mod stats;

pub use check::check_levels;
pub use contract::*;
pub use private::{Flushed, L2Use, Private, SoftwarePrefetched, Speculated, WriteCombiningStats};
pub use shared::Shared;
pub use stats::{CacheStats, DirectoryStats, DramStats};
