//! Instruction fetch, a line at a time.

use pagewalk_memory::{Below, Request, RequestKind};
use pagewalk_mmu::{Fault, Lookup};
use pagewalk_stream::Op;
use pagewalk_units::{Access, LINE_BYTES, LINE_SHIFT, VirtAddr};

use super::{Core, CoreContext, LONGEST, NO_LINE};
use crate::cycle_stack::{Cause, TranslationWait};
use crate::time::Time;

impl Core {
    /// First line to fetch for this op: the line after `self.line`, or the target of a taken
    /// branch. If that is too far from the op's own line, only the op's line is fetched.
    pub(super) fn first_line(&self, op: &Op) -> u64 {
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

    /// Fetches the lines after the last fetched one, up to this op's. The front end does not fetch
    /// ahead: it requests a line when the line's first instruction is next to dispatch, one line
    /// after the other. The pipeline hides the latency of a hit, and nothing beyond it.
    #[inline(never)]
    pub(super) fn fetch_lines<B: Below>(
        &mut self,
        op: &Op,
        context: &mut CoreContext<'_, B>,
    ) -> Result<(), Fault> {
        let last = op.pc >> LINE_SHIFT;
        let mut line = self.first_line(op);
        while line <= last {
            let now = self.cycle(self.next.real);
            let lookup = Lookup {
                asid: context.asid,
                va: VirtAddr(line << LINE_SHIFT),
                access: Access::Fetch,
                pc: op.pc,
                now,
            };
            let walk_context = context.walk_context(&mut self.private);
            let t = self.mmu.translate(lookup, walk_context)?;
            let request = Request {
                at: t.pa,
                kind: RequestKind::Fetch,
                core: self.core,
                pc: op.pc,
            };
            let done = self.private.access(request, t.ready, context.below);
            self.stats.fetched_lines += 1;
            let late = done.at.saturating_sub(self.fetch_to_use).max(t.ready);
            if late > now {
                // In the ideal clock the line is requested at once.
                let requested = self.next.moved_to(now * self.width).ideal;
                let slot = Time {
                    real: late * self.width,
                    ideal: requested + (late - t.ready) * self.width,
                };
                self.stall(slot, Cause::Fetch);
                if t.ready > now {
                    let waited = TranslationWait {
                        requested: now,
                        lookup_done: now + self.mmu.tlb_lookup_done(Access::Fetch),
                        walk_start: t.walk_start,
                        known: t.ready,
                    };
                    self.record_wait(self.next, &waited);
                }
            }
            self.line = line;
            self.target = NO_LINE;
            line += 1;
        }
        Ok(())
    }
}
