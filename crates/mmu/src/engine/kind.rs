//! Kinds of engines, as the rest of the machine sees them, and those that other crates add.

use pagewalk_units::Error;
use pagewalk_units::external::Registry;
use serde::de::DeserializeOwned;

use super::{Engine, GuessedLines, Nested};

/// The array of an engine, for the energy model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineArray {
    /// Name in the statistics, below `mmu.engine`.
    pub name: &'static str,
    /// Entries.
    pub entries: u32,
    /// Ways.
    pub ways: u32,
    /// Names of the counters of its lookups.
    pub lookups: &'static [&'static str],
    /// Names of the counters of its fills.
    pub fills: &'static [&'static str],
}

/// Guesses by the hashes with which the kernel places frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HashedGuesses {
    /// Kinds of lines that are guessed; the engine's key `what`.
    pub what: GuessedLines,
    /// True if data is guessed in 2 MB blocks, too; the engine's key `large`.
    pub large: bool,
    /// Page-table entries that are guessed in a virtual machine; the engine's key `nested`.
    pub nested: Option<Nested>,
}

/// The configuration of one kind of engine.
pub trait EngineKind {
    /// Checks the values. An error begins with the key.
    fn check(&self) -> Result<(), Error>;

    /// Builds the untrained engine of one core with this clock frequency.
    fn build(&self, frequency_ghz: f64) -> Box<dyn Engine>;

    /// Its array, for the energy model. Without one, its power is `energy.engine_mw`.
    fn array(&self) -> Option<EngineArray> {
        None
    }

    /// Its guesses by the kernel's hashes, if it makes such: the configuration must then have a
    /// placement that hashes.
    fn hashed_guesses(&self) -> Option<HashedGuesses> {
        None
    }
}

/// The external kinds.
pub(super) static EXTERNAL: Registry<dyn EngineKind> = Registry::new("engine");

/// Adds a kind of engine, which designs configure as `[engine.external.NAME]`. Its parameters are
/// the fields of `K`. A later kind of the same name replaces an earlier one.
pub fn register<K: EngineKind + DeserializeOwned + 'static>(name: &str) {
    EXTERNAL.register::<K>(name, |kind| Box::new(kind));
}
