//! Parameters of a virtual machine.

use pagewalk_tables::{PageTableSpec, RadixSpec};
use pagewalk_units::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::placement::PlacementSpec;
use crate::shadow::levels;
use crate::spec::{FragmentationSpec, OsSpec};

/// A virtual machine: the program, its operating system and its page tables lie in
/// guest-physical memory, which the host's page table maps to physical memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VirtualSpec {
    /// The host's page table, from guest-physical to physical addresses.
    pub page_table: PageTableSpec,
    /// The host's placement policy for guest memory: `buddy` for 4 KB pages, `thp` for 2 MB
    /// pages, `tiered_hash` for 4 KB pages placed by hash.
    pub placement: PlacementSpec,
    /// The guest's physical memory, GB (2^30 bytes). Default: the host's size.
    #[serde(default)]
    pub memory_gb: Option<u64>,
    /// State of the guest's physical memory at boot.
    #[serde(default)]
    pub fragmentation: FragmentationSpec,
    /// A VM exit to the host's kernel and the re-entry, in nanoseconds, in addition to the
    /// host's page fault. Default 500 (our choice: as long as a trap).
    #[serde(default = "exit_ns")]
    pub exit_ns: f64,
    /// Ideal shadow paging: the hardware walks one radix table from guest-virtual to physical
    /// addresses, which holds the composed translations of guest and host. A page is 2 MB if it
    /// is 2 MB in both. Maintenance takes no time (Revelator, section 7.3). Default false.
    #[serde(default)]
    pub shadow: bool,
}

fn exit_ns() -> f64 {
    500.0
}

impl VirtualSpec {
    /// The table that the hardware walks instead of `guest` and the host's. `None` without
    /// shadow paging.
    pub fn shadow_table(&self, guest: &PageTableSpec) -> Option<PageTableSpec> {
        let levels = levels(guest);
        self.shadow
            .then_some(PageTableSpec::Radix(RadixSpec { levels }))
    }

    /// Validates the values. An error names the key and the expected values.
    pub fn check(&self) -> Result<(), Error> {
        let below = |done: Result<(), Error>| done.map_err(|e| e.under("virtual"));
        below(self.page_table.check())?;
        below(self.placement.check())?;
        if let PlacementSpec::TieredHash(hashed) = &self.placement
            && hashed.promotion_threshold.is_some()
        {
            return Err(Error::key(
                "virtual.placement.tiered_hash.promotion_threshold",
                "is set, and a host knows no 2 MB regions of its guests' programs; expected no such key",
            ));
        }
        if matches!(self.placement, PlacementSpec::Recorded(_)) {
            return Err(Error::key(
                "virtual.placement.recorded",
                "names pages of programs, which a host does not know; expected virtual.placement.tiered_hash, or a design without virtual",
            ));
        }
        let max = OsSpec::MAX_GB;
        if let Some(gb) = self.memory_gb.filter(|gb| !(1..=max).contains(gb)) {
            return Err(Error::key(
                "virtual.memory_gb",
                format!("is {gb}; expected 1 to {max}"),
            ));
        }
        self.fragmentation.check().map_err(|e| e.under("virtual"))?;
        if !(0.0..=1e9).contains(&self.exit_ns) {
            return Err(Error::key(
                "virtual.exit_ns",
                format!(
                    "is {}; expected nanoseconds from 0 to 1000000000",
                    self.exit_ns
                ),
            ));
        }
        Ok(())
    }
}
