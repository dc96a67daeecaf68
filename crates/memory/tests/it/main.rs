//! Tests of caches and DRAM, in one binary: each binary links the crate anew.

mod background;
mod closed_forms;
mod flush;
mod laws;
mod levels;

#[path = "../common/mod.rs"]
mod common;
