//! Where the words of a cache's sets lie in host memory.

use pagewalk_structures::equal_bytes;

/// Ways whose bytes are compared at once.
const CHUNK: usize = 16;
/// Words of a host cache line.
const LINE_WORDS: usize = 8;
/// Bytes of a word.
const WORD: usize = 8;

/// The words of all sets. Those of one set lie together and begin at a host
/// cache line, since on large caches the host's own misses are what costs:
///
/// - a print of each way, a byte of hash by which a search looks at all ways
///   at once and at the tags of those only that may be the right one;
/// - the order of each way, a byte whose meaning is the replacement policy's;
/// - one more byte for the caller, in a word of its own;
/// - of each way its tag and, right behind it, its ready word.
///
/// Prints and orders are padded to a multiple of [`CHUNK`] with bytes that
/// belong to no way.
#[derive(Debug)]
pub(crate) struct Sets {
    raw: Vec<u64>,
    /// Where the first set begins in `raw`.
    from: usize,
    ways: usize,
    /// Bytes of the prints, and of the orders.
    lanes: usize,
    /// Words before the first way's tag.
    head: usize,
    /// Words of a set.
    stride: usize,
}

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
        let lanes = ways.next_multiple_of(CHUNK);
        // Tag and ready word of a way never lie in two host lines.
        let head = (2 * lanes / WORD + 1).next_multiple_of(2);
        let stride = (head + 2 * ways).next_multiple_of(LINE_WORDS);
        let raw = vec![0; count * stride + LINE_WORDS];
        let from = raw.as_ptr().align_offset(64).min(LINE_WORDS);
        Sets {
            raw,
            from,
            ways,
            lanes,
            head,
            stride,
        }
    }

    /// Lines of a set.
    #[inline(always)]
    pub fn ways(&self) -> usize {
        self.ways
    }

    /// How many sets there are.
    pub fn count(&self) -> usize {
        (self.raw.len() - LINE_WORDS) / self.stride
    }

    /// First word of a set.
    #[inline(always)]
    pub fn base(&self, set: usize) -> usize {
        let base = self.from + set * self.stride;
        debug_assert!(base + self.stride <= self.raw.len());
        base
    }

    /// Position of the tag of `way` in the set at `base`.
    #[inline(always)]
    pub fn tag_at(&self, base: usize, way: usize) -> usize {
        base + self.head + 2 * way
    }

    #[inline(always)]
    pub fn word(&self, i: usize) -> u64 {
        self.raw[i]
    }

    #[inline(always)]
    pub fn word_mut(&mut self, i: usize) -> &mut u64 {
        &mut self.raw[i]
    }

    /// The caller's byte of the set at `base`.
    #[inline(always)]
    pub fn byte(&self, base: usize) -> usize {
        self.raw[base + 2 * self.lanes / WORD] as u8 as usize
    }

    #[inline(always)]
    pub fn set_byte(&mut self, base: usize, byte: u8) {
        self.raw[base + 2 * self.lanes / WORD] = u64::from(byte);
    }

    /// Prints and orders of the set at `base`.
    #[inline(always)]
    fn bytes(&self, base: usize) -> &[[u8; CHUNK]] {
        let words = &self.raw[base..base + 2 * self.lanes / WORD];
        // SAFETY: `words` are `2 * lanes` bytes, a whole number of chunks; any
        // bits are bytes, which need no alignment; the borrow is that of `words`.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), 2 * self.lanes / CHUNK) }
    }

    #[inline(always)]
    fn bytes_mut(&mut self, base: usize) -> &mut [[u8; CHUNK]] {
        let words = &mut self.raw[base..base + 2 * self.lanes / WORD];
        // SAFETY: as in `bytes`.
        unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), 2 * self.lanes / CHUNK) }
    }

    /// The first way with this print for which `is_it` holds.
    #[inline(always)]
    pub fn find(&self, base: usize, print: u8, is_it: impl Fn(u64) -> bool) -> Option<usize> {
        for (n, chunk) in self.bytes(base)[..self.lanes / CHUNK].iter().enumerate() {
            let mut found = equal_bytes(chunk, print);
            while found != 0 {
                let way = n * CHUNK + found.trailing_zeros() as usize;
                if way < self.ways && is_it(self.raw[self.tag_at(base, way)]) {
                    return Some(way);
                }
                found &= found - 1;
            }
        }
        None
    }

    /// Sets the print of a way.
    #[inline(always)]
    pub fn set_print(&mut self, base: usize, way: usize, print: u8) {
        self.bytes_mut(base)[way / CHUNK][way % CHUNK] = print;
    }

    /// The orders of the set at `base`, padded.
    #[inline(always)]
    pub fn orders(&mut self, base: usize) -> &mut [[u8; CHUNK]] {
        let chunks = self.lanes / CHUNK;
        &mut self.bytes_mut(base)[chunks..]
    }

    /// The order of one way.
    #[inline(always)]
    pub fn order(&mut self, base: usize, way: usize) -> &mut u8 {
        &mut self.orders(base)[way / CHUNK][way % CHUNK]
    }

    /// A bit for each way whose order is `order`.
    #[inline(always)]
    pub fn with_order(&mut self, base: usize, order: u8) -> u64 {
        let mut ways = 0;
        for (n, chunk) in self.orders(base).iter().enumerate() {
            ways |= u64::from(equal_bytes(chunk, order)) << (n * CHUNK);
        }
        ways & (u64::MAX >> (64 - self.ways))
    }
}
