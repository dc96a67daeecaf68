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
            End::Event { .. } | End::Meet { .. } | End::Exit => {
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
    let mut live: BTreeMap<ThreadId, ProcessId> = BTreeMap::from([(0, 0)]);
    let mut batch = Batch::new();
    while !live.is_empty() {
        let mut moved = false;
        for (thread, process) in live.clone() {
            // A thread of a process that ended in this round is gone.
            if !live.contains_key(&thread) {
                continue;
            }
            let end = program.fill(thread, &mut batch)?;
            if !visit(thread, &batch, &end)? {
                return Ok(());
            }
            moved |= !batch.ops.is_empty() || !matches!(end, End::Blocked | End::Empty);
            match end {
                End::Exit => drop(live.remove(&thread)),
                End::Event { event, .. } => match event {
                    Event::Spawn { thread } => drop(live.insert(thread, process)),
                    Event::Fork { process, thread } => drop(live.insert(thread, process)),
                    Event::ProcessExit { .. } if killed == Killed::End => {
                        live.retain(|_, p| *p != process)
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

/// Records a program by itself, until it ends, `instructions` are written, or
/// `go_on` (called with the instructions so far) says no.
///
/// # Errors
/// What the program or the writer returns. What was written before can then be
/// recovered.
pub fn record(
    mut recording: Recording,
    instructions: Option<u64>,
    mut go_on: impl FnMut(u64) -> bool,
) -> Result<Written, ProgramError> {
    let limit = instructions.unwrap_or(u64::MAX);
    let mut written = 0;
    drive(&mut recording, Killed::End, &mut |_, batch, _| {
        written += batch.instructions();
        Ok(written < limit && go_on(written))
    })?;
    recording.finish()
}

/// Writes all that a trace holds.
pub(super) fn copy(mut recording: Recording) -> Result<Written, ProgramError> {
    drive(&mut recording, Killed::ReadOn, &mut |_, _, _| Ok(true))?;
    recording.finish()
}
