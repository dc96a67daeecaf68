//! x86-64 code as ops: a translation block is decoded once into a [`Block`], a
//! template of its ops, and expanded each time it executes.
//!
//! Instructions that access no memory and do not branch are folded: they add their latency to the path from producer to
//! consumer. A value with more producers than an op can name becomes a `Compute` op.

mod build;
mod expand;
mod illegal;
mod latency;
mod operands;
mod repeat;
mod value;
mod work;

pub use expand::Registers;
pub use illegal::describe_illegal;

use pagewalk_ring::record::{self, INDEX_SHIFT};
use pagewalk_stream::{End, Event, InstructionClass, Op};

/// Number of registers that carry dependences: 16 general ones, 32 vector ones, the flags, and the x87 stack as one.
pub(crate) const REGISTERS: usize = 50;
pub(crate) const STACK_POINTER: u8 = 4;
pub(crate) const FRAME_POINTER: u8 = 5;
/// Registers of a system call's result, second and third argument. For a query, see [`pagewalk_ring::record::query`],
/// the arguments are the integer and the address.
pub(crate) const CALL_RESULT: u8 = 0;
pub(crate) const CALL_INTEGER: u8 = 6;
pub(crate) const CALL_ADDRESS: u8 = 2;
pub(crate) const FLAGS: u8 = 48;
pub(crate) const X87: u8 = 49;
const _: () = assert!(record::UNKNOWN_ADDRESS == pagewalk_stream::UNKNOWN_ADDRESS);
/// Instructions whose addresses the records of a live program hold. Older recordings lack some.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// Software prefetches, from version 6 on. Without them, each iteration of a repeated string instruction is an
    /// instruction.
    pub prefetches: bool,
    /// Flushes, from version 7 on. Without them, non-temporal stores are ordinary ones.
    pub flushes: bool,
}

impl Recorded {
    /// The records of this version.
    pub const ALL: Recorded = Recorded {
        prefetches: true,
        flushes: true,
    };
}

/// Most instructions of an emulator's block.
const LONGEST_BLOCK: usize = 512;

/// A dependence on a register's value at the start of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LiveIn {
    op: u16,
    which: u8,
    register: u8,
    /// Cycles from that value to the op's input.
    latency: u8,
}

/// A memory access of the block, in the order in which the emulator makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operand {
    op: u16,
    instruction: u16,
    store: bool,
    /// Records of the access: the emulator splits accesses wider than 8 bytes.
    pieces: u16,
    /// The access may not happen: a repeated string instruction with count 0, or a masked element.
    optional: bool,
}

/// A region-of-interest marker in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Ops before it.
    pub op: usize,
    /// Start or end of the region.
    pub begin: bool,
}

/// `nopl 0x53494d01(%rax)`: the region of interest begins.
pub const ROI_BEGIN: u64 = 0x5349_4d01;
/// `nopl 0x53494d02(%rax)`: the region of interest ends.
pub const ROI_END: u64 = 0x5349_4d02;

/// A block of code with one entry at its top and one exit at its bottom, as a template.
///
/// The fields that each execution reads come first and together: programs run through more blocks than a cache holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Block {
    ops: Box<[Op]>,
    /// Upper 16 bits of the records of a complete execution.
    pattern: Box<[u16]>,
    /// (op, record) for the address of each memory op of a complete execution.
    slots: Box<[(u16, u16)]>,
    live_in: Box<[LiveIn]>,
    /// At the end, the register holds the result of this op, this many cycles later.
    made: Box<[(u8, u8, u16)]>,
    /// At the end, the register holds its old value, this many cycles later.
    advanced: Box<[(u8, u16)]>,
    /// At the end, the first register holds the second one's value from the start, this many cycles later.
    moved: Box<[(u8, u8, u16)]>,
    /// At the end, the register's value depends on nothing.
    ready: Box<[u8]>,
    branch: Option<Branch>,
    /// Markers in the block, in order.
    pub markers: Box<[Marker]>,
    /// Instructions that the timing model does not simulate as hardware does, by class.
    pub approximated: Box<[(InstructionClass, u16)]>,
    /// Address of the first instruction.
    pub address: u64,
    /// Address after the last instruction.
    pub end: u64,
    /// Number of instructions.
    pub instructions: u32,
    /// Instruction of each op.
    owners: Box<[u16]>,
    operands: Box<[Operand]>,
    /// The repeated string instruction at its end.
    repeat: Option<Box<repeat::Repeat>>,
}

/// A part of a thread's stream.
#[derive(Debug)]
pub enum Piece {
    /// Ops, in order.
    Ops(Vec<Op>),
    /// The end of a batch.
    End(End),
}

/// The branch that a block ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Branch {
    target: u64,
    op: u16,
    flags: u8,
}

impl Block {
    /// For a source that holds what a processor has executed. An instruction whose accesses differ from the template has
    /// executed, too, and EVEX encodings are instructions like others.
    pub(crate) fn executed(mut self) -> Self {
        self.operands.iter_mut().for_each(|o| o.optional = true);
        let counted = self.approximated.iter().copied();
        self.approximated = counted
            .filter(|(class, _)| *class != InstructionClass::Evex)
            .collect();
        self
    }
    /// Ops of an execution, without a few for long chains.
    pub fn ops(&self) -> usize {
        self.ops.len()
    }
    /// Index of the first op of an instruction, or of one after it.
    pub fn first_op(&self, instruction: u16) -> usize {
        self.owners.iter().take_while(|&&o| o < instruction).count()
    }
    /// Memory-access records of a complete execution.
    pub fn records(&self) -> usize {
        self.pattern.len()
    }
    /// Upper 16 bits of these records.
    #[cfg(test)]
    pub(crate) fn expected(&self) -> &[u16] {
        &self.pattern
    }
    /// True if these are the records of a complete execution.
    #[inline]
    pub fn completed(&self, records: &[u64]) -> bool {
        records.len() == self.pattern.len()
            && records
                .iter()
                .zip(&self.pattern)
                .all(|(r, p)| (r >> INDEX_SHIFT) as u16 == *p)
    }
    /// Instructions of a complete execution, counted from its ops.
    pub fn counted(&self) -> u64 {
        self.ops.iter().map(|o| u64::from(o.insns)).sum()
    }
    /// Decodes a block as the plugin sends it: address, number of instructions, their sizes, their bytes. `None` if it
    /// is cut short. `recorded`: instructions whose addresses the records hold.
    pub fn parse(raw: &[u8], recorded: Recorded) -> Option<Block> {
        let (head, rest) = raw.split_at_checked(12)?;
        let address = u64::from_le_bytes(head[..8].try_into().ok()?);
        let count = u32::from_le_bytes(head[8..].try_into().ok()?) as usize;
        if count > LONGEST_BLOCK {
            return None;
        }
        let (sizes, bytes) = rest.split_at_checked(count)?;
        Some(Block::decode_as(address, sizes, bytes, recorded))
    }
    /// The `ops` of an execution with the ends between them: its markers, and changes that were met before the access
    /// of an instruction.
    #[cold]
    pub fn cut(&self, mut ops: Vec<Op>, met: &mut Vec<(u16, u64)>) -> Vec<Piece> {
        let marks = self.markers.iter().map(|marker| {
            let event = if marker.begin {
                Event::RoiBegin
            } else {
                Event::RoiEnd
            };
            (marker.op, End::Event { event, ticket: 0 })
        });
        let meetings = met
            .drain(..)
            .map(|(instruction, ticket)| (self.first_op(instruction), End::Meet { ticket }));
        let mut cuts: Vec<(usize, End)> = marks.chain(meetings).collect();
        cuts.sort_by_key(|(op, _)| *op);
        let mut pieces = Vec::with_capacity(2 * cuts.len() + 1);
        for (op, end) in cuts.into_iter().rev() {
            pieces.push(Piece::Ops(ops.split_off(op.min(ops.len()))));
            pieces.push(Piece::End(end));
        }
        pieces.push(Piece::Ops(ops));
        pieces.reverse();
        pieces
    }
}
