//! Any records, in the files of two threads of a drmemtrace, give a result, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagewalk_stream::{Batch, End};
use pagewalk_trace::{OpenOptions, check_trace, open_trace};

/// The header of a version, a file type, a thread, a process and a time.
fn file(file_type: u64, thread: u64, records: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let start = [
        (25u16, 0u16, 7),
        (28, 9, file_type),
        (22, 8, thread),
        (24, 8, 7),
        (28, 2, 100 + thread),
    ];
    for (kind, size, value) in start {
        bytes.extend(kind.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend(u64::to_le_bytes(value));
    }
    // Short records reach more types: a byte each of type and size, and two of the value.
    for record in records.chunks_exact(4) {
        bytes.extend([record[0] % 52, 0, record[1] % 72, 0]);
        bytes.extend([record[2], record[3], 0, 0, 0, 0, 0, 0]);
    }
    bytes
}

fuzz_target!(|input: (u8, &[u8], &[u8])| {
    let (choice, first, second) = input;
    let file_type = [0x40, 0x240, 0x20240, 0x208][usize::from(choice & 3)];
    let folder = tempfile::tempdir().unwrap();
    for (name, thread, records) in [("a", 1, first), ("b", 2, second)] {
        std::fs::write(folder.path().join(name), file(file_type, thread, records)).unwrap();
    }
    let options = OpenOptions {
        skip: u64::from(choice >> 3),
        ..OpenOptions::default()
    };
    if let Ok(mut program) = open_trace(folder.path(), &options) {
        let mut batch = Batch::new();
        for round in 0..10_000 {
            if !matches!(program.fill(round & 1, &mut batch), Ok(end) if end != End::Exit) {
                break;
            }
        }
    }
    let _ = check_trace(folder.path(), None);
});
