//! Bytes spliced into the blocks of a recording of a live program, with valid checksums: inconsistent steps and code
//! are an error, never a panic.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pagewalk_stream::{Batch, End};
use pagewalk_trace::{OpenOptions, check_trace, open_trace};

const GOOD: &[u8] = include_bytes!("../../tests/data/steps.pwt");
const HEADER: usize = 64;

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// The file's header, and the headers and contents of its blocks.
static PARTS: LazyLock<(Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>)> = LazyLock::new(|| {
    let mut at = 20 + u32_at(GOOD, 12);
    let (first, mut blocks) = (GOOD[..at].to_vec(), Vec::new());
    while GOOD[at..].starts_with(b"PW") {
        let header = GOOD[at..at + HEADER].to_vec();
        let payload = &GOOD[at + HEADER..][..u32_at(&header, 48)];
        blocks.push((header, zstd::bulk::decompress(payload, 1 << 24).unwrap()));
        at += HEADER + payload.len();
    }
    (first, blocks)
});

fuzz_target!(|input: (u8, u8, u16, bool, &[u8])| {
    let (which, field, at, insert, bytes) = input;
    let (first, blocks) = &*PARTS;
    let mut trace = first.clone();
    let chosen = usize::from(which) % blocks.len();
    for (number, (header, raw)) in blocks.iter().enumerate() {
        let (mut header, mut raw) = (header.clone(), raw.clone());
        if number == chosen {
            // The columns differ much in length: each is chosen equally often.
            let lengths = [32, 36, 40, 44].map(|at| u32_at(&header, at));
            let before: usize = raw.len() - lengths.iter().sum::<usize>();
            let columns = [before, lengths[0], lengths[1], lengths[2], lengths[3]];
            let column = usize::from(field) % 5;
            let start: usize = columns[..column].iter().sum();
            let at = start + usize::from(at) % columns[column].max(1);
            let until = raw.len().min(at + if insert { 0 } else { bytes.len() });
            let new = bytes.len() as i64 - (until as i64 - at as i64);
            raw.splice(at..until, bytes.iter().copied());
            if column > 0 {
                let at = 28 + 4 * column;
                let longer = (u32_at(&header, at) as i64 + new).max(0) as u32;
                header[at..at + 4].copy_from_slice(&longer.to_le_bytes());
            }
        }
        let payload = zstd::bulk::compress(&raw, 1).unwrap();
        header[48..52].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        header[52..56].copy_from_slice(&crc32fast::hash(&payload).to_le_bytes());
        let crc = crc32fast::hash(&header[..60]);
        header[60..].copy_from_slice(&crc.to_le_bytes());
        trace.extend(header);
        trace.extend(payload);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &trace).unwrap();
    let options = OpenOptions {
        recover: true,
        skip: u64::from(field >> 7) * 20_000,
        ..OpenOptions::default()
    };
    if let Ok(mut program) = open_trace(file.path(), &options) {
        let mut batch = Batch::new();
        program.grant_fast_forward(u64::from(field & 1) << 40, u64::MAX);
        while matches!(program.fill(0, &mut batch), Ok(end) if end != End::Exit) {}
    }
    let _ = check_trace(file.path(), None);
});
