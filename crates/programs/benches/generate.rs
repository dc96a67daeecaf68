//! Speed at which the built-in programs generate instructions: it must be well above the engine's speed.

use pagewalk_programs::{Options, build, parse_size};
use pagewalk_stream::{Backing, Batch, End, Event, OpClass, Program};

/// A graph as large as GraphBIG's LDBC graph.
const LDBC_SIZE: [(&str, &str); 4] = [
    ("layout", "graphbig"),
    ("graph", "uniform"),
    ("vertices", "1000000"),
    ("degree", "29"),
];

/// A graph of the same size with LDBC's degrees and communities.
const LDBC: [(&str, &str); 3] = [
    ("layout", "graphbig"),
    ("graph", "ldbc"),
    ("vertices", "1000000"),
];

/// Runs the initialisation. Returns the mapped bytes.
fn initialise(program: &mut dyn Program, batch: &mut Batch) -> u64 {
    let mut bytes = 0;
    loop {
        let End::Event { event, .. } = program.fill(0, batch).unwrap() else {
            continue;
        };
        match event {
            Event::Map {
                bytes: more,
                backing: Backing::Anonymous,
                ..
            } => bytes += more,
            Event::Unmap { bytes: less, .. } => bytes -= less,
            Event::RoiBegin => return bytes,
            _ => {}
        }
    }
}

/// Processor time of this process in seconds, which a busy host does not change. The kernel counts it in
/// hundredths.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    let field = |n| {
        let mut fields = after_name.split_whitespace();
        fields.nth(n).unwrap().parse::<f64>().unwrap()
    };
    (field(11) + field(12)) / 100.0
}

fn main() {
    println!(
        "{:<60} {:>8} {:>9} {:>10} {:>9} {:>10}",
        "program", "ready s", "GB", "M insn/s", "M ops/s", "refs/insn"
    );
    // `cargo bench -p pagewalk-programs --bench generate -- NAME` for one program.
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
        ("bfs", "1GiB", 1, vec![("layout", "graphbig")]),
        ("bfs", "", 1, LDBC_SIZE.to_vec()),
        ("bfs", "", 4, LDBC_SIZE.to_vec()),
        ("bfs", "64GiB", 1, vec![("layout", "graphbig")]),
        ("dfs", "", 1, LDBC_SIZE.to_vec()),
        ("cc", "", 1, LDBC_SIZE.to_vec()),
        ("cc", "", 4, LDBC_SIZE.to_vec()),
        ("dc", "", 1, LDBC_SIZE.to_vec()),
        ("dc", "", 4, LDBC_SIZE.to_vec()),
        ("pr", "4GiB", 1, vec![]),
        ("pr", "4GiB", 4, vec![("direction", "push")]),
        ("pr", "", 1, LDBC.to_vec()),
        ("sssp", "4GiB", 1, vec![("weights", "random")]),
        ("sssp", "", 1, LDBC.to_vec()),
        ("sssp", "", 4, LDBC.to_vec()),
        ("gc", "4GiB", 1, vec![]),
        ("gc", "", 1, LDBC.to_vec()),
        ("tc", "128MiB", 1, vec![]),
        ("tc", "", 1, LDBC.to_vec()),
        ("bc", "4GiB", 1, vec![]),
        ("bc", "", 1, LDBC.to_vec()),
        ("bc", "", 4, LDBC.to_vec()),
        ("xsbench", "6GiB", 1, vec![]),
        ("xsbench", "100GiB", 1, vec![("method", "event")]),
        ("dlrm", "10GiB", 1, vec![]),
        ("dlrm", "10GiB", 4, vec![("dim", "16")]),
        ("churn", "1GiB", 1, vec![]),
        ("kmer", "9GiB", 1, vec![]),
        ("kmer", "9GiB", 1, vec![("coverage", "10000")]),
        ("mummer", "64MiB", 1, vec![]),
        ("mummer", "1GiB", 1, vec![]),
        ("kv-hash", "", 1, vec![("keys", "10000000")]),
        ("kv-hash", "", 1, vec![("keys", "1000000"), ("sets", "50")]),
        ("kv-dense", "", 1, vec![("keys", "10000000")]),
        ("kv-map", "", 1, vec![("keys", "10000000")]),
        ("kv-btree", "", 1, vec![("keys", "10000000")]),
        ("kv-flat", "", 1, vec![("keys", "10000000")]),
        ("kv-redis", "", 1, vec![("keys", "10000000")]),
    ] {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let options = Options {
            size_bytes: (!size.is_empty()).then(|| parse_size(size).unwrap()),
            threads,
            seed: 0,
            params: params
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
        };
        let begun = processor_seconds();
        let mut program = build(name, &options).unwrap();
        let mut batch = Batch::new();
        let bytes = initialise(program.as_mut(), &mut batch);
        let ready = processor_seconds() - begun;
        let (mut instructions, mut ops, mut references) = (0, 0, 0);
        let begun = processor_seconds();
        'run: while instructions < 300_000_000 {
            for thread in 0..threads {
                if let End::Exit = program.fill(thread, &mut batch).unwrap() {
                    break 'run;
                }
                instructions += batch.instructions();
                ops += batch.ops.len() as u64;
                let memory = |k: OpClass| matches!(k, OpClass::Load | OpClass::Store);
                references += batch.ops.iter().filter(|o| memory(o.kind)).count();
            }
        }
        let seconds = (processor_seconds() - begun).max(0.01);
        println!(
            "{:<60} {ready:>8.3} {:>9.2} {:>10.1} {:>9.1} {:>10.3}",
            format!("{name} {size} {threads} thread(s) {params:?}"),
            bytes as f64 / 1e9,
            instructions as f64 / seconds / 1e6,
            ops as f64 / seconds / 1e6,
            references as f64 / instructions as f64,
        );
    }
}
