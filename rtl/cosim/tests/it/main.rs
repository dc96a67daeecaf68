//! The hardware against the simulator.

mod generated;
mod random;
mod runs;
mod stlt;
