//! The oracle engine: all its guesses are right.

use pagewalk_units::{Cycle, Error};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Engine, EngineKind, Guess, GuessedLines, Guesses, Miss, NestedStep, Seen, What};
use crate::spec::MAX_LATENCY;
use crate::walk::{behind, translate_untimed};

/// An oracle engine: it guesses the right lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PerfectSpec {
    /// Kinds of lines to fetch.
    pub what: GuessedLines,
    /// Cycles from a miss of all TLBs to its guesses. Default 0.
    #[serde(default)]
    pub latency: Cycle,
    /// In a virtual machine also guess the entries within a nested walk: the guest's and the host's
    /// for each guest-physical address, as soon as the walk reaches it. Default false.
    #[serde(default)]
    pub nested: bool,
}

impl EngineKind for PerfectSpec {
    fn check(&self) -> Result<(), Error> {
        if self.latency > MAX_LATENCY {
            return Err(Error::key(
                "latency",
                format!("is {}; expected at most {MAX_LATENCY} cycles", self.latency),
            ));
        }
        Ok(())
    }
    fn build(&self, _: f64) -> Box<dyn Engine> {
        Box::new(Perfect {
            what: self.what,
            latency: self.latency,
            nested: self.nested,
        })
    }
}

/// The engine; it reads the page tables.
struct Perfect {
    what: GuessedLines,
    latency: Cycle,
    nested: bool,
}

impl Engine for Perfect {
    fn latency(&self) -> Cycle {
        self.latency
    }

    fn makes(&self, what: What) -> bool {
        self.what.has(what) && (what != What::Step || self.nested)
    }

    fn guesses_nested_steps(&self) -> bool {
        self.makes(What::Step)
    }

    /// Guesses the last entry of the host's walk, and the guest's entry that is read next.
    fn guess_step(&mut self, step: &NestedStep, seen: &Seen<'_>) -> Guesses {
        let what = What::Step;
        let lines = behind(seen.view, step).into_iter();
        lines.map(|at| Guess { at, what, after: 0 }).collect()
    }

    /// Guesses nothing if the page is not mapped.
    fn guess(&mut self, miss: &Miss, seen: &Seen<'_>) -> Guesses {
        let view = seen.view;
        let mut guesses = Guesses::new();
        let Ok(walked) = translate_untimed(view, miss.va) else {
            return guesses;
        };
        if self.makes(What::Entry) && !miss.merges {
            let what = What::Entry;
            let entries = walked.entries(view);
            guesses.extend(entries.into_iter().map(|at| Guess { at, what, after: 0 }));
        }
        if self.makes(What::Data) {
            guesses.push(Guess {
                at: walked.pa(miss.va),
                what: What::Data,
                after: 0,
            });
        }
        guesses
    }
}
