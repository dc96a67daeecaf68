//! The choice of physical frames.

use pagewalk_stats::Tree;
use pagewalk_structures::Tiers;
use pagewalk_tables::Want;

use crate::memory::Memory;

/// Chooses the frames of all kernel allocations: pages, copies, reservations, and the
/// nodes and ways of page tables.
pub trait FrameChoice: Send + Sync {
    /// Allocates a block for `want` from `memory` and returns its first frame; `None`
    /// if there is none. A policy that wants a specific frame tries
    /// [`Memory::alloc_at`] and falls back to [`Memory::take`].
    fn take(&mut self, want: &Want, memory: &mut Memory) -> Option<u64>;

    /// The hashes of a hash-based policy and their success counts, which speculation
    /// hardware may read. `None` for other policies.
    fn tiers(&self) -> Option<&Tiers> {
        None
    }

    /// Adds the policy's counters below `path`.
    fn report(&self, _path: &str, _tree: &mut Tree) {}
}

/// Takes whatever block the buddy allocator returns.
pub struct AsItComes;

impl FrameChoice for AsItComes {
    fn take(&mut self, want: &Want, memory: &mut Memory) -> Option<u64> {
        memory.take(want)
    }
}
