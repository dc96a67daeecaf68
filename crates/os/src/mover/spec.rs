//! What can be set of pages that the kernel moves or swaps out.

use pagewalk_units::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::khugepaged::KhugepagedCore;

/// Pages of programs move to other frames, as under NUMA balancing or compaction: so many 4 KB
/// pages at a time, taken at random. No source says at which rate; all defaults are ours.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MigrationSpec {
    /// From the end of one time to the beginning of the next, microseconds of simulated time.
    /// Default 1000.
    pub interval_us: f64,
    /// Pages taken at a time. Default 8.
    pub pages: u32,
    /// Whose time it takes. Default `own`: a core beside the simulated ones.
    pub core: KhugepagedCore,
}

impl Default for MigrationSpec {
    fn default() -> Self {
        MigrationSpec {
            interval_us: 1000.0,
            pages: 8,
            core: KhugepagedCore::Own,
        }
    }
}

/// Pages of programs are swapped out, as if memory were short: so many 4 KB pages at a time, taken
/// at random, whether they are in use or not. The next access to one is a page fault that waits
/// for the device. No source says at which rate; all defaults are ours.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SwapSpec {
    /// From the end of one time to the beginning of the next, microseconds of simulated time.
    /// Default 1000.
    pub interval_us: f64,
    /// Pages taken at a time. Default 8.
    pub pages: u32,
    /// Reading a page back, from the fault to the page, microseconds, in which its core does
    /// nothing else. Default 80 (a read of 4 KB from a solid-state drive). Writing out is in the
    /// background, and costs the program nothing.
    pub latency_us: f64,
    /// Whose time swapping out takes. Default `own`: a core beside the simulated ones.
    pub core: KhugepagedCore,
}

impl Default for SwapSpec {
    fn default() -> Self {
        SwapSpec {
            interval_us: 1000.0,
            pages: 8,
            latency_us: 80.0,
            core: KhugepagedCore::Own,
        }
    }
}

/// Longest time, microseconds: a second.
const MOST_US: f64 = 1e6;

fn check(key: &str, interval_us: f64, pages: u32) -> Result<(), Error> {
    if !(interval_us > 0.0 && interval_us <= MOST_US) {
        return Err(Error::key(
            format!("os.{key}.interval_us"),
            format!("is {interval_us}; expected microseconds above 0 and up to {MOST_US}"),
        ));
    }
    if pages == 0 || pages > 1 << 16 {
        return Err(Error::key(
            format!("os.{key}.pages"),
            format!("is {pages}; expected 1 to 65536"),
        ));
    }
    Ok(())
}

impl MigrationSpec {
    /// Whether the values make sense; an error names the key and what was expected.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check("migration", self.interval_us, self.pages)
    }
}

impl SwapSpec {
    /// Whether the values make sense; an error names the key and what was expected.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check("swap", self.interval_us, self.pages)?;
        if (0.0..=MOST_US).contains(&self.latency_us) {
            return Ok(());
        }
        Err(Error::key(
            "os.swap.latency_us",
            format!(
                "is {}; expected microseconds from 0 to {MOST_US}",
                self.latency_us
            ),
        ))
    }
}
