//! The L2P table: where the chunks of the ways of a process's hashed page
//! tables lie (ME-HPT, sections IV-A and V-A, figure 6).
//!
//! Each way has three sub-tables side by side, of one page size each: that of
//! 4 KB pages grows upwards from one end, that of 2 MB pages downwards from the
//! other, and that of 1 GB pages lies in the middle, where the other two may
//! take it over whole as long as none of it is in use. All entries of a way may
//! come into use: 64 of one page size and 32 of the other. A change of the chunk
//! size that then finds no entry for the new chunks is made at once, so that they
//! get those of the old ones.

use pagewalk_units::PageSize;

use crate::{Limit, Refusal};

/// For what chunks are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Growth {
    /// A way gets more chunks of the size it has: up to twice a sub-table's
    /// entries.
    Same,
    /// A way goes over to chunks of another size, and for as long as it takes
    /// needs the old chunks' entries and the new ones': any free entries, but
    /// not more than twice a sub-table's for the new ones.
    Change,
}

/// Sub-tables of a way.
const SUBTABLES: usize = 3;

/// The entries of one way: three sub-tables next to each other.
#[derive(Clone, Debug)]
struct WayEntries {
    /// Whose each entry is, from the end where 4 KB pages start.
    owner: Vec<Option<PageSize>>,
    /// The entries of each page size in the order in which they were taken.
    taken: [Vec<u16>; SUBTABLES],
    peak: [u16; SUBTABLES],
}

impl WayEntries {
    /// Whether nobody but `size` uses any entry of the sub-table in the middle, of `e`.
    fn whole_middle(&self, e: usize, size: PageSize) -> bool {
        (self.owner[e..2 * e].iter()).all(|o| o.is_none_or(|s| s == size))
    }
}

/// The L2P table of one process.
#[derive(Clone, Debug)]
pub(crate) struct L2p {
    entries: usize,
    ways: Vec<WayEntries>,
    used: u32,
    peak: u32,
    steals: u64,
}

impl L2p {
    /// An empty table with `entries` for each page size and way.
    pub(crate) fn new(ways: usize, entries: usize) -> Self {
        let way = WayEntries {
            owner: vec![None; SUBTABLES * entries],
            taken: [const { Vec::new() }; SUBTABLES],
            peak: [0; SUBTABLES],
        };
        L2p {
            entries,
            ways: vec![way; ways],
            used: 0,
            peak: 0,
            steals: 0,
        }
    }

    /// Entries in use.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }
    /// Most entries that were ever in use at once.
    pub(crate) fn peak(&self) -> u32 {
        self.peak
    }
    /// How often a sub-table has gone beyond its own entries.
    pub(crate) fn steals(&self) -> u64 {
        self.steals
    }
    /// Entries that the sub-table of `size` of `way` uses.
    pub(crate) fn used_by(&self, way: usize, size: PageSize) -> u32 {
        self.ways[way].taken[size.index()].len() as u32
    }
    /// Most entries that the sub-table of `size` of `way` ever used.
    pub(crate) fn peak_of(&self, way: usize, size: PageSize) -> u32 {
        u32::from(self.ways[way].peak[size.index()])
    }
    /// Whose entry `index` of `way` is; counted from the end of 4 KB pages.
    #[cfg(test)]
    pub(crate) fn owner(&self, way: usize, index: usize) -> Option<PageSize> {
        self.ways[way].owner[index]
    }

    /// Most entries that the sub-table of `size` of `way` may come to use while
    /// the others keep theirs.
    pub(crate) fn most(&self, way: usize, size: PageSize) -> u32 {
        let (e, w) = (self.entries, &self.ways[way]);
        let may = |at: &usize| w.owner[*at].is_none_or(|s| s == size);
        let middle = if w.whole_middle(e, size) { e } else { 0 };
        let most = match size {
            PageSize::K4 => (0..e + middle).filter(may).count(),
            PageSize::M2 => (2 * e - middle..3 * e).filter(may).count(),
            PageSize::G1 => (0..3 * e).filter(may).count(),
        };
        most as u32
    }
    /// Whether [`L2p::take`] would succeed.
    pub(crate) fn has_room(&self, way: usize, size: PageSize, n: usize, growth: Growth) -> bool {
        self.room(way, size, n, growth).is_some()
    }
    /// Whether `n` new chunks of `size` in `way` would have entries if the old
    /// chunks gave theirs back first.
    pub(crate) fn has_room_instead(&self, way: usize, size: PageSize, n: usize) -> bool {
        let mut after = L2p {
            ways: vec![self.ways[way].clone()],
            ..*self
        };
        after.give_back(0, size, self.used_by(way, size) as usize);
        after.has_room(0, size, n, Growth::Change)
    }
    /// Takes `n` more entries for `size` in `way`; false, and nothing taken, if
    /// there is no room.
    pub(crate) fn take(&mut self, way: usize, size: PageSize, n: usize, growth: Growth) -> bool {
        let Some(places) = self.room(way, size, n, growth) else {
            return false;
        };
        let (e, w) = (self.entries, &mut self.ways[way]);
        let own = |at: usize| at / e == [0, 2, 1][size.index()];
        let stolen =
            |w: &WayEntries| (0..SUBTABLES * e).any(|at| !own(at) && w.owner[at] == Some(size));
        let before = stolen(w);
        for &at in &places {
            w.owner[at] = Some(size);
            w.taken[size.index()].push(at as u16);
        }
        self.steals += u64::from(!before && stolen(w));
        let used = w.taken[size.index()].len() as u16;
        w.peak[size.index()] = w.peak[size.index()].max(used);
        self.used += n as u32;
        self.peak = self.peak.max(self.used);
        true
    }

    /// Gives `n` entries of `size` in `way` back. Those that stay move
    /// together, the end of the sub-table becomes free.
    pub(crate) fn give_back(&mut self, way: usize, size: PageSize, n: usize) {
        let w = &mut self.ways[way];
        for _ in 0..n {
            let at = w.taken[size.index()].pop().expect("as many as are in use");
            w.owner[usize::from(at)] = None;
        }
        self.used -= n as u32;
    }

    /// The entries that [`L2p::take`] would take.
    fn room(&self, way: usize, size: PageSize, n: usize, growth: Growth) -> Option<Vec<usize>> {
        if n == 0 {
            return Some(Vec::new());
        }
        let (e, w) = (self.entries, &self.ways[way]);
        let used = w.taken[size.index()].len();
        let last = SUBTABLES * e;
        let free = |at: &usize| w.owner[*at].is_none();
        let whole_middle = w.whole_middle(e, size);
        let own = e..if whole_middle { 2 * e } else { e };
        let places: Vec<usize> = match size {
            PageSize::K4 => (used..last).filter(free).take(n).collect(),
            PageSize::M2 => (used..last)
                .map(|i| last - 1 - i)
                .filter(free)
                .take(n)
                .collect(),
            // Beyond its own: the most significant entries of the others.
            PageSize::G1 => (own.chain(2 * e..last).filter(free))
                .chain((0..e).rev().filter(free))
                .take(n)
                .collect(),
        };
        if places.len() < n {
            return None;
        }
        if size == PageSize::G1 {
            return Some(places);
        }
        // What is there in the end is the sub-table's own, or that and the middle.
        let end = match growth {
            Growth::Same => used + n,
            Growth::Change => n,
        };
        if end > e && !(end <= 2 * e && whole_middle) {
            return None;
        }
        if growth == Growth::Same {
            let next_to_each_other = places.windows(2).all(|p| p[0].abs_diff(p[1]) == 1);
            if !next_to_each_other {
                return None;
            }
        }
        Some(places)
    }
}

/// The entries of the table are used up: the way cannot grow, whatever memory is
/// free (ME-HPT, sections IV-A and V-A).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the L2P table is full: way {way} of the {size} pages uses {used} of at most {most} entries and needs {wanted} more, for chunks of {} KB",
    .chunk >> 10
)]
pub(crate) struct L2pFull {
    /// Which way, counted from 0.
    pub way: u8,
    /// Of the table of which pages.
    pub size: PageSize,
    /// Entries that it uses.
    pub used: u32,
    /// Most that it may come to use while the other page sizes keep theirs.
    pub most: u32,
    /// Entries that it wanted beside them.
    pub wanted: u32,
    /// Bytes of the chunks that they were wanted for.
    pub chunk: u64,
}

impl From<L2pFull> for Refusal {
    fn from(full: L2pFull) -> Self {
        Refusal::Limit(Box::new(Limit {
            what: full.to_string(),
            advice: "give the ways larger chunks ({table}.chunks; change_chunks, to begin with smaller ones) or more entries ({table}.l2p_entries)",
        }))
    }
}

#[cfg(test)]
mod tests {
    use pagewalk_units::PageSize::{G1, K4, M2};

    use super::{Growth, L2p};

    fn map(l2p: &L2p) -> String {
        let letter = |at| l2p.owner(0, at).map_or('.', |s| ['4', '2', '1'][s.index()]);
        (0..3 * l2p.entries).map(letter).collect()
    }

    #[test]
    fn sub_tables_grow_and_steal_as_in_figure_6() {
        let mut l2p = L2p::new(1, 32);
        assert!(l2p.take(0, K4, 2, Growth::Same) && l2p.take(0, M2, 2, Growth::Same));
        assert_eq!(map(&l2p), format!("44{}22", ".".repeat(92)));
        // 4 KB takes all of its own, then those of 1 GB.
        assert!(l2p.take(0, K4, 30, Growth::Same));
        assert_eq!(l2p.steals(), 0);
        assert!(l2p.take(0, K4, 32, Growth::Same));
        assert_eq!(map(&l2p), format!("{}{}22", "4".repeat(64), ".".repeat(30)));
        assert_eq!(l2p.steals(), 1);
        assert_eq!([K4, M2, G1].map(|size| l2p.most(0, size)), [64, 32, 30]);
        // No further within the chunk size.
        assert!(!l2p.take(0, K4, 1, Growth::Same));
        // 1 GB gets the most significant entry of 2 MB.
        assert!(l2p.take(0, G1, 1, Growth::Same));
        assert_eq!(
            map(&l2p),
            format!("{}1{}22", "4".repeat(64), ".".repeat(29))
        );
        assert_eq!(l2p.steals(), 2);
        // A change of the chunk size still finds an entry for the first new chunk.
        assert!(l2p.take(0, K4, 1, Growth::Change));
        assert_eq!(l2p.used_by(0, K4), 65);
        l2p.give_back(0, K4, 64);
        assert_eq!(
            map(&l2p),
            format!("4{}1{}22", ".".repeat(63), ".".repeat(29))
        );
        assert_eq!((l2p.used(), l2p.peak(), l2p.peak_of(0, K4)), (4, 68, 65));
    }

    #[test]
    fn entries_of_1_gb_pages_in_use_cannot_be_stolen() {
        for (size, other) in [(K4, M2), (M2, K4)] {
            let mut l2p = L2p::new(1, 32);
            assert!(l2p.take(0, G1, 1, Growth::Same) && l2p.take(0, size, 32, Growth::Same));
            assert!(!l2p.take(0, size, 32, Growth::Same));
            assert!(!l2p.take(0, size, 33, Growth::Change));
            assert_eq!((l2p.most(0, size), l2p.most(0, G1)), (32, 64));
            l2p.give_back(0, G1, 1);
            assert!(l2p.take(0, size, 32, Growth::Same));
            assert!(l2p.take(0, other, 16, Growth::Same));
            // All 96 entries of the way (figure 6b, with the 2 MB pages' all in use).
            assert_eq!(l2p.most(0, other), 32);
            assert!(l2p.take(0, other, 16, Growth::Same));
            assert_eq!(l2p.used(), 96);
            assert!(!l2p.take(0, G1, 1, Growth::Same));
            // New chunks have no entry beside the old ones', but instead of them.
            assert!(!l2p.has_room(0, size, 1, Growth::Change));
            assert!(l2p.has_room_instead(0, size, 1) && l2p.has_room_instead(0, size, 64));
            assert!(!l2p.has_room_instead(0, other, 33));
            l2p.give_back(0, size, 64);
            assert!(l2p.take(0, size, 1, Growth::Change));
            assert_eq!(l2p.used(), 33);
        }
    }

    /// Table II: what fits when every way has 64 chunks of one size.
    #[test]
    fn the_largest_way_and_what_it_maps_are_those_of_table_2() {
        let (kb, mb, gb, tb) = (1u64 << 10, 1u64 << 20, 1u64 << 30, 1u64 << 40);
        let table = [
            (8 * kb, 512 * kb, 768 * mb, 384 * gb),
            (mb, 64 * mb, 96 * gb, 48 * tb),
            (8 * mb, 512 * mb, 768 * gb, 384 * tb),
            // The paper rounds 3072 TB.
            (64 * mb, 4 * gb, 6 * tb, 3072 * tb),
        ];
        for (chunk, way, small, large) in table {
            for (size, maps) in [(K4, small), (M2, large)] {
                let mut l2p = L2p::new(3, 32);
                for w in 0..3 {
                    let mut used = 1;
                    assert!(l2p.take(w, size, 1, Growth::Same));
                    while l2p.take(w, size, used, Growth::Same) {
                        used *= 2;
                    }
                    assert_eq!(used as u64 * chunk, way);
                }
                let lines = u64::from(l2p.used()) * chunk / 64;
                assert_eq!(lines * 8 * size.bytes(), maps);
            }
        }
    }
}
