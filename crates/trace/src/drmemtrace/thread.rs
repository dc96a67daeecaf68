//! The file of one thread: ops, and the times between them.

use std::collections::VecDeque;
use std::path::Path;

use pagewalk_input::{Compression, Decompress, FileError, Input};
use pagewalk_stream::{BATCH_OPS, InstructionCounts, Op, PrefetchHint};

use super::code::{Access, Code};
use super::entry::{ENTRY, Entry, KERNEL_PC, NEWEST, file_type, is_instruction, kind, marker};

/// Most bytes of an encoding: 15 of x86, 16 of register dependences.
const MOST_ENCODING: usize = 16;

/// A part of the thread's stream.
pub(super) enum Item {
    Ops(Vec<Op>, InstructionCounts),
    /// The thread had come here at this time (microseconds).
    Time(u64),
}

/// Facts at the beginning of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Start {
    version: u64,
    pub file_type: u64,
    pub thread: u64,
    pub process: u64,
    /// The first time; 0 if there is none.
    pub time: u64,
}

/// Reads the file of a thread.
pub(super) struct ThreadFile {
    input: Input,
    pub start: Start,
    /// A record that was read and is not used yet.
    held: Option<Entry>,
    code: Code,
    encoding: Vec<u8>,
    ops: Vec<Op>,
    counts: InstructionCounts,
    items: VecDeque<Item>,
    /// The last time given, and one that follows the open instruction.
    time: u64,
    next_time: Option<u64>,
    /// Address of the last instruction, and the one after it.
    pc: u64,
    after: u64,
    /// Inside the kernel's instructions.
    kernel: bool,
    /// The accesses that follow are left out.
    left_out: bool,
    exited: bool,
    ended: bool,
    failed: Option<FileError>,
}

impl ThreadFile {
    /// Opens the file at `path`, and reads up to its first instruction.
    pub fn open(path: &Path, decompress: Decompress) -> Result<Self, FileError> {
        let input = Input::open_with(path, "trace", "a drmemtrace file", decompress)?;
        let mut file = ThreadFile {
            input,
            start: Start::default(),
            held: None,
            code: Code::of(0),
            encoding: Vec::new(),
            ops: Vec::new(),
            counts: InstructionCounts::default(),
            items: VecDeque::new(),
            time: 0,
            next_time: None,
            pc: 0,
            after: 0,
            kernel: false,
            left_out: true,
            exited: false,
            ended: false,
            failed: None,
        };
        file.read_start()?;
        Ok(file)
    }

    /// Compression of the thread's file.
    pub fn compression(&self) -> Compression {
        self.input.compression
    }

    fn fault(&self, what: impl Into<String>) -> FileError {
        FileError::at(&self.input.path, self.input.at, what)
    }

    fn read_start(&mut self) -> Result<(), FileError> {
        let first = self.entry()?;
        let Some(first) = first.filter(|e| e.kind == kind::HEADER) else {
            return Err(FileError::at(
                &self.input.path,
                0,
                "this is no thread of a drmemtrace; expected the files that DynamoRIO's -offline -t drmemtrace leaves in the folder `trace`, and nothing else beside them",
            ));
        };
        self.start.version = first.value;
        if !(1..=NEWEST).contains(&first.value) {
            return Err(self.fault(format!(
                "version {} of drmemtrace is not known; expected 1 to {NEWEST}: write the trace with DynamoRIO 11 or earlier",
                first.value
            )));
        }
        while let Some(entry) = self.entry()? {
            match entry.kind {
                kind::THREAD => self.start.thread = entry.value,
                kind::PROCESS => self.start.process = entry.value,
                kind::MARKER if entry.size == marker::TIMESTAMP => {
                    self.start.time = entry.value;
                    break;
                }
                kind::MARKER if entry.size == marker::FILE_TYPE => {
                    self.start.file_type |= entry.value;
                }
                kind::MARKER if entry.size == marker::VERSION => {
                    self.start.version = entry.value;
                }
                kind::MARKER => {}
                _ => {
                    self.held = Some(entry);
                    break;
                }
            }
        }
        if self.start.thread == 0 && self.start.file_type & file_type::CORE_SHARDED == 0 {
            return Err(self.fault("the file names no thread; it is cut off or damaged"));
        }
        self.check_type()?;
        self.time = self.start.time;
        self.items.push_back(Item::Time(self.time));
        self.code = Code::of(self.start.file_type);
        Ok(())
    }

    fn check_type(&self) -> Result<(), FileError> {
        let has = |bits| self.start.file_type & bits != 0;
        let why = if has(file_type::CORE_SHARDED) {
            "the trace is sharded by core, and threads interleave in a file; expected one that is sharded by thread: give the folder from which it was made"
        } else if has(file_type::FILTERED) {
            "the trace is filtered: accesses that hit the tracer's cache are missing, so TLB misses would be wrong; record it without -L0_filter"
        } else if has(file_type::INSTRUCTIONS_ONLY) {
            "the trace has no data accesses; record it without -instr_only_trace"
        } else if has(file_type::WHOLE_SYSTEM) {
            "the trace is of a whole system; expected one of user programs"
        } else if has(file_type::TEMPLATES) {
            "the file holds templates of system calls and no program; give a trace"
        } else {
            return Ok(());
        };
        Err(FileError::new(&self.input.path, why))
    }

    /// The next record.
    fn entry(&mut self) -> Result<Option<Entry>, FileError> {
        if let Some(entry) = self.held.take() {
            return Ok(Some(entry));
        }
        let mut bytes = [0; ENTRY];
        if let Some(there) = self.input.peek()?.first_chunk::<ENTRY>() {
            bytes = *there;
            self.input.consume(ENTRY);
        } else {
            let at = self.input.at;
            match self.input.read_full(&mut bytes)? {
                0 => return Ok(None),
                ENTRY => {}
                part => {
                    return Err(FileError::at(
                        &self.input.path,
                        at,
                        format!(
                            "the trace ends within a record ({part} of {ENTRY} bytes): it is cut off; what comes before is good"
                        ),
                    ));
                }
            }
        }
        Ok(Some(Entry::parse(&bytes)))
    }

    /// The next part of the stream. `None` at the end.
    pub fn next(&mut self) -> Result<Option<Item>, FileError> {
        loop {
            if let Some(item) = self.items.pop_front() {
                return Ok(Some(item));
            }
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            if self.ended {
                return Ok(None);
            }
            if let Err(error) = self.step() {
                // Ops before the fault are good. The last instruction may lack accesses.
                self.failed = Some(error);
                self.code.abandon();
                self.end();
            }
        }
    }

    /// Reads a record.
    fn step(&mut self) -> Result<(), FileError> {
        let Some(entry) = self.entry()? else {
            if !self.exited {
                return Err(self.fault(
                    "the trace ends before its thread does: it is cut off; what comes before is good",
                ));
            }
            self.end();
            return Ok(());
        };
        match entry.kind {
            kind::ENCODING => {
                let bytes = entry.value.to_le_bytes();
                let length = usize::from(entry.size);
                if length > bytes.len() || self.encoding.len() + length > MOST_ENCODING {
                    return Err(self.fault(
                        "the encoding of an instruction is too long: the trace is damaged",
                    ));
                }
                self.encoding.extend_from_slice(&bytes[..length]);
            }
            kind::NO_FETCH => self.again(entry)?,
            kind::MAYBE_FETCH if self.pc == entry.value => {}
            k if is_instruction(k) => self.instruction(entry)?,
            kind::BUNDLE => {
                let lengths = entry.value.to_le_bytes();
                for length in lengths.into_iter().take(usize::from(entry.size)) {
                    let next = Entry {
                        kind: kind::INSTRUCTION,
                        size: u16::from(length),
                        value: self.after,
                    };
                    self.instruction(next)?;
                }
            }
            kind::READ | kind::WRITE => {
                let access = if entry.kind == kind::READ {
                    Access::Load
                } else {
                    Access::Store
                };
                self.access(access, entry.value, entry.size);
            }
            kind::MARKER => self.marker(entry),
            kind::THREAD if entry.value != self.start.thread => {
                return Err(self.fault(format!(
                    "the file switches from thread {} to thread {}; expected one thread in each file: sort an online trace by thread with DynamoRIO's record_filter",
                    self.start.thread, entry.value
                )));
            }
            kind::THREAD_EXIT | kind::FOOTER => self.exited = true,
            // Flushes are simple instructions; the other records say nothing new.
            kind::THREAD | kind::PROCESS | kind::HEADER | kind::HARDWARE_PREFETCH => {}
            kind::FLUSH..=kind::FLUSH_END => {}
            other => match hint(other) {
                Some(Some(hint)) => self.access(Access::Prefetch(hint), entry.value, 1),
                Some(None) => {}
                None => {
                    return Err(self.fault(format!(
                        "record type {other} is not known: the trace is damaged, or of a later DynamoRIO"
                    )));
                }
            },
        }
        Ok(())
    }

    /// A further repetition of a string instruction.
    fn again(&mut self, entry: Entry) -> Result<(), FileError> {
        // The first one may be in an earlier window of the trace.
        if self.pc == entry.value {
            self.encoding.clear();
            return Ok(());
        }
        self.instruction(entry)
    }

    fn instruction(&mut self, entry: Entry) -> Result<(), FileError> {
        self.pc = entry.value;
        self.after = entry.value.wrapping_add(u64::from(entry.size));
        self.left_out = self.kernel || entry.size == 0 || !self.code.is_user(entry.value);
        if self.left_out {
            self.encoding.clear();
            self.close(None);
            return Ok(());
        }
        if entry.size > 16 {
            return Err(self.fault("an instruction of more than 16 bytes: the trace is damaged"));
        }
        let begun = self
            .code
            .begin(entry, &self.encoding, &mut self.ops, &mut self.counts);
        self.encoding.clear();
        begun.map_err(|what| self.fault(what))?;
        if let Some(time) = self.next_time.take() {
            self.give_rest();
            self.items.push_back(Item::Time(time));
        } else {
            self.give_full();
        }
        Ok(())
    }

    fn access(&mut self, access: Access, va: u64, size: u16) {
        if !self.left_out && self.code.is_user(va) {
            self.code.access(access, va, size);
        }
    }

    fn marker(&mut self, entry: Entry) {
        match entry.size {
            marker::TIMESTAMP if entry.value > self.time => {
                self.time = entry.value;
                self.next_time = Some(entry.value);
                self.code.cut();
            }
            marker::KERNEL_EVENT => {
                let known = self.start.version >= KERNEL_PC && entry.value != 0;
                self.close(known.then_some(entry.value));
            }
            marker::SYSCALL_TRACE_START | marker::CONTEXT_SWITCH_START => self.kernel = true,
            marker::SYSCALL_TRACE_END | marker::CONTEXT_SWITCH_END => self.kernel = false,
            _ => {}
        }
    }

    /// Ends the open instructions; `next` is where the thread goes on.
    fn close(&mut self, next: Option<u64>) {
        self.code.close(next, &mut self.ops, &mut self.counts);
        self.give_full();
    }

    fn end(&mut self) {
        self.ended = true;
        self.close(None);
        self.code.finish(self.pc, &mut self.ops);
        self.give_rest();
    }

    /// Gives the ops so far in full batches.
    fn give_full(&mut self) {
        while self.ops.len() >= BATCH_OPS {
            let rest = self.ops.split_off(BATCH_OPS);
            let full = std::mem::replace(&mut self.ops, rest);
            let counts = std::mem::take(&mut self.counts);
            self.items.push_back(Item::Ops(full, counts));
        }
    }

    fn give_rest(&mut self) {
        self.give_full();
        if !self.ops.is_empty() {
            let rest = std::mem::take(&mut self.ops);
            let counts = std::mem::take(&mut self.counts);
            self.items.push_back(Item::Ops(rest, counts));
        }
    }
}

/// The hint of a prefetch of this type; `Some(None)` for one of instructions. `None`: it is no prefetch.
fn hint(kind: u16) -> Option<Option<PrefetchHint>> {
    Some(match kind {
        2 | 3 | 7 => Some(PrefetchHint::T0),
        4 => Some(PrefetchHint::T1),
        5 => Some(PrefetchHint::T2),
        6 | 32..=34 => Some(PrefetchHint::Nta),
        8 | 41..=46 => Some(PrefetchHint::Write),
        9 | 35..=40 => None,
        _ => return None,
    })
}
