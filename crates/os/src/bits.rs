//! Bit sets of frames and of blocks.

use pagewalk_structures::prefetch;

/// A set of numbers below a bound: a bit map with summary layers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bits {
    /// `layers[0]` has one bit for each number. A bit of `layers[i + 1]` is set
    /// if the corresponding word of `layers[i]` is not zero.
    layers: Vec<Vec<u64>>,
    count: u64,
}

impl Bits {
    /// An empty set. The host backs memory only for words that are written.
    pub fn new(bound: u64) -> Self {
        let mut layers = Vec::new();
        let mut n = bound as usize;
        loop {
            n = n.div_ceil(64);
            layers.push(vec![0; n]);
            if n <= 1 {
                break;
            }
        }
        Bits { layers, count: 0 }
    }
    /// The set with the bit map `words`. Members must be below `bound`.
    pub fn of(bound: u64, mut words: Vec<u64>) -> Self {
        let mut set = Bits::new(bound);
        words.resize(set.layers[0].len(), 0);
        set.count = words.iter().map(|w| u64::from(w.count_ones())).sum();
        set.layers[0] = words;
        for i in 1..set.layers.len() {
            let (below, above) = set.layers.split_at_mut(i);
            for (j, word) in below[i - 1].iter().enumerate() {
                above[0][j / 64] |= u64::from(*word != 0) << (j % 64);
            }
        }
        set
    }
    /// Number of members.
    #[inline]
    pub fn count(&self) -> u64 {
        self.count
    }
    /// True if `i` is a member.
    #[inline]
    pub fn has(&self, i: u64) -> bool {
        self.layers[0]
            .get((i >> 6) as usize)
            .is_some_and(|w| w >> (i & 63) & 1 != 0)
    }
    /// Prefetches the word of `i` into the host's caches.
    #[inline]
    pub fn host_prefetch(&self, i: u64) {
        if let Some(word) = self.layers[0].get((i >> 6) as usize) {
            prefetch(word);
        }
    }
    /// Adds `i`, which must not be a member.
    #[inline]
    pub fn insert(&mut self, mut i: u64) {
        debug_assert!(!self.has(i));
        self.count += 1;
        for layer in &mut self.layers {
            let w = &mut layer[(i >> 6) as usize];
            let before = *w;
            *w |= 1 << (i & 63);
            if before != 0 {
                return;
            }
            i >>= 6;
        }
    }
    /// Removes the member `i`.
    #[inline]
    pub fn remove(&mut self, mut i: u64) {
        debug_assert!(self.has(i));
        self.count -= 1;
        for layer in &mut self.layers {
            let w = &mut layer[(i >> 6) as usize];
            *w &= !(1 << (i & 63));
            if *w != 0 {
                return;
            }
            i >>= 6;
        }
    }
    /// The lowest member.
    #[inline]
    pub fn first(&self) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let mut i = 0;
        for layer in self.layers.iter().rev() {
            i = i << 6 | u64::from(layer[i as usize].trailing_zeros());
        }
        Some(i)
    }
    /// Number of members in `from..to`.
    pub fn between(&self, from: u64, to: u64) -> u64 {
        if from >= to {
            return 0;
        }
        let (first, last) = ((from >> 6) as usize, ((to - 1) >> 6) as usize);
        let head = !0 << (from & 63);
        let tail = !0 >> (63 - ((to - 1) & 63));
        let words = &self.layers[0];
        if first == last {
            return u64::from((words[first] & head & tail).count_ones());
        }
        let inner: u64 = words[first + 1..last]
            .iter()
            .map(|w| u64::from(w.count_ones()))
            .sum();
        inner
            + u64::from((words[first] & head).count_ones())
            + u64::from((words[last] & tail).count_ones())
    }
    /// The members in `from..to`, in ascending order.
    pub fn members(&self, from: u64, to: u64) -> impl Iterator<Item = u64> {
        let words = &self.layers[0][(from >> 6) as usize..to.div_ceil(64) as usize];
        let bases = (from & !63..).step_by(64);
        bases
            .zip(words)
            .flat_map(|(base, &word)| {
                let mut left = word;
                std::iter::from_fn(move || {
                    let next = (left != 0).then(|| base + u64::from(left.trailing_zeros()));
                    left &= left.wrapping_sub(1);
                    next
                })
            })
            .filter(move |i| (from..to).contains(i))
    }
}
