//! Builds templates from code bytes.

use arrayvec::ArrayVec;
use iced_x86::{
    Decoder, DecoderOptions, EncodingKind, FlowControl, Instruction, InstructionInfo,
    InstructionInfoFactory, MemorySize, Mnemonic, OpKind, Register, UsedMemory,
};
use pagewalk_stream::{FlushKind, InstructionClass, Op, OpClass, PrefetchHint, flags};

use super::latency::latency;
use super::operands::{Changed, clears, number, reads, writes};
use super::repeat::{Repeat, RepeatTime};
use super::value::{Maker, Value};
use super::work::{Work, fuses};
use super::{
    Block, Branch, FLAGS, FRAME_POINTER, LiveIn, Marker, Operand, REGISTERS, ROI_BEGIN, ROI_END,
    Recorded, STACK_POINTER,
};

/// Longest path that is folded; beyond it, a `Compute` op starts a new one.
const LONGEST: u16 = 200;

/// The growing parts of a [`Block`].
#[derive(Default)]
struct Draft {
    ops: Vec<Op>,
    owners: Vec<u16>,
    live_in: Vec<LiveIn>,
    operands: Vec<Operand>,
    markers: Vec<Marker>,
    branch: Option<Branch>,
    repeat: Option<Repeat>,
    approximated: Vec<(InstructionClass, u16)>,
}

struct Builder {
    block: Draft,
    values: [Value; REGISTERS],
    written: [bool; REGISTERS],
    /// Instructions that no op includes yet.
    plain: u16,
    /// Work on ports that no op includes yet.
    work: Work,
    /// The previous instruction executes together with a conditional branch.
    fusible: bool,
    instruction: u16,
    pc: u64,
    recorded: Recorded,
}

impl Block {
    /// Decodes `code`, which starts at `address` and holds instructions of these `sizes`, as the emulator cut it. Bytes
    /// that do not decode count as simple instructions.
    pub fn decode(address: u64, sizes: &[u8], code: &[u8]) -> Block {
        Block::decode_as(address, sizes, code, Recorded::ALL)
    }

    /// As [`Block::decode`], for records of older recordings.
    pub(super) fn decode_as(address: u64, sizes: &[u8], code: &[u8], recorded: Recorded) -> Block {
        let mut b = Builder {
            block: Draft::default(),
            values: std::array::from_fn(|r| Value::of(Maker::Register(r as u8))),
            written: [false; REGISTERS],
            plain: 0,
            work: Work::default(),
            fusible: false,
            instruction: 0,
            pc: address,
            recorded,
        };
        let mut info = InstructionInfoFactory::new();
        let mut at = 0;
        for (n, &size) in sizes.iter().enumerate() {
            let bytes = code.get(at..at + usize::from(size)).unwrap_or_default();
            b.pc = address.wrapping_add(at as u64);
            b.instruction = n as u16;
            b.plain += 1;
            let instruction = Decoder::with_ip(64, bytes, b.pc, DecoderOptions::NONE).decode();
            if !instruction.is_invalid() {
                b.count(&instruction);
                b.add(&instruction, &mut info);
            }
            b.fusible = fuses(&instruction);
            at += usize::from(size);
        }
        b.finish(address, address.wrapping_add(at as u64), sizes.len() as u32)
    }
}

impl Builder {
    fn emit(&mut self, mut op: Op) -> u16 {
        op.pc = self.pc;
        op.insns = self.plain;
        op.work = std::mem::take(&mut self.work).beside(op.simple());
        self.plain = 0;
        self.block.ops.push(op);
        self.block.owners.push(self.instruction);
        (self.block.ops.len() - 1) as u16
    }

    /// Makes this producer the op's input number `which`.
    fn depend(&mut self, op: u16, which: u8, (maker, extra): (Maker, u16)) {
        let o = &mut self.block.ops[usize::from(op)];
        o.dep_latency[usize::from(which)] = extra.min(255) as u8;
        match maker {
            Maker::Op(p) => o.dep[usize::from(which)] = op - p,
            Maker::Register(register) => self.block.live_in.push(LiveIn {
                op,
                which,
                register,
                latency: extra.min(255) as u8,
            }),
        }
    }

    /// A `Compute` op that is done when its (at most two) producers are.
    fn compute(&mut self, makers: &[(Maker, u16)]) -> (Maker, u16) {
        // If all paths have folded cycles, one becomes the op's own latency.
        let latency = u16::from(makers.iter().all(|&(_, e)| e > 0));
        let op = self.emit(Op {
            latency: latency as u8,
            ..Op::default()
        });
        for (which, &(maker, extra)) in makers.iter().enumerate() {
            self.depend(op, which as u8, (maker, extra - latency));
        }
        (Maker::Op(op), 0)
    }

    /// Reduces a value to at most `most` (1 or 2) producers.
    fn reduce(&mut self, value: &mut Value, most: usize) {
        while value.0.len() > most {
            let pair: ArrayVec<_, 2> = value.0.drain(..2).collect();
            let merged = self.compute(&pair);
            value.0.push(merged);
        }
    }

    fn value(&self, register: u8) -> Value {
        self.values[usize::from(register)].clone()
    }

    fn set(&mut self, register: u8, value: Value) {
        self.values[usize::from(register)] = value;
        self.written[usize::from(register)] = true;
    }

    /// The producers of an address with this base and index, at most `most` (1 or 2).
    fn address(&mut self, (base, index): (Register, Register), most: usize) -> Value {
        let registers = [number(base), number(index)];
        let combine = |b: &Builder| {
            let mut value = Value::default();
            for r in registers.into_iter().flatten() {
                value.merge(&b.values[usize::from(r)]);
            }
            value
        };
        let mut value = combine(self);
        if value.0.len() > most {
            // Merged in the register, so that its next use needs no further op.
            for r in registers.into_iter().flatten() {
                self.merge_register(r);
            }
            value = combine(self);
            self.reduce(&mut value, most);
        }
        value
    }

    /// Gives a register a single producer, and the same to others with the same value.
    fn merge_register(&mut self, register: u8) {
        let makers = self.value(register);
        if makers.0.len() < 2 {
            return;
        }
        let mut value = makers.clone();
        self.reduce(&mut value, 1);
        for other in &mut self.values {
            if *other == makers {
                *other = value.clone();
            }
        }
    }

    fn access(&mut self, i: &Instruction, memory: &UsedMemory, store: bool) -> Vec<u16> {
        let bytes = match memory.memory_size().size() {
            // The length of all repetitions is unknown; one execution is one repetition.
            0 if i.is_string_instruction() => i.memory_size().size(),
            bytes => bytes,
        };
        // A gather reads each element alone.
        let elements = if memory.index().is_vector_register() && bytes > 0 {
            (i.op0_register().size() / bytes).clamp(1, 16)
        } else {
            1
        };
        let optional = elements > 1
            || may_be_unreported(i.memory_size())
            || i.has_rep_prefix()
            || i.has_repne_prefix()
            || matches!(
                i.mnemonic(),
                Mnemonic::Vmaskmovps
                    | Mnemonic::Vmaskmovpd
                    | Mnemonic::Vpmaskmovd
                    | Mnemonic::Vpmaskmovq
                    | Mnemonic::Maskmovdqu
                    | Mnemonic::Maskmovq
            );
        (0..elements)
            .map(|_| {
                let op = self.emit(Op {
                    kind: if store { OpClass::Store } else { OpClass::Load },
                    // An access without a fixed size (the processor's saved state) counts as a line.
                    size: if bytes == 0 { 64 } else { bytes.min(64) as u8 },
                    ..Op::default()
                });
                self.block.operands.push(Operand {
                    op,
                    instruction: self.instruction,
                    store,
                    pieces: bytes.div_ceil(8).max(1) as u16,
                    optional,
                });
                op
            })
            .collect()
    }

    /// Counts an instruction that the timing model does not simulate as hardware does.
    fn count(&mut self, i: &Instruction) {
        let Some(class) = class(i) else {
            return;
        };
        let counted = &mut self.block.approximated;
        match counted.iter_mut().find(|(known, _)| *known == class) {
            Some((_, n)) => *n += 1,
            None => counted.push((class, 1)),
        }
    }

    /// Adds the ops of an instruction, and sets the producers of its results.
    fn add(&mut self, i: &Instruction, factory: &mut InstructionInfoFactory) {
        let info = factory.info(i);
        match i.mnemonic() {
            Mnemonic::Nop => return self.mark(i),
            Mnemonic::Syscall
            | Mnemonic::Int
            | Mnemonic::Cpuid
            | Mnemonic::Mfence
            | Mnemonic::Lfence
            | Mnemonic::Serialize => return self.serialise(i, info),
            _ => {}
        }
        if let Some(hint) = hint(i).filter(|_| self.recorded.prefetches) {
            return self.of_address(i, OpClass::Prefetch, hint as u8);
        }
        if self.recorded.flushes {
            if let Some(kind) = flush(i) {
                return self.of_address(i, OpClass::Flush, kind as u8);
            }
            if i.mnemonic() == Mnemonic::Sfence {
                self.emit(Op {
                    latency: 1,
                    flags: flags::STORE_FENCE,
                    ..Op::default()
                });
                return;
            }
        }
        if self.recorded.prefetches && is_repeated(i) {
            return self.repeat(i, info);
        }
        let memory = info.used_memory();
        let addresses: Vec<u8> = memory
            .iter()
            .flat_map(|m| [number(m.base()), number(m.index())])
            .flatten()
            .collect();
        let data = self.data(i, info, &addresses);
        let mut changed = Changed::by(i, info, &addresses);
        if i.mnemonic() == Mnemonic::Leave {
            self.leave(&mut changed);
        }
        let inputs = self.load(i, memory, data);
        self.work.add(i);
        let result = self.fold(i, inputs);
        self.store(i, memory, &result);
        for r in changed.pointers {
            let step = u16::from(r != STACK_POINTER);
            let value = self.value(r).later(step);
            self.set(r, value);
        }
        self.branch(i, &result);
        for r in changed.results {
            self.set(r, result.clone());
        }
        if i.rflags_modified() != 0 {
            self.set(FLAGS, result);
        }
    }

    /// Adds the marker of the region of interest, if this is one.
    fn mark(&mut self, i: &Instruction) {
        let marks = i.op0_kind() == OpKind::Memory && i.memory_base() == Register::RAX;
        if marks && matches!(i.memory_displacement64(), ROI_BEGIN | ROI_END) {
            // Instructions before the marker belong to the other side.
            let begin = i.memory_displacement64() == ROI_BEGIN;
            self.emit(Op::default());
            let op = self.block.ops.len();
            self.block.markers.push(Marker { op, begin });
        }
    }

    /// Adds a software prefetch or a flush, which only has an address.
    fn of_address(&mut self, i: &Instruction, kind: OpClass, size: u8) {
        let address = self.address((i.memory_base(), i.memory_index()), 2);
        let op = self.emit(Op {
            kind,
            size,
            ..Op::default()
        });
        for (which, &maker) in address.0.iter().enumerate() {
            self.depend(op, which as u8, maker);
        }
        self.block.operands.push(Operand {
            op,
            instruction: self.instruction,
            store: false,
            pieces: 1,
            optional: true,
        });
    }

    /// Adds a repeated string instruction: the start of its microcode, and its first accesses.
    fn repeat(&mut self, i: &Instruction, info: &InstructionInfo) {
        let time = RepeatTime::of(i.mnemonic());
        let mut inputs = Value::default();
        for used in info.used_registers() {
            if let (true, Some(r)) = (reads(used.access()), number(used.register())) {
                inputs.merge(&self.value(r));
            }
        }
        self.reduce(&mut inputs, 2);
        let start = self.emit(Op {
            latency: time.start,
            flags: flags::MICROCODE,
            ..Op::default()
        });
        for (which, &maker) in inputs.0.iter().enumerate() {
            self.depend(start, which as u8, maker);
        }
        let mut loaded = None;
        for store in [false, true] {
            let wanted = |m: &&UsedMemory| {
                if store {
                    writes(m.access())
                } else {
                    reads(m.access())
                }
            };
            for m in info.used_memory().iter().filter(wanted) {
                for op in self.access(i, m, store) {
                    self.depend(op, 0, (Maker::Op(start), 0));
                    if let (true, Some(data)) = (store, loaded) {
                        self.depend(op, 1, (Maker::Op(data), 0));
                    }
                    loaded = loaded.or((!store).then_some(op));
                }
            }
        }
        let loads = info
            .used_memory()
            .iter()
            .filter(|m| reads(m.access()))
            .count();
        let mut written = Vec::new();
        for used in info.used_registers() {
            if let (true, Some(r)) = (writes(used.access()), number(used.register())) {
                written.push(r);
            }
        }
        if i.rflags_modified() != 0 {
            written.push(FLAGS);
        }
        for &r in &written {
            self.set(r, Value::of(Maker::Op(start)));
        }
        self.block.repeat = Some(Repeat {
            instruction: self.instruction,
            start,
            element: i.memory_size().size() as u8,
            loads: loads as u8,
            time,
            written: written.into(),
        });
    }

    /// An op that serialises the pipeline.
    fn serialise(&mut self, i: &Instruction, info: &InstructionInfo) {
        let op = self.emit(Op {
            latency: latency(i).min(255) as u8,
            flags: flags::SERIALISING,
            ..Op::default()
        });
        for register in info.used_registers() {
            if let (true, Some(r)) = (writes(register.access()), number(register.register())) {
                self.set(r, Value::of(Maker::Op(op)));
            }
        }
    }

    /// The producers of the result, apart from memory.
    fn data(&self, i: &Instruction, info: &InstructionInfo, addresses: &[u8]) -> Value {
        let mut data = Value::default();
        if clears(i) {
            return data;
        }
        for n in 0..i.op_count() {
            if i.op_kind(n) == OpKind::Register
                && let Some(r) = number(i.op_register(n))
            {
                let narrow = i.op_register(n).is_gpr8() || i.op_register(n).is_gpr16();
                let access = info.op_access(n);
                // A write of 8 or 16 bits merges with the old value.
                if reads(access) || narrow && writes(access) {
                    data.merge(&self.value(r));
                }
            }
        }
        for used in info.used_registers() {
            if let (true, Some(r)) = (reads(used.access()), number(used.register()))
                && !addresses.contains(&r)
            {
                data.merge(&self.value(r));
            }
        }
        if i.rflags_read() != 0 {
            data.merge(&self.value(FLAGS));
        }
        data
    }

    /// The stack pointer gets the frame pointer's value before the frame pointer is loaded.
    fn leave(&mut self, changed: &mut Changed) {
        let frame = self.value(FRAME_POINTER);
        self.set(STACK_POINTER, frame);
        let both = [STACK_POINTER, FRAME_POINTER];
        changed.pointers.retain(|r| !both.contains(r));
        changed.results.retain(|&r| r != STACK_POINTER);
        if !changed.results.contains(&FRAME_POINTER) {
            changed.results.push(FRAME_POINTER);
        }
    }

    /// Adds the loads of an instruction. Returns its inputs, merged with `data`.
    fn load(&mut self, i: &Instruction, memory: &[UsedMemory], data: Value) -> Value {
        let locked = i.has_lock_prefix()
            || i.mnemonic() == Mnemonic::Xchg && memory.iter().any(|m| writes(m.access()));
        let mut inputs = data;
        for m in memory.iter().filter(|m| reads(m.access())) {
            let address = self.address((m.base(), m.index()), 2);
            for op in self.access(i, m, false) {
                for (which, &maker) in address.0.iter().enumerate() {
                    self.depend(op, which as u8, maker);
                }
                if locked {
                    self.block.ops[usize::from(op)].flags |= flags::SERIALISING;
                }
                if inputs.0.len() > 8 {
                    self.reduce(&mut inputs, 2);
                }
                inputs.merge(&Value::of(Maker::Op(op)));
            }
        }
        inputs
    }

    /// The result of an instruction: at most two producers, with its own latency folded into the paths from them.
    fn fold(&mut self, i: &Instruction, mut inputs: Value) -> Value {
        // A branch op executes control flow.
        let cycles = if i.flow_control() == FlowControl::Next {
            latency(i)
        } else {
            0
        };
        self.reduce(&mut inputs, 2);
        let result = inputs.later(cycles);
        if result.0.iter().any(|&(_, e)| e > LONGEST) {
            let (maker, _) = self.compute(&result.0);
            return Value::of(maker);
        }
        result
    }

    /// Adds the stores of an instruction with this result.
    fn store(&mut self, i: &Instruction, memory: &[UsedMemory], result: &Value) {
        let plain = i.flow_control() == FlowControl::Next;
        for m in memory.iter().filter(|m| writes(m.access())) {
            // A read-modify-write depends on its load, which depends on the address.
            let updates = reads(m.access()) && stored_by_load(result, &self.block.ops) && plain;
            let address = if updates {
                Value::default()
            } else {
                self.address((m.base(), m.index()), 1)
            };
            let mut stored = if plain {
                result.clone()
            } else {
                Value::default()
            };
            // One input is left for the data. Producers in this block usually finish last; the others only gate the
            // store's retirement.
            if stored.0.len() > 1 && stored.0.iter().any(|(m, _)| matches!(m, Maker::Op(_))) {
                stored.0.retain(|(m, _)| matches!(m, Maker::Op(_)));
            }
            self.reduce(&mut stored, 1);
            for op in self.access(i, m, true) {
                if let Some(&maker) = address.0.first() {
                    self.depend(op, 0, maker);
                }
                if let Some(&maker) = stored.0.first() {
                    self.depend(op, 1, maker);
                }
                if self.recorded.flushes && is_non_temporal(i) {
                    self.block.ops[usize::from(op)].flags |= flags::NON_TEMPORAL;
                }
            }
        }
    }

    fn branch(&mut self, i: &Instruction, inputs: &Value) {
        if self.fusible && i.flow_control() == FlowControl::ConditionalBranch {
            self.work.fuse();
        }
        let (kind, target) = match i.flow_control() {
            FlowControl::ConditionalBranch => (flags::CONDITIONAL, i.near_branch_target()),
            FlowControl::UnconditionalBranch => (0, i.near_branch_target()),
            FlowControl::IndirectBranch => (flags::INDIRECT, 0),
            FlowControl::Call => (flags::CALL, i.near_branch_target()),
            FlowControl::IndirectCall => (flags::CALL | flags::INDIRECT, 0),
            FlowControl::Return => (flags::RETURN | flags::INDIRECT, 0),
            _ => return,
        };
        // No op may stand between a branch and its target.
        let own = self.plain.min(1);
        self.plain -= own;
        self.settle();
        self.plain += own;
        let op = self.emit(Op {
            va: target,
            kind: OpClass::Branch,
            latency: 1,
            flags: kind,
            ..Op::default()
        });
        for (which, &maker) in inputs.0.iter().enumerate().take(2) {
            self.depend(op, which as u8, maker);
        }
        self.block.branch = Some(Branch {
            target,
            op,
            flags: kind,
        });
    }

    /// Gives every written register a single producer.
    fn settle(&mut self) {
        for r in 0..REGISTERS {
            if !self.written[r] || self.values[r].0.len() < 2 {
                continue;
            }
            if r == usize::from(FLAGS) {
                // Flags are rarely read after the block: keep the producer that usually finishes last.
                let makers = self.value(FLAGS);
                let last = makers.0.iter().copied().max_by_key(|(m, _)| match m {
                    Maker::Op(op) => i32::from(*op),
                    Maker::Register(_) => -1,
                });
                self.values[r].0 = last.into_iter().collect();
                continue;
            }
            self.merge_register(r as u8);
        }
    }

    fn finish(mut self, address: u64, end: u64, instructions: u32) -> Block {
        self.settle();
        let (mut made, mut advanced, mut moved, mut ready) = (vec![], vec![], vec![], vec![]);
        for r in 0..REGISTERS {
            if !self.written[r] {
                continue;
            }
            let register = r as u8;
            match self.values[r].0.first() {
                None => ready.push(register),
                Some(&(Maker::Op(op), extra)) => made.push((register, extra.min(255) as u8, op)),
                Some(&(Maker::Register(from), extra)) if from == register => {
                    if extra > 0 {
                        advanced.push((register, extra));
                    }
                }
                Some(&(Maker::Register(from), extra)) => moved.push((register, from, extra)),
            }
        }
        if self.plain > 0 {
            self.emit(Op {
                latency: 1,
                ..Op::default()
            });
        }
        let mut draft = self.block;
        if let Some(last) = draft.ops.last_mut() {
            self.work.add_to(&mut last.work);
        }
        let (mut slots, mut pattern) = (vec![], vec![]);
        for operand in &draft.operands {
            slots.push((operand.op, pattern.len() as u16));
            let tag = operand.instruction | u16::from(operand.store) << 9;
            pattern.extend(std::iter::repeat_n(tag, usize::from(operand.pieces)));
        }
        Block {
            ops: draft.ops.into(),
            pattern: pattern.into(),
            slots: slots.into(),
            live_in: draft.live_in.into(),
            made: made.into(),
            advanced: advanced.into(),
            moved: moved.into(),
            ready: ready.into(),
            branch: draft.branch,
            markers: draft.markers.into(),
            approximated: draft.approximated.into(),
            repeat: draft.repeat.map(Box::new),
            address,
            end,
            instructions,
            owners: draft.owners.into(),
            operands: draft.operands.into(),
        }
    }
}

/// True if a value depends on a load of the block.
fn stored_by_load(value: &Value, ops: &[Op]) -> bool {
    value.0.iter().any(|(maker, _)| match maker {
        Maker::Op(op) => ops[usize::from(*op)].kind == OpClass::Load,
        Maker::Register(_) => false,
    })
}

/// True for a repeated string instruction that moves through memory.
fn is_repeated(i: &Instruction) -> bool {
    i.is_string_instruction() && (i.has_rep_prefix() || i.has_repne_prefix())
}

/// The class of an instruction that the timing model does not simulate as hardware does.
fn class(i: &Instruction) -> Option<InstructionClass> {
    use Mnemonic as M;
    Some(match i.mnemonic() {
        M::Mfence | M::Lfence | M::Serialize => InstructionClass::Fence,
        M::Xsave
        | M::Xsave64
        | M::Xsavec
        | M::Xsavec64
        | M::Xsaveopt
        | M::Xsaveopt64
        | M::Xsaves
        | M::Xsaves64
        | M::Xrstor
        | M::Xrstor64
        | M::Xrstors
        | M::Xrstors64
        | M::Fxsave
        | M::Fxsave64
        | M::Fxrstor
        | M::Fxrstor64 => InstructionClass::State,
        M::Xbegin | M::Xend | M::Xabort | M::Xtest => InstructionClass::Transaction,
        M::Pause
        | M::Tpause
        | M::Monitor
        | M::Mwait
        | M::Monitorx
        | M::Mwaitx
        | M::Umonitor
        | M::Umwait => InstructionClass::Wait,
        M::Rdtsc | M::Rdtscp | M::Rdpmc => InstructionClass::Clock,
        _ if i.encoding() == EncodingKind::EVEX => InstructionClass::Evex,
        _ => return None,
    })
}

/// The kind of a flush.
fn flush(i: &Instruction) -> Option<FlushKind> {
    Some(match i.mnemonic() {
        Mnemonic::Clflush => FlushKind::Ordered,
        Mnemonic::Clflushopt => FlushKind::Unordered,
        Mnemonic::Clwb => FlushKind::WriteBack,
        _ => return None,
    })
}

/// True for a store that goes through a write-combining buffer. `movntdqa` is a load: on write-back memory, which is all
/// that programs have, its hint has no effect (Intel SDM volume 1, 12.10.3).
fn is_non_temporal(i: &Instruction) -> bool {
    use Mnemonic as M;
    matches!(
        i.mnemonic(),
        M::Movnti
            | M::Movntdq
            | M::Movntps
            | M::Movntpd
            | M::Movntq
            | M::Movntss
            | M::Movntsd
            | M::Vmovntdq
            | M::Vmovntps
            | M::Vmovntpd
            | M::Maskmovdqu
            | M::Vmaskmovdqu
            | M::Maskmovq
    )
}

/// The hint of a software prefetch.
fn hint(i: &Instruction) -> Option<PrefetchHint> {
    Some(match i.mnemonic() {
        // AMD's `prefetch` fills the first level.
        Mnemonic::Prefetcht0 | Mnemonic::Prefetch => PrefetchHint::T0,
        Mnemonic::Prefetcht1 => PrefetchHint::T1,
        Mnemonic::Prefetcht2 => PrefetchHint::T2,
        Mnemonic::Prefetchnta => PrefetchHint::Nta,
        Mnemonic::Prefetchw | Mnemonic::Prefetchwt1 => PrefetchHint::Write,
        _ => return None,
    })
}

/// True if the emulator may not report accesses of this size. From 9.1 on, QEMU does not report those to the x87's and
/// the processor's whole state.
fn may_be_unreported(size: MemorySize) -> bool {
    matches!(
        size,
        MemorySize::Float80
            | MemorySize::Bcd
            | MemorySize::FpuEnv14
            | MemorySize::FpuEnv28
            | MemorySize::FpuState94
            | MemorySize::FpuState108
            | MemorySize::Fxsave_512Byte
            | MemorySize::Fxsave64_512Byte
            | MemorySize::Xsave
            | MemorySize::Xsave64
    )
}
