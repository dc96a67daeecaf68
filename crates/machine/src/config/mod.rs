//! Configuration: layered TOML, `key=value` settings, errors with a place.
//!
//! Layers are a machine file, a design file with its bases, and the user's settings; a later layer wins.
//! The resolved [`Config`] has everything that a run depends on.

mod hashed;
mod layers;
mod naming;
mod readers;
mod registry;
mod schema;

pub use layers::{Layer, Resolved, resolve_layers};
pub use naming::{DesignName, Setting, label};
pub use registry::{DataDir, Shipped, ShippedFile};
pub use schema::{Key, keys, root_schema};

use pagewalk_cpu::CoreSpec;
use pagewalk_memory::{Level, PrivateSpec, SharedSpec, check_levels};
use pagewalk_mmu::{EngineSpec, MmuSpec, TranslationSpec};
use pagewalk_os::{OsSpec, PageTableSpec, PlacementSpec, VirtualSpec};
use pagewalk_tables::ShortcutSpec;
use pagewalk_units::{Error, Part, text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::energy::{EnergySpec, Prices};

/// A machine and the design that runs on it: everything that a result depends on, except the program and
/// the seed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Cores, each with its own TLBs, walkers and private caches. Default: the threads of the program, at most 8.
    /// One core if their number is unknown before the run, as that of a live program.
    #[serde(default = "one_core")]
    pub cores: u8,
    /// Core clock, GHz.
    pub frequency_ghz: f64,
    /// The out-of-order window of each core.
    pub core: CoreSpec,
    /// TLBs, walk caches and walkers of each core.
    pub mmu: MmuSpec,
    /// The private caches of each core.
    pub caches: PrivateSpec,
    /// Shared by the cores: caches behind the private ones, and DRAM.
    pub memory: SharedSpec,
    /// Physical memory, its fragmentation, and kernel costs.
    pub os: OsSpec,
    /// Policy for frames and page sizes.
    pub placement: PlacementSpec,
    /// Page table.
    pub page_table: PageTableSpec,
    /// Speculation engine of each core, which guesses lines before their translation is known. Default:
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineSpec>,
    /// Translation sources: structures besides the TLBs that may hold translations. Default: none.
    #[serde(default, skip_serializing_if = "TranslationSpec::is_empty")]
    pub translation: TranslationSpec,
    /// Shortcut that maps keys of a program to the addresses of their records. Default: none, and
    /// programs do without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortcut: Option<ShortcutSpec>,
    /// Virtual machine that the program runs in. These keys describe its host; placement and page table
    /// above are then the guest's. Default: none.
    #[serde(default, rename = "virtual", skip_serializing_if = "Option::is_none")]
    pub virtual_machine: Option<VirtualSpec>,
    /// Schedule of cores and threads.
    pub schedule: ScheduleSpec,
    /// Energy of accesses, and leakage.
    #[serde(default)]
    pub energy: EnergySpec,
}

/// Most cores that a machine has by default. Ours: a core complex of the default machine has as many.
const MOST_CORES_BY_DEFAULT: u32 = 8;

/// Cores for a program with so many threads, on a machine that does not say. The host has no part in it, so
/// that a result does not depend on it.
pub fn cores_for(threads: Option<u32>) -> u8 {
    threads.unwrap_or(1).clamp(1, MOST_CORES_BY_DEFAULT) as u8
}

fn one_core() -> u8 {
    cores_for(None)
}

/// Turns of cores and threads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleSpec {
    /// Cycles by which a core may run ahead of the next slowest core before that one's turn. Cores see
    /// each other's accesses at this granularity. A single core is not affected.
    pub step_cycles: u64,
    /// Time slice in cycles: after it a thread gives up its core if others wait for one.
    pub time_slice_cycles: u64,
}

/// Upper bound, longer than any run, so that sums with it do not overflow.
const MOST_SCHEDULE_CYCLES: u64 = 1 << 40;

impl Config {
    /// Checks each component's keys and their combinations: a configuration that passes can be built.
    ///
    /// # Errors
    /// One sentence that names the key.
    pub fn validate(&self) -> Result<(), Error> {
        if !(0.01..=100.0).contains(&self.frequency_ghz) {
            return Err(Error::key(
                "frequency_ghz",
                format!("is {}; expected 0.01 to 100", self.frequency_ghz),
            ));
        }
        for (key, cycles) in [
            ("schedule.step_cycles", self.schedule.step_cycles),
            (
                "schedule.time_slice_cycles",
                self.schedule.time_slice_cycles,
            ),
        ] {
            if cycles == 0 || cycles > MOST_SCHEDULE_CYCLES {
                return Err(Error::key(
                    key,
                    format!("is {cycles}; expected 1 to {MOST_SCHEDULE_CYCLES}"),
                ));
            }
        }
        self.core.check()?;
        self.mmu.check()?;
        self.caches.check()?;
        self.memory.check(self.cores)?;
        self.os.check()?;
        self.placement.check()?;
        self.check_placement()?;
        self.page_table.check()?;
        if let Some(v) = &self.virtual_machine {
            v.check()?;
        }
        self.translation.check(&self.mmu)?;
        self.check_ranges()?;
        if let Some(shortcut) = &self.shortcut {
            shortcut.check()?;
        }
        if let Some(engine) = &self.engine {
            engine.check()?;
            if let Some((name, guesses)) = engine.hashed_guesses() {
                self.check_hashed(&name, &guesses)?;
            }
            let walks = self.caches.walks_enter;
            if walks.level() > Level::L2 {
                return Err(Error::key(
                    "caches.walks_enter",
                    text![
                        format!(
                            "is \"{}\", where walks do not see the private L2 that ",
                            walks.level().name()
                        ),
                        Part::key("engine"),
                        " has lines fetched into; expected \"l2\" or \"l1d\", or a design without an engine",
                    ],
                ));
            }
        }
        check_levels(&self.caches, &self.memory)?;
        self.energy.check()?;
        Prices::new(self).map(drop)
    }

    /// Sources that need ranges are filled from the range table of the page table that walks start
    /// in.
    fn check_ranges(&self) -> Result<(), Error> {
        let (walked, host) = self.walked();
        let ranges = host.is_none() && matches!(walked, PageTableSpec::Ranges(_));
        let Some(key) = self.translation.needs_ranges().filter(|_| !ranges) else {
            return Ok(());
        };
        Err(Error::key(
            key,
            text![
                "is filled from ",
                Part::key("page_table.ranges"),
                ", outside of virtual machines; expected that page table and no ",
                Part::key("virtual"),
                ", or no such key"
            ],
        ))
    }

    /// The page table that walks start in, and the host's table if walks are nested.
    pub(crate) fn walked(&self) -> (PageTableSpec, Option<PageTableSpec>) {
        let own = &self.page_table;
        match &self.virtual_machine {
            None => (own.clone(), None),
            Some(v) => match v.shadow_table(own) {
                Some(shadow) => (shadow, None),
                None => (own.clone(), Some(v.page_table.clone())),
            },
        }
    }
}
