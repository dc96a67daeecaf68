//! Requests of other tenants of the host: lines that take the bus and the banks of the DRAM.
//!
//! The requests are open-loop: they come at their rate however long they wait. Their gaps are
//! exponentially distributed and their lines random, so each channel sees Poisson arrivals. A
//! request of the simulated program is preceded by all background requests until its own time.
//! Background requests return no time to anyone, and no counter of the program counts them.

use pagewalk_units::{LINE_BYTES, Rng, rng};
use rand::Rng as _;

use crate::exponential::draw_exponential;

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
        (draw_exponential(&mut self.rng) * self.gap).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
