//! One thread of a built-in program, as the program's code uses it: emit ops, report events, wait at
//! barriers.
//!
//! The code of a thread is an `async` block that runs the real algorithm. It yields with [`Thread::pause`]
//! when its batch is full ([`Thread::full`]). The code chooses the places, such as the end of an edge or of a
//! lookup, so that loops and recursion are written as loops and recursion.
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
    BATCH_OPS, Batch, Data, End, Event, FastForwardBudget, Op, OpClass, PortWork, PrefetchHint,
    ShortcutQuery, ThreadFastForward, ThreadId, flags,
};
use pagewalk_units::{Access, LINE_SHIFT, VirtAddr};

use crate::layout::{CODE, CODE_BYTES};

/// The result of an op, or of plain instructions after it: a later op may depend on it.
///
/// Packed in one word, so that it is passed in a register. The lowest byte holds the cycles of plain
/// instructions after the producer, the rest the producer's number in its thread. The first op's number
/// exceeds the largest encodable distance. A value of producer 0 is therefore ready at dispatch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Value(u64);

/// Number before the thread's first op.
const BEFORE_FIRST: u64 = u16::MAX as u64;

/// No dependence.
pub const NONE: Value = Value(0);

impl Value {
    /// Result of op number `op`.
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

    /// Distance in ops from this producer to op `next`. 0 if the distance is too large to encode: the
    /// producer has completed by then.
    #[inline(always)]
    fn distance(self, next: u64) -> u16 {
        u16::try_from(next - self.op()).unwrap_or(0)
    }

    /// This value after plain instructions whose chain takes `cycles` more. The sum saturates at 255.
    #[must_use]
    #[inline]
    pub fn plus(self, cycles: u64) -> Value {
        let cycles = cycles.saturating_add(u64::from(self.cycles())).min(255);
        Value(self.0 & !0xff | cycles)
    }
}

/// Initialisation of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// In bulk, in program order, without simulated time, before the region of interest.
    Bulk,
    /// By simulated stores of the program, in the region of interest.
    Stores,
    /// The first bytes, as many as given, in bulk. Then one simulated store to each page, in the region of
    /// interest.
    Part(u64),
    /// Not at all: pages fault at their first access in the measured part.
    Never,
}

impl Touch {
    /// True if the region of interest includes initialisation.
    pub fn is_timed(self) -> bool {
        matches!(self, Touch::Stores | Touch::Part(_))
    }
}

/// Initialisation of memory, and the extent of the region of interest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start {
    /// Initialisation of memory.
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

/// Output of a thread that its program has not yet taken.
#[derive(Default)]
pub(super) struct Link {
    pub batch: Batch,
    pub end: Option<End>,
    /// Batches that [`Thread::note`] ended before `batch`.
    pub noted: Vec<(Batch, End)>,
    /// Reply to the thread's shortcut query.
    pub reply: Option<u64>,
}

pub(super) type SharedLink = Arc<Mutex<Link>>;

/// Ops after which a thread yields. Ops that the current step appends beyond that are kept in order.
const FULL: usize = BATCH_OPS - 64;

/// Offset of the code that initialises memory, above the programs' own code.
const TOUCH: u64 = 0xf000;

/// Ops that touch the page at `va`: a store of one byte, then the branch of the loop.
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

/// A turn begins: the fast-forward budget is read with the turn's first op.
const NOT_KNOWN: u64 = u64::MAX;

/// Pages of a program's code.
const PAGES: usize = (CODE_BYTES >> 12) as usize;

/// Entries of the direct-mapped table of recently checked data pages.
const NEAR: usize = 64;

/// Filter of the code and data that this turn has already checked for first touches.
#[derive(Clone, Copy)]
struct Known {
    /// A bitmap of lines, one word per page of the program's code. In filtered functional warming only lines
    /// that the recent-line filter holds are set.
    code: [u64; PAGES],
    /// Start of each known data range, and the length within which an access may begin.
    data: [(u64, u64); 3],
    /// Other checked pages, direct-mapped by page number. An entry is twice the page number, plus one if the
    /// page may be written.
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
    /// True if the line of code at `pc` has been checked.
    #[inline(always)]
    fn holds_code(&self, pc: u64) -> bool {
        let Some(page) = self.code.get((pc >> 12) as usize) else {
            return false;
        };
        page >> (pc >> LINE_SHIFT & 63) & 1 != 0
    }

    #[inline(always)]
    fn holds(&self, pc: u64, data: Option<Data>) -> bool {
        // Compares with all ranges without branches: the matching one is hard to predict.
        let there = |at: u64| {
            (self.data.iter()).fold(false, |any, (start, bytes)| {
                any | (at.wrapping_sub(*start) < *bytes)
            })
        };
        self.holds_code(pc) && data.is_none_or(|d| there(d.at))
    }

    /// True if the access lies within one checked page.
    #[inline(always)]
    fn is_near(&self, Data { at, size, access }: Data) -> bool {
        let page = at >> 12;
        let known = self.near[page as usize % NEAR];
        let written = known & 1 != 0 || access != Access::Write;
        known >> 1 == page && written && (at & 0xfff) + u64::from(size) <= 4096
    }

    /// Copies what `fast_forward` knows after it has checked this op.
    fn learn(&mut self, pc: u64, data: Option<Data>, fast_forward: &ThreadFastForward) {
        if let Some(page) = self.code.get_mut((pc >> 12) as usize) {
            *page = u64::MAX;
        }
        let Some(Data { at, access, .. }) = data else {
            return;
        };
        let (ranges, written) = fast_forward.known(at);
        self.data = ranges.map(|range| {
            // An access that begins in the range ends in it, too.
            let bytes = (range.end - range.start).saturating_sub(u64::from(u8::MAX));
            (range.start, bytes)
        });
        let (page, written) = (at >> 12, written || access == Access::Write);
        self.near[page as usize % NEAR] = page << 1 | u64::from(written);
    }

    /// In filtered functional warming: marks the line at `pc` as checked, and the line at `old`, which it
    /// replaced, as unchecked.
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

/// Size of a stretch of code: ops, and the instructions that they stand for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    ops: u64,
    instructions: u64,
}

impl Cost {
    /// A cost of `ops` that stand for `instructions`.
    pub const fn new(ops: u64, instructions: u64) -> Self {
        Cost { ops, instructions }
    }

    /// Sum of both costs.
    #[must_use]
    pub fn plus(self, other: Cost) -> Cost {
        Cost::new(self.ops + other.ops, self.instructions + other.instructions)
    }

    /// Cost of `count` executions.
    #[must_use]
    pub fn times(self, count: u64) -> Cost {
        Cost::new(self.ops * count, self.instructions * count)
    }
}

/// Fields of an op that are constants where it is emitted. They are passed in one register.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Form {
    insns: u16,
    latency: u8,
    kind: OpClass,
    size: u8,
    flags: u8,
}

/// One thread of a built-in program (see the module).
pub struct Thread {
    ops: Vec<Op>,
    /// Number of the last op before `ops` and the ops counted in `skipped`.
    given: u64,
    /// Ops after which a turn ends, in `skipped` and `ops` together: [`FULL`] less those already in a batch.
    most: usize,
    /// Remaining fast-forward budget of this turn in instructions, or [`NOT_KNOWN`].
    grant_left: u64,
    /// Skipped ops that `fast_forward` has not yet counted, and the budget before them.
    skipped: u64,
    before: u64,
    fast_forward: Box<ThreadFastForward>,
    known: Known,
    link: SharedLink,
    barriers: u64,
    start: Start,
    /// Bytes that remain to be initialised in bulk by all threads together, with [`Touch::Part`].
    bulk: Arc<AtomicU64>,
    /// The region of interest has begun.
    begun: bool,
    /// Stack pointer when the thread's function is called.
    pub stack: u64,
}

/// Yields once.
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

/// Future of a shortcut query's result: `None` if the machine has no shortcut.
#[must_use = "the query is issued when it is awaited"]
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
    /// A new thread. The program's `first` thread runs when the program begins.
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
            // The region of interest begins before the other threads start.
            begun: !first,
            stack,
        }
    }

    /// True if the batch is full and the code has to [`pause`](Self::pause). Check it after each step of the
    /// algorithm.
    #[inline(always)]
    pub fn full(&self) -> bool {
        self.skipped as usize + self.ops.len() >= self.most
    }

    /// Yields, so that the emitted ops are simulated.
    pub fn pause(&mut self) -> Pause {
        self.hand_over(End::More)
    }

    /// Ends the batch with `event`.
    pub fn event(&mut self, event: Event) -> Pause {
        self.fast_forward.change(&event);
        self.hand_over(End::Event { event, ticket: 0 })
    }

    /// Marks the last op as the end of a request of the program. Call it before the [`pause`](Self::pause)
    /// that hands that op over.
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

    /// Queries the machine's shortcut in `insns` instructions, the last of them at `pc`. `inputs` produce the
    /// integer and the address. Returns the value that produces the result, and a future of the result
    /// itself.
    pub fn shortcut_query(
        &mut self,
        pc: u64,
        insns: u16,
        query: ShortcutQuery,
        inputs: [Value; 2],
    ) -> (Value, PendingResult<'_>) {
        let form = Form {
            insns,
            kind: OpClass::Query,
            ..Form::default()
        };
        let reply = self.emit(CODE + pc, 0, form, inputs[0], inputs[1]);
        let pause = self.hand_over(End::Query(query));
        let link = &self.link;
        (reply, PendingResult { pause, link })
    }

    /// Ends the batch with `event` without yielding, for code that cannot `await`. For rare events only, and
    /// never for one that starts a thread.
    pub fn note(&mut self, event: Event) {
        debug_assert!(!matches!(event, Event::Spawn { .. }));
        self.fast_forward.change(&event);
        self.part(End::Event { event, ticket: 0 });
        self.known = Known::default();
        self.most = FULL;
    }

    /// Adds the skipped ops of `skipped` to the account of `fast_forward`.
    fn count(&mut self) {
        if self.skipped > 0 {
            self.fast_forward
                .count(self.skipped, self.before - self.grant_left);
            self.given += self.skipped;
            self.most = self.most.saturating_sub(self.skipped as usize);
            (self.skipped, self.before) = (0, self.grant_left);
        }
    }

    /// Ends the current batch with `end` and continues the turn.
    fn part(&mut self, end: End) {
        self.count();
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        self.given += self.ops.len() as u64;
        let batch = Batch {
            skipped: std::mem::take(&mut self.fast_forward.summary.skipped),
            ops: std::mem::replace(&mut self.ops, Vec::with_capacity(BATCH_OPS)),
            ..Batch::default()
        };
        link.noted.push((batch, end));
    }

    /// First call of the first thread. With initialisation by stores, the region of interest begins here.
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

    /// Ends initialisation. The region of interest begins, or ends if it covers initialisation alone. Then
    /// the other `threads - 1` threads start.
    pub async fn begin(&mut self, threads: u32) {
        self.begin_region().await;
        if self.start.alone {
            self.event(Event::RoiEnd).await;
        }
        for thread in 1..threads {
            self.event(Event::Spawn { thread }).await;
        }
    }

    /// Last call of the first of `threads` threads.
    pub async fn finish(&mut self, threads: u32) {
        if threads > 1 {
            self.join().await;
        }
        if !self.start.alone {
            self.event(Event::RoiEnd).await;
        }
    }

    /// Waits until every other running thread has reached as many barriers.
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

    /// Initialises `bytes` at `at` in ascending order, as the user chose ([`Touch`]).
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

    /// One store to each page of the range.
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

    /// Stores of glibc's `memset` with 32-byte registers: 128 bytes per iteration.
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

    /// True if ops are fast-forwarded at page granularity and the line at `pc` is already checked. False
    /// before the first op of a turn, whose budget is not yet read.
    #[inline(always)]
    pub fn skips(&self, pc: u64) -> bool {
        self.known.holds_code(pc) && self.grant_left > 0 && !self.fast_forward.warms_filtered()
    }

    /// During fast-forwarding: how many times `cost` fits before the turn or the budget ends.
    pub fn spare(&self, cost: Cost) -> u64 {
        let ops = (self.most as u64).saturating_sub(self.skipped + 1);
        (ops / cost.ops.max(1)).min(self.grant_left.saturating_sub(1) / cost.instructions.max(1))
    }

    /// True if `access` to any of these addresses touches no page for the first time.
    pub fn knows(&self, addresses: Range<u64>, access: Access) -> bool {
        self.fast_forward.knows(addresses, access)
    }

    /// Skips `cost`. [`spare`](Self::spare) must be above 0 and all pages of `cost` touched before.
    pub fn skip_stretch(&mut self, cost: Cost) {
        debug_assert!(self.spare(cost) > 0);
        self.skipped += cost.ops;
        self.grant_left -= cost.instructions;
    }

    /// Result of the op `back` ops before the last one.
    pub fn earlier(&self, back: u64) -> Value {
        Value::of(self.number() - back)
    }

    /// Result of the last op, emitted or skipped.
    #[inline(always)]
    fn last(&self) -> Value {
        Value::of(self.number())
    }

    /// Number of the last op.
    #[inline(always)]
    fn number(&self) -> u64 {
        self.given + self.skipped + self.ops.len() as u64
    }

    /// Appends the op. Out of line: thousands of places emit ops, and most host time goes to skipping or
    /// timing them.
    #[inline(never)]
    fn emit(&mut self, pc: u64, va: u64, form: Form, first: Value, second: Value) -> Value {
        // The fast path calls nothing else, so few registers have to be saved.
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
            work: PortWork::default(),
        });
        Value::of(next)
    }

    #[cold]
    #[inline(never)]
    fn emit_first(&mut self, pc: u64, va: u64, form: Form, first: Value, second: Value) -> Value {
        self.ops.reserve(BATCH_OPS);
        self.emit(pc, va, form, first, second)
    }

    /// Skips an op at `pc` of the program's code, if the budget allows. The op is built only if this returns
    /// false.
    // Out of line with debug assertions, which only tests check: inlining would double their compile time.
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

    /// Handles the common case: the access hits the recent-line filter in filtered functional warming, or
    /// else a recently checked page. All arguments are in registers. A struct in memory would be written in
    /// parts and read as a whole, which defeats the host's store forwarding.
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
        // The last op may exceed the budget.
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

    /// Reads `size` bytes at `va`. The op stands for `insns` instructions, the last of them at `pc` of the
    /// program's code. `address` produce the address.
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

    /// Prefetches the line of `va` (`prefetcht0` and similar). Nothing waits for it.
    pub fn prefetch(
        &mut self,
        pc: u64,
        insns: u16,
        va: u64,
        hint: PrefetchHint,
        address: [Value; 2],
    ) {
        if self.skip(pc, insns, None) {
            return;
        }
        let form = Form {
            insns,
            kind: OpClass::Prefetch,
            size: hint as u8,
            ..Form::default()
        };
        self.emit(CODE + pc, va, form, address[0], address[1]);
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

    /// `insns` plain instructions. Their longest chain takes `latency` cycles after `inputs`.
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

    /// Calls the function at `target`. The return address is stored `depth` bytes below the thread's first
    /// frame.
    #[inline(always)]
    pub fn call(&mut self, pc: u64, target: u64, insns: u16, depth: u64) {
        let va = self.stack - depth - 8;
        self.store(pc, insns, va, 8, NONE, NONE);
        self.jump(pc, target, 0, flags::TAKEN | flags::CALL, [NONE; 2]);
    }

    /// Returns from the [`call`](Self::call) at `to`, with the same `depth`.
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

/// Hands over the remaining ops when the code ends.
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

/// The thread's share of `items`, as OpenMP's static schedule divides them.
pub fn share(items: u64, thread: ThreadId, threads: u32) -> Range<u64> {
    let (thread, threads) = (u64::from(thread), u64::from(threads));
    let part = |t: u64| (u128::from(items) * u128::from(t) / u128::from(threads)) as u64;
    part(thread)..part(thread + 1)
}
