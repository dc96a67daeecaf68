//! Records of single walks, with their times.

use pagewalk_memory::{Level, Speculated};
use pagewalk_units::{Access, Asid, Cycle, PhysAddr, VirtAddr};

use crate::What;

/// One read of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadRecord {
    /// Address of the entry.
    pub at: PhysAddr,
    /// Level of the page table: 4 to 1 in a four-level radix table.
    pub level: u8,
    /// When the read was requested.
    pub start: Cycle,
    /// When the entry arrived.
    pub end: Cycle,
    /// Level of the memory system that served the read.
    pub served: Level,
}

/// One guess of a speculation engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuessRecord {
    /// The guessed address.
    pub at: PhysAddr,
    /// Content that the engine expects there.
    pub what: What,
    /// When its line was requested.
    pub requested: Cycle,
    /// Outcome of that request.
    pub became: Speculated,
    /// True if the walk proved it right.
    pub right: bool,
}

/// One walk, or one access that merged with another's walk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalkRecord {
    /// Address space.
    pub asid: Asid,
    /// The address that missed.
    pub va: VirtAddr,
    /// Program counter of the accessing instruction.
    pub pc: u64,
    /// Kind of access.
    pub access: Access,
    /// When a walker started it; for a merged access, when it began to wait.
    pub start: Cycle,
    /// When the translation was known, or the fault detected.
    pub end: Cycle,
    /// True if it waited for a walk to the same 4 KB page instead of walking.
    pub merged: bool,
    /// True if it found no page or no permission.
    pub faulted: bool,
    /// Reads in the order of their requests; empty if merged.
    pub reads: Vec<ReadRecord>,
    /// Guesses of the speculation engine, in the order of their requests.
    pub guesses: Vec<GuessRecord>,
}
