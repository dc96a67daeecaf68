//! The window: dispatch, waits and retirement of an instruction, and their accounting in the cycle
//! stack.

use pagewalk_memory::{Below, Done, Level};
use pagewalk_stream::{Op, OpClass, flags};
use pagewalk_units::{Access, Cycle};

use super::{BARRIERS, Barrier, Core, TranslationWait, Waits};
use crate::cycle_stack::Cause;
use crate::ports::{Operation, Simple};

impl Core {
    /// Stalls the front end until `slot`.
    #[cold]
    pub(super) fn stall(&mut self, slot: u64, cause: Cause) {
        self.stall_translated(slot, cause, TranslationWait::at(0));
    }

    /// As [`Core::stall`], for a stall that begins with a wait for a translation.
    /// `translated.known` is 0 without such a wait.
    #[cold]
    pub(super) fn stall_translated(
        &mut self,
        slot: u64,
        cause: Cause,
        translated: TranslationWait,
    ) {
        if slot <= self.next {
            return;
        }
        let barrier = Barrier {
            from: self.next,
            until: slot,
            cause,
            translated,
        };
        self.next = slot;
        let retired = self.rob.next;
        let n = self.barrier_count;
        if n > 0 && self.barriers[n - 1].until <= retired {
            self.barrier_count = 0;
        }
        if self.barrier_count == BARRIERS {
            self.barrier_count -= 1;
        }
        self.barriers[self.barrier_count] = barrier;
        self.barrier_count += 1;
    }

    /// Charges the slots from `from` to `slot` to `cause`. Returns the later of both.
    #[inline]
    pub(super) fn charge(&mut self, from: u64, slot: u64, cause: Cause) -> u64 {
        if slot <= from {
            return from;
        }
        self.stack.add(cause, slot - from);
        slot
    }

    /// Charges the slots between `from` and `slot` that stalls of the front end have lost. Returns
    /// the first slot that is not charged.
    #[inline(always)]
    pub(super) fn charge_front(&mut self, from: u64, slot: u64) -> u64 {
        if self.barrier_count == 0 {
            return from;
        }
        self.charge_barriers(from, slot)
    }

    /// As [`Core::charge_front`], if there are stalls.
    #[inline(never)]
    fn charge_barriers(&mut self, mut from: u64, slot: u64) -> u64 {
        let n = self.barrier_count;
        for i in 0..n {
            let b = &self.barriers[i];
            let (until, cause) = (b.until, b.cause);
            if b.translated.known == 0 || slot < until {
                from = self.charge(from, until.min(slot), cause);
            } else if until > from {
                let (
                    begin,
                    TranslationWait {
                        known,
                        walk_start: began,
                    },
                ) = (b.from, b.translated);
                let lookup_done = self.cycle(begin) + self.mmu.tlb_lookup_done(Access::Fetch);
                let mut split = self.stack.split((begin, from, until));
                split.translation(lookup_done, began, known, self.width);
                split.rest(cause);
                from = until;
            }
        }
        if self.barriers[n - 1].until <= slot {
            self.barrier_count = 0;
        }
        from
    }

    /// Dispatches and retires `n` simple instructions: they wait for nothing and take a cycle each.
    #[inline(always)]
    pub(super) fn dispatch_simple(&mut self, n: u64) {
        let (free, room) = self.rob.room();
        let at = self.next.max(free);
        let first = self.rob.next;
        if n <= room && at + self.width <= first {
            self.rob.retire(first, n);
            self.next = at + n;
        } else {
            self.dispatch_simple_delayed(n);
        }
    }

    /// As [`Core::dispatch_simple`], if instructions wait for room or delay retirement.
    #[inline(never)]
    fn dispatch_simple_delayed(&mut self, mut n: u64) {
        while n > 0 {
            let (free, room) = self.rob.room();
            let chunk = n.min(room);
            let at = self.next.max(free);
            let first = self.rob.next.max(at + self.width);
            self.wait_to_retire(at, first);
            self.rob.retire(first, chunk);
            self.next = at + chunk;
            n -= chunk;
        }
    }

    /// Charges the slots before `slot`, in which an instruction retires. The instruction is
    /// dispatched at `at`, and waits only for its own execution.
    #[inline(always)]
    pub(super) fn wait_to_retire(&mut self, at: u64, slot: u64) {
        if slot > self.rob.next {
            self.account_execution(at, slot);
        }
    }

    /// Charges the slots until `slot` to stalls of the front end before `at`, and to execution.
    // Not inlined: in a loop the compiler would keep everything that this may change in registers.
    #[inline(never)]
    fn account_execution(&mut self, at: u64, slot: u64) {
        let from = self.charge_front(self.rob.next, at);
        self.charge(from, slot, Cause::Compute);
    }

    /// Dispatches the op's own instruction after the simple ones, and returns its slot. `needed`:
    /// the op's instructions; 0 for a further micro-operation of the previous instruction.
    #[inline(always)]
    pub(super) fn dispatch(&mut self, needed: u16) -> u64 {
        if needed == 0 {
            return self.next;
        }
        let (free, _) = self.rob.room();
        let at = self.next.max(free);
        self.next = at;
        at
    }

    /// Retires the op's own instruction, which is dispatched at `at` and done at `done`. Returns
    /// its retirement slot. `waits`: its waits.
    #[inline(always)]
    pub(super) fn retire(&mut self, insns: u16, at: u64, done: u64, waits: Waits) -> u64 {
        // Kept in registers: storing the parts and loading the whole would stall the host.
        let Waits {
            start,
            translated,
            data,
        } = waits;
        if insns == 0 {
            return self.retire_part(done, start, translated, data);
        }
        let next = self.rob.next;
        let slot = next.max(done).max(at + self.width);
        if slot > next {
            self.account(slot, start, translated, data);
        }
        self.rob.retire(slot, 1);
        self.next = at + 1;
        slot
    }

    /// As [`Core::retire`], for an instruction that only waited for its inputs and executed.
    #[inline(always)]
    pub(super) fn retire_executed(&mut self, insns: u16, at: u64, done: u64) -> u64 {
        if insns == 0 {
            return self.retire_executed_part(done);
        }
        let next = self.rob.next;
        let slot = next.max(done).max(at + self.width);
        if slot > next {
            self.account_execution(slot, slot);
        }
        self.rob.retire(slot, 1);
        self.next = at + 1;
        slot
    }

    /// Retires a further micro-operation, done at `done`. If its instruction would retire before
    /// that, its retirement is delayed, and its former slot is lost.
    #[inline(never)]
    pub(super) fn retire_part(
        &mut self,
        done: u64,
        start: u64,
        translated: TranslationWait,
        data: Done,
    ) -> u64 {
        if done < self.rob.next {
            return self.rob.next - 1;
        }
        self.account(done + 1, start, translated, data);
        self.rob.delay_last(done)
    }

    /// As [`Core::retire_part`], for a micro-operation that only waited for its inputs and
    /// executed.
    #[inline(never)]
    pub(super) fn retire_executed_part(&mut self, done: u64) -> u64 {
        if done < self.rob.next {
            return self.rob.next - 1;
        }
        self.account_execution(done + 1, done + 1);
        self.rob.delay_last(done)
    }

    /// Charges the slots until `slot` to their causes. The waits are passed in registers: see
    /// [`Waits`].
    #[inline(never)]
    fn account(&mut self, slot: u64, start: u64, translated: TranslationWait, data: Done) {
        let mut from = self.charge_front(self.rob.next, slot);
        from = self.charge(from, start.min(slot), Cause::Compute);
        let requested = self.cycle(start);
        if translated.known == requested && u32::from(data.held) | data.queued == 0 {
            // The latency has one part only.
            from = self.charge(from, (data.at * self.width).min(slot), served(data.level));
            self.charge(from, slot, Cause::Compute);
        } else if from < slot {
            let lookup_done = requested + self.mmu.tlb_lookup_done(Access::Read);
            self.account_parts((start, from, slot), lookup_done, translated, data);
        }
    }

    /// As [`Core::account`], for a latency of several parts. `slots`: the request, the slot from
    /// which it delays retirement, and its end. TLBs are looked up until `lookup_done`.
    #[inline(never)]
    fn account_parts(
        &mut self,
        slots: (u64, u64, u64),
        lookup_done: Cycle,
        translated: TranslationWait,
        data: Done,
    ) {
        let (width, known) = (self.width, translated.known);
        let mut split = self.stack.split(slots);
        // If the load waited for an MSHR, the translation cost nothing: with an earlier
        // translation, the load would have waited longer for the same MSHR.
        if data.held == 0 {
            split.translation(lookup_done, translated.walk_start, known, width);
        } else {
            let held = known + u64::from(data.held);
            split.part(Cause::MissRegister, held.min(data.at) * width);
        }
        if data.queued != 0 {
            let queued = known + u64::from(data.held) + u64::from(data.queued);
            split.part(Cause::DramQueue, queued.min(data.at) * width);
        }
        split.part(served(data.level), data.at * width);
        split.rest(Cause::Compute);
    }

    /// Slot at which the value of producer `k` of `op` is ready.
    #[inline(always)]
    pub(super) fn input(&self, op: &Op, k: usize) -> u64 {
        let d = usize::from(op.dep[k]);
        if d == 0 || d >= self.done.len() || d > self.op_count {
            return 0;
        }
        self.done.get(self.op_count - d) + u64::from(op.dep_latency[k]) * self.width
    }

    /// Dispatches the simple instructions before the op's own, and drains the window for a fence.
    /// Returns the slot in which the last of them finds a port; 0 if ports are not limited.
    #[inline(always)]
    pub(super) fn dispatch_preceding<B: Below>(&mut self, op: &Op, below: &mut B) -> u64 {
        let mut start = 0;
        if !self.resumes {
            if op.insns > 1 {
                self.dispatch_simple(u64::from(op.insns) - 1);
            }
            if self.ports.is_some() && op.has_work() {
                start = self.start_simple(op);
            }
        }
        self.resumes = false;
        if op.flags & flags::SERIALISING != 0 && !self.orders(op) {
            self.drain(below);
        }
        start
    }

    /// Starts the op's operations on ports that belong to no op of their own. The youngest
    /// dispatched instruction retires when all have executed. Returns the slot in which the last
    /// starts.
    #[inline(never)]
    pub(super) fn start_simple(&mut self, op: &Op) -> u64 {
        let Some(ports) = &mut self.ports else {
            return 0;
        };
        let n = op.simple();
        let simple = Simple {
            alu: u64::try_from(i32::from(n) + i32::from(op.work.alu)).unwrap_or(0),
            multiply: op.work.multiply.into(),
            vector: op.work.vector.into(),
            vector_multiply: op.work.vector_multiply.into(),
        };
        let start = ports.start_simple(simple, self.next.saturating_sub(n.into()));
        let done = start + self.width;
        if done >= self.rob.next {
            self.retire_executed_part(done);
        }
        start
    }

    /// Starts an operation that is ready in slot `ready` when its port is free. Returns the slot and
    /// the cycle.
    #[inline(always)]
    pub(super) fn start(&mut self, operation: Operation, ready: u64) -> (u64, Cycle) {
        let cycle = self.cycle(ready);
        if let Some(ports) = &mut self.ports {
            let start = ports.start(operation, cycle);
            if start > cycle {
                return (start * self.width, start);
            }
        }
        (ready, cycle)
    }

    /// True if `op` is part of an atomic that only orders memory accesses.
    #[inline]
    pub(super) fn orders(&self, op: &Op) -> bool {
        self.fences
            && op.flags & flags::SERIALISING != 0
            && matches!(op.kind, OpClass::Load | OpClass::Store)
    }

    /// First slot in which `op`, dispatched at `at`, may access memory: after older atomics have
    /// read, and for an atomic after all older stores are written.
    #[inline(always)]
    pub(super) fn after_fence<B: Below>(&mut self, op: &Op, at: u64, below: &mut B) -> u64 {
        if !self.fences {
            return at;
        }
        let written = if self.orders(op) {
            self.all_written(self.cycle(at), below) * self.width
        } else {
            0
        };
        at.max(self.fenced).max(written)
    }

    /// Drains the window: waits until all older instructions have retired, all older stores are
    /// written, and all flushes and write-combining buffers are done.
    #[cold]
    pub(super) fn drain<B: Below>(&mut self, below: &mut B) {
        self.next = self.next.max(self.rob.next);
        let written = self.all_written(self.cycle(self.next), below);
        self.stall(written * self.width, Cause::StoreQueue);
    }
}

/// Cause to charge for a load that was served at `level`.
#[inline]
fn served(level: Level) -> Cause {
    match level {
        Level::L0 => Cause::L0d,
        Level::L1 => Cause::L1d,
        Level::L2 => Cause::L2,
        Level::L3 => Cause::L3,
        Level::L4 => Cause::L4,
        Level::Remote => Cause::Remote,
        Level::Memory => Cause::Dram,
    }
}
