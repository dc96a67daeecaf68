//! Parameters of khugepaged: Linux's own names and defaults
//! (Documentation/admin-guide/mm/transhuge.rst, "Khugepaged controls").

use pagewalk_units::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Linux's khugepaged: a kernel thread that scans address spaces for 2 MB regions with
/// small pages and collapses each into a 2 MB page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KhugepagedSpec {
    /// Run khugepaged. Default true: Linux starts it with transparent huge pages
    /// (transhuge.rst: "khugepaged will be automatically started").
    pub enabled: bool,
    /// 4 KB pages of address space, mapped or not, that a pass scans before it sleeps.
    /// Default 4096 (Linux mm/khugepaged.c: 8 times 512).
    pub pages_to_scan: u32,
    /// Sleep between two passes, milliseconds of simulated time; 0 keeps one core busy.
    /// The first pass starts this long after boot. Default 10000 (Linux mm/khugepaged.c).
    pub scan_sleep_millisecs: u32,
    /// Sleep after the first failed huge-page allocation of a pass, milliseconds; the
    /// second failure ends the pass. Default 60000 (Linux mm/khugepaged.c).
    pub alloc_sleep_millisecs: u32,
    /// Maximum unmapped pages of a region, 0 to 511. The collapse zeroes them, and they
    /// then take memory. Default 511 (Linux mm/khugepaged.c: one mapped page is enough).
    pub max_ptes_none: u16,
    /// Maximum pages of a region that are shared with other processes since a fork, 0 to
    /// 511. The collapse copies them. Default 256 (Linux mm/khugepaged.c: half of them).
    pub max_ptes_shared: u16,
    /// May migrate frames to get a free 2 MB block (direct compaction). Default true
    /// (Linux: `khugepaged/defrag` is 1, whatever page faults may do).
    pub defrag: bool,
    /// The core that khugepaged runs on. Default `own` (our choice: a thread of the
    /// lowest priority finds an idle core on all but the fullest machine).
    pub core: KhugepagedCore,
    /// Start the warm-up and the measured part with all collapses done that khugepaged
    /// would ever do by then, as if the program had been idle long enough. This charges
    /// no time. Default false.
    pub settled: bool,
}

/// The core that khugepaged runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KhugepagedCore {
    /// A core of its own, which is not simulated: programs pay only for shootdowns.
    #[default]
    Own,
    /// The current simulated core, whose program waits.
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
    /// Validates the values. An error begins with the key below `placement.thp`.
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
