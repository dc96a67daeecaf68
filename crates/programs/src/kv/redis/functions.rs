//! Hash and comparison of keys, which the dictionary calls through function pointers of its type.

use pagewalk_stream::flags::{CALL, INDIRECT, TAKEN};

use super::dictionary::{Dictionary, FUNCTIONS, Record, SEED, SWITCH};
use crate::kv::emit::Emit;
use crate::kv::index::{Key, same};
use crate::kv::libc;
use crate::layout::HEAP;
use crate::thread::{NONE, Value};

/// True for the characters of a stored key, which begin a byte behind the start of an object. Those of a
/// request lie in a buffer, or behind an object's header.
fn is_stored(text: u64) -> bool {
    text >= HEAP && text % 16 == 1
}

impl Dictionary {
    /// Calls the hash function through its pointer: `dictSdsHash`, `siphash`.
    #[inline(always)]
    pub(super) fn hash<E: Emit>(
        &self,
        e: &mut E,
        site: u64,
        insns: u16,
        text: (u64, Value),
        sp: u64,
    ) -> Value {
        const CODE: u64 = 0x1300;
        let (at, ready) = text;
        let target = e.load(site, insns, FUNCTIONS, 8, [NONE; 2]);
        e.store(site, 0, sp - 8, 8, NONE, NONE);
        e.jump(site, CODE, 0, TAKEN | CALL | INDIRECT, [target, NONE]);
        // Loads the length, selected by the type in the byte before the characters.
        let kind = e.load(CODE, 1, at - 1, 1, [ready, NONE]);
        e.branch(CODE + 0xb, CODE + 0x80, 4, false, [kind, NONE]);
        let case = e.load(CODE + 0x1b, 3, SWITCH, 4, [kind.plus(2), NONE]);
        e.jump(
            CODE + 0x22,
            CODE + 0x48,
            2,
            TAKEN | INDIRECT,
            [case.plus(1), NONE],
        );
        // A stored key has type 5: its length is in the same byte.
        if !is_stored(at) {
            e.load(CODE + 0x48, 1, at - 3, 1, [ready, NONE]);
        } else {
            e.compute(CODE + 0x48, 1, 1, [kind, NONE]);
        }
        e.jump(CODE + 0x4c, CODE + 0x100, 1, TAKEN, [NONE; 2]);
        e.jump(CODE + 0x10a, CODE + 0x180, 3, TAKEN, [NONE; 2]);
        e.load(CODE + 0x180, 1, SEED, 8, [NONE; 2]);
        e.load(CODE + 0x186, 2, SEED + 8, 8, [NONE; 2]);
        e.branch(CODE + 0x1d3, CODE + 0x21a, 15, false, [NONE; 2]);
        let mut words = [NONE; 3];
        for (i, word) in words.iter_mut().enumerate() {
            let first = if i == 0 { 2 } else { 1 };
            *word = e.load(CODE + 0x1d8, first, at + 8 * i as u64, 8, [ready, NONE]);
            e.branch(CODE + 0x218, CODE + 0x1d8, 19, i < 2, [NONE; 2]);
        }
        let case = e.load(CODE + 0x221, 2, SWITCH + 0x40, 4, [NONE; 2]);
        e.jump(
            CODE + 0x228,
            CODE + 0x27f,
            2,
            TAKEN | INDIRECT,
            [case, NONE],
        );
        // Five cycles per round: three rounds for the words, one for the length, two more.
        let hash = e.compute(CODE + 0x27f, 45, 20, [words[0].plus(10), words[2].plus(2)]);
        e.ret(CODE + 0x317, site - 3, 1, sp);
        hash
    }

    /// Calls `dictSdsKeyCompare` through its pointer.
    #[inline(always)]
    pub(super) fn compare<E: Emit>(
        &self,
        e: &mut E,
        site: u64,
        (key, mine): (&Key, Value),
        (record, other): (&Record, Value),
        sp: u64,
    ) -> Value {
        const CODE: u64 = 0x1700;
        if !E::LOUD {
            return NONE;
        }
        e.store(site, 2, sp - 8, 8, NONE, NONE);
        e.jump(site, CODE, 0, TAKEN | CALL | INDIRECT, [NONE; 2]);
        let theirs = record.key.va() + 1;
        // The searched key is the client's or, during insertion, its copy of type 5.
        let header = if is_stored(key.text) { 0 } else { 3 };
        let texts = [(key.text, mine, 3, header), (theirs, other, 1, 0)];
        for (i, (text, ready, insns, header)) in texts.into_iter().enumerate() {
            let pc = CODE + 0x2e * i as u64;
            let kind = e.load(pc + 6, insns, text - 1, 1, [ready, NONE]);
            e.branch(pc + 0x11, CODE + 0xf0, 4, false, [kind, NONE]);
            let case = e.load(
                pc + 0x21,
                3,
                SWITCH + 0x14 * (1 + i as u64),
                4,
                [kind, NONE],
            );
            let to = CODE + 0xa0 + 0x10 * i as u64;
            e.jump(pc + 0x28, to, 2, TAKEN | INDIRECT, [case.plus(1), NONE]);
            let next = CODE + [0x34, 0x63][i];
            if header > 0 {
                e.load(to, 1, text - header, 1, [ready, NONE]);
                e.jump(to + 4, next, 1, TAKEN, [NONE; 2]);
            } else {
                // Type 5 holds the length in the same byte.
                e.jump(to + 6, next, 3, TAKEN, [NONE; 2]);
            }
        }
        e.branch(CODE + 0x67, CODE + 0x8a, 3, false, [NONE; 2]);
        let equal = same(record.number, key.number);
        let (a, b) = ((key.text, mine), (theirs, other));
        let order = libc::memcmp(e, (CODE + 0x6d, 2), a, b, equal, sp - 16);
        e.ret(CODE + 0x7e, site - 3, 5, sp);
        order.plus(3)
    }
}
