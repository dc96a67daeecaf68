//! Specifications of runs and recordings, as the command line and Python state them in JSON.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::Map;

use crate::options::{DEFAULT_SEED, Options};
use crate::os_text::{self, OsText};

/// Source of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SourceSpec {
    /// A built-in program.
    Workload {
        /// Name.
        name: String,
        /// Size, such as `4GiB`; without it, the program's default.
        #[serde(default)]
        size: Option<String>,
        /// Simulated threads.
        #[serde(default = "one")]
        threads: u32,
        /// Parameters of the program.
        #[serde(default)]
        params: BTreeMap<String, String>,
    },
    /// A recorded trace.
    Trace {
        /// The file.
        #[serde(with = "os_text::path")]
        path: PathBuf,
    },
    /// Any Linux x86-64 program.
    Program {
        /// The program and its arguments.
        argv: Vec<OsText>,
        /// CPU model of QEMU; without it, Pagewalk's choice.
        #[serde(default)]
        cpu: Option<String>,
        /// Time that its clocks show.
        #[serde(default)]
        clock: ProgramClock,
    },
    /// Several built-in programs and traces, as concurrent processes.
    Mix {
        /// One source for each program.
        programs: Vec<SourceSpec>,
    },
}

impl SourceSpec {
    /// Threads of the program, if they are known before it runs. A trace that cannot be read has none; the
    /// error appears when it is opened as a program.
    fn threads(&self) -> Option<u32> {
        match self {
            SourceSpec::Workload { threads, .. } => Some(*threads),
            // A pipe can be read only once.
            SourceSpec::Trace { path } if path.is_file() || path.is_dir() => {
                pagewalk_trace::trace_threads(path).ok().flatten()
            }
            SourceSpec::Trace { .. } | SourceSpec::Program { .. } => None,
            SourceSpec::Mix { programs } => {
                let each = programs.iter().map(|one| one.threads().unwrap_or(1));
                Some(each.fold(0, u32::saturating_add))
            }
        }
    }
}

/// Time that the clocks of a live program show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramClock {
    /// The emulator's, which is that of the host.
    #[default]
    Emulator,
    /// The simulated time of the first design.
    Simulated,
}

fn one() -> u32 {
    1
}

/// Specification of a run. In JSON its options are on the same level as the other keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunSpec {
    /// Designs by name or path.
    pub designs: Vec<String>,
    /// Settings `a.b=c`, on top of machine and design.
    pub set: Vec<String>,
    /// The program; not needed to resolve a configuration.
    pub source: Option<SourceSpec>,
    /// All other options.
    #[serde(flatten)]
    pub options: Options,
}

impl<'de> Deserialize<'de> for RunSpec {
    /// Refuses keys that neither this type nor [`Options`] has.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut all = Map::deserialize(from)?;
        let mut take = |key: &str| all.remove(key).unwrap_or_default();
        let (designs, set, source) = (take("designs"), take("set"), take("source"));
        let set: Option<Vec<String>> = serde_json::from_value(set).map_err(D::Error::custom)?;
        Ok(RunSpec {
            designs: serde_json::from_value(designs).map_err(D::Error::custom)?,
            set: set.unwrap_or_default(),
            source: serde_json::from_value(source).map_err(D::Error::custom)?,
            options: serde_json::from_value(all.into()).map_err(D::Error::custom)?,
        })
    }
}

fn default_seed() -> u64 {
    DEFAULT_SEED
}

/// Specification of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordSpec {
    /// The program.
    pub source: SourceSpec,
    /// Stop after this number of instructions.
    #[serde(default)]
    pub instructions: Option<u64>,
    /// Seed of the program's random choices.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Record the contents of a live program's memory, too.
    #[serde(default)]
    pub memory: bool,
}

/// The finished recording.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RecordResult {
    /// The file.
    #[serde(serialize_with = "os_text::shown")]
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// The program.
    pub source: String,
    /// True if it was stopped before the program's end and the requested length, or if the program died.
    pub partial: bool,
    /// Instructions of all threads.
    pub instructions: u64,
    /// Operations of all threads.
    pub ops: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Exit status of a live program.
    pub exit_status: Option<i32>,
    /// Processes that ended without exiting, one sentence each.
    pub died: Vec<String>,
    /// Programs that its processes executed and that could not be recorded, one sentence each.
    pub unseen: Vec<String>,
    /// Wall-clock seconds.
    pub seconds: f64,
}

impl RunSpec {
    /// Threads of its program, if they are known before the run.
    pub(crate) fn threads(&self) -> Option<u32> {
        self.source.as_ref()?.threads()
    }

    /// Options for this program.
    pub(crate) fn options(&self) -> Options {
        let mut options = self.options.clone();
        // The set-up of a built-in program is never measured, and the program always marks its region of
        // interest.
        options.limits.roi |= matches!(self.source, Some(SourceSpec::Workload { .. }));
        options
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::RunSpec;

    #[test]
    fn options_stand_beside_the_other_keys_and_what_is_neither_is_refused() {
        let text = json!({
            "machine": "m", "designs": ["a", "b"], "seed": 5, "limits": {"skip": 7},
        });
        let spec: RunSpec = serde_json::from_value(text).unwrap();
        assert_eq!((spec.designs.len(), spec.options.seed), (2, 5));
        assert_eq!(
            (spec.options.limits.skip, spec.options.perfetto_walks),
            (7, 10_000)
        );
        let again = serde_json::to_value(&spec).unwrap();
        assert_eq!(serde_json::from_value::<RunSpec>(again).unwrap(), spec);
        for (wrong, said) in [
            (json!({"designs": ["a"], "sed": 5}), "unknown field `sed`"),
            (
                json!({"designs": ["a"], "limits": {"skp": 5}}),
                "unknown field `skp`",
            ),
            (
                json!({"designs": ["a"], "source": {"workload": {"nam": 1}}}),
                "unknown field `nam`",
            ),
            (json!({"machine": "m"}), "null"),
        ] {
            let refused = serde_json::from_value::<RunSpec>(wrong).unwrap_err();
            assert!(refused.to_string().contains(said), "{refused}");
        }
    }
}
