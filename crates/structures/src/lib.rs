//! Building blocks of hardware models: arrays, occupancy, free intervals,
//! rings, hashes.

mod free_intervals;
mod occupancy;
mod order;
mod recency;
mod ring;
mod rrip;
mod scan;
mod set_assoc;
mod tiered_hash;
mod tiers;
mod unknown;

pub use free_intervals::FreeIntervals;
pub use occupancy::{Occupancy, Slot};
pub use order::{enter, lead, position};
pub use recency::Recency;
pub use ring::Ring;
pub use rrip::{RRPV_FILL, RRPV_MAX};
pub use scan::{equal_bytes, first_byte_equal, most_of_first, prefetch, renew_rank};
pub use set_assoc::SetAssoc;
pub use tiered_hash::{HashKey, MOST_TIERS, TieredHash, mix};
pub use tiers::{Hashes, Large, Placed, Tiers};
pub use unknown::{EPOCHS, Unknown};
