//! Misses of a core that has a speculation engine.

use pagewalk_memory::Below;
use pagewalk_units::{Cycle, PhysAddr};

use super::miss::EndedWalk;
use super::{Lookup, Mmu, WalkContext};
use crate::engine::{Miss, Outcome};

impl Miss {
    /// The miss of `lookup`, which the last TLB detected at `at`.
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
    /// Lets the engine guess, requests a walker at `requested`, and walks.
    #[inline(never)]
    pub(super) fn walk_and_guess<B: Below>(
        &mut self,
        lookup: &Lookup,
        requested: Cycle,
        context: &mut WalkContext<'_, B>,
    ) -> EndedWalk {
        let miss = Miss::of(lookup, requested, false);
        let Some(speculation) = &mut self.speculation else {
            unreachable!("only a core with an engine comes here");
        };
        speculation.issue(&miss, context);
        let notes = std::mem::take(&mut speculation.reads);
        let mut ended = self.walk(lookup, requested, Some(notes), context);
        let recorded = self.records.is_some();
        if let Some(speculation) = &mut self.speculation {
            let walked = ended.found.as_ref().ok();
            let outcome = Outcome {
                walked,
                data: walked.map(|walked| walked.pa(lookup.va)),
                reads: &ended.reads,
                end: ended.end,
                hit: context.private.l2_latency(),
                recorded,
            };
            speculation.judge(&miss, &outcome, context.view);
            if !recorded {
                ended.reads.clear();
                speculation.reads = std::mem::take(&mut ended.reads);
            }
        }
        ended
    }

    /// Lets the engine guess for a lookup that merges with another's walk. The lookup missed all
    /// TLBs at `requested`. Its translation is known at `end`, and its data lies at `data`.
    #[inline(never)]
    pub(super) fn guess_merged<B: Below>(
        &mut self,
        lookup: &Lookup,
        data: PhysAddr,
        (requested, end): (Cycle, Cycle),
        context: &mut WalkContext<'_, B>,
    ) {
        let miss = Miss::of(lookup, requested, true);
        let recorded = self.records.is_some();
        if let Some(speculation) = &mut self.speculation {
            speculation.issue(&miss, context);
            let outcome = Outcome {
                walked: None,
                data: Some(data),
                reads: &[],
                end,
                hit: context.private.l2_latency(),
                recorded,
            };
            speculation.judge(&miss, &outcome, context.view);
        }
    }
}
