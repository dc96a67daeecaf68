//! STLT (section III): a table from integers, which a program derives from its keys, to the addresses
//! of records and the page-table entries of these addresses. The table has no clock.

use pagewalk_units::{Error, LINE_BYTES, PageSize, PhysAddr, Rng, VirtAddr, rng};
use rand::{Rng as _, RngExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::MOST_LINES;

/// The structure that answers a program's query for the address of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub enum ShortcutSpec {
    /// STLT: a table in kernel memory for each process that queries it. It holds addresses of records
    /// and their page-table entries. `loadVA` and `insertSTLT` access it.
    #[serde(rename = "stlt")]
    Stlt(StltSpec),
}

impl ShortcutSpec {
    /// Validates the values. An error names the key and the expected values.
    pub fn check(&self) -> Result<(), Error> {
        let ShortcutSpec::Stlt(spec) = self;
        spec.check().map_err(|e| e.under("shortcut.stlt"))
    }
}

/// Behaviour of a row's counter beyond its largest value, 15.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StltCounter {
    /// The counter wraps to 0.
    Wraps,
    /// The counter stays at 15.
    Saturates,
}

/// An STLT, with 16 bytes of memory for each row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StltSpec {
    /// Rows, a power of two from 256 (a page) to 67108864 (1 GB). Default 33554432: the 512 MB of
    /// section IV-B.
    pub rows: u64,
    /// Associativity, in rows: 1, 2, 4 or 8. Up to 4 rows lie in one line, 8 in two. Default 4
    /// (section IV-A).
    pub ways: u32,
    /// Behaviour of a row's counter beyond 15. Default `wraps` (section III-E; `saturates` is our
    /// addition).
    pub counter: StltCounter,
    /// Cycles of `loadVA` with four ways, without the memory reads. Default 6 (table III).
    pub load_latency: u8,
    /// Cycles of `insertSTLT` with four ways, without the walk and the memory reads. Default 4 (table
    /// III).
    pub insert_latency: u8,
    /// Cycles of `insertSTLT` from the end of its walk, if that comes after the scan of the set. Default: the cycles after
    /// the arrival of the set, as if the scan waited for the walk. The unit in `rtl/stlt_unit` scans during the walk and has
    /// 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub walk_latency: Option<u8>,
    /// Cycles that each way adds to both instructions, relative to four ways. Each takes at least one
    /// cycle. Default 1 (our value: section IV-D2 scans a set row by row but gives no number).
    pub scan_latency: u8,
    /// `loadVA` waits for the lines of its set. Default true. False models no real machine: the
    /// result is available after `load_latency`, and the lines are fetched in the background. A
    /// simulator that sees the loads but not their dependents behaves like this.
    pub waits_for_set: bool,
    /// Rows hold page-table entries, which `loadVA` passes to the MMU. Default true. False is the
    /// paper's STLT-VA (section IV-E): insertions need no walk, and there is no STB and no IPB.
    pub translations: bool,
    /// Turns the table on and off according to the program's measured performance. Default: none, the
    /// table is always on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard: Option<StltGuardSpec>,
}

/// The performance guarantee of section III-F, "turning STLT on and off". Queries (`loadVA`) of each
/// process are timed with the table on and off, and the faster setting is kept until the next trial.
/// The paper gives no numbers: all defaults are ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StltGuardSpec {
    /// Queries between two trials, which use the faster setting. The last `trial` of them are timed.
    /// Default 20000.
    pub period: u64,
    /// Queries of a trial, which use and time the other setting. In the long run at most `trial` of
    /// `period + trial` queries use the slower setting. Default 1000.
    pub trial: u64,
    /// Hit rate of the timed queries, in percent, below which the table is replaced by an empty one
    /// with twice as many rows. Default 50; 0: never.
    pub resize_below_percent: u8,
    /// Maximum rows after resizing. Default 67108864 (1 GB, the kernel's largest block).
    pub most_rows: u64,
}

impl Default for StltGuardSpec {
    fn default() -> Self {
        StltGuardSpec {
            period: 20_000,
            trial: 1000,
            resize_below_percent: 50,
            most_rows: STLT_MOST_ROWS,
        }
    }
}

impl StltGuardSpec {
    fn check(&self) -> Result<(), Error> {
        if self.trial == 0 || self.trial > self.period {
            return Err(Error::key(
                "trial",
                format!(
                    "is {}; expected 1 to period ({}) queries",
                    self.trial, self.period
                ),
            ));
        }
        if self.resize_below_percent > 100 {
            return Err(Error::key(
                "resize_below_percent",
                format!("is {}; expected 0 to 100", self.resize_below_percent),
            ));
        }
        StltSpec::check_rows("most_rows", self.most_rows)
    }
}

impl Default for StltSpec {
    fn default() -> Self {
        StltSpec {
            rows: 1 << 25,
            ways: 4,
            counter: StltCounter::Wraps,
            load_latency: 6,
            insert_latency: 4,
            walk_latency: None,
            scan_latency: 1,
            waits_for_set: true,
            translations: true,
            guard: None,
        }
    }
}

/// Size of a row in bytes.
pub const STLT_ROW_BYTES: u64 = 16;
/// Minimum rows: the table is page-aligned and at least one page long.
pub const STLT_FEWEST_ROWS: u64 = 4096 / STLT_ROW_BYTES;
/// Maximum rows: 1 GB, the kernel's largest block.
pub const STLT_MOST_ROWS: u64 = 1 << 26;
/// Bits of the integer that a row stores (the sub-integer).
pub const STLT_SUB_BITS: u32 = 12;
const SUB_MASK: u64 = (1 << STLT_SUB_BITS) - 1;
/// Bits of an address that a row stores.
pub const STLT_VA_BITS: u32 = 48;
const VA_MASK: u64 = (1 << STLT_VA_BITS) - 1;
const COUNTER_SHIFT: u32 = STLT_VA_BITS + STLT_SUB_BITS;
/// Bits of a row's counter.
pub const STLT_COUNTER_BITS: u32 = u64::BITS - COUNTER_SHIFT;
/// Largest value of a counter.
const MOST_COUNTED: u64 = (1 << STLT_COUNTER_BITS) - 1;
/// Lowest bit of a page's size in the entry that a row stores.
pub const STLT_SIZE_BIT: u32 = 9;

/// Associativity for which the paper gives its latencies (table III, section IV-A).
const WAYS_OF_LATENCIES: u64 = 4;

impl StltSpec {
    /// Cycles from the arrival of the set to the result of an instruction. `latency` is its latency
    /// with four ways.
    pub fn scanned(&self, latency: u8) -> u8 {
        let scan = |ways: u64| u64::from(self.scan_latency) * ways;
        let with = u64::from(latency) + scan(u64::from(self.ways));
        with.saturating_sub(scan(WAYS_OF_LATENCIES))
            .clamp(1, u64::from(u8::MAX)) as u8
    }

    /// Cycles from the end of an insertion's walk to its result.
    pub fn after_walk(&self) -> u8 {
        let scanned = self.scanned(self.insert_latency);
        self.walk_latency.unwrap_or(scanned)
    }

    fn check(&self) -> Result<(), Error> {
        Self::check_rows("rows", self.rows)?;
        if self.walk_latency == Some(0) {
            return Err(Error::key(
                "walk_latency",
                "is 0; expected at least 1 cycle",
            ));
        }
        if !matches!(self.ways, 1 | 2 | 4 | 8) {
            return Err(Error::key(
                "ways",
                format!("is {}; expected 1, 2, 4 or 8", self.ways),
            ));
        }
        match &self.guard {
            Some(guard) => guard.check().map_err(|e| e.under("guard")),
            None => Ok(()),
        }
    }

    /// Checks that `rows`, the value of `key`, is a valid number of rows.
    pub fn check_rows(key: &str, rows: u64) -> Result<(), Error> {
        if rows.is_power_of_two() && (STLT_FEWEST_ROWS..=STLT_MOST_ROWS).contains(&rows) {
            return Ok(());
        }
        Err(Error::key(
            key,
            format!(
                "is {rows}; expected a power of two from {STLT_FEWEST_ROWS} to {STLT_MOST_ROWS}"
            ),
        ))
    }
}

/// The page of a record, as a row stores it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StltPage {
    /// First byte of the page's frame.
    pub frame: PhysAddr,
    /// Page size.
    pub size: PageSize,
    /// Stores are allowed.
    pub writable: bool,
}

impl StltPage {
    /// Encodes the page as an x86-64 page-table entry (present, writable, frame). The page size lies
    /// in software bits 9 and 10; in a radix tree the level implies it.
    fn entry(self) -> u64 {
        self.frame.0
            | (self.size.index() as u64) << STLT_SIZE_BIT
            | u64::from(self.writable) << 1
            | 1
    }
    fn of(entry: u64) -> Option<Self> {
        (entry & 1 != 0).then(|| StltPage {
            frame: PhysAddr(entry & !0xfff),
            size: PageSize::ALL[(entry >> STLT_SIZE_BIT & 3) as usize],
            writable: entry & 2 != 0,
        })
    }
}

/// A matching row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StltRow {
    /// Physical address of the row.
    pub at: PhysAddr,
    /// The address of the record.
    pub va: VirtAddr,
    /// The page of the record, if rows store pages.
    pub page: Option<StltPage>,
}

/// The outcome of an insertion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StltInserted {
    /// An empty row was used.
    New,
    /// The matching row was overwritten.
    Matching,
    /// The least frequently used row of the set was replaced.
    Replaced,
}

/// The STLT of one process.
#[derive(Clone, Debug)]
pub struct Stlt {
    base: PhysAddr,
    ways: usize,
    sets: u64,
    saturates: bool,
    /// Two words for each row: counter, sub-integer and address; page-table entry. The row is empty
    /// if the address is 0.
    words: Vec<u64>,
    used: u64,
    rng: Rng,
}

impl Stlt {
    /// An empty table of `rows` at `base`. `spec` is already checked. `name` selects its random
    /// stream.
    pub fn new(spec: &StltSpec, rows: u64, base: PhysAddr, seed: u64, name: &str) -> Self {
        Stlt {
            base,
            ways: spec.ways as usize,
            sets: rows / u64::from(spec.ways),
            saturates: spec.counter == StltCounter::Saturates,
            words: vec![0; 2 * rows as usize],
            used: 0,
            rng: rng(seed, name),
        }
    }

    /// Start address of the table.
    pub fn base(&self) -> PhysAddr {
        self.base
    }
    /// Number of rows, empty or not.
    pub fn rows(&self) -> u64 {
        self.sets * self.ways as u64
    }
    /// Number of rows in use.
    pub fn used(&self) -> u64 {
        self.used
    }
    /// The two words of a row, as memory holds them.
    pub fn row_words(&self, row: u64) -> [u64; 2] {
        let at = 2 * row as usize;
        [self.words[at], self.words[at + 1]]
    }
    /// A copy of the generator of its random numbers.
    pub fn random(&self) -> Rng {
        self.rng.clone()
    }
    /// True if a row can store this address.
    pub fn holds(va: VirtAddr) -> bool {
        va.0 != 0 && va.0 & !VA_MASK == 0
    }

    /// Index of the first row of the set of `integer`, selected by the bits above the sub-integer.
    fn set(&self, integer: u64) -> usize {
        ((integer >> STLT_SUB_BITS) & (self.sets - 1)) as usize * self.ways
    }
    fn at(&self, row: usize) -> PhysAddr {
        PhysAddr(self.base.0 + STLT_ROW_BYTES * row as u64)
    }
    /// The lines of the set of `integer`.
    pub fn lines(&self, integer: u64) -> arrayvec::ArrayVec<PhysAddr, MOST_LINES> {
        let from = self.at(self.set(integer)).0;
        let to = from + STLT_ROW_BYTES * self.ways as u64;
        let first = from & !(LINE_BYTES - 1);
        (first..to)
            .step_by(LINE_BYTES as usize)
            .map(PhysAddr)
            .collect()
    }

    fn matches(&self, row: usize, integer: u64) -> bool {
        let word = self.words[2 * row];
        word & VA_MASK != 0 && word >> STLT_VA_BITS & SUB_MASK == integer & SUB_MASK
    }
    fn counter(&self, row: usize) -> u64 {
        self.words[2 * row] >> COUNTER_SHIFT
    }

    /// A row of the set for which `wanted` is true. Several candidates have equal probability.
    fn one_of(&mut self, set: usize, wanted: impl Fn(&Self, usize) -> bool) -> Option<usize> {
        let rows = set..set + self.ways;
        let candidates: arrayvec::ArrayVec<usize, 8> = rows.filter(|&r| wanted(self, r)).collect();
        match candidates.len() {
            0 => None,
            1 => Some(candidates[0]),
            n => Some(candidates[self.rng.random_range(0..n)]),
        }
    }

    /// `loadVA`: returns the matching row, a random one if several match. Increments its counter with
    /// probability 2^-counter.
    pub fn load(&mut self, integer: u64) -> Option<StltRow> {
        let row = self.one_of(self.set(integer), |t, r| t.matches(r, integer))?;
        self.count(row);
        Some(StltRow {
            at: self.at(row),
            va: VirtAddr(self.words[2 * row] & VA_MASK),
            page: StltPage::of(self.words[2 * row + 1]),
        })
    }

    fn count(&mut self, row: usize) {
        let counter = self.counter(row);
        if self.rng.next_u64() & ((1 << counter) - 1) != 0 {
            return;
        }
        let next = match counter {
            MOST_COUNTED if self.saturates => MOST_COUNTED,
            MOST_COUNTED => 0,
            _ => counter + 1,
        };
        let word = &mut self.words[2 * row];
        *word = *word & !(MOST_COUNTED << COUNTER_SHIFT) | next << COUNTER_SHIFT;
    }

    /// `insertSTLT`: records that the record of `integer` lies at `va`, for which [`Stlt::holds`]
    /// must be true. Uses the matching row, else an empty row, else one of the rows with the smallest
    /// counter. Returns the row's address and the outcome.
    pub fn insert(
        &mut self,
        integer: u64,
        va: VirtAddr,
        page: Option<StltPage>,
    ) -> (PhysAddr, StltInserted) {
        let set = self.set(integer);
        let (row, what) = if let Some(r) = self.one_of(set, |t, r| t.matches(r, integer)) {
            (r, StltInserted::Matching)
        } else if let Some(r) = (set..set + self.ways).find(|&r| self.words[2 * r] & VA_MASK == 0) {
            self.used += 1;
            (r, StltInserted::New)
        } else {
            let rows = set..set + self.ways;
            let least = rows.map(|r| self.counter(r)).min().unwrap_or(0);
            let chosen = self.one_of(set, |t, r| t.counter(r) == least);
            (chosen.unwrap_or(set), StltInserted::Replaced)
        };
        self.words[2 * row] = (integer & SUB_MASK) << STLT_VA_BITS | va.0 & VA_MASK;
        self.words[2 * row + 1] = page.map_or(0, StltPage::entry);
        (self.at(row), what)
    }

    /// `insertSTLT` of address 0: empties the matching row and returns its address, if there was one.
    /// Insertions never make two rows of a set match.
    pub fn erase(&mut self, integer: u64) -> Option<PhysAddr> {
        self.erase_unless(integer, VirtAddr(0))
    }

    /// Like [`Stlt::erase`], but keeps a row that holds `va`.
    pub fn erase_unless(&mut self, integer: u64, va: VirtAddr) -> Option<PhysAddr> {
        let row = self.one_of(self.set(integer), |t, r| t.matches(r, integer))?;
        if self.words[2 * row] & VA_MASK == va.0 {
            return None;
        }
        self.words[2 * row..2 * row + 2].fill(0);
        self.used -= 1;
        Some(self.at(row))
    }

    /// Updates all rows whose address satisfies `changed`: stores the page that `now` returns, or
    /// empties the row without one. Returns the number of these rows.
    pub fn refresh(
        &mut self,
        changed: impl Fn(VirtAddr) -> bool,
        now: impl Fn(VirtAddr) -> Option<StltPage>,
    ) -> u64 {
        let mut rows = 0;
        if self.used == 0 {
            return 0;
        }
        for row in self.words.chunks_exact_mut(2) {
            let va = VirtAddr(row[0] & VA_MASK);
            if va.0 == 0 || !changed(va) {
                continue;
            }
            rows += 1;
            match now(va) {
                Some(page) => row[1] = page.entry(),
                None => {
                    row.fill(0);
                    self.used -= 1;
                }
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests;
