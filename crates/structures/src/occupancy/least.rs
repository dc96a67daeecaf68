//! The place that is free first.

use pagewalk_units::Cycle;

use super::{MOST_PLACES, PLACE_BITS};

/// Places of a block, as a power of two, where 64 blocks are enough for all; else of
/// 64 places each.
const BLOCK: u32 = 4;
const LARGE_BLOCK: u32 = 6;
/// So few places have no blocks.
const FEW: usize = 32;

/// The least of the times at which places are free, kept by blocks of places: only
/// those in which one has changed are looked at again.
#[derive(Clone, Debug)]
pub(super) struct Least {
    /// Time and place in one word, whose minimum takes no branch and is the first
    /// place of those free first; one a block.
    words: Vec<u64>,
    /// log2 of the places of a block.
    block: u32,
    /// Blocks that have changed, a bit each.
    changed: u64,
    /// The least time when it was last looked for: none becomes less.
    bound: Cycle,
}

impl Least {
    /// Of so many places.
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

    /// No place is free before this.
    #[inline(always)]
    pub fn bound(&self) -> Cycle {
        self.bound
    }

    /// The time of `place` is another one.
    #[inline(always)]
    pub fn changed(&mut self, place: usize) {
        self.changed |= 1 << (place as u32 >> self.block);
    }

    /// The least time, and the first place that has it.
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

    /// The least time of the places other than `place`; the latest there is if there
    /// is no other.
    pub fn without(&mut self, free_at: &[Cycle], place: usize) -> Cycle {
        let (free, first) = self.of(free_at);
        if first != place {
            return free;
        }
        let others = free_at[..place].iter().chain(&free_at[place + 1..]);
        others.copied().min().unwrap_or(Cycle::MAX)
    }

    /// Looks at the blocks again in which a place has changed.
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

/// The least word of these places, the first of which has number `first`.
#[inline]
fn least(free_at: &[Cycle], first: usize) -> u64 {
    // With its early end the loop does not become vector code, which in SSE2 has no
    // such minimum.
    let mut least = u64::MAX;
    for (i, &free) in free_at.iter().enumerate() {
        least = least.min(free << PLACE_BITS | (first + i) as u64);
        if least == 0 {
            break;
        }
    }
    least
}
