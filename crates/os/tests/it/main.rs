//! Tests of the operating system, in one binary: each binary links the crate anew.

mod movers;
mod random;
mod scenarios;
mod stlt;
