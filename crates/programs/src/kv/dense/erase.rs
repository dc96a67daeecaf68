//! Erasure: the slot gets the deleted key. The pair stays, with the memory of its texts.
//!
//! gcc 12.2 -O2, in the loop:
//!
//! ```text
//! 700 as a find ; 718 call 1000 ; cmp ; 721 je out ; mov table ; shl ; lea ; mov slots ; … 747 je out
//! 74d cmpb ; mov deleted ; je ; test ; 764 jne ; lea ; mov ; 774 call _M_assign (the deleted key)
//! 779 an empty string on the stack, moved into the value: length 0 ; 7cd addq deleted ; movb ; jmp out
//! ```

use pagewalk_stream::flags::TAKEN;

use super::{DELETED, DELETED_KEY, Dense, Record, SLOT_BYTES, SLOTS, TABLE, USED};
use crate::heap::Heap;
use crate::kv::emit::{Emit, Library};
use crate::kv::globals::MAP;
use crate::kv::index::{Gone, Key};
use crate::kv::libc;
use crate::thread::{NONE, Value};

/// Length of the deleted key, stored in its string object.
const DELETED_BYTES: u64 = 7;

impl Dense {
    /// Compares a slot's key with the deleted key, which it equals.
    pub(super) fn compare_deleted<E: Emit>(
        &self,
        e: &mut E,
        pc: u64,
        (record, text): (&Record, Value),
        sp: u64,
    ) {
        let mine = e.load(pc, 3, DELETED_KEY, 8, [NONE; 2]);
        for i in 0..4 {
            e.store(pc + 0x4 + 4 * i, 1, sp + 8 + 8 * i, 8, NONE, NONE);
        }
        // All characters are equal: emits the `memcmp` of two equal keys.
        let (a, b) = ((DELETED_KEY + 16, mine), (record.key.va(), text));
        let order = libc::memcmp(e, (pc + 0x1a, 2), a, b, libc::KEY_BYTES, sp);
        for i in 0..4 {
            e.load(pc + 0x1e + 5 * i, 1, sp + 8 + 8 * i, 8, [NONE; 2]);
        }
        e.branch(pc + 0x35, pc - 0x51, 2, false, [order, NONE]);
    }

    pub(super) fn take_out<E: Emit>(
        &mut self,
        e: &mut E,
        _: &mut Heap,
        key: &Key,
        sp: u64,
    ) -> Option<Gone> {
        e.load(0x700, 2, MAP + 0x1a, 1, [NONE; 2]);
        e.branch(0x704, 0x710, 2, false, [NONE; 2]);
        e.load(0x706, 1, DELETED_KEY + 8, 8, [NONE; 2]);
        e.branch(0x70a, 0x7f0, 2, false, [NONE; 2]);
        e.load(0x70c, 1, DELETED, 8, [NONE; 2]);
        let used = e.load(0x70e, 1, USED, 8, [NONE; 2]);
        e.branch(0x710, 0, 1, false, [used, NONE]);
        e.call(0x718, 0x1000, 3, sp);
        let (answer, at) = self.position(e, 0x718, key, key.hash(), sp);
        e.branch(0x721, 0, 2, answer.is_err(), [NONE; 2]);
        let id = answer.ok()?;
        let va = self.table + SLOT_BYTES * u64::from(self.records[id as usize].slot);
        e.load(0x727, 1, TABLE, 8, [NONE; 2]);
        let slots = e.load(0x736, 3, SLOTS, 8, [NONE; 2]);
        e.branch(0x747, 0, 4, false, [slots, NONE]);
        e.load(0x74d, 1, MAP + 0x1a, 1, [NONE; 2]);
        let deleted = e.load(0x754, 1, DELETED, 8, [NONE; 2]);
        e.branch(0x75b, 0x7c0, 1, false, [deleted, NONE]);
        let others = self.deleted > 0;
        e.branch(0x764, 0x7f8, 2, others, [deleted, NONE]);
        if others {
            let length = e.load(0x7f8, 2, va + 8, 8, [at, NONE]);
            e.branch(0x7fc, 0x76a, 1, true, [length, NONE]);
        }
        self.assign_deleted(e, (id, va, at), sp);
        // `value = std::string()`: the memory of the text stays, its length becomes 0.
        e.store(0x77f, 3, sp + 0x20, 8, NONE, NONE);
        e.store(0x784, 1, sp + 0x28, 8, NONE, NONE);
        e.store(0x789, 1, sp + 0x30, 1, NONE, NONE);
        e.branch(0x794, 0x7a3, 2, false, [NONE; 2]);
        let text = e.load(0x796, 1, va + 32, 8, [at, NONE]);
        e.store(0x79c, 2, va + 40, 8, at, NONE);
        e.store(
            0x7a0,
            1,
            self.records[id as usize].value.va(),
            1,
            text,
            NONE,
        );
        e.load(0x7a3, 1, sp + 0x20, 8, [NONE; 2]);
        e.store(0x7aa, 2, sp + 0x28, 8, NONE, NONE);
        e.store(0x7af, 1, sp + 0x30, 1, NONE, NONE);
        let own = e.load(0x7b2, 1, sp + 0x20, 8, [NONE; 2]);
        e.branch(0x7ba, 0x7cd, 2, true, [own, NONE]);
        e.store(0x7cd, 1, DELETED, 8, NONE, deleted.plus(1));
        e.store(0x7d5, 1, MAP + 0x18, 1, NONE, NONE);
        e.jump(0x7dc, 0, 1, TAKEN, [NONE; 2]);
        self.records[id as usize].gone = true;
        self.deleted += 1;
        self.consider_shrink = true;
        Some(Gone { id, record: va })
    }

    /// `_M_assign` of the deleted key to the key of a slot, whose capacity suffices.
    fn assign_deleted<E: Emit>(&self, e: &mut E, (id, va, at): (u32, u64, Value), sp: u64) {
        let code = Library::Replace.code() + 0x300;
        let key = self.records[id as usize].key.va();
        e.call_library(0x774, Library::Replace, 3, sp);
        e.branch(code + 0x7, code + 0xa0, 3, false, [NONE; 2]);
        e.push(code + 0xd, 5, sp - 8);
        let text = e.load(code + 0x23, 5, va, 8, [at, NONE]);
        e.load(code + 0x26, 1, DELETED_KEY + 8, 8, [NONE; 2]);
        e.branch(code + 0x2d, code + 0xa8, 2, false, [text, NONE]);
        let room = e.load(code + 0x2f, 1, va + 16, 8, [at, NONE]);
        e.branch(code + 0x36, code + 0x58, 2, false, [room, NONE]);
        e.branch(code + 0x3b, code + 0x86, 2, true, [NONE; 2]);
        let from = e.load(code + 0x86, 1, DELETED_KEY, 8, [NONE; 2]);
        e.branch(code + 0x8e, code + 0xb0, 2, false, [NONE; 2]);
        // `memcpy` of 4 to 7 bytes: the first four and the last four.
        let (copy, site) = (Library::Memcpy.code(), code + 0x96);
        e.call_library(site, Library::Memcpy, 3, sp - 64);
        e.branch(copy + 0x7, copy + 0x30, 3, true, [NONE; 2]);
        for (i, taken) in [false, false, true].into_iter().enumerate() {
            let pc = copy + 0x33 + 5 * i as u64;
            e.branch(pc, pc + 0x40, 2, taken, [NONE; 2]);
        }
        for i in 0..2 {
            let offset = i * (DELETED_BYTES - 4);
            let word = e.load(
                copy + 0x80 + 4 * i,
                1,
                DELETED_KEY + 16 + offset,
                4,
                [from, NONE],
            );
            e.store(copy + 0x88 + 4 * i, 1, key + offset, 4, text, word);
        }
        e.ret(copy + 0x90, site, 1, sp - 64);
        let text = e.load(code + 0x9b, 1, va, 8, [at, NONE]);
        e.jump(code + 0x9e, code + 0x3d, 1, TAKEN, [NONE; 2]);
        e.store(code + 0x3d, 1, va + 8, 8, at, NONE);
        e.store(code + 0x41, 1, key + DELETED_BYTES, 1, text, NONE);
        e.pop(code + 0x4b, 5, sp - 8);
        e.ret(code + 0x53, 0x774, 2, sp);
    }
}
