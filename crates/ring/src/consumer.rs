use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use crate::{Segment, futex_wake, slot_state};

/// Errors of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RingError {
    /// The writer's position is behind the reader's, or ahead of it by more than the
    /// ring's size.
    Position {
        /// Position published by the writer.
        head: u64,
        /// Position of the reader.
        tail: u64,
    },
    /// The slot does not exist.
    Slot(usize),
}

impl std::fmt::Display for RingError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RingError::Position { head, tail } => {
                write!(
                    f,
                    "the ring is corrupt: it is written up to {head} and read up to {tail}"
                )
            }
            RingError::Slot(n) => {
                write!(f, "the ring is corrupt: it names slot {n}, which is none")
            }
        }
    }
}

impl std::error::Error for RingError {}

/// The reading end of a ring.
#[derive(Clone, Debug)]
pub struct Consumer {
    slot: usize,
    tail: u64,
}

impl Consumer {
    /// The reader of slot `slot`.
    ///
    /// # Errors
    /// [`RingError::Slot`] if the slot does not exist.
    pub fn new(segment: &Segment, slot: usize) -> Result<Consumer, RingError> {
        let ends = segment.slot(slot).ok_or(RingError::Slot(slot))?;
        Ok(Consumer {
            slot,
            tail: ends.tail.load(Acquire),
        })
    }

    /// The slot's number.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// Number of records that can be taken now.
    ///
    /// # Errors
    /// [`RingError::Position`].
    pub fn available(&self, segment: &Segment) -> Result<u64, RingError> {
        let head = segment.slot(self.slot).map_or(0, |s| s.head.load(Acquire));
        let n = head.wrapping_sub(self.tail);
        if n > segment.geometry().records as u64 {
            return Err(RingError::Position {
                head,
                tail: self.tail,
            });
        }
        Ok(n)
    }

    /// True if the writer sleeps because the ring is full.
    pub fn writer_waits(&self, segment: &Segment) -> bool {
        segment
            .slot(self.slot)
            .is_some_and(|s| s.waiting.load(Relaxed) != 0)
    }

    /// Appends at most `most` records to `out`, frees their space, and returns their
    /// number.
    ///
    /// # Errors
    /// [`RingError::Position`]; `out` is then unchanged.
    pub fn take(
        &mut self,
        segment: &Segment,
        out: &mut Vec<u64>,
        most: usize,
    ) -> Result<usize, RingError> {
        let available = self.available(segment)?;
        let n = available.min(most as u64) as usize;
        if n == 0 {
            return Ok(0);
        }
        let ring = segment.ring(self.slot);
        let from = (self.tail & (ring.len() as u64 - 1)) as usize;
        let first = n.min(ring.len() - from);
        out.extend(ring[from..from + first].iter().map(|w| w.load(Relaxed)));
        out.extend(ring[..n - first].iter().map(|w| w.load(Relaxed)));
        self.tail += n as u64;
        let Some(slot) = segment.slot(self.slot) else {
            return Ok(n);
        };
        slot.tail.store(self.tail, Release);
        fence(SeqCst);
        let left = available - n as u64;
        // A sleeping writer is woken only after half of the ring is free, for fewer
        // context switches.
        if slot.waiting.load(Relaxed) != 0 && left <= ring.len() as u64 / 2 {
            slot.waiting.store(0, Relaxed);
            slot.space.fetch_add(1, Release);
            futex_wake(&slot.space);
        }
        Ok(n)
    }

    /// Publishes the records that a writer wrote but did not publish before its process
    /// died.
    pub fn publish_rest(&self, segment: &Segment) {
        let Some(slot) = segment.slot(self.slot) else {
            return;
        };
        let written = slot
            .cursor
            .load(Acquire)
            .wrapping_sub(slot.data.load(Relaxed)) as u64
            / 8;
        let position = slot.lap.load(Relaxed).wrapping_add(written);
        // Implausible positions are ignored.
        if written <= segment.geometry().records as u64
            && position >= slot.head.load(Acquire)
            && position.wrapping_sub(self.tail) <= segment.geometry().records as u64
        {
            slot.head.store(position, Release);
        }
    }

    /// True if the writer has issued a query, or is about to, and waits for
    /// [`Consumer::deliver_result`].
    pub fn has_query(&self, segment: &Segment) -> bool {
        let slot = segment.slot(self.slot);
        slot.is_some_and(|s| s.resolved.load(Relaxed) != s.query.load(Relaxed))
    }

    /// Delivers the result of the writer's pending query ([`crate::record::QUERY`]) and resumes it.
    /// `None` means that no result is known. Without a pending query it does nothing.
    pub fn deliver_result(&self, segment: &Segment, result: Option<u64>) {
        let Some(slot) = segment.slot(self.slot) else {
            return;
        };
        let query = slot.query.load(Relaxed);
        if slot.resolved.load(Relaxed) == query {
            return;
        }
        slot.result.store(result.unwrap_or(0), Relaxed);
        slot.known.store(u32::from(result.is_some()), Relaxed);
        slot.resolved.store(query, Release);
        futex_wake(&slot.resolved);
    }

    /// True if the writer has closed the ring.
    pub fn closed(&self, segment: &Segment) -> bool {
        segment
            .slot(self.slot)
            .is_some_and(|s| s.state.load(Acquire) == slot_state::CLOSED)
    }

    /// Frees a closed slot for a new thread.
    pub fn free(self, segment: &Segment) {
        if let Some(slot) = segment.slot(self.slot) {
            slot.state.store(slot_state::FREE, Release);
        }
    }
}
