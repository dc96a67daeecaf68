//! Blocks of executed code: the ops after a branch, up to the next.

use pagewalk_stream::{Op, OpClass};

/// Most ops of a block; of a longer one only these are known.
const LONGEST: usize = 64;
/// Most producers that are kept for an input.
const MAKERS: usize = 4;

/// The origins of a load's inputs may never recur. New addresses of such a load are then stored for
/// one op in this many only.
pub(super) const TRIED: u64 = 16;
/// Saturation value of [`Learned::again`]: executions in a row without recurrence after which new
/// addresses of a load are no longer stored.
const AGAIN: u8 = 64;

/// Producers of an op's input.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Input {
    /// Distance to the producer in the same block; 0: none.
    pub inside: u16,
    /// Producers in earlier blocks, by name; 0: none.
    pub names: [u64; MAKERS],
}

/// The last execution of an op.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Learned {
    /// Name of the op.
    pub name: u64,
    /// The op.
    pub op: Op,
    /// Producers of its inputs.
    pub inputs: [Input; 2],
    /// For a load: saturating count of recent executions whose inputs' origins had been seen
    /// before.
    pub again: u8,
}

/// A block: the key of the branch before it, and its ops.
#[derive(Clone, Debug, Default)]
struct Block {
    key: u64,
    ops: Vec<Learned>,
}

/// A bounded number of blocks, direct-mapped.
#[derive(Clone, Debug)]
pub(super) struct Code {
    blocks: Box<[Block]>,
    /// The current block and the position in it.
    current: Option<(usize, usize)>,
}

impl Code {
    /// An empty table of `blocks` blocks, a power of two.
    pub fn new(blocks: usize) -> Self {
        Code {
            blocks: vec![Block::default(); blocks].into(),
            current: None,
        }
    }

    #[inline]
    fn slot(&self, key: u64) -> usize {
        (super::addresses::hash(key) >> 7) as usize & (self.blocks.len() - 1)
    }

    /// The block with this key, if it is known.
    pub fn find(&self, key: u64) -> Option<usize> {
        let slot = self.slot(key);
        (self.blocks[slot].key == key).then_some(slot)
    }

    /// Op `k` of a block, if it has that many.
    pub fn op(&self, block: usize, k: usize) -> Option<Learned> {
        self.blocks[block].ops.get(k).copied()
    }

    /// Begins the block with this key.
    #[inline]
    pub fn enter(&mut self, key: u64) {
        let slot = self.slot(key);
        let block = &mut self.blocks[slot];
        if block.key != key {
            block.key = key;
            block.ops.clear();
        }
        self.current = Some((slot, 0));
    }

    /// Leaves the block: the next ops are in no known block.
    pub fn leave(&mut self) {
        self.current = None;
    }

    /// True if a new address of the last learned load should be stored.
    #[inline]
    pub fn remembers(&self) -> bool {
        self.last().is_none_or(|l| l.again > 0)
    }

    /// Trains the last learned load: `before` is true if its inputs' origins had been seen before.
    #[inline]
    pub fn seen(&mut self, before: bool) {
        if let Some(at) = self.current {
            let (slot, k) = (at.0, at.1 - 1);
            let again = &mut self.blocks[slot].ops[k].again;
            *again = if before {
                (*again + 1).min(AGAIN)
            } else {
                again.saturating_sub(1)
            };
        }
    }

    #[inline]
    fn last(&self) -> Option<&Learned> {
        let (slot, k) = self.current?;
        self.blocks[slot].ops.get(k.checked_sub(1)?)
    }

    /// Learns the next op of the block. `named`: name of the op at a distance before it.
    #[inline]
    pub fn learn(&mut self, op: &Op, name: u64, named: impl Fn(u16) -> Option<u64>) {
        let Some((slot, k)) = self.current else {
            return;
        };
        if k == LONGEST {
            self.current = None;
            return;
        }
        self.current = Some((slot, k + 1));
        let ops = &mut self.blocks[slot].ops;
        if ops
            .get(k)
            .is_none_or(|l| l.name != name || l.op.kind != op.kind)
        {
            ops.truncate(k);
            ops.push(Learned {
                name,
                op: *op,
                inputs: [Input::default(); 2],
                again: AGAIN,
            });
        }
        let learned = &mut ops[k];
        learned.op = *op;
        // Stores do nothing on wrong paths.
        if op.kind == OpClass::Store {
            return;
        }
        for (input, &d) in learned.inputs.iter_mut().zip(&op.dep) {
            if d == 0 {
                continue;
            }
            if usize::from(d) <= k {
                input.inside = d;
                continue;
            }
            if let Some(name) = named(d)
                && !input.names.contains(&name)
            {
                input.inside = 0;
                let free = input.names.iter().position(|&n| n == 0);
                match free {
                    Some(at) => input.names[at] = name,
                    None => {
                        input.names.rotate_left(1);
                        input.names[MAKERS - 1] = name;
                    }
                }
            }
        }
    }
}
