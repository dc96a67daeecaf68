//! Values of ranges of the guest's addresses.

use std::collections::BTreeMap;

/// Ranges that do not overlap, each with a value.
pub struct Ranges<T> {
    /// End and value by start.
    by_start: BTreeMap<u64, (u64, T)>,
}

impl<T: Copy> Ranges<T> {
    /// No range.
    pub const fn new() -> Self {
        Ranges {
            by_start: BTreeMap::new(),
        }
    }

    /// The range that contains `at`: start, end and value.
    pub fn find(&self, at: u64) -> Option<(u64, u64, T)> {
        let (&start, &(end, value)) = self.by_start.range(..=at).next_back()?;
        (at < end).then_some((start, end, value))
    }

    /// Removes and returns the parts in `from..to`.
    pub fn remove(&mut self, from: u64, to: u64) -> Vec<(u64, u64, T)> {
        let first = self.find(from).map_or(from, |found| found.0);
        let starts: Vec<u64> = self.by_start.range(first..to).map(|e| *e.0).collect();
        let mut parts = Vec::new();
        for start in starts {
            let Some((end, value)) = self.by_start.remove(&start) else {
                continue;
            };
            if start < from {
                self.by_start.insert(start, (from, value));
            }
            if end > to {
                self.by_start.insert(to, (end, value));
            }
            parts.push((start.max(from), end.min(to), value));
        }
        parts
    }

    /// The values of all ranges.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.by_start.values().map(|(_, value)| value)
    }

    /// As [`Ranges::values`], to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.by_start.values_mut().map(|(_, value)| value)
    }

    /// Gives `from..to` a value.
    pub fn set(&mut self, from: u64, to: u64, value: T) {
        self.remove(from, to);
        if from < to {
            self.by_start.insert(from, (to, value));
        }
    }
}
