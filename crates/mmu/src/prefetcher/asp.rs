//! Arbitrary stride prefetching (ASP: Kandiraju and Sivasubramaniam, "Going the distance for TLB
//! prefetching", ISCA 2002): the reference prediction table of Chen and Baer (IEEE Transactions on
//! Computers 1995), with the pages of an instruction's TLB misses instead of its addresses.

use pagewalk_stats::Tree;
use pagewalk_structures::SetAssoc;
use pagewalk_units::{Asid, Error};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::registry::{PrefetcherKind, PrefetcherTable};
use super::{ADDRESSABLE, MOST_ENTRIES, Pages, Prefetcher, TlbMiss, divides, within};

/// Arbitrary stride prefetching of translations. A table holds the page and the stride of each
/// instruction's last miss. Once the stride has repeated, the page one stride ahead is prefetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AspSpec {
    /// Rows of the table, one for each instruction of an address space, LRU replacement.
    pub rows: u32,
    /// Ways of the table.
    pub ways: u32,
    /// Entries of the prefetch buffer, as `mmu.prefetcher.distance.buffer`; 0: translations are
    /// prefetched into the last TLB.
    pub buffer: u32,
}

impl PrefetcherKind for AspSpec {
    fn check(&self) -> Result<(), Error> {
        let AspSpec { rows, ways, buffer } = *self;
        within("rows", rows, 1, MOST_ENTRIES)?;
        within("buffer", buffer, 0, MOST_ENTRIES)?;
        divides(ways, rows)
    }
    fn build(&self) -> Box<dyn Prefetcher> {
        Box::new(Strides::new(self))
    }
    fn buffer(&self) -> u32 {
        self.buffer
    }
    fn table(&self) -> Option<PrefetcherTable> {
        Some(PrefetcherTable {
            name: TABLE,
            entries: self.rows,
            ways: self.ways,
        })
    }
}

/// Name of the table in the statistics.
const TABLE: &str = "asp_table";

pagewalk_stats::counters! {
    /// Counters of the table of one core's arbitrary stride prefetcher.
    pub struct AspStats {
        lookups: "lookups", "Program counters of misses that were looked up in the table";
        hits: "lookups", "Lookups that found the row of the instruction";
        fills: "rows", "Writes of a row, with the page of its instruction's miss";
    }
}

/// Confidence in an instruction's stride, as in Chen and Baer's table.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
enum Confidence {
    /// No stride was seen, or a steady one was broken once.
    #[default]
    Initial,
    /// A new stride was seen once.
    Transient,
    /// The stride repeated: prefetch.
    Steady,
    /// The stride keeps changing.
    NoPrediction,
}

/// An instruction's last miss.
#[derive(Clone, Copy, Default, Debug)]
struct Row {
    asid: Asid,
    /// Page of the last miss.
    page: u64,
    stride: i64,
    confidence: Confidence,
}

impl Row {
    /// Moves the row to a miss at `page`, which is not the page of the last one.
    fn step(&mut self, page: u64) {
        let stride = page as i64 - self.page as i64;
        let repeated = stride == self.stride;
        self.page = page;
        // A steady stride outlives one other, such as the step to the next row of a matrix.
        if self.confidence != Confidence::Steady {
            self.stride = stride;
        }
        self.confidence = match (self.confidence, repeated) {
            (Confidence::Initial | Confidence::Transient | Confidence::Steady, true) => {
                Confidence::Steady
            }
            (Confidence::NoPrediction, true) | (Confidence::Initial, false) => {
                Confidence::Transient
            }
            (Confidence::Transient | Confidence::NoPrediction, false) => Confidence::NoPrediction,
            (Confidence::Steady, false) => Confidence::Initial,
        };
    }
}

/// The table.
struct Strides {
    rows: SetAssoc<Row>,
    stats: AspStats,
}

/// Key of an instruction of an address space. Program counters in the lower half of a 48-bit
/// address space have keys of their own. [`SetAssoc`] does not allow the key of all ones: the top
/// bit is 0.
fn key(asid: Asid, pc: u64) -> u64 {
    (pc ^ u64::from(asid.0) << 47) & (u64::MAX >> 1)
}

impl Strides {
    /// An empty table.
    fn new(spec: &AspSpec) -> Self {
        Strides {
            rows: SetAssoc::new((spec.rows / spec.ways) as usize, spec.ways as usize),
            stats: AspStats::default(),
        }
    }
}

impl Prefetcher for Strides {
    /// A miss without a program counter is ignored, and so is a second miss at the same page.
    fn train(&mut self, miss: &TlbMiss<'_>, counted: bool) -> Pages {
        let mut pages = Pages::new();
        let (asid, page) = (miss.asid, miss.page());
        let Some(pc) = miss.pc else {
            return pages;
        };
        let (key, counted) = (key(asid, pc), u64::from(counted));
        self.stats.lookups += counted;
        // The row of another address space with the same key is replaced.
        let found = self.rows.lookup(key, key).filter(|row| row.asid == asid);
        let Some(row) = found else {
            let row = Row {
                asid,
                page,
                ..Row::default()
            };
            self.rows.insert(key, key, row);
            self.stats.fills += counted;
            return pages;
        };
        self.stats.hits += counted;
        if row.page == page {
            return pages;
        }
        row.step(page);
        self.stats.fills += counted;
        let next = page.wrapping_add_signed(row.stride);
        if row.confidence == Confidence::Steady && next < ADDRESSABLE {
            pages.push(next);
        }
        pages
    }

    fn report(&self, path: &str, tree: &mut Tree) {
        tree.add(&format!("{path}.{TABLE}"), &self.stats);
    }
}

#[cfg(test)]
mod tests {
    use super::super::registry::{DistanceSpec, StrideSpec};
    use super::{ADDRESSABLE, AspSpec, Prefetcher, PrefetcherKind, Strides, TlbMiss};
    use pagewalk_units::{Asid, PageSize, VirtAddr};

    fn table(rows: u32, ways: u32) -> Strides {
        Strides::new(&AspSpec {
            rows,
            ways,
            buffer: 0,
        })
    }

    fn of(t: &mut dyn Prefetcher, asid: u16, pc: Option<u64>, page: u64) -> Vec<u64> {
        let miss = TlbMiss {
            asid: Asid(asid),
            va: VirtAddr(page << 12),
            pc,
            size: &|| PageSize::K4,
        };
        t.train(&miss, true).to_vec()
    }

    fn train(t: &mut dyn Prefetcher, pc: u64, page: u64) -> Vec<u64> {
        of(t, 1, Some(pc), page)
    }

    #[test]
    fn an_instruction_with_a_stride_names_the_next_page_from_its_third_miss_on() {
        for stride in [1, -1, 7, -300, 70_000] {
            let mut t = table(256, 4);
            for n in 0..100 {
                let at = |n: i64| 10_000_000u64.wrapping_add_signed(n * stride);
                let expected = if n < 2 { vec![] } else { vec![at(n + 1)] };
                assert_eq!(train(&mut t, 0x40_1000, at(n)), expected, "{stride}, {n}");
            }
            let s = &t.stats;
            assert_eq!((s.lookups, s.hits, s.fills), (100, 99, 100));
        }
    }

    /// Counts the pages named in 100 pairs of misses, of two instructions with different strides.
    /// Each page that an instruction's row predicts is the page of its next miss.
    fn named_rightly(t: &mut dyn Prefetcher) -> usize {
        let at = |pc: u64, n: u64| [n * 3, 1_000_000 - n * 5][pc as usize];
        let steps = (0..100).flat_map(|n| [(0, n), (1, n)]);
        let right = |(pc, n)| train(t, pc, at(pc, n)).contains(&at(pc, n + 1));
        steps.map(right).filter(|&right| right).count()
    }

    #[test]
    fn instructions_with_different_strides_do_not_disturb_each_other() {
        let (rows, ways, buffer) = (256, 4, 0);
        assert_eq!(named_rightly(&mut table(rows, ways)), 2 * 98);
        // Prefetchers that see one sequence of misses: distances between the two never repeat.
        let stride = StrideSpec { degree: 1, buffer };
        assert_eq!(named_rightly(&mut *stride.build()), 0);
        let slots = 2;
        let distance = DistanceSpec {
            rows,
            ways,
            slots,
            buffer,
        };
        assert_eq!(named_rightly(&mut *distance.build()), 0);
    }

    #[test]
    fn a_miss_without_a_program_counter_trains_nothing_and_names_nothing() {
        let mut t = table(256, 4);
        for page in 0..10 {
            assert!(of(&mut t, 1, None, page).is_empty());
        }
        assert_eq!((t.stats.lookups, t.stats.fills), (0, 0));
        // Between the misses of an instruction it changes nothing.
        for page in [100, 102] {
            assert!(train(&mut t, 8, page).is_empty());
            assert!(of(&mut t, 1, None, page + 7).is_empty());
        }
        assert_eq!(train(&mut t, 8, 104), [106]);
    }

    #[test]
    fn one_other_stride_costs_two_predictions_and_a_new_one_is_learnt() {
        let mut t = table(256, 4);
        for page in [0, 1, 2] {
            train(&mut t, 8, page);
        }
        assert!(train(&mut t, 8, 100).is_empty(), "another stride");
        assert_eq!(train(&mut t, 8, 101), [102], "the stride was kept");
        for page in [200, 204] {
            assert!(train(&mut t, 8, page).is_empty(), "{page}");
        }
        assert_eq!(train(&mut t, 8, 208), [212]);
    }

    #[test]
    fn strides_that_keep_changing_have_to_repeat_twice() {
        let mut t = table(256, 4);
        for page in [0, 1, 3, 6, 10] {
            assert!(train(&mut t, 8, page).is_empty(), "{page}");
        }
        assert!(train(&mut t, 8, 14).is_empty(), "4 again: no longer random");
        assert_eq!(train(&mut t, 8, 18), [22]);
    }

    #[test]
    fn a_second_miss_at_the_page_changes_nothing() {
        let mut t = table(256, 4);
        for page in [0, 0, 1, 1] {
            assert!(train(&mut t, 8, page).is_empty());
        }
        assert_eq!(train(&mut t, 8, 2), [3]);
        assert!(train(&mut t, 8, 2).is_empty());
        assert_eq!(train(&mut t, 8, 3), [4]);
        let s = &t.stats;
        assert_eq!((s.lookups, s.hits, s.fills), (7, 6, 4));
    }

    #[test]
    fn a_set_keeps_the_last_instructions() {
        let mut t = table(2, 2);
        for n in 0..3 {
            for pc in [8, 16] {
                train(&mut t, pc, 100 * pc + n);
            }
        }
        train(&mut t, 24, 5);
        assert_eq!(train(&mut t, 16, 1603), [1604], "it was used last");
        assert!(train(&mut t, 8, 803).is_empty(), "replaced");
    }

    #[test]
    fn address_spaces_have_rows_of_their_own() {
        // The last two have one key in address spaces 1 and 2.
        for pcs in [[8, 8], [3 << 47 | 8, 8]] {
            let mut t = table(256, 4);
            for page in [0, 1, 2] {
                of(&mut t, 1, Some(pcs[0]), page);
            }
            assert!(of(&mut t, 2, Some(pcs[1]), 3).is_empty());
            let own = of(&mut t, 1, Some(pcs[0]), 3);
            let kept = pcs[0] == pcs[1];
            assert_eq!(own, if kept { vec![4] } else { vec![] });
        }
    }

    #[test]
    fn pages_are_addresses_and_any_program_counter_will_do() {
        for pc in [0, u64::MAX - 1, u64::MAX >> 17, u64::MAX >> 1] {
            let mut t = table(256, 4);
            for page in [2, 1] {
                of(&mut t, u16::MAX, Some(pc), page);
            }
            assert!(of(&mut t, u16::MAX, Some(pc), 0).is_empty(), "none below");
            for n in (1..4).rev() {
                let named = train(&mut t, pc, ADDRESSABLE - n);
                assert!(named.is_empty(), "{n}: none beyond");
            }
        }
    }
}
