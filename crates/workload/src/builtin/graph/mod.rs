//! Graph kernels: breadth-first search and its kin, over graphs from several
//! sources, laid out in memory in several ways.

pub mod source;
