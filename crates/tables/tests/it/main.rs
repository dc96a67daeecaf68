//! Tests of page tables and other tables in memory. They form one binary, because each binary links
//! the crate again.

mod contract;
mod cuckoo;
mod hash_dont_cache;
mod level_hashing;
mod pom_tlb;
mod radix;
mod ranges;

#[path = "../common/mod.rs"]
mod common;
#[path = "../spread/mod.rs"]
mod spread;
