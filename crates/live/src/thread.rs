//! A thread: its ring, and what was taken from it.

use std::sync::Arc;

use pagewalk_ring::{Consumer, record};
use pagewalk_stream::{Error, ThreadId, Unseen};
use pagewalk_trace::x86::Registers;

use crate::process::MappedSegment;
use crate::sink::Queue;

/// Records that may wait in host memory for all threads of one ring's reader, 1 GB.
pub const MOST_HELD: usize = 1 << 27;

/// A thread that waits for an answer, which anyone may give.
pub(crate) struct QueryingThread {
    pub shared: Arc<MappedSegment>,
    pub ring: Consumer,
}

impl QueryingThread {
    /// Lets the thread go on with this reply; a second one is not heard.
    pub fn deliver_result(&self, reply: Option<u64>) {
        self.ring.deliver_result(&self.shared.segment, reply);
    }
}

pub(crate) struct Thread {
    pub process: usize,
    pub ring: Option<(Arc<MappedSegment>, Consumer)>,
    pub words: Vec<u64>,
    pub at: usize,
    pub registers: Registers,
    pub queue: Queue,
    /// Changes by others met within the block at hand: the instruction whose access
    /// comes after the change, and the ticket.
    pub met_within: Vec<(u16, u64)>,
    /// Between [`record::ENTER`] and its return.
    pub in_kernel: bool,
    /// Its reader was told that it waits.
    pub reported_blocked: bool,
    /// Waits for the image that execve starts, with this ticket.
    pub replacing: Option<u64>,
    /// Runs something that is not followed.
    pub untraced: bool,
    /// What that is, until it was told.
    pub unseen: Option<Box<Unseen>>,
    pub last_spawned: Option<ThreadId>,
    /// Its maker's system call failed.
    pub stillborn: bool,
    pub starving: bool,
    pub reported_death: bool,
}

impl Thread {
    pub fn new(process: usize, ring: Option<(Arc<MappedSegment>, Consumer)>) -> Thread {
        Thread {
            process,
            ring,
            words: Vec::new(),
            at: 0,
            registers: Registers::default(),
            queue: Queue::new(),
            met_within: Vec::new(),
            in_kernel: false,
            reported_blocked: false,
            replacing: None,
            untraced: false,
            unseen: None,
            last_spawned: None,
            stillborn: false,
            starving: false,
            reported_death: false,
        }
    }

    /// Records in the ring. A corrupt ring has some: the reader then finds out.
    pub fn available(&self) -> u64 {
        match &self.ring {
            Some((shared, ring)) => ring.available(&shared.segment).unwrap_or(1),
            None => 0,
        }
    }

    /// Whether it waits for an answer.
    pub fn has_query(&self) -> bool {
        let ring = self.ring.as_ref();
        ring.is_some_and(|(shared, ring)| ring.has_query(&shared.segment))
    }

    /// Takes records from the ring. Returns whether there were any.
    pub fn refill(&mut self, most: usize) -> Result<bool, Error> {
        let Some((shared, ring)) = &mut self.ring else {
            return Ok(false);
        };
        if self.at > 0 {
            self.words.drain(..self.at);
            self.at = 0;
        }
        let n = ring
            .take(&shared.segment, &mut self.words, most)
            .map_err(|e| Error::refused(e.to_string()))?;
        Ok(n > 0)
    }

    /// Takes a meeting point, which stands before `access`, out of a block's records.
    #[cold]
    pub fn met_at(&mut self, at: usize, access: u64, ticket_base: u64) {
        let ticket = ticket_base.wrapping_add(record::payload(self.words.remove(at)));
        let instruction = (access >> record::INDEX_SHIFT) as u16 & 0x1ff;
        self.met_within.push((instruction, ticket));
    }

    /// Moves a full ring into host memory. Returns whether it was full.
    pub fn relieve(&mut self) -> bool {
        let waits = self
            .ring
            .as_ref()
            .is_some_and(|(shared, ring)| ring.writer_waits(&shared.segment));
        // Beyond the bound nothing is taken, and the next fill says so.
        waits && self.words.len() < MOST_HELD && self.refill(usize::MAX).unwrap_or(true)
    }
}
