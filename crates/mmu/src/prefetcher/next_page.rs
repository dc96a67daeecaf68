//! Sequential prefetching of translations: after a miss those of the next pages are fetched.
//! Tagged (Smith, "Cache memories", Computing Surveys 1982): the first use of what was fetched
//! goes on as a miss does, so that a sweep misses once. As Kandiraju and Sivasubramaniam ("Going
//! the distance for TLB prefetching", ISCA 2002) have it for TLBs, with one page.

use pagewalk_units::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::registry::PrefetcherKind;
use super::{ADDRESSABLE, MOST_ENTRIES, MOST_PAGES, Pages, Prefetcher, TlbMiss, within};

/// Sequential prefetching of translations: after a miss those of the next pages are fetched,
/// and again after the first use of what was fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NextPageSpec {
    /// How many pages, of the size of the one that was missed; 1 to 8. Default 1, as in both
    /// sources.
    #[serde(default = "one")]
    pub degree: u32,
    /// Entries of a buffer, as `mmu.prefetcher.distance.buffer`; 0: what is fetched goes into
    /// the last TLB itself. Default 0.
    #[serde(default)]
    pub buffer: u32,
}

fn one() -> u32 {
    1
}

impl PrefetcherKind for NextPageSpec {
    fn check(&self) -> Result<(), Error> {
        within("degree", self.degree, 1, MOST_PAGES as u32)?;
        within("buffer", self.buffer, 0, MOST_ENTRIES)
    }
    fn build(&self) -> Box<dyn Prefetcher> {
        let degree = u64::from(self.degree);
        Box::new(NextPage { degree })
    }
    fn buffer(&self) -> u32 {
        self.buffer
    }
}

/// It keeps nothing.
struct NextPage {
    degree: u64,
}

impl Prefetcher for NextPage {
    fn train(&mut self, miss: &TlbMiss<'_>, _: bool) -> Pages {
        let size = (miss.size)();
        let (shift, small) = (size.shift(), size.bytes() >> 12);
        let page = miss.va.0 >> shift;
        let next = (1..=self.degree).map(|n| (page + n) * small);
        next.filter(|&page| page < ADDRESSABLE).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{NextPageSpec, PrefetcherKind, TlbMiss};
    use pagewalk_units::{Asid, PageSize, VirtAddr};

    fn named(degree: u32, va: u64, size: PageSize) -> Vec<u64> {
        let spec = NextPageSpec { degree, buffer: 0 };
        let (asid, va) = (Asid(1), VirtAddr(va));
        let mut prefetcher = spec.build();
        let size = &|| size;
        prefetcher.train(&TlbMiss { asid, va, size }, true).to_vec()
    }

    #[test]
    fn the_next_pages_are_of_the_size_of_the_one_that_was_missed() {
        assert_eq!(named(2, 0x7123, PageSize::K4), [8, 9]);
        assert_eq!(named(2, (5 << 21) + 0x7123, PageSize::M2), [6 << 9, 7 << 9]);
        assert_eq!(named(1, (3 << 30) + 77, PageSize::G1), [4 << 18]);
    }

    #[test]
    fn nothing_is_behind_the_last_page() {
        let last = (1 << 57) - 4096;
        assert!(named(4, last, PageSize::K4).is_empty());
        assert_eq!(named(4, last - 4096, PageSize::K4), [(1 << 45) - 1]);
    }
}
