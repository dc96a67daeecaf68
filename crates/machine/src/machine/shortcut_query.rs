//! Shortcut queries of a program. The result is functional: queries are resolved in
//! program order, and timing, warming and fast-forwarding give the same results.

use pagewalk_cpu::CoreContext;
use pagewalk_os::{Os, OsError};
use pagewalk_stream::{End, Op, ShortcutQuery, ThreadId};
use pagewalk_tables::QueryResult;

use super::{Machine, Outcome};
use crate::fanout::Item;

/// Result of a process's system call on its table: success or failure. The kernel charges its time even
/// if there is no table and the call fails.
fn table_call_result(os: &Os, done: &Result<(), OsError>) -> Option<QueryResult> {
    os.has_shortcut().then(|| QueryResult {
        value: u64::from(done.is_ok()),
        latency: 1,
        ..QueryResult::default()
    })
}

impl Machine {
    /// Resolves the query of operation `op` at the end of `item`, and stores the result for the thread.
    pub(super) fn resolve_query(
        &mut self,
        id: ThreadId,
        core: usize,
        item: &Item,
        op: &Op,
    ) -> Result<Option<QueryResult>, Outcome> {
        let End::Query(query) = item.end else {
            return Err(Outcome::Program(format!(
                "the op at {:#x} is a shortcut query, and its batch has none: the recording is damaged",
                op.pc
            )));
        };
        let thread = self
            .threads
            .get_mut(&id)
            .expect("a thread with a query exists");
        let process = thread.process;
        let pid = self.processes[&process].pid;
        let mut fx = std::mem::take(&mut self.effects);
        if matches!(query, ShortcutQuery::LoadVa { .. }) && self.plan.phase.takes_time() {
            self.os.stlt_guard(pid, self.cores[core].now(), &mut fx);
        }
        let result = match query {
            ShortcutQuery::LoadVa { integer } => self.os.load_va(pid, integer, &mut fx),
            ShortcutQuery::InsertVa { integer, va } => self.os.insert_va(pid, integer, va, &mut fx),
            ShortcutQuery::Alloc { rows } => {
                let done = self.os.stlt_alloc(pid, rows, &mut fx);
                table_call_result(&self.os, &done)
            }
            ShortcutQuery::Resize { rows } => {
                let done = self.os.stlt_resize(pid, rows, &mut fx);
                table_call_result(&self.os, &done)
            }
            ShortcutQuery::Free => {
                let done = self.os.stlt_free(pid, &mut fx);
                table_call_result(&self.os, &done)
            }
        };
        thread.query_result = result.as_ref().map(|l| l.value);
        self.spread(core, process, self.part_of(process), &mut fx);
        self.effects = fx;
        Ok(result)
    }

    /// Runs the query at which the core stopped, and charges its latency.
    pub(super) fn run_query(
        &mut self,
        id: ThreadId,
        core: usize,
        item: &Item,
        at: usize,
    ) -> Result<(), Outcome> {
        let op = &item.batch.ops[at];
        let result = self.resolve_query(id, core, item, op)?;
        let pid = self.processes[&self.threads[&id].process].pid;
        let view = self.os.view(pid);
        let context = CoreContext {
            asid: self.os.asid(pid),
            view: &view,
            tiers: self.os.tiers(),
            below: &mut self.shared,
        };
        let c = &mut self.cores[core];
        if !self.plan.phase.takes_time() {
            c.warm_query(op, result.as_ref(), self.gap_cpi_milli, context);
        } else {
            c.run_query(op, result.as_ref(), context);
        }
        Ok(())
    }
}
