//! Flushes, and writes past the caches.

use pagewalk_units::Cycle;

use super::Shared;
use crate::Flush;
use crate::cache_array::DIRTY;

impl Shared {
    /// Serves a flush of `line` at the L3, which knows the other cores' copies. Returns when it is
    /// done.
    #[inline(never)]
    pub(super) fn flush_line<const TIMED: bool>(
        &mut self,
        line: u64,
        flush: Flush,
        now: Cycle,
    ) -> Cycle {
        self.drain_deferred();
        let mut dirty = flush.dirty;
        let mut done = now + self.l3.latency();
        if let Some(directory) = &mut self.directory {
            let (others, ready) = directory.flush(line, flush.core, flush.keeps, TIMED);
            if others {
                let asked = now.max(ready.unwrap_or(0));
                done = done.max(asked + self.remote_latency);
                dirty |= ready.is_some();
            }
        }
        if let Some(at) = self.l3.find(line) {
            done = done.max(self.l3.ready(at));
            dirty |= self.l3.flags(at) & DIRTY != 0;
            if flush.keeps {
                self.l3.clear_flags(at, DIRTY);
            } else {
                self.l3.remove(at);
            }
        }
        if dirty {
            self.write_dram::<TIMED>(line, done)
        } else {
            done
        }
    }

    /// Writes `line` past the caches, in `parts` transactions. All copies are flushed first.
    #[inline(never)]
    pub(super) fn write_line<const TIMED: bool>(
        &mut self,
        line: u64,
        core: u8,
        parts: u32,
        now: Cycle,
    ) -> Cycle {
        let flush = Flush {
            core,
            keeps: false,
            dirty: false,
        };
        let from = self.flush_line::<TIMED>(line, flush, now);
        let mut done = from;
        for _ in 0..parts {
            done = done.max(self.write_dram::<TIMED>(line, from));
        }
        done
    }

    fn write_dram<const TIMED: bool>(&mut self, line: u64, now: Cycle) -> Cycle {
        if TIMED {
            return self.dram.write(line, now);
        }
        self.dram.warm(line);
        now
    }
}
