//! Speed of the engine: million simulated instructions and memory operands for each second of processor
//! time of one host core, for each built-in program.
//!
//!     cargo run --release -p pagewalk-machine --example speed \
//!         [instructions [design [program [size [machine]]]]]

use std::path::Path;

use pagewalk_machine::{Installation, RunSpec};

/// Programs and sizes. Two programs range from cache-resident to far beyond all caches. The others have a
/// size whose set-up takes seconds.
const PROGRAMS: &[(&str, &str)] = &[
    ("gups", "64MiB"),
    ("gups", "1GiB"),
    ("gups", "64GiB"),
    ("bfs", "64MiB"),
    ("bfs", "1GiB"),
    ("bfs", "16GiB"),
    ("dfs", "256MiB"),
    ("cc", "256MiB"),
    ("dc", "256MiB"),
    ("pr", "256MiB"),
    ("sssp", "256MiB"),
    ("gc", "256MiB"),
    ("tc", "64MiB"),
    ("bc", "256MiB"),
    ("sysbench", "4GiB"),
    ("xsbench", "1GiB"),
    ("dlrm", "2GiB"),
    ("kmer", "1GiB"),
    ("mummer", "64MiB"),
    ("kv-hash", "256MiB"),
    ("kv-dense", "256MiB"),
    ("kv-map", "256MiB"),
    ("kv-btree", "256MiB"),
    ("kv-flat", "256MiB"),
    ("kv-redis", "256MiB"),
];

/// Programs to measure: [`PROGRAMS`], and the other built-in programs at their default sizes.
fn programs() -> Vec<(&'static str, String)> {
    let mut all: Vec<_> = PROGRAMS.iter().map(|&(n, s)| (n, s.to_owned())).collect();
    for info in pagewalk_programs::workloads() {
        if !all.iter().any(|p| p.0 == info.name) {
            all.push((info.name, info.default_size.to_string()));
        }
    }
    all
}

/// Geometric mean.
fn mean(of: &[f64]) -> f64 {
    (of.iter().map(|v| v.ln()).sum::<f64>() / of.len() as f64).exp()
}

/// Processor time of this process so far, all threads, in seconds. The kernel counts it in hundredths of
/// a second.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has /proc");
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let field = |n: usize| {
        after_name
            .split_whitespace()
            .nth(n)
            .and_then(|f| f.parse::<f64>().ok())
    };
    (field(11).unwrap_or(0.0) + field(12).unwrap_or(0.0)) / 100.0
}

fn main() {
    let mut args = std::env::args().skip(1);
    let instructions: u64 = args
        .next()
        .map_or(50_000_000, |a| a.parse().expect("a number of instructions"));
    let design = args.next().unwrap_or_else(|| "radix".to_owned());
    let only = args.next();
    let only_size = args.next();
    let machine = args.next();
    let machine = machine.as_deref().unwrap_or("revelator-table1");
    let installation = Installation::at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    println!(
        "{:<16} {:>12} {:>12} {:>8} {:>10}",
        "program", "M insns/s", "M operands/s", "IPC", "set-up s"
    );
    let mut speeds = Vec::new();
    let mut operand_speeds = Vec::new();
    for (name, size) in &programs() {
        if only.as_ref().is_some_and(|o| o != name) || only_size.as_ref().is_some_and(|o| o != size)
        {
            continue;
        }
        let spec = |n: u64| -> RunSpec {
            serde_json::from_value(serde_json::json!({
                "machine": machine, "designs": [design],
                "source": {"workload": {"name": name, "size": size}},
                "limits": {"instructions": n},
            }))
            .expect("a well-formed specification")
        };
        let timed = |n: u64| {
            let start = processor_seconds();
            let r = installation
                .run(&spec(n), &mut |_| true)
                .unwrap_or_else(|e| panic!("{name} {size}: {e}"));
            (processor_seconds() - start, r)
        };
        // The set-up time (graph, page tables) is that of a run with a minimal measured part. The minimum
        // of several runs, because other load on the host can only add time.
        let set_up = (0..3).map(|_| timed(1000).0).fold(f64::MAX, f64::min);
        let (first, _) = timed(instructions);
        let (second, r) = timed(instructions);
        let whole = first.min(second);
        let seconds = (whole - set_up).max(1e-9);
        let value = |n: &str| {
            r.designs[0]
                .summary
                .iter()
                .find(|m| m.name == n)
                .and_then(|m| m.value)
                .unwrap_or(0.0)
        };
        let speed = value("instructions") / seconds / 1e6;
        let operands = value("memory_operands") / seconds / 1e6;
        speeds.push(speed);
        operand_speeds.push(operands);
        println!(
            "{:<16} {:>12.1} {:>12.1} {:>8.3} {:>10.1}",
            format!("{name} {size}"),
            speed,
            operands,
            value("ipc"),
            set_up,
        );
    }
    println!(
        "{:<16} {:>12.1} {:>12.1}",
        "geometric mean",
        mean(&speeds),
        mean(&operand_speeds)
    );
}
