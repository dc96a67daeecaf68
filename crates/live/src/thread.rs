//! A thread: its ring, and the records taken from it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use pagewalk_ring::{Consumer, record};
use pagewalk_stream::{Error, ThreadId, Unseen};
use pagewalk_trace::x86::Registers;

use crate::process::MappedSegment;
use crate::sink::Queue;

/// Most records of one thread that may wait in host memory, 1 GB.
pub const MOST_HELD: usize = 1 << 27;

/// A thread that waits for the result of a query; any host thread may deliver it.
pub(crate) struct QueryingThread {
    /// The segment of its process, with the ring's slot.
    pub shared: Arc<MappedSegment>,
    /// The reader's end of its ring.
    pub ring: Consumer,
    /// The file that takes the contents of a file of the kernel, and the offset in it.
    pub file: Option<(PathBuf, u64)>,
}

impl QueryingThread {
    /// Delivers the result. A second result is ignored.
    pub fn deliver_result(&self, reply: Option<u64>) {
        self.ring.deliver_result(&self.shared.segment, reply);
    }

    /// Delivers the contents of a file of the kernel.
    pub fn deliver_file(&self, contents: Option<Vec<u8>>) {
        // The result is none if the process has closed its files to others, or has died.
        let written = contents
            .zip(self.file.as_ref())
            .and_then(|(contents, (path, offset))| {
                let file = File::options().write(true).open(path).ok()?;
                file.write_all_at(&contents, *offset).ok()?;
                Some(contents.len() as u64)
            });
        self.deliver_result(written);
    }
}

/// A thread of a live program.
pub(crate) struct LiveThread {
    /// Number of its process.
    pub process: usize,
    /// Its ring; `None` before it has one.
    pub ring: Option<(Arc<MappedSegment>, Consumer)>,
    /// Words taken from the ring.
    pub words: Vec<u64>,
    /// Position in `words` of the next record.
    pub at: usize,
    /// Its registers, with the ops that produced their values.
    pub registers: Registers,
    /// Pieces to be returned before more records are read.
    pub queue: Queue,
    /// Changes by other threads that were met within the current block: the instruction whose access is after the
    /// change, and the ticket.
    pub met_within: Vec<(u16, u64)>,
    /// Tickets of the current block's marks of the region of interest.
    pub marks: Vec<u64>,
    /// Between [`record::ENTER`] and its return.
    pub in_kernel: bool,
    /// The descriptor that takes the contents of a file of the kernel, and the offset in it.
    pub kernel_file: Option<(u64, u64)>,
    /// The engine knows that it is blocked.
    pub reported_blocked: bool,
    /// The ticket of an execve whose new image has not arrived.
    pub replacing: Option<u64>,
    /// The thread executes a program outside the emulator.
    pub untraced: bool,
    /// That program, until it is reported.
    pub unseen: Option<Box<Unseen>>,
    /// Last thread that it created, in case that the creation fails.
    pub last_spawned: Option<ThreadId>,
    /// The system call that would have created it failed.
    pub stillborn: bool,
    /// Its last batch ended where its ring was empty, in a blocking call, or with a query.
    pub starving: bool,
    /// The death of its process has been found, and records that it had not published have been made visible.
    pub reported_death: bool,
    /// Number of the block that was its last when its process died.
    pub last_block: Option<usize>,
}

impl LiveThread {
    /// A thread of process number `process`, with the ring that it writes.
    pub fn new(process: usize, ring: Option<(Arc<MappedSegment>, Consumer)>) -> LiveThread {
        LiveThread {
            process,
            ring,
            words: Vec::new(),
            at: 0,
            registers: Registers::default(),
            queue: Queue::new(),
            met_within: Vec::new(),
            marks: Vec::new(),
            in_kernel: false,
            kernel_file: None,
            reported_blocked: false,
            replacing: None,
            untraced: false,
            unseen: None,
            last_spawned: None,
            stillborn: false,
            starving: false,
            reported_death: false,
            last_block: None,
        }
    }

    /// Records in the ring. At least one if the ring is corrupt, so that the reader finds the error.
    pub fn available(&self) -> u64 {
        match &self.ring {
            Some((shared, ring)) => ring.available(&shared.segment).unwrap_or(1),
            None => 0,
        }
    }

    /// True if the thread waits for the result of a query.
    pub fn has_query(&self) -> bool {
        let ring = self.ring.as_ref();
        ring.is_some_and(|(shared, ring)| ring.has_query(&shared.segment))
    }

    /// Records in host memory that were not read yet.
    pub fn unread(&self) -> usize {
        self.words.len() - self.at
    }

    /// Takes records from the ring. Returns true if there were any.
    pub fn refill(&mut self, most: usize) -> Result<bool, Error> {
        let Some((shared, ring)) = &mut self.ring else {
            return Ok(false);
        };
        // Each word moves once on average: many records may lie behind those that were read.
        if self.at > self.words.len() / 2 {
            self.words.drain(..self.at);
            self.at = 0;
        }
        let n = ring
            .take(&shared.segment, &mut self.words, most)
            .map_err(|e| Error::refused(e.to_string()))?;
        Ok(n > 0)
    }

    /// Removes a meeting point that precedes `access` from a block's records.
    #[cold]
    pub fn met_at(&mut self, at: usize, access: u64, ticket_base: u64) {
        let ticket = ticket_base.wrapping_add(record::payload(self.words.remove(at)));
        let instruction = (access >> record::INDEX_SHIFT) as u16 & 0x1ff;
        self.met_within.push((instruction, ticket));
    }

    /// Removes a mark from a block's records. A meeting point may precede it.
    #[cold]
    pub fn mark_at(&mut self, at: usize, ticket_base: u64) {
        let at = at + usize::from(record::tag(self.words[at]) == record::MEET);
        let ticket = ticket_base.wrapping_add(record::payload(self.words.remove(at)));
        self.marks.push(ticket);
    }

    /// Moves the contents of a full ring to host memory. Returns true if it was full.
    pub fn relieve(&mut self) -> bool {
        let waits = self
            .ring
            .as_ref()
            .is_some_and(|(shared, ring)| ring.writer_waits(&shared.segment));
        // Above the limit nothing is taken, and the next `fill` returns the error.
        waits && self.unread() < MOST_HELD && self.refill(usize::MAX).unwrap_or(true)
    }
}
