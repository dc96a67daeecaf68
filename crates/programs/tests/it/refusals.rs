//! Conflicting or unused parameters are refused with a reason, before anything large is allocated.

use std::collections::BTreeMap;
use std::io::Write as _;

use pagewalk_programs::{Options, build};

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

struct Case {
    program: &'static str,
    size: Option<u64>,
    params: Vec<(&'static str, String)>,
    /// Required parts of the message.
    says: [&'static str; 2],
}

fn options(case: &Case) -> Options {
    Options {
        size_bytes: case.size,
        params: (case.params.iter())
            .map(|(name, value)| (name.to_string(), value.clone()))
            .collect::<BTreeMap<_, _>>(),
        ..Options::default()
    }
}

#[test]
fn each_is_refused_with_its_reason() {
    let reads = file(">a\nACGTACGTACGTACGTACGTACGTACGTACGTACGT\n");
    let pairs = file("0 1\n1 2\n");
    let pattern = file("%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 2\n2 3\n");
    let of = |f: &tempfile::NamedTempFile| f.path().to_str().unwrap().to_owned();
    let case = |program, size, params: &[(&'static str, &str)], says| Case {
        program,
        size,
        params: params.iter().map(|(n, v)| (*n, v.to_string())).collect(),
        says,
    };
    let (reads, pairs, pattern) = (of(&reads), of(&pairs), of(&pattern));
    let mib = Some(1 << 20);
    let cases = [
        case(
            "kmer",
            mib,
            &[("reads", &reads), ("k", "8")],
            ["k=8", "one of the two"],
        ),
        case(
            "kmer",
            Some(1 << 14),
            &[("reads", &reads)],
            ["16KiB", "no room for counters"],
        ),
        case("kmer", Some(65 << 30), &[], ["65GiB", "out of range"]),
        case(
            "mummer",
            mib,
            &[("reference", &reads)],
            ["1MiB", "a reference"],
        ),
        case(
            "mummer",
            mib,
            &[("query", &reads), ("homology", "5")],
            ["homology=5", "a file"],
        ),
        case(
            "mummer",
            mib,
            &[("query", &reads), ("mutation", "5")],
            ["mutation=5", "a file"],
        ),
        case(
            "mummer",
            None,
            &[("query", &reads), ("reference", &reads), ("repeats", "5")],
            ["repeats=5", "both sequences"],
        ),
        case(
            "sssp",
            None,
            &[("weights", "file")],
            ["weights=file", "generated"],
        ),
        case(
            "sssp",
            None,
            &[("weights", "file"), ("symmetric", "yes"), ("scale", "31")],
            ["weights=file", "generated"],
        ),
        case(
            "sssp",
            None,
            &[("weights", "file"), ("graph", &pairs)],
            ["line 1", "third column"],
        ),
        case(
            "sssp",
            None,
            &[("weights", "file"), ("graph", &pattern)],
            ["pattern", "no weights"],
        ),
        case(
            "gups",
            None,
            &[("updates", "288230376151711745")],
            ["out of range", "2^58"],
        ),
        case(
            "bc",
            None,
            &[("graph", &pairs), ("sources", "4")],
            ["sources=4", "3 vertices"],
        ),
        case(
            "kv-dense",
            None,
            &[
                ("keys", "100000000"),
                ("distribution", "latest"),
                ("sets", "100"),
                ("value", "256"),
            ],
            ["operations", "64GiB"],
        ),
        // An error in a parameter is reported before one in the graph's file.
        case(
            "bfs",
            None,
            &[("roots", "0"), ("graph", "/dev/null")],
            ["roots=0", "1 to"],
        ),
        case(
            "dfs",
            None,
            &[("roots", "0"), ("graph", "/dev/null")],
            ["roots=0", "1 to"],
        ),
        case(
            "sssp",
            None,
            &[("roots", "0"), ("graph", "/dev/null")],
            ["roots=0", "1 to"],
        ),
        case(
            "cc",
            None,
            &[("rounds", "0"), ("graph", "/dev/null")],
            ["rounds=0", "1 to"],
        ),
        case(
            "dc",
            None,
            &[("rounds", "0"), ("graph", "/dev/null")],
            ["rounds=0", "1 to"],
        ),
        case(
            "pr",
            None,
            &[("iterations", "0"), ("graph", "/dev/null")],
            ["iterations=0", "1 to"],
        ),
        case(
            "bc",
            None,
            &[("sources", "0"), ("graph", "/dev/null")],
            ["sources=0", "1 to"],
        ),
        case(
            "gc",
            None,
            &[("populate", "x"), ("graph", "/dev/null")],
            ["populate=x", "timed"],
        ),
        case(
            "sysbench",
            None,
            &[("region", "initialisation")],
            ["region=initialisation", "populate=timed"],
        ),
        case("gups", None, &[("populate", "timed")], ["timed", "a size"]),
    ];
    for case in &cases {
        let name = (case.program, &case.params);
        let Err(error) = build(case.program, &options(case)) else {
            panic!("{name:?} was accepted");
        };
        for part in case.says {
            assert!(error.to_string().contains(part), "{name:?}: {}", error);
        }
    }
}

#[test]
fn options_just_within_their_limits_are_accepted() {
    let reads = file(">a\nACGTACGTACGTACGTACGTACGTACGTACGTACGT\n");
    let weighted = file("0 1 5\n1 2 7\n");
    let of = |f: &tempfile::NamedTempFile| f.path().to_str().unwrap().to_owned();
    let (reads, weighted) = (of(&reads), of(&weighted));
    for (program, size, params) in [
        ("kmer", Some(40 << 10), vec![]),
        ("kmer", Some(40 << 10), vec![("reads", &*reads)]),
        ("kmer", None, vec![("reads", &reads), ("k", "8")]),
        (
            "mummer",
            Some(1 << 20),
            vec![("query", &reads), ("repeats", "5")],
        ),
        (
            "mummer",
            None,
            vec![("reference", &reads), ("homology", "5")],
        ),
        (
            "sssp",
            None,
            vec![("weights", "file"), ("graph", &weighted)],
        ),
        ("bc", None, vec![("sources", "3"), ("graph", &weighted)]),
        (
            "gups",
            None,
            vec![("updates", "2^58"), ("variant", "check"), ("chunk", "1")],
        ),
        ("dlrm", Some(4 << 10), vec![]),
    ] {
        let params = params
            .iter()
            .map(|(n, v)| (n.to_string(), v.replace("2^58", "288230376151711744")))
            .collect();
        let options = Options {
            size_bytes: size,
            params,
            ..Options::default()
        };
        if let Err(error) = build(program, &options) {
            panic!("{program} {options:?}: {}", error);
        }
    }
}
