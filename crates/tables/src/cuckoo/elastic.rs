//! One elastic cuckoo hash table of 64-byte lines (Skarlatos et al., ASPLOS
//! 2020, and ME-HPT, sections II-B and IV).
//!
//! A line lies in one of its ways, in the slot that the way's hash function
//! names. A resize keeps the hash functions and takes another number of their
//! low bits, so that a line's slot in the old table, its way's rehash pointer
//! and one comparison tell where in that way it can be: a lookup never takes
//! more probes than there are ways, and a line that a larger table receives
//! always finds its slot free. Only a downsize merges slots.

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

/// A slot of the table. It stays valid until the next insertion or removal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CuckooSlot {
    /// Which way.
    pub way: u8,
    /// In the new table, where a resize out of place is under way.
    new: bool,
    slot: u32,
}

/// What hardware finds in one way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Probe {
    /// Physical address of the line that it reads.
    pub at: u64,
    /// Where that is.
    pub place: CuckooSlot,
    /// Whether the line has the key.
    pub hit: bool,
}

/// What a change of the table needs from around it.
pub(crate) struct Env<'a, A> {
    /// Where memory comes from.
    pub frames: &'a mut dyn FrameSource<A>,
    /// The process's chunk pointers; any, if ways are contiguous.
    pub l2p: &'a mut L2p,
    /// What was done.
    pub work: &'a mut MapWork,
}

/// A resize under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Flight {
    /// The new table is larger.
    up: bool,
    /// A downsize that was turned round: the pointer moves back.
    back: bool,
    /// The new chunks have no L2P entries before the old ones give theirs back:
    /// it is over before the kernel is done with the table.
    unlisted: bool,
}

impl Flight {
    /// An upsize that goes on a step with each insertion.
    const UP: Flight = Flight {
        up: true,
        back: false,
        unlisted: false,
    };
    /// A downsize that does.
    const DOWN: Flight = Flight {
        up: false,
        ..Flight::UP
    };
}

/// One way. The live slot of hash `h` is `h & old_mask` of the old table if
/// that is not below the rehash pointer, else `h & new_mask` of the new one,
/// which in an in-place resize is the same memory. Without a resize the masks
/// are equal and the pointer is zero.
#[derive(Clone)]
struct Way<A> {
    table: Storage<A>,
    next: Option<Storage<A>>,
    old_mask: u64,
    new_mask: u64,
    pointer: u64,
    flight: Option<Flight>,
    /// Lines in it.
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
            flight: None,
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
    /// Slots that the way has, or is about to have when the resize is over.
    fn slots(&self) -> u64 {
        match self.flight {
            Some(Flight { back: true, .. }) => self.old_mask + 1,
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
    /// Whose L2P sub-table the chunks are in; `None`: contiguous ways.
    size: Option<PageSize>,
    asid: Asid,
    salt: u64,
    rng: Rng,
    /// Empty until the first insertion.
    ways: Vec<Way<A>>,
    lines: u64,
    /// Where the insertion at hand has displaced lines, in order.
    displaced: Vec<CuckooSlot>,
    /// A downsize was turned round since a line found no place in the smaller
    /// table, where the same lines would meet again: none before so few are left.
    downsize_from: u64,
    /// The part of a slot that insertions so far have left to migrate, below one.
    owed: f64,
    stats: ElasticStats,
    format: PhantomData<fn() -> F>,
}

impl<F: Format, A: Addr> Elastic<F, A> {
    /// An empty table, without memory until the first insertion. `size` names
    /// the sub-tables of the L2P table for ways in chunks (with `None` ways
    /// are contiguous whatever the parameters say); `salt` makes its hash functions
    /// and its random choices others than those of the owner's other tables.
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
    /// The one place of `hash` in `way` where a line can be. Not before the first
    /// insertion.
    #[inline]
    pub(crate) fn live(&self, hash: Hash, way: usize) -> CuckooSlot {
        let (new, slot) = self.ways[way].live(hash.of(way, usize::from(self.spec.ways)));
        CuckooSlot {
            way: way as u8,
            new,
            slot: slot as u32,
        }
    }

    /// Where the line of `key` is.
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
    /// What hardware reads in `way` for `key`; `None` before the first insertion.
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
    /// Tells the host that [`Elastic::line`] follows.
    #[inline]
    pub(crate) fn host_prefetch(&self, place: CuckooSlot) {
        prefetch(self.line(place));
    }
    /// The line at `place`, to change its contents but neither its key nor
    /// whether it is free; see [`Elastic::insert`] and [`Elastic::remove`].
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

    /// Ways of the table.
    pub(crate) fn ways(&self) -> u8 {
        self.spec.ways
    }
    /// Lines in the table.
    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }
    /// Lines in `way`.
    pub(crate) fn lines_of(&self, way: usize) -> u64 {
        self.ways.get(way).map_or(0, |w| w.lines)
    }
    /// Slots of `way`, those of the new table if a resize is under way.
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
    /// 64-bit registers that a context switch saves: a rehash pointer for each
    /// way that is being resized, and the base of each block: for ways in
    /// chunks these are the L2P entries in use.
    pub(crate) fn registers(&self) -> u32 {
        let per_way = |w: &Way<A>| w.blocks() as u32 + u32::from(w.flight.is_some());
        self.ways.iter().map(per_way).sum()
    }
    /// Whether a resize is under way.
    #[cfg(test)]
    pub(crate) fn resizing(&self) -> bool {
        self.ways.iter().any(|w| w.flight.is_some())
    }
    /// What the table has counted.
    pub(crate) fn stats(&self) -> &ElasticStats {
        &self.stats
    }
    /// Calls `f` for every line, in no order that means anything.
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

    /// Inserts the line of `key`, which is not there yet and not a free one.
    /// `landed` gets the key and way of every line that has come to lie in a
    /// way which it was not in before, this one included.
    ///
    /// When memory is refused nothing has changed, except that a resize under
    /// way may be further on or over: it is finished when a line finds no
    /// place, before more memory is asked for.
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
        let begun = due & !self.in_flight();
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
        self.tell(landed);
        self.change_at_once(env, landed);
        if self.in_flight() != 0 {
            self.stats.coexisting_insertions += 1;
            self.hurry(due & !begun, env, landed);
            self.migrate(env, landed);
        }
        // What has moved since may have been this line.
        Ok(self.find(key).unwrap_or(place))
    }

    /// An entry has gone into a line that is there: the kernel was at work on
    /// the table, and that may count for migration.
    pub(crate) fn merged(&mut self, env: &mut Env<'_, A>, landed: &mut dyn FnMut(u64, u8)) {
        self.stats.merged += 1;
        if self.spec.merge_counts && self.in_flight() != 0 {
            self.migrate(env, landed);
        }
    }

    /// Frees the slot at `place`. May start a downsize or go on with one; a
    /// downsize that gets no memory does not happen.
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
        let flying = self.in_flight();
        if due & flying != 0 {
            // Under either rule; see `WhenDue`.
            self.finish_now(due & flying, env, landed);
        }
        if due & !flying != 0 && self.lines <= self.downsize_from {
            self.begin_downsizes(due & !flying, env);
            self.note();
        }
        if self.in_flight() != 0 {
            self.migrate(env, landed);
        }
    }

    /// Gives all memory back; the table is empty afterwards.
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

    /// Reports the lines that the last insertion has displaced.
    fn tell(&mut self, landed: &mut dyn FnMut(u64, u8)) {
        for i in 0..self.displaced.len() {
            let place = self.displaced[i];
            if let Some(key) = F::key(self.line(place)) {
                landed(key, place.way);
            }
        }
    }
}
