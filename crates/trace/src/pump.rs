//! Decoding in parallel with the engine: a thread reads ahead through a bounded channel.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use pagewalk_stream::{BATCH_OPS, Error, InstructionCounts, Op, OpClass, ProgramMemory};

/// Most chunks that wait; with [`BATCH_OPS`] ops each, 4 MB.
const AHEAD: usize = 32;

/// Number of ops, from the first, that may name a producer before the first.
const FARTHEST: u64 = 1 << 16;

/// Ops, and the end after them.
pub struct Chunk<E> {
    pub ops: Vec<Op>,
    /// Ops and marks in this chunk, plus those that were skipped.
    pub units: u64,
    /// `None`: more ops follow.
    pub end: Option<E>,
    /// Instructions that were decoded for it.
    pub counts: InstructionCounts,
    /// Contents of the process's memory, if they are recorded.
    pub memory: Option<ProgramMemory>,
}

/// Reason for which a reading thread ends early.
pub enum Stop {
    /// The receiver has been dropped.
    Gone,
    /// The trace is invalid.
    Fault(Error),
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Stop::Fault(error.into())
    }
}

/// Takes ops one by one.
pub trait TakesOps {
    /// Appends one op.
    fn push(&mut self, op: Op) -> Result<(), Stop>;
}

impl<E> TakesOps for Sink<E> {
    #[inline(always)]
    fn push(&mut self, op: Op) -> Result<(), Stop> {
        Sink::push(self, op)
    }
}

impl TakesOps for Vec<Op> {
    fn push(&mut self, op: Op) -> Result<(), Stop> {
        Vec::push(self, op);
        Ok(())
    }
}

type Sent<E> = Result<Chunk<E>, Error>;

/// The receiving side.
pub struct Pump<E> {
    chunks: Option<Receiver<Sent<E>>>,
    used: SyncSender<Vec<Op>>,
    worker: Option<JoinHandle<()>>,
    failed: Option<Error>,
    /// Instructions that were decoded for the last chunk.
    pub counts: InstructionCounts,
    /// Memory of the last chunk.
    pub memory: Option<ProgramMemory>,
}

/// The sending side.
pub struct Sink<E> {
    chunks: SyncSender<Sent<E>>,
    used: Receiver<Vec<Op>>,
    ops: Vec<Op>,
    units: u64,
    /// Ops of the first chunk that the receiver already has.
    open: usize,
    /// Instructions still to skip.
    skip: u64,
    /// Ops given, counted up to [`FARTHEST`].
    given: u64,
    /// Instructions that were decoded for the ops since the last chunk.
    pub counts: InstructionCounts,
    /// Memory of the next chunks.
    pub memory: Option<ProgramMemory>,
}

impl<E: Send + 'static> Pump<E> {
    /// Runs `work` in a thread of its own, and skips the first `skip` instructions that it gives.
    pub fn start(
        skip: u64,
        work: impl FnOnce(&mut Sink<E>) -> Result<(), Stop> + Send + 'static,
    ) -> Self {
        Self::run(skip, None, work)
    }

    /// Runs `work` in a thread of its own, to continue after the first `open` ops of a chunk.
    pub fn go_on(
        open: usize,
        work: impl FnOnce(&mut Sink<E>) -> Result<(), Stop> + Send + 'static,
    ) -> Self {
        Self::run(0, Some(open), work)
    }

    fn run(
        skip: u64,
        open: Option<usize>,
        work: impl FnOnce(&mut Sink<E>) -> Result<(), Stop> + Send + 'static,
    ) -> Self {
        let (chunks, receiver) = sync_channel(AHEAD);
        let (used, reuse) = sync_channel(AHEAD + 2);
        let worker = std::thread::Builder::new().name("trace-decode".into());
        let work = move || {
            let mut sink = Sink {
                chunks,
                used: reuse,
                ops: Vec::with_capacity(BATCH_OPS),
                // The rest is a chunk even if no more ops follow.
                units: open.map_or(0, |o| o.min(1) as u64),
                open: open.unwrap_or(0),
                skip,
                given: if open.is_some() { FARTHEST } else { 0 },
                counts: InstructionCounts::default(),
                memory: None,
            };
            match work(&mut sink) {
                Ok(()) => {
                    let _ = sink.flush();
                }
                Err(Stop::Fault(error)) => {
                    // Ops before the fault are valid.
                    if sink.flush().is_ok() {
                        let _ = sink.chunks.send(Err(error));
                    }
                }
                Err(Stop::Gone) => {}
            }
        };
        let worker = worker.spawn(work).expect("a thread can be started");
        Pump {
            chunks: Some(receiver),
            used,
            worker: Some(worker),
            failed: None,
            counts: InstructionCounts::default(),
            memory: None,
        }
    }

    /// Moves the next chunk into `ops`; `None` at the end of the trace.
    pub fn next(&mut self, ops: &mut Vec<Op>) -> Result<Option<(u64, Option<E>)>, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let receiver = self.chunks.as_ref().expect("taken only by drop");
        match receiver.recv() {
            Ok(Ok(chunk)) => {
                let old = std::mem::replace(ops, chunk.ops);
                let _ = self.used.try_send(old);
                self.counts = chunk.counts;
                self.memory = chunk.memory;
                Ok(Some((chunk.units, chunk.end)))
            }
            Ok(Err(error)) => {
                self.failed = Some(error.clone());
                Err(error)
            }
            Err(_) => {
                let ended_well = self.worker.take().is_none_or(|w| w.join().is_ok());
                if ended_well {
                    return Ok(None);
                }
                let error =
                    Error::failed("the trace reader stopped unexpectedly (a defect of Pagewalk)");
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }
}

impl<E> Drop for Pump<E> {
    fn drop(&mut self) {
        // Closing the channel ends the worker at its next send.
        self.chunks = None;
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

impl<E> Sink<E> {
    /// Appends one op.
    #[inline]
    pub fn push(&mut self, mut op: Op) -> Result<(), Stop> {
        self.units += 1;
        if self.given < FARTHEST {
            if self.skip > 0 {
                self.skip = self.skip.saturating_sub(u64::from(op.insns));
                return Ok(());
            }
            self.forget_producers(&mut op);
        }
        if self.is_full() {
            self.flush()?;
        }
        self.ops.push(op);
        if self.is_full() {
            self.flush_if_full()?;
        }
        Ok(())
    }

    #[inline(always)]
    fn is_full(&self) -> bool {
        self.ops.len() + self.open == BATCH_OPS
    }

    /// Flushes a full chunk, unless its last op is a query: a query stays in the chunk of its mark.
    fn flush_if_full(&mut self) -> Result<(), Stop> {
        let is_query = self.ops.last().is_some_and(|o| o.kind == OpClass::Query);
        if self.is_full() && !is_query {
            self.flush()?;
        }
        Ok(())
    }

    /// Appends ops.
    pub fn extend(&mut self, mut ops: &[Op]) -> Result<(), Stop> {
        while let Some((first, rest)) = ops.split_first() {
            if self.skip == 0 && self.given >= FARTHEST {
                if self.is_full() {
                    self.flush()?;
                }
                let room = BATCH_OPS - self.open - self.ops.len();
                let (now, later) = ops.split_at(room.min(ops.len()));
                self.ops.extend_from_slice(now);
                self.units += now.len() as u64;
                ops = later;
                self.flush_if_full()?;
            } else {
                self.push(*first)?;
                ops = rest;
            }
        }
        Ok(())
    }

    /// Clears producers before the first op given: they are unknown.
    fn forget_producers(&mut self, op: &mut Op) {
        for dep in &mut op.dep {
            if u64::from(*dep) > self.given {
                *dep = 0;
            }
        }
        self.given += 1;
    }

    /// Appends the mark after the ops so far.
    pub fn mark(&mut self, end: E) -> Result<(), Stop> {
        self.units += 1;
        self.send(Some(end))
    }

    /// Counts ops and marks that are not decoded.
    pub fn skip(&mut self, units: u64) {
        self.units += units;
    }

    fn flush(&mut self) -> Result<(), Stop> {
        if self.units > 0 {
            self.send(None)?;
        }
        Ok(())
    }

    fn send(&mut self, end: Option<E>) -> Result<(), Stop> {
        let next = match self.used.try_recv() {
            Ok(mut used) => {
                used.clear();
                used
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => Vec::with_capacity(BATCH_OPS),
        };
        let chunk = Chunk {
            ops: std::mem::replace(&mut self.ops, next),
            units: std::mem::take(&mut self.units),
            end,
            counts: std::mem::take(&mut self.counts),
            memory: self.memory.clone(),
        };
        self.open = 0;
        self.chunks.send(Ok(chunk)).map_err(|_| Stop::Gone)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use pagewalk_stream::{BATCH_OPS, Op, OpClass};

    use super::{AHEAD, Pump};

    /// The op is anywhere in a chunk, alone or among others.
    #[test]
    fn an_op_that_asks_is_in_the_chunk_of_its_mark() {
        let query = Op {
            kind: OpClass::Query,
            ..Op::default()
        };
        // Up to this many ops, `extend` takes them one by one; above, together.
        for before in [0, 1 << 16] {
            for fill in BATCH_OPS - 2..BATCH_OPS + 2 {
                let mut pump = Pump::start(0, move |sink| {
                    let mut ops = vec![Op::default(); before + fill];
                    ops.push(query);
                    sink.extend(&ops)?;
                    sink.mark(1)?;
                    sink.extend(&[Op::default(); 3])
                });
                let (mut ops, mut all) = (Vec::new(), 0);
                while let Some((_, mark)) = pump.next(&mut ops).unwrap() {
                    assert!(ops.len() <= BATCH_OPS);
                    let at_query = ops.iter().position(|o| o.kind == OpClass::Query);
                    assert_eq!(
                        at_query,
                        mark.map(|_: i32| ops.len() - 1),
                        "{before} {fill}"
                    );
                    all += ops.len();
                }
                assert_eq!(all, before + fill + 4);
            }
        }
    }

    #[test]
    fn a_reader_that_panics_is_an_error_and_not_an_end() {
        let mut pump = Pump::<()>::start(0, |sink| {
            sink.extend(&[Op::default(); BATCH_OPS])?;
            panic!("a defect")
        });
        let mut ops = Vec::new();
        assert_eq!(pump.next(&mut ops), Ok(Some((BATCH_OPS as u64, None))));
        for _ in 0..2 {
            let error = pump.next(&mut ops).unwrap_err();
            assert!(
                error.to_string().contains("stopped unexpectedly"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_reader_stops_when_nobody_listens() {
        let given = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&given);
        let mut pump = Pump::<()>::start(0, move |sink| {
            loop {
                sink.push(Op::default())?;
                counter.fetch_add(1, Ordering::SeqCst);
            }
        });
        let mut ops = Vec::new();
        for _ in 0..20 {
            assert!(pump.next(&mut ops).unwrap().is_some());
        }
        drop(pump);
        // The thread has ended and dropped its counter.
        let given = Arc::try_unwrap(given)
            .expect("the thread is gone")
            .into_inner();
        assert!(given <= ((20 + AHEAD + 1) * BATCH_OPS) as u64, "{given}");
    }
}
