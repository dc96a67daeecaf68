//! Walks for which no request waits, and walks without time.

use pagewalk_memory::Below;
use pagewalk_units::{Asid, Cycle, VirtAddr};

use super::{Mmu, WalkContext};
use crate::walk::{LEVELS, Missing, Physical, Walked, Warming};

/// A finished background walk.
pub(super) struct BackgroundWalk {
    /// When a walker was free.
    pub start: Cycle,
    /// When the walk ended.
    pub end: Cycle,
    /// `None` if the page is not mapped.
    pub found: Option<Walked>,
    /// Its reads, by the level that served them.
    pub served: [u64; LEVELS],
}

impl Mmu {
    /// Walks in the background with the core's walkers and walk caches. The walk raises no fault,
    /// fills no TLB and is not counted among the MMU's walks.
    pub(super) fn walk_in_background<B: Below>(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        now: Cycle,
        context: &mut WalkContext<'_, B>,
    ) -> BackgroundWalk {
        let walker = self.walkers.admit(now);
        let start = walker.start;
        let mut served = [0; LEVELS];
        let mut port = Physical {
            private: context.private,
            below: context.below,
            core: self.core,
            served: &mut served,
            record: None,
            nested_steps: None,
        };
        let (end, found) = self.caches.walk(context.view, va, asid, &mut port, start);
        self.walkers.hold(walker, end);
        BackgroundWalk {
            start,
            end,
            found: found.ok(),
            served,
        }
    }

    /// Functional warming: walks without time and without counting. Updates walk caches and memory
    /// system.
    pub(super) fn walk_untimed<B: Below>(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        now: Cycle,
        context: &mut WalkContext<'_, B>,
    ) -> Result<Walked, Missing> {
        let mut port = Warming {
            private: context.private,
            below: context.below,
            core: self.core,
        };
        self.caches.count(false);
        let (_, found) = self.caches.walk(context.view, va, asid, &mut port, now);
        self.caches.count(true);
        found
    }
}
