//! How fast the built-in programs give instructions: it must be well above the
//! engine's speed.

use std::time::Instant;

use pagewalk_stream::Batch;
use pagewalk_workload::{Options, build, parse_size};

fn main() {
    println!(
        "{:<44} {:>10} {:>12} {:>10}",
        "program", "build s", "M insn/s", "M ops/s"
    );
    // `cargo bench -p pagewalk-workload --bench generate -- NAME` for one program.
    let only = std::env::args().nth(1).filter(|a| !a.starts_with('-'));
    for (name, size, threads, params) in [
        ("gups", "4GiB", 1, vec![]),
        ("gups", "1TiB", 1, vec![]),
        (
            "gups",
            "8GiB",
            1,
            vec![("variant", "check"), ("chunk", "1000000")],
        ),
        ("bfs", "64MiB", 1, vec![("graph", "uniform")]),
        ("bfs", "64MiB", 1, vec![("graph", "kronecker")]),
        ("bfs", "4GiB", 1, vec![("graph", "uniform")]),
        ("bfs", "4GiB", 1, vec![("graph", "kronecker")]),
        ("bfs", "4GiB", 4, vec![("graph", "kronecker")]),
        ("xsbench", "6GiB", 1, vec![]),
        ("xsbench", "100GiB", 1, vec![("method", "event")]),
        ("dlrm", "10GiB", 1, vec![]),
        ("dlrm", "10GiB", 4, vec![("dim", "16")]),
        ("kmer", "9GiB", 1, vec![]),
        ("kmer", "9GiB", 1, vec![("coverage", "10000")]),
    ] {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let options = Options {
            size_bytes: Some(parse_size(size).unwrap()),
            threads,
            seed: 0,
            params: params
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
        };
        let begun = Instant::now();
        let mut program = build(name, &options).unwrap();
        let built = begun.elapsed().as_secs_f64();
        let mut batch = Batch::new();
        let (mut instructions, mut ops) = (0, 0);
        let begun = Instant::now();
        'run: while instructions < 300_000_000 {
            for thread in 0..threads {
                if let pagewalk_stream::End::Exit = program.fill(thread, &mut batch).unwrap() {
                    break 'run;
                }
                instructions += batch.instructions();
                ops += batch.ops.len() as u64;
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "{:<44} {built:>10.3} {:>12.1} {:>10.1}",
            format!("{name} {size} {threads} thread(s) {params:?}"),
            instructions as f64 / seconds / 1e6,
            ops as f64 / seconds / 1e6
        );
    }
}
