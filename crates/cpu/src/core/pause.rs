//! Pauses of the program: kernel time, idle time and context switches.

use pagewalk_units::Cycle;

use super::{Core, NO_LINE};
use crate::cycle_stack::Cause;

impl Core {
    /// Empties the window: all dispatched instructions retire, and the front end's stalls end.
    pub(super) fn empty(&mut self) {
        let begin = self.rob.next.max(self.next);
        let from = self.charge_front(self.rob.next, begin);
        self.charge(from, begin, Cause::Compute);
        self.rob.empty_until(begin);
        self.next = begin;
        self.barrier_count = 0;
    }

    /// Runs the kernel for `cycles`, after emptying the window (fault, system call, context
    /// switch). After a fault the kernel starts when the hardware has detected it.
    pub fn kernel(&mut self, cycles: Cycle) {
        self.empty();
        let found_out = std::mem::take(&mut self.fault_at) * self.width;
        let from = self.charge(self.next, found_out, Cause::Walk);
        self.next = self.charge(from, from + cycles * self.width, Cause::Kernel);
        self.rob.empty_until(self.next);
    }

    /// Idles until `until`.
    pub fn idle(&mut self, until: Cycle) {
        let slot = until * self.width;
        if slot > self.rob.next {
            let from = self.charge_front(self.rob.next, slot);
            self.charge(from, slot, Cause::Idle);
            self.rob.empty_until(slot);
        }
        self.next = self.next.max(slot);
    }

    /// Switches to another thread: clears dependences, store queue and return stack.
    pub fn switch(&mut self) {
        self.done.fill(0);
        self.stores.forget();
        self.predictor.forget_calls();
        if let Some(w) = &mut self.wrong {
            w.switch();
        }
        self.line = NO_LINE;
        self.target = NO_LINE;
        self.resumes = false;
        self.fault_at = 0;
    }
}
