//! Traces: recorded programs, in our format and in others'.

mod champsim;
mod convert;
mod fault;
mod info;
pub(crate) mod input;
mod lackey;
mod open;
pub(crate) mod order;
mod pump;
pub(crate) mod pwt;
mod record;
mod registers;

pub use convert::{Converted, convert_trace};
pub use fault::TraceError;
pub use info::{TraceCheck, TraceInfo, check_trace, trace_info};
pub use input::Compression;
pub use open::{Format, OpenOptions, open_trace};
pub use pwt::{Header, Mark, TraceWriter, Written};
pub use record::{Recording, record, record_into};
