//! Flushes, and writes past the caches.

use pagewalk_units::Cycle;

use super::Shared;
use crate::Flush;
use crate::cache_array::DIRTY;

impl Shared {
    /// Serves a flush of `line` at all levels, the first of which knows the other cores' copies. Returns when it is
    /// done.
    #[inline(never)]
    pub(super) fn flush_line<const TIMED: bool>(
        &mut self,
        line: u64,
        flush: Flush,
        now: Cycle,
    ) -> Cycle {
        self.drain_deferred();
        if TIMED {
            self.serve_tenants(line, now);
        } else {
            self.warm_tenants(line);
        }
        let mut dirty = flush.dirty;
        let mut done = now + self.last_latency();
        if let Some(directory) = &mut self.directory {
            let (others, ready) = directory.flush(line, flush.core, flush.keeps, TIMED);
            if others {
                let asked = now.max(ready.unwrap_or(0));
                done = done.max(asked + self.remote_latency);
                dirty |= ready.is_some();
            }
        }
        for cache in self.levels.iter_mut() {
            let Some(at) = cache.find(line) else {
                continue;
            };
            done = done.max(cache.ready(at));
            dirty |= cache.flags(at) & DIRTY != 0;
            if flush.keeps {
                cache.clear_flags(at, DIRTY);
            } else {
                cache.remove(at);
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
