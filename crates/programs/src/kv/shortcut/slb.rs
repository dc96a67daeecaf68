//! The search lookaside buffer (Wu, Ni and Jiang, SoCC 2017): a software table of addresses that admits
//! frequently requested records.
//!
//! - A slot is one line. One word holds seven 4-bit counters and the number of used entries. Seven more words
//!   hold an entry each: a 16-bit tag and a 48-bit address.
//! - A log is 16 bytes: the position of the next tag, and the last seven tags. Each slot has sixteen logs.
//!
//! A miss writes its tag into the log. If the slot is full, it does so only once in `sampling` misses (32 in
//! the published code, `wuxb45/SLB`). If the log already held the tag, the record enters the slot. It takes a
//! free entry, or replaces one whose counter is below the number of times that the tag was logged. That
//! search starts at a random entry. A hit increments the counter, up to 15. Locks for several threads are
//! left out.
//!
//! With `slb_admit=first_free` a record takes a free entry at its first miss, and logs decide about full slots
//! only. With `slb_prefetch=yes` a query prefetches its slot before it computes the tag.
//!
//! ```text
//! find 3100 push six ; 26 divq count ; fold ; 45 add slots ; 4c jmp 5a
//!   5a mov entry ; shr ; cmp ; 69 jne 50 ; 6e je 50 ; 70 mov 8(key) ; 77 cmp 8(record) ; 7b jne 50
//!   7d mov (key) ; mov (record) ; 83 call memcmp ; 8a jne 50 ; 8c mov counters ; a4 je c3 ; b1 mov ; b5 jmp c3
//!   50 add ; cmp ; 58 je c0 ; c3 add ; pop six ; d4 ret
//! insert 31e0 push three ; 13 divq count ; 1a add slots ; 1e mov counters ; 2f je 1a8 ; 3c divq logs ; 5c add logs
//!   70 movzwl tag ; cmp ; add ; 86 jne 70 ; 88 movzwl head ; 8e mov tag ; a3 mov head ; a9 je 19e ; c0 ja e8
//!   d3 and entry ; d8 je 210 ; e6 jne d0 : 210 mov entry ; 224 mov counters ; 227 jmp 19e
//!   e8 a random number ; 147 je 1e8 ; 15b mov counters ; 167 jb 1e8 ; 171 jmp 18d : 19c jne 178 ; 18b jb 1e8
//!   1e8 mov entry ; 201 mov counters ; pop three ; ret : 19e pop three ; ret
//!   1a8 a random number ; 1d3 cmp sampled ; 1d7 jb 35 ; pop three ; ret
//! insert, first_free: 31e0 mov ; 0f divq count ; 16 add slots ; 1a mov counters ; 2b jbe 198 ; 31 push three
//!   35 a random number ; 63 cmp sampled ; 67 jae 18e ; logs and replacement as above
//!   1a8 and entry ; 1b0 je 1e8 ; 1ba jne 1a8 : 1e8 fold ; 205 mov entry ; 217 mov counters ; 21a ret
//! move 3410 12 divq count ; 1b add slots ; 30 mov entry ; and ; cmp ; 3b je 50 ; 45 jne 30 ; ret : fold ; 6d mov entry ; ret
//! erase 3490 23 divq count ; fold ; 34 add slots ; 47 jmp 5a
//!   5a mov entry ; mov ; shr ; cmp ; 69 jne 50 ; test ; 6e je 50 ; 7a mov 0,entry ; … 90 and counters ; add ; 96 mov ; cmp ; 9d jne 5a
//!   50 add ; cmp ; 58 je 9f ; 9f ret
//! ```

use pagewalk_stream::flags::TAKEN;

use super::{CALL, Places, Random, SlbChoice};
use crate::kv::emit::Emit;
use crate::kv::globals::SHORTCUT;
use crate::kv::hash::DIVISION;
use crate::kv::index::{Index, Key, Known};
use crate::layout::Layout;
use crate::thread::{NONE, Value};

const FIND: u64 = 0x3100;
const INSERT: u64 = 0x31e0;
const MOVE: u64 = 0x3410;
const ERASE: u64 = 0x3490;
/// Words of the table's object: numbers and addresses of slots and logs, admitted draws out of 4096, the
/// random state.
const COUNT: u64 = SHORTCUT;
const LOG_COUNT: u64 = SHORTCUT + 0x8;
const SLOTS: u64 = SHORTCUT + 0x10;
const LOGS: u64 = SHORTCUT + 0x18;
const SAMPLED: u64 = SHORTCUT + 0x20;
const RANDOM: u64 = SHORTCUT + 0x28;

/// Entries of a slot, and tags of a log.
const WAYS: usize = 7;
const SLOT_BYTES: u64 = 64;
const LOG_BYTES: u64 = 16;
const LOGS_A_SLOT: u64 = 16;
/// Bytes of a slot and its logs.
const UNIT: u64 = SLOT_BYTES + LOGS_A_SLOT * LOG_BYTES;
const DRAWS: u64 = 0x1000;
const POINTER: u64 = (1 << 48) - 1;
const MOST: u64 = 15;

/// Code that takes a free entry.
struct Append {
    /// Load of an entry, and the instructions to the first one.
    load: u64,
    first: u16,
    /// Target of the branch on a free entry.
    free: u64,
    /// Branch to the next entry, and its target.
    more: (u64, u64),
    /// Store of the entry, with its instructions.
    entry: (u64, u16),
    /// Store of the counters.
    counters: u64,
}

const AT_LATER_MISS: Append = Append {
    load: INSERT + 0xd3,
    first: 5,
    free: INSERT + 0x210,
    more: (INSERT + 0xe6, INSERT + 0xd0),
    entry: (INSERT + 0x212, 2),
    counters: INSERT + 0x224,
};
const AT_FIRST_MISS: Append = Append {
    load: INSERT + 0x1ab,
    first: 4,
    free: INSERT + 0x1e8,
    more: (INSERT + 0x1ba, INSERT + 0x1a8),
    entry: (INSERT + 0x205, 10),
    counters: INSERT + 0x217,
};

/// The buffer.
pub struct Slb {
    count: u64,
    /// Contents of the slots, eight words each.
    slots: Vec<u64>,
    /// Contents of the logs, eight half-words each.
    logs: Vec<u16>,
    slots_at: u64,
    logs_at: u64,
    sampled: u64,
    first_free: bool,
    prefetches: bool,
    random: Random,
}

/// The tag of a hash.
fn fold(hash: u64) -> u64 {
    let half = hash ^ hash >> 32;
    (half ^ half >> 16) & 0xffff
}

fn counter(word: u64, way: usize) -> u64 {
    word >> (4 * way) & MOST
}

/// Computes the index of a slot or log: the remainder of the hash by their number. Loads the base address,
/// too. Returns the two values that an address depends on. Each word of the table's object is given by
/// program counter, instructions and address.
fn reach<E: Emit>(
    e: &mut E,
    (pc, insns, count): (u64, u16, u64),
    (base_pc, base_insns, base): (u64, u16, u64),
    hashed: Value,
) -> [Value; 2] {
    let count = e.load(pc, insns, count, 8, [NONE; 2]);
    let rest = e.compute(pc, 0, DIVISION, [hashed.plus(1), count]);
    let base = e.load(base_pc, base_insns, base, 8, [NONE; 2]);
    [rest.plus(2), base.plus(1)]
}

impl Slb {
    /// An empty buffer of at least 320 bytes.
    pub fn new(choice: SlbChoice, layout: &mut Layout, populate: bool) -> Self {
        let count = choice.bytes / UNIT;
        let logs = count * LOGS_A_SLOT;
        Slb {
            count,
            slots: vec![0; (count * SLOT_BYTES / 8) as usize],
            logs: vec![0; (logs * LOG_BYTES / 2) as usize],
            slots_at: layout.array_of(count * SLOT_BYTES, choice.pages, populate),
            logs_at: layout.array_of(logs * LOG_BYTES, choice.pages, populate),
            sampled: DRAWS / choice.sampling,
            first_free: choice.first_free,
            prefetches: choice.prefetches,
            random: Random::START,
        }
    }

    /// Index of the first word of the integer's slot, and its address.
    fn slot(&self, integer: u64) -> (usize, u64) {
        let slot = (integer >> 6) % self.count;
        (8 * slot as usize, self.slots_at + SLOT_BYTES * slot)
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
        for (i, insns) in [1, 2, 4, 2, 1, 1].into_iter().enumerate() {
            let i = i as u64;
            e.store(FIND + 4 * i, insns, sp - 16 - 8 * i, 8, NONE, NONE);
        }
        let inner = sp - 64;
        let ready = reach(e, (FIND + 0x26, 3, COUNT), (FIND + 0x45, 9, SLOTS), hashed);
        let (first, va) = self.slot(integer);
        if self.prefetches {
            e.prefetch(FIND + 0x49, 1, va, ready);
        }
        e.jump(FIND + 0x4c, FIND + 0x5a, 2, TAKEN, [NONE; 2]);
        let tag = fold(integer);
        let mut found = None;
        for way in 0..WAYS {
            let entry = self.slots[first + 1 + way];
            let pointer = entry & POINTER;
            let word = e.load(FIND + 0x5a, 1, va + 8 + 8 * way as u64, 8, ready);
            let on = [word.plus(1), hashed.plus(4)];
            let other = entry >> 48 != tag;
            e.branch(FIND + 0x69, FIND + 0x50, 4, other, on);
            if !other {
                e.branch(FIND + 0x6e, FIND + 0x50, 2, pointer == 0, [word, NONE]);
                if let Some(known) = places.known(pointer, word.plus(1)) {
                    let order = indexes[known.owner].is_of(e, FIND + 0x70, key, &known, inner);
                    let is_it = known.number == key.number;
                    e.branch(FIND + 0x8a, FIND + 0x50, 3, !is_it, [order, NONE]);
                    if is_it {
                        found = Some(known);
                        self.count_hit(e, way, (first, va), ready);
                        break;
                    }
                }
            }
            let last = way + 1 == WAYS;
            e.branch(FIND + 0x58, FIND + 0xc0, 3, last, [NONE; 2]);
        }
        e.load(
            FIND + 0xea,
            if found.is_some() { 3 } else { 4 },
            sp - 56,
            8,
            [NONE; 2],
        );
        e.pop(FIND + 0xeb, 5, sp - 8);
        e.ret(FIND + 0xf4, CALL, 1, sp);
        found
    }

    fn count_hit<E: Emit>(
        &mut self,
        e: &mut E,
        way: usize,
        (first, va): (usize, u64),
        ready: [Value; 2],
    ) {
        let word = self.slots[first];
        let counters = e.load(FIND + 0x8c, 1, va, 8, ready);
        let most = counter(word, way) == MOST;
        e.branch(FIND + 0xa4, FIND + 0xc3, 6, most, [counters.plus(2), NONE]);
        if !most {
            self.slots[first] = word + (1 << (4 * way));
            e.store(FIND + 0xb1, 4, va, 8, ready[0], counters.plus(1));
            e.jump(FIND + 0xb5, FIND + 0xc3, 1, TAKEN, [NONE; 2]);
        }
    }

    /// Offers a record that the structure's own search found.
    pub fn insert<E: Emit>(
        &mut self,
        e: &mut E,
        site: u64,
        (integer, hashed): (u64, Value),
        (record, at): (u64, Value),
        sp: u64,
    ) {
        e.call(site, INSERT, 1, sp);
        let (count, slots, counters, branch, target) = if self.first_free {
            (
                (INSERT + 0xf, 6, COUNT),
                (INSERT + 0x16, 2, SLOTS),
                INSERT + 0x1a,
                INSERT + 0x2b,
                INSERT + 0x198,
            )
        } else {
            self.save(e, INSERT, [1, 3, 4], sp);
            (
                (INSERT + 0x13, 1, COUNT),
                (INSERT + 0x1a, 2, SLOTS),
                INSERT + 0x1e,
                INSERT + 0x2f,
                INSERT + 0x1a8,
            )
        };
        let ready = reach(e, count, slots, hashed);
        let (first, va) = self.slot(integer);
        let counters = e.load(counters, 1, va, 8, ready);
        let used = self.slots[first] >> 60;
        let full = used == WAYS as u64;
        let taken = full != self.first_free;
        e.branch(branch, target, 5, taken, [counters.plus(1), NONE]);
        let entry = fold(integer) << 48 | record;
        if self.first_free && !full {
            self.append(e, (first, va), entry, (ready, at), &AT_FIRST_MISS);
            e.ret(INSERT + 0x21a, site, 1, sp);
            return;
        }
        if self.first_free {
            self.save(e, INSERT + 0x31, [1, 1, 1], sp);
        }
        if full {
            let draw = if self.first_free { 0x35 } else { 0x1a8 };
            let state = e.load(INSERT + draw, 1, RANDOM, 8, [NONE; 2]);
            let drawn = state.plus(Random::LATENCY);
            e.store(INSERT + draw + 0x25, 10, RANDOM, 8, NONE, drawn);
            let sampled = e.load(INSERT + draw + 0x2e, 2, SAMPLED, 8, [NONE; 2]);
            let admitted = self.random.next() & (DRAWS - 1) < self.sampled;
            let on = [drawn.plus(1), sampled];
            // Without logs for free entries, the branch skips the rest of the function.
            let (branch, target, taken) = if self.first_free {
                (INSERT + 0x67, INSERT + 0x18e, !admitted)
            } else {
                (INSERT + 0x1d7, INSERT + 0x35, admitted)
            };
            e.branch(branch, target, 1, taken, on);
            if !admitted {
                let out = INSERT + if self.first_free { 0x18e } else { 0x1dd };
                e.pop(out, 3, sp - 8);
                e.ret(out + 4, site, 1, sp);
                return;
            }
        }
        let seen = self.log(e, integer, hashed);
        let mut out = if self.first_free { 0x18e } else { 0x19e };
        e.branch(INSERT + 0xa9, INSERT + out, 2, seen == 0, [NONE; 2]);
        if seen > 0 {
            e.branch(INSERT + 0xc0, INSERT + 0xe8, 6, full, [counters, NONE]);
            if full {
                if self.replace(e, (first, va), seen, entry, (ready, at)) {
                    out = 0x204;
                }
            } else {
                self.append(e, (first, va), entry, (ready, at), &AT_LATER_MISS);
                e.jump(INSERT + 0x227, INSERT + 0x19e, 1, TAKEN, [NONE; 2]);
            }
        }
        e.pop(INSERT + out, 3, sp - 8);
        e.ret(INSERT + out + 4, site, 1, sp);
    }

    /// Writes the tag into its log. Returns how often the log already held it.
    fn log<E: Emit>(&mut self, e: &mut E, integer: u64, hashed: Value) -> u64 {
        let number = (integer >> 6) % (self.count * LOGS_A_SLOT);
        let (first, va) = (8 * number as usize, self.logs_at + LOG_BYTES * number);
        let ready = reach(
            e,
            (INSERT + 0x3c, 4, LOG_COUNT),
            (INSERT + 0x5c, 9, LOGS),
            hashed,
        );
        let tag = fold(integer) as u16;
        let mut seen = 0;
        for way in 0..WAYS {
            let insns = if way == 0 { 4 } else { 1 };
            e.load(INSERT + 0x70, insns, va + 2 + 2 * way as u64, 2, ready);
            seen += u64::from(self.logs[first + 1 + way] == tag);
            let more = way + 1 < WAYS;
            e.branch(INSERT + 0x86, INSERT + 0x70, 7, more, [NONE; 2]);
        }
        let head = e.load(INSERT + 0x88, 1, va, 2, ready);
        let at = self.logs[first];
        let tag_va = va + 2 + 2 * u64::from(at);
        e.store(INSERT + 0x8e, 2, tag_va, 2, head, hashed.plus(4));
        e.store(INSERT + 0xa3, 5, va, 2, ready[0], head.plus(2));
        self.logs[first + 1 + usize::from(at)] = tag;
        self.logs[first] = (at + 1) % WAYS as u16;
        seen
    }

    /// Saves the three registers that an insertion uses.
    fn save<E: Emit>(&self, e: &mut E, pc: u64, insns: [u16; 3], sp: u64) {
        let step = if self.first_free { 2 } else { 9 };
        for (i, insns) in (0..).zip(insns) {
            e.store(pc + step * i, insns, sp - 16 - 8 * i, 8, NONE, NONE);
        }
    }

    /// Takes the first free entry.
    fn append<E: Emit>(
        &mut self,
        e: &mut E,
        (first, va): (usize, u64),
        entry: u64,
        (ready, at): ([Value; 2], Value),
        code: &Append,
    ) {
        for way in 0..WAYS {
            let insns = if way == 0 { code.first } else { 2 };
            let entry_va = va + 8 + 8 * way as u64;
            let word = e.load(code.load, insns, entry_va, 8, ready);
            let free = self.slots[first + 1 + way] & POINTER == 0;
            e.branch(code.load + 5, code.free, 1, free, [word.plus(1), NONE]);
            if free {
                self.slots[first + 1 + way] = entry;
                self.slots[first] += 1 << 60;
                e.store(code.entry.0, code.entry.1, entry_va, 8, ready[0], at);
                e.store(code.counters, 3, va, 8, ready[0], NONE);
                return;
            }
            let more = way + 1 < WAYS;
            e.branch(code.more.0, code.more.1, 3, more, [NONE; 2]);
        }
    }

    /// Replaces an entry whose counter is below `seen`. Returns true if there was one.
    fn replace<E: Emit>(
        &mut self,
        e: &mut E,
        (first, va): (usize, u64),
        seen: u64,
        entry: u64,
        (ready, at): ([Value; 2], Value),
    ) -> bool {
        let state = e.load(INSERT + 0xe8, 1, RANDOM, 8, [NONE; 2]);
        let drawn = state.plus(Random::LATENCY);
        e.store(INSERT + 0x11a, 13, RANDOM, 8, NONE, drawn);
        let mut way = (self.random.next() % WAYS as u64) as usize;
        // The remainder by a constant uses a multiplication: about twelve cycles.
        let on = [drawn.plus(12), NONE];
        let mut word = self.slots[first];
        let none = counter(word, way) == 0;
        e.branch(INSERT + 0x147, INSERT + 0x1e8, 13, none, on);
        if !none {
            word -= 1 << (4 * way);
            self.slots[first] = word;
            e.store(INSERT + 0x15b, 5, va, 8, ready[0], on[0]);
        }
        let mut gives = counter(word, way) < seen;
        if !none {
            e.branch(INSERT + 0x167, INSERT + 0x1e8, 4, gives, on);
            if !gives {
                e.jump(INSERT + 0x171, INSERT + 0x18d, 3, TAKEN, [NONE; 2]);
            }
        }
        for left in (0..WAYS).rev() {
            if gives {
                break;
            }
            e.branch(INSERT + 0x19c, INSERT + 0x178, 6, left > 0, [NONE; 2]);
            if left == 0 {
                return false;
            }
            way = (way + 1) % WAYS;
            gives = counter(word, way) < seen;
            e.branch(INSERT + 0x18b, INSERT + 0x1e8, 6, gives, on);
        }
        let shift = 4 * way;
        self.slots[first + 1 + way] = entry;
        self.slots[first] = word & !(MOST << shift) | seen << shift;
        let entry_va = va + 8 + 8 * way as u64;
        e.store(INSERT + 0x1e8, 1, entry_va, 8, on[0], at);
        e.store(INSERT + 0x201, 7, va, 8, ready[0], on[0].plus(3));
        true
    }

    /// Removes all entries with the tag of `integer`. The logs keep the tag.
    pub fn erase<E: Emit>(
        &mut self,
        e: &mut E,
        site: u64,
        (integer, hashed): (u64, Value),
        sp: u64,
    ) {
        e.call(site, ERASE, 2, sp);
        let ready = reach(
            e,
            (ERASE + 0x23, 7, COUNT),
            (ERASE + 0x34, 5, SLOTS),
            hashed,
        );
        e.jump(ERASE + 0x47, ERASE + 0x5a, 6, TAKEN, [NONE; 2]);
        let (first, va) = self.slot(integer);
        let tag = fold(integer);
        for way in 0..WAYS {
            let entry = self.slots[first + 1 + way];
            let entry_va = va + 8 + 8 * way as u64;
            let word = e.load(ERASE + 0x5a, 1, entry_va, 8, ready);
            let on = [word.plus(1), hashed.plus(4)];
            let other = entry >> 48 != tag;
            e.branch(ERASE + 0x69, ERASE + 0x50, 4, other, on);
            let held = entry & POINTER != 0;
            if !other {
                e.branch(ERASE + 0x6e, ERASE + 0x50, 2, !held, [word, NONE]);
            }
            let last = way + 1 == WAYS;
            if other || !held {
                e.branch(ERASE + 0x58, ERASE + 0x9f, 3, last, [NONE; 2]);
                continue;
            }
            let shift = 4 * way;
            self.slots[first + 1 + way] = 0;
            self.slots[first] = (self.slots[first] & !(MOST << shift)) - (1 << 60);
            e.store(ERASE + 0x7a, 3, entry_va, 8, ready[0], NONE);
            let counters = e.load(ERASE + 0x90, 5, va, 8, ready);
            e.store(ERASE + 0x96, 2, va, 8, ready[0], counters.plus(2));
            e.branch(ERASE + 0x9d, ERASE + 0x5a, 2, !last, [NONE; 2]);
        }
        e.ret(ERASE + 0x9f, site, 1, sp);
    }

    /// Updates the entry of a moved record, if there is one.
    pub fn update_moved<E: Emit>(
        &mut self,
        e: &mut E,
        site: u64,
        (integer, hashed): (u64, Value),
        (from, to): (u64, u64),
        sp: u64,
    ) {
        e.call(site, MOVE, 5, sp);
        let ready = reach(e, (MOVE + 0x12, 7, COUNT), (MOVE + 0x1b, 3, SLOTS), hashed);
        let (first, va) = self.slot(integer);
        for way in 0..WAYS {
            let insns = if way == 0 { 3 } else { 1 };
            let entry_va = va + 8 + 8 * way as u64;
            let word = e.load(MOVE + 0x30, insns, entry_va, 8, ready);
            let is_it = self.slots[first + 1 + way] & POINTER == from;
            e.branch(MOVE + 0x3b, MOVE + 0x50, 3, is_it, [word.plus(1), NONE]);
            if is_it {
                self.slots[first + 1 + way] = fold(integer) << 48 | to;
                e.store(MOVE + 0x6d, 10, entry_va, 8, ready[0], hashed.plus(6));
                break;
            }
            let more = way + 1 < WAYS;
            e.branch(MOVE + 0x45, MOVE + 0x30, 3, more, [NONE; 2]);
        }
        e.ret(MOVE + 0x72, site, 1, sp);
    }
}

#[cfg(test)]
mod tests {
    use pagewalk_units::PageSize;

    use super::{MOST, Slb, SlbChoice, UNIT, WAYS, counter, fold};
    use crate::kv::emit::Quiet;
    use crate::layout::Layout;
    use crate::thread::NONE;

    /// A buffer of one slot with the rules of the published code.
    fn slb(sampling: u64) -> Slb {
        let choice = SlbChoice {
            bytes: UNIT,
            sampling,
            first_free: false,
            prefetches: false,
            pages: PageSize::K4,
        };
        Slb::new(choice, &mut Layout::new(), false)
    }

    fn offer(slb: &mut Slb, hash: u64, record: u64) {
        slb.insert(&mut Quiet, 0, (hash, NONE), (record, NONE), 1 << 20);
    }

    #[test]
    fn a_record_is_admitted_when_its_log_has_its_tag() {
        let mut slb = slb(32);
        offer(&mut slb, 77, 0x1000);
        assert!(slb.slots.iter().all(|w| *w == 0));
        // Seven other tags in the same log push it out.
        for i in 1..=7 {
            offer(&mut slb, 77 + (i << 40), 0x2000);
        }
        offer(&mut slb, 77, 0x1000);
        assert_eq!(slb.slots[0] >> 60, 0);
        offer(&mut slb, 77, 0x1000);
        assert_eq!(slb.slots[0], 1 << 60);
        assert_eq!(slb.slots[1], fold(77) << 48 | 0x1000);
        slb.update_moved(&mut Quiet, 0, (77, NONE), (0x1000, 0x3000), 1 << 20);
        assert_eq!(slb.slots[1], fold(77) << 48 | 0x3000);
        slb.update_moved(&mut Quiet, 0, (77, NONE), (0x1000, 0x4000), 1 << 20);
        assert_eq!(slb.slots[1], fold(77) << 48 | 0x3000);
    }

    /// Free entries are taken without the log. A full slot asks it.
    #[test]
    fn a_record_takes_a_free_entry_at_its_first_miss() {
        let mut slb = slb(1);
        slb.first_free = true;
        for i in 0..WAYS as u64 {
            offer(&mut slb, i << 20, 0x1000 + i);
            assert_eq!(slb.slots[0] >> 60, i + 1);
            assert_eq!(
                slb.slots[1 + i as usize],
                (fold(i << 20) << 48) | (0x1000 + i)
            );
        }
        assert!(slb.logs.iter().all(|half| *half == 0));
        let full = slb.slots.clone();
        offer(&mut slb, 99 << 20, 0x5000);
        assert_eq!(slb.slots, full, "the log had no tag of it");
        offer(&mut slb, 99 << 20, 0x5000);
        assert_ne!(slb.slots, full);
    }

    /// Erasure removes all entries with the tag and no others. The slot has room again, and the log still
    /// holds the tag.
    #[test]
    fn an_erased_record_leaves_room() {
        let mut slb = slb(1);
        for way in 0..WAYS {
            let tag = if way % 3 == 1 { fold(99) } else { fold(98) };
            slb.slots[1 + way] = tag << 48 | 0x1000;
            slb.slots[0] += 1 << 60 | 5 << (4 * way);
        }
        slb.erase(&mut Quiet, 0, (97, NONE), 1 << 20);
        assert_eq!(slb.slots[0] >> 60, 7);
        slb.erase(&mut Quiet, 0, (99, NONE), 1 << 20);
        assert_eq!(slb.slots[0] >> 60, 5);
        for way in 0..WAYS {
            let gone = way % 3 == 1;
            assert_eq!(slb.slots[1 + way] == 0, gone);
            assert_eq!(counter(slb.slots[0], way), if gone { 0 } else { 5 });
        }
        offer(&mut slb, 99, 0x5000);
        offer(&mut slb, 99, 0x5000);
        assert_eq!(slb.slots[2], fold(99) << 48 | 0x5000);
        slb.erase(&mut Quiet, 0, (99, NONE), 1 << 20);
        offer(&mut slb, 99, 0x6000);
        assert_eq!(slb.slots[2], fold(99) << 48 | 0x6000);
    }

    /// In a full slot of frequently used records, a new record is admitted only after enough requests, and
    /// only in place of an entry with a lower counter.
    #[test]
    fn a_full_slot_keeps_what_is_used_more() {
        let mut slb = slb(1);
        slb.slots[0] = 7 << 60 | ((1 << 28) - 1);
        for way in 0..WAYS {
            slb.slots[1 + way] = 1 << 48 | 0x1000;
        }
        offer(&mut slb, 99, 0x5000);
        let before = slb.slots.clone();
        offer(&mut slb, 99, 0x5000);
        // One counter was decremented, no entry changed.
        assert_eq!(slb.slots[1..], before[1..]);
        let sum = |word| (0..WAYS).map(|w| counter(word, w)).sum::<u64>();
        assert_eq!(sum(slb.slots[0]), sum(before[0]) - 1);
        assert_eq!(slb.slots[0] >> 60, 7);
        // An unused entry is replaced. The new counter is the number of times that the tag was logged.
        let way = 3;
        slb.slots[0] &= !(MOST << (4 * way));
        offer(&mut slb, 99, 0x5000);
        assert_eq!(slb.slots[1 + way], fold(99) << 48 | 0x5000);
        assert_eq!(counter(slb.slots[0], way), 2);
    }

    #[test]
    fn a_full_slot_considers_one_of_so_many() {
        let mut slb = slb(32);
        slb.slots[0] = 7 << 60;
        let offered = 64_000;
        let mut logged = 0;
        for i in 0..offered {
            let before = slb.logs.clone();
            offer(&mut slb, i << 20, 0x1000);
            logged += u64::from(before != slb.logs);
        }
        // Five standard deviations of a binomial distribution around 2,000.
        assert!((1780..2220).contains(&logged), "{logged}");
    }
}
