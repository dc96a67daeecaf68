//! Reads the blocks of `.pwt` files, from their beginning or from any instruction.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use pagewalk_input::FileError;
use pagewalk_stream::{
    BATCH_OPS, Batch, End, Ended, Error, Event, Facts, FastForwardBudget, FlushKind,
    InstructionCounts, Op, OpClass, PrefetchHint, Program, ThreadFastForward, ThreadId,
};

use super::block::{BlockHeader, Holds, load};
use super::code::{Code, CodeInFile, Known};
use super::codec::Decoder;
use super::file::PwtFile;
use super::marks::{Give, Mark, get_mark};
use super::memory::{MemoryInFile, check_memory};
use super::skips::{Skip, SkipMaker, SkipsInFile, raw_skips};
use super::steps::StepDecoder;
use crate::pump::{Pump, Sink, Stop};
use crate::x86::Registers;

/// Use of a block in a reading thread.
#[derive(Clone, Copy)]
enum Use {
    All,
    MarksOnly,
    Nothing,
}

impl PwtFile {
    /// Verifies one block after the other.
    pub fn verifier(&self) -> Verifier<'_> {
        Verifier {
            file: self,
            code: self.code(),
            decoding: Decoding::default(),
            compares: self.blocks.iter().any(|(_, h)| h.holds == Holds::Skips),
            skips: SkipMaker::default(),
            made: Vec::new(),
            blocks: 0,
        }
    }
}

/// Reads the blocks of a file in order.
pub(crate) struct Verifier<'a> {
    file: &'a PwtFile,
    code: CodeInFile,
    decoding: Decoding,
    /// The file holds touch summaries.
    compares: bool,
    skips: SkipMaker,
    /// Touch summaries made from the first thread's blocks, and not yet compared with the file's.
    made: Vec<Vec<u8>>,
    /// Number of the first thread's blocks so far.
    blocks: u64,
}

impl Verifier<'_> {
    /// Verifies block `number`.
    ///
    /// # Errors
    /// The fault of the block.
    pub fn verify(&mut self, number: usize) -> Result<(), FileError> {
        let path = &self.file.path;
        let io = |e: std::io::Error| FileError::io(path, "read the trace", &e);
        let (offset, header) = self.file.blocks[number];
        if header.holds == Holds::Code {
            let known = &mut self.decoding.known;
            let before = known.len();
            self.code.before(number + 1, known)?;
            for (number, known) in known.iter_mut().enumerate().skip(before) {
                *known = Some(self.code.decoded(number as u32)?);
            }
            return Ok(());
        }
        let mut file = File::open(path).map_err(io)?;
        if header.holds == Holds::Skips {
            return self.compare(&mut file, offset, &header);
        }
        if header.holds == Holds::Memory {
            return check_memory(path, &mut file, (offset, &header));
        }
        let at = (number, offset, &header);
        let skips = &mut self.skips;
        let first = self.compares && header.thread == 0;
        self.decoding
            .block(path, &mut file, &self.code, at, &mut |ops, mark| {
                if first {
                    skips.ops(ops);
                    mark.iter().for_each(|mark| skips.mark(mark));
                }
                Ok(())
            })
            .map_err(|stop| match stop {
                Stop::Fault(error) => FileError::at(path, offset, error.text().to_string()),
                Stop::Gone => unreachable!("nothing is sent"),
            })?;
        if first && !skips.is_over() {
            let registers = self.decoding.registers(header.holds);
            self.made.push(skips.seal(&registers));
            self.blocks += 1;
        }
        Ok(())
    }

    /// Checks that the file's touch summaries agree with its blocks.
    fn compare(
        &mut self,
        file: &mut File,
        offset: u64,
        header: &BlockHeader,
    ) -> Result<(), FileError> {
        let path = &self.file.path;
        let skips = raw_skips(path, file, offset, header)?;
        let fault = |what: String| {
            let what =
                format!("{what} (in a block whose checksum is right: a defect of its writer)");
            Err(FileError::at(path, offset, what))
        };
        let first = self.blocks - self.made.len() as u64;
        if header.before != first || skips.len() > self.made.len() {
            return fault("what skipping needs is not in the order of its blocks".to_owned());
        }
        for (number, (skip, made)) in skips.iter().zip(self.made.drain(..skips.len())).enumerate() {
            if *skip != made {
                return fault(format!(
                    "what skipping over block {} of the first thread needs is not what it does",
                    first + number as u64
                ));
            }
        }
        Ok(())
    }
}

/// State that is kept between the blocks of a thread.
#[derive(Default)]
struct Decoding {
    ops: Decoder,
    steps: StepDecoder,
    known: Vec<Option<Known>>,
}

impl Decoding {
    /// Contents of the registers; empty for blocks of ops.
    fn registers(&self, holds: Holds) -> Vec<u8> {
        match holds {
            Holds::Steps => self.steps.registers.bytes(),
            Holds::Ops | Holds::Code | Holds::Skips | Holds::Memory => Vec::new(),
        }
    }

    /// Gives the ops of the file's block `number` at `offset`, with their marks in between.
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
        let code = Code {
            known: &mut self.known,
            decode: &|number| Ok(code.decoded(number)?),
        };
        let steps = &mut self.steps;
        let instructions = steps.decode(columns, counts, code, &fault, give)?;
        if instructions == header.instructions {
            Ok(())
        } else {
            Err(fault("a block has other instructions than its header says"))
        }
    }
}

/// The error for an invalid block with a valid checksum.
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
                OpClass::Load | OpClass::Store => (1..=64).contains(&o.size),
                OpClass::Prefetch => PrefetchHint::of(o.size).is_some(),
                OpClass::Flush => FlushKind::of(o.size).is_some(),
                OpClass::Branch | OpClass::Compute | OpClass::Query => true,
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

/// Parts of the file that blocks of threads refer to.
struct InFile {
    code: CodeInFile,
    memory: MemoryInFile,
}

/// Body of the reading thread of one thread.
fn read_thread(
    path: &Path,
    InFile { code, memory }: &InFile,
    blocks: &[PlannedBlock],
    registers: Registers,
    sink: &mut Sink<Mark>,
) -> Result<(), Stop> {
    let mut file = File::open(path).map_err(|e| FileError::io(path, "open the trace", &e))?;
    let mut decoding = Decoding::default();
    decoding.steps.registers = registers;
    let counts = Rc::clone(&decoding.steps.counts);
    for planned in blocks {
        let header = &planned.header;
        let marks_only = match planned.use_ {
            Use::Nothing => {
                sink.skip(u64::from(header.ops) + u64::from(header.marks));
                continue;
            }
            Use::MarksOnly => true,
            Use::All => false,
        };
        sink.memory = memory.before(header.thread, planned.number);
        let at = (planned.number, planned.offset, header);
        decoding.block(path, &mut file, code, at, &mut |ops, mark| {
            let counts = counts.take();
            if marks_only {
                sink.skip(ops.len() as u64);
            } else {
                sink.counts.add(&counts);
                sink.extend(ops)?;
            }
            match mark {
                None => Ok(()),
                Some(Mark::End(End::More)) if marks_only => Ok(()),
                Some(mark) => sink.mark(mark),
            }
        })?;
    }
    Ok(())
}

/// Blocks that a thread reads from its first `fill` on.
#[derive(Default)]
struct ReadPlan {
    blocks: Vec<PlannedBlock>,
    skip: u64,
}

/// A block that a thread reads.
struct PlannedBlock {
    /// Its index among the file's blocks.
    number: usize,
    offset: u64,
    header: BlockHeader,
    use_: Use,
}

/// Start of a batch of the first thread.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Index of the block among the thread's.
    block: usize,
    /// Batches that end in the block before this one.
    batches: u64,
}

/// The first thread. Whole batches of it can be skipped without decoding.
struct First {
    blocks: Arc<[PlannedBlock]>,
    skips: SkipsInFile,
    budget: Arc<FastForwardBudget>,
    fast_forward: ThreadFastForward,
    /// Start of the next batch, or start `given` batches ago.
    place: Place,
    given: u64,
    /// Another thread has started.
    shared: bool,
}

impl First {
    /// True if the grant allows skipping.
    fn may_pass(&self) -> bool {
        let (instructions, requests) = self.budget.remaining();
        instructions > 0 && requests > 0 && !self.shared
    }

    /// Moves `place` forward over the batches given. Returns false if the file has no touch summary there.
    fn settle(&mut self) -> Result<bool, FileError> {
        while self.given > 0 {
            let Place { block, batches } = self.place;
            let Some(skip) = self.skip(block)? else {
                return Ok(false);
            };
            let here = skip.ends.saturating_sub(batches);
            if self.given <= here {
                self.place.batches += self.given;
                self.given = 0;
            } else {
                self.given -= here;
                self.place = Place {
                    block: block + 1,
                    batches: 0,
                };
            }
        }
        Ok(true)
    }

    /// Touch summary of a block.
    fn skip(&mut self, block: usize) -> Result<Option<&Skip>, FileError> {
        match self.blocks.get(block) {
            None => Ok(None),
            Some(planned) => self.skips.get(block, &planned.header),
        }
    }

    /// True if the grant is large enough that it pays to stop decoding.
    fn jumps(&mut self) -> Result<bool, FileError> {
        let (mut instructions, mut requests) = self.budget.remaining();
        // A grant below two blocks most often fails this cheap test.
        if instructions < BATCH_OPS as u64 || !self.settle()? {
            return Ok(false);
        }
        for block in self.place.block..self.place.block + 2 {
            let Some(work) = self.skip(block)?.and_then(|skip| skip.work()) else {
                return Ok(false);
            };
            instructions = instructions.saturating_sub(work.0);
            requests = requests.saturating_sub(work.1);
        }
        Ok(instructions > 0 && requests > 0)
    }

    /// Skips the next batch, if the grant covers all of it.
    fn skip_batch(&mut self, batch: &mut Batch) -> Result<Option<Mark>, FileError> {
        let (instructions, requests) = self.budget.remaining();
        let mut at = self.place;
        let skipped = &mut batch.skipped;
        loop {
            if at.block == self.blocks.len() && skipped.ops > 0 {
                break;
            }
            let planned = self.blocks.get(at.block);
            let skip = match planned {
                Some(planned) => self.skips.get(at.block, &planned.header)?,
                None => None,
            };
            let stretches = skip.and_then(|skip| skip.stretches.as_ref());
            let stretch = stretches.and_then(|all| all.get(usize::try_from(at.batches).ok()?));
            let Some(stretch) = stretch else {
                skipped.clear();
                return Ok(None);
            };
            skipped.ops += stretch.ops;
            skipped.instructions += stretch.instructions;
            skipped.requests += stretch.requests;
            skipped.touched.extend_from_slice(stretch.touched);
            // Nothing may be skipped after the end of the grant, so no op of the batch may follow it.
            if skipped.instructions >= instructions || skipped.requests >= requests {
                skipped.clear();
                return Ok(None);
            }
            if let Some(mark) = stretch.end {
                at.batches += 1;
                self.place = at;
                self.budget.spend(skipped);
                return Ok(Some(mark.clone()));
            }
            at = Place {
                block: at.block + 1,
                batches: 0,
            };
        }
        self.place = at;
        self.budget.spend(skipped);
        Ok(Some(Mark::End(End::More)))
    }

    /// Continues at a batch that must be decoded.
    fn decode(
        &mut self,
        path: Arc<PathBuf>,
        in_file: Arc<InFile>,
    ) -> Result<Pump<Mark>, FileError> {
        // Skips blocks whose batches have all been given.
        let Place {
            mut block,
            mut batches,
        } = self.place;
        while let Some(skip) = self.skip(block)?
            && skip.ends == batches
            && skip.open == 0
        {
            (block, batches) = (block + 1, 0);
        }
        self.place = Place { block, batches };
        let from = block;
        if from > 0 && from == self.blocks.len() {
            return Ok(Pump::start(0, |_| Ok(())));
        }
        let blocks = Arc::clone(&self.blocks);
        let before = match from.checked_sub(1) {
            Some(block) => self.skip(block)?,
            None => None,
        };
        let Some(before) = before else {
            return Ok(Pump::start(0, move |sink| {
                read_thread(&path, &in_file, &blocks, Registers::default(), sink)
            }));
        };
        // The summary's registers have been checked.
        let registers = Registers::parse(&before.registers).unwrap_or_default();
        let open = before.open as usize;
        Ok(Pump::go_on(open, move |sink| {
            read_thread(&path, &in_file, &blocks[from..], registers, sink)
        }))
    }
}

/// A recorded program.
pub(crate) struct PwtProgram {
    facts: Facts,
    path: Arc<PathBuf>,
    in_file: Arc<InFile>,
    plans: BTreeMap<ThreadId, ReadPlan>,
    first: First,
    /// Threads that are being read.
    threads: BTreeMap<ThreadId, Pump<Mark>>,
    /// Threads that were read to their ends.
    ended: Ended,
    /// A machine has delivered a result to the recorded program.
    replied: bool,
}

impl PwtProgram {
    /// Opens the program and skips the first `skip` instructions in file order, but no marks among them.
    pub fn new(file: PwtFile, skip: u64) -> Self {
        let mut plans: BTreeMap<ThreadId, ReadPlan> = BTreeMap::new();
        let total = file.instructions();
        let mut before = 0u64;
        let in_file = Arc::new(InFile {
            code: file.code(),
            memory: file.memory(),
        });
        for (number, (offset, header)) in file.blocks.iter().enumerate() {
            if !header.holds.is_stream() {
                continue;
            }
            let plan = plans.entry(header.thread).or_default();
            let end = before.saturating_add(header.instructions);
            let use_ = if end > skip || end == before && before >= skip {
                // The reading thread skips the rest.
                plan.skip = plan.skip.max(skip.saturating_sub(before));
                Use::All
            } else if header.marks > 0 {
                Use::MarksOnly
            } else {
                Use::Nothing
            };
            plan.blocks.push(PlannedBlock {
                number,
                offset: *offset,
                header: *header,
                use_,
            });
            before = end;
        }
        let said = file.blocks.iter().any(|(_, h)| h.holds == Holds::Skips);
        let begins_anywhere = skip == 0 && said && plans.keys().eq([&0]);
        let budget = Arc::<FastForwardBudget>::default();
        // First touches may be among the skipped ops, so touch summaries are not used.
        let (blocks, skips) = match skip {
            0 => {
                let blocks = plans.remove(&0).unwrap_or_default().blocks;
                (blocks, file.skips())
            }
            _ => (Vec::new(), SkipsInFile::new(Arc::default(), Vec::new())),
        };
        let first = First {
            blocks: blocks.into(),
            skips,
            fast_forward: ThreadFastForward::new(Arc::clone(&budget)),
            budget,
            place: Place::default(),
            given: 0,
            shared: false,
        };
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
                cpu: file.header.cpu.clone(),
                simulated_clock: false,
                prefetches: file.header.prefetches,
                flushes: file.header.flushes,
                memory: file.header.memory,
                threads: file.threads(),
                parts: Vec::new(),
                stopped: file.interrupted.then_some(total),
                begins_anywhere,
                notes: Vec::new(),
            },
            path: Arc::new(file.path),
            in_file,
            plans,
            first,
            threads: BTreeMap::new(),
            ended: Ended::default(),
            replied: false,
        }
    }

    fn start(&mut self, thread: ThreadId) -> Result<(), Error> {
        let (path, in_file) = (Arc::clone(&self.path), Arc::clone(&self.in_file));
        let pump = match self.plans.remove(&thread) {
            None if thread == 0 => {
                let mut pump = self.first.decode(path, in_file)?;
                let mut ops = Vec::new();
                for _ in 0..self.first.place.batches {
                    pump.next(&mut ops)?;
                }
                pump
            }
            plan => {
                let ReadPlan { blocks, skip } = plan.unwrap_or_default();
                let registers = Registers::default();
                Pump::start(skip, move |sink| {
                    read_thread(&path, &in_file, &blocks, registers, sink)
                })
            }
        };
        self.threads.insert(thread, pump);
        Ok(())
    }

    /// Skips the next batch of the first thread, if possible.
    fn pass_batch(&mut self, batch: &mut Batch) -> Result<Option<Mark>, FileError> {
        let first = &mut self.first;
        if !first.may_pass() {
            return Ok(None);
        }
        if self.threads.contains_key(&0) {
            if !first.jumps()? {
                return Ok(None);
            }
            self.threads.remove(&0);
        }
        first.skip_batch(batch)
    }

    /// Ends the thread.
    fn end(&mut self, thread: ThreadId) {
        self.plans.remove(&thread);
        self.threads.remove(&thread);
        self.ended.insert(thread);
    }

    /// The end of a batch.
    fn ends(&mut self, thread: ThreadId, mark: Option<Mark>) -> End {
        let end = match mark {
            None => End::More,
            Some(Mark::Wait(until, counted)) => End::Wait { until, counted },
            Some(Mark::End(end)) => end,
        };
        if end == End::Exit {
            self.end(thread);
        }
        if let End::Event { event, .. } = &end
            && thread == 0
        {
            self.first.shared |= matches!(event, Event::Spawn { .. } | Event::Fork { .. });
            self.first.fast_forward.change(event);
        }
        end
    }
}

impl Program for PwtProgram {
    fn facts(&self) -> Facts {
        self.facts.clone()
    }

    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, Error> {
        batch.clear();
        if self.replied {
            let path = self.path.display();
            return Err(Error::refused(format!(
                "{path}: the recorded program made a shortcut query, and what it does next depends on this design's result; expected a design without a shortcut, or the program itself"
            )));
        }
        if let Some(fault) = self.in_file.memory.fault() {
            return Err(fault.clone().into());
        }
        if self.ended.contains(thread) {
            return Ok(End::Exit);
        }
        if thread == 0
            && let Some(mark) = self.pass_batch(batch)?
        {
            return Ok(self.ends(thread, Some(mark)));
        }
        if !self.threads.contains_key(&thread) {
            self.start(thread)?;
        }
        let mine = self.threads.get_mut(&thread).expect("was started");
        let Some((_, mark)) = mine.next(&mut batch.ops)? else {
            self.end(thread);
            return Ok(End::Exit);
        };
        batch.counts = mine.counts;
        batch.memory = mine.memory.take();
        if thread == 0 {
            self.first.given += 1;
            if self.first.may_pass() {
                // The host decides if a skipped batch was decoded.
                batch.counts = InstructionCounts::default();
                self.first.fast_forward.skip_batch(batch);
            }
        }
        Ok(self.ends(thread, mark))
    }

    fn grant_fast_forward(&mut self, instructions: u64, requests: u64) {
        self.first.budget.grant_fast_forward(instructions, requests);
    }

    fn gone(&mut self, thread: ThreadId) {
        self.end(thread);
    }

    fn shortcut_result(&mut self, _: ThreadId, reply: Option<u64>) {
        self.replied |= reply.is_some();
    }
}
