//! Sequential prefetching of translations: a miss prefetches the next pages. It is tagged (Smith,
//! "Cache memories", Computing Surveys 1982): the first use of a prefetched translation prefetches
//! on as a miss does, so that a sweep misses once. For TLBs as in Kandiraju and Sivasubramaniam
//! ("Going the distance for TLB prefetching", ISCA 2002), with one page.

use pagewalk_units::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::registry::PrefetcherKind;
use super::{ADDRESSABLE, MOST_ENTRIES, MOST_PAGES, Pages, Prefetcher, TlbMiss, within};

/// Sequential prefetching of translations: the next pages are prefetched after a miss, and after
/// the first use of a prefetched translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NextPageSpec {
    /// Pages to prefetch, of the size of the page that missed; 1 to 8. Default 1, as in both
    /// sources.
    #[serde(default = "one")]
    pub degree: u32,
    /// Entries of the prefetch buffer, as `mmu.prefetcher.distance.buffer`; 0: translations are
    /// prefetched into the last TLB. Default 0.
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

/// The prefetcher; it has no state.
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
        let miss = TlbMiss {
            asid,
            va,
            pc: None,
            size,
        };
        prefetcher.train(&miss, true).to_vec()
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
