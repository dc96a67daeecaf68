//! Erasure from the B-tree. A node with fewer than two slots is merged with a sibling if both fit into one
//! node. Otherwise it takes slots from the sibling. From `absl/container/internal/btree.h`, 20220623.
//!
//! gcc 12.2 -O2:
//!
//! ```text
//! remove_values 2c00 push six ; test ; 12 jne ; … the slot's strings are freed ; transfer_n ; c2 cmpb leaf ; c6 jne
//!   children move up ; 167 mov ; sub ; mov count ; pop six ; 181 ret
//! rebalance_after_delete 2d00 push three ; … cmp root ; 2a jne 80 ; 80 test ; jne ; cmpb start ; mov count ; jne ; 96 jbe 38
//!   38 call try_merge_or_rebalance ; … 9b je ; 98 mov ; mov ; test ; mov count ; cmp ; ab je ; ad mov ; mov ; pop three ; bf ret
//! ```

use super::{CODE as INSERT, HEADER_BYTES, NIL, Nodes, SLOT_BYTES, SLOTS};
use crate::heap::Heap;
use crate::kv::btree::{RIGHTMOST, ROOT};
use crate::kv::emit::Emit;
use crate::kv::libc;
use crate::thread::NONE;

const CODE: u64 = 0x2c00;
/// Minimum slots of a node. Below it the node looks for a sibling (`kMinNodeValues`).
const FEWEST: usize = SLOTS / 2;

/// Node and slot.
type Spot = (u32, usize);

impl Nodes {
    /// The next position (`operator++`). `None` after the last slot.
    pub fn next<E: Emit>(&self, e: &mut E, (mut node, slot): Spot) -> Option<Spot> {
        let va = self.va(node);
        let leaf = e.load(CODE + 0x400, 4, va + 11, 1, [NONE; 2]);
        let here = self.get(node);
        e.branch(CODE + 0x404, CODE + 0x420, 1, !here.leaf, [leaf, NONE]);
        if here.leaf {
            let count = e.load(CODE + 0x408, 2, va + 10, 1, [NONE; 2]);
            let inside = slot + 1 < usize::from(here.count);
            e.branch(CODE + 0x410, CODE + 0x440, 3, inside, [count, NONE]);
            if inside {
                return Some((node, slot + 1));
            }
            // `increment_slow`: up to an ancestor with a next slot.
            e.load(CODE + 0x420, 6, va, 8, [NONE; 2]);
            loop {
                let (parent, position) = (self.get(node).parent, self.get(node).position);
                if parent == NIL {
                    return None;
                }
                let above = self.va(parent);
                e.load(CODE + 0x428, 2, self.va(node) + 8, 1, [NONE; 2]);
                e.load(CODE + 0x42c, 1, above + 11, 1, [NONE; 2]);
                let count = e.load(CODE + 0x430, 3, above + 10, 1, [NONE; 2]);
                let last = position == self.get(parent).count;
                e.branch(CODE + 0x434, CODE + 0x428, 2, last, [count, NONE]);
                node = parent;
                if !last {
                    e.compute(CODE + 0x438, 6, 1, [NONE; 2]);
                    return Some((parent, usize::from(position)));
                }
            }
        }
        let mut child = here.child[slot + 1];
        let mut from = va + self.child_offset(slot + 1);
        loop {
            let at = e.load(CODE + 0x450, 3, from, 8, [NONE; 2]);
            e.load(CODE + 0x454, 2, self.va(child) + 11, 1, [at, NONE]);
            let leaf = self.get(child).leaf;
            e.branch(CODE + 0x458, CODE + 0x450, 2, !leaf, [at, NONE]);
            if leaf {
                e.compute(CODE + 0x45c, 6, 1, [NONE; 2]);
                return Some((child, 0));
            }
            from = self.va(child) + self.child_offset(0);
            child = self.get(child).child[0];
        }
    }

    /// The last slot of the leaf before an inner node's slot (`operator--` of an iterator in the caller's
    /// frame).
    pub fn before<E: Emit>(&self, e: &mut E, (node, slot): Spot, sp: u64) -> Spot {
        let mut child = self.get(node).child[slot];
        let mut from = self.va(node) + self.child_offset(slot);
        loop {
            let at = e.load(CODE + 0x490, 2, from, 8, [NONE; 2]);
            e.store(CODE + 0x494, 1, sp + 0x10, 8, NONE, NONE);
            e.load(CODE + 0x498, 3, self.va(child) + 11, 1, [at, NONE]);
            let count = e.load(CODE + 0x49c, 1, self.va(child) + 10, 1, [at, NONE]);
            let here = self.get(child);
            e.branch(CODE + 0x4a0, CODE + 0x490, 1, !here.leaf, [count, NONE]);
            if here.leaf {
                return (child, usize::from(here.count) - 1);
            }
            from = self.va(child) + self.child_offset(usize::from(here.count));
            child = here.child[usize::from(here.count)];
        }
    }

    /// Removes a slot whose strings are already destroyed: the slots behind it move up.
    pub fn close<E: Emit>(&mut self, e: &mut E, (node, slot): Spot, sp: u64) {
        let count = self.count(node);
        // `transfer_n` saves three registers.
        e.call(CODE + 0xbd, CODE + 0x3c0, 1, sp);
        e.push(CODE + 0x3c0, 3, sp - 8);
        self.transfer_many(e, count - slot - 1, (node, slot + 1), (node, slot));
        e.pop(CODE + 0x3e0, 3, sp - 8);
        e.ret(CODE + 0x3e6, CODE + 0xbd, 1, sp);
        self.set_count(e, node, count - 1);
    }

    /// Moves the record of a leaf's slot into an inner node's slot, whose strings are destroyed.
    pub fn lift<E: Emit>(&mut self, e: &mut E, from: Spot, to: Spot) {
        self.transfer(e, CODE + 0x4b0, from, to);
        let count = self.count(from.0);
        self.set_count(e, from.0, count - 1);
    }

    /// `rebalance_after_delete` of a slot at `spot`.
    pub fn shrink<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, spot: Spot, sp: u64) {
        const CODE: u64 = 0x2d00;
        e.call(CODE - 0x10, CODE, 6, sp);
        e.push(CODE, 3, sp - 8);
        let frame = sp - 32 - 0x20;
        for (i, insns) in [3, 2, 2].into_iter().enumerate() {
            let va = frame + 8 * i as u64;
            e.store(CODE + 0x11 + 4 * i as u64, insns, va, 8, NONE, NONE);
        }
        let (mut node, mut slot) = spot;
        let mut at = spot;
        let mut first = true;
        loop {
            e.load(CODE + 0x27, 1, ROOT, 8, [NONE; 2]);
            let is_root = node == self.root;
            e.branch(CODE + 0x2a, CODE + 0xc0, 1, is_root, [NONE; 2]);
            if is_root {
                self.shrink_root(e, heap, frame);
                break;
            }
            e.load(CODE + 0x86, 3, self.va(node) + 9, 1, [NONE; 2]);
            let count = e.load(CODE + 0x8a, 1, self.va(node) + 10, 1, [NONE; 2]);
            let few = self.count(node) < FEWEST;
            e.branch(CODE + 0x96, CODE + 0x38, 3, few, [count, NONE]);
            if !few {
                break;
            }
            let merged = self.merge_or_rebalance(e, heap, (&mut node, &mut slot), frame);
            e.branch(CODE + 0x46, CODE + 0x59, 2, !first, [NONE; 2]);
            if first {
                (at, first) = ((node, slot), false);
                e.store(CODE + 0x4c, 2, frame + 0x10, 8, NONE, NONE);
                e.store(CODE + 0x55, 2, frame + 0x18, 8, NONE, NONE);
            }
            e.branch(CODE + 0x5b, CODE + 0x98, 2, !merged, [NONE; 2]);
            if !merged {
                break;
            }
            e.load(CODE + 0x69, 3, self.va(node) + 8, 1, [NONE; 2]);
            e.load(CODE + 0x6d, 1, self.va(node), 8, [NONE; 2]);
            e.store(CODE + 0x73, 2, frame + 8, 8, NONE, NONE);
            slot = usize::from(self.get(node).position);
            node = self.get(node).parent;
        }
        // The position behind the erased slot, unless the tree is empty.
        if self.root != NIL {
            e.load(CODE + 0x98, 1, frame + 0x10, 8, [NONE; 2]);
            e.load(CODE + 0xa5, 4, self.va(at.0) + 10, 1, [NONE; 2]);
            let behind = at.1 == self.count(at.0);
            e.branch(CODE + 0xab, CODE + 0xe8, 2, behind, [NONE; 2]);
            if behind && at.1 > 0 {
                e.load(CODE + 0xe8, 4, self.va(at.0) + 11, 1, [NONE; 2]);
                self.next(e, (at.0, at.1 - 1));
            }
        }
        e.load(CODE + 0xad, 2, frame + 0x10, 8, [NONE; 2]);
        e.pop(CODE + 0xbb, 3, sp - 8);
        e.ret(CODE + 0xbf, CODE - 0x10, 2, sp);
    }

    /// `try_shrink`: removes an empty root.
    fn shrink_root<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, sp: u64) {
        let old = self.root;
        let va = self.va(old);
        let count = e.load(CODE + 0x2c0, 6, va + 10, 1, [NONE; 2]);
        let empty = self.count(old) == 0;
        e.branch(CODE + 0x2c8, CODE + 0x2d0, 2, empty, [count, NONE]);
        if !empty {
            return;
        }
        let here = self.get(old);
        let (leaf, room) = (here.leaf, here.room);
        if leaf {
            (self.root, self.rightmost) = (NIL, NIL);
        } else {
            let child = here.child[0];
            e.load(CODE + 0x2d0, 4, va + self.child_offset(0), 8, [NONE; 2]);
            e.store(CODE + 0x2d8, 3, self.va(child), 8, NONE, NONE);
            self.all[child as usize].parent = NIL;
            self.root = child;
        }
        e.store(CODE + 0x2e0, 2, ROOT, 8, NONE, NONE);
        let bytes = Self::bytes(leaf, room);
        libc::free(e, heap, (CODE + 0x2e8, 6), (va, NONE), bytes, sp);
        self.all.remove(old);
    }

    /// `try_merge_or_rebalance`: returns true if the node was merged with a sibling.
    fn merge_or_rebalance<E: Emit>(
        &mut self,
        e: &mut E,
        heap: &mut Heap,
        (node, slot): (&mut u32, &mut usize),
        sp: u64,
    ) -> bool {
        const CODE: u64 = 0x2e00;
        e.call(CODE - 0x10, CODE, 3, sp);
        e.push(CODE, 6, sp - 8);
        let frame = sp - 56 - 0x18;
        let (parent, position) = (
            self.get(*node).parent,
            usize::from(self.get(*node).position),
        );
        e.load(CODE + 0x10, 5, self.va(*node), 8, [NONE; 2]);
        e.load(CODE + 0x14, 3, self.va(*node) + 8, 1, [NONE; 2]);
        self.look(e, CODE + 0x18, parent);
        let held = self.count(*node);
        let last = self.count(parent);
        let merged = 'merged: {
            e.branch(CODE + 0x30, CODE + 0x60, 2, position == 0, [NONE; 2]);
            if position > 0 {
                let left = self.get(parent).child[position - 1];
                self.sibling(e, CODE + 0x34, (parent, position - 1), left);
                let fits = 1 + self.count(left) + held <= SLOTS;
                e.branch(CODE + 0x54, CODE + 0x100, 3, fits, [NONE; 2]);
                if fits {
                    *slot += 1 + self.count(left);
                    self.merge(e, heap, left, *node, frame);
                    *node = left;
                    break 'merged true;
                }
            }
            e.branch(CODE + 0x68, CODE + 0xb0, 3, position >= last, [NONE; 2]);
            if position < last {
                let right = self.get(parent).child[position + 1];
                self.sibling(e, CODE + 0x6c, (parent, position + 1), right);
                let there = self.count(right);
                let fits = 1 + held + there <= SLOTS;
                e.branch(CODE + 0x8c, CODE + 0x120, 3, fits, [NONE; 2]);
                if fits {
                    self.merge(e, heap, *node, right, frame);
                    break 'merged true;
                }
                let takes = there > FEWEST && (held == 0 || *slot > 0);
                e.branch(CODE + 0x98, CODE + 0x140, 4, takes, [NONE; 2]);
                if takes {
                    let moved = ((there - held) / 2).min(there - 1);
                    self.right_to_left(e, moved, *node, right);
                    break 'merged false;
                }
            }
            e.branch(CODE + 0xb4, CODE + 0xf0, 2, position == 0, [NONE; 2]);
            if position > 0 {
                let left = self.get(parent).child[position - 1];
                self.sibling(e, CODE + 0xb8, (parent, position - 1), left);
                let there = self.count(left);
                let takes = there > FEWEST && (held == 0 || *slot < held);
                e.branch(CODE + 0xd8, CODE + 0x160, 4, takes, [NONE; 2]);
                if takes {
                    let moved = ((there - held) / 2).min(there - 1);
                    self.left_to_right(e, moved, left, *node);
                    *slot += moved;
                }
            }
            false
        };
        e.load(CODE + 0xf0, 2, frame + 0x18, 8, [NONE; 2]);
        e.pop(CODE + 0xf2, 5, sp - 8);
        e.ret(CODE + 0xfb, CODE - 0x10, 1, sp);
        merged
    }

    /// Loads a child pointer and the child's number of slots.
    fn sibling<E: Emit>(&self, e: &mut E, pc: u64, from: Spot, node: u32) {
        e.load(
            pc,
            4,
            self.va(from.0) + self.child_offset(from.1),
            8,
            [NONE; 2],
        );
        e.load(pc + 0x8, 3, self.va(node) + 11, 1, [NONE; 2]);
        self.look(e, pc + 0xc, node);
    }

    /// `merge`: the separator and the slots of the right node move to the left node.
    fn merge<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, left: u32, right: u32, sp: u64) {
        let (parent, position, leaf) = {
            let here = self.get(left);
            (here.parent, usize::from(here.position), here.leaf)
        };
        let (held, moved) = (self.count(left), self.count(right));
        // Registers, bounds and asserts.
        e.compute(INSERT + 0xb00, 40, 12, [NONE; 2]);
        self.transfer(e, INSERT + 0xb20, (parent, position), (left, held));
        self.transfer_many(e, moved, (right, 0), (left, held + 1));
        if !leaf {
            for i in 0..=moved {
                self.move_child(e, (right, i), (left, held + 1 + i));
            }
        }
        self.set_count(e, left, held + 1 + moved);
        self.set_count(e, right, 0);
        // `remove_values` of the parent: its slot's strings are empty.
        e.push(CODE, 6, sp - 8);
        let slot = self.slot(parent, position);
        for part in [32, 0] {
            let text = e.load(CODE + 0x58, 4, slot + part, 8, [NONE; 2]);
            e.branch(CODE + 0x63, CODE + 0x72, 3, true, [text, NONE]);
        }
        let last = self.count(parent);
        self.close(e, (parent, position), sp - 56);
        let (va, bytes) = (self.va(right), Self::bytes(leaf, SLOTS as u8));
        e.load(
            CODE + 0xfa,
            8,
            self.va(parent) + self.child_offset(position + 1),
            8,
            [NONE; 2],
        );
        libc::free(e, heap, (CODE + 0x105, 12), (va, NONE), bytes, sp);
        for i in position + 2..=last {
            self.move_child(e, (parent, i), (parent, i - 1));
        }
        e.pop(CODE + 0x177, 6, sp - 8);
        if self.rightmost == right {
            e.store(CODE + 0x190, 2, RIGHTMOST, 8, NONE, NONE);
            self.rightmost = left;
        }
        self.all.remove(right);
    }
}

const _: () = assert!(HEADER_BYTES + SLOT_BYTES * SLOTS as u64 == 0x110);
