//! Requests of other tenants of the host: lines that take the bus and the banks of the DRAM.
//!
//! The requests are open-loop: they come at their rate however long they wait. Their gaps are
//! exponentially distributed and their lines random, so each channel sees Poisson arrivals. A
//! request of the simulated program is preceded by all background requests until its own time.
//! Background requests return no time to anyone, and no counter of the program counts them.

use pagewalk_units::{LINE_BYTES, Rng, rng};
use rand::Rng as _;

/// Time before a request of the program in which background requests can still delay it, in
/// picoseconds. Earlier ones are not made. Ours: hundreds of lines on a bus, so that a queue has
/// forgotten how it began unless the load is close to the peak.
const HORIZON_PS: u64 = 4_000_000;
/// Log2 of the lines that background requests go to: 1 TB.
const LINE_BITS: u32 = 34;

/// Source of background requests.
#[derive(Clone, Debug)]
pub(crate) struct Background {
    rng: Rng,
    /// Mean gap between two requests, in picoseconds.
    gap: f64,
    /// Time of the next request.
    next: u64,
}

impl Background {
    /// Requests of lines that amount to `bandwidth_gbs`, or `None` for 0.
    pub fn new(bandwidth_gbs: f64, seed: u64) -> Option<Self> {
        let mut made = (bandwidth_gbs > 0.0).then(|| Background {
            rng: rng(seed, "memory.background"),
            gap: LINE_BYTES as f64 * 1000.0 / bandwidth_gbs,
            next: 0,
        })?;
        made.next = made.draw_gap();
        Some(made)
    }

    /// Time and line of the next request that comes no later than `until`, if there is one.
    #[inline]
    pub fn next_until(&mut self, until: u64) -> Option<(u64, u64)> {
        if self.next > until {
            return None;
        }
        // Exponential gaps have no memory, so the source may begin anew after a pause.
        let horizon = until.saturating_sub(HORIZON_PS);
        if self.next < horizon {
            self.next = horizon + self.draw_gap();
            if self.next > until {
                return None;
            }
        }
        let at = self.next;
        self.next = at + self.draw_gap();
        Some((at, self.rng.next_u64() >> (64 - LINE_BITS)))
    }

    fn draw_gap(&mut self) -> u64 {
        (self.draw_exponential() * self.gap).round() as u64
    }

    /// An exponentially distributed number with mean 1, by comparisons of uniform ones (von
    /// Neumann, 1951). A logarithm may round differently on another host.
    fn draw_exponential(&mut self) -> f64 {
        let mut whole = 0.0;
        loop {
            let first = self.rng.next_u64() >> 11;
            let (mut last, mut falling) = (first, 1_u32);
            loop {
                let next = self.rng.next_u64() >> 11;
                if next >= last {
                    break;
                }
                (last, falling) = (next, falling + 1);
            }
            if falling % 2 == 1 {
                return whole + first as f64 / (1_u64 << 53) as f64;
            }
            whole += 1.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_exponential() {
        let mut source = Background::new(64.0, 1).expect("a load");
        let drawn: Vec<f64> = (0..100_000).map(|_| source.draw_exponential()).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let square = drawn.iter().map(|x| x * x).sum::<f64>() / drawn.len() as f64;
        let beyond = drawn.iter().filter(|x| **x > 2.0).count() as f64 / drawn.len() as f64;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        assert!((square - 2.0).abs() < 0.05, "{square}");
        assert!((beyond - (-2.0_f64).exp()).abs() < 0.003, "{beyond}");
    }

    #[test]
    fn requests_come_at_their_rate_and_in_order() {
        // 6.4 GB/s: a line every 10 ns.
        let mut source = Background::new(6.4, 1).expect("a load");
        let (mut count, mut before) = (0, 0);
        for step in 1..=1000 {
            let until = step * 1_000_000;
            while let Some((at, _)) = source.next_until(until) {
                assert!(before <= at && at <= until);
                before = at;
                count += 1;
            }
        }
        assert!((98_000..102_000).contains(&count), "{count}");
        assert!(Background::new(0.0, 1).is_none());
    }

    #[test]
    fn a_pause_costs_no_more_than_the_horizon() {
        let mut source = Background::new(6.4, 1).expect("a load");
        let after = 1 << 50;
        let mut count = 0;
        while let Some((at, _)) = source.next_until(after) {
            assert!(after - at <= HORIZON_PS);
            count += 1;
        }
        assert!((300..500).contains(&count), "{count}");
    }
}
