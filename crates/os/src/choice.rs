//! Which frame a wish gets.

use pagewalk_stats::Tree;
use pagewalk_structures::Tiers;
use pagewalk_tables::Want;

use crate::memory::Memory;

/// Chooses the frames of everything that the kernel hands out: pages, copies,
/// reservations, and the nodes and ways of page tables.
pub trait FrameChoice: Send + Sync {
    /// Takes a block for `want` out of `memory`: its first frame; `None` if there
    /// is none. A choice that wants a certain frame tries [`Memory::alloc_at`],
    /// and [`Memory::take`] when that is not free.
    fn take(&mut self, want: &Want, memory: &mut Memory) -> Option<u64>;

    /// The hashes by which it chooses, if it does, and with what success: what hardware
    /// that guesses frames is told.
    fn tiers(&self) -> Option<&Tiers> {
        None
    }

    /// Adds what it counts below `path`.
    fn report(&self, _path: &str, _tree: &mut Tree) {}
}

/// What the buddy allocator gives.
pub struct AsItComes;

impl FrameChoice for AsItComes {
    fn take(&mut self, want: &Want, memory: &mut Memory) -> Option<u64> {
        memory.take(want)
    }
}
