//! The hardware against the simulator.

mod generated;
mod l2p;
mod random;
mod runs;
mod stlt;
