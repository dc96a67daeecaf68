//! ChampSim's traces: one record for each instruction, of 64 bytes, or of 96 bytes in those of CloudSuite.
//!
//! Layout and the meaning of registers 6, 25 and 26 as in ChampSim's `inc/trace_instruction.h` and `inc/instruction.h`
//! (`ooo_model_instr`). The format has neither operand sizes nor operation classes: accesses are taken to have 8 bytes,
//! and simple instructions to take one cycle.

use std::path::Path;

use pagewalk_input::{FileError, Input};
use pagewalk_stream::{Op, OpClass, flags};

use crate::pump::{Sink, Stop};
use crate::registers::{Ready, Writers};

/// Bytes of a record.
pub const RECORD: usize = 64;
/// Bytes of a record with four destinations and an address space (`cloudsuite_instr`).
pub const CLOUDSUITE: usize = 96;
/// Bits of an address that an address space keeps, and the most address spaces: together the 47 bits of user addresses.
const SPACE_BITS: u32 = 40;
const SPACES: usize = 128;
/// The stack pointer.
pub const SP: u8 = 6;
/// The flags.
pub const FLAGS: u8 = 25;
/// The instruction pointer.
pub const IP: u8 = 26;

/// One instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub ip: u64,
    pub is_branch: bool,
    pub taken: bool,
    pub dest_regs: [u8; 4],
    pub src_regs: [u8; 4],
    pub dest_mem: [u64; 4],
    pub src_mem: [u64; 4],
}

fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Record {
    /// `None` if one of the two boolean bytes is neither 0 nor 1.
    pub fn parse<const N: usize>(bytes: &[u8; N]) -> Option<Self> {
        const { assert!(N == RECORD || N == CLOUDSUITE) };
        if bytes[8] > 1 || bytes[9] > 1 {
            return None;
        }
        let record = Record {
            ip: word(bytes, 0),
            is_branch: bytes[8] == 1,
            taken: bytes[9] == 1,
            ..Record::default()
        };
        Some(if N == RECORD {
            Record {
                dest_regs: [bytes[10], bytes[11], 0, 0],
                src_regs: [bytes[12], bytes[13], bytes[14], bytes[15]],
                dest_mem: [word(bytes, 16), word(bytes, 24), 0, 0],
                src_mem: [32, 40, 48, 56].map(|at| word(bytes, at)),
                ..record
            }
        } else {
            Record {
                dest_regs: [bytes[10], bytes[11], bytes[12], bytes[13]],
                src_regs: [bytes[14], bytes[15], bytes[16], bytes[17]],
                dest_mem: [24, 32, 40, 48].map(|at| word(bytes, at)),
                src_mem: [56, 64, 72, 80].map(|at| word(bytes, at)),
                ..record
            }
        })
    }

    /// True if the bytes may be a 96-byte record: those between its fields are zero.
    pub fn is_cloudsuite(bytes: &[u8; CLOUDSUITE]) -> bool {
        let unused = bytes[18..24].iter().chain(&bytes[91..]);
        Record::parse(bytes).is_some_and(|r| r.ip != 0) && unused.copied().all(|b| b == 0)
    }

    /// The record with each address moved by `f`; 0 is no address.
    fn moved(mut self, f: impl Fn(u64) -> u64) -> Self {
        let memory = self.dest_mem.iter_mut().chain(&mut self.src_mem);
        for va in memory.filter(|va| **va != 0) {
            *va = f(*va);
        }
        self.ip = f(self.ip);
        self
    }

    /// The record as it is in a file of 64-byte records.
    pub fn bytes(&self) -> [u8; RECORD] {
        let mut out = [0; RECORD];
        out[..8].copy_from_slice(&self.ip.to_le_bytes());
        out[8] = u8::from(self.is_branch);
        out[9] = u8::from(self.taken);
        out[10..12].copy_from_slice(&self.dest_regs[..2]);
        out[12..16].copy_from_slice(&self.src_regs);
        for (i, va) in self.dest_mem[..2].iter().chain(&self.src_mem).enumerate() {
            out[16 + 8 * i..24 + 8 * i].copy_from_slice(&va.to_le_bytes());
        }
        out
    }

    fn writes(&self, register: u8) -> bool {
        self.dest_regs.contains(&register)
    }

    fn reads(&self, register: u8) -> bool {
        self.src_regs.contains(&register)
    }

    /// Flags of the branch, by ChampSim's rules; `None` if it is no branch.
    fn branch(&self) -> Option<u8> {
        let other = |r: &u8| ![0, SP, FLAGS, IP].contains(r);
        let reads_other = self.src_regs.iter().any(other);
        let (sp, fl, ip) = (self.reads(SP), self.reads(FLAGS), self.reads(IP));
        let outcome = if self.taken { flags::TAKEN } else { 0 };
        if !self.writes(IP) {
            return self.is_branch.then_some(flags::CONDITIONAL | outcome);
        }
        let writes_sp = self.writes(SP);
        Some(if !sp && !fl && !reads_other {
            flags::TAKEN
        } else if !sp && !ip && !fl {
            flags::TAKEN | flags::INDIRECT
        } else if !sp && ip && !writes_sp {
            flags::CONDITIONAL | outcome
        } else if sp && ip && writes_sp && !fl && !reads_other {
            flags::TAKEN | flags::CALL
        } else if sp && ip && writes_sp && !fl {
            flags::TAKEN | flags::CALL | flags::INDIRECT
        } else if sp && !ip && writes_sp {
            flags::TAKEN | flags::RETURN
        } else {
            flags::CONDITIONAL | outcome
        })
    }
}

/// Turns records into ops.
#[derive(Default)]
pub struct Translator {
    registers: Writers,
}

impl Translator {
    /// Gives the ops of `record` to `sink`; `next` is the address of the next instruction.
    #[inline]
    pub fn instruction<E>(
        &mut self,
        record: &Record,
        next: Option<u64>,
        sink: &mut Sink<E>,
    ) -> Result<(), Stop> {
        let branch = record.branch();
        if branch.is_some() || record.src_mem != [0; 4] || record.dest_mem != [0; 4] {
            return self.memory_or_branch(record, branch, next, sink);
        }
        // Registers 0 and IP are never written here, so they are always ready.
        let ready = record.src_regs.map(|s| self.registers.get(s));
        let result = self.registers.plain(sink, record.ip, ready.into_iter())?;
        self.results(record, false, result);
        Ok(())
    }

    fn memory_or_branch<E>(
        &mut self,
        record: &Record,
        branch: Option<u8>,
        next: Option<u64>,
        sink: &mut Sink<E>,
    ) -> Result<(), Stop> {
        let r = &mut self.registers;
        let pc = record.ip;
        let loads = || record.src_mem.iter().filter(|va| **va != 0);
        let stores = || record.dest_mem.iter().filter(|va| **va != 0);
        // A core's stack engine handles pushes, pops, calls and returns.
        let stack = record.reads(SP) && record.writes(SP);
        // An instruction that sets flags, and a register that it also reads, computes with its load: that register is
        // data, not address.
        let computes = record.writes(FLAGS) && loads().next().is_some();
        let accumulates = |register: u8| computes && record.writes(register);
        // Sources that are left out count as ready, as registers 0 and IP do.
        let sources = |r: &Writers, with_data: bool| {
            record.src_regs.map(|s| {
                let out = stack && s == SP || !with_data && accumulates(s);
                if out { Ready::default() } else { r.get(s) }
            })
        };

        let mut insns = 1;
        let before = r.last(0);
        let address = r.inputs(sink, pc, sources(r, false).into_iter())?;
        let joined = r.last(0) != before;
        let mut loaded = None;
        for va in loads() {
            let op = access(OpClass::Load, pc, *va);
            r.give(sink, op, address, insns)?;
            loaded = Some(r.last(0));
            insns = 0;
        }
        let mut result = loaded.unwrap_or_default();
        let is_data = |s: u8| s != 0 && s != IP && !(stack && s == SP) && accumulates(s);
        if let (Some(load), true) = (loaded, record.src_regs.into_iter().any(is_data)) {
            let data = record.src_regs.map(|s| {
                if is_data(s) {
                    r.get(s)
                } else {
                    Ready::default()
                }
            });
            let parts = data.into_iter().chain([load]);
            let inputs = r.inputs(sink, pc, parts)?;
            let op = Op {
                pc,
                latency: 1,
                kind: OpClass::Compute,
                ..Op::default()
            };
            r.give(sink, op, inputs, insns)?;
            result = r.last(0);
        }
        for va in stores() {
            // A read-modify-write stores its loaded value one cycle later.
            let inputs = match loaded {
                Some(_) => {
                    let all = sources(r, false).into_iter().chain([r.last(1)]);
                    r.inputs(sink, pc, all)?
                }
                None => address,
            };
            r.give(sink, access(OpClass::Store, pc, *va), inputs, insns)?;
            insns = 0;
        }
        if let Some(branch) = branch {
            let target = if branch & flags::TAKEN != 0 {
                next
            } else {
                None
            };
            let op = Op {
                pc,
                va: target.unwrap_or(0),
                latency: 1,
                kind: OpClass::Branch,
                flags: branch,
                ..Op::default()
            };
            let inputs = match loaded {
                Some(load) => r.inputs(sink, pc, [load].into_iter())?,
                // Without a load, the condition has the same inputs as the address.
                None if !joined && insns == 1 => address,
                None => r.inputs(sink, pc, sources(r, true).into_iter())?,
            };
            r.give(sink, op, inputs, insns)?;
        }
        if loaded.is_some() {
            self.results(record, stack, result);
        } else if branch.is_none() {
            // A store: its other results (flags) come from its sources.
            let ready = Default::default();
            self.results(record, stack, ready);
        }
        Ok(())
    }

    /// Sets the registers that `record` writes, except those that are always ready.
    #[inline]
    fn results(&mut self, record: &Record, stack: bool, ready: Ready) {
        let r = &mut self.registers;
        let pointer = r.get(SP);
        for dest in record.dest_regs {
            r.set(dest, ready);
        }
        // Cheaper than a test of which registers they are.
        r.set(0, Ready::default());
        r.set(IP, Ready::default());
        if stack {
            r.set(SP, pointer);
        }
    }

    /// Ends the trace.
    pub fn finish<E>(&mut self, pc: u64, sink: &mut Sink<E>) -> Result<(), Stop> {
        self.registers.finish(sink, pc)
    }
}

fn access(kind: OpClass, pc: u64, va: u64) -> Op {
    Op {
        pc,
        va,
        kind,
        size: 8,
        ..Op::default()
    }
}

/// The error for an invalid record at byte `offset`.
fn no_record<const N: usize>(path: &Path, offset: u64, bytes: &[u8; N]) -> FileError {
    let message = format!(
        "record {} is not one of ChampSim's (its branch bytes are {} and {}, expected 0 or 1); the trace is damaged or of another format; name it with the format option",
        offset / N as u64,
        bytes[8],
        bytes[9]
    );
    FileError::at(path, offset, message)
}

/// The error for a record at byte `offset` of which only a `part` exists.
fn cut_off<const N: usize>(path: &Path, offset: u64, part: usize) -> FileError {
    let message = format!(
        "the trace ends within record {}: {part} of {N} bytes; the records before are good; it was cut off, or is not a ChampSim trace",
        offset / N as u64
    );
    FileError::at(path, offset, message)
}

/// Turns the bytes of a trace of `N`-byte records into ops.
#[derive(Default)]
struct Reader<const N: usize> {
    translator: Translator,
    /// The last record; the next one's address is the target if it branches.
    held: Option<Record>,
    pc: u64,
    /// Address spaces by number, in the order in which they appear.
    spaces: Vec<[u8; 2]>,
}

impl<const N: usize> Reader<N> {
    /// Translates `records`, which begin at byte `offset` of the file at `path`, up to the first invalid one.
    fn records<E>(
        &mut self,
        records: &[[u8; N]],
        (path, offset): (&Path, u64),
        sink: &mut Sink<E>,
    ) -> Result<(), Stop> {
        let good = records.iter().position(|r| r[8] > 1 || r[9] > 1);
        let (good, bad) = records.split_at(good.unwrap_or(records.len()));
        for (number, bytes) in good.iter().enumerate() {
            if let Some(record) = Record::parse(bytes) {
                let offset = offset + (number * N) as u64;
                let record = self.placed(record, bytes, (path, offset))?;
                self.release(Some(record.ip), sink)?;
                self.held = Some(record);
            }
        }
        match bad.first() {
            Some(bad) => {
                let offset = offset + size_of_val(good) as u64;
                Err(no_record(path, offset, bad).into())
            }
            None => Ok(()),
        }
    }

    /// Moves the record's addresses to those of its address space.
    #[inline]
    fn placed(
        &mut self,
        record: Record,
        bytes: &[u8; N],
        (path, offset): (&Path, u64),
    ) -> Result<Record, Stop> {
        if N == RECORD {
            return Ok(record);
        }
        let own = [bytes[88], bytes[89]];
        let space = match self.spaces.iter().position(|known| *known == own) {
            Some(space) => space,
            None if self.spaces.len() < SPACES => {
                self.spaces.push(own);
                self.spaces.len() - 1
            }
            None => {
                let message = format!(
                    "the trace has more than {SPACES} address spaces; what comes before is good"
                );
                return Err(FileError::at(path, offset, message).into());
            }
        };
        Ok(record.moved(|va| va & ((1 << SPACE_BITS) - 1) | (space as u64) << SPACE_BITS))
    }

    /// Translates the held record, given the address of the next one.
    #[inline]
    fn release<E>(&mut self, next: Option<u64>, sink: &mut Sink<E>) -> Result<(), Stop> {
        match self.held.take() {
            Some(record) => {
                self.pc = record.ip;
                self.translator.instruction(&record, next, sink)
            }
            None => Ok(()),
        }
    }

    fn all<E>(&mut self, input: &mut Input, sink: &mut Sink<E>) -> Result<(), Stop> {
        let path = input.path.clone();
        loop {
            let offset = input.at;
            let (records, _) = input.peek()?.as_chunks();
            if !records.is_empty() {
                self.records(records, (&path, offset), sink)?;
                let bytes = size_of_val(records);
                input.consume(bytes);
                continue;
            }
            // The end, or a record that spans two buffers.
            let mut record = [0; N];
            match input.read_full(&mut record)? {
                0 => return Ok(()),
                part if part < N => return Err(cut_off::<N>(&path, offset, part).into()),
                _ => self.records(&[record], (&path, offset), sink)?,
            }
        }
    }
}

/// Body of the reading thread, for records of `N` bytes.
pub fn read<const N: usize, E>(mut input: Input, sink: &mut Sink<E>) -> Result<(), Stop> {
    let mut reader = Reader::<N>::default();
    let result = reader.all(&mut input, sink);
    if let Err(Stop::Gone) = result {
        return result;
    }
    // Records before a fault are valid.
    reader.release(None, sink)?;
    reader.translator.finish(reader.pc, sink)?;
    result
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{RECORD, Record};

    proptest! {
        #[test]
        fn records_come_back(bytes in prop::array::uniform32(any::<u8>()), branch: bool, taken: bool) {
            let mut record = [0; RECORD];
            record[..32].copy_from_slice(&bytes);
            record[32..].copy_from_slice(&bytes);
            (record[8], record[9]) = (u8::from(branch), u8::from(taken));
            prop_assert_eq!(Record::parse(&record).unwrap().bytes(), record);
        }

        #[test]
        fn any_record_is_answered(first in prop::array::uniform32(any::<u8>())) {
            let mut record = [7; RECORD];
            record[..32].copy_from_slice(&first);
            let parsed = Record::parse(&record);
            prop_assert_eq!(parsed.is_some(), first[8] < 2 && first[9] < 2);
            if let Some(record) = parsed {
                let _ = record.branch();
            }
        }
    }
}
