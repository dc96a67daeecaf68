//! A small machine for the tests: round numbers, no prefetchers.
#![allow(dead_code, reason = "each test file takes what it needs")]

use pagewalk_memory::*;
use pagewalk_stats::Tree;
use pagewalk_units::{Cycle, FlushKind, PhysAddr};

/// Latencies from the core to each level's data, cycles.
pub const L1: Cycle = 4;
/// See [`L1`].
pub const L2: Cycle = 14;
/// See [`L1`].
pub const L3: Cycle = 40;
/// Fixed memory latency at 1 GHz, cycles.
pub const FIXED: Cycle = 100;

/// A cache under LRU, without a prefetcher.
pub fn cache(size_kb: u32, ways: u32, latency: Cycle, mshrs: u32) -> CacheSpec {
    CacheSpec {
        size_kb,
        ways,
        latency,
        mshrs,
        replacement: Replacement::Lru,
        prefetcher: None,
        index: SetIndex::Modulo,
    }
}

/// L1s of 32 KB with 8 and 10 MSHRs, and an L2 of 256 KB with 20 MSHRs, at which walks enter.
pub fn private() -> PrivateSpec {
    PrivateSpec {
        l1i: cache(32, 8, L1, 8),
        l0d: None,
        l1d: cache(32, 8, L1, 10),
        l2: cache(256, 8, L2, 20),
        l3: None,
        walks_enter: Enter::L2,
        l1d_fill_bytes: None,
        write_combining_buffers: 4,
    }
}

/// Memory with a latency of [`FIXED`] cycles at any load.
pub fn fixed() -> DramSpec {
    DramSpec::fixed(FIXED as f64)
}

/// An L3 of 2 MB with 64 MSHRs over [`fixed`].
pub fn shared() -> SharedSpec {
    SharedSpec {
        l3: Some(cache(2048, 16, L3, 64)),
        l4: None,
        remote_latency: 60,
        background: None,
        dram: fixed(),
    }
}

/// DDR4 whose times are whole cycles at 1 GHz, except the line's 3.333 ns on the bus.
pub fn ddr(channels: u32) -> DramSpec {
    DramSpec::Ddr {
        data_rate_mts: 2400,
        bus_bytes: 8,
        channels,
        ranks: 1,
        bank_groups: 4,
        banks: 4,
        row_bytes: 8192,
        tcl_ns: 14.0,
        trcd_ns: 14.0,
        trp_ns: 14.0,
        tras_ns: 32.0,
        controller_ns: 20.0,
        keep_open_ns: 0.0,
        address_hash: AddressHash::LowRowBits,
        row_hit_cap: 0,
    }
}

/// Private caches of each core over the shared level, at 1 GHz.
pub struct Machine {
    /// Private caches by core number.
    pub cores: Vec<Private>,
    /// L3, directory, DRAM.
    pub shared: Shared,
}

/// One core.
pub fn machine(private: &PrivateSpec, shared: &SharedSpec) -> Machine {
    machine_of(1, private, shared)
}

/// Several identical cores.
///
/// # Panics
/// If the specification is impossible.
pub fn machine_of(cores: u8, private: &PrivateSpec, shared: &SharedSpec) -> Machine {
    Machine {
        cores: (0..cores)
            .map(|c| {
                Private::new(private, c)
                    .expect("possible")
                    .with_speculation()
            })
            .collect(),
        shared: Shared::new(shared, cores, 1.0)
            .expect("possible")
            .with_speculation(),
    }
}

impl Machine {
    /// An access of a core at `now`, after its pending snoops.
    #[inline]
    pub fn access_of(&mut self, core: u8, at: u64, kind: RequestKind, pc: u64, now: Cycle) -> Done {
        if self.shared.has_snoops(core) {
            self.take_snoops(core);
        }
        let request = Request {
            at: PhysAddr(at),
            kind,
            core,
            pc,
        };
        self.cores[usize::from(core)].access(request, now, &mut self.shared)
    }

    /// Functional warming by an access of a core.
    pub fn warm_of(&mut self, core: u8, at: u64, kind: RequestKind, pc: u64) {
        if self.shared.has_snoops(core) {
            self.take_snoops(core);
        }
        let request = Request {
            at: PhysAddr(at),
            kind,
            core,
            pc,
        };
        self.cores[usize::from(core)].warm(request, &mut self.shared);
    }

    /// Serves the pending snoops of a core.
    pub fn take_snoops(&mut self, core: u8) {
        let mut snoops = vec![];
        self.shared.take_snoops(core, &mut snoops);
        for (at, exclusive) in snoops {
            self.cores[usize::from(core)].snoop(at, exclusive);
        }
    }

    /// An access of core 0.
    pub fn access(&mut self, at: u64, kind: RequestKind, pc: u64, now: Cycle) -> Done {
        self.access_of(0, at, kind, pc, now)
    }

    /// A load of core 0, always by the same instruction.
    pub fn load(&mut self, at: u64, now: Cycle) -> Done {
        self.access(at, RequestKind::Load, 0x400, now)
    }

    /// A store of core 0, always by the same instruction.
    pub fn store(&mut self, at: u64, now: Cycle) -> Done {
        self.access(at, RequestKind::Store, 0x404, now)
    }

    /// A flush by a core at `now`, after its pending snoops. Returns when it is done.
    pub fn flush_of(&mut self, core: u8, at: u64, kind: FlushKind, now: Cycle) -> Cycle {
        self.take_snoops(core);
        let private = &mut self.cores[usize::from(core)];
        private.flush(PhysAddr(at), kind, now, &mut self.shared).at
    }

    /// A non-temporal store of core 0 to the bytes from `at` on, in one line.
    pub fn store_past_caches(&mut self, at: u64, bytes: u8, now: Cycle) -> Cycle {
        let low = (at % 64) as u8;
        self.cores[0].store_past_caches(PhysAddr(at), (low, low + bytes - 1), now, &mut self.shared)
    }

    /// All counters.
    pub fn tree(&self) -> Tree {
        let mut tree = Tree::default();
        for (n, core) in self.cores.iter().enumerate() {
            core.report(&format!("core.{n}"), &mut tree);
        }
        self.shared.report("", &mut tree);
        tree
    }

    /// One counter.
    ///
    /// # Panics
    /// If there is none of that name.
    pub fn get(&self, path: &str, name: &str) -> u64 {
        self.tree().get(path, name).expect("a counter")
    }
}
