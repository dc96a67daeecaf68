//! The code of a thread, instruction by instruction. Program counters are those of the listing.

use std::sync::{Mutex, PoisonError};

use pagewalk_stream::{Backing, Event, flags};
use pagewalk_units::VirtAddr;

use super::reads::Reads;
use super::table::{BUCKET, Counts, Cuckoo, FIRST_POWER, LAST_POWER};
use crate::heap::{Heap, chunk};
use crate::layout::CODE;
use crate::thread::{NONE, Thread, Value};

/// `Parameters::get().kmerSize`, in the data segment.
const KMER_SIZE: u64 = CODE + 0x9008;

/// Bytes of a `KmerCounter`, and offsets of the fields that the loop reads.
pub const COUNTER_BYTES: u64 = 192;
const USES_FLAT: u64 = 0x9;
const IS_HIGHMEM: u64 = 0xa;
const FLAT: u64 = 0x10;
const KMERS: u64 = 0xb8;
/// Bytes of a `FastaRecord`. A read has two: itself and its reverse complement.
const RECORD: u64 = 56;
/// Bytes of a read in the lists of reads: its records, and a four-byte number for each.
pub const LISTED: u64 = 2 * RECORD + 8;
/// Bytes of a `SequenceContainer` that are read: begin and end of the records, and the first number.
pub const CONTAINER_BYTES: u64 = 32;
/// Offset of the lambda's frame below its thread's first frame, and offsets in it.
pub(super) const FRAME: u64 = 0x180;
const SEQUENCE: u64 = 0x8;
const END_AT: u64 = 0x20;
const NEW: u64 = 0x28;
pub(super) const KMER: u64 = 0x30;
/// Offset of the capture of `std::function` in the caller's frame: the counter.
const CAPTURED: u64 = 0x40;

/// Sizes of a read's objects other than its bases: the buffer with its counts and vector, and the read's
/// name.
pub const OBJECTS: [u64; 2] = [40, 48];

/// Addresses of the reads.
pub enum ReadAddresses {
    /// The objects of each read at equal distances.
    Regular { first: u64, each: u64 },
    /// Addresses of buffer and bases per read.
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

/// Address space for the hash map's buckets, one range per possible size. The program maps them as it grows.
/// Here all are mapped at the start and touched when filled, so that threads agree on their addresses.
pub struct Tables {
    at: Vec<u64>,
    pub events: Vec<Event>,
}

impl Tables {
    /// Address of the table with 2^`power` buckets.
    pub fn at(&self, power: u32) -> u64 {
        self.at[(power - FIRST_POWER) as usize]
    }
}

/// Reserves address space for [`Tables`].
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

/// State shared by the threads.
pub struct Counting {
    pub k: u64,
    pub reads: Reads,
    pub places: ReadAddresses,
    pub threads: u32,
    /// Address of the counter. Behind it lie the number of the next job and the container of reads.
    pub counter: u64,
    /// Two records per read.
    pub records: u64,
    /// Two four-byte numbers per read.
    pub ids: u64,
    pub flat: u64,
    /// Address of the node of the list of locks, and of the locks, 64 bytes each.
    pub node: u64,
    pub locks: u64,
    pub tables: Tables,
    pub state: Mutex<CountingState>,
}

/// Mutable state.
pub struct CountingState {
    /// Number of the next read, or of its reverse complement, to process.
    next: u64,
    pub counts: Counts,
    pub(super) map: Cuckoo,
}

impl CountingState {
    pub fn new() -> Self {
        CountingState {
            next: 0,
            counts: Counts::default(),
            map: Cuckoo::new(),
        }
    }
}

impl Counting {
    fn state(&self) -> std::sync::MutexGuard<'_, CountingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the k-mers of all reads that this thread takes.
    pub async fn run(&self, t: &mut Thread) {
        let mut bases = Vec::new();
        let threads = self.threads;
        // Each read, then its reverse complement, which the program skips.
        loop {
            let id = {
                let mut state = self.state();
                state.next += 1;
                state.next - 1
            };
            let done = id >= 2 * self.reads.count();
            if threads > 1 {
                self.job(t, done);
            } else {
                t.branch(0x1410, 0x1430, 2, done, [NONE; 2]);
            }
            if done {
                return;
            }
            let captured = t.stack - CAPTURED;
            let function = t.load(0x1416, 2, captured + 0x10, 8, [NONE; 2]);
            t.branch(0x1419, 0x1440, 1, false, [function.plus(1), NONE]);
            t.call(0x141d, 0x24d0, 3, FRAME - 0x118);
            let number = t.load(0x24d0, 1, self.ids + 4 * id, 4, [NONE; 2]);
            t.branch(0x24d5, 0x24e0, 2, id % 2 == 0, [number, NONE]);
            if id % 2 == 0 {
                self.reads.read(id / 2, &mut bases);
                self.read(t, id, &bases).await;
            } else {
                t.ret(0x24d7, 0x141d, 1, FRAME - 0x118);
            }
            if t.full() {
                t.pause().await;
            }
        }
    }

    /// `processInParallel`: a thread takes the next job from a shared counter.
    fn job(&self, t: &mut Thread, done: bool) {
        let id = self.counter + COUNTER_BYTES;
        t.load(0x1400, 1, id, 8, [NONE; 2]);
        let now = t.load(0x1404, 1, id, 8, [NONE; 2]);
        t.branch(0x140a, 0x1430, 4, done, [now, NONE]);
        if !done {
            let swapped = t.atomic(0x140e, 2, id, 8, [NONE; 2]);
            t.branch(0x1413, 0x1400, 1, false, [swapped, NONE]);
        }
    }

    /// All k-mers of a read except the last, at which the iterator ends.
    async fn read(&self, t: &mut Thread, id: u64, bases: &[u8]) {
        let frame = t.stack - FRAME;
        let (record, [_, data]) = (self.records + RECORD * id, self.places.of(id / 2));
        self.enter(t, record);
        let count = (bases.len() as u64).saturating_sub(self.k);
        self.first(t, id / 2, data, count > 0);
        let buffer = t.load(0x2569, 1, record + 8, 8, [NONE; 2]);
        t.load(0x256d, 1, frame + 0x58, 8, [NONE; 2]);
        t.store(0x2572, 1, frame + NEW, 8, NONE, NONE);
        t.load(0x257b, 1, frame + 0x60, 8, [NONE; 2]);
        t.load(0x2580, 1, frame + 0x50, 8, [NONE; 2]);
        let length = t.load(0x2585, 1, self.places.of(id / 2)[0] + 8, 8, [buffer, NONE]);
        let size = t.load(0x2589, 1, KMER_SIZE, 8, [NONE; 2]);
        t.store(0x2590, 1, frame + END_AT, 8, NONE, length.plus(1));
        t.load(0x2595, 1, frame + SEQUENCE, 8, [NONE; 2]);
        t.branch(0x259a, 0x268e, 1, true, [size, NONE]);
        t.load(0x268e, 1, frame + END_AT, 8, [NONE; 2]);
        t.branch(0x2693, 0x25a0, 1, count > 0, [length.plus(1), NONE]);
        let mask = (1 << (2 * self.k)) - 1;
        let mut kmer = 0;
        for base in bases.iter().take(self.k as usize - 1) {
            kmer = kmer << 2 | u64::from(*base);
        }
        let mut value = NONE;
        for (i, base) in (0..count).zip(&bases[(self.k as usize - 1).min(bases.len())..]) {
            kmer = (kmer << 2 | u64::from(*base)) & mask;
            self.count(t, kmer, value).await;
            t.request();
            let bits = data + (i + self.k) / 32 * 8;
            value = self.advance(t, record, bits, i + 1 < count);
            if t.full() {
                t.pause().await;
            }
        }
        t.load(0x2699, 1, frame + NEW, 8, [NONE; 2]);
        t.atomic(0x269e, 1, self.counter + KMERS, 8, [NONE; 2]);
        for i in 0..6 {
            let insns = if i == 0 { 2 } else { 1 };
            t.load(0x26ad + 2 * i, insns, frame + 0xd8 + 8 * i, 8, [NONE; 2]);
        }
        t.ret(0x26b7, 0x141d, 1, FRAME - 0x118);
    }

    /// Prologue of the lambda: saves registers and looks the read up.
    fn enter(&self, t: &mut Thread, record: u64) {
        let frame = t.stack - FRAME;
        for (i, insns) in (0..6).zip([1, 2, 2, 1, 1, 1]) {
            t.store(0x24e0 + 2 * i, insns, frame + 0x100 - 8 * i, 8, NONE, NONE);
        }
        t.load(0x24f6, 2, t.stack - CAPTURED, 8, [NONE; 2]);
        let reads = t.load(0x2503, 2, self.counter, 8, [NONE; 2]);
        let container = self.counter + COUNTER_BYTES + 8;
        for (pc, at) in [(0x2507, 0), (0x250a, 0x18), (0x250e, 8)] {
            t.load(pc, 1, container + at, 8, [reads, NONE]);
        }
        t.branch(0x2520, 0x2a20, 5, false, [reads.plus(6), NONE]);
        let id = t.load(0x2535, 4, record, 4, [reads.plus(6), NONE]);
        t.branch(0x2539, 0x29da, 1, false, [id, NONE]);
        t.load(0x253f, 1, CODE + 0x9100, 16, [NONE; 2]);
        t.store(0x2555, 4, frame + SEQUENCE, 8, NONE, NONE);
        t.store(0x255a, 1, frame + 0x70, 8, NONE, NONE);
        t.store(0x255f, 1, frame + 0x78, 16, NONE, NONE);
        t.call(0x2564, 0xa470, 1, FRAME);
    }

    /// `IterKmers::begin`: assembles the first k-mer base by base.
    fn first(&self, t: &mut Thread, read: u64, data: u64, any: bool) {
        let frame = t.stack - FRAME;
        let [object, _] = self.places.of(read);
        let sequence = t.load(0xa470, 1, frame + 0x70, 8, [NONE; 2]);
        t.load(0xa473, 1, KMER_SIZE, 8, [NONE; 2]);
        t.load(0xa47a, 1, frame + 0x78, 8, [NONE; 2]);
        let buffer = t.load(
            0xa47e,
            1,
            self.records + 2 * RECORD * read + 8,
            8,
            [sequence, NONE],
        );
        let length = t.load(0xa485, 2, object + 8, 8, [buffer, NONE]);
        t.branch(0xa48c, 0xa510, 2, any, [length, NONE]);
        for i in 0..3 {
            t.store(
                0xa513 + 4 * i,
                1 + (i & 1) as u16,
                frame + 0x50 + 8 * i,
                8,
                NONE,
                NONE,
            );
        }
        t.branch(0xa528, 0xa50b, 2, !any, [length.plus(1), NONE]);
        if any {
            t.branch(0xa52d, 0xa630, 2, false, [NONE; 2]);
            let strand = self.records + 2 * RECORD * read + 16;
            let strand = t.load(0xa533, 1, strand, 1, [sequence, NONE]);
            t.load(0xa538, 1, object + 16, 8, [buffer, NONE]);
            t.branch(0xa53c, 0xa5a0, 1, false, [strand, NONE]);
            t.compute(0xa541, 3, 1, [NONE; 2]);
            for i in 0..self.k {
                t.load(0xa559, 6, data + i / 32 * 8, 8, [NONE; 2]);
                t.branch(0xa56d, 0xa548, 6, i + 1 < self.k, [NONE; 2]);
            }
            t.store(0xa56f, 1, frame + 0x60, 8, NONE, NONE);
        }
        t.ret(0xa576, 0x2564, 2, FRAME);
    }

    /// Shifts the next base of a read into the k-mer.
    fn advance(&self, t: &mut Thread, record: u64, bits: u64, more: bool) -> Value {
        let frame = t.stack - FRAME;
        t.load(0x2628, 1, KMER_SIZE, 8, [NONE; 2]);
        let [object, _] = self.places.of((record - self.records) / (2 * RECORD));
        let buffer = t.load(0x262f, 1, record + 8, 8, [NONE; 2]);
        let strand = t.load(0x2633, 1, record + 16, 1, [NONE; 2]);
        let words = t.load(0x2638, 1, object + 16, 8, [buffer, NONE]);
        t.branch(0x2640, 0x26c0, 2, true, [strand.plus(1), NONE]);
        let word = t.load(0x26ce, 5, bits, 8, [words, NONE]);
        t.jump(0x26d8, 0x2664, 3, flags::TAKEN, [NONE; 2]);
        t.load(0x2683, 9, frame + SEQUENCE, 8, [NONE; 2]);
        t.branch(0x2688, 0x25a0, 1, false, [NONE; 2]);
        let end = t.load(0x268e, 1, frame + END_AT, 8, [NONE; 2]);
        t.branch(0x2693, 0x25a0, 1, more, [end.plus(1), NONE]);
        word.plus(4)
    }

    /// Counts `kmer`. `value` produces it before it is in standard form.
    async fn count(&self, t: &mut Thread, kmer: u64, value: Value) {
        let (frame, captured) = (t.stack - FRAME, t.stack - CAPTURED);
        let form = self.standard_form(t, kmer, value);
        let kmer = canonical(kmer, self.k);
        let used = t.load(0x25e8, 1, self.counter + USES_FLAT, 1, [NONE; 2]);
        t.branch(0x25ec, 0x26e5, 1, false, [used, NONE]);
        let highmem = t.load(0x25f2, 1, self.counter + IS_HIGHMEM, 1, [NONE; 2]);
        t.load(0x25f6, 1, self.counter + FLAT, 8, [NONE; 2]);
        t.branch(0x25fa, 0x2810, 1, true, [highmem, NONE]);
        let high = !kmer.is_multiple_of(2);
        t.branch(0x2819, 0x28b8, 4, high, [form.plus(1), NONE]);
        let (before, done) = {
            let mut state = self.state();
            let before = state.counts.add(kmer);
            let done = (before >= 15).then(|| Counting::upsert(&mut state, kmer));
            (before, done)
        };
        let at = if high { 0x28b8 } else { 0x281f };
        let base = t.load(at, 1, self.counter + FLAT, 8, [NONE; 2]);
        let va = self.flat + kmer / 2;
        let old = t.load(at + 4, 1, va, 1, [form.plus(1), base]);
        t.branch(at + 0x10, 0x26da, 4, before >= 15, [old.plus(2), NONE]);
        if let Some(done) = done {
            t.load(0x26da, 1, captured, 8, [NONE; 2]);
            for step in done {
                self.emit(t, kmer, form, step).await;
            }
        } else {
            let counter = t.load(at + 0x16, 1, captured, 8, [NONE; 2]);
            let base = t.load(at + 0x1c, 2, self.counter + FLAT, 8, [counter, NONE]);
            let swapped = t.atomic(at + 0x20, 1, va, 1, [base, NONE]);
            if high {
                t.branch(0x28de, 0x284b, 1, true, [swapped, NONE]);
            } else {
                t.branch(0x2845, 0x29f9, 1, false, [swapped, NONE]);
            }
            t.branch(0x284d, 0x27f2, 2, before > 0, [old.plus(2), NONE]);
            if before == 0 {
                let new = t.load(0x284f, 1, frame + NEW, 8, [NONE; 2]);
                t.store(0x284f, 0, frame + NEW, 8, NONE, new.plus(1));
                t.load(0x2855, 1, captured, 8, [NONE; 2]);
                t.jump(0x2858, 0x2628, 1, flags::TAKEN, [NONE; 2]);
                return;
            }
        }
        t.load(0x27f2, 1, captured, 8, [NONE; 2]);
        t.jump(0x27f5, 0x2628, 1, flags::TAKEN, [NONE; 2]);
    }

    /// Computes the reverse complement, one base per iteration, and selects the smaller one.
    fn standard_form(&self, t: &mut Thread, kmer: u64, value: Value) -> Value {
        let frame = t.stack - FRAME;
        let size = t.load(0x25a0, 1, KMER_SIZE, 8, [NONE; 2]);
        t.store(0x25a7, 1, frame + KMER, 8, NONE, value);
        t.store(0x25b0, 3, frame + 0x38, 4, NONE, NONE);
        t.branch(0x25bb, 0x25dc, 3, false, [size, NONE]);
        for i in 1..=self.k {
            let insns = if i == 1 { 10 } else { 9 };
            t.branch(0x25da, 0x25c0, insns, i < self.k, [size.plus(i + 1), NONE]);
        }
        // An iteration shifts one number and adds to the other: one cycle each, in parallel.
        let form = value.plus(self.k + 3);
        let smaller = canonical(kmer, self.k) < kmer;
        t.branch(0x25df, 0x2800, 2, smaller, [form, NONE]);
        if smaller {
            t.store(0x2800, 1, frame + KMER, 8, NONE, form);
            t.jump(0x2805, 0x25e8, 1, flags::TAKEN, [NONE; 2]);
        } else {
            t.compute(0x25e5, 1, 1, [NONE; 2]);
        }
        form
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
