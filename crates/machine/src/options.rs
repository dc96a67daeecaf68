//! Designs and options of a run.

use std::path::PathBuf;

use pagewalk_stream::Facts;
use pagewalk_tables::Shortcut;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::limits::Limits;
use crate::regions::Regions;

/// A design to run, with its name, description and complete configuration.
#[derive(Clone, Debug)]
pub struct Design {
    /// Name in tables; with several machines it includes the machine's name.
    pub name: String,
    /// The machine of the design, if several machines are compared.
    pub on: Option<OnMachine>,
    /// Description in one sentence.
    pub description: String,
    /// Machine and design, resolved.
    pub config: Config,
    /// Shortcut in place of that of `config`, for kinds that no file can describe.
    pub shortcut: Option<NewShortcut>,
    /// True for a reference design that runs beside the others and is not in the result.
    pub beside: bool,
}

/// The machine of a design, if several machines are compared.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct OnMachine {
    /// Name of the machine.
    pub machine: String,
    /// Name of the design without the machine's name.
    pub design: String,
}

impl Design {
    /// Name of the design without the machine's name.
    pub fn own_name(&self) -> &str {
        self.on.as_ref().map_or(&self.name, |on| &on.design)
    }

    /// Name of its machine, if several machines are compared.
    pub fn machine(&self) -> Option<&str> {
        self.on.as_ref().map(|on| on.machine.as_str())
    }

    /// True if the design resolves shortcut queries.
    pub fn has_shortcut(&self) -> bool {
        self.shortcut.is_some() || self.config.shortcut.is_some()
    }

    /// True if wrong paths of this program may be simulated.
    pub fn may_go_wrong(&self, facts: &Facts) -> bool {
        self.config.core.wrong_path.enabled.unwrap_or(facts.memory)
    }

    /// True if fast-forwarding needs first touches of pages only. Other designs need each access; for
    /// example, a page that is swapped out is touched again.
    pub fn skips_by_pages(&self, facts: &Facts) -> bool {
        let config = &self.config;
        !config.translation.needs_each_access()
            && (facts.memory || !self.may_go_wrong(facts))
            && config.os.swap.is_none()
    }
}

/// Machines of a run by name or path: one string, or a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Machines {
    /// One machine, on which all designs run.
    One(String),
    /// Several machines, each with all designs.
    Several(Vec<String>),
}

impl Default for Machines {
    fn default() -> Self {
        Machines::One(String::new())
    }
}

impl Machines {
    /// Names or paths of the machines.
    pub fn names(&self) -> &[String] {
        match self {
            Machines::One(name) => std::slice::from_ref(name),
            Machines::Several(names) => names,
        }
    }
}

/// Required precision of the estimates.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Precision {
    /// Half-width of the 95 % confidence interval relative to the value, such as 0.02. For a number of
    /// misses for 1000 instructions below 1, relative to 1.
    pub within: f64,
    /// Metrics of the summary, for each design; if empty, `ipc` and `l2_tlb_mpki`. Speedups are always
    /// included.
    #[serde(default)]
    pub metrics: Vec<String>,
}

/// Makes the shortcut of a newly booted machine from the seed of the run.
pub type NewShortcut = fn(u64) -> Box<dyn Shortcut>;

/// Options of a run except program and designs, with their defaults.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Machine by name or path, or several.
    pub machine: Machines,
    /// Limits of the measured part.
    pub limits: Limits,
    /// Sample the measured part until the estimates have this precision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// Regions of a trace that represent all of it; nothing else is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regions: Option<Regions>,
    /// Seed of the random choices of machine and program.
    pub seed: u64,
    /// Host threads; `None` means one for each host core. At most one a design is used, unless samples of
    /// a recording are simulated in parallel.
    pub host_threads: Option<usize>,
    /// Instructions of an interval of the interval statistics.
    pub interval: Option<u64>,
    /// Path of a Perfetto (Chrome JSON) file of single walks.
    #[serde(with = "crate::os_text::optional_path")]
    pub perfetto: Option<PathBuf>,
    /// Walks to record for each core of each design in that file.
    pub perfetto_walks: usize,
    /// Report the translation cost of each design, relative to the shipped perfect-TLB design. That
    /// design runs beside the others unless it is one of them.
    pub translation_cost: bool,
    /// Report the mapping of every page at the end.
    pub mappings: bool,
    /// File of recorded placements, which replaces `placement.tiered_hash` in each design.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<String>,
    /// Also run the programs of a mix alone, for their weighted speedup.
    pub alone: bool,
    /// Run designs even if the host lacks memory for their pages.
    pub ignore_memory: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            machine: Machines::default(),
            limits: Limits::default(),
            precision: None,
            regions: None,
            seed: DEFAULT_SEED,
            host_threads: None,
            interval: None,
            perfetto: None,
            perfetto_walks: 10_000,
            translation_cost: false,
            mappings: false,
            frames: None,
            alone: true,
            ignore_memory: false,
        }
    }
}

/// Default seed of a run.
pub(crate) const DEFAULT_SEED: u64 = 1;
