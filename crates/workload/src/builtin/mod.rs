//! Built-in programs: the real algorithm, executed far enough to know every
//! branch and address, without the data that only passes through.

pub(crate) mod churn;
pub(crate) mod dlrm;
pub(crate) mod graph;
pub(crate) mod gups;
mod heap;
pub(crate) mod kmer;
pub(crate) mod kv;
mod layout;
pub(crate) mod mummer;
mod program;
mod slabs;
pub(crate) mod sysbench;
mod thread;
pub(crate) mod xsbench;

pub use thread::{Start, Touch};
