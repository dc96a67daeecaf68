//! Energies of accesses and leakage power: the keys under `energy`.

use std::collections::BTreeMap;

use pagewalk_units::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Energies that the account after a run uses with the counts of each array. All numbers are for 45 nm,
/// the node of the published energies of instructions and synthesised engines. `pagewalk explain energy`
/// gives the source of each.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EnergySpec {
    /// The core without caches and TLBs.
    pub core: CoreEnergy,
    /// First-level caches by size, each with `size_kb`, `read_pj`, `write_pj` and `static_mw`. Other
    /// sizes are interpolated and extrapolated log-log. Default: CACTI 7 with 8 ways, reads of 8 bytes,
    /// all ways in parallel.
    pub l1: Vec<CacheEnergy>,
    /// Second-level and shared caches by size, likewise: tags first, then one way. Default: CACTI 7, with
    /// the leakage of low-standby-power cells.
    pub l2_l3: Vec<CacheEnergy>,
    /// TLBs, walk caches, tags and directories, each with `entries`, `ways`, `read_pj` (a lookup),
    /// `write_pj` (a fill) and `static_mw`. Other numbers of entries are interpolated and extrapolated
    /// log-log. Ways are interpolated log-log and clamped to the range of the table. Default: CACTI 7,
    /// extended to 32 and 64 entries (ours).
    pub tlb: Vec<ArrayEnergy>,
    /// Energy of a fully associative array relative to one of the fewest ways. Default 2 (ours: within
    /// the range published for searched arrays).
    pub fully_associative: f64,
    /// Power of the speculation engine of a core, mW, accesses included. Default 14.7 (Revelator's second
    /// version, 45 nm; the first version takes 10.7). The engine in `rtl/spec_engine` takes 1.7 to 7.5 in
    /// runs of programs, at 1 GHz.
    pub engine_mw: f64,
    /// Main memory. Default: the formulas of DRAMsim3 (Li et al., CAL 2020).
    pub dram: DramEnergy,
    /// Energies of single arrays, by their names in results: `l2`, `"mmu.l2.main"`, `"mmu.pwc.2"`.
    /// Default: none.
    pub arrays: BTreeMap<String, OwnEnergy>,
}

/// A core without its caches and TLBs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CoreEnergy {
    /// Energy of an instruction, wrong-path ones included, pJ. Default 120 (ours: between the 70 of
    /// Horowitz, ISSCC 2014, for a simple core and 200).
    pub instruction_pj: f64,
    /// IPC of the kernel, whose work is known in cycles only. Default 1 (ours).
    pub kernel_ipc: f64,
    /// Leakage and clock power, whatever the core does, mW. Default 1000 (ours).
    pub static_mw: f64,
}

/// A cache of one size.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheEnergy {
    /// Capacity, KB.
    pub size_kb: u32,
    /// Energy of a read access, pJ.
    pub read_pj: f64,
    /// Energy of a write access, pJ.
    pub write_pj: f64,
    /// Leakage, mW.
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
    /// Energy of a lookup, pJ.
    pub read_pj: f64,
    /// Energy of a fill, pJ.
    pub write_pj: f64,
    /// Leakage, mW.
    pub static_mw: f64,
}

/// Energies of one array; absent ones come from the tables.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OwnEnergy {
    /// Energy of a read access, pJ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_pj: Option<f64>,
    /// Energy of a write access, pJ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_pj: Option<f64>,
    /// Energy of a tag lookup of a cache, pJ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag_pj: Option<f64>,
    /// Leakage of one such array, mW.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub static_mw: Option<f64>,
}

/// Main memory. Default: ranks of eight 8 Gb chips (x8) of DDR4-2400, by the formulas of DRAMsim3 (Li et
/// al., CAL 2020) and the chips' currents.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DramEnergy {
    /// Energy of an activation and precharge, nJ. Default 3.46. A memory of fixed latency has no rows and
    /// activates for each access.
    pub activate_nj: f64,
    /// Energy of reading a line from its open row, nJ. Default 2.94.
    pub read_nj: f64,
    /// Energy of writing a line to its open row, nJ. Default 2.56.
    pub write_nj: f64,
    /// Energy of transferring a line on the channel, nJ. Default 1.5 (ours: between 1 and 2).
    pub io_nj: f64,
    /// Background power of a rank, mW. Default 413, with rows open; it is 326 with all rows closed.
    pub background_mw: f64,
    /// Energy of a refresh of a rank, nJ. Default 695.
    pub refresh_nj: f64,
    /// Refresh interval, us. Default 7.8 (DDR4).
    pub refresh_interval_us: f64,
    /// Ranks of a memory of fixed latency, whose configuration has none. Default 2 (ours).
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

/// Upper bound, far above real hardware, so that sums with it do not overflow.
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

/// Checks a point of a table, which is interpolated log-log.
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
    /// Checks all values. An error names the key and the expected range.
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
