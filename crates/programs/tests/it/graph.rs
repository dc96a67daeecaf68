//! The graph kernels from outside, over both layouts.

use crate::common::{check_stream, options, run};
use pagewalk_programs::build;
use pagewalk_stream::{Event, OpClass};

/// Kernel, the parameter for its repetitions, and whether it supports several threads.
const KERNELS: [(&str, (&str, &str), bool); 4] = [
    ("bfs", ("roots", "2"), true),
    ("dfs", ("roots", "2"), false),
    ("cc", ("rounds", "1"), true),
    ("dc", ("rounds", "2"), true),
];

#[test]
fn each_threads_stream_is_the_same_in_any_order_of_fills() {
    for (name, repeats, parallel) in KERNELS {
        for threads in if parallel { vec![1, 3, 16] } else { vec![1] } {
            let params = [
                ("scale", "12"),
                ("degree", "4"),
                ("layout", "graphbig"),
                repeats,
            ];
            let options = options(None, threads, 11, &params);
            let give = |pick: &mut dyn FnMut(&[u32]) -> usize| {
                run(build(name, &options).unwrap().as_mut(), pick)
            };
            let mut at = 0;
            let in_turn = give(&mut |live| {
                at += 1;
                at % live.len()
            });
            check_stream(&in_turn);
            let mut at = 0usize;
            let last_first = give(&mut |live| {
                at += 1;
                live.len() - 1 - at / 50 % live.len()
            });
            assert!(in_turn == last_first, "{name} with {threads} threads");
        }
    }
}

#[test]
fn every_way_to_initialise_gives_accesses_inside_of_mappings() {
    for (name, repeats, _) in KERNELS {
        for layout in ["csr", "graphbig"] {
            for populate in ["no", "timed"] {
                let params = [
                    ("scale", "12"),
                    ("degree", "3"),
                    ("graph", "uniform"),
                    ("layout", layout),
                    ("populate", populate),
                    repeats,
                ];
                let options = options(None, 1, 1, &params);
                let given = run(build(name, &options).unwrap().as_mut(), |_| 0);
                check_stream(&given);
                let begin = given[&0].events.iter().position(|e| e.1 == Event::RoiBegin);
                let first_map =
                    (given[&0].events.iter()).position(|e| matches!(e.1, Event::Map { .. }));
                assert_eq!(begin < first_map, populate == "timed", "{name} {layout}");
                let populated = |e: &Event| matches!(e, Event::Populate { .. });
                assert!(!given[&0].events.iter().any(|e| populated(&e.1)));
            }
        }
    }
}

/// From an edge over the hash map to the target's vertex: each load depends on the previous one.
#[test]
fn a_neighbour_of_graphbigs_layout_is_a_chain_of_reads() {
    let params = [
        ("scale", "12"),
        ("layout", "graphbig"),
        ("roots", "1"),
        ("graph", "uniform"),
    ];
    let given = run(
        build("bfs", &options(None, 1, 0, &params))
            .unwrap()
            .as_mut(),
        |_| 0,
    );
    let ops = &given[&0].ops;
    let code = 0x40_1000;
    let mut colors = 0;
    for (at, op) in ops.iter().enumerate() {
        if op.pc != code + 0x168 || op.kind != OpClass::Load {
            continue;
        }
        let producer = |at: usize, input: usize| {
            let distance = usize::from(ops[at].dep[input]);
            assert!(distance > 0);
            at - distance
        };
        let vertex = producer(at, 0);
        let bucket = producer(vertex, 0);
        let target = producer(bucket, 0);
        let edge = producer(target, 0);
        let pcs = [vertex, bucket, target].map(|at| ops[at].pc - code);
        assert_eq!(pcs, [0x164, 0x134, 0x120]);
        // The division is between the target's number and its bucket.
        assert!(ops[bucket].dep_latency[0] > 10);
        // The edge comes from the previous one, or from the list's head.
        assert!([0x188, 0x109].contains(&(ops[edge].pc - code)));
        assert_eq!(op.va % 16, 8, "color at 0x18 of a chunk");
        colors += 1;
    }
    assert!(colors > 10_000);
}

/// 24 instructions with 12 accesses per edge to a vertex seen before.
#[test]
fn an_edge_takes_the_instructions_of_the_listing() {
    let params = [
        ("scale", "12"),
        ("layout", "graphbig"),
        ("roots", "1"),
        ("graph", "uniform"),
        ("degree", "64"),
    ];
    let given = run(
        build("bfs", &options(None, 1, 0, &params))
            .unwrap()
            .as_mut(),
        |_| 0,
    );
    let ops = &given[&0].ops;
    let code = 0x40_1000;
    let starts = (0..ops.len()).filter(|at| ops[*at].pc == code + 0x120);
    let starts: Vec<usize> = starts.collect();
    let mut black = 0;
    for pair in starts.windows(2) {
        let edge = &ops[pair[0]..pair[1]];
        if !edge.iter().any(|op| op.pc == code + 0x182) || edge.len() > 20 {
            continue;
        }
        let insns: u64 = edge.iter().map(|op| u64::from(op.insns)).sum();
        let memory = |op: &&pagewalk_stream::Op| matches!(op.kind, OpClass::Load | OpClass::Store);
        assert_eq!((insns, edge.iter().filter(memory).count()), (24, 12));
        black += 1;
    }
    assert!(black > 10_000);
}
