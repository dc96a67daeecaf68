//! What a run is made of beside its programs: designs, and what is asked of them.

use std::path::PathBuf;

use pagewalk_tables::Shortcut;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::limits::Limits;
use crate::regions::Regions;

/// A design to run: its name, what it says of itself, and the whole configuration.
#[derive(Clone, Debug)]
pub struct Design {
    /// For tables; where several machines run, with the machine's.
    pub name: String,
    /// Where several machines run: which one it is on.
    pub on: Option<OnMachine>,
    /// One sentence.
    pub description: String,
    /// Machine and design, resolved.
    pub config: Config,
    /// Answers the program when it asks, in place of what `config` has for it: of a shape
    /// that no file can give.
    pub shortcut: Option<NewShortcut>,
    /// It runs only for what it says of the others, and is not among the result's designs.
    pub beside: bool,
}

/// The machine of a design, where several machines are compared.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct OnMachine {
    /// Name of the machine.
    pub machine: String,
    /// Name of the design without the machine's.
    pub design: String,
}

impl Design {
    /// The design's name, without a machine's.
    pub fn own_name(&self) -> &str {
        self.on.as_ref().map_or(&self.name, |on| &on.design)
    }

    /// Its machine, where several run.
    pub fn machine(&self) -> Option<&str> {
        self.on.as_ref().map(|on| on.machine.as_str())
    }

    /// Whether programs that ask get replies.
    pub fn has_shortcut(&self) -> bool {
        self.shortcut.is_some() || self.config.shortcut.is_some()
    }

    /// Whether what is skipped leaves nothing behind but the pages that it touches: else each
    /// access has to be seen. A page that is swapped out is touched anew.
    pub fn skips_by_pages(&self) -> bool {
        let config = &self.config;
        config.in_memory_tlb.is_none()
            && !config.core.wrong_path.enabled
            && config.os.swap.is_none()
    }
}

/// The machines of a run by name or path: a text, or a list of several.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Machines {
    /// One, on which all designs run.
    One(String),
    /// Several, on each of which all designs run.
    Several(Vec<String>),
}

impl Default for Machines {
    fn default() -> Self {
        Machines::One(String::new())
    }
}

impl Machines {
    /// Their names or paths.
    pub fn names(&self) -> &[String] {
        match self {
            Machines::One(name) => std::slice::from_ref(name),
            Machines::Several(names) => names,
        }
    }
}

/// How sure numbers have to be.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Precision {
    /// Half of the width of their 95 % confidence intervals, as a share of them: 0.02. Of a number
    /// of misses for 1000 instructions below 0.1, as a share of 0.1.
    pub within: f64,
    /// Which numbers of the summary, of each design; none: `ipc` and `l2_tlb_mpki`. Speedups
    /// always.
    #[serde(default)]
    pub metrics: Vec<String>,
}

/// Makes the shortcut of a machine that has just booted, from the run's seed.
pub type NewShortcut = fn(u64) -> Box<dyn Shortcut>;

/// Everything about a run but program and designs: what a user may say, with what
/// holds where nothing is said.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Machine by name or path, or several.
    pub machine: Machines,
    /// What is measured.
    pub limits: Limits,
    /// Take samples of the measured part until the numbers are as sure as this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// Of a trace: these regions stand for the whole, and nothing else is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regions: Option<Regions>,
    /// Seed of the machine's and the program's random choices.
    pub seed: u64,
    /// Host threads; `None`: one for each host core. At most one a design is used, but where
    /// samples of a recording are simulated side by side.
    pub host_threads: Option<usize>,
    /// Instructions of an interval of the interval statistics.
    pub interval: Option<u64>,
    /// Where a Perfetto (Chrome JSON) file of single walks goes.
    #[serde(with = "crate::os_text::optional_path")]
    pub perfetto: Option<PathBuf>,
    /// Walks to keep for each core of each design in that file.
    pub perfetto_walks: usize,
    /// Say what translation costs each design, against the shipped design of perfect
    /// TLBs, which runs beside them unless it is one of them.
    pub translation_cost: bool,
    /// Tell where every page lies at the end.
    pub mappings: bool,
    /// Run the programs of a mix alone as well, for their weighted speedup.
    pub alone: bool,
    /// Go on with designs for whose pages the host has not the memory.
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
            alone: true,
            ignore_memory: false,
        }
    }
}

/// The seed of a run where none is given.
pub(crate) const DEFAULT_SEED: u64 = 1;
