//! Address translation: TLBs, walk caches and page walkers, and the cycles that they cost.
//!
//! A request first looks up the first-level TLBs, in parallel with the L1 cache. On a miss it looks
//! up the second-level TLBs. Further structures may hold translations, such as a TLB in memory. If
//! all miss, a walker walks the page table. Its reads go through the core's caches.
//!
//! Each TLB entry holds the cycle from which it is ready. Until then, requests can merge with its
//! walk only for the 4 KB page that missed: hardware does not know the size of the page yet.
//!
//! When all TLBs miss, a speculation engine may guess lines that will be needed. They are fetched
//! into the core's L2 while the walk is under way.
//!
//! The modules, from the outside in:
//!
//! - `mmu`: the MMU of a core and the order in which a miss tries its parts.
//! - `level`, `tlb`, `replacement`: a TLB level, its arrays, and their replacement policies.
//! - `source`: translation sources, which are structures besides the TLBs that hold translations.
//! - `walk`: the page walk, native and nested, and the caches of the walkers.
//! - `engine`: speculation engines. `prefetcher`: TLB prefetchers.
//! - `spec`: configuration. `record`: records of single walks.

// The mocks of the integration tests name this crate from outside.
#[cfg(test)]
extern crate self as pagewalk_mmu;

pub mod engine;
mod level;
mod mapping;
mod mmu;
mod prefetcher;
mod record;
mod replacement;
pub mod source;
mod spec;
mod tlb;
mod walk;

pub use engine::registry::*;
pub use engine::{
    DegreeFilter, Detect, Engine, FilterStats, Guess, GuessStats, GuessedLines, Guesses,
    MOST_GUESSES, Miss, Nested, NestedStep, Seen, SpecTlbStats, Verdict, What,
};
pub use mmu::{
    Ahead, Fault, INSERTIONS, Lookup, Mmu, MmuStats, NO_PC, PwcStats, ServedBy, StltQuery,
    Translated, WalkContext,
};
pub use prefetcher::DistanceStats;
pub use prefetcher::registry::*;
pub use record::{GuessRecord, ReadRecord, WalkRecord};
pub use replacement::registry::*;
pub use source::registry::{SourceArray, Sources, TranslationSpec};
pub use source::stb::STB_ENTRIES;
pub use spec::{MmuSpec, NestedTlbSpec, TlbSpec};
pub use tlb::TlbStats;
pub use walk::{Leaf, NestedStats, Walked, is_mapped};
