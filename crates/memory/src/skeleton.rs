//! The surface that other crates build against; bodies are still to come.
#![allow(unused_variables, missing_docs, clippy::all)]
use crate::*;
use pagewalk_stats::Tree;
use pagewalk_units::{Cycle, PhysAddr};

/// The private caches of one core: L1I, L1D, L2.
pub struct Private;
impl Private {
    /// Refuses impossible geometry with a sentence that names the key.
    pub fn new(spec: &PrivateSpec, core: u8) -> Result<Self, String> {
        todo!()
    }
    /// Enters by `request.kind`: Fetch at L1I, Load/Store at L1D, Walk where configured, Speculative at L2.
    #[inline]
    pub fn access<B: Below>(&mut self, request: Request, now: Cycle, below: &mut B) -> Done {
        todo!()
    }
    /// State only: tags, replacement, prefetcher training; no time, no statistics of latency.
    #[inline]
    pub fn warm<B: Below>(&mut self, request: Request, below: &mut B) {
        todo!()
    }
    /// Load-to-use of an L1D hit.
    pub fn l1d_latency(&self) -> Cycle {
        todo!()
    }
    /// Another core writes (`exclusive`) or reads this line: drop or clean it. Whether it was dirty.
    pub fn snoop(&mut self, at: PhysAddr, exclusive: bool) -> bool {
        todo!()
    }
}
impl Report for Private {
    fn report(&self, path: &str, tree: &mut Tree) {
        todo!()
    }
}

/// L3, directory and DRAM.
pub struct Shared;
impl Shared {
    pub fn new(spec: &SharedSpec, cores: u8, frequency_ghz: f64) -> Result<Self, String> {
        todo!()
    }
    /// Snoops that `core` has to take before its next access: (line, exclusive).
    pub fn take_snoops(&mut self, core: u8, into: &mut Vec<(PhysAddr, bool)>) {
        todo!()
    }
    /// Whether `take_snoops` would give anything: one load and compare.
    #[inline]
    pub fn has_snoops(&self, core: u8) -> bool {
        todo!()
    }
}
impl Below for Shared {
    fn access(&mut self, request: Request, now: Cycle) -> Done {
        todo!()
    }
    fn write_back(&mut self, at: PhysAddr, core: u8, now: Cycle) {
        todo!()
    }
    fn dropped(&mut self, at: PhysAddr, core: u8) {
        todo!()
    }
    fn delay(&self, at: PhysAddr, now: Cycle) -> Cycle {
        todo!()
    }
    fn warm(&mut self, request: Request) {
        todo!()
    }
}
impl Report for Shared {
    fn report(&self, path: &str, tree: &mut Tree) {
        todo!()
    }
}
