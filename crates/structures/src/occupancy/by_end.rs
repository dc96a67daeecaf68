//! The gaps of many places, sorted by end.

use pagewalk_units::Cycle;

use super::{GAPS, Gaps, MOST_PLACES, PLACE_BITS};

/// Cycles before the current request for which gaps are kept, more than the usual
/// disorder of requests. An earlier request scans all gaps.
const REACH: Cycle = 4096;

/// A gap of a place, as of its insertion here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    /// The end of the gap, with the place in the low bits, counted from the last one.
    /// Among gaps with equal ends, the first place has the highest key.
    key: u64,
    /// First cycle of the gap.
    pub from: Cycle,
}

impl Gap {
    fn new(place: usize, (from, to): (Cycle, Cycle)) -> Self {
        Gap {
            key: key(place, to),
            from,
        }
    }

    /// The gap's place.
    #[inline(always)]
    pub fn place(self) -> usize {
        MOST_PLACES - 1 - (self.key as usize & (MOST_PLACES - 1))
    }

    /// The gap's index in its place, if the place still stores it.
    #[inline]
    pub fn number(self, all: &[Gaps]) -> Option<usize> {
        let it = (self.from, self.key >> PLACE_BITS);
        all[self.place()].iter().position(|&g| g == it)
    }
}

#[inline(always)]
fn key(place: usize, to: Cycle) -> u64 {
    to << PLACE_BITS | (MOST_PLACES - 1 - place) as u64
}

/// Gaps sorted by their ends. A request from an earlier time scans the few gaps that end
/// after it. Gaps are kept from the first such request until there are too many. If
/// requests come in time order, they are never kept again.
#[derive(Clone, Debug)]
pub(super) struct ByEnd {
    /// Sorted by key. Contains every nonempty gap that ends after `floor`, and possibly
    /// some that their places have dropped.
    gaps: Vec<Gap>,
    /// Gaps that end at or before this time are not kept. `Cycle::MAX`: none are kept.
    floor: Cycle,
    /// Maximum number of gaps.
    most: usize,
}

impl ByEnd {
    /// For `places` places, with nothing kept.
    pub fn new(places: usize) -> Self {
        ByEnd {
            gaps: Vec::new(),
            floor: Cycle::MAX,
            most: 2 * GAPS * places,
        }
    }

    /// True if gaps are kept.
    #[inline(always)]
    pub fn is_kept(&self) -> bool {
        self.floor != Cycle::MAX
    }

    /// True if all gaps that end after `at` are kept.
    #[inline(always)]
    pub fn reaches(&self, at: Cycle) -> bool {
        self.floor <= at
    }

    /// Starts to keep the gaps of all places that a request from `at` or slightly earlier
    /// may take.
    pub fn keep(&mut self, all: &[Gaps], at: Cycle) {
        self.floor = at.saturating_sub(REACH);
        let places = all.iter().enumerate();
        let gaps = places.flat_map(|(place, gaps)| gaps.iter().map(move |&g| (place, g)));
        let kept = gaps.filter(|(_, g)| g.0 < g.1 && g.1 > self.floor);
        self.gaps.clear();
        self.gaps.extend(kept.map(|(place, g)| Gap::new(place, g)));
        self.gaps.sort_unstable_by_key(|g| g.key);
    }

    /// The gaps that end after `at`, latest first.
    #[inline]
    pub fn after(&self, at: Cycle) -> impl Iterator<Item = Gap> {
        let ends = self.gaps.iter().rev();
        ends.take_while(move |g| g.key >> PLACE_BITS > at).copied()
    }

    /// Adds a nonempty gap of a place.
    #[inline(never)]
    pub fn add(&mut self, place: usize, gap: (Cycle, Cycle)) {
        if gap.1 <= self.floor {
            return;
        }
        if self.gaps.len() == self.most {
            self.gaps.clear();
            self.floor = Cycle::MAX;
            return;
        }
        let gap = Gap::new(place, gap);
        // Most gaps belong near the end.
        let behind = self.gaps.iter().rev().take_while(|g| g.key > gap.key);
        let at = self.gaps.len() - behind.count();
        self.gaps.insert(at, gap);
    }

    /// Replaces the gaps of a place.
    pub fn change(&mut self, place: usize, before: &Gaps, now: &Gaps) {
        for old in before.iter().filter(|g| g.0 < g.1 && !now.contains(g)) {
            let key = key(place, old.1);
            if let Ok(at) = self.gaps.binary_search_by_key(&key, |g| g.key) {
                self.gaps.remove(at);
            }
        }
        for &new in now.iter().filter(|g| g.0 < g.1 && !before.contains(g)) {
            if self.is_kept() {
                self.add(place, new);
            }
        }
    }
}
