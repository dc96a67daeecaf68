//! Ready times of values within a block.

use arrayvec::ArrayVec;

/// Producer of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Maker {
    /// An op of the block.
    Op(u16),
    /// The register's value at the start of the block.
    Register(u8),
}

/// A value in the block: ready when each of its producers is done and its further cycles have passed.
///
/// An instruction combines at most six registers with two producers each. Its loads are merged before the list grows
/// beyond twelve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Value(pub ArrayVec<(Maker, u16), 12>);

impl Value {
    /// The value of one producer.
    pub fn of(maker: Maker) -> Value {
        Value(ArrayVec::from_iter([(maker, 0)]))
    }
    /// Merges the producers of another value: ready when both are.
    pub fn merge(&mut self, other: &Value) {
        for &(maker, extra) in &other.0 {
            match self.0.iter_mut().find(|(m, _)| *m == maker) {
                Some((_, e)) => *e = (*e).max(extra),
                // A thirteenth would be dropped; see the struct.
                None => drop(self.0.try_push((maker, extra))),
            }
        }
    }
    /// The value `cycles` later.
    pub fn later(mut self, cycles: u16) -> Value {
        for (_, extra) in &mut self.0 {
            *extra += cycles;
        }
        self
    }
}
