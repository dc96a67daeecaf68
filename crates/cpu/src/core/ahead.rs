//! Prefetches into the host's caches ahead of functional warming.

use arrayvec::ArrayVec;
use pagewalk_memory::Below;
use pagewalk_mmu::{Ahead, Mmu};
use pagewalk_stream::{Op, OpClass};
use pagewalk_tables::View;
use pagewalk_units::{Asid, LINE_SHIFT, PhysAddr, VirtAddr};

use super::{Core, CoreContext, NO_LINE};

/// Ops that one step of the lookahead takes.
pub(super) const STEP: usize = 16;
/// Steps from an op's address to the last host data that its access reads: page table, private
/// caches, L3.
pub(super) const STEPS: usize = 4;
/// Recently seen lines, direct-mapped: about those of a first-level cache, whose accesses need no
/// lookahead.
const SEEN: usize = 512;
/// Distances of the lines beyond a sequential access that a prefetcher may request.
const BEYOND: std::ops::RangeInclusive<u64> = 3..=4;

/// Addresses found in a step: lines, page-table entries, victims. Addresses beyond its capacity are
/// not prefetched.
type Noted<A> = ArrayVec<A, { 3 * STEP }>;

/// Lookahead over the next ops of functional warming. The host mostly waits for the tags of large
/// caches and for page tables. The lookahead therefore takes the next ops in steps. Each step
/// prefetches into the host's caches the data that the next step reads. It changes no simulated
/// state.
pub(super) struct Lookahead {
    /// The ops: address and number.
    ops: (usize, usize),
    /// Number of the first op that the lookahead has not reached.
    to: usize,
    /// Recently seen lines, which are skipped.
    seen: [u64; SEEN],
    /// The last line.
    line: u64,
    /// The last page. `known`: translation of its first byte.
    page: u64,
    known: Ahead,
    /// Physical addresses of data. `walked`: virtual addresses that no TLB could translate.
    found: Noted<PhysAddr>,
    walked: Noted<VirtAddr>,
    /// Lines to look up in the private caches.
    second: Noted<PhysAddr>,
    /// Lines that will be requested from the L3 or written to it.
    third: Noted<PhysAddr>,
}

impl Lookahead {
    /// A lookahead that has seen no op.
    pub(super) fn new() -> Self {
        Lookahead {
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

    /// Puts the lines that `ops` touch and that were not seen recently into `into`. Returns their
    /// number.
    // No branches on the kind of op: the host would mostly mispredict them.
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

    /// Notes the physical address of `line`, or that it still has to be translated.
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
    /// Looks far enough ahead of `ops[at]` for the host's prefetches to complete in time. Returns
    /// the op before which to look ahead again.
    #[inline(never)]
    pub(super) fn look_ahead<B: Below>(
        &mut self,
        ops: &[Op],
        at: usize,
        context: &CoreContext<'_, B>,
    ) -> usize {
        let these = (ops.as_ptr().addr(), ops.len());
        let l = &mut self.lookahead;
        if l.ops != these || l.to < at || l.to > at + STEPS * STEP {
            l.ops = these;
            l.to = at;
            l.page = NO_LINE;
        }
        while self.lookahead.to < at + STEPS * STEP {
            self.step_ahead(ops, context);
        }
        self.lookahead.to + STEP - STEPS * STEP
    }

    /// One step: serves the addresses of earlier steps, oldest first, and takes the next ops.
    #[inline(always)]
    fn step_ahead<B: Below>(&mut self, ops: &[Op], context: &CoreContext<'_, B>) {
        let l = &mut *self.lookahead;
        let below = &*context.below;
        for at in l.third.drain(..) {
            below.host_prefetch_place(at);
        }
        for at in l.second.drain(..) {
            let (requested, pushed) = self.private.look_below(at, below);
            if requested {
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
            let is_sequential = line == l.line.wrapping_add(1);
            l.line = line;
            l.note(line, &self.mmu, context.asid, context.view);
            if !is_sequential {
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
