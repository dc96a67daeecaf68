//! Sizes of buckets and chunks.

use core::alloc::Layout;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Bytes of a huge page of x86-64 and AArch64.
pub(super) const HUGE: usize = 2 << 20;

/// Chunks that are allocated at once in a way that has as many.
const BLOCK: usize = 4;

/// Bytes of a full chunk, at most: a block is a huge page. The insert that doubles the first chunk copies half a chunk
/// and waits for the page faults of the copy, so a chunk is smaller than a block.
const CHUNK: usize = HUGE / BLOCK;

/// Bytes of the tags of a bucket.
pub(super) const TAGS: usize = 8;

/// Layout of a bucket and number of buckets in a chunk, for entries of one size.
///
/// A bucket is eight bytes of tags and three to seven entries: the number that wastes least memory. Buckets of more
/// entries displace fewer, which outweighs a second cache line of the bucket in measurements with entries of 16 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// Bytes of an entry.
    pub(super) size: usize,
    /// Alignment of an entry in bytes.
    pub(super) align: usize,
    /// Entries of a bucket.
    pub(super) slots: usize,
    /// Bytes from the start of a bucket to its first entry.
    pub(super) offset: usize,
    /// Bytes from a bucket to the next.
    pub(super) stride: usize,
    /// Binary logarithm of the buckets of a full chunk.
    pub(super) chunk_log2: u32,
}

impl Geometry {
    /// The geometry for entries of this layout; `None` if a bucket would be larger than the address space.
    #[must_use]
    pub const fn new(entry: Layout) -> Option<Self> {
        let (size, align) = (entry.size(), entry.align());
        // A bucket is below eight entries and two alignments, and is multiplied by at most seven.
        if size > isize::MAX as usize / 128 || align > isize::MAX as usize / 128 {
            return None;
        }
        let offset = if align > TAGS { align } else { TAGS };
        let mut best = stride_of(size, align, offset, 7);
        let mut slots = 7;
        let mut candidate = 7;
        while candidate > 3 {
            candidate -= 1;
            let stride = stride_of(size, align, offset, candidate);
            if best > LINE && slots * stride < candidate * best {
                (slots, best) = (candidate, stride);
            }
        }
        let chunk = CHUNK / best;
        Some(Self {
            size,
            align,
            slots,
            offset,
            stride: best,
            chunk_log2: if chunk == 0 { 0 } else { chunk.ilog2() },
        })
    }

    /// Bits of the slots in a mask of a bucket.
    #[inline]
    pub(super) const fn slot_bits(&self) -> u32 {
        (1 << self.slots) - 1
    }

    /// Buckets of a full chunk.
    #[inline]
    pub(super) const fn chunk_buckets(&self) -> usize {
        1 << self.chunk_log2
    }

    /// Layout of one entry.
    pub(super) fn entry_layout(&self) -> Layout {
        // Both come from a `Layout`.
        Layout::from_size_align(self.size, self.align).unwrap_or(Layout::new::<()>())
    }

    /// First chunk and number of chunks of the block that has a chunk.
    #[inline]
    pub(super) const fn block(&self, chunk: usize) -> (usize, usize) {
        if chunk < BLOCK || self.stride > CHUNK {
            (chunk, 1)
        } else {
            (chunk - chunk % BLOCK, BLOCK)
        }
    }

    /// Layout of `buckets` buckets, at most a block's.
    pub(super) fn block_layout(&self, buckets: usize) -> Option<Layout> {
        let bytes = buckets.checked_mul(self.stride)?;
        // A bucket of two lines is a pair that processors prefetch together.
        let line = 1 << self.stride.trailing_zeros();
        let align = if cfg!(feature = "huge-pages") && bytes == HUGE {
            HUGE
        } else if line > 2 * LINE {
            2 * LINE
        } else {
            line
        };
        Layout::from_size_align(
            bytes,
            if align > self.align {
                align
            } else {
                self.align
            },
        )
        .ok()
    }
}

/// Bytes from a bucket of `slots` entries to the next. A bucket of less than a line never straddles two.
const fn stride_of(size: usize, align: usize, offset: usize, slots: usize) -> usize {
    let bytes = offset + slots * size;
    if bytes <= LINE {
        let power = bytes.next_power_of_two();
        if power > align { power } else { align }
    } else {
        let unit = if align > LINE { align } else { LINE };
        bytes.next_multiple_of(unit)
    }
}

/// Source of the geometry of a table.
///
/// A typed map has a constant one, which the compiler folds into the code. A table for another language reads
/// it from memory.
///
/// # Safety
///
/// The geometry is the same at each call: a table allocates, reads and frees by it.
pub unsafe trait Shape: Copy {
    /// The geometry.
    fn geometry(self) -> Geometry;
}

// SAFETY: A geometry never changes.
unsafe impl Shape for Geometry {
    #[inline]
    fn geometry(self) -> Geometry {
        self
    }
}
