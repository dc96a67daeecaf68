//! The program around a structure: it takes requests from one buffer, and puts
//! the values of GETs into another.
//!
//! ```c++
//! while ((r = requests.next())) {
//!     key.assign(r->key, 24);
//!     if (r->set) map[key].assign(r->value, r->value_bytes);
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
//! The requests come through a pipe, 64 KiB a read, and the replies go out in the
//! same way: the kernel's copying is not simulated.

use pagewalk_stream::flags::TAKEN;

use super::emit::{Emit, Quiet};
use super::globals::{BUFFER, REPLIES, REPLIES_AT, REQUESTS, REQUESTS_AT};
use super::index::{AHEAD, Index, Key, Step};
use super::libc::{self, KEY_BYTES, Text};
use super::shortcut::Shortcut;
use super::ycsb::{Chooser, fnv64};
use crate::heap::Heap;
use crate::thread::{NONE, Thread, Touch, Value};

/// Bytes of a request before the value of a SET.
const HEAD: u64 = 32;
/// Of the largest request: with less in the buffer it is filled again.
const LARGEST: u64 = HEAD + 256;
/// What lies between the stack pointer of the thread's function and its frame's end.
const FRAME: u64 = 0x60;

/// What the client does.
#[derive(Clone, Debug)]
pub struct Work {
    /// Keys that are loaded.
    pub keys: u64,
    /// Requests after that.
    pub operations: u64,
    /// Requests before those, of which only what they leave is made.
    pub earlier: u64,
    /// By the name that [`Chooser::new`] knows.
    pub distribution: &'static str,
    /// Share of SETs, 0 to 1.
    pub sets: f64,
    /// A SET inserts a new key instead of writing an old one.
    pub inserts: bool,
    /// Keys ascend in the order of insertion instead of being hashed.
    pub ordered: bool,
    /// A GET copies the value to the replies.
    pub replies: bool,
    /// How the load touches memory.
    pub touch: Touch,
}

impl Work {
    /// The number in the text of the key that is inserted as number `n`.
    pub fn number(&self, n: u64) -> u64 {
        if self.ordered { n } else { fnv64(n) }
    }
}

/// Draws requests, one after the other.
pub struct Client {
    pub work: Work,
    chooser: Chooser,
    rng: pagewalk_units::Rng,
    /// That there are, with those it has inserted.
    pub keys: u64,
}

impl Client {
    /// `None` for a distribution that there is not.
    fn new(work: Work, rng: pagewalk_units::Rng) -> Option<Self> {
        let keys = work.keys;
        let chooser = Chooser::new(work.distribution, keys)?;
        Some(Client {
            work,
            chooser,
            rng,
            keys,
        })
    }

    /// Whether the next request is a SET, and its key's number in the order of insertion.
    #[inline]
    pub fn next(&mut self) -> (bool, u64) {
        let sets = self.work.sets;
        let set = sets > 0.0 && rand::RngExt::random::<f64>(&mut self.rng) < sets;
        if set && self.work.inserts {
            self.keys += 1;
            return (true, self.keys - 1);
        }
        (set, self.chooser.next(&mut self.rng, self.keys))
    }
}

/// See the module.
pub struct Server<I> {
    pub(super) index: I,
    pub(super) heap: Heap,
    /// In front of the structure, for GETs.
    pub(super) shortcut: Option<Shortcut>,
    pub(super) sp: u64,
    /// Where the program's own string keeps the key's characters.
    key_text: u64,
    /// Offsets in the buffers.
    request: u64,
    reply: u64,
    /// See [`Work::replies`].
    pub(super) replies: bool,
}

impl<I: Index> Server<I> {
    /// A server over an empty structure; `stack` is where the thread's begins.
    pub fn new(mut index: I, mut heap: Heap, shortcut: Option<Shortcut>, stack: u64) -> Self {
        index.begin(&mut heap);
        let key_text = if I::COPIES_KEY {
            heap.malloc(2 * 15 + 1)
        } else {
            REQUESTS + 8
        };
        Server {
            index,
            heap,
            shortcut,
            sp: stack - FRAME,
            key_text,
            request: 0,
            reply: 0,
            replies: true,
        }
    }

    /// Loads the keys, then serves.
    pub async fn run(mut self, mut t: Thread, work: Work, rng: pagewalk_units::Rng) {
        t.enter().await;
        self.replies = work.replies;
        if work.touch == Touch::Stores {
            self.heap.announce_untouched(&mut t).await;
            for n in 0..work.keys {
                self.set(&mut t, work.number(n), false).await;
            }
        } else {
            let mut ahead = [0; AHEAD];
            for first in (0..work.keys).step_by(AHEAD) {
                let some = (work.keys - first).min(AHEAD as u64) as usize;
                for (number, n) in ahead[..some].iter_mut().zip(first..) {
                    *number = work.number(n);
                }
                self.index.warm(&ahead[..some]);
                for number in &ahead[..some] {
                    self.load(*number);
                    if self.heap.has_news() {
                        self.heap.announce(&mut t).await;
                    }
                }
            }
            self.heap.announce(&mut t).await;
        }
        if self.shortcut.is_some() {
            self.index.follow_moves();
        }
        // The buffer of requests is read into anew.
        self.request = 0;
        let operations = work.operations;
        let Some(mut client) = Client::new(work, rng) else {
            return t.begin(1).await;
        };
        self.earlier(&mut t, &mut client).await;
        t.begin(1).await;
        let (mut sets, mut numbers) = ([false; AHEAD], [0; AHEAD]);
        let mut left = operations;
        while left > 0 {
            let some = left.min(AHEAD as u64) as usize;
            for (set, number) in sets.iter_mut().zip(&mut numbers).take(some) {
                let n;
                (*set, n) = client.next();
                *number = client.work.number(n);
            }
            self.index.warm(&numbers[..some]);
            for (set, number) in sets.into_iter().zip(numbers).take(some) {
                if set {
                    self.set(&mut t, number, true).await;
                    continue;
                }
                if self.shortcut.is_some() {
                    self.get_shortened(&mut t, number).await;
                } else {
                    self.get(&mut t, number);
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

    /// A SET without instructions.
    pub(super) fn load(&mut self, number: u64) {
        let key = self.key(number);
        let (e, heap, sp) = (&mut Quiet, &mut self.heap, self.sp);
        let mut step = self.index.entry(e, heap, &key, sp);
        loop {
            match step {
                Step::More => step = self.index.proceed(e, heap, sp),
                Step::Done(found) => {
                    let from = (REQUESTS + HEAD, NONE);
                    return self.index.write(e, heap, &found, from, sp);
                }
            }
        }
    }

    /// A SET; `asked`: by a client, in a request of its own.
    async fn set(&mut self, t: &mut Thread, number: u64, asked: bool) {
        let from = self.next_request(t, true);
        let key = self.key_of(number, from);
        let (heap, sp) = (&mut self.heap, self.sp);
        let mut step = self.index.entry(t, heap, &key, sp);
        let found = loop {
            if t.full() {
                t.pause().await;
            }
            if let Some(shortcut) = &mut self.shortcut {
                for moved in self.index.moves() {
                    shortcut.follow(t, &self.index, &moved, sp).await;
                    if t.full() {
                        t.pause().await;
                    }
                }
            }
            match step {
                Step::More => step = self.index.proceed(t, heap, sp),
                Step::Done(found) => break found,
            }
        };
        self.index.write(t, heap, &found, (from + HEAD, NONE), sp);
        if asked {
            t.request();
        }
        if t.full() {
            t.pause().await;
        }
    }

    fn get(&mut self, t: &mut Thread, number: u64) {
        let from = self.next_request(t, false);
        let key = self.key_of(number, from);
        let found = self.index.find(t, &mut self.heap, &key, self.sp);
        if let Some(found) = found
            && self.replies
        {
            let value = self.index.value(t, &found);
            self.answer(t, value);
        }
    }

    /// The same with a table of addresses in front of the structure.
    async fn get_shortened(&mut self, t: &mut Thread, number: u64) {
        let from = self.next_request(t, false);
        let key = self.key_of(number, from);
        let (index, heap, sp) = (&mut self.index, &mut self.heap, self.sp);
        index.begin_get(t, &key, sp);
        let found = match &mut self.shortcut {
            Some(shortcut) => shortcut.find(t, index, heap, &key, sp).await,
            None => index.look(t, heap, &key, sp),
        };
        index.end_get(t, found.as_ref(), sp);
        if let Some(found) = found
            && self.replies
        {
            let value = self.index.value(t, &found);
            self.answer(t, value);
        }
    }

    fn key(&self, number: u64) -> Key {
        Key {
            number,
            object: self.sp,
            text: self.key_text,
        }
    }

    /// The key as the structure is asked for it.
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

    /// Address of the next request, whose key is copied to the program's string.
    pub(super) fn next_request<E: Emit>(&mut self, e: &mut E, set: bool) -> u64 {
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
            bytes += self.index.value_bytes();
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
        from
    }

    /// The rest moves to the begin of the buffer, and the kernel appends to it.
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
        // read(2): the call and its wrapper, the new bounds.
        e.store(CODE + 0x40, 8, REQUESTS_AT + 8, 8, NONE, NONE);
        e.pop(CODE + 0x50, 3, self.sp - 8);
        e.ret(CODE + 0x56, 0x1e6, 1, self.sp);
        e.load(0x1eb, 1, REQUESTS_AT, 8, [NONE; 2])
    }

    /// Copies the value at `from` to the replies.
    pub(super) fn answer<E: Emit>(&mut self, e: &mut E, from: (u64, Value)) {
        let bytes = self.index.value_bytes();
        let at = e.load(0x1a2, 1, REPLIES_AT, 8, [NONE; 2]);
        let full = BUFFER - self.reply < bytes;
        e.branch(0x1c3, 0x210, 4, full, [at.plus(1), NONE]);
        if full {
            // write(2), and again from the begin.
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
