//! Matching as MUMmer 3 does it, instruction by instruction as gcc 12.2 -O2 makes
//! them; program counters are those of its listing of `scanprefixfromnodestree`,
//! and of `rescanstree` at 0x800, `linklocstree` and `scanprefixstree` at 0xc00.
//!
//! ```text
//! 207 mov ; and ; test ; 210 jne 1d8              a child: leaf or node
//! 1d8 lea ; 1dc mov sentinel ; lea ; cmp ; 1e7 je ; 1e9 movzbl text ; cmp ; 1ef jb
//!     1f1 mov leaftab ; lea ; 1f9 je 485 ; 1ff mov (%r9) brother ; test ; 205 js 252
//! 212 lea ; 217 mov chainstart ; cmp ; setae ; test ; setne ; and ; 22b jne
//!     22d cmpq (%rsi) ; 231 js 2b0 ; 233 mov 0x18(%rsi) head position
//!     2b0 mov 0x10(%rsi) ; lea ; 2b8 mov 0x18(%rsi,%rdx,8) ; sub ; 2c0 jmp 237
//! 237 lea ; add ; 23e cmp text ; 241 jb ; 243 je 473 ; 249 mov 8(%rsi) brother ; test ; 250 jns 207
//! 473 test ; 476 je 2dd ; 2dd cmpq (%rsi) ; 2e1 mov 0x10(%rsi) depth ; 2e5 jns 15d
//!     2eb lea ; 2ef add 0x10(%rsi,%rax,8) ; mov ; sub ; test ; 2fd je 303
//! 303 mov ; lea ; lea ; lea ; cmp ; 318 jb ; mov ; 321 cmp ; 326 jb ; 3 x mov ; 33b jmp 35d
//! 35d movzbl text ; 361 cmp query ; 364 je 340 ; lea ; add ; cmp ; 34b jb ; cmp ; 354 jb
//! ```

mod link;
mod read;

use super::tree::{Child, Tree};
use crate::thread::{NONE, Thread, Value};

/// Where things lie.
#[derive(Clone, Copy)]
pub struct Addresses {
    pub text: u64,
    pub query: u64,
    pub leaves: u64,
    pub nodes: u64,
    pub root_children: u64,
    /// The record that describes the tree.
    pub record: u64,
}

/// How far a part of the query is in the tree (`Location`).
#[derive(Clone, Copy)]
struct Location {
    /// A place where the string matched so far stands, and its length.
    start: u32,
    length: u32,
    /// The node above, when inside of an edge; the edge's first letter in the text.
    previous: u32,
    edge_start: u32,
    /// Length of the edge, and of the rest of it.
    edge: u32,
    remain: u32,
    next: Child,
}

/// A match that is as long as it can be, and unique in the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Match {
    /// In text and query.
    pub text: u32,
    pub query: u32,
    pub length: u32,
}

/// A matcher at work.
pub struct Matcher<'a> {
    pub tree: &'a Tree,
    pub places: Addresses,
    pub query: &'a [u8],
    /// Shortest match of interest.
    pub least: u32,
}

/// Where the stack frame of a function begins below the caller's.
const FRAME: u64 = 0x80;

impl Matcher<'_> {
    /// Finds all matches (`findmumcandidates`), each given to `found`.
    pub async fn run(&self, t: &mut Thread, mut found: impl FnMut(Match)) {
        let mut at = Location {
            start: 0,
            length: 0,
            previous: 0,
            edge_start: 0,
            edge: 0,
            remain: 0,
            next: Child::Node(0),
        };
        let mut left = self.scan_from_node(t, &mut at, 0, 0, NONE).await;
        let mut suffix = 0;
        while let Some(place) = left {
            self.check(t, &at, suffix, &mut found);
            t.branch(0xd20, 0xd80, 3, at.length == 0, [NONE; 2]);
            if at.length == 0 {
                left = self.scan_from_node(t, &mut at, 0, place + 1, NONE).await;
            } else {
                let value = self.link(t, &mut at).await;
                left = self.scan(t, &mut at, place, value).await;
            }
            suffix += 1;
            t.branch(0xd60, 0xd00, 3, left.is_some(), [NONE; 2]);
        }
        while at.length >= self.least {
            self.check(t, &at, suffix, &mut found);
            self.link(t, &mut at).await;
            suffix += 1;
        }
    }

    /// Whether a match is to be reported (`checkiflocationisMUMcand`).
    fn check(&self, t: &mut Thread, at: &Location, suffix: usize, found: &mut impl FnMut(Match)) {
        let location = t.stack - 0x60;
        let length = t.load(0xd00, 1, location + 8, 8, [NONE; 2]);
        let long = at.length >= self.least;
        t.branch(0xd04, 0xd20, 2, !long, [length.plus(1), NONE]);
        if !long {
            return;
        }
        let remain = t.load(0xd08, 1, location + 0x28, 8, [NONE; 2]);
        let unique = at.remain > 0;
        t.branch(0xd0c, 0xd20, 2, !unique, [remain.plus(1), NONE]);
        if !unique {
            return;
        }
        let kind = t.load(0xd0e, 1, location + 0x30, 4, [NONE; 2]);
        let leaf = matches!(at.next, Child::Leaf(_));
        t.branch(0xd12, 0xd20, 2, !leaf, [kind.plus(1), NONE]);
        if !leaf {
            return;
        }
        let start = t.load(0xd13, 3, location, 8, [NONE; 2]);
        let first = suffix == 0 || at.start == 0;
        let mut maximal = true;
        if !first {
            let before = self.places.text + u64::from(at.start) - 1;
            let left = t.load(0xd16, 3, before, 1, [start, NONE]);
            let own = t.load(
                0xd19,
                2,
                self.places.query + suffix as u64 - 1,
                1,
                [NONE; 2],
            );
            maximal = self.tree.text[at.start as usize - 1] != self.query[suffix - 1];
            t.branch(0xd1c, 0xd20, 1, !maximal, [left.plus(1), own]);
        }
        if maximal {
            found(Match {
                text: at.start,
                query: suffix as u32,
                length: at.length,
            });
        }
    }

    /// Writes fields of the location that the caller holds.
    fn note(&self, t: &mut Thread, pc: u64, fields: &[u64], data: Value) {
        let location = t.stack - 0x60;
        for (k, field) in fields.iter().enumerate() {
            let insns = 1 + (k % 2) as u16;
            t.store(pc + 4 * k as u64, insns, location + field, 8, NONE, data);
        }
    }

    fn enter(&self, t: &mut Thread, from: u64, to: u64) {
        t.call(from, to, 4, FRAME - 8);
        for k in 0..6 {
            t.store(
                to + 2 * k,
                1 + u16::from(k == 5),
                t.stack - FRAME - 8 * k,
                8,
                NONE,
                NONE,
            );
        }
        t.load(to + 6, 2, self.places.record + 0x78, 8, [NONE; 2]);
        t.store(to + 0x14, 1, t.stack - FRAME - 0x30, 8, NONE, NONE);
        t.store(to + 0x19, 1, t.stack - FRAME - 0x28, 8, NONE, NONE);
    }

    fn leave(&self, t: &mut Thread, pc: u64, to: u64) {
        for k in 0..7 {
            t.load(pc + 2 * k, 1, t.stack - FRAME - 8 * k, 8, [NONE; 2]);
        }
        t.ret(pc + 0xf, to, 1, FRAME - 8);
    }

    /// Goes down from `node` as far as the query from `left` on allows: where it
    /// differs, or nothing when it is used up (`scanprefixfromnodestree`).
    async fn scan_from_node(
        &self,
        t: &mut Thread,
        at: &mut Location,
        node: u32,
        left: usize,
        mut value: Value,
    ) -> Option<usize> {
        self.enter(t, 0xd40, 0);
        t.branch(0x21, 0x3a0, 2, node == 0, [value, NONE]);
        let mut node = node;
        if node != 0 {
            self.both(t, 0x27, node, value);
        }
        let this = self.tree.nodes[node as usize];
        (at.start, at.length) = (this.head, this.depth);
        (at.remain, at.next) = (0, Child::Node(node));
        self.note(t, 0x6f, &[0x38, 0x30, 0, 8, 0x28], NONE);
        let mut left = left;
        let ended = loop {
            let out = left >= self.query.len();
            t.branch(0x9d, 0x591, 2, out, [NONE; 2]);
            if out {
                break None;
            }
            let letter = self.query[left];
            let own = t.load(0xbc, 4, self.places.query + left as u64, 1, [NONE; 2]);
            t.branch(0xc3, 0x1bf, 2, node != 0, [value, NONE]);
            let found = if node == 0 {
                // The root has a table of its children.
                let table = t.load(0xc9, 1, self.places.record + 0x10, 8, [NONE; 2]);
                let va = self.places.root_children + 8 * u64::from(letter);
                let reference = t.load(0xcd, 1, va, 8, [table, own]);
                let child = self.tree.find(0, letter);
                t.branch(0xd5, 0x252, 2, child.is_none(), [reference.plus(1), NONE]);
                match child {
                    Some(child) => {
                        let leaf = matches!(child, Child::Leaf(_));
                        t.branch(0xec, 0x60e, 5, leaf, [reference.plus(1), NONE]);
                        let pointer = reference.plus(3);
                        let read = match child {
                            Child::Node(inner) => self.head(t, 0xf2, inner, pointer),
                            Child::Leaf(_) => pointer,
                        };
                        Some((child, pointer, read))
                    }
                    None => None,
                }
            } else {
                self.child(t, 0, (node, value), letter, own)
            };
            let Some((child, pointer, read)) = found else {
                break Some(left);
            };
            let depth = self.tree.nodes[node as usize].depth;
            at.edge_start = self.tree.start(child) + depth;
            at.start = self.tree.start(child);
            at.next = child;
            let edge = match child {
                Child::Leaf(leaf) => self.tree.text.len() as u32 - depth - leaf,
                Child::Node(inner) => self.tree.nodes[inner as usize].depth - depth,
            };
            match child {
                Child::Leaf(_) => {
                    let most = edge - 2 + u32::from(edge < 2);
                    let more = self.common(t, 0x485, left + 1, at.edge_start + 1, most, read);
                    let length = 1 + more.await;
                    at.previous = node;
                    (at.length, at.edge, at.remain) = (depth + length, edge, edge - length);
                    t.load(0x4dc, 2, t.stack - 0x60 + 0x38, 8, [NONE; 2]);
                    self.note(t, 0x4ed, &[0x10, 0, 0x30, 0x38, 0x20, 0x28, 8], read);
                    left += length as usize;
                    let out = left >= self.query.len();
                    t.branch(0x52c, 0x591, 4, out, [NONE; 2]);
                    break (!out).then_some(left);
                }
                Child::Node(inner) => {
                    let below = self.depth(t, 0x2dd, inner, pointer);
                    t.branch(0x2fd, 0x303, 4, true, [below, NONE]);
                    let more = self.common(t, 0x303, left + 1, at.edge_start + 1, edge - 1, read);
                    let length = 1 + more.await;
                    at.length = depth + length;
                    self.note(t, 0x422, &[0x30, 0, 8], read);
                    t.branch(0x433, 0x557, 2, length != edge, [below.plus(1), NONE]);
                    left += length as usize;
                    at.edge = edge;
                    at.remain = edge - length;
                    if length != edge {
                        at.previous = node;
                        self.note(t, 0x564, &[0x38, 0x20, 0x28, 0x10], below);
                        let out = left >= self.query.len();
                        t.branch(0x58c, 0x591, 4, out, [NONE; 2]);
                        break (!out).then_some(left);
                    }
                    self.note(t, 0x189, &[0x38, 0x28], pointer);
                    node = inner;
                    value = pointer;
                }
            }
            if t.full() {
                t.pause().await;
            }
        };
        self.leave(t, 0x252, 0xd40);
        ended
    }

    /// The same from a location, which may be inside of an edge (`scanprefixstree`).
    async fn scan(
        &self,
        t: &mut Thread,
        at: &mut Location,
        left: usize,
        value: Value,
    ) -> Option<usize> {
        self.enter(t, 0xd48, 0xc80);
        let location = t.stack - 0x60;
        let remain = t.load(0xc98, 1, location + 0x28, 8, [NONE; 2]);
        t.branch(0xc9c, 0xcf0, 2, at.remain == 0, [remain.plus(1), value]);
        if at.remain == 0 {
            let node = match at.next {
                Child::Node(node) => node,
                Child::Leaf(_) => 0,
            };
            return self.scan_from_node(t, at, node, left, value).await;
        }
        let inside = at.edge_start + (at.edge - at.remain);
        let leaf = matches!(at.next, Child::Leaf(_));
        let kind = t.load(0xca0, 1, location + 0x30, 4, [NONE; 2]);
        t.branch(0xca4, 0xcc0, 2, leaf, [kind.plus(1), NONE]);
        for field in [0x18, 0x20, 0x10] {
            t.load(0xca6 + field, 2, location + field, 8, [NONE; 2]);
        }
        let most = at.remain - u32::from(leaf);
        let length = self.common(t, 0x600, left, inside, most, value).await;
        let out = left + length as usize >= self.query.len();
        let short = length < at.remain;
        t.branch(0xcd8, 0xcf0, 2, !short, [NONE; 2]);
        if short {
            at.remain -= length;
            at.length += length;
            self.note(t, 0xcda, &[0x18, 0x20, 0x28, 0x10, 0x30, 0x38, 0, 8], NONE);
            self.leave(t, 0xcee, 0xd48);
            // As in the source, the query's end is found by the next step.
            return (!out || length > 0).then_some(left + length as usize);
        }
        let node = match at.next {
            Child::Node(node) => node,
            Child::Leaf(_) => 0,
        };
        let value = t.load(0xcf0, 1, location + 0x38, 8, [NONE; 2]);
        self.scan_from_node(t, at, node, left + length as usize, value)
            .await
    }
}
