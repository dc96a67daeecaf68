//! Descends the tree as far as the query's letters match.

use pagewalk_stream::flags;

use super::read::{Both, Compare, Depth, Head};
use super::{Called, Location, Matcher, record};
use crate::mummer::tree::Child;
use crate::thread::{NONE, Thread, Value};

/// A node on the way down: its number, the value that produced the reference, its depth.
#[derive(Clone, Copy)]
struct Place {
    node: u32,
    at: Value,
    depth: u32,
    /// Position of the next letter of the query.
    left: usize,
}

impl Matcher<'_> {
    /// Descends from `node` along the query from `left` on (`scanprefixfromnodestree`). Returns the position
    /// of the first mismatch, or `None` at the end of the query.
    pub(super) async fn scan_from_node(
        &self,
        t: &mut Thread,
        at: &mut Location,
        node: u32,
        left: usize,
        value: Value,
        called: Called,
    ) -> Option<usize> {
        for (k, insns) in (0..).zip([1, 4, 1, 1, 1, 1]) {
            let to = called.base - 8 - 8 * k;
            t.store(0x5b80 + 2 * k, insns, to, 8, NONE, NONE);
        }
        let nodes = t.load(0x5b93, 1, self.record(t, record::NODES), 8, [NONE; 2]);
        t.branch(0x5b9d, 0x5ed0, 3, node == 0, [nodes, value]);
        if node == 0 {
            t.jump(0x5ed4, 0x5be3, 3, flags::TAKEN, [NONE; 2]);
        } else {
            let pc = Both {
                chain: 0x5ba3,
                kind: 0x5dc0,
                test: 0x5dc7,
                head: 0x5dcd,
                small: 0x5f68,
                back: 0x5dd0,
            };
            self.both(t, &pc, node, value);
        }
        let this = self.tree.nodes[node as usize];
        (at.start, at.length, at.remain) = (this.head, this.depth, 0);
        (at.next, at.from.next) = (Child::Node(node), value);
        let (location, fields, word) = (Self::location(t), self.fields(), self.word());
        t.store(0x5be8, 3, location + fields.to_leaf, 1, NONE, NONE);
        t.store(0x5bf3, 3, location + fields.next, 8, NONE, value);
        t.store(0x5bf7, 1, location + fields.start, word, NONE, NONE);
        t.store(0x5bfe, 2, location + fields.length, word, NONE, NONE);
        t.store(0x5c02, 1, location + fields.remain, word, NONE, NONE);
        let out = left >= self.query.len();
        t.branch(0x5c0d, 0x6042, 2, out, [NONE; 2]);
        let mut place = Place {
            node,
            at: value,
            depth: this.depth,
            left,
        };
        if out {
            self.leave(t, 0x6042, called);
            return None;
        }
        let query = self.places.query + left as u64;
        let mut own = t.load(0x5c13, 1, query, 1, [NONE; 2]);
        t.branch(0x5c1a, 0x5d17, 2, node != 0, [NONE; 2]);
        loop {
            let letter = self.query[place.left];
            let found = if place.node == 0 {
                self.below_root(t, letter, own)
            } else {
                self.child(t, place, letter, own)
            };
            let Some((child, pointer, read)) = found else {
                self.leave(t, 0x5daf, called);
                return Some(place.left);
            };
            let Child::Node(inner) = child else {
                return self.down_to_leaf(t, at, place, (child, read), called).await;
            };
            let to = (inner, pointer, read);
            let whole = self.down_to_node(t, at, place, to, called).await;
            place.left += (at.length - place.depth) as usize;
            let out = place.left >= self.query.len();
            if !whole {
                t.branch(0x602f, 0x6042, 5, out, [NONE; 2]);
                self.leave(t, if out { 0x6042 } else { 0x6031 }, called);
                return (!out).then_some(place.left);
            }
            place = Place {
                node: inner,
                at: pointer,
                depth: at.length,
                left: place.left,
            };
            t.jump(0x5f5f, 0x5ceb, 2, flags::TAKEN, [NONE; 2]);
            t.load(0x5ceb, 1, called.base - 0x50, 8, [NONE; 2]);
            t.store(0x5cf0, 1, location + fields.next, 8, NONE, pointer);
            t.store(0x5cf4, 1, location + fields.remain, word, NONE, NONE);
            t.branch(0x5d02, 0x6042, 3, out, [NONE; 2]);
            if out {
                self.leave(t, 0x6042, called);
                return None;
            }
            let query = self.places.query + place.left as u64;
            own = t.load(0x5d08, 1, query, 1, [NONE; 2]);
            t.branch(0x5d11, 0x5c20, 3, false, [NONE; 2]);
            if t.full() {
                t.pause().await;
            }
        }
    }

    /// Restores six registers and returns.
    fn leave(&self, t: &mut Thread, pc: u64, called: Called) {
        let mut first = 2;
        if pc == 0x6042 {
            t.jump(0x6044, 0x5daf, 2, flags::TAKEN, [NONE; 2]);
        } else if pc != 0x5daf {
            first = 3;
        }
        for k in 0..6 {
            let insns = if k == 0 { first } else { 1 };
            t.load(pc + 3 + k, insns, called.base - 0x30 + 8 * k, 8, [NONE; 2]);
        }
        called.ret(t, pc + 0xd);
    }

    /// The root's child for `letter`, with the values that produce the reference and the position of its
    /// string.
    fn below_root(&self, t: &mut Thread, letter: u8, own: Value) -> Option<(Child, Value, Value)> {
        let reference = self.root_child(t, [0x5c20, 0x5c24], letter, own);
        let child = self.tree.find(0, letter);
        t.branch(
            0x5c2b,
            0x5daf,
            2,
            child.is_none(),
            [reference.plus(1), NONE],
        );
        let child = child?;
        let leaf = matches!(child, Child::Leaf(_));
        t.branch(0x5c4c, 0x60a6, 6, leaf, [reference.plus(1), NONE]);
        let pointer = reference.plus(2);
        let Child::Node(inner) = child else {
            return Some((child, pointer, pointer));
        };
        let chain = t.load(0x5c52, 1, self.chain_start(t), 8, [NONE; 2]);
        t.branch(0x5c5d, 0x5e10, 3, true, [chain, NONE]);
        let pc = Head {
            kind: 0x5e10,
            test: 0x5e16,
            head: 0x5e1c,
            distance: 0x5eb0,
            end: 0x5eb6,
        };
        let head = self.head(t, &pc, inner, pointer);
        let text = self.record(t, record::TEXT);
        if self.is_small(inner) {
            t.load(0x5ebe, 3, text, 8, [NONE; 2]);
            t.jump(0x5ec2, 0x5e26, 1, flags::TAKEN, [NONE; 2]);
        } else {
            t.load(0x5e22, 2, text, 8, [NONE; 2]);
        }
        Some((child, pointer, head.plus(1)))
    }

    /// The child of `place` for `letter`, found along the list of brothers, which ends at a larger letter.
    /// Returned with the values that produce the reference and the position of the edge's letters.
    fn child(
        &self,
        t: &mut Thread,
        place: Place,
        letter: u8,
        wanted: Value,
    ) -> Option<(Child, Value, Value)> {
        let mut reference = self.first_child(t, 0x5d17, place.node, place.at);
        t.load(0x5d19, 1, self.record(t, record::TEXT), 8, [NONE; 2]);
        t.jump(0x5d22, 0x5d5d, 2, flags::TAKEN, [NONE; 2]);
        let mut next = self.tree.first(place.node);
        while let Some(child) = next {
            let va = self.letter_at(self.tree.start(child) + place.depth);
            let own = self.tree.letter(place.depth, child);
            let leaf = matches!(child, Child::Leaf(_));
            t.branch(0x5d6a, 0x5d28, 4, leaf, [reference.plus(1), NONE]);
            let pointer = reference.plus(3);
            let end = if let Child::Node(inner) = child {
                self.no_chain(t, 0x5d73, 2, pointer);
                let pc = Head {
                    kind: 0x5d8c,
                    test: 0x5d92,
                    head: 0x5d94,
                    distance: 0x5e00,
                    end: 0x5e06,
                };
                let head = self.head(t, &pc, inner, pointer);
                if self.is_small(inner) {
                    t.jump(0x5e0c, 0x5d97, 2, flags::TAKEN, [NONE; 2]);
                }
                let read = t.load(0x5d9d, 3, va, 1, [head.plus(2), NONE]);
                let compared = [read.plus(1), wanted];
                t.branch(0x5da0, 0x5daf, 1, own > letter, compared);
                if own > letter {
                    return None;
                }
                t.branch(0x5da2, 0x5f89, 1, own == letter, compared);
                if own == letter {
                    t.branch(0x5f8c, 0x5e26, 2, true, [NONE; 2]);
                    return Some((child, pointer, head.plus(2)));
                }
                reference = self.brother(t, 0x5da8, child, pointer);
                0x5dad
            } else {
                let edge = reference.plus(3);
                let end = t.load(0x5d2b, 2, self.record(t, record::SENTINEL), 8, [NONE; 2]);
                t.branch(0x5d38, 0x5daf, 4, own == 4, [end, edge]);
                if own == 4 {
                    return None;
                }
                let read = t.load(0x5d3a, 1, va, 1, [edge, NONE]);
                let compared = [read.plus(1), wanted];
                t.branch(0x5d41, 0x5daf, 2, own > letter, compared);
                if own > letter {
                    return None;
                }
                t.load(0x5d4a, 2, self.record(t, record::LEAVES), 8, [NONE; 2]);
                t.branch(0x5d51, 0x5f9e, 2, own == letter, compared);
                if own == letter {
                    return Some((child, pointer, edge));
                }
                reference = self.brother(t, 0x5d57, child, pointer);
                0x5d5b
            };
            next = self.tree.brother(child);
            let (to, taken) = if leaf {
                (0x5daf, next.is_none())
            } else {
                (0x5d5d, next.is_some())
            };
            t.branch(end, to, 2, taken, [reference.plus(1), NONE]);
        }
        None
    }

    /// Descends the edge to an inner node, whose first letter matches. Returns true if it reaches the node.
    async fn down_to_node(
        &self,
        t: &mut Thread,
        at: &mut Location,
        place: Place,
        (inner, pointer, letters): (u32, Value, Value),
        called: Called,
    ) -> bool {
        let (location, fields, word) = (Self::location(t), self.fields(), self.word());
        let pc = Depth {
            kind: 0x5e26,
            depth: 0x5e29,
            test: 0x5e2f,
            end: 0x5e3a,
            back: 0x5e3f,
            to: 0x5cb9,
        };
        let below = self.depth(t, &pc, inner, pointer);
        let child = Child::Node(inner);
        let edge = self.tree.nodes[inner as usize].depth - place.depth;
        let edge_start = self.tree.start(child) + place.depth;
        let kept = called.base - 0x50;
        t.store(0x5cc2, 4, kept, 8, NONE, below.plus(2));
        t.branch(0x5cca, 0x5e48, 2, true, [NONE; 2]);
        t.branch(0x5e5b, 0x614f, 6, edge == 1, [below.plus(3), letters]);
        let mut length = 1;
        let rest = place.left + 1 < self.query.len();
        if edge > 1 {
            t.branch(0x5e67, 0x614f, 3, !rest, [NONE; 2]);
        }
        if edge > 1 && rest {
            t.store(0x5e6d, 1, kept + 8, 8, NONE, NONE);
            t.jump(0x5e72, 0x5e95, 1, flags::TAKEN, [NONE; 2]);
            let pc = Compare {
                text: 0x5e95,
                again: 0x5e78,
                out: 0x5f80,
                copies: true,
            };
            let from = (place.left + 1, edge_start + 1, edge - 1);
            let (more, differs) = self.common(t, &pc, from.0, from.1, from.2, letters).await;
            length += more;
            if differs {
                t.load(0x5e9e, 1, kept + 8, 8, [NONE; 2]);
            }
            let end = if differs { 0x5eaa } else { 0x5f87 };
            t.jump(end, 0x5f44, 3, flags::TAKEN, [NONE; 2]);
        } else {
            t.jump(0x6155, 0x5f44, 2, flags::TAKEN, [NONE; 2]);
        }
        t.store(0x5f47, 2, location + fields.to_leaf, 1, NONE, NONE);
        t.store(0x5f4c, 1, location + fields.start, word, NONE, letters);
        t.store(0x5f4f, 1, location + fields.length, word, NONE, NONE);
        let whole = length == edge;
        t.branch(0x5f56, 0x61d9, 2, !whole, [below.plus(3), NONE]);
        at.start = self.tree.start(child);
        at.length = place.depth + length;
        (at.next, at.from.next) = (child, pointer);
        (at.edge, at.remain) = (edge, edge - length);
        if !whole {
            (at.edge_start, at.from.edge_start) = (edge_start, letters);
            (at.previous, at.from.previous) = (place.node, place.at);
            t.jump(0x61dc, 0x616c, 2, flags::TAKEN, [NONE; 2]);
            let above = t.load(0x616c, 1, location + fields.next, 8, [NONE; 2]);
            t.store(0x6177, 2, location + fields.next, 8, NONE, pointer);
            t.store(0x6180, 3, location + fields.edge, word, NONE, below);
            t.store(0x6188, 2, location + fields.remain, word, NONE, below);
            t.store(0x618c, 1, location + fields.previous, 16, NONE, above);
            t.jump(0x6191, 0x6023, 1, flags::TAKEN, [NONE; 2]);
        }
        whole
    }

    /// Descends the edge to a leaf, whose first letter matches. The match ends on this edge.
    async fn down_to_leaf(
        &self,
        t: &mut Thread,
        at: &mut Location,
        place: Place,
        (child, letters): (Child, Value),
        called: Called,
    ) -> Option<usize> {
        let root = place.node == 0;
        let start = self.tree.start(child);
        let edge_start = start + place.depth;
        let edge = self.tree.text.len() as u32 - edge_start;
        // [no letters left, the end of the query, the jump then, and the code after the loop]
        let (pc, [empty, ended, skip, to]) = if root {
            let (location, fields) = (Self::location(t), self.fields());
            t.load(0x60a6, 1, self.record(t, record::SENTINEL), 8, [NONE; 2]);
            t.load(0x60aa, 1, self.record(t, record::TEXT), 8, [NONE; 2]);
            t.store(0x60ae, 1, location + fields.edge_start, 8, NONE, letters);
            t.branch(0x60bc, 0x6196, 4, true, [NONE; 2]);
            let pc = Compare {
                text: 0x61c2,
                again: 0x61b0,
                out: 0x61cb,
                copies: false,
            };
            (pc, [0x61a1, 0x61a9, 0x61ec, 0x610c])
        } else {
            t.branch(0x5fa5, 0x6049, 3, true, [NONE; 2]);
            let pc = Compare {
                text: 0x6085,
                again: 0x6070,
                out: 0x609a,
                copies: true,
            };
            (pc, [0x6054, 0x6060, 0x61e4, 0x5fe9])
        };
        let most = self.letters_from(edge_start + 1);
        t.branch(empty, skip, 4, most == 0, [letters, NONE]);
        let rest = place.left + 1 < self.query.len();
        if most > 0 {
            t.branch(ended, pc.text, 3, rest, [NONE; 2]);
        }
        let mut length = 1;
        if most > 0 && rest {
            let from = (place.left + 1, edge_start + 1);
            let (more, _) = self.common(t, &pc, from.0, from.1, most, letters).await;
            length += more;
        } else {
            t.jump(skip, to, 2, flags::TAKEN, [NONE; 2]);
        }
        (at.start, at.length) = (start, place.depth + length);
        (at.edge_start, at.from.edge_start) = (edge_start, letters);
        (at.previous, at.from.previous) = (place.node, place.at);
        (at.next, at.from.next) = (child, letters);
        (at.edge, at.remain) = (edge, edge - length);
        self.note_scanned_leaf(t, root, most > 0 && rest, letters);
        let left = place.left + length as usize;
        let out = left >= self.query.len();
        let pc = if root { 0x6141 } else { 0x602f };
        t.branch(pc, 0x6042, if root { 3 } else { 5 }, out, [NONE; 2]);
        if root && !out {
            t.jump(0x614a, 0x5daf, 2, flags::TAKEN, [NONE; 2]);
        }
        let pc = match (out, root) {
            (true, _) => 0x6042,
            (false, true) => 0x5daf,
            (false, false) => 0x6031,
        };
        self.leave(t, pc, called);
        (!out).then_some(left)
    }

    /// Writes the edge of a leaf to the location, after letters were compared or not.
    fn note_scanned_leaf(&self, t: &mut Thread, root: bool, compared: bool, letters: Value) {
        let (location, fields, word) = (Self::location(t), self.fields(), self.word());
        if compared {
            // The number of letters.
            let (pc, to, insns) = if root {
                (0x61d4, 0x610c, 4)
            } else {
                (0x6095, 0x5fe9, 3)
            };
            t.jump(pc, to, insns, flags::TAKEN, [NONE; 2]);
        }
        let length = self.record(t, 0);
        if root {
            t.store(0x610c, 1, location + fields.previous, 8, NONE, NONE);
            t.load(0x6110, 1, length, word, [NONE; 2]);
            t.store(0x6112, 1, location + fields.to_leaf, 1, NONE, NONE);
            t.load(0x6117, 1, self.record(t, record::LEAVES), 8, [NONE; 2]);
            t.store(0x611e, 2, location + fields.next, 8, NONE, letters);
            t.store(0x6125, 2, location + fields.start, word, NONE, letters);
            t.store(0x6128, 1, location + fields.edge, word, NONE, letters);
            t.store(0x612e, 2, location + fields.remain, word, NONE, letters);
            t.store(0x6138, 3, location + fields.length, word, NONE, NONE);
            return;
        }
        let above = t.load(0x5fe9, 1, location + fields.next, 8, [NONE; 2]);
        t.store(0x5ffb, 4, location + fields.previous, 16, NONE, above);
        t.load(0x6000, 1, length, word, [NONE; 2]);
        t.store(0x6002, 1, location + fields.to_leaf, 1, NONE, NONE);
        t.store(0x600a, 2, location + fields.next, 8, NONE, letters);
        t.store(0x6011, 2, location + fields.start, word, NONE, letters);
        t.store(0x6014, 1, location + fields.edge, word, NONE, letters);
        t.store(0x601b, 2, location + fields.remain, word, NONE, letters);
        t.store(0x601f, 1, location + fields.length, word, NONE, NONE);
    }
}
