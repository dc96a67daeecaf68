//! TLB prefetchers, one file each: they predict the pages that will miss next. They only name
//! pages. The MMU looks up whether a translation is present, walks, stores, judges and counts
//! (`mmu/prefetch.rs`).

mod asp;
mod distance;
mod next_page;
pub mod registry;
// The example of the how-to page has to pass the contract tests.
#[cfg(test)]
#[path = "../../../../docs/how-to/stride.rs"]
mod stride;

use arrayvec::ArrayVec;
use pagewalk_stats::Tree;
use pagewalk_units::{Asid, Error, PageSize, Part, VirtAddr, text};

pub use self::distance::DistanceStats;

/// Most pages that one miss may name.
pub(crate) const MOST_PAGES: usize = 8;

/// Numbers of 4 KB pages, in the order in which they are walked for.
pub(crate) type Pages = ArrayVec<u64, MOST_PAGES>;

/// Number of 4 KB pages in 57-bit addresses; no page beyond is named.
pub(crate) const ADDRESSABLE: u64 = 1 << 45;

/// Most rows of a table, and most entries of a buffer.
const MOST_ENTRIES: u32 = 1 << 16;

/// A data translation that missed all TLBs, or the first use of a prefetched one.
#[derive(Clone, Copy)]
pub(crate) struct TlbMiss<'a> {
    /// Address space of the address.
    pub asid: Asid,
    /// The address.
    pub va: VirtAddr,
    /// Program counter of the instruction. None in filtered functional warming, which keeps the
    /// addresses of accesses alone: a prefetcher by program counter learns nothing there.
    pub pc: Option<u64>,
    /// Size of its page. The host walks the page tables for it, so only prefetchers that need it
    /// call it.
    pub size: &'a dyn Fn() -> PageSize,
}

impl TlbMiss<'_> {
    /// Number of its 4 KB page.
    pub fn page(&self) -> u64 {
        self.va.0 >> 12
    }
}

/// A prefetcher of one core.
pub(crate) trait Prefetcher: Send + Sync {
    /// Trains on a miss whose translation is known, and names the pages that will miss next.
    /// `counted`: include in the statistics; the named pages do not depend on it.
    fn train(&mut self, miss: &TlbMiss<'_>, counted: bool) -> Pages;

    /// Adds the prefetcher's own counters below `path`.
    fn report(&self, _path: &str, _tree: &mut Tree) {}
}

/// Refuses a `value` of `mmu.prefetcher.AT` that is not from `least` to `most`.
fn within(at: &str, value: u32, least: u32, most: u32) -> Result<(), Error> {
    if value < least || value > most {
        return Err(Error::key(
            at,
            format!("is {value}; expected {least} to {most}"),
        ));
    }
    Ok(())
}

/// Refuses `ways` of a table of `rows` that are not a divisor of them.
fn divides(ways: u32, rows: u32) -> Result<(), Error> {
    if ways == 0 || !rows.is_multiple_of(ways) {
        return Err(Error::key(
            "ways",
            text![
                format!("is {ways}; expected a divisor of "),
                Part::key("rows"),
                format!(" ({rows})")
            ],
        ));
    }
    Ok(())
}

#[cfg(test)]
mod contract_test;
