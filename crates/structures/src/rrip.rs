//! Re-reference interval prediction of 2 bits (Jaleel et al., ISCA 2010), of caches and TLBs.

/// The most distant prediction: what goes next.
pub const RRPV_MAX: u8 = 3;
/// What a new line or entry is filled with: a long interval.
pub const RRPV_FILL: u8 = 2;
