//! The interface between the engine and the plugin inside QEMU: the layout of
//! their shared memory, its records, and the synchronisation between both
//! sides.
//!
//! Each traced process has one [`Segment`]: a header, the static part of its
//! translated code (written once for each block), and a [`RingSlot`] with a ring of
//! 8-byte records for each thread. A ring has one writer (a virtual CPU) and
//! one reader (the engine).

mod channel;
mod consumer;
mod futex;
pub mod needed;
mod producer;
pub mod record;
mod segment;

pub use channel::{receive_fd, send_fd};
pub use consumer::{Consumer, RingError};
pub use futex::{futex_wait, futex_wake};
pub use producer::Producer;
pub use segment::{Control, Geometry, Header, RingSlot, Segment, Trouble, slot_state};
