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

use pagewalk_stream::flags;

use super::super::thread::{NONE, Thread, Value};
use super::tree::{Child, Tree};

/// Where things lie.
#[derive(Clone, Copy)]
pub struct Places {
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
    pub places: Places,
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

    fn node_at(&self, node: u32) -> u64 {
        self.places.nodes + 8 * u64::from(self.tree.nodes[node as usize].word)
    }

    /// The large node at the end of a node's chain.
    fn chain_end(&self, node: u32) -> u64 {
        self.node_at(node) + 24 * u64::from(self.tree.nodes[node as usize].chain)
    }

    fn letter_at(&self, place: u32) -> u64 {
        self.places.text + u64::from(place)
    }

    /// Reads a node's depth and head position (`GETBOTH`).
    fn both(&self, t: &mut Thread, pc: u64, node: u32, at: Value) -> Value {
        let va = self.node_at(node);
        let small = self.tree.nodes[node as usize].chain > 0;
        t.load(pc, 1, self.places.record + 0x48, 8, [NONE; 2]);
        t.branch(pc + 7, pc + 0x41, 2, true, [at, NONE]);
        let kind = t.load(pc + 0x41, 1, va, 8, [at, NONE]);
        let depth = t.load(pc + 0x45, 1, va + 0x10, 8, [at, NONE]);
        t.branch(pc + 0x49, pc + 0x61, 1, small, [kind.plus(1), NONE]);
        if small {
            let end = self.chain_end(node);
            t.load(pc + 0x69, 3, end + 0x18, 8, [depth.plus(2), NONE]);
            let depth = t.load(pc + 0x70, 2, end + 0x10, 8, [depth.plus(2), NONE]);
            t.jump(pc + 0x74, pc + 0x43, 1, flags::TAKEN, [NONE; 2]);
            return depth.plus(1);
        }
        t.load(pc + 0x4f, 1, va + 0x18, 8, [at, NONE]);
        t.jump(pc + 0x53, pc + 0x43, 1, flags::TAKEN, [NONE; 2]);
        depth
    }

    /// Reads a node's head position.
    fn head(&self, t: &mut Thread, pc: u64, node: u32, at: Value) -> Value {
        let va = self.node_at(node);
        let small = self.tree.nodes[node as usize].chain > 0;
        t.load(pc, 2, self.places.record + 0x48, 8, [NONE; 2]);
        t.branch(pc + 0x14, pc + 0x69, 6, false, [at, NONE]);
        let kind = t.load(pc + 0x16, 1, va, 8, [at, NONE]);
        t.branch(pc + 0x1a, pc + 0x99, 1, small, [kind.plus(1), NONE]);
        if !small {
            return t.load(pc + 0x1c, 1, va + 0x18, 8, [at, NONE]);
        }
        let distance = t.load(pc + 0x99, 1, va + 0x10, 8, [at, NONE]);
        let end = self.chain_end(node);
        let head = t.load(pc + 0xa1, 2, end + 0x18, 8, [distance.plus(1), NONE]);
        t.jump(pc + 0xa9, pc + 0x20, 2, flags::TAKEN, [NONE; 2]);
        head.plus(1)
    }

    /// Reads a node's depth.
    fn depth(&self, t: &mut Thread, pc: u64, node: u32, at: Value) -> Value {
        let va = self.node_at(node);
        let small = self.tree.nodes[node as usize].chain > 0;
        let kind = t.load(pc, 3, va, 8, [at, NONE]);
        let depth = t.load(pc + 4, 1, va + 0x10, 8, [at, NONE]);
        t.branch(pc + 8, pc - 0x180, 1, !small, [kind.plus(1), NONE]);
        if !small {
            return depth;
        }
        let end = self.chain_end(node);
        t.load(pc + 0x12, 2, end + 0x10, 8, [depth.plus(2), NONE])
            .plus(1)
    }

    /// The child of `node` that begins with `letter`, looked for along the list of
    /// brothers; `sorted`: the search ends at a larger letter. What it returns
    /// comes with what made the reference, and the text's letter.
    fn child(
        &self,
        t: &mut Thread,
        pc: u64,
        (node, at): (u32, Value),
        letter: u8,
        wanted: Value,
    ) -> Option<(Child, Value, Value)> {
        let depth = self.tree.nodes[node as usize].depth;
        let mut reference = t.load(pc + 0x1cd, 3, self.node_at(node), 8, [at, NONE]);
        t.jump(pc + 0x1d0, pc + 0x207, 1, flags::TAKEN, [NONE; 2]);
        let mut next = self.tree.first(node);
        while let Some(child) = next {
            let place = self.letter_at(self.tree.start(child) + depth);
            let own = self.tree.letter(depth, child);
            let leaf = matches!(child, Child::Leaf(_));
            t.branch(pc + 0x210, pc + 0x1d8, 4, leaf, [reference.plus(1), NONE]);
            let brother = match child {
                Child::Leaf(leaf) => {
                    let record = self.places.record;
                    let end = t.load(pc + 0x1dc, 2, record + 0x20, 8, [NONE; 2]);
                    let sentinel = own == 4;
                    t.branch(
                        pc + 0x1e7,
                        pc + 0x252,
                        3,
                        sentinel,
                        [reference.plus(3), end],
                    );
                    if sentinel {
                        return None;
                    }
                    let read = t.load(pc + 0x1e9, 1, place, 1, [reference.plus(3), NONE]);
                    t.branch(
                        pc + 0x1ef,
                        pc + 0x252,
                        2,
                        own > letter,
                        [read.plus(1), wanted],
                    );
                    if own > letter {
                        return None;
                    }
                    let table = t.load(pc + 0x1f1, 1, record + 8, 8, [NONE; 2]);
                    t.branch(
                        pc + 0x1f9,
                        pc + 0x485,
                        2,
                        own == letter,
                        [read.plus(1), wanted],
                    );
                    if own == letter {
                        return Some((child, reference.plus(2), read));
                    }
                    let va = self.places.leaves + 8 * u64::from(leaf);
                    t.load(pc + 0x1ff, 1, va, 8, [reference.plus(2), table])
                }
                Child::Node(inner) => {
                    let pointer = reference.plus(2);
                    let head = self.head(t, pc + 0x217, inner, pointer);
                    let read = t.load(pc + 0x23e, 3, place, 1, [head.plus(2), NONE]);
                    t.branch(
                        pc + 0x241,
                        pc + 0x252,
                        1,
                        own > letter,
                        [read.plus(1), wanted],
                    );
                    if own > letter {
                        return None;
                    }
                    t.branch(
                        pc + 0x243,
                        pc + 0x473,
                        1,
                        own == letter,
                        [read.plus(1), wanted],
                    );
                    if own == letter {
                        t.branch(pc + 0x476, pc + 0x2dd, 2, true, [NONE; 2]);
                        return Some((child, pointer, read));
                    }
                    let va = self.node_at(inner) + 8;
                    t.load(pc + 0x249, 1, va, 8, [pointer, NONE])
                }
            };
            next = self.tree.brother(child);
            let pc = pc + if leaf { 0x205 } else { 0x250 };
            t.branch(
                pc,
                pc + 2,
                2,
                next.is_none() == leaf,
                [brother.plus(1), NONE],
            );
            reference = brother;
        }
        None
    }

    /// How many letters of the query from `place` on are those of the text from
    /// `from` on, at most `most` (`lcp`, inlined).
    async fn common(
        &self,
        t: &mut Thread,
        pc: u64,
        place: usize,
        from: u32,
        most: u32,
        at: Value,
    ) -> u32 {
        let stack = t.stack - FRAME;
        t.load(pc, 1, stack - 0x30, 8, [NONE; 2]);
        t.branch(pc + 0x15, pc + 0x3cc, 5, most == 0, [NONE; 2]);
        t.load(pc + 0x1e, 2, stack - 0x28, 8, [NONE; 2]);
        let rest = self.query.len() - place.min(self.query.len());
        let most = most.min(rest as u32);
        t.branch(pc + 0x23, pc + 0x3cc, 1, rest == 0, [NONE; 2]);
        t.store(pc + 0x29, 1, stack - 0x20, 8, NONE, NONE);
        t.load(pc + 0x2e, 1, stack - 0x28, 8, [NONE; 2]);
        t.store(pc + 0x33, 1, stack - 0x18, 8, NONE, NONE);
        t.jump(pc + 0x38, pc + 0x5a, 1, flags::TAKEN, [NONE; 2]);
        let mut length = 0;
        while length < most {
            let text = self.letter_at(from + length);
            let query = self.places.query + place as u64 + u64::from(length);
            let a = t.load(pc + 0x5a, 1, text, 1, [at, NONE]);
            let b = t.load(pc + 0x5e, 1, query, 1, [NONE; 2]);
            let same =
                self.tree.text[(from + length) as usize] == self.query[place + length as usize];
            t.branch(pc + 0x61, pc + 0x3d, 1, same, [a.plus(1), b.plus(1)]);
            if !same {
                break;
            }
            length += 1;
            let out = place + length as usize >= self.query.len();
            t.branch(pc + 0x48, pc + 0x15d, 4, out, [NONE; 2]);
            if !out {
                t.branch(pc + 0x51, pc + 0x15d, 2, length == most, [NONE; 2]);
            }
            if t.full() {
                t.pause().await;
            }
        }
        t.load(pc + 0x63, 1, stack - 0x18, 8, [NONE; 2]);
        t.load(pc + 0x68, 1, stack - 0x20, 8, [NONE; 2]);
        t.jump(pc + 0x74, pc + 0x11c, 3, flags::TAKEN, [NONE; 2]);
        length
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
    async fn link(&self, t: &mut Thread, at: &mut Location) -> Value {
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
