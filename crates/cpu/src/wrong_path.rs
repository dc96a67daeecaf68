//! State from which a core reconstructs wrong paths.
//!
//! A program's stream holds the right path alone. The core learns the code of wrong paths and the
//! addresses of their loads from earlier executions. Register values are unknown. Instead, an
//! address is predicted in three ways:
//!
//! - An instruction whose inputs have the same [`Origin`] as before accesses the same address.
//! - An instruction that accesses memory at a fixed distance from a pointer does so from any
//!   pointer.
//! - Where the program's memory can be read, an instruction that accesses memory at a fixed distance
//!   from a loaded word does so from the word that the memory holds.
//!
//! `core/wrong.rs` runs the wrong path.

mod addresses;
mod ahead;
mod code;
mod pointers;
mod values;

use pagewalk_stream::{Op, OpClass, ProgramMemory, flags};
use pagewalk_structures::Ring;
use pagewalk_units::Asid;

use addresses::Addresses;
pub(crate) use addresses::Known;
pub(crate) use ahead::Ahead;
use code::Code;
pub(crate) use code::{Input, Learned};
use pointers::Pointers;
use values::Values;

use crate::WrongPathSpec;

pagewalk_stats::counters! {
    /// Counters of a core's wrong paths. They are not among the instructions, loads and branches of
    /// the program. Their translations and cache accesses are among those that MMU and caches
    /// count, as in hardware.
    pub struct WrongPathStats {
        episodes: "mispredictions", "Mispredicted branches whose wrong path was known";
        unknown_episodes: "mispredictions", "Mispredicted branches whose wrong path had never been executed or was forgotten";
        instructions: "instructions", "Instructions dispatched on wrong paths";
        loads: "loads", "Loads on wrong paths that went to the MMU and the caches";
        converged_loads: "loads", "Those of loads whose address is that of the same load on the right path, with equal inputs";
        constant_loads: "loads", "Those of loads that have no inputs, and whose address was the same in their last executions";
        remembered_loads: "loads", "Those of loads whose address was recorded when their inputs had the same origin, for example a pointer that was dereferenced before";
        pointer_loads: "loads", "Those of loads whose address lies at a fixed distance from a pointer that was read from the program's memory";
        unknown_loads: "loads", "Loads on wrong paths whose address is unknown; they access nothing";
        late_loads: "loads", "Loads on wrong paths whose inputs were ready only after the branch was resolved; they access nothing";
        unmapped_loads: "loads", "Loads on wrong paths to unmapped pages; they access nothing";
        l1d_tlb_misses: "translations", "Misses of the first-level data TLB by loads on wrong paths, included in mmu.l1d_misses";
        walks: "walks", "Page walks of loads on wrong paths, included in mmu.walks";
    }
}

/// Fingerprint of the computation of a value, down to the words of memory that it started from.
/// Equal origins mean the same instructions on the same inputs. 0: unknown.
pub(crate) type Origin = u64;

/// Origin of a value that no op made: constants, and values made too long ago.
pub(crate) const NOWHERE: Origin = 1;

/// Ops that are remembered: more than the largest distance to a producer.
const HISTORY: usize = 1 << 17;
/// Entries of the table of each instruction's last execution.
const LAST: usize = 1 << 15;
/// Entries of the table of memory words whose origin is known.
const STORED: usize = 1 << 16;
/// Calls that are remembered.
const CALLS: usize = 64;

/// An executed op of the right path or of a wrong path.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Name of the instruction: see [`WrongPath::name`].
    name: u64,
    origin: Origin,
    /// Address of a load of a word of 8 bytes; else 0.
    word: u64,
}

/// Return stack: addresses of calls, the youngest overwriting the oldest.
#[derive(Clone, Copy)]
pub(crate) struct Calls {
    at: [u64; CALLS],
    top: usize,
}

impl Calls {
    fn push(&mut self, call: u64) {
        self.top = (self.top + 1) % CALLS;
        self.at[self.top] = call;
    }
    fn pop(&mut self) -> u64 {
        let call = std::mem::take(&mut self.at[self.top]);
        self.top = (self.top + CALLS - 1) % CALLS;
        call
    }
}

/// Producer of an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Producer {
    /// No op, or one long ago.
    Nobody,
    /// The op of this number.
    Op(u64),
    /// An op that is no longer remembered.
    Forgotten,
}

/// The learned state and the counters of a core.
pub(crate) struct WrongPath {
    code: Code,
    addresses: Addresses,
    pointers: Pointers,
    values: Values,
    /// Memory of the process whose ops are learned, if it can be read.
    pub memory: Option<ProgramMemory>,
    history: Ring<Seen>,
    /// Name of an instruction and number of its latest op.
    last: Box<[(u64, u64)]>,
    /// Address of a memory word and origin of the value stored there.
    stored: Box<[(u64, Origin)]>,
    /// Ops learned.
    pub seen: u64,
    /// Number of this thread's first op.
    floor: u64,
    /// Instruction of the previous op, and that op's index among the instruction's ops.
    before: (u64, u64),
    calls: Calls,
    /// Address space of the ops, in the upper bits.
    space: u64,
    /// Position up to which the ops of [`crate::Core::run`] are learned.
    pub until: usize,
    /// The right path after the branch.
    pub ahead: Ahead,
    names: Vec<u64>,
    /// Entries of `last` that the wrong path has overwritten.
    undo: Vec<(usize, (u64, u64))>,
    /// Counters.
    pub stats: WrongPathStats,
}

/// Mixes `b` into `a`; never 0.
#[inline]
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let x = (a.rotate_left(23) ^ b).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (x ^ x >> 29) | 1 << 63
}

impl WrongPath {
    /// Creates an empty state. `spec` was checked.
    pub fn new(spec: &WrongPathSpec) -> Self {
        WrongPath {
            code: Code::new(spec.blocks as usize),
            addresses: Addresses::new(spec.addresses as usize),
            pointers: Pointers::new(),
            values: Values::new(),
            memory: None,
            history: Ring::new(HISTORY, Seen::default()),
            last: vec![(0, 0); LAST].into(),
            stored: vec![(0, 0); STORED].into(),
            seen: 1,
            floor: 1,
            before: (0, 0),
            calls: Calls {
                at: [0; CALLS],
                top: 0,
            },
            space: 0,
            until: 0,
            ahead: Ahead::new(),
            names: Vec::new(),
            undo: Vec::new(),
            stats: WrongPathStats::default(),
        }
    }

    /// Switches to another thread, which has its own registers and calls.
    pub fn switch(&mut self) {
        self.floor = self.seen;
        self.calls.at = [0; CALLS];
        self.before = (0, 0);
        self.code.leave();
    }

    /// Begins a run from `at` in this address space, whose ops are to be learned.
    pub fn begin(&mut self, asid: Asid, at: usize) {
        self.enter(asid);
        self.until = at;
    }

    /// Learns the ops that have run up to `at`.
    pub fn end(&mut self, ops: &[Op], at: usize) {
        self.learn(&ops[self.until..at]);
    }

    /// Sets the address space of the next ops.
    pub fn enter(&mut self, asid: Asid) {
        self.space = u64::from(asid.0) << 50;
    }

    /// Name of an op: its instruction and its index among the instruction's ops. `before`: the
    /// previous op's instruction and index, which are replaced by this op's.
    #[inline]
    fn name(&self, pc: u64, before: &mut (u64, u64)) -> u64 {
        let instruction = (pc ^ self.space) << 3;
        *before = match *before {
            (b, n) if b == instruction => (b, n + 1),
            _ => (instruction, 0),
        };
        instruction | before.1.min(7)
    }

    /// Origin of the result of producer `k` of the next op.
    #[inline]
    fn origin(&self, op: &Op, k: usize) -> Origin {
        let d = u64::from(op.dep[k]);
        if d == 0 || d > self.seen - self.floor {
            return NOWHERE;
        }
        let made = self.history.get((self.seen - d) as usize).origin;
        made + (u64::from(op.dep_latency[k]) << 1)
    }

    /// Key of the word at `va`.
    #[inline]
    fn word(&self, va: u64) -> u64 {
        va ^ self.space << 8
    }

    /// Origin of the word at `va`.
    #[inline]
    fn loaded(&self, va: u64) -> Origin {
        let word = self.word(va);
        let (at, origin) = self.stored[addresses::hash(word) as usize % STORED];
        if at == word { origin } else { mix(word, 3) }
    }

    /// Learns ops of the right path, in program order.
    pub fn learn(&mut self, ops: &[Op]) {
        for op in ops {
            self.learn_op(op);
        }
    }

    /// Learns one op.
    #[inline]
    fn learn_op(&mut self, op: &Op) {
        let mut before = self.before;
        let name = self.name(op.pc, &mut before);
        self.before = before;
        let from = [self.origin(op, 0), self.origin(op, 1)];
        let (seen, floor, history) = (self.seen, self.floor, &self.history);
        self.code.learn(op, name, |d| {
            let d = u64::from(d);
            (d <= seen - floor).then(|| history.get((seen - d) as usize).name)
        });
        let origin = match op.kind {
            // Without inputs made by an op, the result may differ each time, as that of a counter.
            OpClass::Compute if from == [NOWHERE; 2] => mix(name, self.seen),
            OpClass::Compute | OpClass::Query => result(name, from, op.latency),
            OpClass::Load => {
                self.learn_value(name, op);
                self.learn_address(name, from, op.va);
                self.loaded(op.va)
            }
            OpClass::Store => {
                if from[0] != NOWHERE {
                    let by = (name, from[0]);
                    self.pointers.learn(&mut self.addresses, by, op.va, true);
                }
                // A value that no op made may be anything.
                let data = match from[1] {
                    NOWHERE => mix(name, self.seen),
                    made => made,
                };
                self.store(op.va, data);
                NOWHERE
            }
            OpClass::Branch | OpClass::Prefetch | OpClass::Flush => NOWHERE,
        };
        let word = word_of(op, op.va);
        self.history
            .set(self.seen as usize, Seen { name, origin, word });
        self.last[addresses::hash(name) as usize % LAST] = (name, self.seen);
        self.seen += 1;
        if op.kind == OpClass::Branch {
            let taken = op.flags & flags::TAKEN != 0;
            match after(name, op, taken, op.va, &mut self.calls) {
                Some(key) => self.code.enter(key),
                None => self.code.leave(),
            }
        }
    }

    /// Learns that a load with inputs of these origins has accessed `va`.
    #[inline]
    fn learn_address(&mut self, name: u64, from: [Origin; 2], va: u64) {
        let new = self.code.remembers() || self.seen.is_multiple_of(code::TRIED);
        let mut before = false;
        if let Some(origin) = single(from) {
            let by = (name, origin);
            let right;
            (before, right) = self.pointers.learn(&mut self.addresses, by, va, new);
            if right {
                return self.code.seen(true);
            }
        }
        before |= self.addresses.learn(address(name, from), va, new);
        self.code.seen(before);
    }

    /// Learns the distance of a load's address from the word that its only producer has loaded.
    #[inline]
    fn learn_value(&mut self, name: u64, op: &Op) {
        let Some(memory) = &self.memory else {
            return;
        };
        let (d, 0) = (u64::from(op.dep[0]), op.dep[1]) else {
            return;
        };
        if d == 0 || d > self.seen - self.floor || !self.values.wants(name, self.seen) {
            return;
        }
        let word = self.history.get((self.seen - d) as usize).word;
        if word != 0 {
            let pointer = memory.word(word);
            self.values.learn(name, pointer, op.va);
        }
    }

    /// Learns that a value of this origin is stored at `va`.
    #[inline]
    fn store(&mut self, va: u64, data: Origin) {
        let word = self.word(va);
        let slot = addresses::hash(word) as usize % STORED;
        let (other, was) = self.stored[slot];
        if other != word && other != 0 {
            // The entry of the other word is lost: its pointer remains known by the word's address.
            self.pointers.copy(&mut self.addresses, was, mix(other, 3));
        }
        self.stored[slot] = (word, data);
    }

    /// The calls that have not returned yet.
    pub fn calls(&self) -> Calls {
        self.calls
    }

    /// Name of the branch `op`, which is learned next, and the naming state for
    /// [`WrongPath::look_ahead`].
    pub fn branch(&self, op: &Op) -> (u64, (u64, u64)) {
        let mut before = self.before;
        (self.name(op.pc, &mut before), before)
    }

    /// Sets the ops of the right path after the branch.
    pub fn look_ahead(&mut self, ops: &[Op], before: &mut (u64, u64)) {
        let mut names = std::mem::take(&mut self.names);
        names.clear();
        names.extend(ops.iter().map(|op| self.name(op.pc, before)));
        self.ahead.set(ops, &names);
        self.names = names;
    }

    /// The block of this key, if it is known.
    pub fn block(&self, key: u64) -> Option<usize> {
        self.code.find(key)
    }

    /// Op `k` of a block.
    pub fn op(&self, block: usize, k: usize) -> Option<Learned> {
        self.code.op(block, k)
    }

    /// Producer of `input` of the op with number `n`: the latest execution of any instruction that
    /// has produced this input before.
    pub fn producer(&self, input: &Input, n: u64) -> Producer {
        if input.inside > 0 {
            return Producer::Op(n - u64::from(input.inside));
        }
        let mut youngest = 0;
        let mut forgotten = false;
        for &name in input.names.iter().filter(|&&n| n != 0) {
            let (last, number) = self.last[addresses::hash(name) as usize % LAST];
            if last == name {
                youngest = youngest.max(number);
            } else {
                forgotten = true;
            }
        }
        if youngest >= self.floor && n - youngest <= u64::from(u16::MAX) {
            Producer::Op(youngest)
        } else if forgotten {
            Producer::Forgotten
        } else {
            Producer::Nobody
        }
    }

    /// Origin of an op's result, on the right path or on this wrong path.
    pub fn made(&self, number: u64) -> Origin {
        self.history.get(number as usize).origin
    }

    /// Address of a load whose only input op `producer` made, by the word of memory that it loaded.
    pub fn pointed(&self, name: u64, producer: u64) -> Option<u64> {
        let word = self.history.get(producer as usize).word;
        let bytes = self.values.find(name)?;
        let pointer = (word != 0).then(|| self.memory.as_ref()?.word(word))??;
        Some(pointer.wrapping_add(bytes))
    }

    /// Address of a load, if it is known.
    pub fn address(&self, name: u64, from: [Origin; 2]) -> Option<(u64, Known)> {
        let pointer = single(from).and_then(|o| self.pointers.find(&self.addresses, name, o));
        match pointer {
            Some(va) => Some((va, Known::Remembered)),
            None => self
                .addresses
                .find(address(name, from), from == [NOWHERE; 2]),
        }
    }

    /// Records the result of op `n` of a wrong path, and the word that it loaded.
    /// [`WrongPath::leave`] undoes it.
    pub fn record_result(&mut self, n: u64, name: u64, origin: Origin, word: u64) {
        self.history.set(n as usize, Seen { name, origin, word });
        let slot = addresses::hash(name) as usize % LAST;
        self.undo.push((slot, self.last[slot]));
        self.last[slot] = (name, n);
    }

    /// Origin of the value that a wrong path's load reads at `va`.
    pub fn loads(&self, va: u64) -> Origin {
        self.loaded(va)
    }

    /// Ends the wrong path: restores the last executions of the right path.
    pub fn leave(&mut self) {
        while let Some((slot, before)) = self.undo.pop() {
            self.last[slot] = before;
        }
    }
}

/// Address of the word of 8 bytes that `op` loads from `va`; else 0.
#[inline]
pub(crate) fn word_of(op: &Op, va: u64) -> u64 {
    match op.kind {
        OpClass::Load if op.size == 8 => va,
        _ => 0,
    }
}

/// Origin of a result.
#[inline]
pub(crate) fn result(name: u64, from: [Origin; 2], latency: u8) -> Origin {
    mix(mix(mix(name, from[0]), from[1]), u64::from(latency))
}

/// The origin of the only input that an op made, if there is exactly one.
#[inline]
fn single(from: [Origin; 2]) -> Option<Origin> {
    match from {
        [NOWHERE, NOWHERE] => None,
        [origin, NOWHERE] | [NOWHERE, origin] => Some(origin),
        _ => None,
    }
}

/// Key under which an address is remembered.
#[inline]
fn address(name: u64, from: [Origin; 2]) -> u64 {
    mix(mix(name, from[0]), from[1] ^ 5)
}

/// Key of the block after the branch `op`, named `name`, if it is `taken` or goes to `to`. `None`
/// if the target is unknown.
pub(crate) fn after(name: u64, op: &Op, taken: bool, to: u64, calls: &mut Calls) -> Option<u64> {
    let bits = op.flags;
    let way = if bits & flags::CONDITIONAL != 0 {
        u64::from(taken)
    } else if bits & flags::RETURN != 0 {
        calls.pop()
    } else if bits & flags::INDIRECT != 0 {
        to
    } else {
        2
    };
    if bits & flags::CALL != 0 {
        calls.push(op.pc);
    }
    let goes = way != 0 || bits & flags::CONDITIONAL != 0;
    goes.then(|| mix(name, way))
}
