//! Counters of an elastic cuckoo table.

/// Counts of one way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WayStats {
    /// Upsizes started.
    pub upsizes: u64,
    /// Downsizes started.
    pub downsizes: u64,
    /// Resizes that changed the chunk size.
    pub chunk_changes: u64,
    /// Maximum bytes of the way's blocks.
    pub peak_bytes: u64,
}

/// Counters of one elastic cuckoo table since its creation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ElasticStats {
    /// Lines inserted.
    pub inserted: u64,
    /// Entries added to existing lines.
    pub merged: u64,
    /// Lines removed.
    pub removed: u64,
    /// Insertions of lines while an old and a new table coexisted.
    pub coexisting_insertions: u64,
    /// Lines displaced and re-inserted.
    pub reinsertions: u64,
    /// Number of insertions and rehashes, indexed by their number of re-insertions.
    pub by_reinsertions: Vec<u64>,
    /// Lines moved by in-place resizes.
    pub moved: u64,
    /// Lines that in-place resizes left in place.
    pub stayed: u64,
    /// Lines moved by out-of-place resizes.
    pub moved_out_of_place: u64,
    /// Insertions that exceeded the displacement limit and were retried.
    pub exhausted: u64,
    /// Upsizes started by an exceeded limit, not by the load factor.
    pub forced_upsizes: u64,
    /// Downsizes reversed, because the load factor rose again or a line found no slot.
    pub turned_round: u64,
    /// Resizes completed at once, because the next one was due.
    pub drained: u64,
    /// Chunk-size changes made at once, because no L2P entry was free for the new chunks.
    pub changed_at_once: u64,
    /// Maximum bytes of the table.
    pub peak_bytes: u64,
    /// Largest contiguous block of the table so far, in bytes.
    pub largest: u64,
    /// Counters of each way.
    pub ways: Vec<WayStats>,
}

impl ElasticStats {
    /// Counters of an empty table.
    pub(super) fn new(ways: usize, most_kicks: usize) -> Self {
        ElasticStats {
            by_reinsertions: vec![0; most_kicks + 1],
            ways: vec![WayStats::default(); ways],
            ..ElasticStats::default()
        }
    }
    /// Insertions of lines, and rehashes of lines by resizes.
    pub(crate) fn insertions_and_rehashes(&self) -> u64 {
        self.by_reinsertions.iter().sum()
    }
    /// Counts a line that was placed after `kicks` re-insertions.
    pub(super) fn placed(&mut self, kicks: usize) {
        self.reinsertions += kicks as u64;
        self.by_reinsertions[kicks] += 1;
    }
}
