//! What warming will touch, told to the host before.

use arrayvec::ArrayVec;
use pagewalk_memory::Below;
use pagewalk_mmu::{Ahead, Mmu};
use pagewalk_stream::{Op, OpClass};
use pagewalk_tables::View;
use pagewalk_units::{Asid, LINE_SHIFT, PhysAddr, VirtAddr};

use super::{Core, CoreContext, NO_LINE};

/// Ops looked at in a step.
pub(super) const STEP: usize = 16;
/// Steps from an address to the last thing that it leads to.
pub(super) const STEPS: usize = 4;
/// Lines that were seen last, direct-mapped: as many as a first-level cache has, mostly those.
const SEEN: usize = 512;
/// Lines beyond one that goes on with the line before, for which a prefetcher may ask with it.
const BEYOND: std::ops::RangeInclusive<u64> = 3..=4;

/// Addresses of a step: lines, entries of page tables, lines pushed out. Where they do not
/// fit, the host is told of some the fewer.
type Noted<A> = ArrayVec<A, { 3 * STEP }>;

/// A core that warms knows the ops to come, and its time is mostly the host's wait for tags of
/// large caches and for page tables. So it goes through the ops to come in steps of their own,
/// each of which tells the host of what the next one reads. Nothing that is simulated depends on
/// it.
pub(super) struct Lookout {
    /// Of which ops: address and number.
    ops: (usize, usize),
    /// Ops that have been looked at.
    to: usize,
    /// Lines of addresses that need not be looked at again.
    seen: [u64; SEEN],
    /// The last line that was.
    line: u64,
    /// The last page that was, and what is known of its first byte.
    page: u64,
    known: Ahead,
    /// Where data lie, and addresses that are still to be translated.
    found: Noted<PhysAddr>,
    walked: Noted<VirtAddr>,
    /// Lines that the first level lacks.
    second: Noted<PhysAddr>,
    /// Lines that the L3 will be asked for, or given.
    third: Noted<PhysAddr>,
}

impl Lookout {
    pub(super) fn new() -> Self {
        Lookout {
            ops: (0, 0),
            to: 0,
            seen: [NO_LINE; SEEN],
            line: NO_LINE,
            page: NO_LINE,
            known: Ahead::Unknown,
            found: Noted::new(),
            walked: Noted::new(),
            second: Noted::new(),
            third: Noted::new(),
        }
    }

    /// Lines that `ops` touch and that have not been seen lately; how many.
    // Without branches on what the ops are, which the host would mostly foresee wrongly.
    #[inline(always)]
    fn lines(&mut self, ops: &[Op], into: &mut [u64; STEP]) -> usize {
        let mut n = 0;
        for op in ops.iter().take(STEP) {
            let memory = (op.kind == OpClass::Load) | (op.kind == OpClass::Store);
            let line = op.va >> LINE_SHIFT;
            let seen = &mut self.seen[line as usize % SEEN];
            let new = memory & (*seen != line);
            *seen = if memory { line } else { *seen };
            into[n] = line;
            n += usize::from(new);
        }
        n
    }

    /// Notes where the data at `line` lie, or that a walk will tell.
    #[inline(always)]
    fn note(&mut self, line: u64, mmu: &Mmu, asid: Asid, view: &View<'_>) {
        let va = line << LINE_SHIFT;
        if va >> 12 != self.page {
            self.page = va >> 12;
            self.known = mmu.look_ahead(asid, VirtAddr(va & !0xfff), view);
        }
        match self.known {
            Ahead::Known(first) => {
                let _ = self.found.try_push(PhysAddr(first.0 | va & 0xfff));
            }
            Ahead::Walked => {
                let _ = self.walked.try_push(VirtAddr(va));
            }
            Ahead::Unknown => {}
        }
    }
}

impl Core {
    /// Looks so far ahead of `ops[at]` that the host has been told in time; gives the op before
    /// which to look again.
    #[inline(never)]
    pub(super) fn look_out<B: Below>(
        &mut self,
        ops: &[Op],
        at: usize,
        context: &CoreContext<'_, B>,
    ) -> usize {
        let these = (ops.as_ptr().addr(), ops.len());
        let l = &mut self.lookout;
        if l.ops != these || l.to < at || l.to > at + STEPS * STEP {
            l.ops = these;
            l.to = at;
            l.page = NO_LINE;
        }
        while self.lookout.to < at + STEPS * STEP {
            self.step_ahead(ops, context);
        }
        self.lookout.to + STEP - STEPS * STEP
    }

    #[inline(always)]
    fn step_ahead<B: Below>(&mut self, ops: &[Op], context: &CoreContext<'_, B>) {
        let l = &mut *self.lookout;
        let below = &*context.below;
        for at in l.third.drain(..) {
            below.host_prefetch_place(at);
        }
        for at in l.second.drain(..) {
            let (asked, pushed) = self.private.look_below(at, below);
            if asked {
                let _ = l.third.try_push(at);
            }
            if let Some(pushed) = pushed {
                let _ = l.third.try_push(pushed);
            }
        }
        let mut entry = NO_LINE;
        for va in l.walked.drain(..) {
            let Some([at, leaf]) = self.mmu.look_through(va, context.view) else {
                continue;
            };
            if leaf.0 >> LINE_SHIFT != entry {
                entry = leaf.0 >> LINE_SHIFT;
                self.private.look_ahead(leaf);
                let _ = l.second.try_push(leaf);
            }
            self.private.look_ahead(at);
            let _ = l.second.try_push(at);
        }
        for at in l.found.drain(..) {
            self.private.look_ahead(at);
            let _ = l.second.try_push(at);
        }
        if below.warms_later() {
            l.second.clear();
        }
        let ops = ops.get(l.to..).unwrap_or_default();
        l.to += STEP;
        let mut lines = [0; STEP];
        let n = l.lines(ops, &mut lines);
        for &line in &lines[..n] {
            let goes_on = line == l.line.wrapping_add(1);
            l.line = line;
            l.note(line, &self.mmu, context.asid, context.view);
            if !goes_on {
                continue;
            }
            for line in BEYOND.map(|far| line.wrapping_add(far)) {
                let seen = &mut l.seen[line as usize % SEEN];
                if line >> (12 - LINE_SHIFT) == l.page && *seen != line {
                    *seen = line;
                    l.note(line, &self.mmu, context.asid, context.view);
                }
            }
        }
    }
}
