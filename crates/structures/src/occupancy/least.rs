//! The place that is free first.

use pagewalk_units::Cycle;

use super::{MOST_PLACES, PLACE_BITS};

/// log2 of the places of a block, for up to 64 such blocks; larger sets have 64
/// places in each block.
const BLOCK: u32 = 4;
const LARGE_BLOCK: u32 = 6;
/// Up to this many places, no blocks are used.
const FEW: usize = 32;

/// The minimum of the times at which places become free, cached by blocks of places.
/// Only blocks with changed places are scanned again.
#[derive(Clone, Debug)]
pub(super) struct Least {
    /// One word for each block that combines time and place. Its minimum needs no
    /// branch, and selects the first place among those that are free first.
    words: Vec<u64>,
    /// log2 of the places of a block.
    block: u32,
    /// Changed blocks, a bit each.
    changed: u64,
    /// The minimum at the last scan, a lower bound because times never decrease.
    bound: Cycle,
}

impl Least {
    /// For `places` places.
    pub fn new(places: usize) -> Self {
        let block = if places <= 64 << BLOCK {
            BLOCK
        } else {
            LARGE_BLOCK
        };
        let blocks = places.div_ceil(1 << block);
        Least {
            words: vec![0; if places <= FEW { 0 } else { blocks }],
            block,
            changed: u64::MAX >> (64 - blocks),
            bound: 0,
        }
    }

    /// A time before which no place is free.
    #[inline(always)]
    pub fn bound(&self) -> Cycle {
        self.bound
    }

    /// Marks the time of `place` as changed.
    #[inline(always)]
    pub fn changed(&mut self, place: usize) {
        self.changed |= 1 << (place as u32 >> self.block);
    }

    /// The minimum, and the first place that has it.
    #[inline]
    pub fn of(&mut self, free_at: &[Cycle]) -> (Cycle, usize) {
        let word = if self.words.is_empty() {
            least(free_at, 0)
        } else {
            self.renew(free_at);
            self.words.iter().copied().fold(u64::MAX, u64::min)
        };
        let place = word as usize & (MOST_PLACES - 1);
        self.bound = free_at[place];
        (free_at[place], place)
    }

    /// The minimum over all places except `place`; `Cycle::MAX` if there is no
    /// other.
    pub fn without(&mut self, free_at: &[Cycle], place: usize) -> Cycle {
        let (free, first) = self.of(free_at);
        if first != place {
            return free;
        }
        let others = free_at[..place].iter().chain(&free_at[place + 1..]);
        others.copied().min().unwrap_or(Cycle::MAX)
    }

    /// Scans the changed blocks again.
    #[inline]
    fn renew(&mut self, free_at: &[Cycle]) {
        while self.changed != 0 {
            let n = self.changed.trailing_zeros() as usize;
            self.changed &= self.changed - 1;
            let first = n << self.block;
            let end = free_at.len().min((n + 1) << self.block);
            self.words[n] = least(&free_at[first..end], first);
        }
    }
}

/// The smallest word of these places. `first` is the number of the first one.
#[inline]
fn least(free_at: &[Cycle], first: usize) -> u64 {
    // The early exit prevents vectorisation, because SSE2 has no such minimum.
    let mut least = u64::MAX;
    for (i, &free) in free_at.iter().enumerate() {
        least = least.min(free << PLACE_BITS | (first + i) as u64);
        if least == 0 {
            break;
        }
    }
    least
}
