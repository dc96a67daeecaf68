//! Speculation engines. When all TLBs miss, an engine guesses lines that the walk or the access
//! will need, and the MMU fetches them during the walk. Guesses change the time of events, never
//! their outcome.
//!
//! A crate outside of the workspace adds a kind by [`register`].

mod kind;
mod perfect;
pub mod registry;
mod revelator;
mod spectlb;
mod speculation;

use arrayvec::ArrayVec;
use pagewalk_stats::Tree;
use pagewalk_structures::MOST_TIERS;
pub use pagewalk_structures::Tiers;
use pagewalk_tables::{Invalidation, View};
use pagewalk_units::{Access, Asid, Cycle, GuestPhysAddr, LINE_SHIFT, PhysAddr, VirtAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::kind::{EngineArray, EngineKind, HashedGuesses, register};
pub use self::revelator::{DegreeFilter, FilterStats, Nested};
pub use self::spectlb::{Detect, SpecTlbStats};
pub use self::speculation::{GuessStats, Verdict};
pub(crate) use self::speculation::{NestedSteps, Outcome, Speculation};
use crate::Walked;

/// A lookup that missed all TLBs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Miss {
    /// Address space of the address.
    pub asid: Asid,
    /// The address.
    pub va: VirtAddr,
    /// Kind of access.
    pub access: Access,
    /// Program counter of the accessing instruction.
    pub pc: u64,
    /// When the last TLB missed.
    pub at: Cycle,
    /// True if it merges with a walk to the same 4 KB page. The page-table entries are then already
    /// on their way, so only the line of the data can be new.
    pub merges: bool,
}

/// A guest-physical address that a nested walk needs and on which the nested TLB missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NestedStep {
    /// Address space of the walk.
    pub asid: Asid,
    /// The address that missed all TLBs.
    pub va: VirtAddr,
    /// The guest-physical address.
    pub gpa: GuestPhysAddr,
    /// Level of the guest's page-table entry at that address; 0: it is the address of the data.
    pub level: u8,
    /// When the nested TLB missed.
    pub at: Cycle,
}

/// Kind of content of a guessed line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// The accessed data.
    Data,
    /// The page-table entry at which the walk ends.
    Entry,
    /// Within a nested walk, for a guest-physical address that it has reached: the guest's entry at
    /// that address, or the host's entry that translates it.
    Step,
}

/// Kinds of lines that an engine fetches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GuessedLines {
    /// The accessed data.
    Data,
    /// The page-table entry at which the walk ends; in a virtual machine the guest's and the
    /// host's.
    Entries,
    /// Both, entries first, since the walk waits for them.
    Both,
}

impl GuessedLines {
    /// True if lines of this kind are fetched.
    pub fn has(self, what: What) -> bool {
        match what {
            What::Data => self != GuessedLines::Entries,
            What::Entry | What::Step => self != GuessedLines::Data,
        }
    }
}

/// A guessed line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guess {
    /// Any address in it.
    pub at: PhysAddr,
    /// Content that the engine expects there.
    pub what: What,
    /// Cycles from the engine's latency to the request for the line: 0 for an engine that makes all
    /// guesses of a miss at once.
    pub after: Cycle,
}

impl Guess {
    /// True if `at` lies in the guessed line.
    #[inline]
    pub fn covers(&self, at: PhysAddr) -> bool {
        (self.at.0 ^ at.0) >> LINE_SHIFT == 0
    }
}

/// Most guesses for one miss: for each tier an entry, data in a 4 KB page, and data in a 2 MB page.
pub const MOST_GUESSES: usize = 3 * MOST_TIERS;

/// Guesses for one miss, in the order in which their lines are requested.
pub type Guesses = ArrayVec<Guess, MOST_GUESSES>;

/// State that an engine may use when it guesses.
pub struct Seen<'a> {
    /// The page tables. Only oracle engines read them: real hardware cannot.
    pub view: &'a View<'a>,
    /// The hashes by which the kernel places frames, if it does, and their success counts.
    pub tiers: Option<&'a Tiers>,
    /// Cycles that a DRAM read of an address would wait for the bus and occupy it, if it were
    /// requested together with the guesses.
    pub delay: &'a dyn Fn(PhysAddr) -> Cycle,
}

/// A speculation engine of one core.
pub trait Engine: Send + Sync {
    /// Cycles from a miss to its guesses.
    fn latency(&self) -> Cycle;

    /// True if it can make guesses of this kind. Only such kinds are reported.
    fn makes(&self, what: What) -> bool;

    /// Guesses for a miss, made before the walk begins.
    fn guess(&mut self, miss: &Miss, seen: &Seen<'_>) -> Guesses;

    /// True if it guesses within nested walks.
    fn guesses_nested_steps(&self) -> bool {
        false
    }

    /// Guesses for `step` of the nested walk of the last miss, made before the host's table is
    /// walked.
    fn guess_step(&mut self, _step: &NestedStep, _seen: &Seen<'_>) -> Guesses {
        Guesses::new()
    }

    /// Receives the verdict on guess number `n` of the last miss. Guesses made at the miss are
    /// numbered first, from 0, then those of its steps.
    fn judged(&mut self, _n: usize, _verdict: &Verdict) {}

    /// Trains the engine with the translation that the walk found. Hardware knows it from `end` on.
    fn learn(&mut self, _miss: &Miss, _walked: &Walked, _end: Cycle) {}

    /// Drops what the engine has learned from translations that `what` covers.
    fn invalidate(&mut self, _what: &Invalidation) {}

    /// True if filtered functional warming may take the place of full functional warming in a core
    /// with this engine. Both call [`Engine::invalidate`] alone. The default is false: filtered
    /// warming keeps first-level TLBs and walk caches only roughly, and guesses start at their
    /// misses.
    fn can_filtered_warm(&self) -> bool {
        false
    }

    /// Adds the engine's own counters below `path`. Its guesses are counted by the MMU.
    fn report(&self, _path: &str, _tree: &mut Tree) {}
}
