//! From the place of a string to that of it without its first letter: suffix link,
//! then down again along letters that are known.

use super::{Location, Matcher};
use crate::mummer::tree::Child;
use crate::thread::{NONE, Thread, Value};

impl Matcher<'_> {
    /// A node's suffix link: the next node of its chain, or a word of its own.
    fn follow(&self, t: &mut Thread, node: u32, at: Value) -> (u32, Value) {
        let this = self.tree.nodes[node as usize];
        let va = self.node_at(node);
        let kind = t.load(0xc10, 2, va, 8, [at, NONE]);
        let small = this.chain > 0;
        t.branch(0xc14, 0xc30, 2, small, [kind.plus(1), NONE]);
        if small {
            return (this.link, at.plus(1));
        }
        let depth = t.load(0xc18, 1, va + 0x10, 8, [at, NONE]);
        t.branch(0xc1c, 0xc34, 2, this.depth == 1, [depth.plus(1), NONE]);
        if this.depth == 1 {
            return (0, NONE);
        }
        let link = t.load(0xc20, 1, va + 0x20, 8, [at, NONE]);
        t.load(0xc24, 1, self.places.record + 0x78, 8, [NONE; 2]);
        (this.link, link.plus(1))
    }

    /// From the location of a string to that of it without its first letter
    /// (`linklocstree`).
    pub(super) async fn link(&self, t: &mut Thread, at: &mut Location) -> Value {
        self.enter(t, 0xd44, 0xc00);
        let location = t.stack - 0x60;
        let remain = t.load(0xc04, 1, location + 0x28, 8, [NONE; 2]);
        t.branch(0xc08, 0xc40, 2, at.remain > 0, [remain.plus(1), NONE]);
        if at.remain == 0 {
            let node = match at.next {
                Child::Node(node) => node,
                Child::Leaf(_) => 0,
            };
            let pointer = t.load(0xc0a, 1, location + 0x38, 8, [NONE; 2]);
            let (link, value) = self.follow(t, node, pointer);
            at.next = Child::Node(link);
            at.start += 1;
            at.length -= 1;
            self.note(t, 0xc36, &[0x28, 0x30, 0x38, 0, 8], value);
            self.leave(t, 0xc3a, 0xd44);
            return value;
        }
        let previous = t.load(0xc40, 1, location + 0x10, 8, [NONE; 2]);
        let root = at.previous == 0;
        t.branch(0xc44, 0xc60, 2, root, [previous.plus(1), NONE]);
        let (from, value, first) = if root {
            (0, NONE, at.edge_start + 1)
        } else {
            let (link, value) = self.follow(t, at.previous, previous);
            (link, value, at.edge_start)
        };
        let end = at.edge_start + (at.edge - at.remain);
        let value = self.rescan(t, at, (from, value), first, end).await;
        self.leave(t, 0xc70, 0xd44);
        value
    }

    /// Goes down from a node along the text's letters `first..end`, which are known
    /// to be there: only the first letter of each edge is looked at (`rescanstree`).
    async fn rescan(
        &self,
        t: &mut Thread,
        at: &mut Location,
        (mut node, mut value): (u32, Value),
        first: u32,
        end: u32,
    ) -> Value {
        const AT: u64 = 0x800;
        self.enter(t, 0xc58, AT);
        t.branch(AT + 0x21, AT + 0x3a0, 2, node == 0, [value, NONE]);
        if node != 0 {
            self.both(t, AT + 0x27, node, value);
        }
        let this = self.tree.nodes[node as usize];
        (at.start, at.length) = (this.head, this.depth);
        (at.remain, at.next) = (0, Child::Node(node));
        self.note(t, AT + 0x6f, &[0x38, 0x30, 0, 8, 0x28], NONE);
        let mut left = first;
        loop {
            t.branch(AT + 0x9d, AT + 0x3f0, 2, left >= end, [NONE; 2]);
            if left >= end {
                break;
            }
            let letter = self.tree.text[left as usize];
            let own = t.load(AT + 0xbc, 2, self.letter_at(left), 1, [NONE; 2]);
            t.branch(AT + 0xc3, AT + 0x1bf, 2, node != 0, [value, NONE]);
            let depth = self.tree.nodes[node as usize].depth;
            let found = if node == 0 {
                let table = t.load(AT + 0xc9, 1, self.places.record + 0x10, 8, [NONE; 2]);
                let va = self.places.root_children + 8 * u64::from(letter);
                let reference = t.load(AT + 0xcd, 1, va, 8, [table, own]);
                self.tree.find(0, letter).map(|child| {
                    let leaf = matches!(child, Child::Leaf(_));
                    t.branch(AT + 0xec, AT + 0x300, 6, leaf, [reference.plus(1), NONE]);
                    let pointer = reference.plus(3);
                    if let Child::Node(inner) = child {
                        self.head(t, AT + 0xf2, inner, pointer);
                    }
                    (child, pointer, pointer)
                })
            } else {
                self.child(t, AT, (node, value), letter, own)
            };
            let Some((child, pointer, _)) = found else {
                debug_assert!(false, "a string of the text is in the tree");
                break;
            };
            let length = end - left;
            at.edge_start = self.tree.start(child) + depth;
            at.start = self.tree.start(child);
            at.previous = node;
            at.next = child;
            at.length = depth + length;
            at.edge = match child {
                Child::Leaf(leaf) => self.tree.text.len() as u32 - depth - leaf,
                Child::Node(inner) => {
                    let below = self.depth(t, AT + 0x2dd, inner, pointer);
                    t.branch(AT + 0x2fd, AT + 0x380, 3, false, [below, NONE]);
                    self.tree.nodes[inner as usize].depth - depth
                }
            };
            self.note(
                t,
                AT + 0x340,
                &[0x20, 0x10, 0x30, 0x38, 0, 8, 0x18],
                pointer,
            );
            let ends = at.edge >= length;
            t.branch(AT + 0x360, AT + 0x3e0, 2, ends, [NONE; 2]);
            if ends {
                at.remain = at.edge - length;
                self.note(t, AT + 0x3e0, &[0x28], NONE);
                value = pointer;
                break;
            }
            left += at.edge;
            value = pointer;
            node = match child {
                Child::Node(inner) => inner,
                Child::Leaf(_) => break,
            };
            // The source leaves these to the next turn, too.
            at.remain = 0;
            if t.full() {
                t.pause().await;
            }
        }
        self.leave(t, AT + 0x3f0, 0xc58);
        value
    }
}
