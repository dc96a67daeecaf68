//! Stores from dispatch to their write to the cache, and what loads take from them.

use pagewalk_structures::Ring;
use pagewalk_units::Cycle;

/// The bytes of one line that a store writes.
#[derive(Clone, Copy, Debug)]
struct Piece {
    line: u64,
    /// First and last byte within the line.
    low: u8,
    high: u8,
    /// Position of the piece before it in the same bucket.
    before: u64,
    /// When its data is known, in cycles.
    data: Cycle,
    /// When it is written to the cache, in cycles.
    commit: Cycle,
}

const BUCKETS: usize = 256;

/// The store queue: entries are taken in order at dispatch and given back in
/// order when the store is written. Loads find older stores to the same line
/// through chains by line.
#[derive(Clone, Debug)]
pub(crate) struct StoreQueue {
    size: u64,
    /// When each of the last stores left, by number, in slots.
    leaves: Ring<u64>,
    pub count: u64,
    /// When the youngest store is written.
    pub last_commit: Cycle,
    /// By position; a store writes two lines at most.
    pieces: Ring<Piece>,
    /// Pieces so far; positions start at 1.
    next: u64,
    newest: Box<[u64; BUCKETS]>,
    /// Positions from which on a piece may belong to a store in the queue.
    oldest: u64,
}

#[inline]
fn bucket(line: u64) -> usize {
    (line ^ line >> 8) as usize % BUCKETS
}

impl StoreQueue {
    /// A queue of `size` stores, empty.
    pub fn new(size: u32) -> Self {
        let none = Piece {
            line: 0,
            low: 0,
            high: 0,
            before: 0,
            data: 0,
            commit: 0,
        };
        let leaves = Ring::new(size as usize, 0);
        StoreQueue {
            size: u64::from(size),
            count: 0,
            last_commit: 0,
            pieces: Ring::new(2 * leaves.len(), none),
            leaves,
            next: 1,
            newest: Box::new([0; BUCKETS]),
            oldest: 1,
        }
    }

    /// First slot in which the next store finds an entry.
    #[inline]
    pub fn room(&self) -> u64 {
        match self.count.checked_sub(self.size) {
            Some(n) => self.leaves.get(n as usize),
            None => 0,
        }
    }

    /// A store's entry is free again in `slot`.
    #[inline]
    pub fn enter(&mut self, slot: u64) {
        self.leaves.set(self.count as usize, slot);
        self.count += 1;
    }

    /// The store just entered writes bytes `low..=high` of `line`.
    #[inline]
    pub fn write(&mut self, line: u64, low: u8, high: u8, data: Cycle, commit: Cycle) {
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

    /// When the data of the youngest store is known that overlaps bytes
    /// `low..=high` of `line` and is not yet written at `now`.
    #[inline]
    pub fn forward(&self, line: u64, low: u8, high: u8, now: Cycle) -> Option<Cycle> {
        if self.last_commit <= now {
            return None;
        }
        let mut at = self.newest[bucket(line)];
        let oldest = self
            .oldest
            .max(self.next.saturating_sub(self.pieces.len() as u64));
        while at >= oldest {
            let p = self.pieces.get(at as usize);
            if p.line == line && p.low <= high && low <= p.high {
                // Stores are written in order: an older one is written even earlier.
                return (p.commit > now).then_some(p.data);
            }
            at = p.before;
        }
        None
    }

    /// Another thread comes: its loads take nothing from these stores.
    pub fn forget(&mut self) {
        self.oldest = self.next;
    }
}
