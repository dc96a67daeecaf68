//! Flushes, and the write-combining buffers of non-temporal stores.
//!
//! A non-temporal store evicts its line from all caches and collects its bytes in a buffer (Intel
//! SDM volume 1, 10.4.6.2). A full buffer is one write to memory. A buffer that is written before,
//! because another line needs it or a fence orders it, is a write for each 8 bytes (volume 3A,
//! 11.3.1).

use pagewalk_units::{Cycle, FlushKind, LINE_SHIFT, PhysAddr};

use super::{DATA, Private, address};
use crate::cache_array::{DIRTY, OWNED};
use crate::{Below, Flush};

pagewalk_stats::counters! {
    /// Counters of a core's write-combining buffers in timed execution.
    pub struct WriteCombiningStats {
        stores: "stores", "Non-temporal stores; one that spans two lines counts for each";
        full: "lines", "Buffers that were written to memory when they were full";
        partial: "lines", "Buffers that were written to memory before they were full";
        partial_writes: "writes", "Writes to memory of up to 8 bytes, from buffers that were not full";
        wait_cycles: "cycles", "Sum of the times that non-temporal stores waited for a free buffer";
    }
}

/// Outcome of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// Cycle at which no cache has the line, or has it dirty.
    pub at: Cycle,
    /// A private cache of this core had the line.
    pub present: bool,
}

/// A write-combining buffer.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    line: u64,
    /// Bytes collected; 0 if it collects nothing.
    bytes: u64,
    /// Number of the allocation.
    age: u64,
    /// Cycle from which it may collect another line.
    free: Cycle,
}

/// The write-combining buffers of a core.
#[derive(Clone, Debug)]
pub(super) struct WriteCombining {
    buffers: Vec<Buffer>,
    /// Buffers that collect.
    open: usize,
    allocated: u64,
    pub stats: WriteCombiningStats,
}

impl WriteCombining {
    /// Empty buffers, `buffers` of them.
    pub fn new(buffers: u32) -> Self {
        let empty = Buffer {
            line: 0,
            bytes: 0,
            age: 0,
            free: 0,
        };
        WriteCombining {
            buffers: vec![empty; buffers as usize],
            open: 0,
            allocated: 0,
            stats: WriteCombiningStats::default(),
        }
    }

    /// The buffer that collects `line`.
    fn find(&self, line: u64) -> Option<usize> {
        if self.open == 0 {
            return None;
        }
        let collects = |b: &Buffer| b.bytes != 0 && b.line == line;
        self.buffers.iter().position(collects)
    }

    /// The buffer for another line: that which is free first, else the oldest.
    fn next(&self) -> usize {
        let all = self.buffers.iter().enumerate();
        let order = |b: &Buffer| (b.bytes != 0, if b.bytes == 0 { b.free } else { b.age });
        all.min_by_key(|(_, b)| order(b)).map_or(0, |(n, _)| n)
    }
}

impl Private {
    /// Serves a flush of the line of `at` at `now`. It takes an MSHR of the first level for
    /// data until it is done.
    #[inline(never)]
    pub fn flush<B: Below>(
        &mut self,
        at: PhysAddr,
        kind: FlushKind,
        now: Cycle,
        below: &mut B,
    ) -> Flushed {
        let line = at.0 >> LINE_SHIFT;
        let slot = self.first[DATA].mshrs.admit(now);
        let mut from = slot.start;
        if let Some(n) = self.combining.find(line) {
            from = from.max(self.write_combined(n, from, below));
        }
        let keeps = kind == FlushKind::WriteBack;
        let (present, dirty, ready) = self.flush_own(line, keeps);
        let flush = Flush {
            core: self.core,
            keeps,
            dirty,
        };
        let done = below.flush(at, flush, from.max(ready));
        Flushed {
            at: self.first[DATA].mshrs.hold(slot, done),
            present,
        }
    }

    /// Functional warming by [`Private::flush`].
    #[inline(never)]
    pub fn warm_flush<B: Below>(&mut self, at: PhysAddr, kind: FlushKind, below: &mut B) {
        let keeps = kind == FlushKind::WriteBack;
        let (_, dirty, _) = self.flush_own(at.0 >> LINE_SHIFT, keeps);
        let flush = Flush {
            core: self.core,
            keeps,
            dirty,
        };
        below.warm_flush(at, flush);
    }

    /// Removes the line from the core's caches, or cleans it. Returns true if one had it, true if
    /// one had it dirty, and the cycle from which all have it.
    fn flush_own(&mut self, line: u64, keeps: bool) -> (bool, bool, Cycle) {
        let (mut present, mut dirty, mut ready) = (false, false, 0);
        for cache in self.caches_mut() {
            let Some(at) = cache.find(line) else {
                continue;
            };
            present = true;
            ready = ready.max(cache.ready(at));
            dirty |= cache.flags(at) & DIRTY != 0;
            if keeps {
                cache.clear_flags(at, DIRTY | OWNED);
            } else {
                cache.remove(at);
            }
        }
        (present, dirty, ready)
    }

    /// Serves a non-temporal store to the bytes `low..=high` of the line of `at`. Returns the cycle
    /// at which a buffer has them.
    #[inline(never)]
    pub fn store_past_caches<B: Below>(
        &mut self,
        at: PhysAddr,
        (low, high): (u8, u8),
        now: Cycle,
        below: &mut B,
    ) -> Cycle {
        let line = at.0 >> LINE_SHIFT;
        self.combining.stats.stores += 1;
        let (n, start) = match self.combining.find(line) {
            Some(n) => (n, now),
            None => {
                let n = self.combining.next();
                if self.combining.buffers[n].bytes != 0 {
                    self.write_combined(n, now, below);
                }
                let start = now.max(self.combining.buffers[n].free);
                self.combining.stats.wait_cycles += start - now;
                self.combining.allocated += 1;
                self.combining.open += 1;
                let buffer = &mut self.combining.buffers[n];
                (buffer.line, buffer.age) = (line, self.combining.allocated);
                let (_, dirty, ready) = self.flush_own(line, false);
                let flush = Flush {
                    core: self.core,
                    keeps: false,
                    dirty,
                };
                below.flush(at, flush, start.max(ready));
                (n, start)
            }
        };
        let buffer = &mut self.combining.buffers[n];
        buffer.bytes |= u64::MAX >> (63 - (high - low)) << low;
        if buffer.bytes == u64::MAX {
            self.write_combined(n, start, below);
        }
        start
    }

    /// Functional warming by [`Private::store_past_caches`].
    #[inline(never)]
    pub fn warm_store_past_caches<B: Below>(&mut self, at: PhysAddr, below: &mut B) {
        self.warm_flush(at, FlushKind::Unordered, below);
        below.warm_write_memory(at, self.core);
    }

    /// Writes the buffers that collect to memory. Returns when all buffers have been written.
    #[inline(never)]
    pub fn drain_write_combining<B: Below>(&mut self, now: Cycle, below: &mut B) -> Cycle {
        for n in 0..self.combining.buffers.len() {
            if self.combining.open > 0 && self.combining.buffers[n].bytes != 0 {
                self.write_combined(n, now, below);
            }
        }
        let ends = self.combining.buffers.iter().map(|b| b.free);
        ends.max().unwrap_or(0)
    }

    /// Counters of the write-combining buffers.
    pub fn write_combining(&self) -> WriteCombiningStats {
        self.combining.stats
    }

    /// True if a buffer collects `line`.
    #[inline]
    pub(super) fn combines(&self, line: u64) -> bool {
        self.combining.open != 0 && self.combining.find(line).is_some()
    }

    /// Writes the buffer of `line` to memory before an access to the line. Returns when it is done.
    #[cold]
    pub(super) fn write_before_access<B: Below>(
        &mut self,
        line: u64,
        now: Cycle,
        below: &mut B,
    ) -> Cycle {
        match self.combining.find(line) {
            Some(n) => self.write_combined(n, now, below),
            None => now,
        }
    }

    /// Writes buffer `n` to memory at `now`. Returns when it is done.
    fn write_combined<B: Below>(&mut self, n: usize, now: Cycle, below: &mut B) -> Cycle {
        let buffer = &mut self.combining.buffers[n];
        let (line, bytes) = (buffer.line, std::mem::take(&mut buffer.bytes));
        self.combining.open -= 1;
        let stats = &mut self.combining.stats;
        let parts = if bytes == u64::MAX {
            stats.full += 1;
            1
        } else {
            let parts = bytes.to_le_bytes().iter().filter(|&&b| b != 0).count() as u32;
            stats.partial += 1;
            stats.partial_writes += u64::from(parts);
            parts
        };
        // A prefetch may have brought the line again.
        self.flush_own(line, false);
        let done = below.write_memory(address(line), self.core, parts, now);
        self.combining.buffers[n].free = done;
        done
    }
}
