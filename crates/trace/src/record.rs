//! Recording: a program's stream into a trace, beside a run or alone.

use std::collections::BTreeMap;

use pagewalk_stream::{
    BATCH_OPS, Batch, Counted, End, Ended, Error, Event, Facts, ProcessId, Program, ThreadId, Units,
};

use crate::order::Order;
use crate::pwt::{Mark, TraceWriter, Written};

/// Passes a program's stream on and writes it down on the way.
pub struct Recording {
    program: Box<dyn Program>,
    writer: TraceWriter,
    order: Order,
    /// Ops of each thread since its last mark, without full batches: what a reader has not
    /// given yet.
    open: BTreeMap<ThreadId, usize>,
}

impl Recording {
    /// Records `program` to `writer`.
    pub fn new(program: Box<dyn Program>, writer: TraceWriter) -> Self {
        Recording {
            program,
            writer,
            order: Order::new(Counted::Ops),
            open: BTreeMap::new(),
        }
    }

    /// Instructions so far.
    pub fn written(&self) -> Written {
        self.writer.written()
    }

    /// The mark behind a batch of so many ops: also one that says where the batch ends if a
    /// reader could not know, since a core's turn ends there.
    fn end_batch(
        &mut self,
        thread: ThreadId,
        ops: usize,
        end: &End,
        mark: Option<Mark>,
    ) -> Option<Mark> {
        let open = self.open.entry(thread).or_default();
        *open = (*open + ops) % BATCH_OPS;
        let mark =
            mark.or_else(|| (*end == End::More && *open > 0).then_some(Mark::End(End::More)));
        if mark.is_some() {
            *open = 0;
        }
        if *end == End::Exit {
            self.open.remove(&thread);
        }
        mark
    }

    /// An interrupt has stopped it: the completed trace says so.
    pub fn stopped(&mut self) {
        self.writer.stopped();
    }

    /// Completes the trace. That of a part of a program says so, too.
    ///
    /// # Errors
    /// When it cannot be written, such as to a full disk.
    pub fn finish(mut self) -> Result<Written, Error> {
        if self.program.facts().stopped.is_some() {
            self.stopped();
        }
        Ok(self.writer.finish()?)
    }
}

impl Program for Recording {
    fn facts(&self) -> Facts {
        self.program.facts()
    }

    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, Error> {
        let end = self.program.fill(thread, batch)?;
        if !batch.ops.is_empty() || !matches!(end, End::Blocked | End::Empty) {
            let first = batch.ops.is_empty().then_some(&end);
            if let Some(mark) = self.order.goes_on(thread, first) {
                self.writer.mark(thread, &mark)?;
                self.open.remove(&thread);
            }
        }
        self.writer.ops(thread, &batch.ops)?;
        self.order.advance(thread, batch.ops.len() as u64);
        let mark = self.order.ends(thread, &end);
        if let Some(mark) = self.end_batch(thread, batch.ops.len(), &end, mark) {
            self.writer.mark(thread, &mark)?;
        }
        Ok(end)
    }

    fn shortcut_result(&mut self, thread: ThreadId, reply: Option<u64>) {
        self.program.shortcut_result(thread, reply);
    }

    fn gone(&mut self, thread: ThreadId) {
        self.program.gone(thread);
    }

    fn wait(&mut self) {
        self.program.wait();
    }

    fn exit_status(&self) -> Option<i32> {
        self.program.exit_status()
    }
}

/// What sees each batch of a program, its thread and its end, and says whether to go on.
pub type Visit<'a> =
    dyn FnMut(&mut dyn Program, ThreadId, &Batch, &End) -> Result<bool, Error> + 'a;

/// Asks the threads of a program in turn until it ends or `visit`, which is also handed the
/// program, says no. The threads of a process that has ended are read to their own end.
///
/// # Errors
/// What the program or `visit` returns; a deterministic program whose threads all
/// wait for each other.
pub fn drive(program: &mut dyn Program, visit: &mut Visit<'_>) -> Result<(), Error> {
    let deterministic = program.facts().deterministic;
    // Those that live, and which have lived.
    let mut threads = BTreeMap::from([(0, DrivenThread::new(0))]);
    let mut ended = Ended::default();
    let mut batch = Batch::new();
    while !threads.is_empty() {
        let mut moved = false;
        let ids: Vec<ThreadId> = threads.keys().copied().collect();
        for id in ids {
            if held(&threads, &ended, id) {
                continue;
            }
            let end = program.fill(id, &mut batch)?;
            if !visit(program, id, &batch, &end)? {
                return Ok(());
            }
            moved |= !batch.ops.is_empty() || !matches!(end, End::Blocked | End::Empty);
            let me = threads.get_mut(&id).expect("just asked");
            me.units.add(&batch, &end);
            me.hold = None;
            let process = me.process;
            match end {
                End::Exit => {
                    threads.remove(&id);
                    ended.insert(id);
                }
                End::Barrier { number } => {
                    me.reached = number;
                    me.hold = Some(end);
                }
                End::Wait { .. } => me.hold = Some(end),
                End::Event { event, .. } => match event {
                    Event::Spawn { thread } => {
                        drop(threads.insert(thread, DrivenThread::new(process)))
                    }
                    Event::Fork { process, thread } => {
                        threads.insert(thread, DrivenThread::new(process));
                    }
                    Event::ProcessExit { .. } => {
                        for t in threads.values_mut().filter(|t| t.process == process) {
                            t.killed = true;
                        }
                    }
                    Event::Exec => threads.get_mut(&id).expect("just asked").reached = 0,
                    _ => {}
                },
                // Nobody is there to reply.
                End::Query(_) => program.shortcut_result(id, None),
                End::More | End::Meet { .. } | End::Blocked | End::Empty => {}
            }
        }
        if !moved {
            if deterministic {
                return Err(Error::refused(
                    "all threads of the program wait for each other",
                ));
            }
            program.wait();
        }
    }
    Ok(())
}

/// A thread as [`drive`] sees it.
struct DrivenThread {
    process: ProcessId,
    /// Its process has ended: it waits for nobody, and nobody for it.
    killed: bool,
    /// What was read of it.
    units: Units,
    /// Number of the last barrier that it came to.
    reached: u64,
    /// The barrier or wait that it stands at.
    hold: Option<End>,
}

impl DrivenThread {
    fn new(process: ProcessId) -> Self {
        DrivenThread {
            process,
            killed: false,
            units: Units::default(),
            reached: 0,
            hold: None,
        }
    }
}

/// Whether thread `id` has to wait for another.
fn held(threads: &BTreeMap<ThreadId, DrivenThread>, ended: &Ended, id: ThreadId) -> bool {
    let me = &threads[&id];
    match &me.hold {
        _ if me.killed => false,
        Some(End::Barrier { number }) => threads.iter().any(|(other, t)| {
            *other != id && t.process == me.process && !t.killed && t.reached < *number
        }),
        Some(End::Wait { until, counted }) => until.iter().any(|(other, units)| {
            let before = |t: &DrivenThread| !t.killed && t.units.counted(*counted) < *units;
            !ended.contains(*other) && threads.get(other).is_none_or(before)
        }),
        _ => false,
    }
}

/// Records a program by itself, until it ends, `instructions` are written, or
/// `go_on` (called with the instructions so far) says no. [`Recording::finish`]
/// completes the trace.
///
/// # Errors
/// What the program or the writer returns. What was written before can then be
/// recovered.
pub fn record_into(
    recording: &mut Recording,
    instructions: Option<u64>,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<(), Error> {
    let limit = instructions.unwrap_or(u64::MAX);
    let mut written = 0;
    drive(recording, &mut |_, _, batch, _| {
        written += batch.instructions();
        Ok(written < limit && go_on(written))
    })
}

/// [`record_into`], and the trace completed.
///
/// # Errors
/// As [`record_into`].
pub fn record(
    mut recording: Recording,
    instructions: Option<u64>,
    mut go_on: impl FnMut(u64) -> bool,
) -> Result<Written, Error> {
    record_into(&mut recording, instructions, &mut go_on)?;
    recording.finish()
}

/// Writes all that a trace holds.
pub(super) fn copy(mut recording: Recording) -> Result<Written, Error> {
    drive(&mut recording, &mut |_, _, _, _| Ok(true))?;
    recording.finish()
}
