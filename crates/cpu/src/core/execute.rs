//! Arithmetic and branches.

use pagewalk_memory::Below;
use pagewalk_stream::{Op, flags};
use pagewalk_units::LINE_SHIFT;

use super::{Core, CoreContext, NO_LINE};
use crate::cycle_stack::Cause;
use crate::ports::Operation;
use crate::time::Time;

impl Core {
    /// Executes `insns` instructions whose dependence chain of `latency` cycles is spread evenly
    /// over them.
    #[inline(never)]
    pub(super) fn compute<B: Below>(&mut self, op: &Op, below: &mut B) {
        if op.flags & (flags::SERIALISING | flags::STORE_FENCE) != 0 {
            self.fence(op, below);
        }
        let n = u64::from(op.insns);
        let inputs = self.after_inputs(op, Time::default());
        let chain = u64::from(op.latency) * self.width;
        if n == 0 {
            let done = self.after_ports(op, self.next.max(inputs) + chain);
            self.retire_executed_part(done);
            self.complete(done);
            if op.flags & flags::MICROCODE != 0 {
                self.next = self.next.max(done);
            }
            return;
        }
        let (free, room) = self.rob.room();
        let at = self.next.max(free);
        let ready = at.max(inputs) + chain;
        let first = self.rob.next.max(at + self.width);
        let done = if room >= n && !ready.exceeds(first) {
            // The chain delays nothing: all retire back to back.
            self.wait_to_retire(at, first);
            self.rob.retire(first, n);
            self.next = at + n;
            ready.max(at + (n - 1 + self.width))
        } else if n == 1 {
            let done = ready.max(at + self.width);
            self.retire_executed(1, at, done);
            done
        } else {
            self.step_through(n, u64::from(op.latency), inputs)
        };
        let done = self.after_ports(op, done);
        self.complete(done);
        if op.flags & (flags::SERIALISING | flags::MICROCODE) != 0 {
            self.next = self.next.max(done);
        }
    }

    /// Slot in which a compute op is done that would be done at `done` with any number of ports.
    #[inline(always)]
    fn after_ports(&mut self, op: &Op, done: Time) -> Time {
        if self.ports.is_none() || !op.has_work() {
            return done;
        }
        done.max(self.start_simple(op) + self.width)
    }

    /// As [`Core::compute`], instruction by instruction: number k of n is done after the first
    /// ceil(k latency / n) cycles of the chain.
    #[inline(never)]
    pub(super) fn step_through(&mut self, n: u64, latency: u64, inputs: Time) -> Time {
        let mut chain = inputs;
        let mut done = inputs;
        // k * latency - n * (cycles used so far): at most zero after each instruction.
        let mut owed = 0i64;
        let (mut at, mut room) = (self.next, 0);
        for _ in 0..n {
            // `room` entries become free in consecutive slots.
            if room == 0 {
                let free;
                (free, room) = self.rob.room();
                at = at.max(free);
            }
            room -= 1;
            chain = chain.max(at);
            owed += latency as i64;
            while owed > 0 {
                owed -= n as i64;
                chain = chain + self.width;
            }
            done = chain.max(at + self.width);
            if done.exceeds(self.rob.next) {
                let slot = self.rob.next.max(done);
                self.account_execution(at, slot);
                self.rob.retire(slot, 1);
            } else {
                self.rob.retire_next();
            }
            at = at + 1;
        }
        self.next = at;
        done
    }

    /// Runs the branch `ops[number]`, with its wrong path if it is mispredicted.
    #[inline(never)]
    pub(super) fn branch<B: Below>(
        &mut self,
        ops: &[Op],
        number: usize,
        context: &mut CoreContext<'_, B>,
    ) {
        let op = &ops[number];
        // The condition comes from the last simple instructions.
        let preceding = self.dispatch_preceding(op, context.below);
        let at = self.dispatch(op.insns);
        let start = self.start_branch(op, self.after_inputs(op, at.max(preceding)));
        let done = start + u64::from(op.latency.max(1)) * self.width;
        self.retire_executed(op.insns, at, done);
        self.stats.branches += 1;
        if !self.predictor.predict(op, true) {
            self.stats.mispredictions += 1;
            if self.wrong.is_some() {
                self.go_wrong(ops, number, done.real, context);
            }
            self.stall(done + self.penalty, Cause::Branch);
        }
        if op.flags & flags::SERIALISING != 0 {
            self.next = self.next.max(done);
        }
        self.redirect(op);
        self.complete(done);
    }

    /// Slot in which a branch starts whose inputs are ready in slot `ready`.
    #[inline(always)]
    fn start_branch(&mut self, op: &Op, ready: Time) -> Time {
        if self.ports.is_none() {
            return ready;
        }
        let operation = if is_taken(op) {
            Operation::TakenBranch
        } else {
            Operation::Branch
        };
        self.start(operation, ready).0
    }

    /// Redirects fetch to the target of a taken branch.
    #[inline]
    pub(super) fn redirect(&mut self, op: &Op) {
        if is_taken(op) && op.va >> LINE_SHIFT != self.line {
            self.line = NO_LINE;
            self.target = op.va >> LINE_SHIFT;
        }
    }
}

#[inline(always)]
fn is_taken(op: &Op) -> bool {
    op.flags & flags::TAKEN != 0 || op.flags & flags::CONDITIONAL == 0
}
