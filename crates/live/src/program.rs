//! A running program, with all its processes and threads.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::time::{Duration, Instant};

use pagewalk_ring::futex_wait;
use pagewalk_stream::{Batch, End, Error, Facts, Program, ProgramMemory, ThreadId, Unseen};
use pagewalk_trace::Decoded;

use crate::host::Host;
use crate::living::Living;
use crate::options::LiveOptions;
use crate::process::Process;
use crate::sink::{Batches, Nothing, Sink};
use crate::thread::{LiveThread, QueryingThread};

/// Most steps read of a thread in its turn.
pub(crate) const TURN: u32 = 8192;
/// Time that the reader sleeps before it polls an empty ring again.
pub(crate) const LOOK: Duration = Duration::from_millis(1);

/// Processes polled in that time: each takes some ten microseconds.
const LOOKS: usize = 8;

/// Text in which bytes that are not UTF-8 are written as `\xff`.
fn shown(text: &OsStr) -> String {
    let mut out = String::new();
    for chunk in text.as_bytes().utf8_chunks() {
        out += chunk.valid();
        for byte in chunk.invalid() {
            out += &format!("\\x{byte:02x}");
        }
    }
    out
}

/// A running program, with all its processes and threads.
pub struct Live {
    pub(crate) name: String,
    pub(crate) host: Host,
    pub(crate) processes: Living<Process>,
    pub(crate) threads: Living<LiveThread>,
    pub(crate) decoded: Decoded,
    pub(crate) counted: Option<u64>,
    /// Exit status that the first process has reported.
    pub(crate) status: Option<i32>,
    /// Time of the last poll for processes that have died, and the last process polled.
    looked: Option<(Instant, usize)>,
    /// Error of a poll: the kernel did not say whether a process lives.
    unknown: Option<std::io::Error>,
    /// Calls that asked for the time, since the last batch.
    pub(crate) clock_calls: u64,
    /// Programs that processes have started to execute, since the last batch.
    pub(crate) program_starts: u64,
    /// The program's clocks show the simulated time.
    pub(crate) simulated_clock: bool,
    /// Kinds of memory calls that are not modelled, named so far.
    pub(crate) named: BTreeSet<(i64, Option<u64>)>,
    /// A machine answers for the simulated kernel.
    pub(crate) has_kernel: bool,
    /// Files of the kernel, named so far.
    pub(crate) named_files: BTreeSet<Unseen>,
}

impl Live {
    /// See [`launch`](crate::launch).
    ///
    /// # Errors
    /// As [`launch`](crate::launch).
    pub fn launch(options: LiveOptions) -> Result<Live, Error> {
        let name: Vec<String> = options.argv.iter().map(|a| shown(a)).collect();
        let name = name.join(" ");
        let simulated_clock = options.simulated_clock;
        let mut host = Host::start(options)?;
        let hello = host.first_hello()?;
        let mut root = Process::new(Some(hello.who));
        root.attach(hello, false)?;
        let thread = LiveThread::new(0, root.reader(0)?);
        root.threads.push(0);
        Ok(Live {
            name,
            host,
            processes: Living::of(root),
            threads: Living::of(thread),
            decoded: Decoded::default(),
            counted: None,
            status: None,
            looked: None,
            unknown: None,
            clock_calls: 0,
            program_starts: 1,
            simulated_clock,
            named: BTreeSet::new(),
            has_kernel: true,
            named_files: BTreeSet::new(),
        })
    }

    /// Instructions of the first process by QEMU's own counter, with [`LiveOptions::count`] and after a regular end.
    /// Exact for one thread.
    pub fn counted(&self) -> Option<u64> {
        self.counted
    }

    /// Processes and threads that are kept: those that live, or have not been read to their ends.
    pub fn kept(&self) -> (usize, usize) {
        (self.processes.len(), self.threads.len())
    }

    /// Reads from every thread and discards it, to measure the front end alone. Returns the instructions, including
    /// those of blocks that were cut short; `None` after the program's end.
    ///
    /// # Errors
    /// As [`Program::fill`].
    pub fn discard(&mut self) -> Result<Option<u64>, Error> {
        let (mut instructions, mut moved) = (0, false);
        self.has_kernel = false;
        for thread in self.threads.numbers() {
            let mut nothing = Nothing {
                instructions: 0,
                left: TURN,
            };
            let end = self.read(thread as ThreadId, &mut nothing)?;
            if let End::Query(_) | End::Clock(_) = end {
                self.shortcut_result(thread as ThreadId, None);
            }
            instructions += nothing.instructions;
            moved |= !nothing.is_empty() || !matches!(end, End::Blocked | End::Empty);
        }
        if self.threads.is_empty() {
            return Ok(None);
        }
        if !moved {
            self.wait_at_most(LOOK * 5);
        }
        Ok(Some(instructions))
    }

    /// Number and memory of the process of `thread`.
    pub(crate) fn memory(&self, thread: ThreadId) -> Option<(usize, &ProgramMemory)> {
        let number = self.threads.get(thread as usize)?.process;
        Some((number, self.processes.get(number)?.memory.as_ref()?))
    }

    /// True if a thread that waits has something new, or has died.
    fn something_new(&mut self) -> bool {
        self.host.poll_hellos();
        self.look_for_deaths();
        let (host, processes) = (&self.host, &self.processes);
        let has_new = |t: &LiveThread| {
            let Some(p) = processes.get(t.process) else {
                return true;
            };
            // A dead thread with a query is read on after the result.
            let died = || p.dead && !t.reported_death && !t.has_query();
            t.available() > 0 || died() || p.who.is_some_and(|who| host.has_hello(who))
        };
        self.unknown.is_some()
            || host.check().is_err()
            || self.threads.values().any(|t| t.starving && has_new(t))
    }

    /// Polls some processes for their death. Few at a time, because each poll reads a file of the kernel's.
    fn look_for_deaths(&mut self) {
        let (then, last) = self.looked.unzip();
        if then.is_some_and(|then| then.elapsed() < LOOK) {
            return;
        }
        let mut last = last.unwrap_or(0);
        for number in self.processes.after(last, LOOKS) {
            if let Err(e) = self.processes[number].look_for_death() {
                self.unknown.get_or_insert(e);
            }
            last = number;
        }
        self.looked = Some((Instant::now(), last));
    }

    /// Checks that the stream is complete.
    fn check(&mut self) -> Result<(), Error> {
        self.host.check()?;
        match self.unknown.take() {
            None => Ok(()),
            Some(e) => Err(Error::refused(format!(
                "cannot find out whether the program's processes live: {e}"
            ))),
        }
    }
}

impl Program for Live {
    fn facts(&self) -> Facts {
        Facts {
            name: self.name.clone(),
            live: true,
            cpu: Some(self.host.cpu().to_owned()).filter(|cpu| !cpu.is_empty()),
            prefetches: true,
            flushes: true,
            memory: true,
            simulated_clock: self.simulated_clock,
            ..Facts::default()
        }
    }

    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, Error> {
        batch.clear();
        self.fill_on(thread, batch)
    }

    fn shortcut_result(&mut self, thread: ThreadId, reply: Option<u64>) {
        if let Some(asker) = self.querying_thread(thread) {
            asker.deliver_result(reply);
        }
    }

    fn kernel_file(&mut self, thread: ThreadId, contents: Option<Vec<u8>>) {
        if let Some(asker) = self.querying_thread(thread) {
            asker.deliver_file(contents);
        }
    }

    fn wait(&mut self) {
        self.wait_at_most(Duration::from_millis(100));
    }

    fn exit_status(&self) -> Option<i32> {
        self.host.status(self.status.is_some()).or(self.status)
    }
}

impl Live {
    /// Appends to a batch of this thread that is empty or ended with [`End::Empty`].
    ///
    /// # Errors
    /// As [`Program::fill`].
    pub(crate) fn fill_on(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, Error> {
        if batch.ops.is_empty() {
            // Before the read, which may come to the next image.
            batch.memory = self.memory(thread).map(|(_, memory)| memory.clone());
        }
        let mut sink = Batches {
            ops: &mut batch.ops,
            counts: batch.counts,
        };
        let end = self.read(thread, &mut sink);
        batch.counts = sink.counts;
        batch.counts.clock_calls += std::mem::take(&mut self.clock_calls);
        batch.counts.program_starts += std::mem::take(&mut self.program_starts);
        end
    }

    /// Reads from a thread's ring.
    pub(crate) fn read(&mut self, thread: ThreadId, sink: &mut impl Sink) -> Result<End, Error> {
        let number = thread as usize;
        let end = self.next(number, sink)?;
        // After the read: what a process does with knowledge of a lost one comes later.
        self.check()?;
        if let Some(t) = self.threads.get_mut(number) {
            t.starving = matches!(
                end,
                End::Empty | End::Blocked | End::Query(_) | End::ReadKernel(_) | End::Clock(_)
            );
        }
        if end == End::Exit
            && let Some(t) = self.threads.remove(number)
            && let Some(process) = self.processes.get_mut(t.process)
        {
            process.threads.retain(|other| *other != thread);
            if process.threads.is_empty() {
                self.processes.remove(t.process);
            }
        }
        Ok(end)
    }

    /// The destination of the result of the query of `thread`.
    pub(crate) fn querying_thread(&self, thread: ThreadId) -> Option<QueryingThread> {
        let t = self.threads.get(thread as usize)?;
        let (shared, ring) = t.ring.as_ref()?;
        let who = self.processes.get(t.process).and_then(|p| p.who);
        let file = who.zip(t.kernel_file).map(|(who, (file, offset))| {
            let path = format!("/proc/{}/fd/{file}", who.pid);
            (path.into(), offset)
        });
        Some(QueryingThread {
            shared: shared.clone(),
            ring: ring.clone(),
            file,
        })
    }

    /// [`Program::wait`] with the caller's own limit.
    pub(crate) fn wait_at_most(&mut self, time: Duration) {
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
            // QEMU stops all threads for some of its work. The thread that the engine waits for may therefore wait for
            // one whose ring is full.
            if self.threads.values_mut().any(LiveThread::relieve) {
                return;
            }
            patience = deadline.saturating_duration_since(Instant::now());
        }
    }
}
