//! Programs of a mix. Each waits at the start of its region of interest for all others. It is then
//! measured over its own instructions, and continues for the sake of the others.

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
    /// True if its region of interest has begun.
    begun: bool,
    /// Work that is still to be measured.
    left: Work,
    /// Its work in the measured part so far.
    pub(crate) work: Work,
    /// Cycles from the start of the measured part until its work was complete.
    pub(crate) cycles: Option<Cycle>,
    /// Its counts up to that moment.
    pub(crate) own: Account,
    /// Its counts after that, while the others were still measured.
    pub(crate) later: Account,
    /// Memory of its processes at the end.
    pub(crate) held: Held,
}

/// Programs of a mix; empty for a single program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    pub(crate) list: Vec<Part>,
    /// Start time of the measured part.
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

    /// Counts of no program.
    pub(crate) fn outside(&self) -> Account {
        self.accounts.outside
    }

    /// Index of the program of a process: its own, or its parent's.
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
    /// Work left for a thread of `process` until its program has been measured; no limit outside a mix.
    pub(super) fn part_left(&self, process: ProcessId) -> Work {
        if !self.plan.phase.measures() {
            return Work::FOREVER;
        }
        let part = self.parts.list.get(self.processes[&process].part);
        part.filter(|p| p.cycles.is_none())
            .map_or(Work::FOREVER, |p| p.left)
    }

    /// Credits work on `core` to the program of `process`. The measured part ends when all programs have
    /// done theirs.
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

    /// Begins the measured part.
    pub(super) fn begin_parts(&mut self) {
        self.parts.start = self.times().into_iter().max().unwrap_or(0);
        self.charge_all();
    }

    /// Holds a thread at the start of its program's region of interest until all programs have reached
    /// theirs. True if they have, or if there is only one program.
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
