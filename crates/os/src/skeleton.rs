//! The surface that other crates build against; bodies are still to come.
#![allow(unused_variables, missing_docs, clippy::all)]
use pagewalk_stats::Tree;
use pagewalk_tables::{Invalidation, View};
use pagewalk_units::{Access, Advice, Asid, Backing, Cycle, VirtAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Physical memory and what the kernel charges. (Fields are the os crate's to define.)
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OsSpec {
    /// Physical memory, GB.
    pub memory_gb: u64,
}

/// How frames are chosen: externally tagged, `[placement.thp]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlacementSpec {
    /// 4 KB frames from the buddy allocator.
    Buddy {},
    /// Linux-style transparent huge pages.
    Thp {},
    /// Reservation-based (Navarro et al., OSDI 2002).
    Reservation { promotion_threshold: f64 },
}

/// Which page table: externally tagged, `[page_table.radix]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PageTableSpec {
    /// The x86-64 radix tree.
    Radix { levels: u8 },
}

/// What a call did to the rest of the machine.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// What every core has to forget.
    pub invalidate: Vec<Invalidation>,
    /// Kernel time of the caller, cycles.
    pub cycles: Cycle,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OsError {
    /// Simulated memory ran out: a clear result, not a crash of ours.
    #[error("out of memory")]
    OutOfMemory { wanted: u64, free: u64 },
    /// No mapping, or no permission.
    #[error("segmentation fault at {at}")]
    SegmentationFault { at: VirtAddr, access: Access },
    #[error("{0}")]
    Bad(String),
}

/// A process inside the OS.
pub type Pid = u32;

pub struct Os;
impl Os {
    pub fn new(
        spec: &OsSpec,
        placement: &PlacementSpec,
        table: &PageTableSpec,
        frequency_ghz: f64,
        seed: u64,
    ) -> Result<Self, String> {
        todo!()
    }
    /// A new, empty process. `infer`: unknown addresses become mappings of the aligned 2 MB around them.
    pub fn spawn(&mut self, infer: bool) -> Result<Pid, OsError> {
        todo!()
    }
    pub fn asid(&self, pid: Pid) -> Asid {
        todo!()
    }
    /// What the walker of a thread of `pid` sees.
    pub fn view(&self, pid: Pid) -> View<'_> {
        todo!()
    }
    /// Acts on Map, Unmap, Remap, Protect, Advise, Populate, Exec of `pagewalk_stream::Event` is the machine's job: it calls these.
    pub fn map(
        &mut self,
        pid: Pid,
        at: VirtAddr,
        bytes: u64,
        writable: bool,
        backing: Backing,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        todo!()
    }
    pub fn unmap(
        &mut self,
        pid: Pid,
        at: VirtAddr,
        bytes: u64,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        todo!()
    }
    pub fn remap(
        &mut self,
        pid: Pid,
        from: VirtAddr,
        old: u64,
        to: VirtAddr,
        new: u64,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        todo!()
    }
    pub fn protect(
        &mut self,
        pid: Pid,
        at: VirtAddr,
        bytes: u64,
        writable: bool,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        todo!()
    }
    pub fn advise(
        &mut self,
        pid: Pid,
        at: VirtAddr,
        bytes: u64,
        advice: Advice,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        todo!()
    }
    /// Touches every page of the range in order, functionally and fast.
    pub fn populate(
        &mut self,
        pid: Pid,
        at: VirtAddr,
        bytes: u64,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        todo!()
    }
    /// A page fault of the program; `fx.cycles` is its price.
    pub fn fault(
        &mut self,
        pid: Pid,
        at: VirtAddr,
        access: Access,
        fx: &mut Effects,
    ) -> Result<(), OsError> {
        todo!()
    }
    pub fn fork(&mut self, pid: Pid, fx: &mut Effects) -> Result<Pid, OsError> {
        todo!()
    }
    pub fn exec(&mut self, pid: Pid, fx: &mut Effects) {
        todo!()
    }
    pub fn exit(&mut self, pid: Pid, fx: &mut Effects) {
        todo!()
    }
    pub fn report(&self, path: &str, tree: &mut Tree) {
        todo!()
    }
}
