//! The table of bytes below [`HashMap`](crate::HashMap), for bindings to other languages.
//!
//! It knows the size of an entry but no type: it moves entries as bytes and never drops one. Hashes and
//! comparisons come from the caller, and may panic: each change of the table calls them before it moves anything.

use core::alloc::Layout;
use core::fmt;
use core::hint::select_unpredictable;
use core::ptr;

mod geometry;
mod stash;
mod tags;
mod way;

pub use geometry::{Geometry, Shape};

use stash::Stash;
use way::Way;

/// Sixteenths of the slots that are full when a table grows. With one more, three times as many inserts find both
/// buckets full and move other entries.
const GROW: usize = 11;
/// Sixteenths of the slots that are full when a table shrinks.
const SHRINK: usize = 9;
/// Buckets that a search for a free slot visits, at most.
const SEARCH: usize = 96;

/// Memory that was asked for, and not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TryReserveError {
    /// More bytes than the address space has.
    CapacityOverflow,
    /// The allocator returned no memory of this layout.
    AllocError {
        /// The layout of the request.
        layout: Layout,
    },
}

impl TryReserveError {
    fn alloc(layout: Option<Layout>) -> Self {
        layout.map_or(Self::CapacityOverflow, |layout| Self::AllocError { layout })
    }

    /// Ends the program as collections of the standard library do without memory.
    #[cold]
    pub(crate) fn handle(self) -> ! {
        match self {
            Self::CapacityOverflow => panic!("capacity overflow"),
            Self::AllocError { layout } => alloc::alloc::handle_alloc_error(layout),
        }
    }
}

impl fmt::Display for TryReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CapacityOverflow => f.write_str("the capacity exceeds the address space"),
            Self::AllocError { layout } => write!(f, "no memory for {} bytes", layout.size()),
        }
    }
}

impl core::error::Error for TryReserveError {}

/// A place in the table that holds an entry.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    entry: *mut u8,
    place: Place,
}

impl Slot {
    /// Address of the entry, until the table changes.
    #[inline]
    #[must_use]
    pub fn entry(&self) -> *mut u8 {
        self.entry
    }
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Bucket { tag: *mut u8 },
    Stash { index: usize },
}

/// A hash, as the table uses it.
#[derive(Clone, Copy)]
struct Spread {
    /// Low bits select the bucket of the first way, the bits above 32 that of the second.
    bits: u64,
    tag: u8,
}

impl Spread {
    /// Spreads the entropy of a hash over all bits, since a caller's hash function may be the identity.
    #[inline]
    fn new(hash: u64) -> Self {
        // The odd number next to 2^64 divided by the golden ratio.
        let product = u128::from(hash) * 0x9e37_79b9_7f4a_7c15;
        let low = product as u64;
        let tag = (low >> 56) as u8;
        Self {
            bits: low ^ (product >> 64) as u64,
            tag: if tag == 0 { 1 } else { tag },
        }
    }

    /// The bits that select a bucket of a way.
    #[inline]
    fn of(self, way: usize) -> usize {
        self.bits.rotate_left(32 * way as u32) as usize
    }
}

/// Position of an iteration over a table.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    way: usize,
    /// The next bucket of the way, or the next entry of the stash.
    next: usize,
    bucket: *mut u8,
    /// Full slots of `bucket` that are still to come.
    mask: u32,
}

impl Cursor {
    /// The position before all entries.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            way: 0,
            next: 0,
            bucket: ptr::null_mut(),
            mask: 0,
        }
    }
}

impl Default for Cursor {
    fn default() -> Self {
        Self::new()
    }
}

/// Two cuckoo ways of buckets that grow and shrink by one bucket at a time, and a stash.
pub struct Table<S: Shape> {
    shape: S,
    ways: [Way; 2],
    stash: Stash,
    /// Entries, including those of the stash.
    len: usize,
    /// Entries that the buckets hold before the table grows.
    capacity: usize,
    /// The table does not shrink below a capacity for this many entries.
    reserved: usize,
}

impl<S: Shape> Table<S> {
    /// An empty table, which has no memory yet.
    pub const fn new(shape: S) -> Self {
        Self {
            shape,
            ways: [Way::new(), Way::new()],
            stash: Stash::new(),
            len: 0,
            capacity: 0,
            reserved: 0,
        }
    }

    /// Number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without entries.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Entries that the buckets hold before the table grows.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    fn set_capacity(&mut self) {
        self.capacity = limit(self.slots(), GROW);
    }

    /// Bytes of memory that the table has allocated.
    pub fn allocated_bytes(&self) -> usize {
        let geometry = self.shape.geometry();
        self.ways
            .iter()
            .map(|way| way.bytes(&geometry))
            .sum::<usize>()
            + self.stash.bytes(&geometry)
    }

    /// Entries of the stash, which found no room in their buckets.
    pub fn stashed(&self) -> usize {
        self.stash.len()
    }

    fn buckets(&self) -> usize {
        self.ways[0].buckets() + self.ways[1].buckets()
    }

    fn slots(&self) -> usize {
        self.buckets() * self.shape.geometry().slots
    }

    /// The bucket of a hash in a way.
    ///
    /// # Safety
    ///
    /// The way has a bucket.
    #[inline]
    unsafe fn bucket(&self, way: usize, spread: Spread) -> *mut u8 {
        let way_of = &self.ways[way];
        // SAFETY: The index is below the number of buckets.
        unsafe { way_of.at(&self.shape.geometry(), way_of.index(spread.of(way))) }
    }

    /// Address of the entry of a slot.
    ///
    /// # Safety
    ///
    /// `bucket` is a bucket, and has this slot.
    #[inline]
    unsafe fn entry(&self, bucket: *mut u8, slot: usize) -> *mut u8 {
        let geometry = self.shape.geometry();
        // SAFETY: A bucket has `slots` entries from `offset` on.
        unsafe { bucket.add(geometry.offset + slot * geometry.size) }
    }

    /// The buckets of a hash.
    ///
    /// # Safety
    ///
    /// Both ways have a bucket.
    #[inline]
    unsafe fn roots(&self, spread: Spread) -> [*mut u8; 2] {
        // SAFETY: The caller guarantees it.
        unsafe { [self.bucket(0, spread), self.bucket(1, spread)] }
    }

    /// The entry of this hash for which `equal` is true. `equal` gets addresses of entries.
    #[inline]
    pub fn find(&self, hash: u64, equal: impl FnMut(*const u8) -> bool) -> Option<Slot> {
        if self.len == 0 {
            return None;
        }
        let spread = Spread::new(hash);
        // SAFETY: A table with entries has buckets in both ways.
        unsafe { self.find_in(self.roots(spread), hash, spread.tag, equal) }
    }

    /// The entry in the stash or in one of these buckets.
    ///
    /// # Safety
    ///
    /// Both are buckets of this table.
    #[inline]
    unsafe fn find_in(
        &self,
        buckets: [*mut u8; 2],
        hash: u64,
        tag: u8,
        mut equal: impl FnMut(*const u8) -> bool,
    ) -> Option<Slot> {
        // SAFETY: Matching tags are never zero, and full slots alone have a tag that is not zero.
        unsafe {
            let mut mask = tags::matches(buckets[0], buckets[1], tag);
            while mask != 0 {
                let bit = mask.trailing_zeros() as usize;
                let (bucket, slot) = (buckets[bit >> 3 & 1], bit & 7);
                let entry = self.entry(bucket, slot);
                if equal(entry) {
                    let place = Place::Bucket {
                        tag: bucket.add(slot),
                    };
                    return Some(Slot { entry, place });
                }
                mask &= mask - 1;
            }
        }
        if self.stash.len() == 0 {
            return None;
        }
        let index = self.stash.find(hash, equal)?;
        self.stashed_slot(index)
    }

    fn stashed_slot(&self, index: usize) -> Option<Slot> {
        let (_, entry) = self.stash.get(index)?;
        Some(Slot {
            entry,
            place: Place::Stash { index },
        })
    }

    /// The entry of this hash for which `equal` is true, or a new one, whose bytes the caller then writes all. The
    /// answer is true if it is new.
    ///
    /// `hasher` returns the hash of the entry at an address. The table grows by one bucket at most. After an error
    /// it has the same entries as before.
    ///
    /// # Errors
    ///
    /// As [`Self::insert`].
    #[inline]
    pub fn find_or_insert(
        &mut self,
        hash: u64,
        equal: impl FnMut(*const u8) -> bool,
        hasher: impl Fn(*const u8) -> u64,
    ) -> Result<(Slot, bool), TryReserveError> {
        if self.len >= self.capacity {
            return match self.find(hash, equal) {
                Some(slot) => Ok((slot, false)),
                None => self.insert(hash, hasher).map(|slot| (slot, true)),
            };
        }
        let spread = Spread::new(hash);
        // SAFETY: A table with capacity has buckets in both ways.
        unsafe {
            let roots = self.roots(spread);
            match self.find_in(roots, hash, spread.tag, equal) {
                Some(slot) => Ok((slot, false)),
                None => self
                    .insert_in(roots, hash, spread.tag, &hasher)
                    .map(|slot| (slot, true)),
            }
        }
    }

    /// Makes an entry of this hash, which the table does not have. The caller then writes all of its bytes.
    ///
    /// `hasher` and the table's growth are those of [`Self::find_or_insert`].
    ///
    /// # Errors
    ///
    /// Both buckets and those around are full, and there is no memory to grow or for an entry of the stash.
    #[inline(never)]
    pub fn insert(
        &mut self,
        hash: u64,
        hasher: impl Fn(*const u8) -> u64,
    ) -> Result<Slot, TryReserveError> {
        if self.len >= self.capacity {
            match self.grow(&hasher) {
                Ok(()) => self.unstash(&hasher),
                Err(error) if self.buckets() == 0 => return Err(error),
                // Buckets may still have room.
                Err(_) => {}
            }
        }
        let spread = Spread::new(hash);
        // SAFETY: Both ways have a bucket.
        unsafe { self.insert_in(self.roots(spread), hash, spread.tag, &hasher) }
    }

    /// Makes an entry in one of these buckets or in the stash.
    ///
    /// # Safety
    ///
    /// They are the buckets of this hash.
    #[inline]
    unsafe fn insert_in(
        &mut self,
        roots: [*mut u8; 2],
        hash: u64,
        tag: u8,
        hasher: &impl Fn(*const u8) -> u64,
    ) -> Result<Slot, TryReserveError> {
        let Some((bucket, slot)) = self.vacancy(
            &[(roots[0], 0), (roots[1], 1)],
            [ptr::null_mut(); 2],
            hasher,
        ) else {
            let index = self.stash.push(&self.shape.geometry(), hash)?;
            self.len += 1;
            return self
                .stashed_slot(index)
                .ok_or(TryReserveError::CapacityOverflow);
        };
        self.len += 1;
        // SAFETY: The slot is one of the bucket's, and empty.
        unsafe {
            let at = bucket.add(slot);
            at.write(tag);
            Ok(Slot {
                entry: self.entry(bucket, slot),
                place: Place::Bucket { tag: at },
            })
        }
    }

    /// Removes an entry, whose bytes the caller has taken or dropped.
    ///
    /// # Safety
    ///
    /// The slot comes from this table, which has not changed since.
    #[inline]
    pub unsafe fn erase(&mut self, slot: Slot) {
        match slot.place {
            // SAFETY: The tag is that of a full slot of this table.
            Place::Bucket { tag } => unsafe { tag.write(0) },
            Place::Stash { index } => self.stash.remove(&self.shape.geometry(), index),
        }
        self.len -= 1;
    }

    /// Removes the last bucket if few slots are full, and returns true if it did. To be called after each removal.
    #[inline]
    pub fn shrink(&mut self, hasher: impl Fn(*const u8) -> u64) -> bool {
        let fewest = self.len.max(self.reserved);
        if self.buckets() <= 2 || fewest >= limit(self.slots(), SHRINK) {
            return false;
        }
        self.unstash(&hasher);
        self.merge(&hasher)
    }

    /// Grows until `additional` more entries have room, and does not shrink below that.
    ///
    /// # Errors
    ///
    /// There is not enough memory. The table has the same entries and capacity as before.
    pub fn reserve(
        &mut self,
        additional: usize,
        hasher: impl Fn(*const u8) -> u64,
    ) -> Result<(), TryReserveError> {
        let geometry = self.shape.geometry();
        let capacity = self
            .len
            .checked_add(additional)
            .ok_or(TryReserveError::CapacityOverflow)?;
        if capacity == 0 {
            return Ok(());
        }
        let overflow = TryReserveError::CapacityOverflow;
        let slots = capacity.checked_mul(16).ok_or(overflow)?.div_ceil(GROW);
        let buckets = slots.div_ceil(geometry.slots);
        let bytes = buckets
            .checked_mul(geometry.stride)
            .filter(|&bytes| bytes <= isize::MAX as usize / 2);
        let bytes = bytes.ok_or(overflow)?;
        // More than the allocator can ever give is refused at once, not after a search chunk by chunk.
        if buckets > self.buckets() {
            let layout = Layout::from_size_align(bytes, 1).map_err(|_| overflow)?;
            // SAFETY: The layout has bytes, and the memory is freed with the same layout.
            unsafe {
                let trial = core::hint::black_box(alloc::alloc::alloc(layout));
                if trial.is_null() {
                    return Err(TryReserveError::alloc(Some(layout)));
                }
                alloc::alloc::dealloc(trial, layout);
            }
        }
        let [first, second] = self.grown(buckets);
        let reserved = self.ways[0]
            .reserve(&geometry, first)
            .and_then(|()| self.ways[1].reserve(&geometry, second));
        if let Err(error) = reserved {
            for way in &mut self.ways {
                way.trim(&geometry);
            }
            return Err(error);
        }
        while self.buckets() < buckets {
            self.grow(&hasher)?;
        }
        self.reserved = self.reserved.max(capacity);
        Ok(())
    }

    /// Gives up the reservation, and frees memory that the entries do not need.
    pub fn shrink_to_fit(&mut self, hasher: impl Fn(*const u8) -> u64) {
        self.reserved = 0;
        if self.len == 0 {
            return self.clear();
        }
        self.unstash(&hasher);
        while self.buckets() > 2
            && self.len <= limit(self.slots() - self.shape.geometry().slots, GROW - 1)
            && self.merge(&hasher)
        {}
    }

    /// Removes buckets until enough slots are full, after the removal of many entries.
    pub fn shrink_all(&mut self, hasher: impl Fn(*const u8) -> u64) {
        while self.shrink(&hasher) {}
    }

    /// Frees all memory. The caller has taken or dropped all entries.
    pub fn clear(&mut self) {
        let geometry = self.shape.geometry();
        self.stash.clear(&geometry);
        for way in &mut self.ways {
            way.clear(&geometry);
        }
        (self.len, self.capacity, self.reserved) = (0, 0, 0);
    }

    /// The entry after a position, in no particular order.
    ///
    /// # Safety
    ///
    /// The cursor is new, or has been moved on this table only. Since it was new, no call has changed the table, except
    /// that the entry that came last may have been erased if it was not in the stash.
    #[inline]
    pub unsafe fn next(&self, cursor: &mut Cursor) -> Option<Slot> {
        // SAFETY: The caller guarantees it.
        let slot = unsafe { self.next_in_buckets(cursor) };
        slot.or_else(|| {
            let slot = self.stashed_slot(cursor.next)?;
            cursor.next += 1;
            Some(slot)
        })
    }

    /// The entry after a position, unless that is in the stash.
    ///
    /// # Safety
    ///
    /// That of [`Self::next`].
    #[inline]
    unsafe fn next_in_buckets(&self, cursor: &mut Cursor) -> Option<Slot> {
        while cursor.mask == 0 {
            let way = self.ways.get(cursor.way)?;
            if cursor.next == way.buckets() {
                (cursor.way, cursor.next) = (cursor.way + 1, 0);
                continue;
            }
            // SAFETY: The bucket exists.
            unsafe {
                cursor.bucket = way.at(&self.shape.geometry(), cursor.next);
                cursor.mask = tags::full(cursor.bucket);
            }
            cursor.next += 1;
        }
        let slot = cursor.mask.trailing_zeros() as usize;
        cursor.mask &= cursor.mask - 1;
        // SAFETY: The slot was full when the iteration reached its bucket.
        unsafe {
            Some(Slot {
                entry: self.entry(cursor.bucket, slot),
                place: Place::Bucket {
                    tag: cursor.bucket.add(slot),
                },
            })
        }
    }

    /// Erases the entries for which `keep` is false. `keep` drops the entries that it rejects.
    pub fn retain(&mut self, mut keep: impl FnMut(*mut u8) -> bool) {
        let mut cursor = Cursor::new();
        // SAFETY: Only the entry that came last is erased.
        while let Some(slot) = unsafe { self.next_in_buckets(&mut cursor) } {
            if !keep(slot.entry) {
                // SAFETY: The slot is full, and nothing else has changed.
                unsafe { self.erase(slot) };
            }
        }
        let Self { stash, len, .. } = self;
        stash.retain(&self.shape.geometry(), |entry| {
            let kept = keep(entry);
            *len -= usize::from(!kept);
            kept
        });
    }

    /// The way that grows next: one that has not doubled yet, else the smaller (ME-HPT, section IV-D).
    fn growing(buckets: [usize; 2]) -> usize {
        match buckets.map(usize::is_power_of_two) {
            [false, _] => 0,
            [true, false] => 1,
            [true, true] => usize::from(buckets[1] < buckets[0]),
        }
    }

    /// Buckets of both ways when the table has grown to `total`.
    fn grown(&self, total: usize) -> [usize; 2] {
        let mut buckets = [self.ways[0].buckets(), self.ways[1].buckets()];
        if buckets[0] == 0 {
            buckets = [1; 2];
        }
        while let Some(missing) = total
            .checked_sub(buckets[0] + buckets[1])
            .filter(|&missing| missing > 0)
        {
            let way = Self::growing(buckets);
            let doubled = (buckets[way] + 1).next_power_of_two();
            buckets[way] += missing.min(doubled - buckets[way]);
        }
        buckets
    }

    /// Adds a bucket to a way, and moves half of the entries of another to it. The first call adds one to each way.
    fn grow(&mut self, hasher: &impl Fn(*const u8) -> u64) -> Result<(), TryReserveError> {
        let geometry = self.shape.geometry();
        if self.buckets() == 0 {
            self.ways[0].reserve(&geometry, 1)?;
            self.ways[1].reserve(&geometry, 1)?;
            for way in &mut self.ways {
                // SAFETY: There is room for a bucket.
                unsafe { way.push(&geometry) };
            }
            self.set_capacity();
            return Ok(());
        }
        let way = Self::growing([self.ways[0].buckets(), self.ways[1].buckets()]);
        let (new, bit) = (self.ways[way].buckets(), self.ways[way].bit());
        self.ways[way].reserve(&geometry, new + 1)?;
        // SAFETY: The bucket with this bit less exists, and there is room for the new one. Nothing moves before all
        // hashes are known. The new bucket has a slot for each of the other's.
        unsafe {
            let from = self.ways[way].at(&geometry, new - bit);
            let mut mask = tags::full(from);
            let mut moving = 0;
            while mask != 0 {
                let slot = mask.trailing_zeros();
                mask &= mask - 1;
                let spread = Spread::new(hasher(self.entry(from, slot as usize)));
                moving |= u32::from(spread.of(way) & bit != 0) << slot;
            }
            self.ways[way].push(&geometry);
            let to = self.ways[way].at(&geometry, new);
            while moving != 0 {
                let slot = moving.trailing_zeros() as usize;
                moving &= moving - 1;
                self.relocate(from, slot, to, slot);
            }
        }
        self.set_capacity();
        Ok(())
    }

    /// Removes the last bucket of a way, after its entries have moved. Returns false if one of them found no room.
    fn merge(&mut self, hasher: &impl Fn(*const u8) -> u64) -> bool {
        let geometry = self.shape.geometry();
        let buckets = [self.ways[0].buckets(), self.ways[1].buckets()];
        // The way that grew last, so that the sizes go back the way they came.
        let way = match buckets.map(usize::is_power_of_two) {
            [false, _] => 0,
            [true, false] => 1,
            [true, true] => usize::from(buckets[1] >= buckets[0]),
        };
        let last = buckets[way] - 1;
        let Some(level) = last.checked_ilog2() else {
            return false;
        };
        // SAFETY: Both buckets exist. Entries move to slots that are empty.
        unsafe {
            let from = self.ways[way].at(&geometry, last);
            let to = self.ways[way].at(&geometry, last - (1 << level));
            loop {
                let moving = tags::full(from);
                let free = !tags::full(to) & geometry.slot_bits();
                if moving.count_ones() <= free.count_ones() {
                    break;
                }
                // An entry too many goes to its bucket in the other way.
                let slot = moving.trailing_zeros() as usize;
                let entry = self.entry(from, slot);
                let hash = hasher(entry);
                let other = self.bucket(1 - way, Spread::new(hash));
                if let Some((bucket, vacant)) =
                    self.vacancy(&[(other, 1 - way)], [from, to], hasher)
                {
                    self.relocate(from, slot, bucket, vacant);
                } else if let Ok(index) = self.stash.push(&geometry, hash) {
                    if let Some((_, stashed)) = self.stash.get(index) {
                        ptr::copy_nonoverlapping(entry, stashed, geometry.size);
                    }
                    from.add(slot).write(0);
                } else {
                    return false;
                }
            }
            let mut moving = tags::full(from);
            let mut free = !tags::full(to) & geometry.slot_bits();
            while moving != 0 {
                self.relocate(
                    from,
                    moving.trailing_zeros() as usize,
                    to,
                    free.trailing_zeros() as usize,
                );
                moving &= moving - 1;
                free &= free - 1;
            }
        }
        self.ways[way].pop(&geometry);
        self.set_capacity();
        true
    }

    /// Moves an entry of the stash to a bucket, if one of its buckets has a free slot.
    #[inline]
    fn unstash(&mut self, hasher: &impl Fn(*const u8) -> u64) {
        if self.stash.len() != 0 {
            self.unstash_one(hasher);
        }
    }

    #[cold]
    fn unstash_one(&mut self, hasher: &impl Fn(*const u8) -> u64) {
        let geometry = self.shape.geometry();
        // Another one each time: entries for which there is no room do not stop the others.
        let index = self.buckets() % self.stash.len();
        let Some((hash, entry)) = self.stash.get(index) else {
            return;
        };
        let spread = Spread::new(hash);
        // SAFETY: A table with entries has buckets in both ways. The slot is empty.
        unsafe {
            let roots = [(self.bucket(0, spread), 0), (self.bucket(1, spread), 1)];
            if let Some((bucket, slot)) = self.vacancy(&roots, [ptr::null_mut(); 2], hasher) {
                ptr::copy_nonoverlapping(entry, self.entry(bucket, slot), geometry.size);
                bucket.add(slot).write(spread.tag);
                self.stash.remove(&geometry, index);
            }
        }
    }

    /// Moves an entry from a slot to another. Both buckets are of this table.
    ///
    /// # Safety
    ///
    /// The first slot is full, the second one is empty.
    #[inline]
    unsafe fn relocate(&mut self, from: *mut u8, slot: usize, to: *mut u8, vacant: usize) {
        let size = self.shape.geometry().size;
        // SAFETY: The slots are different ones, of `size` bytes each.
        unsafe {
            debug_assert!(*from.add(slot) != 0 && *to.add(vacant) == 0);
            ptr::copy_nonoverlapping(self.entry(from, slot), self.entry(to, vacant), size);
            to.add(vacant).write(from.add(slot).read());
            from.add(slot).write(0);
        }
    }

    /// An empty slot in one of these buckets, each given with its way.
    ///
    /// If all are full, other entries move to the bucket that each has in the other way. The search is breadth
    /// first and ends after a fixed number of buckets. It leaves out the two buckets of `avoid`.
    #[inline(always)]
    fn vacancy(
        &mut self,
        roots: &[(*mut u8, usize)],
        avoid: [*mut u8; 2],
        hasher: &impl Fn(*const u8) -> u64,
    ) -> Option<(*mut u8, usize)> {
        let slots = self.shape.geometry().slots;
        // SAFETY: Roots are buckets.
        let vacant = |bucket: *mut u8| unsafe { tags::Vacant::of(bucket, slots) };
        // The bucket with more free slots, as ME-HPT weights ways by theirs (section IV-D). No branch depends on
        // which one it is: the processor could not predict it, and would wait for both buckets.
        let (mut best, mut most) = (roots[0].0, vacant(roots[0].0));
        for &(bucket, _) in &roots[1..] {
            let other = vacant(bucket);
            let better = other.count() > most.count();
            best = select_unpredictable(better, bucket, best);
            most = select_unpredictable(better, other, most);
        }
        if let Some(slot) = most.first() {
            return Some((best, slot));
        }
        self.displace(roots, avoid, hasher)
    }

    /// Makes room in one of these full buckets.
    #[cold]
    #[inline(never)]
    fn displace(
        &mut self,
        roots: &[(*mut u8, usize)],
        avoid: [*mut u8; 2],
        hasher: &impl Fn(*const u8) -> u64,
    ) -> Option<(*mut u8, usize)> {
        /// A bucket to which an entry of its parent could move.
        #[derive(Clone, Copy)]
        struct Node {
            bucket: *mut u8,
            way: u8,
            parent: u8,
            /// The slot of that entry in the parent.
            slot: u8,
        }
        let geometry = self.shape.geometry();
        let none = Node {
            bucket: ptr::null_mut(),
            way: 0,
            parent: u8::MAX,
            slot: 0,
        };
        let mut nodes = [none; SEARCH];
        let mut count = roots.len();
        for (node, &(bucket, way)) in nodes.iter_mut().zip(roots) {
            (node.bucket, node.way) = (bucket, way as u8);
        }
        let mut head = 0;
        while head < count {
            let from = nodes[head];
            let start = count;
            for slot in 0..geometry.slots.min(SEARCH - count) {
                // SAFETY: All buckets of nodes are full, and none changes during the search.
                let spread = Spread::new(hasher(unsafe { self.entry(from.bucket, slot) }));
                let way = 1 - usize::from(from.way);
                // SAFETY: Both ways have buckets.
                let bucket = unsafe { self.bucket(way, spread) };
                if !avoid.contains(&bucket) {
                    prefetch(bucket);
                    nodes[count] = Node {
                        bucket,
                        way: way as u8,
                        parent: head as u8,
                        slot: slot as u8,
                    };
                    count += 1;
                }
            }
            for node in start..count {
                // SAFETY: The node's bucket is one of the table's.
                let vacant = unsafe { !tags::full(nodes[node].bucket) } & geometry.slot_bits();
                if vacant == 0 {
                    continue;
                }
                let (mut to, mut slot) = (nodes[node], vacant.trailing_zeros() as usize);
                while let Some(&parent) = nodes.get(usize::from(to.parent)) {
                    let leaving = usize::from(to.slot);
                    // SAFETY: The slot that is filled is empty: it was found so, or its entry has just left. The
                    // other one is checked, since a path crosses itself if equal keys have different hashes.
                    unsafe {
                        if *parent.bucket.add(leaving) == 0 {
                            return None;
                        }
                        self.relocate(parent.bucket, leaving, to.bucket, slot);
                    }
                    (to, slot) = (parent, leaving);
                }
                return Some((to.bucket, slot));
            }
            head += 1;
        }
        None
    }
}

impl<S: Shape> Drop for Table<S> {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Entries in `slots` slots of which so many sixteenths are full.
#[inline]
fn limit(slots: usize, sixteenths: usize) -> usize {
    slots / 16 * sixteenths + slots % 16 * sixteenths / 16
}

/// Asks for the cache line of a bucket's tags.
#[inline]
fn prefetch(bucket: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: A prefetch accesses nothing.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(bucket.cast());
    }
    let _ = bucket;
}
