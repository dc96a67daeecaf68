//! Re-reference interval prediction (RRIP) with 2 bits (Jaleel et al., ISCA 2010), for caches
//! and TLBs.

/// The most distant prediction: such a line or entry is the next victim.
pub const RRPV_MAX: u8 = 3;
/// The prediction of a new line or entry: a long interval.
pub const RRPV_FILL: u8 = 2;
