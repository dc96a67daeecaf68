//! Caches, coherence, prefetchers and DRAM. Time is a return value.

mod contract;

pub use contract::*;

mod skeleton;
pub use skeleton::*;
