//! Configuration, wiring, the run loop and results: the only crate that knows
//! all the others.

pub mod config;
mod energy;
mod explain;
mod hub;
mod intervals;
mod limits;
mod machine;
mod measure;
mod options;
mod os_text;
mod perfetto;
mod plan;
mod results;
mod run;
mod session;
mod summary;
mod thread;
mod warnings;
mod work;

pub use energy::{
    ArrayEnergy, CacheEnergy, CoreEnergy, DramEnergy, EnergyResult, EnergySpec, EventEnergy, Group,
    OwnEnergy, PartEnergy,
};
pub use explain::{Explanation, explain, statistics};
pub use intervals::{Buckets, Column, HistogramColumn, HistogramResult, IntervalsResult};
pub use limits::{Limits, Sample};
pub use machine::Outcome;
pub use options::{Design, NewShortcut, Options};
pub use os_text::OsText;
pub use pagewalk_mmu::{INSERTIONS, STB_ENTRIES};
pub use pagewalk_os::INVALID_PAGES;
pub use results::{
    DesignResult, Host, ProgramResult, Reference, RunResult, Sampling, Source, Stat,
};
pub use run::{Progress, RunError, Stream, host_cores, run};
pub use session::{Installation, RecordResult, RecordSpec, RunSpec, SourceSpec};
pub use summary::{Metric, MetricDefinition, Share, metrics};
