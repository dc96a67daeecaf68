//! Recording: a program's stream into a trace, beside a run or alone.

use std::collections::{BTreeMap, BTreeSet};

use pagewalk_stream::{Batch, End, Event, Facts, ProcessId, Program, ProgramError, ThreadId};

use super::pwt::{Mark, TraceWriter, Written};

/// Passes a program's stream on and writes it down on the way.
///
/// A thread that waited goes on, when replayed, once every other thread has come
/// as far as it had when this one went on while recording.
pub struct Recording {
    program: Box<dyn Program>,
    writer: TraceWriter,
    /// Ops and marks of each thread so far.
    units: BTreeMap<ThreadId, u64>,
    waiting: BTreeSet<ThreadId>,
}

impl Recording {
    /// Records `program` to `writer`.
    pub fn new(program: Box<dyn Program>, writer: TraceWriter) -> Self {
        Recording {
            program,
            writer,
            units: BTreeMap::new(),
            waiting: BTreeSet::new(),
        }
    }

    /// Instructions so far.
    pub fn written(&self) -> Written {
        self.writer.written()
    }

    /// Completes the trace.
    ///
    /// # Errors
    /// When it cannot be written, such as to a full disk.
    pub fn finish(self) -> Result<Written, ProgramError> {
        Ok(self.writer.finish()?)
    }
}

impl Program for Recording {
    fn facts(&self) -> Facts {
        self.program.facts()
    }

    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<End, ProgramError> {
        let end = self.program.fill(thread, batch)?;
        let goes_on = !batch.ops.is_empty() || !matches!(end, End::Blocked | End::Empty);
        if goes_on && self.waiting.remove(&thread) {
            let others = self.units.iter().filter(|(t, _)| **t != thread);
            let needs = others.map(|(t, n)| (*t, *n)).collect();
            self.writer.mark(thread, &Mark::Wait(needs))?;
        }
        self.writer.ops(thread, &batch.ops)?;
        let units = self.units.entry(thread).or_default();
        *units += batch.ops.len() as u64;
        match &end {
            End::More | End::Empty => {}
            End::Blocked => {
                if self.waiting.insert(thread) {
                    *units += 1;
                }
            }
            End::Wait { until } => {
                *units += 1;
                self.writer.mark(thread, &Mark::Wait(until.clone()))?;
            }
            End::Event { .. } | End::Meet { .. } | End::Barrier { .. } | End::Exit => {
                *units += 1;
                self.writer.mark(thread, &Mark::End(end.clone()))?;
            }
        }
        Ok(end)
    }

    fn wait(&mut self) {
        self.program.wait();
    }

    fn exit_status(&self) -> Option<i32> {
        self.program.exit_status()
    }
}

/// What becomes of the threads of a process that ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Killed {
    /// They end with it, as in a machine.
    End,
    /// They are read on: a recording may hold more of them.
    ReadOn,
}

/// Asks the threads of a program in turn until it ends or `visit` says no.
///
/// # Errors
/// What the program or `visit` returns; a deterministic program whose threads all
/// wait for each other.
pub(super) fn drive(
    program: &mut dyn Program,
    killed: Killed,
    visit: &mut dyn FnMut(ThreadId, &Batch, &End) -> Result<bool, ProgramError>,
) -> Result<(), ProgramError> {
    let deterministic = program.facts().deterministic;
    let mut threads = BTreeMap::from([(0, Asked::new(0))]);
    let mut batch = Batch::new();
    while threads.values().any(|t| t.lives) {
        let mut moved = false;
        let ids: Vec<ThreadId> = threads.keys().copied().collect();
        for id in ids {
            if !threads[&id].lives || held(&threads, id) {
                continue;
            }
            let end = program.fill(id, &mut batch)?;
            if !visit(id, &batch, &end)? {
                return Ok(());
            }
            moved |= !batch.ops.is_empty() || !matches!(end, End::Blocked | End::Empty);
            let me = threads.get_mut(&id).expect("just asked");
            me.units += batch.ops.len() as u64 + u64::from(!matches!(end, End::More | End::Empty));
            me.hold = None;
            let process = me.process;
            match end {
                End::Exit => me.lives = false,
                End::Barrier { number } => {
                    me.reached = number;
                    me.hold = Some(end);
                }
                End::Wait { .. } => me.hold = Some(end),
                End::Event { event, .. } => match event {
                    Event::Spawn { thread } => drop(threads.insert(thread, Asked::new(process))),
                    Event::Fork { process, thread } => {
                        threads.insert(thread, Asked::new(process));
                    }
                    Event::ProcessExit { .. } => {
                        for t in threads.values_mut().filter(|t| t.process == process) {
                            t.killed = true;
                            t.lives &= killed == Killed::ReadOn;
                        }
                    }
                    _ => {}
                },
                End::More | End::Meet { .. } | End::Blocked | End::Empty => {}
            }
        }
        if !moved {
            if deterministic {
                return Err(ProgramError {
                    message: "all threads of the program wait for each other".into(),
                });
            }
            program.wait();
        }
    }
    Ok(())
}

/// A thread as [`drive`] sees it.
struct Asked {
    process: ProcessId,
    lives: bool,
    /// Its process has ended: it waits for nobody, and nobody for it.
    killed: bool,
    /// Ops and ends other than `More` so far.
    units: u64,
    /// Number of the last barrier that it came to.
    reached: u64,
    /// The barrier or wait that it stands at.
    hold: Option<End>,
}

impl Asked {
    fn new(process: ProcessId) -> Self {
        Asked {
            process,
            lives: true,
            killed: false,
            units: 0,
            reached: 0,
            hold: None,
        }
    }
}

/// Whether thread `id` has to wait for another.
fn held(threads: &BTreeMap<ThreadId, Asked>, id: ThreadId) -> bool {
    let me = &threads[&id];
    let waited_for = |t: &Asked| t.lives && !t.killed;
    match &me.hold {
        _ if me.killed => false,
        Some(End::Barrier { number }) => threads.iter().any(|(other, t)| {
            *other != id && t.process == me.process && waited_for(t) && t.reached < *number
        }),
        Some(End::Wait { until }) => until.iter().any(|(other, units)| {
            threads
                .get(other)
                .is_none_or(|t| waited_for(t) && t.units < *units)
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
) -> Result<(), ProgramError> {
    let limit = instructions.unwrap_or(u64::MAX);
    let mut written = 0;
    drive(recording, Killed::End, &mut |_, batch, _| {
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
) -> Result<Written, ProgramError> {
    record_into(&mut recording, instructions, &mut go_on)?;
    recording.finish()
}

/// Writes all that a trace holds.
pub(super) fn copy(mut recording: Recording) -> Result<Written, ProgramError> {
    drive(&mut recording, Killed::ReadOn, &mut |_, _, _| Ok(true))?;
    recording.finish()
}
