//! PageRank, shortest paths, colouring, triangles and betweenness from outside: properties of their streams
//! in both layouts, with one and more threads.

use std::collections::BTreeMap;
use std::io::Write as _;

use crate::common::{ThreadOutput, check_stream, run};
use pagewalk_programs::{Options, build};
use pagewalk_stream::{Event, OpClass, flags};

fn options(threads: u32, seed: u64, params: &[(&str, &str)]) -> Options {
    crate::common::options(None, threads, seed, params)
}

/// The first thread touches no memory before it is mapped or after it is unmapped.
fn check_order(given: &BTreeMap<u32, ThreadOutput>) {
    let mine = &given[&0];
    let mut events = mine.events.iter().peekable();
    let mut mapped: BTreeMap<u64, u64> = BTreeMap::new();
    for (at, op) in mine.ops.iter().enumerate() {
        while let Some((_, event)) = events.next_if(|e| e.0 <= at) {
            match event {
                Event::Map { at, bytes, .. } => {
                    // Adjacent mappings, such as growth by `brk`, are merged.
                    match mapped.range_mut(..=at.0).next_back() {
                        Some((_, end)) if *end == at.0 => *end += bytes,
                        _ => drop(mapped.insert(at.0, at.0 + bytes)),
                    }
                }
                Event::Unmap { at, bytes } => {
                    assert_eq!(mapped.remove(&at.0), Some(at.0 + bytes));
                }
                _ => {}
            }
        }
        if op.kind == OpClass::Load || op.kind == OpClass::Store {
            let map = mapped.range(..=op.va).next_back();
            let inside = map.is_some_and(|m| op.va + u64::from(op.size) <= *m.1);
            assert!(inside, "not mapped at this time: {op:?}");
        }
    }
}

/// An address always holds the same instruction.
fn check_addresses(given: &BTreeMap<u32, ThreadOutput>) {
    for mine in given.values() {
        let mut kinds: BTreeMap<u64, OpClass> = BTreeMap::new();
        for op in mine.ops.iter().filter(|o| o.insns > 0) {
            let conditional = op.flags & flags::CONDITIONAL != 0;
            if conditional || op.kind != OpClass::Branch {
                let other = *kinds.entry(op.pc).or_insert(op.kind);
                let one = other == op.kind || !(conditional || other == OpClass::Branch);
                assert!(one, "{op:?} and a {other:?}");
            }
        }
    }
}

fn instructions(given: &BTreeMap<u32, ThreadOutput>) -> u64 {
    let ops = given.values().flat_map(|g| &g.ops);
    ops.map(|o| u64::from(o.insns)).sum()
}

/// Small runs of each kernel.
fn runs() -> Vec<(&'static str, Vec<(&'static str, &'static str)>)> {
    vec![
        ("pr", vec![("scale", "12"), ("iterations", "2")]),
        (
            "sssp",
            // The queue outgrows the threshold above which `malloc` uses a separate mapping.
            vec![
                ("scale", "13"),
                ("degree", "16"),
                ("weights", "random"),
                ("roots", "1"),
            ],
        ),
        ("gc", vec![("scale", "12"), ("symmetric", "yes")]),
        ("tc", vec![("graph", "ldbc"), ("vertices", "5000")]),
        (
            "bc",
            vec![("graph", "uniform"), ("scale", "12"), ("sources", "5")],
        ),
    ]
}

#[test]
fn each_threads_stream_is_the_same_in_any_order_of_fills() {
    for (name, mut params) in runs() {
        if name != "sssp" {
            params.push(("degree", "4"));
        }
        for (layout, threads) in [("csr", 3), ("graphbig", 1), ("graphbig", 2), ("csr", 16)] {
            params.push(("layout", layout));
            let options = options(threads, 5, &params);
            params.pop();
            let give = |pick: &mut dyn FnMut(&[u32]) -> usize| {
                run(build(name, &options).unwrap().as_mut(), pick)
            };
            let first = give(&mut |_| 0);
            check_stream(&first);
            check_addresses(&first);
            check_order(&first);
            let mut state = 1u64;
            let shuffled = give(&mut |live| {
                state = (state.wrapping_mul(6_364_136_223_846_793_005)).wrapping_add(1);
                (state >> 33) as usize % live.len()
            });
            assert!(first == shuffled, "{name}, {layout}, {threads} threads");
            let other = Options {
                seed: 6,
                ..options.clone()
            };
            let other = run(build(name, &other).unwrap().as_mut(), |_| 0);
            assert!(first != other, "{name}: another seed is another graph");
        }
    }
}

#[test]
fn the_instruction_mix_is_that_of_compiled_code() {
    for (name, mut params) in runs() {
        if name != "sssp" {
            params.push(("degree", "8"));
        }
        for layout in ["csr", "graphbig"] {
            params.push(("layout", layout));
            let given = run(
                build(name, &options(1, 2, &params)).unwrap().as_mut(),
                |_| 0,
            );
            params.pop();
            let all = instructions(&given) as f64;
            let count = |kind| given[&0].ops.iter().filter(|o| o.kind == kind).count() as f64;
            let references = (count(OpClass::Load) + count(OpClass::Store)) / all;
            let branches = count(OpClass::Branch) / all;
            // Compiled integer code: a third to a half of the instructions reference memory, one in four to
            // nine is a branch.
            assert!(
                (0.2..0.6).contains(&references),
                "{name} {layout}: {references}"
            );
            assert!(
                (0.08..0.35).contains(&branches),
                "{name} {layout}: {branches}"
            );
            let (mut taken, mut conditional) = (0.0, 0.0);
            for op in given[&0]
                .ops
                .iter()
                .filter(|o| o.flags & flags::CONDITIONAL != 0)
            {
                conditional += 1.0;
                taken += f64::from(op.flags & flags::TAKEN);
            }
            assert!(conditional > 0.0 && taken > 0.0 && taken < conditional);
        }
    }
}

#[test]
fn page_rank_pulls_each_edge_with_five_instructions() {
    let params = [
        ("graph", "uniform"),
        ("scale", "12"),
        ("degree", "8"),
        ("iterations", "3"),
    ];
    let given = run(
        build("pr", &options(1, 0, &params)).unwrap().as_mut(),
        |_| 0,
    );
    let neighbours = given[&0].ops.iter().filter(|o| o.pc & 0xfff == 0x398);
    assert_eq!(neighbours.count(), 3 * 8 * 4096);
    // Without the edges: contribution 10, row 17, iteration a few.
    let rest = instructions(&given) - 5 * 3 * 8 * 4096;
    let vertex = rest as f64 / (3.0 * 4096.0);
    assert!((24.0..30.0).contains(&vertex), "{vertex}");
}

/// Counts per kind of op, and of all instructions, in a run over a uniform graph of 4096 vertices.
fn counts(name: &str, degree: &str, more: &[(&str, &str)]) -> [i64; 4] {
    let mut params = vec![
        ("graph", "uniform"),
        ("scale", "12"),
        ("layout", "graphbig"),
        ("degree", degree),
    ];
    params.extend(more);
    let given = run(
        build(name, &options(1, 0, &params)).unwrap().as_mut(),
        |_| 0,
    );
    let count = |kind| given[&0].ops.iter().filter(|o| o.kind == kind).count() as i64;
    let [loads, stores, branches] = [OpClass::Load, OpClass::Store, OpClass::Branch].map(count);
    [instructions(&given) as i64, loads, stores, branches]
}

/// In g++'s listing of GraphBIG's PageRank an edge takes 27 instructions. After `lock cmpxchg` they reload
/// the graph's address, and the map's base and size.
#[test]
fn an_edge_of_page_rank_is_that_of_graphbigs_build() {
    let once = [("iterations", "1")];
    let (few, many) = (counts("pr", "8", &once), counts("pr", "24", &once));
    let edges = 16 * 4096;
    let each: [f64; 4] = std::array::from_fn(|i| (many[i] - few[i]) as f64 / edges as f64);
    // `lock cmpxchg` is a load and the only store.
    let wanted = [27.0, 11.0, 1.0, 6.0];
    for (given, wanted) in std::iter::zip(each, wanted) {
        assert!((given - wanted).abs() < 0.01, "{each:?}");
    }
}

/// In the listing, an edge of the triangle count stores three words: both counts, and the vertex at its other
/// end during the merge.
#[test]
fn a_merge_of_the_triangle_count_keeps_a_vertex_on_the_stack() {
    let (few, many) = (counts("tc", "4", &[]), counts("tc", "8", &[]));
    // The graph is made symmetric, so each of its edges is merged once. Some edges coincide.
    let merges = 4 * 4096;
    let stores = (many[2] - few[2]) as f64 / f64::from(merges);
    assert!((2.9..=3.0).contains(&stores), "{stores}");
}

/// A component of one vertex takes 390 instructions, 108 loads and 71 stores (callgrind over 20,000 of them):
/// its queue is allocated and freed.
#[test]
fn a_lonely_vertex_costs_connected_components_its_queue() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let alone = |vertices: u32, file: &mut tempfile::NamedTempFile| {
        file.as_file().set_len(0).unwrap();
        let text = format!(
            "%%MatrixMarket matrix coordinate pattern general\n{vertices} {vertices} 1\n1 2\n"
        );
        std::fs::write(file.path(), text).unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        let params = [("graph", &*path), ("layout", "graphbig"), ("rounds", "1")];
        let given = run(
            build("cc", &options(1, 0, &params)).unwrap().as_mut(),
            |_| 0,
        );
        let count = |kind| given[&0].ops.iter().filter(|o| o.kind == kind).count() as f64;
        [
            instructions(&given) as f64,
            count(OpClass::Load),
            count(OpClass::Store),
        ]
    };
    let (few, many) = (alone(2000, &mut file), alone(4000, &mut file));
    for (i, wanted) in [390.0, 108.0, 71.0].into_iter().enumerate() {
        let each = (many[i] - few[i]) / 2000.0;
        assert!(
            (each / wanted - 1.0).abs() < 0.1,
            "{i}: {each} for {wanted}"
        );
    }
}

#[test]
fn orders_and_degrees_are_refused_where_there_are_none() {
    let refused = |params: &[(&str, &str)]| match build("bfs", &options(1, 0, params)) {
        Ok(_) => panic!("{params:?} was accepted"),
        Err(e) => e.to_string(),
    };
    let order = refused(&[("scale", "12"), ("order", "edges")]);
    assert!(order.contains("GraphBIG's layout"), "{order}");
    let degrees = refused(&[("scale", "12"), ("degrees", "graphbig")]);
    assert!(degrees.contains("ldbc"), "{degrees}");
}

#[test]
fn files_are_read_and_their_mistakes_named() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "# mine\n10 20\n20 30\n30 10\n").unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let with = |params: &[(&str, &str)]| build("tc", &options(1, 0, params));
    let given = run(with(&[("graph", &path)]).unwrap().as_mut(), |_| 0);
    check_stream(&given);
    let refused = |params: &[(&str, &str)]| match with(params) {
        Ok(_) => panic!("{params:?} was accepted"),
        Err(e) => e.to_string(),
    };
    let both = refused(&[("graph", &path), ("scale", "12")]);
    assert!(both.contains("together with a file"), "{both}");
    assert!(refused(&[("graph", "kronecer")]).contains("`kronecker`"));
    assert!(refused(&[("graph", "no/such.mtx")]).contains("no such file"));
    writeln!(file, "40 fifty").unwrap();
    let wrong = refused(&[("graph", &path)]);
    assert!(
        wrong.contains("line 6") && wrong.contains("40 fifty"),
        "{wrong}"
    );
    let vast = refused(&[("graph", "ldbc"), ("scale", "31"), ("degree", "1024")]);
    assert!(vast.contains("host memory"), "{vast}");
}
