//! DynamoRIO's traces: records in each container become ops, and threads go on in the order of their times.

use std::io::Write;
use std::path::{Path, PathBuf};

use pagewalk_input::Compression;
use pagewalk_stream::{Batch, Counted, End, Event, Op, OpClass, flags};
use pagewalk_trace::{Format, OpenOptions, check_trace, convert_trace, open_trace, trace_info};

use crate::{Streams, drain, instructions, opened, refused, try_drain};

/// Types of records, markers and bits of the file type, as in DynamoRIO's `trace_entry.h`.
const READ: u16 = 0;
const WRITE: u16 = 1;
const INSTRUCTION: u16 = 10;
const RETURN: u16 = 16;
const THREAD: u16 = 22;
const THREAD_EXIT: u16 = 23;
const PROCESS: u16 = 24;
const HEADER: u16 = 25;
const FOOTER: u16 = 26;
const MARKER: u16 = 28;
const NO_FETCH: u16 = 29;
const ENCODING: u16 = 47;
const TAKEN: u16 = 48;
const UNTAKEN: u16 = 49;
const KERNEL_EVENT: u16 = 0;
const TIME: u16 = 2;
const FILE_TYPE: u16 = 9;
const X86: u64 = 0x40;
const ENCODINGS: u64 = 0x240;
const REGDEPS: u64 = 0x20000;

/// The file of a thread.
#[derive(Clone, Default)]
struct File(Vec<u8>);

impl File {
    fn new(file_type: u64, process: u64, thread: u64, time: u64) -> Self {
        let mut file = File::default();
        file.put(HEADER, 0, 7);
        file.put(MARKER, 12, 7);
        file.put(MARKER, FILE_TYPE, file_type);
        file.put(THREAD, 8, thread);
        file.put(PROCESS, 8, process);
        // Line, chunk, page.
        file.put(MARKER, 10, 64);
        file.put(MARKER, 20, 1000);
        file.put(MARKER, 18, 4096);
        file.time(time);
        file
    }

    fn put(&mut self, kind: u16, size: u16, value: u64) {
        self.0.extend(kind.to_le_bytes());
        self.0.extend(size.to_le_bytes());
        self.0.extend(value.to_le_bytes());
    }

    /// A time, and the processor.
    fn time(&mut self, time: u64) {
        self.put(MARKER, TIME, time);
        self.put(MARKER, 3, 1);
    }

    /// An instruction with its encoding.
    fn encoded(&mut self, kind: u16, pc: u64, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut value = [0; 8];
            value[..part.len()].copy_from_slice(part);
            self.put(ENCODING, part.len() as u16, u64::from_le_bytes(value));
        }
        self.put(kind, bytes.len() as u16, pc);
    }

    fn end(mut self, thread: u64) -> Self {
        self.put(THREAD_EXIT, 8, thread);
        self.put(FOOTER, 0, 0);
        self
    }

    fn write(&self, path: &Path) {
        std::fs::write(path, &self.0).unwrap();
    }
}

/// Plain accesses, without encodings.
fn accesses(count: u64) -> File {
    let mut file = File::new(X86, 7, 8, 100);
    for n in 0..count {
        file.put(INSTRUCTION, 4, 0x40_0000 + 4 * (n % 500));
        let va = 0x1000_0000 + n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (1 << 24);
        file.put(if n % 5 == 0 { WRITE } else { READ }, 8, va);
    }
    file.end(8)
}

/// A zip archive: `deflated` members, or stored ones.
fn zip(members: &[&[u8]], deflated: bool) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (number, bytes) in members.iter().enumerate() {
        let name = format!("chunk.{number:04}");
        let mut packed = bytes.to_vec();
        if deflated {
            let mut deflate =
                flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
            deflate.write_all(bytes).unwrap();
            packed = deflate.finish().unwrap();
        }
        let mut common = vec![20, 0, 0, 0, if deflated { 8 } else { 0 }, 0, 0, 0, 0, 0];
        for word in [
            crc32fast::hash(bytes),
            packed.len() as u32,
            bytes.len() as u32,
        ] {
            common.extend(word.to_le_bytes());
        }
        common.extend((name.len() as u16).to_le_bytes());
        common.extend([0, 0]);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&common);
        directory.extend([0; 10]);
        directory.extend((out.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        out.extend(b"PK\x03\x04");
        out.extend(&common);
        out.extend(name.as_bytes());
        out.extend(&packed);
    }
    let start = out.len() as u32;
    out.extend(&directory);
    out.extend(b"PK\x05\x06\x00\x00\x00\x00");
    out.extend((members.len() as u16).to_le_bytes());
    out.extend((members.len() as u16).to_le_bytes());
    out.extend((directory.len() as u32).to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend([0, 0]);
    out
}

/// The bytes in each container that DynamoRIO writes.
fn contained(raw: &[u8]) -> Vec<(Compression, &'static str, Vec<u8>)> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(raw).unwrap();
    let checked = lz4_flex::frame::FrameInfo::new().content_checksum(true);
    let mut lz4 = lz4_flex::frame::FrameEncoder::with_frame_info(checked, Vec::new());
    lz4.write_all(raw).unwrap();
    let mut snappy = snap::write::FrameEncoder::new(Vec::new());
    snappy.write_all(raw).unwrap();
    let (first, rest) = raw.split_at(raw.len() / 24 * 12);
    vec![
        (Compression::None, "trace", raw.to_vec()),
        (Compression::Gzip, "trace.gz", gz.finish().unwrap()),
        (Compression::Lz4, "trace.lz4", lz4.finish().unwrap()),
        (
            Compression::Snappy,
            "memtrace.sz",
            snappy.into_inner().unwrap(),
        ),
        (Compression::Zip, "trace.zip", zip(&[first, rest], true)),
        (
            Compression::Zip,
            "stored.zip",
            zip(&[first, &[], rest], false),
        ),
    ]
}

#[test]
fn each_container_holds_the_same_trace() {
    let file = accesses(20_000);
    let dir = tempfile::tempdir().unwrap();
    let mut expected: Option<Vec<Op>> = None;
    for (compression, name, bytes) in contained(&file.0) {
        let folder = dir.path().join(name);
        std::fs::create_dir_all(folder.join("trace")).unwrap();
        std::fs::create_dir(folder.join("raw")).unwrap();
        let path = folder
            .join("trace")
            .join(format!("drmemtrace.app.1.{name}"));
        std::fs::write(&path, &bytes).unwrap();
        for other in ["cpu_schedule.bin.zip", "v2p.textproto", ".hidden"] {
            std::fs::write(folder.join("trace").join(other), "no trace").unwrap();
        }
        for opens in [&folder, &folder.join("trace"), &path] {
            let ops = drain(opened(opens).as_mut()).remove(&0).unwrap().0;
            assert!(
                *expected.get_or_insert_with(|| ops.clone()) == ops,
                "{name}"
            );
        }
        let info = trace_info(&folder, &OpenOptions::default()).unwrap();
        assert_eq!(
            (info.format, info.compression),
            (Format::Drmemtrace, compression)
        );
        assert_eq!(
            (info.loads, info.stores, info.instructions),
            (16_000, 4_000, 20_000)
        );
        assert_eq!(info.bytes, bytes.len() as u64);
        assert!(info.no_dependences && info.mappings_inferred);
        // A part of it, or another byte in it, is a fault with a place, and what comes before is good.
        for cut in [bytes.len() / 2, bytes.len() - 13] {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let (said, good) = match open_trace(&path, &OpenOptions::default()) {
                Ok(mut program) => {
                    let (streams, error) = try_drain(program.as_mut());
                    (error.expect("a fault"), streams)
                }
                Err(error) => (error.to_string(), Streams::new()),
            };
            assert!(said.contains("cut off"), "{name}: {said}");
            let good = good.get(&0).map_or(&[][..], |s| &s.0);
            let whole = expected.as_deref().unwrap();
            assert!(*good == whole[..good.len()], "{name}");
        }
        let mut damaged = bytes.clone();
        damaged[bytes.len() / 2] ^= 0x55;
        std::fs::write(&path, &damaged).unwrap();
        let check = check_trace(&path, None);
        // Plain bytes have no checksum.
        if compression != Compression::None {
            let check = check.unwrap();
            assert!(check.fault.unwrap().contains("damaged"), "{name}");
        }
    }
}

#[test]
fn the_same_accesses_in_lackeys_text_give_the_same_ops() {
    let dir = tempfile::tempdir().unwrap();
    let (mut file, mut text) = (File::new(X86, 7, 8, 100), String::new());
    for n in 0..3000u64 {
        let pc = 0x40_0000 + 4 * n;
        file.put(INSTRUCTION, 4, pc);
        text += &format!("I  {pc:x},4\n");
        if n % 3 > 0 {
            let va = 0x1000_0000 + (n * 7919 % 5000) * 4096;
            file.put(if n % 3 == 1 { READ } else { WRITE }, 8, va);
            text += &format!(" {} {va:x},8\n", if n % 3 == 1 { "L" } else { "S" });
        }
    }
    let (path, lackey) = (dir.path().join("t"), dir.path().join("t.lackey"));
    file.end(8).write(&path);
    std::fs::write(&lackey, text).unwrap();
    let ops = |path| drain(opened(path).as_mut()).remove(&0).unwrap().0;
    assert!(ops(&path) == ops(&lackey));
}

/// `mov rax,[rbx]; add rax,1; mov [rcx],rax; jne back; ret` with a `rep movsb` before.
fn program_with_encodings() -> File {
    let mut file = File::new(ENCODINGS, 7, 8, 100);
    file.encoded(INSTRUCTION, 0x1000, &[0xf3, 0xa4]);
    for n in 0..100 {
        if n > 0 {
            file.put(NO_FETCH, 2, 0x1000);
        }
        file.put(READ, 1, 0x2_0000 + n);
        file.put(WRITE, 1, 0x3_0000 + n);
    }
    for round in 0..3 {
        let first: &[&[u8]] = &[
            &[0x48, 0x8b, 0x03],
            &[0x48, 0x83, 0xc0, 0x01],
            &[0x48, 0x89, 0x01],
            &[0x75, 0xf4],
        ];
        let mut pc = 0x1002;
        for (n, bytes) in first.iter().enumerate() {
            let kind = match (n, round) {
                (3, 2) => UNTAKEN,
                (3, _) => TAKEN,
                _ => INSTRUCTION,
            };
            if round == 0 {
                file.encoded(kind, pc, bytes);
            } else {
                file.put(kind, bytes.len() as u16, pc);
            }
            match n {
                0 => file.put(READ, 8, 0x5000 + 8 * round),
                2 => file.put(WRITE, 8, 0x6000 + 8 * round),
                _ => {}
            }
            pc += bytes.len() as u64;
        }
    }
    file.encoded(RETURN, 0x100e, &[0xc3]);
    file.put(READ, 8, 0x7000);
    file
}

/// A trace to damage.
pub fn seed() -> Vec<u8> {
    program_with_encodings().end(8).0
}

#[test]
fn encodings_give_dependences_and_branches() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let mut file = program_with_encodings();
    // A signal interrupts the thread after the return.
    file.put(MARKER, KERNEL_EVENT, 0x4444);
    file.encoded(INSTRUCTION, 0x9000, &[0x90]);
    // `vpxorq zmm0, zmm0, zmm0`: AVX-512 is an instruction like others here.
    file.encoded(INSTRUCTION, 0x9001, &[0x62, 0xf1, 0xfd, 0x48, 0xef, 0xc0]);
    file.end(8).write(&path);
    let mut program = opened(&path);
    assert!(!program.facts().no_dependences);
    let streams = drain(program.as_mut());
    assert_eq!(instructions(&streams), 1 + 3 * 4 + 1 + 2);
    let ops = &streams[&0].0;
    // 100 bytes of two lines each way, as one instruction.
    let of = |kind, pc| {
        ops.iter()
            .filter(move |o: &&Op| o.kind == kind && o.pc == pc)
    };
    let bytes: u64 = of(OpClass::Load, 0x1000).map(|o| u64::from(o.size)).sum();
    assert_eq!(bytes, 100);
    assert_eq!(of(OpClass::Store, 0x1000).count(), 2);
    let loads: Vec<u64> = of(OpClass::Load, 0x1002).map(|o| o.va).collect();
    assert_eq!(loads, [0x5000, 0x5008, 0x5010]);
    let stores: Vec<&Op> = of(OpClass::Store, 0x1009).collect();
    assert_eq!(stores.len(), 3);
    for store in stores {
        // The stored value is that of the load, a cycle later.
        let at = ops.iter().position(|o| std::ptr::eq(o, store)).unwrap();
        let load = &ops[at - usize::from(store.dep[1])];
        assert_eq!((load.pc, store.dep_latency[1]), (0x1002, 1));
    }
    let taken: Vec<bool> = of(OpClass::Branch, 0x100c)
        .map(|o| o.flags & flags::TAKEN != 0)
        .collect();
    assert_eq!(taken, [true, true, false]);
    let ret = of(OpClass::Branch, 0x100e).next().unwrap();
    assert_eq!(ret.va, 0x4444);
    assert!(ret.flags & flags::RETURN != 0);
    let (mut program, mut batch) = (opened(&path), Batch::new());
    program.fill(0, &mut batch).unwrap();
    assert_eq!(batch.counts.instructions, 16);
    assert!(batch.counts.classes.iter().all(|n| *n == 0));
}

#[test]
fn registers_without_instructions_give_dependences_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let mut file = File::new(ENCODINGS | REGDEPS, 7, 8, 100);
    // Written, read, and the registers after the operation's size.
    let mut instruction = |kind, pc, written: u32, read: u32, names: [u8; 3]| {
        let mut bytes = (written | read << 4).to_le_bytes().to_vec();
        bytes.push(8);
        bytes.extend(names);
        for part in bytes.chunks(8) {
            file.put(ENCODING, 8, u64::from_le_bytes(part.try_into().unwrap()));
        }
        file.put(kind, 3, pc);
        if pc == 0x1000 {
            file.put(READ, 8, 0x5000);
        } else if pc == 0x1006 {
            file.put(WRITE, 8, 0x6000);
        }
    };
    instruction(INSTRUCTION, 0x1000, 1, 1, [5, 6, 0]);
    instruction(INSTRUCTION, 0x1003, 1, 1, [7, 5, 0]);
    instruction(INSTRUCTION, 0x1006, 0, 2, [9, 7, 0]);
    file.end(8).write(&path);
    let mut program = opened(&path);
    assert!(!program.facts().no_dependences);
    let ops = drain(program.as_mut()).remove(&0).unwrap().0;
    assert_eq!(ops.len(), 2);
    assert_eq!(
        (ops[1].kind, ops[1].dep, ops[1].dep_latency),
        (OpClass::Store, [1, 0], [1, 0])
    );
}

#[test]
fn the_kernels_part_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let mut file = File::new(X86 | 0x1000, 7, 8, 100);
    file.put(INSTRUCTION, 4, 0x1000);
    file.put(MARKER, 27, 0);
    file.put(INSTRUCTION, 4, 0x2000);
    file.put(READ, 8, 0x3000);
    file.put(MARKER, 28, 0);
    file.put(INSTRUCTION, 4, 0xffff_ffff_ff60_0000);
    file.put(READ, 8, 0x4000);
    file.put(INSTRUCTION, 4, 0x1004);
    file.put(READ, 8, 0x5000);
    file.end(8).write(&path);
    let mut program = opened(&path);
    assert!(program.facts().notes[0].contains("kernel"));
    let ops = drain(program.as_mut()).remove(&0).unwrap().0;
    assert_eq!(ops.iter().map(|o| o.insns).sum::<u16>(), 2);
    assert_eq!(ops.iter().map(|o| o.va).max(), Some(0x5000));
}

/// Threads 0 to 2 of two processes, with times.
fn threads(dir: &Path) -> PathBuf {
    for (name, process, thread, times) in [
        ("c", 7, 8, &[100, 300, 500][..]),
        ("b", 7, 9, &[200, 400]),
        ("a", 6, 5, &[350]),
    ] {
        let mut file = File::new(X86, process, thread, times[0]);
        for (n, time) in times.iter().enumerate() {
            if n > 0 {
                file.time(*time);
            }
            for i in 0..10 {
                file.put(INSTRUCTION, 4, 0x1000 + 4 * i);
                file.put(READ, 8, time * 0x1000);
            }
        }
        file.end(thread).write(&dir.join(name));
    }
    dir.to_owned()
}

#[test]
fn threads_go_on_in_the_order_of_their_times() {
    let dir = tempfile::tempdir().unwrap();
    let path = threads(dir.path());
    let mut program = opened(&path);
    let mut batch = Batch::new();
    let mut fill = |thread| program.fill(thread, &mut batch).unwrap();
    let event = |event| End::Event { event, ticket: 0 };
    let wait = |until: &[(u32, u64)]| End::Wait {
        until: until.to_vec(),
        counted: Counted::Ops,
    };
    assert_eq!(fill(0), event(Event::Spawn { thread: 1 }));
    assert_eq!(
        fill(0),
        event(Event::Fork {
            process: 1,
            thread: 2
        })
    );
    assert_eq!(fill(2), event(Event::Exec));
    // Time 350: the first thread has come to 300 (two events, a wait, ten ops), the second to 200.
    assert_eq!(fill(2), wait(&[(0, 13), (1, 0)]));
    assert_eq!(fill(0), wait(&[]));
    assert_eq!(fill(0), End::More);
    assert_eq!(fill(1), wait(&[(0, 2)]));
    assert_eq!(fill(0), wait(&[(1, 0)]));
    assert_eq!(fill(0), End::More);
    // Time 500: the second is at 400, after its wait and ten ops; the third at 350, after its event.
    assert_eq!(fill(0), wait(&[(1, 11), (2, 1)]));
    // All end, in a recording, too.
    let streams = drain(opened(&path).as_mut());
    assert_eq!(instructions(&streams), 60);
    let copy = dir.path().join("copy.pwt");
    convert_trace(&path, &OpenOptions::default(), &copy, false).unwrap();
    let copied = drain(opened(&copy).as_mut());
    for (thread, (ops, _)) in &streams {
        assert_eq!(*ops, copied[thread].0);
    }
    std::fs::remove_file(copy).unwrap();
    let info = trace_info(&path, &OpenOptions::default()).unwrap();
    assert_eq!((info.threads, info.instructions), (3, 60));
}

#[test]
fn what_is_not_read_is_refused_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let said = |file: &File| {
        file.write(&path);
        refused(&path, &OpenOptions::default())
    };
    let with = |bits| {
        let mut file = File::new(X86 | bits, 7, 8, 100);
        file.put(INSTRUCTION, 4, 0x1000);
        file.end(8)
    };
    assert!(said(&with(0x10000)).contains("sharded by thread"));
    assert!(said(&with(0x80)).contains("without -L0_filter"));
    assert!(said(&with(0x100)).contains("without -L0_filter"));
    assert!(said(&with(0x4)).contains("without -instr_only_trace"));
    assert!(said(&with(0x40000)).contains("user programs"));
    let mut newer = with(0);
    newer.0[4] = 99;
    newer.0[12 + 4] = 99;
    assert!(said(&newer).contains("version 99"));
    let mut file = File::new(X86, 7, 8, 100);
    file.put(INSTRUCTION, 4, 0x1000);
    assert!(said(&file).contains("cut off"));
    file.put(THREAD, 8, 9);
    assert!(said(&file).contains("from thread 8 to thread 9"));
    let mut file = File::new(X86, 7, 8, 100);
    file.put(77, 4, 0x1000);
    assert!(said(&file).contains("record type 77"));
    let mut file = File::new(ENCODINGS, 7, 8, 100);
    file.put(INSTRUCTION, 4, 0x1000);
    assert!(said(&file).contains("0x1000 has no encoding"));
    let mut file = File::new(ENCODINGS, 7, 8, 100);
    file.put(ENCODING, 2, 0x9090);
    file.put(INSTRUCTION, 4, 0x1000);
    assert!(said(&file).contains("its encoding 2"));
    // Folders.
    let folder = |names: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "no trace at all").unwrap();
        }
        refused(folder.path(), &OpenOptions::default())
    };
    assert!(folder(&[]).contains("no trace in the folder"));
    assert!(folder(&["raw/a.raw.gz", "raw/modules.log"]).contains("raw2trace"));
    assert!(folder(&["a.raw.zip", "modules.log"]).contains("raw2trace"));
    assert!(folder(&["trace/window.0000/a.zip"]).contains("window.0000"));
    let said = folder(&["trace/a.txt"]);
    assert!(said.contains("a folder without a drmemtrace") && said.contains("trace/a.txt"));
}

#[test]
fn any_records_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let mut state = 77u64;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    let good = seed();
    let mut ended = 0;
    for round in 0..2000 {
        let mut bytes = if round % 2 == 0 {
            good.clone()
        } else {
            File::new(
                [X86, ENCODINGS, ENCODINGS | REGDEPS, 0x208][round / 2 % 4],
                7,
                8,
                100,
            )
            .0
        };
        for _ in 0..random(8) {
            let at = random(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random(8);
        }
        for _ in 0..random(60) {
            let kind = random(52) as u16;
            let size = [0, 1, 2, 4, 8, 15, 64][random(7) as usize];
            let value = [random(1 << 30), random(16) + 0x1000, u64::MAX][random(3) as usize];
            bytes.extend(kind.to_le_bytes());
            bytes.extend(u16::to_le_bytes(size));
            bytes.extend(value.to_le_bytes());
        }
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(mut program) = open_trace(&path, &OpenOptions::default()) {
            ended += usize::from(try_drain(program.as_mut()).1.is_none());
        }
    }
    assert!(ended > 20, "{ended}");
}
