//! Replacement policies of TLB arrays, one file each. A policy chooses the victim of a full set.

// The example of the how-to page has to pass the contract tests.
#[cfg(test)]
#[path = "../../../../docs/how-to/clock.rs"]
mod clock;
mod lfu;
pub(crate) mod lru;
mod random;
pub mod registry;
mod srrip;

use pagewalk_units::{Error, Rng};

pub(crate) use self::registry::Replacement;

/// Repeated uses of the most recently used entry that a policy must see. The filter of the last
/// page hides all others, because they would not change the policy's state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum HitVisibility {
    /// None: a fill or an earlier use is enough.
    NoRepeat,
    /// The first use after the fill.
    FirstUse,
    /// Every use.
    EveryUse,
}

/// A replacement policy of one array. The array fills free ways first, lowest way first. It
/// requests a victim only if all ways of the set are in use.
pub(crate) trait Policy: Sized {
    /// Its parameters. A policy without parameters uses `()` and is named by a word: `replacement =
    /// "NAME"`. Otherwise `replacement.NAME = { … }`.
    type Spec;

    /// The repeated hits that the policy must see. [`HitVisibility::EveryUse`] is right for all
    /// policies, but slows the simulator down. The test `filter_and_hints_change_nothing` checks
    /// any other value.
    const HIT_VISIBILITY: HitVisibility = HitVisibility::EveryUse;

    /// Checks the values. An error begins with the key below `replacement.NAME`.
    fn check(_spec: &Self::Spec) -> Result<(), Error> {
        Ok(())
    }

    /// Creates the policy of an empty array of `sets` x `ways`. `draws`: the array's own random
    /// stream.
    fn new(spec: &Self::Spec, sets: usize, ways: usize, draws: Rng) -> Self;

    /// An entry was put into `way` of `set`: a free way, or the last victim.
    fn filled(&mut self, set: usize, way: usize);

    /// The entry in `way` of `set` was used.
    fn used(&mut self, set: usize, way: usize);

    /// The victim: the way of `set` to replace. All ways are in use. The way is filled next.
    fn victim(&mut self, set: usize) -> usize;

    /// The entry in `way` of `set` was invalidated: the way is free.
    fn freed(&mut self, _set: usize, _way: usize) {}
}

#[cfg(test)]
mod contract_test;
