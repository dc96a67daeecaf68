//! Fast-forwarding: pages are mapped and entered in an in-memory TLB. Nothing else happens.

use std::ops::Range;

use pagewalk_stream::{Batch, OpClass, ProcessId, ThreadId};
use pagewalk_tables::{Flags, View};
use pagewalk_units::{Access, Asid, PageSize, VirtAddr};

use super::{Machine, Outcome};
use crate::plan::Detail;
use crate::work::Work;

/// Direct-mapped filter of pages that the machine knows to be mapped.
pub(super) struct TouchFilter {
    keys: Vec<u64>,
}

impl TouchFilter {
    const SLOTS: usize = 1 << 14;

    pub(super) fn new() -> Self {
        TouchFilter {
            keys: vec![u64::MAX; Self::SLOTS],
        }
    }
    pub(super) fn key(asid: u16, at: u64, write: bool) -> u64 {
        (at >> 12) << 17 | u64::from(asid) << 1 | u64::from(write)
    }
    #[inline]
    pub(super) fn hit(&mut self, key: u64) -> bool {
        let slot = &mut self.keys[(key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 50) as usize];
        let hit = *slot == key;
        *slot = key;
        hit
    }
    pub(super) fn clear(&mut self) {
        self.keys.fill(u64::MAX);
    }
}

impl Machine {
    /// Detail that the machine needs, and its total work when that may change, as far as is known.
    pub(super) fn detail_until(&self) -> (Detail, Work) {
        let mut until = self.plan.left;
        let reach = |left: &mut u64, done| *left = left.saturating_add(done);
        reach(&mut until.instructions, self.executed.instructions);
        reach(&mut until.requests, self.executed.requests);
        (self.plan.phase.detail(), until)
    }

    /// Maps the pages that the batch touches and enters them in an in-memory TLB.
    pub(super) fn skip(&mut self, id: ThreadId, core: usize) -> Result<(), Outcome> {
        let thread = self
            .threads
            .get_mut(&id)
            .expect("a thread on a core exists");
        let process = thread.process;
        let pid = self.processes[&process].pid;
        let space = self.os.asid(pid);
        let asid = space.0;
        let item = thread.item.clone().expect("checked by step");
        let from = thread.at;
        let ops = &item.batch.ops;
        let left = self.plan.left;
        let mut done = Work::default();
        if std::mem::take(&mut thread.skip_pending) {
            let skipped = &item.batch.skipped;
            for (at, access) in &skipped.touched {
                self.touch(core, process, asid, *at, *access)?;
            }
            done = Work::of_skipped(skipped);
        }
        let mut at = from;
        let mut pc_page = u64::MAX;
        while at < ops.len() && done.is_within(left) {
            let op = &ops[at];
            if op.pc >> 12 != pc_page {
                pc_page = op.pc >> 12;
                self.touch(core, process, asid, op.pc, Access::Fetch)?;
            }
            let access = match op.kind {
                OpClass::Load => Some(Access::Read),
                OpClass::Store => Some(Access::Write),
                OpClass::Compute
                | OpClass::Branch
                | OpClass::Query
                | OpClass::Prefetch
                | OpClass::Flush => None,
            };
            if op.kind == OpClass::Query {
                self.resolve_query(id, core, &item, op)?;
            }
            if let Some(access) = access {
                self.touch(core, process, asid, op.va, access)?;
                let last = op.va.wrapping_add(u64::from(op.size.max(1)) - 1);
                if last >> 12 != op.va >> 12 {
                    self.touch(core, process, asid, last, access)?;
                }
            }
            done += Work::of(op);
            at += 1;
        }
        self.train_wrong_paths(core, space, &item.batch, from..at);
        self.threads
            .get_mut(&id)
            .expect("a thread on a core exists")
            .at = at;
        if self.plan.phase.is_gap() {
            self.advance_clock(core, done);
        } else {
            self.skipped[core] += done.instructions.max(1);
        }
        self.count(done);
        Ok(())
    }

    /// Trains the state of wrong paths with ops that are not simulated. Where memory can be read, addresses need no
    /// training, and fast-forwarding costs no more than without wrong paths.
    pub(super) fn train_wrong_paths(
        &mut self,
        core: usize,
        space: Asid,
        batch: &Batch,
        ops: Range<usize>,
    ) {
        if self.memory {
            self.cores[core].miss_ops();
        } else {
            self.cores[core].learn(space, &batch.ops[ops]);
        }
    }

    #[inline]
    fn touch(
        &mut self,
        core: usize,
        process: ProcessId,
        asid: u16,
        at: u64,
        access: Access,
    ) -> Result<(), Outcome> {
        if self
            .touched
            .hit(TouchFilter::key(asid, at, access == Access::Write))
        {
            return Ok(());
        }
        let pid = self.processes[&process].pid;
        let va = VirtAddr(at).page(PageSize::K4).base;
        let mapped = match self.os.view(pid) {
            View::Native(table) => table.translate(va).map(|t| t.flags),
            View::Nested { guest, .. } => guest.translate(va).map(|t| t.flags),
        };
        if mapped.is_none_or(|f| access == Access::Write && !f.contains(Flags::WRITABLE)) {
            self.fault(core, process, va, access)?;
        }
        if self.sources_follow {
            let view = self.os.view(pid);
            let asid = self.os.asid(pid);
            self.cores[core].mmu.fast_forward(asid, va, &view);
        }
        Ok(())
    }
}
