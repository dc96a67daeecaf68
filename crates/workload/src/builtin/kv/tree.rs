//! What libstdc++ keeps in its shared library for trees: the step to the node
//! before, and insertion with rotations and recolouring.
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

use pagewalk_stream::flags::TAKEN;

use super::super::thread::{NONE, Value};
use super::emit::{Emit, Library};
use super::map::{CHILD, HEADER, Map, NIL, PARENT};

/// The node before `node`, which is not the first (`_Rb_tree_decrement`).
pub(super) fn decrement<E: Emit>(
    map: &Map,
    e: &mut E,
    site: u64,
    node: u32,
    mut at: Value,
    sp: u64,
) -> (u32, Value) {
    let code = Library::Rebalance.code() + 0x300;
    e.call_library(site, Library::Rebalance, 2, sp);
    let red = e.load(code + 0x4, 2, map.va(node), 4, [at, NONE]);
    e.branch(
        code + 0x8,
        code + 0x40,
        2,
        !map.nodes[node as usize].is_red(),
        [red, NONE],
    );
    let mut y = map.nodes[node as usize].child[0];
    at = e.load(code + 0x10, 1, map.va(node) + CHILD[0], 8, [at, NONE]);
    e.branch(code + 0x17, code + 0x50, 2, y == NIL, [at, NONE]);
    if y != NIL {
        loop {
            let next = map.nodes[y as usize].child[1];
            let below = e.load(code + 0x20, 2, map.va(y) + CHILD[1], 8, [at, NONE]);
            e.branch(code + 0x27, code + 0x20, 2, next != NIL, [below, NONE]);
            if next == NIL {
                break;
            }
            (y, at) = (next, below);
        }
    } else {
        let mut x = node;
        loop {
            y = map.nodes[x as usize].parent();
            at = e.load(code + 0x50, 2, map.va(x) + PARENT, 8, [at, NONE]);
            let left = e.load(code + 0x57, 1, map.va(y) + CHILD[0], 8, [at, NONE]);
            let climbs = map.nodes[y as usize].child[0] == x;
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

/// Hangs `id` under `parent` on a side (0 left, 1 right), and restores the rules.
pub(super) fn insert<E: Emit>(
    map: &mut Map,
    e: &mut E,
    site: u64,
    id: u32,
    parent: u32,
    side: usize,
    sp: u64,
) {
    let code = Library::Rebalance.code();
    e.call_library(site, Library::Rebalance, 4, sp);
    let (va, above) = (map.va(id), map.va(parent));
    e.store(code + 0x4, 2, va + PARENT, 8, NONE, NONE);
    e.store(code + 0xb, 2, va + CHILD[0], 8, NONE, NONE);
    e.store(code + 0x13, 1, va + CHILD[1], 8, NONE, NONE);
    e.store(code + 0x1b, 1, va, 4, NONE, NONE);
    e.branch(code + 0x24, code + 0x50, 2, side == 1, [NONE; 2]);
    e.store(code + 0x26, 1, above + CHILD[side], 8, NONE, NONE);
    map.nodes[id as usize].set_parent(parent);
    map.nodes[id as usize].set_red(true);
    if parent == NIL {
        // The first of all: root, leftmost and rightmost.
        e.branch(code + 0x2d, code + 0x2a8, 2, true, [NONE; 2]);
        e.store(code + 0x2a8, 1, HEADER + PARENT, 8, NONE, NONE);
        e.store(code + 0x2ac, 1, HEADER + CHILD[1], 8, NONE, NONE);
        map.root = id;
        map.ends = [id; 2];
    } else {
        map.nodes[parent as usize].child[side] = id;
        let end = e.load(code + 0x3a, 3, HEADER + CHILD[side], 8, [NONE; 2]);
        let is_end = map.ends[side] == parent;
        e.branch(code + 0x3e, code + 0x65, 1, !is_end, [end, NONE]);
        if is_end {
            e.store(code + 0x40, 1, HEADER + CHILD[side], 8, NONE, NONE);
            map.ends[side] = id;
        }
        e.load(code + 0x5e, 2, HEADER + PARENT, 8, [NONE; 2]);
    }
    rebalance(map, e, id);
    e.store(code + 0x14b, 1, map.va(map.root), 4, NONE, NONE);
    let root = map.root as usize;
    map.nodes[root].set_red(false);
    e.ret(code + 0x151, site, 1, sp);
}

fn rebalance<E: Emit>(map: &mut Map, e: &mut E, mut x: u32) {
    let code = Library::Rebalance.code();
    loop {
        e.branch(code + 0x68, code + 0x9e, 2, x != map.root, [NONE; 2]);
        if x == map.root {
            return;
        }
        let parent = map.nodes[x as usize].parent();
        let up = e.load(code + 0x9e, 1, map.va(x) + PARENT, 8, [NONE; 2]);
        let colour = e.load(code + 0xa2, 1, map.va(parent), 4, [up, NONE]);
        let red = map.nodes[parent as usize].is_red();
        e.branch(code + 0xa6, code + 0x14b, 2, !red, [colour, NONE]);
        if !red {
            return;
        }
        let grand = map.nodes[parent as usize].parent();
        let grand_at = e.load(code + 0xac, 1, map.va(parent) + PARENT, 8, [up, NONE]);
        let left = e.load(
            code + 0xb0,
            1,
            map.va(grand) + CHILD[0],
            8,
            [grand_at, NONE],
        );
        let side = usize::from(map.nodes[grand as usize].child[0] != parent);
        e.branch(code + 0xb7, code + 0x70, 2, side == 1, [left, NONE]);
        let uncle = map.nodes[grand as usize].child[1 - side];
        let mut uncle_at = left;
        if side == 0 {
            uncle_at = e.load(
                code + 0xb9,
                1,
                map.va(grand) + CHILD[1],
                8,
                [grand_at, NONE],
            );
        }
        let pc = code + if side == 0 { 0xc0 } else { 0x73 };
        e.branch(pc, code + 0x158, 2, uncle == NIL, [uncle_at, NONE]);
        let mut uncle_is_red = false;
        if uncle != NIL {
            uncle_is_red = map.nodes[uncle as usize].is_red();
            let colour = e.load(pc + 5, 1, map.va(uncle), 4, [uncle_at, NONE]);
            e.branch(pc + 11, code + 0x158, 2, !uncle_is_red, [colour, NONE]);
        }
        if uncle_is_red {
            for (node, red) in [(parent, false), (uncle, false), (grand, true)] {
                e.store(
                    code + 0x7d + u64::from(red),
                    1,
                    map.va(node),
                    4,
                    uncle_at,
                    NONE,
                );
                map.nodes[node as usize].set_red(red);
            }
            e.compute(code + 0x8f, 2, 1, [NONE; 2]);
            x = grand;
            continue;
        }
        let inner = e.load(
            code + 0xe8,
            1,
            map.va(parent) + CHILD[1 - side],
            8,
            [up, NONE],
        );
        let crooked = map.nodes[parent as usize].child[1 - side] == x;
        e.branch(code + 0xec, code + 0x1d0, 1, crooked, [inner, NONE]);
        let mut top = parent;
        if crooked {
            rotate(map, e, code + 0x1d0, parent, side);
            e.jump(code + 0x215, code + 0xf2, 3, TAKEN, [NONE; 2]);
            (x, top) = (parent, x);
        }
        e.store(code + 0xf2, 1, map.va(top), 4, NONE, NONE);
        e.store(code + 0xfc, 1, map.va(grand), 4, NONE, NONE);
        map.nodes[top as usize].set_red(false);
        map.nodes[grand as usize].set_red(true);
        rotate(map, e, code + 0x100, grand, 1 - side);
        e.compute(code + 0x13f, 1, 1, [NONE; 2]);
    }
}

/// The child of `x` on the other side takes its place, and `x` goes down on `side`.
fn rotate<E: Emit>(map: &mut Map, e: &mut E, pc: u64, x: u32, side: usize) {
    let y = map.nodes[x as usize].child[1 - side];
    let inner = map.nodes[y as usize].child[side];
    let above = map.nodes[x as usize].parent();
    let (x_va, y_va) = (map.va(x), map.va(y));
    let inner_at = e.load(pc, 1, y_va + CHILD[side], 8, [NONE; 2]);
    e.store(pc + 0x4, 1, x_va + CHILD[1 - side], 8, NONE, inner_at);
    e.branch(pc + 0xa, pc + 0x10, 2, inner == NIL, [inner_at, NONE]);
    map.nodes[x as usize].child[1 - side] = inner;
    if inner != NIL {
        e.store(pc + 0xc, 1, map.va(inner) + PARENT, 8, inner_at, NONE);
        map.nodes[inner as usize].set_parent(x);
    }
    let up = e.load(pc + 0x10, 1, x_va + PARENT, 8, [NONE; 2]);
    e.store(pc + 0x14, 1, y_va + PARENT, 8, NONE, up);
    map.nodes[y as usize].set_parent(above);
    let root = e.load(pc + 0x18, 1, HEADER + PARENT, 8, [NONE; 2]);
    e.branch(pc + 0x1c, pc + 0xb0, 1, above == NIL, [root, NONE]);
    if above == NIL {
        e.store(pc + 0xb0, 1, HEADER + PARENT, 8, NONE, NONE);
        e.jump(pc + 0xb4, pc + 0x33, 1, TAKEN, [NONE; 2]);
        map.root = y;
    } else {
        let hangs = usize::from(map.nodes[above as usize].child[1] == x);
        let mine = e.load(pc + 0x22, 1, map.va(above) + CHILD[1 - side], 8, [up, NONE]);
        e.branch(pc + 0x26, pc + 0xc0, 1, hangs == 1 - side, [mine, NONE]);
        e.store(pc + 0x2c, 1, map.va(above) + CHILD[hangs], 8, up, NONE);
        map.nodes[above as usize].child[hangs] = y;
    }
    e.store(pc + 0x33, 1, y_va + CHILD[side], 8, NONE, NONE);
    e.store(pc + 0x37, 1, x_va + PARENT, 8, NONE, NONE);
    e.load(pc + 0x3b, 1, HEADER + PARENT, 8, [NONE; 2]);
    map.nodes[y as usize].child[side] = x;
    map.nodes[x as usize].set_parent(y);
}
