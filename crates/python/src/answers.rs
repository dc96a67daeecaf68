//! Answers to Python: those that only the bindings have, and the JSON Schema of all.
//!
//! `scripts/types.py` makes Python's types of the schema.

use std::collections::BTreeMap;

use pagewalk_calibrate::{HostProcessor, Measured};
use pagewalk_machine::config::Key;
use pagewalk_machine::{Definition, Explanation as Sense, RecordResult, RunResult};
use pagewalk_programs::WorkloadInfo;
use pagewalk_trace::{BlockVectors, Converted, TraceCheck, TraceInfo};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Map, Value};

/// A shipped design or machine.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Shipped {
    /// The file's description, empty if it has none.
    pub description: String,
    /// Name.
    pub name: String,
    /// Path of the file.
    pub path: String,
    /// Citation or origin, empty if the file has none.
    pub source: String,
}

/// A design on a machine, with every key of its configuration.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Resolved {
    /// The whole configuration.
    #[schemars(with = "Map<String, Value>")]
    pub config: Value,
    /// The design in one sentence.
    pub description: String,
    /// Name.
    pub name: String,
}

/// Entries of a core's buffers for a shortcut from keys to records (STLT).
#[derive(Serialize, JsonSchema)]
pub(crate) struct ShortcutBuffers {
    /// Insertion buffer.
    pub insertion_buffer: usize,
    /// Invalid page buffer (IPB).
    pub invalid_page_buffer: usize,
    /// Shortcut translation buffer (STB).
    pub stb: usize,
}

/// Definitions of all numbers of results.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Definitions {
    /// Numbers of the summary.
    pub metrics: Vec<Definition>,
    /// Numbers of the programs of a mix, and of a mix as a whole.
    pub programs: &'static [Definition],
    /// Counters and histograms.
    pub statistics: Vec<Sense>,
}

/// All senses of a name, or the names that are near to one that has none.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Explanation {
    /// The senses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<Sense>")]
    pub found: Option<Vec<Sense>>,
    /// Names that are near.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    pub nearest: Option<Vec<String>>,
}

/// Progress of a simulation, of a recording or of reading a trace.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Progress {
    /// Instructions of each design of a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<String, u64>")]
    pub design_instructions: Option<BTreeMap<String, u64>>,
    /// Instructions that are done; of a run, by the slowest design.
    pub done: u64,
    /// Instructions in all, where that is known.
    pub total: Option<u64>,
    /// Present phase.
    pub phase: &'static str,
    /// Seconds since the start.
    pub seconds: f64,
}

/// The parts of the installation that this host has.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Installed {
    /// Host cores for simulations.
    pub cores: usize,
    /// Folder of the shipped files.
    pub data: String,
    /// The emulator's plugin.
    pub plugin: Plugin,
    /// The emulator of live programs.
    pub qemu: Emulator,
    /// CPU model that it gives programs, if it is there.
    pub cpu: Option<String>,
}

/// The emulator's plugin.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Plugin {
    /// Path of the file.
    pub path: String,
    /// True if there is such a file.
    pub present: bool,
}

/// The emulator of live programs; one of the two keys.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Emulator {
    /// Path of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub ok: Option<String>,
    /// Why live programs cannot be simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub err: Option<String>,
}

/// An answer to Python, which the schema has.
pub(crate) trait Answer: Serialize + JsonSchema {}

impl Answer for RunResult {}
impl<T: Answer> Answer for Vec<T> {}
impl<T: Answer> Answer for Option<T> {}

macro_rules! answers {
    ($($answer:ty),* $(,)?) => {
        $(impl Answer for $answer {})*

        /// JSON Schema of a run's result, as `--json` writes it, with all other answers among its
        /// definitions.
        pub(crate) fn schema() -> Schema {
            let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
            $(generator.subschema_for::<$answer>();)*
            generator.into_root_schema_for::<RunResult>()
        }
    };
}

answers! {
    Resolved,
    Shipped,
    &WorkloadInfo,
    ShortcutBuffers,
    Key,
    Definitions,
    Explanation,
    BTreeMap<&'static str, Vec<String>>,
    BTreeMap<&'static str, &'static str>,
    Progress,
    RecordResult,
    TraceInfo,
    TraceCheck,
    Converted,
    BlockVectors,
    Installed,
    HostProcessor,
    Measured,
}
