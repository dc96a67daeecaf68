//! Lossless compression of ops.
//!
//! A model predicts the next op from those before. It takes the program counter from the last path of control flow
//! here, and the static fields from the last op at this program counter. Producers come from the last op with this
//! branch history, and the address from the last stride. One control byte for each op marks the wrong predictions, and
//! side streams hold the actual values. Encoder and decoder run the same model, which starts empty in each block.

use pagewalk_stream::{Op, OpClass, PortWork, flags};

const PC_MISS: u8 = 1;
const DEP_MISS: u8 = 2;
const STATIC_MISS: u8 = 4;
const TAKEN_MISS: u8 = 8;
const ADDRESS_SHIFT: u32 = 4;
const WORK_MISS: u8 = 128;

/// Address classes: by stride, equal to the last memory op's address, or a difference to the last address here in this
/// many bytes.
const STRIDE: u8 = 0;
const SAME: u8 = 1;
const WIDTHS: [usize; 8] = [0, 0, 1, 2, 3, 4, 6, 8];

/// Codes of one producer, in the byte that follows a wrong prediction.
const DEP_GUESS: u8 = 0;
const DEP_PRODUCER: u8 = 1;
const DEP_NONE: u8 = 2;
const DEP_BYTE: u8 = 3;
const DEP_WORD: u8 = 4;

const LOG: u32 = 14;

/// The four streams of a block.
#[derive(Clone, Debug, Default)]
pub struct Streams {
    /// One byte for each op.
    pub control: Vec<u8>,
    /// Program counters and static fields that were predicted wrong.
    pub side: Vec<u8>,
    /// Producers that were predicted wrong.
    pub deps: Vec<u8>,
    /// Addresses that were predicted wrong.
    pub addresses: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
struct Site {
    /// All fields except program counter, address, producers, outcome and work on ports.
    fixed: u64,
    work: PortWork,
    va: u64,
    stride: u64,
    /// Numbers of the ops that were the last producers here.
    producer: [u64; 2],
    taken: bool,
}

/// State of the predictor; encoder and decoder have the same.
struct Model {
    next_pc: Vec<u64>,
    sites: Vec<Site>,
    deps: Vec<[u16; 2]>,
    context: u64,
    pc: u64,
    /// Index among several ops at one program counter.
    ordinal: u64,
    history: u64,
    memory_va: u64,
    count: u64,
}

#[inline(always)]
fn slot(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - LOG)) as usize
}

#[inline(always)]
fn fixed(op: &Op) -> u64 {
    u64::from(op.insns)
        | u64::from(op.dep_latency[0]) << 16
        | u64::from(op.dep_latency[1]) << 24
        | u64::from(op.latency) << 32
        | u64::from(op.kind as u8) << 40
        | u64::from(op.size) << 48
        | u64::from(op.flags & !flags::TAKEN) << 56
}

fn work_bytes(work: PortWork) -> [u8; 4] {
    let PortWork {
        alu,
        multiply,
        vector,
        vector_multiply,
    } = work;
    [alu as u8, multiply, vector, vector_multiply]
}

impl Model {
    fn new() -> Self {
        Model {
            next_pc: vec![0; 1 << LOG],
            sites: vec![Site::default(); 1 << LOG],
            deps: vec![[0; 2]; 1 << LOG],
            context: 0,
            pc: 0,
            ordinal: 0,
            history: 0,
            memory_va: 0,
            count: 0,
        }
    }

    fn reset(&mut self) {
        self.next_pc.fill(0);
        self.sites.fill(Site::default());
        self.deps.fill([0; 2]);
        (self.context, self.pc, self.ordinal) = (0, 0, 0);
        (self.history, self.memory_va, self.count) = (0, 0, 0);
    }

    /// Slots of the site and of its producers, for an op at `pc`.
    #[inline(always)]
    fn at(&mut self, pc: u64) -> (usize, usize) {
        self.ordinal = if pc == self.pc {
            (self.ordinal + 1) & 7
        } else {
            0
        };
        let key = pc.wrapping_mul(8).wrapping_add(self.ordinal);
        (slot(key), slot(key ^ (self.history & 0x3f) << 56))
    }

    #[inline(always)]
    fn learn(&mut self, op: &Op, place: usize, deps: usize) {
        let p = &mut self.sites[place];
        p.stride = op.va.wrapping_sub(p.va);
        p.va = op.va;
        for (producer, dep) in p.producer.iter_mut().zip(op.dep) {
            *producer = self.count.wrapping_sub(u64::from(dep));
        }
        let taken = op.flags & flags::TAKEN != 0;
        p.taken = taken;
        self.deps[deps] = op.dep;
        self.pc = op.pc;
        self.count += 1;
        self.context = op.pc.wrapping_add(self.ordinal << 60);
        match op.kind {
            OpClass::Branch => {
                if op.flags & flags::CONDITIONAL != 0 {
                    self.history = self.history << 1 | u64::from(taken);
                }
                if taken {
                    self.context = !op.va;
                }
            }
            OpClass::Load | OpClass::Store | OpClass::Prefetch | OpClass::Flush => {
                self.memory_va = op.va;
            }
            OpClass::Compute | OpClass::Query => {}
        }
    }
}

/// Maps small differences of either sign to small numbers.
#[inline(always)]
pub fn zigzag(value: u64) -> u64 {
    value << 1 ^ ((value as i64) >> 63) as u64
}

/// Undoes [`zigzag`].
#[inline(always)]
pub fn unzigzag(value: u64) -> u64 {
    value >> 1 ^ (value & 1).wrapping_neg()
}

/// Appends `value`, seven bits in each byte.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 128 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads the output of [`put_varint`]; `None` at the end or beyond 64 bits.
#[inline]
pub fn get_varint(from: &mut &[u8]) -> Option<u64> {
    match from.split_first()? {
        (first, rest) if *first < 128 => {
            *from = rest;
            Some(u64::from(*first))
        }
        _ => get_long(from),
    }
}

fn get_long(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = from.split_first()?;
        *from = rest;
        value |= u64::from(first & 127).checked_shl(shift)?;
        if first & 128 == 0 {
            return Some(value);
        }
    }
    None
}

/// Turns ops into streams.
pub struct Encoder {
    model: Model,
}

impl Default for Encoder {
    fn default() -> Self {
        Encoder {
            model: Model::new(),
        }
    }
}

impl Encoder {
    /// Begins a block.
    pub fn reset(&mut self) {
        self.model.reset();
    }

    /// Appends `ops`.
    pub fn encode(&mut self, ops: &[Op], out: &mut Streams) {
        for op in ops {
            self.encode_one(op, out);
        }
    }

    #[inline(always)]
    fn encode_one(&mut self, op: &Op, out: &mut Streams) {
        let m = &mut self.model;
        let mut control = 0;
        let next = slot(m.context);
        if m.next_pc[next] != op.pc {
            control |= PC_MISS;
            put_varint(&mut out.side, zigzag(op.pc.wrapping_sub(m.pc)));
            m.next_pc[next] = op.pc;
        }
        let (place, deps) = m.at(op.pc);
        let p = &mut m.sites[place];
        let word = fixed(op);
        if p.fixed != word {
            control |= STATIC_MISS;
            out.side.extend_from_slice(&word.to_le_bytes());
            p.fixed = word;
        }
        if p.work != op.work {
            control |= WORK_MISS;
            out.side.extend_from_slice(&work_bytes(op.work));
            p.work = op.work;
        }
        if p.taken != (op.flags & flags::TAKEN != 0) {
            control |= TAKEN_MISS;
        }
        let guess = m.deps[deps];
        if guess != op.dep {
            control |= DEP_MISS;
            let code = |k: usize| match op.dep[k] {
                d if d == guess[k] => DEP_GUESS,
                d if u64::from(d) == m.count.wrapping_sub(p.producer[k]) => DEP_PRODUCER,
                0 => DEP_NONE,
                1..256 => DEP_BYTE,
                _ => DEP_WORD,
            };
            let codes = [code(0), code(1)];
            out.deps.push(codes[0] | codes[1] << 4);
            for (k, dep) in op.dep.into_iter().enumerate() {
                match codes[k] {
                    DEP_BYTE => out.deps.push(dep as u8),
                    DEP_WORD => out.deps.extend_from_slice(&dep.to_le_bytes()),
                    _ => {}
                }
            }
        }
        let class = if op.va == p.va.wrapping_add(p.stride) {
            STRIDE
        } else if op.va == m.memory_va {
            SAME
        } else {
            let difference = zigzag(op.va.wrapping_sub(p.va));
            let bytes = (64 - difference.leading_zeros()).div_ceil(8) as usize;
            let class = (2..8).find(|c| WIDTHS[*c] >= bytes).unwrap_or(7);
            out.addresses
                .extend_from_slice(&difference.to_le_bytes()[..WIDTHS[class]]);
            class as u8
        };
        out.control.push(control | class << ADDRESS_SHIFT);
        m.learn(op, place, deps);
    }
}

/// Streams while they are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursors<'a> {
    /// As in [`Streams`].
    pub control: &'a [u8],
    /// As in [`Streams`].
    pub side: &'a [u8],
    /// As in [`Streams`].
    pub deps: &'a [u8],
    /// As in [`Streams`].
    pub addresses: &'a [u8],
}

/// Turns streams into ops.
pub struct Decoder {
    model: Model,
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder {
            model: Model::new(),
        }
    }
}

#[inline(always)]
fn take<'a>(from: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(bytes)?;
    *from = rest;
    Some(taken)
}

impl Decoder {
    /// Begins a block.
    pub fn reset(&mut self) {
        self.model.reset();
    }

    /// Appends up to `most` ops to `out`; `None` if the streams are inconsistent.
    pub fn decode(&mut self, from: &mut Cursors<'_>, most: usize, out: &mut Vec<Op>) -> Option<()> {
        let now = most.min(from.control.len());
        let (controls, rest) = from.control.split_at(now);
        from.control = rest;
        out.reserve(now);
        for control in controls {
            out.push(self.decode_one(*control, from)?);
        }
        Some(())
    }

    #[inline(always)]
    fn decode_one(&mut self, control: u8, from: &mut Cursors<'_>) -> Option<Op> {
        let m = &mut self.model;
        let next = slot(m.context);
        if control & PC_MISS != 0 {
            let difference = unzigzag(get_varint(&mut from.side)?);
            m.next_pc[next] = m.pc.wrapping_add(difference);
        }
        let pc = m.next_pc[next];
        let (place, deps) = m.at(pc);
        let p = &mut m.sites[place];
        if control & STATIC_MISS != 0 {
            p.fixed = u64::from_le_bytes(take(&mut from.side, 8)?.try_into().ok()?);
        }
        if control & WORK_MISS != 0 {
            let [alu, multiply, vector, vector_multiply] =
                take(&mut from.side, 4)?.try_into().ok()?;
            p.work = PortWork {
                alu: alu as i8,
                multiply,
                vector,
                vector_multiply,
            };
        }
        let work = p.work;
        let taken = p.taken ^ (control & TAKEN_MISS != 0);
        let mut dep = m.deps[deps];
        if control & DEP_MISS != 0 {
            let codes = take(&mut from.deps, 1)?[0];
            for (k, code) in [codes & 15, codes >> 4].into_iter().enumerate() {
                dep[k] = match code {
                    DEP_GUESS => dep[k],
                    DEP_PRODUCER => m.count.wrapping_sub(p.producer[k]) as u16,
                    DEP_NONE => 0,
                    DEP_BYTE => u16::from(take(&mut from.deps, 1)?[0]),
                    DEP_WORD => u16::from_le_bytes(take(&mut from.deps, 2)?.try_into().ok()?),
                    _ => return None,
                };
            }
        }
        let va = match (control & !WORK_MISS) >> ADDRESS_SHIFT {
            STRIDE => p.va.wrapping_add(p.stride),
            SAME => m.memory_va,
            class => {
                let width = *WIDTHS.get(usize::from(class))?;
                let mut bytes = [0; 8];
                bytes[..width].copy_from_slice(take(&mut from.addresses, width)?);
                p.va.wrapping_add(unzigzag(u64::from_le_bytes(bytes)))
            }
        };
        let f = p.fixed.to_le_bytes();
        let op = Op {
            pc,
            va,
            insns: u16::from_le_bytes([f[0], f[1]]),
            dep,
            dep_latency: [f[2], f[3]],
            latency: f[4],
            kind: match f[5] {
                0 => OpClass::Compute,
                1 => OpClass::Load,
                2 => OpClass::Store,
                3 => OpClass::Branch,
                4 => OpClass::Query,
                5 => OpClass::Prefetch,
                6 => OpClass::Flush,
                _ => return None,
            },
            size: f[6],
            flags: f[7] | if taken { flags::TAKEN } else { 0 },
            work,
        };
        m.learn(&op, place, deps);
        Some(op)
    }
}

#[cfg(test)]
mod tests {
    use pagewalk_stream::{Op, OpClass, PortWork};
    use proptest::prelude::*;

    use super::{Cursors, Decoder, Encoder, Streams, get_varint, put_varint};

    fn any_op() -> impl Strategy<Value = Op> {
        let pc = prop_oneof![0..4u64, any::<u64>()];
        let va = prop_oneof![0..600u64, any::<u64>()];
        let dep = prop_oneof![Just(0u16), 0..300u16, any::<u16>()];
        (pc, va, any::<u64>(), dep.clone(), dep, 0..7u8).prop_map(|(pc, va, bits, d0, d1, kind)| {
            let b = bits.to_le_bytes();
            Op {
                pc,
                va,
                insns: u16::from(b[0]),
                dep: [d0, d1],
                dep_latency: [b[1] & 1, b[2]],
                latency: b[3] & 3,
                kind: [
                    OpClass::Compute,
                    OpClass::Load,
                    OpClass::Store,
                    OpClass::Branch,
                    OpClass::Query,
                    OpClass::Prefetch,
                    OpClass::Flush,
                ][usize::from(kind)],
                size: b[4],
                flags: b[5],
                work: PortWork {
                    alu: b[6] as i8 & 3,
                    vector: b[7] & 1,
                    ..PortWork::default()
                },
            }
        })
    }

    fn cursors(s: &Streams) -> Cursors<'_> {
        Cursors {
            control: &s.control,
            side: &s.side,
            deps: &s.deps,
            addresses: &s.addresses,
        }
    }

    proptest! {
        #[test]
        fn any_ops_come_back(ops in prop::collection::vec(any_op(), 0..400)) {
            let mut streams = Streams::default();
            Encoder::default().encode(&ops, &mut streams);
            let mut back = Vec::new();
            let mut from = cursors(&streams);
            let mut decoder = Decoder::default();
            while !from.control.is_empty() {
                decoder.decode(&mut from, 37, &mut back).unwrap();
            }
            prop_assert_eq!(back, ops);
            prop_assert!(from.side.is_empty() && from.deps.is_empty() && from.addresses.is_empty());
        }

        #[test]
        fn any_bytes_are_answered(
            control: Vec<u8>, side: Vec<u8>, deps: Vec<u8>, addresses: Vec<u8>,
        ) {
            let streams = Streams { control, side, deps, addresses };
            let _ = Decoder::default().decode(&mut cursors(&streams), 1000, &mut Vec::new());
        }

        #[test]
        fn varints_come_back(value: u64, rest: Vec<u8>) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            bytes.extend_from_slice(&rest);
            let mut from = &bytes[..];
            prop_assert_eq!(get_varint(&mut from), Some(value));
            prop_assert_eq!(from, &rest[..]);
        }
    }
}
