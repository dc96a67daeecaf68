//! Building blocks of hardware models: arrays, occupancy, free intervals,
//! rings, hashes.

mod crc;
mod free_intervals;
mod occupancy;
mod order;
mod recency;
mod ring;
mod rrip;
mod scan;
mod set_assoc;
mod stale;
mod stale_array;
mod tiered_hash;
mod tiers;
mod xor_fold;

pub use crc::{CRC64_POLYNOMIAL, crc64};
pub use free_intervals::FreeIntervals;
pub use occupancy::{Occupancy, OccupancySlot};
pub use order::{position, push_mru, touch_mru};
pub use recency::Recency;
pub use ring::Ring;
pub use rrip::{RRPV_FILL, RRPV_MAX};
pub use scan::{equal_bytes, first_byte_equal, most_of_first, prefetch, renew_rank};
pub use set_assoc::SetAssoc;
pub use stale::{EPOCHS, Epoch, StaleOutcomes};
pub use stale_array::StaleArray;
pub use tiered_hash::{
    CRC_ROTATION, HashKey, MIX_FACTORS, MIX_SHIFT, MOST_TIERS, NUMBER_BITS, SEED_STEP,
    TierFunction, TieredHash, mix,
};
pub use tiers::{Hashes, Large, Placed, Tiers};
pub use xor_fold::XorFold;
