//! Times from which places are permanently free, and the place that is free first.

use pagewalk_units::Cycle;

use super::{MOST_PLACES, PLACE_BITS};

/// Up to this many places, no blocks are used.
const FEW: usize = 16;

/// The times from which places are permanently free, and their minimum. Many places are divided into
/// blocks, and only blocks with changed places are scanned again.
#[derive(Clone, Debug)]
pub(super) struct Least {
    /// One word for each place that combines time and place. The minimum of words needs no branch,
    /// and selects the first place among those that are free first.
    words: Vec<u64>,
    /// The minimum of each block; empty without blocks.
    blocks: Vec<u64>,
    /// log2 of the places of a block.
    block: u32,
    /// Changed blocks, a bit each.
    changed: u64,
    /// The minimum at the last scan, a lower bound because times never decrease.
    bound: Cycle,
}

impl Least {
    /// `places` places, all free from time 0 on.
    pub fn new(places: usize) -> Self {
        // About as many blocks as places in a block, and at most 64 blocks.
        let block = match places {
            0..=64 => 3,
            65..=1024 => 4,
            _ => 6,
        };
        let blocks = places.div_ceil(1 << block);
        Least {
            words: (0..places as u64).collect(),
            blocks: vec![0; if places <= FEW { 0 } else { blocks }],
            block,
            changed: u64::MAX >> (64 - blocks),
            bound: 0,
        }
    }

    /// Number of places.
    #[inline(always)]
    pub fn places(&self) -> usize {
        self.words.len()
    }

    /// Time from which `place` is permanently free.
    #[inline(always)]
    pub fn time(&self, place: usize) -> Cycle {
        self.words[place] >> PLACE_BITS
    }

    /// Sets that time, which must not decrease.
    #[inline(always)]
    pub fn set(&mut self, place: usize, time: Cycle) {
        self.words[place] = time << PLACE_BITS | place as u64;
        self.changed |= 1 << (place as u32 >> self.block);
    }

    /// A time before which no place is free.
    #[inline(always)]
    pub fn bound(&self) -> Cycle {
        self.bound
    }

    /// The minimum, and the first place that has it.
    #[inline]
    pub fn first(&mut self) -> (Cycle, usize) {
        let word = if self.blocks.is_empty() {
            least(&self.words)
        } else {
            self.renew()
        };
        self.bound = word >> PLACE_BITS;
        (self.bound, word as usize & (MOST_PLACES - 1))
    }

    /// The minimum over all places except `place`; `Cycle::MAX` if there is no
    /// other.
    pub fn without(&mut self, place: usize) -> Cycle {
        let (free, first) = self.first();
        if first != place {
            return free;
        }
        let others = self.words[..place].iter().chain(&self.words[place + 1..]);
        others.min().map_or(Cycle::MAX, |word| word >> PLACE_BITS)
    }

    /// Scans the changed blocks again. Returns the minimum of all blocks.
    #[inline(never)]
    fn renew(&mut self) -> u64 {
        while self.changed != 0 {
            let n = self.changed.trailing_zeros() as usize;
            self.changed &= self.changed - 1;
            let first = n << self.block;
            let end = self.words.len().min((n + 1) << self.block);
            self.blocks[n] = least(&self.words[first..end]);
        }
        least(&self.blocks)
    }
}

/// The smallest of these words.
#[inline]
fn least(words: &[u64]) -> u64 {
    // Four at a time by hand: SSE2 has no such minimum, and vectorised code would be longer.
    let (fours, rest) = words.as_chunks();
    let mut least = u64::MAX;
    for &[a, b, c, d] in fours {
        least = least.min(a.min(b).min(c.min(d)));
    }
    for &word in rest {
        least = least.min(word);
    }
    least
}
