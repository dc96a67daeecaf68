//! Elastic cuckoo page tables, and the memory-efficient ones that grew out of them.

mod elastic;
mod hash;
mod l2p;
mod line;
mod spec;
mod stats;
mod storage;

pub use spec::{Choice, ElasticCuckooSpec, MemoryEfficientSpec, WaitFor};
