//! Writes `.pwt` files.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use pagewalk_input::FileError;
use pagewalk_stream::{End, Op, OpClass, ThreadId};

use super::block::{BLOCK_OPS, BlockHeader, Header, Holds, MARKS_FULL, Sealed, file_header, index};
use super::code::{Code, CodePart, Known};
use super::codec::{Encoder, Streams, put_varint};
use super::file::PwtFile;
use super::marks::{Mark, put_mark};
use super::memory::MemoryPart;
use super::skips::SkipMaker;
use super::steps::{StepDecoder, StepPart};
use crate::partial::PartialFile;
use crate::pump::Stop;

/// Level 3 of zstd: about as fast as the encoder. Higher levels gain a few percent.
const LEVEL: i32 = 3;
/// Ops that stay in the host's L1 cache while several passes read them.
const PIECE: usize = 256;
/// Bytes of touch summaries that are written at once.
const SKIPS_FULL: usize = 1 << 16;
/// For steps, code and memory, because recording shares the host's cores with the emulator.
const STEP_LEVEL: i32 = 1;

/// Destination of a finished trace.
trait Target: Write + Send {
    /// Completes the file and gives it its name.
    fn publish(self: Box<Self>) -> std::io::Result<()>;
}

struct FileTarget(BufWriter<PartialFile>);

impl Write for FileTarget {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Target for FileTarget {
    fn publish(self: Box<Self>) -> std::io::Result<()> {
        let file = self
            .0
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)?;
        file.publish().map(drop)
    }
}

struct PlainTarget<W>(W);

impl<W: Write> Write for PlainTarget<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl<W: Write + Send> Target for PlainTarget<W> {
    fn publish(mut self: Box<Self>) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// One thread's open block.
#[derive(Default)]
struct Open {
    encoder: Encoder,
    streams: Streams,
    marks: Vec<u8>,
    mark_count: u32,
    operands: u32,
    instructions: u64,
    before: u64,
}

/// Result of writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Instructions of all threads.
    pub instructions: u64,
    /// Ops of all threads; for a live program without those that replace long chains.
    pub ops: u64,
    /// Size of the file.
    pub bytes: u64,
}

/// Writes a trace. Compression and writing run in a thread of their own.
///
/// The file gets its own name only once it is finished. Until then, and if the writer is dropped or killed, it is a
/// [`PartialFile`], whose finished blocks can be recovered.
pub struct TraceWriter {
    path: PathBuf,
    /// `None`: it writes to no file of its own.
    partial: Option<PathBuf>,
    threads: BTreeMap<ThreadId, Open>,
    blocks: Option<SyncSender<Sealed>>,
    worker: Option<JoinHandle<Result<u64, std::io::Error>>>,
    written: Written,
    stopped: Arc<AtomicBool>,
    /// For the first thread's ops.
    skips: SkipMaker,
}

impl TraceWriter {
    /// Begins the trace `path`.
    ///
    /// # Errors
    /// The file cannot be created, or `path` is a device, a pipe or a folder, which the finished trace would replace.
    pub fn create(path: &Path, header: &Header) -> Result<Self, FileError> {
        let mut file =
            PartialFile::create(path).map_err(|e| FileError::io(path, "create the trace", &e))?;
        file.keep();
        let partial = file.partial().to_owned();
        let target = FileTarget(BufWriter::with_capacity(1 << 20, file));
        Ok(Self::start(path, Some(partial), header, Box::new(target)))
    }

    /// Writes to `out`; `name` is for messages.
    pub fn to_writer(name: &Path, header: &Header, out: impl Write + Send + 'static) -> Self {
        Self::start(name, None, header, Box::new(PlainTarget(out)))
    }

    fn start(
        path: &Path,
        partial: Option<PathBuf>,
        header: &Header,
        target: Box<dyn Target>,
    ) -> Self {
        let (blocks, receiver) = sync_channel(4);
        let first = file_header(header);
        let stopped = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&stopped);
        let worker = std::thread::Builder::new()
            .name("trace-writer".into())
            .spawn(move || write_all(target, &first, &receiver, &theirs))
            .expect("a thread can be started");
        TraceWriter {
            path: path.to_owned(),
            partial,
            threads: BTreeMap::new(),
            blocks: Some(blocks),
            worker: Some(worker),
            written: Written::default(),
            stopped,
            skips: SkipMaker::default(),
        }
    }

    /// Path of the file until it is finished.
    pub fn partial(&self) -> &Path {
        self.partial.as_deref().unwrap_or(&self.path)
    }

    /// Marks the trace as stopped by an interrupt.
    pub fn stopped(&mut self) {
        self.stopped.store(true, Relaxed);
    }

    /// Appends ops of `thread`.
    ///
    /// # Errors
    /// The file cannot be written, for example to a full disk.
    pub fn ops(&mut self, thread: ThreadId, ops: &[Op]) -> Result<(), FileError> {
        let mut rest = ops;
        while !rest.is_empty() {
            let open = self.threads.entry(thread).or_default();
            let room = BLOCK_OPS - open.streams.control.len();
            let (now, later) = rest.split_at(room.min(rest.len()));
            rest = later;
            let mut instructions = 0;
            for few in now.chunks(PIECE) {
                open.encoder.encode(few, &mut open.streams);
                if thread == 0 {
                    self.skips.ops(few);
                }
                for op in few {
                    instructions += u64::from(op.insns);
                    open.operands += u32::from(matches!(op.kind, OpClass::Load | OpClass::Store));
                }
            }
            open.instructions += instructions;
            self.written.instructions += instructions;
            self.written.ops += now.len() as u64;
            if open.streams.control.len() == BLOCK_OPS {
                self.seal(thread)?;
            }
        }
        Ok(())
    }

    /// Appends a mark after the ops of `thread` so far.
    ///
    /// # Errors
    /// As [`TraceWriter::ops`].
    pub fn mark(&mut self, thread: ThreadId, mark: &Mark) -> Result<(), FileError> {
        let open = self.threads.entry(thread).or_default();
        put_mark(&mut open.marks, open.streams.control.len() as u64, mark);
        open.mark_count += 1;
        if thread == 0 {
            self.skips.mark(mark);
        }
        let gone = matches!(mark, Mark::End(End::Exit));
        if gone || open.marks.len() >= MARKS_FULL {
            self.seal(thread)?;
        }
        if gone {
            // Nothing follows, and a thread's model takes a megabyte.
            self.threads.remove(&thread);
        }
        Ok(())
    }

    fn seal(&mut self, thread: ThreadId) -> Result<(), FileError> {
        let Some(open) = self.threads.get_mut(&thread) else {
            return Ok(());
        };
        let ops = open.streams.control.len();
        if ops == 0 && open.mark_count == 0 {
            return Ok(());
        }
        let streams = std::mem::take(&mut open.streams);
        let marks = std::mem::take(&mut open.marks);
        let header = BlockHeader {
            holds: Holds::Ops,
            thread,
            before: open.before,
            instructions: open.instructions,
            ops: ops as u32,
            marks: open.mark_count,
            lengths: [
                streams.side.len() as u32,
                streams.deps.len() as u32,
                streams.addresses.len() as u32,
                marks.len() as u32,
            ],
            operands: open.operands,
            ..BlockHeader::default()
        };
        open.before += open.instructions;
        (open.instructions, open.mark_count, open.operands) = (0, 0, 0);
        open.encoder.reset();
        let columns = [
            streams.control,
            streams.side,
            streams.deps,
            streams.addresses,
            marks,
        ];
        let skip = (thread == 0 && !self.skips.is_over()).then(|| self.skips.seal(&[]));
        self.send(Sealed {
            header,
            columns,
            skip,
            known: Vec::new(),
        })
    }

    /// Appends the steps of a thread that has executed `before` instructions.
    ///
    /// # Errors
    /// As [`TraceWriter::ops`].
    pub fn steps(
        &mut self,
        thread: ThreadId,
        before: u64,
        part: StepPart,
    ) -> Result<(), FileError> {
        let [_, ids, tags, bytes, marks] = &part.columns;
        let header = BlockHeader {
            holds: Holds::Steps,
            thread,
            before,
            instructions: part.instructions,
            ops: part.steps,
            marks: part.mark_count,
            lengths: [ids, tags, bytes, marks].map(|c| c.len() as u32),
            operands: part.records,
            ..BlockHeader::default()
        };
        self.written.instructions += part.instructions;
        self.written.ops += part.ops;
        self.send(Sealed {
            header,
            columns: part.columns,
            skip: None,
            known: Vec::new(),
        })
    }

    /// Appends code that steps may name from now on.
    ///
    /// # Errors
    /// As [`TraceWriter::ops`].
    pub fn code(&mut self, part: CodePart) -> Result<(), FileError> {
        let header = BlockHeader {
            holds: Holds::Code,
            before: u64::from(part.first),
            ops: part.count,
            lengths: [part.bytes.len() as u32, 0, 0, 0],
            ..BlockHeader::default()
        };
        self.send(Sealed {
            header,
            columns: [part.bytes, vec![], vec![], vec![], vec![]],
            skip: None,
            known: part.known,
        })
    }

    /// Appends changes of the memory of `process`, to which `thread` belongs in its next block of steps. They happen
    /// up to the end of that block.
    ///
    /// # Errors
    /// As [`TraceWriter::ops`].
    pub fn memory(
        &mut self,
        thread: ThreadId,
        process: u64,
        part: MemoryPart,
    ) -> Result<(), FileError> {
        let [places, tags, words] = part.columns;
        let header = BlockHeader {
            holds: Holds::Memory,
            thread,
            before: process,
            ops: part.pages,
            lengths: [
                places.len() as u32,
                tags.len() as u32,
                words.len() as u32,
                0,
            ],
            operands: tags.len() as u32,
            ..BlockHeader::default()
        };
        self.send(Sealed {
            header,
            columns: [places, tags, words, vec![], vec![]],
            skip: None,
            known: Vec::new(),
        })
    }

    fn send(&mut self, sealed: Sealed) -> Result<(), FileError> {
        let gone = match &self.blocks {
            Some(blocks) => blocks.send(sealed).is_err(),
            None => true,
        };
        if gone { Err(self.failure()) } else { Ok(()) }
    }

    /// The error that ended the writing thread.
    fn failure(&mut self) -> FileError {
        self.blocks = None;
        match self.worker.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => self.failed(&error.to_string()),
            Some(Err(_)) => self.failed("the writing thread stopped (a defect of Pagewalk)"),
            Some(Ok(Ok(_))) | None => FileError::new(
                &self.path,
                "cannot write the trace: an earlier write failed",
            ),
        }
    }

    /// The error for a file that cannot be written further. Keeps the partial file if a reader can use its blocks, and
    /// removes it otherwise.
    fn failed(&self, what: &str) -> FileError {
        let remedy = "free some space or record elsewhere";
        let Some(partial) = &self.partial else {
            return FileError::new(
                &self.path,
                format!("cannot write the trace: {what}; {remedy}"),
            );
        };
        let file = PwtFile::open(partial, true);
        let good = file.map_or(0, |f| f.instructions());
        if good == 0 {
            // Without it, no reader and no user is misled.
            let _ = std::fs::remove_file(partial);
            return FileError::new(
                &self.path,
                format!("cannot write the trace: {what}; nothing of it is kept; {remedy}"),
            );
        }
        let partial = partial.display();
        FileError::new(
            &self.path,
            format!(
                "cannot write the trace: {what}; {good} instructions are kept in {partial}; {remedy}, or make a whole trace of them with `pagewalk trace convert --keep-good {partial} -o NEW.pwt`, or delete the file"
            ),
        )
    }

    /// Instructions and ops so far; `bytes` is known only at the end.
    pub fn written(&self) -> Written {
        self.written
    }

    /// Writes open blocks and the index, and gives the file its name.
    ///
    /// # Errors
    /// As [`TraceWriter::ops`].
    pub fn finish(mut self) -> Result<Written, FileError> {
        let threads: Vec<ThreadId> = self.threads.keys().copied().collect();
        for thread in threads {
            self.seal(thread)?;
        }
        self.blocks = None;
        match self.worker.take().map(JoinHandle::join) {
            Some(Ok(Ok(bytes))) => Ok(Written {
                bytes,
                ..self.written
            }),
            Some(Ok(Err(error))) => Err(self.failed(&error.to_string())),
            _ => Err(self.failure()),
        }
    }
}

impl Drop for TraceWriter {
    fn drop(&mut self) {
        // Ends the file without the open blocks and the index, so that it is unfinished.
        if let Some(worker) = self.worker.take() {
            if let Some(blocks) = self.blocks.take() {
                let _ = blocks.send(Sealed::abandon());
            }
            let _ = worker.join();
        }
    }
}

impl Sealed {
    /// Ends the writing thread without an index.
    fn abandon() -> Self {
        Sealed {
            header: BlockHeader::default(),
            columns: Default::default(),
            skip: None,
            known: Vec::new(),
        }
    }
}

/// Touch summaries of the first thread's blocks, until they are written.
#[derive(Default)]
struct Skips {
    /// Number of the first block.
    first: u64,
    count: u32,
    bytes: Vec<u8>,
}

impl Skips {
    fn add(&mut self, skip: &[u8]) {
        put_varint(&mut self.bytes, skip.len() as u64);
        self.bytes.extend_from_slice(skip);
        self.count += 1;
    }

    /// The summaries as a block of the file.
    fn take(&mut self) -> Sealed {
        let (before, ops) = (self.first, self.count);
        (self.first, self.count) = (before + u64::from(ops), 0);
        let bytes = std::mem::take(&mut self.bytes);
        Sealed {
            header: BlockHeader {
                holds: Holds::Skips,
                before,
                ops,
                lengths: [bytes.len() as u32, 0, 0, 0],
                ..BlockHeader::default()
            },
            columns: [bytes, vec![], vec![], vec![], vec![]],
            skip: None,
            known: Vec::new(),
        }
    }
}

/// Decodes the first thread's steps again, because touch summaries need their ops and registers.
#[derive(Default)]
struct Steps {
    decoder: StepDecoder,
    known: Vec<Option<Known>>,
    skips: SkipMaker,
    /// The steps were invalid: no more summaries are made.
    failed: bool,
}

impl Steps {
    /// Touch summary of a block with the payload `raw`.
    fn skip(&mut self, header: &BlockHeader, raw: &[u8]) -> Option<Vec<u8>> {
        if self.failed || self.skips.is_over() || header.thread != 0 {
            return None;
        }
        let fault = |_: &str| Stop::Gone;
        let (columns, counts) = (header.columns(raw), (header.ops, header.marks));
        let skips = &mut self.skips;
        let code = Code {
            known: &mut self.known,
            decode: &|_| Err(Stop::Gone),
        };
        let decoded = self
            .decoder
            .decode(columns, counts, code, &fault, &mut |ops, mark| {
                skips.ops(ops);
                mark.iter().for_each(|mark| skips.mark(mark));
                Ok(())
            });
        self.failed = decoded.is_err();
        if self.failed || self.skips.is_over() {
            return None;
        }
        Some(self.skips.seal(&self.decoder.registers.bytes()))
    }
}

/// A file that is being written.
struct Blocks {
    out: Box<dyn Target>,
    at: u64,
    entries: Vec<(u64, BlockHeader)>,
    /// One for steps, code and memory, one for the rest.
    compressors: [zstd::bulk::Compressor<'static>; 2],
    raw: Vec<u8>,
}

impl Blocks {
    fn write(&mut self, mut block: Sealed) -> std::io::Result<()> {
        self.raw.clear();
        for part in &block.columns {
            self.raw.extend_from_slice(part);
        }
        let [steps, ops] = &mut self.compressors;
        let payload = match block.header.holds {
            Holds::Ops | Holds::Skips => ops.compress(&self.raw)?,
            Holds::Steps | Holds::Code | Holds::Memory => steps.compress(&self.raw)?,
        };
        block.header.compressed = payload.len() as u32;
        block.header.crc = crc32fast::hash(&payload);
        self.entries.push((self.at, block.header));
        self.out.write_all(&block.header.bytes())?;
        self.out.write_all(&payload)?;
        self.at += (block.header.bytes().len() + payload.len()) as u64;
        Ok(())
    }
}

fn write_all(
    mut out: Box<dyn Target>,
    first: &[u8],
    blocks: &std::sync::mpsc::Receiver<Sealed>,
    stopped: &AtomicBool,
) -> std::io::Result<u64> {
    out.write_all(first)?;
    let mut file = Blocks {
        out,
        at: first.len() as u64,
        entries: Vec::new(),
        compressors: [
            zstd::bulk::Compressor::new(STEP_LEVEL)?,
            zstd::bulk::Compressor::new(LEVEL)?,
        ],
        raw: Vec::new(),
    };
    let (mut skips, mut steps) = (Skips::default(), Steps::default());
    for mut block in blocks {
        if block.header == BlockHeader::default() {
            file.out.flush()?;
            return Ok(file.at);
        }
        let holds = block.header.holds;
        let (header, made) = (block.header, block.skip.take());
        steps.known.extend(block.known.drain(..).map(Some));
        file.write(block)?;
        let skip = match holds {
            Holds::Steps => steps.skip(&header, &file.raw),
            Holds::Ops | Holds::Code | Holds::Skips | Holds::Memory => made,
        };
        if let Some(skip) = skip {
            skips.add(&skip);
        }
        if skips.bytes.len() >= SKIPS_FULL {
            file.write(skips.take())?;
        }
    }
    if skips.count > 0 {
        file.write(skips.take())?;
    }
    let index = index(&file.entries, file.at, stopped.load(Relaxed));
    file.out.write_all(&index)?;
    file.out.publish()?;
    Ok(file.at + index.len() as u64)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pagewalk_stream::{End, Op};

    use super::TraceWriter;
    use crate::pwt::block::Header;
    use crate::pwt::marks::Mark;

    #[test]
    fn a_thread_that_is_gone_takes_no_memory() {
        let header = Header::default();
        let mut writer = TraceWriter::to_writer(Path::new("x"), &header, std::io::sink());
        for thread in 0..40 {
            writer.ops(thread, &[Op::default()]).unwrap();
            writer.mark(thread, &Mark::End(End::Exit)).unwrap();
            assert!(writer.threads.is_empty());
        }
        assert_eq!(writer.finish().unwrap().ops, 40);
    }
}
