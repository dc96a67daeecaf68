//! Tests of the core, in one binary: each binary links the crate anew.

mod closed_forms;
mod flush;
mod gaps;
mod laws;
mod ports;
mod prefetch;
mod shortcut_query;
mod wrong_path;

#[path = "../bench/mod.rs"]
mod bench;
