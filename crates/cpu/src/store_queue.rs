//! The store queue: stores from dispatch to their write to the cache, and store-to-load forwarding.

use pagewalk_structures::Ring;
use pagewalk_units::Cycle;

use crate::time::Time;

/// The bytes of one line that a store writes.
#[derive(Clone, Copy, Debug)]
struct Piece {
    line: u64,
    /// First and last byte within the line.
    low: u8,
    high: u8,
    /// Position of the previous piece in the same bucket.
    before: u64,
    /// Slot in which its data is known.
    data: Time,
    /// Cycle at which it is written to the cache.
    commit: Cycle,
}

const BUCKETS: usize = 256;

/// The store queue. Entries are allocated in order at dispatch, and freed in order when the store
/// is written. A load finds older stores to its line in a hash table of lines.
#[derive(Clone, Debug)]
pub(crate) struct StoreQueue {
    size: u64,
    /// Slot in which each of the latest stores leaves the queue, by number.
    leaves: Ring<Time>,
    /// Number of stores so far.
    pub count: u64,
    /// Cycle at which the youngest store is written.
    pub last_commit: Time,
    /// Pieces by position; a store writes at most two lines.
    pieces: Ring<Piece>,
    /// Next position; positions start at 1.
    next: u64,
    /// Position of the newest piece in each bucket.
    newest: Box<[u64; BUCKETS]>,
    /// First position of a piece that may belong to a store in the queue.
    oldest: u64,
}

#[inline]
fn bucket(line: u64) -> usize {
    (line ^ line >> 8) as usize % BUCKETS
}

impl StoreQueue {
    /// An empty queue of `size` stores.
    pub fn new(size: u32) -> Self {
        let none = Piece {
            line: 0,
            low: 0,
            high: 0,
            before: 0,
            data: Time::default(),
            commit: 0,
        };
        let leaves = Ring::new(size as usize, Time::default());
        StoreQueue {
            size: u64::from(size),
            count: 0,
            last_commit: Time::default(),
            pieces: Ring::new(2 * leaves.len(), none),
            leaves,
            next: 1,
            newest: Box::new([0; BUCKETS]),
            oldest: 1,
        }
    }

    /// First slot in which the next store finds a free entry.
    #[inline]
    pub fn room(&self) -> Time {
        match self.count.checked_sub(self.size) {
            Some(n) => self.leaves.get(n as usize),
            None => Time::default(),
        }
    }

    /// Allocates an entry for the next store, which is free again in `slot`.
    #[inline]
    pub fn enter(&mut self, slot: Time) {
        self.leaves.set(self.count as usize, slot);
        self.count += 1;
    }

    /// Adds the bytes `low..=high` of `line` to the store just entered.
    #[inline]
    pub fn write(&mut self, line: u64, low: u8, high: u8, data: Time, commit: Cycle) {
        let b = bucket(line);
        let piece = Piece {
            line,
            low,
            high,
            before: self.newest[b],
            data,
            commit,
        };
        self.pieces.set(self.next as usize, piece);
        self.newest[b] = self.next;
        self.next += 1;
    }

    /// Finds the youngest store that overlaps bytes `low..=high` of `line` and is not yet written
    /// at `now`. Returns the slot in which its data is known.
    #[inline]
    pub fn forward(&self, line: u64, low: u8, high: u8, now: Cycle) -> Option<Time> {
        if self.last_commit.real <= now {
            return None;
        }
        let mut at = self.newest[bucket(line)];
        let oldest = self
            .oldest
            .max(self.next.saturating_sub(self.pieces.len() as u64));
        while at >= oldest {
            let p = self.pieces.get(at as usize);
            if p.line == line && p.low <= high && low <= p.high {
                // Stores are written in order, so older ones are written earlier.
                return (p.commit > now).then_some(p.data);
            }
            at = p.before;
        }
        None
    }

    /// Clears the queue for another thread: its loads forward nothing from these stores.
    pub fn forget(&mut self) {
        self.oldest = self.next;
    }
}
