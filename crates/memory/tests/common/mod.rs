//! A small machine for the tests: round numbers, no prefetchers.
#![allow(dead_code, missing_docs)]

use pagewalk_memory::*;
use pagewalk_stats::Tree;
use pagewalk_units::{Cycle, PhysAddr};

pub const L1: Cycle = 4;
pub const L2: Cycle = 14;
pub const L3: Cycle = 40;
/// Fixed memory latency at 1 GHz, cycles.
pub const FIXED: Cycle = 100;

pub fn cache(size_kb: u32, ways: u32, latency: Cycle, mshrs: u32) -> CacheSpec {
    CacheSpec {
        size_kb,
        ways,
        latency,
        mshrs,
        replacement: Replacement::Lru,
        prefetcher: None,
    }
}

pub fn private() -> PrivateSpec {
    PrivateSpec {
        l1i: cache(32, 8, L1, 8),
        l1d: cache(32, 8, L1, 10),
        l2: cache(256, 8, L2, 20),
        walks_enter: Enter::L2,
    }
}

pub fn fixed() -> DramSpec {
    DramSpec::Fixed {
        latency_ns: FIXED as f64,
    }
}

pub fn shared() -> SharedSpec {
    SharedSpec {
        l3: cache(2048, 16, L3, 64),
        remote_latency: 60,
        dram: fixed(),
    }
}

/// DDR4 with times that are whole cycles at 1 GHz, but for the line's 3.333 ns.
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
    }
}

pub struct Machine {
    pub cores: Vec<Private>,
    pub shared: Shared,
}

pub fn machine(private: &PrivateSpec, shared: &SharedSpec) -> Machine {
    machine_of(1, private, shared)
}

pub fn machine_of(cores: u8, private: &PrivateSpec, shared: &SharedSpec) -> Machine {
    Machine {
        cores: (0..cores)
            .map(|c| Private::new(private, c).expect("possible"))
            .collect(),
        shared: Shared::new(shared, cores, 1.0).expect("possible"),
    }
}

impl Machine {
    #[inline]
    pub fn access_of(&mut self, core: u8, at: u64, kind: Kind, pc: u64, now: Cycle) -> Done {
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

    pub fn warm_of(&mut self, core: u8, at: u64, kind: Kind, pc: u64) {
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

    pub fn take_snoops(&mut self, core: u8) {
        let mut snoops = vec![];
        self.shared.take_snoops(core, &mut snoops);
        for (at, exclusive) in snoops {
            self.cores[usize::from(core)].snoop(at, exclusive);
        }
    }

    pub fn access(&mut self, at: u64, kind: Kind, pc: u64, now: Cycle) -> Done {
        self.access_of(0, at, kind, pc, now)
    }

    pub fn load(&mut self, at: u64, now: Cycle) -> Done {
        self.access(at, Kind::Load, 0x400, now)
    }

    pub fn store(&mut self, at: u64, now: Cycle) -> Done {
        self.access(at, Kind::Store, 0x404, now)
    }

    pub fn tree(&self) -> Tree {
        let mut tree = Tree::default();
        for (n, core) in self.cores.iter().enumerate() {
            core.report(&format!("core.{n}"), &mut tree);
        }
        self.shared.report("", &mut tree);
        tree
    }

    pub fn get(&self, path: &str, name: &str) -> u64 {
        self.tree().get(path, name).expect("a counter")
    }
}
