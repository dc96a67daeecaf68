//! Estimates of the whole run from its samples, with confidence intervals.
//!
//! The variance of a number comes from the jackknife (Efron and Stein, Annals of Statistics 1981). The
//! number is computed from the sums over all samples, and again with one sample left out at a time. The
//! samples are systematic, one in each period, so program phases are represented in proportion and are no
//! source of error. The variance therefore compares neighbours in the sequence of left-out values
//! (Wolter, Introduction to Variance Estimation, 2007, chapter 8). Designs on one stream are measured at
//! the same places, so common variation cancels in their ratios (matched pairs: Ekman and Stenström,
//! ISPASS 2005).
//!
//! Two errors remain that more samples do not reduce. Cold-start uncertainty ([`warming`]) covers lookups
//! in structures whose contents are stale after fast-forwarding. A non-sampling bias covers the
//! approximations of the warming itself.

use std::collections::BTreeMap;

use pagewalk_stats::Tree;
use pagewalk_structures::StaleOutcomes;
use schemars::JsonSchema;
use serde::Serialize;

use crate::summary;
use crate::work::Work;

/// Structures whose contents may be stale after fast-forwarding, in the order of [`StaleLookups`].
pub(crate) const STALE_STRUCTURES: [&str; 10] = [
    "l1i",
    "l1d",
    "l2",
    "tlb_l1",
    "tlb_l2",
    "branches",
    "l3",
    "l0d",
    "l4",
    // Sources behind the last TLB.
    "translation",
];
/// Index of the second-level TLB.
const SECOND_TLB: usize = 4;

/// Lookups of uncertain outcome, for each of [`STALE_STRUCTURES`].
pub(crate) type StaleLookups = [StaleOutcomes; STALE_STRUCTURES.len()];

/// Lookups counted between two snapshots.
pub(crate) fn stale_since(now: &StaleLookups, before: &StaleLookups) -> StaleLookups {
    std::array::from_fn(|i| now[i] - before[i])
}

/// Confidence of all intervals.
const CONFIDENCE: f64 = 0.95;
/// Two-sided 95 % quantile of the normal distribution.
const Z95: f64 = 1.960;
/// Relative non-sampling bias that all samples may share if something before them was not fully warmed.
/// Its causes are accesses that filtered warming drops, and the load on memory when a sample begins.
/// Bound taken from `sysbench`, whose samples vary least: its IPC deviates by at most half of this with
/// any seed.
const NON_SAMPLING_BIAS: f64 = 0.001;
/// Number of events below which their spread between samples is no reliable variance.
const FEW_EVENTS: f64 = 30.0;

/// Counts of one complete sample.
#[derive(Clone, Debug)]
pub(crate) struct SampleCounts {
    pub(crate) work: Work,
    pub(crate) cycles: u64,
    /// Values of the rows of the measured part's tree.
    pub(crate) values: Vec<u64>,
    pub(crate) stale: StaleLookups,
}

/// An estimate with its confidence interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end; None where there is none.
    #[schemars(with = "Option<f64>")]
    pub high: f64,
    /// Half of the width that sampling variation alone would give. Only this part shrinks with more
    /// samples.
    #[serde(skip)]
    pub(crate) spread: f64,
}

impl Interval {
    fn around(value: f64, spread: f64) -> Interval {
        Interval {
            value,
            low: value - spread,
            high: value + spread,
            spread,
        }
    }

    /// Widens the interval by a systematic error to each side.
    fn widened(self, below: f64, above: f64) -> Interval {
        Interval {
            low: self.low - below,
            high: self.high + above,
            ..self
        }
    }

    /// Adds [`NON_SAMPLING_BIAS`] if the program was fast-forwarded before a sample.
    fn off_alike(self, samples: &[SampleCounts]) -> Interval {
        let passed_over = |s: &SampleCounts| s.stale != StaleLookups::default();
        if !samples.iter().any(passed_over) {
            return self;
        }
        self.widened(
            NON_SAMPLING_BIAS * self.value,
            NON_SAMPLING_BIAS * self.value,
        )
    }

    /// Interval of the reciprocal of a number that is not negative.
    fn inverse(self) -> Interval {
        let inverse = |x: f64| if x > 0.0 { 1.0 / x } else { f64::INFINITY };
        let alone = [self.value - self.spread, self.value + self.spread].map(inverse);
        Interval {
            value: inverse(self.value),
            low: inverse(self.high),
            high: inverse(self.low),
            spread: (alone[0] - alone[1]) / 2.0,
        }
    }

    /// Interval of a rate with `events` in `units`, at least as wide as that of a Poisson process.
    /// Without it, samples that all have no event would give an interval of width zero. The ends are
    /// Byar's approximation for the mean of a Poisson distribution (Breslow and Day, Statistical Methods
    /// in Cancer Research II, 1987, 2.3).
    fn of_few(self, events: f64, units: f64) -> Interval {
        if events >= FEW_EVENTS {
            return self;
        }
        let end = |n: f64, z: f64| n * (1.0 - 1.0 / (9.0 * n) + z / (3.0 * n.sqrt())).powi(3);
        let low = if events > 0.0 { end(events, -Z95) } else { 0.0 };
        let chance = [low, end(events + 1.0, Z95)].map(|n| n / units);
        Interval {
            low: self.low.min(chance[0]).max(0.0),
            high: self.high.max(chance[1]),
            spread: self.spread.max((chance[1] - chance[0]) / 2.0),
            ..self
        }
    }

    /// Without its part below zero, where no rate lies.
    fn of_rate(self) -> Interval {
        Interval {
            low: self.low.max(0.0),
            ..self
        }
    }

    /// Half of its width.
    pub(crate) fn half(self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// The estimate from samples, with its confidence intervals.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Sampling {
    /// Number of samples.
    pub samples: usize,
    /// Instructions a cycle.
    pub ipc: f64,
    /// Lower end of its confidence interval.
    pub ipc_low: f64,
    /// Upper end; None where there is none.
    #[schemars(with = "Option<f64>")]
    pub ipc_high: f64,
    /// Confidence of all intervals, a fraction.
    pub confidence: f64,
    /// Cold-start uncertainty: the part that is due to unknown contents of TLBs, caches and
    /// predictors when a sample begins. None where all that came before was warmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warming: Option<WarmingError>,
    /// Interval of each number of the summary that does not grow with the length of the run, by
    /// name.
    pub metrics: BTreeMap<&'static str, Interval>,
    /// Interval of the design's speedup; None for the first design.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup: Option<Interval>,
}

/// Cold-start uncertainty of samples: fast-forwarding leaves the contents of caches unknown.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct WarmingError {
    /// Cycles an instruction that would be saved if all misses that might be hits were hits.
    pub cpi_below: f64,
    /// Cycles an instruction that would be added if all hits that might be misses were misses.
    pub cpi_above: f64,
    /// Hits that might be misses, and misses that might be hits, for 1000 instructions, by
    /// cache, TLB or predictor. `translation`: sources behind the last TLB.
    pub unknown: BTreeMap<&'static str, [f64; 2]>,
}

/// Cold-start uncertainty of the samples, as CPI and as second-level TLB misses for 1000 instructions.
/// Each event is priced by its average cost in the cycle stack.
pub(crate) fn warming(samples: &[SampleCounts], tree: &Tree) -> Option<(WarmingError, [f64; 2])> {
    let mut sums = StaleLookups::default();
    for s in samples {
        for (sum, one) in sums.iter_mut().zip(s.stale) {
            *sum += one;
        }
    }
    let instructions: u64 = samples.iter().map(|s| s.work.instructions).sum();
    if sums == StaleLookups::default() || instructions == 0 {
        return None;
    }
    let prices = summary::prices(tree);
    let each = |n: u64| n as f64 / instructions as f64;
    let mut error = WarmingError {
        cpi_below: 0.0,
        cpi_above: 0.0,
        unknown: BTreeMap::new(),
    };
    for ((name, one), price) in STALE_STRUCTURES.into_iter().zip(sums).zip(prices) {
        error.cpi_below += price * each(one.misses);
        error.cpi_above += price * each(one.hits);
        let in_each_1000 = [one.hits, one.misses].map(|n| 1000.0 * each(n));
        if summary::has(tree, name) || one != StaleOutcomes::default() {
            error.unknown.insert(name, in_each_1000);
        }
    }
    let StaleOutcomes { hits, misses } = sums[SECOND_TLB];
    Some((error, [misses, hits].map(|n| 1000.0 * each(n))))
}

/// Jackknife interval of a number. `value` computes it from the sums over all of `n` samples, or over all
/// but the given one. Samples are in the order of the run.
fn jackknife(n: usize, value: impl Fn(Option<usize>) -> Option<f64>) -> Option<Interval> {
    let whole = value(None)?;
    let without: Vec<f64> = (0..n).map(|i| value(Some(i))).collect::<Option<_>>()?;
    let apart = without.windows(2).map(|pair| (pair[1] - pair[0]).powi(2));
    let squares = apart.sum::<f64>() / 2.0;
    let half = t95(freedom(n)) * (squares * (n - 1) as f64 / n as f64).sqrt();
    Some(Interval::around(whole, half))
}

/// Degrees of freedom of a variance estimated from successive differences of `n` normally distributed
/// values (von Neumann and others, Annals of Mathematical Statistics 1941).
fn freedom(n: usize) -> usize {
    match n {
        0..=2 => n.saturating_sub(1),
        n => 2 * (n - 1).pow(2) / (3 * n - 4),
    }
}

/// Sums over samples.
struct Sums {
    work: Work,
    cycles: u64,
    values: Vec<u64>,
}

impl Sums {
    fn of(samples: &[SampleCounts]) -> Self {
        let mut sums = Sums {
            work: Work::default(),
            cycles: 0,
            values: vec![0; samples.first().map_or(0, |s| s.values.len())],
        };
        for s in samples {
            sums.work += s.work;
            sums.cycles += s.cycles;
            for (sum, value) in sums.values.iter_mut().zip(&s.values) {
                *sum += value;
            }
        }
        sums
    }

    /// Work and cycles of all samples, or of all but one.
    fn without(&self, out: Option<&SampleCounts>) -> (Work, u64) {
        let (work, cycles) = out.map_or((Work::default(), 0), |s| (s.work, s.cycles));
        (self.work - work, self.cycles - cycles)
    }
}

/// Estimates for a design from its samples; nothing for fewer than two. `tree`: the counters of the
/// design.
pub(crate) fn estimate(samples: &[SampleCounts], tree: &Tree) -> Option<Sampling> {
    let n = samples.len();
    if n < 2 {
        return None;
    }
    let sums = Sums::of(samples);
    let sample = |out: Option<usize>| out.map(|i| &samples[i]);
    let cpi = jackknife(n, |out| {
        let (work, cycles) = sums.without(sample(out));
        (work.instructions > 0).then(|| cycles as f64 / work.instructions as f64)
    })?;
    let mut part = tree.clone();
    let mut rates = |out| {
        let out = sample(out);
        for (at, row) in part.rows.iter_mut().enumerate() {
            row.value = sums.values[at] - out.map_or(0, |s| s.values[at]);
        }
        let (work, cycles) = sums.without(out);
        summary::values_of_rates(&part, work, cycles)
    };
    let whole = rates(None);
    // One row for each sample left out.
    let without: Vec<Vec<Option<f64>>> = (0..n).map(|i| rates(Some(i))).collect();
    let metrics = summary::rates().enumerate().filter_map(|(m, definition)| {
        let mut interval = jackknife(n, |out| out.map_or(whole[m], |i| without[i][m]))?;
        if definition.is_mpki() {
            let thousands = sums.work.instructions as f64 / 1000.0;
            interval = interval.of_few(interval.value * thousands, thousands);
        }
        Some((definition.name, interval))
    });
    let mut metrics: BTreeMap<&'static str, Interval> = metrics.collect();
    let (warming, misses) = warming(samples, tree).unzip();
    let mut cpi = cpi;
    if let (Some(warming), Some([fewer, more])) = (&warming, misses) {
        cpi = cpi.widened(warming.cpi_below, warming.cpi_above);
        if let Some(found) = metrics.get_mut("l2_tlb_mpki") {
            *found = found.widened(fewer, more);
        }
    }
    for interval in metrics.values_mut() {
        *interval = interval.of_rate();
    }
    let ipc = cpi.off_alike(samples).inverse();
    metrics.insert("ipc", ipc);
    Some(Sampling {
        samples: n,
        ipc: ipc.value,
        ipc_low: ipc.low,
        ipc_high: ipc.high,
        confidence: CONFIDENCE,
        warming,
        metrics,
        speedup: None,
    })
}

/// Speedup of the samples `other` over those of `base`, by cycles an instruction or, with `by_request`, a
/// request. `paired`: both were measured at the same places of one stream.
pub(crate) fn speedup(
    base: &[SampleCounts],
    other: &[SampleCounts],
    by_request: bool,
    paired: bool,
) -> Option<Interval> {
    let (first, second) = (Sums::of(base), Sums::of(other));
    let cost = |sums: &Sums, out: Option<&SampleCounts>| {
        let (work, cycles) = sums.without(out);
        let done = if by_request {
            work.requests
        } else {
            work.instructions
        };
        (done > 0 && cycles > 0).then(|| cycles as f64 / done as f64)
    };
    let few = base.len().min(other.len());
    if few < 2 {
        return None;
    }
    if paired && base.len() == other.len() {
        let found = jackknife(few, |out| {
            let base = cost(&first, out.map(|i| &base[i]))?;
            Some(base / cost(&second, out.map(|i| &other[i]))?)
        });
        return found.map(|found| found.off_alike(base).of_rate());
    }
    let slow = jackknife(base.len(), |out| cost(&first, out.map(|i| &base[i])))?;
    let fast = jackknife(other.len(), |out| cost(&second, out.map(|i| &other[i])))?;
    let value = slow.value / fast.value;
    // Relative errors of independent estimates add in quadrature.
    let half = value * (slow.half() / slow.value).hypot(fast.half() / fast.value);
    Some(Interval::around(value, half).off_alike(base).of_rate())
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
        f => Z95 + (2.042 - Z95) * 30.0 / f as f64,
    }
}

#[cfg(test)]
mod tests {
    use pagewalk_stats::Tree;

    use super::{SampleCounts, StaleLookups, estimate, speedup};
    use crate::work::Work;

    fn samples(counts: &[(u64, u64)]) -> Vec<SampleCounts> {
        let one = |&(instructions, cycles): &(u64, u64)| SampleCounts {
            work: Work {
                instructions,
                requests: instructions / 10,
            },
            cycles,
            values: vec![],
            stale: StaleLookups::default(),
        };
        counts.iter().map(one).collect()
    }

    #[test]
    fn equal_samples_leave_no_doubt() {
        let s = estimate(&samples(&[(100, 250); 3]), &Tree::default()).unwrap();
        assert_eq!((s.ipc, s.ipc_low, s.ipc_high), (0.4, 0.4, 0.4));
    }

    #[test]
    fn the_interval_of_a_mean_is_the_textbook_one() {
        // CPI values 1 and 3: the variance s² is 2, t(1) = 12.706.
        let s = estimate(&samples(&[(10, 10), (10, 30)]), &Tree::default()).unwrap();
        assert!((s.ipc - 0.5).abs() < 1e-12);
        assert!((1.0 / s.ipc_low - 2.0 - 12.706).abs() < 1e-9);
        assert!(s.ipc_high.is_infinite(), "below no cycles");
        // 1, 2, 3: by successive differences s² is half of 1, with one degree of freedom.
        let s = estimate(&samples(&[(10, 10), (10, 20), (10, 30)]), &Tree::default()).unwrap();
        assert!((s.ipc - 0.5).abs() < 1e-12);
        assert!((1.0 / s.ipc_low - 2.0 - 12.706 / 6f64.sqrt()).abs() < 1e-9);
    }

    /// 95 % intervals of 40 random samples contain the mean 19 times in 20.
    #[test]
    fn intervals_of_independent_samples_hold_what_they_say() {
        use rand::RngExt;
        let mut draw = pagewalk_units::rng(3, "intervals");
        let held = (0..4000).filter(|_| {
            let counts: Vec<(u64, u64)> = (0..40)
                .map(|_| (1000, draw.random_range(1000..=3000)))
                .collect();
            let s = estimate(&samples(&counts), &Tree::default()).unwrap();
            s.ipc_low <= 0.5 && 0.5 <= s.ipc_high
        });
        let held = held.count();
        assert!((3720..=3880).contains(&held), "{held}");
    }

    #[test]
    fn phases_that_all_samples_have_seen_leave_less_doubt_than_chance_does() {
        let phases: Vec<(u64, u64)> = (0..40).map(|i| (100, 200 + 100 * (i / 10))).collect();
        let mixed: Vec<(u64, u64)> = (0..40).map(|i| phases[i * 7 % 40]).collect();
        let [ordered, mixed] = [phases, mixed].map(|counts| {
            let s = estimate(&samples(&counts), &Tree::default()).unwrap();
            s.ipc_high - s.ipc_low
        });
        assert!(ordered < mixed / 2.0, "{ordered} {mixed}");
    }

    #[test]
    fn few_events_have_wide_poisson_intervals() {
        let nothing = super::Interval::around(0.0, 0.0).of_few(0.0, 4000.0);
        // The exact upper end is 3.69 events.
        assert_eq!(nothing.low, 0.0);
        assert!((nothing.high * 4000.0 - 3.69).abs() < 0.03);
        // The exact interval for ten events is 4.80 to 18.39.
        let ten = super::Interval::around(10.0, 1.0).of_few(10.0, 1.0);
        assert!((ten.low - 4.80).abs() < 0.03 && (ten.high - 18.39).abs() < 0.03);
        let wide = super::Interval::around(10.0, 9.0).of_few(10.0, 1.0);
        assert_eq!((wide.low, wide.high), (1.0, 19.0), "as the samples differ");
        let many = super::Interval::around(40.0, 1.0).of_few(40.0, 1.0);
        assert_eq!((many.low, many.high), (39.0, 41.0));
    }

    #[test]
    fn no_rate_is_below_zero() {
        let wide = super::Interval::around(1.0, 3.0).of_rate();
        assert_eq!((wide.low, wide.high, wide.spread), (0.0, 4.0, 3.0));
        let uneven = samples(&[(100, 1), (100, 1000), (100, 1), (100, 1)]);
        let even = samples(&[(100, 100); 4]);
        for paired in [true, false] {
            let found = speedup(&uneven, &even, false, paired).unwrap();
            assert!(found.low == 0.0 && found.value - found.spread < 0.0);
        }
    }

    #[test]
    fn stale_state_widens_intervals_of_equal_samples() {
        let mut equal = samples(&[(1000, 2000); 3]);
        let alone = speedup(&equal, &equal, false, true).unwrap();
        assert_eq!((alone.low, alone.high), (1.0, 1.0));
        equal[1].stale[0].hits = 1;
        let [found, apart] = [true, false].map(|pairs| speedup(&equal, &equal, false, pairs));
        for found in [found.unwrap(), apart.unwrap()] {
            assert!((found.half() - 0.001).abs() < 1e-12, "{found:?}");
            assert_eq!(found.spread, 0.0, "more samples do not help");
        }
        let ipc = estimate(&equal, &Tree::default()).unwrap();
        assert!((ipc.ipc_low - 1.0 / 2.002).abs() < 1e-12 && ipc.ipc_low < ipc.ipc);
    }

    #[test]
    fn one_sample_gives_no_interval() {
        assert!(estimate(&samples(&[(10, 10)]), &Tree::default()).is_none());
    }

    #[test]
    fn matched_pairs_cancel_common_variation() {
        let base = samples(&[(100, 200), (100, 400), (100, 100), (100, 300)]);
        let other = samples(&[(100, 100), (100, 200), (100, 50), (100, 150)]);
        let paired = speedup(&base, &other, false, true).unwrap();
        assert!((paired.value - 2.0).abs() < 1e-12 && paired.half() < 1e-9);
        let alone = speedup(&base, &other, false, false).unwrap();
        assert!((alone.value - 2.0).abs() < 1e-12 && alone.half() > 0.5);
        let requests = speedup(&base, &other, true, true).unwrap();
        assert!((requests.value - 2.0).abs() < 1e-12);
    }
}
