//! One core: the window over its MMU and its private caches.

mod access;
mod ahead;
mod execute;
mod fetch;
mod pause;
mod shortcut_query;
mod warm;
mod window;
mod wrong;

use pagewalk_memory::{Below, Done, Level, Private, Report};
use pagewalk_mmu::{Fault, Mmu, Translated, WalkContext};
use pagewalk_stats::{Definition, Histogram, Tree, histogram};
use pagewalk_stream::{Op, OpClass, flags};
use pagewalk_structures::{Ring, Tiers, prefetch};
use pagewalk_tables::{PomTlb, View};
use pagewalk_units::{Asid, Cycle, Error, LINE_SHIFT};

use self::ahead::Lookout;
pub use self::warm::TOGETHER;
use crate::cycle_stack::{Cause, CycleStack, StackSlots};
use crate::predictor::Predictor;
use crate::rob::Rob;
use crate::store_queue::StoreQueue;
use crate::wrong_path::WrongPath;
use crate::{Atomics, CoreSpec};

/// What a program on this core has of the machine around it, lent for the length
/// of a call.
pub struct CoreContext<'a, B> {
    /// Its address space.
    pub asid: Asid,
    /// The tables of that.
    pub view: &'a View<'a>,
    /// By which hashes the kernel places frames, if it does: for speculation engines.
    pub tiers: Option<&'a Tiers>,
    /// The memory that the cores share.
    pub below: &'a mut B,
    /// The TLB that is a part of that memory, of machines that have one.
    pub in_memory_tlb: Option<&'a mut PomTlb>,
}

impl<B> CoreContext<'_, B> {
    /// What of it a core's MMU needs, with the core's own caches.
    #[inline(always)]
    fn walk_context<'b>(&'b mut self, private: &'b mut Private) -> WalkContext<'b, B> {
        WalkContext {
            view: self.view,
            tiers: self.tiers,
            private,
            below: &mut *self.below,
            in_memory_tlb: self.in_memory_tlb.as_deref_mut(),
        }
    }
}

/// Why the core came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Its local time has reached `until`.
    Quantum,
    /// All ops are consumed.
    NeedBatch,
    /// The instruction limit is reached (exactly, up to the op's own count).
    Limit,
    /// The op at the returned position faults. It is to be run again when the
    /// kernel has acted; the plain instructions before it in the op have run.
    Fault(Fault),
    /// The op at the returned position asks the machine's shortcut: it is done by
    /// [`Core::run_query`] (or [`Core::warm_query`]) with what that replies.
    Query,
}

/// What `run` gives back.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// Position of the next op to run.
    pub at: usize,
    /// Why it came back.
    pub stop: Stop,
}

pagewalk_stats::counters! {
    /// What one core counted in timed execution; warming is not counted.
    pub struct CoreStats {
        instructions: "instructions", "Instructions retired";
        cycles: "cycles", "Cycles, from the first dispatch to the last retirement, warming left out";
        ops: "operations", "Operations of the program's stream";
        requests: "requests", "Requests of the program that ended, where its operations tell";
        loads: "loads", "Loads";
        stores: "stores", "Stores";
        memory_operands: "operands", "Loads and stores";
        branches: "branches", "Branches of every kind";
        mispredictions: "branches", "Branches that the front end mispredicted";
        forwarded_loads: "loads", "Loads that took their data from an older store in the queue";
        split_accesses: "operands", "Loads and stores that touched two lines";
        fetched_lines: "lines", "Lines that instruction fetch asked for";
        load_translation_cycles: "cycles", "Time that loads waited for their translations: the part of load_to_use before the line is asked for";
    }
}

pagewalk_stats::counters! {
    /// Where the two halves of loads that no TLB translated came from (Revelator,
    /// figure 2); a line on its way counts as where it comes from.
    pub struct WalkedLoads {
        entries_cached_data_cached: "loads", "Loads whose walk, own or waited for, read page-table entries from caches only, and whose data a cache or an older store had";
        entries_cached_data_memory: "loads", "Loads whose walk read entries from caches only, and whose data DRAM had";
        entries_memory_data_cached: "loads", "Loads whose walk read an entry from DRAM, and whose data a cache or an older store had";
        entries_memory_data_memory: "loads", "Loads whose walk read an entry from DRAM, and whose data DRAM had";
    }
}

impl WalkedLoads {
    #[inline]
    fn count(&mut self, entries_from_memory: bool, data: Level) {
        *match (entries_from_memory, data == Level::Memory) {
            (false, false) => &mut self.entries_cached_data_cached,
            (false, true) => &mut self.entries_cached_data_memory,
            (true, false) => &mut self.entries_memory_data_cached,
            (true, true) => &mut self.entries_memory_data_memory,
        } += 1;
    }
}

/// How long loads take.
const LOAD_TO_USE: Definition = histogram!(
    "load_to_use",
    "cycles",
    "Time of a load, from when its address is known to when its data are there: translation, and the wait for the line or for an older store"
);

/// No line of instructions has been fetched.
const NO_LINE: u64 = u64::MAX;
/// Bytes of the longest instruction (Intel SDM vol. 2, 2.3.11): what an op's
/// instructions span at most.
const LONGEST: u64 = 15;
/// Ops that fit into a cache line of the host.
const OPS_OF_A_LINE: usize = 64 / size_of::<Op>();
/// Ops of the next turn that the host is told of at the end of one.
const ANNOUNCED_OPS: usize = 24;
/// Barriers of the front end that are told apart until the next retirement.
const BARRIERS: usize = 4;

/// How long something waited for its translation.
#[derive(Clone, Copy)]
struct TranslationWait {
    /// Until this cycle.
    known: Cycle,
    /// From this cycle on for a walk, before that for TLBs and a walker. `known`:
    /// for a TLB only.
    walk_start: Cycle,
}

impl TranslationWait {
    /// At `known` without any part of its own.
    fn at(known: Cycle) -> Self {
        TranslationWait {
            known,
            walk_start: known,
        }
    }

    fn of(t: &Translated) -> Self {
        TranslationWait {
            known: t.ready,
            walk_start: t.walk_start,
        }
    }
}

/// What an instruction waited for before it was done, in order of time; the
/// rest of the time it executed.
#[derive(Clone, Copy)]
struct Waits {
    /// Its inputs, until this slot.
    start: u64,
    /// The translation.
    translated: TranslationWait,
    /// The data, and from where.
    data: Done,
}

/// The front end was held up.
#[derive(Clone, Copy)]
struct Barrier {
    /// From this slot on; only told where there was a translation to wait for.
    from: u64,
    until: u64,
    cause: Cause,
    /// The translation that was the first part of it.
    translated: TranslationWait,
}

/// The caches of one core, its MMU and its window.
pub struct Core {
    /// Its MMU.
    pub mmu: Mmu,
    /// Its caches.
    pub private: Private,

    width: u64,
    /// ceil(2^63 / width): slots become cycles by a multiplication.
    reciprocal: u64,
    load_to_use: Cycle,
    fetch_to_use: Cycle,
    penalty: u64,
    /// Atomics order memory accesses alone.
    fences: bool,
    /// Slot before which no younger access to memory begins, because of an atomic.
    fenced: u64,
    core: u8,

    /// First slot in which the next instruction can be dispatched.
    next: u64,
    rob: Rob,
    stores: StoreQueue,
    /// Retirement slots of the last loads, by number.
    loads: Ring<u64>,
    load_queue: u64,
    load_count: u64,
    /// When each of the last ops was done, in slots, by number. A producer
    /// further back than this has retired.
    done: Ring<u64>,
    op_count: usize,

    /// Line of the last instruction fetched.
    line: u64,
    /// Line where fetch goes on after a taken branch.
    target: u64,
    predictor: Predictor,
    /// What it knows of wrong paths, if it follows them.
    wrong: Option<Box<WrongPath>>,

    stack: CycleStack,
    /// When the front end was held up, and by what, in ascending order; they count
    /// where they hold up retirement.
    barriers: [Barrier; BARRIERS],
    barrier_count: usize,
    /// The plain instructions of the op that faulted have run.
    resumes: bool,
    fault_at: Cycle,

    stats: CoreStats,
    /// Times of the loads that took another time than a hit of the first-level cache.
    long_loads: Histogram,
    walked_loads: WalkedLoads,
    /// Requests after which [`Core::run`] and [`Core::warm`] come back.
    most_requests: u64,
    /// Instructions that were warmed, not timed.
    warmed: u64,
    /// Requests that were.
    warmed_requests: u64,
    /// Slots that warming took.
    warm_slots: u64,
    /// Thousandths of a cycle that warming has not yet let pass.
    warm_rest: u64,
    /// What the host is told before ops are warmed.
    lookout: Box<Lookout>,
}

impl Core {
    /// A core that has done nothing yet; refuses what is impossible with a
    /// sentence that names the key.
    pub fn new(spec: &CoreSpec, mut mmu: Mmu, private: Private, core: u8) -> Result<Self, Error> {
        spec.check()?;
        let load_to_use = private.l1d_latency();
        let fetch_to_use = private.l1i_latency();
        mmu.run_beside(load_to_use);
        Ok(Core {
            mmu,
            private,
            width: u64::from(spec.width),
            reciprocal: (1u64 << 63).div_ceil(u64::from(spec.width)),
            load_to_use,
            fetch_to_use,
            penalty: spec.mispredict_penalty * u64::from(spec.width),
            fences: spec.atomics == Atomics::Fence,
            fenced: 0,
            core,
            next: 0,
            rob: Rob::new(spec.rob),
            stores: StoreQueue::new(spec.store_queue),
            loads: Ring::new(spec.load_queue as usize, 0),
            load_queue: u64::from(spec.load_queue),
            load_count: 0,
            // Micro-operations beyond the first of an instruction take no entry
            // of the reorder buffer: room for three more of them each.
            done: Ring::new(4 * spec.rob as usize, 0),
            op_count: 0,
            line: NO_LINE,
            target: NO_LINE,
            predictor: Predictor::new(spec),
            wrong: (spec.wrong_path.enabled).then(|| Box::new(WrongPath::new(&spec.wrong_path))),
            stack: CycleStack::default(),
            barriers: [Barrier {
                from: 0,
                until: 0,
                cause: Cause::Base,
                translated: TranslationWait::at(0),
            }; BARRIERS],
            barrier_count: 0,
            resumes: false,
            fault_at: 0,
            stats: CoreStats::default(),
            long_loads: Histogram::default(),
            walked_loads: WalkedLoads::default(),
            most_requests: u64::MAX,
            warmed: 0,
            warmed_requests: 0,
            warm_slots: 0,
            warm_rest: 0,
            lookout: Box::new(Lookout::new()),
        })
    }

    /// The cycle that `slot` lies in; exact below 2^63 / width.
    #[inline]
    fn cycle(&self, slot: u64) -> Cycle {
        ((u128::from(slot) * u128::from(self.reciprocal)) >> 63) as u64
    }

    /// Local time: when the youngest dispatched instruction was dispatched.
    pub fn now(&self) -> Cycle {
        self.cycle(self.next)
    }

    /// Instructions dispatched since the start, timed or warmed.
    pub fn instructions(&self) -> u64 {
        self.rob.count + self.warmed
    }

    /// Requests that ended since the start, timed or warmed.
    pub fn requests(&self) -> u64 {
        self.stats.requests + self.warmed_requests
    }

    /// From now on it comes back with [`Stop::Limit`] when [`Core::requests`] is `most`, too.
    pub fn stop_at_requests(&mut self, most: u64) {
        self.most_requests = most;
    }

    /// Runs `ops[at..]`, timed.
    ///
    /// It comes back when the local time has reached `until` (cycles) or
    /// [`Core::instructions`] `limit`, when there are no more ops, or with an op
    /// that faults; [`Ran::at`] is the op to go on with. Neither bound cuts an op
    /// in two: the last one may go beyond it. An op whose fault the kernel has
    /// served is handed in again, and goes on behind its plain instructions.
    pub fn run<B: Below>(
        &mut self,
        ops: &[Op],
        mut at: usize,
        until: Cycle,
        limit: u64,
        mut context: CoreContext<'_, B>,
    ) -> Ran {
        let context = &mut context;
        let until = until.saturating_mul(self.width);
        let limit = limit.saturating_sub(self.warmed);
        if let Some(w) = &mut self.wrong {
            w.begin(context.asid, at);
        }
        let stop = loop {
            if self.rob.count >= limit {
                break Stop::Limit;
            }
            let Some(op) = ops.get(at) else {
                break Stop::NeedBatch;
            };
            if self.next >= until {
                break Stop::Quantum;
            }
            if op.pc >> LINE_SHIFT != self.line
                && let Err(fault) = self.fetch_lines(op, context)
            {
                self.fault_at = fault.at;
                break Stop::Fault(fault);
            }
            let done = match op.kind {
                OpClass::Compute => Ok(self.compute(op)),
                OpClass::Branch => Ok(self.branch(ops, at, context)),
                OpClass::Load => self.load(op, context),
                OpClass::Store => self.store(op, context),
                OpClass::Query => break Stop::Query,
            };
            match done {
                Ok(slot) => {
                    self.done.set(self.op_count, slot);
                    self.op_count += 1;
                    at += 1;
                    if op.flags & flags::REQUEST != 0 {
                        self.stats.requests += 1;
                        if self.requests() >= self.most_requests {
                            break Stop::Limit;
                        }
                    }
                }
                Err(fault) => {
                    self.fault_at = fault.at;
                    break Stop::Fault(fault);
                }
            }
        };
        if let Some(w) = &mut self.wrong {
            w.end(ops, at);
        }
        if stop == Stop::Quantum {
            // Other cores' turns come between, after which the host would wait for them.
            let next = ops[at..].iter().take(ANNOUNCED_OPS);
            next.step_by(OPS_OF_A_LINE).for_each(prefetch);
        }
        Ran { at, stop }
    }

    /// When the last instruction so far retires (the end of a run).
    pub fn finish(&self) -> Cycle {
        self.rob.next.div_ceil(self.width)
    }

    /// What it counted.
    pub fn stats(&self) -> CoreStats {
        let mut s = self.stats;
        s.instructions = self.rob.count;
        s.ops = self.op_count as u64;
        s.loads = self.load_count;
        s.stores = self.stores.count;
        s.memory_operands = s.loads + s.stores;
        s.cycles = self.slots().total().div_ceil(self.width);
        s
    }

    /// Retirement slots by cause; their sum is the time that was not warmed.
    pub fn slots(&self) -> StackSlots {
        let slots = self.stack.slots(self.rob.count);
        debug_assert_eq!(slots.total() + self.warm_slots, self.rob.next);
        slots
    }

    /// The largest values that [`Core::report`] tells are those from now on.
    pub fn mark(&mut self) {
        self.long_loads.mark();
        self.mmu.mark();
    }

    /// Adds the core's counters at `path`, those of its MMU at `path.mmu`, and
    /// those of its caches below `path`.
    pub fn report(&self, path: &str, tree: &mut Tree) {
        tree.add(path, &self.stats());
        let mut loads = self.long_loads.distribution();
        loads.add(self.load_to_use, self.load_count - loads.count());
        tree.add_values(path, &LOAD_TO_USE, loads);
        let slots = self.slots();
        tree.add(&format!("{path}.walked_loads"), &self.walked_loads);
        tree.add(&format!("{path}.cycles"), &slots.cycles(self.width));
        tree.add(&format!("{path}.slots"), &slots);
        tree.add(&format!("{path}.predictor"), &self.predictor.stats);
        if let Some(w) = &self.wrong {
            tree.add(&format!("{path}.wrong_path"), &w.stats);
        }
        self.mmu.report(&format!("{path}.mmu"), tree);
        self.private.report(path, tree);
    }
}
