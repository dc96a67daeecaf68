//! The buddy allocator: free blocks of 4 KB to 1 GB in bit maps.
//!
//! A block of order `k` has 2^k frames and is aligned to its size. For each order, one bit
//! for each block records whether it is free as a whole at this order. Summaries of 64 bits
//! each locate the lowest free block in a few steps. In total this takes two bits for each
//! frame, and the host backs only words that were written.

use crate::bits::Bits;

/// Largest order: 2^18 frames are 1 GB.
pub const MAX_ORDER: u8 = 18;

/// Orders below this one have bit maps that are worth prefetching: with 128 GB, the bit map
/// of this order has 128 KB.
const PREFETCHED_ORDERS: usize = 5;

/// The free frames of physical memory.
///
/// An allocation takes the lowest block of the smallest order that is large enough and
/// frees the upper halves. Placement therefore depends only on the sequence of requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Buddy {
    orders: Vec<Bits>,
    frames: u64,
    free: u64,
}

impl Buddy {
    /// `frames` frames, none of them free. [`Buddy::free`] adds free ones.
    pub fn new(frames: u64) -> Self {
        let orders = (0..=MAX_ORDER).map(|k| Bits::new(frames >> k)).collect();
        Buddy {
            orders,
            frames,
            free: 0,
        }
    }

    /// A buddy allocator of `frames` frames. `free` has one bit for each frame, set if it
    /// is free.
    pub(crate) fn with_free(frames: u64, mut free: Vec<u64>) -> Self {
        /// The lower bit of each pair of blocks that merge.
        const LOWER: u64 = 0x5555_5555_5555_5555;
        let mut buddy = Buddy::new(frames);
        buddy.free = free.iter().map(|w| u64::from(w.count_ones())).sum();
        for (order, bits) in buddy.orders.iter_mut().enumerate() {
            let mut above = vec![0; free.len().div_ceil(2)];
            if order < usize::from(MAX_ORDER) {
                for (i, word) in free.iter_mut().enumerate() {
                    let pairs = *word & *word >> 1 & LOWER;
                    *word &= !(pairs | pairs << 1);
                    above[i / 2] |= every_other(pairs) << (32 * (i & 1));
                }
            }
            *bits = Bits::of(frames >> order, free);
            free = above;
        }
        buddy
    }

    /// Total number of frames.
    pub fn frames(&self) -> u64 {
        self.frames
    }
    /// Free frames.
    pub fn free_frames(&self) -> u64 {
        self.free
    }
    /// Free blocks of exactly `order`.
    pub fn blocks(&self, order: u8) -> u64 {
        self.orders[usize::from(order)].count()
    }
    /// Number of requests of `order` that could succeed now.
    pub fn available(&self, order: u8) -> u64 {
        (order..=MAX_ORDER)
            .map(|k| self.blocks(k) << (k - order))
            .sum()
    }
    /// Share of free memory outside free blocks of at least `order`, 0 to 1 (Linux
    /// mm/vmstat.c, `unusable_free_index`). Without free memory it is 1, as in Linux.
    pub fn unusable_free_index(&self, order: u8) -> f64 {
        if self.free == 0 {
            return 1.0;
        }
        let usable = self.available(order) << order;
        (self.free - usable) as f64 / self.free as f64
    }

    /// Allocates a block of `order`. Returns its first frame, which is aligned to the
    /// block. `None` if no block of this or a higher order is free.
    #[inline]
    pub fn alloc(&mut self, order: u8) -> Option<u64> {
        let found = (order..=MAX_ORDER).find(|&k| self.blocks(k) > 0)?;
        let block = self.orders[usize::from(found)].first()?;
        self.orders[usize::from(found)].remove(block);
        let frame = block << found;
        for k in order..found {
            self.orders[usize::from(k)].insert((frame >> k) + 1);
        }
        self.free -= 1 << order;
        Some(frame)
    }

    /// Allocates a block of `order` from the lowest block of order `whole` that is partly
    /// in use, else from the lowest entirely free one. Blocks in use are thus filled one
    /// after the other, and the rest of memory stays whole. Frames from `last` on are used
    /// only if nothing else is free.
    #[inline]
    pub fn alloc_within(&mut self, order: u8, whole: u8, last: u64) -> Option<u64> {
        let lowest = |from: u8, to: u8| {
            let first = |k: u8| Some((self.orders[usize::from(k)].first()? << k, k));
            (from..to).filter_map(first).min()
        };
        let (frame, found) = match lowest(order, whole) {
            Some(part) if part.0 < last => part,
            part => match (part, lowest(whole.max(order), MAX_ORDER + 1)) {
                (Some(part), Some(whole)) if whole.0 >= last => part,
                (_, Some(whole)) => whole,
                (part, None) => part?,
            },
        };
        self.orders[usize::from(found)].remove(frame >> found);
        for k in order..found {
            self.orders[usize::from(k)].insert((frame >> k) + 1);
        }
        self.free -= 1 << order;
        Some(frame)
    }

    /// Prefetches the bits of `frame`, which will probably be allocated. The bit maps of
    /// low orders are large and rarely in the host's caches.
    #[inline]
    pub fn host_prefetch(&self, frame: u64) {
        for (order, bits) in self.orders[..PREFETCHED_ORDERS].iter().enumerate() {
            bits.host_prefetch(frame >> order);
        }
    }

    /// Allocates the block of `order` at `frame`. Returns false if it is not entirely free.
    pub fn alloc_at(&mut self, frame: u64, order: u8) -> bool {
        debug_assert_eq!(frame & ((1 << order) - 1), 0);
        let Some(found) =
            (order..=MAX_ORDER).find(|&k| self.orders[usize::from(k)].has(frame >> k))
        else {
            return false;
        };
        self.orders[usize::from(found)].remove(frame >> found);
        for k in order..found {
            self.orders[usize::from(k)].insert((frame >> k) ^ 1);
        }
        self.free -= 1 << order;
        true
    }

    /// True if the block of `order` that holds `frame` is entirely free.
    pub fn is_free(&self, frame: u64, order: u8) -> bool {
        (order..=MAX_ORDER).any(|k| self.orders[usize::from(k)].has(frame >> k))
    }

    /// Number of free frames in the block of `order` at `frame`.
    pub fn free_in(&self, frame: u64, order: u8) -> u64 {
        if self.is_free(frame, order) {
            return 1 << order;
        }
        (0..order)
            .map(|k| {
                let bits = &self.orders[usize::from(k)];
                bits.between(frame >> k, (frame >> k) + (1 << (order - k))) << k
            })
            .sum()
    }

    /// Frees the block of `order` at `frame` and merges it with free buddies.
    #[inline]
    pub fn free(&mut self, frame: u64, order: u8) {
        debug_assert!(frame + (1 << order) <= self.frames && frame & ((1 << order) - 1) == 0);
        debug_assert_eq!(self.free_in(frame, order), 0, "a frame has one owner");
        self.free += 1 << order;
        let mut order = order;
        let mut block = frame >> order;
        while order < MAX_ORDER && self.orders[usize::from(order)].has(block ^ 1) {
            self.orders[usize::from(order)].remove(block ^ 1);
            block >>= 1;
            order += 1;
        }
        self.orders[usize::from(order)].insert(block);
    }

    /// Frees the frames `from..to`, in the largest aligned blocks.
    pub fn free_range(&mut self, from: u64, to: u64) {
        let mut at = from;
        while at < to {
            let fits = (to - at).ilog2() as u8;
            let aligned = at.trailing_zeros().min(u32::from(MAX_ORDER)) as u8;
            let order = fits.min(aligned);
            self.free(at, order);
            at += 1 << order;
        }
    }
}

/// The even bits of `x`, compacted.
fn every_other(x: u64) -> u64 {
    let mut x = x & 0x5555_5555_5555_5555;
    x = (x | x >> 1) & 0x3333_3333_3333_3333;
    x = (x | x >> 2) & 0x0f0f_0f0f_0f0f_0f0f;
    x = (x | x >> 4) & 0x00ff_00ff_00ff_00ff;
    x = (x | x >> 8) & 0x0000_ffff_0000_ffff;
    (x | x >> 16) & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Buddy, MAX_ORDER};

    #[test]
    fn halves_come_from_the_smallest_block_and_merge_again() {
        let mut b = Buddy::new(1 << 19);
        b.free_range(0, 1 << 19);
        assert_eq!(b.blocks(18), 2);
        assert_eq!(b.alloc(0), Some(0));
        assert_eq!(b.alloc(9), Some(512));
        assert_eq!(b.alloc(0), Some(1), "from the block that is broken already");
        assert_eq!(b.available(18), 1);
        b.free(0, 0);
        b.free(512, 9);
        b.free(1, 0);
        assert_eq!((b.blocks(18), b.free_frames()), (2, 1 << 19));
    }

    #[test]
    fn blocks_in_use_are_filled_from_the_lowest_on() {
        let all = 1 << 14;
        let mut b = Buddy::new(all);
        b.free_range(0, all);
        for block in [1, 3] {
            assert!(b.alloc_at(block * 512 + 5, 0));
        }
        let got: Vec<u64> = (0..511).filter_map(|_| b.alloc_within(0, 9, all)).collect();
        let expected: Vec<u64> = (512..1024).filter(|&f| f != 512 + 5).collect();
        assert_eq!(got, expected);
        assert_eq!(b.alloc_within(1, 9, all), Some(3 * 512));
        assert_eq!(b.alloc(0), Some(3 * 512 + 4), "the smallest block");
        // Then the lowest unused block.
        while b.alloc_within(0, 9, all).is_some_and(|f| f != 0) {}
        assert_eq!(b.alloc_within(0, 9, all), Some(1));
    }

    #[test]
    fn frames_come_from_the_end_last() {
        // Four blocks of 2 MB: the second and the fourth are partly in use.
        let mut b = Buddy::new(2048);
        b.free_range(0, 2048);
        assert!(b.alloc_at(512 + 7, 0) && b.alloc_at(1536 + 7, 0));
        let got: Vec<u64> = (0..2046)
            .map(|_| b.alloc_within(0, 9, 1536).expect("free"))
            .collect();
        assert_eq!(b.alloc_within(0, 9, 1536), None);
        let block = |n: u64| (n * 512..(n + 1) * 512).filter(|f| f % 1024 != 512 + 7);
        let expected: Vec<u64> = [1, 0, 2, 3].into_iter().flat_map(block).collect();
        assert_eq!(got, expected);
        assert_eq!(b.free_frames(), 0);
    }

    #[test]
    fn the_index_is_the_share_outside_free_blocks() {
        let mut b = Buddy::new(1 << 18);
        b.free_range(0, 1 << 18);
        assert_eq!(b.unusable_free_index(9), 0.0);
        assert!(b.alloc_at(5 * 512 + 7, 0));
        assert_eq!(b.unusable_free_index(9), 511.0 / ((1 << 18) - 1) as f64);
    }

    #[derive(Clone, Debug)]
    enum BuddyOp {
        Alloc(u8),
        Within(u8),
        At(u64, u8),
        Free(usize),
    }

    fn step() -> impl Strategy<Value = BuddyOp> {
        prop_oneof![
            (0u8..=MAX_ORDER).prop_map(|k| BuddyOp::Alloc(k.saturating_sub(6))),
            (0u8..9).prop_map(BuddyOp::Within),
            (any::<u64>(), 0u8..10).prop_map(|(f, k)| BuddyOp::At(f, k)),
            any::<usize>().prop_map(BuddyOp::Free),
            any::<usize>().prop_map(BuddyOp::Free),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        /// For any set of free frames, the blocks equal those after allocating the other
        /// frames one by one.
        #[test]
        fn free_frames_merge_into_the_same_blocks_at_once(
            taken in prop::collection::btree_set(0u64..3 << 12, 0..60),
            whole in any::<u16>(),
        ) {
            const FRAMES: u64 = 3 << 12;
            let mut free = vec![!0u64; FRAMES as usize / 64];
            let mut one_by_one = Buddy::new(FRAMES);
            one_by_one.free_range(0, FRAMES);
            // Some words are allocated entirely.
            let words = (0..FRAMES / 64).filter(|w| whole >> (w % 16) & 1 == 1);
            let frames = words.flat_map(|w| w * 64..(w + 1) * 64).chain(taken);
            for frame in frames {
                if free[frame as usize / 64] >> (frame % 64) & 1 == 1 {
                    free[frame as usize / 64] &= !(1 << (frame % 64));
                    prop_assert!(one_by_one.alloc_at(frame, 0));
                }
            }
            prop_assert_eq!(Buddy::with_free(FRAMES, free), one_by_one);
        }

        /// Compares with an array of owners.
        #[test]
        fn no_frame_has_two_owners_and_all_comes_back(steps in prop::collection::vec(step(), 1..200)) {
            const FRAMES: u64 = 3 << 12;
            let mut b = Buddy::new(FRAMES);
            b.free_range(0, FRAMES);
            let whole: Vec<u64> = (0..=MAX_ORDER).map(|k| b.blocks(k)).collect();
            let mut taken = vec![false; FRAMES as usize];
            let mut held = Vec::new();
            for s in steps {
                let got = match s {
                    BuddyOp::Alloc(k) => {
                        let got = b.alloc(k);
                        if got.is_none() {
                            let any = (0..FRAMES >> k).any(|i| taken[(i << k) as usize..((i + 1) << k) as usize].iter().all(|t| !t));
                            prop_assert!(!any, "refused with a free block of order {}", k);
                        }
                        got.map(|f| (f, k))
                    }
                    BuddyOp::Within(k) => {
                        let (any, got) = (b.available(k) > 0, b.alloc_within(k, 9, FRAMES / 2));
                        prop_assert_eq!(got.is_some(), any);
                        got.map(|f| (f, k))
                    }
                    BuddyOp::At(f, k) => {
                        let f = ((f % FRAMES) >> k) << k;
                        let free = taken[f as usize..(f + (1 << k)) as usize].iter().all(|t| !t);
                        prop_assert_eq!(b.alloc_at(f, k), free);
                        free.then_some((f, k))
                    }
                    BuddyOp::Free(i) if !held.is_empty() => {
                        let (f, k): (u64, u8) = held.swap_remove(i % held.len());
                        b.free(f, k);
                        taken[f as usize..(f + (1 << k)) as usize].fill(false);
                        None
                    }
                    BuddyOp::Free(_) => None,
                };
                if let Some((f, k)) = got {
                    prop_assert_eq!(f & ((1 << k) - 1), 0);
                    for t in &mut taken[f as usize..(f + (1 << k)) as usize] {
                        prop_assert!(!*t, "handed out twice");
                        *t = true;
                    }
                    held.push((f, k));
                }
                let free = taken.iter().filter(|t| !**t).count() as u64;
                prop_assert_eq!(b.free_frames(), free);
                prop_assert_eq!(b.free_in(0, 12), taken[..4096].iter().filter(|t| !**t).count() as u64);
            }
            for (f, k) in held {
                b.free(f, k);
            }
            prop_assert_eq!(whole, (0..=MAX_ORDER).map(|k| b.blocks(k)).collect::<Vec<_>>());
        }
    }
}
