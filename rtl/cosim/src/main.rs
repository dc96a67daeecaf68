//! Compares the hardware with the simulator in runs of whole machines.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use pagewalk_machine::{Installation, RunSpec, Status};
use pagewalk_rtl::check::{self, Options, Totals};
use pagewalk_rtl::header::LATENCY;
use pagewalk_rtl::spec_engine::Variant;
use pagewalk_rtl::verilated;
use serde::Serialize;
use serde_json::{Value, json};

const USAGE: &str = "\
Usage: rtl-cosim --long [REQUESTS]
           Compare at least this number of requests (default 10,000,000) of five
           programs, and keep the sums in rtl/results.json
       rtl-cosim --cost
           Run the five programs with the hardware's latency and with the design's,
           and keep the cycles in rtl/results.json
       rtl-cosim --waveform FILE PROGRAM FIRST REQUESTS [SOURCE...]
           Write the waveform of these requests of a program to a VCD file;
           SOURCE: a netlist and its cells, in place of the sources in rtl/";

/// Programs with their sizes.
const PROGRAMS: [(&str, &str); 5] = [
    ("gups", "1GiB"),
    ("bfs", "512MiB"),
    ("xsbench", "512MiB"),
    ("kv-hash", "512MiB"),
    ("dlrm", "512MiB"),
];

/// Instructions of one run.
const INSTRUCTIONS: u64 = 5_000_000;

/// Instructions of a run that measures the cost of the latency.
const COST_INSTRUCTIONS: u64 = 1_000_000;

/// Runs a program on a machine whose engine compares.
fn run(program: &str, size: &str, instructions: u64, seed: u64) -> Result<Totals, String> {
    let design = format!(
        "revelator[engine.external.rtl={{latency={LATENCY},interval=1}},placement.tiered_hash.denied=0.5]"
    );
    let spec: RunSpec = serde_json::from_value(json!({
        "machine": "revelator-table1", "designs": [design], "seed": seed,
        "source": {"workload": {"name": program, "size": size}},
        "limits": {"instructions": instructions},
    }))
    .map_err(|error| error.to_string())?;
    let result = Installation::at(&pagewalk_rtl::root())
        .run(&spec, &mut |_| true)
        .map_err(|error| format!("{program}: {error}"))?;
    let design = &result.designs[0];
    match design.status {
        Status::Complete => Ok(check::take_totals()),
        _ => Err(format!("{program}: {:?}", design.message)),
    }
}

/// Sums of two runs.
fn add(a: Totals, b: Totals) -> Totals {
    Totals {
        requests: a.requests + b.requests,
        candidates: a.candidates + b.candidates,
        guesses: a.guesses + b.guesses,
        waited: a.waited + b.waited,
        cycles: a.cycles + b.cycles,
        writes: a.writes + b.writes,
    }
}

/// Replaces one section of rtl/results.json.
fn keep(section: &str, value: Value) -> io::Result<()> {
    let path = pagewalk_rtl::root().join("rtl/results.json");
    let kept = fs::read_to_string(&path).ok();
    let mut results = kept.map_or_else(|| json!({}), |text| text.parse().unwrap_or_default());
    results[section] = value;
    let mut text = Vec::new();
    let format = serde_json::ser::PrettyFormatter::with_indent(b" ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, format);
    results.serialize(&mut serializer)?;
    text.push(b'\n');
    fs::write(path, text)
}

/// Runs all programs in turn, each with a new seed in each round, and keeps the sums after each round.
fn long(requests: u64) -> Result<(), String> {
    check::install(Options::default());
    let mut sums = [Totals::default(); PROGRAMS.len()];
    let share = requests.div_ceil(PROGRAMS.len() as u64);
    for round in 1.. {
        let began = Instant::now();
        for ((program, size), sum) in PROGRAMS.into_iter().zip(&mut sums) {
            if sum.requests < share {
                *sum = add(*sum, run(program, size, INSTRUCTIONS, round)?);
            }
        }
        println!("round {round}: {:?}, {sums:?}", began.elapsed());
        let rows = PROGRAMS.into_iter().zip(&sums);
        let rows = rows.map(
            |((program, size), sum)| json!({"program": program, "size": size, "compared": sum}),
        );
        let all: u64 = sums.iter().map(|sum| sum.requests).sum();
        let value = json!({
            "programs": rows.collect::<Vec<_>>(), "requests": all, "differences": 0,
        });
        keep("cosimulation.spec_engine", value).map_err(|error| error.to_string())?;
        if sums.iter().all(|sum| sum.requests >= share) {
            break;
        }
    }
    Ok(())
}

/// Cycles of the programs with the engine of the design, and with the hardware's latency and interval.
fn cost() -> Result<(), String> {
    let hardware =
        format!("revelator[engine.revelator.latency={LATENCY},engine.revelator.interval=1]");
    let mut rows = Vec::new();
    for (program, size) in PROGRAMS {
        let spec: RunSpec = serde_json::from_value(json!({
            "machine": "revelator-table1", "designs": ["radix", "revelator", hardware],
            "source": {"workload": {"name": program, "size": size}},
            "limits": {"instructions": COST_INSTRUCTIONS, "warmup": COST_INSTRUCTIONS / 2},
        }))
        .map_err(|error| error.to_string())?;
        let result = Installation::at(&pagewalk_rtl::root())
            .run(&spec, &mut |_| true)
            .map_err(|error| format!("{program}: {error}"))?;
        let cycles: Vec<f64> = (result.designs.iter())
            .filter_map(|design| {
                let cycles = design.summary.iter().find(|m| m.name == "cycles");
                cycles.and_then(|m| m.value)
            })
            .collect();
        let [radix, design, hardware] = cycles[..] else {
            return Err(format!("{program}: a design has no cycles"));
        };
        println!(
            "{program}: radix {radix}, revelator {design}, with the hardware's times {hardware}"
        );
        rows.push(json!({
            "program": program, "size": size, "radix": radix, "revelator": design, "hardware": hardware,
        }));
    }
    let value = json!({
        "instructions": COST_INSTRUCTIONS, "latency": LATENCY, "interval": 1, "cycles": rows,
    });
    keep("cost.spec_engine", value).map_err(|error| error.to_string())
}

fn waveform(arguments: &[String]) -> Result<(), String> {
    let [file, program, first, requests, netlist @ ..] = arguments else {
        return Err(USAGE.to_owned());
    };
    let number = |text: &String| text.parse::<u64>().map_err(|_| USAGE.to_owned());
    let found = PROGRAMS.iter().find(|(name, _)| name == program);
    let (program, size) = found.ok_or_else(|| USAGE.to_owned())?;
    let (first, requests) = (number(first)?, number(requests)?);
    check::install(Options {
        variant: Variant {
            trace: true,
            netlist: netlist.iter().map(PathBuf::from).collect(),
            ..Variant::default()
        },
        waveform: Some((PathBuf::from(file), first, requests)),
        pauses: true,
    });
    // A miss comes after at most some hundred instructions.
    let totals = run(program, size, 200 * (first + requests), 1)?;
    if totals.requests < first + requests {
        return Err(format!("{program} has {} requests only", totals.requests));
    }
    println!("{totals:?}");
    Ok(())
}

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(package) = verilated::missing() {
        return Err(format!(
            "{package} is not installed (on Debian, as root: apt-get install {package})"
        ));
    }
    match arguments.split_first() {
        Some((option, [])) if option == "--long" => long(10_000_000),
        Some((option, [requests])) if option == "--long" => {
            long(requests.parse().map_err(|_| USAGE.to_owned())?)
        }
        Some((option, [])) if option == "--cost" => cost(),
        Some((option, rest)) if option == "--waveform" => waveform(rest),
        _ => Err(USAGE.to_owned()),
    }
}
