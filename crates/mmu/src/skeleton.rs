//! The surface that other crates build against; bodies are still to come.
#![allow(unused_variables, missing_docs, clippy::all)]
use pagewalk_memory::{Below, Private};
use pagewalk_stats::Tree;
use pagewalk_tables::{Invalidation, View, WalkCacheSpec};
use pagewalk_units::{Access, Asid, Cycle, PageSize, PhysAddr, VirtAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One TLB array.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlbSpec {
    /// Page sizes it holds.
    pub page_sizes: Vec<PageSize>,
    /// Entries.
    pub entries: u32,
    /// Ways; = entries: fully associative. Sets need not be a power of two.
    pub ways: u32,
    /// Cycles from the core's request to the answer of this level.
    pub latency: Cycle,
}

/// The MMU of one core. Arrays of a level are looked up in parallel; the one that
/// serves 4 KB pages is named `main` in every shipped machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MmuSpec {
    /// First level, instructions.
    pub l1i: BTreeMap<String, TlbSpec>,
    /// First level, data.
    pub l1d: BTreeMap<String, TlbSpec>,
    /// Second level, of both unless `l2i` is given.
    pub l2: BTreeMap<String, TlbSpec>,
    /// Second level for instructions alone.
    #[serde(default)]
    pub l2i: BTreeMap<String, TlbSpec>,
    /// Page-walk caches.
    pub walk_caches: WalkCacheSpec,
    /// Walks at a time.
    pub walkers: u32,
    /// Every translation is known at once (no TLB misses): the limit that designs are held against.
    #[serde(default)]
    pub perfect: bool,
}

/// A translated address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub pa: PhysAddr,
    /// When the translation is known; = the time of asking for an L1 TLB hit, whose lookup is part of the L1 cache's load-to-use.
    pub at: Cycle,
    pub from: From,
}
/// Where a translation came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    L1,
    L2,
    Walk,
}

/// A translation that only the kernel can make possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub va: VirtAddr,
    pub access: Access,
    /// When the walk found out.
    pub at: Cycle,
}

pub struct Mmu;
impl Mmu {
    pub fn new(spec: &MmuSpec, core: u8) -> Result<Self, String> {
        todo!()
    }
    #[inline]
    pub fn translate<B: Below>(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        access: Access,
        pc: u64,
        now: Cycle,
        view: &View<'_>,
        private: &mut Private,
        below: &mut B,
    ) -> Result<Answer, Fault> {
        todo!()
    }
    /// State only.
    #[inline]
    pub fn warm<B: Below>(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        access: Access,
        view: &View<'_>,
        private: &mut Private,
        below: &mut B,
    ) -> Result<PhysAddr, Fault> {
        todo!()
    }
    pub fn invalidate(&mut self, what: &Invalidation) {
        todo!()
    }
    pub fn report(&self, path: &str, tree: &mut Tree) {
        todo!()
    }
}
