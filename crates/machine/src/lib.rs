//! Configuration, wiring, run loop and results. The only crate that depends on all others.
//!
//! Start with these files:
//!
//! - `run.rs`: designs and host threads
//! - `fanout.rs`: batches from one program to several machines
//! - `machine.rs`: one simulated machine
//! - `plan.rs`: the phases of a run

pub mod config;
mod energy;
mod estimate;
mod explain;
mod fanout;
mod installation;
mod intervals;
mod limits;
mod machine;
mod measure;
mod options;
mod os_text;
mod perfetto;
mod plan;
mod precise;
mod regions;
mod results;
mod reuse;
mod run;
mod session;
mod settled;
mod shards;
mod summary;
mod thread;
mod wake_signal;
mod warnings;
mod work;

/// Version of the model, increased whenever results change. Stored results of another version are not
/// comparable.
///
/// Messages, speed and new options do not change it. `tests/model.json` has results of this version, and
/// a test compares them.
pub const MODEL_VERSION: u32 = 11;

pub use energy::{
    ArrayEnergy, CacheEnergy, CoreEnergy, DramEnergy, EnergyResult, EnergySpec, EventEnergy, Group,
    OwnEnergy, PartEnergy,
};
pub use estimate::{Interval, Sampling, WarmingError};
pub use explain::{Explanation, FileSetting, explain, statistics, topics};
pub use installation::Installation;
pub use intervals::{Buckets, Column, HistogramColumn, HistogramResult, IntervalsResult};
pub use limits::{Limits, Sample, Warming};
pub use machine::{Account, Outcome};
pub use options::{Design, Machines, NewShortcut, OnMachine, Options, Precision};
pub use os_text::OsText;
pub use pagewalk_mmu::{INSERTIONS, STB_ENTRIES};
pub use pagewalk_os::INVALID_PAGES;
pub use regions::{MeasuredRegion, Region, Regions, RegionsResult};
pub use results::{
    DesignResult, Host, ProgramResult, Reference, RunResult, Settled, SourceInfo, Stat, Status,
    WorkUnit,
};
pub use run::{Progress, Stream, host_cores, run};
pub use session::{ProgramClock, RecordResult, RecordSpec, RunSpec, SourceSpec};
pub use shards::{RemoteEvent, RemoteHosts};
pub use summary::{Definition, Metric, MetricDefinition, Share, metrics, program_metrics};
