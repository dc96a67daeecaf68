//! The surface that other crates build against; bodies are still to come.
#![allow(unused_variables, missing_docs, clippy::all)]
use pagewalk_memory::{Below, Private};
use pagewalk_mmu::{Fault, Mmu};
use pagewalk_stats::Tree;
use pagewalk_stream::Op;
use pagewalk_tables::View;
use pagewalk_units::{Asid, Cycle};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The window. (Fields beyond these are the cpu crate's to define.)
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CoreSpec {
    /// Instructions dispatched and retired a cycle.
    pub width: u32,
    /// Reorder-buffer entries.
    pub rob: u32,
    pub load_queue: u32,
    pub store_queue: u32,
    /// Cycles from a branch's resolution to the first instruction of the right path.
    pub mispredict_penalty: Cycle,
}

/// Why the core came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Its local time has reached `until`.
    Quantum,
    /// All ops are consumed.
    NeedBatch,
    /// The instruction limit is reached (exactly, up to the op's own count).
    Limit,
    /// The op at the returned position faults; nothing of it has happened.
    Fault(Fault),
}

/// What `run` gives back.
pub struct Ran {
    /// Position of the next op to run.
    pub at: usize,
    pub stop: Stop,
}

pub struct Core {
    pub mmu: Mmu,
    pub private: Private,
}
impl Core {
    pub fn new(spec: &CoreSpec, mmu: Mmu, private: Private, core: u8) -> Result<Self, String> {
        todo!()
    }
    /// Local time: when the youngest dispatched instruction was dispatched.
    pub fn now(&self) -> Cycle {
        todo!()
    }
    /// Instructions dispatched since the start.
    pub fn instructions(&self) -> u64 {
        todo!()
    }
    /// Timed. `ops[at..]`, until local time `until` or `instructions() >= limit`.
    pub fn run<B: Below>(
        &mut self,
        ops: &[Op],
        at: usize,
        until: Cycle,
        limit: u64,
        asid: Asid,
        view: &View<'_>,
        below: &mut B,
    ) -> Ran {
        todo!()
    }
    /// Warming: state of TLBs, caches, predictors; the clock runs at `cpi_milli`/1000 cycles an instruction.
    pub fn warm<B: Below>(
        &mut self,
        ops: &[Op],
        at: usize,
        limit: u64,
        cpi_milli: u64,
        asid: Asid,
        view: &View<'_>,
        below: &mut B,
    ) -> Ran {
        todo!()
    }
    /// The kernel works for `cycles`: the window empties first (fault, system call, context switch).
    pub fn kernel(&mut self, cycles: Cycle) {
        todo!()
    }
    /// Nothing to run until `until`.
    pub fn idle(&mut self, until: Cycle) {
        todo!()
    }
    /// Another thread comes: dependences, store queue and return stack are forgotten.
    pub fn switch(&mut self) {
        todo!()
    }
    /// When the last instruction so far retires (the end of a run).
    pub fn finish(&self) -> Cycle {
        todo!()
    }
    pub fn report(&self, path: &str, tree: &mut Tree) {
        todo!()
    }
}
