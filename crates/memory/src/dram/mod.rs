//! Main memory: a fixed latency, or DDR channels with banks and rows.

mod ddr;
mod time;

use ddr::Ddr;
use pagewalk_stats::Tree;
use pagewalk_units::{Cycle, Error};
use time::Ratio;

use crate::stats::DramStats;
use crate::{DramSpec, Report};

/// Main memory, with times in cycles of the core.
#[derive(Clone, Debug)]
pub(crate) struct Dram {
    ratio: Ratio,
    model: Model,
}

#[derive(Clone, Debug)]
enum Model {
    Fixed {
        latency: Cycle,
        latency_ps: u64,
        stats: DramStats,
    },
    Ddr(Box<Ddr>),
}

impl Dram {
    /// Creates a memory. The parameters were checked.
    ///
    /// # Errors
    /// A frequency out of range.
    pub fn new(spec: &DramSpec, frequency_ghz: f64) -> Result<Self, Error> {
        let ratio = Ratio::new(frequency_ghz)?;
        let model = match *spec {
            DramSpec::Fixed { latency_ns } => Model::Fixed {
                latency: (latency_ns * frequency_ghz).round() as Cycle,
                latency_ps: (latency_ns * 1000.0).round() as u64,
                stats: DramStats::default(),
            },
            DramSpec::Ddr { .. } => Model::Ddr(Box::new(Ddr::new(spec)?)),
        };
        Ok(Dram { ratio, model })
    }

    /// Reads a line. Returns the cycle at which it is at the cache that requested it at `now`, and
    /// the cycles that it waited for its bank and the bus.
    #[inline]
    pub fn read(&mut self, line: u64, now: Cycle) -> (Cycle, Cycle) {
        match &mut self.model {
            Model::Fixed {
                latency,
                latency_ps,
                stats,
            } => {
                stats.reads += 1;
                stats.latency_ps += *latency_ps;
                (now + *latency, 0)
            }
            Model::Ddr(ddr) => {
                let at = self.ratio.to_ps(now);
                let (back, waited) = ddr.access(line, at, false);
                let takes = self.ratio.to_cycles(back - at);
                let queued = if waited == 0 {
                    0
                } else {
                    self.ratio.to_cycles(waited).min(takes)
                };
                (now + takes, queued)
            }
        }
    }

    /// Writes a line, or a part of it, at `now`. Write-backs do not wait for it. Returns when it is
    /// done, which takes as long as a read.
    #[inline]
    pub fn write(&mut self, line: u64, now: Cycle) -> Cycle {
        match &mut self.model {
            Model::Fixed { latency, stats, .. } => {
                stats.writes += 1;
                now + *latency
            }
            Model::Ddr(ddr) => {
                let at = self.ratio.to_ps(now);
                let (done, _) = ddr.access(line, at, true);
                now + self.ratio.to_cycles(done - at)
            }
        }
    }

    /// Cycles that a read at `now` would wait for the bus and occupy it.
    pub fn delay(&self, line: u64, now: Cycle) -> Cycle {
        match &self.model {
            Model::Fixed { .. } => 0,
            Model::Ddr(ddr) => self
                .ratio
                .to_cycles(ddr.bus_time(line, self.ratio.to_ps(now))),
        }
    }

    /// Opens the line's row, for functional warming.
    pub fn warm(&mut self, line: u64) {
        if let Model::Ddr(ddr) = &mut self.model {
            ddr.warm(line);
        }
    }

    /// As [`Dram::warm`] for each line in order.
    pub fn warm_all(&mut self, lines: &[u64]) {
        if let Model::Ddr(ddr) = &mut self.model {
            ddr.warm_all(lines);
        }
    }
}

impl Report for Dram {
    /// Adds channel `n` at `path.n`.
    fn report(&self, path: &str, tree: &mut Tree) {
        match &self.model {
            Model::Fixed { stats, .. } => tree.add(&format!("{path}.0"), stats),
            Model::Ddr(ddr) => {
                for (n, stats) in ddr.stats().enumerate() {
                    tree.add(&format!("{path}.{n}"), stats);
                }
            }
        }
    }
}
