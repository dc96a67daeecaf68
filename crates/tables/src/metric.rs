//! Metrics that page tables add to the summary of a result.

use pagewalk_stats::Tree;

/// A summary metric computed from the counters of page tables.
pub struct TableMetric {
    /// Name.
    pub name: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// Definition, in one sentence.
    pub meaning: &'static str,
    /// Computes the value from the counters since boot. `None` if no table has
    /// these counters.
    pub value: fn(&Tree) -> Option<f64>,
}

/// Sum of the counter `name` over the tables of the three page sizes. `None` if
/// there are no such tables.
pub(crate) fn over_sizes(tree: &Tree, name: &str) -> Option<f64> {
    let of_a_size = |path: &str| {
        let size = path.strip_prefix("page_table.");
        size.is_some_and(|size| ["4kb", "2mb", "1gb"].contains(&size))
    };
    let mut values = tree
        .rows
        .iter()
        .filter(|r| r.definition.name == name && of_a_size(&r.path))
        .map(|r| r.value)
        .peekable();
    values.peek()?;
    Some(values.sum::<u64>() as f64)
}
