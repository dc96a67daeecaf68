//! Consumers of the executions that a ring holds.

use std::collections::VecDeque;

use pagewalk_stream::{BATCH_OPS, End, Error, Event, InstructionCounts, Op, ShortcutQuery};
use pagewalk_trace::Known;
use pagewalk_trace::x86::{Piece, Registers};

/// Pieces that a thread returns before its ring is read again.
pub(crate) type Queue = VecDeque<Piece>;

/// One execution of a block.
pub(crate) struct Execution<'a> {
    pub known: &'a Known,
    /// Its memory accesses.
    pub records: &'a [u64],
    /// The next block and its address, if known.
    pub next: Option<(u64, &'a Known)>,
    /// Changes by other threads that were met within the block: the instruction whose access is after the change, and
    /// the ticket.
    pub met: &'a mut Vec<(u16, u64)>,
    /// Tickets of the block's marks. Other threads do not meet marks without one.
    pub marks: &'a mut Vec<u64>,
    /// The thread's registers.
    pub registers: &'a mut Registers,
    /// Pieces that the thread returns before it continues.
    pub queue: &'a mut Queue,
}

/// Consumes the executions of a thread.
pub(crate) trait Sink {
    /// True if it takes no more executions for now.
    fn is_full(&self) -> bool;
    /// True if it has taken nothing yet.
    fn is_empty(&self) -> bool;
    /// Takes as many complete executions as possible from the start of these words. Returns the number of words taken.
    #[inline(always)]
    fn run(&mut self, _words: &[u64], _known: &[Known]) -> usize {
        0
    }
    /// Takes an execution. Returns true if the queue must be processed.
    ///
    /// # Errors
    /// No program makes such an execution.
    fn take(&mut self, execution: Execution<'_>) -> Result<bool, Error>;
    /// Takes an execution that ended with a query. The end goes to the back of the queue.
    ///
    /// # Errors
    /// No program makes such an execution.
    fn query(&mut self, execution: Execution<'_>, query: ShortcutQuery) -> Result<(), Error>;
    /// Takes ops of the queue. Returns the ops for which there is no room.
    fn ops(&mut self, ops: Vec<Op>) -> Option<Vec<Op>>;
}

/// Gives the marks of an execution their tickets.
#[cold]
fn set_tickets(pieces: &mut [Piece], marks: &mut Vec<u64>) {
    let mut tickets = marks.drain(..);
    for piece in pieces {
        if let Piece::End(End::Event {
            event: Event::RoiBegin | Event::RoiEnd,
            ticket,
        }) = piece
        {
            *ticket = tickets.next().unwrap_or(0);
        }
    }
}

/// The ops of a batch, and counts of its instructions.
pub(crate) struct Batches<'a> {
    pub ops: &'a mut Vec<Op>,
    pub counts: InstructionCounts,
}

impl Sink for Batches<'_> {
    #[inline(always)]
    fn is_full(&self) -> bool {
        self.ops.len() >= BATCH_OPS
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    #[inline(always)]
    fn take(&mut self, execution: Execution<'_>) -> Result<bool, Error> {
        let Execution { known, met, .. } = execution;
        self.counts.add_block(
            u64::from(known.shape.instructions),
            &known.block.approximated,
        );
        let out = &mut *self.ops;
        let start = out.len();
        let next = execution.next.map(|(address, _)| address);
        known
            .block
            .expand(execution.records, next, execution.registers, out);
        if !known.block.markers.is_empty() || !met.is_empty() {
            let ops = out.split_off(start);
            let mut pieces = known.block.cut(ops, met);
            set_tickets(&mut pieces, execution.marks);
            execution.queue.extend(pieces);
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
    fn query(&mut self, execution: Execution<'_>, query: ShortcutQuery) -> Result<(), Error> {
        let (block, mut ops) = (&execution.known.block, Vec::new());
        block.expand(execution.records, None, execution.registers, &mut ops);
        let mut pieces = block.cut_query(query, ops, execution.met, execution.registers);
        set_tickets(&mut pieces, execution.marks);
        execution.queue.extend(pieces);
        Ok(())
    }

    fn ops(&mut self, mut ops: Vec<Op>) -> Option<Vec<Op>> {
        let room = BATCH_OPS - self.ops.len();
        let rest = (ops.len() > room).then(|| ops.split_off(room));
        self.ops.append(&mut ops);
        rest
    }
}

/// Counts instructions and discards them.
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
        execution.marks.clear();
        self.left -= 1;
        self.instructions += u64::from(execution.known.shape.instructions);
        Ok(false)
    }

    fn query(&mut self, execution: Execution<'_>, query: ShortcutQuery) -> Result<(), Error> {
        execution.queue.push_back(Piece::End(End::Query(query)));
        self.take(execution).map(drop)
    }

    fn ops(&mut self, _ops: Vec<Op>) -> Option<Vec<Op>> {
        None
    }
}
