//! Records a live program into a trace: the records of its rings as they come, without decoding them to ops.

use std::collections::BTreeMap;
use std::path::Path;

use pagewalk_stream::{
    Counted, Death, End, Error, Event, Facts, Op, Program, ShortcutQuery, ThreadId, Unseen,
};
use pagewalk_trace::x86::Piece;
use pagewalk_trace::{Decoded, Known, MemoryPart, Order, StepEncoder, TraceWriter, Written};

use crate::image::Image;
use crate::living::Living;
use crate::options::LiveOptions;
use crate::program::{LOOK, Live, TURN};
use crate::sink::{Execution, Sink};

/// Most records of a step, far more than an instruction has.
const MOST_RECORDS: usize = 1 << 16;

/// A running program that is recorded.
pub struct LiveRecording {
    live: Live,
    writer: TraceWriter,
    order: Order,
    threads: Living<RecordedThread>,
    /// Images of the living processes, if memory is recorded.
    images: Option<BTreeMap<usize, Image>>,
    /// Images so far.
    made: u64,
    instructions: u64,
    unseen: Vec<Unseen>,
    deaths: Vec<Death>,
}

/// One recorded thread.
#[derive(Default)]
struct RecordedThread {
    /// `None` before its first step.
    steps: Option<Box<StepEncoder>>,
    /// Instructions in the thread's earlier blocks of the file.
    before: u64,
    /// The process, if its memory is recorded.
    process: Option<usize>,
    /// Number of the image that the file names last for this thread.
    image: Option<u64>,
}

/// One turn of a thread.
struct Turn<'a> {
    steps: &'a mut StepEncoder,
    taken: u32,
    most: u32,
    /// Instructions up to the limit of the recording.
    wanted: u64,
    instructions: u64,
    /// Ends that a replay returns within steps.
    ends: u64,
    met: Option<u64>,
    /// Notes the pages that change.
    image: Option<&'a mut Image>,
}

impl Sink for Turn<'_> {
    #[inline(always)]
    fn is_full(&self) -> bool {
        self.taken >= self.most || self.instructions >= self.wanted || self.steps.is_full()
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.taken == 0
    }

    #[inline(always)]
    fn run(&mut self, words: &[u64], known: &[Known]) -> usize {
        let (steps, wanted) = (self.most - self.taken, self.wanted - self.instructions);
        let (length, taken) = self.steps.run(words, known, steps, wanted);
        if let Some(image) = &mut self.image {
            image.note(&words[..length]);
        }
        self.taken += taken.steps;
        self.instructions += taken.instructions;
        self.ends += taken.markers;
        length
    }

    #[inline(always)]
    fn take(&mut self, execution: Execution<'_>) -> Result<bool, Error> {
        let Execution { known, records, .. } = execution;
        if !execution.met.is_empty() {
            self.meet(execution.met);
        }
        execution.marks.clear();
        if records.len() >= MOST_RECORDS {
            return Err(Error::refused(
                "the ring is corrupt: a block of code with 65,536 memory accesses",
            ));
        }
        if let Some(image) = &mut self.image {
            image.note(records);
        }
        self.taken += 1;
        self.ends += u64::from(known.shape.markers);
        let next = execution.next.map(|(_, next)| next.shape.number);
        self.instructions += self.steps.step(&known.block, &known.shape, records, next);
        Ok(false)
    }

    #[cold]
    fn query(&mut self, execution: Execution<'_>, query: ShortcutQuery) -> Result<(), Error> {
        self.steps.query(query);
        self.ends += 1;
        execution.queue.push_back(Piece::End(End::Query(query)));
        self.take(execution).map(drop)
    }

    fn ops(&mut self, ops: Vec<Op>) -> Option<Vec<Op>> {
        unreachable!("no execution makes {} ops here", ops.len())
    }
}

impl Turn<'_> {
    #[cold]
    fn meet(&mut self, met: &mut Vec<(u16, u64)>) {
        for (instruction, ticket) in met.drain(..) {
            self.steps.met_within(instruction, ticket);
            self.ends += 1;
            self.met = Some(ticket);
        }
    }
}

impl LiveRecording {
    /// Starts a program. `writer` makes the trace's writer from the program's facts. `memory`: the trace also holds the
    /// contents of memory.
    ///
    /// # Errors
    /// As [`launch`](crate::launch), and those of `writer`.
    pub fn launch<E: Into<Error>>(
        options: LiveOptions,
        memory: bool,
        writer: impl FnOnce(&Facts) -> Result<TraceWriter, E>,
    ) -> Result<LiveRecording, Error> {
        let mut live = Live::launch(options)?;
        live.has_kernel = false;
        live.decoded = Decoded::recorded();
        let writer = writer(&live.facts()).map_err(Into::into)?;
        Ok(LiveRecording {
            live,
            writer,
            order: Order::new(Counted::Instructions),
            threads: Living::of(RecordedThread::default()),
            images: memory.then(BTreeMap::new),
            made: 0,
            instructions: 0,
            unseen: Vec::new(),
            deaths: Vec::new(),
        })
    }

    /// Programs that its processes executed outside the emulator.
    pub fn unseen(&self) -> &[Unseen] {
        &self.unseen
    }

    /// Processes that ended without exiting.
    pub fn deaths(&self) -> &[Death] {
        &self.deaths
    }

    /// The program's facts.
    pub fn facts(&self) -> Facts {
        self.live.facts()
    }

    /// The program's own exit status, once it has ended.
    pub fn exit_status(&self) -> Option<i32> {
        self.live.exit_status()
    }

    /// Records until the program ends, `instructions` are written, or `go_on` returns false. `go_on` is called with the
    /// instructions so far.
    ///
    /// # Errors
    /// A corrupt ring, or a file that cannot be written. The part written before can be recovered.
    pub fn run(
        &mut self,
        instructions: Option<u64>,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), Error> {
        let limit = instructions.unwrap_or(u64::MAX);
        while !self.threads.is_empty() {
            let mut moved = false;
            for id in self.threads.numbers() {
                moved |= self.turn(id, limit - self.instructions)?;
                if self.instructions >= limit {
                    return Ok(());
                }
            }
            if !go_on(self.instructions) {
                return Ok(());
            }
            if !moved {
                self.live.wait_at_most(LOOK * 5);
            }
        }
        Ok(())
    }

    /// Path of the file until it is finished.
    pub fn partial(&self) -> &Path {
        self.writer.partial()
    }

    /// Marks the trace as stopped by an interrupt.
    pub fn stopped(&mut self) {
        self.writer.stopped();
    }

    /// Completes the trace.
    ///
    /// # Errors
    /// The trace cannot be written, for example to a full disk.
    pub fn finish(mut self) -> Result<Written, Error> {
        for id in self.threads.numbers() {
            self.seal(id)?;
        }
        Ok(self.writer.finish()?)
    }

    /// Reads from a thread. Returns true if it had anything.
    fn turn(&mut self, id: usize, wanted: u64) -> Result<bool, Error> {
        let number = id as ThreadId;
        // A thread that has waited is only polled: its wait must be written before its next step.
        let waits = self.order.waits(number);
        self.enter_image(id)?;
        let thread = &mut self.threads[id];
        let mut images = self.images.as_mut();
        let mut turn = Turn {
            steps: thread.steps.get_or_insert_default(),
            taken: 0,
            most: if waits { 0 } else { TURN },
            wanted,
            instructions: 0,
            ends: 0,
            met: None,
            image: thread.process.and_then(|p| images.as_mut()?.get_mut(&p)),
        };
        let mut end = self.live.read(number, &mut turn)?;
        if let Some(image) = &mut turn.image {
            if let End::Event {
                event:
                    Event::KernelTouch {
                        at,
                        bytes,
                        writes: true,
                    },
                ..
            } = &end
            {
                image.note_range(at.0, *bytes);
            }
            image.read();
        }
        let Turn {
            taken,
            instructions,
            ends,
            met,
            ..
        } = turn;
        if matches!(end, End::Query(_) | End::Clock(_)) {
            // The step holds the query. No machine runs that could give a result.
            self.live.shortcut_result(number, None);
            end = End::More;
        }
        self.instructions += instructions;
        self.order.advance(number, instructions + ends);
        if let Some(ticket) = met {
            self.order.meets(number, ticket);
        }
        let steps = thread.steps.get_or_insert_default();
        let goes_on = taken > 0 || !matches!(end, End::Blocked | End::Empty);
        if goes_on && let Some(mark) = self.order.goes_on(number, Some(&end)) {
            steps.mark(&mark);
        }
        if let Some(mark) = self.order.ends(number, &end) {
            steps.mark(&mark);
        }
        match &end {
            End::Event {
                event: Event::Unseen(unseen),
                ..
            } => self.unseen.push((**unseen).clone()),
            End::Event {
                event: Event::Died(death),
                ..
            } => self.deaths.push((**death).clone()),
            _ => {}
        }
        if let End::Event {
            event: Event::Spawn { thread } | Event::Fork { thread, .. },
            ..
        } = &end
        {
            while self.threads.made() <= *thread as usize {
                self.threads.push(RecordedThread::default());
            }
        }
        if end == End::Exit || steps_full(&self.threads[id]) {
            self.seal(id)?;
        }
        if end == End::Exit {
            let process = self.threads.remove(id).and_then(|t| t.process);
            let lives = self.threads.values().any(|t| t.process == process);
            if let (false, Some(process), Some(images)) = (lives, process, &mut self.images) {
                images.remove(&process);
            }
        }
        Ok(goes_on)
    }

    /// Gives the process of a thread an image, and ends the thread's block at a change of the image.
    fn enter_image(&mut self, id: usize) -> Result<(), Error> {
        let Some(images) = &self.images else {
            return Ok(());
        };
        let Some((process, memory)) = self.live.memory(id as ThreadId) else {
            return Ok(());
        };
        if images.get(&process).is_some_and(|i| i.is_of(memory)) {
            self.threads[id].process = Some(process);
            return Ok(());
        }
        let image = Image::new(self.made, memory.clone());
        self.seal(id)?;
        self.threads[id].process = Some(process);
        self.made += 1;
        if let Some(images) = &mut self.images {
            images.insert(process, image);
        }
        Ok(())
    }

    /// Writes a thread's open block to the file.
    fn seal(&mut self, id: usize) -> Result<(), Error> {
        for part in self.live.decoded.take_fresh() {
            self.writer.code(part)?;
        }
        let thread = &mut self.threads[id];
        if let Some(steps) = thread.steps.as_mut().filter(|s| !s.is_empty()) {
            let process = thread.process;
            if let Some(image) = process.and_then(|p| self.images.as_mut()?.get_mut(&p)) {
                let mut parts = image.pages.take();
                if parts.is_empty() && thread.image != Some(image.number) {
                    parts.push(MemoryPart::default());
                }
                thread.image = Some(image.number);
                for part in parts {
                    self.writer.memory(id as ThreadId, image.number, part)?;
                }
            }
            let part = steps.take();
            let before = thread.before;
            thread.before += part.instructions;
            self.writer.steps(id as ThreadId, before, part)?;
        }
        Ok(())
    }
}

fn steps_full(thread: &RecordedThread) -> bool {
    thread.steps.as_ref().is_some_and(|s| s.is_full())
}
