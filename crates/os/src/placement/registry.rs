//! The registry of placement policies.

use pagewalk_units::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Placement, ThpMode, ThpSizes};
use crate::khugepaged::KhugepagedSpec;

/// The configuration of one policy.
pub(crate) trait PolicySpec {
    /// Validates the values. An error begins with the key.
    fn check(&self) -> Result<(), Error>;
    /// Checks that the policy can work with `mb` MB of memory without the kernel's. An
    /// error begins with the key.
    fn check_memory(&self, _mb: u64) -> Result<(), Error> {
        Ok(())
    }
    /// Builds the policy for a memory of `frames` frames. An error begins with the key.
    fn build(&self, frames: u64) -> Result<Box<dyn Placement>, Error>;
    /// The mappings that may have huge pages, and those of the sizes below 2 MB. `None`: the policy makes no huge page.
    fn thp(&self) -> Option<(ThpMode, ThpSizes)> {
        None
    }
    /// The khugepaged that runs with the policy, and the mappings it covers.
    fn khugepaged(&self) -> Option<(KhugepagedSpec, ThpMode)> {
        None
    }
}

/// One line for each policy: the name in configurations, the variant, and its parameters.
macro_rules! placements {
    ($($(#[$doc:meta])* $name:literal => $variant:ident($file:ident::$spec:ident),)*) => {
        /// The placement policy: externally tagged, `[placement.thp]`.
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub enum PlacementSpec {
            $($(#[$doc])* #[serde(rename = $name)] $variant(super::$file::$spec),)*
        }

        $(pub use super::$file::$spec;)*

        impl PlacementSpec {
            /// Validates the values. An error names the key and the expected values.
            pub fn check(&self) -> Result<(), Error> {
                let (name, done) = match self {
                    $(PlacementSpec::$variant(spec) => ($name, PolicySpec::check(spec)),)*
                };
                done.map_err(|what| what.under(name).under("placement"))
            }

            /// Checks that the policy can work with `mb` MB of memory without the kernel's.
            /// Errors as for [`PlacementSpec::check`].
            pub fn check_memory(&self, mb: u64) -> Result<(), Error> {
                let (name, done) = match self {
                    $(PlacementSpec::$variant(spec) => ($name, PolicySpec::check_memory(spec, mb)),)*
                };
                done.map_err(|what| what.under(name).under("placement"))
            }

            /// Builds the policy for a memory of `frames` frames. Errors as for [`PlacementSpec::check`].
            pub(crate) fn build(&self, frames: u64) -> Result<Box<dyn Placement>, Error> {
                let (name, built) = match self {
                    $(PlacementSpec::$variant(spec) => ($name, spec.build(frames)),)*
                };
                built.map_err(|what| what.under(name).under("placement"))
            }

            /// The mappings that may have huge pages, and those of the sizes below 2 MB. `None`: the policy makes no
            /// huge page.
            pub(crate) fn thp(&self) -> Option<(ThpMode, ThpSizes)> {
                match self {
                    $(PlacementSpec::$variant(spec) => PolicySpec::thp(spec),)*
                }
            }

            /// The khugepaged that runs with the policy, and the mappings it covers.
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
    /// Eager paging (RMM, ISCA 2015). A call that allocates private anonymous memory also backs it, by 4 KB pages, in
    /// the largest free blocks. Memory is left to page faults if it is short or fragmented.
    "eager" => Eager(eager::EagerSpec),
    /// Linux-style transparent huge pages. The first touch of an aligned 2 MB of anonymous
    /// memory takes a free 2 MB block, if the mapping covers it and there is one. Otherwise
    /// it takes a 4 KB frame. khugepaged later collapses small pages into huge ones.
    "thp" => Thp(thp::ThpSpec),
    /// Reservation-based (Navarro et al., OSDI 2002). The first touch of a 2 MB region
    /// reserves a block, and 4 KB pages take their places in it. It becomes a 2 MB page
    /// when more than a configured share is in use.
    "reservation" => Reservation(reservation::ReservationSpec),
    /// Revelator's placement (sections 5.1 and 5.2). A page takes the frame that a hash of
    /// its number selects. If that is in use, further hashes follow, and finally the buddy
    /// allocator.
    "tiered_hash" => TieredHash(tiered_hash::TieredHashSpec),
    /// The frames that a kernel with Revelator's placement has recorded in a file. Pages that the file does not name
    /// come from the buddy allocator.
    "recorded" => Recorded(recorded::RecordedSpec),
}
