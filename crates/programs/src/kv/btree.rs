//! `absl::btree_map<std::string, std::string>` (20220623): a B-tree.
//!
//! Nodes have a target size of 256 bytes but hold at least four slots of 64 bytes (the strings of key and
//! value). A node has parent and counts (16 bytes), slots, and in inner nodes five children: 272 and 312
//! bytes. A search is binary within a node and ends at the key, in inner nodes too. A full node moves slots
//! to a sibling before it is split.
//!
//! gcc 12.2 -O2, path of a find:
//!
//! ```text
//! 40 cmpb $0,0xf(%rsp) ; movzbl 0xa(%r14) ; 4a jne ; 56 je ; … 6f jmp 92
//! 92 lea ; sar ; movslq ; shl ; lea ; a4 mov 8(%rax) ; … b5 jne 78
//! 78 mov (%rax) ; mov (%rsp) ; 7f call memcmp ; test ; 86 je b7 ; 88 js f0
//! 8a mov ; cmp ; 90 je f9        f0 lea ; cmp ; f7 jne 92
//! f9 cmpb $0,0xb(%r14) ; fe jne ; 103 mov 0x110(%r14,%rcx,8) ; … 11a jmp 40
//! ```

mod erase;

use pagewalk_stream::flags::TAKEN;

use super::emit::Emit;
use super::globals::MAP;
use super::index::{AHEAD, Found, Gone, Index, IndexStep, Key, Move, Place, same};
use super::libc::{self, KEY_BYTES};
use super::nodes::{HEADER_BYTES, NIL, Nodes, SLOT_BYTES, SLOTS};
use super::records::{Records, Sizes};
use crate::heap::Heap;
use crate::thread::{NONE, Value};

/// Words of the map: root, rightmost leaf, size.
pub(super) const ROOT: u64 = MAP;
pub(super) const RIGHTMOST: u64 = MAP + 8;
const SIZE: u64 = MAP + 16;

struct Record {
    key: Place,
    value: Place,
}

/// A B-tree of records.
pub struct Tree {
    pub(super) nodes: Nodes,
    records: Records<Record>,
    sizes: Sizes,
}

/// End of a search, and the value that produces the node's address.
struct Position {
    node: u32,
    slot: usize,
    at: Value,
    equal: bool,
}

impl Tree {
    /// An empty map for values of `value_bytes`.
    pub fn new(value_bytes: u64) -> Self {
        Tree {
            nodes: Nodes::default(),
            records: Records::default(),
            sizes: Sizes::new(value_bytes),
        }
    }

    /// `internal_locate`.
    #[inline(always)]
    fn locate<E: Emit>(&self, e: &mut E, site: u64, key: &Key, sp: u64) -> Position {
        const CODE: u64 = 0x1000;
        e.push(CODE, 6, sp - 8);
        let frame = sp - 56 - 0x28;
        let mut at = e.load(CODE + 0xe, 2, ROOT, 8, [NONE; 2]);
        e.store(CODE + 0x11, 1, frame + 0x18, 8, NONE, NONE);
        e.store(CODE + 0x16, 1, frame + 0x10, 8, NONE, NONE);
        e.branch(CODE + 0x1f, CODE + 0x14d, 2, false, [at, NONE]);
        let mut node = self.nodes.root;
        let start = e.load(CODE + 0x25, 1, self.nodes.va(node) + 9, 1, [at, NONE]);
        e.store(CODE + 0x2a, 1, frame + 0xf, 1, NONE, start);
        e.branch(CODE + 0x30, CODE + 0x148, 2, false, [start, NONE]);
        e.compute(CODE + 0x36, 1, 1, [NONE; 2]);
        let position = loop {
            let here = self.nodes.get(node);
            let va = here.at.va();
            let start = e.load(CODE + 0x40, 1, frame + 0xf, 1, [NONE; 2]);
            let count = e.load(CODE + 0x45, 1, va + 10, 1, [at, NONE]);
            e.branch(CODE + 0x4a, CODE + 0x129, 1, false, [start, NONE]);
            e.branch(CODE + 0x56, CODE + 0xf9, 3, here.count == 0, [count, NONE]);
            let string = e.load(CODE + 0x5c, 1, frame + 0x10, 8, [NONE; 2]);
            e.load(CODE + 0x64, 2, key.object + 8, 8, [string, NONE]);
            let text = e.load(CODE + 0x68, 1, key.object, 8, [string, NONE]);
            e.store(CODE + 0x6b, 1, frame, 8, NONE, text);
            e.jump(CODE + 0x6f, CODE + 0x92, 1, TAKEN, [NONE; 2]);
            let (mut low, mut high) = (0, usize::from(here.count));
            // Comparison results are predicted, so loads do not wait for them. The middle slot is still
            // computed from the count and the previous bound.
            let mut bounds = count;
            let mut found = None;
            while low < high {
                let middle = (low + high) / 2;
                let slot = va + HEADER_BYTES + SLOT_BYTES * middle as u64;
                let index = bounds.plus(2);
                let slot_at = index.plus(3);
                let length = e.load(CODE + 0xa4, 6, slot + 8, 8, [at, slot_at]);
                e.branch(CODE + 0xb5, CODE + 0x78, 5, true, [length.plus(2), NONE]);
                let other = e.load(CODE + 0x78, 1, slot, 8, [at, slot_at]);
                let mine = e.load(CODE + 0x7b, 1, frame, 8, [NONE; 2]);
                let mut order = NONE;
                if E::LOUD {
                    let equal = same(here.number[middle], key.number);
                    let record = &self.records[here.id[middle] as usize];
                    let (a, b) = ((record.key.va(), other), (key.text, mine));
                    order = libc::memcmp(e, (CODE + 0x7f, 1), a, b, equal, frame);
                }
                let is_it = here.number[middle] == key.number;
                e.branch(CODE + 0x86, CODE + 0xb7, 2, is_it, [order, NONE]);
                if is_it {
                    found = Some(middle);
                    break;
                }
                let less = here.number[middle] < key.number;
                e.branch(CODE + 0x88, CODE + 0xf0, 1, less, [order, NONE]);
                bounds = index.plus(1);
                if less {
                    low = middle + 1;
                    e.branch(CODE + 0xf7, CODE + 0x92, 3, low < high, [NONE; 2]);
                } else {
                    high = middle;
                    e.branch(CODE + 0x90, CODE + 0xf9, 3, low == high, [NONE; 2]);
                }
            }
            if let Some(slot) = found {
                e.branch(CODE + 0xc8, CODE + 0xf0, 7, false, [NONE; 2]);
                e.branch(CODE + 0xcc, CODE + 0x8a, 2, false, [NONE; 2]);
                break Position {
                    node,
                    slot,
                    at,
                    equal: true,
                };
            }
            let most = e.load(CODE + 0xf9, 1, va + 11, 1, [at, NONE]);
            e.branch(CODE + 0xfe, CODE + 0x11f, 1, here.leaf, [most, NONE]);
            if here.leaf {
                e.store(CODE + 0x11f, 1, frame + 0xf, 1, NONE, NONE);
                e.jump(CODE + 0x127, CODE + 0xce, 2, TAKEN, [NONE; 2]);
                break Position {
                    node,
                    slot: low,
                    at,
                    equal: false,
                };
            }
            at = e.load(
                CODE + 0x103,
                2,
                va + self.nodes.child_offset(low),
                8,
                [at, bounds.plus(1)],
            );
            e.branch(CODE + 0x10f, CODE + 0x14d, 2, false, [at, NONE]);
            node = here.child[low];
            let start = e.load(CODE + 0x111, 1, self.nodes.va(node) + 9, 1, [at, NONE]);
            e.store(CODE + 0x116, 1, frame + 0xf, 1, NONE, start);
            e.jump(CODE + 0x11a, CODE + 0x40, 1, TAKEN, [NONE; 2]);
        };
        let answer = e.load(CODE + 0xce, 1, frame + 0x18, 8, [NONE; 2]);
        e.load(CODE + 0xd3, 1, frame + 0xf, 1, [NONE; 2]);
        for (i, size) in [8, 4, 1].into_iter().enumerate() {
            let va = sp + 0x30 + 8 * i as u64;
            e.store(CODE + 0xd8 + 3 * i as u64, 1, va, size, answer, NONE);
        }
        e.load(CODE + 0xe5, 2, frame + 0x28, 8, [NONE; 2]);
        e.pop(CODE + 0xe6, 5, sp - 8);
        e.ret(CODE + 0xef, site, 1, sp);
        position
    }

    fn found(&self, position: &Position, fresh: bool) -> Found {
        let node = self.nodes.get(position.node);
        Found {
            id: node.id[position.slot],
            record: node.at.va() + HEADER_BYTES + SLOT_BYTES * position.slot as u64,
            at: position.at,
            fresh,
        }
    }

    /// Constructs a slot with the key and an empty value, at a position with room.
    fn construct<E: Emit>(
        &mut self,
        e: &mut E,
        heap: &mut Heap,
        (node, slot): (u32, usize),
        key: &Key,
        sp: u64,
    ) -> Position {
        const CODE: u64 = 0x1800;
        let id = self.records.add(Record {
            key: Place::default(),
            value: Place::default(),
        });
        self.nodes.emplace(e, node, slot, (key.number, id));
        let va = self.nodes.va(node) + HEADER_BYTES + SLOT_BYTES * slot as u64;
        e.store(CODE + 0x8, 3, va, 8, NONE, NONE);
        let text = e.load(CODE + 0x10, 2, key.object, 8, [NONE; 2]);
        let length = e.load(CODE + 0x13, 1, key.object + 8, 8, [NONE; 2]);
        e.store(CODE + 0x18, 1, sp + 0x28, 8, NONE, length);
        e.branch(CODE + 0x20, CODE + 0x90, 2, true, [length, NONE]);
        let (at, ready) = libc::create(e, heap, (CODE + 0x98, 3), sp + 0x28, KEY_BYTES, sp);
        e.store(CODE + 0x9d, 1, va, 8, NONE, ready);
        let capacity = e.load(CODE + 0xa0, 2, sp + 0x28, 8, [NONE; 2]);
        e.store(CODE + 0xa5, 1, va + 16, 8, NONE, capacity);
        libc::memcpy(
            e,
            (CODE + 0xb0, 3),
            (at, ready),
            (key.text, text),
            KEY_BYTES,
            sp,
        );
        let length = e.load(CODE + 0xb5, 1, sp + 0x28, 8, [NONE; 2]);
        let text = e.load(CODE + 0xba, 1, va, 8, [NONE; 2]);
        e.store(CODE + 0xc0, 2, va + 8, 8, NONE, length);
        e.store(CODE + 0xc8, 1, at + KEY_BYTES, 1, text, NONE);
        e.store(CODE + 0xd0, 2, va + 32, 8, NONE, NONE);
        e.store(CODE + 0xd8, 1, va + 40, 8, NONE, NONE);
        e.store(CODE + 0xe0, 1, va + 48, 1, NONE, NONE);
        let size = e.load(CODE + 0xe8, 1, SIZE, 8, [NONE; 2]);
        e.store(CODE + 0xe8, 0, SIZE, 8, NONE, size.plus(1));
        self.records[id as usize].key = Place::new(at);
        Position {
            node,
            slot,
            at: NONE,
            equal: false,
        }
    }
}

impl Index for Tree {
    const HOST_BYTES: u64 = 56;
    const PAIR: u64 = 0;

    fn sizes(&mut self) -> &mut Sizes {
        &mut self.sizes
    }

    fn warm(&self, numbers: &[u64]) {
        let mut at = [NIL; AHEAD];
        at[..numbers.len()].fill(self.nodes.root);
        loop {
            let mut deeper = false;
            for (at, number) in at.iter_mut().zip(numbers) {
                if *at != NIL {
                    let node = self.nodes.get(*at);
                    let held = &node.number[..usize::from(node.count)];
                    let child = held.iter().filter(|n| **n < *number).count();
                    *at = node.child[child];
                    deeper = true;
                }
            }
            if !deeper {
                return;
            }
        }
    }

    fn look<E: Emit>(&mut self, e: &mut E, _: &mut Heap, key: &Key, sp: u64) -> Option<Found> {
        if self.nodes.root == NIL {
            return None;
        }
        e.call(0x14f, 0x1000, 4, sp);
        let position = self.locate(e, 0x14f, key, sp);
        let equal = e.load(0x154, 1, sp + 0x40, 1, [NONE; 2]);
        e.branch(0x159, 0x210, 1, position.equal, [equal, NONE]);
        if !position.equal {
            return None;
        }
        e.load(0x160, 1, sp + 0x30, 8, [NONE; 2]);
        e.load(0x165, 1, sp + 0x38, 4, [NONE; 2]);
        e.branch(0x16d, 0, 2, false, [NONE; 2]);
        let last = e.load(0x16f, 1, RIGHTMOST, 8, [NONE; 2]);
        e.branch(0x179, 0x2c0, 2, false, [last, NONE]);
        let rightmost = self.nodes.va(self.nodes.rightmost);
        let count = e.load(0x17f, 1, rightmost + 10, 1, [last, NONE]);
        e.branch(0x185, 0x190, 2, true, [count, NONE]);
        e.branch(0x193, 0x2c0, 2, false, [NONE; 2]);
        let va = self.nodes.va(position.node);
        let start = e.load(0x195, 1, va + 9, 1, [position.at, NONE]);
        e.branch(0x199, 0x2d0, 1, false, [start, NONE]);
        e.branch(0x19b, 0x2e0, 2, false, [NONE; 2]);
        let count = e.load(0x19d, 1, va + 10, 1, [position.at, NONE]);
        e.branch(0x1a1, 0x2f0, 2, false, [count, NONE]);
        e.compute(0x1a5, 2, 2, [NONE; 2]);
        Some(self.found(&position, false))
    }

    fn entry<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, key: &Key, sp: u64) -> IndexStep {
        const CODE: u64 = 0x1700;
        e.call(0x74, CODE, 4, sp);
        e.push(CODE, 6, sp - 8);
        let frame = sp - 56 - 0x68;
        let size = e.load(CODE + 0x1a, 6, SIZE, 8, [NONE; 2]);
        let empty = self.nodes.root == NIL;
        e.branch(CODE + 0x1f, CODE + 0x60, 1, empty, [size, NONE]);
        if empty {
            self.nodes.first(e, heap, frame);
        }
        e.call(CODE + 0x2c, 0x1000, 4, frame);
        let mut position = self.locate(e, CODE + 0x2c, key, frame);
        let equal = e.load(CODE + 0x31, 1, frame + 0x50, 1, [NONE; 2]);
        e.load(CODE + 0x36, 1, frame + 0x40, 8, [NONE; 2]);
        e.load(CODE + 0x3b, 1, frame + 0x48, 4, [NONE; 2]);
        e.branch(CODE + 0x3f, CODE + 0x98, 1, !position.equal, [equal, NONE]);
        let fresh = !position.equal;
        if fresh {
            e.store(CODE + 0x98, 1, frame + 0x30, 8, NONE, NONE);
            e.store(CODE + 0x9d, 1, frame + 0x38, 4, NONE, NONE);
            let place = (position.node, position.slot);
            let place = self.nodes.make_room(e, heap, place, frame);
            position = self.construct(e, heap, place, key, frame);
        }
        for i in 0..3 {
            e.store(CODE + 0x78 + 4 * i, 1, sp + 0x10 + 8 * i, 8, NONE, NONE);
        }
        e.load(CODE + 0x88, 3, frame + 0x68, 8, [NONE; 2]);
        e.pop(CODE + 0x89, 5, sp - 8);
        e.ret(CODE + 0x92, 0x74, 1, sp);
        IndexStep::Done(self.found(&position, fresh))
    }

    /// No operation here takes several steps.
    fn proceed<E: Emit>(&mut self, _: &mut E, _: &mut Heap, _: u64) -> IndexStep {
        IndexStep::More
    }

    fn erase<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, key: &Key, sp: u64) -> Option<Gone> {
        self.take_out(e, heap, key, sp)
    }

    fn key_text(&self, id: u32) -> u64 {
        self.records[id as usize].key.va()
    }

    fn record_moves(&mut self) {
        self.nodes.moves = Some(Vec::new());
    }

    fn moves(&mut self) -> Vec<Move> {
        let moves = self.nodes.moves.as_mut();
        moves.map(std::mem::take).unwrap_or_default()
    }

    fn value_object(&self, found: &Found) -> u64 {
        found.record + 32
    }

    fn value_text(&mut self, id: u32) -> &mut Place {
        &mut self.records[id as usize].value
    }

    /// Assumes nodes three quarters full, as random insertion leaves them.
    fn footprint(keys: u64, value: u64) -> u64 {
        let chunk = crate::heap::chunk;
        let nodes = keys.div_ceil(3);
        let texts = keys * (chunk(KEY_BYTES + 1) + chunk(value + 1));
        texts + nodes * chunk(HEADER_BYTES + SLOTS as u64 * SLOT_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::Tree;
    use crate::kv::check;
    use crate::kv::nodes::{NIL, SLOTS};

    /// Checks order, fill and links of the subtree; returns its depth and keys.
    fn check_node(tree: &Tree, node: u32, low: u64, high: u64) -> (u32, usize) {
        let here = tree.nodes.get(node);
        let count = usize::from(here.count);
        let is_root = node == tree.nodes.root;
        assert!((1..=SLOTS).contains(&count));
        let mut bound = low;
        for number in &here.number[..count] {
            assert!(bound <= *number && *number <= high);
            bound = number + 1;
        }
        if here.leaf {
            return (1, count);
        }
        let mut depths = Vec::new();
        let mut keys = count;
        for i in 0..=count {
            let child = here.child[i];
            let below = tree.nodes.get(child);
            assert_eq!((below.parent, usize::from(below.position)), (node, i));
            let from = if i == 0 { low } else { here.number[i - 1] + 1 };
            let to = if i == count { high } else { here.number[i] - 1 };
            let (depth, held) = check_node(tree, child, from, to);
            depths.push(depth);
            keys += held;
        }
        assert!(is_root || count >= 1);
        assert!(
            depths.windows(2).all(|d| d[0] == d[1]),
            "leaves at one depth"
        );
        (depths[0] + 1, keys)
    }

    proptest::proptest! {
        #[test]
        fn stays_a_b_tree_when_keys_are_erased(requests in check::requests()) {
            let mut tree = Tree::new(64);
            check::erasing_against_oracle(&mut tree, &requests);
            if tree.nodes.root != NIL {
                let (_, keys) = check_node(&tree, tree.nodes.root, 0, u64::MAX);
                proptest::prop_assert_eq!(keys, tree.records.len());
                // Merged nodes are freed.
                proptest::prop_assert!(tree.nodes.len() <= keys + 1);
            } else {
                proptest::prop_assert!(tree.records.is_empty());
            }
        }

        #[test]
        fn is_a_b_tree_with_every_key(numbers in proptest::collection::vec(1u64..3000, 1..600)) {
            let mut tree = Tree::new(64);
            check::against_oracle(&mut tree, &numbers);
            let (_, keys) = check_node(&tree, tree.nodes.root, 0, u64::MAX);
            proptest::prop_assert_eq!(keys, tree.records.len());
        }
    }

    #[test]
    fn ascending_keys_fill_the_nodes() {
        let mut tree = Tree::new(64);
        let numbers: Vec<u64> = (1..=4000).collect();
        check::against_oracle(&mut tree, &numbers);
        check_node(&tree, tree.nodes.root, 0, u64::MAX);
        let full = tree.records.len() as f64 / (tree.nodes.len() * SLOTS) as f64;
        assert!(full > 0.95, "{full}");
    }
}
