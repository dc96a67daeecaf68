//! Instructions of a thread, with their accesses, as ops.
//!
//! x86-64 encodings give the same ops as those of a live program: blocks of instructions are decoded once. DynamoRIO can
//! replace encodings by the registers that an instruction reads and writes ("regdeps", `core/ir/isa_regdeps`). Then each
//! instruction takes one cycle, as in ChampSim's records. Without encodings, instructions are independent.

use arrayvec::ArrayVec;
use pagewalk_ring::record::{ADDRESS_MASK, INDEX_SHIFT, STORE};
use pagewalk_stream::{InstructionCounts, Op, OpClass, PrefetchHint, flags};
use rustc_hash::FxHashMap;

use super::entry::{Entry, file_type, is_branch, kind};
use crate::registers::{Inputs, Ready, Writers};
use crate::x86::{Block, Registers};

/// Most instructions of a block.
const LONGEST_BLOCK: usize = 64;
/// Most bytes of one op.
const LINE: u64 = 64;
/// User addresses have this many bits.
const USER_BITS: u32 = 47;

/// Kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Load,
    Store,
    Prefetch(PrefetchHint),
}

/// Turns instructions into ops.
pub(super) enum Code {
    X86(Box<X86>),
    Named(Box<Named>),
}

impl Code {
    /// For a file of this type.
    pub fn of(file_type: u64) -> Self {
        let has = |bits| file_type & bits != 0;
        let encodings = has(file_type::ENCODINGS);
        if encodings && has(file_type::X86_64) && !has(file_type::REGDEPS) {
            return Code::X86(Box::default());
        }
        Code::Named(Box::new(Named {
            encodings: (encodings && has(file_type::REGDEPS)).then(FxHashMap::default),
            tagged: has(file_type::AARCH64),
            ..Named::default()
        }))
    }

    /// True if dependences between instructions are known.
    pub fn has_dependences(file_type: u64) -> bool {
        match Code::of(file_type) {
            Code::X86(_) => true,
            Code::Named(named) => named.encodings.is_some(),
        }
    }

    /// True for an address of the program, not of the kernel.
    pub fn is_user(&self, va: u64) -> bool {
        self.untagged(va) >> USER_BITS == 0
    }

    /// AArch64 ignores the top byte of an address.
    fn untagged(&self, va: u64) -> u64 {
        match self {
            Code::Named(named) if named.tagged => va << 8 >> 8,
            _ => va,
        }
    }

    /// Begins an instruction with this encoding, empty if it is known. The ops of those that are then complete go to
    /// `ops`. The error is a message for the user.
    pub fn begin(
        &mut self,
        entry: Entry,
        encoding: &[u8],
        ops: &mut Vec<Op>,
        counts: &mut InstructionCounts,
    ) -> Result<(), String> {
        match self {
            Code::X86(code) => code.begin(entry, encoding, ops, counts),
            Code::Named(code) => code.begin(entry, encoding, ops),
        }
    }

    /// Adds an access of the open instruction.
    pub fn access(&mut self, access: Access, va: u64, size: u16) {
        let va = self.untagged(va);
        match self {
            Code::X86(code) => code.access(access, va, size),
            Code::Named(code) => code.accesses.push((access, va, size)),
        }
    }

    /// The next instruction begins a new block.
    pub fn cut(&mut self) {
        if let Code::X86(code) = self {
            code.ends = true;
        }
    }

    /// Ends the open instructions. The thread goes on at `next`, if that is known.
    pub fn close(&mut self, next: Option<u64>, ops: &mut Vec<Op>, counts: &mut InstructionCounts) {
        match self {
            Code::X86(code) => code.close(next, ops, counts),
            Code::Named(code) => code.close(next, ops),
        }
    }

    /// Drops the last instruction.
    pub fn abandon(&mut self) {
        match self {
            Code::X86(code) => {
                code.sizes.pop();
                let left = code.sizes.len() as u64;
                code.records.retain(|r| r >> INDEX_SHIFT & 0x1ff < left);
            }
            Code::Named(code) => code.open = None,
        }
    }

    /// Gives the last simple instructions.
    pub fn finish(&mut self, pc: u64, ops: &mut Vec<Op>) {
        if let Code::Named(code) = self {
            let _ = code.writers.finish(ops, pc);
        }
    }
}

/// An encoding of x86-64.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Encoding {
    bytes: ArrayVec<u8, 16>,
    /// A repeated string instruction: it ends its block.
    repeats: bool,
}

/// Code with x86-64 encodings.
#[derive(Default)]
pub(super) struct X86 {
    encodings: FxHashMap<u64, Encoding>,
    /// Index in `blocks` by address and number of instructions.
    known: FxHashMap<(u64, usize), usize>,
    blocks: Vec<Block>,
    registers: Registers,
    /// The open block: its address, the sizes of its instructions, its accesses.
    address: u64,
    sizes: Vec<u8>,
    records: Vec<u64>,
    next_pc: u64,
    ends: bool,
}

impl X86 {
    fn begin(
        &mut self,
        entry: Entry,
        encoding: &[u8],
        ops: &mut Vec<Op>,
        counts: &mut InstructionCounts,
    ) -> Result<(), String> {
        let pc = entry.value;
        if self.ends || pc != self.next_pc || self.sizes.len() == LONGEST_BLOCK {
            self.close(Some(pc), ops, counts);
        }
        if !encoding.is_empty() {
            if encoding.len() != usize::from(entry.size) {
                return Err(format!(
                    "the instruction at {pc:#x} has {} bytes, and its encoding {}: the trace is damaged",
                    entry.size,
                    encoding.len()
                ));
            }
            let new = Encoding {
                bytes: encoding.iter().copied().collect(),
                repeats: is_repeated(encoding),
            };
            let old = self.encodings.get(&pc);
            if old != Some(&new) {
                if old.is_some() {
                    // The program has changed its code.
                    self.close(Some(pc), ops, counts);
                    self.known.clear();
                    self.blocks.clear();
                }
                self.encodings.insert(pc, new);
            }
        }
        let Some(known) = self.encodings.get(&pc) else {
            return Err(format!(
                "the instruction at {pc:#x} has no encoding, although the trace has encodings: it is damaged"
            ));
        };
        if known.bytes.len() != usize::from(entry.size) {
            return Err(format!(
                "the instruction at {pc:#x} has another size than before: the trace is damaged"
            ));
        }
        if self.sizes.is_empty() {
            self.address = pc;
        }
        self.sizes.push(entry.size as u8);
        self.next_pc = pc.wrapping_add(u64::from(entry.size));
        self.ends = known.repeats || is_branch(entry.kind) || entry.kind == kind::SYSENTER;
        Ok(())
    }

    fn access(&mut self, access: Access, va: u64, size: u16) {
        let Some(instruction) = self.sizes.len().checked_sub(1) else {
            return;
        };
        let mut tag = (instruction as u64) << INDEX_SHIFT;
        if access == Access::Store {
            tag |= STORE;
        }
        // A template has a record for each 8 bytes.
        for at in (0..u64::from(size.max(1))).step_by(8) {
            self.records.push(tag | va.wrapping_add(at) & ADDRESS_MASK);
        }
    }

    fn close(&mut self, next: Option<u64>, ops: &mut Vec<Op>, counts: &mut InstructionCounts) {
        self.ends = false;
        if self.sizes.is_empty() {
            return;
        }
        let key = (self.address, self.sizes.len());
        let index = match self.known.get(&key) {
            Some(&index) => index,
            None => {
                let block = self.decode();
                self.blocks.push(block);
                self.known.insert(key, self.blocks.len() - 1);
                self.blocks.len() - 1
            }
        };
        let block = &self.blocks[index];
        block.expand(&self.records, next, &mut self.registers, ops);
        counts.add_block(u64::from(block.instructions), &block.approximated);
        self.sizes.clear();
        self.records.clear();
    }

    /// Decodes the open block.
    fn decode(&self) -> Block {
        let (mut at, mut code) = (self.address, Vec::new());
        for size in &self.sizes {
            if let Some(known) = self.encodings.get(&at) {
                code.extend_from_slice(&known.bytes);
            }
            at = at.wrapping_add(u64::from(*size));
        }
        Block::decode(self.address, &self.sizes, &code).executed()
    }
}

/// True for `movs`, `cmps`, `stos`, `lods` and `scas` with a prefix that repeats.
fn is_repeated(encoding: &[u8]) -> bool {
    let is_prefix = |b: &u8| {
        matches!(
            b,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3 | 0x40..=0x4f
        )
    };
    let opcode = encoding.iter().position(|b| !is_prefix(b));
    opcode.is_some_and(|at| {
        matches!(encoding[at], 0xa4..=0xa7 | 0xaa..=0xaf)
            && encoding[..at].iter().any(|b| matches!(b, 0xf2 | 0xf3))
    })
}

/// Registers that an instruction writes and reads.
#[derive(Clone, Debug, Default)]
struct Names {
    written: ArrayVec<u8, 8>,
    read: ArrayVec<u8, 8>,
    writes_flags: bool,
    reads_flags: bool,
}

impl Names {
    /// Decodes an encoding of register dependences (`core/ir/isa_regdeps/encoding_common.h`). `None` if it is invalid.
    fn parse(encoding: &[u8]) -> Option<Self> {
        let (header, rest) = encoding.split_first_chunk::<4>()?;
        let header = u32::from_le_bytes(*header);
        let (written, read) = ((header & 15) as usize, (header >> 4 & 15) as usize);
        let names = if written + read == 0 {
            &[][..]
        } else {
            // The size of the operation comes first.
            rest.get(1..1 + written + read)?
        };
        (written + read <= 8).then(|| Names {
            written: names[..written].iter().copied().collect(),
            read: names[written..].iter().copied().collect(),
            writes_flags: header >> 8 & 1 != 0,
            reads_flags: header >> 9 & 1 != 0,
        })
    }
}

/// Code that names the registers of its instructions, or says nothing of them.
#[derive(Default)]
pub(super) struct Named {
    /// `None`: the trace has no encodings that are understood.
    encodings: Option<FxHashMap<u64, Names>>,
    /// Addresses have a tag in their top byte.
    tagged: bool,
    writers: Writers,
    flags: Ready,
    open: Option<Entry>,
    accesses: Vec<(Access, u64, u16)>,
}

impl Named {
    fn begin(&mut self, entry: Entry, encoding: &[u8], ops: &mut Vec<Op>) -> Result<(), String> {
        self.close(Some(entry.value), ops);
        if let (Some(known), false) = (&mut self.encodings, encoding.is_empty()) {
            let names = Names::parse(encoding).ok_or_else(|| {
                format!(
                    "the encoding of the instruction at {:#x} is no valid one of register dependences: the trace is damaged",
                    entry.value
                )
            })?;
            known.insert(entry.value, names);
        }
        self.open = Some(entry);
        Ok(())
    }

    fn close(&mut self, next: Option<u64>, ops: &mut Vec<Op>) {
        if let Some(entry) = self.open.take() {
            // A vector takes all ops.
            let _ = self.give(entry, next, ops);
        }
        self.accesses.clear();
    }

    fn give(
        &mut self,
        entry: Entry,
        next: Option<u64>,
        ops: &mut Vec<Op>,
    ) -> Result<(), crate::pump::Stop> {
        let pc = entry.value;
        let names = self.encodings.as_ref().and_then(|known| known.get(&pc));
        let names = names.cloned().unwrap_or_default();
        let r = &mut self.writers;
        let mut sources: ArrayVec<Ready, 9> = names.read.iter().map(|n| r.get(*n)).collect();
        if names.reads_flags {
            sources.push(self.flags);
        }
        let branch = flow(entry, next);
        if branch.is_none() && self.accesses.is_empty() {
            let result = r.plain(ops, pc, sources.into_iter())?;
            names.written.iter().for_each(|n| r.set(*n, result));
            if names.writes_flags {
                self.flags = result;
            }
            return Ok(());
        }
        let inputs = r.inputs(ops, pc, sources.iter().copied())?;
        let (mut insns, mut loaded) = (1, None);
        for &(access, va, size) in self.accesses.iter().filter(|(a, ..)| *a != Access::Store) {
            match access {
                Access::Prefetch(hint) => {
                    let op = Op {
                        pc,
                        va,
                        kind: OpClass::Prefetch,
                        size: hint as u8,
                        ..Op::default()
                    };
                    r.give(ops, op, inputs, std::mem::take(&mut insns))?;
                }
                Access::Load | Access::Store => {
                    for op in pieces(OpClass::Load, pc, va, size) {
                        r.give(ops, op, inputs, std::mem::take(&mut insns))?;
                        loaded = Some(r.last(0));
                    }
                }
            }
        }
        for &(_, va, size) in self.accesses.iter().filter(|(a, ..)| *a == Access::Store) {
            let inputs = match loaded {
                // A read-modify-write stores its loaded value one cycle later.
                Some(_) => {
                    let loaded = r.last(1);
                    r.inputs(ops, pc, sources.iter().copied().chain([loaded]))?
                }
                None => inputs,
            };
            for op in pieces(OpClass::Store, pc, va, size) {
                r.give(ops, op, inputs, std::mem::take(&mut insns))?;
            }
        }
        let dependences = self.encodings.is_some();
        if let Some(branch) = branch {
            let op = Op {
                pc,
                va: next.filter(|_| branch & flags::TAKEN != 0).unwrap_or(0),
                latency: 1,
                kind: OpClass::Branch,
                flags: branch,
                ..Op::default()
            };
            let inputs = match loaded {
                Some(loaded) if dependences => r.inputs(ops, pc, [loaded].into_iter())?,
                Some(_) => Inputs::default(),
                None => inputs,
            };
            r.give(ops, op, inputs, std::mem::take(&mut insns))?;
        }
        let result = loaded.unwrap_or_default();
        for &name in &names.written {
            // A pointer that the instruction also moves, as `pop` and `ret` do, does not wait for the load.
            let moved = names.read.contains(&name) && (names.written.len() > 1 || branch.is_some());
            if !moved {
                r.set(name, result);
            }
        }
        if names.writes_flags {
            self.flags = result;
        }
        Ok(())
    }
}

/// The ops of an access: at most a line each.
fn pieces(kind: OpClass, pc: u64, va: u64, size: u16) -> impl Iterator<Item = Op> {
    let size = u64::from(size.max(1));
    (0..size).step_by(LINE as usize).map(move |at| Op {
        pc,
        va: va.wrapping_add(at),
        kind,
        size: (size - at).min(LINE) as u8,
        ..Op::default()
    })
}

/// Flags of the branch; `None` if the instruction is none.
fn flow(entry: Entry, next: Option<u64>) -> Option<u8> {
    let falls = next == Some(entry.value.wrapping_add(u64::from(entry.size)));
    Some(match entry.kind {
        kind::DIRECT_JUMP => flags::TAKEN,
        kind::INDIRECT_JUMP => flags::TAKEN | flags::INDIRECT,
        kind::CONDITIONAL_JUMP if falls || next.is_none() => flags::CONDITIONAL,
        kind::CONDITIONAL_JUMP | kind::TAKEN_JUMP => flags::CONDITIONAL | flags::TAKEN,
        kind::UNTAKEN_JUMP => flags::CONDITIONAL,
        kind::DIRECT_CALL => flags::TAKEN | flags::CALL,
        kind::INDIRECT_CALL => flags::TAKEN | flags::CALL | flags::INDIRECT,
        kind::RETURN => flags::TAKEN | flags::RETURN | flags::INDIRECT,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{Names, is_repeated};

    #[test]
    fn repeated_string_instructions_are_found_by_their_bytes() {
        for (bytes, repeated) in [
            (&[0xf3, 0xa4][..], true),
            (&[0xf3, 0x48, 0xab], true),
            (&[0x67, 0xf2, 0xae], true),
            (&[0xa4], false),
            // `pause`, `popcnt` and `movss`.
            (&[0xf3, 0x90], false),
            (&[0xf3, 0x0f, 0xb8, 0xc0], false),
            (&[0xf3, 0x0f, 0x10, 0x07], false),
            (&[0xf3], false),
            (&[], false),
        ] {
            assert_eq!(is_repeated(bytes), repeated, "{bytes:x?}");
        }
    }

    #[test]
    fn register_dependences_are_decoded_as_documented() {
        // One written, three read, flags read; an operation size; padding.
        let header = 1u32 | 3 << 4 | 2 << 8 | 5 << 10;
        let mut encoding = header.to_le_bytes().to_vec();
        encoding.extend([9, 7, 1, 2, 3, 0xaa, 0xaa, 0xaa]);
        let names = Names::parse(&encoding).unwrap();
        assert_eq!(names.written[..], [7]);
        assert_eq!(names.read[..], [1, 2, 3]);
        assert!(names.reads_flags && !names.writes_flags);
        assert!(Names::parse(&[0, 1, 0, 0]).unwrap().writes_flags);
        for bad in [
            &[][..],
            &[1, 0, 0],
            &[1, 0, 0, 0],
            &[0xff, 0, 0, 0, 1, 2, 3, 4],
        ] {
            assert!(Names::parse(bad).is_none(), "{bad:x?}");
        }
    }
}
