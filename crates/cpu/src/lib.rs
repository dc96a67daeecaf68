//! The out-of-order window: when each instruction enters, executes and retires.
//!
//! Instructions are dispatched in program order, at most `width` a cycle, when
//! the reorder buffer and the load or store queue have room and the front end
//! has delivered them. One executes when its producers are done; there is no
//! limit on execution units. It retires in order, at most `width` a cycle.
//! Memory dependences are predicted perfectly: a load goes ahead of older
//! stores to other bytes and takes its data from the youngest older one to its
//! own, as long as that is not written to the cache. Stores leave in order, one
//! a cycle, having asked for their lines when they retired.
//!
//! Everything is one pass over the program: the times of an op follow from
//! those of older ops, and nothing is ever taken back.
//!
//! What a mispredicted branch would have led to is not in the program. A core may
//! reconstruct its loads from what it has seen of the code (`core/wrong.rs`).
//!
//! Time inside is counted in slots, `width` to a cycle: instruction `i` has a
//! dispatch slot and a retirement slot of its own.

mod core;
mod cycle_stack;
mod predictor;
mod rob;
mod spec;
mod store_queue;
mod tage;
mod wrong_path;

pub use crate::core::{Core, CoreContext, CoreStats, Ran, Stop, TOGETHER};
pub use cycle_stack::{Cause, StackCycles, StackSlots};
pub use predictor::PredictorStats;
pub use spec::{Atomics, CoreSpec, PredictorSpec, WrongPathSpec};
pub use wrong_path::WrongPathStats;
