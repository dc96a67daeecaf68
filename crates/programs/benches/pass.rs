//! Speed at which the built-in programs fast-forward, and a digest of their touch summaries, which must not
//! depend on the implementation.

use std::collections::BTreeMap;
use std::hash::Hasher;

use pagewalk_programs::{Options, build};
use pagewalk_stream::{Batch, End};
use rustc_hash::FxHasher;

/// Programs in which `scripts/bench.py` fast-forwards.
const NAMES: [&str; 12] = [
    "gups", "bfs", "pr", "kv-hash", "kv-map", "kv-btree", "kv-redis", "xsbench", "dlrm", "kmer",
    "mummer", "sysbench",
];

const FEW: u64 = 1_000_000;

/// Processor time of this process so far, seconds.
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
    // `cargo bench -p pagewalk-programs --bench pass -- NAME [lines] [MILLIONS] [PARAMETER=VALUE...]`
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let numbers = arguments.iter().find_map(|a| a.parse::<u64>().ok());
    let many = numbers.unwrap_or(1000) * 1_000_000;
    let params: BTreeMap<String, String> = (arguments.iter())
        .filter_map(|a| a.split_once('='))
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    let lines = arguments.iter().any(|a| a == "lines");
    for name in NAMES {
        if arguments
            .first()
            .is_some_and(|a| !a.contains('=') && a != name)
        {
            continue;
        }
        let options = Options {
            params: params.clone(),
            ..Options::default()
        };
        let mut program = build(name, &options).unwrap();
        let mut batch = Batch::new();
        let (mut done, mut digest) = (0, FxHasher::default());
        let mut begun = processor_seconds();
        while done < FEW + many {
            let before = done;
            let left = FEW + many - done;
            if lines {
                program.grant_filtered_warming(left, u64::MAX);
            } else {
                program.grant_fast_forward(left, u64::MAX);
            }
            let end = program.fill(0, &mut batch).unwrap();
            done += batch.skipped.instructions;
            digest.write_u64(batch.skipped.ops);
            digest.write_u64(batch.skipped.instructions);
            for (at, access) in &batch.skipped.touched {
                digest.write_u64(*at);
                digest.write_u8(*access as u8);
            }
            if end == End::Exit {
                break;
            }
            if before < FEW && done >= FEW {
                begun = processor_seconds();
            }
        }
        let seconds = (processor_seconds() - begun).max(0.01);
        println!(
            "{name:<10} {:>8.1} M insn/s {:016x}",
            (done - FEW) as f64 / seconds / 1e6,
            digest.finish()
        );
    }
}
