//! Options that make every built-in program small.

use pagewalk_programs::{Options, workloads};

/// Options of `name` with `params`, or with defaults that make it small.
pub fn small(name: &str, threads: u32, params: &[(&str, &str)]) -> Options {
    let info = workloads().find(|w| w.name == name).unwrap();
    let fewer: &[(&str, &str)] = match info.group {
        "graph" => &[("scale", "12")],
        _ if name.starts_with("kv-") => &[("keys", "3000")],
        _ => &[],
    };
    let params = if params.is_empty() { fewer } else { params };
    Options {
        // With default sizes these programs take long to populate.
        size_bytes: ["gups", "kmer"].contains(&name).then_some(4 << 20),
        threads,
        seed: 3,
        params: (params.iter())
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
    }
}
