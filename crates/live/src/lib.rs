//! Any Linux x86-64 program as a stream: it runs under QEMU's user-mode emulator
//! with our plugin, which sends what it executes through shared memory.

mod ahead;
mod calls;
mod host;
mod locate;
mod process;
mod record;
mod sink;
mod thread;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::time::{Duration, Instant};

use pagewalk_ring::futex_wait;
use pagewalk_stream::{Batch, End, Facts, Program, ProgramError, ThreadId};

use host::Host;
use process::Process;
use sink::{Batches, Nothing, Sink};
use thread::Thread;

use pagewalk_trace::Decoded;

pub use locate::{find_qemu, resolve_program};
pub use record::LiveRecording;

/// What to run and how.
#[derive(Debug, Default)]
pub struct LiveOptions {
    /// The program and its arguments, as typed after `--`.
    pub argv: Vec<OsString>,
    /// Environment variables set in addition to ours.
    pub env: Vec<(OsString, OsString)>,
    /// The plugin, `libpagewalk_qemu_plugin.so`.
    pub plugin: PathBuf,
    /// The emulator; else `PAGEWALK_QEMU`, else `qemu-x86_64` on the path.
    pub qemu: Option<PathBuf>,
    /// Bytes of the ring of each thread, rounded up to a power of two; 0: 1 MB.
    pub ring_bytes: usize,
    /// The program's standard input, output and error; `None`: ours.
    pub stdio: [Option<File>; 3],
    /// Also let QEMU count instructions by itself, see [`Live::counted`].
    pub count: bool,
}

/// Starts a program; a thread of its own reads what it does while the engine works.
///
/// # Errors
/// One sentence for the user: no QEMU, no plugin, no such program, not an x86-64
/// program, or the emulator did not start.
pub fn launch(options: LiveOptions) -> Result<Box<dyn Program>, ProgramError> {
    Ok(Box::new(ahead::Ahead::start(Live::launch(options)?)?))
}

/// A running program with all its threads and processes.
pub struct Live {
    name: String,
    host: Host,
    processes: Vec<Process>,
    threads: Vec<Thread>,
    decoded: Decoded,
    counted: Option<u64>,
}

impl Live {
    /// See [`launch`].
    ///
    /// # Errors
    /// As [`launch`].
    pub fn launch(options: LiveOptions) -> Result<Live, ProgramError> {
        let name = options
            .argv
            .iter()
            .map(|a| a.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ");
        let mut host = Host::start(options)?;
        let hello = host.first_hello()?;
        let mut root = Process::new(hello.pid, host.process_handle(hello.pid));
        root.attach(hello, false)?;
        let thread = Thread::new(0, root.reader(0)?);
        root.threads.push(0);
        Ok(Live {
            name,
            host,
            processes: vec![root],
            threads: vec![thread],
            decoded: Decoded::default(),
            counted: None,
        })
    }

    /// Instructions of the first process by QEMU's own counter, when asked for in
    /// [`LiveOptions::count`] and once it has ended in order. Exact with one thread.
    pub fn counted(&self) -> Option<u64> {
        self.counted
    }

    /// Reads on in every thread and throws it away: what the front end alone takes.
    /// Returns the instructions, those of blocks that were cut short included; none
    /// when the program has ended.
    ///
    /// # Errors
    /// As [`Program::fill`].
    pub fn discard(&mut self) -> Result<Option<u64>, ProgramError> {
        let (mut instructions, mut moved) = (0, false);
        for thread in 0..self.threads.len() {
            if self.threads[thread].ended {
                continue;
            }
            let mut nothing = Nothing {
                instructions: 0,
                left: record::TURN,
            };
            let end = self.read(thread as ThreadId, &mut nothing)?;
            instructions += nothing.instructions;
            moved |= !nothing.is_empty() || !matches!(end, End::Blocked | End::Empty);
        }
        if self.threads.iter().all(|t| t.ended) {
            return Ok(None);
        }
        if !moved {
            self.wait_at_most(ahead::LOOK * 5);
        }
        Ok(Some(instructions))
    }

    /// Some thread that was left waiting has something, or lives no more.
    fn something_new(&mut self) -> bool {
        self.host.poll_hellos();
        let (host, processes) = (&self.host, &mut self.processes);
        for p in processes.iter_mut() {
            p.look_for_death();
        }
        self.threads.iter().any(|t| {
            let p = &processes[t.process];
            t.starving && (t.available() > 0 || p.dead && !t.told_of_death || host.has_hello(p.pid))
        })
    }
}

impl Program for Live {
    fn facts(&self) -> Facts {
        Facts {
            name: self.name.clone(),
            live: true,
            ..Facts::default()
        }
    }

    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, ProgramError> {
        batch.ops.clear();
        self.read(thread, &mut Batches(&mut batch.ops))
    }

    fn wait(&mut self) {
        self.wait_at_most(Duration::from_millis(100));
    }

    fn exit_status(&self) -> Option<i32> {
        let said = self.processes[0].status;
        self.host.status(said.is_some()).or(said)
    }
}

impl Live {
    /// Reads on in a thread's ring.
    fn read(&mut self, thread: ThreadId, sink: &mut impl Sink) -> Result<End, ProgramError> {
        let end = self.next(thread as usize, sink)?;
        let t = &mut self.threads[thread as usize];
        t.starving = matches!(end, End::Empty | End::Blocked);
        if end == End::Exit && !t.ended {
            t.end();
            let process = &mut self.processes[t.process];
            let over = |t: &ThreadId| self.threads[*t as usize].ended;
            if process.threads.iter().all(over) {
                process.release();
            }
        }
        Ok(end)
    }

    /// [`Program::wait`] with a bound of the caller's.
    fn wait_at_most(&mut self, time: Duration) {
        let deadline = Instant::now() + time;
        let mut patience = Duration::from_millis(2);
        loop {
            let control = self.host.control();
            let seen = control.doorbell.load(SeqCst);
            control.waiting.store(1, SeqCst);
            fence(SeqCst);
            if self.something_new() || Instant::now() >= deadline {
                self.host.control().waiting.store(0, Relaxed);
                return;
            }
            futex_wait(&self.host.control().doorbell, seen, patience);
            if self.something_new() {
                return;
            }
            // What is awaited may be held up by a thread that waits for room in
            // its ring: QEMU stops all threads for some of its work.
            if self.threads.iter_mut().any(|t| t.relieve()) {
                return;
            }
            patience = deadline.saturating_duration_since(Instant::now());
        }
    }
}

pub(crate) type Queue = VecDeque<pagewalk_trace::x86::Piece>;
