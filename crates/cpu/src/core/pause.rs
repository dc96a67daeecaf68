//! What happens between stretches of a program.

use pagewalk_units::Cycle;

use super::{Core, NO_LINE};
use crate::cycle_stack::Cause;

impl Core {
    /// The window empties: all that was dispatched retires, and the front end
    /// has overcome what held it up.
    pub(super) fn empty(&mut self) {
        let begin = self.rob.next.max(self.next);
        let from = self.charge_front(self.rob.next, begin);
        self.charge(from, begin, Cause::Compute);
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
        let from = self.charge(self.next, found_out, Cause::Walk);
        self.next = self.charge(from, from + cycles * self.width, Cause::Kernel);
        self.rob.empty_until(self.next);
    }

    /// Nothing to run until `until`.
    pub fn idle(&mut self, until: Cycle) {
        let slot = until * self.width;
        if slot > self.rob.next {
            let from = self.charge_front(self.rob.next, slot);
            self.charge(from, slot, Cause::Idle);
            self.rob.empty_until(slot);
        }
        self.next = self.next.max(slot);
    }

    /// Another thread comes: dependences, store queue and return stack are forgotten.
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
