//! Reads `.pwt` files, from their beginning or from any instruction.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pagewalk_stream::{BATCH_OPS, Batch, End, Facts, Kind, Op, Program, ProgramError, ThreadId};

use super::block::{
    BlockHeader, HEADER_BYTES, Header, Holds, INDEX_ENTRY, MAGIC, MOST_JSON, TRAILER_BYTES,
    TRAILER_MAGIC, VERSION,
};
use super::code::{CodeInFile, Known};
use super::codec::Decoder;
use super::marks::{Mark, get_mark};
use super::steps::StepDecoder;
use crate::trace::TraceError;
use crate::trace::pump::{Pump, Sink, Stop};

/// An opened trace: its header and where its blocks are.
pub(crate) struct PwtFile {
    pub path: PathBuf,
    pub header: Header,
    pub blocks: Vec<(u64, BlockHeader)>,
    /// Where a scan without index stopped, and why.
    pub stopped: Option<TraceError>,
}

/// What a reading thread does with a block.
#[derive(Clone, Copy)]
enum Use {
    All,
    MarksOnly,
    Nothing,
}

fn read_at<const N: usize>(file: &mut File, at: u64) -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl PwtFile {
    /// Opens `path`. Without index the blocks are found by a scan if `recover`.
    pub fn open(path: &Path, recover: bool) -> Result<Self, TraceError> {
        let io = |e: std::io::Error| TraceError::io(path, "read the trace", &e);
        let mut file = File::open(path).map_err(|e| TraceError::io(path, "open the trace", &e))?;
        let bytes = file.metadata().map_err(io)?.len();
        let (header, first) = read_header(path, &mut file, bytes)?;
        let mut opened = PwtFile {
            path: path.to_owned(),
            header,
            blocks: Vec::new(),
            stopped: None,
        };
        match read_index(path, &mut file, bytes, first) {
            Ok(blocks) => {
                opened.blocks = blocks;
            }
            Err(error) if !recover => return Err(error),
            Err(_) => {
                let (blocks, stopped) = scan(path, &mut file, bytes, first)?;
                opened.blocks = blocks;
                opened.stopped = stopped;
            }
        }
        Ok(opened)
    }

    /// Instructions of all threads.
    pub fn instructions(&self) -> u64 {
        self.blocks.iter().map(|(_, h)| h.instructions).sum()
    }

    /// Its code.
    fn code(&self) -> CodeInFile {
        let parts = self.blocks.iter().enumerate();
        let parts = parts.filter(|(_, (_, h))| h.holds == Holds::Code);
        let parts = parts.map(|(n, (offset, header))| (n, *offset, *header));
        CodeInFile::new(Arc::new(self.path.clone()), parts.collect())
    }

    /// Verifies block after block to its last op.
    pub fn verifier(&self) -> Verifier<'_> {
        Verifier {
            file: self,
            code: self.code(),
            decoding: Decoding::default(),
        }
    }
}

/// Reads the blocks of a file in their order.
pub(crate) struct Verifier<'a> {
    file: &'a PwtFile,
    code: CodeInFile,
    decoding: Decoding,
}

impl Verifier<'_> {
    /// Verifies block `number`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn verify(&mut self, number: usize) -> Result<(), TraceError> {
        let path = &self.file.path;
        let io = |e: std::io::Error| TraceError::io(path, "read the trace", &e);
        let (offset, header) = self.file.blocks[number];
        if header.holds == Holds::Code {
            return self.code.before(number + 1, &mut self.decoding.known);
        }
        let mut file = File::open(path).map_err(io)?;
        let at = (number, offset, &header);
        self.decoding
            .block(path, &mut file, &self.code, at, &mut |_, _| Ok(()))
            .map_err(|stop| match stop {
                Stop::Fault(error) => TraceError::at(path, offset, reason(path, error.message)),
                Stop::Gone => unreachable!("nothing is sent"),
            })
    }
}

/// What a message says apart from the place that it begins with.
fn reason(path: &Path, message: String) -> String {
    let place = format!("{}, byte ", path.display());
    let rest = message.strip_prefix(&place);
    match rest.and_then(|r| r.split_once(": ")) {
        Some((_, reason)) => reason.to_owned(),
        None => message,
    }
}

fn read_header(path: &Path, file: &mut File, bytes: u64) -> Result<(Header, u64), TraceError> {
    let damaged = |at, what: &str| {
        TraceError::at(
            path,
            at,
            format!("{what}; expected the header of a .pwt trace; record it again"),
        )
    };
    let start: [u8; 16] = match read_at(file, 0) {
        Ok(start) => start,
        Err(_) => return Err(damaged(bytes, "the file ends within its first 16 bytes")),
    };
    if &start[..8] != MAGIC {
        return Err(damaged(0, "this is not a .pwt trace"));
    }
    let word = |at: usize| u32::from_le_bytes(start[at..at + 4].try_into().expect("four bytes"));
    if !(1..=VERSION).contains(&word(8)) {
        return Err(TraceError::at(
            path,
            8,
            format!(
                "version {} of the .pwt format; this program reads versions 1 to {VERSION}; convert it with the version that wrote it",
                word(8)
            ),
        ));
    }
    let length = word(12);
    if length > MOST_JSON || 20 + u64::from(length) > bytes {
        return Err(damaged(12, "the header claims to be longer than it can be"));
    }
    let mut json = vec![0; length as usize];
    let mut crc = [0; 4];
    file.read_exact(&mut json)
        .and_then(|()| file.read_exact(&mut crc))
        .map_err(|e| TraceError::io(path, "read the trace", &e))?;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&start);
    hasher.update(&json);
    if hasher.finalize() != u32::from_le_bytes(crc) {
        return Err(damaged(16, "the checksum of the header does not match"));
    }
    let header = serde_json::from_slice(&json)
        .map_err(|e| damaged(16, &format!("the header cannot be understood ({e})")))?;
    Ok((header, 20 + u64::from(length)))
}

type Blocks = Vec<(u64, BlockHeader)>;

fn read_index(path: &Path, file: &mut File, bytes: u64, first: u64) -> Result<Blocks, TraceError> {
    let advice =
        "the recording was cut off, or the file was; read what is there with the option to recover";
    let unfinished = |what: &str| TraceError::at(path, bytes, format!("{what}: {advice}"));
    let Some(at) = bytes
        .checked_sub(TRAILER_BYTES as u64)
        .filter(|at| *at >= first)
    else {
        return Err(unfinished("the trace has no index"));
    };
    let trailer: [u8; TRAILER_BYTES] =
        read_at(file, at).map_err(|e| TraceError::io(path, "read the trace", &e))?;
    if &trailer[16..] != TRAILER_MAGIC {
        return Err(unfinished("the trace has no index"));
    }
    let start = u64::from_le_bytes(trailer[..8].try_into().expect("eight bytes"));
    let count = u32::from_le_bytes(trailer[8..12].try_into().expect("four bytes"));
    let crc = u32::from_le_bytes(trailer[12..16].try_into().expect("four bytes"));
    let length = u64::from(count) * INDEX_ENTRY as u64;
    if start < first || start.checked_add(length) != Some(at) {
        return Err(unfinished("the index does not fit the file"));
    }
    let mut index = vec![0; length as usize];
    file.seek(SeekFrom::Start(start))
        .and_then(|_| file.read_exact(&mut index))
        .map_err(|e| TraceError::io(path, "read the trace", &e))?;
    if crc32fast::hash(&index) != crc {
        return Err(TraceError::at(
            path,
            start,
            format!("the checksum of the index does not match: {advice}"),
        ));
    }
    let mut blocks = Blocks::with_capacity(count as usize);
    for entry in index.chunks_exact(INDEX_ENTRY) {
        let offset = u64::from_le_bytes(entry[..8].try_into().expect("eight bytes"));
        let header: &[u8; HEADER_BYTES] = entry[8..].try_into().expect("an entry's length");
        let header =
            BlockHeader::parse(header).map_err(|what| TraceError::at(path, start, what))?;
        let end = offset.checked_add((HEADER_BYTES as u64) + u64::from(header.compressed));
        if offset < first || end.is_none_or(|end| end > start) {
            return Err(TraceError::at(
                path,
                start,
                "a block lies outside of the file",
            ));
        }
        blocks.push((offset, header));
    }
    Ok(blocks)
}

/// Finds blocks from the front, as far as they are good.
fn scan(
    path: &Path,
    file: &mut File,
    bytes: u64,
    first: u64,
) -> Result<(Blocks, Option<TraceError>), TraceError> {
    let mut blocks = Blocks::new();
    let mut before: BTreeMap<ThreadId, u64> = BTreeMap::new();
    let mut at = first;
    while at < bytes {
        let what = match read_at::<HEADER_BYTES>(file, at) {
            Err(_) => "the file ends within the header of a block",
            Ok(header) => match BlockHeader::parse(&header) {
                Err(what) => what,
                Ok(header) => {
                    let end = at + HEADER_BYTES as u64 + u64::from(header.compressed);
                    let mut none = header.before;
                    let expected = match header.holds {
                        Holds::Code => &mut none,
                        Holds::Ops | Holds::Steps => before.entry(header.thread).or_default(),
                    };
                    if end > bytes {
                        "the file ends within a block"
                    } else if header.before != *expected {
                        "a block of this thread is missing before this one"
                    } else {
                        *expected += header.instructions;
                        blocks.push((at, header));
                        at = end;
                        continue;
                    }
                }
            },
        };
        return Ok((blocks, Some(TraceError::at(path, at, what))));
    }
    Ok((blocks, None))
}

/// Reads and decompresses one block.
pub(super) fn load(
    path: &Path,
    file: &mut File,
    offset: u64,
    expected: &BlockHeader,
) -> Result<Vec<u8>, TraceError> {
    let fault = |what: &str| {
        TraceError::at(
            path,
            offset,
            format!("{what}; the blocks before are good; see `pagewalk trace check`"),
        )
    };
    let header: [u8; HEADER_BYTES] =
        read_at(file, offset).map_err(|e| fault(&format!("cannot read a block: {e}")))?;
    let header = BlockHeader::parse(&header).map_err(fault)?;
    if header != *expected {
        return Err(fault("the block's header is not the one in the index"));
    }
    let mut payload = vec![0; header.compressed as usize];
    file.read_exact(&mut payload)
        .map_err(|e| fault(&format!("cannot read a block: {e}")))?;
    if crc32fast::hash(&payload) != header.crc {
        return Err(fault("the checksum of a block does not match"));
    }
    let raw = zstd::bulk::decompress(&payload, header.raw())
        .map_err(|e| fault(&format!("a block cannot be decompressed ({e})")))?;
    if raw.len() != header.raw() {
        return Err(fault("a block is shorter than its header says"));
    }
    Ok(raw)
}

/// Takes some ops, or a mark.
pub(super) type Give<'a> = &'a mut dyn FnMut(&[Op], Option<Mark>) -> Result<(), Stop>;

/// What is kept from block to block of a thread.
#[derive(Default)]
struct Decoding {
    ops: Decoder,
    steps: StepDecoder,
    known: Vec<Known>,
}

impl Decoding {
    /// Gives the ops of a block, which is the file's with this number and lies
    /// there, with their marks in between.
    fn block(
        &mut self,
        path: &Path,
        file: &mut File,
        code: &CodeInFile,
        (number, offset, header): (usize, u64, &BlockHeader),
        give: Give<'_>,
    ) -> Result<(), Stop> {
        let raw = load(path, file, offset, header)?;
        if header.holds != Holds::Steps {
            return each_part(path, offset, header, &raw, &mut self.ops, give);
        }
        code.before(number, &mut self.known)?;
        let fault = |what: &str| defect(path, offset, what);
        let columns = header.columns(&raw);
        let counts = (header.ops, header.marks);
        let steps = &mut self.steps;
        let instructions = steps.decode(columns, counts, &self.known, &fault, give)?;
        if instructions == header.instructions {
            Ok(())
        } else {
            Err(fault("a block has other instructions than its header says"))
        }
    }
}

/// Contents that nobody damaged make no sense.
fn defect(path: &Path, offset: u64, what: &str) -> Stop {
    let what = format!("{what} (in a block whose checksum is right: a defect of its writer)");
    Stop::Fault(TraceError::at(path, offset, what).into())
}

/// Gives the ops of a block of ops with their marks in between.
fn each_part(
    path: &Path,
    offset: u64,
    header: &BlockHeader,
    raw: &[u8],
    decoder: &mut Decoder,
    give: Give<'_>,
) -> Result<(), Stop> {
    let fault = |what: &str| defect(path, offset, what);
    let (mut from, mut marks) = header.split(raw);
    decoder.reset();
    let mut ops = Vec::with_capacity(BATCH_OPS);
    let mut at = 0;
    for left in (0..=header.marks).rev() {
        let (until, mark) = if left == 0 {
            (u64::from(header.ops), None)
        } else {
            let (until, mark) =
                get_mark(&mut marks).ok_or_else(|| fault("a mark makes no sense"))?;
            (until, Some(mark))
        };
        if until < at || until > u64::from(header.ops) {
            return Err(fault("marks are out of order"));
        }
        while at < until {
            let now = (until - at).min(BATCH_OPS as u64);
            ops.clear();
            decoder
                .decode(&mut from, now as usize, &mut ops)
                .ok_or_else(|| fault("an op makes no sense"))?;
            let sane = |o: &Op| match o.kind {
                Kind::Load | Kind::Store => (1..=64).contains(&o.size),
                Kind::Branch | Kind::Compute => true,
            };
            if !ops.iter().all(sane) {
                return Err(fault("an access of 0 or more than 64 bytes"));
            }
            at += now;
            give(&ops, None)?;
        }
        if let Some(mark) = mark {
            give(&[], Some(mark))?;
        }
    }
    Ok(())
}

/// The body of one thread's reading thread.
fn read_thread(
    path: &Path,
    code: &CodeInFile,
    blocks: &[Planned],
    sink: &mut Sink<Mark>,
) -> Result<(), Stop> {
    let mut file = File::open(path).map_err(|e| TraceError::io(path, "open the trace", &e))?;
    let mut decoding = Decoding::default();
    for planned in blocks {
        let header = &planned.header;
        let marks_only = match planned.use_ {
            Use::Nothing => {
                sink.pass_over(u64::from(header.ops) + u64::from(header.marks));
                continue;
            }
            Use::MarksOnly => true,
            Use::All => false,
        };
        let at = (planned.number, planned.offset, header);
        decoding.block(path, &mut file, code, at, &mut |ops, mark| {
            if marks_only {
                sink.pass_over(ops.len() as u64);
            } else {
                sink.extend(ops)?;
            }
            mark.map_or(Ok(()), |mark| sink.mark(mark))
        })?;
    }
    Ok(())
}

/// One thread of the recorded program.
struct Thread {
    pump: Pump<Mark>,
    /// Ops and marks given.
    ended: bool,
}

/// What a thread needs when its first ops are asked for.
#[derive(Default)]
struct Plan {
    blocks: Vec<Planned>,
    skip: u64,
}

/// A block that a thread reads.
struct Planned {
    /// Its place among the file's.
    number: usize,
    offset: u64,
    header: BlockHeader,
    use_: Use,
}

/// A recorded program.
pub(crate) struct PwtProgram {
    facts: Facts,
    path: Arc<PathBuf>,
    code: Arc<CodeInFile>,
    plans: BTreeMap<ThreadId, Plan>,
    threads: BTreeMap<ThreadId, Thread>,
}

impl PwtProgram {
    /// Leaves out the first `skip` instructions in the order of the file, but none
    /// of the marks among them.
    pub fn new(file: PwtFile, skip: u64) -> Self {
        let mut plans: BTreeMap<ThreadId, Plan> = BTreeMap::new();
        let total = file.instructions();
        let mut before = 0u64;
        let code = Arc::new(file.code());
        for (number, (offset, header)) in file.blocks.iter().enumerate() {
            if header.holds == Holds::Code {
                continue;
            }
            let plan = plans.entry(header.thread).or_default();
            let end = before.saturating_add(header.instructions);
            let use_ = if end > skip || end == before && before >= skip {
                // The reading thread counts the rest down.
                plan.skip = plan.skip.max(skip.saturating_sub(before));
                Use::All
            } else if header.marks > 0 {
                Use::MarksOnly
            } else {
                Use::Nothing
            };
            plan.blocks.push(Planned {
                number,
                offset: *offset,
                header: *header,
                use_,
            });
            before = end;
        }
        PwtProgram {
            facts: Facts {
                name: file.header.name.clone(),
                instructions: Some(total.saturating_sub(skip)),
                infer_mappings: file.header.infer_mappings,
                no_dependences: file.header.no_dependences,
                deterministic: true,
                has_roi: file.header.has_roi,
                live: file.header.live,
            },
            path: Arc::new(file.path),
            code,
            plans,
            threads: BTreeMap::new(),
        }
    }

    fn start(&mut self, thread: ThreadId) {
        let Plan { blocks, skip } = self.plans.remove(&thread).unwrap_or_default();
        let (path, code) = (Arc::clone(&self.path), Arc::clone(&self.code));
        let pump = Pump::start(skip, move |sink| read_thread(&path, &code, &blocks, sink));
        let begun = Thread { pump, ended: false };
        self.threads.insert(thread, begun);
    }
}

impl Program for PwtProgram {
    fn facts(&self) -> Facts {
        self.facts.clone()
    }

    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, ProgramError> {
        batch.ops.clear();
        if !self.threads.contains_key(&thread) {
            self.start(thread);
        }
        let mine = self.threads.get_mut(&thread).expect("was started");
        if mine.ended {
            return Ok(End::Exit);
        }
        let Some((_, mark)) = mine.pump.next(&mut batch.ops)? else {
            mine.ended = true;
            return Ok(End::Exit);
        };
        Ok(match mark {
            None => End::More,
            Some(Mark::Wait(until, counted)) => End::Wait { until, counted },
            Some(Mark::End(End::Exit)) => {
                mine.ended = true;
                End::Exit
            }
            Some(Mark::End(end)) => end,
        })
    }
}
