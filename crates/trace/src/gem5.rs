//! The data dependency trace of gem5's probe `ElasticTrace`.
//!
//! The file is the magic number, then messages of protocol buffers, each after its length: an `InstDepRecordHeader`,
//! and an `InstDepRecord` for each micro-operation (`src/proto/inst_dep_record.proto` of gem5). Micro-operations
//! without a memory access that nothing depends on are left out there, and the next record counts them.

use std::path::Path;

use pagewalk_input::{FileError, Input};
use pagewalk_stream::{Op, OpClass, PrefetchHint};

use crate::pump::{Sink, Stop, TakesOps};
use crate::registers::{Ready, Writers};

/// First bytes of each protobuf file of gem5 (`src/proto/protoio.hh`).
pub const MAGIC: &[u8] = b"gem5";

/// Longer messages are invalid. Ours: a record has at most a few hundred bytes.
const LONGEST: u64 = 1 << 20;
/// Results that later records may depend on, a power of two. Ours: many times a window of instructions.
const KEPT: usize = 1 << 14;
/// Most bytes of an access in one operation.
const LINE: u64 = 64;

/// Bits of a record's flags (`src/mem/request.hh`).
mod flag {
    /// The address is physical.
    pub const PHYSICAL: u64 = 0x200;
    /// Memory-mapped registers; gem5's own replay leaves such accesses out, too.
    pub const STRICT_ORDER: u64 = 0x800;
    pub const NO_ACCESS: u64 = 0x8_0000;
    pub const PREFETCH: u64 = 0x100_0000;
    pub const PREFETCH_TO_WRITE: u64 = 0x200_0000;
}

/// Value of a field of a message.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Takes a number of 7 bits a byte from the front. `None` if it is cut off or too long.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if part << shift >> shift != part {
            return None;
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Takes so many bytes from the front.
fn take<'a>(bytes: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(taken)
}

/// Takes the message or text at the front, after its length.
fn message<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = varint(bytes)?;
    take(bytes, length)
}

/// Takes the next field, with its number, from the front of a message.
fn field<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Value<'a>)> {
    let tag = varint(bytes)?;
    let number = |taken: &[u8]| taken.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
    let value = match tag & 7 {
        0 => Value::Number(varint(bytes)?),
        1 => Value::Number(number(take(bytes, 8)?)),
        5 => Value::Number(number(take(bytes, 4)?)),
        2 => Value::Bytes(message(bytes)?),
        _ => return None,
    };
    (tag >> 3 != 0).then_some((tag >> 3, value))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Kind {
    Load,
    Store,
    #[default]
    Compute,
}

/// A record, as far as it matters here.
#[derive(PartialEq, Eq, Debug, Default)]
struct Record {
    sequence: u64,
    kind: Kind,
    /// Virtual address.
    va: Option<u64>,
    size: u64,
    flags: u64,
    /// Sequence numbers of the producers of its registers.
    producers: Vec<u64>,
    /// Micro-operations before it that the trace leaves out.
    left_out: u16,
    pc: u64,
    space: Option<u64>,
}

impl Record {
    fn parse(mut bytes: &[u8]) -> Option<Self> {
        let mut record = Record::default();
        let (mut sequence, mut kind, mut delay) = (None, None, false);
        while !bytes.is_empty() {
            match field(&mut bytes)? {
                (1, Value::Number(n)) => sequence = Some(n),
                (2, Value::Number(n)) => {
                    kind = Some(match n {
                        1 => Kind::Load,
                        2 => Kind::Store,
                        3 => Kind::Compute,
                        _ => return None,
                    });
                }
                (4, Value::Number(n)) => record.size = n,
                (5, Value::Number(n)) => record.flags = n,
                // The delay of gem5's own core, and its order of issue: the simulated core has its own.
                (7, Value::Number(_)) => delay = true,
                (8, Value::Number(n)) => record.producers.push(n),
                (8, Value::Bytes(mut packed)) => {
                    while !packed.is_empty() {
                        record.producers.push(varint(&mut packed)?);
                    }
                }
                (9, Value::Number(n)) => record.left_out = u16::try_from(n).ok()?,
                (10, Value::Number(n)) => record.pc = n,
                (11, Value::Number(n)) => record.va = Some(n),
                (12, Value::Number(n)) => record.space = Some(n),
                (1..=5 | 7 | 9..=12, Value::Bytes(_)) => return None,
                _ => {}
            }
        }
        (record.sequence, record.kind) = (sequence?, kind?);
        let plausible = record.kind == Kind::Compute || (1..=4096).contains(&record.size);
        (delay && plausible).then_some(record)
    }

    /// True if it accesses memory at a virtual address.
    fn accesses(&self) -> bool {
        let without = flag::PHYSICAL | flag::STRICT_ORDER | flag::NO_ACCESS;
        self.kind != Kind::Compute && self.flags & without == 0
    }
}

/// Checks from the first bytes that the file is a data dependency trace with virtual addresses.
///
/// # Errors
/// It is another file of gem5's, or has physical addresses only.
pub fn check(path: &Path, start: &[u8]) -> Result<(), FileError> {
    const EXPECTED: &str =
        "expected the data dependency trace of gem5's ElasticTrace, made with traceVirtAddr=True";
    let refused = |what: &str| Err(FileError::new(path, format!("{what}; {EXPECTED}")));
    let mut rest = start.strip_prefix(MAGIC).unwrap_or_default();
    let Some(mut header) = message(&mut rest) else {
        return refused("the header of gem5's trace is cut off or damaged");
    };
    // The headers differ in the fields 2 (version) and 4: of a window, or of identifiers, or a mark.
    let (mut version, mut window) = (false, false);
    while !header.is_empty() {
        match field(&mut header) {
            Some((2, _)) => version = true,
            Some((4, Value::Number(_))) => window = true,
            Some(_) => {}
            None => return refused("the header of gem5's trace is damaged"),
        }
    }
    match (window, version) {
        (false, _) => {
            return refused(
                "this is a packet trace of gem5 (of a CommMonitor, or of ElasticTrace's fetches), whose addresses are physical",
            );
        }
        (true, true) => return refused("this is an instruction trace of gem5, which is not read"),
        (true, false) => {}
    }
    while let Some(bytes) = message(&mut rest) {
        match Record::parse(bytes) {
            Some(record) if record.accesses() => {
                return match record.va {
                    Some(_) => Ok(()),
                    None => refused("this trace of gem5 has physical addresses only"),
                };
            }
            Some(_) => {}
            // The reader names the place.
            None => break,
        }
    }
    Ok(())
}

/// Reads the next message after its length. `None` at the end of the trace.
fn next(input: &mut Input, bytes: &mut Vec<u8>) -> Result<Option<u64>, FileError> {
    let begin = input.at;
    let mut length = Vec::new();
    let mut byte = [0];
    while length.len() < 10 && length.last().is_none_or(|b| b & 0x80 != 0) {
        if input.read_full(&mut byte)? == 0 {
            if length.is_empty() {
                return Ok(None);
            }
            break;
        }
        length.push(byte[0]);
    }
    let length = varint(&mut &length[..]).filter(|n| *n <= LONGEST);
    let Some(length) = length else {
        return Err(damaged(
            &input.path,
            begin,
            "the length of the record is damaged",
        ));
    };
    bytes.resize(length as usize, 0);
    let there = input.read_full(bytes)?;
    if there < bytes.len() {
        let what = format!("the record is cut off: {there} of {length} bytes are there");
        return Err(damaged(&input.path, begin, &what));
    }
    Ok(Some(begin))
}

fn damaged(path: &Path, at: u64, what: &str) -> FileError {
    let what = format!(
        "{what}; expected an InstDepRecord of gem5's ElasticTrace; what comes before is good"
    );
    FileError::at(path, at, what)
}

/// Turns records into ops.
struct Translator {
    writers: Writers,
    /// Results of the last records, each with its sequence number.
    results: Vec<(u64, Ready)>,
    /// Address space of the records that name one.
    space: Option<u64>,
    pc: u64,
}

impl Translator {
    fn new() -> Self {
        Translator {
            writers: Writers::default(),
            results: vec![(u64::MAX, Ready::default()); KEPT],
            space: None,
            pc: 0,
        }
    }

    /// Appends the ops of a record. An error of the trace is a sentence.
    fn record(
        &mut self,
        record: &Record,
        sink: &mut impl TakesOps,
    ) -> Result<Option<&'static str>, Stop> {
        if let Some(space) = record.space
            && *self.space.get_or_insert(space) != space
        {
            return Ok(Some("the trace has several address spaces (asid)"));
        }
        let kernel = |address: u64| address >> 63 == 1;
        if kernel(record.pc) {
            return Ok(None);
        }
        let r = &mut self.writers;
        self.pc = record.pc;
        for _ in 0..record.left_out {
            r.plain(sink, record.pc, std::iter::empty())?;
        }
        let results = &self.results;
        let sources = record.producers.iter().filter_map(|&sequence| {
            let (found, ready) = results[sequence as usize % KEPT];
            (found == sequence).then_some(ready)
        });
        let result = if !record.accesses() || record.va.is_some_and(kernel) {
            r.plain(sink, record.pc, sources)?
        } else {
            let Some(va) = record.va else {
                return Ok(Some(
                    "the access has no virtual address, as with traceVirtAddr=True",
                ));
            };
            let inputs = r.inputs(sink, record.pc, sources)?;
            let op = |va, kind, size| Op {
                pc: record.pc,
                va,
                kind,
                size,
                ..Op::default()
            };
            if record.flags & flag::PREFETCH != 0 {
                let hint = match record.flags & flag::PREFETCH_TO_WRITE {
                    0 => PrefetchHint::T0,
                    _ => PrefetchHint::Write,
                };
                r.give(sink, op(va, OpClass::Prefetch, hint as u8), inputs, 1)?;
                Ready::default()
            } else {
                let kind = match record.kind {
                    Kind::Load => OpClass::Load,
                    Kind::Store | Kind::Compute => OpClass::Store,
                };
                for at in (0..record.size).step_by(LINE as usize) {
                    let size = (record.size - at).min(LINE) as u8;
                    let op = op(va.wrapping_add(at), kind, size);
                    r.give(sink, op, inputs, u16::from(at == 0))?;
                }
                // A store's own result, such as that of a conditional store, does not wait for memory.
                if kind == OpClass::Load {
                    r.last(0)
                } else {
                    Ready::default()
                }
            }
        };
        self.results[record.sequence as usize % KEPT] = (record.sequence, result);
        Ok(None)
    }
}

/// Body of the reading thread.
pub fn read<E>(mut input: Input, sink: &mut Sink<E>) -> Result<(), Stop> {
    let mut magic = [0; MAGIC.len()];
    input.read_full(&mut magic)?;
    let mut bytes = Vec::new();
    if magic != *MAGIC || next(&mut input, &mut bytes)?.is_none() {
        return Err(damaged(&input.path, 0, "this is no trace of gem5, or has no header").into());
    }
    let mut translator = Translator::new();
    while let Some(at) = next(&mut input, &mut bytes)? {
        let Some(record) = Record::parse(&bytes) else {
            return Err(damaged(&input.path, at, "the record is damaged").into());
        };
        if let Some(why) = translator.record(&record, sink)? {
            return Err(damaged(&input.path, at, why).into());
        }
    }
    let pc = translator.pc;
    translator.writers.finish(sink, pc)
}
