//! Nodes of the B-tree, and insertion into a full one: slots move to a sibling, or the node is split. From
//! `absl/container/internal/btree.h`, 20220623.
//!
//! A slot moves by the move constructors of its two strings, which do not fit the short-string buffer (gcc
//! 12.2 -O2, 33 instructions):
//!
//! ```text
//! 99 lea ; mov ; mov -0x10(%rbx) ; cmp ; je ; mov ; mov (%rbx) ; mov ; mov -8(%rbx) ; …
//! 58 mov 0x20(%rbx) ; mov ; mov ; mov 0x18(%rbx) ; mov -0x10(%rbx) ; mov ; cmp ; je 81
//! 81 lea ; sub ; sub ; cmp ; je ; mov
//! ```

mod erase;

use pagewalk_stream::flags::TAKEN;

use super::emit::Emit;
use super::globals::MAP;
use super::index::{Move, Place};
use super::libc;
use super::records::Records;
use crate::heap::Heap;
use crate::thread::NONE;

/// Slots of a node (`kNodeSlots`): more than the 3 that fit 256 bytes.
pub const SLOTS: usize = 4;
/// Bytes of a slot.
pub const SLOT_BYTES: u64 = 64;
/// Bytes before the first slot: the parent, then position, start, finish and capacity as one byte each.
pub const HEADER_BYTES: u64 = 16;
/// No node.
pub const NIL: u32 = u32::MAX;

/// A node. `number` and `id` are those of its records.
#[derive(Clone)]
pub struct Node {
    pub number: [u64; SLOTS],
    pub id: [u32; SLOTS],
    pub child: [u32; SLOTS + 1],
    pub parent: u32,
    pub at: Place,
    pub position: u8,
    pub count: u8,
    /// Capacity in slots: less than [`SLOTS`] in the first nodes.
    room: u8,
    pub leaf: bool,
}

/// The nodes of a B-tree.
pub struct Nodes {
    all: Records<Node>,
    pub root: u32,
    pub rightmost: u32,
    /// Recorded moves (see [`Index::record_moves`](super::index::Index::record_moves)).
    pub moves: Option<Vec<Move>>,
}

impl Default for Nodes {
    fn default() -> Self {
        Nodes {
            all: Records::default(),
            root: NIL,
            rightmost: NIL,
            moves: None,
        }
    }
}

const CODE: u64 = 0x2000;

impl Nodes {
    /// The node with this number.
    pub fn get(&self, node: u32) -> &Node {
        &self.all[node as usize]
    }

    /// Number of nodes ever allocated.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Address of the node with this number.
    #[inline(always)]
    pub fn va(&self, node: u32) -> u64 {
        self.all[node as usize].at.va()
    }

    /// Offset of a child pointer in a node.
    pub const fn child_offset(&self, child: usize) -> u64 {
        HEADER_BYTES + SLOTS as u64 * SLOT_BYTES + 8 * child as u64
    }

    fn slot(&self, node: u32, slot: usize) -> u64 {
        self.va(node) + HEADER_BYTES + SLOT_BYTES * slot as u64
    }

    fn count(&self, node: u32) -> usize {
        usize::from(self.all[node as usize].count)
    }

    fn bytes(leaf: bool, room: u8) -> u64 {
        let children = if leaf { 0 } else { 8 * (SLOTS as u64 + 1) };
        HEADER_BYTES + SLOT_BYTES * u64::from(room) + children
    }

    /// `new_leaf_node`, `new_internal_node`.
    fn make<E: Emit>(
        &mut self,
        e: &mut E,
        heap: &mut Heap,
        parent: u32,
        leaf: bool,
        room: u8,
        sp: u64,
    ) -> u32 {
        let (va, at) = libc::new(e, heap, (CODE + 0x10, 3), Self::bytes(leaf, room), sp);
        e.branch(CODE + 0x18, CODE + 0x400, 2, false, [at, NONE]);
        e.store(CODE + 0x1c, 2, va, 8, at, NONE);
        for (i, insns) in [1, 1, 1, 2].into_iter().enumerate() {
            e.store(
                CODE + 0x20 + 4 * i as u64,
                insns,
                va + 8 + i as u64,
                1,
                at,
                NONE,
            );
        }
        self.all.add(Node {
            number: [0; SLOTS],
            id: [0; SLOTS],
            child: [NIL; SLOTS + 1],
            parent,
            at: Place::new(va),
            position: 0,
            count: 0,
            room,
            leaf,
        })
    }

    /// Creates the root of an empty tree: a leaf with room for one.
    pub fn first<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, sp: u64) {
        self.root = self.make(e, heap, NIL, true, 1, sp);
        self.rightmost = self.root;
        e.store(CODE + 0x40, 1, MAP, 8, NONE, NONE);
        e.store(CODE + 0x44, 1, MAP + 8, 8, NONE, NONE);
    }

    /// Loads the bytes of a node's header that every step reads and asserts on.
    #[inline(always)]
    fn look<E: Emit>(&self, e: &mut E, pc: u64, node: u32) {
        let va = self.va(node);
        let start = e.load(pc, 1, va + 9, 1, [NONE; 2]);
        let count = e.load(pc + 4, 1, va + 10, 1, [NONE; 2]);
        e.branch(pc + 8, CODE + 0x500, 1, false, [start, NONE]);
        e.branch(pc + 12, pc + 0x10, 2, false, [count, NONE]);
    }

    /// Moves a slot from one place to another.
    fn transfer<E: Emit>(&mut self, e: &mut E, pc: u64, from: (u32, usize), to: (u32, usize)) {
        let source = &self.all[from.0 as usize];
        let (number, id) = (source.number[from.1], source.id[from.1]);
        let target = &mut self.all[to.0 as usize];
        (target.number[to.1], target.id[to.1]) = (number, id);
        if self.moves.is_some() {
            let (from, to) = (self.slot(from.0, from.1), self.slot(to.0, to.1));
            let moved = Move {
                id,
                number,
                from,
                to,
            };
            self.moves.get_or_insert_default().push(moved);
        }
        if !E::LOUD {
            return;
        }
        let (a, b) = (self.slot(from.0, from.1), self.slot(to.0, to.1));
        for part in [0, 32] {
            let pc = pc + part;
            let (a, b) = (a + part, b + part);
            e.store(pc, 2, b, 8, NONE, NONE);
            let text = e.load(pc + 4, 1, a, 8, [NONE; 2]);
            e.branch(pc + 10, pc + 0x80, 2, false, [text, NONE]);
            e.store(pc + 12, 1, b, 8, NONE, text);
            let capacity = e.load(pc + 16, 1, a + 16, 8, [NONE; 2]);
            e.store(pc + 18, 1, b + 16, 8, NONE, capacity);
            let length = e.load(pc + 20, 1, a + 8, 8, [NONE; 2]);
            e.store(pc + 24, 1, b + 8, 8, NONE, length);
            if part == 0 {
                // The key's source becomes an empty string.
                e.store(pc + 26, 3, a, 8, NONE, NONE);
                e.store(pc + 28, 1, a + 8, 8, NONE, NONE);
                e.store(pc + 30, 1, a + 16, 1, NONE, NONE);
            }
        }
        let text = e.load(pc + 0x42, 1, a, 8, [NONE; 2]);
        e.branch(pc + 0x48, pc + 0x50, 2, true, [text, NONE]);
        e.branch(pc + 0x50, pc, 6, true, [NONE; 2]);
    }

    /// Moves `count` slots, the last first if they move up within their node.
    fn transfer_many<E: Emit>(
        &mut self,
        e: &mut E,
        count: usize,
        from: (u32, usize),
        to: (u32, usize),
    ) {
        let up = from.0 == to.0 && to.1 > from.1;
        // Registers, bounds: 20 instructions around the loop.
        e.compute(CODE + 0x70, 20, 6, [NONE; 2]);
        for i in 0..count {
            let i = if up { count - 1 - i } else { i };
            self.transfer(e, CODE + 0xa0, (from.0, from.1 + i), (to.0, to.1 + i));
        }
    }

    fn set_child<E: Emit>(&mut self, e: &mut E, node: u32, i: usize, child: u32) {
        let child_va = self.va(child);
        e.store(
            CODE + 0x130,
            3,
            self.va(node) + self.child_offset(i),
            8,
            NONE,
            NONE,
        );
        e.store(CODE + 0x138, 1, child_va + 8, 1, NONE, NONE);
        e.store(CODE + 0x13c, 2, child_va, 8, NONE, NONE);
        self.all[node as usize].child[i] = child;
        let below = &mut self.all[child as usize];
        (below.parent, below.position) = (node, i as u8);
    }

    /// Moves a child pointer and updates the child's position.
    fn move_child<E: Emit>(&mut self, e: &mut E, from: (u32, usize), to: (u32, usize)) {
        let child = self.all[from.0 as usize].child[from.1];
        e.load(
            CODE + 0x128,
            2,
            self.va(from.0) + self.child_offset(from.1),
            8,
            [NONE; 2],
        );
        self.set_child(e, to.0, to.1, child);
    }

    fn set_count<E: Emit>(&mut self, e: &mut E, node: u32, count: usize) {
        e.store(CODE + 0x150, 2, self.va(node) + 10, 1, NONE, NONE);
        self.all[node as usize].count = count as u8;
    }

    /// `emplace_value`: a new slot at `i` of a node with room. The caller constructs its strings.
    pub fn emplace<E: Emit>(&mut self, e: &mut E, node: u32, i: usize, record: (u64, u32)) {
        self.look(e, CODE + 0x160, node);
        let count = self.count(node);
        if i < count {
            self.transfer_many(e, count - i, (node, i), (node, i + 1));
        }
        let target = &mut self.all[node as usize];
        (target.number[i], target.id[i]) = record;
        let leaf = target.leaf;
        self.set_count(e, node, count + 1);
        if !leaf {
            for child in (i + 1..=count).rev() {
                self.move_child(e, (node, child), (node, child + 1));
            }
        }
    }

    /// Makes room for a record at `place` (`internal_emplace` before the construction). Returns its final
    /// position.
    pub fn make_room<E: Emit>(
        &mut self,
        e: &mut E,
        heap: &mut Heap,
        place: (u32, usize),
        sp: u64,
    ) -> (u32, usize) {
        let (node, i) = place;
        self.look(e, CODE + 0x180, node);
        let (count, room) = (self.count(node), self.all[node as usize].room);
        let full = count == usize::from(room);
        e.branch(CODE + 0x190, CODE + 0x1a0, 3, full, [NONE; 2]);
        if !full {
            return place;
        }
        if usize::from(room) == SLOTS {
            return self.rebalance_or_split(e, heap, place, sp);
        }
        // The root leaf is replaced by one of twice the capacity.
        let larger = self.make(e, heap, NIL, true, (2 * room).min(SLOTS as u8), sp);
        self.transfer_many(e, count, (node, 0), (larger, 0));
        self.set_count(e, larger, count);
        let old = (self.va(node), NONE);
        libc::free(e, heap, (CODE + 0x1d0, 2), old, Self::bytes(true, room), sp);
        e.store(CODE + 0x1d8, 1, MAP, 8, NONE, NONE);
        e.store(CODE + 0x1dc, 1, MAP + 8, 8, NONE, NONE);
        (self.root, self.rightmost) = (larger, larger);
        (larger, i)
    }

    fn rebalance_or_split<E: Emit>(
        &mut self,
        e: &mut E,
        heap: &mut Heap,
        (node, i): (u32, usize),
        sp: u64,
    ) -> (u32, usize) {
        const CODE: u64 = 0x2400;
        e.call(CODE - 0x200, CODE, 3, sp);
        e.push(CODE, 6, sp - 8);
        let frame = sp - 56 - 0x28;
        self.look(e, CODE + 0x1a, node);
        let place = self.rebalance(e, (node, i));
        let place = match place {
            Some(place) => place,
            None => self.split(e, heap, (node, i), frame),
        };
        e.load(CODE + 0xf0, 2, frame + 0x28, 8, [NONE; 2]);
        e.pop(CODE + 0xf2, 5, sp - 8);
        e.ret(CODE + 0xfb, CODE - 0x200, 1, sp);
        place
    }

    /// Moves slots to a sibling that has room, unless the new slot would then belong to a full sibling.
    fn rebalance<E: Emit>(&mut self, e: &mut E, (node, i): (u32, usize)) -> Option<(u32, usize)> {
        const CODE: u64 = 0x2520;
        let (parent, position) = {
            let here = &self.all[node as usize];
            (here.parent, usize::from(here.position))
        };
        e.load(CODE, 1, self.va(node), 8, [NONE; 2]);
        let root = e.load(CODE + 3, 1, MAP, 8, [NONE; 2]);
        e.branch(CODE + 6, CODE + 0x100, 1, parent == NIL, [root, NONE]);
        if parent == NIL {
            return None;
        }
        e.load(CODE + 8, 1, self.va(node) + 8, 1, [NONE; 2]);
        self.look(e, CODE + 0x10, parent);
        e.branch(CODE + 0x2c, CODE + 0x60, 2, position == 0, [NONE; 2]);
        if position > 0 {
            let left = self.all[parent as usize].child[position - 1];
            let offset = self.child_offset(position - 1);
            e.load(CODE + 0x30, 6, self.va(parent) + offset, 8, [NONE; 2]);
            e.load(CODE + 0x38, 3, self.va(left) + 11, 1, [NONE; 2]);
            self.look(e, CODE + 0x3c, left);
            let held = self.count(left);
            if held < SLOTS {
                let moved = ((SLOTS - held) / (1 + usize::from(i < SLOTS))).max(1);
                e.branch(CODE + 0x58, CODE + 0xa0, 12, true, [NONE; 2]);
                if i >= moved || held + moved < SLOTS {
                    self.right_to_left(e, moved, left, node);
                    return Some(if i < moved {
                        (left, i + self.count(left) + 1 - moved)
                    } else {
                        (node, i - moved)
                    });
                }
            }
        }
        let last = self.count(parent);
        e.branch(CODE + 0x68, CODE + 0xe0, 3, position >= last, [NONE; 2]);
        if position < last {
            let right = self.all[parent as usize].child[position + 1];
            let offset = self.child_offset(position + 1);
            e.load(CODE + 0x70, 4, self.va(parent) + offset, 8, [NONE; 2]);
            e.load(CODE + 0x78, 3, self.va(right) + 11, 1, [NONE; 2]);
            self.look(e, CODE + 0x7c, right);
            let held = self.count(right);
            if held < SLOTS {
                let moved = ((SLOTS - held) / (1 + usize::from(i > 0))).max(1);
                e.branch(CODE + 0x98, CODE + 0xb0, 12, true, [NONE; 2]);
                if i <= SLOTS - moved || held + moved < SLOTS {
                    self.left_to_right(e, moved, node, right);
                    let left = self.count(node);
                    return Some(if i > left {
                        (right, i - left - 1)
                    } else {
                        (node, i)
                    });
                }
            }
        }
        None
    }

    /// `rebalance_right_to_left`.
    fn right_to_left<E: Emit>(&mut self, e: &mut E, moved: usize, left: u32, right: u32) {
        let (parent, position, leaf) = {
            let here = &self.all[left as usize];
            (here.parent, usize::from(here.position), here.leaf)
        };
        let (held, count) = (self.count(left), self.count(right));
        e.compute(CODE + 0x700, 40, 12, [NONE; 2]);
        self.transfer(e, CODE + 0x740, (parent, position), (left, held));
        self.transfer_many(e, moved - 1, (right, 0), (left, held + 1));
        self.transfer(e, CODE + 0x7c0, (right, moved - 1), (parent, position));
        self.transfer_many(e, count - moved, (right, moved), (right, 0));
        if !leaf {
            for i in 0..moved {
                self.move_child(e, (right, i), (left, held + 1 + i));
            }
            for i in 0..=count - moved {
                self.move_child(e, (right, i + moved), (right, i));
            }
        }
        self.set_count(e, left, held + moved);
        self.set_count(e, right, count - moved);
    }

    /// `rebalance_left_to_right`.
    fn left_to_right<E: Emit>(&mut self, e: &mut E, moved: usize, left: u32, right: u32) {
        let (parent, position, leaf) = {
            let here = &self.all[left as usize];
            (here.parent, usize::from(here.position), here.leaf)
        };
        let (held, count) = (self.count(left), self.count(right));
        e.compute(CODE + 0x840, 40, 12, [NONE; 2]);
        self.transfer_many(e, count, (right, 0), (right, moved));
        self.transfer(e, CODE + 0x880, (parent, position), (right, moved - 1));
        self.transfer_many(e, moved - 1, (left, held + 1 - moved), (right, 0));
        self.transfer(e, CODE + 0x900, (left, held - moved), (parent, position));
        if !leaf {
            for i in (0..=count).rev() {
                self.move_child(e, (right, i), (right, i + moved));
            }
            for i in 1..=moved {
                self.move_child(e, (left, held - moved + i), (right, i - 1));
            }
        }
        self.set_count(e, left, held - moved);
        self.set_count(e, right, count + moved);
    }

    /// Splits a full node. Returns the final position of the new slot.
    fn split<E: Emit>(
        &mut self,
        e: &mut E,
        heap: &mut Heap,
        (node, i): (u32, usize),
        sp: u64,
    ) -> (u32, usize) {
        let (mut parent, leaf) = {
            let here = &self.all[node as usize];
            (here.parent, here.leaf)
        };
        if parent == NIL {
            parent = self.make(e, heap, NIL, false, SLOTS as u8, sp);
            self.set_child(e, parent, 0, node);
            e.store(CODE + 0x980, 1, MAP, 8, NONE, NONE);
            self.root = parent;
        } else if self.count(parent) == SLOTS {
            let position = usize::from(self.all[node as usize].position);
            self.rebalance_or_split(e, heap, (parent, position), sp);
            parent = self.all[node as usize].parent;
        }
        let fresh = self.make(e, heap, parent, leaf, SLOTS as u8, sp);
        let count = self.count(node);
        let moved = match i {
            0 => count - 1,
            SLOTS => 0,
            _ => count / 2,
        };
        e.compute(CODE + 0x9a0, 30, 10, [NONE; 2]);
        let kept = count - moved;
        self.transfer_many(e, moved, (node, kept), (fresh, 0));
        self.set_count(e, fresh, moved);
        // The last slot of the left node becomes the separator.
        let position = usize::from(self.all[node as usize].position);
        let between = kept - 1;
        let record = {
            let here = &self.all[node as usize];
            (here.number[between], here.id[between])
        };
        self.emplace(e, parent, position, record);
        self.transfer(e, CODE + 0xa00, (node, between), (parent, position));
        self.set_count(e, node, between);
        self.set_child(e, parent, position + 1, fresh);
        if !leaf {
            for child in 0..=moved {
                self.move_child(e, (node, between + 1 + child), (fresh, child));
            }
        }
        if self.rightmost == node {
            e.store(CODE + 0xa90, 2, MAP + 8, 8, NONE, NONE);
            self.rightmost = fresh;
        }
        e.jump(CODE + 0xaa0, CODE + 0xac0, 4, TAKEN, [NONE; 2]);
        if i > between {
            (fresh, i - between - 1)
        } else {
            (node, i)
        }
    }
}
