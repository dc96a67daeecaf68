//! The right path after a mispredicted branch, with which the wrong path may converge.

use pagewalk_stream::{Op, OpClass};

/// Slots of the table of ops by name.
const SLOTS: usize = 2048;
/// Words of the filter of written words.
const FILTER: usize = 32;
/// Number of no op.
const NONE: u16 = u16::MAX;

/// The ops after a branch, by name and in order.
pub(crate) struct Ahead {
    /// Name, episode, and the first op of that name that the wrong path has not reached.
    slots: Box<[(u64, u32, u16)]>,
    /// For each op, the next op of the same name.
    next: Vec<u16>,
    /// Number of the current wrong path, which marks valid slots.
    episode: u32,
    /// Words that the ops write, as a filter without false negatives.
    written: [u64; FILTER],
}

/// Bit of a word's address in the filter.
fn bit(va: u64) -> (usize, u64) {
    let h = super::addresses::hash(va >> 3);
    (h as usize % FILTER, 1 << (h >> 32 & 63))
}

impl Ahead {
    /// An empty table.
    pub fn new() -> Self {
        Ahead {
            slots: vec![(0, 0, NONE); SLOTS].into(),
            next: Vec::new(),
            episode: 0,
            written: [0; FILTER],
        }
    }

    fn slot(name: u64) -> usize {
        super::addresses::hash(name) as usize % SLOTS
    }

    /// Sets the ops after a branch and their names.
    pub fn set(&mut self, ops: &[Op], names: &[u64]) {
        self.written = [0; FILTER];
        for op in ops.iter().filter(|op| op.kind == OpClass::Store) {
            for va in [op.va, op.va.wrapping_add(u64::from(op.size.max(1)) - 1)] {
                let (at, bit) = bit(va);
                self.written[at] |= bit;
            }
        }
        self.episode = self.episode.wrapping_add(1);
        self.next.clear();
        self.next.resize(names.len(), NONE);
        for (j, &name) in names.iter().enumerate().rev() {
            let slot = &mut self.slots[Self::slot(name)];
            if (slot.0, slot.1) == (name, self.episode) {
                self.next[j] = slot.2;
            }
            *slot = (name, self.episode, j as u16);
        }
    }

    /// True if one of the ops may write the word at `va`.
    pub fn writes(&self, va: u64) -> bool {
        let (at, bit) = bit(va);
        self.written[at] & bit != 0
    }

    /// The next op of this name that the wrong path reaches, counted from the branch.
    pub fn take(&mut self, name: u64) -> Option<usize> {
        let slot = &mut self.slots[Self::slot(name)];
        if (slot.0, slot.1) != (name, self.episode) || slot.2 == NONE {
            return None;
        }
        let at = usize::from(slot.2);
        slot.2 = self.next[at];
        Some(at)
    }
}
