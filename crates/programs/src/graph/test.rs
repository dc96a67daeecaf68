//! Runs a kernel to its end and keeps its results, for tests.

use pagewalk_stream::Error;

use super::params::Setup;
use crate::drain::drain;
use crate::entry::{Options, Values};
use crate::info::WorkloadInfo;
use crate::program::Code;

/// A finished kernel.
pub struct Run<A> {
    /// Its results.
    pub found: A,
    /// A second copy of its graph and options.
    pub setup: Setup,
    /// Number of ops of all threads.
    pub ops: u64,
}

/// Runs the kernel that `program` builds, with its threads in turn.
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
