//! The out-of-order window.

mod skeleton;
pub use skeleton::*;
