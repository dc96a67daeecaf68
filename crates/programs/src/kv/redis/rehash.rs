//! Growth of Redis's dictionary: a second table of twice the size, to which each operation moves one bucket.
//! The listing is `dictRehash`, gcc 12.2 -O2.

use pagewalk_stream::flags::TAKEN;

use super::dictionary::{Dictionary, NIL, REHASH, TABLE_BYTES, TABLES, TYPE, Table};
use crate::heap::Heap;
use crate::kv::emit::Emit;
use crate::kv::libc;
use crate::thread::{NONE, Value};

/// Buckets of a new table (`DICT_HT_INITIAL_SIZE`).
const FIRST: usize = 4;
/// Maximum number of empty buckets that a rehash step skips.
const EMPTY_VISITS: usize = 10;

impl Dictionary {
    /// `dictRehash(d, 1)`: moves one bucket to the second table.
    pub(super) fn step<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, site: u64, sp: u64) {
        const CODE: u64 = 0x1800;
        let Some(at) = self.rehash else { return };
        e.call(site, CODE, 2, sp);
        e.push(CODE, 5, sp - 8);
        let frame = sp - 48;
        let state = e.load(CODE + 0xf, 3, REHASH, 8, [NONE; 2]);
        e.branch(CODE + 0x14, CODE + 0x108, 1, false, [state, NONE]);
        let used = e.load(CODE + 0x1a, 1, TABLES + 0x18, 8, [NONE; 2]);
        // DELETEs may have removed the rest of the first table.
        let mut complete = self.tables[0].used == 0;
        e.branch(CODE + 0x26, CODE + 0xbd, 4, complete, [NONE; 2]);
        if complete {
            e.branch(CODE + 0xc0, CODE + 0xd6, 2, true, [used, NONE]);
        } else {
            complete = self.move_next(e, (at, used), frame);
        }
        if complete {
            let old = std::mem::take(&mut self.tables[0]);
            let bytes = 8 * old.buckets.len() as u64;
            let call = (CODE + 0xda, 2);
            libc::free(e, heap, call, (old.array, NONE), bytes, frame);
            for i in 0..4 {
                let to = TABLES + 0x10 * (i % 4);
                e.load(CODE + 0xdf + i, 1, to, 16, [NONE; 2]);
                e.store(CODE + 0xf5 + i, 1, to, 16, NONE, NONE);
            }
            self.tables.swap(0, 1);
            self.rehash = None;
        }
        e.load(CODE + 0xcd, 2, frame, 8, [NONE; 2]);
        e.pop(CODE + 0xce, 4, sp - 8);
        e.ret(CODE + 0xd5, site, 1, sp);
    }

    /// Moves the next non-empty bucket from `at` on, unless too many empty ones precede it. Returns true if
    /// it was the last. At least one bucket is not empty.
    fn move_next<E: Emit>(
        &mut self,
        e: &mut E,
        (mut at, used): (usize, Value),
        frame: u64,
    ) -> bool {
        const CODE: u64 = 0x1800;
        let array = e.load(CODE + 0x2c, 1, TABLES, 8, [NONE; 2]);
        e.branch(CODE + 0x33, CODE + 0xda, 2, false, [used, NONE]);
        e.load(CODE + 0x39, 1, REHASH, 8, [NONE; 2]);
        e.jump(CODE + 0x3d, CODE + 0x4e, 1, TAKEN, [NONE; 2]);
        let mut visits = EMPTY_VISITS;
        loop {
            let va = self.tables[0].array + 8 * at as u64;
            let first = e.load(CODE + 0x4e, 1, va, 8, [array, NONE]);
            let empty = self.tables[0].buckets[at] == NIL;
            e.branch(CODE + 0x55, CODE + 0x40, 2, empty, [first, NONE]);
            if !empty {
                break;
            }
            at += 1;
            visits -= 1;
            e.store(CODE + 0x44, 2, REHASH, 8, NONE, NONE);
            e.branch(CODE + 0x4c, CODE + 0xc8, 2, visits == 0, [NONE; 2]);
            if visits == 0 {
                break;
            }
        }
        self.rehash = Some(at);
        if visits == 0 {
            return false;
        }
        self.move_bucket(e, at, frame);
        self.rehash = Some(at + 1);
        let complete = self.tables[0].used == 0;
        e.branch(CODE + 0xc0, CODE + 0xd6, 4, complete, [NONE; 2]);
        complete
    }

    fn move_bucket<E: Emit>(&mut self, e: &mut E, at: usize, sp: u64) {
        const CODE: u64 = 0x1860;
        let mut id = self.tables[0].buckets[at];
        while id != NIL {
            let record = &self.records[id as usize];
            let (va, next, hash) = (record.entry.va(), record.next, record.hash);
            let text = (record.key.va() + 1, NONE);
            e.load(CODE, 1, TYPE, 8, [NONE; 2]);
            e.load(CODE + 0x6, 2, va + 16, 8, [NONE; 2]);
            let key = e.load(CODE + 0xa, 1, va, 8, [NONE; 2]);
            let hashed = self.hash(e, CODE + 0xd, 1, (text.0, key), sp);
            let array = e.load(CODE + 0xf, 1, TABLES + TABLE_BYTES, 8, [NONE; 2]);
            e.load(CODE + 0x13, 1, TABLES + TABLE_BYTES + 0x10, 8, [NONE; 2]);
            let bucket = self.tables[1].bucket(hash);
            let to = self.tables[1].array + 8 * bucket as u64;
            let head = e.load(CODE + 0x1b, 2, to, 8, [hashed.plus(2), array]);
            e.store(CODE + 0x1e, 1, va + 16, 8, NONE, head);
            e.store(CODE + 0x22, 1, to, 8, hashed.plus(2), NONE);
            let used = e.load(CODE + 0x25, 1, TABLES + 0x18, 8, [NONE; 2]);
            let more = e.load(CODE + 0x29, 1, TABLES + TABLE_BYTES + 0x18, 8, [NONE; 2]);
            e.store(
                CODE + 0x29,
                0,
                TABLES + TABLE_BYTES + 0x18,
                8,
                NONE,
                more.plus(1),
            );
            e.store(CODE + 0x32, 2, TABLES + 0x18, 8, NONE, used.plus(1));
            e.branch(CODE + 0x39, CODE, 2, next != NIL, [NONE; 2]);
            self.records[id as usize].next = self.tables[1].buckets[bucket];
            self.tables[1].buckets[bucket] = id;
            self.tables[0].used -= 1;
            self.tables[1].used += 1;
            id = next;
        }
        e.load(CODE + 0x3b, 1, REHASH, 8, [NONE; 2]);
        let array = e.load(CODE + 0x3f, 1, TABLES, 8, [NONE; 2]);
        let from = self.tables[0].array + 8 * at as u64;
        e.store(CODE + 0x43, 1, from, 8, array, NONE);
        e.store(CODE + 0x4f, 2, REHASH, 8, NONE, NONE);
        self.tables[0].buckets[at] = NIL;
    }

    /// `_dictExpandIfNeeded`.
    pub(super) fn expand<E: Emit>(&mut self, e: &mut E, heap: &mut Heap, sp: u64) {
        let size = self.tables[0].buckets.len();
        let used = e.load(0x1a10, 3, TABLES + 0x18, 8, [NONE; 2]);
        e.load(0x1a14, 1, TABLES + 8, 8, [NONE; 2]);
        let grows = self.rehash.is_none() && self.tables[0].used >= size;
        e.branch(0x1a18, 0x1a80, 2, grows, [used, NONE]);
        if !grows {
            return;
        }
        let count = (2 * self.tables[0].used).next_power_of_two().max(FIRST);
        // `zcalloc`: pages fresh from the kernel are already zero.
        let bytes = 8 * count as u64;
        let (array, _) = libc::malloc(e, heap, (0x1a90, 20), bytes, sp);
        let table = Table {
            buckets: vec![NIL; count],
            array,
            used: 0,
        };
        for i in 0..4 {
            e.store(
                0x1aa0 + 4 * i,
                2,
                TABLES + TABLE_BYTES + 8 * i,
                8,
                NONE,
                NONE,
            );
        }
        if size == 0 {
            self.tables[0] = table;
        } else {
            self.tables[1] = table;
            self.rehash = Some(0);
            e.store(0x1ab8, 1, REHASH, 8, NONE, NONE);
        }
    }
}
