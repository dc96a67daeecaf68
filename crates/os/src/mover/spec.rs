//! Parameters of page migration and swapping.

use pagewalk_units::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::khugepaged::KhugepagedCore;

/// Page migration, as under NUMA balancing or compaction: several random 4 KB pages at a time move
/// to other frames. No source gives a rate; all defaults are ours.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MigrationSpec {
    /// Interval from the end of a pass to the start of the next, microseconds of simulated time.
    /// Default 1000.
    pub interval_us: f64,
    /// Pages of each pass. Default 8.
    pub pages: u32,
    /// The core that the work runs on. Default `own`: a core of its own, which is not simulated.
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

/// Swapping, as under memory pressure: several random 4 KB pages at a time are swapped out, in use
/// or not. The next access to such a page is a page fault that waits for the device. No source
/// gives a rate; all defaults are ours.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SwapSpec {
    /// Interval from the end of a pass to the start of the next, microseconds of simulated time.
    /// Default 1000.
    pub interval_us: f64,
    /// Pages of each pass. Default 8.
    pub pages: u32,
    /// Latency of reading a page back, from the fault to the page, microseconds. The core idles
    /// meanwhile. Default 80 (a read of 4 KB from a solid-state drive). Writing out runs in the
    /// background and costs the program nothing.
    pub latency_us: f64,
    /// The core that swapping out runs on. Default `own`: a core of its own, which is not simulated.
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

/// Longest configurable time, microseconds: one second.
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
    /// Validates the values. An error names the key and the expected values.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check("migration", self.interval_us, self.pages)
    }
}

impl SwapSpec {
    /// Validates the values. An error names the key and the expected values.
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
