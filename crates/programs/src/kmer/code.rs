//! What a thread does, instruction by instruction; program counters are those of
//! the listing.

use std::sync::{Mutex, PoisonError};

use pagewalk_stream::{Backing, Event, flags};
use pagewalk_units::VirtAddr;

use super::reads::Reads;
use super::table::{
    BUCKET, Counts, Cuckoo, Done, FIRST_POWER, FLAGS, LAST_POWER, SLOTS, TAGS, other, tag,
};
use crate::heap::{Heap, chunk};
use crate::layout::CODE;
use crate::thread::{NONE, Thread, Value};

/// The parameters' singleton and its guard.
const GUARD: u64 = CODE + 0x9000;
const KMER_SIZE: u64 = GUARD + 16;
/// Instructions and memory operands of an upsert that finds its key in the first
/// bucket: measured for libcuckoo 0.3 compiled by gcc 12.2 -O2, 253 and 126. What
/// the emitted accesses of the algorithm do not account for is the traffic of its
/// lock guards and iterators on the stack.
const UPSERT_STACK: u64 = 52;

/// Objects of a read beside its bases: the buffer with its counts and vector, and
/// the read's name.
pub const OBJECTS: [u64; 2] = [40, 48];

/// Where reads lie.
pub enum ReadAddresses {
    /// Objects of each read at equal distances.
    Regular { first: u64, each: u64 },
    /// Its buffer and its bases.
    Each(Vec<[u64; 2]>),
}

impl ReadAddresses {
    /// Addresses of the buffer object and of the bases of a read.
    fn of(&self, read: u64) -> [u64; 2] {
        match self {
            ReadAddresses::Regular { first, each } => {
                let at = first + each * read;
                [at, at + OBJECTS.map(chunk).iter().sum::<u64>()]
            }
            ReadAddresses::Each(all) => all[read as usize],
        }
    }
}

/// Address space of the hash map's buckets, one stretch for each size that it can
/// grow to. The program maps them when it grows; here all are mapped before it
/// starts and touched when they are filled, so that threads agree on them.
pub struct Tables {
    at: Vec<u64>,
    pub events: Vec<Event>,
}

impl Tables {
    pub fn at(&self, power: u32) -> u64 {
        self.at[(power - FIRST_POWER) as usize]
    }
}

/// See [`Tables`].
pub fn tables(heap: &mut Heap) -> Tables {
    let mut tables = Tables {
        at: Vec::new(),
        events: Vec::new(),
    };
    for power in FIRST_POWER..=LAST_POWER {
        let bytes = (BUCKET << power).next_multiple_of(4096);
        let at = heap.reserve(bytes);
        tables.at.push(at);
        tables.events.push(Event::Map {
            at: VirtAddr(at),
            bytes,
            writable: true,
            backing: Backing::Anonymous,
        });
    }
    tables
}

/// What the threads share.
pub struct Counting {
    pub k: u64,
    pub reads: Reads,
    pub places: ReadAddresses,
    pub counter: u64,
    pub flat: u64,
    pub locks: u64,
    pub tables: Tables,
    pub state: Mutex<State>,
}

/// What changes.
pub struct State {
    /// Next read to be taken.
    next: u64,
    pub counts: Counts,
    map: Cuckoo,
}

impl State {
    pub fn new() -> Self {
        State {
            next: 0,
            counts: Counts::default(),
            map: Cuckoo::new(),
        }
    }
}

impl Counting {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub async fn run(&self, t: &mut Thread) {
        let mut bases = Vec::new();
        loop {
            let read = {
                let mut state = self.state();
                state.next += 1;
                state.next - 1
            };
            // processInParallel takes jobs from a shared counter.
            t.atomic(0x400, 8, self.counter + 32, 8, [NONE; 2]);
            t.branch(0x408, 0x420, 2, read >= self.reads.count(), [NONE; 2]);
            if read >= self.reads.count() {
                return;
            }
            self.reads.read(read, &mut bases);
            if (bases.len() as u64) < self.k {
                continue;
            }
            let [object, data] = self.places.of(read);
            let mut kmer = 0;
            let mask = (1 << (2 * self.k)) - 1;
            for base in &bases[..self.k as usize - 1] {
                kmer = kmer << 2 | u64::from(*base);
            }
            // The first k-mer is put together base by base.
            for i in 0..self.k {
                t.load(0xa6, 9, data + i / 32 * 8, 8, [NONE; 2]);
                t.branch(0xb9, 0x8c, 5, i + 1 < self.k, [NONE; 2]);
            }
            let mut value = NONE;
            let last = bases.len() - self.k as usize;
            for (i, base) in bases[self.k as usize - 1..].iter().enumerate() {
                kmer = (kmer << 2 | u64::from(*base)) & mask;
                self.count(t, canonical(kmer, self.k), value).await;
                t.request();
                if i == last {
                    break;
                }
                let bits = data + (i as u64 + self.k) / 32 * 8;
                value = self.advance(t, object, bits, i + 1 < last);
                if t.full() {
                    t.pause().await;
                }
            }
        }
    }

    /// The next base of a read joins the k-mer.
    fn advance(&self, t: &mut Thread, object: u64, bits: u64, more: bool) -> Value {
        let sp = t.stack - 0x78;
        t.load(0x182, 1, GUARD, 1, [NONE; 2]);
        t.branch(0x18b, 0x2d8, 2, false, [NONE; 2]);
        let sequence = t.load(0x191, 1, sp + 0x10, 8, [NONE; 2]);
        let position = t.load(0x196, 1, sp, 8, [NONE; 2]);
        let size = t.load(0x19a, 1, KMER_SIZE, 8, [NONE; 2]);
        let buffer = t.load(0x1a1, 1, object + 24, 8, [sequence, NONE]);
        let strand = t.load(0x1a4, 1, object + 32, 1, [sequence, NONE]);
        let words = t.load(0x1a8, 1, object, 8, [buffer, NONE]);
        t.branch(0x1ac, 0x220, 1, true, [strand.plus(1), NONE]);
        let place = t.compute(0x22c, 4, 3, [position, size]);
        let word = t.load(0x22d, 1, bits, 8, [words, place]);
        let kmer = word.plus(3);
        t.load(0x23b, 4, GUARD, 1, [NONE; 2]);
        t.branch(0x244, 0x1de, 2, true, [NONE; 2]);
        t.load(0x1de, 1, KMER_SIZE, 8, [NONE; 2]);
        let at = t.load(0x1ec, 2, sp, 8, [NONE; 2]);
        t.store(0x1ec, 0, sp, 8, NONE, at.plus(1));
        t.load(0x1f1, 1, sp, 8, [NONE; 2]);
        let end = t.load(0x202, 5, sp + 0x18, 8, [NONE; 2]);
        t.branch(0x207, 0xf8, 1, more, [end.plus(1), at.plus(2)]);
        kmer.plus(1)
    }

    /// One more of `kmer`, which `value` produces before it is in standard form.
    async fn count(&self, t: &mut Thread, kmer: u64, value: Value) {
        let sp = t.stack - 0x78;
        t.jump(0x100, 0x125, 4, flags::TAKEN, [NONE; 2]);
        for i in 0..=self.k {
            t.load(0x125, if i == 0 { 1 } else { 7 }, GUARD, 1, [NONE; 2]);
            t.branch(0x131, 0x108, 3, true, [NONE; 2]);
            let size = t.load(0x108, 1, KMER_SIZE, 8, [NONE; 2]);
            t.branch(0x10f, 0x160, 1, i == self.k, [size.plus(1), NONE]);
        }
        // A turn shifts one and adds to the other: one cycle each, in parallel.
        let form = value.plus(self.k + 4);
        let counter = t.load(0x160, 1, sp + 8, 8, [NONE; 2]);
        let flat = t.load(0x16f, 4, self.counter, 1, [counter, NONE]);
        t.branch(0x172, 0x270, 1, true, [flat.plus(1), NONE]);
        t.load(0x27d, 5, sp + 8, 8, [NONE; 2]);
        let base = t.load(0x282, 1, self.counter + 8, 8, [counter, NONE]);
        let va = self.flat + kmer / 2;
        let old = t.load(0x286, 1, va, 1, [form.plus(1), base]);
        let low = kmer.is_multiple_of(2);
        t.branch(0x28f, 0x308, 3, low, [form.plus(1), NONE]);
        let (before, done) = {
            let mut state = self.state();
            let before = state.counts.add(kmer);
            (
                before,
                (before >= 15).then(|| self.upsert(&mut state, kmer)),
            )
        };
        let branch = if low { 0x30e } else { 0x297 };
        t.branch(branch, 0x178, 3, before >= 15, [old.plus(2), NONE]);
        if let Some(done) = done {
            t.load(0x178, 1, sp + 8, 8, [NONE; 2]);
            t.call(0x17d, 0x1000, 1, 0x78);
            for step in done {
                self.emit(t, kmer, step).await;
            }
            t.ret(0x1400, 0x17d, 2, 0x78);
            return;
        }
        if low {
            t.jump(0x318, 0x2a1, 2, flags::TAKEN, [NONE; 2]);
        }
        t.load(0x2a1, 1 + u16::from(!low), sp + 8, 8, [NONE; 2]);
        let base = t.load(0x2a6, 1, self.counter + 8, 8, [NONE; 2]);
        let swapped = t.atomic(0x2aa, 1, va, 1, [base, NONE]);
        t.branch(0x2b0, 0x27d, 1, false, [swapped, NONE]);
        t.branch(0x2b4, 0x182, 2, before > 0, [old.plus(2), NONE]);
        if before == 0 {
            t.load(0x2ba, 1, sp + 8, 8, [NONE; 2]);
            t.atomic(0x2bf, 1, self.counter + 0x10, 8, [NONE; 2]);
            t.jump(0x2c5, 0x182, 1, flags::TAKEN, [NONE; 2]);
        }
    }

    /// What the map does for `kmer`: growth, if any, and then the upsert.
    fn upsert(&self, state: &mut State, kmer: u64) -> Vec<(u32, Done)> {
        let mut steps = Vec::with_capacity(1);
        loop {
            let power = state.map.power;
            let done = state.map.upsert(kmer);
            let again = matches!(done, Done::Grown(_));
            steps.push((power, done));
            if !again || state.map.power >= LAST_POWER {
                return steps;
            }
        }
    }

    async fn emit(&self, t: &mut Thread, kmer: u64, (power, done): (u32, Done)) {
        let sp = t.stack - 0x200;
        let table = self.tables.at(power);
        let hash = super::table::hash(kmer);
        let first = hash & ((1 << power) - 1);
        let buckets = [first, other(first, tag(hash), power)];
        // The hash: three multiplications, and the tag's folding.
        let hashed = t.compute(0x1020, 22, 15, [NONE; 2]);
        for i in 0..UPSERT_STACK {
            t.store(0x1030 + 8 * i, 1, sp + 8 * (i % 24), 8, NONE, NONE);
            let insns = 2 + (i % 2) as u16;
            t.load(0x1034 + 8 * i, insns, sp + 8 * (i % 24), 8, [NONE; 2]);
        }
        t.load(0x1200, 2, self.counter + 0x28, 8, [NONE; 2]);
        let lock = |bucket: u64| self.locks + 64 * (bucket & 0xffff);
        let held = buckets.map(lock);
        t.atomic(0x1208, 3, held[0], 1, [hashed, NONE]);
        if held[1] != held[0] {
            t.atomic(0x1210, 3, held[1], 1, [hashed.plus(5), NONE]);
        }
        t.load(0x1218, 2, self.counter + 0x28, 8, [NONE; 2]);
        let (second, slot, new) = match &done {
            Done::Found { second, slot } => (*second, *slot, false),
            Done::Placed { second, slot } => (*second, *slot, true),
            Done::Moved { .. } | Done::Grown(_) => (true, SLOTS - 1, true),
        };
        for (number, bucket) in buckets.iter().enumerate() {
            let whole = new || (second && number == 0);
            if number == 1 && !second && !new {
                break;
            }
            let slots = if whole { SLOTS } else { slot + 1 } as u64;
            let at = table + BUCKET * bucket;
            for s in 0..slots {
                let used = t.load(0x1220, 2, at + FLAGS + s, 1, [hashed.plus(6), NONE]);
                t.branch(0x1226, 0x1250, 2, false, [used, NONE]);
                let tag = t.load(0x122c, 1, at + TAGS + s, 1, [hashed.plus(6), NONE]);
                let found = !new && s as usize == slot && second == (number == 1);
                t.branch(0x1232, 0x1250, 2, !found, [tag.plus(1), hashed]);
            }
        }
        let at = table + BUCKET * buckets[usize::from(second)] + 16 * slot as u64;
        match done {
            Done::Found { .. } => {
                let key = t.load(0x1240, 1, at, 8, [hashed.plus(6), NONE]);
                t.branch(0x1246, 0x1250, 2, false, [key.plus(1), NONE]);
                let count = t.load(0x1260, 3, at + 8, 8, [hashed.plus(6), NONE]);
                t.store(0x1260, 0, at + 8, 8, hashed.plus(6), count.plus(1));
            }
            Done::Placed { .. } => {
                let bucket = at - 16 * slot as u64;
                self.put(t, bucket, slot as u64, held[usize::from(second)]);
            }
            Done::Moved { visited, path } => {
                for bucket in visited {
                    let at = table + BUCKET * bucket;
                    t.atomic(0x1300, 6, lock(bucket), 1, [NONE; 2]);
                    t.load(0x1310, 4, at + FLAGS, 4, [NONE; 2]);
                    t.load(0x1318, 8, at + TAGS, 4, [NONE; 2]);
                    t.store(0x1320, 2, lock(bucket), 1, NONE, NONE);
                    if t.full() {
                        t.pause().await;
                    }
                }
                for pair in path.windows(2) {
                    let from = table + BUCKET * pair[1].0;
                    let entry = t.load(0x1330, 4, from + 16 * pair[1].1 as u64, 16, [NONE; 2]);
                    let to = table + BUCKET * pair[0].0;
                    t.store(0x1338, 1, to + 16 * pair[0].1 as u64, 16, NONE, entry);
                    self.put(t, to, pair[0].1 as u64, lock(pair[0].0));
                }
                let (bucket, slot) = path[path.len() - 1];
                self.put(t, table + BUCKET * bucket, slot as u64, lock(bucket));
            }
            Done::Grown(moves) => {
                let next = self.tables.at((power + 1).min(LAST_POWER));
                for [from, to] in moves {
                    let (old, new) = (table + BUCKET * from.0, next + BUCKET * to.0);
                    t.load(0x1340, 3, old + FLAGS + from.1 as u64, 1, [NONE; 2]);
                    // The key is hashed again to find its bucket.
                    let entry = t.load(0x1348, 25, old + 16 * from.1 as u64, 16, [NONE; 2]);
                    t.store(0x1350, 2, new + 16 * to.1 as u64, 16, entry.plus(15), entry);
                    t.store(0x1354, 1, new + TAGS + to.1 as u64, 1, entry.plus(15), NONE);
                    t.store(
                        0x1358,
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
        }
        t.store(0x1380, 2, held[1], 1, NONE, NONE);
        if held[0] != held[1] {
            t.store(0x1388, 2, held[0], 1, NONE, NONE);
        }
        if t.full() {
            t.pause().await;
        }
    }

    /// A new entry: tag, flag, key with value, and the lock's count of entries.
    fn put(&self, t: &mut Thread, bucket: u64, slot: u64, lock: u64) {
        t.store(0x1270, 2, bucket + TAGS + slot, 1, NONE, NONE);
        t.store(0x1276, 1, bucket + 16 * slot, 16, NONE, NONE);
        t.store(0x127c, 1, bucket + FLAGS + slot, 1, NONE, NONE);
        let count = t.load(0x1282, 1, lock + 8, 8, [NONE; 2]);
        t.store(0x1282, 0, lock + 8, 8, NONE, count.plus(1));
    }
}

/// The smaller of a k-mer and its reverse complement.
pub fn canonical(kmer: u64, k: u64) -> u64 {
    let (mut rest, mut reverse) = (kmer, 0);
    for _ in 0..k {
        reverse = reverse << 2 | !rest & 3;
        rest >>= 2;
    }
    kmer.min(reverse)
}
