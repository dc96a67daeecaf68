//! Filtered functional warming of the L2. Only accesses that the filter of recent lines lets
//! through arrive here, and these are taken to miss the first level. No time passes, and nothing is
//! counted.

use pagewalk_units::{LINE_SHIFT, PhysAddr};

use super::{Entry, NO_LINE, Private, address};
use crate::cache_array::{DIRTY, OWNED, PREFETCHED};
use crate::prefetch::Wanted;
use crate::{Below, Request, RequestKind};

impl Private {
    /// Begins filtered functional warming. Until [`Private::end_filtered_warming`], all requests
    /// must come through [`Private::warm_filtered`] and [`Private::warm_filtered_walk`], and no
    /// other core may run. Returns true if an LRU stack replaces the L2, which is then the only level
    /// behind the first. If false, requests are warmed in full.
    pub fn begin_filtered_warming(&mut self) -> bool {
        let l2 = &self.further[0];
        self.warms_filtered =
            self.further.len() == 1 && l2.can_export_lru() && self.walks_enter != Entry::Below;
        self.last_filtered = NO_LINE;
        if self.warms_filtered {
            self.further[0].export_lru(&mut self.lru_stack);
        }
        self.warms_filtered
    }

    /// Ends filtered functional warming: copies the LRU stack back to the L2.
    pub fn end_filtered_warming(&mut self) {
        if std::mem::take(&mut self.warms_filtered) {
            self.further[0].import_lru(&self.lru_stack);
        }
    }

    /// Warms by a load, store or fetch that misses the first level.
    #[inline]
    pub fn warm_filtered<B: Below>(&mut self, request: Request, below: &mut B) {
        debug_assert!(matches!(
            request.kind,
            RequestKind::Load | RequestKind::Store | RequestKind::Fetch
        ));
        if !self.warms_filtered {
            self.warm_below_first(request, below);
            return;
        }
        let line = request.at.0 >> LINE_SHIFT;
        // If the last access was to the same line, the line is already the most recently used, and
        // the prefetcher was trained by it. A store then only sets flags.
        if line != self.last_filtered || request.kind != RequestKind::Store {
            self.warm_filtered_l2(&request, below);
            self.last_filtered = line;
        }
        if request.kind == RequestKind::Store {
            self.further[0].lru_set_flags(&mut self.lru_stack, line, DIRTY | OWNED);
        }
    }

    /// Warms by a walker's read of the entry at `at`.
    #[inline]
    pub fn warm_filtered_walk<B: Below>(&mut self, at: PhysAddr, below: &mut B) {
        let (core, pc) = (self.core, 0);
        let kind = RequestKind::Walk;
        let request = Request { at, kind, core, pc };
        if self.warms_filtered {
            self.last_filtered = NO_LINE;
            self.warm_filtered_l2(&request, below);
        } else {
            self.warm(request, below);
        }
    }

    /// As [`Private::access_further`] without time, on the LRU stack.
    #[inline]
    fn warm_filtered_l2<B: Below>(&mut self, request: &Request, below: &mut B) {
        let line = request.at.0 >> LINE_SHIFT;
        if !self.further[0].lru_hit(&mut self.lru_stack, line) {
            self.further[0].missed = true;
            below.warm(*request);
            self.fill_filtered(line, 0, below);
        }
        let l2 = &mut self.further[0];
        let Some(p) = &mut l2.prefetcher else {
            return;
        };
        let missed = std::mem::take(&mut l2.missed);
        let mut wanted = Wanted::new();
        if !p.train(request.kind, line, request.pc, missed, &mut wanted) {
            return;
        }
        for &line in &wanted {
            if !self.further[0].lru_holds(&self.lru_stack, line) {
                below.warm(Request {
                    at: address(line),
                    kind: RequestKind::Prefetch,
                    ..*request
                });
                self.fill_filtered(line, PREFETCHED, below);
            }
        }
    }

    /// Pushes `line` onto the LRU stack. A dirty victim is written back to the L3.
    #[inline(always)]
    fn fill_filtered<B: Below>(&mut self, line: u64, flags: u64, below: &mut B) {
        let victim = self.further[0].lru_fill(&mut self.lru_stack, line, flags);
        if let Some(line) = victim.line()
            && victim.dirty()
        {
            below.warm_write_back(address(line), self.core);
        }
    }
}
