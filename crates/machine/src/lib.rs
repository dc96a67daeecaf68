//! Configuration, wiring, the run loop and results: the only crate that knows
//! all the others.

pub mod config;
mod explain;
mod hub;
mod limits;
mod machine;
mod measure;
mod perfetto;
mod results;
mod run;
mod session;
mod summary;
mod thread;

pub use explain::{Explanation, explain, statistics};
pub use limits::{Limits, Sample};
pub use machine::Outcome;
pub use results::{DesignResult, Host, IntervalResult, RunResult, Sampling, Share, Source, Stat};
pub use run::{Design, Options, Progress, RunError, host_cores, run};
pub use session::{Installation, RecordResult, RecordSpec, RunSpec, SourceSpec};
pub use summary::{METRICS, Metric, MetricDefinition};
