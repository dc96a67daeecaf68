//! Programs that query the engine's shortcut: their queries, and their use of the results.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Seek};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pagewalk_live::{Live, launch};
use pagewalk_ring::record;
use pagewalk_stream::{Batch, End, Event, Op, OpClass, ProcessId, Program, ShortcutQuery, flags};
use pagewalk_trace::{OpenOptions, check_trace, open_trace};
use pagewalk_units::VirtAddr;

use crate::corrupt::{FAKE, fake_options, memory};
use crate::driver::{Outcome, run_answered};
use crate::recording::{code, recorded};
use crate::tools::{compile, present};
use crate::{options, programs};

/// A table of addresses for each process, which a process has from its first query on.
#[derive(Default)]
struct Table {
    rows: HashMap<(ProcessId, u64), u64>,
    /// True if the process has a table.
    has: HashMap<ProcessId, bool>,
    loads: u64,
    inserts: u64,
    /// Queries of the three table calls, in order.
    calls: Vec<ShortcutQuery>,
}

impl Table {
    fn answer(&mut self, process: ProcessId, query: ShortcutQuery) -> u64 {
        match query {
            ShortcutQuery::LoadVa { integer } => {
                self.loads += 1;
                self.has.entry(process).or_insert(true);
                self.rows.get(&(process, integer)).copied().unwrap_or(0)
            }
            ShortcutQuery::InsertVa { integer, va } => {
                self.inserts += 1;
                let has = *self.has.entry(process).or_insert(true);
                if has && va.0 != 0 {
                    self.rows.insert((process, integer), va.0);
                } else {
                    self.rows.remove(&(process, integer));
                }
                u64::from(has)
            }
            ShortcutQuery::Alloc { rows } | ShortcutQuery::Resize { rows } => {
                self.calls.push(query);
                let has = self.has.get(&process) == Some(&true);
                let possible = rows == 0 || rows.is_power_of_two() && rows >= 256;
                let done = possible && has == matches!(query, ShortcutQuery::Resize { .. });
                if done {
                    self.rows.retain(|row, _| row.0 != process);
                    self.has.insert(process, true);
                }
                u64::from(done)
            }
            ShortcutQuery::Free => {
                self.calls.push(query);
                self.rows.retain(|row, _| row.0 != process);
                u64::from(self.has.insert(process, false) == Some(true))
            }
        }
    }
}

/// Runs a program with results for its queries, with or without a reader thread.
fn answered(
    argv: &[&str],
    ahead: bool,
    mut answer: impl FnMut(ProcessId, ShortcutQuery) -> Option<u64>,
) -> (Outcome, String, u64) {
    let mut file = tempfile::tempfile().unwrap();
    let mut options = options(argv);
    options.stdio[1] = Some(file.try_clone().unwrap());
    let mut program: Box<dyn Program> = if ahead {
        launch(options).unwrap()
    } else {
        Box::new(Live::launch(options).unwrap())
    };
    let mut queries = 0;
    let outcome = run_answered(
        program.as_mut(),
        |_, _, _| (),
        |_, _, _| (),
        |process, query| {
            queries += 1;
            answer(process, query)
        },
    )
    .unwrap();
    drop(program);
    let mut output = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut output).unwrap();
    (outcome, output, queries)
}

/// Output of a run without the emulator.
fn native(argv: &[&str]) -> String {
    let output = Command::new(argv[0]).args(&argv[1..]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_program_branches_on_the_results() {
    if !present() {
        return;
    }
    let program = compile("queries", programs::QUERIES);
    for (threads, ahead) in [(1, false), (1, true), (4, false), (4, true)] {
        let argv = [&program[..], "50", "10", &threads.to_string()];
        let mut table = Table::default();
        let (outcome, output, queries) = answered(&argv, ahead, |p, a| Some(table.answer(p, a)));
        assert_eq!(outcome.status, Some(0));
        let (all, distinct) = (threads * 500, threads * 50);
        let (sum, counts) = output.split_once('\n').unwrap();
        let expected = format!("{} {distinct} {distinct}\n", all - distinct);
        assert_eq!(counts, expected, "{threads} {ahead}");
        assert_eq!((table.loads, table.inserts), (all, distinct));
        assert_eq!(queries, all + distinct);

        // Without results the program searches by itself, and finds the same.
        let alone = native(&argv);
        assert_eq!(alone, format!("{sum}\n0 {all} 0\n"));
        let (outcome, output, queries) = answered(&argv, ahead, |_, _| None);
        assert_eq!((outcome.status, output), (Some(0), alone));
        assert!((1..=threads).contains(&queries), "{queries}");
    }
}

#[test]
fn tables_are_made_resized_and_freed_by_the_engine_or_in_software() {
    if !present() {
        return;
    }
    let program = compile("tables", programs::TABLES);
    for (threads, ahead) in [(1, true), (4, false), (4, true)] {
        let argv = [&program[..], &threads.to_string(), "400"];
        let mut table = Table::default();
        let (outcome, output, _) = answered(&argv, ahead, |p, a| Some(table.answer(p, a)));
        assert_eq!(outcome.status, Some(0));
        let alloc = |rows| ShortcutQuery::Alloc { rows };
        let resize = |rows| ShortcutQuery::Resize { rows };
        let calls = [
            &[alloc(100), alloc(1024), alloc(1024)][..],
            &[resize(0), resize(4096), resize(300)],
            &[
                ShortcutQuery::Free,
                ShortcutQuery::Free,
                alloc(0),
                alloc(256),
            ],
        ];
        assert_eq!(table.calls, calls.concat());
        let lines: Vec<&str> = output.lines().collect();
        assert_eq!(lines[0], "alloc 0 1 0");
        let numbers: Vec<u64> = (lines[1].split(' ').filter_map(|w| w.parse().ok())).collect();
        let [wrong, hits, made, freed] = numbers[..] else {
            panic!("{output}");
        };
        assert_eq!(wrong, 0, "{threads} {ahead}");
        assert!(hits > 100 * threads && made > freed && freed > 10 * threads);
        let rest = [
            "there 1 resize 1 there 0 resize 1 again 1 refused 0 there 1",
            "child 0 1",
            "parent 1 free 1 0 there 0 insert 0 alloc 1 1",
            // Its first query gave it a table.
            "exec 0 alloc 0 1",
        ];
        assert_eq!(lines[2..], rest);
        // A table in software holds the same records as the engine's for the same threads. A child has a copy of it.
        let alone = native(&argv);
        let software: Vec<&str> = alone.lines().collect();
        assert_eq!(software[..3], lines[..3]);
        assert_eq!(
            software[3..],
            ["child 1 1", rest[2], "exec 0 alloc 1 1"],
            "{threads}"
        );
        let (outcome, output, queries) = answered(&argv, ahead, |_, _| None);
        assert_eq!((outcome.status, output), (Some(0), alone));
        // Threads, the child and the new image know already, or find out without a query.
        assert_eq!(queries, 2, "the first image and that of exec");
    }
}

#[test]
fn a_program_without_queries_gets_no_result() {
    if !present() {
        return;
    }
    let program = compile("query-nothing", programs::GUPS);
    let (outcome, _, queries) = answered(&[&program, "1000"], true, |_, _| unreachable!());
    assert_eq!((outcome.status, queries), (Some(0), 0));
}

#[test]
fn children_and_new_images_have_queries_of_their_own() {
    if !present() {
        return;
    }
    let program = compile("query-children", programs::QUERYING_CHILDREN);
    for ahead in [false, true] {
        let mut table = Table::default();
        let mut processes = BTreeMap::<ProcessId, u64>::new();
        let (outcome, _, _) = answered(&[&program], ahead, |p, a| {
            *processes.entry(p).or_default() += 1;
            Some(table.answer(p, a))
        });
        // Each process inserts once and gets its insertion back; the first one gets it once more.
        assert_eq!(outcome.status, Some(2 + 3 * 2 + 10 * 2 + 100), "{ahead}");
        assert_eq!(processes, BTreeMap::from([(0, 4), (1, 3), (2, 3)]));
    }
}

/// Processes of this test that run `program`.
fn processes(program: &str) -> Vec<i32> {
    let of = |d: std::fs::DirEntry| -> Option<i32> {
        let pid = d.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(d.path().join("cmdline")).ok()?;
        let ends = line.ends_with(format!("{program}\0").as_bytes());
        ends.then_some(pid)
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(of).collect()
}

fn until_query(program: &mut dyn Program) {
    let mut batch = Batch::new();
    loop {
        match program.fill(0, &mut batch).unwrap() {
            End::Query(query) => {
                assert_eq!(query, ShortcutQuery::LoadVa { integer: 1 });
                return;
            }
            End::Empty | End::Blocked => program.wait(),
            End::Exit => panic!("it has made no query"),
            _ => {}
        }
    }
}

/// Exit status of the first process, and of the program.
fn rest(program: &mut dyn Program) -> (Option<i32>, Option<i32>) {
    let (mut batch, mut said) = (Batch::new(), None);
    loop {
        match program.fill(0, &mut batch).unwrap() {
            End::Empty | End::Blocked => program.wait(),
            End::Event {
                event: Event::ProcessExit { status },
                ..
            } => said = Some(status),
            End::Exit => return (said, program.exit_status()),
            _ => {}
        }
    }
}

#[test]
fn a_process_that_is_killed_while_it_waits_for_a_result_ends() {
    if !present() {
        return;
    }
    for ahead in [false, true] {
        let path = compile(&format!("query-killed-{ahead}"), programs::QUERY_ONCE);
        let mut program: Box<dyn Program> = if ahead {
            launch(options(&[&path])).unwrap()
        } else {
            Box::new(Live::launch(options(&[&path])).unwrap())
        };
        until_query(program.as_mut());
        let found = processes(&path);
        assert_eq!(found.len(), 1);
        // SAFETY: a process of this test's.
        unsafe { libc::kill(found[0], libc::SIGKILL) };
        // The thread of this query is dead.
        program.shortcut_result(0, Some(1));
        let killed = Some(128 + libc::SIGKILL);
        assert_eq!(rest(program.as_mut()), (killed, killed), "{ahead}");
    }
}

#[test]
fn a_program_with_a_query_ends_when_its_stream_is_dropped() {
    if !present() {
        return;
    }
    for ahead in [false, true] {
        let path = compile(&format!("query-dropped-{ahead}"), programs::QUERY_ONCE);
        let mut program: Box<dyn Program> = if ahead {
            launch(options(&[&path])).unwrap()
        } else {
            Box::new(Live::launch(options(&[&path])).unwrap())
        };
        until_query(program.as_mut());
        assert_eq!(processes(&path).len(), 1);
        drop(program);
        gone(&path);
    }
}

fn gone(path: &str) {
    let start = Instant::now();
    while !processes(path).is_empty() {
        assert!(start.elapsed() < Duration::from_secs(60), "{path} lives");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Set in the process that runs the next test's engine.
const ENGINE: &str = "PAGEWALK_TEST_ASKED_ENGINE";

#[test]
fn a_program_with_a_query_ends_with_a_killed_engine() {
    if !present() {
        return;
    }
    if let Some(path) = std::env::var_os(ENGINE) {
        let path = path.into_string().unwrap();
        let mut program = Live::launch(options(&[&path])).unwrap();
        until_query(&mut program);
        println!("\nqueried");
        std::thread::sleep(Duration::from_secs(600));
        return;
    }
    let path = compile("query-orphaned", programs::QUERY_ONCE);
    let mut engine = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("shortcut_query::a_program_with_a_query_ends_with_a_killed_engine")
        .env(ENGINE, &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(engine.stdout.take().unwrap()).lines();
    assert!(lines.any(|l| l.unwrap() == "queried"));
    assert_eq!(processes(&path).len(), 1);
    engine.kill().unwrap();
    engine.wait().unwrap();
    gone(&path);
}

/// Ops of the first thread, and its queries, which get results.
fn ops(words: &[u64], code: &[u64]) -> Result<(Vec<Op>, Vec<ShortcutQuery>), String> {
    let fake = compile("fake-query", FAKE);
    let (_file, options) = fake_options(&fake, &memory(words, code));
    let mut live = Live::launch(options).unwrap();
    let (mut batch, mut all, mut queries) = (Batch::new(), Vec::new(), Vec::new());
    loop {
        let end = live.fill(0, &mut batch).map_err(|e| e.to_string())?;
        all.append(&mut batch.ops);
        match end {
            End::Query(query) => {
                queries.push(query);
                live.shortcut_result(0, Some(1));
            }
            End::Exit => return Ok((all, queries)),
            End::Empty | End::Blocked => live.wait(),
            _ => {}
        }
    }
}

#[test]
fn a_question_waits_for_what_it_asks_and_its_answer_for_it() {
    if !present() {
        return;
    }
    let code = code(&[
        // mov rsi,[rdi]; add rsi,rbx; mov rdx,[rdi]; syscall
        &[
            &[0x48, 0x8b, 0x37],
            &[0x48, 0x01, 0xde],
            &[0x48, 0x8b, 0x17],
            &[0x0f, 0x05],
        ],
        // and eax,0; mov rcx,[rdi+rax]; mov rbp,[rsi]
        &[
            &[0x83, 0xe0, 0x00],
            &[0x48, 0x8b, 0x0c, 0x07],
            &[0x48, 0x8b, 0x2e],
        ],
        // mov rbx,[rdi]
        &[&[0x48, 0x8b, 0x1f]],
    ]);
    let access = |i: usize, at: u64| record::memory(i, false) | at;
    let integer = ShortcutQuery::LoadVa { integer: 77 };
    let va = VirtAddr(0x9000);
    for (question, what, inputs) in [
        (record::query::LOAD_VA, integer, 1),
        (
            record::query::INSERT_VA,
            ShortcutQuery::InsertVa { integer: 77, va },
            2,
        ),
        (record::query::ALLOC, ShortcutQuery::Alloc { rows: 77 }, 1),
        (record::query::RESIZE, ShortcutQuery::Resize { rows: 77 }, 1),
        (record::query::FREE, ShortcutQuery::Free, 0),
    ] {
        let words = [
            record::word(record::BLOCK, 2),
            access(0, 0x1000),
            record::word(record::BLOCK, 0),
            access(0, 0x2000),
            access(2, 0x3000),
            record::word(record::QUERY, question),
            77,
            0x9000,
            record::word(record::RETURN, 0),
            record::word(record::BLOCK, 1),
            access(1, 0x4000),
            access(2, 0x5000),
            record::word(record::EXIT, record::LAST),
        ];
        let (ops, queries) = ops(&words, &code).unwrap();
        let at = |kind: OpClass| ops.iter().position(|o| o.kind == kind).unwrap();
        let load = |va: u64| ops.iter().position(|o| o.va == va).unwrap();
        let query = at(OpClass::Query);
        let makers = |op: usize| -> Vec<usize> {
            let distances = ops[op].dep.iter().filter(|&&d| d > 0);
            distances.map(|&d| op - usize::from(d)).collect()
        };
        assert_eq!(queries, [what]);
        // The sum of two loads has an op of its own, on which the query depends.
        let sum = at(OpClass::Compute);
        assert_eq!(makers(sum), [load(0x2000), load(0x1000)], "{ops:?}");
        assert_eq!(makers(query), [sum, load(0x3000)][..inputs]);
        assert_eq!(ops[query].flags & flags::SERIALISING, 0);
        assert_eq!((ops[query].insns, ops[query].pc), (1, 0x40_0009));
        assert_eq!(makers(load(0x4000)), [query]);
        assert_eq!(makers(load(0x5000)), [sum]);
        assert_eq!(ops.iter().map(|o| o.insns).sum::<u16>(), 8);
        let drains = |o: &Op| o.flags & flags::SERIALISING != 0;
        assert!(!ops.iter().any(drains));
    }
}

#[test]
fn invalid_queries_are_errors() {
    if !present() {
        return;
    }
    let code = code(&[&[&[0x0f, 0x05]]]);
    let block = record::word(record::BLOCK, 0);
    let query_words = |question| [record::word(record::QUERY, question), 1, 2];
    let end = record::word(record::EXIT, record::LAST);
    let with = |before: &[u64], question| [before, &query_words(question), &[end]].concat();
    for good in record::query::LOAD_VA..=record::query::FREE {
        let (_, queries) = ops(&with(&[block], good), &code).unwrap();
        assert_eq!(queries.len(), 1);
    }
    let says = |words: &[u64], what: &str| {
        let message = ops(words, &code).unwrap_err();
        assert!(message.contains(what), "{message}");
    };
    says(&with(&[block], 10), "10 is no kind of query");
    says(&with(&[], 0), "outside a block");
    // Killed in the middle of a query.
    for words in 1..3 {
        let (ops, queries) =
            ops(&[&[block][..], &query_words(0)[..words]].concat(), &code).unwrap();
        assert_eq!((ops.len(), queries.len()), (1, 0));
        assert_eq!(ops[0].kind, OpClass::Compute);
    }
}

#[test]
fn a_recording_has_the_queries_and_that_they_had_no_result() {
    if !present() {
        return;
    }
    let program = compile("query-recorded", programs::QUERIES);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("queries.pwt");
    // One thread last: there the first thread queries.
    for threads in [4, 1] {
        let argv = [&program[..], "50", "10", &threads.to_string()];
        let (written, status) = recorded(&argv, &path);
        assert_eq!(status, Some(0));
        assert!(check_trace(&path, None).unwrap().whole);
        let mut replay = open_trace(&path, &OpenOptions::default()).unwrap();
        let mut queries = 0;
        let (mut batch, mut alive, mut instructions) = (Batch::new(), vec![0], 0);
        while let Some(&thread) = alive.last() {
            let end = replay.fill(thread, &mut batch).unwrap();
            instructions += batch.instructions();
            match end {
                End::Query(ShortcutQuery::LoadVa { .. }) => {
                    assert_eq!(batch.ops.last().unwrap().kind, OpClass::Query);
                    queries += 1;
                    replay.shortcut_result(thread, None);
                }
                End::Event {
                    event: Event::Spawn { thread },
                    ..
                } => alive.push(thread),
                End::Exit => drop(alive.pop()),
                _ => {}
            }
        }
        assert!((1..=threads).contains(&queries), "{queries}");
        assert_eq!(instructions, written.instructions);
    }
    let mut replay = open_trace(&path, &OpenOptions::default()).unwrap();
    let mut batch = Batch::new();
    while !matches!(replay.fill(0, &mut batch).unwrap(), End::Query(_)) {}
    replay.shortcut_result(0, Some(0));
    let message = replay.fill(0, &mut batch).unwrap_err().to_string();
    assert!(
        message.contains("queries.pwt") && message.contains("shortcut"),
        "{message}"
    );
}
