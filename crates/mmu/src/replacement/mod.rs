//! Replacement policies of TLB arrays: which entry of a full set goes. A file each.

// The page's example, as it stands, is held to the contract.
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

/// Which uses of the entry that was used last a policy has to be told of, while no other is
/// used: the rest would leave it as it is. What it need not see is not sent past the filter
/// of the page of the last access.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum HitVisibility {
    /// None: that the entry was put in, or used before, says it all.
    NoRepeat,
    /// The first after it was put in.
    FirstUse,
    /// Each.
    EveryUse,
}

/// A replacement policy of one array. Of a set that is not full no entry goes: the array takes
/// its first free way, and asks for a victim only where all ways are in use.
pub(crate) trait Policy: Sized {
    /// Its parameters; `()` of a policy that has none, whose name is then a word:
    /// `replacement = "NAME"`, else `replacement.NAME = { … }`.
    type Spec;

    /// What it has to be told of. [`HitVisibility::EveryUse`] is right for all, and slows the
    /// simulator down; the test `filter_and_hints_change_nothing` holds it to another.
    const HIT_VISIBILITY: HitVisibility = HitVisibility::EveryUse;

    /// Whether the values make sense; an error begins with the key below `replacement.NAME`.
    fn check(_spec: &Self::Spec) -> Result<(), Error> {
        Ok(())
    }

    /// For an empty array of `sets` x `ways`; what is drawn at random is drawn from `draws`,
    /// which is the array's alone.
    fn new(spec: &Self::Spec, sets: usize, ways: usize, draws: Rng) -> Self;

    /// An entry has been put into `way` of `set`: a free one, or the last victim.
    fn filled(&mut self, set: usize, way: usize);

    /// The entry in `way` of `set` has been used.
    fn used(&mut self, set: usize, way: usize);

    /// The way of `set` whose entry goes; all are in use. It is filled next.
    fn victim(&mut self, set: usize) -> usize;

    /// The entry in `way` of `set` has been invalidated: the way is free.
    fn freed(&mut self, _set: usize, _way: usize) {}
}

#[cfg(test)]
mod contract_test;
