//! Pointers: values of one origin that several instructions use as a base, each at its own fixed
//! distance.

use super::addresses::{Addresses, hash};
use super::{Origin, mix};

/// Number of instructions whose distances are known.
const INSTRUCTIONS: usize = 1 << 14;
/// Times that a distance must have been right to be used.
const SURE: u8 = 2;
/// Saturation value of that count.
const MOST: u8 = 7;

/// Distance from a pointer at which an instruction accesses memory.
#[derive(Clone, Copy, Default, Debug)]
struct Distance {
    name: u64,
    bytes: u64,
    sure: u8,
}

/// Table of distances by instruction. Values of pointers are known up to a constant. The first
/// instruction that uses a pointer has the distance 0, and other distances are relative to it.
#[derive(Clone, Debug)]
pub(super) struct Pointers {
    distances: Box<[Distance]>,
}

#[inline]
fn key(origin: Origin) -> u64 {
    mix(origin, 9)
}

impl Pointers {
    /// An empty table.
    pub fn new() -> Self {
        Pointers {
            distances: vec![Distance::default(); INSTRUCTIONS].into(),
        }
    }

    #[inline]
    fn slot(name: u64) -> usize {
        hash(name) as usize % INSTRUCTIONS
    }

    /// Learns that the instruction has accessed `va` by an input of this origin. `new`: a new
    /// origin may get an entry. Returns two flags: the origin was known, and the address was
    /// predicted.
    #[inline]
    pub fn learn(
        &mut self,
        addresses: &mut Addresses,
        (name, origin): (u64, Origin),
        va: u64,
        new: bool,
    ) -> (bool, bool) {
        let d = &mut self.distances[Self::slot(name)];
        if d.name != name {
            *d = Distance {
                name,
                ..Distance::default()
            };
        }
        let value = addresses.get(key(origin));
        match value {
            Some(v) if v.wrapping_add(d.bytes) == va => {
                let right = d.sure >= SURE;
                d.sure = (d.sure + 1).min(MOST);
                return (true, right);
            }
            // The distance is not reliable yet.
            Some(v) if d.sure < SURE => {
                d.sure = d.sure.saturating_sub(1);
                if d.sure == 0 {
                    d.bytes = va.wrapping_sub(v);
                }
            }
            // The value has changed, or it is no pointer.
            _ => {
                d.sure -= u8::from(value.is_some());
                addresses.learn(key(origin), va.wrapping_sub(d.bytes), new);
            }
        }
        (value.is_some(), false)
    }

    /// Address that the instruction would access by an input of this origin.
    pub fn find(&self, addresses: &Addresses, name: u64, origin: Origin) -> Option<u64> {
        let d = &self.distances[Self::slot(name)];
        if d.name != name || d.sure < SURE {
            return None;
        }
        Some(addresses.get(key(origin))?.wrapping_add(d.bytes))
    }

    /// Copies the value of the origin `from` to the origin `to`.
    #[inline]
    pub fn copy(&self, addresses: &mut Addresses, from: Origin, to: Origin) {
        if let Some(v) = addresses.get(key(from)) {
            addresses.learn(key(to), v, true);
        }
    }
}
