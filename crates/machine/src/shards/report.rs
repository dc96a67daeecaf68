//! Counts of a shard's machines, and their form as text between hosts.

use pagewalk_stats::{Definition, Distribution, Tree};
use pagewalk_stream::Facts;
use pagewalk_structures::StaleOutcomes;
use pagewalk_units::Error;
use serde::{Deserialize, Serialize};

use crate::MODEL_VERSION;
use crate::estimate::{STALE_STRUCTURES, SampleCounts};
use crate::machine::{Machine, Outcome};
use crate::measure::Measured;
use crate::work::Work;

/// Counts of one design's machine in a shard.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Left {
    counters: Option<Counters>,
    core_cycles: Vec<u64>,
    cycles: u64,
    work: Work,
    samples: Vec<Sample>,
    simulated: u64,
    outcome: Option<Outcome>,
    #[serde(rename = "let_go")]
    broken_waits: u64,
    threads_in_turns: usize,
}

/// Values of a statistics tree, with the names of its rows and histograms. Each host has the definitions
/// itself.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counters {
    names: Vec<(String, String)>,
    values: Vec<u64>,
    distributions: Vec<Distribution>,
}

/// Counts of one sample; `stale` has hits and misses for each of [`STALE_STRUCTURES`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sample {
    work: Work,
    cycles: u64,
    values: Vec<u64>,
    #[serde(rename = "unknown")]
    stale: [[u64; 2]; STALE_STRUCTURES.len()],
}

/// Paths and names of all rows, then of all histograms.
fn names(tree: &Tree) -> Vec<(String, String)> {
    let rows = tree.rows.iter().map(|r| (&r.path, r.definition));
    let spreads = tree.spreads.iter().map(|s| (&s.path, s.definition));
    let named = |(path, definition): (&String, &Definition)| (path.clone(), definition.name.into());
    rows.chain(spreads).map(named).collect()
}

impl Counters {
    fn of(tree: Tree) -> Self {
        Counters {
            names: names(&tree),
            values: tree.rows.into_iter().map(|r| r.value).collect(),
            distributions: tree.spreads.into_iter().map(|s| s.values).collect(),
        }
    }

    /// The values in a tree with the rows of `shape`; nothing if the names differ.
    fn shaped(self, shape: &Tree) -> Option<Tree> {
        let mut tree = shape.clone();
        let fits = self.names == names(shape)
            && self.values.len() == tree.rows.len()
            && self.distributions.len() == tree.spreads.len();
        for (row, value) in tree.rows.iter_mut().zip(self.values) {
            row.value = value;
        }
        for (spread, values) in tree.spreads.iter_mut().zip(self.distributions) {
            spread.values = values;
        }
        fits.then_some(tree)
    }
}

impl Sample {
    fn of(counts: SampleCounts) -> Self {
        Sample {
            work: counts.work,
            cycles: counts.cycles,
            values: counts.values,
            stale: counts.stale.map(|u| [u.hits, u.misses]),
        }
    }

    fn counts(self) -> SampleCounts {
        SampleCounts {
            work: self.work,
            cycles: self.cycles,
            values: self.values,
            stale: self
                .stale
                .map(|[hits, misses]| StaleOutcomes { hits, misses }),
        }
    }
}

impl Left {
    /// Takes the counts from `machine`.
    pub(super) fn of(machine: &mut Machine) -> Self {
        let cores = machine.cores.len();
        let measured = std::mem::replace(&mut machine.measured, Measured::new(None, None, cores));
        Left {
            counters: measured.tree.map(Counters::of),
            core_cycles: measured.core_cycles,
            cycles: measured.cycles,
            work: measured.work,
            samples: measured.samples.into_iter().map(Sample::of).collect(),
            simulated: machine.simulated,
            outcome: machine.outcome.clone(),
            broken_waits: machine.broken_waits,
            threads_in_turns: machine.threads_in_turns,
        }
    }

    /// Gives the counts of all shards, in order, to `machine`, which simulated the last one. It then
    /// reports as if it had simulated all of them. Nothing if a shard counted other statistics.
    pub(super) fn all_into(shards: Vec<Left>, machine: &mut Machine) -> Option<()> {
        let shape = machine.tree();
        let mut measured = Measured::new(None, None, machine.cores.len());
        let mut outcome = Some(Outcome::Complete);
        (
            machine.simulated,
            machine.broken_waits,
            machine.threads_in_turns,
        ) = (0, 0, 0);
        for left in shards {
            let tree = match left.counters {
                Some(counters) => Some(counters.shaped(&shape)?),
                None => None,
            };
            let samples: Vec<SampleCounts> = left.samples.into_iter().map(Sample::counts).collect();
            let rows = shape.rows.len();
            if samples.iter().any(|s| s.values.len() != rows)
                || left.core_cycles.len() != machine.cores.len()
            {
                return None;
            }
            measured.go_on(tree, left.core_cycles, left.cycles, left.work, samples);
            if outcome == Some(Outcome::Complete) {
                outcome = left.outcome;
            }
            machine.simulated += left.simulated;
            machine.broken_waits += left.broken_waits;
            machine.threads_in_turns = machine.threads_in_turns.max(left.threads_in_turns);
        }
        machine.measured = measured;
        machine.outcome = outcome;
        Some(())
    }
}

/// Result of a shard on a remote host.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Report {
    model: u32,
    program: String,
    instructions: Option<u64>,
    designs: Vec<Left>,
}

impl Report {
    pub(super) fn new(facts: &Facts, designs: Vec<Left>) -> Self {
        Report {
            model: MODEL_VERSION,
            program: facts.name.clone(),
            instructions: facts.instructions,
            designs,
        }
    }

    /// Counts of a shard from its text, for a recording with `facts` and the given number of designs.
    ///
    /// # Errors
    /// The text is malformed, or comes from another recording, another number of designs or another model
    /// version.
    pub(super) fn read(text: &str, facts: &Facts, designs: usize) -> Result<Vec<Left>, Error> {
        let report: Report = serde_json::from_str(text)
            .map_err(|e| Error::refused(format!("what came back is not understood: {e}")))?;
        if report.model != MODEL_VERSION {
            return Err(Error::refused(format!(
                "Pagewalk has model version {} there and {MODEL_VERSION} here; install the same on both",
                report.model
            )));
        }
        if (&report.program, report.instructions) != (&facts.name, facts.instructions) {
            return Err(Error::refused(format!(
                "the trace there is one of {} ({} instructions), the one here of {} ({}): expected the same file at the same path",
                report.program,
                instructions_text(report.instructions),
                facts.name,
                instructions_text(facts.instructions)
            )));
        }
        if report.designs.len() != designs {
            return Err(Error::refused(format!(
                "{} designs were simulated there of {designs}",
                report.designs.len()
            )));
        }
        Ok(report.designs)
    }
}

fn instructions_text(instructions: Option<u64>) -> String {
    instructions.map_or("an unknown number of".to_owned(), |n| n.to_string())
}
