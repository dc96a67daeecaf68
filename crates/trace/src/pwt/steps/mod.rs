//! Executions of translation blocks to few bytes and back, exactly.
//!
//! A model guesses which block follows from the two before it, and each address
//! from the last one of the same operand: that it has not moved, or has moved as
//! the access before it has. What was otherwise stands in columns: a bit for each
//! block and the numbers of those not guessed, four bits for each access and the
//! bytes of what was not guessed. What is rare stands among the marks. Encoder and
//! decoder run the same model, which starts empty in each block of the file.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub use decode::StepDecoder;
pub use encode::{StepEncoder, StepPart, Taken};

use pagewalk_ring::record::ADDRESS_MASK;

use crate::x86::Block;

/// Steps of a block of the file at most.
pub const MOST_STEPS: usize = 1 << 18;
/// A block of the file is closed when it has so many records.
const RECORDS_FULL: usize = 1 << 20;
/// Records of a block of the file at most: one step can have more than are left.
pub const MOST_RECORDS: usize = RECORDS_FULL + (1 << 16);

/// Codes among the marks, above those of [`super::marks`]: a step whose records are
/// not as many as its block expects; a step after which no block is known to
/// follow; a meeting point within a step.
const IRREGULAR: u64 = 64;
const BREAK: u64 = 65;
const MET_WITHIN: u64 = 66;

/// Four bits an access: the bytes that follow, added to one of two guesses.
const MOVED: u8 = 9;

const LOG: u32 = 16;

/// What is known of a block of code without a look at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Its number in the recording.
    pub number: u32,
    /// Its first operand among those of all blocks that were decoded, in the order in which
    /// they were.
    pub slots: u32,
    /// Records of a complete execution.
    pub records: u16,
    /// Instructions of a complete execution.
    pub instructions: u16,
    /// Ops of a complete execution, but for those in long chains.
    pub ops: u16,
    /// Markers in it.
    pub markers: u16,
}

impl Shape {
    /// The shape of the next `block` after those with so many operands; `None` when
    /// there are too many.
    pub fn of(block: &Block, number: u32, slots: u32) -> Option<Shape> {
        let records = u16::try_from(block.records()).ok()?;
        slots.checked_add(u32::from(records))?;
        Some(Shape {
            number,
            slots,
            records,
            instructions: u16::try_from(block.counted()).ok()?,
            ops: u16::try_from(block.ops()).ok()?,
            markers: u16::try_from(block.markers.len()).ok()?,
        })
    }

    /// Operands up to this block's last.
    pub fn end(&self) -> usize {
        self.slots as usize + usize::from(self.records)
    }
}

/// The last record of an operand, and how far it was from the one before it in the
/// block, or from the last address of the block before.
#[derive(Clone, Copy, Default)]
struct Slot {
    word: u64,
    offset: u64,
}

impl Slot {
    /// The record if the operand has moved as the access `before` has.
    #[inline(always)]
    fn moved(&self, before: u64) -> u64 {
        before.wrapping_add(self.offset)
    }

    #[inline(always)]
    fn learn(&mut self, word: u64, before: u64) {
        self.word = word;
        self.offset = word.wrapping_sub(before);
    }
}

/// What both sides know of the steps so far.
struct Model {
    next: Box<[u32; 1 << LOG]>,
    slots: Vec<Slot>,
    /// The last two blocks.
    last: u32,
    before: u32,
    /// The last record; only its address counts.
    access: u64,
}

impl Default for Model {
    fn default() -> Self {
        let next = vec![0; 1 << LOG].into_boxed_slice();
        Model {
            next: next.try_into().expect("of that length"),
            slots: Vec::new(),
            last: 0,
            before: 0,
            access: 0,
        }
    }
}

/// Where the guess of the block after these two stands.
#[inline(always)]
fn guess_at(last: u32, before: u32) -> usize {
    let key = last.wrapping_mul(0x9e37_79b1) ^ before.wrapping_mul(0x85eb_ca6b);
    (key >> (32 - LOG)) as usize
}

impl Model {
    fn reset(&mut self) {
        self.next.fill(0);
        self.slots.fill(Slot::default());
        (self.last, self.before, self.access) = (0, 0, 0);
    }

    /// Where the guess of the next block stands.
    #[inline(always)]
    fn guess(&mut self) -> &mut u32 {
        &mut self.next[guess_at(self.last, self.before)]
    }

    /// The address of the last access.
    #[inline(always)]
    fn address(&self) -> u64 {
        self.access & ADDRESS_MASK
    }

    #[inline(always)]
    fn follow(&mut self, number: u32) {
        self.before = self.last;
        self.last = number;
    }

    /// The operands of a block.
    #[inline(always)]
    fn slots(&mut self, shape: &Shape) -> &mut [Slot] {
        if self.slots.len() < shape.end() {
            self.grow(shape.end());
        }
        &mut self.slots[shape.slots as usize..shape.end()]
    }

    #[cold]
    fn grow(&mut self, slots: usize) {
        let room = slots.next_power_of_two().max(1 << 12);
        self.slots.resize(room, Slot::default());
    }
}
