//! Pagewalk's own compact trace format, `.pwt`.

pub(crate) mod block;
mod codec;
mod marks;
pub(crate) mod reader;
mod writer;

pub use block::Header;
pub use marks::Mark;
pub use writer::{TraceWriter, Written};
