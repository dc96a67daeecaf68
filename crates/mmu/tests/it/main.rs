//! Tests of the MMU, in one binary: each binary links the crate anew.

mod cuckoo;
mod in_memory;
mod nested_prediction;
mod prefetch;
mod range_tlb;
mod revelator;
mod sources;
mod spectlb;
mod speculation;
mod stlt;
mod translation;
mod victima;

#[path = "../common/bench.rs"]
mod bench;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/cores.rs"]
mod cores;
#[path = "../common/pages.rs"]
mod pages;
