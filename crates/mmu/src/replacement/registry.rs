//! The registry of TLB replacement policies.

use pagewalk_units::{Error, Rng};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{HitVisibility, Policy};

/// Each line: name in configurations, variant with its parameters, if any, and policy. A condition
/// in brackets before it limits when it is compiled.
macro_rules! replacements {
    (@use $([$when:meta])?) => {};
    (@use $([$when:meta])? $of:ident::$spec:ident) => {
        $(#[cfg($when)])?
        pub use super::$of::$spec;
    };
    (@parameters) => { &() };
    (@parameters $spec:ident of $type:ident) => { $spec };
    ($(
        $(#[$meta:meta])*
        $([$when:meta])? $name:literal => $variant:ident $(($of:ident::$spec:ident))? : $file:ident::$policy:ident,
    )*) => {
        /// Replacement policy of a TLB array.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
        pub enum TlbReplacement {
            $($(#[$meta])* $(#[cfg($when)])? #[serde(rename = $name)] $variant $((super::$of::$spec))?,)*
        }

        $(replacements!(@use $([$when])? $($of::$spec)?);)*

        /// The replacement policy of one array. An enum, since it is on the simulator's fast path.
        #[derive(Clone, Debug)]
        pub(crate) enum Replacement {
            $($(#[cfg($when)])? $variant(super::$file::$policy),)*
        }

        impl TlbReplacement {
            /// Checks the values. An error begins with the key below the array's.
            pub(crate) fn check(&self) -> Result<(), Error> {
                let (name, done) = match self {
                    $($(#[cfg($when)])? TlbReplacement::$variant $((spec @ super::$of::$spec { .. }))? => {
                        let parameters = replacements!(@parameters $(spec of $spec)?);
                        ($name, <super::$file::$policy as Policy>::check(parameters))
                    })*
                };
                done.map_err(|what| what.under(name).under("replacement"))
            }

            /// Builds the policy of an empty array of `sets` x `ways`. `draws`: its random stream.
            pub(crate) fn build(&self, sets: usize, ways: usize, draws: Rng) -> Replacement {
                match self {
                    $($(#[cfg($when)])? TlbReplacement::$variant $((spec @ super::$of::$spec { .. }))? => {
                        let parameters = replacements!(@parameters $(spec of $spec)?);
                        let policy = super::$file::$policy::new(parameters, sets, ways, draws);
                        Replacement::$variant(policy)
                    })*
                }
            }

            /// The repeated hits that the policy must see.
            pub(crate) fn hit_visibility(&self) -> HitVisibility {
                match self {
                    $($(#[cfg($when)])? TlbReplacement::$variant { .. } => super::$file::$policy::HIT_VISIBILITY,)*
                }
            }

            /// One policy of each kind, by name, with default parameters.
            #[cfg(test)]
            pub(crate) fn all() -> Vec<(&'static str, TlbReplacement)> {
                vec![$(($name, TlbReplacement::$variant $((super::$of::$spec::default()))?),)*]
            }
        }

        impl Replacement {
            /// [`Policy::filled`].
            #[inline]
            pub fn filled(&mut self, set: usize, way: usize) {
                match self {
                    $($(#[cfg($when)])? Replacement::$variant(policy) => policy.filled(set, way),)*
                }
            }

            /// [`Policy::used`].
            #[inline]
            pub fn used(&mut self, set: usize, way: usize) {
                match self {
                    $($(#[cfg($when)])? Replacement::$variant(policy) => policy.used(set, way),)*
                }
            }

            /// [`Policy::victim`].
            #[inline]
            pub fn victim(&mut self, set: usize) -> usize {
                match self {
                    $($(#[cfg($when)])? Replacement::$variant(policy) => policy.victim(set),)*
                }
            }

            /// [`Policy::freed`].
            #[inline]
            pub fn freed(&mut self, set: usize, way: usize) {
                match self {
                    $($(#[cfg($when)])? Replacement::$variant(policy) => policy.freed(set, way),)*
                }
            }
        }
    };
}

replacements! {
    /// Least recently used.
    #[default]
    "lru" => Lru: lru::Lru,
    /// Least frequently used, as in DynamoRIO's drcachesim: an entry counts its uses since its
    /// fill. Free ways are filled first, then the lowest way of those with the fewest uses is
    /// replaced. Counts never age.
    "lfu" => Lfu: lfu::Lfu,
    /// Static re-reference interval prediction of 2 bits, with hit priority (Jaleel et al.,
    /// ISCA 2010, section 4.1).
    "srrip" => Srrip: srrip::Srrip,
    /// A random entry of the set, drawn uniformly from the array's own random stream.
    "random" => Random: random::Random,
    /// The example of docs/how-to/tlb-policy.md.
    [test] "clock" => Clock(clock::ClockSpec): clock::Clock,
}
