//! What accesses cost, and what leaks: the keys under `energy`.

use std::collections::BTreeMap;

use pagewalk_units::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What energy is computed with, after the run, from what each array counted. All at
/// 45 nm, where what an instruction takes and synthesised engines are published.
/// `pagewalk explain energy` has the source of each number.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EnergySpec {
    /// The core without caches and TLBs.
    pub core: CoreEnergy,
    /// First-level caches by size, each with `size_kb`, `read_pj`, `write_pj` and
    /// `static_mw`; between two sizes and beyond them log-log. Default CACTI 7's of 8
    /// ways, read 8 bytes at a time, all ways at once.
    pub l1: Vec<CacheEnergy>,
    /// Second-level and shared caches by size, likewise: tags first, then one way.
    /// Default CACTI 7's; what leaks is that of low-standby-power cells.
    pub l2_l3: Vec<CacheEnergy>,
    /// TLBs, walk caches, tags and directories, each with `entries`, `ways`, `read_pj`
    /// (a lookup), `write_pj` (an entry put in) and `static_mw`; log-log between
    /// entries and between ways, along the last two beyond; fewer or more ways than
    /// the table has count as its fewest and most. Default CACTI 7's, of which
    /// those of 32 and 64 entries are extended (ours).
    pub tlb: Vec<ArrayEnergy>,
    /// How many times as much a fully associative array takes as one of the fewest
    /// ways. Default 2 (ours: within what is published for searched arrays).
    pub fully_associative: f64,
    /// What the speculation engine of a core takes, mW, accesses included. Default
    /// 14.7 (Revelator's second version, 45 nm; the first one's is 10.7).
    pub engine_mw: f64,
    /// Main memory: by default by the formulas of DRAMsim3 (Li et al., CAL 2020).
    pub dram: DramEnergy,
    /// Own numbers for single arrays, by the name that results give them:
    /// `l2`, `"mmu.l2.main"`, `"mmu.pwc.2"`. Default: none.
    pub arrays: BTreeMap<String, OwnEnergy>,
}

/// A core without its caches and TLBs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CoreEnergy {
    /// What an instruction takes, pJ, those of wrong paths included. Default 120 (ours:
    /// between the 70 of Horowitz, ISSCC 2014, for a simple core and 200).
    pub instruction_pj: f64,
    /// Instructions a cycle of the kernel, whose work is known in cycles only. Default 1 (ours).
    pub kernel_ipc: f64,
    /// What leaks and ticks whatever the core does, mW. Default 1000 (ours).
    pub static_mw: f64,
}

/// A cache of one size.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheEnergy {
    /// Capacity, KB.
    pub size_kb: u32,
    /// An access that reads, pJ.
    pub read_pj: f64,
    /// An access that writes, pJ.
    pub write_pj: f64,
    /// What leaks, mW.
    pub static_mw: f64,
}

/// A TLB-like array of one geometry.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArrayEnergy {
    /// Entries.
    pub entries: u32,
    /// Ways.
    pub ways: u32,
    /// A lookup, pJ.
    pub read_pj: f64,
    /// An entry put in, pJ.
    pub write_pj: f64,
    /// What leaks, mW.
    pub static_mw: f64,
}

/// Own numbers for one array; what is left out is the tables'.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OwnEnergy {
    /// An access that reads, pJ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_pj: Option<f64>,
    /// An access that writes, pJ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_pj: Option<f64>,
    /// A look at the tags only, pJ; of caches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag_pj: Option<f64>,
    /// What leaks, mW, each of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub static_mw: Option<f64>,
}

/// Main memory: by default ranks of eight 8 Gb chips (x8) of DDR4-2400, by the formulas of
/// DRAMsim3 (Li et al., CAL 2020) and the chips' currents.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DramEnergy {
    /// Opening a row and closing it, nJ. Default 3.46. A memory of fixed latency,
    /// which has no rows, opens one for each access.
    pub activate_nj: f64,
    /// Reading a line from its open row, nJ. Default 2.94.
    pub read_nj: f64,
    /// Writing a line to its open row, nJ. Default 2.56.
    pub write_nj: f64,
    /// A line on the channel, nJ. Default 1.5 (ours: between 1 and 2).
    pub io_nj: f64,
    /// What a rank takes whatever it does, mW. Default 413: rows open; with all rows
    /// closed it is 326.
    pub background_mw: f64,
    /// A refresh of a rank, nJ. Default 695.
    pub refresh_nj: f64,
    /// Time from one refresh to the next, us. Default 7.8 (DDR4).
    pub refresh_interval_us: f64,
    /// Ranks of a memory of fixed latency, whose table gives none. Default 2 (ours).
    pub fixed_ranks: u32,
}

impl Default for CoreEnergy {
    fn default() -> Self {
        CoreEnergy {
            instruction_pj: 120.0,
            kernel_ipc: 1.0,
            static_mw: 1000.0,
        }
    }
}

impl Default for DramEnergy {
    fn default() -> Self {
        DramEnergy {
            activate_nj: 3.46,
            read_nj: 2.94,
            write_nj: 2.56,
            io_nj: 1.5,
            background_mw: 413.0,
            refresh_nj: 695.0,
            refresh_interval_us: 7.8,
            fixed_ranks: 2,
        }
    }
}

impl Default for EnergySpec {
    fn default() -> Self {
        EnergySpec {
            core: CoreEnergy::default(),
            l1: super::sources::L1.iter().map(|p| p.value).collect(),
            l2_l3: super::sources::L2_L3.iter().map(|p| p.value).collect(),
            tlb: super::sources::TLB.iter().map(|p| p.value).collect(),
            fully_associative: 2.0,
            engine_mw: 14.7,
            dram: DramEnergy::default(),
            arrays: BTreeMap::new(),
        }
    }
}

/// Far above anything that is built: sums with it stay far from the end of the numbers.
const MOST: f64 = 1e9;

fn plain(key: &str, value: f64) -> Result<(), Error> {
    if (0.0..=MOST).contains(&value) {
        return Ok(());
    }
    Err(Error::key(
        format!("energy.{key}"),
        format!("is {value}; expected 0 to {MOST}"),
    ))
}

/// A point of a table, which is read log-log.
fn of_table(key: &str, values: [f64; 3]) -> Result<(), Error> {
    for value in values {
        if !(value > 0.0 && value <= MOST) {
            return Err(Error::key(
                format!("energy.{key}"),
                format!("has {value}; expected numbers above 0, at most {MOST}"),
            ));
        }
    }
    Ok(())
}

impl EnergySpec {
    /// Whether the values make sense; an error names the key and what was expected.
    pub fn check(&self) -> Result<(), Error> {
        let (core, dram) = (&self.core, &self.dram);
        plain("core.instruction_pj", core.instruction_pj)?;
        plain("core.kernel_ipc", core.kernel_ipc)?;
        plain("core.static_mw", core.static_mw)?;
        plain("fully_associative", self.fully_associative)?;
        plain("engine_mw", self.engine_mw)?;
        plain("dram.activate_nj", dram.activate_nj)?;
        plain("dram.read_nj", dram.read_nj)?;
        plain("dram.write_nj", dram.write_nj)?;
        plain("dram.io_nj", dram.io_nj)?;
        plain("dram.background_mw", dram.background_mw)?;
        plain("dram.refresh_nj", dram.refresh_nj)?;
        if !(dram.refresh_interval_us > 1e-3 && dram.refresh_interval_us <= MOST) {
            return Err(Error::key(
                "energy.dram.refresh_interval_us",
                format!("is {}; expected 0.001 to {MOST}", dram.refresh_interval_us),
            ));
        }
        for (key, points) in [("l1", &self.l1), ("l2_l3", &self.l2_l3)] {
            for p in points {
                of_table(key, [p.read_pj, p.write_pj, p.static_mw])?;
            }
            let sizes: Vec<u32> = points.iter().map(|p| p.size_kb).collect();
            if sizes.first().is_none_or(|&s| s == 0) || sizes.windows(2).any(|w| w[0] >= w[1]) {
                return Err(Error::key(
                    format!("energy.{key}"),
                    format!("has the sizes {sizes:?}; expected at least one, ascending"),
                ));
            }
        }
        for p in &self.tlb {
            of_table("tlb", [p.read_pj, p.write_pj, p.static_mw])?;
        }
        let all: Vec<(u32, u32)> = self.tlb.iter().map(|p| (p.entries, p.ways)).collect();
        let wrong = |i: usize| all[i].0 == 0 || all[i].1 == 0 || all[..i].contains(&all[i]);
        if all.is_empty() || (0..all.len()).any(wrong) {
            return Err(Error::key(
                "energy.tlb",
                format!("has the entries and ways {all:?}; expected at least one, and each once"),
            ));
        }
        for (name, own) in &self.arrays {
            for (key, value) in [
                ("read_pj", own.read_pj),
                ("write_pj", own.write_pj),
                ("tag_pj", own.tag_pj),
                ("static_mw", own.static_mw),
            ] {
                plain(&format!("arrays.{name}.{key}"), value.unwrap_or(0.0))?;
            }
        }
        Ok(())
    }
}
