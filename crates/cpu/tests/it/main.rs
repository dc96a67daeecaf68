//! Tests of the core, in one binary: each binary links the crate anew.

mod asks;
mod closed_forms;
mod gaps;
mod laws;
mod wrong_path;

#[path = "../bench/mod.rs"]
mod bench;
