//! Requests to a level of the memory system, its results, and its configuration.

use pagewalk_stats::Tree;
use pagewalk_units::{Cycle, PhysAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind of a request: decides where it enters and what it may disturb.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum RequestKind {
    /// Data read of the program.
    Load,
    /// Data write of the program: the core must own the line.
    Store,
    /// Instruction fetch.
    Fetch,
    /// A page walker's read.
    Walk,
    /// A hardware prefetcher's guess.
    Prefetch,
    /// A speculation engine's guess, into the L2.
    Speculative,
    /// A prefetch instruction of the program.
    SoftwarePrefetch,
}

/// A request for one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Any address in the line.
    pub at: PhysAddr,
    /// Kind of the request.
    pub kind: RequestKind,
    /// The requesting core.
    pub core: u8,
    /// Program counter of the requesting instruction, for prefetchers; 0 if there is none.
    pub pc: u64,
}

/// A flush of a line, as the levels below the private caches see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flush {
    /// The core that flushes. Its private caches have done so.
    pub core: u8,
    /// Caches keep the line, clean.
    pub keeps: bool,
    /// A private cache of the core had the line dirty.
    pub dirty: bool,
}

/// Where a request was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// Data cache in front of the first level.
    L0 = 0,
    /// First-level cache.
    L1 = 1,
    /// Second-level cache.
    L2 = 2,
    /// Third-level cache.
    L3 = 3,
    /// Fourth-level cache.
    L4 = 4,
    /// Another core's private cache.
    Remote = 5,
    /// DRAM.
    Memory = 6,
}

impl Level {
    /// The name of the level's data cache in configuration and statistics.
    pub fn name(self) -> &'static str {
        match self {
            Level::L0 => "l0d",
            Level::L1 => "l1d",
            Level::L2 => "l2",
            Level::L3 => "l3",
            Level::L4 => "l4",
            Level::Remote => "remote",
            Level::Memory => "memory",
        }
    }
}

/// Result of a request: when the data is at the core (load-to-use), and where it came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Cycle at which the data is at the core.
    pub at: Cycle,
    /// Level that had the line; for a line on its way, its source.
    pub level: Level,
    /// True if it took an MSHR; false if it hit or merged with another request.
    pub missed: bool,
    /// Cycles that it waited for MSHRs, saturating. 0 if it merged with another request.
    pub held: u16,
    /// Cycles that it waited for its bank and the bus of the DRAM, saturating.
    pub queued: u32,
}

impl Done {
    /// Served by `level` at `at`, without any wait for a resource.
    #[inline(always)]
    pub fn new(at: Cycle, level: Level) -> Self {
        Done {
            at,
            level,
            missed: false,
            held: 0,
            queued: 0,
        }
    }
}

/// The memory system below the private caches, borrowed for the length of a call.
pub trait Below {
    /// Serves a miss of the private caches, or a store's request for ownership. `now` is the time
    /// of the core's request, and the result's `at` is load-to-use from then.
    fn access(&mut self, request: Request, now: Cycle) -> Done;
    /// Writes a dirty line back from a private cache.
    fn write_back(&mut self, at: PhysAddr, core: u8, now: Cycle);
    /// A private cache has dropped a clean line, so the directory removes the core as a sharer.
    fn dropped(&mut self, at: PhysAddr, core: u8);
    /// Cycles that a DRAM read of this line at `now` would wait for the bus and occupy it. The
    /// state of the bank is ignored. 0 if the memory has no bus.
    fn delay(&self, at: PhysAddr, now: Cycle) -> Cycle;
    /// Functional warming by `access`: updates tags, directory and open rows, without time.
    fn warm(&mut self, request: Request);
    /// Functional warming by `write_back`.
    fn warm_write_back(&mut self, at: PhysAddr, core: u8);
    /// Removes the line from the shared cache and from the other cores' caches, or cleans it there
    /// (`keeps`). It is written to memory if any of them has it dirty, or if `dirty`: the private
    /// caches of `core` had. Returns when that is done.
    fn flush(&mut self, _at: PhysAddr, _flush: Flush, now: Cycle) -> Cycle {
        now
    }
    /// Writes the line past the caches to memory, in `parts` transactions. Returns when that is
    /// done.
    fn write_memory(&mut self, _at: PhysAddr, _core: u8, _parts: u32, now: Cycle) -> Cycle {
        now
    }
    /// Functional warming by `flush`.
    fn warm_flush(&mut self, _at: PhysAddr, _flush: Flush) {}
    /// Functional warming by `write_memory`.
    fn warm_write_memory(&mut self, _at: PhysAddr, _core: u8) {}
    /// Prefetches into the host's caches the set of this line, which will probably be requested.
    /// Has no simulated effect.
    fn host_prefetch(&self, _at: PhysAddr) {}
    /// The step after [`Below::host_prefetch`]: prefetches the way of the line, or of the line that
    /// it will evict.
    fn host_prefetch_place(&self, _at: PhysAddr) {}
    /// As [`Below::host_prefetch`], for a line that will probably be dropped, or written back if it
    /// is `_dirty`.
    fn host_prefetch_drop(&self, _at: PhysAddr, _dirty: bool) {}
    /// True if several cores may hold a line. A store then needs ownership, and dropped lines must
    /// be reported.
    fn coherent(&self) -> bool {
        false
    }
    /// True if warming requests are deferred, at most until the next request of another kind. Host
    /// prefetches for them are then useless.
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
    /// Static re-reference interval prediction, 2 bits, with hit priority: a used line is predicted
    /// to be used again soon (Jaleel et al., ISCA 2010, section 4.1).
    Srrip,
    /// SRRIP with frequency priority: each use brings the prediction one step nearer.
    SrripFp,
}

/// A hardware prefetcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PrefetcherSpec {
    /// Stride by instruction: a table tagged by the program counter.
    IpStride {
        /// Entries of the table, LRU replacement.
        entries: u32,
        /// Lines to prefetch at a time.
        degree: u32,
        /// Most strides ahead of the access.
        lookahead: u32,
    },
    /// Streams by 4 KB page and direction.
    Streamer {
        /// Pages tracked.
        pages: u32,
        /// Lines to prefetch at a time.
        degree: u32,
        /// Most lines ahead of the access.
        lookahead: u32,
    },
    /// The variable length delta prefetcher (Shevgoor et al., MICRO 2015): predicts the next delta
    /// between accesses of a page from the previous deltas, the longest known history first.
    Vldp {
        /// Pages tracked, LRU replacement (delta history buffer).
        pages: u32,
        /// Delta prediction tables, 1 to 4: the first is indexed by the last delta, each further
        /// one by one delta more.
        tables: u32,
        /// Entries of each table, first-in first-out replacement.
        entries: u32,
        /// Lines to prefetch at a time: each prediction is the basis of the next.
        degree: u32,
    },
    /// Sniper's simple prefetcher: strides by flow. An access continues the nearest flow.
    Simple {
        /// Flows tracked, replaced round-robin.
        flows: u32,
        /// Strides to prefetch at a time. Sniper's `num_prefetches` also counts the access and is
        /// one more.
        degree: u32,
        /// Do not prefetch beyond the 4 KB page (Sniper's `stop_at_page_boundary`).
        within_page: bool,
    },
}

/// One cache.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheSpec {
    /// Capacity, KB. A shared cache: total for all cores.
    pub size_kb: u32,
    /// Associativity.
    pub ways: u32,
    /// Cycles from the core's request to its data when this level has the line.
    pub latency: Cycle,
    /// Miss registers: lines that can be on their way into this cache at once.
    pub mshrs: u32,
    /// Replacement policy.
    pub replacement: Replacement,
    /// Hardware prefetcher; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefetcher: Option<PrefetcherSpec>,
    /// Address bits that choose the set. Default: `modulo`.
    #[serde(default, skip_serializing_if = "SetIndex::is_default")]
    pub index: SetIndex,
}

/// Address bits that choose the set of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SetIndex {
    /// The line's number modulo the sets.
    #[default]
    Modulo,
    /// All bits: those above the index are folded into it by XOR, except into its lowest three
    /// bits. Intel's processors choose the slice of the L3 so (Maurice et al., RAID 2015; McCalpin,
    /// TACC TR-2021-03). For the L2 of AMD's Zen 4 it was measured.
    Xor,
}

impl SetIndex {
    fn is_default(&self) -> bool {
        *self == SetIndex::default()
    }
}

/// Where the page walker's reads enter the caches: at a private level or at the first shared one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Enter {
    /// At the data cache in front of the L1D.
    L0d,
    /// At the first-level data cache.
    L1d,
    /// At the second-level cache.
    L2,
    /// At the third-level cache. If that is shared, private caches hold no lines of page tables.
    L3,
    /// At the fourth-level cache, behind a private third level.
    L4,
}

impl Enter {
    /// The level.
    pub fn level(self) -> Level {
        match self {
            Enter::L0d => Level::L0,
            Enter::L1d => Level::L1,
            Enter::L2 => Level::L2,
            Enter::L3 => Level::L3,
            Enter::L4 => Level::L4,
        }
    }
}

/// The caches of one core.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrivateSpec {
    /// First-level cache of instructions.
    pub l1i: CacheSpec,
    /// Data cache in front of the L1D: loads and stores access it first. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l0d: Option<CacheSpec>,
    /// First-level cache of data.
    pub l1d: CacheSpec,
    /// Second-level cache of both.
    pub l2: CacheSpec,
    /// Third-level cache of both, of this core alone. The shared cache is then `memory.l4`.
    /// Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l3: Option<CacheSpec>,
    /// Level at which page walks enter.
    pub walks_enter: Enter,
    /// Bytes that the L1D takes from the L2 in a cycle, a divisor of 64; any number by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l1d_fill_bytes: Option<u32>,
    /// Write-combining buffers, each of a line, for non-temporal stores. Default 10: Intel's cores
    /// up to Broadwell combine writes in their ten line fill buffers (Optimization Reference
    /// Manual, Sandy Bridge).
    #[serde(
        default = "write_combining_buffers",
        skip_serializing_if = "is_default_buffers"
    )]
    pub write_combining_buffers: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_unlimited(bandwidth_gbs: &f64) -> bool {
    *bandwidth_gbs == 0.0
}

/// Configuration of the DRAM.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DramSpec {
    /// A fixed latency.
    Fixed {
        /// Nanoseconds from the last cache's miss to the data at the core, without the transfer of
        /// the line.
        latency_ns: f64,
        /// Bandwidth of the channel that all lines cross, read or written, one at a time, in
        /// 10^9 bytes a second. 0, the default: unlimited, and a transfer takes no time.
        #[serde(default, skip_serializing_if = "is_unlimited")]
        bandwidth_gbs: f64,
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
        /// Controller and wires, both directions together, ns.
        controller_ns: f64,
        /// An idle row is closed after this long, ns; 0 = stays open.
        keep_open_ns: f64,
        /// Address bits that choose channel and bank. Default: `low_row_bits`.
        #[serde(default, skip_serializing_if = "AddressHash::is_default")]
        address_hash: AddressHash,
        /// Row hits that a bank serves ahead of a waiting activation, at most: open rows first
        /// (FR-FCFS) with a cap. 0, the default: first come, first served.
        #[serde(default, skip_serializing_if = "is_zero")]
        row_hit_cap: u32,
    },
}

/// Address bits that choose channel and bank of a DRAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AddressHash {
    /// The bank is XORed with as many low bits of the row: permutation-based interleaving (Zhang,
    /// Zhu and Zhang, MICRO 2000).
    #[default]
    LowRowBits,
    /// The bank is XORed with all bits of the row, and the channel with all bits above it.
    AllBits,
}

impl AddressHash {
    fn is_default(&self) -> bool {
        *self == AddressHash::default()
    }
}

impl DramSpec {
    /// Peak bandwidth in 10^9 bytes a second; 0 if it is unlimited.
    pub fn peak_gbs(&self) -> f64 {
        match *self {
            DramSpec::Fixed { bandwidth_gbs, .. } => bandwidth_gbs,
            DramSpec::Ddr {
                data_rate_mts,
                bus_bytes,
                channels,
                ..
            } => f64::from(data_rate_mts) * f64::from(bus_bytes) * f64::from(channels) / 1000.0,
        }
    }

    /// A fixed latency and unlimited bandwidth.
    pub const fn fixed(latency_ns: f64) -> Self {
        DramSpec::Fixed {
            latency_ns,
            bandwidth_gbs: 0.0,
        }
    }
}

/// Default of [`PrivateSpec::write_combining_buffers`].
pub fn write_combining_buffers() -> u32 {
    10
}

fn is_default_buffers(buffers: &u32) -> bool {
    *buffers == write_combining_buffers()
}

fn ddr_bus_bytes() -> u32 {
    8
}

/// The shared levels of the memory system.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SharedSpec {
    /// Third-level cache, unless each core has one of its own (`caches.l3`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l3: Option<CacheSpec>,
    /// Fourth-level cache, for example on the side of the memory. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l4: Option<CacheSpec>,
    /// Cycles from a request to the data if another core's private cache holds the line dirty.
    pub remote_latency: Cycle,
    /// Main memory.
    pub dram: DramSpec,
    /// Load by other tenants of the host. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<BackgroundSpec>,
}

/// Load by other tenants of the host, which are not simulated.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BackgroundSpec {
    /// Their requests to the DRAM, in 10^9 bytes a second: random lines at random times, which come
    /// however long they wait. Below the peak of the DRAM. Default 0.
    pub bandwidth_gbs: f64,
    /// The lines that they fill into `memory.l3`, in 10^9 bytes a second: into random sets at random
    /// times. Default 0.
    pub l3_fill_gbs: f64,
}

impl PrivateSpec {
    /// The caches that hold data, nearest first.
    pub fn data_levels(&self) -> impl Iterator<Item = (Level, &CacheSpec)> {
        let l0d = self.l0d.iter().map(|cache| (Level::L0, cache));
        let l3 = self.l3.iter().map(|cache| (Level::L3, cache));
        let always = [(Level::L1, &self.l1d), (Level::L2, &self.l2)];
        l0d.chain(always).chain(l3)
    }
}

impl SharedSpec {
    /// The shared caches, nearest first.
    pub fn levels(&self) -> impl Iterator<Item = (Level, &CacheSpec)> {
        let l3 = self.l3.iter().map(|cache| (Level::L3, cache));
        l3.chain(self.l4.iter().map(|cache| (Level::L4, cache)))
    }
}

/// A component that adds counters to the tree.
pub trait Report {
    /// Adds all counters below `path`.
    fn report(&self, path: &str, tree: &mut Tree);
}
