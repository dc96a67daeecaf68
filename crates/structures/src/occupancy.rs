//! A fixed number of places, each taken for a while: MSHRs, page walkers, queues.

use pagewalk_units::Cycle;

/// Places that requests take for a duration not known when they start: a
/// request is admitted first and holds its place once its end is known. A full
/// set delays a request to the first release.
///
/// Requests need not come in order of time. Each place remembers, beside the
/// time from which it is free for good, the last gap before that; a request
/// from an earlier time takes a gap that holds it. If it then stays longer
/// than the gap, the place owes the overlap at its end, so that the total time
/// for which places are taken is always right and only its distribution is
/// approximate.
///
/// Cost of a request: one pass over the places.
#[derive(Clone, Debug)]
pub struct Occupancy {
    /// From when each place is free for good.
    free_at: Vec<Cycle>,
    /// The last gap before that: `from <= t < to`.
    gaps: Vec<(Cycle, Cycle)>,
}

/// A place that a request may take from `start` on; given to [`Occupancy::hold`].
#[derive(Clone, Copy, Debug)]
#[must_use = "a request that is admitted holds its place"]
pub struct Slot {
    /// When the request gets its place, at or after the time it asked.
    pub start: Cycle,
    index: u32,
    in_gap: bool,
}

impl Occupancy {
    /// `places` of them, at least one, all free.
    pub fn new(places: usize) -> Self {
        assert!(places > 0, "at least one place");
        Occupancy {
            free_at: vec![0; places],
            gaps: vec![(0, 0); places],
        }
    }

    /// How many places there are.
    pub fn places(&self) -> usize {
        self.free_at.len()
    }

    /// The first time at or after `at` when a place is free. Changes nothing.
    #[inline]
    pub fn admit(&self, at: Cycle) -> Slot {
        // Of the places that are free, the one that became so last: the gap
        // that this leaves behind is the shortest, and those that others
        // leave for requests from earlier times stay as they are.
        let mut fit = usize::MAX;
        let mut fit_at = 0;
        let mut first = 0;
        let mut first_at = Cycle::MAX;
        for (i, &free) in self.free_at.iter().enumerate() {
            if free <= at && (free >= fit_at) {
                (fit, fit_at) = (i, free);
            }
            if free < first_at {
                (first, first_at) = (i, free);
            }
        }
        if fit != usize::MAX {
            return Slot {
                start: at,
                index: fit as u32,
                in_gap: false,
            };
        }
        let mut slot = Slot {
            start: first_at,
            index: first as u32,
            in_gap: false,
        };
        for (i, &(from, to)) in self.gaps.iter().enumerate() {
            let start = at.max(from);
            if start < to && start < slot.start {
                slot = Slot {
                    start,
                    index: i as u32,
                    in_gap: true,
                };
            }
        }
        slot
    }

    /// The request of `slot` keeps its place until `end`.
    #[inline]
    pub fn hold(&mut self, slot: Slot, end: Cycle) {
        let i = slot.index as usize;
        let end = end.max(slot.start);
        let free = self.free_at[i];
        if slot.in_gap {
            let (from, to) = self.gaps[i];
            if end <= to {
                // The longer of the two pieces stays usable.
                self.gaps[i] = if slot.start - from > to - end {
                    (from, slot.start)
                } else {
                    (end, to)
                };
            } else {
                self.gaps[i] = (from, slot.start);
                self.free_at[i] = free + (end - to);
            }
        } else {
            if free < slot.start {
                self.gaps[i] = (free, slot.start);
            }
            self.free_at[i] = end;
        }
    }

    /// Places taken at `at`.
    pub fn taken(&self, at: Cycle) -> usize {
        let free =
            |i: usize| self.free_at[i] <= at || (self.gaps[i].0 <= at && at < self.gaps[i].1);
        (0..self.places()).filter(|&i| !free(i)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewalk_units::rng;
    use proptest::prelude::*;
    use rand::RngExt;

    fn take(o: &mut Occupancy, at: Cycle, duration: Cycle) -> Cycle {
        let slot = o.admit(at);
        o.hold(slot, slot.start + duration);
        slot.start
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
        let total: u64 = asked
            .iter()
            .map(|&(_, (at, d))| take(&mut o, at, d) + d - at)
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
        // Up to the time of one request of disorder; places in plenty stand more.
        for (places, load, reach) in [
            (4, 0.3, 1000),
            (4, 0.6, 100),
            (10, 0.3, 1000),
            (10, 0.6, 1000),
            (10, 0.8, 50),
            (16, 0.6, 1000),
            (16, 0.8, 100),
            (32, 0.8, 1000),
        ] {
            let e = error_of_disorder(places, load, reach, 2);
            assert!(e < 0.01, "{places} places at {load}, reach {reach}: {e}");
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
