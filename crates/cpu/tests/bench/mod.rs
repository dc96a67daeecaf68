//! A core over a flat table and a memory of one latency.
#![allow(dead_code)]

#[path = "../../../mmu/tests/common/mod.rs"]
pub mod mocks;

pub use mocks::*;
use pagewalk_cpu::{
    Atomics, Core, CoreContext, CoreSpec, CoreStats, PortsSpec, PredictorSpec, Ran, Stop,
    WrongPathSpec,
};
use pagewalk_mmu::{Mmu, MmuSpec, TranslationSpec};
use pagewalk_stats::Tree;
use pagewalk_stream::{Op, OpClass, flags};
use pagewalk_tables::{PomTlbSpec, QueryResult, View};
use pagewalk_units::{Asid, Cycle, PhysAddr};

/// Latency of the memory.
pub const DRAM: Cycle = 200;

/// The core and its surroundings.
pub struct Bench {
    pub core: Core,
    pub memory: Memory,
    pub table: Flat,
}

/// A core of width 4 with a reorder buffer of 224.
pub fn spec() -> CoreSpec {
    CoreSpec {
        width: 4,
        rob: 224,
        load_queue: 72,
        store_queue: 56,
        mispredict_penalty: 15,
        forwarding_latency: None,
        ports: PortsSpec::default(),
        predictor: PredictorSpec::Tage {
            log_entries: 11,
            tables: 4,
            min_history: 8,
            max_history: 256,
        },
        return_stack: 32,
        indirect_entries: 1024,
        atomics: Atomics::Drain,
        wrong_path: WrongPathSpec::default(),
    }
}

/// An MMU that translates at no cost.
pub fn perfect() -> MmuSpec {
    MmuSpec {
        perfect: true,
        ..mmu()
    }
}

impl Bench {
    /// A core with this MMU, and `mshrs` in each cache.
    pub fn with(spec: &CoreSpec, mmu: &MmuSpec, mshrs: u32) -> Self {
        let mmu = Mmu::new(mmu, 0).expect("a possible MMU");
        Bench {
            core: Core::new(spec, mmu, caches(mshrs), 0).expect("a possible core"),
            memory: Memory::new(DRAM),
            table: Flat::new(1 << 40),
        }
    }
    /// The same with an in-memory TLB.
    pub fn with_in_memory_tlb(spec: &CoreSpec, mmu: &MmuSpec, tlb: PomTlbSpec) -> Self {
        let mut b = Self::with(spec, mmu, 256);
        let mut built = Mmu::new(mmu, 0).expect("a possible MMU");
        let translation = TranslationSpec {
            pom_tlb: Some(tlb),
            ..TranslationSpec::default()
        };
        let mut bases = [PhysAddr(1 << 45), PhysAddr(1 << 46)].into_iter();
        let sources = translation.build(1, mmu, |_, _| Ok(bases.next().expect("two tables")));
        for (place, source) in sources.expect("memory").cores.remove(0) {
            built.add_source(place, source);
        }
        b.core = Core::new(spec, built, caches(256), 0).expect("a possible core");
        b
    }
    /// The same with an STLT unit.
    pub fn with_stlt(spec: &CoreSpec, mmu: &MmuSpec) -> Self {
        let mut b = Self::with(spec, mmu, 256);
        let mmu = Mmu::new(mmu, 0).expect("a possible MMU").with_stlt(true);
        b.core = Core::new(spec, mmu, caches(256), 0).expect("a possible core");
        b
    }
    /// A core that translates at no cost.
    pub fn new(spec: &CoreSpec) -> Self {
        Self::with(spec, &perfect(), 256)
    }
    /// Calls `work` with the core and its context.
    fn with_context<R>(&mut self, work: impl FnOnce(&mut Core, CoreContext<'_, Memory>) -> R) -> R {
        let view = View::Native(&self.table);
        let context = CoreContext {
            asid: Asid(1),
            tiers: None,
            view: &view,
            below: &mut self.memory,
        };
        work(&mut self.core, context)
    }
    /// Runs `ops` from the one at `at` on, as [`Core::run`] does.
    pub fn run_until(&mut self, ops: &[Op], at: usize, until: Cycle, limit: u64) -> Ran {
        self.with_context(|core, context| core.run(ops, at, until, limit, context))
    }
    /// Runs all `ops` from an empty window. Returns their cycles.
    pub fn run(&mut self, ops: &[Op]) -> Cycle {
        let before = self.core.finish();
        self.core.idle(before);
        let ran = self.run_until(ops, 0, u64::MAX, u64::MAX);
        assert_eq!((ran.at, ran.stop), (ops.len(), Stop::NeedBatch));
        self.core.finish() - before
    }
    /// Warms with all `ops`.
    pub fn warm(&mut self, ops: &[Op]) -> Ran {
        self.with_context(|core, context| core.warm(ops, 0, u64::MAX, 1000, context))
    }
    /// Runs a query, timed.
    pub fn run_query(&mut self, op: &Op, result: Option<&QueryResult>) {
        self.with_context(|core, context| core.run_query(op, result, context));
    }
    /// Runs a query in functional warming.
    pub fn warm_query(&mut self, op: &Op, result: Option<&QueryResult>) {
        self.with_context(|core, context| core.warm_query(op, result, 1000, context));
    }
    /// The core's counters.
    pub fn stats(&self) -> CoreStats {
        self.core.stats()
    }
    /// The statistics that the core reports.
    pub fn tree(&self) -> Tree {
        let mut t = Tree::default();
        self.core.report("core.0", &mut t);
        t
    }
    /// One statistic of the core.
    pub fn get(&self, path: &str, name: &str) -> u64 {
        self.tree().get(path, name).expect("there")
    }
}

/// All code in one line, so that fetch costs one miss.
pub const PC: u64 = 0x40_0000;

pub fn compute(insns: u16, latency: u8) -> Op {
    Op {
        pc: PC,
        insns,
        latency,
        kind: OpClass::Compute,
        ..Op::default()
    }
}

pub fn load(va: u64) -> Op {
    Op {
        pc: PC,
        va,
        insns: 1,
        size: 8,
        kind: OpClass::Load,
        ..Op::default()
    }
}

pub fn store(va: u64) -> Op {
    Op {
        kind: OpClass::Store,
        ..load(va)
    }
}

pub fn branch(pc: u64, taken: bool) -> Op {
    Op {
        pc,
        va: PC,
        insns: 1,
        latency: 1,
        kind: OpClass::Branch,
        flags: flags::CONDITIONAL | if taken { flags::TAKEN } else { 0 },
        ..Op::default()
    }
}

/// The op takes its input from the one `distance` places before.
pub fn after(op: Op, distance: u16) -> Op {
    Op {
        dep: [distance, 0],
        ..op
    }
}
