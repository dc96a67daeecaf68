//! Counters with units and definitions, and the statistics tree.
//!
//! A component declares its counters once with [`counters!`]. The struct consists
//! of plain integers; results, documentation and `pagewalk explain` read its
//! definitions. Where a mean is not enough, a component records a [`Histogram`],
//! whose definition is a constant made by [`histogram!`].

mod histogram;

use serde::Serialize;

pub use histogram::{Bucket, Distribution, Histogram, RELATIVE_ERROR, Spread};

/// The definition of one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Definition {
    /// Name within its component, e.g. `misses`.
    pub name: &'static str,
    /// Unit of the count, e.g. `lookups`, `cycles`, `bytes`.
    pub unit: &'static str,
    /// Meaning, in one sentence.
    pub meaning: &'static str,
    /// A count accumulates, and the measured part is a difference. A gauge is a
    /// state, and the measured part is its final value.
    pub gauge: bool,
    /// A gauge that holds a maximum. Several components are combined by their
    /// maximum, not by their sum.
    pub peak: bool,
}

/// A component's counters.
pub trait Counters {
    /// Definitions, in the order of `values`.
    fn definitions(&self) -> &'static [Definition];
    /// Values, in the order of `definitions`.
    fn values(&self, out: &mut Vec<u64>);
}

/// Declares a struct of counters: `name: "unit", "definition";` on each line.
/// `gauge` before the name marks a state, `peak` a maximum.
///
/// ```
/// pagewalk_stats::counters! {
///     /// Counters of a door.
///     pub struct DoorStats {
///         opened: "times", "Times the door was opened";
///         gauge width: "mm", "Width of the door";
///     }
/// }
/// let d = DoorStats { opened: 2, width: 800 };
/// let mut v = vec![];
/// pagewalk_stats::Counters::values(&d, &mut v);
/// assert_eq!(v, [2, 800]);
/// ```
#[macro_export]
macro_rules! counters {
    ($(#[$doc:meta])* pub struct $name:ident { $($rest:tt)* }) => {
        $crate::counters!(@munch [$(#[$doc])*] $name [] $($rest)*);
    };
    (@munch [$($doc:tt)*] $name:ident [$($done:tt)*] gauge $field:ident : $unit:literal, $meaning:literal; $($rest:tt)*) => {
        $crate::counters!(@munch [$($doc)*] $name [$($done)* ($field $unit $meaning true false)] $($rest)*);
    };
    (@munch [$($doc:tt)*] $name:ident [$($done:tt)*] peak $field:ident : $unit:literal, $meaning:literal; $($rest:tt)*) => {
        $crate::counters!(@munch [$($doc)*] $name [$($done)* ($field $unit $meaning true true)] $($rest)*);
    };
    (@munch [$($doc:tt)*] $name:ident [$($done:tt)*] $field:ident : $unit:literal, $meaning:literal; $($rest:tt)*) => {
        $crate::counters!(@munch [$($doc)*] $name [$($done)* ($field $unit $meaning false false)] $($rest)*);
    };
    (@munch [$($doc:tt)*] $name:ident [$(($field:ident $unit:literal $meaning:literal $gauge:literal $peak:literal))*]) => {
        $($doc)*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $(#[doc = $meaning] pub $field: u64),* }
        impl $crate::Counters for $name {
            fn definitions(&self) -> &'static [$crate::Definition] {
                const D: &[$crate::Definition] = &[$($crate::Definition {
                    name: stringify!($field), unit: $unit, meaning: $meaning, gauge: $gauge, peak: $peak,
                }),*];
                D
            }
            fn values(&self, out: &mut Vec<u64>) { $(out.push(self.$field);)* }
        }
    };
}

/// A snapshot of the statistics tree, which has the structure of the machine.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// One row for each counter, in a fixed order.
    pub rows: Vec<Row>,
    /// One entry for each histogram, in a fixed order.
    pub spreads: Vec<Spread>,
}

/// One counter's value at a path such as `core.0.mmu.l2.main`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The component, e.g. `core.0.l1d`.
    pub path: String,
    /// Definition of the counter.
    pub definition: &'static Definition,
    /// Value of the counter.
    pub value: u64,
}

impl Row {
    /// True for a nonzero count.
    pub fn counts(&self) -> bool {
        !self.definition.gauge && self.value > 0
    }
}

impl Tree {
    /// Adds a component's counters under `path`.
    pub fn add(&mut self, path: &str, counters: &dyn Counters) {
        let mut values = Vec::new();
        counters.values(&mut values);
        for (definition, value) in counters.definitions().iter().zip(values) {
            self.rows.push(Row {
                path: path.to_owned(),
                definition,
                value,
            });
        }
    }

    /// Adds the counters whose name `keep` accepts. The others are always zero
    /// for this component and carry no information.
    pub fn add_some(&mut self, path: &str, counters: &dyn Counters, keep: impl Fn(&str) -> bool) {
        let from = self.rows.len();
        self.add(path, counters);
        let rows = self.rows.split_off(from);
        self.rows
            .extend(rows.into_iter().filter(|r| keep(r.definition.name)));
    }

    /// Adds a histogram's values under `path`.
    pub fn add_values(
        &mut self,
        path: &str,
        definition: &'static Definition,
        values: Distribution,
    ) {
        self.spreads.push(Spread {
            path: path.to_owned(),
            definition,
            values,
        });
    }

    /// Adds the rows of `other`.
    pub fn append(&mut self, mut other: Tree) {
        self.rows.append(&mut other.rows);
        self.spreads.append(&mut other.spreads);
    }

    /// The change from `earlier` to `self`: counts are subtracted, gauges keep
    /// the later value. A row that `earlier` lacks counts from zero.
    pub fn since(&self, earlier: &Tree) -> Tree {
        let with = |(row, value): (&Row, u64)| Row {
            value,
            ..row.clone()
        };
        let values = self.values_since(earlier);
        let rows = self.rows.iter().zip(values).map(with).collect();
        let spreads = self
            .spreads
            .iter()
            .map(|s| {
                let same = |e: &&Spread| e.path == s.path && e.definition == s.definition;
                let values = match earlier.spreads.iter().find(same) {
                    Some(before) => s.values.since(&before.values),
                    None => s.values.clone(),
                };
                Spread {
                    values,
                    ..s.clone()
                }
            })
            .collect();
        Tree { rows, spreads }
    }

    /// The values of the rows of [`Tree::since`].
    pub fn values_since(&self, earlier: &Tree) -> Vec<u64> {
        fn key(row: &Row) -> (&str, &str) {
            (row.path.as_str(), row.definition.name)
        }
        let before: std::collections::HashMap<(&str, &str), u64> =
            earlier.rows.iter().map(|r| (key(r), r.value)).collect();
        let since = |row: &Row| match before.get(&key(row)) {
            Some(before) if !row.definition.gauge => row.value - before,
            _ => row.value,
        };
        self.rows.iter().map(since).collect()
    }

    /// Adds the statistics of a later interval: counts add up, gauges take the
    /// later value.
    pub fn go_on(&mut self, later: &Tree) {
        debug_assert_eq!(self.rows.len(), later.rows.len());
        for (own, later) in self.rows.iter_mut().zip(&later.rows) {
            debug_assert_eq!((&own.path, own.definition), (&later.path, later.definition));
            own.value = if own.definition.gauge {
                later.value
            } else {
                own.value + later.value
            };
        }
        self.merge_spreads(later);
    }

    fn merge_spreads(&mut self, other: &Tree) {
        debug_assert_eq!(self.spreads.len(), other.spreads.len());
        for (own, other) in self.spreads.iter_mut().zip(&other.spreads) {
            debug_assert_eq!((&own.path, own.definition), (&other.path, other.definition));
            own.values.merge(&other.values);
        }
    }

    /// Adds the statistics of another component of the same kind, with the same
    /// rows: counts and gauges add up, peaks take the maximum.
    pub fn merge(&mut self, other: &Tree) {
        debug_assert_eq!(self.rows.len(), other.rows.len());
        for (own, other) in self.rows.iter_mut().zip(&other.rows) {
            debug_assert_eq!((&own.path, own.definition), (&other.path, other.definition));
            if own.definition.peak {
                own.value = own.value.max(other.value);
            } else {
                own.value += other.value;
            }
        }
        self.merge_spreads(other);
    }

    /// The histogram `name` at `path`, if it exists.
    pub fn values(&self, path: &str, name: &str) -> Option<&Distribution> {
        let is = |s: &&Spread| s.path == path && s.definition.name == name;
        self.spreads.iter().find(is).map(|s| &s.values)
    }

    /// The value of counter `name` at `path`, if it exists.
    pub fn get(&self, path: &str, name: &str) -> Option<u64> {
        self.rows
            .iter()
            .find(|r| r.path == path && r.definition.name == name)
            .map(|r| r.value)
    }

    /// Sum of `name` over all paths that `select` accepts.
    pub fn sum(&self, name: &str, select: impl Fn(&str) -> bool) -> u64 {
        self.rows
            .iter()
            .filter(|r| r.definition.name == name && select(&r.path))
            .map(|r| r.value)
            .sum()
    }
}
