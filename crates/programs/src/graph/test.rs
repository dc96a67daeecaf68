//! Runs a kernel to its end, and keeps what it found.

use pagewalk_stream::Error;

use super::params::Setup;
use crate::drain::drain;
use crate::entry::{Options, Values};
use crate::info::WorkloadInfo;
use crate::program::Code;

/// A kernel that has run.
pub struct Run<A> {
    /// What it found.
    pub found: A,
    /// The same graph once more.
    pub setup: Setup,
    /// Ops of all threads.
    pub ops: u64,
}

/// Runs the kernel as `program` builds it; one thread after the other is asked.
pub fn run<A>(
    info: &'static WorkloadInfo,
    threads: u32,
    params: &[(&str, &str)],
    program: impl Fn(&Values<'_>) -> Result<(Code, A), Error>,
    setup: impl Fn(&Values<'_>) -> Result<Setup, Error>,
) -> Run<A> {
    let options = Options {
        threads,
        params: (params.iter())
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect(),
        ..Options::default()
    };
    let values = Values::new(info, &options);
    let (mut code, found) = program(&values).unwrap();
    let mut ops = 0;
    drain(&mut code, |batch| ops += batch.ops.len() as u64);
    Run {
        found,
        setup: setup(&values).unwrap(),
        ops,
    }
}
