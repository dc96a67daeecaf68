//! Compares the hardware with the simulator in runs of whole programs.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use pagewalk_machine::{Installation, RunSpec, Status};
use pagewalk_rtl::header::{L2P_SOURCE, LATENCY, SOURCE};
use pagewalk_rtl::spec_engine::Variant;
use pagewalk_rtl::verilated::Waveform;
use pagewalk_rtl::{check, l2p_check, stlt_check, verilated};
use serde::Serialize;
use serde_json::{Map, Value, json};

const USAGE: &str = "\
Usage: rtl-cosim --long BLOCK [REQUESTS]
           Compare at least this number of requests (default 10,000,000) of five
           programs, and keep the sums in rtl/results.json
       rtl-cosim --cost
           Run the five programs with the engine's latency and with the design's,
           and keep the cycles in rtl/results.json
       rtl-cosim --waveform BLOCK FILE PROGRAM FIRST REQUESTS
           Write the waveform of these requests of a program to a VCD file,
           from the reset on if FIRST is 0
BLOCK: spec_engine, stlt_unit or l2p";

/// A program that gives requests to a block.
#[derive(Clone, Copy)]
struct Driver {
    program: &'static str,
    size: &'static str,
    /// The simulated design; empty for the STLT unit, whose queries need none.
    design: &'static str,
}

/// Programs of the speculation engine.
const ENGINE: [Driver; 5] = drivers([
    ("gups", "1GiB", SOURCE.1),
    ("bfs", "512MiB", SOURCE.1),
    ("xsbench", "512MiB", SOURCE.1),
    ("kv-hash", "512MiB", SOURCE.1),
    ("dlrm", "512MiB", SOURCE.1),
]);

/// Programs of the STLT unit.
const STLT: [Driver; 5] = drivers([
    ("kv-hash", "64MiB", ""),
    ("kv-dense", "64MiB", ""),
    ("kv-map", "64MiB", ""),
    ("kv-btree", "64MiB", ""),
    ("kv-redis", "64MiB", ""),
]);

/// Programs of the L2P table.
const L2P: [Driver; 5] = drivers([
    ("gups", "1GiB", L2P_SOURCE.1),
    ("bfs", "512MiB", L2P_SOURCE.1),
    ("xsbench", "512MiB", L2P_SOURCE.1),
    ("kv-hash", "512MiB", "mehpt-thp"),
    ("dlrm", "512MiB", "mehpt-l2p"),
]);

const fn drivers(rows: [(&'static str, &'static str, &'static str); 5]) -> [Driver; 5] {
    let mut all = [Driver {
        program: "",
        size: "",
        design: "",
    }; 5];
    let mut i = 0;
    while i < all.len() {
        (all[i].program, all[i].size, all[i].design) = rows[i];
        i += 1;
    }
    all
}

/// Instructions of one run of a machine.
const INSTRUCTIONS: u64 = 5_000_000;

/// Queries of one run of the STLT unit, and rows of its table.
const QUERIES: u64 = 400_000;
const ROWS: u64 = 1 << 16;
/// Bytes of a key-value store, as in [`STLT`].
const STLT_BYTES: u64 = 64 << 20;

/// Instructions of a run that measures the cost of the latency.
const COST_INSTRUCTIONS: u64 = 1_000_000;

/// A block with its programs.
#[derive(Clone, Copy)]
enum Block {
    SpecEngine,
    StltUnit,
    L2p,
}

impl Block {
    fn named(name: &str) -> Result<Self, String> {
        match name {
            "spec_engine" => Ok(Block::SpecEngine),
            "stlt_unit" => Ok(Block::StltUnit),
            "l2p" => Ok(Block::L2p),
            _ => Err(USAGE.to_owned()),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Block::SpecEngine => "spec_engine",
            Block::StltUnit => "stlt_unit",
            Block::L2p => "l2p",
        }
    }

    fn drivers(self) -> [Driver; 5] {
        match self {
            Block::SpecEngine => ENGINE,
            Block::StltUnit => STLT,
            Block::L2p => L2P,
        }
    }

    /// Requests among these counts.
    fn requests(self, counts: &Map<String, Value>) -> u64 {
        let keys: &[&str] = match self {
            Block::SpecEngine => &["requests"],
            Block::StltUnit => &["loads", "inserts"],
            Block::L2p => &["walks"],
        };
        let count = |key: &&str| counts.get(*key).and_then(Value::as_u64).unwrap_or(0);
        keys.iter().map(count).sum()
    }

    /// Runs a program for so many instructions or queries, and compares. The counts of what was compared.
    fn run(
        self,
        driver: Driver,
        length: u64,
        seed: u64,
        waveform: Option<Waveform>,
    ) -> Result<Map<String, Value>, String> {
        let trace = waveform.is_some();
        let counts = match self {
            Block::SpecEngine => {
                check::install(check::Options {
                    variant: Variant {
                        waveform,
                        ..Variant::default()
                    },
                    pauses: trace,
                });
                let engine = format!(
                    "engine.external.rtl={{latency={LATENCY},interval=1}},placement.tiered_hash.denied=0.5"
                );
                simulate(SOURCE.0, driver, &engine, length, seed)?;
                serde_json::to_value(check::take_totals())
            }
            Block::StltUnit => {
                let Driver { program, .. } = driver;
                let waveform = waveform.as_ref();
                let totals = stlt_check::run(program, STLT_BYTES, length, ROWS, seed, waveform)?;
                serde_json::to_value(totals)
            }
            Block::L2p => {
                l2p_check::install(l2p_check::Options { waveform });
                simulate(
                    L2P_SOURCE.0,
                    driver,
                    "page_table.external.rtl={}",
                    length,
                    seed,
                )?;
                serde_json::to_value(l2p_check::take_totals())
            }
        };
        match counts {
            Ok(Value::Object(counts)) => Ok(counts),
            _ => Err("the counts are no numbers".to_owned()),
        }
    }
}

/// Runs a program on a machine that compares.
fn simulate(
    machine: &str,
    driver: Driver,
    set: &str,
    instructions: u64,
    seed: u64,
) -> Result<(), String> {
    let Driver {
        program,
        size,
        design,
    } = driver;
    let spec: RunSpec = serde_json::from_value(json!({
        "machine": machine, "designs": [format!("{design}[{set}]")], "seed": seed,
        "source": {"workload": {"name": program, "size": size}},
        "limits": {"instructions": instructions},
    }))
    .map_err(|error| error.to_string())?;
    let result = Installation::at(&pagewalk_rtl::root())
        .run(&spec, &mut |_| true)
        .map_err(|error| format!("{program}: {error}"))?;
    let design = &result.designs[0];
    match design.status {
        Status::Complete => Ok(()),
        _ => Err(format!("{program}: {:?}", design.message)),
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
    let partial = path.with_extension("json.new");
    fs::write(&partial, text)?;
    fs::rename(partial, path)
}

/// Runs all programs in turn, with a new seed in each round, and keeps the sums after each round.
fn long(block: Block, requests: u64) -> Result<(), String> {
    let drivers = block.drivers();
    let mut sums = [(); 5].map(|()| Map::new());
    let length = if matches!(block, Block::StltUnit) {
        QUERIES
    } else {
        INSTRUCTIONS
    };
    for round in 1.. {
        let began = Instant::now();
        for (driver, sum) in drivers.into_iter().zip(&mut sums) {
            for (name, count) in block.run(driver, length, round, None)? {
                let before = sum.get(&name).and_then(Value::as_u64).unwrap_or(0);
                let after = before + count.as_u64().unwrap_or(0);
                sum.insert(name, after.into());
            }
        }
        let all: u64 = sums.iter().map(|sum| block.requests(sum)).sum();
        println!("round {round}: {:?}, {all} requests", began.elapsed());
        let rows: Vec<Value> = (drivers.iter().zip(&sums))
            .map(|(driver, sum)| {
                json!({
                    "program": driver.program, "size": driver.size, "design": driver.design, "compared": sum,
                })
            })
            .collect();
        let value = json!({ "programs": rows, "requests": all, "differences": 0 });
        let section = format!("cosimulation.{}", block.name());
        keep(&section, value).map_err(|error| error.to_string())?;
        if all >= requests {
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
    for Driver { program, size, .. } in ENGINE {
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

fn waveform(block: Block, arguments: &[&str]) -> Result<(), String> {
    let [file, program, first, requests] = arguments else {
        return Err(USAGE.to_owned());
    };
    let number = |text: &str| text.parse::<u64>().map_err(|_| USAGE.to_owned());
    let drivers = block.drivers();
    let found = drivers.into_iter().find(|d| d.program == *program);
    let driver = found.ok_or_else(|| USAGE.to_owned())?;
    let (first, requests) = (number(first)?, number(requests)?);
    // A miss comes after at most some thousand instructions.
    let length = match block {
        Block::StltUnit => first + requests,
        Block::SpecEngine | Block::L2p => 5_000 * (first + requests),
    };
    let waveform = Waveform {
        file: PathBuf::from(file),
        first,
        requests,
    };
    let counts = block.run(driver, length, 1, Some(waveform))?;
    if block.requests(&counts) < first + requests {
        return Err(format!(
            "{program} has {} requests only",
            block.requests(&counts)
        ));
    }
    println!("{counts:?}");
    Ok(())
}

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(package) = verilated::missing() {
        return Err(format!(
            "{package} is not installed (on Debian, as root: apt-get install {package})"
        ));
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--long", block] => long(Block::named(block)?, 10_000_000),
        ["--long", block, requests] => {
            let requests = requests.parse().map_err(|_| USAGE.to_owned())?;
            long(Block::named(block)?, requests)
        }
        ["--cost"] => cost(),
        ["--waveform", block, ref rest @ ..] => waveform(Block::named(block)?, rest),
        _ => Err(USAGE.to_owned()),
    }
}
