//! The registry of speculation engines.

use std::collections::BTreeMap;

use pagewalk_units::Error;
use pagewalk_units::external::{Kind, Parameters};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Engine;
use super::kind::{EXTERNAL, EngineArray, EngineKind, HashedGuesses};

/// Each line: name in configurations, variant, and parameters.
macro_rules! engines {
    ($($(#[$doc:meta])* $name:literal => $variant:ident($file:ident::$spec:ident),)*) => {
        /// Speculation engine of each core.
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub enum EngineSpec {
            $($(#[$doc])* #[serde(rename = $name)] $variant(super::$file::$spec),)*
            /// A kind that another crate has registered: its name, with its parameters.
            #[serde(rename = "external")]
            External(BTreeMap<String, Parameters>),
        }

        $(pub use super::$file::$spec;)*

        impl EngineSpec {
            /// Key, below `engine`, and configuration of the engine.
            fn kind(&self) -> Result<(String, Kind<'_, dyn EngineKind>), Error> {
                match self {
                    $(EngineSpec::$variant(spec) => Ok(($name.to_owned(), Kind::Own(spec))),)*
                    EngineSpec::External(kinds) => {
                        let kind = Kind::External(EXTERNAL.read_one(kinds)?);
                        let name = kinds.keys().next().map_or("", String::as_str);
                        Ok((format!("external.{name}"), kind))
                    }
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

impl EngineSpec {
    /// Checks the values. An error names the key and the expected values.
    ///
    /// # Errors
    /// One sentence that names the impossible key.
    pub fn check(&self) -> Result<(), Error> {
        let (name, kind) = self.kind()?;
        kind.check().map_err(|e| e.under(&name).under("engine"))
    }

    /// As `kind`, of a checked configuration.
    fn checked(&self) -> (String, Kind<'_, dyn EngineKind>) {
        self.kind().expect("a configuration that was checked")
    }

    /// Builds the untrained engine of one core with this clock frequency. The configuration has
    /// been checked, as for the methods below.
    pub fn build(&self, frequency_ghz: f64) -> Box<dyn Engine> {
        self.checked().1.build(frequency_ghz)
    }

    /// Its array, for the energy model.
    pub fn array(&self) -> Option<EngineArray> {
        self.checked().1.array()
    }

    /// Its key below `engine`, and its guesses by the kernel's hashes, if it makes such.
    pub fn hashed_guesses(&self) -> Option<(String, HashedGuesses)> {
        let (name, kind) = self.checked();
        Some((name, kind.hashed_guesses()?))
    }
}
