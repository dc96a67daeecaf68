//! What can be set of khugepaged: Linux's own names and defaults
//! (Documentation/admin-guide/mm/transhuge.rst, "Khugepaged controls").

use pagewalk_units::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Linux's khugepaged: a kernel thread that looks through address spaces for 2 MB
/// regions of which small pages are mapped, and makes a 2 MB page of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KhugepagedSpec {
    /// Whether it runs at all. Default true: Linux starts it with transparent huge
    /// pages (transhuge.rst: "khugepaged will be automatically started").
    pub enabled: bool,
    /// 4 KB pages of address space, mapped or not, that a pass looks through before
    /// it sleeps. Default 4096 (Linux mm/khugepaged.c: 8 times 512).
    pub pages_to_scan: u32,
    /// Sleep between two passes, milliseconds of simulated time; 0 keeps one core
    /// busy. The first pass comes as long after boot. Default 10000 (Linux
    /// mm/khugepaged.c).
    pub scan_sleep_millisecs: u32,
    /// Sleep after the first huge page of a pass that is not to be had,
    /// milliseconds; the second one ends the pass. Default 60000 (Linux
    /// mm/khugepaged.c).
    pub alloc_sleep_millisecs: u32,
    /// Pages of a region that may be unmapped, 0 to 511: they are zeroed and take
    /// memory from then on. Default 511 (Linux mm/khugepaged.c: one mapped page is
    /// enough).
    pub max_ptes_none: u16,
    /// Pages of a region that may be shared with other processes since a fork, 0 to
    /// 511: they are copied. Default 256 (Linux mm/khugepaged.c: half of them).
    pub max_ptes_shared: u16,
    /// Whether it may move frames to get a free 2 MB block (direct compaction).
    /// Default true (Linux: `khugepaged/defrag` is 1, whatever page faults may do).
    pub defrag: bool,
    /// Whose time it takes. Default `own` (our choice: a thread of the lowest
    /// priority finds an idle core on all but the fullest machine).
    pub core: KhugepagedCore,
    /// The warm-up and the measured part each begin with everything collapsed that
    /// it would ever collapse by then: as if the program had been idle long enough.
    /// No time is charged for it. Default false.
    pub settled: bool,
}

/// Where khugepaged runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KhugepagedCore {
    /// On a core beside the simulated ones: programs pay for shootdowns only.
    #[default]
    Own,
    /// On the simulated core whose turn it is: its program waits.
    Stolen,
}

impl Default for KhugepagedSpec {
    fn default() -> Self {
        KhugepagedSpec {
            enabled: true,
            pages_to_scan: 4096,
            scan_sleep_millisecs: 10_000,
            alloc_sleep_millisecs: 60_000,
            max_ptes_none: 511,
            max_ptes_shared: 256,
            defrag: true,
            core: KhugepagedCore::Own,
            settled: false,
        }
    }
}

impl KhugepagedSpec {
    /// Whether the values make sense; an error begins with the key below `placement.thp`.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.pages_to_scan == 0 {
            return Err(Error::key(
                "khugepaged.pages_to_scan",
                "is 0; expected 1 or more pages",
            ));
        }
        for (key, value) in [
            ("max_ptes_none", self.max_ptes_none),
            ("max_ptes_shared", self.max_ptes_shared),
        ] {
            if value > 511 {
                return Err(Error::key(
                    format!("khugepaged.{key}"),
                    format!("is {value}; expected 0 to 511 pages"),
                ));
            }
        }
        Ok(())
    }
}
