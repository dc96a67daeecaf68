//! Limits of a run: the measured part of a program, and how it is sampled.

use pagewalk_units::{Error, RunOption, text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::work::Work;

/// Sampling: `length` of every `period` instructions are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Instructions measured in each period.
    pub length: u64,
    /// Instructions from the start of one period to the next.
    pub period: u64,
    /// Warming before a sample. None: the last `length` instructions of a period are measured, and
    /// functional warming covers all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warming: Option<Warming>,
}

/// Warming before each sample, whose place in its period is random. The program is fast-forwarded to the
/// warming.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Warming {
    /// Instructions of filtered functional warming: only accesses to lines that were not used recently
    /// warm caches and TLBs.
    #[serde(default)]
    pub filtered: FilteredLength,
    /// Instructions of functional warming right before the sample: every access and branch warms caches,
    /// TLBs and predictors.
    pub warmed: u64,
}

/// A number of instructions; in JSON null for all, a number, or `"auto"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum FilteredLength {
    /// All since the last sample.
    #[default]
    All,
    /// At most this number.
    Last(u64),
    /// As many as the program needs, estimated from a part of it before the run. The result states the
    /// number.
    Auto(Auto),
}

/// The word `auto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Auto {
    /// The word.
    Auto,
}

impl FilteredLength {
    /// Upper bound in instructions; [`FilteredLength::Auto`], not yet resolved, has none.
    pub fn most(self) -> u64 {
        match self {
            FilteredLength::Last(n) => n,
            FilteredLength::All | FilteredLength::Auto(_) => u64::MAX,
        }
    }
}

/// The part of a program that is measured.
///
/// Instructions and requests are those of all threads together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Instructions to fast-forward: pages are mapped, nothing else happens.
    pub skip: u64,
    /// Instructions simulated with time, but left out of every statistic.
    pub warmup: u64,
    /// Instructions measured; None: to the program's end.
    pub instructions: Option<u64>,
    /// Requests to fast-forward, instead of `skip`.
    #[serde(skip_serializing_if = "is_zero")]
    pub skip_requests: u64,
    /// Requests left out of every statistic, instead of `warmup`.
    #[serde(skip_serializing_if = "is_zero")]
    pub warmup_requests: u64,
    /// Requests measured, if the instructions do not end first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Fast-forward to the region of interest, and stop where it ends. Where the ends of regions count as
    /// requests, measure that many regions and fast-forward between them.
    pub roi: bool,
    /// Sampling of the measured part.
    pub sample: Option<Sample>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
pub(crate) fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Length of the detailed warm-up before a sample if all instructions of the gap warm. It fills the
/// window and the queues, so it is several reorder buffers long.
pub(crate) const SAMPLE_DETAILED_WARMUP: u64 = 3000;

impl Warming {
    /// Length of the detailed warm-up before a sample after fast-forwarding or filtered warming. It also
    /// has to bring the load on DRAM to its steady state. `sysbench`, which saturates the DRAM bus, has a
    /// bias of 0.27 % with a warm-up of 3,000 instructions; with this length the bias is below what can
    /// be resolved.
    pub(crate) const DETAILED_WARMUP: u64 = 20_000;
}

impl Limits {
    /// Work of the measured part if no samples divide it, otherwise without end.
    pub(crate) fn undivided(&self) -> Work {
        if self.sample.is_some() {
            return Work::FOREVER;
        }
        Work::first_of(self.instructions, self.requests)
    }

    /// Refuses contradictory limits.
    ///
    /// # Errors
    /// One sentence that names the option.
    pub fn validate(&self) -> Result<(), Error> {
        if self.instructions == Some(0) {
            return Err(Error::value(
                RunOption::Instructions,
                "0",
                "nothing would be measured; expected at least 1",
            ));
        }
        if self.requests == Some(0) {
            return Err(Error::value(
                RunOption::Requests,
                "0",
                "nothing would be measured; expected at least 1",
            ));
        }
        for (option, by_requests, instructions, requests) in [
            (
                RunOption::Skip,
                RunOption::SkipRequests,
                self.skip,
                self.skip_requests,
            ),
            (
                RunOption::Warmup,
                RunOption::WarmupRequests,
                self.warmup,
                self.warmup_requests,
            ),
        ] {
            if instructions > 0 && requests > 0 {
                return Err(Error::about(
                    option,
                    text![option, " and ", by_requests, ": "],
                    "expected one of the two, in instructions or in requests",
                ));
            }
        }
        if let Some(s) = self.sample {
            if s.length == 0 {
                return Err(Error::option(
                    RunOption::Sample,
                    "LENGTH is 0; expected LENGTH/PERIOD such as 10k/1M",
                ));
            }
            if s.period.saturating_sub(s.length) < SAMPLE_DETAILED_WARMUP {
                return Err(Error::value(
                    RunOption::Sample,
                    format!("{}/{}", s.length, s.period),
                    format!(
                        "PERIOD has to be at least LENGTH + {SAMPLE_DETAILED_WARMUP} (the detailed warm-up, which fills the window)"
                    ),
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Limits, Sample};

    #[test]
    fn contradictory_limits_are_refused() {
        let bad = Limits {
            sample: Some(Sample {
                length: 10,
                period: 20,
                warming: None,
            }),
            ..Limits::default()
        };
        assert!(bad.validate().unwrap_err().to_string().contains("PERIOD"));
        assert!(
            Limits {
                instructions: Some(0),
                ..Limits::default()
            }
            .validate()
            .is_err()
        );
    }
}
