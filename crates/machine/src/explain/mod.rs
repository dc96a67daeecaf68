//! Meanings of names: terms of reports, statistics, metrics, designs, machines, papers, configuration
//! keys and workloads. All come from definitions in the code.

mod files;
mod glossary;

use std::collections::BTreeMap;

use pagewalk_os::RecordedStats;
use pagewalk_programs::WorkloadInfo;
use pagewalk_stats::Tree;
use pagewalk_stream::Facts;
use pagewalk_units::{Error, distance};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

pub use self::files::FileSetting;
use self::glossary::TERMS;
use crate::config::{Config, DataDir, Shipped, keys};
use crate::energy::sources::{MODEL, MODEL_SOURCE, numbers};
use crate::machine::Machine;
use crate::options::{Design, Options};
use crate::plan::Shard;
use crate::summary::{metrics, program_metrics};

/// One meaning of a name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Sense")]
pub struct Explanation {
    /// `term`, `statistic`, `metric`, `config`, `design`, `machine`, `paper` or `workload`; for energy
    /// also `model` and `number`.
    pub kind: &'static str,
    /// Full name.
    pub name: String,
    /// Definition.
    pub text: String,
    /// Unit, or the expected form of the value.
    pub unit: String,
    /// Citation or origin, if known.
    pub source: String,
    /// Default value of a configuration key, if it is optional.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// The component that reads a configuration key.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reader: &'static str,
    /// Settings of the file of a design, a machine or a paper.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<FileSetting>,
    /// The built-in program of this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<&'static WorkloadInfo>,
    /// Other names that also find it.
    #[serde(skip)]
    other: &'static [&'static str],
}

/// Settings that no shipped file has, so that their statistics are explained too.
const IN_NO_FILE: [&str; 7] = [
    "caches.l0d={size_kb=8,ways=4,latency=1,mshrs=8,replacement=\"lru\"}",
    "core.wrong_path.enabled=true",
    "memory.background.l3_fill_gbs=1",
    "memory.l4={size_kb=131072,ways=16,latency=150,mshrs=64,replacement=\"lru\"}",
    "os.hugetlb.pages_2mb=8",
    "os.migration.pages=8",
    "os.swap.pages=8",
];

/// A prefetch buffer, which no shipped file has either.
const PREFETCH_BUFFER: &str = "mmu.prefetcher.distance={rows=256,ways=4,slots=2,buffer=16}";

/// Transparent huge pages below 2 MB, which no shipped design has.
const THP_SIZES: &str = "placement.thp.sizes.64kb=always";

/// Settings with which the statistics of `design` are explained. The prefetch buffer is for the
/// baseline alone, because its prefetcher would replace a design's own.
pub(crate) fn in_no_file(design: &str) -> Vec<&'static str> {
    let buffer = (design == "radix").then_some(PREFETCH_BUFFER);
    let sizes = (design == "thp").then_some(THP_SIZES);
    IN_NO_FILE.into_iter().chain(buffer).chain(sizes).collect()
}

/// Counters of such a machine before it has run.
///
/// # Errors
/// The machine cannot be built.
pub(crate) fn tree_of(config: Config) -> Result<Tree, Error> {
    let design = Design {
        name: "design".to_owned(),
        description: String::new(),
        config,
        shortcut: None,
        beside: false,
        on: None,
    };
    let facts = Facts {
        deterministic: true,
        prefetches: true,
        flushes: true,
        ..Facts::default()
    };
    Ok(Machine::new(&design, &Options::default(), &facts, Shard::default())?.tree())
}

/// Every statistic of a machine: path with `N` for the number of a core or channel, definition and unit.
/// Found by building a small machine.
///
/// # Errors
/// The shipped files are missing or invalid.
pub fn statistics(data: &DataDir) -> Result<Vec<Explanation>, Error> {
    let mut out: Vec<Explanation> = Vec::new();
    let names = |kind| -> Result<Vec<String>, Error> {
        let files = data.list(kind)?;
        Ok(files.into_iter().map(|f| f.name).collect())
    };
    // Machines and designs add different components, independently of each other.
    let (machines, designs) = (names(Shipped::Machine)?, names(Shipped::Design)?);
    let all = machines.iter().map(|m| (m.as_str(), "radix"));
    let first = machines.first().map(String::as_str).unwrap_or_default();
    for (machine, design) in all.chain(designs.iter().map(|d| (first, d.as_str()))) {
        let set: Vec<String> = in_no_file(design).into_iter().map(str::to_owned).collect();
        let resolved = data.resolve(machine, design, &set);
        explain_tree(&tree_of(resolved?.config)?, &mut out);
    }
    // A machine with this policy needs a file of placements.
    let mut recorded = Tree::default();
    recorded.add("os.recorded", &RecordedStats::default());
    explain_tree(&recorded, &mut out);
    Ok(out)
}

/// Adds the statistics of `tree` that `out` lacks.
fn explain_tree(tree: &Tree, out: &mut Vec<Explanation>) {
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
                ..Explanation::default()
            });
        }
    }
}

/// All names except component counters, which need a built machine.
fn named(data: &DataDir) -> Result<Vec<Explanation>, Error> {
    let mut out = Vec::new();
    for t in TERMS {
        out.push(Explanation {
            kind: "term",
            name: t.names[0].to_owned(),
            text: t.text.to_owned(),
            unit: t.unit.to_owned(),
            other: &t.names[1..],
            ..Explanation::default()
        });
    }
    let of_programs = program_metrics()
        .iter()
        .map(|m| (m.name, m.meaning, m.unit));
    for (name, meaning, unit) in (metrics().map(|m| (m.name, m.meaning, m.unit))).chain(of_programs)
    {
        out.push(Explanation {
            kind: "metric",
            name: name.to_owned(),
            text: meaning.to_owned(),
            unit: unit.to_owned(),
            ..Explanation::default()
        });
    }
    for (kind, word) in [(Shipped::Design, "design"), (Shipped::Machine, "machine")] {
        for f in data.list(kind)? {
            out.push(Explanation {
                kind: word,
                name: f.name,
                text: f.description,
                source: f.source,
                ..Explanation::default()
            });
        }
    }
    for name in files::papers(&data.0) {
        out.push(Explanation {
            kind: "paper",
            name,
            ..Explanation::default()
        });
    }
    for k in keys() {
        // A unit says more than the expected form "number".
        let unit = match k.unit {
            "" => k.expected,
            unit => format!("{}, {unit}", k.expected),
        };
        out.push(Explanation {
            kind: "config",
            name: k.path,
            text: k.text,
            unit,
            default: k.default,
            reader: k.reader,
            ..Explanation::default()
        });
    }
    for w in pagewalk_programs::workloads() {
        out.push(Explanation {
            kind: "workload",
            name: w.name.to_owned(),
            text: w.description.to_owned(),
            source: w.source.to_owned(),
            workload: Some(w),
            ..Explanation::default()
        });
    }
    Ok(out)
}

/// Adds the settings of the file of a design, a machine or a paper. Only requested files are read.
fn with_settings(data: &DataDir, mut e: Explanation) -> Result<Explanation, Error> {
    let kind = match e.kind {
        "design" => Shipped::Design,
        "machine" => Shipped::Machine,
        "paper" => {
            if let Some(paper) = files::paper(&data.0, &e.name) {
                e.text = paper.text;
                e.source = paper.source;
                e.settings = paper.settings;
            }
            return Ok(e);
        }
        _ => return Ok(e),
    };
    let file = data.find(kind, &e.name)?;
    e.settings = files::settings(&file.text, &keys());
    Ok(e)
}

/// Names by kind, as users write them; everything that can be explained except counters.
///
/// # Errors
/// The shipped files are missing.
pub fn topics(data: &DataDir) -> Result<BTreeMap<&'static str, Vec<String>>, Error> {
    let mut out: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for e in named(data)? {
        out.entry(e.kind).or_default().push(e.name);
    }
    Ok(out)
}

/// A name without case, and with blanks for dashes and underscores.
fn plain(name: &str) -> String {
    let words = name.split(|c: char| c.is_whitespace() || c == '_' || c == '-');
    let words: Vec<String> = words
        .filter(|w| !w.is_empty())
        .map(str::to_lowercase)
        .collect();
    words.join(" ")
}

/// True if `full` is `name` or ends with it after a dot. Numbers in `name` match `N` or `<name>`.
fn matches(full: &str, name: &str) -> bool {
    let (full, name) = (plain(full), plain(name));
    let full: Vec<&str> = full.split('.').collect();
    let name: Vec<&str> = name.split('.').collect();
    name.len() <= full.len()
        && full[full.len() - name.len()..]
            .iter()
            .zip(&name)
            .all(|(f, n)| {
                f == n || *f == "<name>" || (*f == "n" && n.bytes().all(|b| b.is_ascii_digit()))
            })
}

/// Name that stands for the whole energy model.
const ENERGY: &str = "energy";

/// The energy model, its keys, and every number with its source.
fn energy(all: Vec<Explanation>) -> Vec<Explanation> {
    let entry = |kind, name: &str, text: &str, source: &str| Explanation {
        kind,
        name: name.to_owned(),
        text: text.to_owned(),
        source: source.to_owned(),
        ..Explanation::default()
    };
    let mut out = vec![entry("model", ENERGY, MODEL, MODEL_SOURCE)];
    out.extend(all.into_iter().filter(|e| {
        let below = e.name.strip_prefix(ENERGY);
        below.is_some_and(|below| below.is_empty() || below.starts_with('.'))
    }));
    out.extend(
        numbers()
            .iter()
            .map(|n| entry("number", &n.name, &n.text, n.source)),
    );
    out
}

/// All meanings of `name`, in any case and with blanks or underscores. Without one, at most three similar
/// names.
///
/// # Errors
/// The shipped files are missing.
pub fn explain(data: &DataDir, name: &str) -> Result<Result<Vec<Explanation>, Vec<String>>, Error> {
    let mut all = named(data)?;
    let wanted = plain(name);
    if wanted == ENERGY {
        return Ok(Ok(energy(all)));
    }
    let is = |e: &&Explanation| {
        plain(&e.name) == wanted || e.other.iter().any(|other| plain(other) == wanted)
    };
    let mut exact: Vec<Explanation> = all.iter().filter(is).cloned().collect();
    if !exact.is_empty() {
        if exact.iter().all(|e| e.kind == "term") {
            // A term of reports that is also the end of a key, such as `l1d`.
            let keys = all.iter().filter(|e| e.kind == "config");
            exact.extend(keys.filter(|e| matches(&e.name, name)).cloned());
        }
        let found = exact.into_iter().map(|e| with_settings(data, e));
        return found.collect::<Result<_, _>>().map(Ok);
    }
    all.extend(statistics(data)?);
    let exact: Vec<Explanation> = all.iter().filter(is).cloned().collect();
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
    // The path of a component: everything directly below it. A single word would match any user-chosen
    // name.
    let below = all.iter().filter(|_| name.contains('.')).filter(|e| {
        let parent = e.name.rsplit_once('.').map(|(parent, _)| parent);
        ["statistic", "config"].contains(&e.kind) && parent.is_some_and(|p| matches(p, name))
    });
    let found: Vec<Explanation> = below.cloned().collect();
    if !found.is_empty() {
        return Ok(Ok(found));
    }
    // Among equally similar names, terms of reports come first and counters last.
    let mut near: Vec<(usize, usize, &str)> = all
        .iter()
        .enumerate()
        .filter_map(|(place, e)| {
            // The path of a statistic or key may be omitted.
            let last = e.name.rsplit('.').next().unwrap_or(&e.name);
            let names = [e.name.as_str(), last];
            let names = names.iter().chain(e.other);
            let nearest = names.filter_map(|n| distance(&wanted, &plain(n))).min()?;
            Some((nearest, place, e.name.as_str()))
        })
        .collect();
    near.sort_unstable();
    let mut names: Vec<String> = Vec::new();
    for (_, _, name) in near {
        if names.len() < 3 && !names.iter().any(|n| n == name) {
            names.push(name.to_owned());
        }
    }
    Ok(Err(names))
}

#[cfg(test)]
mod tests {
    use super::glossary::TERMS;
    use super::{matches, plain};

    #[test]
    fn case_and_what_joins_words_make_no_difference() {
        assert_eq!(plain(" L2  TLB MPKI"), plain("l2_tlb_mpki"));
        assert_eq!(plain("EPYC Milan"), plain("epyc-milan"));
        assert!(matches("core.N.mmu.walks", "MMU.walks"));
        assert!(matches("core.N.mmu.walks", "core.3.mmu.walks"));
        assert!(!matches("core.N.mmu.walks", "alks"));
    }

    #[test]
    fn no_word_has_two_definitions() {
        let mut names: Vec<String> = TERMS
            .iter()
            .flat_map(|t| t.names)
            .map(|n| plain(n))
            .collect();
        names.sort();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
