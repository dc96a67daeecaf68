//! `erase` of a key: finds the range of equal keys, at most one, and removes its node.
//!
//! gcc 12.2 -O2:
//!
//! ```text
//! 700 mov ; lea ; call 2c00 ; 710 cmp leftmost ; mov ; mov ; jne 72f ; 72f lea ; cmp ; 739 je out
//! 745 mov ; mov ; call _Rb_tree_increment ; mov ; mov ; mov ; call _Rb_tree_rebalance_for_erase
//! 75e mov 0x40(%rax) ; mov ; lea ; cmp ; je ; mov 0x50 ; lea ; call delete ; 77b the same of the key
//! 795 mov ; mov ; call delete ; subq ; cmp ; jne ; jmp out
//! equal_range 2c00 push six ; … mov root ; test ; je ; mov (key) ; mov 8(key) ; 36 jmp 8b
//! 8b mov 0x28(%rbx) ; mov ; cmp ; cmovbe ; test ; jne 40 ; 40 mov 0x20(%rbx) ; mov ; mov ; mov ; 4f call memcmp
//! 56 jne 108 ; 108 js 82 ; 10e mov ; mov ; mov ; 119 call memcmp ; 120 jne d6 ; d8 jns 12d ; da mov ; mov 0x10 ; e6 jne 8b
//! 82 mov 0x18(%rbx) ; test ; je ; 12d the two subtrees, down to a leaf each
//! ```

use pagewalk_stream::flags::TAKEN;

use super::{COUNT, Map, NODE_BYTES};
use crate::heap::Heap;
use crate::kv::emit::Emit;
use crate::kv::index::{Gone, Key};
use crate::kv::libc::{self, KEY_BYTES};
use crate::kv::tree::{CHILD, HEADER, NIL, PARENT};
use crate::thread::{NONE, Value};

impl Map {
    /// `equal_range`: the node of the key.
    fn equal_range<E: Emit>(&self, e: &mut E, site: u64, key: &Key, sp: u64) -> (u32, Value) {
        const CODE: u64 = 0x2c00;
        e.push(CODE, 6, sp - 8);
        let frame = sp - 56 - 0x28;
        let tree = &self.tree;
        let mut at = e.load(CODE + 0x12, 3, HEADER + PARENT, 8, [NONE; 2]);
        e.store(CODE + 0x16, 1, frame + 0x10, 8, NONE, NONE);
        let mut node = tree.root;
        e.branch(CODE + 0x1e, CODE + 0xe8, 2, node == NIL, [at, NONE]);
        let mine = e.load(CODE + 0x24, 1, key.object, 8, [NONE; 2]);
        e.load(CODE + 0x27, 1, key.object + 8, 8, [NONE; 2]);
        e.store(CODE + 0x31, 2, frame + 8, 8, NONE, mine);
        e.jump(CODE + 0x36, CODE + 0x8b, 1, TAKEN, [NONE; 2]);
        let of = (key, mine);
        while node != NIL {
            let order = self.compare(e, CODE + 0x40, (node, at), of, true, frame);
            let here = &tree.nodes[node as usize];
            let less = here.number < key.number;
            e.branch(CODE + 0x108, CODE + 0x82, 1, less, [order, NONE]);
            let va = if E::LOUD { here.at.va() } else { 0 };
            if less {
                node = here.child[1];
                at = e.load(CODE + 0x82, 1, va + CHILD[1], 8, [at, NONE]);
                e.branch(CODE + 0x89, CODE + 0xe8, 2, node == NIL, [at, NONE]);
                continue;
            }
            let order = self.compare(e, CODE + 0x10e, (node, at), of, false, frame);
            let equal = here.number == key.number;
            e.branch(CODE + 0xd8, CODE + 0x12d, 2, equal, [order, NONE]);
            if equal {
                self.subtrees(e, (node, at), of, frame);
                break;
            }
            e.store(CODE + 0xda, 1, frame + 0x10, 8, NONE, NONE);
            node = here.child[0];
            at = e.load(CODE + 0xdf, 1, va + CHILD[0], 8, [at, NONE]);
            e.branch(CODE + 0xe6, CODE + 0x8b, 2, node != NIL, [at, NONE]);
        }
        e.load(CODE + 0xed, 2, frame + 0x10, 8, [NONE; 2]);
        e.pop(CODE + 0xf9, 6, sp - 8);
        e.ret(CODE + 0x103, site, 3, sp);
        (node, at)
    }

    /// Searches the right subtree for the smallest greater key, then the left subtree for the greatest
    /// smaller one.
    fn subtrees<E: Emit>(&self, e: &mut E, node: (u32, Value), key: (&Key, Value), sp: u64) {
        const CODE: u64 = 0x2d2d;
        if !E::LOUD {
            return;
        }
        let (node, at) = node;
        let here = &self.tree.nodes[node as usize];
        let va = here.at.va();
        let right = e.load(CODE, 1, va + CHILD[1], 8, [at, NONE]);
        let left = e.load(CODE + 0x4, 1, va + CHILD[0], 8, [at, NONE]);
        for (side, mut at) in [(1, right), (0, left)] {
            let pc = CODE + if side == 1 { 0x8 } else { 0xad };
            let mut node = here.child[side];
            e.branch(pc, pc + 0x70, 3, node == NIL, [at, NONE]);
            while node != NIL {
                let order = self.compare(e, pc + 0x10, (node, at), key, side == 0, sp);
                e.branch(pc + 0x60, pc + 0x1b, 1, true, [order, NONE]);
                let there = &self.tree.nodes[node as usize];
                node = there.child[1 - side];
                at = e.load(pc + 0x1b, 2, there.at.va() + CHILD[1 - side], 8, [at, NONE]);
                e.branch(pc + 0x22, pc + 0x70, 2, node == NIL, [at, NONE]);
            }
        }
    }

    pub(super) fn take_out<E: Emit>(
        &mut self,
        e: &mut E,
        heap: &mut Heap,
        key: &Key,
        sp: u64,
    ) -> Option<Gone> {
        e.call(0x70b, 0x2c00, 3, sp);
        let (id, at) = self.equal_range(e, 0x70b, key, sp);
        let first = e.load(0x710, 1, HEADER + CHILD[0], 8, [NONE; 2]);
        e.branch(0x71d, 0x72f, 3, true, [first, NONE]);
        e.branch(0x739, 0, 3, id == NIL, [at, NONE]);
        if id == NIL {
            return None;
        }
        self.tree.increment(e, 0x74b, id, sp);
        self.tree.take_out(e, 0x759, id, sp);
        let room = u64::from(self.sizes.of(id).room);
        let node = &self.tree.nodes[id as usize];
        let va = node.at.va();
        for (pc, string, text, bytes) in [
            (0x75e, va + 64, node.value, room),
            (0x77b, va + 32, node.key, KEY_BYTES),
        ] {
            let from = e.load(pc, 1, string, 8, [at, NONE]);
            e.branch(pc + 0xe, pc + 0x1d, 3, false, [from, NONE]);
            e.load(pc + 0x10, 1, string + 16, 8, [at, NONE]);
            libc::free(e, heap, (pc + 0x18, 2), (text.va(), from), bytes + 1, sp);
        }
        libc::free(e, heap, (0x79d, 3), (va, at), NODE_BYTES, sp);
        let count = e.load(0x7a2, 1, COUNT, 8, [NONE; 2]);
        e.store(0x7a2, 0, COUNT, 8, NONE, count.plus(1));
        e.branch(0x7ad, 0x745, 2, false, [NONE; 2]);
        e.jump(0x7af, 0, 1, TAKEN, [NONE; 2]);
        self.tree.nodes.remove(id);
        Some(Gone { id, record: va })
    }
}
