//! The L2P table: it locates the chunks of the ways of a process's hashed page tables
//! (ME-HPT, sections IV-A and V-A, figure 6).
//!
//! Each way has three adjacent sub-tables, one for each page size. The sub-table of 4
//! KB pages grows upwards from one end, and that of 2 MB pages downwards from the
//! other. The 1 GB sub-table lies in the middle. While none of it is in use, either of
//! the others may take it over as a whole.
//!
//! All entries of a way can be in use: 64 of one page size and 32 of the other. A
//! chunk-size change that then finds no entry for the new chunks is made at once, so
//! that these reuse the entries of the old chunks.

use pagewalk_units::PageSize;

use crate::{Limit, Refusal};

/// The reason for requesting L2P entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Growth {
    /// A way adds chunks of its current size: up to twice a sub-table's entries.
    Same,
    /// A way changes its chunk size. During the change it needs the entries of both old
    /// and new chunks. It may use any free entries, but at most twice a sub-table's
    /// entries for the new chunks.
    Change,
}

/// Sub-tables of each way.
const SUBTABLES: usize = 3;

/// The entries of one way: three adjacent sub-tables.
#[derive(Clone, Debug)]
struct WayEntries {
    /// Page size that uses each entry, from the 4 KB end.
    owner: Vec<Option<PageSize>>,
    /// Entries of each page size, in allocation order.
    taken: [Vec<u16>; SUBTABLES],
    peak: [u16; SUBTABLES],
}

impl WayEntries {
    /// True if no page size except `size` uses the middle sub-table. `e` is the size of
    /// a sub-table.
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
    /// Maximum number of entries that were in use at once.
    pub(crate) fn peak(&self) -> u32 {
        self.peak
    }
    /// Number of times that a sub-table began to use entries of others.
    pub(crate) fn steals(&self) -> u64 {
        self.steals
    }
    /// Number of entries in use for `size` in `way`.
    pub(crate) fn used_by(&self, way: usize, size: PageSize) -> u32 {
        self.ways[way].taken[size.index()].len() as u32
    }
    /// Maximum number of entries that were in use for `size` in `way`.
    pub(crate) fn peak_of(&self, way: usize, size: PageSize) -> u32 {
        u32::from(self.ways[way].peak[size.index()])
    }
    /// Numbers of the entries of `size` in `way`, counted from the 4 KB end, in the order of the chunks.
    pub(crate) fn entries_of(&self, way: usize, size: PageSize) -> &[u16] {
        &self.ways[way].taken[size.index()]
    }
    /// The page size that uses entry `index` of `way`, counted from the 4 KB end.
    #[cfg(test)]
    pub(crate) fn owner(&self, way: usize, index: usize) -> Option<PageSize> {
        self.ways[way].owner[index]
    }

    /// Maximum number of entries that `size` in `way` can use while the other page
    /// sizes keep theirs.
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
    /// True if [`L2p::take`] would succeed.
    pub(crate) fn has_room(&self, way: usize, size: PageSize, n: usize, growth: Growth) -> bool {
        self.room(way, size, n, growth).is_some()
    }
    /// True if `n` new chunks of `size` in `way` would fit after the old chunks
    /// released their entries.
    pub(crate) fn has_room_instead(&self, way: usize, size: PageSize, n: usize) -> bool {
        let mut after = L2p {
            ways: vec![self.ways[way].clone()],
            ..*self
        };
        after.give_back(0, size, self.used_by(way, size) as usize);
        after.has_room(0, size, n, Growth::Change)
    }
    /// Takes `n` more entries for `size` in `way`. Returns false, and takes nothing, if
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

    /// Releases `n` entries of `size` in `way`. The remaining ones move together, so
    /// the end of the sub-table becomes free.
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
            // Beyond its own entries: the most significant entries of the other
            // sub-tables.
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
        // The final entries must fit into the size's own sub-table, or into that and
        // the middle one.
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

/// All L2P entries are in use, so the way cannot grow, whatever memory is free (ME-HPT,
/// sections IV-A and V-A).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the L2P table is full: way {way} of the {size} pages uses {used} of at most {most} entries and needs {wanted} more, for chunks of {} KB",
    .chunk >> 10
)]
pub(crate) struct L2pFull {
    /// Index of the way, counted from 0.
    pub way: u8,
    /// Page size of the table.
    pub size: PageSize,
    /// Entries in use.
    pub used: u32,
    /// Maximum entries while the other page sizes keep theirs.
    pub most: u32,
    /// Additional entries requested.
    pub wanted: u32,
    /// Size of the requested chunks in bytes.
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
        // 4 KB takes all its own entries, then those of 1 GB.
        assert!(l2p.take(0, K4, 30, Growth::Same));
        assert_eq!(l2p.steals(), 0);
        assert!(l2p.take(0, K4, 32, Growth::Same));
        assert_eq!(map(&l2p), format!("{}{}22", "4".repeat(64), ".".repeat(30)));
        assert_eq!(l2p.steals(), 1);
        assert_eq!([K4, M2, G1].map(|size| l2p.most(0, size)), [64, 32, 30]);
        // No growth beyond that with the same chunk size.
        assert!(!l2p.take(0, K4, 1, Growth::Same));
        // 1 GB takes the most significant entry of 2 MB.
        assert!(l2p.take(0, G1, 1, Growth::Same));
        assert_eq!(
            map(&l2p),
            format!("{}1{}22", "4".repeat(64), ".".repeat(29))
        );
        assert_eq!(l2p.steals(), 2);
        // A chunk-size change still finds an entry for the first new chunk.
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
            // All 96 entries of the way (figure 6b, with all entries of 2 MB pages in
            // use).
            assert_eq!(l2p.most(0, other), 32);
            assert!(l2p.take(0, other, 16, Growth::Same));
            assert_eq!(l2p.used(), 96);
            assert!(!l2p.take(0, G1, 1, Growth::Same));
            // New chunks fit only in place of the old ones, not in addition.
            assert!(!l2p.has_room(0, size, 1, Growth::Change));
            assert!(l2p.has_room_instead(0, size, 1) && l2p.has_room_instead(0, size, 64));
            assert!(!l2p.has_room_instead(0, other, 33));
            l2p.give_back(0, size, 64);
            assert!(l2p.take(0, size, 1, Growth::Change));
            assert_eq!(l2p.used(), 33);
        }
    }

    /// Table II: capacity with 64 chunks of one size in every way.
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
