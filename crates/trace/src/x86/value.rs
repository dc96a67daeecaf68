//! When a value within a block is ready.

use arrayvec::ArrayVec;

/// Who makes a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Maker {
    /// An op of the block.
    Op(u16),
    /// What the register held when the block started.
    Register(u8),
}

/// A value in the block: ready when all its makers are, each so many cycles later.
///
/// Twelve are more than any instruction combines: six registers of at most two
/// makers each. Its loads are merged before they become more than that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Value(pub ArrayVec<(Maker, u16), 12>);

impl Value {
    /// What this maker makes.
    pub fn of(maker: Maker) -> Value {
        Value(ArrayVec::from_iter([(maker, 0)]))
    }
    /// Ready when both are.
    pub fn merge(&mut self, other: &Value) {
        for &(maker, extra) in &other.0 {
            match self.0.iter_mut().find(|(m, _)| *m == maker) {
                Some((_, e)) => *e = (*e).max(extra),
                // A thirteenth would be dropped; see the struct.
                None => drop(self.0.try_push((maker, extra))),
            }
        }
    }
    /// The same so many cycles later.
    pub fn later(mut self, cycles: u16) -> Value {
        for (_, extra) in &mut self.0 {
            *extra += cycles;
        }
        self
    }
}
