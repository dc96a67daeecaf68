//! The page tables of one kernel: one for each address space, or one for all of them.

use pagewalk_stats::Tree;
use pagewalk_units::{Addr, Asid};

use crate::contract::{FrameSource, NoFrames, PageTable};
use crate::owner::Owner;
use crate::registry::BuildTable;

/// A kernel that boots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BootingKernel {
    /// Prefix that separates the tables of different kernels in one run, such as guest and host.
    pub name: &'static str,
    /// The run's seed.
    pub seed: u64,
    /// Bytes of its physical memory.
    pub memory: u64,
}

/// No contiguous block is free for memory that the tables of a kernel share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoBlock {
    /// Requested size in bytes.
    pub bytes: u64,
    /// The key of the table's configuration that determines the size.
    pub key: &'static str,
}

/// The page tables of one kernel, made when it boots.
pub trait KernelTables<In: Addr, Out: Addr>: Send + Sync {
    /// An empty page table of the address space `asid`. The table of an earlier address space of
    /// this number has been released.
    fn of_space(&self, asid: Asid) -> Box<dyn PageTable<In, Out>>;
    /// Adds the counters of what all address spaces share, at and below `path`.
    fn report(&self, _path: &str, _tree: &mut Tree) {}
    /// Bytes of simulated physical memory that all address spaces share. No address space's
    /// [`PageTable::bytes`] includes them.
    fn shared_bytes(&self) -> u64 {
        0
    }
}

/// A page table for each address space.
pub(crate) struct Separate<S> {
    pub(crate) spec: S,
    pub(crate) kernel: BootingKernel,
}

impl<S: BuildTable, In: Addr, Out: Addr> KernelTables<In, Out> for Separate<S> {
    fn of_space(&self, asid: Asid) -> Box<dyn PageTable<In, Out>> {
        self.spec.build(Owner {
            asid,
            seed: self.kernel.seed,
            kernel: self.kernel.name,
        })
    }
}

/// A kernel without memory for its tables.
pub(crate) struct NoMemory;

impl<A: Addr> FrameSource<A> for NoMemory {
    fn alloc(&mut self, want: crate::Want) -> Result<pagewalk_units::Frame<A>, NoFrames> {
        Err(NoFrames { bytes: want.bytes })
    }
    fn free(&mut self, _: pagewalk_units::Frame<A>, _: u64) {
        unreachable!("nothing was allocated");
    }
}
