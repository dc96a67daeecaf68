//! One thread of a built-in program, as its code sees it: emit ops, announce
//! events, wait at barriers.
//!
//! The code of a thread is an `async` block that runs the real algorithm. It
//! never waits for anything but room: whenever [`Thread::full`] says so it gives
//! way with [`Thread::pause`], at a place of its own choice (the end of an edge,
//! of a lookup), so that loops and recursion are written as loops and recursion.
//!
//! ```text
//! for key in keys {
//!     let bucket = t.load(0x10, 3, table + 8 * hash(key), 8, [NONE; 2]);
//!     t.load(0x14, 1, nodes[..].va, 8, [bucket, NONE]);
//!     if t.full() { t.pause().await; }
//! }
//! ```

use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use pagewalk_stream::{
    BATCH_OPS, Batch, Data, End, Event, FastForwardBudget, Op, OpClass, ShortcutQuery,
    ThreadFastForward, ThreadId, flags,
};
use pagewalk_units::{Access, LINE_SHIFT, VirtAddr};

use crate::layout::{CODE, CODE_BYTES};

/// The result of an op, or of plain instructions after it: what makes a later
/// op wait.
///
/// One word, so that it is passed in a register. The lowest byte has the cycles of plain instructions
/// after the producer, the rest the number of the producer in its thread. Numbers begin where a
/// producer of number 0 is too far back to be named: a value of that one is ready at dispatch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Value(u64);

/// The number before that of a thread's first op.
const BEFORE_FIRST: u64 = u16::MAX as u64;

/// Nothing to wait for.
pub const NONE: Value = Value(0);

impl Value {
    /// That of the op of this number.
    #[inline(always)]
    fn of(op: u64) -> Value {
        Value(op << 8)
    }

    #[inline(always)]
    fn op(self) -> u64 {
        self.0 >> 8
    }

    #[inline(always)]
    fn cycles(self) -> u8 {
        self.0 as u8
    }

    /// How many ops before that of number `next`, or 0 if it is too far back to be named: it is done
    /// by then.
    #[inline(always)]
    fn distance(self, next: u64) -> u16 {
        u16::try_from(next - self.op()).unwrap_or(0)
    }

    /// This value after plain instructions whose chain takes `cycles` more, 255 at most in all.
    #[must_use]
    #[inline]
    pub fn plus(self, cycles: u64) -> Value {
        let cycles = cycles.saturating_add(u64::from(self.cycles())).min(255);
        Value(self.0 & !0xff | cycles)
    }
}

/// How initialised memory is touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// In bulk, in the order of the program, without simulated time, before the
    /// region of interest.
    Bulk,
    /// By the program's stores, simulated like the rest, in the region of interest.
    Stores,
    /// So many bytes in bulk, then a simulated store to each page, in the region of
    /// interest.
    Part(u64),
    /// Not at all: pages fault when the measured part comes to them.
    Never,
}

impl Touch {
    /// Whether the region of interest holds initialisation.
    pub fn is_timed(self) -> bool {
        matches!(self, Touch::Stores | Touch::Part(_))
    }
}

/// How a program initialises memory, and what its region of interest covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start {
    /// How memory is touched.
    pub touch: Touch,
    /// The region of interest is timed initialisation alone.
    pub alone: bool,
}

impl From<Touch> for Start {
    fn from(touch: Touch) -> Self {
        Start {
            touch,
            alone: false,
        }
    }
}

/// What a thread has given and its program has not yet taken.
#[derive(Default)]
pub(super) struct Link {
    pub batch: Batch,
    pub end: Option<End>,
    /// What [`Thread::note`] put before that.
    pub noted: Vec<(Batch, End)>,
    /// What the thread was told when it asked.
    pub reply: Option<u64>,
}

pub(super) type SharedLink = Arc<Mutex<Link>>;

/// Ops after which a thread gives way; what one step of the code appends beyond
/// that still goes out in order.
const FULL: usize = BATCH_OPS - 64;

/// First byte of the code that initialises memory, above the programs' own.
const TOUCH: u64 = 0xf000;

/// The instructions that touch the page at `va`: a store of a byte, then the loop.
pub fn page_touch(va: u64, more: bool) -> [Op; 2] {
    const PC: u64 = CODE + TOUCH + 0x40;
    let taken = if more { flags::TAKEN } else { 0 };
    [
        Op {
            pc: PC,
            va,
            insns: 1,
            kind: OpClass::Store,
            size: 1,
            ..Op::default()
        },
        Op {
            pc: PC + 3,
            va: PC,
            insns: 3,
            latency: 1,
            kind: OpClass::Branch,
            flags: flags::CONDITIONAL | taken,
            ..Op::default()
        },
    ]
}

/// Instructions of [`page_touch`].
pub const PAGE_TOUCH: u64 = 4;

/// A turn begins: whether its ops may be passed over is looked up with the first one.
const NOT_KNOWN: u64 = u64::MAX;

/// Pages of a program's code.
const PAGES: usize = (CODE_BYTES >> 12) as usize;

/// Pages of data of which it is remembered that they were looked at.
const NEAR: usize = 64;

/// What an op needs no look for, in this turn.
#[derive(Clone, Copy)]
struct Known {
    /// A bit for each line of the program's code, a word a page. Where lines are wanted: of those of a
    /// moment ago.
    code: [u64; PAGES],
    /// Where ranges of data begin, and at how many bytes an access may.
    data: [(u64, u64); 3],
    /// Pages outside of these, by the lowest bits of their numbers: twice the number, and one more where
    /// they may be written.
    near: [u64; NEAR],
}

impl Default for Known {
    fn default() -> Self {
        Known {
            code: [0; PAGES],
            data: [(0, 0); 3],
            near: [u64::MAX; NEAR],
        }
    }
}

impl Known {
    /// Whether the code at `pc` needs none.
    #[inline(always)]
    fn holds_code(&self, pc: u64) -> bool {
        let Some(page) = self.code.get((pc >> 12) as usize) else {
            return false;
        };
        page >> (pc >> LINE_SHIFT & 63) & 1 != 0
    }

    #[inline(always)]
    fn holds(&self, pc: u64, data: Option<Data>) -> bool {
        // All of them at once: which it is, is hard to predict.
        let there = |at: u64| {
            (self.data.iter()).fold(false, |any, (start, bytes)| {
                any | (at.wrapping_sub(*start) < *bytes)
            })
        };
        self.holds_code(pc) && data.is_none_or(|d| there(d.at))
    }

    /// Whether an access lies within a page that was looked at.
    #[inline(always)]
    fn is_near(&self, Data { at, size, access }: Data) -> bool {
        let page = at >> 12;
        let known = self.near[page as usize % NEAR];
        let written = known & 1 != 0 || access != Access::Write;
        known >> 1 == page && written && (at & 0xfff) + u64::from(size) <= 4096
    }

    /// What `fast_forward` knows after a look at this.
    fn learn(&mut self, pc: u64, data: Option<Data>, fast_forward: &ThreadFastForward) {
        if let Some(page) = self.code.get_mut((pc >> 12) as usize) {
            *page = u64::MAX;
        }
        let Some(Data { at, access, .. }) = data else {
            return;
        };
        let (ranges, written) = fast_forward.known(at);
        self.data = ranges.map(|range| {
            // An access that begins in it ends in it, too.
            let bytes = (range.end - range.start).saturating_sub(u64::from(u8::MAX));
            (range.start, bytes)
        });
        let (page, written) = (at >> 12, written || access == Access::Write);
        self.near[page as usize % NEAR] = page << 1 | u64::from(written);
    }

    /// Where lines are wanted: those remembered of code have that of `pc` from now on, in place of
    /// that of `old`.
    fn learn_line(&mut self, pc: u64, old: u64) {
        let line = |pc: u64| 1u64 << (pc >> LINE_SHIFT & 63);
        if let Some(page) = self.code.get_mut((old >> 12) as usize) {
            *page &= !line(old);
        }
        if let Some(page) = self.code.get_mut((pc >> 12) as usize) {
            *page |= line(pc);
        }
    }
}

/// What a stretch of code executes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    ops: u64,
    instructions: u64,
}

impl Cost {
    /// So many ops, which stand for so many instructions.
    pub const fn new(ops: u64, instructions: u64) -> Self {
        Cost { ops, instructions }
    }

    /// That of both.
    #[must_use]
    pub fn plus(self, other: Cost) -> Cost {
        Cost::new(self.ops + other.ops, self.instructions + other.instructions)
    }

    /// That of `count` of it.
    #[must_use]
    pub fn times(self, count: u64) -> Cost {
        Cost::new(self.ops * count, self.instructions * count)
    }
}

/// Those parts of an op that are constants where it is emitted: they are passed in one register.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Form {
    insns: u16,
    latency: u8,
    kind: OpClass,
    size: u8,
    flags: u8,
}

/// See the module.
pub struct Thread {
    ops: Vec<Op>,
    /// Number of the last op before `ops` and those that were passed over last.
    given: u64,
    /// Ops with which a turn ends, `skipped` and in `ops`: [`FULL`] but for those that went out.
    most: usize,
    /// Instructions that may be passed over in this turn, or [`NOT_KNOWN`].
    grant_left: u64,
    /// Ops that were passed over and are not counted in `fast_forward`, and `grant_left` before them.
    skipped: u64,
    before: u64,
    fast_forward: Box<ThreadFastForward>,
    known: Known,
    link: SharedLink,
    barriers: u64,
    start: Start,
    /// Bytes that all threads together still initialise in bulk, with [`Touch::Part`].
    bulk: Arc<AtomicU64>,
    /// The region of interest has begun.
    begun: bool,
    /// Stack pointer when the thread's function is called.
    pub stack: u64,
}

/// Gives way once.
#[must_use = "nothing happens before it is awaited"]
pub struct Pause(bool);

impl Future for Pause {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

/// The reply to what a thread asked: `None` where no machine answers.
#[must_use = "nothing is asked before it is awaited"]
pub struct PendingResult<'a> {
    pause: Pause,
    link: &'a SharedLink,
}

impl Future for PendingResult<'_> {
    type Output = Option<u64>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<u64>> {
        match Pin::new(&mut self.pause).poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
                Poll::Ready(link.reply.take())
            }
        }
    }
}

impl Thread {
    /// One of a program whose first thread is there when it begins.
    pub(super) fn new(
        link: SharedLink,
        stack: u64,
        start: Start,
        bulk: Arc<AtomicU64>,
        budget: Arc<FastForwardBudget>,
        first: bool,
    ) -> Self {
        Thread {
            ops: Vec::with_capacity(BATCH_OPS),
            given: BEFORE_FIRST,
            most: FULL,
            grant_left: NOT_KNOWN,
            skipped: 0,
            before: 0,
            known: Known::default(),
            fast_forward: Box::new(ThreadFastForward::new(budget)),
            link,
            barriers: 0,
            start,
            bulk,
            // The others start after it.
            begun: !first,
            stack,
        }
    }

    /// Whether it is time to [`pause`](Self::pause): ask at the end of each step
    /// of the algorithm.
    #[inline(always)]
    pub fn full(&self) -> bool {
        self.skipped as usize + self.ops.len() >= self.most
    }

    /// Gives way, so that what was emitted is simulated.
    pub fn pause(&mut self) -> Pause {
        self.hand_over(End::More)
    }

    /// Announces `event` after the ops so far.
    pub fn event(&mut self, event: Event) -> Pause {
        self.fast_forward.change(&event);
        self.hand_over(End::Event { event, ticket: 0 })
    }

    /// The op before ends a request of the program. To be said in front of a
    /// [`pause`](Self::pause), which hands the op over.
    #[inline(always)]
    pub fn request(&mut self) {
        if let Some(last) = self.ops.last_mut() {
            last.flags |= flags::REQUEST;
        } else {
            debug_assert!(self.skipped > 0, "its last op is handed over");
            if !self.fast_forward.request() {
                self.before -= self.grant_left;
                self.grant_left = 0;
            }
        }
    }

    /// Asks the machine's shortcut, in `insns` instructions that end with the one at
    /// `pc`; `inputs` produce the integer and the address. Gives what produces the
    /// reply, and, awaited, the reply itself.
    pub fn shortcut_query(
        &mut self,
        pc: u64,
        insns: u16,
        ask: ShortcutQuery,
        inputs: [Value; 2],
    ) -> (Value, PendingResult<'_>) {
        let form = Form {
            insns,
            kind: OpClass::Query,
            ..Form::default()
        };
        let reply = self.emit(CODE + pc, 0, form, inputs[0], inputs[1]);
        let pause = self.hand_over(End::Query(ask));
        let link = &self.link;
        (reply, PendingResult { pause, link })
    }

    /// Announces `event` after the ops so far without giving way: for code that
    /// cannot wait. Rare events only, and none that starts a thread.
    pub fn note(&mut self, event: Event) {
        debug_assert!(!matches!(event, Event::Spawn { .. }));
        self.fast_forward.change(&event);
        self.part(End::Event { event, ticket: 0 });
        self.known = Known::default();
        self.most = FULL;
    }

    /// Counts what was passed over.
    fn count(&mut self) {
        if self.skipped > 0 {
            self.fast_forward
                .count(self.skipped, self.before - self.grant_left);
            self.given += self.skipped;
            self.most = self.most.saturating_sub(self.skipped as usize);
            (self.skipped, self.before) = (0, self.grant_left);
        }
    }

    /// What there is goes out with this end, and the turn goes on.
    fn part(&mut self, end: End) {
        self.count();
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        self.given += self.ops.len() as u64;
        let batch = Batch {
            skipped: std::mem::take(&mut self.fast_forward.summary.skipped),
            ops: std::mem::replace(&mut self.ops, Vec::with_capacity(BATCH_OPS)),
        };
        link.noted.push((batch, end));
    }

    /// The first thing of the first thread. With initialisation by stores, all of
    /// it is measured.
    pub async fn enter(&mut self) {
        if self.start.touch == Touch::Stores {
            self.begin_region().await;
        }
    }

    async fn begin_region(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            self.event(Event::RoiBegin).await;
        }
    }

    /// Memory is initialised: the region of interest begins, or ends if it was
    /// that alone, and the other of `threads` threads start.
    pub async fn begin(&mut self, threads: u32) {
        self.begin_region().await;
        if self.start.alone {
            self.event(Event::RoiEnd).await;
        }
        for thread in 1..threads {
            self.event(Event::Spawn { thread }).await;
        }
    }

    /// The last thing of the first of `threads` threads.
    pub async fn finish(&mut self, threads: u32) {
        if threads > 1 {
            self.join().await;
        }
        if !self.start.alone {
            self.event(Event::RoiEnd).await;
        }
    }

    /// Waits until every other thread that has not ended has come to as many
    /// barriers.
    pub fn barrier(&mut self) -> Pause {
        self.barriers += 1;
        let number = self.barriers;
        self.hand_over(End::Barrier { number })
    }

    /// Waits until every other thread has ended.
    pub fn join(&mut self) -> Pause {
        self.hand_over(End::Barrier { number: u64::MAX })
    }

    fn hand_over(&mut self, end: End) -> Pause {
        self.count();
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        debug_assert!(link.end.is_none(), "a pause that was not awaited");
        self.given += self.ops.len() as u64;
        std::mem::swap(&mut link.batch.ops, &mut self.ops);
        std::mem::swap(
            &mut link.batch.skipped,
            &mut self.fast_forward.summary.skipped,
        );
        self.ops.clear();
        self.fast_forward.summary.skipped.clear();
        link.end = Some(end);
        if self.grant_left != NOT_KNOWN {
            self.fast_forward.end(self.grant_left);
        }
        (self.most, self.grant_left) = (FULL, NOT_KNOWN);
        self.known = Known::default();
        Pause(false)
    }

    /// Initialises `bytes` at `at`, in ascending order, in the way that the user
    /// chose ([`Touch`]).
    pub async fn touch(&mut self, at: u64, bytes: u64) {
        match self.start.touch {
            Touch::Never => {}
            Touch::Bulk => self.populate(at, at + bytes).await,
            Touch::Stores => self.fill(at, bytes).await,
            Touch::Part(_) => {
                let now = bytes.min(self.bulk.load(Relaxed));
                if now > 0 {
                    self.bulk.fetch_sub(now, Relaxed);
                    self.populate(at, at + now).await;
                }
                if now < bytes {
                    self.begin_region().await;
                    self.touch_pages(at + now, at + bytes).await;
                }
            }
        }
    }

    async fn populate(&mut self, at: u64, end: u64) {
        let from = at & !4095;
        let event = Event::Populate {
            at: VirtAddr(from),
            bytes: end.next_multiple_of(4096) - from,
        };
        self.event(event).await;
    }

    /// A store to each page between.
    async fn touch_pages(&mut self, at: u64, end: u64) {
        let mut va = at;
        while va < end {
            let next = (va & !4095) + 4096;
            for op in page_touch(va, next < end) {
                if !self.skip(op.pc - CODE, op.insns, Data::of(&op)) {
                    self.ops.push(op);
                }
            }
            va = next;
            if self.full() {
                self.pause().await;
            }
        }
    }

    /// glibc's `memset` with 32-byte registers: 128 bytes a turn.
    pub async fn fill(&mut self, at: u64, bytes: u64) {
        let (mut va, end) = (at, at + bytes);
        while va < end {
            let turn = (end - va).min(128 - va % 32);
            let stop = va + turn;
            while va < stop {
                let size = (stop - va).min(32 - va % 32);
                self.store(TOUCH + 5 * (va / 32 % 4), 1, va, size as u8, NONE, NONE);
                va += size;
            }
            self.branch(TOUCH + 0x20, TOUCH, 3, va < end, [NONE; 2]);
            if self.full() {
                self.pause().await;
            }
        }
    }

    /// Whether ops are passed over, pages alone are wanted of them, and that of `pc` needs no look.
    /// It is not known before the first op of a turn.
    #[inline(always)]
    pub fn skips(&self, pc: u64) -> bool {
        self.known.holds_code(pc) && self.grant_left > 0 && !self.fast_forward.warms_filtered()
    }

    /// Where ops are passed over: how often `cost` may be at once, so that neither the turn nor the
    /// leave ends there.
    pub fn spare(&self, cost: Cost) -> u64 {
        let ops = (self.most as u64).saturating_sub(self.skipped + 1);
        (ops / cost.ops.max(1)).min(self.grant_left.saturating_sub(1) / cost.instructions.max(1))
    }

    /// Whether all pages of these addresses were touched in this way: an access finds nothing new.
    pub fn knows(&self, addresses: Range<u64>, access: Access) -> bool {
        self.fast_forward.knows(addresses, access)
    }

    /// Passes over `cost`, for which there is room ([`spare`](Self::spare)), and whose pages were all touched before.
    pub fn skip_stretch(&mut self, cost: Cost) {
        debug_assert!(self.spare(cost) > 0);
        self.skipped += cost.ops;
        self.grant_left -= cost.instructions;
    }

    /// What was produced so many ops before the last one.
    pub fn earlier(&self, back: u64) -> Value {
        Value::of(self.number() - back)
    }

    /// The op that was emitted or passed over last.
    #[inline(always)]
    fn last(&self) -> Value {
        Value::of(self.number())
    }

    /// Its number.
    #[inline(always)]
    fn number(&self) -> u64 {
        self.given + self.skipped + self.ops.len() as u64
    }

    /// Emits the op of these arguments. Out of line: there are thousands of places that emit, and most
    /// time is spent elsewhere, in passing over ops or in timing them.
    #[inline(never)]
    fn emit(&mut self, pc: u64, va: u64, form: Form, first: Value, second: Value) -> Value {
        // Nothing else is called from here: few registers have to be saved.
        if self.ops.len() == self.ops.capacity() {
            return self.emit_first(pc, va, form, first, second);
        }
        let next = self.number() + 1;
        self.ops.push(Op {
            pc,
            va,
            insns: form.insns,
            dep: [first.distance(next), second.distance(next)],
            dep_latency: [first.cycles(), second.cycles()],
            latency: form.latency,
            kind: form.kind,
            size: form.size,
            flags: form.flags,
        });
        Value::of(next)
    }

    #[cold]
    #[inline(never)]
    fn emit_first(&mut self, pc: u64, va: u64, form: Form, first: Value, second: Value) -> Value {
        self.ops.reserve(BATCH_OPS);
        self.emit(pc, va, form, first, second)
    }

    /// Passes over an op at `pc` of the program's code, if it may be. It is not made before that is
    /// known.
    // Tests, which alone check assertions, would take twice as long to compile.
    #[cfg_attr(not(debug_assertions), inline(always))]
    #[cfg_attr(debug_assertions, inline(never))]
    fn skip(&mut self, pc: u64, insns: u16, data: Option<Data>) -> bool {
        if self.grant_left == 0 {
            return false;
        }
        let within = u64::from(insns) < self.grant_left && self.skipped < BATCH_OPS as u64;
        if within && self.known.holds(pc, data) {
            self.grant_left -= u64::from(insns);
            self.skipped += 1;
            return true;
        }
        match data {
            Some(Data { at, size, access }) if within => {
                self.skip_near(pc, u64::from(insns), at, size, access)
            }
            _ => self.look(pc, u64::from(insns), data),
        }
    }

    /// Most ops use a line, where lines are wanted, or else a page that was used a moment ago. All in
    /// registers: an argument in memory is written in parts and read as a whole, for which the host waits.
    #[inline(never)]
    fn skip_near(&mut self, pc: u64, insns: u64, at: u64, size: u8, access: Access) -> bool {
        let data = Data { at, size, access };
        let is_near = |known: &Known| {
            if self.fast_forward.warms_filtered() {
                self.fast_forward.recent_lines().holds(data)
            } else {
                known.is_near(data)
            }
        };
        if self.known.holds_code(pc) && is_near(&self.known) {
            self.grant_left -= insns;
            self.skipped += 1;
            return true;
        }
        self.look(pc, insns, Some(data))
    }

    #[inline(never)]
    fn look(&mut self, pc: u64, insns: u64, data: Option<Data>) -> bool {
        if self.grant_left == NOT_KNOWN {
            self.grant_left = self.fast_forward.begin();
            self.before = self.grant_left;
        }
        if self.grant_left == 0 {
            return false;
        }
        if self.skipped == BATCH_OPS as u64 {
            self.part(End::More);
        }
        // The last one may be more than there was leave for.
        self.before += insns.saturating_sub(self.grant_left);
        self.grant_left = self.grant_left.saturating_sub(insns);
        self.skipped += 1;
        if self.fast_forward.warms_filtered() {
            let old = self.fast_forward.recent_lines().in_place_of(CODE + pc);
            self.fast_forward.look(CODE + pc, data);
            self.known.learn_line(pc, old.wrapping_sub(CODE));
        } else {
            self.fast_forward.look(CODE + pc, data);
            self.known.learn(pc, data, &self.fast_forward);
        }
        true
    }

    /// Reads `size` bytes at `va`; `insns` instructions end with this one, which
    /// lies at `pc` of the program's code. `address` produce the address.
    #[inline(always)]
    pub fn load(&mut self, pc: u64, insns: u16, va: u64, size: u8, address: [Value; 2]) -> Value {
        self.read(pc, insns, va, size, address, 0)
    }

    #[inline(always)]
    fn read(
        &mut self,
        pc: u64,
        insns: u16,
        va: u64,
        size: u8,
        address: [Value; 2],
        flags: u8,
    ) -> Value {
        let read = Data {
            at: va,
            size,
            access: Access::Read,
        };
        if self.skip(pc, insns, Some(read)) {
            return self.last();
        }
        let form = Form {
            insns,
            kind: OpClass::Load,
            size,
            flags,
            ..Form::default()
        };
        self.emit(CODE + pc, va, form, address[0], address[1])
    }

    /// Writes `size` bytes at `va`.
    #[inline(always)]
    pub fn store(&mut self, pc: u64, insns: u16, va: u64, size: u8, address: Value, data: Value) {
        let written = Data {
            at: va,
            size,
            access: Access::Write,
        };
        if self.skip(pc, insns, Some(written)) {
            return;
        }
        let form = Form {
            insns,
            kind: OpClass::Store,
            size,
            ..Form::default()
        };
        self.emit(CODE + pc, va, form, address, data);
    }

    /// `insns` plain instructions whose longest chain takes `latency` cycles after `inputs`.
    #[inline(always)]
    pub fn compute(&mut self, pc: u64, insns: u16, latency: u8, inputs: [Value; 2]) -> Value {
        if self.skip(pc, insns, None) {
            return self.last();
        }
        let form = Form {
            insns,
            latency,
            kind: OpClass::Compute,
            ..Form::default()
        };
        self.emit(CODE + pc, 0, form, inputs[0], inputs[1])
    }

    /// A conditional branch to `target`, decided by `condition`.
    #[inline(always)]
    pub fn branch(&mut self, pc: u64, target: u64, insns: u16, taken: bool, condition: [Value; 2]) {
        let taken = if taken { flags::TAKEN } else { 0 };
        self.jump(pc, target, insns, flags::CONDITIONAL | taken, condition);
    }

    /// A control transfer of another kind: `flags` of [`pagewalk_stream::flags`].
    #[inline(always)]
    pub fn jump(&mut self, pc: u64, target: u64, insns: u16, flags: u8, inputs: [Value; 2]) {
        if self.skip(pc, insns, None) {
            return;
        }
        let form = Form {
            insns,
            latency: 1,
            kind: OpClass::Branch,
            flags,
            ..Form::default()
        };
        self.emit(CODE + pc, CODE + target, form, inputs[0], inputs[1]);
    }

    /// Calls the function at `target`: the return address goes to the stack,
    /// `depth` bytes below the thread's first frame.
    #[inline(always)]
    pub fn call(&mut self, pc: u64, target: u64, insns: u16, depth: u64) {
        let va = self.stack - depth - 8;
        self.store(pc, insns, va, 8, NONE, NONE);
        self.jump(pc, target, 0, flags::TAKEN | flags::CALL, [NONE; 2]);
    }

    /// Returns to after the call at `to`, as [`call`](Self::call) went.
    #[inline(always)]
    pub fn ret(&mut self, pc: u64, to: u64, insns: u16, depth: u64) {
        let address = self.load(pc, insns, self.stack - depth - 8, 8, [NONE; 2]);
        let after = flags::TAKEN | flags::RETURN;
        self.jump(pc, to + 5, 0, after, [address, NONE]);
    }

    /// A `lock`ed read-modify-write of `size` bytes at `va`.
    #[inline(always)]
    pub fn atomic(&mut self, pc: u64, insns: u16, va: u64, size: u8, inputs: [Value; 2]) -> Value {
        let old = self.read(pc, insns, va, size, [inputs[0], NONE], flags::SERIALISING);
        self.store(pc, 0, va, size, inputs[0], old.plus(1));
        old
    }
}

/// What the code has left when it ends goes out.
impl Drop for Thread {
    fn drop(&mut self) {
        self.count();
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        link.batch.ops = std::mem::take(&mut self.ops);
        link.batch.skipped = std::mem::take(&mut self.fast_forward.summary.skipped);
        link.end = Some(End::Exit);
        if self.grant_left != NOT_KNOWN {
            self.fast_forward.end(self.grant_left);
        }
    }
}

/// The number of a thread's share of `items` things, as OpenMP's static schedule
/// deals them.
pub fn share(items: u64, thread: ThreadId, threads: u32) -> Range<u64> {
    let (thread, threads) = (u64::from(thread), u64::from(threads));
    let part = |t: u64| (u128::from(items) * u128::from(t) / u128::from(threads)) as u64;
    part(thread)..part(thread + 1)
}
