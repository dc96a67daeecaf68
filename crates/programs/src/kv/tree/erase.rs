//! Erasure from the red-black tree. A node with two children is replaced by its successor. After the removal
//! of a black node, recolouring and rotations restore the black height.
//!
//! gcc 12.2, `_Rb_tree_rebalance_for_erase`:
//!
//! ```text
//! 00 endbr64 ; mov 0x10(%rdi) ; mov ; mov ; mov 0x18(%rdi) ; test ; 15 je ; mov ; test ; 21 je
//! 30 mov ; mov 0x10(%rax) ; test ; 3a jne 30 ; mov 0x18(%rdx) ; cmp ; je ; 49 links of the successor
//! 76 cmp root ; 7a je ; mov 8(%r9) ; cmp ; 88 je ; 8e mov ; mov ; colours ; a4 je 2c6
//! aa cmp root ; ae je ; test ; b7 jne   1b4 one child or none: links, leftmost, rightmost
//! bd mov 0x10(%rax) ; cmp ; c4 je 121 ; c6 mov (%rdx) ; ca je 200 (red) ; d0 mov ; dc je ; e9 cmpl ; f5 red, up
//! 24e rotation ; 2c0 black ; 2c6 mov ; ret
//! ```

use super::{CHILD, HEADER, NIL, PARENT, Tree, rotate};
use crate::kv::emit::{Emit, Library};
use crate::thread::{NONE, Value};

impl Tree {
    fn is_black(&self, node: u32) -> bool {
        node == NIL || !self.nodes[node as usize].is_red()
    }

    /// Links `child` in the place of `node`.
    fn replace<E: Emit>(&mut self, e: &mut E, pc: u64, node: u32, child: u32) {
        let parent = self.nodes[node as usize].parent();
        let root = e.load(pc, 1, HEADER + PARENT, 8, [NONE; 2]);
        e.branch(pc + 0x4, pc + 0x2f0, 1, parent == NIL, [root, NONE]);
        if parent == NIL {
            e.store(pc + 0x2f0, 1, HEADER + PARENT, 8, NONE, NONE);
            self.root = child;
            return;
        }
        let up = e.load(pc + 0xa, 1, self.va(node) + PARENT, 8, [NONE; 2]);
        let side = usize::from(self.nodes[parent as usize].child[1] == node);
        let left = e.load(pc + 0xe, 1, self.va(parent) + CHILD[0], 8, [up, NONE]);
        e.branch(pc + 0x12, pc + 0x320, 1, side == 0, [left, NONE]);
        e.store(pc + 0x18, 1, self.va(parent) + CHILD[side], 8, up, NONE);
        self.nodes[parent as usize].child[side] = child;
    }

    fn set_parent<E: Emit>(&mut self, e: &mut E, pc: u64, node: u32, parent: u32) {
        e.store(pc, 1, self.va(node) + PARENT, 8, NONE, NONE);
        self.nodes[node as usize].set_parent(parent);
    }

    fn set_red<E: Emit>(&mut self, e: &mut E, pc: u64, node: u32, red: bool) {
        e.store(pc, 1, self.va(node), 4, NONE, NONE);
        self.nodes[node as usize].set_red(red);
    }

    /// Updates the leftmost or rightmost node, if it was `node`, which `child` has replaced.
    fn move_end<E: Emit>(&mut self, e: &mut E, pc: u64, node: u32, child: u32, side: usize) {
        let end = e.load(pc, 1, HEADER + CHILD[side], 8, [NONE; 2]);
        let is_end = self.ends[side] == node;
        e.branch(pc + 0x4, pc + 0x220, 1, is_end, [end, NONE]);
        if !is_end {
            return;
        }
        let mut now = self.nodes[node as usize].parent();
        let mut at = e.load(pc + 0x220, 1, self.va(node) + CHILD[1 - side], 8, [NONE; 2]);
        e.branch(pc + 0x228, pc + 0x330, 2, child == NIL, [at, NONE]);
        if child == NIL {
            e.load(pc + 0x330, 1, self.va(node) + PARENT, 8, [NONE; 2]);
        } else {
            now = child;
            loop {
                let next = self.nodes[now as usize].child[side];
                at = e.load(pc + 0x234, 2, self.va(now) + CHILD[side], 8, [at, NONE]);
                e.branch(pc + 0x23c, pc + 0x230, 2, next != NIL, [at, NONE]);
                if next == NIL {
                    break;
                }
                now = next;
            }
        }
        e.store(pc + 0x334, 2, HEADER + CHILD[side], 8, NONE, NONE);
        self.ends[side] = now;
    }

    /// Removes `z` and rebalances (`_Rb_tree_rebalance_for_erase`).
    pub fn take_out<E: Emit>(&mut self, e: &mut E, site: u64, z: u32, sp: u64) {
        let code = Library::EraseRebalance.code();
        e.call_library(site, Library::EraseRebalance, 3, sp);
        let [left, right] = self.nodes[z as usize].child;
        let left_at = e.load(code + 0x4, 2, self.va(z) + CHILD[0], 8, [NONE; 2]);
        let right_at = e.load(code + 0xe, 3, self.va(z) + CHILD[1], 8, [NONE; 2]);
        e.branch(code + 0x15, code + 0x340, 2, left == NIL, [left_at, NONE]);
        let mut removed_is_black = self.is_black(z);
        let (mut x, mut above);
        if left != NIL && right != NIL {
            e.branch(code + 0x21, code + 0x1b0, 3, false, [right_at, NONE]);
            let (mut y, mut at) = (right, right_at);
            loop {
                let next = self.nodes[y as usize].child[0];
                at = e.load(code + 0x33, 2, self.va(y) + CHILD[0], 8, [at, NONE]);
                e.branch(code + 0x3a, code + 0x30, 2, next != NIL, [at, NONE]);
                if next == NIL {
                    break;
                }
                y = next;
            }
            x = self.nodes[y as usize].child[1];
            e.load(code + 0x3c, 1, self.va(y) + CHILD[1], 8, [at, NONE]);
            self.set_parent(e, code + 0x49, left, y);
            e.store(code + 0x50, 2, self.va(y) + CHILD[0], 8, NONE, NONE);
            self.nodes[y as usize].child[0] = left;
            e.branch(code + 0x57, code + 0x76, 2, y == right, [NONE; 2]);
            above = y;
            if y != right {
                above = self.nodes[y as usize].parent();
                e.load(code + 0x59, 1, self.va(y) + PARENT, 8, [NONE; 2]);
                e.branch(code + 0x60, code + 0x66, 2, x == NIL, [NONE; 2]);
                if x != NIL {
                    self.set_parent(e, code + 0x62, x, above);
                }
                e.store(code + 0x66, 1, self.va(above) + CHILD[0], 8, NONE, NONE);
                self.nodes[above as usize].child[0] = x;
                e.store(code + 0x6a, 1, self.va(y) + CHILD[1], 8, NONE, NONE);
                self.nodes[y as usize].child[1] = right;
                e.load(code + 0x6e, 1, self.va(z) + CHILD[1], 8, [NONE; 2]);
                self.set_parent(e, code + 0x72, right, y);
            }
            self.replace(e, code + 0x76, z, y);
            let parent = self.nodes[z as usize].parent();
            self.set_parent(e, code + 0x92, y, parent);
            // The two nodes exchange colours.
            removed_is_black = self.is_black(y);
            let red = self.nodes[z as usize].is_red();
            e.load(code + 0x96, 1, self.va(y), 4, [NONE; 2]);
            e.load(code + 0x99, 1, self.va(z), 4, [NONE; 2]);
            self.set_red(e, code + 0x9c, y, red);
            self.set_red(e, code + 0x9e, z, !removed_is_black);
        } else {
            x = if left == NIL { right } else { left };
            above = self.nodes[z as usize].parent();
            e.load(code + 0x1b0, 2, self.va(z) + PARENT, 8, [NONE; 2]);
            e.branch(code + 0x1b4, code + 0x1bb, 2, x == NIL, [NONE; 2]);
            if x != NIL {
                self.set_parent(e, code + 0x1b7, x, above);
            }
            self.replace(e, code + 0x1bb, z, x);
            self.move_end(e, code + 0x1d7, z, x, 0);
            e.load(code + 0x1e1, 1, self.va(z), 4, [NONE; 2]);
            self.move_end(e, code + 0x1e4, z, x, 1);
            e.compute(code + 0x1ee, 2, 1, [NONE; 2]);
        }
        e.branch(code + 0xa4, code + 0x2c6, 2, !removed_is_black, [NONE; 2]);
        if removed_is_black {
            self.make_up(e, &mut x, &mut above);
            e.branch(code + 0x2be, code + 0x2c6, 2, x == NIL, [NONE; 2]);
            if x != NIL {
                self.set_red(e, code + 0x2c0, x, false);
            }
        }
        e.ret(code + 0x2c9, site, 2, sp);
    }

    /// Rebalances: the paths through `x`, below `above`, have one black node less than the others.
    fn make_up<E: Emit>(&mut self, e: &mut E, x: &mut u32, above: &mut u32) {
        let code = Library::EraseRebalance.code();
        loop {
            let root = e.load(code + 0xaa, 1, HEADER + PARENT, 8, [NONE; 2]);
            e.branch(code + 0xae, code + 0x2b8, 1, *x == self.root, [root, NONE]);
            if *x == self.root {
                return;
            }
            e.branch(code + 0xb7, code + 0x380, 2, *x != NIL, [NONE; 2]);
            if *x != NIL {
                let colour = e.load(code + 0x109, 3, self.va(*x), 4, [NONE; 2]);
                let black = self.is_black(*x);
                e.branch(code + 0x10c, code + 0x2c0, 1, !black, [colour, NONE]);
                if !black {
                    return;
                }
                e.compute(code + 0x112, 2, 1, [NONE; 2]);
            }
            let parent = *above;
            let here = &self.nodes[parent as usize];
            let side = usize::from(here.child[0] != *x);
            let first = e.load(code + 0xbd, 1, self.va(parent) + CHILD[0], 8, [NONE; 2]);
            e.branch(code + 0xc4, code + 0x121, 2, side == 0, [first, NONE]);
            let mut w = here.child[1 - side];
            let mut w_at: Value = first;
            if side == 0 {
                w_at = e.load(code + 0x121, 1, self.va(parent) + CHILD[1], 8, [NONE; 2]);
            }
            let pc = code + if side == 0 { 0x125 } else { 0xc6 };
            let colour = e.load(pc, 1, self.va(w), 4, [w_at, NONE]);
            let red = !self.is_black(w);
            e.branch(pc + 0x4, code + 0x200, 2, red, [colour, NONE]);
            if red {
                self.set_red(e, code + 0x204, w, false);
                self.set_red(e, code + 0x20a, parent, true);
                rotate(self, e, code + 0x210, parent, side);
                w = self.nodes[parent as usize].child[1 - side];
                let at = self.va(parent) + CHILD[1 - side];
                w_at = e.load(code + 0x249, 2, at, 8, [NONE; 2]);
            }
            // The sibling's children: the outer one, then the inner one.
            let mut both = true;
            for (i, side) in [1 - side, side].into_iter().enumerate() {
                let pc = pc + 0xa + 0x12 * i as u64;
                let child = self.nodes[w as usize].child[side];
                let at = e.load(pc, 1, self.va(w) + CHILD[side], 8, [w_at, NONE]);
                e.branch(pc + 0x7, pc + 0x12, 2, child == NIL, [at, NONE]);
                let black = self.is_black(child);
                if child != NIL {
                    let colour = e.load(pc + 0x9, 1, self.va(child), 4, [at, NONE]);
                    e.branch(pc + 0xc, code + 0x250, 1, !black, [colour, NONE]);
                }
                if !black {
                    both = false;
                    break;
                }
            }
            if both {
                self.set_red(e, code + 0xf5, w, true);
                *x = parent;
                *above = self.nodes[parent as usize].parent();
                e.load(code + 0xfb, 1, self.va(parent) + PARENT, 8, [NONE; 2]);
                continue;
            }
            let outer = self.nodes[w as usize].child[1 - side];
            if self.is_black(outer) {
                let inner = self.nodes[w as usize].child[side];
                self.set_red(e, code + 0x415, inner, false);
                self.set_red(e, code + 0x41b, w, true);
                rotate(self, e, code + 0x425, w, 1 - side);
                w = self.nodes[parent as usize].child[1 - side];
                let at = self.va(parent) + CHILD[1 - side];
                e.load(code + 0x456, 1, at, 8, [NONE; 2]);
            }
            let red = self.nodes[parent as usize].is_red();
            e.load(code + 0x268, 1, self.va(parent), 4, [NONE; 2]);
            self.set_red(e, code + 0x26f, w, red);
            self.set_red(e, code + 0x272, parent, false);
            let outer = self.nodes[w as usize].child[1 - side];
            if outer != NIL {
                self.set_red(e, code + 0x278, outer, false);
            }
            rotate(self, e, code + 0x27f, parent, side);
            return;
        }
    }

    /// The successor of `node`, or the header (`_Rb_tree_increment`).
    pub fn increment<E: Emit>(&self, e: &mut E, site: u64, node: u32, sp: u64) {
        let code = Library::Increment.code();
        e.call_library(site, Library::Increment, 3, sp);
        let mut y = self.nodes[node as usize].child[1];
        let mut at = e.load(code + 0x4, 2, self.va(node) + CHILD[1], 8, [NONE; 2]);
        e.branch(code + 0xb, code + 0x20, 2, y == NIL, [at, NONE]);
        if y != NIL {
            loop {
                let next = self.nodes[y as usize].child[0];
                at = e.load(code + 0x13, 2, self.va(y) + CHILD[0], 8, [at, NONE]);
                e.branch(code + 0x1a, code + 0x10, 2, next != NIL, [at, NONE]);
                if next == NIL {
                    break;
                }
                y = next;
            }
        } else {
            let mut x = node;
            loop {
                y = self.nodes[x as usize].parent();
                at = e.load(code + 0x33, 2, self.va(x) + PARENT, 8, [at, NONE]);
                let right = e.load(code + 0x37, 0, self.va(y) + CHILD[1], 8, [at, NONE]);
                let climbs = y != NIL && self.nodes[y as usize].child[1] == x;
                e.branch(code + 0x3b, code + 0x30, 2, climbs, [right, NONE]);
                if !climbs {
                    break;
                }
                x = y;
            }
        }
        e.ret(code + 0x1f, site, 2, sp);
    }
}
