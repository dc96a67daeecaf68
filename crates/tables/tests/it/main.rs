//! Tests of page tables and other tables in memory. They form one binary, because each binary links
//! the crate again.

mod contract;
mod cuckoo;
mod global_hashed;
mod hash_dont_cache;
mod level_hashing;
mod pom_tlb;
mod radix;
mod ranges;
mod spaces;

/// The page table of the example of an extension, which passes the contract suite as all kinds do.
#[path = "../../../../examples/out_of_tree/src/flattened.rs"]
mod flattened;

#[path = "../common/mod.rs"]
mod common;
#[path = "../spread/mod.rs"]
mod spread;
