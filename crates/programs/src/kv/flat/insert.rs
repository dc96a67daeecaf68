//! Insertion of a new key (`prepare_insert`, `emplace_at`).
//!
//! gcc 12.2 -O2:
//!
//! ```text
//! 23ba … call prepare_insert ; 23f9 mov slots ; … 242b call _M_construct ; 2430 an empty value ; … 245d cmpb ; js ; 246d call the search again
//! prepare_insert 2800 push six ; … mov control ; mov capacity ; … 31 jne ; 5b movdqu ; pcmpgtb ; pmovmskb ; 6e je ; … 77 ja e0
//!   e0 mov ; call ShouldInsertBackwards ; … f2 je 79 ; 79 tzcnt ; … 87 mov left ; lea ; 8f movzbl ; test ; 96 je ff
//!   98 addq size ; cmp ; … b0 mov left ; cmp ; b7 jae ; c1 movb ; … cd movb ; pop six ; df ret
//!   ff cmp ; 103 je 98 ; … 12f jbe ; 135 call resize ; … 12f ja drop_deletes
//! ```

use pagewalk_stream::flags::TAKEN;

use super::growth::Growth;
use super::hash::{self, SEED, hash_of};
use super::{AGAIN, CAPACITY, CONTROL, DELETED, EMPTY, Flat, LEFT, Record, SIZE, SLOTS, h2};
use crate::heap::Heap;
use crate::kv::emit::Emit;
use crate::kv::index::{Found, IndexStep, Key, Place};
use crate::kv::libc::{self, KEY_BYTES};
use crate::thread::{NONE, Value};

const PREPARE: u64 = 0x2800;
const SITE: u64 = 0x23d7;

impl Flat {
    /// `prepare_insert`, which may first have to make room, and the rest of the insertion.
    pub(super) fn prepare<E: Emit>(
        &mut self,
        e: &mut E,
        heap: &mut Heap,
        key: &Key,
        (hash, hashed): (u64, Value),
        sp: u64,
    ) -> IndexStep {
        for i in 0..3 {
            e.load(0x23c0 + 5 * i, 1, sp + 8 * i, 8, [NONE; 2]);
        }
        e.call(SITE, PREPARE, 1, sp);
        let frame = sp - 56 - 8;
        e.push(PREPARE, 6, sp - 8);
        e.load(PREPARE + 0x18, 4, CONTROL, 8, [NONE; 2]);
        e.load(PREPARE + 0x1b, 1, CAPACITY, 8, [NONE; 2]);
        e.branch(PREPARE + 0x31, PREPARE + 0x215, 6, false, [NONE; 2]);
        e.jump(PREPARE + 0x41, PREPARE + 0x5b, 4, TAKEN, [NONE; 2]);
        let capacity = self.block.capacity();
        // An empty map points to a static group without free slots.
        let slot = if capacity == 0 {
            0
        } else {
            self.first_free(e, PREPARE + 0x5b, (hash, hashed), frame)
        };
        let byte = self.block.control[slot];
        e.load(PREPARE + 0x87, 1, LEFT, 8, [NONE; 2]);
        let held = e.load(
            PREPARE + 0x8f,
            2,
            self.block.at + slot as u64,
            1,
            [hashed, NONE],
        );
        e.branch(PREPARE + 0x96, PREPARE + 0xff, 2, self.left == 0, [NONE; 2]);
        if self.left == 0 {
            let again = byte == DELETED;
            e.branch(PREPARE + 0x103, PREPARE + 0x98, 2, again, [held, NONE]);
            if !again {
                self.growth = Some(self.make_room(e, heap, key, frame));
                return IndexStep::More;
            }
        }
        IndexStep::Done(self.insert(e, heap, key, slot, (hash, hashed), sp))
    }

    /// `rehash_and_grow_if_necessary`: a larger block, or this one without deleted slots.
    fn make_room<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, key: &Key, sp: u64) -> Growth {
        let capacity = self.block.capacity();
        e.branch(
            PREPARE + 0x108,
            PREPARE + 0x1d6,
            2,
            capacity == 0,
            [NONE; 2],
        );
        let larger = capacity > 16;
        e.branch(PREPARE + 0x112, PREPARE + 0x12d, 2, !larger, [NONE; 2]);
        let drops = larger && 32 * self.records.len() <= 25 * capacity;
        if larger {
            e.load(PREPARE + 0x114, 1, SIZE, 8, [NONE; 2]);
            e.branch(PREPARE + 0x127, PREPARE + 0x208, 5, drops, [NONE; 2]);
        }
        if drops {
            return Growth::without_deletions(self, e, key, sp);
        }
        Growth::to(self, e, heap, (2 * capacity + 1, key), sp)
    }

    /// Continues [`prepare`](Self::prepare) after room was made: searches for a free slot again.
    pub(super) fn insert_grown<E: Emit>(
        &mut self,
        e: &mut E,
        heap: &mut Heap,
        key: &Key,
        sp: u64,
    ) -> Found {
        let hash = hash_of(key.number, SEED);
        let frame = sp - 56 - 8;
        e.load(PREPARE + 0x13a, 1, CONTROL, 8, [NONE; 2]);
        e.load(PREPARE + 0x13e, 1, CAPACITY, 8, [NONE; 2]);
        e.branch(PREPARE + 0x153, PREPARE + 0x215, 6, false, [NONE; 2]);
        let slot = self.first_free(e, PREPARE + 0x177, (hash, NONE), frame);
        e.load(PREPARE + 0x1aa, 1, LEFT, 8, [NONE; 2]);
        e.load(
            PREPARE + 0x1ae,
            2,
            self.block.at + slot as u64,
            1,
            [NONE; 2],
        );
        self.insert(e, heap, key, slot, (hash, NONE), sp)
    }

    fn insert<E: Emit>(
        &mut self,
        e: &mut E,
        heap: &mut Heap,
        key: &Key,
        slot: usize,
        (hash, hashed): (u64, Value),
        sp: u64,
    ) -> Found {
        let size = e.load(PREPARE + 0x98, 1, SIZE, 8, [NONE; 2]);
        e.store(PREPARE + 0x98, 0, SIZE, 8, NONE, size.plus(1));
        e.store(PREPARE + 0xb0, 6, LEFT, 8, NONE, NONE);
        e.branch(PREPARE + 0xb7, PREPARE + 0x234, 2, false, [NONE; 2]);
        self.left -= usize::from(self.block.control[slot] == EMPTY);
        let byte = self.block.at + slot as u64;
        let again = self.block.again(slot);
        e.store(PREPARE + 0xc1, 2, byte, 1, hashed, NONE);
        e.store(
            PREPARE + 0xcd,
            4,
            self.block.at + again as u64,
            1,
            hashed,
            NONE,
        );
        self.block.set(slot, h2(hash));
        e.pop(PREPARE + 0xd5, 6, sp - 8);
        e.ret(PREPARE + 0xdf, SITE, 2, sp);
        // The pair: a copy of the key and an empty value.
        let va = self.block.slot_va(slot);
        let slots = e.load(0x23f9, 1, SLOTS, 8, [NONE; 2]);
        let at = slots.plus(3);
        e.load(0x2406, 3, key.object + 8, 8, [NONE; 2]);
        e.store(0x241c, 5, va, 8, at, NONE);
        let text = e.load(0x2420, 1, key.object, 8, [NONE; 2]);
        let from = (key.text, text);
        let copy = construct(e, heap, 0x242b, (va, at), from, sp);
        e.load(0x2434, 2, SLOTS, 8, [NONE; 2]);
        e.store(0x243b, 1, va + 48, 1, at, NONE);
        e.store(0x2440, 1, va + 32, 8, at, NONE);
        e.store(0x2446, 2, va + 40, 8, at, NONE);
        e.load(0x2450, 3, CONTROL, 8, [NONE; 2]);
        e.branch(0x2457, 0x24fa, 1, false, [NONE; 2]);
        let full = e.load(0x245d, 0, byte, 1, [at, NONE]);
        e.branch(0x2462, 0x39, 2, false, [full, NONE]);
        let id = self.records.add(Record {
            hash,
            number: key.number,
            key: copy,
            value: Place::default(),
            slot: slot as u32,
        });
        self.block.ids[slot] = id;
        // An assertion looks the key up: the view's key is now the slot's own.
        let own = Key {
            object: va,
            text: copy.va(),
            ..*key
        };
        e.load(0x2468, 1, sp + 0x20, 8, [NONE; 2]);
        e.call(0x246d, AGAIN.code, 1, sp);
        e.push(AGAIN.code, 6, sp - 8);
        let frame = sp - 56 - 0x68;
        let control = e.load(AGAIN.code + 0x14, 4, CONTROL, 8, [NONE; 2]);
        let text = e.load(AGAIN.code + 0x17, 1, va, 8, [at, NONE]);
        e.load(AGAIN.code + 0x21, 2, self.block.at, 1, [control, NONE]);
        let length = e.load(AGAIN.code + 0x24, 1, va + 8, 8, [at, NONE]);
        e.store(AGAIN.code + 0x2d, 2, frame + 0x50, 8, NONE, text);
        e.store(AGAIN.code + 0x32, 1, frame + 0x18, 8, NONE, NONE);
        e.store(AGAIN.code + 0x37, 1, frame + 0x58, 8, NONE, length);
        let view = (frame + 0x50, own.text);
        let hashed = hash::emit(e, (AGAIN.code + 0x3c, 1), view, frame);
        self.search(e, AGAIN, &own, (hash, hashed), frame);
        e.pop(AGAIN.code + 0x115, 6, sp - 8);
        e.ret(AGAIN.code + 0x11f, 0x246d, 3, sp);
        e.branch(0x2475, 0x24c0, 2, true, [NONE; 2]);
        for i in 0..2 {
            let full = e.load(0x24c0 + 5 * i, 0, byte, 1, [NONE; 2]);
            e.branch(0x24c3 + 5 * i, 0x2482, 2, false, [full, NONE]);
        }
        e.branch(0x24cf, 0x21aa, 2, true, [NONE; 2]);
        e.load(0x21b1, 3, SLOTS, 8, [NONE; 2]);
        e.load(0x21b8, 1, CONTROL, 8, [NONE; 2]);
        e.branch(0x21bf, 0x24fa, 1, false, [NONE; 2]);
        let full = e.load(0x21c5, 0, byte, 1, [NONE; 2]);
        e.branch(0x21c9, 0x2239, 2, false, [full, NONE]);
        self.found(slot, at, true)
    }
}

/// `std::string::_M_construct` of a key's text in the object at `object`.
fn construct<E: Emit>(
    e: &mut E,
    heap: &mut Heap,
    site: u64,
    (object, at): (u64, Value),
    from: (u64, Value),
    sp: u64,
) -> Place {
    const CODE: u64 = 0x1e00;
    e.call(site, CODE, 2, sp);
    e.push(CODE, 3, sp - 8);
    let frame = sp - 32 - 0x10;
    e.store(CODE + 0x14, 6, frame + 8, 8, NONE, NONE);
    e.branch(CODE + 0x1d, CODE + 0x60, 2, true, [NONE; 2]);
    let (copy, ready) = libc::create(e, heap, (CODE + 0x67, 3), frame + 8, KEY_BYTES, frame);
    e.store(CODE + 0x6c, 1, object, 8, at, ready);
    let capacity = e.load(CODE + 0x73, 2, frame + 8, 8, [NONE; 2]);
    e.store(CODE + 0x78, 1, object + 16, 8, at, capacity);
    libc::memcpy(e, (CODE + 0x82, 3), (copy, ready), from, KEY_BYTES, frame);
    e.load(CODE + 0x87, 1, frame + 8, 8, [NONE; 2]);
    let text = e.load(CODE + 0x8c, 1, object, 8, [at, NONE]);
    e.jump(CODE + 0x90, CODE + 0x36, 1, TAKEN, [NONE; 2]);
    e.store(CODE + 0x36, 1, object + 8, 8, at, NONE);
    e.store(CODE + 0x3a, 1, copy + KEY_BYTES, 1, text, NONE);
    e.pop(CODE + 0x43, 3, sp - 8);
    e.ret(CODE + 0x46, site, 2, sp);
    Place::new(copy)
}
