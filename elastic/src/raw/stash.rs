//! Entries that found no room in their two buckets.

use core::ptr::NonNull;

use alloc::alloc::{alloc, dealloc};
use alloc::vec::Vec;

use super::TryReserveError;
use super::geometry::Geometry;

/// Entries by hash, each in an allocation of its own.
///
/// A good hash function leaves the stash empty. Keys that an attacker selects for equal buckets end here, and are
/// found by binary search. Keys of equal hashes are searched one by one, as in any hash table.
pub(super) struct Stash {
    entries: Vec<(u64, NonNull<u8>)>,
}

impl Stash {
    pub(super) const fn new() -> Self {
        Self {
            entries: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Hash and address of an entry.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<(u64, *mut u8)> {
        self.entries
            .get(index)
            .map(|&(hash, at)| (hash, at.as_ptr()))
    }

    /// Number of the entry of this hash for which `equal` is true.
    #[cold]
    pub(super) fn find(
        &self,
        hash: u64,
        mut equal: impl FnMut(*const u8) -> bool,
    ) -> Option<usize> {
        let start = self.entries.partition_point(|&(other, _)| other < hash);
        self.entries[start..]
            .iter()
            .take_while(|&&(other, _)| other == hash)
            .position(|&(_, at)| equal(at.as_ptr()))
            .map(|index| start + index)
    }

    /// Makes an entry of this hash, whose bytes are not initialised, and returns its number.
    pub(super) fn push(
        &mut self,
        geometry: &Geometry,
        hash: u64,
    ) -> Result<usize, TryReserveError> {
        let layout = geometry.entry_layout();
        let failure = TryReserveError::alloc(Some(layout));
        self.entries.try_reserve(1).map_err(|_| failure)?;
        let at = if layout.size() == 0 {
            // A multiple of the alignment, so that it is aligned.
            NonNull::new(core::ptr::without_provenance_mut(layout.align()))
        } else {
            // SAFETY: The layout has bytes.
            NonNull::new(unsafe { alloc(layout) })
        };
        // After the last entry of an equal hash, so that fewest entries move.
        let index = self.entries.partition_point(|&(other, _)| other <= hash);
        self.entries.insert(index, (hash, at.ok_or(failure)?));
        Ok(index)
    }

    /// Frees an entry, whose bytes the caller has taken.
    pub(super) fn remove(&mut self, geometry: &Geometry, index: usize) {
        let (_, at) = self.entries.remove(index);
        // SAFETY: The entry was an entry of this stash.
        unsafe { free(geometry, at) };
        self.trim();
    }

    /// Frees the entries for which `keep` is false, whose bytes the caller then has taken.
    pub(super) fn retain(&mut self, geometry: &Geometry, mut keep: impl FnMut(*mut u8) -> bool) {
        self.entries.retain(|&(_, at)| {
            let kept = keep(at.as_ptr());
            if !kept {
                // SAFETY: The entry leaves this stash, also if the next call of `keep` panics.
                unsafe { free(geometry, at) };
            }
            kept
        });
        self.trim();
    }

    /// Frees the index if there are no entries.
    fn trim(&mut self) {
        if self.entries.is_empty() {
            self.entries = Vec::new();
        }
    }

    /// Frees all entries. The caller has dropped their contents.
    pub(super) fn clear(&mut self, geometry: &Geometry) {
        while !self.entries.is_empty() {
            self.remove(geometry, self.entries.len() - 1);
        }
    }

    /// Bytes of the entries and of their index.
    pub(super) fn bytes(&self, geometry: &Geometry) -> usize {
        self.entries.len() * geometry.size
            + self.entries.capacity() * size_of::<(u64, NonNull<u8>)>()
    }
}

/// Frees the memory of an entry.
///
/// # Safety
///
/// The entry was made by [`Stash::push`] with this geometry, and is never used again.
unsafe fn free(geometry: &Geometry, at: NonNull<u8>) {
    let layout = geometry.entry_layout();
    if layout.size() != 0 {
        // SAFETY: The entry was allocated with this layout.
        unsafe { dealloc(at.as_ptr(), layout) };
    }
}
