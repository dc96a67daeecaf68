//! Memory initialised in part without simulated time: the pages, their order, and the extent of the region of
//! interest.

use std::collections::BTreeSet;

use crate::common::{ThreadOutput, check_stream, first, options, run};
use pagewalk_programs::build;
use pagewalk_stream::{Event, Op, OpClass};

/// A program, its size, threads and parameters.
type Case = (
    &'static str,
    Option<u64>,
    u32,
    &'static [(&'static str, &'static str)],
);

const CASES: [Case; 11] = [
    ("gups", Some(1 << 20), 3, &[("updates", "3000")]),
    (
        "gups",
        Some(1 << 20),
        2,
        &[("updates", "3000"), ("variant", "check"), ("chunk", "700")],
    ),
    ("sysbench", Some(1 << 20), 2, &[("scope", "local")]),
    ("bfs", None, 2, &[("scale", "12"), ("roots", "1")]),
    (
        "bfs",
        None,
        2,
        &[("scale", "12"), ("roots", "1"), ("layout", "graphbig")],
    ),
    ("tc", None, 2, &[("scale", "12"), ("layout", "graphbig")]),
    (
        "xsbench",
        Some(1 << 20),
        2,
        &[("problem", "small"), ("particles", "90"), ("lookups", "1")],
    ),
    (
        "dlrm",
        Some(1 << 20),
        1,
        &[("batch", "10"), ("batches", "1"), ("pooling", "2")],
    ),
    (
        "kmer",
        Some(540 << 10),
        1,
        &[("k", "10"), ("length", "40"), ("errors", "0")],
    ),
    ("mummer", Some(1 << 20), 1, &[]),
    (
        "kv-hash",
        None,
        1,
        &[("keys", "3000"), ("operations", "100")],
    ),
];

fn given(case: &Case, more: &[(&str, &str)]) -> ThreadOutput {
    let (name, size, threads, params) = *case;
    let params = [params, more].concat();
    let options = options(size, threads, 5, &params);
    let mut program = build(name, &options).unwrap();
    let facts = program.facts();
    let mut given = run(program.as_mut(), first);
    check_stream(&given);
    if let Some(instructions) = facts.instructions {
        let ops = given.values().flat_map(|g| &g.ops);
        let counted: u64 = ops.map(|o| u64::from(o.insns)).sum();
        assert_eq!(instructions, counted, "{name} {more:?}");
    }
    given.remove(&0).unwrap()
}

/// Pages populated without simulated time, in order.
fn populated(given: &ThreadOutput) -> Vec<u64> {
    let pages = given.events.iter().filter_map(|(_, e)| match e {
        Event::Populate { at, bytes } => Some(at.0 >> 12..(at.0 + bytes) >> 12),
        _ => None,
    });
    let mut seen = BTreeSet::new();
    pages.flatten().filter(|p| seen.insert(*p)).collect()
}

fn at(given: &ThreadOutput, event: &Event) -> usize {
    let mut found = given.events.iter().filter(|e| e.1 == *event);
    let place = found.next().expect("the event is there").0;
    assert_eq!(found.next(), None, "once");
    place
}

fn is_touch(op: &Op) -> bool {
    (0x40_1000 + 0xf040..0x40_1000 + 0xf048).contains(&op.pc)
}

/// True if `found` touches these pages first, in this order. For `gups` the order is ignored: the arrays of
/// its threads exist before its table is initialised in part.
fn same(name: &str, found: impl IntoIterator<Item = u64>, pages: &[u64]) -> bool {
    let mut seen = BTreeSet::new();
    let first: Vec<u64> = found.into_iter().filter(|p| seen.insert(*p)).collect();
    let mut pages = pages.to_vec();
    if name == "gups" {
        pages.sort_unstable();
        return seen.into_iter().eq(pages);
    }
    first == pages
}

#[test]
fn pages_that_are_not_populated_are_touched_in_program_order() {
    for case in &CASES {
        let name = case.0;
        let whole = given(case, &[]);
        let pages = populated(&whole);
        let bytes = (4096 * pages.len() as u64 / 2).to_string();
        let part = given(case, &[("populate", &bytes)]);
        let bulk = populated(&part);
        let begin = at(&part, &Event::RoiBegin);
        assert_eq!(begin, 0, "{name}: nothing is simulated before");
        let touches: Vec<u64> = (part.ops.iter())
            .filter(|o| is_touch(o) && o.kind == OpClass::Store)
            .map(|o| o.va >> 12)
            .collect();
        assert!(
            touches.len() > pages.len() / 4 && bulk.len() > pages.len() / 4,
            "{name}: {} and {} of {}",
            bulk.len(),
            touches.len(),
            pages.len()
        );
        let both = bulk.iter().chain(&touches).copied();
        assert!(same(name, both, &pages), "{name}: the same pages in order");
        // The ops of the program itself are those after populating in bulk.
        let rest: Vec<Op> = part.ops.iter().filter(|o| !is_touch(o)).copied().collect();
        assert!(rest == whole.ops, "{name}");
        assert_eq!(at(&part, &Event::RoiEnd), part.ops.len(), "{name}");
    }
}

#[test]
fn the_region_of_interest_may_be_the_initialisation_alone() {
    for case in &CASES {
        let name = case.0;
        let pages = populated(&given(case, &[]));
        let bytes = (4096 * pages.len() as u64 / 2).to_string();
        let alone = [("populate", bytes.as_str()), ("region", "initialisation")];
        let part = given(case, &alone);
        let region = at(&part, &Event::RoiBegin)..at(&part, &Event::RoiEnd);
        assert!(!region.is_empty(), "{name}");
        for (place, op) in part.ops.iter().enumerate() {
            assert_eq!(is_touch(op), region.contains(&place), "{name}: op {place}");
        }
        if name != "gups" {
            let timed = given(case, &[("populate", "timed"), ("region", "initialisation")]);
            let region = at(&timed, &Event::RoiBegin)..at(&timed, &Event::RoiEnd);
            let written: BTreeSet<u64> = timed.ops[region].iter().map(|o| o.va >> 12).collect();
            let missed = pages.iter().filter(|p| !written.contains(p)).count();
            // A key-value store loads by requests, which do not write to all of its memory.
            let most = if name.starts_with("kv") {
                pages.len() / 4
            } else {
                0
            };
            assert!(missed <= most, "{name}: {missed} of {}", pages.len());
        }
    }
}

/// Memory that threads initialise for themselves in the region of interest counts with the rest.
#[test]
fn threads_share_what_is_initialised_in_bulk() {
    let params = [("scale", "14"), ("graph", "uniform")];
    let bulk = |populate: &str| {
        let params = [&params[..], &[("populate", populate)]].concat();
        let options = options(None, 3, 5, &params);
        let given = run(build("gc", &options).unwrap().as_mut(), first);
        check_stream(&given);
        let begins = |g: &ThreadOutput| g.events.iter().filter(|e| e.1 == Event::RoiBegin).count();
        assert_eq!(given.values().map(begins).sum::<usize>(), 1);
        [0, 1, 2].map(|thread| populated(&given[&thread]).len() as u64)
    };
    let whole = bulk("yes");
    assert!(
        whole[1] > 0 && whole[2] > 0,
        "threads have arrays of their own"
    );
    assert_eq!(bulk("1TiB"), whole);
    // The first thread's memory alone exceeds this size.
    let half = bulk(&(whole[0] * 2048).to_string());
    assert!(half[0] >= whole[0] / 2 && half[0] < whole[0]);
    assert_eq!(half[1..], [0, 0], "nothing is left for the others");
}

#[test]
fn all_of_it_may_be_left_or_nothing() {
    for case in &CASES {
        let pages = populated(&given(case, &[]));
        let none = given(case, &[("populate", "0")]);
        // A program's data segment is loaded, not initialised.
        assert!(populated(&none).len() < pages.len() / 4, "{}", case.0);
        let everything = given(case, &[("populate", "1TiB")]);
        assert!(same(case.0, populated(&everything), &pages), "{}", case.0);
        assert!(!everything.ops.iter().any(is_touch), "{}", case.0);
    }
}
