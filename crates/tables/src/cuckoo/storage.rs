//! The memory of one way: its lines and their physical addresses.

use pagewalk_units::{Addr, Frame};

use crate::FrameSource;
use crate::cluster::Line;

/// Bytes of a line.
pub(crate) const LINE_BYTES: u64 = 64;

/// Partition of a way's physical memory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cut {
    /// One block. An in-place doubling adds a block of the current total size, and a
    /// halving frees the last block.
    Doubling {
        /// log2 of the slots of the first block.
        first: u32,
    },
    /// Chunks of one size, located through the L2P table.
    Chunks {
        /// log2 of the slots of a chunk.
        shift: u32,
    },
}

/// Lines and blocks of one generation of a way.
///
/// Host memory is allocated zeroed: one piece, and another one for each in-place
/// doubling. The host kernel backs it on first touch.
#[derive(Clone)]
pub(crate) struct Storage<A> {
    pieces: Vec<Piece>,
    /// log2 of the lines of the first piece.
    first: u32,
    cut: Cut,
    block_bytes: u64,
    blocks: Vec<Frame<A>>,
}

/// Lines that are aligned to host cache lines.
#[derive(Clone)]
struct Piece {
    words: Vec<u64>,
    /// Index of the first aligned word.
    first: usize,
}

const WORDS: usize = (LINE_BYTES / 8) as usize;

impl Piece {
    /// `n` free lines.
    fn new(n: u64) -> Self {
        let words = vec![0; (n as usize + 1) * WORDS - 1];
        let past = words.as_ptr().addr() / size_of::<u64>() % WORDS;
        let first = (WORDS - past) % WORDS;
        Piece { words, first }
    }
    #[inline]
    fn line(&self, i: usize) -> &Line {
        let at = self.first + i * WORDS;
        self.words[at..].first_chunk().expect("a line of it")
    }
    #[inline]
    fn line_mut(&mut self, i: usize) -> &mut Line {
        let at = self.first + i * WORDS;
        self.words[at..].first_chunk_mut().expect("a line of it")
    }
    fn lines(&self) -> &[Line] {
        self.words[self.first..].as_chunks().0
    }
    fn truncate(&mut self, n: u64) {
        self.words.truncate((n as usize + 1) * WORDS - 1);
        self.words.shrink_to_fit();
    }
}

impl<A: Addr> Storage<A> {
    /// `slots` free lines (a power of two) in one block.
    pub(crate) fn contiguous(slots: u64, block: Frame<A>) -> Self {
        let first = slots.ilog2();
        Storage {
            pieces: vec![Piece::new(slots)],
            first,
            cut: Cut::Doubling { first },
            block_bytes: slots * LINE_BYTES,
            blocks: vec![block],
        }
    }
    /// `slots` free lines in chunks of `chunk` bytes. The chunks may exceed the slots.
    pub(crate) fn chunked(slots: u64, chunk: u64, blocks: Vec<Frame<A>>) -> Self {
        debug_assert!(blocks.len() as u64 * chunk >= slots * LINE_BYTES);
        Storage {
            pieces: vec![Piece::new(slots)],
            first: slots.ilog2(),
            cut: Cut::Chunks {
                shift: (chunk / LINE_BYTES).ilog2(),
            },
            block_bytes: chunk,
            blocks,
        }
    }

    /// Number of slots, free or not.
    pub(crate) fn slots(&self) -> u64 {
        1 << (self.first + self.pieces.len() as u32 - 1)
    }
    /// Bytes of simulated memory, including the unused part of chunks.
    pub(crate) fn bytes(&self) -> u64 {
        match self.cut {
            Cut::Doubling { .. } => self.slots() * LINE_BYTES,
            Cut::Chunks { .. } => self.block_bytes * self.blocks.len() as u64,
        }
    }
    /// Blocks of simulated memory.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks.len()
    }
    /// Bytes of a chunk; `None` if the memory has no chunks.
    pub(crate) fn chunk(&self) -> Option<u64> {
        matches!(self.cut, Cut::Chunks { .. }).then_some(self.block_bytes)
    }
    /// Physical addresses of the blocks, in slot order.
    pub(crate) fn bases(&self) -> impl Iterator<Item = A> {
        self.blocks.iter().map(|block| block.base)
    }
    /// Bytes of block `index`.
    fn bytes_of(&self, index: usize) -> u64 {
        match self.cut {
            Cut::Doubling { first } if index > 0 => LINE_BYTES << (first + index as u32 - 1),
            Cut::Doubling { first } => LINE_BYTES << first,
            Cut::Chunks { .. } => self.block_bytes,
        }
    }

    /// Bytes of the largest block.
    pub(crate) fn largest(&self) -> u64 {
        self.bytes_of(self.blocks.len() - 1)
    }

    /// The piece of `slot`, and its index there.
    #[inline]
    fn locate(&self, slot: u64) -> (usize, usize) {
        doubling(self.first, slot)
    }
    /// The line of `slot`.
    #[inline]
    pub(crate) fn line(&self, slot: u64) -> &Line {
        let (piece, at) = self.locate(slot);
        self.pieces[piece].line(at)
    }
    /// The line of `slot`, mutable.
    #[inline]
    pub(crate) fn line_mut(&mut self, slot: u64) -> &mut Line {
        let (piece, at) = self.locate(slot);
        self.pieces[piece].line_mut(at)
    }
    /// Physical address of `slot`.
    #[inline]
    pub(crate) fn address(&self, slot: u64) -> u64 {
        let (block, at) = match self.cut {
            Cut::Doubling { first } => doubling(first, slot),
            Cut::Chunks { shift } => (
                (slot >> shift) as usize,
                (slot & ((1 << shift) - 1)) as usize,
            ),
        };
        self.blocks[block].base.raw() + at as u64 * LINE_BYTES
    }

    /// Doubles the slots in place. `blocks` is the additional memory: chunks, or one
    /// block of the way's current size.
    pub(crate) fn double(&mut self, blocks: Vec<Frame<A>>) {
        let slots = self.slots();
        self.pieces.push(Piece::new(slots));
        self.blocks.extend(blocks);
        debug_assert!(self.blocks_for(2 * slots) == self.blocks.len());
    }
    /// Halves the slots in place and frees the blocks that become unused. The upper
    /// half must hold no entries. Returns the number and bytes of freed blocks.
    pub(crate) fn halve(&mut self, frames: &mut dyn FrameSource<A>) -> (usize, u64) {
        let slots = self.slots() / 2;
        if self.pieces.len() > 1 {
            self.pieces.pop();
        } else {
            self.pieces[0].truncate(slots);
            self.first -= 1;
        }
        let (mut blocks, mut bytes) = (0, 0);
        while self.blocks.len() > self.blocks_for(slots) {
            let size = self.bytes_of(self.blocks.len() - 1);
            let block = self.blocks.pop().expect("more than are needed");
            frames.free(block, size);
            blocks += 1;
            bytes += size;
        }
        (blocks, bytes)
    }
    /// Number of blocks that `slots` need in this partition.
    fn blocks_for(&self, slots: u64) -> usize {
        match self.cut {
            Cut::Doubling { first } => (slots.ilog2() - first.min(slots.ilog2())) as usize + 1,
            Cut::Chunks { shift } => (slots >> shift).max(1) as usize,
        }
    }
    /// Frees all memory. Returns the number and bytes of blocks.
    pub(crate) fn free(self, frames: &mut dyn FrameSource<A>) -> (usize, u64) {
        let bytes = (0..self.blocks.len()).map(|i| self.bytes_of(i)).sum();
        for (i, &block) in self.blocks.iter().enumerate() {
            frames.free(block, self.bytes_of(i));
        }
        (self.blocks.len(), bytes)
    }
    /// All lines, in slot order.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &Line> {
        (self.pieces.iter()).flat_map(Piece::lines)
    }
}

/// Piece and index of `slot`. The first piece has `2^first` slots, and each further
/// piece has as many as all pieces before it.
#[inline]
fn doubling(first: u32, slot: u64) -> (usize, usize) {
    let piece = (u64::BITS - (slot >> first).leading_zeros()) as usize;
    // For a slot beyond the first piece, the highest bit determines the piece.
    let top = if piece == 0 {
        0
    } else {
        1 << (first + piece as u32 - 1)
    };
    (piece, (slot ^ top) as usize)
}
