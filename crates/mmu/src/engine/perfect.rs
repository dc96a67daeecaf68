//! An engine that is never wrong.

use pagewalk_units::{Cycle, Error};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::registry::EngineKind;
use super::{Engine, Guess, GuessedLines, Guesses, Miss, NestedStep, Seen, What};
use crate::spec::MAX_LATENCY;
use crate::walk::{behind, translate_untimed};

/// An engine that knows the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PerfectSpec {
    /// Which lines it has fetched.
    pub what: GuessedLines,
    /// Cycles from a miss of all TLBs to its guesses. Default 0.
    #[serde(default)]
    pub latency: Cycle,
    /// In a virtual machine also the entries that a nested walk comes by: of guest and host
    /// for each guest-physical address, as soon as the walk has it. Default false.
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

/// It asks the tables themselves.
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

    /// What the host's walk ends at, and what the guest's then reads.
    fn guess_step(&mut self, step: &NestedStep, seen: &Seen<'_>) -> Guesses {
        let what = What::Step;
        let lines = behind(seen.view, step).into_iter();
        lines.map(|at| Guess { at, what }).collect()
    }

    /// Nothing for a miss that ends in a fault for want of a page.
    fn guess(&mut self, miss: &Miss, seen: &Seen<'_>) -> Guesses {
        let view = seen.view;
        let mut guesses = Guesses::new();
        let Ok(walked) = translate_untimed(view, miss.va) else {
            return guesses;
        };
        if self.makes(What::Entry) && !miss.merges {
            let what = What::Entry;
            let entries = walked.entries(view);
            guesses.extend(entries.into_iter().map(|at| Guess { at, what }));
        }
        if self.makes(What::Data) {
            guesses.push(Guess {
                at: walked.pa(miss.va),
                what: What::Data,
            });
        }
        guesses
    }
}
