//! The registry of speculation engines.

use pagewalk_units::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Engine;

/// The configuration of one kind of engine.
pub(crate) trait EngineKind {
    /// Checks the values. An error begins with the key.
    fn check(&self) -> Result<(), Error>;
    /// Builds the untrained engine of one core with this clock frequency.
    fn build(&self, frequency_ghz: f64) -> Box<dyn Engine>;
}

/// Each line: name in configurations, variant, and parameters.
macro_rules! engines {
    ($($(#[$doc:meta])* $name:literal => $variant:ident($file:ident::$spec:ident),)*) => {
        /// Speculation engine of each core.
        #[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub enum EngineSpec {
            $($(#[$doc])* #[serde(rename = $name)] $variant(super::$file::$spec),)*
        }

        $(pub use super::$file::$spec;)*

        impl EngineSpec {
            /// Checks the values. An error names the key and the expected values.
            pub fn check(&self) -> Result<(), Error> {
                let (name, done) = match self {
                    $(EngineSpec::$variant(spec) => ($name, EngineKind::check(spec)),)*
                };
                done.map_err(|what| what.under(name).under("engine"))
            }

            /// Builds the untrained engine of one core with this clock frequency.
            pub fn build(&self, frequency_ghz: f64) -> Box<dyn Engine> {
                match self {
                    $(EngineSpec::$variant(spec) => spec.build(frequency_ghz),)*
                }
            }
        }
    };
}

engines! {
    /// Oracle: knows each translation at the miss. An upper bound on the gain of speculation.
    "perfect" => Perfect(perfect::PerfectSpec),
    /// Guesses by the hashes of a kernel that places pages by `placement.tiered_hash` (Revelator,
    /// section 5.3).
    "revelator" => Revelator(revelator::RevelatorSpec),
    /// SpecTLB (Barr et al., ISCA 2011): remembers the reservations of 2 MB regions that earlier
    /// walks have found.
    "spectlb" => SpecTlb(spectlb::SpecTlbSpec),
}
