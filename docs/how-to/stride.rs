//! Translations by stride: two misses as far apart as the two before predict a third.

use pagewalk_units::{Asid, Error};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::registry::PrefetcherKind;
use super::{ADDRESSABLE, MOST_ENTRIES, MOST_PAGES, Pages, Prefetcher, TlbMiss, within};

/// Translations by stride: after two equal distances between misses, the pages further on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StrideSpec {
    /// How many pages; 1 to 8.
    pub degree: u32,
    /// Entries of a buffer beside the last TLB; 0: what is fetched goes into the last TLB.
    pub buffer: u32,
}

impl PrefetcherKind for StrideSpec {
    fn check(&self) -> Result<(), Error> {
        within("degree", self.degree, 1, MOST_PAGES as u32)?;
        within("buffer", self.buffer, 0, MOST_ENTRIES)
    }
    fn build(&self) -> Box<dyn Prefetcher> {
        Box::new(Stride {
            degree: i64::from(self.degree),
            last: (Asid(0), 0),
            distance: 0,
        })
    }
    fn buffer(&self) -> u32 {
        self.buffer
    }
}

struct Stride {
    degree: i64,
    last: (Asid, u64),
    distance: i64,
}

impl Prefetcher for Stride {
    fn train(&mut self, miss: &TlbMiss<'_>, _counted: bool) -> Pages {
        let (asid, page) = (miss.asid, miss.page());
        let (whose, last) = std::mem::replace(&mut self.last, (asid, page));
        let distance = if whose == asid {
            page as i64 - last as i64
        } else {
            0
        };
        if std::mem::replace(&mut self.distance, distance) != distance || distance == 0 {
            return Pages::new();
        }
        let ahead = (1..=self.degree).map(|n| page.wrapping_add_signed(n * distance));
        ahead.filter(|&page| page < ADDRESSABLE).collect()
    }
}
