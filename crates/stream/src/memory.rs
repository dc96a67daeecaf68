//! Contents of a program's memory.

use std::fmt::Debug;
use std::sync::Arc;

/// Reader of a process's memory. Other host threads may run the process meanwhile.
pub trait Memory: Send + Sync + Debug {
    /// Copies the bytes at the virtual address `va` into `into`. False if they cannot be read:
    /// some are not mapped, or the process has ended.
    fn read(&self, va: u64, into: &mut [u8]) -> bool;
}

/// The memory of one process. Two are equal if they are the same one.
#[derive(Clone, Debug)]
pub struct ProgramMemory(pub Arc<dyn Memory>);

impl ProgramMemory {
    /// The little-endian word of 8 bytes at `va`.
    pub fn word(&self, va: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.0
            .read(va, &mut bytes)
            .then(|| u64::from_le_bytes(bytes))
    }
}

impl PartialEq for ProgramMemory {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ProgramMemory {}
