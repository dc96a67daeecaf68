//! Arbitrary bytes as the user's graph file: a graph or a refusal, never a panic.
#![no_main]

use std::io::Write;

use libfuzzer_sys::fuzz_target;
use pagewalk_programs::{Options, build};
use pagewalk_stream::{Batch, End};

fuzz_target!(|input: (u8, &[u8])| {
    let (choice, bytes) = input;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let mut options = Options {
        threads: 1 + u32::from(choice >> 6),
        ..Options::default()
    };
    let mut set = |name: &str, value: &str| {
        options.params.insert(name.into(), value.into());
    };
    set("graph", &path);
    set("roots", "2");
    if choice & 1 != 0 {
        set("symmetric", "yes");
    }
    if choice & 2 != 0 {
        set("weights", "file");
    }
    if choice & 4 != 0 {
        set("layout", "graphbig");
    }
    if let Ok(mut program) = build("sssp", &options) {
        let mut batch = Batch::new();
        for _ in 0..1000 {
            if !matches!(program.fill(0, &mut batch), Ok(end) if end != End::Exit) {
                break;
            }
        }
    }
});
