//! Distance prefetching (Kandiraju and Sivasubramaniam, "Going the distance for TLB
//! prefetching", ISCA 2002): which distances, in pages, followed a distance between two misses.

use arrayvec::ArrayVec;
use pagewalk_structures::SetAssoc;
use pagewalk_units::Asid;

use crate::DistanceSpec;

/// Most distances that a row holds.
pub(crate) const MOST_SLOTS: usize = 8;
/// Pages of 4 KB in 57-bit addresses.
const PAGES: u64 = 1 << 45;

pagewalk_stats::counters! {
    /// What the table of one core's distance prefetcher counted.
    pub struct DistanceStats {
        lookups: "lookups", "Distances between misses that were looked up in the table";
        hits: "lookups", "Lookups that found which distances followed";
        fills: "rows", "Times that a row was written: with the distance that followed";
    }
}

/// The distances that followed one, the last one first.
#[derive(Clone, Copy, Default, Debug)]
struct Row {
    next: [i64; MOST_SLOTS],
    used: u8,
}

impl Row {
    /// `distance` followed: it is the first, and the last of more than `slots` is gone.
    fn put(&mut self, distance: i64, slots: usize) {
        let used = usize::from(self.used);
        let known = self.next[..used].iter().position(|&d| d == distance);
        let at = known.unwrap_or(used.min(slots - 1));
        self.next[..=at].rotate_right(1);
        self.next[0] = distance;
        self.used = self.used.max(at as u8 + 1);
    }
}

/// The table, and the misses before.
pub(crate) struct Distances {
    rows: SetAssoc<Row>,
    slots: usize,
    /// The last miss: whose, and its page.
    last: Option<(Asid, u64)>,
    /// The distance to it from the one before.
    before: Option<i64>,
    pub stats: DistanceStats,
}

/// The row of a distance: [`SetAssoc`] has no key of all ones, which -1 would be.
fn key(distance: i64) -> u64 {
    distance as u64 ^ 1 << 63
}

impl Distances {
    /// Nothing learned yet.
    pub fn new(spec: &DistanceSpec) -> Self {
        Distances {
            rows: SetAssoc::new((spec.rows / spec.ways) as usize, spec.ways as usize),
            slots: spec.slots as usize,
            last: None,
            before: None,
            stats: DistanceStats::default(),
        }
    }

    /// A miss of `asid` on the 4 KB page `page`: pages that will be missed next. Misses of
    /// different address spaces have no distance, nor has one page from itself.
    pub fn train(&mut self, asid: Asid, page: u64, counted: bool) -> ArrayVec<u64, MOST_SLOTS> {
        let mut pages = ArrayVec::new();
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
                if next < PAGES {
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
}

#[cfg(test)]
mod tests {
    use super::Distances;
    use crate::DistanceSpec;
    use pagewalk_units::Asid;

    fn table(rows: u32, ways: u32, slots: u32) -> Distances {
        Distances::new(&DistanceSpec {
            rows,
            ways,
            slots,
            buffer: 0,
        })
    }

    fn train(t: &mut Distances, page: u64) -> Vec<u64> {
        t.train(Asid(1), page, true).to_vec()
    }

    #[test]
    fn a_stride_is_known_from_its_third_distance_on() {
        let mut t = table(256, 4, 2);
        for page in [100, 99, 98] {
            assert!(train(&mut t, page).is_empty());
        }
        // That 1 down followed 1 down was learned with the miss before.
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
        // After 1: 10, 20, 30.
        for page in [0, 1, 11] {
            train(&mut t, page);
        }
        let mut t2 = table(256, 256, 2);
        for page in [0, 1, 11, 12, 32, 33, 63] {
            train(&mut t2, page);
        }
        assert_eq!(train(&mut t2, 64), [94, 84], "30 and 20, not 10");
        // One row: that of 1 is gone when 10 was followed by something.
        assert_eq!(train(&mut t, 12), [22]);
        assert!(train(&mut t, 13).is_empty());
    }

    #[test]
    fn address_spaces_have_no_distance_and_pages_are_addresses() {
        let mut t = table(256, 4, 2);
        for page in [5, 4, 3] {
            t.train(Asid(1), page, true);
        }
        assert!(t.train(Asid(2), 2, true).is_empty());
        assert!(t.train(Asid(1), 2, true).is_empty());
        assert_eq!(t.train(Asid(1), 1, true).to_vec(), [0]);
        assert!(t.train(Asid(1), 0, true).is_empty(), "none below the first");
    }
}
