//! Marked ends of requests, compared with the number of requests.

use crate::common::{first, options, run};
use pagewalk_programs::{Code, NONE, Touch, build};
use pagewalk_stream::{Batch, End, Event, Facts, OpClass, Program, ShortcutQuery, flags};

fn requests(name: &str, size: Option<u64>, threads: u32, params: &[(&str, &str)]) -> u64 {
    let mut program = build(name, &options(size, threads, 1, params)).unwrap();
    assert!(program.facts().request.is_some(), "{name}");
    let given = run(program.as_mut(), first);
    let begun = given[&0].events.iter().find(|e| e.1 == Event::RoiBegin);
    let ends = |o: &&pagewalk_stream::Op| o.flags & flags::REQUEST != 0;
    assert!(!given[&0].ops[..begun.unwrap().0].iter().any(|o| ends(&o)));
    given
        .values()
        .map(|g| g.ops.iter().filter(ends).count() as u64)
        .sum()
}

#[test]
fn as_many_requests_end_as_were_asked_for() {
    for threads in [1, 3] {
        for variant in ["o2", "check"] {
            let params = [("updates", "5000"), ("variant", variant)];
            assert_eq!(requests("gups", Some(1 << 20), threads, &params), 5000);
        }
    }
    for name in [
        "kv-hash", "kv-dense", "kv-map", "kv-btree", "kv-flat", "kv-redis",
    ] {
        for (sets, populate) in [("0", "yes"), ("40", "yes"), ("40", "timed")] {
            let params = [
                ("keys", "2000"),
                ("operations", "3000"),
                ("sets", sets),
                ("populate", populate),
            ];
            assert_eq!(requests(name, None, 1, &params), 3000, "{name} {params:?}");
            let mut params = params.to_vec();
            params.extend([("deletes", "30"), ("resize", "yes"), ("indexes", "2")]);
            assert_eq!(requests(name, None, 1, &params), 3000, "{name} {params:?}");
        }
    }
}

#[test]
fn a_request_of_a_science_program_is_a_lookup() {
    let history = [("method", "history"), ("particles", "50"), ("lookups", "7")];
    assert_eq!(requests("xsbench", Some(64 << 20), 2, &history), 50 * 7);
    let dlrm = [("tables", "3"), ("batch", "16"), ("batches", "2")];
    assert_eq!(requests("dlrm", Some(16 << 20), 2, &dlrm), 3 * 16 * 2);
}

#[test]
fn a_program_whose_requests_are_regions_marks_none() {
    let program = build("bfs", &options(None, 1, 1, &[("scale", "12")])).unwrap();
    assert_eq!(program.facts().request, None);
}

/// Two threads that query the squares of numbers and record the results.
#[test]
fn a_thread_with_a_query_continues_with_its_result() {
    let results = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut code = Code::new(Facts::default(), Touch::Never);
    for thread in 0..2u64 {
        let results = results.clone();
        code.thread(0x10_0000, move |mut t| async move {
            t.begin(if thread == 0 { 2 } else { 1 }).await;
            for integer in 0..3 {
                let query = ShortcutQuery::LoadVa {
                    integer: 10 * thread + integer,
                };
                let (value, result) = t.shortcut_query(0x10, 2, query, [NONE; 2]);
                let reply = result.await;
                results.lock().unwrap().push((thread, reply));
                t.branch(0x14, 0x20, 1, reply.is_some(), [value, NONE]);
                t.request();
            }
        });
    }
    let mut batch = Batch::new();
    let mut live = vec![0];
    let (mut queries, mut requests) = (0, 0);
    while let Some(&thread) = live.last() {
        let end = code.fill(thread, &mut batch).unwrap();
        let ends = batch.ops.iter().filter(|o| o.flags & flags::REQUEST != 0);
        requests += ends.count();
        match end {
            End::Query(ShortcutQuery::LoadVa { integer }) => {
                assert_eq!(batch.ops.last().unwrap().kind, OpClass::Query);
                let early = code.fill(thread, &mut batch).unwrap_err();
                assert!(
                    early.to_string().contains("a query without a result"),
                    "{early}"
                );
                queries += 1;
                code.shortcut_result(thread, (integer < 11).then_some(integer * integer));
            }
            End::Event {
                event: Event::Spawn { thread },
                ..
            } => live.push(thread),
            End::Exit => live.retain(|t| *t != thread),
            _ => {}
        }
    }
    assert_eq!((queries, requests), (6, 6));
    let mut results = results.lock().unwrap().clone();
    results.sort_unstable();
    let want = [
        (0, Some(0)),
        (0, Some(1)),
        (0, Some(4)),
        (1, None),
        (1, None),
        (1, Some(100)),
    ];
    assert_eq!(results, want);
}
