//! The operating system's memory manager: frames, placement, address spaces, faults.

mod skeleton;
pub use skeleton::*;
