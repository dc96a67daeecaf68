//! The out-of-order core: computes when each instruction dispatches, executes and retires.
//!
//! Instructions dispatch in program order, at most `width` a cycle. An instruction dispatches when
//! the reorder buffer and the load or store queue have room and the front end has delivered it. It
//! executes when its producers are done and, if the configuration limits them, a port of its class
//! is free. It retires in order, at most `width` a cycle.
//!
//! Memory dependences are predicted perfectly: a load does not wait for older stores to other
//! bytes. If an older store to its bytes is not yet written to the cache, the youngest such store
//! forwards its data. Stores are written in order, one a cycle, or with ports several of one line;
//! their lines are requested when they retire.
//!
//! The core simulates each op once, in program order: the times of an op depend only on older ops,
//! and nothing is rolled back.
//!
//! The program's stream holds no wrong paths. A core may reconstruct the loads of a wrong path from
//! the code that it has seen (`core/wrong.rs`).
//!
//! Time inside the core is counted in slots, `width` to a cycle. Each instruction dispatches in a
//! slot of its own, and retires in a slot of its own.

mod core;
mod cycle_stack;
mod misses;
mod ports;
mod predictor;
mod rob;
mod spec;
mod store_queue;
mod tage;
mod time;
mod wrong_path;

pub use crate::core::{Core, CoreContext, CoreStats, Ran, Stop, TOGETHER};
pub use cycle_stack::{Cause, StackCycles, StackSlots};
pub use predictor::PredictorStats;
pub use spec::{Atomics, CoreSpec, PortsSpec, PredictorSpec, WrongPathSpec};
pub use wrong_path::WrongPathStats;
