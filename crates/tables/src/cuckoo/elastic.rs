//! One elastic cuckoo hash table of 64-byte lines (Skarlatos et al., ASPLOS
//! 2020, and ME-HPT, sections II-B and IV).
//!
//! A line lies in one of the ways, in the slot that the way's hash function
//! selects. A resize keeps the hash functions and uses a different number of their
//! low bits. The slot in the old table and the way's rehash pointer therefore
//! locate the line with one comparison.
//!
//! A lookup never needs more probes than there are ways. A line that moves to a
//! larger table always finds its slot free; only a downsize merges slots.

mod migrate;
mod place;
mod resize;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;

use arrayvec::ArrayVec;
use pagewalk_structures::prefetch;
use pagewalk_units::{Addr, Asid, PageSize, Rng};

use super::hash::Hash;
use super::l2p::L2p;
use super::line::Format;
use super::spec::{ElasticSpec, MAX_WAYS};
use super::stats::ElasticStats;
use super::storage::Storage;
use crate::cluster::Line;
use crate::owner::Owner;
use crate::{FrameSource, MapWork, Refusal};

/// Location of a slot. Valid until the next insertion or removal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CuckooSlot {
    /// Index of the way.
    pub way: u8,
    /// True if the slot is in the new table of an out-of-place resize.
    new: bool,
    slot: u32,
}

/// Result of the hardware's probe of one way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Probe {
    /// Physical address of the probed line.
    pub at: u64,
    /// Location of the probed slot.
    pub place: CuckooSlot,
    /// True if the line has the key.
    pub hit: bool,
}

/// The environment of a change: frame source, L2P table and work counters.
pub(crate) struct Env<'a, A> {
    /// Frame source.
    pub frames: &'a mut dyn FrameSource<A>,
    /// The process's L2P table. Unused if ways are contiguous.
    pub l2p: &'a mut L2p,
    /// Accumulates the work done.
    pub work: &'a mut MapWork,
}

/// State of a resize in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Resize {
    /// True if the new table is larger.
    up: bool,
    /// True for a reversed downsize: the rehash pointer moves back.
    back: bool,
    /// The new chunks get their L2P entries only when the old ones are freed. The
    /// resize completes before the kernel finishes the current change.
    unlisted: bool,
}

impl Resize {
    /// An upsize that advances with each insertion.
    const UP: Resize = Resize {
        up: true,
        back: false,
        unlisted: false,
    };
    /// A downsize that advances with each insertion or removal.
    const DOWN: Resize = Resize {
        up: false,
        ..Resize::UP
    };
}

/// One way. The live slot of hash `h` is `h & old_mask` in the old table if that is
/// not below the rehash pointer. Otherwise it is `h & new_mask` in the new table,
/// which shares the old table's memory in an in-place resize. Without a resize the
/// masks are equal and the pointer is zero.
#[derive(Clone)]
pub(crate) struct Way<A> {
    pub(crate) table: Storage<A>,
    pub(crate) next: Option<Storage<A>>,
    pub(crate) old_mask: u64,
    pub(crate) new_mask: u64,
    pub(crate) pointer: u64,
    resize: Option<Resize>,
    /// Lines in the way.
    lines: u64,
}

impl<A: Addr> Way<A> {
    fn new(table: Storage<A>) -> Self {
        let mask = table.slots() - 1;
        Way {
            table,
            next: None,
            old_mask: mask,
            new_mask: mask,
            pointer: 0,
            resize: None,
            lines: 0,
        }
    }
    #[inline]
    fn live(&self, h: u64) -> (bool, u64) {
        let old = h & self.old_mask;
        if old >= self.pointer {
            (false, old)
        } else {
            (self.next.is_some(), h & self.new_mask)
        }
    }
    #[inline]
    fn storage(&self, new: bool) -> &Storage<A> {
        match &self.next {
            Some(next) if new => next,
            _ => &self.table,
        }
    }
    #[inline]
    fn storage_mut(&mut self, new: bool) -> &mut Storage<A> {
        match &mut self.next {
            Some(next) if new => next,
            _ => &mut self.table,
        }
    }
    /// Slots of the way after the current resize.
    fn slots(&self) -> u64 {
        match self.resize {
            Some(Resize { back: true, .. }) => self.old_mask + 1,
            _ => self.new_mask + 1,
        }
    }
    fn bytes(&self) -> u64 {
        self.table.bytes() + self.next.as_ref().map_or(0, Storage::bytes)
    }
    fn blocks(&self) -> usize {
        self.table.blocks() + self.next.as_ref().map_or(0, Storage::blocks)
    }
}

/// An elastic cuckoo hash table of lines in the format `F`.
#[derive(Clone)]
pub(crate) struct Elastic<F, A> {
    spec: ElasticSpec,
    /// Page size whose L2P sub-tables hold the chunks. `None`: ways are contiguous.
    size: Option<PageSize>,
    asid: Asid,
    salt: u64,
    rng: Rng,
    /// Empty until the first insertion.
    ways: Vec<Way<A>>,
    lines: u64,
    /// Slots whose lines the current insertion displaced, in order.
    displaced: Vec<CuckooSlot>,
    /// Maximum number of lines at which a new downsize may start. Limits downsizes
    /// after one was reversed, because the same lines would collide again in the
    /// smaller table.
    downsize_from: u64,
    /// Migration steps owed by insertions so far, below one.
    owed: f64,
    stats: ElasticStats,
    format: PhantomData<fn() -> F>,
}

impl<F: Format, A: Addr> Elastic<F, A> {
    /// An empty table; memory is allocated at the first insertion. `size` selects
    /// the L2P sub-tables for ways in chunks. With `None` ways are contiguous,
    /// whatever the parameters say. `salt` separates its hash functions and random
    /// stream from those of the owner's other tables.
    pub(crate) fn new(spec: &ElasticSpec, size: Option<PageSize>, salt: u64, owner: Owner) -> Self {
        debug_assert_eq!(spec.check(), Ok(()));
        Elastic {
            spec: spec.clone(),
            size: size.filter(|_| !spec.chunks.is_empty()),
            asid: owner.asid,
            salt,
            rng: owner.rng(&format!("cuckoo.{salt}")),
            ways: Vec::new(),
            lines: 0,
            displaced: Vec::new(),
            downsize_from: u64::MAX,
            owed: 0.0,
            stats: ElasticStats::new(
                usize::from(spec.ways),
                place::PATIENCE * spec.max_kicks as usize,
            ),
            format: PhantomData,
        }
    }

    /// The hash of `key`, for [`Elastic::live`].
    #[inline]
    pub(crate) fn hash(&self, key: u64) -> Hash {
        Hash::new(self.spec.hash, key, self.salt)
    }
    /// The only slot of `way` that can hold a line with this hash. Requires at
    /// least one earlier insertion.
    #[inline]
    pub(crate) fn live(&self, hash: Hash, way: usize) -> CuckooSlot {
        let (new, slot) = self.ways[way].live(hash.of(way, usize::from(self.spec.ways)));
        CuckooSlot {
            way: way as u8,
            new,
            slot: slot as u32,
        }
    }

    /// The slot of the line of `key`.
    #[inline]
    pub(crate) fn find(&self, key: u64) -> Option<CuckooSlot> {
        let hash = self.hash(key);
        let mut places = ArrayVec::<CuckooSlot, MAX_WAYS>::new();
        for way in 0..self.ways.len() {
            let place = self.live(hash, way);
            prefetch(self.line(place));
            places.push(place);
        }
        places.into_iter().find(|&p| F::is(self.line(p), key))
    }
    /// The hardware's probe of `way` for `key`. `None` before the first insertion.
    #[inline]
    pub(crate) fn probe(&self, key: u64, way: u8) -> Option<Probe> {
        if self.ways.is_empty() {
            return None;
        }
        let place = self.live(self.hash(key), usize::from(way));
        Some(Probe {
            at: self.address(place),
            place,
            hit: F::is(self.line(place), key),
        })
    }
    /// The line at `place`.
    #[inline]
    pub(crate) fn line(&self, place: CuckooSlot) -> &Line {
        let way = &self.ways[usize::from(place.way)];
        way.storage(place.new).line(u64::from(place.slot))
    }
    /// Prefetches the line into the host's caches before a call of
    /// [`Elastic::line`].
    #[inline]
    pub(crate) fn host_prefetch(&self, place: CuckooSlot) {
        prefetch(self.line(place));
    }
    /// The line at `place`, mutable. Callers keep its key and do not change whether
    /// it is free; for that see [`Elastic::insert`] and [`Elastic::remove`].
    #[inline]
    pub(crate) fn line_mut(&mut self, place: CuckooSlot) -> &mut Line {
        let way = &mut self.ways[usize::from(place.way)];
        way.storage_mut(place.new).line_mut(u64::from(place.slot))
    }
    /// Physical address of the line at `place`.
    #[inline]
    pub(crate) fn address(&self, place: CuckooSlot) -> u64 {
        let way = &self.ways[usize::from(place.way)];
        way.storage(place.new).address(u64::from(place.slot))
    }

    /// Number of ways.
    pub(crate) fn ways(&self) -> u8 {
        self.spec.ways
    }
    /// The way of this number. `None` before the first insertion.
    pub(crate) fn way(&self, way: usize) -> Option<&Way<A>> {
        self.ways.get(way)
    }
    /// Number of lines in the table.
    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }
    /// Number of lines in `way`.
    pub(crate) fn lines_of(&self, way: usize) -> u64 {
        self.ways.get(way).map_or(0, |w| w.lines)
    }
    /// Slots of `way`, after the current resize if there is one.
    pub(crate) fn slots_of(&self, way: usize) -> u64 {
        self.ways.get(way).map_or(0, Way::slots)
    }
    /// Bytes of simulated memory that `way` holds.
    pub(crate) fn bytes_of(&self, way: usize) -> u64 {
        self.ways.get(way).map_or(0, Way::bytes)
    }
    /// Bytes of simulated memory that the table holds.
    pub(crate) fn bytes(&self) -> u64 {
        self.ways.iter().map(Way::bytes).sum()
    }
    /// Largest contiguous block that the table ever held, in bytes.
    pub(crate) fn largest(&self) -> u64 {
        self.stats.largest
    }
    /// 64-bit registers that a context switch saves: a rehash pointer for each way
    /// in a resize, and the base of each block. For ways in chunks these are the
    /// L2P entries in use.
    pub(crate) fn registers(&self) -> u32 {
        let per_way = |w: &Way<A>| w.blocks() as u32 + u32::from(w.resize.is_some());
        self.ways.iter().map(per_way).sum()
    }
    /// True if a resize is in progress.
    #[cfg(test)]
    pub(crate) fn resizing(&self) -> bool {
        self.ways.iter().any(|w| w.resize.is_some())
    }
    /// The table's counters.
    pub(crate) fn stats(&self) -> &ElasticStats {
        &self.stats
    }
    /// Calls `f` for every line, in unspecified order.
    pub(crate) fn for_each(&self, f: &mut dyn FnMut(&Line)) {
        for way in &self.ways {
            let next = way.next.iter().flat_map(Storage::lines);
            for line in way.table.lines().chain(next) {
                if F::key(line).is_some() {
                    f(line);
                }
            }
        }
    }

    /// Inserts `line` under `key`, which must be absent; `line` must not be free.
    /// Calls `landed` with key and way of every line that now lies in a different
    /// way, the new one included.
    ///
    /// On failure nothing has changed, except that a resize in progress may have
    /// advanced or completed. If a line finds no slot, that resize is completed
    /// before more memory is requested.
    pub(crate) fn insert(
        &mut self,
        key: u64,
        line: Line,
        env: &mut Env<'_, A>,
        landed: &mut dyn FnMut(u64, u8),
    ) -> Result<CuckooSlot, Refusal> {
        debug_assert_eq!(F::key(&line), Some(key));
        debug_assert!(self.find(key).is_none());
        let (random, work) = (self.rng.clone(), *env.work);
        if self.ways.is_empty()
            && let Err(refusal) = self.start(env)
        {
            *env.work = work;
            return Err(refusal);
        }
        let due = self.upsizes_due();
        let begun = due & !self.ways_resizing();
        let placed = self.begin_upsizes(begun, env).and_then(|()| {
            let placed = self.place_or_resize(key, line, env, landed);
            if placed.is_err() {
                self.cancel_upsizes(begun, env);
            }
            placed
        });
        let place = match placed {
            Ok(place) => place,
            Err(refusal) => {
                self.rng = random;
                *env.work = work;
                return Err(refusal);
            }
        };
        if env.work.allocated != work.allocated {
            self.note();
        }
        self.lines += 1;
        self.stats.inserted += 1;
        self.report_displaced(landed);
        self.change_at_once(env, landed);
        if self.ways_resizing() != 0 {
            self.stats.coexisting_insertions += 1;
            self.hurry(due & !begun, env, landed);
            self.migrate(env, landed);
        }
        // Migration may have moved the new line.
        Ok(self.find(key).unwrap_or(place))
    }

    /// Notes that an entry was added to an existing line. The kernel has changed
    /// the table, so this may advance a migration.
    pub(crate) fn merged(&mut self, env: &mut Env<'_, A>, landed: &mut dyn FnMut(u64, u8)) {
        self.stats.merged += 1;
        if self.spec.merge_counts && self.ways_resizing() != 0 {
            self.migrate(env, landed);
        }
    }

    /// Frees the slot at `place`. May start or advance a downsize. A downsize that
    /// gets no memory is dropped.
    pub(crate) fn remove(
        &mut self,
        place: CuckooSlot,
        env: &mut Env<'_, A>,
        landed: &mut dyn FnMut(u64, u8),
    ) {
        *self.line_mut(place) = [0; 8];
        self.ways[usize::from(place.way)].lines -= 1;
        self.lines -= 1;
        self.stats.removed += 1;
        let due = self.downsizes_due();
        let resizing = self.ways_resizing();
        if due & resizing != 0 {
            // Applies under either rule; see `WhenDue`.
            self.finish_now(due & resizing, env, landed);
        }
        if due & !resizing != 0 && self.lines <= self.downsize_from {
            self.begin_downsizes(due & !resizing, env);
            self.note();
        }
        if self.ways_resizing() != 0 {
            self.migrate(env, landed);
        }
    }

    /// Frees all memory. The table is then empty.
    pub(crate) fn release(&mut self, env: &mut Env<'_, A>) {
        for way in 0..self.ways.len() {
            let w = &mut self.ways[way];
            let blocks = w.blocks();
            env.work.freed += w.bytes();
            if let Some(size) = self.size {
                env.l2p.give_back(way, size, blocks);
            }
        }
        for way in self.ways.drain(..) {
            way.table.free(env.frames);
            if let Some(next) = way.next {
                next.free(env.frames);
            }
        }
        self.lines = 0;
        self.downsize_from = u64::MAX;
    }

    /// Reports the lines that the last insertion displaced to `landed`.
    fn report_displaced(&mut self, landed: &mut dyn FnMut(u64, u8)) {
        for i in 0..self.displaced.len() {
            let place = self.displaced[i];
            if let Some(key) = F::key(self.line(place)) {
                landed(key, place.way);
            }
        }
    }
}
