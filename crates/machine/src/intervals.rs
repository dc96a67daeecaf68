//! Interval statistics, stored as columns because the number of intervals is unbounded.

use std::collections::BTreeMap;

use pagewalk_stats::{Bucket, Definition, Distribution, Tree};
use pagewalk_units::Cycle;
use schemars::JsonSchema;
use serde::{Serialize, Serializer, ser::SerializeSeq};

use crate::energy::Prices;
use crate::summary;
use crate::work::Work;

/// Position and work of an interval.
pub(crate) struct Stretch {
    /// Instructions of the measured part before it.
    pub(crate) first: u64,
    pub(crate) work: Work,
    /// Cycles of the slowest core.
    pub(crate) cycles: Cycle,
    /// True if it has the requested length.
    pub(crate) complete: bool,
}

/// Intervals of a measured part, as they are collected.
#[derive(Default)]
pub(crate) struct Intervals {
    pub(crate) first: Vec<u64>,
    pub(crate) work: Vec<Work>,
    pub(crate) cycles: Vec<Cycle>,
    pub(crate) complete: Vec<bool>,
    /// Paths and definitions of the counters, with the values of the last interval.
    shape: Tree,
    /// Values of all intervals, one interval after the other.
    values: Vec<u64>,
    /// Histograms of all intervals, likewise.
    spreads: Vec<Distribution>,
}

impl Intervals {
    pub(crate) fn push(&mut self, stretch: Stretch, counted: &Tree) {
        let Stretch {
            first,
            work,
            cycles,
            complete,
        } = stretch;
        if self.first.is_empty() {
            self.shape = counted.clone();
        }
        debug_assert_eq!(self.shape.rows.len(), counted.rows.len());
        debug_assert_eq!(self.shape.spreads.len(), counted.spreads.len());
        self.first.push(first);
        self.work.push(work);
        self.cycles.push(cycles);
        self.complete.push(complete);
        self.values.extend(counted.rows.iter().map(|r| r.value));
        let spreads = counted.spreads.iter().map(|s| s.values.clone());
        self.spreads.extend(spreads);
    }

    /// The result; nothing without intervals.
    pub(crate) fn result(&self, prices: Option<&Prices>) -> Option<IntervalsResult> {
        let n = self.first.len();
        if n == 0 {
            return None;
        }
        let mut instructions = Vec::with_capacity(n);
        let mut values: BTreeMap<&'static str, Vec<Option<f64>>> = BTreeMap::new();
        // Histograms are not part of the summary.
        let mut tree = Tree {
            rows: self.shape.rows.clone(),
            ..Tree::default()
        };
        let width = tree.rows.len();
        let account = prices.map(|p| p.account(&tree));
        for at in 0..n {
            let own = &self.values[at * width..(at + 1) * width];
            for (row, value) in tree.rows.iter_mut().zip(own) {
                row.value = *value;
            }
            // Instructions as the cores count them.
            let work = Work {
                instructions: tree.sum("instructions", summary::is_core),
                ..self.work[at]
            };
            instructions.push(work.instructions);
            let cycles = self.cycles[at];
            let energy = account.as_ref().map(|a| a.totals(&tree, cycles));
            for m in summary::summarise(&tree, None, work, cycles, energy, None) {
                values.entry(m.name).or_default().push(m.value);
            }
        }
        // Drops metrics without a value in any interval: those of page tables since boot.
        values.retain(|_, column| column.iter().any(Option::is_some));
        Some(IntervalsResult {
            first_instruction: self.first.clone(),
            instructions,
            cycles: self.cycles.clone(),
            complete: self.complete.clone(),
            values,
            stats: self.columns(),
            histograms: self.histograms(),
        })
    }

    fn columns(&self) -> Vec<Column> {
        let width = self.shape.rows.len();
        let of = |at: usize| self.values.iter().skip(at).step_by(width).copied();
        let mut columns: Vec<Column> = Vec::with_capacity(width);
        for (at, row) in self.shape.rows.iter().enumerate() {
            columns.push(Column::new(&row.path, row.definition, of(at).collect()));
        }
        let rows = &self.shape.rows;
        for (path, definition, parts) in of_cores(rows.iter().map(|r| (&r.path, r.definition))) {
            let mut sum = vec![0; self.first.len()];
            for at in parts {
                for (sum, own) in sum.iter_mut().zip(of(at)) {
                    *sum = if definition.peak {
                        own.max(*sum)
                    } else {
                        *sum + own
                    };
                }
            }
            columns.push(Column::new(&path, definition, sum));
        }
        columns
    }

    fn histograms(&self) -> Vec<HistogramColumn> {
        let shape = &self.shape.spreads;
        let width = shape.len().max(1);
        let of = |at: usize| self.spreads.iter().skip(at).step_by(width);
        let mut columns: Vec<HistogramColumn> = Vec::new();
        for (at, s) in shape.iter().enumerate() {
            let parts = of(at).cloned().collect();
            columns.push(HistogramColumn::new(&s.path, s.definition, parts));
        }
        for (path, definition, parts) in of_cores(shape.iter().map(|s| (&s.path, s.definition))) {
            let mut sum = vec![Distribution::default(); self.first.len()];
            for at in parts {
                for (sum, own) in sum.iter_mut().zip(of(at)) {
                    sum.merge(own);
                }
            }
            columns.push(HistogramColumn::new(&path, definition, sum));
        }
        columns
    }
}

/// Groups of rows that several cores have: the common path, such as `cores.mmu` for `core.0.mmu` and
/// `core.1.mmu`, the definition and the row positions.
pub(crate) fn of_cores<'a>(
    rows: impl Iterator<Item = (&'a String, &'static Definition)>,
) -> Vec<(String, &'static Definition, Vec<usize>)> {
    let mut all: Vec<(String, &'static Definition, Vec<usize>)> = Vec::new();
    let mut known: BTreeMap<(String, &'static str), usize> = BTreeMap::new();
    for (at, (path, definition)) in rows.enumerate() {
        let Some(below) = path.strip_prefix("core.") else {
            continue;
        };
        let below = below.trim_start_matches(|c: char| c.is_ascii_digit());
        let path = format!("cores{below}");
        let i = *known
            .entry((path.clone(), definition.name))
            .or_insert_with(|| {
                all.push((path, definition, Vec::new()));
                all.len() - 1
            });
        all[i].2.push(at);
    }
    all.retain(|(_, _, parts)| parts.len() > 1);
    all
}

/// The intervals of a measured part, as columns that have a value for each.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Intervals")]
pub struct IntervalsResult {
    /// Instructions of the measured part before each interval.
    pub first_instruction: Vec<u64>,
    /// Instructions of each interval.
    pub instructions: Vec<u64>,
    /// Cycles of the slowest core.
    pub cycles: Vec<u64>,
    /// True for intervals of the requested length; the end of the measured part may cut the last one.
    pub complete: Vec<bool>,
    /// Metrics of the summary by name; None where one is undefined.
    pub values: BTreeMap<&'static str, Vec<Option<f64>>>,
    /// Counters. With several cores: those of each core and, under `cores`, their sums.
    pub stats: Vec<Column>,
    /// Histograms. With several cores: those of each core and, under `cores`, their union.
    pub histograms: Vec<HistogramColumn>,
}

/// One counter over the intervals.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "IntervalStatistic")]
pub struct Column {
    /// Component.
    pub path: String,
    /// Name of the counter.
    pub name: &'static str,
    /// True for a state at the end of the interval, false for a count.
    pub gauge: bool,
    /// Value of each interval.
    pub values: Vec<u64>,
}

impl Column {
    fn new(path: &str, definition: &'static Definition, values: Vec<u64>) -> Self {
        Column {
            path: path.to_owned(),
            name: definition.name,
            gauge: definition.gauge,
            values,
        }
    }
}

/// One histogram over the intervals; each list has one entry for each interval.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "IntervalHistogram")]
pub struct HistogramColumn {
    /// Component.
    pub path: String,
    /// Name of the histogram.
    pub name: &'static str,
    /// Number of values.
    pub count: Vec<u64>,
    /// Sum of the values.
    pub sum: Vec<u64>,
    /// The largest value.
    pub largest: Vec<u64>,
    /// Value that half of the values do not exceed.
    pub p50: Vec<Option<u64>>,
    /// Value that 90 % of the values do not exceed.
    pub p90: Vec<Option<u64>>,
    /// Value that 99 % of the values do not exceed.
    pub p99: Vec<Option<u64>>,
    /// Buckets that are not empty: least value, largest value, count.
    #[schemars(with = "Vec<Vec<(u64, u64, u64)>>")]
    pub buckets: Vec<Buckets>,
}

impl HistogramColumn {
    fn new(path: &str, definition: &'static Definition, parts: Vec<Distribution>) -> Self {
        let of = |what: fn(&Distribution) -> u64| parts.iter().map(what).collect();
        let percentile = |p: u32| parts.iter().map(|d| d.percentile(p)).collect();
        HistogramColumn {
            path: path.to_owned(),
            name: definition.name,
            count: of(Distribution::count),
            sum: of(Distribution::sum),
            largest: of(Distribution::largest),
            p50: percentile(50),
            p90: percentile(90),
            p99: percentile(99),
            buckets: parts.into_iter().map(Buckets).collect(),
        }
    }
}

/// Buckets of a histogram, serialised as a list of `[least, largest, count]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets(pub Distribution);

impl Serialize for Buckets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for Bucket { low, high, count } in self.0.buckets() {
            list.serialize_element(&[low, high, count])?;
        }
        list.end()
    }
}

/// One histogram of the measured part.
///
/// Percentiles exceed the exact value by at most 1/32.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Histogram")]
pub struct HistogramResult {
    /// Component; with several cores, `cores` and paths below it stand for all cores together.
    pub path: String,
    /// Name of the histogram.
    pub name: &'static str,
    /// Unit of a value.
    pub unit: &'static str,
    /// Definition.
    pub meaning: &'static str,
    /// Number of values.
    pub count: u64,
    /// Sum of the values.
    pub sum: u64,
    /// Mean of the values, exact.
    pub mean: Option<f64>,
    /// Value that half of the values do not exceed.
    pub p50: Option<u64>,
    /// Value that 90 % of the values do not exceed.
    pub p90: Option<u64>,
    /// Value that 99 % of the values do not exceed.
    pub p99: Option<u64>,
    /// The largest value, exact.
    pub largest: Option<u64>,
    /// Buckets that are not empty, in ascending order: least value, largest value, count.
    #[schemars(with = "Vec<(u64, u64, u64)>")]
    pub buckets: Buckets,
}

impl HistogramResult {
    fn new(path: &str, definition: &'static Definition, values: Distribution) -> Self {
        HistogramResult {
            path: path.to_owned(),
            name: definition.name,
            unit: definition.unit,
            meaning: definition.meaning,
            count: values.count(),
            sum: values.sum(),
            mean: values.mean(),
            p50: values.percentile(50),
            p90: values.percentile(90),
            p99: values.percentile(99),
            largest: (values.count() > 0).then_some(values.largest()),
            buckets: Buckets(values),
        }
    }
}

/// Every histogram of `tree`, and with several cores also those of all cores together.
pub(crate) fn histograms(tree: &Tree) -> Vec<HistogramResult> {
    let spreads = &tree.spreads;
    let mut all: Vec<HistogramResult> = spreads
        .iter()
        .map(|s| HistogramResult::new(&s.path, s.definition, s.values.clone()))
        .collect();
    for (path, definition, parts) in of_cores(spreads.iter().map(|s| (&s.path, s.definition))) {
        let mut values = Distribution::default();
        for at in parts {
            values.merge(&spreads[at].values);
        }
        all.push(HistogramResult::new(&path, definition, values));
    }
    all
}
