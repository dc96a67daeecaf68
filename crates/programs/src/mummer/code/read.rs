//! What the matcher reads of the tree and the text: nodes, the child of a letter,
//! letters in common. Program counters are those of the listing in `code.rs`.

use pagewalk_stream::flags;

use super::{FRAME, Matcher};
use crate::mummer::tree::Child;
use crate::thread::{NONE, Thread, Value};

impl Matcher<'_> {
    pub(super) fn node_at(&self, node: u32) -> u64 {
        self.places.nodes + 8 * u64::from(self.tree.nodes[node as usize].word)
    }

    /// The large node at the end of a node's chain.
    fn chain_end(&self, node: u32) -> u64 {
        self.node_at(node) + 24 * u64::from(self.tree.nodes[node as usize].chain)
    }

    pub(super) fn letter_at(&self, place: u32) -> u64 {
        self.places.text + u64::from(place)
    }

    /// Reads a node's depth and head position (`GETBOTH`).
    pub(super) fn both(&self, t: &mut Thread, pc: u64, node: u32, at: Value) -> Value {
        let va = self.node_at(node);
        let small = self.tree.nodes[node as usize].chain > 0;
        t.load(pc, 1, self.places.record + 0x48, 8, [NONE; 2]);
        t.branch(pc + 7, pc + 0x41, 2, true, [at, NONE]);
        let kind = t.load(pc + 0x41, 1, va, 8, [at, NONE]);
        let depth = t.load(pc + 0x45, 1, va + 0x10, 8, [at, NONE]);
        t.branch(pc + 0x49, pc + 0x61, 1, small, [kind.plus(1), NONE]);
        if small {
            let end = self.chain_end(node);
            t.load(pc + 0x69, 3, end + 0x18, 8, [depth.plus(2), NONE]);
            let depth = t.load(pc + 0x70, 2, end + 0x10, 8, [depth.plus(2), NONE]);
            t.jump(pc + 0x74, pc + 0x43, 1, flags::TAKEN, [NONE; 2]);
            return depth.plus(1);
        }
        t.load(pc + 0x4f, 1, va + 0x18, 8, [at, NONE]);
        t.jump(pc + 0x53, pc + 0x43, 1, flags::TAKEN, [NONE; 2]);
        depth
    }

    /// Reads a node's head position.
    pub(super) fn head(&self, t: &mut Thread, pc: u64, node: u32, at: Value) -> Value {
        let va = self.node_at(node);
        let small = self.tree.nodes[node as usize].chain > 0;
        t.load(pc, 2, self.places.record + 0x48, 8, [NONE; 2]);
        t.branch(pc + 0x14, pc + 0x69, 6, false, [at, NONE]);
        let kind = t.load(pc + 0x16, 1, va, 8, [at, NONE]);
        t.branch(pc + 0x1a, pc + 0x99, 1, small, [kind.plus(1), NONE]);
        if !small {
            return t.load(pc + 0x1c, 1, va + 0x18, 8, [at, NONE]);
        }
        let distance = t.load(pc + 0x99, 1, va + 0x10, 8, [at, NONE]);
        let end = self.chain_end(node);
        let head = t.load(pc + 0xa1, 2, end + 0x18, 8, [distance.plus(1), NONE]);
        t.jump(pc + 0xa9, pc + 0x20, 2, flags::TAKEN, [NONE; 2]);
        head.plus(1)
    }

    /// Reads a node's depth.
    pub(super) fn depth(&self, t: &mut Thread, pc: u64, node: u32, at: Value) -> Value {
        let va = self.node_at(node);
        let small = self.tree.nodes[node as usize].chain > 0;
        let kind = t.load(pc, 3, va, 8, [at, NONE]);
        let depth = t.load(pc + 4, 1, va + 0x10, 8, [at, NONE]);
        t.branch(pc + 8, pc - 0x180, 1, !small, [kind.plus(1), NONE]);
        if !small {
            return depth;
        }
        let end = self.chain_end(node);
        t.load(pc + 0x12, 2, end + 0x10, 8, [depth.plus(2), NONE])
            .plus(1)
    }

    /// The child of `node` that begins with `letter`, looked for along the list of
    /// brothers; `sorted`: the search ends at a larger letter. What it returns
    /// comes with what made the reference, and the text's letter.
    pub(super) fn child(
        &self,
        t: &mut Thread,
        pc: u64,
        (node, at): (u32, Value),
        letter: u8,
        wanted: Value,
    ) -> Option<(Child, Value, Value)> {
        let depth = self.tree.nodes[node as usize].depth;
        let mut reference = t.load(pc + 0x1cd, 3, self.node_at(node), 8, [at, NONE]);
        t.jump(pc + 0x1d0, pc + 0x207, 1, flags::TAKEN, [NONE; 2]);
        let mut next = self.tree.first(node);
        while let Some(child) = next {
            let place = self.letter_at(self.tree.start(child) + depth);
            let own = self.tree.letter(depth, child);
            let leaf = matches!(child, Child::Leaf(_));
            t.branch(pc + 0x210, pc + 0x1d8, 4, leaf, [reference.plus(1), NONE]);
            let brother = match child {
                Child::Leaf(leaf) => {
                    let record = self.places.record;
                    let end = t.load(pc + 0x1dc, 2, record + 0x20, 8, [NONE; 2]);
                    let sentinel = own == 4;
                    t.branch(
                        pc + 0x1e7,
                        pc + 0x252,
                        3,
                        sentinel,
                        [reference.plus(3), end],
                    );
                    if sentinel {
                        return None;
                    }
                    let read = t.load(pc + 0x1e9, 1, place, 1, [reference.plus(3), NONE]);
                    t.branch(
                        pc + 0x1ef,
                        pc + 0x252,
                        2,
                        own > letter,
                        [read.plus(1), wanted],
                    );
                    if own > letter {
                        return None;
                    }
                    let table = t.load(pc + 0x1f1, 1, record + 8, 8, [NONE; 2]);
                    t.branch(
                        pc + 0x1f9,
                        pc + 0x485,
                        2,
                        own == letter,
                        [read.plus(1), wanted],
                    );
                    if own == letter {
                        return Some((child, reference.plus(2), read));
                    }
                    let va = self.places.leaves + 8 * u64::from(leaf);
                    t.load(pc + 0x1ff, 1, va, 8, [reference.plus(2), table])
                }
                Child::Node(inner) => {
                    let pointer = reference.plus(2);
                    let head = self.head(t, pc + 0x217, inner, pointer);
                    let read = t.load(pc + 0x23e, 3, place, 1, [head.plus(2), NONE]);
                    t.branch(
                        pc + 0x241,
                        pc + 0x252,
                        1,
                        own > letter,
                        [read.plus(1), wanted],
                    );
                    if own > letter {
                        return None;
                    }
                    t.branch(
                        pc + 0x243,
                        pc + 0x473,
                        1,
                        own == letter,
                        [read.plus(1), wanted],
                    );
                    if own == letter {
                        t.branch(pc + 0x476, pc + 0x2dd, 2, true, [NONE; 2]);
                        return Some((child, pointer, read));
                    }
                    let va = self.node_at(inner) + 8;
                    t.load(pc + 0x249, 1, va, 8, [pointer, NONE])
                }
            };
            next = self.tree.brother(child);
            let pc = pc + if leaf { 0x205 } else { 0x250 };
            t.branch(
                pc,
                pc + 2,
                2,
                next.is_none() == leaf,
                [brother.plus(1), NONE],
            );
            reference = brother;
        }
        None
    }

    /// How many letters of the query from `place` on are those of the text from
    /// `from` on, at most `most` (`lcp`, inlined).
    pub(super) async fn common(
        &self,
        t: &mut Thread,
        pc: u64,
        place: usize,
        from: u32,
        most: u32,
        at: Value,
    ) -> u32 {
        let stack = t.stack - FRAME;
        t.load(pc, 1, stack - 0x30, 8, [NONE; 2]);
        t.branch(pc + 0x15, pc + 0x3cc, 5, most == 0, [NONE; 2]);
        t.load(pc + 0x1e, 2, stack - 0x28, 8, [NONE; 2]);
        let rest = self.query.len() - place.min(self.query.len());
        let most = most.min(rest as u32);
        t.branch(pc + 0x23, pc + 0x3cc, 1, rest == 0, [NONE; 2]);
        t.store(pc + 0x29, 1, stack - 0x20, 8, NONE, NONE);
        t.load(pc + 0x2e, 1, stack - 0x28, 8, [NONE; 2]);
        t.store(pc + 0x33, 1, stack - 0x18, 8, NONE, NONE);
        t.jump(pc + 0x38, pc + 0x5a, 1, flags::TAKEN, [NONE; 2]);
        let mut length = 0;
        while length < most {
            let text = self.letter_at(from + length);
            let query = self.places.query + place as u64 + u64::from(length);
            let a = t.load(pc + 0x5a, 1, text, 1, [at, NONE]);
            let b = t.load(pc + 0x5e, 1, query, 1, [NONE; 2]);
            let same =
                self.tree.text[(from + length) as usize] == self.query[place + length as usize];
            t.branch(pc + 0x61, pc + 0x3d, 1, same, [a.plus(1), b.plus(1)]);
            if !same {
                break;
            }
            length += 1;
            let out = place + length as usize >= self.query.len();
            t.branch(pc + 0x48, pc + 0x15d, 4, out, [NONE; 2]);
            if !out {
                t.branch(pc + 0x51, pc + 0x15d, 2, length == most, [NONE; 2]);
            }
            if t.full() {
                t.pause().await;
            }
        }
        t.load(pc + 0x63, 1, stack - 0x18, 8, [NONE; 2]);
        t.load(pc + 0x68, 1, stack - 0x20, 8, [NONE; 2]);
        t.jump(pc + 0x74, pc + 0x11c, 3, flags::TAKEN, [NONE; 2]);
        length
    }
}
