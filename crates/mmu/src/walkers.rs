//! Page walkers as a resource: who walks when.

use pagewalk_units::Cycle;

/// Stretches of work remembered for each walker. Requests come out of order by
/// at most a window's time; adjacent stretches are one.
const STRETCHES: usize = 32;

/// A fixed number of walkers. A walk's length is unknown when it starts: it is
/// admitted first, and its walker is held when its end is known.
///
/// Requests do not arrive in order of time. A walk may go into a gap before
/// work that is already known when the gap is at least as long as walks are on
/// average (weight 1/8 on the latest); if it then takes longer, the two overlap
/// on that walker: the disorder that is left.
#[derive(Clone, Debug)]
pub struct Walkers {
    /// Busy stretches of each walker, in ascending order, disjoint.
    busy: Vec<Vec<(Cycle, Cycle)>>,
    /// Eight times the mean length of a walk.
    mean8: Cycle,
}

impl Walkers {
    /// `n` idle walkers, at least 1.
    pub fn new(n: usize) -> Self {
        Walkers {
            busy: vec![Vec::with_capacity(STRETCHES + 1); n.max(1)],
            mean8: 0,
        }
    }

    /// The earliest start at `now` or later, and the walker that is free then.
    pub fn admit(&self, now: Cycle) -> (Cycle, usize) {
        let mut best = (Cycle::MAX, 0);
        for (w, stretches) in self.busy.iter().enumerate() {
            let at = self.earliest(stretches, now);
            if at < best.0 {
                best = (at, w);
                if at == now {
                    break;
                }
            }
        }
        best
    }

    fn earliest(&self, stretches: &[(Cycle, Cycle)], now: Cycle) -> Cycle {
        let need = (self.mean8 / 8).max(1);
        let mut at = match stretches.last() {
            None => return now,
            Some(l) if l.1 <= now => return now,
            Some(l) => l.1,
        };
        for i in (0..stretches.len()).rev() {
            let free = if i == 0 {
                now
            } else {
                stretches[i - 1].1.max(now)
            };
            if free + need <= stretches[i].0 {
                at = free;
            }
            if i > 0 && stretches[i - 1].1 <= now {
                break;
            }
        }
        at
    }

    /// Walker `w` was busy from `start` to `end`.
    pub fn hold(&mut self, w: usize, start: Cycle, end: Cycle) {
        self.mean8 = self.mean8 - self.mean8 / 8 + (end - start);
        let s = &mut self.busy[w];
        let mut i = s.len();
        while i > 0 && s[i - 1].0 > start {
            i -= 1;
        }
        // Joins what touches it on either side.
        let (mut start, mut end) = (start, end);
        if i > 0 && s[i - 1].1 >= start {
            i -= 1;
            start = s[i].0;
            end = end.max(s[i].1);
            s.remove(i);
        }
        while i < s.len() && s[i].0 <= end {
            end = end.max(s[i].1);
            s.remove(i);
        }
        s.insert(i, (start, end));
        if s.len() > STRETCHES {
            s.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n_walkers_serve_n_walks_at_a_time() {
        for n in 1..5 {
            let mut w = Walkers::new(n);
            for i in 0..40u64 {
                let (start, k) = w.admit(0);
                assert_eq!(start, i / n as u64 * 100);
                w.hold(k, start, start + 100);
            }
        }
    }

    #[test]
    fn an_earlier_request_does_not_wait_for_a_later_one() {
        let mut w = Walkers::new(1);
        w.hold(0, 1000, 1100);
        let (start, k) = w.admit(50);
        assert_eq!(start, 50);
        w.hold(k, 50, 150);
        assert_eq!(w.admit(60).0, 150);
        assert_eq!(w.admit(995).0, 1100, "a gap shorter than a walk is no room");
        assert_eq!(w.admit(1050).0, 1100);
    }
}
