//! `absl::flat_hash_map<std::string, std::string>` (20220623): a SwissTable.
//!
//! One block of memory holds one control byte per slot, then the slots: the strings of key and value, 64
//! bytes. A control byte holds seven bits of the hash (H2), or marks an empty slot, a deleted one, or the
//! end. The rest of the hash (H1), salted with the block's address, selects the first group. A group is 16
//! control bytes, compared at once (SSE2). Group i lies 16 i bytes after the previous one. The capacity is a
//! power of two less one, of which seven eighths are filled. Built without `NDEBUG` like the other programs:
//! assertions run, and a new key goes to the first free slot of its group or, at random, to the last.
//!
//! gcc 12.2 -O2, path of a find:
//!
//! ```text
//! a00 key and control bytes ; prefetcht2 ; a3a call the hash ; a3f mov control ; mov capacity ; … a6a jne
//! a70 H2 to all bytes of a register ; ab0 movdqu (control,offset) ; pcmpeqb ; pmovmskb ; acc je cd0
//! ad5 tzcnt ; … mask ; shl ; slot ; b11 call equal ; test ; b18 je cb7 ; … cmpb control ; b33 js
//! cd0 movdqa ; pcmpeqb empty ; pmovmskb ; test ; ce4 jne 0 ; the next group ; d08 jae ab0
//! equal 1800 mov (%rsi) ; xor ; mov 8(%rcx) ; cmp 8(%rdi) ; 0d je 10 ; mov ; test ; 18 je ; mov (%rdi) ; mov (%rcx) ; 24 call memcmp
//! ```

mod erase;
mod growth;
mod hash;
mod insert;

use pagewalk_stream::flags::TAKEN;

use self::hash::{SEED, hash_of};
use super::emit::Emit;
use super::globals::MAP;
use super::index::{AHEAD, Found, Gone, Index, IndexStep, Key, Move, Place, same};
use super::libc::{self, KEY_BYTES};
use super::records::{Records, Sizes};
use crate::heap::Heap;
use crate::thread::{NONE, Value};

const SLOT_BYTES: u64 = 64;
/// Control bytes compared at once (`Group::kWidth`).
const GROUP: usize = 16;
/// Control bytes without a key: `kEmpty`, `kDeleted`, `kSentinel`.
const EMPTY: u8 = 0x80;
const DELETED: u8 = 0xfe;
const SENTINEL: u8 = 0xff;
/// Words of the map: control bytes, slots, number of keys, capacity, keys that it can still take.
const CONTROL: u64 = MAP;
const SLOTS: u64 = MAP + 0x8;
const SIZE: u64 = MAP + 0x10;
const CAPACITY: u64 = MAP + 0x18;
const LEFT: u64 = MAP + 0x20;
/// The group of an empty map (`EmptyGroup`), and sixteen empty bytes.
const EMPTY_GROUP: u64 = MAP + 0x200;
const ALL_EMPTY: u64 = MAP + 0x240;
/// The thread's counter by which `ShouldInsertBackwards` decides.
const COUNTER: u64 = MAP + 0x280;

struct Record {
    hash: u64,
    number: u64,
    key: Place,
    value: Place,
    slot: u32,
}

/// The block: slots, and control bytes followed by the sentinel and a copy of the first fifteen.
struct Block {
    control: Vec<u8>,
    /// Number of the record of each slot.
    ids: Vec<u32>,
    at: u64,
}

/// A SwissTable of records.
pub struct Flat {
    block: Block,
    records: Records<Record>,
    sizes: Sizes,
    /// Keys that fit into empty slots before the map grows (`growth_left`).
    left: usize,
    counter: u64,
    growth: Option<growth::Growth>,
    /// Recorded moves (see [`Index::record_moves`]).
    moves: Option<Vec<Move>>,
}

impl Block {
    /// A block of this capacity at `at`, with all slots empty.
    fn new(capacity: usize, at: u64) -> Self {
        let mut control = vec![EMPTY; capacity + GROUP];
        control[capacity] = SENTINEL;
        Block {
            control,
            ids: vec![0; capacity],
            at,
        }
    }

    /// The block of an empty map.
    fn none() -> Self {
        let mut control = vec![EMPTY; GROUP];
        control[0] = SENTINEL;
        Block {
            control,
            ids: Vec::new(),
            at: EMPTY_GROUP,
        }
    }

    fn capacity(&self) -> usize {
        self.ids.len()
    }

    /// Size of the block, and offset of its slots, in bytes.
    fn bytes(capacity: usize) -> (u64, u64) {
        let slots = (capacity as u64 + 0x17) & !7;
        (slots + SLOT_BYTES * capacity as u64, slots)
    }

    fn slot_va(&self, slot: usize) -> u64 {
        self.at + Self::bytes(self.capacity()).1 + SLOT_BYTES * slot as u64
    }

    fn set(&mut self, slot: usize, byte: u8) {
        self.control[slot] = byte;
        let again = self.again(slot);
        self.control[again] = byte;
    }

    /// Position of the copy of `slot`'s control byte behind the sentinel.
    fn again(&self, slot: usize) -> usize {
        let mask = self.capacity();
        (slot.wrapping_sub(GROUP - 1) & mask) + ((GROUP - 1) & mask)
    }

    /// Bitmap of the bytes of the group at `at` that satisfy `is`.
    #[inline(always)]
    fn which(&self, at: usize, is: impl Fn(u8) -> bool) -> u32 {
        let group = &self.control[at..at + GROUP];
        (0..GROUP).fold(0, |bits, i| bits | u32::from(is(group[i])) << i)
    }

    /// First position of a search for `hash`.
    fn first(&self, hash: u64) -> usize {
        (hash >> 7 ^ self.at >> 12) as usize & self.capacity()
    }
}

/// Seven bits of the hash.
fn h2(hash: u64) -> u8 {
    (hash & 0x7f) as u8
}

/// Code of a search, and its instruction counts: before the groups, per group, per equal byte.
#[derive(Clone, Copy)]
struct Way {
    code: u64,
    head: (u16, u64),
    group: (u16, u64),
    equal: (u16, u64, u64),
    /// True if the compared register and another word are spilled to the stack.
    spilled: bool,
}

const FIND: Way = Way {
    code: 0xa00,
    head: (9, 5),
    group: (3, 1),
    equal: (6, 4, 2),
    spilled: true,
};
const INSERT: Way = Way {
    code: 0x20e3,
    head: (11, 4),
    group: (8, 3),
    equal: (10, 2, 2),
    spilled: false,
};
/// The search of an assertion after an insertion.
const AGAIN: Way = Way {
    code: 0x1200,
    head: (6, 1),
    group: (3, 1),
    equal: (10, 2, 4),
    spilled: false,
};

impl Flat {
    /// An empty map for values of `value_bytes`.
    pub fn new(value_bytes: u64) -> Self {
        Flat {
            block: Block::none(),
            records: Records::default(),
            sizes: Sizes::new(value_bytes),
            left: 0,
            counter: 0,
            growth: None,
            moves: None,
        }
    }

    /// Loads the view of the key, prefetches the first control bytes, and computes the hash.
    #[inline(always)]
    fn hash_key<E: Emit>(&self, e: &mut E, way: Way, key: &Key, sp: u64) -> Value {
        let code = way.code;
        e.store(code + 0x7, 2, sp + 0x20, 8, NONE, NONE);
        let control = e.load(code + 0xe, 1, CONTROL, 8, [NONE; 2]);
        e.load(code + 0x15, 1, self.block.at, 1, [control, NONE]);
        let text = e.load(code + 0x18, 1, key.object, 8, [NONE; 2]);
        let view = sp + 0x90;
        e.store(code + 0x22, 1, view, 8, NONE, text);
        let length = e.load(code + 0x2a, 2, key.object + 8, 8, [NONE; 2]);
        e.store(code + 0x32, 3, view + 8, 8, NONE, length);
        hash::emit(e, (code + 0x3a, 1), (view, key.text), sp)
    }

    /// The slot of the key, if present, and the value that produces its address.
    #[inline(always)]
    fn search<E: Emit>(
        &self,
        e: &mut E,
        way: Way,
        key: &Key,
        (hash, hashed): (u64, Value),
        sp: u64,
    ) -> Option<(usize, Value)> {
        let code = way.code;
        let control = e.load(code + 0x3f, 1, CONTROL, 8, [NONE; 2]);
        let capacity = e.load(code + 0x46, 1, CAPACITY, 8, [NONE; 2]);
        e.store(code + 0x65, 8, sp + 0x40, 8, NONE, NONE);
        e.branch(code + 0x6a, code + 0x480, 1, false, [capacity, NONE]);
        e.load(code + 0x88, way.head.0, SLOTS, 8, [NONE; 2]);
        for i in 0..way.head.1 {
            e.store(code + 0x8f + 4 * i, 1, sp + 8 * i, 8, NONE, NONE);
        }
        let mask = self.block.capacity();
        let mut at = self.block.first(hash);
        let mut step = 0;
        let tag = h2(hash);
        // Shift, exclusive or and mask first, then only additions.
        let offset = hashed.plus(3);
        loop {
            let va = self.block.at + at as u64;
            let group = e.load(code + 0xb0, 2, va, 16, [control.plus(1), offset]);
            for i in 0..way.group.1 {
                e.store(code + 0xbf + 4 * i, 1, sp + 0x30 + 16 * i, 16, NONE, group);
            }
            if way.spilled {
                // H2 in all sixteen bytes.
                e.load(code + 0xb5, 1, sp + 0x10, 16, [NONE; 2]);
            }
            let mut bits = self.block.which(at, |b| b == tag);
            // Comparison and movemask, then the position of the bit.
            let bitmask = group.plus(4);
            e.branch(
                code + 0xcc,
                code + 0x2d0,
                way.group.0,
                bits == 0,
                [bitmask, NONE],
            );
            while bits != 0 {
                let slot = (at + bits.trailing_zeros() as usize) & mask;
                let record = &self.records[self.block.ids[slot] as usize];
                let slot_va = self.block.slot_va(slot);
                let slot_at = bitmask.plus(8);
                for i in 0..way.equal.1 {
                    e.load(code + 0xd5 + 5 * i, 1, sp + 8 * i, 8, [NONE; 2]);
                }
                let view = sp + 0xa0;
                e.store(code + 0x101, way.equal.0, view, 8, NONE, slot_at);
                for i in 1..way.equal.2 {
                    e.store(code + 0x101 + 5 * i, 1, view + 8 * i, 8, NONE, slot_at);
                }
                let is_it = record.number == key.number;
                self.equal(e, code + 0x111, key, (record, slot_va, slot_at, view), sp);
                e.branch(code + 0x118, code + 0x2b7, 2, !is_it, [NONE; 2]);
                if is_it {
                    // The iterator's assertion: the slot's control byte is full.
                    let byte = self.block.at + slot as u64;
                    if way.spilled {
                        // A spilled register of the loop.
                        e.load(code + 0x122, 2, sp, 8, [NONE; 2]);
                    }
                    let insns = if way.spilled { 1 } else { 3 };
                    e.branch(code + 0x12a, code + 0x430, insns, false, [NONE; 2]);
                    let full = e.load(code + 0x130, 0, byte, 1, [control, slot_at]);
                    e.branch(code + 0x133, code + 0x3d8, 2, false, [full, NONE]);
                    return Some((slot, slot_at));
                }
                bits &= bits - 1;
                e.branch(code + 0x2bd, code + 0xd4, 3, bits != 0, [bitmask, NONE]);
            }
            let none = e.load(code + 0x2d0, 1, sp + 0x30, 16, [NONE; 2]);
            e.load(code + 0x2d6, 1, ALL_EMPTY, 16, [NONE; 2]);
            let ends = self.block.which(at, |b| b == EMPTY) != 0;
            let on = [none.plus(4), NONE];
            e.branch(code + 0x2e4, 0, 3, ends, on);
            if ends {
                return None;
            }
            step += GROUP;
            let stepped = e.load(code + 0x2ea, 1, sp + 0x40, 8, [NONE; 2]);
            e.store(code + 0x2ea, 0, sp + 0x40, 8, NONE, stepped.plus(1));
            e.load(code + 0x2f0, 2, sp + 0x40, 8, [NONE; 2]);
            e.branch(code + 0x308, code + 0xb0, 5, true, [NONE; 2]);
            at = (at + step) & mask;
        }
    }

    /// `EqualElement`: lengths, then characters.
    #[inline(always)]
    fn equal<E: Emit>(
        &self,
        e: &mut E,
        site: u64,
        key: &Key,
        (record, slot_va, slot_at, view): (&Record, u64, Value, u64),
        sp: u64,
    ) {
        const CODE: u64 = 0x1800;
        e.call(site, CODE, 1, sp);
        let element = e.load(CODE, 1, view, 8, [NONE; 2]);
        let length = e.load(CODE + 0x5, 2, slot_va + 8, 8, [element, slot_at]);
        let mine = e.load(CODE + 0x9, 1, key.object + 8, 8, [NONE; 2]);
        e.branch(CODE + 0xd, CODE + 0x10, 1, true, [length, mine]);
        e.branch(CODE + 0x18, CODE + 0xf, 3, false, [length, NONE]);
        let text = e.load(CODE + 0x1e, 2, key.object, 8, [NONE; 2]);
        let other = e.load(CODE + 0x21, 1, slot_va, 8, [element, slot_at]);
        if E::LOUD {
            let equal = same(record.number, key.number);
            let (a, b) = ((record.key.va(), other), (key.text, text));
            libc::memcmp(e, (CODE + 0x24, 1), a, b, equal, sp - 16);
        }
        e.ret(CODE + 0x32, site, 4, sp);
    }

    fn found(&self, slot: usize, at: Value, fresh: bool) -> Found {
        Found {
            id: self.block.ids[slot],
            record: self.block.slot_va(slot),
            at,
            fresh,
        }
    }

    /// `CapacityToGrowth`.
    fn room(capacity: usize) -> usize {
        capacity - capacity / 8
    }

    /// Slot for a new key with this hash (`find_first_non_full`). Its code begins at `pc` and reads the stack
    /// at `sp`.
    #[inline(always)]
    fn first_free<E: Emit>(
        &mut self,
        e: &mut E,
        pc: u64,
        (hash, hashed): (u64, Value),
        sp: u64,
    ) -> usize {
        let mask = self.block.capacity();
        let mut at = self.block.first(hash);
        let mut step = 0;
        loop {
            let va = self.block.at + at as u64;
            let group = e.load(pc, 1, va, 16, [hashed.plus(3), NONE]);
            // Empty and deleted bytes compare below the sentinel.
            let bits = self.block.which(at, |b| b == EMPTY || b == DELETED);
            e.branch(pc + 0x13, pc - 0x13, 5, bits == 0, [group.plus(4), NONE]);
            if bits == 0 {
                step += GROUP;
                at = (at + step) & mask;
                e.branch(pc - 0x6, pc + 0x15c, 5, false, [NONE; 2]);
                continue;
            }
            let small = mask < GROUP - 1;
            e.branch(pc + 0x1c, pc + 0x85, 3, !small, [NONE; 2]);
            let mut back = false;
            if !small {
                back = self.backwards(e, pc + 0x88, hash, sp);
                e.load(pc + 0x8d, 1, CONTROL, 8, [NONE; 2]);
                e.load(pc + 0x91, 1, CAPACITY, 8, [NONE; 2]);
                e.branch(pc + 0x97, pc + 0x1e, 2, !back, [NONE; 2]);
            }
            let bit = if back {
                e.jump(pc + 0xa2, pc + 0x2c, 4, TAKEN, [NONE; 2]);
                bits.ilog2()
            } else {
                e.compute(pc + 0x1e, 5, 6, [group, NONE]);
                bits.trailing_zeros()
            };
            return (at + bit as usize) & mask;
        }
    }

    /// `ShouldInsertBackwards`: decides by a counter of the thread.
    fn backwards<E: Emit>(&mut self, e: &mut E, site: u64, hash: u64, sp: u64) -> bool {
        let code = super::emit::Library::Backwards.code();
        e.call_library(site, super::emit::Library::Backwards, 2, sp);
        e.push(code, 2, sp - 8);
        // __tls_get_addr
        e.call(code + 0x1c, code + 0x100, 8, sp - 32);
        e.load(code + 0x100, 2, COUNTER + 0x20, 8, [NONE; 2]);
        e.load(code + 0x10c, 2, COUNTER + 0x28, 8, [NONE; 2]);
        e.branch(code + 0x114, code + 0x140, 1, false, [NONE; 2]);
        e.load(code + 0x118, 2, COUNTER + 0x30, 8, [NONE; 2]);
        e.branch(code + 0x120, code + 0x140, 2, false, [NONE; 2]);
        e.ret(code + 0x128, code + 0x1c, 2, sp - 32);
        let old = e.load(code + 0x24, 1, COUNTER, 8, [NONE; 2]);
        e.store(code + 0x2b, 2, COUNTER, 8, NONE, old.plus(1));
        e.compute(code + 0x41, 12, 14, [old, NONE]);
        e.pop(code + 0x5e, 2, sp - 8);
        e.ret(code + 0x60, site, 2, sp);
        self.counter += 1;
        let random = self.counter ^ COUNTER;
        (hash >> 7 ^ self.block.at >> 12 ^ random) % 13 > 6
    }
}

impl Index for Flat {
    const HOST_BYTES: u64 = 48;
    const PAIR: u64 = 0;
    const FRAME: u64 = 0xe0;

    fn sizes(&mut self) -> &mut Sizes {
        &mut self.sizes
    }

    fn warm(&self, numbers: &[u64]) {
        let mut at = [0; AHEAD];
        if self.block.capacity() == 0 {
            return;
        }
        for (at, number) in at.iter_mut().zip(numbers) {
            let hash = hash_of(*number, SEED);
            let first = self.block.first(hash);
            let bits = self.block.which(first, |b| b == h2(hash));
            let slot = (first + bits.trailing_zeros() as usize) & self.block.capacity();
            *at = self.block.ids.get(slot).copied().unwrap_or(0);
        }
        let record = |at: &u32| self.records.get(*at).map_or(0, |r| r.number);
        std::hint::black_box(at.iter().map(record).fold(0, u64::wrapping_add));
    }

    fn look<E: Emit>(&mut self, e: &mut E, _: &mut Heap, key: &Key, sp: u64) -> Option<Found> {
        let hashed = self.hash_key(e, FIND, key, sp);
        let hash = hash_of(key.number, SEED);
        let (slot, at) = self.search(e, FIND, key, (hash, hashed), sp)?;
        Some(self.found(slot, at, false))
    }

    fn entry<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, key: &Key, sp: u64) -> IndexStep {
        let hashed = self.hash_key(e, INSERT, key, sp);
        let hash = hash_of(key.number, SEED);
        if let Some((slot, at)) = self.search(e, INSERT, key, (hash, hashed), sp) {
            // Computes the slot's address again from its number.
            e.load(0x220d, 4, SLOTS, 8, [NONE; 2]);
            e.load(0x2214, 1, CONTROL, 8, [NONE; 2]);
            return IndexStep::Done(self.found(slot, at, false));
        }
        self.prepare(e, heap, key, (hash, hashed), sp)
    }

    fn proceed<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, sp: u64) -> IndexStep {
        let Some(mut growth) = self.growth.take() else {
            return IndexStep::More;
        };
        if !self.grow(e, heap, &mut growth, sp) {
            self.growth = Some(growth);
            return IndexStep::More;
        }
        IndexStep::Done(self.insert_grown(e, heap, &growth.key, sp))
    }

    fn erase<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, key: &Key, sp: u64) -> Option<Gone> {
        self.take_out(e, heap, key, sp)
    }

    fn key_text(&self, id: u32) -> u64 {
        self.records[id as usize].key.va()
    }

    fn record_moves(&mut self) {
        self.moves = Some(Vec::new());
    }

    fn moves(&mut self) -> Vec<Move> {
        self.moves.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn value_object(&self, found: &Found) -> u64 {
        found.record + 32
    }

    fn value_text(&mut self, id: u32) -> &mut Place {
        &mut self.records[id as usize].value
    }

    /// The smallest block of which seven eighths are enough.
    fn footprint(keys: u64, value: u64) -> u64 {
        let chunk = crate::heap::chunk;
        let mut capacity = 1;
        while (Self::room(capacity) as u64) < keys {
            capacity = 2 * capacity + 1;
        }
        let texts = keys * (chunk(KEY_BYTES + 1) + chunk(value + 1));
        texts + Block::bytes(capacity).0
    }
}

#[cfg(test)]
mod tests {
    use super::hash::hash_of;
    use super::{Flat, GROUP, h2};
    use crate::kv::check;

    /// Every full control byte matches its record's hash, in a group that a search reaches before any group
    /// with an empty byte. The bytes behind the sentinel repeat the first ones.
    pub(super) fn check_table(flat: &Flat) {
        let capacity = flat.block.capacity();
        let full = flat.block.control[..capacity].iter().filter(|b| **b < 0x80);
        assert_eq!(full.count(), flat.records.len());
        assert!(flat.records.len() + flat.left <= Flat::room(capacity));
        if capacity >= GROUP - 1 {
            let (first, again) = (
                &flat.block.control[..GROUP - 1],
                &flat.block.control[capacity + 1..],
            );
            assert_eq!(first, again);
        }
        for (id, record) in flat.records.iter() {
            let slot = record.slot as usize;
            assert_eq!(flat.block.ids[slot], id);
            assert_eq!(flat.block.control[slot], h2(record.hash));
            let (mut at, mut step) = (flat.block.first(record.hash), 0);
            while (slot.wrapping_sub(at) & capacity) >= GROUP {
                assert_eq!(flat.block.which(at, |b| b == super::EMPTY), 0);
                step += GROUP;
                at = (at + step) & capacity;
                assert!(step <= capacity);
            }
        }
    }

    /// Printed by `absl::Hash<std::string>` of 20220623 in a program whose seed had this address.
    #[test]
    fn hashes_are_those_of_abseil() {
        const PRINTED: [(u64, u64, u64); 2] = [
            (
                0x5625_ca33_1da8,
                6_284_781_860_667_377_211,
                0x6f52_ffde_e298_543f,
            ),
            (0x5625_ca33_1da8, 0, 0xfe56_8802_0237_4628),
        ];
        for (seed, number, hash) in PRINTED {
            assert_eq!(hash_of(number, seed), hash);
        }
    }

    /// Inserts and erasures fill a block with deleted slots. It is cleaned without growing.
    #[test]
    fn deleted_slots_do_not_make_it_grow() {
        let mut flat = Flat::new(64);
        let mut requests: Vec<_> = (1..=390).map(|n| (n, Some(64))).collect();
        for n in 0..6000 {
            requests.push((n + 391, Some(64)));
            requests.push((n + 1, None));
        }
        check::erasing_against_oracle(&mut flat, &requests);
        check_table(&flat);
        assert_eq!((flat.records.len(), flat.block.capacity()), (390, 511));
    }

    proptest::proptest! {
        #[test]
        fn erased_keys_leave_a_slot_that_is_found_again(requests in check::requests()) {
            let mut flat = Flat::new(64);
            check::erasing_against_oracle(&mut flat, &requests);
            check_table(&flat);
        }

        #[test]
        fn every_key_is_in_the_groups_of_its_hash(
            numbers in proptest::collection::vec(0u64..3000, 1..600),
        ) {
            let mut flat = Flat::new(64);
            check::against_oracle(&mut flat, &numbers);
            check_table(&flat);
        }
    }
}
