//! Insertion of a new key: the second half of `find_or_insert`, and `insert_at`.

use pagewalk_stream::flags::TAKEN;

use super::{DELETED, Dense, EMPTY, Record, SLOT_BYTES, SLOTS, TABLE, USED};
use crate::heap::Heap;
use crate::kv::emit::Emit;
use crate::kv::globals::MAP;
use crate::kv::index::{Found, Key, Place};
use crate::kv::libc::{self, KEY_BYTES};
use crate::thread::{NONE, Value};

/// Address at which `find_or_insert` calls `insert_at`.
const INSERT_AT: u64 = 0x1900 + 0x349;

impl Dense {
    /// `std::string::_M_construct` of a text of at least 24 characters in the object at `object`.
    pub(super) fn construct<E: Emit>(
        e: &mut E,
        heap: &mut Heap,
        site: u64,
        object: u64,
        from: (u64, Value),
        bytes: u64,
        sp: u64,
    ) -> Place {
        const CODE: u64 = 0x1e00;
        e.call(site, CODE, 1, sp);
        e.push(CODE, 3, sp - 8);
        let frame = sp - 32 - 0x10;
        e.store(CODE + 0x14, 6, frame + 8, 8, NONE, NONE);
        e.branch(CODE + 0x1d, CODE + 0x60, 2, true, [NONE; 2]);
        let (at, ready) = libc::create(e, heap, (CODE + 0x67, 3), frame + 8, bytes, frame);
        e.store(CODE + 0x6c, 1, object, 8, NONE, ready);
        let capacity = e.load(CODE + 0x73, 2, frame + 8, 8, [NONE; 2]);
        e.store(CODE + 0x78, 1, object + 16, 8, NONE, capacity);
        libc::memcpy(e, (CODE + 0x82, 3), (at, ready), from, bytes, frame);
        e.load(CODE + 0x87, 1, frame + 8, 8, [NONE; 2]);
        let text = e.load(CODE + 0x8c, 1, object, 8, [NONE; 2]);
        e.jump(CODE + 0x90, CODE + 0x36, 1, TAKEN, [NONE; 2]);
        e.store(CODE + 0x36, 1, object + 8, 8, NONE, NONE);
        e.store(CODE + 0x3a, 1, at + bytes, 1, text, NONE);
        e.load(CODE + 0x42, 2, frame + 0x10, 8, [NONE; 2]);
        e.pop(CODE + 0x43, 2, sp - 8);
        e.ret(CODE + 0x46, site, 1, sp);
        Place::new(at)
    }

    /// The rest of `find_or_insert` for a new key: constructs a pair with a copy of the key, and copies it to
    /// the slot.
    pub(super) fn insert<E: Emit>(
        &mut self,
        e: &mut E,
        heap: &mut Heap,
        (slot, at): (usize, Value),
        key: &Key,
        sp: u64,
    ) -> Found {
        const CODE: u64 = 0x1900;
        let frame = sp - 56 - 0xc8;
        // An empty value and a copy of the key on the stack, moved into a pair.
        for (i, offset) in [0x30, 0x20, 0x28].into_iter().enumerate() {
            e.store(CODE + 0xca + 5 * i as u64, 2, frame + offset, 8, NONE, NONE);
        }
        e.load(CODE + 0xe0, 1, key.object + 8, 8, [NONE; 2]);
        e.store(CODE + 0xe5, 1, frame + 0x80, 8, NONE, NONE);
        let text = e.load(CODE + 0xed, 1, key.object, 8, [NONE; 2]);
        e.branch(CODE + 0xf6, CODE + 0x260, 3, true, [NONE; 2]);
        let temporary = frame + 0x80;
        let from = (key.text, text);
        let copy = Self::construct(e, heap, CODE + 0x260, temporary, from, KEY_BYTES, frame);
        let moved = [
            (false, 0x20),
            (true, 0xa0),
            (false, 0x28),
            (false, 0x80),
            (true, 0x20),
            (true, 0xa8),
            (false, 0x88),
            (true, 0x28),
            (true, 0x30),
            (true, 0x40),
            (true, 0x40),
            (false, 0x90),
            (true, 0x50),
            (true, 0x80),
            (true, 0x48),
            (true, 0x88),
            (true, 0x90),
            (true, 0x60),
            (true, 0x68),
        ];
        for (i, (is_store, offset)) in moved.into_iter().enumerate() {
            let pc = CODE + 0x265 + 6 * i as u64;
            let insns = 1 + (i % 2) as u16;
            if is_store {
                e.store(pc, insns, frame + offset, 8, NONE, NONE);
            } else {
                e.load(pc, insns, frame + offset, 8, [NONE; 2]);
            }
        }
        for i in 0..3 {
            // The empty value's characters are inside the string object: they are copied.
            let pc = CODE + 0x2e0 + 0x10 * i;
            e.branch(pc, pc + 0x40, 2, true, [NONE; 2]);
            e.branch(pc + 6, pc + 0x30, 3, false, [NONE; 2]);
        }
        let inner = self.insert_at(e, heap, (slot, at), copy, key, frame);
        e.load(CODE + 0x34e, 1, frame + 0x88, 8, [NONE; 2]);
        e.load(CODE + 0x356, 1, frame + 0x60, 8, [NONE; 2]);
        e.branch(CODE + 0x35e, CODE + 0x378, 2, true, [NONE; 2]);
        let text = e.load(CODE + 0x378, 1, frame + 0x40, 8, [NONE; 2]);
        e.branch(CODE + 0x380, CODE + 0x8b, 2, false, [text, NONE]);
        e.store(CODE + 0x386, 1, frame + 8, 8, NONE, NONE);
        e.load(CODE + 0x38b, 1, frame + 0x50, 8, [NONE; 2]);
        let freed = (copy.va(), text);
        libc::free(e, heap, (CODE + 0x394, 2), freed, KEY_BYTES + 1, frame);
        e.load(CODE + 0x399, 1, frame + 8, 8, [NONE; 2]);
        e.jump(CODE + 0x39e, CODE + 0x8b, 1, TAKEN, [NONE; 2]);
        self.leave(e, sp);
        inner
    }

    /// `insert_at`: destroys the slot's empty pair and constructs a copy of the new one.
    fn insert_at<E: Emit>(
        &mut self,
        e: &mut E,
        heap: &mut Heap,
        (slot, at): (usize, Value),
        from: Place,
        key: &Key,
        sp: u64,
    ) -> Found {
        const CODE: u64 = 0x1b80;
        e.call(INSERT_AT, CODE, 7, sp);
        e.push(CODE, 6, sp - 8);
        let frame = sp - 56 - 0x28;
        e.load(CODE + 0x1b, 4, USED, 8, [NONE; 2]);
        e.load(CODE + 0x1f, 1, DELETED, 8, [NONE; 2]);
        e.branch(CODE + 0x2c, CODE + 0x1f7, 4, false, [NONE; 2]);
        let va = self.table + SLOT_BYTES * slot as u64;
        let pair = sp + 0x40;
        e.load(CODE + 0x32, 1, MAP + 0x1a, 1, [NONE; 2]);
        e.branch(CODE + 0x3c, CODE + 0x120, 3, self.erases, [NONE; 2]);
        let before = self.slots[slot];
        let again = before != EMPTY;
        if self.erases {
            // `test_deleted`: compares lengths, and characters only if the lengths match.
            e.load(CODE + 0x120, 4, TABLE, 8, [NONE; 2]);
            e.branch(CODE + 0x134, CODE + 0x5c, 2, self.deleted == 0, [NONE; 2]);
            if self.deleted > 0 {
                let length = e.load(CODE + 0x13e, 2, va + 8, 8, [at, NONE]);
                e.branch(CODE + 0x142, CODE + 0x5c, 1, !again, [length, NONE]);
            }
        } else {
            e.branch(CODE + 0x45, CODE + 0x1d8, 2, false, [NONE; 2]);
            e.load(CODE + 0x4b, 1, TABLE, 8, [NONE; 2]);
        }
        let mut left = None;
        if again {
            let record = &self.records[before as usize];
            let text = e.load(CODE + 0x14a, 2, va, 8, [at, NONE]);
            self.compare_deleted(e, CODE + 0x14c, (record, text), frame);
            left = Some((record.key, record.value));
            let deleted = e.load(CODE + 0x170, 2, DELETED, 8, [NONE; 2]);
            e.store(CODE + 0x170, 0, DELETED, 8, NONE, deleted.plus(1));
        } else {
            e.store(CODE + 0x60, 5, USED, 8, NONE, NONE);
        }
        // `~pair`: an empty pair owns no memory, a deleted one owns its old texts.
        for (pc, offset) in [(0x64, 32), (0x7e, 0)] {
            let text = e.load(CODE + pc, 1, va + offset, 8, [at, NONE]);
            e.branch(CODE + pc + 0xb, CODE + pc + 0x1a, 3, !again, [text, NONE]);
            if let Some((key, value)) = left {
                e.load(CODE + pc + 0xd, 1, va + offset + 16, 8, [at, NONE]);
                let room = u64::from(self.sizes.of(before).room);
                let (old, bytes) = if offset == 0 {
                    (key, KEY_BYTES)
                } else {
                    (value, room)
                };
                let call = (CODE + pc + 0x15, 2);
                libc::free(e, heap, call, (old.va(), text), bytes + 1, frame);
            }
        }
        if again {
            self.deleted -= 1;
            self.records.remove(before);
        }
        let length = e.load(CODE + 0x9f, 1, pair + 8, 8, [NONE; 2]);
        e.store(CODE + 0xa3, 1, va, 8, at, NONE);
        let text = e.load(CODE + 0xa6, 1, pair, 8, [NONE; 2]);
        e.store(CODE + 0xa9, 1, frame + 0x18, 8, NONE, length);
        e.branch(CODE + 0xb2, CODE + 0x190, 2, true, [length, NONE]);
        e.store(CODE + 0x19a, 4, frame + 8, 8, NONE, text);
        e.store(CODE + 0x19f, 1, frame, 8, NONE, NONE);
        let capacity = frame + 0x18;
        let (copy, ready) = libc::create(e, heap, (CODE + 0x1a3, 1), capacity, KEY_BYTES, frame);
        e.load(CODE + 0x1a8, 1, capacity, 8, [NONE; 2]);
        e.load(CODE + 0x1ad, 1, frame, 8, [NONE; 2]);
        e.store(CODE + 0x1b1, 1, va, 8, at, ready);
        e.load(CODE + 0x1b4, 1, frame + 8, 8, [NONE; 2]);
        e.store(CODE + 0x1b9, 1, va + 16, 8, at, NONE);
        let call = (CODE + 0x1c6, 4);
        libc::memcpy(e, call, (copy, ready), (from.va(), text), KEY_BYTES, frame);
        e.load(CODE + 0x1cb, 1, capacity, 8, [NONE; 2]);
        let text = e.load(CODE + 0x1d0, 1, va, 8, [at, NONE]);
        e.jump(CODE + 0x1d3, CODE + 0xcb, 1, TAKEN, [NONE; 2]);
        e.store(CODE + 0xcb, 1, va + 8, 8, at, NONE);
        e.store(CODE + 0xd3, 2, copy + KEY_BYTES, 1, text, NONE);
        e.load(CODE + 0xd7, 1, pair + 0x28, 8, [NONE; 2]);
        e.store(CODE + 0xdb, 1, va + 32, 8, at, NONE);
        e.load(CODE + 0xdf, 1, pair + 0x20, 8, [NONE; 2]);
        // The empty value: `_M_construct` without an allocation.
        e.call(CODE + 0xe6, 0x1e00, 2, frame);
        e.push(0x1e00, 3, frame - 8);
        e.store(0x1e14, 6, frame - 40, 8, NONE, NONE);
        e.branch(0x1e1d, 0x1e60, 2, false, [NONE; 2]);
        e.load(0x1e1f, 1, va + 32, 8, [at, NONE]);
        e.branch(0x1e26, 0x1e50, 2, true, [NONE; 2]);
        e.branch(0x1e53, 0x1e36, 2, true, [NONE; 2]);
        e.store(0x1e36, 1, va + 40, 8, at, NONE);
        e.store(0x1e3a, 1, va + 48, 1, at, NONE);
        e.load(0x1e42, 2, frame - 16, 8, [NONE; 2]);
        e.pop(0x1e43, 2, frame - 8);
        e.ret(0x1e46, CODE + 0xe6, 1, frame);
        e.load(CODE + 0xeb, 1, SLOTS, 8, [NONE; 2]);
        e.load(CODE + 0xef, 1, TABLE, 8, [NONE; 2]);
        for i in 0..3 {
            e.store(CODE + 0xf6 + 8 * i, 2, sp + 0x60 + 8 * i, 8, NONE, NONE);
        }
        e.load(CODE + 0x115, 3, frame + 0x28, 8, [NONE; 2]);
        e.pop(CODE + 0x116, 5, sp - 8);
        e.ret(CODE + 0x11f, INSERT_AT, 1, sp);
        let id = self.records.add(Record {
            hash: key.hash(),
            number: key.number,
            key: Place::new(copy),
            value: Place::default(),
            slot: slot as u32,
            gone: false,
        });
        self.slots[slot] = id;
        self.found(id, at, true)
    }
}
