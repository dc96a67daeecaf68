//! Free time of a resource that serves one request at a time: DRAM banks, buses.

/// The busy intervals of a resource over a short horizon, in any unit of time. A
/// request takes free time from its arrival on. It does not queue behind requests
/// that were processed earlier but arrive later in simulated time.
///
/// If requests come in time order, this is exactly first come, first served. Out
/// of order, the gap before an interval of a later request may be too short. The
/// end of that interval has already been reported and cannot move. The request
/// then takes the rest of its time from later gaps, so the resource is never used
/// twice and no gap is lost. Its own delay includes the delay that the later
/// requests should have had. The sum of delays is exact, but not their
/// distribution over requests.
///
/// At most `N` (at least 2) intervals are stored; the oldest is dropped when more
/// are needed. A request from before the horizon finds the resource free. This is
/// nearly right for a resource with that many gaps: a saturated one has a single
/// interval.
///
/// A request costs a few steps from the newest interval backwards, at most `N`.
#[derive(Clone, Debug)]
pub struct FreeIntervals<const N: usize> {
    /// Intervals `[from, to)` in time order, separated by gaps. Only `head..end`,
    /// at most `N`, are valid. Twice the capacity makes moves to the front rare.
    busy: [[(u64, u64); N]; 2],
    head: u32,
    end: u32,
}

impl<const N: usize> Default for FreeIntervals<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// The position of a request among the busy intervals.
struct Fit {
    /// Reported start.
    start: u64,
    /// The contiguous busy interval that results from the request and adjacent
    /// intervals.
    solid: (u64, u64),
    /// Intervals `first..last` become part of `solid`.
    first: usize,
    last: usize,
}

impl<const N: usize> FreeIntervals<N> {
    /// A resource that is always free.
    pub fn new() -> Self {
        const { assert!(N >= 2) };
        FreeIntervals {
            busy: [[(0, 0); N]; 2],
            head: 0,
            end: 0,
        }
    }

    /// The stored intervals.
    #[inline(always)]
    fn busy(&self) -> &[(u64, u64)] {
        &self.busy.as_flattened()[self.head as usize..self.end as usize]
    }

    #[inline(always)]
    fn find(&self, at: u64, length: u64) -> Fit {
        let busy = self.busy();
        // Backwards past all intervals that end at or after `at`.
        let mut first = busy.len();
        for &(_, to) in busy.iter().rev() {
            if to < at {
                break;
            }
            first -= 1;
        }
        let mut last = first;
        let mut from = at;
        let mut free = at;
        if let Some(&(begin, to)) = busy.get(last)
            && begin <= at
        {
            (from, free) = (begin, to);
            last += 1;
        }
        let earliest = free;
        let first_gap = match busy.get(last) {
            Some(next) => next.0 - free,
            None => u64::MAX,
        };
        let mut rest = length;
        let mut solid_to = u64::MAX;
        while let Some(&(next, to)) = busy.get(last) {
            if rest < next - free {
                break;
            }
            last += 1;
            if rest == next - free {
                solid_to = to;
                break;
            }
            rest -= next - free;
            free = to;
        }
        let end = free + rest;
        if solid_to == u64::MAX {
            solid_to = end;
        }
        let start = if first_gap >= length {
            earliest
        } else {
            let jumped = end - length - earliest;
            earliest + jumped * (length - first_gap) / length
        };
        Fit {
            start,
            solid: (from, solid_to),
            first,
            last,
        }
    }

    /// The start of a request of `length` at `at`. Reserves nothing.
    #[inline]
    pub fn earliest(&self, at: u64, length: u64) -> u64 {
        match self.busy().last() {
            None => at,
            Some(last) if last.0 <= at => at.max(last.1),
            Some(_) => self.find(at, length).start,
        }
    }

    /// Reserves `length` of free time from `at` on, and returns the start.
    #[inline(always)]
    pub fn take(&mut self, at: u64, length: u64) -> u64 {
        // Common case: the request lies after the last interval, or in it.
        let (head, end) = (self.head as usize, self.end as usize);
        let before = &mut self.busy.as_flattened_mut()[..end];
        match before.last_mut() {
            Some(last) if last.0 <= at && head < end => {
                if last.1 >= at {
                    let start = last.1;
                    last.1 += length;
                    return start;
                }
                self.append((at, at + length));
                at
            }
            _ => self.take_among(at, length),
        }
    }

    /// The general case of [`FreeIntervals::take`].
    #[inline(never)]
    fn take_among(&mut self, at: u64, length: u64) -> u64 {
        let Fit {
            start,
            solid,
            first,
            last,
        } = self.find(at, length);
        let (first, last) = (first + self.head as usize, last + self.head as usize);
        match last - first {
            0 => self.insert(first, solid),
            1 => self.busy.as_flattened_mut()[first] = solid,
            swallowed => {
                let busy = self.busy.as_flattened_mut();
                busy[first] = solid;
                busy.copy_within(last..self.end as usize, first + 1);
                self.end -= swallowed as u32 - 1;
            }
        }
        start
    }

    /// Appends an interval after all others.
    #[inline(always)]
    fn append(&mut self, interval: (u64, u64)) {
        if (self.end - self.head) as usize == N {
            self.head += 1;
        }
        if self.end as usize == 2 * N {
            self.move_to_front();
        }
        self.busy.as_flattened_mut()[self.end as usize] = interval;
        self.end += 1;
    }

    /// Inserts an interval at index `i`.
    #[inline(always)]
    fn insert(&mut self, mut i: usize, interval: (u64, u64)) {
        if (self.end - self.head) as usize == N {
            if i == self.head as usize {
                return; // older than all stored intervals
            }
            self.head += 1;
        }
        if self.end as usize == 2 * N {
            i -= self.move_to_front();
        }
        let busy = &mut self.busy.as_flattened_mut()[i..=self.end as usize];
        let mut last = interval;
        for b in busy {
            std::mem::swap(b, &mut last);
        }
        self.end += 1;
    }

    /// Makes room at the end. Returns the number of positions moved.
    #[cold]
    fn move_to_front(&mut self) -> usize {
        let by = self.head as usize;
        self.busy
            .as_flattened_mut()
            .copy_within(by..self.end as usize, 0);
        self.end -= self.head;
        self.head = 0;
        by
    }
}

#[cfg(test)]
mod tests {
    use super::FreeIntervals;
    use pagewalk_units::rng;
    use proptest::prelude::*;
    use rand::RngExt;

    #[test]
    fn an_earlier_request_uses_an_earlier_gap() {
        let mut f = FreeIntervals::<8>::new();
        assert_eq!(f.take(100, 10), 100);
        assert_eq!(f.take(0, 10), 0);
        assert_eq!(f.take(0, 50), 10);
        assert_eq!(f.take(0, 40), 60, "fills the gap to the brim");
        assert_eq!(f.busy().len(), 1, "one solid interval");
        assert_eq!(f.earliest(0, 10), 110);
        assert_eq!(f.take(0, 10), 110);
    }

    #[test]
    fn what_does_not_fit_a_gap_bears_the_delay_of_those_behind_it() {
        let mut f = FreeIntervals::<8>::new();
        assert_eq!(f.take(104, 10), 104);
        // In order: [100, 110), [110, 120), the second one delayed by 6.
        assert_eq!(f.take(100, 10), 106);
        assert_eq!(f.take(100, 10), 120, "and the time is taken whole");
    }

    #[test]
    fn a_saturated_resource_serves_back_to_back() {
        let mut f = FreeIntervals::<16>::new();
        for n in 0..1000 {
            assert_eq!(f.take(0, 7), n * 7);
        }
    }

    #[test]
    fn a_request_from_before_the_horizon_finds_it_free() {
        let mut f = FreeIntervals::<4>::new();
        for n in 1..20 {
            assert_eq!(f.take(n * 100, 10), n * 100);
        }
        assert_eq!(f.take(105, 10), 105);
        assert_eq!(f.take(1605, 10), 1610, "within the horizon it waits");
    }

    /// Mean wait of requests of `length` at `load`, processed out of order by up
    /// to `reach`, and the exact mean wait in order.
    fn mean_wait(load: f64, reach: u64, length: u64) -> (f64, f64) {
        let mut r = rng(3, "test.free_intervals");
        let mut at = 0.0;
        let mut requests: Vec<(u64, u64)> = vec![];
        for _ in 0..200_000 {
            at += r.random_range(0.0..2.0) * length as f64 / load;
            requests.push((at as u64 + r.random_range(0..=reach), at as u64));
        }
        let mut free = 0;
        let mut truth = 0;
        for &(_, at) in &requests {
            let start = free.max(at);
            free = start + length;
            truth += start - at;
        }
        requests.sort();
        let mut f = FreeIntervals::<64>::new();
        let total: u64 = requests
            .iter()
            .map(|&(_, at)| f.take(at, length) - at)
            .sum();
        let n = requests.len() as f64;
        (total as f64 / n, truth as f64 / n)
    }

    #[test]
    fn disorder_costs_below_one_percent_of_a_memory_access() {
        // A bus transfer of 3333 ps in a memory access of 60 ns, and disorder of
        // up to three such accesses.
        for load in [0.2, 0.5, 0.8, 0.9, 0.95] {
            for reach in [0, 20_000, 60_000, 180_000] {
                let (got, want) = mean_wait(load, reach, 3333);
                let error = (got - want).abs() / (want + 60_000.0);
                assert!(error < 0.01, "load {load}, reach {reach}: {got} for {want}");
                if reach == 0 {
                    assert_eq!(got, want, "exact in order");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn within_the_horizon_every_free_moment_is_used_once(
            requests in prop::collection::vec((0usize..3000, 1usize..40), 1..60),
        ) {
            // 64 intervals hold 60 requests, so the horizon covers everything.
            let mut f = FreeIntervals::<64>::new();
            let mut taken = vec![false; 8000];
            for (at, length) in requests {
                let free: Vec<usize> = (at..8000).filter(|&t| !taken[t]).take(length).collect();
                for &t in &free {
                    taken[t] = true;
                }
                prop_assert_eq!(f.earliest(at as u64, length as u64), f.clone().take(at as u64, length as u64));
                let start = f.take(at as u64, length as u64) as usize;
                prop_assert!(start >= free[0] && start + length <= free[length - 1] + 1);
                let busy: u64 = f.busy().iter().map(|b| b.1 - b.0).sum();
                prop_assert_eq!(busy as usize, taken.iter().filter(|&&t| t).count());
            }
        }
    }
}
