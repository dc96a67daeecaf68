//! Which placement policies there are.

use pagewalk_units::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Placement, ThpMode};
use crate::khugepaged::KhugepagedSpec;

/// The configuration of one policy.
pub(crate) trait PolicySpec {
    /// Whether the values make sense; an error begins with the key.
    fn check(&self) -> Result<(), Error>;
    /// Whether it can work in memory of so many MB beside the kernel's; an error likewise.
    fn check_memory(&self, _mb: u64) -> Result<(), Error> {
        Ok(())
    }
    /// The policy.
    fn build(&self) -> Box<dyn Placement>;
    /// The khugepaged that works beside it, and for which mappings.
    fn khugepaged(&self) -> Option<(KhugepagedSpec, ThpMode)> {
        None
    }
}

/// Each line: the name in configurations, the variant, and its parameters.
macro_rules! placements {
    ($($(#[$doc:meta])* $name:literal => $variant:ident($file:ident::$spec:ident),)*) => {
        /// How frames are chosen: externally tagged, `[placement.thp]`.
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub enum PlacementSpec {
            $($(#[$doc])* #[serde(rename = $name)] $variant(super::$file::$spec),)*
        }

        $(pub use super::$file::$spec;)*

        impl PlacementSpec {
            /// Whether the values make sense; an error names the key and what was expected.
            pub fn check(&self) -> Result<(), Error> {
                let (name, done) = match self {
                    $(PlacementSpec::$variant(spec) => ($name, PolicySpec::check(spec)),)*
                };
                done.map_err(|what| what.under(name).under("placement"))
            }

            /// Whether it can work in memory of so many MB beside the kernel's; an error as
            /// [`PlacementSpec::check`]'s.
            pub fn check_memory(&self, mb: u64) -> Result<(), Error> {
                let (name, done) = match self {
                    $(PlacementSpec::$variant(spec) => ($name, PolicySpec::check_memory(spec, mb)),)*
                };
                done.map_err(|what| what.under(name).under("placement"))
            }

            /// The policy.
            pub(crate) fn build(&self) -> Box<dyn Placement> {
                match self {
                    $(PlacementSpec::$variant(spec) => spec.build(),)*
                }
            }

            /// The khugepaged that works beside it, and for which mappings.
            pub(crate) fn khugepaged(&self) -> Option<(KhugepagedSpec, ThpMode)> {
                match self {
                    $(PlacementSpec::$variant(spec) => PolicySpec::khugepaged(spec),)*
                }
            }
        }
    };
}

placements! {
    /// 4 KB frames from the buddy allocator.
    "buddy" => Buddy(buddy::BuddySpec),
    /// Linux-style transparent huge pages: the first touch of an aligned 2 MB
    /// of anonymous memory that the mapping covers takes a free 2 MB block if
    /// there is one, and a 4 KB frame otherwise. khugepaged makes huge pages of
    /// small ones later.
    "thp" => Thp(thp::ThpSpec),
    /// Reservation-based (Navarro et al., OSDI 2002): the first touch of a 2 MB
    /// region sets a block aside, 4 KB pages go to their place in it, and it
    /// becomes a 2 MB page when more than a share of it is in use.
    "reservation" => Reservation(reservation::ReservationSpec),
    /// Revelator's (sections 5.1 and 5.2): the frame that a hash of the page's number
    /// names, or another hash, and what the buddy allocator has where all of them are in
    /// use.
    "tiered_hash" => TieredHash(tiered_hash::TieredHashSpec),
}
