//! The cycles of an instruction that queries the machine's shortcut, in closed form.

use crate::bench::{Bench, DRAM, FLIP, L1, PC, after, compute, load, mmu, spec};
use pagewalk_cpu::Stop;
use pagewalk_stream::{Op, OpClass, flags};
use pagewalk_tables::{QueryResult, StltPage, Unit};
use pagewalk_units::{Cycle, PageSize, PhysAddr, VirtAddr};

const LATENCY: u8 = 5;
/// Address of the rows; no data lies there.
const ROWS: u64 = 1 << 32;

fn query() -> Op {
    Op {
        pc: PC,
        insns: 1,
        kind: OpClass::Query,
        ..Op::default()
    }
}

fn result_of(lines: &[u64], written: bool) -> QueryResult {
    let at = |line: &u64| PhysAddr(ROWS + 64 * line);
    QueryResult {
        value: 0,
        reads: lines.iter().map(at).collect(),
        written: written.then(|| at(&lines[0])),
        latency: LATENCY,
        walk_latency: LATENCY,
        ..QueryResult::default()
    }
}

/// Runs `ops`. The nth query gets the result `answer(n)`.
fn run(b: &mut Bench, ops: &[Op], answer: impl Fn(u64) -> Option<QueryResult>) -> Cycle {
    let before = b.core.finish();
    b.core.idle(before);
    let (mut at, mut queries) = (0, 0);
    loop {
        let ran = b.run_until(ops, at, u64::MAX, u64::MAX);
        match ran.stop {
            Stop::Query => {
                assert_eq!(ops[ran.at].kind, OpClass::Query);
                let result = answer(queries);
                b.run_query(&ops[ran.at], result.as_ref());
                queries += 1;
                at = ran.at + 1;
            }
            Stop::NeedBatch => return b.core.finish() - before,
            other => panic!("{other:?}"),
        }
    }
}

fn begun() -> Bench {
    let mut b = Bench::new(&spec());
    b.run(&[compute(1, 1)]);
    b
}

#[test]
fn a_chain_of_queries_costs_the_line_and_the_match_each() {
    let mut b = begun();
    let ops = vec![after(query(), 1); 1000];
    run(&mut b, &ops, |_| Some(result_of(&[3], false)));
    let cycles = run(&mut b, &ops, |_| Some(result_of(&[3], false)));
    assert_eq!(cycles, 1000 * (L1 + Cycle::from(LATENCY)) + 1);
    // New lines, all of a set in parallel.
    let set = |n: u64| (0..8).map(|k| 100 + 8 * n + k).collect::<Vec<_>>();
    let cycles = run(&mut b, &ops, |n| Some(result_of(&set(n), false)));
    assert_eq!(cycles, 1000 * (DRAM + Cycle::from(LATENCY)) + 1);
}

#[test]
fn only_dependents_of_the_result_wait_for_it() {
    let mut b = begun();
    let far = |line| Some(result_of(&[line], false));
    let both = [query(), load(1 << 20)];
    let cycles = run(&mut b, &both, |_| far(1000));
    assert_eq!(cycles, DRAM + Cycle::from(LATENCY) + 1, "side by side");
    let chained = [query(), after(load(2 << 20), 1)];
    let cycles = run(&mut b, &chained, |_| far(2000));
    assert_eq!(cycles, 2 * DRAM + Cycle::from(LATENCY) + 1);
}

#[test]
fn a_result_at_once_takes_the_latency_alone_and_does_not_wait_for_the_line() {
    let mut b = begun();
    let at_once = |line| {
        Some(QueryResult {
            at_once: true,
            ..result_of(&[line], false)
        })
    };
    let chained = [query(), after(load(2 << 20), 1)];
    let cycles = run(&mut b, &chained, |_| at_once(2000));
    assert_eq!(cycles, Cycle::from(LATENCY) + DRAM + 1);
    assert_eq!(b.get("core.0.l1d", "loads"), 2, "the row is read");
    let again = run(&mut b, &[query()], |_| Some(result_of(&[2000], false)));
    assert_eq!(again, L1 + Cycle::from(LATENCY) + 1, "and is there");
}

#[test]
fn no_op_waits_for_the_written_line() {
    let ops = vec![after(query(), 1); 100];
    let [without, with] = [false, true].map(|written| {
        let mut b = begun();
        run(&mut b, &ops, |n| Some(result_of(&[n], written)))
    });
    assert_eq!(without, with);
    // The line is written all the same: the core owns it.
    let mut b = begun();
    run(&mut b, &ops, |n| Some(result_of(&[n], true)));
    assert_eq!(b.get("core.0.l1d", "stores"), 100);
    assert_eq!(b.get("core.0.l1d", "loads"), 100);
}

#[test]
fn without_a_shortcut_a_query_is_an_instruction_of_one_cycle() {
    let mut b = begun();
    let ops = vec![after(query(), 1); 1000];
    assert_eq!(run(&mut b, &ops, |_| None), 1000 + 1);
    assert_eq!(b.stats().instructions, 1001);
}

#[test]
fn requests_end_at_their_marks_and_the_run_at_its_limit_of_requests() {
    let mut b = begun();
    let last = Op {
        flags: flags::REQUEST,
        ..compute(1, 1)
    };
    let ops = [load(0), last, load(64), last, load(128), last];
    b.core.stop_at_requests(2);
    let ran = b.run_until(&ops, 0, u64::MAX, u64::MAX);
    assert_eq!((ran.at, ran.stop), (4, Stop::Limit));
    b.core.stop_at_requests(3);
    let ran = b.warm(&ops[4..]);
    assert_eq!((ran.at, ran.stop), (2, Stop::Limit));
    assert_eq!((b.core.requests(), b.stats().requests), (3, 2));
    // A query can end a request, too.
    let last_query = [Op {
        flags: flags::REQUEST,
        ..query()
    }];
    b.core.stop_at_requests(u64::MAX);
    run(&mut b, &last_query, |_| Some(result_of(&[7], false)));
    assert_eq!(b.core.requests(), 4);
}

#[test]
fn a_warmed_query_leaves_its_lines_and_takes_no_time_of_its_own() {
    let mut b = begun();
    let ops = [query()];
    let ran = b.warm(&ops);
    assert_eq!((ran.at, ran.stop), (0, Stop::Query));
    let before = b.core.instructions();
    b.warm_query(&ops[0], Some(&result_of(&[9], false)));
    assert_eq!(b.core.instructions(), before + 1);
    let chain = vec![after(query(), 1); 100];
    let cycles = run(&mut b, &chain, |_| Some(result_of(&[9], false)));
    assert_eq!(cycles, 100 * (L1 + Cycle::from(LATENCY)) + 1);
}

/// The result of an insertion, with or without lines of its set.
fn insertion(page: u64, lines: &[u64]) -> QueryResult {
    QueryResult {
        unit: Unit::Insert {
            row: Some(PhysAddr(ROWS + 64 * page)),
            walk: Some(VirtAddr(page << 12)),
        },
        ..result_of(lines, false)
    }
}

#[test]
fn an_insertion_takes_its_walk_or_its_line_and_the_latency() {
    let mut b = Bench::with_stlt(&spec(), &mmu());
    b.run(&[compute(1, 1)]);
    let walked = |b: &Bench| b.get("core.0.mmu.stlt", "walk_cycles");
    // A far page: its entries are in memory, one level after the other.
    let cycles = run(&mut b, &[query()], |_| Some(insertion(1 << 20, &[])));
    let walk = walked(&b);
    assert!(walk >= 2 * DRAM, "{walk}");
    assert_eq!(cycles, walk + Cycle::from(LATENCY) + 1);
    // The next page: the walk is short and overlaps with the line.
    let cycles = run(&mut b, &[query()], |_| Some(insertion((1 << 20) + 1, &[5])));
    assert!(walked(&b) - walk < DRAM);
    assert_eq!(cycles, DRAM + Cycle::from(LATENCY) + 1);
    assert_eq!(b.get("core.0.mmu", "walks"), 1, "of the instructions");
}

#[test]
fn a_scan_that_overlaps_with_the_walk_leaves_the_latency_of_the_walk() {
    let mut b = Bench::with_stlt(&spec(), &mmu());
    b.run(&[compute(1, 1)]);
    let overlaps = |page, lines: &[u64]| QueryResult {
        walk_latency: 1,
        ..insertion(page, lines)
    };
    let cycles = run(&mut b, &[query()], |_| Some(overlaps(1 << 20, &[])));
    let walk = b.get("core.0.mmu.stlt", "walk_cycles");
    assert_eq!(cycles, walk + 1 + 1);
    // The scan ends after the short walk.
    let cycles = run(&mut b, &[query()], |_| Some(overlaps((1 << 20) + 1, &[5])));
    assert_eq!(cycles, DRAM + Cycle::from(LATENCY) + 1);
}

#[test]
fn the_stb_has_the_translation_of_the_record() {
    let record = |n: u64| (1 << 32) + (n << 21);
    let answer = |n: u64, translation: bool| {
        let page = StltPage {
            frame: PhysAddr(record(n) ^ FLIP),
            size: PageSize::K4,
            writable: true,
        };
        QueryResult {
            unit: Unit::Load {
                row: Some(PhysAddr(ROWS)),
                translation: translation.then_some((VirtAddr(record(n)), page)),
                invalid: Some(false),
            },
            ..result_of(&[n], false)
        }
    };
    let walks = [true, false].map(|translation| {
        let mut b = Bench::with_stlt(&spec(), &mmu());
        b.run(&[compute(1, 1)]);
        let ops: Vec<Op> = (0..100)
            .flat_map(|n| [query(), after(load(record(n)), 1)])
            .collect();
        run(&mut b, &ops, |n| Some(answer(n, translation)));
        let hits = b.get("core.0.mmu.stb", "hits");
        assert_eq!(hits, if translation { 100 } else { 0 });
        b.get("core.0.mmu", "walks")
    });
    assert_eq!(walks[0] + 100, walks[1]);
}
