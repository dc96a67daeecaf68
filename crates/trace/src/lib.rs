//! Traces: recorded programs, in our format and in those of others.

mod champsim;
mod convert;
mod drmemtrace;
mod gem5;
mod info;
mod lackey;
mod open;
mod order;
mod partial;
mod pin;
mod pump;
mod pwt;
mod record;
mod registers;
mod vectors;
pub mod x86;

pub use convert::{Converted, convert_trace};
pub use info::{TraceCheck, TraceInfo, check_trace, trace_info};
pub use open::{Format, OpenOptions, open_trace, trace_threads};
pub use order::Order;
pub use pagewalk_input::{Compression, FileError};
pub use partial::PartialFile;
pub use pwt::{
    CodePart, Decoded, Header, Known, Mark, MemoryPart, RecordedPages, Shape, StepEncoder,
    StepPart, Taken, TraceWriter, Written,
};
pub use record::{Recording, Visit, drive, record, record_into};
pub use vectors::{BlockVectors, DIMENSIONS, MOST_STRETCHES, Stretch, block_vectors};
