//! Distance prefetching (Kandiraju and Sivasubramaniam, "Going the distance for TLB prefetching",
//! ISCA 2002): a table maps the distance between two misses, in pages, to the distances that came
//! next.

use pagewalk_stats::Tree;
use pagewalk_structures::SetAssoc;
use pagewalk_units::{Asid, Error};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::registry::{PrefetcherKind, PrefetcherTable};
use super::{ADDRESSABLE, MOST_ENTRIES, MOST_PAGES, Pages, Prefetcher, TlbMiss, divides, within};

/// Distance prefetching of translations. After a miss, the distances that came after earlier misses
/// of the same distance are added to its page, and these pages are prefetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DistanceSpec {
    /// Rows of the table, one for each distance between two misses, LRU replacement.
    pub rows: u32,
    /// Ways of the table.
    pub ways: u32,
    /// Distances that a row holds, those that came last; 1 to 8.
    pub slots: u32,
    /// Entries of the prefetch buffer, first in, first out. It is searched in parallel with the
    /// last TLB, and a hit moves the translation into the TLBs. 0: translations are prefetched into
    /// the last TLB.
    pub buffer: u32,
}

impl PrefetcherKind for DistanceSpec {
    fn check(&self) -> Result<(), Error> {
        let DistanceSpec {
            rows,
            ways,
            slots,
            buffer,
        } = *self;
        within("rows", rows, 1, MOST_ENTRIES)?;
        within("slots", slots, 1, MOST_PAGES as u32)?;
        within("buffer", buffer, 0, MOST_ENTRIES)?;
        divides(ways, rows)
    }
    fn build(&self) -> Box<dyn Prefetcher> {
        Box::new(Distances::new(self))
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
const TABLE: &str = "distance_table";

pagewalk_stats::counters! {
    /// Counters of the table of one core's distance prefetcher.
    pub struct DistanceStats {
        lookups: "lookups", "Distances between misses that were looked up in the table";
        hits: "lookups", "Lookups that found a row, which lists the successors of the distance";
        fills: "rows", "Writes of a row, with the new successor of its distance";
    }
}

/// The distances that came after one distance, latest first.
#[derive(Clone, Copy, Default, Debug)]
struct Row {
    next: [i64; MOST_PAGES],
    used: u8,
}

impl Row {
    /// Moves `distance` to the front. If the row has more than `slots`, the last one is dropped.
    fn put(&mut self, distance: i64, slots: usize) {
        let used = usize::from(self.used);
        let known = self.next[..used].iter().position(|&d| d == distance);
        let at = known.unwrap_or(used.min(slots - 1));
        self.next[..=at].rotate_right(1);
        self.next[0] = distance;
        self.used = self.used.max(at as u8 + 1);
    }
}

/// The table and the history of misses.
struct Distances {
    rows: SetAssoc<Row>,
    slots: usize,
    /// The last miss: address space and page.
    last: Option<(Asid, u64)>,
    /// Distance from the miss before it.
    before: Option<i64>,
    stats: DistanceStats,
}

/// Key of a distance: [`SetAssoc`] does not allow the key of all ones, which -1 would be.
fn key(distance: i64) -> u64 {
    distance as u64 ^ 1 << 63
}

impl Distances {
    /// An empty table.
    fn new(spec: &DistanceSpec) -> Self {
        Distances {
            rows: SetAssoc::new((spec.rows / spec.ways) as usize, spec.ways as usize),
            slots: spec.slots as usize,
            last: None,
            before: None,
            stats: DistanceStats::default(),
        }
    }
}

impl Prefetcher for Distances {
    /// Misses of different address spaces have no distance; distance 0 is ignored.
    fn train(&mut self, miss: &TlbMiss<'_>, counted: bool) -> Pages {
        let (asid, page) = (miss.asid, miss.page());
        let mut pages = Pages::new();
        let last = self.last.replace((asid, page));
        let Some((_, last)) = last.filter(|l| l.0 == asid) else {
            self.before = None;
            return pages;
        };
        let distance = page as i64 - last as i64;
        if distance == 0 {
            return pages;
        }
        let counted = u64::from(counted);
        self.stats.lookups += counted;
        if let Some(row) = self.rows.lookup(distance as u64, key(distance)) {
            self.stats.hits += counted;
            for next in &row.next[..usize::from(row.used)] {
                let next = page.wrapping_add_signed(*next);
                if next < ADDRESSABLE {
                    pages.push(next);
                }
            }
        }
        if let Some(before) = self.before.replace(distance) {
            self.stats.fills += counted;
            match self.rows.lookup(before as u64, key(before)) {
                Some(row) => row.put(distance, self.slots),
                None => {
                    let mut row = Row::default();
                    row.put(distance, self.slots);
                    self.rows.insert(before as u64, key(before), row);
                }
            }
        }
        pages
    }

    fn report(&self, path: &str, tree: &mut Tree) {
        tree.add(&format!("{path}.{TABLE}"), &self.stats);
    }
}

#[cfg(test)]
mod tests {
    use super::{DistanceSpec, Distances, Prefetcher, TlbMiss};
    use pagewalk_units::{Asid, PageSize, VirtAddr};

    fn table(rows: u32, ways: u32, slots: u32) -> Distances {
        Distances::new(&DistanceSpec {
            rows,
            ways,
            slots,
            buffer: 0,
        })
    }

    fn of(t: &mut Distances, asid: u16, page: u64) -> Vec<u64> {
        let miss = TlbMiss {
            asid: Asid(asid),
            va: VirtAddr(page << 12),
            pc: None,
            size: &|| PageSize::K4,
        };
        t.train(&miss, true).to_vec()
    }

    fn train(t: &mut Distances, page: u64) -> Vec<u64> {
        of(t, 1, page)
    }

    #[test]
    fn a_stride_is_known_from_its_third_distance_on() {
        let mut t = table(256, 4, 2);
        for page in [100, 99, 98] {
            assert!(train(&mut t, page).is_empty());
        }
        // The previous miss has taught that distance -1 comes after distance -1.
        assert_eq!(train(&mut t, 97), [96]);
        assert_eq!(train(&mut t, 50), [] as [u64; 0], "47 down: never seen");
        assert_eq!(
            train(&mut t, 49),
            [2, 48],
            "the distance that came last first"
        );
    }

    #[test]
    fn distances_that_alternate_are_told_by_each_other() {
        let mut t = table(256, 4, 2);
        for page in [0, 3, 10, 13, 20] {
            train(&mut t, page);
        }
        assert_eq!(train(&mut t, 23), [30]);
        assert_eq!(train(&mut t, 30), [33]);
        let s = &t.stats;
        assert_eq!((s.lookups, s.hits, s.fills), (6, 4, 5));
    }

    #[test]
    fn a_row_keeps_the_last_distances_and_a_set_the_last_rows() {
        let mut t = table(1, 1, 2);
        // Distances after distance 1: 10, 20, 30.
        for page in [0, 1, 11] {
            train(&mut t, page);
        }
        let mut t2 = table(256, 256, 2);
        for page in [0, 1, 11, 12, 32, 33, 63] {
            train(&mut t2, page);
        }
        assert_eq!(train(&mut t2, 64), [94, 84], "30 and 20, not 10");
        // One row: distance 10 has replaced distance 1.
        assert_eq!(train(&mut t, 12), [22]);
        assert!(train(&mut t, 13).is_empty());
    }

    #[test]
    fn address_spaces_have_no_distance_and_pages_are_addresses() {
        let mut t = table(256, 4, 2);
        for page in [5, 4, 3] {
            train(&mut t, page);
        }
        assert!(of(&mut t, 2, 2).is_empty());
        assert!(train(&mut t, 2).is_empty());
        assert_eq!(train(&mut t, 1), [0]);
        assert!(train(&mut t, 0).is_empty(), "none below the first");
    }
}
