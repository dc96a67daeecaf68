//! Any fields in the records of a gem5 elastic trace give a result, never a panic.
#![no_main]

use std::io::Write;

use libfuzzer_sys::fuzz_target;
use pagewalk_stream::{Batch, End};
use pagewalk_trace::{Format, OpenOptions, check_trace, open_trace};

/// Magic number and header; then records of 24 bytes each, whose last one may be cut off.
fn file(records: &[u8]) -> Vec<u8> {
    let mut bytes = b"gem5\x05\x0a\x01c\x20\x40".to_vec();
    for record in records.chunks(24) {
        // The fields that every record has, before any others.
        let [sequence, kind] = [record[0] & 0x7f, record[0] % 4];
        let required = [1 << 3, sequence, 2 << 3, kind, 7 << 3, 0];
        bytes.push((required.len() + record.len()) as u8);
        bytes.extend(required);
        bytes.extend(record);
    }
    bytes
}

fuzz_target!(|input: (u8, &[u8])| {
    let (choice, records) = input;
    let bytes = file(records);
    let mut trace = tempfile::NamedTempFile::new().unwrap();
    let whole = bytes.len() - usize::from(choice & 7).min(bytes.len());
    trace.write_all(&bytes[..whole]).unwrap();
    let options = OpenOptions {
        // With the format given, the beginning is not looked at before.
        format: (choice & 8 != 0).then_some(Format::Elastic),
        skip: u64::from(choice >> 4),
        ..OpenOptions::default()
    };
    if let Ok(mut program) = open_trace(trace.path(), &options) {
        let mut batch = Batch::new();
        for _ in 0..10_000 {
            if !matches!(program.fill(0, &mut batch), Ok(end) if end != End::Exit) {
                break;
            }
        }
    }
    let _ = check_trace(trace.path(), options.format);
});
