//! What is asked of a level of the memory system, and what it answers.

use pagewalk_stats::Tree;
use pagewalk_units::{Cycle, PhysAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who asks, which decides where a request enters and what it may disturb.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum RequestKind {
    /// Data read of the program.
    Load,
    /// Data write of the program: the line is wanted for itself.
    Store,
    /// Instruction fetch.
    Fetch,
    /// A page walker's read.
    Walk,
    /// A hardware prefetcher's guess.
    Prefetch,
    /// A speculation engine's guess, into the L2.
    Speculative,
}

/// A request for one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Any address in the line.
    pub at: PhysAddr,
    /// Who asks.
    pub kind: RequestKind,
    /// For which core.
    pub core: u8,
    /// Instruction that asks, for prefetchers; 0 if none does.
    pub pc: u64,
}

/// Where a request was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// First-level cache.
    L1 = 1,
    /// Second-level cache.
    L2 = 2,
    /// Shared cache.
    L3 = 3,
    /// Another core's private cache.
    Remote = 4,
    /// DRAM.
    Memory = 5,
}

/// The answer: when the data is at the core (load-to-use), and from where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Cycle.
    pub at: Cycle,
    /// Where the line was found; for a line on its way, where it comes from.
    pub level: Level,
    /// Cycles of the time until then that it waited for miss registers; no more
    /// than fit are told. Of a line that another request brings, 0.
    pub held: u16,
    /// Cycles of it that it waited for its bank and the bus of the DRAM, likewise.
    pub queued: u32,
}

impl Done {
    /// From `level` at `at`, without having waited for a place on the way.
    #[inline(always)]
    pub fn new(at: Cycle, level: Level) -> Self {
        Done {
            at,
            level,
            held: 0,
            queued: 0,
        }
    }
}

/// What lies below the private caches; lent for the length of a call.
pub trait Below {
    /// A private miss (or a store's wish for ownership) at `now`, the time at
    /// which the core asked; `at` of the answer is load-to-use from `now`.
    fn access(&mut self, request: Request, now: Cycle) -> Done;
    /// A dirty line comes back from a private cache.
    fn write_back(&mut self, at: PhysAddr, core: u8, now: Cycle);
    /// A private cache has dropped a clean line (the directory forgets the sharer).
    fn dropped(&mut self, at: PhysAddr, core: u8);
    /// Cycles that a DRAM read of this line would wait for the bus and be on it if it were
    /// asked for now, whatever its bank does; 0 where the memory has no bus.
    fn delay(&self, at: PhysAddr, now: Cycle) -> Cycle;
    /// The same as `access` for its state (tags, directory, open rows), without time.
    fn warm(&mut self, request: Request);
    /// The same as `write_back` for its state, without time.
    fn warm_write_back(&mut self, at: PhysAddr, core: u8);
    /// Tells the host, not the simulated machine, that this line will probably
    /// be asked for: where it is kept can be fetched meanwhile.
    fn host_prefetch(&self, _at: PhysAddr) {}
    /// The same once that has been fetched, of what it led to: the line itself, or the one
    /// that it will push out.
    fn host_prefetch_place(&self, _at: PhysAddr) {}
    /// The same of a line that will probably be dropped, or written back if it is `_dirty`.
    fn host_prefetch_drop(&self, _at: PhysAddr, _dirty: bool) {}
    /// Whether several cores may hold a line, so that a store needs leave to
    /// write and a dropped line is to be told.
    fn coherent(&self) -> bool {
        false
    }
    /// Whether what warms it is done later, before anything else is asked of it: to announce
    /// that is of no use.
    fn warms_later(&self) -> bool {
        false
    }
}

/// Replacement policy of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Replacement {
    /// Least recently used.
    Lru,
    /// Static re-reference interval prediction, 2 bits, with hit priority: a line that is used
    /// is predicted to be used soon (Jaleel et al., ISCA 2010, section 4.1).
    Srrip,
    /// The same with frequency priority: each use brings the prediction one step nearer.
    SrripFp,
}

/// A hardware prefetcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PrefetcherSpec {
    /// Stride by instruction: a table tagged by the program counter.
    IpStride {
        /// Entries of the table, least recently used replaced.
        entries: u32,
        /// Lines fetched at a time.
        degree: u32,
        /// Strides ahead of the access, at most.
        lookahead: u32,
    },
    /// Streams by 4 KB page and direction.
    Streamer {
        /// Pages tracked.
        pages: u32,
        /// Lines fetched at a time.
        degree: u32,
        /// Lines ahead of the access, at most.
        lookahead: u32,
    },
    /// The variable length delta prefetcher (Shevgoor et al., MICRO 2015): which distances
    /// followed which from one access of a page to the next, the longest history first.
    Vldp {
        /// Pages tracked, least recently used replaced (delta history buffer).
        pages: u32,
        /// Delta prediction tables, 1 to 4: the first goes by the last delta, each further one
        /// by one delta more.
        tables: u32,
        /// Entries of each of them, the oldest replaced.
        entries: u32,
        /// Lines fetched at a time: predictions are taken for what comes next.
        degree: u32,
    },
    /// Sniper's simple prefetcher: strides by flow, an access going on with the nearest flow.
    Simple {
        /// Flows tracked, replaced in turn.
        flows: u32,
        /// Strides fetched at a time. Sniper's `num_prefetches` counts the access, too, and is
        /// one more.
        degree: u32,
        /// Nothing beyond the 4 KB page is fetched (Sniper's `stop_at_page_boundary`).
        within_page: bool,
    },
}

/// One cache.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheSpec {
    /// Capacity, KB. L3: of all cores together.
    pub size_kb: u32,
    /// Associativity.
    pub ways: u32,
    /// Cycles from the core's request to its data when this level has the line.
    pub latency: Cycle,
    /// Lines that can be on their way into this cache at once.
    pub mshrs: u32,
    /// Which line goes.
    pub replacement: Replacement,
    /// What is fetched unasked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefetcher: Option<PrefetcherSpec>,
}

/// Where the page walker's reads enter the caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Enter {
    /// At the first-level data cache.
    L1d,
    /// At the second-level cache.
    L2,
    /// At the shared cache: page tables' lines are in no private cache.
    L3,
}

/// The caches of one core.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrivateSpec {
    /// First-level cache of instructions.
    pub l1i: CacheSpec,
    /// First-level cache of data.
    pub l1d: CacheSpec,
    /// Second-level cache of both.
    pub l2: CacheSpec,
    /// Where walks enter.
    pub walks_enter: Enter,
}

/// DRAM as its table gives it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DramSpec {
    /// A latency and nothing else.
    Fixed {
        /// Nanoseconds from the last cache's miss to the data at the core.
        latency_ns: f64,
    },
    /// Channels, ranks, banks with row buffers, and a data bus.
    Ddr {
        /// Mega-transfers a second, e.g. 2400 for DDR4-2400.
        data_rate_mts: u32,
        /// Bytes that a channel moves in one transfer; a divisor of 64. Default 8
        /// (DDR3 and DDR4: 64 data lines; a DDR5 subchannel has 32).
        #[serde(default = "ddr_bus_bytes")]
        bus_bytes: u32,
        /// Channels, lines interleaved among them.
        channels: u32,
        /// Ranks a channel.
        ranks: u32,
        /// Bank groups a rank.
        bank_groups: u32,
        /// Banks a bank group.
        banks: u32,
        /// Bytes of a row over the whole rank.
        row_bytes: u32,
        /// Column access, ns.
        tcl_ns: f64,
        /// Row to column, ns.
        trcd_ns: f64,
        /// Precharge, ns.
        trp_ns: f64,
        /// Activate to precharge, ns.
        tras_ns: f64,
        /// Controller and wires, both ways together, ns.
        controller_ns: f64,
        /// An idle row is closed after this long, ns; 0 = stays open.
        keep_open_ns: f64,
    },
}

fn ddr_bus_bytes() -> u32 {
    8
}

/// What the cores share.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SharedSpec {
    /// Last-level cache.
    pub l3: CacheSpec,
    /// Cycles from a request to the data when another core's private cache has it dirty.
    pub remote_latency: Cycle,
    /// Main memory.
    pub dram: DramSpec,
}

/// Anything that hangs counters into the tree.
pub trait Report {
    /// Adds all counters below `path`.
    fn report(&self, path: &str, tree: &mut Tree);
}
