//! The measured part: differences of counters, samples, intervals.

use pagewalk_stats::Tree;
use pagewalk_units::Cycle;

use crate::work::Work;

/// One stretch between two snapshots.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    /// Instructions since the start of the measured part, at the end of the interval.
    pub(crate) instructions: u64,
    /// What was done in the interval.
    pub(crate) work: Work,
    /// Cycles of the slowest core in the interval.
    pub(crate) cycles: Cycle,
    /// Counters of the interval.
    pub(crate) tree: Tree,
}

#[derive(Clone)]
struct Open {
    tree: Tree,
    times: Vec<Cycle>,
    executed: Work,
}

/// Collects what the measured phases count.
pub(crate) struct Measured {
    /// Sum over the measured phases.
    pub(crate) tree: Option<Tree>,
    /// Cycles of each core, summed over the measured phases.
    pub(crate) core_cycles: Vec<Cycle>,
    /// Sum over the measured phases of the slowest core's cycles.
    pub(crate) cycles: Cycle,
    /// What all threads did in the measured phases.
    pub(crate) work: Work,
    /// (instructions, cycles) of each sample of whole length: one that the end of
    /// the measured part has cut is no sample of the same population.
    pub(crate) samples: Vec<(u64, Cycle)>,
    /// Interval statistics.
    pub(crate) intervals: Vec<Interval>,
    every: Option<u64>,
    /// Instructions of a whole sample.
    sample: Option<u64>,
    open: Option<Open>,
    /// Start of the interval that runs.
    last: Option<Open>,
    /// Its number in the measured phase.
    number: u64,
}

fn slowest(times: &[Cycle], before: &[Cycle]) -> Cycle {
    times
        .iter()
        .zip(before)
        .map(|(t, b)| t - b)
        .max()
        .unwrap_or(0)
}

impl Measured {
    pub(crate) fn new(every: Option<u64>, sample: Option<u64>, cores: usize) -> Self {
        Measured {
            tree: None,
            core_cycles: vec![0; cores],
            cycles: 0,
            work: Work::default(),
            samples: Vec::new(),
            intervals: Vec::new(),
            every: every.filter(|&n| n > 0),
            sample,
            open: None,
            last: None,
            number: 0,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub(crate) fn begin(&mut self, tree: Tree, times: Vec<Cycle>, executed: Work) {
        if self.every.is_some() {
            self.last = Some(Open {
                tree: tree.clone(),
                times: times.clone(),
                executed,
            });
        }
        self.open = Some(Open {
            tree,
            times,
            executed,
        });
    }

    /// Closes the measured phase; its cycles an instruction, if it had any.
    pub(crate) fn end(&mut self, tree: &Tree, times: &[Cycle], executed: Work) -> Option<f64> {
        if self
            .last
            .as_ref()
            .is_some_and(|l| l.executed.instructions < executed.instructions)
        {
            self.interval(tree.clone(), times.to_vec(), executed);
        }
        let open = self.open.take()?;
        self.last = None;
        let part = tree.since(&open.tree);
        self.tree = Some(match self.tree.take() {
            None => part,
            Some(mut sum) => {
                debug_assert_eq!(sum.rows.len(), part.rows.len());
                for (s, p) in sum.rows.iter_mut().zip(&part.rows) {
                    s.value = if s.definition.gauge {
                        p.value
                    } else {
                        s.value + p.value
                    };
                }
                sum
            }
        });
        for (sum, (t, b)) in self
            .core_cycles
            .iter_mut()
            .zip(times.iter().zip(&open.times))
        {
            *sum += t - b;
        }
        let (work, cycles) = (executed - open.executed, slowest(times, &open.times));
        let instructions = work.instructions;
        self.cycles += cycles;
        self.work += work;
        if instructions == 0 {
            return None;
        }
        if self.sample.is_some_and(|whole| instructions >= whole) {
            self.samples.push((instructions, cycles));
        }
        Some(cycles as f64 / instructions as f64)
    }

    /// Instructions until the next interval ends; `u64::MAX` without intervals.
    /// Borders are multiples of the length from the start of the phase.
    pub(crate) fn until_interval(&self, executed: u64) -> u64 {
        match (self.every, &self.open) {
            (Some(every), Some(open)) => open
                .executed
                .instructions
                .saturating_add((self.number + 1).saturating_mul(every))
                .saturating_sub(executed),
            _ => u64::MAX,
        }
    }

    pub(crate) fn interval(&mut self, tree: Tree, times: Vec<Cycle>, executed: Work) {
        let (Some(every), Some(last), Some(open)) = (self.every, &self.last, &self.open) else {
            return;
        };
        self.intervals.push(Interval {
            instructions: (executed - open.executed).instructions + self.work.instructions,
            work: executed - last.executed,
            cycles: slowest(&times, &last.times),
            tree: tree.since(&last.tree),
        });
        self.number = (executed - open.executed).instructions / every;
        self.last = Some(Open {
            tree,
            times,
            executed,
        });
    }
}

/// Mean of cycles an instruction over samples, with the half width of its 95 %
/// confidence interval (Student's t; the samples are taken at a fixed period,
/// as in SMARTS, Wunderlich et al., ISCA 2003).
pub(crate) fn confidence(samples: &[(u64, Cycle)]) -> Option<(f64, f64)> {
    let n = samples.len();
    if n < 2 {
        return None;
    }
    let cpi: Vec<f64> = samples.iter().map(|&(i, c)| c as f64 / i as f64).collect();
    let mean = cpi.iter().sum::<f64>() / n as f64;
    let variance = cpi.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
    Some((mean, t95(n - 1) * (variance / n as f64).sqrt()))
}

/// Two-sided 95 % quantile of Student's t.
fn t95(freedom: usize) -> f64 {
    const T: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    match freedom {
        0 => f64::INFINITY,
        f if f <= 30 => T[f - 1],
        // Between 30 and infinity the quantile is close to linear in 1/f.
        f => 1.960 + (2.042 - 1.960) * 30.0 / f as f64,
    }
}

#[cfg(test)]
mod tests {
    use pagewalk_stats::Tree;

    use super::{Measured, confidence};
    use crate::work::Work;

    #[test]
    fn equal_samples_leave_no_doubt() {
        let (mean, half) = confidence(&[(100, 250), (100, 250), (100, 250)]).unwrap();
        assert_eq!((mean, half), (2.5, 0.0));
    }

    #[test]
    fn the_interval_is_the_textbook_one() {
        // CPIs 1, 2, 3: s = 1, t(2) = 4.303.
        let (mean, half) = confidence(&[(10, 10), (10, 20), (10, 30)]).unwrap();
        assert!((mean - 2.0).abs() < 1e-12);
        assert!((half - 4.303 / 3f64.sqrt()).abs() < 1e-9);
    }

    #[test]
    fn a_sample_that_was_cut_does_not_count_as_one() {
        let mut m = Measured::new(None, Some(100), 1);
        let (mut executed, mut time) = (Work::default(), 0);
        for (instructions, cycles) in [(100, 150), (103, 155), (1, 400)] {
            m.begin(Tree::default(), vec![time], executed);
            time += cycles;
            executed += Work {
                instructions,
                requests: 1,
            };
            assert!(m.end(&Tree::default(), &[time], executed).is_some());
        }
        assert_eq!(m.samples, [(100, 150), (103, 155)]);
        let done = Work {
            instructions: 204,
            requests: 3,
        };
        assert_eq!((m.work, m.cycles), (done, 705), "but is measured");
    }

    #[test]
    fn one_sample_gives_no_interval() {
        assert!(confidence(&[(10, 10)]).is_none());
    }
}
