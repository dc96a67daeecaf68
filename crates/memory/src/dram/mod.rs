//! Main memory: a fixed latency, or DDR channels with banks and rows.

mod background;
mod ddr;
mod rows;
mod time;

use background::Background;
use ddr::Ddr;
use pagewalk_stats::Tree;
use pagewalk_structures::FreeIntervals;
use pagewalk_units::{Cycle, Error, LINE_BYTES};
use time::Ratio;

use crate::stats::DramStats;
use crate::{DramSpec, Report};

/// Main memory, with times in cycles of the core.
#[derive(Clone, Debug)]
pub(crate) struct Dram {
    ratio: Ratio,
    model: Model,
    /// Requests of other tenants, if there are any.
    background: Option<Box<Background>>,
}

#[derive(Clone, Debug)]
enum Model {
    Fixed {
        latency: Cycle,
        latency_ps: u64,
        /// The channel to the cores, unless its bandwidth is unlimited.
        channel: Option<Box<Channel>>,
        stats: DramStats,
    },
    Ddr(Box<Ddr>),
}

/// A channel that one line at a time crosses. Times are in picoseconds.
#[derive(Clone, Debug)]
struct Channel {
    line_time: u64,
    free: FreeIntervals<64>,
}

impl Channel {
    /// A line crosses at `at` or as soon as the channel is free. Returns its wait.
    fn take(&mut self, at: u64, stats: &mut DramStats) -> u64 {
        let wait = self.free.take(at, self.line_time) - at;
        stats.bus_busy_ps += self.line_time;
        stats.bus_wait_ps += wait;
        wait
    }
}

/// A line crosses the channel, if there is one, at `now` or later. Returns its wait.
#[inline]
fn cross(
    channel: &mut Option<Box<Channel>>,
    ratio: Ratio,
    now: Cycle,
    stats: &mut DramStats,
) -> u64 {
    match channel {
        Some(channel) => channel.take(ratio.to_ps(now), stats),
        None => 0,
    }
}

impl Dram {
    /// Creates a memory. The parameters were checked.
    ///
    /// # Errors
    /// A frequency out of range.
    pub fn new(spec: &DramSpec, frequency_ghz: f64) -> Result<Self, Error> {
        let ratio = Ratio::new(frequency_ghz)?;
        let model = match *spec {
            DramSpec::Fixed {
                latency_ns,
                bandwidth_gbs,
            } => {
                let channel = (bandwidth_gbs > 0.0).then(|| {
                    Box::new(Channel {
                        line_time: (LINE_BYTES as f64 * 1000.0 / bandwidth_gbs).round() as u64,
                        free: FreeIntervals::new(),
                    })
                });
                let line_time = channel.as_ref().map_or(0, |c| c.line_time);
                let transfer_ns = line_time as f64 / 1000.0;
                Model::Fixed {
                    latency: ((latency_ns + transfer_ns) * frequency_ghz).round() as Cycle,
                    latency_ps: (latency_ns * 1000.0).round() as u64 + line_time,
                    channel,
                    stats: DramStats::default(),
                }
            }
            DramSpec::Ddr { .. } => Model::Ddr(Box::new(Ddr::new(spec)?)),
        };
        Ok(Dram {
            ratio,
            model,
            background: None,
        })
    }

    /// Adds requests of other tenants, of `bandwidth_gbs` together.
    pub fn set_background(&mut self, bandwidth_gbs: f64, seed: u64) {
        self.background = Background::new(bandwidth_gbs, seed).map(Box::new);
    }

    /// Makes the background requests that come before `now`.
    #[inline]
    fn serve_background(&mut self, now: Cycle) {
        if let Some(background) = &mut self.background {
            let until = self.ratio.to_ps(now);
            while let Some((at, line)) = background.next_until(until) {
                match &mut self.model {
                    Model::Fixed { channel, .. } => {
                        if let Some(channel) = channel {
                            channel.free.take(at, channel.line_time);
                        }
                    }
                    Model::Ddr(ddr) => ddr.occupy(line, at),
                }
            }
        }
    }

    /// Reads a line. Returns the cycle at which it is at the cache that requested it at `now`, and
    /// the cycles that it waited for its bank and the bus.
    #[inline]
    pub fn read(&mut self, line: u64, now: Cycle) -> (Cycle, Cycle) {
        self.serve_background(now);
        match &mut self.model {
            Model::Fixed {
                latency,
                latency_ps,
                channel,
                stats,
            } => {
                let wait = cross(channel, self.ratio, now, stats);
                let waited = self.ratio.to_cycles(wait);
                stats.reads += 1;
                stats.latency_ps += *latency_ps + wait;
                (now + *latency + waited, waited)
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
        self.serve_background(now);
        match &mut self.model {
            Model::Fixed {
                latency,
                channel,
                stats,
                ..
            } => {
                let wait = cross(channel, self.ratio, now, stats);
                stats.writes += 1;
                now + *latency + self.ratio.to_cycles(wait)
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
            Model::Fixed { channel, .. } => match channel {
                Some(channel) => {
                    let at = self.ratio.to_ps(now);
                    let start = channel.free.earliest(at, channel.line_time);
                    self.ratio.to_cycles(start - at + channel.line_time)
                }
                None => 0,
            },
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
