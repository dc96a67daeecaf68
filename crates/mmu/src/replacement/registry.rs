//! Which replacement policies there are.

use pagewalk_units::{Error, Rng};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{HitVisibility, Policy};

/// Each line: the name in configurations, the variant, with the parameters if it has some, and
/// the policy. Before it, in brackets, the condition under which it is compiled, if there is one.
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

        /// A policy of one array. An enum, since the fast path goes through it.
        #[derive(Clone, Debug)]
        pub(crate) enum Replacement {
            $($(#[cfg($when)])? $variant(super::$file::$policy),)*
        }

        impl TlbReplacement {
            /// Whether the values make sense; an error begins with the key below the array's.
            pub(crate) fn check(&self) -> Result<(), Error> {
                let (name, done) = match self {
                    $($(#[cfg($when)])? TlbReplacement::$variant $((spec @ super::$of::$spec { .. }))? => {
                        let parameters = replacements!(@parameters $(spec of $spec)?);
                        ($name, <super::$file::$policy as Policy>::check(parameters))
                    })*
                };
                done.map_err(|what| what.under(name).under("replacement"))
            }

            /// The policy of an empty array of `sets` x `ways`, which draws from `draws`.
            pub(crate) fn build(&self, sets: usize, ways: usize, draws: Rng) -> Replacement {
                match self {
                    $($(#[cfg($when)])? TlbReplacement::$variant $((spec @ super::$of::$spec { .. }))? => {
                        let parameters = replacements!(@parameters $(spec of $spec)?);
                        let policy = super::$file::$policy::new(parameters, sets, ways, draws);
                        Replacement::$variant(policy)
                    })*
                }
            }

            /// What the policy has to be told of.
            pub(crate) fn hit_visibility(&self) -> HitVisibility {
                match self {
                    $($(#[cfg($when)])? TlbReplacement::$variant { .. } => super::$file::$policy::HIT_VISIBILITY,)*
                }
            }

            /// One of each kind, by name; those that have parameters with their defaults.
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
    /// Least frequently used, as DynamoRIO's drcachesim has it: an entry counts its
    /// uses from its fill on, and the lowest way of those with the fewest goes, after
    /// the ways not in use. Counts never age.
    "lfu" => Lfu: lfu::Lfu,
    /// Static re-reference interval prediction of 2 bits, with hit priority (Jaleel et al.,
    /// ISCA 2010, section 4.1).
    "srrip" => Srrip: srrip::Srrip,
    /// Any entry of the set, each as likely, drawn from a stream of the array's own.
    "random" => Random: random::Random,
    /// That of docs/how-to/tlb-policy.md.
    [test] "clock" => Clock(clock::ClockSpec): clock::Clock,
}
