//! Expands a template with the records of one execution to ops.

use pagewalk_ring::record::{ADDRESS_MASK, INDEX_SHIFT};
use pagewalk_stream::{End, Op, OpClass, ShortcutQuery, flags};

use super::{Block, CALL_ADDRESS, CALL_INTEGER, CALL_RESULT, Piece, REGISTERS};
use crate::pwt::{get_varint, put_varint};

/// Cycles of simple instructions after a producer, above which a `Compute` op replaces them: an op can name at most
/// 255.
const LONGEST: u32 = 128;

/// Producer of a register's value: the number of the op in the upper 48 bits, the cycles after it in the lower 16. One
/// word, so that one load reads it as one store wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Register(u64);

impl Register {
    #[inline(always)]
    pub(super) fn new(op: u64, extra: u32) -> Register {
        Register(op << 16 | u64::from(extra.min(0xffff)))
    }
    #[inline(always)]
    fn op(self) -> u64 {
        self.0 >> 16
    }
    #[inline(always)]
    fn extra(self) -> u32 {
        (self.0 & 0xffff) as u32
    }
    #[inline(always)]
    fn later(self, cycles: u16) -> Register {
        Register::new(self.op(), self.extra() + u32::from(cycles))
    }
}

/// Producers of a thread's registers, which carry dependences from block to block.
#[derive(Clone, Debug)]
pub struct Registers {
    /// Number of the next op.
    pub(super) next: u64,
    pub(super) all: [Register; REGISTERS],
}

impl Default for Registers {
    fn default() -> Self {
        Registers {
            // Makes a register that was never written too far away to be named.
            next: 1 << 16,
            all: [Register(0); REGISTERS],
        }
    }
}

impl Registers {
    /// The contents in encoded form, for [`Registers::parse`].
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(3 * REGISTERS);
        put_varint(&mut out, self.next);
        for r in self.all {
            // No op has number 0.
            let distance = if r.op() == 0 { 0 } else { self.next - r.op() };
            put_varint(&mut out, distance);
            put_varint(&mut out, u64::from(r.extra()));
        }
        out
    }

    /// Registers with these contents; `None` if they are invalid.
    pub(crate) fn parse(mut from: &[u8]) -> Option<Registers> {
        let from = &mut from;
        let mut registers = Registers {
            next: get_varint(from).filter(|next| next >> 47 == 0)?,
            ..Registers::default()
        };
        for r in &mut registers.all {
            let op = match get_varint(from)? {
                0 => 0,
                distance => registers.next.checked_sub(distance)?,
            };
            *r = Register::new(op, u32::try_from(get_varint(from)?).ok()?);
        }
        from.is_empty().then_some(registers)
    }
}

impl Block {
    /// Appends the ops of one execution that sent these `records` of memory accesses and continued at `next` (`None`:
    /// unknown). Returns true if the execution was complete.
    #[inline]
    pub fn expand(
        &self,
        records: &[u64],
        next: Option<u64>,
        registers: &mut Registers,
        out: &mut Vec<Op>,
    ) -> bool {
        if self.repeat.is_some() {
            return self.expand_repeat(records, next, registers, out);
        }
        self.expand_once(records, next, registers, out)
    }

    /// As [`Block::expand`], with at most the first accesses of a repeated string instruction.
    #[inline]
    pub(super) fn expand_once(
        &self,
        records: &[u64],
        next: Option<u64>,
        registers: &mut Registers,
        out: &mut Vec<Op>,
    ) -> bool {
        let base = out.len();
        if !self.completed(records) {
            self.expand_irregular(records, next, registers, out);
            return false;
        }
        out.extend_from_slice(&self.ops);
        let ops = &mut out[base..];
        for &(op, record) in &self.slots {
            ops[usize::from(op)].va = records[usize::from(record)] & ADDRESS_MASK;
        }
        self.resolve(ops, registers);
        self.take_branch(ops, next);
        self.leave(next, registers, out);
        true
    }

    /// Fills in producers from earlier blocks.
    #[inline]
    fn resolve(&self, ops: &mut [Op], registers: &Registers) {
        for l in &self.live_in {
            let (Some(op), r) = (
                ops.get_mut(usize::from(l.op)),
                registers.all[usize::from(l.register)],
            ) else {
                continue;
            };
            let distance = registers.next + u64::from(l.op) - r.op();
            if distance <= u64::from(u16::MAX) {
                let which = usize::from(l.which);
                op.dep[which] = distance as u16;
                op.dep_latency[which] = (u32::from(l.latency) + r.extra()).min(255) as u8;
            }
        }
    }

    #[inline]
    fn take_branch(&self, ops: &mut [Op], next: Option<u64>) {
        let Some(branch) = self.branch else {
            return;
        };
        let Some(op) = ops.get_mut(usize::from(branch.op)) else {
            return;
        };
        // The field is written without a read, because reading the new copy back would stall.
        let bits = branch.flags;
        if bits & flags::CONDITIONAL != 0 {
            // Any other address is the fall-through, or a signal handler.
            if next == Some(branch.target) {
                op.flags = bits | flags::TAKEN;
            }
        } else {
            op.flags = bits | flags::TAKEN;
            if bits & flags::INDIRECT != 0 {
                op.va = next.unwrap_or(0);
            }
        }
    }

    /// Updates the registers to the block's end.
    #[inline]
    fn leave(&self, next: Option<u64>, registers: &mut Registers, out: &mut Vec<Op>) {
        let start = registers.next;
        registers.next += self.ops.len() as u64;
        let mut long = false;
        // All sources are read before any register is written. A copy of all registers would cost more than the rest of
        // this function.
        let mut few = [Register(0); 8];
        let mut many = Vec::new();
        let before = if self.moved.len() <= few.len() {
            &mut few[..self.moved.len()]
        } else {
            many.resize(self.moved.len(), Register(0));
            &mut many[..]
        };
        for (v, &(_, from, extra)) in before.iter_mut().zip(&self.moved) {
            *v = registers.all[usize::from(from)].later(extra);
        }
        for (&v, &(r, ..)) in before.iter().zip(&self.moved) {
            long |= v.extra() > LONGEST;
            registers.all[usize::from(r)] = v;
        }
        for &(r, extra) in &self.advanced {
            let v = registers.all[usize::from(r)].later(extra);
            long |= v.extra() > LONGEST;
            registers.all[usize::from(r)] = v;
        }
        for &(r, extra, op) in &self.made {
            registers.all[usize::from(r)] = Register::new(start + u64::from(op), u32::from(extra));
        }
        for &r in &self.ready {
            registers.all[usize::from(r)] = Register(0);
        }
        if long {
            shorten(next.unwrap_or(self.end), registers, out);
        }
    }

    /// Expands an execution that a fault cut short, or whose accesses differ from the template.
    #[cold]
    fn expand_irregular(
        &self,
        records: &[u64],
        next: Option<u64>,
        registers: &mut Registers,
        out: &mut Vec<Op>,
    ) {
        let base = out.len();
        out.extend_from_slice(&self.ops);
        let mut used = vec![false; records.len()];
        let mut stopped = None;
        let mut n = 0;
        while n < self.operands.len() {
            let first = self.operands[n];
            let tag = first.instruction | u16::from(first.store) << 9;
            let group = self.operands[n..]
                .iter()
                .take_while(|o| (o.instruction, o.store) == (first.instruction, first.store))
                .count();
            let mut mine = (0..records.len())
                .filter(|&i| (records[i] >> INDEX_SHIFT) as u16 == tag)
                .collect::<Vec<_>>()
                .into_iter();
            for operand in &self.operands[n..n + group] {
                let op = &mut out[base + usize::from(operand.op)];
                // An atomic read-modify-write may send its store only.
                let updated = || {
                    let store = first.instruction | 1 << 9;
                    records
                        .iter()
                        .find(|r| !first.store && (**r >> INDEX_SHIFT) as u16 == store)
                };
                let Some(i) = mine.next() else {
                    if let Some(record) = updated() {
                        op.va = record & ADDRESS_MASK;
                        continue;
                    }
                    // The access did not happen. A `Compute` op takes its place, so that distances stay valid.
                    if !operand.optional && stopped.is_none() {
                        stopped = Some(operand.instruction);
                    }
                    *op = Op {
                        pc: op.pc,
                        insns: op.insns,
                        ..Op::default()
                    };
                    continue;
                };
                used[i] = true;
                op.va = records[i] & ADDRESS_MASK;
                for j in mine.by_ref().take(usize::from(operand.pieces) - 1) {
                    used[j] = true;
                }
            }
            // An operand without a fixed size: its other pieces are in its line.
            for i in mine {
                used[i] =
                    group == 1 && first.pieces == 1 && out[base + usize::from(first.op)].size == 64;
            }
            n += group;
        }
        // The last record shows how far execution came at least.
        let reached = records
            .last()
            .map_or(0, |r| (r >> INDEX_SHIFT) as u16 & 0x1ff);
        if let Some(at) = stopped.filter(|&at| at >= reached) {
            let kept = self.first_op(at);
            out.truncate(base + kept);
            self.resolve(&mut out[base..], registers);
            registers.next += kept as u64;
        } else {
            self.resolve(&mut out[base..], registers);
            self.take_branch(&mut out[base..], next);
            self.leave(next, registers, out);
        }
        // Accesses that the template lacks.
        for (i, &r) in records.iter().enumerate() {
            if !used[i] {
                out.push(Op {
                    pc: self.address,
                    va: r & ADDRESS_MASK,
                    kind: if r >> 57 & 1 == 1 {
                        OpClass::Store
                    } else {
                        OpClass::Load
                    },
                    size: 8,
                    ..Op::default()
                });
                registers.next += 1;
            }
        }
    }
}

impl Block {
    /// As [`Block::cut`], for an execution that ended with a query. The system call becomes the last op. It depends
    /// only on the registers of the integer and the address, and the call's result depends on it. The last piece is the
    /// end.
    #[cold]
    pub fn cut_query(
        &self,
        query: ShortcutQuery,
        mut ops: Vec<Op>,
        met: &mut Vec<(u16, u64)>,
        registers: &mut Registers,
    ) -> Vec<Piece> {
        let question = self.shortcut_query(&query, registers, &mut ops);
        let mut pieces = self.cut(ops, met);
        pieces.push(Piece::Ops(vec![question]));
        pieces.push(Piece::End(End::Query(query)));
        pieces
    }

    /// Moves the system call of an execution behind its `ops`, as a query.
    fn shortcut_query(
        &self,
        query: &ShortcutQuery,
        registers: &mut Registers,
        ops: &mut Vec<Op>,
    ) -> Op {
        let call = |o: &Op| o.kind == OpClass::Compute && o.flags & flags::SERIALISING != 0;
        let mut op = match ops.iter().rposition(call) {
            Some(at) => {
                registers.move_last(at, ops);
                ops.pop().unwrap_or_default()
            }
            // The accesses show no call: the execution was cut short before it.
            None => {
                registers.next += 1;
                Op {
                    pc: self.address,
                    ..Op::default()
                }
            }
        };
        let number = registers.next - 1;
        op.kind = OpClass::Query;
        op.flags = 0;
        op.latency = 0;
        let inputs: &[u8] = match query {
            ShortcutQuery::LoadVa { .. }
            | ShortcutQuery::Alloc { .. }
            | ShortcutQuery::Resize { .. } => &[CALL_INTEGER],
            ShortcutQuery::InsertVa { .. } => &[CALL_INTEGER, CALL_ADDRESS],
            ShortcutQuery::Free => &[],
        };
        for (which, &r) in inputs.iter().enumerate() {
            let maker = registers.all[usize::from(r)];
            let distance = number - maker.op();
            if distance <= u64::from(u16::MAX) {
                op.dep[which] = distance as u16;
                op.dep_latency[which] = maker.extra().min(255) as u8;
            }
        }
        registers.all[usize::from(CALL_RESULT)] = Register::new(number, 0);
        op
    }
}

impl Registers {
    /// Moves op `at` of the last `ops` behind all of them. Ops that it passes do not depend on it; they depend on the
    /// registers' values before it.
    fn move_last(&mut self, at: usize, ops: &mut [Op]) {
        ops[at..].rotate_left(1);
        let Some(passed) = (ops.len() - 1).checked_sub(at).filter(|&n| n > 0) else {
            return;
        };
        let moved = self.next - ops.len() as u64 + at as u64;
        for (behind, op) in ops[at..at + passed].iter_mut().enumerate() {
            for distance in &mut op.dep {
                // Counted from one place later if beyond the moved op.
                *distance -= u16::from(usize::from(*distance) > behind + 1);
            }
        }
        for r in &mut self.all {
            if r.op() == moved {
                *r = Register::new(self.next - 1, r.extra());
            } else if r.op() > moved {
                *r = Register::new(r.op() - 1, r.extra());
            }
        }
    }
}

/// Replaces each long chain of simple instructions by a `Compute` op of the instruction at `pc`.
#[cold]
fn shorten(pc: u64, registers: &mut Registers, out: &mut Vec<Op>) {
    for r in 0..REGISTERS {
        let v = registers.all[r];
        if v.extra() <= LONGEST {
            continue;
        }
        let distance = registers.next - v.op();
        let extra = v.extra().min(255);
        let half = extra / 2;
        let mut op = Op {
            pc,
            latency: (extra - half) as u8,
            ..Op::default()
        };
        if distance <= u64::from(u16::MAX) {
            op.dep[0] = distance as u16;
            op.dep_latency[0] = half as u8;
        }
        out.push(op);
        // Other registers with the same value, such as the flags, share it.
        let new = Register::new(registers.next, 0);
        for other in &mut registers.all {
            if *other == v {
                *other = new;
            }
        }
        registers.next += 1;
    }
}
