//! A fixed number of places, each taken for a while: MSHRs, page walkers, queues.

mod by_end;
mod least;

use pagewalk_units::Cycle;

use self::by_end::ByEnd;
use self::least::Least;

/// Places that requests take for a duration not known when they start: a
/// request is admitted first and holds its place once its end is known. A full
/// set delays a request to the first release.
///
/// Requests need not come in order of time. Each place remembers, beside the
/// time from which it is free for good, the last gaps before that; a request
/// from an earlier time takes a gap. If it then stays longer than the gap, the
/// place owes the overlap: it is taken from the gaps behind and from the end,
/// so that the total time for which places are taken is always right. The ends
/// that others have been told cannot move any more; the request itself bears
/// what they would have been delayed by.
///
/// Cost of a request: constant while there are free places; else one pass over
/// few places and their gaps, and of many over the gaps that end after it only.
#[derive(Clone, Debug)]
pub struct Occupancy {
    /// From when each place is free for good.
    free_at: Vec<Cycle>,
    /// The least of these.
    least: Least,
    /// The last gaps before that, oldest first: `from <= t < to`.
    gaps: Vec<Gaps>,
    /// The end of the latest gap.
    gaps_end: Cycle,
    /// The gaps of many places, while requests from earlier times than others come.
    by_end: ByEnd,
    /// Whether there are so many places.
    many: bool,
    /// The place taken last: free again if requests follow one another.
    last: u32,
    /// The place taken longest ago: free if requests overlap.
    next: u32,
}

/// Gaps that a place remembers.
const GAPS: usize = 4;
/// Bits of a place's number: times below 2^(64 - this) are told apart.
const PLACE_BITS: u32 = 12;
/// Most places.
const MOST_PLACES: usize = 1 << PLACE_BITS;
/// From so many places on their gaps are kept in order, too: below it costs more to
/// keep the order than to look at them all.
const MANY: usize = 64;

/// The gaps of a place: each from its first cycle to the one behind it, in order of
/// time; empty ones are none.
type Gaps = [(Cycle, Cycle); GAPS];

/// A place that a request may take from `start` on; given to [`Occupancy::hold`].
#[derive(Clone, Copy, Debug)]
#[must_use = "a request that is admitted holds its place"]
pub struct OccupancySlot {
    /// When the request gets its place, at or after the time it asked.
    pub start: Cycle,
    place: u32,
    /// Which gap; `GAPS`: none, the place is free for good.
    gap: u32,
}

impl Occupancy {
    /// `places` of them, 1 to 4096, all free.
    pub fn new(places: usize) -> Self {
        assert!(
            (1..=MOST_PLACES).contains(&places),
            "at least one place, at most {MOST_PLACES}"
        );
        Occupancy {
            free_at: vec![0; places],
            least: Least::new(places),
            gaps: vec![[(0, 0); GAPS]; places],
            gaps_end: 0,
            by_end: ByEnd::new(places),
            many: places >= MANY,
            last: 0,
            next: 0,
        }
    }

    /// How many places there are.
    pub fn places(&self) -> usize {
        self.free_at.len()
    }

    /// The first time at or after `at` when a place is free. Takes none.
    #[inline]
    pub fn admit(&mut self, at: Cycle) -> OccupancySlot {
        for place in [self.last, self.next] {
            if self.free_at[place as usize] <= at {
                return OccupancySlot {
                    start: at,
                    place,
                    gap: GAPS as u32,
                };
            }
        }
        self.admit_among(at)
    }

    /// The same where neither of the likely places is free.
    #[inline(never)]
    fn admit_among(&mut self, at: Cycle) -> OccupancySlot {
        let (free, place) = self.least.of(&self.free_at);
        let slot = OccupancySlot {
            start: free.max(at),
            place: place as u32,
            gap: GAPS as u32,
        };
        if free <= at || at >= self.gaps_end {
            return slot;
        }
        if self.many {
            self.admit_gap_of_many(at, slot)
        } else {
            self.admit_gap(at, slot)
        }
    }

    /// As [`Occupancy::admit`], where a place is free at `at` itself.
    #[inline]
    pub fn admit_at_once(&mut self, at: Cycle) -> Option<OccupancySlot> {
        for place in [self.last, self.next] {
            if self.free_at[place as usize] <= at {
                return Some(OccupancySlot {
                    start: at,
                    place,
                    gap: GAPS as u32,
                });
            }
        }
        self.admit_among_at_once(at)
    }

    #[inline(never)]
    fn admit_among_at_once(&mut self, at: Cycle) -> Option<OccupancySlot> {
        let mut slot = OccupancySlot {
            start: Cycle::MAX,
            place: 0,
            gap: GAPS as u32,
        };
        if self.least.bound() <= at {
            let (free, place) = self.least.of(&self.free_at);
            if free <= at {
                (slot.start, slot.place) = (at, place as u32);
                return Some(slot);
            }
        }
        if at >= self.gaps_end {
            return None;
        }
        if self.many {
            slot = self.admit_gap_of_many(at, slot);
            return (slot.start == at).then_some(slot);
        }
        let mut until = at;
        for (i, gaps) in self.gaps.iter().enumerate() {
            // The last gap that has begun: those before it are over.
            let begun = gaps.iter().rposition(|gap| gap.0 <= at);
            if let Some(g) = begun
                && gaps[g].1 > until
            {
                until = gaps[g].1;
                slot = OccupancySlot {
                    start: at,
                    place: i as u32,
                    gap: g as u32,
                };
            }
        }
        (until > at).then_some(slot)
    }

    /// As [`Occupancy::admit_gap`].
    fn admit_gap_of_many(&mut self, at: Cycle, mut slot: OccupancySlot) -> OccupancySlot {
        if !self.by_end.is_kept() {
            self.by_end.keep(&self.gaps, at);
        }
        if !self.by_end.reaches(at) {
            return self.admit_gap(at, slot);
        }
        // From the last end on, and of equal ends from the first place on: the first
        // gap that is free at `at` is free longest.
        for gap in self.by_end.after(at) {
            let start = at.max(gap.from);
            if start < slot.start
                && let Some(g) = gap.number(&self.gaps)
            {
                slot = OccupancySlot {
                    start,
                    place: gap.place() as u32,
                    gap: g as u32,
                };
                if start == at {
                    break;
                }
            }
        }
        slot
    }

    /// No place is free for good before that of `slot`: the gap that is free
    /// first, and of those the one that stays so longest.
    fn admit_gap(&self, at: Cycle, mut slot: OccupancySlot) -> OccupancySlot {
        let mut until = Cycle::MAX;
        for (i, gaps) in self.gaps.iter().enumerate() {
            // Gaps are in order of time: most places' last one is over.
            if gaps[GAPS - 1].1 <= at {
                continue;
            }
            for (g, &(from, to)) in gaps.iter().enumerate() {
                let start = at.max(from);
                if start < to && (start < slot.start || start == slot.start && to > until) {
                    slot = OccupancySlot {
                        start,
                        place: i as u32,
                        gap: g as u32,
                    };
                    until = to;
                }
            }
        }
        slot
    }

    /// The request of `slot` keeps its place until `end`; gives the end to
    /// report for it. That is `end`, or later by what a request from an earlier
    /// time than others before it would have delayed those by.
    #[inline(always)]
    pub fn hold(&mut self, slot: OccupancySlot, end: Cycle) -> Cycle {
        let place = slot.place as usize;
        let end = end.max(slot.start);
        if slot.gap as usize == GAPS {
            let free = self.free_at[place];
            if free < slot.start {
                let gaps = &mut self.gaps[place];
                gaps.copy_within(1.., 0);
                gaps[GAPS - 1] = (free, slot.start);
                self.gaps_end = self.gaps_end.max(slot.start);
                if self.by_end.is_kept() {
                    self.by_end.add(place, (free, slot.start));
                }
            }
            self.free_at[place] = end;
            self.least.changed(place);
            self.last = slot.place;
            if slot.place == self.next {
                self.next += 1;
                if self.next as usize == self.free_at.len() {
                    self.next = 0;
                }
            }
            end
        } else {
            self.hold_gap(place, slot.gap as usize, slot.start, end)
        }
    }

    #[inline(never)]
    fn hold_gap(&mut self, place: usize, gap: usize, start: Cycle, end: Cycle) -> Cycle {
        let before = self.gaps[place];
        let owed = fill_gap(&mut self.gaps[place], gap, start, end);
        if self.by_end.is_kept() {
            self.by_end.change(place, &before, &self.gaps[place]);
        }
        self.free_at[place] += owed;
        self.least.changed(place);
        // Those that came before from later times have been told their ends.
        // What they would now wait, until this place or another is free, is
        // borne by this request.
        let to = before[gap].1;
        if end <= to {
            return end;
        }
        end + (self.next_free(place, to, end) - to)
    }

    /// When, from `at` on, a place other than `place` is free; at most `end`.
    fn next_free(&mut self, place: usize, at: Cycle, end: Cycle) -> Cycle {
        if !self.by_end.reaches(at) {
            return self.next_free_of_few(place, at).min(end);
        }
        let mut first = end;
        for gap in self.by_end.after(at) {
            if gap.from < first && gap.place() != place && gap.number(&self.gaps).is_some() {
                first = at.max(gap.from);
                if first == at {
                    return at;
                }
            }
        }
        first.min(self.least.without(&self.free_at, place).max(at))
    }

    /// The same by all gaps.
    fn next_free_of_few(&self, place: usize, at: Cycle) -> Cycle {
        let mut first = Cycle::MAX;
        for (i, gaps) in self.gaps.iter().enumerate() {
            if i == place {
                continue;
            }
            first = first.min(self.free_at[i].max(at));
            for &(from, to) in gaps {
                if from < to && to > at {
                    first = first.min(from.max(at));
                }
            }
        }
        first
    }

    /// Places taken at `at`.
    pub fn taken(&self, at: Cycle) -> usize {
        let free =
            |i: usize| self.free_at[i] <= at || self.gaps[i].iter().any(|g| g.0 <= at && at < g.1);
        (0..self.places()).filter(|&i| !free(i)).count()
    }
}

/// Takes `start..end` out of gap number `gap`, and what does not fit there out of
/// those behind it; gives what fits none.
fn fill_gap(gaps: &mut Gaps, gap: usize, start: Cycle, end: Cycle) -> Cycle {
    let (from, to) = gaps[gap];
    if end <= to {
        if start == from {
            gaps[gap] = (end, to);
        } else if end == to {
            gaps[gap] = (from, start);
        } else {
            // Two pieces: the oldest gap is forgotten for the second one.
            gaps.copy_within(1..=gap, 0);
            if gap > 0 {
                gaps[gap - 1] = (from, start);
            }
            gaps[gap] = (end, to);
        }
        return 0;
    }
    gaps[gap] = (from, start);
    let mut owed = end - to;
    for g in &mut gaps[gap + 1..] {
        let paid = owed.min(g.1 - g.0);
        g.0 += paid;
        owed -= paid;
    }
    owed
}

#[cfg(test)]
mod tests {
    use super::{Occupancy, OccupancySlot};
    use pagewalk_units::{Cycle, rng};
    use proptest::prelude::*;
    use rand::RngExt;

    /// When a request gets its place.
    fn take(o: &mut Occupancy, at: Cycle, duration: Cycle) -> Cycle {
        let slot = o.admit(at);
        o.hold(slot, slot.start + duration);
        slot.start
    }

    /// How long a request takes in all, as told.
    fn time(o: &mut Occupancy, at: Cycle, duration: Cycle) -> Cycle {
        let slot = o.admit(at);
        o.hold(slot, slot.start + duration) - at
    }

    #[test]
    fn a_full_set_delays_to_the_first_release() {
        let mut o = Occupancy::new(2);
        assert_eq!(take(&mut o, 0, 100), 0);
        assert_eq!(take(&mut o, 10, 50), 10);
        assert_eq!(o.taken(20), 2);
        assert_eq!(take(&mut o, 20, 10), 60);
        assert_eq!(take(&mut o, 21, 10), 70);
        assert_eq!(take(&mut o, 22, 10), 80);
        assert_eq!(take(&mut o, 200, 10), 200);
        assert_eq!(o.taken(205), 1);
        assert_eq!(o.taken(210), 0);
    }

    #[test]
    fn an_earlier_request_uses_an_earlier_gap() {
        let mut o = Occupancy::new(1);
        assert_eq!(take(&mut o, 1000, 100), 1000);
        assert_eq!(take(&mut o, 0, 100), 0);
        assert_eq!(take(&mut o, 0, 100), 100);
        // What stays longer than the gap is owed at the end.
        assert_eq!(take(&mut o, 950, 100), 950);
        assert_eq!(take(&mut o, 1100, 1), 1150);
    }

    /// Many servers, first come first served, requests sorted by time.
    fn in_order(requests: &[(Cycle, Cycle)], places: usize) -> f64 {
        let mut sorted = requests.to_vec();
        sorted.sort();
        let mut free = vec![0; places];
        let mut total = 0;
        for (at, duration) in sorted {
            let f = free.iter_mut().min().expect("places");
            let start = at.max(*f);
            *f = start + duration;
            total += start + duration - at;
        }
        total as f64 / requests.len() as f64
    }

    /// Requests at `load` of the capacity, asked out of order by up to `reach`
    /// cycles: the error of the mean time in the system.
    fn error_of_disorder(places: usize, load: f64, reach: Cycle, seed: u64) -> f64 {
        let mut r = rng(seed, "test.occupancy");
        let mut at = 0.0;
        let mut requests: Vec<(Cycle, Cycle)> = vec![];
        for _ in 0..100_000 {
            let duration = r.random_range(100u64..300);
            at += r.random_range(0.0..2.0) * 200.0 / (places as f64 * load);
            requests.push((at as Cycle, duration));
        }
        let truth = in_order(&requests, places);
        let mut asked: Vec<(Cycle, (Cycle, Cycle))> = requests
            .iter()
            .map(|&q| (q.0 + r.random_range(0..=reach), q))
            .collect();
        asked.sort();
        let mut o = Occupancy::new(places);
        let total: u64 = asked.iter().map(|&(_, (at, d))| time(&mut o, at, d)).sum();
        (total as f64 / requests.len() as f64 - truth).abs() / truth
    }

    #[test]
    fn requests_in_order_are_served_exactly() {
        for places in [1, 4, 10, 16] {
            for load in [0.3, 0.8, 0.95] {
                let e = error_of_disorder(places, load, 0, 1);
                assert!(e < 1e-12, "{places} places at {load}: {e}");
            }
        }
    }

    #[test]
    fn disorder_costs_below_one_percent() {
        // All requests out of order by up to half the time that one takes, which
        // is more than a window of instructions does to most of them.
        for places in [1, 4, 10, 16, 32] {
            for load in [0.3, 0.6, 0.8] {
                let e = error_of_disorder(places, load, 100, 2);
                assert!(e < 0.01, "{places} places at {load}: {e}");
            }
        }
        // By up to five times as long as one takes, at a load where there are queues.
        for places in [4, 10, 16, 32] {
            let e = error_of_disorder(places, 0.6, 1000, 2);
            assert!(e < 0.01, "{places} places: {e}");
        }
    }

    #[test]
    fn disorder_never_costs_throughput() {
        // More than can be served, out of order: the places are all busy all the time.
        for places in [1, 4, 16] {
            let mut r = rng(5, "test.occupancy.saturated");
            let mut o = Occupancy::new(places);
            let mut last = 0;
            let n = 20_000u64;
            for i in 0..n {
                let at = i * 200 / (2 * places as u64) + r.random_range(0..2000);
                let slot = o.admit(at);
                last = last.max(o.hold(slot, slot.start + 200));
            }
            let ideal = n * 200 / places as u64;
            let error = last as f64 / ideal as f64 - 1.0;
            assert!((-0.001..0.01).contains(&error), "{places} places: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_place_serves_one_at_a_time_in_the_long_run(
            places in 1usize..8, requests in prop::collection::vec((0u64..5000, 1u64..200), 1..300),
        ) {
            let mut o = Occupancy::new(places);
            let mut busy = 0;
            for (at, duration) in requests {
                prop_assert!(take(&mut o, at, duration) >= at);
                busy += duration;
            }
            let room: u64 = o.free_at.iter().sum();
            prop_assert!(busy <= room, "{busy} cycles of use in {room}");
        }

        #[test]
        fn many_places_are_taken_as_few_are(
            places in 1usize..140, reach in 1u64..6000, seed in any::<u64>(),
        ) {
            // The same places, with their gaps in order of time and without.
            let mut all = [Occupancy::new(places), Occupancy::new(places)];
            all[0].many = false;
            all[1].many = true;
            let mut r = rng(seed, "test.occupancy.many");
            let mut now = 0;
            for _ in 0..1500 {
                // A little less to a little more than can be served; pauses in between.
                now += r.random_range(0..600 / places as u64 + 2);
                now += if r.random_range(0..1000) == 0 { 20_000 } else { 0 };
                let at = now + r.random_range(0..reach);
                let length = r.random_range(0u64..500);
                let [few, many] = all.each_mut().map(|o| {
                    let at_once = o.admit_at_once(at);
                    let slot = o.admit(at);
                    let place = |s: OccupancySlot| (s.start, s.place, s.gap);
                    assert_eq!(
                        at_once.map(place),
                        (slot.start == at).then_some(place(slot)),
                    );
                    (slot.start, slot.place, slot.gap, o.hold(slot, slot.start + length))
                });
                prop_assert_eq!(few, many);
            }
            prop_assert_eq!(&all[0].gaps, &all[1].gaps);
            prop_assert_eq!(&all[0].free_at, &all[1].free_at);
            prop_assert!(!all[0].by_end.is_kept());
        }

        #[test]
        fn more_places_never_delay_more_in_order(
            places in 1usize..8, mut requests in prop::collection::vec((0u64..5000, 1u64..200), 1..200),
        ) {
            requests.sort();
            let total = |n| {
                let mut o = Occupancy::new(n);
                requests.iter().map(|&(at, d)| take(&mut o, at, d) - at).sum::<u64>()
            };
            prop_assert!(total(places + 1) <= total(places));
        }
    }
}
