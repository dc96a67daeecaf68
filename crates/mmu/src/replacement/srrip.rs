//! Static re-reference interval prediction with hit priority (Jaleel, Theobald, Steely and Emer,
//! "High performance cache replacement using re-reference interval prediction (RRIP)", ISCA 2010,
//! section 4.1): entries that were never used are replaced before used ones.

use pagewalk_structures::{RRPV_FILL, RRPV_MAX, equal_bytes, most_of_first};
use pagewalk_units::Rng;

use super::{HitVisibility, Policy};

/// Ways whose predictions the host compares at once.
const CHUNK: usize = 16;

/// Re-reference prediction value of each way; [`RRPV_MAX`] is the most distant.
#[derive(Clone, Debug)]
pub(crate) struct Srrip {
    /// Prediction values by set, each set padded to whole chunks.
    predictions: Vec<[u8; CHUNK]>,
    chunks: usize,
    ways: usize,
}

impl Srrip {
    fn of(&mut self, set: usize) -> &mut [[u8; CHUNK]] {
        &mut self.predictions[set * self.chunks..][..self.chunks]
    }
}

impl Policy for Srrip {
    type Spec = ();
    /// The first use sets the value to the nearest; further uses change nothing.
    const HIT_VISIBILITY: HitVisibility = HitVisibility::FirstUse;

    fn new(_: &(), sets: usize, ways: usize, _: Rng) -> Self {
        let chunks = ways.div_ceil(CHUNK);
        Srrip {
            predictions: vec![[0; CHUNK]; sets * chunks],
            chunks,
            ways,
        }
    }
    fn filled(&mut self, set: usize, way: usize) {
        self.of(set)[way / CHUNK][way % CHUNK] = RRPV_FILL;
    }
    fn used(&mut self, set: usize, way: usize) {
        self.of(set)[way / CHUNK][way % CHUNK] = 0;
    }
    fn victim(&mut self, set: usize) -> usize {
        let ways = self.ways;
        let of = self.of(set);
        // Ways of chunk `n`.
        let here = |n: usize| (ways - n * CHUNK).min(CHUNK);
        let most = of.iter().enumerate();
        let most = most.map(|(n, p)| most_of_first(p, here(n))).max();
        let most = most.expect("sets have ways");
        // The victim is the first way with the largest value. Ageing all ways until one reaches the
        // maximum is the same as adding the difference. Bytes beyond the last way do not matter.
        let first = of.iter().enumerate().find_map(|(n, p)| {
            let with = equal_bytes(p, most) & (u32::MAX >> (32 - here(n)));
            (with != 0).then(|| n * CHUNK + with.trailing_zeros() as usize)
        });
        let lacks = RRPV_MAX - most;
        for p in of.as_flattened_mut() {
            *p = p.wrapping_add(lacks);
        }
        first.expect("one way has the most")
    }
}
