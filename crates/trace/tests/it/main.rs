//! Traces from outside: recordings come back exactly, and damage is reported with its place.

mod champsim;
mod convert;
mod damage;
mod drmemtrace;
mod fast_forward;
mod formats;
mod gem5;
mod lackey;
mod pwt;
mod steps;
mod vectors;
#[path = "../../../programs/tests/waits/mod.rs"]
mod waits;
mod x86;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pagewalk_programs::{Options, build};
use pagewalk_stream::{Batch, End, Event, Op, Program};
use pagewalk_trace::{Header, OpenOptions, Recording, TraceWriter, open_trace, record};

use crate::waits::Waits;

/// The built-in program `name`.
pub fn program(name: &str, threads: u32, params: &[(&str, &str)]) -> Box<dyn Program> {
    let params = params.iter();
    let options = Options {
        size_bytes: (name == "gups").then_some(1 << 24),
        threads,
        seed: 4,
        params: params
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect(),
    };
    build(name, &options).unwrap()
}

/// Records `program` into a file of `dir`, up to `limit` instructions.
pub fn recorded(dir: &Path, program: Box<dyn Program>, limit: Option<u64>) -> PathBuf {
    let path = dir.join("t.pwt");
    let header = Header::of(&program.facts(), 4, "a test");
    let writer = TraceWriter::create(&path, &header).unwrap();
    record(Recording::new(program, writer), limit, |_| true).unwrap();
    path
}

/// Ops and marks of each thread.
pub type Streams = BTreeMap<u32, (Vec<Op>, Vec<(usize, End)>)>;

/// Reads the threads in turn; with an error, the ops and marks before it.
pub fn try_drain(program: &mut dyn Program) -> (Streams, Option<String>) {
    let mut streams = Streams::new();
    let mut live = vec![0];
    let mut batch = Batch::new();
    let mut waits = Waits::default();
    while !live.is_empty() {
        let free = waits.free(&live);
        assert!(!free.is_empty(), "all wait");
        for thread in free {
            let end = match program.fill(thread, &mut batch) {
                Ok(end) => end,
                Err(error) => return (streams, Some(error.to_string())),
            };
            assert!(batch.ops.len() <= pagewalk_stream::BATCH_OPS);
            waits.see(thread, &batch, &end);
            let (ops, marks) = streams.entry(thread).or_default();
            ops.extend_from_slice(&batch.ops);
            match &end {
                End::Event { event, .. } => {
                    if let Event::Spawn { thread } | Event::Fork { thread, .. } = event {
                        live.push(*thread);
                    }
                    marks.push((ops.len(), end.clone()));
                }
                End::Exit => {
                    live.retain(|t| *t != thread);
                    marks.push((ops.len(), End::Exit));
                }
                _ => {}
            }
        }
    }
    (streams, None)
}

/// Runs `program` to its end.
pub fn drain(program: &mut dyn Program) -> Streams {
    let (streams, error) = try_drain(program);
    assert_eq!(error, None);
    streams
}

/// Opens the trace at `path`.
pub fn opened(path: &Path) -> Box<dyn Program> {
    open_trace(path, &OpenOptions::default()).unwrap()
}

/// The error for the trace at `path`.
pub fn refused(path: &Path, options: &OpenOptions) -> String {
    match open_trace(path, options) {
        Ok(mut program) => try_drain(program.as_mut()).1.expect("a fault"),
        Err(error) => error.to_string(),
    }
}

/// Instructions of all threads.
pub fn instructions(streams: &Streams) -> u64 {
    let ops = streams.values().flat_map(|(ops, _)| ops);
    ops.map(|o| u64::from(o.insns)).sum()
}
