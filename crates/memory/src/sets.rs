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
    count: usize,
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

/// First word of a set; only [`Sets::base`] makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Base(usize);

/// A way of a set; only [`Sets`] makes one, below its number of ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way(usize);

impl Way {
    #[inline(always)]
    pub fn index(self) -> usize {
        self.0
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
            count,
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
        self.count
    }

    /// Where a set begins.
    #[inline(always)]
    pub fn base(&self, set: usize) -> Base {
        assert!(set < self.count);
        Base(self.from + set * self.stride)
    }

    /// The way of this number.
    #[inline(always)]
    pub fn way(&self, number: usize) -> Way {
        assert!(number < self.ways);
        Way(number)
    }

    /// The word `i` of the set at `base`.
    ///
    /// # Safety
    /// `base` is of these sets and `i < stride`.
    #[inline(always)]
    unsafe fn at(&self, base: Base, i: usize) -> *const u64 {
        debug_assert!(i < self.stride && base.0 + self.stride <= self.raw.len());
        // SAFETY: `base.0 + stride` is at most the length of `raw`: `base()`
        // checked the set, and `new` made `raw` that long.
        unsafe { self.raw.as_ptr().add(base.0 + i) }
    }

    /// As `at`, to change it.
    ///
    /// # Safety
    /// As for `at`.
    #[inline(always)]
    unsafe fn at_mut(&mut self, base: Base, i: usize) -> *mut u64 {
        debug_assert!(i < self.stride && base.0 + self.stride <= self.raw.len());
        // SAFETY: as in `at`.
        unsafe { self.raw.as_mut_ptr().add(base.0 + i) }
    }

    /// The tag of `way`.
    #[inline(always)]
    pub fn tag(&self, base: Base, way: Way) -> u64 {
        // SAFETY: `way.0 < ways`, and a set has `head + 2 * ways` words.
        unsafe { *self.at(base, self.head + 2 * way.0) }
    }

    #[inline(always)]
    pub fn tag_mut(&mut self, base: Base, way: Way) -> &mut u64 {
        // SAFETY: as in `tag`; the borrow is that of `self`.
        unsafe { &mut *self.at_mut(base, self.head + 2 * way.0) }
    }

    /// The ready word of `way`.
    #[inline(always)]
    pub fn ready(&self, base: Base, way: Way) -> u64 {
        // SAFETY: as in `tag`.
        unsafe { *self.at(base, self.head + 2 * way.0 + 1) }
    }

    #[inline(always)]
    pub fn ready_mut(&mut self, base: Base, way: Way) -> &mut u64 {
        // SAFETY: as in `tag_mut`.
        unsafe { &mut *self.at_mut(base, self.head + 2 * way.0 + 1) }
    }

    /// The caller's byte of the set at `base`.
    #[inline(always)]
    pub fn byte(&self, base: Base) -> usize {
        // SAFETY: the head of a set has more than `2 * lanes` bytes.
        unsafe { *self.at(base, 2 * self.lanes / WORD) as u8 as usize }
    }

    #[inline(always)]
    pub fn set_byte(&mut self, base: Base, byte: u8) {
        // SAFETY: as in `byte`.
        unsafe { *self.at_mut(base, 2 * self.lanes / WORD) = u64::from(byte) }
    }

    /// The prints of the set at `base`.
    #[inline(always)]
    fn prints(&self, base: Base) -> &[[u8; CHUNK]] {
        // SAFETY: the first `lanes` bytes of a set, a whole number of chunks;
        // any bits are bytes, which need no alignment; the borrow is that of `self`.
        unsafe { std::slice::from_raw_parts(self.at(base, 0).cast(), self.lanes / CHUNK) }
    }

    /// The orders of the set at `base`, padded.
    #[inline(always)]
    pub fn orders(&mut self, base: Base) -> &mut [[u8; CHUNK]] {
        let chunks = self.lanes / CHUNK;
        // SAFETY: as in `prints`, the `lanes` bytes behind those.
        unsafe {
            std::slice::from_raw_parts_mut(self.at_mut(base, self.lanes / WORD).cast(), chunks)
        }
    }

    /// The first way with this print for which `is_it` holds.
    #[inline(always)]
    pub fn find(&self, base: Base, print: u8, is_it: impl Fn(u64) -> bool) -> Option<Way> {
        for (n, chunk) in self.prints(base).iter().enumerate() {
            let mut found = equal_bytes(chunk, print);
            while found != 0 {
                let way = n * CHUNK + found.trailing_zeros() as usize;
                if way < self.ways && is_it(self.tag(base, Way(way))) {
                    return Some(Way(way));
                }
                found &= found - 1;
            }
        }
        None
    }

    /// Sets the print of a way.
    #[inline(always)]
    pub fn set_print(&mut self, base: Base, way: Way, print: u8) {
        // SAFETY: `way.0 < ways <= lanes`, and a set begins with `lanes` bytes of prints.
        unsafe { *self.at_mut(base, 0).cast::<u8>().add(way.0) = print }
    }

    /// The order of one way.
    #[inline(always)]
    pub fn order(&mut self, base: Base, way: Way) -> &mut u8 {
        // SAFETY: as in `set_print`; the orders are the `lanes` bytes behind the prints.
        unsafe { &mut *self.at_mut(base, 0).cast::<u8>().add(self.lanes + way.0) }
    }

    /// A bit for each way whose order is `order`.
    #[inline(always)]
    fn with_order(&mut self, base: Base, order: u8) -> u64 {
        let mut ways = 0;
        for (n, chunk) in self.orders(base).iter().enumerate() {
            ways |= u64::from(equal_bytes(chunk, order)) << (n * CHUNK);
        }
        ways & (u64::MAX >> (64 - self.ways))
    }

    /// The first way whose order is `order`, and of those the first from way
    /// `from` on, if there is one.
    #[inline(always)]
    pub fn first_with_order(&mut self, base: Base, order: u8, from: usize) -> Option<Way> {
        let with = self.with_order(base, order);
        let behind = with & (u64::MAX << from);
        let ways = if behind != 0 { behind } else { with };
        (with != 0).then(|| Way(ways.trailing_zeros() as usize))
    }
}
