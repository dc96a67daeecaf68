//! What a name means: statistics, metrics, designs, machines, configuration
//! keys and workloads, all from the code's own definitions.

use pagewalk_programs::WorkloadInfo;
use pagewalk_stream::Facts;
use pagewalk_units::distance;
use serde::Serialize;

use crate::config::{DataDir, Shipped, keys};
use crate::energy::sources::{MODEL, MODEL_SOURCE, numbers};
use crate::machine::Machine;
use crate::options::{Design, Options};
use crate::summary::{metrics, program_metrics};

/// One meaning of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// `statistic`, `metric`, `config`, `design`, `machine` or `workload`; of energy
    /// also `model` and `number`.
    pub kind: &'static str,
    /// Full name.
    pub name: String,
    /// Definition.
    pub text: String,
    /// Unit, or the form of value that is expected.
    pub unit: String,
    /// Where it comes from, if that is known.
    pub source: String,
    /// A built-in program's sizes, threads and parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<&'static WorkloadInfo>,
}

/// What no shipped file has is told, too.
pub(crate) const IN_NO_FILE: [&str; 4] = [
    "core.wrong_path.enabled=true",
    "mmu.prefetcher.distance={rows=256,ways=4,slots=2,buffer=16}",
    "os.migration.pages=8",
    "os.swap.pages=8",
];

/// Every statistic that a machine reports: path with `N` for a core or channel
/// number, definition, unit. Found by building a small machine.
///
/// # Errors
/// The shipped files are not there or do not fit.
pub fn statistics(data: &DataDir) -> Result<Vec<Explanation>, String> {
    let mut out: Vec<Explanation> = Vec::new();
    let names = |kind| -> Result<Vec<String>, String> {
        let files = data.list(kind).map_err(|e| e.to_string())?;
        Ok(files.into_iter().map(|f| f.name).collect())
    };
    // Machines differ in their parts and designs in theirs, each on its own.
    let (machines, designs) = (names(Shipped::Machine)?, names(Shipped::Design)?);
    let all = machines.iter().map(|m| (m.as_str(), "radix"));
    let first = machines.first().map(String::as_str).unwrap_or_default();
    for (machine, design) in all.chain(designs.iter().map(|d| (first, d.as_str()))) {
        let set = IN_NO_FILE.map(str::to_owned);
        let resolved = data.resolve(machine, design, &set);
        let design = Design {
            name: design.to_owned(),
            description: String::new(),
            config: resolved.map_err(|e| e.to_string())?.config,
            shortcut: None,
            beside: false,
            on: None,
        };
        let facts = Facts {
            deterministic: true,
            ..Facts::default()
        };
        let built = Machine::new(&design, &Options::default(), &facts)?;
        let tree = built.tree();
        let rows = tree.rows.iter().map(|r| (&r.path, r.definition));
        let spreads = tree.spreads.iter().map(|s| (&s.path, s.definition));
        for (path, definition) in rows.chain(spreads) {
            let path: Vec<&str> = path
                .split('.')
                .map(|p| {
                    if !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()) {
                        "N"
                    } else {
                        p
                    }
                })
                .collect();
            let name = format!("{}.{}", path.join("."), definition.name);
            if !out.iter().any(|e| e.name == name) {
                out.push(Explanation {
                    kind: "statistic",
                    name,
                    text: definition.meaning.to_owned(),
                    unit: definition.unit.to_owned(),
                    source: String::new(),
                    workload: None,
                });
            }
        }
    }
    Ok(out)
}

fn everything(data: &DataDir) -> Result<Vec<Explanation>, String> {
    let mut out = Vec::new();
    for m in metrics() {
        out.push(Explanation {
            kind: "metric",
            name: m.name.to_owned(),
            text: m.meaning.to_owned(),
            unit: m.unit.to_owned(),
            source: String::new(),
            workload: None,
        });
    }
    for m in program_metrics() {
        out.push(Explanation {
            kind: "metric",
            name: m.name.to_owned(),
            text: m.meaning.to_owned(),
            unit: m.unit.to_owned(),
            source: String::new(),
            workload: None,
        });
    }
    for (kind, word) in [(Shipped::Design, "design"), (Shipped::Machine, "machine")] {
        for f in data.list(kind).map_err(|e| e.to_string())? {
            out.push(Explanation {
                kind: word,
                name: f.name,
                text: f.description,
                unit: String::new(),
                source: f.source,
                workload: None,
            });
        }
    }
    for k in keys() {
        out.push(Explanation {
            kind: "config",
            name: k.path,
            text: k.text,
            unit: k.expected,
            source: String::new(),
            workload: None,
        });
    }
    for w in pagewalk_programs::workloads() {
        out.push(Explanation {
            kind: "workload",
            name: w.name.to_owned(),
            text: w.description.to_owned(),
            unit: String::new(),
            source: w.source.to_owned(),
            workload: Some(w),
        });
    }
    out.extend(statistics(data)?);
    Ok(out)
}

/// Whether `full` is `name`, or ends in it at a dot; numbers in `name` match `N` or `<name>`.
fn matches(full: &str, name: &str) -> bool {
    let full: Vec<&str> = full.split('.').collect();
    let name: Vec<&str> = name.split('.').collect();
    name.len() <= full.len()
        && full[full.len() - name.len()..]
            .iter()
            .zip(&name)
            .all(|(f, n)| {
                f == n || *f == "<name>" || (*f == "N" && n.bytes().all(|b| b.is_ascii_digit()))
            })
}

/// The name that stands for all that energy is computed with.
const ENERGY: &str = "energy";

/// How energy comes about: the model, its keys, and every number with its source.
fn energy(all: Vec<Explanation>) -> Vec<Explanation> {
    let told = |kind, name: &str, text: &str, source: &str| Explanation {
        kind,
        name: name.to_owned(),
        text: text.to_owned(),
        unit: String::new(),
        source: source.to_owned(),
        workload: None,
    };
    let mut out = vec![told("model", ENERGY, MODEL, MODEL_SOURCE)];
    out.extend(all.into_iter().filter(|e| {
        let below = e.name.strip_prefix(ENERGY);
        below.is_some_and(|below| below.is_empty() || below.starts_with('.'))
    }));
    out.extend(
        numbers()
            .iter()
            .map(|n| told("number", &n.name, &n.text, n.source)),
    );
    out
}

/// All meanings of `name`; if there is none, at most three names that are near.
///
/// # Errors
/// The shipped files are not there.
pub fn explain(
    data: &DataDir,
    name: &str,
) -> Result<Result<Vec<Explanation>, Vec<String>>, String> {
    let all = everything(data)?;
    if name == ENERGY {
        return Ok(Ok(energy(all)));
    }
    let exact: Vec<Explanation> = all.iter().filter(|e| e.name == name).cloned().collect();
    let found = if exact.is_empty() {
        all.iter()
            .filter(|e| matches(&e.name, name))
            .cloned()
            .collect()
    } else {
        exact
    };
    if !found.is_empty() {
        return Ok(Ok(found));
    }
    let mut near: Vec<(usize, &str)> = all
        .iter()
        .filter_map(|e| {
            // The path of a statistic or key need not be given.
            let last = e.name.rsplit('.').next().unwrap_or(&e.name);
            let distances = [distance(name, &e.name), distance(name, last)];
            Some((distances.into_iter().flatten().min()?, e.name.as_str()))
        })
        .collect();
    near.sort();
    near.dedup_by_key(|n| n.1);
    Ok(Err(near
        .into_iter()
        .take(3)
        .map(|n| n.1.to_owned())
        .collect()))
}
