//! Compares the hardware with the simulator in runs of whole programs.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use pagewalk_machine::{DesignResult, Installation, RunSpec, Status};
use pagewalk_rtl::header::{L2P_SOURCE, SOURCE, latency};
use pagewalk_rtl::spec_engine::Variant;
use pagewalk_rtl::verilated::Waveform;
use pagewalk_rtl::{check, l2p_check, stlt_check, verilated};
use pagewalk_structures::TierFunction;
use pagewalk_tables::StltSpec;
use serde::Serialize;
use serde_json::{Map, Value, json};

const USAGE: &str = "\
Usage: rtl-cosim --long BLOCK [REQUESTS]
           Compare at least this number of requests (default 10,000,000) of five
           programs, and keep the sums under this name in rtl/results.json
       rtl-cosim --cost
           Run the five programs with the design's latency, and with each hash
           function at the engine's, and keep the cycles in rtl/results.json
       rtl-cosim --placement
           Place the pages of the five programs with each hash function, and keep
           the pages of each tier in rtl/results.json
       rtl-cosim --waveform BLOCK FILE PROGRAM FIRST REQUESTS
           Write the waveform of these requests of a program to a VCD file,
           from the reset on if FIRST is 0
BLOCK: spec_engine, stlt_unit or l2p, and parameters behind a colon, as in
       spec_engine:TIERS=3,HASH=2. TIERS: 1 to 6. HASH: 0 murmur,
       1 multiplicative, 2 crc. WAYS: 1, 2, 4 or 8 of stlt_unit, 2 to 4 of l2p";

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

/// Memory in GB of the machine whose pages are placed with each hash function, and size of the programs.
const PLACEMENT_GB: u64 = 2;
const PLACEMENT_SIZE: &str = "1GiB";
/// Shares of its frames that others have.
const PLACEMENT_OCCUPIED: [f64; 2] = [0.0, 0.4];

/// A block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    SpecEngine,
    StltUnit,
    L2p,
}

/// A block with its parameters.
#[derive(Clone, Copy)]
struct Block {
    kind: Kind,
    function: TierFunction,
    /// `None`: as in the header.
    tiers: Option<u64>,
    ways: Option<u8>,
}

impl Block {
    /// The block and the parameters of a text like `spec_engine:TIERS=3,HASH=2`.
    fn named(text: &str) -> Result<Self, String> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let kind = match name {
            "spec_engine" => Kind::SpecEngine,
            "stlt_unit" => Kind::StltUnit,
            "l2p" => Kind::L2p,
            _ => return Err(USAGE.to_owned()),
        };
        let mut block = Block {
            kind,
            function: TierFunction::default(),
            tiers: None,
            ways: None,
        };
        for one in parameters.split(',').filter(|one| !one.is_empty()) {
            let (name, value) = one.split_once('=').ok_or(USAGE)?;
            let value: u8 = value.parse().map_err(|_| USAGE)?;
            match (kind, name, value) {
                (Kind::SpecEngine, "TIERS", 1..=6) => block.tiers = Some(value.into()),
                (Kind::SpecEngine, "HASH", 0..=2) => {
                    block.function = TierFunction::ALL[usize::from(value)];
                }
                (Kind::StltUnit, "WAYS", 1 | 2 | 4 | 8) | (Kind::L2p, "WAYS", 2..=4) => {
                    block.ways = Some(value);
                }
                _ => return Err(format!("{text}: no such parameter or value\n{USAGE}")),
            }
        }
        Ok(block)
    }

    fn drivers(self) -> [Driver; 5] {
        match self.kind {
            Kind::SpecEngine => ENGINE,
            Kind::StltUnit => STLT,
            Kind::L2p => L2P,
        }
    }

    /// Requests among these counts.
    fn requests(self, counts: &Map<String, Value>) -> u64 {
        let keys: &[&str] = match self.kind {
            Kind::SpecEngine => &["requests"],
            Kind::StltUnit => &["loads", "inserts"],
            Kind::L2p => &["walks"],
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
        let counts = match self.kind {
            Kind::SpecEngine => {
                let Block {
                    function, tiers, ..
                } = self;
                check::install(check::Options {
                    variant: Variant {
                        tiers,
                        function,
                        waveform,
                    },
                    pauses: trace,
                });
                let latency = latency(function);
                let function = json!(function);
                let mut set = vec![
                    format!("engine.external.rtl={{latency={latency},interval=1}}"),
                    "placement.tiered_hash.denied=0.5".to_owned(),
                    format!("placement.tiered_hash.function={function}"),
                ];
                set.extend(tiers.map(|n| format!("placement.tiered_hash.tiers={n}")));
                simulate(SOURCE.0, driver, &set.join(","), length, seed)?;
                serde_json::to_value(check::take_totals())
            }
            Kind::StltUnit => {
                let Driver { program, .. } = driver;
                let waveform = waveform.as_ref();
                let mut spec = StltSpec::default();
                spec.ways = self.ways.map_or(spec.ways, u32::from);
                let totals =
                    stlt_check::run(program, STLT_BYTES, length, spec, ROWS, seed, waveform)?;
                serde_json::to_value(totals)
            }
            Kind::L2p => {
                l2p_check::install(l2p_check::Options { waveform });
                let ways = self.ways.map(|n| format!("ways={n}")).unwrap_or_default();
                let set = format!("page_table.external.rtl={{{ways}}}");
                simulate(L2P_SOURCE.0, driver, &set, length, seed)?;
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
fn long(name: &str, requests: u64) -> Result<(), String> {
    let block = Block::named(name)?;
    let drivers = block.drivers();
    let mut sums = [(); 5].map(|()| Map::new());
    let length = if block.kind == Kind::StltUnit {
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
        let section = format!("cosimulation.{name}");
        keep(&section, value).map_err(|error| error.to_string())?;
        if all >= requests {
            break;
        }
    }
    Ok(())
}

/// Name of a hash function in configurations.
fn key(function: TierFunction) -> String {
    json!(function).as_str().unwrap_or_default().to_owned()
}

/// Runs a program with these designs.
fn designs(driver: Driver, designs: &[String]) -> Result<Vec<DesignResult>, String> {
    let Driver { program, size, .. } = driver;
    let spec: RunSpec = serde_json::from_value(json!({
        "machine": SOURCE.0, "designs": designs,
        "source": {"workload": {"name": program, "size": size}},
        "limits": {"instructions": COST_INSTRUCTIONS, "warmup": COST_INSTRUCTIONS / 2},
    }))
    .map_err(|error| error.to_string())?;
    let result = Installation::at(&pagewalk_rtl::root()).run(&spec, &mut |_| true);
    Ok(result
        .map_err(|error| format!("{program}: {error}"))?
        .designs)
}

/// Cycles of the programs with the engine of the design, and with the hash functions at the hardware's latency
/// and interval.
fn cost() -> Result<(), String> {
    let hardware = TierFunction::ALL.map(|function| {
        format!(
            "revelator[placement.tiered_hash.function=\"{}\",engine.revelator.latency={},\
             engine.revelator.interval=1]",
            key(function),
            latency(function)
        )
    });
    let all = [&["radix", "revelator"].map(str::to_owned)[..], &hardware].concat();
    let names = ["radix", "revelator"].map(str::to_owned).into_iter();
    let names: Vec<String> = names.chain(TierFunction::ALL.map(key)).collect();
    let mut rows = Vec::new();
    for driver in ENGINE {
        let Driver { program, size, .. } = driver;
        let mut row = json!({ "program": program, "size": size });
        for (name, design) in names.iter().zip(designs(driver, &all)?) {
            let cycles = design.summary.iter().find(|m| m.name == "cycles");
            let cycles = cycles.and_then(|m| m.value);
            row[name] = cycles
                .ok_or_else(|| format!("{program}: {name} has no cycles"))?
                .into();
        }
        println!("{row}");
        rows.push(row);
    }
    let latencies: Map<String, Value> = (TierFunction::ALL.into_iter())
        .map(|function| (key(function), latency(function).into()))
        .collect();
    let value = json!({
        "instructions": COST_INSTRUCTIONS, "latency": latencies, "interval": 1, "cycles": rows,
    });
    keep("cost.spec_engine", value).map_err(|error| error.to_string())
}

/// Places the programs' pages with each hash function, in an empty memory and in one whose frames are in use
/// in part.
fn placement() -> Result<(), String> {
    let mut rows = Vec::new();
    for occupied in PLACEMENT_OCCUPIED {
        let all = TierFunction::ALL.map(|function| {
            format!(
                "revelator[os.memory_gb={PLACEMENT_GB},os.occupied={occupied},\
                 placement.tiered_hash.function=\"{}\"]",
                key(function)
            )
        });
        for driver in ENGINE {
            let driver = Driver {
                size: PLACEMENT_SIZE,
                ..driver
            };
            for (function, design) in TierFunction::ALL.into_iter().zip(designs(driver, &all)?) {
                let counts = |name: &str| -> Vec<u64> {
                    let of_tiers = design.since_boot.iter().filter(|stat| stat.name == name);
                    of_tiers.map(|stat| stat.value).collect()
                };
                let row = json!({
                    "program": driver.program, "occupied": occupied, "function": function,
                    "pages": counts("data_hits"), "expected": counts("data_expected"),
                    "elsewhere": counts("data_fallbacks"),
                });
                println!("{row}");
                rows.push(row);
            }
        }
    }
    let value = json!({ "memory_gb": PLACEMENT_GB, "size": PLACEMENT_SIZE, "rows": rows });
    keep("placement.spec_engine", value).map_err(|error| error.to_string())
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
    let length = match block.kind {
        Kind::StltUnit => first + requests,
        Kind::SpecEngine | Kind::L2p => 5_000 * (first + requests),
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
        ["--long", block] => long(block, 10_000_000),
        ["--long", block, requests] => {
            let requests = requests.parse().map_err(|_| USAGE.to_owned())?;
            long(block, requests)
        }
        ["--cost"] => cost(),
        ["--placement"] => placement(),
        ["--waveform", block, ref rest @ ..] => waveform(Block::named(block)?, rest),
        _ => Err(USAGE.to_owned()),
    }
}
