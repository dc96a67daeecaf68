//! The program around a structure. It takes requests from one buffer and puts the values of GETs into
//! another.
//!
//! ```c++
//! while ((r = requests.next())) {
//!     key.assign(r->key, 24);
//!     if (r->set == 2) map.erase(key);
//!     else if (r->set) map[key].assign(r->value, r->value_bytes);
//!     else if ((found = map.find(key)) != map.end()) replies.add(found->second);
//! }
//! ```
//!
//! gcc 12.2 -O2, from `validation/programs/kv_requests.h`:
//!
//! ```text
//! 000 mov end ; 07 mov at,%rbp ; … cmp $0x11f ; 1b jle refill ; 24 je exit
//! 02a mov (%rbp) ; 34 je 3d ; 36 mov 4(%rbp) ; 3d mov 8(%rsp) ; … 57 mov at ; 5e call assign
//! 063 mov (%rbp) ; 68 je GET ; SET: 74 call operator[] ; 7e mov 8(%rax) ; 82 mov 4(%rbp)
//! 08f call assign ; 94 jmp 0
//! 1a2 mov replies ; a9 mov length ; b4 mov text ; c3 jl flush ; ca call memcpy
//! 1cf add length,replies ; 1d6 jmp 0
//! ```
//!
//! A program without DELETEs has no code for them (`-DDELETES`). The second comparison of the kind, 6c cmp $2
//! ; 6f je erase, exists only if some requests delete.
//!
//! Requests come through a pipe, 64 KiB per read, and replies leave in the same way. The kernel's copying is
//! not simulated.

use pagewalk_stream::flags::TAKEN;
use rand::RngExt as _;

use super::consolidate::consolidate;
use super::emit::{Emit, Quiet, on};
use super::globals::{BUFFER, REPLIES, REPLIES_AT, REQUESTS, REQUESTS_AT};
use super::index::{AHEAD, Found, Index, IndexStep, Key};
use super::libc::{self, KEY_BYTES, Text};
use super::redis::{Parts, Reply, WholeGet};
use super::shortcut::Shortcut;
use super::ycsb::{Chooser, fnv64};
use crate::heap::Heap;
use crate::thread::{NONE, Thread, Touch, Value};

/// Bytes of a request before the value of a SET.
const HEAD: u64 = 32;
/// Bytes of the largest request. With less in the buffer it is refilled.
const LARGEST: u64 = HEAD + 256;

/// The client's workload.
#[derive(Clone, Debug)]
pub struct Work {
    /// Keys loaded before the first request.
    pub keys: u64,
    /// Requests in the region of interest.
    pub operations: u64,
    /// Requests before those. Only their effects are computed.
    pub earlier: u64,
    /// Name of the distribution, as in [`Chooser::new`].
    pub distribution: &'static str,
    /// Share of SETs, 0 to 1.
    pub sets: f64,
    /// Share of DELETEs, 0 to 1.
    pub deletes: f64,
    /// True if a SET draws the length of its value. Otherwise values keep the loaded length.
    pub resize: bool,
    /// A SET inserts a new key instead of writing an old one.
    pub inserts: bool,
    /// Keys ascend in the order of insertion instead of being hashed.
    pub ordered: bool,
    /// Number of structures with the same keys.
    pub indexes: usize,
    /// Numbers of the keys in the order of insertion, if they are chosen to collide.
    pub flood: Vec<u64>,
    /// A GET copies the value to the replies.
    pub replies: bool,
    /// Parts of a request of the server that a GET executes. `None` for the lookup alone.
    pub parts: Option<Parts>,
    /// Initialisation of memory during the load.
    pub touch: Touch,
}

/// Lengths of drawn values.
const LENGTHS: [u64; 3] = [64, 128, 256];

/// Kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CommandKind {
    Get,
    /// SET of a value of this many bytes.
    Set(u64),
    Delete,
}

impl Work {
    /// The number in the text of the `n`-th inserted key.
    pub fn number(&self, n: u64) -> u64 {
        match self.flood.get(n as usize) {
            Some(number) => *number,
            None if self.ordered => n,
            None => fnv64(n),
        }
    }
}

/// A request of the client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub kind: CommandKind,
    /// Number of the structure.
    pub which: usize,
    /// Number of the key in the order of insertion.
    pub n: u64,
}

/// Draws requests, one after the other.
pub(super) struct Client {
    pub work: Work,
    chooser: Chooser,
    rng: pagewalk_units::Rng,
    /// Keys present, including inserted ones.
    pub keys: u64,
    /// Length of the loaded values in bytes.
    value: u64,
}

impl Client {
    /// `None` for an unknown distribution.
    fn new(work: Work, value: u64, rng: pagewalk_units::Rng) -> Option<Self> {
        let keys = work.keys;
        let chooser = Chooser::new(work.distribution, keys)?;
        Some(Client {
            work,
            chooser,
            rng,
            keys,
            value,
        })
    }

    /// The next request.
    #[inline]
    pub fn next(&mut self) -> Wish {
        let kind = self.kind();
        let n = if matches!(kind, CommandKind::Set(_)) && self.work.inserts {
            self.keys += 1;
            self.keys - 1
        } else {
            self.chooser.next(&mut self.rng, self.keys)
        };
        let which = if self.work.indexes > 1 {
            usize::from(self.rng.random::<bool>())
        } else {
            0
        };
        Wish { kind, which, n }
    }

    /// Draws the kind of a request. Draws only if kinds can differ.
    fn kind(&mut self) -> CommandKind {
        let Work { sets, deletes, .. } = self.work;
        if sets + deletes == 0.0 {
            return CommandKind::Get;
        }
        let u: f64 = self.rng.random();
        if u < sets {
            CommandKind::Set(if self.work.resize {
                let n: f64 = self.rng.random();
                LENGTHS[((n * LENGTHS.len() as f64) as usize).min(LENGTHS.len() - 1)]
            } else {
                self.value
            })
        } else if u < sets + deletes {
            CommandKind::Delete
        } else {
            CommandKind::Get
        }
    }
}

/// The program's state (see the module).
pub struct Server<I> {
    /// One or two.
    pub(super) indexes: Vec<I>,
    pub(super) heap: Heap,
    /// Shortcut in front of the structure, for GETs.
    pub(super) shortcut: Option<Shortcut>,
    pub(super) sp: u64,
    /// Address of the key's characters in the program's own string.
    key_text: u64,
    /// Length of the loaded values in bytes.
    pub(super) value: u64,
    /// True if the program has code for DELETEs.
    erases: bool,
    /// Offsets in the buffers.
    request: u64,
    reply: u64,
    /// See [`Work::replies`].
    pub(super) replies: bool,
    /// The code of a whole GET, if GETs execute it.
    pub(super) whole: Option<WholeGet>,
}

impl<I: Index> Server<I> {
    /// A server for `work` over an empty structure with values of `value` bytes. `stack` is the thread's
    /// initial stack pointer.
    pub fn new(
        (mut indexes, value): (Vec<I>, u64),
        mut heap: Heap,
        shortcut: Option<Shortcut>,
        stack: u64,
        work: &Work,
    ) -> Self {
        for index in &mut indexes {
            index.begin(&mut heap);
            if work.deletes > 0.0 {
                index.will_erase();
            }
            if work.resize {
                index.sizes().differ();
            }
        }
        let key_text = if I::COPIES_KEY {
            heap.malloc(2 * 15 + 1)
        } else {
            REQUESTS + 8
        };
        let whole = work.parts.and_then(|parts| I::whole(&mut heap, parts));
        Server {
            indexes,
            heap,
            shortcut,
            whole,
            sp: stack - I::FRAME,
            key_text,
            value,
            erases: work.deletes > 0.0,
            request: 0,
            reply: 0,
            replies: work.replies,
        }
    }

    /// Loads the keys, then serves.
    pub async fn run(mut self, mut t: Thread, work: Work, rng: pagewalk_units::Rng) {
        t.enter().await;
        if work.touch == Touch::Stores {
            self.heap.record_merges();
            self.heap.emit_pending_untouched(&mut t).await;
            for n in 0..work.keys {
                for which in 0..work.indexes {
                    let key = (which, work.number(n));
                    self.set(&mut t, key, self.value, false).await;
                }
            }
        } else {
            let mut ahead = [0; AHEAD];
            for first in (0..work.keys).step_by(AHEAD) {
                let some = (work.keys - first).min(AHEAD as u64) as usize;
                for (number, n) in ahead[..some].iter_mut().zip(first..) {
                    *number = work.number(n);
                }
                self.indexes.iter().for_each(|i| i.warm(&ahead[..some]));
                for number in &ahead[..some] {
                    for which in 0..work.indexes {
                        self.load((which, *number), self.value);
                    }
                    if self.heap.has_pending() {
                        self.heap.emit_pending(&mut t).await;
                    }
                }
            }
            self.heap.emit_pending(&mut t).await;
        }
        if self.shortcut.is_some() {
            self.indexes.iter_mut().for_each(Index::record_moves);
        }
        // The buffer of requests is read from its start again.
        self.request = 0;
        let mut left = work.operations;
        let Some(mut client) = Client::new(work, self.value, rng) else {
            return t.begin(1).await;
        };
        self.earlier(&mut t, &mut client).await;
        self.heap.record_merges();
        t.begin(1).await;
        let (mut kinds, mut numbers) = ([(CommandKind::Get, 0); AHEAD], [0; AHEAD]);
        while left > 0 {
            let some = left.min(AHEAD as u64) as usize;
            for (kind, number) in kinds.iter_mut().zip(&mut numbers).take(some) {
                let wish = client.next();
                *kind = (wish.kind, wish.which);
                *number = client.work.number(wish.n);
            }
            self.indexes.iter().for_each(|i| i.warm(&numbers[..some]));
            for ((kind, which), number) in kinds.into_iter().zip(numbers).take(some) {
                let key = (which, number);
                match kind {
                    CommandKind::Set(bytes) => {
                        self.set(&mut t, key, bytes, true).await;
                        continue;
                    }
                    CommandKind::Delete => {
                        self.delete(&mut t, key).await;
                        continue;
                    }
                    CommandKind::Get => {}
                }
                if self.whole.is_some() {
                    self.get_whole(&mut t, key).await;
                } else if self.shortcut.is_some() {
                    self.get_shortened(&mut t, key).await;
                } else {
                    self.get(&mut t, key);
                }
                t.request();
                if t.full() {
                    t.pause().await;
                }
            }
            left -= some as u64;
        }
        t.finish(1).await;
    }

    /// Serves a SET without emitting instructions.
    pub(super) fn load(&mut self, (n, number): (usize, u64), bytes: u64) {
        let key = self.key(number);
        let (e, heap, sp) = (&mut Quiet, &mut self.heap, self.sp);
        let index = &mut self.indexes[n];
        let mut step = index.entry(e, heap, &key, sp);
        loop {
            match step {
                IndexStep::More => step = index.proceed(e, heap, sp),
                IndexStep::Done(found) => {
                    let from = ((REQUESTS + HEAD, NONE), bytes);
                    return index.write(e, heap, &found, from, sp);
                }
            }
        }
    }

    /// Serves a SET of `bytes`. `counted`: it is a request of the client, not part of the load.
    async fn set(&mut self, t: &mut Thread, of: (usize, u64), bytes: u64, counted: bool) {
        let (n, number) = of;
        let from = self.next_request(t, CommandKind::Set(bytes));
        let key = self.key_of(number, from);
        let (heap, sp) = (&mut self.heap, self.sp);
        let index = &mut self.indexes[n];
        let mut step = on!(n, t, e => index.entry(e, heap, &key, sp));
        let found = loop {
            if t.full() {
                t.pause().await;
            }
            if let Some(shortcut) = &mut self.shortcut {
                reinsert_moved(shortcut, t, (index, n), sp).await;
            }
            match step {
                IndexStep::More => step = on!(n, t, e => index.proceed(e, heap, sp)),
                IndexStep::Done(found) => break found,
            }
        };
        let from = ((from + HEAD, NONE), bytes);
        on!(n, t, e => index.write(e, heap, &found, from, sp));
        self.consolidate(t).await;
        if counted {
            t.request();
        }
        if t.full() {
            t.pause().await;
        }
    }

    /// Serves a DELETE. The shortcut's row is emptied before the record is erased.
    async fn delete(&mut self, t: &mut Thread, (n, number): (usize, u64)) {
        let from = self.next_request(t, CommandKind::Delete);
        let key = self.key_of(number, from);
        let (heap, sp) = (&mut self.heap, self.sp);
        if let Some(shortcut) = &mut self.shortcut {
            shortcut.empty(t, (&self.indexes[n], n), &key, sp).await;
        }
        let index = &mut self.indexes[n];
        let gone = on!(n, t, e => index.erase(e, heap, &key, sp));
        if let Some(shortcut) = &mut self.shortcut {
            if let Some(gone) = gone {
                shortcut.forget::<I>(n, &gone);
            }
            reinsert_moved(shortcut, t, (index, n), sp).await;
            // Jumps back to the loop, after the reinsertion of moved records.
            t.jump(0x7e0, 0, 1, pagewalk_stream::flags::TAKEN, [NONE; 2]);
        }
        self.consolidate(t).await;
        t.request();
        if t.full() {
            t.pause().await;
        }
    }

    /// Emits the chunk merges of this request, possibly of every chunk ever freed. They come at the end of
    /// the request rather than within it, so that they can be split across batches.
    async fn consolidate(&mut self, t: &mut Thread) {
        let mut first = (super::globals::ARENA + 0x460, NONE);
        while let Some(merged) = self.heap.merged() {
            // Pauses before a merge, not after it: the op that ends the request must still be in this batch.
            if t.full() {
                t.pause().await;
                first.1 = NONE;
            }
            consolidate(t, &merged, &mut first, self.sp - 0x100);
        }
    }

    fn get(&mut self, t: &mut Thread, (n, number): (usize, u64)) {
        let from = self.next_request(t, CommandKind::Get);
        let key = self.key_of(number, from);
        let (index, heap, sp) = (&mut self.indexes[n], &mut self.heap, self.sp);
        let found = on!(n, t, e => index.find(e, heap, &key, sp));
        self.reply(t, n, found);
    }

    /// Copies the value of a found record to the replies, if they are enabled, and returns to the loop.
    fn reply(&mut self, t: &mut Thread, n: usize, found: Option<Found>) {
        let Some(found) = found else { return };
        if !self.replies {
            return t.jump(0x1d6, 0, 1, TAKEN, [NONE; 2]);
        }
        let index = &mut self.indexes[n];
        let value = index.value(t, &found);
        let bytes = index.sizes().bytes(found.id);
        self.answer(t, value, bytes);
    }

    /// Serves a GET with a shortcut table in front of the structure.
    async fn get_shortened(&mut self, t: &mut Thread, (n, number): (usize, u64)) {
        let from = self.next_request(t, CommandKind::Get);
        let key = self.key_of(number, from);
        let (indexes, heap, sp) = (&mut self.indexes, &mut self.heap, self.sp);
        on!(n, t, e => indexes[n].begin_get(e, &key, sp));
        let found = match &mut self.shortcut {
            Some(shortcut) => shortcut.find(t, (indexes, n), heap, &key, sp).await,
            None => on!(n, t, e => indexes[n].look(e, heap, &key, sp)),
        };
        let index = &mut self.indexes[n];
        on!(n, t, e => index.end_get(e, found.as_ref(), sp));
        self.reply(t, n, found);
    }

    /// Serves a GET as a whole request.
    async fn get_whole(&mut self, t: &mut Thread, (n, number): (usize, u64)) {
        let query = self.next_request(t, CommandKind::Get) + 8;
        let Some(whole) = &mut self.whole else { return };
        let key = whole.key(number);
        let (indexes, heap, sp) = (&mut self.indexes, &mut self.heap, whole.sp(self.sp));
        whole.before(t, query, self.sp).await;
        let found = match &mut self.shortcut {
            Some(shortcut) => shortcut.find(t, (indexes, n), heap, &key, sp).await,
            None => on!(n, t, e => indexes[n].look(e, heap, &key, sp)),
        };
        let index = &mut self.indexes[n];
        let reply = found.map(|found| Reply {
            entry: found.record,
            at: found.at,
            object: index.value_object(&found),
            sds: index.value_text(found.id).va(),
            bytes: index.sizes().bytes(found.id),
        });
        whole.after(t, query, self.sp, reply).await;
        t.jump(0x1d6, 0, 1, TAKEN, [NONE; 2]);
    }

    fn key(&self, number: u64) -> Key {
        Key {
            number,
            object: self.sp,
            text: self.key_text,
        }
    }

    /// The key as the structure's lookup receives it.
    pub(super) fn key_of(&self, number: u64, request: u64) -> Key {
        if I::COPIES_KEY {
            return self.key(number);
        }
        Key {
            number,
            object: request,
            text: request + 8,
        }
    }

    /// Address of the next request. Its key is copied to the program's string.
    pub(super) fn next_request<E: Emit>(&mut self, e: &mut E, wanted: CommandKind) -> u64 {
        let set = wanted != CommandKind::Get;
        let end = e.load(0x0, 1, REQUESTS_AT + 8, 8, [NONE; 2]);
        let mut at = e.load(0x7, 1, REQUESTS_AT, 8, [NONE; 2]);
        let empty = BUFFER - self.request < LARGEST;
        e.branch(0x1b, 0x1e0, 4, empty, [end.plus(1), at.plus(1)]);
        if empty {
            at = self.refill(e);
        }
        let from = REQUESTS + self.request;
        e.branch(0x24, 0x202, 2, false, [end, at]);
        let kind = e.load(0x2a, 1, from, 4, [at, NONE]);
        e.branch(0x34, 0x3d, 3, !set, [kind, NONE]);
        let mut bytes = HEAD;
        if set {
            e.load(0x36, 2, from + 4, 4, [at, NONE]);
        }
        if let CommandKind::Set(value) = wanted {
            bytes += value;
        }
        self.request += bytes;
        if I::COPIES_KEY {
            e.load(0x40, 2, self.sp + 8, 8, [NONE; 2]);
            e.store(0x57, 6, REQUESTS_AT, 8, NONE, at.plus(1));
            let to = Text {
                object: (self.sp, NONE),
                at: self.key_text,
            };
            libc::assign(e, (0x5e, 1), to, (from + 8, at), KEY_BYTES, self.sp);
            let kind = e.load(0x63, 1, from, 4, [at, NONE]);
            e.branch(0x68, 0x148, 2, !set, [kind, NONE]);
        } else {
            e.store(0x57, 2, REQUESTS_AT, 8, NONE, at.plus(1));
            e.branch(0x68, 0x148, 2, !set, [kind, NONE]);
        }
        if self.indexes.len() > 1 {
            // Selects the map by a byte of the request.
            let which = e.load(0x6a, 1, from + 3, 1, [at, NONE]);
            e.compute(0x6c, 3, 2, [which, NONE]);
        }
        if set && self.erases {
            e.branch(0x6f, 0x700, 2, wanted == CommandKind::Delete, [kind, NONE]);
        }
        from
    }

    /// Moves the rest to the start of the buffer. The kernel appends to it.
    fn refill<E: Emit>(&mut self, e: &mut E) -> Value {
        const CODE: u64 = 0x800;
        e.call(0x1e6, CODE, 3, self.sp);
        e.push(CODE, 3, self.sp - 8);
        let (from, left) = (REQUESTS + self.request, BUFFER - self.request);
        for offset in (0..left).step_by(32) {
            let size = (left - offset).min(32) as u8;
            let word = e.load(CODE + 0x20, 1, from + offset, size, [NONE; 2]);
            e.store(CODE + 0x28, 1, REQUESTS + offset, size, NONE, word);
        }
        self.request = 0;
        // `read(2)`: the call and its wrapper, the new bounds.
        e.store(CODE + 0x40, 8, REQUESTS_AT + 8, 8, NONE, NONE);
        e.pop(CODE + 0x50, 3, self.sp - 8);
        e.ret(CODE + 0x56, 0x1e6, 1, self.sp);
        e.load(0x1eb, 1, REQUESTS_AT, 8, [NONE; 2])
    }

    /// Copies the value of `bytes` at `from` to the replies.
    pub(super) fn answer<E: Emit>(&mut self, e: &mut E, from: (u64, Value), bytes: u64) {
        let at = e.load(0x1a2, 1, REPLIES_AT, 8, [NONE; 2]);
        let full = BUFFER - self.reply < bytes;
        e.branch(0x1c3, 0x210, 4, full, [at.plus(1), NONE]);
        if full {
            // `write(2)`, then again from the start.
            e.call(0x217, 0x900, 2, self.sp);
            e.store(0x918, 8, REPLIES_AT, 8, NONE, NONE);
            e.ret(0x91f, 0x217, 1, self.sp);
            e.load(0x21c, 1, REPLIES_AT, 8, [NONE; 2]);
            e.jump(0x223, 0x1c5, 1, TAKEN, [NONE; 2]);
            self.reply = 0;
        }
        let to = (REPLIES + self.reply, at);
        libc::memcpy(e, (0x1ca, 3), to, from, bytes, self.sp);
        let old = e.load(0x1cf, 1, REPLIES_AT, 8, [NONE; 2]);
        e.store(0x1cf, 0, REPLIES_AT, 8, NONE, old.plus(1));
        e.jump(0x1d6, 0, 1, TAKEN, [NONE; 2]);
        self.reply += bytes;
    }
}

/// Reinserts each moved record into the shortcut.
async fn reinsert_moved<I: Index>(
    shortcut: &mut Shortcut,
    t: &mut Thread,
    (index, n): (&mut I, usize),
    sp: u64,
) {
    for moved in index.moves() {
        shortcut.update_moved(t, (&*index, n), &moved, sp).await;
        if t.full() {
            t.pause().await;
        }
    }
}
