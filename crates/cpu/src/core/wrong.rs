//! The wrong path of a mispredicted branch, until the branch is resolved.
//!
//! The first block of the wrong path is the code that came after the branch when it last went the
//! other way. The branch predictor selects each further block. The instructions take entries of the
//! reorder buffer and the load queue after the branch, and wait for their producers. None retires,
//! stores do nothing, and nothing is fetched from the instruction cache. A load accesses the MMU
//! and the caches as on the right path, if its address is known, its page is mapped, and its inputs
//! are ready before the branch is resolved.

use pagewalk_memory::{Below, RequestKind};
use pagewalk_mmu::{Fault, Translated, is_mapped};
use pagewalk_stream::{Op, OpClass, ProgramMemory, flags};
use pagewalk_units::{Access, Asid, Cycle, LINE_BYTES, LINE_SHIFT, VirtAddr};

use super::access::bytes;
use super::{Core, CoreContext};
use crate::WrongPathSpec;
use crate::rob::Freed;
use crate::wrong_path::{
    Calls, Input, Known, Learned, NOWHERE, Origin, Producer, WrongPath, WrongPathStats, after,
    result, word_of,
};

/// Slot of an input that arrives too late.
const LATE: u64 = u64::MAX - 1;
/// Slot of an input that is unknown.
const UNKNOWN: u64 = u64::MAX;
/// Most ops of the right path with which a wrong path is compared.
const AHEAD: usize = 1024;

/// Result of an op of a wrong path.
#[derive(Clone, Copy)]
struct Made {
    /// Slot at which the result is ready.
    at: u64,
    /// The op of the right path with the same result, counted from the branch.
    same: Option<usize>,
}

/// State of a wrong path.
struct Path<'a> {
    /// Ops of the right path.
    right: &'a [Op],
    /// Number of the wrong path's first op.
    base: u64,
    /// Next dispatch slot.
    slot: u64,
    /// Slot in which the branch is resolved.
    resolved: u64,
    instructions: u64,
    loads: u64,
    freed: Freed,
    calls: Calls,
    made: Vec<Made>,
}

/// Inputs of an op.
struct Inputs {
    /// Slot at which all are ready.
    at: u64,
    from: [Origin; 2],
    producers: [Producer; 2],
}

/// Source of a load's address on a wrong path.
#[derive(Clone, Copy)]
enum AddressSource {
    Converged,
    Known(Known),
    Pointer,
}

/// Instructions after which the core decides about wrong paths again.
const WINDOW: u64 = 1 << 16;
/// Mispredictions of 1,000 instructions above which the core begins to simulate wrong paths.
const MANY: u64 = 5;
/// Mispredictions of 1,000 instructions up to which it ends that. Less than [`MANY`], so that a
/// program near one of them does not alternate.
const FEW: u64 = 2;

/// Decides if the core simulates wrong paths, by its mispredictions.
pub(super) struct Automatic {
    spec: WrongPathSpec,
    /// Instructions and mispredictions at the last decision.
    last: (u64, u64),
    /// The state while wrong paths are not simulated, if they were before.
    resting: Option<Box<WrongPath>>,
}

impl Core {
    /// Lets mispredictions decide about wrong paths, unless the configuration does. For programs
    /// whose memory can be read.
    pub fn with_wrong_paths_by_need(mut self, spec: &WrongPathSpec) -> Self {
        self.automatic = spec.enabled.is_none().then(|| {
            Box::new(Automatic {
                spec: *spec,
                last: (0, 0),
                resting: None,
            })
        });
        self
    }

    /// Decides about the next window by the last one.
    #[cold]
    fn decide(&mut self) {
        let Some(a) = &mut self.automatic else {
            return;
        };
        let now = (self.rob.count, self.stats.mispredictions);
        let (instructions, mispredictions) = (now.0 - a.last.0, now.1 - a.last.1);
        a.last = now;
        let more_than = |n| 1000 * mispredictions > n * instructions;
        if self.wrong.is_some() && !more_than(FEW) {
            a.resting = self.wrong.take();
        } else if self.wrong.is_none() && more_than(MANY) {
            let resting = a.resting.take();
            let mut w = resting.unwrap_or_else(|| Box::new(WrongPath::new(&a.spec)));
            w.switch();
            self.wrong = Some(w);
        }
    }

    /// Counters of wrong paths; `None` if there can be none.
    pub(super) fn wrong_path_stats(&self) -> Option<WrongPathStats> {
        let resting = self.automatic.as_ref().map(|a| a.resting.as_ref());
        match self.wrong.as_ref().or(resting.flatten()) {
            Some(w) => Some(w.stats),
            None => resting.map(|_| WrongPathStats::default()),
        }
    }

    /// Sets the memory of the process whose ops come next.
    #[inline]
    pub fn see(&mut self, memory: Option<&ProgramMemory>) {
        if let Some(a) = &self.automatic
            && self.rob.count - a.last.0 >= WINDOW
        {
            self.decide();
        }
        if let Some(w) = &mut self.wrong {
            w.memory = memory.cloned();
        }
    }

    /// Learns code and addresses from ops that this core does not run.
    pub fn learn(&mut self, asid: Asid, ops: &[Op]) {
        if let Some(w) = &mut self.wrong {
            w.enter(asid);
            w.learn(ops);
        }
    }

    /// Ops come that this core neither runs nor learns: their results are unknown afterwards.
    pub fn miss_ops(&mut self) {
        if let Some(w) = &mut self.wrong {
            w.switch();
        }
    }

    /// Runs the wrong path of the mispredicted branch `ops[at]`, which is resolved in slot
    /// `resolved`. The front end continues in slot `next`.
    #[cold]
    #[inline(never)]
    pub(super) fn go_wrong<B: Below>(
        &mut self,
        ops: &[Op],
        at: usize,
        resolved: u64,
        context: &mut CoreContext<'_, B>,
    ) {
        let Some(mut w) = self.wrong.take() else {
            return;
        };
        w.learn(&ops[w.until..at]);
        w.until = at;
        let branch = &ops[at];
        let (departed, predicted_target) = self.predictor.depart(branch);
        let (name, mut before) = w.branch(branch);
        let mut calls = w.calls();
        let other_way = branch.flags & flags::TAKEN == 0;
        let goes = after(name, branch, other_way, predicted_target, &mut calls);
        match goes.and_then(|key| w.block(key)) {
            None => w.stats.unknown_episodes += 1,
            Some(block) => {
                w.stats.episodes += 1;
                let right = self.right_path(&mut w, &ops[at + 1..], &mut before);
                let mut path = Path {
                    right,
                    base: w.seen + 1,
                    slot: self.next.real,
                    resolved,
                    instructions: 0,
                    loads: 0,
                    freed: self.rob.cursor(),
                    calls,
                    made: Vec::with_capacity(256),
                };
                self.run_wrong_path(&mut w, &mut path, block, context);
                w.stats.instructions += path.instructions;
                w.leave();
            }
        }
        self.predictor.return_to(departed);
        self.wrong = Some(w);
    }

    /// The ops of the right path that fit into the window after the branch. `before`: the naming
    /// state at the branch ([`WrongPath::branch`]).
    fn right_path<'a>(
        &self,
        w: &mut WrongPath,
        ops: &'a [Op],
        before: &mut (u64, u64),
    ) -> &'a [Op] {
        let mut room = self.rob.size();
        let fits = ops.iter().take(AHEAD).take_while(|op| {
            let fits = room > 0;
            room = room.saturating_sub(u64::from(op.insns));
            fits
        });
        let right = &ops[..fits.count()];
        w.look_ahead(right, before);
        right
    }

    /// Runs the wrong path from `block` until it ends.
    fn run_wrong_path<B: Below>(
        &mut self,
        w: &mut WrongPath,
        path: &mut Path<'_>,
        mut block: usize,
        context: &mut CoreContext<'_, B>,
    ) {
        let mut k = 0;
        while let Some(learned) = w.op(block, k) {
            let op = &learned.op;
            k += 1;
            if op.flags & flags::SERIALISING != 0 || op.kind == OpClass::Query {
                return;
            }
            let Some(slot) = self.dispatch_wrong(op, path) else {
                return;
            };
            self.execute_wrong(w, path, &learned, slot, context);
            if op.kind != OpClass::Branch {
                continue;
            }
            let conditional = op.flags & flags::CONDITIONAL != 0;
            let taken = conditional && self.predictor.predict_wrong_path(op.pc);
            let indirect = op.flags & flags::INDIRECT != 0 && op.flags & flags::RETURN == 0;
            let to = if indirect {
                self.predictor.predict_wrong_path_target(op.pc)
            } else {
                0
            };
            let goes = after(learned.name, op, taken, to, &mut path.calls);
            match goes.and_then(|key| w.block(key)) {
                Some(next) => (block, k) = (next, 0),
                None => return,
            }
        }
    }

    /// Dispatch slot of an op's own instruction; `None` if that is not before the branch is
    /// resolved.
    fn dispatch_wrong(&self, op: &Op, path: &mut Path<'_>) -> Option<u64> {
        let n = u64::from(op.insns);
        if n == 0 {
            return Some(path.slot);
        }
        let mut at = path.slot + n - 1;
        let free = self.rob.freed(&mut path.freed, path.instructions + n - 1)?;
        at = at.max(free);
        if op.kind == OpClass::Load {
            if path.loads == self.load_queue {
                return None;
            }
            let oldest = (self.load_count + path.loads).checked_sub(self.load_queue);
            at = at.max(oldest.map_or(0, |n| self.loads.get(n as usize).real));
        }
        if at >= path.resolved {
            return None;
        }
        path.slot = at + 1;
        path.instructions += n;
        path.loads += u64::from(op.kind == OpClass::Load);
        Some(at)
    }

    /// Executes an op that dispatches in `slot`.
    fn execute_wrong<B: Below>(
        &mut self,
        w: &mut WrongPath,
        path: &mut Path<'_>,
        learned: &Learned,
        slot: u64,
        context: &mut CoreContext<'_, B>,
    ) {
        let (op, name) = (&learned.op, learned.name);
        let n = path.base + path.made.len() as u64;
        let inputs = self.inputs(w, path, learned, n);
        let same = w.ahead.take(name).filter(|&j| path.agrees(op, &inputs, j));
        let known = !inputs.from.contains(&0);
        let start = inputs.at.max(slot);
        let mut word = 0;
        let (at, origin) = match op.kind {
            OpClass::Compute => {
                let done = start.saturating_add(u64::from(op.latency) * self.width);
                let origin = if known && inputs.from != [NOWHERE; 2] {
                    result(name, inputs.from, op.latency)
                } else {
                    0
                };
                (if start >= LATE { start } else { done }, origin)
            }
            OpClass::Load => {
                let address = match same {
                    Some(j) => Some((path.right[j].va, AddressSource::Converged)),
                    None if known => w
                        .address(name, inputs.from)
                        .map(|(va, known)| (va, AddressSource::Known(known))),
                    None => None,
                };
                let address = address.or_else(|| {
                    let [Producer::Op(m), Producer::Nobody] = inputs.producers else {
                        return None;
                    };
                    Some((w.pointed(name, m)?, AddressSource::Pointer))
                });
                word = address.map_or(0, |(va, _)| word_of(op, va));
                self.load_wrong(w, (op, address), (start, path.resolved), context)
            }
            OpClass::Store
            | OpClass::Branch
            | OpClass::Query
            | OpClass::Prefetch
            | OpClass::Flush => (start, NOWHERE),
        };
        // The right path may store to these bytes before its own load reads them.
        let load = op.kind == OpClass::Load;
        let same = same.filter(|&j| at != UNKNOWN && !(load && w.ahead.writes(path.right[j].va)));
        path.made.push(Made { at, same });
        w.record_result(n, name, origin, word);
    }

    /// Inputs of the op with number `n`.
    fn inputs(&self, w: &WrongPath, path: &Path<'_>, learned: &Learned, n: u64) -> Inputs {
        let mut inputs = Inputs {
            at: 0,
            from: [NOWHERE; 2],
            producers: [Producer::Nobody; 2],
        };
        for k in 0..2 {
            let input: &Input = &learned.inputs[k];
            let producer = w.producer(input, n);
            inputs.producers[k] = producer;
            match producer {
                Producer::Nobody => {}
                Producer::Forgotten => inputs.from[k] = 0,
                Producer::Op(m) => {
                    let made = w.made(m);
                    let latency = u64::from(learned.op.dep_latency[k]);
                    inputs.from[k] = if made == 0 { 0 } else { made + (latency << 1) };
                    let at = match m.checked_sub(path.base) {
                        Some(i) => path.made[i as usize].at,
                        None => self.done_before(path.base - 1 - m),
                    };
                    let ready = at.saturating_add(latency * self.width);
                    inputs.at = inputs.at.max(if at >= LATE { at } else { ready });
                }
            }
        }
        inputs
    }

    /// Completion slot of the op `distance` places before the branch.
    fn done_before(&self, distance: u64) -> u64 {
        let d = distance as usize;
        if d == 0 || d >= self.done.len() || d > self.op_count {
            return 0;
        }
        self.done.get(self.op_count - d).real
    }

    /// Executes a load whose inputs are ready in slot `start`. Returns when its data are ready, and
    /// their origin.
    fn load_wrong<B: Below>(
        &mut self,
        w: &mut WrongPath,
        (op, address): (&Op, Option<(u64, AddressSource)>),
        (start, resolved): (u64, u64),
        context: &mut CoreContext<'_, B>,
    ) -> (u64, Origin) {
        let Some((va, source)) = address else {
            w.stats.unknown_loads += 1;
            return (UNKNOWN, 0);
        };
        if start >= resolved {
            w.stats.late_loads += 1;
            return (LATE, w.loads(va));
        }
        let op = Op { va, ..*op };
        let (_, high) = bytes(&op);
        let last = va.wrapping_add(high - (va & (LINE_BYTES - 1)));
        let mapped = |va| is_mapped(context.view, VirtAddr(va));
        if !mapped(va) || last >> 12 != va >> 12 && !mapped(last) {
            w.stats.unmapped_loads += 1;
            return (UNKNOWN, 0);
        }
        let s = &mut w.stats;
        s.loads += 1;
        match source {
            AddressSource::Converged => s.converged_loads += 1,
            AddressSource::Known(Known::Constant) => s.constant_loads += 1,
            AddressSource::Known(Known::Remembered) => s.remembered_loads += 1,
            AddressSource::Pointer => s.pointer_loads += 1,
        }
        let (misses, walks) = (self.mmu.data_misses(), self.mmu.walks());
        let now = self.cycle(start);
        let at = self.read_wrong(&op, now, context).unwrap_or(now);
        w.stats.l1d_tlb_misses += self.mmu.data_misses() - misses;
        w.stats.walks += self.mmu.walks() - walks;
        (at * self.width, w.loads(va))
    }

    /// Reads from one or two lines at `now`, if they are mapped. Returns when the last data arrive.
    fn read_wrong<B: Below>(
        &mut self,
        op: &Op,
        now: Cycle,
        context: &mut CoreContext<'_, B>,
    ) -> Result<Cycle, Fault> {
        let t = self.translate(op.va, Access::Read, op.pc, now, context)?;
        let (low, high) = bytes(op);
        let line = op.va >> LINE_SHIFT;
        if high < LINE_BYTES {
            return Ok(self.read_line(op, &t, (line, low, high), now, context.below));
        }
        let u = self.translate_second(op, &t, Access::Read, now, context)?;
        let first = self.read_line(op, &t, (line, low, LINE_BYTES - 1), now, context.below);
        let rest = (line + 1, 0, high - LINE_BYTES);
        let rest = self.read_line(op, &u, rest, now, context.below);
        Ok(first.max(rest))
    }

    /// Reads bytes of a line, from an older store if that writes some of them, else from the
    /// caches.
    fn read_line<B: Below>(
        &mut self,
        op: &Op,
        t: &Translated,
        (line, low, high): (u64, u64, u64),
        now: Cycle,
        below: &mut B,
    ) -> Cycle {
        match self.stores.forward(line, low as u8, high as u8, now) {
            Some(stored) => t.ready.max(self.cycle(stored.real)) + self.load_to_use,
            None => {
                self.request(RequestKind::Load, t.pa, op.pc, t.ready, below)
                    .at
            }
        }
    }
}

impl Path<'_> {
    /// True if op `j` of the right path has the same inputs as `op` has on the wrong path. `op` is
    /// an earlier execution of the same instruction.
    fn agrees(&self, op: &Op, inputs: &Inputs, j: usize) -> bool {
        let right = &self.right[j];
        right.kind == op.kind
            && (0..2).all(|k| {
                let d = u64::from(right.dep[k]);
                match inputs.producers[k] {
                    Producer::Nobody => d == 0,
                    Producer::Forgotten => false,
                    Producer::Op(m) => {
                        let number = (self.base + j as u64).wrapping_sub(d);
                        let made = match m.checked_sub(self.base) {
                            None => m == number,
                            Some(i) => self.made[i as usize]
                                .same
                                .is_some_and(|s| self.base + s as u64 == number),
                        };
                        d != 0 && made && right.dep_latency[k] == op.dep_latency[k]
                    }
                }
            })
    }
}
