//! Layout of a cache's sets in host memory.

use pagewalk_structures::{equal_bytes, most_of_first, prefetch, renew_rank};

/// Ways whose bytes the host compares at once.
const CHUNK: usize = 16;
/// Words of a host cache line.
const LINE_WORDS: usize = 8;
/// Bytes of a word.
const WORD: usize = 8;
/// Most ways of a set: one bit each in a word.
const MOST_WAYS: usize = 64;

/// The words of all sets. The words of one set lie together and begin at a host cache line, since
/// the host's own cache misses dominate for large caches:
///
/// - a print of each way: a one-byte hash. A search compares the prints of all ways at once, and
///   then only the tags of the ways whose print matches;
/// - the order of each way: a byte whose meaning depends on the replacement policy;
/// - one more byte for the caller, in a word of its own;
/// - for each way its tag and, next to it, its ready word.
///
/// Prints and orders are padded to a multiple of [`CHUNK`] with bytes that belong to no way.
#[derive(Debug)]
pub(crate) struct Sets {
    raw: Vec<u64>,
    /// Start of the first set in `raw`.
    from: usize,
    /// Start of the last set: no [`Base`] beyond it is used.
    last: usize,
    count: usize,
    ways: usize,
    /// Bytes of the prints, and of the orders.
    lanes: usize,
    /// Words before the first way's tag.
    head: usize,
    /// Words of a set.
    stride: usize,
    /// A bit for each way.
    all: u64,
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

/// First word of a set; only [`Sets::base`] creates one. It has no meaning in another [`Sets`],
/// which rejects it if it lies beyond its last set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Base(usize);

/// A way of a set; only [`Sets`] creates one, below its number of ways and so below [`MOST_WAYS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way(usize);

impl Way {
    /// Number of the way.
    #[inline(always)]
    pub fn index(self) -> usize {
        self.0
    }
}

impl Sets {
    /// All words zero.
    pub fn new(count: usize, ways: usize) -> Self {
        assert!(count > 0 && (1..=MOST_WAYS).contains(&ways));
        let lanes = ways.next_multiple_of(CHUNK);
        // Tag and ready word of a way never lie in two host lines.
        let head = (2 * lanes / WORD + 1).next_multiple_of(2);
        let stride = (head + 2 * ways).next_multiple_of(LINE_WORDS);
        // Behind the last set there is room for the ways that other sets may have.
        let room = LINE_WORDS + 2 * MOST_WAYS;
        let words = count.checked_mul(stride).and_then(|w| w.checked_add(room));
        let raw = vec![0; words.expect("more sets than words that can be addressed")];
        let from = raw.as_ptr().align_offset(64).min(LINE_WORDS);
        Sets {
            raw,
            from,
            last: from + (count - 1) * stride,
            count,
            ways,
            lanes,
            head,
            stride,
            all: u64::MAX >> (64 - ways),
        }
    }

    /// Associativity.
    #[inline(always)]
    pub fn ways(&self) -> usize {
        self.ways
    }

    /// Number of sets.
    pub fn count(&self) -> usize {
        self.count
    }

    /// First word of a set.
    #[inline(always)]
    pub fn base(&self, set: usize) -> Base {
        assert!(set < self.count);
        let base = self.from + set * self.stride;
        // SAFETY: `last` is `from + (count - 1) * stride`, and `set <= count - 1`; no product is
        // larger than the one that `new` has checked. Stated here so that later uses are not
        // checked again.
        unsafe { std::hint::assert_unchecked(base <= self.last) };
        Base(base)
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
    /// `i < head + 2 * MOST_WAYS`.
    #[inline(always)]
    unsafe fn at(&self, base: Base, i: usize) -> *const u64 {
        self.check(base);
        // SAFETY: `base.0 <= last`, and `new` made `raw` `stride + 2 * MOST_WAYS`
        // words longer than `last`, where `stride >= head`.
        unsafe { self.raw.as_ptr().add(base.0 + i) }
    }

    /// As `at`, mutable.
    ///
    /// # Safety
    /// As for `at`.
    #[inline(always)]
    unsafe fn at_mut(&mut self, base: Base, i: usize) -> *mut u64 {
        self.check(base);
        // SAFETY: as in `at`.
        unsafe { self.raw.as_mut_ptr().add(base.0 + i) }
    }

    /// Panics on the base of a set beyond the last one.
    #[inline(always)]
    fn check(&self, base: Base) {
        assert!(base.0 <= self.last, "a set of another cache");
    }

    /// The tag of `way`.
    #[inline(always)]
    pub fn tag(&self, base: Base, way: Way) -> u64 {
        // SAFETY: `way.0 < MOST_WAYS`, of whichever sets it is.
        unsafe { *self.at(base, self.head + 2 * way.0) }
    }

    /// As [`Sets::tag`], mutable.
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

    /// As [`Sets::ready`], mutable.
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

    /// Sets the caller's byte of the set at `base`.
    #[inline(always)]
    pub fn set_byte(&mut self, base: Base, byte: u8) {
        // SAFETY: as in `byte`.
        unsafe { *self.at_mut(base, 2 * self.lanes / WORD) = u64::from(byte) }
    }

    /// Chunk `n` of the prints of the set at `base`.
    #[inline(always)]
    fn prints(&self, base: Base, n: usize) -> &[u8; CHUNK] {
        debug_assert!(n < self.lanes / CHUNK);
        // SAFETY: a set begins with `lanes` bytes of prints, a whole number of
        // chunks, of which `n` is one; any bits are bytes, which need no
        // alignment; the borrow is that of `self`.
        unsafe { &*self.at(base, 0).cast::<[u8; CHUNK]>().add(n) }
    }

    /// Chunk `n` of the orders of the set at `base`, padded.
    #[inline(always)]
    fn orders(&self, base: Base, n: usize) -> &[u8; CHUNK] {
        debug_assert!(n < self.lanes / CHUNK);
        let chunks = self.lanes / CHUNK;
        // SAFETY: as in `prints`, of the `lanes` bytes behind those.
        unsafe { &*self.at(base, 0).cast::<[u8; CHUNK]>().add(chunks + n) }
    }

    /// As `orders`, mutable.
    #[inline(always)]
    fn orders_mut(&mut self, base: Base, n: usize) -> &mut [u8; CHUNK] {
        debug_assert!(n < self.lanes / CHUNK);
        let chunks = self.lanes / CHUNK;
        // SAFETY: as in `prints`, of the `lanes` bytes behind those.
        unsafe { &mut *self.at_mut(base, 0).cast::<[u8; CHUNK]>().add(chunks + n) }
    }

    /// True if all ways are in one chunk, as in most caches: no loop over chunks is needed.
    #[inline(always)]
    fn narrow(&self) -> bool {
        self.lanes == CHUNK
    }

    /// The first way with this print for which `is_it` holds.
    #[inline(always)]
    pub fn find(&self, base: Base, print: u8, is_it: impl Fn(u64) -> bool) -> Option<Way> {
        if self.narrow() {
            return self.find_in(base, 0, print, is_it);
        }
        (0..self.lanes / CHUNK).find_map(|n| self.find_in(base, n, print, &is_it))
    }

    #[inline(always)]
    fn find_in(&self, base: Base, n: usize, print: u8, is_it: impl Fn(u64) -> bool) -> Option<Way> {
        let mut found = equal_bytes(self.prints(base, n), print);
        while found != 0 {
            let way = n * CHUNK + found.trailing_zeros() as usize;
            if way < self.ways && is_it(self.tag(base, Way(way))) {
                return Some(Way(way));
            }
            found &= found - 1;
        }
        None
    }

    /// The first way with this print, if there is one. Its tag may still differ.
    #[inline(always)]
    pub fn first_with_print(&self, base: Base, print: u8) -> Option<Way> {
        (0..self.lanes / CHUNK).find_map(|n| {
            let found = equal_bytes(self.prints(base, n), print);
            let way = n * CHUNK + found.trailing_zeros() as usize;
            (found != 0 && way < self.ways).then_some(Way(way))
        })
    }

    /// Prefetches the tag of `way` into the host's caches.
    #[inline(always)]
    pub fn prefetch_tag(&self, base: Base, way: Way) {
        // SAFETY: as in `tag`.
        prefetch(unsafe { &*self.at(base, self.head + 2 * way.0) });
    }

    /// Sets the print of a way.
    #[inline(always)]
    pub fn set_print(&mut self, base: Base, way: Way, print: u8) {
        // SAFETY: byte `way.0 < 64` is in word 7 or before, within `2 * MOST_WAYS`.
        unsafe { *self.at_mut(base, 0).cast::<u8>().add(way.0) = print }
    }

    /// The order of one way.
    #[inline(always)]
    pub fn order(&mut self, base: Base, way: Way) -> &mut u8 {
        // SAFETY: as in `set_print`; the `lanes` bytes before are of the head.
        unsafe { &mut *self.at_mut(base, 0).cast::<u8>().add(self.lanes + way.0) }
    }

    /// The order of one way, read-only.
    #[inline(always)]
    pub fn rank(&self, base: Base, way: Way) -> u8 {
        // SAFETY: as in `order`.
        unsafe { *self.at(base, 0).cast::<u8>().add(self.lanes + way.0) }
    }

    /// A bit for each way whose order is `order`.
    #[inline(always)]
    fn with_order(&self, base: Base, order: u8) -> u64 {
        let with = if self.narrow() {
            u64::from(equal_bytes(self.orders(base, 0), order))
        } else {
            self.with_order_of_many(base, order)
        };
        with & self.all
    }

    #[inline(never)]
    fn with_order_of_many(&self, base: Base, order: u8) -> u64 {
        (0..self.lanes / CHUNK)
            .map(|n| u64::from(equal_bytes(self.orders(base, n), order)) << (n * CHUNK))
            .fold(0, |all, ways| all | ways)
    }

    /// The highest order of a way.
    #[inline(always)]
    fn most(&self, base: Base) -> u8 {
        let ways = self.ways;
        if self.narrow() {
            return most_of_first(self.orders(base, 0), ways);
        }
        (0..self.lanes / CHUNK)
            .map(|n| most_of_first(self.orders(base, n), (ways - n * CHUNK).min(CHUNK)))
            .fold(0, u8::max)
    }

    /// Adds `by` to all orders.
    #[inline(always)]
    pub fn age(&mut self, base: Base, by: u8) {
        let chunks = if self.narrow() { 1 } else { self.lanes / CHUNK };
        for n in 0..chunks {
            for o in self.orders_mut(base, n) {
                *o = o.wrapping_add(by);
            }
        }
    }

    /// For orders that are LRU ranks: moves the way of rank `rank` to rank 0.
    #[inline(always)]
    pub fn renew(&mut self, base: Base, rank: u8) {
        if self.narrow() {
            renew_rank(self.orders_mut(base, 0), rank);
        } else {
            self.renew_among_many(base, rank);
        }
    }

    #[inline(never)]
    fn renew_among_many(&mut self, base: Base, rank: u8) {
        for n in 0..self.lanes / CHUNK {
            renew_rank(self.orders_mut(base, n), rank);
        }
    }

    /// For orders that are LRU ranks: returns the way of rank `rank`, if there is one, and moves it
    /// to rank 0.
    // Tests only once whether the set is narrow: with a call between two tests, the host would
    // execute both.
    #[inline(always)]
    pub fn take(&mut self, base: Base, rank: u8) -> Option<Way> {
        if !self.narrow() {
            return self.take_among_many(base, rank);
        }
        let with = u64::from(equal_bytes(self.orders(base, 0), rank)) & self.all;
        renew_rank(self.orders_mut(base, 0), rank);
        first_from(with, 0)
    }

    #[inline(never)]
    fn take_among_many(&mut self, base: Base, rank: u8) -> Option<Way> {
        let way = self.first_with_order(base, rank, 0);
        self.renew(base, rank);
        way
    }

    /// Prefetches the head of the set at `base` into the host's caches.
    #[inline(always)]
    pub fn prefetch(&self, base: Base) {
        // SAFETY: the first word of the set at `base`, which has some.
        prefetch(unsafe { &*self.at(base, 0) });
    }

    /// As [`Sets::prefetch`], for the set's first three lines, which hold a whole set of up to nine
    /// ways. The entry that a search finds and the victim of a fill are then present, too.
    #[inline(always)]
    pub fn prefetch_ways(&self, base: Base) {
        for line in 0..3 {
            // SAFETY: `2 * LINE_WORDS` is below `2 * MOST_WAYS`. In a small cache the last
            // ones may be another set's, or none: they are not read.
            prefetch(unsafe { &*self.at(base, line * LINE_WORDS) });
        }
    }

    /// The highest order of a way, and the first way from way `from` on that has it, wrapping
    /// around.
    #[inline(always)]
    pub fn oldest(&self, base: Base, from: usize) -> (u8, Option<Way>) {
        if !self.narrow() {
            return self.oldest_of_many(base, from);
        }
        let orders = self.orders(base, 0);
        let most = most_of_first(orders, self.ways);
        let with = u64::from(equal_bytes(orders, most)) & self.all;
        (most, first_from(with, from))
    }

    #[inline(never)]
    fn oldest_of_many(&self, base: Base, from: usize) -> (u8, Option<Way>) {
        let most = self.most(base);
        (most, self.first_with_order(base, most, from))
    }

    /// The first way whose order is `order`, starting at way `from` and wrapping around, if there
    /// is one.
    #[inline(always)]
    pub fn first_with_order(&self, base: Base, order: u8, from: usize) -> Option<Way> {
        first_from(self.with_order(base, order), from)
    }
}

/// The first of the ways in the bit set `with`, starting at way `from` and wrapping around.
#[inline(always)]
fn first_from(with: u64, from: usize) -> Option<Way> {
    let behind = with & (u64::MAX << from);
    let ways = if behind != 0 { behind } else { with };
    (with != 0).then(|| Way(ways.trailing_zeros() as usize))
}

#[cfg(test)]
mod tests {
    use super::{MOST_WAYS, Sets};

    /// One set of one way.
    fn small() -> Sets {
        Sets::new(1, 1)
    }

    #[test]
    #[should_panic(expected = "a set of another cache")]
    fn a_set_of_larger_sets_is_not_read() {
        let large = Sets::new(1 << 12, 16);
        let (base, way) = (large.base((1 << 12) - 1), large.way(0));
        assert_eq!(small().tag(base, way), 0);
    }

    #[test]
    #[should_panic(expected = "a set of another cache")]
    fn a_set_of_larger_sets_is_not_written() {
        let large = Sets::new(1 << 12, 16);
        let base = large.base((1 << 12) - 1);
        small().set_byte(base, 1);
    }

    #[test]
    #[should_panic(expected = "a set of another cache")]
    fn a_set_of_larger_sets_is_not_searched() {
        let large = Sets::new(1 << 12, 16);
        assert_eq!(small().find(large.base((1 << 12) - 1), 0, |_| true), None);
    }

    /// Every word that a way of other sets addresses lies in `raw`.
    #[test]
    fn a_way_of_wider_sets_stays_within() {
        let way = Sets::new(1, MOST_WAYS).way(MOST_WAYS - 1);
        for (count, ways) in [(1, 1), (3, 7), (2, 16), (5, 17), (1, MOST_WAYS)] {
            let mut sets = Sets::new(count, ways);
            let base = sets.base(count - 1);
            let raw = sets.raw.as_ptr_range();
            let ready = std::ptr::from_mut(sets.ready_mut(base, way));
            assert!(raw.contains(&ready.cast_const()));
            let order = std::ptr::from_mut(sets.order(base, way));
            assert!(raw.contains(&order.cast_const().cast()));
            assert_eq!(sets.tag(base, way), 0);
        }
    }
}
