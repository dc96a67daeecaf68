//! Flushes of cache lines, non-temporal stores and store fences.

use pagewalk_memory::Below;
use pagewalk_mmu::{Fault, Lookup, is_mapped};
use pagewalk_stream::{FlushKind, Op, UNKNOWN_ADDRESS, flags};
use pagewalk_units::{Access, Cycle, LINE_BYTES, PhysAddr, VirtAddr};

use super::access::bytes;
use super::{Core, CoreContext};
use crate::cycle_stack::Cause;
use crate::time::Time;

impl Core {
    /// Runs a flush: it translates its address as a load does, takes an entry of the store queue,
    /// and leaves after all older stores. Younger stores wait for an ordered one. It is done when its
    /// address is translated.
    #[inline(never)]
    pub(super) fn flush<B: Below>(&mut self, op: &Op, context: &mut CoreContext<'_, B>) {
        self.dispatch_preceding(op, context.below);
        let room = self.stores.room();
        if room.exceeds(self.next) {
            self.stall(room, Cause::StoreQueue);
        }
        let at = self.dispatch(op.insns);
        let start = self.after_inputs(op, at);
        self.flushes.instructions += 1;
        let (Some(kind), false) = (FlushKind::of(op.size), op.va == UNKNOWN_ADDRESS) else {
            self.flushes.dropped_unknown += 1;
            return self.drop_flush(op, at, start);
        };
        let requested = self.cycle(start.real);
        let lookup = Lookup {
            asid: context.asid,
            va: VirtAddr(op.va),
            access: Access::Read,
            pc: op.pc,
            now: requested,
        };
        let walk_context = context.walk_context(&mut self.private);
        let Ok(t) = self.mmu.translate(lookup, walk_context) else {
            self.flushes.dropped_faults += 1;
            return self.drop_flush(op, at, start);
        };
        let mut done = start + self.width;
        if t.ready > requested {
            done.real = done.real.max((t.ready + 1) * self.width);
            let waited = self.translation_wait(requested, t.walk_start, t.ready);
            self.record_wait(done, &waited);
        }
        self.complete(done);
        let slot = self.retire_executed(op.insns, at, done);
        let begin = self.cycles(slot).max(self.stores.last_commit + 1);
        let flushed = self.private.flush(t.pa, kind, begin.real, context.below);
        self.flushes.present += u64::from(flushed.present);
        let end = begin.moved_to(flushed.at);
        self.flushed = self.flushed.max(end);
        let leaves = if kind == FlushKind::Ordered {
            end
        } else {
            begin
        };
        self.stores.last_commit = leaves;
        self.stores.enter(leaves * self.width);
    }

    /// Runs a flush that does nothing.
    fn drop_flush(&mut self, op: &Op, at: Time, start: Time) {
        let done = start + self.width;
        self.complete(done);
        let slot = self.retire_executed(op.insns, at, done);
        self.stores.enter(slot);
    }

    /// Functional warming by a flush.
    #[inline(never)]
    pub(super) fn warm_flush<B: Below>(&mut self, op: &Op, context: &mut CoreContext<'_, B>) {
        let (va, kind) = (VirtAddr(op.va), FlushKind::of(op.size));
        let Some(kind) = kind.filter(|_| is_mapped(context.view, va)) else {
            return;
        };
        if let Ok(at) = self.warm_translation(op.va, Access::Read, op.pc, context) {
            self.private.warm_flush(at, kind, context.below);
        }
    }

    /// Writes a non-temporal store, which retired at `retired`, to a write-combining buffer. Returns
    /// the cycle at which it has left the store queue.
    #[inline(never)]
    pub(super) fn store_past_caches<B: Below>(
        &mut self,
        at: PhysAddr,
        within: (u8, u8),
        retired: Cycle,
        below: &mut B,
    ) -> Cycle {
        let begin = retired.max(self.stores.last_commit.real + 1);
        self.private.store_past_caches(at, within, begin, below)
    }

    /// Functional warming by a non-temporal store.
    #[inline(never)]
    pub(super) fn warm_past_caches<B: Below>(
        &mut self,
        op: &Op,
        context: &mut CoreContext<'_, B>,
    ) -> Result<(), Fault> {
        let at = self.warm_translation(op.va, Access::Write, op.pc, context)?;
        self.private.warm_store_past_caches(at, context.below);
        if bytes(op).1 >= LINE_BYTES {
            let va = (op.va | (LINE_BYTES - 1)) + 1;
            let at = self.warm_translation(va, Access::Write, op.pc, context)?;
            self.private.warm_store_past_caches(at, context.below);
        }
        Ok(())
    }

    /// Cycle at which all older stores are written, and all flushes and write-combining buffers are
    /// done. A fence at `now` writes the buffers.
    pub(super) fn all_written<B: Below>(&mut self, now: Time, below: &mut B) -> Time {
        let stored = self.stores.last_commit;
        let begin = now.max(stored);
        let drained = self.private.drain_write_combining(begin.real, below);
        stored.max(self.flushed).max(begin.moved_to(drained))
    }

    /// Executes a fence before its op is dispatched: one that serialises drains the window, another
    /// only holds back younger stores.
    #[cold]
    pub(super) fn fence<B: Below>(&mut self, op: &Op, below: &mut B) {
        if op.flags & flags::SERIALISING != 0 {
            self.drain(below);
        } else {
            let now = self.cycles(self.rob.next);
            self.stores.last_commit = self.all_written(now, below);
        }
    }
}
