//! Random replacement.

use pagewalk_units::Rng;
use rand::RngExt;

use super::{HitVisibility, Policy};

/// Every way is equally likely.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    draws: Rng,
    ways: u32,
}

impl Policy for Random {
    type Spec = ();
    const HIT_VISIBILITY: HitVisibility = HitVisibility::NoRepeat;

    fn new(_: &(), _: usize, ways: usize, draws: Rng) -> Self {
        let ways = ways as u32;
        Random { draws, ways }
    }
    fn filled(&mut self, _: usize, _: usize) {}
    fn used(&mut self, _: usize, _: usize) {}
    fn victim(&mut self, _: usize) -> usize {
        self.draws.random_range(0..self.ways) as usize
    }
}
