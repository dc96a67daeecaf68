//! Tests of the built-in programs, in one binary: each further binary would link the crate again.

mod builtin;
mod churn;
mod fast_forward;
mod graph;
mod graph_kernels;
mod initialisation;
mod key_value;
mod refusals;
mod requests;
mod shortcut;

#[path = "../common/mod.rs"]
mod common;
#[path = "../small/mod.rs"]
mod small;
#[path = "../waits/mod.rs"]
mod waits;
