//! Lossless compression of executions of translation blocks.
//!
//! A model guesses each block from the two before it, and each address from the last one of the same operand. Either
//! the address has not moved, or it has moved as far as the previous access. Columns hold one bit for each block, the
//! numbers of wrongly guessed blocks, four bits for each access, and the address differences. Rare cases are marks.
//! Encoder and decoder run the same model, which starts empty in each block of the file.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub use decode::StepDecoder;
pub use encode::{StepEncoder, StepPart, Taken};

use pagewalk_ring::record::ADDRESS_MASK;

use crate::x86::Block;

/// Most steps of a block of the file.
pub const MOST_STEPS: usize = 1 << 18;
/// Records at which a block of the file is closed.
const RECORDS_FULL: usize = 1 << 20;
/// Most records of a block of the file: one step can exceed the limit.
pub const MOST_RECORDS: usize = RECORDS_FULL + (1 << 16);

/// Codes of marks above those of [`super::marks`]. In order: a step with another number of records than its block
/// expects, a step without a known next block, and a meeting point within a step.
const IRREGULAR: u64 = 64;
const BREAK: u64 = 65;
const MET_WITHIN: u64 = 66;

/// Four bits for each access: the number of bytes that follow, plus this for the second guess.
const MOVED: u8 = 9;

const LOG: u32 = 16;

/// Numbers about a block of code that encoder and decoder need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Its number in the recording.
    pub number: u32,
    /// Index of its first operand among the operands of all blocks, in the order of their decoding.
    pub slots: u32,
    /// Records of a complete execution.
    pub records: u16,
    /// Instructions of a complete execution.
    pub instructions: u16,
    /// Ops of a complete execution, without those for long chains.
    pub ops: u16,
    /// Markers in it.
    pub markers: u16,
}

impl Shape {
    /// The shape of the next `block`, after blocks with `slots` operands; `None` if there are too many.
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

    /// Index after this block's last operand.
    pub fn end(&self) -> usize {
        self.slots as usize + usize::from(self.records)
    }
}

/// The last record of an operand, and its distance from the previous access.
#[derive(Clone, Copy, Default)]
struct OperandState {
    word: u64,
    offset: u64,
}

impl OperandState {
    /// The record if the operand has moved as far as the access `before`.
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

/// State of the predictor; encoder and decoder have the same.
struct Model {
    next: Box<[u32; 1 << LOG]>,
    slots: Vec<OperandState>,
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

/// Place of the guess for the block after these two.
#[inline(always)]
fn guess_at(last: u32, before: u32) -> usize {
    let key = last.wrapping_mul(0x9e37_79b1) ^ before.wrapping_mul(0x85eb_ca6b);
    (key >> (32 - LOG)) as usize
}

impl Model {
    fn reset(&mut self) {
        self.next.fill(0);
        self.slots.fill(OperandState::default());
        (self.last, self.before, self.access) = (0, 0, 0);
    }

    /// Place of the guess for the next block.
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
    fn advance(&mut self, number: u32) {
        self.before = self.last;
        self.last = number;
    }

    /// The operands of a block.
    #[inline(always)]
    fn slots(&mut self, shape: &Shape) -> &mut [OperandState] {
        if self.slots.len() < shape.end() {
            self.grow(shape.end());
        }
        &mut self.slots[shape.slots as usize..shape.end()]
    }

    #[cold]
    fn grow(&mut self, slots: usize) {
        let room = slots.next_power_of_two().max(1 << 12);
        self.slots.resize(room, OperandState::default());
    }
}
