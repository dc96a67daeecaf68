//! Attribution of the machine's counters to the programs of a mix. A core's counters are attributed when
//! a thread of another program gets the core, and the kernel's after each call on behalf of a process. No
//! work is done per reference, and none at all for a single program.

use std::iter::zip;
use std::ops::{AddAssign, Sub};

use pagewalk_cpu::Core;
use pagewalk_os::{Held, Os};
use pagewalk_stream::ProcessId;
use schemars::JsonSchema;
use serde::Serialize;

use super::Machine;

/// Counts of one program of a mix. The counts of all programs and those of none add up to the machine's
/// counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct Account {
    /// Instructions retired.
    pub instructions: u64,
    /// Cycles of the cores that its threads were on, and of the kernel on its behalf.
    pub core_cycles: u64,
    /// Entries fetched into the first-level data TLB.
    pub l1d_tlb_misses: u64,
    /// Entries fetched into the first-level instruction TLB.
    pub l1i_tlb_misses: u64,
    /// Misses of all TLBs of a core.
    pub l2_tlb_misses: u64,
    /// Page walks.
    pub walks: u64,
    /// Sum of the latencies of page walks, in cycles.
    pub walk_cycles: u64,
    /// Page faults.
    pub page_faults: u64,
    /// Kernel time of page faults, in cycles.
    pub fault_cycles: u64,
}

impl Account {
    fn each(self, other: Self, f: fn(u64, u64) -> u64) -> Self {
        Account {
            instructions: f(self.instructions, other.instructions),
            core_cycles: f(self.core_cycles, other.core_cycles),
            l1d_tlb_misses: f(self.l1d_tlb_misses, other.l1d_tlb_misses),
            l1i_tlb_misses: f(self.l1i_tlb_misses, other.l1i_tlb_misses),
            l2_tlb_misses: f(self.l2_tlb_misses, other.l2_tlb_misses),
            walks: f(self.walks, other.walks),
            walk_cycles: f(self.walk_cycles, other.walk_cycles),
            page_faults: f(self.page_faults, other.page_faults),
            fault_cycles: f(self.fault_cycles, other.fault_cycles),
        }
    }

    fn of_core(core: &Core) -> Self {
        let (c, m) = (core.stats(), core.mmu.stats());
        Account {
            instructions: c.instructions,
            core_cycles: c.cycles,
            l1d_tlb_misses: m.l1d_misses,
            l1i_tlb_misses: m.l1i_misses,
            l2_tlb_misses: core.mmu.misses(),
            walks: m.walks,
            walk_cycles: m.walk_cycles,
            ..Account::default()
        }
    }

    fn of_kernel(os: &Os) -> Self {
        let (page_faults, fault_cycles) = os.page_faults();
        Account {
            page_faults,
            fault_cycles,
            ..Account::default()
        }
    }
}

impl AddAssign for Account {
    fn add_assign(&mut self, more: Self) {
        *self = self.each(more, |a, b| a + b);
    }
}

impl Sub for Account {
    type Output = Account;
    fn sub(self, before: Self) -> Self {
        self.each(before, |a, b| a - b)
    }
}

/// Counter values that have been attributed.
#[derive(Clone, Debug, Default)]
pub(super) struct Accounts {
    /// Counter values of each core at its last attribution.
    cores: Vec<Account>,
    /// The program whose thread is on each core.
    on: Vec<Option<usize>>,
    /// Counter values of the kernel at its last attribution.
    kernel: Account,
    /// Counts of no program: idle cores, switches, and the kernel's own threads.
    pub(super) outside: Account,
}

impl Accounts {
    pub(super) fn new(cores: usize) -> Self {
        Accounts {
            cores: vec![Account::default(); cores],
            on: vec![None; cores],
            ..Accounts::default()
        }
    }
}

impl Machine {
    /// True in a mix.
    #[inline]
    pub(super) fn has_parts(&self) -> bool {
        !self.parts.list.is_empty()
    }

    /// Program of a process in a mix.
    pub(super) fn part_of(&self, process: ProcessId) -> Option<usize> {
        let part = self.processes[&process].part;
        (part < self.parts.list.len()).then_some(part)
    }

    fn book(&mut self, part: Option<usize>, done: Account) {
        if !self.measured.is_open() {
            return;
        }
        let account = match part.map(|part| &mut self.parts.list[part]) {
            Some(part) if part.cycles.is_none() => &mut part.own,
            Some(part) => &mut part.later,
            None => &mut self.parts.accounts.outside,
        };
        *account += done;
    }

    /// Attributes the counts of `core` since its last attribution to `part`.
    pub(super) fn charge_as(&mut self, core: usize, part: Option<usize>) {
        let now = Account::of_core(&self.cores[core]);
        let before = std::mem::replace(&mut self.parts.accounts.cores[core], now);
        self.book(part, now - before);
    }

    /// Attributes the counts of `core` to the program whose thread is on it.
    pub(super) fn charge(&mut self, core: usize) {
        self.charge_as(core, self.parts.accounts.on[core]);
    }

    /// Sets the process whose program gets the later counts of `core`, if any.
    pub(super) fn charge_from_now(&mut self, core: usize, process: Option<ProcessId>) {
        self.charge(core);
        self.parts.accounts.on[core] = process.and_then(|p| self.part_of(p));
    }

    /// Attributes the kernel's counts since the last attribution to `part`, or to no program.
    pub(super) fn charge_kernel(&mut self, part: Option<usize>) {
        let now = Account::of_kernel(&self.os);
        let before = std::mem::replace(&mut self.parts.accounts.kernel, now);
        self.book(part, now - before);
    }

    /// Attributes all counts up to now.
    pub(super) fn charge_all(&mut self) {
        if self.has_parts() {
            (0..self.cores.len()).for_each(|core| self.charge(core));
            self.charge_kernel(None);
        }
    }

    /// Attributes the counts at the end of the measured part and records the memory of each program.
    pub(super) fn settle_accounts(&mut self) {
        if !self.has_parts() {
            return;
        }
        self.charge_all();
        let mut held = vec![Held::default(); self.parts.list.len()];
        for process in self.processes.values() {
            if let Some(held) = held.get_mut(process.part) {
                *held += self.os.held(process.pid);
            }
        }
        for (part, held) in zip(&mut self.parts.list, held) {
            part.held = held;
        }
    }
}
