//! Runs of the shipped files, for tests.
#![allow(
    dead_code,
    reason = "benches, fuzz targets and test binaries use their own parts"
)]

pub mod forks;
pub mod rows;
pub mod store;

use std::path::{Path, PathBuf};

use pagewalk_machine::{DesignResult, Installation, RunResult, RunSpec, Status};
use pagewalk_units::Error;

/// The repository's root, which holds `machines/` and `designs/`.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The repository as an installation.
pub fn installation() -> Installation {
    Installation::at(&root())
}

/// Parts of a design. Settings must not exchange them under the design's own name.
const PARTS: [&str; 6] = [
    "placement",
    "page_table",
    "engine",
    "translation",
    "shortcut",
    "virtual",
];

/// Turns settings of `set` for parts into variants of the designs, and returns the other settings.
fn varied<'a>(designs: &[&str], set: &[&'a str]) -> (Vec<String>, Vec<&'a str>) {
    let of_part = |s: &&str| PARTS.contains(&s.split(['.', '=']).next().unwrap_or_default());
    let (parts, rest): (Vec<&str>, Vec<&str>) = set.iter().copied().partition(of_part);
    let named = |d: &&str| {
        if parts.is_empty() {
            (*d).to_owned()
        } else {
            format!("{d}[{}]", parts.join(","))
        }
    };
    (designs.iter().map(named).collect(), rest)
}

/// A run of the built-in `workload` (`"gups 64MB threads=2 k=v"`). Settings of `set` for parts of designs
/// go into their names.
pub fn spec(
    machine: &str,
    designs: &[&str],
    workload: &str,
    instructions: u64,
    set: &[&str],
) -> RunSpec {
    let mut words = workload.split_whitespace();
    let name = words.next().expect("a workload has a name");
    let (mut size, mut threads, mut params) = (None, 1, serde_json::Map::new());
    for w in words {
        match w.split_once('=') {
            None => size = Some(w),
            Some(("threads", n)) => threads = n.parse().expect("a number of threads"),
            Some((k, v)) => drop(params.insert(k.to_owned(), v.into())),
        }
    }
    let (designs, set) = varied(designs, set);
    serde_json::from_value(serde_json::json!({
        "machine": machine, "designs": designs, "set": set,
        "source": {"workload": {"name": name, "size": size, "threads": threads, "params": params}},
        "limits": {"instructions": instructions},
    }))
    .expect("the specification is well formed")
}

/// Runs the specification to its end.
pub fn run_spec(spec: &RunSpec) -> Result<RunResult, Error> {
    installation().run(spec, &mut |_| true)
}

/// A built-in program on designs of a shipped machine, over the given number of instructions.
pub fn run(
    machine: &str,
    designs: &[&str],
    workload: &str,
    instructions: u64,
    set: &[&str],
) -> RunResult {
    run_spec(&spec(machine, designs, workload, instructions, set))
        .unwrap_or_else(|e| panic!("{machine} {designs:?} {workload} {set:?}: {e}"))
}

/// Memory of `revelator-table1` with one channel of few banks whose rows stay open, and an L3 with plain
/// LRU. In a simpler memory, row conflicts depend less on chance.
pub const ONE_CHANNEL: [&str; 5] = [
    "memory.l3.replacement=lru",
    "memory.dram.ddr.keep_open_ns=0",
    "memory.dram.ddr.channels=1",
    "memory.dram.ddr.ranks=2",
    "memory.dram.ddr.banks=4",
];

/// As [`ONE_CHANNEL`], with plain LRU in the L2 as well: less hardware can then never be faster.
pub const PLAIN: [&str; 7] = [
    "caches.l2.replacement=lru",
    "os.memory_gb=16",
    ONE_CHANNEL[0],
    ONE_CHANNEL[1],
    ONE_CHANNEL[2],
    ONE_CHANNEL[3],
    ONE_CHANNEL[4],
];

/// The result of one design, which has to be complete.
pub fn one(
    machine: &str,
    design: &str,
    workload: &str,
    instructions: u64,
    set: &[&str],
) -> DesignResult {
    let d = run(machine, &[design], workload, instructions, set)
        .designs
        .remove(0);
    assert_eq!(
        d.status,
        Status::Complete,
        "{design} on {workload}: {:?}",
        d.message
    );
    d
}

/// A metric of the summary; panics if there is none of the name.
pub fn metric(d: &DesignResult, name: &str) -> f64 {
    let m = d
        .summary
        .iter()
        .find(|m| m.name == name)
        .unwrap_or_else(|| panic!("no metric {name}"));
    m.value.unwrap_or_else(|| panic!("{name} has no value"))
}

/// Sum of a counter over the paths that `select` accepts.
pub fn sum(d: &DesignResult, name: &str, select: impl Fn(&str) -> bool) -> u64 {
    let rows: Vec<_> = d
        .stats
        .iter()
        .filter(|s| s.name == name && select(&s.path))
        .collect();
    assert!(!rows.is_empty(), "no statistic {name}");
    rows.iter().map(|s| s.value).sum()
}

/// Names of the shipped files of a kind.
pub fn shipped(folder: &str) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(root().join(folder))
        .expect("the folder is there")
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.extension().is_some_and(|x| x == "toml"))
        .map(|p| {
            p.file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}
