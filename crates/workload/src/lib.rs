//! Where programs come from: built in, recorded, or a live process.

mod builtin;
mod host;
pub mod live;
mod registry;
mod size;
mod trace;
pub mod x86;

pub use builtin::kv::ycsb;
pub use registry::{Options, ParamInfo, WorkloadInfo, build, workloads};
pub use size::{format_size, parse_size};
pub use trace::*;
