//! Conversion between formats.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use pagewalk_input::FileError;
use pagewalk_stream::{Batch, End, Error, Event, Op, OpClass, Program, flags};
use pagewalk_units::Text;
use schemars::JsonSchema;
use serde::Serialize;

use crate::champsim::{FLAGS, IP, Record, SP};
use crate::open::{OpenOptions, open_trace};
use crate::partial::PartialFile;
use crate::pwt::{Header, TraceWriter};
use crate::record::{Recording, copy, drive};

/// The trace that a conversion wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Converted {
    /// Instructions written.
    pub instructions: u64,
    /// Bytes written.
    pub bytes: u64,
    /// The fault at which the source ends, when only its good part was kept.
    pub fault: Option<String>,
    /// Contents that the target format cannot hold.
    pub lost: Vec<String>,
}

/// Converts the trace `from` to `to`: a `.pwt`, or ChampSim's records (for `.champsim`, `.champsimtrace`, `.trace`, and
/// these with `.xz`, `.gz` or `.zst`). With `keep_good`, a damaged source is converted up to the damage.
///
/// # Errors
/// A fault of the source or the target, or a source that ChampSim's format cannot hold.
pub fn convert_trace(
    from: &Path,
    options: &OpenOptions,
    to: &Path,
    keep_good: bool,
) -> Result<Converted, Error> {
    let target = target(to)?;
    let program = open_trace(from, options)?;
    match target {
        Target::Pwt => to_pwt(program, from, to, keep_good),
        Target::Champsim(compression) => to_champsim(program, to, compression, keep_good),
    }
}

enum Target {
    Pwt,
    Champsim(&'static str),
}

fn target(to: &Path) -> Result<Target, FileError> {
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    if name.ends_with(".pwt") {
        return Ok(Target::Pwt);
    }
    for compression in ["", ".xz", ".gz", ".zst"] {
        for kind in [".champsim", ".champsimtrace", ".trace"] {
            if name.ends_with(&format!("{kind}{compression}")) {
                return Ok(Target::Champsim(compression));
            }
        }
    }
    Err(FileError::new(
        to,
        "the name does not say a format to convert to; expected .pwt, .champsim or .champsimtrace, the latter also with .xz, .gz or .zst",
    ))
}

/// Forwards a program, and turns a fault into its end.
struct UpToFault {
    program: Box<dyn Program>,
    fault: std::sync::Arc<std::sync::Mutex<Option<String>>>,
}

impl Program for UpToFault {
    fn facts(&self) -> pagewalk_stream::Facts {
        self.program.facts()
    }
    fn fill(&mut self, thread: u32, batch: &mut Batch) -> Result<End, Error> {
        let mut fault = self.fault.lock().expect("held by no one who panics");
        if fault.is_some() {
            batch.ops.clear();
            return Ok(End::Exit);
        }
        self.program.fill(thread, batch).or_else(|error| {
            *fault = Some(error.to_string());
            batch.ops.clear();
            Ok(End::Exit)
        })
    }
}

fn to_pwt(
    mut program: Box<dyn Program>,
    from: &Path,
    to: &Path,
    keep_good: bool,
) -> Result<Converted, Error> {
    let facts = program.facts();
    let fault = std::sync::Arc::default();
    if keep_good {
        program = Box::new(UpToFault {
            program,
            fault: std::sync::Arc::clone(&fault),
        });
    }
    let header = Header::of(&facts, 0, &from.display().to_string());
    let writer = TraceWriter::create(to, &header)?;
    let written = copy(Recording::new(program, writer))?;
    let fault = fault.lock().expect("held by no one who panics").take();
    Ok(Converted {
        instructions: written.instructions,
        bytes: written.bytes,
        fault,
        lost: Vec::new(),
    })
}

fn to_champsim(
    program: Box<dyn Program>,
    to: &Path,
    compression: &str,
    keep_good: bool,
) -> Result<Converted, Error> {
    // Unlike a partial .pwt, a partial file does not mark itself as one, so a failure leaves no file.
    let part = PartialFile::create(to).map_err(|e| FileError::io(to, "create the trace", &e))?;
    write_champsim(program, to, part, compression, keep_good)
}

fn write_champsim(
    mut program: Box<dyn Program>,
    to: &Path,
    file: PartialFile,
    compression: &str,
    keep_good: bool,
) -> Result<Converted, Error> {
    // The place of an error separates faults of the target from those of the source below.
    let target = Text::from(to.display().to_string());
    let io = |e: std::io::Error| FileError::io(to, "write the trace", &e);
    let file = BufWriter::with_capacity(1 << 20, file);
    let mut out = Output::new(file, compression).map_err(io)?;
    let mut records = Records::default();
    let (mut instructions, mut events, mut requests) = (0, 0u64, 0u64);
    let result = drive(program.as_mut(), &mut |_, thread, batch, end| {
        if thread != 0 {
            return Err(Error::refused("a ChampSim trace has one thread, and this program starts another; convert it to .pwt").at(target.clone()));
        }
        if let End::Event { event, .. } = end
            && !matches!(event, Event::RoiBegin | Event::RoiEnd)
        {
            events += 1;
        }
        for op in &batch.ops {
            requests += u64::from(op.flags & flags::REQUEST != 0);
            instructions += records.op(op, &mut out).map_err(|e| match e {
                Problem::Io(e) => Error::from(io(e)),
                Problem::Full => Error::refused(format!("the instruction at {:#x} has more than 4 loads or 2 stores, more than a ChampSim record holds; convert to .pwt", op.pc)).at(target.clone()),
            })?;
        }
        Ok(true)
    });
    let fault = match result {
        Ok(()) => None,
        // The source was valid if the target failed.
        Err(e) if keep_good && e.place() != Some(&target) => Some(e.to_string()),
        Err(e) => return Err(e),
    };
    records.flush(&mut out).map_err(io)?;
    let bytes = out.finish().and_then(PartialFile::publish).map_err(io)?;
    let mut lost = vec![
        "sizes of accesses, and latencies between dependent instructions".to_owned(),
        "addresses of plain instructions (they are numbered between their neighbours)".to_owned(),
    ];
    if events > 0 {
        lost.push(format!("{events} events of the address space"));
    }
    if requests > 0 {
        lost.push(format!("where {requests} requests end"));
    }
    if records.far > 0 {
        lost.push(format!(
            "{} dependences over more than {REGISTERS} ops or beyond a record's registers",
            records.far
        ));
    }
    Ok(Converted {
        instructions,
        bytes,
        fault,
        lost,
    })
}

/// Bytes that go to the compressor at once.
const TOGETHER: usize = 1 << 18;
/// Most such buffers that wait for it.
const WAITING: usize = 4;

/// Output of the records. A thread of its own compresses and writes.
struct Output {
    buffer: Vec<u8>,
    /// An empty buffer marks the end.
    full: Option<SyncSender<Vec<u8>>>,
    used: Receiver<Vec<u8>>,
    /// Returns nothing if the end never came.
    thread: Option<JoinHandle<io::Result<Option<PartialFile>>>>,
}

impl Output {
    fn new(file: BufWriter<PartialFile>, compression: &str) -> io::Result<Self> {
        let mut out = Compressor::new(file, compression)?;
        let (full, buffers) = sync_channel::<Vec<u8>>(WAITING);
        let (give_back, used) = sync_channel(WAITING + 2);
        let work = move || {
            for mut buffer in buffers {
                if buffer.is_empty() {
                    return out.finish().map(Some);
                }
                out.write(&buffer)?;
                buffer.clear();
                let _ = give_back.try_send(buffer);
            }
            Ok(None)
        };
        let thread = std::thread::Builder::new().name("compress".into());
        Ok(Output {
            buffer: Vec::with_capacity(TOGETHER),
            full: Some(full),
            used,
            thread: Some(thread.spawn(work)?),
        })
    }

    #[inline]
    fn write(&mut self, record: &Record) -> io::Result<()> {
        self.buffer.extend_from_slice(&record.bytes());
        if self.buffer.len() < TOGETHER {
            return Ok(());
        }
        let next = self.used.try_recv();
        let next = next.unwrap_or_else(|_| Vec::with_capacity(TOGETHER));
        let full = std::mem::replace(&mut self.buffer, next);
        self.send(full)
    }

    fn send(&mut self, buffer: Vec<u8>) -> io::Result<()> {
        let sent = self.full.as_ref().map(|full| full.send(buffer));
        match sent {
            Some(Ok(())) => Ok(()),
            // The thread has ended and returns the reason.
            _ => self.end().map(drop),
        }
    }

    fn end(&mut self) -> io::Result<PartialFile> {
        self.full = None;
        let stopped = || io::Error::other("the writing thread stopped (a defect of Pagewalk)");
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended?.ok_or_else(stopped),
            Some(Err(_)) | None => Err(stopped()),
        }
    }

    fn finish(mut self) -> io::Result<PartialFile> {
        let last = std::mem::take(&mut self.buffer);
        if !last.is_empty() {
            self.send(last)?;
        }
        self.send(Vec::new())?;
        self.end()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // The thread must stop writing before the file is removed.
        if self.thread.is_some() {
            drop(self.end());
        }
    }
}

enum Compressor {
    Plain(BufWriter<PartialFile>),
    Xz(liblzma::write::XzEncoder<BufWriter<PartialFile>>),
    Gzip(flate2::write::GzEncoder<BufWriter<PartialFile>>),
    Zstd(zstd::Encoder<'static, BufWriter<PartialFile>>),
}

impl Compressor {
    fn new(file: BufWriter<PartialFile>, compression: &str) -> io::Result<Self> {
        Ok(match compression {
            ".xz" => Compressor::Xz(liblzma::write::XzEncoder::new(file, 6)),
            ".gz" => Compressor::Gzip(flate2::write::GzEncoder::new(
                file,
                flate2::Compression::default(),
            )),
            ".zst" => Compressor::Zstd(zstd::Encoder::new(file, 9)?),
            _ => Compressor::Plain(file),
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Compressor::Plain(w) => w.write_all(bytes),
            Compressor::Xz(w) => w.write_all(bytes),
            Compressor::Gzip(w) => w.write_all(bytes),
            Compressor::Zstd(w) => w.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<PartialFile> {
        let file = match self {
            Compressor::Plain(w) => w,
            Compressor::Xz(w) => w.finish()?,
            Compressor::Gzip(w) => w.finish()?,
            Compressor::Zstd(w) => w.finish()?,
        };
        file.into_inner().map_err(|e| e.into_error())
    }
}

enum Problem {
    Io(std::io::Error),
    Full,
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        Problem::Io(error)
    }
}

/// Register names for the results of the last ops.
const REGISTERS: u64 = 128;
const FIRST_REGISTER: u64 = 64;

/// Turns ops into records. The last record is held back for further micro-operations.
#[derive(Default)]
struct Records {
    held: Option<Record>,
    /// Number of the first op of the held record.
    began: u64,
    ops: u64,
    /// Target of the last taken branch.
    target: u64,
    far: u64,
}

fn put<T: Copy + PartialEq + Default>(slots: &mut [T], value: T) -> bool {
    if slots.contains(&value) {
        return true;
    }
    match slots.iter_mut().find(|s| **s == T::default()) {
        Some(slot) => {
            *slot = value;
            true
        }
        None => false,
    }
}

impl Records {
    fn op(&mut self, op: &Op, out: &mut Output) -> Result<u64, Problem> {
        // A micro-operation without an instruction counts as one instruction.
        let insns = u64::from(op.insns).max(u64::from(self.held.is_none()));
        if insns > 0 {
            self.flush(out)?;
            for plain in 1..insns {
                let from_target = self.target.wrapping_add(plain - 1);
                let ip = if self.target != 0 && from_target < op.pc {
                    from_target
                } else {
                    op.pc.wrapping_sub(insns - plain)
                };
                let record = Record {
                    ip,
                    ..Record::default()
                };
                out.write(&record)?;
            }
            self.target = 0;
            self.began = self.ops;
            self.held = Some(Record {
                ip: op.pc,
                ..Record::default()
            });
        }
        let number = self.ops;
        self.ops += 1;
        let register = |op: u64| (FIRST_REGISTER + op % REGISTERS) as u8;
        let record = self.held.as_mut().expect("just set, or there before");
        let mut full = false;
        match op.kind {
            OpClass::Load => full |= !put(&mut record.src_mem, op.va),
            OpClass::Store => full |= !put(&mut record.dest_mem[..2], op.va),
            OpClass::Compute
            | OpClass::Branch
            | OpClass::Query
            | OpClass::Prefetch
            | OpClass::Flush => {}
        }
        if full {
            return Err(Problem::Full);
        }
        let mut sources = 0;
        for dep in op.dep.into_iter().filter(|d| *d > 0) {
            let producer = number.saturating_sub(u64::from(dep));
            if producer >= self.began {
                // The producer is in the same instruction.
                continue;
            }
            sources += 1;
            let near = u64::from(dep) < REGISTERS;
            if !near || !put(&mut record.src_regs[..2], register(producer)) {
                self.far += 1;
            }
        }
        match op.kind {
            OpClass::Load | OpClass::Compute | OpClass::Query => {
                if !put(&mut record.dest_regs[..2], register(number)) {
                    self.far += 1;
                }
            }
            OpClass::Store | OpClass::Prefetch | OpClass::Flush => {}
            OpClass::Branch => {
                record.is_branch = true;
                record.taken = op.flags & flags::TAKEN != 0;
                self.target = if record.taken { op.va } else { 0 };
                set_branch(record, op.flags, sources);
            }
        }
        Ok(insns)
    }

    fn flush(&mut self, out: &mut Output) -> std::io::Result<()> {
        match self.held.take() {
            Some(record) => out.write(&record),
            None => Ok(()),
        }
    }
}

/// Sets the registers by which ChampSim recognises this class of branch.
fn set_branch(record: &mut Record, branch: u8, sources: u32) {
    let indirect = branch & flags::INDIRECT != 0;
    let (special, dest): ([u8; 2], [u8; 2]) = if branch & flags::RETURN != 0 {
        ([SP, 0], [IP, SP])
    } else if branch & flags::CALL != 0 {
        ([SP, IP], [IP, SP])
    } else if branch & flags::CONDITIONAL != 0 {
        ([IP, if sources == 0 { FLAGS } else { 0 }], [IP, 0])
    } else if indirect {
        ([0, 0], [IP, 0])
    } else {
        ([IP, 0], [IP, 0])
    };
    // A direct jump or call has no other source.
    if !indirect && branch & (flags::CONDITIONAL | flags::RETURN) == 0 {
        record.src_regs[..2].fill(0);
    } else if indirect && record.src_regs[0] == 0 {
        record.src_regs[0] = 1;
    }
    record.src_regs[2..].copy_from_slice(&special);
    record.dest_regs[..2].copy_from_slice(&dest);
}
