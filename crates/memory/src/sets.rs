//! Where the words of a cache's sets lie in host memory.

/// The words of all sets. Those of one set lie together and begin at a host
/// cache line, since on large caches the host's own misses are what costs:
/// `ways` tags, `ways` ready words, `ways` half words of order.
#[derive(Debug)]
pub(crate) struct Sets {
    raw: Vec<u64>,
    /// Where the first set begins in `raw`.
    from: usize,
    ways: usize,
    /// Words of a set.
    stride: usize,
}

/// Words of a host cache line.
const LINE_WORDS: usize = 8;

impl Clone for Sets {
    fn clone(&self) -> Self {
        let mut new = Sets::new(self.count(), self.ways);
        let words = self.count() * self.stride;
        new.raw[new.from..new.from + words]
            .copy_from_slice(&self.raw[self.from..self.from + words]);
        new
    }
}

impl Sets {
    /// All words zero.
    pub fn new(count: usize, ways: usize) -> Self {
        let stride = (2 * ways + ways.div_ceil(2)).next_multiple_of(LINE_WORDS);
        let raw = vec![0; count * stride + LINE_WORDS];
        let from = raw.as_ptr().align_offset(64).min(LINE_WORDS);
        Sets {
            raw,
            from,
            ways,
            stride,
        }
    }

    /// Lines of a set.
    #[inline(always)]
    pub fn ways(&self) -> usize {
        self.ways
    }

    /// The set whose first word is at `base`.
    #[inline(always)]
    pub fn set_of(&self, base: usize) -> usize {
        (base - self.from) / self.stride
    }

    /// How many sets there are.
    pub fn count(&self) -> usize {
        (self.raw.len() - LINE_WORDS) / self.stride
    }

    /// First word of a set.
    #[inline(always)]
    pub fn base(&self, set: usize) -> usize {
        let base = self.from + set * self.stride;
        assert!(base + self.stride <= self.raw.len());
        base
    }

    #[inline(always)]
    pub fn tags(&self, base: usize) -> &[u64] {
        &self.raw[base..base + self.ways]
    }

    #[inline(always)]
    pub fn word(&self, i: usize) -> u64 {
        self.raw[i]
    }

    #[inline(always)]
    pub fn word_mut(&mut self, i: usize) -> &mut u64 {
        &mut self.raw[i]
    }

    /// The order values of the set at `base`.
    #[inline(always)]
    pub fn order(&mut self, base: usize) -> &mut [u32] {
        let words = &mut self.raw[base + 2 * self.ways..base + self.stride];
        debug_assert!(words.len() * 2 >= self.ways);
        // SAFETY: the words of a set behind its tags and ready words are at
        // least `ways` half words (see `new`), are used as half words only, and
        // any bits are a u32; the borrow is that of `words`.
        unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), self.ways) }
    }
}
