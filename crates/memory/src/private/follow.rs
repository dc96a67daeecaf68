//! The L2 while lines are followed, which the first level lacks: no time passes, and nothing is counted.

use pagewalk_units::{LINE_SHIFT, PhysAddr};

use super::{NO_LINE, Private, address};
use crate::lines::{DIRTY, OWNED, PREFETCHED};
use crate::prefetch::Wanted;
use crate::{Below, Enter, Kind, Request};

impl Private {
    /// From here on all requests are those of [`Private::follow`] and [`Private::follow_walk`], up to
    /// [`Private::end_following`], and no other core's caches are there. Whether the L2 is kept in the
    /// order of use meanwhile: where not, requests are warmed as ever.
    pub fn begin_following(&mut self) -> bool {
        self.follows = self.l2.can_be_laid_out() && self.walks_enter != Enter::L3;
        self.followed = NO_LINE;
        if self.follows {
            self.l2.lay_out(&mut self.ordered);
        }
        self.follows
    }

    /// Up to here.
    pub fn end_following(&mut self) {
        if std::mem::take(&mut self.follows) {
            self.l2.take_over(&self.ordered);
        }
    }

    /// State only, of a load, store or fetch that the first level lacks, while followed.
    #[inline]
    pub fn follow<B: Below>(&mut self, request: Request, below: &mut B) {
        debug_assert!(matches!(
            request.kind,
            Kind::Load | Kind::Store | Kind::Fetch
        ));
        if !self.follows {
            self.warm_below_first(request, below);
            return;
        }
        let line = request.at.0 >> LINE_SHIFT;
        // A line that is read and then written is the last used one already, and its prefetcher has
        // seen it.
        if line != self.followed || request.kind != Kind::Store {
            self.follow_second(&request, below);
            self.followed = line;
        }
        if request.kind == Kind::Store {
            self.l2.follow_flags(&mut self.ordered, line, DIRTY | OWNED);
        }
    }

    /// The same of a walker's read of the entry at `at`.
    #[inline]
    pub fn follow_walk<B: Below>(&mut self, at: PhysAddr, below: &mut B) {
        let (core, pc) = (self.core, 0);
        let kind = Kind::Walk;
        let request = Request { at, kind, core, pc };
        if self.follows {
            self.followed = NO_LINE;
            self.follow_second(&request, below);
        } else {
            self.warm(request, below);
        }
    }

    /// What [`Private::second`] does, without time, to what stands for the L2.
    #[inline]
    fn follow_second<B: Below>(&mut self, request: &Request, below: &mut B) {
        let line = request.at.0 >> LINE_SHIFT;
        if !self.l2.follow_hit(&mut self.ordered, line) {
            self.l2.news = true;
            below.warm(*request);
            self.follow_fill(line, 0, below);
        }
        let Some(p) = &mut self.l2.prefetcher else {
            return;
        };
        let news = std::mem::take(&mut self.l2.news);
        let mut wanted = Wanted::new();
        if !p.train(request.kind, line, request.pc, news, &mut wanted) {
            return;
        }
        for &line in &wanted {
            if !self.l2.follows(&self.ordered, line) {
                below.warm(Request {
                    at: address(line),
                    kind: Kind::Prefetch,
                    ..*request
                });
                self.follow_fill(line, PREFETCHED, below);
            }
        }
    }

    #[inline(always)]
    fn follow_fill<B: Below>(&mut self, line: u64, flags: u64, below: &mut B) {
        let victim = self.l2.follow_fill(&mut self.ordered, line, flags);
        if let Some(line) = victim.line()
            && victim.dirty()
        {
            below.warm_write_back(address(line), self.core);
        }
    }
}
