//! Tests of whole simulated machines, in one binary: each binary links the crate again.

mod config;
mod cycle_stack;
mod ended;
mod energy;
mod extremes;
mod fast_forward;
mod hashed;
mod histograms;
mod in_memory_tlb;
mod khugepaged;
mod laws;
mod live;
mod machines;
mod mappings;
mod mixes;
mod replies;
mod revelator;
mod sampling;
mod shards;
mod shared_tables;
mod spectlb;
mod stlt;
mod stlt_guard;
mod stlt_others;
mod tlb_prefetch;
mod tlb_replacement;
mod turns;
mod virtual_machines;
mod walked_loads;
mod warnings;
mod wrong_path;

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "the tests of crates/live run the others")]
#[path = "../../../live/tests/live/programs.rs"]
mod programs;
#[path = "../../../programs/tests/small/mod.rs"]
mod small;
#[path = "../../../live/tests/live/tools.rs"]
mod tools;
