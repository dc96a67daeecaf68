//! Distances of loads from the pointers that the program's memory holds.

use super::addresses::hash;

/// Number of loads whose distances are known.
const LOADS: usize = 1 << 14;
/// Times that a distance must have been right to be used.
const SURE: u8 = 2;
/// Saturation value of that count.
const MOST: u8 = 7;
/// Attempts to find the distance of a load, and the ops between later attempts: each reads memory.
const TRIES: u8 = 16;
const RARELY: u64 = 256;

#[derive(Clone, Copy, Default, Debug)]
struct Distance {
    name: u64,
    bytes: u64,
    sure: u8,
    tries: u8,
}

/// Table of distances by load.
#[derive(Clone, Debug)]
pub(super) struct Values {
    distances: Box<[Distance]>,
}

impl Values {
    /// An empty table.
    pub fn new() -> Self {
        Values {
            distances: vec![Distance::default(); LOADS].into(),
        }
    }

    #[inline]
    fn slot(name: u64) -> usize {
        hash(name) as usize % LOADS
    }

    /// True if the load of this name, the op of number `seen`, is to be learned.
    #[inline]
    pub fn wants(&self, name: u64, seen: u64) -> bool {
        let d = &self.distances[Self::slot(name)];
        d.name != name || d.tries < TRIES || seen.is_multiple_of(RARELY)
    }

    /// Learns that the load has accessed `va` by this pointer; `None`: it cannot be read.
    pub fn learn(&mut self, name: u64, pointer: Option<u64>, va: u64) {
        let d = &mut self.distances[Self::slot(name)];
        if d.name != name {
            *d = Distance {
                name,
                ..Distance::default()
            };
        }
        d.tries = d.tries.saturating_add(1);
        let Some(pointer) = pointer else {
            return;
        };
        let bytes = va.wrapping_sub(pointer);
        if d.bytes == bytes {
            d.sure = (d.sure + 1).min(MOST);
        } else {
            d.sure = d.sure.saturating_sub(1);
            if d.sure == 0 {
                d.bytes = bytes;
            }
        }
    }

    /// Distance of the load's address from its pointer, if it is known.
    pub fn find(&self, name: u64) -> Option<u64> {
        let d = &self.distances[Self::slot(name)];
        (d.name == name && d.sure >= SURE).then_some(d.bytes)
    }
}
