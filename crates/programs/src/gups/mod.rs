//! GUPS: random read-modify-writes of one large table (HPCC RandomAccess in Plimpton's form).
//!
//! ```c
//! for (it = 0; it < rounds; it++) {
//!   for (i = 0; i < 1024; i++) { ran = (ran << 1) ^ ((s64)ran < 0 ? 7 : 0); data[i] = ran; }
//!   for (i = 0; i < 1024; i++) { datum = data[i]; table[datum & mask] ^= datum; }
//! }
//! ```
//!
//! The ops below stand for the code of gcc 12.2 -O2:
//!
//! ```text
//!  1c  mov %r11,%rdx ; mov %r11,%rax ; nopw          once a round
//!  28  lea (%rcx,%rcx,1),%rsi ; mov %rsi,%r9 ; xor $7,%r9
//!      test %rcx,%rcx ; mov %rsi,%rcx ; cmovs %r9,%rcx     chain lea, xor, cmovs
//!  3d  add $8,%rax ; 41 mov %rcx,-8(%rax)
//!  45  cmp %r8,%rax ; 48 jne 28
//!  4a  nopw                                          once a round
//!  50  mov (%rdx),%rsi
//!  53  add $8,%rdx ; mov %rsi,%rax ; and %r10,%rax ; 5d xor %rsi,(%rdi,%rax,8)
//!  61  cmp %rdx,%r8 ; 64 jne 50
//!  66  add $1,%rbx ; cmp %rbx,%rbp ; 6d jne 1c         once a round
//! ```
//!
//! `variant=check` is the build of the benchmark's own Makefile (`check.rs`).
//!
//! An update takes 17 instructions (10 to fill, 7 to update), two loads and two stores. A round adds 7
//! instructions. No op depends on the table's contents, so the host does not hold them.

mod check;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use pagewalk_stream::{
    BATCH_OPS, Batch, End, Error, Event, Facts, FastForwardBudget, Op, OpClass, Program,
    ThreadFastForward, ThreadId, flags,
};
use pagewalk_units::VirtAddr;
use rand::Rng as _;

use crate::entry::{Entry, Values};
use crate::info::{ParamInfo, REGION, WorkloadInfo};
use crate::layout::{CODE, Layout};
use crate::size::format_size;
use crate::thread::{PAGE_TOUCH, Start, Touch, page_touch};

pub(crate) const ENTRY: Entry = Entry { info: INFO, build };

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gups",
    group: "micro",
    description: "Updates random 64-bit words of one large table.",
    stresses: "TLB reach: in a table far larger than it, each update misses the TLBs once; updates are independent, so their walks overlap.",
    source: "HPC Challenge RandomAccess; S. Plimpton et al., A simple synchronous distributed-memory algorithm for the HPCC RandomAccess benchmark, CLUSTER 2006",
    default_size: 4 << 30,
    size_range: "a power of two from 4KiB to 64TiB",
    max_threads: 16,
    params: &[
        ParamInfo {
            name: "updates",
            unit: "updates",
            default: "4 for each table entry",
            range: "1 to 2^58",
            meaning: "Updates of all threads together.",
        },
        ParamInfo {
            name: "variant",
            unit: "",
            default: "o2",
            range: "o2 or check",
            meaning: "Compiled variant: o2 is built with -O2; check is built as in its Makefile, with -O -DCHECK. Each round of check reads its numbers a second time (25 instructions an update).",
        },
        ParamInfo {
            name: "chunk",
            unit: "numbers",
            default: "1024",
            range: "1 to 2^26",
            meaning: "Numbers that a thread draws before it applies them. HPC Challenge allows 1024; public runs with `check` use 1000000.",
        },
        ParamInfo {
            name: "first",
            unit: "numbers",
            default: "0 with check, drawn from the seed with o2",
            range: "0 to 2^63 - 1",
            meaning: "Numbers of the generator, which begins at 1, that are skipped. The real program skips none, and the first few hundred thousand are far from random.",
        },
        ParamInfo {
            name: "populate",
            unit: "",
            default: "yes",
            range: "yes, no or a size",
            meaning: "Initialisation of the table before the region of interest. With no, pages fault at their first update. With a size, only that much is initialised, and a simulated store inside of the region of interest touches each page of the rest.",
        },
        REGION,
    ],
};

/// Instructions per update and per round, from the listing above.
pub(crate) const INSTRUCTIONS_PER_UPDATE: u64 = 17;
pub(crate) const INSTRUCTIONS_PER_ROUND: u64 = 7;
/// Period of the generator, from the benchmark's reference code.
const PERIOD: u64 = 1_317_624_576_693_539_401;

const FILL_OPS: usize = 3;
const UPDATE_OPS: usize = 4;

/// One step of the benchmark's generator, a shift register over GF(2).
#[inline(always)]
fn step(ran: u64) -> u64 {
    (ran << 1) ^ (((ran as i64) >> 63) as u64 & 7)
}

/// The generator's value after `n` steps from 1, computed by squaring, as in `HPCC_starts`.
fn start(n: u64) -> u64 {
    let n = n % PERIOD;
    if n == 0 {
        return 1;
    }
    // squares[j] = x^(2j) in the field: the image of bit j under squaring.
    let mut squares = [0u64; 64];
    let mut power = 1;
    for square in &mut squares {
        *square = power;
        power = step(step(power));
    }
    let mut ran = 2;
    for bit in (0..63 - n.leading_zeros()).rev() {
        let mut squared = 0;
        for (j, square) in squares.iter().enumerate() {
            if ran >> j & 1 == 1 {
                squared ^= square;
            }
        }
        ran = squared;
        if n >> bit & 1 == 1 {
            ran = step(ran);
        }
    }
    ran
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Fill,
    Update,
    RoundEnd,
}

/// One thread: its generator, its buffer, and its position in the loops.
struct Worker {
    ran: u64,
    /// Address of the buffer.
    data: u64,
    numbers: Box<[u64]>,
    /// Updates left after this round.
    remaining: u64,
    /// Updates of a full round.
    chunk: u64,
    /// Length of this round, and position in its current loop.
    round: usize,
    at: usize,
    phase: Phase,
    /// Distance from the round's first number to the last number of the previous round.
    carried: u16,
    /// True after its last op.
    done: bool,
}

fn build(values: &Values<'_>) -> Result<Box<dyn Program>, Error> {
    match values.choice("variant", &["o2", "check"], "o2")? {
        "check" => Ok(Box::new(checked(values)?)),
        _ => Ok(Box::new(Gups::new(values)?)),
    }
}

/// Parameters of both variants.
struct Wanted {
    bytes: u64,
    chunk: u64,
    start: Start,
    /// Updates of each thread.
    shares: Vec<u64>,
    /// Generator steps before the first update.
    first: u64,
}

impl Wanted {
    fn new(values: &Values<'_>) -> Result<Self, Error> {
        let bytes = values.size();
        if !bytes.is_power_of_two() {
            let near = bytes.checked_next_power_of_two().unwrap_or(1 << 46);
            let why = format!("not a power of two (the next one is {})", format_size(near));
            return Err(values.refuse_size(bytes, why));
        }
        if !(4096..=1 << 46).contains(&bytes) {
            return Err(values.refuse_size(bytes, "out of range"));
        }
        // An update takes at most 57 instructions: those of 2^58 updates can be counted in 64 bits.
        let updates = values.number_in("updates", 1..=1 << 58, bytes / 8 * 4)?;
        let threads = u64::from(values.options.threads);
        let start = values.start()?;
        if start.touch == Touch::Stores {
            return Err(values.refuse("populate", "gups has no such initialisation"));
        }
        let drawn = pagewalk_units::rng(values.options.seed, "workload.gups").next_u64();
        Ok(Wanted {
            bytes,
            chunk: values.number_in("chunk", 1..=1 << 26, 1024)?,
            start,
            shares: (0..threads)
                .map(|t| updates / threads + u64::from(t < updates % threads))
                .collect(),
            first: match values.text("first") {
                None if values.text("variant") == Some("check") => 0,
                None => drawn % PERIOD,
                Some(_) => values.number_in("first", 0..=i64::MAX as u64, 0)? % PERIOD,
            },
        })
    }

    /// Range of the table that simulated stores initialise.
    fn timed(&self) -> Option<Range<u64>> {
        match self.start.touch {
            Touch::Part(bulk) => Some(bulk.min(self.bytes).next_multiple_of(4096)..self.bytes),
            _ => None,
        }
    }

    /// Events and touches of thread 0 before its first update: mappings, initialisation, start of the region
    /// of interest, start of the other threads.
    fn setup(&self, table: u64, mut layout: Layout, threads: u32) -> VecDeque<Setup> {
        let mut setup: VecDeque<Setup> = layout.events().into_iter().map(Setup::Event).collect();
        let timed = self.timed().map(|t| table + t.start..table + t.end);
        if let Some(timed) = timed.as_ref().filter(|t| t.start > table) {
            setup.push_back(Setup::Event(Event::Populate {
                at: VirtAddr(table),
                bytes: timed.start - table,
            }));
        }
        setup.push_back(Setup::Event(Event::RoiBegin));
        setup.extend(timed.filter(|t| !t.is_empty()).map(Setup::Touch));
        if self.start.alone {
            setup.push_back(Setup::Event(Event::RoiEnd));
        }
        setup.extend((1..threads).map(|thread| Setup::Event(Event::Spawn { thread })));
        setup
    }

    fn facts(&self, variant: &str, per_update: u64, per_round: u64) -> Facts {
        let (size, threads) = (format_size(self.bytes), self.shares.len());
        let of = |share: &u64| share * per_update + share.div_ceil(self.chunk) * per_round;
        let touches = self.timed().map_or(0, |t| (t.end - t.start) / 4096);
        Facts {
            name: format!("gups --size {size} --threads {threads}{variant}"),
            instructions: Some(self.shares.iter().map(of).sum::<u64>() + PAGE_TOUCH * touches),
            deterministic: true,
            has_roi: true,
            request: Some("update".to_owned()),
            threads: u32::try_from(threads).ok(),
            ..Facts::default()
        }
    }
}

fn checked(values: &Values<'_>) -> Result<crate::program::Code, Error> {
    let wanted = Wanted::new(values)?;
    let mut layout = Layout::new();
    let work = check::Work {
        table: layout.array(wanted.bytes, wanted.start.touch == Touch::Bulk),
        bytes: wanted.bytes,
        chunk: wanted.chunk,
    };
    let mut begun = wanted.first;
    let shares = (0..)
        .zip(&wanted.shares)
        .map(|(thread, updates)| {
            let share = check::Share {
                ran: start(begun),
                stack: layout.stack(thread),
                // The source allocates 16 times the drawn numbers, and as much for sending. Unused parts are
                // never touched.
                data: layout.array(16 * 8 * wanted.chunk, false),
                updates: *updates,
            };
            layout.array(16 * 8 * wanted.chunk, false);
            begun = (begun + updates % PERIOD) % PERIOD;
            share
        })
        .collect();
    let facts = wanted.facts(
        " variant=check",
        check::INSTRUCTIONS_PER_UPDATE,
        check::INSTRUCTIONS_PER_ROUND,
    );
    Ok(check::program(facts, layout, wanted.start, work, shares))
}

/// Actions of thread 0 before its first update.
enum Setup {
    Event(Event),
    /// Touches the pages of this range of the table.
    Touch(Range<u64>),
}

pub(crate) struct Gups {
    facts: Facts,
    setup: VecDeque<Setup>,
    workers: Vec<Worker>,
    table: u64,
    mask: u64,
    joined: bool,
    roi_ended: bool,
    budget: Arc<FastForwardBudget>,
    fast_forward: ThreadFastForward,
}

impl Gups {
    pub(crate) fn new(values: &Values<'_>) -> Result<Self, Error> {
        let wanted = Wanted::new(values)?;
        let mut layout = Layout::new();
        let table = layout.array(wanted.bytes, wanted.start.touch == Touch::Bulk);
        let mut begun = wanted.first;
        let workers = (0..)
            .zip(&wanted.shares)
            .map(|(thread, share)| {
                layout.stack(thread);
                let ran = start(begun);
                begun = (begun + share % PERIOD) % PERIOD;
                let round = (*share).min(wanted.chunk);
                Worker {
                    ran,
                    data: layout.array(wanted.chunk * 8, true),
                    numbers: vec![0; round as usize].into(),
                    remaining: share - round,
                    chunk: wanted.chunk,
                    round: round as usize,
                    at: 0,
                    phase: Phase::Fill,
                    carried: 0,
                    done: round == 0,
                }
            })
            .collect();
        let budget = Arc::<FastForwardBudget>::default();
        Ok(Gups {
            fast_forward: ThreadFastForward::new(Arc::clone(&budget)),
            budget,
            facts: wanted.facts("", INSTRUCTIONS_PER_UPDATE, INSTRUCTIONS_PER_ROUND),
            setup: wanted.setup(table, layout, values.options.threads),
            workers,
            table,
            mask: wanted.bytes / 8 - 1,
            joined: false,
            roi_ended: wanted.start.alone,
        })
    }
}

impl Worker {
    /// Fills `batch`. Returns false when the thread has done its share.
    fn emit(&mut self, table: u64, mask: u64, batch: &mut Batch) -> bool {
        loop {
            let room = BATCH_OPS - batch.ops.len();
            match self.phase {
                Phase::Fill => {
                    let n = (room / FILL_OPS).min(self.round - self.at);
                    self.fill(n, batch);
                    if self.at < self.round {
                        return true;
                    }
                    (self.at, self.phase) = (0, Phase::Update);
                }
                Phase::Update => {
                    let n = (room / UPDATE_OPS).min(self.round - self.at);
                    self.update(n, table, mask, batch);
                    if self.at < self.round {
                        return true;
                    }
                    self.phase = Phase::RoundEnd;
                }
                Phase::RoundEnd => {
                    if room == 0 {
                        return true;
                    }
                    let more = self.remaining > 0;
                    batch.ops.push(Op {
                        insns: 3,
                        ..branch(0x6d, 0x1c, more)
                    });
                    if !more {
                        return false;
                    }
                    // Distance from the first number over this branch, the updates, and the last branch and
                    // store of the fill loop.
                    let back = UPDATE_OPS * self.round + FILL_OPS + 1;
                    // A distance too large to encode: the producer has completed by then.
                    self.carried = u16::try_from(back).unwrap_or(0);
                    self.round = self.remaining.min(self.chunk) as usize;
                    self.remaining -= self.round as u64;
                    (self.at, self.phase) = (0, Phase::Fill);
                }
            }
        }
    }

    fn fill(&mut self, n: usize, batch: &mut Batch) {
        let ops = [
            Op {
                pc: CODE + 0x39,
                insns: 6,
                dep: [FILL_OPS as u16, 0],
                latency: 3,
                kind: OpClass::Compute,
                ..Op::default()
            },
            Op {
                pc: CODE + 0x41,
                insns: 2,
                // The pointer's increments are ready long before, the number is not.
                dep: [0, 1],
                kind: OpClass::Store,
                size: 8,
                ..Op::default()
            },
            branch(0x48, 0x28, true),
        ];
        for i in self.at..self.at + n {
            self.ran = step(self.ran);
            self.numbers[i] = self.ran;
            let mut now = ops;
            if i == 0 {
                now[0].insns += 3;
                now[0].dep[0] = self.carried;
            }
            if i + 1 == self.round {
                now[2].flags &= !flags::TAKEN;
            }
            now[1].va = self.data + 8 * i as u64;
            batch.ops.extend_from_slice(&now);
        }
        self.at += n;
    }

    fn update(&mut self, n: usize, table: u64, mask: u64, batch: &mut Batch) {
        let ops = [
            Op {
                pc: CODE + 0x50,
                insns: 1,
                kind: OpClass::Load,
                size: 8,
                ..Op::default()
            },
            Op {
                pc: CODE + 0x5d,
                insns: 4,
                dep: [1, 0],
                dep_latency: [1, 0],
                kind: OpClass::Load,
                size: 8,
                ..Op::default()
            },
            Op {
                pc: CODE + 0x5d,
                insns: 0,
                dep: [2, 1],
                dep_latency: [1, 1],
                kind: OpClass::Store,
                size: 8,
                ..Op::default()
            },
            Op {
                flags: flags::CONDITIONAL | flags::TAKEN | flags::REQUEST,
                ..branch(0x64, 0x50, true)
            },
        ];
        for i in self.at..self.at + n {
            let mut now = ops;
            let word = table + 8 * (self.numbers[i] & mask);
            now[0].va = self.data + 8 * i as u64;
            now[1].va = word;
            now[2].va = word;
            if i == 0 {
                now[0].insns += 1;
            }
            if i + 1 == self.round {
                now[3].flags &= !flags::TAKEN;
            }
            batch.ops.extend_from_slice(&now);
        }
        self.at += n;
    }
}

fn branch(pc: u64, target: u64, taken: bool) -> Op {
    Op {
        pc: CODE + pc,
        va: CODE + target,
        insns: 2,
        latency: 1,
        kind: OpClass::Branch,
        flags: flags::CONDITIONAL | if taken { flags::TAKEN } else { 0 },
        ..Op::default()
    }
}

impl Program for Gups {
    fn facts(&self) -> Facts {
        self.facts.clone()
    }

    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, Error> {
        batch.clear();
        let end = self.fill_whole(thread, batch)?;
        if thread == 0 {
            self.fast_forward.skip_batch(batch);
            if let End::Event { event, .. } = &end {
                self.fast_forward.change(event);
            }
        }
        Ok(end)
    }

    fn grant_fast_forward(&mut self, instructions: u64, requests: u64) {
        self.budget.grant_fast_forward(instructions, requests);
    }

    fn grant_filtered_warming(&mut self, instructions: u64, requests: u64) {
        self.budget.grant_filtered_warming(instructions, requests);
    }
}

impl Gups {
    fn fill_whole(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, Error> {
        if thread == 0
            && let Some(step) = self.setup.pop_front()
        {
            let mut pages = match step {
                Setup::Event(event) => return Ok(End::Event { event, ticket: 0 }),
                Setup::Touch(pages) => pages,
            };
            while !pages.is_empty() && batch.ops.len() + 2 <= BATCH_OPS {
                let va = pages.start;
                pages.start += 4096;
                batch.ops.extend(page_touch(va, !pages.is_empty()));
            }
            if !pages.is_empty() {
                self.setup.push_front(Setup::Touch(pages));
            }
            return Ok(End::More);
        }
        let count = self.workers.len();
        let Some(worker) = self.workers.get_mut(thread as usize) else {
            return Err(Error::refused(format!(
                "gups has {count} threads, not a thread {thread}"
            )));
        };
        if !worker.done {
            worker.done = !worker.emit(self.table, self.mask, batch);
            return Ok(End::More);
        }
        if thread != 0 {
            return Ok(End::Exit);
        }
        // Thread 0 joins the others before the region of interest ends.
        if !std::mem::replace(&mut self.joined, true) && count > 1 {
            return Ok(End::Barrier { number: u64::MAX });
        }
        if !self.roi_ended {
            self.roi_ended = true;
            return Ok(End::Event {
                event: Event::RoiEnd,
                ticket: 0,
            });
        }
        Ok(End::Exit)
    }
}

#[cfg(test)]
mod tests {
    use super::{PERIOD, start, step};

    #[test]
    fn jumping_ahead_equals_stepping() {
        let mut ran = 1;
        for n in 0..5000 {
            assert_eq!(start(n), ran, "{n}");
            ran = step(ran);
        }
        assert_eq!(start(PERIOD), 1);
        let far = 1 << 50;
        assert_eq!(start(far + 1), step(start(far)));
    }
}
