//! What a run is made of beside its programs: designs, and what is asked of them.

use std::path::PathBuf;

use pagewalk_tables::Shortcut;

use crate::config::Config;
use crate::limits::Limits;

/// A design to run: its name, what it says of itself, and the whole configuration.
#[derive(Clone, Debug)]
pub struct Design {
    /// For tables.
    pub name: String,
    /// One sentence.
    pub description: String,
    /// Machine and design, resolved.
    pub config: Config,
    /// Answers the program when it asks. A design with one gives replies.
    pub shortcut: Option<NewShortcut>,
}

/// Makes the shortcut of a machine that has just booted, from the run's seed.
pub type NewShortcut = fn(u64) -> Box<dyn Shortcut>;

/// Everything about a run but program and designs.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Name of the machine, for the result.
    pub machine: String,
    /// What is measured.
    pub limits: Limits,
    /// Seed of all random choices of the machine.
    pub seed: u64,
    /// Host threads; `None`: one for each host core, at most one a design.
    pub host_threads: Option<usize>,
    /// Instructions of an interval of the interval statistics.
    pub interval: Option<u64>,
    /// Where a Perfetto (Chrome JSON) file of single walks goes.
    pub perfetto: Option<PathBuf>,
    /// Walks to keep for each design in that file.
    pub perfetto_walks: usize,
}
