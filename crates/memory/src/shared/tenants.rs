//! Lines of other tenants of the host in the third-level cache.
//!
//! The tenants fill the cache at a rate, in random sets at random times, so each set sees Poisson
//! arrivals. The fills of a set that are due are made before a request of the program accesses it.
//! Until then no access reads the set, so the order of fills of different sets does not matter. A
//! program keeps a line that it uses again before the set has seen too many fills. Its share of the
//! cache therefore grows with the rate of its accesses. Prefetches of the cache itself in functional
//! warming make no fills.

use pagewalk_units::{Cycle, LINE_BYTES, Rng, rng};

use super::{Shared, warm_written_behind};
use crate::SharedSpec;
use crate::exponential::draw_exponential;

pagewalk_stats::counters! {
    /// Counters of the tenants of a cache.
    pub struct TenantStats {
        fills: "lines", "Lines that other tenants filled into the sets that the program accessed, no more than the ways of a set between two accesses";
        evictions: "lines", "Lines of the program that they evicted; not among the evictions of the cache, but dirty ones are among its writebacks";
    }
}

/// Source of the tenants' fills.
#[derive(Clone, Debug)]
pub(super) struct Tenants {
    rng: Rng,
    /// Mean time between two fills of a set, in cycles.
    gap: f64,
    /// Fills that replace all lines of a set.
    most: u64,
    /// Cycle of the next fill of each set.
    next: Vec<Cycle>,
    /// Time of functional warming.
    clock: Cycle,
    pub(super) stats: TenantStats,
}

impl Tenants {
    /// Tenants that fill `rate` bytes a cycle into `sets` of `ways`.
    fn new(rate: f64, sets: usize, ways: u64, seed: u64) -> Self {
        let mut tenants = Tenants {
            rng: rng(seed, "memory.background.l3"),
            gap: sets as f64 * LINE_BYTES as f64 / rate,
            most: ways,
            next: vec![],
            clock: 0,
            stats: TenantStats::default(),
        };
        tenants.next = (0..sets).map(|_| tenants.draw_gap()).collect();
        tenants
    }

    /// Takes the fills of `set` that are due at `now`. It takes no more than replace all lines.
    #[inline]
    fn take_due(&mut self, set: usize, now: Cycle) -> u64 {
        let mut due = 0;
        while self.next[set] <= now && due < self.most {
            due += 1;
            // Exponential gaps have no memory: the rest of a long pause needs no fills.
            let from = if due < self.most { self.next[set] } else { now };
            self.next[set] = from.saturating_add(self.draw_gap());
        }
        self.stats.fills += due;
        due
    }

    fn draw_gap(&mut self) -> Cycle {
        ((draw_exponential(&mut self.rng) * self.gap) as Cycle).saturating_add(1)
    }
}

impl Shared {
    /// The tenants of `spec`, if they fill the third level.
    pub(super) fn tenants(&self, spec: &SharedSpec, seed: u64) -> Option<Box<Tenants>> {
        let (background, l3) = (spec.background?, spec.l3.as_ref()?);
        let rate = background.l3_fill_gbs / self.frequency_ghz;
        let sets = self.levels[0].set_count();
        (rate > 0.0).then(|| Box::new(Tenants::new(rate, sets, l3.ways.into(), seed)))
    }

    /// Sets the time at which the next requests of functional warming come, for other tenants.
    pub fn set_warming_clock(&mut self, now: Cycle) {
        if let Some(tenants) = &mut self.tenants {
            tenants.clock = now;
        }
    }

    /// Makes the tenants' fills of the third level's set of `line` that are due at `now`.
    #[inline(always)]
    pub(super) fn serve_tenants(&mut self, line: u64, now: Cycle) {
        if self.tenants.is_some() {
            self.fill_by_tenants::<true>(line, now);
        }
    }

    /// As [`Shared::serve_tenants`], in functional warming.
    #[inline(always)]
    pub(super) fn warm_tenants(&mut self, line: u64) {
        if let Some(now) = self.tenants.as_ref().map(|tenants| tenants.clock) {
            self.fill_by_tenants::<false>(line, now);
        }
    }

    #[inline(never)]
    fn fill_by_tenants<const TIMED: bool>(&mut self, line: u64, now: Cycle) {
        let Some(tenants) = &mut self.tenants else {
            return;
        };
        let mut evictions = 0;
        for _ in 0..tenants.take_due(self.levels[0].set_number(line), now) {
            let victim = self.levels[0].fill_foreign(line);
            evictions += u64::from(victim.line().is_some());
            if TIMED {
                self.write_victim::<true>(0, victim, now);
            } else {
                self.warm_victim(victim);
            }
        }
        if let Some(tenants) = &mut self.tenants {
            tenants.stats.evictions += evictions;
        }
    }

    /// Writes a dirty victim of the third level to the levels behind it, in functional warming.
    fn warm_victim(&mut self, victim: crate::cache_array::Victim) {
        let Some(line) = victim.line().filter(|_| victim.dirty()) else {
            return;
        };
        let (_, behind) = self.levels.split_mut();
        if behind.is_empty() {
            self.dram.warm(line);
        } else {
            warm_written_behind(behind, line, &mut |line| self.dram.warm(line));
        }
    }
}
