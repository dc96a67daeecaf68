//! Pagewalk's own compact trace format, `.pwt`.

pub(crate) mod block;
mod code;
mod codec;
pub(crate) mod file;
mod marks;
mod memory;
pub(crate) mod reader;
mod skips;
mod steps;
mod writer;

pub use block::Header;
pub use code::{CodePart, Decoded, Known};
pub(crate) use codec::{get_varint, put_varint};
pub use marks::Mark;
pub use memory::{MemoryPart, RecordedPages};
pub use steps::{Shape, StepEncoder, StepPart, Taken};
pub use writer::{TraceWriter, Written};
