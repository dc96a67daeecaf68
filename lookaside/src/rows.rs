//! The memory of a table: sets of eight rows, a set in each cache line.

use std::ptr::NonNull;

use crate::sync::{AtomicU64, Relaxed};

/// Rows of one set: those of one cache line of 64 bytes.
pub(crate) const WAYS: usize = 8;
/// Bits of a row that hold the address. The tag is above.
pub(crate) const ADDRESS_BITS: u32 = 48;
const ADDRESS_MASK: u64 = (1 << ADDRESS_BITS) - 1;
/// Tables of at least this many bytes are aligned to it, and ask for huge pages.
#[cfg(not(loom))]
const HUGE_PAGE: usize = 2 << 20;

/// Reasons for which a table can't be made or resized.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A table needs at least one row.
    #[error("a table needs at least one row")]
    NoRows,
    /// The rows exceed the address space or the memory that the system grants.
    #[error("no memory for {0} rows of 8 bytes")]
    NoMemory(usize),
}

/// One set. A row of 0 is empty.
#[repr(C, align(64))]
pub(crate) struct Set(pub(crate) [AtomicU64; WAYS]);

/// The tag that hashes of one set differ in: their highest 16 bits. A tag of 0 becomes 1, so that it
/// matches no empty row.
#[inline]
pub(crate) fn tag(hash: u64) -> u16 {
    let tag = (hash >> ADDRESS_BITS) as u16;
    tag | u16::from(tag == 0)
}

/// The row of this tag and address, or `None` if the address is null or has more than 48 bits.
#[inline]
pub(crate) fn row(tag: u16, at: NonNull<u8>) -> Option<u64> {
    let address = at.as_ptr().expose_provenance() as u64;
    (address <= ADDRESS_MASK).then_some(u64::from(tag) << ADDRESS_BITS | address)
}

/// The address in this row if its tag is `tag`.
#[inline]
pub(crate) fn address(row: u64, tag: u16) -> Option<NonNull<u8>> {
    if row >> ADDRESS_BITS != u64::from(tag) {
        return None;
    }
    NonNull::new(std::ptr::with_exposed_provenance_mut(
        (row & ADDRESS_MASK) as usize,
    ))
}

/// The sets of a table. C and C++ read both fields: [`Rows::sets`] and [`Rows::mask`].
#[repr(C)]
pub(crate) struct Rows {
    sets: NonNull<Set>,
    /// Number of sets less one. The number is a power of two.
    mask: u64,
    /// The allocation that holds the sets.
    base: NonNull<u8>,
}

// SAFETY: the sets are owned, and all shared access to them is atomic.
unsafe impl Send for Rows {}
// SAFETY: as above.
unsafe impl Sync for Rows {}

impl Rows {
    /// Empty sets for at least `rows` rows: the next power of two, at least one set.
    ///
    /// # Errors
    ///
    /// [`Error::NoRows`] for 0, [`Error::NoMemory`] if the system grants no memory for them.
    pub(crate) fn new(rows: usize) -> Result<Self, Error> {
        if rows == 0 {
            return Err(Error::NoRows);
        }
        let sets = rows
            .div_ceil(WAYS)
            .checked_next_power_of_two()
            .ok_or(Error::NoMemory(rows))?;
        let (base, first) = allocate(sets).ok_or(Error::NoMemory(rows))?;
        Ok(Self {
            sets: first,
            mask: sets as u64 - 1,
            base,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.mask as usize + 1
    }

    /// The set of this hash. Its lowest bits are the index.
    #[inline]
    pub(crate) fn set(&self, hash: u64) -> &Set {
        // SAFETY: the masked index is below the number of sets, which live as long as self.
        unsafe { self.sets.add((hash & self.mask) as usize).as_ref() }
    }

    pub(crate) fn flush(&self) {
        for index in 0..self.len() {
            for row in &self.set(index as u64).0 {
                // Pages that no row was inserted into stay untouched.
                if row.load(Relaxed) != 0 {
                    row.store(0, Relaxed);
                }
            }
        }
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        // SAFETY: `allocate` gave these sets, and nothing borrows them any longer.
        unsafe { free(self.base, self.len()) }
    }
}

/// Size and alignment of the sets, and the allocation that holds them at any offset. The allocator gives
/// zeroed memory of its own alignment without touching it, and of a larger one only by clearing it.
#[cfg(not(loom))]
fn layout(sets: usize) -> Option<(usize, usize, std::alloc::Layout)> {
    let bytes = sets.checked_mul(size_of::<Set>())?;
    let align = if bytes >= HUGE_PAGE {
        HUGE_PAGE
    } else {
        align_of::<Set>()
    };
    let whole =
        std::alloc::Layout::from_size_align(bytes.checked_add(align)?, align_of::<u64>()).ok()?;
    Some((bytes, align, whole))
}

/// The allocation and the aligned sets in it.
#[cfg(not(loom))]
fn allocate(sets: usize) -> Option<(NonNull<u8>, NonNull<Set>)> {
    let (bytes, align, whole) = layout(sets)?;
    // SAFETY: there is at least one set, so the size is not 0. Zeros are valid rows: empty ones.
    let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(whole) })?;
    // SAFETY: the allocation has `align` bytes more than the sets.
    let first = unsafe { base.add(base.align_offset(align)) };
    #[cfg(all(target_os = "linux", not(miri)))]
    if bytes >= HUGE_PAGE {
        // SAFETY: the range was just allocated. The advice changes no contents, and its failure nothing.
        unsafe { libc::madvise(first.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
    }
    let _ = bytes;
    Some((base, first.cast()))
}

/// # Safety
///
/// `base` comes from `allocate(sets)` and is not used afterwards.
#[cfg(not(loom))]
unsafe fn free(base: NonNull<u8>, sets: usize) {
    if let Some((_, _, whole)) = layout(sets) {
        // SAFETY: the caller's promise; the layout is that of the allocation.
        unsafe { std::alloc::dealloc(base.as_ptr(), whole) }
    }
}

#[cfg(loom)]
fn allocate(sets: usize) -> Option<(NonNull<u8>, NonNull<Set>)> {
    let sets: Box<[Set]> = (0..sets)
        .map(|_| Set(std::array::from_fn(|_| AtomicU64::new(0))))
        .collect();
    let first = NonNull::from(Box::leak(sets)).cast();
    Some((first.cast(), first))
}

/// # Safety
///
/// `base` comes from `allocate(sets)` and is not used afterwards.
#[cfg(loom)]
unsafe fn free(base: NonNull<u8>, sets: usize) {
    // SAFETY: the caller's promise.
    drop(unsafe {
        Box::from_raw(NonNull::slice_from_raw_parts(base.cast::<Set>(), sets).as_ptr())
    });
}
