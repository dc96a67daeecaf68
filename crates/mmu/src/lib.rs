//! TLBs, walk caches and the walker: what turns an instruction's virtual
//! address into a physical one, and what that costs.
//!
//! A request goes to the first-level arrays (whose lookup runs beside the
//! cache's and costs nothing), to the second-level arrays, and then to a
//! walker, whose reads go through the core's caches. Every TLB entry has the
//! time from which it answers; a translation on its way serves only the 4 KB
//! page that asked for it, since hardware does not know the size yet. A machine may have
//! one more TLB, which is a part of memory: it is asked before a walk.
//!
//! Where no TLB has a translation, a speculation engine may guess lines that
//! will be wanted; they are fetched into the core's L2 while the walk goes on.

// The mocks of the integration tests name this crate from outside.
#[cfg(test)]
extern crate self as pagewalk_mmu;

mod engine;
mod level;
mod mapping;
mod mmu;
mod prefetcher;
mod record;
mod replacement;
mod spec;
mod tlb;
mod walk;

pub use engine::registry::*;
pub use engine::{
    DegreeFilter, Detect, Engine, FilterStats, Guess, GuessStats, GuessedLines, Guesses,
    MOST_GUESSES, Miss, Nested, NestedStep, Seen, SpecTlbStats, Verdict, What,
};
pub use mmu::{
    Ahead, AuxiliaryBuffer, Fault, INSERTIONS, InMemoryStats, Lookup, Mmu, MmuStats, PwcStats,
    STB_ENTRIES, StltQuery, Translated, TranslationSource, WalkContext, l2_tlb_misses,
};
pub use prefetcher::DistanceStats;
pub use prefetcher::registry::*;
pub use record::{GuessRecord, ReadRecord, WalkRecord};
pub use replacement::registry::*;
pub use spec::{MmuSpec, NestedTlbSpec, TlbSpec};
pub use tlb::TlbStats;
pub use walk::{Leaf, NestedStats, Walked, is_mapped};
