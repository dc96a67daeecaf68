//! Which speculation engines there are.

use pagewalk_units::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Engine;

/// The configuration of one kind of engine.
pub(crate) trait EngineKind {
    /// Whether the values make sense; an error begins with the key.
    fn check(&self) -> Result<(), Error>;
    /// The engine of one core of this clock, which has learned nothing yet.
    fn build(&self, frequency_ghz: f64) -> Box<dyn Engine>;
}

/// Each line: the name in configurations, the variant, and its parameters.
macro_rules! engines {
    ($($(#[$doc:meta])* $name:literal => $variant:ident($file:ident::$spec:ident),)*) => {
        /// Which speculation engine each core has.
        #[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub enum EngineSpec {
            $($(#[$doc])* #[serde(rename = $name)] $variant(super::$file::$spec),)*
        }

        $(pub use super::$file::$spec;)*

        impl EngineSpec {
            /// Whether the values make sense; an error names the key and what was expected.
            pub fn check(&self) -> Result<(), Error> {
                let (name, done) = match self {
                    $(EngineSpec::$variant(spec) => ($name, EngineKind::check(spec)),)*
                };
                done.map_err(|what| what.under(name).under("engine"))
            }

            /// The engine of one core of this clock, which has learned nothing yet.
            pub fn build(&self, frequency_ghz: f64) -> Box<dyn Engine> {
                match self {
                    $(EngineSpec::$variant(spec) => spec.build(frequency_ghz),)*
                }
            }
        }
    };
}

engines! {
    /// Knows each translation when it is asked for: the most that speculation could gain.
    "perfect" => Perfect(perfect::PerfectSpec),
    /// Hashes as the kernel does that places by `placement.tiered_hash` (Revelator,
    /// section 5.3).
    "revelator" => Revelator(revelator::RevelatorSpec),
    /// SpecTLB (Barr et al., ISCA 2011): knows where the reservations of 2 MB regions lie
    /// that earlier walks have come upon.
    "spectlb" => SpecTlb(spectlb::SpecTlbSpec),
}
