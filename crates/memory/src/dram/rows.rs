//! The rows that a bank opens one after the other: open rows first (FR-FCFS; Rixner et al., ISCA
//! 2000) without a queue of requests.
//!
//! An answer is a time and cannot change, so an activation stays where it was put. A bank remembers
//! its last few activations, some of which still lie ahead of a request. A request whose row is open
//! at its arrival, or opens later, is a row hit: a controller would serve it before the row closes.
//! It takes the time of a burst from the bank, and no activation. If the bank is busy up to its last
//! activation, that time comes after it: the request bears the delay that the overtaken ones should
//! have had. Its bank time, and so the bank's throughput, is that of FR-FCFS.
//!
//! The cap is against starvation: at most that many hits of a row overtake an activation that has
//! been asked for. Then the row is opened anew, behind the other (FR-FCFS with a cap, Mutlu and
//! Moscibroda, MICRO 2007).

/// Activations that a bank remembers.
const REMEMBERED: usize = 4;

/// A row, open until the next one begins.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OpenRow {
    row: u64,
    /// Arrival of the request that opened it.
    asked: u64,
    /// Time at which the bank begins to open it, and closes the one before.
    begins: u64,
    /// Time of its activation, after the precharge.
    activated: u64,
    /// Hits that overtook the next row.
    overtook: u32,
}

impl OpenRow {
    /// A row that a request at `asked` opens.
    pub fn new(row: u64, asked: u64, begins: u64, activated: u64) -> Self {
        OpenRow {
            row,
            asked,
            begins,
            activated,
            overtook: 0,
        }
    }
}

/// The last rows of a bank, in order of time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OpenRows {
    rows: [OpenRow; REMEMBERED],
    count: usize,
}

impl OpenRows {
    #[inline(always)]
    fn rows(&self) -> &[OpenRow] {
        &self.rows[..self.count]
    }

    /// True if no row was ever open.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of the row that is open at `at`.
    #[inline(always)]
    fn open_at(&self, at: u64) -> Option<usize> {
        self.rows().iter().rposition(|row| row.begins <= at)
    }

    /// True if the activation behind row `n` is waiting at `at`.
    #[inline(always)]
    fn overtakes(&self, n: usize, at: u64) -> bool {
        self.rows().get(n + 1).is_some_and(|next| next.asked <= at)
    }

    /// Number of the row that a request for `row` at `at` hits.
    #[inline(always)]
    pub fn joins(&self, row: u64, at: u64, cap: u32) -> Option<usize> {
        let from = self.open_at(at).unwrap_or(0);
        let may = |n: usize| !self.overtakes(n, at) || self.rows[n].overtook < cap;
        (from..self.count).find(|&n| self.rows[n].row == row && may(n))
    }

    /// A request at `at` hits row `n`.
    #[inline(always)]
    pub fn join(&mut self, n: usize, at: u64) {
        if self.overtakes(n, at) {
            self.rows[n].overtook += 1;
        }
    }

    /// Time of the activation of the row that is open at `at`.
    #[inline(always)]
    pub fn activated(&self, at: u64) -> Option<u64> {
        let row = &self.rows[self.open_at(at)?];
        (row.activated <= at).then_some(row.activated)
    }

    /// Opens a row in place of all others.
    #[inline(always)]
    pub fn replace(&mut self, row: OpenRow) {
        self.rows[0] = row;
        self.count = 1;
    }

    /// Opens a row between the others. The oldest is forgotten if there are too many.
    pub fn insert(&mut self, row: OpenRow) {
        let at = self.open_at(row.begins).map_or(0, |n| n + 1);
        if self.count < REMEMBERED {
            self.rows.copy_within(at..self.count, at + 1);
            self.rows[at] = row;
            self.count += 1;
        } else if at > 0 {
            self.rows.copy_within(1..at, 0);
            self.rows[at - 1] = row;
        }
    }

    /// Opens a row without time, for functional warming.
    pub fn warm(&mut self, row: u64) {
        let activated = self.rows().last().map_or(0, |last| last.activated);
        self.replace(OpenRow::new(row, 0, 0, activated));
    }
}
