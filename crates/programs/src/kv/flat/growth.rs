//! Growth: every pair moves to a block of twice the capacity (`resize`), or the deleted slots of this block
//! become empty (`drop_deletes_without_resize`).
//!
//! gcc 12.2 -O2:
//!
//! ```text
//! resize 1900 push six ; … 73 call operator new ; … 115 call memset ; … 147 mov ; cmp ; 14f je ; 155 cmpb (%r14) ; 159 js 13f
//!   15b the key's hash ; … 1c7 movdqu ; pcmpgtb ; pmovmskb ; 1db je ; … 38c call ShouldInsertBackwards
//!   207 control byte twice ; 227 strings move: 22b mov ; mov ; cmp ; 236 je … 291 je 13f : 13f add ; add
//! drop_deletes b000 … call ConvertDeletedToEmptyAndFullToDeleted ; 8f cmpb deleted ; 94 jne 78 ; the key's hash ; …
//!   14b the free slot ; 157 je ; 161 the same group: control byte twice, jmp 7c ; 230 another: strings move
//! ```

use super::hash::{self, SEED};
use super::{Block, CAPACITY, CONTROL, DELETED, EMPTY, Flat, GROUP, LEFT, SIZE, SLOTS, h2};
use crate::heap::Heap;
use crate::kv::emit::Emit;
use crate::kv::index::{Key, Move};
use crate::kv::libc;
use crate::thread::{NONE, Value};

/// Slots that one step processes.
const STEP: usize = 256;
const RESIZE: u64 = 0x1900;
const DROP: u64 = 0xb000;

/// A growth in progress.
pub struct Growth {
    /// The old block. `None` if pairs stay in their block.
    old: Option<Block>,
    /// Control bytes already written, and slots already processed.
    cleared: usize,
    done: usize,
    /// The key to insert afterwards.
    pub key: Key,
}

impl Growth {
    /// Starts a move to a block of another capacity, which becomes the map's block.
    pub fn to<E: Emit>(
        flat: &mut Flat,
        e: &mut E,
        heap: &mut Heap,
        (capacity, key): (usize, &Key),
        sp: u64,
    ) -> Self {
        e.call(0x2935, RESIZE, 3, sp);
        e.push(RESIZE, 6, sp - 8);
        let frame = sp - 56 - 0x48;
        for (i, word) in [CAPACITY, CONTROL, SLOTS].into_iter().enumerate() {
            e.load(RESIZE + 0x44 + 4 * i as u64, 4, word, 8, [NONE; 2]);
        }
        e.store(RESIZE + 0x48, 4, CAPACITY, 8, NONE, NONE);
        let (bytes, _) = Block::bytes(capacity);
        let (at, ready) = libc::new(e, heap, (RESIZE + 0x73, 6), bytes, frame);
        e.store(RESIZE + 0xa7, 8, CONTROL, 8, NONE, ready);
        e.store(RESIZE + 0x111, 9, SLOTS, 8, NONE, ready);
        let old = std::mem::replace(&mut flat.block, Block::new(capacity, at));
        Growth {
            old: Some(old),
            cleared: 0,
            done: 0,
            key: *key,
        }
    }

    /// Starts a cleaning of the same block: full slots are to be placed again, deleted ones become empty.
    pub fn without_deletions<E: Emit>(flat: &mut Flat, e: &mut E, key: &Key, sp: u64) -> Self {
        e.call(0x2a0b, DROP, 2, sp);
        e.push(DROP, 6, sp - 8);
        let capacity = flat.block.capacity();
        for byte in &mut flat.block.control[..capacity] {
            *byte = if *byte < EMPTY { DELETED } else { EMPTY };
        }
        for again in 0..GROUP - 1 {
            flat.block.control[capacity + 1 + again] = flat.block.control[again];
        }
        Growth {
            old: None,
            cleared: 0,
            done: 0,
            key: *key,
        }
    }
}

impl Flat {
    /// One step of a growth. Returns true when it is complete.
    pub(super) fn grow<E: Emit>(
        &mut self,
        e: &mut E,
        heap: &mut Heap,
        growth: &mut Growth,
        sp: u64,
    ) -> bool {
        let sp = sp - 56 - 8;
        let frame = sp - 56 - 0x48;
        let capacity = self.block.capacity();
        let control = capacity + GROUP;
        if E::LOUD && growth.cleared < control {
            // `memset`, or a loop that turns deleted bytes into empty ones: 16 KiB per step.
            let end = control.min(growth.cleared + (16 << 10));
            if growth.old.is_some() {
                let at = self.block.at + growth.cleared as u64;
                libc::clear(e, at, (end - growth.cleared) as u64);
            } else {
                for at in (growth.cleared..end).step_by(GROUP) {
                    let va = self.block.at + at as u64;
                    let group = e.load(DROP + 0x410, 1, va, 16, [NONE; 2]);
                    e.store(DROP + 0x428, 6, va, 16, NONE, group.plus(3));
                    e.branch(DROP + 0x42f, DROP + 0x410, 2, at + GROUP < end, [NONE; 2]);
                }
            }
            growth.cleared = end;
            return false;
        }
        let slots = growth.old.as_ref().map_or(capacity, Block::capacity);
        let step = if E::LOUD { STEP } else { usize::MAX };
        let end = slots.min(growth.done.saturating_add(step));
        while growth.done < end {
            let slot = growth.done;
            growth.done += 1;
            match &growth.old {
                Some(old) => {
                    let byte = e.load(RESIZE + 0x155, 3, old.at + slot as u64, 1, [NONE; 2]);
                    let full = old.control[slot] < EMPTY;
                    e.branch(RESIZE + 0x159, RESIZE + 0x13f, 1, !full, [byte, NONE]);
                    if full {
                        let from = (old.ids[slot], old.slot_va(slot));
                        self.carry(e, from, frame);
                        // The moved-from key is an empty string in its object.
                        e.branch(RESIZE + 0x291, RESIZE + 0x13f, 2, true, [NONE; 2]);
                    }
                    e.compute(RESIZE + 0x13f, 2, 1, [NONE; 2]);
                }
                None => {
                    let va = self.block.at + slot as u64;
                    let byte = e.load(DROP + 0x8f, 2, va, 1, [NONE; 2]);
                    let full = self.block.control[slot] == DELETED;
                    e.branch(DROP + 0x94, DROP + 0x78, 1, !full, [byte, NONE]);
                    if full && !self.place_again(e, slot, frame) {
                        growth.done -= 1;
                    }
                    e.load(DROP + 0x78, 1, CAPACITY, 8, [NONE; 2]);
                    e.branch(DROP + 0x86, DROP + 0x8c, 4, true, [NONE; 2]);
                }
            }
        }
        if end < slots {
            return false;
        }
        self.left = Self::room(capacity) - self.records.len();
        e.load(RESIZE + 0x126, 6, SIZE, 8, [NONE; 2]);
        e.store(RESIZE + 0x130, 3, LEFT, 8, NONE, NONE);
        let (code, site) = match growth.old {
            Some(_) => (RESIZE, 0x2935),
            None => (DROP, 0x2a0b),
        };
        e.pop(code + 0x2b1, 6, sp - 8);
        if let Some(old) = growth.old.as_ref().filter(|o| o.capacity() > 0) {
            let (bytes, _) = Block::bytes(old.capacity());
            let at = (old.at, NONE);
            libc::free(e, heap, (code + 0x2f0, 14), at, bytes, sp);
        }
        e.ret(code + 0x2bb, site, 2, sp);
        true
    }

    /// Moves a record to a free slot of the new block.
    fn carry<E: Emit>(&mut self, e: &mut E, (id, from): (u32, u64), sp: u64) {
        let hashed = self.hash_stored(e, RESIZE + 0x179, (id, from), sp);
        let hash = self.records[id as usize].hash;
        let slot = self.first_free(e, RESIZE + 0x1c7, (hash, hashed), sp);
        e.load(RESIZE + 0x1f7, 1, SLOTS, 8, [NONE; 2]);
        self.set_byte(e, RESIZE + 0x20b, slot, h2(hash), hashed);
        let to = self.block.slot_va(slot);
        self.transfer(e, RESIZE + 0x227, from, to);
        self.settle(id, slot, from);
    }

    /// Hash of a key in its slot.
    fn hash_stored<E: Emit>(&self, e: &mut E, pc: u64, (id, at): (u32, u64), sp: u64) -> Value {
        let text = self.records[id as usize].key.va();
        let view = sp + 0x30;
        e.load(pc - 0x1e, 1, at + 8, 8, [NONE; 2]);
        let ready = e.load(pc - 0x1a, 1, at, 8, [NONE; 2]);
        e.store(pc - 0xa, 3, view, 8, NONE, ready);
        e.store(pc - 0x5, 1, view + 8, 8, NONE, NONE);
        let hashed = hash::emit(e, (pc, 1), (view, text), sp);
        e.load(pc + 0x5, 1, CONTROL, 8, [NONE; 2]);
        e.load(pc + 0x8, 1, CAPACITY, 8, [NONE; 2]);
        e.branch(pc + 0x2c, pc + 0x1a0, 9, false, [hashed, NONE]);
        debug_assert_eq!(
            self.records[id as usize].hash,
            hash::hash_of(self.records[id as usize].number, SEED)
        );
        hashed
    }

    /// `SetCtrl`: writes the byte, and its copy behind the sentinel.
    fn set_byte<E: Emit>(&mut self, e: &mut E, pc: u64, slot: usize, byte: u8, at: Value) {
        let again = self.block.again(slot);
        e.branch(pc - 0xa, pc + 0x16e, 3, false, [NONE; 2]);
        e.store(pc, 2, self.block.at + slot as u64, 1, at, NONE);
        e.store(pc + 0x18, 7, self.block.at + again as u64, 1, at, NONE);
        self.block.set(slot, byte);
    }

    /// Moves the two strings of a pair and destroys the empty originals.
    fn transfer<E: Emit>(&self, e: &mut E, pc: u64, from: u64, to: u64) {
        for part in [0, 32] {
            let (a, b) = (from + part, to + part);
            let pc = pc + 0x38 * (part / 32);
            e.store(pc, 2, b, 8, NONE, NONE);
            let text = e.load(pc + 0x4, 1, a, 8, [NONE; 2]);
            e.branch(pc + 0xb, pc + 0xd0, 2, false, [text, NONE]);
            e.store(pc + 0x11, 1, b, 8, NONE, text);
            let room = e.load(pc + 0x15, 1, a + 16, 8, [NONE; 2]);
            e.store(pc + 0x18, 1, b + 16, 8, NONE, room);
            let length = e.load(pc + 0x1c, 1, a + 8, 8, [NONE; 2]);
            e.store(pc + 0x20, 1, b + 8, 8, NONE, length);
            if part == 0 {
                e.store(pc + 0x28, 3, a + 8, 8, NONE, NONE);
                e.store(pc + 0x2c, 2, a, 8, NONE, NONE);
                e.store(pc + 0x30, 1, a + 16, 1, NONE, NONE);
            }
        }
        e.load(pc + 0x70, 1, from, 8, [NONE; 2]);
    }

    /// Sets the slot of record `id`, which was at `from`.
    fn settle(&mut self, id: u32, slot: usize, from: u64) {
        self.block.ids[slot] = id;
        let to = self.block.slot_va(slot);
        let record = &mut self.records[id as usize];
        record.slot = slot as u32;
        let number = record.number;
        if let Some(moves) = &mut self.moves {
            moves.push(Move {
                id,
                number,
                from,
                to,
            });
        }
    }

    /// Places the record of an unprocessed slot. Returns false if another unprocessed record was swapped into
    /// this slot.
    fn place_again<E: Emit>(&mut self, e: &mut E, slot: usize, sp: u64) -> bool {
        let id = self.block.ids[slot];
        let va = self.block.slot_va(slot);
        let hashed = self.hash_stored(e, DROP + 0xbc, (id, va), sp);
        let hash = self.records[id as usize].hash;
        let to = self.first_free(e, DROP + 0x10b, (hash, hashed), sp);
        let (mask, first) = (self.block.capacity(), self.block.first(hash));
        let group = |slot: usize| (slot.wrapping_sub(first) & mask) / GROUP;
        let stays = group(to) == group(slot);
        e.branch(DROP + 0x157, DROP + 0x230, 11, !stays, [hashed, NONE]);
        if stays {
            self.set_byte(e, DROP + 0x171, slot, h2(hash), hashed);
            return true;
        }
        let byte = e.load(
            DROP + 0x234,
            2,
            self.block.at + to as u64,
            1,
            [hashed, NONE],
        );
        let empty = self.block.control[to] == EMPTY;
        e.branch(DROP + 0x23a, DROP + 0x589, 2, empty, [byte, NONE]);
        let to_va = self.block.slot_va(to);
        self.set_byte(e, DROP + 0x259, to, h2(hash), hashed);
        if empty {
            self.transfer(e, DROP + 0x5a0, va, to_va);
            self.set_byte(e, DROP + 0x680, slot, EMPTY, NONE);
            self.settle(id, to, va);
            return true;
        }
        // Swaps the two pairs through one on the stack. The other record is placed next.
        let other = self.block.ids[to];
        for (from, to) in [(va, sp + 0x30), (to_va, va), (sp + 0x30, to_va)] {
            self.transfer(e, DROP + 0x27a, from, to);
        }
        self.settle(id, to, va);
        self.settle(other, slot, to_va);
        false
    }
}
