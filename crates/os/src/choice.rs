//! Which frame a wish gets.

use pagewalk_tables::Want;

use crate::memory::Memory;

/// Chooses the frames of everything that the kernel hands out: pages, copies,
/// reservations, and the nodes and ways of page tables.
pub trait FrameChoice: Send + Sync {
    /// Takes a block for `want` out of `memory`: its first frame; `None` if there
    /// is none. A choice that wants a certain frame tries [`Memory::alloc_at`],
    /// and [`Memory::take`] when that is not free.
    fn take(&mut self, want: &Want, memory: &mut Memory) -> Option<u64>;
}

/// What the buddy allocator gives.
pub struct AsItComes;

impl FrameChoice for AsItComes {
    fn take(&mut self, want: &Want, memory: &mut Memory) -> Option<u64> {
        memory.take(want)
    }
}
