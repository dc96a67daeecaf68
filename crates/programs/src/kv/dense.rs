//! `google::dense_hash_map<std::string, std::string>` of sparsehash 2.0.3: open addressing in one array of
//! pairs.
//!
//! A slot holds the strings of key and value: 64 bytes. The empty key is the empty string. The number of
//! slots is a power of two, and at most half of them are in use. Probing is quadratic: probe i moves i slots
//! on. Growth copies every pair with its texts to an array of twice the size, then frees the old array and
//! its texts. The hash is `std::hash`.
//!
//! gcc 12.2 -O2, path of a find:
//!
//! ```text
//! 1000 push six ; … 32 call _Hash_bytes ; 41 and ; cmpb $0,0x19(%r12) ; … 73 jmp a0
//! 10a0 mov ; shl $6 ; add table ; aa mov 8(%rax) ; ae mov (%rax) ; b1 cmp empty ; b4 je 120
//! 10b6 cmpb ; mov ; c1 je 78 : 78 test ; jne ; 81 cmp %r10,8(%r9) ; 85 je 190
//! 1190 … 1a5 call memcmp ; … 1b6 jne 8b ; 1bc mov ; jmp 172
//! 108b add $1 ; add ; and ; 95 cmp 0x50(%r12) ; 9a jae ; a0
//! ```

mod erase;
mod growth;
mod insert;

use pagewalk_stream::flags::TAKEN;

use super::emit::Emit;
use super::globals::MAP;
use super::index::{self, AHEAD, Found, Gone, Index, IndexStep, Key, Move, Place, same};
use super::libc::{self, KEY_BYTES};
use super::records::{Records, Sizes};
use crate::heap::Heap;
use crate::thread::{NONE, Value};

const SLOT_BYTES: u64 = 64;
/// Slots of a new table (`HT_DEFAULT_STARTING_BUCKETS`).
const FIRST: usize = 32;
const EMPTY: u32 = u32::MAX;
/// Words of the map: limits, deleted and used slots, slots, the table.
const LIMIT: u64 = MAP;
const DELETED: u64 = MAP + 0x40;
const USED: u64 = MAP + 0x48;
const SLOTS: u64 = MAP + 0x50;
const EMPTY_KEY: u64 = MAP + 0x58;
const TABLE: u64 = MAP + 0x98;
const DELETED_KEY: u64 = MAP + 0x20;
/// Slots that one step of a growth processes.
const STEP: usize = 256;

struct Record {
    hash: u64,
    number: u64,
    key: Place,
    value: Place,
    slot: u32,
    /// True if erased: its slot holds the deleted key, in the memory of its own key.
    gone: bool,
}

/// An open-addressing table of records.
pub struct Dense {
    slots: Vec<u32>,
    records: Records<Record>,
    /// Address of the first slot.
    table: u64,
    sizes: Sizes,
    /// Number of slots with the deleted key. The deleted key exists (`set_deleted_key`) if the program
    /// erases. `consider_shrink`: the next insertion checks whether the table should shrink.
    deleted: usize,
    erases: bool,
    consider_shrink: bool,
    growth: Option<Growth>,
    /// Recorded moves (see [`Index::record_moves`]).
    moves: Option<Vec<Move>>,
}

/// The copy by `dense_hashtable(const dense_hashtable&, size)` and the swap after it.
struct Growth {
    slots: Vec<u32>,
    table: u64,
    /// Slots already filled with empty strings, and slots of the old table already copied.
    filled: usize,
    copied: usize,
    /// Texts of the old table, to be freed in slot order: key, value, and the capacity of the value's text.
    old: Vec<(Place, Place, u16)>,
    freed: usize,
    key: Key,
}

impl Dense {
    /// An empty map for values of `value_bytes`.
    pub fn new(value_bytes: u64) -> Self {
        Dense {
            slots: Vec::new(),
            records: Records::default(),
            table: 0,
            sizes: Sizes::new(value_bytes),
            deleted: 0,
            erases: false,
            consider_shrink: false,
            growth: None,
            moves: None,
        }
    }

    /// `find_position`: the record of the key, or the slot where it belongs, and the value that produces the
    /// slot's address.
    #[inline(always)]
    fn position<E: Emit>(
        &self,
        e: &mut E,
        site: u64,
        key: &Key,
        hash: u64,
        sp: u64,
    ) -> (Result<u32, usize>, Value) {
        const CODE: u64 = 0x1000;
        e.push(CODE, 6, sp - 8);
        let frame = sp - 56 - 0x38;
        let slots = e.load(CODE + 0x19, 5, SLOTS, 8, [NONE; 2]);
        e.load(CODE + 0x1d, 1, key.object + 8, 8, [NONE; 2]);
        let text = e.load(CODE + 0x21, 1, key.object, 8, [NONE; 2]);
        e.store(CODE + 0x24, 1, frame + 8, 8, NONE, NONE);
        e.store(CODE + 0x2d, 2, frame + 0x10, 8, NONE, slots.plus(1));
        let hashed = libc::hash(e, (CODE + 0x32, 1), (key.text, text), frame);
        let mask = e.load(CODE + 0x37, 1, frame + 0x10, 8, [NONE; 2]);
        e.load(CODE + 0x3c, 1, frame + 8, 8, [NONE; 2]);
        let flag = e.load(CODE + 0x44, 2, MAP + 0x19, 1, [NONE; 2]);
        e.branch(CODE + 0x4a, CODE + 0x1c5, 1, false, [flag, NONE]);
        e.load(CODE + 0x53, 2, EMPTY_KEY, 8, [NONE; 2]);
        let table = e.load(CODE + 0x5a, 2, TABLE, 8, [NONE; 2]);
        e.load(CODE + 0x62, 1, EMPTY_KEY + 8, 8, [NONE; 2]);
        e.store(CODE + 0x6e, 2, frame + 0x28, 8, NONE, NONE);
        e.jump(CODE + 0x73, CODE + 0xa0, 1, TAKEN, [NONE; 2]);
        let last = self.slots.len() - 1;
        let mut slot = hash as usize & last;
        // The address needs the hash and the mask, and from then on only additions.
        let at = hashed.plus(3);
        let mut probe = 0;
        // The first slot on the probe path with the deleted key.
        let mut free = None;
        let answer = loop {
            let va = self.table + SLOT_BYTES * slot as u64;
            let id = self.slots[slot];
            let length = e.load(CODE + 0xaa, 4, va + 8, 8, [at, table]);
            let other = e.load(CODE + 0xae, 1, va, 8, [at, table]);
            let on = [length, mask];
            e.branch(CODE + 0xb4, CODE + 0x120, 2, id == EMPTY, on);
            if id == EMPTY {
                for (pc, offset) in [(0x120, 0x18), (0x125, 0x10), (0x12a, 8)] {
                    e.store(CODE + pc, 1, frame + offset, 8, NONE, NONE);
                }
                e.branch(CODE + 0x132, CODE + 0x162, 2, true, [NONE; 2]);
                e.branch(CODE + 0x166, CODE + 0x16b, 2, free.is_some(), [NONE; 2]);
                e.compute(CODE + 0x16b, 2, 1, [NONE; 2]);
                break Err(free.unwrap_or(slot));
            }
            let record = &self.records[id as usize];
            e.load(CODE + 0xb6, 1, MAP + 0x1a, 1, [NONE; 2]);
            let deleted = e.load(CODE + 0xbc, 1, DELETED, 8, [NONE; 2]);
            e.branch(CODE + 0xc1, CODE + 0x78, 1, !self.erases, [NONE; 2]);
            if self.erases {
                let none = self.deleted == 0;
                e.branch(CODE + 0xc6, CODE + 0x81, 2, none, [deleted, NONE]);
                if !none {
                    // The length alone distinguishes other keys from the deleted key. Characters are compared only
                    // for the latter.
                    let deleted = e.load(CODE + 0xc8, 1, DELETED_KEY + 8, 8, [NONE; 2]);
                    e.branch(CODE + 0xcd, CODE + 0x81, 1, !record.gone, [deleted, length]);
                }
                if record.gone {
                    self.compare_deleted(e, CODE + 0xd2, (record, other), frame);
                    free = free.or(Some(slot));
                    let limit = e.load(CODE + 0x95, 4, SLOTS, 8, [NONE; 2]);
                    e.branch(CODE + 0x9a, CODE + 0x1e4, 1, false, [limit, NONE]);
                    probe += 1;
                    slot = (slot + probe) & last;
                    continue;
                }
            } else {
                e.branch(CODE + 0x7b, CODE + 0x203, 2, false, [deleted, NONE]);
            }
            let mine = e.load(CODE + 0x81, 1, key.object + 8, 8, [NONE; 2]);
            e.branch(CODE + 0x85, CODE + 0x190, 0, true, [mine, length]);
            e.store(CODE + 0x190, 2, frame + 8, 8, NONE, NONE);
            e.branch(CODE + 0x198, CODE + 0x1ec, 2, false, [length, NONE]);
            let mine = e.load(CODE + 0x19a, 1, key.object, 8, [NONE; 2]);
            e.store(CODE + 0x1a0, 2, frame + 0x10, 8, NONE, NONE);
            let equal = if E::LOUD {
                same(record.number, key.number)
            } else {
                0
            };
            let (a, b) = ((key.text, mine), (record.key.va(), other));
            let order = libc::memcmp(e, (CODE + 0x1a5, 1), a, b, equal, frame);
            e.load(CODE + 0x1aa, 1, frame + 0x10, 8, [NONE; 2]);
            e.load(CODE + 0x1af, 1, frame + 8, 8, [NONE; 2]);
            let is_it = record.number == key.number;
            e.branch(CODE + 0x1b6, CODE + 0x8b, 2, !is_it, [order, NONE]);
            if is_it {
                e.jump(CODE + 0x1c3, CODE + 0x172, 2, TAKEN, [NONE; 2]);
                break Ok(id);
            }
            let limit = e.load(CODE + 0x95, 4, SLOTS, 8, [NONE; 2]);
            e.branch(CODE + 0x9a, CODE + 0x1e4, 1, false, [limit, NONE]);
            probe += 1;
            slot = (slot + probe) & last;
        };
        e.load(CODE + 0x17c, 4, frame + 0x38, 8, [NONE; 2]);
        e.pop(CODE + 0x17d, 5, sp - 8);
        e.ret(CODE + 0x186, site, 1, sp);
        (answer, at)
    }

    /// Size of the new table, in slots, if one replaces this one before an insertion (`resize_delta`).
    fn resize_to(&self) -> Option<usize> {
        /// A table with less than a fifth of its slots in use is halved (`HT_EMPTY_PCT` of
        /// `HT_OCCUPANCY_PCT`).
        const SHRINK: usize = 5;
        let slots = self.slots.len();
        let left = self.records.len() - self.deleted;
        if self.consider_shrink && left < slots / SHRINK && slots > FIRST {
            let mut to = slots / 2;
            while to > FIRST && SHRINK * left < to {
                to /= 2;
            }
            return Some(to);
        }
        if self.records.len() < slots / 2 {
            return None;
        }
        let enough = |keys: usize, least: usize| {
            let mut to = least.max(4);
            while keys >= to / 2 {
                to *= 2;
            }
            to
        };
        // Deleted slots count in the decision to copy, but are not copied.
        let needed = enough(self.records.len() + 1, 0);
        let to = enough(left + 1, slots);
        if to < needed && left + 1 >= 2 * to / SHRINK {
            return Some(2 * to);
        }
        Some(to)
    }

    fn found(&self, id: u32, at: Value, fresh: bool) -> Found {
        let slot = self.records[id as usize].slot;
        let record = self.table + SLOT_BYTES * u64::from(slot);
        Found {
            id,
            record,
            at,
            fresh,
        }
    }

    /// Epilogue of `find_or_insert`.
    #[inline(always)]
    fn leave<E: Emit>(&self, e: &mut E, sp: u64) {
        e.load(0x1995, 2, sp - 56, 8, [NONE; 2]);
        e.pop(0x1996, 5, sp - 16);
        e.ret(0x199f, 0x74, 1, sp);
    }
}

impl Index for Dense {
    const HOST_BYTES: u64 = 96;
    const PAIR: u64 = 0;

    /// `set_empty_key` allocates the first table, after the objects of every C++ program.
    fn begin(&mut self, heap: &mut Heap) {
        for bytes in index::START {
            heap.malloc(bytes);
        }
        self.slots = vec![EMPTY; FIRST];
        self.table = heap.malloc(SLOT_BYTES * FIRST as u64);
    }

    fn sizes(&mut self) -> &mut Sizes {
        &mut self.sizes
    }

    fn warm(&self, numbers: &[u64]) {
        let mut at = [EMPTY; AHEAD];
        if self.slots.is_empty() {
            return;
        }
        for (at, number) in at.iter_mut().zip(numbers) {
            let hash = libc::hash_of(&super::ycsb::text(*number));
            *at = self.slots[hash as usize & (self.slots.len() - 1)];
        }
        let record = |at: &u32| self.records.get(*at).map_or(0, |r| r.number);
        std::hint::black_box(at.iter().map(record).fold(0, u64::wrapping_add));
    }

    fn look<E: Emit>(&mut self, e: &mut E, _: &mut Heap, key: &Key, sp: u64) -> Option<Found> {
        if self.slots.is_empty() {
            return None;
        }
        e.load(0x148, 1, DELETED, 8, [NONE; 2]);
        let used = e.load(0x14f, 1, USED, 8, [NONE; 2]);
        e.branch(0x156, 0, 1, false, [used, NONE]);
        e.call(0x162, 0x1000, 3, sp);
        let (answer, at) = self.position(e, 0x162, key, key.hash(), sp);
        let table = e.load(0x167, 1, TABLE, 8, [NONE; 2]);
        e.branch(0x172, 0x1ee, 2, answer.is_err(), [NONE; 2]);
        let id = answer.ok()?;
        let slots = e.load(0x17c, 2, SLOTS, 8, [NONE; 2]);
        e.branch(0x190, 0, 5, false, [table, slots]);
        Some(self.found(id, at.plus(2), false))
    }

    fn entry<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, key: &Key, sp: u64) -> IndexStep {
        const CODE: u64 = 0x1900;
        e.call(0x74, CODE, 3, sp);
        e.push(CODE, 6, sp - 8);
        let frame = sp - 56 - 0xc8;
        e.load(CODE + 0x17, 4, MAP + 0x19, 1, [NONE; 2]);
        e.branch(CODE + 0x1b, CODE + 0x2b, 1, false, [NONE; 2]);
        e.load(CODE + 0x1d, 1, key.object + 8, 8, [NONE; 2]);
        e.load(CODE + 0x21, 1, EMPTY_KEY + 8, 8, [NONE; 2]);
        e.branch(CODE + 0x25, CODE + 0x220, 1, false, [NONE; 2]);
        e.load(CODE + 0x2b, 1, MAP + 0x1a, 1, [NONE; 2]);
        e.branch(CODE + 0x2f, CODE + 0x3c, 1, true, [NONE; 2]);
        e.call(CODE + 0x42, 0x1000, 3, frame);
        let (answer, at) = self.position(e, CODE + 0x42, key, key.hash(), frame);
        e.branch(CODE + 0x4e, CODE + 0xa8, 3, answer.is_err(), [NONE; 2]);
        let slot = match answer {
            Ok(id) => {
                e.load(CODE + 0x54, 2, TABLE, 8, [NONE; 2]);
                self.leave(e, sp);
                return IndexStep::Done(self.found(id, at.plus(2), false));
            }
            Err(slot) => slot,
        };
        // resize_delta(1)
        const RESIZE: u64 = 0x2200;
        e.call(CODE + 0xc5, RESIZE, 6, frame);
        e.push(RESIZE, 6, frame - 8);
        e.load(RESIZE + 0x17, 4, MAP + 0x18, 1, [NONE; 2]);
        e.load(RESIZE + 0x1c, 1, USED, 8, [NONE; 2]);
        e.branch(RESIZE + 0x23, RESIZE + 0x2c8, 2, false, [NONE; 2]);
        e.branch(RESIZE + 0x32, RESIZE + 0x55c, 4, false, [NONE; 2]);
        e.load(RESIZE + 0x38, 1, SLOTS, 8, [NONE; 2]);
        e.branch(RESIZE + 0x44, RESIZE + 0x50, 3, false, [NONE; 2]);
        e.load(RESIZE + 0x4b, 2, LIMIT, 8, [NONE; 2]);
        let resize = self.resize_to();
        self.consider_shrink = false;
        e.branch(RESIZE + 0x4e, RESIZE + 0xbf, 1, resize.is_none(), [NONE; 2]);
        if let Some(count) = resize {
            let bytes = SLOT_BYTES * count as u64;
            let (table, _) = libc::malloc(e, heap, (RESIZE + 0x90, 12), bytes, frame - 56 - 0xa8);
            self.growth = Some(Growth {
                slots: vec![EMPTY; count],
                table,
                filled: 0,
                copied: 0,
                old: Vec::with_capacity(self.records.len()),
                freed: 0,
                key: *key,
            });
            return IndexStep::More;
        }
        e.load(RESIZE + 0xc9, 3, frame - 56, 8, [NONE; 2]);
        e.pop(RESIZE + 0xca, 5, frame - 8);
        e.ret(RESIZE + 0xd3, CODE + 0xc5, 1, frame);
        IndexStep::Done(self.insert(e, heap, (slot, at.plus(2)), key, sp))
    }

    fn proceed<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, sp: u64) -> IndexStep {
        let Some(mut growth) = self.growth.take() else {
            return IndexStep::More;
        };
        if !self.grow(e, heap, &mut growth, sp) {
            self.growth = Some(growth);
            return IndexStep::More;
        }
        // `insert_noresize`: the position in the new table.
        let key = growth.key;
        let frame = sp - 56 - 0xc8;
        e.call(0x19f0, 0x1000, 3, frame);
        let (answer, at) = self.position(e, 0x19f0, &key, key.hash(), frame);
        IndexStep::Done(match answer {
            Ok(id) => self.found(id, at, false),
            Err(slot) => self.insert(e, heap, (slot, at.plus(2)), &key, sp),
        })
    }

    fn erase<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, key: &Key, sp: u64) -> Option<Gone> {
        self.take_out(e, heap, key, sp)
    }

    fn will_erase(&mut self) {
        self.erases = true;
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

    /// Counts the texts twice at the last growth: they were copied before the old ones were freed.
    fn footprint(keys: u64, value: u64) -> u64 {
        let chunk = crate::heap::chunk;
        let slots = (2 * keys).next_power_of_two().max(FIRST as u64);
        let copied = slots / 4;
        let texts = keys.max(2 * copied.min(keys)) * (chunk(KEY_BYTES + 1) + chunk(value + 1));
        texts + SLOT_BYTES * slots
    }
}

#[cfg(test)]
mod tests {
    use super::{Dense, EMPTY};
    use crate::kv::check;
    use crate::kv::emit::Quiet;
    use crate::kv::index::{Index as _, IndexStep};
    use crate::layout::Layout;
    use crate::thread::NONE;

    /// No key has an empty slot on its probe path.
    fn check_probes(dense: &Dense) {
        for (id, record) in dense.records.iter().filter(|(_, r)| !r.gone) {
            let (mut slot, mut probe) = (record.hash as usize, 0);
            while dense.slots[slot & (dense.slots.len() - 1)] != id {
                assert_ne!(dense.slots[slot & (dense.slots.len() - 1)], EMPTY);
                probe += 1;
                slot += probe;
                assert!(probe < dense.slots.len());
            }
        }
    }

    /// `resize_delta` of sparsehash 2.0.3: the table doubles at a half, keeps its size if most slots are
    /// deleted, and is halved below a fifth.
    #[test]
    fn the_table_is_as_large_as_what_is_left_needs() {
        let mut heap = Dense::heap(Layout::new());
        let mut dense = Dense::new(64);
        dense.begin(&mut heap);
        dense.will_erase();
        let mut set = |dense: &mut Dense, number| {
            let key = check::key(number);
            let mut step = dense.entry(&mut Quiet, &mut heap, &key, 1 << 40);
            while step == IndexStep::More {
                step = dense.proceed(&mut Quiet, &mut heap, 1 << 40);
            }
            let IndexStep::Done(found) = step else {
                unreachable!()
            };
            dense.write(
                &mut Quiet,
                &mut heap,
                &found,
                ((1 << 20, NONE), 64),
                1 << 40,
            );
        };
        for number in 0..512 {
            set(&mut dense, number);
        }
        assert_eq!(dense.slots.len(), 1024);
        let mut other = Dense::heap(Layout::new());
        let mut erase = |dense: &mut Dense, number| {
            // Nothing is freed, so any other heap will do.
            let key = check::key(number);
            dense
                .take_out(&mut Quiet, &mut other, &key, 1 << 40)
                .unwrap();
        };
        for number in 0..200 {
            erase(&mut dense, number);
        }
        assert_eq!((dense.records.len(), dense.deleted), (512, 200));
        // 312 are left, more than a fifth of 1024 and less than two fifths.
        set(&mut dense, 1000);
        assert_eq!((dense.slots.len(), dense.deleted), (1024, 0));
        for number in 200..400 {
            erase(&mut dense, number);
        }
        // 113 are left: a fifth of 512 is enough.
        set(&mut dense, 1001);
        assert_eq!((dense.slots.len(), dense.records.len()), (512, 114));
    }

    proptest::proptest! {
        #[test]
        fn is_half_empty_and_every_key_is_on_its_probes(
            numbers in proptest::collection::vec(0u64..3000, 1..600),
        ) {
            let mut dense = Dense::new(128);
            check::against_oracle(&mut dense, &numbers);
            let used = dense.slots.iter().filter(|s| **s != EMPTY).count();
            proptest::prop_assert_eq!(used, dense.records.len());
            proptest::prop_assert!(used <= dense.slots.len() / 2);
            check_probes(&dense);
        }

        #[test]
        fn deleted_slots_are_taken_again_or_left_behind(requests in check::requests()) {
            let mut dense = Dense::new(64);
            check::erasing_against_oracle(&mut dense, &requests);
            let gone = dense.records.iter().filter(|(_, r)| r.gone).count();
            proptest::prop_assert_eq!(gone, dense.deleted);
            proptest::prop_assert!(dense.records.len() <= dense.slots.len() / 2);
            check_probes(&dense);
        }
    }
}
