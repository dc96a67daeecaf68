//! The built-in programs from outside: their streams are those of the algorithms, in any order of the
//! threads.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::common::{ThreadOutput, check_stream, first, mappings, options, run};
use pagewalk_programs::build;
use pagewalk_stream::{Batch, Event, Op, OpClass, flags};

#[test]
fn gups_gives_17_instructions_an_update_and_7_a_round() {
    for threads in [1, 3, 16] {
        let options = options(Some(1 << 20), threads, 7, &[("updates", "10000")]);
        let mut program = build("gups", &options).unwrap();
        let facts = program.facts();
        let given = run(program.as_mut(), first);
        check_stream(&given);
        let counted: u64 = given
            .values()
            .flat_map(|g| &g.ops)
            .map(|o| u64::from(o.insns))
            .sum();
        assert_eq!(facts.instructions, Some(counted));
        let rounds: u64 = (0..u64::from(threads))
            .map(|t| {
                let share =
                    10_000 / u64::from(threads) + u64::from(t < 10_000 % u64::from(threads));
                share.div_ceil(1024)
            })
            .sum();
        assert_eq!(counted, 17 * 10_000 + 7 * rounds);
        let events = &given[&0].events;
        assert_eq!(events.last().unwrap().1, Event::RoiEnd);
        assert!(
            events
                .iter()
                .any(|(at, e)| *at == 0 && *e == Event::RoiBegin)
        );
    }
}

#[test]
fn gups_updates_are_those_of_the_generator_and_depend_on_it() {
    let options = options(Some(1 << 30), 1, 1, &[("updates", "3000")]);
    let given = run(build("gups", &options).unwrap().as_mut(), first);
    let ops = &given[&0].ops;
    let table = mappings(&given)[2].0;
    let mut words = Vec::new();
    let mut generators = 0;
    for (at, op) in ops.iter().enumerate() {
        match op.kind {
            // Each number depends on the previous one.
            OpClass::Compute => {
                if generators > 0 {
                    let producer = &ops[at - usize::from(op.dep[0])];
                    assert_eq!(producer.kind, OpClass::Compute);
                    assert_ne!(op.dep[0], 0);
                }
                generators += 1;
            }
            OpClass::Load if op.insns == 4 => {
                words.push((op.va - table) / 8);
                assert_eq!(ops[at - usize::from(op.dep[0])].va, ops[at - 1].va);
                let store = &ops[at + 1];
                assert_eq!(
                    (store.kind, store.va, store.dep),
                    (OpClass::Store, op.va, [2, 1])
                );
            }
            _ => {}
        }
    }
    assert_eq!((words.len(), generators), (3000, 3000));
    // The generator shifts left and xors 7 if the highest bit was set. In a table of 2^27 words, successive
    // numbers differ by exactly that.
    let mask = (1 << 27) - 1;
    for pair in words.windows(2) {
        let shifted = pair[0] << 1 & mask;
        assert!(pair[1] == shifted || pair[1] == shifted ^ 7);
    }
}

/// Both variants apply the same numbers. Their instructions are those of their listings, and `check` matches
/// the public runs.
#[test]
fn gups_variants_apply_the_same_updates() {
    let updates = |variant, chunk, threads| {
        let params = [
            ("updates", "10000"),
            ("variant", variant),
            ("chunk", chunk),
            ("first", "5000"),
        ];
        let options = options(Some(1 << 30), threads, 3, &params);
        let mut program = build("gups", &options).unwrap();
        let facts = program.facts();
        let given = run(program.as_mut(), first);
        check_stream(&given);
        let ops: Vec<&Op> = given.values().flat_map(|g| &g.ops).collect();
        let count = |kind| ops.iter().filter(|o| o.kind == kind).count();
        let instructions: u64 = ops.iter().map(|o| u64::from(o.insns)).sum();
        assert_eq!(facts.instructions, Some(instructions));
        let table = mappings(&given)[2].0;
        let words: Vec<u64> = ops
            .iter()
            .filter(|o| o.kind == OpClass::Store && (table..table + (1 << 30)).contains(&o.va))
            .map(|o| o.va - table)
            .collect();
        (
            words,
            instructions,
            count(OpClass::Load),
            count(OpClass::Store),
        )
    };
    let (words, instructions, loads, stores) = updates("check", "10000", 1);
    // One round: 32 instructions with nine loads and four stores, in addition to the updates.
    assert_eq!((instructions, loads, stores), (250_032, 40_009, 20_004));
    assert_eq!(words, updates("o2", "1024", 1).0);
    assert_eq!(words, updates("o2", "9999", 1).0);
    assert_eq!(words, updates("check", "77", 1).0);
    assert_eq!(words, updates("check", "1024", 4).0);
}

/// The generator of the `check` variant starts at 1 for every seed, as in the real program. The loop at -O2
/// starts at a seeded position of its period.
#[test]
fn the_checking_gups_begins_where_the_real_one_does() {
    let words = |variant, seed, more: &[(&str, &str)]| {
        let mut params = vec![("updates", "300"), ("variant", variant), ("chunk", "100")];
        params.extend_from_slice(more);
        let options = options(Some(1 << 30), 1, seed, &params);
        let given = run(build("gups", &options).unwrap().as_mut(), first);
        let table = mappings(&given)[2].0;
        let stores = given[&0].ops.iter().filter(|o| o.kind == OpClass::Store);
        let places = stores.filter(|o| (table..table + (1 << 30)).contains(&o.va));
        places.map(|o| (o.va - table) / 8).collect::<Vec<u64>>()
    };
    let mut ran = 1u64;
    let real: Vec<u64> = (0..300)
        .map(|_| {
            ran = ran << 1 ^ if (ran as i64) < 0 { 7 } else { 0 };
            ran & ((1 << 27) - 1)
        })
        .collect();
    assert_eq!(words("check", 0, &[]), real);
    assert_eq!(words("check", 1, &[]), real);
    assert_eq!(words("check", 1, &[("first", "100")])[..200], real[100..]);
    assert_eq!(words("o2", 1, &[("first", "0")]), real);
    assert_ne!(words("o2", 1, &[]), real);
    assert_ne!(words("o2", 1, &[]), words("o2", 2, &[]));
}

#[test]
fn sysbench_gives_the_instructions_of_its_binary() {
    for (params, instructions, operands) in [
        (vec![], 5.25, 1.0),
        (vec![("operation", "read")], 1.375, 1.0),
        // 2,000,000,000 instructions and 1,454,543,960 stores of EMT's log.
        (vec![("value", "constant")], 1.375, 1.0),
        (vec![("access", "random")], 31.0, 7.0),
        (vec![("access", "random"), ("operation", "read")], 31.0, 7.0),
    ] {
        let mut all = params.clone();
        all.push(("events", "2"));
        let options = options(Some(1 << 16), 1, 0, &all);
        let given = run(build("sysbench", &options).unwrap().as_mut(), first);
        check_stream(&given);
        let ops = &given[&0].ops;
        let words = f64::from(2 * (1 << 16) / 8);
        let counted: u64 = ops.iter().map(|o| u64::from(o.insns)).sum();
        let memory = ops
            .iter()
            .filter(|o| matches!(o.kind, OpClass::Load | OpClass::Store));
        assert_eq!(counted as f64 / words, instructions, "{params:?}");
        assert_eq!(memory.count() as f64 / words, operands, "{params:?}");
    }
}

/// Counts of XSBench as built by its own Makefile and run live (docs/validation.md).
#[test]
fn a_cross_section_lookup_is_as_long_as_the_compiled_one() {
    let params = [
        ("problem", "small"),
        ("particles", "100"),
        ("lookups", "34"),
    ];
    let options = options(Some(68 * 2000 * 328), 1, 0, &params);
    let given = run(build("xsbench", &options).unwrap().as_mut(), first);
    let ops = &given[&0].ops;
    let count = |kind| ops.iter().filter(|o| o.kind == kind).count() as f64;
    let instructions: f64 = ops.iter().map(|o| f64::from(o.insns)).sum();
    for (what, found, compiled) in [
        ("instructions", instructions, 1248.0),
        ("loads", count(OpClass::Load), 240.0),
        ("stores", count(OpClass::Store), 84.3),
        ("branches", count(OpClass::Branch), 113.0),
    ] {
        let ratio = found / 3400.0 / compiled;
        assert!((0.95..1.05).contains(&ratio), "{what}: {ratio}");
    }
}

#[test]
fn gups_of_a_terabyte_holds_no_table() {
    let options = options(Some(1 << 40), 1, 0, &[]);
    let mut program = build("gups", &options).unwrap();
    let mut batch = Batch::new();
    let mut highest = 0;
    for _ in 0..200 {
        program.fill(0, &mut batch).unwrap();
        highest = highest.max(batch.ops.iter().map(|o| o.va).max().unwrap_or(0));
    }
    assert!(highest > 0x1000_0000_0000 + (1 << 39));
}

/// Textbook search levels, from the edges that the stream itself reads.
fn reference(neighbours: &HashMap<u32, Vec<u32>>, root: u32) -> HashMap<u32, u32> {
    let mut level = HashMap::from([(root, 0)]);
    let mut queue = std::collections::VecDeque::from([root]);
    while let Some(u) = queue.pop_front() {
        for v in neighbours.get(&u).into_iter().flatten() {
            if !level.contains_key(v) {
                level.insert(*v, level[&u] + 1);
                queue.push_back(*v);
            }
        }
    }
    level
}

/// Arrays in the order of their mappings, after code and first stack.
struct Arrays {
    offsets: (u64, u64),
    neighbours: (u64, u64),
    parent: (u64, u64),
    queue: (u64, u64),
}

fn arrays(given: &BTreeMap<u32, ThreadOutput>) -> Arrays {
    let maps = mappings(given);
    Arrays {
        offsets: maps[2],
        neighbours: maps[3],
        parent: maps[4],
        queue: maps[5],
    }
}

fn inside(range: (u64, u64), va: u64) -> bool {
    range.0 <= va && va < range.1
}

/// True if an op belongs to one of the two loops over all vertices, before and after a search's levels.
fn over_all_vertices(op: &Op) -> bool {
    [0x3cf0..=0x3d2e, 0x42f8..=0x430a]
        .iter()
        .any(|loop_of| loop_of.contains(&(op.pc - 0x40_1000)))
}

/// One thread's searches, reconstructed from its ops alone.
#[test]
fn bfs_levels_equal_a_reference() {
    for graph in ["kronecker", "uniform"] {
        let options = options(
            None,
            1,
            3,
            &[
                ("graph", graph),
                ("scale", "12"),
                ("degree", "5"),
                ("roots", "3"),
            ],
        );
        let given = run(build("bfs", &options).unwrap().as_mut(), first);
        check_stream(&given);
        let a = arrays(&given);
        let mut neighbours: HashMap<u32, Vec<u32>> = HashMap::new();
        let mut searches: Vec<(u32, HashMap<u32, u32>)> = Vec::new();
        let (mut vertex, mut edges) = (0, Vec::new());
        for op in given[&0].ops.iter().filter(|o| !over_all_vertices(o)) {
            match op.kind {
                OpClass::Load if inside(a.offsets, op.va) => {
                    vertex = ((op.va - a.offsets.0) / 8) as u32;
                }
                OpClass::Load if inside(a.parent, op.va) => {
                    edges.push((vertex, ((op.va - a.parent.0) / 4) as u32));
                }
                OpClass::Store if inside(a.parent, op.va) && op.size == 4 => {
                    let v = ((op.va - a.parent.0) / 4) as u32;
                    if edges.last() != Some(&(vertex, v)) {
                        searches.push((v, HashMap::from([(v, 0)])));
                        edges.clear();
                    } else {
                        let levels = &mut searches.last_mut().unwrap().1;
                        let level = levels[&vertex] + 1;
                        assert_eq!(levels.insert(v, level), None, "visited twice");
                    }
                }
                // End of a step: keeps the edges that it read.
                OpClass::Branch if op.flags & flags::RETURN != 0 => {
                    for (u, v) in edges.drain(..) {
                        let list = neighbours.entry(u).or_default();
                        if !list.contains(&v) {
                            list.push(v);
                        }
                    }
                }
                _ => {}
            }
        }
        assert_eq!(searches.len(), 3);
        for (root, levels) in &searches {
            assert!(levels.len() > 100, "{graph}: {} vertices", levels.len());
            assert_eq!(
                *levels,
                reference(&neighbours, *root),
                "{graph} from {root}"
            );
        }
    }
}

/// Vertices found in each step of each search, how many of them were found bottom up, and how many edges were
/// read.
fn found_by_step(direction: &str, graph: &str) -> (Vec<Vec<BTreeSet<u64>>>, usize, usize) {
    let params = [
        ("graph", graph),
        ("scale", "12"),
        ("degree", "8"),
        ("symmetric", "yes"),
        ("roots", "3"),
        ("direction", direction),
    ];
    let given = run(
        build("bfs", &options(None, 1, 3, &params))
            .unwrap()
            .as_mut(),
        first,
    );
    check_stream(&given);
    let a = arrays(&given);
    let mut searches: Vec<Vec<BTreeSet<u64>>> = Vec::new();
    let (mut from_below, mut edges) = (0, 0);
    for op in given[&0].ops.iter().filter(|o| !over_all_vertices(o)) {
        let calls = op.kind == OpClass::Branch && op.flags & flags::CALL != 0;
        if calls && let Some(steps) = searches.last_mut() {
            steps.push(BTreeSet::new());
        }
        edges += usize::from(op.kind == OpClass::Load && inside(a.neighbours, op.va));
        if op.kind != OpClass::Store || !inside(a.parent, op.va) {
            continue;
        }
        let vertex = (op.va - a.parent.0) / 4;
        match op.pc - 0x40_1000 {
            0x3f20 => searches.push(vec![BTreeSet::from([vertex])]),
            pc => {
                from_below += usize::from(pc == 0x3995);
                let step = searches.last_mut().unwrap().last_mut().unwrap();
                assert!(step.insert(vertex), "visited twice");
            }
        }
    }
    for steps in &mut searches {
        steps.retain(|step| !step.is_empty());
    }
    (searches, from_below, edges)
}

/// Both directions find the same vertices in each level, and the change of direction reads few of the edges.
#[test]
fn a_change_of_direction_finds_the_same_levels() {
    for graph in ["kronecker", "uniform"] {
        let (down, none, all) = found_by_step("top-down", graph);
        let (both, from_below, edges) = found_by_step("optimizing", graph);
        assert_eq!(down.len(), 3);
        assert_eq!(both, down, "{graph}");
        let visited: usize = down.iter().flatten().map(BTreeSet::len).sum();
        assert_eq!(none, 0);
        assert!(
            from_below > visited / 2 && from_below < visited,
            "{graph}: {from_below}"
        );
        assert!(3 * edges < all, "{graph}: {edges} of {all}");
    }
}

#[test]
fn a_change_of_direction_needs_edges_both_ways_and_one_thread() {
    let refused = |threads, more: &[(&str, &str)]| {
        let mut params = vec![("direction", "optimizing"), ("scale", "12")];
        params.extend_from_slice(more);
        let built = build("bfs", &options(None, threads, 0, &params));
        built.err().expect("refused").to_string()
    };
    assert!(refused(1, &[]).contains("symmetric=yes"));
    assert!(refused(2, &[("symmetric", "yes")]).contains("one thread"));
    assert!(refused(1, &[("layout", "graphbig")]).contains("csr"));
    assert!(refused(1, &[("direction", "up")]).contains("optimizing"));
}

#[test]
fn bfs_branches_and_dependences_are_those_of_the_search() {
    let options = options(None, 1, 0, &[("scale", "12"), ("roots", "1")]);
    let given = run(build("bfs", &options).unwrap().as_mut(), first);
    let a = arrays(&given);
    let ops = &given[&0].ops;
    let mut claims = 0;
    for (at, op) in ops.iter().enumerate() {
        if over_all_vertices(op) {
            continue;
        }
        if op.kind == OpClass::Load && inside(a.parent, op.va) {
            let producer = &ops[at - usize::from(op.dep[0])];
            assert!(inside(a.neighbours, producer.va));
            // The address of the parents is loaded again for each edge.
            let begin = &ops[at - usize::from(op.dep[1])];
            assert_eq!((begin.kind, begin.size), (OpClass::Load, 8));
            assert!(!inside(a.neighbours, begin.va));
            let branch = &ops[at + 1];
            assert_eq!((branch.kind, branch.dep[0]), (OpClass::Branch, 1));
            let claimed = branch.flags & flags::TAKEN == 0;
            let store = &ops[at + 2];
            assert_eq!(claimed, store.kind == OpClass::Store && store.va == op.va);
            claims += usize::from(claimed);
        }
        if op.kind == OpClass::Load && inside(a.neighbours, op.va) && op.dep[0] > 0 {
            let producer = &ops[at - usize::from(op.dep[0])];
            assert!(inside(a.offsets, producer.va), "{op:?} from {producer:?}");
        }
    }
    // The list of a level is copied in pieces of up to eight vertices.
    let queued = ops
        .iter()
        .filter(|o| o.kind == OpClass::Store && inside(a.queue, o.va))
        .map(|o| usize::from(o.size) / 4);
    assert_eq!(claims + 1, queued.sum::<usize>());
}

#[test]
fn each_threads_stream_is_the_same_in_any_order_of_fills() {
    for (name, params) in [
        ("gups", vec![("updates", "5000")]),
        (
            "gups",
            vec![("updates", "9000"), ("variant", "check"), ("chunk", "700")],
        ),
        ("bfs", vec![("scale", "12"), ("roots", "2")]),
        (
            "bfs",
            vec![("scale", "13"), ("roots", "2"), ("graph", "uniform")],
        ),
        ("sysbench", vec![("access", "random")]),
        ("sysbench", vec![("scope", "local"), ("populate", "timed")]),
        ("churn", vec![("rounds", "2"), ("arena", "4KiB")]),
        (
            "xsbench",
            vec![("problem", "small"), ("particles", "900"), ("lookups", "1")],
        ),
        (
            "dlrm",
            vec![("batch", "100"), ("batches", "1"), ("pooling", "20")],
        ),
        ("kmer", vec![("k", "10"), ("length", "40"), ("errors", "0")]),
    ] {
        for threads in [1, 2, 5, 16] {
            let size = match name {
                "bfs" => None,
                // A size just above that of the counters: few reads.
                "kmer" => Some(540 << 10),
                _ => Some(1 << 20),
            };
            let options = options(size, threads, 11, &params);
            let give = |pick: &mut dyn FnMut(&[u32]) -> usize| {
                run(build(name, &options).unwrap().as_mut(), pick)
            };
            let in_turn = {
                let mut at = 0;
                give(&mut |live| {
                    at += 1;
                    at % live.len()
                })
            };
            check_stream(&in_turn);
            let mut state = 1u64;
            let shuffled = give(&mut |live| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 33) as usize % live.len()
            });
            assert!(in_turn == shuffled, "{name} with {threads} threads");
            let last_first = {
                let mut at = 0usize;
                give(&mut |live| {
                    at += 1;
                    live.len() - 1 - at / 50 % live.len()
                })
            };
            assert!(in_turn == last_first, "{name} with {threads} threads");
        }
    }
}

#[test]
fn threads_visit_what_one_thread_visits() {
    let visited = |threads| {
        let options = options(None, threads, 5, &[("scale", "13"), ("roots", "1")]);
        let given = run(build("bfs", &options).unwrap().as_mut(), first);
        let a = arrays(&given);
        let mut stored: Vec<u64> = given
            .values()
            .flat_map(|g| &g.ops)
            .filter(|o| o.kind == OpClass::Store && inside(a.parent, o.va) && o.size == 4)
            .filter(|o| !over_all_vertices(o))
            .map(|o| o.va - a.parent.0)
            .collect();
        stored.sort_unstable();
        let all = stored.len();
        stored.dedup();
        assert_eq!(all, stored.len(), "visited twice");
        stored
    };
    let alone = visited(1);
    assert!(alone.len() > 1000);
    assert_eq!(alone, visited(4));
    assert_eq!(alone, visited(16));
}

#[test]
fn seeds_change_the_stream_and_repeat_it() {
    for (name, params) in [
        ("gups", vec![]),
        ("bfs", vec![]),
        ("sysbench", vec![("access", "random")]),
        ("xsbench", vec![]),
        ("dlrm", vec![]),
        ("kmer", vec![]),
        ("mummer", vec![]),
    ] {
        let give = |seed| {
            let mut program = build(name, &options(Some(4 << 20), 1, seed, &params)).unwrap();
            let mut batch = Batch::new();
            let mut ops = Vec::new();
            while ops.len() < 50_000 {
                program.fill(0, &mut batch).unwrap();
                ops.extend_from_slice(&batch.ops);
            }
            ops
        };
        assert_eq!(give(1), give(1));
        assert_ne!(give(1), give(2));
    }
}
