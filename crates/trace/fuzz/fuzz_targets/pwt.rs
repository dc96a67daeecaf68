//! Bytes spliced into a valid recording after its header, to reach the block and codec readers more often than random
//! files do.
#![no_main]

use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};

use libfuzzer_sys::fuzz_target;
use pagewalk_programs::{Options, build};
use pagewalk_stream::{Batch, End};
use pagewalk_trace::{
    Header, OpenOptions, Recording, TraceWriter, check_trace, open_trace, record,
};

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

static GOOD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let memory = Memory::default();
    let options = Options {
        size_bytes: Some(1 << 20),
        ..Options::default()
    };
    let program = build("gups", &options).unwrap();
    let header = Header::of(&program.facts(), 0, "fuzz");
    let writer = TraceWriter::to_writer(Path::new("memory"), &header, memory.clone());
    record(Recording::new(program, writer), Some(20_000), |_| true).unwrap();
    let bytes = memory.0.lock().unwrap().clone();
    bytes
});

fuzz_target!(|input: (u16, &[u8])| {
    let (at, bytes) = input;
    let mut trace = GOOD.clone();
    let at = usize::from(at) % trace.len();
    let end = (at + bytes.len()).min(trace.len());
    trace[at..end].copy_from_slice(&bytes[..end - at]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &trace).unwrap();
    let options = OpenOptions {
        recover: true,
        ..OpenOptions::default()
    };
    if let Ok(mut program) = open_trace(file.path(), &options) {
        let mut batch = Batch::new();
        // The fast-forwarded part differs in each run.
        let mut left = u64::from(at as u16 & 15) * 1500;
        loop {
            program.grant_fast_forward(left, u64::MAX);
            if !matches!(program.fill(0, &mut batch), Ok(end) if end != End::Exit) {
                break;
            }
            left = left.saturating_sub(batch.instructions());
        }
    }
    let _ = check_trace(file.path(), None);
});
