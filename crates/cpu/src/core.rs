//! One core: the window over its MMU and its private caches.

use pagewalk_memory::{Below, Done, Kind as Ask, Level, Private, Report, Request};
use pagewalk_mmu::{Answer, Fault, From, Mmu};
use pagewalk_stats::Tree;
use pagewalk_stream::{Kind, Op, flags};
use pagewalk_tables::View;
use pagewalk_units::{Access, Asid, Cycle, LINE_BYTES, LINE_SHIFT, PhysAddr, VirtAddr};

use crate::CoreSpec;
use crate::cycle_stack::{Cause, CycleStack, StackSlots};
use crate::predictor::Predictor;
use crate::rob::Rob;
use crate::store_queue::StoreQueue;

/// Why the core came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Its local time has reached `until`.
    Quantum,
    /// All ops are consumed.
    NeedBatch,
    /// The instruction limit is reached (exactly, up to the op's own count).
    Limit,
    /// The op at the returned position faults. It is to be run again when the
    /// kernel has acted; the plain instructions before it in the op have run.
    Fault(Fault),
}

/// What `run` gives back.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// Position of the next op to run.
    pub at: usize,
    /// Why it came back.
    pub stop: Stop,
}

pagewalk_stats::counters! {
    /// What one core counted in timed execution; warming is not counted.
    pub struct CoreStats {
        instructions: "instructions", "Instructions retired";
        cycles: "cycles", "Cycles, from the first dispatch to the last retirement, warming left out";
        ops: "operations", "Operations of the program's stream";
        loads: "loads", "Loads";
        stores: "stores", "Stores";
        memory_operands: "operands", "Loads and stores";
        branches: "branches", "Branches of every kind";
        mispredictions: "branches", "Branches that the front end mispredicted";
        forwarded_loads: "loads", "Loads that took their data from an older store in the queue";
        split_accesses: "operands", "Loads and stores that touched two lines";
        fetched_lines: "lines", "Lines that instruction fetch asked for";
    }
}

/// No line of instructions has been fetched.
const NO_LINE: u64 = u64::MAX;
/// Bytes of the longest instruction (Intel SDM vol. 2, 2.3.11): what an op's
/// instructions span at most.
const LONGEST: u64 = 15;
/// Barriers of the front end that are told apart until the next retirement.
const BARRIERS: usize = 4;

/// What an instruction waited for before it was done, in order of time; the
/// rest of the time it executed.
#[derive(Clone, Copy)]
struct Waits {
    /// Its inputs, until this slot.
    start: u64,
    /// The translation, until this cycle, and from where.
    known: Cycle,
    translation: Cause,
    /// The data, until this cycle, and from where.
    back: Cycle,
    level: Cause,
}

/// It waited for its inputs and executed, nothing else.
const EXECUTES: Waits = Waits {
    start: 0,
    known: 0,
    translation: Cause::Tlb,
    back: 0,
    level: Cause::L1d,
};

/// The caches of one core, its MMU and its window.
pub struct Core {
    /// Its MMU.
    pub mmu: Mmu,
    /// Its caches.
    pub private: Private,

    width: u64,
    /// ceil(2^63 / width): slots become cycles by a multiplication.
    reciprocal: u64,
    load_to_use: Cycle,
    fetch_to_use: Cycle,
    penalty: u64,
    core: u8,

    /// First slot in which the next instruction can be dispatched.
    next: u64,
    rob: Rob,
    stores: StoreQueue,
    /// Retirement slots of the last loads, by number.
    loads: Box<[u64]>,
    load_mask: u64,
    load_queue: u64,
    load_count: u64,
    /// When each of the last ops was done, in slots, by number. A producer
    /// further back than this has retired.
    done: Box<[u64]>,
    done_mask: usize,
    op_count: usize,

    /// Line of the last instruction fetched.
    line: u64,
    /// Line where fetch goes on after a taken branch.
    target: u64,
    predictor: Predictor,

    stack: CycleStack,
    /// Slots until which the front end was held up, and by what, in ascending
    /// order; they count where they hold up retirement.
    barriers: [(u64, Cause); BARRIERS],
    barrier_count: usize,
    /// The plain instructions of the op that faulted have run.
    resumes: bool,
    fault_at: Cycle,

    stats: CoreStats,
    /// Instructions that were warmed, not timed.
    warmed: u64,
    /// Slots that warming took.
    warm_slots: u64,
    /// Thousandths of a cycle that warming has not yet let pass.
    warm_rest: u64,
}

impl Core {
    /// A core that has done nothing yet; refuses what is impossible with a
    /// sentence that names the key.
    pub fn new(spec: &CoreSpec, mut mmu: Mmu, private: Private, core: u8) -> Result<Self, String> {
        spec.check()?;
        let load_to_use = private.l1d_latency();
        let fetch_to_use = private.l1i_latency();
        mmu.run_beside(load_to_use);
        let ring = (spec.load_queue as usize).next_power_of_two();
        // Micro-operations beyond the first of an instruction take no entry of
        // the reorder buffer: room for three more of them each.
        let ops = (4 * spec.rob as usize).next_power_of_two();
        Ok(Core {
            mmu,
            private,
            width: u64::from(spec.width),
            reciprocal: (1u64 << 63).div_ceil(u64::from(spec.width)),
            load_to_use,
            fetch_to_use,
            penalty: spec.mispredict_penalty * u64::from(spec.width),
            core,
            next: 0,
            rob: Rob::new(spec.rob),
            stores: StoreQueue::new(spec.store_queue),
            loads: vec![0; ring].into(),
            load_mask: ring as u64 - 1,
            load_queue: u64::from(spec.load_queue),
            load_count: 0,
            done: vec![0; ops].into(),
            done_mask: ops - 1,
            op_count: 0,
            line: NO_LINE,
            target: NO_LINE,
            predictor: Predictor::new(spec),
            stack: CycleStack::default(),
            barriers: [(0, Cause::Base); BARRIERS],
            barrier_count: 0,
            resumes: false,
            fault_at: 0,
            stats: CoreStats::default(),
            warmed: 0,
            warm_slots: 0,
            warm_rest: 0,
        })
    }

    /// The cycle that `slot` lies in; exact below 2^63 / width.
    #[inline]
    fn cycle(&self, slot: u64) -> Cycle {
        ((u128::from(slot) * u128::from(self.reciprocal)) >> 63) as u64
    }

    /// Local time: when the youngest dispatched instruction was dispatched.
    pub fn now(&self) -> Cycle {
        self.cycle(self.next)
    }

    /// Instructions dispatched since the start, timed or warmed.
    pub fn instructions(&self) -> u64 {
        self.rob.count + self.warmed
    }

    /// Timed. `ops[at..]`, until local time `until` or `instructions() >= limit`.
    #[allow(clippy::too_many_arguments)]
    pub fn run<B: Below>(
        &mut self,
        ops: &[Op],
        mut at: usize,
        until: Cycle,
        limit: u64,
        asid: Asid,
        view: &View<'_>,
        below: &mut B,
    ) -> Ran {
        let until = until.saturating_mul(self.width);
        let limit = limit.saturating_sub(self.warmed);
        let stop = loop {
            if self.rob.count >= limit {
                break Stop::Limit;
            }
            let Some(op) = ops.get(at) else {
                break Stop::NeedBatch;
            };
            if self.next >= until {
                break Stop::Quantum;
            }
            let done = if op.pc >> LINE_SHIFT == self.line {
                Ok(())
            } else {
                self.fetch_lines(op, asid, view, below)
            };
            let done = match done {
                Err(fault) => Err(fault),
                Ok(()) => match op.kind {
                    Kind::Compute => Ok(self.compute(op)),
                    Kind::Branch => Ok(self.branch(op)),
                    Kind::Load => self.load(op, asid, view, below),
                    Kind::Store => self.store(op, asid, view, below),
                },
            };
            match done {
                Ok(slot) => {
                    self.done[self.op_count & self.done_mask] = slot;
                    self.op_count += 1;
                    at += 1;
                }
                Err(fault) => {
                    self.fault_at = fault.at;
                    break Stop::Fault(fault);
                }
            }
        };
        Ran { at, stop }
    }

    /// The front end is held up until `slot`.
    #[cold]
    fn hold(&mut self, slot: u64, cause: Cause) {
        if slot <= self.next {
            return;
        }
        self.next = slot;
        let retired = self.rob.next;
        let n = self.barrier_count;
        if n > 0 && self.barriers[n - 1].0 <= retired {
            self.barrier_count = 0;
        }
        if self.barrier_count == BARRIERS {
            self.barrier_count -= 1;
        }
        self.barriers[self.barrier_count] = (slot, cause);
        self.barrier_count += 1;
    }

    /// Adds the slots from `from` to `slot` to `cause`; gives where it got to.
    #[inline]
    fn lose(&mut self, from: u64, slot: u64, cause: Cause) -> u64 {
        if slot <= from {
            return from;
        }
        self.stack.add(cause, slot - from);
        slot
    }

    /// The slots that are lost before `slot` because of the front end.
    #[inline]
    fn lose_front(&mut self, mut from: u64, slot: u64) -> u64 {
        let n = self.barrier_count;
        if n > 0 {
            for i in 0..n {
                let (until, cause) = self.barriers[i];
                from = self.lose(from, until.min(slot), cause);
            }
            if self.barriers[n - 1].0 <= slot {
                self.barrier_count = 0;
            }
        }
        from
    }

    /// `n` instructions that wait for nothing and take a cycle each.
    #[inline]
    fn plain(&mut self, mut n: u64) {
        while n > 0 {
            let (free, room) = self.rob.room();
            let chunk = n.min(room);
            let at = self.next.max(free);
            let mut first = self.rob.next;
            if at + self.width > first {
                let from = self.lose_front(first, at);
                first = at + self.width;
                self.lose(from, first, Cause::Compute);
            }
            self.rob.retire(first, chunk);
            self.next = at + chunk;
            n -= chunk;
        }
    }

    /// Dispatches the op's own instruction after the plain ones; its slot.
    /// `needed`: 0 if it is a further micro-operation of the instruction before.
    #[inline(always)]
    fn dispatch(&mut self, needed: u16) -> u64 {
        if needed == 0 {
            return self.next;
        }
        let (free, _) = self.rob.room();
        let at = self.next.max(free);
        self.next = at;
        at
    }

    /// The op's own instruction, dispatched at `at`, retires when all is done at
    /// `done`; gives the slot. `waits`: what for, if it does.
    #[inline(always)]
    fn retire(&mut self, insns: u16, at: u64, done: u64, waits: Waits) -> u64 {
        if insns == 0 {
            return self.retire_part(done, waits);
        }
        let next = self.rob.next;
        let slot = next.max(done).max(at + self.width);
        if slot > next {
            self.account(slot, waits);
        }
        self.rob.retire(slot, 1);
        self.next = at + 1;
        slot
    }

    /// A further micro-operation is done at `done`: it moves the slot of its
    /// instruction if that is earlier, and the one it leaves is lost.
    #[cold]
    fn retire_part(&mut self, done: u64, waits: Waits) -> u64 {
        if done < self.rob.next {
            return self.rob.next - 1;
        }
        self.account(done + 1, waits);
        self.rob.delay_last(done)
    }

    /// Gives the slots until `slot` their causes.
    #[inline(never)]
    fn account(&mut self, slot: u64, waits: Waits) {
        let mut from = self.lose_front(self.rob.next, slot);
        from = self.lose(from, waits.start.min(slot), Cause::Compute);
        let known = waits.known * self.width;
        from = self.lose(from, known.min(slot), waits.translation);
        let back = waits.back * self.width;
        from = self.lose(from, back.min(slot), waits.level);
        self.lose(from, slot, Cause::Compute);
    }

    /// When the value that producer `k` of `op` gives is there, in slots.
    #[inline(always)]
    fn input(&self, op: &Op, k: usize) -> u64 {
        let d = usize::from(op.dep[k]);
        if d == 0 || d > self.done_mask || d > self.op_count {
            return 0;
        }
        self.done[(self.op_count - d) & self.done_mask] + u64::from(op.dep_latency[k]) * self.width
    }

    /// Lines that this op's instructions begin in: from `self.line` or the target of a taken branch.
    fn first_line(&self, op: &Op) -> u64 {
        let line = op.pc >> LINE_SHIFT;
        let span = u64::from(op.insns) * LONGEST / LINE_BYTES + 1;
        let from = if self.target != NO_LINE {
            self.target
        } else {
            self.line.wrapping_add(1)
        };
        if from <= line && line - from <= span {
            from
        } else {
            line
        }
    }

    /// Brings in the lines from the last instruction to this op's. The front end
    /// does not run ahead: a line is asked for when its first
    /// instruction is next to be dispatched, lines one after the other. A hit's
    /// latency is hidden by the pipeline, what exceeds it is not.
    #[inline(never)]
    fn fetch_lines<B: Below>(
        &mut self,
        op: &Op,
        asid: Asid,
        view: &View<'_>,
        below: &mut B,
    ) -> Result<(), Fault> {
        for line in self.first_line(op)..=op.pc >> LINE_SHIFT {
            let va = VirtAddr(line << LINE_SHIFT);
            let now = self.cycle(self.next);
            let t = self.mmu.translate(
                asid,
                va,
                Access::Fetch,
                op.pc,
                now,
                view,
                &mut self.private,
                below,
            )?;
            let request = Request {
                at: t.pa,
                kind: Ask::Fetch,
                core: self.core,
                pc: op.pc,
            };
            let done = self.private.access(request, t.at, below);
            self.stats.fetched_lines += 1;
            if t.at > now {
                self.hold(t.at * self.width, waited_for(&t));
            }
            let late = done.at.saturating_sub(self.fetch_to_use);
            if late > t.at {
                self.hold(late * self.width, Cause::Fetch);
            }
            self.line = line;
            self.target = NO_LINE;
        }
        Ok(())
    }

    /// The plain instructions before the op's own, and a fence's draining.
    #[inline(always)]
    fn lead(&mut self, op: &Op) {
        if op.insns > 1 && !self.resumes {
            self.plain(u64::from(op.insns) - 1);
        }
        self.resumes = false;
        if op.flags & flags::SERIALISING != 0 {
            self.drain();
        }
    }

    /// All older instructions have retired and all older stores are written.
    #[cold]
    fn drain(&mut self) {
        self.next = self.next.max(self.rob.next);
        self.hold(self.stores.last_commit * self.width, Cause::StoreQueue);
    }

    /// The op faults: it will come again, its plain instructions will not.
    #[cold]
    fn faulted(&mut self, fault: Fault) -> Fault {
        self.resumes = true;
        fault
    }

    /// `insns` instructions with a chain of `latency` cycles spread evenly over them.
    #[inline]
    fn compute(&mut self, op: &Op) -> u64 {
        if op.flags & flags::SERIALISING != 0 {
            self.drain();
        }
        let n = u64::from(op.insns);
        let inputs = self.input(op, 0).max(self.input(op, 1));
        let chain = u64::from(op.latency) * self.width;
        if n == 0 {
            let done = self.next.max(inputs) + chain;
            self.retire_part(done, EXECUTES);
            return done;
        }
        let (free, room) = self.rob.room();
        let at = self.next.max(free);
        let ready = at.max(inputs) + chain;
        let first = self.rob.next.max(at + self.width);
        let done = if room >= n && ready <= first {
            // Nothing of the chain shows: all retire in a row.
            if first > self.rob.next {
                let from = self.lose_front(self.rob.next, at);
                self.lose(from, first, Cause::Compute);
            }
            self.rob.retire(first, n);
            self.next = at + n;
            ready.max(at + n - 1 + self.width)
        } else {
            self.step_through(n, u64::from(op.latency), inputs)
        };
        if op.flags & flags::SERIALISING != 0 {
            self.next = self.next.max(done);
        }
        done
    }

    /// The same, instruction by instruction: number k of n is done with the
    /// first ceil(k latency / n) cycles of the chain.
    #[inline(never)]
    fn step_through(&mut self, n: u64, latency: u64, inputs: u64) -> u64 {
        let mut chain = inputs;
        let mut share = 0;
        let mut done = 0;
        let (mut spent, mut rest) = (0u64, 0u64);
        for _ in 0..n {
            let (free, _) = self.rob.room();
            let at = self.next.max(free);
            // ceil(k latency / n) without a division.
            rest += latency;
            while rest > 0 && share * n < rest {
                share += 1;
            }
            chain = chain.max(at) + (share - spent) * self.width;
            spent = share;
            done = chain.max(at + self.width);
            let slot = self.rob.next.max(done);
            if slot > self.rob.next {
                let from = self.lose_front(self.rob.next, at);
                self.lose(from, slot, Cause::Compute);
            }
            self.rob.retire(slot, 1);
            self.next = at + 1;
        }
        done
    }

    #[inline]
    fn branch(&mut self, op: &Op) -> u64 {
        self.lead(op);
        let at = self.dispatch(op.insns);
        let inputs = self.input(op, 0).max(self.input(op, 1));
        let done = at.max(inputs) + u64::from(op.latency.max(1)) * self.width;
        self.retire(op.insns, at, done, EXECUTES);
        self.stats.branches += 1;
        if !self.predictor.foresees(op, true) {
            self.stats.mispredictions += 1;
            self.hold(done + self.penalty, Cause::Branch);
        }
        if op.flags & flags::SERIALISING != 0 {
            self.next = self.next.max(done);
        }
        self.redirect(op);
        done
    }

    /// Fetch goes on at the target of a taken branch.
    #[inline]
    fn redirect(&mut self, op: &Op) {
        let taken = op.flags & flags::TAKEN != 0 || op.flags & flags::CONDITIONAL == 0;
        if taken && op.va >> LINE_SHIFT != self.line {
            self.line = NO_LINE;
            self.target = op.va >> LINE_SHIFT;
        }
    }

    #[inline]
    fn load<B: Below>(
        &mut self,
        op: &Op,
        asid: Asid,
        view: &View<'_>,
        below: &mut B,
    ) -> Result<u64, Fault> {
        self.lead(op);
        let oldest = self.load_count.wrapping_sub(self.load_queue) & self.load_mask;
        self.next = self.next.max(self.loads[oldest as usize]);
        let at = self.dispatch(op.insns);
        let start = at.max(self.input(op, 0)).max(self.input(op, 1));
        let ask = self.cycle(start);
        let (low, high) = bytes(op);
        let (back, known, waited, cause);
        if high >= LINE_BYTES {
            (back, known, waited, cause) = self.split_load(op, ask, asid, view, below)?;
        } else {
            let t = self.translate(op.va, Access::Read, op.pc, ask, asid, view, below)?;
            known = t.at;
            waited = waited_for(&t);
            let line = op.va >> LINE_SHIFT;
            if let Some(data) = self.stores.forward(line, low as u8, high as u8, ask) {
                self.stats.forwarded_loads += 1;
                back = known.max(data) + self.load_to_use;
                cause = Cause::L1d;
            } else {
                let done = self.ask(Ask::Load, t.pa, op.pc, known, below);
                back = done.at;
                cause = served(done.level);
            }
        }
        let done = back * self.width;
        let waits = Waits {
            start,
            known,
            translation: waited,
            back,
            level: cause,
        };
        let slot = self.retire(op.insns, at, done, waits);
        self.loads[(self.load_count & self.load_mask) as usize] = slot;
        self.load_count += 1;
        if op.flags & flags::SERIALISING != 0 {
            self.next = self.next.max(done);
        }
        Ok(done)
    }

    #[inline]
    fn store<B: Below>(
        &mut self,
        op: &Op,
        asid: Asid,
        view: &View<'_>,
        below: &mut B,
    ) -> Result<u64, Fault> {
        self.lead(op);
        let room = self.stores.room();
        if room > self.next {
            self.hold(room, Cause::StoreQueue);
        }
        let at = self.dispatch(op.insns);
        let start = at.max(self.input(op, 0));
        let data = at.max(self.input(op, 1));
        let ask = self.cycle(start);
        let (low, high) = bytes(op);
        let split = high >= LINE_BYTES;
        let t = self.translate(op.va, Access::Write, op.pc, ask, asid, view, below)?;
        let (mut known, mut waited) = (t.at, waited_for(&t));
        let mut second = PhysAddr(0);
        if split {
            let u = self.second(op, &t, Access::Write, ask, asid, view, below)?;
            second = u.pa;
            if u.at > known {
                (known, waited) = (u.at, waited_for(&u));
            }
        }
        let done = data.max(start).max(known * self.width);
        let waits = Waits {
            start,
            known,
            translation: waited,
            ..EXECUTES
        };
        let slot = self.retire(op.insns, at, done, waits);
        // The line is asked for at retirement; writes go in order, one a cycle.
        let retired = self.cycle(slot);
        let mut written = self.ask(Ask::Store, t.pa, op.pc, retired, below).at;
        if split {
            written = written.max(self.ask(Ask::Store, second, op.pc, retired, below).at);
            self.stats.split_accesses += 1;
        }
        let commit = written.max(self.stores.last_commit + 1);
        self.stores.last_commit = commit;
        self.stores.enter(commit * self.width);
        let line = op.va >> LINE_SHIFT;
        let ready = self.cycle(data);
        let within = high.min(LINE_BYTES - 1) as u8;
        self.stores.write(line, low as u8, within, ready, commit);
        if split {
            let rest = (high - LINE_BYTES) as u8;
            self.stores.write(line + 1, 0, rest, ready, commit);
        }
        if op.flags & flags::SERIALISING != 0 {
            self.hold(commit * self.width, Cause::StoreQueue);
        }
        Ok(done)
    }

    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn translate<B: Below>(
        &mut self,
        va: u64,
        access: Access,
        pc: u64,
        now: Cycle,
        asid: Asid,
        view: &View<'_>,
        below: &mut B,
    ) -> Result<Answer, Fault> {
        let private = &mut self.private;
        match self
            .mmu
            .translate(asid, VirtAddr(va), access, pc, now, view, private, below)
        {
            Ok(answer) => Ok(answer),
            Err(fault) => Err(self.faulted(fault)),
        }
    }

    #[inline]
    fn ask<B: Below>(
        &mut self,
        kind: Ask,
        at: PhysAddr,
        pc: u64,
        now: Cycle,
        below: &mut B,
    ) -> Done {
        let request = Request {
            at,
            kind,
            core: self.core,
            pc,
        };
        self.private.access(request, now, below)
    }

    /// Where the second line of an access lies whose first is at `first`.
    #[cold]
    #[allow(clippy::too_many_arguments)]
    fn second<B: Below>(
        &mut self,
        op: &Op,
        first: &Answer,
        access: Access,
        now: Cycle,
        asid: Asid,
        view: &View<'_>,
        below: &mut B,
    ) -> Result<Answer, Fault> {
        let va = (op.va | (LINE_BYTES - 1)) + 1;
        if va & 0xfff != 0 {
            let pa = PhysAddr((first.pa.0 | (LINE_BYTES - 1)) + 1);
            return Ok(Answer { pa, ..*first });
        }
        self.translate(va, access, op.pc, now, asid, view, below)
    }

    /// A load from two lines: when it is back, when both translations were
    /// known, and what either waited for.
    #[cold]
    fn split_load<B: Below>(
        &mut self,
        op: &Op,
        ask: Cycle,
        asid: Asid,
        view: &View<'_>,
        below: &mut B,
    ) -> Result<(Cycle, Cycle, Cause, Cause), Fault> {
        let t = self.translate(op.va, Access::Read, op.pc, ask, asid, view, below)?;
        let u = self.second(op, &t, Access::Read, ask, asid, view, below)?;
        self.stats.split_accesses += 1;
        let later = if u.at > t.at { &u } else { &t };
        let (known, waited) = (later.at, waited_for(later));
        let (low, high) = bytes(op);
        let line = op.va >> LINE_SHIFT;
        let stores = &self.stores;
        let a = stores.forward(line, low as u8, LINE_BYTES as u8 - 1, ask);
        let b = stores.forward(line + 1, 0, (high - LINE_BYTES) as u8, ask);
        if let Some(data) = a.max(b) {
            self.stats.forwarded_loads += 1;
            return Ok((
                known.max(data) + self.load_to_use,
                known,
                waited,
                Cause::L1d,
            ));
        }
        let a = self.ask(Ask::Load, t.pa, op.pc, t.at, below);
        let b = self.ask(Ask::Load, u.pa, op.pc, u.at, below);
        let last = if b.at > a.at { b } else { a };
        Ok((last.at, known, waited, served(last.level)))
    }

    /// Warming: state of TLBs, caches, predictors; the clock runs at
    /// `cpi_milli`/1000 cycles an instruction. The window empties first. Nothing
    /// is counted but the instructions.
    #[allow(clippy::too_many_arguments)]
    pub fn warm<B: Below>(
        &mut self,
        ops: &[Op],
        mut at: usize,
        limit: u64,
        cpi_milli: u64,
        asid: Asid,
        view: &View<'_>,
        below: &mut B,
    ) -> Ran {
        self.empty();
        self.done.fill(0);
        self.stores.forget();
        let before = self.warmed;
        let limit = limit.saturating_sub(self.rob.count);
        let stop = loop {
            if self.warmed >= limit {
                break Stop::Limit;
            }
            let Some(op) = ops.get(at) else {
                break Stop::NeedBatch;
            };
            if let Err(fault) = self.warm_op(op, asid, view, below) {
                break Stop::Fault(fault);
            }
            let resumed = u64::from(self.resumes) * u64::from(op.insns.saturating_sub(1));
            self.resumes = false;
            self.warmed += u64::from(op.insns) - resumed;
            at += 1;
        };
        self.warm_rest += (self.warmed - before) * cpi_milli;
        let slots = self.warm_rest / 1000 * self.width;
        self.warm_rest %= 1000;
        self.warm_slots += slots;
        self.next += slots;
        self.rob.empty_until(self.next);
        self.fault_at = 0;
        Ran { at, stop }
    }

    #[inline]
    fn warm_op<B: Below>(
        &mut self,
        op: &Op,
        asid: Asid,
        view: &View<'_>,
        below: &mut B,
    ) -> Result<(), Fault> {
        if op.pc >> LINE_SHIFT != self.line {
            for line in self.first_line(op)..=op.pc >> LINE_SHIFT {
                self.warm_line(line << LINE_SHIFT, Access::Fetch, op.pc, asid, view, below)?;
                self.line = line;
                self.target = NO_LINE;
            }
        }
        let access = match op.kind {
            Kind::Compute => return Ok(()),
            Kind::Branch => {
                self.predictor.foresees(op, false);
                self.redirect(op);
                return Ok(());
            }
            Kind::Load => Access::Read,
            Kind::Store => Access::Write,
        };
        self.warm_line(op.va, access, op.pc, asid, view, below)?;
        if bytes(op).1 >= LINE_BYTES {
            let va = (op.va | (LINE_BYTES - 1)) + 1;
            self.warm_line(va, access, op.pc, asid, view, below)?;
        }
        Ok(())
    }

    #[inline]
    fn warm_line<B: Below>(
        &mut self,
        va: u64,
        access: Access,
        pc: u64,
        asid: Asid,
        view: &View<'_>,
        below: &mut B,
    ) -> Result<(), Fault> {
        let private = &mut self.private;
        let at = self
            .mmu
            .warm(asid, VirtAddr(va), access, view, private, below)?;
        let request = Request {
            at,
            kind: match access {
                Access::Read => Ask::Load,
                Access::Write => Ask::Store,
                Access::Fetch => Ask::Fetch,
            },
            core: self.core,
            pc,
        };
        self.private.warm(request, below);
        Ok(())
    }

    /// The window empties: all that was dispatched retires, and the front end
    /// has overcome what held it up.
    fn empty(&mut self) {
        let begin = self.rob.next.max(self.next);
        let from = self.lose_front(self.rob.next, begin);
        self.lose(from, begin, Cause::Compute);
        self.rob.empty_until(begin);
        self.next = begin;
        self.barrier_count = 0;
    }

    /// The kernel works for `cycles`: the window empties first (fault, system
    /// call, context switch). After a fault it begins when the hardware has
    /// found out.
    pub fn kernel(&mut self, cycles: Cycle) {
        self.empty();
        let found_out = std::mem::take(&mut self.fault_at) * self.width;
        let from = self.lose(self.next, found_out, Cause::Walk);
        self.next = self.lose(from, from + cycles * self.width, Cause::Kernel);
        self.rob.empty_until(self.next);
    }

    /// Nothing to run until `until`.
    pub fn idle(&mut self, until: Cycle) {
        let slot = until * self.width;
        if slot > self.rob.next {
            let from = self.lose_front(self.rob.next, slot);
            self.lose(from, slot, Cause::Idle);
            self.rob.empty_until(slot);
        }
        self.next = self.next.max(slot);
    }

    /// Another thread comes: dependences, store queue and return stack are forgotten.
    pub fn switch(&mut self) {
        self.done.fill(0);
        self.stores.forget();
        self.predictor.forget_calls();
        self.line = NO_LINE;
        self.target = NO_LINE;
        self.resumes = false;
        self.fault_at = 0;
    }

    /// When the last instruction so far retires (the end of a run).
    pub fn finish(&self) -> Cycle {
        self.rob.next.div_ceil(self.width)
    }

    /// What it counted.
    pub fn stats(&self) -> CoreStats {
        let mut s = self.stats;
        s.instructions = self.rob.count;
        s.ops = self.op_count as u64;
        s.loads = self.load_count;
        s.stores = self.stores.count;
        s.memory_operands = s.loads + s.stores;
        s.cycles = self.slots().total().div_ceil(self.width);
        s
    }

    /// Retirement slots by cause; their sum is the time that was not warmed.
    pub fn slots(&self) -> StackSlots {
        let slots = self.stack.slots(self.rob.count);
        debug_assert_eq!(slots.total() + self.warm_slots, self.rob.next);
        slots
    }

    /// Adds the core's counters at `path`, those of its MMU at `path.mmu`, and
    /// those of its caches below `path`.
    pub fn report(&self, path: &str, tree: &mut Tree) {
        tree.add(path, &self.stats());
        let slots = self.slots();
        tree.add(&format!("{path}.cycles"), &slots.cycles(self.width));
        tree.add(&format!("{path}.slots"), &slots);
        tree.add(&format!("{path}.predictor"), &self.predictor.stats);
        self.mmu.report(&format!("{path}.mmu"), tree);
        self.private.report(path, tree);
    }
}

/// First and last byte of an access, counted from the start of its first line.
#[inline]
fn bytes(op: &Op) -> (u64, u64) {
    let low = op.va & (LINE_BYTES - 1);
    (low, low + u64::from(op.size.clamp(1, LINE_BYTES as u8)) - 1)
}

/// What a load waited for that was served at `level`.
#[inline]
fn served(level: Level) -> Cause {
    match level {
        Level::L1 => Cause::L1d,
        Level::L2 => Cause::L2,
        Level::L3 => Cause::L3,
        Level::Remote => Cause::Remote,
        Level::Memory => Cause::Dram,
    }
}

/// What an access beyond the first-level TLB waited for.
#[inline]
fn waited_for(t: &Answer) -> Cause {
    match t.from {
        From::Walk => Cause::Walk,
        From::L1 | From::L2 => Cause::Tlb,
    }
}
