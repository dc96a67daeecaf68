//! Recordings of live programs: a replay gives the live stream.

use std::io::Write;
use std::path::{Path, PathBuf};

use pagewalk_live::{Live, LiveOptions, LiveRecording};
use pagewalk_ring::record;
use pagewalk_stream::{Batch, End, Op, OpClass, Program};
use pagewalk_trace::{
    Header, OpenOptions, TraceWriter, Written, check_trace, convert_trace, open_trace, trace_info,
};
use pagewalk_units::rng;
use rand::{Rng, RngExt};

use crate::corrupt::{FAKE, fake_options, memory};
use crate::tools::{compile, present};
use crate::{options, programs, run};

fn launch(options: LiveOptions, path: &Path) -> LiveRecording {
    LiveRecording::launch(options, false, |facts| {
        TraceWriter::create(path, &Header::of(facts, 0, "a test"))
    })
    .unwrap()
}

/// Records a run of `argv` to `path`. Returns the result, and the program's exit status.
pub fn recorded(argv: &[&str], path: &Path) -> (Written, Option<i32>) {
    let mut options = options(argv);
    options.stdio[1] = Some(tempfile::tempfile().unwrap());
    let mut recording = launch(options, path);
    recording.run(None, &mut |_| true).unwrap();
    let status = recording.exit_status();
    (recording.finish().unwrap(), status)
}

fn opened(path: &Path, skip: u64, recover: bool) -> Box<dyn Program> {
    let options = OpenOptions {
        skip,
        recover,
        ..OpenOptions::default()
    };
    open_trace(path, &options).unwrap()
}

/// Ops and ends of the first thread, without its waits.
fn first_thread(program: &mut dyn Program) -> (Vec<Op>, Vec<(usize, End)>) {
    let (mut ops, mut ends) = (Vec::new(), Vec::new());
    let mut batch = Batch::new();
    loop {
        let end = program.fill(0, &mut batch).unwrap();
        ops.extend_from_slice(&batch.ops);
        match end {
            End::More | End::Wait { .. } => {}
            End::Empty | End::Blocked => program.wait(),
            End::Query(_) => {
                assert_eq!(batch.ops.last().map(|o| o.kind), Some(OpClass::Query));
                program.shortcut_result(0, None);
                ends.push((ops.len(), end));
            }
            End::ReadKernel(_) => program.kernel_file(0, None),
            End::Exit => return (ops, ends),
            end => ends.push((ops.len(), end)),
        }
    }
}

fn instructions(ops: &[Op]) -> u64 {
    ops.iter().map(|o| u64::from(o.insns)).sum()
}

/// Code blocks as the plugin writes them, from the bytes of each instruction.
pub fn code(blocks: &[&[&[u8]]]) -> Vec<u64> {
    let mut words = Vec::new();
    for (n, block) in blocks.iter().enumerate() {
        let mut raw = (0x40_0000 + 0x100 * n as u64).to_le_bytes().to_vec();
        raw.extend((block.len() as u32).to_le_bytes());
        raw.extend(block.iter().map(|i| i.len() as u8));
        raw.extend(block.concat());
        words.push(raw.len() as u64);
        let padded = raw.chunks(8).map(|c| {
            let mut word = [0; 8];
            word[..c.len()].copy_from_slice(c);
            u64::from_le_bytes(word)
        });
        words.extend(padded);
    }
    words
}

/// Valid records of one thread's ring, with faults, system calls, queries and changes by other threads.
fn ring(random: &mut impl Rng) -> Vec<u64> {
    let mut words = Vec::new();
    let mut ticket = 0;
    let mut meet = |words: &mut Vec<u64>, random: &mut dyn Rng| {
        if random.random_range(0..20u32) == 0 {
            ticket += 1;
            words.push(record::word(record::MEET, ticket));
        }
    };
    // The instructions of each block that access memory: index, and true for a store.
    let accesses: [&[(usize, bool)]; 5] = [
        &[(0, false), (1, false)],
        &[(0, false), (0, true), (1, true)],
        &[(0, false), (2, false), (4, true)],
        &[],
        &[(0, false), (0, true)],
    ];
    while words.len() < 3500 {
        if random.random_range(0..30u32) == 0 {
            words.push(record::word(record::ENTER, 9));
            if random.random() {
                words.push(record::word(record::RETURN, 0));
            } else {
                ticket_call(&mut words, random.random_range(1..9u64));
            }
        }
        if random.random_range(0..30u32) == 0 {
            let question = random.random_range(0..2u64);
            words.push(record::word(record::BLOCK, 3));
            words.push(record::word(record::QUERY, question));
            words.extend([random.random::<u64>(), random.random()]);
            words.push(record::word(record::RETURN, 0));
        }
        meet(&mut words, random);
        let block = random.random_range(0..accesses.len());
        words.push(record::word(record::BLOCK, block as u64));
        let faults = random.random_range(0..40u32) == 0;
        for &(index, store) in accesses[block] {
            if faults && random.random() {
                break;
            }
            meet(&mut words, random);
            let at = 0x7000_0000 + 8 * random.random_range(0..4u64);
            let far: u64 = random.random_range(0..1 << 48);
            let address = if random.random_range(0..3u32) == 0 {
                far
            } else {
                at
            };
            words.push(record::memory(index, store) | address);
        }
    }
    // A block or an access comes after each meeting point.
    words.push(record::word(record::BLOCK, 3));
    words.push(record::word(record::EXIT, record::LAST | 5));
    words
}

/// An mmap that took this ticket.
fn ticket_call(words: &mut Vec<u64>, pages: u64) {
    words.push(record::word(record::CALL, 9));
    words.extend([0x5000_0000, 0, 0, pages << 12, 3, 0x22, u64::MAX, 0]);
}

#[test]
fn a_replay_gives_each_op_and_event_that_the_ring_gave() {
    if !present() {
        return;
    }
    let fake = compile("fake-recorded", FAKE);
    let code = code(&[
        &[&[0x48, 0x8b, 0x00], &[0x48, 0x8b, 0x18], &[0x75, 0xf8]],
        &[&[0x48, 0x01, 0x18], &[0x53], &[0xeb, 0x10]],
        &[
            &[0x48, 0x8b, 0x00],
            &[0x0f, 0x1f, 0x80, 0x01, 0x4d, 0x49, 0x53],
            &[0x48, 0x8b, 0x18],
            &[0x0f, 0x1f, 0x80, 0x02, 0x4d, 0x49, 0x53],
            &[0x48, 0x89, 0x18],
        ],
        &[&[0x48, 0x83, 0xc0, 0x01], &[0x0f, 0x05]],
        &[&[0xf3, 0x48, 0xa5]],
    ]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fake.pwt");
    for seed in 0..12 {
        let words = ring(&mut rng(seed, "tests.recording"));
        let memory = memory(&words, &code);
        let (file, options) = fake_options(&fake, &memory);
        let mut live = Live::launch(options).unwrap();
        let (ops, ends) = first_thread(&mut live);
        drop((live, file));
        assert!(
            ops.len() > 1000
                && ends.len() > 20
                && ends.iter().any(|(_, e)| matches!(e, End::Query(_))),
            "{} {}",
            ops.len(),
            ends.len()
        );

        let (_file, options) = fake_options(&fake, &memory);
        let mut recording = launch(options, &path);
        recording.run(None, &mut |_| true).unwrap();
        let written = recording.finish().unwrap();
        assert_eq!(written.instructions, instructions(&ops));
        let (again, ends_again) = first_thread(opened(&path, 0, false).as_mut());
        assert_eq!(again.len(), ops.len());
        for (n, (a, b)) in again.iter().zip(&ops).enumerate() {
            assert_eq!(a, b, "seed {seed}, op {n}");
        }
        assert_eq!(ends_again, ends);
        let check = check_trace(&path, None).unwrap();
        assert!(check.whole, "{check:?}");
    }
}

#[test]
fn recordings_of_threads_and_children_replay_and_convert() {
    if !present() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let ping_pong = compile("recorded-ping-pong", programs::PING_PONG);
    let unmap = compile("recorded-unmap", programs::UNMAP);
    let kill = compile("recorded-kill", programs::KILL);
    let shell = "(exit 3); echo $?; /bin/echo more";
    let cases: [(&[&str], u64, i32); 4] = [
        (&[&ping_pong, "200"], 2, 0),
        (&[&unmap], 2, 0),
        (&[&kill], 1, 137),
        (&["sh", "-c", shell], 3, 0),
    ];
    for (n, (argv, threads, status)) in cases.into_iter().enumerate() {
        let path = dir.path().join(format!("{n}.pwt"));
        let (written, exit) = recorded(argv, &path);
        assert_eq!(exit, Some(status), "{argv:?}");
        let mut names = std::fs::read_dir(dir.path()).unwrap().flatten();
        assert!(!names.any(|f| f.file_name().to_string_lossy().ends_with(".partial")));
        let check = check_trace(&path, None).unwrap();
        assert!(check.whole, "{argv:?}: {check:?}");
        assert_eq!(check.good_instructions, written.instructions);
        let info = trace_info(&path, &OpenOptions::default()).unwrap();
        assert_eq!(info.instructions, written.instructions, "{argv:?}");
        assert!(
            info.threads >= threads && info.mapping_events > 5,
            "{info:?}"
        );
        // The first process to end is a child of the shell.
        let first = if threads == 3 { 3 } else { status };
        assert_eq!(info.exit_status, Some(first), "{argv:?}");
        assert!(info.bytes_per_instruction < 3.0, "{info:?}");
        let copy = dir.path().join("copy.pwt");
        let converted = convert_trace(&path, &OpenOptions::default(), &copy, false).unwrap();
        assert_eq!(converted.instructions, written.instructions);
        let copied = trace_info(&copy, &OpenOptions::default()).unwrap();
        let counts = |i: &pagewalk_trace::TraceInfo| {
            (
                [i.ops, i.loads, i.stores, i.branches, i.taken],
                [i.data_pages, i.code_pages, i.mapping_events, i.threads],
            )
        };
        assert_eq!(counts(&copied), counts(&info), "{argv:?}");
    }
}

fn gups(path: &Path, updates: &str) -> (PathBuf, Written) {
    let program = compile("recorded-gups", programs::GUPS);
    let (written, status) = recorded(&[&program, updates], path);
    assert_eq!(status, Some(0));
    (program.into(), written)
}

#[test]
fn a_recorded_program_does_what_it_does_live() {
    if !present() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gups.pwt");
    let (program, written) = gups(&path, "400000");
    let live = run(&[program.to_str().unwrap(), "400000"]).outcome;
    // Runs differ only in the time of day that libc reads.
    let close = |a: u64, b: u64| a.abs_diff(b) * 1000 <= b;
    assert!(close(written.instructions, live.instructions));
    let (ops, ends) = first_thread(opened(&path, 0, false).as_mut());
    let count = |kind| ops.iter().filter(|o| o.kind == kind).count() as u64;
    assert!(close(count(OpClass::Load), live.loads) && close(count(OpClass::Store), live.stores));
    assert!(close(ops.len() as u64, live.ops));
    let events = ends.iter().filter(|(_, e)| matches!(e, End::Event { .. }));
    assert_eq!(events.count(), live.events.len());
    assert!(written.bytes < written.instructions);

    // A replay from any position gives the end of the whole stream.
    for skip in [1000, written.instructions / 2, written.instructions - 5000] {
        let (rest, ends_of_rest) = first_thread(opened(&path, skip, false).as_mut());
        let left = instructions(&rest);
        assert!(left <= written.instructions - skip && left + 20 > written.instructions - skip);
        let accesses = |ops: &[Op]| -> Vec<(u64, u64)> {
            let memory = ops.iter().filter(|o| o.kind != OpClass::Compute);
            memory.map(|o| (o.pc, o.va)).collect()
        };
        let (rest, all) = (accesses(&rest), accesses(&ops));
        assert!(all.ends_with(&rest), "{skip}");
        assert_eq!(ends_of_rest.len(), ends.len());
    }

    // A limit ends the recording.
    let limited = dir.path().join("limited.pwt");
    let mut recording = launch(options(&[program.to_str().unwrap(), "400000"]), &limited);
    recording.run(Some(1_000_000), &mut |_| true).unwrap();
    let written = recording.finish().unwrap();
    assert!((1_000_000..1_000_600).contains(&written.instructions));
    let (part, _) = first_thread(opened(&limited, 0, false).as_mut());
    assert_eq!(instructions(&part), written.instructions);
}

/// Skipped blocks are not decoded, and the rest of the stream stays the same. That includes registers, on which
/// dependences rest.
#[test]
fn skipping_in_a_recording_leaves_the_rest_of_its_stream_equal() {
    if !present() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("passed.pwt");
    let program = compile("passed-gups", programs::GUPS);
    let (written, _) = recorded(&[&program, "1200000"], &path);
    let check = check_trace(&path, None).unwrap();
    assert!(check.whole, "{check:?}");
    assert!(check.blocks > Some(6), "{check:?}");
    let total = written.instructions;
    for skip in [total / 10, total / 2, total * 9 / 10] {
        let (mut full, mut forwarded) = (opened(&path, 0, false), opened(&path, 0, false));
        let (mut one, mut other) = (Batch::new(), Batch::new());
        let (mut left, mut passed) = (skip, 0);
        loop {
            let end = full.fill(0, &mut one).unwrap();
            forwarded.grant_fast_forward(left, u64::MAX);
            assert_eq!(forwarded.fill(0, &mut other).unwrap(), end);
            let count = other.skipped.ops as usize;
            assert_eq!(count + other.ops.len(), one.ops.len());
            assert!(other.ops[..] == one.ops[count..]);
            let over = instructions(&one.ops[..count]);
            assert_eq!(other.skipped.instructions, over);
            passed += over;
            left = left.saturating_sub(over);
            if end == End::Exit {
                break;
            }
        }
        assert!((skip..skip + 20).contains(&passed), "{passed} of {skip}");
    }
}

#[test]
fn a_recording_that_is_cut_off_is_good_up_to_there() {
    if !present() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("killed.pwt");
    let program = compile("recorded-gups", programs::GUPS);
    let mut recording = launch(options(&[&program, "100000000"]), &path);
    recording
        .run(None, &mut |so_far| so_far < 20_000_000)
        .unwrap();
    let partial = recording.partial().to_owned();
    drop(recording);
    assert!(!path.exists(), "a killed recording must not look whole");
    let name = partial.file_name().unwrap().to_string_lossy();
    assert!(
        name.starts_with("killed.pwt.") && name.ends_with(".partial"),
        "{name}"
    );
    let message = open_trace(&partial, &OpenOptions::default()).err().unwrap();
    assert!(message.to_string().contains("--keep-good"), "{message}");
    let (good, _) = first_thread(opened(&partial, 0, true).as_mut());
    assert!(instructions(&good) > 1_000_000);
    let check = check_trace(&partial, None).unwrap();
    assert!(!check.whole);
    assert_eq!(check.good_instructions, instructions(&good));

    // The file is cut at any byte.
    let bytes = std::fs::read(&partial).unwrap();
    for cut in [bytes.len() / 3, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..cut]).unwrap();
        let (less, _) = first_thread(opened(&path, 0, true).as_mut());
        assert!(less.len() < good.len() && good.starts_with(&less), "{cut}");
    }
}

/// A disk with room for this many bytes.
struct SmallDisk(usize);

impl Write for SmallDisk {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0 < bytes.len() {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.0 -= bytes.len();
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_an_error_of_a_live_recording() {
    if !present() {
        return;
    }
    let program = compile("recorded-gups", programs::GUPS);
    for room in [0, 20_000, 200_000] {
        let mut recording =
            LiveRecording::launch(options(&[&program, "2000000"]), false, |facts| {
                let header = Header::of(facts, 0, "");
                Ok::<_, pagewalk_stream::Error>(TraceWriter::to_writer(
                    Path::new("disk/x.pwt"),
                    &header,
                    SmallDisk(room),
                ))
            })
            .unwrap();
        let outcome = recording.run(None, &mut |_| true);
        let error = outcome
            .and_then(|()| recording.finish().map(drop))
            .unwrap_err();
        assert!(error.to_string().contains("disk/x.pwt"), "{error}");
        assert!(error.to_string().contains("space"), "{error}");
    }
}
