//! Summary metrics of cuckoo page tables.

use crate::metric::{TableMetric, over_sizes};

/// In output order.
pub(super) const METRICS: &[TableMetric] = &[
    TableMetric {
        name: "table_resizes",
        unit: "resizes",
        meaning: "Upsizes and downsizes of ways of cuckoo page tables since the machine booted",
        value: |t| Some(over_sizes(t, "upsizes")? + over_sizes(t, "downsizes")?),
    },
    TableMetric {
        name: "table_reinsertions_mean",
        unit: "re-insertions",
        meaning: "Mean number of re-insertions of an insertion or rehash in cuckoo page tables since the machine booted",
        value: |t| {
            let all = over_sizes(t, "insertions_and_rehashes")?;
            let reinsertions = over_sizes(t, "reinsertions")?;
            (all > 0.0).then(|| reinsertions / all)
        },
    },
    TableMetric {
        name: "l2p_entries",
        unit: "entries",
        meaning: "Peak number of L2P entries in use by one process since the machine booted",
        value: |t| Some(t.get("page_table.l2p", "entries_peak")? as f64),
    },
];
