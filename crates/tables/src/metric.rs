//! Numbers that page tables add to the summary of a result.

use pagewalk_stats::Tree;

/// A number made of what page tables count about themselves.
pub struct TableMetric {
    /// Name.
    pub name: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// One sentence.
    pub meaning: &'static str,
    /// From the counters since the machine booted; `None` where no table has it.
    pub value: fn(&Tree) -> Option<f64>,
}

/// Sum of the counter `name` over the tables of the three page sizes, where they
/// have one for each.
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
