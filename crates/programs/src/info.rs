//! Descriptions of the built-in programs for users.

use schemars::JsonSchema;
use serde::Serialize;

/// A parameter of a built-in program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Parameter")]
pub struct ParamInfo {
    /// Name in `--param NAME=VALUE`.
    pub name: &'static str,
    /// Unit of a value; empty for names and switches.
    pub unit: &'static str,
    /// Value when it is not given.
    pub default: &'static str,
    /// Values that are accepted.
    pub range: &'static str,
    /// Effect in one sentence.
    pub meaning: &'static str,
}

/// A built-in program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Program")]
pub struct WorkloadInfo {
    /// Name in `--workload`.
    pub name: &'static str,
    /// Group in lists: `micro`, `graph`, `key-value` or `science`.
    pub group: &'static str,
    /// The program in one sentence.
    pub description: &'static str,
    /// The parts of the machine that it stresses, in one sentence.
    pub stresses: &'static str,
    /// Origin of the algorithm.
    pub source: &'static str,
    /// Footprint in bytes without `--size`.
    pub default_size: u64,
    /// Values of `--size`.
    pub size_range: &'static str,
    /// Most threads.
    pub max_threads: u32,
    /// Parameters for `--param`.
    pub params: &'static [ParamInfo],
}

/// Parameter of programs that initialise memory before the region of interest.
pub(crate) const POPULATE: ParamInfo = ParamInfo {
    name: "populate",
    unit: "",
    default: "yes",
    range: "yes, timed, no or a size",
    meaning: "Initialisation of memory before the region of interest, in the order of the program and without simulated time. With timed, simulated stores inside of the region of interest initialise it; with no, pages fault at their first access. With a size, that much is initialised as with yes, and a simulated store inside of the region of interest touches each page of the rest.",
};

/// Parameter of the same programs.
pub(crate) const REGION: ParamInfo = ParamInfo {
    name: "region",
    unit: "",
    default: "all",
    range: "all, or initialisation with populate=timed or a size",
    meaning: "Extent of the region of interest: all that is simulated, or the simulated initialisation alone.",
};
