//! `cuckoohash_map::upsert`, instruction by instruction: libcuckoo 0.3.1, inlined into the loop over k-mers
//! except for three functions. Program counters are the lower 16 bits of those of the listing.
//!
//! ```text
//! 26e5 the hash and its tag ; 2771 call e900
//! e900 snapshot_and_lock_two: hashpower, both buckets ; e95e the lower lock first
//!      e98a xchg a lock ; e9c2 xchg the other ; e9dd, e9ea call e790
//! e790 rehash_lock: cmpb 0x10(lock) ; e7af jne e856 ; e856 ret
//! 4e20 cuckoo_insert_loop: for each slot cmpb 0x44(bucket) ; je ; cmp tag,0x40(bucket) ;
//!      jne ; cmp key,(bucket) ; je 54d7
//! 27cc addq $1,8(entry), or 286e tag, key, value and flag ; 27df, 27ef unlock
//! ```

use pagewalk_stream::flags;

use super::code::{Counting, CountingState, FRAME, KMER};
use super::table::{BUCKET, Done, FLAGS, LAST_POWER, SLOTS, TAGS, TableSlot, hash, other, tag};
use crate::thread::{NONE, Thread, Value};

/// Offsets of the map's parts in a `KmerCounter`: hashpower, buckets, the list of locks.
const POWER: u64 = 0x28;
const BUCKETS: u64 = 0x30;
const LOCKS: u64 = 0x58;
/// Frames of the two functions called by the lambda, and of the function that they call.
const LOCKING: u64 = FRAME + 0x60;
const REHASH: u64 = LOCKING + 0x30;
const INSERTING: u64 = FRAME + 0xb0;

/// Outcome of an upsert, and the state before it.
pub(super) struct UpsertStep {
    power: u32,
    slots: [[TableSlot; SLOTS]; 2],
    done: Done,
}

/// Hash, buckets and locks of one upsert.
struct Key {
    power: u32,
    hashed: Value,
    buckets: [u64; 2],
    held: [u64; 2],
}

impl Counting {
    /// Upserts `kmer` into the map: growth, if any, and then the upsert itself.
    pub(super) fn upsert(state: &mut CountingState, kmer: u64) -> Vec<UpsertStep> {
        let mut steps = Vec::with_capacity(1);
        loop {
            let (power, slots) = (state.map.power, state.map.slots(kmer));
            let done = state.map.upsert(kmer);
            let again = matches!(done, Done::Grown(_));
            steps.push(UpsertStep { power, slots, done });
            if !again || state.map.power >= LAST_POWER {
                return steps;
            }
        }
    }

    fn lock(&self, bucket: u64) -> u64 {
        self.locks + 64 * (bucket & 0xffff)
    }

    pub(super) async fn emit(&self, t: &mut Thread, kmer: u64, form: Value, step: UpsertStep) {
        let UpsertStep { power, slots, done } = step;
        let key = self.hash(t, kmer, form, power);
        self.lock_two(t, &key);
        let (second, slot, new) = match &done {
            Done::Found { second, slot } => (*second, *slot, false),
            Done::Placed { second, slot } => (*second, *slot, true),
            Done::Moved { .. } | Done::Grown(_) => (true, SLOTS, true),
        };
        let frame = t.stack - FRAME;
        let result = self.search(t, &key, &slots, (!new).then_some((second, slot)));
        match &done {
            Done::Moved { visited, path } => self.make_room(t, power, visited, path).await,
            Done::Grown(moves) => self.grow(t, power, moves).await,
            Done::Found { .. } | Done::Placed { .. } => {}
        }
        for (pc, at, size) in [(0x279a, 0x90, 8), (0x27a2, 0xa0, 4), (0x27a9, 0x98, 8)] {
            t.load(pc, 1, frame + at, size, [NONE; 2]);
        }
        let buckets = t.load(0x27b1, 1, self.counter + BUCKETS, 8, [NONE; 2]);
        let at = [result, buckets];
        let found = matches!(done, Done::Found { .. });
        t.branch(0x27bf, 0x2860, 4, !found, [result, NONE]);
        let (bucket, slot) = match &done {
            Done::Moved { path, .. } => path[path.len() - 1],
            _ => (key.buckets[usize::from(second)], slot.min(SLOTS - 1)),
        };
        let bucket = self.tables.at(power) + BUCKET * bucket;
        if found {
            let value = bucket + 16 * slot as u64 + 8;
            let count = t.load(0x27cc, 3, value, 8, at);
            t.store(0x27cc, 0, value, 8, result, count.plus(1));
        } else if !matches!(done, Done::Grown(_)) {
            let flag = t.load(0x2863, 2, bucket + FLAGS + slot as u64, 1, at);
            t.branch(0x2868, 0x2a01, 1, false, [flag, NONE]);
            t.load(0x286e, 1, frame + 0x1f, 1, [NONE; 2]);
            t.load(0x2873, 1, frame + KMER, 8, [NONE; 2]);
            self.put(t, bucket, slot as u64, key.held[usize::from(second)]);
            t.jump(0x28ab, 0x27d2, 1, flags::TAKEN, [NONE; 2]);
        }
        let same = key.held[0] == key.held[1];
        let other = t.load(0x27d2, 1, frame + 0xc8, 8, [NONE; 2]);
        t.branch(0x27dd, 0x27e2, 2, same, [other, NONE]);
        if !same {
            t.store(0x27df, 1, key.held[1], 1, other, NONE);
        }
        let one = t.load(0x27e2, 1, frame + 0xc0, 8, [NONE; 2]);
        t.branch(0x27ed, 0x27f2, 2, false, [one, NONE]);
        t.store(0x27ef, 1, key.held[0], 1, one, NONE);
        if t.full() {
            t.pause().await;
        }
    }

    /// Hash of the k-mer: three multiplications, and the folding of the tag.
    fn hash(&self, t: &mut Thread, kmer: u64, form: Value, power: u32) -> Key {
        let frame = t.stack - FRAME;
        t.load(0x26e0, 2, frame + KMER, 8, [NONE; 2]);
        t.store(0x26fe, 5, frame + 0x10, 8, NONE, NONE);
        let hashed = form.plus(14);
        t.store(0x2743, 16, frame + 0x40, 8, NONE, hashed);
        t.store(0x2764, 11, frame + 0x1f, 1, NONE, hashed.plus(7));
        t.store(0x2769, 1, frame + 0x48, 1, NONE, hashed.plus(7));
        let hash = hash(kmer);
        let first = hash & ((1 << power) - 1);
        let buckets = [first, other(first, tag(hash), power)];
        Key {
            power,
            hashed,
            buckets,
            held: buckets.map(|b| self.lock(b)),
        }
    }

    /// `snapshot_and_lock_two`.
    fn lock_two(&self, t: &mut Thread, key: &Key) {
        let (outer, frame) = (t.stack - FRAME, t.stack - LOCKING);
        t.call(0x2771, 0xe900, 2, FRAME);
        for (i, insns) in (0..6).zip([1, 1, 1, 2, 2, 2]) {
            t.store(0xe900 + 2 * i, insns, frame + 0x50 - 8 * i, 8, NONE, NONE);
        }
        let power = t.load(0xe91b, 3, self.counter + POWER, 8, [NONE; 2]);
        let tag = t.load(0xe933, 4, outer + 0x48, 1, [NONE; 2]);
        t.load(0xe937, 1, outer + 0x40, 8, [NONE; 2]);
        let ready = [key.hashed.plus(8), tag.plus(6)];
        t.store(0xe957, 9, frame, 8, power, ready[1]);
        let [first, second] = key.held;
        t.branch(0xe95e, 0xea40, 2, second >= first, ready);
        if second >= first {
            t.jump(0xea46, 0xe96a, 3, flags::TAKEN, [NONE; 2]);
        }
        let swapped = 2 * u16::from(second < first);
        let node = t.load(0xe96a, 1 + swapped, self.counter + LOCKS, 8, [NONE; 2]);
        let locks = t.load(0xe97a, 4, self.node + 0x10, 8, [node, NONE]);
        let old = t.atomic(0xe98a, 4, first.min(second), 1, [ready[1], locks]);
        t.branch(0xe98e, 0xe988, 2, false, [old, NONE]);
        t.load(0xe990, 1, self.node + 0x10, 8, [node, NONE]);
        let now = t.load(0xe994, 1, self.counter + POWER, 8, [NONE; 2]);
        t.branch(0xe99b, 0xea55, 2, false, [now, NONE]);
        t.branch(0xe9a4, 0xe9c8, 2, first == second, [ready[1], NONE]);
        if first != second {
            let locks = t.load(0xe9b2, 4, self.node + 0x10, 8, [node, NONE]);
            let old = t.atomic(0xe9c2, 3, first.max(second), 1, [ready[1], locks]);
            t.branch(0xe9c6, 0xe9c0, 2, false, [old, NONE]);
        }
        for (i, insns) in (0..3).zip([3, 1, 1]) {
            t.store(0xe9ce + 5 * i, insns, frame + 0x10 + 8 * i, 8, NONE, NONE);
        }
        self.rehash(t, 0xe9dd, first.min(second));
        t.load(0xe9e2, 2, frame + 0x18, 8, [NONE; 2]);
        self.rehash(t, 0xe9ea, first.max(second));
        for (i, at) in [0, 0x10, 8].into_iter().enumerate() {
            t.load(0xe9ef + 4 * i as u64, 1, frame + at, 8, [NONE; 2]);
        }
        t.store(0xe9fd, 1, outer + 0xb8, 8, NONE, ready[1]);
        t.load(0xea08, 3, self.node + 0x10, 8, [node, NONE]);
        t.store(0xea0c, 1, outer + 0xb0, 8, NONE, ready[0]);
        t.store(0xea10, 1, outer + 0xc0, 8, NONE, ready[0]);
        t.branch(0xea17, 0xea50, 2, first == second, [ready[1], NONE]);
        if first == second {
            t.jump(0xea53, 0xea21, 2, flags::TAKEN, [NONE; 2]);
        } else {
            t.load(0xea1d, 2, self.node + 0x10, 8, [node, NONE]);
        }
        t.store(0xea21, 1, outer + 0xc8, 8, NONE, ready[1]);
        restore(t, 0xea2c, frame + 0x28, 6);
        t.ret(0xea36, 0x2771, 1, FRAME);
    }

    /// `rehash_lock` for a lock whose buckets have all moved.
    fn rehash(&self, t: &mut Thread, from: u64, lock: u64) {
        let frame = t.stack - REHASH;
        t.call(from, 0xe790, 1, LOCKING);
        for (i, insns) in (0..5).zip([1, 2, 2, 1, 1]) {
            t.store(0xe790 + 2 * i, insns, frame - 8 * i, 8, NONE, NONE);
        }
        let node = t.load(0xe79f, 1, self.counter + LOCKS, 8, [NONE; 2]);
        let locks = t.load(0xe7a3, 1, self.node + 0x10, 8, [node, NONE]);
        let moved = t.load(0xe7aa, 2, lock + 0x10, 1, [locks, NONE]);
        t.branch(0xe7af, 0xe856, 1, true, [moved, NONE]);
        restore(t, 0xe856, frame - 0x20, 5);
        t.ret(0xe85e, from, 1, LOCKING);
    }

    /// `cuckoo_insert_loop`: the slots of both buckets, up to the key's if it has a `place`. Returns the
    /// value on which the place depends.
    fn search(
        &self,
        t: &mut Thread,
        key: &Key,
        slots: &[[TableSlot; SLOTS]; 2],
        place: Option<(bool, usize)>,
    ) -> Value {
        let (outer, frame) = (t.stack - FRAME, t.stack - INSERTING);
        for (pc, insns, at) in [(0x2776, 1, 0x40), (0x277e, 2, 0x48), (0x2783, 1, 0x10)] {
            t.load(pc, insns, outer + at, 8, [NONE; 2]);
        }
        t.call(0x2795, 0x4e20, 3, FRAME);
        for (i, insns) in (0..6).zip([1, 3, 1, 1, 2, 1]) {
            t.store(0x4e20 + 4 * i, insns, frame + 0xa0 - 8 * i, 8, NONE, NONE);
        }
        for (i, at) in [0x30, 0x38, 8, 0].into_iter().enumerate() {
            let insns = if i == 0 { 3 } else { 1 };
            t.store(0x4e3b + 5 * i as u64, insns, frame + at, 8, NONE, NONE);
        }
        let own = t.load(0x4e4e, 1, frame, 8, [NONE; 2]);
        t.load(0x4e52, 1, self.counter + POWER, 8, [own, NONE]);
        let first = t.load(0x4e55, 1, outer + 0xb0, 8, [NONE; 2]);
        let buckets = t.load(0x4e59, 1, self.counter + BUCKETS, 8, [NONE; 2]);
        t.load(0x4e5d, 1, frame + 0x30, 8, [NONE; 2]);
        t.load(0x4e62, 1, frame + 0x38, 1, [NONE; 2]);
        let last = place.map_or(1, |p| usize::from(p.0));
        for (number, slots) in slots.iter().enumerate().take(last + 1) {
            let index = match number {
                0 => first,
                _ => t.load(0x4f02, 1, outer + 0xb8, 8, [NONE; 2]),
            };
            let bucket = self.tables.at(key.power) + BUCKET * key.buckets[number];
            let until = place.filter(|_| number == last).map(|p| p.1);
            let inputs = [index.plus(3), buckets];
            Self::scan(t, number, bucket, slots, until, inputs);
        }
        match place {
            Some((true, _)) => {
                t.jump(0x56e8, 0x54dc, 3, flags::TAKEN, [NONE; 2]);
                t.jump(0x54e1, 0x4f9e, 2, flags::TAKEN, [NONE; 2]);
            }
            Some((false, _)) => t.jump(0x54e1, 0x4f9e, 3, flags::TAKEN, [NONE; 2]),
            None => {
                // A free slot in the first bucket is preferred.
                let second = !slots[0].contains(&TableSlot::Free);
                t.branch(0x503d, 0x5060, 2, second, [NONE; 2]);
                if second {
                    t.jump(0x5064, 0x4f99, 4, flags::TAKEN, [NONE; 2]);
                }
            }
        }
        for i in 0..3 {
            t.store(
                0x503f + 4 * i,
                1,
                outer + 0x90 + 8 * i,
                8,
                NONE,
                first.plus(1),
            );
        }
        if place.is_some() || !slots[0].contains(&TableSlot::Free) {
            t.jump(0x4fa9, 0x504e, 1, flags::TAKEN, [NONE; 2]);
        }
        restore(t, 0x5055, frame + 0x78, 6);
        t.ret(0x505f, 0x2795, 1, FRAME);
        first.plus(4)
    }

    /// Scans the slots of one bucket, up to the key's if it is present.
    fn scan(
        t: &mut Thread,
        number: usize,
        bucket: u64,
        slots: &[TableSlot; SLOTS],
        key: Option<usize>,
        at: [Value; 2],
    ) {
        let (outer, frame) = (t.stack - FRAME, t.stack - INSERTING);
        let flag = |s: usize| bucket + FLAGS + s as u64;
        let from = [0x4e67, 0x4f07][number];
        // If the third slot is free, the last slot's flag is loaded there.
        let mut known = false;
        for (s, slot) in slots.iter().enumerate().take(key.map_or(SLOTS, |k| k + 1)) {
            let pc = from + 0x27 * s as u64;
            let next = pc + 0x27;
            if !known {
                // The first slot also includes the computation of its bucket's address.
                let insns = if s == 0 { 3 } else { 1 };
                let used = t.load(pc + 8, insns, flag(s), 1, at);
                t.branch(
                    pc + 0xc,
                    pc + 0x118,
                    1,
                    *slot == TableSlot::Free,
                    [used, NONE],
                );
            }
            if *slot == TableSlot::Free {
                if s == 2 {
                    let used = t.load(pc + 0x118, 1, flag(3), 1, at);
                    let full = slots[3] != TableSlot::Free;
                    t.branch(pc + 0x126, next + 0x12, 3, full, [used, NONE]);
                    known = true;
                } else if number == 0 {
                    t.jump(pc + 0x11d, next, 3, flags::TAKEN, [NONE; 2]);
                } else {
                    t.compute(pc + 0x118, 2, 1, [NONE; 2]);
                }
                continue;
            }
            let byte = t.load(pc + 0x12, 1, bucket + TAGS + s as u64, 1, at);
            t.branch(pc + 0x16, next, 1, *slot == TableSlot::Other, [byte, NONE]);
            if *slot == TableSlot::Tagged {
                let pointer = t.load(pc + 0x18, 1, frame + 8, 8, [NONE; 2]);
                t.load(pc + 0x1d, 1, outer + KMER, 8, [pointer, NONE]);
                let entry = t.load(pc + 0x20, 1, bucket + 16 * s as u64, 8, at);
                t.branch(pc + 0x23, 0x54d7, 1, key == Some(s), [entry, NONE]);
            }
            if s == 0 && key != Some(0) {
                t.compute(pc + 0x25, 2, 1, [NONE; 2]);
            }
        }
    }

    /// The search for a free slot, then the moves of the entries of `path` by one position.
    async fn make_room(&self, t: &mut Thread, power: u32, visited: &[u64], path: &[(u64, usize)]) {
        let table = self.tables.at(power);
        for bucket in visited {
            let at = table + BUCKET * bucket;
            t.atomic(0x3300, 6, self.lock(*bucket), 1, [NONE; 2]);
            t.load(0x3310, 4, at + FLAGS, 4, [NONE; 2]);
            t.load(0x3318, 8, at + TAGS, 4, [NONE; 2]);
            t.store(0x3320, 2, self.lock(*bucket), 1, NONE, NONE);
            if t.full() {
                t.pause().await;
            }
        }
        for pair in path.windows(2) {
            let from = table + BUCKET * pair[1].0;
            let entry = t.load(0x3330, 4, from + 16 * pair[1].1 as u64, 16, [NONE; 2]);
            let to = table + BUCKET * pair[0].0;
            t.store(0x3338, 1, to + 16 * pair[0].1 as u64, 16, NONE, entry);
            self.put(t, to, pair[0].1 as u64, self.lock(pair[0].0));
        }
    }

    /// Moves all entries to the table of twice the size.
    async fn grow(&self, t: &mut Thread, power: u32, moves: &[[(u64, usize); 2]]) {
        let table = self.tables.at(power);
        let next = self.tables.at((power + 1).min(LAST_POWER));
        for [from, to] in moves {
            let (old, new) = (table + BUCKET * from.0, next + BUCKET * to.0);
            t.load(0x3340, 3, old + FLAGS + from.1 as u64, 1, [NONE; 2]);
            // The key is hashed again to find its bucket.
            let entry = t.load(0x3348, 25, old + 16 * from.1 as u64, 16, [NONE; 2]);
            t.store(0x3350, 2, new + 16 * to.1 as u64, 16, entry.plus(15), entry);
            t.store(0x3354, 1, new + TAGS + to.1 as u64, 1, entry.plus(15), NONE);
            t.store(
                0x3358,
                1,
                new + FLAGS + to.1 as u64,
                1,
                entry.plus(15),
                NONE,
            );
            if t.full() {
                t.pause().await;
            }
        }
    }

    /// Stores a new entry: tag, key, value and flag. Increments the lock's count of entries.
    fn put(&self, t: &mut Thread, bucket: u64, slot: u64, lock: u64) {
        t.store(0x287f, 3, bucket + TAGS + slot, 1, NONE, NONE);
        t.store(0x288e, 4, bucket + 16 * slot, 8, NONE, NONE);
        t.store(0x2891, 1, bucket + 16 * slot + 8, 8, NONE, NONE);
        t.store(0x2899, 1, bucket + FLAGS + slot, 1, NONE, NONE);
        let node = t.load(0x289e, 1, self.counter + LOCKS, 8, [NONE; 2]);
        let locks = t.load(0x28a2, 1, self.node + 0x10, 8, [node, NONE]);
        let count = t.load(0x28a6, 1, lock + 8, 8, [locks, NONE]);
        t.store(0x28a6, 0, lock + 8, 8, locks, count.plus(1));
    }
}

/// Restores saved registers from `at` on.
fn restore(t: &mut Thread, pc: u64, at: u64, registers: u64) {
    for i in 0..registers {
        // Two instructions before the first load release the frame.
        let insns = if i == 0 && registers == 6 { 3 } else { 1 };
        t.load(pc + 2 * i, insns, at + 8 * i, 8, [NONE; 2]);
    }
}
