//! What hardware is made of: arrays, occupancy, free intervals.

mod set_assoc;

pub use set_assoc::SetAssoc;
