use pagewalk_ring::record::{self, ADDRESS_MASK};
use pagewalk_stream::{End, ShortcutQuery};

use super::{
    BREAK, IRREGULAR, MET_WITHIN, MOST_STEPS, MOVED, Model, OperandState, RECORDS_FULL, Shape,
    guess_at,
};
use crate::pwt::block::MARKS_FULL;
use crate::pwt::code::Known;
use crate::pwt::codec::{put_varint, zigzag};
use crate::pwt::marks::{Mark, put_mark};
use crate::x86::{Block, Registers};

/// One thread's steps since the last block of the file, as columns.
#[derive(Default)]
pub struct StepEncoder {
    model: Model,
    /// One byte for each block, set for a wrong guess; the first `named`.
    misses: Vec<u8>,
    named: usize,
    /// Numbers of wrongly guessed blocks; the first `ids_end` bytes.
    ids: Vec<u8>,
    ids_end: usize,
    /// One byte for each access; the first `tags_end`.
    tags: Vec<u8>,
    tags_end: usize,
    /// Address differences; the first `bytes_end`.
    bytes: Vec<u8>,
    bytes_end: usize,
    marks: Vec<u8>,
    mark_count: u32,
    steps: u32,
    /// The next block, if known.
    next: Option<u32>,
    instructions: u64,
    ops: u64,
}

/// A finished part of a thread, for a block of the file.
pub struct StepPart {
    /// In the order of `Columns`.
    pub columns: [Vec<u8>; 5],
    /// Executions of blocks in it.
    pub steps: u32,
    /// Marks in it.
    pub mark_count: u32,
    /// Memory accesses in it.
    pub records: u32,
    /// Instructions that a replay gives.
    pub instructions: u64,
    /// Ops that a replay gives.
    pub ops: u64,
}

/// Most words in one call of [`StepEncoder::run`].
const RUN: usize = 1 << 14;

/// Executions that [`StepEncoder::run`] has taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken {
    /// Executions of blocks.
    pub steps: u32,
    /// Their instructions.
    pub instructions: u64,
    /// Their ops.
    pub ops: u64,
    /// Region-of-interest markers in them.
    pub markers: u64,
}

/// The smaller difference of a record from its two guesses, the code for guess and length, and the length of the
/// difference in bytes.
#[inline(always)]
fn difference(slot: &OperandState, word: u64, before: u64) -> (u64, u8, usize) {
    let here = zigzag(word.wrapping_sub(slot.word));
    let moved = zigzag(word.wrapping_sub(slot.moved(before)));
    // The second guess has codes for up to six bytes. No branch: the choice between the two is unpredictable.
    let better = u64::from(moved < here.min(1 << 48)).wrapping_neg();
    let value = here ^ (here ^ moved) & better;
    // Records are below 2^58, so the shift cannot overflow.
    let width = ((value << 1 | 1).ilog2() + 7) >> 3;
    (value, width as u8 + (better as u8 & MOVED), width as usize)
}

#[inline(always)]
fn room(column: &mut Vec<u8>, bytes: usize) {
    if column.len() < bytes {
        grow(column, bytes);
    }
}

#[cold]
fn grow(column: &mut Vec<u8>, bytes: usize) {
    column.resize(bytes.next_power_of_two().max(1 << 12), 0);
}

impl StepEncoder {
    /// True if the part should become a block of the file.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.steps as usize >= MOST_STEPS
            || self.tags_end >= RECORDS_FULL
            || self.marks.len() >= MARKS_FULL
    }

    /// True if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.steps == 0 && self.mark_count == 0
    }

    /// Appends complete executions from the front of a ring's `words`, each followed by another known block. Stops
    /// after `most` executions or `wanted` instructions. Returns the number of words taken.
    pub fn run(
        &mut self,
        words: &[u64],
        known: &[Known],
        most: u32,
        wanted: u64,
    ) -> (usize, Taken) {
        let words = &words[..words.len().min(RUN)];
        let most = most.min((MOST_STEPS as u32).saturating_sub(self.steps));
        let most = most.min(words.len() as u32);
        let mut taken = Taken::default();
        if self.tags_end >= RECORDS_FULL {
            return (0, taken);
        }
        // Reserved once for all executions, so that the loop below has no call in it.
        room(&mut self.misses, self.named + most as usize);
        room(&mut self.ids, self.ids_end + 4 * most as usize + 4);
        room(&mut self.tags, self.tags_end + words.len());
        room(&mut self.bytes, self.bytes_end + 8 * words.len());
        let misses = &mut self.misses[self.named..];
        let (ids, tags) = (
            &mut self.ids[self.ids_end..],
            &mut self.tags[self.tags_end..],
        );
        let bytes = &mut self.bytes[self.bytes_end..];
        let (mut ids_end, mut tags_end, mut bytes_end) = (0, 0, 0);
        let model = &mut self.model;
        let (mut last, mut before, mut access) = (model.last, model.before, model.access);
        let (guesses, slots) = (&mut model.next, &mut model.slots[..]);

        let block = |word: Option<&u64>| match word {
            Some(&w) if record::tag(w) == record::BLOCK => known.get((w & 0xffff_ffff) as usize),
            _ => None,
        };
        let mut current = block(words.first());
        let mut at = 0;
        while let Some(Known { shape, block: code }) = current {
            if taken.steps >= most || taken.instructions >= wanted {
                break;
            }
            let n = usize::from(shape.records);
            let next = block(words.get(at + 1 + n));
            let (Some(records), Some(slots), Some(tags), true) = (
                words.get(at + 1..at + 1 + n),
                slots.get_mut(shape.slots as usize..shape.end()),
                tags.get_mut(tags_end..tags_end + n),
                next.is_some(),
            ) else {
                break;
            };
            if records.iter().any(|r| record::tag(*r) != record::MEM) {
                break;
            }

            let guess = &mut guesses[guess_at(last, before)];
            // No branch: wrong guesses are unpredictable.
            let miss = *guess != shape.number;
            *guess = shape.number;
            (before, last) = (last, shape.number);
            misses[taken.steps as usize] = u8::from(miss);
            ids[ids_end..ids_end + 4].copy_from_slice(&shape.number.to_le_bytes());
            ids_end += 4 * usize::from(miss);

            let mut previous = access & ADDRESS_MASK;
            let mut changed = 0;
            for ((slot, &word), tag) in slots.iter_mut().zip(records).zip(tags) {
                changed |= slot.word ^ word;
                let (value, code, width) = difference(slot, word, previous);
                *tag = code;
                bytes[bytes_end..bytes_end + 8].copy_from_slice(&value.to_le_bytes());
                bytes_end += width;
                slot.learn(word, previous);
                previous = word;
            }
            access = previous;
            tags_end += n;

            taken.instructions += if changed >> 48 == 0 {
                u64::from(shape.instructions)
            } else {
                instructions_of(code, shape, records)
            };
            taken.steps += 1;
            taken.ops += u64::from(shape.ops);
            taken.markers += u64::from(shape.markers);
            at += 1 + n;
            current = next;
        }
        (model.last, model.before, model.access) = (last, before, access);
        self.named += taken.steps as usize;
        self.ids_end += ids_end;
        self.tags_end += tags_end;
        self.bytes_end += bytes_end;
        self.steps += taken.steps;
        self.instructions += taken.instructions;
        self.ops += taken.ops;
        if taken.steps > 0 {
            self.next = current.map(|next| next.shape.number);
        }
        (at, taken)
    }

    /// Appends an execution of `block` that sent these records (fewer than 65,536) and continued at block `next`.
    /// Returns its instructions.
    pub fn step(
        &mut self,
        block: &Block,
        shape: &Shape,
        records: &[u64],
        next: Option<u32>,
    ) -> u64 {
        self.name(shape.number);
        let mut instructions = u64::from(shape.instructions);
        if records.len() == usize::from(shape.records) {
            if self.accesses(shape, records) >> 48 != 0 {
                instructions = instructions_of(block, shape, records);
            }
        } else {
            instructions = self.irregular(block, shape, records);
        }
        if next.is_none() {
            self.note(BREAK, &[]);
        }
        self.next = next;
        self.steps += 1;
        self.instructions += instructions;
        self.ops += u64::from(shape.ops);
        instructions
    }

    #[inline(always)]
    fn name(&mut self, number: u32) {
        let guess = self.model.guess();
        let miss = *guess != number;
        *guess = number;
        self.model.advance(number);
        room(&mut self.misses, self.named + 1);
        self.misses[self.named] = u8::from(miss);
        self.named += 1;
        // No branch: wrong guesses are unpredictable.
        let at = self.ids_end;
        room(&mut self.ids, at + 4);
        self.ids[at..at + 4].copy_from_slice(&number.to_le_bytes());
        self.ids_end = at + 4 * usize::from(miss);
    }

    /// Writes the records of a complete execution. Returns the bits that differ from the last one's, including the
    /// upper bits of records.
    #[inline(always)]
    fn accesses(&mut self, shape: &Shape, records: &[u64]) -> u64 {
        let n = records.len();
        room(&mut self.tags, self.tags_end + n);
        room(&mut self.bytes, self.bytes_end + 8 * n);
        let tags = &mut self.tags[self.tags_end..][..n];
        let bytes = &mut self.bytes[..];
        let mut before = self.model.address();
        let mut at = self.bytes_end;
        let mut changed = 0;
        let slots = self.model.slots(shape);
        for ((slot, &word), tag) in slots.iter_mut().zip(records).zip(tags) {
            changed |= slot.word ^ word;
            let (value, code, width) = difference(slot, word, before);
            *tag = code;
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            at += width;
            slot.learn(word, before);
            before = word;
        }
        self.model.access = before;
        self.bytes_end = at;
        self.tags_end += n;
        changed
    }

    #[cold]
    fn irregular(&mut self, block: &Block, shape: &Shape, records: &[u64]) -> u64 {
        let mut values = vec![records.len() as u64];
        let mut before = self.model.address();
        for &record in records {
            let difference = (record.wrapping_sub(before) << 16) as i64 >> 16;
            values.extend([record >> 48, zigzag(difference as u64)]);
            before = record;
        }
        self.note(IRREGULAR, &values);
        instructions_of(block, shape, records)
    }

    fn note(&mut self, code: u64, values: &[u64]) {
        self.mark_count += 1;
        put_varint(&mut self.marks, u64::from(self.steps));
        put_varint(&mut self.marks, code);
        for &value in values {
            put_varint(&mut self.marks, value);
        }
    }

    /// In the next step, the thread meets the change with this ticket before the access of this instruction.
    pub fn met_within(&mut self, instruction: u16, ticket: u64) {
        self.note(MET_WITHIN, &[u64::from(instruction), ticket]);
    }

    /// The next step ends with this query.
    pub fn query(&mut self, query: ShortcutQuery) {
        self.mark(&Mark::End(End::Query(query)));
    }

    /// Appends a mark after the steps so far. A query is part of a step instead.
    pub fn mark(&mut self, mark: &Mark) {
        put_mark(&mut self.marks, u64::from(self.steps), mark);
        self.mark_count += 1;
    }

    /// Takes the part so far, and begins a new one.
    pub fn take(&mut self) -> StepPart {
        if let Some(next) = self.next.take() {
            self.name(next);
        }
        // One more than steps, because the block after the last step is guessed, too.
        let named = self.steps as usize + 1;
        room(&mut self.misses, named);
        self.misses[self.named..named].fill(0);
        let misses = self.misses[..named].chunks(8);
        let misses = misses.map(|m| m.iter().rfold(0, |bits, m| bits << 1 | m));
        let tags = self.tags[..self.tags_end].chunks(2);
        let tags = tags.map(|t| t[0] | t.get(1).map_or(0, |t| t << 4));
        let part = StepPart {
            columns: [
                misses.collect(),
                self.ids[..self.ids_end].to_vec(),
                tags.collect(),
                self.bytes[..self.bytes_end].to_vec(),
                std::mem::take(&mut self.marks),
            ],
            steps: self.steps,
            mark_count: self.mark_count,
            records: self.tags_end as u32,
            instructions: self.instructions,
            ops: self.ops,
        };
        self.model.reset();
        (self.named, self.ids_end) = (0, 0);
        (self.tags_end, self.bytes_end) = (0, 0);
        (self.mark_count, self.steps) = (0, 0);
        (self.instructions, self.ops) = (0, 0);
        part
    }
}

/// Instructions of an execution that may have been cut short.
#[cold]
fn instructions_of(block: &Block, shape: &Shape, records: &[u64]) -> u64 {
    if block.completed(records) {
        return u64::from(shape.instructions);
    }
    let mut ops = Vec::new();
    block.expand(records, None, &mut Registers::default(), &mut ops);
    ops.iter().map(|o| u64::from(o.insns)).sum()
}
