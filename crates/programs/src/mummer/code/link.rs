//! From the location of a string to that of the string without its first letter: a suffix link, then a
//! descent along known letters.

use pagewalk_stream::flags;

use super::read::{Both, Depth, Head};
use super::{Called, Location, Matcher, record};
use crate::mummer::tree::Child;
use crate::thread::{NONE, Thread, Value};

impl Matcher<'_> {
    /// Loads a node's suffix link: the next node of its chain, or a separate word (`getbranchinfostree`,
    /// which also finds the depth). The result is written to `info`.
    fn load_suffix_link(
        &self,
        t: &mut Thread,
        (node, at): (u32, Value),
        info: u64,
        called: Called,
    ) -> (u32, Value) {
        let this = self.tree.nodes[node as usize];
        let (va, w, word) = (self.node_at(node), self.places.word, self.word());
        let small = self.is_small(node);
        t.branch(0x552f, 0x55a8, 6, false, [NONE; 2]);
        let chain = t.load(0x5531, 1, self.chain_start(t), 8, [NONE; 2]);
        t.branch(0x553b, 0x55b5, 3, false, [chain, at]);
        t.branch(0x5540, 0x55b5, 2, true, [chain.plus(1), NONE]);
        let kind = t.load(0x55b5, 1, va, word, [at, NONE]);
        t.branch(0x55c0, 0x5668, 4, small, [kind.plus(1), NONE]);
        if small {
            let distance = t.load(0x5668, 1, va + 2 * w, word, [at, NONE]);
            t.branch(0x5676, 0x5682, 4, false, [NONE; 2]);
            let end = self.chain_end(node) + 2 * w;
            let depth = t.load(0x5678, 1, end, word, [distance.plus(2), NONE]);
            t.store(0x567f, 2, info + w, word, NONE, depth.plus(1));
            t.branch(0x5684, 0x55d9, 2, true, [NONE; 2]);
        } else {
            t.branch(0x55c8, 0x55d0, 2, false, [NONE; 2]);
            let depth = t.load(0x55ca, 1, va + 2 * w, word, [at, NONE]);
            t.store(0x55cd, 1, info + w, word, NONE, depth);
            t.branch(0x55d2, 0x55d9, 2, true, [NONE; 2]);
        }
        t.branch(0x55dc, 0x5582, 2, false, [NONE; 2]);
        let kind = t.load(0x55de, 1, va, word, [at, NONE]);
        t.branch(0x55e2, 0x557a, 2, small, [kind.plus(1), NONE]);
        let value;
        if small {
            value = at.plus(1);
            t.store(0x557e, 2, info + 2 * w, 8, NONE, value);
            t.branch(0x5584, 0x5600, 2, false, [NONE; 2]);
        } else {
            let depth = t.load(0x55e4, 1, info + w, word, [NONE; 2]);
            let nodes = t.load(0x55e8, 1, self.record(t, record::NODES), 8, [NONE; 2]);
            let root = this.depth == 1;
            t.branch(0x55ec, 0x55f6, 1, root, [depth.plus(1), NONE]);
            value = if root {
                nodes
            } else {
                t.load(0x55ee, 1, va + 4 * w, word, [at, NONE]).plus(1)
            };
            let insns = 1 + u16::from(!root);
            t.store(0x55f6, insns, info + 2 * w, 8, NONE, value);
            t.branch(0x55fc, 0x5586, 2, true, [NONE; 2]);
        }
        t.branch(0x5588, 0x562b, 2, true, [NONE; 2]);
        called.ret(t, 0x562b);
        (this.link, value)
    }

    /// From the location of a string to that of the string without its first letter (`linklocstree`).
    pub(super) async fn link(&self, t: &mut Thread, at: &mut Location, called: Called) {
        let (location, fields) = (Self::location(t), self.fields());
        let word = self.word();
        let sp = called.base - 0x58;
        for (k, insns) in (0..).zip([1, 2, 2]) {
            t.store(
                0x73a0 + 4 * k,
                insns,
                called.base - 8 - 8 * k,
                8,
                NONE,
                NONE,
            );
        }
        let canary = t.stack - 0x200;
        let guard = t.load(0x73b1, 3, canary, 8, [NONE; 2]);
        t.store(0x73ba, 1, sp + 0x38, 8, NONE, guard);
        let remain = t.load(0x73bf, 1, location + fields.remain, word, [NONE; 2]);
        t.branch(0x73c4, 0x7460, 2, at.remain == 0, [remain.plus(1), NONE]);
        if at.remain == 0 {
            self.link_node(t, at, sp).await;
        } else {
            let given = location + fields.previous;
            let previous = t.load(0x73ca, 1, given, 8, [at.from.previous, NONE]);
            let nodes = t.load(0x73ce, 1, self.record(t, record::NODES), 8, [NONE; 2]);
            let root = at.previous == 0;
            t.branch(0x73d2, 0x7428, 1, root, [previous.plus(1), nodes]);
            let end = at.edge_start + (at.edge - at.remain);
            if root {
                self.link_below_root(t, at, called, sp, end).await;
                return;
            }
            let inner = Self::call(t, 0x73e2, 0x5520, 5, sp);
            let (link, value) = self.load_suffix_link(t, (at.previous, previous), sp, inner);
            let first = location + fields.edge_start;
            let first = t.load(0x73e7, 1, first, 8, [at.from.edge_start, NONE]);
            t.load(0x73eb, 1, location + fields.edge, word, [NONE; 2]);
            t.load(0x73f1, 2, location + fields.remain, word, [NONE; 2]);
            let link_at = sp + 2 * self.places.word;
            let value = t.load(0x73f4, 1, link_at, 8, [value, NONE]);
            let inner = Self::call(t, 0x7401, 0x7020, 3, sp);
            let letters = (at.edge_start, end, first);
            self.rescan(t, at, (link, value), letters, inner).await;
        }
        let guard = t.load(0x7406, 1, sp + 0x38, 8, [NONE; 2]);
        let own = t.load(0x740b, 1, canary, 8, [NONE; 2]);
        t.branch(0x7414, 0x74a1, 1, false, [guard, own]);
        for (k, insns) in (0..).zip([2, 1, 1]) {
            t.load(0x741e + k, insns, sp + 0x40 + 8 * k, 8, [NONE; 2]);
        }
        called.ret(t, 0x7422);
    }

    /// Moves a location at a node to the node's suffix link.
    async fn link_node(&self, t: &mut Thread, at: &mut Location, sp: u64) {
        let (location, fields) = (Self::location(t), self.fields());
        let w = self.places.word;
        let node = match at.next {
            Child::Node(node) => node,
            Child::Leaf(_) => 0,
        };
        t.store(0x7460, 1, location + fields.to_leaf, 1, NONE, NONE);
        let next = location + fields.next;
        let pointer = t.load(0x7464, 1, next, 8, [at.from.next, NONE]);
        t.store(0x746b, 2, location + fields.remain, self.word(), NONE, NONE);
        let called = Self::call(t, 0x7477, 0x5520, 2, sp);
        let (link, value) = self.load_suffix_link(t, (node, pointer), sp, called);
        let both = t.load(0x747c, 1, location, 2 * self.word(), [NONE; 2]);
        let value = t.load(0x7480, 1, sp + 2 * w, 8, [value, NONE]);
        t.load(0x7485, 1, self.record(t, 0), 8, [NONE; 2]);
        t.store(0x748d, 1, next, 8, NONE, value);
        t.store(0x7496, 2, location, 2 * self.word(), NONE, both.plus(1));
        t.jump(0x749c, 0x7406, 1, flags::TAKEN, [NONE; 2]);
        at.next = Child::Node(link);
        at.from.next = value;
        at.start += 1;
        at.length -= 1;
    }

    /// Descends an edge of the root again without its first letter, by a tail call.
    async fn link_below_root(
        &self,
        t: &mut Thread,
        at: &mut Location,
        called: Called,
        sp: u64,
        end: u32,
    ) {
        let (location, fields) = (Self::location(t), self.fields());
        let first = location + fields.edge_start;
        let first = t.load(0x7428, 1, first, 8, [at.from.edge_start, NONE]);
        let guard = t.load(0x742c, 1, sp + 0x38, 8, [NONE; 2]);
        let own = t.load(0x7431, 1, t.stack - 0x200, 8, [NONE; 2]);
        t.branch(0x743a, 0x74a1, 1, false, [guard, own]);
        t.load(0x743c, 1, location + fields.edge, self.word(), [NONE; 2]);
        for (k, insns) in (0..).zip([2, 1, 6]) {
            t.load(0x7443 + k, insns, sp + 0x40 + 8 * k, 8, [NONE; 2]);
        }
        t.jump(0x7458, 0x7020, 1, flags::TAKEN, [NONE; 2]);
        let letters = (at.edge_start + 1, end, first.plus(1));
        self.rescan(t, at, (0, NONE), letters, called).await;
    }

    /// Descends from a node along the text's letters `first..end`, which are known to match. Only the first
    /// letter of each edge is compared (`rescanstree`).
    async fn rescan(
        &self,
        t: &mut Thread,
        at: &mut Location,
        (mut node, mut value): (u32, Value),
        (first, end, letters): (u32, u32, Value),
        called: Called,
    ) {
        let (location, fields) = (Self::location(t), self.fields());
        let word = self.word();
        let nodes = t.load(0x7020, 1, self.record(t, record::NODES), 8, [NONE; 2]);
        t.branch(0x702a, 0x7340, 3, node == 0, [nodes, value]);
        if node == 0 {
            t.jump(0x7346, 0x7075, 3, flags::TAKEN, [NONE; 2]);
        } else {
            let pc = Both {
                chain: 0x7030,
                kind: 0x71f0,
                test: 0x71f8,
                head: 0x71fe,
                small: 0x734b,
                back: 0x7202,
            };
            self.both(t, &pc, node, value);
        }
        let this = self.tree.nodes[node as usize];
        (at.start, at.length) = (this.head, this.depth);
        (at.remain, at.next, at.from.next) = (0, Child::Node(node), value);
        t.store(0x7075, 1, location + fields.to_leaf, 1, NONE, NONE);
        t.store(0x7079, 1, location + fields.next, 8, NONE, value);
        t.store(0x707d, 1, location + fields.start, word, NONE, NONE);
        t.store(0x7080, 1, location + fields.length, word, NONE, NONE);
        t.store(0x7084, 1, location + fields.remain, word, NONE, NONE);
        t.branch(0x708e, 0x739e, 2, first >= end, [NONE; 2]);
        if first >= end {
            called.ret(t, 0x739e);
            return;
        }
        t.store(0x7094, 1, called.base - 8, 8, NONE, NONE);
        t.load(0x7096, 1, self.record(t, record::TEXT), 8, [NONE; 2]);
        for (k, insns) in (1..).zip([1, 1, 1, 2]) {
            let to = called.base - 8 - 8 * k;
            t.store(0x7098 + 2 * k, insns, to, 8, NONE, NONE);
        }
        t.branch(0x70ae, 0x71a0, 4, node != 0, [NONE; 2]);
        let mut left = first;
        loop {
            let found = if node == 0 {
                self.known_below_root(t, left, letters)
            } else {
                self.known(t, (node, value), left, letters)
            };
            let Some((child, pointer)) = found else {
                debug_assert!(false, "a string of the text is in the tree");
                break;
            };
            let depth = self.tree.nodes[node as usize].depth;
            let length = end - left;
            at.edge_start = self.tree.start(child) + depth;
            at.from.edge_start = pointer;
            at.start = self.tree.start(child);
            at.previous = node;
            at.from.previous = value;
            at.next = child;
            at.from.next = pointer;
            at.length = depth + length;
            let Child::Node(inner) = child else {
                at.edge = self.tree.text.len() as u32 - depth - at.start;
                at.remain = at.edge - length;
                self.note_leaf(t, node == 0, pointer);
                break;
            };
            at.edge = self.tree.nodes[inner as usize].depth - depth;
            self.note_node(t, inner, pointer);
            t.branch(0x7173, 0x7363, 2, length < at.edge, [NONE; 2]);
            if length < at.edge {
                at.remain = at.edge - length;
                t.store(0x7366, 2, location + fields.remain, word, NONE, NONE);
                t.jump(0x7369, 0x72fb, 1, flags::TAKEN, [NONE; 2]);
                break;
            }
            at.remain = 0;
            t.branch(0x717c, 0x72fb, 2, length == at.edge, [NONE; 2]);
            if length == at.edge {
                break;
            }
            left += at.edge;
            (node, value) = (inner, pointer);
            t.branch(0x7188, 0x72fb, 3, false, [NONE; 2]);
            t.branch(0x719a, 0x70b4, 5, false, [NONE; 2]);
            if t.full() {
                t.pause().await;
            }
        }
        for k in 0..5 {
            t.load(0x72fb + k, 1, called.base - 0x28 + 8 * k, 8, [NONE; 2]);
        }
        called.ret(t, 0x7303);
    }

    /// Writes the edge of a leaf to the location.
    fn note_leaf(&self, t: &mut Thread, root: bool, pointer: Value) {
        let (location, fields) = (Self::location(t), self.fields());
        let word = self.word();
        if root {
            t.load(0x736b, 1, self.record(t, 0), word, [NONE; 2]);
            t.store(0x7370, 2, location + fields.to_leaf, 1, NONE, NONE);
            t.load(0x7374, 1, self.record(t, record::LEAVES), 8, [NONE; 2]);
            t.store(0x7378, 1, location + fields.edge_start, 8, NONE, pointer);
            t.store(0x737f, 2, location + fields.previous, 8, NONE, NONE);
            t.store(0x7388, 3, location + fields.next, 8, NONE, pointer);
            for (k, field) in [fields.edge, fields.remain, fields.start, fields.length]
                .into_iter()
                .enumerate()
            {
                t.store(0x738c + 3 * k as u64, 1, location + field, word, NONE, NONE);
            }
            t.jump(0x7399, 0x72fb, 1, flags::TAKEN, [NONE; 2]);
            return;
        }
        let previous = t.load(0x72d0, 1, location + fields.next, 8, [NONE; 2]);
        t.store(0x72d4, 1, location + fields.previous, 8, NONE, previous);
        t.load(0x72d8, 1, self.record(t, 0), word, [NONE; 2]);
        t.store(0x72da, 1, location + fields.next, 8, NONE, pointer);
        t.store(0x72e6, 3, location + fields.to_leaf, 1, NONE, NONE);
        t.store(0x72ef, 3, location + fields.start, word, NONE, pointer);
        t.store(0x72f2, 1, location + fields.edge, word, NONE, pointer);
        t.store(0x72f5, 1, location + fields.remain, word, NONE, pointer);
        t.store(0x72f8, 1, location + fields.length, word, NONE, NONE);
    }

    /// Loads an inner node's depth and writes its edge to the location.
    fn note_node(&self, t: &mut Thread, inner: u32, pointer: Value) {
        let (location, fields) = (Self::location(t), self.fields());
        let word = self.word();
        let pc = Depth {
            kind: 0x72b1,
            depth: 0x72b3,
            test: 0x72b8,
            end: 0x72c1,
            back: 0x72c5,
            to: 0x714e,
        };
        let below = self.depth(t, &pc, inner, pointer);
        let previous = t.load(0x714e, 1, location + fields.next, 8, [NONE; 2]);
        t.store(0x7154, 2, location + fields.to_leaf, 1, NONE, NONE);
        t.store(0x715e, 3, location + fields.next, 8, NONE, pointer);
        t.store(0x7162, 1, location + fields.edge, word, NONE, below.plus(1));
        t.store(0x7165, 1, location + fields.previous, 8, NONE, previous);
        t.store(0x7169, 1, location + fields.start, word, NONE, pointer);
        t.store(0x716c, 1, location + fields.length, word, NONE, NONE);
    }

    /// The root's child for the text's letter at `left`.
    fn known_below_root(&self, t: &mut Thread, left: u32, at: Value) -> Option<(Child, Value)> {
        let letter = self.tree.text[left as usize];
        let own = t.load(0x70b8, 1, self.letter_at(left), 1, [at, NONE]);
        let reference = self.root_child(t, [0x70b4, 0x70bf], letter, own);
        let child = self.tree.find(0, letter)?;
        let leaf = matches!(child, Child::Leaf(_));
        t.branch(0x70dd, 0x736b, 6, leaf, [reference.plus(1), NONE]);
        let pointer = reference.plus(2);
        if let Child::Node(inner) = child {
            let chain = t.load(0x70e3, 1, self.chain_start(t), 8, [NONE; 2]);
            t.branch(0x70ed, 0x7298, 3, false, [chain, pointer]);
            t.branch(0x70f6, 0x7298, 2, true, [chain.plus(1), NONE]);
            let pc = Head {
                kind: 0x7298,
                test: 0x729e,
                head: 0x72a4,
                distance: 0x7320,
                end: 0x7326,
            };
            let head = self.head(t, &pc, inner, pointer);
            let to = Self::location(t) + self.fields().edge_start;
            if self.is_small(inner) {
                t.store(0x7334, 4, to, 8, NONE, head);
                t.jump(0x7338, 0x72b1, 1, flags::TAKEN, [NONE; 2]);
            } else {
                t.store(0x72ad, 3, to, 8, NONE, head);
            }
        }
        Some((child, pointer))
    }

    /// The child of an inner node for the text's letter at `left`, found along the list of brothers.
    fn known(
        &self,
        t: &mut Thread,
        (node, at): (u32, Value),
        left: u32,
        letters: Value,
    ) -> Option<(Child, Value)> {
        let to = Self::location(t) + self.fields().edge_start;
        let letter = self.tree.text[left as usize];
        let depth = self.tree.nodes[node as usize].depth;
        let mut reference = self.first_child(t, 0x71a0, node, at);
        // The instructions for mask and space before the loop.
        let mut insns = 7;
        let mut next = self.tree.first(node);
        while let Some(child) = next {
            let place = self.letter_at(self.tree.start(child) + depth);
            let same = self.tree.letter(depth, child) == letter;
            let leaf = matches!(child, Child::Leaf(_));
            t.branch(0x71c7, 0x7210, insns, !leaf, [reference.plus(1), NONE]);
            insns = 5;
            let pointer = reference.plus(2);
            if let Child::Node(inner) = child {
                self.no_chain(t, 0x7210, 1, pointer);
                let pc = Head {
                    kind: 0x7229,
                    test: 0x722f,
                    head: 0x7231,
                    distance: 0x7280,
                    end: 0x7287,
                };
                let head = self.head(t, &pc, inner, pointer);
                if self.is_small(inner) {
                    t.jump(0x728f, 0x7235, 2, flags::TAKEN, [NONE; 2]);
                }
                t.store(0x723c, 3, to, 8, NONE, head.plus(2));
                let own = t.load(0x7240, 1, self.letter_at(left), 1, [letters, NONE]);
                let read = t.load(0x7244, 1, place, 1, [head.plus(2), NONE]);
                t.branch(0x7247, 0x7308, 1, same, [read.plus(1), own]);
                if same {
                    t.branch(0x730f, 0x72b1, 3, true, [NONE; 2]);
                    return Some((child, pointer));
                }
                reference = self.brother(t, 0x724d, child, pointer);
                t.jump(0x7250, 0x71b0, 1, flags::TAKEN, [NONE; 2]);
            } else {
                t.load(0x71cd, 2, self.record(t, record::LEAVES), 8, [NONE; 2]);
                t.store(0x71d7, 3, to, 8, NONE, reference.plus(3));
                let own = t.load(0x71db, 1, self.letter_at(left), 1, [letters, NONE]);
                let read = t.load(0x71df, 1, place, 1, [reference.plus(3), NONE]);
                t.branch(0x71e2, 0x72d0, 1, same, [read.plus(1), own]);
                if same {
                    return Some((child, pointer));
                }
                reference = self.brother(t, 0x71e8, child, pointer);
                t.jump(0x71ea, 0x71b0, 1, flags::TAKEN, [NONE; 2]);
            }
            next = self.tree.brother(child);
        }
        None
    }
}
