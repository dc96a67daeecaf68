//! A red-black tree in libstdc++'s layout, with the tree functions of its shared library: decrement, and
//! insertion with rotations and recolouring.
//!
//! gcc 12.2, `_Rb_tree_insert_and_rebalance`:
//!
//! ```text
//! 00 endbr64 ; mov parent ; mov ; left = right = 0 ; red ; test ; 24 je 50
//! 26 mov %rsi,0x10(%rdx) ; … 3a cmp leftmost ; 3e jne 65      50 the same on the right
//! 9e mov 8(%rsi) ; mov (%rdx) ; a6 jne 14b ; ac mov 8(%rdx) ; mov 0x10(%rax) ; b7 jne 70
//! b9 mov 0x18(%rax) ; c0 je ; mov (%r9) ; cc jne ; three colours ; 8f two moves ; 98 je 14b
//! e8 cmp %rsi,0x10(%rdx) ; ec je 1d0 (rotate the parent) ; f2 colours, rotate the grandparent
//! ```

mod erase;

use pagewalk_stream::flags::TAKEN;

use super::emit::{Emit, Library};
use super::globals::MAP;
use super::index::Place;
use super::records::Records;
use crate::thread::{NONE, Value};

/// No node. As a parent, it means the header.
pub(super) const NIL: u32 = u32::MAX >> 1;
const RED: u32 = 1 << 31;
/// Address of the header. Its parent field points to the root.
pub(super) const HEADER: u64 = MAP + 8;

/// Fields of a node, as offsets in it.
pub(super) const PARENT: u64 = 8;
pub(super) const CHILD: [u64; 2] = [16, 24];

/// A node, which is also a record.
pub(super) struct Node {
    pub number: u64,
    pub child: [u32; 2],
    /// Includes the [`RED`] bit.
    parent: u32,
    pub at: Place,
    pub key: Place,
    pub value: Place,
}

impl Node {
    /// A node outside the tree: key `number`, address `at`, text at `key`.
    pub fn new(number: u64, at: Place, key: Place) -> Self {
        Node {
            number,
            child: [NIL; 2],
            parent: NIL,
            at,
            key,
            value: Place::default(),
        }
    }
    /// Number of the parent.
    pub fn parent(&self) -> u32 {
        self.parent & !RED
    }
    /// True if the node is red.
    pub fn is_red(&self) -> bool {
        self.parent & RED != 0
    }
    /// Changes the parent and keeps the colour.
    pub fn set_parent(&mut self, parent: u32) {
        self.parent = self.parent & RED | parent;
    }
    /// Changes the colour and keeps the parent.
    pub fn set_red(&mut self, red: bool) {
        self.parent = self.parent() | if red { RED } else { 0 };
    }
}

/// The nodes of a map and their links.
pub(super) struct Tree {
    pub nodes: Records<Node>,
    pub root: u32,
    /// Leftmost and rightmost.
    pub ends: [u32; 2],
}

impl Default for Tree {
    fn default() -> Self {
        Tree {
            nodes: Records::default(),
            root: NIL,
            ends: [NIL; 2],
        }
    }
}

impl Tree {
    /// Address of a node, or of the header for [`NIL`].
    pub fn va(&self, node: u32) -> u64 {
        if node == NIL {
            HEADER
        } else {
            self.nodes[node as usize].at.va()
        }
    }
}

/// The node before `node`, which is not the first (`_Rb_tree_decrement`).
pub(super) fn decrement<E: Emit>(
    tree: &Tree,
    e: &mut E,
    site: u64,
    node: u32,
    mut at: Value,
    sp: u64,
) -> (u32, Value) {
    let code = Library::Rebalance.code() + 0x300;
    e.call_library(site, Library::Rebalance, 2, sp);
    let red = e.load(code + 0x4, 2, tree.va(node), 4, [at, NONE]);
    e.branch(
        code + 0x8,
        code + 0x40,
        2,
        !tree.nodes[node as usize].is_red(),
        [red, NONE],
    );
    let mut y = tree.nodes[node as usize].child[0];
    at = e.load(code + 0x10, 1, tree.va(node) + CHILD[0], 8, [at, NONE]);
    e.branch(code + 0x17, code + 0x50, 2, y == NIL, [at, NONE]);
    if y != NIL {
        loop {
            let next = tree.nodes[y as usize].child[1];
            let below = e.load(code + 0x20, 2, tree.va(y) + CHILD[1], 8, [at, NONE]);
            e.branch(code + 0x27, code + 0x20, 2, next != NIL, [below, NONE]);
            if next == NIL {
                break;
            }
            (y, at) = (next, below);
        }
    } else {
        let mut x = node;
        loop {
            y = tree.nodes[x as usize].parent();
            at = e.load(code + 0x50, 2, tree.va(x) + PARENT, 8, [at, NONE]);
            let left = e.load(code + 0x57, 1, tree.va(y) + CHILD[0], 8, [at, NONE]);
            let climbs = tree.nodes[y as usize].child[0] == x;
            e.branch(code + 0x5b, code + 0x50, 1, climbs, [left, NONE]);
            if !climbs {
                break;
            }
            x = y;
        }
    }
    e.ret(code + 0x2c, site, 2, sp);
    (y, at)
}

/// Links `id` under `parent` on a side (0 left, 1 right) and rebalances.
pub(super) fn insert<E: Emit>(
    tree: &mut Tree,
    e: &mut E,
    site: u64,
    id: u32,
    parent: u32,
    side: usize,
    sp: u64,
) {
    let code = Library::Rebalance.code();
    e.call_library(site, Library::Rebalance, 4, sp);
    let (va, above) = (tree.va(id), tree.va(parent));
    e.store(code + 0x4, 2, va + PARENT, 8, NONE, NONE);
    e.store(code + 0xb, 2, va + CHILD[0], 8, NONE, NONE);
    e.store(code + 0x13, 1, va + CHILD[1], 8, NONE, NONE);
    e.store(code + 0x1b, 1, va, 4, NONE, NONE);
    e.branch(code + 0x24, code + 0x50, 2, side == 1, [NONE; 2]);
    e.store(code + 0x26, 1, above + CHILD[side], 8, NONE, NONE);
    tree.nodes[id as usize].set_parent(parent);
    tree.nodes[id as usize].set_red(true);
    if parent == NIL {
        // The first node: it becomes root, leftmost and rightmost.
        e.branch(code + 0x2d, code + 0x2a8, 2, true, [NONE; 2]);
        e.store(code + 0x2a8, 1, HEADER + PARENT, 8, NONE, NONE);
        e.store(code + 0x2ac, 1, HEADER + CHILD[1], 8, NONE, NONE);
        tree.root = id;
        tree.ends = [id; 2];
    } else {
        tree.nodes[parent as usize].child[side] = id;
        let end = e.load(code + 0x3a, 3, HEADER + CHILD[side], 8, [NONE; 2]);
        let is_end = tree.ends[side] == parent;
        e.branch(code + 0x3e, code + 0x65, 1, !is_end, [end, NONE]);
        if is_end {
            e.store(code + 0x40, 1, HEADER + CHILD[side], 8, NONE, NONE);
            tree.ends[side] = id;
        }
        e.load(code + 0x5e, 2, HEADER + PARENT, 8, [NONE; 2]);
    }
    rebalance(tree, e, id);
    e.store(code + 0x14b, 1, tree.va(tree.root), 4, NONE, NONE);
    let root = tree.root as usize;
    tree.nodes[root].set_red(false);
    e.ret(code + 0x151, site, 1, sp);
}

fn rebalance<E: Emit>(tree: &mut Tree, e: &mut E, mut x: u32) {
    let code = Library::Rebalance.code();
    loop {
        e.branch(code + 0x68, code + 0x9e, 2, x != tree.root, [NONE; 2]);
        if x == tree.root {
            return;
        }
        let parent = tree.nodes[x as usize].parent();
        let up = e.load(code + 0x9e, 1, tree.va(x) + PARENT, 8, [NONE; 2]);
        let colour = e.load(code + 0xa2, 1, tree.va(parent), 4, [up, NONE]);
        let red = tree.nodes[parent as usize].is_red();
        e.branch(code + 0xa6, code + 0x14b, 2, !red, [colour, NONE]);
        if !red {
            return;
        }
        let grand = tree.nodes[parent as usize].parent();
        let grand_at = e.load(code + 0xac, 1, tree.va(parent) + PARENT, 8, [up, NONE]);
        let left = e.load(
            code + 0xb0,
            1,
            tree.va(grand) + CHILD[0],
            8,
            [grand_at, NONE],
        );
        let side = usize::from(tree.nodes[grand as usize].child[0] != parent);
        e.branch(code + 0xb7, code + 0x70, 2, side == 1, [left, NONE]);
        let uncle = tree.nodes[grand as usize].child[1 - side];
        let mut uncle_at = left;
        if side == 0 {
            uncle_at = e.load(
                code + 0xb9,
                1,
                tree.va(grand) + CHILD[1],
                8,
                [grand_at, NONE],
            );
        }
        let pc = code + if side == 0 { 0xc0 } else { 0x73 };
        e.branch(pc, code + 0x158, 2, uncle == NIL, [uncle_at, NONE]);
        let mut uncle_is_red = false;
        if uncle != NIL {
            uncle_is_red = tree.nodes[uncle as usize].is_red();
            let colour = e.load(pc + 5, 1, tree.va(uncle), 4, [uncle_at, NONE]);
            e.branch(pc + 11, code + 0x158, 2, !uncle_is_red, [colour, NONE]);
        }
        if uncle_is_red {
            for (node, red) in [(parent, false), (uncle, false), (grand, true)] {
                e.store(
                    code + 0x7d + u64::from(red),
                    1,
                    tree.va(node),
                    4,
                    uncle_at,
                    NONE,
                );
                tree.nodes[node as usize].set_red(red);
            }
            e.compute(code + 0x8f, 2, 1, [NONE; 2]);
            x = grand;
            continue;
        }
        let inner = e.load(
            code + 0xe8,
            1,
            tree.va(parent) + CHILD[1 - side],
            8,
            [up, NONE],
        );
        let crooked = tree.nodes[parent as usize].child[1 - side] == x;
        e.branch(code + 0xec, code + 0x1d0, 1, crooked, [inner, NONE]);
        let mut top = parent;
        if crooked {
            rotate(tree, e, code + 0x1d0, parent, side);
            e.jump(code + 0x215, code + 0xf2, 3, TAKEN, [NONE; 2]);
            (x, top) = (parent, x);
        }
        e.store(code + 0xf2, 1, tree.va(top), 4, NONE, NONE);
        e.store(code + 0xfc, 1, tree.va(grand), 4, NONE, NONE);
        tree.nodes[top as usize].set_red(false);
        tree.nodes[grand as usize].set_red(true);
        rotate(tree, e, code + 0x100, grand, 1 - side);
        e.compute(code + 0x13f, 1, 1, [NONE; 2]);
    }
}

/// Rotation: the child of `x` on the other side replaces `x`, which becomes its child on `side`.
fn rotate<E: Emit>(tree: &mut Tree, e: &mut E, pc: u64, x: u32, side: usize) {
    let y = tree.nodes[x as usize].child[1 - side];
    let inner = tree.nodes[y as usize].child[side];
    let above = tree.nodes[x as usize].parent();
    let (x_va, y_va) = (tree.va(x), tree.va(y));
    let inner_at = e.load(pc, 1, y_va + CHILD[side], 8, [NONE; 2]);
    e.store(pc + 0x4, 1, x_va + CHILD[1 - side], 8, NONE, inner_at);
    e.branch(pc + 0xa, pc + 0x10, 2, inner == NIL, [inner_at, NONE]);
    tree.nodes[x as usize].child[1 - side] = inner;
    if inner != NIL {
        e.store(pc + 0xc, 1, tree.va(inner) + PARENT, 8, inner_at, NONE);
        tree.nodes[inner as usize].set_parent(x);
    }
    let up = e.load(pc + 0x10, 1, x_va + PARENT, 8, [NONE; 2]);
    e.store(pc + 0x14, 1, y_va + PARENT, 8, NONE, up);
    tree.nodes[y as usize].set_parent(above);
    let root = e.load(pc + 0x18, 1, HEADER + PARENT, 8, [NONE; 2]);
    e.branch(pc + 0x1c, pc + 0xb0, 1, above == NIL, [root, NONE]);
    if above == NIL {
        e.store(pc + 0xb0, 1, HEADER + PARENT, 8, NONE, NONE);
        e.jump(pc + 0xb4, pc + 0x33, 1, TAKEN, [NONE; 2]);
        tree.root = y;
    } else {
        let hangs = usize::from(tree.nodes[above as usize].child[1] == x);
        let mine = e.load(
            pc + 0x22,
            1,
            tree.va(above) + CHILD[1 - side],
            8,
            [up, NONE],
        );
        e.branch(pc + 0x26, pc + 0xc0, 1, hangs == 1 - side, [mine, NONE]);
        e.store(pc + 0x2c, 1, tree.va(above) + CHILD[hangs], 8, up, NONE);
        tree.nodes[above as usize].child[hangs] = y;
    }
    e.store(pc + 0x33, 1, y_va + CHILD[side], 8, NONE, NONE);
    e.store(pc + 0x37, 1, x_va + PARENT, 8, NONE, NONE);
    e.load(pc + 0x3b, 1, HEADER + PARENT, 8, [NONE; 2]);
    tree.nodes[y as usize].child[side] = x;
    tree.nodes[x as usize].set_parent(y);
}
