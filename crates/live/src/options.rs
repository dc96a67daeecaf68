//! Options of a live program.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;

/// Options of a live program.
#[derive(Debug, Default)]
pub struct LiveOptions {
    /// The program and its arguments, as typed after `--`.
    pub argv: Vec<OsString>,
    /// Environment variables, set in addition to ours.
    pub env: Vec<(OsString, OsString)>,
    /// The plugin, `libpagewalk_qemu_plugin.so`.
    pub plugin: PathBuf,
    /// The emulator; else `PAGEWALK_QEMU`, else `qemu-x86_64` on the path.
    pub qemu: Option<PathBuf>,
    /// CPU model that the emulator gives the program; else that of [`Emulator::cpu`](crate::Emulator::cpu).
    pub cpu: Option<String>,
    /// Pages of 2 MB and of 1 GB in the pools of huge pages.
    pub huge_pages: [u64; 2],
    /// Bytes of the ring of each thread, rounded up to a power of two; 0: 1 MB.
    pub ring_bytes: usize,
    /// The program's standard input, output and error; `None`: ours.
    pub stdio: [Option<File>; 3],
    /// The program's clocks show the simulated time.
    pub simulated_clock: bool,
    /// Each mark of the region of interest is an event that all other threads of the program meet.
    pub ordered_marks: bool,
    /// QEMU also counts instructions itself; see `Live::counted`.
    pub count: bool,
}
