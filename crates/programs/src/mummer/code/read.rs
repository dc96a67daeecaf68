//! Loads of the matcher from the tree and the text: nodes and common letters.

use pagewalk_stream::flags;

use super::{Matcher, record};
use crate::mummer::tree::{Child, SMALL};
use crate::thread::{NONE, Thread, Value};

/// Program counters of the load of a node's depth and head position (`GETBOTH`).
pub(super) struct Both {
    pub chain: u64,
    pub kind: u64,
    pub test: u64,
    pub head: u64,
    pub small: u64,
    pub back: u64,
}

/// Program counters of the load of a node's head position (`GETONLYHEADPOS`).
pub(super) struct Head {
    pub kind: u64,
    pub test: u64,
    pub head: u64,
    pub distance: u64,
    pub end: u64,
}

/// Program counters of the load of a node's depth (`GETONLYDEPTH`).
pub(super) struct Depth {
    pub kind: u64,
    pub depth: u64,
    pub test: u64,
    pub end: u64,
    pub back: u64,
    pub to: u64,
}

/// Program counters of a comparison of letters (`lcp`, inlined).
pub(super) struct Compare {
    /// Load of the text's letter.
    pub text: u64,
    /// Branch to the next iteration.
    pub again: u64,
    pub out: u64,
    /// True if an iteration copies one more register.
    pub copies: bool,
}

impl Matcher<'_> {
    pub(super) fn node_at(&self, node: u32) -> u64 {
        self.places.nodes + self.places.word * u64::from(self.tree.nodes[node as usize].word)
    }

    pub(super) fn leaf_at(&self, leaf: u32) -> u64 {
        self.places.leaves + self.places.word * u64::from(leaf)
    }

    /// Address of the large node at the end of a node's chain.
    pub(super) fn chain_end(&self, node: u32) -> u64 {
        let chain = u64::from(self.tree.nodes[node as usize].chain);
        self.node_at(node) + SMALL * self.places.word * chain
    }

    pub(super) fn is_small(&self, node: u32) -> bool {
        self.tree.nodes[node as usize].chain > 0
    }

    pub(super) fn letter_at(&self, place: u32) -> u64 {
        self.places.text + u64::from(place)
    }

    /// Number of letters of the text from `place` on.
    pub(super) fn letters_from(&self, place: u32) -> u32 {
        self.tree.text.len() as u32 - 1 - place
    }

    /// Loads a node's depth and head position. `at` produces the node's reference.
    pub(super) fn both(&self, t: &mut Thread, pc: &Both, node: u32, at: Value) {
        let (va, word) = (self.node_at(node), self.places.word);
        let chain = t.load(pc.chain, 1, self.chain_start(t), 8, [NONE; 2]);
        if pc.chain == 0x7030 {
            t.branch(0x7037, pc.kind, 2, false, [chain, at]);
        }
        t.branch(pc.kind - 3, pc.kind, 2, true, [chain.plus(1), NONE]);
        let kind = t.load(pc.kind, 1, va, self.word(), [at, NONE]);
        let depth = t.load(pc.kind + 2, 1, va + 2 * word, self.word(), [at, NONE]);
        let small = self.is_small(node);
        t.branch(pc.test, pc.small, 2, small, [kind.plus(1), NONE]);
        if small {
            let end = self.chain_end(node);
            let from = [depth.plus(3), NONE];
            t.load(pc.small + 8, 3, end + 3 * word, self.word(), from);
            t.load(pc.small + 15, 2, end + 2 * word, self.word(), from);
        } else {
            t.load(pc.head, 1, va + 3 * word, self.word(), [at, NONE]);
        }
        t.jump(pc.back, pc.kind, 1, flags::TAKEN, [NONE; 2]);
    }

    /// Loads a node's head position.
    pub(super) fn head(&self, t: &mut Thread, pc: &Head, node: u32, at: Value) -> Value {
        let (va, word) = (self.node_at(node), self.places.word);
        let kind = t.load(pc.kind, 1, va, self.word(), [at, NONE]);
        let small = self.is_small(node);
        t.branch(pc.test, pc.distance, 2, small, [kind.plus(1), NONE]);
        if !small {
            return t.load(pc.head, 1, va + 3 * word, self.word(), [at, NONE]);
        }
        let distance = t.load(pc.distance, 1, va + 2 * word, self.word(), [at, NONE]);
        let end = self.chain_end(node) + 3 * word;
        t.load(pc.end, 2, end, self.word(), [distance.plus(1), NONE])
            .plus(1)
    }

    /// Loads a node's depth.
    pub(super) fn depth(&self, t: &mut Thread, pc: &Depth, node: u32, at: Value) -> Value {
        let (va, word) = (self.node_at(node), self.places.word);
        let kind = t.load(pc.kind, 1, va, self.word(), [at, NONE]);
        let depth = t.load(pc.depth, 1, va + 2 * word, self.word(), [at, NONE]);
        let small = self.is_small(node);
        t.branch(pc.test, pc.to, 2, !small, [kind.plus(1), NONE]);
        if !small {
            return depth;
        }
        let end = self.chain_end(node) + 2 * word;
        let own = t.load(pc.end, 2, end, self.word(), [depth.plus(1), NONE]);
        t.jump(pc.back, pc.to, 1, flags::TAKEN, [NONE; 2]);
        own.plus(1)
    }

    /// Tests if a node of the tree belongs to the chain under construction, which no longer exists: seven
    /// instructions after the load.
    pub(super) fn no_chain(&self, t: &mut Thread, pc: u64, insns: u16, at: Value) {
        let chain = t.load(pc, insns, self.chain_start(t), 8, [NONE; 2]);
        t.branch(pc + 0x17, pc + 0x48, 7, false, [chain.plus(3), at]);
    }

    /// Loads the root's child for a letter. Returns the value that produces the reference.
    pub(super) fn root_child(
        &self,
        t: &mut Thread,
        [table, entry]: [u64; 2],
        letter: u8,
        own: Value,
    ) -> Value {
        let table = t.load(
            table,
            1,
            self.record(t, record::ROOT_CHILDREN),
            8,
            [NONE; 2],
        );
        let character = u64::from(b"acgt"[usize::from(letter & 3)]);
        let va = self.places.root_children + self.places.word * character;
        t.load(entry, 2, va, self.word(), [table, own])
    }

    /// Loads the reference to the first child of `node`.
    pub(super) fn first_child(&self, t: &mut Thread, pc: u64, node: u32, at: Value) -> Value {
        t.load(pc, 1, self.node_at(node), self.word(), [at, NONE])
    }

    /// Loads the reference to the next child after `child`, whose own reference is `at`.
    pub(super) fn brother(&self, t: &mut Thread, pc: u64, child: Child, at: Value) -> Value {
        let va = match child {
            Child::Leaf(leaf) => self.leaf_at(leaf),
            Child::Node(node) => self.node_at(node) + self.places.word,
        };
        t.load(pc, 1, va, self.word(), [at, NONE])
    }

    /// Number of letters, at most `most`, in which the query from `place` on equals the text from `from` on.
    /// Also returns true if a mismatch ended the comparison. Both have at least one letter left.
    pub(super) async fn common(
        &self,
        t: &mut Thread,
        pc: &Compare,
        place: usize,
        from: u32,
        most: u32,
        at: Value,
    ) -> (u32, bool) {
        let mut length = 0;
        loop {
            let text = self.letter_at(from + length);
            let query = self.places.query + place as u64 + u64::from(length);
            let copied = u16::from(pc.copies && length > 0);
            let a = t.load(pc.text, 1 + copied, text, 1, [at, NONE]);
            let b = t.load(pc.text + 4, 1, query, 1, [NONE; 2]);
            let same =
                self.tree.text[(from + length) as usize] == self.query[place + length as usize];
            t.branch(pc.text + 7, pc.again, 1, same, [a.plus(1), b]);
            if !same {
                return (length, true);
            }
            length += 1;
            let ended = place + length as usize >= self.query.len();
            t.branch(pc.again + 0xb, pc.out, 4, ended, [NONE; 2]);
            if ended {
                return (length, false);
            }
            t.branch(pc.again + 0x10, pc.out, 2, length == most, [NONE; 2]);
            if length == most {
                return (length, false);
            }
            if t.full() {
                t.pause().await;
            }
        }
    }
}
