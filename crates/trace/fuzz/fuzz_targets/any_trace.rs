//! Any bytes as a trace of any format give a result, never a panic.
#![no_main]

use std::io::Write;

use libfuzzer_sys::fuzz_target;
use pagewalk_stream::{Batch, End};
use pagewalk_trace::{Format, OpenOptions, check_trace, open_trace};

fuzz_target!(|input: (u8, &[u8])| {
    let (choice, bytes) = input;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let format = match choice & 0x23 {
        0 => None,
        1 => Some(Format::Champsim),
        2 => Some(Format::Lackey),
        3 => Some(Format::Pwt),
        0x20 => Some(Format::Cloudsuite),
        0x21 => Some(Format::Drmemtrace),
        0x22 => Some(Format::Elastic),
        _ => Some(Format::Pinatrace),
    };
    let options = OpenOptions {
        format,
        recover: choice & 4 != 0,
        skip: u64::from(choice >> 3),
    };
    if let Ok(mut program) = open_trace(file.path(), &options) {
        let mut batch = Batch::new();
        for _ in 0..10_000 {
            // Every other trace is fast-forwarded.
            program.grant_fast_forward(u64::from(choice & 1) << 40, u64::MAX);
            if !matches!(program.fill(0, &mut batch), Ok(end) if end != End::Exit) {
                break;
            }
        }
    }
    let _ = check_trace(file.path(), format);
});
