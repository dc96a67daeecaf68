//! Memory of an inferred mapping that counts as mapped before the program starts.

use pagewalk_stream::{OpClass, ProcessId, ThreadId, flags};
use pagewalk_units::{Access, PageSize, VirtAddr};

use super::skip::TouchFilter;
use super::{Machine, Outcome};
use crate::plan::Phase;

impl Machine {
    /// Maps the pages that the thread's batch touches, if their memory counts as mapped before the
    /// program starts. Accesses to them then neither fault nor repeat a lookup after a fault. Mapping a
    /// batch at a time means that no page is mapped more than one batch early.
    pub(super) fn map_ahead(&mut self, id: ThreadId, core: usize) -> Result<(), Outcome> {
        let thread = self
            .threads
            .get_mut(&id)
            .expect("a thread on a core exists");
        if std::mem::replace(&mut thread.mapped_ahead, true) {
            return Ok(());
        }
        let (process, from) = (thread.process, thread.at);
        let item = thread.item.clone().expect("checked by step");
        let mut pages = [u64::MAX; 2];
        for op in &item.batch.ops[from..] {
            self.map_page_ahead(core, process, op.pc, Access::Fetch, &mut pages[0])?;
            let access = match op.kind {
                OpClass::Load => Access::Read,
                OpClass::Store => Access::Write,
                OpClass::Branch if op.flags & flags::TAKEN != 0 => {
                    self.map_page_ahead(core, process, op.va, Access::Fetch, &mut pages[0])?;
                    continue;
                }
                OpClass::Compute
                | OpClass::Branch
                | OpClass::Query
                | OpClass::Prefetch
                | OpClass::Flush => continue,
            };
            let last = op.va.wrapping_add(u64::from(op.size.max(1)) - 1);
            self.map_page_ahead(core, process, op.va, access, &mut pages[1])?;
            self.map_page_ahead(core, process, last, access, &mut pages[1])?;
        }
        Ok(())
    }

    /// Maps the page of one access; `latest` is the page of the access before.
    #[inline]
    fn map_page_ahead(
        &mut self,
        core: usize,
        process: ProcessId,
        at: u64,
        access: Access,
        latest: &mut u64,
    ) -> Result<(), Outcome> {
        if std::mem::replace(latest, at >> 12) == at >> 12 {
            return Ok(());
        }
        let pid = self.processes[&process].pid;
        let key = TouchFilter::key(self.os.asid(pid).0, at, false);
        let filter = self.mapped_ahead.as_mut();
        if filter.is_none_or(|filter| filter.hit(key)) {
            return Ok(());
        }
        let va = VirtAddr(at).page(PageSize::K4).base;
        let mut fx = std::mem::take(&mut self.effects);
        let result = self.os.map_before(pid, va, access, &mut fx);
        self.spread(core, process, self.part_of(process), &mut fx);
        self.effects = fx;
        let mapped = result.map_err(|e| self.os_error(&e))?;
        let cycles = self.os.inferred_touch_cycles();
        if mapped && cycles > 0 && self.plan.phase != Phase::FunctionalWarm {
            let asid = self.os.asid(pid);
            self.cores[core].mmu.delay_next_walk(asid, va, cycles);
        }
        Ok(())
    }
}
