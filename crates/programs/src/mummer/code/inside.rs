//! Matching from a location that may be within an edge (`scanprefixstree`): along that edge, then down from
//! its node.

use pagewalk_stream::flags;

use super::read::Compare;
use super::{Called, Location, Matcher, record};
use crate::mummer::tree::Child;
use crate::thread::{NONE, Thread, Value};

impl Matcher<'_> {
    /// Extends a match from a location along the query from `left` on. Returns the position of the first
    /// mismatch, or `None` at the end of the query.
    pub(super) async fn scan(
        &self,
        t: &mut Thread,
        at: &mut Location,
        left: usize,
        called: Called,
    ) -> Option<usize> {
        let (location, fields, word) = (Self::location(t), self.fields(), self.word());
        for k in 0..6 {
            t.store(0x6200 + 2 * k, 1, called.base - 8 - 8 * k, 8, NONE, NONE);
        }
        let remain = t.load(0x620a, 1, location + fields.remain, word, [NONE; 2]);
        let next = location + fields.next;
        let pointer = t.load(0x6211, 2, next, 8, [at.from.next, NONE]);
        t.branch(0x6218, 0x6381, 2, at.remain == 0, [remain.plus(1), NONE]);
        let mut left = left;
        if at.remain > 0 {
            t.load(0x621e, 1, location + fields.length, word, [NONE; 2]);
            let kind = t.load(0x6222, 1, location + fields.to_leaf, 1, [NONE; 2]);
            t.branch(0x6229, 0x62f0, 2, false, [NONE; 2]);
            let edge = t.load(0x622f, 1, location + fields.edge, word, [NONE; 2]);
            let first = location + fields.edge_start;
            let first = t.load(0x6233, 1, first, 8, [at.from.edge_start, NONE]);
            t.store(0x623a, 2, called.base - 0x40, word, NONE, edge);
            let leaf = matches!(at.next, Child::Leaf(_));
            t.branch(0x624e, 0x6460, 6, leaf, [kind.plus(1), NONE]);
            let length = self.along(t, at, left, leaf, first.plus(2)).await;
            left += length as usize;
            if length < at.remain {
                at.remain -= length;
                at.length += length;
                self.note_inside(t, leaf, called);
                // As in the source, the next step finds the end of the query.
                return Some(left);
            }
        }
        let node = match at.next {
            Child::Node(node) => node,
            Child::Leaf(_) => 0,
        };
        for k in 0..6 {
            let insns = if k == 0 { 3 } else { 1 };
            let from = called.base - 0x30 + 8 * k;
            t.load(0x6387 + k, insns, from, 8, [NONE; 2]);
        }
        t.jump(0x6391, 0x5b80, 1, flags::TAKEN, [NONE; 2]);
        self.scan_from_node(t, at, node, left, pointer, called)
            .await
    }

    /// Compares the rest of an edge with the query. Returns the number of equal letters.
    async fn along(
        &self,
        t: &mut Thread,
        at: &Location,
        left: usize,
        leaf: bool,
        letters: Value,
    ) -> u32 {
        let inside = at.edge_start + (at.edge - at.remain);
        let rest = left < self.query.len();
        let (pc, most, tests) = if leaf {
            let sentinel = self.record(t, record::SENTINEL);
            t.load(0x6460, 1, sentinel, 8, [NONE; 2]);
            let pc = Compare {
                text: 0x6492,
                again: 0x6480,
                out: 0x649b,
                copies: false,
            };
            (
                pc,
                self.letters_from(inside),
                [0x646b, 0x64ba, 0x6473, 0x64c0],
            )
        } else {
            let pc = Compare {
                text: 0x628a,
                again: 0x6278,
                out: 0x6293,
                copies: false,
            };
            (pc, at.remain, [0x625f, 0x64b0, 0x626b, 0x64b5])
        };
        let [empty, nothing, ended, skip] = tests;
        let insns = if leaf { 3 } else { 4 };
        t.branch(empty, nothing, insns, most == 0, [letters, NONE]);
        if most > 0 {
            t.branch(ended, pc.text, 3, rest, [NONE; 2]);
            if !rest {
                t.jump(ended + 2, nothing, 1, flags::TAKEN, [NONE; 2]);
            }
        }
        let to = if leaf { 0x6419 } else { 0x62a6 };
        if most == 0 || !rest {
            t.jump(skip, to, 3, flags::TAKEN, [NONE; 2]);
            return 0;
        }
        let (length, _) = self.common(t, &pc, left, inside, most, letters).await;
        if leaf {
            t.jump(0x64ab, 0x6419, 6, flags::TAKEN, [NONE; 2]);
        } else {
            t.branch(0x62a0, 0x637e, 6, length == at.remain, [NONE; 2]);
            if length == at.remain {
                t.compute(0x637e, 1, 1, [NONE; 2]);
            }
        }
        length
    }

    /// The location stays on its edge: writes its fields and restores registers.
    fn note_inside(&self, t: &mut Thread, leaf: bool, called: Called) {
        let (location, fields, word) = (Self::location(t), self.fields(), self.word());
        let put = |t: &mut Thread, pc, insns, field, size| {
            t.store(pc, insns, location + field, size, NONE, NONE);
        };
        let pop = |t: &mut Thread, pc, insns, k: u64| {
            t.load(pc, insns, called.base - 0x30 + 8 * k, 8, [NONE; 2]);
        };
        if leaf {
            let previous = location + fields.previous;
            let previous = t.load(0x6419, 1, previous, 8, [NONE; 2]);
            t.load(0x6423, 2, called.base - 0x40, word, [NONE; 2]);
            put(t, 0x6427, 1, fields.to_leaf, 1);
            put(t, 0x642b, 1, fields.next, 8);
            put(t, 0x6433, 2, fields.edge, word);
            let to = location + fields.previous;
            t.store(0x6436, 1, to, 16, NONE, previous.plus(2));
            let next = t.load(0x643a, 1, location + fields.next, 8, [NONE; 2]);
            let leaves = self.record(t, record::LEAVES);
            t.load(0x643e, 1, leaves, 8, [next, NONE]);
            pop(t, 0x6446, 2, 0);
            pop(t, 0x6447, 1, 1);
            put(t, 0x6448, 1, fields.remain, word);
            pop(t, 0x644c, 1, 2);
            pop(t, 0x644e, 1, 3);
            put(t, 0x6450, 1, fields.start, word);
            pop(t, 0x6452, 1, 4);
            pop(t, 0x6454, 1, 5);
            put(t, 0x6456, 1, fields.length, word);
            called.ret(t, 0x645a);
            return;
        }
        t.load(0x62a9, 2, location + fields.previous, 16, [NONE; 2]);
        put(t, 0x62bb, 4, fields.to_leaf, 1);
        pop(t, 0x62c4, 2, 0);
        put(t, 0x62c9, 2, fields.previous, 16);
        pop(t, 0x62cd, 1, 1);
        put(t, 0x62ce, 1, fields.edge, 2 * word);
        t.load(0x62d3, 1, location + fields.start, word, [NONE; 2]);
        put(t, 0x62d7, 1, fields.next, 8);
        pop(t, 0x62db, 1, 2);
        pop(t, 0x62e1, 2, 3);
        pop(t, 0x62e3, 1, 4);
        put(t, 0x62e5, 1, fields.start, 2 * word);
        pop(t, 0x62e9, 1, 5);
        called.ret(t, 0x62eb);
    }
}
