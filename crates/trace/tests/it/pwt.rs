//! Our own format: recordings come back exactly.

use std::io::Write;
use std::path::Path;

use pagewalk_stream::{BATCH_OPS, Batch, End, Error, Event, Facts, Op, Program};
use pagewalk_trace::{
    Header, OpenOptions, Recording, TraceWriter, check_trace, convert_trace, open_trace, record,
    record_into, trace_info,
};

use crate::waits::Waits;
use crate::{drain, instructions, opened, program, recorded, refused, try_drain};

/// Name, threads, parameters.
pub type Run = (&'static str, u32, &'static [(&'static str, &'static str)]);

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
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
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
        assert_eq!(info.made.unwrap().source, "a test");
    }
}

/// The facts of a live program are unknown when its recording begins.
#[test]
fn info_finds_a_region_of_interest_that_the_header_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.pwt");
    let source = program("bfs", 1, &[("scale", "12"), ("roots", "1")]);
    let header = Header {
        has_roi: false,
        ..Header::of(&source.facts(), 4, "a test")
    };
    let writer = TraceWriter::create(&path, &header).unwrap();
    record(Recording::new(source, writer), None, |_| true).unwrap();
    assert!(!opened(&path).facts().has_roi);
    let has_roi = |path| {
        let info = trace_info(path, &OpenOptions::default()).unwrap();
        info.has_roi
    };
    assert!(has_roi(&path));
    let other = dir.path().join("t.champsim");
    let record = crate::champsim::champsim_record(0x1000, [3, 0], [3, 0, 0, 0], 0, 0x9000);
    std::fs::write(&other, record.repeat(10)).unwrap();
    assert!(!has_roi(&other));
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
        // A skip that ends within an op also skips that op.
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
    let partial = writer.partial().to_owned();
    drop(writer);
    assert!(!path.exists(), "a killed recording must not look whole");
    let message = refused(&partial, &OpenOptions::default());
    assert!(
        message.contains("no index") && message.contains("--keep-good"),
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

#[test]
fn two_recordings_to_one_name_leave_one_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("both.pwt");
    let elsewhere = dir.path().join("elsewhere");
    std::fs::write(&elsewhere, "not ours").unwrap();
    std::os::unix::fs::symlink(&elsewhere, dir.path().join("both.pwt.partial")).unwrap();
    let mut recordings: Vec<Recording> = ["2000", "3000"]
        .map(|updates| {
            let source = program("gups", 1, &[("updates", updates)]);
            let writer = TraceWriter::create(&path, &Header::of(&source.facts(), 4, "")).unwrap();
            Recording::new(source, writer)
        })
        .into();
    for recording in &mut recordings {
        record_into(recording, None, &mut |_| true).unwrap();
    }
    let written: Vec<_> = recordings
        .into_iter()
        .map(|r| {
            let written = r.finish().unwrap();
            // Each is complete when it ends.
            assert!(check_trace(&path, None).unwrap().whole);
            written
        })
        .collect();
    assert_ne!(written[0].instructions, written[1].instructions);
    let info = trace_info(&path, &OpenOptions::default()).unwrap();
    assert_eq!(info.instructions, written[1].instructions);
    assert_eq!(std::fs::read(&elsewhere).unwrap(), b"not ours");
}

#[test]
fn a_recording_that_was_stopped_says_so_wherever_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stopped.pwt");
    let source = program("gups", 1, &[("updates", "20000")]);
    let writer = TraceWriter::create(&path, &Header::of(&source.facts(), 4, "")).unwrap();
    let mut recording = Recording::new(source, writer);
    record_into(&mut recording, None, &mut |so_far| so_far < 10_000).unwrap();
    recording.stopped();
    let n = recording.finish().unwrap().instructions;
    let copy = dir.path().join("copy.pwt");
    convert_trace(&path, &OpenOptions::default(), &copy, false).unwrap();
    for trace in [&path, &copy] {
        assert!(check_trace(trace, None).unwrap().whole);
        assert_eq!(opened(trace).facts().stopped, Some(n));
        let said = trace_info(trace, &OpenOptions::default()).unwrap().partial;
        assert_eq!(
            said,
            Some(format!("stopped by an interrupt after {n} instructions"))
        );
    }
    let whole = recorded(
        dir.path(),
        program("gups", 1, &[("updates", "200")]),
        Some(500),
    );
    let info = trace_info(&whole, &OpenOptions::default()).unwrap();
    assert_eq!((info.partial, opened(&whole).facts().stopped), (None, None));
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

    fn fill(&mut self, thread: u32, batch: &mut Batch) -> Result<End, Error> {
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
    let mut fill = |waits: &mut Waits, thread| {
        let end = replay.fill(thread, &mut batch).unwrap();
        waits.see(thread, &batch, &end);
        end
    };
    assert!(matches!(
        fill(&mut waits, 0),
        End::Event {
            event: Event::Fork { .. },
            ..
        }
    ));
    assert!(matches!(
        fill(&mut waits, 1),
        End::Event {
            event: Event::Spawn { .. },
            ..
        }
    ));
    // Thread 2 is never read: its process ends before it gets a core.
    assert!(matches!(fill(&mut waits, 0), End::Wait { .. }));
    assert!(waits.free(&[0]).is_empty());
    let mut fills = 0;
    while !matches!(
        fill(&mut waits, 1),
        End::Event {
            event: Event::ProcessExit { .. },
            ..
        }
    ) {
        fills += 1;
        assert!(fills < 50, "the child never ends");
    }
    waits.gone(1);
    waits.gone(2);
    assert_eq!(waits.free(&[0]), [0]);
    let exit = Event::ProcessExit { status: 3 };
    assert_eq!(
        fill(&mut waits, 0),
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

/// A disk with room for this many bytes.
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
        assert!(error.to_string().contains("disk/x.pwt"), "{error}");
        assert!(error.to_string().contains("space"), "{error}");
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
            // The part before the damage comes first.
            let (good, error) = try_drain(opened(&bad).as_mut());
            assert!(error.unwrap().contains("checksum"));
            assert_eq!(instructions(&good), check.good_instructions);
        }
    }
}

/// `bytes` with another version in the header.
fn of_version(bytes: &[u8], version: u32) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let json = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let crc = crc32fast::hash(&bytes[..16 + json]);
    bytes[16 + json..20 + json].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn files_of_earlier_versions_are_read_and_those_of_later_ones_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = recorded(dir.path(), program("gups", 2, &[("updates", "9000")]), None);
    let (bytes, all) = (std::fs::read(&path).unwrap(), drain(opened(&path).as_mut()));
    for earlier in 1..=8 {
        std::fs::write(&path, of_version(&bytes, earlier)).unwrap();
        assert!(drain(opened(&path).as_mut()) == all);
    }
    std::fs::write(&path, of_version(&bytes, 10)).unwrap();
    let message = refused(&path, &OpenOptions::default());
    assert!(message.contains("version 10"), "{message}");
}

/// The ends of batches determine the order in which threads run on a machine.
#[test]
fn the_batches_of_threads_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let batches = |mut program: Box<dyn Program>| {
        let (mut batch, mut waits) = (Batch::new(), Waits::default());
        let (mut all, mut live) = (Vec::new(), vec![0]);
        while !live.is_empty() {
            for thread in waits.free(&live) {
                let end = program.fill(thread, &mut batch).unwrap();
                waits.see(thread, &batch, &end);
                match &end {
                    End::Event {
                        event: Event::Spawn { thread },
                        ..
                    } => live.push(*thread),
                    End::Exit => live.retain(|t| *t != thread),
                    _ => {}
                }
                all.push((thread, batch.ops.clone(), end));
            }
        }
        all
    };
    for (name, threads, params) in RUNS {
        let path = recorded(dir.path(), program(name, threads, params), None);
        let made = batches(program(name, threads, params));
        assert!(made.iter().any(|(_, ops, end)| {
            *end == End::More && !ops.is_empty() && ops.len() < BATCH_OPS
        }));
        assert!(made == batches(opened(&path)), "{name} {threads}");
        // A copy behaves the same.
        let copy = dir.path().join("copy.pwt");
        convert_trace(&path, &OpenOptions::default(), &copy, false).unwrap();
        assert!(made == batches(opened(&copy)), "{name} {threads}");
    }
}
