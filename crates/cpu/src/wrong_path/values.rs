//! Distances of loads from the pointers that the program's memory holds.

use super::pointers::Distances;

/// Attempts to find the distance of a load, and the ops between later attempts: each reads memory.
const TRIES: u8 = 16;
const RARELY: u64 = 256;

/// Table of distances by load.
#[derive(Clone, Debug)]
pub(super) struct Values {
    distances: Distances,
}

impl Values {
    /// An empty table.
    pub fn new() -> Self {
        Values {
            distances: Distances::new(),
        }
    }

    /// True if the load of this name, the op of number `seen`, is to be learned.
    #[inline]
    pub fn wants(&self, name: u64, seen: u64) -> bool {
        self.distances.tries(name) < TRIES || seen.is_multiple_of(RARELY)
    }

    /// Learns that the load has accessed `va` by this pointer; `None`: it cannot be read.
    pub fn learn(&mut self, name: u64, pointer: Option<u64>, va: u64) {
        let d = self.distances.entry(name);
        d.tries = d.tries.saturating_add(1);
        if let Some(pointer) = pointer {
            d.train(va.wrapping_sub(pointer));
        }
    }

    /// Distance of the load's address from its pointer, if it is known.
    pub fn find(&self, name: u64) -> Option<u64> {
        self.distances.find(name)
    }
}
