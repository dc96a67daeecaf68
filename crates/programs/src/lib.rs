//! Built-in programs. Each runs the real algorithm far enough to compute every branch and address, without
//! payload data that affects neither.

mod churn;
mod dlrm;
#[cfg(test)]
mod drain;
mod entry;
mod graph;
mod gups;
mod heap;
mod host;
mod info;
mod kmer;
mod kv;
mod layout;
mod mummer;
mod program;
mod registry;
mod size;
mod slabs;
mod sysbench;
mod thread;
mod xsbench;

pub use entry::Options;
pub use host::available as available_memory;
pub use info::{ParamInfo, WorkloadInfo};
pub use kv::ycsb;
pub use program::Code;
pub use registry::{build, workloads};
pub use size::{format_size, parse_size};
pub use thread::{NONE, Start, Thread, Touch, Value};
