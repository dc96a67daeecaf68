//! The built-in programs by name, with their parameters.

use std::collections::BTreeMap;

use pagewalk_stream::{Program, ProgramError};
use serde::Serialize;

use crate::builtin::{Start, Touch, churn, dlrm, graph, gups, kmer, kv, mummer, sysbench, xsbench};
use crate::size::{format_size, parse_size};

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

/// How a built-in program is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Footprint in bytes; the program's default when not given.
    pub size_bytes: Option<u64>,
    /// Threads, from 1.
    pub threads: u32,
    /// Seed of every random choice.
    pub seed: u64,
    /// Parameters by name, as text.
    pub params: BTreeMap<String, String>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            size_bytes: None,
            threads: 1,
            seed: 0,
            params: BTreeMap::new(),
        }
    }
}

/// Every built-in program, in the order in which they are listed to users.
pub fn workloads() -> impl Iterator<Item = &'static WorkloadInfo> + Clone {
    PROGRAMS.iter().map(|p| &p.info)
}

/// A program's line in the registry.
pub(crate) struct Entry {
    pub(crate) info: WorkloadInfo,
    pub(crate) build: fn(&Values<'_>) -> Result<Box<dyn Program>, ProgramError>,
}

static PROGRAMS: &[Entry] = &[
    gups::ENTRY,
    graph::bfs::ENTRY,
    graph::dfs::ENTRY,
    graph::cc::ENTRY,
    graph::dc::ENTRY,
    graph::pr::ENTRY,
    graph::sssp::ENTRY,
    graph::gc::ENTRY,
    graph::tc::ENTRY,
    graph::bc::ENTRY,
    sysbench::ENTRY,
    churn::ENTRY,
    xsbench::ENTRY,
    dlrm::ENTRY,
    kmer::ENTRY,
    mummer::ENTRY,
    kv::HASH,
    kv::DENSE,
    kv::MAP,
    kv::BTREE,
    kv::REDIS,
];

/// The built-in program `name`.
///
/// # Errors
/// An unknown name or parameter (with the nearest right one), a value out of
/// its range, or more threads than the program has use for.
pub fn build(name: &str, options: &Options) -> Result<Box<dyn Program>, ProgramError> {
    let Some(program) = PROGRAMS.iter().find(|p| p.info.name == name) else {
        return Err(error(format!(
            "no built-in program `{name}`; {}",
            nearest(name, workloads().map(|w| w.name))
        )));
    };
    let info = &program.info;
    if !(1..=info.max_threads).contains(&options.threads) {
        return Err(error(format!(
            "{name}: {} threads; expected 1 to {}",
            options.threads, info.max_threads
        )));
    }
    for given in options.params.keys() {
        if !info.params.iter().any(|p| p.name == given) {
            return Err(error(format!(
                "{name} has no parameter `{given}`; {}",
                nearest(given, info.params.iter().map(|p| p.name))
            )));
        }
    }
    (program.build)(&Values::new(info, options))
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

/// The options of one program, read with its parameter table.
pub(crate) struct Values<'a> {
    info: &'static WorkloadInfo,
    pub(crate) options: &'a Options,
}

#[cfg(test)]
pub(crate) fn info(name: &str) -> Option<&'static WorkloadInfo> {
    workloads().find(|w| w.name == name)
}

impl<'a> Values<'a> {
    pub(crate) fn new(info: &'static WorkloadInfo, options: &'a Options) -> Self {
        Values { info, options }
    }
}

impl Values<'_> {
    /// The program's name.
    pub(crate) fn name(&self) -> &'static str {
        self.info.name
    }

    /// What was given, as text.
    pub(crate) fn text(&self, param: &str) -> Option<&str> {
        debug_assert!(
            self.info.params.iter().any(|p| p.name == param),
            "{param} is not a parameter of {}",
            self.info.name
        );
        self.options.params.get(param).map(String::as_str)
    }

    /// An error about `param` that says what was expected.
    pub(crate) fn refuse(&self, param: &str, why: &str) -> ProgramError {
        let range = self.info.params.iter().find(|p| p.name == param);
        let range = range.map_or("", |p| p.range);
        error(format!(
            "{}: parameter {param}={}: {why}; expected {range}",
            self.info.name,
            self.text(param).unwrap_or("")
        ))
    }

    /// A whole number (a size unit is understood), or `None` when not given.
    pub(crate) fn number(&self, param: &str) -> Result<Option<u64>, ProgramError> {
        let parsed = self.text(param).map(parse_size).transpose();
        parsed.map_err(|_| self.refuse(param, "not a whole number"))
    }

    /// A whole number in `range`, or `default` when not given.
    pub(crate) fn number_in(
        &self,
        param: &str,
        range: std::ops::RangeInclusive<u64>,
        default: u64,
    ) -> Result<u64, ProgramError> {
        match self.number(param)? {
            None => Ok(default),
            Some(n) if range.contains(&n) => Ok(n),
            Some(_) => Err(self.refuse(param, "out of range")),
        }
    }

    /// The values of [`POPULATE`] and [`REGION`].
    pub(crate) fn start(&self) -> Result<Start, ProgramError> {
        let touch = match self.text("populate") {
            None | Some("yes") => Touch::Bulk,
            Some("timed") => Touch::Stores,
            Some("no") => Touch::Never,
            Some(given) => match parse_size(given) {
                Ok(bytes) => Touch::Part(bytes),
                Err(_) => return Err(self.refuse("populate", "neither a choice nor a size")),
            },
        };
        let alone = self.choice("region", &["all", "initialisation"], "all")? == "initialisation";
        if alone && !touch.is_timed() {
            return Err(self.refuse("region", "no initialisation is simulated"));
        }
        Ok(Start { touch, alone })
    }

    /// One of `choices`, or `default` when not given.
    pub(crate) fn choice(
        &self,
        param: &str,
        choices: &[&'static str],
        default: &'static str,
    ) -> Result<&'static str, ProgramError> {
        let Some(given) = self.text(param) else {
            return Ok(default);
        };
        choices
            .iter()
            .find(|c| **c == given)
            .copied()
            .ok_or_else(|| self.refuse(param, &nearest(given, choices.iter().copied())))
    }

    /// An error about `--size`.
    pub(crate) fn refuse_size(&self, bytes: u64, why: &str) -> ProgramError {
        error(format!(
            "{}: size {}: {why}; expected {}",
            self.info.name,
            format_size(bytes),
            self.info.size_range
        ))
    }

    /// The footprint asked for, in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.options.size_bytes.unwrap_or(self.info.default_size)
    }
}

pub(crate) fn error(message: String) -> ProgramError {
    ProgramError { message }
}

/// "did you mean …" when something is near enough, else all of them.
fn nearest<'a>(given: &str, names: impl Iterator<Item = &'a str> + Clone) -> String {
    let best = names
        .clone()
        .map(|n| (strsim::jaro_winkler(given, n), n))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        Some((score, name)) if score > 0.7 => format!("did you mean `{name}`?"),
        _ => format!("there are: {}", names.collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str, options: &Options) -> String {
        match build(name, options) {
            Ok(_) => panic!("{name} accepted {options:?}"),
            Err(e) => e.message,
        }
    }

    fn with(params: &[(&str, &str)]) -> Options {
        Options {
            params: params
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
            ..Options::default()
        }
    }

    #[test]
    fn every_listed_program_builds_with_its_defaults() {
        for info in workloads() {
            // A small graph: those of the default size are generated for minutes.
            let options = match info.group {
                "graph" => with(&[("scale", "12")]),
                _ => Options::default(),
            };
            let facts = build(info.name, &options).unwrap().facts();
            assert!(facts.deterministic && facts.has_roi);
            assert!(facts.name.starts_with(info.name), "{}", facts.name);
        }
    }

    #[test]
    fn mistakes_name_the_nearest_right_thing() {
        assert!(refused("gusp", &Options::default()).contains("`gups`"));
        assert!(refused("zzz", &Options::default()).contains("gups, bfs, dfs"));
        assert!(refused("gups", &with(&[("update", "5")])).contains("`updates`"));
        assert!(refused("bfs", &with(&[("graph", "kroneker")])).contains("`kronecker`"));
        assert!(refused("bfs", &with(&[("scale", "99")])).contains("12 to 31"));
        assert!(refused("bfs", &with(&[("scale", "many")])).contains("whole number"));
    }

    #[test]
    fn threads_and_sizes_out_of_range_are_refused() {
        for threads in [0, 17] {
            let options = Options {
                threads,
                ..Options::default()
            };
            assert!(refused("gups", &options).contains("1 to 16"));
        }
        let options = Options {
            size_bytes: Some(3 << 30),
            ..Options::default()
        };
        assert!(refused("gups", &options).contains("power of two"));
    }
}
