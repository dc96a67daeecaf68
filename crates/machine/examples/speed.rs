//! How fast the engine is: million simulated instructions and memory operands
//! a second of processor time of one host core, for each built-in program.
//!
//!     cargo run --release -p pagewalk-machine --example speed [instructions [design [program [size]]]]

use std::path::Path;

use pagewalk_machine::{Installation, RunSpec};

const PROGRAMS: &[(&str, &str)] = &[
    ("gups", "64MiB"),
    ("gups", "1GiB"),
    ("gups", "64GiB"),
    ("bfs", "64MiB"),
    ("bfs", "1GiB"),
    ("bfs", "16GiB"),
];

/// Processor time of this process so far, all threads, seconds. The kernel
/// counts it in hundredths.
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
    let installation = Installation::at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    println!(
        "{:<14} {:>12} {:>12} {:>8} {:>10}",
        "program", "M insns/s", "M operands/s", "IPC", "set-up s"
    );
    let mut logs = Vec::new();
    for (name, size) in PROGRAMS {
        if only.as_ref().is_some_and(|o| o != name) || only_size.as_ref().is_some_and(|o| o != size)
        {
            continue;
        }
        let spec = |n: u64| -> RunSpec {
            serde_json::from_value(serde_json::json!({
                "machine": "revelator-table1", "designs": [design],
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
        // The set-up (graph, page tables) is the time of a run that measures next to nothing.
        let (set_up, _) = timed(1000);
        let (whole, r) = timed(instructions);
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
        logs.push(speed.ln());
        println!(
            "{:<14} {:>12.1} {:>12.1} {:>8.3} {:>10.1}",
            format!("{name} {size}"),
            speed,
            value("memory_operands") / seconds / 1e6,
            value("ipc"),
            set_up,
        );
    }
    println!(
        "geometric mean {:.1} M insns/s",
        (logs.iter().sum::<f64>() / logs.len() as f64).exp()
    );
}
