//! Contents of a process's memory, read through the kernel.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use pagewalk_stream::Memory;

use crate::identity::{Condition, Identity};
use crate::process::MappedSegment;

/// Memory of one image of a process. It is opened at the first read, and stays that of this image: after the process
/// has ended or executes another program, nothing can be read.
pub(crate) struct LiveMemory {
    who: Identity,
    shared: Arc<MappedSegment>,
    file: OnceLock<Option<File>>,
}

impl LiveMemory {
    pub fn new(who: Identity, shared: Arc<MappedSegment>) -> LiveMemory {
        LiveMemory {
            who,
            shared,
            file: OnceLock::new(),
        }
    }

    fn open(&self) -> Option<File> {
        let file = File::open(format!("/proc/{}/mem", self.who.pid)).ok()?;
        // Checked after the file is open: from then on it belongs to that process.
        matches!(self.who.look(), Ok(Condition::Lives)).then_some(file)
    }
}

impl std::fmt::Debug for LiveMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "memory of process {}", self.who.pid)
    }
}

impl Memory for LiveMemory {
    fn read(&self, va: u64, into: &mut [u8]) -> bool {
        let Some(file) = self.file.get_or_init(|| self.open()) else {
            return false;
        };
        let base = self.shared.segment.header().guest_base.load(Relaxed);
        file.read_exact_at(into, va.wrapping_add(base)).is_ok()
    }
}
