//! What each program of a mix did to the machine: the cores' counters are shared out when
//! another program's thread comes to a core, and the kernel's when it has served a process.
//! Nothing is counted for a reference, and nothing at all where one program runs.

use std::iter::zip;
use std::ops::{AddAssign, Sub};

use pagewalk_cpu::Core;
use pagewalk_os::{Held, Os};
use pagewalk_stream::ProcessId;
use schemars::JsonSchema;
use serde::Serialize;

use super::Machine;

/// Counts of one program of a mix. Those of all programs, and of what was done for none, add up
/// to the machine's own counters.
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

/// How far the counters have been shared out.
#[derive(Clone, Debug, Default)]
pub(super) struct Accounts {
    /// What each core had counted then.
    cores: Vec<Account>,
    /// The program whose thread each core has.
    on: Vec<Option<usize>>,
    /// What the kernel had counted.
    kernel: Account,
    /// What was done for no program: idle cores, switches, and the kernel's own threads.
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
    /// Whether there are programs to tell apart.
    #[inline]
    pub(super) fn has_parts(&self) -> bool {
        !self.parts.list.is_empty()
    }

    /// The program of a process, of a mix.
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

    /// What `core` has done since it was last asked was `part`'s.
    pub(super) fn charge_as(&mut self, core: usize, part: Option<usize>) {
        let now = Account::of_core(&self.cores[core]);
        let before = std::mem::replace(&mut self.parts.accounts.cores[core], now);
        self.book(part, now - before);
    }

    /// It was that of the program whose thread it has.
    pub(super) fn charge(&mut self, core: usize) {
        self.charge_as(core, self.parts.accounts.on[core]);
    }

    /// From now on `core` has a thread of `process`, or none.
    pub(super) fn charge_from_now(&mut self, core: usize, process: Option<ProcessId>) {
        self.charge(core);
        self.parts.accounts.on[core] = process.and_then(|p| self.part_of(p));
    }

    /// What the kernel has done since it was last asked was for the program `part`, or its own.
    pub(super) fn charge_kernel(&mut self, part: Option<usize>) {
        let now = Account::of_kernel(&self.os);
        let before = std::mem::replace(&mut self.parts.accounts.kernel, now);
        self.book(part, now - before);
    }

    /// Everything up to now is shared out.
    pub(super) fn charge_all(&mut self) {
        if self.has_parts() {
            (0..self.cores.len()).for_each(|core| self.charge(core));
            self.charge_kernel(None);
        }
    }

    /// The measured part ends: what each program then holds of memory.
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
