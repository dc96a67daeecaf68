//! Pauses of the program: kernel time, idle time and context switches.

use pagewalk_units::Cycle;

use super::{Core, NO_LINE};
use crate::cycle_stack::{Cause, TranslationWait};
use crate::time::Time;

impl Core {
    /// Empties the window: all dispatched instructions retire, and the front end's stalls end.
    pub(super) fn empty(&mut self) {
        let begin = self.rob.next.max(self.next);
        self.wait_to_retire(begin, begin);
        self.rob.empty_until(begin);
        self.next = begin;
        self.barrier_count = 0;
    }

    /// Runs the kernel for `cycles`, after emptying the window (fault, system call, context
    /// switch). After a fault the kernel starts when the hardware has detected it.
    pub fn kernel(&mut self, cycles: Cycle) {
        self.empty();
        let found_out = std::mem::take(&mut self.fault_at) * self.width;
        if found_out > self.next.real {
            self.waited = TranslationWait::walk(self.cycle(self.next.real), found_out / self.width);
            self.next.real = found_out;
            self.wait_to_retire(self.next, self.next);
            self.rob.empty_until(self.next);
        }
        self.stack.add(Cause::Kernel, cycles * self.width);
        self.next = self.next + cycles * self.width;
        self.rob.empty_until(self.next);
    }

    /// Idles until `until`, in both clocks.
    pub fn idle(&mut self, until: Cycle) {
        let slot = Time::both(until * self.width);
        if slot.real > self.rob.next.real {
            // The idle time hides what translations have cost so far.
            let from = self.charge_front(self.rob.next.real, slot.ideal);
            self.charge(from, slot.ideal, Cause::Idle);
        }
        self.rob.empty_until(slot);
        self.next = self.next.max(slot);
    }

    /// Switches to another thread: clears dependences, store queue and return stack.
    pub fn switch(&mut self) {
        self.done.fill(Time::default());
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
