//! Where programs come from: built in, recorded, or a live process.

mod builtin;
mod registry;
mod size;

pub use registry::{Options, ParamInfo, WorkloadInfo, build, workloads};
pub use size::{format_size, parse_size};
