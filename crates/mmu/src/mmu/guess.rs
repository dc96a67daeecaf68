//! Misses of a core with a speculation engine.

use pagewalk_memory::Below;
use pagewalk_units::Cycle;

use super::miss::Ended;
use super::{Lent, Lookup, Mmu};
use crate::engine::Miss;
use crate::walk::foresee;

impl Miss {
    /// `lookup`, which no TLB has answered at `at`.
    fn of(lookup: &Lookup, at: Cycle, merges: bool) -> Self {
        Miss {
            asid: lookup.asid,
            va: lookup.va,
            access: lookup.access,
            pc: lookup.pc,
            at,
            merges,
        }
    }
}

impl Mmu {
    /// A walk that is asked for at `asked`, before which the engine guesses.
    #[inline(never)]
    pub(super) fn walk_and_guess<B: Below>(
        &mut self,
        lookup: &Lookup,
        asked: Cycle,
        lent: &mut Lent<'_, B>,
    ) -> Ended {
        let miss = Miss::of(lookup, asked, false);
        let issued = self.speculation.as_mut().map(|s| s.issue(&miss, lent));
        let ended = self.walk(lookup, asked, lent);
        if let (Some(speculation), Some(issued)) = (&mut self.speculation, issued) {
            let walked = ended.found.as_ref().ok();
            speculation.judge(&miss, &issued, walked, lent.view, ended.end);
        }
        ended
    }

    /// Guesses for a lookup that no TLB has answered at the first of two times, and
    /// that a walk for another will have answered at the second.
    #[inline(never)]
    pub(super) fn guess_beside<B: Below>(
        &mut self,
        lookup: &Lookup,
        (asked, end): (Cycle, Cycle),
        lent: &mut Lent<'_, B>,
    ) {
        let miss = Miss::of(lookup, asked, true);
        if let Some(speculation) = &mut self.speculation {
            let issued = speculation.issue(&miss, lent);
            let walked = foresee(lent.view, lookup.va).ok();
            speculation.judge(&miss, &issued, walked.as_ref(), lent.view, end);
        }
    }
}
