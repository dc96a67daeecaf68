//! Least recently used.

use pagewalk_structures::{Recency, equal_bytes, renew_rank};
use pagewalk_units::Rng;

use super::{HitVisibility, Policy};

/// By list: of sets of any number of ways. Ways not in use are last.
#[derive(Clone, Debug)]
pub(crate) struct Lru {
    order: Recency,
}

impl Lru {
    /// The way of `set` that was used longest ago, a free one if there is any: it is known
    /// without a search.
    #[inline(always)]
    pub fn last(&self, set: usize) -> usize {
        self.order.last(set)
    }

    /// The ways of `set`, the last used one first.
    #[cfg(test)]
    pub fn order(&self, set: usize) -> impl Iterator<Item = usize> {
        self.order.order(set)
    }
}

impl Policy for Lru {
    type Spec = ();
    const HIT_VISIBILITY: HitVisibility = HitVisibility::NoRepeat;

    fn new(_: &(), sets: usize, ways: usize, _: Rng) -> Self {
        // In narrow sets the array keeps ranks, and there is no list.
        let (sets, ways) = if ways <= RANKED { (0, 1) } else { (sets, ways) };
        Lru {
            order: Recency::new(sets, ways),
        }
    }
    #[inline(always)]
    fn filled(&mut self, set: usize, way: usize) {
        self.order.touch_mru(set, way);
    }
    #[inline(always)]
    fn used(&mut self, set: usize, way: usize) {
        self.order.touch_mru(set, way);
    }
    #[inline(always)]
    fn victim(&mut self, set: usize) -> usize {
        self.order.last(set)
    }
    #[inline]
    fn freed(&mut self, set: usize, way: usize) {
        self.order.trail(set, way);
    }
}

/// Most ways of a set that is ordered by [`Ranks`].
pub(crate) const RANKED: usize = 16;

/// The rank of bytes that belong to no way: behind all others.
const NO_RANK: u8 = 127;

/// The same of a set of few ways: the rank of each in the order of use, 0 the last used one,
/// ways not in use last. The array keeps them beside what a lookup reads first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranks([u8; RANKED]);

impl Ranks {
    /// All of `ways` free; of more than [`RANKED`] there are no ranks.
    pub fn new(ways: usize) -> Self {
        let none = ways > RANKED;
        Ranks(std::array::from_fn(|way| {
            if none || way >= ways {
                NO_RANK
            } else {
                way as u8
            }
        }))
    }

    /// The entry in `way` is used.
    #[inline(always)]
    pub fn used(&mut self, way: usize) {
        let rank = self.0[way % RANKED];
        if rank != 0 {
            renew_rank(&mut self.0, rank);
        }
    }

    /// Of a set of `ways`: the way used longest ago, a free one if there is any.
    #[inline(always)]
    pub fn last(&self, ways: usize) -> usize {
        equal_bytes(&self.0, (ways - 1) as u8).trailing_zeros() as usize
    }

    /// The same, which counts as used from now on.
    #[inline(always)]
    pub fn replace(&mut self, ways: usize) -> usize {
        let way = self.last(ways);
        renew_rank(&mut self.0, (ways - 1) as u8);
        way
    }

    /// The way of a set of `ways` is free.
    pub fn freed(&mut self, ways: usize, way: usize) {
        let rank = self.0[way];
        for r in &mut self.0 {
            *r -= u8::from(*r > rank && usize::from(*r) < ways);
        }
        self.0[way] = (ways - 1) as u8;
    }

    /// The rank of `way`.
    pub fn of(&self, way: usize) -> u8 {
        self.0[way]
    }
}
