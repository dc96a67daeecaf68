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
pub(super) struct Distance {
    name: u64,
    pub bytes: u64,
    sure: u8,
    /// Attempts to learn it, for [`super::values::Values`].
    pub tries: u8,
}

impl Distance {
    /// True if it may be used.
    #[inline]
    pub fn is_sure(&self) -> bool {
        self.sure >= SURE
    }

    /// Trains it with an access at `bytes` from the pointer. An unreliable distance is replaced.
    #[inline]
    pub fn train(&mut self, bytes: u64) {
        if self.bytes == bytes {
            self.sure = (self.sure + 1).min(MOST);
        } else {
            self.sure = self.sure.saturating_sub(1);
            if self.sure == 0 {
                self.bytes = bytes;
            }
        }
    }
}

/// Distances by instruction, direct-mapped.
#[derive(Clone, Debug)]
pub(super) struct Distances(Box<[Distance]>);

impl Distances {
    /// An empty table.
    pub fn new() -> Self {
        Distances(vec![Distance::default(); INSTRUCTIONS].into())
    }

    #[inline]
    fn slot(name: u64) -> usize {
        hash(name) as usize % INSTRUCTIONS
    }

    /// The distance of the instruction. A new one takes the place of another.
    #[inline]
    pub fn entry(&mut self, name: u64) -> &mut Distance {
        let d = &mut self.0[Self::slot(name)];
        if d.name != name {
            *d = Distance {
                name,
                ..Distance::default()
            };
        }
        d
    }

    /// Attempts to learn the distance of the instruction.
    #[inline]
    pub fn tries(&self, name: u64) -> u8 {
        let d = &self.0[Self::slot(name)];
        if d.name == name { d.tries } else { 0 }
    }

    /// The distance of the instruction, if it may be used.
    #[inline]
    pub fn find(&self, name: u64) -> Option<u64> {
        let d = &self.0[Self::slot(name)];
        (d.name == name && d.is_sure()).then_some(d.bytes)
    }
}

/// Table of distances by instruction. Values of pointers are known up to a constant. The first
/// instruction that uses a pointer has the distance 0, and other distances are relative to it.
#[derive(Clone, Debug)]
pub(super) struct Pointers {
    distances: Distances,
}

#[inline]
fn key(origin: Origin) -> u64 {
    mix(origin, 9)
}

impl Pointers {
    /// An empty table.
    pub fn new() -> Self {
        Pointers {
            distances: Distances::new(),
        }
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
        let d = self.distances.entry(name);
        let Some(value) = addresses.get(key(origin)) else {
            addresses.learn(key(origin), va.wrapping_sub(d.bytes), new);
            return (false, false);
        };
        let (sure, right) = (d.is_sure(), value.wrapping_add(d.bytes) == va);
        d.train(va.wrapping_sub(value));
        if sure && !right {
            // The value has changed, or it is no pointer.
            addresses.learn(key(origin), va.wrapping_sub(d.bytes), new);
        }
        (true, sure && right)
    }

    /// Address that the instruction would access by an input of this origin.
    pub fn find(&self, addresses: &Addresses, name: u64, origin: Origin) -> Option<u64> {
        let bytes = self.distances.find(name)?;
        Some(addresses.get(key(origin))?.wrapping_add(bytes))
    }

    /// Copies the value of the origin `from` to the origin `to`.
    #[inline]
    pub fn copy(&self, addresses: &mut Addresses, from: Origin, to: Origin) {
        if let Some(v) = addresses.get(key(from)) {
            addresses.learn(key(to), v, true);
        }
    }
}
