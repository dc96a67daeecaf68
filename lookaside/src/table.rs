//! The table: rows, and the switch that bypasses them when they do not pay.

use std::ptr::NonNull;

use crate::compare::Compare;
use crate::rows::{self, Error, Rows, Set, WAYS};
use crate::switch::{Statistics, Switch};
use crate::sync::{AtomicU64, Relaxed};

/// Calls an operation with the best instructions of this processor.
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
macro_rules! dispatch {
    ($function:ident($($argument:expr),*)) => {
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            unsafe { with_avx2(|| $function::<crate::compare::Avx2>($($argument),*)) }
        } else {
            $function::<crate::compare::Sse2>($($argument),*)
        }
    };
}

#[cfg(all(target_arch = "aarch64", not(miri), not(loom)))]
macro_rules! dispatch {
    ($function:ident($($argument:expr),*)) => {
        $function::<crate::compare::Neon>($($argument),*)
    };
}

#[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri, loom))]
macro_rules! dispatch {
    ($function:ident($($argument:expr),*)) => {
        $function::<crate::compare::Scalar>($($argument),*)
    };
}

/// # Safety
///
/// The processor has AVX2.
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn with_avx2<R>(operation: impl FnOnce() -> R) -> R {
    operation()
}

/// Fetches the line at this address into the caches. Any address may be fetched.
#[inline]
pub(crate) fn prefetch(at: NonNull<u8>) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    // SAFETY: a prefetch reads nothing that the program sees, and does not fault.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.as_ptr().cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri), not(loom)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) at.as_ptr(), options(nostack, preserves_flags, readonly));
    }
    let _ = at;
}

/// Lookups that [`Table::find_batch`] overlaps: their lines are fetched before the first is compared.
pub const BATCH: usize = 32;

/// The address of a record, or `None` for a miss.
pub type Found = Option<NonNull<u8>>;

/// A table of record addresses, in sets of eight rows.
///
/// All methods with `&self` may run in many threads at once. None of them reads a record: the closures
/// of the caller do. The [crate's documentation](crate) states when an address is safe to read.
///
/// The lowest bits of a hash choose the set, and the highest 16 are the tag. Both must vary with the key:
/// [`mix`](crate::mix) makes such a hash of an integer. Keys whose hashes collide, also by intention, cost
/// misses, each with a bounded number of comparisons.
///
/// C and C++ use the same memory: `lookaside.h` and `lookaside.hpp` describe it.
#[repr(C)]
pub struct Table {
    rows: Rows,
    switch: Switch,
}

impl Table {
    /// An empty table of at least `rows` rows: the next power of two, at least 8. A row takes 8 bytes.
    ///
    /// As many rows as there are frequently used records are enough, since full sets lose some.
    ///
    /// # Errors
    ///
    /// [`Error::NoRows`] for 0 rows, [`Error::NoMemory`] if the system grants no memory for them.
    pub fn new(rows: usize) -> Result<Self, Error> {
        let rows = Rows::new(rows)?;
        let switch = Switch::new(rows.len() * WAYS);
        Ok(Self { rows, switch })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows.len() * WAYS
    }

    /// Bytes of memory of the rows.
    pub fn bytes(&self) -> usize {
        self.rows.len() * size_of::<Set>()
    }

    /// Replaces the rows with at least `rows` empty ones. Statistics continue; the switch starts anew.
    ///
    /// # Errors
    ///
    /// Those of [`Table::new`]. The table is then unchanged.
    pub fn resize(&mut self, rows: usize) -> Result<(), Error> {
        self.rows = Rows::new(rows)?;
        self.switch.restart(self.rows.len() * WAYS);
        Ok(())
    }

    /// Empties all rows. Lookups may run meanwhile; the rules for removal hold for every record.
    pub fn flush(&self) {
        self.rows.flush();
    }

    /// The address that was inserted with this hash and that `verify` accepts. Counts a miss if there is none.
    ///
    /// `verify` compares the key of the record with the one that is looked up. It may be called for
    /// records of other keys, of which a set holds at most eight.
    #[inline]
    pub fn find(&self, hash: u64, verify: impl FnMut(NonNull<u8>) -> bool) -> Found {
        let set = self.rows.set(hash);
        let found = dispatch!(find_in(set, rows::tag(hash), verify));
        if found.is_none() {
            self.switch.count_misses(1);
        }
        found
    }

    /// Finds each hash as [`Table::find`] does, and overlaps their waits for memory.
    ///
    /// `verify` gets the position of the hash too. Addresses are written to `found`, position by position.
    /// The lines of the records are fetched before the first comparison. Returns the number of hits.
    ///
    /// The shorter slice ends the batch.
    pub fn find_batch(
        &self,
        hashes: &[u64],
        found: &mut [Found],
        mut verify: impl FnMut(usize, NonNull<u8>) -> bool,
    ) -> usize {
        let mut hits = 0;
        let len = hashes.len().min(found.len());
        for start in (0..len).step_by(BATCH) {
            let end = len.min(start + BATCH);
            dispatch!(find_group(
                &self.rows,
                &hashes[start..end],
                &mut found[start..end],
                start,
                &mut verify
            ));
            hits += found[start..end].iter().flatten().count();
        }
        self.switch.count_misses((len - hits) as u64);
        hits
    }

    /// Remembers the address for this hash. Returns false, and remembers nothing, if it is above 48 bits.
    ///
    /// Replaces a row with the same tag, else an empty row, else a random one of the set.
    #[inline]
    pub fn insert(&self, hash: u64, at: NonNull<u8>) -> bool {
        let (set, tag) = (self.rows.set(hash), rows::tag(hash));
        let Some(row) = rows::row(tag, at) else {
            return false;
        };
        let way = set
            .0
            .iter()
            .position(|old| rows::address(old.load(Relaxed), tag).is_some());
        let Some(way) = way else {
            victim(set, row).store(row, Relaxed);
            return true;
        };
        set.0[way].store(row, Relaxed);
        // Inserts at the same time may have made two rows of this tag. Only one is kept.
        empty(set, tag, way + 1);
        true
    }

    /// Empties every row of this hash. Required before a record is moved or freed.
    #[inline]
    pub fn invalidate(&self, hash: u64) {
        let (set, tag) = (self.rows.set(hash), rows::tag(hash));
        empty(set, tag, 0);
    }

    /// Fetches the line of this hash into the caches.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(NonNull::from(self.rows.set(hash)).cast());
    }

    /// Counts `lookups` that are about to begin. False: they are to bypass the table, which does not pay.
    ///
    /// [`Table::lookup`] calls this. Callers of [`Table::find`] may ignore it: the table then never switches off.
    /// Inserts and invalidations never depend on it.
    #[inline]
    pub fn admit(&self, lookups: u32) -> bool {
        self.switch.admit(lookups)
    }

    /// Looks up a record through the table if that pays, else in the index alone.
    ///
    /// After a miss, the address that `index` returns is inserted. `hash` is not called in a bypass.
    #[inline]
    pub fn lookup(
        &self,
        hash: impl FnOnce() -> u64,
        verify: impl FnMut(NonNull<u8>) -> bool,
        index: impl FnOnce() -> Found,
    ) -> Found {
        if !self.admit(1) {
            return index();
        }
        let hash = hash();
        self.find(hash, verify).or_else(|| {
            let found = index()?;
            self.insert(hash, found);
            Some(found)
        })
    }

    /// Keeps the table on, or lets it measure when to switch itself off, as new tables do.
    pub fn set_automatic(&self, automatic: bool) {
        self.switch.set_automatic(automatic);
    }

    /// Counts since the table was made. Exact while at most 16 threads use the table.
    pub fn statistics(&self) -> Statistics {
        self.switch.statistics()
    }

    #[cfg(not(loom))]
    pub(crate) fn step(&self, slot: usize, lookups: u32) -> bool {
        self.switch.step(slot, lookups)
    }
}

/// The first row of this tag whose address `verify` accepts.
#[inline]
fn find_in<C: Compare>(set: &Set, tag: u16, mut verify: impl FnMut(NonNull<u8>) -> bool) -> Found {
    // SAFETY: `dispatch` chose instructions that the processor has.
    let mut matching = unsafe { C::matching(set, tag) };
    while matching != 0 {
        let row = set.0[matching.trailing_zeros() as usize].load(Relaxed);
        if let Some(at) = rows::address(row, tag).filter(|&at| verify(at)) {
            return Some(at);
        }
        matching &= matching - 1;
    }
    None
}

/// Finds at most [`BATCH`] hashes: fetches their sets, then their records, then compares.
#[inline]
fn find_group<C: Compare>(
    rows: &Rows,
    hashes: &[u64],
    found: &mut [Found],
    start: usize,
    verify: &mut impl FnMut(usize, NonNull<u8>) -> bool,
) {
    for &hash in hashes {
        prefetch(NonNull::from(rows.set(hash)).cast());
    }
    for (&hash, found) in hashes.iter().zip(found.iter_mut()) {
        *found = find_in::<C>(rows.set(hash), rows::tag(hash), |_| true);
        if let Some(at) = *found {
            prefetch(at);
        }
    }
    for (index, (&hash, found)) in hashes.iter().zip(found).enumerate() {
        let index = start + index;
        // A second row of this tag is rare: it is compared only after the first one's record.
        if found.is_some_and(|at| !verify(index, at)) {
            *found = find_in::<C>(rows.set(hash), rows::tag(hash), |at| {
                Some(at) != *found && verify(index, at)
            });
        }
    }
}

/// Empties the rows from `way` on that have this tag. Not by vector: a hint is not enough for this.
fn empty(set: &Set, tag: u16, way: usize) {
    for row in &set.0[way..] {
        if rows::address(row.load(Relaxed), tag).is_some() {
            row.store(0, Relaxed);
        }
    }
}

/// The row that `row` replaces: an empty one, else one chosen by all bits of the set's present rows.
///
/// The rows change with each insertion, so the choice does too. No state is shared between threads.
#[inline]
fn victim(set: &Set, row: u64) -> &AtomicU64 {
    let mut bits = row;
    for old in &set.0 {
        let value = old.load(Relaxed);
        if value == 0 {
            return old;
        }
        bits = bits.rotate_left(7) ^ value;
    }
    &set.0[(crate::mix(bits) >> 61) as usize]
}
