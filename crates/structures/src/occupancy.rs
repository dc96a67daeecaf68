//! Resources with a fixed number of places: MSHRs, page walkers, queues.

mod by_end;
mod least;

use pagewalk_units::Cycle;

use self::by_end::ByEnd;
use self::least::Least;

/// A set of places that requests occupy for a duration that is unknown at their start.
/// A request is first admitted, and holds its place once its end is known. If all
/// places are occupied, it waits for the first release.
///
/// Requests need not come in time order. Each place stores the time from which it is
/// permanently free, and the last gaps before that. A request from an earlier time
/// takes a gap. If it stays longer than the gap, the overlap is taken from later gaps
/// and from the end, so the total occupied time is always exact. Ends that were already
/// reported cannot move. The request itself therefore bears the delay of the others.
///
/// A request takes constant time while there are free places. Otherwise it scans the
/// few places and their gaps; with many places, it scans only the gaps that end after
/// it.
#[derive(Clone, Debug)]
pub struct Occupancy {
    /// Time from which each place is permanently free, and their minimum.
    free_at: Least,
    /// The last gaps of each place, oldest first: `from <= t < to`.
    gaps: Vec<Gaps>,
    /// End of the latest gap.
    gaps_end: Cycle,
    /// Gaps of many places sorted by end, kept while requests come out of time order.
    by_end: ByEnd,
    /// True if there are at least [`MANY`] places.
    many: bool,
    /// The most recently taken place: free again if requests do not overlap.
    last: u32,
    /// The least recently taken place: free if requests overlap.
    next: u32,
}

/// Gaps stored for each place.
const GAPS: usize = 4;
/// Bits of a place number. Times must be below 2^(64 - `PLACE_BITS`).
const PLACE_BITS: u32 = 12;
/// Maximum number of places.
const MOST_PLACES: usize = 1 << PLACE_BITS;
/// Number of places from which gaps are also kept sorted. Below it, sorting costs more
/// than scanning all gaps.
const MANY: usize = 64;

/// The gaps of a place in time order, each from its first cycle to the cycle after its
/// last. Empty ones are unused.
type Gaps = [(Cycle, Cycle); GAPS];

/// A place that a request may occupy from `start` on; passed to [`Occupancy::hold`].
#[derive(Clone, Copy, Debug)]
#[must_use = "a request that is admitted holds its place"]
pub struct OccupancySlot {
    /// Time at which the request gets its place, at or after its arrival.
    pub start: Cycle,
    place: u32,
    /// Index of the gap; `GAPS` if the place is permanently free.
    gap: u32,
}

impl Occupancy {
    /// `places` free places, 1 to 4096.
    pub fn new(places: usize) -> Self {
        assert!(
            (1..=MOST_PLACES).contains(&places),
            "at least one place, at most {MOST_PLACES}"
        );
        Occupancy {
            free_at: Least::new(places),
            gaps: vec![[(0, 0); GAPS]; places],
            gaps_end: 0,
            by_end: ByEnd::new(places),
            many: places >= MANY,
            last: 0,
            next: 0,
        }
    }

    /// Number of places.
    pub fn places(&self) -> usize {
        self.free_at.places()
    }

    /// The first time at or after `at` when a place is free. Does not occupy it.
    #[inline]
    pub fn admit(&mut self, at: Cycle) -> OccupancySlot {
        for place in [self.last, self.next] {
            if self.free_at.time(place as usize) <= at {
                return OccupancySlot {
                    start: at,
                    place,
                    gap: GAPS as u32,
                };
            }
        }
        self.admit_among(at)
    }

    /// The general case of [`Occupancy::admit`], if neither likely place is free.
    #[inline(never)]
    fn admit_among(&mut self, at: Cycle) -> OccupancySlot {
        let (free, place) = self.free_at.first();
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

    /// Like [`Occupancy::admit`], but only if a place is free at `at` itself.
    #[inline]
    pub fn admit_at_once(&mut self, at: Cycle) -> Option<OccupancySlot> {
        for place in [self.last, self.next] {
            if self.free_at.time(place as usize) <= at {
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
        if self.free_at.bound() <= at {
            let (free, place) = self.free_at.first();
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
            // The last gap that has begun; all gaps before it are over.
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

    /// Like [`Occupancy::admit_gap`], for many places.
    fn admit_gap_of_many(&mut self, at: Cycle, mut slot: OccupancySlot) -> OccupancySlot {
        if !self.by_end.is_kept() {
            self.by_end.keep(&self.gaps, at);
        }
        if !self.by_end.reaches(at) {
            return self.admit_gap(at, slot);
        }
        // Scans from the latest end, and among equal ends from the first place. The
        // first gap found free at `at` is thus the one that stays free longest.
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

    /// Called if no place is permanently free before that of `slot`. Selects the gap
    /// that is free first, and among those the one that stays free longest.
    fn admit_gap(&self, at: Cycle, mut slot: OccupancySlot) -> OccupancySlot {
        let mut until = Cycle::MAX;
        for (i, gaps) in self.gaps.iter().enumerate() {
            // Gaps are in time order, and the last gap of most places is over.
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

    /// Occupies the place of `slot` until `end`. Returns the end to report for the
    /// request. It exceeds `end` by the delay that the request causes to others that
    /// were processed earlier but arrive later.
    #[inline(always)]
    pub fn hold(&mut self, slot: OccupancySlot, end: Cycle) -> Cycle {
        let place = slot.place as usize;
        let end = end.max(slot.start);
        if slot.gap as usize == GAPS {
            let free = self.free_at.time(place);
            if free < slot.start {
                let gaps = &mut self.gaps[place];
                *gaps = [gaps[1], gaps[2], gaps[3], (free, slot.start)];
                self.gaps_end = self.gaps_end.max(slot.start);
                if self.by_end.is_kept() {
                    self.by_end.add(place, (free, slot.start));
                }
            }
            self.free_at.set(place, end);
            self.last = slot.place;
            if slot.place == self.next {
                self.next += 1;
                if self.next as usize == self.free_at.places() {
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
        let free = self.free_at.time(place);
        self.free_at.set(place, free + owed);
        // The ends of requests that were processed earlier but arrive later have
        // already been reported. The present request bears their wait until this or
        // another place is free.
        let to = before[gap].1;
        if end <= to {
            return end;
        }
        end + (self.next_free(place, to, end) - to)
    }

    /// The first time from `at` on when a place other than `place` is free; at most
    /// `end`.
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
        first.min(self.free_at.without(place).max(at))
    }

    /// Like [`Occupancy::next_free`], by a scan of all gaps.
    fn next_free_of_few(&self, place: usize, at: Cycle) -> Cycle {
        let mut first = Cycle::MAX;
        for (i, gaps) in self.gaps.iter().enumerate() {
            if i == place {
                continue;
            }
            first = first.min(self.free_at.time(i).max(at));
            // Gaps are in time order, and the last gap of most places is over.
            if gaps[GAPS - 1].1 > at {
                for &(from, to) in gaps {
                    if from < to && to > at {
                        first = first.min(from.max(at));
                    }
                }
            }
            if first == at {
                break;
            }
        }
        first
    }

    /// Number of places occupied at `at`.
    pub fn taken(&self, at: Cycle) -> usize {
        let free = |i: usize| {
            self.free_at.time(i) <= at || self.gaps[i].iter().any(|g| g.0 <= at && at < g.1)
        };
        (0..self.places()).filter(|&i| !free(i)).count()
    }
}

/// Removes `start..end` from gap number `gap`. The part that does not fit is taken from
/// later gaps. Returns the remainder that fits in none.
fn fill_gap(gaps: &mut Gaps, gap: usize, start: Cycle, end: Cycle) -> Cycle {
    let (from, to) = gaps[gap];
    if end <= to {
        if start == from {
            gaps[gap] = (end, to);
        } else if end == to {
            gaps[gap] = (from, start);
        } else {
            // The gap splits in two, and the oldest gap is dropped.
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

    /// Time at which a request gets its place.
    fn take(o: &mut Occupancy, at: Cycle, duration: Cycle) -> Cycle {
        let slot = o.admit(at);
        o.hold(slot, slot.start + duration);
        slot.start
    }

    /// Reported total time of a request.
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
        // The part that exceeds the gap is added at the end.
        assert_eq!(take(&mut o, 950, 100), 950);
        assert_eq!(take(&mut o, 1100, 1), 1150);
    }

    /// Reference: several servers, first come first served, requests in time order.
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

    /// Error of the mean time in the system for requests at `load` of the capacity,
    /// processed out of order by up to `reach` cycles.
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
        let mut arrivals: Vec<(Cycle, (Cycle, Cycle))> = requests
            .iter()
            .map(|&q| (q.0 + r.random_range(0..=reach), q))
            .collect();
        arrivals.sort();
        let mut o = Occupancy::new(places);
        let total: u64 = arrivals
            .iter()
            .map(|&(_, (at, d))| time(&mut o, at, d))
            .sum();
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
        // All requests are out of order by up to half of a service time, more than an
        // instruction window causes for most of them.
        for places in [1, 4, 10, 16, 32] {
            for load in [0.3, 0.6, 0.8] {
                let e = error_of_disorder(places, load, 100, 2);
                assert!(e < 0.01, "{places} places at {load}: {e}");
            }
        }
        // Disorder of up to five service times, at a load with queueing.
        for places in [4, 10, 16, 32] {
            let e = error_of_disorder(places, 0.6, 1000, 2);
            assert!(e < 0.01, "{places} places: {e}");
        }
    }

    #[test]
    fn disorder_never_costs_throughput() {
        // An overload, out of order: all places are always busy.
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
            let room: u64 = (0..places).map(|place| o.free_at.time(place)).sum();
            prop_assert!(busy <= room, "{busy} cycles of use in {room}");
        }

        #[test]
        fn many_places_are_taken_as_few_are(
            places in 1usize..140, reach in 1u64..6000, seed in any::<u64>(),
        ) {
            // Equal sets of places, with sorted gaps and without.
            let mut all = [Occupancy::new(places), Occupancy::new(places)];
            all[0].many = false;
            all[1].many = true;
            let mut r = rng(seed, "test.occupancy.many");
            let mut now = 0;
            for _ in 0..1500 {
                // Loads slightly below and above the capacity, with occasional pauses.
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
            for place in 0..places {
                prop_assert_eq!(all[0].free_at.time(place), all[1].free_at.time(place));
            }
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
