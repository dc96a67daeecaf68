//! Where the executions that a ring tells of go.

use std::collections::VecDeque;

use pagewalk_stream::{BATCH_OPS, End, Error, Op, ShortcutQuery};
use pagewalk_trace::Known;
use pagewalk_trace::x86::{Piece, Registers};

/// What a thread gives before it is read on.
pub(crate) type Queue = VecDeque<Piece>;

/// A block that was executed.
pub(crate) struct Execution<'a> {
    pub known: &'a Known,
    /// Its memory accesses.
    pub records: &'a [u64],
    /// The block after it and its address, when that is known.
    pub next: Option<(u64, &'a Known)>,
    /// Changes by others met within it: the instruction whose access comes after
    /// the change, and the ticket.
    pub met: &'a mut Vec<(u16, u64)>,
    /// The thread's.
    pub registers: &'a mut Registers,
    /// What the thread gives before it goes on.
    pub queue: &'a mut Queue,
}

/// Takes what a thread does.
pub(crate) trait Sink {
    /// Whether it takes no more executions for now.
    fn is_full(&self) -> bool;
    /// Whether it has got nothing yet.
    fn is_empty(&self) -> bool;
    /// Takes what it can of these words, from the start of an execution to that of
    /// another; returns how many.
    #[inline(always)]
    fn run(&mut self, _words: &[u64], _known: &[Known]) -> usize {
        0
    }
    /// Takes an execution. Returns whether the queue is to be looked at.
    ///
    /// # Errors
    /// One that no program makes.
    fn take(&mut self, execution: Execution<'_>) -> Result<bool, Error>;
    /// Takes an execution that ended with a question. The queue gets the end, behind
    /// what comes before it.
    ///
    /// # Errors
    /// One that no program makes.
    fn query(&mut self, execution: Execution<'_>, ask: ShortcutQuery) -> Result<(), Error>;
    /// Takes ops out of the queue; returns those for which there is no room.
    fn ops(&mut self, ops: Vec<Op>) -> Option<Vec<Op>>;
}

/// The ops of a batch.
pub(crate) struct Batches<'a>(pub &'a mut Vec<Op>);

impl Sink for Batches<'_> {
    #[inline(always)]
    fn is_full(&self) -> bool {
        self.0.len() >= BATCH_OPS
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline(always)]
    fn take(&mut self, execution: Execution<'_>) -> Result<bool, Error> {
        let Execution { known, met, .. } = execution;
        let out = &mut *self.0;
        let start = out.len();
        let next = execution.next.map(|(address, _)| address);
        known
            .block
            .expand(execution.records, next, execution.registers, out);
        if !known.block.markers.is_empty() || !met.is_empty() {
            let ops = out.split_off(start);
            execution.queue.extend(known.block.cut(ops, met));
            return Ok(true);
        }
        if out.len() > BATCH_OPS {
            let rest = out.split_off(BATCH_OPS);
            execution.queue.push_back(Piece::Ops(rest));
            return Ok(true);
        }
        Ok(false)
    }

    #[cold]
    fn query(&mut self, execution: Execution<'_>, ask: ShortcutQuery) -> Result<(), Error> {
        let (block, mut ops) = (&execution.known.block, Vec::new());
        block.expand(execution.records, None, execution.registers, &mut ops);
        let pieces = block.cut_query(ask, ops, execution.met, execution.registers);
        execution.queue.extend(pieces);
        Ok(())
    }

    fn ops(&mut self, mut ops: Vec<Op>) -> Option<Vec<Op>> {
        let room = BATCH_OPS - self.0.len();
        let rest = (ops.len() > room).then(|| ops.split_off(room));
        self.0.append(&mut ops);
        rest
    }
}

/// Instructions, counted and thrown away.
pub(crate) struct Nothing {
    pub instructions: u64,
    /// Executions that it still takes.
    pub left: u32,
}

impl Sink for Nothing {
    #[inline(always)]
    fn is_full(&self) -> bool {
        self.left == 0
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.instructions == 0
    }

    #[inline(always)]
    fn take(&mut self, execution: Execution<'_>) -> Result<bool, Error> {
        execution.met.clear();
        self.left -= 1;
        self.instructions += u64::from(execution.known.shape.instructions);
        Ok(false)
    }

    fn query(&mut self, execution: Execution<'_>, ask: ShortcutQuery) -> Result<(), Error> {
        execution.queue.push_back(Piece::End(End::Query(ask)));
        self.take(execution).map(drop)
    }

    fn ops(&mut self, _ops: Vec<Op>) -> Option<Vec<Op>> {
        None
    }
}
