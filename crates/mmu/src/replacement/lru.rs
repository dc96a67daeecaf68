//! Least recently used.

use pagewalk_structures::{Recency, equal_bytes, renew_rank};
use pagewalk_units::Rng;

use super::{HitVisibility, Policy};

/// LRU by a list, for sets of more than [`RANKED`] ways. Free ways are last.
#[derive(Clone, Debug)]
pub(crate) struct Lru {
    order: Recency,
}

impl Lru {
    /// The least recently used way of `set`; a free way if there is any. Needs no search.
    #[inline(always)]
    pub fn last(&self, set: usize) -> usize {
        self.order.last(set)
    }

    /// The ways of `set`, most recently used first.
    #[cfg(test)]
    pub fn order(&self, set: usize) -> impl Iterator<Item = usize> {
        self.order.order(set)
    }
}

impl Policy for Lru {
    type Spec = ();
    const HIT_VISIBILITY: HitVisibility = HitVisibility::NoRepeat;

    fn new(_: &(), sets: usize, ways: usize, _: Rng) -> Self {
        // For narrow sets the array keeps ranks, and the list is unused.
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

/// Most ways of a set that uses [`Ranks`].
pub(crate) const RANKED: usize = 16;

/// Rank of bytes beyond the last way: after all others.
const NO_RANK: u8 = 127;

/// LRU of a narrow set: rank of each way in the order of use, 0 for the most recently used, free
/// ways last. The array stores it next to the bytes that a lookup reads first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranks([u8; RANKED]);

impl Ranks {
    /// All `ways` free. Sets of more than [`RANKED`] ways have no ranks.
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

    /// Makes `way` the most recently used.
    #[inline(always)]
    pub fn used(&mut self, way: usize) {
        let rank = self.0[way % RANKED];
        if rank != 0 {
            renew_rank(&mut self.0, rank);
        }
    }

    /// The least recently used way of a set of `ways`; a free way if there is any.
    #[inline(always)]
    pub fn last(&self, ways: usize) -> usize {
        equal_bytes(&self.0, (ways - 1) as u8).trailing_zeros() as usize
    }

    /// As [`Ranks::last`], and makes the way the most recently used.
    #[inline(always)]
    pub fn replace(&mut self, ways: usize) -> usize {
        let way = self.last(ways);
        renew_rank(&mut self.0, (ways - 1) as u8);
        way
    }

    /// Makes `way` of a set of `ways` the last one: it is free.
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
