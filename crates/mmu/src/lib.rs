//! TLBs, walk caches and the walker.

mod skeleton;
pub use skeleton::*;
