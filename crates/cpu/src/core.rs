//! One core: the out-of-order window, the MMU and the private caches.

mod access;
mod ahead;
mod execute;
mod fetch;
mod flush;
mod pause;
mod prefetch;
mod shortcut_query;
mod warm;
mod window;
mod wrong;

use pagewalk_memory::{Below, Level, Private, Report};
use pagewalk_mmu::{Fault, Mmu, WalkContext};
use pagewalk_stats::{Definition, Histogram, Tree, histogram};
use pagewalk_stream::{Op, OpClass, flags};
use pagewalk_structures::{Ring, Tiers, prefetch};
use pagewalk_tables::View;
use pagewalk_units::{Asid, Cycle, Error, LINE_SHIFT};

use self::ahead::Lookahead;
pub use self::warm::TOGETHER;
use crate::cycle_stack::{Cause, CycleStack, StackSlots, TranslationWait};
use crate::misses::Misses;
use crate::ports::Ports;
use crate::predictor::Predictor;
use crate::rob::Rob;
use crate::store_queue::StoreQueue;
use crate::time::Time;
use crate::wrong_path::WrongPath;
use crate::{Atomics, CoreSpec};

/// The parts of the machine outside the core that a program uses, borrowed for the length of a
/// call.
pub struct CoreContext<'a, B> {
    /// Address space of the program.
    pub asid: Asid,
    /// Page tables of the address space.
    pub view: &'a View<'a>,
    /// The hashes by which the kernel places frames, if it does. Speculation engines use them.
    pub tiers: Option<&'a Tiers>,
    /// The memory system that the cores share.
    pub below: &'a mut B,
}

impl<B> CoreContext<'_, B> {
    /// The context for the core's MMU, with the core's own caches.
    #[inline(always)]
    fn walk_context<'b>(&'b mut self, private: &'b mut Private) -> WalkContext<'b, B> {
        WalkContext {
            view: self.view,
            tiers: self.tiers,
            private,
            below: &mut *self.below,
        }
    }
}

/// Reason why a run of the core ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The local time has reached `until`.
    Quantum,
    /// All ops are consumed.
    NeedBatch,
    /// The instruction limit is reached (exactly, up to the op's own count).
    Limit,
    /// The op at the returned position faults. Run it again after the kernel has served the fault.
    /// The simple instructions before it in the op have already run.
    Fault(Fault),
    /// The op at the returned position is a query of the machine's shortcut. [`Core::run_query`] or
    /// [`Core::warm_query`] executes it with the result.
    Query,
}

/// Result of [`Core::run`] and [`Core::warm`].
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// Position of the next op to run.
    pub at: usize,
    /// Reason why the run ended.
    pub stop: Stop,
}

pagewalk_stats::counters! {
    /// Counters of one core in timed execution; functional warming is not counted.
    pub struct CoreStats {
        instructions: "instructions", "Instructions retired";
        cycles: "cycles", "Cycles from the first dispatch to the last retirement, without warm-up";
        ops: "operations", "Operations of the program's stream";
        requests: "requests", "Requests of the program that ended, if its operations mark them";
        loads: "loads", "Loads";
        stores: "stores", "Stores";
        memory_operands: "operands", "Loads and stores";
        branches: "branches", "Branches of every kind";
        mispredictions: "branches", "Branches that the front end mispredicted";
        forwarded_loads: "loads", "Loads that an older store in the store queue forwarded its data to";
        split_accesses: "operands", "Loads and stores that touched two lines";
        fetched_lines: "lines", "Lines requested by instruction fetch";
        load_translation_cycles: "cycles", "Sum of the times that loads waited for their translations: the part of load_to_use before the line is requested";
    }
}

pagewalk_stats::counters! {
    /// Outcomes of software prefetches in timed execution.
    pub struct PrefetchStats {
        instructions: "prefetches", "Software prefetches executed";
        requested: "prefetches", "Software prefetches that requested their line";
        present: "prefetches", "Software prefetches whose line was in a private cache, or on its way there";
        dropped_faults: "prefetches", "Software prefetches that were dropped because their page was not mapped";
        dropped_mshrs: "prefetches", "Software prefetches that were dropped because no miss register was free";
        dropped_unknown: "prefetches", "Software prefetches that did nothing, because the emulator did not reveal their address";
    }
}

pagewalk_stats::counters! {
    /// Flushes of cache lines in timed execution.
    pub struct FlushStats {
        instructions: "flushes", "Flushes of lines executed: clflush, clflushopt and clwb";
        present: "flushes", "Flushes whose line was in a private cache of the core, or on its way there";
        dropped_faults: "flushes", "Flushes that did nothing, because their page was not mapped";
        dropped_unknown: "flushes", "Flushes that did nothing, because the emulator did not reveal their address";
    }
}

pagewalk_stats::counters! {
    /// Sources of page-table entries and of data, for loads that missed all TLBs (Revelator, figure
    /// 2). A line on its way counts by its source.
    pub struct WalkedLoads {
        entries_cached_data_cached: "loads", "Loads that missed all TLBs, whose walk (own or merged with) read page-table entries from caches only, and whose data came from a cache or an older store";
        entries_cached_data_memory: "loads", "Loads that missed all TLBs, whose walk read page-table entries from caches only, and whose data came from DRAM";
        entries_memory_data_cached: "loads", "Loads that missed all TLBs, whose walk read an entry from DRAM, and whose data came from a cache or an older store";
        entries_memory_data_memory: "loads", "Loads that missed all TLBs, whose walk read an entry from DRAM, and whose data came from DRAM";
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

/// Distribution of load-to-use latencies.
const LOAD_TO_USE: Definition = histogram!(
    "load_to_use",
    "cycles",
    "Load-to-use latency: time from a load's known address to its data, which is translation and the access to the line or to an older store"
);

/// Line number that means no line.
const NO_LINE: u64 = u64::MAX;
/// Bytes of the longest instruction (Intel SDM vol. 2, 2.3.11).
const LONGEST: u64 = 15;
/// Ops that fit into a cache line of the host.
const OPS_OF_A_LINE: usize = 64 / size_of::<Op>();
/// Ops to prefetch into the host's caches when [`Core::run`] ends at `until`.
const HOST_PREFETCHED_OPS: usize = 24;
/// Most stalls of the front end that are tracked until retirement reaches them.
const BARRIERS: usize = 4;

/// Waits of an instruction before it was done, in slots of the ideal clock and in order of time. It
/// executed in the remaining time.
#[derive(Clone, Copy)]
struct Waits {
    /// End of the wait for its inputs.
    start: u64,
    /// End of the wait for an MSHR.
    admitted: u64,
    /// End of the wait for its bank and the bus of the DRAM.
    queued: u64,
    /// Arrival of the data.
    data: u64,
    /// Level that served them.
    level: Level,
}

impl Waits {
    /// The wait of an instruction that starts at `start` for data of `level`, which arrive at `data`.
    #[inline(always)]
    fn until(data: Time, start: Time, level: Level) -> Self {
        Waits {
            start: start.ideal,
            admitted: start.ideal,
            queued: start.ideal,
            data: data.ideal,
            level,
        }
    }
}

/// A stall of the front end, in slots of the ideal clock.
#[derive(Clone, Copy)]
struct Barrier {
    until: u64,
    cause: Cause,
}

/// One core: window, MMU and private caches.
pub struct Core {
    /// The core's MMU.
    pub mmu: Mmu,
    /// The core's private caches.
    pub private: Private,

    width: u64,
    /// ceil(2^63 / width): converts slots to cycles by a multiplication.
    reciprocal: u64,
    load_to_use: Cycle,
    /// Latency of data that the store queue forwards.
    forwarding: Cycle,
    fetch_to_use: Cycle,
    penalty: u64,
    /// True if atomics only order memory accesses, and do not drain the window.
    fences: bool,
    /// Slot before which no younger memory access begins, because of an atomic.
    fenced: Time,
    core: u8,
    /// Execution ports, unless there is any number.
    ports: Option<Box<Ports>>,

    /// First slot in which the next instruction can be dispatched.
    next: Time,
    rob: Rob,
    stores: StoreQueue,
    /// Retirement slots of the latest loads, by number.
    loads: Ring<Time>,
    load_queue: u64,
    load_count: u64,
    /// Latest misses of loads.
    misses: Misses,
    /// Completion slot of each of the latest ops, by number. Older producers have retired.
    done: Ring<Time>,
    op_count: usize,

    /// Line of the latest fetched instruction.
    line: u64,
    /// Line of the target of a taken branch, at which fetch continues.
    target: u64,
    predictor: Predictor,
    /// State for wrong paths, while the core simulates them.
    wrong: Option<Box<WrongPath>>,
    /// Decides about wrong paths, if mispredictions do.
    automatic: Option<Box<wrong::Automatic>>,

    stack: CycleStack,
    /// The latest wait for a translation that delayed retirement.
    waited: TranslationWait,
    /// Slots by which the charges to translation exceed its cost: see [`Core::charge_translation`].
    overcharged: u64,
    /// Stalls of the front end, in ascending order. Only the slots by which they delay retirement
    /// are charged.
    barriers: [Barrier; BARRIERS],
    barrier_count: usize,
    /// True if the simple instructions of the faulting op have already run.
    resumes: bool,
    fault_at: Cycle,

    stats: CoreStats,
    /// Load-to-use latencies other than that of a plain first-level hit.
    long_loads: Histogram,
    walked_loads: WalkedLoads,
    prefetches: PrefetchStats,
    reports_prefetches: bool,
    flushes: FlushStats,
    reports_flushes: bool,
    /// Cycle at which all flushes so far are done.
    flushed: Time,
    /// Number of requests at which [`Core::run`] and [`Core::warm`] end.
    most_requests: u64,
    /// Instructions executed in functional warming.
    warmed: u64,
    /// Requests that ended in functional warming.
    warmed_requests: u64,
    /// Slots by which functional warming advanced the clock.
    warm_slots: u64,
    /// Remainder of that advance, in thousandths of a cycle.
    warm_rest: u64,
    /// Lookahead for prefetches into the host's caches before ops are warmed.
    lookahead: Box<Lookahead>,
}

impl Core {
    /// Creates a core that has executed nothing.
    ///
    /// # Errors
    /// An impossible configuration. The message names the key.
    pub fn new(spec: &CoreSpec, mut mmu: Mmu, private: Private, core: u8) -> Result<Self, Error> {
        spec.check()?;
        let load_to_use = private.load_latency();
        let fetch_to_use = private.fetch_latency();
        let mshrs = private.load_mshrs();
        mmu.overlap_with_l1(load_to_use);
        Ok(Core {
            mmu,
            private,
            width: u64::from(spec.width),
            reciprocal: (1u64 << 63).div_ceil(u64::from(spec.width)),
            load_to_use,
            forwarding: spec.forwarding_latency.unwrap_or(load_to_use),
            fetch_to_use,
            penalty: spec.mispredict_penalty * u64::from(spec.width),
            fences: spec.atomics == Atomics::Fence,
            fenced: Time::default(),
            core,
            ports: Ports::new(&spec.ports, u64::from(spec.width)),
            next: Time::default(),
            rob: Rob::new(spec.rob),
            stores: StoreQueue::new(spec.store_queue),
            loads: Ring::new(spec.load_queue as usize, Time::default()),
            load_queue: u64::from(spec.load_queue),
            load_count: 0,
            misses: Misses::new(mshrs),
            // Only the first micro-operation of an instruction takes an entry of the reorder
            // buffer. There is room for three more for each.
            done: Ring::new(4 * spec.rob as usize, Time::default()),
            op_count: 0,
            line: NO_LINE,
            target: NO_LINE,
            predictor: Predictor::new(spec),
            wrong: (spec.wrong_path.enabled == Some(true))
                .then(|| Box::new(WrongPath::new(&spec.wrong_path))),
            automatic: None,
            stack: CycleStack::default(),
            waited: TranslationWait::default(),
            overcharged: 0,
            barriers: [Barrier {
                until: 0,
                cause: Cause::Base,
            }; BARRIERS],
            barrier_count: 0,
            resumes: false,
            fault_at: 0,
            stats: CoreStats::default(),
            long_loads: Histogram::default(),
            walked_loads: WalkedLoads::default(),
            prefetches: PrefetchStats::default(),
            reports_prefetches: false,
            flushes: FlushStats::default(),
            reports_flushes: false,
            flushed: Time::default(),
            most_requests: u64::MAX,
            warmed: 0,
            warmed_requests: 0,
            warm_slots: 0,
            warm_rest: 0,
            lookahead: Box::new(Lookahead::new()),
        })
    }

    /// Reports software prefetches and their accesses to the private caches, too.
    #[must_use]
    pub fn with_software_prefetches(mut self) -> Self {
        self.private = self.private.with_software_prefetches();
        self.reports_prefetches = true;
        self
    }

    /// Reports flushes and non-temporal stores, too.
    #[must_use]
    pub fn with_flushes(mut self) -> Self {
        self.reports_flushes = true;
        self
    }

    /// Cycle that contains `slot`; exact below 2^63 / width.
    #[inline]
    fn cycle(&self, slot: u64) -> Cycle {
        ((u128::from(slot) * u128::from(self.reciprocal)) >> 63) as u64
    }

    /// Cycles that contain `slot`.
    #[inline]
    fn cycles(&self, slot: Time) -> Time {
        Time {
            real: self.cycle(slot.real),
            ideal: self.cycle(slot.ideal),
        }
    }

    /// Local time: dispatch cycle of the youngest instruction.
    pub fn now(&self) -> Cycle {
        self.cycle(self.next.real)
    }

    /// Instructions executed since the start, timed or in functional warming.
    pub fn instructions(&self) -> u64 {
        self.rob.count + self.warmed
    }

    /// Requests that ended since the start, timed or in functional warming.
    pub fn requests(&self) -> u64 {
        self.stats.requests + self.warmed_requests
    }

    /// Ends runs with [`Stop::Limit`] also when [`Core::requests`] reaches `most`.
    pub fn stop_at_requests(&mut self, most: u64) {
        self.most_requests = most;
    }

    /// Runs `ops[at..]`, timed.
    ///
    /// The run ends when the local time reaches `until` (cycles), when [`Core::instructions`]
    /// reaches `limit`, when there are no more ops, or at an op that faults. [`Ran::at`] is the
    /// next op to run. No bound splits an op, so the last op may exceed it. Run a faulting op again
    /// after the kernel has served the fault: it continues after its simple instructions.
    pub fn run<B: Below>(
        &mut self,
        ops: &[Op],
        mut at: usize,
        until: Cycle,
        limit: u64,
        mut context: CoreContext<'_, B>,
    ) -> Ran {
        let context = &mut context;
        self.private.set_instructions(self.instructions());
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
            if self.next.real >= until {
                break Stop::Quantum;
            }
            if op.pc >> LINE_SHIFT != self.line
                && let Err(fault) = self.fetch_lines(op, context)
            {
                self.fault_at = fault.at;
                break Stop::Fault(fault);
            }
            // Each class is a function of its own, so that its values fit into the host's registers.
            let ran = match op.kind {
                OpClass::Compute => {
                    self.compute(op, context.below);
                    Ok(())
                }
                OpClass::Branch => {
                    self.branch(ops, at, context);
                    Ok(())
                }
                OpClass::Load => self.load(op, context),
                OpClass::Store => self.store(op, context),
                OpClass::Prefetch => {
                    self.prefetch(op, context);
                    Ok(())
                }
                OpClass::Flush => {
                    self.flush(op, context);
                    Ok(())
                }
                OpClass::Query => break Stop::Query,
            };
            if let Err(fault) = ran {
                self.fault_at = fault.at;
                break Stop::Fault(fault);
            }
            at += 1;
            if op.flags & flags::REQUEST != 0 {
                self.stats.requests += 1;
                if self.requests() >= self.most_requests {
                    break Stop::Limit;
                }
            }
        };
        if let Some(w) = &mut self.wrong {
            w.end(ops, at);
        }
        if stop == Stop::Quantum {
            // Other cores run before the next call, and evict these ops from the host's caches.
            let next = ops[at..].iter().take(HOST_PREFETCHED_OPS);
            next.step_by(OPS_OF_A_LINE).for_each(prefetch);
        }
        Ran { at, stop }
    }

    /// Cycle at which the latest instruction retires: the end of a run.
    pub fn finish(&self) -> Cycle {
        self.rob.next.real.div_ceil(self.width)
    }

    /// The core's counters.
    pub fn stats(&self) -> CoreStats {
        let mut s = self.stats;
        s.instructions = self.rob.count;
        s.ops = self.op_count as u64;
        s.loads = self.load_count - self.prefetches.instructions;
        s.stores = self.stores.count - self.flushes.instructions;
        s.memory_operands = s.loads + s.stores;
        s.cycles = self.slots().total().div_ceil(self.width);
        s
    }

    /// Retirement slots by cause. Their sum is the time outside functional warming.
    pub fn slots(&self) -> StackSlots {
        let slots = self.stack.slots(self.rob.count);
        debug_assert_eq!(slots.total() + self.warm_slots, self.rob.next.real);
        slots
    }

    /// Restarts the maxima that [`Core::report`] reports.
    pub fn mark(&mut self) {
        self.long_loads.mark();
        self.mmu.mark();
    }

    /// Adds the core's counters at `path`, those of its MMU at `path.mmu`, and
    /// those of its caches below `path`.
    pub fn report(&self, path: &str, tree: &mut Tree) {
        tree.add(path, &self.stats());
        let mut loads = self.long_loads.distribution();
        loads.add(self.load_to_use, self.stats().loads - loads.count());
        tree.add_values(path, &LOAD_TO_USE, loads);
        let slots = self.slots();
        tree.add(&format!("{path}.walked_loads"), &self.walked_loads);
        tree.add(&format!("{path}.cycles"), &slots.cycles(self.width));
        tree.add(&format!("{path}.slots"), &slots);
        tree.add(&format!("{path}.predictor"), &self.predictor.stats);
        if let Some(stats) = self.wrong_path_stats() {
            tree.add(&format!("{path}.wrong_path"), &stats);
        }
        if self.reports_prefetches {
            tree.add(&format!("{path}.software_prefetch"), &self.prefetches);
        }
        if self.reports_flushes {
            tree.add(&format!("{path}.flush"), &self.flushes);
            let combined = self.private.write_combining();
            tree.add(&format!("{path}.write_combining"), &combined);
        }
        self.mmu.report(&format!("{path}.mmu"), tree);
        self.private.report(path, tree);
    }
}
