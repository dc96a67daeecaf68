//! What users are told of a built-in program before it runs.

use serde::Serialize;

/// A parameter of a built-in program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ParamInfo {
    /// As given to `--param NAME=VALUE`.
    pub name: &'static str,
    /// What a value of 1 is one of; empty for names and switches.
    pub unit: &'static str,
    /// What holds when it is not given.
    pub default: &'static str,
    /// Values that are accepted.
    pub range: &'static str,
    /// What it changes, in one sentence.
    pub meaning: &'static str,
}

/// What there is to know of a built-in program before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WorkloadInfo {
    /// As given to `--workload`.
    pub name: &'static str,
    /// What it belongs to, for the list: `micro`, `graph`, `key-value` or `science`.
    pub group: &'static str,
    /// What it does, in one sentence.
    pub description: &'static str,
    /// What of the machine it stresses, in one sentence.
    pub stresses: &'static str,
    /// Where the algorithm comes from.
    pub source: &'static str,
    /// Footprint without `--size`, in bytes.
    pub default_size: u64,
    /// What `--size` accepts.
    pub size_range: &'static str,
    /// Most threads.
    pub max_threads: u32,
    /// What `--param` accepts.
    pub params: &'static [ParamInfo],
}

/// Of programs that initialise memory before the region of interest.
pub(crate) const POPULATE: ParamInfo = ParamInfo {
    name: "populate",
    unit: "",
    default: "yes",
    range: "yes, timed, no or a size",
    meaning: "Whether memory is initialised before the region of interest, in the order of the program and without simulated time; with timed, by simulated stores inside of the region of interest; with no, pages fault at their first access. With a size, so much of it as with yes, and of the rest each page is touched by a simulated store inside of the region of interest.",
};

/// Of the same programs.
pub(crate) const REGION: ParamInfo = ParamInfo {
    name: "region",
    unit: "",
    default: "all",
    range: "all, or initialisation with populate=timed or a size",
    meaning: "What the region of interest covers: all that is simulated, or the simulated initialisation alone.",
};
