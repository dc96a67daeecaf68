//! `std::map<std::string, std::string>` of libstdc++: a red-black tree.
//!
//! A node is colour, parent, left and right (32 bytes), and the strings of key and value: 96 bytes. The
//! header in the map has root, leftmost and rightmost.
//!
//! gcc 12.2 -O2, path of a find. A search descends to a leaf. Equality is tested only for the last node that
//! was not less:
//!
//! ```text
//! 4a9 mov 0x28(%rbx) ; mov ; mov 0x20(%rbx) ; … be je ; mov ; c3 call memcmp ; test ; ca jne eb
//! 4eb test ; ed js 4a0 ; mov ; f2 mov 0x10(%rbx),%rbx ; f9 jne 4a9
//! 4a0 mov 0x18(%rbx),%rbx ; test ; a7 je 4fb
//! 4fb cmp header ; fe je ; 504 mov 0x28(%r14) ; mov ; mov 0x20(%r14) ; … 51e call memcmp
//! ```

mod erase;

use pagewalk_stream::flags::TAKEN;

use super::emit::Emit;
use super::globals::MAP;
use super::index::{AHEAD, Found, Gone, Index, IndexStep, Key, Place, same};
use super::libc;
use super::records::Sizes;
use super::tree::{self, CHILD, HEADER, NIL, Node, PARENT, Tree};
use crate::heap::Heap;
use crate::thread::{NONE, Value};

const NODE_BYTES: u64 = 96;
const COUNT: u64 = MAP + 0x28;

/// A red-black tree of records.
pub struct Map {
    tree: Tree,
    sizes: Sizes,
}

/// End of a search.
struct Bound {
    /// First node that is not less, and the value that produces its address.
    node: u32,
    at: Value,
    /// True if its key is the searched one.
    equal: bool,
}

impl Map {
    /// An empty map for values of `value_bytes`.
    pub fn new(value_bytes: u64) -> Self {
        Map {
            tree: Tree::default(),
            sizes: Sizes::new(value_bytes),
        }
    }

    /// Compares the keys of `node` and the search, in the operand order of `memcmp`. Returns the result.
    #[inline(always)]
    fn compare<E: Emit>(
        &self,
        e: &mut E,
        pc: u64,
        (node, at): (u32, Value),
        (key, mine): (&Key, Value),
        node_first: bool,
        sp: u64,
    ) -> Value {
        if !E::LOUD {
            return NONE;
        }
        let node = &self.tree.nodes[node as usize];
        let length = e.load(pc, 1, node.at.va() + 40, 8, [at, NONE]);
        let text = e.load(pc + 7, 2, node.at.va() + 32, 8, [at, NONE]);
        e.branch(pc + 0x15, pc + 0x23, 4, false, [length.plus(2), NONE]);
        let equal = same(node.number, key.number);
        let (a, b) = ((node.key.va(), text), (key.text, mine));
        let (a, b) = if node_first { (a, b) } else { (b, a) };
        let order = libc::memcmp(e, (pc + 0x1a, 2), a, b, equal, sp);
        e.branch(
            pc + 0x21,
            pc + 0x42,
            2,
            equal < libc::KEY_BYTES,
            [order, NONE],
        );
        if equal == libc::KEY_BYTES {
            // The lengths decide the order.
            e.branch(pc + 0x2c, pc + 0x60, 4, false, [length, NONE]);
            e.branch(pc + 0x38, pc + 0x60, 3, false, [length, NONE]);
            e.compute(pc + 0x40, 1, 1, [NONE; 2]);
        }
        order
    }

    /// Lower bound, then the test for equality. `key` is in registers.
    #[inline(always)]
    fn search<E: Emit>(
        &self,
        e: &mut E,
        pc: u64,
        root: Value,
        key: (&Key, Value),
        sp: u64,
    ) -> Bound {
        let number = key.0.number;
        let mut bound = Bound {
            node: NIL,
            at: NONE,
            equal: false,
        };
        let (mut node, mut at) = (self.tree.root, root);
        while node != NIL {
            let order = self.compare(e, pc + 9, (node, at), key, true, sp);
            let here = &self.tree.nodes[node as usize];
            let less = here.number < number;
            e.branch(pc + 0x4d, pc, 2, less, [order, NONE]);
            let next = here.child[usize::from(less)];
            let va = if E::LOUD { here.at.va() } else { 0 };
            if less {
                at = e.load(pc, 1, va + CHILD[1], 8, [at, NONE]);
                e.branch(pc + 7, pc + 0x5b, 2, next == NIL, [at, NONE]);
            } else {
                (bound.node, bound.at) = (node, at);
                at = e.load(pc + 0x52, 2, va + CHILD[0], 8, [at, NONE]);
                e.branch(pc + 0x59, pc + 9, 2, next != NIL, [at, NONE]);
            }
            node = next;
        }
        e.branch(
            pc + 0x5e,
            pc + 0x200,
            2,
            bound.node == NIL,
            [bound.at, NONE],
        );
        if bound.node != NIL {
            let order = self.compare(e, pc + 0x64, (bound.node, bound.at), key, false, sp);
            bound.equal = self.tree.nodes[bound.node as usize].number == number;
            e.branch(pc + 0xaf, pc + 0x200, 2, !bound.equal, [order, NONE]);
        }
        bound
    }

    fn found(&self, id: u32, at: Value, fresh: bool) -> Found {
        let record = self.tree.nodes[id as usize].at.va();
        Found {
            id,
            record,
            at,
            fresh,
        }
    }

    /// Allocates node and text of a new key (`_M_create_node`).
    fn make<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, key: &Key, sp: u64) -> u32 {
        const CODE: u64 = 0x1020;
        e.push(CODE, 6, sp - 8);
        let frame = sp - 56 - 0x28;
        e.store(CODE + 0x19, 5, frame + 8, 8, NONE, NONE);
        let (va, node) = libc::new(e, heap, (CODE + 0x1e, 1), NODE_BYTES, frame);
        let string = e.load(CODE + 0x26, 2, frame + 0xb0, 8, [NONE; 2]);
        let length = e.load(CODE + 0x32, 3, key.object + 8, 8, [string, NONE]);
        e.store(CODE + 0x36, 1, va + 32, 8, node, node);
        let text = e.load(CODE + 0x3a, 1, key.object, 8, [string, NONE]);
        e.store(CODE + 0x3d, 1, frame + 0x18, 8, NONE, length);
        e.branch(CODE + 0x46, CODE + 0x110, 2, true, [length, NONE]);
        let capacity = frame + 0x18;
        let call = (CODE + 0x11a, 4);
        let (at, ready) = libc::create(e, heap, call, capacity, libc::KEY_BYTES, frame);
        e.store(CODE + 0x11f, 1, va + 32, 8, node, ready);
        let length = e.load(CODE + 0x126, 2, capacity, 8, [NONE; 2]);
        e.store(CODE + 0x12b, 1, va + 48, 8, node, length);
        let call = (CODE + 0x135, 3);
        libc::memcpy(
            e,
            call,
            (at, ready),
            (key.text, text),
            libc::KEY_BYTES,
            frame,
        );
        let length = e.load(CODE + 0x13a, 1, capacity, 8, [NONE; 2]);
        let text = e.load(CODE + 0x13f, 1, va + 32, 8, [node, NONE]);
        e.jump(CODE + 0x143, CODE + 0x5c, 1, TAKEN, [NONE; 2]);
        e.store(CODE + 0x5c, 1, va + 40, 8, node, length);
        e.load(CODE + 0x60, 1, frame + 8, 8, [NONE; 2]);
        e.store(CODE + 0x6b, 3, at + libc::KEY_BYTES, 1, text, NONE);
        e.store(CODE + 0x73, 2, va + 64, 8, node, NONE);
        e.store(CODE + 0x77, 1, va + 72, 8, node, NONE);
        e.store(CODE + 0x7f, 1, va + 80, 1, node, NONE);
        let node = Node::new(key.number, Place::new(va), Place::new(at));
        self.tree.nodes.add(node)
    }

    /// Parent and side of the new key (`_M_get_insert_hint_unique_pos` with the lower bound as the hint).
    fn position<E: Emit>(&self, e: &mut E, bound: &Bound, key: &Key, sp: u64) -> (u32, usize) {
        const CODE: u64 = 0x14c0;
        const SITE: u64 = 0x10a3;
        e.call(SITE, CODE, 1, sp);
        e.push(CODE, 6, sp - 8);
        let frame = sp - 56 - 0x18;
        e.branch(
            CODE + 0x1b,
            CODE + 0x170,
            5,
            bound.node == NIL,
            [bound.at, NONE],
        );
        let mut place = (NIL, 0);
        if bound.node == NIL {
            let rightmost = e.load(CODE + 0x17b, 3, HEADER + CHILD[1], 8, [NONE; 2]);
            if self.tree.root != NIL {
                place = (self.tree.ends[1], 1);
                let mine = e.load(CODE + 0x183, 2, key.object, 8, [NONE; 2]);
                let node = (self.tree.ends[1], rightmost);
                let order = self.compare(e, CODE + 0x186, node, (key, mine), true, frame);
                e.branch(CODE + 0x1c4, CODE + 0x236, 2, false, [order, NONE]);
            }
        } else {
            e.load(CODE + 0x21, 1, key.object + 8, 8, [NONE; 2]);
            let mine = e.load(CODE + 0x2c, 2, key.object, 8, [NONE; 2]);
            let hint = (bound.node, bound.at);
            let order = self.compare(e, CODE + 0x2f, hint, (key, mine), false, frame);
            e.branch(CODE + 0x7f, CODE + 0xea, 1, true, [order, NONE]);
            let leftmost = e.load(CODE + 0xf0, 3, HEADER + CHILD[0], 8, [NONE; 2]);
            let is_first = bound.node == self.tree.ends[0];
            e.branch(CODE + 0xf4, CODE + 0xb7, 1, is_first, [leftmost, NONE]);
            place = (bound.node, 0);
            if !is_first {
                let (before, at) =
                    tree::decrement(&self.tree, e, CODE + 0xf9, bound.node, bound.at, frame);
                let order = self.compare(e, CODE + 0x101, (before, at), (key, mine), true, frame);
                e.branch(CODE + 0x14a, CODE + 0x236, 2, false, [order, NONE]);
                let right = e.load(
                    CODE + 0x152,
                    2,
                    self.tree.va(before) + CHILD[1],
                    8,
                    [at, NONE],
                );
                e.jump(CODE + 0x162, CODE + 0xb7, 4, TAKEN, [right, NONE]);
                if self.tree.nodes[before as usize].child[1] == NIL {
                    place = (before, 1);
                }
            }
        }
        e.load(CODE + 0xbb, 2, frame + 0x18, 8, [NONE; 2]);
        e.pop(CODE + 0xbc, 5, sp - 8);
        e.ret(CODE + 0xc5, SITE, 1, sp);
        place
    }
}

impl Index for Map {
    const HOST_BYTES: u64 = 32;
    /// Offset of the pair: behind colour and links.
    const PAIR: u64 = 32;

    fn sizes(&mut self) -> &mut Sizes {
        &mut self.sizes
    }

    fn warm(&self, numbers: &[u64]) {
        let mut at = [NIL; AHEAD];
        at[..numbers.len()].fill(self.tree.root);
        loop {
            let mut deeper = false;
            for (at, number) in at.iter_mut().zip(numbers) {
                if *at != NIL {
                    let node = &self.tree.nodes[*at as usize];
                    *at = node.child[usize::from(node.number < *number)];
                    deeper = true;
                }
            }
            if !deeper {
                return;
            }
        }
    }

    fn look<E: Emit>(&mut self, e: &mut E, _: &mut Heap, key: &Key, sp: u64) -> Option<Found> {
        let root = e.load(0x27a, 1, HEADER + PARENT, 8, [NONE; 2]);
        e.branch(0x284, 0, 2, false, [root, NONE]);
        let mine = e.load(0x28a, 1, key.object, 8, [NONE; 2]);
        e.load(0x28f, 1, key.object + 8, 8, [NONE; 2]);
        e.jump(0x29b, 0x2a9, 2, TAKEN, [NONE; 2]);
        let bound = self.search(e, 0x2a0, root, (key, mine), sp);
        let at = bound.at;
        bound.equal.then(|| self.found(bound.node, at, false))
    }

    fn entry<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, key: &Key, sp: u64) -> IndexStep {
        const CODE: u64 = 0x1730;
        e.call(0x74, CODE, 3, sp);
        e.push(CODE, 6, sp - 8);
        let frame = sp - 56 - 0x38;
        let root = e.load(CODE + 0x12, 3, HEADER + PARENT, 8, [NONE; 2]);
        e.store(CODE + 0x16, 1, frame + 0x10, 8, NONE, NONE);
        e.store(CODE + 0x1b, 1, frame + 0x18, 8, NONE, NONE);
        e.store(CODE + 0x20, 1, frame + 8, 8, NONE, NONE);
        e.branch(
            CODE + 0x28,
            CODE + 0xf8,
            2,
            self.tree.root == NIL,
            [root, NONE],
        );
        let mine = e.load(CODE + 0x2e, 1, key.object, 8, [NONE; 2]);
        e.load(CODE + 0x31, 1, key.object + 8, 8, [NONE; 2]);
        e.jump(CODE + 0x3b, CODE + 0x49, 2, TAKEN, [NONE; 2]);
        let bound = self.search(e, CODE + 0x40, root, (key, mine), frame);
        let found = if bound.equal {
            self.found(bound.node, bound.at, false)
        } else {
            e.load(CODE + 0xfd, 1, frame + 0x18, 8, [NONE; 2]);
            e.load(CODE + 0x102, 1, frame + 0x10, 8, [NONE; 2]);
            e.store(CODE + 0x10f, 3, frame + 0x28, 8, NONE, NONE);
            e.call(CODE + 0x114, 0x1020, 1, frame);
            let id = self.make(e, heap, key, frame);
            let inner = frame - 56 - 0x28;
            let (parent, side) = self.position(e, &bound, key, inner);
            e.branch(0x10b1, 0x1108, 4, false, [NONE; 2]);
            // For a free right side, the comparison is repeated to choose the side.
            e.branch(0x10c0, 0x1170, 4, side == 1, [NONE; 2]);
            if side == 1 {
                let mine = e.load(0x1178, 3, key.object, 8, [NONE; 2]);
                let order = self.compare(e, 0x1180, (parent, NONE), (key, mine), false, inner);
                e.branch(0x11d0, 0x10c6, 2, true, [order, NONE]);
            }
            tree::insert(&mut self.tree, e, 0x10cf, id, parent, side, inner);
            let count = e.load(0x10d4, 1, COUNT, 8, [NONE; 2]);
            e.store(0x10d4, 0, COUNT, 8, NONE, count.plus(1));
            e.load(0x10e1, 3, inner + 0x28, 8, [NONE; 2]);
            e.pop(0x10e2, 5, frame - 8);
            e.ret(0x10eb, CODE + 0x114, 1, frame);
            e.jump(CODE + 0x11c, CODE + 0xe1, 2, TAKEN, [NONE; 2]);
            self.found(id, NONE, true)
        };
        e.load(CODE + 0xe9, 3, frame + 0x38, 8, [NONE; 2]);
        e.pop(CODE + 0xea, 5, sp - 8);
        e.ret(CODE + 0xf3, 0x74, 1, sp);
        IndexStep::Done(found)
    }

    /// No operation here takes several steps.
    fn proceed<E: Emit>(&mut self, _: &mut E, _: &mut Heap, _: u64) -> IndexStep {
        IndexStep::More
    }

    fn erase<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, key: &Key, sp: u64) -> Option<Gone> {
        self.take_out(e, heap, key, sp)
    }

    fn key_text(&self, id: u32) -> u64 {
        self.tree.nodes[id as usize].key.va()
    }

    fn value_object(&self, found: &Found) -> u64 {
        found.record + 64
    }

    fn value_text(&mut self, id: u32) -> &mut Place {
        &mut self.tree.nodes[id as usize].value
    }

    fn footprint(keys: u64, value: u64) -> u64 {
        let chunk = crate::heap::chunk;
        keys * (chunk(NODE_BYTES) + chunk(libc::KEY_BYTES + 1) + chunk(value + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::Map;
    use crate::kv::check;
    use crate::kv::tree::NIL;

    /// Leftmost and rightmost nodes match the header.
    fn check_ends(map: &Map) {
        for side in 0..2 {
            let mut node = map.tree.root;
            while node != NIL && map.tree.nodes[node as usize].child[side] != NIL {
                node = map.tree.nodes[node as usize].child[side];
            }
            assert!(map.tree.root == NIL || map.tree.ends[side] == node);
        }
    }

    /// Checks the subtree's order, parents and colours; returns its black height.
    fn check_subtree(map: &Map, node: u32, parent: u32, low: u64, high: u64) -> u32 {
        if node == NIL {
            return 1;
        }
        let here = &map.tree.nodes[node as usize];
        assert!(low <= here.number && here.number <= high);
        assert_eq!(here.parent(), parent);
        if here.is_red() {
            assert!(parent != NIL && !map.tree.nodes[parent as usize].is_red());
        }
        let left = check_subtree(map, here.child[0], node, low, here.number.saturating_sub(1));
        let right = check_subtree(map, here.child[1], node, here.number + 1, high);
        assert_eq!(left, right, "black heights");
        left + u32::from(!here.is_red())
    }

    proptest::proptest! {
        #[test]
        fn stays_a_red_black_tree_when_keys_are_erased(requests in check::requests()) {
            let mut map = Map::new(64);
            check::erasing_against_oracle(&mut map, &requests);
            check_subtree(&map, map.tree.root, NIL, 0, u64::MAX);
            check_ends(&map);
        }

        #[test]
        fn is_a_red_black_tree_with_every_key(numbers in proptest::collection::vec(0u64..3000, 1..600)) {
            let mut map = Map::new(64);
            check::against_oracle(&mut map, &numbers);
            check_subtree(&map, map.tree.root, NIL, 0, u64::MAX);
            let extreme = |side: usize| {
                let mut node = map.tree.root;
                while map.tree.nodes[node as usize].child[side] != NIL {
                    node = map.tree.nodes[node as usize].child[side];
                }
                node
            };
            proptest::prop_assert_eq!(map.tree.ends, [extreme(0), extreme(1)]);
        }
    }
}
