//! DynamoRIO's offline traces ("drmemtrace"): a file for each thread.
//!
//! Threads run on the simulated machine's cores, in the order of the trace's times: a thread goes on after a time when
//! every other thread has come to its own last time before that.

mod code;
mod entry;
mod thread;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use pagewalk_input::{Compression, Decompress, FileError, Input};
use pagewalk_stream::{
    BATCH_OPS, Batch, Counted, End, Error, Event, Facts, InstructionCounts, Op, ProcessId, Program,
    ThreadId,
};

pub(crate) use entry::begins;

use code::Code;
use entry::file_type;
use thread::{Item, ThreadFile};

/// Most files that are decompressed by threads of their own.
const MOST_AHEAD: usize = 4;
/// Most ops of a thread that are read ahead to find its next time.
const MOST_WAITING: usize = 1 << 24;
/// Files beside the threads, by the beginnings of their names (`raw2trace`, `tracer/raw2trace_directory.cpp` and
/// `common/trace_entry.h` of DynamoRIO).
const OTHERS: [&str; 8] = [
    "serial_schedule.bin",
    "cpu_schedule.bin",
    "v2p.textproto",
    "modules.log",
    "funclist.log",
    "encodings.bin",
    "README",
    ".",
];

/// Most files of a folder that are looked at to tell whether it holds a trace.
const LOOK: usize = 8;

/// False if the file at `path` is readable and begins as no thread of a trace.
fn is_thread(path: &Path) -> bool {
    let file = Input::open_with(path, "trace", "a thread of a trace", Decompress::Inline);
    let Ok(mut file) = file else { return true };
    file.peek().map_or(true, begins)
}

/// The files of a trace, at a file or a folder.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// The file or folder that the user named.
    pub path: PathBuf,
    files: Vec<PathBuf>,
}

impl Files {
    /// Number of files, each of one thread.
    pub fn count(&self) -> usize {
        self.files.len()
    }

    /// The files of the trace in the folder at `path`.
    pub fn in_folder(path: &Path) -> Result<Self, FileError> {
        let io = |e: std::io::Error| FileError::io(path, "read the folder", &e);
        let below = path.join("trace");
        let folder = if below.is_dir() {
            below
        } else {
            path.to_owned()
        };
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(&folder).map_err(io)? {
            let entry = entry.map_err(io)?.path();
            let name = entry.file_name().unwrap_or_default().to_string_lossy();
            if entry.is_dir() {
                folders.push(name.into_owned());
            } else if name.contains(".raw") {
                folders.push("raw".into());
            } else if !OTHERS.iter().any(|other| name.starts_with(other)) {
                files.push(entry.clone());
            }
        }
        if files.is_empty() {
            folders.sort();
            let windows = folders.iter().find(|name| name.starts_with("window."));
            let what = if let Some(window) = windows {
                format!(
                    "the trace has several windows; give one of them, such as {}",
                    folder.join(window).display()
                )
            } else if folders.iter().any(|name| name == "raw") {
                "the trace is not post-processed; run DynamoRIO's `drrun -t drmemtrace -indir` on the folder (it calls raw2trace), and give the folder again".into()
            } else {
                "there is no trace in the folder; expected the folder `trace` of DynamoRIO's drmemtrace, or a trace file".into()
            };
            return Err(FileError::new(path, what));
        }
        files.sort();
        if !files.iter().take(LOOK).any(|file| is_thread(file)) {
            let what = format!(
                "is a folder without a drmemtrace of DynamoRIO; give the trace itself, such as {}",
                files[0].display()
            );
            return Err(FileError::new(path, what));
        }
        Ok(Files {
            path: path.to_owned(),
            files,
        })
    }

    /// The trace of one thread in the file at `path`.
    pub fn of_file(path: &Path) -> Self {
        Files {
            path: path.to_owned(),
            files: vec![path.to_owned()],
        }
    }

    /// Bytes of all threads' files.
    pub fn bytes(&self) -> u64 {
        let sizes = self.files.iter().filter_map(|f| f.metadata().ok());
        sizes.map(|m| m.len()).sum()
    }

    /// Compression of the first thread's file.
    pub fn compression(&self) -> Result<Compression, FileError> {
        let first = ThreadFile::open(&self.files[0], Decompress::Inline)?;
        Ok(first.compression())
    }
}

/// A trace as a program.
pub(crate) struct Drmemtrace {
    facts: Facts,
    threads: Vec<Thread>,
}

struct Thread {
    /// `None`: its end has been read.
    file: Option<ThreadFile>,
    /// Events before its first op.
    begins: VecDeque<Event>,
    /// Read, and not given yet.
    items: VecDeque<Item>,
    /// Ops in `items`.
    waiting: usize,
    /// Progress up to the end of `items`: ops, and ends other than [`End::More`].
    units: u64,
    /// Its times, ascending, with the progress before each.
    times: Vec<(u64, u64)>,
    /// Number of times of each other thread that this one comes after.
    after: Vec<u32>,
    /// Ops given, up to the farthest that can be named.
    given: u64,
    /// Instructions still to skip.
    skip: u64,
    failed: Option<Error>,
}

impl Drmemtrace {
    /// Opens the files, and reads the beginning of each.
    pub fn open(files: &Files, skip: u64) -> Result<Self, FileError> {
        let decompress = if files.files.len() <= MOST_AHEAD {
            Decompress::Ahead
        } else {
            Decompress::Inline
        };
        let mut opened = Vec::new();
        for path in &files.files {
            opened.push(ThreadFile::open(path, decompress)?);
        }
        // The first to run comes first; the sort is stable, so names decide between equal times.
        opened.sort_by_key(|file| file.start.time);
        let kinds = opened.iter().map(|file| file.start.file_type);
        let has = |bits: u64| kinds.clone().any(|kind| kind & bits != 0);
        let mut notes = Vec::new();
        if has(file_type::KERNEL) {
            notes.push("the trace has instructions of the kernel, which are left out: only the program's are simulated".to_owned());
        }
        let mut threads: Vec<Thread> = Vec::new();
        let count = opened.len();
        let (mut events, mut processes) = (vec![VecDeque::new(); count], BTreeMap::new());
        for (number, file) in opened.iter().enumerate() {
            let thread = number as ThreadId;
            let next = processes.len() as ProcessId;
            match processes.entry(file.start.process) {
                std::collections::btree_map::Entry::Vacant(new) => {
                    new.insert(number);
                    if number > 0 {
                        events[0].push_back(Event::Fork {
                            process: next,
                            thread,
                        });
                        events[number].push_back(Event::Exec);
                    }
                }
                std::collections::btree_map::Entry::Occupied(first) => {
                    events[*first.get()].push_back(Event::Spawn { thread });
                }
            }
        }
        let dependences = kinds.clone().all(Code::has_dependences);
        for (file, begins) in opened.into_iter().zip(events) {
            threads.push(Thread {
                file: Some(file),
                units: begins.len() as u64,
                begins,
                items: VecDeque::new(),
                waiting: 0,
                times: Vec::new(),
                after: vec![0; count],
                given: 0,
                skip: if threads.is_empty() { skip } else { 0 },
                failed: None,
            });
        }
        let name = files.path.file_name().unwrap_or(files.path.as_os_str());
        Ok(Drmemtrace {
            facts: Facts {
                name: name.to_string_lossy().into_owned(),
                infer_mappings: true,
                no_dependences: !dependences,
                deterministic: true,
                prefetches: true,
                threads: u32::try_from(threads.len()).ok(),
                notes,
                ..Facts::default()
            },
            threads,
        })
    }

    /// The end that makes `thread` wait at `time`.
    fn wait(&mut self, thread: usize, time: u64) -> Result<End, Error> {
        let mut until = Vec::new();
        for other in (0..self.threads.len()).filter(|other| *other != thread) {
            self.threads[other].read_past(time)?;
            let times = &self.threads[other].times;
            // Between equal times, the first thread goes first.
            let before = times.partition_point(|(t, _)| *t < time || *t == time && other < thread);
            let known = &self.threads[thread].after[other];
            if before as u32 > *known {
                until.push((other as ThreadId, times[before - 1].1));
                self.threads[thread].after[other] = before as u32;
            }
        }
        Ok(End::Wait {
            until,
            counted: Counted::Ops,
        })
    }
}

impl Thread {
    /// Reads the next part of the file. Returns false at its end.
    fn read(&mut self) -> Result<bool, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let Some(file) = &mut self.file else {
            return Ok(false);
        };
        match file.next() {
            Ok(None) => {
                self.file = None;
                return Ok(false);
            }
            Ok(Some(item)) => {
                match &item {
                    Item::Ops(ops, _) => {
                        self.units += ops.len() as u64;
                        self.waiting += ops.len();
                    }
                    Item::Time(time) => {
                        self.times.push((*time, self.units));
                        self.units += 1;
                    }
                }
                self.items.push_back(item);
            }
            Err(error) => {
                self.file = None;
                self.failed = Some(error.into());
            }
        }
        Ok(true)
    }

    /// Reads up to a time after `time`. A fault is left to the thread itself.
    fn read_past(&mut self, time: u64) -> Result<(), Error> {
        while self.failed.is_none() && self.times.last().is_none_or(|(t, _)| *t <= time) {
            if self.waiting > MOST_WAITING {
                return Err(Error::refused(format!(
                    "a thread of the trace has no timestamp within {MOST_WAITING} operations, so its place among the others is unknown; expected one every few thousand instructions"
                )));
            }
            if !self.read()? {
                break;
            }
        }
        Ok(())
    }
}

impl Program for Drmemtrace {
    fn facts(&self) -> Facts {
        self.facts.clone()
    }

    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, Error> {
        batch.clear();
        let number = thread as usize;
        let alone = self.threads.len() == 1;
        loop {
            let Some(me) = self.threads.get_mut(number) else {
                return Ok(End::Exit);
            };
            if let Some(event) = me.begins.pop_front() {
                return Ok(End::Event { event, ticket: 0 });
            }
            match me.items.pop_front() {
                Some(Item::Ops(ops, counts)) => {
                    me.waiting -= ops.len();
                    me.give(ops, counts, batch);
                    if !batch.ops.is_empty() {
                        return Ok(End::More);
                    }
                }
                Some(Item::Time(_)) if alone => {}
                Some(Item::Time(time)) => return self.wait(number, time),
                None => {
                    if !me.read()? {
                        return Ok(End::Exit);
                    }
                }
            }
        }
    }
}

impl Thread {
    /// Moves `ops` to `batch`, without the instructions to skip and without dependences on them.
    fn give(&mut self, mut ops: Vec<Op>, counts: InstructionCounts, batch: &mut Batch) {
        debug_assert!(ops.len() <= BATCH_OPS);
        if self.skip > 0 {
            let mut skipped = 0;
            while let Some(op) = ops.get(skipped).filter(|_| self.skip > 0) {
                self.skip = self.skip.saturating_sub(u64::from(op.insns));
                skipped += 1;
            }
            ops.drain(..skipped);
        }
        if self.given <= u64::from(u16::MAX) {
            for op in &mut ops {
                for dep in &mut op.dep {
                    if u64::from(*dep) > self.given {
                        *dep = 0;
                    }
                }
                self.given += 1;
            }
        }
        batch.ops = ops;
        batch.counts = counts;
    }
}
