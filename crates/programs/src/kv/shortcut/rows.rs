//! STLT's table in software (`STLT-SW` of figure 19): the same sets of four rows of 16 bytes, in the
//! program's own memory, accessed by ordinary instructions.
//!
//! The first word of a row holds a 4-bit counter, a 12-bit tag and a 48-bit address. The second word, the
//! page-table entry's, stays empty. A hit increments the counter with probability 2^-counter, with
//! wrap-around. An insertion takes the row with its tag, else a free row, else the row with the lowest
//! counter.
//!
//! ```text
//! find 3500 push ; 07 mov rows ; 1c and mask ; 2c mov row ; shr ; xor ; 3f jne 49 ; 47 jne 60
//!   49 add ; cmp ; 50 jne 2c ; xor ; 57 pop ; ret
//!   60 mov random ; 93 mov ; 9d jne af ; ac mov row ; af mov (key) ; b2 mov 8(key) ; b6 cmp 8(record) ; ba jne 52
//!   bc mov (record) ; bf call memcmp ; c6 je 54 ; c8 jmp 52
//! insert 35d0 0d and mask ; 14 add rows ; 29 mov row ; 3c je 80 ; 41 je 80 ; 43 mov least ; 5c jne 29
//!   80 mov ; 83 jmp 5e ; 75 mov row ; 78 ret
//! erase 3680 00 mov ; mov rows ; movabs ; shr ; and mask ; shl ; lea ; lea
//!   25 mov row ; mov ; shr ; xor ; test ; 38 jne 3f ; test ; 3d jne 50 ; 3f add ; cmp ; 46 jne 25 ; ret
//!   50 mov 0,row ; ret
//! ```

use pagewalk_stream::flags::TAKEN;

use super::{CALL, Places, Random};
use crate::kv::emit::Emit;
use crate::kv::globals::SHORTCUT;
use crate::kv::index::{Index, Key, Known};
use crate::layout::Layout;
use crate::thread::{NONE, Value};

const FIND: u64 = 0x3500;
const INSERT: u64 = 0x35d0;
const ERASE: u64 = 0x3680;
/// Words of the table's object.
const MASK: u64 = SHORTCUT;
const ROWS: u64 = SHORTCUT + 0x8;
const RANDOM: u64 = SHORTCUT + 0x10;

const WAYS: usize = 4;
const ROW_BYTES: u64 = 16;
const TAG_BITS: u32 = 12;
const TAG: u64 = (1 << TAG_BITS) - 1;
const POINTER: u64 = (1 << 48) - 1;

/// The table.
pub struct Rows {
    /// The first word of each row.
    words: Vec<u64>,
    at: u64,
    random: Random,
}

impl Rows {
    /// An empty table of `bytes`, a power of two.
    pub fn new(bytes: u64, layout: &mut Layout, populate: bool) -> Self {
        Rows {
            words: vec![0; (bytes / ROW_BYTES) as usize],
            at: layout.array(bytes, populate),
            random: Random::START,
        }
    }

    /// Number of the first row of the integer's set.
    fn set(&self, integer: u64) -> usize {
        let sets = (self.words.len() / WAYS) as u64;
        WAYS * (integer >> TAG_BITS & (sets - 1)) as usize
    }

    /// The record of `key`.
    pub fn find<E: Emit, I: Index>(
        &mut self,
        e: &mut E,
        indexes: &[I],
        places: &Places,
        key: &Key,
        (integer, hashed): (u64, Value),
        sp: u64,
    ) -> Option<Known> {
        e.call(CALL, FIND, 4, sp);
        e.store(FIND + 0x6, 3, sp - 16, 8, NONE, NONE);
        let rows = e.load(FIND + 0x7, 1, ROWS, 8, [NONE; 2]);
        e.load(FIND + 0x1c, 4, MASK, 8, [NONE; 2]);
        let ready = [hashed.plus(4), rows.plus(1)];
        let first = self.set(integer);
        let mut found = None;
        for way in 0..WAYS {
            let row = self.words[first + way];
            let va = self.at + ROW_BYTES * (first + way) as u64;
            let insns = if way == 0 { 4 } else { 1 };
            let word = e.load(FIND + 0x2c, insns, va, 8, ready);
            let other = row >> 48 & TAG != integer & TAG;
            let on = [word.plus(2), hashed.plus(2)];
            e.branch(FIND + 0x3f, FIND + 0x49, 5, other, on);
            if !other {
                let pointer = row & POINTER;
                e.branch(FIND + 0x47, FIND + 0x60, 3, pointer != 0, [word, NONE]);
                if pointer != 0 {
                    self.count_hit(e, first + way, (va, ready[0]), word);
                    found = places.known(pointer, word.plus(1));
                    break;
                }
            }
            let more = way + 1 < WAYS;
            e.branch(FIND + 0x50, FIND + 0x2c, 3, more, [NONE; 2]);
        }
        let found = found.filter(|known| {
            let order = indexes[known.owner].is_of(e, FIND + 0xaf, key, known, sp - 16);
            let is_it = known.number == key.number;
            e.branch(FIND + 0xc6, FIND + 0x54, 2, is_it, [order, NONE]);
            if !is_it {
                e.jump(FIND + 0xc8, FIND + 0x52, 1, TAKEN, [NONE; 2]);
            }
            is_it
        });
        let insns = if found.is_some() { 2 } else { 3 };
        e.load(FIND + 0x57, insns, sp - 16, 8, [NONE; 2]);
        e.ret(FIND + 0x58, CALL, 1, sp);
        found
    }

    fn count_hit<E: Emit>(
        &mut self,
        e: &mut E,
        row: usize,
        (va, ready): (u64, Value),
        word: Value,
    ) {
        let state = e.load(FIND + 0x60, 1, RANDOM, 8, [NONE; 2]);
        let drawn = state.plus(Random::LATENCY);
        e.store(FIND + 0x93, 13, RANDOM, 8, NONE, drawn);
        let below = (1 << (self.words[row] >> 60)) - 1;
        let counts = self.random.next() & below == 0;
        let on = [drawn.plus(1), word.plus(4)];
        e.branch(FIND + 0x9d, FIND + 0xaf, 3, !counts, on);
        if counts {
            self.words[row] = self.words[row].wrapping_add(1 << 60);
            e.store(FIND + 0xac, 3, va, 8, ready, word.plus(1));
        }
    }

    /// Inserts the address `record` for `integer`.
    pub fn insert<E: Emit>(
        &mut self,
        e: &mut E,
        site: u64,
        (integer, hashed): (u64, Value),
        (record, at): (u64, Value),
        sp: u64,
    ) {
        e.call(site, INSERT, 1, sp);
        e.load(INSERT + 0xd, 5, MASK, 8, [NONE; 2]);
        let rows = e.load(INSERT + 0x14, 2, ROWS, 8, [NONE; 2]);
        let ready = [hashed.plus(3), rows.plus(1)];
        let first = self.set(integer);
        let mut to = 0;
        for way in 0..WAYS {
            let row = self.words[first + way];
            let va = self.at + ROW_BYTES * (first + way) as u64;
            let insns = if way == 0 { 4 } else { 1 };
            let word = e.load(INSERT + 0x29, insns, va, 8, ready);
            let same = row >> 48 & TAG == integer & TAG;
            let on = [word.plus(2), hashed.plus(2)];
            e.branch(INSERT + 0x3c, INSERT + 0x80, 5, same, on);
            let free = row & POINTER == 0;
            if !same {
                e.branch(INSERT + 0x41, INSERT + 0x80, 2, free, [word, NONE]);
            }
            if same || free {
                to = way;
                e.jump(INSERT + 0x83, INSERT + 0x5e, 2, TAKEN, [NONE; 2]);
                break;
            }
            let least_va = self.at + ROW_BYTES * (first + to) as u64;
            e.load(INSERT + 0x43, 1, least_va, 8, ready);
            if row >> 60 < self.words[first + to] >> 60 {
                to = way;
            }
            let more = way + 1 < WAYS;
            e.branch(INSERT + 0x5c, INSERT + 0x29, 7, more, [NONE; 2]);
        }
        self.words[first + to] = (integer & TAG) << 48 | record;
        let va = self.at + ROW_BYTES * (first + to) as u64;
        e.store(INSERT + 0x75, 6, va, 8, ready[0], at);
        e.ret(INSERT + 0x78, site, 1, sp);
    }

    /// Empties the row with the tag of `integer`, if there is one.
    pub fn erase<E: Emit>(
        &mut self,
        e: &mut E,
        site: u64,
        (integer, hashed): (u64, Value),
        sp: u64,
    ) {
        e.call(site, ERASE, 2, sp);
        let rows = e.load(ERASE + 0x3, 2, ROWS, 8, [NONE; 2]);
        e.load(ERASE + 0x15, 3, MASK, 8, [NONE; 2]);
        let ready = [hashed.plus(3), rows.plus(1)];
        let first = self.set(integer);
        for way in 0..WAYS {
            let row = self.words[first + way];
            let va = self.at + ROW_BYTES * (first + way) as u64;
            let insns = if way == 0 { 4 } else { 1 };
            let word = e.load(ERASE + 0x25, insns, va, 8, ready);
            let other = row >> 48 & TAG != integer & TAG;
            let on = [word.plus(2), hashed];
            e.branch(ERASE + 0x38, ERASE + 0x3f, 5, other, on);
            if !other {
                let held = row & POINTER != 0;
                e.branch(ERASE + 0x3d, ERASE + 0x50, 2, held, [word, NONE]);
                if held {
                    self.words[first + way] = 0;
                    e.store(ERASE + 0x50, 1, va, 8, ready[0], NONE);
                    break;
                }
            }
            let more = way + 1 < WAYS;
            e.branch(ERASE + 0x46, ERASE + 0x25, 3, more, [NONE; 2]);
        }
        e.ret(ERASE + 0x57, site, 1, sp);
    }
}

#[cfg(test)]
mod tests {
    use super::Rows;
    use crate::kv::emit::Quiet;
    use crate::layout::Layout;
    use crate::thread::NONE;

    #[test]
    fn a_set_gives_up_its_own_tag_then_a_free_row_then_the_least_counted() {
        let mut rows = Rows::new(4096, &mut Layout::new(), false);
        let enter = |rows: &mut Rows, tag: u64, record: u64| {
            let integer = 5 << 12 | tag;
            rows.insert(&mut Quiet, 0, (integer, NONE), (record, NONE), 1 << 20);
            rows.words[20..24].to_vec()
        };
        let row = |tag: u64, record: u64| tag << 48 | record;
        for tag in 1..=4 {
            enter(&mut rows, tag, 16 * tag);
        }
        let all: Vec<_> = (1..=4).map(|t| row(t, 16 * t)).collect();
        assert_eq!(rows.words[20..24], all);
        assert!(rows.words.iter().filter(|w| **w != 0).count() == 4);
        assert_eq!(enter(&mut rows, 3, 0x90)[2], row(3, 0x90));
        for (way, count) in [(0, 3), (1, 2), (2, 1), (3, 2)] {
            rows.words[20 + way] |= count << 60;
        }
        let before = rows.words.clone();
        let mut emptied = |tag: u64| {
            rows.erase(&mut Quiet, 0, (5 << 12 | tag, NONE), 1 << 20);
            rows.words.clone()
        };
        assert_eq!(emptied(7), before, "nobody has this tag");
        let mut want = before.clone();
        want[21] = 0;
        assert_eq!(emptied(2), want, "a row by its tag alone");
        rows.words[21] = before[21];
        let after = enter(&mut rows, 9, 0xa0);
        assert_eq!(after[2], row(9, 0xa0));
        assert_eq!((after[0] >> 60, after[1] >> 60, after[3] >> 60), (3, 2, 2));
    }

    /// The 16 increments to the wrap take 2^16 - 1 hits on average.
    #[test]
    fn a_counter_wraps_after_65535_hits_on_average() {
        let mut rows = Rows::new(4096, &mut Layout::new(), false);
        let (mut hits, mut wraps) = (0u64, 0u64);
        rows.words[0] = 16;
        while wraps < 200 {
            let before = rows.words[0] >> 60;
            rows.count_hit(&mut Quiet, 0, (0, NONE), NONE);
            hits += 1;
            wraps += u64::from(rows.words[0] >> 60 < before);
        }
        let mean = hits as f64 / wraps as f64;
        // Each wrap deviates by 0.58 of the mean (the last increment contributes half of it). Bound: five
        // standard deviations over 200 wraps.
        assert!(
            (mean / 65_535.0 - 1.0).abs() < 5.0 * 0.58 / 200f64.sqrt(),
            "{mean}"
        );
        assert_eq!(rows.words[0] & super::POINTER, 16);
    }
}
