//! Runs that are kept, and their medians.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

fn runs_file() -> PathBuf {
    let program = std::env::current_exe().expect("the program has a path");
    program.with_file_name("runs.jsonl")
}

/// Appends a run, one line of JSON.
pub fn keep(run: &str) {
    eprintln!("{}", run.trim());
    let mut file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(runs_file())
        .expect("the runs can be kept");
    file.write_all(run.as_bytes())
        .expect("the runs can be kept");
}

/// The median of each number, member by member.
fn median(runs: &[Value]) -> Value {
    match &runs[0] {
        Value::Object(members) => {
            let of = |name: &String| {
                median(&runs.iter().map(|run| run[name].clone()).collect::<Vec<_>>())
            };
            Value::Object(
                members
                    .keys()
                    .map(|name| (name.clone(), of(name)))
                    .collect::<Map<_, _>>(),
            )
        }
        Value::Number(_) => {
            let mut numbers: Vec<f64> = runs.iter().filter_map(Value::as_f64).collect();
            numbers.sort_by(f64::total_cmp);
            let middle = (numbers[(numbers.len() - 1) / 2] + numbers[numbers.len() / 2]) / 2.0;
            json!((middle * 100.0).round() / 100.0)
        }
        other => other.clone(),
    }
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find(|line| line.starts_with("model name"));
    model
        .and_then(|line| line.split(": ").nth(1))
        .unwrap_or("unknown")
        .to_owned()
}

fn huge_pages() -> String {
    let text =
        fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    text.split(['[', ']']).nth(1).unwrap_or("none").to_owned()
}

/// Writes the results file from all runs that were kept.
pub fn merge() {
    let text = fs::read_to_string(runs_file()).unwrap_or_default();
    let mut groups: BTreeMap<(u64, String), Vec<Value>> = BTreeMap::new();
    for run in text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a run is JSON"))
    {
        let group = (
            run["entries"].as_u64().unwrap_or(0),
            run["map"].as_str().unwrap_or("").to_owned(),
        );
        groups.entry(group).or_default().push(run);
    }
    let results: Vec<Value> = groups
        .into_values()
        .map(|runs| {
            let mut result = median(&runs);
            result["runs"] = json!(runs.len());
            result["entries"] = runs[0]["entries"].clone();
            let least = runs
                .iter()
                .filter_map(|run| run["insert_latency_ns"]["max"].as_f64())
                .fold(f64::MAX, f64::min);
            result["insert_latency_ns"]["least max"] = json!(least.round());
            result
        })
        .collect();
    let all = json!({ "processor": processor(), "transparent_huge_pages": huge_pages(), "results": results });
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../results.json");
    fs::write(file, format!("{all:#}\n")).expect("the results can be written");
}
