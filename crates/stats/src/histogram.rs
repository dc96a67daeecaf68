//! Histograms: values are counted in a bounded number of buckets and stored as the list of
//! nonempty buckets.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Definition;

/// Sub-buckets of each octave: the values of a bucket differ by less than 1/32.
const PER_OCTAVE: u64 = 1 << PRECISION;
const PRECISION: u32 = 5;
/// Number of buckets for 64-bit values, rounded up to a power of two so that a mask bounds an
/// index.
const BUCKETS: usize = 2048;

/// Maximum relative amount by which a percentile may exceed its exact value. Values below 64 are
/// exact.
pub const RELATIVE_ERROR: f64 = 1.0 / PER_OCTAVE as f64;

/// The bucket of `value`. Values below 64 have their own buckets; each octave above has 32 buckets
/// of equal width.
#[inline(always)]
fn bucket(value: u64) -> usize {
    let shift = u64::BITS - 1 - PRECISION - (value | PER_OCTAVE).leading_zeros();
    ((shift as usize) << PRECISION) + (value >> shift) as usize
}

/// The smallest value of a bucket.
fn least(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    match (bucket >> PRECISION).checked_sub(1) {
        None => bucket,
        Some(shift) => (PER_OCTAVE + (bucket & (PER_OCTAVE - 1))) << shift,
    }
}

/// The largest value of a bucket.
fn most(bucket: usize) -> u64 {
    let shift = (bucket >> PRECISION).saturating_sub(1);
    least(bucket) + ((1 << shift) - 1)
}

/// Records values at the cost of a few operations each. Takes 16 KB.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    sum: u64,
    /// Largest value since [`Histogram::mark`].
    largest: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            counts: Box::new([0; BUCKETS]),
            sum: 0,
            largest: 0,
        }
    }
}

impl Histogram {
    /// Records one value.
    #[inline(always)]
    pub fn record(&mut self, value: u64) {
        self.counts[bucket(value) % BUCKETS] += 1;
        self.sum += value;
        if value > self.largest {
            self.largest = value;
        }
    }

    /// Restarts the maximum, at the start of a new interval.
    pub fn mark(&mut self) {
        self.largest = 0;
    }

    /// All values since the start. The maximum covers the values since the last
    /// [`Histogram::mark`]. A difference of two distributions ([`Distribution::since`]) has an
    /// exact maximum if the mark was set at the earlier one.
    pub fn distribution(&self) -> Distribution {
        let counts = self.counts.iter().enumerate().filter(|(_, n)| **n > 0);
        Distribution {
            buckets: counts.map(|(at, n)| (at as u16, *n)).collect(),
            sum: self.sum,
            largest: self.largest,
        }
    }
}

/// Values and their frequencies, at bucket resolution. Merging loses nothing: buckets and sums add
/// up, and the larger maximum remains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct Distribution {
    /// Nonempty buckets, in ascending order.
    buckets: Vec<(u16, u64)>,
    sum: u64,
    largest: u64,
}

/// A distribution in serialised form, not yet validated.
#[derive(Deserialize)]
struct Written {
    buckets: Vec<(u16, u64)>,
    sum: u64,
    largest: u64,
}

impl TryFrom<Written> for Distribution {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let Written {
            buckets,
            sum,
            largest,
        } = written;
        let ascend = buckets.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let exist = buckets
            .iter()
            .all(|b| usize::from(b.0) < BUCKETS && b.1 > 0);
        if !ascend || !exist {
            return Err("expected buckets of a histogram in ascending order, none of them empty");
        }
        Ok(Distribution {
            buckets,
            sum,
            largest,
        })
    }
}

/// A range of values that share a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Smallest value.
    pub low: u64,
    /// Largest value.
    pub high: u64,
    /// Number of recorded values.
    pub count: u64,
}

impl Distribution {
    /// Number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|b| b.1).sum()
    }

    /// Exact sum of the values.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Exact maximum; 0 if empty.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// Exact mean; `None` if empty.
    pub fn mean(&self) -> Option<f64> {
        let n = self.count();
        (n > 0).then(|| self.sum as f64 / n as f64)
    }

    /// The percentile `percent` (nearest rank): the smallest value that at least `percent` of 100
    /// values do not exceed. Reported as the largest value of its bucket, or the maximum if that
    /// is smaller: never below the exact value and at most [`RELATIVE_ERROR`] above. `None` if
    /// empty.
    pub fn percentile(&self, percent: u32) -> Option<u64> {
        let n = u128::from(self.count());
        let rank = (n * u128::from(percent.min(100))).div_ceil(100).max(1);
        let mut upto = 0;
        let at = self.buckets.iter().find(|b| {
            upto += u128::from(b.1);
            upto >= rank
        })?;
        Some(most(usize::from(at.0)).min(self.largest))
    }

    /// The nonempty buckets, in ascending order.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> {
        self.buckets.iter().map(|&(at, count)| Bucket {
            low: least(usize::from(at)),
            high: most(usize::from(at)),
            count,
        })
    }

    /// Adds `count` occurrences of `value`.
    pub fn add(&mut self, value: u64, count: u64) {
        if count == 0 {
            return;
        }
        let buckets = vec![(bucket(value) as u16, count)];
        self.merge(&Distribution {
            buckets,
            sum: value * count,
            largest: value,
        });
    }

    /// Adds the values of `other`.
    pub fn merge(&mut self, other: &Distribution) {
        for &(at, count) in &other.buckets {
            match self.buckets.binary_search_by_key(&at, |b| b.0) {
                Ok(i) => self.buckets[i].1 += count,
                Err(i) => self.buckets.insert(i, (at, count)),
            }
        }
        self.sum += other.sum;
        self.largest = self.largest.max(other.largest);
    }

    /// Sum of `parts`, each with its weight, rounded to whole counts. The maximum is the largest
    /// of all. A single part with weight 1 is unchanged.
    pub fn weighted<'a>(parts: impl Iterator<Item = (f64, &'a Distribution)>) -> Distribution {
        let (mut counts, mut sum, mut largest) = (BTreeMap::<u16, f64>::new(), 0.0, 0);
        for (times, part) in parts {
            for &(at, count) in &part.buckets {
                *counts.entry(at).or_default() += times * count as f64;
            }
            sum += times * part.sum as f64;
            largest = largest.max(part.largest);
        }
        let rounded = counts.into_iter().map(|(at, n)| (at, n.round() as u64));
        Distribution {
            buckets: rounded.filter(|b| b.1 > 0).collect(),
            sum: sum.round() as u64,
            largest,
        }
    }

    /// The values recorded since `earlier`, an earlier state of the same distribution.
    pub fn since(&self, earlier: &Distribution) -> Distribution {
        let mut before = earlier.buckets.iter().peekable();
        let mut buckets = Vec::new();
        for &(at, count) in &self.buckets {
            let known = before.next_if(|b| b.0 == at).map_or(0, |b| b.1);
            if count > known {
                buckets.push((at, count - known));
            }
        }
        // The maximum since `earlier` lies in the last bucket, although the mark may be older.
        let largest = buckets
            .last()
            .map_or(0, |b| self.largest.min(most(usize::from(b.0))));
        Distribution {
            buckets,
            sum: self.sum - earlier.sum,
            largest,
        }
    }
}

/// A distribution at a path such as `core.0.mmu`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The component.
    pub path: String,
    /// Meaning of a value.
    pub definition: &'static Definition,
    /// The values.
    pub values: Distribution,
}

/// The definition of a histogram: name, unit, and meaning of one value, as `Definition`.
#[macro_export]
macro_rules! histogram {
    ($name:literal, $unit:literal, $meaning:literal) => {
        $crate::Definition {
            name: $name,
            unit: $unit,
            meaning: concat!(
                $meaning,
                ". A histogram: mean and largest value are exact, a percentile lies at most 1/32 above the value that it stands for"
            ),
            gauge: false,
            peak: false,
        }
    };
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, PER_OCTAVE, bucket, least, most};

    #[test]
    fn buckets_are_contiguous() {
        let last = bucket(u64::MAX);
        assert!(last < BUCKETS);
        assert_eq!((least(0), most(last)), (0, u64::MAX));
        for at in 0..last {
            assert_eq!(most(at) + 1, least(at + 1));
            assert_eq!((bucket(least(at)), bucket(most(at))), (at, at));
            assert!((most(at) - least(at)) * PER_OCTAVE <= least(at));
        }
        assert_eq!((least(63), most(63)), (63, 63));
    }
}
