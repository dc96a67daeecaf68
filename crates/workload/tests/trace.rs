//! Traces from outside: what is recorded comes back exactly, and what is damaged
//! is said to be, with the place.

mod waits;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use pagewalk_stream::{Batch, End, Event, Facts, Kind, Op, Program, ProgramError, flags};
use pagewalk_workload::{
    Format, Header, OpenOptions, Options, Recording, TraceWriter, build, check_trace,
    convert_trace, open_trace, record, trace_info,
};

fn program(name: &str, threads: u32, params: &[(&str, &str)]) -> Box<dyn Program> {
    let params = params.iter();
    let options = Options {
        size_bytes: (name == "gups").then_some(1 << 24),
        threads,
        seed: 4,
        params: params
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect(),
    };
    build(name, &options).unwrap()
}

fn recorded(dir: &Path, program: Box<dyn Program>, limit: Option<u64>) -> PathBuf {
    let path = dir.join("t.pwt");
    let header = Header::of(&program.facts(), 4, "a test");
    let writer = TraceWriter::create(&path, &header).unwrap();
    record(Recording::new(program, writer), limit, |_| true).unwrap();
    path
}

use waits::Waits;

/// Ops and marks of each thread.
type Streams = BTreeMap<u32, (Vec<Op>, Vec<(usize, End)>)>;

/// Asks threads in turn; `Err` with what came before.
fn try_drain(program: &mut dyn Program) -> (Streams, Option<String>) {
    let mut streams = Streams::new();
    let mut live = vec![0];
    let mut batch = Batch::new();
    let mut waits = Waits::default();
    while !live.is_empty() {
        let free = waits.free(&live);
        assert!(!free.is_empty(), "all wait");
        for thread in free {
            let end = match program.fill(thread, &mut batch) {
                Ok(end) => end,
                Err(error) => return (streams, Some(error.message)),
            };
            assert!(batch.ops.len() <= pagewalk_stream::BATCH_OPS);
            waits.see(thread, batch.ops.len(), &end);
            let (ops, marks) = streams.entry(thread).or_default();
            ops.extend_from_slice(&batch.ops);
            match &end {
                End::Event { event, .. } => {
                    if let Event::Spawn { thread } = event {
                        live.push(*thread);
                    }
                    marks.push((ops.len(), end.clone()));
                }
                End::Exit => {
                    live.retain(|t| *t != thread);
                    marks.push((ops.len(), End::Exit));
                }
                _ => {}
            }
        }
    }
    (streams, None)
}

fn drain(program: &mut dyn Program) -> Streams {
    let (streams, error) = try_drain(program);
    assert_eq!(error, None);
    streams
}

fn opened(path: &Path) -> Box<dyn Program> {
    open_trace(path, &OpenOptions::default()).unwrap()
}

fn refused(path: &Path, options: &OpenOptions) -> String {
    match open_trace(path, options) {
        Ok(mut program) => try_drain(program.as_mut()).1.expect("a fault"),
        Err(error) => error.to_string(),
    }
}

fn instructions(streams: &Streams) -> u64 {
    let ops = streams.values().flat_map(|(ops, _)| ops);
    ops.map(|o| u64::from(o.insns)).sum()
}

/// Name, threads, parameters.
type Run = (&'static str, u32, &'static [(&'static str, &'static str)]);

const RUNS: [Run; 4] = [
    ("gups", 1, &[("updates", "100000")]),
    ("gups", 5, &[("updates", "30000")]),
    ("bfs", 1, &[("scale", "14"), ("roots", "2")]),
    ("bfs", 4, &[("scale", "13"), ("roots", "2")]),
];

#[test]
fn a_replay_gives_the_same_ops_and_events() {
    for (name, threads, params) in RUNS {
        let dir = tempfile::tempdir().unwrap();
        let path = recorded(dir.path(), program(name, threads, params), None);
        let live = drain(program(name, threads, params).as_mut());
        let mut replay = opened(&path);
        assert_eq!(replay.facts().instructions, Some(instructions(&live)));
        assert!(
            drain(replay.as_mut()) == live,
            "{name} with {threads} threads"
        );
        assert!(!dir.path().join("t.pwt.partial").exists());
        let check = check_trace(&path, None).unwrap();
        assert!(check.whole, "{check:?}");
        assert_eq!(check.good_instructions, instructions(&live));
    }
}

#[test]
fn an_instruction_takes_less_than_three_bytes() {
    for (name, threads, params) in RUNS {
        let dir = tempfile::tempdir().unwrap();
        let path = recorded(dir.path(), program(name, threads, params), None);
        let info = trace_info(&path, &OpenOptions::default()).unwrap();
        assert!(info.bytes_per_instruction < 1.0, "{name}: {info:?}");
        assert_eq!(info.threads, u64::from(threads));
        assert!(!info.mappings_inferred && info.mapping_events > 3);
        assert_eq!(info.header.unwrap().source, "a test");
    }
}

#[test]
fn recording_beside_a_run_changes_nothing_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("beside.pwt");
    let params = [("scale", "12"), ("roots", "1")];
    let recorded = program("bfs", 3, &params);
    let header = Header::of(&recorded.facts(), 4, "a test");
    let mut recording = Recording::new(recorded, TraceWriter::create(&path, &header).unwrap());
    let seen = drain(&mut recording);
    recording.finish().unwrap();
    assert!(seen == drain(program("bfs", 3, &params).as_mut()));
    assert!(seen == drain(opened(&path).as_mut()));
}

#[test]
fn skipping_lands_on_the_instruction_and_keeps_events() {
    let dir = tempfile::tempdir().unwrap();
    let path = recorded(
        dir.path(),
        program("gups", 1, &[("updates", "200000")]),
        None,
    );
    let all = &drain(opened(&path).as_mut())[&0];
    for skip in [0, 1, 1000, 700_000, 2_000_000, 3_399_990, 1 << 40] {
        let options = OpenOptions {
            skip,
            ..OpenOptions::default()
        };
        let mut program = open_trace(&path, &options).unwrap();
        let skipped = drain(program.as_mut());
        let (ops, marks) = skipped.get(&0).unwrap();
        let mut before = 0;
        let first = all.0.iter().position(|o| {
            before += u64::from(o.insns);
            before > skip
        });
        // A skip that ends within an op leaves out that op.
        let first = first.map_or(all.0.len(), |f| if skip > 0 { f } else { 0 });
        let expected = &all.0[first..];
        assert!(ops.len() <= expected.len() && ops.len() + 2 >= expected.len());
        let same = ops
            .iter()
            .zip(&expected[expected.len() - ops.len()..])
            .enumerate();
        for (at, (a, b)) in same {
            assert_eq!((a.pc, a.va, a.insns), (b.pc, b.va, b.insns));
            for k in 0..2 {
                assert!(a.dep[k] == b.dep[k] || a.dep[k] == 0 && usize::from(b.dep[k]) > at);
            }
        }
        let events = |m: &[(usize, End)]| m.iter().map(|(_, e)| e.clone()).collect::<Vec<_>>();
        assert_eq!(events(marks), events(&all.1));
    }
}

#[test]
fn skipping_with_several_threads_waits_for_no_one_in_vain() {
    let dir = tempfile::tempdir().unwrap();
    let params = [("scale", "16"), ("roots", "2")];
    let path = recorded(dir.path(), program("bfs", 4, &params), None);
    let all = drain(opened(&path).as_mut());
    let total = instructions(&all);
    for skip in [1, total / 3, total - 1000, total] {
        let options = OpenOptions {
            skip,
            ..OpenOptions::default()
        };
        let mut program = open_trace(&path, &options).unwrap();
        let rest = drain(program.as_mut());
        let left = instructions(&rest);
        assert!(
            left <= total - skip && left + 20 > total - skip,
            "{skip}: {left}"
        );
        for (thread, (ops, marks)) in &rest {
            let (full, events) = &all[thread];
            let suffix = &full[full.len() - ops.len()..];
            assert!(
                ops.iter()
                    .zip(suffix)
                    .all(|(a, b)| (a.pc, a.va) == (b.pc, b.va))
            );
            assert_eq!(marks.len(), events.len());
        }
    }
}

#[test]
fn an_unfinished_recording_is_refused_and_can_be_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("killed.pwt");
    let mut source = program("gups", 1, &[("updates", "200000")]);
    let mut writer = TraceWriter::create(&path, &Header::of(&source.facts(), 0, "")).unwrap();
    let mut batch = Batch::new();
    for _ in 0..200 {
        source.fill(0, &mut batch).unwrap();
        writer.ops(0, &batch.ops).unwrap();
    }
    drop(writer);
    assert!(!path.exists(), "a killed recording must not look whole");
    let partial = dir.path().join("killed.pwt.partial");
    let message = refused(&partial, &OpenOptions::default());
    assert!(
        message.contains("no index") && message.contains("recover"),
        "{message}"
    );
    let options = OpenOptions {
        recover: true,
        ..OpenOptions::default()
    };
    let good = drain(open_trace(&partial, &options).unwrap().as_mut());
    assert_eq!(good[&0].0.len() % (1 << 18), 0);
    assert!(good[&0].0.len() >= 1 << 18);
    let check = check_trace(&partial, None).unwrap();
    assert!(!check.whole);
    assert_eq!(check.good_instructions, instructions(&good));
}

/// A parent that waits for its child, whose second thread dies with it.
struct Family {
    parent: u32,
    child: u32,
    child_exited: bool,
    parent_exited: bool,
}

impl Program for Family {
    fn facts(&self) -> Facts {
        Facts {
            name: "family".into(),
            deterministic: true,
            ..Facts::default()
        }
    }

    fn fill(&mut self, thread: u32, batch: &mut Batch) -> Result<End, ProgramError> {
        batch.ops.clear();
        let event = |event| Ok(End::Event { event, ticket: 0 });
        let step = match thread {
            0 => &mut self.parent,
            1 => &mut self.child,
            _ if self.child_exited => return Ok(End::Exit),
            _ => {
                batch.ops.extend(
                    [Op {
                        pc: 9,
                        insns: 1,
                        ..Op::default()
                    }; 100],
                );
                return Ok(End::More);
            }
        };
        *step += 1;
        match (thread, *step) {
            (0, 1) => event(Event::Fork {
                process: 1,
                thread: 1,
            }),
            (0, _) if !self.child_exited => Ok(End::Blocked),
            (0, _) if !self.parent_exited => {
                self.parent_exited = true;
                event(Event::ProcessExit { status: 3 })
            }
            (0, _) => Ok(End::Exit),
            (1, 1) => event(Event::Spawn { thread: 2 }),
            (1, 2..9) => {
                batch.ops.push(Op {
                    pc: 5,
                    insns: 1,
                    ..Op::default()
                });
                Ok(End::More)
            }
            _ if self.child_exited => Ok(End::Exit),
            _ => {
                self.child_exited = true;
                event(Event::ProcessExit { status: 0 })
            }
        }
    }
}

#[test]
fn a_replay_does_not_wait_for_threads_that_died_with_their_process() {
    let dir = tempfile::tempdir().unwrap();
    let family = Family {
        parent: 0,
        child: 0,
        child_exited: false,
        parent_exited: false,
    };
    let path = recorded(dir.path(), Box::new(family), None);
    let mut replay = opened(&path);
    let mut batch = Batch::new();
    let mut waits = Waits::default();
    let mut ask = |waits: &mut Waits, thread| {
        let end = replay.fill(thread, &mut batch).unwrap();
        waits.see(thread, batch.ops.len(), &end);
        end
    };
    assert!(matches!(
        ask(&mut waits, 0),
        End::Event {
            event: Event::Fork { .. },
            ..
        }
    ));
    assert!(matches!(
        ask(&mut waits, 1),
        End::Event {
            event: Event::Spawn { .. },
            ..
        }
    ));
    // Thread 2 is never asked: here its process ends before it gets a core.
    assert!(matches!(ask(&mut waits, 0), End::Wait { .. }));
    assert!(waits.free(&[0]).is_empty());
    let mut asked = 0;
    while !matches!(
        ask(&mut waits, 1),
        End::Event {
            event: Event::ProcessExit { .. },
            ..
        }
    ) {
        asked += 1;
        assert!(asked < 50, "the child never ends");
    }
    waits.gone(1);
    waits.gone(2);
    assert_eq!(waits.free(&[0]), [0]);
    let exit = Event::ProcessExit { status: 3 };
    assert_eq!(
        ask(&mut waits, 0),
        End::Event {
            event: exit,
            ticket: 0
        }
    );
    let info = trace_info(&path, &OpenOptions::default()).unwrap();
    assert_eq!((info.threads, info.exit_status), (3, Some(0)));
    assert_eq!(Some(info.instructions), opened(&path).facts().instructions);
    let again = dir.path().join("again.pwt");
    let copied = convert_trace(&path, &OpenOptions::default(), &again, false).unwrap();
    assert_eq!(copied.instructions, info.instructions);
}

/// A disk that is full after so many bytes.
struct SmallDisk(usize);

impl Write for SmallDisk {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0 < bytes.len() {
            return Err(std::io::Error::from(std::io::ErrorKind::StorageFull));
        }
        self.0 -= bytes.len();
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_an_error_of_the_recording() {
    for room in [0, 100, 50_000] {
        let source = program("gups", 1, &[("updates", "2000000")]);
        let header = Header::of(&source.facts(), 0, "");
        let writer = TraceWriter::to_writer(Path::new("disk/x.pwt"), &header, SmallDisk(room));
        let error = record(Recording::new(source, writer), None, |_| true).unwrap_err();
        assert!(error.message.contains("disk/x.pwt"), "{error}");
        assert!(error.message.contains("space"), "{error}");
    }
}

#[test]
fn a_flipped_bit_is_found_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = recorded(
        dir.path(),
        program("gups", 1, &[("updates", "300000")]),
        None,
    );
    let whole = std::fs::read(&path).unwrap();
    let all = drain(opened(&path).as_mut());
    let bad = dir.path().join("bad.pwt");
    for at in [
        3,
        9,
        30,
        whole.len() / 2,
        whole.len() - 400,
        whole.len() - 3,
    ] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&bad, &bytes).unwrap();
        let message = refused(&bad, &OpenOptions::default());
        assert!(message.contains("bad.pwt, byte "), "{message}");
        if at > 3 && at < 100 {
            continue;
        }
        if at == 3 {
            assert!(message.contains("no trace"), "{message}");
            continue;
        }
        let check = check_trace(&bad, None).unwrap();
        assert!(!check.whole, "{at}");
        let offset = check.fault_offset.unwrap();
        assert!(offset <= whole.len() as u64);
        assert!(check.good_instructions <= instructions(&all));
        if at == whole.len() / 2 {
            assert!(offset as usize <= at && check.good_blocks.unwrap() > 0);
            // What comes before the damage is given first.
            let (good, error) = try_drain(opened(&bad).as_mut());
            assert!(error.unwrap().contains("checksum"));
            assert_eq!(instructions(&good), check.good_instructions);
        }
    }
}

fn champsim_record(ip: u64, dest: [u8; 2], src: [u8; 4], store: u64, load: u64) -> [u8; 64] {
    let mut r = [0; 64];
    r[..8].copy_from_slice(&ip.to_le_bytes());
    r[10..12].copy_from_slice(&dest);
    r[12..16].copy_from_slice(&src);
    r[16..24].copy_from_slice(&store.to_le_bytes());
    r[32..40].copy_from_slice(&load.to_le_bytes());
    r
}

fn branch_record(ip: u64, taken: bool, dest: [u8; 2], src: [u8; 4], load: u64) -> [u8; 64] {
    let mut r = champsim_record(ip, dest, src, 0, load);
    (r[8], r[9]) = (1, u8::from(taken));
    r
}

const IP: u8 = 26;
const FLAGS: u8 = 25;
const SP: u8 = 6;

fn champsim_ops(dir: &Path, records: &[[u8; 64]]) -> Vec<Op> {
    let path = dir.join("t.champsim");
    std::fs::write(&path, records.concat()).unwrap();
    let ops = drain(opened(&path).as_mut()).remove(&0).unwrap().0;
    let counted: u64 = ops.iter().map(|o| u64::from(o.insns)).sum();
    assert_eq!(
        counted,
        records.len() as u64,
        "instruction counts are exact"
    );
    ops
}

#[test]
fn champsim_registers_become_distances() {
    let dir = tempfile::tempdir().unwrap();
    let chase = champsim_record(0x10, [3, 0], [3, 0, 0, 0], 0, 0x1000);
    let ops = champsim_ops(dir.path(), &[chase; 10]);
    assert_eq!(ops.len(), 10);
    assert!(
        ops[1..]
            .iter()
            .all(|o| o.kind == Kind::Load && o.dep == [1, 0])
    );
    let independent = champsim_record(0x10, [3, 0], [4, 0, 0, 0], 0, 0x1000);
    let ops = champsim_ops(dir.path(), &[independent; 10]);
    assert!(ops.iter().all(|o| o.dep == [0, 0]));

    // load; two plain instructions on its value; store of the result.
    let ops = champsim_ops(
        dir.path(),
        &[
            champsim_record(0x10, [3, 0], [0; 4], 0, 0x1000),
            champsim_record(0x14, [3, FLAGS], [3, 0, 0, 0], 0, 0),
            champsim_record(0x18, [4, 0], [3, 0, 0, 0], 0, 0),
            champsim_record(0x1c, [0, 0], [4, 0, 0, 0], 0x2000, 0),
        ],
    );
    assert_eq!(ops.len(), 2);
    let store = &ops[1];
    assert_eq!((store.kind, store.insns), (Kind::Store, 3));
    assert_eq!((store.dep, store.dep_latency), ([1, 0], [2, 0]));

    // Two loads meet in an addition, and their sum is an address.
    let ops = champsim_ops(
        dir.path(),
        &[
            champsim_record(0x10, [3, 0], [0; 4], 0, 0x1000),
            champsim_record(0x14, [4, 0], [0; 4], 0, 0x1100),
            champsim_record(0x18, [5, FLAGS], [3, 4, 0, 0], 0, 0),
            champsim_record(0x1c, [7, 0], [5, 0, 0, 0], 0, 0x2000),
        ],
    );
    let kinds: Vec<_> = ops.iter().map(|o| o.kind).collect();
    assert_eq!(kinds, [Kind::Load, Kind::Load, Kind::Compute, Kind::Load]);
    assert_eq!((ops[2].dep, ops[2].latency), ([2, 1], 1));
    assert_eq!(ops[3].dep, [1, 0]);
}

#[test]
fn champsim_chains_of_arithmetic_keep_their_length() {
    let dir = tempfile::tempdir().unwrap();
    let add = champsim_record(0x10, [3, FLAGS], [3, 0, 0, 0], 0, 0);
    let ops = champsim_ops(dir.path(), &[add; 800]);
    // Each op depends on the one before: the chain is 800 cycles.
    let chain: u64 = ops.iter().map(|o| u64::from(o.latency)).sum();
    assert_eq!(chain, 800);
    assert!(
        ops[1..]
            .iter()
            .all(|o| o.dep == [1, 0] && o.dep_latency == [0, 0])
    );
}

#[test]
fn champsim_branches_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let (t, c) = (flags::TAKEN, flags::CONDITIONAL);
    let cases = [
        ([IP, 0], [IP, 0, 0, 0], true, t),
        ([IP, 0], [IP, FLAGS, 0, 0], true, c | t),
        ([IP, 0], [IP, FLAGS, 0, 0], false, c),
        ([IP, 0], [3, 0, 0, 0], true, t | flags::INDIRECT),
        ([IP, SP], [IP, SP, 0, 0], true, t | flags::CALL),
        (
            [IP, SP],
            [IP, SP, 3, 0],
            true,
            t | flags::CALL | flags::INDIRECT,
        ),
        ([IP, SP], [SP, 0, 0, 0], true, t | flags::RETURN),
    ];
    for (dest, src, taken, expected) in cases {
        let load = if expected & flags::RETURN != 0 {
            0x7000
        } else {
            0
        };
        let branch = branch_record(0x10, taken, dest, src, load);
        let after = champsim_record(0x90, [3, 0], [0; 4], 0, 0x1000);
        let ops = champsim_ops(dir.path(), &[branch, after]);
        let op = ops.iter().find(|o| o.kind == Kind::Branch).unwrap();
        assert_eq!(op.flags, expected);
        assert_eq!(op.va, if taken { 0x90 } else { 0 });
        if load != 0 {
            assert_eq!((op.dep, op.insns), ([1, 0], 0));
        }
    }
}

#[test]
fn compression_is_told_by_content_not_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let records: Vec<_> = (0..8000)
        .map(|i: u64| {
            // Hard to compress: a cut file has good parts before the cut.
            let va = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16 | 1;
            champsim_record(0x1000 + 4 * i, [3, 0], [3, 0, 0, 0], 0, va)
        })
        .collect();
    let expected = champsim_ops(dir.path(), &records);
    let raw = records.concat();
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(&raw).unwrap();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&raw).unwrap();
    let all = [
        raw.clone(),
        xz.finish().unwrap(),
        gz.finish().unwrap(),
        zstd::encode_all(&raw[..], 1).unwrap(),
    ];
    for (bytes, cut) in all.iter().flat_map(|b| [(b, false), (b, true)]) {
        for name in ["x", "x.xz", "x.gz", "x.zst", "x.pwt"] {
            let path = dir.path().join(name);
            let length = if cut {
                bytes.len() * 2 / 3 + 1
            } else {
                bytes.len()
            };
            std::fs::write(&path, &bytes[..length]).unwrap();
            let (streams, error) = try_drain(opened(&path).as_mut());
            let ops = streams.get(&0).map_or(&[][..], |s| &s.0);
            assert_eq!(error.is_some(), cut, "{error:?}");
            if cut {
                let message = error.unwrap();
                assert!(
                    message.contains("byte") && message.contains("good"),
                    "{message}"
                );
                assert_eq!(ops, &expected[..ops.len()]);
                let check = check_trace(&path, None).unwrap();
                assert!(!check.whole && check.fault_offset.is_some(), "{check:?}");
            } else {
                assert_eq!(ops, expected);
            }
        }
    }
}

#[test]
fn what_is_no_trace_is_refused_with_what_was_expected() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.xz");
    let empty: (&[u8], &str) = (b"", "empty");
    for (bytes, said) in [
        empty,
        (
            b"hello world, this is no trace at all, but text of more than 64 bytes. ",
            "called .xz",
        ),
        (&[0xff; 640], "called .xz"),
        (&[0; 640], "no trace"),
        (b"short", "no trace"),
        (b"PWTRACE\n", "16 bytes"),
        (b"PWTRACE\n\x09\0\0\0\0\0\0\0\0\0\0\0", "version 9"),
        (
            b"PWTRACE\n\x01\0\0\0\xff\xff\xff\xff\0\0\0\0",
            "longer than it can be",
        ),
        (b"\xfd7zXZ\0 but not really", "damaged"),
        (b"\x1f\x8b nor this", "damaged"),
        (b"\x28\xb5\x2f\xfd nor that", "damaged"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let message = refused(&path, &OpenOptions::default());
        assert!(message.contains(said), "{message}");
        assert!(message.contains("t.xz"), "{message}");
    }
    let message = refused(&dir.path().join("absent"), &OpenOptions::default());
    assert!(
        message.contains("absent") && message.contains("open"),
        "{message}"
    );
    // Named by the user, but not that.
    std::fs::write(&path, b"I  1000,4\n").unwrap();
    let options = OpenOptions {
        format: Some(Format::Champsim),
        ..OpenOptions::default()
    };
    assert!(refused(&path, &options).contains("within record 0"));
}

#[test]
fn lackey_text_gives_instructions_accesses_and_branches() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lackey.txt");
    let text = "==123== Lackey, an example Valgrind tool\n\
        I  1000,4\n L 7000,8\nI  1004,3\nI  1007,2\nI  1000,4\n S 7008,4\n\
        I  1004,3\n M 7100,4\nI  1007,2\nI  1009,1\n L 8000,160\n";
    std::fs::write(&path, text).unwrap();
    let mut program = opened(&path);
    let facts = program.facts();
    assert!(facts.no_dependences && facts.infer_mappings);
    let ops = drain(program.as_mut()).remove(&0).unwrap().0;
    let brief: Vec<_> = ops
        .iter()
        .map(|o| (o.kind, o.va, o.insns, o.size, o.flags))
        .collect();
    let (t, c) = (flags::TAKEN, flags::CONDITIONAL);
    assert_eq!(
        brief,
        [
            (Kind::Load, 0x7000, 1, 8, 0),
            (Kind::Branch, 0x1000, 2, 0, t | c),
            (Kind::Store, 0x7008, 1, 4, 0),
            (Kind::Load, 0x7100, 1, 4, 0),
            (Kind::Store, 0x7100, 0, 4, 0),
            (Kind::Branch, 0x1000, 1, 0, c),
            (Kind::Load, 0x8000, 1, 64, 0),
            (Kind::Load, 0x8040, 0, 64, 0),
            (Kind::Load, 0x8080, 0, 32, 0),
        ]
    );
    for (line, shown) in [
        (" X 7000,8", "X 7000,8"),
        ("I  10zz,4", "10zz"),
        ("I  1000", "I  1000"),
    ] {
        std::fs::write(&path, format!("{text}{line}\n")).unwrap();
        let message = refused(&path, &OpenOptions::default());
        assert!(
            message.contains(shown) && message.contains("byte"),
            "{message}"
        );
    }
    std::fs::write(&path, [text.as_bytes(), &[b'x'; 10_000]].concat()).unwrap();
    assert!(refused(&path, &OpenOptions::default()).contains("4096"));
}

#[test]
fn conversion_keeps_what_the_target_can_hold() {
    let dir = tempfile::tempdir().unwrap();
    let path = recorded(dir.path(), program("gups", 1, &[("updates", "5000")]), None);
    let all = drain(opened(&path).as_mut());
    let memory = |s: &Streams| -> Vec<(Kind, u64)> {
        let ops = s[&0].0.iter();
        let memory = ops.filter(|o| matches!(o.kind, Kind::Load | Kind::Store));
        memory.map(|o| (o.kind, o.va)).collect()
    };
    let taken = |s: &Streams| -> Vec<(u64, u8)> {
        let branches = s[&0].0.iter().filter(|o| o.kind == Kind::Branch);
        branches.map(|o| (o.pc, o.flags)).collect()
    };
    for name in [
        "t.champsim",
        "t.champsimtrace.xz",
        "t.trace.gz",
        "t.champsim.zst",
    ] {
        let to = dir.path().join(name);
        let done = convert_trace(&path, &OpenOptions::default(), &to, false).unwrap();
        assert_eq!(done.instructions, instructions(&all));
        assert!(done.lost.iter().any(|l| l.contains("events")));
        let back = drain(opened(&to).as_mut());
        assert_eq!(instructions(&back), instructions(&all));
        assert_eq!(memory(&back), memory(&all));
        assert_eq!(taken(&back), taken(&all));
        // The table's load still waits for the number that it is indexed by.
        let ops = &back[&0].0;
        let table = ops
            .windows(2)
            .filter(|w| w[0].kind == Kind::Load && w[1].kind == Kind::Load);
        assert!(table.clone().count() >= 5000);
        for pair in table {
            assert_eq!(pair[1].dep[0], 1, "{pair:?}");
        }
        let again = dir.path().join("again.pwt");
        convert_trace(&to, &OpenOptions::default(), &again, false).unwrap();
        assert!(drain(opened(&again).as_mut()) == back);
    }
    let threads = recorded(dir.path(), program("gups", 2, &[("updates", "500")]), None);
    let to = dir.path().join("two.champsim");
    let error = convert_trace(&threads, &OpenOptions::default(), &to, false).unwrap_err();
    assert!(error.message.contains("one thread"), "{error}");
    let error = convert_trace(&threads, &OpenOptions::default(), Path::new("x.foo"), false);
    assert!(error.unwrap_err().message.contains("expected .pwt"));
}

#[test]
fn conversion_can_keep_the_good_part_of_a_damaged_trace() {
    let dir = tempfile::tempdir().unwrap();
    let records: Vec<_> = (0..100)
        .map(|i| champsim_record(0x1000 + 4 * i, [3, 0], [0; 4], 0, 0x9000 + 64 * i))
        .collect();
    let path = dir.path().join("cut.champsim");
    std::fs::write(&path, &records.concat()[..64 * 40 + 17]).unwrap();
    let to = dir.path().join("good.pwt");
    let options = OpenOptions::default();
    assert!(convert_trace(&path, &options, &to, false).is_err());
    assert!(!to.exists());
    let done = convert_trace(&path, &options, &to, true).unwrap();
    assert_eq!(done.instructions, 40);
    assert!(done.fault.unwrap().contains("record 40"));
    assert!(check_trace(&to, None).unwrap().whole);
}

/// Mutated traces of every kind: an answer, never a panic, a hang or much memory.
#[test]
fn damaged_traces_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let pwt = std::fs::read(recorded(
        dir.path(),
        program("bfs", 2, &[("scale", "12"), ("roots", "1")]),
        Some(3000),
    ))
    .unwrap();
    let records: Vec<_> = (0..60)
        .map(|i| {
            champsim_record(
                0x1000 + 4 * i,
                [3, 25],
                [3, 4, 5, 6],
                i % 3 * 64,
                0x9000 + 64 * i,
            )
        })
        .collect();
    let raw = records.concat();
    let lackey = b"==1== x\nI  1000,4\n L 7000,8\nI  1004,3\n S 7000,8\n M 8000,4\n".repeat(8);
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(&raw).unwrap();
    let seeds = [
        pwt,
        zstd::encode_all(&raw[..], 1).unwrap(),
        xz.finish().unwrap(),
        raw,
        lackey,
    ];
    // Most of the time goes to threads that wake each other.
    let answered = std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=4)
            .map(|worker| {
                let (seeds, path) = (&seeds, dir.path().join(format!("fuzz{worker}")));
                scope.spawn(move || mutate(seeds, &path, worker, 3_000))
            })
            .collect();
        let all = workers.into_iter().map(|w| w.join().unwrap());
        all.fold([0, 0], |a, b| [a[0] + b[0], a[1] + b[1]])
    });
    assert!(answered[0] > 1000 && answered[1] > 100, "{answered:?}");
}

/// How many mutations were refused and how many read to their end.
fn mutate(seeds: &[Vec<u8>], path: &Path, seed: u64, rounds: usize) -> [u32; 2] {
    let mut state = seed * 12345;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below.max(1)
    };
    let mut answered = [0u32; 2];
    for round in 0..rounds {
        let mut bytes = seeds[round % seeds.len()].clone();
        for _ in 0..1 + random(4) {
            let at = random(bytes.len());
            match random(5) {
                0 => bytes.truncate(at),
                1 => bytes[at] ^= 1 << random(8),
                2 => bytes[at] = [0, 255, 127, 128][random(4)],
                3 => bytes.insert(at, random(256) as u8),
                _ => {
                    let end = (at + random(40)).min(bytes.len());
                    let part = bytes[at..end].to_vec();
                    let to = random(bytes.len());
                    bytes.splice(to..to, part);
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        std::fs::write(path, &bytes).unwrap();
        let options = OpenOptions {
            format: None,
            recover: random(2) == 0,
            skip: if random(4) == 0 { 20 } else { 0 },
        };
        let good = match open_trace(path, &options) {
            Ok(mut program) => {
                let mut batch = Batch::new();
                let mut asked = 0;
                loop {
                    match program.fill(0, &mut batch) {
                        Err(error) => {
                            assert!(error.message.contains("fuzz"), "{error}");
                            break false;
                        }
                        Ok(End::Exit) => break true,
                        // Another thread of the trace is not asked here.
                        Ok(_) => asked += 1,
                    }
                    if asked > 1000 {
                        break true;
                    }
                }
            }
            Err(error) => {
                assert!(error.to_string().contains("fuzz"), "{error}");
                false
            }
        };
        answered[usize::from(good)] += 1;
    }
    answered
}
