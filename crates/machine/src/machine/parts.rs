//! The programs of a mix: each waits where its region of interest begins until
//! all have come there, and is measured over its own first instructions, while the
//! others go on.

use pagewalk_os::Held;
use pagewalk_stream::{Facts, ProcessId, ThreadId};
use pagewalk_units::Cycle;

use super::Machine;
use super::accounts::{Account, Accounts};
use crate::limits::Limits;
use crate::plan::Phase;
use crate::thread::ThreadState;
use crate::work::Work;

/// One program of a mix.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Its name.
    pub(crate) name: String,
    /// Its region of interest has begun.
    begun: bool,
    /// What is still to be measured of it.
    left: Work,
    /// What it did in the measured part until then.
    pub(crate) work: Work,
    /// Cycles from the start of the measured part until it had done that.
    pub(crate) cycles: Option<Cycle>,
    /// What it did to the machine until then.
    pub(crate) own: Account,
    /// What it did from then on, for the others' sake.
    pub(crate) later: Account,
    /// What its processes hold of memory at the end.
    pub(crate) held: Held,
}

/// The programs of a mix; none if there is one program only.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    pub(crate) list: Vec<Part>,
    /// When the measured part began.
    start: Cycle,
    pub(super) accounts: Accounts,
}

impl Parts {
    pub(super) fn new(facts: &Facts, limits: &Limits, cores: usize) -> Self {
        let part = |p: &pagewalk_stream::Part| Part {
            name: p.name.clone(),
            begun: false,
            left: Work::first_of(limits.instructions, limits.requests),
            work: Work::default(),
            cycles: None,
            own: Account::default(),
            later: Account::default(),
            held: Held::default(),
        };
        Parts {
            list: facts.parts.iter().map(part).collect(),
            start: 0,
            accounts: Accounts::new(cores),
        }
    }

    /// What was done for none of the programs.
    pub(crate) fn outside(&self) -> Account {
        self.accounts.outside
    }

    /// The program that a process belongs to: its own, or its parent's.
    pub(super) fn of(&self, process: ProcessId, parent: usize) -> usize {
        let number = process as usize;
        if number < self.list.len() {
            number
        } else {
            parent
        }
    }
}

impl Machine {
    /// What a thread of `process` may still do before its program has been
    /// measured, if it is one of several.
    pub(super) fn part_left(&self, process: ProcessId) -> Work {
        if !self.plan.phase.measures() {
            return Work::FOREVER;
        }
        let part = self.parts.list.get(self.processes[&process].part);
        part.filter(|p| p.cycles.is_none())
            .map_or(Work::FOREVER, |p| p.left)
    }

    /// A thread of `process` has done work on `core`. When each program has done
    /// what is asked of it, the measured part is over.
    pub(super) fn credit(&mut self, process: ProcessId, core: usize, done: Work) {
        let number = self.processes[&process].part;
        let start = self.parts.start;
        let Some(part) = self.parts.list.get_mut(number) else {
            return;
        };
        if part.cycles.is_some() || !self.plan.phase.measures() {
            return;
        }
        part.work += done;
        part.left = part.left.less(done);
        if !part.left.is_over() {
            return;
        }
        self.charge_all();
        let part = &mut self.parts.list[number];
        part.cycles = Some(self.cores[core].finish().saturating_sub(start));
        if self.parts.list.iter().all(|p| p.cycles.is_some()) {
            self.leave_phase();
            self.plan.finish();
            self.enter_phase();
        }
    }

    /// The measured part begins.
    pub(super) fn begin_parts(&mut self) {
        self.parts.start = self.times().into_iter().max().unwrap_or(0);
        self.charge_all();
    }

    /// A program of a mix has come to its region of interest: its thread waits
    /// there until all have. Whether they have, or there is one program only.
    pub(super) fn gather(&mut self, id: ThreadId) -> bool {
        let number = self.processes[&self.threads[&id].process].part;
        let Some(part) = self.parts.list.get_mut(number) else {
            return true;
        };
        part.begun = true;
        if self.plan.phase != Phase::UntilRoi {
            return true;
        }
        if let ThreadState::Running(core) = self.threads[&id].state {
            self.release(id, core, ThreadState::Gathering);
        } else {
            self.ready.retain(|r| *r != id);
            self.threads.get_mut(&id).expect("it said so").state = ThreadState::Gathering;
        }
        if !self.parts.list.iter().all(|p| p.begun) {
            return false;
        }
        let now = self.latest();
        let waiting: Vec<ThreadId> = self
            .threads
            .iter()
            .filter(|(_, t)| t.state == ThreadState::Gathering)
            .map(|(id, _)| *id)
            .collect();
        for id in waiting {
            self.make_ready(id, now);
        }
        true
    }
}
