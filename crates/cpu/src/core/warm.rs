//! Functional warming.

use arrayvec::ArrayVec;
use pagewalk_memory::{Below, Request, RequestKind};
use pagewalk_mmu::Fault;
use pagewalk_stream::{Op, OpClass, flags};
use pagewalk_structures::StaleOutcomes;
use pagewalk_tables::View;
use pagewalk_units::{Access, LINE_BYTES, LINE_SHIFT, PhysAddr, VirtAddr};

use super::access::bytes;
use super::{Core, CoreContext, NO_LINE, Ran, Stop};
use crate::time::Time;

/// Accesses in a step of [`Core::warm_lines`]. A step first translates all its accesses, and then
/// warms the caches. The final state depends on where steps begin, so they begin at multiples of
/// this number.
pub const TOGETHER: usize = 16;
/// log2 of the bytes of the smallest page.
const PAGE_SHIFT: u32 = 12;

#[inline(always)]
fn kind_of(access: Access) -> RequestKind {
    match access {
        Access::Read => RequestKind::Load,
        Access::Write => RequestKind::Store,
        Access::Fetch => RequestKind::Fetch,
    }
}

/// The 4 KB page that was translated last.
#[derive(Clone, Copy)]
struct LastPage {
    page: u64,
    /// Kind of access for which it was translated.
    access: Access,
    frame: u64,
}

impl LastPage {
    const NONE: LastPage = LastPage {
        page: NO_LINE,
        access: Access::Read,
        frame: 0,
    };

    fn of(va: u64, access: Access, at: PhysAddr) -> Self {
        LastPage {
            page: va >> PAGE_SHIFT,
            access,
            frame: at.0 >> PAGE_SHIFT,
        }
    }

    /// True if `va` lies in the page and `access` is permitted.
    #[inline(always)]
    fn allows(self, va: u64, access: Access) -> bool {
        va >> PAGE_SHIFT == self.page
            && (access == self.access || access == Access::Read && self.access == Access::Write)
    }

    #[inline(always)]
    fn place(self, va: u64) -> PhysAddr {
        PhysAddr(self.frame << PAGE_SHIFT | va & ((1 << PAGE_SHIFT) - 1))
    }
}

impl Core {
    /// Runs `ops[at..]` in functional warming until [`Core::instructions`] reaches `limit`: updates
    /// TLBs, caches and predictors in program order. The window is emptied first, and later
    /// instructions have no dependences on warmed ones. The clock advances by `cpi_milli`/1000
    /// cycles an instruction. Only instructions are counted. A fault is as in [`Core::run`], at the
    /// time of the latest walk.
    // Not inlined: timed execution would otherwise save and restore the registers that this needs.
    #[inline(never)]
    pub fn warm<B: Below>(
        &mut self,
        ops: &[Op],
        mut at: usize,
        limit: u64,
        cpi_milli: u64,
        mut context: CoreContext<'_, B>,
    ) -> Ran {
        let context = &mut context;
        self.private.set_instructions(self.instructions());
        self.begin_warming();
        let before = self.warmed;
        let limit = limit.saturating_sub(self.rob.count);
        if let Some(w) = &mut self.wrong {
            w.begin(context.asid, at);
        }
        let mut look = at;
        let stop = loop {
            if self.warmed >= limit {
                break Stop::Limit;
            }
            let Some(op) = ops.get(at) else {
                break Stop::NeedBatch;
            };
            if at >= look {
                look = self.look_ahead(ops, at, context);
            }
            if let Err(fault) = self.warm_op(op, context) {
                break Stop::Fault(fault);
            }
            if op.kind == OpClass::Query {
                break Stop::Query;
            }
            let resumed = u64::from(self.resumes) * u64::from(op.insns.saturating_sub(1));
            self.resumes = false;
            self.warmed += u64::from(op.insns) - resumed;
            at += 1;
            if op.flags & flags::REQUEST != 0 {
                self.warmed_requests += 1;
                if self.requests() >= self.most_requests {
                    break Stop::Limit;
                }
            }
        };
        if let Some(w) = &mut self.wrong {
            w.end(ops, at);
        }
        self.run_clock(self.warmed - before, cpi_milli);
        self.fault_at = 0;
        Ran { at, stop }
    }

    /// Marks TLBs, caches and predictors as stale after a fast-forward. `filtered`:
    /// [`Core::warm_lines`] has warmed the last levels.
    pub fn mark_stale(&mut self, filtered: bool) {
        self.mmu.mark_stale(filtered);
        self.private.mark_stale(filtered);
        self.predictor.mark_stale();
    }

    /// Lookups and branches whose outcome is uncertain because of stale state, by structure.
    pub fn stale(&self) -> impl Iterator<Item = (&'static str, StaleOutcomes)> {
        let tlbs = ["tlb_l1", "tlb_l2"].into_iter().zip(self.mmu.stale());
        let branches = ("branches", self.predictor.stale());
        let behind = ("translation", self.mmu.stale_behind());
        self.private.stale().chain(tlbs).chain([branches, behind])
    }

    /// Empties the window and clears all dependences on older instructions.
    fn begin_warming(&mut self) {
        self.empty();
        self.done.fill(Time::default());
        self.stores.forget();
    }

    /// Empties the window and advances the clock by `instructions` of `cpi_milli`/1000 cycles each.
    pub fn advance_clock(&mut self, instructions: u64, cpi_milli: u64) {
        self.begin_warming();
        self.run_clock(instructions, cpi_milli);
    }

    /// Advances the clock by `instructions` of `cpi_milli`/1000 cycles each.
    fn run_clock(&mut self, instructions: u64, cpi_milli: u64) {
        self.warm_rest += instructions * cpi_milli;
        let slots = self.warm_rest / 1000 * self.width;
        self.warm_rest %= 1000;
        self.warm_slots += slots;
        self.next = self.next + slots;
        self.rob.empty_until(self.next);
    }

    /// Begins filtered functional warming. Until [`Core::end_filtered_warming`], only
    /// [`Core::warm_lines`] may be called. `lru_stacks`: LRU stacks may replace the TLBs and
    /// the L2, because neither another core nor a shortcut query accesses them.
    pub fn begin_filtered_warming(&mut self, view: &View<'_>, lru_stacks: bool) {
        if lru_stacks && self.mmu.begin_filtered_warming(view) {
            self.private.begin_filtered_warming();
        }
    }

    /// Ends filtered functional warming.
    pub fn end_filtered_warming(&mut self) {
        self.mmu.end_filtered_warming();
        self.private.end_filtered_warming();
    }

    /// Warms TLBs, the L2 and the levels below by `accesses[at..]`, which the filter of recent
    /// lines has let through.
    ///
    /// The accesses are taken to miss the first-level caches and do not fill them: the detailed
    /// warm-up before the next sample replaces their contents. Returns the position reached, and
    /// the fault of the access there, if any.
    #[inline(never)]
    pub fn warm_lines<B: Below>(
        &mut self,
        accesses: &[(u64, Access)],
        mut at: usize,
        mut context: CoreContext<'_, B>,
    ) -> (usize, Option<Fault>) {
        let context = &mut context;
        self.begin_warming();
        self.line = NO_LINE;
        let mut last = LastPage::NONE;
        while at < accesses.len() {
            let end = (at / TOGETHER + 1) * TOGETHER;
            let together = &accesses[at..end.min(accesses.len())];
            let (done, fault) = self.warm_together(together, &mut last, context);
            at += done;
            if fault.is_some() {
                return (at, fault);
            }
        }
        (at, None)
    }

    /// One step of [`Core::warm_lines`].
    #[inline(always)]
    fn warm_together<B: Below>(
        &mut self,
        together: &[(u64, Access)],
        last: &mut LastPage,
        context: &mut CoreContext<'_, B>,
    ) -> (usize, Option<Fault>) {
        // The host's cache misses dominate the cost. The page-table entries, sets and tags of a
        // whole step are therefore prefetched before the first is needed.
        let mut page = last.page;
        for &access in together {
            if access.0 >> PAGE_SHIFT != page {
                page = access.0 >> PAGE_SHIFT;
                self.mmu
                    .host_prefetch_filtered(context.asid, access, context.view);
            }
        }
        let below_now = !context.below.warms_later();
        let mut requests = ArrayVec::<Request, TOGETHER>::new();
        let mut fault = None;
        for &(va, access) in together {
            if !last.allows(va, access) {
                let asid = context.asid;
                let walk_context = context.walk_context(&mut self.private);
                match self
                    .mmu
                    .warm_filtered(asid, VirtAddr(va), access, walk_context)
                {
                    Ok(at) => *last = LastPage::of(va, access, at),
                    Err(f) => {
                        fault = Some(f);
                        break;
                    }
                }
            }
            let at = last.place(va);
            self.private.look_ahead(at);
            if below_now {
                context.below.host_prefetch(at);
            }
            requests.push(Request {
                at,
                kind: kind_of(access),
                core: self.core,
                pc: 0,
            });
        }
        if below_now {
            for request in &requests {
                context.below.host_prefetch_place(request.at);
            }
        }
        let done = requests.len();
        for request in requests {
            self.private.warm_filtered(request, context.below);
        }
        (done, fault)
    }

    /// Warms by one op.
    #[inline]
    pub(super) fn warm_op<B: Below>(
        &mut self,
        op: &Op,
        context: &mut CoreContext<'_, B>,
    ) -> Result<(), Fault> {
        if op.pc >> LINE_SHIFT != self.line {
            for line in self.first_line(op)..=op.pc >> LINE_SHIFT {
                self.warm_line(line << LINE_SHIFT, Access::Fetch, op.pc, context)?;
                self.line = line;
                self.target = NO_LINE;
            }
        }
        match op.kind {
            OpClass::Compute | OpClass::Query => Ok(()),
            OpClass::Branch => {
                self.predictor.predict(op, false);
                self.redirect(op);
                Ok(())
            }
            // Two calls, so that the compiler specialises the path through MMU and caches for each.
            OpClass::Load => self.warm_data(op, Access::Read, context),
            OpClass::Store if op.flags & flags::NON_TEMPORAL == 0 => {
                self.warm_data(op, Access::Write, context)
            }
            OpClass::Store => self.warm_past_caches(op, context),
            OpClass::Prefetch => {
                self.warm_prefetch(op, context);
                Ok(())
            }
            OpClass::Flush => {
                self.warm_flush(op, context);
                Ok(())
            }
        }
    }

    /// Warms by a load or a store.
    #[inline(always)]
    fn warm_data<B: Below>(
        &mut self,
        op: &Op,
        access: Access,
        context: &mut CoreContext<'_, B>,
    ) -> Result<(), Fault> {
        self.warm_line(op.va, access, op.pc, context)?;
        if bytes(op).1 >= LINE_BYTES {
            self.warm_second(op, access, context)?;
        }
        Ok(())
    }

    /// Warms the second line of an access that spans two.
    #[cold]
    fn warm_second<B: Below>(
        &mut self,
        op: &Op,
        access: Access,
        context: &mut CoreContext<'_, B>,
    ) -> Result<(), Fault> {
        let va = (op.va | (LINE_BYTES - 1)) + 1;
        self.warm_line(va, access, op.pc, context)
    }

    /// Warms TLBs and caches by an access to the line of `va`.
    #[inline(always)]
    pub(super) fn warm_line<B: Below>(
        &mut self,
        va: u64,
        access: Access,
        pc: u64,
        context: &mut CoreContext<'_, B>,
    ) -> Result<(), Fault> {
        let at = self.warm_translation(va, access, pc, context)?;
        let request = Request {
            at,
            kind: kind_of(access),
            core: self.core,
            pc,
        };
        self.private.warm(request, context.below);
        Ok(())
    }

    /// Warms TLBs and caches by the translation of `va`. Returns the physical address.
    #[inline(always)]
    pub(super) fn warm_translation<B: Below>(
        &mut self,
        va: u64,
        access: Access,
        pc: u64,
        context: &mut CoreContext<'_, B>,
    ) -> Result<PhysAddr, Fault> {
        let asid = context.asid;
        let walk_context = context.walk_context(&mut self.private);
        self.mmu.warm(asid, VirtAddr(va), access, pc, walk_context)
    }
}
