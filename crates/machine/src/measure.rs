//! Measurement: counter differences of the measured part, of samples and of intervals.

use pagewalk_stats::{Row, Spread, Tree};
use pagewalk_units::Cycle;

use crate::estimate::{SampleCounts, StaleLookups, stale_since};
use crate::intervals::{Intervals, Stretch};
use crate::work::Work;

/// State of the machine's counters at one moment.
#[derive(Clone)]
pub(crate) struct Snapshot {
    /// Counters. Maxima of histograms cover the time since the snapshot before.
    pub(crate) tree: Tree,
    /// Time at which each core has retired its last instruction.
    pub(crate) times: Vec<Cycle>,
    /// Work of all threads since the start.
    pub(crate) executed: Work,
    /// Lookups of uncertain outcome after fast-forwarding.
    pub(crate) stale: StaleLookups,
}

/// Counts of the measured phases.
pub(crate) struct Measured {
    /// Sum over the measured phases.
    pub(crate) tree: Option<Tree>,
    /// Cycles of each core, summed over the measured phases.
    pub(crate) core_cycles: Vec<Cycle>,
    /// Sum over the measured phases of the slowest core's cycles.
    pub(crate) cycles: Cycle,
    /// Work of all threads in the measured phases.
    pub(crate) work: Work,
    /// Counts of each complete sample. One cut by the end of the measured part belongs to another
    /// population.
    pub(crate) samples: Vec<SampleCounts>,
    /// Histograms of each sample, kept where samples have different weights.
    pub(crate) spreads: Option<Vec<Vec<Spread>>>,
    /// Interval statistics.
    pub(crate) intervals: Intervals,
    /// Instructions and cycles of the first half, once it has ended.
    first_half: Option<(u64, Cycle)>,
    /// Work after which the second half begins.
    half: Work,
    every: Option<u64>,
    /// Instructions of a complete sample.
    sample: Option<u64>,
    open: Option<Open>,
}

/// A measured phase that has not ended.
struct Open {
    /// When each core began it.
    times: Vec<Cycle>,
    /// Work before it.
    executed: Work,
    /// Counters at its start, if it is a sample.
    first: Option<(Tree, StaleLookups)>,
    /// Counts up to the last snapshot, if its histograms are kept.
    sum: Option<Tree>,
    /// Start of the current interval; without intervals, of the phase.
    last: Snapshot,
    /// Number of the current interval in the phase.
    number: u64,
}

/// Cycles of the slowest core.
pub(crate) fn slowest(times: &[Cycle], before: &[Cycle]) -> Cycle {
    times
        .iter()
        .zip(before)
        .map(|(t, b)| t - b)
        .max()
        .unwrap_or(0)
}

/// Adds the counts of the next part.
fn add(sum: &mut Option<Tree>, part: Tree) {
    match sum {
        None => *sum = Some(part),
        Some(sum) => sum.go_on(&part),
    }
}

impl Measured {
    pub(crate) fn new(every: Option<u64>, sample: Option<u64>, cores: usize) -> Self {
        Measured {
            tree: None,
            core_cycles: vec![0; cores],
            cycles: 0,
            work: Work::default(),
            samples: Vec::new(),
            spreads: None,
            intervals: Intervals::default(),
            first_half: None,
            half: Work::FOREVER,
            every: every.filter(|&n| n > 0),
            sample,
            open: None,
        }
    }

    /// Measures regions. Each region is a sample of any length, and its histograms are kept.
    pub(crate) fn of_regions(every: Option<u64>, cores: usize) -> Self {
        Measured {
            spreads: Some(Vec::new()),
            ..Measured::new(every, Some(1), cores)
        }
    }

    /// Notes the time of the first half of a measured part of this length.
    pub(crate) fn with_halves(self, length: Work) -> Self {
        let half = Work {
            instructions: length.instructions.div_ceil(2),
            requests: length.requests.div_ceil(2),
        };
        Measured { half, ..self }
    }

    /// True when the first half has just ended and is not noted.
    pub(crate) fn half_ends(&self, executed: Work) -> bool {
        let (Some(open), None) = (&self.open, self.first_half) else {
            return false;
        };
        let done = self.done(executed, open);
        done.instructions >= self.half.instructions || done.requests >= self.half.requests
    }

    /// Notes the first half, which ends at these times.
    pub(crate) fn end_half(&mut self, executed: Work, times: &[Cycle]) {
        if let Some(open) = &self.open {
            let instructions = self.done(executed, open).instructions;
            self.first_half = Some((instructions, self.cycles + slowest(times, &open.times)));
        }
    }

    /// Work of the measured part so far.
    fn done(&self, executed: Work, open: &Open) -> Work {
        let mut done = self.work;
        done += executed - open.executed;
        done
    }

    /// Cycles an instruction in the first half and in the rest; none if one of them is unknown.
    pub(crate) fn halves(&self) -> Option<(f64, f64)> {
        let (instructions, cycles) = self.first_half?;
        let rest = self.work.instructions.checked_sub(instructions)?;
        let cpi = |cycles: Cycle, n: u64| (n > 0).then(|| cycles as f64 / n as f64);
        Some((
            cpi(cycles, instructions)?,
            cpi(self.cycles.checked_sub(cycles)?, rest)?,
        ))
    }

    /// Appends the counts that another machine measured in a later part of the same run.
    pub(crate) fn go_on(
        &mut self,
        tree: Option<Tree>,
        core_cycles: Vec<Cycle>,
        cycles: Cycle,
        work: Work,
        samples: Vec<SampleCounts>,
    ) {
        if let Some(tree) = tree {
            add(&mut self.tree, tree);
        }
        for (sum, cycles) in self.core_cycles.iter_mut().zip(core_cycles) {
            *sum += cycles;
        }
        self.cycles += cycles;
        self.work += work;
        self.samples.extend(samples);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub(crate) fn begin(&mut self, now: Snapshot) {
        self.open = Some(Open {
            times: now.times.clone(),
            executed: now.executed,
            first: self.sample.map(|_| {
                let rows = now.tree.rows.clone();
                let spreads = vec![];
                (Tree { rows, spreads }, now.stale)
            }),
            sum: None,
            last: now,
            number: 0,
        });
    }

    /// Closes the measured phase and returns its CPI, if it executed instructions.
    pub(crate) fn end(&mut self, now: &Snapshot) -> Option<f64> {
        self.stretch(now, false);
        let mut open = self.open.take()?;
        for (sum, (t, b)) in self
            .core_cycles
            .iter_mut()
            .zip(now.times.iter().zip(&open.times))
        {
            *sum += t - b;
        }
        let work = now.executed - open.executed;
        let cycles = slowest(&now.times, &open.times);
        let instructions = work.instructions;
        self.cycles += cycles;
        self.work += work;
        if instructions == 0 {
            return None;
        }
        if let (Some(whole), Some((first, unknown))) = (self.sample, &open.first)
            && instructions >= whole
        {
            self.samples.push(SampleCounts {
                work,
                cycles,
                values: now.tree.values_since(first),
                stale: stale_since(&now.stale, unknown),
            });
            if let (Some(kept), Some(sum)) = (&mut self.spreads, open.sum.take()) {
                kept.push(sum.spreads);
            }
        }
        Some(cycles as f64 / instructions as f64)
    }

    /// Adds the counts since the last snapshot to the measured part, and as an interval if intervals are
    /// kept. `whole`: the interval has its full length.
    fn stretch(&mut self, now: &Snapshot, whole: bool) {
        let Some(open) = &mut self.open else { return };
        let part = now.tree.since(&open.last.tree);
        let work = now.executed - open.last.executed;
        // The end of the program right after an interval border has counts as well.
        let counts = work.instructions > 0 || part.rows.iter().any(Row::counts);
        if self.every.is_some() && counts {
            let stretch = Stretch {
                first: (open.last.executed - open.executed).instructions + self.work.instructions,
                work,
                cycles: slowest(&now.times, &open.last.times),
                complete: whole,
            };
            self.intervals.push(stretch, &part);
        }
        if self.spreads.is_some() {
            add(&mut open.sum, part.clone());
        }
        add(&mut self.tree, part);
    }

    /// Instructions until the next interval ends; `u64::MAX` without intervals.
    /// Borders are multiples of the length from the start of the phase.
    pub(crate) fn until_interval(&self, executed: u64) -> u64 {
        match (self.every, &self.open) {
            (Some(every), Some(open)) => open
                .executed
                .instructions
                .saturating_add((open.number + 1).saturating_mul(every))
                .saturating_sub(executed),
            _ => u64::MAX,
        }
    }

    /// Ends an interval.
    pub(crate) fn interval(&mut self, now: Snapshot) {
        let Some(every) = self.every else { return };
        self.stretch(&now, true);
        if let Some(open) = &mut self.open {
            open.number = (now.executed - open.executed).instructions / every;
            open.last = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use pagewalk_stats::Tree;

    use super::{Measured, Snapshot, StaleLookups};
    use crate::work::Work;

    fn at(time: u64, executed: Work) -> Snapshot {
        Snapshot {
            tree: Tree::default(),
            times: vec![time],
            executed,
            stale: StaleLookups::default(),
        }
    }

    #[test]
    fn a_sample_that_was_cut_does_not_count_as_one() {
        let mut m = Measured::new(None, Some(100), 1);
        let (mut executed, mut time) = (Work::default(), 0);
        for (instructions, cycles) in [(100, 150), (103, 155), (1, 400)] {
            m.begin(at(time, executed));
            time += cycles;
            executed += Work {
                instructions,
                requests: 1,
            };
            assert!(m.end(&at(time, executed)).is_some());
        }
        let samples = m.samples.iter().map(|s| (s.work.instructions, s.cycles));
        assert!(samples.eq([(100, 150), (103, 155)]));
        let done = Work {
            instructions: 204,
            requests: 3,
        };
        assert_eq!((m.work, m.cycles), (done, 705), "but is measured");
    }

    #[test]
    fn each_phase_has_intervals_of_its_own_and_the_rest_is_marked() {
        let mut m = Measured::new(Some(100), None, 1);
        let (mut executed, mut time) = (Work::default(), 0);
        for _ in 0..2 {
            m.begin(at(time, executed));
            for length in [100, 100, 3] {
                assert_eq!(m.until_interval(executed.instructions), 100);
                executed.instructions += length;
                time += 2 * length;
                if length == 100 {
                    m.interval(at(time, executed));
                }
            }
            m.end(&at(time, executed));
        }
        let i = &m.intervals;
        assert_eq!(i.first, [0, 100, 200, 203, 303, 403]);
        let lengths: Vec<u64> = i.work.iter().map(|w| w.instructions).collect();
        assert_eq!(lengths, [100, 100, 3, 100, 100, 3]);
        assert_eq!(i.cycles, [200, 200, 6, 200, 200, 6]);
        assert_eq!(i.complete, [true, true, false, true, true, false]);
    }
}
