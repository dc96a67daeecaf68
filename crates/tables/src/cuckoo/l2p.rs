//! The L2P table: where the chunks of the ways of a process's hashed page
//! tables lie (ME-HPT, sections IV-A and V-A, figure 6).
//!
//! Each way has three sub-tables side by side, of one page size each: that of
//! 4 KB pages grows upwards from one end, that of 2 MB pages downwards from the
//! other, and that of 1 GB pages lies in the middle, where the other two may
//! take it over whole as long as none of it is in use.

use pagewalk_units::PageSize;

/// For what chunks are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Growth {
    /// A way gets more chunks of the size it has: up to twice a sub-table's
    /// entries, and one entry of the way has to stay free for a change of the
    /// chunk size.
    Same,
    /// A way goes over to chunks of another size, and for as long as it takes
    /// needs the old chunks' entries and the new ones': any free entries.
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

    /// Whether [`L2p::take`] would succeed.
    pub(crate) fn has_room(&self, way: usize, size: PageSize, n: usize, growth: Growth) -> bool {
        self.room(way, size, n, growth).is_some()
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
        let whole_middle = (e..2 * e).all(|at| w.owner[at].is_none_or(|s| s == size));
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
        if growth == Growth::Same && size != PageSize::G1 {
            let next_to_each_other = places.windows(2).all(|p| p[0].abs_diff(p[1]) == 1);
            let within = used + n <= e || (used + n <= 2 * e && whole_middle);
            let left = w.owner.iter().filter(|o| o.is_none()).count() - n;
            if !within || !next_to_each_other || left == 0 {
                return None;
            }
        }
        Some(places)
    }
}
