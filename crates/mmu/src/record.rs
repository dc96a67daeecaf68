//! Single walks, for those who want to see them in time.

use pagewalk_memory::{Level, Speculated};
use pagewalk_units::{Access, Asid, Cycle, PhysAddr, VirtAddr};

use crate::What;

/// One read of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadRecord {
    /// Address of the entry.
    pub at: PhysAddr,
    /// Level of the table that is read: 4..1 in a radix table.
    pub level: u8,
    /// When the read was asked for.
    pub start: Cycle,
    /// When it was back.
    pub end: Cycle,
    /// Which part of the memory system had it.
    pub served: Level,
}

/// One guess of a speculation engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuessRecord {
    /// The guessed address.
    pub at: PhysAddr,
    /// What is said to lie there.
    pub what: What,
    /// When its line was asked for.
    pub requested: Cycle,
    /// What became of that.
    pub became: Speculated,
    /// The walk proved it right.
    pub right: bool,
}

/// One walk, or one access that waited for another's walk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalkRecord {
    /// Whose.
    pub asid: Asid,
    /// The address that missed.
    pub va: VirtAddr,
    /// Instruction that asked.
    pub pc: u64,
    /// What for.
    pub access: Access,
    /// When a walker took it (when it began to wait, for a merged one).
    pub start: Cycle,
    /// When the translation was known, or known not to exist.
    pub end: Cycle,
    /// Waited for a walk to the same 4 KB page instead of walking.
    pub merged: bool,
    /// Found nothing, or no permission.
    pub faulted: bool,
    /// In the order asked for; empty when merged.
    pub reads: Vec<ReadRecord>,
    /// What was guessed beside it, in the order asked for.
    pub guesses: Vec<GuessRecord>,
}
