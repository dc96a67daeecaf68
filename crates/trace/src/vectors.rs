//! Basic-block vectors of a trace, for each stretch of its stream.
//!
//! As in SimPoint 3.0 (Hamerly, Perelman, Lau and Calder, JILP 2005), a vector holds the share of a stretch's
//! instructions in each basic block. Vectors are projected to 15 dimensions at random. A block's row of the projection
//! is a hash of its address, so that no table holds all blocks of a program.

use std::path::Path;

use pagewalk_stream::{End, Error, Op, OpClass, ThreadId, flags};
use pagewalk_units::rng;
use rand::RngExt;
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::Serialize;

use crate::open::{OpenOptions, open_trace};
use crate::record::drive;

/// Dimensions of a projected vector, as in SimPoint.
pub const DIMENSIONS: usize = 15;
/// Most stretches of a trace: vectors of more would fill the host's memory.
pub const MOST_STRETCHES: usize = 100_000;

/// Basic-block vectors of a trace.
///
/// They are in the order of its stream: the batches of its threads in turn.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct BlockVectors {
    /// Name of the program.
    pub name: String,
    /// Instructions of all threads.
    pub instructions: u64,
    /// The program's word for a request, if it counts any.
    pub request: Option<String>,
    /// Stretches of the required length, but for the last.
    pub stretches: Vec<Stretch>,
}

/// Consecutive instructions of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Stretch {
    /// Number of instructions.
    pub instructions: u64,
    /// Requests that end in it, of a program that marks their ends.
    pub requests: u64,
    /// Shares of the instructions by basic block, projected.
    pub vector: [f64; DIMENSIONS],
}

/// The vectors of the trace at `path`, for stretches of `length` instructions, in one pass.
///
/// `go_on` is called with the instructions so far and, if known, those of the whole trace. If it returns false, the
/// result is `None`.
///
/// # Errors
/// A fault of the trace, or more than [`MOST_STRETCHES`].
///
/// # Panics
/// If `length` is 0.
pub fn block_vectors(
    path: &Path,
    options: &OpenOptions,
    length: u64,
    seed: u64,
    go_on: &mut dyn FnMut(u64, Option<u64>) -> bool,
) -> Result<Option<BlockVectors>, Error> {
    assert!(length > 0, "a stretch without instructions");
    let mut program = open_trace(path, options)?;
    let facts = program.facts();
    let mut collector = Collector::new(length, seed);
    let mut wanted = true;
    drive(program.as_mut(), &mut |_, thread, batch, end| {
        collector.ops(thread, &batch.ops);
        if *end == End::Exit {
            collector.open.remove(&thread);
        }
        if collector.too_many {
            return Err(Error::refused(format!(
                "stretches of {length} instructions are more than {MOST_STRETCHES} of this trace; give a larger --length"
            )));
        }
        wanted = go_on(collector.instructions, facts.instructions);
        Ok(wanted)
    })?;
    Ok(wanted.then(|| BlockVectors {
        name: facts.name,
        instructions: collector.instructions,
        request: facts.request,
        stretches: collector.finish(),
    }))
}

/// Blocks of a stretch whose instructions are counted before projection; a power of two.
const SLOTS: usize = 4096;

/// A block, and its instructions that are not yet projected.
#[derive(Clone, Copy, Default)]
struct BlockCount {
    block: u64,
    instructions: u64,
}

/// Counts the instructions of blocks, and projects them to vectors.
struct Collector {
    length: u64,
    /// Key of the projection's random rows.
    key: u64,
    /// Current block of each thread: the address of its first op.
    open: FxHashMap<ThreadId, u64>,
    /// Direct-mapped counters: most blocks recur soon. A block is projected when another one takes its slot.
    slots: Box<[BlockCount; SLOTS]>,
    /// Slots in use.
    taken: Vec<usize>,
    sums: [f64; DIMENSIONS],
    /// Instructions that still fit in the current stretch.
    room: u64,
    requests: u64,
    /// Instructions of all stretches so far.
    instructions: u64,
    stretches: Vec<Stretch>,
    too_many: bool,
}

impl Collector {
    fn new(length: u64, seed: u64) -> Self {
        Collector {
            length,
            key: rng(seed, "trace.vectors").random(),
            open: FxHashMap::default(),
            slots: Box::new([BlockCount::default(); SLOTS]),
            taken: Vec::with_capacity(SLOTS),
            sums: [0.0; DIMENSIONS],
            room: length,
            requests: 0,
            instructions: 0,
            stretches: Vec::new(),
            too_many: false,
        }
    }

    /// Adds ops of a thread.
    fn ops(&mut self, thread: ThreadId, ops: &[Op]) {
        let mut block = self.open.get(&thread).copied();
        let ends = |op: &Op| op.kind == OpClass::Branch || op.flags & flags::REQUEST != 0;
        for part in ops.split_inclusive(ends) {
            let (first, last) = (part[0], part[part.len() - 1]);
            let now = *block.get_or_insert(first.pc);
            self.add(now, part.iter().map(|o| u64::from(o.insns)).sum());
            if last.flags & flags::REQUEST != 0 {
                self.requests += 1;
            }
            if last.kind == OpClass::Branch {
                block = None;
            }
        }
        match block {
            Some(block) => drop(self.open.insert(thread, block)),
            None => drop(self.open.remove(&thread)),
        }
    }

    /// Adds instructions of a block. The stretch ends at the first instruction that does not fit.
    #[inline]
    fn add(&mut self, block: u64, mut instructions: u64) {
        self.instructions += instructions;
        while instructions > self.room && !self.too_many {
            let fits = self.room;
            self.count(block, fits);
            self.close();
            instructions -= fits;
        }
        self.count(block, instructions);
    }

    #[inline]
    fn count(&mut self, block: u64, instructions: u64) {
        if instructions == 0 {
            return;
        }
        let at = (block.wrapping_mul(GOLDEN) >> (64 - SLOTS.ilog2())) as usize;
        let slot = self.slots[at];
        if slot.block != block || slot.instructions == 0 {
            if slot.instructions > 0 {
                self.project(slot);
            } else {
                self.taken.push(at);
            }
            self.slots[at] = BlockCount {
                block,
                instructions: 0,
            };
        }
        self.slots[at].instructions += instructions;
        self.room = self.room.saturating_sub(instructions);
    }

    fn project(&mut self, slot: BlockCount) {
        let mut state = self.key ^ slot.block;
        for sum in &mut self.sums {
            *sum += slot.instructions as f64 * uniform(&mut state);
        }
    }

    /// Ends the current stretch.
    fn close(&mut self) {
        let mut taken = std::mem::take(&mut self.taken);
        for at in taken.drain(..) {
            let slot = std::mem::take(&mut self.slots[at]);
            self.project(slot);
        }
        self.taken = taken;
        let instructions = self.length - self.room;
        let vector = std::mem::take(&mut self.sums);
        self.too_many = self.stretches.len() == MOST_STRETCHES;
        if !self.too_many {
            self.stretches.push(Stretch {
                instructions,
                requests: std::mem::take(&mut self.requests),
                vector: vector.map(|sum| sum / instructions as f64),
            });
        }
        self.room = self.length;
    }

    fn finish(mut self) -> Vec<Stretch> {
        if self.room < self.length {
            self.close();
        }
        self.stretches
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A number from -1 to 1 by SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(GOLDEN);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    (z >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pagewalk_stream::{Op, OpClass, flags};
    use proptest::prelude::*;

    use super::{Collector, DIMENSIONS, GOLDEN, MOST_STRETCHES, Stretch, uniform};

    /// A block of `ops` ops that ends with a branch.
    fn block(pc: u64, ops: u64, insns: u16) -> Vec<Op> {
        let op = |n| Op {
            pc: pc + 4 * n,
            insns,
            kind: if n + 1 == ops {
                OpClass::Branch
            } else {
                OpClass::Compute
            },
            ..Op::default()
        };
        (0..ops).map(op).collect()
    }

    fn vectors(length: u64, seed: u64, batches: &[(u32, Vec<Op>)]) -> Vec<Stretch> {
        let mut collector = Collector::new(length, seed);
        for (thread, ops) in batches {
            collector.ops(*thread, ops);
        }
        collector.finish()
    }

    fn distance(a: &Stretch, b: &Stretch) -> f64 {
        let squares = a.vector.iter().zip(b.vector).map(|(x, y)| (x - y).powi(2));
        squares.sum::<f64>().sqrt()
    }

    /// The vectors by definition: shares of blocks, times rows.
    fn defined(length: u64, seed: u64, batches: &[(u32, Vec<Op>)]) -> Vec<[f64; DIMENSIONS]> {
        let key = Collector::new(1, seed).key;
        let mut each = Vec::new();
        let mut open = std::collections::BTreeMap::new();
        for (thread, ops) in batches {
            for op in ops {
                let block = *open.entry(thread).or_insert(op.pc);
                each.extend((0..op.insns).map(|_| block));
                if op.kind == OpClass::Branch {
                    open.remove(thread);
                }
            }
        }
        let vector = |blocks: &[u64]| {
            let mut sums = [0.0; DIMENSIONS];
            for block in blocks {
                let mut state = key ^ block;
                sums = sums.map(|s| s + uniform(&mut state) / blocks.len() as f64);
            }
            sums
        };
        each.chunks(length as usize).map(vector).collect()
    }

    #[test]
    fn two_phases_are_two_places() {
        let phase = |pc, times| (0, block(pc, 5, 2).repeat(times));
        let batches = [phase(0x1000, 1000), phase(0x2000, 1000), phase(0x1000, 500)];
        let found = vectors(1000, 7, &batches);
        assert_eq!(found.len(), 25);
        for (n, stretch) in found.iter().enumerate() {
            let second = (10..20).contains(&n);
            let (same, other) = if second { (10, 0) } else { (0, 10) };
            assert!(distance(stretch, &found[same]) < 1e-12, "{n}");
            assert!(distance(stretch, &found[other]) > 0.5, "{n}");
        }
    }

    #[test]
    fn a_seed_and_an_address_decide() {
        let batches = [(0, [block(0x1000, 3, 1), block(0x2000, 4, 1)].concat())];
        assert_eq!(vectors(5, 1, &batches), vectors(5, 1, &batches));
        assert_ne!(vectors(5, 1, &batches), vectors(5, 2, &batches));
        let moved = [(0, [block(0x1000, 3, 1), block(0x2008, 4, 1)].concat())];
        assert_ne!(vectors(5, 1, &batches), vectors(5, 1, &moved));
    }

    /// The projection keeps distances as uniform rows do: each coordinate of a row has variance 1/3, and no direction
    /// is preferred.
    #[test]
    fn rows_are_uniform_and_independent() {
        let rows: Vec<[f64; DIMENSIONS]> = (0..20_000u64)
            .map(|n| {
                let mut state = GOLDEN ^ (0x40_1000 + 4 * n);
                [(); DIMENSIONS].map(|()| uniform(&mut state))
            })
            .collect();
        let mean = |f: &dyn Fn(&[f64; DIMENSIONS]) -> f64| {
            rows.iter().map(f).sum::<f64>() / rows.len() as f64
        };
        for i in 0..DIMENSIONS {
            assert!(mean(&|r| r[i]).abs() < 0.02, "{i}");
            for j in 0..=i {
                let expected = if i == j { 1.0 / 3.0 } else { 0.0 };
                assert!((mean(&|r| r[i] * r[j]) - expected).abs() < 0.015, "{i} {j}");
            }
        }
        assert!(rows.iter().flatten().all(|x| (-1.0..1.0).contains(x)));
    }

    #[test]
    fn a_request_counts_where_its_last_instruction_is() {
        let mut ops = block(0x1000, 30, 1);
        for at in [9, 10, 29] {
            ops[at].flags = flags::REQUEST;
        }
        let found = vectors(10, 1, &[(0, ops)]);
        let requests: Vec<_> = found.iter().map(|s| s.requests).collect();
        assert_eq!(requests, [1, 1, 1]);
        // A request's end does not end a block.
        assert!(distance(&found[0], &found[2]) < 1e-12);
    }

    #[test]
    fn more_stretches_than_there_may_be_are_not_kept() {
        let mut collector = Collector::new(1, 1);
        collector.ops(0, &block(0x1000, 2, u16::MAX));
        assert!(collector.too_many);
        assert_eq!(collector.stretches.len(), MOST_STRETCHES);
    }

    #[test]
    fn a_trace_that_is_not_there_is_an_error() {
        let path = Path::new("/nowhere/t.pwt");
        let error = super::block_vectors(path, &Default::default(), 1, 1, &mut |_, _| true);
        assert!(error.unwrap_err().to_string().contains("/nowhere/t.pwt"));
    }

    proptest! {
        /// Any blocks in any threads, of any size.
        #[test]
        fn stretches_are_the_trace_and_vectors_as_defined(
            blocks in prop::collection::vec((0u32..3, 0u64..9000, 1u64..6, 0u16..9), 1..200),
            cut in 1usize..7,
            length in 1u64..400,
            seed in any::<u64>(),
        ) {
            // Batches end within blocks.
            let mut batches = Vec::new();
            for (thread, pc, ops, insns) in blocks {
                let ops = block(pc << 4, ops, insns);
                batches.extend(ops.chunks(cut).map(|part| (thread, part.to_vec())));
            }
            let all: u64 = batches.iter().flat_map(|(_, o)| o).map(|o| u64::from(o.insns)).sum();
            let found = vectors(length, seed, &batches);
            prop_assert_eq!(found.iter().map(|s| s.instructions).sum::<u64>(), all);
            let full = &found[..found.len().saturating_sub(1)];
            prop_assert!(full.iter().all(|s| s.instructions == length));
            let expected = defined(length, seed, &batches);
            prop_assert_eq!(found.len(), expected.len());
            for (stretch, vector) in found.iter().zip(expected) {
                for (a, b) in stretch.vector.iter().zip(vector) {
                    prop_assert!((a - b).abs() < 1e-9);
                }
            }
        }
    }
}
