//! Speed and size of traces: recording, replay, and any trace file in `PAGEWALK_TRACE`.

use std::time::Instant;

use pagewalk_programs::{Options, build, parse_size};
use pagewalk_stream::{Batch, End};
use pagewalk_trace::{
    Header, OpenOptions, Recording, TraceWriter, block_vectors, open_trace, record,
};

fn replay(path: &std::path::Path) -> (u64, f64) {
    let mut program = open_trace(path, &OpenOptions::default()).unwrap();
    let mut batch = Batch::new();
    let mut instructions = 0;
    let begun = Instant::now();
    while program.fill(0, &mut batch).unwrap() != End::Exit {
        instructions += batch.instructions();
    }
    (instructions, begun.elapsed().as_secs_f64())
}

/// Instructions each second for the vectors from which regions are chosen.
fn vectors(path: &std::path::Path) -> f64 {
    let begun = Instant::now();
    let options = OpenOptions::default();
    let found = block_vectors(path, &options, 10_000_000, 1, &mut |_, _| true).unwrap();
    found.unwrap().instructions as f64 / begun.elapsed().as_secs_f64()
}

/// Milliseconds from opening the file to the first op after `skip` instructions.
fn seek(path: &std::path::Path, skip: u64) -> f64 {
    let begun = Instant::now();
    let mut program = open_trace(path, &OpenOptions::default()).unwrap();
    let (mut batch, mut left) = (Batch::new(), skip);
    while batch.ops.is_empty() {
        program.grant_fast_forward(left, u64::MAX);
        program.fill(0, &mut batch).unwrap();
        left = left.saturating_sub(batch.skipped.instructions);
    }
    begun.elapsed().as_secs_f64() * 1e3
}

fn seeks(path: &std::path::Path, instructions: u64) -> String {
    let at = |tenths| format!("{:.1}", seek(path, instructions * tenths / 10));
    [1, 5, 9].map(at).join(" / ")
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    println!(
        "{:<28} {:>16} {:>16} {:>16} {:>16} {:>24}",
        "trace",
        "record M insn/s",
        "replay M insn/s",
        "vectors M insn/s",
        "bytes/insn",
        "ms to 10 / 50 / 90 %"
    );
    for (name, size, params) in [
        ("gups", "4GiB", vec![]),
        ("bfs", "1GiB", vec![("graph", "uniform")]),
        ("bfs", "1GiB", vec![("graph", "kronecker")]),
    ] {
        let options = Options {
            size_bytes: Some(parse_size(size).unwrap()),
            threads: 1,
            seed: 0,
            params: params
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
        };
        let program = build(name, &options).unwrap();
        let path = dir.path().join("t.pwt");
        let header = Header::of(&program.facts(), 0, "");
        let writer = TraceWriter::create(&path, &header).unwrap();
        let begun = Instant::now();
        let recording = Recording::new(program, writer);
        let written = record(recording, Some(200_000_000), |_| true).unwrap();
        let recorded = begun.elapsed().as_secs_f64();
        let (instructions, seconds) = replay(&path);
        assert_eq!(instructions, written.instructions);
        println!(
            "{:<28} {:>16.1} {:>16.1} {:>16.1} {:>16.3} {:>24}",
            format!("{name} {size} {params:?}"),
            written.instructions as f64 / recorded / 1e6,
            instructions as f64 / seconds / 1e6,
            vectors(&path) / 1e6,
            written.bytes as f64 / written.instructions as f64,
            seeks(&path, instructions)
        );
    }
    if let Some(path) = std::env::var_os("PAGEWALK_TRACE") {
        let path = std::path::PathBuf::from(path);
        let bytes = std::fs::metadata(&path).unwrap().len();
        let (instructions, seconds) = replay(&path);
        println!(
            "{:<28} {:>16} {:>16.1} {:>16.1} {:>16.3} {:>24}",
            path.file_name().unwrap().to_string_lossy(),
            "",
            instructions as f64 / seconds / 1e6,
            vectors(&path) / 1e6,
            bytes as f64 / instructions as f64,
            seeks(&path, instructions)
        );
    }
}
