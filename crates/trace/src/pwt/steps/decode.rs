use std::cell::Cell;
use std::rc::Rc;

use pagewalk_ring::record::ADDRESS_MASK;
use pagewalk_stream::{BATCH_OPS, End, Event, InstructionCounts, Op, ShortcutQuery};

use super::{BREAK, IRREGULAR, MET_WITHIN, MOVED, Model, Shape};
use crate::pump::Stop;
use crate::pwt::block::Columns;
use crate::pwt::code::Code;
use crate::pwt::codec::{get_varint, unzigzag};
use crate::pwt::marks::{Give, Mark, get_body};
use crate::x86::{Piece, Registers};

/// Turns the columns of one thread into ops and marks.
#[derive(Default)]
pub struct StepDecoder {
    model: Model,
    /// Carry dependences across the borders of the file's blocks.
    pub registers: Registers,
    /// Instructions of the ops given since the caller last took them.
    pub counts: Rc<Cell<InstructionCounts>>,
    /// Instructions of `ops`.
    pending: InstructionCounts,
    words: Vec<u64>,
    ops: Vec<Op>,
}

/// Marks that belong to a step.
#[derive(Default)]
struct Notes {
    irregular: bool,
    broken: bool,
    met: Vec<(u16, u64)>,
    query: Option<ShortcutQuery>,
}

/// Read positions in the columns.
struct At<'a> {
    from: Columns<'a>,
    named: usize,
    tags: usize,
}

impl At<'_> {
    /// The number of the next block.
    #[inline(always)]
    fn name(&mut self, model: &mut Model) -> Option<u32> {
        let missed = *self.from.misses.get(self.named >> 3)? >> (self.named & 7) & 1;
        self.named += 1;
        let guess = model.guess();
        if missed != 0 {
            let (number, rest) = self.from.ids.split_first_chunk()?;
            self.from.ids = rest;
            *guess = u32::from_le_bytes(*number);
        }
        let number = *guess;
        model.advance(number);
        Some(number)
    }

    /// The records of a complete execution.
    #[inline(always)]
    fn accesses(&mut self, model: &mut Model, shape: &Shape, words: &mut Vec<u64>) -> Option<()> {
        words.clear();
        let mut before = model.address();
        for slot in model.slots(shape) {
            let tag = *self.from.tags.get(self.tags >> 1)? >> (4 * (self.tags & 1)) & 15;
            self.tags += 1;
            let (guess, bytes) = if tag < MOVED {
                (slot.word, tag)
            } else {
                (slot.moved(before), tag - MOVED)
            };
            let bytes = usize::from(bytes);
            let difference = match self.from.bytes.first_chunk() {
                // If eight bytes remain, reads all and masks those of other accesses.
                Some(all) => {
                    let unused = 64 - 8 * bytes as u32;
                    u64::from_le_bytes(*all)
                        .checked_shl(unused)
                        .map_or(0, |v| v >> unused)
                }
                None => {
                    let mut all = [0; 8];
                    all[..bytes].copy_from_slice(self.from.bytes.get(..bytes)?);
                    u64::from_le_bytes(all)
                }
            };
            self.from.bytes = self.from.bytes.get(bytes..)?;
            let word = guess.wrapping_add(unzigzag(difference));
            slot.learn(word, before);
            before = word;
            words.push(word);
        }
        model.access = before;
        Some(())
    }
}

impl StepDecoder {
    /// Gives the ops of `steps` steps, with their `marks` in between. Returns their instructions.
    ///
    /// # Errors
    /// The errors of `give`. If the columns are inconsistent, the error of `fault`.
    pub fn decode(
        &mut self,
        from: Columns<'_>,
        (steps, marks): (u32, u32),
        mut code: Code<'_>,
        fault: &dyn Fn(&str) -> Stop,
        give: Give<'_>,
    ) -> Result<u64, Stop> {
        self.model.reset();
        let mut at = At {
            from,
            named: 0,
            tags: 0,
        };
        let bad = || fault("a step makes no sense");
        let odd = || fault("a mark makes no sense");
        let mut marks = marks;
        let mut pending = position(&mut at.from.marks, &mut marks).ok_or_else(odd)?;
        let mut notes = Notes::default();
        let mut instructions = 0;
        let mut number = at.name(&mut self.model).ok_or_else(bad)?;
        for step in 0..=u64::from(steps) {
            while pending <= step {
                if pending < step
                    || !self
                        .note(&mut at.from.marks, &mut notes, give)
                        .ok_or_else(odd)??
                {
                    return Err(fault("marks are out of order"));
                }
                pending = position(&mut at.from.marks, &mut marks).ok_or_else(odd)?;
            }
            if step == u64::from(steps) {
                break;
            }
            let this = number;
            number = at.name(&mut self.model).ok_or_else(bad)?;
            let broken = std::mem::take(&mut notes.broken);
            if !code.has(this)? || !broken && !code.has(number)? {
                return Err(bad());
            }
            let known = code.get(this).ok_or_else(bad)?;
            if !notes.irregular {
                at.accesses(&mut self.model, &known.shape, &mut self.words)
                    .ok_or_else(bad)?;
            }
            let next = if broken {
                None
            } else {
                Some(code.get(number).ok_or_else(bad)?.block.address)
            };
            let before = self.ops.len();
            let block = &known.block;
            self.pending
                .add_block(u64::from(known.shape.instructions), &block.approximated);
            let whole = block.expand(&self.words, next, &mut self.registers, &mut self.ops);
            instructions += if whole {
                u64::from(known.shape.instructions)
            } else {
                let ops = self.ops[before..].iter();
                ops.map(|o| u64::from(o.insns)).sum()
            };
            notes.irregular = false;
            let query = notes.query.take();
            if !block.markers.is_empty() || !notes.met.is_empty() || query.is_some() {
                let rest = self.ops.split_off(before);
                self.flush(give)?;
                let pieces = match query {
                    None => block.cut(rest, &mut notes.met),
                    Some(query) => {
                        block.cut_query(query, rest, &mut notes.met, &mut self.registers)
                    }
                };
                for cut in pieces {
                    match cut {
                        Piece::Ops(ops) => give(&ops, None)?,
                        Piece::End(end) => give(&[], Some(Mark::End(end)))?,
                    }
                }
            }
            if self.ops.len() >= BATCH_OPS {
                self.flush(give)?;
            }
        }
        if pending != u64::MAX || notes.query.is_some() {
            return Err(fault("marks are out of order"));
        }
        self.flush(give)?;
        Ok(instructions)
    }

    fn flush(&mut self, give: Give<'_>) -> Result<(), Stop> {
        if !self.ops.is_empty() {
            let mut counts = self.counts.get();
            counts.add(&std::mem::take(&mut self.pending));
            self.counts.set(counts);
            give(&self.ops, None)?;
            self.ops.clear();
        }
        Ok(())
    }

    /// Reads a mark after its position. `None`: it is invalid. False: it is a second one where only one is allowed.
    fn note(
        &mut self,
        from: &mut &[u8],
        notes: &mut Notes,
        give: Give<'_>,
    ) -> Option<Result<bool, Stop>> {
        match get_varint(from)? {
            IRREGULAR => {
                if std::mem::replace(&mut notes.irregular, true) {
                    return Some(Ok(false));
                }
                let count = get_varint(from)?;
                let mut before = self.model.address();
                self.words.clear();
                for _ in 0..count {
                    let upper = get_varint(from).filter(|u| *u < 1 << 10)?;
                    before = before.wrapping_add(unzigzag(get_varint(from)?)) & ADDRESS_MASK;
                    self.words.push(upper << 48 | before);
                }
            }
            BREAK => notes.broken = true,
            MET_WITHIN => {
                let instruction = u16::try_from(get_varint(from)?).ok()?;
                notes.met.push((instruction, get_varint(from)?));
            }
            code => {
                let mark = get_body(code, from)?;
                if let Mark::End(End::Query(query)) = mark {
                    return Some(Ok(notes.query.replace(query).is_none()));
                }
                if let Mark::End(End::Event {
                    event: Event::Exec, ..
                }) = mark
                {
                    self.registers = Registers::default();
                }
                let given = self.flush(give).and_then(|()| give(&[], Some(mark)));
                return Some(given.map(|()| true));
            }
        }
        Some(Ok(true))
    }
}

/// Position of the next mark, or `u64::MAX` if none is left.
fn position(from: &mut &[u8], left: &mut u32) -> Option<u64> {
    match left.checked_sub(1) {
        None => Some(u64::MAX),
        Some(rest) => {
            *left = rest;
            get_varint(from)
        }
    }
}
