//! What a table counts about itself.

/// Counts of one way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WayStats {
    /// Upsizes begun.
    pub upsizes: u64,
    /// Downsizes begun.
    pub downsizes: u64,
    /// Resizes that went over to chunks of another size.
    pub chunk_changes: u64,
    /// Most bytes that the way's blocks ever took.
    pub peak_bytes: u64,
}

/// Counts of one elastic cuckoo table since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ElasticStats {
    /// Lines inserted.
    pub inserted: u64,
    /// Entries merged into lines that were there.
    pub merged: u64,
    /// Lines removed.
    pub removed: u64,
    /// Insertions of lines while an old and a new table lived side by side.
    pub coexisting_insertions: u64,
    /// Lines that were displaced and inserted again.
    pub reinsertions: u64,
    /// By number of re-insertions: how many insertions and rehashes took so many.
    pub by_reinsertions: Vec<u64>,
    /// Lines that an in-place resize moved.
    pub moved: u64,
    /// Lines that an in-place resize left where they were.
    pub stayed: u64,
    /// Lines that an out-of-place resize moved.
    pub moved_out_of_place: u64,
    /// Insertions that gave up for too many displacements and were tried again.
    pub exhausted: u64,
    /// Upsizes begun because of that, not because of occupancy.
    pub forced_upsizes: u64,
    /// Downsizes turned round, because occupancy rose again or no place was found.
    pub turned_round: u64,
    /// Resizes finished at once, because the next one was due.
    pub drained: u64,
    /// Changes of the chunk size made at once, since no L2P entry was free for the new chunks.
    pub changed_at_once: u64,
    /// Most bytes that the table ever took.
    pub peak_bytes: u64,
    /// Largest contiguous block that it ever held, in bytes.
    pub largest: u64,
    /// Each way's.
    pub ways: Vec<WayStats>,
}

impl ElasticStats {
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
    pub(super) fn placed(&mut self, kicks: usize) {
        self.reinsertions += kicks as u64;
        self.by_reinsertions[kicks] += 1;
    }
}
