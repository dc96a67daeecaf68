//! Reads the blocks of `.pwt` files, from their beginning or from any instruction.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pagewalk_input::FileError;
use pagewalk_stream::{
    BATCH_OPS, Batch, End, Ended, Facts, Kind, Op, Program, ProgramError, ThreadId,
};

use super::block::{BlockHeader, Holds, load};
use super::code::{CodeInFile, Known};
use super::codec::Decoder;
use super::file::PwtFile;
use super::marks::{Give, Mark, get_mark};
use super::steps::StepDecoder;
use crate::pump::{Pump, Sink, Stop};

/// What a reading thread does with a block.
#[derive(Clone, Copy)]
enum Use {
    All,
    MarksOnly,
    Nothing,
}

impl PwtFile {
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
    pub fn verify(&mut self, number: usize) -> Result<(), FileError> {
        let path = &self.file.path;
        let io = |e: std::io::Error| FileError::io(path, "read the trace", &e);
        let (offset, header) = self.file.blocks[number];
        if header.holds == Holds::Code {
            return self.code.before(number + 1, &mut self.decoding.known);
        }
        let mut file = File::open(path).map_err(io)?;
        let at = (number, offset, &header);
        self.decoding
            .block(path, &mut file, &self.code, at, &mut |_, _| Ok(()))
            .map_err(|stop| match stop {
                Stop::Fault(error) => FileError::at(path, offset, reason(path, error.message)),
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
    Stop::Fault(FileError::at(path, offset, what).into())
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
                Kind::Branch | Kind::Compute | Kind::Ask => true,
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
    let mut file = File::open(path).map_err(|e| FileError::io(path, "open the trace", &e))?;
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
    /// Threads that are being read.
    threads: BTreeMap<ThreadId, Pump<Mark>>,
    /// Those that were read to their ends.
    ended: Ended,
    /// A machine has replied to what the recorded program asked.
    replied: bool,
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
                request: file.header.request.clone(),
                live: file.header.live,
                parts: Vec::new(),
                stopped: file.interrupted.then_some(total),
            },
            path: Arc::new(file.path),
            code,
            plans,
            threads: BTreeMap::new(),
            ended: Ended::default(),
            replied: false,
        }
    }

    fn start(&mut self, thread: ThreadId) {
        let Plan { blocks, skip } = self.plans.remove(&thread).unwrap_or_default();
        let (path, code) = (Arc::clone(&self.path), Arc::clone(&self.code));
        let pump = Pump::start(skip, move |sink| read_thread(&path, &code, &blocks, sink));
        self.threads.insert(thread, pump);
    }

    /// Nothing follows of it.
    fn end(&mut self, thread: ThreadId) {
        self.plans.remove(&thread);
        self.threads.remove(&thread);
        self.ended.insert(thread);
    }
}

impl Program for PwtProgram {
    fn facts(&self) -> Facts {
        self.facts.clone()
    }

    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, ProgramError> {
        batch.ops.clear();
        if self.replied {
            let path = self.path.display();
            return Err(ProgramError {
                message: format!(
                    "{path}: the recorded program asks, and what it does next depends on this design's reply; expected a design without a shortcut, or the program itself"
                ),
            });
        }
        if self.ended.contains(thread) {
            return Ok(End::Exit);
        }
        if !self.threads.contains_key(&thread) {
            self.start(thread);
        }
        let mine = self.threads.get_mut(&thread).expect("was started");
        let Some((_, mark)) = mine.next(&mut batch.ops)? else {
            self.end(thread);
            return Ok(End::Exit);
        };
        Ok(match mark {
            None => End::More,
            Some(Mark::Wait(until, counted)) => End::Wait { until, counted },
            Some(Mark::End(End::Exit)) => {
                self.end(thread);
                End::Exit
            }
            Some(Mark::End(end)) => end,
        })
    }

    fn gone(&mut self, thread: ThreadId) {
        self.end(thread);
    }

    fn answer(&mut self, _: ThreadId, reply: Option<u64>) {
        self.replied |= reply.is_some();
    }
}
