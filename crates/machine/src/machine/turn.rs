//! Run loop: cores take turns.

use pagewalk_cpu::{Core, CoreContext, Stop};
use pagewalk_stream::ThreadId;

use super::waits::program;
use super::{Machine, Outcome, Pause};
use crate::fanout::{Fanout, Item, Supply};
use crate::plan::{Detail, Phase};
use crate::work::Work;

/// Work of a core since the start.
fn work(core: &Core) -> Work {
    Work {
        instructions: core.instructions(),
        requests: core.requests(),
    }
}

/// Maximum number of core turns in one [`Machine::advance`].
const MOST_STEPS: u32 = 1 << 20;

impl Machine {
    /// Runs for `items` batches, or until the machine cannot continue alone.
    pub(crate) fn advance(&mut self, fanout: &Fanout, me: usize, items: u32) -> Pause {
        self.turn = items;
        for t in self.threads.values_mut() {
            t.starved = false;
        }
        for (runnable, id) in self.runnable.iter_mut().zip(&self.on_core) {
            *runnable = id.is_some();
        }
        // Bounded, so that a request to stop is noticed even if cores take turns without a new batch.
        for _ in 0..MOST_STEPS {
            if self.outcome.is_some() {
                return Pause::Over;
            }
            if self.turn == 0 {
                return Pause::Turn;
            }
            match self.step(fanout, me) {
                Ok(None) => {}
                Ok(Some(pause)) => return pause,
                Err(outcome) => self.stop(outcome),
            }
        }
        Pause::Turn
    }

    /// One turn of one core.
    fn step(&mut self, fanout: &Fanout, me: usize) -> Result<Option<Pause>, Outcome> {
        self.fill_cores();
        if self.sleeping > 0 && self.wake_sleepers(fanout, me, false) {
            return Ok(None);
        }
        let Some(core) = self.next_core() else {
            return self.nothing_runs(fanout, me);
        };
        self.run_background(core)?;
        let id = self.on_core[core].expect("next_core gives a core with a thread");
        let until = self.detail_until();
        let thread = self
            .threads
            .get_mut(&id)
            .expect("a thread on a core exists");
        match &thread.item {
            Some(item) if thread.skip_pending || thread.at < item.batch.ops.len() => {}
            Some(_) => {
                let item = thread.item.take().expect("just seen");
                let end = item.end.clone();
                self.counts.add(&item.batch.counts);
                thread
                    .units
                    .add_counted(&item.batch, item.instructions, &end);
                fanout.recycle(item);
                self.act_on_end(fanout, me, id, core, end)?;
                self.wake_waiting();
                self.report_gone(fanout, me);
                return Ok(None);
            }
            None => {
                match fanout.next(me, id, until).map_err(program)? {
                    Supply::Item(item) => {
                        thread.begin(item);
                        self.turn -= 1;
                        self.poll_blocked(fanout, me)?;
                    }
                    Supply::Ahead => return Ok(Some(Pause::Ahead)),
                    Supply::Empty => {
                        thread.starved = true;
                        self.runnable[core] = false;
                    }
                }
                return Ok(None);
            }
        }
        let faulted = match self.plan.phase.detail() {
            Detail::FastForward => {
                self.skip(id, core)?;
                false
            }
            Detail::FilteredWarm => {
                self.warm_filtered(id, core)?;
                false
            }
            Detail::Full => self.simulate(id, core)?,
        };
        // The core keeps the progress within the operation that faulted.
        if !faulted {
            self.preempt(core);
        }
        Ok(None)
    }

    /// Runs the thread of one core, timed or with functional warming. True if an operation faulted and
    /// has to be resumed.
    fn simulate(&mut self, id: ThreadId, core: usize) -> Result<bool, Outcome> {
        if self.mapped_ahead.is_some() {
            self.map_ahead(id, core)?;
        }
        let until = self.until(core);
        self.take_snoops(core);
        let thread = self
            .threads
            .get_mut(&id)
            .expect("a thread on a core exists");
        assert!(!thread.skip_pending, "it was made for machines that skip");
        let (process, from) = (thread.process, thread.at);
        // Given back after the core has run: a query result may be needed in between.
        let item: Item = thread.item.take().expect("checked by step");
        let part_left = self.part_left(process);
        let pid = self.processes[&process].pid;
        let view = self.os.view(pid);
        let asid = self.os.asid(pid);
        let c = &mut self.cores[core];
        c.see(item.batch.memory.as_ref());
        let before = work(c);
        let left = self
            .plan
            .left
            .instructions
            .min(part_left.instructions)
            .min(self.measured.until_interval(self.executed.instructions));
        let limit = before.instructions.saturating_add(left);
        let requests = self.plan.left.requests.min(part_left.requests);
        c.stop_at_requests(before.requests.saturating_add(requests));
        let warms = self.plan.phase == Phase::FunctionalWarm;
        if warms {
            self.shared.set_warming_clock(c.now());
        }
        let ops = &item.batch.ops;
        let context = CoreContext {
            asid,
            view: &view,
            tiers: self.os.tiers(),
            below: &mut self.shared,
        };
        let ran = if warms {
            c.warm(ops, from, limit, self.gap_cpi_milli, context)
        } else {
            c.run(ops, from, until, limit, context)
        };
        let mut at = ran.at;
        let answered = if ran.stop == Stop::Query {
            at += 1;
            self.run_query(id, core, &item, ran.at)
        } else {
            Ok(())
        };
        let mut done = work(&self.cores[core]) - before;
        let thread = self
            .threads
            .get_mut(&id)
            .expect("a thread on a core exists");
        thread.item = Some(item);
        thread.at = at;
        answered?;
        done.instructions += std::mem::take(&mut thread.kept_back);
        if matches!(ran.stop, Stop::Fault(_)) && done.instructions >= self.plan.left.instructions {
            // A phase ends at an operation, and at the same one in all designs: its last instruction
            // counts later.
            let before_last = self.plan.left.instructions - 1;
            thread.kept_back = done.instructions - before_last;
            done.instructions = before_last;
        }
        self.harvest_walks();
        // Counted before it is credited, because the credit may end the measured part. Credited only if
        // measurement was on before, because this count may begin it.
        let measured = self.plan.phase.measures();
        self.count(done);
        if measured {
            self.credit(process, core, done);
        }
        let Stop::Fault(f) = ran.stop else {
            return Ok(false);
        };
        match f.host {
            None => self.fault(core, process, f.va, f.access)?,
            Some(at) => self.host_fault(core, process, at)?,
        }
        Ok(true)
    }

    /// Applies other cores' snoops to the caches of `core`.
    pub(super) fn take_snoops(&mut self, core: usize) {
        if self.shared.has_snoops(core as u8) {
            self.shared.take_snoops(core as u8, &mut self.snoops);
            for (at, exclusive) in self.snoops.drain(..) {
                self.cores[core].private.snoop(at, exclusive);
            }
        }
    }
}
