//! Software prefetches.

use pagewalk_memory::{Below, Request, RequestKind, SoftwarePrefetched};
use pagewalk_mmu::{Lookup, is_mapped};
use pagewalk_stream::{Op, PrefetchHint, UNKNOWN_ADDRESS};
use pagewalk_units::{Access, PhysAddr, VirtAddr};

use super::{Core, CoreContext};
use crate::ports::Operation;

impl Core {
    /// Runs a software prefetch: it takes an entry of the load queue, and retires as soon as its
    /// address is known. Its translation and its line come later.
    #[inline(never)]
    pub(super) fn prefetch<B: Below>(&mut self, op: &Op, context: &mut CoreContext<'_, B>) {
        self.dispatch_preceding(op, context.below);
        let oldest = self.load_count.wrapping_sub(self.load_queue);
        self.next = self.next.max(self.loads.get(oldest as usize));
        let at = self.dispatch(op.insns);
        let start = self.after_inputs(op, at);
        let (start, _) = self.start(Operation::Load, start);
        let done = start + self.width;
        self.complete(done);
        let slot = self.retire_executed(op.insns, at, done);
        self.add_load(slot);
        self.prefetches.instructions += 1;
        let (Some(hint), false) = (PrefetchHint::of(op.size), op.va == UNKNOWN_ADDRESS) else {
            self.prefetches.dropped_unknown += 1;
            return;
        };
        let lookup = Lookup {
            asid: context.asid,
            va: VirtAddr(op.va),
            access: Access::Read,
            pc: op.pc,
            now: self.cycle(start.real),
        };
        let walk_context = context.walk_context(&mut self.private);
        let Ok(translated) = self.mmu.translate(lookup, walk_context) else {
            self.prefetches.dropped_faults += 1;
            return;
        };
        let request = self.prefetch_request(op, translated.pa);
        let outcome =
            self.private
                .software_prefetch(request, hint, translated.ready, context.below);
        *match outcome {
            SoftwarePrefetched::Requested => &mut self.prefetches.requested,
            SoftwarePrefetched::Present => &mut self.prefetches.present,
            SoftwarePrefetched::Dropped => &mut self.prefetches.dropped_mshrs,
        } += 1;
    }

    /// Functional warming by a software prefetch.
    #[inline(never)]
    pub(super) fn warm_prefetch<B: Below>(&mut self, op: &Op, context: &mut CoreContext<'_, B>) {
        let (va, hint) = (VirtAddr(op.va), PrefetchHint::of(op.size));
        let Some(hint) = hint.filter(|_| is_mapped(context.view, va)) else {
            return;
        };
        if let Ok(at) = self.warm_translation(op.va, Access::Read, op.pc, context) {
            let request = self.prefetch_request(op, at);
            self.private
                .warm_software_prefetch(request, hint, context.below);
        }
    }

    fn prefetch_request(&self, op: &Op, at: PhysAddr) -> Request {
        Request {
            at,
            kind: RequestKind::SoftwarePrefetch,
            core: self.core,
            pc: op.pc,
        }
    }
}
