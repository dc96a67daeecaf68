//! Deferred warming requests, served in batches.
//!
//! A warming request has no result, so it need not be served at once. In a batch, the host can
//! prefetch each set long before the search of it.

use pagewalk_units::{LINE_SHIFT, PhysAddr};

use super::{Shared, warm_levels, warm_written};
use crate::{Request, RequestKind};

/// Most deferred requests: the size of a full batch.
const MOST: usize = 2048;
/// Number of requests by which a set is prefetched into the host's caches before its search.
const SET_AHEAD: usize = 32;
/// Number of requests by which a tag of the set is prefetched.
const TAG_AHEAD: usize = 16;
/// Flag in the word of a line's number: a write-back of dirty data from the level above.
const WRITTEN: u64 = 1 << 63;

/// The deferred requests.
#[derive(Clone, Debug, Default)]
pub(super) struct DeferredWarming {
    /// Line numbers, in the order of the requests.
    requests: Vec<u64>,
    /// Scratch buffer for the lines whose DRAM rows the batch opens.
    opened: Vec<u64>,
}

impl Shared {
    /// Defers a warming request, or a write-back if `written`. Serves all when the batch is full.
    #[inline]
    pub(super) fn defer(&mut self, line: u64, written: bool) {
        let request = if written { line | WRITTEN } else { line };
        self.later.requests.push(request);
        if self.later.requests.len() >= MOST {
            self.drain();
        }
    }

    /// Serves all deferred requests, if there are any.
    #[inline(always)]
    pub(super) fn drain_deferred(&mut self) {
        if !self.later.requests.is_empty() {
            self.drain();
        }
    }

    /// Serves all deferred requests, in order.
    #[inline(never)]
    fn drain(&mut self) {
        let requests = std::mem::take(&mut self.later.requests);
        let mut opened = std::mem::take(&mut self.later.opened);
        let line = |ahead: usize| requests.get(ahead).map(|request| request & !WRITTEN);
        for line in (0..SET_AHEAD).filter_map(line) {
            self.levels[0].host_prefetch(line);
        }
        for line in (0..TAG_AHEAD).filter_map(line) {
            self.levels[0].host_prefetch_place(line);
        }
        for (n, request) in requests.iter().enumerate() {
            if let Some(line) = line(n + SET_AHEAD) {
                self.levels[0].host_prefetch(line);
            }
            if let Some(line) = line(n + TAG_AHEAD) {
                self.levels[0].host_prefetch_place(line);
            }
            let (line, written) = (request & !WRITTEN, request & WRITTEN != 0);
            let open = &mut |line| opened.push(line);
            if written {
                warm_written(self.levels.split_mut(), line, open);
                continue;
            }
            // Without a prefetcher, only the line matters.
            let request = Request {
                at: PhysAddr(line << LINE_SHIFT),
                kind: RequestKind::Load,
                core: 0,
                pc: 0,
            };
            warm_levels(self.levels.split_mut(), line, &request, open);
        }
        self.dram.warm_all(&opened);
        opened.clear();
        self.later.opened = opened;
        self.later.requests = requests;
        self.later.requests.clear();
    }
}

#[cfg(test)]
mod tests {
    use pagewalk_stats::Tree;
    use pagewalk_units::PhysAddr;
    use rand::{Rng, RngExt};

    use crate::common::{cache, ddr, shared};
    use crate::{Below, CacheSpec, Replacement, Report, Request, RequestKind, SetIndex};

    use super::{MOST, Shared};

    fn draw(random: &mut impl Rng, lines: u64) -> Request {
        let kinds = [
            RequestKind::Load,
            RequestKind::Store,
            RequestKind::Walk,
            RequestKind::Prefetch,
        ];
        Request {
            at: PhysAddr(random.random_range(0..lines) << 6),
            kind: kinds[random.random_range(0..4)],
            core: 0,
            pc: 0,
        }
    }

    /// Deferred requests leave the same state as immediate ones: tags, order of use, epochs and
    /// open rows, as later results and counters show.
    #[test]
    fn deferred_requests_have_the_same_effect_as_immediate_ones() {
        for (replacement, lines, index) in [
            (Replacement::Lru, 5000, SetIndex::Modulo),
            (Replacement::Lru, 5000, SetIndex::Xor),
            (Replacement::Lru, 200_000, SetIndex::Modulo),
            (Replacement::Srrip, 5000, SetIndex::Modulo),
        ] {
            let mut spec = shared();
            spec.l3 = Some(CacheSpec {
                replacement,
                index,
                ..cache(192, 12, 40, 64)
            });
            spec.dram = ddr(2);
            let mut later = Shared::new(&spec, 1, 1.0).expect("possible");
            assert!(later.defers_warming);
            let mut at_once = later.clone();
            at_once.defers_warming = false;
            let mut both = [&mut later, &mut at_once];
            let mut random = pagewalk_units::rng(lines, "later");
            let mut now = 0;
            for _ in 0..60 {
                // Full batches, and some that end early.
                for _ in 0..[3, MOST / 2, 3 * MOST][random.random_range(0..3)] {
                    let request = draw(&mut random, lines);
                    let written = random.random_range(0..4) == 0;
                    for shared in &mut both {
                        if written {
                            shared.warm_write_back(request.at, 0);
                        } else {
                            shared.warm(request);
                        }
                    }
                }
                if random.random_range(0..4) == 0 {
                    for shared in &mut both {
                        shared.mark_stale();
                    }
                }
                for _ in 0..random.random_range(0..200) {
                    let request = draw(&mut random, lines);
                    now += 400;
                    if random.random_range(0..4) == 0 {
                        for shared in &mut both {
                            shared.write_back(request.at, 0, now);
                        }
                    } else {
                        let [a, b] = both.each_mut().map(|shared| shared.access(request, now));
                        assert_eq!(a, b);
                    }
                }
                let [a, b] = both.each_ref().map(|s| s.stale().collect::<Vec<_>>());
                assert_eq!(a, b);
            }
            let [a, b] = both.map(|shared| {
                let mut tree = Tree::default();
                shared.report("", &mut tree);
                tree.rows
            });
            assert_eq!(a, b);
        }
    }
}
