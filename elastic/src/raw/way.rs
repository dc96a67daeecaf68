//! A cuckoo way: buckets in chunks behind a directory, the L2P table of ME-HPT (section IV-A).

use core::alloc::Layout;
use core::ptr::{self, NonNull};

use alloc::alloc::{alloc, dealloc};
use alloc::vec::Vec;

use super::TryReserveError;
use super::geometry::{Geometry, TAGS};

/// Buckets `0..buckets()`, each reached by the low bits of a hash.
///
/// The way grows by linear hashing, ME-HPT's in-place resizing (section IV-C): a new last bucket takes half of
/// the entries of the bucket whose number has one bit fewer. Chunks are allocated one at a time, in a large way a few
/// at a time. The first one is small in a small way, and doubles until it is a full chunk (section IV-B).
pub(super) struct Way {
    /// Start of each chunk.
    chunks: Vec<NonNull<u8>>,
    buckets: usize,
    /// All ones: the bits of a bucket's number, until the number of buckets has doubled.
    mask: usize,
    /// Buckets of the first chunk: a power of two. All others are full chunks.
    first: usize,
}

impl Way {
    pub(super) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            buckets: 0,
            mask: 0,
            first: 0,
        }
    }

    #[inline]
    pub(super) fn buckets(&self) -> usize {
        self.buckets
    }

    /// The bit of a hash that separates the buckets that are being split: the way has from this many buckets to
    /// fewer than twice as many.
    #[inline]
    pub(super) fn bit(&self) -> usize {
        (self.mask >> 1) + 1
    }

    /// Number of the bucket of `hash`.
    #[inline]
    pub(super) fn index(&self, hash: usize) -> usize {
        let index = hash & self.mask;
        if index < self.buckets {
            index
        } else {
            index & (self.mask >> 1)
        }
    }

    /// Address of a bucket.
    ///
    /// # Safety
    ///
    /// The bucket has room ([`Self::reserve`]).
    #[inline]
    pub(super) unsafe fn at(&self, geometry: &Geometry, index: usize) -> *mut u8 {
        let (chunk, within) = (
            index >> geometry.chunk_log2,
            index & (geometry.chunk_buckets() - 1),
        );
        // SAFETY: The bucket has room, so the directory has its chunk, and the chunk holds it.
        unsafe {
            self.chunks
                .get_unchecked(chunk)
                .as_ptr()
                .add(within * geometry.stride)
        }
    }

    /// Buckets for which there is room.
    fn room(&self, geometry: &Geometry) -> usize {
        match self.chunks.len() {
            0 => 0,
            chunks => (chunks - 1) * geometry.chunk_buckets() + self.first,
        }
    }

    /// Bytes of all chunks and of the directory.
    pub(super) fn bytes(&self, geometry: &Geometry) -> usize {
        self.room(geometry) * geometry.stride + self.chunks.capacity() * size_of::<NonNull<u8>>()
    }

    /// Allocates room for `buckets` buckets in all. After an error, there is the same room as before.
    pub(super) fn reserve(
        &mut self,
        geometry: &Geometry,
        buckets: usize,
    ) -> Result<(), TryReserveError> {
        if buckets <= self.room(geometry) {
            return Ok(());
        }
        let full = geometry.chunk_buckets();
        let (start, count) = geometry.block((buckets - 1) / full);
        let chunks = start + count;
        let missing = chunks - self.chunks.len();
        self.chunks
            .try_reserve(missing)
            .map_err(|_| TryReserveError::alloc(Layout::array::<usize>(chunks).ok()))?;
        let first = if chunks > 1 {
            full
        } else {
            buckets.next_power_of_two()
        };
        let before = self.chunks.len();
        let mut result = if before == 0 {
            self.first = first;
            Ok(())
        } else {
            self.resize_first(geometry, first)
        };
        while result.is_ok() && self.chunks.len() < chunks {
            result = self.push_block(geometry);
        }
        if result.is_err() {
            self.free_from(geometry, before);
        }
        result
    }

    /// Allocates the next block of chunks, for which the directory has room.
    fn push_block(&mut self, geometry: &Geometry) -> Result<(), TryReserveError> {
        let (start, count) = geometry.block(self.chunks.len());
        let size = self.chunk_buckets(geometry, start);
        let at = allocate(geometry, count * size)?;
        for chunk in 0..count {
            // SAFETY: The block has so many chunks.
            self.chunks
                .push(unsafe { at.add(chunk * size * geometry.stride) });
        }
        Ok(())
    }

    /// Buckets of a chunk.
    fn chunk_buckets(&self, geometry: &Geometry, chunk: usize) -> usize {
        if chunk == 0 {
            self.first
        } else {
            geometry.chunk_buckets()
        }
    }

    /// Frees the blocks that begin with this chunk or later.
    fn free_from(&mut self, geometry: &Geometry, chunk: usize) {
        while let Some(last) = self.chunks.len().checked_sub(1) {
            let (start, count) = geometry.block(last);
            if start < chunk {
                break;
            }
            let layout = geometry.block_layout(count * self.chunk_buckets(geometry, start));
            if let Some(layout) = layout {
                // SAFETY: The block was allocated with this layout.
                unsafe { dealloc(self.chunks[start].as_ptr(), layout) };
            }
            self.chunks.truncate(start);
        }
    }

    /// Frees blocks without a bucket.
    pub(super) fn trim(&mut self, geometry: &Geometry) {
        self.free_from(geometry, self.buckets.div_ceil(geometry.chunk_buckets()));
    }

    /// Moves the first chunk to another of `size` buckets, which holds all buckets that it has.
    fn resize_first(&mut self, geometry: &Geometry, size: usize) -> Result<(), TryReserveError> {
        if size == self.first {
            return Ok(());
        }
        let at = allocate(geometry, size)?;
        let used = self.buckets.min(self.first);
        debug_assert!(used <= size);
        // SAFETY: Both chunks hold `used` buckets and do not overlap.
        unsafe {
            ptr::copy_nonoverlapping(self.chunks[0].as_ptr(), at.as_ptr(), used * geometry.stride)
        };
        let before = core::mem::replace(&mut self.chunks[0], at);
        if let Some(layout) = geometry.block_layout(self.first) {
            // SAFETY: The chunk was allocated with this layout.
            unsafe { dealloc(before.as_ptr(), layout) };
        }
        self.first = size;
        Ok(())
    }

    /// Appends an empty bucket, for which there is room.
    ///
    /// # Safety
    ///
    /// [`Self::reserve`] was successful for one bucket more than there are.
    pub(super) unsafe fn push(&mut self, geometry: &Geometry) {
        // SAFETY: There is room for the bucket, of which the tags are the first bytes.
        unsafe { ptr::write_bytes(self.at(geometry, self.buckets), 0, TAGS) };
        self.set_buckets(self.buckets + 1);
    }

    /// Removes the last bucket, and a block when more than half a block is unused before it.
    pub(super) fn pop(&mut self, geometry: &Geometry) {
        self.set_buckets(self.buckets - 1);
        let full = geometry.chunk_buckets();
        if self.chunks.len() > 1 {
            let (start, count) = geometry.block(self.chunks.len() - 1);
            if self.buckets <= start * full - count * full / 2 {
                self.free_from(geometry, start);
            }
        } else if self.buckets <= self.first / 4 {
            // Without memory for a smaller chunk, the larger one stays.
            let _ = self.resize_first(geometry, self.first / 2);
        }
    }

    fn set_buckets(&mut self, buckets: usize) {
        self.buckets = buckets;
        self.mask = match buckets.checked_ilog2() {
            None => 0,
            Some(level) => (1_usize << level << 1).wrapping_sub(1),
        };
    }

    /// Frees all chunks. The way has no bucket afterwards.
    pub(super) fn clear(&mut self, geometry: &Geometry) {
        self.free_from(geometry, 0);
        *self = Self::new();
    }
}

/// Allocates `buckets` buckets.
fn allocate(geometry: &Geometry, buckets: usize) -> Result<NonNull<u8>, TryReserveError> {
    let layout = geometry.block_layout(buckets);
    let Some(nonzero) = layout.filter(|layout| layout.size() != 0) else {
        return Err(TryReserveError::alloc(layout));
    };
    // SAFETY: The layout has bytes.
    let at = NonNull::new(unsafe { alloc(nonzero) }).ok_or(TryReserveError::alloc(layout))?;
    advise(at, nonzero);
    Ok(at)
}

/// Asks Linux to serve a block by a huge page. The insert that touches it first then waits until all of it is zero.
fn advise(at: NonNull<u8>, layout: Layout) {
    #[cfg(all(feature = "huge-pages", target_os = "linux", not(miri)))]
    if layout.size() == super::geometry::HUGE {
        const MADV_HUGEPAGE: core::ffi::c_int = 14;
        unsafe extern "C" {
            fn madvise(
                at: *mut core::ffi::c_void,
                bytes: usize,
                advice: core::ffi::c_int,
            ) -> core::ffi::c_int;
        }
        // SAFETY: The block consists of whole pages that belong to it alone, and the advice changes no contents.
        // Its failure costs speed only.
        unsafe { madvise(at.as_ptr().cast(), layout.size(), MADV_HUGEPAGE) };
    }
    let _ = (at, layout);
}
