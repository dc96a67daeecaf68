//! MUMmer 3's matching, instruction by instruction. Program counters are those of Debian's binary of release
//! 3.23 (gcc 12.2).
//!
//! | from | function |
//! |---|---|
//! | 23f0 | `checkiflocationisMUMcand` |
//! | 2460 | `findmumcandidates` (here) |
//! | 5520 | `getbranchinfostree` (`link.rs`) |
//! | 5b80 | `scanprefixfromnodestree` (`scan.rs`) |
//! | 6200 | `scanprefixstree` (`inside.rs`) |
//! | 7020 | `rescanstree` (`link.rs`) |
//! | 73a0 | `linklocstree` (`link.rs`) |
//!
//! Words of the tree are indices, not pointers. They have 4 bytes in that binary, as in MUMmer's Makefile.
//! With `-DSIXTYFOURBITS` they have 8 bytes: the same code with wider fields, not validated against a binary.

mod inside;
mod link;
mod read;
mod scan;

use super::tree::{Child, Tree};
use crate::thread::{NONE, Thread, Value};

/// Addresses of the arrays.
#[derive(Clone, Copy)]
pub struct Addresses {
    pub text: u64,
    pub query: u64,
    pub leaves: u64,
    pub nodes: u64,
    pub root_children: u64,
    /// Bytes per word of the tree.
    pub word: u64,
}

/// Position in the tree of a matched part of the query (`Location`).
#[derive(Clone, Copy)]
struct Location {
    /// Position in the text of the matched string, and its length.
    start: u32,
    length: u32,
    /// Within an edge: the node above, and the position of the edge's first letter in the text.
    previous: u32,
    edge_start: u32,
    /// Length of the edge, and its unmatched length.
    edge: u32,
    remain: u32,
    next: Child,
    /// Values that produced the fields on which the next step depends.
    from: Producers,
}

/// Producers of a [`Location`] (see [`Location::from`]).
#[derive(Clone, Copy)]
struct Producers {
    previous: Value,
    edge_start: Value,
    next: Value,
}

/// Offsets of the fields of a `Location`.
#[derive(Clone, Copy)]
struct Fields {
    start: u64,
    length: u64,
    previous: u64,
    edge_start: u64,
    edge: u64,
    remain: u64,
    to_leaf: u64,
    next: u64,
}

/// Offsets in the tree's record (`Suffixtree`) that do not depend on the word size.
mod record {
    pub const LEAVES: u64 = 8;
    pub const NODES: u64 = 0x10;
    pub const ROOT_CHILDREN: u64 = 0x18;
    pub const TEXT: u64 = 0x20;
    pub const SENTINEL: u64 = 0x28;
}

/// A maximal match that is unique in the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Match {
    /// Positions in text and query.
    pub text: u32,
    pub query: u32,
    pub length: u32,
}

/// A matcher with its tree and query.
pub struct Matcher<'a> {
    pub tree: &'a Tree,
    pub places: Addresses,
    pub query: &'a [u8],
    /// Minimum length of a match.
    pub least: u32,
}

/// A called function: address of its return address, and address of the call.
#[derive(Clone, Copy)]
struct Called {
    base: u64,
    from: u64,
}

impl Called {
    fn ret(self, t: &mut Thread, pc: u64) {
        t.ret(pc, self.from, 1, t.stack - self.base - 8);
    }
}

impl Matcher<'_> {
    fn fields(&self) -> Fields {
        let word = self.places.word;
        Fields {
            start: 0,
            length: word,
            previous: 2 * word,
            edge_start: 2 * word + 8,
            edge: 2 * word + 16,
            remain: 3 * word + 16,
            to_leaf: 4 * word + 16,
            next: 4 * word + 24,
        }
    }

    /// Bytes per word of the tree.
    fn word(&self) -> u8 {
        self.places.word as u8
    }

    /// Address of a field of the tree's record, in the caller's frame.
    fn record(&self, t: &Thread, field: u64) -> u64 {
        t.stack - 0x300 + field
    }

    /// Address of the field for the start of the chain under construction.
    fn chain_start(&self, t: &Thread) -> u64 {
        let after = (0x30 + 13 * self.places.word).next_multiple_of(8);
        self.record(t, after + 16)
    }

    /// Stack pointer of `findmumcandidates`.
    fn frame(t: &Thread) -> u64 {
        t.stack - 0x400
    }

    /// Address of its `Location`.
    fn location(t: &Thread) -> u64 {
        Self::frame(t) + 0x20
    }

    /// Calls the function at `to` with stack pointer `sp`.
    fn call(t: &mut Thread, pc: u64, to: u64, insns: u16, sp: u64) -> Called {
        t.call(pc, to, insns, t.stack - sp);
        Called {
            base: sp - 8,
            from: pc,
        }
    }

    /// Finds all matches (`findmumcandidates`) and passes each to `found`.
    pub async fn run(&self, t: &mut Thread, mut found: impl FnMut(Match)) {
        let (sp, length) = (Self::frame(t), Self::location(t) + self.fields().length);
        for (k, insns) in (0..).zip([1, 2, 2, 2, 2, 1]) {
            t.store(0x2460 + 2 * k, insns, sp + 0x90 - 8 * k, 8, NONE, NONE);
        }
        t.load(0x2483, 4, self.record(t, record::NODES), 8, [NONE; 2]);
        let mut at = Location {
            start: 0,
            length: 0,
            previous: 0,
            edge_start: 0,
            edge: 0,
            remain: 0,
            next: Child::Node(0),
            from: Producers {
                previous: NONE,
                edge_start: NONE,
                next: NONE,
            },
        };
        let called = Self::call(t, 0x24b2, 0x5b80, 10, sp);
        let mut left = self.scan_from_node(t, &mut at, 0, 0, NONE, called).await;
        let mut suffix = 0;
        t.branch(0x24ba, 0x2627, 3, left.is_none(), [NONE; 2]);
        while let Some(place) = left {
            let read = t.load(0x24fe, 1, length, self.word(), [NONE; 2]);
            let long = at.length >= self.least;
            t.branch(0x2505, 0x25b8, 2, long, [read.plus(1), NONE]);
            if long {
                self.check(t, 0x25b8, &at, suffix, &mut found);
                t.load(0x25e8, 1, length, self.word(), [NONE; 2]);
                t.jump(0x25ec, 0x250b, 1, pagewalk_stream::flags::TAKEN, [NONE; 2]);
            }
            t.branch(0x250d, 0x24d8, 2, at.length == 0, [read.plus(1), NONE]);
            suffix += 1;
            let again = if at.length == 0 {
                t.load(0x24d8, 1, self.record(t, record::NODES), 8, [NONE; 2]);
                let called = Self::call(t, 0x24f1, 0x5b80, 7, sp);
                left = self
                    .scan_from_node(t, &mut at, 0, place + 1, NONE, called)
                    .await;
                0x24fc
            } else {
                let called = Self::call(t, 0x251c, 0x73a0, 5, sp);
                self.link(t, &mut at, called).await;
                let called = Self::call(t, 0x2533, 0x6200, 7, sp);
                left = self.scan(t, &mut at, place, called).await;
                0x253e
            };
            let (to, taken) = if again == 0x24fc {
                (0x2540, left.is_none())
            } else {
                (0x24fe, left.is_some())
            };
            t.branch(again, to, 3, taken, [NONE; 2]);
        }
        while at.length >= self.least && at.length > 0 {
            self.check(t, 0x257f, &at, suffix, &mut found);
            let called = Self::call(t, 0x256d, 0x73a0, 5, sp);
            self.link(t, &mut at, called).await;
            suffix += 1;
            let read = t.load(0x2572, 1, length, self.word(), [NONE; 2]);
            let short = at.length < self.least;
            t.branch(0x2579, 0x25f8, 2, short, [read.plus(1), NONE]);
            if !short {
                t.branch(0x257d, 0x25f8, 2, at.length == 0, [read.plus(1), NONE]);
            }
        }
    }

    /// Reports a sufficiently long match if it is a candidate (`checkiflocationisMUMcand`, called from `pc`
    /// on).
    fn check(
        &self,
        t: &mut Thread,
        pc: u64,
        at: &Location,
        suffix: usize,
        found: &mut impl FnMut(Match),
    ) {
        let (sp, fields) = (Self::frame(t), self.fields());
        let location = Self::location(t);
        t.load(pc + 4, 2, self.record(t, record::TEXT), 8, [NONE; 2]);
        let given = t.load(pc + 0xf, 3, sp + 8, 8, [NONE; 2]);
        t.store(pc + 0xf, 0, sp - 0x10, 8, NONE, given);
        t.load(pc + 0x13, 1, sp, 8, [NONE; 2]);
        t.load(pc + 0x18, 1, sp + 0xa0, self.word(), [NONE; 2]);
        t.load(pc + 0x20, 1, sp + 0x10, 8, [NONE; 2]);
        let called = Self::call(t, pc + 0x25, 0x23f0, 1, sp - 0x10);
        if self.is_candidate(t, at, suffix) {
            t.load(0x242e, 3, location + fields.length, self.word(), [NONE; 2]);
            t.compute(0x2449, 6, 1, [NONE; 2]);
            found(Match {
                text: at.start,
                query: suffix as u32,
                length: at.length,
            });
        } else {
            t.compute(0x2450, 1, 1, [NONE; 2]);
        }
        called.ret(t, 0x2452);
        t.load(pc + 0x2a, 1, sp - 0x10, 8, [NONE; 2]);
        t.load(pc + 0x2b, 1, sp - 8, 8, [NONE; 2]);
        t.branch(pc + 0x2e, pc + 0x68, 2, false, [NONE; 2]);
    }

    /// True if the location is on an edge to a leaf, and the letters to the left differ.
    fn is_candidate(&self, t: &mut Thread, at: &Location, suffix: usize) -> bool {
        let (location, fields) = (Self::location(t), self.fields());
        let word = self.word();
        let remain = t.load(0x23f3, 2, location + fields.remain, word, [NONE; 2]);
        let node = at.remain == 0;
        t.branch(0x23fd, 0x2450, 4, node, [remain.plus(1), NONE]);
        if node {
            return false;
        }
        let kind = t.load(0x23ff, 1, location + fields.to_leaf, 1, [NONE; 2]);
        let leaf = matches!(at.next, Child::Leaf(_));
        t.branch(0x2403, 0x2450, 1, !leaf, [kind.plus(1), NONE]);
        if !leaf {
            return false;
        }
        let start = t.load(0x2408, 2, location + fields.start, word, [NONE; 2]);
        t.branch(0x2411, 0x2427, 3, suffix == 0, [NONE; 2]);
        if suffix == 0 {
            return true;
        }
        t.branch(0x2416, 0x2427, 2, at.start == 0, [start.plus(1), NONE]);
        if at.start == 0 {
            return true;
        }
        let left = t.load(0x241c, 2, self.letter_at(at.start - 1), 1, [start, NONE]);
        let own = self.places.query + suffix as u64 - 1;
        let own = t.load(0x2421, 1, own, 1, [NONE; 2]);
        let same = self.tree.text[at.start as usize - 1] == self.query[suffix - 1];
        t.branch(0x2425, 0x2450, 1, same, [left.plus(1), own]);
        !same
    }
}
