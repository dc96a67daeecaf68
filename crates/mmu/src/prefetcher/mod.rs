//! Prefetchers of translations: which pages will be asked for next. A file each. They name
//! pages and nothing else: the MMU looks what is there, walks, keeps, judges and counts
//! (`mmu/prefetch.rs`).

mod distance;
mod next_page;
pub mod registry;
// The page's example, as it stands, is held to the contract.
#[cfg(test)]
#[path = "../../../../docs/how-to/stride.rs"]
mod stride;

use arrayvec::ArrayVec;
use pagewalk_stats::Tree;
use pagewalk_units::{Asid, Error, PageSize, VirtAddr};

pub use self::distance::DistanceStats;

/// Most pages that one miss may name.
pub(crate) const MOST_PAGES: usize = 8;

/// Pages of 4 KB by number, in the order in which they are walked for.
pub(crate) type Pages = ArrayVec<u64, MOST_PAGES>;

/// Pages of 4 KB in 57-bit addresses: none is named beyond.
pub(crate) const ADDRESSABLE: u64 = 1 << 45;

/// Most rows of a table, and entries of a buffer.
const MOST_ENTRIES: u32 = 1 << 16;

/// A data translation that no TLB had, or the first use of one that was fetched.
#[derive(Clone, Copy)]
pub(crate) struct TlbMiss<'a> {
    /// Whose address it is.
    pub asid: Asid,
    /// The address.
    pub va: VirtAddr,
    /// Of what size its page was found to be: takes the host a walk of the tables, which is
    /// made for those that ask.
    pub size: &'a dyn Fn() -> PageSize,
}

impl TlbMiss<'_> {
    /// Its 4 KB page.
    pub fn page(&self) -> u64 {
        self.va.0 >> 12
    }
}

/// A prefetcher of one core.
pub(crate) trait Prefetcher: Send + Sync {
    /// Learns of a miss that has been served, and names pages that will be missed next.
    /// `counted`: in its own statistics; what it names does not depend on it.
    fn train(&mut self, miss: &TlbMiss<'_>, counted: bool) -> Pages;

    /// Adds what it counted of its own below `path`.
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

#[cfg(test)]
mod contract_test;
