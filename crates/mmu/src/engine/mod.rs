//! Speculation engines: where no TLB has a translation, they guess which lines
//! will be wanted when it is known, and the lines are fetched meanwhile. Guesses
//! change when things happen, never what happens.

mod perfect;
pub mod registry;
mod revelator;
mod spectlb;
mod speculation;

use arrayvec::ArrayVec;
use pagewalk_stats::Tree;
use pagewalk_structures::{MOST_TIERS, Tiers};
use pagewalk_tables::{Invalidation, View};
use pagewalk_units::{Access, Asid, Cycle, GuestPhysAddr, LINE_SHIFT, PhysAddr, VirtAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::revelator::{DegreeFilter, FilterStats, Nested};
pub use self::spectlb::{Detect, SpecTlbStats};
pub use self::speculation::{GuessStats, Verdict};
pub(crate) use self::speculation::{NestedSteps, Outcome, Speculation};
use crate::Walked;

/// A lookup that missed all TLBs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Miss {
    /// Whose address it is.
    pub asid: Asid,
    /// The address.
    pub va: VirtAddr,
    /// What for.
    pub access: Access,
    /// The instruction that asks.
    pub pc: u64,
    /// When the last TLB said that it does not have it.
    pub at: Cycle,
    /// It waits for a walk to the same 4 KB page that is under way, whose entries
    /// are on their way: only a line of its own can be new.
    pub merges: bool,
}

/// A guest-physical address that a nested walk needs and the nested TLB does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NestedStep {
    /// Whose walk it is.
    pub asid: Asid,
    /// The address that missed all TLBs.
    pub va: VirtAddr,
    /// The guest-physical address.
    pub gpa: GuestPhysAddr,
    /// Level of the guest's table whose entry lies there; 0: it is where `va` lies.
    pub level: u8,
    /// When the nested TLB said that it does not have it.
    pub at: Cycle,
}

/// What lies in a guessed line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// What the program asked for.
    Data,
    /// A page-table entry that the walk ends at.
    Entry,
    /// Within a nested walk, for a guest-physical address that it has come to: the guest's
    /// entry that lies there, or the host's entry that says where that is.
    Step,
}

/// Lines that an engine has fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GuessedLines {
    /// What the program asked for.
    Data,
    /// The page-table entry that the walk ends at; in a virtual machine the
    /// guest's and the host's.
    Entries,
    /// Both, entries first, since the walk waits for them.
    Both,
}

impl GuessedLines {
    /// Whether lines of this kind are among them.
    pub fn has(self, what: What) -> bool {
        match what {
            What::Data => self != GuessedLines::Entries,
            What::Entry | What::Step => self != GuessedLines::Data,
        }
    }
}

/// A line that will be wanted, perhaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guess {
    /// Any address in it.
    pub at: PhysAddr,
    /// What is said to lie there.
    pub what: What,
}

impl Guess {
    /// Whether `at` lies in its line.
    #[inline]
    pub fn covers(&self, at: PhysAddr) -> bool {
        (self.at.0 ^ at.0) >> LINE_SHIFT == 0
    }
}

/// Most guesses for one miss: of each tier that a kernel may place by an entry, and data in
/// pages of two sizes.
pub const MOST_GUESSES: usize = 3 * MOST_TIERS;

/// Guesses for one miss, in the order in which their lines are asked for.
pub type Guesses = ArrayVec<Guess, MOST_GUESSES>;

/// What an engine may look at when it guesses.
pub struct Seen<'a> {
    /// The tables: for engines that know the answer; the hardware of others does not
    /// have it.
    pub view: &'a View<'a>,
    /// The hashes by which the kernel places frames, if it does, and with what success.
    pub tiers: Option<&'a Tiers>,
    /// How many cycles longer than on an idle memory a DRAM access to the line of an
    /// address would take, asked for when the guesses are.
    pub delay: &'a dyn Fn(PhysAddr) -> Cycle,
}

/// A speculation engine of one core.
pub trait Engine: Send + Sync {
    /// Cycles from a miss to its guesses.
    fn latency(&self) -> Cycle;

    /// Whether it ever makes guesses of this kind: only these are reported.
    fn makes(&self, what: What) -> bool;

    /// What it guesses for a miss, before the walk begins.
    fn guess(&mut self, miss: &Miss, seen: &Seen<'_>) -> Guesses;

    /// Whether it guesses within nested walks.
    fn guesses_nested_steps(&self) -> bool {
        false
    }

    /// What it guesses when the nested walk for the last miss has come to `step`, before the
    /// host's table is walked for it.
    fn guess_step(&mut self, _step: &NestedStep, _seen: &Seen<'_>) -> Guesses {
        Guesses::new()
    }

    /// What became of guess number `n`, from 0 on, of those for the last miss: those made at
    /// once first, and then those of its steps.
    fn judged(&mut self, _n: usize, _verdict: &Verdict) {}

    /// The walk for a miss has found its translation, which is known at `end`: before, an
    /// engine has nothing of it.
    fn learn(&mut self, _miss: &Miss, _walked: &Walked, _end: Cycle) {}

    /// Translations that the kernel has changed.
    fn invalidate(&mut self, _what: &Invalidation) {}

    /// Adds what it counted beside its guesses below `path`.
    fn report(&self, _path: &str, _tree: &mut Tree) {}
}
