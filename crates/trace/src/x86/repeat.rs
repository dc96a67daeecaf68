//! Repeated string instructions: one instruction that moves through lines.

use iced_x86::Mnemonic as M;
use pagewalk_ring::record::{ADDRESS_MASK, INDEX_SHIFT, STORE};
use pagewalk_stream::{Op, OpClass, flags};

use super::expand::Register;
use super::{Block, Registers};

/// Bytes of a line.
const LINE: u64 = 64;

/// Time of a repeated string instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RepeatTime {
    /// Cycles before its first access.
    pub start: u8,
    /// Cycles for `per` bytes, or elements if `elements`.
    cycles: u64,
    per: u64,
    elements: bool,
}

impl RepeatTime {
    /// `movs` and `stos`: fast strings start in 35 to 40 cycles (Intel 64 and IA-32 Architectures Optimization Reference
    /// Manual, REP string enhancement). They move 32 bytes a cycle, as measured on Zen 4 (DEVIATIONS.md). The others go element by element (AMD, Software Optimization Guide for AMD64, publication 25112,
    /// table 6: 15 + 2c, 15 + 5/2 c, 16 + 10/3 c).
    pub fn of(mnemonic: M) -> Self {
        let by_element = |start, cycles, per| RepeatTime {
            start,
            cycles,
            per,
            elements: true,
        };
        match mnemonic {
            M::Lodsb | M::Lodsw | M::Lodsd | M::Lodsq => by_element(15, 2, 1),
            M::Scasb | M::Scasw | M::Scasd | M::Scasq => by_element(15, 5, 2),
            M::Cmpsb | M::Cmpsw | M::Cmpsd | M::Cmpsq => by_element(16, 10, 3),
            _ => RepeatTime {
                start: 35,
                cycles: 1,
                per: 32,
                elements: false,
            },
        }
    }

    /// Cycles for `bytes` of elements of this size.
    fn of_bytes(self, bytes: u64, element: u64) -> u64 {
        let units = if self.elements {
            bytes / element
        } else {
            bytes
        };
        (units * self.cycles).div_ceil(self.per)
    }
}

/// The repeated string instruction at the end of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repeat {
    pub instruction: u16,
    /// The op that starts its microcode. Its first accesses follow.
    pub start: u16,
    /// Bytes of an element.
    pub element: u8,
    /// Streams of loads: two for `cmps`.
    pub loads: u8,
    pub time: RepeatTime,
    /// Registers that hold its results.
    pub written: Box<[u8]>,
}

/// Consecutive bytes of a line.
struct Part {
    stream: usize,
    low: u64,
    high: u64,
}

impl Repeat {
    /// The parts of lines that `records` name, in order: of each stream the first access to each line, and the last
    /// one.
    fn parts(&self, records: &[u64]) -> Vec<Part> {
        let element = u64::from(self.element.max(1));
        let mut parts: Vec<Part> = Vec::with_capacity(records.len());
        // The last part of each stream: stores, and up to two streams of loads.
        let mut last: [Option<usize>; 3] = [None; 3];
        for record in records {
            let at = record & ADDRESS_MASK;
            let near = |part: Option<usize>| {
                part.map_or(u64::MAX, |p| (parts[p].low / LINE).abs_diff(at / LINE))
            };
            let stream = match (record & STORE != 0, last[1], last[2]) {
                (true, ..) => 0,
                (false, None, _) => 1,
                (false, _, None) if self.loads == 2 => 2,
                (false, a, b) => 1 + usize::from(near(b) < near(a)),
            };
            let known = last[stream].filter(|&p| parts[p].low / LINE == at / LINE);
            if let Some(p) = known {
                let part = &mut parts[p];
                (part.low, part.high) = (part.low.min(at), part.high.max(at + element));
                continue;
            }
            if let Some(p) = last[stream] {
                // The part before goes up to the end of its line.
                let part = &mut parts[p];
                if at > part.low {
                    part.high = part.high.max((part.low / LINE + 1) * LINE);
                } else {
                    part.low = part.low / LINE * LINE;
                }
            }
            last[stream] = Some(parts.len());
            parts.push(Part {
                stream,
                low: at,
                high: at + element,
            });
        }
        parts
    }
}

impl Block {
    /// As [`Block::expand`], for a block that ends with a repeated string instruction.
    #[cold]
    pub(super) fn expand_repeat(
        &self,
        records: &[u64],
        next: Option<u64>,
        registers: &mut Registers,
        out: &mut Vec<Op>,
    ) -> bool {
        let Some(repeat) = self.repeat.as_deref() else {
            return self.expand_once(records, next, registers, out);
        };
        let is_its = |r: &&u64| (**r >> INDEX_SHIFT) as u16 & 0x1ff == repeat.instruction;
        let own: Vec<u64> = records.iter().filter(is_its).copied().collect();
        let parts = repeat.parts(&own);
        // The template has the first access of each stream.
        let mut once: Vec<u64> = records.iter().filter(|r| !is_its(r)).copied().collect();
        let mut seen = [false; 3];
        let mut first = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            if !std::mem::replace(&mut seen[part.stream], true) {
                first.push(number);
                let tag = u64::from(repeat.instruction) << INDEX_SHIFT;
                let store = if part.stream == 0 { STORE } else { 0 };
                once.push(tag | part.low | store);
            }
        }
        let (base, before) = (out.len(), registers.next);
        let whole = self.expand_once(&once, next, registers, out);
        if parts.is_empty() || out.len() <= base + usize::from(repeat.start) {
            return whole;
        }
        let pc = out[base + usize::from(repeat.start)].pc;
        let start = before + u64::from(repeat.start);
        let mut chain = start;
        let main = usize::from(parts.iter().all(|part| part.stream != 0));
        let (mut pending, mut data, mut placed) = (0, 0, 0);
        for (number, part) in parts.iter().enumerate() {
            if pending > 0 {
                chain = registers.step(pc, std::mem::take(&mut pending), chain, out);
            }
            let size = (part.high - part.low).min(LINE) as u8;
            let op_number = if first.contains(&number) {
                placed += 1;
                let at = base + usize::from(repeat.start) + placed;
                out[at].size = size;
                start + placed as u64
            } else {
                let own = registers.next;
                let store = part.stream == 0;
                out.push(Op {
                    pc,
                    va: part.low,
                    size,
                    kind: if store { OpClass::Store } else { OpClass::Load },
                    dep: [
                        distance(own, chain),
                        if store { distance(own, data) } else { 0 },
                    ],
                    ..Op::default()
                });
                registers.next += 1;
                own
            };
            if part.stream != 0 {
                data = op_number;
            }
            if part.stream == main {
                let element = u64::from(repeat.element.max(1));
                pending = repeat.time.of_bytes(part.high - part.low, element);
            }
        }
        let end = registers.step(pc, pending, chain, out);
        for &r in &repeat.written {
            registers.all[usize::from(r)] = Register::new(end, 0);
        }
        whole
    }
}

/// The distance from op `own` to its producer; 0 if there is none, or it is too far away.
fn distance(own: u64, producer: u64) -> u16 {
    match producer {
        0 => 0,
        producer => u16::try_from(own - producer).unwrap_or(0),
    }
}

impl Registers {
    /// A step of microcode of `cycles` after op `before`. Returns its number.
    fn step(&mut self, pc: u64, cycles: u64, before: u64, out: &mut Vec<Op>) -> u64 {
        let own = self.next;
        out.push(Op {
            pc,
            latency: cycles.min(255) as u8,
            dep: [distance(own, before), 0],
            flags: flags::MICROCODE,
            ..Op::default()
        });
        self.next += 1;
        own
    }
}
