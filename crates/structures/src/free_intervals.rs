//! When a resource that serves one request at a time is free: DRAM banks, buses.

/// The busy intervals of a resource over a short horizon, in any unit of time.
/// A request takes the free time from the moment it asks, so that one from an
/// earlier time than others before it does not wait behind them.
///
/// In order of time this is first come, first served, exactly. Out of order, a
/// request may find less free time than it needs before an interval that was
/// taken for a later one. That one's end has been told already and cannot move
/// any more. The request then takes the rest of its time from the gaps behind,
/// so that the resource is never used twice and no gap is lost, and is delayed
/// itself by what the later ones would have been delayed by: the sum of the
/// delays is right, though not who bears them.
///
/// `N` (a power of two) intervals are remembered; when more are needed the
/// oldest is forgotten. A request from before the horizon finds the resource
/// free, which for a resource with that many gaps is nearly right: one that is
/// saturated is a single interval.
///
/// Cost of a request: a few steps from the newest interval backwards, at most `N`.
#[derive(Clone, Debug)]
pub struct FreeIntervals<const N: usize> {
    /// Ring of `[from, to)` in order of time; between two of them is a gap.
    busy: [(u64, u64); N],
    /// Position of the oldest in the ring.
    head: u32,
    len: u32,
}

impl<const N: usize> Default for FreeIntervals<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// Where a request finds its time.
struct Found {
    /// When it is told that it starts.
    start: u64,
    /// The solid interval that its time and those it touches become.
    solid: (u64, u64),
    /// Intervals `first..last` are swallowed by `solid`.
    first: u32,
    last: u32,
}

impl<const N: usize> FreeIntervals<N> {
    const RING: () = assert!(N.is_power_of_two() && N >= 2);

    /// Always free.
    pub fn new() -> Self {
        let () = Self::RING;
        FreeIntervals {
            busy: [(0, 0); N],
            head: 0,
            len: 0,
        }
    }

    #[inline(always)]
    fn slot(&self, i: u32) -> usize {
        (self.head + i) as usize & (N - 1)
    }

    #[inline(always)]
    fn get(&self, i: u32) -> (u64, u64) {
        self.busy[self.slot(i)]
    }

    #[inline(always)]
    fn find(&self, at: u64, length: u64) -> Found {
        let mut first = self.len;
        // Backwards past all intervals that end at `at` or later.
        while first > 0 && self.get(first - 1).1 >= at {
            first -= 1;
        }
        let mut last = first;
        let mut from = at;
        let mut free = at;
        if last < self.len && self.get(last).0 <= at {
            (from, free) = self.get(last);
            last += 1;
        }
        let asked = free;
        let first_gap = if last < self.len {
            self.get(last).0 - free
        } else {
            u64::MAX
        };
        let mut rest = length;
        let mut solid_to = u64::MAX;
        while last < self.len {
            let (next, to) = self.get(last);
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
            asked
        } else {
            let jumped = end - length - asked;
            asked + jumped * (length - first_gap) / length
        };
        Found {
            start,
            solid: (from, solid_to),
            first,
            last,
        }
    }

    /// When a request of `length` at `at` would start. Takes nothing.
    #[inline]
    pub fn earliest(&self, at: u64, length: u64) -> u64 {
        self.find(at, length).start
    }

    /// Takes `length` from the free time from `at` on; gives the start.
    #[inline]
    pub fn take(&mut self, at: u64, length: u64) -> u64 {
        let Found {
            start,
            solid,
            first,
            last,
        } = self.find(at, length);
        match last - first {
            0 => self.insert(first, solid),
            1 => {
                let s = self.slot(first);
                self.busy[s] = solid;
            }
            swallowed => {
                let s = self.slot(first);
                self.busy[s] = solid;
                for j in last..self.len {
                    let (from, to) = (self.slot(j), self.slot(j + 1 - swallowed));
                    self.busy[to] = self.busy[from];
                }
                self.len -= swallowed - 1;
            }
        }
        start
    }

    fn insert(&mut self, mut i: u32, interval: (u64, u64)) {
        if self.len as usize == N {
            if i == 0 {
                return; // older than all that are remembered
            }
            self.head = (self.head + 1) & (N as u32 - 1);
            self.len -= 1;
            i -= 1;
        }
        let mut j = self.len;
        while j > i {
            let (from, to) = (self.slot(j - 1), self.slot(j));
            self.busy[to] = self.busy[from];
            j -= 1;
        }
        let s = self.slot(i);
        self.busy[s] = interval;
        self.len += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert_eq!(f.len, 1, "one solid interval");
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

    /// Mean wait of requests of `length` at `load`, asked out of order by up
    /// to `reach`, and what it is in order.
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
        // A bus line of 3333 ps in a memory access of 60 ns, disorder of up to
        // three such accesses.
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
            // 64 intervals hold 60 requests: the horizon covers everything.
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
                let busy: u64 = (0..f.len).map(|i| f.get(i).1 - f.get(i).0).sum();
                prop_assert_eq!(busy as usize, taken.iter().filter(|&&t| t).count());
            }
        }
    }
}
