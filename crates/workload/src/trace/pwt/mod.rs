//! Pagewalk's own compact trace format, `.pwt`.

pub(crate) mod block;
pub(crate) mod code;
mod codec;
pub(crate) mod file;
mod marks;
pub(crate) mod reader;
pub(crate) mod steps;
mod writer;

pub use block::Header;
pub use marks::Mark;
pub use writer::{TraceWriter, Written};
