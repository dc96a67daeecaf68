//! The gaps of many places in order of time.

use pagewalk_units::Cycle;

use super::{GAPS, Gaps, MOST_PLACES, PLACE_BITS};

/// How far back gaps are kept, in cycles: further than requests come out of order. One
/// from before looks at all gaps.
const REACH: Cycle = 4096;

/// A gap of a place: that it had, when it was put in here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    /// Its end, and in the low bits the place, counted from the last one: of gaps that
    /// end together that of the first place has the highest key.
    key: u64,
    /// Its first cycle.
    pub from: Cycle,
}

impl Gap {
    fn new(place: usize, (from, to): (Cycle, Cycle)) -> Self {
        Gap {
            key: key(place, to),
            from,
        }
    }

    /// Whose.
    #[inline(always)]
    pub fn place(self) -> usize {
        MOST_PLACES - 1 - (self.key as usize & (MOST_PLACES - 1))
    }

    /// Which one of its place it is, if that still remembers it.
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

/// Gaps in order of their ends. A request from an earlier time than others looks at
/// those that end behind it, which are few, and not at all. They are kept from the
/// first such request on until there are too many of them: where requests come in
/// order of time, that is never again.
#[derive(Clone, Debug)]
pub(super) struct ByEnd {
    /// By key. Every gap is among them that is not empty and ends after `floor`; some
    /// are that their place has forgotten.
    gaps: Vec<Gap>,
    /// Gaps that end here or before are not kept. The last cycle there is: none are.
    floor: Cycle,
    /// Most gaps.
    most: usize,
}

impl ByEnd {
    /// For so many places; keeps nothing.
    pub fn new(places: usize) -> Self {
        ByEnd {
            gaps: Vec::new(),
            floor: Cycle::MAX,
            most: 2 * GAPS * places,
        }
    }

    /// Whether gaps are kept.
    #[inline(always)]
    pub fn is_kept(&self) -> bool {
        self.floor != Cycle::MAX
    }

    /// Whether gaps are kept that end after `at`, all of them.
    #[inline(always)]
    pub fn reaches(&self, at: Cycle) -> bool {
        self.floor <= at
    }

    /// Keeps the gaps of all places that a request from `at` or somewhat before may take.
    pub fn keep(&mut self, all: &[Gaps], at: Cycle) {
        self.floor = at.saturating_sub(REACH);
        let places = all.iter().enumerate();
        let gaps = places.flat_map(|(place, gaps)| gaps.iter().map(move |&g| (place, g)));
        let kept = gaps.filter(|(_, g)| g.0 < g.1 && g.1 > self.floor);
        self.gaps.clear();
        self.gaps.extend(kept.map(|(place, g)| Gap::new(place, g)));
        self.gaps.sort_unstable_by_key(|g| g.key);
    }

    /// The gaps that end after `at`, from the last one back.
    #[inline]
    pub fn after(&self, at: Cycle) -> impl Iterator<Item = Gap> {
        let ends = self.gaps.iter().rev();
        ends.take_while(move |g| g.key >> PLACE_BITS > at).copied()
    }

    /// The place has one gap more, which is not empty.
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
        // Most are among the last ones.
        let behind = self.gaps.iter().rev().take_while(|g| g.key > gap.key);
        let at = self.gaps.len() - behind.count();
        self.gaps.insert(at, gap);
    }

    /// The place has other gaps than before.
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
