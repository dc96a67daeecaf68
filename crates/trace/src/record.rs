//! Recording: writes a program's stream to a trace, during a run or alone.

use std::collections::BTreeMap;

use pagewalk_stream::{
    BATCH_OPS, Batch, Counted, Death, End, Ended, Error, Event, Facts, ProcessId, Program,
    ThreadId, Units,
};

use crate::order::Order;
use crate::pwt::{Mark, TraceWriter, Written};

/// Forwards a program's stream, and writes it to a trace.
pub struct Recording {
    program: Box<dyn Program>,
    writer: TraceWriter,
    order: Order,
    /// Ops of each thread since its last mark, modulo full batches: those that a replay has not returned yet.
    open: BTreeMap<ThreadId, usize>,
    deaths: Vec<Death>,
}

impl Recording {
    /// Records `program` to `writer`.
    pub fn new(program: Box<dyn Program>, writer: TraceWriter) -> Self {
        Recording {
            program,
            writer,
            order: Order::new(Counted::Ops),
            open: BTreeMap::new(),
            deaths: Vec::new(),
        }
    }

    /// Processes that ended without exiting.
    pub fn deaths(&self) -> &[Death] {
        &self.deaths
    }

    /// Instructions and ops so far.
    pub fn written(&self) -> Written {
        self.writer.written()
    }

    /// The mark after a batch of `ops` ops. Adds one at the end of a batch that a reader could not know, because a
    /// core's turn ends there.
    fn end_batch(
        &mut self,
        thread: ThreadId,
        ops: usize,
        end: &End,
        mark: Option<Mark>,
    ) -> Option<Mark> {
        let open = self.open.entry(thread).or_default();
        *open = (*open + ops) % BATCH_OPS;
        let mark = mark.or_else(|| {
            (matches!(end, End::More | End::ReadKernel(_)) && *open > 0)
                .then_some(Mark::End(End::More))
        });
        if mark.is_some() {
            *open = 0;
        }
        if *end == End::Exit {
            self.open.remove(&thread);
        }
        mark
    }

    /// Marks the trace as stopped by an interrupt.
    pub fn stopped(&mut self) {
        self.writer.stopped();
    }

    /// Completes the trace. The trace of a stopped recording is marked as stopped, too.
    ///
    /// # Errors
    /// The trace cannot be written, for example to a full disk.
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
        if let End::Event {
            event: Event::Died(death),
            ..
        } = &end
        {
            self.deaths.push((**death).clone());
        }
        let mark = self.order.ends(thread, &end);
        if let Some(mark) = self.end_batch(thread, batch.ops.len(), &end, mark) {
            self.writer.mark(thread, &mark)?;
        }
        Ok(end)
    }

    fn shortcut_result(&mut self, thread: ThreadId, reply: Option<u64>) {
        self.program.shortcut_result(thread, reply);
    }

    fn kernel_file(&mut self, thread: ThreadId, contents: Option<Vec<u8>>) {
        self.program.kernel_file(thread, contents);
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

/// Callback for each batch of a program, with its thread and its end. Returns false to stop.
pub type Visit<'a> =
    dyn FnMut(&mut dyn Program, ThreadId, &Batch, &End) -> Result<bool, Error> + 'a;

/// Reads the threads of a program in turn until it ends or `visit` returns false. The threads of a process that has
/// ended are read to their own ends.
///
/// # Errors
/// The errors of the program and of `visit`; or a deterministic program whose threads all wait for each other.
pub fn drive(program: &mut dyn Program, visit: &mut Visit<'_>) -> Result<(), Error> {
    let deterministic = program.facts().deterministic;
    // Threads that live, and threads that have ended.
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
            let me = threads.get_mut(&id).expect("looked up above");
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
                    Event::Exec => threads.get_mut(&id).expect("looked up above").reached = 0,
                    _ => {}
                },
                // No machine runs that could give a result.
                End::Query(_) | End::Clock(_) => program.shortcut_result(id, None),
                End::ReadKernel(_) => program.kernel_file(id, None),
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

/// A thread in [`drive`].
struct DrivenThread {
    process: ProcessId,
    /// Its process has ended: it waits for no thread, and no thread waits for it.
    killed: bool,
    /// The progress that was read.
    units: Units,
    /// Number of the last barrier that it reached.
    reached: u64,
    /// The barrier or wait that holds it.
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

/// True if thread `id` must wait for another one.
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

/// Records a program until it ends, `instructions` are written, or `go_on` returns false. `go_on` is called with the
/// instructions so far. [`Recording::finish`] completes the trace.
///
/// # Errors
/// The errors of the program and of the writer. The part written before can be recovered.
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

/// As [`record_into`], and completes the trace.
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

/// Copies a whole trace.
pub(super) fn copy(mut recording: Recording) -> Result<Written, Error> {
    drive(&mut recording, &mut |_, _, _, _| Ok(true))?;
    recording.finish()
}
