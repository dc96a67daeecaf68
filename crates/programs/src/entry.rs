//! Construction of a built-in program: its entry in the registry, and its options.

use std::collections::BTreeMap;

use pagewalk_stream::{Error, Program};
use pagewalk_units::{RunOption, Text, nearest};

use crate::info::WorkloadInfo;
use crate::size::{format_size, parse_size};
use crate::thread::{Start, Touch};

/// A program's entry in the registry.
pub(crate) struct Entry {
    pub(crate) info: WorkloadInfo,
    pub(crate) build: fn(&Values<'_>) -> Result<Box<dyn Program>, Error>,
}

/// Options of a built-in program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Footprint in bytes. `None`: the program's default.
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

/// Reader of one program's options and parameters.
pub(crate) struct Values<'a> {
    info: &'static WorkloadInfo,
    pub(crate) options: &'a Options,
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

    /// The given value as text.
    pub(crate) fn text(&self, param: &str) -> Option<&str> {
        debug_assert!(
            self.info.params.iter().any(|p| p.name == param),
            "{param} is not a parameter of {}",
            self.info.name
        );
        self.options.params.get(param).map(String::as_str)
    }

    /// An error about `param` that names its accepted values.
    pub(crate) fn refuse(&self, param: &str, why: impl Into<Text>) -> Error {
        let range = self.info.params.iter().find(|p| p.name == param);
        let range = range.map_or("", |p| p.range);
        let given = self.text(param).unwrap_or("");
        Error::about(
            RunOption::Params,
            format!("parameter {param}={given}: "),
            why.into().and(format!("; expected {range}")),
        )
        .at(self.info.name)
    }

    /// A whole number, optionally with a size unit. `None` if not given.
    pub(crate) fn number(&self, param: &str) -> Result<Option<u64>, Error> {
        let parsed = self.text(param).map(parse_size).transpose();
        parsed.map_err(|_| self.refuse(param, "not a whole number"))
    }

    /// A whole number in `range`, or `default` if not given.
    pub(crate) fn number_in(
        &self,
        param: &str,
        range: std::ops::RangeInclusive<u64>,
        default: u64,
    ) -> Result<u64, Error> {
        match self.number(param)? {
            None => Ok(default),
            Some(n) if range.contains(&n) => Ok(n),
            Some(_) => Err(self.refuse(param, "out of range")),
        }
    }

    /// Initialisation as given by [`POPULATE`](crate::info::POPULATE) and [`REGION`](crate::info::REGION).
    pub(crate) fn start(&self) -> Result<Start, Error> {
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

    /// One of `choices`, or `default` if not given.
    pub(crate) fn choice(
        &self,
        param: &str,
        choices: &[&'static str],
        default: &'static str,
    ) -> Result<&'static str, Error> {
        let Some(given) = self.text(param) else {
            return Ok(default);
        };
        choices
            .iter()
            .find(|c| **c == given)
            .copied()
            .ok_or_else(|| self.refuse(param, did_you_mean(given, choices.iter().copied())))
    }

    /// An error about `--size`.
    pub(crate) fn refuse_size(&self, bytes: u64, why: impl Into<Text>) -> Error {
        Error::about(
            RunOption::Size,
            format!("size {}: ", format_size(bytes)),
            why.into()
                .and(format!("; expected {}", self.info.size_range)),
        )
        .at(self.info.name)
    }

    /// The requested footprint in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.options.size_bytes.unwrap_or(self.info.default_size)
    }
}

/// "did you mean …" if a name is near enough, else the list of all names.
pub(crate) fn did_you_mean<'a>(
    given: &str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> String {
    match nearest(given, names.clone()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("there are: {}", names.collect::<Vec<_>>().join(", ")),
    }
}
