//! The window: dispatch, waits and retirement of an instruction, and their accounting in the cycle
//! stack.

use pagewalk_memory::{Below, Level};
use pagewalk_stream::{Op, OpClass, PortWork, flags};
use pagewalk_units::Cycle;

use super::{BARRIERS, Barrier, Core, Waits};
use crate::cycle_stack::{Cause, TranslationWait};
use crate::ports::Operation;
use crate::time::Time;

impl Core {
    /// Stalls the front end until `slot`.
    #[cold]
    pub(super) fn stall(&mut self, slot: Time, cause: Cause) {
        let until = slot.ideal;
        let stalls = until > self.next.ideal;
        self.next = self.next.max(slot);
        if !stalls {
            return;
        }
        let barrier = Barrier { until, cause };
        let retired = self.rob.next.ideal;
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

    /// Charges the slots from `from` to `slot` of the ideal clock to `cause`. Returns the later of
    /// both.
    #[inline]
    pub(super) fn charge(&mut self, from: u64, slot: u64, cause: Cause) -> u64 {
        if slot <= from {
            return from;
        }
        self.stack.add(cause, slot - from);
        slot
    }

    /// Charges the slots between `from` and `slot` of the ideal clock that stalls of the front end
    /// have lost. Returns the first slot that is not charged.
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
            let Barrier { until, cause } = self.barriers[i];
            from = self.charge(from, until.min(slot), cause);
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
        if n <= room && !(at + self.width).exceeds(first) {
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
    pub(super) fn wait_to_retire(&mut self, at: Time, slot: Time) {
        if slot != self.rob.next {
            self.account_execution(at, slot);
        }
    }

    /// Charges the slots until `slot` to stalls of the front end before `at`, and to execution.
    // Not inlined: in a loop the compiler would keep everything that this may change in registers.
    #[inline(never)]
    pub(super) fn account_execution(&mut self, at: Time, slot: Time) {
        let from = self.charge_translation(slot);
        let from = self.charge_front(from, at.ideal);
        self.charge(from, slot.ideal, Cause::Compute);
    }

    /// Charges to translation those of the slots before `slot` that only the real clock loses. The
    /// next instruction retires in `slot`. The remaining lost slots have other causes. Returns the
    /// first of them in the ideal clock.
    ///
    /// The ideal clock may lose more slots than the real one, because a translation hid another
    /// wait. The translation then cost less than was charged to it, and later charges are lower.
    #[inline(always)]
    fn charge_translation(&mut self, slot: Time) -> u64 {
        let next = self.rob.next;
        let (real, ideal) = (slot.real - next.real, slot.ideal - next.ideal);
        if real == ideal {
            return next.ideal;
        }
        slot.ideal - self.charge_lag(real, ideal)
    }

    /// As [`Core::charge_translation`], if the clocks lose `real` and `ideal` slots. Returns the
    /// number of slots with other causes.
    #[inline(never)]
    fn charge_lag(&mut self, real: u64, ideal: u64) -> u64 {
        let Some(more) = real.checked_sub(ideal) else {
            self.overcharged += ideal - real;
            return real;
        };
        let paid = more.min(self.overcharged);
        self.overcharged -= paid;
        self.stack.translation(&self.waited, more - paid);
        ideal + paid
    }

    /// Records a wait for a translation, if it delays the retirement of the next instruction, which
    /// retires in `slot` or later.
    #[inline]
    pub(super) fn record_wait(&mut self, slot: Time, waited: &TranslationWait) {
        if waited.known > waited.requested && slot.lag() > self.rob.next.lag() {
            self.waited = *waited;
        }
    }

    /// Dispatches the op's own instruction after the simple ones, and returns its slot. `needed`:
    /// the op's instructions; 0 for a further micro-operation of the previous instruction.
    #[inline(always)]
    pub(super) fn dispatch(&mut self, needed: u16) -> Time {
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
    pub(super) fn retire(
        &mut self,
        insns: u16,
        at: Time,
        done: Time,
        waits: impl FnOnce() -> Waits,
    ) -> Time {
        if insns == 0 {
            return self.retire_part(done, &waits());
        }
        self.next = at + 1;
        let done = done.max(at + self.width);
        if done.exceeds(self.rob.next) {
            return self.retire_late(done, &waits());
        }
        self.rob.retire_next()
    }

    /// As [`Core::retire`], if the instruction delays retirement.
    #[inline(never)]
    fn retire_late(&mut self, done: Time, waits: &Waits) -> Time {
        let slot = self.rob.next.max(done);
        self.account(slot, waits);
        self.rob.retire(slot, 1);
        slot
    }

    /// As [`Core::retire`], for an instruction that only waited for its inputs and executed.
    #[inline(always)]
    pub(super) fn retire_executed(&mut self, insns: u16, at: Time, done: Time) -> Time {
        if insns == 0 {
            return self.retire_executed_part(done);
        }
        self.next = at + 1;
        let done = done.max(at + self.width);
        if done.exceeds(self.rob.next) {
            return self.retire_executed_late(done);
        }
        self.rob.retire_next()
    }

    /// As [`Core::retire_executed`], if the instruction delays retirement.
    #[inline(never)]
    fn retire_executed_late(&mut self, done: Time) -> Time {
        let slot = self.rob.next.max(done);
        self.account_execution(slot, slot);
        self.rob.retire(slot, 1);
        slot
    }

    /// Retires a further micro-operation, done at `done`. If its instruction would retire before
    /// that, its retirement is delayed, and its former slot is lost.
    #[inline(never)]
    pub(super) fn retire_part(&mut self, done: Time, waits: &Waits) -> Time {
        let next = self.rob.next.max(done + 1);
        if next != self.rob.next {
            self.account(next, waits);
            self.rob.delay_last(next);
        }
        next.wrapping_sub(1)
    }

    /// As [`Core::retire_part`], for a micro-operation that only waited for its inputs and
    /// executed.
    #[inline(never)]
    pub(super) fn retire_executed_part(&mut self, done: Time) -> Time {
        let next = self.rob.next.max(done + 1);
        if next != self.rob.next {
            self.account_execution(next, next);
            self.rob.delay_last(next);
        }
        next.wrapping_sub(1)
    }

    /// Charges the slots until `slot` to their causes.
    #[inline(always)]
    fn account(&mut self, slot: Time, waits: &Waits) {
        let from = self.charge_translation(slot);
        let slot = slot.ideal;
        let from = self.charge_front(from, slot);
        let from = self.charge(from, waits.start.min(slot), Cause::Compute);
        if from < slot {
            let mut split = self.stack.split((waits.start, from, slot));
            split.part(Cause::MissRegister, waits.admitted);
            split.part(Cause::DramQueue, waits.queued.min(waits.data));
            split.part(served(waits.level), waits.data);
            split.rest(Cause::Compute);
        }
    }

    /// Adds an op that is done at `done`, for those that need its value.
    #[inline(always)]
    pub(super) fn complete(&mut self, done: Time) {
        self.done.set(self.op_count, done);
        self.op_count += 1;
    }

    /// `from`, or the later slot at which the value of producer `k` of `op` is ready.
    #[inline(always)]
    pub(super) fn after_input(&self, op: &Op, k: usize, from: Time) -> Time {
        let d = usize::from(op.dep[k]);
        if d == 0 || d >= self.done.len() || d > self.op_count {
            return from;
        }
        from.max(self.done.get(self.op_count - d) + u64::from(op.dep_latency[k]) * self.width)
    }

    /// `from`, or the later slot at which the values of all producers of `op` are ready.
    #[inline(always)]
    pub(super) fn after_inputs(&self, op: &Op, from: Time) -> Time {
        self.after_input(op, 1, self.after_input(op, 0, from))
    }

    /// Dispatches the simple instructions before the op's own, and drains the window for a fence.
    /// Returns the slot in which the last of them finds a port; 0 if ports are not limited.
    #[inline(always)]
    pub(super) fn dispatch_preceding<B: Below>(&mut self, op: &Op, below: &mut B) -> Time {
        let mut start = Time::default();
        if self.resumes {
            self.resumes = false;
        } else {
            if op.insns > 1 {
                self.dispatch_simple(u64::from(op.insns) - 1);
            }
            if self.ports.is_some() && op.has_work() {
                start = self.start_simple(op);
            }
        }
        if op.flags & flags::SERIALISING != 0 && !self.orders(op) {
            self.drain(below);
        }
        start
    }

    /// Starts the op's operations on ports that belong to no op of their own. The youngest
    /// dispatched instruction retires when all have executed. Returns the slot in which the last
    /// starts.
    #[inline(always)]
    pub(super) fn start_simple(&mut self, op: &Op) -> Time {
        let Some(ports) = &mut self.ports else {
            return Time::default();
        };
        let n = op.simple();
        let ready = self.next.wrapping_sub(n.into());
        let start = if op.work == PortWork::default() {
            ready.delayed_to(ports.start_alu(n.into(), ready.real))
        } else {
            ready.moved_to(ports.start_simple(n, op.work, ready.real))
        };
        let done = start + self.width;
        if done.real >= self.rob.next.real || done.ideal >= self.rob.next.ideal {
            self.retire_executed_part(done);
        }
        start
    }

    /// Starts an operation that is ready in slot `ready` when its port is free. Returns the slot and
    /// the cycle.
    #[inline(always)]
    pub(super) fn start(&mut self, operation: Operation, ready: Time) -> (Time, Cycle) {
        let cycle = self.cycle(ready.real);
        if let Some(ports) = &mut self.ports {
            let start = ports.start(operation, cycle);
            if start > cycle {
                return (ready.delayed_to(start * self.width), start);
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
    pub(super) fn after_fence<B: Below>(&mut self, op: &Op, at: Time, below: &mut B) -> Time {
        if !self.fences {
            return at;
        }
        let written = if self.orders(op) {
            self.all_written(self.cycles(at), below) * self.width
        } else {
            Time::default()
        };
        at.max(self.fenced).max(written)
    }

    /// Drains the window: waits until all older instructions have retired, all older stores are
    /// written, and all flushes and write-combining buffers are done.
    #[cold]
    pub(super) fn drain<B: Below>(&mut self, below: &mut B) {
        self.next = self.next.max(self.rob.next);
        let written = self.all_written(self.cycles(self.next), below);
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
