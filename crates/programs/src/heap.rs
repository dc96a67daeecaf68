//! Model of glibc's `malloc`: it computes addresses, and holds no data.
//!
//! Small requests come from a heap that grows by `brk`. A step is the missing bytes plus `M_TOP_PAD`, rounded
//! up to pages: 132 KiB for small chunks. Requests of at least `M_MMAP_THRESHOLD` get their own mapping.
//!
//! | freed chunk | goes to |
//! |---|---|
//! | up to 1 KiB, the first seven of its size | thread cache (tcache): a last-in, first-out list per size |
//! | up to 128 bytes, otherwise | fast bin of its size: last in, first out, not merged with neighbours |
//! | any other | merged with free neighbours, reused by best fit |
//!
//! A request of 1 KiB or a large free chunk merges the chunks of all fast bins. Source: glibc 2.36,
//! `malloc/malloc.c`.
//!
//! [`Heap::jemalloc`] models jemalloc instead.

use std::collections::{BTreeMap, VecDeque};

use arrayvec::ArrayVec;
use pagewalk_stream::{Backing, Event, ThreadId};
use pagewalk_units::VirtAddr;

use crate::layout::Layout;
use crate::slabs::Slabs;
use crate::thread::Thread;

/// `M_TOP_PAD`.
const TOP_PAD: u64 = 128 << 10;
/// `M_MMAP_THRESHOLD`.
const MMAP_THRESHOLD: u64 = 128 << 10;
/// Smallest chunk. The heap always keeps this much free at its end.
const MIN_CHUNK: u64 = 32;
/// Size field before each chunk's payload.
const HEADER: u64 = 8;
/// Largest chunk that the thread cache holds.
const LISTED: u64 = 1040;
/// `TCACHE_FILL_COUNT`: chunks per size in the thread cache.
pub(super) const LISTED_EACH: usize = 7;
/// Largest chunk of a fast bin (`get_max_fast`).
const FAST: u64 = 128;
/// The fast bins are emptied by requests from here on (`largebin_index`), and by merged chunks from the
/// second size on (`FASTBIN_CONSOLIDATION_THRESHOLD`).
const LARGE: u64 = 1024;
const CONSOLIDATE: u64 = 64 << 10;
const PAGE: u64 = 4096;
/// Bytes of jemalloc's first extent. Later extents are larger, which changes no touched page.
const EXTENT: u64 = 2 << 20;

/// Destination of a freed object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bin {
    /// The thread cache's list of its size.
    Listed,
    /// The fast bin of its size.
    Fast,
    /// Merged with its free neighbours.
    Merged,
    /// Unmapped: it has its own mapping.
    Mapped,
}

/// A chunk of a fast bin that was merged with its neighbours. Addresses and sizes in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Merged {
    /// Address of the size field, 8 bytes before the object.
    pub at: u64,
    /// Size of the chunk.
    pub size: u64,
    /// Address and size of the free chunk before it.
    pub before: Option<(u64, u64)>,
    /// Size of the free chunk behind it.
    pub behind: Option<u64>,
    /// True if it was the last chunk of the heap.
    pub last: bool,
}

/// Allocator of one program (see the module). Sizes and addresses in bytes.
pub struct Heap {
    layout: Layout,
    /// End of the allocated part, and of the part that `brk` mapped.
    top: u64,
    brk: u64,
    /// End of the initialised part: the program writes what it allocates.
    touched: u64,
    /// The thread cache, by size in units of 16 bytes.
    lists: Vec<ArrayVec<u64, LISTED_EACH>>,
    /// Fast bins, by size in units of 16 bytes.
    fast: [Vec<u64>; FAST as usize / 16 + 1],
    /// Merged chunks of fast bins that [`merged`](Self::merged) has not returned. `None`: not recorded.
    merged: Option<VecDeque<Merged>>,
    /// Other free chunks by address, and by size and address.
    free: BTreeMap<u64, u64>,
    sizes: BTreeMap<(u64, u64), ()>,
    /// jemalloc's state. It replaces all other fields except `top` and `brk`.
    slabs: Option<Slabs>,
    /// Events and first touches not yet handed to the thread.
    pending: VecDeque<HeapEvent>,
}

enum HeapEvent {
    Event(Event),
    Touch { at: u64, bytes: u64 },
}

/// Bytes of the chunk for a request of `bytes`.
pub const fn chunk(bytes: u64) -> u64 {
    let with_header = (bytes + HEADER).next_multiple_of(16);
    if with_header < MIN_CHUNK {
        MIN_CHUNK
    } else {
        with_header
    }
}

impl Heap {
    /// An empty heap. `layout` places large requests.
    pub fn new(mut layout: Layout) -> Self {
        let start = crate::layout::HEAP;
        Heap {
            // The first chunk's payload is aligned to 16 bytes.
            top: start + 16 - HEADER,
            brk: start,
            touched: start + 16 - HEADER,
            lists: vec![ArrayVec::new(); LISTED as usize / 16 + 1],
            fast: Default::default(),
            merged: None,
            free: BTreeMap::new(),
            sizes: BTreeMap::new(),
            slabs: None,
            pending: layout.events().into_iter().map(HeapEvent::Event).collect(),
            layout,
        }
    }

    /// An empty heap of jemalloc: pages come from mappings of 2 MiB.
    pub fn jemalloc(layout: Layout) -> Self {
        let start = crate::layout::HEAP.next_multiple_of(EXTENT);
        Heap {
            slabs: Some(Slabs::default()),
            top: start,
            brk: start,
            touched: start,
            ..Heap::new(layout)
        }
    }

    /// Initial stack pointer of `thread`. The event that maps the stack is queued with the others.
    pub fn stack(&mut self, thread: ThreadId) -> u64 {
        let stack = self.layout.stack(thread);
        self.pending
            .extend(self.layout.events().into_iter().map(HeapEvent::Event));
        stack
    }

    /// Reserves address space for a mapping of `bytes`. The caller emits the event.
    pub fn reserve(&mut self, bytes: u64) -> u64 {
        self.layout.reserve(bytes)
    }

    /// Address of a new object of `bytes`, aligned to 16.
    pub fn malloc(&mut self, bytes: u64) -> u64 {
        if let Some(mut slabs) = self.slabs.take() {
            let at = slabs.malloc(bytes, |pages| self.pages(pages));
            self.slabs = Some(slabs);
            return at;
        }
        if bytes >= MMAP_THRESHOLD {
            self.consolidate();
            return self.map(bytes);
        }
        let need = chunk(bytes);
        if let Some(at) = self
            .lists
            .get_mut((need / 16) as usize)
            .and_then(ArrayVec::pop)
        {
            return at + HEADER;
        }
        if let Some(at) = self.take_fast(need) {
            return at + HEADER;
        }
        if need >= LARGE {
            self.consolidate();
        }
        if let Some(at) = self.fitting(need) {
            return at + HEADER;
        }
        if self.top + need + MIN_CHUNK > self.brk {
            if self.consolidate()
                && let Some(at) = self.fitting(need)
            {
                return at + HEADER;
            }
            if self.top + need + MIN_CHUNK > self.brk {
                self.grow(need);
            }
        }
        let at = self.top;
        self.top += need;
        at + HEADER
    }

    /// Takes a chunk from the fast bin. Further chunks of the bin move to the thread cache.
    fn take_fast(&mut self, need: u64) -> Option<u64> {
        let index = (need / 16) as usize;
        let bin = self.fast.get_mut(index)?;
        let at = bin.pop()?;
        let list = &mut self.lists[index];
        while !list.is_full()
            && let Some(next) = bin.pop()
        {
            list.push(next);
        }
        Some(at)
    }

    /// `malloc_consolidate`: returns true if any fast bin had a chunk.
    fn consolidate(&mut self) -> bool {
        let mut any = false;
        for index in 0..self.fast.len() {
            let size = 16 * index as u64;
            // Last in, first out.
            for at in std::mem::take(&mut self.fast[index]).into_iter().rev() {
                if let Some(merged) = &mut self.merged {
                    let before = self.free.range(..at).next_back();
                    let before = before.map(|(from, bytes)| (*from, *bytes));
                    merged.push_back(Merged {
                        at,
                        size,
                        before: before.filter(|(from, bytes)| from + bytes == at),
                        behind: self.free.get(&(at + size)).copied(),
                        last: at + size == self.top,
                    });
                }
                self.give(at, size);
                any = true;
            }
        }
        any
    }

    /// Starts to record merges of fast-bin chunks for [`merged`](Self::merged).
    pub fn record_merges(&mut self) {
        self.merged.get_or_insert_default();
    }

    /// The next merged fast-bin chunk, in the order of the merges.
    pub fn merged(&mut self) -> Option<Merged> {
        self.merged.as_mut()?.pop_front()
    }

    /// Takes the smallest free chunk that is large enough.
    fn fitting(&mut self, need: u64) -> Option<u64> {
        if let Some((&(size, at), ())) = self.sizes.range((need, 0)..).next() {
            self.take(at, size);
            if size - need >= MIN_CHUNK {
                self.give(at + need, size - need);
            }
            return Some(at);
        }
        None
    }

    /// True if the size of an object is stored in front of it, as in glibc.
    pub fn has_headers(&self) -> bool {
        self.slabs.is_none()
    }

    /// True if the next object of `bytes` comes from the thread cache.
    pub fn is_listed(&self, bytes: u64) -> bool {
        if let Some(slabs) = &self.slabs {
            return slabs.is_listed(bytes);
        }
        let list = self.lists.get((chunk(bytes) / 16) as usize);
        list.is_some_and(|l| !l.is_empty())
    }

    /// Destination of an object of `bytes` that is freed now.
    pub fn bin_of(&self, bytes: u64) -> Bin {
        let size = chunk(bytes);
        match self.lists.get((size / 16) as usize) {
            Some(list) if !list.is_full() => Bin::Listed,
            _ if bytes >= MMAP_THRESHOLD => Bin::Mapped,
            _ if size <= FAST => Bin::Fast,
            _ => Bin::Merged,
        }
    }

    /// If the next object of `bytes` comes from a fast bin: the objects that move from that bin to the thread
    /// cache, in order.
    pub fn is_stashed(&self, bytes: u64) -> Option<ArrayVec<u64, LISTED_EACH>> {
        if self.slabs.is_some() || self.is_listed(bytes) {
            return None;
        }
        let (_, others) = self.fast.get((chunk(bytes) / 16) as usize)?.split_last()?;
        let others = others.iter().rev().map(|at| at + HEADER);
        Some(others.take(LISTED_EACH).collect())
    }

    /// Allocates `count` consecutive objects of `bytes` each and returns the first. Equals `count` calls of
    /// [`malloc`](Self::malloc) on a heap without free chunks. `bytes` must be below the mapping threshold.
    pub fn malloc_many(&mut self, bytes: u64, count: u64) -> u64 {
        debug_assert!(self.slabs.is_none());
        let need = chunk(bytes);
        let first = self.top + HEADER;
        for _ in 0..count {
            if self.top + need + MIN_CHUNK > self.brk {
                self.grow(need);
            }
            self.top += need;
        }
        first
    }

    /// Equals one call of [`malloc`](Self::malloc) per size, for sizes of which none was ever freed.
    #[inline]
    pub fn malloc_each<const N: usize>(&mut self, sizes: [u64; N]) -> [u64; N] {
        let all: u64 = sizes.iter().map(|s| chunk(*s)).sum();
        if self.slabs.is_some() || !self.free.is_empty() || self.top + all + MIN_CHUNK > self.brk {
            return sizes.map(|s| self.malloc(s));
        }
        sizes.map(|s| {
            let at = self.top;
            self.top += chunk(s);
            at + HEADER
        })
    }

    /// Frees the object of `bytes` at `at`.
    pub fn free(&mut self, at: u64, bytes: u64) {
        if let Some(slabs) = &mut self.slabs {
            return slabs.free(at, bytes);
        }
        if bytes >= MMAP_THRESHOLD {
            let event = Event::Unmap {
                at: VirtAddr(at & !(PAGE - 1)),
                bytes: (bytes + 16).next_multiple_of(PAGE),
            };
            self.pending.push_back(HeapEvent::Event(event));
            return;
        }
        let (at, size) = (at - HEADER, chunk(bytes));
        match self.bin_of(bytes) {
            Bin::Listed => self.lists[(size / 16) as usize].push(at),
            Bin::Fast => self.fast[(size / 16) as usize].push(at),
            Bin::Merged | Bin::Mapped => {
                if self.give(at, size) >= CONSOLIDATE {
                    self.consolidate();
                }
            }
        }
    }

    /// Allocates a separate mapping. The chunk's header is its first 16 bytes.
    fn map(&mut self, bytes: u64) -> u64 {
        let bytes = (bytes + 16).next_multiple_of(PAGE);
        let at = self.layout.reserve(bytes);
        self.pending.push_back(HeapEvent::Event(Event::Map {
            at: VirtAddr(at),
            bytes,
            writable: true,
            backing: Backing::Anonymous,
        }));
        self.pending.push_back(HeapEvent::Touch { at, bytes });
        at + 16
    }

    fn take(&mut self, at: u64, size: u64) {
        self.free.remove(&at);
        self.sizes.remove(&(size, at));
    }

    /// Frees a chunk and merges it with its free neighbours. Returns the size of the merged chunk.
    fn give(&mut self, mut at: u64, mut size: u64) -> u64 {
        if let Some((&before, &length)) = self.free.range(..at).next_back()
            && before + length == at
        {
            self.take(before, length);
            (at, size) = (before, size + length);
        }
        if let Some(&length) = self.free.get(&(at + size)) {
            self.take(at + size, length);
            size += length;
        }
        if at + size == self.top {
            self.top = at;
            return self.brk - at;
        }
        self.free.insert(at, size);
        self.sizes.insert((size, at), ());
        size
    }

    /// Allocates `bytes` of new pages for jemalloc.
    fn pages(&mut self, bytes: u64) -> u64 {
        if self.top + bytes > self.brk {
            self.touch();
            self.extend((self.top + bytes - self.brk).next_multiple_of(EXTENT));
        }
        self.top += bytes;
        self.top - bytes
    }

    fn grow(&mut self, need: u64) {
        self.touch();
        let missing = self.top + need + TOP_PAD + MIN_CHUNK - self.brk;
        self.extend(missing.next_multiple_of(PAGE));
    }

    fn extend(&mut self, bytes: u64) {
        self.pending.push_back(HeapEvent::Event(Event::Map {
            at: VirtAddr(self.brk),
            bytes,
            writable: true,
            backing: Backing::Anonymous,
        }));
        self.brk += bytes;
    }

    /// Queues the initialisation of everything allocated since the last call.
    fn touch(&mut self) {
        if self.top > self.touched {
            let (at, bytes) = (self.touched, self.top - self.touched);
            self.pending.push_back(HeapEvent::Touch { at, bytes });
            self.touched = self.top;
        }
    }

    /// True if events or touches are queued: check it in allocation loops.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Emits queued mappings and growth, and initialises what was allocated.
    pub async fn emit_pending(&mut self, thread: &mut Thread) {
        self.touch();
        while let Some(event) = self.pending.pop_front() {
            match event {
                HeapEvent::Event(event) => thread.event(event).await,
                HeapEvent::Touch { at, bytes } => thread.touch(at, bytes).await,
            }
        }
    }

    /// [`emit_pending`](Self::emit_pending) without initialisation, for the measured part: the program's own stores
    /// touch the memory.
    pub async fn emit_pending_untouched(&mut self, thread: &mut Thread) {
        self.touched = self.top;
        while let Some(event) = self.pending.pop_front() {
            if let HeapEvent::Event(event) = event {
                thread.event(event).await;
            }
        }
    }

    /// [`emit_pending_untouched`](Self::emit_pending_untouched) for code that cannot `await`.
    pub fn note(&mut self, thread: &mut Thread) {
        self.touched = self.top;
        for event in self.pending.drain(..) {
            if let HeapEvent::Event(event) = event {
                thread.note(event);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pagewalk_stream::Event;

    use super::{Heap, HeapEvent};
    use crate::layout::Layout;

    fn heap() -> Heap {
        Heap::new(Layout::new())
    }

    fn growth(heap: &mut Heap) -> Vec<(u64, u64)> {
        let events = heap.pending.drain(..).filter_map(|n| match n {
            HeapEvent::Event(Event::Map { at, bytes, .. }) if at.0 >= crate::layout::HEAP => {
                Some((at.0, bytes))
            }
            _ => None,
        });
        events.collect()
    }

    #[test]
    fn merges_of_fast_bin_chunks_are_recorded_once_with_their_neighbours() {
        let mut heap = heap();
        let objects: Vec<u64> = (0..40).map(|_| heap.malloc(40)).collect();
        heap.malloc(40);
        heap.record_merges();
        // Seven stay in the thread cache, and separate the 33 others from the start of the heap.
        objects.iter().for_each(|at| heap.free(*at, 40));
        assert_eq!(heap.merged(), None);
        heap.malloc(2000);
        let merged: Vec<_> = std::iter::from_fn(|| heap.merged()).collect();
        let mut at: Vec<u64> = merged.iter().map(|m| m.at + 8).collect();
        at.reverse();
        assert_eq!(at, objects[7..]);
        // Merged last in, first out: behind each chunk lie those merged before it.
        for (n, chunk) in merged.iter().enumerate() {
            assert_eq!((chunk.size, chunk.before, chunk.last), (48, None, false));
            assert_eq!(chunk.behind, (n > 0).then_some(48 * n as u64));
        }
        assert_eq!(merged.len(), 33);
    }

    #[test]
    fn small_objects_grow_the_heap_in_steps_of_132_kib() {
        let mut heap = heap();
        growth(&mut heap);
        for _ in 0..100_000 {
            heap.malloc(24);
        }
        let steps = growth(&mut heap);
        assert!(steps.windows(2).all(|w| w[0].0 + w[0].1 == w[1].0));
        // The first step is 132 KiB, as the heap is empty. Later steps keep 128 KiB free.
        assert_eq!(steps[0].1, 132 << 10);
        assert!(
            steps[1..]
                .iter()
                .all(|s| s.1 == 128 << 10 || s.1 == 132 << 10)
        );
        let all: u64 = steps.iter().map(|s| s.1).sum();
        assert!((3_200_000..3_200_000 + (132 << 10)).contains(&all));
    }

    #[test]
    fn many_at_once_is_the_same_as_one_by_one() {
        let (mut one, mut many) = (heap(), heap());
        let first = one.malloc(100);
        for _ in 1..5000 {
            one.malloc(100);
        }
        assert_eq!(first, many.malloc_many(100, 5000));
        assert_eq!(one.malloc(8), many.malloc(8));
        assert_eq!(growth(&mut one), growth(&mut many));
    }

    #[test]
    fn large_objects_are_mapped_and_small_ones_taken_again() {
        let mut heap = heap();
        let a = heap.malloc(128 << 10);
        assert!(a > 1 << 44 && a % 4096 == 16);
        let (b, c) = (heap.malloc(40), heap.malloc(40));
        assert_eq!(c, b + 48);
        heap.free(b, 40);
        heap.free(c, 40);
        assert_eq!((heap.malloc(33), heap.malloc(40)), (c, b));
    }

    /// The order was observed in glibc 2.36.
    #[test]
    fn small_chunks_stay_apart_until_a_large_request() {
        let mut heap = heap();
        let objects: Vec<u64> = (0..40).map(|_| heap.malloc(40)).collect();
        heap.malloc(40);
        let place = |at| objects.iter().position(|o| *o == at);
        objects.iter().for_each(|at| heap.free(*at, 40));
        // Seven come from the thread cache, one from the fast bin, which refills the cache.
        let mut again: Vec<usize> = (0..7).filter_map(|_| place(heap.malloc(40))).collect();
        let stashed = heap.is_stashed(40).unwrap_or_default();
        assert!(stashed.iter().rev().eq(&objects[32..39]));
        again.extend((0..3).filter_map(|_| place(heap.malloc(40))));
        assert_eq!(again, [6, 5, 4, 3, 2, 1, 0, 39, 32, 33]);
        assert_eq!(heap.is_stashed(40), None);
        // Objects 7 to 31 are in the fast bin and merge into one chunk of at least 1200 bytes.
        assert_eq!(heap.malloc(1190), objects[7]);
    }

    #[test]
    fn freed_neighbours_are_one() {
        let mut heap = heap();
        let (a, b) = (heap.malloc(2000), heap.malloc(3000));
        heap.malloc(24);
        heap.free(a, 2000);
        heap.free(b, 3000);
        assert_eq!(heap.malloc(4900), a);
    }

    proptest::proptest! {
        #[test]
        fn live_objects_never_overlap(
            steps in proptest::collection::vec((0u64..6000, proptest::bool::ANY), 1..400),
        ) {
            let mut heap = heap();
            let mut live: Vec<(u64, u64)> = Vec::new();
            for (bytes, release) in steps {
                if release && !live.is_empty() {
                    let (at, bytes) = live.swap_remove(bytes as usize % live.len());
                    heap.free(at, bytes);
                    continue;
                }
                let at = heap.malloc(bytes);
                proptest::prop_assert_eq!(at % 16, 0);
                for (other, length) in &live {
                    proptest::prop_assert!(at + bytes <= *other || other + length <= at);
                }
                proptest::prop_assert!(at + bytes <= heap.brk);
                live.push((at, bytes));
            }
        }
    }
}
