//! What hardware is made of: arrays, occupancy, free intervals, rings.

mod free_intervals;
mod occupancy;
mod recency;
mod ring;
mod scan;
mod set_assoc;

pub use free_intervals::FreeIntervals;
pub use occupancy::{Occupancy, Slot};
pub use recency::Recency;
pub use ring::Ring;
pub use scan::{equal_bytes, first_byte_equal, prefetch, renew_rank};
pub use set_assoc::SetAssoc;
